"""The writing connection to SQLite: one transaction at a time, on the cheaper thread.

Rules of this file:
- Quick commits happen on the loop's thread: a thread switch would cost more than it saves.
- Slow commits happen in a thread of their own, and writes that wait at the same time share a commit.
- Work checks before it writes: a refusal inside a shared transaction has written nothing and harms no other write.
- A commit that extends a file makes the file system write the new length too, which costs about as much as the content.
  A commit into preallocated room does not. Only the holder of SQLite's write lock preallocates: no other connection can
  append to the log then. SQLite ignores zeros behind the last frame: it checks each frame's salts and checksum. Where
  preallocation fails, everything works as without it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import apsw

from rerail.i18n import tell
from rerail.ports import Conflict, Fenced, Taken, Unavailable

T = TypeVar("T")
Work = Callable[[apsw.Cursor], T]  # the body of one transaction
Landing = Callable[[BaseException | None], None]
External = Callable[[], AbstractContextManager[None]]  # a clock's `external`: a thread is at work

INLINE_BELOW = 0.001  # seconds a commit; a slower one would block the loop, and a thread switch costs little beside it
LARGEST_GROUP = 256  # writes per commit, at most, so that the first does not wait for all
LOOK_SECONDS = 0.1  # how often to check that the file still exists; a check each time would cost a fifth of a commit
WEIGHT = 0.1  # of the newest commit in the average

# Errors of a single write; the others of its group must not suffer for it.
FAULTS = (apsw.Error, Unavailable, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Job(Generic[T]):
    """One queued write and the future of its result."""

    __slots__ = ("answer", "error", "result", "work")

    def __init__(self, work: Work[T], answer: asyncio.Future[T]) -> None:
        self.work = work
        self.answer = answer
        self.result: T
        self.error: BaseException | None = None

    def do(self, cursor: apsw.Cursor) -> None:
        """Do the work; a refusal wrote nothing, so the others' writes need no rollback."""
        self.error = None
        try:
            self.result = self.work(cursor)
        except (Conflict, Fenced, Taken) as refusal:
            self.error = refusal

    def tell(self) -> None:
        """Resolve the future unless its waiter was cancelled."""
        if self.answer.done():
            return
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class Writer:
    """Runs work in transactions and answers after each is durable."""

    def __init__(
        self, path: str, commit: Callable[[apsw.Cursor], None], inline_below: float, patience: float, external: External
    ) -> None:
        self._path = path
        self._commit = commit
        self._inline_below = inline_below
        self._patience = round(patience * 1000)
        self._external = external
        self._cursor: apsw.Cursor | None = None
        self._room: Room | None = None
        self._file = (0, 0)
        self._looked = 0.0
        self._lock = threading.Lock()  # keeps the two threads apart on the connection
        self._average = 0.0  # mean seconds of a commit
        self._waiting: list[_Job[Any]] = []
        self._flying: asyncio.Future[None] | None = None  # done when the thread is idle
        self._thread: _Thread | None = None

    def use(self, connection: apsw.Connection, room: Room | None = None) -> None:
        """Write to this connection from now on, with preallocation where it pays."""
        connection.set_busy_timeout(0)  # waiting for another process must not stop the loop; see `write`
        self._file = _identity(self._path)
        self._waiting, self._flying = [], None
        self._cursor, self._room = connection.cursor(), room

    def drop(self) -> None:
        with self._lock:
            cursor, self._cursor = self._cursor, None
            room, self._room = self._room, None
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.stop()
            if room is not None:
                room.close()
            if cursor is not None:
                cursor.connection.close()

    async def idle(self) -> None:
        while self._flying is not None:
            await asyncio.wait([self._flying])

    async def write(self, work: Work[T], long: bool = False) -> T:
        """Run the work in a transaction and return once it is durable; slow work never runs inline."""
        if self._cursor is None:
            raise Unavailable(tell("refuse.store.not_open", path=self._path))
        if not long and self._flying is None and self._average < self._inline_below:
            try:
                return self._transact(work)
            except apsw.BusyError:
                pass  # another process is writing: wait in the thread, where waiting blocks no other task
        with self._external():
            return await self._later(work)

    # -- In the thread, together ----------------------------------------------------------------------------------

    async def _later(self, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        job: _Job[T] = _Job(work, loop.create_future())
        self._waiting.append(job)
        if self._flying is None:
            self._send(loop)
        return await job.answer

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
        self._flying = loop.create_future()
        self._thread = self._thread or _Thread()
        self._thread.do(partial(self._together, jobs), loop, partial(self._landed, loop, self._flying, jobs))

    def _landed(
        self,
        loop: asyncio.AbstractEventLoop,
        flight: asyncio.Future[None],
        jobs: list[_Job[Any]],
        error: BaseException | None,
    ) -> None:
        self._flying = None
        if error is not None:
            self._thread = None  # the thread died of an error that is no write's fault
        for job in jobs:
            job.error = job.error or error
            job.tell()
        if self._waiting:
            self._send(loop)
        flight.set_result(None)

    def _together(self, jobs: list[_Job[Any]]) -> None:
        """Run all jobs in one transaction; if one breaks it, each in its own."""
        try:
            self._transact(partial(_do_all, jobs=jobs), len(jobs), self._patience)
        except FAULTS as error:
            if len(jobs) == 1 or isinstance(error, (apsw.BusyError, Unavailable)):
                for job in jobs:
                    job.error = error
                return
            for job in jobs:
                self._together([job])

    # -- One transaction ------------------------------------------------------------------------------------------

    def _transact(self, work: Work[T], jobs: int = 1, patience: int = 0) -> T:
        with self._lock:
            cursor = self._ready()
            _begin(cursor, patience)
            begun = time.perf_counter()
            try:
                if self._room is not None:
                    self._room.make()
                result = work(cursor)
                worked = time.perf_counter()
                self._commit(cursor)
            except BaseException:
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise
            # Count it as if alone: a large group must not make a quick disk look slow.
            self._measure((worked - begun) / jobs + time.perf_counter() - worked)
            return result

    def _measure(self, took: float) -> None:
        # One hiccup must not keep a quick disk in the thread for long.
        self._average += WEIGHT * (min(took, 10 * self._inline_below) - self._average)

    def _ready(self) -> apsw.Cursor:
        """Return the cursor if the file still exists: SQLite writes into a deleted file without an error."""
        if self._cursor is None:
            raise Unavailable(tell("refuse.store.not_open", path=self._path))
        now = time.perf_counter()
        if now - self._looked > LOOK_SECONDS:
            if _identity(self._path) != self._file:
                raise Unavailable(tell("refuse.store.moved", path=self._path))
            self._looked = now
        return self._cursor


class _Thread:
    """A thread that runs one job after the other; a plain queue makes its latency a quarter."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], None], asyncio.AbstractEventLoop, Landing] | None] = SimpleQueue()
        # A daemon thread: a program that ends without closing its store must still end. SQLite survives that.
        threading.Thread(target=self._run, name="rerail-sqlite", daemon=True).start()

    def do(self, work: Callable[[], None], loop: asyncio.AbstractEventLoop, then: Landing) -> None:
        """Run the work, then report on the loop, with its error if any."""
        self._tasks.put((work, loop, then))

    def stop(self) -> None:
        self._tasks.put(None)

    def _run(self) -> None:
        while task := self._tasks.get():
            work, loop, then = task
            try:
                work()
            finally:
                with suppress(RuntimeError):  # the loop is closed: no task waits any more
                    loop.call_soon_threadsafe(then, sys.exception())


def _do_all(cursor: apsw.Cursor, jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        job.do(cursor)


def _begin(cursor: apsw.Cursor, patience: int) -> None:
    if not patience:
        cursor.execute("BEGIN IMMEDIATE")
        return
    cursor.connection.set_busy_timeout(patience)
    try:
        cursor.execute("BEGIN IMMEDIATE")
    finally:
        cursor.connection.set_busy_timeout(0)


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)


# -- Preallocation of the write-ahead log ---------------------------------------------------------------------------

LEAST = 256 << 10  # bytes; about fifty commits
MOST = 4 << 20  # SQLite restarts the log after 1,000 pages, and this holds them


class Room:
    """Keeps the log of one connection longer than its written part."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._size = 0  # the size made last; another size means that a writer went beyond it

    def make(self) -> None:
        """Preallocate if the last room is used up. Only inside a write transaction."""
        size = os.fstat(self._file).st_size
        if size == self._size or size >= MOST:
            return
        self._size = min(max(2 * size, LEAST), MOST)
        try:
            _fill(self._file, size, self._size)
        except OSError:  # disk full or a limit: truncate, and do not retry at every commit
            with suppress(OSError):
                os.ftruncate(self._file, size)
            self._size = size

    def close(self) -> None:
        """Close the file; the log itself is SQLite's."""
        with suppress(OSError):
            os.close(self._file)


def room_in(log: str) -> Room | None:
    """Return the preallocation of this log; None where it is impossible."""
    try:
        return Room(os.open(log, os.O_WRONLY))
    except OSError:
        return None


def _fill(file: int, start: int, end: int) -> None:
    while start < end:
        start += os.pwrite(file, bytes(end - start), start)
