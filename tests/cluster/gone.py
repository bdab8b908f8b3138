"""A program with a cluster of its own, whose head dies in the middle of calls; prints what became of them.

Two engines share its connection; only the first gives up a cluster that is gone within the time of this test.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

import rerail
from rerail.adapters.tools.loading import load_tools


async def main(folder: Path) -> None:
    """Run some steps, kill the head while they are at work, and wait."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    settings: dict[str, Any] = {
        "ray": {"steps": True, "address": cluster.address, "gone_after": 2, "cpus": 0.1},
        "retry": {"max_retry_rounds": 0, "backoff_base": 0.0, "max_wait": 12},  # a cluster that is away is waited for
    }
    patient = {**settings, "ray": {**settings["ray"], "gone_after": 600}}
    tools = load_tools(folder / "toolbox.py")
    async with (
        rerail.Engine("memory://", tools, settings) as engine,
        rerail.Engine("memory://", tools, patient) as other,
    ):
        run = await engine.start({"steps": [step(folder, "busy"), step(folder, "pay")]})
        theirs = await other.start({"steps": [step(folder, "busy", "shared")]})
        while not all((folder / tool).exists() for tool in ("busy", "pay", "shared")):  # noqa: ASYNC110 - files, by others
            await asyncio.sleep(0.05)
        cluster.head_node.kill_gcs_server(check_alive=False)
        cluster.head_node.kill_raylet(check_alive=False)
        result = await engine.wait(run)
        await other.wait(theirs)
        told = {"status": result.status, "codes": await codes(engine, run), "theirs": await codes(other, theirs)}
    print(json.dumps(told))


def step(folder: Path, tool: str, note: str = "") -> dict[str, Any]:
    """A step that leaves a note when it begins."""
    return {"id": tool, "tool": tool, "args": {"note": str(folder / (note or tool))}, "retries": 3}


async def codes(engine: rerail.Engine, run: str) -> list[tuple[str, str, bool]]:
    """What became of each attempt."""
    return [
        (told["step"], told["error"]["code"], told["lost"])
        for told in (record.to_dict() for record in await engine.events(run))
        if told["type"] == "step_failed"
    ]


asyncio.run(main(Path(sys.argv[1])))
