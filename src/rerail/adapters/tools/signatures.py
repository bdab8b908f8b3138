"""Function signatures as JSON schemas, arguments as their types, docstrings as descriptions.

Rules of this file:
- Pydantic makes the JSON schema of a type; it is imported when the first signature is read, never before.
- Arguments of plain JSON types are passed on unchanged: the engine has checked them against the schema. Pydantic makes
  the value only for other types (a model, a date, a path, an enum), and then checks it once more.
- Prose is never refused: a docstring in no known style (Google, NumPy, reST) just has no parameter descriptions.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, Union, cast

from rerail.context import Context
from rerail.errors import ToolError
from rerail.i18n import tell

Convert = Callable[[Mapping[str, Any]], dict[str, Any]]
_Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True, slots=True)
class Shape:
    """A function's schema, its context parameter, and the conversion of its arguments."""

    schema: Mapping[str, Any] | bool
    context: str | None = None
    convert: Convert | None = None


class Unresolved(Exception):
    """A name in an annotation is unknown so far: its class may stand further down in the module."""


def read_shape(
    name: str, fn: Any, docs: Docs, given: Mapping[str, Any] | bool | None, names: Mapping[str, Any]
) -> Shape:
    """Read a function's signature; a given schema is used unchanged. `names` are further names for annotations."""
    parameters = _parameters(name, fn)
    hints = _hints(name, fn, parameters, names)
    context = _context_parameter(parameters, hints)
    anything = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    fields = {
        one.name: _hint_of(one, hints)
        for one in parameters.values()
        if one.kind is not one.VAR_KEYWORD and one.name != context
    }
    if given is not None:
        return Shape(given, context, _lenient_converter(fields, parameters))
    adapter = _adapter(name, fields, parameters, anything)
    schema = _schema(adapter, name, fields, parameters, docs)
    return Shape(schema, context, _converter(adapter) if _needs_conversion(fields) else None)


# --- Parameters ----------------------------------------------------------------------------------------------------


def _refuse(name: str, message: str) -> NoReturn:
    raise ValueError(tell("tool.faulty", name=name, message=message))


def _parameters(name: str, fn: Any) -> _Parameters:
    try:
        parameters = inspect.signature(fn).parameters
    except (ValueError, TypeError) as error:
        raise ValueError(tell("tool.signature.unreadable", name=name, error=error)) from error
    first = next(iter(parameters), "")
    for one in parameters.values():
        if one.kind is one.POSITIONAL_ONLY:
            _refuse(name, tell("tool.signature.positional", name=one.name))
        if one.kind is one.VAR_POSITIONAL:
            _refuse(name, tell("tool.signature.star", name=one.name))
    if first in ("self", "cls") and inspect.isfunction(fn) and "." in fn.__qualname__.rpartition("<locals>.")[2]:
        _refuse(name, tell("tool.signature.method", first=first, name=fn.__name__))
    return parameters


def _hints(name: str, fn: Any, wanted: _Parameters, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters' annotations as types; `Unresolved` if a name in them is unknown."""
    source = inspect.unwrap(getattr(fn, "func", fn))  # a partial has the hints of its function
    if not hasattr(source, "__annotations__"):
        source = type(source).__call__
    inside = getattr(source, "__globals__", {})
    # Local classes, and names imported for type checkers only.
    known = {"Context": Context, "rerail": sys.modules.get("rerail"), **inside, **names}
    try:
        written = getattr(source, "__annotations__", {})
        # The return type does not matter here, and is often a name that only type checkers know.
        asked = types.SimpleNamespace(__annotations__={one: written[one] for one in wanted if one in written})
        return typing.get_type_hints(asked, inside, known, include_extras=True)
    except NameError as error:
        raise Unresolved(tell("tool.signature.unknown_name", name=name, error=error)) from error
    except (TypeError, AttributeError, SyntaxError) as error:
        raise ValueError(tell("tool.signature.annotations", name=name, error=error)) from error


def _context_parameter(parameters: _Parameters, hints: Mapping[str, Any]) -> str | None:
    for name, parameter in parameters.items():
        hint = hints.get(name)  # of a **parameter it is about the values
        wants = hint is Context or (_is_union(hint) and Context in typing.get_args(hint))
        if wants and parameter.kind is not parameter.VAR_KEYWORD:
            return name
    plain = parameters.get("ctx")
    return "ctx" if plain is not None and "ctx" not in hints and plain.kind is not plain.VAR_KEYWORD else None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)


def _hint_of(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    # `name: str = None` is common and means that null is fine.
    return hint | None if parameter.default is None and hint is not Any else hint


# --- Schemas -------------------------------------------------------------------------------------------------------


def _adapter(name: str, fields: Mapping[str, Any], parameters: _Parameters, anything: bool) -> Any:
    """Return pydantic's adapter of the arguments: a typed dict may have keys of any name, unlike a model."""
    from typing import NotRequired

    import pydantic
    from typing_extensions import TypedDict

    wanted = {
        field: hint if parameters[field].default is inspect.Parameter.empty else NotRequired[hint]
        for field, hint in fields.items()
    }
    arguments = cast(Any, TypedDict)(name, wanted)
    arguments.__pydantic_config__ = pydantic.ConfigDict(extra="allow" if anything else "forbid")
    try:
        return pydantic.TypeAdapter(arguments)
    except (pydantic.PydanticUserError, pydantic.PydanticUndefinedAnnotation) as error:
        raise ValueError(_culprit(name, fields, error)) from error


def _culprit(name: str, fields: Mapping[str, Any], error: Exception) -> str:
    """Return the fault: the parameter without a JSON form."""
    import pydantic

    for field, hint in fields.items():
        try:
            pydantic.TypeAdapter(hint).json_schema()
        except (pydantic.PydanticUserError, pydantic.PydanticUndefinedAnnotation):
            return tell("tool.signature.no_schema", name=name, field=field, hint=hint)
    return tell("tool.signature.no_schema_at_all", name=name, error=error)


def _schema(adapter: Any, name: str, fields: Mapping[str, Any], parameters: _Parameters, docs: Docs) -> dict[str, Any]:
    import pydantic
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        """Drop the titles that only repeat the names."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    try:
        schema: dict[str, Any] = adapter.json_schema(schema_generator=Untitled)
    except pydantic.PydanticUserError as error:
        raise ValueError(_culprit(name, fields, error)) from error
    schema.pop("title", None)
    for field, rules in schema.get("properties", {}).items():
        if field in docs.parameters:
            rules.setdefault("description", docs.parameters[field])
        if field in parameters:
            default = parameters[field].default
            default = default.value if isinstance(default, enum.Enum) else default
            if _is_plain_value(default):
                rules.setdefault("default", default)
    schema.setdefault("properties", {})
    schema.setdefault("additionalProperties", True)
    return schema


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain_value, value))
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain_value(one) for key, one in value.items())
    return value is None or type(value) in (bool, int, float, str)


# --- Conversion ----------------------------------------------------------------------------------------------------

_PLAIN = frozenset({Any, object, None, type(None), str, int, float, bool, list, dict})
_PLAIN_ORIGINS = frozenset(
    {list, dict, abc.Sequence, abc.Collection, abc.Iterable, abc.Mapping, abc.MutableMapping, abc.MutableSequence}
)


def _needs_conversion(fields: Mapping[str, Any]) -> bool:
    return not all(map(_is_plain, fields.values()))


def _is_plain(hint: Any) -> bool:
    """Return True if a JSON value that fits the schema already has the annotated type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        inner = getattr(hint, "__supertype__", None)  # NewType
        return hint in _PLAIN or hint in _PLAIN_ORIGINS or (inner is not None and _is_plain(inner))
    if origin is Annotated:
        return _is_plain(args[0]) and all(map(_is_plain_note, args[1:]))
    if origin is Literal:
        return not any(isinstance(one, enum.Enum) for one in args)
    return (_is_union(hint) or origin in _PLAIN_ORIGINS) and all(map(_is_plain, args))


def _is_plain_note(note: Any) -> bool:
    """Return True if an annotation only describes or limits; a limit is in the schema, a validator is not."""
    if isinstance(note, str):
        return True
    kind = type(note)
    if kind.__module__ == "annotated_types":
        return kind.__name__ not in ("Predicate", "Not")
    # A field with an alias has another name outside than inside.
    return kind.__name__ == "FieldInfo" and getattr(note, "validation_alias", None) is None


def _converter(adapter: Any) -> Convert:
    import pydantic

    def convert(args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", adapter.validate_python(args))
        except pydantic.ValidationError as error:
            raise ToolError(_faults(error), code="ARGS_INVALID", lost=False) from error

    return convert


def _faults(error: Any) -> str:
    faults = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)[:10]]
    return tell("error.function.args", faults="; ".join(f"{where}: {what}" for where, what in faults))


def _lenient_converter(fields: Mapping[str, Any], parameters: _Parameters) -> Convert | None:
    """Convert values of any type where pydantic knows how; for a tool with a schema of its own."""
    if not _needs_conversion(fields):
        return None
    try:
        return _converter(_adapter("arguments", fields, parameters, anything=True))
    except ValueError:
        return None


# --- Docstrings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Docs:
    """The first line, and the described parameters."""

    summary: str = ""
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)


_GOOGLE = re.compile(r"(?:keyword |other )?(?:args|arguments|parameters|params):\s*", re.IGNORECASE)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(?:other )?parameters\s*", re.IGNORECASE)
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_RULE = re.compile(r"-{3,}\s*")
_REST = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def read(text: str | None) -> Docs:
    """Parse a docstring, which may be absent."""
    lines = inspect.cleandoc(text).splitlines() if text else []
    if not lines:
        return Docs()
    found: dict[str, list[str]] = {}
    for name, words in (*_google(lines), *_numpy(lines), *_rest(lines)):
        found.setdefault(name, []).append(words)
    described = {name: " ".join(filter(None, words)).strip() for name, words in found.items()}
    return Docs(lines[0].strip(), {name: words for name, words in described.items() if words})


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _google(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Parse `Args:`, then indented `name (type): words` with deeper continuation lines."""
    at = 0
    while at < len(lines):
        header = lines[at]
        at += 1
        if not _GOOGLE.fullmatch(header.strip()):
            continue
        name, level = "", 0
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > _indent(header)):
            line = lines[at]
            at += 1
            entry = _GOOGLE_ENTRY.fullmatch(line.strip())
            level = level or _indent(line)
            if entry and _indent(line) == level:
                name = entry[1]
                yield name, entry[2]
            elif name and line.strip():
                yield name, line.strip()


def _numpy(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Parse `Parameters` above a rule, then `name : type` with its words indented below."""
    for at in range(len(lines) - 1):
        if not (_NUMPY.fullmatch(lines[at].strip()) and _RULE.fullmatch(lines[at + 1].strip())):
            continue
        names: list[str] = []
        for line, below in zip(lines[at + 2 :], [*lines[at + 3 :], ""], strict=True):
            if _RULE.fullmatch(below.strip()):  # the next section's title
                break
            entry = _NUMPY_ENTRY.fullmatch(line.strip())
            if line.strip() and _indent(line) > _indent(lines[at]):
                yield from ((name, line.strip()) for name in names)
            elif entry:
                names = [name.strip(" *") for name in entry[1].split(",")]


def _rest(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Parse `:param type name: words` with indented continuation lines."""
    name, level = "", 0
    for line in lines:
        entry = _REST.fullmatch(line.strip())
        if entry:
            name, level = entry[1], _indent(line)
            yield name, entry[2]
        elif name and line.strip() and _indent(line) > level:
            yield name, line.strip()
        else:
            name = ""
