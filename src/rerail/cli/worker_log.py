"""The log of a run's workers: what its tools print, and what the workers say, appended and never overwritten (T9).

Rules of this file:
- The log is a plain file, and a worker's stdout and stderr are that file: what a tool prints is there however the
  worker ends. Nothing reads it back as truth.
- A worker's own lines begin with a time, what they are, and the run; a line without that is a tool's, and belongs to
  the time and the run of the last line that has them. Runs may share a log.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rerail.cli.lines import Teller, is_quiet
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.core.events import Record
from rerail.wiring import Engine
from rerail.workspace import make_home

NAME = "worker.log"
EVENT, WORKER = "event", "worker"
MAX_LINE = 4_000  # characters of a line that are shown

_OWN = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (event|worker) ([^:]+): (.*)", re.DOTALL)
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def log_file(engine: Engine, run: str) -> Path:
    """Where the workers of a run write to."""
    return engine.workspace(run) / NAME


# -- Writing ------------------------------------------------------------------------------------------------------


class Scribe:
    """Turns this process's stdout and stderr to a run's log, and writes down what happens to the run."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.place: Callable[[str], Path] | None = None  # where a run's log is
        self._spool = os.dup(2)  # where words go that belong to no run
        self._known: dict[str, tuple[Picture, Teller]] = {}
        self._unplaced: dict[str, list[Record]] = {}

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
        now = datetime.now(UTC).strftime(_TIME)
        lines = "".join(f"{now} {kind} {run}: {line}\n" for line in words.split("\n"))
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        _write(lines.encode("utf-8", "replace"))


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk is no reason to stop
        while data:
            data = data[os.write(1, data) :]


# -- Reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of the log that no event holds: what a tool printed, or a worker's own word."""

    at: float
    text: str
    worker: bool


class LogReader:
    """Reads a run's lines of a log, and later what was added."""

    def __init__(self, file: Path, run: str) -> None:
        self._file, self._run = file, run
        self._offset, self._rest = 0, b""
        self._at, self._whose = 0.0, run

    def read(self, *, last: bool = False) -> Iterator[Printed]:
        """The lines since the last reading; half a line only if it is the ``last`` time."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                for data in file:
                    self._offset += len(data)
                    self._rest += data
                    if self._rest.endswith(b"\n"):
                        yield from self._line()
        except OSError:
            return  # no worker has had the run, or its files were taken away
        if last and self._rest:
            yield from self._line()

    def _line(self) -> Iterator[Printed]:
        text, self._rest = self._rest.decode("utf-8", "replace").rstrip("\r\n"), b""
        own = _OWN.search(text)
        if own is None:
            if self._whose == self._run:
                yield Printed(self._at, text[:MAX_LINE], worker=False)
            return
        if own.start() and self._whose == self._run:  # the tool ended in the middle of a line
            yield Printed(self._at, text[: min(own.start(), MAX_LINE)], worker=False)
        with contextlib.suppress(ValueError):
            self._at = datetime.strptime(own[1], _TIME).replace(tzinfo=UTC).timestamp()
        self._whose = own[3]
        if own[2] == WORKER and self._whose == self._run:  # the history tells the events
            yield Printed(self._at, own[4], worker=True)
