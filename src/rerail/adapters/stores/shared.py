"""What all stores share: waiters, the selection of runs, checks of a writer, SQL as data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

import msgspec

from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Row

ANY = ""  # in place of a run: a subscription to any released run
OPEN = ("pending", "running")  # the states of a run that needs a driver


class Waiters(msgspec.Struct, eq=False):
    """Waiters of this process by run; each is woken only by events it has not seen."""

    waiting: dict[str, dict[asyncio.Future[None], int]] = {}

    def runs(self) -> list[str]:
        """Return the runs that have waiters."""
        return list(self.waiting)

    async def wait(self, run: str, after: int, seconds: float) -> None:
        """Wait for a wake-up or the timeout; either way the caller reads the store."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, woken)
        self.waiting.setdefault(run, {})[woken] = after
        try:
            await woken
        finally:
            timer.cancel()
            waiting = self.waiting[run]
            del waiting[woken]
            if not waiting:
                del self.waiting[run]

    async def until(self, look: Callable[[], Awaitable[bool]], run: str, after: int, seconds: float) -> bool:
        """Wait until a read finds news; False on timeout."""
        await asyncio.sleep(0)  # a caller that polls in a tight loop must yield to other tasks
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            # A waiter subscribes before it reads: a write in between wakes it.
            woken = asyncio.ensure_future(self.wait(run, after, max(0.0, until - loop.time())))
            await asyncio.sleep(0)
            try:
                if await look():
                    return True
                if loop.time() >= until:
                    return False
                await woken
            finally:
                woken.cancel()

    async def any_freed(self, seconds: float) -> bool:
        """Wait until an unfinished run is released; False on timeout."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await self.wait(ANY, 0, seconds)
        return loop.time() < until

    def ring(self, run: str, seq: int | None = None) -> None:
        """Wake waiters that have not seen that sequence number; without one, all of the run."""
        # Most appends belong to a run without waiters, or ring its own writer.
        for woken, after in self.waiting.get(run, {}).items():
            if seq is None or seq > after:
                _wake(woken)

    def ring_all(self) -> None:
        """Wake every waiter: each reads for itself, and raises an error of the store in its own caller."""
        for run in self.runs():
            self.ring(run)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


@dataclass(frozen=True, slots=True)
class Selection:
    """The filters of a list of runs, with their defaults."""

    prefix: str = ""
    status: Sequence[str] = ()
    parent: str | None = None
    before: tuple[float, str] | None = None
    limit: int = 1000

    def fits(self, head: Head) -> bool:
        """True if a run passes the filters of its fields."""
        of_status = not self.status or head.status in self.status
        return of_status and head.run.startswith(self.prefix) and (self.parent is None or head.parent == self.parent)


def not_held(lease: Lease) -> Fenced:
    """Return the error of a lease that was lost."""
    return Fenced(f"run {lease.run} is not held with fence {lease.fence} any more")


def require_own(batch: Batch, place: tuple[int, int] | None, there: Sequence[Row]) -> None:
    """Accept rows that are stored already: a fence has one writer, so equal rows are its own.

    ``place`` is the run's fence and last sequence number; ``there`` are the stored rows behind `batch.after`.
    """
    if place is None:
        raise Conflict(f"there is no run {batch.run}")
    fence, seq = place
    if fence != batch.fence:
        raise Fenced(f"run {batch.run} is at fence {fence}, not {batch.fence}")
    if not there or [(row.at, row.data) for row in there] != list(batch.rows):
        raise Conflict(f"run {batch.run} is at {seq}, not {batch.after}")


class Statements:
    """The statements of the `statements.sql` beside a store, as attributes.

    A statement begins with `-- statement: NAME`. Lines that begin with `---` are comments and are not sent.
    """

    def __init__(self, module: str) -> None:
        """``module`` is the `__file__` of a module beside the statements."""
        text = Path(module).with_name("statements.sql").read_text(encoding="utf-8")
        self._found: dict[str, str] = {}
        for part in text.split("-- statement: ")[1:]:
            name, _, body = part.partition("\n")
            self._found[name] = "\n".join(line for line in body.split("\n") if not line.startswith("---")).strip()

        vars(self).update(self._found)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> LiteralString: ...

    def numbered(self, name: str) -> list[str]:
        """Return the statements NAME_1, NAME_2, … in their order."""
        count = sum(other.startswith(f"{name}_") for other in self._found)
        return [self._found[f"{name}_{number}"] for number in range(1, count + 1)]
