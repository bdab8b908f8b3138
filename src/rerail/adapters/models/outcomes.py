"""What an attempt to ask a model can end with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tokens:
    """What attempts used, those that were of no use included."""

    input: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.output + other.output)


@dataclass(frozen=True, slots=True)
class Answered:
    """There is a reply: a mapping, or the text as it came."""

    answer: Any
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no reply; the message says why and what to do."""

    message: str
    transient: bool = False
    retry_after: float | None = None
    shape: bool = False  # the server may not know this way of asking for JSON
    tokens: Tokens = Tokens()


Outcome = Answered | Failed
