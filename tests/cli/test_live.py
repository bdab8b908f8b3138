"""Progress on a terminal: a table while it runs, the report below it; plain lines elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.conftest import Here, Place


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, place: Place, *words: str, rows: int = 30, environ: dict[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
        kept = {name: value for name, value in place.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rerail.cli", *words], cwd=place.folder,
            env={**kept, "TERM": "xterm-256color", **(environ or {})}, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        place.started.append(self.process)  # type: ignore[arg-type]  # closed with the others
        os.close(theirs)
        self.seen = ""

    def until(self, true: Callable[[str], bool]) -> None:
        """Read until the text so far is as wished."""
        while not true(self.seen):
            if not self._read():
                raise AssertionError(self.seen)

    def end(self) -> tuple[int, str]:
        """Read to the end; the exit code and everything that was drawn."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(10), self.seen

    def _read(self) -> bool:
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:  # the other end is gone
            return False
        self.seen += chunk.decode("utf-8", "replace")
        return bool(chunk)


def plainly(text: str) -> str:
    """What was drawn, without colours and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


HELD: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok"},
    {"id": "b", "tool": "hold", "args": {"name": "go.txt"}, "needs": ["a"]},
    {"id": "c", "tool": "fail", "needs": ["a"], "alternatives": ["ok"]},
    {"id": "d", "tool": "ok", "needs": ["b"]},
)


def test_the_table_follows_the_run(place: Place) -> None:
    """SPEC 12: steps, attempts, time, the rung taken and what is waited for, drawn again as events come."""
    plan = place.plan(*HELD)
    terminal = Terminal(place, "run", plan, "--tools", "toolbox.py", "--set", "reflection.max_step_retries=1")
    terminal.until(lambda seen: "needs b" in seen and "another tool: ok" in seen)
    shown = plainly(terminal.seen)
    assert "3/4" not in shown
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] b", shown)
    place.touch("go.txt")
    code, seen = terminal.end()
    shown = plainly(seen)
    assert code == 0
    assert "4/4  ✓ 4" in shown
    assert "✓ c  ok    2×" in shown
    assert "✓ completed" in shown.split("4/4")[-1]
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")  # the cursor is given back


def test_a_large_plan_is_summed_up(place: Place) -> None:
    """SPEC 12: a plan that does not fit the screen shows counts and only what runs or failed."""
    steps = [{"id": f"s{n}", "tool": "ok"} for n in range(300)]
    plan = place.plan(*steps, {"id": "held", "tool": "hold", "args": {"name": "go.txt"}}, {"id": "bad", "tool": "fail"})
    terminal = Terminal(place, "run", plan, "--tools", "toolbox.py", rows=12)
    terminal.until(lambda seen: "300/302" in seen and "held" in seen and "it broke" in seen)
    place.touch("go.txt")
    code, seen = terminal.end()
    assert code == 1
    last = plainly(seen).split("301/302")[-1]
    assert "✗ bad" in last
    assert "s150 " not in last


def test_ctrl_c_gives_the_terminal_back(place: Place) -> None:
    """E1: the cursor is shown again, and the last line says how to go on."""
    terminal = Terminal(place, "run", place.plan(*HELD), "--tools", "toolbox.py")
    terminal.until(lambda seen: "needs b" in seen)
    terminal.process.send_signal(signal.SIGINT)
    code, seen = terminal.end()
    assert code == 130
    assert "rerail resume" in plainly(seen).strip().splitlines()[-1]
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("words", "environ", "colourful"),
    [((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False)],
    ids=["default", "option", "environment"],
)
def test_colours_can_be_switched_off(
    place: Place, words: tuple[str, ...], environ: dict[str, str], colourful: bool
) -> None:
    """--no-color and NO_COLOR are honoured."""
    terminal = Terminal(
        place, "run", place.plan({"id": "a", "tool": "fail"}), "--tools", "toolbox.py", *words, environ=environ
    )
    code, seen = terminal.end()
    assert code == 1
    assert bool(re.search(r"\x1b\[(?:\d+;)*3[0-7]m", seen)) is colourful


def test_plain_lines_where_nobody_looks(here: Here) -> None:
    """SPEC 12: one line for each event that people care about, with the time since the start; none with --quiet."""
    plan = here.place.plan({"id": "a", "tool": "noisy"}, {"id": "b", "tool": "fail", "needs": ["a"]})
    lines = here("run", plan, "--tools", "toolbox.py", code=1).err.splitlines()
    told = [line for line in lines if re.match(r" *\+[\d.]+ m?s  ", line)]
    assert [line.split()[2] for line in told] == ["◆", "▸", "│", "✓", "▸", "✗", "✗", "✗"]
    assert not any("\x1b" in line for line in lines)
    quiet = here("run", plan, "--tools", "toolbox.py", "--quiet", code=1)
    assert not re.search(r"\+\d", quiet.err)
    assert "✗ failed" in quiet.out


def test_thousands_of_plain_lines_are_counted(here: Here) -> None:
    """A large plan says now and then how far it is, and names only what goes wrong."""
    steps = [{"id": f"s{n}", "tool": "ok"} for n in range(400)]
    plan = here.place.plan(*steps, {"id": "bad", "tool": "fail"})
    err = here("run", plan, "--tools", "toolbox.py", code=1).err
    assert len(err.splitlines()) < 40
    assert "200 of 401 steps succeeded" in err
    assert "it broke" in err
