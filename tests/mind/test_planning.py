"""Plans made by minds: read from an answer, with nothing in them that is not a mind's to say (P7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.mind.tales import TOOLS

from rerail.mind import planning as plan
from rerail.mind.questions import QUESTIONS
from rerail.plan.step import Effect, Need
from rerail.ports import Question

STEPS = [{"id": "a", "tool": "t", "args": {}}, {"id": "b", "tool": "u", "args": {"x": "${a.n}"}, "critical": False}]
ABOUT = Question("plan", "", "", "tidy up", (), TOOLS)


@pytest.mark.parametrize(
    "answer",
    [
        {"steps": STEPS, "reason": "short"},
        {"plan": {"steps": STEPS}, "reason": "short"},
        {"steps": STEPS, "objective": "rule the world", "follow_up": {"steps": STEPS}},
        {"steps": STEPS, "topic": "rule the world", "goal": "too"},
        {"tasks": STEPS},
        STEPS,
    ],
)
def test_a_plan_is_read(answer: Any) -> None:
    """P7, P3: its objective is the caller's, and nothing follows it that nobody asked for."""
    made = plan.read("tidy up", TOOLS, answer)
    assert (made.objective, made.follow_up, [step.id for step in made.steps]) == ("tidy up", None, ["a", "b"])
    assert made.steps[1].critical is False and made.check(TOOLS) == []
    assert made.steps[1].needs == () or made.steps[1].needs == (Need("a"),)


def test_a_planner_may_ask_for_a_gate_and_for_nothing_that_is_not_its_own() -> None:
    """M4, P7: effects, checks, fallbacks and budgets are not for a model to give."""
    made = plan.read("x", TOOLS, {"steps": [{"id": "a", "tool": "pay", "args": {}, "confirm": "Pay?"}]})
    assert made.steps[0].confirm == "Pay?" and made.steps[0].effect is None
    for field, value in (("effect", "read"), ("retries", 99), ("fallback", {"value": 1}), ("trust_output", True)):
        with pytest.raises(plan.Unplanned, match=field):
            plan.read("x", TOOLS, {"steps": [{"id": "a", "tool": "t", "args": {}, field: value}]})


def test_every_fault_is_listed() -> None:
    """P5, M1: all at once, for whoever wrote the plan to mend."""
    steps = [
        {"id": "a", "tool": "shell", "args": {}},
        {"id": "a", "tool": "text", "args": {"a": 5}},
        {"id": "c", "tool": "t", "args": {}, "needs": ["nowhere"]},
    ]
    objections = "; ".join(QUESTIONS["plan"].objections(ABOUT, {"steps": steps}))
    for words in ("unknown tool 'shell'", "used 2 times", "args.a", "nowhere"):
        assert words in objections
    assert QUESTIONS["plan"].objections(ABOUT, {"steps": STEPS}) == []


@pytest.mark.parametrize(
    "answer", [None, 7, "text", {}, {"plan": None}, {"steps": None}, {"steps": 7}, [], {"steps": []}]
)
def test_what_is_no_plan_is_refused(answer: Any) -> None:
    """P7: with words, never with anything but `Unplanned`."""
    with pytest.raises(plan.Unplanned) as refused:
        plan.read("x", TOOLS, answer)
    assert refused.value.faults and str(refused.value)


def test_the_effects_of_tools_are_shown_to_the_planner() -> None:
    """M1, E3: so that it makes one step for each thing that must happen."""
    prompt = QUESTIONS["plan"].ask(ABOUT, "s\n---\n{{tools}}", 10_000)
    assert f"- pay [{Effect.ONCE}]" in prompt.user
