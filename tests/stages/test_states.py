"""A staged task that is paused, or in doubt: what `show`, `ls` and `retry` say and do, in real processes (T5)."""

from __future__ import annotations

import getpass
import os
import signal
import socket
from typing import Any

import pytest
from tests.cli.conftest import Place, here  # noqa: F401
from tests.cli.conftest import place as plain_place  # noqa: F401
from tests.workers.around import workers_in
from tests.workers.conftest import place  # noqa: F401

WHO = f"{getpass.getuser()}@{socket.gethostname()}"
HELD: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok", "stage": "extracting"},
    {"id": "b", "tool": "hold", "args": {"name": "go"}, "needs": ["a"], "stage": "writing"},
    {"id": "c", "tool": "ok", "needs": ["b"], "stage": "checking"},
)
SENT = (HELD[0], {**HELD[1], "tool": "send", "args": {"until": "never"}}, HELD[2])


def begun(place: Place, *steps: dict[str, Any]) -> tuple[str, int]:  # noqa: F811
    """Start these steps in a worker, up to the second one; the run, and the worker's pid."""
    said = place("start", place.plan(*steps), "--tools", "toolbox.py", "--json", code=0).json
    place.until(lambda: place.calls == ["a", "b"])
    return said["run_id"], said["pid"]


@pytest.mark.parametrize("under_way", [True, False], ids=["calls under way", "at a stop"])
def test_paused(place: Place, under_way: bool) -> None:  # noqa: F811
    """T5, X7: it is shown as paused, by whom, and how to go on; a retry points to resume and does nothing."""
    run, _ = begun(place, *HELD)
    place("pause", run, code=0)
    if not under_way:
        place.touch("go")
        place.until(lambda: not workers_in(place.folder))
    shown = place("show", run, code=0).out
    assert "◷ paused" in shown and f"paused by {WHO}" in shown
    assert f"Next\n  rerail resume {run}\n" in shown
    assert "已暂停" in place("show", run, "--lang", "zh", code=0).out
    found = place("show", run, "--json", code=0).json
    assert (found["status"], found["shown_status"]) == ("running" if under_way else "waiting", "paused")
    listed = place("ls", code=0)
    assert f"◷ paused ({WHO})" in listed.out and f"rerail resume {run}" in listed.err
    for words in ((), ("--force",), ("--stage", "writing")):
        refused = place("retry", run, *words, "--json", code=2).json["error"]
        assert refused["code"] == ("RUN_LIVE" if under_way else "RUN_PAUSED"), words
        assert f"rerail {'watch' if under_way else 'resume'} {run}" in refused["hint"]
    assert place.calls == ["a", "b"]
    place.touch("go")
    place.until(lambda: not workers_in(place.folder))
    place("resume", run, code=0)
    after = place("show", run, code=0).out
    assert "✓ completed" in after and "paused" not in after
    assert place.calls == ["a", "b", "c"]


def test_in_doubt(place: Place) -> None:  # noqa: F811
    """T5, E3: it is shown as in doubt; a retry points to resolve, --force does not pass, --clean does, named."""
    run, pid = begun(place, *SENT)
    os.kill(pid, signal.SIGKILL)
    place.until(lambda: not workers_in(place.folder))
    place("resume", run, code=3)
    shown = place("show", run, code=0).out
    assert "◷ in doubt" in shown and f"rerail resolve {run} b --succeeded VALUE | --failed | --rerun" in shown
    assert place("show", run, "--json", code=0).json["shown_status"] == "in_doubt"
    assert "◷ in doubt" in place("ls", code=0).out
    assert "结果不明" in place("ls", "--lang", "zh", code=0).out
    for words in ((), ("--force",), ("--dry-run",), ("--stage", "writing")):
        refused = place("retry", run, *words, "--json", code=2).json["error"]
        assert (refused["code"], f"rerail resolve {run} b" in refused["hint"]) == ("RUN_IN_DOUBT", True), words
    assert place("retry", run, "--clean", "--json", code=2).json["error"]["code"] == "CONFIRM_NEEDED"
    assert "must not happen twice: b" in place("retry", run, "--clean", "--dry-run", code=0).out
    assert place.calls == ["a", "b"]
    place.touch("never")
    place("retry", run, "--clean", "--yes", "--wait", code=0)
    assert place.calls == ["a", "b", "a", "b", "c"]


def test_in_doubt_and_resolved(place: Place) -> None:  # noqa: F811
    """T5, E3: once somebody said what happened, it goes on; the effect is not repeated."""
    run, pid = begun(place, *SENT)
    os.kill(pid, signal.SIGKILL)
    place.until(lambda: not workers_in(place.folder))
    place("resume", run, code=3)
    place("resolve", run, "b", "--succeeded", '{"sent": "bob"}', code=0)
    place.until(lambda: place("show", run, "--json").json["status"] == "completed")
    assert place.calls == ["a", "b", "c"]
