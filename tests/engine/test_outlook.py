"""What an action would lead to is told before it is done, and then happens (R7, X7, I7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import PlanError, Refused, ToolError
from rerail.testing.scripted import Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
BROKEN: dict[str, Any] = {
    "steps": [
        {"id": "good", "tool": "good"},
        {"id": "bad", "tool": "bad", "needs": ["good"], "args": {"n": 1, "odd": True}},
        {"id": "after", "tool": "after", "needs": ["bad"]},
        {"id": "last", "tool": "last", "needs": ["after"], "confirm": "Really?"},
        {"id": "aside", "tool": "aside", "needs": [{"step": "bad", "when": "failure"}]},
    ]
}
GATED: dict[str, Any] = {
    "steps": [{"id": "pay", "tool": "pay", "confirm": "Pay?"}, {"id": "thank", "tool": "thank", "needs": ["pay"]}]
}
DOUBT: dict[str, Any] = {
    "steps": [
        {"id": "send", "tool": "send", "effect": "once"},
        {"id": "told", "tool": "told", "needs": ["send"]},
    ]
}
Act = Callable[[Engine, str, bool], Awaitable[Any]]


def _foreseen(what: dict[str, Any], world: World, act: Act) -> tuple[dict[str, Any], Any, list[str]]:
    """What is foreseen of an action, the run once it was really done, and what was called for it."""

    async def main() -> tuple[dict[str, Any], Any, list[str]]:
        async with world.engine(what, settings=PLAIN) as engine:
            run = (await engine.run(what)).run_id
            before, called = await engine.events(run), len(world.order)
            preview = await act(engine, run, True)
            assert await engine.events(run) == before, "nothing was written down"
            assert len(world.order) == called and not engine.internals.drives(run), "nothing happens"
            assert await act(engine, run, True) == preview, "it says the same again"
            assert await act(engine, run, False) is None
            return preview.to_dict(), await engine.wait(run), world.order[called:]

    return virtual_run(main)


def _steps(preview: dict[str, Any]) -> list[str]:
    return [row["step"] for row in preview["rerun"]]


def test_a_skip_is_foreseen() -> None:
    """X7, R7: the step is skipped at once; what needs it goes on, up to where somebody has to agree."""
    world = World(bad=[ToolError("no")])
    told, result, called = _foreseen(BROKEN, world, lambda engine, run, dry: engine.skip(run, "bad", dry_run=dry))
    assert told["becomes"] == {"bad": "skipped"}
    assert _steps(told) == ["after", "last"] and told["asks"] == ["last"]
    assert told["rerun"][0]["why"] == "has not run"
    assert told["kept"] == ["good", "aside"]
    assert told["leads_to"] == "running"
    assert called == ["after"] and result.status == "waiting"


def test_a_hole_that_nobody_accepts_is_foreseen() -> None:
    """H9, X7: what cannot do without the skipped output fails before its call, and the preview says so."""

    @rerail.tool
    def bad() -> str:
        """Fail."""
        raise ToolError("no")

    @rerail.tool
    def report(text: str, note: str | None = None) -> str:
        """Needs its text."""
        return text

    args = {"strict": {"text": "${bad}"}, "kind": {"text": "x", "note": "${bad}"}}
    steps = [{"id": name, "tool": "report", "args": given} for name, given in args.items()]

    async def main() -> tuple[dict[str, Any], Any]:
        async with Engine(MemoryStore(), [bad, report], PLAIN, clock=VirtualClock()) as engine:
            run = (await engine.run({"steps": [{"id": "bad", "tool": "bad"}, *steps]})).run_id
            told = await engine.skip(run, "bad", dry_run=True)
            await engine.skip(run, "bad")
            assert told is not None
            return told.to_dict(), await engine.wait(run)

    told, result = virtual_run(main)
    assert {row["step"]: row["why"] for row in told["rerun"]} == {
        "strict": "fails before its call: argument 'text' needs the output of step 'bad', which is missing",
        "kind": "has not run",
    }
    assert result.steps["strict"].error["code"] == "HOLE_NOT_ACCEPTED" and result.steps["kind"].status == "degraded"


def test_a_repair_is_foreseen() -> None:
    """H7, R7: the step and what depends on it; what is done is kept."""
    world = World(bad=[lambda **said: {} if "odd" not in said else ToolError("no")])
    told, result, called = _foreseen(
        BROKEN, world, lambda engine, run, dry: engine.repair(run, "bad", remove=["odd"], dry_run=dry)
    )
    assert told["roots"] == ["bad"] and told["becomes"] == {}
    assert {row["step"]: row["why"] for row in told["rerun"]} == {
        "bad": "asked for", "after": "has not run", "last": "has not run",
    }  # fmt: skip
    assert told["kept"] == ["good", "aside"] and told["leads_to"] == "running"  # a clean-up that ran keeps its result
    assert called == ["bad", "after"] and result.status == "waiting"


def test_a_word_for_a_gate_is_foreseen() -> None:
    """X7, R7: agreeing calls the step, and then what needs it; refusing fails it, and what needs it is skipped."""
    told, result, called = _foreseen(GATED, World(), lambda engine, run, dry: engine.confirm(run, dry_run=dry))
    assert _steps(told) == ["pay", "thank"] and told["roots"] == ["pay"]
    assert (told["asks"], told["becomes"], told["leads_to"]) == ([], {}, "running")
    assert called == ["pay", "thank"] and result.success
    told, result, called = _foreseen(
        GATED, World(), lambda engine, run, dry: engine.confirm(run, "pay", refuse=True, dry_run=dry)
    )
    assert told["becomes"] == {"pay": "failed", "thank": "skipped"} and told["rerun"] == []
    assert told["leads_to"] == result.status == "failed" and called == []


@pytest.mark.parametrize(
    ("answer", "becomes", "runs", "once", "leads_to"),
    [
        ({"succeeded": 7}, {"send": "succeeded"}, ["told"], [], "running"),
        ({"failed": True}, {"send": "failed", "told": "skipped"}, [], [], "failed"),
        ({"rerun": True}, {}, ["send", "told"], ["send"], "running"),
    ],
)
def test_an_answer_to_a_doubt_is_foreseen(
    answer: dict[str, Any], becomes: dict[str, str], runs: list[str], once: list[str], leads_to: str
) -> None:
    """E3, R7: each answer with what it ends, what runs then, and the effect that might happen twice."""
    world = World(send=[ToolError("the line broke", lost=True), {"sent": True}])
    told, result, called = _foreseen(
        DOUBT, world, lambda engine, run, dry: engine.resolve(run, "send", dry_run=dry, **answer)
    )
    assert (told["becomes"], _steps(told), told["once"], told["leads_to"]) == (becomes, runs, once, leads_to)
    assert called == runs
    assert {step: result.steps[step].status for step in becomes} == becomes


def test_what_would_be_refused_is_refused_by_its_dry_run() -> None:
    """X7, R7, P5: with the same code."""
    world = World(bad=[ToolError("no")])

    async def main() -> None:
        async with world.engine(BROKEN, settings=PLAIN) as engine:
            run = (await engine.run(BROKEN)).run_id
            for dry in (True, False):
                for code, act in (
                    ("STEP_ENDED", engine.skip(run, "good", dry_run=dry)),
                    ("STEP_UNKNOWN", engine.skip(run, "nobody", dry_run=dry)),
                    ("RUN_AT_REST", engine.confirm(run, "last", dry_run=dry)),
                    ("STEP_NOT_WAITING", engine.resolve(run, "bad", failed=True, dry_run=dry)),
                    ("VALUE_INVALID", engine.resolve(run, "bad", succeeded=object(), dry_run=dry)),
                ):
                    with pytest.raises(Refused) as refused:
                        await act
                    assert refused.value.code == code
                with pytest.raises(PlanError):
                    await engine.repair(run, "bad", tool="nowhere", dry_run=dry)

    virtual_run(main)


def test_a_live_run_is_looked_at_and_goes_on() -> None:
    """X7, R7: who looks ahead changes nothing of a run that is under way, here or in another process."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]},
                      {"id": "c", "tool": "c", "needs": ["b"]}]}  # fmt: skip
    world, store = World(a=[Took(10)]), MemoryStore()

    async def main() -> Any:
        async with world.engine(what, store=store, settings=PLAIN) as engine:
            run = await engine.start(what)
            await asyncio.sleep(1)
            preview = await engine.skip(run, "b", dry_run=True)
            async with Engine(store) as other:  # it has none of the tools
                assert await other.skip(run, "b", dry_run=True) == preview
                change = await other.repair(run, "b", args={"x": 1}, dry_run=True)
            result = await engine.wait(run)
            return preview, change, result

    preview, change, result = virtual_run(main)
    assert preview.becomes == {"b": "skipped"} and preview.leads_to == "running"
    assert [row["step"] for row in preview.rerun] == ["c"], "what is under way is nothing that would run"
    assert [row["step"] for row in change.rerun] == ["b", "c"]
    assert result.success and world.order == ["a", "b", "c"]


# -- A retry of what a process left behind ------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("behind", ["finally", "needs", "alone"])
def test_a_retry_of_an_interrupted_run_looks_first_and_says_so(behind: str, seen: bool) -> None:
    """R7, V8, P2: the call under way is looked for, whatever else the plan holds; clean-up is the cause of no retry."""
    calls: list[str] = []

    @rerail.tool(effect="once", verify=lambda: seen or calls.count("pay") > 1, settle=0.1)
    async def pay() -> int:
        calls.append("pay")
        if calls.count("pay") == 1:
            await asyncio.sleep(1000)
        return 1

    @rerail.tool(effect="read")
    async def other() -> int:
        calls.append("other")
        return 2

    steps: list[dict[str, Any]] = [{"id": "p", "tool": "pay"}]
    if behind != "alone":
        steps.append({"id": "o", "tool": "other", "needs": ["p"] if behind == "needs" else []})
    plan = {"steps": steps, "finally": ["o"] if behind == "finally" else []}

    async def main() -> tuple[dict[str, Any], Any]:
        store, clock = MemoryStore(), VirtualClock()
        async with Engine(store, [pay, other], PLAIN, clock=clock) as engine:
            run = await engine.start(plan)
            await asyncio.sleep(5)
        async with Engine(store, [pay, other], PLAIN, clock=clock) as engine:
            return (await engine.retry(run, dry_run=True)).to_dict(), await engine.retry(run)

    preview, result = virtual_run(main)
    assert "p" not in preview["kept"] and preview["once_if"] == ["p"] and preview["once"] == []
    assert "o" not in preview["roots"] or behind == "needs"
    assert {row["step"]: row["why"] for row in preview["rerun"]}["p"] == "its effect is looked for first"
    assert result.success and calls.count("pay") == (1 if seen else 2)


@pytest.mark.parametrize("refuse", [True, False])
def test_clean_up_that_an_answer_leads_to_is_told(refuse: bool) -> None:
    """P2, R7: the steps of `finally` follow a yes as they follow a no."""
    plan = {**GATED, "steps": [*GATED["steps"], {"id": "tidy", "tool": "tidy"}], "finally": ["tidy"]}
    preview, _, called = _foreseen(
        plan, World(), lambda engine, run, dry: engine.confirm(run, "pay", refuse=refuse, dry_run=dry)
    )
    assert "tidy" in _steps(preview) and called[-1] == "tidy"
