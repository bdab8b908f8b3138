"""Texts with `{placeholders}`, filled from a call's arguments: the template language of shell and HTTP tools.

Rules of this file:
- A placeholder is only a name: no expressions, no formats. `{{` and `}}` are literal braces.
- `{name...}` is a list, in the arguments of a command alone: one argument for each of its items.
- `{key}` in a tool of effect `once` is `{ctx.key}`, its idempotency key, unless the tool's schema has such an argument.
- `{ctx.key}`, `{ctx.run}`, `{ctx.step}`, `{ctx.attempt}` and `{ctx.workspace}` come from the context (contract M3).
- `{env.NAME}` is an environment variable, looked up with every call; its value is a secret.
- Filled values are never parsed again: data stays data.
"""

from __future__ import annotations

import json
import os
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rerail.adapters.tools.spec import Options, unknown
from rerail.codes import Category
from rerail.context import Context, learn
from rerail.errors import ToolError
from rerail.i18n import tell
from rerail.plan.step import Effect

ENV: Final = "env."
KEY: Final = "ctx.key"
MANY: Final = "..."
CONTEXT: Final = ("ctx.run", "ctx.step", "ctx.attempt", "ctx.key", "ctx.workspace")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A name in braces; `{name...}` is a list."""

    name: str
    many: bool = False


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """A text in parts: literals and placeholders."""

    parts: tuple[str | Placeholder, ...]

    @property
    def whole(self) -> str | None:
        """Return the name if the text is one single placeholder: its value need not become text."""
        only = self.parts[0] if len(self.parts) == 1 else None
        return only.name if isinstance(only, Placeholder) else None

    @property
    def is_list(self) -> bool:
        """Return True if the text is a list's placeholder."""
        return any(isinstance(part, Placeholder) and part.many for part in self.parts)

    @property
    def names(self) -> list[str]:
        """Return the arguments in use."""
        return [name for name in self._all() if name not in CONTEXT and not name.startswith(ENV)]

    @property
    def variables(self) -> list[str]:
        """Return the environment variables in use."""
        return [name.removeprefix(ENV) for name in self._all() if name.startswith(ENV)]

    @property
    def hands_key(self) -> bool:
        """Return True if the text uses the call's idempotency key."""
        return KEY in self._all()

    def keyed(self) -> TextTemplate:
        """Give `{key}` its meaning, the call's idempotency key."""
        own = Placeholder("key")
        return TextTemplate(tuple(Placeholder(KEY) if part == own else part for part in self.parts))

    def _all(self) -> Iterator[str]:
        return (part.name for part in self.parts if isinstance(part, Placeholder))

    def absent(self, values: Values) -> bool:
        """Return True if a used value is missing or null."""
        return any(values.get(name) is None for name in self._all())

    def fill(self, values: Values, encode: Callable[[str, str], str] = lambda name, text: text) -> str:
        """Return the filled text; each value passes through `encode`, which gets its name too."""
        return "".join(
            part if isinstance(part, str) else encode(part.name, text_of(values.get(part.name))) for part in self.parts
        )


class Values:
    """Values of the placeholders in one call."""

    __slots__ = ("_args", "_ctx")

    def __init__(self, args: Mapping[str, Any], ctx: Any) -> None:
        self._args = args
        self._ctx = ctx

    def get(self, name: str) -> Any:
        """Return the value, or None if it was not given."""
        if name.startswith(ENV):
            return _variable(name.removeprefix(ENV))
        if name not in CONTEXT:
            return self._args.get(name)
        value = getattr(Context() if self._ctx is None else self._ctx, name.removeprefix("ctx."))
        return value if isinstance(value, int) else str(value)


def parse(text: str, where: str, *, lists: bool = False) -> TextTemplate:
    """Parse a text; ValueError, with the place, for braces that hold no name; ``lists``: it may be a list."""
    parts: list[str | Placeholder] = []
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(tell("tool.template.bad", where=where, error=error, text=text)) from error
    for literal, field, form, conversion in pieces:
        if literal:
            parts.append(literal)
        if field is None:
            continue
        if lists and text == f"{{{field}}}" and field.endswith(MANY) and field.removesuffix(MANY).isidentifier():
            return TextTemplate((Placeholder(field.removesuffix(MANY), many=True),))
        variable = field.startswith(ENV) and field.removeprefix(ENV).isidentifier()
        if form or conversion or not (field.isidentifier() or field in CONTEXT or variable):
            hint = f"; {unknown(field, CONTEXT)}" if field.startswith("ctx.") else ""
            raise ValueError(tell("tool.template.no_placeholder", where=where, text=text, field=field, hint=hint))
        parts.append(Placeholder(field))
    return TextTemplate(tuple(parts))


def _variable(name: str) -> str:
    value = os.environ.get(name)  # with every call: it may have been rotated
    if not value:
        told = tell("error.VARIABLE_UNSET", name=name)
        raise ToolError(told, code="VARIABLE_UNSET", category=Category.PERMANENT, lost=False)
    return learn(name, value)


def text_of(value: Any) -> str:
    """Return a JSON value as plain text."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def bad_argument(message: str) -> ToolError:
    """Return the error of an argument that fits the schema but cannot be used."""
    return ToolError(message, code="ARGS_INVALID", lost=False)


def is_once(effect: object) -> bool:
    """Return True if `{key}` has a meaning: a call of that effect must not be repeated."""
    return str(effect) == str(Effect.ONCE)


def has_key(schema: object) -> bool:
    """Return True if a schema has an argument named `key`."""
    return isinstance(schema, Mapping) and "key" in (schema.get("properties") or {})


def knowing(options: Options, templates: Iterable[TextTemplate]) -> Options:
    """Add the environment variables of a tool's texts to its secrets."""
    asked = [name for template in templates for name in template.variables]
    return {**options, "secrets": (*options.get("secrets", ()), *asked)} if asked else options


# --- Schemas -------------------------------------------------------------------------------------------------------

_SCALARS = ["string", "number", "boolean"]


def schema_for(name: str, templates: Iterable[TextTemplate], lists: Iterable[str], given: Any) -> Any:
    """Return the given schema if it covers every placeholder; else one of just the placeholders."""
    names = list(dict.fromkeys(one for template in templates for one in template.names))
    if given is None:
        many = set(lists)
        return {
            "type": "object",
            "properties": {one: _rules(one in many) for one in names},
            "required": names,
            "additionalProperties": False,
        }
    known = given.get("properties", {}) if isinstance(given, Mapping) else {}
    for one in names:
        if known and one not in known:
            raise ValueError(tell("tool.no_property", name=name, one=one, known=unknown(one, known)))
    return given


def _rules(many: bool) -> dict[str, Any]:
    return {"type": [*_SCALARS, "array"], "items": {"type": _SCALARS}} if many else {"type": _SCALARS}
