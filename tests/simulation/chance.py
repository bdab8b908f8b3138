"""Chance with a seed: every choice of a simulated life is drawn here, in one order, and can be drawn again.

Rules of this file:
- A life is its choices: the same seed, or the same list of choices, is the same life.
- The first option is the harmless one. Past the end of a given list every choice is the first option, so that a life
  gets simpler by leaving choices out: that is how a failing one shrinks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws from a seed, or from choices that were made before."""

    def __init__(self, seed: int = 0, given: Sequence[int] | None = None) -> None:
        self._random = random.Random(seed)
        self._given = None if given is None else list(given)
        self.drawn: list[int] = []

    def pick(self, *options: T) -> T:
        """One of the options."""
        return options[self.number(len(options))]

    def number(self, below: int) -> int:
        """A number from 0 to below that."""
        if self._given is None:
            drawn = self._random.randrange(below)
        else:
            place = len(self.drawn)
            drawn = min(self._given[place], below - 1) if place < len(self._given) else 0
        self.drawn.append(drawn)
        return drawn

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.number(one_in) == one_in - 1

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """A few of them, none twice, in their order."""
        left = list(options)
        chosen = {id(left.pop(self.number(len(left)))) for _ in range(self.number(min(most, len(left)) + 1))}
        return [one for one in options if id(one) in chosen]
