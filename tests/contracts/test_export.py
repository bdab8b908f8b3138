"""A run at rest travels through every kind of store, and goes on in the last one (E10, I5, I6)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.servers import NamedPostgres, NamedRedis, PostgresServer, RedisServer

import rerail

CALLS: list[str] = []


@rerail.tool
def make(n: int) -> str:
    """Something large enough to be kept beside the history."""
    CALLS.append(f"make {n}")
    return "é" * 20_000


@rerail.tool(effect="once")
def pay(what: str) -> int:
    """What fails the first time."""
    CALLS.append("pay")
    if CALLS.count("pay") == 1:
        raise rerail.ToolError("no money", category="permanent_error")
    return len(what)


PLAN: dict[str, Any] = {
    "steps": [
        {"id": "make", "tool": "make", "args": {"n": 1}},
        {"id": "pay", "tool": "pay", "args": {"what": "${make}"}},
    ]
}


async def test_a_failed_run_travels_through_all_stores(
    postgres: PostgresServer | NamedPostgres, redis_server: RedisServer | NamedRedis, tmp_path: Path
) -> None:
    """E10: as a copy it is shown and nothing goes on with it; the store that owns it retries what failed, no more."""
    places = [
        f"sqlite:///{tmp_path / 'a.db'}",
        postgres.fresh(),
        redis_server.fresh(),
        f"sqlite:///{tmp_path / 'b.db'}",
    ]
    async with rerail.Engine(places[0], [make, pay]) as engine:
        run = (await engine.run(PLAN)).run_id
    for n, (source, target) in enumerate(pairwise(places)):
        file = str(tmp_path / f"{n}.jsonl")
        assert await typed("export", run, "--output", file, "--store", source) == 0
        assert await typed("import", file, "--store", target) == 0
        async with rerail.Engine(target, [make, pay]) as engine:
            assert (await engine.show(run)).status == "failed"
            with pytest.raises(rerail.Refused, match="is a copy") as refused:
                await engine.retry(run, force=True)
            assert refused.value.code == "RUN_COPIED"
    assert await typed("import", file, "--own", "--store", places[-1]) == 0
    async with rerail.Engine(places[-1], [make, pay]) as engine:
        result = await engine.retry(run, force=True)
        assert (result.status, result.steps["pay"].output) == ("completed", 20_000)
    assert CALLS == ["make 1", "pay", "pay"]


async def typed(*words: str) -> int:
    """Type a command; returns its exit code."""
    command = [sys.executable, "-m", "rerail.cli", *words]
    return (await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)).returncode
