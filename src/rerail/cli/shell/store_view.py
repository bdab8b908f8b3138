"""The shell's view of the store: read only, in a thread of its own (contract T11).

Rules of this file:
- The thread writes no data, creates no store, and reports no error of one: the typed commands do that.
- Typing never waits for it: a question has an answer in time, or none.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rerail.cli.display.run_view import Picture
from rerail.cli.session import store_file
from rerail.engine.runs.owner import is_interrupted
from rerail.engine.runs.reader import AT_REST, FORGOTTEN, PAGE
from rerail.errors import RerailError
from rerail.factory import make_store
from rerail.kernel.codec import Damaged, NewerFormat, decode
from rerail.kernel.events import Record
from rerail.ports import Head, Store, Unavailable, Unusable
from rerail.settings.loading import Settings

T = TypeVar("T")

LIVE = ("pending", "running", "waiting")
NEWEST, MOST = 30, 300  # runs in view: the newest, and the unfinished ones
EVERY = 0.2  # seconds between two polls, and more if a poll takes long
SHARE = 20  # largest share of the time that polls may take: one part in so many
PATIENCE = 1.0  # seconds that a question waits for its answer
AGAIN = 1.0  # seconds until an unreadable store is tried again
KEPT = 32  # runs with a state cached for the next question

# Possible faults of a history, and of a store or its file.
DAMAGE = (Damaged, NewerFormat, ValueError, LookupError, TypeError, AttributeError, AssertionError)
TROUBLE = (Unavailable, Unusable, RerailError, OSError, RuntimeError, *DAMAGE)


@dataclass(frozen=True, slots=True)
class Counts:
    running: int = 0
    waiting: int = 0
    interrupted: int = 0


Tell = Callable[[str, int, Picture, Record | None], None]


class Window:
    """Polls a store, announces its news, and answers questions about it."""

    def __init__(self, settings: Settings, tell: Tell, counted: Callable[[], None]) -> None:
        """``tell`` gets each event, or the loss of a run's owner (no event), with the run and its last number."""
        self.counts = Counts()
        self._settings, self._tell, self._counted = settings, tell, counted
        self._thread = threading.Thread(target=self._main, name="rerail-window", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._store: Store | None = None
        self._began = time.time()
        self._told: dict[str, int] = {}  # runs → the last event that was announced, or older than the shell
        self._lost: set[str] = set()
        self._live: dict[str, Picture] = {}
        self._pictures: dict[str, Picture] = {}  # for questions

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop polling, without waiting for a store that does not answer."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(task.cancel)
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def _main(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._look_for_ever())

    async def _look_for_ever(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        file = store_file(self._settings.store.url)
        while file is not None:  # else no other process could see the store
            with contextlib.suppress(*TROUBLE):
                if _is_there(file):
                    await self._look(str(file))
            self._counts_are(Counts())
            await asyncio.sleep(AGAIN if _is_there(file) else EVERY)

    async def _look(self, file: str) -> None:
        """Poll the store as long as it is the same file."""
        which = _identity(file)
        store = make_store(self._settings.store.url, self._settings)
        await store.open()
        self._store = store
        try:
            while _identity(file) == which:
                began = time.monotonic()
                await self._look_once(store)
                await asyncio.sleep(max(EVERY, SHARE * (time.monotonic() - began)))
        finally:
            self._store = None
            self._pictures.clear()
            with contextlib.suppress(*TROUBLE):
                await store.close()

    async def _look_once(self, store: Store) -> None:
        newest, live = await store.heads(limit=NEWEST), await store.heads(status=LIVE, limit=MOST)
        heads = {head.run: head for head in (*newest, *live) if head.run != FORGOTTEN}
        now = time.time()
        lost = {head.run for head in heads.values() if is_interrupted(head, now)}
        for head in sorted(heads.values(), key=lambda head: head.updated_at):
            with contextlib.suppress(*DAMAGE):  # one damaged run; the others are announced all the same
                await self._see(store, head)
            self._told[head.run] = max(head.seq, self._told.get(head.run, 0))
            self._see_owner(head, lost=head.run in lost)
        running = sum(head.status in ("pending", "running") for head in heads.values()) - len(lost)
        self._counts_are(Counts(running, sum(head.status == "waiting" for head in heads.values()), len(lost)))

    def _counts_are(self, counts: Counts) -> None:
        if counts != self.counts:
            self.counts = counts
            self._counted()

    async def _see(self, store: Store, head: Head) -> None:
        """Announce a run's news since the last poll; events older than the shell are no news."""
        told = self._told.get(head.run, 0)
        if head.seq <= told or head.updated_at < self._began:
            return
        picture = self._live.setdefault(head.run, Picture(head.run))
        async for record in _records(store, head.run, picture.seq):
            picture.feed(record)
            if record.seq > told and record.at >= self._began:
                self._tell(head.run, record.seq, picture, record)

    def _see_owner(self, head: Head, *, lost: bool) -> None:
        """Announce the death of a run's owner once, unless it is older than the shell."""
        alive = max(head.renewed_at, head.updated_at) >= self._began
        if lost and alive and head.run not in self._lost:
            self._tell(head.run, head.seq, self._live.get(head.run) or Picture(head.run), None)
        (self._lost.add if lost else self._lost.discard)(head.run)
        if head.status in AT_REST:
            self._live.pop(head.run, None)  # its next owner's events are read anew

    # -- Questions ------------------------------------------------------------------------------------------------

    def runs(self, prefix: str = "", limit: int = 50) -> list[Head]:
        """Return runs by the beginning of their id, newest first."""

        async def answer(store: Store) -> list[Head]:
            return [head for head in await store.heads(prefix=prefix, limit=limit) if head.run != FORGOTTEN]

        return self._ask(answer, [])

    def pictures(self, run: str) -> list[Picture]:
        """Return the run of an id or its beginning, and its follow-ups; empty if unknown."""

        async def answer(store: Store) -> list[Picture]:
            found = await store.head(run)
            matches = [found] if found is not None else await store.heads(prefix=run, limit=2) if run else []
            if len(matches) != 1:
                return []
            followers = await store.heads(parent=matches[0].run, limit=1)
            return [await self._picture(store, head.run) for head in (*matches, *followers)]

        return self._ask(answer, [])

    async def _picture(self, store: Store, run: str) -> Picture:
        picture = self._pictures.pop(run, None) or Picture(run)
        async for record in _records(store, run, picture.seq):
            picture.feed(record)
        self._pictures[run] = picture
        while len(self._pictures) > KEPT:
            del self._pictures[next(iter(self._pictures))]
        return picture

    def _ask(self, question: Callable[[Store], Awaitable[T]], instead: T) -> T:
        loop, store = self._loop, self._store
        if loop is None or store is None:
            return instead

        async def asked() -> T:
            return await question(store)

        coroutine = asked()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # it has ended
            coroutine.close()
            return instead
        try:
            return future.result(PATIENCE)
        except (*TROUBLE, TimeoutError, concurrent.futures.CancelledError):
            future.cancel()
            return instead


async def _records(store: Store, run: str, after: int) -> AsyncIterator[Record]:
    while rows := await store.read(run, after, PAGE):
        for row in rows:
            yield Record(run, row.seq, row.at, decode(row.data))
        after = rows[-1].seq
        await asyncio.sleep(0)


def _is_there(file: Path) -> bool:
    return os.path.exists(file)  # an inaccessible file counts as absent


def _identity(file: str) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino
