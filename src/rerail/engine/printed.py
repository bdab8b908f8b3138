"""Tools' printed output and workers' own lines: the log beside the run's files, for readers (contract T9).

Rules of this file:
- A worker's own line begins with a time, its kind, and the run. Any other line is a tool's, and belongs to
  the run of the last line with one. Runs may share a log.
- The time of a tool's line is not recorded: the time of the line before it gives its place, and is not shown.
- A log is never truth: the history is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rerail.values.redaction import Scrub

NAME = "worker.log"
EVENT, WORKER = "event", "worker"
MAX_LINE = 4_000  # characters of a line that are shown
TIME = "%Y-%m-%dT%H:%M:%S.%fZ"

_OWN = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (event|worker) ([^:]+): (.*)", re.DOTALL)


def log_file(folder: Path) -> Path:
    """Return the log that the workers of a run write to, in its folder."""
    return folder / NAME


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of the log without an event: printed by a tool, or a worker's own."""

    at: float  # its place between the events; for a tool's line the earliest possible time
    text: str
    worker: bool


class LogReader:
    """Reads a run's lines of a log, and later the added ones."""

    def __init__(self, file: Path, run: str, scrub: Scrub) -> None:
        """``scrub`` redacts again: a log may hold secrets that this process knows, and its worker did not."""
        self._file, self._run, self._scrub = file, run, scrub
        self._offset, self._rest = 0, b""
        self._at, self._whose = 0.0, run

    def read(self, *, last: bool = False) -> Iterator[Printed]:
        """Return the lines since the last reading; a partial line only if it is the ``last`` time."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                for data in file:
                    self._offset += len(data)
                    self._rest += data
                    if self._rest.endswith(b"\n"):
                        yield from self._line()
        except OSError:
            return  # no worker has had the run, or its files were removed
        if last and self._rest:
            yield from self._line()

    def _line(self) -> Iterator[Printed]:
        text, self._rest = self._scrub.text(self._rest.decode("utf-8", "replace").rstrip("\r\n")), b""
        own = _OWN.search(text)
        if own is None:
            if self._whose == self._run:
                yield Printed(self._at, text[:MAX_LINE], worker=False)
            return
        if own.start() and self._whose == self._run:  # the tool ended in the middle of a line
            yield Printed(self._at, text[: min(own.start(), MAX_LINE)], worker=False)
        with contextlib.suppress(ValueError):
            self._at = datetime.strptime(own[1], TIME).replace(tzinfo=UTC).timestamp()
        self._whose = own[3]
        if own[2] == WORKER and self._whose == self._run:  # the history tells the events
            yield Printed(self._at, own[4], worker=True)
