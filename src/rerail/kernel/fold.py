"""The fold: the change that each event makes to the state. One small function per event, one table.

Rules of this file:
- A fold never fails on a late, duplicate or malformed event: only the attempt that the step waits for is heard.
- A fold reads the event and the state, nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from rerail.kernel import events as ev
from rerail.kernel.action_folds import ask_anew, cancelled, edited_by, person_acted, planned_anew, prolong, rewritten
from rerail.kernel.effect_folds import call_failed, case_of, follow, intended, mark_absent, mark_done, mark_lost
from rerail.kernel.events import Event
from rerail.kernel.outcome import Follows, Saw, follows
from rerail.kernel.plan_graph import define, recount, redirect
from rerail.kernel.policy import Rung
from rerail.kernel.stages import resume_stage
from rerail.kernel.state import State
from rerail.kernel.step_state import (
    AHEAD,
    FIRST,
    PENDING,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    Degraded,
    Gate,
    Heal,
    Lack,
    Phase,
    Result,
    Track,
    call_digest,
    same_inputs,
)
from rerail.plan.step import Effect, Step, definition

CHANGED = frozenset({Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR, Rung.FALLBACK})  # rungs that change the call
CHOSEN = frozenset({Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR})  # rungs by which a mind chooses the call
MAX_FAILURES = 8  # failed attempts of a step that a mind sees


def evolve(state: State, event: Event, at: float, seq: int) -> None:
    """Change the state by one more event. A late event from an older attempt changes nothing."""
    if state.timers:
        state.tick(at)  # a replay sees the same time pass as the live run did
    FOLDS[type(event)](state, event, at)
    state.seq = seq
    state.at = at


def fold(run: str, records: Iterable[ev.Record]) -> State:
    """Return the state of a history."""
    state = State(run)
    for record in records:
        evolve(state, record.event, record.at, record.seq)
    return state


def _run_started(state: State, event: ev.RunStarted, at: float) -> None:
    state.objective, state.parent, state.policy = event.objective, event.parent, event.policy
    state.origin, state.memory = event.origin, event.memory
    state.home, state.inherited = event.home or state.run, event.inherited
    state.filed = bool(event.inherited)
    state.queued, state.served, state.copied, state.via = event.queued, event.served, event.copied, event.via
    state.created_at = state.active_since = at


def _plan_accepted(state: State, event: ev.PlanAccepted, at: float) -> None:
    state.revision = event.revision
    state.fingerprints = dict(event.fingerprints)
    state.follow_up, state.mcp, state.assumed = event.plan.follow_up, event.plan.mcp, event.assumed
    state.fallback, state.finals = event.fallback, event.plan.finally_
    state.objective = event.plan.objective or state.objective
    define(state, event.plan.steps)


def _gate_opened(state: State, event: ev.GateOpened, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or track.phase is not PENDING:
        return
    gate = track.gating()
    gate.agreed, gate.shown = "", event
    state.refresh(track)
    state.unshown.pop(track.n, None)


def _made_under(state: State, track: Track, call: ev.StepStarted, gate: Gate) -> None:
    """Bind an approval that names no call to the call that is now known."""
    files = state.files(track)
    digest = call.agreed or call_digest(call.tool, state.signature(track), files)
    args = call.args if call.args is not None or call.args_blob else state.template(track).value
    gate.yes = ev.Shown(call.tool, digest, args, call.args_blob, files)
    gate.agreed = digest if gate.agreed == FIRST else AHEAD


def _step_started(state: State, event: ev.StepStarted, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or event.attempt <= track.attempt:
        return
    if track.holds is not None:  # the history is inconsistent
        state.release(track)
    track.attempt = event.attempt
    track.call = event
    if track.heal is not None:
        track.heal.before = 0
    if track.effects is None or not track.effects.lost:
        track.inputs = state.inputs(track)
    elif not track.redo and not same_inputs(state.inputs(track), track.inputs):
        track.redo = track.automatic = True  # its inputs are those of the lost call; they changed since
    if track.gate is not None and track.gate.agreed in (AHEAD, FIRST):
        _made_under(state, track, event, track.gate)
    track.started_at = at
    state.stage = track.step.stage or state.stage
    state.uncleared = ""
    if not track.calls:
        track.begun = state.seq + 1
    if event.rung is not Rung.FALLBACK:
        track.calls += 1
    state.calls += 1
    if state.round:
        state.round_calls[event.step] = state.round_calls.get(event.step, 0) + 1
    state.by_tool[event.tool] = state.by_tool.get(event.tool, 0) + 1
    if event.verifiable or event.effect is Effect.ONCE:
        intended(state, track, event, at)
    state.move(track, RUNNING)
    if event.effect is Effect.ONCE:
        mark_done(state, track)  # from now on the effect may exist
    if event.reserved_cost or event.reserved_tokens or event.unpriced:
        state.reserve(track, event)


def _step_succeeded(state: State, event: ev.StepSucceeded, at: float) -> None:
    state.tokens += event.tokens
    state.cost += event.cost
    track = state.current(event.step, event.attempt, RUNNING)
    if track is None or track.call is None:
        return
    if track.holds is not None:
        state.release(track)
    state.largest.saw(track.call.tool, event.cost, event.tokens, answered=True)
    result = Result(event.output, event.digest, event.size, event.blob, event.attempt)
    result.effect, result.hole, result.by = track.call.effect, event.hole, event.by
    result.unverified, result.files, result.given = event.unverified, event.files, event.given
    for path in event.files if state.drafts else ():
        state.drafts.pop(path, None)  # the user's content replaced the content before this one
    for path, digest in event.files.items() if track.call.staged else ():  # put in place by the next reader
        state.drafts[path] = ev.FileMade(path, digest, track.id, f"{track.call.staged}/{path}")
    if track.call.rung is Rung.FALLBACK:
        result.degraded = Degraded(Lack.FALLBACK, track.error.told if track.error else "")
    track.ended_at, track.elapsed, track.cost = at, event.elapsed, event.cost
    state.tool_seconds += event.elapsed
    if track.call.effect is Effect.ONCE:
        mark_done(state, track)
    state.settle(track, result)
    if event.course.steps:
        redirect(state, event.course)


def _step_failed(state: State, event: ev.StepFailed, at: float) -> None:
    state.tokens += event.tokens
    state.cost += event.cost
    track = state.tracks.get(event.step)
    if track is None:
        return
    if event.called:
        if track.attempt != event.attempt or track.phase is not RUNNING or track.call is None:
            return
        if track.holds is not None:
            state.release(track)
        state.largest.saw(track.call.tool, event.cost, event.tokens, answered=False)
        track.elapsed = event.elapsed
        state.tool_seconds += event.elapsed
    elif track.phase not in (PENDING, Phase.BACKOFF, Phase.DOUBT):
        return
    track.error, track.judged = event.error, None
    track.ended_at = at
    if event.error.code == "RUN_CANCELLED":
        once = track.call is not None and track.call.effect is Effect.ONCE
        if not (event.called and event.lost and once):  # else its effect may exist, and must not be repeated
            state.move(track, PENDING)
            return
    if track.heal is not None:
        # An earlier "not now", or a mind's reflection on another failure, does not apply to this failure. A step that
        # fails before its call has the attempt number of the call before.
        track.heal.not_now = track.heal.thought = None
    if not event.called:
        track.healing().before += 1
    if event.not_now is not None:
        track.healing().not_now = event.not_now
    elif track.call is not None and event.called:
        key = (track.call.tool, state.signature(track), event.error.message[:500])
        heal = track.healing()
        heal.tried[key] = heal.tried.get(key, 0) + 1
    if event.not_now is None and state.policy.minds:
        _remember(state, track, event)
    if event.error.code == "RESOLVED_FAILED":
        mark_absent(state, track)  # by the user's word
    if event.called and track.call is not None:
        call_failed(state, track, track.call, event, at)
    else:
        state.move(track, Phase.HURT)


def _remember(state: State, track: Track, event: ev.StepFailed) -> None:
    """Keep the failure for the minds that may be asked about it, if any are configured."""
    failures = track.healing().failures
    error = event.error
    failures.append({
        "attempt": event.attempt, "tool": track.call.tool if track.call is not None else track.step.tool,
        "args": state.args_of(track), "called": event.called,
        "error": {"code": error.code, "category": str(error.category), "message": error.message[:1000]},
    })  # fmt: skip
    del failures[:-MAX_FAILURES]


def _step_verified(state: State, event: ev.StepVerified, at: float) -> None:
    track = state.current(event.step, event.attempt, Phase.DOUBT, PENDING)
    if track is None or track.call is None or (track.phase is PENDING and track.effects is None):
        return
    saw, repeats = Saw(event.effect), track.phase is PENDING
    effects = state.next_effect(track) if repeats else track.effects
    call = effects.call if effects is not None else track.call
    unsure = False
    if effects is not None:
        state.settle_effect(track, effects)  # the look was for the call that comes next
    if track.effects is not None:
        track.effects.looked_at, track.effects.cleared = at, repeats and saw is Saw.ABSENT
        unsure = repeats and saw is Saw.UNKNOWN and track.effects.ever_lost  # it was absent, and may have shown since
    what = follows(case_of(track, call, saw, at, lost=unsure, output=not event.hole))
    if not event.looks and saw is Saw.THERE:
        what = Follows.SUCCEED  # the meaning in versions that looked once
    if what is not Follows.SUCCEED:
        follow(state, track, what)
        return
    result = Result(event.output, event.digest, event.size, event.blob, event.attempt)
    result.effect, result.hole, result.by, track.call = call.effect, event.hole, "verify", call
    result.files = event.files
    state.settle(track, result)


def _step_skipped(state: State, event: ev.StepSkipped, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None:
        return
    if event.code in ("SKIP_OPTIONAL", "SKIP_USER"):
        if track.phase is RUNNING:  # its call is cancelled, and its outcome is no longer heard
            mark_lost(state, track)
        track.skip, track.ended_at = event, at
        track.again = track.root = False
        track.result = None
        state.move(track, SKIPPED)
    else:  # a consequence is derived, not stored; the fold only notes that it was announced
        track.announced = event.code
        state.announce.pop(track.n, None)
        if event.code == "SKIP_CONDITION" and track.again:  # its earlier result is not for this round
            track.again = track.root = False
            track.result = None
            state.refresh(track)


def _step_kept(state: State, event: ev.StepKept, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or track.phase is not PENDING or track.result is None:
        return
    track.again = track.root = False
    track.stale = event.stale
    state.move(track, SUCCEEDED)


def _step_renewed(state: State, event: ev.StepRenewed, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is not None and track.phase is PENDING:
        track.root = True
        state.refresh(track)


def _retry_scheduled(state: State, event: ev.RetryScheduled, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or track.phase is not Phase.HURT:
        return
    track.until, track.wait = min(event.until, at + event.delay), event.delay
    state.wait_seconds += event.delay
    if event.not_now:
        heal = track.healing()
        heal.waited, heal.waits = heal.waited + event.delay, heal.waits + event.asked
        heal.not_now = None
        heal.crashes += track.error is not None and track.error.code == "ANSWER_LOST"
        if track.call is not None and track.call.rung is not Rung.FALLBACK:
            track.calls -= 1  # a "not now" with a wait does not count as a call
    track.healing().wished = track.call.tool if event.asked and track.call is not None else ""
    heapq.heappush(state.timers, (track.until, track.n, track.attempt))
    state.move(track, Phase.BACKOFF)


def _reflected(state: State, event: ev.Reflected, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or track.phase not in (Phase.HURT, Phase.HELD, Phase.BACKOFF, Phase.DOUBT, PENDING):
        return
    if (track.phase is PENDING and event.rung is not Rung.DOUBT) or (track.phase is Phase.DOUBT and track.question):
        return
    heal = track.healing()
    if event.by != "rules":
        heal.thought = event
    if track.question == "reflect":
        track.question = ""
        state.move(track, Phase.HURT)
    if track.error is not None:
        track.judged = event.category
    if event.rung is Rung.DOUBT:
        state.move(track, Phase.DOUBT)
    elif event.rung is Rung.FAIL:
        track.ended_at = at
        if not track.begun or track.begun > next(reversed(state.row.values()), 0):
            state.row.setdefault(track.id, state.seq + 1)  # what was under way at the same time is one failure (H4)
        state.move(track, Phase.FAILED)
    elif event.rung is Rung.REPLAN:
        track.question = "replan"
        state.move(track, Phase.HELD)
        state.replan_wanted = True
    elif event.rung is Rung.REPAIR:
        track.question = "repair"
        state.move(track, Phase.HELD)


def _recovered(state: State, event: ev.Recovered, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None:
        return
    heal = track.healing()
    if event.by != "rules" and event.rung in CHOSEN:
        track.disagree()  # the approval was for another call
        track.wanted = False
        heal.minded = True
        state.chosen((track.id,) if event.tool else ())
    if track.agreed in (AHEAD, FIRST) and event.rung in CHANGED:
        track.disagree()  # an approval given ahead covers the plan's own call only
    if event.rung is Rung.ADJUST:
        heal.args, heal.args_blob = event.args, event.args_blob
    elif event.rung is Rung.ALTERNATIVE:
        heal.tool = event.tool
        heal.alternatives = (*heal.alternatives, event.tool)
    elif event.rung is Rung.PRODUCER:
        heal.producer = True
    elif event.rung is Rung.REPAIR:
        fresh = track.heal = Heal()
        fresh.repairs, fresh.failures = heal.repairs + 1, heal.failures
        track.calls, track.minded = 0, True
    elif event.rung is Rung.FALLBACK:
        heal.fallback = True
        if not event.tool:
            result = Result(event.output, event.digest, event.size, event.blob, track.attempt)
            result.degraded = Degraded(Lack.FALLBACK, event.reason)
            track.ended_at = at
            track.inputs = state.inputs(track)
            state.settle(track, result)
            return
    redirect(state, event.course)


def _asked(state: State, event: ev.QuestionAsked, at: float) -> None:
    if event.question == "replan":
        state.replan_wanted = state.breaker = True
        return
    track = state.current(event.step, event.attempt, Phase.HURT)
    if track is not None:
        track.healing().asked = event.attempt
        track.question = event.question
        state.move(track, Phase.HELD)


def _consulted(state: State, event: ev.Consulted, at: float) -> None:
    tokens = event.input_tokens + event.output_tokens
    state.tokens += tokens
    state.cost += event.cost
    state.largest_question.saw(event.question, event.cost, tokens, answered=not event.problem)


def _declined(state: State, event: ev.Declined, at: float) -> None:
    if event.late:
        return
    if event.question == "repair":
        track = state.tracks.get(event.step)
        if track is not None and track.phase is Phase.HELD:
            track.healing().repairs += 1
            track.question = ""
            state.move(track, Phase.HURT)
    elif event.question == "replan":
        _replan_over(state)


def _replan_over(state: State) -> None:
    state.replans += 1
    state.replan_wanted = state.breaker = False
    for track in list(state.held.values()):
        if track.question == "replan":
            track.question = ""
            state.move(track, Phase.HURT)


def _plan_rejected(state: State, event: ev.PlanRejected, at: float) -> None:
    if event.question:
        _declined(state, ev.Declined(event.question, event.step, event.reason), at)


def _retry_begin(state: State, event: ev.RetryBegin, at: float) -> None:
    state.round = event.round
    state.govern(event.policy or state.policy)
    if event.automatic:
        state.automatic_rounds += 1
    else:
        counted = (0 if event.reset_count else state.retries) + (1 if event.counted else 0)
        state.retry_history.append({
            "time": at, "operation": event.operation, "strategy": "clean" if event.operation == "clean" else "partial",
            "previous_status": event.previous_status, "stage": resume_stage(state, event.chain) or None,
            "error": next(iter(event.reasons.values()), None), "count": counted,
        })  # fmt: skip
        state.disputed.clear()
    state.retries = (0 if event.reset_count else state.retries) + (1 if event.counted else 0)
    state.stopped = event.stopped
    state.paused = state.waiting = state.replan_wanted = state.breaker = False
    state.row.clear()
    state.judged = None
    state.rest = None
    state.fingerprints = dict(event.fingerprints) if event.fingerprints is not None else state.fingerprints
    state.round_done = False
    if not event.stopped and state.cleaned and event.operation not in ("resolve", "skip"):
        state.cleaned = 0  # they run again, at the end of this chapter
        recount(state)
    state.reopened = not event.automatic
    state.uncleared = event.backup or state.uncleared
    if event.operation == "clean":
        state.drafts.clear()  # the files in place are in the backup; staged ones are obsolete
    state.round_calls = {}
    state.round_chain = event.chain
    state.activate(at)
    ask_anew(state, event.course)
    planned_anew(state, event.course)
    redirect(state, event.course, new_round=True)
    # After the death of a process, steps outside the retry set may wait for a replan; they keep waiting.
    state.replan_wanted = any(held.question == "replan" for held in state.held.values())
    rewritten(state, event.course)
    if not event.automatic:
        edited_by(state, event.course, event.by)
    for step_id in event.stale:
        if step_id in state.tracks:
            state.tracks[step_id].stale = "definition changed"
    _resettle(state)


def _resettle(state: State) -> None:
    """Update failed steps outside the retry set: the number of automatic rounds left has changed."""
    for track in state.tracks.values():
        if track.phase is Phase.FAILED:
            state.refresh(track)


def _retry_done(state: State, event: ev.RetryDone, at: float) -> None:
    state.round_done = True


def _replanned(state: State, event: ev.Replanned, at: float) -> None:
    _replan_over(state)
    state.row.clear()
    changed = [step.id for step in event.course.steps if _is_changed(state, step)]
    state.chosen([*changed, *event.course.dropped])
    redirect(state, event.course, new_round=True)
    state.revision = max(state.revision, event.revision)
    for track in (state.tracks[step_id] for step_id in changed if step_id in state.tracks):
        track.minded, track.wanted = True, False
        track.disagree()
        state.refresh(track)


def _is_changed(state: State, step: Step) -> bool:
    track = state.tracks.get(step.id)
    return track is None or definition(track.step) != definition(step)


def _evaluation(state: State, event: ev.Evaluation, at: float) -> None:
    state.judged = event
    for step_id in event.disputed:
        state.disputed[step_id] = None


def _waiting(state: State, event: ev.Waiting, at: float) -> None:
    state.waiting = True
    state.rested_at = state.seq + 1
    state.deactivate(at)


def _resumed(state: State, event: ev.Resumed, at: float) -> None:
    if state.active_since is not None:
        # The time between the dead process's last event and now does not count as running time.
        state.active += max(0.0, state.at - state.active_since)
        state.active_since = None
    prolong(state, at)  # the time between two processes does not count for the clean-up either
    state.waiting = state.queued = False
    state.served = event.served
    if event.policy is not None:
        state.govern(event.policy)
        _resettle(state)
    if event.fingerprints is not None:
        state.fingerprints = dict(event.fingerprints)
    state.grant(event.wish, event.number)
    if event.paused:
        state.paused = False
    for step_id in event.stale:
        if step_id in state.tracks:
            state.tracks[step_id].stale = "definition changed"
            state.moves += 1
    state.activate(at)


def _cleanup_begun(state: State, event: ev.CleanupBegun, at: float) -> None:
    state.cleaning, state.cleaned = event, state.seq + 1
    state.paused = state.paused and not state.stopped
    redirect(state, event.course, new_round=True)
    recount(state)


def _stopped(state: State, event: ev.Stopped, at: float) -> None:
    if state.cleaning is None or not state.stopped:  # why the work was stopped stays known
        state.stopped, state.stop_reason = event.code, event.reason
    state.cleaning = None
    recount(state)
    state.replan_wanted = state.breaker = False


def _done(state: State, event: ev.Done, at: float) -> None:
    state.rest, state.cleaning = event, None
    state.rested_at = state.seq + 1
    state.waiting = False
    state.deactivate(at)


def _ignored(state: State, event: Event, at: float) -> None:
    """Ignore an announcement: nothing is read back from it."""


FOLDS: dict[type, Callable[[State, Any, float], None]] = {
    ev.RunStarted: _run_started,
    ev.PlanAccepted: _plan_accepted,
    ev.PlanRejected: _plan_rejected,
    ev.GateOpened: _gate_opened,
    ev.StepStarted: _step_started,
    ev.StepProgress: _ignored,
    ev.StepSucceeded: _step_succeeded,
    ev.StepFailed: _step_failed,
    ev.StepVerified: _step_verified,
    ev.StepSkipped: _step_skipped,
    ev.StepKept: _step_kept,
    ev.StepRenewed: _step_renewed,
    ev.RetryScheduled: _retry_scheduled,
    ev.Reflected: _reflected,
    ev.Recovered: _recovered,
    ev.QuestionAsked: _asked,
    ev.Consulted: _consulted,
    ev.Declined: _declined,
    ev.ArtifactCreated: _ignored,
    ev.ArtifactLost: lambda state, event, at: redirect(state, event.course),
    ev.RetryBegin: _retry_begin,
    ev.RetryDone: _retry_done,
    ev.Replanned: _replanned,
    ev.CleanupBegun: _cleanup_begun,
    ev.Evaluation: _evaluation,
    ev.Waiting: _waiting,
    ev.Resumed: _resumed,
    ev.Acted: person_acted,
    ev.Cancelled: cancelled,
    ev.Stopped: _stopped,
    ev.Done: _done,
    ev.Notified: _ignored,
    ev.Audited: _ignored,
}
