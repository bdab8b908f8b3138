"""Who waits for news of a run, and how they are woken."""

from __future__ import annotations

import asyncio

ANY = ""  # in place of a run: whoever waits for any run that is given back
OPEN = ("pending", "running")  # the states of a run that somebody should drive


class Waiters:
    """Those who wait in this process, by run; each is woken only by what it has not seen yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}

    def runs(self) -> list[str]:
        """The runs somebody waits for."""
        return list(self._waiting)

    async def wait(self, run: str, after: int, seconds: float) -> None:
        """Wait to be woken, or until the time is over; either way the caller looks for itself."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, woken)
        self._waiting.setdefault(run, {})[woken] = after
        try:
            await woken
        finally:
            timer.cancel()
            self._leave(run, woken)

    async def any_freed(self, seconds: float) -> bool:
        """Wait until a run is given back that is not at rest; False once the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await self.wait(ANY, 0, seconds)
        return loop.time() < until

    def ring(self, run: str, seq: int | None = None) -> None:
        """Wake those who have not seen that sequence number; without one, all who wait for the run."""
        # Most appends are rung by a run that nobody watches, or by the owner who wrote them.
        for woken, after in self._waiting.get(run, {}).items():
            if seq is None or seq > after:
                _wake(woken)

    def _leave(self, run: str, woken: asyncio.Future[None]) -> None:
        waiting = self._waiting[run]
        del waiting[woken]
        if not waiting:
            del self._waiting[run]


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
