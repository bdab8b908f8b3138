"""Processes that are stopped in the middle: Ctrl-C and kill -9 lose nothing and repeat nothing (E1, X5)."""

from __future__ import annotations

import signal
from typing import Any

from tests.cli.conftest import Place

STEPS: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "send"},
    {"id": "b", "tool": "hold", "args": {"name": "go.txt"}, "needs": ["a"]},
    {"id": "c", "tool": "send", "needs": ["b"]},
)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(place: Place) -> None:
    """E1: the run is left as a crash would leave it, the next command is named, and nothing done is done again."""
    process, run = place.begin(*STEPS, at="b")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert f"rerail resume {run}" in err
    assert "Traceback" not in err
    row = place("ls", "--json", code=0).json[0]
    assert (row["status"], row["interrupted"]) == ("running", True)
    place.touch("go.txt")
    place("resume", run, code=0)
    assert place.calls == ["a", "b", "b", "c"]  # the call under way was cut off, and b may be repeated


def test_kill_9_then_resume(place: Place) -> None:
    """E1, X5: after kill -9 the run shows as interrupted, says how to go on, and goes on without repeating anything."""
    process, run = place.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    shown = place("show", run, code=0).out
    assert "interrupted" in shown
    assert f"rerail resume {run}" in shown
    place.touch("go.txt")
    done = place("resume", run, "--json", code=0).json
    assert done["status"] == "completed"
    assert place.calls.count("a") == place.calls.count("c") == 1


def test_watching_an_interrupted_run_ends(place: Place) -> None:
    """A run whose owner died is not waited for for ever."""
    process, run = place.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "interrupted" in place("watch", run, code=1).out


def test_all_failed_takes_interrupted_runs_too(place: Place) -> None:
    """T4, T5: a run whose owner died counts as failed."""
    process, run = place.begin(*STEPS, at="b")
    process.send_signal(signal.SIGKILL)
    process.wait()
    place.touch("go.txt")
    rows = place("retry", "--all-failed", "--json", code=0).json
    assert [(row["run_id"], row["before"], row["status"]) for row in rows] == [(run, "interrupted", "completed")]
    assert place.calls.count("a") == 1


def test_ctrl_c_under_json_is_a_document(place: Place) -> None:
    """I7: even an interrupted command prints one document."""
    process = place.spawn("run", place.plan(*STEPS), "--tools", "toolbox.py", "--json")
    place.until(lambda: "b" in place.calls)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 130
    assert '"code": "INTERRUPTED"' in out
    assert "rerail resume" in out
