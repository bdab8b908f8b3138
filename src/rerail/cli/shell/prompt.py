"""The shell on a terminal: a prompt with completion, history, and live events above it (contract T11).

Rules of this file:
- Ctrl-C ends the command under way, or clears the line; it never ends the shell. Ctrl-D does.
- A command has the terminal for itself while it runs, as in any other shell. Lines wait while there is no prompt, and
  events that a command showed of a followed run are not shown again.
- The prompt's own loop writes; the thread that polls the store only wakes it.
- No other user can read the history, and an unwritable or unreadable file is no error. A line that begins with a blank
  is not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from rich.text import Text

from rerail.cli.app import TERMINATED
from rerail.cli.display.follow import has_seen
from rerail.cli.display.live import LogLines, is_quiet
from rerail.cli.display.run_view import Picture
from rerail.cli.output import Output
from rerail.cli.session import Session
from rerail.cli.shell.command_lines import Left, Lines
from rerail.cli.shell.completion import ShellCompleter
from rerail.cli.shell.store_view import Window
from rerail.cli.style import ICONS
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.version import __version__

if TYPE_CHECKING:
    from prompt_toolkit.application import Application


MAX_HELD = 200  # waiting lines; the oldest go first

# Events shown of runs that no command follows.
ESSENTIAL = (
    ev.RunStarted, ev.Resumed, ev.RetryBegin, ev.Recovered, ev.Replanned, ev.PlanRejected, ev.StepFailed, ev.Reflected,
    ev.ArtifactLost, ev.Waiting, ev.Cancelled, ev.Stopped, ev.Done,
)  # fmt: skip


class Above:
    """The lines above the prompt."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._told: WeakKeyDictionary[Picture, LogLines] = WeakKeyDictionary()
        self._failing: dict[str, set[str]] = {}  # runs → steps with an announced failure
        self._held: deque[tuple[str, int, str]] = deque(maxlen=MAX_HELD)
        self.app: Application[Any] | None = None  # the prompt's, once there is one

    def tell(self, run: str, seq: int, picture: Picture, record: Record | None) -> None:
        """Show an event, or that a run lost its lease holder; called by the polling thread."""
        if self._lines.mode == "none":
            return
        out, line = self._lines.out, self._line(picture, record)
        if line is not None:
            self._held.append((run, seq, shown(out, Text.assemble((run, "bold cyan"), " ", line))))
            self.ring()

    def _line(self, picture: Picture, record: Record | None) -> Text | None:
        if picture not in self._told:
            self._told[picture] = LogLines(self._lines.out, picture.state)
        told = self._told[picture]
        if record is None:
            return told.beside(time.time(), "interrupted", self._lines.out.say("cli.shell.lost"))
        known = self._is_known(record)
        if self._lines.mode == "all":
            return None if is_quiet(record.event) else told.line(record)
        return told.line(record) if isinstance(record.event, ESSENTIAL) and not known else None

    def _is_known(self, record: Record) -> bool:
        """Return True if it is one more failure of a step in the same round."""
        match record.event:
            case ev.StepFailed() as failed if failed.step in self._failing.setdefault(record.run, set()):
                return True
            case ev.StepFailed() as failed:
                self._failing[record.run].add(failed.step)
            case ev.StepSucceeded() as succeeded:
                self._failing.get(record.run, set()).discard(succeeded.step)
            case ev.RetryBegin() | ev.Done():
                self._failing.pop(record.run, None)
            case _:
                pass
        return False

    def ring(self) -> None:
        app = self.app
        loop = app.loop if app is not None else None
        if app is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # the prompt has ended meanwhile; the next one writes it
                loop.call_soon_threadsafe(self._write_above, context=app.context)

    def redraw(self) -> None:
        if self.app is not None:
            self.app.invalidate()

    def _write_above(self) -> None:
        from prompt_toolkit.application import run_in_terminal

        if self._held:
            run_in_terminal(self._write)

    def _write(self) -> None:
        assert self.app is not None
        while self._held:
            run, seq, line = self._held.popleft()
            if not has_seen(run, seq):
                self.app.output.write_raw(line)
        self.app.output.flush()


def shown(out: Output, line: Text) -> str:
    with out.err.capture() as captured:
        out.err.print(line, soft_wrap=True)
    return captured.get()


def history_file() -> Path | None:
    """Return the history's path in the user's state folder; None if there is no such folder."""
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "rerail" / "history"


class PrivateHistory(FileHistory):
    """A history file that only its user reads."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
            file.chmod(0o600)  # it may be older than this program

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        if not string[:1].isspace():
            with contextlib.suppress(OSError):
                super().store_string(string)


PROMPT = "rerail> "


class ShellPrompt:
    """A prompt over a view of the store."""

    def __init__(self, lines: Lines, **terminal: Any) -> None:
        self._lines, self._out = lines, lines.out
        self.above = Above(lines)
        self.window = Window(Session(lines.common, lines.out).settings, self.above.tell, self.above.redraw)
        self.session: PromptSession[str] = PromptSession(
            [("bold", PROMPT)],
            completer=ShellCompleter(self.window, lines.out),
            complete_while_typing=False,  # a Tab during such a completion would have no effect
            history=_history(),
            rprompt=self._beside,
            color_depth=ColorDepth.DEPTH_1_BIT if lines.common.no_color else None,
            **terminal,
        )
        self.above.app = self.session.app

    def run(self) -> int:
        """Read lines until the user leaves; return the exit code."""
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
        """Prepare the prompt: print held lines, and let SIGTERM leave the terminal in order."""
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
        """Return the number of unfinished runs, for the right margin."""
        if self.session.app.is_done:
            return []  # the line stays on the screen, and would be out of date there
        counts = self.window.counts
        numbers = {"running": counts.running, "waiting": counts.waiting, "interrupted": counts.interrupted}
        signs = [f"{ICONS[name][0 if self._out.fancy else 1]} {count}" for name, count in numbers.items() if count]
        return [("ansibrightblack", "  ".join(signs))]


def _history() -> History:
    file = history_file()
    return PrivateHistory(file) if file is not None else InMemoryHistory()


def talk(lines: Lines) -> int:
    """Run the shell on this terminal; return its exit code."""
    prompt = ShellPrompt(lines)
    if not lines.out.quiet:
        lines.out.note(Text(lines.out.say("cli.shell.welcome", version=__version__), "dim"))
    return prompt.run()
