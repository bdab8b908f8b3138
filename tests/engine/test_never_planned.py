"""A run that was created and never got its plan, as a disk that fills up leaves it (E4)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.maintenance.health_check import examine, mend
from rerail.engine.workers import WorkerPool
from rerail.ports import Batch, Head, Owner, Unusable

pytestmark = pytest.mark.anyio
PLAN = {"objective": "pay", "steps": [{"id": "a", "tool": "ok"}]}
GONE = Owner("elsewhere", 1, 0.0)


@rerail.tool
def ok() -> int:
    """Do it."""
    return 1


class Full(MemoryStore):
    """A store on a disk that is full: runs can be created and claimed, and no event fits."""

    full = True
    searches = 0

    async def heads(self, **filters: Any) -> list[Head]:
        """Count the searches."""
        self.searches += 1
        return await super().heads(**filters)

    async def append(self, batch: Batch) -> None:
        """Refuse what has to be written."""
        if self.full:
            raise Unusable("disk full")
        await super().append(batch)


async def left(store: Full, run: str = "r") -> None:
    """Leave a run without a plan."""
    async with rerail.Engine(store, [ok]) as engine:
        with pytest.raises(rerail.StoreError, match="disk full"):
            await engine.start(PLAN, run_id=run)


async def test_what_was_never_planned_is_no_success_and_nothing_waits_for_it() -> None:
    """E4, V2: it says when it was created and that nothing was done; every command refuses at once."""
    store, before = Full(), time.time()
    await left(store)
    async with rerail.Engine(store, [ok]) as engine, asyncio.timeout(5):
        shown = await engine.wait("r")
        assert (shown.status, shown.success, shown.complete, shown.objective) == ("pending", False, False, "pay")
        assert shown.created_at >= before
        assert "never got its plan" in shown.summary
        assert "succeeded" not in await engine.why("r")
        assert [record async for record in engine.watch("r")] == []
        for asked in (engine.resume, engine.cancel, engine.retry, engine.pause):
            with pytest.raises(rerail.Refused, match="never got its plan") as refused:
                await asked("r")
            assert "run_id='r'" in str(refused.value.hint)
        head = await store.head("r")
        assert head is not None
        assert head.fence == 1, "nothing was claimed for a refusal"
        store.full = False
        assert await engine.start(PLAN, run_id="r") == "r"
        assert (await engine.wait("r")).success


async def test_a_living_creator_is_not_asked_either() -> None:
    """E4: a process that could not write the plan answers no command; nobody waits for it."""
    store, now = Full(), time.time()
    await store.create(Head("r", 0, "pending", "pay", "", now, now, GONE, 1, now))
    async with rerail.Engine(store, [ok]) as engine, asyncio.timeout(5):
        for asked in (engine.resume, engine.cancel, engine.retry):
            with pytest.raises(rerail.Refused, match="never got its plan"):
                await asked("r")


async def test_doctor_names_it_and_removes_it_once_its_creator_is_gone() -> None:
    """E4: nothing is lost with it; a run that is being created is left alone."""
    store, now = Full(), time.time()
    await store.create(Head("gone", 0, "pending", "pay", "", now, now - 100, GONE, 1, now - 100))
    await store.create(Head("young", 0, "pending", "pay", "", now, now, GONE, 1, now))
    [found] = [finding async for finding in examine(store, None, now)]
    assert (found.kind, found.where, found.grave) == ("unplanned", "gone", True)
    assert (await mend(store, found, now)).mended
    assert [head.run for head in await store.heads()] == ["young"]
    assert not (await mend(store, found, now)).mended


async def test_a_worker_does_not_spin_on_what_it_cannot_write() -> None:
    """E4: neither on runs without a plan, nor on twenty that a full disk keeps from going on; one line, not 180."""
    store = Full()
    for n in range(20):
        await left(store, f"never{n}")
    store.full = False
    async with rerail.Engine(store, [ok]) as engine:
        for n in range(20):
            await engine.start(PLAN, run_id=f"queued{n}", queued=True)
    store.full = True
    store.searches, said = 0, list[Any]()
    async with rerail.Engine(store, [ok]) as engine:
        pool = WorkerPool(engine.internals, 4, said.append)
        asyncio.get_running_loop().call_later(1.0, pool.stop)
        await pool.work()
    assert (len(said), store.searches <= 10) == (1, True), (said, store.searches)
    assert "disk full" in str(said[0])
