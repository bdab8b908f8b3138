"""Many readers of one run: all see everything once, in order, and the run does not feel them (I1, I3, I4).

`make long` runs what is promised: 100 streams and 100 sockets on a run of 1,000 events paced over 60 seconds, and 20 of
each on one of 10,000 events at full speed. Otherwise a tenth.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import socketio
from tests.server.web import Place, Web, rested, serving, started

pytestmark = pytest.mark.anyio

WHOLE = os.environ.get("RERAIL_READERS", "") == "all"
READERS, EVENTS, SECONDS = (100, 1_000, 60.0) if WHOLE else (10, 100, 6.0)
FAST_READERS, FAST_EVENTS = (20, 10_000) if WHOLE else (5, 1_500)


IDENT = re.compile(rb"^id: (\d+)\nevent: (\w+)$", re.MULTILINE)


async def reads(web: Web, run: str) -> tuple[list[int], int]:
    """A stream, read to the end; one that is let go comes back. Returns what it saw, and how often it was let go.

    Read as plain bytes: a hundred readers in one process must not be what the run waits for.
    """
    seen: list[int] = []
    dropped, where = 0, httpx.URL(web.url)
    while True:
        reader, writer = await asyncio.open_connection(where.host, where.port, limit=1 << 22)
        last = f"Last-Event-ID: {seen[-1]}\r\n" if seen else ""
        host = f"Host: {where.host}:{where.port}\r\n"
        writer.write(f"GET /api/v1/runs/{run}/stream?until_rest=true HTTP/1.1\r\n{host}{last}\r\n".encode())
        over = away = False
        while not over and not away:
            block = await reader.readuntil(b"\n\n")
            over = b"\nevent: end\n" in b"\n" + block
            for ident, name in IDENT.findall(block.replace(b"\r\n", b"\n")):
                if name == b"dropped":
                    away = True
                    assert int(ident) == seen[-1]
                else:
                    seen.append(int(ident))
        writer.close()
        await writer.wait_closed()
        dropped += away
        if over:
            return seen, dropped


async def listens(web: Web, run: str, session: aiohttp.ClientSession) -> tuple[list[int], int]:
    """A socket that listens to the end, in the same way."""
    client = socketio.AsyncClient(reconnection=False, http_session=session)
    seen: list[int] = []
    over, gone, dropped = asyncio.Event(), asyncio.Event(), 0

    def event(said: dict[str, Any]) -> None:
        seen.append(said["seq"])
        if said["type"] == "done":
            over.set()
            gone.set()

    client.on("event", event)
    client.on("dropped", lambda _: gone.set())
    await client.connect(web.url, transports=["websocket"], wait_timeout=60)
    try:
        while not over.is_set():
            gone.clear()
            after = seen[-1] if seen else 0
            answer = await client.call("subscribe", {"run": run, "after": after, "protocol": "events"}, timeout=60)
            assert answer["ok"]
            await gone.wait()
            dropped += not over.is_set()
    finally:
        await client.disconnect()
    return seen, dropped


async def watched(web: Web, count: int, name: str, *steps: dict[str, Any]) -> tuple[float, list[Any], int]:
    """How long a run takes that so many streams and sockets watch, what each of them saw, and the last event."""
    gate = {"id": "gate", "tool": "hold", "args": {"name": name}}
    async with web.client() as client, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        run = await started(client, gate, *({**step, "needs": ["gate"]} for step in steps))
        tasks = [asyncio.create_task(reads(web, run)) for _ in range(count)]
        tasks += [asyncio.create_task(listens(web, run, session)) for _ in range(count)]
        await asyncio.sleep(0.05 * count)  # most are there when it begins; the others come late
        begun = time.time()
        (web.place.folder / name).touch()
        async with asyncio.timeout(60 + 3 * SECONDS):
            await rested(client, run)
            found = await asyncio.gather(*tasks)
        [done] = (await client.get(f"/runs/{run}/events", params={"types": "done"})).json()["events"]
        return done["at"] - begun, found, done["seq"]


async def test_a_paced_run_does_not_feel_its_readers(tmp_path: Path) -> None:
    """I1, I3, I4: everybody sees every event once and in order; the run takes at most 1.2 times as long as alone."""
    paced = {"id": "p", "tool": "pace", "args": {"count": EVENTS, "seconds": SECONDS}}
    with serving(Place(tmp_path)) as web:
        alone, _, _ = await watched(web, 0, "alone", paced)
        took, found, last = await watched(web, READERS, "watched", paced)
    assert len(found) == 2 * READERS and last >= EVENTS
    for seen, dropped in found:
        assert dropped == 0 and seen == list(range(1, last + 1))
    assert took <= 1.2 * alone, (took, alone)
    print(f"{READERS} + {READERS} readers, {last} events: {took:.2f} s, alone {alone:.2f} s")


async def test_readers_of_a_run_at_full_speed_see_everything(tmp_path: Path) -> None:
    """I1, I3, I4: once and in order; whoever cannot keep up is told so, comes back, and has everything all the same."""
    many = [{"id": f"s{number}", "tool": "echo"} for number in range(FAST_EVENTS // 3)]
    with serving(Place(tmp_path), RERAIL_SERVER_MAX_BEHIND="500") as web:
        took, found, last = await watched(web, FAST_READERS, "fast", *many)
    assert last >= FAST_EVENTS
    for seen, _ in found:
        assert seen == list(range(1, last + 1))
    away = sum(dropped for _, dropped in found)
    print(f"{FAST_READERS} + {FAST_READERS} readers, {last} events in {took:.2f} s; let go {away} times")
