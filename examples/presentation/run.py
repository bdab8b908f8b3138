"""Slides from a topic: each task finds the results of earlier tasks, and the run completes although two tasks fail.

python run.py [--langgraph] [--store sqlite:///talk.db | redis://localhost:6379 | …]

It prints the messages that a chat front end receives over its socket. A client that joins late receives the same.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from tools import TOOLS

import rerail
from rerail.views.chat_messages import Message, ToolMessages

PLAN = Path(__file__).with_name("plan.yaml")
SETTINGS = {"retry": {"backoff_base": 0.05, "jitter": False}}
CIRCLE = [
    {"id": "handout", "tool": "generate_scripts", "args": {"pages": "${quiz}"}},
    {"id": "quiz", "tool": "generate_scripts", "args": {"pages": "${handout}"}},
]


def line(message: Message) -> str:
    """Return a message in a few words."""
    said, artifact = message.payload, message.payload.get("artifact")
    about = said.get("id") or said["messageId"]
    error = said.get("error") or {}
    facts = {
        "tool": said.get("toolName"),
        "title": said.get("title"),
        "retries left": said.get("retriesLeft"),
        "rung": said.get("rung"),
        "artifact": artifact and f"{artifact['name']} ({artifact['size']} bytes)",
        "status": said.get("status") if said.get("status") != "in_progress" else None,
        "error": error.get("code"),
    }
    words = ", ".join(f"{name}: {value}" for name, value in facts.items() if value not in (None, []))
    return f"   {message.name:<21} {about:<13} {words}"


async def by_itself(engine: rerail.Engine) -> str:
    """Let the engine drive the run; meanwhile it refuses two more tasks that need each other."""
    run = await engine.start(PLAN)
    try:
        await engine.add(run, CIRCLE)
    except rerail.PlanError as error:
        print(f"Refused: {error.faults[0].message}\n")
    messages = ToolMessages(run)
    async for event in engine.watch(run):
        for message in messages.feed(event):
            print(line(message))
    return run


async def by_langgraph(engine: rerail.Engine) -> str:
    """Let a LangGraph graph drive the run: planner → scheduler → executor → reflector."""
    from langgraph.checkpoint.memory import InMemorySaver

    from rerail.langgraph import build_graph

    graph = build_graph(engine, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "talk"}}
    messages, stages = None, []
    async for update in graph.astream({"plan": PLAN}, config):
        stages += list(update)
        run = next(iter(update.values()))["run"]
        messages = messages or ToolMessages(run)
        for event in await engine.events(run, messages.seq):
            for message in messages.feed(event):
                print(line(message))
    print(f"\nThe stages: {' → '.join(stages[:4])} → … ({len(stages)})")
    return run


async def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--langgraph", action="store_true")
    options.add_argument("--store", default="sqlite:///talk.db")
    asked = options.parse_args()
    async with rerail.Engine(asked.store, TOOLS, SETTINGS) as engine:
        run = await (by_langgraph if asked.langgraph else by_itself)(engine)
        result = await engine.show(run)
        print("\nThe slides")
        for slide in await engine.artifact(run, "slides"):
            print(f"   {slide['page']:<18} {slide['say']:<40} ({slide['color']})")
        print(f"\nThe verdict: {result.status}, degraded: {result.degraded}")
        for row in result.steps.values():
            if row.degraded or row.status == "skipped":
                print(f"   {row.id:<8} {row.status:<9} {row.degraded or row.code}")


asyncio.run(main())
