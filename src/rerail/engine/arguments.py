"""What a call is made from: outputs found for references, holes and files, and why a step fails before its call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rerail.core import events as ev
from rerail.core.commands import FileDamage
from rerail.core.decide import Call
from rerail.core.refs import HOLE, MissingPath, Template, resolve
from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.core.track import Phase, Track, call_digest, signature
from rerail.core.values import INLINE, pack, unpack
from rerail.engine.failures import from_code
from rerail.engine.files import told
from rerail.engine.outputs import Contents


class InputsNotLoaded(Exception):
    """Some outputs have to be brought from the store first."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names


class Before(Exception):
    """The step fails before its tool is called."""

    def __init__(self, error: ev.Error) -> None:
        super().__init__(error.told)
        self.error = error


class Lookup:
    """Finds outputs for references: fresh values, holes marked, contents not at hand noted as missing."""

    def __init__(self, state: State, contents: Contents, fetched: Mapping[str, bytes]) -> None:
        self._state, self._contents, self._fetched = state, contents, fetched
        self._values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        self.holes: dict[str, None] = {}

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
            return unpack(pack(result.output).data)  # a fresh value, however deep it is
        data = self._fetched.get(result.digest) or self._contents.peek(result.digest)
        if data is None:
            self.missing[result.digest] = step
            return HOLE
        return unpack(data)


def path_missing(missing: MissingPath) -> ev.Error:
    """A reference to something that the earlier output does not have."""
    return from_code("PATH_MISSING", ref=str(missing.ref), step=missing.ref.step, there=missing.there)


def files_damaged(found: list[FileDamage], parent: str) -> ev.Error:
    """Files that the step reads, and that are not as their steps left them."""
    files, steps = ", ".join(damage.path for damage in found), list(dict.fromkeys(damage.step for damage in found))
    if "" in steps:  # what this run follows has to be done again, and nothing here can do that
        return from_code("FILE_DAMAGED", "FILE_DAMAGED_ABOVE", files=files, reason=told(found), parent=parent)
    return from_code("FILE_DAMAGED", files=files, step=", ".join(steps), reason=told(found), producers=steps)


def holes_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a hole reached the arguments."""
    if value is HOLE:
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from holes_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from holes_in(item, (*path, index))


def check_holes(state: State, template: Template, lookup: Lookup, spec: ToolSpec) -> None:
    """A hole that reaches an argument which does not accept null is a failure before the call (H9)."""
    marked = resolve(template, lookup, hole=HOLE)
    places = set(holes_in(marked))
    faults = [fault for fault in spec.schema.faults(nulled(marked)) if fault.path in places]
    if faults:
        step = next(iter(lookup.holes))
        ref = next(str(ref) for ref in template.refs if ref.step == step)
        argument = ".".join(map(str, faults[0].path)) or "?"
        result = state.tracks[step].result
        text = "HOLE_LOST" if result is not None and result.hole else None  # else it was skipped
        raise Before(from_code("HOLE_NOT_ACCEPTED", text, step=step, ref=ref, argument=argument, run=state.run))


def nulled(value: Any) -> Any:
    """A value with null in the place of each hole."""
    if value is HOLE:
        return None
    if isinstance(value, dict):
        return {key: nulled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [nulled(item) for item in value]
    return value


def with_args(error: ev.Error, name: str, args: Any) -> ev.Error:
    """An error that brings the arguments along, so that somebody can mend them."""
    return ev.Error(error.code, error.category, error.message, data={**error.data, name: args})


def kept_args(args: dict[str, Any], blobs: dict[str, bytes]) -> tuple[dict[str, Any] | None, str]:
    """Arguments as an event holds them: themselves, or the name of a content that goes along with it."""
    packed = pack(args)
    if len(packed.data) <= INLINE:
        return unpack(packed.data), ""
    blobs[packed.digest] = packed.data
    return None, packed.digest


def gate_opened(state: State, track: Track, call: Call, args: dict[str, Any], blobs: dict[str, bytes]) -> ev.GateOpened:
    """The call that a person has to agree to, with the one that was agreed to before, if there was one (X10)."""
    files, inline, blob = state.files(track), *kept_args(args, blobs)
    before = track.gate.yes if track.gate is not None else None
    digest = call_digest(call.tool, signature(args), files)
    return ev.GateOpened(track.id, track.attempt, call.tool, digest, inline, blob, files, call.rung, before)
