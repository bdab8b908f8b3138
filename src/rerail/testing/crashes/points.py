"""The moments at which a process may die: before and after everything that it writes down, and every call of a tool.

Rules of this file:
- Moments are counted in the order in which they come. Steps that run side by side may change places from one run to the
  next, so whoever dies says where.
- Only what is written below the folder of the run counts: what else a tool does with files is its own business.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rerail.core.codec import decode
from rerail.ports import Batch, Store

# What changes files and their names. The functions of `os` themselves: pathlib, shutil and tools go through them. Only
# what is written to a file that Python opened does not; it is whole, and gets its name, by what is here.
MOVES = ("replace", "rename", "link", "symlink")  # what is given another name counts where it ends up
CHANGES = ("unlink", "remove", "mkdir", "rmdir", "truncate", "ftruncate", "write", "pwrite", "fsync", "fdatasync")
# What changes the store. `renew` comes by the clock, and says no more than that its owner lives.
STORED = ("create", "append", "claim", "release", "post", "answer", "sweep")


class Points:
    """Counts the moments that pass by, and dies at one of them."""

    def __init__(self, at: int, die: Callable[[int, str], None]) -> None:
        self.seen = 0
        self._at, self._die = at, die
        self._lock = threading.Lock()

    def pass_by(self, what: str) -> None:
        """One moment; it may be the last."""
        with self._lock:
            self.seen += 1
            here = self.seen
        if here == self._at:
            self._die(here, what)


class Perilous:
    """A store around whose every write a process may die; it tells of what was acknowledged as soon as it was."""

    def __init__(self, store: Store, points: Points, acknowledged: Callable[[Batch], None]) -> None:
        self._store, self._points, self._acknowledged = store, points, acknowledged

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in STORED:
            return found

        @functools.wraps(found)
        async def around(*args: Any, **kwargs: Any) -> Any:
            batch = args[0] if args and isinstance(args[0], Batch) else None
            what = f"{name} {_types(batch)}".strip() if batch is not None else name
            self._points.pass_by(f"before {what}")
            result = await found(*args, **kwargs)
            if batch is not None:
                self._acknowledged(batch)
            self._points.pass_by(f"after {what}")
            return result

        return around


def perilous(store: Store, points: Points, acknowledged: Callable[[Batch], None]) -> Store:
    """A store that behaves as the given one, until the moment comes."""
    return cast("Store", Perilous(store, points, acknowledged))


def _types(batch: Batch) -> str:
    """What a batch tells, in a few words: the types of its events, and the steps they are about."""
    said = []
    for _, data in batch.rows:
        event = decode(data)
        said.append(" ".join(filter(None, (str(type(event).__struct_config__.tag), getattr(event, "step", "")))))
    return ", ".join(said)


def watch_files(root: Path, points: Points) -> None:
    """Make every change of a file below a folder a moment, in this process and for as long as it lives."""
    home = os.path.realpath(root)
    for name in (*MOVES, *CHANGES):
        setattr(os, name, _around(name, getattr(os, name), home, points))


def _around(name: str, work: Callable[..., Any], home: str, points: Points) -> Callable[..., Any]:
    @functools.wraps(work)
    def done(*args: Any, **kwargs: Any) -> Any:
        path = _path(args[1:] if name in MOVES else args, kwargs)
        if path is None or not (path + os.sep).startswith(home + os.sep):
            return work(*args, **kwargs)
        what = f"{name} {os.path.basename(path)}"
        points.pass_by(f"before {what}")
        result = work(*args, **kwargs)
        points.pass_by(f"after {what}")
        return result

    return done


def _path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What a call is about, as an absolute path; None where that cannot be told."""
    if not args:
        return None
    given = args[0]
    try:
        if isinstance(given, int):
            return os.readlink(f"/proc/self/fd/{given}")
        folder = kwargs.get("dir_fd")
        base = os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) else os.getcwd()
        path = os.path.join(base, os.fsdecode(given))
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    except OSError:
        return None
