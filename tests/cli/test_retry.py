"""`rerail retry`: what it shows before, what it does, what it refuses (R7, T4, T5)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from tests.cli.conftest import Here, Place

from rerail.cli.commands.retry import _table
from rerail.cli.output import Output

MENDABLE: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok"},
    {"id": "b", "tool": "needs_file", "args": {"name": "fix.txt"}, "needs": ["a"]},
    {"id": "c", "tool": "ok", "needs": ["b"]},
)


def test_dry_run_shows_what_would_happen(here: Here) -> None:
    """R7: roots, what runs again and why, what is kept, `once` effects, an estimate; nothing is called."""
    run = here.run({"id": "s", "tool": "send"}, *MENDABLE, code=1)
    called = here.place.calls
    preview = here("retry", run, "--dry-run", "--json", code=0).json
    assert preview["run_id"] == run
    assert preview["roots"] == ["b"]
    assert [row["step"] for row in preview["rerun"]] == ["b", "c"]
    assert preview["rerun"][0]["why"] == "no fix.txt"
    assert preview["kept"] == ["s", "a"]
    assert preview["once"] == []
    assert set(preview["estimate"]) == {"seconds", "tool_seconds", "cost", "unknown"}
    shown = here("retry", run, "--force", "--step", "s", "--dry-run", code=0).out
    assert "must not happen twice: s" in shown
    assert "Kept\n" in shown
    assert here.place.calls == called


def test_retry_needs_no_tools_named_again(here: Here) -> None:
    """T4, R2: the run remembers where its tools came from; only the failed step and those behind it are called."""
    run = here.run(*MENDABLE, code=1)
    here.place.touch("fix.txt")
    found = here("retry", run[:6], code=0)
    assert here.place.calls == ["a", "b", "b", "c"]
    assert "completed" in found.out
    assert here("show", run, "--json", code=0).json["retries"] == 1


def test_tools_that_moved_are_asked_for(here: Here) -> None:
    """T4: if the tools are not where they were, the message says to name them; naming them is enough."""
    run = here.run(*MENDABLE, code=1)
    here.place.touch("fix.txt")
    os.rename(here.place.folder / "toolbox.py", here.place.folder / "moved.py")
    refused = here("retry", run, code=2)
    assert "cannot be loaded again" in refused.err
    assert "--tools" in refused.err
    here("retry", run, "--tools", "moved.py", code=0)


def test_limit(here: Here) -> None:
    """T4, R6: past the limit a retry is refused with what would do; --force passes and says what it passed."""
    run = here.run(*MENDABLE, code=1)
    for _ in range(2):
        here("retry", run, "--set", "retry.max_retries=2", code=1)
    refused = here("retry", run, "--set", "retry.max_retries=2", "--json", code=2).json["error"]
    assert refused["code"] == "RETRY_LIMIT"
    assert "--clean" in refused["hint"]
    assert "--force" in refused["hint"]
    passed = here("retry", run, "--force", "--set", "retry.max_retries=2", code=1)
    assert "--force passed: RETRY_LIMIT" in passed.err


def test_force_passes_a_permanent_error(here: Here) -> None:
    """T4: an error that trying again cannot mend is refused without --force."""
    run = here.run({"id": "a", "tool": "stubborn"}, code=1)
    assert here("retry", run, "--json", code=2).json["error"]["code"] == "NOT_RETRYABLE"
    assert "--force passed: NOT_RETRYABLE" in here("retry", run, "--force", code=1).err


def test_what_happens_again_is_not_said_as_if_it_might(here: Here) -> None:
    """T4, T5: a retry that is carried out says that the effect happens again; one of a completed run is not counted."""
    run = here.run({"id": "s", "tool": "send"}, code=0)
    told = here("retry", run, "--force", "--step", "s", code=0)
    assert "Happens again, and must not happen twice: s" in told.err and "Would" not in told.err
    assert "· retries used: 0/3 ·" in here("show", run, code=0).out


def test_a_completed_run_needs_force(here: Here) -> None:
    """T5, R5: a named step that succeeded runs again with --force, and is refused without."""
    run = here.run({"id": "a", "tool": "ok"}, {"id": "b", "tool": "ok", "needs": ["a"]}, code=0)
    assert here("retry", run, "--json", code=2).json["error"]["code"] == "RUN_COMPLETED"
    here("retry", run, "--step", "a", "--force", code=0)
    assert here.place.calls == ["a", "b", "a"]


def test_stage(here: Here) -> None:
    """T4, T5: --stage resumes there; an unknown one is refused with the near match."""
    steps: list[dict[str, Any]] = [
        {"id": "a", "tool": "ok", "stage": "extracting"},
        {"id": "b", "tool": "fail", "stage": "writing", "needs": ["a"]},
    ]
    run = here.run(*steps, code=1)
    here("retry", run, "--stage", "writing", "--wait", code=1)
    assert here.place.calls == ["a", "b", "b"]
    assert "did you mean 'writing'?" in here("retry", run, "--stage", "writin", code=2).err


def test_clean_asks_first(here: Here) -> None:
    """T4: no terminal and no --yes is refused, and nothing runs; --yes starts over."""
    run = here.run({"id": "s", "tool": "send"}, *MENDABLE, code=1)
    called = here.place.calls
    refused = here("retry", run, "--clean", "--json", code=2).json["error"]
    assert refused["code"] == "CONFIRM_NEEDED"
    assert "--yes" in refused["hint"]
    assert here.place.calls == called
    here("retry", run, "--clean", "--yes", code=1)
    assert sorted(here.place.calls) == sorted(called * 2)


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 2), (b"y\n", 1)])
def test_clean_names_the_effects_on_a_terminal(place: Place, answer: bytes, code: int) -> None:
    """T4: on a terminal the question names the `once` effects that would happen again."""
    run = place.run({"id": "s", "tool": "send"}, *MENDABLE, code=1)
    before = len(place.calls)
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "rerail.cli", "retry", run, "--clean"]
    process = subprocess.Popen(words, cwd=place.folder, env=place.environ, stdin=theirs, stdout=theirs, stderr=theirs)
    place.started.append(process)  # type: ignore[arg-type]  # closed with the others
    os.close(theirs)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(ours, 4096)
    assert b"must not happen twice: s" in seen
    os.write(ours, answer)
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # the other end is gone
        pass
    assert process.wait(20) == code
    os.close(ours)
    assert len(place.calls) == (before if code == 2 else 2 * before)


def test_all_failed(here: Here) -> None:
    """T4: every failed run is retried, a table says what became of each, and the worst decides the exit code."""
    good = here.run({"id": "a", "tool": "ok"}, code=0)
    mended = here.run(*MENDABLE, code=1)
    permanent = here.run({"id": "a", "tool": "stubborn"}, code=1)
    failing = here.run({"id": "a", "tool": "fail"}, code=1)
    here.place.touch("fix.txt")
    would = {row["run_id"]: row for row in here("retry", "--all-failed", "--dry-run", "--json").json}
    assert [step["step"] for step in would[mended]["preview"]["rerun"]] == ["b", "c"]
    rows = {row["run_id"]: row for row in here("retry", "--all-failed", "--json", code=1).json}
    assert set(rows) == {mended, permanent, failing}
    assert {run: row["exit_code"] for run, row in rows.items()} == {mended: 0, permanent: 2, failing: 1}
    table = here("retry", "--all-failed", code=1).out
    assert failing in table
    assert mended not in table
    assert good not in table


@pytest.mark.parametrize(
    ("more", "codes"),
    [((), {2}), (({"id": "a", "tool": "send", "args": {"until": "-"}, "timeout": 0.1, "on_doubt": "fail"},), {2, 3})],
)
def test_all_failed_is_a_failure_if_one_is_refused(here: Here, more: tuple[Any, ...], codes: set[int]) -> None:
    """T4: a refusal is no usage error of the command, and outweighs a run that waits for a person."""
    here.run({"id": "a", "tool": "stubborn"}, code=1)
    for step in more:
        here.run(step, code=1)
    rows = here("retry", "--all-failed", "--json", code=1).json
    assert {row["exit_code"] for row in rows} == codes


def test_the_hints_of_all_failed_name_the_store(here: Here) -> None:
    """T4, E3: what is typed from the table works where it was printed."""
    run = here.run({"id": "a", "tool": "send", "args": {"until": "-"}, "timeout": 0.1, "on_doubt": "fail"}, code=1)
    store = ("--store", f"sqlite:///{here.place.folder}/.rerail/runs.db")
    said = " ".join(here("retry", "--all-failed", *store, code=3).out.split())
    assert f"rerail {' '.join(store)} resolve {run} a --succeeded" in said.replace(" --tools toolbox.py", "")


def test_reasons_are_read_to_their_end(here: Here) -> None:
    """T4: what became of each run stands on lines of its own, whole, however narrow the screen is."""
    reason = "it broke " + "and broke again " * 6 + "at last"
    run = here.run({"id": "a", "tool": "fail", "args": {"message": reason}}, code=1)
    said = here("retry", "--all-failed", code=1).out.splitlines()
    [at] = [number for number, line in enumerate(said) if line.startswith(run)]
    assert said[at + 1].startswith("    ") and reason in said[at + 1]
    out = Output(lang="en", color=False)
    out.out.width = 60
    row = {"run_id": run, "objective": "o", "before": "failed", "status": "failed", "exit_code": 1, "reason": reason}
    lines = [line.plain for line in _table(out, [row])]
    assert all(len(line) <= 60 for line in lines) and len(lines) > 3
    assert " ".join(" ".join(lines[2:]).split()) == " ".join(reason.split())


def test_all_failed_is_for_all(here: Here) -> None:
    """T4: a run beside --all-failed is a mistake, and it is said which."""
    refused = here("retry", "--all-failed", "abc", code=2)
    assert "goes with no run (abc)" in refused.err and "rerail retry abc" in refused.err
    assert "不能再给出任务编号（abc）" in here("retry", "--all-failed", "abc", "--lang", "zh", code=2).err
    assert "name a run, or say --all-failed" in here("retry", code=2).err


def test_resume_at_rest_points_to_retry(here: Here) -> None:
    """T5: a run at rest is not resumed."""
    run = here.run({"id": "a", "tool": "fail"}, code=1)
    refused = here("resume", run, "--json", code=2).json["error"]
    assert refused["code"] == "RUN_AT_REST"
    assert f"rerail retry {run}" in refused["hint"]


def test_a_follow_up_is_waited_for(here: Here) -> None:
    """T6: the follow-up runs in the same process; its failure leaves the parent's exit code alone, retry finds it."""
    follow_up = {"objective": "after", "steps": [{"id": "f", "tool": "needs_file", "args": {"name": "fix.txt"}}]}
    plan = here.place.plan({"id": "a", "tool": "ok"}, follow_up=follow_up)
    found = here("run", plan, "--tools", "toolbox.py", "--json", code=0).json
    assert found["status"] == "completed"
    assert found["follow_up"]["status"] == "failed"
    assert found["follow_up"]["parent"] == found["run_id"]
    here.place.touch("fix.txt")
    again = here("retry", found["run_id"], code=0)
    assert found["follow_up"]["run_id"] in again.err
    assert "no fix.txt" not in again.err + again.out, "what happened before the retry is no news"
    assert here.place.calls == ["a", "f", "f"]


def test_what_follows_a_follow_up_is_waited_for(here: Here) -> None:
    """T6: all of them, in the same process; each is told of in the one that it follows, and retry finds the last."""
    last = {"steps": [{"id": "g", "tool": "needs_file", "args": {"name": "fix.txt"}}]}
    plan = here.place.plan(
        {"id": "a", "tool": "ok"}, follow_up={"steps": [{"id": "f", "tool": "ok"}], "follow_up": last}
    )
    found = here("run", plan, "--tools", "toolbox.py", "--json", code=0).json
    second, third = found["follow_up"], found["follow_up"]["follow_up"]
    assert [one["status"] for one in (found, second, third)] == ["completed", "completed", "failed"]
    assert (second["parent"], third["parent"]) == (found["run_id"], second["run_id"])
    here.place.touch("fix.txt")
    again = here("retry", found["run_id"], "--wait", code=0)
    assert third["run_id"] in again.err
    assert "no fix.txt" not in again.err + again.out, "what happened before the retry is no news"
    assert here.place.calls == ["a", "f", "g", "g"]
