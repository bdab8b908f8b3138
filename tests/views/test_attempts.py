"""What other programs read of a run, name by name: the page, HTTP and `--json` (I4, I7, R7, V2)."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.events import Course, Error, Event, Record
from rerail.kernel.fold import fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.retry import Preview, retry
from rerail.kernel.state import State
from rerail.kernel.verdict import round_statistics, statistics, verdict
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Need, Step, When
from rerail.views.attempts import after as steps_after
from rerail.views.attempts import step_detail, tries
from rerail.views.live_run import Board, Changes, run_actions, run_view, step_actions

NO = Error("TOOL_FAILED", Category.TOOL, "no")
LATE = Error("TIMEOUT", Category.TRANSIENT, "late")
REFUSED = Error("CONFIRM_REFUSED", Category.PERMANENT, "refused")
STEPS = (
    Step("a", "t", title="first", stage="reading"),
    Step("b", "u", {"x": "${a.n}"}, stage="writing", critical=False),
    Step("c", "v", needs=(Need("a", When.DONE),), confirm="sure?", effect=Effect.ONCE),
    Step("d", "t", needs=(Need("c"),)),
)


def records(*more: Event, steps: tuple[Step, ...] = STEPS, policy: Policy | None = None) -> list[Record]:
    """A history, a second each."""
    events: list[Event] = [
        ev.RunStarted("goal", policy=policy or Policy()),
        ev.PlanAccepted(Plan("goal", steps)),
        *more,
    ]
    return [Record("r", n + 1, 100.0 + n, event) for n, event in enumerate(events)]


def after(*more: Event, steps: tuple[Step, ...] = STEPS) -> State:
    """The state after these."""
    return fold("r", records(*more, steps=steps))


BEGUN: tuple[Event, ...] = (
    ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO, elapsed=0.5, tokens=3, cost=0.25),
    ev.Reflected("a", 1, Category.TOOL, Rung.RETRY, root_cause="tired", confidence=0.5, suggestion="wait"),
    ev.RetryScheduled("a", 2, 4, 2, 1.0, 106.0), ev.StepStarted("a", 2, "t", args={"k": 1}),
    ev.StepSucceeded("a", 2, {"n": 1}, "d", 7, elapsed=0.75, files={"a.json": "x"}, tokens=4, cost=0.5),
    ev.StepStarted("b", 1, "u"),
)  # fmt: skip
GATE = ev.Waiting(({"for": "confirm", "step": "c"},))
ENDED: tuple[Event, ...] = (
    *BEGUN, ev.StepFailed("b", 1, NO, elapsed=0.125), ev.Reflected("b", 1, Category.TOOL, Rung.FAIL),
    ev.Acted("refuse", "ann", "c"), ev.StepFailed("c", 0, REFUSED, called=False),
    ev.Reflected("c", 0, Category.PERMANENT, Rung.FAIL), ev.StepSkipped("d", "SKIP_UPSTREAM_FAILED", "m"),
    ev.Done("failed", False, False, False),
)  # fmt: skip
SPANS = [
    {"attempt": 1, "tool": "t", "from": 102.0, "to": 103.0, "outcome": "failed", "code": "TOOL_FAILED"},
    {"attempt": 2, "tool": "t", "from": 106.0, "to": 107.0, "outcome": "succeeded", "code": None},
]
A = {
    "id": "a", "title": "first", "tool": "t", "stage": "reading", "status": "succeeded", "code": None, "needs": [],
    "soft": [], "optional": False, "confirm": False, "effect": "repeatable", "attempts": 2, "retries_left": 2,
    "error": None, "degraded": None, "stale": None, "unverified": False, "disputed": False, "waiting_for": None,
    "started_at": 106.0, "ended_at": 107.0, "elapsed": 0.75, "next_try_at": None, "rung": "retry",
    "files": ["a.json"], "spans": SPANS, "waits": [{"from": 105.0, "until": 106.0, "why": "backoff"}], "actions": [],
}  # fmt: skip
PLAIN = {
    "title": "", "stage": "", "code": None, "soft": [], "optional": False, "confirm": False, "attempts": 0,
    "retries_left": 3, "error": None, "degraded": None, "stale": None, "unverified": False, "disputed": False,
    "waiting_for": None, "started_at": None, "ended_at": None, "elapsed": 0.0, "next_try_at": None, "rung": None,
    "files": [], "spans": [], "waits": [],
}  # fmt: skip
B = {
    **PLAIN, "id": "b", "tool": "u", "stage": "writing", "status": "running", "needs": ["a"], "optional": True,
    "effect": "repeatable", "attempts": 1, "started_at": 108.0, "actions": ["skip"],
    "spans": [{"attempt": 1, "tool": "u", "from": 108.0, "to": None, "outcome": "running", "code": None}],
}  # fmt: skip
C = {
    **PLAIN, "id": "c", "tool": "v", "status": "waiting", "code": "confirm", "needs": ["a"], "soft": ["a"],
    "confirm": "sure?", "effect": "once", "waiting_for": "confirm",
    "waits": [{"from": 107.0, "until": None, "why": "confirm"}],
    "actions": ["confirm", "resolve", "skip", "repair", "retry"],
}  # fmt: skip
D = {
    **PLAIN, "id": "d", "tool": "t", "status": "pending", "needs": ["c"], "effect": None,
    "actions": ["resolve", "skip", "repair", "retry"],
}  # fmt: skip
COUNTS = {"succeeded": 1, "failed": 0, "skipped": 0, "degraded": 0, "cancelled": 0, "in_doubt": 0}
EXEC = {
    "total": 4, "attempted": 2, **COUNTS, "success_rate": 0.5, "calls": 3,
    "seconds": {"tools": 1.25, "waiting": 1.0, "total": 9.0}, "tokens": 7, "cost": 0.75,
}  # fmt: skip
SPENT = [
    ("retries", 0, 3, "count"), ("rounds", 0, 1, "count"), ("step_retries", 1, None, "count"),
    ("repairs", 0, None, "count"), ("replans", 0, 1, "count"), ("attempts", 3, None, "count"),
    ("tokens", 7, 50, "tokens"), ("cost", 0.75, None, "cost"), ("time", 9.0, None, "seconds"),
]  # fmt: skip
VIEW = {
    "run_id": "r", "objective": "goal", "status": "waiting", "shown_status": "awaiting_confirm", "failed_stage": "",
    "success": False, "complete": False, "degraded": False, "interrupted": False, "parent": None, "round": 0,
    "retries": 0, "revision": 1, "seq": 10, "created_at": 100.0, "updated_at": 109.0, "ended_at": None, "elapsed": 9.0,
    "at": 120.0, "counts": {"pending": 1, "ready": 0, "running": 1, "waiting": 1, **COUNTS},
    "summary": "waits for a person: c has to be confirmed", "exec": EXEC, "failed_steps": [], "consequences": [],
    "disputed": [], "waiting_on": [{
        "step": "c", "for": "confirm", "question": "sure?", "tool": "v", "args": None, "digest": None,
        "made_from_degraded": {},
    }], "never_started": [],
    "stopped": "", "paused": False, "judge": "none", "judgement": None,
    "budgets": [{"name": name, "used": used, "of": of, "unit": unit} for name, used, of, unit in SPENT],
    "actions": ["confirm", "pause", "cancel", "add"], "critical": ["a", "b"], "retry_history": [],
    "stages": ["reading", "writing"], "order": ["a", "b", "c", "d"], "steps": {"a": A, "b": B, "c": C, "d": D},
}  # fmt: skip


def test_a_run_that_waits_is_seen_whole() -> None:
    """I4: every name, and what stands under it."""
    assert run_view(Board.of("r", records(*BEGUN, GATE, policy=Policy(max_tokens=50))), 120.0) == VIEW


def test_a_run_that_has_ended_is_seen_whole() -> None:
    """I4, V2, V5: what came of it, why, and what could be done about it."""
    judged = ev.Evaluation(
        False, False, False, judge="m", missing=("x",), unsatisfactory=("b",), disputed=("a",), reason="thin"
    )
    view = run_view(Board.of("r", records(*ENDED[:-1], judged, ENDED[-1])), 150.0)
    assert view["failed_steps"] == [
        {"id": "b", "tool": "u", "code": "TOOL_FAILED", "reason": "no"},
        {"id": "c", "tool": "v", "code": "CONFIRM_REFUSED", "reason": "refused"},
    ]
    assert view["judgement"] == {
        "judge": "m", "complete": False, "missing": ["x"], "unsatisfactory": ["b"], "disputed": ["a"], "reason": "thin",
    }  # fmt: skip
    assert (view["judge"], view["disputed"], view["consequences"]) == ("m", ["a"], ["d"])
    assert view["summary"] == "b (no), c (refused); 1 step skipped as a result" and view["actions"] == [
        "retry",
        "add",
    ]
    assert (view["ended_at"], view["elapsed"], view["waiting_on"]) == (116.0, 16.0, [])
    skipped = view["steps"]["d"]
    assert (
        skipped["error"]["code"] == skipped["code"] == "SKIP_UPSTREAM_FAILED" and skipped["error"]["category"] is None
    )
    assert view["steps"]["b"]["error"] == {"code": "TOOL_FAILED", "category": "tool_error", "message": "no"}
    assert view["steps"]["b"]["ended_at"] == 110.0 and view["steps"]["a"]["disputed"]


def test_a_step_is_told_attempt_by_attempt() -> None:
    """I4, H5: with what it was called, what came of it, and what was thought of it."""
    history = records(*BEGUN)
    board = Board.of("r", history)
    thought = {
        "by": "rules", "category": "tool_error", "root_cause": "tired", "recoverable": True, "confidence": 0.5,
        "suggestion": "wait", "alternatives": [], "rung": "retry", "refused": [],
    }  # fmt: skip
    first = {
        "attempt": 1, "tool": "t", "effect": "repeatable", "at": 102.0, "ended_at": 103.0, "elapsed": 0.5, "args": {},
        "changed": {}, "outcome": "failed", "error": {"code": "TOOL_FAILED", "category": "tool_error", "message": "no"},
        "rung": None, "why": "", "reflection": thought, "verified": None, "logs": [],
    }  # fmt: skip
    second = {
        **first, "attempt": 2, "at": 106.0, "ended_at": 107.0, "elapsed": 0.75, "args": {"k": 1},
        "changed": {"k": [None, 1]}, "outcome": "succeeded", "error": None, "rung": "retry", "reflection": None,
    }  # fmt: skip
    assert step_detail(board, board.state.tracks["a"], history, {}) == {
        **A, "tries": [first, second], "reflections": [{"attempt": 1, **thought}], "downstream": ["b", "c", "d"],
        "plan_step": {"args": {}, "needs": [], "id": "a", "tool": "t", "title": "first", "stage": "reading"},
    }  # fmt: skip
    (running,) = tries(history, board.state, board.state.tracks["b"], {})
    assert (running["ended_at"], running["elapsed"], running["outcome"]) == (None, None, "running")
    ended = records(*ENDED)
    (uncalled,) = tries(ended, fold("r", ended), fold("r", ended).tracks["c"], {})
    assert uncalled["called"] is False and uncalled["error"]["code"] == "CONFIRM_REFUSED"


ONCE = ev.StepStarted("a", 1, "t", Effect.ONCE, verifiable=True)
LOST = ev.StepFailed("a", 1, LATE, lost=True)


@pytest.mark.parametrize(
    ("told", "outcome", "verified"),
    [
        ((), "doubt", None),
        ((ev.StepVerified("a", 1, "there", reason="seen"),), "succeeded", {"effect": "there", "reason": "seen"}),
        ((ev.StepVerified("a", 1, "absent"),), "failed", {"effect": "absent", "reason": ""}),
        ((ev.StepVerified("a", 1, "unknown"),), "doubt", {"effect": "unknown", "reason": ""}),
        ((ev.Acted("resolve", "ann", "a", outcome="succeeded"),), "succeeded", None),
        (
            (ev.Acted("resolve", "ann", "a", outcome="failed"), ev.StepFailed("a", 1, REFUSED, called=False)),
            "failed", None,
        ),
    ],
)  # fmt: skip
def test_what_became_of_a_doubt_is_told_with_its_attempt(
    told: tuple[Event, ...], outcome: str, verified: dict[str, str] | None
) -> None:
    """E3, V8: by a look, or by a person; and the failure that a person tells of is no attempt of its own."""
    history = records(ONCE, LOST, *told)
    (only,) = tries(history, fold("r", history), fold("r", history).tracks["a"], {})
    assert (only["outcome"], only["verified"]) == (outcome, verified)


def test_statistics_name_what_they_count() -> None:
    """V2, R4: of the whole run; and of a round, only its retry set."""
    state = after(*ENDED)
    used = [
        {"id": "a", "tool": "t", "status": "succeeded", "code": None, "attempts": 2},
        {"id": "b", "tool": "u", "status": "failed", "code": "TOOL_FAILED", "attempts": 1},
        {"id": "c", "tool": "v", "status": "failed", "code": "CONFIRM_REFUSED", "attempts": 0},
        {"id": "d", "tool": "t", "status": "skipped", "code": "SKIP_UPSTREAM_FAILED", "attempts": 0},
    ]
    seconds = {"tools": 1.375, "waiting": 1.0, "total": 15.0}
    # A step that failed before its call was attempted too.
    counts = {**COUNTS, "attempted": 3, "success_rate": 1 / 3, "failed": 2, "skipped": 1}
    assert statistics(state, verdict(state), 130.0) == {**EXEC, **counts, "seconds": seconds, "used": used}
    begin = retry(state, "ann").events[0]
    again = after(*ENDED, begin, ev.StepStarted("b", 2, "u"), ev.StepSucceeded("b", 2, 1, "e"))
    assert round_statistics(again) == {
        "total": 3, "attempted": 1, **COUNTS, "success_rate": 1.0, "calls": 1,
        "used": [
            {"id": "b", "tool": "u", "status": "succeeded", "code": None, "attempts": 2},
            {"id": "c", "tool": "v", "status": "waiting", "code": "confirm", "attempts": 0},
            {"id": "d", "tool": "t", "status": "pending", "code": None, "attempts": 0},
        ],
    }  # fmt: skip
    untouched = after(*ENDED, begin)
    assert round_statistics(untouched)["success_rate"] == 0.0 and round_statistics(untouched)["attempted"] == 0


def test_a_preview_names_what_would_happen() -> None:
    """R7: what would run again and why, what is kept, and what it would take."""
    state = after(*ENDED)
    found = retry(state, "ann")
    assert found.to_dict() == {
        "roots": ["b", "c"],
        "rerun": [{"step": "b", "why": "no"}, {"step": "c", "why": "refused"}, {"step": "d", "why": "has not run"}],
        "kept": ["a"], "once": [], "once_if": [],
        "estimate": {"seconds": 0.125, "tool_seconds": 0.125, "cost": 0.0, "unknown": 2}, "passed": [],
        "stage": "writing", "files": ["a.json"], "damaged": {}, "backup": None, "backs_up": [], "asks": [],
        "edited": [], "becomes": {}, "leads_to": None,
    }  # fmt: skip
    whole = Preview(
        ("a",), (), (), (), {}, backup="b.zip", backs_up=("f",), asks=("c",), edited=("e",), becomes={"a": "skipped"},
        leads_to="completed", damaged={"f": "gone"},
    ).to_dict()  # fmt: skip
    assert (whole["backup"], whole["backs_up"], whole["asks"], whole["edited"]) == ("b.zip", ["f"], ["c"], ["e"])
    assert (whole["becomes"], whole["leads_to"], whole["damaged"]) == ({"a": "skipped"}, "completed", {"f": "gone"})
    assert whole["stage"] is None


def test_how_long_a_retry_takes_is_its_longest_way() -> None:
    """R7: steps side by side take as long as the longest, one behind the other as long as both; money adds up."""
    chain = (Step("a", "t"), Step("b", "t", needs=(Need("a"),)), Step("c", "t", needs=(Need("a"),)), Step("d", "t"))
    ran: list[Event] = []
    for name, elapsed in (("a", 2.0), ("b", 4.0), ("c", 8.0), ("d", 9.0)):
        ran += [ev.StepStarted(name, 1, "t"), ev.StepSucceeded(name, 1, 1, name, elapsed=elapsed, cost=0.5)]
    state = after(*ran, ev.Done("completed", True, True, False), steps=chain)
    found = retry(state, "ann", steps=["a"], force=True)
    assert found.estimate == {"seconds": 10.0, "tool_seconds": 14.0, "cost": 1.5, "unknown": 0}
    assert [row["why"] for row in found.rerun] == ["asked for"] + ["runs again only if its inputs change"] * 2


# -- What a person may do ------------------------------------------------------------------------------------------

DOUBT = (ONCE, LOST)
PAUSED = ev.Acted("pause", "ann")


@pytest.mark.parametrize(
    ("told", "interrupted", "offered"),
    [
        ((), False, "pause cancel add"),
        ((), True, "resume retry pause cancel add"),
        ((PAUSED,), False, "resume cancel add"),
        ((PAUSED,), True, "resume cancel add"),
        ((GATE,), True, "pause cancel add"),
        ((*BEGUN, GATE), True, "confirm pause cancel add"),
        ((*BEGUN, PAUSED, GATE), True, "confirm resume cancel add"),
        (DOUBT, False, "pause cancel add"),
        ((*DOUBT, ev.StepVerified("a", 1, "unknown")), True, "resolve resume pause cancel add"),
        ((ev.Stopped("BREAKER_OPEN"),), False, "cancel"),
        ((ev.Cancelled("ann"),), False, ""),
        ((PAUSED, ev.Stopped("BREAKER_OPEN")), False, "resume cancel"),
        (ENDED, False, "retry add"),
    ],
)
def test_only_what_would_be_granted_is_offered_for_a_run(
    told: tuple[Event, ...], interrupted: bool, offered: str
) -> None:
    """X7: nobody is offered what would be refused."""
    assert run_actions(after(*told), interrupted=interrupted) == offered.split()


@pytest.mark.parametrize(
    ("told", "step", "offered"),
    [
        ((), "a", "resolve skip repair retry"),
        ((ev.StepStarted("a", 1, "t"),), "a", "skip"),
        (BEGUN, "a", ""),
        (BEGUN, "c", "resolve skip repair retry"),
        ((*BEGUN, GATE), "c", "confirm resolve skip repair retry"),
        ((*BEGUN, ev.GateOpened("c", 0, "v", "d")), "c", "confirm resolve skip repair retry"),
        (DOUBT, "a", "resolve skip"),
        (DOUBT, "b", "resolve skip repair"),
        ((ev.StepSkipped("b", "SKIP_USER", "m", "ann"),), "b", "resolve repair retry"),
        ((ev.Stopped("BREAKER_OPEN"),), "a", "resolve skip repair"),
        (ENDED, "b", "resolve skip repair retry"),
        (ENDED, "d", "resolve skip repair retry"),
        ((*BEGUN, ev.Cancelled("ann"), ev.Done("cancelled", False, False, False)), "c", "resolve skip repair retry"),
        (
            (*BEGUN, ev.StepSkipped("b", "SKIP_USER", "m"), ev.Done("completed", True, True, True)), "b",
            "resolve repair",
        ),
    ],
)  # fmt: skip
def test_only_what_would_be_granted_is_offered_for_a_step(told: tuple[Event, ...], step: str, offered: str) -> None:
    """X7: nobody is offered what would be refused."""
    state = after(*told)
    assert step_actions(state, state.tracks[step]) == offered.split()


def test_a_patch_after_a_look_holds_nothing_that_was_seen() -> None:
    """I4: neither of the run nor of its steps; a dispute is a change of the step that it is about."""
    history = records(*BEGUN)
    board = Board.of("r", history)
    changes = Changes(board)
    changes.view(110.0, {"mine": 1})
    assert changes.patch(111.0, {"mine": 1}) is None
    patch = changes.patch(111.0, {"mine": 2})
    assert patch is not None and patch["run"]["mine"] == 2 and not patch["steps"] and "objective" not in patch["run"]
    board.feed(Record("r", len(history) + 1, 112.0, ev.Evaluation(True, True, False, disputed=("a",))))
    disputed = changes.patch(112.0, {"mine": 2})
    assert disputed is not None and list(disputed["steps"]) == ["a"] and disputed["run"]["disputed"] == ["a"]


def of_step(view: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """When a step waited, and for what."""
    found: list[dict[str, Any]] = view["steps"][step]["waits"]
    return found


def test_a_wait_for_a_mind_ends_with_its_answer() -> None:
    """I4: it is one wait, however often the step is spoken of meanwhile; a gate is not over for it."""
    held = (
        ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.TOOL, Rung.REPAIR),
        ev.QuestionAsked("repair", "a", 1),
    )  # fmt: skip
    open_wait = {"from": 104.0, "until": None, "why": "repair"}
    assert of_step(run_view(Board.of("r", records(*held)), 110.0), "a") == [open_wait]
    answered = (*held, ev.Declined("repair", "a"), ev.Reflected("a", 1, Category.TOOL, Rung.FAIL))
    assert of_step(run_view(Board.of("r", records(*answered)), 110.0), "a") == [{**open_wait, "until": 106.0}]
    gated = run_view(Board.of("r", records(*BEGUN, ev.StepProgress("c", 0, "words"))), 110.0)
    assert of_step(gated, "c") == C["waits"]
    confirmed = Board.of("r", records(*BEGUN, ev.Acted("confirm", "ann", "c")))
    assert of_step(run_view(confirmed, 110.0), "c") == [{"from": 107.0, "until": 109.0, "why": "confirm"}]


def test_a_word_about_a_step_that_is_gone_is_passed_over() -> None:
    """I4, E5: and a verdict that no judge gave is no judgement."""
    computed = ev.Evaluation(True, True, False, judge="none")
    view = run_view(Board.of("r", records(ev.StepProgress("gone", 1, "words"), computed)), 110.0)
    assert view["order"] == ["a", "b", "c", "d"] and view["judgement"] is None


def test_a_plan_after_a_change_of_course() -> None:
    """I4, H8: without what was dropped, with what is new, in the order that was given, and the rest behind it."""
    old = {name: Step(name, "t") for name in "abc"}
    new = Step("n", "u")
    assert list(steps_after(old, Course(dropped=("a",), steps=(new,)))) == ["b", "c", "n"]
    assert list(steps_after(old, Course(dropped=("a",), steps=(new,), order=("n", "c", "gone")))) == ["n", "c", "b"]
    assert steps_after(old, Course(steps=(Step("b", "v"),)))["b"].tool == "v"
