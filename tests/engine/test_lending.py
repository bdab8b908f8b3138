"""An engine that acts for others lends its own tools, and not those of whoever drives the run (I4, T7)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.kernel.commands import Add, Repair

QUICK: dict[str, Any] = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}
CHANGES: dict[str, dict[str, Any]] = {
    "a tool": {"id": "x", "tool": "secret"},
    "an alternative": {"id": "x", "tool": "plain", "alternatives": ["secret"]},
    "a fallback": {"id": "x", "tool": "plain", "fallback": {"tool": "secret", "args": {}}},
}


class Place:
    """A run that somebody drives with tools of their own, and a server that has fewer."""

    def __init__(self, folder: Path) -> None:
        self.store, self.calls, self.gate = f"sqlite:///{folder}/runs.db", list[str](), asyncio.Event()

    def tools(self) -> list[Any]:
        @rerail.tool
        async def plain(ctx: rerail.Context) -> int:
            self.calls.append(ctx.step)
            return 1

        @rerail.tool
        async def hold() -> None:
            await self.gate.wait()

        @rerail.tool
        async def secret(ctx: rerail.Context, fails: bool = False) -> int:
            self.calls.append(ctx.step)
            if fails:
                raise rerail.ToolError("no", category="tool_error")
            return 1

        return [plain, hold, secret]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


PLAN = {"steps": [{"id": "h", "tool": "hold"}, {"id": "own", "tool": "secret", "args": {"fails": True}}]}


async def settled(engine: rerail.Engine, run: str) -> None:
    """Wait until the step that fails has failed."""
    async for record in engine.watch(run):
        if record.type == "reflected":
            return


@pytest.mark.anyio
@pytest.mark.parametrize("change", CHANGES)
async def test_steps_that_are_added_use_what_is_lent(place: Place, change: str) -> None:
    """I4: neither as a tool nor as what is called in its place; what is here may be used."""
    everything = place.tools()
    async with rerail.Engine(place.store, everything, QUICK) as owner:
        run = await owner.start(PLAN)
        await settled(owner, run)
        async with rerail.Engine(place.store, everything[:2], QUICK) as lender:
            with pytest.raises(rerail.PlanError, match="tools that are here") as refused:
                await lender.do(run, Add(steps=(CHANGES[change],)), own_tools_only=True)
            assert {fault.step for fault in refused.value.faults} == {"x"}
            await lender.do(run, Add(steps=({"id": "y", "tool": "plain"},)), own_tools_only=True)
        place.gate.set()
        await owner.wait(run)
    assert place.calls == ["own", "y"]


@pytest.mark.anyio
@pytest.mark.parametrize("change", [{"args": {"fails": False}}, {"tool": "secret", "args": {"fails": False}}])
async def test_repairs_use_what_is_lent(place: Place, change: dict[str, Any]) -> None:
    """I4: arguments of a tool that is not here are not for its callers to choose, while its owner may."""
    everything = place.tools()
    async with rerail.Engine(place.store, everything, QUICK) as owner:
        run = await owner.start(PLAN)
        await settled(owner, run)
        async with rerail.Engine(place.store, everything[:2], QUICK) as lender:
            with pytest.raises(rerail.PlanError, match="tools that are here"):
                await lender.do(run, Repair(step="own", value=change), own_tools_only=True)
            await lender.do(run, Repair(step="own", value={"tool": "plain", "args": {}}), own_tools_only=True)
        place.gate.set()
        assert (await owner.wait(run)).success
    assert place.calls == ["own", "own"]
