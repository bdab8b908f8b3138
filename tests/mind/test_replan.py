"""Replans: valid by P5, finished work kept, doubts and effects left alone, no tools but those that were given (H8)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.mind.tales import TOOLS, Tale, step

from rerail.i18n import retold
from rerail.kernel import events as ev
from rerail.kernel.plan_graph import redirect
from rerail.kernel.policy import Rung
from rerail.kernel.step_state import Phase
from rerail.kernel.verdict import summary, verdict
from rerail.mind import replan
from rerail.mind.questions import QUESTIONS
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fallback, Need
from rerail.views.why import story


def told(**policy: Any) -> Tale:
    """a (done) → b (failed, asked about) → c; p has been paid."""
    tale = Tale(
        step("a", args={"n": 1}), step("b", needs=(Need("a"),), args={"x": "${a.n}"}), step("c", needs=(Need("b"),)),
        step("p", "pay", args={"n": 5}), **policy,
    )  # fmt: skip
    return tale.succeed("a").succeed("p").fail("b", args={"x": 1}).ask("b", Rung.REPLAN)


def read(tale: Tale, answer: Any) -> ev.Event:
    return replan.read(tale.state, TOOLS, answer, "m", tale.state.seq)


def followed(answer: Any, tale: Tale | None = None) -> Tale:
    tale = tale or told()
    event = read(tale, answer)
    assert isinstance(event, ev.Replanned), event
    return tale.tell(event)


def faults(answer: Any, tale: Tale | None = None) -> str:
    tale = tale or told()
    before = {name: track.step for name, track in tale.state.tracks.items()}
    event = read(tale, answer)
    assert isinstance(event, ev.PlanRejected), event
    assert (event.question, event.by) == ("replan", "m")
    tale.tell(event)
    assert {name: track.step for name, track in tale.state.tracks.items()} == before, "the old plan stays"
    assert tale.state.replans == 1, "it counts"
    return "; ".join(event.faults)


def objections(answer: Any, tale: Tale | None = None) -> str:
    return "; ".join(QUESTIONS["replan"].objections((tale or told()).question("replan"), answer))


ALL = [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "p"}]
B = {"id": "b", "tool": "u", "args": {"x": "${a.n}"}, "needs": ["a"]}


def test_a_step_whose_tool_is_gone_is_no_reason_to_refuse_a_new_plan() -> None:
    """E5, P5: as long as the new plan leaves it as it is."""
    tale = Tale(step("old", "gone"), step("b"), max_consecutive_failures=0).fail("b").ask("b", Rung.REPLAN)
    answer = {"plan": {"steps": [{"id": "old"}, {"id": "b", "tool": "u"}]}, "reason": "why not"}
    assert objections(answer, tale) == ""
    assert {track.id for track in followed(answer, tale).state.tracks.values()} == {"old", "b"}
    again = Tale(step("old", "gone"), step("b"), max_consecutive_failures=0).fail("b").ask("b", Rung.REPLAN)
    steps = [{"id": "old", "tool": "gone", "args": {"x": 1}}, {"id": "b"}]
    changed = {"plan": {"steps": steps}, "reason": "why not"}
    assert "gone" in objections(changed, again) and "gone" in faults(changed, again)


@pytest.mark.parametrize(
    "answer",
    [
        {"plan": {"steps": [{"id": "a"}, B, {"id": "c"}, {"id": "p"}]}, "reason": "another tool"},
        {"steps": [{"id": "a"}, {"id": "b", "tool": "u", "args": {"x": "${a.n}"}}, {"id": "c"}, {"id": "p"}]},
        [{"id": "a"}, B, {"id": "c", "tool": "t", "needs": ["b"]}, {"id": "p", "tool": "pay", "args": {"n": 5}}],
        {"tasks": [{"id": "a"}, {"id": "b", "aiName": "u", "parameters": {"x": "${a.n}"}}, {"id": "c"}, {"id": "p"}]},
    ],
)
def test_finished_work_is_kept(answer: Any) -> None:
    """H8: steps that are named by their id alone, or are as they were, stay done; the changed one and those behind it
    run."""
    if isinstance(answer, list):
        answer = {"plan": {"steps": answer}}
    state = followed(answer).state
    phases = {name: track.phase for name, track in state.tracks.items()}
    assert phases == {"a": Phase.SUCCEEDED, "b": Phase.PENDING, "c": Phase.PENDING, "p": Phase.SUCCEEDED}
    assert state.tracks["b"].step.tool == "u"
    assert [track.id for track in state.ready.members.values()] == ["b"]
    assert (state.revision, state.replans, state.replan_wanted) == (2, 1, False)


def test_a_step_may_be_changed_in_part() -> None:
    """H8: with its id and what changes."""
    track = followed({"plan": {"steps": [{"id": "a"}, {"id": "b", "args": {"x": 7}}, {"id": "c"}]}}).state.tracks["b"]
    assert (track.step.tool, track.step.args, track.step.needs) == ("t", {"x": 7}, (Need("a"),))


def test_a_missing_step_may_be_added() -> None:
    """H8, scenario replan: what was missing comes before what failed."""
    new = {"id": "clean", "tool": "u", "needs": ["a"]}
    state = followed({"plan": {"steps": [{"id": "a"}, new, {"id": "b", "needs": ["clean"]}, {"id": "c"}]}}).state
    assert [need.id for need, _ in state.tracks["b"].needs] == ["clean", "a"]
    assert list(state.tracks) == ["a", "clean", "b", "c"]


def test_steps_may_be_dropped_if_nobody_needs_them() -> None:
    """H8, P5: what a living step needs, or refers to, stays."""
    assert list(followed({"plan": {"steps": [{"id": "a"}, {"id": "p"}]}}).state.tracks) == ["a", "p"]
    for kept in ([{"id": "a"}, {"id": "c"}], [{"id": "b"}, {"id": "c"}]):
        answer = {"plan": {"steps": kept}, "reason": ""}
        assert "unknown step" in faults(answer)
        assert "unknown step" in objections(answer)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([*ALL, {"id": "x", "tool": "shell"}], "unknown tool 'shell'"),
        ([*ALL, {"id": "x", "tool": "t", "alternatives": ["shell"]}], "unknown tool 'shell'"),
        ([*ALL, {"id": "a", "tool": "t"}], "used 2 times"),
        ([*ALL, {"id": "x", "tool": "t", "needs": ["y"]}, {"id": "y", "tool": "t", "needs": ["x"]}], "circle"),
        ([*ALL, {"id": "x", "tool": "text", "args": {"a": 1}}], "args.a for tool 'text'"),
        ([*ALL, {"id": "x", "tool": "t", "args": {"a": "${nowhere}"}}], "nowhere"),
        ([*ALL, {"id": "x", "tool": "t", "fallback": {"value": 1}}], "made-up"),
        ([*ALL, {"id": "x", "tool": "t", "critical": False}], "matters"),
        ([{"id": "a"}, {"id": "b", "retries": 99}, {"id": "c"}], "budgets"),
        ([{"id": "a"}, {"id": "b", "metadata": {"maxRetries": 99}}, {"id": "c"}], "budgets"),
        ([*ALL, {"id": "x"}], "no 'tool'"),
        ([*ALL, {"id": "x", "tool": "t", "comand": "rm"}], "unknown key"),
        ([*ALL, 7], "a step is a mapping"),
    ],
)
def test_a_bad_plan_is_refused(steps: list[Any], words: str) -> None:
    """P5, H8, M4: all faults listed, the old plan stays; whoever wrote it hears of them first."""
    answer = {"plan": {"steps": steps}, "reason": ""}
    assert words in faults(answer)
    assert words in objections(answer) or "array" in objections(answer) or "expected" in objections(answer)


@pytest.mark.parametrize("answer", [None, {"plan": None, "reason": "no way"}, 7, "text", {}, {"plan": {}}, {"plan": 7}])
def test_no_plan_is_declined(answer: Any) -> None:
    """H8: and counted; the old plan and its verdict stay."""
    tale = told()
    event = read(tale, answer)
    assert isinstance(event, ev.Declined) and event.reason and not event.late
    assert tale.tell(event).state.replans == 1 and not tale.state.replan_wanted
    assert tale.state.tracks["b"].phase is Phase.HURT


def test_an_empty_plan_is_refused() -> None:
    """P5: it would be a success of nothing."""
    assert "no steps" in faults({"plan": {"steps": []}})


def test_a_step_in_doubt_is_neither_changed_nor_dropped() -> None:
    """E3, H8: nobody knows whether its effect happened; leaving it as it is is fine."""
    tale = Tale(step("a"), step("p", "pay", args={"n": 5}))
    tale.fail("p", lost=True).fail("a").ask("a", Rung.REPLAN)
    new = {"id": "a", "tool": "u"}
    for steps in ([new], [new, {"id": "p", "args": {"n": 6}}], [new, {"id": "p", "tool": "u"}]):
        event = read(tale, {"plan": {"steps": steps}})
        assert isinstance(event, ev.PlanRejected) and "'p' is in doubt" in event.faults[0]
    followed({"plan": {"steps": [new, {"id": "p"}]}}, tale)
    assert tale.state.tracks["p"].phase is Phase.DOUBT


@pytest.mark.parametrize("mode", ["keep", "full"])
def test_once_work_is_never_done_again(mode: str) -> None:
    """R3, H8: its definition may change, it stays done and is stale; with `replan = "full"` too; not under a new id."""
    tale = followed({"plan": {"steps": [B, {"id": "a"}, {"id": "p", "args": {"n": 6}}]}}, told(replan=mode))
    track = tale.state.tracks["p"]
    assert (track.phase, track.stale, track.step.args) == (Phase.SUCCEEDED, "once", {"n": 6})
    assert tale.state.tracks["a"].phase is (Phase.SUCCEEDED if mode == "keep" else Phase.PENDING)
    for name in ("again", "pay2"):
        twin = {"id": name, "tool": "pay", "args": {"n": 5}}
        assert "what step 'p' has done" in faults({"plan": {"steps": [*ALL, twin]}}, told(replan=mode))
        assert "what step 'p' has done" in faults({"plan": {"steps": [{"id": "a"}, twin]}}, told(replan=mode))


def test_a_gated_step_keeps_its_gate_and_its_tool_has_one_everywhere() -> None:
    """M4, T2: renamed, doubled or rewritten, a person still has to agree, to the author's question."""
    tale = Tale(step("a"), step("w", "wipe", confirm="Really?", args={"n": 1})).fail("a").ask("a", Rung.REPLAN)
    twin = {"id": "w2", "tool": "wipe", "args": {"n": 1}, "confirm": False}
    new = [{"id": "a", "tool": "u"}, {"id": "w", "tool": "t", "confirm": "trust me"}, twin]
    followed({"plan": {"steps": new}}, tale)
    assert {name: track.step.confirm for name, track in tale.state.tracks.items()} == {
        "a": False, "w": "Really?", "w2": "Really?",
    }  # fmt: skip
    tale.fail("a").ask("a", Rung.REPLAN)
    followed({"plan": {"steps": [{"id": "a", "tool": "wipe"}]}}, tale)
    assert tale.state.tracks["a"].step.confirm == "Really?", "also once no step of the plan says so"


def test_what_follows_the_run_is_not_in_question() -> None:
    """T6: a new plan brings no follow-up and no objective of its own."""
    tale = told()
    given = Plan(
        "rule the world", tuple(track.step for track in tale.state.tracks.values()), Plan("then", (step("z"),))
    )
    event = read(tale, given)
    assert isinstance(event, ev.Replanned)
    assert tale.tell(event).state.follow_up is None and tale.state.objective == "goal"


def test_a_plan_that_comes_too_late_is_not_heard() -> None:
    """T7, X7: a person acted after it was asked for; or nobody waits for one any more."""
    tale = told()
    asked = tale.state.seq
    tale.tell(ev.Acted("skip", "ann", "c"))
    late = replan.read(tale.state, TOOLS, {"plan": {"steps": ALL}}, "m", asked)
    assert isinstance(late, ev.Declined) and late.late
    tale.tell(late)
    assert tale.state.replan_wanted and tale.state.replans == 0, "it is asked for again, and does not count"
    tale.tell(ev.Declined("replan", "", "no"))
    assert read(tale, {"plan": {"steps": ALL}}).late


def test_the_effect_of_a_changed_step_is_its_authors() -> None:
    """M4, E3: `once` stays with the step whatever tool it gets."""
    tale = Tale(step("a", effect=Effect.ONCE)).fail("a").ask("a", Rung.REPLAN)
    followed({"plan": {"steps": [{"id": "a", "tool": "u"}]}}, tale)
    assert tale.state.tracks["a"].step.effect is Effect.ONCE


def test_a_plan_that_leaves_out_what_was_not_done_is_degraded() -> None:
    """H8, V1: it may end well, but not as if the step had never been asked for."""
    tale = followed({"plan": {"steps": [{"id": "a"}, {"id": "p"}]}, "reason": "not needed"})
    found = verdict(tale.state)
    assert found.success and found.degraded
    assert "b, c" in summary(tale.state, found)
    assert "舍去了未完成的步骤：b, c" in retold(summary(tale.state, found), "zh")


def test_leaving_out_what_is_done_or_brought_back_or_optional_degrades_nothing() -> None:
    """H8: finished work that is not needed any more is no hole; nor is a step that the next plan has again."""
    tale = followed({"plan": {"steps": [B, {"id": "c"}, {"id": "p"}, {"id": "a"}]}, "reason": "another tool"})
    assert not tale.state.forgone
    tale = followed({"plan": {"steps": [{"id": "p"}]}, "reason": "less"})
    assert list(tale.state.forgone) == ["b", "c"]  # and not a, which was done
    redirect(tale.state, ev.Course((), (tale_step := step("b"),)))
    assert tale_step.id not in tale.state.forgone
    optional = Tale(step("a"), step("b", critical=False)).succeed("a").fail("b").ask("b", Rung.REPLAN)
    assert not followed({"plan": {"steps": [{"id": "a"}]}, "reason": "less"}, optional).state.forgone


def test_a_step_that_a_mind_drops_and_adds_again_keeps_its_authors_word() -> None:
    """H8: its checks, its effect and whether it matters are the author's, also under a later plan."""
    own = step("b", critical=False, effect=Effect.REPEATABLE, check={"non_empty": True})
    asked = Tale(step("a"), own, max_task_replanning_attempts=2).fail("b").ask("b", Rung.REPLAN)
    tale = followed({"plan": {"steps": [{"id": "a"}, {"id": "c", "tool": "u"}]}, "reason": "less"}, asked)
    assert "b" not in tale.state.tracks
    tale.succeed("a").fail("c").ask("c", Rung.REPLAN)
    followed({"plan": {"steps": [{"id": "a"}, {"id": "b", "tool": "t"}]}, "reason": "more"}, tale)
    again = tale.state.tracks["b"].step
    assert (again.critical, again.effect, again.check) == (own.critical, own.effect, own.check)


HEALED = "4 steps, all succeeded, after 1 extra attempt"
ANOTHER = {"plan": {"steps": [{"id": "a"}, B, {"id": "c"}, {"id": "p"}]}, "reason": "another tool"}


def done(tale: Tale) -> tuple[bool, bool, str]:
    """The verdict and the summary of a run."""
    found = verdict(tale.state)
    return found.success, found.degraded, summary(tale.state, found)


def test_a_step_done_by_another_tool_than_planned_says_so() -> None:
    """H8, V7: in the summary and in its story; its result is as good as any, so nothing is degraded."""
    tale = followed(ANOTHER)
    assert "another tool" not in done(tale)[2], "nothing has been done by it yet"
    tale.succeed("b").succeed("c")
    assert done(tale) == (True, False, f"{HEALED}; by another tool than planned: b (t → u)")
    assert "所用工具与计划不同：b (t → u)" in retold(summary(tale.state, verdict(tale.state)), "zh")
    assert "The plan named t; u was chosen in its place." in story(tale.state, [], "b")
    assert "in its place" not in story(tale.state, [], "a")
    back = {"plan": {"steps": [{"id": "a"}, {"id": "b", "args": {"x": 3}, "tool": "t"}, {"id": "c"}, {"id": "p"}]}}
    tale.state.replan_wanted = True
    assert "another tool" not in done(followed(back, tale).succeed("b").succeed("c"))[2], "as planned after all"


def test_finished_work_that_a_new_plan_gives_to_another_tool_says_so() -> None:
    """H8: it is done again, unless it must not happen twice."""
    answer = {"plan": {"steps": [{"id": "a", "tool": "u"}, {"id": "b"}, {"id": "c"}, {"id": "p", "tool": "u"}]}}
    tale = followed(answer).succeed("a").succeed("b").succeed("c")
    success, degraded, said = done(tale)
    assert (success, degraded) == (True, True), "what was paid was not paid again, and may be out of date"
    assert said.endswith("1 of 4 steps out of date; by another tool than planned: a (t → u)")


def test_a_step_that_was_dropped_and_came_back_is_held_to_the_first_plan() -> None:
    """H8: leaving it out for a while changes nothing of what the plan named."""
    tale = followed({"plan": {"steps": [{"id": "a"}, {"id": "p"}]}})
    assert "another tool" not in done(tale)[2]
    tale.state.replan_wanted = True
    assert "b (t → u)" in done(followed({"plan": {"steps": [{"id": "a"}, B, {"id": "p"}]}}, tale).succeed("b"))[2]


def test_tools_that_the_plan_names_or_a_person_chose_are_as_planned() -> None:
    """H8, X7: alternatives and fallbacks are the plan's own; what a person writes is the plan."""
    for more in ({"alternatives": ("u",)}, {"fallback": Fallback(tool="u")}):
        tale = Tale(step("a", **more)).fail("a").ask("a", Rung.REPLAN)
        kept = {"alternatives": ["u"]} if "alternatives" in more else {}
        followed({"plan": {"steps": [{"id": "a", "tool": "u", **kept}]}}, tale).succeed("a")
        assert "another tool" not in done(tale)[2]
    tale = followed(ANOTHER).succeed("b").succeed("c")
    tale.tell(ev.Acted("repair", "ann", "b", course=ev.Course(("b",), (step("b", "u", needs=(Need("a"),)),))))
    assert "another tool" not in done(tale.succeed("b").succeed("c"))[2]


def test_many_steps_done_by_other_tools_are_counted() -> None:
    """V7: a summary stays one sentence."""
    tale = Tale(*(step(f"s{n}") for n in range(7))).fail("s0").ask("s0", Rung.REPLAN)
    followed({"plan": {"steps": [{"id": f"s{n}", "tool": "u"} for n in range(7)]}}, tale)
    for n in range(7):
        tale.succeed(f"s{n}")
    assert done(tale)[2].endswith("s4 (t → u) … (+2)")


def test_an_unreadable_plan_is_told_to_whoever_gave_it() -> None:
    """M1, H8: no plan is an answer; one that cannot be read is none."""
    question = told().question("replan")
    assert replan.objections(question, {"plan": None}) == []
    assert len(replan.objections(question, {"plan": {"steps": 3}})) == 1
