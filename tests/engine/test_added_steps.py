"""Steps that are added to a run: from inside a tool as part of its success, and from outside at rest (M3, P5, X7)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.tools.loading import load_tools
from rerail.api import Engine
from rerail.context import Context
from rerail.errors import PlanError
from rerail.plan.step import Need, Step
from rerail.testing import crash_in_process
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.views.attempts import revisions

QUICK = {"retry": {"backoff_base": 0.0, "max_retry_rounds": 0}}
PLAN = {"steps": [{"id": "plan", "tool": "split"}, {"id": "end", "tool": "work", "needs": ["plan"]}]}
MORE = [
    {"id": "a", "tool": "work", "args": {"n": "${plan.n}"}},
    {"id": "b", "tool": "work", "args": {"n": 2}, "needs": ["a"]},
]


def tools(split: Any, **options: Any) -> tuple[list[Any], list[int]]:
    """The tool that adds steps, and one that works; and what the latter was called with."""
    done: list[int] = []

    @rerail.tool
    def work(n: int = 0) -> int:
        done.append(n)
        return n

    return [rerail.tool(split, name="split", **options), work], done


def lived(made: list[Any], plan: Any = PLAN, act: Any = None, **settings: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        options = {"settings": {**QUICK, **settings}, "clock": VirtualClock()}
        async with Engine("memory://", made, **options) as engine:
            result = await engine.run(plan)
            result = await act(engine, result) if act is not None else result
            return result, await engine.events(result.run_id)

    return virtual_run(main)


def of(events: list[Any], kind: str, step: str = "") -> list[Any]:
    return [event for event in events if event.type == kind and step in ("", event.step)]


# -- From inside a tool ---------------------------------------------------------------------------------------------


async def in_loop(ctx: Context) -> dict[str, int]:
    ctx.add(MORE)
    return {"n": 1}


def in_pieces(ctx: Context) -> dict[str, int]:
    for _ in range(2):
        ctx.add(MORE)
    return {"n": 1}


def in_thread(ctx: Context) -> dict[str, int]:
    ctx.add(MORE[0])
    ctx.add([Step("b", "work", {"n": 2}, needs=(Need("a"),))])
    return {"n": 1}


@pytest.mark.parametrize("split", [in_loop, in_thread, in_pieces])
def test_m3_added_steps_are_part_of_the_success(split: Any) -> None:
    """M3: in the same event; they run as steps of the plan, refer to earlier ones, and are told."""
    made, done = tools(split)
    result, events = lived(made)
    assert result.success and sorted(done) == [0, 1, 2] and set(result.steps) == {"plan", "end", "a", "b"}
    (added,) = of(events, "step_succeeded", "plan")
    assert [step.id for step in added.course.steps] == ["a", "b"]
    assert not of(events, "acted")


def test_m3_added_steps_are_told() -> None:
    """M3, I4: by `why`, in both languages, and as a revision of the plan."""
    made, _ = tools(in_loop)

    async def main() -> Any:
        async with Engine("memory://", made, settings=QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run(PLAN)).run_id
            return await engine.why(run, "plan"), await engine.why(run, "plan", lang="zh"), await engine.events(run)

    why, zh, records = virtual_run(main)
    assert "added steps: a, b" in why and "添加了步骤：a, b" in zh
    found = [(one["kind"], one["by"], len(one["steps"])) for one in revisions(records)]
    assert found == [("accepted", "", 2), ("added", "plan", 4)]


@pytest.mark.parametrize("how", ["raises", "returns", "times out"])
def test_m3_a_call_that_fails_adds_nothing(how: str) -> None:
    """M3: nor one that is lost; the next attempt adds its own, once."""
    calls: list[int] = []

    async def split(ctx: Context) -> Any:
        calls.append(1)
        ctx.add({"id": f"try{len(calls)}", "tool": "work"})
        if len(calls) > 1:
            return {"n": 1}
        if how == "raises":
            raise ConnectionError("broken")
        if how == "times out":
            await asyncio.sleep(100)
        return {"success": False, "message": "service unavailable"}

    made, _ = tools(split, timeout=5)
    result, _ = lived(made)
    assert result.success and set(result.steps) == {"plan", "end", "try2"}


FAULTY = [
    {"id": "end", "tool": "work"}, {"id": "x", "tool": "wrk"}, {"id": "y", "tool": "work", "needs": ["z"]},
    {"id": "z", "tool": "work", "needs": ["y"]}, {"id": "u", "tool": "work", "args": {"n": "${gone.n}"}},
    {"id": "w", "tool": "work", "args": {"m": 1}}, 7,
]  # fmt: skip


def test_p5_faults_fail_the_step_with_every_one_of_them() -> None:
    """P5, M3, V6: id taken, unknown tool, cycle, unknown reference, args; another try may add others."""
    calls: list[int] = []

    def split(ctx: Context) -> dict[str, int]:
        calls.append(1)
        ctx.add(FAULTY if len(calls) == 1 else MORE)
        return {"n": 1}

    made, done = tools(split)
    result, events = lived(made)
    (failed,) = of(events, "step_failed")
    assert (failed.error.code, failed.error.category, failed.called) == ("CHECK_FAILED", "tool_error", True)
    for part in ("2 times", "'wrk'", "y → z → y", "gone", '"m"', "mapping"):
        assert part in failed.error.message, part
    assert result.success and len(calls) == 2 and sorted(done) == [0, 1, 2]


@pytest.mark.parametrize("verify", [None, lambda: True])
def test_p5_after_a_once_effect_faults_leave_a_doubt(verify: Any) -> None:
    """P5, V6, E3: the effect is there, so it is not called again, nor taken for done without its steps."""
    calls: list[int] = []

    def split(ctx: Context) -> dict[str, int]:
        calls.append(1)
        ctx.add([*MORE, {"id": "x", "tool": "wrk"}])
        return {"n": 1}

    made, done = tools(split, effect="once", verify=verify)

    async def act(engine: Engine, waiting: Any) -> Any:
        assert waiting.status == "waiting" and waiting.steps["plan"].status == "in_doubt"
        assert "'wrk'" in waiting.steps["plan"].error["message"]
        await engine.resolve(waiting.run_id, "plan", succeeded={"n": 5})
        await engine.add(waiting.run_id, MORE)
        return await engine.wait(waiting.run_id)

    result, _ = lived(made, act=act)
    assert result.success and len(calls) == 1 and sorted(done) == [0, 2, 5]


def test_m3_the_same_steps_again_are_not_added_twice() -> None:
    """M3: a step that runs again and adds what it had added; other steps under a taken id are a fault."""
    others: list[Any] = [MORE, MORE, [{"id": "a", "tool": "work", "args": {"n": 9}}]]

    def split(ctx: Context) -> dict[str, int]:
        ctx.add(others.pop(0))
        return {"n": 1}

    made, done = tools(split)

    async def act(engine: Engine, first: Any) -> Any:
        second = await engine.retry(first.run_id, steps=["plan"], force=True)
        assert second.success and len(done) == 3  # the same output: nothing behind it is called again
        return await engine.retry(first.run_id, steps=["plan"], force=True)

    result, _ = lived(made, act=act, reflection={"max_step_retries": 0})
    assert result.steps["plan"].code == "CHECK_FAILED" and "'a'" in result.steps["plan"].error["message"]


def test_m3_only_a_call_under_way_adds() -> None:
    """M3: not its threads afterwards, nor a look at its effect; without an engine, a test sees what was added."""
    kept: list[Context] = []

    def split(ctx: Context) -> dict[str, int]:
        kept.append(ctx)
        return {"n": 1}

    result, _ = lived(tools(split)[0])
    assert result.success
    with pytest.raises(RuntimeError, match="its call has ended"):
        kept[0].add(MORE)
    ctx = Context()
    ctx.add(MORE[0])
    with pytest.raises(TypeError):
        ctx.add({"id": "x", "args": {"n": object()}})
    assert ctx.end() == (MORE[0],)


def test_p5_a_secret_in_an_added_step_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5, M3: as in a plan."""
    monkeypatch.setenv("ADD_KEY", "s3cret-value-of-a-key")

    def split(ctx: Context) -> dict[str, int]:
        ctx.add({"id": "x", "tool": "work", "title": "with s3cret-value-of-a-key"})
        return {"n": 1}

    result, _ = lived(tools(split, secrets=["ADD_KEY"])[0], reflection={"max_step_retries": 0})
    assert result.steps["plan"].code == "CHECK_FAILED" and "ADD_KEY" in result.steps["plan"].error["message"]


def test_e1_added_steps_survive_a_crash_at_any_moment() -> None:
    """E1, E2, M3: recorded with the success or not at all; a repeated call adds once."""

    def made() -> Iterator[Any]:
        yield from tools(in_loop)[0]

    report = crash_in_process(PLAN, made, QUICK)
    assert report.points > 20 and [trial.to_dict() for trial in report.broken] == []


ISOLATED = """
import rerail

@rerail.tool(isolated=True)
def split(ctx: rerail.Context):
    ctx.add([{"id": "a", "tool": "work", "args": {"n": "${plan.n}"}}])
    return {"n": 4}

@rerail.tool
def work(n: int = 0):
    return n
"""


def test_m3_an_isolated_process_adds_steps(tmp_path: Path) -> None:
    """M3: they travel with its answer."""
    (tmp_path / "tools.py").write_text(ISOLATED)

    async def main() -> Any:
        async with Engine("memory://", load_tools(tmp_path / "tools.py")) as engine:
            return await engine.run(PLAN)

    result = asyncio.run(main())
    assert result.success and result.steps["a"].output == 4


# -- From outside, at rest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_x7_steps_added_at_rest_run_in_a_round_of_their_own(status: str) -> None:
    """X7: what is done is not called again; a failed need skips them; a person's retries are not used up."""
    made, done = tools(lambda: None)
    first = rerail.tool(lambda: {"failed": 1 / 0, "completed": 1}[status] if status == "failed" else 1, name="first")

    async def main() -> Any:
        async with Engine("memory://", [*made, first], settings=QUICK, clock=VirtualClock()) as engine:
            gate = [{"id": "g", "tool": "work", "args": {"n": 3}, "confirm": True}] if status == "cancelled" else []
            plan = {"steps": [{"id": "f", "tool": "first"}, *gate]}
            run = (await engine.run(plan)).run_id
            if status == "cancelled":
                await engine.cancel(run)
                await engine.wait(run)
            assert (await engine.show(run)).status == status
            await engine.add(run, [{"id": "x", "tool": "work", "args": {"n": 8}}], by="ann")
            await engine.add(run, [{"id": "y", "tool": "work", "args": {"n": 9}, "needs": ["x", "f"]}], by="ann")
            result = await engine.wait(run)
            if status == "cancelled":  # what never got to run waits again
                assert result.status == "waiting" and result.waiting_on[0]["step"] == "g"
            with pytest.raises(PlanError, match="2 times"):
                await engine.add(run, [{"id": "x", "tool": "work"}])
            return result, await engine.events(run)

    result, events = virtual_run(main)
    begun = [event for event in events if event.type == "retry_begin"]
    assert {(event.operation, event.counted, event.roots) for event in begun} == {("add", False, ())}
    assert begun[0].chain == ("x",)
    assert done == ([8] if status == "failed" else [8, 9])
    if status == "failed":
        assert result.status == "failed" and result.steps["y"].code == "SKIP_UPSTREAM_FAILED"
    elif status == "completed":
        assert result.success


def test_x7_a_run_added_to_at_rest_survives_a_crash() -> None:
    """X7, E1, T7: the command is one commit; the next engine goes on, though the first closed at once."""
    made, done = tools(lambda: None)
    plan = {"steps": [{"id": "w", "tool": "work"}]}

    async def main() -> Any:
        store = MemoryStore()
        async with Engine(store, made, settings=QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run(plan)).run_id
            await engine.add(run, [{"id": "x", "tool": "work", "args": {"n": 8}}])
        async with Engine(store, made, settings=QUICK, clock=VirtualClock()) as engine:
            return await engine.resume(run)

    assert virtual_run(main).success and 8 in done
