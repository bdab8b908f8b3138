"""The one connection that writes to SQLite: a transaction at a time, where it disturbs least.

Rules of this file:
- While commits are quick they happen on the loop's thread: changing threads would cost more than it saves.
- While they are slow they happen in a thread of their own, and writes that wait at the same time share a commit.
- Work checks before it writes: a refusal inside a shared transaction has written nothing and harms nobody.
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

from rerail.adapters.stores.sqlite_room import Room
from rerail.i18n import tell
from rerail.ports import Conflict, Fenced, Taken, Unavailable

T = TypeVar("T")
Work = Callable[[apsw.Cursor], T]  # what happens inside one transaction
Landing = Callable[[BaseException | None], None]
External = Callable[[], AbstractContextManager[None]]  # a clock's `external`: a thread is at work

INLINE_BELOW = 0.001  # seconds a commit; above, the loop would feel it, and a change of thread costs little beside it
LARGEST_GROUP = 256  # writes that share a commit at most, so that the first need not wait for all
LOOK_SECONDS = 0.1  # how often to look whether the file is still there; each time would cost a fifth of a commit
WEIGHT = 0.1  # of the newest commit in the average

# What one write can do wrong by itself; the others of its group must not suffer for it.
FAULTS = (apsw.Error, Unavailable, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Job(Generic[T]):
    """One write that waits for the thread: what to do, and who is told."""

    __slots__ = ("answer", "error", "result", "work")

    def __init__(self, work: Work[T], answer: asyncio.Future[T]) -> None:
        self.work = work
        self.answer = answer
        self.result: T
        self.error: BaseException | None = None

    def do(self, cursor: apsw.Cursor) -> None:
        """Do the work; a refusal wrote nothing, so it is no reason to undo what the others wrote."""
        self.error = None
        try:
            self.result = self.work(cursor)
        except (Conflict, Fenced, Taken) as refusal:
            self.error = refusal

    def tell(self) -> None:
        """Tell whoever waits, unless it was cancelled."""
        if self.answer.done():
            return
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class Writer:
    """Does work in transactions and answers once it is durable."""

    def __init__(
        self,
        path: str,
        commit: Callable[[apsw.Cursor], None],
        inline_below: float,
        patience: float,
        external: External,
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
        self._lock = threading.Lock()  # the loop's thread and the other one never meet on the connection
        self._average = 0.0  # seconds a commit takes
        self._waiting: list[_Job[Any]] = []
        self._flying: asyncio.Future[None] | None = None  # done when the thread has nothing more to do
        self._thread: _Thread | None = None

    def use(self, connection: apsw.Connection, room: Room | None = None) -> None:
        """Write to this connection from now on, with room made for it where that is worth it."""
        connection.set_busy_timeout(0)  # waiting for another process must not stop the loop; see `write`
        self._file = _identity(self._path)
        self._waiting, self._flying = [], None
        self._cursor, self._room = connection.cursor(), room

    def drop(self) -> None:
        """Let go of the connection and the thread."""
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
        """Wait until nothing is being written."""
        while self._flying is not None:
            await asyncio.wait([self._flying])

    async def write(self, work: Work[T], long: bool = False) -> T:
        """Do the work in a transaction and return once it is durable; what takes long never runs inline."""
        if self._cursor is None:
            raise Unavailable(tell("refuse.store.not_open", path=self._path))
        if not long and self._flying is None and self._average < self._inline_below:
            try:
                return self._transact(work)
            except apsw.BusyError:
                pass  # another process is writing: wait for it where waiting stops nobody
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
            self._thread = None  # it died of something that is no fault of a write
        for job in jobs:
            job.error = job.error or error
            job.tell()
        if self._waiting:
            self._send(loop)
        flight.set_result(None)

    def _together(self, jobs: list[_Job[Any]]) -> None:
        """Do all jobs in one transaction; if one of them breaks it, each in its own."""
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
            # As if alone: a large group must not make a quick disk look slow.
            self._measure((worked - begun) / jobs + time.perf_counter() - worked)
            return result

    def _measure(self, took: float) -> None:
        # One hiccup must not keep a quick disk in the thread for long.
        self._average += WEIGHT * (min(took, 10 * self._inline_below) - self._average)

    def _ready(self) -> apsw.Cursor:
        """The cursor, if the file is still there: SQLite would go on writing into a deleted one and say nothing."""
        if self._cursor is None:
            raise Unavailable(tell("refuse.store.not_open", path=self._path))
        now = time.perf_counter()
        if now - self._looked > LOOK_SECONDS:
            if _identity(self._path) != self._file:
                raise Unavailable(tell("refuse.store.moved", path=self._path))
            self._looked = now
        return self._cursor


class _Thread:
    """A thread that does one thing after the other; a plain queue makes the way there four times as short."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], None], asyncio.AbstractEventLoop, Landing] | None] = SimpleQueue()
        # A daemon: a program that ends without closing its store must end all the same. SQLite survives that.
        threading.Thread(target=self._run, name="rerail-sqlite", daemon=True).start()

    def do(self, work: Callable[[], None], loop: asyncio.AbstractEventLoop, then: Landing) -> None:
        """Do the work, then say so on the loop, with the error it died of, if any."""
        self._tasks.put((work, loop, then))

    def stop(self) -> None:
        """End the thread after what it was given."""
        self._tasks.put(None)

    def _run(self) -> None:
        while task := self._tasks.get():
            work, loop, then = task
            try:
                work()
            finally:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
