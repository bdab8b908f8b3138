"""Stepping: a run driven stage by stage by a graph of another framework (contract I5).

Rules of this file:
- The run's own loop does all the work; a stepper only says when it may go on.
- The stages: `executor` makes the due calls, waits for outcomes and records them; `reflector` records the consequences.
  The work of a stage is durable before the next one begins.
- A loop that ended, or restarts after a crash, pauses where it is: the driver asks only for the next stage.
"""

from __future__ import annotations

import asyncio

EXECUTOR, REFLECTOR = "executor", "reflector"


class Stepper:
    """The stage that a loop pauses before, and the one it may begin."""

    def __init__(self) -> None:
        self._next = ""  # the stage that the loop pauses before
        self._allowed = ""
        self._wake: asyncio.Event | None = None  # the loop's
        self._moved = asyncio.Event()

    def allows(self, stage: str, wake: asyncio.Event) -> bool:
        """True if the loop may begin a stage now; otherwise `wake` is set when it may."""
        if self._allowed == stage:
            self._allowed = self._next = ""
            return True
        if self._next != stage:
            self._next, self._wake = stage, wake
            self._moved.set()
        return False

    async def advance(self, stage: str, loop: asyncio.Task[None]) -> None:
        """Let the loop begin a stage, if it pauses before that one; return when it pauses again, or has ended."""
        await self.wait_until_paused(loop)
        if loop.done() or self._next != stage or self._wake is None:
            return
        self._allowed = stage
        self._moved.clear()
        self._wake.set()
        await self.wait_until_paused(loop)

    async def wait_until_paused(self, loop: asyncio.Task[None]) -> None:
        """Wait until the loop pauses before a stage, or has ended."""
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait([moved, loop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()

    def restart(self) -> None:
        """Forget where an earlier loop paused: a new one begins."""
        self._next = self._allowed = ""
        self._moved.clear()
