"""The process that runs the plan until somebody kills it: `python -m rerail.demo.child FOLDER RUN PACE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import rerail
from rerail.demo.setting import PLAN, Setting


async def run(setting: Setting) -> None:
    """Run the plan to its end, if it is let."""
    async with setting.engine(tools=True) as engine:
        await engine.start(rerail.Plan.load(PLAN), run_id=setting.run)
        await engine.wait(setting.run)


if __name__ == "__main__":
    folder, name, pace = sys.argv[1:]
    asyncio.run(run(Setting(Path(folder), name, float(pace))))
