"""People act on a run from any process (X7, T7): the owner takes it, or the process that asks drives the run on."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from tests.cli.conftest import Here

GATED: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok"},
    {"id": "gate", "tool": "ok", "needs": ["a"], "confirm": "Send it?"},
    {"id": "c", "tool": "ok", "needs": ["gate"]},
)
HELD: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "hold", "args": {"name": "go.txt"}},
    {"id": "b", "tool": "ok", "needs": ["a"]},
)


def test_confirm_in_another_process(here: Here) -> None:
    """X7, T7: one process runs to the gate and ends with 3; another confirms, and the run goes on to its end there."""
    plan = here.place.plan(*GATED)
    waiting = here("run", plan, "--tools", "toolbox.py", code=3)
    run = here.only()
    assert "Send it?" in waiting.out
    assert f"rerail confirm {run} gate" in waiting.out
    done = here("confirm", run, "--json", code=0).json
    assert done["status"] == "completed"
    assert here.place.calls == ["a", "gate", "c"]


def test_refuse(here: Here) -> None:
    """X7: a refused gate fails its step for good."""
    run = here.run(*GATED, code=3)
    done = here("confirm", run, "gate", "--refuse", "--json", code=1).json
    assert done["failed_steps"][0]["code"] == "CONFIRM_REFUSED"
    assert here.place.calls == ["a"]


def test_a_doubt_is_resolved_in_another_process(here: Here) -> None:
    """E3, T5: a `once` call whose answer was lost by kill -9 is never repeated unasked; a person says what happened."""
    steps = ({"id": "s", "tool": "send", "args": {"until": "never"}}, {"id": "b", "tool": "ok", "needs": ["s"]})
    process, run = here.begin(*steps, at="s")
    process.send_signal(signal.SIGKILL)
    process.wait()
    doubt = here("resume", run, code=3)
    assert f"rerail resolve {run} s --succeeded VALUE" in doubt.out
    assert here("retry", run, "--json", code=2).json["error"]["code"] == "RUN_IN_DOUBT"
    done = here("resolve", run, "s", "--succeeded", '{"sent": "bob"}', "--json", code=0).json
    assert done["steps"]["s"]["output"] == {"sent": "bob"}
    assert here.place.calls == ["s", "b"]


def test_a_doubt_is_rerun_or_failed(here: Here) -> None:
    """E3: --failed fails the step, --rerun calls it once more; a value may be plain text."""
    steps = ({"id": "s", "tool": "send", "args": {"until": "go.txt"}},)
    process, run = here.begin(*steps, at="s")
    process.send_signal(signal.SIGKILL)
    process.wait()
    here("resume", run, "--json", code=3)
    here("resolve", run, "s", "--failed", "--json", code=1)
    assert here.place.calls == ["s"]
    done = here("resolve", run, "s", "--succeeded=-by hand-", "--json", code=0).json
    assert done["steps"]["s"]["output"] == "-by hand-"
    assert here.place.calls == ["s"]


def test_skip_reaches_a_live_run(here: Here) -> None:
    """X7, T7: the owner, another process, takes the wish and goes on; the asker only reports that."""
    process, run = here.begin(*HELD, at="a")
    found = here("skip", run, "a", "--reason", "not needed", "--json", code=0).json
    assert found["handed_to"].endswith(str(process.pid))
    assert process.wait(10) == 0
    assert here.place.calls == ["a", "b"]
    shown = here("show", run, "--json", code=0).json
    assert shown["steps"]["a"]["code"] == "SKIP_USER"
    assert shown["degraded"] is True


def test_a_live_run_is_not_taken(here: Here) -> None:
    """T7, T5: while its owner lives, a run can be neither resumed nor retried as a whole; what to do is said."""
    process, run = here.begin(*HELD, at="a")
    assert here("resume", run, "--json", code=2).json["error"]["code"] == "RUN_LIVE"
    assert here("retry", run, "--json", code=2).json["error"]["code"] == "RUN_LIVE"
    here.place.touch("go.txt")
    assert process.wait(10) == 0


def test_pause_and_resume_across_processes(here: Here) -> None:
    """X7, T5: pausing lets the call under way end and starts nothing more; resume goes on in another process."""
    process, run = here.begin(*HELD, at="a")
    assert "process" in here("pause", run, code=0).out
    here.place.touch("go.txt")
    assert process.wait(10) == 3
    assert here.place.calls == ["a"]
    done = here("resume", run, "--json", code=0).json
    assert done["status"] == "completed"
    assert here.place.calls == ["a", "b"]


def test_cancel_a_live_run(here: Here) -> None:
    """X7: the owner's call is cancelled, the run ends cancelled, its process says 1; cancelling itself worked."""
    process, run = here.begin(*HELD, at="a")
    here("cancel", run, code=0)
    assert process.wait(10) == 1
    assert here("show", run, "--json", code=0).json["status"] == "cancelled"
    assert here.place.calls == ["a"]


def test_cancel_a_run_that_waits(here: Here) -> None:
    """X7, T7: with no living owner the asking process cancels it."""
    run = here.run(*GATED, code=3)
    assert here("cancel", run, "--json", code=0).json["status"] == "cancelled"
    assert here("cancel", run, "--json", code=2).json["error"]["code"] == "RUN_AT_REST"


def test_add_steps_to_a_live_run(here: Here) -> None:
    """X7, P5: good steps are added, a step that closes a cycle is refused with its path, and the run goes on."""
    process, run = here.begin(*HELD, at="a")
    more = here.place.folder / "more.yaml"
    more.write_text("- {id: c, tool: ok, needs: [b]}\n")
    here("add", run, "more.yaml", code=0)
    more.write_text(
        json.dumps({"steps": [{"id": "d", "tool": "ok", "needs": ["e"]}, {"id": "e", "tool": "ok", "needs": ["d"]}]})
    )
    refused = here("add", run, "more.yaml", code=2)
    assert "d → e → d" in refused.err
    here.place.touch("go.txt")
    assert process.wait(10) == 0
    assert here.place.calls == ["a", "b", "c"]


def test_add_steps_to_a_run_at_rest(here: Here) -> None:
    """X7: it goes on with them here, to its end; a bad change leaves it at rest."""
    run = here.run({"id": "a", "tool": "ok"}, code=0)
    more = here.place.folder / "more.yaml"
    more.write_text("- {id: c, tool: ok, needs: [a]}\n")
    assert here("add", run, "more.yaml", "--json", code=0).json["steps"]["c"]["status"] == "succeeded"
    assert "2 times" in here("add", run, "more.yaml", code=2).err
    assert here.place.calls == ["a", "c"] and here("show", run, "--json", code=0).json["status"] == "completed"


def test_an_addition_says_which_clean_up_happens_again(here: Here) -> None:
    """P2, R7: a `once` step of `finally` is called again at the end of the round; a dry run says so."""
    steps = ({"id": "a", "tool": "ok"}, {"id": "free", "tool": "send"})
    plan = here.place.plan(*steps, **{"finally": ["free"]})
    run = str(here("run", plan, "--tools", "toolbox.py", "--json", "-q", code=0).json["run_id"])
    (here.place.folder / "more.yaml").write_text("- {id: c, tool: ok}\n")
    seen = here("add", run, "more.yaml", "--dry-run", "--json", code=0).json
    assert (seen["once"], [row["step"] for row in seen["rerun"]]) == (["free"], ["c", "free"])
    assert here.place.calls == ["a", "free"]
    assert "must not happen twice: free" in here("add", run, "more.yaml", code=0).err
    assert here.place.calls == ["a", "free", "c", "free"]


def test_retry_a_step_of_a_live_run(here: Here) -> None:
    """X7, T5: naming steps reaches the living owner."""
    steps = ({"id": "x", "tool": "ok"}, *HELD)
    process, run = here.begin(*steps, at="a")
    here.place.until(lambda: "x" in here.place.calls)
    assert "took it" in here("retry", run, "--step", "x", "--force", code=0).out
    here.place.until(lambda: here.place.calls.count("x") == 2)
    here.place.touch("go.txt")
    assert process.wait(10) == 0


def test_watch_and_follow_a_run_of_another_process(here: Here) -> None:
    """I1: a watcher misses nothing and ends with the run, with its exit code."""
    process, run = here.begin(*HELD, at="a")
    watcher, follower = here.place.spawn("watch", run, "--json"), here.place.spawn("logs", run, "--follow")
    assert follower.stdout is not None
    assert "started by" in follower.stdout.readline()
    here.place.touch("go.txt")
    out, err = watcher.communicate(timeout=10)
    assert watcher.returncode == 0, err
    events = json.loads(out)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "done"
    rest, _ = follower.communicate(timeout=10)
    assert rest.rstrip().endswith("2 steps, all succeeded")
    assert (process.wait(10), follower.returncode) == (0, 0)


@pytest.mark.parametrize(("step", "code"), [({"tool": "ok", "confirm": True}, 3), ({"tool": "fail"}, 1)])
def test_following_ends_with_the_exit_code_of_the_run(here: Here, step: dict[str, object], code: int) -> None:
    """T4: at rest and waiting, with both commands; a log that is only printed is 0."""
    run = here.run({"id": "a", **step}, code=code)
    for words in (("watch", run), ("logs", run, "--follow"), ("logs", run, "--follow", "--json")):
        here(*words, code=code)
    here("logs", run, code=0)


def test_a_gate_shows_what_would_be_called(here: Here) -> None:
    """X7: the call with its arguments, and that it is made from a fallback; at once, and whenever one looks."""
    steps = (
        {"id": "sum", "tool": "fail", "fallback": {"value": {"total": 10}}},
        {"id": "pay", "tool": "ok", "args": {"value": "${sum.total}"}, "confirm": "Really pay?"},
    )
    shown = here("run", here.place.plan(*steps), "--tools", "toolbox.py", code=3).out
    for text in (shown, here("show", here.only(), code=0).out):
        assert "Really pay?" in text
        assert "it would call ok(value=10)" in text
        assert "made from the fallback of sum" in text


def test_a_step_is_repaired_from_the_command_line(here: Here) -> None:
    """H7, X7: one argument changes, the rest stays; what is done is kept."""
    steps = (
        {"id": "get", "tool": "ok", "args": {"value": {"body": 7}}},
        {"id": "use", "tool": "ok", "args": {"value": "${get.value}"}},
    )
    run = here.run(*steps, code=1)
    assert "there is: body" in here("why", run, "use", code=0).out
    assert here("repair", run, "use", "--args", "nonsense", code=2).err.count("not a JSON object") == 1
    done = here("repair", run, "use", "--args", '{"value": "${get.body}"}', "--json", code=0).json
    assert done["steps"]["use"]["output"] == 7
    assert here.place.calls == ["get", "use"]


def test_an_argument_is_removed_from_the_command_line(here: Here) -> None:
    """H7, X7: an argument that should not be there is taken away; one that is not there is a fault."""
    run = here.run({"id": "use", "tool": "fail", "args": {"message": "mine", "category": "tool_error"}}, code=1)
    assert "there are: message, category" in here("repair", run, "use", "--remove", "massage", code=2).err
    done = here("repair", run, "use", "--remove", "message", "--json", code=1).json["steps"]["use"]
    assert (done["error"]["message"], done["args"]) == ("it broke", {"category": "tool_error"})


def test_an_action_is_shown_before_it_is_done(here: Here) -> None:
    """R7, I7: a dry run calls nothing and writes nothing; it says what ends, what runs, and what the run would be."""
    steps = (
        {"id": "bad", "tool": "fail"}, {"id": "next", "tool": "ok", "needs": ["bad"]},
        {"id": "last", "tool": "ok", "needs": ["next"], "confirm": "Really?"},
    )  # fmt: skip
    run = here.run(*steps, code=1)
    before = here("show", run, "--json", code=0).json
    told = here("skip", run, "bad", "--dry-run", code=0).out
    for words in ("nothing has happened yet; the run would be running", "Would end at once", "Would run",
                  "Would wait for approval: last"):  # fmt: skip
        assert words in told
    assert "尚未执行任何操作" in here("repair", run, "bad", "--tool", "ok", "--dry-run", "--lang", "zh", code=0).out
    found = here("repair", run, "bad", "--remove", "x", "--dry-run", "--json", code=2).json
    assert found["error"]["faults"][0]["code"] == "BAD_VALUE"
    done = here("resolve", run, "bad", "--succeeded", "7", "--dry-run", "--json", code=0).json
    assert (done["becomes"], done["leads_to"], done["run_id"]) == ({"bad": "succeeded"}, "running", run)
    assert here("show", run, "--json", code=0).json == before
    here("skip", run, "bad", code=3)
    assert "the run would be failed" in here("confirm", run, "--refuse", "--dry-run", code=0).out
    assert here.place.calls == ["bad", "next"]


def test_the_report_tells_what_was_set_by_hand(here: Here) -> None:
    """V7, X7: nothing was called again, and the report does not say so."""
    steps = ({"id": "s", "tool": "send", "args": {"until": "never"}}, {"id": "b", "tool": "ok", "needs": ["s"]})
    process, run = here.begin(*steps, at="s")
    process.send_signal(signal.SIGKILL)
    process.wait()
    here("resume", run, code=3)
    report = here("resolve", run, "s", "--succeeded", '{"sent": "bob"}', code=0).out
    assert "set by hand by" in report
    assert "called again" not in report


def test_a_retry_says_what_must_not_happen_twice(here: Here) -> None:
    """R7: also when nobody asked for a dry run; a call that failed explicitly had no effect to repeat."""
    run = here.run({"id": "s", "tool": "send"}, {"id": "b", "tool": "fail", "needs": ["s"]}, code=1)
    assert "must not happen twice" not in here("retry", run, code=1).err
    assert "must not happen twice: s" in here("retry", run, "--step", "s", "--force", code=1).err
    failed = here.run({"id": "s", "tool": "fail", "effect": "once"}, code=1)
    assert "must not happen twice" not in here("retry", failed, code=1).err


PAY: dict[str, Any] = {
    "id": "pay", "tool": "pay", "args": {"amount": 10, "to": "alice"}, "confirm": "Pay?", "retries": 2,
}  # fmt: skip
BOTH = 'agreed to pay(amount=10, to="alice"); now it would be pay(amount=9999, to="mallory")'


def test_x10_a_yes_is_to_the_call_that_was_shown(here: Here) -> None:
    """X10: a hint of the tool opens the gate again; show, why, logs and the report say both calls."""
    run = here.run(PAY, code=3)
    agreed = here("confirm", run, code=3)
    assert 'it would call pay(amount=10, to="alice")' in agreed.err and BOTH in agreed.out
    assert here.place.calls == ["pay"]
    for command in (("show", run), ("why", run, "pay"), ("logs", run)):
        assert BOTH in here(*command, code=0).out, command
    [gate] = here("show", run, "--json", code=0).json["waiting_on"]
    assert gate["args"] == {"amount": 9999, "to": "mallory"} and gate["before"]["args"] == PAY["args"]
    refused = here("confirm", run, "--digest", gate["before"]["digest"], "--json", code=2).json["error"]
    assert refused["code"] == "GATE_CHANGED" and 'pay(amount=9999, to="mallory")' in refused["message"]
    done = here("confirm", run, "--digest", gate["digest"], "--yes", "--json", code=0).json
    assert done["steps"]["pay"]["output"] == {"amount": 9999, "to": "mallory"}


def test_x10_arguments_are_edited_with_the_yes(here: Here) -> None:
    """X10, P5: checked against the tool's schema; the history says who changed what."""
    run = here.run(PAY, code=3)
    faulty = here("confirm", run, "--args", '{"amount": "much", "colour": 1}', "--json", code=2).json["error"]
    assert [fault["code"] for fault in faulty["faults"]] == ["BAD_ARGS", "BAD_ARGS"]
    assert "not a JSON object" in here("confirm", run, "--args", "10", code=2).err
    assert "--args" in here("confirm", run, "--refuse", "--args", "{}", code=2).err
    done = here("confirm", run, "--args", '{"to": "bob"}', code=0)
    assert 'edited: step pay waits for a confirmation: Pay? (it would call pay(amount=10, to="bob"))' in done.err
    assert here("show", run, "--json", code=0).json["steps"]["pay"]["output"] == {"amount": 10, "to": "bob"}
    assert 'confirm pay (edited: pay(amount=10, to="bob"))' in here("why", run, "pay", code=0).out


def test_x10_a_yes_ahead_has_to_say_so(here: Here) -> None:
    """X10: for the plan's own call, and refused with the way to do it otherwise."""
    plan = ({"id": "a", "tool": "hold", "args": {"name": "go.txt"}}, {**PAY, "needs": ["a"]})
    process, run = here.begin(*plan, at="a")
    refused = here("confirm", run, "pay", "--json", code=2).json["error"]
    assert refused["code"] == "STEP_NOT_WAITING" and refused["hint"].endswith(f"rerail confirm {run} pay --ahead")
    here("confirm", run, "pay", "--ahead", code=0)
    (here.place.folder / "go.txt").touch()
    assert process.wait(20) == 3, "the tool's hint is no part of the plan"
    assert here.place.calls == ["a", "pay"] and BOTH in here("show", run, code=0).out


def test_the_next_commands_answer_every_doubt(here: Here) -> None:
    """E3: also after a cancel, when each of them stands in the way of a retry."""
    steps = [{"id": name, "tool": "send", "args": {"until": "-"}} for name in ("a", "b")]
    process, run = here.begin(*steps, at="b")
    here.place.until(lambda: len(here.place.calls) == 2)
    here("cancel", run)
    process.wait(20)
    told = here("show", run).out
    assert all(f"rerail resolve {run} {name} --succeeded" in told for name in ("a", "b"))
