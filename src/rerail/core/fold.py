"""The fold: what each event does to the state. One small function per event, one table.

Rules of this file:
- A fold never fails on a late, doubled or odd word: an answer is heard only from the attempt that is waited for.
- A fold reads the event, the state and nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from rerail.core import events as ev
from rerail.core.events import Course, Event
from rerail.core.outcome import Case, Certainty, Follows, Saw, follows
from rerail.core.pipeline import resume_stage
from rerail.core.plan import Effect, Step, definition
from rerail.core.policy import LEAST_WAIT, Rung
from rerail.core.recover import failed_args
from rerail.core.state import State
from rerail.core.track import (
    AHEAD,
    FIRST,
    PENDING,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    Degraded,
    EffectState,
    Heal,
    Lack,
    Phase,
    Result,
    Track,
    call_digest,
    same_inputs,
)

CHANGED = frozenset({Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR, Rung.FALLBACK})  # rungs whose call is another one
MAX_FAILURES = 8  # failed attempts of a step that a mind gets to see


def evolve(state: State, event: Event, at: float, seq: int) -> None:
    """The state after one more event. A late word from an older attempt changes nothing."""
    if state.timers:
        state.tick(at)  # time has passed for a replay as it had for the live run
    FOLDS[type(event)](state, event, at)
    state.seq = seq
    state.at = at


def fold(run: str, records: Iterable[ev.Record]) -> State:
    """The state that a history tells of."""
    state = State(run)
    for record in records:
        evolve(state, record.event, record.at, record.seq)
    return state


def _run_started(state: State, event: ev.RunStarted, at: float) -> None:
    state.objective, state.parent, state.policy = event.objective, event.parent, event.policy
    state.origin, state.memory = event.origin, event.memory
    state.home, state.inherited = event.home or state.run, event.inherited
    state.filed = bool(event.inherited)
    state.queued, state.copied = event.queued, event.copied
    state.created_at = at
    state.activate(at)


def _plan_accepted(state: State, event: ev.PlanAccepted, at: float) -> None:
    state.revision = event.revision
    state.fingerprints = dict(event.fingerprints)
    state.follow_up, state.mcp, state.assumed = event.plan.follow_up, event.plan.mcp, event.assumed
    state.fallback = event.fallback
    state.objective = event.plan.objective or state.objective
    state.define(event.plan.steps)


def _gate_opened(state: State, event: ev.GateOpened, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or track.phase is not PENDING:
        return
    gate = track.gating()
    gate.agreed, gate.shown = "", event
    state.refresh(track)
    state.unshown.pop(track.n, None)


def _made_under(state: State, track: Track, call: ev.StepStarted) -> None:
    """A call made under a yes that names none: now it is known which one it is to."""
    gate = track.gate
    if gate is not None and gate.agreed in (AHEAD, FIRST):
        files = state.files(track)
        digest = call.agreed or call_digest(call.tool, state.signature(track), files)
        args = call.args if call.args is not None or call.args_blob else state.template(track).value
        gate.yes = ev.Shown(call.tool, digest, args, call.args_blob, files)
        gate.agreed = digest if gate.agreed == FIRST else AHEAD


def _step_started(state: State, event: ev.StepStarted, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None or event.attempt <= track.attempt:
        return
    if track.holds is not None:  # the history is odd
        state.release(track)
    track.attempt = event.attempt
    track.call = event
    if track.heal is not None:
        track.heal.before = 0
    if track.effects is None or not track.effects.lost:
        track.inputs = state.inputs(track)
    elif not track.redo and not same_inputs(state.inputs(track), track.inputs):
        track.redo = track.automatic = True  # it is made from what the lost call was made from, which is others by now
    _made_under(state, track, event)
    track.started_at = at
    state.stage = track.step.stage or state.stage
    state.uncleared = ""
    if event.rung is not Rung.FALLBACK:
        track.calls += 1
    state.calls += 1
    if state.round:
        state.round_calls[event.step] = state.round_calls.get(event.step, 0) + 1
    state.by_tool[event.tool] = state.by_tool.get(event.tool, 0) + 1
    _happened(state, track)  # it may, from now on
    if event.verifiable or event.effect is Effect.ONCE:
        _intended(state, track, event, at)
    state.move(track, RUNNING)
    if event.reserved_cost or event.reserved_tokens or event.unpriced:
        state.reserve(track, event)


def _intended(state: State, track: Track, call: ev.StepStarted, at: float) -> None:
    """The intent of a call whose effect may have to be looked for: the first of its kind sets what others go by."""
    effects = track.effects
    if effects is None and not (call.probed or call.verifiable or call.idempotent_for):
        return  # made once its answer is lost: most never are
    name = f"{call.tool} {state.signature(track)}"
    if effects is None or (effects.signature != name and not effects.lost):
        effects = track.effects = EffectState(name, at)
        effects.before, effects.probed = call.before, call.probed or call.before is not None
    effects.rerun = False


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
        state.drafts.pop(path, None)  # what a person gave was for the content before this one
    _staged(state, track, event.files)
    if track.call.rung is Rung.FALLBACK:
        result.degraded = Degraded(Lack.FALLBACK, track.error.told if track.error else "")
    track.ended_at, track.elapsed, track.cost = at, event.elapsed, event.cost
    state.tool_seconds += event.elapsed
    _happened(state, track)
    state.settle(track, result)


def _staged(state: State, track: Track, files: dict[str, str]) -> None:
    """What an attempt wrote on its own is what its step made, from now on; whoever comes first puts it in place."""
    if track.call is not None and track.call.staged:
        for path, digest in files.items():
            state.drafts[path] = ev.FileMade(path, digest, track.id, f"{track.call.staged}/{path}")


def _happened(state: State, track: Track) -> None:
    """The latest call had its effect, or may have had it; remembered where that must not happen twice."""
    if track.call is not None and track.call.effect is Effect.ONCE:
        minded = state.chosen_by_a_mind(track)
        call, name = track.call, state.signature(track)
        state.happened.setdefault((call.tool, name), {})[track.id] = minded
        if not call.args_blob:
            made = call.args if call.args is not None else state.template(track).value
            state.once_args.setdefault(call.tool, {})[name] = made
            if minded:
                state.minds_args.setdefault(call.tool, {})[name] = made
        state.minds_acted = state.minds_acted or minded


def _not_happened(state: State, track: Track) -> None:
    if track.call is not None and track.call.effect is Effect.ONCE:
        key = (track.call.tool, state.signature(track))
        by = state.happened.get(key, {})
        by.pop(track.id, None)  # what a twin did stays done
        if not by:
            state.happened.pop(key, None)
            for args in (state.once_args, state.minds_args):
                args.get(key[0], {}).pop(key[1], None)


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
    if event.error.code == "RUN_CANCELLED" and not _doubtful(track, event):
        state.move(track, PENDING)
        return
    if track.heal is not None:
        # An earlier "not now" has nothing to say about this failure, nor has what a mind thought of another one: a
        # step that fails before its call has the attempt number of the call before.
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
        _settled(state, track)  # a person says so
    if event.called and track.call is not None:
        _came_to(state, track, track.call, event, at)
    else:
        state.move(track, Phase.HURT)


def _came_to(state: State, track: Track, call: ev.StepStarted, event: ev.StepFailed, at: float) -> None:
    """A call failed: its effect is looked for, or what follows is clear at once (X4, V8)."""
    effects = track.effects
    if call.effect is Effect.ONCE and (event.lost or effects is not None):
        effects = effects or EffectState(f"{call.tool} {state.signature(track)}", track.started_at)
        effects.lost = effects.lost or event.lost
        effects.ever_lost = effects.ever_lost or event.lost
        effects.acting = effects.acting or event.acting
    if effects is not None:
        effects.settles_at = max(event.until, at)
        effects.looked_at = at if event.looks else 0.0
        state.settle_effect(track, effects)
    if call.verifiable and not event.looks and (event.look or event.lost):
        track.question = "verify"
        _happened(state, track)
        state.move(track, Phase.DOUBT)
    else:
        _follow(state, track, follows(_case(track, call, _seen_before(event), at, lost=event.lost)))


def _seen_before(event: ev.StepFailed) -> Saw:
    """What the looks found that came before a call was told to have failed."""
    if event.error.data.get("text") == "VERIFY_PARTIAL":
        return Saw.PARTIAL
    return Saw.UNKNOWN if event.looks else Saw.NONE


def _case(track: Track, call: ev.StepStarted, saw: Saw, at: float, *, lost: bool = False, output: bool = False) -> Case:
    """What is known of the latest call, as a row of the table."""
    effects = track.effects
    before = effects is not None and effects.lost
    late = effects is not None and effects.ever_lost and saw is Saw.THERE  # what was absent has shown after all
    return Case(
        call.effect, Certainty.LOST if lost or before or late else Certainty.NOT_DONE, saw, before,
        covered=track.is_covered(at), probed=effects is not None and effects.probed, output=output,
        acting=effects is not None and effects.acting,
    )  # fmt: skip


def _follow(state: State, track: Track, what: Follows) -> None:
    """Take a step to where the outcome table says that it goes."""
    track.question = ""
    if what is Follows.DOUBT:
        _happened(state, track)
        _unsettled(state, track)
        state.move(track, Phase.DOUBT)
        return
    if what is Follows.LADDER:
        _settled(state, track)
    if track.phase is not PENDING:  # else it was looked at right before its call, which may be made
        state.move(track, Phase.HURT)


def _unsettled(state: State, track: Track) -> None:
    """The latest call may have had its effect: nothing calls its step until that is settled (E3)."""
    call = track.call
    if call is not None and call.effect is Effect.ONCE:
        effects = track.effects or EffectState(f"{call.tool} {state.signature(track)}", track.started_at)
        effects.lost = effects.ever_lost = True
        state.settle_effect(track, effects)


def _settled(state: State, track: Track) -> None:
    """No attempt of a step has had its effect: not known otherwise, looked for, or by a person's word."""
    _not_happened(state, track)
    if track.effects is not None:
        track.effects.lost = track.effects.acting = False
        state.settle_effect(track, track.effects)


def _remember(state: State, track: Track, event: ev.StepFailed) -> None:
    """Keep the failure for whoever will be asked about it; only where somebody can be."""
    failures = track.healing().failures
    error = event.error
    failures.append({
        "attempt": event.attempt, "tool": track.call.tool if track.call is not None else track.step.tool,
        "args": failed_args(state, track), "called": event.called,
        "error": {"code": error.code, "category": str(error.category), "message": error.message[:1000]},
    })  # fmt: skip
    del failures[:-MAX_FAILURES]


def _doubtful(track: Track, event: ev.StepFailed) -> bool:
    """Whether the effect of a cancelled call may have happened, and repeating the call could repeat it."""
    return event.called and event.lost and track.call is not None and track.call.effect is Effect.ONCE


def _step_verified(state: State, event: ev.StepVerified, at: float) -> None:
    track = state.current(event.step, event.attempt, Phase.DOUBT, PENDING)
    if track is None or track.call is None or (track.phase is PENDING and track.effects is None):
        return
    call, saw, repeats = track.call, Saw(event.effect), track.phase is PENDING
    unsure = False
    if track.effects is not None:
        track.effects.looked_at, track.effects.cleared = at, repeats and saw is Saw.ABSENT
        unsure = repeats and saw is Saw.UNKNOWN and track.effects.ever_lost  # it was absent, and may have shown since
    what = follows(_case(track, call, saw, at, lost=unsure, output=not event.hole))
    if not event.looks and saw is Saw.THERE:
        what = Follows.SUCCEED  # so said versions that looked once
    if what is not Follows.SUCCEED:
        _follow(state, track, what)
        return
    result = Result(event.output, event.digest, event.size, event.blob, event.attempt)
    result.effect, result.hole, result.by = call.effect, event.hole, "verify"
    result.files = event.files
    state.settle(track, result)


def _step_skipped(state: State, event: ev.StepSkipped, at: float) -> None:
    track = state.tracks.get(event.step)
    if track is None:
        return
    if event.code in ("SKIP_OPTIONAL", "SKIP_USER"):
        if track.phase is RUNNING:  # its call is cancelled, and what that came to is not heard any more
            _unsettled(state, track)
        track.skip, track.ended_at = event, at
        track.again = track.root = False
        track.result = None
        state.move(track, SKIPPED)
    else:  # a consequence: derived, not stored; only that it was said is noted
        track.announced = event.code
        state.announce.pop(track.n, None)
        if event.code == "SKIP_CONDITION" and track.again:  # what it made when it was needed is not for this time
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
        heal.waited += max(event.delay, LEAST_WAIT)
        heal.not_now = None
        heal.crashes += track.error is not None and track.error.code == "ANSWER_LOST"
        if track.call is not None and track.call.rung is not Rung.FALLBACK:
            track.calls -= 1  # a call that was told "not now", and waits for it, counts for nothing
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
    heal.not_now = None
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
        state.row[track.id] = None
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
    if event.by != "rules" and event.rung in (Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR):
        track.disagree()  # whoever agreed, agreed to another call
        track.wanted = False
        heal.minded = True
        state.chosen((track.id,) if event.tool else ())
    if track.agreed in (AHEAD, FIRST) and event.rung in CHANGED:
        track.disagree()  # a yes to a call that was not known yet is one to the plan's own
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
    state.redirect(event.course)


def _asked(state: State, event: ev.Asked, at: float) -> None:
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
        state.replans += 1
        state.replan_wanted = state.breaker = False
        for track in list(state.held.values()):
            if track.question == "replan":
                track.question = ""
                state.move(track, Phase.HURT)


def _plan_rejected(state: State, event: ev.PlanRejected, at: float) -> None:
    if event.question:
        _declined(state, ev.Declined(event.question, event.step, event.reason), at)


def _artifact_lost(state: State, event: ev.ArtifactLost, at: float) -> None:
    state.redirect(event.course)


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
    state.reopened = not event.automatic
    state.uncleared = event.backup or state.uncleared
    if event.operation == "clean":
        state.drafts.clear()  # what could be put in place was, and is in the backup; nothing of it is wanted any more
    state.round_calls = {}
    state.round_chain = event.chain
    state.activate(at)
    _ask_anew(state, event.course)
    _planned_anew(state, event.course)
    state.redirect(event.course, new_round=True)
    # A run whose process died may have steps outside the retry set that wait for a new plan; they still do.
    state.replan_wanted = any(held.question == "replan" for held in state.held.values())
    _rewritten(state, event.course)
    for step_id in event.stale:
        if step_id in state.tracks:
            state.tracks[step_id].stale = "definition changed"
    _resettle(state)


def _resettle(state: State) -> None:
    """Failed steps outside the retry set: whether another automatic round may come has changed."""
    for track in state.tracks.values():
        if track.phase is Phase.FAILED:
            state.refresh(track)


def _retry_done(state: State, event: ev.RetryDone, at: float) -> None:
    state.round_done = True


def _replanned(state: State, event: ev.Replanned, at: float) -> None:
    state.replans += 1
    state.replan_wanted = state.breaker = False
    state.row.clear()
    for track in list(state.held.values()):
        if track.question == "replan":
            track.question = ""
            state.move(track, Phase.HURT)
    changed = [step.id for step in event.course.steps if _is_changed(state, step)]
    state.chosen([*changed, *event.course.dropped])
    state.redirect(event.course, new_round=True)
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
        # The time between the last word of the dead process and now was not spent running.
        state.active += max(0.0, state.at - state.active_since)
        state.active_since = None
    state.waiting = state.queued = False
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


def _acted(state: State, event: ev.Acted, at: float) -> None:
    state.waiting = False
    state.grant(event.wish, event.number)
    state.acted_at = state.seq + 1
    state.activate(at)
    if event.action == "pause":
        state.paused = True
    track = state.tracks.get(event.step)
    _edited(state, event)
    # First: what a step was to its dependents tells whether they may have run.
    if event.course != Course():
        state.judged = None
        _planned_anew(state, event.course)
        if event.action == "retry":
            _ask_anew(state, event.course)
        state.redirect(event.course, new_round=event.action in ("retry", "resolve", "repair", "confirm"))
        if event.action in ("repair", "confirm"):
            _rewritten(state, event.course)
    if event.action == "resolve" and track is not None:
        _resolved(state, track, event.outcome)
    if event.action == "confirm" and track is not None:
        _agreed(state, track, event)
    elif event.action == "resolve" and event.outcome == "succeeded" and track is not None:
        result = Result(event.output, event.digest, event.size, event.blob, track.attempt)
        result.by, result.files = event.by or "person", {file.path: file.digest for file in event.files}
        result.edited = tuple(result.files)
        for file in event.files:
            state.drafts.pop(file.path, None)  # what lies in its place counts, or else what an attempt left
            if file.draft:
                state.drafts[file.path] = file
        # What a person said is not to be earned anew by anybody else, unless a call of it says that it may.
        result.effect = track.call.effect if track.call is not None else track.step.effect or Effect.ONCE
        _happened(state, track)
        track.ended_at = at
        track.inputs = state.inputs(track)
        state.settle(track, result)


def _resolved(state: State, track: Track, outcome: str) -> None:
    """A person answers a doubt: nothing happened, or the same call is to be made again."""
    if outcome == "failed":
        _settled(state, track)
    elif outcome == "rerun" and track.effects is not None and track.call is not None:
        track.effects.rerun = True
        heal = track.healing()
        heal.fallback = track.call.rung is Rung.FALLBACK
        heal.tool = track.call.tool if track.call.tool != track.step.tool else None
        state.refresh(track)


def _agreed(state: State, track: Track, event: ev.Acted) -> None:
    """A person said yes: to the call that was shown, to an edited one, or to one that is not known yet (X10)."""
    gate = track.gating()
    shown = gate.shown
    gate.agreed = event.digest or (AHEAD if event.ahead else FIRST)
    gate.yes = event.call or ev.Shown(track.step.tool)
    if event.call is None and shown is not None and event.digest == shown.digest:
        gate.yes = ev.Shown(shown.tool, shown.digest, shown.args, shown.args_blob, shown.files)
    state.refresh(track)


def _ask_anew(state: State, course: Course) -> None:
    """Steps that start over, or are done again by force: nothing that was agreed to before holds (X10)."""
    for step_id in course.fresh:
        if (track := state.tracks.get(step_id)) is not None:
            track.gate = None


def _edited(state: State, event: ev.Acted) -> None:
    """Files that a person gave another content: what their steps made is something else now."""
    for file in event.files:
        track = state.tracks.get(file.step)
        if track is not None and track.result is not None:
            track.result.files = {**track.result.files, file.path: file.digest}
            track.result.edited = (*(path for path in track.result.edited if path != file.path), file.path)
            for target, _ in track.out:
                state.unshow(target)
            if file.draft:
                state.drafts[file.path] = file


def _planned_anew(state: State, course: Course) -> None:
    """Steps that a person wrote are the plan, whatever a mind had made of them."""
    for step in course.steps:
        state.planned.pop(step.id, None)


def _rewritten(state: State, course: Course) -> None:
    """Steps that a person wrote anew: they are nobody else's choice, and an old word for their gate is not for them."""
    for step in course.steps:
        track = state.tracks[step.id]  # the course has just defined it
        track.minded = False
        track.disagree()
        state.refresh(track)


def _cancelled(state: State, event: ev.Cancelled, at: float) -> None:
    state.stopped = "RUN_CANCELLED"
    state.moved = (event.to, event.after) if event.to else state.moved
    state.grant(event.wish, event.number)
    state.waiting = state.replan_wanted = state.breaker = False
    state.activate(at)


def _stopped(state: State, event: ev.Stopped, at: float) -> None:
    state.stopped, state.stop_reason = event.code, event.reason
    state.replan_wanted = state.breaker = False


def _done(state: State, event: ev.Done, at: float) -> None:
    state.rest = event
    state.rested_at = state.seq + 1
    state.waiting = False
    state.deactivate(at)


def _ignored(state: State, event: Event, at: float) -> None:
    """An announcement: nothing of it is read back."""


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
    ev.Asked: _asked,
    ev.Consulted: _consulted,
    ev.Declined: _declined,
    ev.ArtifactCreated: _ignored,
    ev.ArtifactLost: _artifact_lost,
    ev.RetryBegin: _retry_begin,
    ev.RetryDone: _retry_done,
    ev.Replanned: _replanned,
    ev.Evaluation: _evaluation,
    ev.Waiting: _waiting,
    ev.Resumed: _resumed,
    ev.Acted: _acted,
    ev.Cancelled: _cancelled,
    ev.Stopped: _stopped,
    ev.Done: _done,
    ev.Notified: _ignored,
}
