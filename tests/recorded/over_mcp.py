"""What the MCP server answers, asked by the SDK's client on stdio."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitResult
from tests.recorded.plain import Plain
from tests.recorded.runs import GATED, one
from tests.recorded.world import Place

ANSWERS = ("--allow", "confirm", "--allow", "resolve", "--allow", "skip")


async def _agreed(*_: Any) -> ElicitResult:
    """The person behind the client agrees to everything."""
    return ElicitResult(action="accept", content={"agree": True})


async def over_mcp(place: Place, told: dict[str, dict[str, Any]], plain: Plain) -> None:
    """Every tool that is offered, and its answers."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "rerail.cli", "mcp", *ANSWERS], cwd=str(place.folder),
        env={**place.environ, "RERAIL_MCP_TRUST_ELICITATION": "true"},
    )  # fmt: skip
    ids = {name: run for run, name in place.runs.items()}
    with Path(os.devnull).open("w") as nowhere:
        async with Client(stdio_client(server, errlog=nowhere), elicitation_callback=_agreed) as client:
            asked = _Called(place, client, told["mcp"], plain)
            for tool in (await client.list_tools()).tools:
                shape = {"schema": tool.input_schema, "annotations": tool.annotations and tool.annotations.model_dump()}
                told["mcp"][f"offered: {tool.name}"] = plain({"description": tool.description, **shape})
            await asked.look(ids)
            await asked.act()


class _Called:
    """Calls, each recorded under its tool and a name."""

    def __init__(self, place: Place, client: Client, told: dict[str, Any], plain: Plain) -> None:
        self._place, self._client, self._told, self._plain = place, client, told, plain

    async def call(self, name: str, note: str = "", /, **args: Any) -> Any:
        """A call, and its answer."""
        answer = await self._client.call_tool(name, args)
        said: Any = answer.structured_content
        if isinstance(said, dict) and name in ("run_plan", "start_plan") and "run_id" in said:
            self._place.runs.setdefault(said["run_id"], note)
        called = self._plain.text(
            f"{name} {' '.join(f'{key}={value}' for key, value in args.items() if key != 'plan')}"
        )
        called = called.strip() + (f" ({note})" if note else "")
        assert called not in self._told, called
        if name == "start_plan":  # under way: only its shape is sure
            said = {"run_id": said["run_id"], "has": dict.fromkeys(sorted(said), "…")}
        self._told[called] = {"is_error": answer.is_error, "content": self._plain(said)}
        return said

    async def look(self, ids: dict[str, str]) -> None:
        """Tools that show something."""
        heals, succeeds = ids["heals"], ids["succeeds"]
        await self.call("list_tools")
        await self.call("list_runs", status=["failed"], limit=2)
        for run in (heals, ids["waits"], ids["is in doubt"], ids["falls back"]):
            await self.call("show_run", run=run)
            await self.call("why_run", run=run)
        await self.call("why_run", run=heals, step="a")
        await self.call("wait_run", run=heals, seconds=1)
        await self.call("replay_run", run=heals, settings={"retry.max_retries": 0})
        await self.call("list_artifacts", run=succeeds)
        await self.call("read_artifact", run=succeeds, name="a")
        await self.call("show_run", run="nothing")
        await self.call("check_plan", "good", plan={"steps": [one("a")]})
        await self.call("check_plan", "bad", plan={"steps": [one("a", "okk"), one("b", needs=["z"])]})

    async def plan(self, name: str, *steps: dict[str, Any]) -> str:
        """A run of our own."""
        plan = {"objective": f"the run that {name}", "steps": list(steps)}
        return str((await self.call("run_plan", name, plan=plan, wait_seconds=30))["run_id"])

    async def act(self) -> None:
        """Tools that change something."""
        await self.call("run_plan", "bad", plan={"steps": [one("a", "okk")]})
        await self.call("start_plan", "begun by MCP", plan={"steps": [one("a")]})
        gate = await self.plan("waits in MCP", *GATED)
        await self.call("confirm_step", run=gate, dry_run=True)
        await self.call("add_steps", run=gate, steps=[one("x", "nothing")])
        await self.call("pause_run", run=gate)
        await self.call("resume_run", run=gate, wait_seconds=30)
        await self.call("confirm_step", run=gate, step="b", wait_seconds=30)
        await self.call("cancel_run", run=gate)
        ended = await self.plan("is cancelled in MCP", *GATED)
        await self.call("cancel_run", run=ended, reason="no need")
        doubt = await self.plan("is in doubt in MCP", one("a", "send"), one("b", args={"value": "${a.ok}"}))
        await self.call("resolve_step", run=doubt, step="a", outcome="succeeded", value={"ok": 1}, wait_seconds=30)
        wrong = await self.plan(
            "is repaired in MCP", one("a", "upload", args={"source": "ds_0"}), one("b", needs=["a"])
        )
        await self.call("retry_run", run=wrong, dry_run=True)
        await self.call("retry_run", run=wrong, wait_seconds=30)
        await self.call("repair_step", run=wrong, step="a", args={"source": "ds_1"}, wait_seconds=30)
        skipped = await self.plan("is skipped in MCP", one("a", "fail"), one("b", needs=["a"]))
        await self.call("skip_step", run=skipped, step="a", reason="not this time", wait_seconds=30)
