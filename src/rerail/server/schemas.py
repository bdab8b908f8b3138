"""Schemas of the HTTP API's description: bodies, answers, examples, problems.

Rules of this file:
- Descriptions of the protocol are for programmers, and in English, as its names are. Those of answers are data:
  `api.json` beside this file.
- A shape of an answer is written in words, `name:kind`: s string, b boolean, i integer, n number, o object, a array, *
  anything; a `?` behind it allows null. `&name` stands for the words of another shape, `#name` for another entry.
  `[…]` is a list, `{"*": …}` a mapping from ids; under `""` are the words of an object with further fields.
- All fields are always there, unless their name has a `~` before it. More may come.
"""

from __future__ import annotations

from pathlib import Path as File
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, create_model

from rerail.i18n import Language
from rerail.kernel.commands import FORESEEN, Add, Command, Confirm, Retry, options_of

Shape = dict[str, Any]
Answers = dict[int | str, dict[str, Any]]

_API: dict[str, Any] = msgspec.json.decode(File(__file__).with_name("api.json").read_bytes())
_PLANS = [_API["examples"]["plan"]]
_KINDS = {"s": "string", "b": "boolean", "i": "integer", "n": "number", "o": "object", "a": "array"}
_BLANKS: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0.0, "object": {}, "array": []}


def shape(told: Any) -> Shape:
    match told:
        case "[s]":
            return {"type": "array", "items": {"type": "string"}}
        case str() if told.startswith("#"):
            return shape(_API["shapes"][told[1:]])
        case [one]:
            return {"type": "array", "items": shape(one)}
        case {"*": one}:
            return {"type": "object", "additionalProperties": shape(one)}
        case _:
            pass
    inside = {} if isinstance(told, str) else {name: shape(one) for name, one in told.items() if name}
    words = dict(word.partition(":")[::2] for word in _words(told if isinstance(told, str) else told[""]))
    required = [name for name in (*words, *inside) if not name.startswith("~")]
    fields = {name.removeprefix("~"): _kind(kind) for name, kind in words.items()}
    return {"type": "object", "required": required, "properties": {**fields, **inside}}


def _words(told: str) -> list[str]:
    """Return the words of a shape, those of others that it names included."""
    return [one for word in told.split() for one in (_words(_API["shapes"][word[1:]]) if word[0] == "&" else [word])]


def _kind(word: str) -> Shape:
    name = _KINDS.get(word.removesuffix("?"))
    if name is None:
        return {}
    return {"type": [name, "null"]} if word.endswith("?") else {"type": name}


def filled(example: Any, schema: Shape) -> Any:
    """Return an example with every field of such an answer; fields without a given value get a default."""
    if isinstance(example, str) and example.startswith("#"):
        return filled(_API["examples"][example[1:]], schema)
    if isinstance(example, list):
        return [filled(one, schema.get("items", {})) for one in example]
    if not isinstance(example, dict):
        return example
    inside, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    # The library drops nulls from the description, so examples have a value everywhere.
    given = {name: filled(value, inside.get(name, more)) for name, value in example.items() if value is not None}
    return {**{name: _blank(inside[name]) for name in schema.get("required", ())}, **given}


def _blank(schema: Shape) -> Any:
    kind = schema.get("type", "string")
    return _BLANKS[kind if isinstance(kind, str) else kind[0]]


def answers(name: str) -> Answers:
    """Return the description of a route's answers, problems first."""
    found: Answers = {}
    told = dict(_API["answers"][name])
    for kind in told.pop("problems", ["looking"]):
        found |= {int(status): _problem(int(status), *row) for status, row in _API["problems"][kind].items()}
    for status, row in told.items():
        found[int(status)] = row if isinstance(row, dict) else _answer(*row)
    return found


def _answer(description: str, kind: str, example: Any) -> dict[str, Any]:
    schema = shape(f"#{kind}")
    content = {"application/json": {"schema": schema, "example": filled(example, schema)}}
    return {"description": description, "content": content}


def _problem(status: int, code: str, detail: str, hint: str = "", more: Shape | None = None) -> dict[str, Any]:
    kind, title = f"urn:rerail:problem:{code.lower()}", code.replace("_", " ").capitalize()
    example = {"type": kind, "title": title, "status": status, "detail": detail, "code": code, "hint": hint}
    content = {"schema": _API["problem"], "example": {**example, **(more or {})}}
    return {"description": title, "content": {"application/problem+json": content}}


# -- Bodies and parameters ------------------------------------------------------------------------------------------

MOST = 2**53 - 1  # the largest whole number that every JSON reader keeps

RunPath = Annotated[
    str, Path(min_length=1, max_length=200, description="A run's id, or an unambiguous beginning of it.")
]
StatusWord = Literal["pending", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]
Lang = Annotated[Language | None, Query(description="The language of sentences; else Accept-Language.")]
Words = Annotated[bool, Query(description="Say of each event, as `words`, what it says in the reader's language.")]
DryRun = Annotated[bool, Field(description="Only tell what it would lead to.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StartBody(_Body):
    """A run to be started: a plan, or an objective that the model makes a plan for."""

    plan: Annotated[
        dict[str, Any] | list[Any] | str | None,
        Field(description="Objective and steps; or the same as YAML or JSON text.", examples=_PLANS),
    ] = None
    objective: Annotated[str | None, Field(min_length=1, max_length=20_000)] = None
    fallback: Annotated[
        dict[str, Any] | list[Any] | str | None, Field(description="The plan that runs if none can be made.")
    ] = None
    run_id: Annotated[str | None, Field(description="The run's id, if it should not be drawn.")] = None
    parent: Annotated[str | None, Field(min_length=1, max_length=200, description="The run that it follows.")] = None
    queue: Annotated[bool, Field(description="Leave it to a worker that shares the store.")] = False
    on: Annotated[str | None, Field(max_length=20, deprecated=True, description="Gone; refused. Use queue.")] = None


class PlanBody(_Body):
    """A plan to be looked at."""

    plan: Annotated[dict[str, Any] | list[Any] | str, Field(examples=_PLANS)]


class ObjectiveBody(_Body):
    """Something to be done, for which the model makes a plan."""

    objective: Annotated[str, Field(min_length=1, max_length=20_000)]


class RetryAllBody(_Body):
    """How to retry every run that failed."""

    clean: Annotated[bool, Field(description="Start over: everything runs again.")] = False
    force: Annotated[bool, Field(description="Pass the retry limit and permanent errors.")] = False
    dry_run: Annotated[bool, Field(description="Only tell what would run again, and why.")] = False
    confirmed: Annotated[bool, Field(description="Needed with clean, once its dry run was seen.")] = False
    limit: Annotated[int, Field(ge=1, le=200, description="So many runs, the oldest; `left` tells of the others.")] = 50


Edits = Annotated[
    dict[str, str | dict[str, str]],
    Field(max_length=100, description="Files that it reads → what they should say: a text, or {base64: …}."),
]
Steps = Annotated[
    Annotated[list[Any], Field(min_length=1, max_length=100_000)] | str,
    Field(
        description="The steps; or the same as YAML or JSON text.",
        examples=[[{"id": "more", "tool": "greet", "args": {}}]],
    ),
]
Refusing = Annotated[bool, Field(description="Say no: the step fails.")]
Confirmed = Annotated[bool, Field(description="Needed with clean, once its dry run was seen.")]
# Fields of bodies beside the options of their command.
_BESIDES: dict[type[Command], dict[str, Any]] = {
    Confirm: {"refuse": (Refusing, False), "edit": (Edits, {})},
    Retry: {"confirmed": (Confirmed, False)},
    Add: {"steps": (Steps, ...)},
}


_BOUNDS: dict[str, tuple[int | None, int | None]] = {"tool": (1, None), "remove": (None, 1000)}


def body_of(command: type[Command]) -> type[_Body]:
    """The body that gives a command: its options, each as the command describes it."""
    options = {name: _option(one) for name, one in options_of(command).items()}
    dry = {"dry_run": (DryRun, False)} if command in FORESEEN else {}
    name = f"{command.__name__}Body"
    made: dict[str, Any] = {**options, **_BESIDES.get(command, {}), **dry}
    return create_model(name, __base__=_Body, __doc__=command.__doc__, **made)


def _option(one: msgspec.structs.FieldInfo) -> tuple[Any, Any]:
    kind, meta = get_args(one.type)
    if get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    least, most = _BOUNDS.get(one.name, (meta.min_length, meta.max_length))
    told = Field(description=meta.description, examples=meta.examples, min_length=least, max_length=most)
    if one.required:
        return Annotated[kind, told], ...
    default = one.default_factory() if one.default is msgspec.NODEFAULT else one.default
    if default in ("", (), None, msgspec.UNSET) and one.name != "reason":  # left out, or null
        return Annotated[kind | None, told], None
    return Annotated[kind, told], default
