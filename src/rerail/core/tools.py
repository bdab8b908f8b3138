"""What the core knows about a tool: its shape and its promises, not how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rerail.core.plan import Check, Effect, Trust
from rerail.core.schema import Schema

ANYTHING = Schema(True)


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
    cost: float | None = None  # what a call costs, where that is declared (H4)
    reports: bool = True  # whether a call can report tokens and cost; one that cannot costs what is declared, else 0

    def to_dict(self, source: str | None = None) -> dict[str, Any]:
        """The tool as plain data; ``source`` is where it comes from."""
        return {
            "name": self.name, "description": self.description, "effect": str(self.effect), "timeout": self.timeout,
            "alternatives": list(self.alternatives), "provider": self.provider or None,
            "verifiable": self.verifiable, "schema": self.schema.source, "source": source,
            **({"cost": self.cost} if self.cost is not None else {}),
        }  # fmt: skip


Tools = Mapping[str, ToolSpec]
