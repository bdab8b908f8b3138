"""`python -m tests.simulation.lags`: how many effects are doubled where a look lags longer than `settle`.

Each cell is one run of many `once` steps on virtual time. Every other step loses its answer after the effect; the rest
answer, and their effect does not show at once. A look reads what was done `lag` seconds ago.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Literal

import rerail
from rerail.api import Engine
from rerail.context import Context
from rerail.testing.virtual_time import VirtualClock, virtual_run

LAGS = (0, 0.5, 2, 4, 6, 10, 20, 29, 31, 45, 60)
SETTLES: tuple[float | Literal["never"], ...] = (0, 5, 30, "never")
STEPS = 100
# No breaker, which would end a run after three failures, and few repeats: each effect is doubled at most once.
SETTINGS = {"run": {"concurrency": 0}, "reflection": {"max_consecutive_failures": 0, "max_step_retries": 1}}


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of the effects of one run."""

    doubled: int
    doubts: int
    seconds: float  # of virtual time


def measure(lag: float, settle: float | Literal["never"], steps: int = STEPS) -> Cell:
    """One run of so many steps under the default settings."""
    done: dict[str, list[float]] = {}

    async def pay(n: int, ctx: Context) -> dict[str, int]:
        done.setdefault(ctx.key, []).append(asyncio.get_running_loop().time())
        if n % 2 and len(done[ctx.key]) == 1:
            raise ConnectionResetError("the answer is lost")
        return {"paid": n}

    async def paid(ctx: Context) -> bool:
        return any(at <= asyncio.get_running_loop().time() - lag for at in done.get(ctx.key, ()))

    tool = rerail.tool(pay, effect="once", verify=paid, settle=settle)
    plan = {"steps": [{"id": f"s{n}", "tool": "pay", "args": {"n": n}} for n in range(steps)]}

    async def main() -> Cell:
        async with Engine("memory://", [tool], SETTINGS, clock=VirtualClock()) as engine:
            result = await engine.wait(await engine.start(plan, run_id="lags"))  # the same backoffs each time
            doubled = sum(len(times) > 1 for times in done.values())
            return Cell(doubled, len(result.in_doubt), asyncio.get_running_loop().time())

    return virtual_run(main)


def table(steps: int = STEPS) -> str:
    """All cells as Markdown: effects doubled, and steps in doubt in brackets."""
    head = ["lag of the look", *(f"`settle: {settle}`" for settle in SETTLES)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for lag in LAGS:
        cells = [measure(lag, settle, steps) for settle in SETTLES]
        told = [f"{cell.doubled} ({cell.doubts})" if cell.doubts else str(cell.doubled) for cell in cells]
        lines.append("| " + " | ".join([f"{lag} s", *told]) + " |")
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    sys.stdout.write(table() + "\n")
    return 0


__all__ = ["Cell", "measure", "table"]


if __name__ == "__main__":
    sys.exit(main())
