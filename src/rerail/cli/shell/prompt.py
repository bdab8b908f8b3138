"""The shell on a terminal: a prompt with completion, a history, and what happens meanwhile above it (SPEC T11).

Rules of this file:
- Ctrl-C ends the command under way, or clears the line; it never ends the shell. Ctrl-D does.
- A command has the terminal for itself while it runs, as if it had been typed into any other shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from rich.text import Text

from rerail.cli.app import TERMINATED
from rerail.cli.session import Session
from rerail.cli.shell.complete import ShellCompleter, Unhurried
from rerail.cli.shell.events import Above
from rerail.cli.shell.history import PrivateHistory, history_file
from rerail.cli.shell.lines import Left, Lines
from rerail.cli.shell.window import Window
from rerail.cli.style import ICONS

PROMPT = "rerail> "


class Prompt:
    """A prompt over a window on the store."""

    def __init__(self, lines: Lines, **terminal: Any) -> None:
        self._lines, self._out = lines, lines.out
        self.above = Above(lines)
        self.window = Window(Session(lines.common, lines.out).settings, self.above.tell, self.above.redraw)
        self.session: PromptSession[str] = PromptSession(
            [("bold", PROMPT)],
            completer=Unhurried(ShellCompleter(self.window, lines.out)),
            complete_while_typing=False,  # or a Tab that comes while it is at it would do nothing
            history=_history(),
            rprompt=self._beside,
            color_depth=ColorDepth.DEPTH_1_BIT if lines.common.no_color else None,
            **terminal,
        )
        self.above.app = self.session.app

    def run(self) -> int:
        """Take lines until somebody leaves; returns the exit code."""
        self.window.open()
        try:
            while True:
                try:
                    typed = self._ask()
                except KeyboardInterrupt:
                    continue
                for line in typed.splitlines():  # several, if they were pasted
                    self._perform(line)
        except (EOFError, Left):
            return 0
        finally:
            self.window.close()

    def _ask(self) -> str:
        with patch_stdout(raw=True):
            return self.session.prompt(pre_run=self._begin)

    def _begin(self) -> None:
        """The prompt is there: what was held back is told, and SIGTERM leaves the terminal in order."""
        self.above.ring()
        with contextlib.suppress(NotImplementedError, RuntimeError):  # not on every system, nor in every thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)

    def _stop(self) -> None:
        if self.session.app.is_running and not self.session.app.is_done:
            self.session.app.exit(exception=SystemExit(TERMINATED))

    def _perform(self, line: str) -> None:
        code = self._lines.perform(line)
        if code:
            self._out.note(Text(self._out.say("cli.shell.code", code=code), "dim"))

    def _beside(self) -> StyleAndTextTuples:
        """How many runs are not at rest, at the right."""
        if self.session.app.is_done:
            return []  # it stays on the screen, and is out of date there
        counts = self.window.counts
        numbers = {"running": counts.running, "waiting": counts.waiting, "interrupted": counts.interrupted}
        signs = [f"{ICONS[name][0 if self._out.fancy else 1]} {count}" for name, count in numbers.items() if count]
        return [("ansibrightblack", "  ".join(signs))]


def _history() -> History:
    file = history_file()
    return PrivateHistory(file) if file is not None else InMemoryHistory()


def talk(lines: Lines) -> int:
    """The shell on this terminal; returns its exit code."""
    prompt = Prompt(lines)
    if not lines.out.quiet:
        lines.out.note(Text(lines.welcome(), "dim"))
    return prompt.run()
