"""What the core knows about a tool: its shape and its promises, not how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rerail.core.outcome import Errors
from rerail.core.plan import Check, Effect, Trust
from rerail.core.schema import Schema
from rerail.core.schema_problems import resolve

ANYTHING = Schema(True)
MAX_DEPTH = 30  # of arguments that are compared without their defaults

# loop: on the event loop, ends when cancelled · thread: goes on when cancelled · process: is killed, and ends with its
# owner · request: nothing can be seen of it once it was sent
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
    secrets: tuple[str, ...] = ()  # environment variables whose values it knows, and nobody else may see
    fingerprint: str = ""
    runs: Runs = "loop"  # where a call is at work, and so what can be seen of its end
    errors: Errors = ""  # how its errors are read (X4)
    settle: float | str | None = None  # seconds until its effect can be read by whoever looks; "never": not to rely on
    idempotent_for: float | None = None  # seconds for which the service remembers an idempotency key (E2)
    keyed: bool = False  # it can hand its idempotency key on
    fenced: bool = False  # it makes sure that its process still owns the run, right before its effect (E11)
    on_doubt: str = ""  # wait or fail, if its effect is in doubt (E3)
    declared: bool = True  # its effect was declared, or follows from a rule of its kind; else it is assumed (E3)
    must_declare: bool = False  # plans may not use it until its effect is declared (`tools.require_effect`)
    cost: float | None = None  # what a call costs, where that is declared (H4)
    reports: bool = True  # whether a call can report tokens and cost; one that cannot costs what is declared, else 0

    def plain(self, args: Any) -> Any:
        """The arguments without what only spells a default out, 1.0 as 1: calls that differ in these are the same."""
        return _plain(args, self.schema.source, self.schema.source)

    def to_dict(self, source: str | None = None) -> dict[str, Any]:
        """The tool as plain data; ``source`` is where it comes from."""
        return {
            "name": self.name, "description": self.description, "effect": str(self.effect), "declared": self.declared,
            "timeout": self.timeout,
            "alternatives": list(self.alternatives), "provider": self.provider or None,
            "verifiable": self.verifiable, "schema": self.schema.source, "source": source,
            **({"cost": self.cost} if self.cost is not None else {}),
        }  # fmt: skip


def _plain(value: Any, part: Any, root: Any, depth: int = 0) -> Any:
    """A value without the defaults that the schema of it knows, and whole numbers as such."""
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
    """A part of a schema, where it is defined; of a choice with null, the other."""
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
