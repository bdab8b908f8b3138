"""Crash tests as users have them: what they find, what they cannot know, and what they never overlook."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import rerail
from rerail.engine.failures import from_code
from rerail.kernel.codec import encode
from rerail.kernel.events import StepFailed, StepStarted, StepVerified
from rerail.plan.step import Effect
from rerail.ports import Row
from rerail.testing import CrashReport, crash_in_process
from rerail.testing.crash_testing.ledger import End, Kept, LedgerCall, Line, digest_of
from rerail.testing.crash_testing.trials import _Stage, _trial_here
from rerail.testing.crash_testing.verdict import CrashEvidence, judge, tools_of

QUICK = {"retry": {"backoff_base": 0.001, "jitter": False}}


class Shop:
    """A little world: who was paid, and how often somebody looked."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.numbers = 0

    def tools(self) -> list[Any]:
        """Its tools; the world outlives the engine that calls them."""

        @rerail.tool(effect="read")
        async def price() -> int:
            return 12

        @rerail.tool  # it says that it may be called again, and draws another number each time
        async def number() -> int:
            self.numbers += 1
            return self.numbers

        async def was_paid(ctx: rerail.Context) -> bool:
            return ctx.key in self.paid

        @rerail.tool(effect="once", verify=was_paid, settle=0)  # the look is exact
        async def pay(amount: int, ctx: rerail.Context) -> dict[str, int]:
            self.paid.append(ctx.key)
            return {"paid": amount}

        @rerail.tool(effect="once")
        async def post(to: str) -> str:
            return f"posted to {to}"

        return [price, number, pay, post]


PLAN: dict[str, Any] = {
    "steps": [
        {"id": "price", "tool": "price"},
        {"id": "number", "tool": "number", "needs": ["price"]},
        {"id": "pay", "tool": "pay", "args": {"amount": "${price}"}, "needs": ["number"], "confirm": True},
        {"id": "post", "tool": "post", "args": {"to": "Ada"}, "needs": ["pay"]},
    ],
    "follow_up": {"steps": [{"id": "thank", "tool": "post", "args": {"to": "Bob"}}]},
}


@pytest.fixture(scope="module")
def report() -> CrashReport:
    """Every crash point of the plan, in this process."""
    return crash_in_process(PLAN, lambda: Shop().tools(), QUICK)


def test_every_guarantee_is_kept_at_every_crash_point(report: CrashReport) -> None:
    """E1, E2, E3, X5: nothing lost, nothing repeated, nothing missing, the same end; T6: what follows is started."""
    counts = report.counts()
    assert report.broken == ()
    assert counts["points"] == counts["tried"] == counts["died"] > 40
    assert report.status == "completed"


def test_a_doubt_is_reported_where_nobody_can_look_and_nowhere_else(report: CrashReport) -> None:
    """E3: `pay` can be looked for; `post` cannot, and is asked about; the ledger knows what to answer."""
    doubted = {step for trial in report.trials for step in trial.doubts}
    assert doubted == {"post", "thank"}
    assert report.counts()["open"] == 0
    before = [trial.what for trial in report.trials if "post" in trial.doubts]
    assert any(what == "before call post" for what in before) and any(what == "after call post" for what in before)


def test_a_tool_that_is_not_what_it_says_is_named(report: CrashReport) -> None:
    """E3: a tool that is called again, and answers otherwise, was no `repeatable` one; of the others no more is said
    than was seen."""
    rows = {row.tool: row for row in report.tools}
    assert [row.tool for row in report.unsafe] == ["number"]
    assert rows["number"].other_output and rows["number"].steps == {"number"}
    assert rows["price"].safe is True and rows["price"].again
    assert rows["pay"].safe is None and rows["pay"].effect == "once"


def test_a_tool_that_fails_when_it_is_called_again_is_named_and_the_other_end_is_told() -> None:
    """E3: what the tool did before it was cut off stands in its own way."""

    def tools() -> list[Any]:
        made: list[int] = []

        @rerail.tool
        async def reserve() -> str:
            if made:
                raise rerail.ToolError("reserved already", category="permanent_error")
            made.append(1)
            return "reserved"

        return [reserve]

    found = crash_in_process({"steps": [{"id": "room", "tool": "reserve"}]}, tools, QUICK)
    assert [row.tool for row in found.unsafe] == ["reserve"] and found.tools[0].failed
    assert {trial.what for trial in found.broken} >= {"after call room"}
    assert all(trial.different for trial in found.broken)
    assert "room: succeeded → failed" in found.broken[0].different


def test_a_seed_draws_the_same_points() -> None:
    """`--points N` is a sample that can be drawn again."""
    one = crash_in_process(PLAN, lambda: Shop().tools(), QUICK, points=3, seed=7)
    other = crash_in_process(PLAN, lambda: Shop().tools(), QUICK, points=3, seed=7)
    assert [trial.point for trial in one.trials] == [trial.point for trial in other.trials]
    assert len(one.trials) == 3 and one.points > 40


def test_without_an_end_there_is_nothing_to_compare_with() -> None:
    """A plan that stands still by itself is refused, with how it stands."""

    @rerail.tool(effect="once")
    async def lose() -> None:
        raise ConnectionResetError("gone")

    with pytest.raises(rerail.Refused, match="crashtest: waiting"):
        crash_in_process({"steps": [{"id": "lose", "tool": "lose"}]}, lambda: [lose], QUICK)


# -- What the judge must not overlook ---------------------------------------------------------------------------------

RUN = "crashtest"


@pytest.fixture(scope="module")
def calm() -> CrashEvidence:
    """A run without a crash."""
    from rerail.plan.model import Plan

    plan = {"steps": [{"id": "pay", "tool": "post", "args": {"to": "Ada"}}]}
    return _trial_here(Plan.load(plan), Shop().tools(), rerail.Settings.load(QUICK), 0)


def changed(seen: CrashEvidence, *lines: Line) -> CrashEvidence:
    """The same with further lines in its ledger."""
    return replace(seen, lines=[*seen.lines, *lines])


def test_an_undisturbed_run_is_fine(calm: CrashEvidence) -> None:
    """What the others differ from."""
    assert judge(1, calm, calm).kept


def test_an_acknowledged_event_that_is_gone_or_another_is_found(calm: CrashEvidence) -> None:
    """E1: what was acknowledged is there, as it was."""
    rows = list(calm.histories[RUN])
    assert judge(1, replace(calm, histories={RUN: rows[:-1]}), calm).lost == (f"{RUN}:{rows[-1].seq}",)
    spoilt = [*rows[:-1], Row(rows[-1].seq, rows[-1].at, rows[-1].data.replace(b"true", b"true "))]
    assert judge(1, replace(calm, histories={RUN: spoilt}), calm).lost == (f"{RUN}:{rows[-1].seq}",)
    assert judge(1, changed(calm, Kept(1, RUN, 99, digest_of(b"x"))), calm).lost == (f"{RUN}:99",)


def test_a_once_call_after_another_is_a_repetition(calm: CrashEvidence) -> None:
    """E3: unless the history says why: it said that it failed, or somebody looked."""
    again = LedgerCall(2, RUN, "pay", 2, "post", "once", "-")
    assert judge(1, changed(calm, again), calm).repeated == ("pay",)
    assert judge(1, changed(calm, replace_attempt(again, 1)), calm).repeated == ("pay",)
    seen = calm.histories[RUN]

    def told(*events: Any, by: int = 1) -> tuple[str, ...]:
        """What is found if the history says this, written by the first process or by the one after it."""
        rows = [*seen[:2], *(Row(3 + at, 1.0, encode(event)) for at, event in enumerate(events))]
        lines = [line for line in calm.lines if isinstance(line, LedgerCall | End)]
        kept = [Kept(by, RUN, row.seq, digest_of(row.data)) for row in rows]
        return judge(1, CrashEvidence([*lines, *kept, again], {RUN: rows}), calm).repeated

    start = StepStarted("pay", 1, "post", Effect.ONCE)
    refused = from_code("TIMEOUT", seconds=1)
    assert told(start, StepFailed("pay", 1, refused)) == ()
    assert told(start, StepFailed("pay", 1, refused), by=2) == ("pay",)  # it cannot know that
    assert told(start, StepFailed("pay", 1, refused, lost=True)) == ("pay",)
    assert told(start, StepVerified("pay", 1, "absent"), by=2) == ()
    assert told(start, StepVerified("pay", 1, "unknown"), by=2) == ("pay",)


def replace_attempt(call: LedgerCall, attempt: int) -> LedgerCall:
    """The same call under another number."""
    return LedgerCall(call.life, call.run, call.step, attempt, call.tool, call.effect, call.args)


def test_a_step_or_an_end_that_is_missing_is_found(calm: CrashEvidence) -> None:
    """X5, V1: one row for each step, and the same end."""
    rows = calm.histories[RUN]
    unfinished = judge(1, CrashEvidence(calm.lines[:0], {RUN: rows[:3]}), calm)
    assert unfinished.missing == ("pay",) and unfinished.different
    nothing = judge(1, CrashEvidence([], {}), calm)
    assert nothing.missing == ("pay",) and nothing.different == (f"{RUN}: completed → -",)
    assert not judge(1, replace(calm, problem="it hangs"), calm).kept


def test_a_call_is_compared_with_the_same_call_only() -> None:
    """E3: other arguments, other output; and an error that comes without a crash too is no sign."""
    first, end = LedgerCall(1, RUN, "a", 1, "read", "read", "x"), End(1, RUN, "a", 1, "one")
    usual = CrashEvidence([first, end], {})
    other = CrashEvidence([first, LedgerCall(2, RUN, "a", 2, "read", "read", "y"), End(2, RUN, "a", 2, "two")], {})
    assert tools_of(usual, [other])[0].safe is None
    same = CrashEvidence([first, LedgerCall(2, RUN, "a", 2, "read", "read", "x"), End(2, RUN, "a", 2, "one")], {})
    assert tools_of(usual, [same])[0].safe is True
    failed = CrashEvidence(
        [first, LedgerCall(2, RUN, "a", 2, "read", "read", "x"), End(2, RUN, "a", 2, error="no")], {}
    )
    assert tools_of(usual, [failed])[0].failed == 1
    often = CrashEvidence([first, End(1, RUN, "a", 1, error="no")], {})
    assert tools_of(often, [failed])[0].failed == 0


def test_a_point_that_was_not_reached_was_not_tried() -> None:
    """E1: a run that goes otherwise than the undisturbed one has fewer moments; without a death nothing was shown."""
    failing = [ConnectionError("only the very first time")]

    @rerail.tool
    def moody() -> int:
        if failing:
            raise failing.pop()
        return 1

    settings = {"retry": {"backoff_base": 0.01, "jitter": False}}
    counts = crash_in_process({"steps": [{"id": "a", "tool": "moody"}]}, lambda: [moody], settings).counts()
    assert counts["not_reached"] > 0
    assert counts["tried"] == counts["died"] == counts["points"] - counts["not_reached"]


def test_no_point_reached_is_no_pass() -> None:
    """E1: where no process died nothing was shown, and the report says so."""
    fresh = [True]

    @rerail.tool
    def moody() -> int:
        if fresh:
            fresh.clear()
            raise ConnectionError("only the first time")
        return 1

    settings = {"retry": {"backoff_base": 0.01, "jitter": False}}
    plan = {"steps": [{"id": "a", "tool": "moody"}]}
    reports = []
    for seed in range(20):
        fresh[:] = [True]
        reports.append(crash_in_process(plan, lambda: [moody], settings, points=1, seed=seed))
    assert {report.counts()["tried"] for report in reports} == {0, 1}, "the last moments are those of a retry"
    for report in reports:
        tried = bool(report.counts()["tried"])
        assert (report.tested, report.ok, report.broken) == (tried, tried, ())
        assert (report.to_dict()["tested"], report.to_dict()["ok"]) == (tried, tried)


HANGING = """
import os, pathlib, subprocess, time
import rerail


@rerail.tool
def hang() -> int:
    child = subprocess.Popen(["sleep", "1000"])
    pathlib.Path({file!r}).write_text(str(child.pid))
    time.sleep(1000)
    return 1
"""


async def test_a_process_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """X4: nothing that a tool started is left running behind the test."""
    tools, pid = tmp_path / "hanging.py", tmp_path / "pid"
    tools.write_text(HANGING.format(file=str(pid)))
    stage = _Stage(rerail.Plan.load({"steps": [{"id": "a", "tool": "hang"}]}), [str(tools)], rerail.Settings())
    stage.patience = 6.0
    seen = await stage.trial(tmp_path / "trial", 0)
    assert "6 s" in seen.problem
    for _ in range(100):
        if not psutil.pid_exists(int(pid.read_text())):
            return
        if psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE:
            return  # dead; nobody has asked for it yet
        await asyncio.sleep(0.05)
    pytest.fail("what the tool started is still there")


# -- Answers that are cut off ---------------------------------------------------------------------------------------


def cut_off(plan_step: dict[str, Any], make: Any) -> dict[str, Any]:
    found = crash_in_process({"steps": [{"id": "a", "tool": "pay", **plan_step}]}, make, QUICK, points=2)
    return {"ok": found.ok, **found.to_dict()["cut_off"]}


def paying(**options: Any) -> Any:
    """Makes one tool, anew for each trial."""

    def make() -> list[Any]:
        @rerail.tool(name="pay", **{"effect": "once", **options})
        async def pay() -> dict[str, int]:
            return {"paid": 1}

        return [pay]

    return make


def test_an_answer_cut_off_is_safe_in_doubt_doubled_or_wrong() -> None:
    """X4, E3: three different words, for what a tool of each kind comes to when its answer does not arrive."""
    looked = cut_off({}, paying(verify=lambda args: True))
    assert (looked["ok"], looked["safe"], looked["tried"]) == (True, ["pay"], 2)
    asked = cut_off({}, paying())
    assert (asked["ok"], asked["doubt"], asked["doubled"], asked["wrong"]) == (True, ["pay"], [], [])
    again = cut_off({}, paying(errors="not_done"))  # it is not: its effect comes before its error
    assert (again["ok"], again["doubled"]) == (False, ["pay"])
    unseen = cut_off({"critical": False, "retries": 0}, paying(errors="not_done"))
    assert (unseen["ok"], unseen["wrong"], unseen["doubled"]) == (False, ["pay"], [])
    repeated = cut_off({}, paying(effect="repeatable"))
    assert (repeated["ok"], repeated["safe"]) == (True, ["pay"])


def test_every_call_is_cut_off_in_both_ways(report: CrashReport) -> None:
    """X4: a call that ends well is a call point; an optional sample is drawn as crash points are."""
    assert {(cut.step, cut.kind) for cut in report.cuts} == {
        (step, kind) for step in ("price", "number", "pay", "post", "thank") for kind in ("exception", "reset")
    }
    assert {cut.step for cut in report.cuts if cut.came == "doubt"} == {"post", "thank"}
    assert report.harmed == ()
