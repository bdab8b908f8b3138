"""The log of a run's workers: what its tools print, and what the workers say, appended and never overwritten (T9).

Rules of this file:
- The log is a plain file, and a worker's stdout and stderr are that file: what a tool prints is there however the
  worker ends. Nothing reads it back as truth.
- A worker's own lines begin with a time, what they are, and the run; a line without that is a tool's, and belongs to
  the run of the last line that has one. Runs may share a log.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, cast

from rerail.cli.lines import Teller, is_quiet
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.core.events import Record
from rerail.core.scrub import Scrub
from rerail.engine.printed import EVENT, TIME, WORKER
from rerail.workspace import make_home


class Scrubbed:
    """A stream that blots out secrets in what is printed to it; in everything else it is the stream it stands for."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.scrub = Scrub()

    def write(self, text: str) -> int:
        """Write the text without secrets."""
        self._stream.write(self.scrub.text(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Scribe:
    """Turns this process's stdout and stderr to a run's log, and writes down what happens to the run."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.place: Callable[[str], Path] | None = None  # where a run's log is
        self._spool = os.dup(2)  # where words go that belong to no run
        self._known: dict[str, tuple[Picture, Teller]] = {}
        self._unplaced: dict[str, list[Record]] = {}
        self._streams = (Scrubbed(sys.stdout), Scrubbed(sys.stderr))
        sys.stdout, sys.stderr = cast("tuple[TextIO, TextIO]", self._streams)

    def keep_back(self, scrub: Scrub) -> None:
        """What tools print is for all who read the log, and secrets are for none of them."""
        for stream in self._streams:
            stream.scrub = scrub

    def turn_to(self, run: str) -> None:
        """From now on whatever is printed goes to this run's log; what was printed before comes first."""
        if self.place is None:
            return
        file = self.place(run)
        try:
            make_home(file.parent)
            log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as problem:
            self.word("-", self.out.say("cli.worker.no_log", file=file, reason=problem.strerror))
            return  # a run is worth more than its log
        before = self._printed_before()
        self._turn(log)
        os.close(log)
        _write(before)

    def turn_back(self) -> None:
        """The run is over: what is printed now is not about it."""
        self._turn(self._spool)
        self._known.clear()
        self._unplaced.clear()

    @staticmethod
    def _turn(target: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os.dup2(target, 1)
        os.dup2(target, 2)

    def _printed_before(self) -> bytes:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            size = os.fstat(self._spool).st_size
            found = os.pread(self._spool, size, 0)
            os.ftruncate(self._spool, 0)
            os.lseek(self._spool, 0, os.SEEK_SET)
            return found
        return b""

    def word(self, run: str, words: str) -> None:
        """A word of the worker itself."""
        self._own(WORKER, run, words)

    def unknown_from(self, run: str) -> int | None:
        """The first event of a run that could not be told yet, for want of what came before it."""
        return self._unplaced[run][0].seq if run in self._unplaced else None

    def know(self, run: str, picture: Picture) -> None:
        """What the run was before this worker took it up, so that its events can be told."""
        self._known[run] = (picture, Teller(self.out, picture.state))
        for record in self._unplaced.pop(run, []):
            self.observe(record)

    def observe(self, record: Record) -> None:
        """An event is durable."""
        if record.seq == 1:
            self.turn_to(record.run)  # before its first call is made
            self.know(record.run, Picture(record.run))
        if record.run not in self._known:
            self._unplaced.setdefault(record.run, []).append(record)
            return
        picture, teller = self._known[record.run]
        if record.seq <= picture.seq:
            return
        picture.feed(record)
        line = None if is_quiet(record.event) else teller.line(record)
        if line is not None:
            self._own(EVENT, record.run, line.plain)

    @staticmethod
    def _own(kind: str, run: str, words: str) -> None:
        now = datetime.now(UTC).strftime(TIME)
        lines = "".join(f"{now} {kind} {run}: {line}\n" for line in words.split("\n"))
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        _write(lines.encode("utf-8", "replace"))


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk is no reason to stop
        while data:
            data = data[os.write(1, data) :]
