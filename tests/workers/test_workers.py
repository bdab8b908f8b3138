"""Runs that go on by themselves: workers that outlive whoever started them, and the logs they write (T8, T9)."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Here, Place
from tests.workers.around import STAGED, gone, log_of, row, start, status, workers_in

COMMAND = [sys.executable, "-m", "rerail.cli"]
HOLDING = ({"id": "a", "tool": "ok"}, {"id": "b", "tool": "hold", "args": {"name": "go"}, "needs": ["a"]})


def test_start_leaves_a_run_to_a_worker(here: Here) -> None:
    """T8, T4: the pid and the log are told, the exit code is 0, and the run goes on in a session of its own."""
    said = start(here, *HOLDING)
    assert set(said) == {"run_id", "pid", "log", "detached"} and said["detached"]
    here.place.until(lambda: "b" in here.place.calls)
    assert os.getsid(said["pid"]) == said["pid"] != os.getsid(0)
    owner = row(here.place, said["run_id"])
    assert (owner["pid"], owner["worker"]) == (said["pid"], 1)
    here.place.touch("go")
    here.place.until(lambda: gone(said["pid"]))
    assert status(here, said["run_id"]) == "completed"
    assert row(here.place, said["run_id"])["host"] is None


def test_people_are_told_how_to_follow(here: Here) -> None:
    """T8: the answer names the process, and the command that shows its log; in their language."""
    here.place.touch("go")
    plan = here.place.plan(*HOLDING)
    said = here("start", plan, "--tools", "toolbox.py", "--store", ".rerail/runs.db", code=0)
    assert "continues in worker process " in said.out
    assert f"rerail logs {said.out.split()[1]} --tail 50 --store .rerail/runs.db" in said.err
    assert "由工作进程" in here("start", plan, "--tools", "toolbox.py", "--lang", "zh", code=0).out


def test_start_can_wait(here: Here) -> None:
    """T8: --wait stays attached, as run does; nobody is left behind."""
    here.place.touch("go")
    found = here("start", here.place.plan(*HOLDING), "--tools", "toolbox.py", "--wait", "--json", code=0).json
    assert found["status"] == "completed"
    assert not workers_in(here.place.folder)


def test_a_plan_from_stdin(place: Place) -> None:
    """T8: what was typed reaches the worker."""
    text = "objective: typed\nsteps:\n  - {id: a, tool: ok}\n"
    said = place("start", "-", "--tools", "toolbox.py", "--json", given=text, code=0).json
    place.until(lambda: gone(said["pid"]))
    assert place("show", said["run_id"], "--json").json["objective"] == "typed"


def test_what_is_refused_is_refused_as_ever(here: Here) -> None:
    """P5, T4: faults are listed, with 2; no run was made, no folder, and no process is left."""
    plan = here.place.plan({"id": "a", "tool": "nope"}, {"id": "b", "tool": "hold", "args": {"nam": 1}})
    refused = here("start", plan, "--tools", "toolbox.py", "--json", code=2).json["error"]
    assert refused["code"] == "PLAN_INVALID" and len(refused["faults"]) >= 2
    told = here("start", plan, "--tools", "toolbox.py", code=2).err
    assert "unknown tool 'nope'" in told and told.startswith("error: ")
    assert "步骤 'a'：" in here("start", plan, "--tools", "toolbox.py", "--lang", "zh", code=2).err
    assert here("ls", "--json", code=0).json == []
    assert not list(here.place.folder.rglob("worker.log"))
    here.place.until(lambda: not workers_in(here.place.folder))


USAGE = [
    ("retry", "x", "--wait", "--detach"),
    ("retry", "--all-failed", "--detach"),
    ("retry", "--all-failed", "--take-over"),
    ("retry", "--all-failed", "--jobs", "0"),
    ("retry", "x", "--jobs", "2"),
    ("start", "plan.json", "--tools", "toolbox.py", "--store", "memory://"),
    ("start", "nothing.yaml"),
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_what_does_not_go_together(here: Here, words: tuple[str, ...]) -> None:
    """T4: 2, with a sentence, and nothing is begun."""
    here.place.plan({"id": "a", "tool": "ok"})
    found = here(*words, code=2)
    assert found.out == "" and found.err.startswith("error: ")
    assert not workers_in(here.place.folder) and here.place.calls == []


def test_a_worker_that_dies_before_it_begins(here: Here) -> None:
    """T8, E1: the launching command says so with the tail of what it printed, and 1; the run is there to be resumed."""
    deadly = """
        import os
        import rerail
        TOOLS = [rerail.tool(lambda: 1, name="nothing")]
        if os.getsid(0) == os.getpid() and not os.path.exists("cured"):
            print("about to fall", flush=True)
            os._exit(7)
    """
    (here.place.folder / "deadly.py").write_text(textwrap.dedent(deadly))
    plan = here.place.plan({"id": "a", "tool": "ok"})
    died = here("start", plan, "--tools", "toolbox.py", "--tools", "deadly.py", "--json", code=1).json["error"]
    assert died["code"] == "WORKER_FAILED"
    assert "status 7" in died["message"] and "about to fall" in died["message"]
    (run,) = [one["run_id"] for one in here("ls", "--json", code=0).json]
    assert f"rerail resume {run}" in died["hint"]
    assert status(here, run) == "interrupted" and row(here.place, run)["host"] is None and here.place.calls == []
    here.place.touch("cured")
    assert here("resume", run, "--json", code=0).json["status"] == "completed" and here.place.calls == ["a"]


def test_pipelines_detach_and_others_stay(here: Here) -> None:
    """T8: retry and confirm leave a plan with stages to a worker; --wait and --detach choose."""
    run = here.run(*STAGED, code=1)
    here.place.touch("fix")
    here.place.touch("go")
    said = here("retry", run, "--json", code=0).json
    assert said["run_id"] == run and said["pid"]
    here.place.until(lambda: gone(said["pid"]))
    assert here.place.calls == ["a", "b", "b", "c"]
    plain = here.run({"id": "x", "tool": "needs_file", "args": {"name": "more"}}, code=1)
    assert here("retry", plain, "--json", code=1).json["status"] == "failed"
    assert here("retry", plain, "--detach", "--json", code=0).json["detached"]
    waited = here("retry", run, "--step", "c", "--force", "--wait", "--json", code=0).json
    assert waited["status"] == "completed"


def test_a_refused_retry_is_told_by_the_worker(here: Here) -> None:
    """T4: limits and errors that cannot be mended refuse a detached retry as they refuse any; --force says so."""
    run = here.run({"id": "a", "tool": "stubborn", "stage": "s"}, code=1)
    refused = here("retry", run, "--json", code=2).json["error"]
    assert refused["code"] == "NOT_RETRYABLE" and "--force" in refused["hint"]
    passed = here("retry", run, "--force", code=0)
    assert "cannot be mended by trying again (passed by --force)" in passed.out and "pid: " in passed.out
    here.place.until(lambda: here("show", run, "--json").json["status"] == "failed")  # else it is at work, and refuses
    asked = here("retry", run, "--clean", "--json", code=2).json["error"]
    assert asked["code"] == "CONFIRM_NEEDED"


def test_a_gate_ends_the_worker_and_confirm_starts_one(here: Here) -> None:
    """T8, X7: nobody waits for a person in vain; the confirmation sets a worker going again."""
    steps = (
        {"id": "a", "tool": "ok", "stage": "one"},
        {"id": "g", "tool": "ok", "confirm": "Really?", "needs": ["a"], "stage": "two"},
        {"id": "z", "tool": "ok", "confirm": True, "needs": ["g"], "stage": "three"},
    )
    first = start(here, *steps)
    here.place.until(lambda: gone(first["pid"]))
    run = first["run_id"]
    assert status(here, run) == "waiting" and here.place.calls == ["a"]
    second = here("confirm", run, "g", "--json", code=0).json
    assert second["pid"] != first["pid"]
    here.place.until(lambda: gone(second["pid"]))
    assert here.place.calls == ["a", "g"]
    assert here("confirm", run, "--wait", "--json", code=0).json["status"] == "completed"
    refused = here("confirm", run, "--json", code=2).json["error"]
    assert refused["code"] == "RUN_AT_REST"


def test_a_follow_up_is_driven_by_the_same_worker(here: Here) -> None:
    """T6, T8: a worker ends when nothing is left to drive; to people the two are one task, each with its own words."""
    child = {"objective": "child", "steps": [{"id": "f", "tool": "chat", "args": {"words": "the child speaks"}}]}
    said = start(here, {"id": "a", "tool": "chat", "stage": "s"}, follow_up=child)
    here.place.until(lambda: gone(said["pid"]))
    rows = here("ls", "--json", code=0).json
    assert [(one["status"], one["parent"]) for one in rows] == [("completed", said["run_id"]), ("completed", None)]
    assert here.place.calls == ["a", "f"]
    assert "the child speaks" in here("logs", rows[0]["run_id"], code=0).out
    own = here("logs", said["run_id"], code=0).out
    assert own.index("hello") < own.index("the child speaks")
    assert "hello" not in here("logs", rows[0]["run_id"], code=0).out


def test_named_steps_go_to_the_living_worker(here: Here) -> None:
    """T5, X7: a retry of a step of a live run is the owner's to do; no second worker is started."""
    steps = ({"id": "x", "tool": "needs_file", "args": {"name": "fix"}, "stage": "s"}, *HOLDING)
    said = start(here, *steps)
    here.place.until(lambda: {"x", "b"} <= set(here.place.calls))
    here.place.until(lambda: here("show", said["run_id"], "--json").json["steps"]["x"]["status"] == "failed")
    here.place.touch("fix")
    handed = here("retry", said["run_id"], "--step", "x", "--json", code=0).json
    assert str(handed["handed_to"]).endswith(f":{said['pid']}")
    assert workers_in(here.place.folder) == [said["pid"]]
    here.place.touch("go")
    here.place.until(lambda: gone(said["pid"]))
    assert status(here, said["run_id"]) == "completed" and here.place.calls.count("x") == 2


def test_what_a_worker_dies_of_is_in_its_log(here: Here) -> None:
    """T9: even words that nobody caught."""
    said = start(here, {"id": "d", "tool": "die"})
    here.place.until(lambda: gone(said["pid"]))
    assert status(here, said["run_id"]) == "interrupted"
    assert "d  calls die" in log_of(said)


def test_ctrl_c_before_the_worker_has_begun(here: Here) -> None:
    """T8: the worker that was waited for ends with its command, and no run is there."""
    (here.place.folder / "lazy.py").write_text("import pathlib, time\npathlib.Path('up').touch()\ntime.sleep(60)\n")
    launcher = here.place.spawn("start", here.place.plan({"id": "a", "tool": "ok"}), "--tools", "lazy.py")
    here.place.until((here.place.folder / "up").exists)
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=6)
    assert launcher.returncode == 130
    assert not workers_in(here.place.folder) and here("ls", "--json", code=0).json == []


def test_a_follow_up_that_was_never_started(here: Here) -> None:
    """T6: retrying its parent starts it, and stays with it; nobody is said to have taken it."""
    child = {"objective": "child", "steps": [{"id": "f", "tool": "ok"}]}
    plan = here.place.plan({"id": "a", "tool": "ok"}, follow_up=child)
    run = here("run", plan, "--tools", "toolbox.py", "--json", code=0).json["run_id"]
    for way, code in (("--wait", 0), ("--detach", 0)):
        with contextlib.closing(sqlite3.connect(here.place.folder / ".rerail" / "runs.db")) as database:
            database.execute("DELETE FROM events WHERE run LIKE '%-f%'")
            database.execute("DELETE FROM runs WHERE parent = ?", (run,))
            database.commit()
        assert here("retry", run, way, "--json", code=code).json["run_id"].startswith(f"{run}-f")
        here.place.until(lambda: not workers_in(here.place.folder))
        assert here("ls", "--json", code=0).json[0]["status"] == "completed"
    assert here.place.calls == ["a", "f", "f", "f"]


def test_people_act_on_a_run_that_a_worker_drives(here: Here) -> None:
    """X7, T7: pause, resume and cancel reach the worker through the store; it ends when there is nothing to drive."""
    said = start(here, *HOLDING, {"id": "c", "tool": "ok", "needs": ["b"]})
    run = said["run_id"]
    here.place.until(lambda: "b" in here.place.calls)
    here("pause", run, code=0)
    here.place.touch("go")
    here.place.until(lambda: gone(said["pid"]))
    assert status(here, run) == "waiting" and here.place.calls == ["a", "b"]
    resumed = here("resume", run, "--detach", "--json", code=0).json
    here.place.until(lambda: gone(resumed["pid"]))
    assert status(here, run) == "completed" and here.place.calls == ["a", "b", "c"]
    (here.place.folder / "go").unlink()
    again = start(here, *HOLDING)
    here.place.until(lambda: here.place.calls.count("b") >= 2)
    assert f":{again['pid']}" in here("cancel", again["run_id"], code=0).out
    here.place.until(lambda: gone(again["pid"]))
    assert status(here, again["run_id"]) == "cancelled"


# -- What a worker survives ---------------------------------------------------------------------------------------


def test_the_terminal_is_closed(place: Place) -> None:
    """T8: the window goes, the worker stays."""
    plan = place.plan(*HOLDING)
    pid, ours = pty.fork()
    if not pid:
        os.chdir(place.folder)
        os.execvpe(sys.executable, [*COMMAND, "start", plan, "--tools", "toolbox.py"], place.environ)
    seen = b""
    while b"worker process" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)  # everybody in that terminal's session is hung up
    os.waitpid(pid, 0)
    place.until(lambda: "b" in place.calls)
    (worker,) = workers_in(place.folder)
    os.kill(worker, signal.SIGHUP)
    time.sleep(0.3)
    assert workers_in(place.folder) == [worker]
    place.touch("go")
    place.until(lambda: gone(worker))
    assert place("ls", "--json").json[0]["status"] == "completed"


def test_nobody_reads_what_is_said(place: Place) -> None:
    """T8: the launching command's stdout and stderr are closed; the worker does not care."""
    plan = place.plan(*HOLDING)
    words = " ".join([*COMMAND, "start", plan, "--tools", "toolbox.py"])
    subprocess.run(["sh", "-c", f"{words} >&- 2>&-"], cwd=place.folder, env=place.environ, timeout=30)
    place.until(lambda: "b" in place.calls)
    place.touch("go")
    place.until(lambda: not workers_in(place.folder))
    assert place("ls", "--json").json[0]["status"] == "completed"


@pytest.mark.parametrize("after", [0.0, 0.15, 0.3, 0.6])
def test_the_launcher_is_killed(place: Place, after: float) -> None:
    """T8, E1: killed right after the spawn or later, there is a run that completes, or none at all; no half of one."""
    place.touch("go")
    launcher = place.spawn("start", place.plan(*HOLDING), "--tools", "toolbox.py")
    place.until(lambda: bool(workers_in(place.folder)) or launcher.poll() is not None)
    time.sleep(after)
    launcher.kill()
    launcher.wait()
    place.until(lambda: not workers_in(place.folder))
    rows = place("ls", "--json").json
    assert [one["status"] for one in rows] in ([], ["completed"])
    assert place.calls == (["a", "b"] if rows else [])


QUEUED = """
import asyncio, os, sys
from rerail.adapters.tools.loading import load_tools
from rerail.api import Engine

async def main():
    file = os.path.abspath("toolbox.py")
    engine = Engine("sqlite:///.rerail/runs.db", load_tools(file), origin=[file])
    await engine.open()
    engine.internals.reserve()
    run = await engine.start("plan.json")
    assert engine.internals.reservation(run) and not engine.internals.drives(run)
    print(run, flush=True)
    os._exit(9)

asyncio.run(main())
"""


def test_the_launcher_is_killed_right_after_queuing(here: Here) -> None:
    """T8, E1: the run that no worker heard of is interrupted; it can be resumed, and other workers take it up."""
    here.place.touch("go")
    here.place.plan(*HOLDING)
    here("ls", code=0)
    (here.place.folder / ".rerail").mkdir(exist_ok=True)
    runs = []
    for _ in range(2):
        words, where = [sys.executable, "-c", QUEUED], here.place
        ended = subprocess.run(words, cwd=where.folder, env=where.environ, capture_output=True, text=True)
        assert ended.returncode == 9, ended.stderr
        runs.append(ended.stdout.strip())
    assert [status(here, run) for run in runs] == ["interrupted"] * 2 and here.place.calls == []
    assert here("resume", runs[0], "--json", code=0).json["status"] == "completed"
    said = here("worker", "--only", runs[1], "--tools", "toolbox.py", "--json", code=0).json
    assert (said["taken"], said["ended"]) == (1, {runs[1]: "completed"})
    assert here.place.calls == ["a", "b"] * 2


def test_two_launchers_at_once(here: Here) -> None:
    """T7, T8: one of them gets the run and launches a worker; the other is refused, and nothing is done twice."""
    run = here.run(*STAGED, code=1)
    here.place.touch("fix")
    launchers = [here.place.spawn("retry", run, "--json") for _ in range(2)]
    answers = [json.loads(launcher.communicate(timeout=40)[0]) for launcher in launchers]
    assert sorted(launcher.returncode for launcher in launchers) == [0, 2]
    refused, taken = sorted(answers, key=lambda answer: "pid" in answer)
    assert refused["error"]["code"] == "RUN_LIVE" and workers_in(here.place.folder) == [taken["pid"]]
    here.place.touch("go")
    here.place.until(lambda: gone(taken["pid"]))
    assert status(here, run) == "completed" and here.place.calls == ["a", "b", "b", "c"]


def test_a_reserved_run_is_no_other_workers(here: Here) -> None:
    """T7, T8: while its launcher waits for the worker, no other worker takes the run; `ps` shows no secret."""
    slow = """
        import os, time
        import rerail
        TOOLS = [rerail.tool(lambda: 1, name="nothing")]
        while os.getsid(0) == os.getpid() and not os.path.exists("loaded"):
            time.sleep(0.01)
    """
    (here.place.folder / "slow.py").write_text(textwrap.dedent(slow))
    plan = here.place.plan({"id": "a", "tool": "ok"})
    secret = ("--set", "notify.webhook=https://user:sesame-open-4711@127.0.0.1:9/hook")
    words = ("start", plan, "--tools", "toolbox.py", "--tools", "slow.py", "--json", *secret)
    launcher = here.place.spawn(*words)
    here.place.until(lambda: bool(workers_in(here.place.folder)))
    (worker,) = workers_in(here.place.folder)
    assert b"sesame" not in Path(f"/proc/{worker}/cmdline").read_bytes()
    assert b"sesame" not in Path(f"/proc/{worker}/environ").read_bytes()
    others = here("worker", "--until-idle", "--tools", "toolbox.py", "--json", code=0).json
    assert others["taken"] == 0 and here.place.calls == []
    here.place.touch("loaded")
    said = json.loads(launcher.communicate(timeout=40)[0])
    assert said["pid"] == worker
    here.place.until(lambda: gone(worker))
    assert status(here, said["run_id"]) == "completed" and here.place.calls == ["a"]
    notified = [one for one in here("logs", said["run_id"], "--json", code=0).json if one["type"] == "notified"]
    assert notified and "sesame" not in json.dumps(notified) + log_of(said)


def test_term_gives_a_call_under_way_its_time(here: Here) -> None:
    """T8, E3: a `once` call ends and is on record, the next step is left to the next worker."""
    steps = ({"id": "a", "tool": "send", "args": {"until": "go"}}, {"id": "b", "tool": "ok", "needs": ["a"]})
    said = start(here, *steps)
    here.place.until(lambda: "a" in here.place.calls)
    os.kill(said["pid"], signal.SIGTERM)
    here.place.until(lambda: "calls under way get 30 s to end" in log_of(said))
    assert not gone(said["pid"])
    here.place.touch("go")
    here.place.until(lambda: gone(said["pid"]))
    run = said["run_id"]
    assert (row(here.place, run)["host"], status(here, run)) == (None, "interrupted")
    again = here("resume", run, "--detach", "--json", code=0).json
    here.place.until(lambda: gone(again["pid"]))
    assert (status(here, run), here.place.calls) == ("completed", ["a", "b"])


def test_term_leaves_a_run_that_can_be_resumed(here: Here) -> None:
    """T8, E1: told twice, the call is cut off, the lease given back, a line logged; nothing done is repeated."""
    said = start(here, *HOLDING)
    here.place.until(lambda: "b" in here.place.calls)
    os.kill(said["pid"], signal.SIGTERM)
    here.place.until(lambda: "calls under way get 30 s to end" in log_of(said))
    os.kill(said["pid"], signal.SIGTERM)
    here.place.until(lambda: gone(said["pid"]))
    run = said["run_id"]
    assert row(here.place, run)["host"] is None
    assert status(here, run) == "interrupted"
    assert f"rerail resume {run}" in log_of(said).splitlines()[-1]
    here.place.touch("go")
    again = here("resume", run, "--detach", "--json", code=0).json
    here.place.until(lambda: gone(again["pid"]))
    assert status(here, run) == "completed"
    assert here.place.calls == ["a", "b", "b"]


def test_kill_9_is_noticed(here: Here) -> None:
    """T5, T7: ls and show say interrupted; retry takes the run over with a notice, and counts."""
    said = start(here, *HOLDING)
    here.place.until(lambda: "b" in here.place.calls)
    os.kill(said["pid"], signal.SIGKILL)
    here.place.until(lambda: gone(said["pid"]))
    run = said["run_id"]
    assert here("ls", "--json", code=0).json[0]["interrupted"]
    assert "interrupted" in here("show", run, code=0).out
    here.place.touch("go")
    found = here("retry", run, code=0)
    assert "is gone; its lease was taken over" in found.err
    shown = here("show", run, "--json", code=0).json
    assert (shown["status"], shown["retries"]) == ("completed", 1)
    assert here.place.calls == ["a", "b", "b"]


# -- The log ------------------------------------------------------------------------------------------------------


def test_the_log_is_appended_across_retries(here: Here) -> None:
    """T9: what an earlier worker wrote stays, word for word."""
    steps = ({"id": "p", "tool": "chat", "stage": "s"}, {**STAGED[1], "needs": ["p"]})
    first = start(here, *steps)
    here.place.until(lambda: gone(first["pid"]))
    before = log_of(first)
    assert "hello\n" in before and "below\n" in before and f"worker process {first['pid']} took" in before
    here.place.touch("fix")
    second = here("retry", first["run_id"], "--json", code=0).json
    here.place.until(lambda: gone(second["pid"]))
    assert second["log"] == first["log"]
    assert log_of(second).startswith(before) and f"worker process {second['pid']} took" in log_of(second)


def test_a_log_is_in_english_and_events_are_told_in_any_language(here: Here) -> None:
    """T9, T12: the log of a worker is text in one language; `logs` tells the events beside it in the reader's."""
    plan = here.place.plan({"id": "a", "tool": "chat", "args": {"words": "worker process 7 took run r up"}})
    said = here("start", plan, "--tools", "toolbox.py", "--lang", "zh", "--json", code=0).json
    here.place.until(lambda: gone(said["pid"]))
    log = log_of(said)
    assert f"worker process {said['pid']} took run {said['run_id']} up" in log and "succeeded in" in log
    assert not any("\u4e00" <= sign <= "\u9fff" for sign in log)
    told = here("logs", said["run_id"], "--lang", "zh", code=0).out
    assert f"worker process {said['pid']} took run {said['run_id']} up" in told and "启动任务" in told
    assert "worker process 7 took run r up" in told  # a tool's words stay as they are


def test_logs_show_what_was_printed_where_it_was_printed(here: Here) -> None:
    """T9, T11: a tool's words stand between the events of its call; --tail counts lines; --json is the events."""
    said = start(
        here, {"id": "p", "tool": "chat"}, {"id": "q", "tool": "chat", "args": {"words": "x\x1b[2J"}, "needs": ["p"]}
    )
    here.place.until(lambda: gone(said["pid"]))
    lines = here("logs", said["run_id"], code=0).out.splitlines()
    at = [
        next(n for n, line in enumerate(lines) if word in line) for word in ("p  calls", "hello", "p  succeeded", "x␛")
    ]
    assert at == sorted(at)
    assert [bool(lines[n].split()[0].startswith("+")) for n in at] == [True, False, True, False]  # nobody knows when
    assert here("logs", said["run_id"], "--tail", "3", code=0).out.splitlines() == lines[-3:]
    assert not [line for line in lines if " event " in line]
    events = here("logs", said["run_id"], "--json", code=0).json
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "hello" not in here("logs", said["run_id"], "--step", "p", code=0).out


def test_logs_follow_a_run_that_is_driven_elsewhere(here: Here) -> None:
    """T9, T11: events and words come as they happen, until the run is at rest."""
    said = start(here, *HOLDING, {"id": "p", "tool": "chat", "needs": ["b"]})
    here.place.until(lambda: "b" in here.place.calls)
    following = here.place.spawn("logs", said["run_id"], "--follow", "--tail", "2")
    assert following.stdout is not None
    assert "calls" in following.stdout.readline() + following.stdout.readline()
    here.place.touch("go")
    out, err = following.communicate(timeout=15)
    assert following.returncode == 0, err
    assert "hello" in out and "completed" in out
    assert out.count("b  succeeded") == 1


def test_following_ends(here: Here) -> None:
    """T11: Ctrl-C ends it and not the run; a run that nobody drives any more is not followed for ever."""
    said = start(here, *HOLDING)
    here.place.until(lambda: "b" in here.place.calls)
    following = here.place.spawn("logs", said["run_id"], "-f")
    assert following.stdout is not None and following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=10)
    assert following.returncode == 130 and not gone(said["pid"])
    following = here.place.spawn("logs", said["run_id"], "-f")
    assert following.stdout is not None and following.stdout.readline()
    os.kill(said["pid"], signal.SIGKILL)
    _, err = following.communicate(timeout=10)
    assert following.returncode == 1 and f"rerail resume {said['run_id']}" in err


def test_a_log_that_cannot_be_written_stops_nothing(place: Place) -> None:
    """T9: the run is worth more than its log."""
    (place.folder / ".rerail").mkdir()
    (place.folder / ".rerail" / "work").write_text("in the way")
    said = place("start", place.plan({"id": "a", "tool": "ok"}), "--tools", "toolbox.py", "--json", code=0).json
    place.until(lambda: gone(said["pid"]))
    assert place("show", said["run_id"], "--json").json["status"] == "completed"
    assert "completed" in place("logs", said["run_id"], code=0).out


def test_a_half_line_hides_nothing(tmp_path: Path) -> None:
    """T9: a tool that stops in the middle of a line keeps its words; another run's words are left out."""
    from rerail.engine.printed import LogReader
    from rerail.values.redaction import Scrub

    file = tmp_path / "worker.log"
    stamp = "2026-01-02T03:04:05.000006Z"
    file.write_text(
        f"early\n{stamp} event r: x\nhalf{stamp} worker r: said\n{stamp} event s: y\nforeign\n{stamp} event r: z\nend"
    )
    reader = LogReader(file, "r", Scrub())
    assert [(one.text, one.worker) for one in reader.read()] == [("early", False), ("half", False), ("said", True)]
    with file.open("a") as more:
        more.write(" of it\nrest")
    assert [one.text for one in reader.read()] == ["end of it"]
    assert [one.text for one in reader.read(last=True)] == ["rest"]


def test_json_of_a_detached_command_is_one_document(place: Place) -> None:
    """I7, T8: stdout holds the document and nothing else, whatever the tools print."""
    done = place("start", place.plan({"id": "a", "tool": "noisy"}), "--tools", "toolbox.py", "--json", code=0)
    said: dict[str, Any] = json.loads(done.out)
    assert "printed" not in done.out + done.err
    place.until(lambda: gone(said["pid"]))
    with contextlib.suppress(FileNotFoundError):
        assert "printed\n" in log_of(said)
