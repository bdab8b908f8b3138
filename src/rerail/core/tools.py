"""What the core knows about a tool: its shape and its promises, not how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rerail.core.outcome import Errors
from rerail.core.plan import Check, Effect, Trust
from rerail.core.schema import Schema

ANYTHING = Schema(True)

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
        """The arguments without those that only spell out a default: two calls that differ in these are the same."""
        schema = self.schema.source
        known = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(args, Mapping) or not isinstance(known, Mapping):
            return args
        return {name: value for name, value in args.items() if not _is_default(known.get(name), value)}

    def to_dict(self, source: str | None = None) -> dict[str, Any]:
        """The tool as plain data; ``source`` is where it comes from."""
        return {
            "name": self.name, "description": self.description, "effect": str(self.effect), "declared": self.declared,
            "timeout": self.timeout,
            "alternatives": list(self.alternatives), "provider": self.provider or None,
            "verifiable": self.verifiable, "schema": self.schema.source, "source": source,
            **({"cost": self.cost} if self.cost is not None else {}),
        }  # fmt: skip


def _is_default(part: Any, value: Any) -> bool:
    if not isinstance(part, Mapping) or "default" not in part:
        return False
    default = part["default"]
    return type(default) is type(value) and bool(default == value)


Tools = Mapping[str, ToolSpec]
