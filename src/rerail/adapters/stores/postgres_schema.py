"""The tables of a Postgres store, and how an older database becomes a new one.

Rules of this file:
- Entries of `MIGRATIONS` are added, never changed.
- Everything lives in the schema `rerail`; nothing else in the database is touched.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from rerail.i18n import tell
from rerail.ports import Unusable

# What is notified is JSON, a list of [run, sequence number]: -1 for an action in the inbox, and no run at all for one
# that was given back and is not at rest.
CHANNEL: Final = "rerail_news"
_LOCK: Final = 0x5272616C  # whoever migrates holds this advisory lock

# Each entry takes a database from the version of its place to the next.
MIGRATIONS: Final = (
    """
    CREATE TABLE rerail.runs(
        number bigint GENERATED ALWAYS AS IDENTITY,
        run text COLLATE "C" PRIMARY KEY,
        seq bigint NOT NULL,
        updated_at float8 NOT NULL,
        status text NOT NULL,
        fence bigint NOT NULL,
        host text,
        pid bigint,
        started float8,
        worker boolean,
        renewed_at float8 NOT NULL,
        created_at float8 NOT NULL,
        parent text COLLATE "C" NOT NULL,
        objective text NOT NULL
    ) WITH (fillfactor = 70);
    CREATE INDEX runs_by_age ON rerail.runs(created_at, number);
    CREATE INDEX runs_by_parent ON rerail.runs(parent, created_at);
    CREATE TABLE rerail.events(
        run text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        at float8 NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY(run, seq)
    );
    CREATE TABLE rerail.blobs(digest text PRIMARY KEY, data bytea NOT NULL);
    CREATE TABLE rerail.run_blobs(digest text NOT NULL, run text COLLATE "C" NOT NULL, PRIMARY KEY(digest, run));
    CREATE TABLE rerail.inbox(
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        run text COLLATE "C" NOT NULL,
        data bytea NOT NULL,
        answer bytea
    );
    CREATE INDEX inbox_open ON rerail.inbox(run, number) WHERE answer IS NULL;
    """,
    # Whoever removes a run asks which contents and actions it has; without these, each would look at those of all runs.
    """
    CREATE INDEX run_blobs_by_run ON rerail.run_blobs(run);
    CREATE INDEX inbox_by_run ON rerail.inbox(run);
    """,
)


async def prepare(connection: psycopg.AsyncConnection[Any], where: str) -> None:
    """Make the database one of ours and up to date; several processes may do so at once."""
    if await _version(connection, where) == len(MIGRATIONS):
        return  # nothing to do, and no right to change anything is needed
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
        raise Unusable(
            tell("refuse.store.store_newer", path=where, version=version, count=len(MIGRATIONS)), code="STORE_NEWER"
        )
    return version
