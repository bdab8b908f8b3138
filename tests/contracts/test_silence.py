"""Servers that say nothing, contents that two want at once, settings that weaken a commit (E1, E4, E6, I5, I6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.contracts.proxy import Proxy, postgres_behind, redis_behind
from tests.contracts.servers import NamedPostgres, PostgresServer, RedisServer

import rerail
from rerail.adapters.stores.postgres.connection import options
from rerail.adapters.stores.postgres.store import APPEND, PostgresStore, _swept
from rerail.adapters.stores.redis.store import RedisStore
from rerail.engine.runs.owner import is_dead
from rerail.ports import Batch, Head, Owner, Store, Unavailable
from rerail.testing.store_contract import batch, history, started

ME = Owner("here", 1, 1.0)
SHORT = 0.5  # seconds of silence that these stores bear

# -- Silence ---------------------------------------------------------------------------------------------------------


async def bears_silence(store: Store, proxy: Proxy) -> None:
    """Ask a server that falls silent, and again when it speaks."""
    await store.open()
    lease = await started(store)
    await store.append(batch(lease, 0, "one"))
    proxy.be_silent()
    begun = time.monotonic()
    for ask in (store.append(batch(lease, 1, "two")), store.head(lease.run), store.append(batch(lease, 1, "two"))):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(ask, 20)
    assert time.monotonic() - begun < 20, "none of them waits for good"
    proxy.speak()
    for _ in range(100):
        try:
            await store.append(batch(lease, 1, "two"))  # perhaps it got through: then it is known as our own
            break
        except Unavailable:
            await asyncio.sleep(0.05)
    assert await history(store, lease.run) == ["one", "two"]
    await store.close()


async def test_a_postgres_that_falls_silent_is_given_up(postgres: PostgresServer | NamedPostgres) -> None:
    """E4: it accepts, and never answers; the connection is thrown away, and a new one goes on."""
    async with postgres_behind(postgres.fresh()) as (proxy, address):
        await bears_silence(PostgresStore(address, answer_seconds=SHORT), proxy)


async def test_a_redis_that_falls_silent_is_given_up(redis_server: RedisServer) -> None:
    """E4: the same."""
    redis_server.fresh()
    async with redis_behind(redis_server) as (proxy, address):
        await bears_silence(RedisStore(address, answer_seconds=SHORT), proxy)


@rerail.tool
async def slow(n: int) -> int:
    """Take a little time."""
    await asyncio.sleep(0.05)
    return n


STEPS = [{"id": f"s{n}", "tool": "slow", "args": {"n": n}, "needs": [f"s{n - 1}"] if n else []} for n in range(20)]


async def through_silence(store: Store, proxy: Proxy) -> None:
    """Drive a run while its store's server says nothing for a while."""
    async with rerail.Engine(store, [slow]) as engine:
        run = await engine.start({"steps": STEPS})
        await asyncio.sleep(0.3)
        proxy.be_silent()
        await asyncio.sleep(3 * SHORT)
        proxy.speak()
        result = await asyncio.wait_for(engine.wait(run), 60)
        assert result.success
        assert [step.attempts for step in result.steps.values()] == [1] * 20


async def test_a_run_goes_on_after_postgres_was_silent(postgres: PostgresServer | NamedPostgres) -> None:
    """E4: calls wait, the history is whole, nothing is called twice."""
    async with postgres_behind(postgres.fresh()) as (proxy, address):
        await through_silence(PostgresStore(address, answer_seconds=SHORT), proxy)


async def test_a_run_goes_on_after_redis_was_silent(redis_server: RedisServer) -> None:
    """E4: the same."""
    redis_server.fresh()
    async with redis_behind(redis_server) as (proxy, address):
        await through_silence(RedisStore(address, answer_seconds=SHORT), proxy)


async def test_a_long_answer_is_no_silence(postgres: PostgresServer | NamedPostgres) -> None:
    """E4: what keeps coming may take as long as it likes, and what has to look at everything is let."""
    store = PostgresStore(postgres.fresh(), answer_seconds=SHORT)
    await store.open()
    async with store._connection() as link:
        with link.patient(30):
            await link.execute("SELECT pg_sleep(1.2)")
        rows = await (
            await link.execute("SELECT pg_sleep(0.15), repeat('x', 20000) FROM generate_series(1, 8)")
        ).fetchall()
        assert len(rows) == 8
        with pytest.raises(psycopg.OperationalError, match=r"said nothing for 0\.5 s"):
            await link.execute("SELECT pg_sleep(5)")
    await store.close()


def test_what_an_address_says_about_its_connections_stays() -> None:
    """E4: a machine that is gone is noticed while nobody asks, unless the address has other wishes."""
    assert options("postgresql://a/b")["keepalives_idle"] == 10
    assert options("postgresql://a/b")["connect_timeout"] == 5
    chosen = options("postgresql://a/b?connect_timeout=60&tcp_user_timeout=1")
    assert not {"connect_timeout", "tcp_user_timeout"} & set(chosen)


# -- Contents that two want at once ----------------------------------------------------------------------------------

BLOB, OTHER = "d" * 32, "e" * 32


async def old_run(store: Store, run: str = "old") -> None:
    """A run that completed long ago, with a content."""
    await store.create(Head(run))
    lease = await store.claim(run, ME, 1.0)
    await store.append(Batch(run, 0, [(1.0, b"a")], lease.fence, {BLOB: b"content"}, "completed"))
    await store.release(lease)


async def new_append(store: PostgresStore) -> dict[str, Any]:
    """What a run appends that names the same content, as the store would send it."""
    await store.create(Head("new"))
    lease = await store.claim("new", ME, 1.0)
    return {
        "run": "new", "after": 0, "count": 1, "fence": lease.fence, "at": 2.0, "status": None, "objective": None,
        "ats": [2.0], "datas": [b"b"], "digests": [BLOB], "contents": [b"content"],
    }  # fmt: skip


async def test_a_content_that_is_about_to_be_named_again_is_not_swept(postgres: PostgresServer | NamedPostgres) -> None:
    """E6: an append is under way, and not yet committed, while the sweep looks."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    await old_run(store)
    values = await new_append(store)
    async with await psycopg.AsyncConnection.connect(address) as naming:
        await naming.execute(APPEND, values)
        sweeping = asyncio.create_task(store.sweep(100.0))
        await asyncio.wait([sweeping], timeout=1.0)
        await naming.commit()
        assert await sweeping == 0
    assert await store.blob(BLOB) == b"content"
    await store.close()


async def test_a_run_that_is_taken_up_again_keeps_what_it_named(postgres: PostgresServer | NamedPostgres) -> None:
    """E6: an old run names its content anew, in the append with which it stops being complete."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    await old_run(store)
    lease = await store.claim("old", ME, 1.0)
    values = {**await new_append(store), "run": "old", "after": 1, "fence": lease.fence, "status": "running"}
    async with await psycopg.AsyncConnection.connect(address) as naming:
        await naming.execute(APPEND, values)
        assert await asyncio.wait_for(store.sweep(100.0), 10) == 0, "it waits for nobody"
        await naming.commit()
    assert await store.sweep(100.0) == 0
    assert await store.blob(BLOB) == b"content"
    await store.close()


async def test_who_names_a_content_during_a_sweep_brings_it_anew(postgres: PostgresServer | NamedPostgres) -> None:
    """E6: the sweep has chosen, and not yet committed, when the append comes; it waits, and the content is there."""
    address = postgres.fresh()
    store, other = PostgresStore(address), PostgresStore(address)
    await store.open()
    await other.open()
    await old_run(store)
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as gate:
        await gate.execute("""
            CREATE FUNCTION rerail.dawdle() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN OLD; END $$;
            CREATE TRIGGER slow BEFORE DELETE ON rerail.blobs FOR EACH ROW EXECUTE FUNCTION rerail.dawdle();
            """)
        await gate.execute("SELECT pg_advisory_lock(7)")
        sweeping = asyncio.create_task(store.sweep(100.0))
        assert await _waits(gate, "advisory")
        await other.create(Head("new"))
        lease = await other.claim("new", ME, 1.0)
        naming = asyncio.create_task(
            other.append(Batch("new", 0, [(2.0, b"b")], lease.fence, {BLOB: b"content", OTHER: b"more"}))
        )
        await asyncio.wait([naming], timeout=1.0)
        await gate.execute("SELECT pg_advisory_unlock(7)")
        assert await sweeping == 1
        await naming
    assert await store.blob(BLOB) == b"content"
    assert await store.sweep(100.0) == 0
    for one in (store, other):
        await one.close()


async def test_what_was_named_while_a_sweep_looked_is_not_swept(postgres: PostgresServer | NamedPostgres) -> None:
    """E6: an append begins and ends between the sweep's first look and its locks: it looks again."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    await old_run(store)

    class Interrupted:
        """A connection on which something happens after the first look."""

        def __init__(self, link: Any) -> None:
            self._link, self._looked = link, False

        async def execute(self, *asked: Any) -> Any:
            found = await self._link.execute(*asked)
            if not self._looked:
                self._looked = True
                await store._write(APPEND, await new_append(store))
            return found

    async with store._connection() as link, link.transaction():
        assert await _swept(Interrupted(link), 100.0) == 0  # type: ignore[arg-type]
    assert await store.blob(BLOB) == b"content"
    await store.close()


async def _waits(gate: psycopg.AsyncConnection[Any], kind: str) -> bool:
    """Whether somebody comes to wait for a lock of this kind."""
    for _ in range(500):
        found = await gate.execute("SELECT 1 FROM pg_locks WHERE locktype = %s AND NOT granted", (kind,))
        if await found.fetchone() is not None:
            return True
        await asyncio.sleep(0.02)
    return False


# -- How safe a commit is --------------------------------------------------------------------------------------------


async def test_durability_full_holds_whatever_the_database_says(postgres: PostgresServer | NamedPostgres) -> None:
    """E1: a database or a role with synchronous_commit off weakens nothing; what was chosen stronger stays."""
    address = postgres.fresh()
    for default, durability, expected in (
        ("off", "full", "on"), ("off", "normal", "off"), ("remote_apply", "full", "remote_apply"),
    ):  # fmt: skip
        with psycopg.connect(address, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = {default}")  # type: ignore[call-overload]
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")  # type: ignore[call-overload]
        store = PostgresStore(address, durability)
        await store.open()
        for name, value in (("synchronous_commit", expected), ("transaction_isolation", "read committed")):
            [(said,)] = await store._read("SELECT current_setting(%(name)s)", {"name": name})
            assert said == value
        await store.close()


async def test_what_a_postgres_can_lose_is_said(postgres: PostgresServer | NamedPostgres) -> None:
    """I6: fsync off loses histories when the machine stops; the server of the tests runs like that."""
    store = PostgresStore(postgres.fresh())
    await store.open()
    with psycopg.connect(store._url) as connection:
        off = [
            name for name in ("fsync", "full_page_writes") if connection.execute(f"SHOW {name}").fetchone() == ("off",)
        ]  # type: ignore[call-overload]
    assert [
        name for name in ("fsync", "full_page_writes") if any(f"with {name} = off" in one for one in store.caveats)
    ] == off
    if isinstance(postgres, PostgresServer):
        assert off == ["fsync"]
    await store.close()


# -- Clocks that differ ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["postgres", "redis"])
def dated(request: pytest.FixtureRequest) -> Callable[[float], Store]:
    """Makes stores of one server, as a machine sees them whose clock is so many seconds off."""
    address = request.getfixturevalue("postgres" if request.param == "postgres" else "redis_server").fresh()

    def make(off: float) -> Store:
        kind = PostgresStore if request.param == "postgres" else RedisStore
        return kind(address, clock=lambda: time.time() + off)

    return make


@pytest.mark.parametrize("off", [3600.0, -3600.0])
async def test_an_owner_whose_clock_is_off_is_neither_dead_nor_immortal(
    dated: Callable[[float], Store], off: float
) -> None:
    """T7: how long ago it renewed its lease is told by the store's clock, whatever those of both machines say."""
    wrong, right = dated(off), dated(0.0)
    await wrong.open()
    await right.open()
    theirs, ours = time.time() + off, time.time()
    await wrong.create(Head("made", owner=ME, fence=1, renewed_at=theirs))
    await wrong.create(Head("held"))
    lease = await wrong.claim("held", ME, theirs)
    await wrong.create(Head("silent", owner=ME, fence=1, renewed_at=theirs - 40))
    await wrong.renew(lease, theirs - 5)
    for store, now in ((right, ours), (wrong, theirs)):
        heads = {head.run: head for head in await store.heads()}
        ages = {run: now - head.renewed_at for run, head in heads.items()}
        assert ages == pytest.approx({"made": 0, "held": 5, "silent": 40}, abs=4)
        assert {run: is_dead(head, now) for run, head in heads.items()} == {
            "made": False,
            "held": False,
            "silent": True,
        }
        one = await store.head("silent")
        assert one is not None and abs(now - one.renewed_at - 40) < 4
        await store.close()


# -- News that is none of ours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload", ["hello", "7", '{"run": 1}', "[[]]", '[["run-1"]]', '[[1, 2], "x", null]', "[" * 5000]
)
async def test_foreign_words_on_the_channel_harm_nobody(postgres: PostgresServer | NamedPostgres, payload: str) -> None:
    """I1: anybody may notify it; those who wait are told of news afterwards, at once."""
    address = postgres.fresh()
    one, other = PostgresStore(address), PostgresStore(address)
    await one.open()
    await other.open()
    lease = await started(one)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_notify('rerail_news', %s)", (payload,))
    await asyncio.sleep(0.2)
    assert not other._tasks[1].done(), "it listens still"
    waiting = asyncio.create_task(other.changed(lease.run, 0, 20))
    await one.append(batch(lease, 0, "one"))
    assert await waiting
    for store in (one, other):
        await store.close()
