"""The next actions of a run: a pure function of its state (log → fold → decide → act).

Rules of this file:
- Actions are values. The run loop performs them; a dry run shows them.
- Notes come first: while facts remain to be recorded, `decide` returns nothing else.
- Two calls with the same state return the same actions: this module remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from rerail.i18n import clipped, tell
from rerail.kernel import events as ev
from rerail.kernel.accounts import FREE, SpendingNeed
from rerail.kernel.budget import Allowance, first_calls
from rerail.kernel.events import Course, Event
from rerail.kernel.ladder import answer_doubt, heal, lapsed
from rerail.kernel.plan_graph import downstream, unsatisfied_above
from rerail.kernel.policy import CLEANUP_SECONDS, Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import VOID, WORTH, Phase, RunStatus, Standing, Status, Track, same_inputs
from rerail.kernel.verdict import (
    Verdict,
    evaluation,
    round_statistics,
    skip_told,
    statistics,
    status_of,
    summary,
    verdict,
    waiting_on,
)
from rerail.plan.step import Effect, When
from rerail.plan.tool_spec import Tools


@dataclass(frozen=True, slots=True)
class Note:
    """Facts to record; nothing outside the history changes."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Start a step's tool."""

    step: str
    attempt: int
    tool: str
    rung: Rung | None = None
    reserves: SpendingNeed = field(default=FREE, repr=False)  # what it may spend, in a run with a cap (H4)


@dataclass(frozen=True, slots=True)
class Show:
    """Resolve the call of a gated step and show it for approval; an approval covers exactly this call (X10)."""

    step: str


@dataclass(frozen=True, slots=True)
class VerifyEffect:
    """Look for the effect of an attempt that did not succeed."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Put a question to a mind: reflect, repair, replan or judge."""

    question: str
    step: str = ""
    seq: int = 0


Action: TypeAlias = Note | Call | Show | VerifyEffect | Ask


def decide(state: State, tools: Tools, now: float) -> list[Action]:
    """Return all actions possible now; empty while the run only waits, and once it is at rest."""
    if state.rest is not None:
        return []
    if state.timers:
        state.tick(now)
    if state.hurt or state.announce or state.keepers or state.stopped or state.row or state.doubts:
        notes = _notes(state, tools, now)
        if notes:
            return [Note(tuple(notes))]
    policy = state.policy
    capped = policy.max_cost is not None or policy.max_tokens is not None
    left = Allowance(state, tools) if capped else None  # without a cap there is nothing to account for
    actions = _questions(state, left) if state.doubts or state.held or state.replan_wanted else []
    asks = any(isinstance(action, Ask) for action in actions) or (left is not None and left.held)
    if asks and (over := _over_budget(state, now, asking=True)):
        return [_out_of_budget(over)]
    if not ((state.stopped and state.halted) or state.paused or state.replan_wanted):
        bounded = policy.max_attempts is not None or policy.max_seconds is not None or state.cleaning is not None
        if bounded and any(True for _ in state.startable()) and (end := _over_time(state, now)):
            return [Note((end,))]
        actions += _calls(state, tools, now, left)
    if state.unshown and not (state.halted or state.replan_wanted or state.stopped == "RUN_CANCELLED"):
        shown = filter(state.is_live, state.unshown.values())
        actions += [Show(track.id) for track in shown]  # also while paused: nothing is called
    if not actions and left is not None and left.short and not state.running:
        return [_out_of_budget(left.short)]  # no call under way could free budget
    return actions or _close(state, tools, now)


def _over_time(state: State, now: float) -> Event | None:
    """Return what ends the round, or the clean-up, before its next call: its time, or a budget."""
    if state.ends_by(now):
        return ev.Stopped("CLEANUP_TIMEOUT")
    over = _over_budget(state, now)
    return ev.Stopped("BUDGET_EXCEEDED", over) if over else None


def _out_of_budget(reason: str) -> Note:
    return Note((ev.Stopped("BUDGET_EXCEEDED", reason),))


# -- Notes: what follows at once from past events ------------------------------------------------------------------


def _notes(state: State, tools: Tools, now: float) -> list[Event]:
    for track in state.hurt.values():
        return heal(state, tools, track, now)  # one at a time: each choice may change what the next one may do
    if state.stopped and state.halted:
        for track in (*state.backoff.values(), *state.held.values()):
            if not _waits_on(state, track):
                return heal(state, tools, track, now)
    elif 0 < state.policy.max_consecutive_failures <= len(state.row) and not (state.breaker or state.cleaned):
        return [_breaker(state)]
    for track in state.doubts.values():
        if state.is_live(track) and not track.question and (answered := answer_doubt(state, tools, track, now)):
            return answered
    notes: list[Event] = []
    for track in state.announce.values():
        code = "SKIP_UPSTREAM_FAILED" if track.dead else "SKIP_CONDITION"
        needs = tuple(need.id for need, _ in track.needs if need.standing not in (Standing.OPEN, Standing.OK))
        notes.append(ev.StepSkipped(track.id, code, skip_told(state, track, code), needs=needs))
    if notes or state.stopped:
        return notes
    for track in list(state.keepers.values()):
        kept = _kept(state, track)
        if kept is not None:
            notes.append(kept)
        else:
            return [*notes, ev.StepRenewed(track.id)]
    return notes


def _waits_on(state: State, track: Track) -> bool:
    """True if a tool asked for time, and an automatic round follows the breaker: the round goes on with the wait."""
    return track.phase is Phase.BACKOFF and track.heal is not None and bool(track.heal.wished) and state.rounds_left()


def _breaker(state: State) -> Event:
    """Too many different steps failed in a row: ask for a replan, or stop the run (H4)."""
    steps, policy = ", ".join(state.row), state.policy
    # A step that failed for good asks for no replan (H3). Several in a row mean that the plan itself is wrong.
    if "replan" in policy.minds and policy.reflect and state.replans < policy.max_task_replanning_attempts:
        return ev.QuestionAsked("replan", reason=f"BREAKER_OPEN: {steps}")
    return ev.Stopped("BREAKER_OPEN", steps)


def _kept(state: State, track: Track) -> Event | None:
    """Return the event that keeps an earlier result; None if the step has to run again (R3)."""
    assert track.result is not None
    if track.void:  # not needed now, so it does not run; a clean-up that ran keeps its result (P2)
        cleaned = [need for need, when in track.needs if when is When.FAILURE]
        mended = not track.result.by and any(WORTH[When.FAILURE][need.standing] == VOID for need in cleaned)
        return ev.StepKept(track.id, "mended" if mended else "" if cleaned else "needless")
    if same_inputs(state.inputs(track), track.result.inputs):
        return ev.StepKept(track.id)
    if track.automatic and track.result.effect is Effect.ONCE:
        return ev.StepKept(track.id, "once")
    return None


# -- Calls --------------------------------------------------------------------------------------------------------


LOOK_FRESH = 0.1  # seconds for which a look stays valid; an older one is repeated before a call is
LOOK_KEPT = 60.0  # the same for a look made for this call: a graph may set the pace between the two


def _calls(state: State, tools: Tools, now: float, left: Allowance | None = None) -> list[Action]:
    """Return the calls that start now, in order; a call without room under the run's caps waits (H4)."""
    policy = state.policy
    room = policy.concurrency - len(state.running) if policy.concurrency else len(state.ready.members)
    if policy.max_attempts is not None:
        room = min(room, policy.max_attempts - state.calls - (len(state.finals) if not state.cleaned else 0))
    if room <= 0 or not state.ready.members:
        return []
    started: dict[str, int] = {}
    calls: list[Action] = []
    most = room if left is None else len(state.ready.members)  # a waiting call takes no room
    limited = policy.tool_concurrency or policy.provider_concurrency
    free = _free(state, tools, started, left) if limited else left.passes if left is not None else None
    waiting = state.ready.first(free, most) if state.cleaning is None else _clean_up(state, free, calls)
    for track in waiting:
        if len(calls) >= room:
            break
        if track.effects is not None and (first := _before_repeat(state, tools, track, now)) is not None:
            calls.append(first)
            continue
        tool = state.tool_of(track)
        rung = Rung.FALLBACK if track.heal is not None and track.heal.fallback else None
        need = FREE if left is None else left.of_tool(tool)
        if left is not None and not left.take(need, step=track.id, kept=left.kept_for(track)):
            continue
        calls.append(Call(track.id, track.attempt + 1, tool, rung, need))
        started[tool] = started.get(tool, 0) + 1
    waiting.close()
    return calls


def _clean_up(state: State, free: Callable[[str], bool] | None, calls: list[Action]) -> Generator[Track]:
    """Return the steps of the clean-up that can start; a repeat leaves the others their first call (P2)."""
    most, first = state.policy.max_attempts, first_calls(state)
    for track in sorted(state.startable(), key=lambda track: track.order):
        spare = most is None or most - state.calls - len(calls) > sum(other is not track for other in first)
        if (spare or not state.is_repeat(track)) and (free is None or free(state.queue_of(track))):
            yield track


def gated_call(state: State, step: str) -> Call:
    """Return the call that a gated step would make."""
    track = state.tracks[step]
    rung = Rung.FALLBACK if track.heal is not None and track.heal.fallback else None
    return Call(track.id, track.attempt + 1, state.tool_of(track), rung)


def unresolved(state: State, show: Show) -> ev.GateOpened:
    """Open a gate with arguments that cannot be resolved: in a preview and in a replay."""
    call = gated_call(state, show.step)
    return ev.GateOpened(call.step, call.attempt - 1, call.tool, rung=call.rung)


def _before_repeat(state: State, tools: Tools, track: Track, now: float) -> Action | None:
    """Return what precedes a call with an effect that may already exist: a look, or the event of a doubt (V8, E2)."""
    effects = state.next_effect(track)
    if effects is None or effects.rerun:
        return None
    if effects.lost and not track.is_covered(now):
        return Note(tuple(lapsed(state, tools, track, now)))
    if not effects.call.verifiable or effects.looked_at < 0:
        return None
    fresh = LOOK_KEPT if effects.cleared else LOOK_FRESH
    since = effects is track.effects and 0 <= now - effects.looked_at <= fresh  # and no other call came in between
    return None if since else VerifyEffect(track.id, track.attempt)


def _free(state: State, tools: Tools, started: dict[str, int], left: Allowance | None) -> Callable[[str], bool]:
    """Return a test for room in a tool's queue: by tool limit, provider limit and run caps."""
    policy = state.policy

    def running(tool: str) -> int:
        return state.by_tool.get(tool, 0) + started.get(tool, 0)

    def free(tool: str) -> bool:
        if left is not None and not left.passes(tool):
            return False
        limit = policy.tool_concurrency.get(tool)
        if limit and running(tool) >= limit:  # 0 means no limit, as for the run
            return False
        spec = tools.get(tool)
        limit = policy.provider_concurrency.get(spec.provider) if spec is not None and spec.provider else None
        if not limit or spec is None:
            return True
        names = {*state.by_tool, *started}
        same = [name for name in names if (other := tools.get(name)) is not None and other.provider == spec.provider]
        return sum(running(name) for name in same) < limit

    return free


def _over_budget(state: State, now: float, *, asking: bool = False) -> str:
    """Return the run budget that is exhausted for good, if any (H4); checked before each call and question.

    An intent spends its attempt and time is not reserved, so waiting for calls under way frees neither.
    """
    policy, kept = state.policy, len(state.finals) if not state.cleaned else 0
    used = (
        ("max_attempts", state.calls, kept, None if asking else policy.max_attempts),
        ("max_seconds", round(state.seconds(now), 3) if policy.max_seconds is not None else 0.0, 0, policy.max_seconds),
    )
    for name, spent, kept_back, limit in used[:1] if state.cleaning is not None else used:
        if limit is not None and spent + kept_back >= limit:
            if spent < limit:
                return tell("reason.used_but", name=name, spent=spent, limit=limit, kept=kept_back)
            return tell("reason.used", name=name, spent=spent, limit=limit)
    return ""


# -- Questions ----------------------------------------------------------------------------------------------------


def _questions(state: State, left: Allowance | None = None) -> list[Action]:
    """Return the looks, and the questions to minds. A question without room under the caps waits, before any call."""
    # A cancelled run does not wait for effects to show; `resume` and `retry` look for them.
    cancelled = state.stopped == "RUN_CANCELLED"
    looks: list[Action] = [
        VerifyEffect(track.id, track.attempt)
        for track in state.doubts.values()
        if track.question == "verify" and not (cancelled and track.id in state.unsettled and not state.is_live(track))
    ]
    if state.stopped or state.paused:
        return looks
    asked = ("reflect", "repair")
    asks = [Ask(track.question, track.id, track.attempt) for track in state.held.values() if track.question in asked]
    if state.replan_wanted and not state.running and not looks and not asks:
        # Notes written meanwhile leave the question the same; a user's action makes it another one.
        asks.append(Ask("replan", "", state.acted_at))
    if left is None:
        return [*looks, *asks]
    # One at a time: a question has no intent event, so each must see what the one before it spent.
    return looks + [ask for ask in asks[:1] if left.take(left.of_question(ask.question), question=ask.question)]


# -- Closing a round, and the run ---------------------------------------------------------------------------------


def _close(state: State, tools: Tools, now: float) -> list[Action]:
    """Nothing can start: wait for calls under way or for a user, or close the round."""
    waits = (state.backoff or state.held) and not (state.paused or state.halted)
    in_vain = _waits_in_vain(state, now) if waits and not state.running else ""
    if state.running or (waits and not in_vain):
        return []
    # After a cancel nothing waits for a user: the clean-up has a minute.
    if not state.halted and state.stopped != "RUN_CANCELLED" and (state.paused or state.gates or state.doubts):
        on = tuple(waiting_on(state))
        if on or not state.stopped:
            return [] if state.waiting or not on else [Note((ev.Waiting(on),))]
    if in_vain:
        return [_out_of_budget(in_vain)]
    if not state.seq or not state.revision:
        return []
    if not state.round_done:
        failed = tuple(track.id for track in state.tracks.values() if track.phase is Phase.FAILED)
        return [Note((ev.RetryDone(state.round, round_statistics(state), failed),))]
    found = verdict(state)
    if state.judged is None:
        if "judge" not in state.policy.minds or not _wants_judge(state, found):
            return [Note((evaluation(state, found),))]
        capped = state.policy.max_cost is not None or state.policy.max_tokens is not None
        left = Allowance(state, tools) if capped else None
        if _over_budget(state, now, asking=True) or (left and not left.take(left.of_question("judge"))):
            return [Note((evaluation(state, found, "unavailable"),))]
        return [Ask("judge", "", state.moves)]
    roots = automatic_roots(state) if not found.success or state.judged.unsatisfactory else []
    if roots:
        return [Note((automatic_retry(state, roots),))]
    if state.finals and not state.cleaned and _wants_clean_up(state):
        return [Note((_clean_up_begun(state, now),))]
    if state.cleaning is not None and state.policy.max_attempts is not None and any(True for _ in state.startable()):
        said = tell("reason.used", name="max_attempts", spent=state.calls, limit=state.policy.max_attempts)
        return [_out_of_budget(said)]  # a repeat that would leave others without their first call
    return [Note((_done(state, found, now),))]


def _waits_in_vain(state: State, now: float) -> str:
    """Return why the run need not wait for its next call, if it is out of time by then (H4)."""
    most, due = state.policy.max_seconds, state.next_timer()
    if most is None or due is None or state.held or state.cleaning is not None or state.seconds(due) < most:
        return ""
    told = {"step": state.backoff[state.timers[0][1]].id, "wait": round(due - now, 3)}
    return tell("reason.waits_in_vain", name="max_seconds", spent=round(state.seconds(now), 3), limit=most, **told)


def _wants_clean_up(state: State) -> bool:
    """True if the steps of `finally` run: in a round that a user opened, only if a step was called, or one is open."""
    finals = [track for step_id in state.finals if (track := state.tracks.get(step_id)) is not None]
    worked = any(step_id not in state.finals for step_id in state.round_calls)
    return not state.reopened or worked or any(track.phase not in (Phase.SUCCEEDED, Phase.SKIPPED) for track in finals)


def clean_up_steps(state: State) -> list[str]:
    """Return the steps of `finally` that a clean-up calls; a doubt and a user's word stay as they are (P2, E3)."""
    tracks = (track for step_id in state.finals if (track := state.tracks.get(step_id)) is not None)
    return [
        track.id
        for track in tracks
        if track.id not in state.unsettled
        and not (track.skip is not None and track.skip.code == "SKIP_USER")
        and not (track.result is not None and track.result.is_by_hand)
    ]


def _clean_up_begun(state: State, now: float) -> ev.CleanupBegun:
    """Return the event that begins the steps of `finally` (P2)."""
    policy, until = state.policy, 0.0
    if state.stopped == "RUN_CANCELLED":
        until = now + CLEANUP_SECONDS
    elif policy.max_seconds is not None:
        until = now + max(CLEANUP_SECONDS, policy.max_seconds - state.seconds(now))
    steps = clean_up_steps(state)
    again = tuple(step_id for step_id in steps if state.tracks[step_id].attempt)
    return ev.CleanupBegun(tuple(steps), Course(tuple(steps), automatic=False, fresh=again), state.stopped, until)


def _wants_judge(state: State, found: Verdict) -> bool:
    """True if the judge is asked: never after a stop; without a retry round it may be skipped (V5)."""
    if not state.policy.judge or state.stopped:
        return False
    clean = found.counts[Status.SUCCEEDED] == sum(found.counts.values()) and not state.round and not state.replans
    return not (state.policy.shortcut and clean)


def automatic_roots(state: State) -> list[str]:
    """Return the roots of an automatic round: own failures that may be retried, or steps judged unsatisfactory (R6)."""
    if not state.rounds_left():
        return []
    roots = [
        track.id
        for track in state.tracks.values()
        if track.id not in state.finals
        and (
            (track.phase is Phase.FAILED and not state.is_failed_for_good(track))
            or (state.stopped and (status_of(state, track)[0] is Status.CANCELLED or _waits_on(state, track)))
        )
    ]
    judged = state.judged.unsatisfactory if state.judged is not None else ()
    return roots + [step_id for step_id in judged if step_id not in roots and _may_repeat(state, step_id)]


def _may_repeat(state: State, step_id: str) -> bool:
    track = state.tracks.get(step_id)
    return track is not None and not (track.result is not None and track.result.effect is Effect.ONCE)


def automatic_retry(state: State, roots: list[str]) -> ev.RetryBegin:
    """Return the event that begins an automatic round."""
    chain = retry_chain(state, roots)
    return ev.RetryBegin(
        state.round + 1, "rules", tuple(roots), chain, len(chain), reasons_of(state, roots),
        course=Course(tuple(roots)), previous_status=str(RunStatus.RUNNING),
    )  # fmt: skip


def retry_chain(state: State, roots: list[str]) -> tuple[str, ...]:
    """Return the retry set in plan order: the roots, their missing needs, and everything downstream (R1)."""
    return tuple(track.id for track in downstream(state, [*roots, *unsatisfied_above(state, roots)]))


def reasons_of(state: State, roots: list[str]) -> dict[str, str]:
    """Return why each root is a root."""
    errors = {step_id: state.tracks[step_id].error for step_id in roots}
    return {step_id: clipped(error.told, 500) for step_id, error in errors.items() if error is not None}


def _done(state: State, found: Verdict, now: float) -> Event:
    if state.stopped == "RUN_CANCELLED":
        status = RunStatus.CANCELLED
    else:
        status = RunStatus.COMPLETED if found.success else RunStatus.FAILED
    return ev.Done(
        str(status), found.success, found.complete, found.degraded,
        statistics(state, found, now),
        found.failed_steps, summary(state, found), state.stopped,
    )  # fmt: skip
