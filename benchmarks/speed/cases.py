"""What is measured: each case gives figures and the bar it is held to."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.floor import floor

import rerail
from rerail.kernel.decide import retry_chain
from rerail.kernel.events import PlanAccepted
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Need, Step

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True)
class Figure:
    """One measured thing: its name, its value in words, and whether it meets its bar."""

    name: str
    value: str
    bar: str
    ok: bool


@rerail.tool
async def noop() -> None:
    """Do nothing."""


def plan_of(needs: list[list[int]]) -> rerail.Plan:
    """A plan of no-op steps with these needs."""
    steps = [Step(str(i), "noop", needs=tuple(Need(str(n)) for n in wanted)) for i, wanted in enumerate(needs)]
    return rerail.Plan("benchmark", tuple(steps))


def chain(size: int) -> list[list[int]]:
    """Each step needs the one before."""
    return [[i - 1] if i else [] for i in range(size)]


def fan(size: int) -> list[list[int]]:
    """All steps need the first."""
    return [[]] + [[0] for _ in range(size - 1)]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds of a piece of work."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def run_engine(plan: rerail.Plan, folder: str, concurrency: int) -> None:
    """The engine on a SQLite file with full durability."""

    async def main() -> None:
        settings = {"run": {"concurrency": concurrency}}
        async with rerail.Engine(f"sqlite:///{folder}/engine.db", [noop], settings) as engine:
            run = await engine.start(plan)
            await engine.internals.under_way()[run]  # the run itself; building the result object is not a step's cost

    asyncio.run(main())


def compare(
    needs: list[list[int]], base: Path | None, concurrency: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds a step for the floor and for the engine, alternating: (cpu, wall) medians of each."""
    plan = plan_of(needs)
    floors, engines = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=base) as folder:
            path = f"{folder}/floor.db"
            floors.append(timed(lambda path=path: asyncio.run(floor(needs, path, concurrency))))  # type: ignore[misc]
            engines.append(timed(lambda folder=folder: run_engine(plan, folder, concurrency)))  # type: ignore[misc]
    size = len(needs)
    low = [statistics.median(run[i] for run in floors) / size for i in (0, 1)]
    high = [statistics.median(run[i] for run in engines) / size for i in (0, 1)]
    return low, high


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


def ratio_case(name: str, needs: list[list[int]], concurrency: int, bar: float, rounds: int) -> Figure:
    """The engine against the floor on a memory file system, by CPU time."""
    low, high = compare(needs, MEMORY, concurrency, rounds)
    ratio = high[0] / low[0]
    value = f"{micro(high[0])} a step, floor {micro(low[0])}: {ratio:.1f} × (wall {micro(high[1])})"
    return Figure(name, value, f"≤ {bar:g} ×", ratio <= bar)


def disk_case(size: int, rounds: int) -> Figure:
    """A chain on disk with full durability: wall time over the floor's."""
    low, high = compare(chain(size), None, 8, rounds)
    extra = high[1] - low[1]
    value = f"{micro(high[1])} a step, floor {micro(low[1])}: +{micro(extra)}"
    return Figure(f"chain of {size:,}, disk, FULL", value, "≤ floor + 150 µs", extra <= 150e-6)


def resume_case(size: int, rounds: int) -> Figure:
    """Folding and resuming a long history."""
    plan = plan_of(fan(size))

    async def make(folder: str) -> None:
        async with rerail.Engine(f"sqlite:///{folder}/runs.db", [noop], {"run": {"max_attempts": size - 1}}) as engine:
            await engine.run(plan)

    async def resume(folder: str) -> None:
        async with rerail.Engine(f"sqlite:///{folder}/runs.db", [noop]) as engine:
            run = (await engine.list())[0].run_id
            await engine.begin_retry(run)
            await engine.internals.under_way()[run]

    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            asyncio.run(make(folder))
            times.append(timed(lambda folder=folder: asyncio.run(resume(folder)))[0])  # type: ignore[misc]
    cpu = statistics.median(times)
    return Figure(f"history of {size:,} steps folded and resumed", f"{cpu:.2f} s of CPU", "≤ 1 s", cpu <= 1)


def retry_set_case(size: int, edges: int, rounds: int) -> Figure:
    """The retry set of a large graph."""
    chance = random.Random(7)
    needs = [sorted({chance.randrange(i) for _ in range(edges // size)}) if i else [] for i in range(size)]
    state = State("bench")
    evolve(state, PlanAccepted(Plan("", plan_of(needs).steps)), 0.0, 1)
    times = [timed(lambda: retry_chain(state, ["0"]))[0] for _ in range(rounds)]
    cpu, found = statistics.median(times), len(retry_chain(state, ["0"]))
    name = f"retry set on {size:,} steps, {sum(map(len, needs)):,} edges"
    return Figure(name, f"{cpu:.2f} s of CPU ({found:,} steps)", "≤ 0.5 s", cpu <= 0.5)


def growth_case(small: int, large: int) -> Figure:
    """Whether a step costs the same in a large plan as in a small one."""
    costs = []
    for size in (small, large):
        plan = plan_of(chain(size))
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            costs.append(timed(lambda plan=plan, folder=folder: run_engine(plan, folder, 8))[0] / size)  # type: ignore[misc]
    ratio = costs[1] / costs[0]
    value = f"{micro(costs[0])} → {micro(costs[1])}: {ratio:.2f} ×"
    return Figure(f"cost per step, {small:,} → {large:,} steps", value, "≤ 2 ×", ratio <= 2)


def memory_case(size: int) -> Figure:
    """What an idle step costs in memory."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    plan = plan_of([[i - 1] if i else [] for i in range(size)])
    state = State("bench")
    evolve(state, PlanAccepted(Plan("", plan.steps)), 0.0, 1)
    used = (tracemalloc.get_traced_memory()[0] - before) / size
    tracemalloc.stop()
    return Figure("memory per idle step", f"{used:,.0f} bytes", "≤ 4,096 bytes", used <= 4096)


def import_case(rounds: int) -> Figure:
    """`import rerail` against `import asyncio; from pydantic import BaseModel`, by CPU time of whole processes."""

    def cost(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(cost("import asyncio; from pydantic import BaseModel"))
        ours.append(cost("import rerail"))
    ratio = statistics.median(ours) / statistics.median(theirs)
    return Figure("import rerail", f"{ratio:.2f} × asyncio and pydantic", "≤ 1.5 ×", ratio <= 1.5)


def all_cases(*, quick: bool) -> dict[str, Callable[[], Figure]]:
    """Every case by name, largest last; `quick` takes fewer rounds and smaller plans."""
    rounds = 3 if quick else 7
    large = 20_000 if quick else 100_000
    return {
        "import": lambda: import_case(rounds),
        "chain": lambda: ratio_case("chain of 1,000, memory", chain(1000), 8, 5, rounds),
        "disk": lambda: disk_case(1000, rounds),
        "fan-8": lambda: ratio_case("fan-out of 10,000, concurrency 8", fan(10_000), 8, 6, rounds),
        "fan-unbounded": lambda: ratio_case("fan-out of 10,000, unbounded", fan(10_000), 0, 6, rounds),
        "resume": lambda: resume_case(10_000, 3),
        "retry-set": lambda: retry_set_case(100_000, 300_000, 3),
        "memory": lambda: memory_case(20_000),
        "growth": lambda: growth_case(1000, large),
    }


def as_json(figures: list[Figure]) -> str:
    """The figures as data."""
    return json.dumps([figure.__dict__ for figure in figures], ensure_ascii=False, indent=2)
