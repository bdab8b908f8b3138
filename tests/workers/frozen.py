"""A process that drives a run and stops itself (SIGSTOP), at a place of the test's choice; for the tests of E11.

python -m tests.workers.frozen FOLDER TOOL (call | intent) [URL]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import rerail
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.adapters.tools import http, http_exchange
from rerail.adapters.tools.shell import ShellTool
from rerail.ports import Batch

RUN = "the-run"
TIMEOUT = 7.0
STEPS = ("s1", "s2", "s3")


def store_of(folder: Path) -> str:
    return f"sqlite:///{folder}/runs.db"


def acts(folder: Path) -> list[str]:
    """The effects there were, a line each: what acted, and in which process."""
    ledger = folder / "ledger"
    return ledger.read_text().splitlines() if ledger.exists() else []


def note(file: Path, line: str) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def stop() -> None:
    """Stop this process; the thread that asks for it may run on for a moment, so it does nothing meanwhile."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.2)


def tools(folder: Path, *, freezes: bool, url: str = "http://127.0.0.1:1/") -> list[Any]:
    """Tools whose effect is a line in a ledger; with ``freezes`` the process stops right before the effect."""

    def freeze() -> None:
        if freezes:
            stop()

    def there(args: dict[str, Any]) -> bool:
        return any(line.startswith(f"{args.get('name')} ") for line in acts(folder))

    def act(name: str) -> str:
        note(folder / "ledger", f"{name} {os.getpid()}")
        return name

    def plain(name: str) -> str:
        freeze()
        return act(name)

    def fenced(name: str, ctx: rerail.Context) -> str:
        freeze()
        ctx.ensure_owner()
        return act(name)

    def keyed(name: str, ctx: rerail.Context) -> str:
        note(folder / "keys", ctx.key)
        freeze()
        return act(name)

    class Shell(ShellTool):
        async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
            freeze()
            return await super().call(args, ctx)

    def connect(self: Any, request: Any, connection: Any) -> None:
        connected(self, request, connection)
        freeze()

    connected = http_exchange.Exchange._connect
    if freezes:
        http_exchange.Exchange._connect = connect  # type: ignore[method-assign]
    once: dict[str, Any] = {"effect": "once", "timeout": TIMEOUT, "settle": 0.2}
    line = 'echo "$1 $PPID" >> ledger'
    return [
        rerail.tool(plain, name="plain", verify=there, **once),
        rerail.tool(plain, name="unverified", **once),
        rerail.tool(fenced, name="fenced", verify=there, fenced=True, **once),
        rerail.tool(keyed, name="keyed", verify=there, idempotent_for=3600, **once),
        Shell("command", ["sh", "-c", line, "sh", "{name}"], cwd=str(folder), verify=there, **once),
        http.HttpTool("request", "POST", url + "{name}", verify=there, **once),
    ]


class Freezing(SqliteStore):
    """The process stops when an intent was acknowledged, before the call that follows."""

    async def append(self, batch: Batch) -> None:
        await super().append(batch)
        if any(b"step_started" in data for _, data in batch.rows):
            stop()


def plan(tool: str) -> dict[str, Any]:
    return {"steps": [{"id": step, "tool": tool, "args": {"name": step}} for step in STEPS]}


async def main(folder: Path, tool: str, where: str, url: str) -> None:
    store: Any = store_of(folder)
    if where == "intent":
        store = Freezing(str(folder / "runs.db"))
    async with rerail.Engine(store, tools(folder, freezes=where == "call", url=url)) as engine:
        try:
            await engine.wait(await engine.start(plan(tool), run_id=RUN))
        except rerail.StoreError as error:
            print(error, file=sys.stderr)
        await asyncio.sleep(0.5)  # for threads that go on


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], *(sys.argv[4:] or ["http://127.0.0.1:1/"])))
