"""What is told above the prompt: events as lines, with the run in front (SPEC T11).

Rules of this file:
- Lines are held back while there is no prompt: a command under way has the screen for itself. What it showed of a run
  it followed is not told again.
- It is written by the prompt's own loop; another thread only rings.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rich.text import Text

from rerail.cli.attend import has_seen
from rerail.cli.lines import Teller, is_quiet
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.cli.shell.lines import Lines
from rerail.core import events as ev
from rerail.core.events import Record

if TYPE_CHECKING:
    from prompt_toolkit.application import Application

MOST = 200  # lines that are held back; the oldest go first

# What people want to know of runs that they are not watching.
ESSENTIAL = (
    ev.RunStarted, ev.Resumed, ev.RetryBegin, ev.Recovered, ev.Replanned, ev.PlanRejected, ev.StepFailed, ev.Reflected,
    ev.ArtifactLost, ev.Waiting, ev.Cancelled, ev.Stopped, ev.Done,
)  # fmt: skip


class Above:
    """Lines for the place above the prompt."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._tellers: WeakKeyDictionary[Picture, Teller] = WeakKeyDictionary()
        self._failing: dict[str, set[str]] = {}  # runs → steps whose failure was told
        self._held: deque[tuple[str, int, str]] = deque(maxlen=MOST)
        self.app: Application[Any] | None = None  # the prompt's, once there is one

    def tell(self, run: str, seq: int, picture: Picture, record: Record | None) -> None:
        """An event happened, or a run's owner died; called by the thread that looks."""
        if self._lines.mode == "none":
            return
        out, line = self._lines.out, self._line(picture, record)
        if line is not None:
            self._held.append((run, seq, shown(out, Text.assemble((run, "bold cyan"), " ", line))))
            self.ring()

    def _line(self, picture: Picture, record: Record | None) -> Text | None:
        if picture not in self._tellers:
            self._tellers[picture] = Teller(self._lines.out, picture.state)
        teller = self._tellers[picture]
        if record is None:
            return teller.beside(time.time(), "interrupted", self._lines.out.say("cli.shell.lost"))
        known = self._is_known(record)
        if self._lines.mode == "all":
            return None if is_quiet(record.event) else teller.line(record)
        return teller.line(record) if isinstance(record.event, ESSENTIAL) and not known else None

    def _is_known(self, record: Record) -> bool:
        """Whether it is the failure of a step that failed before, and is being tried again in the same round."""
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
        """There is something to write, or something to draw anew."""
        app = self.app
        loop = app.loop if app is not None else None
        if app is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # the prompt has ended meanwhile; the next one writes it
                loop.call_soon_threadsafe(self._write_above, context=app.context)

    def redraw(self) -> None:
        """What stands beside the prompt has changed."""
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
    """A line as the terminal takes it."""
    with out.err.capture() as captured:
        out.err.print(line, soft_wrap=True)
    return captured.get()
