"""Feeds of single runs: the end of each watched history, and its view, made once for all readers (contract I1, I4).

Rules of this file:
- Each watched run is read from the store once, however many readers it has; no reader waits for another.
- A reader has no queue. It has a position in the history and takes the events after it; the store holds the ones that
  it missed. So a slow reader costs nothing, each event comes once and in order, and a late reader is an ordinary one.
- A reader that kept up and then falls too far behind is dropped; it may come back to its position.
- A patch of a view is made once for its readers. The pause after it grows with its cost, so that a run of thousands of
  steps takes no more of the processor than a small one.
- A reader that missed a patch gets a new snapshot, so it never catches up patch by patch.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rerail.api import Engine
from rerail.engine.runs.owner import is_dead, is_interrupted
from rerail.errors import Refused, RerailError
from rerail.kernel.events import Record
from rerail.server.json import encode
from rerail.values.json_values import clean
from rerail.views.live_run import Board, Changes, run_view
from rerail.views.narration import Narrator

RETAINED_EVENTS = 4_000  # of the latest, at least, in memory
BATCH = 256  # events that a reader takes at once
IDLE_TTL = 5.0  # seconds that a feed without readers stays open
RETRY_DELAY = 0.5  # seconds until an unreachable store is read again


class FeedSignal:
    """Wakes every waiter at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        old, self._event = self._event, asyncio.Event()
        old.set()

    async def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``ready`` holds; False on timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not ready():
                    await self._event.wait()
        return ready()


class TooSlow(Exception):
    """A reader fell too far behind; it has seen everything up to ``seq``."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    seq: int
    record: Record
    data: bytes


def encoded(record: Record) -> EncodedEvent:
    return EncodedEvent(record.seq, record, encode(record.to_dict()))


class Following:
    """What follows the store in a task of its own, while it has readers."""

    users = 0
    _task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class EventFeed(Following):
    """The feed of one run."""

    def __init__(self, engine: Engine, run: str) -> None:
        self.run = run
        self.seq = 0  # the last event known
        self._engine = engine
        self._kept: list[EncodedEvent] = []  # consecutive
        self._news = FeedSignal()

    async def open(self) -> None:
        self.seq = (await self._engine.internals.head(self.run)).seq
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            try:
                news = await self._engine.internals.page(self.run, self.seq)
                for record in news:
                    self._kept.append(encoded(record))
                    self.seq = record.seq
                if len(self._kept) > 2 * RETAINED_EVENTS:
                    del self._kept[:-RETAINED_EVENTS]
                if news:
                    self._news.fire()
                await self._engine.internals.changed(self.run, self.seq, 1.0)
            except RerailError:
                await asyncio.sleep(RETRY_DELAY)

    async def after(self, seq: int, limit: int = BATCH) -> Sequence[EncodedEvent]:
        if seq >= self.seq:
            return ()
        if self._kept and self._kept[0].seq <= seq + 1:
            begin = seq + 1 - self._kept[0].seq
            return self._kept[begin : begin + limit]
        return [encoded(record) for record in await self._engine.internals.page(self.run, seq, limit)]

    async def wait(self, seq: int, seconds: float) -> bool:
        return await self._news.wait(lambda: self.seq > seq, seconds)

    async def follow(self, seq: int, *, most_behind: int, heartbeat: float) -> AsyncIterator[Sequence[EncodedEvent]]:
        """Yield all events after a position in batches; an empty batch after each quiet heartbeat.

        `TooSlow` ends it for a reader that kept up once and does no longer.
        """
        kept_up = False
        while True:
            kept_up = kept_up or seq >= self.seq
            if kept_up and self.seq - seq > most_behind:
                raise TooSlow(seq)
            batch = await self.after(seq)
            if batch:
                seq = batch[-1].seq
                yield batch
            elif not await self.wait(seq, heartbeat):
                yield ()


class EventFeeds:
    """The feeds that have readers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, EventFeed] = {}
        self._lingering: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def of(self, run: str) -> AsyncIterator[EventFeed]:
        """Open a run's feed for one reader."""
        async with self._opening:
            feed = self._open.get(run)
            if feed is None:
                feed = EventFeed(self._engine, run)
                await feed.open()
                self._open[run] = feed
            feed.users += 1
        try:
            yield feed
        finally:
            feed.users -= 1
            if not feed.users:
                task = asyncio.create_task(self._linger(feed))
                self._lingering.add(task)
                task.add_done_callback(self._lingering.discard)

    async def _linger(self, feed: EventFeed) -> None:
        await asyncio.sleep(IDLE_TTL)
        if not feed.users and self._open.get(feed.run) is feed:
            del self._open[feed.run]
            await feed.close()

    async def close(self) -> None:
        for task in list(self._lingering):
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        feeds, self._open = list(self._open.values()), {}
        for feed in feeds:
            await feed.close()


SHORTEST = 0.1  # seconds between two patches
SHARE = 10  # largest share of the time that patches may take: one part in so many
RETAINED_PATCHES = 64  # for readers that are a little late
LOOK_EVERY = 1.0  # seconds between two reads of the lease


async def beside(engine: Engine, run: str) -> tuple[dict[str, Any], bool]:
    """Return what events do not hold: the lease holder, the follow-up, and whether the lease is lost."""
    head = await engine.internals.head(run)
    children = await engine.internals.heads(parent=run, limit=1)
    superseded = await engine.internals.is_superseded(run) if head.parent else ""
    owner = str(head.owner) if head.owner is not None and not is_dead(head, time.time()) else None
    facts = {
        "owner": owner, "drives": engine.internals.drives(run), "follow_up": children[0].run if children else None,
        "superseded": superseded or None,
    }  # fmt: skip
    return facts, is_interrupted(head, time.time())


class LiveView(Following):
    """The view of one run in one language."""

    def __init__(self, engine: Engine, run: str, lang: str) -> None:
        self.run, self.lang = run, lang
        self.version = 0
        self.gone = False
        self._engine = engine
        self._board = Board(run)
        self._changes = Changes(self._board, lang)
        self._patches: list[tuple[int, bytes]] = []
        self._facts: Mapping[str, Any] = {}
        self._interrupted = False
        self._cached: tuple[tuple[int, int], bytes] = ((-1, -1), b"")
        self._news = FeedSignal()
        self._next = 0.0
        self._looked = 0.0

    @property
    def seq(self) -> int:
        return self._board.state.seq

    async def open(self, feed: EventFeed) -> None:
        await self._feed(feed)
        await self._look()
        self._changes.view(time.time(), self._facts, interrupted=self._interrupted)
        self._task = asyncio.create_task(self._go_on(feed))

    async def _feed(self, feed: EventFeed) -> None:
        while batch := await feed.after(self.seq, 2_000):
            for one in batch:
                self._board.feed(one.record)
            await asyncio.sleep(0)  # a long history must not hold up the runs

    async def _look(self) -> None:
        self._facts, self._interrupted = await beside(self._engine, self.run)
        self._looked = time.monotonic()

    async def _go_on(self, feed: EventFeed) -> None:
        while True:
            news = await feed.wait(self.seq, LOOK_EVERY)
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))
            try:
                if news:
                    await self._feed(feed)
                if news or time.monotonic() - self._looked >= LOOK_EVERY:
                    await self._look()
            except Refused:  # it was removed, so its view is final
                self.gone = True
                self._news.fire()
                return
            except RerailError:
                continue  # the store is out of reach; the feed retries
            begun = time.monotonic()
            found = self._changes.patch(time.time(), self._facts, interrupted=self._interrupted)
            if found is not None:
                self._publish(encode(found))
            took = time.monotonic() - begun
            self._next = begun + max(SHORTEST, SHARE * took)

    def _publish(self, data: bytes) -> None:
        self.version += 1
        self._patches.append((self.version, data))
        del self._patches[:-RETAINED_PATCHES]
        self._news.fire()

    # -- For readers ----------------------------------------------------------------------------------------------

    def told(self, record: Record) -> dict[str, Any]:
        """Return an event with its text in this language."""
        line = Narrator(self._board.state, self.lang).line(record.event)
        return {**record.to_dict(), "words": clean(line.words) if line is not None else ""}

    def snapshot(self) -> tuple[int, bytes]:
        """Return the last patch's number and the whole run, which may be newer: patches are idempotent."""
        key = (self.version, self.seq)
        if self._cached[0] != key:
            shown = run_view(self._board, time.time(), self.lang, interrupted=self._interrupted)
            self._cached = (key, encode({**shown, **self._facts}))
        return self.version, self._cached[1]

    def patches(self, version: int) -> list[tuple[int, bytes]] | None:
        """Return the patches after one; None if they are not retained any more."""
        if version >= self.version:
            return []
        if not self._patches or self._patches[0][0] > version + 1:
            return None
        return self._patches[version + 1 - self._patches[0][0] :]

    async def wait(self, version: int, seconds: float) -> bool:
        """Wait for the next patch; False on timeout, or if there will be none."""
        await self._news.wait(lambda: self.version > version or self.gone, seconds)
        return self.version > version


class LiveRuns:
    """The live views that have readers."""

    def __init__(self, engine: Engine, feeds: EventFeeds) -> None:
        self._engine, self._feeds = engine, feeds
        self._open: dict[tuple[str, str], LiveView] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def of(self, run: str, lang: str) -> AsyncIterator[LiveView]:
        """Open a run's live view for one reader."""
        key = (run, lang)
        async with self._feeds.of(run) as feed:
            async with self._opening:
                shown = self._open.get(key)
                if shown is None:
                    shown = LiveView(self._engine, run, lang)
                    await shown.open(feed)
                    self._open[key] = shown
                shown.users += 1
            try:
                yield shown
            finally:
                shown.users -= 1
                if not shown.users:
                    self._open.pop(key, None)
                    await shown.close()
