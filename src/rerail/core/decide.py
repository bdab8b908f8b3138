"""What is worth doing now: a pure function of the state (log → fold → decide → act).

Rules of this file:
- Actions are values. Whoever runs the loop performs them; a dry run shows them.
- Notes come first: as long as there is something to write down, nothing else is decided.
- Deciding twice gives the same answer: nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from rerail.core import events as ev
from rerail.core.afford import Allowance, allowance
from rerail.core.codes import Category
from rerail.core.events import Course, Event
from rerail.core.plan import Effect, When
from rerail.core.policy import Rung
from rerail.core.recover import answer_doubt, heal, lapsed
from rerail.core.reserve import FREE, Need
from rerail.core.state import State, downstream, unsatisfied_above
from rerail.core.tools import Tools
from rerail.core.track import Phase, RunStatus, Standing, Status, Track, same_inputs
from rerail.core.verdict import (
    Verdict,
    evaluation,
    round_statistics,
    skip_told,
    statistics,
    summary,
    verdict,
    waiting_on,
)
from rerail.i18n import clipped, tell


@dataclass(frozen=True, slots=True)
class Note:
    """Facts to write down; nothing outside changes."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Start a step's tool."""

    step: str
    attempt: int
    tool: str
    rung: Rung | None = None
    reserves: Need = field(default=FREE, repr=False)  # what it may spend, in a run with a cap (H4)


@dataclass(frozen=True, slots=True)
class Show:
    """Resolve the call of a gated step and show it: a person agrees to exactly that one (X10)."""

    step: str


@dataclass(frozen=True, slots=True)
class Look:
    """Ask whether the effect of an attempt that did not succeed is there."""

    step: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Put a question to a mind: reflect, repair, replan or judge."""

    question: str
    step: str = ""
    seq: int = 0


Action: TypeAlias = Note | Call | Show | Look | Ask


def decide(state: State, tools: Tools, now: float) -> list[Action]:
    """Everything worth doing now; empty while only waiting, and once at rest."""
    if state.rest is not None:
        return []
    state.tick(now)
    if state.hurt or state.announce or state.keepers or state.stopped or state.row or state.doubts:
        notes = _notes(state, tools, now)
        if notes:
            return [Note(tuple(notes))]
    left = allowance(state, tools)
    actions = _questions(state, left)
    asks = any(isinstance(action, Ask) for action in actions) or (left is not None and left.held)
    if asks and (over := _over_budget(state, now, asking=True)):
        return [_out_of_budget(over)]
    if not (state.stopped or state.paused or state.replan_wanted):
        over = _over_budget(state, now) if state.ready else ""
        if over:
            return [_out_of_budget(over)]
        actions += _calls(state, tools, now, left)
    if state.unshown and not (state.stopped or state.replan_wanted):
        actions += [Show(track.id) for track in state.unshown.values()]  # paused or not: nothing is called
    if not actions and left is not None and left.short and not state.running:
        return [_out_of_budget(left.short)]  # nothing is under way that could make room
    return actions or _close(state, tools, now)


def _out_of_budget(reason: str) -> Note:
    return Note((ev.Stopped("BUDGET_EXCEEDED", reason),))


def closing(state: State, tools: Tools, now: float) -> list[Event]:
    """What is still to be written down of a stopped run, if nobody looks behind its doubts any more."""
    if state.rest is not None or not state.stopped:
        return []
    closed = (action.events for action in _close(state, tools, now) if isinstance(action, Note))
    return _notes(state, tools, now) or [event for events in closed for event in events]


# -- Notes: what follows at once from what happened ---------------------------------------------------------------


def _notes(state: State, tools: Tools, now: float) -> list[Event]:
    for track in state.hurt.values():
        return heal(state, tools, track, now)  # one at a time: each choice may change what the next may do
    if state.stopped:
        for track in (*state.backoff.values(), *state.held.values()):
            return heal(state, tools, track, now)
    elif 0 < state.policy.max_consecutive_failures <= len(state.row) and not state.breaker:
        return [_breaker(state)]
    for track in state.doubts.values() if not state.stopped else ():
        if not track.question and (answered := answer_doubt(state, tools, track, now)):
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


def _breaker(state: State) -> Event:
    """Too many different steps failed in a row: somebody makes a new plan, or the run stops (H4)."""
    steps, policy = ", ".join(state.row), state.policy
    # One step that failed for good asks for no replan (H3); several in a row say that the plan itself is wrong.
    if "replan" in policy.minds and policy.reflect and state.replans < policy.max_task_replanning_attempts:
        return ev.Asked("replan", reason=f"BREAKER_OPEN: {steps}")
    return ev.Stopped("BREAKER_OPEN", steps)


def _kept(state: State, track: Track) -> Event | None:
    """The word that an earlier result still stands; None if the step has to run again (R3)."""
    assert track.result is not None
    if same_inputs(state.inputs(track), track.result.inputs):
        return ev.StepKept(track.id)
    if track.void:  # it is not needed now, so it does not run; a clean-up that ran stays as it is all the same (P2)
        cleans_up = any(when is When.FAILURE for _, when in track.needs)
        return ev.StepKept(track.id, "" if cleans_up else "needless")
    if track.automatic and track.result.effect is Effect.ONCE:
        return ev.StepKept(track.id, "once")
    return None


# -- Calls --------------------------------------------------------------------------------------------------------


LOOK_FRESH = 0.1  # seconds for which what a look found holds; older ones are asked again before a call is repeated
LOOK_KEPT = 60.0  # the same for a look that was made for the call: a graph may set the pace between the two


def _calls(state: State, tools: Tools, now: float, left: Allowance | None = None) -> list[Action]:
    """The calls that start now, in order; one that the run's caps have no room for waits (H4)."""
    policy = state.policy
    room = policy.concurrency - len(state.running) if policy.concurrency else len(state.ready)
    if policy.max_attempts is not None:
        room = min(room, policy.max_attempts - state.calls)
    if room <= 0 or not state.ready:
        return []
    started: dict[str, int] = {}
    calls: list[Action] = []
    most = room if left is None else len(state.ready)  # a call that has to wait takes no room
    waiting = state.ready.first(_free(state, tools, started, left), most)
    for track in waiting:
        if len(calls) >= room:
            break
        if track.effects is not None and (first := _before_repeat(state, tools, track, now)) is not None:
            calls.append(first)
            continue
        tool = state.tool_of(track)
        rung = Rung.FALLBACK if track.heal is not None and track.heal.fallback else None
        need = FREE if left is None else left.of_tool(tool)
        if left is not None and not left.take(need, step=track.id):
            continue
        calls.append(Call(track.id, track.attempt + 1, tool, rung, need))
        started[tool] = started.get(tool, 0) + 1
    waiting.close()
    return calls


def gated_call(state: State, step: str) -> Call:
    """The call that a gated step would make."""
    track = state.tracks[step]
    rung = Rung.FALLBACK if track.heal is not None and track.heal.fallback else None
    return Call(track.id, track.attempt + 1, state.tool_of(track), rung)


def unresolved(state: State, show: Show) -> ev.GateOpened:
    """A gate that opens where arguments cannot be resolved: in a preview, in a replay."""
    call = gated_call(state, show.step)
    return ev.GateOpened(call.step, call.attempt - 1, call.tool, rung=call.rung)


def _before_repeat(state: State, tools: Tools, track: Track, now: float) -> Action | None:
    """What comes before a call whose effect may be there already: a look, or the word that it is in doubt (V8, E2)."""
    effects, call = track.effects, track.call
    if effects is None or call is None or effects.rerun:
        return None
    if effects.lost and not track.is_covered(now):
        return Note(tuple(lapsed(state, tools, track, now)))
    if not call.verifiable or effects.looked_at < 0 or _is_another(state, track):
        return None
    fresh = LOOK_KEPT if effects.cleared else LOOK_FRESH
    return None if 0 <= now - effects.looked_at <= fresh else Look(track.id, track.attempt)


def _is_another(state: State, track: Track) -> bool:
    """Whether the next call is not the one before: its effect would be another one, and no look at that one tells."""
    effects, call, heal = track.effects, track.call, track.heal
    if effects is None or call is None or effects.lost:
        return False
    return effects.redefined or state.tool_of(track) != call.tool or (heal is not None and heal.args is not None)


def _free(state: State, tools: Tools, started: dict[str, int], left: Allowance | None) -> Callable[[str], bool] | None:
    """Whether a tool's queue may give another call: its own limit, its provider's, and the run's caps; None without."""
    policy = state.policy
    limited = policy.tool_concurrency or policy.provider_concurrency
    if not limited:
        return None if left is None else left.passes

    def running(tool: str) -> int:
        return state.by_tool.get(tool, 0) + started.get(tool, 0)

    def free(tool: str) -> bool:
        if left is not None and not left.passes(tool):
            return False
        limit = policy.tool_concurrency.get(tool)
        if limit and running(tool) >= limit:  # 0 is no limit, as for the run
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
    """Which budget of the whole run is used up for good, if one is (H4); checked before each call and question.

    An attempt is spent with its intent and time is not reserved, so waiting for calls under way gives none back.
    """
    policy = state.policy
    used = (
        ("max_attempts", state.calls, None if asking else policy.max_attempts),
        ("max_seconds", state.seconds(now) if policy.max_seconds is not None else 0.0, policy.max_seconds),
    )
    for name, spent, limit in used:
        if limit is not None and spent >= limit:
            return tell("reason.used", name=name, spent=spent, limit=limit)
    return ""


# -- Questions ----------------------------------------------------------------------------------------------------


def _questions(state: State, left: Allowance | None = None) -> list[Action]:
    """The looks, and the questions to minds. A question that the caps have no room for waits, before any call."""
    # A cancelled run waits for no effect to show; `resume` and `retry` look for it.
    cancelled = state.stopped == "RUN_CANCELLED"
    looks: list[Action] = [
        Look(track.id, track.attempt)
        for track in state.doubts.values()
        if track.question == "verify" and not (cancelled and track.id in state.unsettled)
    ]
    if state.stopped or state.paused:
        return looks
    asked = ("reflect", "repair")
    asks = [Ask(track.question, track.id, track.attempt) for track in state.held.values() if track.question in asked]
    if state.replan_wanted and not state.running and not looks and not asks:
        # What was written meanwhile makes it no other question; what a person did, does.
        asks.append(Ask("replan", "", state.acted_at))
    if left is None:
        return [*looks, *asks]
    # One at a time: no intent is written for a question, so each has to see what the one before it spent.
    return looks + [ask for ask in asks[:1] if left.take(left.of_question(ask.question), question=ask.question)]


# -- Closing a round, and the run ---------------------------------------------------------------------------------


def _close(state: State, tools: Tools, now: float) -> list[Action]:
    """Nothing can start: wait for what is under way, for a person, or close the round."""
    if state.running or (not state.stopped and (state.backoff or state.held) and not state.paused):
        return []
    if not state.stopped and (state.paused or state.gates or state.doubts):
        on = tuple(waiting_on(state))
        return [] if state.waiting or not on else [Note((ev.Waiting(on),))]
    if not state.seq or not state.revision:
        return []
    if not state.round_done:
        failed = tuple(track.id for track in state.tracks.values() if track.phase is Phase.FAILED)
        return [Note((ev.RetryDone(state.round, round_statistics(state), failed),))]
    found = verdict(state)
    if state.judged is None:
        if not _wants_judge(state, found):
            return [Note((evaluation(state, found),))]
        left = allowance(state, tools)
        if _over_budget(state, now, asking=True) or (left and not left.take(left.of_question("judge"))):
            return [Note((evaluation(state, found, "unavailable"),))]
        return [Ask("judge", "", state.moves)]
    roots = automatic_roots(state)
    if roots:
        return [Note((automatic_retry(state, roots),))]
    return [Note((_done(state, found, now),))]


def _wants_judge(state: State, found: Verdict) -> bool:
    """Whether the judge is asked: never after a stop; without a retry round it may be skipped (V5)."""
    if not state.policy.judge or "judge" not in state.policy.minds or state.stopped:
        return False
    clean = found.counts[Status.SUCCEEDED] == len(state.tracks) and not state.round and not state.replans
    return not (state.policy.shortcut and clean)


def automatic_roots(state: State) -> list[str]:
    """The roots of an automatic round: failed on their own account and not for good, or judged unsatisfactory (R6)."""
    if not state.rounds_left():
        return []
    roots = [
        track.id
        for track in state.tracks.values()
        if track.phase is Phase.FAILED and track.category is not Category.PERMANENT
    ]
    judged = state.judged.unsatisfactory if state.judged is not None else ()
    return roots + [step_id for step_id in judged if step_id not in roots and _may_repeat(state, step_id)]


def _may_repeat(state: State, step_id: str) -> bool:
    track = state.tracks.get(step_id)
    return track is not None and not (track.result is not None and track.result.effect is Effect.ONCE)


def automatic_retry(state: State, roots: list[str]) -> ev.RetryBegin:
    """The beginning of an automatic round."""
    chain = retry_chain(state, roots)
    return ev.RetryBegin(
        state.round + 1, "rules", tuple(roots), chain, len(chain), reasons_of(state, roots),
        course=Course(tuple(roots)), previous_status=str(RunStatus.RUNNING),
    )  # fmt: skip


def retry_chain(state: State, roots: list[str]) -> tuple[str, ...]:
    """The retry set in plan order: the roots, what they need and do not have, and everything behind (R1)."""
    return tuple(track.id for track in downstream(state, [*roots, *unsatisfied_above(state, roots)]))


def reasons_of(state: State, roots: list[str]) -> dict[str, str]:
    """Why each root is one."""
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
