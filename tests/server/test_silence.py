"""Connections that say nothing take nobody's room, and are let go in time (I4)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from tests.server.test_sockets import connected, subscribed
from tests.server.web import Place, serving, started, stream

from rerail.server.http_server import IdleConnections, listen, serve_app

pytestmark = pytest.mark.anyio

HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n"
LONG = 20.0  # seconds after which a test has waited in vain
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a GET at once, or never; a POST with its body."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(3600)
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    size = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def _served(silence: IdleConnections) -> AsyncIterator[socket.socket]:
    with listen("127.0.0.1:0", expose=False, guarded=False) as listening:
        begun = asyncio.Event()
        task = asyncio.create_task(
            serve_app(_app, listening, begun.set, silence, lifespan="off", timeout_keep_alive=3600)
        )
        await begun.wait()
        try:
            yield listening
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _wires(listening: socket.socket, count: int, source: str = "127.0.0.1") -> AsyncIterator[list[Wire]]:
    host, port = listening.getsockname()
    found = [await asyncio.open_connection(host, port, local_addr=(source, 0)) for _ in range(count)]
    try:
        yield found
    finally:
        for _, writer in found:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _answered(wire: Wire, asked: bytes = HEAD) -> bytes:
    reader, writer = wire
    writer.write(asked)
    async with asyncio.timeout(LONG):
        head = await reader.readuntil(b"\r\n\r\n")
    return head.partition(b"\r\n")[0]


async def _closed(wire: Wire) -> bytes:
    async with asyncio.timeout(LONG):
        return await wire[0].read()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost: loc"])
async def test_who_sends_no_head_is_let_go(said: bytes) -> None:
    """I4: silence ends in time, from the first byte on and in the middle of a head."""
    async with _served(IdleConnections(within=0.3)) as listening, _wires(listening, 1) as [wire]:
        wire[1].write(said)
        assert await _closed(wire) == b""


async def test_a_head_in_single_bytes_buys_no_time() -> None:
    """I4: whoever sends a byte now and then is let go as one who sends none."""
    async with _served(IdleConnections(within=0.5)) as listening, _wires(listening, 1) as [wire]:

        async def drip() -> None:
            for byte in HEAD[:-2] + b"x: " + b"y" * 1000:
                wire[1].write(bytes([byte]))
                await asyncio.sleep(0.05)

        task = asyncio.create_task(drip())
        try:
            with contextlib.suppress(ConnectionResetError):
                assert await _closed(wire) == b""
            assert not task.done() or task.exception() is not None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_who_was_answered_and_asks_nothing_more_is_let_go() -> None:
    """I4: a connection that is kept for the next request is silent until that comes."""
    async with _served(IdleConnections(within=0.5)) as listening, _wires(listening, 1) as [wire]:
        for _ in range(3):
            assert await _answered(wire) == b"HTTP/1.1 200 OK"
        assert await _closed(wire) == b""


async def test_a_body_goes_on_coming() -> None:
    """I4: a body that stops is waited for no longer; one that comes slowly is taken."""
    async with _served(IdleConnections(within=60, pause=0.5)) as listening, _wires(listening, 2) as [stalled, slow]:
        stalled[1].write(POST + b"ab")
        slow[1].write(POST)
        for byte in b"abcd":
            await asyncio.sleep(0.3)
            slow[1].write(bytes([byte]))
        async with asyncio.timeout(LONG):
            assert (await slow[0].readuntil(b"abcd")).startswith(b"HTTP/1.1 200 OK")
        assert await _closed(stalled) == b""


async def test_who_waits_for_an_answer_is_not_silent() -> None:
    """I4: a request under way ends neither for its own time nor for others' connections."""
    async with _served(IdleConnections(within=0.2, most=2)) as listening, _wires(listening, 1) as [waiting]:
        waiting[1].write(HEAD.replace(b"/ ", b"/slow ", 1))
        await waiting[1].drain()
        async with _wires(listening, 5) as others:
            for wire in others:
                await _closed(wire)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await waiting[0].read(1)


async def test_who_opens_many_throws_out_its_own() -> None:
    """I4: one too many takes the place of the oldest of the address that has the most."""
    async with (
        _served(IdleConnections(within=3600, most=5)) as listening,
        _wires(listening, 1, "127.0.0.2") as [other],
        _wires(listening, 9) as many,
    ):
        for wire in many[:5]:
            assert await _closed(wire) == b""
        for wire in [*many[5:], other]:
            assert await _answered(wire) == b"HTTP/1.1 200 OK"


async def test_silent_connections_lock_nobody_out(tmp_path: Path) -> None:
    """I3, I4: with hundreds of them open, others are answered, and streams and sockets hear everything."""
    with serving(Place(tmp_path), RERAIL_SERVER_MAX_READERS="5") as web:
        host, port = web.url.removeprefix("http://").strip("/").split(":")
        async with web.client() as client, connected(web, transports=["websocket"]) as ear:
            run = await started(client, {"id": "a", "tool": "hold", "args": {"name": "go"}})
            await subscribed(ear, run)
            async with stream(client, f"/runs/{run}/stream?until_rest=true") as events:
                wires = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
                try:
                    assert (await client.get("/health")).status_code == 200
                    async with web.client() as fresh:
                        assert (await fresh.get("/runs")).status_code == 200
                    (tmp_path / "go").touch()
                    types = [event.name async for event in events]
                    assert types[0] == "run_started" and "done" in types
                    await ear.until("event", type="done")
                finally:
                    for _, writer in wires:
                        writer.close()


async def test_too_many_requests_are_a_problem(tmp_path: Path) -> None:
    """I4: only so many requests are under way at once; one more is told so, as a problem."""
    with serving(Place(tmp_path), RERAIL_SERVER_MAX_READERS="1") as web:
        host, port = web.url.removeprefix("http://").strip("/").split(":")
        asked = b"POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        wires = []
        try:
            for _ in range(101):
                wires.append(await asyncio.open_connection(host, int(port)))
                wires[-1][1].write(asked + b"content-length: 9\r\n\r\n")
                await wires[-1][1].drain()
            async with web.client() as client:
                answer = await client.get("/health")
                while answer.status_code == 200:  # the last heads are still on their way
                    answer = await client.get("/health")
                assert answer.status_code == 503 and answer.headers["retry-after"]
                assert answer.json()["code"] == "TOO_MANY_READERS"
                assert answer.json()["hint"] == "try again in a moment"
        finally:
            for _, writer in wires:
                writer.close()
        async with web.client() as client, asyncio.timeout(LONG):
            while (await client.get("/health")).status_code != 200:
                pass  # their leaving takes a moment
