"""X10 in the kernel: what a yes is to, when it ends, and how a call is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.codes import Category
from rerail.kernel import actions
from rerail.kernel import events as ev
from rerail.kernel.actions import Edits, Refusal
from rerail.kernel.decide import Call, Show, decide
from rerail.kernel.events import Course, Error, Event, Record
from rerail.kernel.fold import fold
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import AHEAD, FIRST, Phase, call_digest, signature
from rerail.kernel.verdict import gate_row
from rerail.plan.model import Plan
from rerail.plan.references import Names, compile_args, literal
from rerail.plan.step import Effect, Need, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.values.json_values import call_shown
from rerail.views.narration import gate_said
from rerail.views.replay.replay import replay

TOOLS = {name: ToolSpec(name) for name in ("t", "u")}
STEPS = (Step("a", "t"), Step("g", "u", {"x": 1}, (Need("a"),), confirm=True))
DOWN = Error("TOOL_FAILED", Category.TRANSIENT, "down")
D = call_digest("u", signature({"x": 1}), {})
OPEN = ev.GateOpened("g", 0, "u", D, {"x": 1})
YES = ev.Acted("confirm", "ann", "g", digest=D)
CALLED = ev.StepStarted("g", 1, "u", Effect.REPEATABLE, {"x": 1}, agreed=D)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["${a}", "$${a.b}", "$$${", "x ${"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def records(*events: Event, steps: tuple[Step, ...] = STEPS) -> list[Record]:
    """A history, a second each."""
    begun = (ev.RunStarted("goal"), ev.PlanAccepted(Plan("goal", steps)))
    return [Record("r", n, 100.0 + n, event) for n, event in enumerate((*begun, *events), 1)]


def after(*events: Event, steps: tuple[Step, ...] = STEPS) -> State:
    return fold("r", records(*events, steps=steps))


def did(step: str) -> tuple[Event, ...]:
    return ev.StepStarted(step, 1, "t"), ev.StepSucceeded(step, 1, {"n": 1}, f"{step}1")


def at_gate(*told: Event, steps: tuple[Step, ...] = STEPS) -> State:
    return after(*did("a"), *told, steps=steps)


def shows(state: State) -> list[str]:
    return [action.step for action in decide(state, TOOLS, state.at) if isinstance(action, Show)]


def calls(state: State) -> list[str]:
    return [action.step for action in decide(state, TOOLS, state.at) if isinstance(action, Call)]


@given(json_values)
def test_x10_what_a_person_writes_refers_to_nothing(value: Any) -> None:
    """X10, P4: texts that look like references are passed as they were typed, whatever they hold."""
    names = Names({"a": 1}, 1)
    for beside in ({}, {"y": "${a}"}):
        template = compile_args({"x": literal(value), **beside}, names)
        assert [ref.step for ref in template.refs] == ["a"] * len(beside)
        found = template.value["x"] if beside or value not in ({}, [], "") else value
        assert found == value


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=4))
def test_x10_a_digest_is_of_tool_arguments_and_files(args: dict[str, int]) -> None:
    """X10: in whatever order they stand; anything else is another call."""
    turned = dict(reversed(args.items()))
    one = call_digest("t", signature(args), {"f": "1"})
    assert one == call_digest("t", signature(turned), {"f": "1"})
    others = {
        call_digest("u", signature(args), {"f": "1"}), call_digest("t", signature({**args, "new": 1.5}), {"f": "1"}),
        call_digest("t", signature(args), {"f": "2"}), call_digest("t", signature(args), {}),
    }  # fmt: skip
    assert one not in others and len(others) == 4


def test_x10_a_gate_is_shown_before_anybody_is_waited_for() -> None:
    """X10: first the call, then the word that the run waits; once it is shown, nothing more."""
    unseen = at_gate()
    assert (shows(unseen), calls(unseen)) == (["g"], [])
    seen = at_gate(OPEN)
    assert (
        shows(seen) == []
        and not seen.unshown
        and [type(one).__name__ for one in decide(seen, TOOLS, 200.0)] == ["Note"]
    )
    assert calls(at_gate(OPEN, YES)) == ["g"] and at_gate(OPEN, YES).agrees(seen.tracks["g"], D) is False


def test_x10_a_yes_is_to_one_digest() -> None:
    """X10: until the gate opens again, which says what it was to."""
    state = at_gate(OPEN, YES)
    track = state.tracks["g"]
    assert state.agrees(track, D) and not state.agrees(track, "another")
    failed = (CALLED, ev.StepFailed("g", 1, DOWN))
    hurt = at_gate(OPEN, YES, *failed)
    assert hurt.tracks["g"].agreed == D, "a plain failure does not ask twice"
    again = ev.GateOpened("g", 1, "u", "d2", {"x": 2}, before=hurt.tracks["g"].gate.yes)  # type: ignore[union-attr]
    open_again = at_gate(OPEN, YES, *failed, ev.RetryScheduled("g", 2, 4, 2, 0.0, 0.0), again)
    assert open_again.tracks["g"].agreed == "" and open_again.gates and not open_again.unshown
    row = gate_row(again)
    assert row["before"] == {"tool": "u", "args": {"x": 1}, "digest": D} and row["digest"] == "d2"
    assert gate_said(row) == "agreed to u(x=1); now it would be u(x=2)"
    assert gate_said(row, "zh") == "已同意 u(x=1)；现在将是 u(x=2)"


@pytest.mark.parametrize(
    ("word", "kept"), [(ev.Acted("confirm", "ann", "g"), D), (ev.Acted("confirm", "ann", "g", ahead=True), AHEAD)]
)
def test_x10_a_yes_that_names_no_call_is_to_the_first_or_to_the_plans_own(word: ev.Acted, kept: str) -> None:
    """X10, E5: that of an earlier version ends with the first call's; one ahead holds until a rung changes the call."""
    assert at_gate(word).tracks["g"].agreed == (AHEAD if word.ahead else FIRST) and calls(at_gate(word)) == ["g"]
    for blank in (CALLED, ev.StepStarted("g", 1, "u")):  # earlier versions wrote no digest
        state = at_gate(word, blank)
        assert state.tracks["g"].agreed == kept
        assert state.tracks["g"].gate.yes == ev.Shown("u", D, {"x": 1})  # type: ignore[union-attr]
    for rung in (Rung.ADJUST, Rung.ALTERNATIVE, Rung.FALLBACK):
        course = Course(("g",))
        taken = ev.Recovered("g", 1, rung, tool="u", args={"x": 1}, course=course)
        changed = at_gate(word, CALLED, ev.StepFailed("g", 1, DOWN), taken)
        assert changed.tracks["g"].agreed == ("" if word.ahead else D)


def test_x10_what_ends_a_yes() -> None:
    """X10: success; force and clean; a mind's change; what a person writes anew."""
    done = (OPEN, YES, CALLED, ev.StepSucceeded("g", 1, 1, "o"))
    assert at_gate(*done).tracks["g"].gate is None
    failed = (OPEN, YES, CALLED, ev.StepFailed("g", 1, DOWN))
    course = Course(("g",), automatic=False, fresh=("g",))
    begin = ev.RetryBegin(1, "ann", ("g",), ("g",), 1, automatic=False, course=course)
    for ends in (
        (begin,), (ev.Acted("retry", "ann", "g", course=course),),
        (ev.Recovered("g", 1, Rung.ADJUST, args={"x": 1}, by="mind", course=Course(("g",))),),
        (ev.Acted("repair", "ann", "g", course=Course(("g",), (STEPS[1],), automatic=False)),),
    ):  # fmt: skip
        assert at_gate(*failed, *ends).tracks["g"].agreed == "", ends
    plain = Course(("g",), automatic=False)
    assert at_gate(*failed, ev.Acted("retry", "ann", "g", course=plain)).tracks["g"].agreed == D


def test_x10_whatever_its_call_is_made_from_is_shown_anew() -> None:
    """X10: a result by hand, an edited file, a definition; not what has nothing to do with it."""
    steps = (*STEPS, Step("b", "t"))
    assert not at_gate(OPEN, *did("b"), steps=steps).unshown
    file = ev.FileMade("f", "d", "a")
    made = ev.Acted("resolve", "ann", "a", outcome="succeeded", output=2, digest="o", course=Course(below=("a",)))
    lost = after(ev.StepStarted("a", 1, "t"), ev.StepSucceeded("a", 1, hole=True), OPEN, made, steps=STEPS)
    edited = at_gate(OPEN, ev.Acted("confirm", "ann", "b", files=(file,)), steps=steps)
    written = at_gate(OPEN, ev.Acted("repair", "ann", "g", course=Course(("g",), (STEPS[1],), automatic=False)))
    for state in (lost, edited, written):
        assert shows(state) == ["g"]
        with pytest.raises(Refusal, match="does not wait for a confirmation yet"):
            actions.confirm(state, "g", "ann")


def test_x10_a_late_word_of_a_gate_changes_nothing() -> None:
    """X10: a gate of a step that is under way, or not there."""
    state = at_gate(OPEN, YES, CALLED, OPEN, ev.GateOpened("x", 0, "u", D))
    assert state.tracks["g"].phase is Phase.RUNNING and state.tracks["g"].agreed == D


def test_x10_large_arguments_that_were_seen_elsewhere_are_not_edited() -> None:
    """X10: what is edited has to be what the gate shows."""
    large = ev.GateOpened("g", 0, "u", D, args_blob=signature({"x": 1, "long": "text"}))
    for shown in (None, {"x": 2}):
        with pytest.raises(Refusal) as refused:
            actions.confirm(at_gate(large), "g", "ann", edits=Edits({"x": 3}, shown=shown), tools=TOOLS)
        assert refused.value.code == "GATE_CHANGED" and "u(…)" in refused.value.message
    edits = Edits({"x": 3}, shown={"x": 1, "long": "text"})
    [acted] = actions.confirm(at_gate(large), "g", "ann", edits=edits, tools=TOOLS)
    assert isinstance(acted, ev.Acted) and acted.call is not None
    assert acted.call.args == {"x": 3, "long": "text"} and acted.course.steps[0].args == {"x": 3}


def test_x10_what_is_shown_is_nothing_but_text() -> None:
    """X10: arguments may hold anything; they are shown on one line, shortened."""
    said = call_shown("t\x1b[2J", {"a": "x\u202ey\n" + "z" * 900})
    assert "\x1b" not in said and "\u202e" not in said and "\n" not in said and len(said) < 420 and said.endswith("…)")


def test_x10_a_replay_finds_the_gate_and_the_word_for_it() -> None:
    """X10: whether the history holds the call that was shown, or an earlier version wrote none."""
    end = (
        ev.StepFailed("g", 1, Error("TOOL_FAILED", Category.PERMANENT, "broken")),
        ev.Reflected("g", 1, Category.PERMANENT, Rung.FAIL), ev.Evaluation(False, False, False),
        ev.Done("failed", False, False, False),
    )  # fmt: skip
    older = (ev.Waiting(()), ev.Acted("confirm", "ann", "g"), ev.StepStarted("g", 1, "u"))
    for told in ((OPEN, ev.Waiting(()), YES, CALLED), older):
        seen = replay("r", records(*did("a"), *told, *end), TOOLS, {"max_step_retries": 0}, branch_at=4)
        assert seen.known and seen.replayed.status == "failed" and not seen.drift
