"""The tools of the benchmarks, in a file of their own: workers load it."""

from __future__ import annotations

import rerail


@rerail.tool
async def noop() -> None:
    """Do nothing."""


@rerail.tool
def touch(number: int) -> int:
    """Do next to nothing."""
    return number


TOOLS = [noop, touch]
