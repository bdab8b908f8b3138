"""What the MCP server is reached by: stdin and stdout, or HTTP (needs the `mcp` extra).

Rules of this file:
- On stdio the descriptors belong to the protocol alone. They are moved away before any tool is loaded: what tools and
  their children print goes to stderr, and they read nothing.
- Over HTTP, only this machine is served unless the user says otherwise, and then only whoever knows the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from starlette.types import ASGIApp, Receive, Scope, Send

from rerail.server.listening import serve_app, url_of

PATH: Final = "/mcp"
_LONGEST: Final = 64 * 1024 * 1024  # bytes of one message

Incoming = SessionMessage | Exception

# --- stdio ---------------------------------------------------------------------------------------------------------


@contextmanager
def claimed() -> Iterator[tuple[int, int]]:
    """Descriptors for the protocol in place of stdin and stdout, which lead nowhere and to stderr meanwhile."""
    sys.stdout.flush()
    wire = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield wire
    finally:
        sys.stdout.flush()
        for ours, theirs in zip(wire, (0, 1), strict=True):
            with contextlib.suppress(OSError):  # closed with its transport
                os.dup2(ours, theirs)
                os.close(ours)


async def serve_stdio(server: Server[Any], wire: tuple[int, int]) -> None:
    """Serve until stdin ends."""
    async with _streams(wire) as (read, write):
        await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def _streams(
    wire: tuple[int, int],
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """Lines as messages. Not in threads, as the SDK does it: a thread that waits for a line cannot be stopped."""
    incoming, read = anyio.create_memory_object_stream[Incoming](math.inf)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_LONGEST)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(wire[0], "rb", 0))
    writing, flow = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(wire[1], "wb", 0)
    )
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    tasks = [asyncio.ensure_future(_read(lines, incoming)), asyncio.ensure_future(_write(outgoing, writer))]
    try:
        yield read, write
        write.close()
        await asyncio.wait(tasks[1:], timeout=1.0)  # the last answers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (incoming, read, write, outgoing):
            stream.close()
        reading.close()
        writing.close()


async def _read(lines: asyncio.StreamReader, incoming: MemoryObjectSendStream[Incoming]) -> None:
    with incoming:
        while line := await lines.readline():
            try:
                item: Incoming = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:
                item = error
            incoming.send_nowait(item)


async def _write(outgoing: MemoryObjectReceiveStream[SessionMessage], writer: asyncio.StreamWriter) -> None:
    with outgoing:
        async for item in outgoing:
            writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await writer.drain()


# --- HTTP ----------------------------------------------------------------------------------------------------------


async def serve_http(server: Server[Any], listening: socket.socket, token: str, ready: Callable[[str], None]) -> None:
    """Serve until cancelled; requests under way get a moment to end."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, host=listening.getsockname()[0])
    guarded = _Guarded(app, token) if token else app
    await serve_app(guarded, listening, lambda: ready(url_of(listening, PATH)))


class _Guarded:
    """An app for those alone who know the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or not."""
        if scope["type"] == "http" and not hmac.compare_digest(self._said(scope), self._wanted):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"the token is missing or wrong"})
            return
        await self._app(scope, receive, send)

    @staticmethod
    def _said(scope: Scope) -> bytes:
        found: bytes = dict(scope["headers"]).get(b"authorization", b"")
        return found
