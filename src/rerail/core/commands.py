"""A person's wish, turned into events or into a refusal that says what to do instead (SPEC X7, R7, T4, T5).

Rules of this file:
- A command reads the state and returns events; it changes nothing itself.
- A refusal has a code and the next thing to type. The same rules hold for every interface, because they live here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.codes import Category
from rerail.core.decide import reasons_of, retry_chain
from rerail.core.dialects import read_steps
from rerail.core.events import Course, Error, Event
from rerail.core.lines import call_said
from rerail.core.nearest import nearest
from rerail.core.pipeline import kept_files, resume_stage
from rerail.core.plan import Effect, Fault, Step, args_faults, check_change, full_needs
from rerail.core.policy import Policy, Rung
from rerail.core.refs import literal
from rerail.core.state import State, unsatisfied_above
from rerail.core.tools import Tools
from rerail.core.track import Phase, RunStatus, Standing, Status, Track, call_digest, signature
from rerail.core.values import Packed
from rerail.core.verdict import ENDED_WELL, run_status, stale_of, status_of, waiting_on
from rerail.i18n import about, one_by_one, tell


class Refusal(Exception):
    """Why a wish is not granted, and what would be."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


class Faulty(Exception):
    """The change would make the plan invalid; the old plan stays."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(one_by_one(fault.told for fault in faults))
        self.faults = tuple(faults)


def _track(state: State, step: str) -> Track:
    track = state.tracks.get(step)
    if track is None:
        hint = nearest(step, state.tracks)
        raise Refusal(
            "STEP_UNKNOWN",
            tell("refuse.run.step_unknown", run=state.run, step=step),
            tell("hint.run.did_you_mean", near=hint) if hint else tell("hint.run.see_run", run=state.run),
        )
    return track


def goes_on_here(state: State) -> None:
    """Refuse to go on with a run that goes on in another store, or is a copy."""
    if state.copied:
        told = tell("refuse.run.copied", run=state.run, store=state.copied)
        raise Refusal("RUN_COPIED", told, tell("hint.run.copied", run=state.run))
    if state.moved is not None:
        hint = tell("hint.run.moved", run=state.run, to=state.moved[0])
        raise Refusal("RUN_MOVED", tell("refuse.run.moved", run=state.run, to=state.moved[0]), hint)


def not_at_rest(state: State) -> None:
    """Refuse what only a run under way can do, with the command that fits."""
    if state.rest is not None:
        completed = state.rest.status == RunStatus.COMPLETED
        raise Refusal(
            "RUN_AT_REST",
            tell("refuse.run.run_at_rest", run=state.run, status=tell(f"status.{state.rest.status}")),
            tell("hint.run.run_completed" if completed else "hint.run.run_at_rest", run=state.run),
        )


# -- Pause, resume, cancel ----------------------------------------------------------------------------------------


def pause(state: State, by: str) -> list[Event]:
    """Start nothing more until somebody resumes the run."""
    not_at_rest(state)
    if state.paused:
        raise Refusal(
            "RUN_PAUSED", tell("refuse.run.run_paused", run=state.run), tell("hint.run.run_paused", run=state.run)
        )
    return [ev.Acted("pause", by)]


def cancel(state: State, by: str, reason: str = "") -> list[Event]:
    """End the run: calls under way are cancelled, nothing more starts."""
    not_at_rest(state)
    return [] if state.stopped == "RUN_CANCELLED" else [ev.Cancelled(by, reason)]


def resume(state: State, by: str) -> list[Event]:
    """Go on with a paused run."""
    not_at_rest(state)
    if not state.paused:
        raise Refusal("RUN_LIVE", tell("refuse.run.run_live", run=state.run), tell("hint.run.run_live", run=state.run))
    return [ev.Resumed(by, reason="paused", paused=True)]


# -- One step -----------------------------------------------------------------------------------------------------


def skip(state: State, step: str, by: str, reason: str = "") -> list[Event]:
    """Do without a step: met for its dependents, with a hole for an output."""
    track = _track(state, step)
    status, _ = status_of(state, track)
    if status in (Status.SUCCEEDED, Status.DEGRADED) or track.phase is Phase.SKIPPED:
        raise Refusal("STEP_ENDED", tell("refuse.run.step_ended", step=step, status=tell(f"status.{status}")))
    message = reason or tell("skip.SKIP_USER", by=by or "a person")
    # What ran although this one had failed looks again at what it ran without (R3); nobody else has run yet.
    over = track.standing is not Standing.OPEN
    course = Course(below=(step,)) if over else Course()
    acted = ev.Acted("skip", by, step, reason, course=course)
    events: list[Event] = [acted, ev.StepSkipped(step, "SKIP_USER", message, by)]
    return events + _reopened(state, [step], by, "skip")


@dataclass(frozen=True, slots=True)
class Edits:
    """What a person changes of a call before agreeing to it (X10)."""

    args: Mapping[str, Any] = field(default_factory=dict)  # those that change; the others stay as they are shown
    files: Sequence[ev.FileMade] = ()
    shown: Mapping[str, Any] | None = None  # the arguments that are shown, where they are too large for the event


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
    """Agree to the call that a gate shows, as it is or edited; ``ahead``, to the plan's own call, not known yet (X10).

    ``digest`` is that of the call which the person saw: another one is not agreed to.
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
            raise _gate_changed(state, shown)  # what was edited is another call's
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
    return Refusal("GATE_CHANGED", tell("refuse.run.gate_changed", step=shown.step, call=call_said(shown)), hint)


def _ahead(state: State, track: Track, by: str, edits: Edits) -> Event:
    """A yes to a call that is not known yet; `Refusal` where it could not hold, or what it is about is known."""
    if edits.args or edits.files:
        raise Refusal("USAGE", tell("refuse.run.ahead_edits"), tell("hint.run.ahead_edits", run=state.run))
    if not state.is_own_call(track):
        hint = tell("hint.run.ahead_changed", run=state.run, step=track.id)
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.ahead_changed", step=track.id), hint)
    return ev.Acted("confirm", by, track.id, ahead=True)


def _revised(
    state: State, track: Track, shown: ev.GateOpened, args: dict[str, Any], given: Mapping[str, Any], tools: Tools
) -> Step:
    """The step as a person edited it: the same needs, so that it reads the same files; `Faulty` lists its faults.

    Of the plan's own call, arguments that stay keep their references; of one that was changed on the way, all are
    written as they were shown.
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
    """Say no to a gated step: it fails for good, in this round."""
    track = gate(state, step)
    if track.n not in state.gates:
        # Refused now, it would end before what it needs, and perhaps with a fallback that stands for nothing.
        hint = tell("hint.run.gate_not_reached", run=state.run, step=track.id)
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.gate_not_reached", step=track.id), hint)
    error = _said_no("CONFIRM_REFUSED", by)
    return [ev.Acted("refuse", by, track.id), ev.StepFailed(track.id, track.attempt, error, called=False)]


def shown_call(state: State, track: Track) -> ev.GateOpened:
    """The call that a gate shows; `Refusal` if it is not reached yet, with the way to agree all the same."""
    shown = track.gate.shown if track.gate is not None else None
    if shown is None or track.n not in state.gates or track.n in state.unshown:
        hint = tell("hint.run.confirm_ahead", run=state.run, step=track.id)
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.gate_not_reached", step=track.id), hint)
    return shown


def gate(state: State, step: str | None) -> Track:
    """The step that waits for a person's word, or is yet to; left out, the one that waits."""
    not_at_rest(state)
    gates = [track.id for track in state.gates.values()]
    if step is None:
        if len(gates) != 1:
            raise Refusal("STEP_NOT_WAITING", tell("refuse.run.which_gate", waiting=", ".join(gates) or "none"))
        step = gates[0]
    waiting = tell("hint.run.gates", waiting=", ".join(gates)) if gates else ""
    if gates and step not in state.tracks:  # a step of a similar name may be none that anybody has to agree to
        near = nearest(step, gates)
        hint = tell("hint.run.did_you_mean", near=near) if near else waiting
        raise Refusal("STEP_UNKNOWN", tell("refuse.run.step_unknown", run=state.run, step=step), hint)
    track = _track(state, step)
    pending = track.phase is Phase.PENDING and bool(track.step.confirm) and not track.agreed
    if not pending:
        raise Refusal("STEP_NOT_WAITING", tell("refuse.run.no_gate", step=step), waiting)
    return track


def _said_no(code: str, by: str) -> Error:
    name = by or "a person"
    return Error(code, Category.PERMANENT, tell(f"error.{code}", by=name), data={"by": name})


def resolve_succeeded(
    state: State, step: str, by: str, output: Any, packed: Packed, *, blob: bool, files: Sequence[ev.FileMade] = ()
) -> list[Event]:
    """Declare a step succeeded by hand, with a value and the files that it left behind."""
    track = _track(state, step)
    status, _ = status_of(state, track)
    lost = track.phase is Phase.SUCCEEDED and track.result is not None and track.result.hole
    lost = lost or (step in state.unsettled and track.phase is Phase.SUCCEEDED)  # a value stands in for the answer
    if track.phase in (Phase.SUCCEEDED, Phase.RUNNING) and not lost:  # an output that was lost may be supplied
        raise Refusal(
            "STEP_ENDED" if track.phase is Phase.SUCCEEDED else "STEP_NOT_WAITING",
            tell("refuse.run.step_is", step=step, status=tell(f"status.{status}")),
        )
    value = None if blob else output
    acted = ev.Acted(
        "resolve", by, step, outcome="succeeded", output=value, digest=packed.digest, size=len(packed.data), blob=blob,
        files=tuple(files),
        course=Course(below=(step,)),  # automatic: nobody asked for a finished `once` step behind it to happen again
    )  # fmt: skip
    return [acted, *_reopened(state, [step], by, "resolve")]


def resolve_failed(state: State, step: str, by: str) -> list[Event]:
    """Declare that the effect in doubt did not happen, and that the step has failed; one that has ended stays so."""
    track = _in_doubt(state, step)
    error = _said_no("RESOLVED_FAILED", by)
    acted = ev.Acted("resolve", by, step, outcome="failed")
    if track.phase in (Phase.SUCCEEDED, Phase.SKIPPED, Phase.FAILED):
        return [*_reopened(state, [], by, "resolve"), acted]
    return [acted, ev.StepFailed(step, track.attempt, error, called=False), *_reopened(state, [], by, "resolve")]


def resolve_rerun(state: State, step: str, by: str) -> list[Event]:
    """Make the call in doubt again, under its own key and without a look: a person takes the responsibility."""
    _in_doubt(state, step)
    course = Course((step,), automatic=False)
    begin = _reopened(state, [step], by, "resolve", calls=True)
    return [*begin, ev.Acted("resolve", by, step, outcome="rerun", course=course)]


def _in_doubt(state: State, step: str) -> Track:
    track = _track(state, step)
    if not _is_doubtful(state, track):
        status, _ = status_of(state, track)
        raise Refusal(
            "STEP_NOT_WAITING",
            tell("refuse.run.not_in_doubt", step=step, status=tell(f"status.{status}")),
            tell("hint.run.not_in_doubt", run=state.run),
        )
    return track


def _is_doubtful(state: State, track: Track) -> bool:
    """Whether only a person's answer, or a look, lets a step be called again (E3)."""
    return track.phase is Phase.DOUBT or (track.id in state.unsettled and track.phase is not Phase.RUNNING)


def _reopened(state: State, steps: list[str], by: str, operation: str, *, calls: bool = False) -> list[Event]:
    """An action on a run at rest opens a round, so that what it makes possible really happens.

    What stopped the run stops it all the same, unless the action is to call something.
    """
    if state.rest is None:
        return []
    chain = tuple(step_id for step_id in retry_chain(state, steps) if step_id not in steps)
    begin = ev.RetryBegin(
        state.round + 1, by, (), chain, len(chain), automatic=False, operation=operation,
        previous_status=state.rest.status, stopped="" if calls else state.stopped,
    )  # fmt: skip
    return [begin]


# -- Adding steps -------------------------------------------------------------------------------------------------


def add(state: State, steps: Sequence[Step], tools: Tools, by: str, faults: Iterable[Fault] = ()) -> list[Event]:
    """Add steps to a live run; a bad change is refused and the old plan stays (P5)."""
    not_at_rest(state)
    found = [*faults, *new_faults(state, steps, tools)]
    if found or not steps:
        raise Faulty(found or [Fault("NO_STEPS", tell("refuse.run.no_steps"))])
    return [ev.Acted("add", by, course=Course(steps=tuple(steps), automatic=False))]


def repair(state: State, step: str, changes: Mapping[str, Any], tools: Tools, by: str) -> list[Event]:
    """A person's repair of a step that did not succeed: what changes of it, over what it was (H7).

    It and what depends on it are done again, at rest in a new round. Arguments are given one by one; the others stay,
    unless `remove` names them. With another tool, `args` are all that it gets.
    """
    track = _track(state, step)
    status, _ = status_of(state, track)
    if status in ENDED_WELL or track.phase is Phase.RUNNING:
        raise Refusal("STEP_ENDED", tell("refuse.run.step_is", step=step, status=tell(f"status.{status}")))
    if _is_doubtful(state, track):
        refuse_doubt(state, step)
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
    """The step with its changes; `Faulty` lists everything that is wrong with it, and the old one stays."""
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
    faults += check_change(olds, [new if old.id == track.id else old for old in olds], tools)
    if faults:
        raise Faulty(faults)
    return new


def _repaired_args(track: Track, changes: Mapping[str, Any], faults: list[Fault]) -> Any:
    """The arguments after a change: those that are given over those that stay; None if nothing is said of them."""
    given, remove = changes.get("args"), changes.get("remove") or ()
    if given is not None and not isinstance(given, Mapping):
        return given  # that it is none is found when it is read
    another = changes.get("tool", track.step.tool) != track.step.tool  # which has arguments of its own
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
    """What is wrong with these steps as additions to the plan as it is."""
    olds = [track.step for track in state.tracks.values()]
    return check_change(olds, [*olds, *steps], tools)


# -- Retry --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preview:
    """What a retry, or another action, would do before anything runs (R7)."""

    roots: tuple[str, ...]
    rerun: tuple[dict[str, str], ...]  # step and why
    kept: tuple[str, ...]
    once: tuple[str, ...]  # effects that would, or could, happen again
    estimate: dict[str, float]
    events: tuple[Event, ...] = field(default=(), compare=False, repr=False)
    passed: tuple[str, ...] = ()  # checks that force passed
    stage: str = ""  # where it goes on, if the plan has stages
    files: tuple[str, ...] = ()  # files that are kept, and read there
    damaged: Mapping[str, str] = field(default_factory=dict)  # files that cannot be kept, and why
    backup: str = ""  # where everything was kept before a run starts over
    mending: bool = False  # it is done for what follows it: that is what was asked for
    backs_up: tuple[str, ...] = ()  # files that are copied to a backup, and taken away, before a run starts over
    asks: tuple[str, ...] = ()  # steps that somebody will have to agree to once more
    edited: tuple[str, ...] = ()  # files that a person wrote, and steps would make again
    becomes: Mapping[str, str] = field(default_factory=dict)  # steps that would end at once, and how
    leads_to: str = ""  # what the run would be then, if it is known

    def to_dict(self) -> dict[str, Any]:
        """The preview as plain data."""
        return {
            "roots": list(self.roots), "rerun": [dict(row) for row in self.rerun], "kept": list(self.kept),
            "once": list(self.once), "estimate": dict(self.estimate), "passed": list(self.passed),
            "stage": self.stage or None, "files": list(self.files), "damaged": dict(self.damaged),
            "backup": self.backup or None, "backs_up": list(self.backs_up), "asks": list(self.asks),
            "edited": list(self.edited), "becomes": dict(self.becomes), "leads_to": self.leads_to or None,
        }  # fmt: skip


def retry(
    state: State,
    by: str,
    *,
    steps: Sequence[str] | None = None,
    stage: str | None = None,
    clean: bool = False,
    force: bool = False,
    policy: Policy | None = None,
    stale: Sequence[str] = (),
    fingerprints: dict[str, str] | None = None,
    damage: Sequence[FileDamage] = (),
    backup: str = "",
    mending: bool = False,
) -> Preview:
    """Retry exactly what failed and what depends on it; the preview carries the events that would do it.

    ``damage`` are the files that cannot be kept: their steps, and so what depends on them, are done again (T3).
    ``mending``: only that is wanted, of a run that is completed, because what follows it needs those files.
    """
    passed: list[str] = []
    goes_on_here(state)
    _refuse_by_status(state, steps, clean=clean, force=force or mending)
    spoils = bool(damage)  # then there is something to do, whatever else there is
    roots = _roots(state, steps, stage, clean=clean, force=force, stale=stale, spoils=spoils) if not mending else []
    spoilt = [] if clean else _spoilt(state, roots, damage, force=force)
    roots += spoilt
    if not clean:
        _refuse_doubtful(state, roots)
    completed = state.rest is not None and state.rest.status == RunStatus.COMPLETED
    cancelled = state.rest is not None and state.rest.status == RunStatus.CANCELLED
    completed = completed and not mending  # what follows it failed, and that is what is retried
    max_retries = (policy or state.policy).max_retries
    if not (clean or completed or cancelled) and state.retries >= max_retries:
        if not force:
            raise Refusal(
                "RETRY_LIMIT",
                tell("refuse.run.retry_limit", run=state.run, retries=state.retries, max_retries=max_retries),
                tell("hint.run.retry_limit", run=state.run),
            )
        passed.append("RETRY_LIMIT")
    if not (clean or completed or cancelled) and _all_permanent(state, roots):
        if not force:
            reason = one_by_one(reasons_of(state, roots).values())
            raise Refusal(
                "NOT_RETRYABLE",
                tell("refuse.run.not_retryable", reason=reason),
                tell("hint.run.not_retryable"),
            )
        passed.append("NOT_RETRYABLE")
    again = [root for root in roots if state.tracks[root].phase is Phase.SUCCEEDED]
    fresh = tuple(state.tracks) if clean else tuple(again)
    lost = {} if clean else {item.path: item.reason[:500] for item in damage}
    chain = retry_chain(state, roots)
    begin = ev.RetryBegin(
        state.round + 1, by, tuple(roots), chain, len(chain), reasons_of(state, roots), automatic=False,
        course=Course((*roots, *_needed(state, roots)), automatic=False, fresh=fresh),
        operation="clean" if clean else "retry", previous_status=str(run_status(state)),
        counted=not (clean or completed or cancelled), reset_count=clean or cancelled, policy=policy,
        fingerprints=fingerprints, stale=tuple(name for name in stale if name not in roots), damaged=lost,
        backup=backup,
    )  # fmt: skip
    found = _preview(state, roots, chain, (begin,), tuple(passed), damage)
    files = () if clean else tuple(kept_files(state, chain))
    stage = resume_stage(state, chain)
    asks = tuple(track.id for track in state.tracks.values() if track.step.confirm) if clean else ()
    return replace(found, stage=stage, files=files, damaged=lost, backup=backup, mending=mending, asks=asks)


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file that cannot be kept: whose it was, and what is wrong with it."""

    step: str
    path: str
    reason: str


def _spoilt(state: State, roots: Sequence[str], damage: Sequence[FileDamage], *, force: bool) -> list[str]:
    """The steps whose files cannot be kept; one that must not happen twice needs somebody's word."""
    found = []
    for item in damage:
        track = state.tracks.get(item.step)
        if track is None or item.step in roots or item.step in found:
            continue
        once = track.result is not None and track.result.effect is Effect.ONCE
        if once and not force:
            message = tell("refuse.run.file_of_once", path=item.path, reason=item.reason, step=item.step)
            raise Refusal("FILE_DAMAGED", message, tell("hint.run.file_of_once", run=state.run))
        found.append(item.step)
    return found


def _needed(state: State, roots: list[str]) -> list[str]:
    """Failed steps above the roots that must run too; what is merely skipped or pending follows by itself."""
    above = unsatisfied_above(state, roots)
    return [step_id for step_id in above if state.tracks[step_id].phase in (Phase.FAILED, Phase.SKIPPED)]


def _refuse_by_status(state: State, steps: Sequence[str] | None, *, clean: bool, force: bool) -> None:
    run = state.run
    if state.rest is not None:
        if state.rest.status == RunStatus.COMPLETED and not (force or clean):
            raise Refusal(
                "RUN_COMPLETED", tell("refuse.run.run_completed", run=run), tell("hint.run.run_completed", run=run)
            )
        if not clean:
            for track in state.doubts.values():
                if not _is_looked_for(state, track):
                    refuse_doubt(state, track.id)
        return
    on = waiting_on(state)
    kinds = {item["for"] for item in on} if state.waiting else set()
    if clean:
        return
    if "in_doubt" in kinds:
        refuse_doubt(state)
    if "confirm" in kinds and not steps:
        raise Refusal(
            "RUN_WAITS_CONFIRM",
            tell("refuse.run.run_waits_confirm", run=run),
            tell("hint.run.run_waits_confirm", run=run),
        )
    if "paused" in kinds and not steps:
        raise Refusal("RUN_PAUSED", tell("refuse.run.run_is_paused", run=run), tell("hint.run.run_paused", run=run))


def _is_looked_for(state: State, track: Track) -> bool:
    """Whether a retry first looks for the effect of a step in doubt: the cancel came before its look (V8)."""
    cancelled = state.rest is not None and state.rest.status == RunStatus.CANCELLED
    return cancelled and track.phase is Phase.DOUBT and track.question == "verify"


def refuse_doubt(state: State, step: str | None = None) -> None:
    """Say that somebody has to answer a doubt first."""
    step = step or next(iter((*state.doubts.values(), *state.unsettled.values()))).id
    # Where somebody can look whether it happened, that comes first: whoever goes on with the run will (E3).
    looks = state.tracks[step].question == "verify" and state.rest is None
    key = "hint.run.look_first" if looks else "hint.run.run_in_doubt"
    raise Refusal("RUN_IN_DOUBT", tell("refuse.run.run_in_doubt", step=step), tell(key, run=state.run, step=step))


def _roots(
    state: State,
    steps: Sequence[str] | None,
    stage: str | None,
    *,
    clean: bool,
    force: bool,
    stale: Sequence[str],
    spoils: bool,
) -> list[str]:
    if [clean, stage is not None, bool(steps)].count(True) > 1:
        # Each names what is to run again; nobody can know which of them was meant.
        raise Refusal("USAGE", tell("refuse.run.retry_unclear"), tell("hint.run.retry_unclear", run=state.run))
    if clean:
        return list(state.tracks)
    if stage is not None:
        roots = _stage_roots(state, stage)
        for root in roots if not force else ():
            track = state.tracks[root]
            if track.phase is Phase.SUCCEEDED and track.result is not None and track.result.effect is Effect.ONCE:
                raise Refusal(
                    "STEP_SUCCEEDED", tell("refuse.run.step_succeeded", step=root), tell("hint.run.step_succeeded")
                )
        return roots
    if steps:
        return _named_roots(state, steps, force=force)
    known = {track.id for track in state.tracks.values() if track.stale == "definition changed"}
    changed = {*stale, *known} if force else set()
    roots = [track.id for track in state.tracks.values() if _is_root(state, track) or track.id in changed]
    if roots or state.rest is None or state.rest.status != RunStatus.COMPLETED:
        if not roots and not spoils:
            for track in (*state.doubts.values(), *(state.unsettled.values() if state.rest is not None else ())):
                if not _is_looked_for(state, track):
                    refuse_doubt(state, track.id)
            if state.rest is not None and state.rest.status == RunStatus.CANCELLED:
                return []  # every step was done or called when it was cancelled: what is left is to look and to say so
            raise Refusal("NOTHING_TO_RETRY", tell("refuse.run.nothing_failed", run=state.run))
        return roots
    return _completed_roots(state)


def _is_root(state: State, track: Track) -> bool:
    """Failed on its own account, or never got to run because the run was stopped or its process died."""
    status = status_of(state, track)[0]
    if track.id in state.unsettled:
        return False
    if track.phase is Phase.FAILED or status is Status.CANCELLED:
        return True
    under_way = (Phase.HURT, Phase.BACKOFF, Phase.HELD)
    return state.rest is None and (track.phase in under_way or status in (Status.PENDING, Status.READY))


def _completed_roots(state: State) -> list[str]:
    """What a forced retry of a completed run takes: the degraded and skipped steps, else the last stage (T5)."""
    holes = [
        track.id
        for track in state.tracks.values()
        if track.id not in state.unsettled
        and (track.phase is Phase.SKIPPED or status_of(state, track)[0] is Status.DEGRADED or stale_of(state, track))
    ]
    if holes:
        return holes
    stages = [track.step.stage for track in state.tracks.values() if track.step.stage]
    if stages:
        return _stage_roots(state, stages[-1])
    if state.unsettled:
        refuse_doubt(state)
    raise Refusal(
        "NOTHING_TO_RETRY", tell("refuse.run.nothing_to_retry", run=state.run), tell("hint.run.nothing_to_retry")
    )


def _stage_roots(state: State, stage: str) -> list[str]:
    roots = [track.id for track in state.tracks.values() if track.step.stage == stage]
    if not roots:
        stages = list(dict.fromkeys(track.step.stage for track in state.tracks.values() if track.step.stage))
        near = nearest(stage, stages)
        raise Refusal(
            "STAGE_UNKNOWN",
            tell("refuse.run.stage_unknown", run=state.run, stage=stage, stages=", ".join(stages) or "-"),
            tell("hint.run.did_you_mean", near=near) if near else "",
        )
    return roots


def _named_roots(state: State, steps: Sequence[str], *, force: bool) -> list[str]:
    roots = []
    for step in dict.fromkeys(steps):
        track = _track(state, step)
        if status_of(state, track)[0] in ENDED_WELL and not force:  # a stale result is one too
            raise Refusal(
                "STEP_SUCCEEDED", tell("refuse.run.step_succeeded", step=step), tell("hint.run.step_succeeded")
            )
        if track.phase is Phase.RUNNING:
            raise Refusal("STEP_NOT_WAITING", tell("refuse.run.step_running", step=step))
        roots.append(step)
    return roots


def _all_permanent(state: State, roots: list[str]) -> bool:
    tracks = [state.tracks[root] for root in roots]
    return bool(tracks) and all(
        track.phase is Phase.FAILED and track.category is Category.PERMANENT for track in tracks
    )


def _refuse_doubtful(state: State, roots: Sequence[str]) -> None:
    """A step in doubt is never called again by a retry, forced or not: somebody has to answer first (T5)."""
    for step_id in (*roots, *unsatisfied_above(state, roots)):
        if _is_doubtful(state, state.tracks[step_id]):
            refuse_doubt(state, step_id)


def retry_live(state: State, steps: Sequence[str], by: str, *, force: bool = False) -> list[Event]:
    """Retry named steps of a live run; a step in backoff ends its wait (X7)."""
    not_at_rest(state)
    if state.stopped:
        raise Refusal(
            "RUN_LIVE", tell("refuse.run.stopping", run=state.run, stopped=state.stopped), tell("hint.run.stopping")
        )
    roots = _named_roots(state, steps, force=force)
    _refuse_doubtful(state, roots)
    fresh = tuple(root for root in roots if force and state.tracks[root].phase is Phase.SUCCEEDED)
    course = Course((*roots, *_needed(state, roots)), automatic=False, fresh=fresh)
    return [ev.Acted("retry", by, roots[0] if len(roots) == 1 else "", course=course)]


def _preview(
    state: State,
    roots: list[str],
    chain: tuple[str, ...],
    events: tuple[Event, ...],
    passed: tuple[str, ...],
    damage: Sequence[FileDamage] = (),
) -> Preview:
    rerun, once = [], []
    acted = acted_once(state)
    spoilt = {item.step: about(item.path, item.reason) for item in reversed(damage)}
    named = set(roots)
    for step_id in chain:
        track = state.tracks[step_id]
        if track.error is not None and (step_id in named or track.result is None):
            why = track.error.told
        elif step_id in named and (step_id in spoilt or track.result is not None):
            why = spoilt.get(step_id) or tell("reason.asked_for")
        elif track.result is not None:
            why = tell("reason.if_inputs_change")
        else:
            why = tell("reason.has_not_run")
        rerun.append({"step": step_id, "why": why})
        if step_id in acted:
            once.append(step_id)
    inside = set(chain)
    kept = tuple(step_id for step_id in state.tracks if step_id not in inside)
    edited = edited_files(state, chain)
    return Preview(
        tuple(roots), tuple(rerun), kept, tuple(once), estimated(state, chain), events, passed, edited=edited
    )


def edited_files(state: State, chain: Sequence[str]) -> tuple[str, ...]:
    """The files of these steps that a person wrote."""
    made = [result for step_id in chain if (result := state.tracks[step_id].result) is not None]
    return tuple(path for result in made for path in result.edited)


def estimated(state: State, chain: Sequence[str]) -> dict[str, float]:
    """How long these steps took the last time, and what they cost."""
    seconds = [state.tracks[step_id].elapsed for step_id in chain]
    cost = sum(state.tracks[step_id].cost for step_id in chain)
    return {"seconds": _longest(state, set(chain)), "tool_seconds": sum(seconds), "cost": cost}


def acted_once(state: State) -> list[str]:
    """The steps that did, or may have done, what must not happen twice; an explicit failure is no effect."""
    return list(dict.fromkeys(step for steps in state.happened.values() for step in steps))


def _longest(state: State, chain: set[str]) -> float:
    """The critical path through the chain, by how long each step took last time."""
    finish: dict[str, float] = {}
    for track in topological(state):
        if track.id in chain:
            start = max((finish.get(need.id, 0.0) for need, _ in track.needs), default=0.0)
            finish[track.id] = start + track.elapsed
    return max(finish.values(), default=0.0)


def topological(state: State) -> list[Track]:
    """The steps in an order in which each comes after its needs."""
    missing = {track.n: len(track.needs) for track in state.tracks.values()}
    order = [track for track in state.tracks.values() if not track.needs]
    for track in order:
        for target, _ in track.out:
            missing[target.n] -= 1
            if not missing[target.n]:
                order.append(target)
    return order
