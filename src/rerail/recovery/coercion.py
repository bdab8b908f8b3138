"""Coercion: make arguments fit their schema without a change of the request (the rung "adjusted arguments").

Rules of this file:
- Only values that do not fit are changed. The result fits, or the value is returned as it was.
- Another spelling of the same request is safe: ``"5"`` for 5, a JSON text for the object in it, a misspelled name.
  Another request is not: no clamping, no dropping, no choice among several readings, nothing made of null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import isfinite
from typing import Any, Final

from rerail.values.json_values import OPEN, is_number, is_type, key
from rerail.values.names import meant
from rerail.values.patterns import search
from rerail.values.schema import Node, Schema, Seen
from rerail.values.schema_check import resolve


def coerce(schema: Schema | Node, value: object) -> object:
    """Return the value with safe conversions, so that it fits; the same object if it fits, or never will."""
    mender = _Mender(schema if isinstance(schema, Schema) else Schema(schema))
    try:
        return mender.mend(mender.schema.source, value)
    except RecursionError:
        return value


class _Mender:
    """Mends one value, and caches results: a schema that branches at every level would take exponential time."""

    __slots__ = ("_alive", "_seen", "_tried", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._seen: Seen = {}
        self._tried: dict[tuple[int, int], object] = {}
        # Both are compared by id, so every value seen is kept alive.
        self._alive: list[object] = []

    def accepts(self, part: Node, value: object) -> bool:
        self._alive.append(value)
        return self.schema.accepts(value, part, self._seen)

    def mend(self, part: Node, value: object) -> object:
        """Return the value, made to fit this part of the schema; or the same object."""
        if isinstance(part, bool) or value is OPEN or self.accepts(part, value):
            return value
        spot = (id(part), id(value))
        if spot not in self._tried:
            # The provisional result: wrapping a value into lists could recurse forever.
            self._tried[spot] = value
            self._tried[spot] = self._mended(part, value)
        return self._tried[spot]

    def _mended(self, part: Mapping[str, Any], value: object) -> object:
        for start in (value, *_conversions(part, value)):
            result = start
            for step in _STEPS:
                result = step(self, part, result)
            if self.accepts(part, result):
                return result
        return value

    def default(self, part: Node) -> object:
        """Return the schema's default, its own or by reference; OPEN if there is none."""
        while isinstance(part, Mapping) and "default" not in part and "$ref" in part:
            part = resolve(self.schema.source, part["$ref"])
        return part.get("default", OPEN) if isinstance(part, Mapping) else OPEN


# --- Plain values --------------------------------------------------------------------------------------------------

# No leading zeros: 012 is an id, or ten in some languages.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,299})(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")


def _conversions(part: Mapping[str, Any], value: object) -> Iterator[object]:
    """Return the value as one of the wanted types, if it has none of them."""
    wanted = part.get("type", [])
    names = wanted if isinstance(wanted, list) else [wanted]
    if value is None or any(is_type(value, name) for name in names):
        return
    for name in names:
        yield from _READERS[name](value)


def _as_number(value: object) -> Iterator[int | float]:
    text = value.strip() if isinstance(value, str) else ""
    if not _NUMBER.fullmatch(text):
        return
    number = json.loads(text)
    if isfinite(number):
        yield number


def _as_boolean(value: object) -> Iterator[bool]:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in ("true", "false"):
        yield word == "true"


def _as_string(value: object) -> Iterator[str]:
    if is_number(value):
        yield from _text(value)


def _text(value: object) -> Iterator[str]:
    try:
        yield json.dumps(value, allow_nan=False)
    except ValueError:  # infinite, or with more digits than Python prints
        return


def _as_array(value: object) -> Iterator[list[Any]]:
    yield from (parsed for parsed in _parsed(value) if isinstance(parsed, list))
    yield [value]


def _parsed(value: object) -> Iterator[object]:
    """Return the value of a JSON text with an array or an object."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return
    try:
        yield json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_READERS: Final[Mapping[str, Callable[[object], Iterator[object]]]] = {
    "integer": lambda value: (int(number) for number in _as_number(value) if is_type(number, "integer")),
    "number": _as_number,
    "boolean": _as_boolean,
    "string": _as_string,
    "array": _as_array,
    "object": lambda value: (parsed for parsed in _parsed(value) if isinstance(parsed, dict)),
    "null": lambda value: iter(()),
}


def _option(mender: _Mender, part: Mapping[str, Any], value: object) -> object:
    """Return the option that the value spells differently (``enum``, ``const``)."""
    options = part.get("enum", [part["const"]] if "const" in part else [])
    if not isinstance(value, str | int | float) or key(value) in map(key, options):
        return value
    # A number or boolean must equal the one in the text; -5 is not 5.
    said = {key(one) for reader in (_as_number, _as_boolean) for one in reader(value)}
    texts: dict[str, list[object]] = {}
    for option in options:
        if isinstance(option, str) or key(option) in said:
            texts.setdefault(option if isinstance(option, str) else str(value).strip(), []).append(option)
    for word in [value] if isinstance(value, str) else _text(value):
        name = meant(word, texts)
        if name is not None and len(texts[name]) == 1:
            return texts[name][0]
    return value


# --- Objects and arrays --------------------------------------------------------------------------------------------


def _members(mender: _Mender, part: Mapping[str, Any], value: object) -> object:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        return value
    named = _with_defaults(mender, part, _renamed(part, value))
    mended = {name: _member(mender, part, name, member) for name, member in named.items()}
    same = mended.keys() == value.keys() and all(member is value[name] for name, member in mended.items())
    return value if same else mended


def _renamed(part: Mapping[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the object with misspelled names corrected, where a name is unknown or a required one is missing."""
    known = part.get("properties", {})
    wanted = known if part.get("additionalProperties") is False else part.get("required", [])
    missing = [name for name in wanted if name not in value]
    names = {name: meant(name, missing) for name in value if not _rules(part, name)}
    new = list(names.values())
    # With two candidates for the missing name, the intended one is unknown.
    sure = {name: right for name, right in names.items() if right is not None and new.count(right) == 1}
    return {sure.get(name, name): member for name, member in value.items()} if sure else value


def _with_defaults(mender: _Mender, part: Mapping[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the schema's defaults for missing required properties."""
    known = part.get("properties", {})
    missing = [name for name in part.get("required", []) if name not in value and name in known]
    found = ((name, mender.default(known[name])) for name in missing)
    return {**value, **{name: deepcopy(default) for name, default in found if default is not OPEN}}


def _rules(part: Mapping[str, Any], name: str) -> list[Node]:
    """Return the schemas of this property."""
    known = part.get("properties", {})
    patterns = part.get("patternProperties", {})
    own = [known[name]] if name in known else []
    return own + [rules for pattern, rules in patterns.items() if search(pattern)(name)]


def _member(mender: _Mender, part: Mapping[str, Any], name: str, member: object) -> object:
    for rules in _rules(part, name) or [part.get("additionalProperties", True)]:
        member = mender.mend(rules, member)
    return member


def _items(mender: _Mender, part: Mapping[str, Any], value: object) -> object:
    if not isinstance(value, list):
        return value
    first, rest = part.get("prefixItems", []), part.get("items", True)
    if isinstance(rest, list):
        first, rest = rest, part.get("additionalItems", True)
    mended = [mender.mend(first[at] if at < len(first) else rest, item) for at, item in enumerate(value)]
    return value if all(new is old for new, old in zip(mended, value, strict=True)) else mended


# --- Combinations --------------------------------------------------------------------------------------------------


def _all(mender: _Mender, part: Mapping[str, Any], value: object) -> object:
    """Return all schemas of the same value: the reference, ``allOf``, the branch of ``if``, dependent schemas."""
    rules: list[Node] = [resolve(mender.schema.source, part["$ref"])] if "$ref" in part else []
    rules += part.get("allOf", [])
    if "if" in part:
        rules.append(part.get("then" if mender.accepts(part["if"], value) else "else", True))
    dependent = {**part.get("dependencies", {}), **part.get("dependentSchemas", {})}
    if isinstance(value, dict):
        rules += [wanted for name, wanted in dependent.items() if name in value and not isinstance(wanted, list)]
    for one in rules:
        value = mender.mend(one, value)
    return value


def _alternative(mender: _Mender, part: Mapping[str, Any], value: object) -> object:
    """Return the value made to fit one of ``anyOf`` or ``oneOf``, if exactly one simple way exists."""
    for word in ("anyOf", "oneOf"):
        branches = part.get(word)
        if not branches or _fits(mender, word, branches, value):
            continue
        mended = [mender.mend(branch, value) for branch in branches]
        ways = [new for new in mended if _fits(mender, word, branches, new)]
        # Wrapping the value in a list is the larger change: it counts only if nothing else fits.
        plain = [new for new in ways if isinstance(new, list) is isinstance(value, list)] or ways
        if plain and len({key(new) for new in plain}) == 1:
            value = plain[0]
    return value


def _fits(mender: _Mender, word: str, branches: Sequence[Node], value: object) -> bool:
    fitting = sum(mender.accepts(branch, value) for branch in branches)
    return fitting == 1 or (fitting > 1 and word == "anyOf")


_STEPS: Final[Sequence[Callable[[_Mender, Mapping[str, Any], object], object]]] = (
    _option,
    _all,
    _members,
    _items,
    _alternative,
)
