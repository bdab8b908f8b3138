"""The shapes of the HTTP API's answers, for its description: which fields there are, and of what kind.

Rules of this file:
- A shape is written in words, `name:kind`: s string, b boolean, i integer, n number, o object, a array, * anything; a
  `?` behind it says that it may be null. A field that has a shape of its own is given by its name.
- All fields are always there, unless their name has a `~` before it. More may come.
"""

from __future__ import annotations

from typing import Any

Shape = dict[str, Any]

_KINDS = {"s": "string", "b": "boolean", "i": "integer", "n": "number", "o": "object", "a": "array"}


def shape(words: str, **inside: Shape) -> Shape:
    """The schema of an object with these fields."""
    properties: dict[str, Shape] = {}
    required = []
    for word in words.split():
        name, _, kind = word.partition(":")
        if not name.startswith("~"):
            required.append(name)
        properties[name.removeprefix("~")] = _kind(kind)
    return {"type": "object", "required": [*required, *inside], "properties": {**properties, **inside}}


def _kind(word: str) -> Shape:
    name = _KINDS.get(word.removesuffix("?"))
    if name is None:
        return {}
    return {"type": [name, "null"]} if word.endswith("?") else {"type": name}


def each(found: Shape) -> Shape:
    """A list of these."""
    return {"type": "array", "items": found}


def by_id(found: Shape) -> Shape:
    """One of these for each id."""
    return {"type": "object", "additionalProperties": found}


_TEXTS: Shape = each({"type": "string"})
_STEP = shape(
    "id:s status:s code:s? output:* error:o? attempts:i tool:s args:* degraded:s? stale:s? started_at:n? elapsed:n"
)
_RUN = (
    "run_id:s status:s success:b complete:b degraded:b exec:o failed_steps:a consequences:a disputed:a judge:s? "
    "summary:s objective:s parent:s? round:i retries:i revision:i waiting_on:a never_started:a stopped:s seq:i "
    "created_at:n retry_history:a shown_status:s failed_stage:s owner:s? interrupted:b superseded:s? "
)
RUN = shape(f"{_RUN} in_doubt:a assumed:a ~once:a", steps=by_id(_STEP))
_SEEN_WORDS = (
    "id:s title:s tool:s stage:s status:s code:s? needs:a soft:a optional:b confirm:* effect:s? attempts:i "
    "retries_left:i error:o? degraded:s? stale:s? unverified:b disputed:b waiting_for:s? started_at:n? ended_at:n? "
    "elapsed:n next_try_at:n? rung:s? files:a spans:a waits:a actions:a"
)
_SEEN = shape(_SEEN_WORDS)
VIEW = shape(
    f"{_RUN} updated_at:n ended_at:n? elapsed:n at:n counts:o paused:b judgement:o? drives:b follow_up:s?",
    budgets=each(shape("name:s used:n of:n? unit:s")), actions=_TEXTS, critical=_TEXTS, stages=_TEXTS, order=_TEXTS,
    steps=by_id(_SEEN),
)  # fmt: skip
_TRY = shape(
    "attempt:i tool:s effect:s at:n ended_at:n? elapsed:n? args:* changed:o outcome:s error:o? rung:s? why:s "
    "reflection:o? verified:o? logs:a ~called:b"
)
ARTIFACT = shape("name:s step:s attempt:i digest:s size:i media:s at:n")
STEP = shape(
    f"{_SEEN_WORDS} run_id:s args:* output:* why:s waiting_on:o? reflections:a plan_step:o downstream:a",
    tries=each(_TRY), artifacts=each(ARTIFACT),
)  # fmt: skip
ROW = shape(
    "run_id:s status:s objective:s parent:s? created_at:n updated_at:n events:i owner:s? interrupted:b degraded:b "
    "shown_status:s failed_stage:s counts:o?"
)
ROWS = shape("next:s?", runs=each(ROW))
EVENTS = shape("next:i?", events=each(shape("seq:i run:s at:n type:s ~words:s")))
WHY = shape("run_id:s step:s? text:s failures:a", story=_TEXTS)
_SPENT = "status:s calls:i waited:n"
_SPENT_IN_ALL = f"{_SPENT} seconds:n tokens:i cost:n"
REPLAY = shape(
    "run_id:s settings:o known:b same:b branch:i? not_replayed:i drift:i?",
    recorded=shape(_SPENT_IN_ALL), replayed=shape(_SPENT_IN_ALL), instead=each(shape("does:s")),
    steps=each(shape("step:s changed:b other_output:b", recorded=shape(_SPENT), replayed=shape(_SPENT))),
    unknown=each(shape("what:s step:s? tool:s? call:i? round:i")),
)  # fmt: skip
GRAPH = shape(
    "", nodes=each(shape("id:s tool:s title:s? status:s layer:i")), edges=each(shape("from:s to:s when:s"))
)  # fmt: skip
REVISIONS = shape("run_id:s", revisions=each(shape("revision:i seq:i at:n by:s reason:s kind:s steps:a")))
LOGS = shape("run_id:s", lines=each(shape("at:n? seq:i? kind:s step:s? text:s")))
TOOLS = shape(
    "",
    tools=each(
        shape(
            "name:s description:s effect:s declared:b timeout:n? alternatives:a provider:s? verifiable:b schema:* "
            "source:s?"
        )
    ),
    withheld=each(shape("name:s kind:s")),
)
SETTINGS = shape("", settings=each(shape("key:s value:* source:s")))
MEMORY = shape("memory:a")
HEALTH = shape("ok:b version:s store:s read_only:b language:s token:b")
FAULT = shape("code:s step:s? message:s hint:s")
CHECK = shape(
    "ok:b steps:i depth:i width:i tools_checked:b objective:s", faults=each(FAULT), warnings=each(FAULT)
)  # fmt: skip
PLAN = shape("plan:o by:s")
PREVIEW = shape(
    "run_id:s estimate:o stage:s? damaged:o backup:s? becomes:o leads_to:s?",
    roots=_TEXTS, rerun=each(shape("step:s why:s")), kept=_TEXTS, once=_TEXTS, passed=_TEXTS, files=_TEXTS,
    backs_up=_TEXTS, asks=_TEXTS, edited=_TEXTS,
)  # fmt: skip
MANY = shape(
    "dry_run:b left:i", runs=each(shape("run_id:s objective:s before:s ok:b preview:o? problem:o?"))
)  # fmt: skip


_BLANKS: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0.0, "object": {}, "array": []}


def filled(example: Any, schema: Shape) -> Any:
    """An example with every field that such an answer has, also those that nobody made up a value for."""
    if isinstance(example, list):
        return [filled(one, schema.get("items", {})) for one in example]
    if not isinstance(example, dict):
        return example
    inside, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    # What is null is left out of the description by the library, so examples have a value everywhere.
    given = {name: filled(value, inside.get(name, more)) for name, value in example.items() if value is not None}
    return {**{name: _blank(inside[name]) for name in schema.get("required", ())}, **given}


def _blank(schema: Shape) -> Any:
    kind = schema.get("type", "string")
    return _BLANKS[kind if isinstance(kind, str) else kind[0]]
