"""Reservations: what calls under way may spend is held against the run's caps, and taken off when they end (H4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.accounts import FREE, Largest, Reserved
from rerail.kernel.accounts import SpendingNeed as Spending
from rerail.kernel.budget import LEAST_TIME, Allowance, in_time
from rerail.kernel.codec import decode, encode
from rerail.kernel.decide import Ask, Call, Note, decide
from rerail.kernel.events import Course, Error, Event, Record
from rerail.kernel.fold import evolve, fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fallback, Need, Step
from rerail.plan.tool_spec import ToolSpec

NO = Error("TOOL_FAILED", Category.TOOL, "no")
CANCELLED = Error("RUN_CANCELLED", Category.TRANSIENT, "cancelled")
TOOLS = {
    "priced": ToolSpec("priced", cost=1.0),
    "dear": ToolSpec("dear", cost=5.0),
    "free": ToolSpec("free", reports=False),
    "ctx": ToolSpec("ctx"),
    "other": ToolSpec("other"),
}


def plan(*tools: str) -> tuple[Step, ...]:
    """A step for each tool, none of which needs another: s0, s1, …"""
    return tuple(Step(f"s{n}", tool) for n, tool in enumerate(tools))


def begun(steps: tuple[Step, ...], *more: Event, **policy: Any) -> State:
    """A run of these steps after these events, a second each."""
    first: tuple[Event, ...] = (ev.RunStarted(policy=Policy(**policy)), ev.PlanAccepted(Plan("", steps)))
    return fold("r", [Record("r", n + 1, 100.0 + n, event) for n, event in enumerate((*first, *more))])


def then(state: State, *events: Event) -> State:
    """The state after more."""
    for event in events:
        evolve(state, event, state.at + 1, state.seq + 1)
    return state


def started(state: State) -> list[str]:
    """The steps that start now."""
    return [action.step for action in decide(state, TOOLS, state.at) if isinstance(action, Call)]


def go(state: State) -> list[str]:
    """Start everything that may start, as the loop does; the steps."""
    calls = [action for action in decide(state, TOOLS, state.at) if isinstance(action, Call)]
    for call in calls:
        cost, tokens = call.reserves.cost or 0.0, call.reserves.tokens or 0
        then(state, ev.StepStarted(call.step, call.attempt, call.tool, reserved_cost=cost, reserved_tokens=tokens,
                                   unpriced=call.reserves.unknown))  # fmt: skip
    return [call.step for call in calls]


def stop(state: State) -> str:
    """Why the run stops now; "" if it does not."""
    for action in decide(state, TOOLS, state.at):
        if isinstance(action, Note) and isinstance(action.events[0], ev.Stopped):
            assert action.events[0].code == "BUDGET_EXCEEDED"
            return action.events[0].reason
    return ""


# -- What starts --------------------------------------------------------------------------------------------------


def test_h4_calls_at_once_share_a_cap() -> None:
    """H4: cap 2.0, eight calls of 1.0: two start, the others wait for them, then the run stops."""
    state = begun(plan(*["priced"] * 8), max_cost=2.0)
    assert go(state) == ["s0", "s1"] and (state.cost, state.reserved.cost) == (0.0, 2.0)
    assert decide(state, TOOLS, state.at) == []  # it waits for what is under way
    then(state, ev.StepSucceeded("s0", 1, cost=1.0))
    assert (state.cost, state.reserved.cost) == (1.0, 1.0) and decide(state, TOOLS, state.at) == []
    then(state, ev.StepSucceeded("s1", 1, cost=1.0))
    assert state.reserved.cost == 0.0
    assert stop(state) == "max_cost: 2 of 2 used, and step 's2' needs 1 more"


def test_h4_what_a_call_did_not_spend_is_there_for_the_next() -> None:
    """H4: settled after the call."""
    state = begun(plan(*["priced"] * 4), max_cost=2.0)
    go(state)
    then(state, ev.StepSucceeded("s0", 1, cost=0.2), ev.StepSucceeded("s1", 1, cost=0.2))
    assert go(state) == ["s2"]  # 0.4 + 1.0, and a fourth would need 2.4
    then(state, ev.StepSucceeded("s2", 1, cost=1.0))
    assert stop(state) == "max_cost: 1.4 of 2 used, and step 's3' needs 1 more"


def test_h4_tenths_add_up() -> None:
    """H4: three calls of 0.1 fit a cap of 0.3, at once and one after the other."""
    tools = {**TOOLS, "tenth": ToolSpec("tenth", cost=0.1)}
    state = begun(plan("tenth", "tenth", "tenth", "tenth"), max_cost=0.3)
    assert [action.step for action in decide(state, tools, state.at) if isinstance(action, Call)] == ["s0", "s1", "s2"]
    for n in range(3):
        assert isinstance(decide(state, tools, state.at)[0], Call), n
        then(state, ev.StepStarted(f"s{n}", 1, "tenth", reserved_cost=0.1), ev.StepSucceeded(f"s{n}", 1, cost=0.1))
    assert isinstance(decide(state, tools, state.at)[0], Note)


def test_h4_without_a_cap_nothing_is_reckoned() -> None:
    """H4: no cap, no order by cost, no allowance, and one queue for all."""
    state = begun(plan("dear", "ctx", "ctx", "free"))
    calls = decide(state, TOOLS, state.at)
    assert [call.reserves for call in calls if isinstance(call, Call)] == [FREE] * 4
    assert {track.queue for track in state.ready.members.values()} == {""}


def test_h4_a_tool_that_cannot_report_costs_nothing() -> None:
    """H4: it takes no context and declares no cost; it starts even where the cap is reached, not where it is passed."""
    state = begun(plan("priced", "free", "free"), max_cost=1.0, concurrency=2)
    assert go(state) == ["s0", "s1"]
    then(state, ev.StepSucceeded("s0", 1, cost=1.0))
    assert started(state) == ["s2"]
    over = begun(plan("priced", "free"), max_cost=1.0, concurrency=1)
    go(over)
    then(over, ev.StepSucceeded("s0", 1, cost=1.5))
    assert stop(over) == "max_cost: 1.5 of 1 used"


@pytest.mark.parametrize("cap", ["max_cost", "max_tokens"])
def test_h4_a_cap_of_nothing_starts_nothing(cap: str) -> None:
    """H4: not even what is free."""
    assert stop(begun(plan("free"), **{cap: 0})) == f"{cap}: 0 of 0 used"


def test_h4_calls_that_carry_cost_start_in_order() -> None:
    """H4: a small call does not starve a large one before it; what is free passes."""
    state = begun(plan("priced", "dear", "priced", "free"), max_cost=5.0)
    assert go(state) == ["s0", "s3"]
    then(state, ev.StepSucceeded("s3", 1))
    assert started(state) == []
    then(state, ev.StepSucceeded("s0", 1, cost=0.0))
    assert go(state) == ["s1"] and started(state) == []


def test_h4_what_waits_holds_back_whatever_carries_cost() -> None:
    """H4: also where a step waits in the queue of a tool that it does not call any more."""
    left = Allowance(begun(plan("dear"), max_cost=2.0), TOOLS)
    assert left.take(Spending(1.0), step="a") and not left.take(Spending(1.5), step="b")
    assert not left.take(Spending(0.5), step="c") and left.take(FREE, step="d")
    assert left.short == "max_cost: 0 of 2 used, and step 'b' needs 1.5 more"


def test_h4_free_calls_pass_within_the_limits_of_tools() -> None:
    """H4, X1: both bound what starts."""
    state = begun(plan("dear", "priced", "free", "free"), max_cost=4.0, tool_concurrency={"free": 1})
    assert go(state) == ["s2"]
    then(state, ev.StepSucceeded("s2", 1))
    assert go(state) == ["s3"]
    then(state, ev.StepSucceeded("s3", 1))
    assert stop(state) == "max_cost: 0 of 4 used, and step 's0' needs 5 more"


def test_h4_room_is_for_calls_that_start() -> None:
    """H4, X1: what waits for the cap takes none of the run's concurrency, and no more starts than that allows."""
    state = begun(plan("dear", "free", "free", "free"), max_cost=4.0, concurrency=2)
    assert started(state) == ["s1", "s2"] == started(state)


def test_h4_attempts_are_counted_by_intents() -> None:
    """H4: calls at the same time share max_attempts."""
    state = begun(plan(*["free"] * 5), max_attempts=3)
    assert go(state) == ["s0", "s1", "s2"]
    assert stop(state) == "max_attempts: 3 of 3 used"


# -- What is not known --------------------------------------------------------------------------------------------


def test_h4_calls_of_unknown_cost_run_one_at_a_time() -> None:
    """H4: over all tools; once one is known, as many as fit."""
    state = begun(plan("ctx", "ctx", "other", "ctx", "free"), max_cost=2.0)
    assert go(state) == ["s0", "s4"] and state.reserved.unpriced == 1
    assert started(state) == []
    then(state, ev.StepSucceeded("s0", 1, cost=0.5))
    assert state.reserved.unpriced == 0
    # The second is known to cost 0.5; the third is another tool's, and unknown; the fourth waits in order behind none.
    assert go(state) == ["s1", "s2", "s3"]
    assert (state.reserved.cost, state.reserved.unpriced) == (1.0, 1)


def test_h4_the_largest_that_was_seen_is_reserved() -> None:
    """H4: of this tool, in this run."""
    state = begun(plan(*["ctx"] * 5), max_cost=10.0, concurrency=1)
    for step, cost in (("s0", 1.0), ("s1", 3.0), ("s2", 2.0)):
        go(state)
        then(state, ev.StepSucceeded(step, 1, cost=cost))
    [call] = decide(state, TOOLS, state.at)
    assert isinstance(call, Call) and call.reserves == Spending(3.0, 0)
    go(state)
    then(state, ev.StepSucceeded("s3", 1, cost=3.0))
    assert stop(state) == "max_cost: 9 of 10 used, and step 's4' needs 3 more"


def test_h4_a_failure_without_a_report_tells_no_price() -> None:
    """H4: a success of no cost does, and so does a failure that reports one."""
    one_call = ev.StepStarted("s0", 1, "ctx", unpriced=True)
    failed = begun(plan("ctx", "ctx"), one_call, ev.StepFailed("s0", 1, NO), max_cost=1.0)
    assert not failed.largest
    paid = begun(plan("ctx", "ctx"), one_call, ev.StepFailed("s0", 1, NO, cost=0.5, tokens=3), max_cost=1.0)
    assert (paid.largest.cost, paid.largest.tokens) == ({"ctx": 0.5}, {"ctx": 3})
    done = begun(plan("ctx", "ctx"), one_call, ev.StepSucceeded("s0", 1), max_cost=1.0)
    assert (done.largest.cost, done.largest.tokens) == ({"ctx": 0.0}, {"ctx": 0}) and done.largest


def test_h4_an_unknown_call_needs_room() -> None:
    """H4: nothing of unknown cost starts where a cap is reached."""
    state = begun(plan("priced", "ctx"), max_cost=1.0, concurrency=1)
    go(state)
    then(state, ev.StepSucceeded("s0", 1, cost=1.0))
    assert stop(state) == "max_cost: 1 of 1 used"


def test_h4_tokens_are_reserved_like_cost() -> None:
    """H4: the largest that was seen; a declared cost says nothing about tokens."""
    state = begun(plan("priced", "priced", "priced"), max_tokens=100)
    assert go(state) == ["s0"] and state.reserved.unpriced == 1
    then(state, ev.StepSucceeded("s0", 1, tokens=60, cost=1.0))
    assert stop(state) == "max_tokens: 60 of 100 used, and step 's1' needs 60 more"
    roomy = begun(plan("ctx", "ctx", "ctx", "ctx"), max_tokens=100)
    go(roomy)
    then(roomy, ev.StepSucceeded("s0", 1, tokens=30))
    assert go(roomy) == ["s1", "s2"] and roomy.reserved.tokens == 60


def test_h4_a_tool_that_is_not_there_needs_nothing() -> None:
    """H4: it fails before its call."""
    assert started(begun(plan("gone", "gone"), max_cost=1.0)) == ["s0", "s1"]


# -- What ends a reservation --------------------------------------------------------------------------------------

HELD = ev.StepStarted("s0", 1, "priced", reserved_cost=1.0, reserved_tokens=10, unpriced=True)


@pytest.mark.parametrize(
    ("end", "spent"),
    [
        (ev.StepSucceeded("s0", 1, cost=0.5, tokens=7), (0.5, 7)),
        (ev.StepFailed("s0", 1, NO, cost=0.5, tokens=7), (0.5, 7)),
        (ev.StepFailed("s0", 1, NO, lost=True, not_now=0.0, cost=1.0, tokens=10), (1.0, 10)),
        (ev.StepFailed("s0", 1, CANCELLED, lost=True), (0.0, 0)),
        # No answer came, or comes: what it may have cost counts as spent.
        (ev.StepSkipped("s0", "SKIP_USER", by="ann"), (1.0, 10)),
        (ev.Replanned(2, Course(dropped=("s0",)), "m"), (1.0, 10)),
        (ev.Acted("retry", "ann", "s0", course=Course(("s0",), automatic=False)), (1.0, 10)),
        (ev.Acted("resolve", "ann", "s0", outcome="succeeded", output=1, digest="d"), (1.0, 10)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event.__args__) else "",
)
def test_h4_every_way_out_gives_the_reservation_back(end: Event, spent: tuple[float, int]) -> None:
    """H4: success, failure, a crash's note, a cancel, a skip, a new plan, a person's word."""
    state = begun(plan("priced"), HELD, max_cost=2.0)
    assert (state.reserved.cost, state.reserved.tokens, state.reserved.unpriced) == (1.0, 10, 1)
    held = state.tracks["s0"]
    then(state, end)
    assert not state.reserved and (state.reserved.cost, state.reserved.tokens, state.reserved.unpriced) == (0.0, 0, 0)
    assert held.holds is None and (state.cost, state.tokens) == spent


def test_h4_a_late_answer_adds_what_it_cost() -> None:
    """H4: of an attempt that was left behind; it holds nothing any more."""
    state = begun(plan("priced"), HELD, ev.StepFailed("s0", 1, NO, lost=True), max_cost=2.0)
    then(state, ev.StepSucceeded("s0", 1, cost=0.5, tokens=7))
    assert (state.cost, state.tokens, state.reserved.cost) == (0.5, 7, 0.0)


def test_h4_an_intent_that_comes_twice_holds_once() -> None:
    """E5: an odd history leaks nothing."""
    state = begun(plan("priced"), HELD, ev.StepStarted("s0", 2, "priced", reserved_cost=0.5), max_cost=2.0)
    assert (state.reserved.cost, state.reserved.calls) == (0.5, 1)
    then(state, ev.StepSucceeded("s0", 2, cost=0.5))
    assert not state.reserved


def test_h4_an_intent_without_a_reservation_is_stored_as_before() -> None:
    """E5: fields of no value are left out; those with one are read back."""
    assert encode(ev.StepStarted("a", 1, "t")) == b'{"type":"step_started","step":"a","attempt":1,"tool":"t"}'
    assert decode(encode(HELD)) == HELD


def test_h4_other_settings_put_waiting_steps_into_other_queues() -> None:
    """H4: a cap that comes or goes with a resume holds for what could start before."""
    steps = plan("dear", "priced", "free")
    state = begun(steps)
    assert started(state) == ["s0", "s1", "s2"]
    then(state, ev.Resumed(policy=Policy(max_cost=4.0)))
    assert {track.queue for track in state.ready.members.values()} == {"dear", "priced", "free"}
    assert started(state) == ["s2"]
    then(state, ev.Resumed(policy=Policy()))
    assert {track.queue for track in state.ready.members.values()} == {""}
    assert started(state) == ["s0", "s1", "s2"]


# -- Questions ----------------------------------------------------------------------------------------------------

MINDS = ("reflect", "repair", "replan", "judge")


def asking(*more: Event, tools: tuple[str, ...] = ("free", "priced", "priced"), **policy: Any) -> State:
    """A run whose first step has failed and waits for a mind."""
    failed = (ev.StepStarted("s0", 1, "free"), ev.StepFailed("s0", 1, NO), ev.QuestionAsked("reflect", "s0", 1))
    return begun(plan(*tools), *failed, *more, minds=MINDS, **policy)


def kinds(state: State) -> list[str]:
    """What is done now: questions by their name, calls by their step."""
    actions = decide(state, TOOLS, state.at)
    return [one.question if isinstance(one, Ask) else one.step for one in actions if isinstance(one, Ask | Call)]


def test_h4_a_question_leaves_room_for_calls_and_calls_for_a_question() -> None:
    """H4: a question reserves the largest that was seen of its kind."""
    seen = ev.Consulted("reflect", "s9", cost=1.0)
    assert kinds(asking(seen, max_cost=3.0)) == ["reflect", "s1"]
    assert kinds(asking(seen, max_cost=4.0)) == ["reflect", "s1", "s2"]
    busy = asking(seen, ev.StepStarted("s1", 1, "priced", reserved_cost=1.5), max_cost=3.0)
    assert kinds(busy) == []  # 1.0 spent, 1.5 reserved: it waits, and so does the call behind it
    assert kinds(then(busy, ev.StepSucceeded("s1", 1, cost=0.5))) == ["reflect"]


def test_h4_a_question_that_cannot_fit_stops_the_run() -> None:
    """H4: when nothing is under way that could make room; it says what it would have needed."""
    state = asking(ev.Consulted("reflect", "s9", cost=1.5), max_cost=2.0, tools=("free",))
    assert stop(state) == "max_cost: 1.5 of 2 used, and asking a model to reflect needs 1.5 more"
    tokens = asking(ev.Consulted("reflect", "s9", input_tokens=6, output_tokens=1), max_tokens=10, tools=("free",))
    assert stop(tokens) == "max_tokens: 7 of 10 used, and asking a model to reflect needs 7 more"


def test_h4_a_question_of_unknown_cost_is_alone_with_it() -> None:
    """H4: unknown costs come one at a time, of tools and of questions."""
    state = asking(tools=("free", "ctx", "priced"), max_cost=9.0)
    assert kinds(state) == ["reflect"]  # the call of unknown cost waits, and the one behind it keeps its place
    busy = asking(ev.StepStarted("s1", 1, "ctx", unpriced=True), tools=("free", "ctx"), max_cost=9.0)
    assert kinds(busy) == []
    assert kinds(then(busy, ev.StepSucceeded("s1", 1, cost=1.0))) == ["reflect"]


def test_h4_out_of_time_no_question_waits() -> None:
    """H4: one that waits for room is not asked later than max_seconds allows."""
    seen, call = ev.Consulted("reflect", "s9", cost=1.0), ev.StepStarted("s1", 1, "priced", reserved_cost=1.5)
    state = asking(seen, call, max_cost=3.0, max_seconds=5.0, tools=("free", "priced"))
    state.at += 10
    assert stop(state) == "max_seconds: 16 of 5 used"


@pytest.mark.parametrize(("cap", "asked"), [(2.0, True), (1.9, False)])
def test_h4_a_judge_is_asked_if_it_fits(cap: float, asked: bool) -> None:
    """H4, V4: by the largest that a judge has cost in this run."""
    done = (ev.StepStarted("s0", 1, "free"), ev.StepSucceeded("s0", 1), ev.Consulted("judge", cost=1.0))
    state = begun(plan("free"), *done, minds=("judge",), shortcut=False, max_cost=cap)
    assert (kinds(state) == ["judge"]) is asked


def test_h4_a_reply_of_no_use_tells_its_price() -> None:
    """H4: money is gone whether or not it helped; one that cost nothing tells nothing."""
    state = begun(plan("free"), ev.Consulted("reflect", problem="no JSON"), max_cost=1.0)
    assert not state.largest_question
    then(state, ev.Consulted("reflect", cost=0.2, problem="no JSON"))
    assert state.largest_question.cost == {"reflect": 0.2}


# -- Time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "effect", "timeout"),
    [
        (None, Effect.READ, 300.0),
        (50.0, Effect.READ, 20.0),
        (500.0, Effect.READ, 300.0),
        (50.0, Effect.ONCE, 300.0),
        (30.0, Effect.REPEATABLE, LEAST_TIME),
        (29.0, Effect.REPEATABLE, LEAST_TIME),
    ],
)
def test_h4_a_call_gets_the_smaller_of_its_timeout_and_what_is_left(
    most: float | None, effect: Effect, timeout: float
) -> None:
    """H4: thirty seconds into the run; a `once` call keeps its timeout."""
    state = begun(plan("free"), max_seconds=most)
    assert in_time(state, 300.0, effect, 130.0) == pytest.approx(timeout)


# -- Laws ---------------------------------------------------------------------------------------------------------

COSTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])


@given(
    st.lists(st.sampled_from(sorted(TOOLS)), min_size=1, max_size=12),
    st.sampled_from([1.0, 2.0, 5.0, 7.5]),
    st.lists(st.tuples(st.integers(0, 11), COSTS, st.booleans()), max_size=24),
)
def test_h4_spent_and_reserved_stay_within_the_cap(
    tools: list[str], cap: float, ends: list[tuple[int, float, bool]]
) -> None:
    """H4: whatever starts and ends in whatever order, only what calls cost beyond their reservation is above it."""
    state = begun(plan(*tools), max_cost=cap, max_step_retries=0, max_retry_rounds=0, max_consecutive_failures=0)
    beyond = 0.0
    for pick, cost, well in [*ends, *[(0, 0.5, True)] * len(tools)]:
        before = state.cost + state.reserved.cost
        if go(state):
            assert before <= cap
        assert state.cost + state.reserved.cost <= cap + beyond + 1e-9
        assert sum(track.call.unpriced for track in state.running.values() if track.call is not None) <= 1
        running = list(state.running.values())
        if not running:
            break
        track = running[pick % len(running)]
        assert track.call is not None
        spent = cost if TOOLS[track.call.tool].reports else 0.0
        beyond += max(0.0, spent - track.call.reserved_cost)
        end = ev.StepSucceeded(track.id, 1, cost=spent) if well else ev.StepFailed(track.id, 1, NO, cost=spent)
        then(state, end)
        while isinstance(note := next(iter(decide(state, TOOLS, state.at)), None), Note) and not state.stopped:
            then(state, *note.events)
    assert bool(state.reserved) == any(track.holds for track in state.running.values())


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6), st.booleans()), max_size=30))
def test_h4_what_was_taken_is_given_back(calls: list[tuple[float, int, bool]]) -> None:
    """H4: floats drift, and nothing held is exactly nothing."""
    reserved = Reserved()
    taken = [ev.StepStarted("a", 1, "t", reserved_cost=c, reserved_tokens=t, unpriced=u) for c, t, u in calls]
    for call in taken:
        reserved.take(call)
    assert bool(reserved) == bool(taken)
    for call in reversed(taken):
        reserved.give_back(call)
    assert (reserved.calls, reserved.cost, reserved.tokens, reserved.unpriced) == (0, 0.0, 0, 0)


@given(st.lists(st.tuples(COSTS, st.integers(0, 9), st.booleans())))
def test_h4_the_largest_is_the_largest(seen: list[tuple[float, int, bool]]) -> None:
    """H4: by its naive definition."""
    largest = Largest()
    for cost, tokens, answered in seen:
        largest.saw("t", cost, tokens, answered=answered)
    costs = [cost for cost, _, answered in seen if answered or cost]
    tokens = [one for _, one, answered in seen if answered or one]
    assert largest.cost == ({"t": max(costs)} if costs else {})
    assert largest.tokens == ({"t": max(tokens)} if tokens else {})


def test_h4_needs_are_met_before_budgets_are_asked() -> None:
    """H4, X1: a step that cannot start holds back nothing."""
    steps = (Step("a", "free"), Step("b", "dear", needs=(Need("a"),)), Step("c", "priced"))
    assert started(begun(steps, max_cost=2.0)) == ["a", "c"]


def test_h4_a_fallback_is_reckoned_by_its_own_tool() -> None:
    """H4, H9: the call of a fallback tool reserves what that tool costs."""
    step = Step("s0", "free", fallback=Fallback(tool="dear"))
    failed = (ev.StepStarted("s0", 1, "free"), ev.StepFailed("s0", 1, NO))
    fell = ev.Recovered("s0", 1, Rung.FALLBACK, tool="dear", course=Course(("s0",)))
    state = begun((step,), *failed, fell, max_cost=9.0)
    [call] = decide(state, TOOLS, state.at)
    assert isinstance(call, Call) and (call.tool, call.reserves.cost) == ("dear", 5.0)
    assert stop(begun((step,), *failed, fell, max_cost=4.0)) == "max_cost: 0 of 4 used, and step 's0' needs 5 more"
