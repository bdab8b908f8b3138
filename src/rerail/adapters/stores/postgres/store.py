"""The Postgres store, for many processes on many machines (needs the `postgres` extra).

Rules of this file:
- Every write is one statement that checks before it writes: a refusal harms no other write of its transaction.
- Large contents are sent piece by piece, in the transaction of their append: in one piece, the driver would move the
  unsent rest in memory with each send. Such an append has its own connection, and a timeout that grows with its size.
- Writes that arrive during a transaction share the next one: one commit for many runs.
- Waiters get news by LISTEN and NOTIFY. The notification follows the commit, in one message for many appends: inside
  the transaction it would serialize all commits of the database. A poll every few seconds, one for all waiters, makes
  up for a lost notification (its sender died).
- The server's clock keeps a renewal's time; answers use the caller's. No two machines' clocks are compared.
- No Postgres error leaves this file: each becomes `Unavailable` or `Unusable` with what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, LiteralString, TypeVar, Unpack

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from rerail.adapters.stores.postgres import maintenance as care
from rerail.adapters.stores.postgres.connection import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    LONG_SECONDS,
    Link,
    begin,
    caveats,
    meaning,
    news_in,
    news_messages,
    options,
)
from rerail.adapters.stores.postgres.maintenance import CHANNEL, SQL, prepare
from rerail.adapters.stores.remote import ServerStore, accept_own, refused_claim
from rerail.adapters.stores.shared import ANY, OPEN, Selection, not_held
from rerail.i18n import tell
from rerail.ports import Batch, Conflict, Flaw, Head, Lease, Owner, Row, RunFilters, Unavailable, Unusable

# Most batches bring no contents; those of a large one are there already.
APPEND_ROWS: Final = f"{SQL.ADVANCE} {SQL.TAKEN}"
APPEND: Final = f"{SQL.ADVANCE} {SQL.KEEP} {SQL.NAME} {SQL.TAKEN}"
APPEND_NAMES: Final = f"{SQL.ADVANCE} {SQL.NAME} {SQL.TAKEN}"

T = TypeVar("T")
Rows = list[TupleRow]

READERS: Final = 4  # reading connections, at most
LOOK_SECONDS: Final = 1.0  # how often a waiter polls by itself
PING_SECONDS: Final = 10.0  # how often the listening connection is pinged
GATHER_SECONDS: Final = 0.01  # how long appends gather before their notification
TOGETHER: Final = 500  # writes per commit, at most
LARGE: Final = 8 << 20  # bytes of a content, or of an append's contents, above which each is sent by itself
LARGEST: Final = 1_000_000_000  # bytes of a content; a message and a value of Postgres end soon after
SLOWEST: Final = 1 << 20  # bytes a second of the slowest server that still works on a large content


@dataclass(slots=True, eq=False)
class _Write:
    """One statement and the future of its result."""

    sql: LiteralString
    values: Mapping[str, Any]
    done: asyncio.Future[Rows]


class PostgresStore(ServerStore):
    """Histories in the schema `rerail` of a Postgres database."""

    def __init__(
        self,
        url: str,
        durability: str = "full",
        *,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(url, answer_seconds, clock)
        self._durability = durability
        self._pool: AsyncConnectionPool[Link] | None = None
        self._closing = False
        self._queue: list[_Write] = []
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._bringing = asyncio.Lock()
        self._untold: dict[str, int] = {}  # run → its newest unannounced sequence number, -1 for its inbox
        self._telling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and prepare; reconnect an open store."""
        await self.close()
        with self._translated():
            async with await Link.connect(self._url, **options(self._url)) as first:
                await self._begin(first)
                with first.patient(LONG_SECONDS):
                    await prepare(first, self._where)
                self.caveats = tuple(await caveats(first, self._where))
        # One writing connection and several reading ones. A pool that cannot connect doubles its delay from try to try.
        # It gives up before the delay grows long, and the next request for a connection starts it anew.
        self._pool = AsyncConnectionPool(
            self._url, connection_class=Link, kwargs=options(self._url), configure=self._begin, min_size=1,
            max_size=READERS + 1, open=False, timeout=CONNECT_SECONDS, reconnect_timeout=CONNECT_SECONDS, name="rerail",
        )  # fmt: skip
        await self._pool.open()
        self._closing = False
        self._tasks = [asyncio.create_task(self._write_all()), asyncio.create_task(self._listen())]

    async def _begin(self, link: Link) -> None:
        link.patience = self._patience
        await begin(link, self._durability)

    async def close(self) -> None:
        """Close the store after pending writes."""
        pool = self._pool
        if pool is None or self._closing:
            return
        self._closing = True
        self._wake.set()
        last = [self._tasks[0], *([self._telling] if self._telling is not None else [])]
        await asyncio.wait(last, timeout=CONNECT_SECONDS)
        for task in (*self._tasks, *last):
            task.cancel()
        await asyncio.gather(*self._tasks, *last, return_exceptions=True)
        self._pool = None
        await pool.close(timeout=1.0)
        for write in self._queue:
            _settle(write.done, Unavailable(tell("refuse.store.pg_closed", where=self._where)))
        self._queue.clear()
        self._waiters.ring_all()

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        values = {
            "run": head.run, "status": head.status, "objective": _plain(head.objective), "parent": head.parent,
            "created_at": head.created_at, "updated_at": head.updated_at, "fence": head.fence,
            "ago": head.renewed_at - self._clock(), **_owned(head.owner),
        }  # fmt: skip
        if not await self._write(SQL.CREATE, values):
            raise Conflict(f"there is a run {head.run} already")

    async def append(self, batch: Batch) -> None:
        rows = batch.rows
        values: dict[str, Any] = {
            "run": batch.run, "after": batch.after, "count": len(rows), "fence": batch.fence,
            "at": rows[-1][0] if rows else None, "status": batch.status or None,
            "objective": _plain(batch.objective) or None,
            "ats": [at for at, _ in rows], "datas": [data for _, data in rows],
        }  # fmt: skip
        if batch.blobs:
            # Contents go in one order for all writers: two writers with the same contents must not deadlock. Small
            # contents go last: other writers may bring them too, and wait for the one that locked them.
            digests = sorted(batch.blobs, key=lambda name: (-len(batch.blobs[name]), name))
            values["digests"] = digests
            size = sum(map(len, batch.blobs.values()))
            if size < LARGE:
                contents = [batch.blobs[name] for name in digests]
                written = await self._write(APPEND, values | {"contents": contents})
            else:
                written = await self._bring(batch.blobs, values, size)
        else:
            written = await self._write(APPEND_ROWS, values)
        if not written:
            await accept_own(batch, self.head, self.read)
        self._news(batch.run, batch.after + len(rows))

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        found = await self._read(SQL.READ, {"run": run, "after": after, "limit": limit})
        return [Row(seq, at, data) for seq, at, data in found]

    async def head(self, run: str) -> Head | None:
        found = await self._read(SQL.HEAD, {"run": run})
        return _head(found[0], self._clock()) if found else None

    async def heads(self, **filters: Unpack[RunFilters]) -> list[Head]:
        wanted = Selection(**filters)
        values = {
            "prefix": wanted.prefix, "end": f"{wanted.prefix}\U0010ffff", "parent": wanted.parent,
            "any_status": not wanted.status, "status": list(wanted.status), "limit": wanted.limit,
            "at": wanted.before and wanted.before[0], "last": wanted.before and wanted.before[1],
        }  # fmt: skip
        found = await self._read(SQL.HEADS, values)
        now = self._clock()
        return [_head(row, now) for row in found]

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        values = {"run": run, "ago": now - self._clock(), "over": over, **_owned(owner)}
        claimed = await self._write(SQL.CLAIM, values)
        if claimed:
            return Lease(run, owner, claimed[0][0])
        return await refused_claim(run, self.head)

    async def renew(self, lease: Lease, now: float) -> None:
        if not await self._write(SQL.RENEW, {"run": lease.run, "fence": lease.fence, "ago": now - self._clock()}):
            raise not_held(lease)

    async def release(self, lease: Lease) -> None:
        released = await self._write(SQL.RELEASE, {"run": lease.run, "fence": lease.fence})
        if released and released[0][0] in OPEN:
            self._news(ANY, -1)

    # -- Inbox ----------------------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        posted = await self._write(SQL.POST, {"run": run, "data": data})
        if not posted:
            raise Conflict(f"there is no run {run}")
        self._news(run, -1)
        return int(posted[0][0])

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        return [(number, data) for number, data in await self._read(SQL.INBOX, {"run": run})]

    async def answer(self, run: str, number: int, data: bytes) -> None:
        await self._write(SQL.ANSWER, {"run": run, "number": number, "data": data})

    async def answered(self, run: str, number: int) -> bytes | None:
        found = await self._read(SQL.ANSWERED, {"run": run, "number": number})
        return found[0][0] if found else None

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        found = await self._read(SQL.BLOB, {"digest": digest, "large": LARGE}, binary=True)
        if found and found[0][1] is None:
            patience = self._patience + found[0][0] / SLOWEST
            found = await self._read(SQL.LARGE_BLOB, {"digest": digest}, binary=True, patience=patience)
        return found[0][-1] if found else None

    async def sweep(self, before: float) -> int:
        return await self._patiently(lambda link: _swept(link, before))

    # -- Maintenance ----------------------------------------------------------------------------------------------

    async def remove(self, heads: Sequence[Head]) -> int:
        return await self._patiently(lambda link: care.remove(link, heads))

    async def clear(self) -> int:
        return await self._patiently(care.clear)

    async def examine(self) -> list[Flaw]:
        """Return orphans; the server checks its pages itself."""
        return await self._patiently(care.examine)

    async def _patiently(self, work: Callable[[Link], Awaitable[T]]) -> T:
        with self._translated():
            async with self._connection() as link, link.transaction():
                with link.patient(LONG_SECONDS):
                    return await work(link)

    # -- News -----------------------------------------------------------------------------------------------------

    async def changed(self, run: str, after: int, timeout: float, *, inbox: bool = False) -> bool:  # noqa: ASYNC109
        async def look() -> bool:
            [(_, seq, posted)] = await self._read(SQL.NEWS, {"runs": [run]})
            return bool(seq > after or (inbox and posted))

        return await self._waiters.until(look, run, after, timeout)

    def _news(self, run: str, seq: int) -> None:
        """Wake local waiters and announce the change soon."""
        self._waiters.ring(run, seq if seq >= 0 else None)
        self._untold[run] = -1 if self._untold.get(run) == -1 else seq  # keep -1, or the inbox entry is never announced
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._untold:
            await asyncio.sleep(GATHER_SECONDS)
            told, self._untold = self._untold, {}
            with contextlib.suppress(Unavailable, Unusable):  # waiters poll by themselves
                await self._read(SQL.TELL, {"channel": CHANNEL, "news": list(news_messages(told.items()))})

    async def _listen(self) -> None:
        """Receive other processes' news and poll now and then, while the store is open."""
        while True:
            try:
                async with await Link.connect(self._url, **options(self._url)) as listening:
                    await self._begin(listening)
                    await listening.execute(f"LISTEN {CHANNEL}")
                    await self._look()
                    await self._hear_all(listening)
            except (psycopg.Error, OSError, Unavailable, Unusable):
                self._waiters.ring_all()
                await asyncio.sleep(0.5)

    async def _hear_all(self, listening: Link) -> None:
        loop = asyncio.get_running_loop()
        tried = loop.time()
        while True:
            async for heard in listening.notifies(timeout=LOOK_SECONDS):
                self._hear(heard.payload)
            await self._look()
            if loop.time() - tried > PING_SECONDS:  # a missing notification cannot be told from a lost one
                tried = loop.time()
                await listening.execute("SELECT 1")

    def _hear(self, payload: str) -> None:
        for run, seq in news_in(payload):
            self._waiters.ring(run, seq if seq >= 0 else None)

    async def _look(self) -> None:
        runs = self._waiters.runs()
        for run, seq, posted in await self._read(SQL.NEWS, {"runs": runs}) if runs else ():
            self._waiters.ring(run, None if posted else seq)

    # -- Reading and writing --------------------------------------------------------------------------------------

    async def _read(
        self, sql: LiteralString, values: Mapping[str, Any], *, binary: bool = False, patience: float = 0.0
    ) -> Rows:
        with self._translated():
            async with self._connection() as connection:
                with connection.patient(patience):
                    return await (await connection.execute(sql, values, binary=binary)).fetchall()

    async def _bring(self, blobs: Mapping[str, bytes], values: Mapping[str, Any], size: int) -> Rows:
        """Append an oversized batch: content by content, in one transaction."""
        for name, content in blobs.items():
            if len(content) > LARGEST:
                told = {"where": self._where, "digest": name, "size": len(content) >> 20, "most": LARGEST >> 20}
                raise Unusable(tell("refuse.store.pg_too_large", **told))
        while True:
            with self._translated():
                try:
                    return await self._brought(blobs, values, size)
                except psycopg.errors.UniqueViolation as twice:
                    if twice.diag.table_name != "blobs":
                        raise
                    # Another writer stored it meanwhile.

    async def _brought(self, blobs: Mapping[str, bytes], values: Mapping[str, Any], size: int) -> Rows:
        written: Rows = []
        # One at a time: there are few connections, and other requests need them.
        async with self._bringing, self._connection() as link, link.transaction() as whole:
            with link.patient(self._patience + size / SLOWEST):
                if await (await link.execute(SQL.MAY, values)).fetchall():
                    for name in values["digests"]:
                        await _keep(link, name, blobs[name])
                    written = await (await link.execute(APPEND_NAMES, values)).fetchall()
                if not written:  # another owner holds the run, or it is elsewhere
                    raise psycopg.Rollback(whole)
        return written

    async def _write(self, sql: LiteralString, values: Mapping[str, Any]) -> Rows:
        """Queue a statement for the writing connection and wait until it is durable."""
        if self._pool is None or self._closing:
            raise Unavailable(tell("refuse.store.pg_closed", where=self._where))
        write = _Write(sql, values, asyncio.get_running_loop().create_future())
        self._queue.append(write)
        self._wake.set()
        return await write.done

    async def _write_all(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                writes = self._queue[:TOGETHER]
                await self._commit(writes)
                del self._queue[: len(writes)]

    async def _commit(self, writes: Sequence[_Write]) -> None:
        """Write these in one transaction; on failure each in its own, so that none harms another."""
        try:
            with self._translated():
                async with self._connection() as connection:
                    results = await _execute(connection, writes)
        except (Unavailable, Unusable) as problem:
            if len(writes) == 1 or (isinstance(problem, Unavailable) and not _lost_a_race(problem)):
                for write in writes:
                    _settle(write.done, problem)
                return
            for write in writes:
                await self._commit([write])
            return
        for write, rows in zip(writes, results, strict=True):
            _settle(write.done, rows)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Link]:
        if self._pool is None:
            raise Unavailable(tell("refuse.store.pg_closed", where=self._where))
        async with self._pool.connection() as connection:
            yield connection

    @contextlib.contextmanager
    def _translated(self) -> Any:
        try:
            yield
        except (psycopg.Error, PoolTimeout, PoolClosed, OSError, ValueError, TypeError) as error:
            # The last two: a text or number that cannot be sent. It must fail its own write and no other.
            raise meaning(error, self._where) from error


async def _keep(link: Link, name: str, content: bytes) -> None:
    """Store a content unless it is stored; a stored copy that differs is damaged and gets replaced."""
    known = {"digest": name, "size": len(content), "sum": sha256(content).digest()}
    there = await (await link.execute(SQL.SOUND, known)).fetchall()
    if there and there[0][0]:
        return
    if there:
        await link.execute(SQL.DAMAGED, known)
    async with link.cursor() as cursor, cursor.copy(SQL.COPY) as copy:
        copy.set_types(("text", "bytea"))
        await copy.write_row((name, content))


async def _swept(link: Link, before: float) -> int:
    """Drop unreferenced contents; skip locked ones until a later sweep."""

    async def found(sql: LiteralString, **values: Any) -> list[Any]:
        return [one for (one,) in await (await link.execute(sql, values)).fetchall()]

    digests = await found(SQL.SWEPT, before=before)
    if not digests:
        return 0
    runs = await found(SQL.OLD_RUNS, before=before, digests=digests)
    digests = await found(SQL.OLD_BLOBS, digests=digests)
    [count] = await found(SQL.SWEEP, digests=digests, runs=runs)
    return int(count)


async def _execute(connection: Link, writes: Sequence[_Write]) -> list[Rows]:
    """Execute statements in one transaction, several of them in one round trip."""
    if len(writes) == 1:
        cursor = await connection.execute(writes[0].sql, writes[0].values)
        return [await cursor.fetchall() if cursor.description else []]
    cursors = []
    async with connection.pipeline(), connection.transaction():
        for write in writes:
            cursors.append(cursor := connection.cursor())
            await cursor.execute(write.sql, write.values)
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _lost_a_race(problem: Exception) -> bool:
    """Return True for a lost deadlock: two batches brought the same contents in different orders. Written alone, each
    locks them in one order and waits."""
    cause = problem.__cause__
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith("40")


def _settle(done: asyncio.Future[Rows], result: Rows | Exception) -> None:
    if done.done():
        return  # the caller was cancelled
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)


def _owned(owner: Owner | None) -> dict[str, Any]:
    if owner is None:
        return dict.fromkeys(("host", "pid", "started", "worker"))
    return {"host": owner.host, "pid": owner.pid, "started": owner.started, "worker": owner.worker}


def _head(row: Sequence[Any], now: float) -> Head:
    run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker, fence, ago = row
    owner = None if host is None else Owner(host, pid, started, bool(worker))
    return Head(run, seq, status, objective, parent, created_at, updated_at, owner, fence, now + ago)


def _plain(text: str) -> str:
    """Return a text that Postgres can store; the history keeps the exact one."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")
