"""How the settings of `[server]` bite: each function says what two values of one of them tell apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx

import rerail
from rerail.api import Engine
from rerail.cli.commands.serve import _offered, _place
from rerail.errors import Refused
from rerail.kernel.events import Cancelled, Record
from rerail.server.app import Files, make_app
from rerail.server.feeds.runs import EventFeed, TooSlow, encoded
from rerail.server.mcp import server as mcp
from rerail.server.routes.streams import ALIVE, EventStream, _events
from rerail.server.state import ServerState
from rerail.settings.loading import Settings
from rerail.settings.tables import ServerTable

Given = Mapping[str, Any]


def table(given: Given) -> ServerTable:
    """The table that the settings make."""
    return Settings.load(given).server


def place(given: Given) -> tuple[str, str]:
    """Where it would listen."""
    return _place(None, table(given).host, table(given).port)


def withheld(given: Given) -> list[str]:
    """The tools that plans from outside may not use."""
    settings = Settings.load({**given, "tools": {"shell": {"ls": ["ls"]}}})
    session: Any = SimpleNamespace(settings=settings, given=(), load=lambda sources: [])
    return list(_offered(session, set(settings.server.allow))[1])


def answered(given: Given, body: bytes = b"", **headers: str) -> int:
    """The status of an answer."""

    async def main() -> int:
        async with Engine("memory://") as engine:
            app = make_app(ServerState(engine, table(given), table(given).token or ""), "127.0.0.1", Files())
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                if body:
                    return (await client.post("/api/v1/runs", content=body)).status_code
                return (await client.get("/api/v1/runs", headers=headers)).status_code

    return asyncio.run(main())


def beats(given: Given) -> bool:
    """Whether a heart beats within a moment."""

    async def main() -> bool:
        async with Engine("memory://") as engine:
            await engine.internals.forget()  # the smallest history there is
            serving = ServerState(engine, table(given))
            frames = _events(serving, "~memory", 1, until_rest=False, lang="")
            assert await anext(frames) == ALIVE  # at once, so that whoever connects knows
            try:
                async with asyncio.timeout(1.0):
                    return await anext(frames) == ALIVE
            except TimeoutError:
                return False
            finally:
                await serving.feeds.close()

    return asyncio.run(main())


def second_reader(given: Given) -> bool:
    """Whether a second reader is let in."""

    async def frames() -> Any:
        yield b""

    serving = ServerState(Engine("memory://"), table(given))
    serving.readers = 1
    try:
        EventStream(serving, frames())
    except Refused:
        return False
    return True


def kept(given: Given) -> bool:
    """Whether a reader that fell ten events behind is kept."""

    async def main() -> bool:
        tail = EventFeed(Engine("memory://"), "r")
        follow = tail.follow(0, most_behind=table(given).max_behind, heartbeat=0.01)
        assert await anext(follow) == ()  # it has kept up
        tail._kept, tail.seq = [encoded(Record("r", seq, 0.0, Cancelled())) for seq in range(1, 11)], 10
        try:
            return len(await anext(follow)) == 10
        except TooSlow:
            return False

    return asyncio.run(main())


def reads_on_record(given: Given) -> int:
    """How many reads of an output are recorded."""

    async def main() -> int:
        async with Engine("memory://", [rerail.tool(lambda: 1, name="one")]) as engine:
            run = (await engine.run({"steps": [{"id": "a", "tool": "one"}]})).run_id
            app = make_app(ServerState(engine, table(given)), "127.0.0.1", Files())
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                assert (await client.get(f"/api/v1/runs/{run}/artifacts/a")).status_code == 200
            return len([one for one in await engine.internals.audit_trail(run) if one.action == "read"])

    return asyncio.run(main())


def answered_over_mcp(given: Given) -> str:
    """What becomes of an agent's yes to its own gate, where the person behind it agrees."""

    async def agrees(words: str) -> bool:
        return True

    async def main() -> str:
        async with Engine("memory://", [rerail.tool(lambda: 1, name="one")], given, via="mcp") as engine:
            await engine.run({"steps": [{"id": "a", "tool": "one", "confirm": True}]}, run_id="r")
            request = mcp._Request(engine, {"run": "r", "step": "a", "wait_seconds": 5}, nothing, agrees)
            try:
                return str((await mcp._OFFERS["confirm_step"].answer(request))["status"])
            except Refused as refused:
                return refused.code

    return asyncio.run(main())


async def nothing(done: float, of: float | None, words: str) -> None:
    """Progress that is not looked at."""


SERVER_BITES: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "server.host": ("127.0.0.1", "::1", place, ("127.0.0.1", "8420"), ("::1", "8420")),
    "server.port": (1, 2, place, ("127.0.0.1", "1"), ("127.0.0.1", "2")),
    "server.token": (None, "secret", answered, 200, 401),
    "server.tokens": ({}, {"ops": {"digest": "sha256:0"}}, answered, 200, 401),
    "server.audit_reads": (False, True, reads_on_record, 0, 1),
    "mcp.trust_elicitation": (False, True, answered_over_mcp, "PERSON_NEEDED", "completed"),
    "server.allow": ([], ["shell"], withheld, ["ls"], []),
    "server.allow_hosts": ([], ["a.example"], lambda given: answered(given, host="a.example"), 421, 200),
    "server.allow_origins": (
        [], ["https://a.example"], lambda given: answered(given, origin="https://a.example"), 403, 200,
    ),
    "server.heartbeat": (0.1, 60, beats, True, False),
    "server.max_body": (1024, 4096, lambda given: answered(given, b"x" * 2000), 413, 400),
    "server.max_readers": (1, 2, second_reader, False, True),
    "server.max_behind": (5, 50, kept, False, True),
}  # fmt: skip
