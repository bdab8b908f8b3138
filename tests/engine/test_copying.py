"""Runs move from store to store whole, or it is said which did not (I5, I6, E6)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.sqlite import SqliteStore
from rerail.core.values import digest
from rerail.engine.copying import Copied, copy_runs
from rerail.engine.owner import is_dead, is_this_process
from rerail.ports import Batch, Head, Lease, Owner, Store

BIG = b'"' + b"x" * 5000 + b'"'
SOMEBODY = Owner("elsewhere", 7, 1.0)


async def copied(source: Store, target: Store, *runs: str, dead: bool = True) -> dict[str, Copied]:
    """What became of each run."""
    return {row.run: row async for row in copy_runs(source, target, list(runs), lambda head: dead)}


async def history(store: Store, run: str, events: int, blob: bytes | None = None) -> Lease:
    """A run of so many events, the last of which names a content."""
    await store.create(Head(run, objective=f"about {run}", created_at=float(events)))
    lease = await store.claim(run, SOMEBODY, 1.0)
    rows = [(float(n), b'{"type":"step_progress","n":%d}' % n) for n in range(events)]
    blobs = {}
    if blob is not None:
        rows.append((99.0, b'{"type":"step_succeeded","digest":"%s","blob":true}' % digest(blob).encode()))
        blobs = {digest(blob): blob}
    await store.append(Batch(run, 0, rows, lease.fence, blobs, "failed"))
    return lease


@pytest.fixture
async def source() -> Store:
    """Two runs, one with a large content and an action that nobody has answered."""
    store = MemoryStore()
    await history(store, "one", 1200)
    await store.release(await history(store, "two", 3, BIG))
    await store.post("two", b"pause")
    return store


async def test_everything_arrives(source: Store, tmp_path: Path) -> None:
    """Rows, contents, status, objective, parent and time of making, and open actions; the fence is kept."""
    target = SqliteStore(tmp_path / "there.db")
    await target.open()
    found = await copied(source, target)
    assert {run: row.outcome for run, row in found.items()} == {"one": "copied", "two": "copied"}
    assert (found["two"].events, found["two"].contents) == (4, 1)
    for run in ("one", "two"):
        ours, theirs = await source.head(run), await target.head(run)
        assert ours is not None
        assert theirs is not None
        assert theirs.owner is None
        for name in ("seq", "status", "objective", "parent", "created_at", "updated_at", "fence"):
            assert getattr(theirs, name) == getattr(ours, name), name
        assert await target.read(run, 0, 5000) == await source.read(run, 0, 5000)
    assert await target.blob(digest(BIG)) == BIG
    assert [data for _, data in await target.inbox("two")] == [b"pause"]
    assert {row.outcome for row in (await copied(source, target)).values()} == {"same"}
    await target.close()


async def test_a_copy_that_was_cut_off_goes_on(source: Store) -> None:
    """A target that has the beginning of a history gets the rest."""
    target = MemoryStore()
    await target.create(Head("one", fence=1))
    rows = [(row.at, row.data) for row in await source.read("one", 0, 700)]
    await target.append(Batch("one", 0, rows, 1))
    found = await copied(source, target, "one")
    assert found["one"].outcome == "copied"
    assert await target.read("one", 0, 5000) == await source.read("one", 0, 5000)


async def test_nobody_takes_up_half_of_a_run(source: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """T7: while it arrives it has an owner that lives; a copy that died is gone on with, by its fence."""
    target, owners = MemoryStore(), []
    append = target.append

    async def watched(batch: Batch) -> None:
        await append(batch)
        head = await target.head(batch.run)
        assert head is not None
        owners.append(head.owner is not None and is_this_process(head.owner) and not is_dead(head, time.time()))

    monkeypatch.setattr(target, "append", watched)
    assert all(row.ok for row in (await copied(source, target)).values())
    assert len(owners) >= 4 and all(owners)
    assert [head.owner for head in await target.heads()] == [None, None]


async def test_what_somebody_took_meanwhile_is_not_copied() -> None:
    """T7: heads are looked at when their turn comes, whatever their status was."""
    source, target = MemoryStore(), MemoryStore()
    await source.release(await history(source, "first", 1))
    await source.release(await history(source, "second", 2))
    rows = {}
    async for row in copy_runs(source, target, [], lambda head: False):
        rows[row.run] = row.outcome
        if row.run == "first":
            await source.claim("second", SOMEBODY, 1.0)
    assert rows == {"first": "copied", "second": "driven"}


async def test_another_history_is_left_alone(source: Store) -> None:
    """A run of the same id that went otherwise is neither changed nor called copied."""
    target = MemoryStore()
    await history(target, "one", 5)
    before = await target.read("one")
    await target.append(Batch("one", 5, [(1.0, b"{}")], 1))
    found = await copied(source, target)
    assert (found["one"].outcome, found["one"].ok) == ("differs", False)
    assert (await target.read("one"))[:5] == before
    assert found["two"].outcome == "copied"


async def test_a_run_that_somebody_drives_is_left_out() -> None:
    """Its history would be cut off in the middle of a call; a dead owner does not count."""
    source, target = MemoryStore(), MemoryStore()
    lease = await history(source, "live", 2)
    await source.append(Batch("live", 2, [(3.0, b"{}")], lease.fence, {}, "running"))
    found = await copied(source, target, dead=False)
    assert (found["live"].outcome, found["live"].ok) == ("driven", False)
    assert "elsewhere:7" in found["live"].reason
    assert await target.heads() == []
    assert (await copied(source, target))["live"].outcome == "copied"


async def test_a_content_that_is_not_what_its_name_says_is_found() -> None:
    """Digests are checked on the way."""
    source, target = MemoryStore(), MemoryStore()
    await history(source, "odd", 1, BIG)
    source._blobs[digest(BIG)] = b"rotten"
    found = await copied(source, target)
    assert (found["odd"].outcome, found["odd"].ok) == ("damaged", False)
    assert digest(BIG) in found["odd"].reason


async def test_contents_that_expired_are_counted() -> None:
    """E6: what the source has no longer cannot be copied, and that is said."""
    source, target = MemoryStore(), MemoryStore()
    await history(source, "old", 1, BIG)
    source._blobs.clear()
    found = await copied(source, target)
    assert (found["old"].outcome, found["old"].expired, found["old"].ok) == ("copied", 1, True)
