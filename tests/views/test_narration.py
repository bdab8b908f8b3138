"""Every event in words: one line of the log, and its part of the story (`logs`, `why`)."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.events import Course, Error, Event, FileMade, Record
from rerail.kernel.fold import fold
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Need, Step, When
from rerail.values.json_values import clean, listed, one_line, size
from rerail.views.narration import (
    NARRATE,
    Detail,
    Moments,
    Narrator,
    bare,
    rung_said,
    waited_for,
    waited_for_one,
)
from rerail.views.why import failures, place_of, story

NO = Error("TOOL_FAILED", Category.TOOL, "it broke")
GONE = Error("ANSWER_LOST", Category.TRANSIENT, "gone")
DECLARED = Error("RESOLVED_FAILED", Category.PERMANENT, "ann declared the step failed")
STEPS = (Step("a", "t", title="first"), Step("b", "u", needs=(Need("a"), Need("c", When.DONE))), Step("c", "t"))


def begun(*more: Event, steps: tuple[Step, ...] = STEPS) -> list[Record]:
    """A history: a run, its plan, and what happened then, a second each."""
    events: list[Event] = [ev.RunStarted("o", by="ann"), ev.PlanAccepted(Plan("o", steps)), *more]
    return [Record("r", at + 1, 100.0 + at, event) for at, event in enumerate(events)]


def state_of(*more: Event) -> State:
    """The state after these."""
    return fold("r", begun(*more))


# Event, its kind of line, the step, the words.
SAID: list[tuple[Event, str, str, str]] = [
    (ev.RunStarted("", by="ann"), "act", "", "run r started by ann: -"),
    (ev.RunStarted("o", by="ann"), "act", "", "run r started by ann: o"),
    (ev.PlanAccepted(Plan("o", STEPS), 2), "act", "", "plan of 3 steps (revision 2)"),
    (ev.PlanRejected("bob", ("x", "y"), step="a"), "failed", "a", "a change by bob was refused: x; y"),
    (ev.PlanRejected("", ("x",)), "failed", "", "a change by ? was refused: x"),
    (
        ev.RetryBegin(2, "ann", (), (), 0, automatic=False, operation="resolve"),
        "round", "", "retry round 2 by ann: resolve; no step runs again",
    ),
    (ev.RetryBegin(1, "rules", ("a",), ("a", "b"), 2), "round", "", "automatic retry round 1: a; 2 steps in the chain"),
    (
        ev.RetryBegin(2, "ann", (), ("b",), 1, automatic=False, operation="resolve"),
        "round", "", "retry round 2 by ann: resolve; 1 step in the chain",
    ),
    (
        ev.RetryDone(1, {"succeeded": 2, "degraded": 1}, ("a",)),
        "round", "", "retry round 1 is over: 3 steps ended well; still failed: a",
    ),
    (ev.RetryDone(1, {}), "round", "", "retry round 1 is over: 0 steps ended well; still failed: -"),
    (ev.Replanned(2, Course(), "m", "better"), "heal", "", "new plan (revision 2) by m: better"),
    (ev.Replanned(2, Course(), "m"), "heal", "", "new plan (revision 2) by m: -"),
    (ev.Evaluation(True, True, False, summary="fine"), "act", "", "verdict: fine (judge: none)"),
    (ev.Waiting(({"for": "confirm", "step": "b"},)), "waiting", "", "waiting: step b waits for a confirmation"),
    (ev.Resumed("ann"), "act", "", "resumed by ann"),
    (ev.Resumed("ann", ("a", "c")), "act", "", "resumed by ann; answers lost: a, c"),
    (ev.Resumed("w1", reason="queued"), "act", "", "taken up by w1"),
    (ev.Acted("pause", "ann"), "act", "", "ann: pause"),
    (ev.Acted("resolve", "", "a", outcome="failed"), "act", "a", "?: resolve failed"),
    (ev.Acted("add", "ann", course=Course(steps=(Step("n", "t"),))), "act", "", "ann: add n"),
    (ev.Acted("skip", "ann", "a", "not needed"), "act", "a", "ann: skip not needed"),
    (ev.Acted("confirm", "ann", "b", files=(FileMade("f.md", "d"),)), "act", "b", "ann: confirm (with another f.md)"),
    (ev.Acted("resolve", "ann", "b", files=(FileMade("f.md", "d"),)), "act", "b", "ann: resolve"),
    (ev.Cancelled("ann", "late"), "cancelled", "", "cancelled by ann: late"),
    (ev.Cancelled(), "cancelled", "", "cancelled by ?"),
    (ev.StepStarted("a", 1, "t"), "running", "a", "calls t"),
    (ev.StepStarted("a", 2, "t"), "running", "a", "calls t (attempt 2)"),
    (ev.StepProgress("a", 1, "half", 0.5), "say", "a", "50% half"),
    (ev.StepProgress("a", 1, "words"), "say", "a", "words"),
    (ev.StepSucceeded("a", 1, elapsed=2.0), "succeeded", "a", "succeeded in 2.0 s"),
    (
        ev.StepSucceeded("a", 1, elapsed=2.0, unverified=True),
        "succeeded", "a", "succeeded in 2.0 s, but the effect could not be verified",
    ),
    (ev.StepFailed("a", 1, NO), "failed", "a", "attempt 1 failed: it broke [TOOL_FAILED, tool_error]"),
    (
        ev.StepFailed("a", 0, NO, called=False),
        "failed", "a", "failed before its tool was called: it broke [TOOL_FAILED, tool_error]",
    ),
    (
        ev.StepFailed("a", 1, DECLARED, called=False),
        "failed", "a", "attempt 1 failed: ann declared the step failed [RESOLVED_FAILED, permanent_error]",
    ),
    (ev.StepFailed("a", 1, GONE, lost=True), "failed", "a", "the answer of attempt 1 is lost: gone [ANSWER_LOST]"),
    (
        ev.StepFailed("a", 1, GONE, lost=True, not_now=0.0),
        "failed", "a", "the answer of attempt 1 is lost: gone [ANSWER_LOST]",
    ),
    (ev.StepFailed("a", 1, NO, lost=True), "failed", "a", "attempt 1 failed: it broke [TOOL_FAILED, tool_error]"),
    (ev.StepFailed("a", 1, NO, not_now=5.0), "retry", "a", "'not now': it broke"),
    (ev.StepVerified("a", 1, "there"), "heal", "a", "looked: the effect is there"),
    (ev.StepVerified("a", 1, "absent", reason="empty"), "heal", "a", "looked: the effect is not there; empty"),
    (ev.StepVerified("a", 1, "unknown", reason="odd"), "heal", "a", "looked: it cannot be told; odd"),
    (ev.StepSkipped("a", "SKIP_USER", "because"), "skipped", "a", "because [SKIP_USER]"),
    (ev.StepKept("a"), "succeeded", "a", "kept: its inputs did not change"),
    (ev.StepKept("a", "once"), "succeeded", "a", "kept although its inputs changed: its effect must not happen twice"),
    (
        ev.StepKept("a", "needless"),
        "succeeded", "a", "kept, and out of date: a step it was made from was not needed this time",
    ),
    (ev.StepRenewed("a"), "retry", "a", "its inputs changed, so it runs again"),
    (ev.RetryScheduled("a", 2, 4, 2, 3.0, 9.0), "retry", "a", "retry 1 of 3 in 3.0 s (2 left after that)"),
    (ev.RetryScheduled("a", 2, 4, 2, 0.0, 9.0), "retry", "a", "retry 1 of 3 at once (2 left after that)"),
    (ev.RetryScheduled("a", 2, 4, 2, 3.0, 9.0, not_now=True), "retry", "a", "waits 3.0 s, as its tool asked"),
    (
        ev.RetryScheduled("a", 1, 4, 3, 0.0, 9.0, not_now=True, crashed=True),
        "retry", "a", "called again, at no cost: its process died or fell silent during the call",
    ),
    (ev.Reflected("a", 1, Category.TOOL, Rung.FAIL), "failed", "a", "nothing left to try in this round (tool_error)"),
    (
        ev.Reflected("a", 1, Category.TOOL, Rung.FAIL, refused=("x", "y")),
        "failed", "a", "nothing left to try in this round (tool_error); x; y",
    ),
    (ev.Reflected("a", 1, Category.TOOL, Rung.SKIP, refused=("x",)), "say", "a", "nothing more was tried: x"),
    (ev.Reflected("a", 1, Category.TOOL, Rung.FALLBACK, refused=("x",)), "say", "a", "nothing more was tried: x"),
    (ev.Recovered("a", 1, Rung.ALTERNATIVE, tool="v"), "heal", "a", "another tool: v"),
    (ev.QuestionAsked("reflect", "a", 1), "say", "a", "a mind is asked what to make of it"),
    (ev.QuestionAsked("replan", reason="a, b"), "say", "", "a new plan is asked for (a, b)"),
    (ev.Consulted("judge", "", "m", 10, 5), "say", "", "m answered (judge), 15 tokens"),
    (ev.Consulted("judge", "a", "m", 10, 5, 0.25, problem="odd"), "say", "a",
     "m answered (judge), 15 tokens, 0.2500: odd"),
    (ev.Declined("repair", "a", "no idea"), "say", "a", "no repair: no idea"),
    (ev.GateOpened("b", 0, "u", args={"x": 1}), "waiting", "b", "waits for a confirmation: it would call u(x=1)"),
    (ev.Reflected("a", 1, Category.TOOL, Rung.DOUBT), "in_doubt", "a",
     "left in doubt: a person says whether it happened"),
    (ev.StepVerified("a", 1, "there", looks=3, waited=2.0), "heal", "a",
     "looked: the effect is there (3 looks, 2.0 s)"),
    (ev.ArtifactCreated("f", "a", 1, "d1", 12), "say", "a", "artifact f (12 B, d1)"),
    (ev.ArtifactLost("a", "d1", "gone"), "failed", "a", "its output is gone: gone"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "sign", "step", "words"), SAID, ids=lambda value: type(value).__name__[:20])
def test_every_event_has_a_line(event: Event, sign: str, step: str, words: str) -> None:
    """I1: what kind of thing it is, the step it is about, and what to say."""
    [line] = Narrator(state_of()).lines(event)
    assert line[:3] == (sign, step, words)


def test_ends_and_stops_have_lines_too() -> None:
    """X5, H4: why nothing more is started, and what the run came to."""
    lines = Narrator(state_of())
    stopped = lines.line(ev.Stopped("BUDGET_EXCEEDED", "max_attempts"))
    assert (
        stopped is not None and stopped.sign == "failed" and stopped.words.endswith("(max_attempts) [BUDGET_EXCEEDED]")
    )
    told_of = (ev.Notified("webhook", "host", True, about="done"), ev.Notified("webhook", "host", False, about="done"))
    assert stopped.step == "" and [(line.sign, line.step) for one in told_of if (line := lines.line(one))] == [
        ("act", ""), ("failed", ""),
    ]  # fmt: skip
    done = lines.line(ev.Done("failed", False, False, False, summary="failed: a (it broke)"))
    assert done == ("failed", "", "failed: a (it broke)", "")
    told = lines.line(ev.Notified("webhook", "host", True, about="done"))
    not_told = lines.line(ev.Notified("command", "tell.sh", False, error="it ended with 1", about="failed"))
    assert told is not None and told.sign == "act" and "host" in told.words
    assert not_told is not None and not_told.sign == "failed" and "it ended with 1" in not_told.words
    assert lines.line(ev.Reflected("a", 1, Category.TOOL, Rung.RETRY)) is None


def test_nothing_is_without_words() -> None:
    """T12: every event that there is has a line, in both languages."""
    assert set(NARRATE) == set(Event.__args__)
    for event, *_ in SAID:
        told = Narrator(state_of(), "zh").line(event)
        assert told is not None and told.words


def test_a_skip_is_said_anew_in_another_language() -> None:
    """T12, X2: what the state still knows is told in the reader's words, else what was written stands."""
    state = state_of(
        ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.PERMANENT, Rung.FAIL)
    )
    skip = ev.StepSkipped("b", "SKIP_UPSTREAM_FAILED", "english words")
    chinese = Narrator(state, "zh").line(skip)
    assert chinese is not None and "english" not in chinese.words and "it broke" in chinese.words
    for other in (
        ev.StepSkipped("b", "SKIP_USER", "english words"),
        ev.StepSkipped("gone", "SKIP_USER", "english words"),
    ):
        told = Narrator(state, "zh").line(other)
        assert told is not None and told.words == "english words [SKIP_USER]"


def test_details_stand_below_a_line() -> None:
    """T12: the retry chain step by step with its reasons, and each failed need of a skip; for the log that wants it."""
    begin = ev.RetryBegin(1, "ann", ("a",), ("a", "b", "gone"), 3, {"a": "it failed"}, automatic=False)
    skip = ev.StepSkipped("b", "SKIP_UPSTREAM_FAILED", "no", needs=("a", "c", "gone"))
    state = state_of(ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO))
    narrator = Narrator(state, detail=Detail.VERBOSE)
    assert [line.words for line in narrator.lines(begin)[1:]] == [
        "again: a, because: it failed", "again: b, because it needs a", "again: gone, because it needs -",
    ]  # fmt: skip
    assert [line.words for line in narrator.lines(skip)[1:]] == [
        "it needs a (tool t), which is waiting: it broke", "it needs c (tool t), which is ready: ",
    ]  # fmt: skip
    assert [len(Narrator(state).lines(event)) for event in (begin, skip)] == [1, 1]


def test_texts_are_made_harmless() -> None:
    """M4: what tools say is nothing but text."""
    assert clean("plain") == "plain" and clean("数据") == "数据"
    assert clean("a\x00b\x1b\x7f\u202e") == "a␀b␛\\u007f\\u202e"
    assert clean("a\tb\nc\rd") == "a b c d" and clean("a\tb\nc\r", lines=True) == "a\tb\nc"
    assert one_line("a  b\nc", 5) == "a b c" and one_line("abcdef", 5) == "abcd…"
    assert [size(n) for n in (9_999, 10_000, 9_999_999, 10_000_000)] == ["9999 B", "10 kB", "10,000 kB", "10 MB"]
    assert bare("failed: a", "failed") == "a" and bare("3 steps", "completed") == "3 steps"
    assert (
        listed(["a", "b"]) == "a, b"
        and listed([f"s{n}" for n in range(10)]) == ", ".join(f"s{n}" for n in range(8)) + " … (+2)"
    )


def test_rungs_in_words() -> None:
    """H3: what was done about a failure."""
    assert rung_said(ev.Recovered("a", 1, Rung.ADJUST, args={"x": 1})) == 'adjusted arguments {"x":1}'
    assert rung_said(ev.Recovered("a", 1, Rung.FALLBACK, output=[1])) == "fallback: [1]"
    assert rung_said(ev.Recovered("a", 1, Rung.FALLBACK, tool="v")) == "fallback: v"
    assert rung_said(ev.Recovered("a", 1, Rung.REPAIR, by="m", reason="wrong unit")) == "repaired by m: wrong unit"


def test_what_is_waited_for_in_words() -> None:
    """X7: the question, the call, the files and what they were made from."""
    item = {
        "for": "confirm", "step": "b", "question": "Right?", "tool": "send", "args": {"to": "bob"},
        "files": ["f.md"], "made_from_degraded": {"a": "fallback", "c": "hole"},
    }  # fmt: skip
    assert waited_for_one(item) == (
        'step b waits for a confirmation: Right? (it would call send(to="bob"))  '
        + waited_for_one({**item, "args": None, "made_from_degraded": None}).partition("  ")[2]
        + "  (made from the fallback of a)  (made without the output of c)"
    )
    assert waited_for([{"for": "confirm", "step": "a"}, {"for": "in_doubt", "step": "b", "tool": "t"}]) == (
        "step a waits for a confirmation; it is unknown whether the effect of step b (t) happened"
    )


# -- The story -----------------------------------------------------------------------------------------------------

TRACE = 'File "/srv/own/tools.py", line 3, in send\nFile "/usr/lib/python3/socket.py", line 9, in connect\n'
LOST = Error("TIMEOUT", Category.TRANSIENT, "timed out", traceback=TRACE)


def told(*more: Event, step: str | None = None, lang: str = "en", steps: tuple[Step, ...] = STEPS) -> list[str]:
    """The story after these events."""
    records = begun(*more, steps=steps)
    return story(fold("r", records), records, step, lang).splitlines()


def test_the_story_of_a_step() -> None:
    """SPEC 12: what it is, what it needs, every attempt, what was thought and done, and where it stands."""
    lines = told(
        ev.StepStarted("a", 1, "t", args={"x": 1}),
        ev.StepFailed("a", 1, Error("TOOL_FAILED", Category.PARAMETER, "no", traceback=TRACE), 1.0),
        ev.Reflected("a", 1, Category.PARAMETER, Rung.ADJUST, "wrong unit", by="m", confidence=70, refused=("tried",)),
        ev.Recovered("a", 1, Rung.ADJUST, args={"x": 2}, by="m", course=Course(("a",))),
        ev.StepStarted("a", 2, "t", args={"x": 2}),
        ev.StepFailed("a", 2, Error("TOOL_FAILED", Category.TOOL, "no", traceback=TRACE), 1.0),
        ev.RetryScheduled("a", 3, 4, 1, 0.0, 0.0),
        ev.RetryScheduled("a", 3, 4, 1, 2.0, 0.0, not_now=True),
        ev.RetryScheduled("a", 3, 4, 1, 0.0, 0.0, not_now=True, crashed=True),
        ev.RetryScheduled("a", 3, 4, 1, 2.0, 0.0),
        ev.StepStarted("a", 3, "v", rung=Rung.FALLBACK),
        ev.StepSucceeded("a", 3, {"n": "x" * 300}, elapsed=1.5, unverified=True),
        step="a",
    )
    assert lines[0] == "Step a calls t (first)." and lines[-1] == "Now: degraded: a fallback stood in: no"
    assert lines[1] == '  +2.0 s  attempt 1: called t with {"x":1}'
    assert lines[2] == "  +3.0 s  attempt 1 failed after 1.0 s: no [TOOL_FAILED, parameter_error]"
    assert lines[3] == "          at tools.py:3 (send)"
    assert lines[4:6] == ["          m: wrong unit (parameter_error, 70 % sure)", "            (not tried: tried)"]
    assert lines[6] == '          → adjusted arguments: {"x":2}'
    assert sum("tools.py" in line for line in lines) == 1  # said once
    assert "          → retry 2 of 3 at once (1 left after that)" in lines
    assert any("'not now': waiting 2.0 s" in line for line in lines) and any("at no cost" in line for line in lines)
    assert "          → retry 2 of 3 in 2.0 s (1 left after that)" in lines
    assert any("called the fallback tool v" in line for line in lines)
    succeeded = next(line for line in lines if "succeeded in 1.5 s" in line)
    assert succeeded.endswith("x…") and len(succeeded.partition(": {")[2]) + 1 == 160
    assert "          (verify could not tell whether the effect is there)" in lines


def test_the_story_of_large_outputs_and_needs() -> None:
    """E7: of an output that is kept elsewhere its size is told."""
    lines = told(ev.StepStarted("b", 1, "u"), ev.StepSucceeded("b", 1, None, "d", 12_345, True), step="b")
    assert lines[2] == "  +2.0 s  attempt 1: called u"
    assert lines[1] == "It needs a, c (done)." and any(line.endswith("in 0 ms (12,345 bytes)") for line in lines)
    late = told(ev.StepStarted("b", 1, "u"), ev.StepSucceeded("b", 1, 1, waited=2.0), step="b")
    assert "          its effect showed 2.0 s after the answer" in late
    plain = told(ev.StepStarted("b", 1, "u"), ev.StepSucceeded("b", 1), step="b")
    assert any(line.endswith("succeeded in 0 ms") for line in plain)


@pytest.mark.parametrize(("effect", "lost"), [(Effect.ONCE, True), (Effect.READ, False)])
def test_a_lost_answer_is_told_where_it_matters(effect: Effect, lost: bool) -> None:
    """X4: of a tool that only reads nobody has to wonder."""
    lines = told(ev.StepStarted("a", 1, "t", effect), ev.StepFailed("a", 1, LOST, lost=True), step="a")
    assert any("attempt 1 was cut off: timed out" in line for line in lines)
    assert any("its answer is lost" in line for line in lines) is lost


def test_a_call_that_a_person_declares_failed_was_made() -> None:
    """E3, X7: its answer was lost; nobody says that it failed before its tool was called."""
    lines = told(
        ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, LOST, 2.0, lost=True),
        ev.Acted("resolve", "ann", "a", outcome="failed"), ev.StepFailed("a", 1, DECLARED, called=False),
    )  # fmt: skip
    assert any(
        line.endswith("a: attempt 1 failed: ann declared the step failed [RESOLVED_FAILED, permanent_error]")
        for line in lines
    )
    assert "before its tool" not in "\n".join(lines)


def test_where_a_step_stands_and_what_to_do_next() -> None:
    """SPEC 12: the command that fits."""
    doubt = told(ev.StepStarted("a", 1, "t", Effect.ONCE), ev.StepFailed("a", 1, LOST, 2.0, lost=True), step="a")
    assert doubt[-1] == "Next: rerail resolve r a --succeeded VALUE | --failed | --rerun"
    fail = (ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.TOOL, Rung.FAIL))
    assert told(*fail, step="a")[-1] == "Next: rerail retry r --dry-run"
    forever = Error("NO_KEY", Category.PERMANENT, "no key")
    refused = told(
        ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, forever),
        ev.Reflected("a", 1, Category.PERMANENT, Rung.FAIL),
        step="a",
    )  # fmt: skip
    assert refused[-1] == "Next: rerail retry r --dry-run --force"
    assert "          → nothing left to try in this round (permanent: trying again cannot help)" in refused
    for confirm, words in ((True, "Now: waiting for a confirmation"), ("Go?", "Now: waiting for a confirmation: Go?")):
        gate = told(ev.Waiting(({"for": "confirm", "step": "a"},)), step="a", steps=(Step("a", "t", confirm=confirm),))
        assert gate[-2:] == [words, "Next: rerail confirm r a"]


def test_the_story_of_a_run() -> None:
    """SPEC 12: failures, choices, people, rounds and the end, each with its step; plain successes are left out."""
    lines = told(
        ev.StepStarted("a", 1, "t"),
        ev.StepFailed("a", 1, LOST, 2.0, lost=True),
        ev.StepVerified("a", 1, "unknown", reason="no answer"),
        ev.StepVerified("a", 1, "absent"),
        ev.Reflected("a", 1, Category.DECOMPOSITION, Rung.REPAIR),
        ev.QuestionAsked("reflect", "a", 1),
        ev.QuestionAsked("replan", reason="a"),
        ev.Consulted("repair", "a", "m", 10, 5, 0.5, 2.0),
        ev.Consulted("repair", "a", "m", 1, 1, elapsed=2.0, problem="odd"),
        ev.Declined("repair", "a", "no idea"),
        ev.PlanRejected("", ("x", "y")),
        ev.Replanned(2, Course(), "m"),
        ev.StepSkipped("c", "SKIP_USER", "not needed", "ann"),
        ev.StepKept("a"),
        ev.StepRenewed("a"),
        ev.RetryBegin(1, "ann", (), ("a",), 1, automatic=False, operation="clean", damaged={"f.md": "cut short"}),
        ev.Acted("confirm", "", "b", files=(FileMade("f.md", "d"),)),
        ev.Acted("add", "ann", course=Course(steps=(Step("n", "t"),))),
        ev.Acted("resolve", "ann", "a", outcome="failed"),
        ev.Resumed("w1", reason="queued"),
        ev.Resumed("w2", ("a",)),
        ev.Stopped("BREAKER_OPEN", "a, b, c"),
        ev.Cancelled("", "late"),
        ev.Cancelled("ann"),
        ev.Waiting(({"for": "confirm", "step": "b", "question": "Right?"}, {"for": "paused", "step": ""})),
        ev.Notified("webhook", "host", True, 2, about="done"),
        ev.Notified("command", "tell.sh", False, 3, "it ended with 1", "failed"),
        ev.Done("cancelled", False, False, False, summary="cancelled: 3 of 3 steps never started"),
    )
    words = [line[10:] for line in lines]
    assert lines[0] == "Run r: o"
    assert words[1] == "a: attempt 1 failed after 2.0 s: timed out [TIMEOUT, transient_error]"
    assert words[2].strip().startswith("its answer is lost")
    assert words[3] == "a: looked whether the effect is there: unknown; no answer"
    assert (
        words[4] == "a: looked whether the effect is there: absent" and words[5] == "→ asking for a repair of this step"
    )
    assert words[6].startswith("a: the rules know no remedy") and "(a); a new plan is asked for" in words[7]
    assert words[8] == "a: m was asked (repair): 15 tokens, 0.5000, 2.0 s"
    assert words[9] == "m was asked (repair) in vain: odd (2 tokens, 2.0 s)"
    assert words[10] == "no repair: no idea" and words[11] == "a change by a person was refused: x; y"
    assert words[12] == "new plan (revision 2) by m: -" and words[13] == "c: not needed [SKIP_USER]"
    assert (
        words[14] == "retry round 1 by ann: clean; 1 step in the chain"
        and "f.md could not be kept: cut short" in words[15]
    )
    assert words[16] == "a person: confirm b (with another f.md)" and words[17] == "ann: add n"
    assert words[18] == "ann: resolve a (failed)" and words[19] == "taken up by w1"
    assert words[20] == "resumed by w2; answers lost: a" and words[21].endswith("(a, b, c) [BREAKER_OPEN]")
    assert words[22:24] == ["cancelled by a person: late", "cancelled by ann"]
    assert words[24] == "waiting for: confirm b: Right?, paused"
    assert "host" in words[25] and "it ended with 1" in words[26]
    assert words[27].startswith("cancelled: 3 of 3") and lines[-1] == "Next: rerail retry r --dry-run"
    assert told(*[record.event for record in begun()][2:])[-1].startswith("Now: running")


def test_steps_that_fail_side_by_side_are_told_apart() -> None:
    """H1: what was done about a failure names its step, unless the line before is about it."""
    no = {"category": Category.TOOL, "rung": Rung.FAIL}
    lines = told(
        *(ev.StepStarted(step, 1, "t") for step in "abc"), *(ev.StepFailed(step, 1, NO) for step in "abc"),
        ev.RetryScheduled("c", 2, 4, 2, 0.0, 0.0), ev.Recovered("a", 1, Rung.ALTERNATIVE, tool="v"),
        ev.Reflected("b", 1, **no, by="m", root_cause="odd", refused=("tried",)), ev.Reflected("b", 1, **no),
        ev.Consulted("reflect", "a", "m", 1, 1), ev.Declined("repair", "c", "no idea"),
        ev.PlanRejected("m", ("x",), step="a"),
        steps=(Step("a", "t"), Step("b", "t"), Step("c", "t")),
    )  # fmt: skip
    assert [line[10:] for line in lines[4:-1]] == [
        "→ retry 1 of 3 at once (2 left after that)", "→ a: another tool: v", "b: m: odd (tool_error, 0 % sure)",
        "  (not tried: tried)", "→ nothing left to try in this round", "→ nothing left to try in this round",
        "a: m was asked (reflect): 2 tokens, 0 ms", "c: no repair: no idea", "a: a change by m was refused: x",
    ]  # fmt: skip


def test_only_what_is_about_a_step_is_in_its_story() -> None:
    """SPEC 12: rounds and plans that it is part of, and what is about the whole run; not what is about others."""
    lines = told(
        ev.StepFailed("b", 0, NO, called=False),
        ev.RetryBegin(1, "ann", ("b",), ("b",), 1, automatic=False),
        ev.RetryBegin(2, "ann", ("a",), ("a", "b"), 2, automatic=False),
        ev.Replanned(2, Course(steps=(Step("n", "t"),)), "m", "other"),
        ev.Replanned(3, Course(steps=(Step("a", "t"),)), "m", "mine"),
        ev.StepKept("a", "once"),
        ev.StepKept("a", "needless"),
        ev.StepRenewed("a"),
        ev.StepSkipped("a", "SKIP_USER", "so", "ann"),
        ev.Resumed("ann"),
        step="a",
    )
    assert [line[10:] for line in lines[1:-1]] == [
        "retry round 2 by ann: a; 2 steps in the chain", "new plan (revision 3) by m: mine",
        "kept although its inputs changed: its effect must not happen twice",
        "kept, and out of date: a step it was made from was not needed this time",
        "its inputs changed, so it runs again", "so [SKIP_USER]",
    ]  # fmt: skip
    assert any("保留" in line for line in told(ev.StepKept("a"), step="a", lang="zh"))


def test_a_run_that_moved_is_pointed_to() -> None:
    """T7: what goes on elsewhere is not retried here."""
    lines = told(ev.Cancelled("ann", to="sqlite:///x.db", after=3), ev.Done("cancelled", False, False, False))
    assert lines[-1] == "Next: rerail show r --store sqlite:///x.db"


def test_a_skip_in_another_language() -> None:
    """T12, X2: made anew where the state still knows why."""
    lines = told(
        ev.StepStarted("a", 1, "t"), ev.StepFailed("a", 1, NO), ev.Reflected("a", 1, Category.PERMANENT, Rung.FAIL),
        ev.StepSkipped("b", "SKIP_UPSTREAM_FAILED", "english words"), step="b", lang="zh",
    )  # fmt: skip
    assert "english" not in "\n".join(lines) and any("it broke" in line for line in lines)


def test_failures_come_with_everything_that_is_known() -> None:
    """X3: for programs."""
    records = begun(ev.StepFailed("a", 1, LOST, lost=True), ev.StepFailed("b", 1, NO))
    assert [row["step"] for row in failures(records)] == ["a", "b"]
    [row] = failures(records, "a")
    assert row == {
        "step": "a", "attempt": 1, "at": 102.0, "code": "TIMEOUT", "category": "transient_error", "lost": True,
        "message": "timed out", "type": None, "traceback": TRACE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ("", ""),
        ('File "/x/rerail/engine/loop.py", line 1, in call', ""),
        ('File "C:\\\\x\\\\tools.py", line 4, in f', "tools.py:4 (f)"),
        ('File "/usr/lib/python3/a.py", line 4, in f', "a.py:4 (f)"),
        (TRACE, "tools.py:3 (send)"),
    ],
)
def test_where_an_error_happened(frames: str, place: str) -> None:
    """SPEC 12: the last line of the user's own, else the last of all."""
    assert place_of(frames) == place


def told_of(records: list[Record]) -> Any:
    """What the records come to."""
    return fold("r", records)


def test_a_clock_that_is_set_back_makes_nothing_earlier() -> None:
    """DESIGN 4: what came later is told as later."""
    records = [
        Record("r", 1, 100.0, ev.RunStarted()), Record("r", 2, 101.0, ev.PlanAccepted(Plan("", STEPS))),
        Record("r", 3, 50.0, ev.Resumed("x")), Record("r", 4, 51.5, ev.Resumed("y")),
    ]  # fmt: skip
    lines = story(told_of(records), records).splitlines()
    assert lines[1].startswith("  +1.0 s") and lines[2].startswith("  +2.5 s")


def test_moments_are_counted_from_the_first_that_is_known() -> None:
    """DESIGN 4: a run whose beginning has no time begins with its first event."""
    moments = Moments(0.0)
    assert [moments(100.0), moments(101.5), moments(90.0), moments(91.0)] == [0.0, 1.5, 1.5, 2.5]


def test_of_many_spoilt_files_a_few_are_told() -> None:
    """SPEC 12: eight, with the reason of each."""
    damaged = {f"f{n}.md": "cut short" for n in range(12)}
    lines = told(ev.RetryBegin(1, "ann", ("a",), ("a",), 1, automatic=False, damaged=damaged))
    assert sum("could not be kept: cut short" in line for line in lines) == 8


def test_what_a_person_is_asked_stands_in_one_line() -> None:
    """X7: the question, the call, the files that it reads, and what of it is poor."""
    item = {
        "for": "confirm", "step": "g", "files": ["f", "h"], "question": "ok?", "args": {"x": 1}, "tool": "t",
        "made_from_degraded": {"a": "hole"},
    }  # fmt: skip
    assert waited_for_one(item) == (
        "step g waits for a confirmation: ok? (it would call t(x=1))  (it reads f, h)  (made without the output of a)"
    )


def test_a_story_begins_with_what_was_wanted() -> None:
    """I1: or with a dash, if nobody said; and a round names what it is for."""
    nothing = [Record("r", 1, 1.0, ev.RunStarted()), Record("r", 2, 2.0, ev.PlanAccepted(Plan("", STEPS)))]
    assert story(fold("r", nothing), nothing).splitlines()[0].endswith("-")
    assert "a, c" in story(state_of(), begun(ev.RetryBegin(1, "ann", ("a", "c"), ("a", "c"), 2, automatic=False)))


def test_where_it_happened_is_told_once_and_only_where_it_is_known() -> None:
    """SPEC 12: an error without a place adds no line; another place does."""
    here, there = (Error("X", Category.TOOL, "no", traceback=f'File "/u/{n}.py", line 7, in f') for n in ("p", "q"))
    events: list[Event] = []
    for attempt, error in enumerate((here, here, NO, here, there), 1):
        events += [ev.StepStarted("a", attempt, "t"), ev.StepFailed("a", attempt, error)]
        events += [ev.RetryScheduled("a", attempt + 1, 9, 5, 0.0, 0.0)]
    records = begun(*events)
    lines = story(fold("r", records), records, "a").splitlines()
    assert [line.split()[-2] for line in lines if ".py" in line] == ["p.py:7", "q.py:7"]
    bare_story = story(fold("r", begun(*events[6:9])), begun(*events[6:9]), "a").splitlines()
    assert len([line for line in lines if "no" in line]) >= 5 and all(line.strip() for line in bare_story)


def test_steps_that_a_person_adds_are_named() -> None:
    """X7: all of them, with commas between."""
    added = ev.Acted("add", "ann", course=Course(steps=(Step("x", "t"), Step("y", "t")), automatic=False))
    assert any(line.endswith("add x, y") for line in story(state_of(added), begun(added)).splitlines())
