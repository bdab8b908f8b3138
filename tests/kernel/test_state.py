"""What a state remembers, event by event, and what is decided from it (DESIGN 1, R3, R6, H4, T2, X7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.mind.tales import Tale

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.decide import Ask, Call, Note, decide, retry_chain
from rerail.kernel.events import Course, Error, Event, FileMade, Record
from rerail.kernel.fold import evolve, fold
from rerail.kernel.plan_graph import define
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Degraded, Lack, Phase
from rerail.kernel.verdict import round_statistics, skip_message, stale_of, status_of, summary, verdict, waiting_on
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fallback, Need, Step, When
from rerail.plan.tool_spec import ToolSpec
from rerail.views.results import attempts_of, result

NO = Error("TOOL_FAILED", Category.TOOL, "no")
LATE = Error("TIMEOUT", Category.TRANSIENT, "late")
TOOLS = {name: ToolSpec(name) for name in ("t", "u", "v")}
CHAIN = (Step("a", "t"), Step("b", "u", needs=(Need("a"),)), Step("c", "u", needs=(Need("b"),)))


def begun(*more: Event, steps: tuple[Step, ...] = CHAIN, policy: Policy | None = None) -> State:
    """A state after these, a second each."""
    events: list[Event] = [ev.RunStarted(policy=policy or Policy()), ev.PlanAccepted(Plan("", steps)), *more]
    return fold("r", [Record("r", n + 1, 100.0 + n, event) for n, event in enumerate(events)])


def then(state: State, *events: Event) -> State:
    """The state after more."""
    for event in events:
        evolve(state, event, state.at + 1, state.seq + 1)
    return state


def did(step: str, attempt: int = 1, effect: Effect = Effect.REPEATABLE, digest: str = "") -> tuple[Event, ...]:
    """A step that succeeded."""
    done = ev.StepSucceeded(step, attempt, 1, digest or f"{step}{attempt}")
    return ev.StepStarted(step, attempt, "t", effect), done


def failed(step: str, attempt: int = 1, error: Error = NO) -> tuple[Event, ...]:
    """A step that failed for good."""
    return (
        ev.StepStarted(step, attempt, "t"), ev.StepFailed(step, attempt, error),
        ev.Reflected(step, attempt, error.category, Rung.FAIL),
    )  # fmt: skip


def again(*roots: str, automatic: bool = False, **more: Any) -> ev.RetryBegin:
    """Another round."""
    course = Course(roots, automatic=automatic, fresh=more.pop("fresh", ()))
    return ev.RetryBegin(1, "ann", roots, roots, len(roots), automatic=automatic, course=course, **more)


def noted(state: State) -> list[Event]:
    """What is written down now."""
    return [event for action in decide(state, TOOLS, state.at) if isinstance(action, Note) for event in action.events]


def called(state: State) -> list[str]:
    """What is called now."""
    return [action.step for action in decide(state, TOOLS, state.at) if isinstance(action, Call)]


def test_a_run_of_which_nothing_is_known() -> None:
    """P7: it has a name, and a workspace of that name."""
    state = State("r")
    assert (state.run, state.home, state.objective, state.parent, state.filed) == ("r", "r", "", "", False)


def test_time_in_which_nobody_drove_the_run_is_not_spent() -> None:
    """H4: between the last word of a dead process and the first of the next, at rest, and while it waits."""
    dead = then(begun(*did("a")), ev.Resumed("ann"))
    assert dead.seconds(dead.at) == 3.0 and dead.seconds(dead.at + 5) == 8.0
    waits = then(begun(*did("a"), ev.Waiting(())), ev.Resumed("ann"), ev.StepStarted("b", 1, "u"))
    assert waits.seconds(waits.at) == 5.0
    rested = then(begun(*did("a"), ev.Done("failed", False, False, False)), ev.Resumed("ann"))
    assert rested.seconds(rested.at) == 4.0


def test_each_retry_of_a_person_is_remembered() -> None:
    """T9, R6: what was asked for, where it went on, and how often; a clean one counts from nothing."""
    steps = (Step("a", "t", stage="one"), Step("b", "t", needs=(Need("a"),), stage="two"))
    state = begun(*did("a"), *failed("b"), steps=steps)
    row = {
        "time": 106.0, "operation": "retry", "strategy": "partial", "previous_status": "failed", "stage": "two",
        "error": "no", "count": 1,
    }  # fmt: skip
    then(state, ev.Done("failed", False, False, False))
    state.at = 105.0
    then(state, again("b", previous_status="failed", reasons={"b": "no"}, counted=True))
    assert state.retry_history == [row] and state.retries == 1 and state.reopened
    then(state, again("a", "b", operation="clean", previous_status="failed", counted=False, reset_count=True))
    clean = {**row, "time": 107.0, "operation": "clean", "strategy": "clean", "stage": "one", "error": None, "count": 0}
    assert state.retry_history == [row, clean] and state.retries == 0


def test_a_round_counts_its_own_calls() -> None:
    """R4: not those of the round before."""
    state = begun(*failed("a"), again("a", counted=True), *failed("a", 2))
    assert round_statistics(state)["calls"] == 1
    then(state, again("a", counted=True))
    assert round_statistics(state)["calls"] == 0 and round_statistics(state)["attempted"] == 0


def test_a_backup_is_told_of_until_the_run_has_started_over() -> None:
    """T5: a retry in between does not forget it; the first step that starts ends it."""
    state = begun(*failed("a"), again("a", operation="clean", backup="b.zip", counted=False))
    assert state.uncleared == "b.zip"
    then(state, again("a", counted=True))
    assert state.uncleared == "b.zip"
    assert then(state, ev.StepStarted("a", 2, "t")).uncleared == ""


GATED = (Step("a", "t"), Step("g", "u", needs=(Need("a"),), confirm=True))


def test_a_word_for_a_gate_is_for_the_step_as_it_was() -> None:
    """T5, X10: it holds neither for a forced retry, nor for a run that starts over, nor for a step written anew."""
    done = (*did("a"), ev.Acted("confirm", "ann", "g"), *did("g"))
    forced = begun(*done, again("g", fresh=("g",), counted=True), steps=GATED)
    assert called(forced) == [] and waiting_on(forced)[0]["step"] == "g"
    clean = begun(*done, again("a", "g", fresh=("a", "g"), reset_count=True, counted=False), steps=GATED)
    assert waiting_on(then(clean, *did("a", 2)))[0]["step"] == "g"
    new = Step("g", "v", needs=(Need("a"),), confirm=True)
    broke = (*did("a"), ev.Acted("confirm", "ann", "g"), ev.StepStarted("g", 1, "u"), ev.StepFailed("g", 1, NO))
    live = begun(*broke, ev.Acted("repair", "ann", "g", course=Course(("g",), (new,), automatic=False)), steps=GATED)
    assert called(live) == [] and waiting_on(live)[0]["step"] == "g"
    round_of = ev.RetryBegin(
        1, "ann", ("g",), ("g",), 1, automatic=False, course=Course(("g",), (new,), automatic=False), operation="repair"
    )
    assert waiting_on(begun(*broke, round_of, steps=GATED))[0]["step"] == "g"


def test_what_an_attempt_wrote_on_its_own_is_on_record_until_it_lies_in_its_place() -> None:
    """T3: what a person gave was for the content before; a new content takes its place."""
    state = begun(ev.StepStarted("a", 1, "t", staged="tmp/a1"), ev.StepSucceeded("a", 1, 1, "d", files={"f": "x"}))
    assert state.drafts == {"f": FileMade("f", "x", "a", "tmp/a1/f")}
    edited = FileMade("f", "y", "a", "drafts/f")
    then(state, ev.Acted("confirm", "ann", "b", files=(edited,)))
    assert state.drafts == {"f": edited} and state.tracks["a"].result.files == {"f": "y"}  # type: ignore[union-attr]
    then(
        state, again("a", fresh=("a",)), ev.StepStarted("a", 2, "t"), ev.StepSucceeded("a", 2, 1, "d", files={"f": "z"})
    )
    assert state.drafts == {}
    given = begun(ev.Acted("resolve", "ann", "a", outcome="succeeded", files=(edited, FileMade("h", "w"))))
    assert given.drafts == {"f": edited} and given.tracks["a"].result.edited == ("f", "h")  # type: ignore[union-attr]
    assert then(given, again("a", operation="clean")).drafts == {}


def test_a_declined_question_is_not_asked_again() -> None:
    """H4, H7: the step goes on without it, and a breaker that nobody could help is closed for the next."""
    repair = (ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.TOOL, Rung.REPAIR))
    state = begun(*repair, policy=Policy(minds=("repair",)))
    assert [action.question for action in decide(state, TOOLS, 200.0) if isinstance(action, Ask)] == ["repair"]
    then(state, ev.Declined("repair", "a"))
    assert state.tracks["a"].question == "" and state.tracks["a"].phase is Phase.HURT
    open_breaker = begun(
        *failed("a"), ev.QuestionAsked("replan", reason="BREAKER_OPEN: a"), policy=Policy(minds=("replan",))
    )
    assert open_breaker.breaker and open_breaker.replan_wanted
    declined = then(open_breaker, ev.Declined("replan"))
    assert not declined.breaker and not declined.replan_wanted and declined.replans == 1
    stopped = begun(*failed("a"), ev.QuestionAsked("replan"), ev.Stopped("BUDGET_EXCEEDED"))
    assert not stopped.breaker and not stopped.replan_wanted


def both_want_a_new_plan() -> State:
    """Two steps failed, and each waits for a new plan."""
    wants = tuple(
        event for step in ("a", "x")
        for event in (
            ev.StepStarted(step, 1, "t"), ev.StepFailed(step, 1, NO),
            ev.Reflected(step, 1, Category.DECOMPOSITION, Rung.REPLAN),
        )
    )  # fmt: skip
    return begun(*wants, steps=(Step("a", "t"), Step("x", "t")), policy=Policy(minds=("replan",)))


def test_nobody_wants_a_new_plan_for_a_step_that_a_person_does_without() -> None:
    """H8, X7: unless another one waits for it, too."""
    state = both_want_a_new_plan()
    assert then(state, ev.StepSkipped("a", "SKIP_USER")).replan_wanted
    assert not then(state, ev.StepSkipped("x", "SKIP_USER")).replan_wanted


def test_a_step_outside_the_retry_set_still_waits_for_its_new_plan() -> None:
    """R2, H8, T5: a run whose process died is retried by naming one of its steps; nobody waits for ever."""
    state = both_want_a_new_plan()
    then(state, ev.RetryBegin(1, "ann", ("a",), ("a",), 1, automatic=False, course=Course(("a",))))
    assert decide(state, TOOLS, state.at) == [Ask("replan", "", state.acted_at)]
    then(state, ev.Declined("replan"))
    assert not state.replan_wanted and state.tracks["a"] in state.ready and len(state.ready) == 1
    then(state, ev.RetryBegin(2, "ann", ("a", "x"), ("a", "x"), 2, automatic=False, course=Course(("a", "x"))))
    assert not state.replan_wanted and len(state.ready) == 2


def test_two_questions_are_asked_one_after_the_other_where_money_is_counted() -> None:
    """H4: each sees what the ones before it left."""
    steps = (Step("a", "t"), Step("x", "t"))
    held = tuple(
        event for step in ("a", "x")
        for event in (
            ev.StepStarted(step, 1, "t"), ev.StepFailed(step, 1, NO), ev.Reflected(step, 1, Category.TOOL, Rung.REPAIR),
        )
    )  # fmt: skip
    for policy, count in ((Policy(minds=("repair",)), 2), (Policy(minds=("repair",), max_tokens=10), 1)):
        asked = [one for one in decide(begun(*held, steps=steps, policy=policy), TOOLS, 200.0) if isinstance(one, Ask)]
        assert len(asked) == count


def test_failures_are_remembered_for_whoever_will_be_asked() -> None:
    """H5: with the tool and the arguments of the call, whether there was one or not."""
    state = begun(
        ev.StepStarted("a", 1, "v", args={"x": 1}), ev.StepFailed("a", 1, NO), policy=Policy(minds=("reflect",))
    )
    error = {"code": "TOOL_FAILED", "category": "tool_error", "message": "no"}
    told = {"attempt": 1, "tool": "v", "args": {"x": 1}, "called": True, "error": error}
    assert attempts_of(state.tracks["a"]) == [told]
    before = begun(ev.StepFailed("a", 0, NO, called=False), policy=Policy(minds=("reflect",)))
    assert attempts_of(before.tracks["a"]) == [{**told, "attempt": 0, "tool": "t", "args": {}, "called": False}]
    nobody = begun(ev.StepStarted("a", 1, "v"), ev.StepFailed("a", 1, NO))
    assert attempts_of(nobody.tracks["a"]) == []


def test_what_was_thought_of_a_failure_is_not_for_the_next() -> None:
    """H5: a step that fails before its call has the attempt number of the call before; nor is "not now" for it."""
    thought = ev.Reflected("a", 1, Category.TOOL, Rung.RETRY, by="m")
    wait = ev.RetryScheduled("a", 2, 4, 2, 0.0, 0.0)
    state = begun(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), thought, wait)
    assert state.tracks["a"].healing().thought == thought
    then(state, ev.StepFailed("a", 1, NO, called=False))
    assert state.tracks["a"].healing().thought is None and state.tracks["a"].phase is Phase.HURT
    hinted = begun(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO, not_now=5.0))
    assert hinted.tracks["a"].healing().not_now == 5.0
    waits = ev.RetryScheduled("a", 1, 4, 3, 0.0, 0.0, not_now=True)
    assert then(hinted, waits, *failed("a", 2)[:2]).tracks["a"].healing().not_now is None


def test_a_person_may_say_no_to_what_was_never_called() -> None:
    """X7, DESIGN 1: there is no effect to take back."""
    no = Error("RESOLVED_FAILED", Category.PERMANENT, "no")
    assert begun(ev.StepFailed("a", 0, no, called=False)).tracks["a"].phase is Phase.HURT


def test_an_answer_of_an_earlier_attempt_is_not_heard() -> None:
    """DESIGN 1: also while the next one runs."""
    state = begun(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, LATE), ev.StepStarted("a", 2, "t"))
    then(state, ev.StepSucceeded("a", 1, 1, "d"), ev.StepFailed("a", 1, NO))
    assert state.tracks["a"].phase is Phase.RUNNING and state.tracks["a"].result is None
    assert then(state, ev.StepSucceeded("a", 2, 1, "d")).tracks["a"].phase is Phase.SUCCEEDED


def test_an_effect_that_is_not_there_has_failed() -> None:
    """E3, V8: one that is there has succeeded; where nobody can tell, the doubt stays, if it must not happen twice."""
    once = ev.StepStarted("a", 1, "t", Effect.ONCE, verifiable=True)
    read = ev.StepStarted("a", 1, "t", verifiable=True)
    lost = ev.StepFailed("a", 1, LATE, lost=True)
    for started, effect, phase in (
        (once, "absent", Phase.HURT), (once, "unknown", Phase.DOUBT), (once, "there", Phase.SUCCEEDED),
        (read, "unknown", Phase.HURT),
    ):  # fmt: skip
        assert begun(started, lost, ev.StepVerified("a", 1, effect)).tracks["a"].phase is phase
    resolved = begun(once, lost, ev.Acted("resolve", "ann", "a", outcome="succeeded"))
    assert resolved.tracks["a"].question == "" and resolved.tracks["a"].phase is Phase.SUCCEEDED


def test_what_a_step_made_is_gone_once_a_person_does_without_it() -> None:
    """X7, H9: what needs it finds a hole, and not the output of before."""
    state = begun(*did("a"), again("a", fresh=("a",)), ev.StepSkipped("a", "SKIP_USER", by="ann"))
    assert state.tracks["a"].result is None and state.tainted(state.tracks["b"]) == "a"


def test_a_fallback_says_what_it_stands_for() -> None:
    """H9: the reason, if there is one."""
    start, done = ev.StepStarted("a", 1, "v", rung=Rung.FALLBACK), ev.StepSucceeded("a", 1, 1, "d")
    steps = (Step("a", "t", fallback=Fallback(tool="v")),)
    result = begun(start, done, steps=steps).tracks["a"].result
    assert result is not None and result.degraded == Degraded(Lack.FALLBACK)
    after = begun(*failed("a")[:2], ev.StepStarted("a", 2, "v", rung=Rung.FALLBACK), ev.StepSucceeded("a", 2, 1, "d"))
    result = after.tracks["a"].result
    assert result is not None and result.degraded == Degraded(Lack.FALLBACK, "no") and result.stands_in


# -- What is kept, and what is done again (R3) ---------------------------------------------------------------------


def test_a_step_is_kept_as_long_as_what_it_was_made_from_stands() -> None:
    """R3: the same output keeps it, another one renews it, and so does one that is not there any more."""
    steps = (Step("a", "t"), Step("b", "u", needs=(Need("a", When.DONE),)))
    ran = (*did("a", digest="d"), *did("b"), again("a", fresh=("a",)))
    assert noted(begun(*ran, *did("a", 2, digest="d"), steps=steps)) == [ev.StepKept("b")]
    assert noted(begun(*ran, *did("a", 2, digest="e"), steps=steps)) == [ev.StepRenewed("b")]
    policy = Policy(max_retry_rounds=0)
    assert noted(begun(*ran, *failed("a", 2), steps=steps, policy=policy)) == [ev.StepRenewed("b")]


def test_a_join_is_renewed_by_any_of_its_needs() -> None:
    """R3: however many there are."""
    for count in (2, 17):
        ids = [f"n{at}" for at in range(count)]
        steps = (*(Step(name, "t") for name in ids), Step("j", "u", needs=tuple(Need(name) for name in ids)))
        ran = [event for name in ids for event in did(name)]
        state = begun(*ran, *did("j"), again(ids[-1], fresh=(ids[-1],)), steps=steps)
        assert noted(then(state, *did(ids[-1], 2, digest="other"))) == [ev.StepRenewed("j")]
        same = begun(*ran, *did("j"), again(ids[-1], fresh=(ids[-1],)), steps=steps)
        assert noted(then(same, *did(ids[-1], 2, digest=f"{ids[-1]}1"))) == [ev.StepKept("j")]


def test_a_kept_step_is_as_if_it_had_never_been_asked_for() -> None:
    """R3: it is not to be done again any more."""
    state = begun(*did("a"), *did("b"), again("a", fresh=("a",)), *did("a", 2, digest="a1"), ev.StepKept("b"))
    track = state.tracks["b"]
    assert track.phase is Phase.SUCCEEDED and not track.again and not track.root


def test_a_step_that_keeps_its_result_is_not_told_of_as_skipped() -> None:
    """R3, X2: its need failed again; it stays, stale, and only what never ran is skipped."""
    policy = Policy(max_retry_rounds=0)
    state = begun(*did("a"), *did("b"), again("a", fresh=("a",)), *failed("a", 2), policy=policy)
    assert [event.step for event in noted(state) if isinstance(event, ev.StepSkipped)] == ["c"]
    assert verdict(state).consequences == ("c",)


def test_compensation_stands_when_its_need_is_mended() -> None:
    """P2: a step that ran because another one failed keeps its result, and the verdict tells both."""
    steps = (Step("a", "t"), Step("f", "u", needs=(Need("a", When.FAILURE),)))
    policy = Policy(max_retry_rounds=0)
    mended = begun(*failed("a"), *did("f"), again("a"), *did("a", 2), steps=steps, policy=policy)
    assert noted(mended) == [ev.StepKept("f", "mended")]
    then(mended, ev.StepKept("f", "mended"))
    assert verdict(mended).success and verdict(mended).degraded
    (skipped,) = noted(begun(*did("a"), steps=steps, policy=policy))
    assert isinstance(skipped, ev.StepSkipped) and (skipped.step, skipped.code) == ("f", "SKIP_CONDITION")


@pytest.mark.parametrize(("automatic", "effect", "calls"), [
    (False, Effect.ONCE, ["a"]), (True, Effect.ONCE, []), (True, Effect.REPEATABLE, ["a"]),
])  # fmt: skip
def test_nothing_automatic_repeats_what_must_not_happen_twice(
    automatic: bool, effect: Effect, calls: list[str]
) -> None:
    """R3: a person may; and what failed since is no success that could be repeated."""
    one = (Step("a", "t"),)
    assert called(begun(*did("a", effect=effect), again("a", automatic=automatic), steps=one)) == calls
    since = (*did("a", effect=effect), again("a"), *failed("a", 2))
    assert called(begun(*since, again("a", automatic=automatic), steps=one)) == ["a"]


def test_a_minds_new_plan_may_take_up_what_was_only_optional() -> None:
    """R6: what a person did without stays so."""
    for code, phase in (("SKIP_OPTIONAL", Phase.PENDING), ("SKIP_USER", Phase.SKIPPED)):
        state = begun(ev.StepSkipped("a", code), ev.Replanned(2, Course(("a",)), "m"))
        assert state.tracks["a"].phase is phase


def test_a_new_plan_has_its_own_order() -> None:
    """H8: what is retried is told in it, and a wait goes on, whatever number its step has now."""
    steps = tuple(Step(name, "t") for name in "abcd")
    waits = (ev.StepStarted("b", 1, "t"), ev.StepFailed("b", 1, NO), ev.RetryScheduled("b", 2, 4, 2, 50.0, 155.0))
    state = begun(*waits, ev.Replanned(2, Course(order=("c", "b", "a")), "m"), steps=steps)
    assert list(state.tracks) == ["c", "b", "a", "d"] and [track.n for track in state.tracks.values()] == [0, 1, 2, 3]
    assert retry_chain(state, ["a", "c", "d"]) == ("c", "a", "d")
    assert state.next_timer() == 154.0 and called(state) == ["c", "a", "d"]
    state.tick(160.0)
    assert called(state) == ["c", "b", "a", "d"]


def test_a_mind_does_not_call_what_the_plan_is_to_call() -> None:
    """H8: the same tool with the same arguments, as far as these are known already."""
    steps = (Step("a", "t"), Step("p", "u", {"x": 1}), Step("q", "u", {"x": "${a}"}), Step("o", "v", {"x": 1}))
    state = begun(*did("a"), ev.Replanned(2, Course(steps=(Step("n", "u", {"x": 1}),)), "m"), steps=steps)
    new = state.tracks["n"]
    assert state.repeats(new, ToolSpec("u"), {"x": 1}, Effect.ONCE) == "p"
    assert (
        state.repeats(new, ToolSpec("u"), {"x": 2}, Effect.ONCE)
        == state.repeats(new, ToolSpec("u"), {"x": 1}, Effect.READ)
        == ""
    )
    assert state.repeats(new, ToolSpec("t"), {"x": 1}, Effect.ONCE) == ""
    assert (
        state.repeats(new, ToolSpec("u"), {"x": {"step": "a", "path": []}}, Effect.ONCE) == ""
    )  # looks like q's reference


# -- What is told of it --------------------------------------------------------------------------------------------


def test_every_failed_need_is_named_where_a_step_is_skipped() -> None:
    """X2: with its own reason; one that was itself skipped has none, whatever happened to it before."""
    steps = (
        Step("a", "t"), Step("x", "t"), Step("j", "u", needs=(Need("a"), Need("x"))),
        Step("k", "u", needs=(Need("j"),)),
    )  # fmt: skip
    policy = Policy(max_retry_rounds=0)
    state = begun(*failed("a"), *failed("x", error=LATE), steps=steps, policy=policy)
    told = skip_message(state, state.tracks["j"], "SKIP_UPSTREAM_FAILED")
    assert told.endswith("step a (t): no; step x (t): late")
    before = begun(
        *did("a"), *did("x"), *failed("j", error=LATE), again("a", "x", "j", fresh=("a", "x")), *failed("a", 2),
        *did("x", 2), steps=steps, policy=policy,
    )  # fmt: skip
    assert "late" not in skip_message(before, before.tracks["k"], "SKIP_UPSTREAM_FAILED")
    plain = begun(steps=(Step("a", "t"), Step("x", "t"), Step("f", "u", needs=(Need("a"), Need("x")))))
    assert "a, x" in skip_message(plain, plain.tracks["f"], "SKIP_CONDITION")


def test_a_judge_may_lower_what_is_complete() -> None:
    """V4: the steps succeeded, and the goal is not reached; a summary of a stop without failures names none."""
    one = (Step("a", "t"),)
    state = begun(*did("a"), ev.Evaluation(True, False, False, judge="m", missing=("x",)), steps=one)
    assert verdict(state).success and not verdict(state).complete
    stopped = begun(ev.Stopped("BUDGET_EXCEEDED"), steps=one)
    assert summary(stopped, verdict(stopped)).endswith("no more calls; 1 of 1 step never started")
    gone = Error("RUN_CANCELLED", Category.TRANSIENT, "cancelled")
    for code, said in (
        ("BUDGET_EXCEEDED", "stopped early, a budget of the run allows no more calls; cut off: a"),
        ("RUN_CANCELLED", "no step was done before that; cut off: a"),
    ):
        cut = begun(ev.StepStarted("a", 1, "t"), ev.Stopped(code), ev.StepFailed("a", 1, gone), steps=one)
        assert summary(cut, verdict(cut)) == said
    doubt = begun(ev.StepStarted("a", 1, "v", Effect.ONCE), ev.StepFailed("a", 1, LATE, lost=True), steps=one)
    assert waiting_on(doubt) == [{"step": "a", "for": "in_doubt", "tool": "v", "attempt": 1}]


def test_who_has_to_agree_sees_the_files_that_the_call_is_made_from() -> None:
    """X7: if there are any."""
    for files, shown in (({"f": "x"}, {"files": ["f"]}), ({}, {})):
        done = ev.StepSucceeded("a", 1, 1, "d", files=files)
        gate = ev.GateOpened("g", 0, "u", "d", {}, files=files)
        state = begun(ev.StepStarted("a", 1, "t"), done, gate, ev.Waiting(()), steps=GATED)
        assert state.files(state.tracks["g"]) == files
        call = {"step": "g", "for": "confirm", "question": "", "tool": "u", "args": {}, "made_from_degraded": {}}
        assert result(state, {"a": 1}, 200.0).waiting_on == ({**call, **shown, "digest": "d"},)


# -- What a run begins with, and what is known of it by number --------------------------------------------------------


def test_a_new_run_has_spent_nothing_and_remembers_nothing() -> None:
    """H4, V2: every counter is zero, every index is empty, every mark is unset."""
    state = State("r")
    given = {"run", "home", "policy", "round_done", "names", "once"}
    assert not (state.names.ids or state.once.made or state.once.tools or state.once.by_minds)
    names = {*vars(State), *vars(state)} - given
    members = {name: getattr(state, name) for name in names if not name.startswith("_")}
    plain = {name: value for name, value in members.items() if not callable(value)}
    known = {name: value for name, value in plain.items() if not callable(getattr(value, "first", None))}
    assert {name: value for name, value in known.items() if value} == {}
    assert len(state.ready) == 0 and state.round_done and state.policy == Policy()
    (track,) = define(State("r"), [Step("a", "t")])
    assert (track.attempt, track.calls, track.n, track.order) == (0, 0, 0, (0, 0))


def test_events_are_remembered_by_their_number() -> None:
    """T6, H8: with which it came to rest or began to wait, and with which a person acted."""
    state = begun(*did("a"), ev.Waiting(()))
    assert (state.rested_at, state.acted_at) == (5, 0)
    then(state, ev.Acted("pause", "ann"))
    assert (state.rested_at, state.acted_at) == (5, 6)
    then(state, ev.Done("failed", False, False, False))
    assert (state.rested_at, state.acted_at, state.seq) == (7, 6, 7)


def test_a_result_that_was_to_be_earned_anew_is_out_of_date_once_it_cannot_be() -> None:
    """R3: by what is upstream, by a stop or the end of the run; while it may still be done again it is not."""
    ran = (*did("a"), *did("b"), again("a", "b", fresh=("a",)))
    assert [stale_of(begun(*ran), begun(*ran).tracks[name]) for name in "abc"] == ["", "", ""]
    stopped = begun(*ran, ev.Stopped("BUDGET_EXCEEDED"))
    assert [stale_of(stopped, stopped.tracks[name]) for name in "abc"] == ["stopped", "stopped", ""]
    over = begun(*ran, ev.Done("failed", False, False, False))
    assert stale_of(over, over.tracks["b"]) == "stopped" and status_of(over, over.tracks["b"])[0] == "succeeded"
    policy = Policy(max_retry_rounds=0)
    broke = begun(*did("a"), *did("b"), again("a", fresh=("a",)), *failed("a", 2), policy=policy)
    assert stale_of(broke, broke.tracks["b"]) == "upstream" and stale_of(broke, broke.tracks["c"]) == ""


def test_a_tool_that_changed_since_makes_the_verdict_another_one() -> None:
    """E5: what is computed from the steps is computed anew, also by whoever had looked before."""
    state = begun(*did("a"), steps=CHAIN[:1])
    assert not verdict(state).degraded
    assert verdict(then(state, ev.Resumed("ann", stale=("a",)))).degraded


def test_a_cancelled_call_that_somebody_can_look_behind_is_as_if_it_had_not_begun() -> None:
    """X4: unless it must not happen twice; then there is a doubt."""
    cancelled = Error("RUN_CANCELLED", Category.TRANSIENT, "cancelled")
    for effect, phase in ((Effect.REPEATABLE, Phase.PENDING), (Effect.ONCE, Phase.DOUBT)):
        started = ev.StepStarted("a", 1, "t", effect, verifiable=True)
        assert begun(started, ev.StepFailed("a", 1, cancelled, lost=True)).tracks["a"].phase is phase


def test_a_gate_that_asks_again_shows_no_old_error() -> None:
    """X7: what a step failed of before it was written anew is not what it waits for."""
    gate = (Step("g", "u", confirm=True),)
    new = Step("g", "v", confirm=True)
    broke = (ev.Acted("confirm", "ann", "g"), ev.StepStarted("g", 1, "u"), ev.StepFailed("g", 1, NO))
    state = begun(*broke, ev.Acted("repair", "ann", "g", course=Course(("g",), (new,), automatic=False)), steps=gate)
    row = result(state, {}, 200.0).steps["g"]
    assert (row.status, row.code, row.error) == ("waiting", "confirm", None)


def test_a_degraded_result_is_told_of_while_it_counts() -> None:
    """H9: a step that failed since has none."""
    steps = (Step("a", "t", fallback=Fallback(value=1)),)
    poor = (*failed("a")[:2], ev.Recovered("a", 1, Rung.FALLBACK, "no", output=1, digest="d"))
    assert result(begun(*poor, steps=steps), {}, 200.0).steps["a"].degraded is not None
    since = begun(*poor, again("a"), *failed("a", 2), steps=steps)
    assert result(since, {}, 200.0).steps["a"].degraded is None


def test_of_many_failures_five_are_named() -> None:
    """V7: and how many more there are."""
    for count, more in ((5, ""), (6, "(+1)"), (9, "(+4)")):
        steps = tuple(Step(f"s{n}", "t") for n in range(count))
        state = begun(*(event for step in steps for event in failed(step.id)), steps=steps)
        told = summary(state, verdict(state))
        assert told.count("(no)") == 5 and ("(+" in told) is bool(more) and more in told


def test_a_stopped_run_says_why_nothing_was_done_about_a_failure() -> None:
    """H4, H5: the reflection names what stopped it."""
    state = begun(ev.StepStarted("a", 1, "t"), ev.Stopped("BUDGET_EXCEEDED"), ev.StepFailed("a", 1, NO))
    (told,) = noted(state)
    assert isinstance(told, ev.Reflected) and told.rung is Rung.FAIL
    assert len(told.refused) == 1 and "BUDGET_EXCEEDED" in told.refused[0]


def test_who_gave_a_result_by_hand_is_known() -> None:
    """X7: by name, if there is one."""
    for by, known in (("ann", "ann"), ("", "person")):
        given = begun(ev.Acted("resolve", by, "a", outcome="succeeded", output=1, digest="d"))
        assert given.tracks["a"].result.by == known  # type: ignore[union-attr]


def test_steps_that_open_the_breaker_are_named() -> None:
    """H4: all of them, with commas between, in the order in which they failed."""
    steps = (Step("a", "t"), Step("x", "t"))
    state = begun(*failed("x"), *failed("a"), steps=steps, policy=Policy(max_consecutive_failures=2))
    assert noted(state) == [ev.Stopped("BREAKER_OPEN", "x, a")]


def test_a_step_that_is_looked_at_is_held_against_what_changes_above_it() -> None:
    """R3, V8: it ended with a value that stands in, made from an input that a person had done again meanwhile."""
    tale = Tale(Step("a", "t"), Step("b", "u", needs=(Need("a", When.SUCCESS),), fallback=Fallback(value="x")))
    tale.succeed("a").tell(ev.StepStarted("b", 1, "u", verifiable=True))
    error = Error("TOOL_FAILED", Category.TOOL, "odd")
    tale.tell(ev.StepFailed("b", 1, error, look=True))
    assert tale.state.tracks["b"].phase is Phase.DOUBT
    tale.tell(ev.Acted("retry", "ann", "a", course=Course(("a",), automatic=False, fresh=("a",))))
    tale.tell(ev.StepVerified("b", 1, "unknown", looks=1), ev.Recovered("b", 1, Rung.FALLBACK, output="x", digest="d"))
    assert tale.state.tracks["b"].phase is Phase.PENDING, "it is made again once its need is"
