"""One owner at a time, and runs that survive their process: the named scenarios of section 13 about locks and kills."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.runs.owner import end_residual, process_start, this_process
from rerail.errors import Refused, StoreError, ToolError
from rerail.kernel.commands import Pause
from rerail.ports import Lease, Owner
from rerail.testing import Took, VirtualClock, World, virtual_run

FAIL = ToolError("it broke", category="tool_error")
NO_RETRIES = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
ONE = {"steps": [{"id": "a", "tool": "a"}]}
CHAIN = {
    "steps": [
        {"id": "a", "tool": "a"},
        {"id": "b", "tool": "b", "needs": ["a"]},
        {"id": "c", "tool": "c", "needs": ["b"]},
    ]
}


def test_force() -> None:
    """T4: force passes the retry limit and a non-retryable error, and says which check it passed."""
    world = World(a=[FAIL])

    async def main() -> tuple[str, ...]:
        async with world.engine(
            ONE, settings={**NO_RETRIES, "retry": {"max_retries": 0, "max_retry_rounds": 0}}
        ) as engine:
            run = (await engine.run(ONE)).run_id
            with pytest.raises(Refused, match="limit is 0"):
                await engine.retry(run)
            await engine.retry(run, force=True)
            return (await engine.retry(run, force=True, dry_run=True)).passed

    assert virtual_run(main) == ("RETRY_LIMIT",)
    assert world.calls_of("a") == 2


def test_lock() -> None:
    """T7: a second retry is refused while the owner lives, and says who it is; nothing is called twice."""
    world = World(a=[FAIL, Took(50)])
    store = MemoryStore()

    async def main() -> str:
        async with world.engine(ONE, store=store, settings=NO_RETRIES) as engine:
            run = (await engine.run(ONE)).run_id
            await engine.begin_retry(run)
            async with world.engine(ONE, store=store, settings=NO_RETRIES) as other:
                with pytest.raises(Refused) as refused:
                    await other.retry(run)
            await engine.wait(run)
            return refused.value.code

    assert virtual_run(main) == "RUN_LIVE"
    assert world.calls_of("a") == 2


def test_stale_lock() -> None:
    """T7: a dead owner's lease is taken over with a notice; the thawed old owner can write nothing."""
    world = World(a=[Took(1), {"n": 1}], b=[Took(10**6)])
    store = MemoryStore()
    gone = Owner(this_process().host, 2**22 + 1, 5.0)  # no such process

    async def main() -> tuple[Any, list[Any]]:
        engine = world.engine(CHAIN, store=store)
        await engine.open()
        run = await engine.start(CHAIN)
        await asyncio.sleep(5)  # a is done, b hangs
        old = engine._live[run]
        head = await store.head(run)
        assert head is not None
        lease = await store.claim(
            run, gone, 0.0, over=head.fence
        )  # the old owner froze, and somebody took over and died
        world.script["b"] = [{"n": 2}]
        async with world.engine(CHAIN, store=store) as second:
            result = await second.resume(run)
            events = await second.events(run)
        world.script["b"] = [{"n": 3}]
        with pytest.raises(StoreError) as refused:
            await old.loop.command(Pause(by="thawed"))
        assert refused.value.code in ("LEASE_LOST", "SEQ_CONFLICT", "STORE_FAILED")
        assert isinstance(lease, Lease)
        assert await second_events(store, world, run) == events
        await engine.close()
        return result, events

    async def second_events(store: MemoryStore, world: World, run: str) -> list[Any]:
        async with world.engine(CHAIN, store=store) as third:
            return await third.events(run)

    result, events = virtual_run(main)
    assert result.success
    resumed = next(event for event in events if event.type == "resumed")
    assert resumed.lost == ("b",)
    assert events[-1].type == "done"


def test_residual(tmp_path: Path) -> None:
    """T7: a residual worker is ended (TERM, then KILL) only if pid and start time match."""
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    started = process_start(process.pid)
    assert started is not None
    real = Owner(this_process().host, process.pid, started, worker=True)
    store = MemoryStore()

    async def main() -> None:
        other = dataclasses.replace(real, started=started - 1)
        assert not await end_residual(other, 0.2)
        assert process.poll() is None, "a process that only shares the pid is left alone"
        world = World(a=[FAIL, None])
        async with world.engine(ONE, store=store, settings=NO_RETRIES, clock=rerail.factory.SystemClock()) as engine:
            run = (await engine.run(ONE)).run_id
            await store.claim(run, real, time.time())  # the worker that failed, and hangs
            result = await engine.retry(run)
            assert result.success

    asyncio.run(main())
    assert process.wait(10) == -signal.SIGKILL
    process.stdout.close()


def crash(store: Any, world: World, plan: Any, after: float) -> str:
    """Run a plan and leave it as a kill would, some virtual seconds later."""

    async def main() -> str:
        async with world.engine(plan, store=store) as engine:
            run = await engine.start(plan)
            await asyncio.sleep(after)
            return run

    return virtual_run(main)


def resume(store: Any, world: World, plan: Any, run: str) -> Any:
    async def main() -> Any:
        async with world.engine(plan, store=store, clock=VirtualClock(1_800_000_000)) as engine:
            return await engine.resume(run)

    return virtual_run(main)


def test_crashes_cost_no_retries() -> None:
    """E3, H4: a call cut off by a crash is called again, whatever the step's budget."""
    world = World(a=[Took(100)])
    store = MemoryStore()
    no_budget = {"steps": [{"id": "a", "tool": "a", "retries": 0}]}
    run = crash(store, world, no_budget, 5)
    world.script["a"] = [{"n": 1}]
    assert resume(store, world, no_budget, run).success


def test_all_failed() -> None:
    """T4, T5: every failed run can be retried, one after the other; completed ones are left alone."""
    world = World(a=[FAIL, FAIL, {"ok": 1}])

    async def main() -> list[Any]:
        async with world.engine(ONE, settings=NO_RETRIES) as engine:
            for _ in range(2):
                await engine.run(ONE)
            await engine.run(ONE)
            failed = await engine.list(status=["failed"])
            return [await engine.retry(row["run_id"]) for row in failed]

    results = virtual_run(main)
    assert len(results) == 2 and all(result.success for result in results)
