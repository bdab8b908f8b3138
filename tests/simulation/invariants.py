"""What must hold of any history, checked against naive definitions that know nothing of the indexes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tests.simulation import effects
from tests.simulation.world import SPOILT

from rerail.kernel import events as ev
from rerail.kernel.fold import evolve, fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import MET, WORTH, Phase, Standing, Track, same_inputs, signature
from rerail.kernel.verdict import statistics, status_of, verdict
from rerail.plan.step import Effect, When

ROTTEN = "not what it was"  # what a content says that went bad
NEAR = 1e-6  # sums of costs that differ by less are the same
ENDS = ("succeeded", "degraded", "failed", "skipped", "in_doubt", "cancelled")


class Broken(AssertionError):
    """A law that does not hold, by its name."""

    def __init__(self, law: str, about: object) -> None:
        super().__init__(f"{law}: {about}")
        self.law = law


def _hold(law: str, holds: object, about: object = "") -> None:
    if not holds:
        raise Broken(law, about)


LAWS = {
    "recorded": "no tool is called before the call is on record",
    "one call": "an attempt is called at most once",
    "fenced": "nobody calls for a run that somebody else has had for a second",
    "patient": "a tool that asked for time is not called before",
    "once": "what must not happen twice happens twice only where a person said so",
    "settled": "a `once` call follows a lost one only after its settled absence, under its key in time, or on a "
    "person's word; a later *not done* settles nothing",
    "looked": "right before a `once` call is made again its effect is looked for, whatever was called in between",
    "patience": "absence is believed only once `settle` has passed since the call was over, and then it is true",
    "under way": "no `once` call begins while an earlier one of its step is at work",
    "partial": "after a look that found a part of the effect, no `once` call is made but on a person's word",
    "doubt": "while a doubt is open nothing calls its step",
    "owned": "no fenced tool of a replaced owner has its effect",
    "acknowledged": "what was acknowledged stays, in its order",
    "fences": "a later owner's events never come before an earlier owner's",
    "truthful": "a step that succeeded was really answered so, with that output, and met its check",
    "cleaned up": "the steps of `finally` begin once the work is over, whatever it came to; each is called, or it is "
    "known why not; a breaker ends a round and not the run",
    "honest": "no success while a critical step failed, hangs or is in doubt, and nothing made up passes for whole",
    "agreed": "no gated call is made without a confirmation of exactly that call",
    "its own": "what a tool, a look or a probe does to the values it was handed, nobody else sees",
    "sound": "no step is called with a content that went bad",
    "obeyed": "what a person cancelled, paused or skipped starts nothing until somebody wants it to",
    "bounded": "no more calls at once than allowed",
    "afforded": "spent plus reserved is above a cap only by what calls cost beyond their reservation; none starts then",
    "history": "needs, attempts, budgets and indexes are as their definitions say",
    "rest": "exactly one done, nothing under way, a verdict that can be computed again",
    "ends": "once all is calm, a run comes to rest",
}


def snapshot(state: State) -> dict[str, Any]:
    """A state as plain data, so that two can be compared."""
    tracks = {
        track.id: (
            track.phase, track.standing, track.attempt, track.calls, track.again, track.root, track.stale,
            track.agreed, track.open, track.dead, track.dead_open, track.void, track.generation,
            track.result and (track.result.digest, track.result.degraded, track.result.hole),
            track.error, status_of(state, track),
        )
        for track in state.tracks.values()
    }  # fmt: skip
    indexes = {
        "ready": sorted(state.ready.members), "keepers": sorted(state.keepers), "gates": sorted(state.gates),
        "running": sorted(state.running), "backoff": sorted(state.backoff), "hurt": sorted(state.hurt),
        "held": sorted(state.held), "doubts": sorted(state.doubts), "announce": sorted(state.announce),
        "by_tool": {name: count for name, count in state.by_tool.items() if count},
    }  # fmt: skip
    run = (
        state.round, state.automatic_rounds, state.retries, state.calls, state.stopped, state.paused, state.waiting,
        state.cost, state.tokens, state.reserved.cost, state.reserved.tokens, state.reserved.unpriced,
    )  # fmt: skip
    return {"tracks": tracks, "indexes": indexes, "run": run, "row": list(state.row)}


# What a step that a stopped run leaves as it is comes to, for those that clean up.
LEFT = {"FAILED_OPEN": Standing.FAILED, "BLOCKED_OPEN": Standing.BLOCKED, "OPEN": Standing.BLOCKED}


def worth_of(state: State, track: Track, need: Track, when: When, standing: Standing) -> int:
    """What a need is worth to a step."""
    left = state.stopped and state.cleaned and track.id in state.finals and need.id not in state.finals
    return WORTH[when][LEFT.get(standing.name, standing) if left else standing]


def naive_standing(state: State, track: Track, settled: dict[str, Standing]) -> Standing:
    """What a step is to those that need it, straight from the rules."""
    if track.phase in (Phase.SUCCEEDED, Phase.SKIPPED):
        return Standing.OK
    if track.phase is Phase.FAILED:
        return track.standing  # when it failed decides whether a round may follow; counted once, there
    if track.phase is not Phase.PENDING:
        return Standing.OPEN
    if track.id in state.finals and not state.cleaned:
        return Standing.OPEN
    worth = [worth_of(state, track, need, when, settled[need.id]) for need, when in track.needs]
    if 2 in worth or 3 in worth:
        return Standing.BLOCKED_OPEN if 3 in worth else Standing.BLOCKED
    if 4 in worth and 0 not in worth and (track.root or not track.again):
        return Standing.VOID
    return Standing.OPEN


def check_indexes(state: State) -> None:
    """The indexes equal their naive definitions."""
    settled: dict[str, Standing] = {}
    left = dict(state.tracks)
    while left:
        for step_id in [s for s, t in left.items() if all(need.id in settled for need, _ in t.needs)]:
            settled[step_id] = naive_standing(state, left.pop(step_id), settled)
    for track in state.tracks.values():
        _hold("history", track.standing is settled[track.id], (track, settled[track.id]))
        worth = [worth_of(state, track, need, when, need.standing) for need, when in track.needs]
        counts = (worth.count(0), worth.count(2) + worth.count(3), worth.count(3), worth.count(4))
        _hold("history", (track.open, track.dead, track.dead_open, track.void) == counts, track)
        kept = track.again and not track.root
        waits = track.id in state.finals and not state.cleaned
        can = track.phase is Phase.PENDING and not waits and all(w == MET or (w == 4 and kept) for w in worth)
        keep = can and kept
        gate = can and not keep and bool(track.step.confirm) and not track.agreed
        _hold("history", (track in state.ready) == (can and not keep and not gate), track)
        _hold("history", (track.n in state.keepers) == keep, track)
        _hold("history", (track.n in state.gates) == gate, track)
        held = track.call if track.phase is Phase.RUNNING else None
        holds = held is not None and bool(held.reserved_cost or held.reserved_tokens or held.unpriced)
        _hold("afforded", track.holds is (held if holds else None), (track, track.holds))
        _hold("history", gate or track.n not in state.unshown, track)
        for phase, index in (
            (Phase.RUNNING, state.running), (Phase.BACKOFF, state.backoff), (Phase.HURT, state.hurt),
            (Phase.HELD, state.held), (Phase.DOUBT, state.doubts),
        ):  # fmt: skip
            _hold("history", (track.n in index) == (track.phase is phase), (track, phase))
    calls = [track.holds for track in state.tracks.values() if track.holds is not None]
    reserved = (sum(c.reserved_tokens for c in calls), sum(c.unpriced for c in calls), len(calls))
    _hold("afforded", reserved == (state.reserved.tokens, state.reserved.unpriced, state.reserved.calls), "the sum")
    cost = sum(call.reserved_cost for call in calls)
    _hold("afforded", math.isclose(state.reserved.cost, cost, abs_tol=NEAR), (state.reserved.cost, cost))
    waits = any(track.question == "replan" for track in state.held.values())
    _hold("history", bool(state.stopped) or state.replan_wanted == (waits or state.breaker), "a replan is wanted")


def check_history(records: list[ev.Record], policy: Policy, *, people: bool = False) -> State:
    """Every law that can be read off a history; returns its state."""
    state = State(records[0].run)
    attempts: set[tuple[str, int]] = set()
    calls: Counter[tuple[str, int]] = Counter()
    spent = 0.0
    seen: dict[str, Any] = {}  # step → what its call was made from when its gate opened
    end = CleanUp()
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            _check_start(state, event, attempts)
            _check_room(state, event)
            if event.rung is not Rung.FALLBACK:
                calls[event.step, state.round] += 1
        elif isinstance(event, ev.RetryScheduled) and event.not_now:
            last = state.tracks[event.step].call
            calls[event.step, state.round] -= 1 if last is not None and last.rung is not Rung.FALLBACK else 0
        elif isinstance(event, ev.Done):
            under_way = state.running or state.hurt or state.backoff or state.held or state.announce
            _hold("rest", not under_way, "something is under way")
            _hold("rest", state.stopped or not (state.ready or state.keepers), "something could start")
        end.check(state, record)
        before = {track.id: track.call for track in state.running.values() if track.call is not None}
        evolve(state, event, record.at, record.seq)
        check_indexes(state)
        spent += _charged(state, event, before)
        _hold("afforded", math.isclose(state.cost, spent, abs_tol=NEAR), ("charged", state.cost, spent))
        if isinstance(event, ev.GateOpened):
            seen[event.step] = _made_from(state, state.tracks[event.step])
        for track in state.gates.values():
            shown = track.n in state.unshown or seen.get(track.id) == _made_from(state, track)
            _hold("history", shown, (track, "a gate shows a call that is another one by now"))
    _check_budgets(state, calls, policy, people=people)
    return state


class CleanUp:
    """The steps of `finally`, by the events alone (P2)."""

    def __init__(self) -> None:
        self.began: ev.CleanupBegun | None = None
        self.cancels = 0
        self.cut = self.again = False
        self.called: set[str] = set()

    def check(self, state: State, record: ev.Record) -> None:
        """One more event."""
        event = record.event
        if isinstance(event, ev.RetryBegin) and not (event.stopped or event.operation in ("resolve", "skip")):
            self.again = self.again or not event.automatic
            self.began, self.cancels, self.cut, self.called = None, 0, False, set()
        elif isinstance(event, ev.RetryBegin):
            self.cut = True  # a person's word about one step opens no clean-up
        elif isinstance(event, ev.Cancelled):
            self.cancels += 1
            self.cut = self.cut or (self.began is not None and self.cancels > 1)
        elif isinstance(event, ev.Stopped) and self.began is not None:
            caps = event.code == "BUDGET_EXCEEDED" and state.policy.max_cost is None and not self.again
            kept = [
                name for name in state.finals if not state.tracks[name].attempt and state.tracks[name] in state.ready
            ]
            _hold("cleaned up", not (caps and kept), ("the reserve is spent", event, kept))
            self.cut = True
        elif isinstance(event, ev.CleanupBegun):
            _hold("cleaned up", self.began is None, "it begins once")
            busy = [track for track in state.running.values() if track.id not in state.finals]
            _hold("cleaned up", not busy, ("calls are under way", busy))
            self.began = event
        elif isinstance(event, ev.StepStarted):
            last = event.step in state.finals
            _hold("cleaned up", not last or self.began is not None, ("too early", event))
            _hold("cleaned up", last or self.began is None or not state.stopped, ("the work is over", event))
            self.called.add(event.step)
        elif isinstance(event, ev.StepFailed) and not event.called:
            self.called.add(event.step)
        elif isinstance(event, ev.Done) and state.finals:
            _hold("cleaned up", self.began is not None or self.again, "it never began")
            missed = self._missed(state) if self.began is not None and not self.cut else []
            _hold("cleaned up", not missed, missed)
        if isinstance(event, ev.Done) and event.stopped == "BREAKER_OPEN":
            left = state.automatic_rounds < state.policy.max_retry_rounds
            kept_back = any(status_of(state, track)[0] == "cancelled" for track in state.tracks.values())
            _hold("cleaned up", not (left and kept_back), "the breaker ended the run")

    def _missed(self, state: State) -> list[tuple[Track, str]]:
        """The steps that were not called, with no reason that anybody could have."""
        missed, excused = [], set[str]()
        for track in (state.tracks[name] for name in state.finals if name in state.tracks):
            by_hand = track.result is not None and track.result.by  # a person said that it is done
            again = track.again and track.dead  # it ran before, and what it needs failed this time
            waits = track.gate or track.step.confirm or track.id in state.unsettled
            if by_hand or again or waits or any(need.id in excused for need, _ in track.needs):
                excused.add(track.id)
            elif track.id not in self.called and not (code := status_of(state, track)[1]).startswith("SKIP_"):
                missed.append((track, code))
        return missed


def _made_from(state: State, track: Track) -> tuple[Any, ...]:
    heal = track.heal
    return state.inputs(track), state.tool_of(track), heal and (heal.args, heal.args_blob), state.files(track)


def _check_start(state: State, event: ev.StepStarted, attempts: set[tuple[str, int]]) -> None:
    track = state.tracks[event.step]
    _hold("history", track.phase in (Phase.PENDING, Phase.BACKOFF), "a step starts only from rest")
    for need, when in track.needs:
        worth = worth_of(state, track, need, when, need.standing)
        _hold("history", worth == MET, "no step starts before its needs are met")
    _hold("history", (event.step, event.attempt) not in attempts, "an attempt number is never used twice")
    attempts.add((event.step, event.attempt))
    cleans = state.cleaning is not None and event.step in state.finals
    stopped = state.rest is not None or (state.stopped and not cleans) or (state.paused and not cleans)
    _hold("history", not stopped, "nothing starts once the run is stopped")
    if state.policy.concurrency:
        _hold("bounded", len(state.running) < state.policy.concurrency, "more calls than allowed")


def _check_room(state: State, event: ev.StepStarted) -> None:
    """What must hold of a call's reservation when it starts: it fits beside all that is spent and under way (H4)."""
    policy, held = state.policy, [track.call for track in state.running.values() if track.call is not None]
    for cap, spent, reserved, own in (
        (policy.max_cost, state.cost, sum(call.reserved_cost for call in held), event.reserved_cost),
        (policy.max_tokens, state.tokens, sum(call.reserved_tokens for call in held), event.reserved_tokens),
    ):
        if cap is not None:
            _hold("afforded", spent + reserved + own <= cap + NEAR, (event, spent, reserved, cap))
    alone = not event.unpriced or not any(call.unpriced for call in held)
    _hold("afforded", alone, ("two calls of unknown cost", event, held))


def _charged(state: State, event: ev.Event, before: dict[str, ev.StepStarted]) -> float:
    """What an event adds to the cost: what it says, and what was reserved by calls that ended without an answer."""
    said = float(getattr(event, "cost", 0.0))
    for step, call in before.items():
        track = state.tracks.get(step)
        ended = track is None or track.phase is not Phase.RUNNING
        own = isinstance(event, ev.StepSucceeded | ev.StepFailed) and event.step == step
        said += call.reserved_cost if ended and not own else 0.0
    return said


def _check_budgets(state: State, calls: Counter[tuple[str, int]], policy: Policy, *, people: bool) -> None:
    if people:
        return  # a person's retry of a step opens a fresh budget inside a round
    for (step, _), count in calls.items():
        own = state.tracks[step].step.retries
        _hold("history", count <= 1 + (policy.max_step_retries if own is None else own), "a budget is overspent")
    _hold("history", state.automatic_rounds <= policy.max_retry_rounds, "too many rounds")


def check_rest(state: State, records: list[ev.Record]) -> None:
    """What must hold once a run is at rest."""
    last = records[-1].event
    if not isinstance(last, ev.Done) or state.rest is not last:
        raise Broken("rest", "exactly one done is the last event")
    found = verdict(state)
    _hold("rest", (last.success, last.degraded) == (found.success, found.degraded), (last, found))
    recomputed = statistics(fold(state.run, records), found, state.at)
    told, counted = ({k: v for k, v in numbers.items() if k != "seconds"} for numbers in (last.exec, recomputed))
    _hold("rest", told == counted, (told, counted))
    for track in state.tracks.values():
        status, _ = status_of(state, track)
        _hold("rest", str(status) in ENDS, (track, status))
        _check_made_from(state, track)


def _check_made_from(state: State, track: Track) -> None:
    """A result never outlives what it was made from, unless it says that it is stale."""
    if track.phase is not Phase.SUCCEEDED or track.result is None or track.stale or track.result.by:
        return
    if track.id in state.unsettled:
        return  # a value stands in for a call in doubt: it was made from nothing, and nothing may call the step
    if any(when is When.FAILURE for _, when in track.needs):
        return  # a clean-up step that ran keeps its result when its need is mended later
    for need, when in track.needs:
        if when is When.SUCCESS and need.standing is not Standing.VOID:
            # (One that was skipped by a person, and is not needed after all, gives nothing, as it did.)
            _hold("rest", need.phase in (Phase.SUCCEEDED, Phase.SKIPPED), (track, need))
    _hold("rest", same_inputs(state.inputs(track), track.result.inputs), track)


def once_repeats(records: list[ev.Record], state: State) -> list[str]:
    """`once` steps that were called again although an earlier call may have had its effect, unasked."""
    called: dict[str, ev.StepStarted] = {}
    ended: set[str] = set()
    asked = False
    bad = []
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            before = called.get(event.step)
            if (
                before is not None
                and before.effect is Effect.ONCE
                and event.effect is Effect.ONCE
                and event.step not in ended
            ):
                bad.append(event.step)
            called[event.step] = event
            ended.discard(event.step)
        elif isinstance(event, ev.StepFailed) and not event.lost:
            ended.add(event.step)  # an explicit failure: it is known to have failed
        elif isinstance(event, ev.RetryBegin) and not event.automatic:
            ended |= set(called)  # a person asked for it
        elif isinstance(event, ev.Acted):
            ended |= {event.step, *event.course.touched}
            asked = asked or (bool(event.course.touched) and not event.course.automatic)
        elif isinstance(event, ev.StepRenewed) and asked:
            ended.add(event.step)  # behind a step that a person retried, with inputs that changed
    return bad


# -- A simulated life, held against the truth ---------------------------------------------------------------------


def check_life(life: Any, records: list[ev.Record]) -> str:
    """Everything that must hold of a life that came to rest; returns the run's status."""
    truth = life.world.truth
    _hold("recorded", not truth.unrecorded, truth.unrecorded[:3])
    _hold("fenced", not truth.stale, truth.stale[:3])
    against = _against(records)
    _hold("obeyed", not against, against[:3])
    early = [] if life.jumped else _early(records)
    _hold("patient", not early, early[:3])
    _hold("sound", not (rotten := [call for call in truth.calls if ROTTEN in repr(call.args)]), rotten[:3])
    shared = [*truth.shared, *(record for record in records if SPOILT in repr(record.event))]
    _hold("its own", not shared, shared[:3])
    counts = Counter((call.step, call.attempt) for call in truth.calls)
    twice = [place for place, count in counts.items() if count > 1]
    _hold("one call", not twice, twice[:3])
    _hold("acknowledged", all(process.way.seen <= len(records) for process in life.processes))
    _hold("acknowledged", [record.seq for record in records] == list(range(1, len(records) + 1)))
    fences = life.store.fences
    _hold("fences", fences == sorted(fences), fences)
    limit = life.settings.run.concurrency
    if limit and not life.asked:  # a call that a person does without ends a moment later
        _hold("bounded", all(most <= limit for most in truth.most_at_once.values()), truth.most_at_once)
    _hold("once", not (again := really_again(records, truth)), again[:3])
    _check_effects(life, records)
    _hold("agreed", not (unasked := not_agreed(records, truth)), unasked[:3])
    state = check_history(records, Policy(), people=True)
    if (cap := life.settings.run.max_cost) is not None:
        _check_prices(records, life.world)
        _check_money(records, truth, cap)
    _check_truth(state, truth)
    check_rest(state, records)
    _check_honest(state)
    rest = state.rest
    return str(rest.status) if rest is not None else "?"


def _check_effects(life: Any, records: list[ev.Record]) -> None:
    """What must hold of effects that must not happen twice, by the history and by the truth."""
    world, times = life.world, life.store.times
    found = {
        "settled": effects.repeated_unsettled(records),
        "looked": effects.repeated_unlooked(records),
        "doubt": effects.called_in_doubt(records),
        "partial": effects.repeated_partial(records),
        "under way": effects.made_meanwhile(records, world, times, life.died),
        "owned": effects.acted_unowned(world.truth, world),
    }
    if not life.jumped:  # a clock that was set forward makes waits shorter than they were
        found["patience"] = effects.believed_early(records, world) or effects.absent_wrongly(records, world, times)
    for law, broken in found.items():
        _hold(law, not broken, broken[:3])


def _check_prices(records: list[ev.Record], world: Any) -> None:
    """A call reserves its declared cost, else the largest that the run has seen of its tool; else it is unpriced."""
    seen: dict[str, float] = {}
    under_way: dict[tuple[str, int], str] = {}
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            under_way[event.step, event.attempt] = event.tool
            declared = world.price(event.tool).declared
            own = seen.get(event.tool) if declared is None else declared
            said = None if event.unpriced else event.reserved_cost
            _hold("afforded", said == own, (event, own))
        elif isinstance(event, ev.StepSucceeded) or (isinstance(event, ev.StepFailed) and event.called):
            tool = under_way.pop((event.step, event.attempt), "")
            if isinstance(event, ev.StepSucceeded) or event.cost:
                seen[tool] = max(event.cost, seen.get(tool, 0.0))


def _check_money(records: list[ev.Record], truth: Any, cap: float) -> None:
    """What calls really cost, as far as it was reserved, is within the cap, whatever died in between."""
    reserved = {(e.step, e.attempt): e.reserved_cost for r in records if isinstance(e := r.event, ev.StepStarted)}
    promised = sum(min(call.cost, reserved.get((call.step, call.attempt), 0.0)) for call in truth.calls)
    _hold("afforded", promised <= cap + NEAR, (promised, cap))


def really_again(records: list[ev.Record], truth: Any) -> list[tuple[str, int]]:
    """Calls of `once` steps whose effect took place, before or after, and that no person asked for.

    What a call that was under way at the time did later counts as well (V8, E11). A service that knows the key of a
    call does not do it twice (E2).
    """
    effects = {(call.step, call.attempt) for call in truth.calls if call.effect}
    keys = {(call.step, call.attempt): call.key for call in truth.calls}
    done: dict[str, ev.StepStarted] = {}  # step → its call that had its effect, or will
    asked = False
    bad = []
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted) and event.effect is Effect.ONCE and (event.step, event.attempt) in keys:
            before = done.get(event.step)
            if before is not None:
                same = keys.get((event.step, event.attempt)) == keys.get((before.step, before.attempt))
                if not (same and event.idempotent_for):
                    bad.append((event.step, event.attempt))
            elif (event.step, event.attempt) in effects:
                done[event.step] = event
        elif isinstance(event, ev.RetryBegin) and not event.automatic:
            done.clear()
            asked = True
        elif isinstance(event, ev.Acted):
            for step in (event.step, *event.course.touched):
                done.pop(step, None)
            asked = asked or (bool(event.course.touched) and not event.course.automatic)
        elif isinstance(event, ev.StepRenewed) and asked:
            done.pop(event.step, None)
    return bad


Words = tuple[str, str]  # a tool, and what stands for its arguments


def not_agreed(records: list[ev.Record], truth: Any) -> list[tuple[Any, ...]]:
    """Calls of gated steps, as they really were, that are not what a person had agreed to; without any digest of ours.

    A yes ahead is good for the plan's own tool, unless a rung changed the call since.
    """
    state = State(records[0].run)
    shown: dict[str, Words] = {}
    agreed: dict[str, Words | None] = {}  # None: ahead
    bad: list[tuple[Any, ...]] = []
    for record in records:
        event = record.event
        step = getattr(event, "step", "")
        if isinstance(event, ev.GateOpened):
            shown[step] = (event.tool, signature(event.args, event.args_blob))
            agreed.pop(step, None)
        elif isinstance(event, ev.Acted) and event.action == "confirm":
            call = event.call
            edited = (call.tool, signature(call.args, call.args_blob)) if call is not None else shown.get(step)
            agreed[step] = None if event.ahead else edited
        elif isinstance(event, ev.StepStarted) and state.tracks[step].step.confirm:
            for call in truth.of(step, event.attempt):
                made = (call.tool, signature(call.args))
                held = agreed.get(step, ("nothing", ""))
                if made != held and not (held is None and call.tool == state.tracks[step].step.tool):
                    bad.append((step, event.attempt, made, held))
        elif isinstance(event, ev.Recovered) and agreed.get(step, ()) is None and event.rung is not Rung.PRODUCER:
            del agreed[step]
        evolve(state, event, record.at, record.seq)
        _use_up(state, event, agreed)
    return bad


def _use_up(state: State, event: ev.Event, agreed: dict[str, Words | None]) -> None:
    """A yes ends with a success, with a person's word that the step is done again, and with a run that starts over."""
    done = [step for step in agreed if step not in state.tracks or state.tracks[step].phase is Phase.SUCCEEDED]
    fresh = event.course.fresh if isinstance(event, ev.RetryBegin | ev.Acted) and event.course.fresh else ()
    again = fresh if isinstance(event, ev.RetryBegin) or getattr(event, "action", "") == "retry" else ()
    for step in (*done, *again):
        agreed.pop(step, None)


def _check_honest(state: State) -> None:
    """The verdict, from the phases alone."""
    bad = (Phase.FAILED, Phase.DOUBT, Phase.RUNNING, Phase.HURT, Phase.BACKOFF, Phase.HELD)
    again = [track.id for track in state.tracks.values() if track.again and track.id in state.finals]  # it ran before
    wrong = [
        track
        for track in state.tracks.values()
        if track.step.critical and (track.phase in bad or (track.dead and track.id not in again))
    ]
    rest = state.rest
    if rest is None or (rest.success and wrong) or (rest.success and rest.status != "completed"):
        raise Broken("honest", (rest, wrong))
    for track in state.tracks.values():
        made_up = track.phase is Phase.SUCCEEDED and track.call is not None and track.call.rung is Rung.FALLBACK
        if made_up and track.result is not None and track.result.attempt == track.attempt and not track.result.by:
            _hold("honest", track.result.degraded, track)


def _early(records: list[ev.Record]) -> list[tuple[str, int]]:
    """Calls of a tool that had asked for time, before that was over; what a person does is their own business."""
    due: dict[str, tuple[str, float]] = {}
    tools: dict[str, str] = {}
    bad = []
    for record in records:
        event = record.event
        if isinstance(event, ev.StepStarted):
            tool, until = due.pop(event.step, ("", 0.0))
            if event.tool == tool and record.at < until - 1e-3:
                bad.append((event.step, event.attempt))
            tools[event.step] = event.tool
        elif isinstance(event, ev.RetryScheduled) and event.asked:
            due[event.step] = (tools.get(event.step, ""), record.at + event.delay)
        elif isinstance(event, ev.Acted) or (isinstance(event, ev.RetryBegin) and not event.automatic):
            due.clear()
    return bad


def _against(records: list[ev.Record]) -> list[tuple[str, int]]:
    """Calls that began although a person had cancelled or paused the run, or skipped the step."""
    stopped = paused = False
    skipped: set[str] = set()
    finals: set[str] = set()
    cleans = last = 0.0  # until when; the time of the event before
    bad = []
    for before, record in zip([records[0], *records], records, strict=False):
        event, last = record.event, before.at
        if isinstance(event, ev.PlanAccepted):
            finals = set(event.plan.finally_)
        elif isinstance(event, ev.StepStarted):
            over = (stopped or paused) and not (event.step in finals and record.at < cleans)
            if over or event.step in skipped:
                bad.append((event.step, event.attempt))
        elif isinstance(event, ev.CleanupBegun):
            cleans = event.until or math.inf
        elif isinstance(event, ev.Cancelled):
            cleans = 0.0 if stopped else min(cleans, record.at + 60.0)
            stopped = True
        elif isinstance(event, ev.StepSkipped) and event.code == "SKIP_USER":
            skipped.add(event.step)
        elif isinstance(event, ev.Resumed):
            paused = False
            cleans += record.at - last if cleans else 0.0  # the time between two processes does not count
        elif isinstance(event, ev.RetryBegin) and not event.automatic:
            stopped = paused = False
            skipped.clear()
        elif isinstance(event, ev.Acted):
            paused = event.action == "pause" or (paused and event.action not in ("resume", "retry"))
            skipped -= {event.step, *event.course.touched}
    return bad


def _check_truth(state: State, truth: Any) -> None:
    for track in state.tracks.values():
        result = track.result
        if track.phase is not Phase.SUCCEEDED or result is None or result.by or result.hole or result.degraded:
            continue
        calls = truth.of(track.id, result.attempt)
        said = [call for call in calls if call.answer == "ok"]
        _hold("truthful", said, (track.id, result.attempt, calls))
        if not result.blob:
            _hold("truthful", result.output == said[0].output, (track.id, result.output, said[0].output))
        keys = track.step.check.keys if track.step.check is not None else ()
        _hold("truthful", all(key in said[0].output for key in keys), (track.id, said[0].output))
