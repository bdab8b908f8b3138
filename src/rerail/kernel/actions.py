"""User actions, turned into events or into a refusal that names the next step (contract X7, R7, T4, T5).

Rules of this file:
- A command handler reads the state and returns events; it changes nothing itself.
- A refusal has a code and the next thing to type. Every interface has the same rules, because they live here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rerail.i18n import one_by_one, tell
from rerail.kernel import events as ev
from rerail.kernel.decide import reasons_of, retry_chain
from rerail.kernel.events import Course, Event, said_no
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, RunStatus, Standing, Status, Track, call_digest, same_inputs, signature
from rerail.kernel.verdict import ENDED_WELL, doubts_of, status_of
from rerail.plan.model import args_faults, check_change, undeclared, undeclared_faults
from rerail.plan.reader import read_steps
from rerail.plan.references import literal
from rerail.plan.step import Fault, Step, definition, full_needs
from rerail.plan.tool_spec import Tools
from rerail.values.json_values import Packed, call_shown
from rerail.values.names import nearest


class Refusal(Exception):
    """Why a command is refused, and which one would work."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


class Faulty(Exception):
    """The change would make the plan invalid; the old plan stays."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(one_by_one(fault.told for fault in faults))
        self.faults = tuple(faults)


def track_named(state: State, step: str) -> Track:
    track = state.tracks.get(step)
    if track is None:
        near = nearest(step, state.tracks)
        hint = tell("hint.run.did_you_mean", near=near) if near else tell("hint.run.see_run", run=state.run)
        raise Refusal("STEP_UNKNOWN", tell("refuse.run.step_unknown", run=state.run, step=step), hint)
    return track


def goes_on_here(state: State) -> None:
    """Refuse to go on with a run that was moved to another store, or is a copy."""
    if state.copied:
        told = tell("refuse.run.copied", run=state.run, store=state.copied)
        raise Refusal("RUN_COPIED", told, tell("hint.run.copied", run=state.run))
    if state.moved is not None:
        hint = tell("hint.run.moved", run=state.run, to=state.moved[0])
        raise Refusal("RUN_MOVED", tell("refuse.run.moved", run=state.run, to=state.moved[0]), hint)


def not_at_rest(state: State) -> None:
    """Refuse what only a run under way can do, with the command that fits."""
    if state.rest is not None:
        told = tell("refuse.run.run_at_rest", run=state.run, status=tell(f"status.{state.rest.status}"))
        raise Refusal("RUN_AT_REST", told, at_rest_hint(state))


def at_rest_hint(state: State) -> str:
    """Return the command that goes on with a run at rest: the answer to a doubt, or a retry, which looks first."""
    assert state.rest is not None
    doubts = [name for name in doubts_of(state) if state.tracks[name].question != "verify"]
    if doubts:
        return tell("hint.run.run_in_doubt", run=state.run, step=doubts[0])
    completed = state.rest.status == RunStatus.COMPLETED
    return tell("hint.run.run_completed" if completed else "hint.run.run_at_rest", run=state.run)


def refuse_cleaning(state: State) -> None:
    """Refuse to change the plan, or to do more of it, while the run cleans up."""
    if state.cleaning is not None:
        raise Refusal("RUN_LIVE", tell("refuse.run.cleaning", run=state.run), tell("hint.run.cleaning", run=state.run))


# -- Pause, resume, cancel ----------------------------------------------------------------------------------------


def pause(state: State, by: str) -> list[Event]:
    """Start no more steps until the run is resumed."""
    not_at_rest(state)
    if state.stopped:
        hint = tell("hint.run.stopping")
        raise Refusal("RUN_LIVE", tell("refuse.run.stopping", run=state.run, stopped=state.stopped), hint)
    if state.paused:
        why = tell("refuse.run.run_paused", run=state.run)
        raise Refusal("RUN_PAUSED", why, tell("hint.run.run_paused", run=state.run))
    return [ev.Acted("pause", by)]


def cancel(state: State, by: str, reason: str = "") -> list[Event]:
    """End the run: calls under way are cancelled, and no step starts but those of `finally`."""
    not_at_rest(state)
    over = state.stopped == "RUN_CANCELLED" and state.cleaning is None  # another cancel ends the clean-up
    return [] if over else [ev.Cancelled(by, reason)]


def resume(state: State, by: str) -> list[Event]:
    """Go on with a paused run."""
    not_at_rest(state)
    if not state.paused:
        raise Refusal("RUN_LIVE", tell("refuse.run.run_live", run=state.run), tell("hint.run.run_live", run=state.run))
    return [ev.Resumed(by, reason="paused", paused=True)]


# -- One step -----------------------------------------------------------------------------------------------------


def skip(state: State, step: str, by: str, reason: str = "") -> list[Event]:
    """Skip a step: met for its dependents, with a hole for an output."""
    track = track_named(state, step)
    status, _ = status_of(state, track)
    if status in (Status.SUCCEEDED, Status.DEGRADED) or track.phase is Phase.SKIPPED:
        raise Refusal("STEP_ENDED", tell("refuse.run.step_ended", step=step, status=tell(f"status.{status}")))
    message = reason or tell("skip.SKIP_USER", by=by or "a person")
    # Steps that ran although this one failed check their inputs again (R3); no other step has run yet.
    over = track.standing is not Standing.OPEN
    course = Course(below=(step,)) if over else Course()
    acted = ev.Acted("skip", by, step, reason, course=course)
    events: list[Event] = [acted, ev.StepSkipped(step, "SKIP_USER", message, by)]
    return events + _reopened(state, [step], by, "skip")


@dataclass(frozen=True, slots=True)
class Edits:
    """A user's edits of a call before approval (X10)."""

    args: Mapping[str, Any] = field(default_factory=dict)  # the changed ones; the others stay as shown
    files: Sequence[ev.FileMade] = ()
    shown: Mapping[str, Any] | None = None  # the arguments as shown, if they are too large for the event


NO_EDITS = Edits()
NO_TOOLS: Tools = {}


def confirm(
    state: State,
    step: str | None,
    by: str,
    *,
    digest: str = "",
    ahead: bool = False,
    edits: Edits = NO_EDITS,
    tools: Tools = NO_TOOLS,
) -> list[Event]:
    """Approve the call at a gate, as it is or edited; with ``ahead``, the plan's own call before it is known (X10).

    ``digest`` identifies the call that the user saw: no other call is approved.
    """
    track = gate(state, step)
    if ahead:
        return [_ahead(state, track, by, edits)]
    shown = shown_call(state, track)
    if digest and digest != shown.digest:
        raise _gate_changed(state, shown)
    args, blob, course = shown.args, shown.args_blob, Course()
    if edits.args:
        whole = shown.args if shown.args is not None else edits.shown
        if signature(whole) != signature(shown.args, blob):
            raise _gate_changed(state, shown)  # the edits belong to another call
        args = {**(whole or {}), **edits.args}
        if signature(args) == signature(shown.args, blob):
            args = shown.args
        else:
            blob = ""
            course = Course((track.id,), (_revised(state, track, shown, args, edits.args, tools),), automatic=False)
    if course == Course() and not edits.files:
        return [ev.Acted("confirm", by, track.id, digest=shown.digest)]
    files = {**shown.files, **{file.path: file.digest for file in edits.files}}
    call = ev.Shown(shown.tool, call_digest(shown.tool, signature(args, blob), files), args, blob, files)
    return [ev.Acted("confirm", by, track.id, digest=call.digest, course=course, files=tuple(edits.files), call=call)]


def _gate_changed(state: State, shown: ev.GateOpened) -> Refusal:
    hint = tell("hint.run.gate_changed", run=state.run, step=shown.step)
    call = call_shown(shown.tool, shown.args)
    return Refusal("GATE_CHANGED", tell("refuse.run.gate_changed", step=shown.step, call=call), hint)


def _ahead(state: State, track: Track, by: str, edits: Edits) -> Event:
    """Approve the plan's own call before it is known; `Refusal` with edits, or if the call is another one by now."""
    if edits.args or edits.files:
        raise Refusal("USAGE", tell("refuse.run.ahead_edits"), tell("hint.run.ahead_edits", run=state.run))
    if not state.is_own_call(track):
        hint = tell("hint.run.ahead_changed", run=state.run, step=track.id)
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.ahead_changed", step=track.id), hint)
    return ev.Acted("confirm", by, track.id, ahead=True)


def _revised(
    state: State, track: Track, shown: ev.GateOpened, args: dict[str, Any], given: Mapping[str, Any], tools: Tools
) -> Step:
    """Return the step with the user's edits; `Faulty` lists its faults. The needs stay, so it reads the same files.

    In the plan's own call, arguments that stay keep their references. In a call that was changed on the way, all
    arguments are written as shown.
    """
    if shown.rung is Rung.FALLBACK:
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.gate_fallback", step=track.id, tool=shown.tool))
    written = {**track.step.args, **literal(given)} if state.is_own_call(track) else literal(args)
    needs = full_needs(track.step, state.names)
    new = msgspec.structs.replace(track.step, tool=shown.tool, args=written, needs=needs)
    spec = tools.get(shown.tool)
    faults = args_faults(new, args, spec) if spec is not None else []
    olds = [other.step for other in state.tracks.values()]
    faults = faults or check_change(olds, [new if old.id == track.id else old for old in olds], tools)
    if faults:
        raise Faulty(faults)
    return new


def refuse(state: State, step: str | None, by: str) -> list[Event]:
    """Refuse a gated step: it fails for good in this round."""
    track = gate(state, step)
    if track.n not in state.gates:
        # A step refused now would end before its needs, perhaps with a fallback that stands for nothing.
        hint = tell("hint.run.gate_not_reached", run=state.run, step=track.id)
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.gate_not_reached", step=track.id), hint)
    error = said_no("CONFIRM_REFUSED", by)
    return [ev.Acted("refuse", by, track.id), ev.StepFailed(track.id, track.attempt, error, called=False)]


def shown_call(state: State, track: Track) -> ev.GateOpened:
    """Return the call that a gate shows; `Refusal` if the gate is not reached, with the way to approve ahead."""
    shown = track.gate.shown if track.gate is not None else None
    if shown is None or track.n not in state.gates or track.n in state.unshown:
        hint = tell("hint.run.confirm_ahead", run=state.run, step=track.id)
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.gate_not_reached", step=track.id), hint)
    return shown


def gate(state: State, step: str | None) -> Track:
    """Return the named gated step, or by default the one that waits."""
    not_at_rest(state)
    gates = [track.id for track in state.gates.values()]
    if step is None:
        if len(gates) != 1:
            raise Refusal("STEP_NOT_WAITING", tell("refuse.run.which_gate", waiting=", ".join(gates) or "none"))
        step = gates[0]
    waiting = tell("hint.run.gates", waiting=", ".join(gates)) if gates else ""
    if gates and step not in state.tracks:  # a step of a similar name may have no gate
        near = nearest(step, gates)
        hint = tell("hint.run.did_you_mean", near=near) if near else waiting
        raise Refusal("STEP_UNKNOWN", tell("refuse.run.step_unknown", run=state.run, step=step), hint)
    track = track_named(state, step)
    pending = track.phase is Phase.PENDING and bool(track.step.confirm) and not track.agreed
    if not pending:
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.no_gate", step=step), waiting)
    return track


def resolve_succeeded(
    state: State, step: str, by: str, output: Any, packed: Packed, *, blob: bool, files: Sequence[ev.FileMade] = ()
) -> list[Event]:
    """Declare a step succeeded by hand, with a value and its files."""
    track = track_named(state, step)
    status, _ = status_of(state, track)
    lost = track.phase is Phase.SUCCEEDED and track.result is not None and track.result.hole
    lost = lost or (step in state.unsettled and track.phase is Phase.SUCCEEDED)  # a value stands in for the answer
    if track.phase in (Phase.SUCCEEDED, Phase.RUNNING) and not lost and not _correctable(state, track):
        hint = tell("hint.run.step_over", run=state.run, step=step) if track.phase is Phase.SUCCEEDED else ""
        told = tell("refuse.run.step_is", step=step, status=tell(f"status.{status}"))
        code = "STEP_ENDED" if track.phase is Phase.SUCCEEDED else "STEP_NOT_WAITING"
        raise Refusal(code, told, hint)  # a lost output may be supplied
    value = None if blob else output
    acted = ev.Acted(
        "resolve", by, step, outcome="succeeded", output=value, digest=packed.digest, size=len(packed.data), blob=blob,
        files=tuple(files),
        course=Course(below=(step,)),  # automatic: finished `once` steps downstream are not repeated without a request
    )  # fmt: skip
    return [acted, *_reopened(state, [step], by, "resolve")]


def resolve_failed(state: State, step: str, by: str) -> list[Event]:
    """Declare that the effect in doubt did not happen and the step failed; a step that ended keeps its status."""
    track = _in_doubt(state, step)
    failed = ev.StepFailed(step, track.attempt, said_no("RESOLVED_FAILED", by), called=False)
    if track.result is not None and track.result.is_by_hand:
        acted = ev.Acted("resolve", by, step, outcome="failed", course=Course(below=(step,)))
        return [*_reopened(state, [step], by, "resolve"), acted, failed]
    acted = ev.Acted("resolve", by, step, outcome="failed")
    if track.phase in (Phase.SUCCEEDED, Phase.SKIPPED, Phase.FAILED):
        return [*_reopened(state, [], by, "resolve"), acted]
    return [acted, failed, *_reopened(state, [], by, "resolve")]


def resolve_rerun(state: State, step: str, by: str) -> list[Event]:
    """Repeat the call in doubt, under its own key and without a look: the user takes the responsibility."""
    _in_doubt(state, step)
    course = Course((step,), automatic=False)
    begin = _reopened(state, [step], by, "resolve", calls=True)
    return [*begin, ev.Acted("resolve", by, step, outcome="rerun", course=course)]


def _in_doubt(state: State, step: str) -> Track:
    track = track_named(state, step)
    if not is_doubtful(state, track) and not _correctable(state, track):
        status, _ = status_of(state, track)
        over = track.phase in (Phase.SUCCEEDED, Phase.SKIPPED, Phase.FAILED)
        hint = tell("hint.run.not_in_doubt" if over else "hint.run.see_run", run=state.run, step=step)
        told = tell("refuse.run.not_in_doubt", step=step, status=tell(f"status.{status}"))
        raise Refusal("STEP_NOT_WAITING", told, hint)
    return track


def _correctable(state: State, track: Track) -> bool:
    """True if a user gave the result; `Refusal` if a dependent has started with it."""
    if track.phase is not Phase.SUCCEEDED or track.result is None or not track.result.is_by_hand:
        return False
    # By its inputs too, since a clock may be set back.
    used = [
        target.id
        for target, _ in track.out
        if target.call is not None
        and (target.started_at >= track.ended_at or same_inputs(state.inputs(target), target.inputs))
    ]
    if used:
        told = tell("refuse.run.value_used", step=track.id, used=", ".join(used[:3]))
        raise Refusal("STEP_ENDED", told, tell("hint.run.step_over", run=state.run, step=track.id))
    return True


def same_attempt(state: State, step: str, seen: int | None) -> None:
    """Refuse an answer about another attempt than the latest one: its sender has not seen that one."""
    track = track_named(state, step)
    if seen is not None and seen != track.attempt:
        status = tell(f"status.{status_of(state, track)[0]}")
        told = tell("refuse.run.other_attempt", step=step, seen=seen, attempt=track.attempt, status=status)
        hint = tell("hint.run.other_attempt", run=state.run, step=step, attempt=track.attempt)
        raise Refusal("STEP_NOT_WAITING", told, hint)


def is_doubtful(state: State, track: Track) -> bool:
    """True if only a user's answer, or a look, allows another call of the step (E3)."""
    return track.phase is Phase.DOUBT or (track.id in state.unsettled and track.phase is not Phase.RUNNING)


def _reopened(
    state: State, steps: list[str], by: str, operation: str, *, calls: bool = False, new: Sequence[str] = ()
) -> list[Event]:
    """Open a round for an action on a run at rest, so that its consequences happen, and those of ``new`` steps.

    A stopped run stays stopped, unless the action asks for a call.
    """
    if state.rest is None:
        return []
    chain = (*(step_id for step_id in retry_chain(state, steps) if step_id not in steps), *new)
    begin = ev.RetryBegin(
        state.round + 1, by, (), chain, len(chain), automatic=False, operation=operation,
        previous_status=state.rest.status, stopped="" if calls else state.stopped,
    )  # fmt: skip
    return [begin]


# -- Adding steps -------------------------------------------------------------------------------------------------


def add(state: State, given: Sequence[Any], tools: Tools, by: str) -> list[Event]:
    """Add steps to a run, at rest in a round of their own; a faulty change is refused and the old plan stays (P5)."""
    refuse_cleaning(state)
    steps, faults = additions(state, given, tools)
    if faults or not steps:
        raise Faulty(faults or [Fault("NO_STEPS", tell("refuse.run.no_steps"))])
    acted = ev.Acted("add", by, course=Course(steps=tuple(steps), automatic=False))
    return [acted, *_reopened(state, [], by, "add", calls=True, new=[step.id for step in steps])]


def additions(
    state: State, given: Sequence[Any], tools: Tools, *, again: bool = False
) -> tuple[list[Step], list[Fault]]:
    """Return steps given as plain data, and their faults as additions to the plan.

    ``again``: steps that are in the plan, or among these, just like that are left out: a call may add them twice.
    """
    faults: list[Fault] = []
    steps = read_steps(list(given), faults, known=list(state.tracks))
    if again:
        known = {step.id: state.tracks[step.id].step for step in steps if step.id in state.tracks}
        steps = [step for step in steps if definition(known.setdefault(step.id, step)) != definition(step)
                 or known[step.id] is step]  # fmt: skip
    if state.cleaning is not None and steps:  # asked by a step of `finally`
        faults.append(Fault("BAD_FINALLY", tell("refuse.run.cleaning", run=state.run)))
    return steps, [*faults, *new_faults(state, steps, tools)]


def repair(state: State, step: str, changes: Mapping[str, Any], tools: Tools, by: str) -> list[Event]:
    """Repair a step that did not succeed: the changes, merged over its definition (H7).

    The step and its dependents are redone, at rest in a new round. Arguments are given one by one; the others stay,
    unless `remove` names them. With another tool, `args` are all of its arguments.
    """
    track = track_named(state, step)
    status, _ = status_of(state, track)
    if status in ENDED_WELL or track.phase is Phase.RUNNING:
        raise Refusal("STEP_ENDED", tell("refuse.run.step_is", step=step, status=tell(f"status.{status}")))
    if is_doubtful(state, track):
        refuse_doubt(state, step)
    refuse_cleaning(state)
    new = _repaired(state, track, changes, tools)
    course = Course((step,), (new,), automatic=False)
    if state.rest is None:
        return [ev.Acted("repair", by, step, course=course)]
    chain = retry_chain(state, [step])
    return [
        ev.Acted("repair", by, step),
        ev.RetryBegin(
            state.round + 1, by, (step,), chain, len(chain), reasons_of(state, [step]), automatic=False, course=course,
            operation="repair", previous_status=state.rest.status,
        ),
    ]  # fmt: skip


def _repaired(state: State, track: Track, changes: Mapping[str, Any], tools: Tools) -> Step:
    """Return the step with its changes; `Faulty` lists everything wrong with it, and the old one stays."""
    faults: list[Fault] = []
    merged = {name: value for name, value in changes.items() if name != "remove"}
    args = _repaired_args(track, changes, faults)
    if args is not None:
        merged["args"] = args
    known = [other for other in state.tracks if other != track.id]
    read = read_steps([{**msgspec.to_builtins(track.step), **merged, "id": track.id}], faults, known=known)
    new = read[0] if read and not faults else track.step
    if new == track.step and not faults:
        faults.append(Fault("BAD_VALUE", tell("refuse.run.repair_unchanged"), track.id))
    olds = [other.step for other in state.tracks.values()]
    faults += check_change(olds, [new if old.id == track.id else old for old in olds], tools, state.finals)
    if faults:
        raise Faulty(faults)
    return new


def _repaired_args(track: Track, changes: Mapping[str, Any], faults: list[Fault]) -> Any:
    """Return the arguments after a change: the given ones merged over the old; None if the change has none."""
    given, remove = changes.get("args"), changes.get("remove") or ()
    if given is not None and not isinstance(given, Mapping):
        return given  # the plan reader reports the wrong type
    another = changes.get("tool", track.step.tool) != track.step.tool  # another tool has its own arguments
    found = dict(track.step.args if given is None or not another else {})
    for name in [remove] if isinstance(remove, str) else remove:
        if name in (given or {}):
            faults.append(Fault("BAD_VALUE", tell("refuse.run.repair_both", name=name), track.id))
        elif name not in found:
            told = tell("refuse.run.repair_no_arg", name=name, names=", ".join(found) or "-")
            faults.append(Fault("BAD_VALUE", told, track.id))
        found.pop(name, None)
    return {**found, **(given or {})} if given is not None or remove else None


def new_faults(state: State, steps: Sequence[Step], tools: Tools) -> list[Fault]:
    """Return the faults of these steps as additions to the current plan."""
    olds = [track.step for track in state.tracks.values()]
    faults = check_change(olds, [*olds, *steps], tools, state.finals)
    if not state.policy.require_effect:
        return faults
    said = {fault.step for fault in faults if fault.code == "EFFECT_UNDECLARED"}
    return faults + [
        fault for step in steps if step.id not in said for fault in undeclared_faults(step, undeclared(step, tools))
    ]


def refuse_doubt(state: State, step: str | None = None) -> None:
    """Refuse: a user has to settle a doubt first."""
    step = step or next(iter((*state.doubts.values(), *state.unsettled.values()))).id
    # A possible look comes first: the process that goes on with the run will make it (E3).
    looks = state.tracks[step].question == "verify" and state.rest is None
    key = "hint.run.look_first" if looks else "hint.run.run_in_doubt"
    raise Refusal("RUN_IN_DOUBT", tell("refuse.run.run_in_doubt", step=step), tell(key, run=state.run, step=step))
