"""Reflections: what is believed of them, what is refused, and with which words (H5)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.mind.tales import TOOLS, Tale, step

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.ladder import _thought
from rerail.kernel.policy import LADDER, Rung
from rerail.kernel.step_state import signature
from rerail.mind import reflection as reflect
from rerail.mind.questions import QUESTIONS

CONCRETE = {"a": "right"}


def told(tool: str = "t", category: Category = Category.UNKNOWN, **policy: Any) -> Tale:
    tale = Tale(step("s", tool, args={"a": "wrong"}), step("p", "pay"), **policy)
    return tale.fail("s", category, args={"a": "wrong"}).ask("s")


def read(tale: Tale, answer: Any, failed: str = "") -> list[ev.Event]:
    return reflect.read(tale.state, TOOLS, "s", tale.state.tracks["s"].attempt, answer, "m", 2000.0, failed)


def first(tale: Tale, answer: Any, failed: str = "") -> ev.Reflected:
    found = read(tale, answer, failed)[0]
    assert isinstance(found, ev.Reflected)
    return found


def objections(tale: Tale, answer: Any) -> list[str]:
    return QUESTIONS["reflect"].objections(tale.question("reflect", "s"), answer)


def whole(**more: Any) -> dict[str, Any]:
    return {"category": "unknown_error", "root_cause": "c", "recoverable": True, "confidence": 80, **more}


# -- Category and action agree -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("category", Category)
@pytest.mark.parametrize("rung", Rung)
def test_category_and_action_agree(category: Category, rung: Rung) -> None:
    """H5: a rung that is not on the category's ladder is not believed; to fail is always on it."""
    thought = first(told(), whole(category=str(category), action=str(rung)))
    if rung in LADDER[category] or rung is Rung.FAIL:
        assert (thought.by, thought.category) == ("m", category)
    else:
        assert thought.by == "rules" and "do not agree" in thought.refused[0]


@pytest.mark.parametrize("category", Category)
def test_arguments_and_tools_go_with_their_categories(category: Category) -> None:
    """H5, H3: adjusted arguments with parameter errors alone; another tool where the ladder has that rung."""
    for more, rung in (({"suggestion": CONCRETE}, Rung.ADJUST), ({"alternatives": ["u"]}, Rung.ALTERNATIVE)):
        thought = first(told(), whole(category=str(category), **more))
        assert (thought.by == "m") is (rung in LADDER[category])


@pytest.mark.parametrize("word", ["parameter_error", "parameter", " Parameter_Error "])
def test_a_category_may_be_said_shortly(word: str) -> None:
    """H5: document examples say both."""
    assert first(told(), whole(category=word, suggestion=CONCRETE)).category is Category.PARAMETER


# -- Arguments ---------------------------------------------------------------------------------------------------------


def test_arguments_lie_over_those_that_failed() -> None:
    """H5: what is said changes, the rest stays."""
    tale = Tale(step("s")).fail("s", args={"a": "wrong", "b": 2}).ask("s")
    _, taken = read(tale, whole(category="parameter_error", suggestion={"a": "right"}))
    assert isinstance(taken, ev.Recovered)
    assert (taken.rung, taken.args, taken.by) == (Rung.ADJUST, {"a": "right", "b": 2}, "m")


@pytest.mark.parametrize(
    "vague",
    [
        "${p}", "${p.n}", "{{value}}", "<the right one>", "...", "…", "TODO", " TBD ", "YOUR_API_KEY", ["x", "${p}"],
        {"deep": [{"er": "<id>"}]},
    ],
)  # fmt: skip
def test_arguments_are_concrete(vague: Any) -> None:
    """H5: no references, no placeholders, at any depth."""
    answer = whole(category="parameter_error", suggestion={"a": vague})
    assert "not concrete" in first(told(), answer).refused[0]
    assert "not concrete" in objections(told(), answer)[0]


@pytest.mark.parametrize("plain", ["a < b > c", "$5", "{x}", "…and more", "<<EOF", "TODO list"])
def test_texts_that_only_look_vague_are_fine(plain: str) -> None:
    """H5: a value is not refused for a dollar sign."""
    assert first(told(), whole(category="parameter_error", suggestion={"a": plain})).by == "m"


@pytest.mark.parametrize("odd", [["x"], 7, True, {"a": "x" * 20_000}, {"a": float("nan")}, {"a": object()}])
def test_arguments_are_an_object_of_json_of_modest_size(odd: Any) -> None:
    """H5: anything else is refused, and the rules' thought takes its place."""
    thought = first(told(), whole(category="parameter_error", suggestion=odd))
    assert thought.by == "rules" and thought.refused[0].startswith("m: the suggestion ")


@pytest.mark.parametrize("words", ["try another source", None, {}, {"reason": "none"}])
def test_a_suggestion_in_words_is_for_people(words: Any) -> None:
    """H5: it changes nothing, and is no fault."""
    thought = first(told(), whole(category="parameter_error", suggestion=words))
    assert (thought.by, thought.suggestion, thought.rung) == ("m", None, Rung.REPAIR)


@pytest.mark.parametrize("bad", [{"a": 5}, {"b": "x"}])
def test_arguments_fit_the_schema(bad: dict[str, Any]) -> None:
    """H5: and whoever said them hears which field does not."""
    answer = whole(category="parameter_error", suggestion=bad)
    thought = first(told("text"), answer)
    assert thought.rung is Rung.REPAIR and next(iter(bad)) in thought.refused[0]
    assert next(iter(bad)) in objections(told("text"), answer)[0]
    assert objections(told("text"), whole(category="parameter_error", suggestion=CONCRETE)) == []


@pytest.mark.parametrize(
    ("tried", "again"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}),
        ({"a": "x" * 6000}, {"a": "x" * 6000}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    ],
    ids=["plain", "keys in another order", "large", "nested"],
)
def test_arguments_differ_from_every_failed_try(tried: dict[str, Any], again: dict[str, Any]) -> None:
    """H5: not only from the last one; the order of keys makes no difference."""
    tale = Tale(step("s")).fail("s", Category.PARAMETER, args=tried).ask("s", Rung.ADJUST)
    tale.tell(ev.Recovered("s", 1, Rung.ADJUST, args={"a": 2}, course=ev.Course(("s",))))
    tale.fail("s", Category.PARAMETER, "still", args={"a": 2}).ask("s")
    for proposal in (again, {"a": 2}):
        answer = whole(category="parameter_error", suggestion=proposal)
        thought = first(tale, answer)
        assert thought.rung is not Rung.ADJUST and "these arguments were tried already" in thought.refused
        assert objections(tale, answer) == ["suggestion: these arguments were tried already"]


def test_arguments_that_are_gone_are_not_changed_one_by_one() -> None:
    """H2, E7: they are not in the event, so what a suggestion leaves out would be lost without a word."""
    large = {"a": "x" * 5000}
    tale = Tale(step("s"))
    blob = signature(large)
    tale.tell(ev.StepStarted("s", 1, "t", args_blob=blob))
    tale.tell(ev.StepFailed("s", 1, ev.Error("TOOL_FAILED", Category.PARAMETER, "no"))).ask("s")
    (refused,) = first(tale, whole(category="parameter", suggestion={"b": 1})).refused
    assert "not there any more" in refused


def test_large_arguments_are_changed_one_by_one() -> None:
    """H5, E7: they are checked whole; the history holds what changes, and where the rest is."""
    large = {"a": "x" * 5000}
    tale = Tale(step("s", "text"))
    tale.tell(ev.StepStarted("s", 1, "text", args_blob=signature(large)))
    tale.tell(ev.StepFailed("s", 1, ev.Error("TOOL_FAILED", Category.PARAMETER, "no"))).ask("s")

    def adjusted(suggestion: Any) -> list[ev.Event]:
        answer = whole(category="parameter", suggestion=suggestion)
        return reflect.read(tale.state, TOOLS, "s", 1, answer, "m", 2000.0, "", large)

    thought, taken = adjusted({"a": "short"})
    assert isinstance(taken, ev.Recovered) and taken.args == {"a": "short"}
    for wrong, words in (({"b": 1}, "b"), ({"a": 7}, "expected string"), ({"a": "x" * 5000}, "tried already")):
        thought = adjusted(wrong)[0]
        assert isinstance(thought, ev.Reflected)
        assert thought.rung is not Rung.ADJUST and any(words in why for why in thought.refused), thought.refused
    thought, taken = reflect.compact(adjusted({"a": "y" * 4000}), {"z": 1, **large}, "name")
    assert isinstance(taken, ev.Recovered) and (taken.args, taken.args_blob) == ({"a": "y" * 4000}, "name")
    assert isinstance(thought, ev.Reflected) and thought.partial
    tale.tell(thought)
    assert _thought(tale.state.tracks["s"]).args is None  # half of the arguments are not taken for all of them


# -- Tools -------------------------------------------------------------------------------------------------------------


def test_an_alternative_tool_exists() -> None:
    """H5, M4: of those named the first that there is; whoever named the others is told."""
    answer = whole(category="tool_error", alternatives=["nowhere", "u"])
    thought, taken = read(told(), answer)
    assert isinstance(taken, ev.Recovered) and taken.tool == "u"
    assert "the alternative tool 'nowhere' does not exist" in thought.refused
    assert objections(told(), answer) == ["there is no tool named 'nowhere'"]


def test_a_tool_behind_a_gate_is_no_alternative() -> None:
    """M4, T2: what a person has to agree to in one step is not called in another because a mind says so."""
    tale = Tale(step("s", args={}), step("w", "wipe", confirm="Really?", alternatives=("u",))).fail("s").ask("s")
    for name in ("wipe", "u"):
        thought = first(tale, whole(category="tool_error", alternatives=[name]))
        assert thought.rung is not Rung.ALTERNATIVE
        assert f"a person has to agree before the tool {name!r} is called" in thought.refused


def test_the_plans_own_alternative_needs_no_new_word() -> None:
    """H3: its author named it, gate or not."""
    tale = Tale(step("s", alternatives=("wipe",)), step("w", "wipe", confirm=True)).fail("s").ask("s")
    assert read(tale, whole(category="tool_error"))[1].tool == "wipe"


# -- What else there is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [(50, 50), (0, 0), (100, 100), (101, 0), (-1, 0), ("sure", 0), (99.9, 99), (float("nan"), 0), (None, 0)],
)
def test_confidence_is_a_number_from_0_to_100(given: Any, kept: int) -> None:
    """H5: anything else is no confidence at all."""
    assert first(told(), whole(confidence=given)).confidence == kept


def test_not_recoverable_skips_retry_and_repair() -> None:
    """H5: the ladder goes on behind them; only the word false says so."""
    assert first(told(), whole(recoverable=False)).rung is Rung.REPLAN
    assert first(told(), whole(recoverable="no")).rung is Rung.RETRY


@pytest.mark.parametrize(
    "answer",
    [None, 7, "text", [], {}, {"category": ["parameter_error"]}, {"category": {"a": "b"}}, {"action": "retry"}],
)
def test_what_is_no_reflection_leaves_it_to_the_rules(answer: Any) -> None:
    """H5: recorded as such, with what the rules choose."""
    thought = first(told(), answer)
    assert (thought.by, thought.rung) == ("rules", Rung.RETRY)
    assert len(thought.refused) == 1 and thought.refused[0].startswith("m: ")


def test_a_failure_to_answer_says_why() -> None:
    """V4, H5: what the problem was is in the record."""
    assert first(told(), None, "the model is away").refused == ("m: the model is away",)


def test_an_answer_that_comes_too_late_is_not_heard() -> None:
    """T7, X7: somebody else has moved the step on meanwhile."""
    tale = told()
    tale.tell(ev.StepSkipped("s", "SKIP_USER", "", "ann"))
    (late,) = read(tale, whole())
    assert isinstance(late, ev.Declined) and late.late
    before = tale.state.tracks["s"].phase
    tale.tell(late)
    assert tale.state.tracks["s"].phase is before


def test_the_words_of_a_mind_are_cut_and_can_be_stored() -> None:
    """E7: however much it says."""
    thought = first(told(), whole(root_cause="\ud800" + "x" * 10**6, alternatives=[]))
    assert thought.root_cause.startswith("?x") and len(thought.root_cause) == 500


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({}, "category"), (whole(confidence=200), "confidence"), (whole(recoverable="no"), "recoverable"),
        (whole(alternatives="u"), "alternatives"), (whole(suggestion=[1]), "suggestion"),
        (whole(category="bad"), "category"), ("prose", "no JSON object"), (None, "NoneType"),
    ],
)  # fmt: skip
def test_the_shape_is_checked_before_the_content(answer: Any, field: str) -> None:
    """M1: whoever gave the answer is told which field is wrong."""
    assert field in objections(told(), answer)[0]


def test_only_what_holds_arguments_is_shortened() -> None:
    """E7: of what follows from a reflection, all else stays as it is."""
    plain = ev.Reflected("a", 1, Category.TOOL, Rung.RETRY)
    assert reflect.compact([plain, ev.StepSkipped("a", "SKIP_OPTIONAL")], {}, "blob") == [
        plain, ev.StepSkipped("a", "SKIP_OPTIONAL"),
    ]  # fmt: skip


@pytest.mark.parametrize("category", [Category.PARAMETER, Category.DEPENDENCY, Category.UNKNOWN])
def test_no_other_tool_stands_in_for_one_that_nothing_was_said_against(category: Category) -> None:
    """H5: it refused its arguments, or missed what it needs; whatever a mind calls that, another does other work."""
    answer = whole(category="tool_error", alternatives=["u"])
    thought = first(told(category=category), answer)
    if category is Category.UNKNOWN:
        assert (thought.by, thought.rung, thought.alternatives) == ("m", Rung.ALTERNATIVE, ("u",))
    else:
        assert thought.by != "m" and "u would do other work" in thought.refused[0] and not thought.alternatives
    named = Tale(step("s", args={"a": "wrong"}, alternatives=("u",))).fail("s", category, args={"a": "wrong"}).ask("s")
    assert first(named, answer).by == "m", "the plan names it"
