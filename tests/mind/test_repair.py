"""Repairs: one step, its id, tools that exist, arguments that fit, and nothing that is not a repair's (H7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.mind.tales import TOOLS, Tale, step

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.policy import Rung
from rerail.kernel.verdict import summary, verdict
from rerail.mind import repair
from rerail.mind.questions import QUESTIONS
from rerail.plan.step import Effect, Fallback, Need, Step


def told(**more: Any) -> Tale:
    tale = Tale(
        step("0", "t"),
        step("p", "pay", args={"n": 5}),
        step("s", "t", args={"a": "old"}, needs=(Need("0"),), **more),
        step("after", "t", args={"x": "${s.n}"}),
    )
    return tale.succeed("0").succeed("p").fail("s").ask("s", Rung.REPAIR)


def read(tale: Tale, answer: Any) -> ev.Event:
    return repair.read(tale.state, TOOLS, "s", tale.state.tracks["s"].attempt, answer, "m")


def repaired(answer: Any, **more: Any) -> Step:
    event = read(told(**more), answer)
    assert isinstance(event, ev.Recovered), event
    assert (event.rung, event.by, event.course.touched) == (Rung.REPAIR, "m", ("s",))
    return event.course.steps[0]


def faults(answer: Any, tale: Tale | None = None) -> str:
    event = read(tale or told(), answer)
    assert isinstance(event, ev.PlanRejected), event
    assert (event.question, event.step, event.by) == ("repair", "s", "m")
    return "; ".join(event.faults)


def objections(answer: Any, tale: Tale | None = None) -> str:
    return "; ".join(QUESTIONS["repair"].objections((tale or told()).question("repair", "s"), answer))


@pytest.mark.parametrize(
    "answer",
    [
        {"step": {"id": "s", "tool": "u", "args": {"a": "new"}, "needs": ["0"]}, "reason": "because"},
        {"step": {"tool": "u", "args": {"a": "new"}}, "reason": "because"},
        {"tool": "u", "args": {"a": "new"}},
        {"step": {"id": "s", "aiName": "u", "parameters": {"a": "new"}, "dependsOn": ["0"]}, "reason": "because"},
        step("s", "u", args={"a": "new"}, needs=(Need("0"),)),
        {"step": step("s", "u", args={"a": "new"}, needs=(Need("0"),))},
    ],
)
def test_a_step_is_rewritten(answer: Any) -> None:
    """H7: whole or just what changes, in any of the spellings that plans have (P3)."""
    assert repaired(answer) == step("s", "u", args={"a": "new"}, needs=(Need("0"),))


def test_a_repair_that_takes_another_tool_than_planned_says_so() -> None:
    """H7, V7: in the summary; a repair of the arguments alone has nothing to say."""
    for answer, said in (({"tool": "u"}, "s (t → u)"), ({"args": {"a": "new"}}, "")):
        tale = told()
        tale.tell(read(tale, answer)).succeed("s")
        assert ("another tool than planned" in summary(tale.state, verdict(tale.state))) is bool(said)
        assert said in summary(tale.state, verdict(tale.state))


def test_a_step_whose_tool_is_gone_is_no_reason_to_refuse_the_repair_of_another() -> None:
    """E5, P5: a change is refused for what it brings."""
    tale = Tale(step("old", "gone"), step("s")).fail("s").ask("s", Rung.REPAIR)
    assert isinstance(read(tale, {"tool": "u"}), ev.Recovered)


def test_the_reason_is_kept() -> None:
    """H7: and cut."""
    event = read(told(), {"tool": "u", "reason": "because " * 1000})
    assert isinstance(event, ev.Recovered) and event.reason.startswith("because") and len(event.reason) == 500


@pytest.mark.parametrize("answer", [None, {"step": None, "reason": "no way"}])
def test_nothing_to_offer_is_a_fine_answer(answer: Any) -> None:
    """H7: declined, and counted."""
    tale = told()
    event = read(tale, answer)
    assert isinstance(event, ev.Declined) and not event.late
    assert event.reason == ("no way" if answer else "no repair was offered")
    assert tale.tell(event).state.tracks["s"].heal.repairs == 1


@pytest.mark.parametrize("answer", [7, "text", [], [{"tool": "u"}], {"step": []}, {"step": "u"}, {"step": {"args": 5}}])
def test_what_is_no_step_is_declined(answer: Any) -> None:
    """H7: with what was wrong."""
    event = read(told(), answer)
    assert isinstance(event, ev.Declined) and event.reason


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"id": "other", "tool": "u"}, "keeps the id"),
        ({"args": {"a": "old"}}, "unchanged"),
        ({}, "unchanged"),
        ({"title": "a new name", "timeout": None}, "unchanged"),
        ({"tool": "shell"}, "unknown tool 'shell'"),
        ({"tool": "text", "args": {"a": 5}}, "args.a for tool 'text'"),
        ({"args": {"a": "${nowhere.x}"}}, "nowhere"),
        ({"args": {"a": "${s.x}"}}, "own output"),
        ({"needs": ["nowhere"]}, "nowhere"),
        ({"needs": ["s"]}, "needs itself"),
        ({"alternatives": ["shell"]}, "shell"),
        ({"tool": "u", "retries": 99}, "budgets"),
        ({"tool": "u", "effect": "read"}, "effect"),
        ({"tool": "u", "fallback": {"value": 1}}, "made-up"),
        ({"tool": "u", "critical": False}, "matters"),
        ({"tool": "u", "trust_output": True}, "talked away"),
    ],
)
def test_a_bad_repair_is_refused(answer: dict[str, Any], words: str) -> None:
    """H7, P5, M4: by the engine, and before that whoever gave it is told the same."""
    whole = {"tool": "t", "args": {"a": "old"}, **answer}
    assert words in faults(answer)
    assert words in objections({"step": whole, "reason": ""})


def test_a_circle_is_refused() -> None:
    """P5: with its path; a repair may not need what needs it."""
    assert "s → after → s" in faults({"needs": ["after"]}) or "after → s → after" in faults({"needs": ["after"]})


def test_a_bad_repair_counts_and_changes_nothing() -> None:
    """P5, H4: the old plan stays, and the budget is used."""
    tale = told()
    before = tale.state.tracks["s"].step
    tale.tell(read(tale, {"tool": "shell"}))
    assert tale.state.tracks["s"].step == before and tale.state.tracks["s"].heal.repairs == 1


def test_needs_are_ids_also_where_ids_are_numbers() -> None:
    """P3, P6: "0" is the step of that name, not the first of the steps that were sent."""
    assert repaired({"tool": "u", "needs": ["0", "p"]}).needs == (Need("0"), Need("p"))
    assert objections({"step": {"tool": "u", "args": {}, "needs": ["0"]}, "reason": ""}) == ""


def test_everything_else_about_the_step_stays() -> None:
    """H7: fallback, retries, gate, effect, and whether it matters."""
    kept: dict[str, Any] = {
        "fallback": Fallback(value=1), "retries": 1, "confirm": "Sure?", "effect": Effect.ONCE, "critical": False,
        "title": "T", "stage": "x", "timeout": 5.0,
    }  # fmt: skip
    new = repaired({"id": "s", "tool": "u", "args": {"a": "new"}}, **kept)
    assert {name: getattr(new, name) for name in kept} == kept


def test_once_work_of_another_step_is_not_done_by_a_repair() -> None:
    """M4: the same call under this step's name."""
    assert "what step 'p' has done" in faults({"tool": "pay", "args": {"n": 5}})
    assert repaired({"tool": "pay", "args": {"n": 6}}).tool == "pay"


def test_a_repair_does_not_walk_around_a_gate() -> None:
    """M4, T2: with the tool of a step that a person has to agree to, this one has to be agreed to as well."""
    tale = Tale(step("s"), step("w", "wipe", confirm="Really?")).fail("s").ask("s", Rung.REPAIR)
    event = read(tale, {"tool": "wipe", "args": {"n": 1}})
    assert isinstance(event, ev.Recovered) and event.course.steps[0].confirm == "Really?"
    assert {track.id for track in tale.tell(event).state.gates.values()} == {"s", "w"}


def test_a_repair_that_comes_too_late_is_not_heard() -> None:
    """T7: of an older attempt, or of a step that nobody asked about."""
    tale = told()
    for attempt, name in ((0, "s"), (1, "0"), (1, "nowhere")):
        event = repair.read(tale.state, TOOLS, name, attempt, {"tool": "u"}, "m")
        assert isinstance(event, ev.Declined) and event.late


def test_a_repaired_step_gets_fresh_retries() -> None:
    """H7: and its next call is with the new tool."""
    tale = told()
    tale.tell(read(tale, {"tool": "u"}))
    track = tale.state.tracks["s"]
    assert (track.calls, track.step.tool, track in tale.state.ready) == (0, "u", True)


def test_what_speaks_against_an_answer_is_told_to_whoever_gave_it() -> None:
    """M1, H7: no repair is one; a step that cannot be read, or is none, is not."""
    question = Tale(step("a"), step("b")).fail("a").ask("a", Rung.REPAIR).question("repair", "a")
    assert repair.objections(question, {"step": None}) == []
    assert repair.objections(question, {"step": 3}) and repair.objections(question, {"step": {"id": "z", "tool": "u"}})


@pytest.mark.parametrize("category", [Category.PARAMETER, Category.DEPENDENCY])
def test_a_tool_that_nothing_was_said_against_is_kept(category: Category) -> None:
    """H5, H7: another one does other work, and its answer would pass for this step's; one that the plan names may."""

    def refused(**more: Any) -> Tale:
        tale = Tale(step("0", "t"), step("s", "t", args={"a": "old"}, needs=(Need("0"),), **more))
        return tale.succeed("0").fail("s", category).ask("s", Rung.REPAIR, category)

    swapped = {"step": {"tool": "u", "args": {"a": "new"}}, "reason": "because"}
    kept = {"step": {"tool": "t", "args": {"a": "new"}}, "reason": "because"}
    for said in (faults(swapped, refused()), objections(swapped, refused())):
        assert "keeps the tool 't'" in said and str(category) in said
    assert not objections(kept, refused()) and isinstance(read(refused(), kept), ev.Recovered)
    later = {"step": {"tool": "t", "args": {"a": "new"}, "alternatives": ["u"]}, "reason": "because"}
    assert "keeps the tool 't'" in faults(later, refused()), "it may not be named for the next time either"
    own = {**TOOLS, "t": replace(TOOLS["t"], alternatives=("u",))}
    event = repair.read((tale := refused()).state, own, "s", tale.state.tracks["s"].attempt, swapped, "m")
    assert isinstance(event, ev.Recovered), "the tool itself names it"
    assert not objections(swapped, refused(alternatives=("u",)))
    assert isinstance(read(refused(alternatives=("u",)), swapped), ev.Recovered)


@pytest.mark.parametrize("category", [Category.TOOL, Category.UNKNOWN, Category.DECOMPOSITION])
def test_a_tool_that_failed_may_be_replaced(category: Category) -> None:
    """H7: that is what a repair is for."""
    tale = Tale(step("0", "t"), step("s", "t", args={"a": "old"}, needs=(Need("0"),)))
    tale.succeed("0").fail("s", category).ask("s", Rung.REPAIR, category)
    swapped = {"step": {"tool": "u", "args": {"a": "new"}}, "reason": "because"}
    assert not objections(swapped, tale) and isinstance(read(tale, swapped), ev.Recovered)
