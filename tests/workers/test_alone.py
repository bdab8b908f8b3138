"""Workers without enough: no tools, no store, too many runs to see at once (T7, I6, E4)."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.conftest import Here

from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.runs.leases import MAX_UNATTENDED
from rerail.engine.runs.owner import process_start, this_process
from rerail.engine.workers import WorkerPool
from rerail.errors import StoreError
from rerail.ports import Batch, Head, Unavailable
from rerail.testing.scripted import World
from rerail.testing.virtual_time import virtual_run

ONE: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}]}
OTHER: dict[str, Any] = {"steps": [{"id": "b", "tool": "b"}]}


class Cut(MemoryStore):
    """A store that is out of reach for as long as somebody says."""

    away = False

    async def heads(self, **which: Any) -> list[Head]:
        """The runs, if it can be asked."""
        if self.away:
            raise Unavailable("cut off")
        return await super().heads(**which)

    async def head(self, run: str) -> Head | None:
        """One run, if it can be asked."""
        if self.away:
            raise Unavailable("cut off")
        return await super().head(run)


def test_a_store_out_of_reach_is_waited_for_and_is_no_idleness() -> None:
    """E4: `--until-idle` sees nothing, which is not that there is nothing; it goes on once the store is back."""
    world, store, said = World(a=["made"]), Cut(), []

    async def main() -> None:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE, queued=True)
            crew = WorkerPool(engine.internals, 2, said.append, patience=30)
            store.away = True
            work = asyncio.create_task(crew.work(until_idle=True))
            await asyncio.sleep(20)
            assert not work.done()
            store.away = False
            await work
            assert (crew.taken, (await engine.wait(run)).status) == (1, "completed")

    virtual_run(main)
    assert len(said) == 1 and "out of reach" in said[0], "it is said once"


def test_a_store_that_does_not_come_back_is_a_failure() -> None:
    """E4: past its patience the worker fails, instead of saying that there was nothing to do."""
    world, store = World(a=["made"]), Cut()

    async def main() -> float:
        async with world.engine(ONE, store=store) as engine:
            store.away = True
            begun = asyncio.get_running_loop().time()
            with pytest.raises(StoreError, match="cut off"):
                await WorkerPool(engine.internals, 2, lambda _: None, patience=30).work(until_idle=True)
            return asyncio.get_running_loop().time() - begun

    assert 30 < virtual_run(main) < 60


def test_a_store_lost_while_a_run_is_taken_up_is_no_idleness() -> None:
    """E4: it was seen that there is a run, and then nothing any more."""
    world, said = World(a=["made"]), []

    class Fickle(Cut):
        async def heads(self, **which: Any) -> list[Head]:
            found = await super().heads(**which)
            self.away = which.get("before") is not None and not said  # all was seen
            return found

    store = Fickle()

    async def main() -> None:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE, queued=True)
            crew = WorkerPool(
                engine.internals, 2, lambda told: (said.append(told), setattr(store, "away", False)), patience=30
            )
            await crew.work(until_idle=True)
            assert (crew.taken, (await engine.wait(run)).status) == (1, "completed")

    virtual_run(main)
    assert len(said) == 1


def test_the_oldest_run_is_found_behind_ten_thousand_that_are_driven() -> None:
    """I6: a look sees all runs, and finds the oldest of those that wait."""
    world, store = World(a=["made"]), MemoryStore()
    other = replace(this_process(), pid=os.getppid(), started=process_start(os.getppid()) or 0.0)  # it lives

    async def main() -> None:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE, queued=True)
            for n in range(MAX_UNATTENDED + 5):
                await store.create(
                    Head(f"n{n}", created_at=10**10 + n, owner=other, renewed_at=10**10, status="running")
                )
            assert [head.run for head in await engine.internals.unattended()] == [run]
            for n in range(MAX_UNATTENDED + 5):
                await store.create(head := Head(f"q{n}", created_at=2 * 10**10 + n))
                await store.append(Batch(head.run, 0, [(0.0, b"{}")], head.fence))  # without any, it was never planned
            found = [head.run for head in await engine.internals.unattended()]
            assert len(found) == MAX_UNATTENDED and found[:2] == [run, "q0"]
            left = {run, "gone"}
            assert (await engine.internals.unattended(left))[0].run == "q0"
            assert left == {run}, "who found somebody, or ended, is left to nobody any more"

    virtual_run(main)


def test_what_others_took_is_forgotten() -> None:
    """I6: a worker that lives for months remembers only the runs that still wait for others."""
    world, store, said = World(a=["made"], b=["made"]), MemoryStore(), []

    async def main() -> None:
        async with world.engine(OTHER, store=store) as rich, World(c=[]).engine({"steps": []}, store=store) as poor:
            first, second = await rich.start(OTHER, queued=True), await rich.start(OTHER, queued=True)
            crew = WorkerPool(poor.internals, 2, said.append)
            await crew.work(until_idle=True)
            assert set(crew.left) == {first, second} and len(said) == 2
            assert await rich.internals.take_up(first)
            await rich.wait(first)
            await crew.work(until_idle=True)
            assert set(crew.left) == {second} and len(said) == 2
            assert all("'b'" in told for told in said), "which tools it needs is said"

    virtual_run(main)


def test_a_worker_waits_for_a_store_that_is_down_and_says_so(here: Here) -> None:
    """E4: it tries for `store.reconnect_seconds`, and then ends with a store error: 1, not "usage or refused"."""
    words = ["--store", "redis://127.0.0.1:1/0", "--set", "store.reconnect_seconds=1"]
    began = time.monotonic()
    ended = here("worker", "--tools", "toolbox.py", *words, code=1)
    assert time.monotonic() - began >= 1
    assert ended.err.count("out of reach for now") == 1
    began = time.monotonic()
    here("worker", "--tools", "toolbox.py", "--store", "sqlite:////dev/null/no.db", code=2)
    assert time.monotonic() - began < 1, "what cannot get better is not waited for"
