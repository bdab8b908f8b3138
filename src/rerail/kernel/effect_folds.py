"""The fold of call outcomes: the state of a step's effect (contract X4, V8, E3)."""

from __future__ import annotations

from rerail.kernel import events as ev
from rerail.kernel.outcome import Case, Certainty, Follows, Saw, follows
from rerail.kernel.state import State
from rerail.kernel.step_state import PENDING, EffectState, Phase, Track
from rerail.plan.step import Effect


def _intent_of(state: State, track: Track, call: ev.StepStarted, at: float) -> EffectState:
    """Return the record of a call with an effect to look for, as it is at its first intent."""
    own = track.heal is None or (track.heal.args is None and not track.heal.fallback)
    return EffectState(f"{call.tool} {state.signature(track, call)}", at, call, own=own)


def intended(state: State, track: Track, call: ev.StepStarted, at: float) -> None:
    """Record the first intent of a call that may need a look at its effect: later looks are compared with it."""
    effects = track.effects
    if effects is None and not (call.probed or call.verifiable or call.idempotent_for):
        return  # made only once its answer is lost: most never need it
    name = f"{call.tool} {state.signature(track)}"
    if effects is None or (effects.signature != name and not effects.lost):
        effects = next((one for one in track.earlier if one.signature == name), None)
        if effects is None:
            effects = _intent_of(state, track, call, at)
            effects.before, effects.probed = call.before, call.probed or call.before is not None
        state.settle_effect(track, effects)
    effects.rerun, effects.call = False, call


def _call(track: Track) -> ev.StepStarted | None:
    """Return the call under way; else the latest one with an effect to know of: calls that only read came after it."""
    return track.call if track.phase is Phase.RUNNING or track.effects is None else track.effects.call


def mark_done(state: State, track: Track) -> None:
    """The call had its effect, or may have had it; remembered if it must not be repeated."""
    call = _call(track)
    if call is not None and call.effect is Effect.ONCE:
        large = bool(call.args_blob)
        args = None if large else call.args if call.args is not None else state.template(track).value
        minded = state.chosen_by_a_mind(track)
        state.once.add(call.tool, state.signature(track, call), track.id, args, large=large, minded=minded)


def unmark_done(state: State, track: Track) -> None:
    call = _call(track)
    if call is not None and call.effect is Effect.ONCE:
        state.once.remove(call.tool, state.signature(track, call), track.id)


def call_failed(state: State, track: Track, call: ev.StepStarted, event: ev.StepFailed, at: float) -> None:
    """A call failed: look for its effect, or apply the consequence at once (X4, V8)."""
    effects = track.effects
    if call.effect is Effect.ONCE and (event.lost or effects is not None):
        effects = effects or _intent_of(state, track, call, track.started_at)
        effects.lost = effects.lost or event.lost
        effects.ever_lost = effects.ever_lost or event.lost
        effects.acting = effects.acting or event.acting
    if effects is not None:
        effects.settles_at = max(event.until, at)
        effects.looked_at = at if event.looks else 0.0
        state.settle_effect(track, effects)
    if call.verifiable and not event.looks and (event.look or event.lost):
        track.question = "verify"
        mark_done(state, track)
        state.move(track, Phase.DOUBT)
    else:
        follow(state, track, follows(case_of(track, call, _seen_before(event), at, lost=event.lost)))


def _seen_before(event: ev.StepFailed) -> Saw:
    """Record the looks made before a call was reported as failed."""
    if event.error.data.get("text") == "VERIFY_PARTIAL":
        return Saw.PARTIAL
    return Saw.UNKNOWN if event.looks else Saw.NONE


def case_of(
    track: Track, call: ev.StepStarted, saw: Saw, at: float, *, lost: bool = False, output: bool = False
) -> Case:
    """Return what is known of the latest call, as a row of the table."""
    effects = track.effects
    before = effects is not None and effects.lost
    late = effects is not None and effects.ever_lost and saw is Saw.THERE  # an absent effect has shown after all
    return Case(
        call.effect, Certainty.LOST if lost or before or late else Certainty.NOT_DONE, saw, before,
        covered=track.is_covered(at), probed=effects is not None and effects.probed, output=output,
        acting=effects is not None and effects.acting,
    )  # fmt: skip


def follow(state: State, track: Track, what: Follows) -> None:
    """Move a step to the phase that the outcome table gives."""
    track.question = ""
    if what is Follows.DOUBT:
        mark_done(state, track)
        mark_lost(state, track)
        state.move(track, Phase.DOUBT)
        return
    if what is Follows.LADDER:
        mark_absent(state, track)
    if track.phase is not PENDING:  # else the look came right before its call, which may now be made
        state.move(track, Phase.HURT)


def mark_lost(state: State, track: Track) -> None:
    """The call may have had its effect: its step is not called until that is settled (E3)."""
    call = _call(track)
    if call is not None and call.effect is Effect.ONCE:
        effects = track.effects or _intent_of(state, track, call, track.started_at)
        effects.lost = effects.ever_lost = True
        state.settle_effect(track, effects)


def mark_absent(state: State, track: Track) -> None:
    """No attempt of a step had its effect: by the looks, or by a user's word."""
    unmark_done(state, track)
    if track.effects is not None:
        track.effects.lost = track.effects.acting = False
        state.settle_effect(track, track.effects)
