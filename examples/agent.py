"""An agent whose plan heals: a model writes the plan, one of its guesses is wrong, and the run mends it.

    python examples/agent.py            offline: the model's answers are a script, behind a real socket
    python examples/agent.py --real     your own model, as rerail.toml or the environment names it, for example

        RERAIL_MODEL_NAME=qwen3:8b RERAIL_MODEL_BASE_URL=http://localhost:11434/v1 python examples/agent.py --real

Needs the extra `llm`: pip install 'rerail[llm]'
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
    """The regions that sales are kept for."""
    return ["north", "south"]


@rerail.tool(effect="read")
def read_sales(table: str) -> dict[str, Any]:
    """The amounts in a sales table; tables are named sales_YEAR_MONTH_REGION."""
    if table not in SALES:
        raise rerail.ToolError(f"there is no table {table!r}; tables of this region: {', '.join(SALES)}")
    return {"amounts": SALES[table]}


@rerail.tool(effect="read")
def add_up(amounts: list[float]) -> dict[str, float]:
    """The sum of some amounts."""
    return {"total": sum(amounts)}


@rerail.tool(effect="once")
def send_message(to: str, text: str) -> dict[str, str]:
    """Send a message to a team."""
    print(f"  [{to}] {text}")
    return {"sent_to": to}


TOOLS = [list_regions, read_sales, add_up, send_message]
# What a small model might say: a good plan with a wrong guess, then what to make of the error.
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
    """Plan, run, heal, and tell what it took."""
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
    """How often the model was called."""
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
