"""Minds: who is asked what, and how little an answer can do. Every answer is checked before it is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.errors import RateLimited, ToolError
from rerail.kernel.codec import encode
from rerail.ports import Consultation, MindAnswer, Sample
from rerail.testing.scripted import ScriptedMind, ScriptedModel, Stall, Took, World
from rerail.testing.virtual_time import virtual_run

ODD = RuntimeError("the flux is out of phase")
BROKE = ToolError("it broke", category="tool_error")
WRONG = ToolError("no such source: ds_invalid", category="parameter_error")
GAP = ToolError("a gap", category="decomposition_error")
ROW = {"run": {"concurrency": 1}}
NO_ROUNDS = {"retry": {"max_retry_rounds": 0, "jitter": False}}
ONE: dict[str, Any] = {"steps": [{"id": "a", "tool": "a", "args": {"source": "ds_invalid"}}]}


def history(
    world: World, what: Any, mind: ScriptedMind, given: Mapping[str, Any] | None = None
) -> tuple[Any, list[Any], str]:
    """The result, the events and the story."""

    async def main() -> tuple[Any, list[Any], str]:
        async with world.engine(what, settings={**NO_ROUNDS, **(given or {})}, model=mind) as engine:
            result = await engine.wait(await engine.start(what, run_id="r"))
            return result, await engine.events("r"), await engine.why("r")

    return virtual_run(main)


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


# -- Who is asked ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "mode", "asked"),
    [
        (ODD, "hybrid", True), (WRONG, "hybrid", True), (BROKE, "hybrid", True),
        (ConnectionRefusedError("down"), "hybrid", False), (GAP, "hybrid", False),
        (PermissionError("no"), "hybrid", False),
        (ToolError("no", suggest={"source": "ds_001"}), "hybrid", False),
        (ODD, "rules", False), (WRONG, "rules", False),
        (ConnectionRefusedError("down"), "model", True), (GAP, "model", True), (PermissionError("no"), "model", False),
    ],
    ids=str,
)  # fmt: skip
def test_a_mind_is_asked_where_the_rules_are_at_a_loss(error: Exception, mode: str, asked: bool) -> None:
    """H6, `reflection.mode`: no category or no concrete change; never where trying again cannot help."""
    mind = ScriptedMind(reflect=None)
    history(World(a=[error, {"ok": True}]), ONE, mind, {"reflection": {"mode": mode}})
    assert ([question.kind for question in mind.asked] == ["reflect"]) is asked


def test_a_mind_is_asked_once_for_each_attempt() -> None:
    """H4: what it says costs a retry like any other, so the number of questions is bounded too."""
    mind = ScriptedMind(reflect={"category": "transient_error"})
    world = World(a=[ODD])
    result, events, _ = history(world, ONE, mind)
    assert (result.status, world.calls_of("a"), len(mind.asked)) == ("failed", 4, 4)
    assert [event.attempt for event in of(events, "asked")] == [1, 2, 3, 4]


def test_with_reflection_switched_off_nobody_is_asked() -> None:
    """H6: only plain retry, fallback and skip remain."""
    mind = ScriptedMind(reflect={"category": "parameter_error", "suggestion": {"source": "x"}}, repair={"tool": "b"})
    history(World(a=[ODD]), ONE, mind, {"reflection": {"enable_step_level_reflection": False, "mode": "model"}})
    assert not mind.asked


def test_a_question_shows_the_failed_attempts_and_the_inputs() -> None:
    """M1: the table whole, the step's attempts with their arguments, the outputs it was made from, cut where large."""
    what = {
        "objective": "count things",
        "steps": [
            {"id": "read", "tool": "read"},
            {"id": "load", "tool": "load"},
            {"id": "a", "tool": "a", "args": {"rows": "${read.rows}"}, "needs": ["load"]},
        ],
    }
    mind = ScriptedMind(reflect=[{"category": "parameter_error", "suggestion": {"rows": 5}}, None])
    world = World(read=[{"rows": 3}], load=["x" * 10_000], a=[ODD])
    history(world, what, mind)
    first, second = mind.asked[:2]
    assert [row["id"] for row in first.table] == ["read", "load", "a"]
    assert first.objective == "count things"
    assert first.outputs["read"] == {"rows": 3}
    sample = first.outputs["load"]
    assert isinstance(sample, Sample) and len(sample.text) < 5000 and sample.size > 10_000
    assert [(row["attempt"], row["args"]) for row in second.attempts] == [(1, {"rows": 3}), (2, {"rows": 5})]
    assert second.attempts[0]["error"]["message"] == str(ODD)


# -- What is believed --------------------------------------------------------------------------------------------------


def test_adjusted_arguments_heal_a_step() -> None:
    """H5, scenario params: the suggestion lies over the arguments that failed."""
    mind = ScriptedMind(
        reflect={
            "category": "parameter_error", "root_cause": "the source does not exist", "recoverable": True,
            "suggestion": {"source": "ds_001"}, "confidence": 90,
        }
    )  # fmt: skip
    what = {"steps": [{"id": "a", "tool": "a", "args": {"source": "ds_invalid", "n": 1}}]}
    result, events, story = history(World(a=[WRONG, {"ok": True}]), what, mind)
    assert result.success
    assert result.steps["a"].args == {"source": "ds_001", "n": 1}
    (thought,) = of(events, "reflected")
    assert (thought.by, thought.confidence, thought.rung) == ("script", 90, "adjusted_arguments")
    assert thought.root_cause == "the source does not exist"
    assert "script" in story


def test_another_tool_heals_a_step() -> None:
    """H5: an alternative that the plan did not name, of those that the run was given."""
    mind = ScriptedMind(reflect={"category": "tool_error", "alternatives": ["nowhere", "b"]})
    world = World(a=[BROKE], b=[{"ok": True}])
    result, events, story = history(world, ONE, mind)
    assert (result.success, result.steps["a"].tool) == (True, "b")
    assert "the alternative tool 'nowhere' does not exist" in of(events, "reflected")[0].refused
    assert "nowhere" in story


def test_a_mind_may_stop_earlier() -> None:
    """H4, H5: not recoverable skips the retry and repair rungs, for good."""
    mind = ScriptedMind(reflect={"category": "unknown_error", "recoverable": False}, repair={"args": {}}, replan=None)
    world = World(a=[ODD])
    result, _, _ = history(world, ONE, mind)
    assert (result.status, world.calls_of("a")) == ("failed", 1)
    assert [question.kind for question in mind.asked] == ["reflect", "replan"]


def test_a_mind_may_pass_over_rungs() -> None:
    """H5: an action of the category's own ladder is where it is entered."""
    mind = ScriptedMind(reflect={"category": "unknown_error", "action": "repair"}, repair={"args": {"source": "b"}})
    world = World(a=[ODD, {"ok": True}])
    result, _, _ = history(world, ONE, mind)
    assert (result.success, world.calls_of("a")) == (True, 2)
    assert [question.kind for question in mind.asked] == ["reflect", "repair"]


GARBAGE: dict[str, Any] = {
    "nothing": None, "text": "do better", "list": [1, 2], "empty": {}, "number": 7, "no category": {"category": "bad"},
    "category of a wrong kind": {"category": ["parameter_error"]},
    "category and arguments disagree": {"category": "transient_error", "suggestion": {"source": "x"}},
    "category and action disagree": {"category": "parameter_error", "action": "alternative_tool"},
    "unknown action": {"category": "tool_error", "action": "rm -rf"},
    "arguments are a reference": {"category": "parameter_error", "suggestion": {"source": "${a.x}"}},
    "arguments are a placeholder": {"category": "parameter_error", "suggestion": {"source": "<the right one>"}},
    "arguments are no JSON": {"category": "parameter_error", "suggestion": {"source": object()}},
    "arguments are a list": {"category": "parameter_error", "suggestion": ["x"]},
    "arguments are huge": {"category": "parameter_error", "suggestion": {"source": "x" * 100_000}},
    "an exception": RuntimeError("the model is away"),
}  # fmt: skip


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
def test_what_does_not_hold_falls_back_to_the_rules(answer: Any) -> None:
    """H5: and is recorded as such; never a loop, never a success."""
    mind = ScriptedMind(reflect=answer)
    world = World(a=[ODD])
    result, events, _ = history(world, ONE, mind)
    bare = World(a=[ODD])
    plain, _, _ = history(bare, ONE, ScriptedMind())
    assert (result.status, world.calls_of("a")) == (plain.status, bare.calls_of("a")) == ("failed", 4)
    first = of(events, "reflected")[0]
    assert first.by == "rules"
    assert first.refused and "script" in first.refused[0]


@pytest.mark.parametrize(
    ("suggestion", "reason"),
    [
        ({"source": "ds_invalid"}, "tried already"),
        ({"source": 5}, "source"),
        ({"other": 1}, "other"),
    ],
)
def test_arguments_must_be_new_and_fit(suggestion: dict[str, Any], reason: str) -> None:
    """H5: they fit the schema and differ from every failed try."""
    schema = {"type": "object", "properties": {"source": {"type": "string"}}, "additionalProperties": False}
    mind = ScriptedMind(reflect={"category": "parameter_error", "suggestion": suggestion})
    world = World(a=[WRONG]).option("a", schema=schema)
    result, events, story = history(world, ONE, mind)
    assert (result.status, world.calls_of("a")) == ("failed", 1)
    assert any(reason in refused for refused in of(events, "reflected")[0].refused)
    assert reason in story


def test_a_mind_cannot_widen_the_tools() -> None:
    """M4, H8: a tool that the run was not given does not come into it, whoever asks."""
    everywhere = {
        "reflect": {"category": "tool_error", "alternatives": ["shell"]},
        "repair": {"tool": "shell", "args": {"cmd": "rm"}},
        "replan": {"steps": [{"id": "a", "tool": "shell"}]},
    }
    mind = ScriptedMind(**everywhere)
    world = World(a=[BROKE])
    result, events, story = history(world, ONE, mind)
    assert result.status == "failed"
    assert {call.tool for call in world.calls} == {"a"}
    assert {event.question for event in of(events, "plan_rejected")} == {"repair", "replan"}
    assert story.count("shell") >= 3


def test_a_thought_is_about_one_failure() -> None:
    """H5: a step that then fails before its call is another case; the thought is not followed again and again."""
    what = {"steps": [{"id": "read", "tool": "read"}, {"id": "a", "tool": "a", "args": {"n": "${read.n}"}}]}
    schema = {"type": "object", "properties": {"n": {"type": "string"}}, "additionalProperties": False}
    mind = ScriptedMind(reflect={"category": "tool_error", "alternatives": ["picky"], "confidence": 90})
    large = ["x" * 10_000]  # so large that what the arguments were is only known once they are fetched
    world = World(read=[{"n": large}], a=[BROKE])
    world.option("picky", schema=schema)
    result, events, _ = history(world, what, mind, {"reflection": {"max_step_retries": 2}})
    assert (result.status, world.calls_of("a"), world.calls_of("picky")) == ("failed", 1, 0)
    assert len(of(events, "retry_scheduled")) == 0
    assert [(event.by, str(event.category)) for event in of(events, "reflected")][-1] == ("rules", "parameter_error")


def test_a_suggestion_that_would_repeat_an_effect_is_not_followed() -> None:
    """M4, H5: and ends there, with the words of why."""
    what = {
        "steps": [
            {"id": "p", "tool": "pay", "args": {"n": 5}},
            {"id": "q", "tool": "pay", "args": {"n": 6}, "needs": ["p"]},
        ]
    }
    mind = ScriptedMind(reflect={"category": "parameter_error", "suggestion": {"n": 5}})
    world = World(pay=[{"ok": 1}, ToolError("odd")]).option("pay", effect="once")
    result, _, story = history(world, what, mind)
    assert [dict(call.args) for call in world.calls] == [{"n": 5}, {"n": 6}]
    assert result.steps["q"].error["code"] == "ONCE_REPEATED" and "what step 'p' has done" in story


# -- Budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "limit"), [("max_tokens", 100), ("max_cost", 1.0)])
def test_what_a_mind_costs_counts(key: str, limit: float) -> None:
    """H4, M1: tokens and cost of models are the run's, and no call is made past the budget."""
    spent = MindAnswer({"category": "transient_error"}, [Consultation("m", 60, 50, 1.5, 0.1)])
    mind = ScriptedMind(reflect=spent)
    world = World(a=[ODD])
    result, events, _ = history(world, ONE, mind, {"run": {key: limit}})
    assert (result.status, world.calls_of("a"), len(mind.asked)) == ("failed", 1, 1)
    assert result.stopped == "BUDGET_EXCEEDED"
    (call,) = of(events, "consulted")
    assert (call.model, call.input_tokens, call.output_tokens, call.cost) == ("m", 60, 50, 1.5)
    assert (result.exec["tokens"], result.exec["cost"]) == (110, 1.5)


@pytest.mark.parametrize(("key", "limit"), [("max_tokens", 100), ("max_cost", 1.0)])
def test_no_question_is_asked_past_the_budget(key: str, limit: float) -> None:
    """H4: also where one question follows another with no call between them, of a mind that counts nothing itself."""
    spent = MindAnswer({"category": "decomposition_error"}, [Consultation("m", 60, 50, 1.5, 0.1)])
    mind = ScriptedMind(reflect=spent, repair={"args": {"source": "b"}}, replan=None)
    result, _, story = history(World(a=[ODD]), ONE, mind, {"run": {key: limit}})
    assert [question.kind for question in mind.asked] == ["reflect"]
    assert result.stopped == "BUDGET_EXCEEDED" and key in story


def test_no_judge_is_asked_past_the_budget() -> None:
    """V4: the computed verdict stands, and `judge` says why."""
    mind = ScriptedMind(judge=MindAnswer({"complete": True}, [Consultation("m", 60, 50)]), reflect=None)

    def spend(**args: Any) -> Any:
        return {"done": True}

    world = World(a=[spend])
    settings = {"run": {"max_seconds": 0.0}, "evaluation": {"shortcut": False}}
    result, _, _ = history(world, ONE, mind, settings)
    assert result.judge == "none" and result.stopped == "BUDGET_EXCEEDED"
    result, events, _ = history(World(a=[spend]), ONE, mind, {"evaluation": {"shortcut": False}})
    assert result.judge == "script"
    assert of(events, "consulted")[0].question == "judge"


# -- The breaker -------------------------------------------------------------------------------------------------------


def five() -> dict[str, Any]:
    return {"steps": [{"id": f"s{i}", "tool": f"s{i}"} for i in range(5)]}


def test_the_breaker_goes_to_a_replan() -> None:
    """H4: different steps failing in a row stop the run from starting more; a new plan is asked for, once."""
    mind = ScriptedMind(replan={"plan": {"steps": [{"id": "other", "tool": "s4"}]}, "reason": "no key for the rest"})
    world = World({f"s{i}": [PermissionError("no key")] for i in range(4)})
    result, events, story = history(world, five(), mind, ROW)
    (question,) = mind.asked
    assert (question.kind, question.reason) == ("replan", "s0, s1, s2")
    assert world.order == ["s0", "s1", "s2", "s4"], "the fourth step was not started any more"
    assert result.success and list(result.steps) == ["other"]
    assert [event.question for event in of(events, "asked")] == ["replan"]
    assert "BREAKER_OPEN" in story


def test_a_breaker_without_a_replan_stops_the_run() -> None:
    """H4: nobody to ask, or the budget of replans is used up: the run fails, and says so."""
    for mind in (ScriptedMind(), ScriptedMind(replan=None)):
        world = World({f"s{i}": [PermissionError("no key")] for i in range(5)})
        result, events, _ = history(world, five(), mind, ROW)
        assert (result.status, result.stopped) == ("failed", "BREAKER_OPEN")
        assert result.never_started
        assert len(of(events, "done")) == 1


# -- The judge ---------------------------------------------------------------------------------------------------------


def test_a_judge_whose_run_moves_on_is_asked_again_and_ends() -> None:
    """V3, T7: an answer to a state that has moved on changes nothing; the next one counts, and the run ends."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"], "critical": False}]}
    asked: list[Any] = []

    async def main() -> tuple[Any, list[Any]]:
        async with World(b=[GAP]).engine(
            what, settings={**NO_ROUNDS, "evaluation": {"shortcut": False}}, model=Busy()
        ) as engine:
            box.append(engine)
            result = await engine.wait(await engine.start(what, run_id="r"))
            return result, await engine.events("r")

    class Busy(ScriptedMind):
        def __init__(self) -> None:
            super().__init__(judge={"complete": True})

        async def answer(self, question: Any) -> Any:
            asked.append(question)
            if len(asked) == 1:  # somebody acts while the judge thinks
                await box[0].add("r", [{"id": "c", "tool": "a"}])
            return await super().answer(question)

    box: list[Any] = []
    result, events = virtual_run(main)
    assert result.success and len(asked) == 2
    assert [event.question for event in of(events, "declined") if event.late] == ["judge"]
    assert result.steps["c"].status == "succeeded"
    assert len(of(events, "done")) == 1


# -- What a reviewer broke ---------------------------------------------------------------------------------------------

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    "answer",
    [
        {"category": "parameter_error", "suggestion": {"n": 1}},
        {"category": "transient_error"},
        {"category": "tool_error", "alternatives": ["pay"]},
    ],
)
def test_failures_before_the_call_come_to_an_end(answer: dict[str, Any]) -> None:
    """H4, H5: they spend no call, so no budget would end them; a thought is of the failure it was asked about."""
    what = {
        "steps": [
            {"id": "pay", "tool": "pay", "args": {"n": 1}},
            {
                "id": "x",
                "tool": "x",
                "args": {"n": "${pay.id}"},
                "verify": {"tool": "look", "args": {"id": "${pay.gone}"}},
            },
        ]
    }
    world = World(pay=[{"id": "not a number"}], x=[ODD]).option("pay", effect="once").option("x", schema=NUMBER)
    result, events, _ = history(world, what, ScriptedMind(reflect=answer), {"reflection": {"mode": "model"}})
    assert result.status == "failed"
    assert len(events) < 100
    assert world.calls_of("pay") == 1


def test_a_call_that_would_repeat_a_once_effect_ends() -> None:
    """H5, R3: a mind that insists on what must not happen twice is refused, and not for ever."""
    what = {
        "steps": [
            {"id": "p", "tool": "pay", "args": {"n": 1}},
            {"id": "x", "tool": "x", "args": {"n": 1}, "needs": ["p"]},
        ]
    }
    mind = ScriptedMind(reflect={"category": "tool_error", "alternatives": ["pay"]})
    world = World(x=[BROKE]).option("pay", effect="once")
    result, events, _ = history(world, what, mind)
    assert (result.status, world.calls_of("pay")) == ("failed", 1)
    assert len(events) < 100


def test_a_once_call_under_way_is_not_doubled() -> None:
    """R3, M4: nor is one that may be having its effect just now."""
    what = {"steps": [{"id": "p", "tool": "pay", "args": {"n": 1}}, {"id": "x", "tool": "x"}]}
    mind = ScriptedMind(repair={"step": {"tool": "pay", "args": {"n": 1}}, "reason": "pay instead"})
    world = World(pay=[Took(50, {"ok": True})], x=[GAP]).option("pay", effect="once")
    history(world, what, mind)
    assert world.calls_of("pay") == 1


def test_the_gate_shows_the_call_that_would_be_made() -> None:
    """X7: where a mind changed the arguments, those are what a person agrees to."""
    what = {"steps": [{"id": "a", "tool": "a", "args": {"n": 1}, "confirm": True}]}
    mind = ScriptedMind(reflect={"category": "parameter_error", "suggestion": {"n": 1_000_000}})
    world = World(a=[WRONG, {"ok": True}])

    async def main() -> list[Any]:
        async with world.engine(what, settings=NO_ROUNDS, model=mind) as engine:
            first = await engine.run(what)
            await engine.confirm(first.run_id)
            second = await engine.wait(first.run_id)
            return [first.waiting_on[0]["args"], second.waiting_on[0]["args"]]

    assert virtual_run(main) == [{"n": 1}, {"n": 1_000_000}]


def test_a_plan_of_a_model_starts_no_program() -> None:
    """M4, P7: servers are the user's to name."""
    evil = {"steps": [{"id": "a", "tool": "a"}], "mcp": {"evil": {"command": "/bin/false"}}}

    async def main() -> Any:
        async with World(a=[{"v": 1}]).engine(settings=NO_ROUNDS, model=ScriptedMind(plan=evil)) as engine:
            return await engine.plan("do it")

    assert virtual_run(main).plan.mcp == {}


def test_budgets_hold_where_several_steps_fail_at_once() -> None:
    """H4: questions are asked one after the other, and each reserves the largest that one of its kind has cost."""
    spent = MindAnswer({"category": "transient_error"}, [Consultation("m", 600, 0)])
    what = {"steps": [{"id": f"s{i}", "tool": f"s{i}"} for i in range(6)]}
    world = World({f"s{i}": [ODD] for i in range(6)})
    result, events, _ = history(world, what, ScriptedMind(reflect=spent), {"run": {"max_tokens": 1000}})
    assert result.stopped == "BUDGET_EXCEEDED"
    assert len(of(events, "consulted")) == 1
    (stopped,) = of(events, "stopped")
    assert stopped.reason == "max_tokens: 600 of 1000 used, and asking a model to reflect needs 600 more"


def test_no_model_is_asked_while_a_run_is_paused() -> None:
    """X7: start nothing more means nothing that costs, either."""
    mind = ScriptedMind(reflect=None)
    world = World(a=[Took(5, ODD)])

    async def main() -> int:
        async with world.engine(ONE, settings=NO_ROUNDS, model=mind) as engine:
            run = await engine.start(ONE)
            await asyncio.sleep(1)
            await engine.pause(run)
            await engine.wait(run)
            return len(mind.asked)

    assert virtual_run(main) == 0


def test_a_twin_that_failed_does_not_hide_what_was_done() -> None:
    """R3, M4: the author of a plan may pay twice; where one of the two failed, the other is still not to be redone."""
    pay = {"tool": "pay", "args": {"n": 1}}
    what = {"steps": [{"id": "p", **pay}, {"id": "twin", **pay, "needs": ["p"]}]}
    mind = ScriptedMind(replan={"plan": {"steps": [{"id": "q", **pay}]}, "reason": "pay under another name"})
    world = World(pay=[{"ok": True}, GAP, {"ok": True}]).option("pay", effect="once")
    result, events, _ = history(world, what, mind, {"reflection": {"max_step_retries": 0}})
    assert world.calls_of("pay") == 2
    assert result.status == "failed" and "q" not in result.steps
    assert "must not happen twice" in of(events, "plan_rejected")[0].faults[0]


# -- Questions under way when the run ends ------------------------------------------------------------------------


def asked_while(
    script: list[Any], then: Any = None, *, settings: Mapping[str, Any] | None = None, mind: Any = None, **tools: Any
) -> tuple[Any, list[Any], list[Any], float]:
    """A run whose first step fails and is asked about while something else happens to the run: the result, the events,
    the prompts, and how long it took."""
    model = ScriptedModel(reflect=script, usage=(100, 20), cost=0.5)
    steps = [{"id": name, "tool": name} for name in ("a", *tools)]
    steps += [{"id": "z", "tool": "z", "needs": list(tools)}] if tools else []
    world = World({"a": [ODD], **tools})

    async def main() -> tuple[Any, list[Any], list[Any], float]:
        given = {**NO_ROUNDS, "evaluation": {"judge": False}, **(settings or {})}
        async with world.engine({"steps": steps}, settings=given, model=mind or model) as engine:
            begun = asyncio.get_running_loop().time()
            run = await engine.start({"steps": steps}, run_id="r")
            if then is not None:
                await asyncio.sleep(5)
                await then(engine, run)
            result = await engine.wait(run)
            took = asyncio.get_running_loop().time() - begun
            return result, await engine.events(run), model.asked, took

    return virtual_run(main)


TRANSIENT = {"category": "transient_error", "root_cause": "?", "recoverable": True, "confidence": 50}


def test_a_budget_stop_counts_what_was_being_asked() -> None:
    """H4, M1: nothing new starts, and what was asked is waited for: its cost is the run's, before `done`."""
    late = Stall(20, TRANSIENT)
    result, events, asked, took = asked_while([late], settings={"run": {"max_seconds": 8}}, b=[Took(10, {"ok": 1})])
    assert result.stopped == "BUDGET_EXCEEDED"
    (call,) = of(events, "consulted")
    assert (call.input_tokens, call.output_tokens, call.cost, call.problem) == (100, 20, 0.5, "")
    assert (result.exec["tokens"], result.exec["cost"]) == (120, 0.5)
    assert of(events, "declined")[0].late
    assert [event.type for event in events][-1] == "done"
    assert len(of(events, "done")) == 1 and 20 <= took < 25
    assert len(asked) == 1


def test_a_budget_stop_asks_nothing_again() -> None:
    """H4: an answer that is of no use is not asked for once more, for that would be something new."""
    script = [Stall(20, "no JSON at all"), TRANSIENT]
    result, events, asked, _ = asked_while(script, settings={"run": {"max_seconds": 8}}, b=[Took(10, {"ok": 1})])
    assert result.stopped == "BUDGET_EXCEEDED"
    assert len(asked) == 1
    assert [call.cost for call in of(events, "consulted")] == [0.5]


def test_a_cancel_says_what_is_known_of_a_question() -> None:
    """H4, X7: whoever cancels does not wait; what the cut off call cost is not known, and that is what is said."""

    async def cancel(engine: Any, run: str) -> None:
        await engine.cancel(run)

    script = [Stall(1, "no JSON at all"), Stall(50, TRANSIENT)]
    result, events, _, took = asked_while(script, cancel)
    assert (result.status, took) == ("cancelled", pytest.approx(5, abs=0.1))
    first, second = of(events, "consulted")
    assert (first.input_tokens, first.cost) == (100, 0.5)
    assert (second.input_tokens, second.cost) == (0, 0)
    assert second.problem == "no answer came back; what it cost is not known"
    assert result.exec["cost"] == 0.5
    assert "cut off" in of(events, "declined")[0].reason
    assert events[-1].type == "done"


class Stubborn:
    """A mind that hears nothing while it thinks, for five minutes."""

    name, answers = "stubborn", ("reflect",)

    async def answer(self, question: Any) -> Any:
        question.ledger.calls.append(Consultation("m", 7, 0))
        end = asyncio.get_running_loop().time() + 300
        while asyncio.get_running_loop().time() < end:
            try:
                await asyncio.sleep(400)
            except asyncio.CancelledError:
                continue
        return None


def test_a_mind_that_cannot_be_cut_off_holds_nobody_up() -> None:
    """X5: it gets two seconds, as a tool does."""

    async def cancel(engine: Any, run: str) -> None:
        await engine.cancel(run)

    result, events, _, took = asked_while([], cancel, mind=Stubborn())
    assert (result.status, took) == ("cancelled", pytest.approx(7, abs=1.1))
    assert [call.input_tokens for call in of(events, "consulted")] == [7]


def test_a_budget_stop_does_not_wait_for_ever() -> None:
    """X5, H4: whoever was asked has the time that any question has, and not more."""
    settings = {"run": {"max_seconds": 8}, "model": {"timeout": 30}}
    result, events, _, took = asked_while([], mind=Stubborn(), settings=settings, b=[Took(10, {"ok": 1})])
    assert (result.stopped, took) == ("BUDGET_EXCEEDED", pytest.approx(42, abs=1.5))
    assert [call.input_tokens for call in of(events, "consulted")] == [7]
    assert events[-1].type == "done"


def test_a_run_that_needs_the_answer_no_longer_ends_without_it() -> None:
    """X7, M1: somebody did without the step; the question is cut off, and what it cost is told."""

    async def skip(engine: Any, run: str) -> None:
        await engine.skip(run, "a")

    result, events, _, took = asked_while([Stall(50, TRANSIENT)], skip)
    assert (result.status, took) == ("completed", pytest.approx(5, abs=0.1))
    assert of(events, "consulted")[0].problem.endswith("is not known")


def test_a_pause_lets_a_question_end() -> None:
    """X7: as it lets calls end; the answer is kept, and not asked and paid for again after the pause."""

    async def pause(engine: Any, run: str) -> None:
        await engine.pause(run)
        first = await engine.wait(run)
        assert first.status == "waiting"
        assert [event.type for event in await engine.events(run)].count("consulted") == 1
        await engine.begin_resume(run)

    result, events, asked, _ = asked_while([Stall(20, TRANSIENT), *[TRANSIENT] * 3], pause)
    assert (result.status, [prompt.role for prompt in asked].count("reflect")) == ("failed", 4)
    assert [event.attempt for event in of(events, "asked")] == [1, 2, 3, 4]


# -- Large arguments ----------------------------------------------------------------------------------------------


LARGE = "x" * 50_000
PIPE: dict[str, Any] = {
    "steps": [
        {"id": "p", "tool": "p"},
        {"id": "a", "tool": "a", "args": {"text": "${p.text}", "source": "ds_invalid", "count": 1}},
    ]
}
ADJUST = {"category": "parameter_error", "root_cause": "?", "suggestion": {"source": "ds_001"}, "confidence": 90}
SHAPE = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "source": {"type": "string"}, "count": {"type": "integer"}},
    "additionalProperties": False,
}


def test_a_mind_changes_one_of_many_large_arguments() -> None:
    """H5, E7: it says what changes; the call gets everything else as it was, and the history does not hold it again."""
    mind = ScriptedMind(reflect=ADJUST)
    world = World(p=[{"text": LARGE}], a=[WRONG, {"ok": True}]).option("a", schema=SHAPE)
    result, events, story = history(world, PIPE, mind)
    assert result.success
    assert [dict(call.args) for call in world.calls if call.tool == "a"] == [
        {"text": LARGE, "source": "ds_invalid", "count": 1}, {"text": LARGE, "source": "ds_001", "count": 1},
    ]  # fmt: skip
    assert mind.asked[0].attempts[-1]["args"]["source"] == "ds_invalid"  # it is shown what it may change
    (taken,) = of(events, "recovered")
    assert taken.args == {"source": "ds_001"} and taken.args_blob
    assert of(events, "reflected")[0].suggestion == {"source": "ds_001"}
    assert max(len(encode(event.event)) for event in events) < 5000
    assert result.steps["a"].args == {"text": LARGE, "source": "ds_001", "count": 1}
    assert "ds_001" in story


@pytest.mark.parametrize(
    ("suggestion", "words"),
    [({"source": 7}, "source"), ({"sorce": "x"}, "sorce"), ({"source": "ds_invalid"}, "tried already"),
     ({"source": "${p.text}"}, "not concrete"), ({"text": "<the text>"}, "not concrete")],
)  # fmt: skip
def test_large_arguments_are_checked_like_small_ones(suggestion: dict[str, Any], words: str) -> None:
    """H5: concrete, fit for the schema, and different from every failed try."""
    mind = ScriptedMind(reflect={**ADJUST, "suggestion": suggestion})
    world = World(p=[{"text": LARGE}], a=[WRONG]).option("a", schema=SHAPE)
    result, events, _ = history(world, PIPE, mind)
    assert (result.status, world.calls_of("a")) == ("failed", 1)
    assert any(words in why for why in of(events, "reflected")[0].refused)


def test_large_arguments_that_do_not_fit_can_be_changed_too() -> None:
    """H5: they failed before the call, and are kept all the same."""
    mind = ScriptedMind(reflect={**ADJUST, "suggestion": {"count": 3}})
    world = World(p=[{"text": LARGE, "count": "three"}], a=[{"ok": True}]).option("a", schema=SHAPE)
    what = {"steps": [PIPE["steps"][0], {**PIPE["steps"][1], "args": {"text": "${p.text}", "count": "${p.count}"}}]}
    result, events, _ = history(world, what, mind)
    assert result.success, result.steps["a"].error
    assert [dict(call.args) for call in world.calls if call.tool == "a"] == [{"text": LARGE, "count": 3}]
    assert not of(events, "step_failed")[0].called


def test_large_adjusted_arguments_survive_a_crash() -> None:
    """E1, E7: what the next call gets is in the store, also for another process; a gate shows it whole."""
    mind = ScriptedMind(reflect=ADJUST)
    world = World(p=[{"text": LARGE}], a=[WRONG, {"ok": True}]).option("a", schema=SHAPE)
    what = {"steps": [PIPE["steps"][0], {**PIPE["steps"][1], "confirm": True}]}

    async def main() -> Any:
        store = MemoryStore()
        async with world.engine(what, store=store, settings=NO_ROUNDS, model=mind) as engine:
            run = await engine.start(what)
            await engine.wait(run)
            await engine.confirm(run)
            first = await engine.wait(run)
        async with world.engine(what, store=store, settings=NO_ROUNDS, model=mind) as engine:
            await engine.confirm(run)
            return first, await engine.wait(run)

    first, second = virtual_run(main)
    assert first.waiting_on[0]["args"] == {"text": LARGE, "source": "ds_001", "count": 1}
    assert second.success
    assert world.calls[-1].args["source"] == "ds_001" and world.calls[-1].args["text"] == LARGE


def test_a_new_plan_does_not_bring_back_what_a_person_skipped() -> None:
    """X7, H8: a mind may change the step's definition; that somebody wanted to do without it stays."""
    world = World(b=[Took(50, ToolError("no", category="tool_error"))])
    plan = {
        "steps": [
            {"id": "a", "tool": "a", "needs": ["b"], "critical": False, "title": "old"},
            {"id": "b", "tool": "b", "retries": 0},
        ]
    }
    mind = ScriptedMind(replan={"steps": [{"id": "a", "tool": "a"}, {"id": "c", "tool": "c"}], "reason": "without b"})
    settings = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}

    async def main() -> Any:
        async with world.engine(plan, model=mind, settings=settings) as engine:
            run = await engine.start(plan)
            await engine.skip(run, "a")
            return await engine.wait(run)

    world.option("c")
    result = virtual_run(main)
    assert (world.order, str(result.steps["a"].status), result.steps["a"].code) == (["b", "c"], "skipped", "SKIP_USER")
    assert result.status == "completed"


def test_a_new_plan_does_not_shorten_the_time_that_a_tool_asked_for() -> None:
    """H3, H8: another step's failure changes the plan; the tool that wanted to be left alone is."""
    world = World(a=[RateLimited("later", retry_after=250), {"v": 1}], b=[ToolError("no", category="tool_error")])
    plan = {"steps": [{"id": "a", "tool": "a", "title": "old"}, {"id": "b", "tool": "b", "retries": 0}]}
    mind = ScriptedMind(replan={"steps": [{"id": "a", "tool": "a"}, {"id": "c", "tool": "c"}], "reason": "without b"})
    settings = {"retry": {"max_wait": 600, "max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}

    async def main() -> list[Any]:
        async with world.engine(plan, model=mind, settings=settings) as engine:
            result = await engine.run(plan)
            assert result.success, result.summary
            return [record for record in await engine.events(result.run_id) if record.type == "step_started"]

    world.option("c")
    first, second = [record.at for record in virtual_run(main) if record.event.step == "a"]
    assert second - first >= 250
