"""The tools of the browser tests: what they do next is decided by files, so that a test can let them go on one by one.

Rules of this file:
- A tool that waits, waits for a file of its gate's name. No tool sleeps to be slow.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio

import rerail

GATES = Path(os.environ.get("RERAIL_TEST_GATES", "."))


async def _through(gate: str) -> None:
    while gate and not (GATES / gate).exists():  # noqa: ASYNC110 - another process opens it
        await anyio.sleep(0.02)


def _count(name: str) -> int:
    """How many times something was called, this time included; the file outlives the process."""
    path = GATES / f"count-{name}"
    count = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(count))
    return count


@rerail.tool(effect="read")
async def note(text: Any = "", gate: str = "") -> dict[str, Any]:
    """Say something, once its gate is open."""
    await _through(gate)
    return {"text": text}


async def flaky(name: str, ctx: rerail.Context, fails: int = 1, gate: str = "") -> dict[str, Any]:
    """Fail a few times in each run with a broken connection, then work."""
    await _through(gate)
    _count(name)
    if (count := _count(f"{ctx.run}-{name}")) <= fails:
        raise ConnectionError(f"connection reset by {name}")
    return {"name": name, "calls": count}


async def forecast(city: str) -> dict[str, str]:
    """Know one city, and what was meant by another."""
    if city != "Reykjavik":
        raise rerail.ToolError(f"no city {city!r}", suggest={"city": "Reykjavik"})
    return {"sky": f"northern lights over {city}"}


async def broken(name: str = "broken", message: str = "the key is missing") -> dict[str, Any]:
    """Fail for good, until somebody mends it: a file `mended-NAME`."""
    _count(name)
    if not (GATES / f"mended-{name}").exists():
        raise PermissionError(message)
    return {"name": name, "mended": True}


async def closed(name: str = "closed") -> dict[str, Any]:
    """The same, with an error that trying again may mend."""
    _count(name)
    if not (GATES / f"mended-{name}").exists():
        raise rerail.ToolError(f"{name} is closed", category="tool_error")
    return {"name": name, "mended": True}


async def spare(name: str = "spare", **ignored: Any) -> dict[str, Any]:
    """Work where another tool does not."""
    return {"name": name, "by": "spare"}


async def down(name: str = "down") -> dict[str, Any]:
    """Be out of service."""
    raise rerail.ToolError(f"{name} is out of service", category="tool_error")


@rerail.tool(effect="once")
async def send(to: str, text: str = "", lost: bool = False) -> dict[str, Any]:
    """Must not happen twice; its answer may get lost on the way."""
    count = _count(f"send-{to}")
    if lost and count == 1:
        raise rerail.ToolError("the line broke before the answer came", lost=True)
    return {"sent": to, "calls": count}


async def report(name: str, ctx: rerail.Context) -> dict[str, Any]:
    """Leave a file and a few lines of log."""
    ctx.log(f"writing {name}")
    ctx.write_text(name, f"# {name}\n\nAll is well.\n")
    ctx.log("written")
    return {"file": name, "rows": [{"city": "Reykjavik", "nights": 3}, {"city": "Tromsø", "nights": 2}]}


async def reads(path: str, ctx: rerail.Context) -> dict[str, str]:
    """Say what a file says."""
    return {"read": ctx.path(path).read_text(encoding="utf-8")}


async def echo(value: Any = None) -> Any:
    """Give back what it got."""
    return value


async def shout(text: str) -> None:
    """Fail with somebody else's words."""
    raise rerail.ToolError(text, category="permanent_error", code=text[:40])


TOOLS = [note, flaky, forecast, broken, closed, spare, down, send, report, reads, echo, shout]
