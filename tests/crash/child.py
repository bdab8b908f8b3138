"""A process that runs, or resumes, a plan of `once` tools which append to a file; it is there to be killed.

python -m tests.crash.child STORE LEDGER STEPS (start | resume) [--verify]
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import rerail


def tools(ledger: Path, *, verify: bool) -> list[object]:
    """One tool whose effect is a line in the ledger, written in one go, as the world would."""

    async def was_written(args: dict[str, str]) -> bool:
        return f"{args['name']}\n" in ledger.read_text().splitlines(keepends=True)

    @rerail.tool(effect="once", verify=was_written if verify else None)
    async def append(name: str) -> dict[str, str]:
        await asyncio.sleep(0)
        fd = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, f"{name}\n".encode())
        finally:
            os.close(fd)
        await asyncio.sleep(0.001)
        return {"wrote": name}

    return [append]


def plan(size: int) -> dict[str, object]:
    """Rows of eight steps, each needing two of the row before."""
    steps = []
    for i in range(size):
        needs = [f"s{i - 8}", f"s{(i // 8 - 1) * 8 + (i + 1) % 8}"] if i >= 8 else []
        steps.append({"id": f"s{i}", "tool": "append", "args": {"name": f"s{i}"}, "needs": sorted(set(needs))})
    return {"objective": "append once each", "steps": steps}


async def main(store: str, ledger: Path, size: int, how: str, *, verify: bool) -> None:
    ledger.touch()
    async with rerail.Engine(store, tools(ledger, verify=verify), by="child") as engine:
        if how == "start":
            run = await engine.start(plan(size), run_id="the-run")
        else:
            run = await engine.begin_resume("the-run")
        print("driving", flush=True)
        await engine.wait(run)


if __name__ == "__main__":
    _, where, book, count, verb, *more = sys.argv
    asyncio.run(main(where, Path(book), int(count), verb, verify="--verify" in more))
