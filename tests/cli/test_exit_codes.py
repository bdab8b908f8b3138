"""What a command's exit code says to a script (T4)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.cli.conftest import Here, Place

from rerail.cli.command_table import COMMANDS

CASES = [
    ([{"id": "a", "tool": "ok"}], 0, "completed"),
    ([{"id": "a", "tool": "fail", "critical": False}, {"id": "b", "tool": "ok", "needs": ["a"]}], 0, "completed"),
    ([{"id": "a", "tool": "fail", "fallback": {"value": 1}}], 0, "completed"),
    ([{"id": "a", "tool": "fail"}, {"id": "b", "tool": "ok", "needs": ["a"]}], 1, "failed"),
    ([{"id": "a", "tool": "ok", "confirm": "Really?"}], 3, "waiting"),
]


@pytest.mark.parametrize(("steps", "code", "status"), CASES)
def test_the_exit_code_follows_the_run(here: Here, steps: list[dict[str, object]], code: int, status: str) -> None:
    """T4: 0 for success, degraded too; 1 for failed; 3 for waiting."""
    found = here("run", here.place.plan(*steps), "--tools", "toolbox.py", "--json", code=code)
    assert found.json["status"] == status


REFUSED = [
    ("run", "nothing.yaml"),
    ("run", "plan.json"),  # no tools given
    ("run", "plan.json", "--tools", "nothing.py"),
    ("run", "plan.json", "--tools", "toolbox.py", "--set", "retry.max_retris=1"),
    ("run", "plan.json", "--set", "nonsense"),
    ("show", "nobody"),
    ("show",),
    ("retry",),
    ("retry", "nobody", "--detach"),
    ("retry", "nobody", "--wait", "--detach"),
    ("retry", "--all-failed", "--jobs", "0"),
    ("resume", "nobody", "--detach"),
    ("start", "plan.json", "--tools", "nothing.py"),
    ("start", "plan.json", "--tools", "toolbox.py", "--queue", "--store", "memory://"),
    ("run", "plan.json", "--tools", "toolbox.py", "--on", "ray"),
    ("worker", "--jobs", "0"),
    ("worker", "--store", "memory://"),
    ("ls", "--status", "great"),
    ("resolve", "x", "y"),
    ("why", "x", "y", "z"),
    ("shell", "x"),
    ("/rerty",),
    ("/quit",),  # only the shell knows it
    ("--nonsense",),
    ("nonsense",),
]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_a_mistake_is_told_in_a_sentence(here: Here, words: tuple[str, ...]) -> None:
    """T4: usage, bad options, bad plans and bad settings are 2, with a sentence on stderr and nothing on stdout."""
    here.place.plan({"id": "a", "tool": "ok"})
    found = here(*words, code=2)
    assert found.out == ""
    assert found.err.startswith("error: ")


def test_near_matches_are_offered(here: Here) -> None:
    """T4, T5: an unknown command, option, status, step or run comes with what was probably meant."""
    run = here.run({"id": "fetch", "tool": "ok"}, code=0)
    assert "did you mean: rerail retry" in here("rerty", code=2).err
    assert "Did you mean --json?" in here("ls", "--jsno", code=2).err
    assert 'Did you mean "failed"?' in here("ls", "--status", "faild", code=2).err
    assert "did you mean 'fetch'?" in here("why", run, "fecth", code=2).err
    swapped = run[1] + run[0] + run[2:]
    if swapped != run:
        assert run in here("show", swapped, code=2).err


def test_i6_a_removed_option_says_what_to_do_instead(here: Here) -> None:
    """I6, T5: `--on` is not an unknown option that looks like `--json`, in either language."""
    said = " ".join(here("run", "plan.json", "--tools", "toolbox.py", "--on", "ray", code=2).err.split())
    assert "--on is gone" in said and "rerail start PLAN --queue" in said and "rerail worker" in said
    assert "--on 已取消" in here("run", "plan.json", "--on=ray", "--lang", "zh", code=2).err


def test_a_run_may_be_named_by_its_beginning(here: Here) -> None:
    """SPEC 12: any unambiguous prefix will do; an ambiguous one lists what it could be."""
    runs = [here.run({"id": "a", "tool": "ok"}, code=0) for _ in range(2)]
    assert here("show", runs[0][:6], "--json", code=0).json["run_id"] == runs[0]
    refused = here("show", "", "--json", code=2).json["error"]
    assert refused["code"] in {"RUN_UNKNOWN", "RUN_AMBIGUOUS"}


def test_debugging_shows_where_it_went_wrong(place: Place) -> None:
    """RERAIL_DEBUG=1 is the only way to see a traceback of one's own mistake."""
    environ = {**place.environ, "RERAIL_DEBUG": "1"}
    words = [sys.executable, "-m", "rerail.cli", "run", "nothing.yaml"]
    ended = subprocess.run(words, cwd=place.folder, env=environ, capture_output=True, text=True)
    assert "Traceback" in ended.stderr
    assert "PlanError" in ended.stderr


def test_a_reader_that_goes_away_is_no_error(here: Here, place: Place) -> None:
    """`| head` is quiet, and does not end the run that is being watched."""
    steps = [{"id": f"s{n}", "tool": "ok"} for n in range(50)]
    plan = place.plan(*steps)
    words = [sys.executable, "-m", "rerail.cli", "run", plan, "--tools", "toolbox.py"]
    process = subprocess.Popen(
        words, cwd=place.folder, env=place.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(20) == 0
    assert len(place.calls) == 50
    quiet = subprocess.run(
        f"{sys.executable} -m rerail.cli logs {here.only()} | head -1", shell=True, cwd=place.folder,
        env=place.environ, capture_output=True, text=True,
    )  # fmt: skip
    assert quiet.stderr == ""
    assert len(quiet.stdout.splitlines()) == 1


def test_help_is_there_for_everything(here: Here) -> None:
    """SPEC 12: every command of the contract that is built is listed, and has help of its own."""
    listed = here("--help", code=0).out
    words = "run check start retry resume ls show logs watch why graph skip cancel pause confirm resolve add artifacts"
    assert set(
        f"{words} worker crashtest replay repair plan prompts config tools memory shell export import prune backup"
        " serve mcp token audit doctor demo".split()
    ) == set(COMMANDS)
    for name in COMMANDS:
        assert f"\n  {name} " in listed
    assert here("--version", code=0).out.strip()[0].isdigit()
    assert here("help", "retry", code=0).out == here("retry", "--help", code=0).out
    assert "--dry-run" in here("retry", "--help", code=0).out


def test_options_may_stand_before_the_command(here: Here) -> None:
    """Options of every command may come first, as many people type them."""
    here.run({"id": "a", "tool": "ok"}, code=0)
    before = here("--store", ".rerail/runs.db", "--json", "ls", code=0).json
    assert before == here("ls", "--json", code=0).json


def test_a_plain_terminal_gets_plain_signs(place: Place) -> None:
    """Where the terminal knows ASCII only, signs are replaced and nothing breaks."""
    plan = place.plan({"id": "a", "tool": "ok"}, {"id": "数据", "tool": "ok", "needs": ["a"]})
    found = place("graph", plan, code=0, PYTHONIOENCODING="ascii")
    assert found.out == "a  ok\n`- ??  ok\n"


def test_a_plain_terminal_gets_a_plain_report(place: Place) -> None:
    """Where the terminal knows ASCII only, the report is told in it."""
    plan = place.plan({"id": "a", "tool": "ok"})
    assert "+ completed" in place("run", plan, "--tools", "toolbox.py", code=0, PYTHONIOENCODING="ascii").out


@pytest.mark.parametrize(
    "words", ["ls", "show x", "resolve x y --failed", "run plan.json --tools toolbox.py", "prune --keep 1 --yes"]
)
def test_a_store_that_is_away_is_no_mistake_and_one_that_is_none_is(here: Here, words: str) -> None:
    """T4, E4: the same code for every command, 1 and 2."""
    here.place.plan({"id": "a", "tool": "ok"})
    (here.place.folder / "bad.db").write_text("no database at all" * 100)
    away = "redis://127.0.0.1:1/0"
    found = here(*words.split(), "--store", away, "--set", "store.reconnect_seconds=0.1", code=1)
    assert found.err.startswith("error: ")
    here(*words.split(), "--store", "bad.db", code=2)
