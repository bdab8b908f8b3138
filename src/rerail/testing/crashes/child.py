"""The process that dies: `python -m rerail.testing.crashes.child`, with its job as JSON on stdin.

It drives one run in a folder of its own: from its beginning until it dies at the moment that it was told, or, as the
process after that, from whatever is there to the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from rerail.adapters.tools.loading import load_tools
from rerail.core.plan import Plan as CorePlan
from rerail.errors import RerailError
from rerail.plans import Plan
from rerail.settings import Settings
from rerail.testing.crashes.driving import drive
from rerail.testing.crashes.ledger import Count, Death, Ledger, Watching
from rerail.testing.crashes.points import Points, perilous, watch_files
from rerail.wiring import Engine, make_store

BROKEN = 3


class Job(msgspec.Struct, frozen=True):
    """What the process is to do."""

    plan: CorePlan
    tools: list[str]  # where they come from, as `--tools` takes it
    settings: dict[str, Any]
    folder: str
    life: int
    at: int = 0  # the moment to die at; 0: none
    cut: tuple[int, str] | None = None  # the call whose answer is cut off, and how

    @property
    def ledger(self) -> Path:
        """Where it is written down what really happened: beside the run's files, not among them."""
        return ledger_in(Path(self.folder))


def ledger_in(folder: Path) -> Path:
    """The ledger of a trial."""
    return folder / "ledger.jsonl"


def home_in(folder: Path) -> Path:
    """Where a trial's store and files are."""
    return folder / "home"


def store_in(folder: Path) -> str:
    """The address of a trial's store."""
    return f"sqlite:///{home_in(folder) / 'runs.db'}"


async def live(job: Job) -> None:
    """Drive the run as far as it goes."""
    ledger, home = Ledger(job.life, job.ledger), home_in(Path(job.folder))

    def die(point: int, what: str) -> None:
        ledger.add(Death(job.life, point, what))
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # nothing more happens on this thread, however late the signal comes

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
    """Do the job; what goes wrong is told on stderr."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        asyncio.run(live(job))
    except RerailError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return BROKEN
    return 0


if __name__ == "__main__":
    sys.exit(main())
