"""Runs whose steps are Ray tasks are driven by workers of the store; without Ray or a cluster that is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_executor import TOOLS, plan, settings, step

import rerail
from rerail.errors import Refused
from rerail.ports import Tool

pytestmark = pytest.mark.anyio

Load = Callable[[str], list[Tool]]


async def test_i6_a_worker_drives_a_queued_run_whose_steps_are_ray_tasks(
    cluster: Any, tools: Load, tmp_path: Path
) -> None:
    """I6: the process that queued the run only waits; the worker that took it up makes the calls in the cluster."""
    url, toolbox = f"sqlite:///{tmp_path}/runs.db", tools(TOOLS)
    async with rerail.Engine(url, toolbox) as asking, rerail.Engine(url, toolbox, settings()) as worker:
        run = await asking.submit(plan(step("where"), step("told")))
        assert await worker.internals.take_up(run)
        result = await asking.wait(run)
        events = [record.to_dict() for record in await asking.events(run)]
        assert not asking.internals.drives(run)
    assert result.success, result.summary
    assert result.steps["where"].output["pid"] != os.getpid()
    assert [one["reason"] for one in events if one["type"] == "resumed"] == ["queued"]
    assert result.steps["told"].output[4] == 2  # the fence of the worker


async def test_i6_on_ray_is_refused_with_what_to_do() -> None:
    """I6: actors of the cluster drive no runs any more; nothing is written."""

    @rerail.tool
    def fine() -> int:
        return 1

    async with rerail.Engine("memory://", [fine]) as engine:
        for start in (engine.start, engine.submit):
            with pytest.raises(Refused, match="on='ray' is gone") as refused:
                await start(plan(step("fine")), on="ray")
            assert "engine.submit" in refused.value.hint and "ray.steps" in refused.value.hint
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
    """I6 SPEC 12: an engine that is to use Ray says which extra to install."""
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError('no ray here', name='ray')\n")
    (tmp_path / "tools.py").write_text("from rerail import tool\n@tool\ndef fine() -> int:\n    return 1\n")
    (tmp_path / "plan.json").write_text('{"steps": [{"id": "a", "tool": "fine"}]}')
    said = subprocess.run(
        [sys.executable, "-m", "rerail.cli", "run", "plan.json", "--tools", "tools.py", "--set", "ray.steps=true"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert said.returncode == 2 and "'.[ray]'" in said.stderr, said.stderr
