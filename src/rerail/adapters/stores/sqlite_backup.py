"""A copy of a SQLite store, made while others write: there as a whole, or not at all.

Rules of this file:
- What is copied is the store at one moment: SQLite's own backup reads it in one go, and no writer waits for it.
- The copy gets its name last: once it is on the disk, has been looked through, and was opened as a store.
- What an earlier file left beside that name (a log of it) would be played over the copy by whoever opens it: it goes
  first, or there is no copy.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import apsw

from rerail.adapters.stores.sqlite import APPLICATION_ID, PATIENCE_SECONDS, meaning, prepare
from rerail.i18n import tell
from rerail.ports import Unusable
from rerail.workspace import part_of, settle


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was made, and looked through."""

    path: str
    runs: int
    events: int
    size: int


def beside(path: Path) -> list[Path]:
    """The files that SQLite keeps beside one, and takes for parts of it."""
    return [Path(f"{path}{end}") for end in ("-wal", "-shm", "-journal")]


def back_up(source: Path, target: Path, *, force: bool = False) -> Backup:
    """Copy the store; `Unusable` says why there is no copy, and then nothing is left where it should be.

    With ``force`` what an earlier file left beside the target is removed.
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
        with contextlib.closing(_connection(target, apsw.SQLITE_OPEN_READONLY)) as copy:
            if _counts(copy) != (runs, events):  # a log that came beside it only now
                raise Unusable(tell("refuse.store.other_copy", path=target))
    except apsw.Error as error:
        raise meaning(error, str(source)) from error
    except OSError as error:
        raise Unusable(tell("refuse.store.no_copy", path=target, error=error.strerror or error)) from error
    return Backup(str(target), runs, events, target.stat().st_size)


def _copy(source: Path, part: Path) -> None:
    with contextlib.closing(_connection(source, apsw.SQLITE_OPEN_READWRITE)) as here:
        if here.pragma("application_id") != APPLICATION_ID:
            raise Unusable(tell("refuse.store.not_ours", path=source))
        with contextlib.closing(_connection(part, apsw.SQLITE_OPEN_READWRITE)) as there:
            with there.backup("main", here, "main") as backup:
                backup.step(-1)  # all of it: page by page, somebody who writes would make it begin anew
            there.pragma("journal_mode", "delete")  # one file, and nothing beside it that could be forgotten


def _looked_through(part: Path) -> tuple[int, int]:
    """What the copy holds, once it is known to be sound and to be a store of ours that opens."""
    with contextlib.closing(_connection(part, apsw.SQLITE_OPEN_READWRITE)) as copy:
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
