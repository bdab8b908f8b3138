"""A folder with tools, and a real terminal to type into."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Place, here
from tests.cli.conftest import place as plain_place
from tests.shell.screen import Screen
from tests.workers.around import workers_in

__all__ = ["Open", "Terminal", "here", "plain_place"]

# The child takes the terminal for its own, so that Ctrl-C reaches it as it would anybody.
CHILD = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
CLI = ("-m", "rerail.cli")
SIZE = (40, 120)


class Terminal:
    """A terminal with a shell in it."""

    def __init__(self, folder: Path, environ: dict[str, str], *words: str) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, SIZE)
        environ = {**environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *words], cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        self._theirs = theirs  # kept open: how the terminal was left can be seen
        self._screen = Screen(*SIZE)
        self._mark = 0  # the row where something was seen last
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self._screen.feed(decoder.decode(data))

    @property
    def shown(self) -> str:
        """What is on the screen, and what was scrolled away."""
        return "\n".join(self._screen.lines)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def sees(self, text: str, seconds: float = 20.0) -> str:
        """Wait for a text in the line where something was seen last, or below; returns what is there down to it."""
        deadline = time.monotonic() + seconds
        while True:
            lines = self._screen.lines[self._mark :]
            found = next((at for at, line in enumerate(lines) if text in line), None)
            if found is not None:
                self._mark += found
                return "\n".join(lines[: found + 1])
            assert time.monotonic() < deadline, f"no {text!r} in:\n" + "\n".join(lines)
            time.sleep(0.01)

    def ends(self, seconds: float = 10.0) -> int:
        """Wait for the shell's end; returns its exit code."""
        return self.process.wait(seconds)

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as it does for any program that has not asked otherwise."""
        return bool(termios.tcgetattr(self._theirs)[3] & termios.ECHO)

    def close(self) -> None:
        """End what is in it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._theirs)
        self._reader.join(5)
        os.close(self._ours)


Open = Callable[..., Terminal]


@pytest.fixture
def place(plain_place: Place) -> Iterator[Place]:
    """A folder with tools and a state folder of its own; workers that are left in it are ended with the test."""
    plain_place.environ["XDG_STATE_HOME"] = str(plain_place.folder / "state")
    yield plain_place
    for pid in workers_in(plain_place.folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def terminal(place: Place) -> Iterator[Open]:
    """Opens terminals with a shell in them, in the folder."""
    opened: list[Terminal] = []

    def open_one(*words: str, program: tuple[str, ...] = (*CLI, "shell"), **environ: str) -> Terminal:
        opened.append(Terminal(place.folder, {**place.environ, **environ}, *program, *words))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
