"""What people read says what is so: one is not many, nothing is not counted, and a stop says what to do (V7, T12)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.conftest import Here

from rerail.i18n import at_once, say


def steps(count: int, tool: str = "ok", **rest: Any) -> list[dict[str, Any]]:
    return [{"id": f"s{number}", "tool": tool, **rest} for number in range(count)]


def check(here: Here, *given: dict[str, Any], code: int) -> str:
    return here("check", here.place.plan(*given), "--tools", "toolbox.py", code=code).out


def test_one_is_not_many(here: Here) -> None:
    """T12: counts and their nouns agree, wherever there may be one."""
    assert "ok: 1 step, depth 1, width 1" in check(here, *steps(1), code=0)
    assert "ok: 2 steps" in check(here, *steps(2), code=0)
    assert "1 fault:" in check(here, {"id": "a", "tool": "nope"}, code=2)
    run = here.run({"id": "a", "tool": "needs_file", "args": {"name": "there"}}, code=1)
    assert "1 step would run again" in here("retry", "--all-failed", "--dry-run", code=0).out
    assert f"retry of {run}: 1 of 1 step," in here("retry", run, "--dry-run", code=0).out
    here.place.touch("there")
    assert "rerun in 1 retry round\n" in here("retry", run, "-q", code=0).out
    assert "· retries used: 1/3 ·" in here("show", run, code=0).out
    log = here("logs", run, code=0).out
    assert "plan of 1 step (" in log and "; 1 step in the chain" in log and "1 step ended well" in log
    assert "; 1 step in the chain" in here("why", run, code=0).out
    assert say("refuse.run.retry_limit", run="r", retries=1, max_retries=1).startswith("run r was retried 1 time;")


def test_a_plain_failure_counts_no_skips(here: Here) -> None:
    """V7: where nothing was skipped, nothing is said about it."""
    alone = here("show", here.run({"id": "a", "tool": "fail"}, code=1), code=0).out
    assert "a (it broke)" in alone and "because of that" not in alone
    run = here.run({"id": "a", "tool": "fail"}, {"id": "b", "tool": "ok", "needs": ["a"]}, code=1)
    assert "1 step skipped because of that" in here("show", run, code=0).out


def test_an_unknown_tool_is_named_plainly(here: Here) -> None:
    """P5: the fault is one sentence, with the nearest tool."""
    said = check(here, {"id": "a", "tool": "sendd", "alternatives": ["okk"]}, code=2)
    assert "step 'a': unknown tool 'sendd'; did you mean 'send'?" in said
    assert "step 'a': alternatives: unknown tool 'okk'; did you mean 'ok'?" in said


def test_a_step_that_was_refused_has_no_attempt_and_no_retries(here: Here) -> None:
    """X7, V1: what was never called is said to be never called, and no retries are counted."""
    run = here.run({"id": "gate", "tool": "ok", "confirm": "Really?"}, code=3)
    said = here("confirm", run, "gate", "--refuse", "-q", code=1).out
    assert "ok, never called: " in said and "attempt 0" not in said
    run = here.run({"id": "gate", "tool": "ok", "confirm": True, "critical": False}, code=3)
    said = here("confirm", run, "gate", "--refuse", "-q", code=0).out
    assert "optional step skipped without a retry: " in said and "0 retries" not in said
    assert "可选步骤未重试即跳过：" in here("show", run, "--lang", "zh", code=0).out


def test_a_doubt_is_no_failure(here: Here) -> None:
    """E3: a step in doubt stands under a heading of its own."""
    step = {"id": "mail", "tool": "send", "args": {"until": "never"}, "timeout": 0.1}
    said = here("show", here.run(step, code=3), code=0).out
    assert "\nIn doubt\n  ? mail" in said and "Failed" not in said


def test_the_dry_run_shows_what_is_kept_as_it_is(here: Here) -> None:
    """R7: a step that was skipped is kept as skipped, not as a success."""
    optional = {"id": "ad", "tool": "fail", "critical": False}
    run = here.run(optional, {"id": "good", "tool": "ok"}, {"id": "bad", "tool": "fail"}, code=1)
    assert "Kept\n  ⊘ ad\n  ✓ good\n" in here("retry", run, "--dry-run", code=0).out


def test_a_large_plan_has_no_table_without_rows(here: Here) -> None:
    """Of a large plan that simply succeeded, the steps are counted, under no heading."""
    said = here("show", here.run(*steps(201), code=0), code=0).out
    assert "201 steps not shown" in said
    assert "tool" not in said


def test_a_breaker_says_what_it_is(here: Here) -> None:
    """H4, V7: in words, with what to do; and no count of what never started if all of it did."""
    words = ("--set", "run.concurrency=1", "--set", "retry.max_retry_rounds=0", "--json")
    run = str(here("run", here.place.plan(*steps(3, "fail")), "--tools", "toolbox.py", *words, code=1).json["run_id"])
    said = here("show", run, code=0).out
    why = "too many different steps failed in a row (reflection.max_consecutive_failures)"
    assert f"stopped early, {why}; failed: s0 (it broke), s1" in said
    assert "0 of 3" not in said and "BREAKER_OPEN" not in said.splitlines()[-1]
    assert "Stopped early\n  3 different steps failed in a row with no success between" in said
    assert "fix the cause, then retry" in said and "reflection.max_consecutive_failures = 3" in said
    assert f"no more steps are started: {why} (s0, s1, s2)" in here("why", run).out
    assert "连续失败的不同步骤过多" in here("logs", run, "--lang", "zh", code=0).out
    last = {"id": "last", "tool": "ok", "needs": [{"step": "s2", "when": "done"}]}
    plan = here.place.plan(*steps(3, "fail"), last)
    run = str(here("run", plan, "--tools", "toolbox.py", *words, code=1).json["run_id"])
    assert "1 of 4 steps never started" in here("show", run, code=0).out


def test_a_budget_says_what_it_is(here: Here) -> None:
    """H4: which budget stopped the run, what it had left, and what to do."""
    plan = here.place.plan({"id": "a", "tool": "ok"}, {"id": "b", "tool": "ok", "needs": ["a"]})
    said = here("run", plan, "--tools", "toolbox.py", "--set", "run.max_attempts=1", "-q", code=1).out
    assert "stopped early, a budget of the run allows no more calls; 1 of 2 steps never started" in said
    assert "max_attempts: 1 of 1 used (run.max_attempts = 1): raise it with --set, then retry" in said
    run = here("ls", "--json").json[0]["run_id"]
    assert f"rerail retry {run} --set run.max_attempts=N --dry-run" in said
    assert f"rerail retry {run} --dry-run --set run.max_attempts=N" in here("why", run).out
    for look in ("--dry-run", "--force"):
        refused = here("retry", run, look, code=2).err
        assert f"a retry of run {run} would call nothing: max_attempts: 1 of 1 used" in refused
    assert here("retry", run, "--set", "run.max_attempts=2", code=0)


@pytest.mark.parametrize(("seconds", "now"), [(0.0, True), (0.0004, True), (0.001, False), (2.0, False)])
def test_no_wait_is_at_once(seconds: float, now: bool) -> None:
    """Nobody waits 0 ms."""
    assert at_once(seconds) is now


def test_a_retry_without_a_wait_is_at_once(here: Here) -> None:
    """H3: as the log and the story tell it."""
    plan = here.place.plan({"id": "a", "tool": "fail", "args": {"category": "transient_error"}, "retries": 1})
    run = here("run", plan, "--tools", "toolbox.py", "--json", "-q", code=1).json["run_id"]
    assert "retry 1 of 1 at once (0 left after that)" in here("logs", run, code=0).out
    assert "retry 1 of 1 at once (0 left after that)" in here("why", run, "a", code=0).out
