"""Processes that are stopped in the middle: Ctrl-C and kill -9 lose nothing and repeat nothing (E1, X5)."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import time
from typing import Any

import pytest
from tests.cli.conftest import Here

from rerail.i18n import span

STEPS: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "send"},
    {"id": "b", "tool": "hold", "args": {"name": "go.txt"}, "needs": ["a"], "retries": 1},
    {"id": "c", "tool": "send", "needs": ["b"]},
)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(here: Here) -> None:
    """E1: the run is left as a crash would leave it, the next command is named, and nothing done is done again."""
    process, run = here.begin(*STEPS, at="b")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert f"rerail resume {run}" in err
    assert "Traceback" not in err
    row = here("ls", "--json", code=0).json[0]
    assert (row["status"], row["interrupted"]) == ("running", True)
    here.place.touch("go.txt")
    here("resume", run, code=0)
    assert here.place.calls == ["a", "b", "b", "c"]  # the call under way was cut off, and b may be repeated


def test_sigterm_does_as_ctrl_c(here: Here) -> None:
    """E1, T7: a service manager's word is a person's; the code says which it was."""
    process, run = here.begin(*STEPS, at="b")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 143
    assert f"rerail resume {run}" in err
    assert "Traceback" not in err
    row = here("ls", "--json", code=0).json[0]
    assert (row["status"], row["interrupted"], row["owner"]) == ("running", True, None)  # it let go of the run
    here.place.touch("go.txt")
    here("resume", run, code=0)
    assert here.place.calls == ["a", "b", "b", "c"]


def test_kill_9_then_resume(here: Here) -> None:
    """E1, X5: after kill -9 the run shows as interrupted, says how to go on, and goes on without repeating anything."""
    process, run = here.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    shown = here("show", run, code=0).out
    assert "interrupted" in shown
    assert f"rerail resume {run}" in shown
    here.place.touch("go.txt")
    done = here("resume", run, "--json", code=0).json
    assert done["status"] == "completed"
    assert here.place.calls.count("a") == here.place.calls.count("c") == 1


def test_the_clock_of_an_interrupted_run_stands_still(here: Here) -> None:
    """V2: a run whose process is dead spends no time; what is shown ends with the last word of its history."""
    process, run = here.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    events = here("logs", run, "--json", code=0).json
    lived = events[-1]["at"] - events[0]["at"]
    time.sleep(lived + 1.0)
    seconds = here("show", run, "--json", code=0).json["exec"]["seconds"]["total"]
    assert seconds == pytest.approx(lived, abs=0.01)
    assert f"time: {span(seconds)} " in here("show", run, code=0).out
    assert f"time: {span(seconds)} " in here("watch", run, code=1).out


def test_watching_an_interrupted_run_ends(here: Here) -> None:
    """A run whose owner died is not waited for for ever."""
    process, run = here.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "interrupted" in here("watch", run, code=1).out


def test_all_failed_takes_interrupted_runs_too(here: Here) -> None:
    """T4, T5: a run whose owner died counts as failed."""
    process, run = here.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    here.place.touch("go.txt")
    rows = here("retry", "--all-failed", "--json", code=0).json
    assert [(row["run_id"], row["before"], row["status"]) for row in rows] == [(run, "interrupted", "completed")]
    assert here.place.calls.count("a") == 1


def test_ctrl_c_under_json_is_a_document(here: Here) -> None:
    """I7: even an interrupted command prints one document."""
    process = here.place.spawn("run", here.place.plan(*STEPS), "--tools", "toolbox.py", "--json")
    here.place.until(lambda: "b" in here.place.calls)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 130
    assert '"code": "INTERRUPTED"' in out
    assert "rerail resume" in out


def test_a_run_that_lost_its_store_stops(here: Here) -> None:
    """E4, T7: an owner that may not write any more stops with 1, says so, and reports no success."""
    process, run = here.begin(*STEPS, at="b")
    with contextlib.closing(sqlite3.connect(here.place.folder / ".rerail" / "runs.db")) as database:
        database.execute("UPDATE runs SET fence = fence + 1, host = NULL")
        database.commit()
    here.place.touch("go.txt")
    out, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "success" not in out
    assert "error: " in err
    assert f"rerail resume {run}" in err
    assert "Traceback" not in err


def test_ctrl_c_does_not_wait_for_a_thread(here: Here) -> None:
    """X4: a tool that blocks its thread cannot keep the process alive."""
    process, _ = here.begin({"id": "t", "tool": "block"}, at="t")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == 130
