"""A process that drives runs to their ends on a server that comes and goes; it is there to be killed.

python -m tests.chaos.writer STORE FOLDER FIRST LAST

Rules of this file:
- Effects are written outside the store: a file for each step of each run, a line for each time it happened.
- So is each event that the store said it has, in a journal of this process: what is in there must be in the store.
- Started again, it goes on with the runs that its predecessor left.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import rerail
from rerail.adapters.stores.postgres.store import PostgresStore
from rerail.adapters.stores.redis.store import RedisStore
from rerail.kernel.codec import encode
from rerail.ports import Store

STEPS = 20
AT_ONCE = 15
TAKES = 0.15  # seconds of a step
PATIENCE = 1.0  # seconds of silence after which a server is given up
SETTINGS = {"retry": {"backoff_base": 0.05, "backoff_cap": 0.1}, "store": {"reconnect_seconds": 60}}


def kind_of(number: int) -> str:
    """What becomes of a run: most end well; some do without an optional step, some fail for good."""
    return {3: "degraded", 7: "failed"}.get(number % 10, "well")


def plan(number: int) -> dict[str, Any]:
    """Ten rows of two steps: effects that must not happen twice, beside calls that fail once, or for good."""
    steps: list[dict[str, Any]] = []
    for i in range(STEPS):
        needs = [f"s{i - 2}"] if i >= 2 else []
        steps.append({"id": f"s{i}", "tool": "effect" if i % 2 == 0 else "shaky", "needs": needs})
    if kind_of(number) == "degraded":
        steps[9] |= {"tool": "hopeless", "critical": False}
    if kind_of(number) == "failed":
        steps[15] |= {"tool": "hopeless"}
    return {"objective": f"run {number}", "steps": steps}


def tools(folder: Path) -> list[Any]:
    """The tools of these plans, which leave their marks in a folder."""

    def mark(ctx: rerail.Context) -> Path:
        return folder / "effects" / f"{ctx.run}.{ctx.step}"

    async def happened(ctx: rerail.Context) -> Any:
        return rerail.Verified(output=ctx.step) if mark(ctx).exists() else False

    @rerail.tool(effect="once", verify=happened)
    async def effect(ctx: rerail.Context) -> str:
        """Do what must not happen twice."""
        _write(mark(ctx), f"{os.getpid()} {ctx.attempt}\n")
        await asyncio.sleep(TAKES)
        return ctx.step

    @rerail.tool
    async def shaky(ctx: rerail.Context) -> str:
        """Fail the first time."""
        first = folder / "tries" / f"{ctx.run}.{ctx.step}"
        await asyncio.sleep(TAKES)
        if not first.exists():
            first.touch()
            raise ConnectionRefusedError("not yet")
        return ctx.step

    @rerail.tool
    async def hopeless() -> None:
        """Fail for good."""
        raise rerail.ToolError("there is no such thing", category="permanent_error")

    return [effect, shaky, hopeless]


def _write(path: Path, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def digest(event: Any) -> str:
    """What an event says, in a few letters."""
    return hashlib.sha256(encode(event)).hexdigest()[:16]


async def one(engine: rerail.Engine, number: int) -> None:
    """See a run through to its end, whoever began it."""
    run = f"run-{number:03}"
    while True:
        with contextlib.suppress(rerail.StoreError):  # the server is away: ask again
            try:
                await engine.start(plan(number), run_id=run)
            except rerail.Refused:  # it is there already
                if not engine.internals.drives(run) and (await engine.show(run)).status not in ("completed", "failed"):
                    await engine.begin_resume(run)
            if (await engine.wait(run)).status in ("completed", "failed"):
                return
        await asyncio.sleep(0.1)


def opened(address: str) -> Store:
    """The store at an address, which gives a silent server up soon."""
    kind = PostgresStore if address.startswith("postgresql:") else RedisStore
    return kind(address, answer_seconds=PATIENCE)


async def main(store: str, folder: Path, numbers: range) -> None:
    journal = folder / "journals" / str(os.getpid())

    def observe(record: rerail.Event) -> None:
        _write(journal, f"{record.run} {record.seq} {digest(record.event)}\n")

    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(engine: rerail.Engine, number: int) -> None:
        async with room:
            await one(engine, number)

    engine = rerail.Engine(opened(store), tools(folder), SETTINGS, by="writer", observe=observe)
    while True:
        try:
            await engine.open()
            break
        except rerail.StoreError:
            await asyncio.sleep(0.1)
    try:
        await asyncio.gather(*(in_turn(engine, number) for number in numbers))
    finally:
        await engine.close()


if __name__ == "__main__":
    _, where, at, first, last = sys.argv
    asyncio.run(main(where, Path(at), range(int(first), int(last))))
