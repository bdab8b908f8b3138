"""A program with a cluster of its own, whose head dies in the middle of two calls; prints what became of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

import rerail
from rerail.adapters.tools.loading import load_tools


async def main(folder: Path) -> None:
    """Run two steps, kill the head while they are at work, and wait."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    settings = {
        "ray": {"steps": True, "address": cluster.address, "gone_after": 2, "cpus": 0.1},
        "retry": {"max_retry_rounds": 0, "backoff_base": 0.0},
    }
    steps = [{"id": tool, "tool": tool, "args": {"note": str(folder / tool)}, "retries": 3} for tool in ("busy", "pay")]
    async with rerail.Engine("memory://", load_tools(folder / "toolbox.py"), settings) as engine:
        run = await engine.start({"steps": steps})
        while not all((folder / tool).exists() for tool in ("busy", "pay")):  # noqa: ASYNC110 - files, by others
            await asyncio.sleep(0.05)
        cluster.head_node.kill_gcs_server(check_alive=False)
        cluster.head_node.kill_raylet(check_alive=False)
        result = await engine.wait(run)
        codes = [
            (told["step"], told["error"]["code"], told["lost"])
            for told in (record.to_dict() for record in await engine.events(run))
            if told["type"] == "step_failed"
        ]
    print(json.dumps({"status": result.status, "codes": codes}))


asyncio.run(main(Path(sys.argv[1])))
