"""The cases of `make bench-load`."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

import rerail
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.api import Engine
from rerail.engine.runs.owner import EXPIRED_AFTER
from rerail.errors import Refused
from rerail.ports import Owner
from rerail.testing import VirtualClock, virtual_run

SETTINGS = {"store": {"durability": "normal"}, "evaluation": {"judge": False}}
ELSEWHERE = Owner("another-machine#0", 4711, 1.0)
ROUNDS = 25


class Figure(NamedTuple):
    """How something grew."""

    case: str
    what: str
    value: float
    bar: float | None = None  # at most so much; None: told, and not judged

    @property
    def ok(self) -> bool:
        """Whether the bar is met."""
        return self.bar is None or self.value <= self.bar

    @property
    def said(self) -> str:
        """The figure as people read it."""
        return f"{self.value:8.2f}" + (f"  (at most {self.bar:g})" if self.bar is not None else "")


@rerail.tool(effect="read")
async def give(n: int = 0) -> dict[str, object]:
    """A small output."""
    return {"n": n, "text": "x" * 40}


@rerail.tool(effect="read")
async def large(n: int = 0) -> str:
    """An output that is kept as a content."""
    return f"{n} " + "x" * 2000


def memory() -> int:
    """What the process has in memory now, garbage left out."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def file_size(path: Path) -> int:
    """What a store has on the disk, once its log is carried over."""
    import apsw

    connection = apsw.Connection(str(path))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return os.path.getsize(path)


async def seconds(what: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    """What something costs, at best: the processor's time, for other programs may be busy beside it."""
    took = []
    for _ in range(rounds):
        begun = time.process_time()
        await what()
        took.append(time.process_time() - begun)
    return min(took)


# -- Many runs in one store ---------------------------------------------------------------------------------------


def many(share: float) -> list[Figure]:
    """10,000 runs in one file: what each takes, and what looking costs, against 1,000."""
    return asyncio.run(_many(max(100, int(10_000 * share))))


async def _many(count: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="rerail-load-") as folder:
        path = Path(folder) / "runs.db"
        few = count // 10
        async with Engine(f"sqlite:///{path}", [], SETTINGS):
            pass
        empty = file_size(path)
        async with Engine(f"sqlite:///{path}", [give, large], SETTINGS) as engine:
            await _fill(engine, few)
        at_few = await _looks(path)
        async with Engine(f"sqlite:///{path}", [give, large], SETTINGS) as engine:
            await _fill(engine, count // 2 - few, few)  # what the process keeps at hand anyway is there by then
            before, rest = memory(), count - count // 2
            await _fill(engine, rest, count // 2)
            grown = memory() - before
        at_many = await _looks(path)
        plain = {what: at_many[what] / at_few[what] for what in at_few if what != "bytes"}
        each = (at_many["bytes"] - empty) / count / ((at_few["bytes"] - empty) / few)
        return [
            Figure("many", f"bytes per run, {count} against {few}", each, 1.1),
            *(Figure("many", f"{what}, {count} runs against {few}", ratio, 2.0) for what, ratio in plain.items()),
            Figure("many", f"kB that each of the last {rest} finished runs leaves in memory", grown / 1000 / rest, 1.0),
        ]


async def _fill(engine: Engine, count: int, first: int = 0) -> None:
    gate = asyncio.Semaphore(32)
    rest: list[dict[str, object]] = [
        {"id": "b", "tool": "large", "args": {"n": "${a.n}"}},
        {"id": "c", "tool": "give", "needs": ["b"]},
    ]

    async def one(number: int) -> None:
        async with gate:
            result = await engine.run({"steps": [{"id": "a", "tool": "give", "args": {"n": number}}, *rest]})
            assert result.success

    await asyncio.gather(*(one(number) for number in range(first, first + count)))


async def _looks(path: Path) -> dict[str, float]:
    """What it costs to look, an engine opened for each look as a command does it; and how large the file is."""
    size = file_size(path)
    url = f"sqlite:///{path}"
    async with Engine(url, [], SETTINGS) as engine:
        [last, *_] = await engine.list(limit=1)

    @asynccontextmanager
    async def looking() -> AsyncIterator[Engine]:
        async with Engine(url, [], SETTINGS, sweep_on_open=False) as engine:  # as the commands that only look
            yield engine

    async def opened() -> None:
        async with Engine(url, [], SETTINGS):
            pass

    async def ls() -> None:
        async with looking() as engine:
            assert len(await engine.list(limit=20)) == 20

    async def failed() -> None:
        async with looking() as engine:
            assert await engine.list(status=("failed",), limit=20) == []

    async def show() -> None:
        async with looking() as engine:
            assert (await engine.show(last.run_id[:8])).success

    looks = {"opening to drive": opened, "ls": ls, "ls --status failed": failed, "show": show}
    return {"bytes": float(size), **{name: await seconds(look) for name, look in looks.items()}}


# -- Many at once -------------------------------------------------------------------------------------------------


def live(share: float) -> list[Figure]:
    """1,000 runs live at once in one process, against 100."""
    return asyncio.run(_live(max(100, int(1000 * share))))


async def _live(count: int) -> list[Figure]:
    few = count // 10
    await _at_once(few)  # what is loaded on first use
    few_seconds, _ = await _at_once(few)
    many_seconds, many_bytes = await _at_once(count)
    return [
        Figure(
            "live",
            f"time of the processor per run, {count} at once against {few}",
            many_seconds / count / (few_seconds / few),
            2.0,
        ),
        Figure("live", f"kB in memory per live run, {count} at once", many_bytes / 1000 / count, 200.0),
    ]


async def _at_once(count: int) -> tuple[float, int]:
    """Runs that are all in the middle of a call at the same time; what all cost, and what they hold meanwhile."""
    inside, all_inside, go = 0, asyncio.Event(), asyncio.Event()

    @rerail.tool(effect="read", name="wait")
    async def wait() -> int:
        nonlocal inside
        inside += 1
        if inside == count:
            all_inside.set()
        await go.wait()
        return inside

    steps: list[dict[str, object]] = [
        {"id": "a", "tool": "give"},
        {"id": "b", "tool": "wait", "needs": ["a"]},
        {"id": "c", "tool": "give", "needs": ["b"]},
    ]
    with tempfile.TemporaryDirectory(prefix="rerail-load-") as folder:
        async with Engine(f"sqlite:///{folder}/runs.db", [give, wait], SETTINGS) as engine:
            before, begun = memory(), time.process_time()
            runs = [await engine.start({"steps": steps}) for _ in range(count)]
            await all_inside.wait()
            held = memory() - before
            go.set()
            for run in runs:
                assert (await engine.wait(run)).success
            return time.process_time() - begun, max(0, held)


# -- One long run -------------------------------------------------------------------------------------------------


def long(share: float) -> list[Figure]:
    """One run of 100,000 steps, against 10,000."""
    count = max(1000, int(100_000 * share))
    few = count // 10
    little, much = _alone(few), _alone(count)
    names = ("time of the processor", "bytes in the file", "memory", "time to read its history again")
    return [
        Figure("long", f"{name} per step, {count} steps against {few}", (much[at] / count) / (little[at] / few), bar)
        for at, (name, bar) in enumerate(zip(names, (1.6, 1.1, 1.3, 1.6), strict=True))
    ]


def _alone(count: int) -> tuple[float, float, float, float]:
    """A run in a process of its own: what an earlier one left free would be taken for memory that is not needed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, count).result()


def _measured(count: int) -> tuple[float, float, float, float]:
    asyncio.run(_one_run(500))  # what is loaded on first use
    return asyncio.run(_one_run(count))


async def _one_run(count: int) -> tuple[float, float, float, float]:
    steps = [
        {"id": f"s{n}", "tool": "give", "args": {"n": n}, "needs": [f"s{n // 2}"] if n > 1 else []}
        for n in range(1, count + 1)
    ]
    with tempfile.TemporaryDirectory(prefix="rerail-load-") as folder:
        path = Path(folder) / "runs.db"
        before = memory()
        async with Engine(f"sqlite:///{path}", [give], SETTINGS) as engine:
            begun = time.process_time()
            run = await engine.start({"steps": steps})
            async for _ in engine.watch(run):
                pass
            took = time.process_time() - begun
            held = memory() - before
        async with Engine(f"sqlite:///{path}", [], SETTINGS) as engine:
            begun = time.process_time()
            state = await engine.internals.state(run)
            opened = time.process_time() - begun
            assert len(state.tracks) == count
        return took, float(file_size(path)), float(max(1, held)), opened


# -- A day --------------------------------------------------------------------------------------------------------


def day(share: float) -> list[Figure]:
    """24 hours of virtual time: each minute a machine falls silent, and another takes up the run that it had."""
    return virtual_run(lambda: _day(max(1.0, 24 * share)))


async def _day(hours: float) -> list[Figure]:
    clock = VirtualClock()
    held: list[int] = []
    sizes: list[int] = []
    early = taken = 0
    with tempfile.TemporaryDirectory(prefix="rerail-load-") as folder:
        path = Path(folder) / "runs.db"
        store = SqliteStore(path, "normal", external=clock.external)

        @rerail.tool(effect="read", name="nap")
        async def nap() -> int:
            await asyncio.sleep(20)
            return 1

        steps = [{"id": "a", "tool": "nap"}, {"id": "b", "tool": "nap", "needs": ["a"]}]
        async with Engine(store, [nap, give], SETTINGS, clock=clock) as engine:
            for minute in range(int(hours * 60)):
                run = f"run-{minute}"
                other = Engine(SqliteStore(path, "normal", external=clock.external), [nap], SETTINGS, clock=clock)
                await other.open()
                await other.start({"steps": steps}, run_id=run)
                await asyncio.sleep(5)
                await other.close()  # as a crash would, but for the lease: that one stays with a machine that is gone
                await store.claim(run, ELSEWHERE, clock.now())
                try:
                    await engine.resume(run)
                except Refused:
                    early += 1  # its owner spoke a moment ago
                await asyncio.sleep(EXPIRED_AFTER + 1)
                result = await engine.resume(run)
                taken += result.success
                await asyncio.sleep(max(0.0, 60 * (minute + 1) - asyncio.get_running_loop().time()))
                if minute % 60 == 59:
                    held.append(memory())
                    sizes.append(file_size(path))
            minutes = int(hours * 60)
            assert (taken, early) == (minutes, minutes), (taken, early, minutes)
    half = len(sizes) // 2
    later = (sizes[-1] - sizes[half - 1]) / sizes[half - 1] * half / (len(sizes) - half)
    return [
        Figure("day", f"runs taken over once the lease expired, of {minutes}", taken, None),
        Figure("day", f"bytes an hour of the last {len(sizes) - half} hours against the first {half}", later, 1.1),
        Figure("day", "memory after the last hour against the first", held[-1] / held[0], 1.3),
    ]


CASES: Mapping[str, Callable[[float], list[Figure]]] = {"many": many, "live": live, "long": long, "day": day}
