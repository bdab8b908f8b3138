"""Regular expressions that can take for ever: a plan may come from anywhere, and nothing can end a search once begun.

Rules of this file:
- Found are repeats of nothing but a repeat, such as ``(a+)+``: a text that does not fit is cut up in every way.
  What stands between two parts (``([a-z]+\\.)+``) tells them apart, and is no trouble.
- Not everything that is slow is found, and nothing is called slow that only might be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_MANY = 16  # repeats of a part from which on there are too many ways


def slow_patterns(schema: Any) -> Iterator[str]:
    """The regular expressions of a JSON schema that can take for ever."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo += part
        if not isinstance(part, Mapping):
            continue
        todo += part.values()
        named = part.get("patternProperties")
        for pattern in (part.get("pattern"), *(named if isinstance(named, Mapping) else ())):
            if isinstance(pattern, str) and is_slow(pattern):
                yield pattern


def is_slow(pattern: str) -> bool:
    """Whether a search for it can take time without end."""
    try:
        return _slow(_parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return False  # it is none; that is told elsewhere


def _slow(parts: Any) -> bool:
    for operator, given in parts:
        if operator in _REPEATS and given[1] >= _MANY and any(_splits(one) for one in _branches(given[2])):
            return True
        if any(_slow(one) for one in _inside(operator, given)):
            return True
    return False


def _inside(operator: Any, given: Any) -> list[Any]:
    """The parts of a part."""
    if operator in _REPEATS or operator is getattr(_constants, "POSSESSIVE_REPEAT", None):
        return [given[2]]
    if operator is _constants.SUBPATTERN:
        return [given[3]]
    if operator is _constants.BRANCH:
        return list(given[1])
    if operator in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [given[1]]
    return []


def _branches(parts: Any) -> list[Any]:
    """A sequence; or several, if it is nothing but a choice between them."""
    found = list(parts)
    while len(found) == 1 and found[0][0] is _constants.SUBPATTERN:
        found = list(found[0][1][3])
    if len(found) == 1 and found[0][0] is _constants.BRANCH:
        return [one for branch in found[0][1][1] for one in _branches(branch)]
    return [found]


def _splits(parts: Any) -> bool:
    """Whether a sequence is a long repeat and, beside it, nothing that has to be there."""
    needed = [(operator, given) for operator, given in parts if not (operator in _REPEATS and given[0] == 0)]
    long = [given for operator, given in parts if operator in _REPEATS and given[1] >= _MANY]
    return bool(long) and all(operator in _REPEATS and given[1] >= _MANY for operator, given in needed)
