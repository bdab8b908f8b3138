"""Judgements: they lower a verdict and never raise it; their claims are checked against the history (V3, V4, R5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.mind.tales import Tale, step

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.decide import automatic_roots
from rerail.kernel.policy import Rung
from rerail.mind import judge
from rerail.mind.questions import QUESTIONS
from rerail.plan.step import Effect

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["a", "b", "p"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("complete", "success", "missing", "failed_steps", "unsatisfactory", "reason", "step", "evidence", "degraded")


def good() -> Tale:
    return Tale(step("a"), step("b"), step("p", "pay")).succeed("a").succeed("b").succeed("p")


def bad() -> Tale:
    tale = Tale(step("a"), step("b"), step("p", "pay")).succeed("a").fail("b", Category.PERMANENT)
    return tale.ask("b", Rung.FAIL).succeed("p")


def read(tale: Tale, **answer: Any) -> ev.Evaluation:
    return judge.read(tale.state, answer, "m")


@example({"complete": True, "success": True, "reason": "all is well"})
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON)
def test_nothing_that_is_said_raises_a_verdict(answer: Any) -> None:
    """V3: of a failed run it stays failed, whoever says what; of a good one only `complete` can be lowered."""
    failed = judge.read(bad().state, answer, "m")
    assert (failed.success, failed.complete) == (False, False)
    assert [row["id"] for row in failed.failed_steps] == ["b"]
    well = judge.read(good().state, answer, "m")
    assert (well.success, well.degraded, well.failed_steps) == (True, False, ())


@pytest.mark.parametrize(
    ("answer", "complete"),
    [
        ({"complete": True}, True), ({}, True), ({"complete": False}, False), ({"complete": "no"}, True),
        ({"complete": True, "missing": ["a chart"]}, False), ({"complete": True, "missing": "a chart"}, False),
        ({"complete": False, "missing": ["b"]}, True), ({"complete": False, "missing": ["b", "a chart"]}, False),
        ({"complete": False, "failed_steps": ["b"]}, True), ({"complete": False, "failed_steps": ["nowhere"]}, False),
        ({"complete": True, "unsatisfactory": [{"step": "a", "evidence": "empty"}]}, False),
    ],
)  # fmt: skip
def test_what_lowers_complete(answer: dict[str, Any], complete: bool) -> None:
    """V3, R5: something missing, a poor step, a plain no; not a claim that the history denies."""
    assert read(good(), **answer).complete is complete


@pytest.mark.parametrize(
    "claim",
    [
        {"failed_steps": ["b"]}, {"failed_steps": [{"id": "b", "reason": "x"}]}, {"failedSteps": [{"index": "b"}]},
        {"missing": ["b"]}, {"missing_steps": ["b"]}, {"failed": [{"step": "b"}], "missing": "b"},
    ],
)  # fmt: skip
def test_a_claim_against_the_history_is_disputed(claim: dict[str, Any]) -> None:
    """R5, scenario false-alarm: recorded, once, and nothing runs again for it."""
    tale = good()
    said = read(tale, complete=False, **claim)
    assert (said.disputed, said.complete, said.unsatisfactory) == (("b",), True, ())
    tale.tell(said)
    assert automatic_roots(tale.state) == [] and list(tale.state.disputed) == ["b"]


def test_a_claim_that_is_true_is_no_dispute() -> None:
    """R5: the step did fail."""
    assert read(bad(), complete=False, failed_steps=["b"]).disputed == ()


def test_a_poor_step_becomes_a_root_if_its_effect_allows_it() -> None:
    """V3, R3: with evidence, once, and never a `once` step, by its tool's word or the plan's."""
    tale = Tale(step("a"), step("o", effect=Effect.ONCE), step("p", "pay"), step("f")).succeed("a").succeed("o")
    tale.succeed("p").fail("f", Category.PERMANENT).ask("f", Rung.FAIL, Category.PERMANENT)
    poor = [{"step": name, "evidence": "rude"} for name in ("a", "a", "o", "p", "f", "nowhere")]
    said = read(tale, unsatisfactory=[*poor, {"step": "a"}, {"step": "a", "evidence": ""}, "a", 7])
    assert said.unsatisfactory == ("a",)
    assert said.reason == "a: rude"
    tale.tell(said)
    assert automatic_roots(tale.state) == ["a"]


def test_an_evaluation_of_any_origin_opens_no_round_for_a_once_step() -> None:
    """R3, R6: what a history says of an earlier judge counts no more than what one says today."""
    tale = Tale(step("a"), step("p", "pay")).succeed("a").succeed("p")
    tale.tell(ev.Evaluation(True, False, False, unsatisfactory=("p", "nowhere")))
    assert automatic_roots(tale.state) == []
    tale.tell(ev.Evaluation(True, False, False, unsatisfactory=("p", "a")))
    assert automatic_roots(tale.state) == ["a"]


@pytest.mark.parametrize("answer", [None, "all fine", 7, [], True])
def test_a_judge_that_cannot_be_read_changes_nothing(answer: Any) -> None:
    """V4: the computed verdict stands, and says that there was no judge."""
    said = judge.read(good().state, answer, "m")
    assert (said.success, said.complete, said.judge) == (True, True, "unavailable")
    assert judge.unavailable(bad().state, "away").reason == "away"
    assert judge.unavailable(bad().state).success is False


def test_what_a_judge_says_is_cut_and_can_be_stored() -> None:
    """E7: however much it is."""
    poor = [{"step": "a", "evidence": "x" * 10**5}] * 500
    said = read(good(), reason="\ud800" * 10**5, missing=["y" * 10**5] * 500, unsatisfactory=poor)
    assert len(said.missing) == 50 and max(map(len, said.missing)) == 500
    assert len(said.reason) <= 5000 and said.unsatisfactory == ("a",)
    said.reason.encode()


def test_the_summary_is_made_from_the_verdict() -> None:
    """V7: not from what the judge says."""
    assert "all fine" not in read(bad(), complete=True, reason="all fine").summary


def test_a_step_that_is_not_there_is_objected_to() -> None:
    """M1: and the shape before that."""
    about = good().question("judge")
    object_to = QUESTIONS["judge"].objections
    poor = [{"step": "nowhere", "evidence": "x"}]
    assert object_to(about, {"complete": True, "reason": "", "unsatisfactory": poor}) == ["there is no step 'nowhere'"]
    assert object_to(about, {"complete": True, "reason": "", "unsatisfactory": [{"step": "a", "evidence": "x"}]}) == []
    for wrong in ({}, {"complete": "yes", "reason": ""}, {"complete": True, "reason": "", "unsatisfactory": ["a"]}):
        assert object_to(about, wrong)


def test_a_claim_that_names_no_step_is_no_claim() -> None:
    """V3, R5: a model may leave the name out."""
    claims: list[Any] = [{"why": "somehow"}, {"id": None}, None, "a"]
    assert read(good(), complete=True, failed_steps=claims).disputed == ("a",)
