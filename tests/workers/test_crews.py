"""`rerail worker`: processes that share a store take up the runs that wait for somebody (T7, I6)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.servers import NamedPostgres, NamedRedis, PostgresServer, RedisServer

import rerail
from rerail.adapters.tools.loading import load_tools
from rerail.engine.workers import WorkerPool

pytestmark = pytest.mark.anyio

TOOLS = """
import os, time
from pathlib import Path
from rerail import Context, tool

@tool
def note(file: str, seconds: float = 0.0, ctx: Context = None) -> int:
    with Path(file).open("a") as out:
        out.write(f"{ctx.run} {ctx.step} {os.getpid()}\\n")
    time.sleep(seconds)
    return os.getpid()

@tool(effect="once")
def pay(file: str, seconds: float = 0.0, ctx: Context = None) -> int:
    with Path(file).open("a") as out:
        out.write(f"{ctx.run} {ctx.step} {os.getpid()}\\n")
    time.sleep(seconds)
    return os.getpid()

@tool
def held(file: str, go: str) -> int:
    with Path(file).open("a") as out:
        out.write("x")
    while not Path(go).exists():
        time.sleep(0.01)
    return os.getpid()
"""


class Shared:
    """A folder with tools, a store that several processes share, and the workers that a test starts."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.file = folder / "toolbox.py"
        self.file.write_text(TOOLS)
        self.processes: list[subprocess.Popen[str]] = []

    def engine(self, **settings: Any) -> rerail.Engine:
        return rerail.Engine(self.url, load_tools(self.file), {"store": {"durability": "normal"}, **settings})

    def worker(self, *words: str, tools: bool = True) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rerail.cli", "worker", "--store", self.url, "--json", *words]
        command += ["--tools", str(self.file)] if tools else []
        self.processes.append(
            subprocess.Popen(
                command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "RERAIL_LANG": "en"},
            )
        )  # fmt: skip
        return self.processes[-1]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """One for each store that several processes can share."""
    yield from _shared(request, tmp_path)


@pytest.fixture
def on_postgres(postgres: PostgresServer | NamedPostgres, tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path, postgres.fresh())
    yield made
    _end(made)


def _shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/runs.db"
    else:
        name = "postgres" if request.param == "postgres" else "redis_server"
        server: PostgresServer | NamedPostgres | RedisServer | NamedRedis = request.getfixturevalue(name)
        url = server.fresh()
    made = Shared(tmp_path, url)
    yield made
    _end(made)


def _end(shared: Shared) -> None:
    for process in shared.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def plan(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"objective": "left to others", "steps": list(steps)}


def step(tool: str, **rest: Any) -> dict[str, Any]:
    return {"id": rest.pop("id", tool), "tool": tool, **rest}


async def until(there: Callable[[], Any], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.02)


async def test_a_queued_run_is_pending_until_somebody_takes_it_up(shared: Shared) -> None:
    """T7 I6: it is in the store, driven by nobody, and done by a worker under the settings it was queued with."""
    trace = shared.folder / "trace"
    async with shared.engine(retry={"max_retries": 7}) as engine:
        run = await engine.submit(plan(step("note", args={"file": str(trace)})))
        row = (await engine.list())[0]
        assert (row.status, row.interrupted, (await engine.show(run)).status) == ("pending", False, "pending")
        assert not engine.internals.drives(run) and not trace.exists()
        worker = shared.worker("--until-idle")
        result = await engine.wait(run)
        events = [record.to_dict() for record in await engine.events(run)]
    assert result.success
    assert result.steps["note"].output == worker.pid
    resumed = [one for one in events if one["type"] == "resumed"]
    assert [(one["reason"], one["policy"]) for one in resumed] == [("queued", None)]
    assert events[0]["policy"]["max_retries"] == 7
    said, _ = await asyncio.to_thread(worker.communicate, timeout=30)
    assert json.loads(said) == {"taken": 1, "ended": {run: "completed"}, "left_to_others": {}, "cut_short": []}


async def test_a_waiting_worker_hears_of_new_runs(shared: Shared) -> None:
    """T7: the store rings; nobody waits for the next look, which is seconds away."""
    async with shared.engine() as engine, shared.engine() as other:
        crew = WorkerPool(other.internals, 2, lambda _: None)
        work = asyncio.create_task(crew.work())
        await asyncio.sleep(1.0)  # it has looked, and waits
        begun = time.monotonic()
        run = await engine.submit(plan(step("note", args={"file": str(shared.folder / "trace")})))
        assert (await engine.wait(run)).success
        assert time.monotonic() - begun < 2.5
        crew.stop()
        await work
        assert crew.taken == 1


async def test_a_run_whose_tools_are_elsewhere_is_left_to_others(on_postgres: Shared) -> None:
    """T7 I6: a worker says once which runs it has no tools for, and takes the others."""
    async with on_postgres.engine() as engine:
        run = await engine.submit(plan(step("note", args={"file": str(on_postgres.folder / "trace")})))
        poor = on_postgres.worker("--until-idle", tools=False)
        said, told = await asyncio.to_thread(poor.communicate, timeout=60)
        assert list(json.loads(said)["left_to_others"]) == [run] and told.count("left to others: ") == 1
        assert "note" in told and (await engine.internals.head(run)).status == "pending"
        on_postgres.worker("--until-idle")
        assert (await engine.wait(run)).success


async def test_a_worker_that_is_told_to_stop_hands_its_runs_over(shared: Shared) -> None:
    """T7 T8 E3: the `once` call under way ends and is on record; the next step is done by another worker."""
    trace, go = shared.folder / "trace", shared.folder / "go"
    steps = [
        step("pay", args={"file": str(trace), "seconds": 2.0}),
        step("note", args={"file": str(trace)}, needs=["pay"]),
    ]
    async with shared.engine() as engine:
        run = await engine.submit(plan(*steps))
        first = shared.worker()
        await until(trace.exists)
        first.send_signal(signal.SIGTERM)
        said, _ = await asyncio.to_thread(first.communicate, timeout=60)
        assert first.returncode == 0 and json.loads(said)["cut_short"] == []
        assert (await engine.internals.head(run)).owner is None and not go.exists()
        second = shared.worker("--until-idle")
        result = await engine.wait(run)
    assert result.success and not result.degraded
    assert (result.steps["pay"].output, result.steps["note"].output) == (first.pid, second.pid)
    assert [row.attempts for row in result.steps.values()] == [1, 1]


async def test_two_workers_share_fifty_runs_and_one_is_killed(on_postgres: Shared) -> None:
    """T7 I6 E1 E3: with -9, in the middle: every run ends, nothing `once` happens twice, doubts are told."""
    trace = on_postgres.folder / "trace"
    steps = [
        step("note", id="a", args={"file": str(trace), "seconds": 0.02}),
        step("pay", args={"file": str(trace), "seconds": 0.02}, needs=["a"]),
        step("note", id="b", args={"file": str(trace), "seconds": 0.02}, needs=["pay"]),
    ]
    async with on_postgres.engine() as engine:
        runs = [await engine.submit(plan(*steps)) for _ in range(50)]
        first, second = on_postgres.worker("--jobs", "4"), on_postgres.worker("--jobs", "4")
        await until(lambda: trace.exists() and len({line.split()[2] for line in lines(trace)}) == 2)
        await until(lambda: sum(line.split()[2] == str(first.pid) for line in lines(trace)) > 12)
        first.kill()
        ends = [await engine.wait(run) for run in runs]
        doubts = [result for result in ends if result.status == "waiting"]
        for result in doubts:  # one that was being paid when the worker died
            assert result.steps["pay"].status == "in_doubt"
            await engine.resolve(result.run_id, "pay", succeeded=None)
        assert {(await engine.wait(run)).status for run in runs} == {"completed"}
        for run in runs:
            # It is about to be given back, except by the one that was killed, perhaps just after the end.
            while (owner := (await engine.internals.head(run)).owner) and owner.pid != first.pid:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    paid = [line.split()[0] for line in lines(trace) if line.split()[1] == "pay"]
    assert len(paid) == len(set(paid)), "paid twice"
    # Whoever was killed between its word and its deed has paid nothing: that is what a doubt is about.
    assert set(runs) - set(paid) <= {result.run_id for result in doubts}
    assert len(doubts) <= 4
    assert {line.split()[2] for line in lines(trace)} >= {str(first.pid), str(second.pid)}


def lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if len(line.split()) == 3]


async def test_an_engine_that_closes_leaves_its_runs_to_workers(on_postgres: Shared) -> None:
    """T7: what was interrupted is as good as queued."""
    trace, go = on_postgres.folder / "trace", on_postgres.folder / "go"
    async with on_postgres.engine() as engine:
        run = await engine.start(plan(step("held", args={"file": str(trace), "go": str(go)})))
        await until(trace.exists)
    go.touch()
    async with on_postgres.engine() as engine:
        on_postgres.worker("--until-idle")
        await until(lambda: trace.read_text() == "xx")
        assert (await engine.wait(run)).success
        events = [record.to_dict() for record in await engine.events(run)]
    assert [one["reason"] for one in events if one["type"] == "resumed"] == ["interrupted"]
