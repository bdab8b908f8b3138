"""Checks of schemas themselves: what is invalid or not supported, before a schema is used.

Rules of this file:
- One table defines each keyword's valid form; annotations and unknown keywords are left alone.
- Nothing here recurses or raises, on any input: schemas come from untrusted sources.
- A schema without problems can be compiled, and checking a value against it terminates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from rerail.i18n import tell
from rerail.values.json_values import CLASSES, enumerated, is_number, is_type, show
from rerail.values.names import nearest
from rerail.values.patterns import why_not

Node: TypeAlias = Mapping[str, Any] | bool

_MOST_LEVELS = 64
# Keywords with schemas for the same value: a $ref cycle through these alone never ends.
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
_ONE_SCHEMA = frozenset(
    {"items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"}
)
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
_TURNING = frozenset({"not", "if", "oneOf", "maxContains"})  # under these, fewer constraints mean more refusals
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _regex_problem(pattern: object) -> str | None:
    if not isinstance(pattern, str):
        return tell("schema.type", types=tell("schema.kind.regex"), value=show(pattern))
    reason = why_not(pattern)
    return tell("schema.bad_regex", pattern=show(pattern), reason=reason) if reason else None


def _type_problem(value: object) -> str | None:
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or name not in CLASSES:
            guess = nearest(name, CLASSES) if isinstance(name, str) else None
            if guess:
                return tell("schema.unknown_type_near", name=show(name), guess=show(guess))
            return tell("schema.unknown_type", name=show(name), types=enumerated(sorted(CLASSES), "and"))
    return None if names else tell("schema.no_type")


def _ref_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return tell("schema.type", types=tell("schema.kind.string"), value=show(value))
    if not value.startswith("#"):
        return tell("schema.outside", value=show(value))
    return None


def _wants(what: str, test: Callable[[Any], bool]) -> Callable[[object], str | None]:
    return lambda value: (
        None if test(value) else tell("schema.type", types=tell(f"schema.kind.{what}"), value=show(value))
    )


_NUMBER = _wants("number", is_number)
_SIZE = _wants("size", lambda value: is_type(value, "integer") and value >= 0)
_SCHEMAS = _wants("schemas", lambda value: isinstance(value, list) and bool(value))
_MAP = _wants("map", lambda value: isinstance(value, Mapping))

_SHAPES: Final[Mapping[str, Callable[[object], str | None]]] = {
    "$ref": _ref_problem,
    "type": _type_problem,
    "pattern": _regex_problem,
    "enum": _wants("list", lambda value: isinstance(value, list)),
    "required": _wants("names", _is_names),
    "dependentRequired": _wants(
        "name_lists", lambda value: isinstance(value, Mapping) and all(map(_is_names, value.values()))
    ),
    "uniqueItems": _wants("flag", lambda value: isinstance(value, bool)),
    "multipleOf": _wants("positive", lambda value: is_number(value) and 0 < value < float("inf")),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _SIZE),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _SIZE),
    **dict.fromkeys(_SCHEMA_LISTS, _SCHEMAS),
    **dict.fromkeys(_SCHEMA_MAPS, _MAP),
    **dict.fromkeys(_UNSUPPORTED, lambda _: tell("schema.unsupported")),
}


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Yield the schemas directly inside: keyword, place, schema."""
    for word, inner in schema.items():
        if word in _SCHEMA_MAPS and isinstance(inner, Mapping):
            # Draft-07 dependencies are schemas or lists of names.
            names = [name for name, part in inner.items() if word == "dependencies" and _is_names(part)]
            yield from ((word, f"{word}/{name}", part) for name, part in inner.items() if name not in names)
        elif (word in _SCHEMA_LISTS or word == "items") and isinstance(inner, list):
            yield from ((word, f"{word}/{at}", part) for at, part in enumerate(inner))
        elif word in _ONE_SCHEMA:
            yield word, word, inner


def resolve(root: Node, ref: str) -> Node:
    """Return the target of a local ``$ref``; LookupError if there is none."""
    found: object = root
    plain = re.sub(
        "(%[0-9A-Fa-f]{2})+", lambda code: bytes.fromhex(code[0].replace("%", "")).decode(errors="replace"), ref
    )
    for step in plain.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            raise LookupError(ref)
    # "#name" is an anchor, not a path.
    if not isinstance(found, Mapping | bool) or ref[1:2] not in ("", "/"):
        raise LookupError(ref)
    return found


def problems(schema: object) -> list[str]:
    """Return all problems of the schema itself, each with its place; empty if it can be used."""
    if not isinstance(schema, Mapping | bool):
        return [tell("schema.no_schema", value=show(schema))]
    refs: dict[str, Node] = {"#": schema}
    found = list(_faulty_parts(schema, refs))
    # References can be followed only in an otherwise valid schema.
    return found or _circles(refs)


def readable(schema: object) -> Node:
    """Return the usable part of a third-party schema: without unusable patterns; True if nothing is usable.

    The tool checks its arguments itself. Under `not` and its like nothing is left out: that would refuse more.
    """
    if not isinstance(schema, Mapping | bool):
        return True
    if not problems(schema):
        return schema
    try:
        loose: Node = msgspec.json.decode(msgspec.json.encode(schema))
    except (RecursionError, TypeError, ValueError):
        return True
    rest: list[object] = [loose]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            if part.keys() & _TURNING:
                return True
            if _regex_problem(part.get("pattern", "")):
                del part["pattern"]
            rest += [inner for _, _, inner in _parts(part)]
    return True if problems(loose) else loose


def _faulty_parts(root: Node, refs: dict[str, Node]) -> Iterator[str]:
    """Yield the problems of each part by itself; collect the references on the way."""
    visited: set[int] = set()
    rest: list[tuple[str, object, tuple[Mapping[str, Any], ...]]] = [("#", root, ())]
    while rest:
        at, part, above = rest.pop()
        if not isinstance(part, Mapping):
            if not isinstance(part, bool):
                yield tell(
                    "schema.at",
                    place=at,
                    message=tell("schema.type", types=tell("schema.kind.schema"), value=show(part)),
                )
            continue
        if len(above) > _MOST_LEVELS or any(part is outer for outer in above):
            yield tell("schema.at", place=at, message=tell("schema.levels", limit=_MOST_LEVELS))
            continue
        if id(part) in visited:
            continue
        visited.add(id(part))
        yield from _faulty_keywords(at, part)
        ref = part.get("$ref")
        if isinstance(ref, str) and ref.startswith("#") and ref not in refs:
            trouble = _lookup_problem(root, ref, above)
            if trouble:
                yield tell("schema.at", place=f"{at}/$ref", message=trouble)
            else:
                refs[ref] = resolve(root, ref)
                rest.append((ref, refs[ref], ()))
        rest += reversed([(f"{at}/{where}", inner, (*above, part)) for _, where, inner in _parts(part)])


def _faulty_keywords(at: str, schema: Mapping[str, Any]) -> Iterator[str]:
    for word, value in schema.items():
        shape = _SHAPES.get(word)
        trouble = shape(value) if shape else None
        if trouble:
            yield tell("schema.at", place=f"{at}/{word}", message=trouble)
    for pattern in _as_map(schema.get("patternProperties")):
        trouble = _regex_problem(pattern)
        if trouble:
            yield tell("schema.at", place=f"{at}/patternProperties", message=trouble)
    if "prefixItems" in schema and isinstance(schema.get("items"), list):
        yield tell("schema.at", place=f"{at}/items", message=tell("schema.prefix_items"))


def _lookup_problem(root: Node, ref: str, above: Iterable[Mapping[str, Any]]) -> str | None:
    inner = [outer["$id"] for outer in above if outer is not root and "$id" in outer]
    if any(not str(name).startswith("#") for name in inner):
        return tell("schema.own_id", ref=show(ref))
    try:
        resolve(root, ref)
    except LookupError:
        names = [f"#/{home}/{name}" for home in ("$defs", "definitions") for name in _as_map(_as_map(root).get(home))]
        guess = nearest(ref, names)
        near = tell("schema.near", guess=show(guess)) if guess else ""
        return tell("schema.names_nothing", ref=show(ref), near=near)
    return None


def _as_map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _circles(refs: Mapping[str, Node]) -> list[str]:
    """Return references that come back to themselves without entering the value, which would never end."""
    left = {ref: _same_value_refs(target) for ref, target in refs.items()}
    while harmless := [ref for ref, leads_to in left.items() if not leads_to & left.keys()]:
        for ref in harmless:
            del left[ref]
    if not left:
        return []
    # Each remaining one leads to another remaining one, so any walk among them ends in a cycle.
    trail, ref = [], min(left)
    while ref not in trail:
        trail.append(ref)
        ref = min(left[ref] & left.keys())
    return [tell("schema.circle", ref=ref, trail=" → ".join([*trail[trail.index(ref) :], ref]))]


def _same_value_refs(schema: Node) -> set[str]:
    found: set[str] = set()
    rest: list[object] = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, Mapping):
            found |= {part["$ref"]} if "$ref" in part else set()
            rest += [inner for word, _, inner in _parts(part) if word in _SAME_VALUE]
    return found
