"""Reservations of tokens and cost for calls under way, and the largest spending seen so far (contract H4).

Rules of this file:
- Every number is folded from the history: an intent says what its call reserves, the end of the call takes it off.
- One event costs O(1) here.
"""

from __future__ import annotations

from typing import NamedTuple

from rerail.core.events import StepStarted


class Need(NamedTuple):
    """What a call or a question may spend; None where a cap is set and the amount is not known."""

    cost: float | None = 0.0
    tokens: int | None = 0

    @property
    def unknown(self) -> bool:
        """Whether an amount that a cap bounds is not known: such calls run one at a time."""
        return self.cost is None or self.tokens is None


FREE = Need()


class Reserved:
    """What the calls under way have reserved, all together."""

    __slots__ = ("calls", "cost", "tokens", "unpriced")

    def __init__(self) -> None:
        self.calls = 0  # calls that hold a reservation
        self.cost = 0.0
        self.tokens = 0
        self.unpriced = 0  # calls whose cost or tokens are not known

    def __bool__(self) -> bool:
        return self.calls > 0

    def take(self, call: StepStarted) -> bool:
        """Add what a call reserves; False for a call that reserves nothing."""
        if not (call.reserved_cost or call.reserved_tokens or call.unpriced):
            return False
        self.calls += 1
        self.cost += call.reserved_cost
        self.tokens += call.reserved_tokens
        self.unpriced += call.unpriced
        return True

    def give_back(self, call: StepStarted) -> None:
        """Take off what a call had reserved."""
        self.calls -= 1
        # Sums of floats drift: with no call left the sum is exactly nothing.
        self.cost = self.cost - call.reserved_cost if self.calls else 0.0
        self.tokens -= call.reserved_tokens
        self.unpriced -= call.unpriced


class Largest:
    """The largest cost and number of tokens that a run has seen, by name of a tool or a question."""

    __slots__ = ("cost", "tokens")

    def __init__(self) -> None:
        self.cost: dict[str, float] = {}
        self.tokens: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.cost or self.tokens)

    def saw(self, name: str, cost: float, tokens: int, *, answered: bool) -> None:
        """Note what a call spent. A failure without a report leaves an unknown amount unknown."""
        least = -1 if answered else 0
        if cost > self.cost.get(name, least):
            self.cost[name] = cost
        if tokens > self.tokens.get(name, least):
            self.tokens[name] = tokens
