"""What is measured at scale: each case gives figures, compared in one run with a program that has nothing of ours."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.scale.bare import bare_postgres, bare_redis, bare_sqlite, timed
from benchmarks.scale.tools import TOOLS, speak, touch
from benchmarks.speed.cases import MEMORY, Figure

import rerail
from rerail.factory import make_store
from rerail.i18n import say
from rerail.ports import Batch, Head, Lease, Owner, Store
from rerail.settings.loading import Settings

WRITERS = 8  # runs that are appended to at once
OURSELVES = Owner("bench", 1, 0.0)
ROW = b'{"type":"step_succeeded","step":"17","attempt":1,"elapsed":3.2e-05}'


def all_cases(*, quick: bool) -> dict[str, Callable[[], list[Figure]]]:
    """Every case, by name."""
    rounds = 3 if quick else 7
    appends = 200 if quick else 1_000
    return {
        "stores": lambda: store_cases(appends, rounds),
        "ray": lambda: [ray_case(300 if quick else 1_000, rounds)],
        "workers": lambda: worker_cases(100 if quick else 1_000),
    }


def _servers() -> Any:
    """The servers of the tests, carried by wheels."""
    return importlib.import_module("tests.contracts.servers")


# -- Stores ---------------------------------------------------------------------------------------------------------


def store_cases(appends: int, rounds: int) -> list[Figure]:
    """Appends a second, two rows each, by several runs at once."""
    figures = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        count = iter(range(10**6))
        figures.append(
            store_case(
                "SQLite in memory, by CPU",
                lambda: f"sqlite:///{folder}/{next(count)}.db",
                lambda url: bare_sqlite(url.removeprefix("sqlite:///"), WRITERS, appends, ROW),
                appends,
                rounds,
            )
        )
    with _servers().own_postgres() as postgres:
        figures.append(
            store_case(
                "Postgres", postgres.fresh, lambda url: bare_postgres(url, WRITERS, appends, ROW), appends, rounds
            )
        )
    with _servers().own_redis() as server:
        figures.append(
            store_case("Redis", server.fresh, lambda url: bare_redis(url, WRITERS, appends, ROW), appends, rounds)
        )
    return figures


def store_case(
    name: str,
    fresh: Callable[[], str],
    bare: Callable[[str], Awaitable[tuple[float, float]]],
    appends: int,
    rounds: int,
) -> Figure:
    """A store against a bare client that makes the same writes, alternating.

    SQLite works in this process, so its CPU time is what it costs; a server's work shows on the wall clock alone.
    """
    ours: list[float] = []
    theirs: list[float] = []
    which = 1 if name.startswith("SQLite") else 0
    for _ in range(rounds):
        theirs.append(asyncio.run(bare(fresh()))[which])  # type: ignore[arg-type]
        ours.append(asyncio.run(appended(fresh(), appends))[which])
    total = WRITERS * appends
    mine, other = statistics.median(ours), statistics.median(theirs)
    value = f"{total / mine:,.0f} appends/s, bare client {total / other:,.0f}: {mine / other:.2f} ×"
    return Figure(f"appends, {name}", value, "≤ 2 ×", mine / other <= 2)


async def appended(url: str, appends: int) -> tuple[float, float]:
    """Wall and CPU seconds that the store takes."""
    store: Store = make_store(url, Settings.load({"store": {"durability": "normal"}}))
    await store.open()

    async def write(number: int) -> None:
        run = f"run-{number}"
        lease = Lease(run, OURSELVES, 1)
        await store.create(Head(run, owner=OURSELVES, fence=1))
        for after in range(0, 2 * appends, 2):
            await store.append(Batch(run, after, [(1.0, ROW), (1.0, ROW)], lease.fence))

    took = await timed(write, WRITERS)
    await store.close()
    return took


# -- Ray ------------------------------------------------------------------------------------------------------------


def ray_case(size: int, rounds: int) -> Figure:
    """A step as a Ray task against a bare Ray task, eight in flight each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(
        address="local", num_cpus=os.cpu_count(), log_to_driver=False, logging_level=logging.ERROR, namespace="rerail"
    )
    task: Any = ray.remote(max_retries=0)(touch.fn)
    plan = {"steps": [{"id": str(number), "tool": "touch", "args": {"number": number}} for number in range(size)]}
    settings = {"ray": {"steps": True}, "store": {"durability": "normal"}, "run": {"concurrency": 8}}

    async def bare() -> float:
        numbers = iter(range(size))

        async def one() -> None:
            for number in numbers:
                await task.remote(number=number)

        begun = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(8)))
        return time.perf_counter() - begun

    async def ours(url: str) -> float:
        async with rerail.Engine(url, [touch, speak], settings) as engine:
            # What carries the words of long calls is a process that starts with the engine: no part of a step.
            assert (await engine.run({"steps": [{"id": "speak", "tool": "speak"}]})).success
            begun = time.perf_counter()
            run = await engine.start(plan)
            await engine.internals.under_way()[run]
            took = time.perf_counter() - begun
            assert (await engine.show(run)).success
            return took

    theirs, mine = [], []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for number in range(rounds + 1):
            theirs.append(asyncio.run(bare()))
            mine.append(asyncio.run(ours(f"sqlite:///{folder}/{number}.db")))
    ray.shutdown()
    low, high = statistics.median(theirs[1:]) / size, statistics.median(mine[1:]) / size  # the first ones warm up
    value = f"{high * 1e3:.2f} ms a step, bare task {low * 1e3:.2f} ms: {high / low:.2f} ×"
    return Figure(f"step on Ray, {size:,}, 8 in flight", value, "≤ 1.5 ×", high / low <= 1.5)


# -- Workers --------------------------------------------------------------------------------------------------------


def worker_cases(runs: int) -> list[Figure]:
    """Runs of ten steps on Postgres, by one, two and four worker processes."""
    figures: list[Figure] = []
    with _servers().own_postgres() as postgres:
        alone = 0.0
        for workers in (1, 2, 4):
            rate = asyncio.run(worked(postgres.fresh(), runs, workers))
            alone = alone or rate
            value = f"{rate:,.0f} runs/s ({10 * rate:,.0f} steps/s): {rate / alone:.2f} × one worker"
            figures.append(Figure(f"{runs:,} runs of 10, Postgres, {workers} at work", value, "", True))
    return figures


async def worked(url: str, runs: int, workers: int) -> float:
    """Runs a second, from the first that was taken up to the last that came to rest."""
    steps = [{"id": str(n), "tool": "noop", "needs": [str(n - 1)] if n else []} for n in range(10)]
    async with rerail.Engine(url, TOOLS) as engine:
        plan = rerail.Plan.load({"objective": say("source.caller"), "steps": steps})
        ids = [await engine.submit(plan) for _ in range(runs)]
        with crew(url, workers):
            while await engine.internals.heads(status=("pending", "running"), limit=1):  # noqa: ASYNC110 - others write
                await asyncio.sleep(0.1)
        heads = await engine.internals.heads(limit=runs)
        assert {head.status for head in heads} == {"completed"}
        first = [record.at for run in ids for record in (await engine.internals.page(run, 2, 1))]
    return runs / (max(head.updated_at for head in heads) - min(first))


@contextlib.contextmanager
def crew(url: str, workers: int) -> Iterator[None]:
    """So many `rerail worker` processes."""
    tools = str(Path(__file__).parent / "tools.py")
    command = [sys.executable, "-m", "rerail.cli", "worker", "--until-idle", "-q", "--store", url, "--tools", tools]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(workers)]
    try:
        yield
    finally:
        for process in processes:
            process.wait(60)
