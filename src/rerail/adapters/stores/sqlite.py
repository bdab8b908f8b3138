"""A store in one SQLite file: the default, for as many processes of one machine as like.

Rules of this file:
- One connection writes, one reads; a reader never waits for a writer.
- Every write is one transaction that checks before it writes, so a refusal leaves nothing behind and harms no other.
- When and where a transaction happens is `sqlite_writer`'s business; what it does is here.
- No error of SQLite leaves this file; each becomes `Unavailable` or `Unusable`, with what to do next.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, Literal, TypeVar

import apsw

from rerail.adapters.stores.sqlite_care import clear, examine, remove, shrink, survey
from rerail.adapters.stores.sqlite_room import room_in
from rerail.adapters.stores.sqlite_writer import INLINE_BELOW, External, Work, Writer
from rerail.adapters.stores.waiting import ANY, Waiters
from rerail.i18n import tell
from rerail.ports import Batch, Conflict, Fenced, Flaw, Head, Lease, Owner, Row, Taken, Unavailable, Unusable

T = TypeVar("T")
Durability = Literal["full", "normal"]
Values = tuple[str | int | float | bytes | None, ...]

POLL_SECONDS = 0.05  # how soon another process's writes are noticed
PATIENCE_SECONDS = 5.0  # how long another process may hold the write lock

APPLICATION_ID = 0x5272616C  # "Rral": tells a store of ours from any other SQLite file

# Each entry takes a file from the version of its place to the next; entries are added, never changed.
MIGRATIONS = (
    """
    CREATE TABLE runs(
        number INTEGER PRIMARY KEY,
        run TEXT NOT NULL UNIQUE,
        seq INTEGER NOT NULL,
        updated_at REAL NOT NULL,
        status TEXT NOT NULL,
        fence INTEGER NOT NULL,
        host TEXT,
        pid INTEGER,
        started REAL,
        worker INTEGER,
        renewed_at REAL NOT NULL,
        created_at REAL NOT NULL,
        parent TEXT NOT NULL,
        objective TEXT NOT NULL
    );
    CREATE INDEX runs_by_age ON runs(created_at);
    CREATE INDEX runs_by_parent ON runs(parent, created_at);
    CREATE TABLE events(
        run TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at REAL NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY(run, seq)
    ) WITHOUT ROWID;
    CREATE TABLE blobs(digest TEXT PRIMARY KEY NOT NULL, data BLOB NOT NULL);
    CREATE TABLE run_blobs(digest TEXT NOT NULL, run TEXT NOT NULL, PRIMARY KEY(digest, run)) WITHOUT ROWID;
    CREATE TABLE inbox(
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL,
        data BLOB NOT NULL,
        answer BLOB
    );
    CREATE INDEX inbox_open ON inbox(run, number) WHERE answer IS NULL;
    """,
    # How far a run is, its last event says: keeping that a second time was one more page for every commit.
    """
    ALTER TABLE runs DROP COLUMN seq;
    ALTER TABLE runs DROP COLUMN updated_at;
    """,
    # Whoever removes a run asks which contents and actions it has; who looks for failed ones, or for any to take up,
    # wants a few of very many: without these, each would look at all there are.
    """
    CREATE INDEX run_blobs_by_run ON run_blobs(run);
    CREATE INDEX inbox_by_run ON inbox(run);
    CREATE INDEX runs_by_status ON runs(status, created_at);
    """,
)

_CREATE = """
    INSERT INTO runs(run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(run) DO NOTHING
    """
# Whether a batch may come next. Histories have no gaps: its place is free behind what is there, or it is not next. (One
# that looks for the largest number instead takes as long as all the rest of an append.)
_NEXT = """
    SELECT 1 FROM runs WHERE run = ?1 AND fence = ?2
        AND (?3 = 0 OR EXISTS(SELECT 1 FROM events WHERE run = ?1 AND seq = ?3))
        AND NOT EXISTS(SELECT 1 FROM events WHERE run = ?1 AND seq = ?3 + 1)
    """
_PLACE = "SELECT fence, ifnull((SELECT max(seq) FROM events WHERE run = ?1), 0) FROM runs WHERE run = ?1"
_MARK = "UPDATE runs SET status = ifnull(?, status), objective = ifnull(?, objective) WHERE run = ?"
_EVENT = "INSERT INTO events(run, seq, at, data) VALUES (?, ?, ?, ?)"
# What is there and differs is damaged: a content's name is its digest. Whoever brings it again mends it.
_BLOB = """
    INSERT INTO blobs(digest, data) VALUES (?, ?)
    ON CONFLICT(digest) DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data
    """
_RUN_BLOB = "INSERT INTO run_blobs(digest, run) VALUES (?, ?) ON CONFLICT DO NOTHING"
_READ = "SELECT seq, at, data FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
_HEADS = """
    SELECT run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at,
        (SELECT max(seq) FROM events WHERE events.run = runs.run),
        (SELECT at FROM events WHERE events.run = runs.run ORDER BY seq DESC LIMIT 1)
    """
_HEAD = _HEADS + "FROM runs WHERE run = ?"
_CLAIM = """
    UPDATE runs SET host = ?, pid = ?, started = ?, worker = ?, renewed_at = ?, fence = fence + 1
    WHERE run = ? AND (host IS NULL OR fence = ?) RETURNING fence
    """
_RENEW = "UPDATE runs SET renewed_at = ? WHERE run = ? AND fence = ? AND host IS NOT NULL"
_RELEASE = "UPDATE runs SET host = NULL, pid = NULL, started = NULL, worker = NULL WHERE run = ? AND fence = ?"
_POST = "INSERT INTO inbox(run, data) SELECT run, ? FROM runs WHERE run = ? RETURNING number"
_INBOX = "SELECT number, data FROM inbox WHERE run = ? AND answer IS NULL ORDER BY number"
_ANSWER = "UPDATE inbox SET answer = ? WHERE run = ? AND number = ? AND answer IS NULL"
_ANSWERED = "SELECT answer FROM inbox WHERE run = ? AND number = ?"
# A content goes when every run that refers to it completed long enough ago.
_SWEEP = """
    DELETE FROM blobs WHERE digest IN (
        SELECT digest FROM run_blobs JOIN runs USING (run)
        GROUP BY digest HAVING min(status = 'completed' AND created_at < ?1 AND
            ifnull((SELECT at FROM events WHERE events.run = runs.run ORDER BY seq DESC LIMIT 1), created_at) < ?1)
    )
    """
# Whether there can be any such: a store whose runs are young, or swept already, need not be looked through.
_OLD = """
    SELECT 1 FROM runs WHERE created_at < ? AND status = 'completed'
        AND EXISTS(SELECT 1 FROM run_blobs WHERE run_blobs.run = runs.run) LIMIT 1
    """
_FORGET = "DELETE FROM run_blobs WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.digest = run_blobs.digest)"
_NEWS = """
    SELECT ifnull((SELECT max(seq) FROM events WHERE run = ?1), 0),
        EXISTS(SELECT 1 FROM inbox WHERE run = ?1 AND answer IS NULL)
    """

_NOT_OPEN = "refuse.store.not_open"

# What SQLite's errors mean to a user. Whatever stands here may pass or has a cure; the rest is our own mistake.
_MEANINGS: Sequence[tuple[type[apsw.Error], type[Unavailable] | type[Unusable], str]] = (
    (apsw.BusyError, Unavailable, "refuse.store.locked"),
    (apsw.LockedError, Unavailable, "refuse.store.locked"),
    (apsw.FullError, Unusable, "refuse.store.disk_full"),
    (apsw.ReadOnlyError, Unusable, "refuse.store.not_writable"),
    (
        apsw.NotADBError,
        Unusable,
        "refuse.store.no_database",
    ),
    (apsw.CorruptError, Unusable, "refuse.store.damaged"),
    (apsw.IOError, Unavailable, "refuse.store.no_io"),
    (apsw.CantOpenError, Unavailable, "refuse.store.cannot_open"),
    (apsw.NoMemError, Unavailable, "refuse.store.no_memory"),
    (apsw.ProtocolError, Unavailable, "refuse.store.too_busy"),
    (apsw.InterruptError, Unavailable, "refuse.store.interrupted"),
    (apsw.ConnectionClosedError, Unavailable, _NOT_OPEN),
    (apsw.CursorClosedError, Unavailable, _NOT_OPEN),
)


def meaning(error: apsw.Error, path: str) -> Unavailable | Unusable:
    """An error of SQLite in the words of the port."""
    for kind, become, key in _MEANINGS:
        if isinstance(error, kind):
            return become(tell(key, path=path, error=error))
    return Unusable(tell("refuse.store.sqlite_refused", path=path, error=error))


class SqliteStore:
    """Histories in a SQLite file with a write-ahead log."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "full",
        *,
        inline_below: float = INLINE_BELOW,
        patience: float = PATIENCE_SECONDS,
        external: External = nullcontext,
    ) -> None:
        self._name = os.fspath(path)
        self._path = os.path.abspath(self._name)  # a working folder may change under a long run
        self._durability = durability
        self._patience = patience
        self._external = external
        self._writer = Writer(self._path, self._commit, inline_below, patience, external)
        self._reader: apsw.Cursor | None = None
        self._create = True  # connecting anew must not put an empty file in the place of a lost one
        self._gate = asyncio.Lock()  # several runs may want to connect anew at once
        self._waiters = Waiters()
        self._poll: asyncio.TimerHandle | None = None
        self._any_seen = 0  # the version of the file that those have seen who wait for any run
        self._version = -1

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return f"sqlite:///{self._name}"

    async def open(self) -> None:
        """Connect and prepare; an open store is connected anew, to the file it had."""
        async with self._gate:
            await self._close()
            with self._external():
                await asyncio.to_thread(self._connect)
            self._create = False

    async def close(self) -> None:
        """Let go of everything; what is being written is finished first."""
        async with self._gate:
            await self._close()
            self._create = True

    async def _close(self) -> None:
        if self._reader is None:
            return
        await self._writer.idle()
        with self._external():
            await asyncio.to_thread(self._disconnect)
        for run in self._waiters.runs():
            self._waiters.ring(run)

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        """Make a run with an empty history; `Conflict` if its id is taken."""
        await self._write(partial(_create, head=head))

    async def append(self, batch: Batch) -> None:
        """Write all rows and contents, durably, or nothing; one's own batch again is not doubled."""
        await self._write(partial(_append, batch=batch))
        self._waiters.ring(batch.run, batch.after + len(batch.rows))

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """The next rows of a history, in order; empty at its end."""
        return [Row(seq, at, data) for seq, at, data in self._read(_READ, (run, after, limit))]

    async def head(self, run: str) -> Head | None:
        """One run as lists show it."""
        found = self._read(_HEAD, (run,))
        return _head(found[0]) if found else None

    async def heads(
        self,
        *,
        prefix: str = "",
        status: Sequence[str] = (),
        parent: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 1000,
    ) -> list[Head]:
        """Runs, newest first; `prefix` is of the run id, `parent` an exact id, `before` where a list ended."""
        where, values = _filters(prefix, status, parent, before)
        # Only the number of placeholders varies; every value is bound.
        # Few ids begin alike: they are found by the index on the ids, and sorted, rather than looked for by age.
        age = "+created_at" if prefix else "created_at"
        # Chosen first, and only then looked at: where many have to be sorted, that would be done for all of them.
        chosen = f"SELECT * FROM runs {where} ORDER BY {age} DESC, number DESC LIMIT ?"  # noqa: S608 - see above
        query = f"{_HEADS} FROM ({chosen}) AS runs ORDER BY created_at DESC, number DESC"
        return [_head(row) for row in self._read(query, (*values, limit))]

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """Take the lease if nobody has it, or if its fence is `over`; `Taken` otherwise."""
        return await self._write(partial(_claim, run=run, owner=owner, now=now, over=over))

    async def renew(self, lease: Lease, now: float) -> None:
        """Say that the holder lives; `Fenced` if it is not the holder any more."""
        if not await self._write(partial(_change, sql=_RENEW, values=(now, lease.run, lease.fence))):
            raise Fenced(f"run {lease.run} is not held with fence {lease.fence} any more")

    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it was lost already."""
        await self._write(partial(_change, sql=_RELEASE, values=(lease.run, lease.fence)))
        self._waiters.ring(ANY)  # if it is at rest, they find nothing

    # -- People's actions -----------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        """Put a person's action into the run's inbox; returns its number."""
        number = await self._write(partial(_post, run=run, data=data))
        self._waiters.ring(run)
        return number

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        """The actions nobody has answered yet, in order."""
        return [(number, data) for number, data in self._read(_INBOX, (run,))]

    async def answer(self, run: str, number: int, data: bytes) -> None:
        """Answer an action; it leaves the inbox. The first answer stays."""
        await self._write(partial(_change, sql=_ANSWER, values=(data, run, number)))

    async def answered(self, run: str, number: int) -> bytes | None:
        """The answer to an action, once there is one."""
        return self._value(_ANSWERED, (run, number))

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        """A content by its digest; None if it is not there (any more)."""
        return self._value("SELECT data FROM blobs WHERE digest = ?", (digest,))

    async def sweep(self, before: float) -> int:
        """Drop contents that only runs completed before that time refer to; returns how many."""
        return await self._write(partial(_sweep, before=before), long=True)

    # -- Care -----------------------------------------------------------------------------------------------------

    async def remove(self, heads: Sequence[Head]) -> int:
        """Remove these runs, all of them or none; `Conflict` if one is not as it was seen."""
        return await self._write(partial(remove, heads=heads), long=True)

    async def clear(self) -> int:
        """Drop what is of no run, and contents that no run refers to, but no history; returns how many."""
        return await self._write(clear, long=True)

    async def shrink(self) -> int:
        """Give back the room in the file that nothing needs any more; returns how many bytes."""
        return await self._apart(shrink)

    async def examine(self) -> list[Flaw]:
        """What is wrong with the file itself."""
        return await self._apart(examine)

    async def survey(self) -> list[str]:
        """The ids of all runs of which anything can be found, whatever else is broken."""
        return await self._apart(survey)

    async def _apart(self, work: Callable[[apsw.Connection], T]) -> T:
        """Work with a connection of its own, in a thread: nobody here has to wait for it."""

        def apart() -> T:
            with ExitStack() as undo:
                return work(self._connection(undo))

        if self._reader is None:
            raise Unavailable(tell(_NOT_OPEN, path=self._path))
        try:
            with self._external():
                return await asyncio.to_thread(apart)
        except apsw.Error as error:
            raise meaning(error, self._path) from error

    # -- News -----------------------------------------------------------------------------------------------------

    async def changed(
        self,
        run: str,
        after: int,
        timeout: float,  # noqa: ASYNC109 - a time limit, not an error
        *,
        inbox: bool = False,
    ) -> bool:
        """Wait until the history goes past `after`, or, if asked, the inbox has something; False once time is over."""
        await asyncio.sleep(0)  # a caller that asks again and again must leave the loop to others
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            while not self._news(run, after, inbox):
                left = until - loop.time()
                if left <= 0:
                    return False
                self._watch(loop)
                await self._waiters.wait(run, after, left)
        finally:
            self._unwatch()
        return True

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        """Wait until somebody gives back a run that is not at rest, or writes anything; False once time is over."""
        [(self._any_seen,)] = self._read("PRAGMA data_version", ())
        self._watch(asyncio.get_running_loop())
        try:
            return await self._waiters.any_freed(timeout)
        finally:
            self._unwatch()

    def _news(self, run: str, after: int, inbox: bool) -> bool:
        [(seq, posted)] = self._read(_NEWS, (run,))
        return seq > after or (inbox and bool(posted))

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._poll is None:
            # No version yet: what was written since the waiter looked is seen by the first poll.
            self._version = -1
            self._poll = loop.call_later(POLL_SECONDS, self._look, loop)

    def _unwatch(self) -> None:
        if self._poll is not None and not self._waiters.runs():
            self._poll.cancel()
            self._poll = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """See whether anybody else wrote: one pragma for all who wait."""
        self._poll = loop.call_later(POLL_SECONDS, self._look, loop)
        try:
            [(version,)] = self._read("PRAGMA data_version", ())
            if version != self._version:
                self._version = version
                self._tell()
        except (Unavailable, Unusable):
            # Each of those who wait looks for itself, and raises to whom it concerns.
            for run in self._waiters.runs():
                self._waiters.ring(run)

    def _tell(self) -> None:
        for run in self._waiters.runs():
            if run == ANY:  # the file tells that something was written, and not what
                if self._version != self._any_seen:
                    self._waiters.ring(run)
                continue
            [(seq, posted)] = self._read(_NEWS, (run,))
            self._waiters.ring(run, None if posted else seq)

    # -- Reading and writing --------------------------------------------------------------------------------------

    def _read(self, sql: str, values: Values) -> list[tuple[Any, ...]]:
        if self._reader is None:
            raise Unavailable(tell(_NOT_OPEN, path=self._path))
        try:
            return self._reader.execute(sql, values).fetchall()
        except apsw.Error as error:
            raise meaning(error, self._path) from error
        except UnicodeDecodeError as error:  # a text that is none any more
            raise Unusable(tell("refuse.store.damaged", path=self._path, error=error)) from error

    def _value(self, sql: str, values: Values) -> bytes | None:
        found = self._read(sql, values)
        return found[0][0] if found else None

    async def _write(self, work: Work[T], *, long: bool = False) -> T:
        try:
            return await self._writer.write(work, long)
        except apsw.Error as error:
            raise meaning(error, self._path) from error

    def _commit(self, cursor: apsw.Cursor) -> None:
        """Make a transaction durable; where the time goes on a slow disk, so tests slow it down here."""
        cursor.execute("COMMIT")

    # -- Opening --------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._name in {"", ":memory:"}:
            raise Unusable(tell("refuse.store.no_file", url=self.url))
        if self._create:
            _make_file(self._path)
        with ExitStack() as undo:
            try:
                writer = self._connection(undo)
                prepare(writer, self._path, self._durability)
                reader = self._connection(undo)
                reader.pragma("query_only", True)
            except apsw.Error as error:
                raise _why_not(error, self._path) from error
            undo.pop_all()
        # Where commits do not wait for the disk, a file that grows costs them nothing.
        self._writer.use(writer, room_in(writer.filename_wal) if self._durability == "full" else None)
        self._reader = reader.cursor()

    def _connection(self, undo: ExitStack) -> apsw.Connection:
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        undo.callback(connection.close)
        connection.set_busy_timeout(round(self._patience * 1000))
        return connection

    def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        try:
            if reader is not None:
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
    if not _change(cursor, _CREATE, values):
        raise Conflict(f"there is a run {head.run} already")


def _append(cursor: apsw.Cursor, batch: Batch) -> None:
    run, after, rows = batch.run, batch.after, batch.rows
    if not cursor.execute(_NEXT, (run, batch.fence, after)).fetchall():
        _accept_own(cursor, batch)
        return
    if batch.status or batch.objective:
        cursor.execute(_MARK, (batch.status or None, batch.objective or None, run))
    if batch.blobs:
        cursor.executemany(_BLOB, batch.blobs.items())
        cursor.executemany(_RUN_BLOB, [(digest, run) for digest in batch.blobs])
    cursor.executemany(_EVENT, ((run, seq, at, data) for seq, (at, data) in enumerate(rows, after + 1)))


def _accept_own(cursor: apsw.Cursor, batch: Batch) -> None:
    """Accept rows that are there already: the holder of a fence is one writer, so the same rows are its own."""
    found = cursor.execute(_PLACE, (batch.run,)).fetchall()
    if not found:
        raise Conflict(f"there is no run {batch.run}")
    [(fence, seq)] = found
    if fence != batch.fence:
        raise Fenced(f"run {batch.run} is at fence {fence}, not {batch.fence}")
    there = cursor.execute(_READ, (batch.run, batch.after, len(batch.rows))).fetchall()
    if not there or [(at, data) for _, at, data in there] != list(batch.rows):
        raise Conflict(f"run {batch.run} is at {seq}, not {batch.after}")


def _claim(cursor: apsw.Cursor, run: str, owner: Owner, now: float, over: int | None) -> Lease:
    values = (owner.host, owner.pid, owner.started, owner.worker, now, run, over)
    claimed: list[tuple[Any, ...]] = cursor.execute(_CLAIM, values).fetchall()
    if claimed:
        return Lease(run, owner, claimed[0][0])
    found = cursor.execute(_HEAD, (run,)).fetchall()
    if not found:
        raise Conflict(f"there is no run {run}")
    raise Taken(_head(found[0]))


def _post(cursor: apsw.Cursor, run: str, data: bytes) -> int:
    posted: list[tuple[Any, ...]] = cursor.execute(_POST, (data, run)).fetchall()
    if not posted:
        raise Conflict(f"there is no run {run}")
    return int(posted[0][0])


def _sweep(cursor: apsw.Cursor, before: float) -> int:
    if not cursor.execute(_OLD, (before,)).fetchall():
        return 0
    dropped = _change(cursor, _SWEEP, (before,))
    if dropped:
        cursor.execute(_FORGET)
    return dropped


def _head(row: tuple[Any, ...]) -> Head:
    run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at, seq, at = row
    if not (isinstance(created_at, float) and isinstance(fence, int) and isinstance(seq, int | None)):
        # SQLite keeps anything in any column, and the bytes of a damaged page may be anything.
        raise Unusable(tell("refuse.store.damaged", path=f"{run!r:.60}", error="created_at, fence, seq"))
    owner = None if host is None else Owner(host, pid, started, bool(worker))
    # A run of which nothing is on record yet was last heard of when it was made.
    updated_at = created_at if at is None else at
    return Head(run, seq or 0, status, objective, parent, created_at, updated_at, owner, fence, renewed_at)


def _filters(
    prefix: str, status: Sequence[str], parent: str | None, before: tuple[float, str] | None
) -> tuple[str, Values]:
    terms: list[str] = []
    values: list[str | float] = []
    if prefix:
        terms.append("run >= ? AND run < ?")  # a range, which the index on the ids can answer
        values += [prefix, f"{prefix}\U0010ffff"]
    if status:
        terms.append(f"status IN ({', '.join('?' * len(status))})")
        values += status
    if parent is not None:
        terms.append("parent = ?")
        values.append(parent)
    if before is not None:
        # The first bound is for the index; what was made at the same time is told apart by its number.
        terms.append("created_at <= ? AND (created_at < ? OR number < (SELECT number FROM runs WHERE run = ?))")
        values += [before[0], *before]
    return ("WHERE " + " AND ".join(terms) if terms else ""), tuple(values)


# -- Files --------------------------------------------------------------------------------------------------------


def _make_file(path: str) -> None:
    """Make the file, for its owner's eyes only, if it is not there; histories hold what tools were given and said."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        _check_place(path)
    except OSError as error:
        raise Unusable(tell("refuse.store.cannot_create", path=path, strerror=error.strerror)) from error


def _check_place(path: str) -> None:
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise Unusable(tell("refuse.store.is_folder", path=path))
    if not os.path.isdir(folder):
        raise Unusable(tell("refuse.store.no_folder", path=path, folder=folder))
    if not os.access(folder, os.W_OK):
        # The log of changes lives beside the file, so writing the file is not enough.
        raise Unusable(tell("refuse.store.folder_read_only", path=path))


def _why_not(error: apsw.Error, path: str) -> Unavailable | Unusable:
    """Why the file could not be opened, where the system knows better than SQLite."""
    if isinstance(error, apsw.CantOpenError) and os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        return Unusable(tell("refuse.store.no_access", path=path))
    return meaning(error, path)


def prepare(connection: apsw.Connection, path: str, durability: Durability) -> None:
    """Make the database one of ours and up to date; nothing is changed in a file that is not ours."""
    version = _check_version(connection, path)
    if connection.readonly("main"):
        raise Unusable(tell("refuse.store.read_only", path=path))
    if connection.pragma("journal_mode", "wal") != "wal":
        raise Unusable(tell("refuse.store.bad_file_system", path=path))
    connection.pragma("synchronous", durability)
    connection.pragma("fullfsync", durability == "full")  # without it, macOS acknowledges what a power cut still loses
    if version == len(MIGRATIONS):
        return  # nothing to do, and whoever only looks writes nothing
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Again, under the lock: several processes may open a new file at once.
        for migration in MIGRATIONS[_check_version(connection, path) :]:
            connection.execute(migration)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(MIGRATIONS))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_version(connection: apsw.Connection, path: str) -> int:
    version: int = connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if tables and connection.pragma("application_id") != APPLICATION_ID:
        raise Unusable(tell("refuse.store.not_ours", path=path))
    if version > len(MIGRATIONS):
        raise Unusable(
            tell("refuse.store.store_newer", path=path, version=version, count=len(MIGRATIONS)),
            code="STORE_NEWER",
        )
    return version
