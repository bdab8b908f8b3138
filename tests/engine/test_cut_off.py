"""Looks that fail, calls that never began, and tools that end in odd ways (X4, V8)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.test_effects import QUICK, now, of, run

import rerail
from rerail.engine.launch import Launch
from rerail.engine.performer import Performer
from rerail.kernel import events as ev
from rerail.plan.step import Effect, Step
from rerail.testing.virtual_time import VirtualClock, virtual_run

ERRORS = ({"error": "payment not found", "status": 404}, {"success": False}, "Error: 503 service unavailable")


@pytest.mark.parametrize("answer", [*ERRORS, None], ids=repr)
@pytest.mark.parametrize("of_step", [False, True])
def test_v8_a_look_that_answers_with_an_error_or_nothing_cannot_tell(answer: Any, of_step: bool) -> None:
    """V8: neither there, which would be a success that nobody made, nor absent, which would call again."""
    made: list[int] = []

    def look() -> Any:
        return answer

    @rerail.tool(effect="once", settle=0, **({} if of_step else {"verify": look}))
    def pay() -> None:
        made.append(1)
        raise ConnectionResetError("before the effect")

    step = {"verify": {"tool": "look"}} if of_step else {}
    result, events = run([pay, rerail.tool(look, effect="read")], **step)
    assert (result.status, result.in_doubt, len(made)) == ("waiting", ("a",), 1)
    assert of(events, ev.StepVerified)[0].effect == "unknown"


def test_v8_an_expectation_decides_over_a_null() -> None:
    """V8: a step that says what to expect of its look takes null for a plain no."""
    made: list[int] = []

    @rerail.tool(effect="once", settle=0)
    def pay() -> None:
        made.append(1)
        raise ConnectionResetError

    @rerail.tool(effect="read")
    def look() -> None: ...

    run([pay, look], verify={"tool": "look", "expect": {"paid": True}}, retries=1)
    assert len(made) > 1


@pytest.mark.parametrize("stubborn", [False, True])
def test_x4_a_call_that_is_cancelled_before_it_began_is_not_done(stubborn: bool) -> None:
    """X4: the intent is on record, the tool is not called: not then, and not once what held it up is over."""
    called: list[int] = []

    @rerail.tool(effect="once")
    async def pay() -> None:
        called.append(1)

    async def hold() -> None:
        until = now() + 30
        while now() < until:
            try:
                await asyncio.sleep(until - now())
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    async def main() -> Any:
        outcomes: list[Any] = []
        launch = Launch(Step("a", "pay"), 1, pay, pay.spec, {}, None, 60.0, Effect.ONCE)
        launch.term: Any = SimpleNamespace(is_current=False, lost=False, require=lambda step: None)
        launch.hold = hold
        performer = Performer({}, {}, 1000, VirtualClock())
        performer.launch(launch, outcomes.append)
        await asyncio.sleep(1)
        performer.cancel(launch, "RUN_CANCELLED")
        await asyncio.sleep(100)
        [outcome] = outcomes
        return outcome.events[0]

    failed = virtual_run(main)
    assert (failed.error.code, failed.lost, called) == ("RUN_CANCELLED", False, [])


def test_x4_a_tool_that_cancels_its_own_work_is_told_so() -> None:
    """X4, X3: it is lost, and nobody is told that an engine was closed."""

    @rerail.tool(effect="once")
    async def pay() -> None:
        inner = asyncio.create_task(asyncio.sleep(5))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    result, _ = run([pay])
    assert result.in_doubt == ("a",) and "not by this run" in result.steps["a"].error["message"]


def test_x3_a_tool_that_raises_generator_exit_ends_at_once() -> None:
    """X3: it is the tool's exception, not the end of the loop."""

    async def main() -> float:
        @rerail.tool(effect="once", timeout=60)
        async def odd() -> None:
            raise GeneratorExit

        async with rerail.Engine("memory://", [odd], QUICK, clock=VirtualClock()) as engine:
            result = await engine.run({"steps": [{"id": "a", "tool": "odd"}]})
            assert result.in_doubt == ("a",)
            return now()

    assert virtual_run(main) < 1


def test_v8_an_effect_that_no_look_found_is_not_told_as_shown() -> None:
    """V7, V8: a success whose looks could not tell is told as unverified, and nothing else."""

    @rerail.tool(effect="once", settle=3, verify=lambda: rerail.NotYet)
    def pay() -> Any:
        return {"id": 1}

    async def main() -> str:
        async with rerail.Engine("memory://", [pay], QUICK, clock=VirtualClock()) as engine:
            return str(await engine.why((await engine.run({"steps": [{"id": "a", "tool": "pay"}]})).run_id, "a"))

    told = virtual_run(main)
    assert "showed" not in told and "could not tell" in told
