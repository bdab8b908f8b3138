"""What rules can say of a failure by themselves (H6)."""

from __future__ import annotations

import pytest

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.decide import Note, decide
from rerail.kernel.events import Error, Event, Record
from rerail.kernel.fold import fold
from rerail.kernel.ladder import failed_blob, reflect
from rerail.kernel.policy import Policy
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Need, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.values.schema import Schema

TOOLS = {"t": ToolSpec("t", schema=Schema({"properties": {"n": {"type": "integer"}}}))}
WRONG = Error("BAD", Category.PARAMETER, "no such thing")


def state_of(*more: Event, policy: Policy | None = None) -> State:
    """The state after these."""
    steps = (Step("a", "t", {"n": "5"}), Step("b", "t", {"n": 5}), Step("c", "t", needs=(Need("a"), Need("b"))))
    events: list[Event] = [ev.RunStarted(policy=policy or Policy()), ev.PlanAccepted(Plan("", steps)), *more]
    return fold("r", [Record("r", n + 1, 100.0 + n, event) for n, event in enumerate(events)])


def test_rules_are_surer_of_a_change_than_of_none() -> None:
    """H6: where a concrete change is known; the cause is the tool's own words, and nobody else's."""
    both = [event for step in "ab" for event in (ev.StepStarted(step, 1, "t"), ev.StepFailed(step, 1, WRONG))]
    state = state_of(*both)
    sure, unsure = (reflect(state, TOOLS, state.tracks[step], WRONG) for step in "ab")
    assert (sure.args, sure.confidence, sure.root_cause) == ({"n": 5}, 90, "no such thing")
    assert (unsure.args, unsure.confidence, unsure.root_cause) == (None, 50, "no such thing")


def test_where_large_arguments_of_a_failed_call_are_kept() -> None:
    """H6: those that the failure names, else those of its call; a failure before a call has none of an earlier one."""
    called = ev.StepStarted("a", 1, "t", args_blob="big")
    state = state_of(called, ev.StepFailed("a", 1, WRONG))
    assert failed_blob(state.tracks["a"]) == "big"
    named = state_of(called, ev.StepFailed("a", 1, Error("BAD", Category.PARAMETER, "no", data={"args_blob": "other"})))
    assert failed_blob(named.tracks["a"]) == "other"
    wait = ev.RetryScheduled("a", 2, 4, 2, 0.0, 0.0)
    before = state_of(called, ev.StepFailed("a", 1, WRONG), wait, ev.StepFailed("a", 1, WRONG, called=False))
    assert failed_blob(before.tracks["a"]) == ""
    assert failed_blob(state_of(ev.StepFailed("a", 0, WRONG, called=False)).tracks["a"]) == ""


@pytest.mark.parametrize(("producers", "again"), [(["a", "b"], ("a", "b")), (["a", "gone"], ()), (["gone"], ())])
@pytest.mark.parametrize("code", ["ARTIFACT_GONE", "FILE_DAMAGED", "MISSING_PATH"])
def test_producers_run_again_where_what_they_made_is_gone(
    code: str, producers: list[str], again: tuple[str, ...]
) -> None:
    """H3: all of them, or, if one is not there any more, none; and for nothing else."""
    gone = Error(code, Category.DEPENDENCY, "gone", data={"producers": producers})
    done = [event for step in "ab" for event in (ev.StepStarted(step, 1, "t"), ev.StepSucceeded(step, 1, 1, step))]
    state = state_of(*done, ev.StepFailed("c", 0, gone, called=False))
    (note,) = decide(state, TOOLS, 200.0)
    assert isinstance(note, Note)
    touched = [event.course.touched for event in note.events if isinstance(event, ev.Recovered)]
    assert touched == ([again] if again and code != "MISSING_PATH" else [])


@pytest.mark.parametrize(("wish", "waits"), [(5.0, True), (600.0, True), (601.0, False)])
def test_not_now_is_obeyed_as_long_as_is_allowed(wish: float, waits: bool) -> None:
    """X8: the total of a step and round; past it, the step is not tried again in this round, automatic or not."""
    limited = Error("RATE_LIMITED", Category.TRANSIENT, "busy")
    state = state_of(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, limited, not_now=wish))
    (note,) = decide(state, TOOLS, 103.0)
    assert isinstance(note, Note)
    scheduled = [event for event in note.events if isinstance(event, ev.RetryScheduled)]
    assert [event.not_now for event in scheduled] == ([True] if waits else [])
    assert waits or state.refuses_wait(state.tracks["a"])
    lost = Error("ANSWER_LOST", Category.TRANSIENT, "gone")
    dead = state_of(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, lost, lost=True, not_now=wish))
    (crashed,) = decide(dead, TOOLS, 103.0)
    assert isinstance(crashed, Note) and isinstance(crashed.events[0], ev.RetryScheduled) and crashed.events[0].crashed
