"""Reflection after a failure: the category of the failure decides the recovery, from cheap to thorough.

Three plans fail in three ways. A wrong argument is corrected. A broken tool is replaced. A plan that lacks a step gets
a repair, which does not help, and then a new plan. Each attempt is paid from a budget and recorded.
"""

import asyncio
from typing import Any

import rerail
from rerail.testing.scripted import ScriptedMind


@rerail.tool(effect="repeatable")
def data_upload(datasource_id: str) -> dict[str, str]:
    if datasource_id != "ds_001":
        raise rerail.ToolError(f"no such data source: {datasource_id}", suggest={"datasource_id": "ds_001"})
    return {"table": "uploads"}


def process_data(table: str) -> dict[str, int]:
    raise rerail.ToolError("the processing service crashed", category="tool_error")


def alternative_processor(table: str) -> dict[str, int]:
    return {"rows": 1200}


@rerail.tool(effect="once")
def load() -> dict[str, int]:
    return {"rows": 1200}


def clean(rows: int) -> dict[str, int]:
    return {"rows": rows - 17}


def feature_engineering(rows: int | None = None) -> dict[str, int]:
    if rows is None:
        raise rerail.ToolError("missing prerequisite data: nothing was cleaned", category="decomposition_error")
    return {"features": 42}


TOOLS = [data_upload, process_data, alternative_processor, load, clean, feature_engineering]

WRONG_ARGUMENT = {"steps": [{"id": "upload", "tool": "data_upload", "args": {"datasource_id": "ds_invalid"}}]}

TOOL_DOWN = {
    "steps": [
        {
            "id": "process",
            "tool": "process_data",
            "args": {"table": "uploads"},
            "alternatives": ["alternative_processor"],
        }
    ]
}

LACKS_A_STEP = {
    "steps": [{"id": "load", "tool": "load"}, {"id": "features", "tool": "feature_engineering", "needs": ["load"]}]
}

# Scripted answers of a model. Rerail checks each answer before it uses it.
mind = ScriptedMind(
    repair={"args": {"rows": None}, "reason": "perhaps it wants to be told that there are no rows"},
    replan={
        "reason": "features need cleaned rows",
        "steps": [
            {"id": "load", "tool": "load"},
            {"id": "clean", "tool": "clean", "args": {"rows": "${load.rows}"}},
            {"id": "features", "tool": "feature_engineering", "args": {"rows": "${clean.rows}"}},
        ],
    },
)


async def tell(engine: rerail.Engine, title: str, plan: dict[str, Any]) -> None:
    print(title)
    result = await engine.run(plan)
    for event in await engine.events(result.run_id):
        if event.type == "step_failed":
            print(f"   {event.step} failed: {event.error.message}")
        elif event.type == "reflected":
            print(f"   reflection: {event.category}, so {event.rung}")
        elif event.type == "recovered":
            print(f"   {event.rung}: {event.reason if event.rung == 'repair' else event.tool or event.args}")
        elif event.type == "replanned":
            added = ", ".join(step.id for step in event.course.steps)
            print(f"   new plan (revision {event.revision}): {added}; {event.reason}")
    for row in result.steps.values():
        print(f"   {row.id}: {row.status} by {row.tool} in call {row.attempts}: {row.output}")
    print(f"   verdict: {result.status}\n")


async def main() -> None:
    async with rerail.Engine("memory://", TOOLS, model=mind) as engine:
        await tell(engine, "1. A wrong argument: the error knows a better one", WRONG_ARGUMENT)
        await tell(engine, "2. A tool that is down: the plan names another", TOOL_DOWN)
        await tell(engine, "3. A plan that lacks a step: a repair does not help, a new plan does", LACKS_A_STEP)
    print(f"The mind was asked: {', '.join(question.kind for question in mind.asked)}")


asyncio.run(main())
