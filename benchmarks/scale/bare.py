"""Bare clients that make the writes of an append: two rows and the run's own line, in one transaction, durable.

Each has the writers that the store has, each with a run of its own, and as many transactions: they gather nothing, know
no lease and no fence, and tell nobody. Whoever would write a history without us would begin like this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import psycopg
import redis.asyncio as redis


async def timed(work: Callable[[int], Awaitable[None]], writers: int) -> tuple[float, float]:
    """Wall and CPU seconds that the writers take together."""
    begun, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(number) for number in range(writers)))
    return time.perf_counter() - begun, time.process_time() - used


async def bare_sqlite(path: str, writers: int, appends: int, row: bytes) -> tuple[float, float]:
    """One connection on the loop's thread, as SQLite allows one writer at a time."""
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE TABLE runs(run TEXT PRIMARY KEY, seq INTEGER, updated_at REAL) WITHOUT ROWID")
    connection.execute(
        "CREATE TABLE events(run TEXT, seq INTEGER, at REAL, data BLOB, PRIMARY KEY(run, seq)) WITHOUT ROWID"
    )
    cursor = connection.cursor()

    async def write(number: int) -> None:
        run = f"run-{number}"
        cursor.execute("INSERT INTO runs VALUES (?, 0, 1.0)", (run,))
        for after in range(0, 2 * appends, 2):
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?)", [(run, after + 1, 1.0, row), (run, after + 2, 1.0, row)]
            )
            cursor.execute(
                "UPDATE runs SET seq = ?, updated_at = 1.0 WHERE run = ? AND seq = ?", (after + 2, run, after)
            )
            cursor.execute("COMMIT")
            await asyncio.sleep(0)  # others have their turn

    took = await timed(write, writers)
    connection.close()
    return took


async def bare_postgres(url: str, writers: int, appends: int, row: bytes) -> tuple[float, float]:
    """A connection for each writer; one round trip for the three statements of a transaction."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as first:
        await first.execute("CREATE TABLE runs(run text PRIMARY KEY, seq bigint, updated_at float8)")
        await first.execute("CREATE TABLE events(run text, seq bigint, at float8, data bytea, PRIMARY KEY(run, seq))")
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(writers)]

    async def write(number: int) -> None:
        run, connection = f"run-{number}", connections[number]
        await connection.execute("INSERT INTO runs VALUES (%s, 0, 1.0)", (run,))
        for after in range(0, 2 * appends, 2):
            async with connection.pipeline(), connection.transaction():
                await connection.execute(
                    "INSERT INTO events VALUES (%s, %s, 1.0, %s), (%s, %s, 1.0, %s)",
                    (run, after + 1, row, run, after + 2, row),
                )
                await connection.execute(
                    "UPDATE runs SET seq = %s, updated_at = 1.0 WHERE run = %s AND seq = %s", (after + 2, run, after)
                )

    took = await timed(write, writers)
    for connection in connections:
        await connection.close()
    return took


async def bare_redis(url: str, writers: int, appends: int, row: bytes) -> tuple[float, float]:
    """One client; one round trip for the commands of a transaction."""
    client: Any = redis.Redis.from_url(url)

    async def write(number: int) -> None:
        head, log = f"run:{number}", f"log:{number}"
        await client.hset(head, mapping={"seq": 0, "updated_at": "1.0"})
        for after in range(0, 2 * appends, 2):
            pipe = client.pipeline(transaction=True)
            pipe.rpush(log, row, row)
            pipe.hset(head, mapping={"seq": after + 2, "updated_at": "1.0"})
            await pipe.execute()

    took = await timed(write, writers)
    await client.aclose()
    return took
