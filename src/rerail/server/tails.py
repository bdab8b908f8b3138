"""The ends of histories, each read once for all who watch it (I1, I4).

Rules of this file:
- One look at the store for each watched run, however many watch; nobody who watches is waited for by anybody.
- A reader has no queue: it has a place in the history, and takes what comes after it when it can. What it has missed is
  in the store. So a slow one costs nothing, everybody gets everything once and in order, and a late one is no special
  case.
- Whoever kept up once and then falls too far behind is told so, and let go; it may come back to its place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rerail.core.events import Record
from rerail.errors import RerailError
from rerail.server.plain import encode
from rerail.wiring import Engine

KEPT = 4_000  # of the latest events, at least, that are kept at hand for all
BATCH = 256  # events that a reader takes at once
LINGERS = 5.0  # seconds that an end is kept up for somebody who comes back
AGAIN = 0.5  # seconds until a store that cannot be read is read again


class Behind(Exception):
    """A reader fell too far behind; it has seen everything up to ``seq``."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


@dataclass(frozen=True, slots=True)
class Framed:
    """An event, and its JSON, which is made once for all readers."""

    seq: int
    record: Record
    data: bytes


def framed(record: Record) -> Framed:
    """An event with its JSON."""
    return Framed(record.seq, record, encode(record.to_dict()))


class Tail:
    """The end of one run's history."""

    def __init__(self, engine: Engine, run: str) -> None:
        self.run = run
        self.seq = 0  # the last event known
        self.users = 0
        self._engine = engine
        self._kept: list[Framed] = []  # consecutive
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to look at the end of the history."""
        self.seq = (await self._engine.head(self.run)).seq
        self._task = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            try:
                news = await self._engine.page(self.run, self.seq)
                for record in news:
                    self._kept.append(framed(record))
                    self.seq = record.seq
                if len(self._kept) > 2 * KEPT:
                    del self._kept[:-KEPT]
                if news:
                    self._tell()
                await self._engine.changed(self.run, self.seq, 1.0)
            except RerailError:
                await asyncio.sleep(AGAIN)

    def _tell(self) -> None:
        old, self._news = self._news, asyncio.Event()
        old.set()

    async def after(self, seq: int, limit: int = BATCH) -> Sequence[Framed]:
        """What comes next after a place in the history; empty at its end."""
        if seq >= self.seq:
            return ()
        if self._kept and self._kept[0].seq <= seq + 1:
            begin = seq + 1 - self._kept[0].seq
            return self._kept[begin : begin + limit]
        return [framed(record) for record in await self._engine.page(self.run, seq, limit)]

    async def wait(self, seq: int, seconds: float) -> bool:
        """Wait until there is something after a place; False once the time is over."""
        news = self._news
        if self.seq > seq:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await news.wait()
        return self.seq > seq

    async def follow(self, seq: int, *, most_behind: int, heartbeat: float) -> AsyncIterator[Sequence[Framed]]:
        """Everything after a place, in batches, for ever; an empty batch where nothing happened for a while.

        `Behind` ends it for whoever kept up once, and does no longer.
        """
        kept_up = False
        while True:
            kept_up = kept_up or seq >= self.seq
            if kept_up and self.seq - seq > most_behind:
                raise Behind(seq)
            batch = await self.after(seq)
            if batch:
                seq = batch[-1].seq
                yield batch
            elif not await self.wait(seq, heartbeat):
                yield ()


class Tails:
    """The ends that somebody watches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, Tail] = {}
        self._lingering: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def of(self, run: str) -> AsyncIterator[Tail]:
        """The end of a run's history, for as long as somebody watches it."""
        async with self._opening:
            tail = self._open.get(run)
            if tail is None:
                tail = Tail(self._engine, run)
                await tail.open()
                self._open[run] = tail
            tail.users += 1
        try:
            yield tail
        finally:
            tail.users -= 1
            if not tail.users:
                task = asyncio.create_task(self._linger(tail))
                self._lingering.add(task)
                task.add_done_callback(self._lingering.discard)

    async def _linger(self, tail: Tail) -> None:
        await asyncio.sleep(LINGERS)
        if not tail.users and self._open.get(tail.run) is tail:
            del self._open[tail.run]
            await tail.close()

    async def close(self) -> None:
        """Look at nothing any more."""
        for task in list(self._lingering):
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        tails, self._open = list(self._open.values()), {}
        for tail in tails:
            await tail.close()
