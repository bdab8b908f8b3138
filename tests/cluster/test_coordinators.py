"""Runs whose loop is an actor of the cluster: they end although its node does not live to see it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import Node
from tests.cluster.test_executor import TOOLS, plan, settings, step, until
from tests.contracts.servers import NamedPostgres, PostgresServer

import rerail
from rerail.errors import Refused
from rerail.ports import Tool

pytestmark = pytest.mark.anyio

Load = Callable[[str], list[Tool]]


def on_ray(**ray: Any) -> dict[str, Any]:
    given = settings(**ray)
    given["ray"]["steps"] = False  # here; the coordinator's steps are tasks all the same
    return given


async def test_a_run_on_ray_is_driven_there(
    cluster: Any, tools: Load, postgres: PostgresServer | NamedPostgres, tmp_path: Path
) -> None:
    """I6: its loop and its steps are elsewhere; this process only waits, and its settings went along."""
    url = postgres.fresh()
    async with rerail.Engine(url, tools(TOOLS), on_ray()) as engine:
        run = await engine.start(plan(step("where"), step("told")), on="ray")
        assert not engine.drives(run)
        result = await engine.wait(run)
        events = [record.to_dict() for record in await engine.events(run)]
        owner = (await engine.head(run)).owner
    assert result.success, result.summary
    assert events[0]["queued"] and events[0]["policy"]["max_retry_rounds"] == 0
    assert [one["reason"] for one in events if one["type"] == "resumed"] == ["queued"]
    assert result.steps["told"].output[4] == 2  # the fence of the one that took it up
    assert owner is None


async def test_the_node_of_a_coordinator_dies(
    cluster: Any,
    node: Node,
    tools: Load,
    postgres: PostgresServer | NamedPostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I6 E1 E3 T7: its run goes on from the log elsewhere; what was done is not done again.

    What it is made from is large here (each tool takes the search path along), as with tools that travel by value: Ray
    would keep that as an object, and forget it once the actor is there.
    """
    monkeypatch.setattr(sys, "path", [*sys.path, *(f"/nowhere/{n:090}" for n in range(150))])
    first = node(coordinators=1)
    paid, slow = tmp_path / "paid", tmp_path / "slow"
    here = {"cpu": 0.1, "head": 1}
    steps = [
        step("pay", args={"note": str(paid), "seconds": 0}, resources=here),
        step("again", args={"note": str(slow)}, needs=["pay"], resources=here),
    ]
    given = on_ray(coordinator={"coordinators": 1})
    async with rerail.Engine(postgres.fresh(), tools(TOOLS), given) as engine:
        run = await engine.start(plan(*steps), on="ray")
        await until(slow.exists, 60)
        owner = (await engine.head(run)).owner
        cluster.remove_node(first, allow_graceful=False)
        node(coordinators=1)
        result = await engine.wait(run)
        took = [record.to_dict() for record in await engine.events(run) if record.to_dict()["type"] == "resumed"]
    assert result.success, result.summary
    assert [one["lost"] for one in took] == [(), ("again",)] and owner is not None
    assert result.steps["again"].attempts == 2 and result.steps["pay"].attempts == 1
    assert paid.read_text().split().count("cleaned") == 1


async def test_what_cannot_be_driven_on_ray_is_refused_at_once(cluster: Any, tmp_path: Path) -> None:
    """I6: a store that nobody else can open, a place that is none; nothing is written."""

    @rerail.tool
    def fine() -> int:
        return 1

    async with rerail.Engine("memory://", [fine], settings()) as engine:
        with pytest.raises(Refused, match="other processes"):
            await engine.start(plan(step("fine")), on="ray")
        with pytest.raises(Refused, match="'mars'"):
            await engine.start(plan(step("fine")), on="mars")
        assert await engine.list() == []


async def test_no_cluster_is_said(tmp_path: Path) -> None:
    """I6 SPEC 12: whoever names a cluster that is not there hears of it, and how to get one."""
    code = (
        "import asyncio, rerail\n"
        "async def go():\n"
        "    async with rerail.Engine('memory://', [], {'ray': {'steps': True, 'address': '127.0.0.1:1'}}): pass\n"
        "try: asyncio.run(go())\n"
        "except rerail.RerailError as error: print(error.code, error.hint)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "CLUSTER_UNREACHABLE" in said.stdout and "ray start" in said.stdout, said.stderr[-2000:]


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    """I6 SPEC 12: an engine that is to use Ray, and a run that is to be driven there, say which extra to install."""
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError('no ray here', name='ray')\n")
    (tmp_path / "tools.py").write_text("from rerail import tool\n@tool\ndef fine() -> int:\n    return 1\n")
    (tmp_path / "plan.json").write_text('{"steps": [{"id": "a", "tool": "fine"}]}')
    for words in (("--set", "ray.steps=true"), ("--on", "ray")):
        said = subprocess.run(
            [sys.executable, "-m", "rerail.cli", "run", "plan.json", "--tools", "tools.py", *words],
            cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert said.returncode == 2 and "rerail[ray]" in said.stderr, said.stderr
