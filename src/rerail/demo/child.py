"""The process that runs the plan until it is killed: `python -m rerail.demo.child FOLDER RUN PACE`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import rerail
from rerail.demo.tools import TOOLS, DemoWorld

PLAN = Path(__file__).with_name("plan.yaml")


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run of the demo: its folder, its id, and how fast time passes in its world."""

    folder: Path
    run: str
    pace: float

    @property
    def database(self) -> Path:
        return self.folder / "runs.db"

    @property
    def world(self) -> DemoWorld:
        return DemoWorld(self.folder / "work" / self.run)

    def engine(self, *, tools: bool) -> rerail.Engine:
        """Return an engine on the demo's store; without tools it can only read."""
        settings = {"retry": {"backoff_base": 0.6 * self.pace}}
        # The origin lets later commands (`rerail retry RUN`) load the same tools again.
        return rerail.Engine(
            f"sqlite:///{self.database}", TOOLS if tools else (), settings, origin=("rerail.demo.tools",)
        )  # fmt: skip

    async def drive(self) -> None:
        async with self.engine(tools=True) as engine:
            await engine.start(rerail.Plan.load(PLAN), run_id=self.run)
            await engine.wait(self.run)


if __name__ == "__main__":
    folder, name, pace = sys.argv[1:]
    asyncio.run(DemoRun(Path(folder), name, float(pace)).drive())
