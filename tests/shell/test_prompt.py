"""The shell on a real terminal: keys are typed, and the screen is looked at (T11)."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Place
from tests.shell.conftest import CLI, Open

PROMPT = "rerail>"
BLOCKED = "import sys\nsys.modules['prompt_toolkit'] = None\nfrom rerail.cli import main\nsys.exit(main(['shell']))"


def test_a_command_is_typed_and_the_prompt_comes_back(place: Place, terminal: Open) -> None:
    """T11: the command's own answer; its exit code beside it; leaving is no failure."""
    run = place.run({"id": "a", "tool": "fail"}, code=1)
    screen = terminal()
    screen.sees("/help lists the commands")
    screen.sees(PROMPT)
    screen.type("/tasks\r")
    assert "objective" in screen.sees(run)
    screen.type(f"/retry {run[:5]}\r")
    screen.sees("failed")
    screen.sees("exit code 1")
    screen.type("/quit\r")
    assert screen.ends() == 0
    assert screen.echoes


def test_ctrl_d_leaves(terminal: Open) -> None:
    """T11: from an empty line; the exit code is 0 whatever went wrong before."""
    screen = terminal()
    screen.sees(PROMPT)
    screen.type("/nonsense\r")
    screen.sees("exit code 2")
    screen.sees(PROMPT)
    screen.type("\x04")
    assert screen.ends() == 0


def test_ctrl_c_clears_the_line_and_not_the_shell(terminal: Open) -> None:
    """T11."""
    screen = terminal()
    screen.sees(PROMPT)
    screen.type("/nonsense")
    screen.sees("nonsense")
    screen.type("\x03")
    screen.sees(PROMPT)
    screen.type("/tasks\r")
    assert "error" not in screen.sees("no runs")
    screen.sees(PROMPT)
    screen.type("\x04")
    assert screen.ends() == 0


def test_ctrl_c_ends_the_command_and_not_the_shell(place: Place, terminal: Open) -> None:
    """T11, E1: the run is left as a crash would leave it; the command that is named next can be typed as it is."""
    plan = place.plan({"id": "a", "tool": "hold", "args": {"name": "go"}})
    screen = terminal("--tools", "toolbox.py")
    screen.sees(PROMPT)
    screen.type(f"/run {plan}\r")
    place.until(lambda: "a" in place.calls)
    screen.type("\x03")
    screen.sees("rerail resume ")
    screen.sees("exit code 130")
    (run,) = [row["run_id"] for row in place("ls", "--json").json]
    place.touch("go")
    screen.sees(PROMPT)
    screen.type(f"rerail resume {run}\r")
    screen.sees("completed")
    screen.sees(PROMPT)
    screen.type("\x04")
    assert screen.ends() == 0
    assert place.calls == ["a", "a"]


def test_sigterm_leaves_the_terminal_as_it_was(terminal: Open) -> None:
    """T11: the prompt needs it otherwise."""
    screen = terminal()
    screen.sees(PROMPT)
    screen.type("/x")
    screen.sees("/x")
    assert not screen.echoes
    screen.process.send_signal(signal.SIGTERM)
    assert screen.ends() == 143
    assert screen.echoes
    assert "Traceback" not in screen.shown


def test_several_lines_can_be_pasted(place: Place, terminal: Open) -> None:
    """T11: each is a command."""
    screen = terminal()
    screen.sees(PROMPT)
    screen.type("\x1b[200~/tasks\n/nonsense\n\x1b[201~\r")
    screen.sees("no runs")
    screen.sees("exit code 2")


# -- Events -------------------------------------------------------------------------------------------------------


def test_what_happens_appears_above_a_half_typed_line(place: Place, terminal: Open) -> None:
    """T11: runs of other processes too; the line stays, and does what it says when it is finished."""
    screen = terminal()
    screen.sees(PROMPT)
    screen.type("/sho")
    screen.sees("/sho")
    run = place.run({"id": "a", "tool": "fail", "args": {"message": "no luck"}}, code=1)
    screen.sees(f"{run} ")
    screen.sees("no luck")
    screen.sees(f"{run} ")
    screen.sees("failed")
    screen.sees(f"{PROMPT} /sho")  # drawn again below
    screen.type(f"w {run}\r")
    screen.sees(f"run {run}")
    screen.sees(PROMPT)


def test_a_run_that_a_worker_has_is_told_of(place: Place, terminal: Open) -> None:
    """T11, T8: it starts, waits, and ends, and the number of those that wait stands beside the prompt."""
    plan = place.plan({"id": "a", "tool": "ok"}, {"id": "b", "tool": "ok", "needs": ["a"], "confirm": "Really?"})
    screen = terminal("--tools", "toolbox.py", "--lang", "zh")
    screen.sees(PROMPT)
    screen.type(f"/start {plan}\r")
    screen.sees("启动任务")
    screen.sees("Really?")
    screen.sees("◷ 1")
    (run,) = [row["run_id"] for row in place("ls", "--json").json]
    screen.type(f"/confirm {run} --detach\r")  # on a terminal the call is shown, and a word asked for (X10)
    screen.sees("将调用 ok()")
    screen.sees("[y/N]")
    screen.type("n\r")
    screen.sees("没有确认任何调用")
    screen.sees(PROMPT)
    screen.type(f"/confirm {run} --detach\r")
    screen.sees("[y/N]")
    screen.type("y\r")
    screen.sees(f"{run} ")
    screen.sees("完成")
    assert "第 1 次" not in screen.shown  # no call is told of


def test_a_worker_that_dies_is_told_of(place: Place, terminal: Open) -> None:
    """T11, E1: nobody waits for it in vain."""
    plan = place.plan({"id": "a", "tool": "hold", "args": {"name": "go"}})
    screen = terminal()
    screen.sees(PROMPT)
    process = place.spawn("run", plan, "--tools", "toolbox.py")
    screen.sees("▸ 1")
    process.send_signal(signal.SIGKILL)
    process.wait()
    screen.sees("its process is gone")
    screen.sees("↯ 1")


def test_a_command_has_the_screen_for_itself(place: Place, terminal: Open) -> None:
    """T11: what happens elsewhere meanwhile is told when it has ended; what it showed itself is not told again."""
    plan = place.plan({"id": "first", "tool": "hold", "args": {"name": "go"}})
    screen = terminal("--tools", "toolbox.py")
    screen.sees(PROMPT)
    screen.type(f"/run {plan}\r")
    place.until(lambda: "first" in place.calls)
    other = place.run({"id": "second", "tool": "fail", "args": {"message": "no luck"}}, code=1)
    time.sleep(1.0)
    assert "no luck" not in screen.shown
    own = next(row["run_id"] for row in place("ls", "--json").json if row["run_id"] != other)
    place.touch("go")
    screen.sees("completed")
    screen.sees(f"{other} ")
    screen.sees("no luck")
    screen.type("/nonsense\r")
    told = screen.sees("exit code 2")
    assert not re.search(rf"^{own} +\+", screen.shown, re.MULTILINE), told


def test_quiet_and_verbose(place: Place, terminal: Open) -> None:
    """T11: nothing, everything, or the essential."""
    screen = terminal()
    screen.sees(PROMPT)
    screen.type("/quiet\r")
    screen.sees("Nothing is told above the prompt now.")
    place.run({"id": "one", "tool": "ok"}, code=0)
    time.sleep(1.0)
    assert "started by" not in screen.shown and "completed" not in screen.shown
    screen.type("/verbose\r")
    screen.sees("Every event is told")
    run = place.run({"id": "another", "tool": "ok"}, code=0)
    screen.sees(f"{run} ")
    screen.sees("another")
    screen.sees("completed")
    screen.type("/verbose\r")
    screen.sees("The essential is told")
    run = place.run({"id": "third", "tool": "ok"}, code=0)
    screen.sees(f"{run} ")
    assert "third" not in screen.sees("completed")


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100])
def test_a_store_that_cannot_be_read_harms_nothing(place: Place, terminal: Open, content: bytes) -> None:
    """T11: commands say what is wrong with it, the prompt does not."""
    (place.folder / "broken.db").write_bytes(content)
    screen = terminal("--store", "broken.db")
    screen.sees(PROMPT)
    screen.type("/show \t")
    time.sleep(0.5)
    screen.type("\x03")
    screen.sees(PROMPT)
    screen.type("/doctor\r")
    screen.sees("sqlite")
    screen.sees(PROMPT)
    screen.type("\x04")
    assert screen.ends() == 0
    assert "Traceback" not in screen.shown


def test_a_store_may_come_later(place: Place, terminal: Open) -> None:
    """T11: what is made after the shell began is seen, also in the place of another."""
    screen = terminal()
    screen.sees(PROMPT)
    assert not (place.folder / ".rerail").exists()
    for _ in range(2):
        run = place.run({"id": "a", "tool": "ok"}, code=0)
        screen.sees(f"{run} ")
        screen.sees("completed")
        for file in (place.folder / ".rerail").glob("runs.db*"):
            file.unlink()
        time.sleep(0.5)


# -- History ------------------------------------------------------------------------------------------------------


def history(place: Place) -> Path:
    """The history file."""
    return place.folder / "state" / "rerail" / "history"


def test_what_was_typed_is_there_the_next_time(place: Place, terminal: Open) -> None:
    """T11: for its user alone; a line that begins with a blank is not kept."""
    first = terminal()
    first.sees(PROMPT)
    first.type(" /graph secret\r")
    first.sees("exit code 2")
    first.sees(PROMPT)
    first.type("/tasks --limit 7\r")
    first.sees("no runs")
    first.sees(PROMPT)
    first.type("\x04")
    first.ends()
    assert stat.S_IMODE(history(place).stat().st_mode) == 0o600
    assert "secret" not in history(place).read_text()
    second = terminal()
    second.sees(PROMPT)
    second.type("\x1b[A")
    second.sees("/tasks --limit 7")
    second.type("\r")
    second.sees("no runs")


def test_a_history_that_others_could_read_is_closed_to_them(place: Place, terminal: Open) -> None:
    """T11: also one that was there before."""
    history(place).parent.mkdir(parents=True)
    history(place).write_text("")
    history(place).chmod(0o644)
    terminal().sees(PROMPT)
    assert stat.S_IMODE(history(place).stat().st_mode) == 0o600


def test_a_history_that_cannot_be_kept_is_no_trouble(place: Place, terminal: Open) -> None:
    """T11: a folder in its place, a file in its folder's."""
    history(place).mkdir(parents=True)
    (place.folder / "file").write_text("")
    for state in (str(place.folder / "state"), str(place.folder / "file"), "/proc/nowhere"):
        screen = terminal(XDG_STATE_HOME=state)
        screen.sees(PROMPT)
        screen.type("/tasks\r")
        screen.sees("no runs")
        screen.sees(PROMPT)
        screen.type("\x1b[A")
        screen.sees(f"{PROMPT} /tasks")
        screen.type("\r")
        screen.sees("no runs")
        screen.sees(PROMPT)
        screen.type("\x04")
        assert screen.ends() == 0
        assert "Traceback" not in screen.shown and "Press ENTER" not in screen.shown and "Error" not in screen.shown


# -- Without the extra --------------------------------------------------------------------------------------------


def test_without_the_extra_a_terminal_is_told_what_to_install(place: Place, terminal: Open) -> None:
    """T11: lines from a pipe do without it."""
    screen = terminal(program=("-c", BLOCKED))
    screen.sees("pip install '.[shell]'")
    assert screen.ends() == 2
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=place.folder, env=place.environ, input="ls\n", capture_output=True,
        text=True, timeout=30,
    )  # fmt: skip
    assert (done.returncode, "no runs" in done.stdout) == (0, True)


def test_the_answer_of_a_terminal_may_go_to_a_file(place: Place, terminal: Open) -> None:
    """T11: then there is nobody to show a prompt to."""
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]], stdout=open('out', 'w')))"
    screen = terminal(program=("-c", code, *CLI, "shell"))
    screen.type("ls\n\x04")
    assert screen.ends() == 0
    assert "no runs" in (place.folder / "out").read_text()
    assert PROMPT not in screen.shown
