"""The Redis store, for setups that run a Redis server already (needs the `redis` extra).

Rules of this file:
- Every atomic operation is one script on the server; `scripts.lua` holds the scripts and lists every key.
- Waiters get news over a channel. A poll every few seconds makes up for a lost message.
- The server's clock keeps a renewal's time; answers use the caller's. No two machines' clocks are compared.
- The server's settings decide the durability of an acknowledgement. Opening the store names what they can lose.
- No Redis error leaves this file: each becomes `Unavailable` or `Unusable` with what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Unpack, cast

import redis.asyncio as redis
from redis import exceptions as problems
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rerail.adapters.stores.remote import ServerStore, accept_own, refused_claim
from rerail.adapters.stores.shared import ANY, Selection, not_held
from rerail.i18n import Told, tell
from rerail.ports import Batch, Conflict, Flaw, Head, Lease, Owner, Row, RunFilters, Unavailable, Unusable

TIME: Final = struct.Struct(">d")
CONNECTIONS: Final = 50  # connections of one process at once
LOOK_SECONDS: Final = 1.0  # how often a waiter polls by itself
PAGE: Final = 500  # runs per sweep of contents
SWEEP_RUNS: Final = 100  # runs per sweep of contents
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0  # answer timeout: a server without an answer by then counts as gone

# Redis errors by meaning: the first matching type wins.
_MEANINGS: Final[Sequence[tuple[type[Exception], type[Unavailable] | type[Unusable], str]]] = (
    (problems.AuthenticationError, Unusable, "refuse.store.redis_login"),
    (problems.AuthorizationError, Unusable, "refuse.store.redis_login"),
    (problems.NoPermissionError, Unusable, "refuse.store.redis_login"),
    (problems.OutOfMemoryError, Unusable, "refuse.store.redis_full"),
    (problems.BusyLoadingError, Unavailable, "refuse.store.redis_busy"),
    (problems.ReadOnlyError, Unavailable, "refuse.store.redis_busy"),
    (problems.TryAgainError, Unavailable, "refuse.store.redis_busy"),
    (problems.ConnectionError, Unavailable, "refuse.store.redis_unreachable"),
    (problems.TimeoutError, Unavailable, "refuse.store.redis_unreachable"),
    (OSError, Unavailable, "refuse.store.redis_unreachable"),
)
# Errors without a type of their own, by their first word.
_WORDS: Final[Sequence[tuple[str, type[Unavailable] | type[Unusable], str]]] = (
    ("NOAUTH", Unusable, "refuse.store.redis_login"),
    ("WRONGPASS", Unusable, "refuse.store.redis_login"),
    ("OOM", Unusable, "refuse.store.redis_full"),
    ("MISCONF", Unavailable, "refuse.store.redis_busy"),  # the server cannot write to its disk
    ("BUSY", Unavailable, "refuse.store.redis_busy"),
    ("MASTERDOWN", Unavailable, "refuse.store.redis_busy"),
    ("NOREPLICAS", Unavailable, "refuse.store.redis_busy"),
)


@lru_cache
def _script(name: str) -> str:
    """Return a script of scripts.lua, with the common head in front."""
    head, *scripts = Path(__file__).with_name("scripts.lua").read_text(encoding="utf-8").split("\n-- script: ")
    return next(head + script.removeprefix(name) for script in scripts if script.startswith(f"{name}\n"))


def meaning(error: Exception, where: str) -> Unavailable | Unusable:
    """Translate a driver error into an error of the port."""
    text = " ".join(str(error).split()) or type(error).__name__
    for word, become, key in _WORDS:
        if text.startswith(word) or f"-{word}" in text:
            return become(tell(key, where=where, error=text))
    for kind, become, key in _MEANINGS:
        if isinstance(error, kind):
            return become(tell(key, where=where, error=text))
    return Unusable(tell("refuse.store.redis_refused", where=where, error=text))


class RedisStore(ServerStore):
    """Histories on a Redis server, all keys under `rerail:`."""

    def __init__(
        self,
        url: str,
        keep_seconds: float = 86_400.0,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(url, answer_seconds, clock)
        self._keep = str(max(1, int(min(keep_seconds, 3e9) * 1000)))
        self._client: redis.Redis | None = None
        self._scripts: dict[str, Any] = {}
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and read the server's settings; reconnect an open store."""
        await self.close()
        with self._translated():
            try:
                # The driver must not retry by itself: only the caller knows which command may run twice. A caller that
                # finds all connections busy waits for one, and does not report the server as gone.
                pool = redis.BlockingConnectionPool.from_url(
                    self._url, retry=Retry(NoBackoff(), 0), health_check_interval=30, socket_timeout=self._patience,
                    socket_connect_timeout=min(CONNECT_SECONDS, self._patience), max_connections=CONNECTIONS,
                    timeout=self._patience,
                )  # fmt: skip
                client = redis.Redis.from_pool(pool)
            except ValueError as error:
                raise Unusable(tell("refuse.store.redis_refused", where=self._where, error=error)) from error
            try:
                await client.ping()
                self.caveats = tuple(await self._look_at(client))
            except BaseException:
                await client.aclose()
                raise
        self._client = client
        self._scripts = {}
        self._listening = asyncio.create_task(self._listen(client))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        with contextlib.suppress(problems.RedisError, OSError):
            await client.aclose()
        self._waiters.ring_all()

    async def _look_at(self, client: redis.Redis) -> Sequence[Told]:
        """Return what the server's settings can lose; a server that hides them is trusted."""
        info = await client.info("cluster")
        if info.get("cluster_enabled"):
            raise Unusable(tell("refuse.store.redis_cluster", where=self._where))
        try:
            names = ("appendonly", "appendfsync", "save", "maxmemory-policy")  # before Redis 7 one at a time
            said = [await client.config_get(name) for name in names]
        except problems.ResponseError:
            return []
        known = {_text(name): _text(value) for one in said for name, value in one.items()}
        found = []
        if known.get("appendonly") == "no":
            key = "warn.store.redis_snapshots" if known.get("save") else "warn.store.redis_volatile"
            found.append(tell(key, where=self._where))
        elif known.get("appendfsync") not in (None, "always"):
            key = "warn.store.redis_unsynced" if known["appendfsync"] == "no" else "warn.store.redis_everysec"
            found.append(tell(key, where=self._where))
        policy = known.get("maxmemory-policy", "noeviction")
        if policy not in ("noeviction", "volatile-ttl", "volatile-lru", "volatile-lfu", "volatile-random"):
            found.append(tell("warn.store.redis_evicts", where=self._where, policy=policy))
        return found

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        fields = {
            "run": head.run, "status": head.status, "objective": head.objective, "parent": head.parent,
            "created_at": repr(head.created_at), "updated_at": repr(head.updated_at), "fence": head.fence,
            **_owned(head.owner),
        }  # fmt: skip
        flat = [part for pair in fields.items() for part in pair]
        ago = repr(head.renewed_at - self._clock())
        made = await self._run("CREATE", head.run, repr(head.created_at), head.status, head.parent, ago, *flat)
        if not made:
            raise Conflict(f"there is a run {head.run} already")

    async def append(self, batch: Batch) -> None:
        rows = [TIME.pack(at) + data for at, data in batch.rows]
        at = repr(batch.rows[-1][0]) if rows else ""
        contents = [part for pair in batch.blobs.items() for part in pair]
        arguments = (batch.run, batch.after, batch.fence, at, batch.status, batch.objective, self._keep, len(rows))
        if not await self._run("APPEND", *arguments, *rows, *contents):
            await accept_own(batch, self.head, self.read)
        self._waiters.ring(batch.run, batch.after + len(rows))

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        if limit <= 0:
            return []
        found = await self._ask("LRANGE", f"rerail:log:{run}", after, after + limit - 1)
        return [Row(seq, TIME.unpack_from(entry)[0], entry[8:]) for seq, entry in enumerate(found, after + 1)]

    async def head(self, run: str) -> Head | None:
        found = await self._placed([run.encode()])
        return found[0][1] if found else None

    async def heads(self, **filters: Unpack[RunFilters]) -> list[Head]:
        wanted = Selection(**filters)
        before, limit = wanted.before, wanted.limit
        end = (before[0], await self._ask("HGET", f"rerail:run:{before[1]}", "place") or b"") if before else None

        def fits(place: bytes, head: Head) -> bool:
            return wanted.fits(head) and (end is None or (head.created_at, place) < end)

        if wanted.prefix:
            first = b"[" + wanted.prefix.encode()
            ids = await self._ask("ZRANGEBYLEX", "rerail:ids", first, first + b"\xff")
            known = [pair for pair in await self._placed(ids) if fits(*pair)]
            known.sort(key=lambda pair: (pair[1].created_at, pair[0]), reverse=True)
            return [head for _, head in known[:limit]]
        if wanted.parent is not None:
            lists = [f"rerail:children:{wanted.parent}"]
        else:
            lists = [f"rerail:status:{word}" for word in dict.fromkeys(wanted.status)] or ["rerail:runs"]
        latest = before[0] if before else "+inf"
        found = [pair for key in lists for pair in await self._listed(key, limit, fits, latest)]
        if len(lists) > 1:
            found.sort(key=lambda pair: (pair[1].created_at, pair[0]), reverse=True)
        return [head for _, head in found[:limit]]

    async def _listed(self, key: str, limit: int, fits: Any, latest: float | str) -> list[tuple[bytes, Head]]:
        """Return the newest matching runs made at that time or earlier."""
        found: list[tuple[bytes, Head]] = []
        first = 0
        while len(found) < limit:
            places = await self._ask("ZREVRANGEBYSCORE", key, latest, "-inf", "LIMIT", first, PAGE)
            found += [pair for pair in await self._placed([place[17:] for place in places]) if fits(*pair)]
            first += PAGE
            if len(places) < PAGE:
                break
        return found[:limit]

    async def _placed(self, ids: Sequence[bytes]) -> list[tuple[bytes, Head]]:
        """Return runs with their positions in one round trip; skip deleted runs."""
        found: list[tuple[bytes, Head]] = []
        for first in range(0, len(ids), PAGE):
            with self._translated():
                pipe = self._open().pipeline(transaction=False)
                pipe.time()
                for run in ids[first : first + PAGE]:
                    pipe.hgetall(b"rerail:run:" + run)
                (seconds, micros), *answers = await pipe.execute()
            ahead = self._clock() - seconds - micros / 1e6
            found += [(fields[b"place"], head) for fields in answers if (head := _head(fields, ahead)) is not None]
        return found

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        flat = [part for pair in _owned(owner).items() for part in pair]
        fence = await self._run("CLAIM", run, "" if over is None else over, repr(now - self._clock()), *flat)
        if fence:
            return Lease(run, owner, fence)
        return await refused_claim(run, self.head)

    async def renew(self, lease: Lease, now: float) -> None:
        if not await self._run("RENEW", lease.run, lease.fence, repr(now - self._clock())):
            raise not_held(lease)

    async def release(self, lease: Lease) -> None:
        await self._run("RELEASE", lease.run, lease.fence)

    # -- Inbox ----------------------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        number = await self._run("POST", run, data)
        if not number:
            raise Conflict(f"there is no run {run}")
        self._waiters.ring(run)
        return int(number)

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        found = await self._ask("HGETALL", f"rerail:inbox:{run}")
        return sorted((int(number), data) for number, data in found.items())

    async def answer(self, run: str, number: int, data: bytes) -> None:
        await self._run("ANSWER", run, number, data)

    async def answered(self, run: str, number: int) -> bytes | None:
        return cast("bytes | None", await self._ask("HGET", f"rerail:answers:{run}", number))

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        return cast("bytes | None", await self._ask("GET", f"rerail:blob:{digest}"))

    async def sweep(self, before: float) -> int:
        if not await self._ask("EXISTS", "rerail:swept"):  # runs written by earlier versions
            completed = [head.run for head in await self.heads(status=("completed",), limit=10**9)]
            for first in range(0, len(completed), PAGE):
                await self._run("EXPIRING", *completed[first : first + PAGE])
            await self._ask("SET", "rerail:swept", 1)
        dropped, found = 0, SWEEP_RUNS
        while found == SWEEP_RUNS:  # a script blocks the server, so other commands get a turn in between
            found, some = await self._run("SWEEP", repr(before), SWEEP_RUNS)
            dropped += int(some)
        return dropped

    # -- Maintenance ----------------------------------------------------------------------------------------------

    async def remove(self, heads: Sequence[Head]) -> int:
        flat = [part for head in heads for part in (head.run, head.seq, head.fence, head.status)]
        dropped = int(await self._run("REMOVE", *flat)) if flat else 0
        if dropped < 0:
            raise Conflict("one of these runs is not as it was, or a run that stays follows it")
        return dropped

    async def examine(self) -> list[Flaw]:
        counts = {"histories": "log", "actions": "inbox", "contents": "blob"}
        return [Flaw("orphans", what, n) for what, kind in counts.items() if (n := await self._orphans(kind, "look"))]

    async def clear(self) -> int:
        for kind in ("blobs", "answers", "refs"):  # these go with the rest and do not count by themselves
            await self._orphans(kind, "drop")
        return sum([await self._orphans(kind, "drop") for kind in ("inbox", "blob")])

    async def _orphans(self, kind: str, how: str) -> int:
        """Count orphaned or unreferenced keys of a kind; "drop" also drops them, atomically."""
        found, cursor = 0, b"0"
        while True:
            cursor, keys = await self._ask("SCAN", cursor, "MATCH", f"rerail:{kind}:*", "COUNT", PAGE)
            if keys:
                found += int(await self._run("ORPHANS", how, kind, *keys))
            if int(cursor) == 0:
                return found

    # -- News -----------------------------------------------------------------------------------------------------

    async def changed(self, run: str, after: int, timeout: float, *, inbox: bool = False) -> bool:  # noqa: ASYNC109
        async def look() -> bool:
            if int(await self._ask("HGET", f"rerail:run:{run}", "seq") or 0) > after:
                return True
            return inbox and bool(await self._ask("HLEN", f"rerail:inbox:{run}"))

        return await self._waiters.until(look, run, after, timeout)

    async def _listen(self, client: redis.Redis) -> None:
        """Receive other processes' news and poll now and then, while the store is open."""
        while self._client is client:  # the driver may swallow a cancellation
            try:
                async with client.pubsub(ignore_subscribe_messages=True) as heard:
                    await heard.subscribe("rerail:news")
                    self._ring_all()
                    quiet = asyncio.get_running_loop().time()
                    while self._client is client:
                        message = await heard.get_message(timeout=LOOK_SECONDS)
                        if message is not None:
                            seq, _, run = _text(message["data"]).partition(" ")
                            self._waiters.ring(run, int(seq) if seq != "-1" else None)
                        if asyncio.get_running_loop().time() - quiet > LOOK_SECONDS:
                            quiet = asyncio.get_running_loop().time()
                            self._ring_all()
            except (problems.RedisError, OSError):
                # Each waiter reads for itself and raises the error in its own caller.
                self._ring_all()
                await asyncio.sleep(0.5)

    def _ring_all(self) -> None:
        for run in self._waiters.runs():
            if run != ANY:  # the waiters poll by themselves
                self._waiters.ring(run)

    # -- Asking the server ----------------------------------------------------------------------------------------

    def _open(self) -> redis.Redis:
        if self._client is None:
            raise Unavailable(tell("refuse.store.redis_closed", where=self._where))
        return self._client

    async def _ask(self, *command: Any) -> Any:
        with self._translated():
            return await self._open().execute_command(*command)  # type: ignore[no-untyped-call]

    async def _run(self, name: str, *arguments: Any) -> Any:
        with self._translated():
            known = self._scripts.get(name)
            if known is None:
                known = self._scripts[name] = self._open().register_script(_script(name))
            return await known(args=list(arguments), client=self._open())

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            yield
        except (problems.RedisError, OSError, ValueError, TypeError) as error:
            _not_swallowed(task, before)
            raise meaning(error, self._where) from error
        _not_swallowed(task, before)


def _not_swallowed(task: asyncio.Task[Any] | None, before: int) -> None:
    """Cancel a task again if the driver swallowed its cancellation: the canceller waits for the end."""
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _owned(owner: Owner | None) -> dict[str, Any]:
    if owner is None:
        return {}
    return {"host": owner.host, "pid": owner.pid, "started": repr(owner.started), "worker": int(owner.worker)}


def _head(fields: dict[bytes, bytes], ahead: float) -> Head | None:
    """Build the head of a run; ``ahead`` is how far the caller's clock is before the server's."""
    if not fields:
        return None
    known = {name.decode(): value.decode() for name, value in fields.items()}
    owner = None
    if "host" in known:
        owner = Owner(known["host"], int(known["pid"]), float(known["started"]), known["worker"] == "1")
    return Head(
        known["run"], int(known["seq"]), known["status"], known["objective"], known["parent"],
        float(known["created_at"]), float(known["updated_at"]), owner, int(known["fence"]),
        float(known["renewed_at"]) + ahead,
    )  # fmt: skip
