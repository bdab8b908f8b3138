"""Mistakes of a user's program: both type checkers name each line that is marked."""

from __future__ import annotations

import rerail


@rerail.tool(effect="onec")  # wrong
def send(to: str) -> str:
    """Send."""
    return to


@rerail.tool(errors="not-done")  # wrong
def pay(to: str) -> str:
    """Pay."""
    return to


shell = rerail.shell("count", ["wc"], effect="reed")  # wrong
step = rerail.Step("a", "send", effect="twice")  # wrong
other = rerail.Step("a", "send", needs=[1])  # wrong
third = rerail.Step("a", "send", neds=["b"])  # wrong


async def drive(engine: rerail.Engine) -> None:
    """Take one thing for another."""
    preview: rerail.Preview = await engine.retry("r")  # wrong
    result: rerail.RunResult = await engine.retry("r", dry_run=True)  # wrong
    print(preview, result)
    async for record in engine.watch("r"):
        if record.type == "step_faild":  # wrong
            print(record.seq)
    await engine.retry("r", dryrun=True)  # wrong
    await engine.head("r")  # wrong
