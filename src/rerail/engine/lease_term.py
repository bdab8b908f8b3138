"""How long a process may act for a run without word from the store (contract E11).

Rules of this file:
- A process that was frozen does not know it. Its own clock does, if that one counts suspension too.
- What was confirmed is as old as the question: the time counts from before the store was asked.
- A successor of an owner that may still live waits for `TERM` before its first call: by then the owner knows.
- A process that lost a run says so in the log `rerail`, and what it did not do: its history is another process's now.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rerail.core.codes import Category
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell
from rerail.ports import TERM, Clock

LOG: Final = logging.getLogger("rerail")


class LeaseTerm:
    """When the store last confirmed that this process owns a run; safe to ask from any thread."""

    __slots__ = ("_clock", "_confirmed", "_run", "lost")

    def __init__(self, clock: Clock, run: str = "") -> None:
        self._clock, self._run = clock, run
        self._confirmed = clock.uptime()
        self.lost = False  # the store said that another process owns it

    @property
    def age(self) -> float:
        """Seconds since the last confirmation."""
        return self._clock.uptime() - self._confirmed

    @property
    def is_current(self) -> bool:
        """Whether no other process can have begun to act for the run."""
        return not self.lost and self._clock.uptime() - self._confirmed <= TERM

    def asked(self) -> float:
        """The time to give to `confirmed`, taken before the store is asked."""
        return self._clock.uptime()

    def confirmed(self, asked: float) -> None:
        """The store confirmed it, asked at that time."""
        self._confirmed = max(self._confirmed, asked)

    def lose(self, calls: Mapping[str, bool]) -> None:
        """Another process owns the run; ``calls`` says of each step in hand whether its tool was called."""
        if not self.lost and self._clock.polls:
            under_way = ", ".join(step for step, called in calls.items() if called) or "-"
            not_called = ", ".join(step for step, called in calls.items() if not called) or "-"
            LOG.warning(tell("log.owner_lost", run=self._run, under_way=under_way, not_called=not_called))
        self.lost = True

    def refused(self, step: str) -> None:
        """Log that a step's tool did not act, or was not called."""
        if self._clock.polls:
            LOG.warning(tell("log.not_done", run=self._run, step=step))

    def require(self, step: str = "") -> None:
        """Raise *not done* if another process may own the run by now."""
        if not self.is_current:
            self.refused(step)
            told = tell("error.OWNER_LOST", seconds=round(self.age))
            raise NotDone(ToolError(told, "OWNER_LOST", Category.TRANSIENT))
