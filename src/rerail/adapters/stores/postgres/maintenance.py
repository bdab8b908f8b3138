"""The Postgres tables: migrations, removal of runs and of orphans.

Rules of this file:
- Entries of `MIGRATIONS` are added, never changed.
- Everything lives in the schema `rerail`; no other part of the database is touched.
- One transaction removes a run with all its data: no reader sees half of one.
- Runs share contents. A writer that is about to refer to a content locks its row, and cleanup skips locked rows. A
  later cleanup finds the content if it stays unreferenced. A holder never waits for a second row (deadlock).
- A history of an unlisted run is data loss, not garbage: cleanup never drops it or anything it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

import psycopg

from rerail.adapters.stores.postgres.connection import Link
from rerail.adapters.stores.shared import Statements
from rerail.i18n import tell
from rerail.ports import Conflict, Flaw, Head, Unusable

SQL = Statements(__file__)

# The payload of a notification is JSON, a list of [run, sequence number]. The number -1 stands for an inbox entry. An
# entry without a run stands for an unfinished run that was released.
CHANNEL: Final = "rerail_news"
_LOCK: Final = 0x5272616C  # a migration holds this advisory lock

MIGRATIONS: Final = SQL.numbered("MIGRATION")


async def prepare(connection: psycopg.AsyncConnection[Any], where: str) -> None:
    """Create or migrate the schema; safe for several processes at once."""
    if await _version(connection, where) == len(MIGRATIONS):
        return  # nothing to migrate, and no right to change anything is needed
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        await connection.execute("CREATE SCHEMA IF NOT EXISTS rerail")
        await connection.execute("CREATE TABLE IF NOT EXISTS rerail.version(version integer NOT NULL)")
        version = await _version(connection, where)
        for migration in MIGRATIONS[version:]:
            await connection.execute(migration)
        await connection.execute("DELETE FROM rerail.version")
        await connection.execute("INSERT INTO rerail.version VALUES (%s)", (len(MIGRATIONS),))


async def _version(connection: psycopg.AsyncConnection[Any], where: str) -> int:
    there = await (await connection.execute("SELECT to_regclass('rerail.version')")).fetchone()
    if there is None or there[0] is None:
        return 0
    found = await (await connection.execute("SELECT max(version) FROM rerail.version")).fetchone()
    version = int(found[0] or 0) if found is not None else 0
    if version > len(MIGRATIONS):
        told = tell("refuse.store.store_newer", path=where, version=version, count=len(MIGRATIONS))
        raise Unusable(told, code="STORE_NEWER")
    return version


async def remove(link: Link, heads: Sequence[Head]) -> int:
    """Remove runs and the data only they need; `Conflict` before any write if one changed."""
    wanted = {head.run: (head.seq, head.fence, head.status, None) for head in heads}
    runs = list(wanted)
    found = {run: tuple(rest) for run, *rest in await _rows(link, SQL.SEEN, runs=runs)}
    for run, seen in wanted.items():
        if found.get(run) != seen:
            raise Conflict(f"run {run} is not as it was")
    if await _rows(link, SQL.CHILDREN, runs=runs):
        raise Conflict("a run that stays follows one of these")
    named = [digest for (digest,) in await _rows(link, SQL.NAMED, runs=runs)]
    dropped = await _dropped(link, named)
    for sql in SQL.numbered("GONE"):
        await link.execute(sql, {"runs": runs})
    return dropped


async def clear(link: Link) -> int:
    """Drop actions of no run and unreferenced contents; keep histories and what they need."""
    asked = await _rows(link, SQL.UNASKED)
    loose = [digest for (digest,) in await _rows(link, SQL.NO_NAME)]
    await link.execute(SQL.UNNAMED, {"digests": loose})
    return len(asked) + await _dropped(link, loose)


async def examine(link: Link) -> list[Flaw]:
    """Return orphans: data of runs that are not listed."""
    [(asked,)] = await _rows(link, SQL.ASKED)
    lost, loose = await _rows(link, SQL.DRIVEN), await _rows(link, SQL.NO_NAME)
    counts = {"histories": len(lost), "actions": asked, "contents": len(loose)}
    return [Flaw("orphans", what, count) for what, count in counts.items() if count]


async def _dropped(link: Link, digests: Sequence[str]) -> int:
    """Drop those of these contents that are unreferenced and not locked."""
    held = [digest for (digest,) in await _rows(link, SQL.HELD, digests=list(digests))]
    return len(await _rows(link, SQL.LOOSE, digests=held))  # a statement of its own sees references made meanwhile


async def _rows(link: Link, sql: LiteralString, **values: Any) -> list[Any]:
    return await (await link.execute(sql, values)).fetchall()
