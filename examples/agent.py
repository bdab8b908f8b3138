"""An agent with a plan that recovers: a model writes the plan, one of its guesses is wrong, and the run corrects it.

    python examples/agent.py            offline: a local server plays scripted answers of a model
    python examples/agent.py --real     your own model, as set in rerail.toml or the environment, for example

        RERAIL_MODEL_NAME=qwen3:8b RERAIL_MODEL_BASE_URL=http://localhost:11434/v1 python examples/agent.py --real

Needs the extra `llm`: pip install '.[llm]' in a clone
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import rerail
from rerail.testing import Answer, ModelServer

OBJECTIVE = "Tell the sales team how much the north region sold last month."
SALES = {"sales_2026_10_north": [120, 80, 250], "sales_2026_10_south": [90, 40]}


@rerail.tool(effect="read")
def list_regions() -> list[str]:
    """List the regions with sales data."""
    return ["north", "south"]


@rerail.tool(effect="read")
def read_sales(table: str) -> dict[str, Any]:
    """Read the amounts of a sales table; tables are named sales_YEAR_MONTH_REGION."""
    if table not in SALES:
        raise rerail.ToolError(f"there is no table {table!r}; tables of this region: {', '.join(SALES)}")
    return {"amounts": SALES[table]}


@rerail.tool(effect="read")
def add_up(amounts: list[float]) -> dict[str, float]:
    """Add up amounts."""
    return {"total": sum(amounts)}


@rerail.tool(effect="once")
def send_message(to: str, text: str) -> dict[str, str]:
    """Send a message to a team."""
    print(f"  [{to}] {text}")
    return {"sent_to": to}


TOOLS = [list_regions, read_sales, add_up, send_message]
# Answers of a small model: a good plan with a wrong guess, then a reflection on the error.
SCRIPT = {
    "plan": [
        Answer.fenced({
            "steps": [
                {"id": "read", "tool": "read_sales", "args": {"table": "sales_last_month_north"}},
                {"id": "sum", "tool": "add_up", "args": {"amounts": "${read.amounts}"}},
                {"id": "tell", "tool": "send_message", "args": {"to": "sales", "text": "North sold ${sum.total}."}},
            ],
            "reason": "read, add up, tell",
        })
    ],
    "reflect": [
        {
            "category": "parameter_error", "root_cause": "the table's name was a guess; the error lists the real ones",
            "recoverable": True, "suggestion": {"table": "sales_2026_10_north"}, "confidence": 95,
        }
    ],
}  # fmt: skip


async def main(settings: rerail.Settings) -> None:
    """Plan, run, recover, and report the cost."""
    async with rerail.Engine("memory://", TOOLS, settings) as engine:
        result = await engine.run(objective=OBJECTIVE)
        print(f"{result.status}: {result.summary}")
        for event in await engine.events(result.run_id):
            if event.type == "plan_accepted":
                print("the plan:", " → ".join(step.id for step in event.plan.steps))
            elif event.type == "reflected":
                print(f"{event.step} failed, {event.by} says {event.category}: {event.root_cause}")
            elif event.type == "recovered":
                print(f"{event.step}: {event.rung} {event.args}")
        print(f"the model was asked {calls(await engine.events(result.run_id))} times, {result.exec['tokens']} tokens")


def calls(events: list[Any]) -> int:
    """Count the calls of the model."""
    return sum(event.type == "consulted" for event in events)


if __name__ == "__main__":
    try:
        if "--real" in sys.argv:
            asyncio.run(main(rerail.Settings.discover()[0]))
        else:
            with ModelServer(SCRIPT) as server:
                asyncio.run(main(rerail.Settings.load({"model": {"name": "script", "base_url": server.base_url}})))
    except rerail.SettingsError as error:  # the extra is not installed, or no model is named
        sys.exit(f"examples/agent.py: {error}")
