"""The tools of the benchmarks, in a file of their own: workers load it."""

from __future__ import annotations

import time

import rerail


@rerail.tool
async def noop() -> None:
    """Do nothing."""


@rerail.tool
def touch(number: int) -> int:
    """Do next to nothing."""
    return number


@rerail.tool
def speak(ctx: rerail.Context) -> None:
    """Take long enough that somebody hears of it while it is under way."""
    time.sleep(0.5)
    ctx.log("still there")
    time.sleep(0.5)


TOOLS = [noop, touch]
