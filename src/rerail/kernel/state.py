"""The state of a run: a fold of its history, updated in place (log → fold → decide → act).

Rules of this file:
- Only ``fold`` calls the changing methods: the history is the only truth.
- One event costs O(its out-degree). What `decide` needs (ready, running, hurt, …) is indexed here, never searched for.
- A skip for an upstream failure is a consequence: derived from the counts of a step's needs, never stored.
- Nothing here resets anything: `redirect` does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.accounts import Largest, OnceCalls, Reserved
from rerail.kernel.policy import Policy, Rung, pause
from rerail.kernel.ready_queue import Ready
from rerail.kernel.step_state import (
    AHEAD,
    FIRST,
    NOWHERE,
    PENDING,
    READY,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    UNDECIDED,
    WORTH,
    Degraded,
    EffectState,
    Lack,
    Phase,
    Place,
    Result,
    Standing,
    Track,
    count,
    signature,
)
from rerail.plan.references import Names, Template, compile_args
from rerail.plan.step import Approval, Effect, Step, When
from rerail.plan.tool_spec import ToolSpec

# The final standing of steps that a stopped run leaves as they are.
CLOSED = {
    Standing.FAILED_OPEN: Standing.FAILED,
    Standing.BLOCKED_OPEN: Standing.BLOCKED,
    Standing.OPEN: Standing.BLOCKED,
}


class State:
    """A run, as its history tells it."""

    # Class attributes are values that are replaced; containers that change in place are made for each run.
    seq = 0
    at = 0.0
    objective = parent = ""
    origin: tuple[str, ...] = ()
    inherited: tuple[ev.FileMade, ...] = ()
    uncleared = ""  # the backup of a run that starts over, until its first step starts
    filed = False  # a step may read files: of this run, or of its parent
    follow_up: Any = None
    fallback = ""  # why this is not the requested plan, if it is another one (P7)
    assumed: tuple[str, ...] = ()  # tools with an assumed effect when the plan was accepted
    queued, served = False, False  # left for a worker; driven by a server
    copied = ""  # the store that this copy was exported from (E10)
    via = ""  # the interface that started it
    revision = 0
    created_at = 0.0
    # Counters and flags of the run.
    round = automatic_rounds = retries = replans = 0
    calls = tokens = 0
    cost = active = tool_seconds = wait_seconds = 0.0
    active_since: float | None = None
    rested_at = 0  # the sequence number at which the run last came to rest or began to wait
    acted_at = 0  # the sequence number of the latest user action
    last_wish = 0  # the inbox number of the latest command without a key
    moved: tuple[str, int] | None = None  # the store that it continues in, and the last event copied there
    paused = waiting = False
    stopped = ""
    stop_reason = ""  # the reason in the event that stopped it
    replan_wanted = False
    breaker = False  # the replan is needed because too many steps failed in a row
    judged: ev.Evaluation | None = None  # of this round
    round_done = True
    round_chain: tuple[str, ...] = ()
    rest: ev.Done | None = None
    moves = 0  # the number of step changes so far; views of all steps are cached until it changes
    tally: tuple[Any, tuple[Any, ...]] | None = None
    staged = False  # some step has a stage: the run is a pipeline
    stage = ""  # the stage of the step started last
    reopened = False  # a user opened the latest round
    finals: tuple[str, ...] = ()  # steps that run at the end, whatever happened (P2)
    cleaning: ev.CleanupBegun | None = None  # they run now
    cleaned = 0  # the event that began them, since a user last opened the run

    def __init__(self, run: str = "") -> None:
        self.run = self.home = run  # home: the run that owns the shared workspace
        self.policy = Policy()
        self.memory: dict[str, str] = {}
        self.drafts: dict[str, ev.FileMade] = {}  # recorded contents that may still have to be placed
        self.mcp: dict[str, Any] = {}  # servers named by the plan of an old run; no longer opened
        self.fingerprints: dict[str, str] = {}
        # Constraints on minds. They hold even after a mind dropped the steps that stated them.
        self.gated: dict[str, bool | str | Approval] = {}  # gated tools, with the gate's question
        self.once = OnceCalls()
        self.retired: dict[str, int] = {}  # dropped steps → their latest attempt; its number is never reused
        self.dropped: dict[
            str, Step
        ] = {}  # their definitions: a mind that adds the id again stays bound by the author's settings
        self.forgone: dict[str, None] = {}  # required steps, not done, that a new plan leaves out
        self.planned: dict[str, tuple[str, ...]] = {}  # steps under a mind's choice of tool → the plan's tools
        # The plan, as a graph of tracks in plan order.
        self.tracks: dict[str, Track] = {}
        self.names = Names(self.tracks, 0)  # the ids that references may name
        self.next_number = 0
        # Indexes, maintained by `_place` and the folds.
        self.ready = Ready()
        self.timers: list[tuple[float, int, int]] = []  # (until, n, attempt) of backoffs; stale ones are dropped late
        self.keepers: dict[int, Track] = {}  # could start, but the old result may still be valid
        self.gates: dict[int, Track] = {}  # could start after an approval
        self.unshown: dict[int, Track] = {}  # gates with a current call that was not shown yet (X10)
        self.running: dict[int, Track] = {}
        self.backoff: dict[int, Track] = {}
        self.hurt: dict[int, Track] = {}
        self.held: dict[int, Track] = {}
        self.doubts: dict[int, Track] = {}
        self.unsettled: dict[str, Track] = {}  # the effect may have happened, in any phase: open doubts
        self.announce: dict[int, Track] = {}  # skipped as a consequence; the event is still to be recorded
        self.by_tool: dict[str, int] = {}
        self._phases = {
            RUNNING: self.running, Phase.BACKOFF: self.backoff, Phase.HURT: self.hurt,
            Phase.HELD: self.held, Phase.DOUBT: self.doubts,
        }  # fmt: skip
        self._places = {Place.KEEPERS: self.keepers, Place.GATES: self.gates, Place.ANNOUNCE: self.announce}
        self.row: dict[str, int] = {}  # steps that failed, each begun after the one before, without a success → when
        self.reserved = Reserved()  # held by the calls under way
        self.largest = Largest()  # spending of a single call, by tool
        self.largest_question = Largest()  # spending of a single model call, by question
        self.wishes: set[str] = set()  # keys of the inbox commands already applied
        self.disputed: dict[str, None] = {}
        self.round_calls: dict[str, int] = {}
        self.retry_history: list[dict[str, Any]] = []

    # -- Reading --------------------------------------------------------------------------------------------------

    def args_of(self, track: Track) -> dict[str, Any] | None:
        """Return the arguments of a step's latest attempt, as far as the history holds them inline."""
        if track.error is not None and isinstance(track.error.data.get("args"), dict):
            return dict(track.error.data["args"])
        if track.call is not None and track.call.args is not None:
            return track.call.args
        template = self.template(track)
        return template.value if not template.refs and not (track.call and track.call.args_blob) else None

    def template(self, track: Track) -> Template:
        """Return the step's own arguments with their references parsed (once)."""
        if track.template is None:
            track.template = compile_args(track.step.args, self.names)
        return track.template

    def signature(self, track: Track, call: ev.StepStarted | None = None) -> str:
        """Return the digest of the arguments of a step's latest call, or of this one, to compare tries."""
        call = call or track.call
        if call is None or call.args is not None or call.args_blob:
            return signature(call.args, call.args_blob) if call is not None else ""
        return signature(self.template(track).value)

    def next_effect(self, track: Track) -> EffectState | None:
        """Return what is known of the effect of a step's next call; None if no such call was made before (V8)."""
        latest, heal = track.effects, track.heal
        if latest is None or latest.lost:
            return latest
        tool = self.tool_of(track)
        for effects in (latest, *track.earlier):
            call = effects.call
            if call.tool != tool or effects.redefined:
                continue
            if heal is not None and heal.fallback:
                same = call.rung is Rung.FALLBACK
            elif heal is not None and heal.args is not None:
                same = self.signature(track, call) == signature(heal.args, heal.args_blob)
            else:
                same = effects.own
            if same:
                return effects
        return None

    def chosen_by_a_mind(self, track: Track) -> bool:
        """True if a mind changed any part of the step's next call."""
        return track.minded or (track.heal is not None and track.heal.minded)

    def effect_of(self, track: Track, spec: ToolSpec) -> Effect:
        """Return the effect of a repeated call in this step.

        The plan's declaration holds for the plan's own calls. For a call that a mind chose, it can only make the tool's
        declaration stricter. What the run's settings assume of a tool without a declaration stays with the run."""
        own, effect = track.step.effect, spec.effect
        if not spec.declared and self.policy.default_effect == Effect.ONCE:
            effect = Effect.ONCE
        if not self.chosen_by_a_mind(track):
            return own or effect
        return Effect.ONCE if Effect.ONCE in (own, effect) or spec.name in self.once.tools else effect

    def repeats(self, track: Track, spec: ToolSpec, args: Any, effect: Effect) -> str:
        """Return the step with the effect that a call would repeat, if a mind chose either call.

        A call that the plan's author wrote twice, or that a user requested, is made twice.
        """
        chosen = self.chosen_by_a_mind(track)
        if track.wanted or not (chosen or self.once.by_minds):
            return ""
        for done, minded in self.once.like(spec, args, chosen=chosen).items():
            if (chosen or minded) and (done != track.id or track.call is None):
                return done
        return self._planned(track, spec, args) if chosen and effect is Effect.ONCE else ""

    def _planned(self, track: Track, spec: ToolSpec, args: Any) -> str:
        """Return another step that the plan's author wrote with this very call."""
        plain = signature(spec.plain(args))
        for other in self.tracks.values():
            if other is not track and other.step.tool == spec.name and not self.chosen_by_a_mind(other):
                template = self.template(other)
                if not template.refs and signature(spec.plain(template.value or {})) == plain:
                    return other.id
        return ""

    def seconds(self, now: float) -> float:
        """Return the time the run was running, without waits for users and time between processes."""
        return self.active + (max(0.0, now - self.active_since) if self.active_since is not None else 0.0)

    def rounds_left(self) -> bool:
        """True if another automatic round may follow: also after a breaker, which ends one round only (R6)."""
        left = self.automatic_rounds < self.policy.max_retry_rounds
        return left and self.stopped in ("", "BREAKER_OPEN") and not self.cleaned

    @property
    def halted(self) -> bool:
        """True if nothing more starts: the run is stopped, and no clean-up is under way."""
        return bool(self.stopped) and self.cleaning is None

    def is_live(self, track: Track) -> bool:
        """True if the run still acts on a step: it is not stopped, or the step is part of the clean-up under way."""
        return not self.stopped or (self.cleaning is not None and track.id in self.finals)

    def startable(self) -> Iterable[Track]:
        """Return the steps that can start now; after a stop, only those of the clean-up under way."""
        if not self.stopped:
            return self.ready.members.values()
        tracks = (self.tracks.get(step_id) for step_id in self.finals) if self.cleaning is not None else ()
        return [track for track in tracks if track is not None and track in self.ready]

    def is_repeat(self, track: Track) -> bool:
        """True if a step was called since the clean-up began."""
        return track.begun > self.cleaned > 0

    def ends_by(self, at: float) -> bool:
        """True if the time of the clean-up under way is over by then."""
        return self.cleaning is not None and 0 < self.cleaning.until <= at

    def worth(self, track: Track, need: Track, when: When) -> int:
        """Return the worth of a need. For the clean-up of a stopped run, a step that did not end did not succeed."""
        over = self.stopped and self.cleaned and self._is_closed(track, need)
        return WORTH[when][CLOSED.get(need.standing, need.standing) if over else need.standing]

    def _is_closed(self, track: Track, need: Track) -> bool:
        return track.id in self.finals and need.id not in self.finals

    def refuses_wait(self, track: Track) -> bool:
        """True if a tool said "not now" for longer than `retry.max_wait` leaves: no further try in this round (X8)."""
        heal = track.heal
        if heal is None or heal.not_now is None or (track.error is not None and track.error.code == "ANSWER_LOST"):
            return False
        return heal.waited + pause(self.policy, heal.not_now, heal.waits) > self.policy.max_wait

    def is_failed_for_good(self, track: Track) -> bool:
        """True if no automatic round takes a failed step."""
        return track.category is Category.PERMANENT or self.refuses_wait(track)

    def inputs(self, track: Track) -> tuple[Any, ...]:
        """Return the inputs of the step's result: its definition and the digest of every need's output (R3)."""
        if not track.needs:
            return (track.step,)
        if len(track.needs) == 1:  # most steps
            need = track.needs[0][0]
            return (track.step, need.result.made if need.phase is SUCCEEDED and need.result else "")
        digests = [need.result.made if need.phase is SUCCEEDED and need.result else "" for need, _ in track.needs]
        if len(digests) > 16:  # wide joins keep one digest of all
            return (track.step, blake2b("\n".join(digests).encode(), digest_size=16).digest())
        return (track.step, *digests)

    def tainted(self, track: Track) -> str:
        """Return the id of a step with a missing output that this one did without, if any (H9)."""
        return next((hole.step for hole in self.holes(track)), "")

    def holes(self, track: Track) -> Iterator[Degraded]:
        """Return the steps with outputs that a step's inputs lack: its needs, or the holes of these."""
        for need, when in track.needs:
            if need.phase is SUCCEEDED:
                result = need.result
                if result is None or when is When.FAILURE:
                    continue
                if result.hole:
                    yield Degraded(Lack.LOST, step=need.id)
                elif result.degraded is not None and not result.stands_in:
                    yield result.degraded
            elif need.phase is SKIPPED and when is not When.FAILURE:
                yield Degraded(Lack.HOLE, step=need.id)

    def files(self, track: Track) -> dict[str, str]:
        """Return the files that a step reads, path → digest: from the run's parent and from the step's needs."""
        found = {file.path: file.digest for file in self.inherited}
        for need, _ in track.needs:
            if need.phase is SUCCEEDED and need.result is not None:
                found |= need.result.files
        return found

    def agrees(self, track: Track, digest: str) -> bool:
        """True if a user approved the call with this digest."""
        return track.agreed in (AHEAD, FIRST, digest)

    def is_own_call(self, track: Track) -> bool:
        """True if the step's next call is the plan's own: no hint, mind, alternative or fallback changed it."""
        heal = track.heal
        changed = heal is not None and (heal.tool is not None or heal.args is not None or heal.fallback)
        return not changed and not track.minded

    def tool_of(self, track: Track) -> str:
        if track.heal is not None:
            if track.heal.fallback and track.step.fallback is not None and track.step.fallback.tool:
                return track.step.fallback.tool
            if track.heal.tool is not None:
                return track.heal.tool
        return track.step.tool

    def queue_of(self, track: Track) -> str:
        """Return the ready queue of a step: its tool's if tools are limited or cost something, else the common one."""
        return self.tool_of(track) if _by_tool(self.policy) else ""

    def next_timer(self) -> float | None:
        """Return the end of the next backoff, if one is under way."""
        timers = self.timers
        while timers:
            until, n, attempt = timers[0]
            track = self.backoff.get(n)
            if track is not None and track.attempt == attempt and track.until == until:
                return until
            heapq.heappop(timers)  # its step was retried, skipped or stopped meanwhile
        return None

    def tick(self, now: float) -> None:
        """End the backoffs that are over."""
        while (until := self.next_timer()) is not None:
            track = self.backoff[self.timers[0][1]]
            # A clock that was set back to before the wait began must not cut a long wait short.
            if until > now >= until - track.wait - 1e-3:
                return
            heapq.heappop(self.timers)
            self.move(track, PENDING)

    def has_granted(self, wish: str, number: int) -> bool:
        """True if an inbox command was applied before. Its inbox number counts only if it has no key."""
        return wish in self.wishes if wish else number <= self.last_wish

    # -- Changing: called by folds only ------------------------------------------------------------------------------

    def refresh(self, track: Track) -> None:
        """Publish a step's new standing to its dependents, as far as it changes."""
        self.moves += 1
        stack = [track]
        while stack:
            current = stack.pop()
            if current.phase is PENDING or current.place is not NOWHERE:
                self._place(current)
            old, new = current.standing, self._standing(current)
            if new is old:
                continue
            current.standing = new
            closed = self.finals and self.stopped and self.cleaned
            for target, when in current.out:
                worth = WORTH[when]
                before, after = worth[old], worth[new]
                if closed and self._is_closed(target, current):
                    before, after = worth[CLOSED.get(old, old)], worth[CLOSED.get(new, new)]
                if before != after:
                    count(target, before, -1)
                    count(target, after, 1)
                    if target.phase is PENDING:
                        stack.append(target)

    def _standing(self, track: Track) -> Standing:
        phase = track.phase
        if phase is SUCCEEDED or phase is SKIPPED:
            return Standing.OK
        if phase is PENDING:
            if self.finals and self.is_kept_back(track):
                return UNDECIDED
            if track.dead:
                return Standing.BLOCKED_OPEN if track.dead_open else Standing.BLOCKED
            if track.void and _needless(track):
                return Standing.VOID
        elif phase is Phase.FAILED:
            return Standing.FAILED if self.is_failed_for_good(track) or not self.rounds_left() else Standing.FAILED_OPEN
        return UNDECIDED

    def _place(self, track: Track) -> None:
        """Put a step into the index that `decide` reads."""
        place = NOWHERE if track.phase is not PENDING else self._place_of(track)
        if place is not track.place:
            old = track.place
            if old is READY:
                self.ready.discard(track)
            elif old is not NOWHERE:
                self._places[old].pop(track.n, None)
                self.unshown.pop(track.n, None)
            track.place = place
            if place is READY:
                self.ready.add(track, self.queue_of(track))
            elif place is not NOWHERE:
                self._places[place][track.n] = track
                self.unshow(track)

    def is_kept_back(self, track: Track) -> bool:
        """True if a step waits for the end of the run's work."""
        return not self.cleaned and track.id in self.finals

    def unshow(self, track: Track) -> None:
        """Mark the call shown at the step's gate, if it waits at one, as possibly outdated."""
        if track.place is Place.GATES:
            self.unshown[track.n] = track

    def _place_of(self, track: Track) -> Place:
        if self.finals and self.is_kept_back(track):
            return NOWHERE
        needless = track.void and _needless(track)
        if track.dead or needless:
            if track.announced or (track.again and not needless):
                return NOWHERE
            return Place.ANNOUNCE
        track.announced = ""
        if track.open:
            return NOWHERE
        if track.again and not track.root:
            return Place.KEEPERS
        return Place.GATES if track.step.confirm and not track.agreed else READY

    def move(self, track: Track, phase: Phase) -> None:
        """Move a step from one phase to another, with its index and its standing."""
        old = track.phase
        if old is RUNNING and track.call is not None:
            self.by_tool[track.call.tool] -= 1
            if track.holds is not None:  # no answer came: the reserved cost counts as spent
                self.cost += track.holds.reserved_cost
                self.tokens += track.holds.reserved_tokens
                self.release(track)
        index = self._phases.get(old)
        if index is not None:
            index.pop(track.n, None)
        track.phase = phase
        if old is Phase.HELD and self.replan_wanted:
            self.replan_wanted = self.breaker or any(held.question == "replan" for held in self.held.values())
        index = self._phases.get(phase)
        if index is not None:
            index[track.n] = track
            if track.standing is UNDECIDED:  # under way before and after: dependents see no change
                self.moves += 1
                self._place(track)
                return
        self.refresh(track)

    # -- Changes of course ------------------------------------------------------------------------------------------

    def indexes(self) -> list[dict[int, Track]]:
        """Return all indexes of steps by their numbers."""
        return [*self._phases.values(), *self._places.values(), self.unshown]

    def chosen(self, ids: Iterable[str]) -> None:
        """Let a mind's choice stand for these steps from now on; remember the tools that the plan names."""
        for step_id in ids:
            if step_id in self.tracks and step_id not in self.planned:
                step = self.tracks[step_id].step
                last = step.fallback.tool if step.fallback is not None else None
                self.planned[step_id] = (step.tool, *step.alternatives, last or step.tool)

    # -- What folds share -----------------------------------------------------------------------------------------

    def grant(self, wish: str, number: int) -> None:
        """Record an inbox command as applied, for good."""
        if wish:
            self.wishes.add(wish)
        self.last_wish = max(self.last_wish, number)

    def settle(self, track: Track, result: Result) -> None:
        """Give a step a good result: it ends, unless its inputs changed while it ran."""
        result.inputs = track.inputs
        if result.degraded is None and track.needs:
            result.degraded = next(self.holes(track), None)
        track.result = result
        track.gate = None  # success uses up an approval
        track.again = track.root = False
        track.stale = ""
        track.skip = None
        track.error = track.judged = None
        track.question = ""
        self.row.clear()
        if track.effects is not None and not result.stands_in:
            self.settle_effect(track, None)  # a substitute value proves nothing, and the key has been used all the same
        for target, _ in track.out if self.gates else ():
            self.unshow(target)
        redo, track.redo = track.redo, False
        if redo and track.id not in self.unsettled:  # a doubt's substitute value stays until the answer
            track.again = True
            self.move(track, PENDING)
        else:
            self.move(track, SUCCEEDED)

    def settle_effect(self, track: Track, effects: EffectState | None) -> None:
        """Set what is known of a step's effect: nothing open, unless an attempt is lost."""
        if effects is None:
            track.earlier = ()
        elif track.effects is not None and track.effects is not effects:
            track.earlier = (track.effects, *(one for one in track.earlier if one is not effects))
        track.effects = effects
        if effects is not None and effects.lost:
            self.unsettled[track.id] = track
        else:
            self.unsettled.pop(track.id, None)

    def reserve(self, track: Track, call: ev.StepStarted) -> None:
        """Hold a call's reservation until the call ends."""
        self.reserved.take(call)
        track.holds = call

    def release(self, track: Track) -> None:
        """Release the reservation of a step's call: it has ended."""
        assert track.holds is not None
        self.reserved.give_back(track.holds)
        track.holds = None

    def govern(self, policy: Policy) -> None:
        """Put the run under another policy, and requeue the steps that can start."""
        old, self.policy = self.policy, policy
        if _by_tool(old) != _by_tool(policy):
            waiting, self.ready = list(self.ready.members.values()), Ready()
            for track in waiting:
                self.ready.add(track, self.queue_of(track))

    def current(self, step: str, attempt: int, *phases: Phase) -> Track | None:
        """Return the step's track if the event is from the attempt it waits for."""
        track = self.tracks.get(step)
        return track if track is not None and track.attempt == attempt and track.phase in phases else None

    def activate(self, at: float) -> None:
        """Mark the run as running (again): its time counts."""
        if self.active_since is None:
            self.active_since = at

    def deactivate(self, at: float) -> None:
        """Mark the run as at rest or waiting for a user: its time stops counting."""
        self.active = self.seconds(at)
        self.active_since = None


def _by_tool(policy: Policy) -> bool:
    """True if startable steps queue by tool: some tools' calls may have to wait while others start."""
    limited = bool(policy.tool_concurrency or policy.provider_concurrency)
    return limited or policy.max_cost is not None or policy.max_tokens is not None


def _needless(track: Track) -> bool:
    """True if a step does not run, because the occasion of one of its needs did not arise.

    A step that ran earlier, when needed, keeps its result, unless it must be redone: it is not needed now.
    """
    return not track.open and (track.root or not track.again)
