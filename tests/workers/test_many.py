"""All that failed, done by a few workers: many runs, workers that die, Ctrl-C in the middle (T4)."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from typing import Any

from tests.cli.conftest import Here, Place
from tests.workers.around import status, workers_in

from rerail.adapters.tools.loading import load_tools
from rerail.api import Engine

MANY = int(os.environ.get("RERAIL_MANY", "50"))
SETTINGS: dict[str, Any] = {
    "reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}, "store": {"durability": "normal"},
}  # fmt: skip

Plan = dict[str, Any]


def mendable(*more: dict[str, Any], **rest: Any) -> Plan:
    """A plan that fails until there is a file, and says which process mended it."""
    steps = [{"id": "a", "tool": "ok"}, {"id": "w", "tool": "whose", "needs": ["a"]}]
    return {"objective": "one of many", "steps": [*steps, *more], **rest}


def failed(place: Place, *plans: Plan) -> list[str]:
    """Runs of these plans, made without starting a process for each."""
    file = str(place.folder / "toolbox.py")

    async def make() -> list[str]:
        url = f"sqlite:///{place.folder}/.rerail/runs.db"
        async with Engine(url, load_tools(file), SETTINGS, origin=[file]) as engine:
            return [(await engine.run(plan)).run_id for plan in plans]

    return asyncio.run(make())


def retry_all(place: Place, *words: str) -> tuple[int, dict[str, Any], str]:
    """Retry all; returns the exit code, the rows by run, and what was said on the way."""
    process = place.spawn("retry", "--all-failed", "--json", *words)
    out, err = process.communicate(timeout=MANY * 2 + 60)
    assert "Traceback" not in err, err
    return process.returncode, {row["run_id"]: row for row in json.loads(out)}, err


def test_all_failed(place: Place) -> None:
    """T4: every failed run is retried by a few processes, each of which does many; each is told of."""
    runs = failed(place, *[mendable() for _ in range(MANY)])
    place.touch("fix")
    code, rows, err = retry_all(place, "--jobs", "3")
    assert code == 0
    assert list(rows) == runs
    assert {row["status"] for row in rows.values()} == {"completed"}
    assert f"{MANY} of {MANY} runs done" in err
    assert place.calls.count("w") == 2 * MANY and place.calls.count("a") == MANY
    some = [place("show", run, "--output", "w").out for run in runs[:: max(1, MANY // 8)]]
    assert 1 <= len(set(some)) <= 3  # processes, by their pids
    assert not workers_in(place.folder)
    assert retry_all(place)[1] == {}


def test_a_worker_that_dies_loses_its_run_alone(here: Here) -> None:
    """T4: it is replaced, the rest goes on; the worst decides the exit code; what died can be retried."""
    deadly = mendable({"id": "d", "tool": "die", "needs": ["w"]})
    again = {"steps": [{"id": "x", "tool": "fail"}]}
    permanent = {"steps": [{"id": "x", "tool": "stubborn"}]}
    runs = failed(here.place, mendable(), deadly, mendable(), again, deadly, permanent, mendable())
    here.place.touch("fix")
    code, rows, _ = retry_all(here.place, "--jobs", "1")
    assert code == 1
    ends = [(rows[run]["status"], rows[run]["exit_code"]) for run in runs]
    good, dead = ("completed", 0), ("interrupted", 1)
    assert ends == [good, dead, good, ("failed", 1), dead, ("failed", 2), good]
    assert "died (status 9)" in rows[runs[1]]["reason"]
    assert "--force" in rows[runs[5]]["reason"]
    assert status(here, runs[1]) == "interrupted"
    here.place.touch("cured")
    table = here("retry", "--all-failed", "--set", "worker.jobs=2", code=1)
    assert runs[1] in table.out and runs[0] not in table.out
    assert status(here, runs[1]) == status(here, runs[4]) == "completed"
    assert here.place.calls.count("a") == 5


def test_a_run_that_somebody_else_mended_meanwhile_is_no_failure(here: Here) -> None:
    """T4: two retry everything at once; what the other one completed is told as completed."""
    held = mendable({"id": "h", "tool": "hold", "args": {"name": "go"}, "needs": ["w"]})
    first, second = failed(here.place, held, mendable())
    here.place.touch("fix")
    process = here.place.spawn("retry", "--all-failed", "--json", "--jobs", "1")
    here.place.until(lambda: here.place.calls.count("h") == 1)
    here("retry", second, "--wait", code=0)
    here.place.touch("go")
    out, err = process.communicate(timeout=60)
    rows = {row["run_id"]: (row["status"], row["exit_code"]) for row in json.loads(out)}
    assert rows == {first: ("completed", 0), second: ("completed", 0)} and process.returncode == 0, err


def test_a_notice_that_takes_its_time_keeps_no_run_waiting(here: Here) -> None:
    """T4, T10: the worker goes on with the next run; it stays until everybody was told, and that is on record."""
    runs = failed(here.place, *[mendable() for _ in range(4)])
    here.place.touch("fix")
    folder = here.place.folder
    wait = f"echo x >> {folder}/told; while [ ! -e {folder}/heard ]; do sleep 0.05; done"
    setting = "notify.command=" + json.dumps(["sh", "-c", wait])
    code, rows, err = retry_all(here.place, "--jobs", "1", "--set", setting, "--set", "notify.timeout=100")
    assert code == 0 and [rows[run]["status"] for run in runs] == ["completed"] * 4, err
    here.place.until(lambda: (folder / "told").read_text().count("x") == 4)
    here.place.touch("heard")
    here.place.until(lambda: not workers_in(folder))
    for run in runs:
        told = [one for one in here("logs", run, "--json", code=0).json if one["type"] == "notified"]
        assert [(one["ok"], one["about"]) for one in told] == [(True, "done")]


def test_follow_ups_are_included(here: Here) -> None:
    """T4, T6: a failed follow-up of a completed run is retried; one that a retry starts is driven to its end."""
    child = {"objective": "child", "steps": [{"id": "f", "tool": "needs_file", "args": {"name": "more"}}]}
    parent, late = failed(
        here.place, {"steps": [{"id": "p", "tool": "ok"}], "follow_up": child}, mendable(follow_up=child)
    )
    here.place.until(lambda: len(here("ls", "--json", code=0).json) == 3)
    here.place.touch("fix")
    _, rows, _ = retry_all(here.place)
    assert parent not in rows and rows[late]["status"] == "completed" and len(rows) == 2
    here.place.touch("more")
    code, rows, _ = retry_all(here.place)
    assert code == 0 and len(rows) == 2
    assert {row["status"] for row in here("ls", "--json", code=0).json} == {"completed"}


def test_what_is_only_looked_at_starts_nothing(here: Here) -> None:
    """T4, R7: --dry-run shows each; --clean wants --yes, and then starts over."""
    (run,) = failed(here.place, mendable())
    called = here.place.calls
    (row,) = here("retry", "--all-failed", "--dry-run", "--json", code=0).json
    assert [one["step"] for one in row["preview"]["rerun"]] == ["w"]
    assert here("retry", "--all-failed", "--clean", "--json", code=2).json["error"]["code"] == "CONFIRM_NEEDED"
    assert here.place.calls == called
    here.place.touch("fix")
    here("retry", "--all-failed", "--clean", "--yes", code=0)
    assert status(here, run) == "completed" and here.place.calls == ["a", "w"] * 2


def test_ctrl_c_ends_the_workers(here: Here) -> None:
    """T4: no more runs are handed out; those under way can be resumed, the others are as they were."""
    holding = mendable({"id": "h", "tool": "hold", "args": {"name": "go"}, "needs": ["w"]})
    runs = failed(here.place, mendable(), *[holding for _ in range(4)])
    here.place.touch("fix")
    process = here.place.spawn("retry", "--all-failed", "--jobs", "2")
    here.place.until(lambda: here.place.calls.count("h") == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert not workers_in(here.place.folder)
    ends = [status(here, run) for run in runs]
    assert sorted(ends) == ["completed", "failed", "failed", "interrupted", "interrupted"]
    assert runs[0] in out
    for run, end in zip(runs, ends, strict=True):
        assert (f"rerail resume {run}" in err) is (end == "interrupted")
    here.place.touch("go")
    assert retry_all(here.place)[0] == 0
    assert here.place.calls.count("w") == 2 * len(runs)


def test_the_parent_is_killed(here: Here) -> None:
    """T4, E1: the workers end the runs that they are on, and no other; none stays."""
    holding = mendable({"id": "h", "tool": "hold", "args": {"name": "go"}, "needs": ["w"]})
    runs = failed(here.place, *[holding for _ in range(4)])
    here.place.touch("fix")
    process = here.place.spawn("retry", "--all-failed", "--jobs", "2")
    here.place.until(lambda: here.place.calls.count("h") == 2)
    process.kill()
    process.wait()
    here.place.touch("go")
    here.place.until(lambda: not workers_in(here.place.folder))
    assert sorted(status(here, run) for run in runs) == ["completed", "completed", "failed", "failed"]


def test_a_tool_that_goes_elsewhere_takes_nobody_along(place: Place) -> None:
    """T4: the next run of the same worker finds its store and its files where they were."""
    wander = {"id": "z", "tool": "wander", "needs": ["w"]}
    failed(place, mendable(wander), mendable(wander), mendable(wander))
    place.touch("fix")
    code, rows, _ = retry_all(place, "--jobs", "1")
    assert code == 0 and [row["status"] for row in rows.values()] == ["completed"] * 3


def test_progress_on_a_terminal(place: Place) -> None:
    """T4: one line that is drawn again, then the table."""
    failed(place, mendable(), mendable())
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "rerail.cli", "retry", "--all-failed"]
    process = subprocess.Popen(words, cwd=place.folder, env=place.environ, stdin=theirs, stdout=theirs, stderr=theirs)
    place.started.append(process)  # type: ignore[arg-type]  # closed with the others
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # the other end is gone
        pass
    os.close(ours)
    assert process.wait(20) == 1
    assert b"0 of 2 runs done" in seen and b"2 of 2 runs done" in seen and b"one of many" in seen
