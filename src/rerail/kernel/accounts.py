"""Accounts of a run: what its calls may spend and have spent (contract H4), and effects not to repeat (H7, H8).

Rules of this file:
- Every number is folded from the history: an intent reserves, the end of the call releases.
- One event costs O(1) here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rerail.kernel.events import StepStarted
from rerail.kernel.step_state import signature
from rerail.plan.tool_spec import ToolSpec


class SpendingNeed(NamedTuple):
    """What a call or a question may spend; None where a cap is set and the amount is unknown."""

    cost: float | None = 0.0
    tokens: int | None = 0

    @property
    def unknown(self) -> bool:
        """True if a capped amount is unknown: such calls run one at a time."""
        return self.cost is None or self.tokens is None


FREE = SpendingNeed()


class Reserved(msgspec.Struct, eq=False):
    """The sum of all reservations of calls under way."""

    calls: int = 0  # calls with a reservation
    cost: float = 0.0
    tokens: int = 0
    unpriced: int = 0  # calls of unknown cost or tokens

    def __bool__(self) -> bool:
        return self.calls > 0

    def take(self, call: StepStarted) -> None:
        self.calls += 1
        self.cost += call.reserved_cost
        self.tokens += call.reserved_tokens
        self.unpriced += call.unpriced

    def give_back(self, call: StepStarted) -> None:
        self.calls -= 1
        # Sums of floats drift: without calls, the sum is set to zero.
        self.cost = self.cost - call.reserved_cost if self.calls else 0.0
        self.tokens -= call.reserved_tokens
        self.unpriced -= call.unpriced


class Largest(msgspec.Struct, eq=False):
    """The largest cost and token count seen in a run, by tool or question."""

    cost: dict[str, float] = {}
    tokens: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.cost or self.tokens)

    def saw(self, name: str, cost: float, tokens: int, *, answered: bool) -> None:
        """Record a call's spending. A failure without a report leaves an unknown amount unknown."""
        least = -1 if answered else 0
        if cost > self.cost.get(name, least):
            self.cost[name] = cost
        if tokens > self.tokens.get(name, least):
            self.tokens[name] = tokens


class OnceCalls(msgspec.Struct, eq=False):
    """The calls of a run that had, or may have had, an effect that a mind must not repeat."""

    tools: set[str] = set()  # tools that a step declares `once`
    made: dict[tuple[str, str], dict[str, bool]] = {}  # (tool, signature) → step → a mind's choice
    # tool → signature → the arguments, unless they are large: of all such calls, and of those chosen by minds
    _args: dict[str, dict[str, Any]] = {}
    _minds_args: dict[str, dict[str, Any]] = {}
    by_minds: bool = False  # a mind chose at least one such call

    def add(self, tool: str, name: str, step: str, args: Any, *, large: bool, minded: bool) -> None:
        """Remember a call by its signature; ``large`` arguments are not kept."""
        self.made.setdefault((tool, name), {})[step] = minded
        if not large:
            self._args.setdefault(tool, {})[name] = args
            if minded:
                self._minds_args.setdefault(tool, {})[name] = args
        self.by_minds = self.by_minds or minded

    def remove(self, tool: str, name: str, step: str) -> None:
        """Forget a step's call: it had no effect. The same call of another step stays."""
        steps = self.made.get((tool, name), {})
        steps.pop(step, None)
        if not steps:
            self.made.pop((tool, name), None)
            for args in (self._args, self._minds_args):
                args.get(tool, {}).pop(name, None)

    def like(self, spec: ToolSpec, args: Any, *, chosen: bool) -> dict[str, bool]:
        """Return the steps that made this call, or one that only spells defaults out; True marks a mind's choice.

        One of the two calls must be a mind's choice: ``chosen`` says whether this one is.
        """
        found = dict(self.made.get((spec.name, signature(args)), {}))
        plain = signature(spec.plain(args))
        for other, made in (self._args if chosen else self._minds_args).get(spec.name, {}).items():
            if signature(spec.plain(made)) == plain:
                found.update(self.made.get((spec.name, other), {}))
        return found
