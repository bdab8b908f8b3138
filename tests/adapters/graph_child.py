"""A process that lets a graph run a plan of `once` tools, and kills itself after so many stages.

python -m tests.adapters.graph_child FOLDER STAGES
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

import rerail
from rerail.langgraph import build_graph

CONFIG = {"configurable": {"thread_id": "1"}}
PLAN = {
    "steps": [
        {"id": "a", "tool": "act", "args": {"name": "a"}},
        {"id": "b", "tool": "act", "args": {"name": "${a}b"}},
        {"id": "c", "tool": "act", "args": {"name": "${b}c"}},
    ]
}


def tools(folder: Path) -> list[Any]:
    """What must not happen twice: a line in a file."""

    @rerail.tool(effect="once")
    async def act(name: str) -> str:
        with (folder / "acts.txt").open("a") as file:
            file.write(f"{name}\n")
        return name

    return [act]


async def main(folder: Path, stages: int) -> None:
    async with (
        AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver,
        rerail.Engine(f"sqlite:///{folder}/runs.db", tools(folder)) as engine,
    ):
        graph = build_graph(engine, checkpointer=saver)
        known = (await graph.aget_state(CONFIG)).created_at is not None
        async for update in graph.astream(None if known else {"plan": PLAN}, CONFIG, durability="sync"):
            print(*update, flush=True)
            stages -= 1
            if not stages:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
