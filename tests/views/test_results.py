"""Views of a state, and the corners of what people ask for: stages, verdicts, previews, offers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rerail.codes import Category
from rerail.i18n import retold, tell
from rerail.kernel import actions, retry
from rerail.kernel import events as ev
from rerail.kernel import stages as pipeline
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.decide import Note, decide
from rerail.kernel.events import Course, Error, Event, FileMade, Record
from rerail.kernel.failure_memory import learn, preferred
from rerail.kernel.fold import fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.preview import outlook
from rerail.kernel.retry import FileDamage
from rerail.kernel.state import State
from rerail.kernel.verdict import (
    done_summary,
    error_of,
    run_status,
    skip_message,
    status_of,
    summary,
    verdict,
)
from rerail.plan.model import Plan
from rerail.plan.reader import PlanUnreadable, canonical, read_plan, read_steps
from rerail.plan.references import BadReference, MissingPath, Names, compile_args, resolve
from rerail.plan.step import Effect, Need, Produced, Step, When, as_need, as_produced
from rerail.plan.tool_spec import ToolSpec
from rerail.recovery.disguised_errors import suspect
from rerail.values.json_values import pack
from rerail.values.redaction import Scrub
from rerail.views.attempts import tries
from rerail.views.chat_messages import ToolMessages
from rerail.views.live_run import Board, run_view
from rerail.views.narration import waited_for_one
from rerail.views.results import question_table, result

NO = Error("TOOL_FAILED", Category.TOOL, "no")
LATE = Error("TIMEOUT", Category.TRANSIENT, "late")
TOOLS = {name: ToolSpec(name) for name in ("t", "u")}
STAGES = (
    Step("a", "t", stage="extracting"), Step("g", "t", stage="retrieving", needs=(Need("a"),), confirm=True),
    Step("c", "t", stage="writing", needs=(Need("g"),)),
)  # fmt: skip


def records(*more: Event, steps: tuple[Step, ...], policy: Policy | None = None, **run: Any) -> list[Record]:
    """A history, a second each."""
    events: list[Event] = [ev.RunStarted(policy=policy or Policy(), **run), ev.PlanAccepted(Plan("o", steps)), *more]
    return [Record("r", n + 1, 100.0 + n, event) for n, event in enumerate(events)]


def after(*more: Event, steps: tuple[Step, ...] = STAGES, policy: Policy | None = None, **run: Any) -> State:
    """The state after these."""
    return fold("r", records(*more, steps=steps, policy=policy, **run))


def started(step: str, effect: Effect = Effect.REPEATABLE) -> ev.StepStarted:
    """A call of a step."""
    return ev.StepStarted(step, 1, "t", effect)


def failed(step: str, error: Error = NO) -> tuple[Event, ...]:
    """A step that failed for good."""
    return started(step), ev.StepFailed(step, 1, error), ev.Reflected(step, 1, error.category, Rung.FAIL)


DONE_A = (started("a"), ev.StepSucceeded("a", 1, 1, "d", files={"a.json": "x"}))
LATE_FOR_GOOD = Error("NO_KEY", Category.PERMANENT, "no key")
OVER = ev.Done("failed", False, False, False, summary="failed: c (no)")


# -- Stages --------------------------------------------------------------------------------------------------------


def test_a_pipeline_shows_its_stage() -> None:
    """T2: what people call its status, from the first step to its end."""
    gate = ev.Waiting(({"for": "confirm", "step": "g"},))
    assert pipeline.shown_status(after()) == "running"
    assert pipeline.shown_status(after(started("a"))) == "extracting"
    assert pipeline.shown_status(after(*DONE_A, gate)) == "awaiting_confirm"
    assert pipeline.shown_status(after(*DONE_A, ev.Acted("pause", "ann"), gate)) == "paused"
    lost = (started("a", Effect.ONCE), ev.StepFailed("a", 1, LATE, lost=True), ev.Waiting(()))
    assert pipeline.shown_status(after(*lost)) == "in_doubt"
    assert pipeline.shown_status(after(*DONE_A, OVER)) == "failed"
    assert pipeline.shown_status(after(steps=(Step("a", "t"),))) == "running"
    assert pipeline.shown_status(after(ev.Waiting(()))) == "waiting"
    assert pipeline.stages(after()) == ["extracting", "retrieving", "writing"]


@pytest.mark.parametrize(
    ("step", "shown"), [("a", "pending"), ("g", "awaiting_confirm"), ("c", "retrieving"), ("none", "pending")]
)
def test_a_retried_pipeline_shows_where_it_was_left(step: str, shown: str) -> None:
    """T12: until its first step starts again; a follow-up's parent was completed."""
    begin = ev.RetryBegin(1, "ann", (step,), (step,), 1, automatic=False)
    assert pipeline.shown_status(after(*DONE_A, OVER, begin)) == shown
    assert pipeline.shown_status(after(*DONE_A, OVER, begin, parent="p")) == "completed"
    again = ev.StepStarted("a", 2, "t")
    assert pipeline.shown_status(after(*DONE_A, OVER, begin, again)) == "extracting"


def test_files_that_a_retry_reads_and_that_a_run_ended_with() -> None:
    """T12, T6: of the stage where it goes on; and of the steps that nobody needs."""
    state = after(*DONE_A, inherited=(FileMade("from-parent.md", "y"),), home="p")
    assert pipeline.kept_files(state, ["g", "c"]) == ["from-parent.md", "a.json"]
    assert pipeline.kept_files(state, ["c"]) == ["from-parent.md"]
    alone = after(*DONE_A, steps=(Step("a", "t"),))
    assert pipeline.last_files(alone) == [("a.json", "x", "a")] and pipeline.last_files(state) == []


def test_the_snapshot_of_a_task() -> None:
    """T9: document 002's fields, and those of what follows it."""
    state = after(*DONE_A, *failed("g"), ev.Done("failed", False, False, False))
    view = pipeline.task_view(state)
    assert (view["status"], view["error"], view["failed_stage"]) == ("failed", "no", "retrieving")
    assert (view["feedback_status"], view["feedback_error"], view["feedback_retry_count"]) == (None, None, 0)
    later = after(*failed("a"), steps=(Step("a", "t"),))
    view = pipeline.task_view(after(*DONE_A, ev.Done("completed", True, True, False)), later)
    assert view["error"] is view["failed_stage"] is None
    assert (view["feedback_status"], view["feedback_error"]) == ("running", "no")
    waits = fold("r", [
        Record("r", 1, 1.0, ev.RunStarted()), Record("r", 2, 2.0, ev.PlanAccepted(Plan("o", STAGES, Plan("f", ())))),
    ])  # fmt: skip
    assert pipeline.task_view(waits)["feedback_status"] == "pending"
    assert pipeline.task_view(waits, after())["feedback_error"] is None


# -- Verdicts ------------------------------------------------------------------------------------------------------


def test_why_a_step_was_skipped_in_every_language() -> None:
    """X2, H9, T12: optional ones say after how many retries, those of people who."""
    optional = (Step("a", "t", critical=False), Step("b", "t", needs=(Need("a", When.FAILURE),)))
    twice = (
        started("a"), ev.StepFailed("a", 1, NO), ev.RetryScheduled("a", 2, 4, 2, 0.0, 0.0), ev.StepStarted("a", 2, "t"),
        ev.StepFailed("a", 2, NO), ev.StepSkipped("a", "SKIP_OPTIONAL", "english"),
    )  # fmt: skip
    state = after(*twice, steps=optional)
    assert skip_message(state, state.tracks["a"], "SKIP_OPTIONAL") == "english"
    chinese = skip_message(state, state.tracks["a"], "SKIP_OPTIONAL", "zh")
    assert "1" in chinese and "no" in chinese and "english" not in chinese
    untried = after(started("a"), ev.StepFailed("a", 1, NO), ev.StepSkipped("a", "SKIP_OPTIONAL", "e"), steps=optional)
    assert skip_message(untried, untried.tracks["a"], "SKIP_OPTIONAL", "zh") not in (chinese, "e")
    lost = (ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, NO, lost=True))
    doubt = after(*lost, ev.StepSkipped("a", "SKIP_OPTIONAL", "e"), steps=optional)
    said = skip_message(doubt, doubt.tracks["a"], "SKIP_OPTIONAL", "zh")
    assert said == retold(tell("skip.SKIP_OPTIONAL_DOUBT", reason=NO.told), "zh")
    wished = after(ev.StepSkipped("a", "SKIP_USER", "english", "ann"), steps=optional)
    assert "ann" in skip_message(wished, wished.tracks["a"], "SKIP_USER", "zh")
    needless = after(*DONE_A, steps=optional)
    assert "a" in skip_message(needless, needless.tracks["b"], "SKIP_CONDITION")
    cancelled = after(started("a"), ev.Cancelled("ann"), steps=optional)
    begun, never = (skip_message(cancelled, cancelled.tracks[name], "RUN_CANCELLED") for name in ("a", "b"))
    assert begun != never


def test_errors_of_steps_as_data() -> None:
    """X3: what has none has none."""
    state = after(*failed("a"))
    assert (error_of(state, state.tracks["a"], *status_of(state, state.tracks["a"])) or {})["message"] == "no"
    skipped = error_of(state, state.tracks["g"], *status_of(state, state.tracks["g"]))
    assert skipped is not None and skipped["code"] == "SKIP_UPSTREAM_FAILED" and skipped["category"] is None
    bare = after(started("a"), ev.Reflected("a", 1, Category.TOOL, Rung.FAIL))
    bare.tracks["a"].phase = state.tracks["a"].phase
    assert error_of(bare, bare.tracks["a"], *status_of(bare, bare.tracks["a"])) is None
    assert error_of(state, after(*DONE_A).tracks["a"], *status_of(state, after(*DONE_A).tracks["a"])) is None


def test_summaries_of_every_end() -> None:
    """V7: the sentence follows from the verdict, in the language of the reader where the state is still that one."""
    kept = after(*DONE_A, ev.Cancelled("ann"), steps=(Step("a", "t"),))
    assert summary(kept, verdict(kept)) == "1 of 1 step done before that, and kept"
    cut = ev.StepFailed("a", 1, LATE, lost=True)
    doubt = after(started("a", Effect.ONCE), cut, ev.Cancelled("ann"), steps=(Step("a", "t"),))
    assert summary(doubt, verdict(doubt)) == "no step was done before that: a (late); in doubt, answer with resolve: a"
    nothing = after(ev.StepSkipped("a", "SKIP_USER", by="ann"), ev.Cancelled("ann"), steps=(Step("a", "t"),))
    assert summary(nothing, verdict(nothing)) == "no step was done before that"
    running = after(started("a"))
    assert "0" in summary(running, verdict(running))
    rested = after(*failed("a", LATE_FOR_GOOD))
    done = ev.Done("failed", False, False, False, summary=summary(rested, verdict(rested)))
    at_rest = after(*failed("a", LATE_FOR_GOOD), done)
    assert done_summary(at_rest, done) == done.summary and done_summary(at_rest, done, "zh") != done.summary
    assert done_summary(rested, ev.Done("failed", False, False, False, summary="odd words"), "zh") == "odd words"
    forgone = after(ev.Replanned(2, Course(dropped=("c",)), "m"), *DONE_A, steps=(Step("a", "t"), Step("c", "t")))
    assert "c" in summary(forgone, verdict(forgone)) and verdict(forgone).degraded


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([ev.StepSucceeded("a", 2, 1, "d")], True),
        ([ev.StepFailed("a", 2, NO), ev.Recovered("a", 2, Rung.FALLBACK, "-", output=1, digest="d")], False),
        ([*failed("a"), ev.Acted("resolve", "ann", "a", outcome="succeeded", output=1, digest="d")], False),
    ],
    ids=["called", "fallback", "person"],
)
def test_a_tool_that_a_mind_chose_is_told_of_if_it_did_the_step(ends: list[Event], said: bool) -> None:
    """V7, H8: not if it failed as well, and a value of the plan or of a person stands in its place."""
    chosen = ev.Recovered("a", 1, Rung.ALTERNATIVE, "-", tool="u", course=Course(("a",)), by="m")
    state = after(*failed("a"), chosen, ev.StepStarted("a", 2, "u"), *ends, steps=(Step("a", "t"),))
    found = verdict(state)
    assert found.success and ("a (t → u)" in summary(state, found)) is said


def test_a_gate_tells_the_call_that_waits() -> None:
    """X7, X10: the arguments as they would be passed, wherever they are kept; of an earlier version's, the tool."""
    steps = (Step("a", "t"), Step("g", "t", {"x": "${a.n}"}, confirm=True))
    gate = ev.Waiting(({"for": "confirm", "step": "g"},))
    done = (started("a"), ev.StepSucceeded("a", 1, {"n": 1}, "d"))
    [item] = result(after(*done, gate, steps=steps), {"a": {"n": 1}}, 200.0).waiting_on
    assert item["args"] is None and item["digest"] is None and item["tool"] == "t"
    plain, large = ev.GateOpened("g", 0, "u", "d1", {"x": 2}), ev.GateOpened("g", 0, "u", "d2", args_blob="big")
    for event, shown in ((plain, {"x": 2}), (large, {"x": 3})):
        [item] = result(after(*done, event, gate, steps=steps), {}, 200.0, args={"big": {"x": 3}}).waiting_on
        assert (item["tool"], item["args"], item["digest"]) == ("u", shown, event.digest) and "before" not in item


def test_a_gate_names_the_step_whose_output_is_missing() -> None:
    """X7, H9: the one that was skipped, beside or above; not the one between, which has an output."""
    steps = (
        Step("o", "t", critical=False), Step("b", "t", needs=(Need("o"),)), Step("f", "t"),
        Step("g", "t", needs=(Need("b"), Need("f")), confirm=True), Step("l", "t"),
        Step("h", "t", needs=(Need("l"), Need("o")), confirm=True),
    )  # fmt: skip
    stood_in = ev.StepStarted("f", 1, "t", Effect.REPEATABLE, rung=Rung.FALLBACK)
    done = (started("b"), ev.StepSucceeded("b", 1, 1, "d"), stood_in, ev.StepSucceeded("f", 1, 1, "d"))
    lost = (started("l"), ev.StepSucceeded("l", 1, hole=True))
    gates = ev.Waiting(({"for": "confirm", "step": "g"}, {"for": "confirm", "step": "h"}))
    state = after(ev.StepSkipped("o", "SKIP_OPTIONAL"), *done, *lost, gates, steps=steps)
    told = {item["step"]: item for item in result(state, {"b": 1, "f": 1}, 200.0).waiting_on}
    assert told["g"]["made_from_degraded"] == {"f": "fallback", "o": "hole"}
    assert told["h"]["made_from_degraded"] == {"l": "hole", "o": "hole"}
    assert "without the output of o" in waited_for_one(told["g"]) and " of b)" not in waited_for_one(told["g"])


def test_a_wrong_gate_is_told_which_ones_wait() -> None:
    """X7: never a step that waits for nothing, however similar its name is."""
    steps = (
        Step("check1", "t"),
        Step("send", "t", confirm=True),
        Step("post", "t", needs=(Need("send"),), confirm=True),
    )
    at_gate = after(started("check1"), ev.StepSucceeded("check1", 1, 1, "d"), steps=steps)
    for step, code, hint in (
        ("check2", "STEP_UNKNOWN", "what waits for a confirmation: send"),
        ("sned", "STEP_UNKNOWN", "did you mean 'send'?"),
        ("check1", "STEP_NOT_WAITING", "what waits for a confirmation: send"),
    ):  # fmt: skip
        with pytest.raises(Refusal) as found:
            actions.confirm(at_gate, step, "ann")
        assert (found.value.code, found.value.hint) == (code, hint)
    assert actions.gate(at_gate, "post").id == "post", "it may be confirmed ahead of time"
    with pytest.raises(Refusal) as found:
        actions.confirm(after(steps=(Step("check1", "t"),)), "check2", "ann")
    assert found.value.hint == "did you mean 'check1'?"


def test_why_an_output_is_missing_is_told_as_it_was() -> None:
    """H9, V8: a step whose effect was found was not skipped; what stands below, however far, says so too."""
    steps = (
        Step("c", "t"), Step("d", "t", needs=(Need("c"),)), Step("e", "t", needs=(Need("d"),)),
        Step("o", "t", critical=False), Step("p", "t", needs=(Need("o"),)),
    )  # fmt: skip
    found = (
        started("c", Effect.ONCE), ev.StepFailed("c", 1, LATE, lost=True), ev.StepVerified("c", 1, "there", hole=True),
    )  # fmt: skip
    done = [event for name in "dep" for event in (started(name), ev.StepSucceeded(name, 1, 1, "x"))]
    state = after(*found, ev.StepSkipped("o", "SKIP_OPTIONAL"), *done, steps=steps)
    told = {name: row.degraded for name, row in result(state, {}, 200.0).steps.items()}
    lost = "made without the output of step 'c': its answer was lost, only its effect was found"
    assert told == {
        "c": None, "d": lost, "e": lost, "o": None, "p": "made without the output of step 'o', which was skipped",
    }  # fmt: skip
    assert "跳过" not in str(result(state, {}, 200.0, "zh").steps["e"].degraded)


@pytest.mark.parametrize(
    ("kinds", "less", "zh"),
    [
        ("d", "1 of 2 steps degraded", "2 步中 1 步降级"),
        ("k", "1 of 2 steps skipped", "2 步中 1 步跳过"),
        ("s", "1 of 2 steps out of date", "2 步中 1 步结果可能过时"),
        ("dk", "1 step degraded and 1 skipped of 3", "3 步中 1 步降级、1 步跳过"),
        ("ds", "1 step degraded and 1 out of date of 3", "3 步中 1 步降级、1 步结果可能过时"),
        ("ks", "1 step skipped and 1 out of date of 3", "3 步中 1 步跳过、1 步结果可能过时"),
        ("dks", "1 step degraded, 1 skipped and 1 out of date of 4", "4 步中 1 步降级、1 步跳过、1 步结果可能过时"),
    ],
)
def test_a_summary_says_what_is_missing_and_nothing_of_what_is_not(kinds: str, less: str, zh: str) -> None:
    """V7, T12: of what there is none of, no word."""
    ends: dict[str, tuple[Event, ...]] = {
        "a": (started("a"), ev.StepSucceeded("a", 1, 1, "x")),
        "d": (ev.StepStarted("d", 1, "t", rung=Rung.FALLBACK), ev.StepSucceeded("d", 1, 1, "x")),
        "k": (ev.StepSkipped("k", "SKIP_USER", by="ann"),),
        "s": (started("s"), ev.StepSucceeded("s", 1, 1, "x"), ev.Resumed("ann", stale=("s",))),
    }
    state = after(
        *(event for name in "a" + kinds for event in ends[name]), steps=tuple(Step(n, "t") for n in "a" + kinds)
    )
    said = summary(state, verdict(state))
    assert said == f"done, but not whole: {less}"
    assert retold(summary(state, verdict(state)), "zh") == f"已完成但不完整：{zh}"


def test_which_skips_leave_a_hole() -> None:
    """V1, H9: an optional step and one that a person wanted to do without; not one that was only for a failure."""
    steps = (Step("a", "t"), Step("o", "t", critical=False), Step("f", "t", needs=(Need("a", When.FAILURE),)))
    done_o = (started("o"), ev.StepSucceeded("o", 1, 1, "o"))
    whole = after(*DONE_A, *done_o, ev.StepSkipped("f", "SKIP_CONDITION"), steps=steps)
    assert verdict(whole).success and not verdict(whole).degraded
    assert status_of(whole, whole.tracks["a"]) == ("succeeded", "")
    assert status_of(whole, whole.tracks["f"]) == ("skipped", "SKIP_CONDITION")
    for code in ("SKIP_OPTIONAL", "SKIP_USER"):
        poor = after(*DONE_A, ev.StepSkipped("o", code), ev.StepSkipped("f", "SKIP_CONDITION"), steps=steps)
        assert verdict(poor).success and verdict(poor).degraded


def test_a_step_that_waits_for_its_next_try_has_its_error() -> None:
    """X3: one that waits for a person's word has none."""
    waits = after(started("a"), ev.StepFailed("a", 1, NO), ev.RetryScheduled("a", 2, 4, 2, 900.0, 9999.0))
    status, code = status_of(waits, waits.tracks["a"])
    assert (status, code) == ("waiting", "TOOL_FAILED")
    assert (error_of(waits, waits.tracks["a"], status, code) or {})["message"] == "no"
    gate = after(*DONE_A)
    assert status_of(gate, gate.tracks["g"]) == ("waiting", "confirm")
    assert error_of(gate, gate.tracks["g"], *status_of(gate, gate.tracks["g"])) is None


def test_files_that_a_person_wrote_are_told_apart() -> None:
    """T2: what somebody gave another content is remembered as theirs, each file once."""
    edited = ev.Acted("confirm", "ann", "g", files=(FileMade("a.json", "new", "a", "draft"),))
    state = after(*DONE_A, edited, edited)
    made = state.tracks["a"].result
    assert made is not None and made.files == {"a.json": "new"} and made.edited == ("a.json",)
    assert state.drafts["a.json"].digest == "new"
    assert retry.edited_files(state, ["a"]) == ("a.json",) and retry.edited_files(state, ["g"]) == ()


def test_what_is_seen_of_a_run_has_all_its_parts() -> None:
    """I4: the page and other programs rely on each of them."""
    view = run_view(Board.of("r", records(*DONE_A, steps=STAGES)), 200.0)
    assert (view["created_at"], view["updated_at"], view["at"], view["seq"]) == (100.0, 103.0, 200.0, 4)
    assert view["parent"] is None and view["ended_at"] is None
    ended = run_view(Board.of("r", records(*DONE_A, OVER, steps=STAGES, parent="p")), 200.0)
    assert (ended["parent"], ended["ended_at"]) == ("p", 104.0)
    assert view["counts"]["succeeded"] == 1 and view["status"] == "running" and view["order"] == ["a", "g", "c"]


# -- What people ask for -------------------------------------------------------------------------------------------


def refused(code: str, *words: Any, **more: Any) -> None:
    """A wish that is refused with this code."""
    wish, *rest = words
    with pytest.raises(Refusal) as found:
        wish(*rest, **more)
    assert found.value.code == code


def test_wishes_that_do_not_fit() -> None:
    """X7, T5: each refused with its code."""
    state = after()
    refused("RUN_LIVE", actions.resume, state, "ann")
    refused("STAGE_UNKNOWN", retry.retry, after(*failed("a"), OVER), "ann", stage="writting")
    refused("RUN_LIVE", retry.retry_live, after(ev.Stopped("BREAKER_OPEN")), ["a"], "ann")
    doubt = after(started("a", Effect.ONCE), ev.StepFailed("a", 1, LATE, lost=True))
    refused("RUN_IN_DOUBT", actions.repair, doubt, "a", {"tool": "u"}, TOOLS, "ann")
    done = after(*DONE_A, ev.Done("completed", True, True, False), steps=(Step("a", "t"),))
    refused("NOTHING_TO_RETRY", retry.retry, done, "ann", force=True)
    for changes in (
        {"args": [1]}, {"args": {"x": 1}, "remove": "x"}, {"remove": ["gone"]}, {"tool": "t"}, {"tool": "nobody"},
    ):  # fmt: skip
        with pytest.raises(Faulty) as found:
            actions.repair(after(*failed("a"), OVER), "a", changes, TOOLS, "ann")
        codes = {fault.code for fault in found.value.faults}
        assert codes <= {"BAD_VALUE", "UNKNOWN_TOOL"} and codes


def test_a_completed_pipeline_is_retried_from_its_last_stage() -> None:
    """T5: with force and nothing named, if nothing is degraded or skipped."""
    steps = (Step("a", "t", stage="x"), Step("b", "t", stage="y"))
    both = (*DONE_A, started("b"), ev.StepSucceeded("b", 1, 1, "d"), ev.Done("completed", True, True, False))
    assert retry.retry(after(*both, steps=steps), "ann", force=True).roots == ("b",)


def test_a_cancelled_run_whose_steps_are_all_done_only_ends() -> None:
    """T5: there is nothing to call, and that can be said."""
    state = after(*DONE_A, ev.Cancelled("ann"), ev.Done("cancelled", False, False, False), steps=(Step("a", "t"),))
    assert retry.retry(state, "ann").roots == ()


def test_a_spoilt_file_takes_its_step_along_once() -> None:
    """T3: not twice, not if it runs anyway, and not for a step that the plan no longer has."""
    state = after(*DONE_A, *failed("g"), OVER)
    damage = [FileDamage(step, path, "cut") for path, step in (("a", "a"), ("b", "a"), ("g", "g"), ("x", "gone"))]
    assert retry.retry(state, "ann", damage=damage).roots == ("g", "a")
    once = after(
        started("a", Effect.ONCE), ev.StepSucceeded("a", 1, 1, "d", files={"f": "x"}), *failed("g"), OVER,
    )  # fmt: skip
    refused("FILE_DAMAGED", retry.retry, once, "ann", damage=[FileDamage("a", "f", "cut")])


def test_what_a_wish_leads_to_is_told_step_by_step() -> None:
    """R7: an effect that stands is kept, whatever becomes of its inputs; a gate will ask again."""
    steps = (
        Step("a", "t"), Step("o", "u", needs=(Need("a"),)), Step("g", "t", needs=(Need("a"),), confirm=True),
    )  # fmt: skip
    sent = (ev.StepStarted("o", 1, "u", Effect.ONCE), ev.StepSucceeded("o", 1, 1, "e"))
    state = after(*DONE_A, *sent, ev.Acted("confirm", "ann", "g"), started("g"), ev.StepSucceeded("g", 1, 1, "g"),
                  ev.Done("completed", True, True, False), steps=steps)  # fmt: skip
    events = actions.resolve_succeeded(
        after(*failed("a"), OVER, steps=steps), "a", "ann", 2, pack(2), blob=False
    )  # fmt: skip
    begin = ev.RetryBegin(1, "ann", (), (), 0, automatic=False, course=Course(below=("a",)))
    found = outlook(state, TOOLS, "a", [begin], 300.0)
    assert found.kept[:1] == ("a",) and events and found.leads_to
    assert outlook(after(*DONE_A, steps=steps), TOOLS, "nobody", [], 300.0).roots == ()


# -- Watching ------------------------------------------------------------------------------------------------------


def test_a_board_survives_what_it_has_not_seen() -> None:
    """I4: ends of calls whose beginning is not there, answers to doubts that are none, looks that cannot tell."""
    steps = (Step("a", "t"),)
    board = Board.of("r", records(ev.StepFailed("a", 3, NO), ev.StepVerified("a", 1, "unknown"), steps=steps))
    assert run_view(board, 200.0)["steps"]["a"]["spans"] == []
    lost = (started("a", Effect.ONCE), ev.StepFailed("a", 1, LATE, lost=True))
    for effect, outcome in (("there", "succeeded"), ("absent", "failed")):
        board = Board.of("r", records(*lost, ev.StepVerified("a", 1, effect), steps=steps))
        [span] = run_view(board, 200.0)["steps"]["a"]["spans"]
        assert span["outcome"] == outcome and span["to"] == 103.0
    cancelled = ev.StepFailed("a", 1, Error("RUN_CANCELLED", Category.TRANSIENT, "c"))
    [span] = run_view(Board.of("r", records(started("a"), cancelled, steps=steps)), 200.0)["steps"]["a"]["spans"]
    assert span["outcome"] == "cancelled"
    again = (started("a"), ev.StepFailed("a", 1, NO), ev.StepStarted("a", 2, "t"), ev.StepFailed("a", 1, NO))
    spans = run_view(Board.of("r", records(*again, steps=steps)), 200.0)["steps"]["a"]["spans"]
    assert [one["outcome"] for one in spans] == ["failed", "running"]


def test_tries_tell_what_was_logged_verified_and_decided() -> None:
    """I4: log lines belong to their attempt; of large arguments those that are at hand; a doubt that was resolved."""
    large = ev.StepStarted("a", 1, "t", Effect.ONCE, args_blob="big")
    history = records(
        ev.StepSucceeded("a", 1), ev.StepFailed("a", 1, NO), large, ev.StepProgress("a", 1, "one", log=True),
        ev.StepProgress("a", 1, "how far"), ev.StepProgress("a", 9, "late", log=True),
        ev.StepFailed("a", 1, LATE, lost=True), ev.StepVerified("a", 1, "unknown", reason="no answer"),
        ev.Acted("resolve", "ann", "a", outcome="succeeded"), ev.StepFailed("a", 7, NO), steps=(Step("a", "t"),),
    )  # fmt: skip
    state = fold("r", history)
    [one] = tries(history, state, state.tracks["a"], {"big": {"x": 1}})
    assert one["args"] == {"x": 1} and [line["text"] for line in one["logs"]] == ["one"]
    assert one["verified"] == {"effect": "unknown", "reason": "no answer"} and one["outcome"] == "succeeded"
    no = records(
        started("a", Effect.ONCE), ev.StepFailed("a", 1, LATE, lost=True),
        ev.Acted("resolve", "ann", "a", outcome="failed"),
        ev.StepFailed("a", 1, Error("RESOLVED_FAILED", Category.PERMANENT, "ann says no"), called=False),
        steps=(Step("a", "t"),),
    )  # fmt: skip
    state = fold("r", no)
    [one] = tries(no, state, state.tracks["a"], {})
    assert one["outcome"] == "failed" and one["error"]["code"] == "RESOLVED_FAILED"


def test_messages_of_steps_that_are_gone_are_completed() -> None:
    """I3: exactly one end for each beginning, also for a step that a new plan leaves out."""
    messages = ToolMessages("r")
    told = [
        message
        for record in records(
            started("a"), ev.StepProgress("a", 1, "half", 0.5), ev.Replanned(2, Course(dropped=("a",)), "m"),
            steps=(Step("a", "t"), Step("b", "t")),
        )
        for message in messages.feed(record)
    ]  # fmt: skip
    assert [message.name for message in told] == [
        "tool:message:start", "tool:message:update", "tool:message:complete",
    ]  # fmt: skip
    assert told[-1].payload["status"] == "cancelled" and messages.seq == 5
    assert ToolMessages("r").feed(Record("r", 1, 1.0, ev.StepProgress("a", 1, "early"))) == []


# -- Small things --------------------------------------------------------------------------------------------------


def test_what_worked_most_often_goes_first() -> None:
    """H10: of two rungs that mended the same failure, the one that did it more often."""

    def mended(rung: Rung) -> list[Record]:
        events = (started("a"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.TOOL, rung),
                  ev.StepSucceeded("a", 2), ev.StepSucceeded("a", 3),
                  ev.Reflected("x", 1, Category.TOOL, rung))  # fmt: skip
        return [Record("r", n, float(n), event) for n, event in enumerate(events)]

    from collections import Counter

    lessons: Any = Counter()
    for rung in (Rung.RETRY, Rung.ALTERNATIVE, Rung.ALTERNATIVE):
        learn(mended(rung), lessons)
    assert list(preferred(lessons).values()) == ["alternative_tool"] and sorted(lessons.values()) == [1, 2]


def test_steps_as_people_write_them_in_python() -> None:
    """P1: words for alternatives, files, needs and checks become what they stand for."""
    step = Step(
        "a",
        "t",
        alternatives="u",
        produces=["f.md", {"file": "g.json"}, Produced("h")],  # type: ignore[arg-type]
        fallback={"value": 1},
        trust_output={"ignore": ["error"]},
        needs=("b", {"step": "c", "when": "any"}),
    )  # type: ignore[arg-type]
    assert step.alternatives == ("u",) and [file.path for file in step.produces] == ["f.md", "g.json", "h"]
    assert step.fallback is not None and step.fallback.value == 1 and step.needs[1].when is When.DONE
    assert as_need(Need("x")) == Need("x") and as_produced(Produced("x")) == Produced("x")
    assert Step("a", "t", alternatives=["u", "v"]).alternatives == ("u", "v")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["${a[0]", "${a.b", '${a["b"]', "${a[0].b"])
def test_a_reference_that_does_not_end_is_none(text: str) -> None:
    """P4: told as the bad reference that it is."""
    with pytest.raises(BadReference):
        compile_args({"x": text}, Names({"a": 1}, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "words"),
    [({}, "nothing"), ([1, 2], "2"), (None, "null"), (3, "int"), ({f"k{n}": 1 for n in range(9)}, "k7")],
)
def test_a_path_that_is_not_there_says_what_is(output: Any, words: str) -> None:
    """P4: in a few words, whatever it is."""
    with pytest.raises(MissingPath) as found:
        resolve(compile_args({"x": "${a.b.c}"}, Names({"a": 1}, 1)), {"a": {"b": output}}.get)  # type: ignore[arg-type]
    assert words in found.value.there


def test_long_names_are_cut_where_a_path_is_missing() -> None:
    """P4: forty signs of each are enough to know it."""
    with pytest.raises(MissingPath) as found:
        resolve(compile_args({"x": "${a.b}"}, Names({"a": 1}, 1)), {"a": {"n" * 50: 1}}.get)  # type: ignore[arg-type]
    assert found.value.there == "n" * 40


def test_secrets_are_taken_out_of_encoded_data() -> None:
    """SECURITY: what is shown of a scrub is how much it knows, and nothing else."""
    scrub = Scrub(["s3cr3t-value"])
    assert scrub.data(b'{"a":["x s3cr3t-value y"]}') == b'{"a":["x *** y"]}' and "s3cr3t" not in repr(scrub)


@pytest.mark.parametrize(("value", "seems"), [((), False), ((1,), True), (object(), True), (b"x", True), (0.0, False)])
def test_odd_members_are_looked_at_too(value: Any, seems: bool) -> None:
    """X9: whatever a tool puts there."""
    assert (suspect({"error": value}) is not None) is seems


def test_plans_that_cannot_be_read_at_all() -> None:
    """P5: no mapping, no steps, steps that are none; all others are faults of the plan."""
    for odd in (3, "x", {"objective": "o"}, {"steps": 3}, {"steps": "abc"}):
        with pytest.raises(PlanUnreadable):
            read_plan(odd)
    odd_plan = read_plan({"objective": 3, "steps": {"a": {"tool": "t"}, "b": 4}, "follow_up": 5, "mcp": 5})
    assert odd_plan.objective == "3" and [step.id for step in odd_plan.steps] == ["a"] and len(odd_plan.faults) == 4
    assert read_plan([{"tool": "t"}]).steps[0].id == "0" and read_plan({"steps": [], "mcp": {"s": {}}}).mcp == {"s": {}}
    faults: list[Any] = []
    given = Step("z", "t")
    assert read_steps([given, {"tool": "t"}], faults, known=["k"])[0] is given and not faults
    assert canonical({"aiName": "t", "tool": "u"}) == {"aiName": "t", "tool": "u"}
    assert canonical({"aiName": "t"}) == {"tool": "t"}


def test_a_tool_as_data() -> None:
    """I7: what lists of tools show."""
    assert ToolSpec("t", provider="p").to_dict("tools.py")["source"] == "tools.py"
    assert run_status(after()) == "running"


def test_an_effect_that_stands_is_kept_whatever_becomes_of_its_inputs() -> None:
    """R3, R7: a lost output is supplied; what was made from it runs again, and what must not happen twice does not."""
    steps = (Step("a", "t"), Step("b", "t", needs=(Need("a"),)), Step("o", "u", needs=(Need("b"),)))
    state = after(
        started("a"), ev.StepSucceeded("a", 1, hole=True), started("b"), ev.StepSucceeded("b", 1, 1, "b"),
        ev.StepStarted("o", 1, "u", Effect.ONCE), ev.StepSucceeded("o", 1, 1, "o"), steps=steps,
    )  # fmt: skip
    events = actions.resolve_succeeded(state, "a", "ann", 2, pack(2), blob=False)
    found = outlook(state, TOOLS, "a", events, 300.0)
    assert [row["step"] for row in found.rerun] == ["b"] and "o" in found.kept and found.once == ()


def test_a_plan_that_stood_in_for_another_says_so() -> None:
    """P7, V7: the verdict is degraded, with the reason."""
    accepted = ev.PlanAccepted(Plan("o", (Step("a", "t"),)), fallback="the model said nothing")
    events = (ev.RunStarted(), accepted, started("a"), ev.StepSucceeded("a", 1, 1, "d"))
    state = fold("r", [Record("r", n + 1, 1.0 + n, event) for n, event in enumerate(events)])
    assert "the model said nothing" in summary(state, verdict(state)) and verdict(state).degraded


def test_a_thought_before_any_call_is_no_try() -> None:
    """I4: a step that failed before its call was thought about, too."""
    history = records(
        ev.Reflected("a", 0, Category.DEPENDENCY, Rung.FAIL), ev.StepVerified("a", 1, "absent"), steps=(Step("a", "t"),)
    )
    state = fold("r", history)
    assert tries(history, state, state.tracks["a"], {}) == []


def test_a_yes_or_no_is_no_slip() -> None:
    """H6: of what a step before gave, only texts and numbers can be meant."""
    steps = (Step("a", "t"), Step("b", "t", {"id": True, "n": 1.5}, (Need("a"),), effect=Effect.READ))
    state = after(
        started("a"), ev.StepSucceeded("a", 1, {"id": "10002", "ok": True}, "d"), started("b"),
        ev.StepFailed("b", 1, Error("NOT_FOUND", Category.PARAMETER, "no such id")), steps=steps,
    )  # fmt: skip
    [note] = decide(state, TOOLS, state.at)
    assert isinstance(note, Note) and isinstance(note.events[0], ev.Reflected) and note.events[0].suggestion is None


def test_the_table_that_minds_see_has_one_row_for_each_step() -> None:
    """V3: always whole; codes where there is one, errors where there still is one."""
    rows = {row["id"]: row for row in question_table(after(*failed("a")))}
    assert rows["a"] == {
        "id": "a", "tool": "t", "status": "failed", "code": "TOOL_FAILED", "attempts": 1, "needs": [], "error": "no",
    }  # fmt: skip
    assert (rows["g"]["status"], rows["g"]["code"], rows["g"]["needs"]) == ("skipped", "SKIP_UPSTREAM_FAILED", ["a"])
    well = {row["id"]: row for row in question_table(after(*DONE_A))}
    assert (well["a"]["code"], well["a"]["error"], well["g"]["code"]) == (None, None, "confirm")


def test_a_pipeline_that_waits_for_two_things_shows_the_gate() -> None:
    """T2: a doubt alone is shown as one; beside a gate it is the gate that people are asked about."""
    steps = (Step("d", "t", stage="one"), Step("g", "t", stage="two", confirm=True))
    lost = (started("d", Effect.ONCE), ev.StepFailed("d", 1, LATE, lost=True), ev.Waiting(()))
    assert pipeline.shown_status(after(*lost, steps=steps)) == "awaiting_confirm"
    assert pipeline.shown_status(after(*lost, steps=steps[:1])) == "in_doubt"


def test_files_that_are_kept_are_those_that_the_stage_reads() -> None:
    """T12: of the steps done again in that stage; what a later stage reads, or a step that is kept, is not told of."""
    steps = (
        Step("a", "t", stage="one"), Step("b", "t", stage="one"), Step("k", "t", stage="two", needs=(Need("b"),)),
        Step("c", "t", stage="two", needs=(Need("a"),)), Step("d", "t", stage="three", needs=(Need("b"), Need("c"))),
    )  # fmt: skip
    done = tuple(
        event
        for name in "abk"
        for event in (started(name), ev.StepSucceeded(name, 1, 1, name, files={f"{name}.json": "x"}))
    )
    state = after(*done, *failed("c"), steps=steps)
    assert pipeline.kept_files(state, ["c", "d"]) == ["a.json"]
    assert pipeline.kept_files(state, ["d"]) == ["b.json"]


def test_a_message_is_titled_by_the_step_where_it_has_no_title() -> None:
    """I3: every field of a start, as the protocol names it."""
    for title, shown in (("the first", "the first"), ("", "a")):
        messages = ToolMessages("r")
        found = [
            message for record in records(started("a"), steps=(Step("a", "t", title=title, stage="one"),))
            for message in messages.feed(record)
        ]  # fmt: skip
        payload = {
            "id": "task_a", "seq": 3, "runId": "r", "role": "assistant", "kind": "tool", "status": "in_progress",
            "toolName": "t", "title": shown, "stage": "one", "stepId": "a",
        }  # fmt: skip
        assert found == [("tool:message:start", payload)]


def test_a_tool_as_plain_data() -> None:
    """I7: every member, under its name."""
    spec = ToolSpec("t", "does it", effect=Effect.ONCE, timeout=5.0, alternatives=("u",), provider="p", verifiable=True)
    assert spec.to_dict("tools.py") == {
        "name": "t", "description": "does it", "effect": "once", "declared": True, "timeout": 5.0,
        "alternatives": ["u"], "provider": "p", "verifiable": True, "schema": True, "source": "tools.py",
    }  # fmt: skip
    assert ToolSpec("t").to_dict()["provider"] is ToolSpec("t").to_dict()["source"] is None


def test_of_two_rungs_that_worked_equally_often_the_first_by_name_is_taken() -> None:
    """H10: so that it is the same one each time; one that worked more often goes before."""
    lessons = Counter({("k", "retry"): 2, ("k", "alternative_tool"): 2, ("other", "retry"): 1})
    assert preferred(lessons) == {"k": "alternative_tool", "other": "retry"}
    assert preferred(lessons + Counter({("k", "retry"): 1}))["k"] == "retry"
