"""What is done about a failed step: which rungs, in which order, with whose proposals, and what is not believed.

Row by row through the engine, on virtual time (H1, H3, H5-H9).
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import ToolError
from rerail.kernel import events as ev
from rerail.plan.step import Step
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

NO_ROUNDS = {"retry": {"max_retry_rounds": 0}}
PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
BROKE = ToolError("it broke", category="tool_error")
ALL = ("transient", "parameter", "tool", "dependency", "decomposition", "permanent", "unknown")


def one(**more: Any) -> dict[str, Any]:
    return {"steps": [{"id": "a", "tool": "a", **more}]}


def history(world: World, what: Any, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            result = await engine.run(what)
            return result, await engine.events(result.run_id)

    return virtual_run(main)


def run_with(tools: list[Any], what: Any, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with Engine("memory://", tools, clock=VirtualClock(), **options) as engine:
            result = await engine.run(what)
            return result, await engine.events(result.run_id)

    return virtual_run(main)


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


def chosen(events: list[Any]) -> list[str]:
    """The rung that was chosen for each failure, in order."""
    return [str(event.rung) for event in of(events, "reflected")]


class Failing:
    """A tool that always fails with a category, each time in other words."""

    def __init__(self, category: str) -> None:
        self.category, self.count = f"{category}_error", 0

    def __call__(self, **args: Any) -> Any:
        self.count += 1
        return ToolError(f"failure number {self.count}", category=self.category)


# -- H3: the table, row by row ------------------------------------------------------------------------------------

ON_THEIR_OWN = {
    "transient": "retry retry retry fail",
    "parameter": "fail",
    "tool": "retry retry retry fail",
    "dependency": "fail",
    "decomposition": "fail",
    "permanent": "fail",
    "unknown": "retry retry retry fail",
}
WITH_AN_ALTERNATIVE = {
    "transient": "retry retry alternative_tool fail",
    "parameter": "fail",
    "tool": "alternative_tool retry retry fail",
    "dependency": "fail",
    "decomposition": "fail",
    "permanent": "alternative_tool fail",
    "unknown": "retry retry retry fail",
}
WITH_MINDS = {
    "transient": "retry retry retry replan fail",
    "parameter": "repair replan fail",
    "tool": "retry retry retry repair retry retry retry replan fail",
    "dependency": "repair replan fail",
    "decomposition": "repair replan fail",
    "permanent": "fail",
    "unknown": "retry retry retry repair retry retry retry replan fail",
}
TO_THE_END = {
    "transient": "retry retry alternative_tool fallback skip",
    "parameter": "repair fallback skip",
    "tool": "alternative_tool retry retry repair alternative_tool retry retry fallback skip",
    "dependency": "repair fallback skip",
    "decomposition": "repair fallback skip",
    "permanent": "alternative_tool fallback skip",
    "unknown": "retry retry retry repair retry retry retry fallback skip",
}


@pytest.mark.parametrize("category", ALL)
def test_a_step_on_its_own(category: str) -> None:
    """H1, H3: the first rungs of a category, as far as there is anything to take."""
    world = World(a=[Failing(category)])
    result, events = history(world, one(), settings=NO_ROUNDS)
    assert chosen(events) == ON_THEIR_OWN[category].split()
    assert result.status == "failed"
    assert result.steps["a"].error["category"] == f"{category}_error"
    assert {str(event.category) for event in of(events, "reflected")} == {f"{category}_error"}


@pytest.mark.parametrize("category", ALL)
def test_a_step_with_an_alternative(category: str) -> None:
    """H3: categories that do not list the alternative tool do not use it."""
    world = World(a=[Failing(category)], b=[Failing(category)])
    _, events = history(world, one(alternatives=["b"]), settings=NO_ROUNDS)
    assert chosen(events) == WITH_AN_ALTERNATIVE[category].split()
    assert bool(world.calls_of("b")) is ("alternative_tool" in WITH_AN_ALTERNATIVE[category])


@pytest.mark.parametrize("category", ALL)
def test_a_step_with_minds(category: str) -> None:
    """H3, H7, H8: repair where it is listed, replan for every category but permanent, each within its budget."""
    mind = ScriptedMind(repair=lambda question: {"args": {"n": len(mind.asked)}}, replan=None)
    world = World(a=[Failing(category)])
    _, events = history(world, one(), model=mind, settings=NO_ROUNDS)
    assert chosen(events) == WITH_MINDS[category].split()


@pytest.mark.parametrize("category", ALL)
def test_the_whole_ladder_of_an_optional_step(category: str) -> None:
    """H3: fallback, then skip; an optional step never reaches replan."""
    mind = ScriptedMind(repair=lambda question: {"args": {"n": len(mind.asked)}}, replan=None)
    world = World({name: [Failing(category)] for name in "abf"})
    what = one(alternatives=["b"], fallback={"tool": "f"}, critical=False)
    result, events = history(world, what, model=mind, settings=NO_ROUNDS)
    assert chosen(events) == TO_THE_END[category].split()
    assert (world.calls_of("f"), result.steps["a"].code) == (1, "SKIP_OPTIONAL")
    assert result.success and result.degraded


@pytest.mark.parametrize("category", ALL)
def test_an_untried_alternative_is_named_with_the_reason(category: str) -> None:
    """H3: "nothing left to try" is not said of a step whose alternative was passed over without a word."""
    for what, options in ((one(alternatives=["b"]), {}), (one(), {"alternatives": ["b"]})):
        world = World(a=[BROKE], b=[BROKE]).option("a", **options)
        world.script["a"] = [Failing(category)]
        _, events = history(world, what, settings=PLAIN)
        refused = of(events, "reflected")[-1].refused
        told = f"alternatives (b) follow a transient_error, tool_error or permanent_error, not {category}_error"
        listed = "alternative_tool" in WITH_AN_ALTERNATIVE[category]
        assert list(refused) == ([] if listed else [told])


def test_a_tools_own_alternatives_come_after_the_steps() -> None:
    """P1, H3: the step's word first; then the tool's."""
    world = World(a=[BROKE], b=[BROKE], c=[{"v": 1}]).option("a", alternatives=["c"])
    history(world, one(alternatives=["b"]), settings=NO_ROUNDS)
    assert world.order == ["a", "b", "c"]


def test_an_alternative_that_cannot_take_the_arguments_is_passed_over() -> None:
    """H5: refused with the reason, and the ladder goes on."""
    needs_more = {"type": "object", "properties": {"must": {"type": "string"}}, "required": ["must"]}
    world = World(a=[BROKE], c=[{"v": 1}]).option("b", schema=needs_more)
    result, events = history(world, one(alternatives=["b", "c"]), settings=NO_ROUNDS)
    assert world.order == ["a", "c"]
    assert result.success
    assert "'b'" in of(events, "reflected")[0].refused[0]


def test_every_choice_is_recorded_before_it_is_taken() -> None:
    """H1: failure, what was thought of it, what was done, the next call: in that order in the history."""
    world = World(a=[ToolError("no", suggest={"n": 1}), BROKE, {"v": 1}], b=[{"v": 1}])
    _, events = history(world, one(args={"n": 0}, alternatives=["b"]), settings=NO_ROUNDS)
    kinds = [
        e.type for e in events if e.type in ("step_started", "step_failed", "reflected", "recovered", "step_succeeded")
    ]
    assert kinds == [
        "step_started", "step_failed", "reflected", "recovered", "step_started", "step_failed", "reflected",
        "recovered", "step_started", "step_succeeded",
    ]  # fmt: skip
    first = of(events, "recovered")[0]
    assert (str(first.rung), first.args) == ("adjusted_arguments", {"n": 1})
    assert first.reason
    thought = of(events, "reflected")[0]
    assert (thought.root_cause, thought.suggestion, thought.by) == ("no", {"n": 1}, "rules")
    assert 0 <= thought.confidence <= 100


# -- H5: what is not believed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("category", ["tool", "parameter"])
def test_the_same_call_failing_the_same_way_is_not_tried_a_third_time(category: str) -> None:
    """H5: same tool, same arguments, same error."""
    world = World(a=[ToolError("always this", category=f"{category}_error")])
    _, events = history(world, one(), settings={"reflection": {"max_step_retries": 9}, **NO_ROUNDS})
    assert world.calls_of("a") <= 2
    if category == "tool":
        assert world.calls_of("a") == 2
        assert "twice" in of(events, "reflected")[-1].refused[0]


@pytest.mark.parametrize("category", ["transient", "unknown"])
def test_transient_and_unknown_errors_are_bounded_by_the_budget_alone(category: str) -> None:
    """H5, H4: the same again may well be another outcome."""
    world = World(a=[ToolError("always this", category=f"{category}_error")])
    history(world, one(), settings={"reflection": {"max_step_retries": 5}, **NO_ROUNDS})
    assert world.calls_of("a") == 6


def test_a_new_round_may_try_again() -> None:
    """H5, R6: "twice" counts within a round."""
    world = World(a=[BROKE])
    history(world, one(), settings={"retry": {"max_retry_rounds": 1}})
    assert world.calls_of("a") == 4


@pytest.mark.parametrize(
    "suggest",
    [{"n": "many"}, {"other": 1}, {"n": 0}, {}, {"n": None}],
    ids=["wrong type", "unknown", "no change", "empty", "null"],
)
def test_arguments_that_do_not_fit_or_do_not_differ_are_not_tried(suggest: dict[str, Any]) -> None:
    """H5: a hint is checked like any other proposal."""

    async def a(n: int) -> None:
        calls.append(n)
        raise ToolError("wrong number", suggest=suggest)

    calls: list[int] = []
    result, events = run_with([a], one(args={"n": 0}), settings=NO_ROUNDS)
    assert calls == [0]
    assert chosen(events) == ["fail"]
    assert result.status == "failed"


def test_hints_that_go_round_in_circles_end() -> None:
    """H5, H4: arguments that failed once are not tried again, whoever proposes them."""

    def a(n: int) -> Any:
        return ToolError(f"not {n}", suggest={"n": 1 - n})

    world = World(a=[a])
    history(world, one(args={"n": 0}), settings={"reflection": {"max_step_retries": 9}, **NO_ROUNDS})
    assert [call.args["n"] for call in world.calls] == [0, 1]


def test_hints_are_followed_within_the_budget() -> None:
    """H4: adjusted arguments are paid from the retries."""
    world = World(a=[lambda n: ToolError(f"not {n}", suggest={"n": n + 1})])
    history(world, one(args={"n": 0}), settings=NO_ROUNDS)
    assert [call.args["n"] for call in world.calls] == [0, 1, 2, 3]


def test_a_hint_is_merged_over_the_failed_arguments() -> None:
    """H2, H5: what it does not speak of stays; a second hint builds on the first."""

    def a(**args: Any) -> Any:
        if args["city"] != "Paris":
            return ToolError("city", suggest={"city": "Paris"})
        return ToolError("year", suggest={"year": 2024}) if args["year"] != 2024 else {"ok": args}

    world = World(a=[a])
    result, _ = history(world, one(args={"city": "x", "year": 1, "keep": [1]}))
    assert result.steps["a"].output == {"ok": {"city": "Paris", "year": 2024, "keep": [1]}}
    assert result.steps["a"].args == {"city": "Paris", "year": 2024, "keep": [1]}


# -- H6: rules without a model ------------------------------------------------------------------------------------


def fed(tool: Any, value: Any, **settings: Any) -> tuple[Any, list[Any]]:
    """Run a tool on what an earlier step gave."""

    async def source() -> Any:
        return {"v": value}

    what = {"steps": [{"id": "s", "tool": "source"}, {"id": "t", "tool": tool.__name__, "args": {"x": "${s.v}"}}]}
    return run_with([source, tool], what, settings=settings or NO_ROUNDS)


@pytest.mark.parametrize(("value", "wanted"), [("5", 5), (" 7 ", 7), ("-3", -3)])
def test_a_value_of_the_wrong_type_is_coerced(value: Any, wanted: int) -> None:
    """H6, P4: "5" where a number is wanted: a parameter_error before the call, then adjusted."""
    seen: list[Any] = []

    async def count(x: int) -> int:
        seen.append(x)
        return x

    result, events = fed(count, value)
    assert seen == [wanted]
    assert type(seen[0]) is int
    failed = of(events, "step_failed")[0]
    assert (failed.error.code, failed.called) == ("ARGS_INVALID", False)
    assert chosen(events) == ["adjusted_arguments"]
    assert result.success and not result.degraded


@pytest.mark.parametrize("value", ["five", "", None, [], {"n": 5}, True, "5.5"])
def test_what_cannot_be_coerced_fails_before_the_call(value: Any) -> None:
    """H6, H3: never guessed."""
    seen: list[Any] = []

    async def count(x: int) -> int:
        seen.append(x)
        return x

    result, _ = fed(count, value)
    assert not seen
    assert result.steps["t"].error["code"] == "ARGS_INVALID"
    assert result.steps["t"].error["category"] == "parameter_error"
    assert result.steps["t"].attempts == 0


def test_the_nearest_value_of_an_enum() -> None:
    """H6: a slip of the hand is mended, another word is not."""
    seen: list[str] = []

    async def paint(x: Literal["green", "purple"]) -> str:
        seen.append(x)
        return x

    assert fed(paint, "gren")[0].success
    assert fed(paint, "Purple")[0].success
    assert seen == ["green", "purple"]
    assert not fed(paint, "yellow")[0].success
    assert seen == ["green", "purple"]


@pytest.mark.parametrize(
    "text",
    ["unknown city 'Pariss'; did you mean 'Paris'?", 'no "Pariss". Perhaps you meant "Paris"?', "您是不是要找“Paris”"],
)
def test_did_you_mean(text: str) -> None:
    """H6: what the tool itself proposes in words."""

    def a(city: str, day: str) -> Any:
        return {"ok": city} if city == "Paris" else ToolError(text, category="parameter_error")

    world = World(a=[a])
    result, events = history(world, one(args={"day": "monday", "city": "Pariss"}), settings=NO_ROUNDS)
    assert [dict(call.args) for call in world.calls][1:] == [{"day": "monday", "city": "Paris"}]
    assert result.success
    assert chosen(events) == ["adjusted_arguments"]


def test_a_hint_in_a_returned_failure() -> None:
    """H2, H6, X3: returned or thrown, a hint is a hint."""

    def a(n: int) -> Any:
        return {"ok": 1} if n == 2 else {"success": False, "error": "bad n", "suggest": {"n": 2}}

    world = World(a=[a])
    result, events = history(world, one(args={"n": 1}), settings=NO_ROUNDS)
    assert result.success
    assert of(events, "step_failed")[0].error.category == "parameter_error"


@pytest.mark.parametrize("category", ALL)
def test_without_reflection_only_plain_retry_fallback_and_skip_remain(category: str) -> None:
    """H6: enable_step_level_reflection = false."""
    mind = ScriptedMind(repair={"args": {"n": 1}}, replan=None)
    off = {"reflection": {"enable_step_level_reflection": False}, **NO_ROUNDS}
    world = World({name: [Failing(category)] for name in "abf"})
    what = one(alternatives=["b"], fallback={"tool": "f"}, critical=False)
    _, events = history(world, what, model=mind, settings=off)
    assert set(chosen(events)) <= {"retry", "fallback", "skip"}
    assert not mind.asked
    assert not world.calls_of("b")
    if category in ("transient", "tool", "unknown"):
        assert world.calls_of("a") == 4  # no call is kept back for an alternative
    world = World(a=[ToolError("no", suggest={"n": 2})])
    history(world, one(args={"n": 1}), settings=off)
    assert {call.args["n"] for call in world.calls} == {1}


# -- H7: repair ---------------------------------------------------------------------------------------------------

GAP = ToolError("缺少必要的前置数据", category="decomposition_error")


@pytest.mark.parametrize(
    "answer",
    [
        {"tool": "b", "args": {"n": 1}, "reason": "b can"},
        {"step": {"id": "a", "tool": "b", "args": {"n": 1}}, "reason": "b can"},
        Step("a", "b", {"n": 1}),
    ],
    ids=["only what changes", "a whole step", "a Step"],
)
def test_a_repair_rewrites_one_step(answer: Any) -> None:
    """H7: same id, new tool and args, with a reason; what is not said stays; dependents still match."""
    what = {
        "steps": [
            {"id": "z", "tool": "z"},
            {"id": "a", "tool": "a", "needs": ["z"], "critical": False},
            {"id": "c", "tool": "c", "args": {"x": "${a.v}"}},
        ]
    }
    world = World(a=[GAP], b=[{"v": 7}])
    mind = ScriptedMind(repair=answer)
    result, events = history(world, what, model=mind, settings=NO_ROUNDS)
    assert world.order == ["z", "a", "b", "c"]
    assert dict(world.calls[-1].args) == {"x": 7}
    (recovered,) = of(events, "recovered")
    assert (str(recovered.rung), recovered.tool, recovered.by) == ("repair", "b", "script")
    assert recovered.reason
    assert result.success and not result.degraded
    assert mind.asked[0].kind == "repair"
    assert mind.asked[0].step == "a"
    assert mind.asked[0].error is not None
    assert [row["id"] for row in mind.asked[0].table] == ["z", "a", "c"]


def test_a_repair_may_change_needs() -> None:
    """H7: the step waits for what it now needs."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "slow", "tool": "slow"}]}
    world = World(a=[GAP, {"v": 1}], slow=[Took(50, {"x": 1})])
    mind = ScriptedMind(repair={"needs": ["slow"], "args": {"x": "${slow.x}"}, "reason": "it needs slow"})
    result, _ = history(world, what, model=mind, settings=NO_ROUNDS)
    assert result.success
    assert world.order == ["a", "slow", "a"]
    assert result.steps["a"].needs == ("slow",)


def test_a_repaired_step_gets_fresh_retries() -> None:
    """H7: four calls before, four after."""
    world = World(a=[RuntimeError("odd")], b=[RuntimeError("odd")])
    history(world, one(), model=ScriptedMind(repair={"tool": "b"}), settings=NO_ROUNDS)
    assert world.order == ["a"] * 4 + ["b"] * 4


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "other", "tool": "b"}, {"tool": "nobody"}, {"needs": ["nobody"]}, {"needs": ["c"]}, {"needs": ["a"]},
        {"args": {"x": "${nobody.x}"}}, {"args": "text"}, {"tmeout": 5, "tool": "b"}, {}, "nonsense", ["a"],
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_repair_is_refused_and_the_old_plan_stays(answer: Any) -> None:
    """H7, P5: the same check guards every repaired step."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "c", "tool": "c", "needs": ["a"]}]}
    world = World(a=[GAP])
    world.option("b")
    result, events = history(world, what, model=ScriptedMind(repair=answer), settings=NO_ROUNDS)
    assert world.order == ["a"]
    assert result.status == "failed"
    assert not of(events, "recovered")
    assert len(of(events, "plan_rejected")) + len(of(events, "declined")) == 1
    assert result.steps["a"].tool == "a"


def test_a_repair_stays_for_later_rounds() -> None:
    """R6, H7: repairs are revisions, not overrides of a round."""
    world = World(a=[GAP], b=[ToolError("x", category="tool_error")])
    history(world, one(retries=0), model=ScriptedMind(repair=[{"tool": "b"}, None]))
    assert world.order == ["a", "b", "b"]


# -- H8: replan ---------------------------------------------------------------------------------------------------


def plan(*steps: tuple[str, ...], **changes: dict[str, Any]) -> dict[str, Any]:
    """Steps as (id, needs…), each calling a tool of its own name."""
    return {"steps": [{"id": s[0], "tool": s[0], "needs": list(s[1:]), **changes.get(s[0], {})} for s in steps]}


def test_a_replan_carries_over_what_is_unchanged() -> None:
    """H8, V2: finished and unchanged: not run again; changed ones and their dependents run; dropped ones are gone."""
    what = plan(("keep",), ("change",), ("below", "change"), ("drop",), ("bad", "keep", "below"))
    new = plan(("keep",), ("change",), ("below", "change"), ("new", "keep"), ("bad", "new"), change={"args": {"n": 2}})
    world = World(bad=[GAP, {"v": 1}], change=[{"v": 1}, {"v": 2}]).option("new")
    result, events = history(
        world, what, model=ScriptedMind(replan={"plan": new, "reason": "a gap"}), settings=NO_ROUNDS
    )
    counts = {name: world.calls_of(name) for name in ("keep", "change", "below", "drop", "new", "bad")}
    assert counts == {"keep": 1, "change": 2, "below": 2, "drop": 1, "new": 1, "bad": 2}
    assert list(result.steps) == ["keep", "change", "below", "new", "bad"]
    assert result.success and result.revision == 2
    (replanned,) = of(events, "replanned")
    assert (replanned.reason, replanned.by, replanned.revision) == ("a gap", "script", 2)
    assert (result.exec["total"], result.exec["attempted"], result.exec["calls"]) == (5, 5, 9)


def test_a_dependent_of_a_changed_step_that_gives_the_same_again_is_kept() -> None:
    """H8, R3: same input, same result, no call."""
    what = plan(("change",), ("below", "change"), ("bad", "below"))
    new = plan(("change",), ("below", "change"), ("bad", "below"), change={"args": {"n": 2}})
    world = World(change=[{"v": 1}], bad=[GAP, {"v": 1}])
    assert history(world, what, model=ScriptedMind(replan=new), settings=NO_ROUNDS)[0].success
    assert (world.calls_of("change"), world.calls_of("below"), world.calls_of("bad")) == (2, 1, 2)


def test_a_full_replan_starts_over_and_still_never_repeats_once() -> None:
    """H8, R3: replan = "full"."""
    what = plan(("a",), ("pay", "a"), ("bad", "pay"))
    world = World(bad=[GAP, {"v": 1}]).option("pay", effect="once")
    settings = {"reflection": {"replan": "full"}, **NO_ROUNDS}
    result, events = history(world, what, model=ScriptedMind(replan=what), settings=settings)
    assert result.success
    assert (world.calls_of("a"), world.calls_of("pay"), world.calls_of("bad")) == (2, 1, 2)
    assert of(events, "replanned")[0].full


def test_a_once_step_that_a_replan_changed_is_kept_stale_and_the_verdict_degraded() -> None:
    """R3, H8: nothing automatic runs it again, and nothing pretends that it was done as the new plan says."""
    what = plan(("pay",), ("bad", "pay"))
    new = plan(("pay",), ("bad", "pay"), pay={"args": {"amount": 2}}, bad={"args": {"n": 1}})
    world = World(bad=[GAP, {"v": 1}]).option("pay", effect="once")
    result, _ = history(world, what, model=ScriptedMind(replan=new), settings=NO_ROUNDS)
    assert world.calls_of("pay") == 1
    assert result.success
    assert result.steps["pay"].stale
    assert result.degraded


def test_a_once_step_whose_need_a_replan_dropped_still_stands() -> None:
    """H8, R3, P5: a kept step does not hang on a step that is gone: a person can run it again."""
    what = plan(("x",), ("pay", "x"), ("bad", "pay"))
    new = plan(("pay",), ("bad", "pay"), bad={"args": {"n": 1}})
    world = World(bad=[GAP, {"v": 1}]).option("pay", effect="once")

    async def main() -> Any:
        async with world.engine(what, model=ScriptedMind(replan=new), settings=NO_ROUNDS) as engine:
            result = await engine.run(what)
            assert list(result.steps) == ["pay", "bad"]
            assert "x" not in result.steps["pay"].needs
            return await engine.retry(result.run_id, steps=["pay"], force=True)

    result = virtual_run(main)
    assert result.success
    assert world.calls_of("pay") == 2


def test_a_gate_that_a_replan_adds_counts() -> None:
    """H8, X7: a gate on a step that has not run is part of the new plan."""
    what = plan(("bad",), ("send", "bad"))
    new = plan(("bad",), ("send", "bad"), send={"confirm": "Really?"})
    world = World(bad=[BROKE, {"v": 1}])
    result, _ = history(world, what, model=ScriptedMind(replan=new), settings=PLAIN)
    assert result.steps["bad"].status == "succeeded"
    assert result.status == "waiting"
    assert world.calls_of("send") == 0


def test_a_replan_waits_for_running_steps() -> None:
    """H8: after they have drained; what they did is not lost."""
    what = plan(("slow",), ("bad",), ("later", "bad"))
    asked: list[float] = []

    def replan(question: Any) -> Any:
        asked.append(len([row for row in question.table if row["status"] == "running"]))
        return plan(("slow",), ("fix",), ("bad", "fix"), ("later", "bad"))

    world = World(slow=[Took(60, {"v": 1})], bad=[GAP, {"v": 1}]).option("fix")
    result, events = history(world, what, model=ScriptedMind(replan=replan), settings=NO_ROUNDS)
    assert asked == [0]
    assert (result.success, world.calls_of("slow")) == (True, 1)
    slow = next(event for event in of(events, "step_succeeded") if event.step == "slow")
    assert slow.seq < of(events, "replanned")[0].seq


def test_two_failed_steps_ask_for_one_new_plan() -> None:
    """H8: one question, one new revision."""
    what = plan(("a",), ("b",))
    mind = ScriptedMind(replan=plan(("a",), ("b",), a={"args": {"n": 1}}, b={"args": {"n": 1}}))
    world = World(a=[GAP, {"v": 1}], b=[GAP, {"v": 1}])
    result, _ = history(world, what, model=mind, settings=NO_ROUNDS)
    assert result.success
    assert len(mind.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [None, "nonsense", 42, {"steps": []}, {"steps": [{"id": "a", "tool": "rm"}]}, {"steps": "x"}, RuntimeError("no"),
     {"steps": [{"id": "a", "tool": "a", "needs": ["a"]}]}, {"plan": 5}],
    ids=str,
)  # fmt: skip
def test_a_failed_replan_leaves_the_old_plan_and_its_verdict(answer: Any) -> None:
    """H8, M4: refused or declined, recorded, and the run ends as it would have."""
    what = plan(("a",), ("ok",))
    result, events = history(World(a=[GAP]), what, model=ScriptedMind(replan=answer), settings=NO_ROUNDS)
    assert (result.status, result.revision, list(result.steps)) == ("failed", 1, ["a", "ok"])
    assert [row["id"] for row in result.failed_steps] == ["a"]
    assert len(of(events, "plan_rejected")) + len(of(events, "declined")) == 1


# -- The producer again (H3, E6) ----------------------------------------------------------------------------------


class Forgetful(MemoryStore):
    """A store that loses contents: each once, or for ever."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.lost: list[str] = []

    async def blob(self, digest: str) -> bytes | None:
        if self.lost.count(digest) < self.times:
            self.lost.append(digest)
            return None
        return await super().blob(digest)


BIG = {"text": "x" * 2000}
PASS_ON = {"steps": [{"id": "p", "tool": "p"}, {"id": "c", "tool": "c", "args": {"x": "${p.text}"}}]}
NO_CACHE = {"artifacts": {"memory": 0}, **NO_ROUNDS}


def test_a_lost_artifact_runs_its_producer_again() -> None:
    """H3, E6: ARTIFACT_GONE is a dependency_error; the producer runs again, and then the step."""
    world = World(p=[BIG])
    result, events = history(world, PASS_ON, store=Forgetful(1), settings=NO_CACHE)
    assert result.success and not result.degraded
    assert world.order == ["p", "p", "c"]
    failed = of(events, "step_failed")[0]
    assert (failed.step, failed.error.code, failed.called) == ("c", "ARTIFACT_GONE", False)
    assert chosen(events) == ["producer"]


def test_a_producer_runs_again_at_most_once_per_failing_step() -> None:
    """H4: then the step fails."""
    world = World(p=[BIG])
    result, _ = history(world, PASS_ON, store=Forgetful(99), settings=NO_CACHE)
    assert world.order == ["p", "p"]
    assert result.steps["c"].error["code"] == "ARTIFACT_GONE"
    assert result.status == "failed"


def test_a_once_producer_is_never_run_again() -> None:
    """H4, R3: the step fails, and says why."""
    world = World(p=[BIG]).option("p", effect="once")
    result, events = history(world, PASS_ON, store=Forgetful(1), settings=NO_CACHE)
    assert world.order == ["p"]
    assert result.steps["c"].error["code"] == "ARTIFACT_GONE"
    assert of(events, "reflected")[0].refused


LIST = {"steps": [{"id": "p", "tool": "p"}, {"id": "c", "tool": "c", "args": {"x": "${p.items[0]}"}}]}


def test_a_reading_producer_whose_answer_lacks_a_part_is_asked_again() -> None:
    """H3, P4: once per failing step; the step then reads the new output, or fails."""
    world = World(p=[{"note": "half an answer"}, {"items": [7]}]).option("p", effect="read")
    result, events = history(world, LIST, settings=NO_ROUNDS)
    assert result.success and world.order == ["p", "p", "c"] and world.calls[-1].args == {"x": 7}
    assert chosen(events) == ["producer"]
    world = World(p=[{"note": "half an answer"}]).option("p", effect="read")
    result, _ = history(world, LIST, settings=NO_ROUNDS)
    assert world.order == ["p", "p"] and result.steps["c"].code == "PATH_MISSING"


def test_every_step_that_misses_a_part_is_bounded_by_the_producers_retries() -> None:
    """H3, H4: calling a producer again spends its own retries, however many steps miss something."""
    steps = [{"id": f"c{n}", "tool": "c", "args": {"x": "${p.items[0]}"}} for n in range(8)]
    world = World(p=[{"note": "half an answer"}]).option("p", effect="read")
    result, events = history(world, {"steps": [{"id": "p", "tool": "p"}, *steps]}, settings=NO_ROUNDS)
    assert world.calls_of("p") == 4 and result.status == "failed"
    assert "step 'p' has no try left to give it" in {
        str(why) for event in of(events, "reflected") for why in event.refused
    }


@pytest.mark.parametrize("effect", ["once", "repeatable"])
def test_only_a_producer_that_reads_is_asked_again(effect: str) -> None:
    """H3: another producer would act again; nor is a person's value asked for again."""
    world = World(p=[{"note": "half an answer"}, {"items": [7]}]).option("p", effect=effect)
    assert history(world, LIST, settings=NO_ROUNDS)[0].status == "failed" and world.order == ["p"]


def test_a_persons_value_is_not_asked_for_again() -> None:
    """H3, X7, H9: what a person resolved stands, and so does a fallback, also if they lack a part."""
    never = ToolError("no such thing", category="permanent_error")
    world = World(p=[never, {"items": [7]}]).option("p", effect="read")

    async def main() -> Any:
        async with world.engine(LIST, settings=NO_ROUNDS) as engine:
            first = await engine.run(LIST)
            await engine.resolve(first.run_id, "p", succeeded={"note": "mine"})
            return await engine.wait(first.run_id)

    assert virtual_run(main).steps["c"].code == "PATH_MISSING" and world.order == ["p"]
    world = World(p=[never, {"items": [7]}], q=[{"note": "none"}]).option("q", effect="read")
    steps = [{**LIST["steps"][0], "fallback": {"tool": "q"}}, LIST["steps"][1]]
    assert history(world, {"steps": steps}, settings=NO_ROUNDS)[0].status == "failed" and world.order == ["p", "q"]


# -- H9: fallbacks, skips and holes -------------------------------------------------------------------------------

SKIPPED = [
    {"id": "s", "tool": "s", "critical": False},
    {"id": "b", "tool": "b", "args": {"x": "${s.v}"}},
    {"id": "c", "tool": "c", "needs": ["b"]},
    {"id": "apart", "tool": "apart"},
]


def nullable(kind: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]}


def test_a_hole_where_null_is_accepted() -> None:
    """H9, V1: null is passed; every step behind the hole is degraded, up to the verdict, with the reason."""
    world = World(s=[BROKE]).option("b", schema=nullable(["string", "null"]))
    result, _ = history(world, {"steps": SKIPPED}, settings=PLAIN)
    assert dict(next(call for call in world.calls if call.tool == "b").args) == {"x": None}
    assert [row.status for row in result.steps.values()] == ["skipped", "degraded", "degraded", "succeeded"]
    assert "s" in result.steps["b"].degraded
    assert "s" in result.steps["c"].degraded
    assert result.success and result.degraded and result.status == "completed"
    assert result.exec["degraded"] == 2


@pytest.mark.parametrize("x", ["${s.v}", "see ${s.v}", "${s}"])
def test_a_hole_where_null_is_not_accepted(x: str) -> None:
    """H9: alone or inside a string: a dependency_error before the call."""
    steps = [SKIPPED[0], {"id": "b", "tool": "b", "args": {"x": x}}]
    world = World(s=[BROKE]).option("b", schema=nullable("string"))
    result, _ = history(world, {"steps": steps}, settings=PLAIN)
    error = result.steps["b"].error
    assert (error["code"], error["category"]) == ("HOLE_NOT_ACCEPTED", "dependency_error")
    assert "'x'" in error["message"]
    assert world.calls_of("b") == 0
    assert result.status == "failed"


def test_a_hole_inside_a_string_that_may_be_null() -> None:
    """H9, P4: the word null."""
    steps = [SKIPPED[0], {"id": "b", "tool": "b", "args": {"x": "see ${s.v}!"}}]
    world = World(s=[BROKE]).option("b", schema=nullable(["string", "null"]))
    history(world, {"steps": steps}, settings=PLAIN)
    assert dict(world.calls[-1].args) == {"x": "see null!"}


def test_another_argument_that_does_not_fit_is_not_the_holes_fault() -> None:
    """H9, H6: an argument with a wrong type beside an accepted hole is a parameter_error, and is mended."""
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"]}, "n": {"type": "integer"}}}
    steps = [SKIPPED[0], {"id": "k", "tool": "k"}, {"id": "b", "tool": "b", "args": {"x": "${s.v}", "n": "${k.n}"}}]
    world = World(s=[BROKE], k=[{"n": "5"}]).option("b", schema=schema)
    result, _ = history(world, {"steps": steps}, settings=NO_ROUNDS)
    assert dict(world.calls[-1].args) == {"x": None, "n": 5}
    assert result.success


def test_a_need_without_a_reference_is_tainted_too() -> None:
    """H9: whether or not it refers to the hole."""
    what = {"steps": [SKIPPED[0], {"id": "b", "tool": "b", "needs": ["s"]}, {"id": "c", "tool": "c", "needs": ["b"]}]}
    result, _ = history(World(s=[BROKE]), what, settings=PLAIN)
    assert [row.status for row in result.steps.values()] == ["skipped", "degraded", "degraded"]


def test_a_hole_that_is_filled_later_leaves_no_trace() -> None:
    """H9, R3: a retry mends the optional step; those behind it run again on the real value."""
    world = World(s=[BROKE, {"v": "real"}])

    async def main() -> Any:
        async with world.engine({"steps": SKIPPED}, settings=PLAIN) as engine:
            first = await engine.run({"steps": SKIPPED})
            assert first.status == "completed" and first.degraded
            return await engine.retry(first.run_id, force=True)

    result = virtual_run(main)
    assert {row.status for row in result.steps.values()} == {"succeeded"}
    assert not result.degraded
    assert dict([call for call in world.calls if call.tool == "b"][-1].args) == {"x": "real"}
    assert world.calls_of("apart") == 1


def test_a_fallback_value_is_degraded_and_says_so() -> None:
    """H9: with the reason; those behind it go on with the value, and the verdict is degraded."""
    what = {
        "steps": [
            {"id": "a", "tool": "a", "fallback": {"value": {"v": 1}}},
            {"id": "b", "tool": "b", "args": {"x": "${a.v}"}},
        ]
    }
    world = World(a=[ToolError("no model", category="permanent_error")])
    result, events = history(world, what)
    assert (result.steps["a"].status, result.steps["a"].output) == ("degraded", {"v": 1})
    assert "no model" in result.steps["a"].degraded
    assert dict(world.calls[-1].args) == {"x": 1}
    assert result.success and result.degraded
    assert chosen(events) == ["fallback"]


def test_a_fallback_tool_gets_arguments_of_its_own_with_references() -> None:
    """P1, P4, H9: {tool, args}."""
    what = {
        "steps": [
            {"id": "k", "tool": "k"},
            {"id": "a", "tool": "a", "args": {"own": 1}, "fallback": {"tool": "f", "args": {"x": "${k.v}"}}},
        ]
    }
    world = World(k=[{"v": 3}], a=[GAP], f=[{"from": "f"}])
    result, _ = history(world, what, settings=NO_ROUNDS)
    assert [(call.tool, dict(call.args)) for call in world.calls][1:] == [("a", {"own": 1}), ("f", {"x": 3})]
    assert (result.steps["a"].status, result.steps["a"].output) == ("degraded", {"from": "f"})


def test_a_fallback_tool_that_fails() -> None:
    """H3, H9: skip if optional, else fail; the fallback is not called twice."""
    for critical, status in ((True, "failed"), (False, "skipped")):
        world = World(a=[GAP], f=[BROKE])
        result, _ = history(world, one(fallback={"tool": "f"}, critical=critical), settings=NO_ROUNDS)
        assert world.order == ["a", "f"]
        assert result.steps["a"].status == status


def test_no_data_is_ever_made_up() -> None:
    """H9: without a fallback in the plan a failed step has no output."""
    result, _ = history(World(a=[GAP]), one(), settings=NO_ROUNDS)
    assert result.steps["a"].output is None
    assert not result.success


def test_the_text_of_an_optional_skip() -> None:
    """V1: says after how many retries."""
    result, _ = history(World(a=[ConnectionRefusedError("down")]), one(critical=False))
    assert "3 retries" in result.steps["a"].error["message"]
    assert "down" in result.steps["a"].error["message"]
    result, _ = history(World(a=[ToolError("no key", category="permanent_error")]), one(critical=False))
    assert result.steps["a"].error["message"] == "optional step skipped without a retry: no key"


def test_retries_are_told_by_the_round_and_attempts_by_the_life_of_a_step() -> None:
    """H4, R6: a new round has a budget of its own; the number of a call goes on."""
    _, records = history(World(a=[ConnectionRefusedError("down")]), one(retries=1))
    events = [record.event for record in records]
    scheduled = [event for event in events if isinstance(event, ev.RetryScheduled)]
    assert [event.retry for event in scheduled] == [(1, 1), (1, 1)]
    assert [event.attempt for event in events if isinstance(event, ev.StepStarted)] == [1, 2, 3, 4]


def test_verified_after_a_lost_answer_without_the_output_is_a_hole() -> None:
    """V8, H9: the effect is there, the output is not: null, and what depends on it is degraded."""
    for answer in (True, rerail.Verified()):

        async def there(args: dict[str, Any], answer: Any = answer) -> Any:
            return answer

        what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
        world = World(a=[TimeoutError("no answer")]).option("a", effect="once", verify=there)
        result, _ = history(world, what)
        assert world.calls_of("a") == 1
        assert result.success
        assert result.steps["b"].status == "degraded", answer
        assert result.degraded


def test_a_null_that_verify_supplied_is_an_output_and_no_hole() -> None:
    """V8, H9: many tools answer nothing; who looked and says so has supplied what was lost."""

    async def there(args: dict[str, Any]) -> Any:
        return rerail.Verified(output=None)

    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
    world = World(a=[TimeoutError("no answer")]).option("a", effect="once", verify=there)
    result, _ = history(world, what)
    assert world.calls_of("a") == 1
    assert [row.status for row in result.steps.values()] == ["succeeded", "succeeded"]
    assert result.success and not result.degraded
