"""Runs that go for good: which may, which must stay, and what becomes of all that hangs on them (E6, T6, T7)."""

from __future__ import annotations

import time
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.maintenance.prune import Pruned, PruneRequest, prune
from rerail.kernel import events as ev
from rerail.kernel.codec import encode
from rerail.ports import Batch, Head, Owner, Store

LATER = 1e12  # everything is older than that
STEP = [{"id": "a", "tool": "give"}]


@rerail.tool
def give(n: int = 3000) -> str:
    """A large output, so that it is a content."""
    return "x" * n


@rerail.tool
def fail() -> None:
    """Fail."""
    raise rerail.ToolError("no", category="permanent_error")


def engine(store: Store) -> rerail.Engine:
    return rerail.Engine(store, [give, fail], {"reflection": {"enable_step_level_reflection": False}})


async def pruned(store: Store, **wanted: Any) -> dict[str, Pruned]:
    dry_run = wanted.pop("dry_run", False)
    found = prune(store, PruneRequest(wanted.pop("before", LATER), **wanted), dry_run=dry_run)
    return {row.run: row async for family, _ in found for row in family}


async def names(store: Store) -> set[str]:
    return {head.run for head in await store.heads()}


async def test_runs_at_rest_go_and_their_contents_with_them() -> None:
    """E6: what ended long ago goes; a content that a younger run needs, too, stays for it."""
    store = MemoryStore()
    async with engine(store) as running:
        old = (await running.run({"steps": STEP})).run_id
        failed = (await running.run({"steps": [{"id": "f", "tool": "fail"}]})).run_id
        limit = time.time()
        young = (await running.run({"steps": STEP})).run_id
        assert set(await pruned(store, before=limit, dry_run=True)) == {old, failed}
        assert await names(store) == {old, failed, young}, "a dry run removes nothing"
        found = await pruned(store, before=limit)
        assert {run: row.outcome for run, row in found.items()} == {old: "removed", failed: "removed"}
        assert await names(store) == {young}
        assert (await running.show(young)).steps["a"].output == "x" * 3000
        with pytest.raises(rerail.Refused):
            await running.show(old)
        await pruned(store)
        assert (await names(store), store._blobs) == (set(), {})


async def test_the_newest_are_kept_and_a_status_is_chosen() -> None:
    """`--keep` counts from the newest on, whatever became of them; `--status` takes no others."""
    store = MemoryStore()
    async with engine(store) as running:
        runs = [(await running.run({"steps": STEP})).run_id for _ in range(4)]
        failed = (await running.run({"steps": [{"id": "f", "tool": "fail"}]})).run_id
    assert set(await pruned(store, status=("failed",), dry_run=True)) == {failed}
    assert set(await pruned(store, keep=2)) == set(runs[:3])
    assert await names(store) == {runs[3], failed}


async def test_a_family_goes_together_or_stays() -> None:
    """T6: a run with its follow-up; while the follow-up waits for somebody, both stay."""
    store = MemoryStore()
    gated = {"steps": STEP, "follow_up": {"steps": [{"id": "b", "tool": "give", "confirm": True}]}}
    async with engine(store) as running:
        parent = (await running.run(gated)).run_id
        [child] = [row.run_id for row in await running.list(parent=parent)]
        await running.wait(child)
        found = await pruned(store)
        assert {row.outcome for row in found.values()} == {"kept"}
        assert found[parent].reason == f"{child} is waiting"
        assert await names(store) == {parent, child}
        await running.confirm(child, "b")
        await running.wait(child)
        assert {row.outcome for row in (await pruned(store)).values()} == {"removed"}
    assert await names(store) == set()


async def test_what_is_not_at_rest_stays_and_says_so() -> None:
    """E6: a run that is old enough and waits for somebody is told with the reason, whatever statuses are wanted."""
    store = MemoryStore()
    async with engine(store) as running:
        waiting = (await running.run({"steps": [{"id": "b", "tool": "give", "confirm": True}]})).run_id
    for status in (("completed", "failed", "cancelled"), ("completed",)):
        found = await pruned(store, status=status)
        assert {(row.outcome, row.reason) for row in found.values()} == {("kept", f"{waiting} is waiting")}
    assert await pruned(store, before=1.0) == {}, "a young one is not told of"


async def test_a_status_is_wanted_of_every_run_of_a_family() -> None:
    """T6: a follow-up that failed is not removed as one that completed."""
    store = MemoryStore()
    fails = {"steps": STEP, "follow_up": {"steps": [{"id": "f", "tool": "fail"}]}}
    async with engine(store) as running:
        parent = (await running.run(fails)).run_id
        [child] = [row.run_id for row in await running.list(parent=parent)]
        await running.wait(child)
    found = await pruned(store, status=("completed",))
    assert {(row.outcome, row.reason) for row in found.values()} == {("kept", f"{child} is failed")}
    assert await names(store) == {parent, child}
    assert set(await pruned(store, status=("completed", "failed"))) == {parent, child}
    assert await names(store) == set()


async def at_rest(store: MemoryStore, run: str = "r", last: ev.Event | None = None, **more: Any) -> Head:
    """A run that lists show as completed, with these last words."""
    done = ev.Done("completed", True, True, False)
    await store.create(Head(run, created_at=1.0, **more))
    lease = await store.claim(run, Owner("h", 1, 1.0), 1.0)
    rows = [(1.0, encode(ev.RunStarted("o"))), (2.0, encode(last or done))]
    await store.append(Batch(run, 0, rows, lease.fence, {}, "completed"))
    await store.release(lease)
    head = await store.head(run)
    assert head is not None
    return head


async def test_what_somebody_holds_or_asks_stays() -> None:
    """T7, X7: a lease, even of the dead, and a wish that nobody has answered."""
    store = MemoryStore()
    await at_rest(store)
    lease = await store.claim("r", Owner("h", 1, 1.0), 1.0)
    assert (await pruned(store))["r"].reason == "r belongs to h:1"
    await store.release(lease)
    number = await store.post("r", b"{}")
    assert "waits for an answer" in (await pruned(store))["r"].reason
    await store.answer("r", number, b"{}")
    assert (await pruned(store))["r"].outcome == "removed"


async def test_the_history_has_to_say_so_too() -> None:
    """X5: a run that is listed as completed and does not end so is kept, and so is one that cannot be read."""
    store = MemoryStore()
    await at_rest(store, "open", ev.Resumed("me"))
    await at_rest(store, "told", ev.Done("completed", True, True, False))
    lease = await store.claim("told", Owner("h", 1, 1.0), 1.0)
    await store.append(Batch("told", 2, [(3.0, encode(ev.Notified("command", "x", True)))], lease.fence))
    await store.release(lease)
    await at_rest(store, "torn")
    store._runs["torn"].rows[-1] = type(store._runs["torn"].rows[-1])(2, 2.0, b"\x00rubbish")
    found = await pruned(store)
    assert {run: row.outcome for run, row in found.items()} == {"open": "kept", "told": "removed", "torn": "kept"}
    assert "cannot be read" in found["torn"].reason
    assert await names(store) == {"open", "torn"}


async def test_a_run_that_goes_on_meanwhile_stays() -> None:
    """T7: between the look and the removal somebody took it up; the store notices."""

    class Busy(MemoryStore):
        async def remove(self, heads: Any) -> int:
            await self.claim(heads[0].run, Owner("h", 1, 1.0), 1.0)
            return await super().remove(heads)

    store = Busy()
    await at_rest(store)
    assert (await pruned(store))["r"].reason == "it went on while this was being looked at"
    assert await names(store) == {"r"}


async def test_what_the_memory_forgot_is_no_run() -> None:
    """H10: when the failure memory was cleared stays known."""
    store = MemoryStore()
    async with engine(store) as running:
        await running.internals.forget()
        assert await pruned(store) == {}
    assert await names(store) == {"~memory"}
