"""How long a process may act for a run without word from the store (contract E11).

Rules of this file:
- A process that was frozen does not know it. Its own clock does, if that one counts suspension too.
- What was confirmed is as old as the question: the time counts from before the store was asked.
- A successor of an owner that may still live waits for `TERM` before its first call: by then the owner knows.
"""

from __future__ import annotations

from typing import Final

from rerail.core.codes import Category
from rerail.core.texts import say
from rerail.errors import NotDone, ToolError
from rerail.ports import Clock

TERM: Final = 5.0  # seconds; leases are renewed every two


class LeaseTerm:
    """When the store last confirmed that this process owns a run; safe to ask from any thread."""

    __slots__ = ("_clock", "_confirmed", "lost")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._confirmed = clock.uptime()
        self.lost = False  # the store said that another process owns it

    @property
    def age(self) -> float:
        """Seconds since the last confirmation."""
        return self._clock.uptime() - self._confirmed

    @property
    def is_current(self) -> bool:
        """Whether no other process can have begun to act for the run; always so where the clock renews nothing."""
        return not self.lost and (self.age <= TERM or not self._clock.polls)

    def asked(self) -> float:
        """The time to give to `confirmed`, taken before the store is asked."""
        return self._clock.uptime()

    def confirmed(self, asked: float) -> None:
        """The store confirmed it, asked at that time."""
        self._confirmed = max(self._confirmed, asked)

    def require(self) -> None:
        """Raise *not done* if another process may own the run by now."""
        if not self.is_current:
            told = say("error.OWNER_LOST", seconds=round(self.age))
            raise NotDone(ToolError(told, "OWNER_LOST", Category.TRANSIENT))
