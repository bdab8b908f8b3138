"""Values that a step was meant to get from the steps it needs, and did not: a rule's guess at better arguments (H6).

Rules of this file:
- A blank that was never filled in (`<booking_id>`, `TODO`) is no wish: it is filled with the one value that the steps
  before gave under that name; else with the one `id` that a tool gave whose name ends with what it is of
  (`create_booking`, and not `list_booking_fees`). `[draft]` and `{draft}` may be blanks: they are if what stands inside
  is the argument's own name, or one under which a step before gave something.
- For a tool that reads, a blank beside an argument that refers to a step is filled with what the one other step of the
  same tool gave at that place, if this step needs it and nothing of it refers to it: of `get_zipcode` twice, the second
  was to be the other end of the way.
- A value that is one slip away from the one value that a step before gave is taken for it, but only for a tool that
  reads: 10001 may well be another order than 10002, and reading it harms nobody.
- A value that is altogether another one is left alone: it may be exactly what was wanted. A person is told what a step
  before gave under that name (`supposed`), and decides.
- Whatever has two readings has none.
- Of an output that is too large for the history only those short values are seen that it has under one name alone. They
  fill blanks; for slips they do not count, since whatever else is near would not be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeGuard

from rerail.core.nearest import one_off
from rerail.core.refs import MissingPath, Ref, Template, follow
from rerail.core.track import SUCCEEDED, Track

BLANK = re.compile(r"\$\{|\{\{|^\s*<[^<>]{1,80}>\s*$|^\s*(?:\.\.\.|…|TODO|TBD|FIXME)\s*$|^YOUR_[A-Z_]+$")
# What may be a blank too, by the name inside: as models write them, and as people write titles and marks.
FRAMED = re.compile(
    r"\s*(?:\[[^\W\d][\w .-]{0,60}\]|\{[^\W\d][\w .-]{0,60}\}|%[^\W\d]\w{0,60}%|\$[^\W\d]\w{0,60}\$?)\s*"
)
SHORTEST = 5  # signs that a value must have for a slip in it to be told from another value
DEPTH = 4  # members of members that are looked at
MOST = 2_000  # steps and values that are looked at: beyond, nothing is the one that was meant
LONGEST = 64  # signs of a name, and of a value, that are kept of an output which is too large for the history
KEPT = 16  # values that are

Scalar = str | int | float


class Given(NamedTuple):
    """One value that a step before gave."""

    step: str
    tool: str
    name: str
    value: Scalar
    part: bool = False  # of an output of which the rest is not seen


def supplied(
    track: Track, args: Mapping[str, Any], planned: Template, *, reads: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Arguments with values of the steps before in place of blanks and slips, and the step that gave one."""
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
    """What may have been meant by arguments that stand in the plan as they are: the one other value that a step before
    gave under the argument's name, and that step. For people who mend a refused call: rules do not act on a guess.

    A reference is meant as it is, and what the refused call was made with is no other value."""
    given = _given(track)
    called = (track.call.args if track.call is not None else None) or {}
    found = {}
    for name, value in track.step.args.items() if given else ():
        source = None if isinstance(value, str) and "${" in value else _named(name, "", given)
        if source is not None and type(source[1]) is type(value) and source[1] not in (value, called.get(name)):
            found[name] = source
    return found


def singled(output: Any) -> dict[str, Scalar]:
    """What the history keeps of an output that is too large for it: short values that are there under one name alone,
    those further out first; nothing if that is too much to look at."""
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
        if before.phase is SUCCEEDED and before.result is not None:
            part, tool = before.result.blob, before.step.tool
            scalars = before.result.given.items() if part else _scalars("", before.result.output, DEPTH)
            found += [Given(before.id, tool, name, value, part) for name, value in islice(scalars, MOST)]
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


def _twin(track: Track, planned: Template) -> tuple[str, Scalar] | None:
    """The one value that a step gave which is needed and referred to by nothing of this one, at the place where an
    argument refers to another step of the same tool."""
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
    """What a step gave at the place of a reference, if it is one value and the history holds it."""
    if track.phase is not SUCCEEDED or track.result is None:
        return None
    try:
        value = follow(ref, track.result.output)
    except MissingPath:
        return None
    return value if _is_scalar(value) else None


def _slipped(value: Any, given: list[Given]) -> tuple[str, Scalar] | None:
    """The one value of the same type that this is a slip of; None if it was given itself."""
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
    """A name without case and signs."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())
