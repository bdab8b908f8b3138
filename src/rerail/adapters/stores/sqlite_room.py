"""Room in SQLite's write-ahead log, made before it is needed.

A commit that makes a file longer has the file system write down the new length as well, which costs about as much as
the content; a commit into room that is there already does not.

Rules of this file:
- Room is made by whoever holds SQLite's lock for writing: nobody else can be adding to the log then.
- Zeros behind the last frame mean nothing to SQLite, which believes a frame by its salts and its checksum.
- Room is a favour: where none can be made, everything works as it would without.
"""

from __future__ import annotations

import os
from contextlib import suppress

LEAST = 256 << 10  # bytes; half a hundred commits
MOST = 4 << 20  # SQLite starts the log over after 1,000 pages, and this holds them


class Room:
    """Keeps the log of one connection longer than what is written in it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._size = 0  # what this made last; another size: somebody went beyond it

    def make(self) -> None:
        """Make room if the last has been used up. Only inside a transaction that may write."""
        size = os.fstat(self._file).st_size
        if size == self._size or size >= MOST:
            return
        self._size = min(max(2 * size, LEAST), MOST)
        try:
            _fill(self._file, size, self._size)
        except OSError:  # no room left, or a limit: give back what we took, and do not try at every commit
            with suppress(OSError):
                os.ftruncate(self._file, size)
            self._size = size

    def close(self) -> None:
        """Let go of the file; the log itself is SQLite's."""
        with suppress(OSError):
            os.close(self._file)


def room_in(log: str) -> Room | None:
    """Room in this log, if it can be had."""
    try:
        return Room(os.open(log, os.O_WRONLY))
    except OSError:
        return None


def _fill(file: int, start: int, end: int) -> None:
    while start < end:
        start += os.pwrite(file, bytes(end - start), start)
