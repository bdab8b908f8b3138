"""A real `rerail serve` in a process of its own, and readers of its streams."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

TOOLS = '''
"""Tools that wait, fail and count."""

import asyncio
from pathlib import Path
import rerail

HERE = Path(__file__).parent


@rerail.tool
async def echo(value: object = 1, ctx: rerail.Context = None):
    """Give the value back."""
    if ctx is not None:
        ctx.log("echoing")
    return value


@rerail.tool
async def hold(name: str, ctx: rerail.Context):
    """Wait until there is a file of that name."""
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)
    return name


@rerail.tool
async def needs_file(name: str):
    """Fail until there is a file of that name."""
    if not (HERE / name).exists():
        raise rerail.ToolError(f"no {name}", category="tool_error")
    return name


@rerail.tool
async def flaky(ctx: rerail.Context):
    """Fail once, then work."""
    if ctx.attempt < 2:
        raise ConnectionRefusedError("down")
    return {"attempt": ctx.attempt}


@rerail.tool(effect="once", timeout=0.2)
async def send(ctx: rerail.Context):
    """Act, and never answer."""
    await asyncio.sleep(30)


@rerail.tool
async def write(text: str, ctx: rerail.Context):
    """Leave a file."""
    ctx.path("page.html").write_text(text)
    return len(text)


@rerail.tool
async def chatter(count: int, size: int, ctx: rerail.Context):
    """Log so many lines of that size."""
    for number in range(count):
        ctx.log(f"{number} " + "x" * size)
        await asyncio.sleep(0)
    return count


@rerail.tool
async def pace(count: int, seconds: float, ctx: rerail.Context):
    """Log so many lines, evenly over so many seconds."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(count):
        ctx.log(f"line {number}")
        await asyncio.sleep(max(0.0, begun + (number + 1) * seconds / count - loop.time()))
    return count
'''

ENVIRON = {
    "RERAIL_RETRY_MAX_RETRY_ROUNDS": "0",
    "RERAIL_RETRY_BACKOFF_BASE": "0.01",
    "RERAIL_STORE_DURABILITY": "normal",
    "RERAIL_LANG": "en",
    "NO_COLOR": "1",
}


@dataclass
class Place:
    """A folder with tools and a store, where commands are typed."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "tools.py").write_text(TOOLS)

    @property
    def environ(self) -> dict[str, str]:
        """The surroundings of a command, without anybody's own settings."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RERAIL_")}
        return {**plain, **ENVIRON}

    def rerail(self, *words: str, code: int | None = 0, **environ: str) -> Any:
        """Run a command; returns its document."""
        done = subprocess.run(
            [sys.executable, "-m", "rerail.cli", *words, "--json"],
            cwd=self.folder, env={**self.environ, **environ}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def spawn(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command, and leave it to itself."""
        return subprocess.Popen(
            [sys.executable, "-m", "rerail.cli", *words], cwd=self.folder, env={**self.environ, **environ},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def plan(self, *steps: dict[str, Any], name: str = "plan.json") -> str:
        """A plan's file."""
        (self.folder / name).write_text(json.dumps({"objective": "a plan of the tests", "steps": list(steps)}))
        return name


@dataclass
class Web:
    """A server that runs."""

    place: Place
    url: str
    process: subprocess.Popen[str]
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """What a caller who knows the token sends."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    @asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """A caller."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"{self.url}api/v1", headers={**self.headers, **headers}, timeout=30, limits=limits
        ) as client:
            yield client


@contextmanager
def serving(place: Place, *words: str, token: str = "", **environ: str) -> Iterator[Web]:
    """A server in a process of its own."""
    if token:
        environ["RERAIL_TOKEN"] = token
    environ.setdefault("RERAIL_WORKER_GRACE", "0.2")  # calls that wait for a file need not be waited for
    process = place.spawn("serve", "0", "--tools", "tools.py", *words, **environ)
    try:
        yield Web(place, _address(process), process, token)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            _, said = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert "Traceback" not in said, said
        assert process.returncode in (0, -signal.SIGKILL), said


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    until, said = time.monotonic() + 30, ""
    while time.monotonic() < until:
        if select.select([process.stderr], [], [], 0.1)[0]:
            line = process.stderr.readline()
            said += line
            if found := re.search(r"http://\S+", line):
                return found[0]
            if not line:
                break
    process.kill()
    raise AssertionError(f"the server did not start: {said}")


@dataclass
class Event:
    """One event of a stream."""

    name: str
    data: Any
    ident: str | None


async def sse(response: httpx.Response) -> AsyncIterator[Event]:
    """The events of a stream; comments are no events."""
    name, data, ident = "message", "", None
    async for line in response.aiter_lines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield Event(name, json.loads(data), ident)
            name, data = "message", ""
        elif field == "event":
            name = value
        elif field == "data":
            data += value
        elif field == "id":
            ident = value


@asynccontextmanager
async def stream(client: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Event]]:
    """A stream that is read."""
    async with client.stream("GET", path, headers=headers, timeout=httpx.Timeout(30, read=None)) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        events = sse(response)
        try:
            yield events
        finally:
            with contextlib.suppress(RuntimeError):
                await events.aclose()  # type: ignore[attr-defined]


STEPS = [
    {"id": "a", "tool": "echo", "args": {"value": {"n": 1}}},
    {"id": "b", "tool": "flaky", "needs": ["a"]},
    {"id": "c", "tool": "echo", "args": {"value": "${b.attempt}"}},
]


async def started(client: httpx.AsyncClient, *steps: dict[str, Any], **more: Any) -> str:
    """A run that was started over HTTP."""
    answer = await client.post(
        "/runs", json={"plan": {"objective": "over HTTP", "steps": list(steps or STEPS)}, **more}
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


async def rested(client: httpx.AsyncClient, run: str, *words: str) -> dict[str, Any]:
    """A run once it is at rest, or of one of these statuses."""
    wanted = words or ("completed", "failed", "cancelled")
    async with stream(client, f"/runs/{run}/live") as events:
        shown: dict[str, Any] = {}
        async for event in events:
            if event.name == "snapshot":
                shown = event.data
            elif event.name == "patch":
                shown = {**shown, **event.data["run"]}
            if shown["status"] in wanted:
                break
    found: dict[str, Any] = (await client.get(f"/runs/{run}")).json()
    return found
