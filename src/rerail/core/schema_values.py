"""JSON values as the schema code needs them: their types, their sameness, and their text in a sentence.

Rules of this file:
- Nothing here is recursive: a value may be nested as deeply as a JSON parser lets through.
- OPEN stands for a value that is not known yet, such as the output of a step that has not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from rerail.i18n import tell

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


class _Open:
    """The type of OPEN."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OPEN"


OPEN: Final = _Open()

_ROOM = 80


class _Mark(str):
    """Punctuation among values."""

    __slots__ = ()


def show(value: object) -> str:
    """The value as JSON, trimmed so that it fits into a sentence."""
    text, rest = "", [value]
    while rest and len(text) <= _ROOM:
        item = rest.pop()
        if isinstance(item, _Mark):
            text += item
        elif isinstance(item, str):
            text += json.dumps(item[: _ROOM + 1], ensure_ascii=False)
        elif isinstance(item, dict):
            pairs = islice(item.items(), _ROOM)
            inside = [part for name, member in pairs for part in (_Mark(", "), name, _Mark(": "), member)]
            rest += [_Mark("}"), *reversed(inside[1:]), _Mark("{")]
        elif isinstance(item, list):
            inside = [part for member in islice(item, _ROOM) for part in (_Mark(", "), member)]
            rest += [_Mark("]"), *reversed(inside[1:]), _Mark("[")]
        else:
            text += _scalar(item)
    return trimmed(text)


def trimmed(text: str) -> str:
    """The text, cut where it would fill more than a line."""
    return text if len(text) <= _ROOM else text[: _ROOM - 1] + "…"


def _scalar(value: object) -> str:
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, int):
        # Python refuses to write integers of thousands of digits; nobody reads them either.
        return str(value) if value.bit_length() < 4 * _ROOM else tell("schema.huge")
    return repr(value)


def place(path: Iterable[str | int]) -> str:
    """The path as people write it: ``options.colours[2]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            text += f".{step}" if text else step
        else:
            text += f"[{show(step)}]"
    return text


def listed(words: Sequence[str], last: str = "or") -> str:
    """The words as an enumeration: a, b or c."""
    return words[0] if len(words) == 1 else tell(f"schema.list.{last}", first=", ".join(words[:-1]), last=words[-1])


def key(value: object) -> object:
    """A hashable stand-in: two values are the same JSON exactly if their keys are equal (1 is 1.0, true is not 1)."""
    if isinstance(value, bool):
        return ("bool", bool(value))
    if value is None or isinstance(value, str | int | float):
        return value
    if not isinstance(value, list | dict):
        return ("not JSON", id(value))
    # Flat, because comparing and hashing nested tuples is recursive.
    tokens: list[object] = []
    rest: list[object] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            tokens.append(("list", len(item)))
            rest += reversed(item)
        elif isinstance(item, dict):
            tokens.append(("dict", len(item)))
            rest += [part for name in sorted(item, key=str) for part in (item[name], name)]
        else:
            tokens.append(key(item))
    return tuple(tokens)


def containers(value: object) -> list[list[Any] | dict[str, Any]]:
    """The value and all lists and objects in it, each before what it holds."""
    found: dict[int, list[Any] | dict[str, Any]] = {}
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list | dict) and id(item) not in found:
            found[id(item)] = item
            rest += item if isinstance(item, list) else item.values()
    return list(found.values())


def is_open(value: object) -> bool:
    """Whether any part of the value is not known yet."""
    return value is OPEN or any(
        OPEN in (part.values() if isinstance(part, dict) else part) for part in containers(value)
    )


CLASSES: Final[Mapping[str, frozenset[type]]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}


def is_number(value: object) -> bool:
    """Whether the value is a JSON number; a boolean is none, although Python thinks so."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_type(value: object, name: str) -> bool:
    """Whether the value is of the JSON type; 1.0 is an integer."""
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    if name in ("integer", "number"):
        return is_number(value) and isinstance(value, tuple(CLASSES[name]))
    return isinstance(value, tuple(CLASSES[name]))
