"""The store as the shell sees it: from a thread of its own, read only (SPEC T11).

Rules of this file:
- Nothing here writes, makes a store, or says what went wrong with one: the commands do that when they are typed.
- Nobody who types waits for it: a question has an answer in time, or none.
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

from rerail.cli.picture import Picture
from rerail.cli.session import store_file
from rerail.core.codec import Damaged, NewerFormat, decode
from rerail.core.events import Record
from rerail.engine.owner import is_dead
from rerail.engine.reading import AT_REST, FORGOTTEN, PAGE
from rerail.errors import RerailError
from rerail.ports import Head, Store, Unavailable, Unusable
from rerail.settings import Settings
from rerail.wiring import make_store

T = TypeVar("T")

LIVE = ("pending", "running", "waiting")
NEWEST, MOST = 30, 300  # runs that are looked at: the newest, and those that are not at rest
EVERY = 0.2  # seconds between two looks, and more if a look takes long
SHARE = 20  # a look may take one part of so many of the time
PATIENCE = 1.0  # seconds that a question waits for its answer
AGAIN = 1.0  # seconds until a store that could not be read is tried again
KEPT = 32  # runs whose state is kept for the next question

# What can be wrong with a history, and with a store or its file.
DAMAGE = (Damaged, NewerFormat, ValueError, LookupError, TypeError, AttributeError, AssertionError)
TROUBLE = (Unavailable, Unusable, RerailError, OSError, RuntimeError, *DAMAGE)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many runs are not at rest."""

    running: int = 0
    waiting: int = 0
    interrupted: int = 0


Tell = Callable[[str, int, Picture, Record | None], None]


class Window:
    """Looks at a store again and again, tells what happened, and answers questions about it."""

    def __init__(self, settings: Settings, tell: Tell, counted: Callable[[], None]) -> None:
        """``tell`` is told of each event, or that a run's owner died (no event), with the run and its last number."""
        self.counts = Counts()
        self._settings, self._tell, self._counted = settings, tell, counted
        self._thread = threading.Thread(target=self._main, name="rerail-window", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._store: Store | None = None
        self._began = time.time()
        self._told: dict[str, int] = {}  # runs → the last event that was told, or was there before
        self._lost: set[str] = set()
        self._live: dict[str, Picture] = {}
        self._pictures: dict[str, Picture] = {}  # for questions

    def open(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking; a store that does not answer is not waited for."""
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
        while file is not None:  # else it is no store that others could see
            with contextlib.suppress(*TROUBLE):
                if _is_there(file):
                    await self._look(str(file))
            self._counts_are(Counts())
            await asyncio.sleep(AGAIN if _is_there(file) else EVERY)

    async def _look(self, file: str) -> None:
        """Look at the store as long as it is the same one."""
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
        lost = {head.run for head in heads.values() if head.status == "running" and is_dead(head, now)}
        for head in sorted(heads.values(), key=lambda head: head.updated_at):
            with contextlib.suppress(*DAMAGE):  # of one run; the others are told of all the same
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
        """Tell what happened to a run since the last look; what happened before the shell began is no news."""
        told = self._told.get(head.run, 0)
        if head.seq <= told or head.updated_at < self._began:
            return
        picture = self._live.setdefault(head.run, Picture(head.run))
        async for record in _records(store, head.run, picture.seq):
            picture.feed(record)
            if record.seq > told and record.at >= self._began:
                self._tell(head.run, record.seq, picture, record)

    def _see_owner(self, head: Head, *, lost: bool) -> None:
        """Tell that a run's owner died, once; if it had not died before the shell began."""
        alive = max(head.renewed_at, head.updated_at) >= self._began
        if lost and alive and head.run not in self._lost:
            self._tell(head.run, head.seq, self._live.get(head.run) or Picture(head.run), None)
        (self._lost.add if lost else self._lost.discard)(head.run)
        if head.status in AT_REST:
            self._live.pop(head.run, None)  # whoever takes it up again has it read anew

    # -- Questions ------------------------------------------------------------------------------------------------

    def runs(self, prefix: str = "", limit: int = 50) -> list[Head]:
        """Runs whose id begins so, newest first."""

        async def answer(store: Store) -> list[Head]:
            return [head for head in await store.heads(prefix=prefix, limit=limit) if head.run != FORGOTTEN]

        return self._ask(answer, [])

    def pictures(self, run: str) -> list[Picture]:
        """The run that an id or the beginning of one means, and what follows it; nothing if it is not known."""

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
    return os.path.exists(file)  # one that may not be looked at is not there, either


def _identity(file: str) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino
