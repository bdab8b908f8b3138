"""The process that dies: `python -m rerail.testing.crash_testing.child`, with its job as JSON on stdin.

It drives one run in a folder of its own. The first process starts it and dies at the given moment. The next one drives
the existing run to its end.

Rules of this file:
- A run is driven from any state by the commands of a person: `run`, `resume`, `confirm`, `resolve`; `retry` for a
  missing follow-up. Gates are confirmed. The ledger answers a doubt; one that it cannot answer is left open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rerail.adapters.tools.loading import load_tools
from rerail.api import Engine
from rerail.engine.runs.lineage import follow_up_id
from rerail.errors import Refused, RerailError
from rerail.factory import make_store
from rerail.kernel.step_state import RunStatus
from rerail.plan.model import Plan
from rerail.settings.loading import Settings
from rerail.testing.crash_testing.ledger import (
    CallLedger,
    Count,
    Death,
    End,
    LedgerCall,
    Line,
    Points,
    Watching,
    calls_of,
    perilous,
    watch_files,
)
from rerail.views.results import RunResult

RUN = "crashtest"
AT_REST = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


async def drive(engine: Engine, plan: Plan, lines: Callable[[], Sequence[Line]]) -> None:
    """Drive the run and its follow-ups as far as the ledger's answers allow."""
    run: str | None = await _begun(engine, plan)
    while run is not None:
        result = await _rested(engine, run)
        if result.status != RunStatus.WAITING:
            run = await _follower(engine, run, result)
        elif not await _answered(engine, run, result, lines()):
            return


async def _begun(engine: Engine, plan: Plan) -> str:
    """Start the run unless it exists; a run without a plan is started again (contract E4)."""
    heads = [head for head in await engine.internals.heads(limit=100_000) if head.run == RUN]
    if not heads or not heads[0].seq:
        await engine.start(plan, run_id=RUN)
    return RUN


async def _rested(engine: Engine, run: str) -> RunResult:
    if not engine.internals.drives(run):
        result = await engine.show(run)
        if result.status in AT_REST or result.status == RunStatus.WAITING:
            return result
        await engine.begin_resume(run)
    return await engine.wait(run)


async def _follower(engine: Engine, run: str, result: RunResult) -> str | None:
    """Return a completed run's follow-up; retry the run if its starter died first (contract T6)."""
    state = await engine.internals.state(run)
    if state.follow_up is None or result.status != RunStatus.COMPLETED:
        return None
    child = follow_up_id(state)
    heads = {head.run: head.seq for head in await engine.internals.heads(parent=run, limit=100_000)}
    if not heads.get(child):
        await engine.begin_retry(run)
    return child


async def _answered(engine: Engine, run: str, result: RunResult, lines: Sequence[Line]) -> bool:
    """Answer the run's waits; False if none can be answered."""
    some = False
    for item in result.waiting_on:
        step = str(item["step"])
        if item["for"] == "confirm":
            await engine.confirm(run, step)
            some = True
        elif item["for"] == "in_doubt":
            some |= await _resolved(engine, run, step, *calls_of(lines, run, step, result.steps[step].attempts))
    return some


async def _resolved(engine: Engine, run: str, step: str, call: LedgerCall | None, end: End | None) -> bool:
    """Resolve a doubt if the ledger can: the call was never made, or it has an output; else False."""
    try:
        if call is None:
            await engine.resolve(run, step, rerun=True)
        elif end is not None and not end.error and end.shown:
            await engine.resolve(run, step, succeeded=end.output)
        else:
            return False
    except Refused:
        return False  # its files are not as they should be, so its success is not certain
    return True


BROKEN = 3


class Job(msgspec.Struct, frozen=True):
    plan: Plan
    tools: list[str]  # their sources, in the form of `--tools`
    settings: dict[str, Any]
    folder: str
    life: int
    at: int = 0  # the moment to die at; 0: none
    cut: tuple[int, str] | None = None  # the number of the call to cut off, and the kind of cut

    @property
    def ledger(self) -> Path:
        return ledger_in(Path(self.folder))


def ledger_in(folder: Path) -> Path:
    return folder / "ledger.jsonl"


def home_in(folder: Path) -> Path:
    return folder / "home"


def store_in(folder: Path) -> str:
    return f"sqlite:///{home_in(folder) / 'runs.db'}"


async def live(job: Job) -> None:
    """Drive the run as far as it goes."""
    ledger, home = CallLedger(job.life, job.ledger), home_in(Path(job.folder))

    def die(point: int, what: str) -> None:
        ledger.add(Death(job.life, point, what))
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # this thread must stop here, however late the signal comes

    points = Points(job.at, die)
    tools = [tool for source in job.tools for tool in load_tools(source)]
    settings = Settings.load(job.settings)
    home.mkdir(mode=0o700, exist_ok=True)
    watch_files(home, points)
    store = perilous(make_store(store_in(Path(job.folder)), settings), points, ledger.acknowledged)
    executor = Watching(ledger, points, home, job.cut)
    async with Engine(store, tools, settings, executor=executor, by="crashtest", origin=job.tools) as engine:
        await drive(engine, Plan.load(job.plan), ledger.lines)
    ledger.add(Count(job.life, points.seen, executor.ended))


def main() -> int:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        asyncio.run(live(job))
    except RerailError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return BROKEN
    return 0


if __name__ == "__main__":
    sys.exit(main())
