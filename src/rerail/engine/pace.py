"""Somebody else's loop: a run that goes from one stage to the next when it is let (SPEC I5).

Rules of this file:
- There is one loop, and it does everything that a run needs; a pace only says when it may go on.
- The stages: `executor` makes the calls that are due, waits until there is something new and writes it down;
  `reflector` writes down what follows from it. What was done in a stage is durable before the next one begins.
- A loop that is over, or begins anew after a crash, stands where it stands: whoever sets the pace looks, and asks for
  no stage that is not next.
"""

from __future__ import annotations

import asyncio

EXECUTOR, REFLECTOR = "executor", "reflector"


class Pace:
    """Where a run's loop stands, and how far it may go."""

    def __init__(self) -> None:
        self._next = ""  # the stage that the loop stands before
        self._allowed = ""
        self._wake: asyncio.Event | None = None  # the loop's
        self._moved = asyncio.Event()

    def lets(self, stage: str, wake: asyncio.Event) -> bool:
        """Whether the loop may begin a stage now; if not, it is woken when it may."""
        if self._allowed == stage:
            self._allowed = self._next = ""
            return True
        if self._next != stage:
            self._next, self._wake = stage, wake
            self._moved.set()
        return False

    async def through(self, stage: str, loop: asyncio.Task[None]) -> None:
        """Let the loop go through a stage, if it stands before that one; returns once it stands again, or is over."""
        await self.stands(loop)
        if loop.done() or self._next != stage or self._wake is None:
            return
        self._allowed = stage
        self._moved.clear()
        self._wake.set()
        await self.stands(loop)

    async def stands(self, loop: asyncio.Task[None]) -> None:
        """Wait until the loop stands before some stage, or is over."""
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait([moved, loop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()

    def begun(self) -> None:
        """A loop begins: where another one stood is of no matter any more."""
        self._next = self._allowed = ""
        self._moved.clear()
