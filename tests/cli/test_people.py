"""People act on a run from any process (X7, T7): the owner takes it, or the process that asks drives the run on."""

from __future__ import annotations

import json
import signal
from typing import Any

from tests.cli.conftest import Place

GATED: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok"},
    {"id": "gate", "tool": "ok", "needs": ["a"], "confirm": "Send it?"},
    {"id": "c", "tool": "ok", "needs": ["gate"]},
)
HELD: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "hold", "args": {"name": "go.txt"}},
    {"id": "b", "tool": "ok", "needs": ["a"]},
)


def test_confirm_in_another_process(place: Place) -> None:
    """X7, T7: one process runs to the gate and ends with 3; another confirms, and the run goes on to its end there."""
    plan = place.plan(*GATED)
    waiting = place("run", plan, "--tools", "toolbox.py", code=3)
    run = place.only()
    assert "Send it?" in waiting.out
    assert f"rerail confirm {run} gate" in waiting.out
    done = place("confirm", run, "--json", code=0).json
    assert done["status"] == "completed"
    assert place.calls == ["a", "gate", "c"]


def test_refuse(place: Place) -> None:
    """X7: a refused gate fails its step for good."""
    run = place.run(*GATED, code=3)
    done = place("confirm", run, "gate", "--refuse", "--json", code=1).json
    assert done["failed_steps"][0]["code"] == "CONFIRM_REFUSED"
    assert place.calls == ["a"]


def test_a_doubt_is_resolved_in_another_process(place: Place) -> None:
    """E3, T5: a `once` call whose answer was lost by kill -9 is never repeated unasked; a person says what happened."""
    steps = ({"id": "s", "tool": "send", "args": {"until": "never"}}, {"id": "b", "tool": "ok", "needs": ["s"]})
    process, run = place.begin(*steps, at="s")
    process.send_signal(signal.SIGKILL)
    process.wait()
    doubt = place("resume", run, code=3)
    assert f"rerail resolve {run} s --succeeded VALUE" in doubt.out
    assert place("retry", run, "--json", code=2).json["error"]["code"] == "RUN_IN_DOUBT"
    done = place("resolve", run, "s", "--succeeded", '{"sent": "bob"}', "--json", code=0).json
    assert done["steps"]["s"]["output"] == {"sent": "bob"}
    assert place.calls == ["s", "b"]


def test_a_doubt_is_rerun_or_failed(place: Place) -> None:
    """E3: --failed fails the step, --rerun calls it once more; a value may be plain text."""
    steps = ({"id": "s", "tool": "send", "args": {"until": "go.txt"}},)
    process, run = place.begin(*steps, at="s")
    process.send_signal(signal.SIGKILL)
    process.wait()
    place("resume", run, "--json", code=3)
    place("resolve", run, "s", "--failed", "--json", code=1)
    assert place.calls == ["s"]
    done = place("resolve", run, "s", "--succeeded", "-by hand-", "--json", code=0).json
    assert done["steps"]["s"]["output"] == "-by hand-"
    assert place.calls == ["s"]


def test_skip_reaches_a_live_run(place: Place) -> None:
    """X7, T7: the owner, another process, takes the wish and goes on; the asker only reports that."""
    process, run = place.begin(*HELD, at="a")
    found = place("skip", run, "a", "--reason", "not needed", "--json", code=0).json
    assert found["handed_to"].endswith(str(process.pid))
    assert process.wait(10) == 0
    assert place.calls == ["a", "b"]
    shown = place("show", run, "--json", code=0).json
    assert shown["steps"]["a"]["code"] == "SKIP_USER"
    assert shown["degraded"] is True


def test_a_live_run_is_not_taken(place: Place) -> None:
    """T7, T5: while its owner lives, a run can be neither resumed nor retried as a whole; what to do is said."""
    process, run = place.begin(*HELD, at="a")
    assert place("resume", run, "--json", code=2).json["error"]["code"] == "RUN_LIVE"
    assert place("retry", run, "--json", code=2).json["error"]["code"] == "RUN_LIVE"
    place.touch("go.txt")
    assert process.wait(10) == 0


def test_pause_and_resume_across_processes(place: Place) -> None:
    """X7, T5: pausing lets the call under way end and starts nothing more; resume goes on in another process."""
    process, run = place.begin(*HELD, at="a")
    assert "process" in place("pause", run, code=0).out
    place.touch("go.txt")
    assert process.wait(10) == 3
    assert place.calls == ["a"]
    done = place("resume", run, "--json", code=0).json
    assert done["status"] == "completed"
    assert place.calls == ["a", "b"]


def test_cancel_a_live_run(place: Place) -> None:
    """X7: the owner's call is cancelled, the run ends cancelled, its process says 1; cancelling itself worked."""
    process, run = place.begin(*HELD, at="a")
    place("cancel", run, code=0)
    assert process.wait(10) == 1
    assert place("show", run, "--json", code=0).json["status"] == "cancelled"
    assert place.calls == ["a"]


def test_cancel_a_run_that_waits(place: Place) -> None:
    """X7, T7: with no living owner the asking process cancels it."""
    run = place.run(*GATED, code=3)
    assert place("cancel", run, "--json", code=0).json["status"] == "cancelled"
    assert place("cancel", run, "--json", code=2).json["error"]["code"] == "RUN_AT_REST"


def test_add_steps_to_a_live_run(place: Place) -> None:
    """X7, P5: good steps are added, a step that closes a cycle is refused with its path, and the run goes on."""
    process, run = place.begin(*HELD, at="a")
    more = place.folder / "more.yaml"
    more.write_text("- {id: c, tool: ok, needs: [b]}\n")
    place("add", run, "more.yaml", code=0)
    more.write_text(
        json.dumps({"steps": [{"id": "d", "tool": "ok", "needs": ["e"]}, {"id": "e", "tool": "ok", "needs": ["d"]}]})
    )
    refused = place("add", run, "more.yaml", code=2)
    assert "d → e → d" in refused.err
    place.touch("go.txt")
    assert process.wait(10) == 0
    assert place.calls == ["a", "b", "c"]


def test_retry_a_step_of_a_live_run(place: Place) -> None:
    """X7, T5: naming steps reaches the living owner."""
    steps = ({"id": "x", "tool": "ok"}, *HELD)
    process, run = place.begin(*steps, at="a")
    place.until(lambda: "x" in place.calls)
    assert "took it" in place("retry", run, "--step", "x", "--force", code=0).out
    place.until(lambda: place.calls.count("x") == 2)
    place.touch("go.txt")
    assert process.wait(10) == 0


def test_watch_and_follow_a_run_of_another_process(place: Place) -> None:
    """I1: a watcher misses nothing and ends with the run, with its exit code."""
    process, run = place.begin(*HELD, at="a")
    watcher, follower = place.spawn("watch", run, "--json"), place.spawn("logs", run, "--follow")
    assert follower.stdout is not None
    assert "started by" in follower.stdout.readline()
    place.touch("go.txt")
    out, err = watcher.communicate(timeout=10)
    assert watcher.returncode == 0, err
    events = json.loads(out)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "done"
    rest, _ = follower.communicate(timeout=10)
    assert rest.rstrip().endswith("all 2 steps succeeded")
    assert process.wait(10) == 0
