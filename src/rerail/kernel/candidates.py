"""Candidates: values of earlier steps that a refused argument may have meant (contract H6).

Rules of this file:
- A blank that was never filled in (`<booking_id>`, `TODO`) gets the one value that earlier steps gave under that name,
  else the one `id` from a tool with a name that ends with the blank's noun (`create_booking`, not `list_booking_fees`).
  `[draft]` is a blank only if the word inside is the argument's name, or one under which an earlier step gave a value.
- For a tool that reads, a blank beside a reference to a step may be one end of a pair. It gets the value that the one
  other step of the same tool gave at that place, if this step needs that one and refers to it nowhere.
- Only for a tool that reads, a value one slip away from the only value of an earlier step is taken for it: 10001 may
  well be another order than 10002; a wrong read does no harm. A user is told of values that differ more (`supposed`).
- A blank with two candidates gets neither.
- Of an output too large for the history, the short values under one name alone fill blanks, but count for no slips.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeGuard

from rerail.kernel.step_state import SUCCEEDED, Track
from rerail.plan.references import MissingPath, Ref, Template, follow
from rerail.values.names import one_off

BLANK = re.compile(r"\$\{|\{\{|^\s*<[^<>]{1,80}>\s*$|^\s*(?:\.\.\.|…|TODO|TBD|FIXME)\s*$|^YOUR_[A-Z_]+$")
# These may be blanks too, by the name inside: models write them so, but titles and marks look the same.
FRAMED = re.compile(
    r"\s*(?:\[[^\W\d][\w .-]{0,60}\]|\{[^\W\d][\w .-]{0,60}\}|%[^\W\d]\w{0,60}%|\$[^\W\d]\w{0,60}\$?)\s*"
)
SHORTEST = 5  # characters that a value needs before a slip in it can be told from another value
DEPTH = 4  # levels of nested members that are read
MOST = 2_000  # steps and values that are read: beyond this, no candidate is unique
LONGEST = 64  # characters of a name, and of a value, that are kept of an output too large for the history
KEPT = 16  # number of values kept of such an output

Scalar = str | int | float


class GivenValue(NamedTuple):
    """A value from an earlier step."""

    step: str
    tool: str
    name: str
    value: Scalar
    part: bool = False  # from an output that is only partly visible


def supplied(
    track: Track, args: Mapping[str, Any], planned: Template, *, reads: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Return arguments with blanks and slips replaced by values of earlier steps, and the source step."""
    texts = {name: value for name, value in args.items() if isinstance(value, str)}
    blanks = [name for name, value in texts.items() if BLANK.search(value)]
    framed = [name for name, value in texts.items() if name not in blanks and FRAMED.fullmatch(value)]
    if not blanks and not framed and not reads:
        return
    given = _given(track)
    if not given:
        return
    names = {_folded(one.name) for one in given}
    blanks += [name for name in framed if _folded(texts[name]) in names | {_folded(name)}]
    filled = {name: _named(name, texts[name], given) for name in blanks}
    if reads and len(blanks) == 1 and filled[blanks[0]] is None:
        filled[blanks[0]] = _twin(track, planned)
    found = {name: source for name, source in filled.items() if source is not None}
    if found and len(found) == len(blanks):
        yield {**args, **{name: value for name, (_, value) in found.items()}}, next(iter(found.values()))[0]
    if reads and not blanks:
        slips = {name: source for name, value in args.items() if (source := _slipped(value, given)) is not None}
        if len(slips) == 1:
            ((name, (step, value)),) = slips.items()
            yield {**args, name: value}, step


def supposed(track: Track) -> dict[str, tuple[str, Scalar]]:
    """Return the one other value that an earlier step gave under an argument's name, and that step.

    For literal arguments of a refused call that a user repairs: rules do not act on a guess.
    A reference is taken as it stands, and the value of the refused call is no candidate."""
    given = _given(track)
    called = (track.call.args if track.call is not None else None) or {}
    found = {}
    for name, value in track.step.args.items() if given else ():
        source = None if isinstance(value, str) and "${" in value else _named(name, "", given)
        if source is not None and type(source[1]) is type(value) and source[1] not in (value, called.get(name)):
            found[name] = source
    return found


def singled(output: Any) -> dict[str, Scalar]:
    """Return a large output's short values that occur under one name alone: outermost first, none if too large."""
    found: dict[str, dict[Scalar, str]] = {}
    level, seen = [("", output)], 0
    for _ in range(DEPTH + 1):
        below: list[tuple[str, Any]] = []
        for name, value in level:
            if isinstance(value, Mapping):
                below += [(str(key), member) for key, member in islice(value.items(), MOST)]
            elif isinstance(value, list):
                below += [(name, item) for item in islice(value, MOST)]
            elif name and _is_scalar(value):
                found.setdefault(_folded(name), {})[value] = name
            if seen + len(level) + len(below) >= MOST:
                return {}
        seen, level = seen + len(level), below
    kept = ((name, value) for values in found.values() if len(values) == 1 for value, name in values.items())
    return dict(islice(((name, value) for name, value in kept if len(name) <= LONGEST >= len(str(value))), KEPT))


def _given(track: Track) -> list[GivenValue]:
    """Return earlier steps' values from the history; none if too many: a failure's cost must not grow with the plan."""
    found: list[GivenValue] = []
    todo, seen = [need for need, _ in track.needs], {track.id}
    while todo:
        before = todo.pop()
        if before.id in seen:
            continue
        seen.add(before.id)
        todo += [need for need, _ in before.needs]
        if before.phase is SUCCEEDED and before.result is not None:
            part, tool = before.result.blob, before.step.tool
            scalars = before.result.given.items() if part else _scalars("", before.result.output, DEPTH)
            found += [GivenValue(before.id, tool, name, value, part) for name, value in islice(scalars, MOST)]
        if len(seen) > MOST or len(found) >= MOST:
            return []
    return found


def _is_scalar(value: Any) -> TypeGuard[Scalar]:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _scalars(name: str, value: Any, depth: int) -> Iterator[tuple[str, Scalar]]:
    if _is_scalar(value):
        yield name, value
    elif depth and isinstance(value, Mapping):
        for key, member in value.items():
            yield from _scalars(str(key), member, depth - 1)
    elif depth and isinstance(value, list):
        for item in value:
            yield from _scalars(name, item, depth - 1)


def _named(name: str, blank: str, given: list[GivenValue]) -> tuple[str, Scalar] | None:
    """Return the one value given under the argument's name, or under the name in the blank."""
    wanted = {_folded(name), _folded(blank.removeprefix("YOUR_"))} - {""}
    found = [(one.step, one.value) for one in given if _folded(one.name) in wanted]
    if not found:
        parts = [(head, tail) for one in (name, blank.strip("<> ")) for head, _, tail in [one.rpartition("_")] if head]
        found = [
            (one.step, one.value)
            for one in given
            for head, tail in parts
            if _folded(one.name) == _folded(tail) and _folded(one.tool).endswith(_folded(head))
        ]
    return found[0] if len({value for _, value in found}) == 1 else None


def _twin(track: Track, planned: Template) -> tuple[str, Scalar] | None:
    """Return a sibling argument's counterpart: same tool, same path, from the one need that no argument refers to."""
    needs = {need.id: need for need, _ in track.needs}
    referred = {ref.step for ref in planned.refs}
    found: dict[tuple[str, Scalar], None] = {}
    for ref in planned.value.values():
        beside = _at(needs[ref.step], ref) if isinstance(ref, Ref) else None
        for need in needs.values() if beside is not None else ():
            if need.id not in referred and need.step.tool == needs[ref.step].step.tool:
                value = _at(need, ref)
                if value is not None and type(value) is type(beside):
                    found[need.id, value] = None
    return next(iter(found)) if len(found) == 1 else None


def _at(track: Track, ref: Ref) -> Scalar | None:
    """Return the value at the place of a reference, if it is a single value and the history holds it."""
    if track.phase is not SUCCEEDED or track.result is None:
        return None
    try:
        value = follow(ref, track.result.output)
    except MissingPath:
        return None
    return value if _is_scalar(value) else None


def _slipped(value: Any, given: list[GivenValue]) -> tuple[str, Scalar] | None:
    """Return the one value of the same type within one slip; None if the value itself was given."""
    if not isinstance(value, str | int):
        return None
    known: dict[str, tuple[str, Scalar]] = {}
    for one in given:
        if type(one.value) is type(value) and not one.part:
            known.setdefault(str(one.value), (one.step, one.value))
    if len(str(value)) < SHORTEST or str(value) in known:
        return None
    near = one_off(str(value), known)
    return known[near[0]] if len(near) == 1 and len(near[0]) >= SHORTEST else None


def _folded(name: str) -> str:
    """Return a name without case and punctuation."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())
