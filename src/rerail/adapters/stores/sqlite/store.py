"""The SQLite store: the default, for any number of processes of one machine.

Rules of this file:
- One connection writes, one reads; a reader never waits for a writer.
- Every write is one transaction that checks before it writes, so a refusal leaves nothing behind and harms no other.
- `writer` decides when and on which thread a transaction runs; this file decides what it does.
- No SQLite error leaves this file: each becomes `Unavailable` or `Unusable` with what to do next.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

import apsw

from rerail.adapters.stores.shared import ANY, Selection, Waiters, not_held, require_own
from rerail.adapters.stores.sqlite import maintenance as care
from rerail.adapters.stores.sqlite.maintenance import NOT_OPEN, PATIENCE_SECONDS, SQL, Durability, meaning
from rerail.adapters.stores.sqlite.writer import INLINE_BELOW, External, Work, Writer, room_in
from rerail.i18n import Told, tell
from rerail.ports import Batch, Conflict, Flaw, Head, Lease, Owner, Row, RunFilters, Store, Taken, Unavailable, Unusable
from rerail.workspace import make_private

T = TypeVar("T")
Values = tuple[str | int | float | bytes | None, ...]

POLL_SECONDS = 0.05  # how soon another process's writes are noticed


class SqliteStore(Store):
    """Histories in a SQLite file with a write-ahead log."""

    caveats: Sequence[Told] = ()

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "full",
        *,
        inline_below: float = INLINE_BELOW,
        patience: float = PATIENCE_SECONDS,
        external: External = nullcontext,
        reads: bool = False,
    ) -> None:
        """``reads``: a store that cannot be written is opened for reading; writing to it is refused."""
        self._reads = reads
        self._name = os.fspath(path)
        self._path = os.path.abspath(self._name)  # the working folder may change during a long run
        self._durability = durability
        self._patience = patience
        self._external = external
        self._writer = Writer(self._path, self._commit, inline_below, patience, external)
        self._reader: apsw.Cursor | None = None
        self._create = True  # a reconnect must not put an empty file in the place of a lost one
        self._gate = asyncio.Lock()  # several runs may reconnect at once
        self._waiters = Waiters()
        self._poll: asyncio.TimerHandle | None = None
        self._any_seen = 0  # the file version last seen by the waiters for any run
        self._version = -1

    @property
    def url(self) -> str:
        return f"sqlite:///{self._name}"

    async def open(self) -> None:
        """Connect and prepare; reconnect an open store to its own file."""
        async with self._gate:
            await self._close()
            with self._external():
                await asyncio.to_thread(self._connect)
            self._create = False

    async def close(self) -> None:
        """Close the store after pending writes."""
        async with self._gate:
            await self._close()
            self._create = True

    async def _close(self) -> None:
        if self._reader is None:
            return
        await self._writer.idle()
        reader, self._reader = self._reader, None  # here: the loop reads with it, a poll of waiters too
        with self._external():
            await asyncio.to_thread(self._disconnect, reader)
        self._waiters.ring_all()

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        await self._write(partial(_create, head=head))

    async def append(self, batch: Batch) -> None:
        await self._write(partial(_append, batch=batch))
        self._waiters.ring(batch.run, batch.after + len(batch.rows))

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        return [Row(*row) for row in self._read(SQL.READ, (run, after, limit))]

    async def head(self, run: str) -> Head | None:
        found = self._read(SQL.HEAD, (run,))
        return _head(found[0]) if found else None

    async def heads(self, **filters: Unpack[RunFilters]) -> list[Head]:
        wanted = Selection(**filters)
        where, values = _filters(wanted)
        # Only the number of placeholders varies; every value is bound. Few ids share a prefix: the index on the ids
        # finds them, and a sort of these is cheaper than a scan by age.
        age = "+created_at" if wanted.prefix else "created_at"
        # Rows are chosen first and decoded after: a sort of many would otherwise decode them all.
        chosen = f"SELECT * FROM runs {where} ORDER BY {age} DESC, number DESC LIMIT ?"  # noqa: S608 - see above
        query = f"{SQL.HEADS} FROM ({chosen}) AS runs ORDER BY created_at DESC, number DESC"
        return [_head(row) for row in self._read(query, (*values, wanted.limit))]

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        return await self._write(partial(_claim, run=run, owner=owner, now=now, over=over))

    async def renew(self, lease: Lease, now: float) -> None:
        if not await self._write(partial(_change, sql=SQL.RENEW, values=(now, lease.run, lease.fence))):
            raise not_held(lease)

    async def release(self, lease: Lease) -> None:
        await self._write(partial(_change, sql=SQL.RELEASE, values=(lease.run, lease.fence)))
        self._waiters.ring(ANY)  # if it is at rest, the waiters find nothing

    # -- Inbox ----------------------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        number = await self._write(partial(_post, run=run, data=data))
        self._waiters.ring(run)
        return number

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        return [(number, data) for number, data in self._read(SQL.INBOX, (run,))]

    async def answer(self, run: str, number: int, data: bytes) -> None:
        await self._write(partial(_change, sql=SQL.ANSWER, values=(data, run, number)))

    async def answered(self, run: str, number: int) -> bytes | None:
        return self._value(SQL.ANSWERED, (run, number))

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        return self._value("SELECT data FROM blobs WHERE digest = ?", (digest,))

    async def sweep(self, before: float) -> int:
        return await self._write(partial(_sweep, before=before), long=True)

    # -- Maintenance ----------------------------------------------------------------------------------------------

    async def remove(self, heads: Sequence[Head]) -> int:
        return await self._write(partial(care.remove, heads=heads), long=True)

    async def clear(self) -> int:
        return await self._write(care.clear, long=True)

    async def shrink(self) -> int:
        return await self._apart(care.shrink)

    async def examine(self) -> list[Flaw]:
        return await self._apart(care.examine)

    async def probe(self) -> None:
        """Write something and take it back."""
        await self._apart(care.probe)

    async def survey(self) -> list[str]:
        """Return the ids of all runs that left a trace, despite damage elsewhere."""
        return await self._apart(care.survey)

    async def _apart(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work on a connection of its own, in a thread: no other call waits for it."""

        def apart() -> T:
            with ExitStack() as undo:
                return work(self._connection(undo))

        if self._reader is None:
            raise Unavailable(tell(NOT_OPEN, path=self._path))
        try:
            with self._external():
                return await asyncio.to_thread(apart)
        except apsw.Error as error:
            raise meaning(error, self._path) from error

    # -- News -----------------------------------------------------------------------------------------------------

    async def changed(self, run: str, after: int, timeout: float, *, inbox: bool = False) -> bool:  # noqa: ASYNC109
        async def look() -> bool:
            [(seq, posted)] = self._read(SQL.NEWS, (run,))
            return seq > after or (inbox and bool(posted))

        self._watch(asyncio.get_running_loop())
        try:
            return await self._waiters.until(look, run, after, timeout)
        finally:
            self._unwatch()

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        [(self._any_seen,)] = self._read("PRAGMA data_version", ())
        self._watch(asyncio.get_running_loop())
        try:
            return await self._waiters.any_freed(timeout)
        finally:
            self._unwatch()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._poll is None:
            # No version yet: the first poll notices writes since the waiter's last read.
            self._version = -1
            self._poll = loop.call_later(POLL_SECONDS, self._look, loop)

    def _unwatch(self) -> None:
        if self._poll is not None and not self._waiters.runs():
            self._poll.cancel()
            self._poll = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Detect writes of other processes: one pragma for all waiters."""
        self._poll = loop.call_later(POLL_SECONDS, self._look, loop)
        try:
            [(version,)] = self._read("PRAGMA data_version", ())
            if version != self._version:
                self._version = version
                self._tell()
        except (Unavailable, Unusable):
            self._waiters.ring_all()

    def _tell(self) -> None:
        for run in self._waiters.runs():
            if run == ANY:  # the file tells that it changed, and not where
                if self._version != self._any_seen:
                    self._waiters.ring(run)
                continue
            [(seq, posted)] = self._read(SQL.NEWS, (run,))
            self._waiters.ring(run, None if posted else seq)

    # -- Reading and writing --------------------------------------------------------------------------------------

    def _read(self, sql: str, values: Values) -> list[tuple[Any, ...]]:
        if self._reader is None:
            raise Unavailable(tell(NOT_OPEN, path=self._path))
        try:
            return self._reader.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise meaning(error, self._path) from error
        except UnicodeDecodeError as error:  # a damaged text
            raise Unusable(tell("refuse.store.damaged", path=self._path, error=error)) from error

    def _value(self, sql: str, values: Values) -> bytes | None:
        found = self._read(sql, values)
        return found[0][0] if found else None

    async def _write(self, work: Work[T], *, long: bool = False) -> T:
        if self._reader is not None and self._reader.connection.readonly("main"):
            raise Unusable(tell("refuse.store.read_only", path=self._path))
        try:
            return await self._writer.write(work, long)
        except apsw.Error as error:
            raise meaning(error, self._path) from error

    def _commit(self, cursor: apsw.Cursor) -> None:
        """Commit durably; on a slow disk the time goes here, so tests slow it down here."""
        cursor.execute("COMMIT")

    # -- Opening --------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._name in {"", ":memory:"}:
            raise Unusable(tell("refuse.store.no_file", url=self.url))
        written = (self._path, os.path.dirname(self._path))  # the log of changes lies beside the file
        if self._reads and os.path.isfile(self._path) and not all(os.access(one, os.W_OK) for one in written):
            self._reader = _only_read(self._path, self._patience).cursor()
            return
        if self._create:
            _make_file(self._path)
        with ExitStack() as undo:
            try:
                writer = self._connection(undo)
                care.prepare(writer, self._path, self._durability)
                reader = self._connection(undo)
                reader.pragma("query_only", True)
            except apsw.Error as error:
                raise _why_not(error, self._path) from error
            undo.pop_all()
        # Where commits do not wait for the disk, a growing file costs them nothing.
        self._writer.use(writer, room_in(writer.filename_wal) if self._durability == "full" else None)
        self._reader = reader.cursor()

    def _connection(self, undo: ExitStack) -> apsw.Connection:
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        undo.callback(connection.close)
        connection.set_busy_timeout(round(self._patience * 1000))
        return connection

    def _disconnect(self, reader: apsw.Cursor) -> None:
        try:
            reader.connection.close()
            self._writer.drop()
        except apsw.Error as error:
            raise meaning(error, self._path) from error


# -- What a transaction does --------------------------------------------------------------------------------------


def _change(cursor: apsw.Cursor, sql: str, values: Values) -> int:
    cursor.execute(sql, values)
    return cursor.connection.changes()


def _create(cursor: apsw.Cursor, head: Head) -> None:
    owner = head.owner
    who = (owner.host, owner.pid, owner.started, owner.worker) if owner else (None, None, None, None)
    values = (head.run, head.status, head.objective, head.parent, head.created_at, *who, head.fence, head.renewed_at)
    if not _change(cursor, SQL.CREATE, values):
        raise Conflict(f"there is a run {head.run} already")


def _append(cursor: apsw.Cursor, batch: Batch) -> None:
    run, after, rows = batch.run, batch.after, batch.rows
    if not cursor.execute(SQL.NEXT, (run, batch.fence, after)).fetchall():
        found: list[Any] = cursor.execute(SQL.PLACE, (run,)).fetchall()
        there = [Row(*row) for row in cursor.execute(SQL.READ, (run, after, len(rows)))]
        require_own(batch, found[0] if found else None, there)
        return
    if batch.status or batch.objective:
        cursor.execute(SQL.MARK, (batch.status or None, batch.objective or None, run))
    if batch.blobs:
        cursor.executemany(SQL.BLOB, batch.blobs.items())
        cursor.executemany(SQL.RUN_BLOB, [(digest, run) for digest in batch.blobs])
    cursor.executemany(SQL.EVENT, ((run, seq, at, data) for seq, (at, data) in enumerate(rows, after + 1)))


def _claim(cursor: apsw.Cursor, run: str, owner: Owner, now: float, over: int | None) -> Lease:
    values = (owner.host, owner.pid, owner.started, owner.worker, now, run, over)
    claimed: list[tuple[Any, ...]] = cursor.execute(SQL.CLAIM, values).fetchall()
    if claimed:
        return Lease(run, owner, claimed[0][0])
    found = cursor.execute(SQL.HEAD, (run,)).fetchall()
    if not found:
        raise Conflict(f"there is no run {run}")
    raise Taken(_head(found[0]))


def _post(cursor: apsw.Cursor, run: str, data: bytes) -> int:
    posted: list[tuple[Any, ...]] = cursor.execute(SQL.POST, (data, run)).fetchall()
    if not posted:
        raise Conflict(f"there is no run {run}")
    return int(posted[0][0])


def _sweep(cursor: apsw.Cursor, before: float) -> int:
    if not cursor.execute(SQL.OLD, (before,)).fetchall():
        return 0
    dropped = _change(cursor, SQL.SWEEP, (before,))
    if dropped:
        cursor.execute(SQL.FORGET)
    return dropped


def _head(row: tuple[Any, ...]) -> Head:
    run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at, seq, at = row
    if not (isinstance(created_at, float) and isinstance(fence, int) and isinstance(seq, int | None)):
        # SQLite stores any type in any column, and the bytes of a damaged page may be anything.
        raise Unusable(tell("refuse.store.damaged", path=f"{run!r:.60}", error="created_at, fence, seq"))
    owner = None if host is None else Owner(host, pid, started, bool(worker))
    # A run without events was last active when it was created.
    updated_at = created_at if at is None else at
    return Head(run, seq or 0, status, objective, parent, created_at, updated_at, owner, fence, renewed_at)


def _filters(wanted: Selection) -> tuple[str, Values]:
    terms: list[str] = []
    values: list[str | float] = []
    if wanted.prefix:
        terms.append("run >= ? AND run < ?")  # a range, so that the index on the ids can answer
        values += [wanted.prefix, f"{wanted.prefix}\U0010ffff"]
    if wanted.status:
        terms.append(f"status IN ({', '.join('?' * len(wanted.status))})")
        values += wanted.status
    if wanted.parent is not None:
        terms.append("parent = ?")
        values.append(wanted.parent)
    if wanted.before is not None:
        # The first bound is for the index; the number orders runs of the same time.
        terms.append("created_at <= ? AND (created_at < ? OR number < (SELECT number FROM runs WHERE run = ?))")
        values += [wanted.before[0], *wanted.before]
    return ("WHERE " + " AND ".join(terms) if terms else ""), tuple(values)


# -- Files --------------------------------------------------------------------------------------------------------


def _make_file(path: str) -> None:
    """Create the file if it is absent, readable by its owner only; histories hold tools' inputs and outputs."""
    folder = os.path.dirname(path)
    try:
        if not os.path.isdir(folder):  # one that is there was chosen, and may be shared
            make_private(Path(folder))
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        _check_place(path)
    except OSError as error:
        raise Unusable(tell("refuse.store.cannot_create", path=path, strerror=error.strerror or error)) from error


def _check_place(path: str) -> None:
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise Unusable(tell("refuse.store.is_folder", path=path))
    if not os.path.isdir(folder):
        raise Unusable(tell("refuse.store.no_folder", path=path, folder=folder))
    if not os.access(folder, os.W_OK):
        # The log of changes lives beside the file, so write access to the file is not enough.
        raise Unusable(tell("refuse.store.folder_read_only", path=path))


def _only_read(path: str, patience: float) -> apsw.Connection:
    """Open a store for reading alone.

    A log beside the file is read with it. Without a log or a process that writes one, nothing changes the file: then
    SQLite may read it without the shared memory that it could not create here.
    """
    left = os.path.exists(f"{path}-shm") or (os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0)
    try:
        name = f"file:{quote(path)}?mode=ro" + ("" if left else "&immutable=1")
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        connection.set_busy_timeout(round(patience * 1000))
        care.require_current(connection, path)
    except apsw.Error as error:
        raise _why_not(error, path) from error
    return connection


def _why_not(error: apsw.Error, path: str) -> Unavailable | Unusable:
    """Return why the file could not be opened, where the system knows better than SQLite."""
    if isinstance(error, apsw.CantOpenError) and os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        return Unusable(tell("refuse.store.no_access", path=path))
    return meaning(error, path)
