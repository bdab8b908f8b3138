"""Reads plans in every accepted spelling: data in, a `Plan` with faults out (contract P1, P3).

Rules of this file:
- Only unreadable input is an exception; everything else becomes a `Fault`, so that all faults are listed at once.
- A new spelling is a row in a table, never a branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rerail.i18n import tell
from rerail.plan.model import Plan
from rerail.plan.step import (
    WHEN_WORDS,
    Approval,
    Check,
    Effect,
    Fallback,
    Fault,
    Need,
    Produced,
    Step,
    Trust,
    Verify,
    When,
    numbered,
)
from rerail.values.json_values import is_number, show
from rerail.values.schema import nearest, problems

PLAN_KEYS = ("objective", "steps", "follow_up", "mcp", "finally")
PLAN_ALIASES = {"topic": "objective", "goal": "objective", "tasks": "steps"}
PLAN_IGNORED = frozenset({"id", "sessionId", "name", "version", "createdAt", "updatedAt", "status", "metadata"})
STEP_ALIASES = {
    "aiName": "tool",
    "type": "tool",
    "dependsOn": "needs",
    "depends_on": "needs",
    "dependencies": "needs",
    "description": "title",
    "parameters": "args",
}
STEP_IGNORED = frozenset({"status", "index"})
METADATA_ALIASES = {"maxRetries": "retries", "max_retries": "retries", "critical": "critical"}
METADATA_IGNORED = frozenset({"retryCount", "retry_count"})
NEED_ALIASES = {"taskId": "step", "task_id": "step", "id": "step", "condition": "when"}
MAX_ID = 10_240


class PlanUnreadable(ValueError):
    """The input is not a plan."""


MOST_STEPS = 200_000  # of one plan: each takes about a kilobyte in every place that holds it
MOST_FOLLOWING = 100  # plans in a chain of follow-ups
LONGEST = 1e15  # seconds; beyond this, a clock cannot represent single seconds


def read_plan(data: Any, deep: int = 0) -> Plan:
    """Read a plan from a mapping with steps, or a list of steps; ``deep`` is its place in the chain of follow-ups."""
    if deep > MOST_FOLLOWING:
        raise PlanUnreadable(tell("refuse.plan.too_many_follow", most=MOST_FOLLOWING))
    if isinstance(data, list):
        data = {"steps": data}
    if not isinstance(data, Mapping):
        raise PlanUnreadable(tell("refuse.plan.no_mapping", kind=_kind(data)))
    faults: list[Fault] = []
    fields = _rename(data, PLAN_KEYS, PLAN_ALIASES, PLAN_IGNORED, "", faults)
    raw = fields.get("steps")
    if raw is None:
        raise PlanUnreadable(tell("refuse.plan.steps_missing"))
    if isinstance(raw, Mapping):
        raw = [{"id": key, **value} if isinstance(value, Mapping) else value for key, value in raw.items()]
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        raise PlanUnreadable(tell("refuse.plan.steps_no_list", kind=_kind(raw)))
    if len(raw) > MOST_STEPS:
        raise PlanUnreadable(tell("refuse.plan.too_many_steps", count=len(raw), most=MOST_STEPS))
    objective = fields.get("objective", "")
    if not isinstance(objective, str):
        faults.append(Fault("BAD_VALUE", tell("refuse.plan.objective_no_text", kind=_kind(objective))))
        objective = str(objective)
    follow_up = None
    if fields.get("follow_up") is not None:
        try:
            follow_up = read_plan(fields["follow_up"], deep + 1)
        except PlanUnreadable as error:
            faults.append(Fault("BAD_VALUE", tell("refuse.plan.follow_up_unreadable", error=error)))
    mcp = _read_servers(fields["mcp"], faults) if fields.get("mcp") is not None else {}
    steps = tuple(read_steps(raw, faults))
    finals = _read_finally(fields["finally"], [step.id for step in steps], faults) if fields.get("finally") else ()
    return Plan(objective, steps, follow_up, tuple(faults), mcp, finals)


def _read_finally(data: Any, ids: list[str], faults: list[Fault]) -> tuple[str, ...]:
    """Return the ids of the steps that run at the end; a number is an id or an index, as in needs."""
    reader = _Reader({}, "", ids, set(ids), [])
    found = [reader.need(item) for item in (data if isinstance(data, list | tuple) else [data])]
    if None in found:
        told = tell("refuse.plan.expected", name="finally", expected=tell("plan.kind.steps"), kind=_kind(data))
        faults.append(Fault("BAD_VALUE", told))
    return tuple(dict.fromkeys(need.step for need in found if need is not None))


def _read_servers(data: Any, faults: list[Fault]) -> dict[str, Any]:
    """Return the servers by name, as written; the plan check refuses them."""
    if isinstance(data, Mapping):
        return {str(name): server for name, server in data.items()}
    faults.append(Fault("MCP_NOT_ALLOWED", tell("refuse.plan.mcp", names=_kind(data))))
    return {}


def read_steps(raw: Sequence[Any], faults: list[Fault], known: Sequence[str] = ()) -> list[Step]:
    """Read steps from plain data; ``known`` are existing ids when steps are added to a plan."""
    ids = [_id_of(item, len(known) + index) for index, item in enumerate(raw)]
    order = [*known, *ids]
    taken = set(order)
    steps, seen = [], Counter[str]()
    for index, item in enumerate(raw):
        if isinstance(item, Step):
            steps.append(item)
        elif isinstance(item, Mapping):
            found: list[Fault] = []
            steps.append(_Reader(item, ids[index], order, taken, found).read())
            faults += numbered(found, seen[ids[index]]) if found else ()
        else:
            faults.append(Fault("BAD_VALUE", tell("refuse.plan.step_no_mapping", index=index, kind=_kind(item))))
        seen[ids[index]] += 1
    return steps


def canonical(step: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a step's mapping under canonical keys; a key given twice stays as written, and is a fault later."""
    data: dict[Any, Any] = {}
    for key, value in step.items():
        name = STEP_ALIASES.get(key, key)
        data[key if name != key and (name in step or name in data) else name] = value
    return data


def _id_of(item: Any, index: int) -> str:
    if isinstance(item, Step):
        return item.id
    value = item.get("id") if isinstance(item, Mapping) else None
    if isinstance(value, int) and value.bit_length() > 10_000:
        return str(index)  # Python cannot print it; the reader of the step reports that it is no id
    return str(index) if value is None or isinstance(value, bool) else str(value)


def _rename(
    data: Mapping[Any, Any],
    known: Sequence[str],
    aliases: Mapping[str, str],
    ignored: frozenset[str],
    step: str,
    faults: list[Fault],
    prefix: str = "",
) -> dict[str, Any]:
    """Return the mapping under its canonical keys; unknown and duplicate keys become faults."""
    fields: dict[str, Any] = {}
    for key, value in data.items():
        name = aliases.get(key, key) if isinstance(key, str) else key
        if name in known:
            if name in fields:
                why = tell("refuse.plan.given_twice", prefix=prefix, name=name, key=key)
                faults.append(Fault("BAD_VALUE", why, step))
            fields[name] = value
        elif key not in ignored:
            hint = nearest(str(key), [*known, *aliases])
            told = "refuse.plan.unknown_key_near" if hint else "refuse.plan.unknown_key"
            message = tell(told, prefix=prefix, key=str(key)[:80], near=hint)
            faults.append(Fault("UNKNOWN_KEY", message, step))
    return fields


class _Reader:
    """Reads one step; each field has one reader that returns its value or notes a fault."""

    def __init__(
        self, data: Mapping[str, Any], name: str, order: Sequence[str], taken: set[str], faults: list[Fault]
    ) -> None:
        self.data, self.id, self.order, self.taken, self.faults = data, name, order, taken, faults

    def read(self) -> Step:
        fields = _rename(self.data, (*STEP_FIELDS, "metadata"), STEP_ALIASES, STEP_IGNORED, self.id, self.faults)
        metadata = fields.pop("metadata", None)
        if isinstance(metadata, Mapping):
            known = tuple(METADATA_ALIASES.values())
            inner = _rename(metadata, known, METADATA_ALIASES, METADATA_IGNORED, self.id, self.faults, "metadata.")
            fields = {**inner, **fields}
        elif metadata is not None:
            self.fault("metadata", "a mapping", metadata)
        self._check_id(fields.pop("id", None))
        values = {name: STEP_FIELDS[name](self, name, value) for name, value in fields.items() if value is not None}
        if values.get("tool") is _BAD:
            values["tool"] = ""
        if not values.get("tool"):
            self.faults.append(Fault("BAD_VALUE", tell("refuse.plan.tool_missing"), self.id))
            values["tool"] = ""
        return Step(id=self.id, **{name: value for name, value in values.items() if value is not _BAD})

    def _check_id(self, value: Any) -> None:
        huge = isinstance(value, int) and value.bit_length() > 10_000
        if value is not None and (huge or isinstance(value, bool) or not isinstance(value, str | int)):
            self.fault("id", tell("plan.kind.text"), value)
        if not self.id:
            self.faults.append(Fault("BAD_VALUE", tell("refuse.plan.id_empty"), self.id))
        if len(self.id) > MAX_ID:
            self.faults.append(Fault("BAD_VALUE", tell("refuse.plan.id_too_long", limit=MAX_ID), self.id[:60] + "…"))

    def fault(self, name: str, expected: str, value: Any) -> Any:
        why = tell("refuse.plan.expected", name=name, expected=expected, kind=_kind(value))
        self.faults.append(Fault("BAD_VALUE", why, self.id))
        return _BAD

    def files(self, name: str, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str | Mapping) for item in value):
            return self.fault(name, tell("plan.kind.files"), value)
        found = [Produced(item) if isinstance(item, str) else self.file(name, item) for item in value]
        return _BAD if _BAD in found else tuple(found)

    def file(self, name: str, item: Mapping[str, Any]) -> Any:
        keys = ("path", "format", "schema", "keys", "non_empty", "check")
        fields = _rename(item, keys, {"file": "path"}, frozenset(), self.id, self.faults, f"{name}.")
        for key in ("path", "format", "check"):
            if not isinstance(fields.get(key, ""), str) or (key == "path" and not fields.get(key)):
                return self.fault(f"{name}.{key}", "a text", fields.get(key))
        return self.checked(name, Produced, fields)

    def checked(self, name: str, kind: Callable[..., Any], fields: dict[str, Any]) -> Any:
        """Return a value with conditions: the schema, the keys, and whether it may be empty."""
        for problem in problems(fields.get("schema", True)):
            told = tell("refuse.plan.schema_faulty", name=name, problem=problem)
            self.faults.append(Fault("BAD_VALUE", told, self.id))
        for key, read in (("keys", _names), ("non_empty", _flag)):
            if key in fields:
                fields[key] = read(self, f"{name}.{key}", fields[key])
        return self.build(name, kind, fields)

    def part(self, name: str, value: Mapping[str, Any], *known: str) -> dict[str, Any]:
        """Return the fields of a nested mapping."""
        return _rename(value, known, {}, frozenset(), self.id, self.faults, f"{name}.")

    def fallback(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return self.fault(name, tell("plan.kind.fallback"), value)
        fields = self.part(name, value, "value", "tool", "args")
        if fields.get("tool") is not None and not isinstance(fields["tool"], str):
            return self.fault(f"{name}.tool", tell("plan.kind.text"), fields["tool"])
        by_tool = fields.get("tool") is not None
        by_value = fields.get("value") is not None or ("value" in fields and not by_tool)
        if by_tool == by_value:
            self.faults.append(Fault("BAD_VALUE", tell("refuse.plan.either_value_or_tool", name=name), self.id))
            if not by_tool:
                return _BAD  # without it, its tool and its references go unchecked
        return self.build(name, Fallback, fields)

    def gate(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value if isinstance(value, bool | str) else self.fault(name, tell("plan.kind.gate"), value)
        fields = self.part(name, value, "text", "by", "four_eyes")
        for key, read in (("text", _text), ("by", _names), ("four_eyes", _flag)):
            if key in fields:
                fields[key] = read(self, f"{name}.{key}", fields[key])
        return self.build(name, Approval, fields)

    def check(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return self.fault(name, "{schema, non_empty, keys}", value)
        return self.checked(name, Check, self.part(name, value, "schema", "non_empty", "keys"))

    def verify(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("tool"), str):
            return self.fault(name, "{tool: …, args: …, expect: …}", value)
        return self.build(name, Verify, self.part(name, value, "tool", "args", "expect"))

    def trust(self, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value if isinstance(value, bool) else self.fault(name, tell("plan.kind.trust"), value)
        fields = self.part(name, value, "ignore", "suspect")
        if "ignore" in fields:
            fields["ignore"] = _names(self, f"{name}.ignore", fields["ignore"])
        signs = fields.get("suspect", [])
        if not isinstance(signs, list | tuple) or not all(isinstance(sign, str | Mapping) for sign in signs):
            return self.fault(f"{name}.suspect", tell("plan.kind.signs"), signs)
        return self.build(name, Trust, {**fields, "suspect": tuple(signs)})

    def build(self, name: str, kind: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
        """Return a nested value, unless one of its own fields was bad."""
        if "args" in fields and _mapping(self, f"{name}.args", fields["args"]) is _BAD:
            return _BAD
        return _BAD if any(value is _BAD for value in fields.values()) else kind(**fields)

    def needs(self, name: str, value: Any) -> Any:
        wanted = value if isinstance(value, list | tuple) else [value]
        found = [self.need(item) for item in wanted]
        # A repeated need is one need; the last `when` counts.
        return tuple({need.step: need for need in found if need is not None}.values())

    def need(self, value: Any) -> Need | None:
        when: When | None = When.SUCCESS
        if isinstance(value, Mapping):
            fields = _rename(value, ("step", "when"), NEED_ALIASES, frozenset(), self.id, self.faults, "needs.")
            word = fields.get("when", "success")
            when = WHEN_WORDS.get(word) if isinstance(word, str) else None
            value = fields.get("step")
            if when is None:
                self.fault("needs.when", tell("plan.kind.when"), word)
                return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            self.fault("needs", tell("plan.kind.steps"), value)
            return None
        return Need(self.target(value), when or When.SUCCESS)

    def target(self, value: str | int) -> str:
        """Return a number as an id if one matches, else as an index (P3)."""
        name = str(value)
        if name not in self.taken and name.isdecimal() and len(name) < 10 and int(name) < len(self.order):
            return self.order[int(name)]
        return name


_BAD = object()
ReadField = Callable[[_Reader, str, Any], Any]


def _plain(kind: str, fits: Callable[[Any], bool], become: Callable[[Any], Any] = lambda value: value) -> ReadField:
    """Return the reader of a field without parts: the word for its kind, what it may hold, and what that becomes."""

    def read(reader: _Reader, name: str, value: Any) -> Any:
        return become(value) if fits(value) else reader.fault(name, tell(f"plan.kind.{kind}"), value)

    return read


def _all_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


_text = _plain("text", lambda value: isinstance(value, str))
_flag = _plain("flag", lambda value: isinstance(value, bool))
_count = _plain("count", lambda value: isinstance(value, int) and is_number(value) and 0 <= value < 2**63)
_whole = _plain("whole", lambda value: isinstance(value, int) and is_number(value) and abs(value) < 2**63)
_seconds = _plain("seconds", lambda value: is_number(value) and 0 < value < LONGEST, float)
_settle = _plain(
    "settle",
    lambda value: value == "never" or (is_number(value) and 0 <= value < LONGEST),
    lambda value: value if value == "never" else float(value),
)
_on_doubt = _plain("on_doubt", lambda value: value in ("wait", "fail"))
_effect = _plain("effect", lambda value: value in tuple(Effect), Effect)
_mapping = _plain("mapping", lambda value: isinstance(value, Mapping) and _all_texts(value), dict)
_names = _plain(
    "names",
    lambda value: isinstance(value, str) or (isinstance(value, Sequence) and _all_texts(value)),
    lambda value: (value,) if isinstance(value, str) else tuple(value),
)
_amounts = _plain(
    "amounts",
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(one, int | float) and 0 <= one < LONGEST for one in value.values())
    ),
    lambda value: {str(key): float(amount) for key, amount in value.items()},
)

STEP_FIELDS: Mapping[str, ReadField] = {
    "id": _text,
    "tool": _text,
    "args": _mapping,
    "needs": _Reader.needs,
    "title": _text,
    "stage": _text,
    "critical": _flag,
    "timeout": _seconds,
    "retries": _count,
    "effect": _effect,
    "alternatives": _names,
    "fallback": _Reader.fallback,
    "produces": _Reader.files,
    "confirm": _Reader.gate,
    "check": _Reader.check,
    "verify": _Reader.verify,
    "trust_output": _Reader.trust,
    "priority": _whole,
    "resources": _amounts,
    "on_doubt": _on_doubt,
    "settle": _settle,
    "idempotent_for": _seconds,
}


def _kind(value: Any) -> str:
    """Return a value for a message: itself if it is short, else its type."""
    if isinstance(value, str):
        return f"{value[:40]!r}"
    if isinstance(value, int | float):
        return show(value)
    if value is None:
        return tell("plan.kind.nothing")
    if isinstance(value, list | tuple):
        return tell("plan.kind.list")
    return tell("plan.kind.a_mapping") if isinstance(value, Mapping) else type(value).__name__
