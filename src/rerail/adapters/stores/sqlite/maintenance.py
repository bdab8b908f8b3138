"""A SQLite file: its errors, its schema, removal of runs, compaction, damage checks, backup.

Rules of this file:
- One transaction removes a run with all its data: no reader sees half of one.
- The damage check changes nothing and goes on after its first finding.
- A broken page hides only its own rows: a survey goes on behind it and by other indexes.
- A history of an unlisted run is data loss, not garbage: cleanup never drops it or anything it needs.
- A backup is the store at one moment: SQLite's own backup reads it in one go, and no writer waits for it. The copy gets
  its name last: after an integrity check, an open as a store, and fsync. A stale log beside that name would be replayed
  over the copy at its next open: it goes first, or there is no copy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import apsw

from rerail.adapters.stores.shared import Statements
from rerail.i18n import tell
from rerail.ports import Conflict, Flaw, Head, Unavailable, Unusable
from rerail.workspace import part_of, settle

SQL = Statements(__file__)
MIGRATIONS = SQL.numbered("MIGRATION")  # each entry migrates a file from the version of its index to the next

Durability = Literal["full", "normal"]

APPLICATION_ID: Final = 0x5272616C  # "Rral": tells a store of ours from any other SQLite file
PATIENCE_SECONDS: Final = 5.0  # how long another process may hold the write lock
NOT_OPEN: Final = "refuse.store.not_open"
MOST_SAID: Final = 20  # broken places that are reported one by one
PROBED: Final = 64 * 1024  # bytes that a probe writes
MOST_TRIED: Final = 100_000  # run numbers that are tried one by one behind a broken place

# SQLite's errors by meaning. Each entry may pass or has a cure; any other error is a bug of this store.
_MEANINGS: Sequence[tuple[type[apsw.Error], type[Unavailable] | type[Unusable], str]] = (
    (apsw.BusyError, Unavailable, "refuse.store.locked"),
    (apsw.LockedError, Unavailable, "refuse.store.locked"),
    (apsw.FullError, Unusable, "refuse.store.disk_full"),
    (apsw.ReadOnlyError, Unusable, "refuse.store.not_writable"),
    (apsw.NotADBError, Unusable, "refuse.store.no_database"),
    (apsw.CorruptError, Unusable, "refuse.store.damaged"),
    (apsw.IOError, Unavailable, "refuse.store.no_io"),
    (apsw.CantOpenError, Unavailable, "refuse.store.cannot_open"),
    (apsw.NoMemError, Unavailable, "refuse.store.no_memory"),
    (apsw.ProtocolError, Unavailable, "refuse.store.too_busy"),
    (apsw.InterruptError, Unavailable, "refuse.store.interrupted"),
    (apsw.ConnectionClosedError, Unavailable, NOT_OPEN),
    (apsw.CursorClosedError, Unavailable, NOT_OPEN),
)


def meaning(error: apsw.Error, path: str) -> Unavailable | Unusable:
    """Translate a SQLite error into an error of the port."""
    if vars(error).get("extendedresult") == apsw.SQLITE_IOERR_SHMSIZE:  # no room for the index of the log
        error = apsw.FullError(str(error))
    for kind, become, key in _MEANINGS:
        if isinstance(error, kind):
            return become(tell(key, path=path, error=error))
    return Unusable(tell("refuse.store.sqlite_refused", path=path, error=error))


# -- Schema -------------------------------------------------------------------------------------------------------


def prepare(connection: apsw.Connection, path: str, durability: Durability) -> None:
    """Create or migrate the schema; change nothing in a foreign file."""
    version = _check_version(connection, path)
    if connection.readonly("main"):
        raise Unusable(tell("refuse.store.read_only", path=path))
    if connection.pragma("journal_mode", "wal") != "wal":
        raise Unusable(tell("refuse.store.bad_file_system", path=path))
    connection.pragma("synchronous", durability)
    connection.pragma("fullfsync", durability == "full")  # without it, macOS acknowledges what a power cut still loses
    if version == len(MIGRATIONS):
        return  # nothing to migrate, and an open for reading writes nothing
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Check again, under the lock: several processes may open a new file at once.
        for migration in MIGRATIONS[_check_version(connection, path) :]:
            connection.execute(migration)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(MIGRATIONS))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def require_current(connection: apsw.Connection, path: str) -> None:
    """Refuse a store that cannot be read before it is migrated, which takes writing."""
    if _check_version(connection, path) != len(MIGRATIONS):
        raise Unusable(tell("refuse.store.read_only", path=path))


def _check_version(connection: apsw.Connection, path: str) -> int:
    version: int = connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if tables and connection.pragma("application_id") != APPLICATION_ID:
        raise Unusable(tell("refuse.store.not_ours", path=path))
    if version > len(MIGRATIONS):
        told = tell("refuse.store.store_newer", path=path, version=version, count=len(MIGRATIONS))
        raise Unusable(told, code="STORE_NEWER")
    return version


def probe(connection: apsw.Connection) -> None:
    """Write to the log beside the file without a commit, so that a full disk shows and no change stays."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE probe (content)")
        connection.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBED,))
        connection.cache_flush()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


# -- Upkeep -------------------------------------------------------------------------------------------------------


def remove(cursor: apsw.Cursor, heads: Sequence[Head]) -> int:
    """Remove runs and the data only they need, in one transaction; `Conflict` before any write."""
    going = {head.run for head in heads}
    for head in heads:
        if not cursor.execute(SQL.SEEN, (head.run, head.fence, head.status, head.seq)).fetchall():
            raise Conflict(f"run {head.run} is not as it was")
        if any(child not in going for (child,) in cursor.execute(SQL.CHILDREN, (head.run,)).fetchall()):
            raise Conflict(f"a run that stays follows {head.run}")
    named: set[Any] = set()
    for run in going:
        named.update(digest for (digest,) in cursor.execute(SQL.NAMED, (run,)).fetchall())
        for table in ("events", "inbox", "runs"):
            cursor.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - one of three names
    return sum(_changed(cursor, SQL.LOOSE, (digest,)) for digest in named)


def clear(cursor: apsw.Cursor) -> int:
    """Drop actions of no run and unreferenced contents; keep histories and what they need."""
    dropped = _changed(cursor, f"DELETE {SQL.NO_RUN.format(table='inbox')}")
    cursor.execute(f"DELETE {SQL.NO_RUN.format(table='run_blobs')}")
    return dropped + _changed(cursor, f"DELETE {SQL.NO_NAME}")


def _changed(cursor: apsw.Cursor, sql: str, values: tuple[str, ...] = ()) -> int:
    cursor.execute(sql, values)
    return cursor.connection.changes()


def shrink(connection: apsw.Connection) -> int:
    """Rewrite the file without its empty pages; return the bytes freed."""
    before = connection.pragma("page_count")
    connection.execute("VACUUM")
    with suppress(apsw.BusyError):  # a reader is still in the log: a later checkpoint truncates it
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    freed: int = (before - connection.pragma("page_count")) * connection.pragma("page_size")
    return max(0, freed)


def examine(connection: apsw.Connection) -> list[Flaw]:
    flaws: list[Flaw] = []
    try:
        said = [text for (text,) in connection.execute(f"PRAGMA integrity_check({MOST_SAID})")]
        lines = [line for text in said if text != "ok" for line in text.splitlines()]
        flaws += [Flaw("pages", line) for line in lines[:MOST_SAID]]
    except apsw.Error as error:
        return [Flaw("pages", str(error))]
    looks = (
        ("histories", SQL.DRIVEN.replace("SELECT run FROM driven", "SELECT count(*) FROM driven")),
        ("actions", f"SELECT count(*) {SQL.NO_RUN.format(table='inbox')}"),
        ("contents", f"SELECT count(*) {SQL.NO_NAME}"),
    )
    for what, sql in looks:
        with suppress(apsw.CorruptError):  # reported above
            count = connection.execute(sql).get
            if count:
                flaws.append(Flaw("orphans", what, count))
    return flaws


def survey(connection: apsw.Connection) -> list[str]:
    """Return the ids of all runs that left a trace, despite damage elsewhere.

    An id stands in the table of runs, in the index of their ids and in the history: one of the three is enough.
    """
    found: set[str] = set()

    def walk(sql: str, *values: Any) -> int:
        """Collect ids up to the first broken place; return the last number read."""
        last = 0
        with suppress(apsw.Error, UnicodeDecodeError):
            for run, number in connection.execute(sql, values):
                last = number
                if isinstance(run, str):
                    found.add(run)
        return last

    walk("SELECT run, 0 FROM runs ORDER BY run")
    walk("SELECT run, 0 FROM runs ORDER BY run DESC")
    first = walk("SELECT run, number FROM runs NOT INDEXED ORDER BY number")
    last = walk("SELECT run, number FROM runs NOT INDEXED ORDER BY number DESC")
    # No number if the first walk came to the end. A broken place's number is unreliable: both ends are tried.
    middle = min(first + MOST_TRIED, last)
    for number in chain(range(first + 1, middle), range(max(middle, last - MOST_TRIED), last)):
        walk("SELECT run, number FROM runs NOT INDEXED WHERE number = ?", number)
    walk("SELECT DISTINCT run, 0 FROM events ORDER BY run DESC")
    for known in ["", *sorted(found)]:  # behind a broken place, the next known history is the next start
        here: Any = known
        while isinstance(here, str):
            with suppress(apsw.Error, UnicodeDecodeError):
                here = connection.execute("SELECT min(run) FROM events WHERE run > ?", (here,)).get
                if isinstance(here, str) and here not in found:
                    found.add(here)
                    continue
            break
    return sorted(found)


# -- Backup -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreBackup:
    """A finished and checked copy."""

    path: str
    runs: int
    events: int
    size: int


def beside(path: Path) -> list[Path]:
    """Return the files that SQLite keeps beside a database and treats as parts of it."""
    return [Path(f"{path}{end}") for end in ("-wal", "-shm", "-journal")]


def back_up(source: Path, target: Path, *, force: bool = False) -> StoreBackup:
    """Copy the store; `Unusable` says why it failed, and then no target file is left.

    With ``force`` the leftovers of an earlier file beside the target are removed.
    """
    part = part_of(target)
    try:
        if not force and (left := [name for name in beside(target) if os.path.lexists(name)]):
            raise Unusable(tell("refuse.store.left_beside", path=left[0], target=target))
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # as private as the store is
        try:
            _copy(source, part)
            runs, events = _looked_through(part)
            _flush(part)
            if force:
                for name in beside(target):
                    name.unlink(missing_ok=True)
            part.replace(target)
        finally:
            for name in (part, *beside(part)):
                name.unlink(missing_ok=True)
        settle(target.parent)
        with closing(_connection(target, apsw.SQLITE_OPEN_READONLY)) as copy:
            if _counts(copy) != (runs, events):  # a log that appeared beside it only now
                raise Unusable(tell("refuse.store.other_copy", path=target))
    except apsw.Error as error:
        raise meaning(error, str(source)) from error
    except OSError as error:
        raise Unusable(tell("refuse.store.no_copy", path=target, error=error.strerror or error)) from error
    return StoreBackup(str(target), runs, events, target.stat().st_size)


def _copy(source: Path, part: Path) -> None:
    with closing(_connection(source, apsw.SQLITE_OPEN_READWRITE)) as here:
        if here.pragma("application_id") != APPLICATION_ID:
            raise Unusable(tell("refuse.store.not_ours", path=source))
        with closing(_connection(part, apsw.SQLITE_OPEN_READWRITE)) as there:
            with there.backup("main", here, "main") as backup:
                backup.step(-1)  # all pages at once: between single pages, another writer would restart the backup
            there.pragma("journal_mode", "delete")  # one file, without a side file that could be forgotten


def _looked_through(part: Path) -> tuple[int, int]:
    """Return the copy's contents after an integrity check and an open as a store."""
    with closing(_connection(part, apsw.SQLITE_OPEN_READWRITE)) as copy:
        said = [text for (text,) in copy.execute("PRAGMA integrity_check(5)")]
        if said != ["ok"]:
            raise Unusable(tell("refuse.store.bad_copy", path=part, error="; ".join(map(str, said))))
        prepare(copy, str(part), "full")
        counts = _counts(copy)
        copy.pragma("journal_mode", "delete")
    return counts


def _counts(copy: apsw.Connection) -> tuple[int, int]:
    runs, events = (copy.execute(f"SELECT count(*) FROM {table}").get for table in ("runs", "events"))  # noqa: S608 - ours
    return runs, events


def _connection(path: Path, flags: int) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(round(PATIENCE_SECONDS * 1000))
    return connection


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
