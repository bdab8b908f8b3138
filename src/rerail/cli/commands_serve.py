"""Commands that serve other programs: mcp."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec

from rerail.adapters.tools.mcp import missing_extra
from rerail.cli.commands_run import Hidden
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output
from rerail.cli.session import Session
from rerail.settings import McpTable
from rerail.wiring import Engine


async def mcp(
    *,
    http: str | None = None,
    expose: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Serve other agents over MCP: they submit plans, watch them, retry them. On stdio, unless told otherwise.

    Plans may only use the tools given here (--tools, rerail.toml). If RERAIL_TOKEN is set, HTTP callers must know it.
    """
    try:
        from rerail.server.mcp import make_server
        from rerail.server.wires import claimed, listen, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    if http is not None:
        token = os.environ.get("RERAIL_TOKEN", "")
        with listen(http, expose=expose, token=token) as listening:
            async with _engine(common, out) as engine:

                def ready(url: str) -> None:
                    out.note(out.say("cli.mcp.serving", url=url))

                await _until_told(serve_http(make_server(engine), listening, token, ready))
        return 0
    with claimed() as wire:  # before the tools are loaded: they may print
        async with _engine(common, out) as engine:
            await _until_told(serve_stdio(make_server(engine), wire))
    return 0


@asynccontextmanager
async def _engine(common: Common, out: Output) -> AsyncIterator[Engine]:
    session = Session(common, out)
    # Whoever asks from outside has the tools that are given here, and no others.
    servers = McpTable(servers=session.settings.mcp.servers, from_plans=False)
    session.settings = msgspec.structs.replace(session.settings, mcp=servers)
    async with session.engine(session.given, session.load(session.given), making=True, driving=True) as engine:
        yield engine


async def _until_told(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until the other side leaves, or this process is told to stop; then everything is let go of in order."""
    task, loop = asyncio.ensure_future(serving), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
