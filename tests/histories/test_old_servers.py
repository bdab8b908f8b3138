"""Runs of an earlier version whose plan names MCP servers: shown as ever, driven with those of the settings (E5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.histories.make import QUICK, Script
from tests.histories.test_golden import Golden, read

import rerail
from rerail.kernel.codec import decode, encode
from rerail.kernel.events import PlanAccepted
from rerail.plan.model import Plan
from rerail.plan.step import Step
from rerail.testing import virtual_run

SERVERS = {"clock": {"command": "mcp-server-time"}}


def with_servers(name: str, **more: Any) -> Golden:
    """A golden history whose plan names servers, as earlier versions wrote it down."""
    golden = read(name)
    for line in golden.lines:
        event = decode(bytes(line.event))
        if isinstance(event, PlanAccepted):
            plan = msgspec.structs.replace(event.plan, mcp=SERVERS, **more)
            line.event = msgspec.Raw(encode(msgspec.structs.replace(event, plan=plan, brought=("act",))))
    return golden


def engine_of(golden: Golden, store: Any, *tools: Any) -> rerail.Engine:
    return rerail.Engine(store, tools, QUICK, clock=golden.clock)


def test_e5_a_run_whose_plan_names_servers_is_shown() -> None:
    """E5: with its story, its events and its plan as they were."""
    golden = with_servers("0.1.0-failed")

    async def look() -> None:
        async with engine_of(golden, await golden.store()) as engine:
            shown = await engine.show("run")
            assert shown.status == "failed" and await engine.why("run")
            [accepted] = [event for event in await engine.events("run") if event.type == "plan_accepted"]
            assert accepted.plan.mcp == SERVERS and accepted.brought == ("act",)

    virtual_run(look)


@pytest.mark.parametrize(("name", "act"), [("failed", "retry"), ("interrupted", "resume"), ("interrupted", "take_up")])
def test_e5_driving_it_needs_its_servers_in_the_settings(name: str, act: str) -> None:
    """E5, P5: the refusal names them; once their tools are at hand the run goes on."""
    golden, script = with_servers(f"0.1.0-{name}"), Script()

    async def drive() -> Any:
        store = await golden.store()
        async with engine_of(golden, store) as engine:
            before = await engine.events("run")
            with pytest.raises(rerail.PlanError) as refused:
                await getattr(engine.internals if act == "take_up" else engine, act)("run")
            assert [fault.code for fault in refused.value.faults] == ["UNKNOWN_TOOL", "MCP_NOT_ALLOWED"]
            assert "(clock)" in refused.value.message and "[mcp.servers]" in refused.value.message
            assert await engine.events("run") == before
        async with engine_of(golden, store, *script.tools()) as engine:
            await getattr(engine.internals if act == "take_up" else engine, act)("run")
            return await engine.wait("run")

    result = virtual_run(drive)
    assert result.status == "completed" and script.calls, result.summary


def test_e5_what_follows_such_a_run_needs_them_too() -> None:
    """E5, T6: a follow-up of an old plan is started once its tools are at hand, and says before what it lacks."""
    after = Plan("", (Step("x", "act"),), mcp={"late": {"command": "x"}})
    golden, script = with_servers("0.1.0-success", follow_up=after), Script()

    async def follow() -> Any:
        store = await golden.store()
        async with engine_of(golden, store) as engine:
            with pytest.raises(rerail.PlanError) as refused:
                await engine.retry("run")
            assert [fault.code for fault in refused.value.faults] == ["UNKNOWN_TOOL", "MCP_NOT_ALLOWED"]
            assert "(clock, late)" in refused.value.message
        async with engine_of(golden, store, *script.tools()) as engine:
            return await engine.retry("run")

    result = virtual_run(follow)
    assert result.status == "completed" and result.run_id != "run" and script.calls == ["x"]
