"""Runs as they look, kept up to date for everybody who looks at them: one board for each run and language (I4).

Rules of this file:
- What changed is worked out once, for all; how often depends on how long that takes, so that a run of thousands of
  steps costs no more of the processor than a small one.
- Whoever has missed something gets the whole again: there is nothing to catch up with.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rerail.core.board import Board, Changes, run_view
from rerail.core.events import Record
from rerail.core.lines import Lines, clean
from rerail.engine.owner import is_dead
from rerail.errors import Refused, RerailError
from rerail.server.plain import encode
from rerail.server.tails import Tail, Tails
from rerail.wiring import Engine

SHORTEST = 0.1  # seconds between two patches
SHARE = 10  # a patch may take one part in so many of the time
KEPT = 64  # patches for those who are a little late
LOOK_EVERY = 1.0  # seconds between two looks at who drives the run


async def beside(engine: Engine, run: str) -> tuple[dict[str, Any], bool]:
    """What no event of a run tells: who drives it, what follows it; and whether nobody drives it that should."""
    head = await engine.head(run)
    dead = is_dead(head, time.time())
    interrupted = head.status == "running" and dead
    children = await engine.heads(parent=run, limit=1)
    superseded = await engine.is_superseded(run) if head.parent else ""
    owner = str(head.owner) if head.owner is not None and not dead else None
    facts = {
        "owner": owner, "drives": engine.drives(run), "follow_up": children[0].run if children else None,
        "superseded": superseded or None,
    }  # fmt: skip
    return facts, interrupted


class LiveRun:
    """One run as it looks in one language."""

    def __init__(self, engine: Engine, run: str, lang: str) -> None:
        self.run, self.lang = run, lang
        self.users = 0
        self.version = 0
        self.gone = False
        self._engine = engine
        self._board = Board(run)
        self._changes = Changes(self._board, lang)
        self._patches: list[tuple[int, bytes]] = []
        self._facts: Mapping[str, Any] = {}
        self._interrupted = False
        self._cached: tuple[tuple[int, int], bytes] = ((-1, -1), b"")
        self._news = asyncio.Event()
        self._next = 0.0
        self._looked = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def seq(self) -> int:
        """The last event that is shown."""
        return self._board.state.seq

    async def open(self, tail: Tail) -> None:
        """Read the history so far, and go on with what happens."""
        await self._feed(tail)
        await self._look()
        self._changes.view(time.time(), self._facts, interrupted=self._interrupted)
        self._task = asyncio.create_task(self._go_on(tail))

    async def close(self) -> None:
        """Go on no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _feed(self, tail: Tail) -> None:
        while batch := await tail.after(self.seq, 2_000):
            for one in batch:
                self._board.feed(one.record)
            await asyncio.sleep(0)  # a long history must not hold up the runs

    async def _look(self) -> None:
        self._facts, self._interrupted = await beside(self._engine, self.run)
        self._looked = time.monotonic()

    async def _go_on(self, tail: Tail) -> None:
        while True:
            news = await tail.wait(self.seq, LOOK_EVERY)
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))
            try:
                if news:
                    await self._feed(tail)
                if news or time.monotonic() - self._looked >= LOOK_EVERY:
                    await self._look()
            except Refused:  # it was removed, and will not look any different
                self.gone = True
                self._tell()
                return
            except RerailError:
                continue  # the store is out of reach; the tail goes on looking
            begun = time.monotonic()
            found = self._changes.patch(time.time(), self._facts, interrupted=self._interrupted)
            if found is not None:
                self._publish(encode(found))
            took = time.monotonic() - begun
            self._next = begun + max(SHORTEST, SHARE * took)

    def _publish(self, data: bytes) -> None:
        self.version += 1
        self._patches.append((self.version, data))
        del self._patches[:-KEPT]
        self._tell()

    def _tell(self) -> None:
        old, self._news = self._news, asyncio.Event()
        old.set()

    # -- For readers ----------------------------------------------------------------------------------------------

    def told(self, record: Record) -> dict[str, Any]:
        """An event with what it says in words, in this language."""
        words = Lines(self._board.state, self.lang).words(record.event)
        return {**record.to_dict(), "words": clean(words.words) if words is not None else ""}

    def snapshot(self) -> tuple[int, bytes]:
        """The whole run, and up to which patch it goes. It may know more than that: a patch says what is, not what
        was added, so nobody is hurt by hearing of it again."""
        key = (self.version, self.seq)
        if self._cached[0] != key:
            shown = run_view(self._board, time.time(), self.lang, interrupted=self._interrupted)
            self._cached = (key, encode({**shown, **self._facts}))
        return self.version, self._cached[1]

    def patches(self, version: int) -> list[tuple[int, bytes]] | None:
        """What changed since a patch; None if that is too long ago."""
        if version >= self.version:
            return []
        if not self._patches or self._patches[0][0] > version + 1:
            return None
        return self._patches[version + 1 - self._patches[0][0] :]

    async def wait(self, version: int, seconds: float) -> bool:
        """Wait for the next patch; False once the time is over, or if there will be none."""
        news = self._news
        if self.version > version or self.gone:
            return self.version > version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await news.wait()
        return self.version > version


class Lives:
    """The runs that somebody looks at."""

    def __init__(self, engine: Engine, tails: Tails) -> None:
        self._engine, self._tails = engine, tails
        self._open: dict[tuple[str, str], LiveRun] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def of(self, run: str, lang: str) -> AsyncIterator[LiveRun]:
        """A run as it looks, for as long as somebody looks at it."""
        key = (run, lang)
        async with self._tails.of(run) as tail:
            async with self._opening:
                shown = self._open.get(key)
                if shown is None:
                    shown = LiveRun(self._engine, run, lang)
                    await shown.open(tail)
                    self._open[key] = shown
                shown.users += 1
            try:
                yield shown
            finally:
                shown.users -= 1
                if not shown.users:
                    self._open.pop(key, None)
                    await shown.close()
