"""What a history holds of the world's answers: what was written as one, whose word it is, and when it was decided."""

from __future__ import annotations

import pytest

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.events import Course, Error, Event, Record
from rerail.kernel.policy import Rung
from rerail.views.replay.recorded_answers import Answers, Given, Word, batches, is_decided, is_word, moment

NO = Error("TOOL_FAILED", Category.TOOL, "no")
REFUSED = Error("CONFIRM_REFUSED", Category.PERMANENT, "no")
RESOLVED = Error("RESOLVED_FAILED", Category.PERMANENT, "no")


def thought(rung: Rung, step: str = "a") -> Event:
    """What was made of a failure."""
    return ev.Reflected(step, 1, Category.TOOL, rung)


def acted(rung: Rung, by: str = "rules", step: str = "a") -> Event:
    """What was done about a failure."""
    return ev.Recovered(step, 1, rung, by=by)


def again(*, automatic: bool = False) -> Event:
    """Another round."""
    return ev.RetryBegin(1, "ann", ("a",), ("a",), 1, automatic=automatic)


ASKED = ev.Consulted("reflect", "a")
WAITS = ev.RetryScheduled("a", 2, 4, 2, 1.0, 1.0)
SKIPPED = ev.StepSkipped("a", "SKIP_OPTIONAL")
BY_HAND = ev.StepSkipped("a", "SKIP_USER")
RESOLVE = ev.Acted("resolve", "ann", "a", outcome="failed")
NEVER_CALLED = ev.StepFailed("a", 1, NO, called=False)
JUDGED = ev.Evaluation(True, True, False)

# An event, whether the engine itself decided it, and whether a person said it.
WHOSE: list[tuple[Event, bool, bool]] = [
    (thought(Rung.RETRY), True, False), (WAITS, True, False), (ev.StepKept("a"), True, False),
    (ev.StepRenewed("a"), True, False), (ev.QuestionAsked("reflect", "a"), True, False), (ev.Stopped("X"), True, False),
    (ev.Waiting(()), True, False), (ev.RetryDone(1, {}, ()), True, False), (JUDGED, True, False),
    (ev.Done("failed", False, False, False), True, False), (ev.StepStarted("a", 1, "t"), True, False),
    (NEVER_CALLED, True, False), (ev.StepFailed("a", 1, REFUSED, called=False), False, False),
    (ev.StepFailed("a", 1, RESOLVED, called=False), False, False), (ev.StepFailed("a", 1, NO), False, False),
    (ev.StepSucceeded("a", 1), False, False), (SKIPPED, True, False), (BY_HAND, False, False),
    (again(), False, True), (again(automatic=True), True, False), (acted(Rung.ADJUST), True, False),
    (acted(Rung.REPAIR, "m"), False, False), (ev.Acted("pause", "ann"), False, True), (ASKED, False, False),
    (ev.Cancelled("ann"), False, True), (ev.Resumed("ann", paused=True), False, True),
    (ev.Resumed("ann"), False, False), (ev.RunStarted(), False, False), (ev.Declined("repair", "a"), False, False),
]  # fmt: skip


@pytest.mark.parametrize(("event", "decided", "said"), WHOSE)
def test_whose_word_an_event_is(event: Event, decided: bool, said: bool) -> None:
    """The engine's own, a person's, or the world's: only the first would be another under other settings."""
    assert is_decided(event) is decided and is_word([Record("r", 1, 5.0, event)]) is said


# Two events of one moment, and whether they were written as one.
TOGETHER: list[tuple[Event, Event, bool]] = [
    (ASKED, thought(Rung.RETRY), True), (ASKED, thought(Rung.RETRY, "b"), False),
    (ASKED, ev.StepStarted("a", 2, "t"), False), (ev.Consulted("replan"), ev.Replanned(2, Course(), "m"), True),
    (ev.Consulted("judge"), JUDGED, True), (ASKED, ev.Waiting(()), False),
    (thought(Rung.RETRY), WAITS, True), (thought(Rung.RETRY, "b"), WAITS, False), (thought(Rung.FAIL), WAITS, False),
    (thought(Rung.ADJUST), acted(Rung.ADJUST), True), (thought(Rung.ALTERNATIVE), acted(Rung.ALTERNATIVE), True),
    (thought(Rung.PRODUCER), acted(Rung.PRODUCER), True), (thought(Rung.FALLBACK), acted(Rung.FALLBACK), True),
    (thought(Rung.REPAIR), acted(Rung.REPAIR, "m"), False), (thought(Rung.SKIP), SKIPPED, True),
    (thought(Rung.FAIL), SKIPPED, False), (thought(Rung.RETRY), thought(Rung.RETRY), False),
    (RESOLVE, ev.StepFailed("a", 1, RESOLVED, called=False), True), (RESOLVE, NEVER_CALLED, False),
    (RESOLVE, ev.StepFailed("b", 1, RESOLVED, called=False), False), (RESOLVE, ev.StepFailed("a", 1, RESOLVED), False),
    (ev.Acted("skip", "ann", "a"), BY_HAND, True), (ev.Acted("skip", "ann", "b"), BY_HAND, False),
    (ev.Acted("skip", "ann", "a"), SKIPPED, False), (ev.Acted("repair", "ann", "a"), again(), True),
    (ev.Acted("repair", "ann", "a"), again(automatic=True), False), (again(), RESOLVE, True),
    (again(automatic=True), RESOLVE, False), (again(), thought(Rung.RETRY), False),
    (ev.StepFailed("a", 1, NO), again(), False), (BY_HAND, again(), False), (ev.StepKept("a"), ev.StepKept("b"), False),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two", "together"), TOGETHER)
def test_what_was_written_as_one(one: Event, two: Event, together: bool) -> None:
    """The act goes with the thought and the verdict with what it cost, if it is of the same moment and step."""
    found = list(batches([Record("r", 1, 5.0, one), Record("r", 2, 5.0, two)]))
    assert [len(batch) for batch in found] == ([2] if together else [1, 1])
    assert len(list(batches([Record("r", 1, 5.0, one), Record("r", 2, 6.0, two)]))) == 2


def test_a_persons_act_its_failure_and_its_round_are_one() -> None:
    """X7: however many events it takes; what only announces something is left out, and parts nothing."""
    no = ev.StepFailed("a", 1, RESOLVED, called=False)
    records = [Record("r", n, 5.0, event) for n, event in enumerate((RESOLVE, ev.StepProgress("a", 1), no, again()))]
    assert [[record.seq for record in batch] for batch in batches(records)] == [[0, 2, 3]]
    skipped = [Record("r", n, 5.0, event) for n, event in enumerate((ev.Acted("skip", "ann", "a"), BY_HAND, again()))]
    assert [len(batch) for batch in batches(skipped)] == [3]
    assert list(batches([])) == []


@pytest.mark.parametrize(
    ("event", "before", "when"),
    [
        (WAITS, 1.0, 5.0), (WAITS, 5.0, 5.0), (ev.StepSucceeded("a", 1), 1.0, 1.0),
        (ev.StepSucceeded("a", 1), 5.0, None),
        (ASKED, 5.0, 5.0), (ev.Declined("repair"), 5.0, 5.0), (ev.Replanned(2, Course(), "m"), 5.0, 5.0),
        (acted(Rung.REPAIR, "m"), 5.0, 5.0), (ev.PlanRejected("m", ("x",)), 5.0, 5.0), (ev.Acted("pause"), 5.0, None),
    ],
)  # fmt: skip
def test_when_it_was_decided_what_to_do(event: Event, before: float, when: float | None) -> None:
    """At the moment of what was decided; before an answer when the last event was; not between two of one moment."""
    assert moment([Record("r", 3, 5.0, event)], before) == when


def test_the_nth_time_that_the_same_was_asked() -> None:
    """Each gets its own answer; what was asked before an event and answered after it was under way then."""
    answers = Answers()
    first, second = answers.add(("judge",), 4, 10.0), answers.add(("judge",), 8, 20.0)
    call = answers.add(("call", "a"), 4, 10.0)
    first.answer([Record("r", 6, 13.0, JUDGED)])
    assert (first.at, first.end, first.events, first.lasted) == (13.0, 6, (JUDGED,), 3.0)
    assert (second.lasted, call.lasted, Given((), 1, 9.0, at=5.0).lasted) == (0.0, 0.0, 0.0)
    assert [answers.nth(("judge",), n) for n in range(3)] == [first, second, None]
    assert answers.nth(("replan",), 0) is None
    counts = {seq: answers.asked_before(seq) for seq in (4, 5, 8, 9)}
    assert [counts[seq]["judge",] for seq in (4, 5, 8, 9)] == [0, 1, 1, 2]
    under_way = {seq: answers.questions_under_way(seq) for seq in (4, 5, 6, 7, 8, 9)}
    assert under_way == {4: [], 5: [first], 6: [first], 7: [], 8: [], 9: [second]}


def test_what_a_persons_word_is_about() -> None:
    """T2, E3: a gate or a doubt, with its step; a wish that nobody asked for is about nothing."""
    for event, about in (
        (ev.Acted("confirm", "ann", "g"), ("gate", "g")), (ev.Acted("refuse", "ann", "g"), ("gate", "g")),
        (RESOLVE, ("doubt", "a")), (ev.Acted("skip", "ann", "a"), None), (ev.Cancelled("ann"), None),
    ):  # fmt: skip
        assert Word(1, 1.0, (again(), event)).about == about
