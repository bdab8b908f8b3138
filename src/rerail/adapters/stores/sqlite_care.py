"""Care for a SQLite file: runs that go, room that is given back, damage that is found.

Rules of this file:
- A run goes in one transaction, with everything of it: nobody ever sees half of one.
- Looking for damage changes nothing, and what it finds first does not stop it.
- What is broken hides only what is in it: a survey goes on behind it, and by other ways.
- A history whose run is not listed is somebody's loss, and no rubbish: neither it nor what it needs is ever cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import apsw

from rerail.ports import Conflict, Flaw, Head

MOST_SAID: Final = 20  # broken places that are told one by one
MOST_TRIED: Final = 100_000  # numbers of runs that are tried one by one behind a broken place

_SEEN: Final = """
    SELECT 1 FROM runs WHERE run = ?1 AND fence = ?2 AND status = ?3 AND host IS NULL
        AND ifnull((SELECT max(seq) FROM events WHERE events.run = runs.run), 0) = ?4
    """
_CHILDREN: Final = "SELECT run FROM runs WHERE parent = ?"
_NAMED: Final = "DELETE FROM run_blobs WHERE run = ? RETURNING digest"
_LOOSE: Final = """
    DELETE FROM blobs WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM run_blobs WHERE run_blobs.digest = blobs.digest)
    """
# Every run that has events, by steps over the index: a look at each event would take as long as there are events.
_DRIVEN: Final = """
    WITH RECURSIVE driven(run) AS (
        SELECT min(run) FROM events
        UNION ALL SELECT (SELECT min(run) FROM events WHERE events.run > driven.run) FROM driven WHERE run IS NOT NULL
    )
    SELECT run FROM driven WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM runs)
    """
_NO_RUN: Final = """
    FROM {table} WHERE run NOT IN (SELECT run FROM runs)
        AND NOT EXISTS (SELECT 1 FROM events WHERE events.run = {table}.run)
    """
_NO_NAME: Final = """
    FROM blobs WHERE digest NOT IN (
        SELECT digest FROM run_blobs WHERE run IN (SELECT run FROM runs)
            OR EXISTS (SELECT 1 FROM events WHERE events.run = run_blobs.run)
    )
    """


def remove(cursor: apsw.Cursor, heads: Sequence[Head]) -> int:
    """Remove runs and what only they need, inside one transaction; `Conflict` before anything is written."""
    going = {head.run for head in heads}
    for head in heads:
        if not cursor.execute(_SEEN, (head.run, head.fence, head.status, head.seq)).fetchall():
            raise Conflict(f"run {head.run} is not as it was")
        if any(child not in going for (child,) in cursor.execute(_CHILDREN, (head.run,)).fetchall()):
            raise Conflict(f"a run that stays follows {head.run}")
    named: set[Any] = set()
    for run in going:
        named.update(digest for (digest,) in cursor.execute(_NAMED, (run,)).fetchall())
        for table in ("events", "inbox", "runs"):
            cursor.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - one of three names
    return sum(_changed(cursor, _LOOSE, (digest,)) for digest in named)


def clear(cursor: apsw.Cursor) -> int:
    """Drop actions that are of no run, and contents that no run refers to; histories stay, and what they need."""
    dropped = _changed(cursor, f"DELETE {_NO_RUN.format(table='inbox')}")
    cursor.execute(f"DELETE {_NO_RUN.format(table='run_blobs')}")
    return dropped + _changed(cursor, f"DELETE {_NO_NAME}")


def _changed(cursor: apsw.Cursor, sql: str, values: tuple[str, ...] = ()) -> int:
    cursor.execute(sql, values)
    return cursor.connection.changes()


def shrink(connection: apsw.Connection) -> int:
    """Write the file anew without its empty pages; returns how many bytes they were."""
    before = connection.pragma("page_count")
    connection.execute("VACUUM")
    with suppress(apsw.BusyError):  # somebody reads on in the log: it is given back by who comes later
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    freed: int = (before - connection.pragma("page_count")) * connection.pragma("page_size")
    return max(0, freed)


def examine(connection: apsw.Connection) -> list[Flaw]:
    """Broken pages, and what is left of runs that are not there."""
    flaws: list[Flaw] = []
    try:
        said = [text for (text,) in connection.execute(f"PRAGMA integrity_check({MOST_SAID})")]
        lines = [line for text in said if text != "ok" for line in text.splitlines()]
        flaws += [Flaw("pages", line) for line in lines[:MOST_SAID]]
    except apsw.Error as error:
        return [Flaw("pages", str(error))]
    looks = (
        ("histories", _DRIVEN.replace("SELECT run FROM driven", "SELECT count(*) FROM driven")),
        ("actions", f"SELECT count(*) {_NO_RUN.format(table='inbox')}"),
        ("contents", f"SELECT count(*) {_NO_NAME}"),
    )
    for what, sql in looks:
        with suppress(apsw.CorruptError):  # it is told of above
            count = connection.execute(sql).get
            if count:
                flaws.append(Flaw("orphans", what, count))
    return flaws


def survey(connection: apsw.Connection) -> list[str]:
    """The ids of all runs of which anything can be found, whatever else is broken.

    Each id is in the table of runs, in the index of their ids, and in the history: one of the three is enough.
    """
    found: set[str] = set()

    def walk(sql: str, *values: Any) -> int:
        """Note all ids up to the first broken place; the last number that was seen."""
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
    # None at all, if the first walk came to the end. A number from a broken place may be anything: both ends are tried.
    middle = min(first + MOST_TRIED, last)
    for number in chain(range(first + 1, middle), range(max(middle, last - MOST_TRIED), last)):
        walk("SELECT run, number FROM runs NOT INDEXED WHERE number = ?", number)
    walk("SELECT DISTINCT run, 0 FROM events ORDER BY run DESC")
    for known in ["", *sorted(found)]:  # behind a broken place, histories are found from the next known one on
        here: Any = known
        while isinstance(here, str):
            with suppress(apsw.Error, UnicodeDecodeError):
                here = connection.execute("SELECT min(run) FROM events WHERE run > ?", (here,)).get
                if isinstance(here, str) and here not in found:
                    found.add(here)
                    continue
            break
    return sorted(found)
