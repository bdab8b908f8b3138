"""The fold never fails on a late, doubled or odd word: histories are long, and processes die (DESIGN 1)."""

from __future__ import annotations

import pytest

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.decide import Ask, Call, Note, decide
from rerail.kernel.events import Course, Error, Event, Record
from rerail.kernel.fold import evolve, fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.ready_queue import Ready
from rerail.kernel.state import State
from rerail.kernel.step_state import Degraded, Lack, Phase, same_inputs
from rerail.kernel.verdict import error_of, run_status, status_of, verdict
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fallback, Need, Step, When
from rerail.plan.tool_spec import ToolSpec

NO = Error("TOOL_FAILED", Category.TOOL, "no")
LOST = Error("TIMEOUT", Category.TRANSIENT, "late")
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


def phases(state: State) -> dict[str, str]:
    """Where each step stands."""
    return {track.id: track.phase.name for track in state.tracks.values()}


STARTED = ev.StepStarted("a", 1, "t")
DONE = ev.StepSucceeded("a", 1, {"n": 1}, "d1", 7)

LATE: list[Event] = [
    ev.StepStarted("gone", 1, "t"), ev.StepStarted("a", 1, "t"), ev.StepStarted("a", 0, "t"),
    ev.StepSucceeded("gone", 1), ev.StepSucceeded("a", 1, {"n": 2}, "d2"), ev.StepSucceeded("a", 7),
    ev.StepFailed("gone", 1, NO), ev.StepFailed("a", 1, NO), ev.StepFailed("a", 7, NO),
    ev.StepFailed("a", 1, NO, called=False), ev.StepVerified("a", 1, "absent"), ev.StepVerified("gone", 1, "there"),
    ev.StepSkipped("gone", "SKIP_USER"), ev.StepKept("gone"), ev.StepKept("a", "once"), ev.StepRenewed("gone"),
    ev.StepRenewed("a"), ev.RetryScheduled("gone", 2, 4, 2, 1.0, 1.0), ev.RetryScheduled("a", 2, 4, 2, 1.0, 1.0),
    ev.Reflected("gone", 1, Category.TOOL, Rung.FAIL), ev.Reflected("a", 1, Category.TOOL, Rung.FAIL),
    ev.Recovered("gone", 1, Rung.ADJUST, args={"x": 1}), ev.QuestionAsked("reflect", "a", 1),
    ev.QuestionAsked("reflect", "gone", 1), ev.Declined("repair", "a"), ev.Declined("repair", "gone"),
    ev.Declined("reflect", "a"), ev.Declined("replan", late=True), ev.PlanRejected("ann", ("x",)),
    ev.StepProgress("a", 1, "words"),
    ev.ArtifactLost("a", "d9", "gone", Course(("gone",))), ev.Notified("webhook", "host", True),
]  # fmt: skip


@pytest.mark.parametrize("event", LATE, ids=lambda event: type(event).__name__)
def test_a_late_word_changes_nothing(event: Event) -> None:
    """DESIGN 1: an answer is heard only from the attempt that is waited for."""
    state = begun(STARTED, DONE)
    before, result = phases(state), state.tracks["a"].result
    then(state, event)
    assert phases(state) == before and state.tracks["a"].result is result
    assert state.tracks["a"].attempt == 1 and state.replans == 0


def test_words_about_steps_that_are_gone_are_passed_over() -> None:
    """E5: courses, stale marks and gates of steps that a later plan does not have."""
    state = begun(
        STARTED, DONE, ev.Resumed("ann", stale=("gone", "a")),
        ev.RetryBegin(
            1, "ann", ("gone",), ("gone",), 1, automatic=False, stale=("gone", "a"), reset_count=True,
            course=Course(("gone",), fresh=("gone", "a"), below=("gone",), dropped=("nobody",)),
        ),
    )  # fmt: skip
    assert state.tracks["a"].stale == "definition changed" and state.tracks["a"].generation == 1
    assert phases(state) == {"a": "SUCCEEDED", "b": "PENDING", "c": "PENDING"} and state.round == 1
    then(state, ev.Acted("confirm", "ann", "gone"), ev.Acted("resolve", "ann", "gone", outcome="succeeded"))
    assert phases(state)["a"] == "SUCCEEDED"
    then(state, ev.Acted("repair", "ann", "a", course=Course(dropped=("b", "c"))))
    assert set(state.tracks) == {"a"} and state.forgone == {"b": None, "c": None}


def test_a_replan_lets_only_those_go_that_waited_for_it() -> None:
    """H8: a step that is held for a repair stays held; one that wanted the new plan is looked at again."""
    steps = (Step("a", "t"), Step("b", "u"))
    state = begun(
        STARTED, ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.DECOMPOSITION, Rung.REPLAN),
        ev.StepStarted("b", 1, "u"), ev.StepFailed("b", 1, NO), ev.Reflected("b", 1, Category.TOOL, Rung.REPAIR),
        steps=steps, policy=Policy(minds=("repair", "replan")),
    )  # fmt: skip
    assert phases(state) == {"a": "HELD", "b": "HELD"} and state.replan_wanted
    then(state, ev.Declined("replan", reason="no"))
    assert phases(state) == {"a": "HURT", "b": "HELD"} and not state.replan_wanted and state.replans == 1
    then(state, ev.Reflected("a", 1, Category.DECOMPOSITION, Rung.REPLAN), ev.Replanned(2, Course(), "m"))
    assert phases(state) == {"a": "HURT", "b": "HELD"} and state.replans == 2 and state.revision == 2
    then(state, ev.PlanRejected("m", ("x",), question="repair", step="b"))
    assert phases(state)["b"] == "HURT" and state.tracks["b"].healing().repairs == 1


def test_a_cancelled_call_is_as_if_it_had_not_begun() -> None:
    """X4: unless its effect must not happen twice, and may have happened."""
    cancelled = Error("RUN_CANCELLED", Category.TRANSIENT, "cancelled")
    state = begun(STARTED, ev.StepFailed("a", 1, cancelled, lost=True))
    assert phases(state)["a"] == "PENDING"
    once = begun(ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, cancelled, lost=True))
    assert phases(once)["a"] == "DOUBT"
    sure = begun(ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, cancelled))
    assert phases(sure)["a"] == "PENDING"


def test_not_now_counts_for_nothing_but_its_time() -> None:
    """X8: the call of a fallback never counted in the first place, so it is not given back."""
    wait = ev.RetryScheduled("a", 1, 4, 3, 5.0, 1000.0, not_now=True)
    state = begun(STARTED, ev.StepFailed("a", 1, NO, not_now=5.0), wait)
    track = state.tracks["a"]
    assert (track.calls, track.healing().waited, track.healing().wished) == (0, 5.0, "t") and state.wait_seconds == 5.0
    fell = begun(
        ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.StepStarted("a", 2, "v", rung=Rung.FALLBACK),
        ev.StepFailed("a", 2, NO, not_now=5.0), wait,
    )  # fmt: skip
    assert fell.tracks["a"].calls == 1 and fell.tracks["a"].phase is Phase.BACKOFF


def test_a_wait_ends_when_its_time_has_come() -> None:
    """H3: also under a clock that was set back behind the moment the wait began; a stale timer wakes nobody."""
    state = begun(STARTED, ev.StepFailed("a", 1, NO), ev.RetryScheduled("a", 2, 4, 2, 5.0, 109.0))
    assert state.next_timer() == 109.0
    state.tick(108.9)
    assert phases(state)["a"] == "BACKOFF"
    state.tick(109.0)
    assert phases(state)["a"] == "PENDING" and state.next_timer() is None
    back = begun(STARTED, ev.StepFailed("a", 1, NO), ev.RetryScheduled("a", 2, 4, 2, 5.0, 109.0))
    back.tick(10.0)
    assert phases(back)["a"] == "PENDING"
    skipped = then(
        begun(STARTED, ev.StepFailed("a", 1, NO), ev.RetryScheduled("a", 2, 4, 2, 5.0, 109.0)),
        ev.StepSkipped("a", "SKIP_USER", by="ann"),
    )
    assert skipped.next_timer() is None and skipped.timers == []


def test_nothing_automatic_touches_a_doubt_or_a_persons_skip() -> None:
    """R3, X7: a course by rules passes over both; a person's takes them along."""
    lost = (ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, LOST, lost=True))
    state = begun(*lost)
    then(state, ev.Recovered("b", 0, Rung.PRODUCER, course=Course(("a",))))
    assert phases(state)["a"] == "DOUBT"
    then(state, ev.Acted("resolve", "ann", "a", outcome="rerun", course=Course(("a",), automatic=False, fresh=("a",))))
    assert phases(state)["a"] == "PENDING" and state.tracks["a"].generation == 1
    skipped = begun(ev.StepSkipped("a", "SKIP_USER", by="ann"))
    then(skipped, ev.Replanned(2, Course(("a",)), "m"))
    assert phases(skipped)["a"] == "SKIPPED"
    then(skipped, ev.RetryBegin(1, "ann", ("a",), ("a",), 1, automatic=False, course=Course(("a",), automatic=False)))
    assert phases(skipped)["a"] == "PENDING"


def test_a_step_that_runs_while_its_input_changes_looks_again() -> None:
    """X6, R3: it is let end, and then checked against what there is now."""
    steps = (Step("a", "t"), Step("b", "u", needs=(Need("a", When.DONE),)))
    state = begun(STARTED, DONE, ev.StepStarted("b", 1, "u"), steps=steps)
    then(state, ev.Acted("retry", "ann", "a", course=Course(("a",), automatic=False)))
    assert phases(state) == {"a": "PENDING", "b": "RUNNING"} and state.tracks["b"].redo
    then(state, ev.StepSucceeded("b", 1, 1, "x"), ev.StepStarted("a", 2, "t"), ev.StepSucceeded("a", 2, 2, "d2"))
    assert phases(state)["b"] == "PENDING" and state.tracks["b"].again
    [note] = [action for action in decide(state, TOOLS, state.at) if isinstance(action, Note)]
    assert note.events == (ev.StepRenewed("b"),)


def test_a_judge_that_cannot_be_paid_is_unavailable() -> None:
    """H4, V4: a budget that is used up when only the verdict is left keeps the verdict computed."""
    policy = Policy(minds=("judge",), shortcut=False, max_tokens=10)
    state = begun(STARTED, ev.StepSucceeded("a", 1, 1, "d", tokens=10), steps=(Step("a", "t"),), policy=policy)
    [note] = decide(state, TOOLS, state.at)
    assert isinstance(note, Note)
    assert isinstance(note.events[0], ev.Evaluation) and note.events[0].judge == "unavailable"
    unbounded = begun(STARTED, DONE, steps=(Step("a", "t"),), policy=Policy(minds=("judge",), shortcut=False))
    assert [type(action) for action in decide(unbounded, TOOLS, unbounded.at)] == [Ask]


def test_a_run_without_a_plan_decides_nothing() -> None:
    """P7: it died before its plan was there."""
    state = fold("r", [Record("r", 1, 1.0, ev.RunStarted())])
    assert decide(state, TOOLS, 2.0) == [] and decide(State("r"), TOOLS, 2.0) == []
    assert run_status(State("r")) == "pending" and run_status(state) == "running"


def test_limits_of_tools_and_providers() -> None:
    """X1: a tool at its limit is passed over, others go on; 0 is no limit; a provider's tools share theirs."""
    steps = tuple(Step(name, tool) for name, tool in (("a", "t"), ("b", "t"), ("c", "u"), ("d", "v"), ("e", "w")))
    tools = {"t": ToolSpec("t", provider="p"), "u": ToolSpec("u", provider="p"), "v": ToolSpec("v")}

    def called(**limits: dict[str, int]) -> list[str]:
        state = begun(steps=steps, policy=Policy(**limits))
        return [action.step for action in decide(state, tools, 200.0) if isinstance(action, Call)]

    assert called(tool_concurrency={"t": 1, "u": 0}) == ["a", "c", "d", "e"]
    assert called(provider_concurrency={"p": 2}) == ["a", "b", "d", "e"]
    assert called(provider_concurrency={"p": 0}) == ["a", "b", "c", "d", "e"]
    state = begun(STARTED, steps=steps, policy=Policy(provider_concurrency={"p": 1}, concurrency=3))
    assert [a.step for a in decide(state, tools, 200.0) if isinstance(a, Call)] == ["d", "e"]


def test_a_fallback_of_nothing_makes_no_artifact() -> None:
    """H9: null is a value like any other, and has no digest."""
    steps = (Step("a", "t", fallback=Fallback(value=None)), Step("b", "t", fallback=Fallback(value=[1])))
    state = begun(
        STARTED, ev.StepFailed("a", 1, Error("NO_KEY", Category.PERMANENT, "no key")), ev.StepStarted("b", 1, "t"),
        ev.StepFailed("b", 1, Error("NO_KEY", Category.PERMANENT, "no key")), steps=steps,
    )  # fmt: skip
    kinds = []
    while not kinds or kinds[-1] is ev.Recovered:
        [note] = decide(state, TOOLS, state.at)
        if not isinstance(note, Note) or not isinstance(note.events[0], ev.Reflected):
            break
        kinds += [type(event) for event in note.events]
        then(state, *note.events)
    assert kinds == [ev.Reflected, ev.Recovered, ev.Reflected, ev.ArtifactCreated, ev.Recovered]
    assert [status_of(state, track)[0] for track in state.tracks.values()] == ["degraded", "degraded"]


def test_inputs_are_the_same_only_if_all_of_them_are() -> None:
    """R3: the same work, and equal outputs of all needs; nothing is the same as nothing."""
    one, other = Step("a", "t", {"x": 1}), Step("a", "t", {"x": 2})
    assert same_inputs((one, "d"), (Step("a", "t", {"x": 1}, title="new"), "d"))
    assert not same_inputs((one, "d"), (other, "d")) and not same_inputs((one, "d"), (one, "e"))
    assert not same_inputs((), ()) and not same_inputs((one,), ())


def test_other_rungs_only_change_the_course() -> None:
    """H3: what a later version may call a recovery is followed as far as it says where to."""
    state = begun(STARTED, DONE)
    then(state, ev.Recovered("a", 1, Rung.RETRY, course=Course(("a",))))
    assert phases(state)["a"] == "PENDING" and state.tracks["a"].root


def test_the_ready_are_taken_in_order_whatever_became_of_the_others() -> None:
    """X1: adding one twice changes nothing; those that left are passed over, also if all of a queue did."""
    steps = tuple(Step(f"s{n}", "t", priority=n % 2) for n in range(40))
    state = begun(steps=steps)
    ready, tracks = state.ready, list(state.tracks.values())
    ready.add(tracks[0], tracks[0].queue)
    assert [track.id for track in ready.first(None, 3)] == ["s1", "s3", "s5"]
    assert [track.id for track in ready.first(None, 40)][-1] == "s38" and len(ready) == 40
    for track in tracks[:-1]:
        ready.discard(track)
    assert [track.id for track in ready.first(None, 9)] == ["s39"] and tracks[0] not in ready and tracks[-1] in ready
    assert list(Ready().first(None, 9)) == [] and list(Ready().first(lambda _: True, 9)) == []


def test_other_settings_decide_anew_whether_a_failure_is_final() -> None:
    """P2, R6: with no automatic round to come, what waits for the end of a failed step may begin."""
    steps = (Step("a", "t"), Step("b", "u", needs=(Need("a", When.DONE),)))
    fail = (STARTED, ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.TOOL, Rung.FAIL))
    state = begun(*fail, steps=steps)
    assert state.tracks["b"] not in state.ready
    then(state, ev.Resumed("ann", policy=Policy(max_retry_rounds=0)))
    assert state.tracks["b"] in state.ready
    then(state, ev.Resumed("ann", policy=Policy(max_retry_rounds=2)))
    assert state.tracks["b"] not in state.ready


def test_a_failure_that_rules_answer_leaves_the_plans_word() -> None:
    """H5: what the plan says of an effect holds for its own calls; a mind can only be stricter."""
    steps = (Step("a", "t", effect=Effect.READ),)
    state = begun(STARTED, ev.StepFailed("a", 1, NO), steps=steps)
    track = state.tracks["a"]
    assert (
        not state.chosen_by_a_mind(track) and state.effect_of(track, ToolSpec("t", effect=Effect.ONCE)) is Effect.READ
    )
    then(state, ev.Recovered("a", 1, Rung.ALTERNATIVE, tool="u", by="m", course=Course(("a",))))
    assert state.chosen_by_a_mind(track) and state.effect_of(track, ToolSpec("u", effect=Effect.ONCE)) is Effect.ONCE
    assert state.effect_of(track, ToolSpec("u", effect=Effect.REPEATABLE)) is Effect.REPEATABLE


# -- Corners of the ladder -----------------------------------------------------------------------------------------


def answer(state: State, tools: dict[str, ToolSpec] | None = None) -> list[Event]:
    """What is decided about a failed step."""
    [note] = decide(state, TOOLS if tools is None else tools, state.at)
    assert isinstance(note, Note)
    return list(note.events)


def test_a_fallback_has_a_single_call() -> None:
    """H3: when it fails too, what comes before it on the ladder is behind us."""
    steps = (Step("a", "t", fallback=Fallback(tool="u"), critical=False),)
    state = begun(STARTED, ev.StepFailed("a", 1, NO), steps=steps, policy=Policy(max_step_retries=0))
    then(state, *answer(state))
    assert [action.tool for action in decide(state, TOOLS, state.at) if isinstance(action, Call)] == ["u"]
    then(state, ev.StepStarted("a", 2, "u", rung=Rung.FALLBACK), ev.StepFailed("a", 2, LOST))
    reflected, skipped = answer(state)
    assert isinstance(reflected, ev.Reflected) and reflected.rung is Rung.SKIP and isinstance(skipped, ev.StepSkipped)


def wrong(message: str, **more: object) -> Error:
    """An error of the arguments."""
    return Error("TOOL_FAILED", Category.PARAMETER, message, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "args"),
    [("did you mean 'zebra'?", {"x": "qqqqqq"}), ("did you mean 'zebra'?", {"x": 3}), ("no such thing", {"x": "zebr"})],
)
def test_a_hint_that_is_near_nothing_is_no_proposal(message: str, args: dict[str, object]) -> None:
    """H6: nothing is changed that the hint cannot be about."""
    steps = (Step("a", "t", args),)
    state = begun(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, wrong(message)), steps=steps)
    [reflected] = answer(state)
    assert isinstance(reflected, ev.Reflected) and reflected.suggestion is None
    near = begun(STARTED, ev.StepFailed("a", 1, wrong("did you mean 'zebra'?")), steps=(Step("a", "t", {"x": "zebr"}),))
    assert [event.args for event in answer(near) if isinstance(event, ev.Recovered)] == [{"x": "zebra"}]


def test_a_tool_that_is_gone_gets_no_other_arguments() -> None:
    """H6: nobody knows what it takes."""
    state = begun(STARTED, ev.StepFailed("a", 1, wrong("no", suggest={"x": 2})), steps=(Step("a", "t", {"x": 1}),))
    [reflected] = answer(state, {})
    assert isinstance(reflected, ev.Reflected) and reflected.rung is Rung.FAIL and reflected.suggestion is None


def test_arguments_that_do_not_fit_are_not_adjusted_once_more() -> None:
    """H5: what was adjusted and found unfit before the call is left at that."""
    state = begun(
        STARTED, ev.StepFailed("a", 1, wrong("no", suggest={"x": 2})),
        ev.Reflected("a", 1, Category.PARAMETER, Rung.ADJUST),
        ev.Recovered("a", 1, Rung.ADJUST, args={"x": 2}, course=Course(("a",))),
        ev.StepFailed("a", 1, Error("ARGS_INVALID", Category.PARAMETER, "unfit", suggest={"x": 3}), called=False),
        steps=(Step("a", "t", {"x": 1}),),
    )  # fmt: skip
    [reflected] = answer(state)
    assert isinstance(reflected, ev.Reflected) and reflected.rung is Rung.FAIL and len(reflected.refused) == 1


def test_a_step_that_is_written_anew_lets_go_of_its_old_needs() -> None:
    """H7, P6: what it needed before is nothing to it any more."""
    state = begun(STARTED)
    then(state, ev.Acted("repair", "ann", "b", course=Course(("b",), (Step("b", "u"),), automatic=False)))
    assert state.tracks["b"] in state.ready and [edge[0].id for edge in state.tracks["a"].out] == []
    then(state, DONE)
    assert state.tracks["b"].open == 0 and [need.id for need, _ in state.tracks["c"].needs] == ["b"]


def test_a_skip_that_nobody_hoped_for_leaves_no_hole() -> None:
    """H9: a step for the failure of a skipped one was made by hand; it did without nothing."""
    steps = (
        Step("a", "t"),
        Step("f", "t", needs=(Need("a", When.FAILURE),)),
        Step("d", "t", needs=(Need("a", When.DONE),)),
    )
    state = begun(ev.StepSkipped("a", "SKIP_USER", by="ann"), steps=steps)
    for name in ("f", "d"):
        then(state, ev.Acted("resolve", "ann", name, outcome="succeeded", output=1, digest="x"))
    degraded = {name: track.result.degraded for name, track in state.tracks.items() if track.result is not None}
    assert degraded == {"f": None, "d": Degraded(Lack.HOLE, step="a")}


def test_not_now_tells_what_is_left() -> None:
    """X8, I2: it is neither a failure nor a retry: the budget is what it was before the call."""
    again = ev.RetryScheduled("a", 2, 4, 2, 0.0, 0.0)
    later = ev.StepFailed("a", 1, NO, not_now=5.0)
    for calls, told in ((1, (1, 4, 3)), (2, (2, 4, 3)), (3, (3, 4, 2))):
        events: list[Event] = []
        for n in range(1, calls):
            events += [ev.StepStarted("a", n, "t"), ev.StepFailed("a", n, LOST), again]
        state = begun(*events, ev.StepStarted("a", calls, "t"), ev.StepFailed("a", calls, later.error, not_now=5.0))
        [wait] = answer(state)
        assert isinstance(wait, ev.RetryScheduled) and (wait.attempt, wait.of, wait.retries_left) == told
        assert wait.asked and wait.delay == 5.0 and wait.until == state.at + 5.0


def test_a_step_that_never_gets_to_its_call_does_not_try_for_ever() -> None:
    """H3: no call is made, so no budget is spent; after a few failures before it, other rungs are looked at."""
    gone = Error("ARTIFACT_GONE", Category.TRANSIENT, "gone")
    failures = [ev.StepFailed("a", 1, gone, called=False), ev.RetryScheduled("a", 2, 4, 2, 0.0, 0.0)]
    steps = (Step("a", "t", critical=False),)
    state = begun(STARTED, ev.StepFailed("a", 1, LOST), failures[1], *failures * 3, failures[0], steps=steps)
    reflected = answer(state)[0]
    assert isinstance(reflected, ev.Reflected) and reflected.rung is Rung.SKIP
    fewer = begun(STARTED, ev.StepFailed("a", 1, LOST), failures[1], *failures * 2, failures[0], steps=steps)
    assert isinstance(first := answer(fewer)[0], ev.Reflected) and first.rung is Rung.RETRY


def test_wide_joins_keep_one_digest_of_all() -> None:
    """R3, E7: as many needs as there are, any of them changes it."""
    many = tuple(Step(f"n{i}", "t") for i in range(17))
    steps = (*many, Step("j", "t", needs=tuple(Need(step.id) for step in many)))
    state = begun(*[event for step in many for event in (
        ev.StepStarted(step.id, 1, "t"), ev.StepSucceeded(step.id, 1, 1, f"d-{step.id}"),
    )], steps=steps)  # fmt: skip
    before = state.inputs(state.tracks["j"])
    assert len(before) == 2 and state.inputs(state.tracks["j"]) == before
    then(state, ev.Acted("resolve", "ann", "n3", outcome="succeeded", output=2, digest="other"))
    assert state.inputs(state.tracks["j"]) != before and repr(state.tracks["j"]) == "Track('j', PENDING, OPEN)"


def test_what_was_made_from_a_step_that_is_not_needed_any_more_is_kept_and_out_of_date() -> None:
    """R3, P2: a person had made it by hand, and wants it done anew; a clean-up that ran is as good as it was."""
    only_then = Need("a", When.FAILURE)
    steps = (
        Step("a", "t"), Step("c", "t", needs=(only_then,)), Step("b", "t", needs=(Need("c"),)),
        Step("e", "t", needs=(only_then, Need("c"))),
    )  # fmt: skip
    by_hand = [ev.Acted("resolve", "ann", name, outcome="succeeded", output=name, digest=name) for name in ("c", "e")]
    made = (ev.StepStarted("b", 1, "t"), ev.StepSucceeded("b", 1, "b", "d"))
    again = ev.RetryBegin(1, "ann", ("c",), ("c", "b", "e"), 3, automatic=False, course=Course(("c",), automatic=False))
    state = begun(STARTED, DONE, *by_hand, *made, again, steps=steps)
    assert [event.step for event in answer(state) if isinstance(event, ev.StepSkipped)] == ["c"]
    then(state, *answer(state))
    kept = {event.step: event.stale for event in answer(state) if isinstance(event, ev.StepKept)}
    assert kept == {"b": "needless", "e": ""}
    then(state, *answer(state))
    assert verdict(state).success and verdict(state).degraded


def test_a_persons_retry_gives_optional_steps_another_chance() -> None:
    """R6: nothing automatic does."""
    steps = (Step("a", "t"), Step("o", "t", needs=(Need("a"),), critical=False))
    skip = (STARTED, DONE, ev.StepSkipped("o", "SKIP_OPTIONAL", "no"))
    by_rules = begun(*skip, ev.RetryBegin(1, "rules", ("a",), ("a", "o"), 2, course=Course(("a",))), steps=steps)
    assert phases(by_rules) == {"a": "PENDING", "o": "SKIPPED"}
    person = ev.RetryBegin(1, "ann", ("a",), ("a", "o"), 2, automatic=False, course=Course(("a",), automatic=False))
    assert phases(begun(*skip, person, steps=steps)) == {"a": "PENDING", "o": "PENDING"}


def test_an_effect_of_the_plans_own_is_no_repeat_of_it() -> None:
    """H8, R3: what its author wrote twice happens twice; only a mind's choice is held against what was done."""
    steps = (Step("a", "pay", {"n": 5}), Step("b", "pay", {"n": 5}), Step("c", "pay", {"n": 5}))
    paid = (ev.StepStarted("a", 1, "pay", Effect.ONCE), ev.StepSucceeded("a", 1, 1, "d"))
    state = begun(*paid, steps=steps)
    assert state.repeats(state.tracks["b"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == ""
    minded = ev.Replanned(2, Course(steps=(Step("m", "pay", {"n": 5}),)), "m")
    then(state, minded)
    assert state.repeats(state.tracks["m"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == "a"
    then(state, ev.StepStarted("m", 1, "pay", Effect.ONCE), ev.StepSucceeded("m", 1, 1, "e"))
    assert state.repeats(state.tracks["b"], ToolSpec("pay"), {"n": 5}, Effect.ONCE) == "m"


def test_what_was_seen_stays_apart_from_what_was_judged() -> None:
    """H1, H2: the error keeps the category it came with; what it was judged to be lasts until the next failure."""
    state = begun(STARTED, ev.StepFailed("a", 1, NO))
    track = state.tracks["a"]
    assert (track.category, track.judged) == (Category.TOOL, None)
    again = ev.RetryScheduled("a", 2, 4, 2, 0.0, 0.0)
    then(state, ev.Reflected("a", 1, Category.PARAMETER, Rung.RETRY), again)
    assert track.error is NO and track.category is track.judged is Category.PARAMETER
    then(state, ev.StepStarted("a", 2, "t"), ev.StepFailed("a", 2, NO))
    assert (track.category, track.judged) == (Category.TOOL, None)
    then(state, ev.Reflected("a", 2, Category.PERMANENT, Rung.FAIL))
    assert (error_of(state, track, *status_of(state, track)) or {})["category"] == "permanent_error"
    then(
        state,
        ev.RetryBegin(1, "ann", ("a",), ("a",), 1, course=Course(("a",))),
        ev.StepStarted("a", 3, "t"),
        ev.StepSucceeded("a", 3, 1, "d"),
    )
    assert (track.error, track.category) == (None, None)
