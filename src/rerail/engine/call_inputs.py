"""Arguments of calls: references resolved, holes and files checked (contract P4, E2, H9, T1).

Rules of this file:
- Nothing here waits: a content that is not in memory is an `InputsNotLoaded` for the loop.
- A call that may have had its effect is repeated with the same arguments, or not at all.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rerail.engine.failures import from_code
from rerail.engine.files.placement import told
from rerail.engine.journal import Contents, Journal
from rerail.i18n import one_by_one
from rerail.kernel import events as ev
from rerail.kernel.decide import Call
from rerail.kernel.policy import Rung
from rerail.kernel.retry import FileDamage
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, Track, call_digest, signature
from rerail.plan.references import HOLE, MissingPath, Template, compile_args, resolve
from rerail.plan.step import gate_text
from rerail.plan.tool_spec import ToolSpec
from rerail.values.json_values import INLINE, fresh, pack, plain_text, unpack

LONGEST_QUESTION = 4_000  # characters of a gate's text


class InputsNotLoaded(Exception):
    """Some contents have to be read from the store first."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names  # content → the step that produced it


class FailsBeforeCall(Exception):
    """The step fails before its tool is called."""

    def __init__(self, error: ev.Error) -> None:
        super().__init__(error.told)
        self.error = error


class CallInputs:
    """The arguments of one run's calls."""

    def __init__(self, state: State, journal: Journal) -> None:
        self._state, self._journal = state, journal
        self.fetched: dict[str, dict[str, bytes]] = {}  # step → contents read from the store for it

    def args(self, track: Track, action: Call, spec: ToolSpec) -> tuple[dict[str, Any], bool, list[str]]:
        """Return the arguments of the next call, whether they are the plan's own, and references into JSON texts."""
        lost = track.effects if track.effects is not None and track.effects.lost else None
        if action.rung is Rung.FALLBACK and track.step.fallback is not None and lost is None:
            template, own = compile_args(track.step.fallback.args, self._state.names), False
        elif lost is not None:
            return *self.same_args(track, lost.call), []
        elif track.heal is not None and track.heal.args is not None:
            if not track.heal.args_blob:
                return fresh(track.heal.args), False, []
            return self._large(track, track.heal.args_blob), False, []
        else:
            template, own = self._state.template(track), True
        if not template.refs:
            return copy.deepcopy(template.value) if template.value else {}, own, []
        args, parsed = self._resolved(track, template, spec)
        return args, False, parsed

    def same_args(self, track: Track, call: ev.StepStarted) -> tuple[dict[str, Any], bool]:
        """Return the arguments of a call that may have had its effect (contract E2)."""
        if call.args is not None:
            return fresh(call.args), False
        if not call.args_blob:
            return copy.deepcopy(self._state.template(track).value) or {}, True
        return self._large(track, call.args_blob), False

    def _large(self, track: Track, name: str) -> Any:
        """Return arguments that are stored as a content."""
        data = self.fetched.get(track.id, {}).get(name) or self._journal.contents.peek(name)
        if data is None:
            raise InputsNotLoaded({name: track.id})
        return unpack(data)

    def verify_args(self, track: Track) -> dict[str, Any]:
        """Return the arguments of the step's look."""
        assert track.step.verify is not None
        args: dict[str, Any] = self._filled(track, compile_args(track.step.verify.args, self._state.names))[0]
        return args

    def question(self, track: Track) -> str:
        """Return the text of the step's gate, if it refers to earlier outputs."""
        template = gate_text(track.step, self._state.names)
        found = self._filled(track, template)[0] if template is not None else ""
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    def _filled(self, track: Track, template: Template) -> tuple[Any, Lookup]:
        lookup = Lookup(self._state, self._journal.contents, self.fetched.get(track.id, {}))
        try:
            args = resolve(template, lookup, parsed=lookup.parsed)
        except MissingPath as missing:
            ref, there = missing.ref, missing.there
            raise FailsBeforeCall(from_code("PATH_MISSING", ref=str(ref), step=ref.step, there=there)) from missing
        if lookup.missing:
            raise InputsNotLoaded(lookup.missing)
        return args, lookup

    def _resolved(self, track: Track, template: Template, spec: ToolSpec) -> tuple[dict[str, Any], list[str]]:
        args: dict[str, Any]
        args, lookup = self._filled(track, template)
        if lookup.holes:
            check_holes(self._state, template, lookup, spec)
        faults = spec.schema.faults(args)
        if faults:
            shown = one_by_one(fault.said for fault in faults[:5])
            error = from_code("ARGS_INVALID", tool=spec.name, faults=shown)
            packed = pack(args)
            if len(packed.data) <= 4 * INLINE:  # a user or a model may want to change them
                raise FailsBeforeCall(with_args(error, "args", args))
            self._journal.blobs[packed.digest] = packed.data
            raise FailsBeforeCall(with_args(error, "args_blob", packed.digest))
        return args, lookup.parsed


class Lookup:
    """Resolves references to outputs; notes holes, and contents that are not in memory."""

    def __init__(self, state: State, contents: Contents, fetched: Mapping[str, bytes]) -> None:
        self._state, self._contents, self._fetched = state, contents, fetched
        self._values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        self.holes: dict[str, None] = {}
        self.parsed: list[str] = []  # references into a text that was read as JSON

    def __call__(self, step: str) -> Any:
        if step not in self._values:
            self._values[step] = self._find(step)
        return self._values[step]

    def _find(self, step: str) -> Any:
        track = self._state.tracks[step]
        result = track.result
        if track.phase is not Phase.SUCCEEDED or result is None or result.hole:
            self.holes[step] = None
            return HOLE
        if not result.blob:
            return fresh(result.output)
        data = self._fetched.get(result.digest) or self._contents.peek(result.digest)
        if data is None:
            self.missing[result.digest] = step
            return HOLE
        return unpack(data)


def files_damaged(found: list[FileDamage], parent: str) -> ev.Error:
    """Return the error for input files that changed since their steps produced them."""
    files, steps = ", ".join(damage.path for damage in found), list(dict.fromkeys(damage.step for damage in found))
    if "" in steps:  # the parent run has to produce them again
        return from_code("FILE_DAMAGED", "FILE_DAMAGED_ABOVE", files=files, reason=told(found), parent=parent)
    return from_code("FILE_DAMAGED", files=files, step=", ".join(steps), reason=told(found), producers=steps)


def holes_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of holes in the arguments."""
    if value is HOLE:
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from holes_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from holes_in(item, (*path, index))


def check_holes(state: State, template: Template, lookup: Lookup, spec: ToolSpec) -> None:
    """Fail before the call if a hole reaches an argument that does not accept null (contract H9)."""
    marked = resolve(template, lookup, hole=HOLE)
    places = set(holes_in(marked))
    faults = [fault for fault in spec.schema.faults(nulled(marked)) if fault.path in places]
    if faults:
        step = next(iter(lookup.holes))
        ref = next(str(ref) for ref in template.refs if ref.step == step)
        argument = ".".join(map(str, faults[0].path)) or "?"
        result = state.tracks[step].result
        text = "HOLE_LOST" if result is not None and result.hole else None  # else it was skipped
        raise FailsBeforeCall(
            from_code("HOLE_NOT_ACCEPTED", text, step=step, ref=ref, argument=argument, run=state.run)
        )


def nulled(value: Any) -> Any:
    """Return the value with null in the place of each hole."""
    if value is HOLE:
        return None
    if isinstance(value, dict):
        return {key: nulled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [nulled(item) for item in value]
    return value


def with_args(error: ev.Error, name: str, args: Any) -> ev.Error:
    """Return the error with the arguments, so that they can be corrected."""
    return ev.Error(error.code, error.category, error.message, data={**error.data, name: args})


def kept_args(args: dict[str, Any], blobs: dict[str, bytes]) -> tuple[dict[str, Any] | None, str]:
    """Return arguments as an event holds them: inline, or the name of a content."""
    packed = pack(args)
    if len(packed.data) <= INLINE:
        return unpack(packed.data), ""
    blobs[packed.digest] = packed.data
    return None, packed.digest


def gate_opened(
    state: State, track: Track, call: Call, args: dict[str, Any], question: str, blobs: dict[str, bytes]
) -> ev.GateOpened:
    """Return the event that shows a call for approval, with the call approved before (contract X10)."""
    files, inline, blob = state.files(track), *kept_args(args, blobs)
    before = track.gate.yes if track.gate is not None else None
    digest = call_digest(call.tool, signature(args), files)
    told = plain_text(question, LONGEST_QUESTION)
    return ev.GateOpened(track.id, track.attempt, call.tool, digest, inline, blob, files, call.rung, before, told)
