"""Tool specs: shape and promises of a tool, not the way it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rerail.plan.step import Check, Effect, Trust
from rerail.values.schema import Schema
from rerail.values.schema_check import resolve

ANYTHING = Schema(True)
MAX_DEPTH = 30  # nesting of arguments that are compared without their defaults

# loop: on the event loop, ends when cancelled · thread: goes on when cancelled · process: is killed, and ends with its
# owner · request: invisible once it was sent
Runs = Literal["loop", "thread", "process", "request"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as plans, budgets and the ladder see it."""

    name: str
    description: str = ""
    schema: Schema = field(default=ANYTHING, compare=False)
    effect: Effect = Effect.REPEATABLE
    timeout: float | None = None
    alternatives: tuple[str, ...] = ()
    provider: str = ""
    check: Check | None = None
    trust_output: bool | Trust = False
    verifiable: bool = False
    probes: bool = False
    secrets: tuple[str, ...] = ()  # environment variables with secrets that only this tool may know
    fingerprint: str = ""
    runs: Runs = "loop"  # where a call runs, and so what can be observed of its end
    errors: Errors = ""  # how its errors are read (X4)
    settle: float | str | None = None  # seconds until a look can read its effect; "never": a look proves no absence
    idempotent_for: float | None = None  # seconds for which the service remembers an idempotency key (E2)
    keyed: bool = False  # it can pass its idempotency key on
    fenced: bool = False  # it verifies right before its effect that its process still owns the run (E11)
    on_doubt: str = ""  # wait or fail, if its effect is in doubt (E3)
    declared: bool = True  # its effect was declared, or follows from a rule of its kind; else it is assumed (E3)
    must_declare: bool = False  # plans may not use it until its effect is declared (`tools.require_effect`)
    cost: float | None = None  # the declared cost of a call, if any (H4)
    reports: bool = True  # a call can report tokens and cost; without reports it costs what is declared, else 0

    def plain(self, args: Any) -> Any:
        """Return the arguments without explicit defaults, and 1.0 as 1: calls equal in these are the same call."""
        return _plain(args, self.schema.source, self.schema.source)

    def to_dict(self, source: str | None = None) -> dict[str, Any]:
        """Return the tool as plain data; ``source`` is its origin."""
        return {
            "name": self.name, "description": self.description, "effect": str(self.effect), "declared": self.declared,
            "timeout": self.timeout,
            "alternatives": list(self.alternatives), "provider": self.provider or None,
            "verifiable": self.verifiable, "schema": self.schema.source, "source": source,
            **({"cost": self.cost} if self.cost is not None else {}),
        }  # fmt: skip


def _plain(value: Any, part: Any, root: Any, depth: int = 0) -> Any:
    """Return a value without its schema's defaults, and with whole numbers as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if depth > MAX_DEPTH or not isinstance(value, Mapping | list):
        return value
    part = _referred(part, root)
    if isinstance(value, list):
        return [_plain(item, part.get("items"), root, depth + 1) for item in value]
    known = part.get("properties")
    known = known if isinstance(known, Mapping) else {}
    plain = {name: _plain(item, known.get(name), root, depth + 1) for name, item in value.items()}
    return {name: item for name, item in plain.items() if not _is_default(item, _referred(known.get(name), root))}


def _referred(part: Any, root: Any) -> Mapping[str, Any]:
    """Return a part of a schema, with references followed; of a choice with null, the other part."""
    if not isinstance(part, Mapping):
        return {}
    default = {"default": part["default"]} if "default" in part else {}
    choices = [one for one in part.get("anyOf", ()) if isinstance(one, Mapping) and one != {"type": "null"}]
    if len(choices) == 1:
        return _referred({**choices[0], **default}, root)
    if "$ref" in part:
        found = resolve(root, part["$ref"])
        return _referred({**found, **default}, root) if isinstance(found, Mapping) else {}
    return dict(part)


def _is_default(value: Any, part: Mapping[str, Any]) -> bool:
    if "default" not in part:
        return False
    default = _plain(part["default"], None, None)
    return type(default) is type(value) and bool(default == value)


Tools = Mapping[str, ToolSpec]

# How a tool's errors are read: `not_done`, for every error; `by_status`, as for one HTTP request.
Errors = Literal["", "not_done", "by_status"]
ERRORS: Final = ("not_done", "by_status")
