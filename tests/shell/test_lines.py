"""Lines become commands: from a pipe, and on the ordinary command line with a slash (T11)."""

from __future__ import annotations

import json
import shlex
import signal
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Done, Here, Place

from rerail.cli.command_table import COMMANDS
from rerail.cli.options import Common
from rerail.cli.output import Output
from rerail.cli.shell.command_lines import Lines, split, worse

# -- Words --------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="ab \t'\"\\-/=é", max_size=14))
def test_a_line_is_split_as_a_shell_splits_it(line: str) -> None:
    """T11: quotes and backslashes mean what they mean elsewhere; what is not closed is known."""
    try:
        expected = shlex.split(line)
    except ValueError:
        assert split(line).open
        return
    assert split(line).words == expected
    assert not split(line).open


@given(st.lists(st.text(alphabet=string.printable, max_size=8), max_size=4))
def test_what_is_quoted_arrives_as_it_was(words: list[str]) -> None:
    """T11: whatever stands in an argument."""
    assert split(" ".join(map(shlex.quote, words))).words == words


def test_the_word_at_the_end_is_known() -> None:
    """T11: completion needs to know what to replace."""
    found = split("/why 7c1f 'my st")
    assert (found.before, found.last, found.start, found.open) == (["/why", "7c1f"], "my st", 10, "'")
    found = split("/why 7c1f ")
    assert (found.before, found.last, found.start) == (["/why", "7c1f"], "", 10)
    assert split("").start == 0


def test_comments_are_comments() -> None:
    """T11: at the beginning of a word, as in a shell, and nowhere else."""
    assert split("# ls").words == []
    assert split("ls # all of them").words == ["ls"]
    assert split("plan 'fix #3' a#b").words == ["plan", "fix #3", "a#b"]


@pytest.mark.parametrize(
    ("codes", "worst"), [([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 2, 3], 2), ([2, 130], 130)]
)
def test_the_worst_exit_code(codes: list[int], worst: int) -> None:
    """T11: waiting is better than failed, failed better than refused."""
    found = 0
    for code in codes:
        found = worse(found, code)
    assert found == worst


# -- Pipes --------------------------------------------------------------------------------------------------------


def typed(place: Place, *lines: str, code: int | None = None, options: tuple[str, ...] = (), **environ: str) -> Done:
    """What lines of a pipe come to."""
    return place("shell", *options, given="".join(f"{line}\n" for line in lines), code=code, **environ)


def test_piped_lines_are_the_commands_of_those_names(place: Place) -> None:
    """T11: in order, with or without a slash, without a prompt; a line prints what the command prints."""
    run = place.run({"id": "a", "tool": "ok"}, code=0)
    shown, listed = place("show", run, code=0).out, place("ls", code=0).out
    lines = (
        "/tasks",
        "",
        "# a remark",
        f"/status {run[:6]}",
        "  tasks",
        "/status",
        f"rerail show {run}",
        f"show '{run}'",
    )
    found = typed(place, *lines, code=0)
    assert found.out == listed + shown + listed + listed + shown + shown
    assert found.err == ""


def test_a_retry_from_a_pipe(place: Place) -> None:
    """T11: what is typed happens, and the exit code tells how it went."""
    run = place.run({"id": "a", "tool": "needs_file", "args": {"name": "x"}}, code=1)
    failed = typed(place, f"/retry {run}", "/tasks", code=1)
    assert "line 1: exit code 1" in failed.err
    assert "failed" in failed.out
    place.touch("x")
    assert "line" not in typed(place, "/tasks", f"/retry {run}", code=0).err
    assert place.calls == ["a", "a", "a"]


def test_each_line_prints_a_document_of_its_own(place: Place) -> None:
    """T11, I7: under --json, for one line or for all; mistakes included."""
    run = place.run({"id": "a", "tool": "ok"}, code=0)
    found = typed(place, "ls --json", f"/show {run} --json", "/shwo --json", "why --json 'x", code=2).out
    for printed in (found, typed(place, "ls", f"/show {run}", "/shwo", "why 'x", options=("--json",), code=2).out):
        documents, decoder, out = [], json.JSONDecoder(), printed
        while out.strip():
            document, end = decoder.raw_decode(out.lstrip())
            documents.append(document)
            out = out.lstrip()[end:]
        assert documents[0][0]["run_id"] == documents[1]["run_id"] == run
        assert [document["error"]["code"] for document in documents[2:]] == ["USAGE", "USAGE"]


def test_what_the_shell_was_given_holds_for_every_line(place: Place) -> None:
    """T11: store, tools, language and settings; a line may say otherwise."""
    plan = place.plan({"id": "a", "tool": "ok"})
    options = ("--store", "other.db", "--tools", "toolbox.py", "--lang", "zh", "--set", "run.concurrency=3", "-q")
    found = typed(place, f"run {plan}", "ls", "ls --lang en", "ls --store .rerail/none.db", options=options, code=2)
    assert (place.folder / "other.db").exists()
    assert not (place.folder / ".rerail").exists()
    assert "已完成" in found.out or "完成" in found.out
    assert "objective" in found.out  # the line in English
    assert ".rerail/none.db" in found.err
    assert "3" in typed(place, "config --set run.step_timeout=7 --json", options=(*options[:-1], "--json"), code=0).out


def test_options_of_the_shell_do_not_stand_twice() -> None:
    """T11: what the line says itself beats them; settings add up; the demo takes what it knows."""
    common = Common(store="s.db", tools=("t.py",), json=True, lang="zh", set=("a.b=1",), quiet=True)
    lines = Lines(common, Output())
    every = ["--store", "s.db", "--lang", "zh", "--tools", "t.py", "--set", "a.b=1", "--json", "--quiet"]
    assert lines.with_options(["/ls", "-n", "3"]) == ["/ls", *every, "-n", "3"]
    own = ["/ls", "--store=x", "--lang", "en", "--tools", "u.py", "--set", "a.b=2", "--json", "-q"]
    assert lines.with_options(own) == ["/ls", "--set", "a.b=1", *own[1:]]
    assert lines.with_options(["/demo"]) == ["/demo", "--lang", "zh", "--json"]
    assert lines.with_options(["/help", "retry"]) == ["/help", "retry", *every]


MISTAKES = [
    ('/why "7c1f', 'the line has an opening " and no closing one'),
    ("/why 7c1f\\", "the line ends with a backslash"),
    ("/rerty 7c1f", "did you mean: /retry"),
    ("tsaks", "did you mean: /tasks"),
    ("/xyzzyx", "/help lists the commands"),
    ("/mcp", "cannot be used inside of the shell"),
    ("shell", "cannot be used inside of the shell"),
    ("/logs", "RUN is missing"),
    ("/ls --jsno", "Did you mean --json?"),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_in_a_line_is_told_and_the_next_line_runs(place: Place, line: str, words: str) -> None:
    """T11, T4: one sentence and what to type; the lines behind it are run."""
    found = typed(place, line, "ls", code=2)
    assert found.err.startswith("error: ")
    assert words in found.err
    assert "no runs" in found.out


def test_a_mistake_in_a_line_is_told_in_the_readers_language(place: Place) -> None:
    """T11, T12."""
    found = typed(place, "/rerty", "why '", "/help", "/verbose", "verbose", "/quiet", options=("--lang", "zh"), code=2)
    assert "您是不是要找：/retry" in found.err or "/retry" in found.err
    assert "没有结尾的" in found.err
    assert "第 2 行：退出码 2" in found.err
    assert "在 shell 中" in found.out
    assert found.out.splitlines()[-3:] == [
        "现在提示符上方显示每个事件。",
        "提示符上方显示重要消息：启动、失败、重试、等待和结束。",
        "现在提示符上方不显示任何消息。",
    ]


def test_help_lists_what_can_be_typed(place: Place) -> None:
    """T11: the commands of the contract and all others that make sense here; each has its own help."""
    found = typed(place, "/help", "/help retry", "help", code=0).out
    words = "retry logs status tasks confirm cancel skip why help quit run start resume watch graph doctor"
    for name in words.split():
        assert f"\n  /{name} " in found
    assert "/mcp" not in found and "/shell" not in found
    assert "--dry-run" in found
    assert found.endswith(typed(place, "help", code=0).out)


@pytest.mark.parametrize("word", ["/quit", "exit", "/exit", "quit"])
def test_leaving(place: Place, word: str) -> None:
    """T11: nothing behind it is run."""
    found = typed(place, "show nobody", word, "ls", code=2)
    assert found.out == ""


def test_a_plan_can_follow_its_line(place: Place) -> None:
    """T11: a command that reads stdin reads what comes behind its own line."""
    plan = json.dumps({"steps": [{"id": "a", "tool": "ok"}]})
    found = typed(place, "/ls", "/run - --tools toolbox.py", plan, code=0)
    assert "completed" in found.out
    assert place.calls == ["a"]


def test_nothing_but_blanks(place: Place) -> None:
    """T11: empty input is no mistake, and a last line needs no end."""
    assert typed(place, code=0).out == ""
    assert place("shell", given="\n \n# x\n\nls", code=0).out == place("ls", code=0).out


def test_ctrl_c_ends_lines_of_a_pipe(place: Place) -> None:
    """T11: as it ends a script: the command under way is left as ever, and no line behind it is run."""
    plan = place.plan({"id": "a", "tool": "hold", "args": {"name": "go"}})
    process = subprocess.Popen(
        [sys.executable, "-m", "rerail.cli", "shell"], cwd=place.folder, env=place.environ, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    place.started.append(process)
    assert process.stdin is not None
    process.stdin.write(f"run {plan} --tools toolbox.py\nls\n")
    process.stdin.flush()
    place.until(lambda: "a" in place.calls)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "rerail resume" in err
    assert "objective" not in out


# -- The ordinary command line ------------------------------------------------------------------------------------


def test_a_command_may_begin_with_a_slash(here: Here) -> None:
    """T11: as the reports under zh name them."""
    run = here.run({"id": "a", "tool": "needs_file", "args": {"name": "x"}}, code=1)
    assert here("/logs", run, "--tail", "1", code=0).out == here("logs", run, "--tail", "1", code=0).out
    assert here("/tasks", code=0).out == here("/status", code=0).out == here("ls", code=0).out
    assert here("/status", run, code=0).out == here("--lang", "en", "/status", run, code=0).out
    assert here("/status", "--status", "completed", "--json", code=0).json == []
    assert here("/status", "-n", "1", "--store", ".rerail/runs.db", "--json", code=0).json[0]["run_id"] == run
    assert here("/help", code=0).out == here("--help", code=0).out
    here.place.touch("x")
    here("/retry", run, code=0)
    assert here.place.calls == ["a", "a"]


def test_every_command_but_four_can_be_typed_in_the_shell() -> None:
    """T11."""
    from rerail.cli.shell.command_lines import OFFERED

    assert set(COMMANDS) - set(OFFERED) == {"shell", "serve", "mcp", "worker"}
