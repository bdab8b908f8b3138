"""Contents of a size that a server feels: they arrive, nobody waits behind them, refusals leave nothing (E4, I6)."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time

import psycopg
import pytest
from tests.contracts.servers import NamedPostgres, PostgresServer

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.postgres import store as postgres_store
from rerail.adapters.stores.postgres.store import LARGE, PostgresStore
from rerail.engine.maintenance.export import export_runs, import_runs, listed
from rerail.kernel import events as ev
from rerail.kernel.codec import encode
from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Owner, Unusable
from rerail.values.json_values import digest

SIZE = 24 << 20
CONTENT = random.Random(3).randbytes(SIZE)  # the whole of it is looked at: nothing of it can be guessed
SMALL = b"small"
ME = Owner("here", 1, 1.0)


def naming(*contents: bytes, run: str = "run-1", after: int = 0, fence: int = 1) -> Batch:
    """An append whose events name these contents."""
    rows = [(1.0, encode(ev.StepSucceeded("s", 1, None, digest(one), len(one), blob=True))) for one in contents]
    return Batch(run, after, rows, fence, {digest(one): one for one in contents})


async def test_a_large_content_arrives_or_nothing_of_its_append(postgres: PostgresServer | NamedPostgres) -> None:
    """E4: with what is small beside it; whoever may not append leaves nothing; one's own again is no other."""
    store = PostgresStore(postgres.fresh())
    await store.open()
    try:
        await store.create(Head("run-1", fence=1))
        with pytest.raises(Fenced):
            await store.append(naming(CONTENT, fence=2))
        with pytest.raises(Conflict):
            await store.append(naming(CONTENT, after=5))
        assert await store.blob(digest(CONTENT)) is None
        for _ in range(2):
            await store.append(naming(CONTENT, SMALL))
        assert [row.seq for row in await store.read("run-1")] == [1, 2]
        assert await store.blob(digest(CONTENT)) == CONTENT
        assert await store.blob(digest(SMALL)) == SMALL
        head = await store.head("run-1")
        assert head is not None
        assert await store.remove([head]) == 2, "both are known to be the run's"
    finally:
        await store.close()


async def test_a_large_content_that_was_damaged_is_mended_by_who_brings_it(
    postgres: PostgresServer | NamedPostgres,
) -> None:
    """E6: the digest is the name; what is there under it and differs is replaced."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    try:
        await store.create(Head("run-1", fence=1))
        await store.append(naming(CONTENT))
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as link:
            await link.execute("UPDATE rerail.blobs SET data = set_byte(data, 5, 255 - get_byte(data, 5))")
        assert await store.blob(digest(CONTENT)) != CONTENT
        await store.append(naming(CONTENT, after=1))
        assert await store.blob(digest(CONTENT)) == CONTENT
    finally:
        await store.close()


async def test_many_who_bring_the_same_large_content_all_succeed(postgres: PostgresServer | NamedPostgres) -> None:
    """E6: it is stored once, and named by all of them."""
    store = PostgresStore(postgres.fresh())
    await store.open()
    try:
        runs = [f"run-{n}" for n in range(4)]
        for run in runs:
            await store.create(Head(run, fence=1))
        await asyncio.gather(*(store.append(naming(CONTENT, run=run)) for run in runs))
        heads = [head for run in runs if (head := await store.head(run)) is not None]
        assert [head.seq for head in heads] == [1] * 4
        assert [await store.remove([head]) for head in heads] == [0, 0, 0, 1]
    finally:
        await store.close()


async def test_nobody_waits_behind_a_large_content(postgres: PostgresServer | NamedPostgres) -> None:
    """T7: leases are renewed, and other runs go on, while it is under way; a server at work is not a silent one."""
    store = PostgresStore(postgres.fresh(), answer_seconds=1.0)
    await store.open()
    try:
        await store.create(Head("run-1", owner=ME, fence=1))
        await store.create(Head("run-2", fence=1))
        large = asyncio.create_task(store.append(naming(CONTENT * 4)))
        await asyncio.sleep(0.3)
        assert not large.done()
        began = time.monotonic()
        await store.renew(Lease("run-1", ME, 1), 5.0)
        await store.append(naming(SMALL, run="run-2"))
        assert not large.done(), f"the small ones took {time.monotonic() - began:.1f} s"
        await large
        assert await store.blob(digest(CONTENT * 4)) == CONTENT * 4
    finally:
        await store.close()


async def test_a_large_content_of_a_run_that_was_taken_meanwhile_is_not_kept(
    postgres: PostgresServer | NamedPostgres,
) -> None:
    """T7: the append is refused, and nothing of it stays."""
    store, other = PostgresStore(url := postgres.fresh()), PostgresStore(url)
    await store.open()
    await other.open()
    try:
        await store.create(Head("run-1", owner=ME, fence=1))
        large = asyncio.create_task(store.append(naming(CONTENT * 4)))
        await asyncio.sleep(0.3)
        assert not large.done()
        await other.claim("run-1", ME, 5.0, over=1)
        assert not large.done(), "whoever takes it does not wait"
        with pytest.raises(Fenced):
            await large
        assert await other.read("run-1") == [] and await other.blob(digest(CONTENT * 4)) is None
        several = [store.append(naming(CONTENT + bytes([n]), run=f"run-{n}")) for n in range(2, 8)]
        for n in range(2, 8):
            await store.create(Head(f"run-{n}", fence=1))
        under_way = asyncio.gather(*several)
        await asyncio.sleep(0.05)
        assert (await store.head("run-1")) is not None and not under_way.done(), "there are connections left for others"
        await under_way
    finally:
        await store.close()
        await other.close()


async def test_what_postgres_cannot_hold_is_refused_by_name_and_the_import_goes_on(
    postgres: PostgresServer | NamedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6, E10: one run that is too large is named with what to do; those before and after it arrive."""
    source, target = MemoryStore(), PostgresStore(postgres.fresh())
    monkeypatch.setattr(postgres_store, "LARGEST", 2 * len(CONTENT))
    huge = bytes(2 * len(CONTENT) + 1)
    for n, content in enumerate([SMALL, huge, CONTENT]):
        await source.create(Head(f"run-{n}", created_at=float(n), fence=1))
        batch = naming(content, run=f"run-{n}")
        rows = [(0.0, encode(ev.RunStarted())), *batch.rows, (2.0, encode(ev.Done("failed", False, False, False)))]
        await source.append(Batch(batch.run, 0, rows, 1, batch.blobs, "failed"))
    await target.open()
    try:
        with tempfile.TemporaryFile() as file:
            assert all([row.ok async for row in export_runs(source, await listed(source), file)])
            found = [row async for row in import_runs(target, file, own=True)]
        assert [row.outcome for row in found] == ["imported", "failed", "imported"]
        assert "too large for Postgres" in found[1].reason and digest(huge) in found[1].reason
        with pytest.raises(Unusable):
            await target.append(naming(huge, run="run-0", after=3))
        assert len(CONTENT) > LARGE
        assert await target.blob(digest(CONTENT)) == CONTENT
    finally:
        await target.close()


async def test_an_append_that_finds_its_place_taken_is_refused_also_with_a_large_content(
    postgres: PostgresServer | NamedPostgres,
) -> None:
    """E4: a history that is damaged ends the append; sending the content again would not help."""
    address = postgres.fresh()
    store = PostgresStore(address)
    await store.open()
    try:
        await store.create(Head("run-1", fence=1))
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as link:
            await link.execute("INSERT INTO rerail.events(run, seq, at, data) VALUES ('run-1', 1, 0, 'x')")
        with pytest.raises(Unusable):
            await asyncio.wait_for(store.append(naming(CONTENT)), 20)
    finally:
        await store.close()


async def test_nobody_waits_for_what_is_small_beside_a_large_content(postgres: PostgresServer | NamedPostgres) -> None:
    """T7: others may bring the same small content, and their leases are renewed with it."""
    store, other = PostgresStore(url := postgres.fresh()), PostgresStore(url)
    large = CONTENT * 4
    small = next(one for one in (b"%d" % n for n in range(100)) if digest(one) < digest(large))
    await store.open()
    await other.open()
    try:
        await store.create(Head("run-1", fence=1))
        await store.create(Head("run-2", fence=1))
        bringing = asyncio.create_task(store.append(naming(small, large)))
        await asyncio.sleep(0.3)
        assert not bringing.done()
        await other.append(naming(small, run="run-2"))
        assert not bringing.done()
        await bringing
        assert await other.blob(digest(large)) == large
    finally:
        await store.close()
        await other.close()
