"""What Postgres and Redis do besides the contract: restarts, refusals, warnings, passwords (E4, E6, I5, I6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from tests.contracts.servers import PostgresServer, RedisServer, own_postgres, own_redis

import rerail
from rerail.adapters.stores.postgres.maintenance import MIGRATIONS
from rerail.adapters.stores.postgres.store import PostgresStore
from rerail.adapters.stores.redis.store import RedisStore
from rerail.errors import StoreError
from rerail.factory import make_store
from rerail.ports import Batch, Head, Owner, Unavailable, Unusable
from rerail.testing.store_contract import batch, history, started

ME = Owner("here", 1, 1.0)

# -- Servers that stop and start again -------------------------------------------------------------------------------


@rerail.tool
async def slow(n: int) -> int:
    """Take a little time."""
    await asyncio.sleep(0.05)
    return n


STEPS = [{"id": f"s{n}", "tool": "slow", "args": {"n": n}, "needs": [f"s{n - 1}"] if n else []} for n in range(30)]


async def through_a_restart(address: str, server: PostgresServer | RedisServer) -> None:
    """Drive a run while its store's server dies and comes back; nothing is lost or doubled."""
    async with rerail.Engine(address, [slow], {"store": {"reconnect_seconds": 30}}) as engine:
        run = await engine.start({"steps": STEPS})
        for _ in range(2):
            await asyncio.sleep(0.4)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        result = await engine.wait(run)
        assert result.success
        assert [step.attempts for step in result.steps.values()] == [1] * 30
        records = await engine.events(run)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert sum(record.event.__class__.__name__ == "StepSucceeded" for record in records) == 30


async def test_a_run_goes_on_through_restarts_of_postgres() -> None:
    """E4: the store is out of reach for a while, and the run waits for it."""
    with own_postgres() as server:
        await through_a_restart(server.fresh(), server)


async def test_a_run_goes_on_through_kills_of_redis() -> None:
    """E4: killed with -9; with appendfsync always nothing acknowledged is lost."""
    with own_redis() as server:
        await through_a_restart(server.fresh(), server)


async def test_watchers_hear_of_news_after_a_restart() -> None:
    """I1: who waits while the server restarts is told of what is written afterwards."""
    with own_redis() as server:
        address = server.fresh()
        one, other = RedisStore(address), RedisStore(address)
        await one.open()
        await other.open()
        lease = await started(one)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        waiting = asyncio.create_task(other.changed("run-1", 0, 20))
        await asyncio.sleep(0.05)
        for _ in range(100):  # the first words after a restart may still go to the old connection
            try:
                await one.append(batch(lease, 0, "one"))
                break
            except Unavailable:
                await asyncio.sleep(0.05)
        try:
            assert await asyncio.wait_for(waiting, 10)
        except Unavailable:
            assert await other.changed("run-1", 0, 5)
        await one.close()
        await other.close()


async def test_whoever_is_cancelled_while_asking_redis_ends(redis_server: RedisServer) -> None:
    """Leaving an engine cancels what asks the store, and waits for it; the driver may keep a cancellation to itself."""
    store = RedisStore(redis_server.fresh())
    await store.open()

    async def ask(until: asyncio.Event) -> None:
        while not until.is_set():
            await store.inbox("run-1")

    for turns in range(600):
        enough = asyncio.Event()
        asking = asyncio.create_task(ask(enough))
        for _ in range(turns % 40):
            await asyncio.sleep(0)
        asking.cancel()
        ended, _ = await asyncio.wait([asking], timeout=2)
        enough.set()
        assert ended, f"it goes on, though it was cancelled in turn {turns}"
    await store.close()


# -- Refusals ------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_named() -> None:
    """E4: with the address, without the password, and with what to look at."""
    for address, kind in (
        ("postgresql://me:secret@127.0.0.1:1/x", "Postgres"),
        ("redis://:secret@127.0.0.1:1", "Redis"),
    ):
        store = make_store(address)
        assert "secret" not in store.url
        with pytest.raises(Unavailable) as refusal:
            await store.open()
        assert kind in str(refusal.value)
        assert "127.0.0.1:1" in str(refusal.value)
        assert "secret" not in str(refusal.value)


async def test_a_database_that_is_not_there_is_named(postgres: PostgresServer) -> None:
    """What to do is said, and it is not tried again."""
    address = postgres.fresh().replace("/test_", "/nothing_")
    with pytest.raises(Unusable, match="createdb"):
        await PostgresStore(address).open()


async def test_a_database_of_a_newer_version_is_refused(postgres: PostgresServer) -> None:
    """E5: with its own code; nothing in it is changed."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    await store.close()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("UPDATE rerail.version SET version = 99")
    with pytest.raises(Unusable) as refusal:
        await store.open()
    assert refusal.value.code == "STORE_NEWER"


async def test_many_processes_may_open_a_new_database_at_once(postgres: PostgresServer) -> None:
    """The tables are made once."""
    address = postgres.fresh()
    stores = [PostgresStore(address) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await stores[0].create(Head("r"))
    assert all([await store.head("r") for store in stores])
    await asyncio.gather(*(store.close() for store in stores))
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT version FROM rerail.version").fetchall() == [(len(MIGRATIONS),)]


async def test_a_user_who_may_not_make_tables_can_use_those_there_are(postgres: PostgresServer) -> None:
    """Whoever may only use the schema is not asked for more."""
    address = postgres.fresh()
    first = PostgresStore(address)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS clerk")
        connection.execute("CREATE ROLE clerk LOGIN")
    clerk = address.replace("postgres:@", "clerk:@")
    with pytest.raises(Unusable, match="may not"):
        await PostgresStore(clerk).open()
    await first.open()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA rerail TO clerk")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rerail TO clerk")
        connection.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA rerail TO clerk")
    store = PostgresStore(clerk)
    await store.open()
    await store.append(batch(await started(store), 0, "one"))
    assert await history(first) == ["one"]
    await store.close()
    await first.close()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP OWNED BY clerk CASCADE")
        connection.execute("DROP ROLE clerk")


async def test_a_nul_in_an_objective_is_no_reason_to_fail(postgres: PostgresServer) -> None:
    """Postgres holds no NUL in texts; the history has it to the letter."""
    store = PostgresStore(postgres.fresh())
    await store.open()
    await store.create(Head("r", objective="a\0b"))
    await store.append(Batch("r", 0, [(1.0, b"a\0b")], 0, objective="c\0d"))
    head = await store.head("r")
    assert head is not None
    assert head.objective == "c␀d"
    assert (await store.read("r"))[0].data == b"a\0b"
    await store.close()


def test_a_store_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names its extra."""
    import sys

    for address, module, extra in (("postgresql://x", "psycopg", "postgres"), ("redis://x", "redis", "redis")):
        with monkeypatch.context() as gone:
            for name in [name for name in sys.modules if name.partition(".")[0] == module]:
                gone.delitem(sys.modules, name)
            gone.delitem(sys.modules, f"rerail.adapters.stores.{extra}.store", raising=False)
            gone.setitem(sys.modules, module, None)
            with pytest.raises(StoreError, match=rf"'\.\[{extra}\]'"):
                make_store(address)


# -- What Redis may lose -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"appendonly": "yes", "appendfsync": "always"}, ""),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "last second"),
        ({"appendonly": "yes", "appendfsync": "no"}, "half a minute"),
        ({"appendonly": "no", "save": "60 1"}, "minutes"),
        ({"appendonly": "no", "save": ""}, "nothing on disk"),
        ({"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "allkeys-lru"}, "allkeys-lru"),
    ],
)
async def test_what_the_servers_settings_can_lose_is_said(
    redis_server: RedisServer, settings: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At start-up, with what to set instead."""
    usual = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
    try:
        for name, value in (usual | settings).items():
            redis_server.command("CONFIG", "SET", name, value)
        async with rerail.Engine(redis_server.fresh(), [slow]):
            pass
        told = [record.getMessage() for record in caplog.records if record.name == "rerail"]
        assert [said in text for text in told] == ([True] if said else [])
    finally:
        for name, value in usual.items():
            redis_server.command("CONFIG", "SET", name, value)


async def test_a_user_with_the_rights_that_the_docs_name_can_do_everything(redis_server: RedisServer) -> None:
    """I5: no more is needed than stands in docs/howto/stores.md; what the settings may lose is not known then."""
    redis_server.fresh()
    rights = "+@read +@write +evalsha +script|load +time +info +ping +subscribe +unsubscribe +publish"
    docs = (Path(__file__).parents[2] / "docs" / "howto" / "stores.md").read_text()
    assert f"~rerail:* &rerail:news {rights}" in " ".join(docs.split())
    redis_server.command(
        "ACL", "SETUSER", "few", "on", ">pw", "resetchannels", "~rerail:*", "&rerail:news", *rights.split()
    )
    store = RedisStore(f"unix://few:pw@{redis_server.socket}")
    await store.open()
    assert store.caveats == ()
    lease = await started(store)
    await store.append(batch(lease, 0, "one", blobs={"d": b"content"}))
    await store.renew(lease, 5.0)
    waiting = asyncio.create_task(store.changed("run-1", 1, 20, inbox=True))
    await asyncio.sleep(0.05)
    number = await store.post("run-1", b"pause")
    assert await waiting
    await store.answer("run-1", number, b"ok")
    assert [head.run for head in await store.heads(prefix="run")] == ["run-1"]
    assert (await history(store), await store.sweep(1.0)) == (["one"], 0)
    assert (await store.examine(), await store.clear()) == ([], 0)
    await store.release(lease)
    await store.close()
    redis_server.command("ACL", "DELUSER", "few")


async def test_contents_expire_only_once_all_who_need_them_are_done(redis_server: RedisServer) -> None:
    """E6: the time runs from completion, is taken back when a run goes on, and shared contents wait for the last."""
    store = RedisStore(redis_server.fresh(), keep_seconds=50)
    await store.open()
    one, two = await started(store, "run-1"), await started(store, "run-2")
    await store.append(batch(one, 0, "x", blobs={"mine": b"1", "shared": b"2"}))
    await store.append(batch(two, 0, "y", blobs={"shared": b"2"}))
    client = redis.Redis(unix_socket_path=str(redis_server.socket))

    def left(name: str) -> int:
        return int(client.pttl(f"rerail:blob:{name}"))  # type: ignore[arg-type]

    assert (left("mine"), left("shared")) == (-1, -1)
    await store.append(batch(one, 1, "z", status="completed"))
    assert 0 < left("mine") <= 50_000
    assert left("shared") == -1
    await store.append(batch(one, 2, "again", status="running"))
    assert left("mine") == -1
    await store.append(batch(two, 1, "z", status="completed"))
    assert left("shared") == -1
    await store.append(batch(one, 3, "z", status="completed"))
    assert 0 < left("shared") <= 50_000
    client.close()
    await store.close()


async def test_a_sweep_of_redis_looks_only_at_what_may_go(redis_server: RedisServer) -> None:
    """E6: not at all that ever completed, whenever somebody opens the store; runs of earlier versions are found."""
    store = RedisStore(redis_server.fresh())
    await store.open()
    client = redis.Redis(unix_socket_path=str(redis_server.socket))
    for number in range(250):  # more than are swept in one go
        lease = await started(store, f"run-{number:03}")
        contents = {f"c{number}": b"1", "all": b"2"} if number % 2 else {}
        await store.append(batch(lease, 0, "x", blobs=contents, at=10.0 + number, status="completed"))
        await store.release(lease)
    assert client.zcard("rerail:expiring") == 125
    client.delete("rerail:expiring")  # as an earlier version left it
    assert await store.sweep(10.0) == 0
    assert client.zcard("rerail:expiring") == 125
    assert await store.sweep(110.0) == 50, "all but the one that younger runs need as well"
    assert client.zcard("rerail:expiring") == 75
    asked = int(client.info("stats")["total_commands_processed"])  # type: ignore[index]
    assert await store.sweep(110.0) == 0
    assert int(client.info("stats")["total_commands_processed"]) - asked < 10  # type: ignore[index]
    assert await store.sweep(1e9) == 76
    assert client.keys("rerail:blob*") == client.keys("rerail:refs*") == [] and not client.exists("rerail:expiring")
    client.close()
    await store.close()


async def test_a_sweep_of_redis_looks_once_at_what_many_runs_share(redis_server: RedisServer) -> None:
    """E6, E7: a script is alone on the server; who shares a content with very many keeps nobody waiting."""
    store = RedisStore(redis_server.fresh())
    await store.open()
    client = redis.Redis(unix_socket_path=str(redis_server.socket))
    for number in range(100):
        lease = await started(store, f"run-{number:03}")
        await store.append(batch(lease, 0, "x", blobs={"all": b"2"}, at=10.0, status="completed"))
        await store.release(lease)
    await store.append(batch(await started(store, "young"), 0, "x", blobs={"all": b"2"}, at=99.0, status="running"))
    client.config_resetstat()
    assert await store.sweep(50.0) == 0
    stats: Any = client.info("commandstats")
    assert stats["cmdstat_hmget"]["calls"] < 400 and stats["cmdstat_smembers"]["calls"] < 150
    client.close()
    await store.close()


async def test_what_a_sweep_of_redis_left_for_a_run_that_is_removed_goes_later(redis_server: RedisServer) -> None:
    """E6: a failed run needs it, and is pruned."""
    store = RedisStore(redis_server.fresh())
    await store.open()
    for run, status in (("run-1", "completed"), ("run-2", "failed")):
        lease = await started(store, run)
        await store.append(batch(lease, 0, "x", blobs={"shared": b"1"}, at=10.0, status=status))
        await store.release(lease)
    assert await store.sweep(20.0) == 0
    head = await store.head("run-2")
    assert head is not None and await store.remove([head]) == 0
    assert await store.sweep(20.0) == 1
    late = await store.claim("run-1", ME, 1.0)
    await store.append(batch(late, 1, "y", blobs={"late": b"2"}, at=30.0, status="completed"))
    await store.append(batch(late, 2, "noted", at=50.0))  # such as what came of a notice
    assert [await store.sweep(at) for at in (40.0, 60.0)] == [0, 1]
    await store.close()


# -- Many writers --------------------------------------------------------------------------------------------------


async def test_appends_of_many_runs_share_their_commits(postgres: PostgresServer) -> None:
    """I6: a hundred runs that write at once need far fewer than a hundred transactions."""
    store = PostgresStore(address := postgres.fresh())
    await store.open()
    leases = [await started(store, f"run-{n}") for n in range(100)]

    def commits() -> int:
        with psycopg.connect(address, autocommit=True) as connection:
            row = connection.execute("SELECT txid_current()").fetchone()  # one more for each that wrote something
            assert row is not None
            return int(row[0])

    before = await asyncio.to_thread(commits)
    for turn in range(5):
        await asyncio.gather(*(store.append(batch(lease, turn, "x")) for lease in leases))
    assert await asyncio.to_thread(commits) - before < 100
    await store.close()


async def test_two_who_bring_the_same_contents_do_not_undo_each_other(postgres: PostgresServer) -> None:
    """E4: whichever order they come in; a transaction that the server gives up is made again, write by write."""
    stores = [PostgresStore(address) for address in [postgres.fresh()] * 2]
    contents = [f"{n:064x}" for n in range(8)]
    for number, store in enumerate(stores):
        await store.open()
        for n in range(8):
            await started(store, f"run-{number}-{n}")

    async def writes(store: PostgresStore, number: int, turn: int) -> None:
        order = contents if number else contents[::-1]
        await asyncio.gather(
            *(
                store.append(Batch(f"run-{number}-{n}", turn, [(1.0, b"{}")], 1, {f"{turn}{digest}": b"x" * 20_000}))
                for n, digest in enumerate(order)
            )
        )

    for turn in range(3):
        await asyncio.gather(*(writes(store, number, turn) for number, store in enumerate(stores)))
    for store in stores:
        await store.close()


async def test_more_questions_than_connections_wait_for_their_turn(redis_server: RedisServer) -> None:
    """E4: a server that has much to do is not gone."""
    store = RedisStore(redis_server.fresh())
    await store.open()
    await started(store, "run")
    heads = await asyncio.gather(*(store.head("run") for _ in range(300)))
    assert all(head is not None and head.run == "run" for head in heads)
    await store.close()


async def test_what_cannot_be_sent_ends_its_own_write_alone(
    postgres: PostgresServer, redis_server: RedisServer
) -> None:
    """E4: a text that is none is refused; whoever writes beside it, and afterwards, is not harmed."""
    for store in (PostgresStore(postgres.fresh()), RedisStore(redis_server.fresh())):
        await store.open()
        tries = [store.create(Head("odd", objective="\ud800")), store.create(Head("even"))]
        ended = await asyncio.gather(*tries, return_exceptions=True)
        assert isinstance(ended[0], Unusable) and ended[1] is None
        await asyncio.wait_for(store.create(Head("later")), 10)
        assert {head.run for head in await store.heads()} == {"even", "later"}
        await store.close()


async def test_an_action_is_told_of_though_an_append_follows_at_once(postgres: PostgresServer) -> None:
    """T7: the owner elsewhere, who has read its own history, waits for actions alone."""
    store = PostgresStore(postgres.fresh())
    await store.open()
    lease = await started(store)
    for seq in range(20):
        await store.post("run-1", b"pause")
        await store.append(batch(lease, seq, "one"))
        if store._untold == {"run-1": -1}:
            break  # else it was told between the two
    assert store._untold == {"run-1": -1}
    await store.close()


# -- What is left of runs that somebody removed by hand ---------------------------------------------------------------


async def orphaned(store: PostgresStore | RedisStore) -> None:
    """Two runs with contents and an action; the first is to go by hand, the second shares a content with it."""
    for run in ("gone", "kept"):
        lease = await started(store, run)
        await store.append(batch(lease, 0, "one", blobs={"both": b"1", run: b"2"}))
        await store.post(run, b"pause")


async def kept(store: PostgresStore | RedisStore) -> None:
    """A history whose run is not listed is found, and stays with all that it needs."""
    assert [(flaw.kind, flaw.what, flaw.count) for flaw in await store.examine()] == [("orphans", "histories", 1)]
    assert await store.clear() == 0
    assert (await history(store, "gone"), await store.blob("gone")) == (["one"], b"2")


async def cleared(store: PostgresStore | RedisStore) -> None:
    """Orphans are found, kind by kind, and go; what the other run needs stays."""
    found = {(flaw.kind, flaw.what, flaw.count) for flaw in await store.examine()}
    assert found == {("orphans", kind, 1) for kind in ("contents", "actions")}
    assert await store.clear() == 2
    assert (await store.examine(), await store.read("gone"), await store.blob("gone")) == ([], [], None)
    assert [await store.blob(name) for name in ("both", "kept")] == [b"1", b"2"]
    assert (await history(store, "kept"), len(await store.inbox("kept"))) == (["one"], 1)


async def test_orphans_in_postgres_are_cleared(postgres: PostgresServer) -> None:
    """E1, E6: a run that lost its row loses nothing else; one that somebody deleted leaves nothing behind."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    try:
        await orphaned(store)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DELETE FROM rerail.runs WHERE run = 'gone'")
            await kept(store)
            connection.execute("DELETE FROM rerail.events WHERE run = 'gone'")
        await cleared(store)
    finally:
        await store.close()


async def test_orphans_in_redis_are_cleared(redis_server: RedisServer) -> None:
    """E1, E6: the same for keys that are not there."""
    store = RedisStore(redis_server.fresh())
    await store.open()
    try:
        await orphaned(store)
        redis_server.command("DEL", "rerail:run:gone")
        await kept(store)
        redis_server.command("DEL", "rerail:log:gone")
        await cleared(store)
    finally:
        await store.close()
