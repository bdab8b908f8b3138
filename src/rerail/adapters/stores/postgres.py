"""A store in a Postgres database: for many processes on many machines (needs the `postgres` extra).

Rules of this file:
- Every write is one statement that checks before it writes: a refusal writes nothing, and raises nothing on the
  server, so that it harms no other write of the same transaction.
- Large contents are sent piece by piece, in the transaction of their append and before it: in one piece, what is left
  to send is moved in memory at each breath. Such an append has a connection to itself, and as much more time as there
  is more to write: nobody waits behind it, and it is not taken for silence.
- Writes that come while a transaction is under way share the next one: one commit for many runs.
- Who waits for news is told by LISTEN and NOTIFY. The word goes out after the commit, in one message for many appends:
  inside the transaction it would make all commits of the database wait for each other. A word that is lost (its sender
  died) is made up for by a look every few seconds, one for all who wait.
- When a lease was renewed is kept by the server's clock and told by the caller's: no two machines' clocks are compared.
- No error of Postgres leaves this file; each becomes `Unavailable` or `Unusable`, with what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from rerail.adapters.stores import postgres_care as care
from rerail.adapters.stores.postgres_link import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    LONG_SECONDS,
    Link,
    begin,
    caveats,
    options,
)
from rerail.adapters.stores.postgres_schema import CHANNEL, prepare
from rerail.adapters.stores.remote import accept_own, refused_claim, shown, wait_for_news
from rerail.adapters.stores.waiting import ANY, OPEN, Waiters
from rerail.i18n import Told, tell
from rerail.ports import Batch, Conflict, Fenced, Flaw, Head, Lease, Owner, Row, Unavailable, Unusable

T = TypeVar("T")
Rows = list[TupleRow]

READERS: Final = 4  # connections that read, at most
LOOK_SECONDS: Final = 1.0  # how often those who wait look for themselves
PING_SECONDS: Final = 10.0  # how often the connection that listens is tried
GATHER_SECONDS: Final = 0.01  # how long appends are gathered before others are told of them
LONGEST_NEWS: Final = 7_000  # bytes; Postgres takes 8,000
TOGETHER: Final = 500  # writes that share a commit, at most
LARGE: Final = 8 << 20  # bytes of a content, or of those of an append, from which on each is sent by itself
LARGEST: Final = 1_000_000_000  # bytes of a content: a message, and a value of Postgres, ends soon after
SLOWEST: Final = 1 << 20  # bytes a second that a server at work may take to write or find a large content

_HEADS: Final = """
    SELECT run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker, fence,
        renewed_at - extract(epoch FROM clock_timestamp())::float8
    FROM rerail.runs
    """
_NUMBER: Final = "(SELECT number FROM rerail.runs WHERE run = %(last)s)"
_HEAD: Final = _HEADS + "WHERE run = %(run)s"
_CREATE: Final = """
    INSERT INTO rerail.runs(run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker,
        fence, renewed_at)
    VALUES (%(run)s, 0, %(status)s, %(objective)s, %(parent)s, %(created_at)s, %(updated_at)s, %(host)s, %(pid)s,
        %(started)s, %(worker)s, %(fence)s, extract(epoch FROM clock_timestamp())::float8 + %(ago)s)
    ON CONFLICT (run) DO NOTHING RETURNING 1
    """
_ADVANCE: Final = """
    WITH head AS (
        UPDATE rerail.runs SET seq = %(after)s + %(count)s, updated_at = coalesce(%(at)s, updated_at),
            status = coalesce(%(status)s, status), objective = coalesce(%(objective)s, objective)
        WHERE run = %(run)s AND seq = %(after)s AND fence = %(fence)s RETURNING run
    ), rows AS (
        INSERT INTO rerail.events(run, seq, at, data)
        SELECT head.run, %(after)s + given.place, given.at, given.data
        FROM head, unnest(%(ats)s::float8[], %(datas)s::bytea[]) WITH ORDINALITY AS given(at, data, place)
    )
    """
_KEEP: Final = """
    , kept AS (
        INSERT INTO rerail.blobs(digest, data)
        SELECT given.digest, given.data
        FROM head, unnest(%(digests)s::text[], %(contents)b::bytea[]) AS given(digest, data)
        -- Locked in any case, so that no sweep takes it; what is there and differs is damaged, and is mended by this.
        ON CONFLICT (digest) DO UPDATE SET data = EXCLUDED.data WHERE blobs.data <> EXCLUDED.data
    )
    """
_NAME: Final = """
    , named AS (
        INSERT INTO rerail.run_blobs(digest, run)
        SELECT given.digest, head.run FROM head, unnest(%(digests)s::text[]) AS given(digest)
        ON CONFLICT DO NOTHING
    )
    """
# The same for those that are large: who has the content's row keeps it until the append. The run's is not held: its
# lease is renewed meanwhile, and whether it may be written is found out by the append.
_MAY: Final = "SELECT 1 FROM rerail.runs WHERE run = %(run)s AND seq = %(after)s AND fence = %(fence)s"
_SOUND: Final = """
    SELECT octet_length(data) = %(size)s AND sha256(data) = %(sum)b FROM rerail.blobs WHERE digest = %(digest)s
    FOR UPDATE
    """
_DAMAGED: Final = "DELETE FROM rerail.blobs WHERE digest = %(digest)s"
_COPY: Final = "COPY rerail.blobs(digest, data) FROM STDIN (FORMAT BINARY)"
_TAKEN: Final = "SELECT 1 FROM head"
_APPEND_ROWS: Final = _ADVANCE + _TAKEN  # most batches bring no contents
_APPEND: Final = _ADVANCE + _KEEP + _NAME + _TAKEN
_APPEND_NAMES: Final = _ADVANCE + _NAME + _TAKEN  # the contents are there
_READ: Final = (
    "SELECT seq, at, data FROM rerail.events WHERE run = %(run)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s"
)
_CLAIM: Final = """
    UPDATE rerail.runs SET host = %(host)s, pid = %(pid)s, started = %(started)s, worker = %(worker)s,
        renewed_at = extract(epoch FROM clock_timestamp())::float8 + %(ago)s, fence = fence + 1
    WHERE run = %(run)s AND (host IS NULL OR fence = %(over)s) RETURNING fence
    """
_RENEW: Final = """
    UPDATE rerail.runs SET renewed_at = extract(epoch FROM clock_timestamp())::float8 + %(ago)s
    WHERE run = %(run)s AND fence = %(fence)s AND host IS NOT NULL RETURNING 1
    """
_RELEASE: Final = """
    UPDATE rerail.runs SET host = NULL, pid = NULL, started = NULL, worker = NULL
    WHERE run = %(run)s AND fence = %(fence)s RETURNING status
    """
_POST: Final = """
    INSERT INTO rerail.inbox(run, data) SELECT run, %(data)s FROM rerail.runs WHERE run = %(run)s RETURNING number
    """
_INBOX: Final = "SELECT number, data FROM rerail.inbox WHERE run = %(run)s AND answer IS NULL ORDER BY number"
_ANSWER: Final = """
    UPDATE rerail.inbox SET answer = %(data)s WHERE run = %(run)s AND number = %(number)s AND answer IS NULL
    """
_ANSWERED: Final = "SELECT answer FROM rerail.inbox WHERE run = %(run)s AND number = %(number)s"
_BLOB: Final = """
    SELECT octet_length(data), CASE WHEN octet_length(data) < %(large)s THEN data END
    FROM rerail.blobs WHERE digest = %(digest)s
    """
_LARGE_BLOB: Final = "SELECT data FROM rerail.blobs WHERE digest = %(digest)s"
# A content goes when every run that refers to it completed long enough ago. Each statement sees what was written before
# it began: whoever is about to name a content again holds its row, or that of their run, and is left alone; who comes
# later waits for the sweep, and brings the content anew.
_SWEPT: Final = """
    SELECT digest FROM rerail.run_blobs JOIN rerail.runs USING (run)
    GROUP BY digest HAVING bool_and(status = 'completed' AND updated_at < %(before)s)
    """
_OLD_RUNS: Final = """
    SELECT run FROM rerail.runs WHERE status = 'completed' AND updated_at < %(before)s
        AND run IN (SELECT run FROM rerail.run_blobs WHERE digest = ANY(%(digests)s)) FOR UPDATE SKIP LOCKED
    """
_OLD_BLOBS: Final = "SELECT digest FROM rerail.blobs WHERE digest = ANY(%(digests)s) FOR UPDATE SKIP LOCKED"
_SWEEP: Final = """
    WITH gone AS (
        DELETE FROM rerail.blobs WHERE digest = ANY(%(digests)s) AND NOT EXISTS (
            SELECT 1 FROM rerail.run_blobs WHERE run_blobs.digest = blobs.digest AND run <> ALL(%(runs)s)
        ) RETURNING digest
    ), forgotten AS (
        DELETE FROM rerail.run_blobs WHERE digest IN (SELECT digest FROM gone)
    )
    SELECT count(*) FROM gone
    """
_NEWS: Final = """
    SELECT asked.run, coalesce(runs.seq, 0),
        EXISTS(SELECT 1 FROM rerail.inbox WHERE inbox.run = asked.run AND answer IS NULL)
    FROM unnest(%(runs)s::text[]) AS asked(run) LEFT JOIN rerail.runs ON runs.run = asked.run
    """
_TELL: Final = "SELECT pg_notify(%(channel)s, news) FROM unnest(%(news)s::text[]) AS told(news)"

# What an error means, by the beginning of its SQLSTATE: the first that fits. The rest is our own mistake.
_MEANINGS: Final[Sequence[tuple[str, type[Unavailable] | type[Unusable], str]]] = (
    ("53100", Unusable, "refuse.store.pg_disk_full"),
    ("53", Unavailable, "refuse.store.pg_overloaded"),
    ("28", Unusable, "refuse.store.pg_login"),
    ("3D000", Unusable, "refuse.store.pg_no_database"),
    ("42501", Unusable, "refuse.store.pg_forbidden"),
    ("25006", Unavailable, "refuse.store.pg_read_only"),  # a standby, until it takes over
    ("08", Unavailable, "refuse.store.pg_unreachable"),
    ("57", Unavailable, "refuse.store.pg_unreachable"),  # shutting down, starting up, told to stop
    ("40", Unavailable, "refuse.store.pg_overloaded"),  # a deadlock, or a transaction that lost against another
    ("58", Unavailable, "refuse.store.pg_unreachable"),
)


def meaning(error: BaseException, where: str) -> Unavailable | Unusable:
    """An error of the driver in the words of the port."""
    text = " ".join(str(error).split()) or type(error).__name__
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    for start, become, key in _MEANINGS if state else ():
        if state is not None and state.startswith(start):
            return become(tell(key, where=where, error=text))
    if state is None and isinstance(error, psycopg.OperationalError):
        # The server said no before there was a session, and so without a code.
        if "authentication failed" in text or "no password supplied" in text:
            return Unusable(tell("refuse.store.pg_login", where=where, error=text))
        if "does not exist" in text and "database" in text:
            return Unusable(tell("refuse.store.pg_no_database", where=where, error=text))
        return Unavailable(tell("refuse.store.pg_unreachable", where=where, error=text))
    if isinstance(error, PoolTimeout | PoolClosed | OSError | psycopg.InterfaceError):
        return Unavailable(tell("refuse.store.pg_unreachable", where=where, error=text))
    return Unusable(tell("refuse.store.pg_refused", where=where, error=text))


@dataclass(slots=True, eq=False)
class _Write:
    """One statement, and who waits for what it returns."""

    sql: LiteralString
    values: Mapping[str, Any]
    done: asyncio.Future[Rows]


class PostgresStore:
    """Histories in the schema `rerail` of a Postgres database."""

    def __init__(
        self,
        url: str,
        durability: str = "full",
        *,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._clock = url, clock
        self._where = shown(url)
        self._durability, self._patience = durability, answer_seconds
        self.caveats: tuple[Told, ...] = ()  # what the server's settings can lose
        self._pool: AsyncConnectionPool[Link] | None = None
        self._closing = False
        self._queue: list[_Write] = []
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._bringing = asyncio.Lock()
        self._waiters = Waiters()
        self._untold: dict[str, int] = {}  # run → its newest sequence number, -1 for its inbox
        self._telling: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address the store was opened with, without its password."""
        return self._where

    async def open(self) -> None:
        """Connect and prepare; an open store is connected anew."""
        await self.close()
        with self._translated():
            async with await Link.connect(self._url, **options(self._url)) as first:
                await self._begin(first)
                with first.patient(LONG_SECONDS):
                    await prepare(first, self._where)
                self.caveats = tuple(await caveats(first, self._where))
        # One that writes, and those that read. A pool that cannot connect waits twice as long from try to try; it gives
        # up before that is long, and whoever needs a connection makes it begin anew.
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
        """Let go of everything; what is being written is finished first."""
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
        for run in self._waiters.runs():
            self._waiters.ring(run)

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        """Make a run with an empty history; `Conflict` if its id is taken."""
        values = {
            "run": head.run, "status": head.status, "objective": _plain(head.objective), "parent": head.parent,
            "created_at": head.created_at, "updated_at": head.updated_at, "fence": head.fence,
            "ago": head.renewed_at - self._clock(), **_owned(head.owner),
        }  # fmt: skip
        if not await self._write(_CREATE, values):
            raise Conflict(f"there is a run {head.run} already")

    async def append(self, batch: Batch) -> None:
        """Write all rows and contents, durably, or nothing; one's own batch again is not doubled."""
        rows = batch.rows
        values: dict[str, Any] = {
            "run": batch.run, "after": batch.after, "count": len(rows), "fence": batch.fence,
            "at": rows[-1][0] if rows else None, "status": batch.status or None,
            "objective": _plain(batch.objective) or None,
            "ats": [at for at, _ in rows], "datas": [data for _, data in rows],
        }  # fmt: skip
        if batch.blobs:
            # In one order for all: two who bring the same ones must not wait for each other. And what is small last:
            # others may bring it too, and wait for who has it.
            digests = sorted(batch.blobs, key=lambda name: (-len(batch.blobs[name]), name))
            values["digests"] = digests
            size = sum(map(len, batch.blobs.values()))
            if size < LARGE:
                contents = [batch.blobs[name] for name in digests]
                written = await self._write(_APPEND, values | {"contents": contents})
            else:
                written = await self._bring(batch.blobs, values, size)
        else:
            written = await self._write(_APPEND_ROWS, values)
        if not written:
            await accept_own(batch, self.head, self.read)
        self._news(batch.run, batch.after + len(rows))

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """The next rows of a history, in order; empty at its end."""
        found = await self._read(_READ, {"run": run, "after": after, "limit": limit})
        return [Row(seq, at, data) for seq, at, data in found]

    async def head(self, run: str) -> Head | None:
        """One run as lists show it."""
        found = await self._read(_HEAD, {"run": run})
        return _head(found[0], self._clock()) if found else None

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
        sql = (
            _HEADS
            + """
            WHERE (%(prefix)s::text = '' OR (run >= %(prefix)s AND run < %(end)s))
                AND (%(any_status)s OR status = ANY(%(status)s)) AND (%(parent)s::text IS NULL OR parent = %(parent)s)
                AND (%(at)s::float8 IS NULL OR (created_at <= %(at)s AND (created_at < %(at)s OR number < """
            + _NUMBER
            + """)))
            ORDER BY created_at DESC, number DESC LIMIT %(limit)s
            """
        )
        values = {
            "prefix": prefix, "end": f"{prefix}\U0010ffff", "any_status": not status, "status": list(status),
            "parent": parent, "limit": limit, "at": before and before[0], "last": before and before[1],
        }  # fmt: skip
        found = await self._read(sql, values)
        now = self._clock()
        return [_head(row, now) for row in found]

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """Take the lease if nobody has it, or if its fence is `over`; `Taken` otherwise."""
        values = {"run": run, "ago": now - self._clock(), "over": over, **_owned(owner)}
        claimed = await self._write(_CLAIM, values)
        if claimed:
            return Lease(run, owner, claimed[0][0])
        return await refused_claim(run, self.head)

    async def renew(self, lease: Lease, now: float) -> None:
        """Say that the holder lives; `Fenced` if it is not the holder any more."""
        if not await self._write(_RENEW, {"run": lease.run, "fence": lease.fence, "ago": now - self._clock()}):
            raise Fenced(f"run {lease.run} is not held with fence {lease.fence} any more")

    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it was lost already."""
        released = await self._write(_RELEASE, {"run": lease.run, "fence": lease.fence})
        if released and released[0][0] in OPEN:
            self._news(ANY, -1)

    # -- People's actions -----------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        """Put a person's action into the run's inbox; returns its number."""
        posted = await self._write(_POST, {"run": run, "data": data})
        if not posted:
            raise Conflict(f"there is no run {run}")
        self._news(run, -1)
        return int(posted[0][0])

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        """The actions nobody has answered yet, in order."""
        return [(number, data) for number, data in await self._read(_INBOX, {"run": run})]

    async def answer(self, run: str, number: int, data: bytes) -> None:
        """Answer an action; it leaves the inbox. The first answer stays."""
        await self._write(_ANSWER, {"run": run, "number": number, "data": data})

    async def answered(self, run: str, number: int) -> bytes | None:
        """The answer to an action, once there is one."""
        found = await self._read(_ANSWERED, {"run": run, "number": number})
        return found[0][0] if found else None

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        """A content by its digest; None if it is not there (any more)."""
        found = await self._read(_BLOB, {"digest": digest, "large": LARGE}, binary=True)
        if found and found[0][1] is None:
            patience = self._patience + found[0][0] / SLOWEST
            found = await self._read(_LARGE_BLOB, {"digest": digest}, binary=True, patience=patience)
        return found[0][-1] if found else None

    async def sweep(self, before: float) -> int:
        """Drop contents that only runs completed before that time refer to; returns how many."""
        return await self._patiently(lambda link: _swept(link, before))

    # -- Care -----------------------------------------------------------------------------------------------------

    async def remove(self, heads: Sequence[Head]) -> int:
        """Remove these runs, all of them or none; `Conflict` if one is not as it was seen."""
        return await self._patiently(lambda link: care.remove(link, heads))

    async def clear(self) -> int:
        """Drop what is of no run, and contents that no run refers to, but no history; returns how many."""
        return await self._patiently(care.clear)

    async def shrink(self) -> int:
        """Nothing to do: the server's own vacuum gives room to later rows."""
        return 0

    async def examine(self) -> list[Flaw]:
        """What is left of runs that are not there; the server looks after its pages itself."""
        return await self._patiently(care.examine)

    async def _patiently(self, work: Callable[[Link], Awaitable[T]]) -> T:
        with self._translated():
            async with self._connection() as link, link.transaction():
                with link.patient(LONG_SECONDS):
                    return await work(link)

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

        async def look() -> bool:
            [(_, seq, posted)] = await self._read(_NEWS, {"runs": [run]})
            return bool(seq > after or (inbox and posted))

        return await wait_for_news(self._waiters, look, run, after, timeout)

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        """Wait until somebody gives back a run that is not at rest; False once time is over."""
        return await self._waiters.any_freed(timeout)

    def _news(self, run: str, seq: int) -> None:
        """Ring whoever waits here, and tell the others soon."""
        self._waiters.ring(run, seq if seq >= 0 else None)
        self._untold[run] = -1 if self._untold.get(run) == -1 else seq  # or nobody hears of the action
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._untold:
            await asyncio.sleep(GATHER_SECONDS)
            told, self._untold = self._untold, {}
            with contextlib.suppress(Unavailable, Unusable):  # those who wait look for themselves
                await self._read(_TELL, {"channel": CHANNEL, "news": list(_messages(told.items()))})

    async def _listen(self) -> None:
        """Hear what other processes wrote, and look once in a while; for as long as the store is open."""
        while True:
            try:
                async with await Link.connect(self._url, **options(self._url)) as listening:
                    await self._begin(listening)
                    await listening.execute(f"LISTEN {CHANNEL}")
                    await self._look()
                    await self._hear_all(listening)
            except (psycopg.Error, OSError, Unavailable, Unusable):
                # Each of those who wait looks for itself, and raises to whom it concerns.
                for run in self._waiters.runs():
                    self._waiters.ring(run)
                await asyncio.sleep(0.5)

    async def _hear_all(self, listening: Link) -> None:
        loop = asyncio.get_running_loop()
        tried = loop.time()
        while True:
            async for heard in listening.notifies(timeout=LOOK_SECONDS):
                self._hear(heard.payload)
            await self._look()
            if loop.time() - tried > PING_SECONDS:  # a word that is never sent cannot be told from one that is lost
                tried = loop.time()
                await listening.execute("SELECT 1")

    def _hear(self, payload: str) -> None:
        for run, seq in _news_in(payload):
            self._waiters.ring(run, seq if seq >= 0 else None)

    async def _look(self) -> None:
        runs = self._waiters.runs()
        for run, seq, posted in await self._read(_NEWS, {"runs": runs}) if runs else ():
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
        """Append what is too large to be sent in one go: content by content, in one transaction."""
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
                    # Somebody brought it meanwhile.

    async def _brought(self, blobs: Mapping[str, bytes], values: Mapping[str, Any], size: int) -> Rows:
        written: Rows = []
        # One at a time: there are few connections, and others need them.
        async with self._bringing, self._connection() as link, link.transaction() as whole:
            with link.patient(self._patience + size / SLOWEST):
                if await (await link.execute(_MAY, values)).fetchall():
                    for name in values["digests"]:
                        await _keep(link, name, blobs[name])
                    written = await (await link.execute(_APPEND_NAMES, values)).fetchall()
                if not written:  # the run is somebody else's, or elsewhere
                    raise psycopg.Rollback(whole)
        return written

    async def _write(self, sql: LiteralString, values: Mapping[str, Any]) -> Rows:
        """Hand a statement to the one that writes, and wait until it is durable."""
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
        """Write these in one transaction; if that fails, each for itself, so that none suffers for another."""
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
            # Of the last two: a text or number that cannot be sent. It must end its own write, and no other.
            raise meaning(error, self._where) from error


async def _keep(link: Link, name: str, content: bytes) -> None:
    """Store a content, unless it is there; what is there and differs is damaged, and is mended by this."""
    known = {"digest": name, "size": len(content), "sum": sha256(content).digest()}
    there = await (await link.execute(_SOUND, known)).fetchall()
    if there and there[0][0]:
        return
    if there:
        await link.execute(_DAMAGED, known)
    async with link.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(("text", "bytea"))
        await copy.write_row((name, content))


async def _swept(link: Link, before: float) -> int:
    """Drop what nobody needs any more; what somebody is busy with is left for another time."""

    async def found(sql: LiteralString, **values: Any) -> list[Any]:
        return [one for (one,) in await (await link.execute(sql, values)).fetchall()]

    digests = await found(_SWEPT, before=before)
    if not digests:
        return 0
    runs = await found(_OLD_RUNS, before=before, digests=digests)
    digests = await found(_OLD_BLOBS, digests=digests)
    [count] = await found(_SWEEP, digests=digests, runs=runs)
    return int(count)


async def _execute(connection: Link, writes: Sequence[_Write]) -> list[Rows]:
    """Execute statements in one transaction and, where there are several, in one go over the wire."""
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
    """Whether a transaction was undone for another's sake: two who bring the same contents in another order. Each write
    alone holds them in one order, and waits."""
    cause = problem.__cause__
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith("40")


def _settle(done: asyncio.Future[Rows], result: Rows | Exception) -> None:
    if done.done():
        return  # whoever wanted to know was cancelled
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)


def _messages(news: Iterable[tuple[str, int]]) -> Iterable[str]:
    """News in as few messages as fit; a run with an id too long for one is left to those who look."""
    parts: list[str] = []
    size = 2
    for run, seq in news:
        part = json.dumps([run, seq])
        if len(part) + 2 > LONGEST_NEWS:
            continue
        if parts and size + len(part) + 1 > LONGEST_NEWS:
            yield f"[{','.join(parts)}]"
            parts, size = [], 2
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield f"[{','.join(parts)}]"


def _news_in(payload: str) -> Iterable[tuple[str, int]]:
    """The news in a message; what is none of ours is none: anybody may notify the channel."""
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(payload)
        for one in told if isinstance(told, list) else ():
            match one:
                case [str(run), int(seq)]:
                    yield run, seq
                case _:
                    continue


def _owned(owner: Owner | None) -> dict[str, Any]:
    if owner is None:
        return dict.fromkeys(("host", "pid", "started", "worker"))
    return {"host": owner.host, "pid": owner.pid, "started": owner.started, "worker": owner.worker}


def _head(row: Sequence[Any], now: float) -> Head:
    run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker, fence, ago = row
    owner = None if host is None else Owner(host, pid, started, bool(worker))
    return Head(run, seq, status, objective, parent, created_at, updated_at, owner, fence, now + ago)


def _plain(text: str) -> str:
    """A text that Postgres can hold; the history has it to the letter."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")
