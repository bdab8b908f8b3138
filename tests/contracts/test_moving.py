"""A run that is not at rest moves through every kind of store, and goes on in the last one alone (T7, I5, I6)."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.servers import NamedPostgres, NamedRedis, PostgresServer, RedisServer

import rerail
from rerail.engine.copying import copy_runs
from rerail.engine.owner import is_dead
from rerail.wiring import make_store

CALLS: list[str] = []


@rerail.tool
def make(n: int) -> str:
    """Something large enough to be kept beside the history."""
    CALLS.append(f"make {n}")
    return "x" * 20_000


@rerail.tool(effect="once")
def pay(what: str) -> int:
    """What must not happen twice."""
    CALLS.append("pay")
    return len(what)


PLAN: dict[str, Any] = {
    "steps": [
        {"id": "make", "tool": "make", "args": {"n": 1}},
        {"id": "pay", "tool": "pay", "args": {"what": "${make}"}, "confirm": True},
    ]
}


async def moved(source: str, target: str) -> list[str]:
    """Move everything; what became of it."""
    there, here = make_store(source), make_store(target)
    await there.open()
    await here.open()
    try:
        rows = copy_runs(there, here, [], lambda head: is_dead(head, time.time()), move=True, by="ann")
        return [row.outcome async for row in rows]
    finally:
        await here.close()
        await there.close()


async def test_a_waiting_run_moves_through_all_stores(
    postgres: PostgresServer | NamedPostgres, redis_server: RedisServer | NamedRedis, tmp_path: Path
) -> None:
    """T7: what waits for a person is confirmed in the last store; all others say where it went, and call nothing."""
    places = [
        f"sqlite:///{tmp_path / 'a.db'}",
        postgres.fresh(),
        redis_server.fresh(),
        f"sqlite:///{tmp_path / 'b.db'}",
    ]
    async with rerail.Engine(places[0], [make, pay]) as engine:
        run = await engine.start(PLAN)
        assert (await engine.wait(run)).status == "waiting"
    for source, target in pairwise(places):
        assert await moved(source, target) == ["moved"]
    async with rerail.Engine(places[-1], [make, pay]) as engine:
        await engine.confirm(run, "pay")
        result = await engine.wait(run)
        assert (result.status, result.steps["pay"].output) == ("completed", 20_000)
    for place in places[:-1]:
        async with rerail.Engine(place, [make, pay]) as engine:
            assert (await engine.show(run)).status == "cancelled"
            with pytest.raises(rerail.Refused, match="was moved to"):
                await engine.retry(run)
    assert CALLS == ["make 1", "pay"]
