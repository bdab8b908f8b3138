"""What people ask for, turned into events or into a refusal that says what to do instead (X7, R1, R6, R7, T4, T5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rerail.codes import Category
from rerail.kernel import actions, retry
from rerail.kernel import events as ev
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.events import Course, Error, Event, Record
from rerail.kernel.fold import fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.retry import FileDamage
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Need, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.values.json_values import pack

NO = Error("TOOL_FAILED", Category.TOOL, "no")
NEVER = Error("NO_KEY", Category.PERMANENT, "no key")
LATE = Error("TIMEOUT", Category.TRANSIENT, "late")
TOOLS = {name: ToolSpec(name) for name in ("t", "u")}
STEPS = (
    Step("a", "t", {"x": 1, "y": 2}, stage="one"), Step("b", "t", needs=(Need("a"),), stage="two"),
    Step("g", "t", needs=(Need("a"),), confirm=True), Step("h", "t", needs=(Need("a"),), confirm=True),
)  # fmt: skip
PLAIN = STEPS[:2]


def after(*more: Event, steps: tuple[Step, ...] = PLAIN, policy: Policy | None = None) -> State:
    """The state after these."""
    events: list[Event] = [ev.RunStarted(policy=policy or Policy()), ev.PlanAccepted(Plan("o", steps)), *more]
    return fold("r", [Record("r", n + 1, 100.0 + n, event) for n, event in enumerate(events)])


def did(step: str, attempt: int = 1, effect: Effect = Effect.REPEATABLE) -> tuple[Event, ...]:
    """A step that succeeded."""
    return ev.StepStarted(step, attempt, "t", effect), ev.StepSucceeded(step, attempt, 1, f"{step}{attempt}")


def failed(step: str, error: Error = NO, attempt: int = 1) -> tuple[Event, ...]:
    """A step that failed for good."""
    return (
        ev.StepStarted(step, attempt, "t"), ev.StepFailed(step, attempt, error),
        ev.Reflected(step, attempt, error.category, Rung.FAIL),
    )  # fmt: skip


DOUBT = (ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, LATE, lost=True))
FAILED = ev.Done("failed", False, False, False)
COMPLETED = ev.Done("completed", True, True, False)
CANCELLED = ev.Done("cancelled", False, False, False)
BOTH = (*did("a"), *did("b"))
TWICE = (*did("a"), *failed("b"), FAILED)


@pytest.mark.parametrize(
    ("code", "told", "wish"),
    [
        ("STEP_UNKNOWN", (), lambda s: actions.skip(s, "aa", "ann")),
        ("STEP_UNKNOWN", (), lambda s: actions.skip(s, "something else", "ann")),
        ("RUN_COPIED", (ev.RunStarted(copied="there"),), lambda s: retry.retry(s, "ann")),
        ("RUN_MOVED", (ev.Cancelled("ann", to="there", after=3),), lambda s: retry.retry(s, "ann")),
        ("RUN_AT_REST", TWICE, lambda s: actions.pause(s, "ann")),
        ("RUN_AT_REST", (*BOTH, COMPLETED), lambda s: actions.cancel(s, "ann")),
        ("RUN_PAUSED", (ev.Acted("pause", "ann"),), lambda s: actions.pause(s, "ann")),
        ("RUN_LIVE", (), lambda s: actions.resume(s, "ann")),
        ("STEP_ENDED", did("a"), lambda s: actions.skip(s, "a", "ann")),
        ("STEP_ENDED", did("a"), lambda s: actions.resolve_succeeded(s, "a", "ann", 1, pack(1), blob=False)),
        (
            "STEP_NOT_WAITING", did("a")[:1],
            lambda s: actions.resolve_succeeded(s, "a", "ann", 1, pack(1), blob=False),
        ),
        ("STEP_NOT_WAITING", (), lambda s: actions.resolve_failed(s, "a", "ann")),
        ("STEP_NOT_WAITING", (), lambda s: actions.resolve_rerun(s, "a", "ann")),
        ("STEP_ENDED", did("a"), lambda s: actions.repair(s, "a", {"tool": "u"}, TOOLS, "ann")),
        ("STEP_ENDED", did("a")[:1], lambda s: actions.repair(s, "a", {"tool": "u"}, TOOLS, "ann")),
        ("RUN_IN_DOUBT", DOUBT, lambda s: actions.repair(s, "a", {"tool": "u"}, TOOLS, "ann")),
        ("RUN_COMPLETED", (*BOTH, COMPLETED), lambda s: retry.retry(s, "ann")),
        ("RUN_IN_DOUBT", (*DOUBT, FAILED), lambda s: retry.retry(s, "ann")),
        ("RUN_IN_DOUBT", (*DOUBT, FAILED), lambda s: retry.retry(s, "ann", force=True)),
        ("RUN_IN_DOUBT", (*DOUBT, ev.Waiting(())), lambda s: retry.retry(s, "ann")),
        ("RUN_IN_DOUBT", DOUBT, lambda s: retry.retry(s, "ann", steps=["b"])),
        ("RUN_PAUSED", (ev.Acted("pause", "ann"), ev.Waiting(())), lambda s: retry.retry(s, "ann")),
        ("USAGE", TWICE, lambda s: retry.retry(s, "ann", steps=["b"], stage="two")),
        ("USAGE", TWICE, lambda s: retry.retry(s, "ann", steps=["b"], clean=True)),
        ("STEP_SUCCEEDED", TWICE, lambda s: retry.retry(s, "ann", steps=["a"])),
        ("STEP_NOT_WAITING", did("a")[:1], lambda s: retry.retry(s, "ann", steps=["a"])),
        (
            "STEP_SUCCEEDED", (*did("a", effect=Effect.ONCE), *failed("b"), FAILED),
            lambda s: retry.retry(s, "ann", stage="one"),
        ),
        ("STAGE_UNKNOWN", TWICE, lambda s: retry.retry(s, "ann", stage="too")),
        ("STAGE_UNKNOWN", TWICE, lambda s: retry.retry(s, "ann", stage="nothing like it")),
        ("NOTHING_TO_RETRY", (*BOTH, FAILED), lambda s: retry.retry(s, "ann")),
        ("NOT_RETRYABLE", (*did("a"), *failed("b", NEVER), FAILED), lambda s: retry.retry(s, "ann")),
        ("RUN_AT_REST", TWICE, lambda s: retry.retry_live(s, ["b"], "ann")),
        ("RUN_LIVE", (ev.Stopped("BREAKER_OPEN"),), lambda s: retry.retry_live(s, ["b"], "ann")),
        ("STEP_SUCCEEDED", did("a"), lambda s: retry.retry_live(s, ["a"], "ann")),
        ("RUN_IN_DOUBT", DOUBT, lambda s: retry.retry_live(s, ["a"], "ann", force=True)),
        ("RUN_IN_DOUBT", DOUBT, lambda s: retry.retry_live(s, ["b"], "ann")),
    ],
)  # fmt: skip
def test_a_wish_that_does_not_fit_is_refused_with_its_code(
    code: str, told: tuple[Event, ...], wish: Callable[[State], object]
) -> None:
    """X7, T5, R5: and in words."""
    with pytest.raises(Refusal) as refused:
        wish(after(*told))
    assert refused.value.code == code and refused.value.message and str(refused.value) == refused.value.message


@pytest.mark.parametrize(
    ("told", "step", "code"),
    [
        ((), None, ": none"),
        (did("a"), None, ", g"),
        (did("a"), None, "h"),
        ((), "a", "a"),
        ((*did("a"), ev.Acted("confirm", "ann", "g")), "g", "g"),
    ],
)
def test_who_confirms_says_which_gate(told: tuple[Event, ...], step: str | None, code: str) -> None:
    """X7: unless there is only one that waits; those that wait are named."""
    with pytest.raises(Refusal) as refused:
        actions.confirm(after(*told, steps=STEPS), step, "ann")
    assert refused.value.code == "STEP_NOT_WAITING" and code in refused.value.message
    one = after(*did("a"), ev.Acted("confirm", "ann", "h"), ev.GateOpened("g", 0, "u", "d1"), steps=STEPS)
    assert actions.confirm(one, None, "ann") == [ev.Acted("confirm", "ann", "g", digest="d1")]
    with pytest.raises(Refusal) as waits:
        retry.retry(after(*did("a"), ev.Waiting(()), steps=STEPS), "ann")
    assert waits.value.code == "RUN_WAITS_CONFIRM" and waits.value.hint


def test_a_gate_may_be_confirmed_ahead_of_time_and_refused_once_it_waits() -> None:
    """X7, X10: who agrees to a call that is not known yet has to say so."""
    early = after(steps=STEPS)
    assert actions.confirm(early, "g", "ann", ahead=True) == [ev.Acted("confirm", "ann", "g", ahead=True)]
    with pytest.raises(Refusal, match="g") as refused:
        actions.confirm(early, "g", "ann")
    assert refused.value.code == "STEP_NOT_WAITING" and refused.value.hint.endswith("rerail confirm r g --ahead")
    with pytest.raises(Refusal, match="g") as refused:
        actions.refuse(early, "g", "ann")
    assert refused.value.code == "STEP_NOT_WAITING" and "rerail skip r g" in refused.value.hint
    acted, told = actions.refuse(after(*did("a"), steps=STEPS), "g", "")
    assert acted == ev.Acted("refuse", "", "g") and isinstance(told, ev.StepFailed) and not told.called
    assert told.error.code == "CONFIRM_REFUSED" and told.error.category is Category.PERMANENT
    assert told.error.data == {"by": "a person"} and "a person" in told.error.message


def test_a_skip_says_who_did_without_the_step() -> None:
    """X7: and their reason, if they gave one; what ran although it had failed looks again."""
    acted, told = actions.skip(after(), "a", "ann")
    assert acted == ev.Acted("skip", "ann", "a")
    assert isinstance(told, ev.StepSkipped) and "ann" in told.message and told.by == "ann"
    assert "a person" in actions.skip(after(), "a", "")[1].message  # type: ignore[union-attr]
    assert actions.skip(after(), "a", "ann", "why not")[1] == ev.StepSkipped("a", "SKIP_USER", "why not", "ann")
    assert actions.skip(after(*failed("a")), "a", "ann")[0] == ev.Acted("skip", "ann", "a", course=Course(below=("a",)))


def test_what_a_person_resolves_is_what_was_said() -> None:
    """X7, E3: with its digest; of a large value only where it is kept. At rest it opens a round for what is behind."""
    packed = pack({"n": 1})
    (small,) = actions.resolve_succeeded(after(), "a", "ann", {"n": 1}, packed, blob=False)
    assert isinstance(small, ev.Acted)
    assert (small.outcome, small.output, small.digest, small.size) == ("succeeded", {"n": 1}, packed.digest, 7)
    (large,) = actions.resolve_succeeded(after(), "a", "ann", {"n": 1}, packed, blob=True)
    assert isinstance(large, ev.Acted) and large.output is None and large.blob
    state = after(*failed("a"), FAILED)
    _, begin = actions.resolve_succeeded(state, "a", "ann", 1, packed, blob=False)
    assert isinstance(begin, ev.RetryBegin) and not begin.automatic and begin.operation == "resolve"
    assert (begin.round, begin.roots, begin.chain, begin.chain_size) == (1, (), ("b",), 1)
    assert begin.previous_status == "failed"
    hole = after(ev.StepStarted("a", 1, "t"), ev.StepSucceeded("a", 1, None, hole=True))
    assert len(actions.resolve_succeeded(hole, "a", "ann", 1, packed, blob=False)) == 1


def test_a_doubt_is_answered_by_yes_no_or_once_more() -> None:
    """E2, E3: no is a permanent failure, once more the same call under its own key."""
    acted, told = actions.resolve_failed(after(*DOUBT), "a", "ann")
    assert acted == ev.Acted("resolve", "ann", "a", outcome="failed") and isinstance(told, ev.StepFailed)
    assert (told.error.code, told.attempt, told.called) == ("RESOLVED_FAILED", 1, False)
    course = Course(("a",), automatic=False)
    assert actions.resolve_rerun(after(*DOUBT), "a", "ann") == [
        ev.Acted("resolve", "ann", "a", outcome="rerun", course=course)
    ]


def test_steps_are_added_by_a_person() -> None:
    """X7, P5: with every fault at once; adding nothing is one, too."""
    new = Step("n", "t", needs=(Need("b"),))
    assert actions.add(after(), [new], TOOLS, "ann") == [
        ev.Acted("add", "ann", course=Course(steps=(new,), automatic=False))
    ]
    for steps, codes in (
        ([], ["NO_STEPS"]), ([Step("n", "x")], ["UNKNOWN_TOOL"]), ([7], ["BAD_VALUE"]),
        ([Step("a", "t"), "x"], ["BAD_VALUE", "DUPLICATE_ID"]),
    ):  # fmt: skip
        with pytest.raises(Faulty) as found:
            actions.add(after(), steps, TOOLS, "ann")
        assert [fault.code for fault in found.value.faults] == codes


@pytest.mark.parametrize("told", [TWICE, (*did("a"), *did("b"), ev.Done("completed", True, True, False))])
def test_steps_added_at_rest_open_a_round_of_their_own(told: tuple[Event, ...]) -> None:
    """X7: the run goes on with them, also one that had been stopped; what is done stays done."""
    state = after(*told)
    acted, begin = actions.add(state, [Step("n", "t", needs=(Need("a"),))], TOOLS, "ann")
    assert isinstance(acted, ev.Acted) and isinstance(begin, ev.RetryBegin)
    assert (begin.operation, begin.roots, begin.chain, begin.chain_size, begin.stopped) == ("add", (), ("n",), 1, "")
    assert (begin.automatic, begin.counted) == (False, False)


def test_a_change_is_refused_for_what_it_brings_and_not_for_what_was_there() -> None:
    """E5, P5: a run that was accepted when there was another tool takes additions and repairs of its other steps."""
    state = after(*failed("b"), steps=(Step("old", "gone"), Step("b", "t", {"x": 1})))
    assert actions.add(state, [Step("n", "t", needs=(Need("old"),))], TOOLS, "ann")
    assert actions.repair(state, "b", {"args": {"x": 2}}, TOOLS, "ann")
    for change in (
        lambda: actions.add(state, [Step("n", "gone")], TOOLS, "ann"),
        lambda: actions.add(state, [Step("old", "t")], TOOLS, "ann"),
        lambda: actions.repair(state, "old", {"args": {"x": 2}}, TOOLS, "ann"),  # it is as bad as it was
        lambda: actions.repair(state, "b", {"needs": ["n"]}, TOOLS, "ann"),
    ):
        with pytest.raises(Faulty):
            change()


@pytest.mark.parametrize(
    ("changes", "args"),
    [
        ({"args": {"x": 5}}, {"x": 5, "y": 2}),
        ({"remove": "x"}, {"y": 2}),
        ({"remove": ["x", "y"]}, {}),
        ({"args": {"z": 3}, "remove": ["x"]}, {"y": 2, "z": 3}),
        ({"tool": "u"}, {"x": 1, "y": 2}),
        ({"tool": "u", "args": {"z": 3}}, {"z": 3}),
        ({"tool": "t", "args": {"z": 3}}, {"x": 1, "y": 2, "z": 3}),
        ({"title": "new"}, {"x": 1, "y": 2}),
    ],
)
def test_a_repair_changes_what_it_names(changes: dict[str, Any], args: dict[str, Any]) -> None:
    """H7, X7: arguments one by one, the others stay; another tool gets those that are given, if any are."""
    (acted,) = actions.repair(after(*failed("a")), "a", changes, TOOLS, "ann")
    assert isinstance(acted, ev.Acted) and (acted.action, acted.by, acted.step) == ("repair", "ann", "a")
    (new,) = acted.course.steps
    assert new.args == args and new.tool == changes.get("tool", "t") and acted.course.touched == ("a",)
    assert not acted.course.automatic


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": 5}, "args"), ({"args": {"x": 1}, "remove": "x"}, "x"), ({"remove": "z"}, "x, y"), ({}, ""),
        ({"tool": "t"}, ""), ({"args": {"x": 1}}, ""), ({"needs": ["b"]}, "a → b → a"),
    ],
)  # fmt: skip
def test_a_repair_that_would_be_none_is_refused(changes: dict[str, Any], words: str) -> None:
    """H7, P5: or that would make the plan invalid; the old plan stays."""
    with pytest.raises(Faulty) as found:
        actions.repair(after(*failed("a")), "a", changes, TOOLS, "ann")
    assert words in str(found.value) and found.value.faults[0].step in ("a", "")


def test_a_repair_at_rest_opens_a_round() -> None:
    """X7, R4: of the step and what depends on it, with the reason for which it had failed."""
    acted, begin = actions.repair(after(*failed("a"), FAILED), "a", {"tool": "u"}, TOOLS, "ann")
    assert acted == ev.Acted("repair", "ann", "a") and isinstance(begin, ev.RetryBegin)
    assert (begin.round, begin.roots, begin.chain, begin.chain_size) == (1, ("a",), ("a", "b"), 2)
    assert begin.reasons == {"a": "no"} and (begin.operation, begin.previous_status) == ("repair", "failed")


# -- Retry ---------------------------------------------------------------------------------------------------------


def begun(state: State, **options: Any) -> tuple[ev.RetryBegin, retry.Preview]:
    """What a retry would write."""
    found = retry.retry(state, "ann", **options)
    (begin,) = found.events
    assert isinstance(begin, ev.RetryBegin) and begin.by == "ann" and not begin.automatic
    return begin, found


def test_a_retry_takes_what_failed_and_what_depends_on_it() -> None:
    """R1, R4: with the reasons, and counted."""
    begin, found = begun(after(*failed("a"), ev.StepSkipped("b", "SKIP_UPSTREAM_FAILED", "m"), FAILED))
    assert (begin.round, begin.roots, begin.chain, begin.chain_size) == (1, ("a",), ("a", "b"), 2)
    assert begin.reasons == {"a": "no"} and begin.course == Course(("a",), automatic=False)
    assert (begin.operation, begin.previous_status) == ("retry", "failed") and begin.counted and not begin.reset_count
    assert found.passed == () and found.kept == () and found.stage == "one"


def test_a_clean_retry_does_everything_again() -> None:
    """T5: it counts for nothing, gates ask once more, and no file is kept or damaged."""
    state = after(*did("a"), *failed("b", NEVER), FAILED, steps=STEPS)
    damage = [FileDamage("a", "f", "gone")]
    begin, found = begun(state, clean=True, damage=damage, backup="b.zip")
    assert begin.roots == begin.course.fresh == ("a", "b", "g", "h") and begin.operation == "clean"
    assert not begin.counted and begin.reset_count and begin.backup == "b.zip" and begin.damaged == {}
    assert found.asks == ("g", "h") and found.files == () and found.damaged == {} and found.backup == "b.zip"
    assert begun(after(*DOUBT, FAILED), clean=True)[0].roots == ("a", "b")
    never = after(*failed("a", NEVER), FAILED, steps=PLAIN[:1])
    assert begun(never, clean=True)[1].passed == ()


def test_a_cancelled_run_goes_on_where_it_was() -> None:
    """T5, R6: that is no retry, so it counts for none, and what was permanent is asked anew."""
    state = after(*did("a"), ev.Cancelled("ann"), CANCELLED, policy=Policy(max_retries=0))
    begin, found = begun(state)
    assert begin.roots == ("b",) and not begin.counted and begin.reset_count and found.passed == ()
    never = after(*did("a"), *failed("b", NEVER), ev.Cancelled("ann"), CANCELLED)
    assert begun(never)[1].passed == ()
    done = after(*BOTH, ev.Cancelled("ann"), CANCELLED)
    assert begun(done)[0].roots == ()


def test_force_passes_what_would_refuse_and_says_so() -> None:
    """T5: a limit that is reached, an error that trying again cannot mend."""
    state = after(*did("a"), *failed("b", NEVER), FAILED, policy=Policy(max_retries=0))
    with pytest.raises(Refusal) as refused:
        retry.retry(state, "ann")
    assert refused.value.code == "RETRY_LIMIT" and refused.value.hint
    assert begun(state, force=True)[1].passed == ("RETRY_LIMIT", "NOT_RETRYABLE")
    assert begun(state, force=True, policy=Policy())[1].passed == ("NOT_RETRYABLE",)
    mixed = (Step("a", "t"), Step("b", "t"))
    assert begun(after(*failed("a"), *failed("b", NEVER), FAILED, steps=mixed))[1].passed == ()


def test_what_completed_is_retried_with_force_from_its_last_stage() -> None:
    """T5, R5: or what is named; it is done anew, under a new key, and counts for nothing."""
    state = after(*BOTH, COMPLETED, policy=Policy(max_retries=0))
    begin, found = begun(state, force=True)
    assert begin.roots == begin.course.fresh == ("b",) and not begin.counted and not begin.reset_count
    assert found.passed == () and found.stage == "two" and found.kept == ("a",)
    assert begun(state, force=True, stale=["a"])[0].roots == ("a",)
    named, _ = begun(after(*TWICE), steps=["a", "b"], force=True)
    assert named.roots == ("a", "b") and named.course.fresh == ("a",)


def test_a_run_whose_process_died_is_retried_from_what_had_not_ended() -> None:
    """R1: what waits for its next try, or has not begun, is a root; what succeeded is kept."""
    backoff = (
        ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.TOOL, Rung.RETRY),
        ev.RetryScheduled("a", 2, 4, 2, 5.0, 900.0),
    )  # fmt: skip
    assert begun(after(*backoff))[0].roots == ("a", "b")
    assert begun(after(*did("a")))[0].roots == ("b",)
    assert begun(after(*did("a"), ev.StepStarted("b", 1, "t"), ev.StepFailed("b", 1, NO)))[0].roots == ("b",)


def test_files_that_cannot_be_kept_put_their_producers_back() -> None:
    """T3, E6: each once, with the reason; one that must not happen twice needs somebody's word."""
    damage = [FileDamage("a", "f", "cut"), FileDamage("a", "g", "gone"), FileDamage("nobody", "h", "gone")]
    begin, found = begun(after(*TWICE), damage=damage)
    assert begin.roots == ("b", "a") and begin.damaged == {"f": "cut", "g": "gone", "h": "gone"} == dict(found.damaged)
    assert [row["why"] for row in found.rerun] == ["f: cut", "no"]
    once = after(*did("a", effect=Effect.ONCE), *failed("b"), FAILED)
    with pytest.raises(Refusal) as refused:
        retry.retry(once, "ann", damage=damage)
    assert refused.value.code == "FILE_DAMAGED" and refused.value.hint
    forced, shown = begun(once, damage=damage, force=True)
    assert forced.roots == ("b", "a") and shown.once == ("a",)
    assert begun(after(*BOTH, COMPLETED), damage=damage[:1], mending=True)[0].roots == ("a",)


def test_steps_whose_tools_have_changed_are_done_again_with_force() -> None:
    """E5: without it they are named, and kept."""
    state = after(*TWICE)
    assert begun(state, stale=["a"])[0].stale == ("a",) and begun(state, stale=["a"])[0].roots == ("b",)
    forced, _ = begun(state, stale=["a"], force=True)
    assert forced.roots == ("a", "b") and forced.stale == () and forced.course.fresh == ("a",)
    known = after(*TWICE[:-1], ev.Resumed("ann", stale=("a",)), FAILED)
    assert begun(known, force=True)[0].roots == ("a", "b") and begun(known)[0].roots == ("b",)


def test_named_steps_take_along_what_must_run_before_them() -> None:
    """R1: upwards over needs that are not satisfied now."""
    steps = (Step("a", "t"), Step("b", "t", needs=(Need("a"),)), Step("c", "t", needs=(Need("b"),)))
    state = after(*failed("a"), FAILED, steps=steps)
    begin, _ = begun(state, steps=["c", "c"])
    assert begin.roots == ("c",) and begin.course.touched == ("c", "a")


def test_a_live_retry_is_an_act() -> None:
    """X7: of one step it names it; with force, what had succeeded is done anew."""
    state = after(*TWICE[:-1])
    assert retry.retry_live(state, ["b"], "ann") == [
        ev.Acted("retry", "ann", "b", course=Course(("b",), automatic=False))
    ]
    assert retry.retry_live(state, ["a", "b"], "ann", force=True) == [
        ev.Acted("retry", "ann", "", course=Course(("a", "b"), automatic=False, fresh=("a",)))
    ]


def test_a_doubt_anywhere_comes_before_a_retry() -> None:
    """T5: also of a step that the retry would not touch."""
    apart = (Step("a", "t"), Step("x", "t"))
    with pytest.raises(Refusal) as refused:
        retry.retry(after(*DOUBT, *failed("x"), FAILED, steps=apart), "ann")
    assert refused.value.code == "RUN_IN_DOUBT" and "a" in refused.value.message


def test_a_refusal_says_what_to_do_instead() -> None:
    """X7, T5: what completed is done again otherwise than what failed; stages are those that there are."""
    hints = []
    for told in (TWICE, (*BOTH, COMPLETED)):
        with pytest.raises(Refusal) as refused:
            actions.pause(after(*told), "ann")
        hints.append(refused.value.hint)
    assert all(hints) and hints[0] != hints[1] and "--force" in hints[1] and "--force" not in hints[0]
    with pytest.raises(Refusal) as unknown:
        retry.retry(after(*TWICE, steps=STEPS), "ann", stage="nothing like it")
    assert "one, two" in unknown.value.message and ", ," not in unknown.value.message
    assert not unknown.value.message.rstrip(".)").endswith(", ")


@pytest.mark.parametrize(("verifiable", "hint"), [(True, "rerail resume r"), (False, "rerail resolve r a")])
def test_a_doubt_that_can_be_looked_into_is_not_put_to_a_person(verifiable: bool, hint: str) -> None:
    """E3, T5: whoever answers `--rerun` before anybody has looked may make it happen twice."""
    started = ev.StepStarted("a", 1, "t", Effect.ONCE, verifiable=verifiable)
    state = after(started, ev.StepFailed("a", 1, LATE, lost=True))
    with pytest.raises(actions.Refusal) as refused:
        actions.refuse_doubt(state)
    assert hint in str(refused.value.hint)


def test_an_output_that_was_lost_is_not_supplied_while_it_is_being_made() -> None:
    """X7, E6: the step runs again for it; what that gives counts."""
    hole = (ev.StepStarted("a", 1, "t"), ev.StepSucceeded("a", 1, None, hole=True))
    course = Course(("a",), automatic=False, fresh=("a",))
    running = after(*hole, ev.Acted("retry", "ann", "a", course=course), ev.StepStarted("a", 2, "t"))
    with pytest.raises(Refusal) as refused:
        actions.resolve_succeeded(running, "a", "ann", 1, pack(1), blob=False)
    assert refused.value.code == "STEP_NOT_WAITING"


def test_a_named_step_may_be_retried_where_the_whole_run_waits_for_something_else() -> None:
    """X7: paused, or at a gate: whoever names the step says what is meant."""
    paused = after(*failed("a"), ev.Acted("pause", "ann"), ev.Waiting(()))
    gated = after(*did("a"), *failed("b"), ev.Waiting(()), steps=STEPS)
    for state, step, code in ((paused, "a", "RUN_PAUSED"), (gated, "b", "RUN_WAITS_CONFIRM")):
        assert begun(state, steps=[step])[0].roots == (step,)
        with pytest.raises(Refusal) as refused:
            retry.retry(state, "ann")
        assert refused.value.code == code and refused.value.hint


@pytest.mark.parametrize(
    ("act", "operation", "chain"),
    [
        (lambda s: actions.skip(s, "a", "ann"), "skip", ("b",)),
        (lambda s: actions.resolve_succeeded(s, "a", "ann", 1, pack(1), blob=False), "resolve", ("b",)),
        (lambda s: actions.repair(s, "a", {"tool": "u"}, TOOLS, "ann"), "repair", ("a", "b")),
    ],
)
def test_whatever_is_done_to_a_run_at_rest_opens_a_round_named_after_it(
    act: Callable[[State], list[Event]], operation: str, chain: tuple[str, ...]
) -> None:
    """X7, R4: with what it makes possible for its chain, and how the run had ended; in a live run nothing is opened."""
    broken = (*failed("a"), ev.StepSkipped("b", "SKIP_UPSTREAM_FAILED", "m"))
    (begin,) = (event for event in act(after(*broken, FAILED)) if isinstance(event, ev.RetryBegin))
    assert (begin.operation, begin.chain, begin.chain_size, begin.round) == (operation, chain, len(chain), 1)
    assert (begin.by, begin.automatic, begin.previous_status) == ("ann", False, "failed")
    assert not [event for event in act(after(*broken)) if isinstance(event, ev.RetryBegin)]


@pytest.mark.parametrize(
    ("wish", "near"),
    [
        (lambda s: retry.retry(s, "ann", stage="too"), "two"), (lambda s: actions.skip(s, "aa", "ann"), "a"),
        (lambda s: retry.retry(s, "ann", stage="nothing like it"), ""),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_answered_with_the_nearest(wish: Callable[[State], object], near: str) -> None:
    """X7, P5: where there is one; a wrong guess would be worse than none."""
    with pytest.raises(Refusal) as refused:
        wish(after(*did("a"), *failed("b"), FAILED))
    assert (repr(near) in refused.value.hint) if near else (refused.value.hint == "")
