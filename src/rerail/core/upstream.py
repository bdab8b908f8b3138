"""Values that a step was meant to get from the steps it needs, and did not: a rule's guess at better arguments (H6).

Rules of this file:
- A blank that was never filled in (`<booking_id>`, `TODO`) is no wish: it is filled with the one value that the steps
  before gave under that name; else with the one `id` that a tool gave whose name ends with what it is of
  (`create_booking`, and not `list_booking_fees`).
- A value that is one slip away from the one value that a step before gave is taken for it, but only for a tool that
  reads: 10001 may well be another order than 10002, and reading it harms nobody.
- A value that is altogether another one is left alone: it may be exactly what was wanted.
- Whatever has two readings has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rerail.core.nearest import one_off
from rerail.core.track import SUCCEEDED, Track

BLANK = re.compile(r"\$\{|\{\{|^\s*<[^<>]{1,80}>\s*$|^\s*(?:\.\.\.|…|TODO|TBD|FIXME)\s*$|^YOUR_[A-Z_]+$")
SHORTEST = 5  # signs that a value must have for a slip in it to be told from another value
DEPTH = 4  # members of members that are looked at
MOST = 2_000  # steps and values that are looked at: beyond, nothing is the one that was meant

Scalar = str | int | float


class Given(NamedTuple):
    """One value that a step before gave."""

    step: str
    tool: str
    name: str
    value: Scalar


def supplied(track: Track, args: Mapping[str, Any], *, reads: bool) -> Iterator[tuple[dict[str, Any], str]]:
    """Arguments with values of the steps before in place of blanks and slips, and the step that gave one."""
    blanks = [name for name, value in args.items() if isinstance(value, str) and BLANK.search(value)]
    if not blanks and not reads:
        return
    given = _given(track)
    if not given:
        return
    filled = {name: _named(name, str(args[name]), given) for name in blanks}
    found = {name: source for name, source in filled.items() if source is not None}
    if found and len(found) == len(blanks):
        yield {**args, **{name: value for name, (_, value) in found.items()}}, next(iter(found.values()))[0]
    if reads and not blanks:
        slips = {name: source for name, value in args.items() if (source := _slipped(value, given)) is not None}
        if len(slips) == 1:
            ((name, (step, value)),) = slips.items()
            yield {**args, name: value}, step


def _given(track: Track) -> list[Given]:
    """Everything that the steps before gave, as far as the history holds it; nothing if that is too much to look at:
    a failure must not cost as much as its plan is large."""
    found: list[Given] = []
    todo, seen = [need for need, _ in track.needs], {track.id}
    while todo:
        before = todo.pop()
        if before.id in seen:
            continue
        seen.add(before.id)
        todo += [need for need, _ in before.needs]
        if before.phase is SUCCEEDED and before.result is not None and not before.result.blob:
            scalars = _scalars("", before.result.output, DEPTH)
            tool = before.step.tool
            found += [Given(before.id, tool, name, value) for name, value in islice(scalars, MOST)]
        if len(seen) > MOST or len(found) >= MOST:
            return []
    return found


def _scalars(name: str, value: Any, depth: int) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield name, value
    elif depth and isinstance(value, Mapping):
        for key, member in value.items():
            yield from _scalars(str(key), member, depth - 1)
    elif depth and isinstance(value, list):
        for item in value:
            yield from _scalars(name, item, depth - 1)


def _named(name: str, blank: str, given: list[Given]) -> tuple[str, Scalar] | None:
    """The one value that was given under the argument's name, or under the one that stands in the blank."""
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


def _slipped(value: Any, given: list[Given]) -> tuple[str, Scalar] | None:
    """The one value of the same type that this is a slip of; None if it was given itself."""
    if not isinstance(value, str | int):
        return None
    known: dict[str, tuple[str, Scalar]] = {}
    for one in given:
        if type(one.value) is type(value):
            known.setdefault(str(one.value), (one.step, one.value))
    if len(str(value)) < SHORTEST or str(value) in known:
        return None
    near = one_off(str(value), known)
    return known[near[0]] if len(near) == 1 and len(near[0]) >= SHORTEST else None


def _folded(name: str) -> str:
    """A name without case and signs."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())
