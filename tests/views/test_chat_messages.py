"""The messages of chat front ends, event by event (I3)."""

from __future__ import annotations

import asyncio
from typing import Any

from rerail.api import Engine
from rerail.errors import ToolError
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.plan.model import Plan
from rerail.plan.step import Step
from rerail.testing import World, virtual_run
from rerail.testing.scripted import Took
from rerail.views.chat_messages import ToolMessages


def told(world: World, *steps: dict[str, Any], act: Any = None) -> list[tuple[str, dict[str, Any]]]:
    """The messages of a run."""
    plan = {"objective": "o", "steps": list(steps)}

    async def main() -> list[Record]:
        from rerail.testing import VirtualClock

        async with Engine("memory://", world.tools(plan), clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="r")
            await engine.wait(run)
            if act is not None:
                await act(engine, run)
                await engine.wait(run)
            return await engine.events(run)

    messages = ToolMessages("r")
    return [(name, said) for record in virtual_run(main) for name, said in messages.feed(record)]


def shape(messages: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What was told, in short."""
    return [f"{name.rpartition(':')[2]} {said.get('id') or said['messageId']}" for name, said in messages]


def test_a_step_that_succeeds_is_started_made_and_completed() -> None:
    """I3: start, artifact, complete, with the fields of the protocol and the seq of the event each came from."""
    found = told(World(fetch=[{"rows": 3}]), {"id": "get", "tool": "fetch", "title": "Fetch it"})
    assert shape(found) == ["start task_get", "artifact task_get", "complete task_get"]
    start, artifact, complete = (said for _, said in found)
    assert start == {
        "id": "task_get", "seq": 3, "runId": "r", "role": "assistant", "kind": "tool", "status": "in_progress",
        "toolName": "fetch", "title": "Fetch it", "stage": None, "stepId": "get",
    }  # fmt: skip
    assert artifact["messageId"] == "task_get" and artifact["showInCanvas"] is False
    assert artifact["artifact"]["name"] == "get" and artifact["artifact"]["mediaType"] == "application/json"
    assert complete["status"] == "completed" and complete["artifactIds"] == ["get"] and "error" not in complete
    assert start["seq"] < artifact["seq"] < complete["seq"]


def test_retries_are_updates_that_say_how_many_are_left() -> None:
    """I3: one message however often the tool is called, and its end is that of the last call."""
    found = told(World(t=[ConnectionRefusedError("down"), ConnectionRefusedError("down"), 1]), {"id": "a", "tool": "t"})
    assert shape(found)[0] == "start task_a" and shape(found)[-2:] == ["artifact task_a", "complete task_a"]
    updates = [said for name, said in found if name == "tool:message:update"]
    assert [said["retriesLeft"] for said in updates if "delay" in said] == [2, 1]
    assert {said["status"] for said in updates} == {"in_progress"}
    assert [said["error"]["code"] for said in updates if "error" in said] == ["TOOL_FAILED", "TOOL_FAILED"]


def test_each_kind_of_end_has_its_word() -> None:
    """I3: failed with its error; skipped without ever having been called; exactly one complete each."""
    world = World(bad=[ValueError("no")], odd=[ValueError("no")])
    found = told(
        world,
        {"id": "a", "tool": "bad"},
        {"id": "b", "tool": "t", "needs": ["a"]},
        {"id": "c", "tool": "odd", "critical": False},
        {"id": "d", "tool": "t", "needs": [{"step": "c", "when": "failure"}]},
    )
    ends = {said["id"]: said for name, said in found if name == "tool:message:complete"}
    assert {name: said["status"] for name, said in ends.items()} == {
        "task_a": "failed", "task_b": "skipped", "task_c": "skipped", "task_d": "skipped",
    }  # fmt: skip
    assert ends["task_a"]["error"]["message"] == "no" and ends["task_b"]["error"]["code"] == "SKIP_UPSTREAM_FAILED"
    starts = [said["id"] for name, said in found if name == "tool:message:start"]
    assert sorted(starts) == sorted(said["id"] for name, said in found if name == "tool:message:complete")
    assert starts.count("task_a") == 2  # an automatic round followed


def test_a_cancel_ends_what_is_under_way() -> None:
    """I3: whatever was started is completed as cancelled, and what was not is not spoken of."""
    from rerail.testing import Took

    async def cancel(engine: Engine, run: str) -> None:
        await engine.cancel(run)

    async def main() -> list[Record]:
        import asyncio

        from rerail.testing import VirtualClock

        plan = {"objective": "o", "steps": [{"id": "a", "tool": "slow"}, {"id": "b", "tool": "t", "needs": ["a"]}]}
        world = World(slow=[Took(100, 1)])
        async with Engine("memory://", world.tools(plan), clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="r")
            await asyncio.sleep(5)
            await cancel(engine, run)
            await engine.wait(run)
            return await engine.events(run)

    messages = ToolMessages("r")
    found = [one for record in virtual_run(main) for one in messages.feed(record)]
    assert [(name.rpartition(":")[2], said.get("status")) for name, said in found if "task_a" in said.values()] == [
        ("start", "in_progress"), ("complete", "cancelled"),
    ]  # fmt: skip


def test_a_doubt_that_nobody_answered_is_over_once_the_run_is() -> None:
    """I3: cancelled in the middle of a call that must not happen twice: nobody knows, and the message is ended."""
    import asyncio

    from rerail.testing import Took, VirtualClock

    async def main() -> list[Record]:
        plan = {"objective": "o", "steps": [{"id": "a", "tool": "slow"}]}
        world = World(slow=[Took(100, 1)]).option("slow", effect="once")
        async with Engine("memory://", world.tools(plan), clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="r")
            await asyncio.sleep(5)
            await engine.cancel(run)
            assert (await engine.wait(run)).steps["a"].status == "in_doubt"
            return await engine.events(run)

    messages = ToolMessages("r")
    found = [one for record in virtual_run(main) for one in messages.feed(record)]
    assert [said["status"] for name, said in found if name == "tool:message:complete"] == ["cancelled"]


def test_a_step_that_is_done_again_is_told_again() -> None:
    """I3: a retry starts the message anew, and completes it anew."""

    async def again(engine: Engine, run: str) -> None:
        await engine.retry(run)

    world = World(t=[ValueError("no"), ValueError("no"), 1])
    found = told(world, {"id": "a", "tool": "t", "retries": 0}, act=again)
    ends = [said["status"] for name, said in found if name == "tool:message:complete"]
    assert ends == ["failed", "failed", "completed"]  # the first round, the automatic one, the person's
    assert shape(found).count("start task_a") == 3


def test_an_output_given_by_hand_completes_the_step() -> None:
    """I3, X7: a doubt keeps its message open; the answer ends it."""
    from rerail.errors import ToolError

    async def answer(engine: Engine, run: str) -> None:
        assert (await engine.show(run)).status == "waiting"
        await engine.resolve(run, "a", succeeded={"by": "hand"})

    world = World(t=[ToolError("gone", lost=True)]).option("t", effect="once")
    found = told(world, {"id": "a", "tool": "t"}, act=answer)
    assert shape(found) == ["start task_a", "update task_a", "artifact task_a", "complete task_a"]
    assert found[-1][1]["status"] == "completed"


def test_a_step_that_was_to_be_done_again_and_was_cancelled_says_so() -> None:
    """I3: what it had before is no end of the second message."""

    async def act(engine: Engine, run: str) -> None:
        await engine.begin_retry(run, steps=["get"], force=True)
        await asyncio.sleep(1)
        await engine.cancel(run)

    found = told(World(fetch=[1, Took(60, 2)]), {"id": "get", "tool": "fetch"}, act=act)
    ends = [said["status"] for name, said in found if name.endswith("complete")]
    assert ends == ["completed", "cancelled"]


def test_what_is_told_of_a_failure_on_the_way_and_at_its_end() -> None:
    """I3: its code, category and words; how many retries are left; and the stage that the step belongs to."""
    broke = [ConnectionRefusedError("down"), ToolError("never", category="permanent_error", code="NO_KEY")]
    found = told(World(t=broke), {"id": "a", "tool": "t", "stage": "reading"})
    assert found[0][1]["stage"] == "reading"
    updates = [said for name, said in found if name == "tool:message:update" and "error" in said]
    assert updates[0]["error"]["category"] == "transient_error" and updates[0]["error"]["message"] == "down"
    assert [said["retriesLeft"] for said in updates] == [3, 2][: len(updates)]
    again = [said for name, said in found if name == "tool:message:update" and said.get("toolName")]
    assert [said["retriesLeft"] for said in again] == [2]
    assert found[-1][1]["error"] == {"code": "NO_KEY", "category": "permanent_error", "message": "never"}


def test_a_step_that_is_spoken_of_and_has_not_ended_is_not_started_by_it() -> None:
    """I3: exactly one start, when it begins, or when it ends without a call."""
    events: list[Any] = [
        ev.RunStarted(), ev.PlanAccepted(Plan("", (Step("a", "t", confirm=True),))), ev.Acted("confirm", "ann", "a"),
        ev.StepVerified("a", 0, "unknown"), ev.Declined("repair", "a"), ev.StepStarted("a", 1, "t"),
    ]  # fmt: skip
    messages = ToolMessages("r")
    found = [messages.feed(Record("r", n + 1, float(n), event)) for n, event in enumerate(events)]
    assert [len(one) for one in found] == [0, 0, 0, 0, 0, 1] and messages.seq == 6
