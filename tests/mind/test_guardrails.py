"""What no mind may change of a plan: effects, gates, checks, budgets, and work that must not happen twice (M4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.mind.tales import TOOLS, Tale, step

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.events import Course
from rerail.kernel.policy import Rung
from rerail.kernel.step_state import signature
from rerail.mind.guardrails import KEPT, KEPT_IN_A_RUN, repeated, restrained
from rerail.plan.step import Check, Effect, Fallback, Fault, Produced, Step, Verify
from rerail.plan.tool_spec import ToolSpec
from rerail.values.schema import Schema

OTHER: dict[str, Any] = {
    "effect": Effect.ONCE, "trust_output": True, "fallback": Fallback(value="x"), "retries": 7, "timeout": 9.0,
    "check": Check(non_empty=True), "verify": Verify("t"), "produces": (Produced("a.txt"),), "critical": False,
    "on_doubt": "fail", "settle": 60.0, "idempotent_for": 5.0,
}  # fmt: skip
WISHED: dict[str, Any] = {
    "effect": Effect.READ, "trust_output": False, "fallback": Fallback(value="made up"), "retries": 99, "timeout": 1e6,
    "check": Check(), "verify": Verify("u"), "produces": (Produced("b.txt"),), "critical": False,
    "on_doubt": "wait", "settle": 1.0, "idempotent_for": 1e6,
}  # fmt: skip


def test_every_field_that_makes_a_step_safe_is_kept() -> None:
    """M4: and whoever adds a field to steps decides here whether it is a mind's."""
    free = {"id", "tool", "args", "needs", "title", "stage", "alternatives", "priority", "resources", "confirm"}
    assert {*Step.__struct_fields__} - free == set(KEPT_IN_A_RUN) == set(OTHER) == {*KEPT, "critical"}


@pytest.mark.parametrize("field", OTHER)
def test_a_field_stays_as_the_plans_author_said(field: str) -> None:
    """H7, H8, M4: left out it is kept; set to something else it is kept too, and is a fault that says why."""
    old = step("s", **{field: OTHER[field]})
    faults: list[Fault] = []
    assert getattr(restrained(step("s", args={"n": 1}), old, faults), field) == OTHER[field]
    assert getattr(restrained(old, old, faults), field) == OTHER[field]
    assert faults == []
    wished = step("s", **{field: WISHED[field]})
    kept = restrained(wished, old, faults)
    assert getattr(kept, field) == OTHER[field]
    if field != "critical":  # it has but two values, and the other one is the default
        assert [fault.message for fault in faults] == [f"{field}: {KEPT_IN_A_RUN[field]}; leave it out"]


@pytest.mark.parametrize("field", OTHER)
def test_a_new_step_gets_the_defaults(field: str) -> None:
    """M4: a mind gives no step of its own what it may not give to others."""
    faults: list[Fault] = []
    made = restrained(step("new", **{field: WISHED[field]}), None, faults)
    assert getattr(made, field) == getattr(step("x"), field)
    assert len(faults) == 1


def test_a_planner_may_say_what_matters() -> None:
    """P7: nobody else has said it yet; inside a run somebody has."""
    faults: list[Fault] = []
    assert restrained(step("new", critical=False), None, faults, running=False).critical is False
    assert faults == []


@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        (False, False, False), (False, True, True), (False, "Sure?", "Sure?"), (True, False, True),
        ("Wipe it?", False, "Wipe it?"), ("Wipe it?", True, "Wipe it?"), ("Wipe it?", "All is well", "Wipe it?"),
    ],
)  # fmt: skip
def test_a_gate_may_be_added_and_is_never_opened_or_reworded(before: Any, said: Any, after: Any) -> None:
    """M4, T2: a person reads the question that the plan's author wrote."""
    assert restrained(step("s", confirm=said), step("s", confirm=before), []).confirm == after


@pytest.mark.parametrize("made", [step("new", "wipe"), step("s", "wipe"), step("new", "t", alternatives=("wipe",))])
def test_a_gate_is_not_walked_around(made: Step) -> None:
    """M4: under another id, in another step, or as an alternative, the tool keeps its gate."""
    old = step("s", "t") if made.id == "s" else None
    assert restrained(made, old, [], gated={"wipe": "Really?"}).confirm == "Really?"


def test_a_step_that_does_not_change_gets_no_gate() -> None:
    """H8: the plan's author used the tool without one there."""
    old = step("s", "wipe")
    assert restrained(old, old, [], gated={"wipe": True}).confirm is False


# -- Once --------------------------------------------------------------------------------------------------------------


def paid(**more: Any) -> Tale:
    return Tale(step("p", "pay", args={"n": 5}, **more), step("s"))


def words_of(tale: Tale, *steps: Step) -> list[str]:
    return [fault.message for fault in repeated(tale.state, steps, {})]


def test_once_work_is_not_repeated_under_another_name() -> None:
    """H8, M4: same tool and same arguments, as the plan or as the call had them; other arguments are other work."""
    tale = paid().succeed("p")
    assert "what step 'p' has done" in words_of(tale, step("q", "pay", args={"n": 5}))[0]
    assert words_of(tale, step("q", "pay", args={"n": 6}), step("q", "t", args={"n": 5})) == []
    assert words_of(tale, step("p", "pay", args={"n": 5})) == [], "the step itself stays done"


def test_once_work_with_the_arguments_of_the_call() -> None:
    """H8: where they referred to outputs, what they came to counts."""
    tale = Tale(step("a"), step("p", "pay", args={"n": "${a.n}"})).succeed("a").succeed("p", args={"n": 1})
    assert words_of(tale, step("q", "pay", args={"n": 1}))


def test_once_work_in_doubt_is_not_repeated() -> None:
    """E3, M4: nobody knows whether it happened."""
    tale = paid().fail("p", Category.TRANSIENT, lost=True)
    assert words_of(tale, step("q", "pay", args={"n": 5}))
    tale.tell(ev.StepSkipped("p", "SKIP_USER", "", "ann"))
    assert words_of(tale, step("q", "pay", args={"n": 5})), "doing without the step does not undo it"


def test_once_work_that_failed_may_be_done_by_another_step() -> None:
    """X4: an explicit error is an ordinary failure; so is what verify does not find, or a person denies."""
    assert not words_of(paid().fail("p"), step("q", "pay", args={"n": 5}))
    doubt = paid().fail("p", lost=True)
    doubt.tell(ev.Acted("resolve", "ann", "p", outcome="failed"))
    error = ev.Error("RESOLVED_FAILED", Category.PERMANENT, "no")
    assert not words_of(doubt.tell(ev.StepFailed("p", 1, error, called=False)), step("q", "pay", args={"n": 5}))
    absent = paid().fail("p", lost=True).tell(ev.StepVerified("p", 1, "absent"))
    assert not words_of(absent, step("q", "pay", args={"n": 5}))
    there = paid().fail("p", lost=True).tell(ev.StepVerified("p", 1, "there"))
    assert words_of(there, step("q", "pay", args={"n": 5}))


def test_once_work_of_a_dropped_step_is_still_done() -> None:
    """H8, P6: a plan that forgets a step does not undo its effect; and attempt numbers are not used again."""
    tale = paid().succeed("p")
    tale.tell(ev.Replanned(2, Course(dropped=("p",), order=("s",)), "m"))
    assert words_of(tale, step("q", "pay", args={"n": 5}), step("p", "pay", args={"n": 5})) != []
    assert len(words_of(tale, step("p", "pay", args={"n": 5}))) == 1
    tale.tell(ev.Replanned(3, Course(steps=(step("p", "u"),), order=("s", "p")), "m"))
    assert tale.state.tracks["p"].attempt == 1


def test_a_steps_own_once_holds_for_its_tool() -> None:
    """E3: what the plan says must not happen twice, another step with a tool that does not say so must not do."""
    tale = Tale(step("p", "t", args={"n": 5}, effect=Effect.ONCE), step("s")).succeed("p")
    assert words_of(tale, step("q", "t", args={"n": 5}))


# -- Calls that a mind chose -------------------------------------------------------------------------------------------


def chosen(rung: Rung, **more: Any) -> Tale:
    """A step whose next call is a mind's choice."""
    tale = Tale(
        step("p", "pay", args={"n": 5}), step("s", args={"n": 1}, effect=Effect.READ, **more),
        step("w", "wipe", confirm="Really?"),
    ).succeed("p").fail("s")  # fmt: skip
    tale.ask("s", rung, Category.TOOL)
    what: dict[str, Any] = {"tool": "pay"} if rung is Rung.ALTERNATIVE else {"args": {"n": 5}}
    steps = (msgspec.structs.replace(tale.state.tracks["s"].step, tool="pay", args={"n": 5}),)
    return tale.tell(
        ev.Recovered("s", 1, rung, by="m", course=Course(("s",), steps if rung is Rung.REPAIR else ()), **what)
    )


@pytest.mark.parametrize("rung", [Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR])
def test_a_call_that_a_mind_chose_is_held_to_the_tools_word(rung: Rung) -> None:
    """E3, M4: the plan's `read` was said of another call; the stricter word counts, and the plan's `once` stays."""
    track = (tale := chosen(rung)).state.tracks["s"]
    assert tale.state.effect_of(track, ToolSpec("pay", effect=Effect.ONCE)) is Effect.ONCE
    assert tale.state.effect_of(track, ToolSpec("t", effect=Effect.REPEATABLE)) is Effect.REPEATABLE
    own = Tale(step("s", effect=Effect.READ), step("o", "u", effect=Effect.ONCE))
    assert own.state.effect_of(own.state.tracks["s"], ToolSpec("pay", effect=Effect.ONCE)) is Effect.READ, (
        "the plan's own call"
    )
    assert own.state.effect_of(own.state.tracks["o"], ToolSpec("u")) is Effect.ONCE
    own.tell(ev.Replanned(2, Course(steps=(step("n", "u"),), order=("s", "o", "n")), "m"))
    assert own.state.effect_of(own.state.tracks["n"], ToolSpec("u")) is Effect.ONCE


@pytest.mark.parametrize("rung", [Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR])
def test_a_call_that_a_mind_chose_repeats_nothing(rung: Rung) -> None:
    """M4: looked at when the arguments are known; other arguments pass, and so do the plan's own calls."""
    tale = chosen(rung)
    track = tale.state.tracks["s"]
    assert tale.state.repeats(track, ToolSpec("pay"), {"n": 5}, Effect.ONCE) == "p"
    assert tale.state.repeats(track, ToolSpec("pay"), {"n": 6}, Effect.ONCE) == ""
    own = Tale(step("p", "pay", args={"n": 5}), step("q", "pay", args={"n": 5})).succeed("p")
    assert own.state.repeats(own.state.tracks["q"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == "", (
        "the author wanted it twice"
    )


@pytest.mark.parametrize("rung", [Rung.ADJUST, Rung.ALTERNATIVE, Rung.REPAIR])
def test_whoever_agreed_agreed_to_another_call(rung: Rung) -> None:
    """T2, M4: a gate that was passed is shut again when a mind changes the call behind it; the rules' change is not
    a mind's."""
    for by, shut in (("m", True), ("rules", False)):
        tale = Tale(step("s", confirm=True, args={"n": 1}))
        tale.tell(ev.Acted("confirm", "ann", "s")).fail("s").ask("s", rung, Category.TOOL)
        steps = (step("s", "u", confirm=True),) if rung is Rung.REPAIR else ()
        tale.tell(ev.Recovered("s", 1, rung, by=by, tool="u", args={"n": 2}, course=Course(("s",), steps)))
        assert bool(tale.state.gates) is shut, by


def test_a_new_plan_shuts_gates_again_where_it_changes_the_step() -> None:
    """T2, H8: and leaves those of steps that stay as they are."""
    tale = Tale(step("s", confirm=True), step("k", confirm=True), step("x"))
    tale.tell(ev.Acted("confirm", "ann", "s"), ev.Acted("confirm", "ann", "k")).fail("s").fail("k").fail("x")
    tale.ask("x", Rung.REPLAN).ask("s", Rung.FAIL).ask("k", Rung.FAIL)
    new = (step("s", "u", confirm=True), step("k", confirm=True, title="same work"), step("x"))
    tale.tell(ev.Replanned(2, Course(steps=new, order=("s", "k", "x")), "m"))
    assert [track.id for track in tale.state.gates.values()] == ["s"]


def test_a_person_may_have_it_all_the_same() -> None:
    """X7: what a mind may not repeat, a person may ask for."""
    tale = chosen(Rung.REPAIR)
    error = ev.Error("ONCE_REPEATED", Category.PERMANENT, "no")
    tale.tell(ev.StepFailed("s", 1, error, called=False)).ask("s", Rung.FAIL, Category.PERMANENT)
    tale.tell(ev.Acted("retry", "ann", "s", course=Course(("s",), automatic=False)))
    assert tale.state.repeats(tale.state.tracks["s"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == ""


def test_a_mind_does_not_do_what_another_step_is_to_do() -> None:
    """M4: the effect would happen twice when that step comes; and where it could not be foreseen, that step stops."""
    tale = Tale(step("s"), step("p", "pay", args={"n": 5}), step("r", "pay", args={"n": "${s.n}"}))
    tale.fail("s").ask("s", Rung.ALTERNATIVE, Category.TOOL)
    tale.tell(ev.Recovered("s", 1, Rung.ALTERNATIVE, by="m", tool="pay", course=Course(("s",))))
    state = tale.state
    assert state.repeats(state.tracks["s"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == "p"
    assert state.repeats(state.tracks["s"], ToolSpec("pay"), {"n": 5}, Effect.REPEATABLE) == ""
    assert state.repeats(state.tracks["s"], ToolSpec("pay"), {"n": 6}, Effect.ONCE) == ""
    tale.succeed("s", args={"n": 6})
    assert state.repeats(state.tracks["r"], ToolSpec("pay"), {"n": 6}, Effect.ONCE) == "s"
    assert state.repeats(state.tracks["p"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == ""


PRICED = ToolSpec(
    "pay", schema=Schema({"properties": {"n": {}, "currency": {"default": "EUR"}, "odd": {"type": "object"}}})
)


@pytest.mark.parametrize("written", [{"n": 5}, {"n": 5, "currency": "EUR"}])
@pytest.mark.parametrize("wanted", [{"n": 5}, {"n": 5, "currency": "EUR"}])
def test_a_default_spelt_out_is_no_other_call(written: dict[str, Any], wanted: dict[str, Any]) -> None:
    """M4: neither in a call that a mind chose, nor in one of the plan after a mind's, nor in a new plan."""
    tale = Tale(step("s"), step("p", "pay", args=written, effect=Effect.ONCE)).succeed("p", args=written)
    assert repeated(tale.state, [step("x", "pay", args=wanted)], {"pay": PRICED})
    assert not repeated(tale.state, [step("x", "pay", args={**wanted, "currency": "USD"})], {"pay": PRICED})
    tale.fail("s").ask("s", Rung.ALTERNATIVE, Category.TOOL)
    tale.tell(ev.Recovered("s", 1, Rung.ALTERNATIVE, by="m", tool="pay", course=Course(("s",))))
    assert tale.state.repeats(tale.state.tracks["s"], PRICED, wanted, Effect.ONCE) == "p"
    planned = Tale(step("s"), step("p", "pay", args=written, effect=Effect.ONCE))
    planned.fail("s").ask("s", Rung.ALTERNATIVE, Category.TOOL)
    planned.tell(ev.Recovered("s", 1, Rung.ALTERNATIVE, by="m", tool="pay", course=Course(("s",))))
    assert planned.state.repeats(planned.state.tracks["s"], PRICED, wanted, Effect.ONCE) == "p"


NESTED = ToolSpec("pay", schema=Schema({
    "properties": {
        "n": {"type": "number"}, "card": {"$ref": "#/$defs/Card"}, "tax": {"type": "number", "default": 1},
        "cards": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Card"}}, {"type": "null"}], "default": None},
    },
    "$defs": {"Card": {"type": "object", "properties": {"no": {"type": "string"}, "cvc": {"default": "0"}}}},
}))  # fmt: skip


@pytest.mark.parametrize(
    ("done", "wanted"),
    [
        ({"n": 10}, {"n": 10.0}), ({"n": 1.0}, {"n": 1}), ({"n": 10**16}, {"n": 1e16}),
        ({"n": 1}, {"n": 1, "tax": 1.0}),
        ({"card": {"no": "1"}}, {"card": {"no": "1", "cvc": "0"}}), ({"n": [1, {"m": 2.0}]}, {"n": [1.0, {"m": 2}]}),
        ({"cards": [{"no": "1"}]}, {"cards": [{"no": "1", "cvc": "0"}]}), ({"n": 1}, {"n": 1, "cards": None}),
    ],
)  # fmt: skip
def test_the_same_arguments_spelt_otherwise_are_no_other_call(done: dict[str, Any], wanted: dict[str, Any]) -> None:
    """M4: whole numbers, and defaults at any depth."""
    tale = Tale(step("s"), step("p", "pay", args=done, effect=Effect.ONCE)).succeed("p", args=done)
    assert repeated(tale.state, [step("x", "pay", args=wanted)], {"pay": NESTED})
    assert not repeated(tale.state, [step("x", "pay", args={**wanted, "n": 11.5})], {"pay": NESTED})


def test_odd_schemas_and_values_are_left_as_they_are() -> None:
    """M4: a schema of true, values deeper than anything real, no arguments at all."""
    odd = ToolSpec("t", schema=Schema({"$defs": {"A": True}, "properties": {"a": {"$ref": "#/$defs/A"}}}))
    assert odd.plain({"a": {"b": 1.0}}) == {"a": {"b": 1}}
    deep: Any = 1.0
    for _ in range(60):
        deep = [deep]
    assert ToolSpec("t").plain({"a": deep}) == {"a": deep} and ToolSpec("t").plain(None) is None


def test_the_plans_own_call_after_a_minds_that_spelt_a_default_out() -> None:
    """M4: the mind's call stands, whatever is left out of the later one."""
    tale = Tale(step("s"), step("r", "pay", args={"n": "${s.n}"}))
    tale.fail("s").ask("s", Rung.ALTERNATIVE, Category.TOOL)
    tale.tell(ev.Recovered("s", 1, Rung.ALTERNATIVE, by="m", tool="pay", course=Course(("s",))))
    tale.succeed("s", args={"n": 6, "currency": "EUR"})
    assert tale.state.repeats(tale.state.tracks["r"], PRICED, {"n": 6}, Effect.ONCE) == "s"
    assert tale.state.repeats(tale.state.tracks["r"], PRICED, {"n": 6, "currency": "USD"}, Effect.ONCE) == ""


def test_arguments_are_compared_by_what_they_are() -> None:
    """M4: not by the order of their keys; 1 and true and "1" are not the same."""
    assert signature({"a": 1, "b": {"c": [1], "d": 2}}) == signature({"b": {"d": 2, "c": [1]}, "a": 1})
    assert len({signature({"a": value}) for value in (1, True, "1", None, [1], 1.5)}) == 6


def test_the_tools_of_these_tales_are_what_they_say() -> None:
    """A look at the tests' own ground."""
    assert [name for name, spec in TOOLS.items() if spec.effect is Effect.ONCE] == ["pay"]


def test_what_cannot_be_written_as_json_repeats_nothing() -> None:
    """H8: whether such arguments were used before cannot be said; that they are none is found by the plan's check."""
    tale = Tale(step("a"), step("p", "pay", args={"n": 5})).succeed("p", effect=Effect.ONCE)
    assert repeated(tale.state, [step("x", "pay", args={"n": object()})], {}) == []
    assert [fault.code for fault in repeated(tale.state, [step("x", "pay", args={"n": 5})], {})] == ["BAD_VALUE"]
