"""A run as somebody sees it who watches: steps, spans, waits, budgets, offers, and what was tried (I4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rerail.api import Engine
from rerail.errors import RateLimited, ToolError
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.testing import Took, VirtualClock, World, virtual_run
from rerail.views.attempts import difference, revisions, step_detail
from rerail.views.live_run import Board, Changes, Life, critical_path, run_view

Act = Callable[[Engine, str], Awaitable[None]]
LOST = ToolError("gone", lost=True)


def lived(world: World, *steps: dict[str, Any], act: Act | None = None, **settings: Any) -> list[Record]:
    """The history of a run."""
    plan = {"objective": "o", "steps": list(steps)}

    async def main() -> list[Record]:
        async with Engine("memory://", world.tools(plan), settings, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="r")
            if act is not None:
                await act(engine, run)
            await engine.wait(run)
            return await engine.events(run)

    return virtual_run(main)


def seen(world: World, *steps: dict[str, Any], act: Act | None = None, **settings: Any) -> dict[str, Any]:
    """A run as it looks at the end."""
    records = lived(world, *steps, act=act, **settings)
    return run_view(Board.of("r", records), records[-1].at)


def test_attempts_and_waits_are_spans_of_time() -> None:
    """I4: each call from when to when, with what came of it, and the waits between."""
    world = World(t=[Took(2, ConnectionRefusedError("down")), RateLimited("later", retry_after=5), Took(1, 7)])
    step = seen(world, {"id": "a", "tool": "t"}, retry={"jitter": False, "backoff_base": 3})["steps"]["a"]
    assert [(one["attempt"], one["outcome"], one["code"]) for one in step["spans"]] == [
        (1, "failed", "TOOL_FAILED"), (2, "not_now", "RATE_LIMITED"), (3, "succeeded", None),
    ]  # fmt: skip
    assert [round(one["to"] - one["from"]) for one in step["spans"]] == [2, 0, 1]
    assert [(one["why"], round(one["until"] - one["from"])) for one in step["waits"]] == [
        ("backoff", 3),
        ("not_now", 5),
    ]
    assert (step["status"], step["attempts"], step["retries_left"], step["rung"]) == ("succeeded", 3, 2, "retry")
    assert step["actions"] == [] and step["waiting_for"] is None


def test_a_gate_is_offered_and_its_wait_has_a_beginning() -> None:
    """I4, X7: a run that waits for a person says for what, since when, and what may be done."""
    world = World()
    waiting = seen(world, {"id": "a", "tool": "t", "confirm": "Really?"}, {"id": "b", "tool": "t", "needs": ["a"]})
    assert waiting["status"] == "waiting" and waiting["waiting_on"][0]["for"] == "confirm"
    assert waiting["actions"] == ["confirm", "pause", "cancel", "add"]
    gate = waiting["steps"]["a"]
    assert gate["waiting_for"] == "confirm" and gate["waits"][0]["until"] is None
    assert gate["actions"] == ["confirm", "resolve", "skip", "repair", "retry"]

    async def agree(engine: Engine, run: str) -> None:
        await engine.wait(run)
        await asyncio.sleep(10)
        await engine.confirm(run, "a")

    done = seen(world, {"id": "a", "tool": "t", "confirm": True}, act=agree)["steps"]["a"]
    assert done["status"] == "succeeded"
    assert [(one["why"], round(one["until"] - one["from"])) for one in done["waits"]] == [("confirm", 10)]


def test_a_doubt_asks_for_an_answer() -> None:
    """I4, E3: the call is a doubt until somebody says what became of it."""
    world = World(t=[ToolError("gone", lost=True)]).option("t", effect="once")
    view = seen(world, {"id": "a", "tool": "t"})
    step = view["steps"]["a"]
    assert (step["status"], step["waiting_for"], step["effect"]) == ("in_doubt", "in_doubt", "once")
    assert step["spans"][0]["outcome"] == "doubt" and step["actions"] == ["resolve", "skip"]
    assert "resolve" in view["actions"] and "retry" not in view["actions"]

    async def answer(engine: Engine, run: str) -> None:
        await engine.wait(run)
        await engine.resolve(run, "a", succeeded=1)

    world = World(t=[ToolError("gone", lost=True)]).option("t", effect="once")
    assert seen(world, {"id": "a", "tool": "t"}, act=answer)["steps"]["a"]["spans"][0]["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("script", "answer", "outcomes"),
    [
        ([LOST], {"succeeded": 1}, ["succeeded"]),
        ([LOST], {"failed": True}, ["failed"]),
        ([LOST, 1], {"rerun": True}, ["doubt", "succeeded"]),
        ([ToolError("no")], {"succeeded": 1}, ["failed"]),  # it failed, whatever stands for its output since
        ([RateLimited("later", retry_after=5), 1], None, ["not_now", "succeeded"]),
    ],
)
def test_timeline_and_attempts_tell_the_same(script: list[Any], answer: Any, outcomes: list[str]) -> None:
    """I4, E3: what a call came to has one word; a person's answer is that of the call in doubt, and makes no other."""

    async def act(engine: Engine, run: str) -> None:
        await engine.wait(run)
        if answer is not None:
            await engine.resolve(run, "a", **answer)

    world = World(t=script).option("t", effect="once")
    plain = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 1}}
    records = lived(world, {"id": "a", "tool": "t", "retries": 0 if answer else 1}, act=act, **plain)
    board = Board.of("r", records)
    detail = step_detail(board, board.state.tracks["a"], records, {})
    assert [span["outcome"] for span in board.lives["a"].spans] == outcomes
    assert [one["outcome"] for one in detail["tries"]] == outcomes


def test_budgets_say_what_is_spent_of_what() -> None:
    """I4, H4: retries, tokens, cost, time and replans, each with its bound or none."""
    world = World(t=[ConnectionRefusedError("down"), 1])
    view = seen(world, {"id": "a", "tool": "t"}, run={"max_attempts": 9, "max_seconds": 100})
    found = {row["name"]: (row["used"], row["of"]) for row in view["budgets"]}
    assert found["attempts"] == (2, 9) and found["retries"] == (0, 3) and found["step_retries"] == (1, None)
    assert found["tokens"] == (0, None) and found["time"][1] == 100 and found["replans"] == (0, 1)
    assert view["counts"]["succeeded"] == 1 and "used" not in view["exec"]


def test_an_interrupted_run_spends_no_time() -> None:
    """I4, H4: nobody drives it, so its budget of time stands where its history ends; one that is driven goes on."""

    async def main() -> list[Record]:
        what = {"steps": [{"id": "a", "tool": "t"}]}
        world = World(t=[Took(1000, 1)])
        async with Engine(
            "memory://", world.tools(what), {"run": {"max_seconds": 100}}, clock=VirtualClock()
        ) as engine:
            run = await engine.start(what, run_id="r")
            await asyncio.sleep(5)
            return await engine.events(run)

    records = virtual_run(main)
    board, last = Board.of("r", records), records[-1].at

    def spent(now: float, *, interrupted: bool) -> tuple[float, float]:
        view = run_view(board, now, interrupted=interrupted)
        [row] = [row for row in view["budgets"] if row["name"] == "time"]
        return row["used"], view["elapsed"]

    assert spent(last + 50, interrupted=True) == spent(last, interrupted=True) == spent(last, interrupted=False)
    assert spent(last + 50, interrupted=False)[0] == spent(last, interrupted=False)[0] + 50


def test_the_critical_path_is_the_longest_by_time() -> None:
    """I4: not the one with most steps."""
    world = World(slow=[Took(50, 1)], quick=[Took(1, 1)])
    records = lived(
        world,
        {"id": "a", "tool": "quick"},
        {"id": "b", "tool": "quick", "needs": ["a"]},
        {"id": "c", "tool": "slow", "needs": ["a"]},
        {"id": "d", "tool": "quick", "needs": ["b"]},
        {"id": "e", "tool": "quick", "needs": ["d", "c"]},
    )
    assert critical_path(Board.of("r", records).state, records[-1].at) == ["a", "c", "e"]


def test_a_patch_holds_what_changed_and_nothing_else() -> None:
    """I4: the step that moved, the header's fields that are others; time alone is no news."""
    records = lived(World(), {"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "needs": ["a"]})
    board = Board("r")
    changes = Changes(board)
    changes.view(0.0, {})
    for record in records[:2]:
        board.feed(record)
    first = changes.patch(1.0, {"owner": "me"})
    assert first is not None and first["order"] == ["a", "b"] and first["run"]["owner"] == "me"
    board.feed(records[2])
    second = changes.patch(2.0, {"owner": "me"})
    assert second is not None and list(second["steps"]) == ["a"] and "order" not in second
    assert "owner" not in second["run"] and second["seq"] == 3
    assert changes.patch(99.0, {"owner": "me"}) is None
    third = changes.patch(99.0, {"owner": "you"})
    assert third is not None and third["run"]["owner"] == "you" and "status" not in third["run"] and not third["steps"]


def test_attempts_show_what_changed_of_the_arguments() -> None:
    """I4: with which arguments, what was thought of the failure, which rung was taken, and what the tool logged."""
    world = World(t=[ToolError("no such city", suggest={"city": "Paris"}), "sunny"])
    records = lived(
        world, {"id": "a", "tool": "t", "args": {"city": "Pariss", "days": 2}}, {"id": "b", "tool": "t", "needs": ["a"]}
    )
    board = Board.of("r", records)
    detail = step_detail(board, board.state.tracks["a"], records, {})
    first, second = detail["tries"]
    assert first["args"] == {"city": "Pariss", "days": 2} and first["outcome"] == "failed"
    assert first["reflection"]["category"] == "parameter_error" and first["reflection"]["rung"] == "adjusted_arguments"
    assert second["changed"] == {"city": ["Pariss", "Paris"]} and second["rung"] == "adjusted_arguments"
    assert detail["downstream"] == ["b"] and detail["plan_step"]["args"]["city"] == "Pariss"
    assert [one["attempt"] for one in detail["reflections"]] == [1]
    assert difference({"a": 1, "b": 2}, {"b": 3, "c": 4}) == {"a": [1, None], "b": [2, 3], "c": [None, 4]}
    assert difference(None, {"a": 1}) == {}


def test_revisions_are_the_plan_as_it_stood_after_each_change() -> None:
    """I4, H7: accepted, then repaired and added to by a person, with who and why."""

    async def change(engine: Engine, run: str) -> None:
        await engine.wait(run)
        await engine.repair(run, "a", args={"n": 2}, by="ann")
        await engine.add(run, [{"id": "c", "tool": "t"}], by="bob")
        await engine.confirm(run, "b")

    world = World(t=[ValueError("no"), 1])
    steps = ({"id": "a", "tool": "t", "args": {"n": 1}, "retries": 0}, {"id": "b", "tool": "t", "confirm": True})
    records = lived(world, *steps, act=change, retry={"max_retry_rounds": 0})
    found = revisions(records)
    assert [(one["revision"], one["kind"], one["by"]) for one in found] == [
        (1, "accepted", ""), (2, "acted", "ann"), (3, "acted", "bob"),
    ]  # fmt: skip
    assert found[0]["steps"][0]["args"] == {"n": 1} and found[1]["steps"][0]["args"] == {"n": 2}
    assert [step["id"] for step in found[2]["steps"]] == ["a", "b", "c"]
    assert found[0]["seq"] == 2 and found[2]["seq"] > found[1]["seq"]


def test_the_view_speaks_the_readers_language() -> None:
    """I4, T12: sentences of ours in Chinese; codes and what tools said as they are."""
    records = lived(World(t=[ValueError("no")]), {"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "needs": ["a"]})
    view = run_view(Board.of("r", records), records[-1].at, "zh")
    assert view["steps"]["b"]["error"]["code"] == "SKIP_UPSTREAM_FAILED"
    assert "上游依赖步骤失败" in view["steps"]["b"]["error"]["message"]
    assert view["status"] == "failed" and view["failed_steps"][0]["reason"] == "no"


def test_whoever_asks_for_another_try_is_on_no_rung() -> None:
    """I4, R6: the first attempt after a person's retry was not led to by the ladder, which had given up."""

    async def again(engine: Engine, run: str) -> None:
        await engine.wait(run)
        await engine.retry(run)

    world = World(t=[ConnectionRefusedError("down"), ValueError("no"), ConnectionRefusedError("down"), 1])
    records = lived(world, {"id": "a", "tool": "t", "retries": 1}, act=again, retry={"max_retry_rounds": 0})
    board = Board.of("r", records)
    tried = step_detail(board, board.state.tracks["a"], records, {})["tries"]
    assert tried[1]["reflection"]["rung"] == "fail"
    assert [one["rung"] for one in tried] == [None, "retry", None, "retry"]


def test_every_change_of_the_plan_is_a_revision() -> None:
    """H7, I4: a repair at rest counts as one that is made live, and as a step that is added."""

    async def change(engine: Engine, run: str) -> None:
        await engine.wait(run)
        await engine.repair(run, "a", args={"n": 2})
        await engine.wait(run)
        await engine.repair(run, "a", args={"n": 3})
        await engine.add(run, [{"id": "c", "tool": "t"}])
        await engine.confirm(run, "b", ahead=True)

    world = World(t=[ValueError("no"), ValueError("no"), 1])
    steps = ({"id": "a", "tool": "t", "retries": 0}, {"id": "b", "tool": "t", "needs": ["a"], "confirm": True})
    records = lived(world, *steps, act=change, retry={"max_retry_rounds": 0})
    assert [record.type for record in records].count("done") == 3
    assert Board.of("r", records).state.revision == len(revisions(records)) == 4


def test_the_life_of_a_step_is_told_without_gaps_or_overlaps() -> None:
    """I4: a wait ends where a call or the next wait begins; a call keeps the end that it had."""
    life = Life()
    life.wait(1.0, 9.0, "backoff")
    life.wait(2.0, None, "confirm")
    life.begin(ev.StepStarted("a", 1, "t"), 3.0)
    assert life.waits == [
        {"from": 1.0, "until": 2.0, "why": "backoff"}, {"from": 2.0, "until": 3.0, "why": "confirm"},
    ]  # fmt: skip
    shown = life.spans[0]
    life.end(1, 5.0, "doubt", "TIMEOUT")
    assert shown["outcome"] == "running", "what was handed out stays as it was"
    ended = {"attempt": 1, "tool": "t", "from": 3.0, "to": 5.0}
    assert life.spans == [{**ended, "outcome": "doubt", "code": "TIMEOUT"}]
    life.answer(1, "succeeded")
    assert life.spans == [{**ended, "outcome": "succeeded", "code": None}]
    life.answer(1, "failed")  # nobody is in doubt any more
    life.end(7, 8.0, "failed")  # never begun
    life.wait(6.0, 7.0, "backoff")
    life.wait_over(8.0)
    assert life.spans[0]["outcome"] == "succeeded" and life.waits[-1]["until"] == 7.0


def test_of_very_many_calls_and_waits_the_latest_are_shown() -> None:
    """I4: sixty of each."""
    life = Life()
    for n in range(1, 71):
        life.wait(n, n + 0.5, "backoff")
        life.begin(ev.StepStarted("a", n, "t"), n + 0.5)
    assert [span["attempt"] for span in life.spans] == list(range(11, 71))
    assert [wait["from"] for wait in life.waits] == list(range(11, 71))
