"""Crash points, and the ledger of a trial outside of the store: calls, acknowledged events, deaths.

Rules of this file:
- A line is on the disk before the announced act begins, and after a reported one has ended. So a call without a line
  was not made, and a call without an end may or may not have had its effect.
- Crash points are before and after every durable write and every call. They are counted in order of time: steps that
  run side by side may change places from one run to the next, so a dying process reports its place.
- Only writes below the folder of the run count: a tool's other files are its own business.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from rerail.kernel.codec import decode
from rerail.ports import Batch, Store, Tool

# Functions that change files and their names. Those of `os` itself: pathlib, shutil and tools go through them. Writes
# to a file that Python opened do not; the functions here make that file durable and give it its name.
MOVES = ("replace", "rename", "link", "symlink")  # a moved file counts at its target
CHANGES = ("unlink", "remove", "mkdir", "rmdir", "truncate", "ftruncate", "write", "pwrite", "fsync", "fdatasync")
# Methods that change the store. `renew` comes by the clock, and only says that its owner lives.
STORED = ("create", "append", "claim", "release", "post", "answer", "sweep")


class Points:
    """Counts the moments that pass, and dies at one of them."""

    def __init__(self, at: int, die: Callable[[int, str], None]) -> None:
        self.seen = 0
        self._at, self._die = at, die
        self._lock = threading.Lock()

    def pass_by(self, what: str) -> None:
        """Pass one moment; it may be the last."""
        with self._lock:
            self.seen += 1
            here = self.seen
        if here == self._at:
            self._die(here, what)


class Perilous:
    """A store with crash points around every write; it reports each acknowledgement at once."""

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
    """Wrap a store: it behaves the same until the moment comes."""
    return cast("Store", Perilous(store, points, acknowledged))


def _types(batch: Batch) -> str:
    """Describe a batch: the types of its events, and their steps."""
    said = []
    for _, data in batch.rows:
        event = decode(data)
        said.append(" ".join(filter(None, (str(type(event).__struct_config__.tag), getattr(event, "step", "")))))
    return ", ".join(said)


def watch_files(root: Path, points: Points) -> None:
    """Make every change of a file below a folder a moment, in this process and for its whole life."""
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
    """Return a call's file as an absolute path; None if it is unknown."""
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


_write, _fsync = os.write, os.fsync  # the ledger's own writes must not count as crash points


class LedgerCall(msgspec.Struct, frozen=True, tag="call", tag_field="kind"):
    """A call of a tool begins."""

    life: int
    run: str
    step: str
    attempt: int
    tool: str
    effect: str
    args: str  # a digest


class End(msgspec.Struct, frozen=True, tag="end", tag_field="kind", omit_defaults=True):
    """A call of a tool has ended: with an output, or with an error."""

    life: int
    run: str
    step: str
    attempt: int
    digest: str = ""  # of the output
    output: Any = None
    shown: bool = True  # the output is here; one that is not JSON is missing
    error: str = ""


class Kept(msgspec.Struct, frozen=True, tag="kept", tag_field="kind"):
    """The store acknowledged an event as durable."""

    life: int
    run: str
    seq: int
    digest: str


class Death(msgspec.Struct, frozen=True, tag="death", tag_field="kind"):
    """The process dies now."""

    life: int
    point: int
    what: str


class Cut(msgspec.Struct, frozen=True, tag="cut", tag_field="kind"):
    """The answer of a finished call is cut off."""

    life: int
    run: str
    step: str
    attempt: int
    tool: str


class Count(msgspec.Struct, frozen=True, tag="count", tag_field="kind"):
    """The process came to its end; it passed that many moments."""

    life: int
    points: int
    calls: int = 0


CUT_OFF = "crashtest: the answer is cut off after the effect"
Line = LedgerCall | End | Kept | Death | Cut | Count


class CallLedger:
    """A file with durable, atomic line appends; without a file, the lines stay in memory."""

    def __init__(self, life: int, path: Path | None = None, lines: list[Line] | None = None) -> None:
        self.life, self._path = life, path
        self._lines = lines if lines is not None else []
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path is not None else None
        self.closed = False  # a dead process writes nothing

    def add(self, line: Line) -> None:
        """Append a line; it is durable on return."""
        if self.closed:
            return
        if self._file is None:
            self._lines.append(line)
            return
        _write(self._file, msgspec.json.encode(line) + b"\n")
        _fsync(self._file)

    def acknowledged(self, batch: Batch) -> None:
        """Note events that the store has."""
        for number, (_, data) in enumerate(batch.rows, 1):
            self.add(Kept(self.life, batch.run, batch.after + number, digest_of(data)))

    def lines(self) -> list[Line]:
        return read(self._path) if self._path is not None else list(self._lines)


def read(path: Path) -> list[Line]:
    """Return the lines of a ledger; empty if there is no file yet."""
    if not path.exists():
        return []
    decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


class Watching:
    """Executor that calls tools in place and records each call (the executor port)."""

    here = True  # a call is at work in this process, and ends with it

    def __init__(
        self, ledger: CallLedger, points: Points, root: Path | None = None, cut: tuple[int, str] | None = None
    ) -> None:
        """``cut`` is the number of a successful call, and the kind of its cut answer."""
        self._ledger, self._points, self._cut = ledger, points, cut
        self.ended = 0  # successful calls
        self._root = os.fspath(root).encode() if root is not None else b""

    async def open(self) -> None:
        """Do nothing: there is no pool."""

    async def close(self) -> None:
        """Do nothing: there is no pool."""

    def takes(self, tool: Tool) -> bool:
        return True

    async def call(
        self,
        tool: Tool,
        args: Mapping[str, Any],
        ctx: Any,
        resources: Mapping[str, float],
        begun: Callable[[float], None],
    ) -> Any:
        """Call a tool; record the call before it begins, and its end before the result is returned."""
        begun(0.0)
        where = (self._ledger.life, ctx.run, ctx.step, ctx.attempt)
        self._points.pass_by(f"before call {ctx.step}")
        self._ledger.add(LedgerCall(*where, tool.spec.name, str(tool.spec.effect), self._packed(args)[0]))
        try:
            output = await tool.call(dict(args), ctx)
        except BaseException as error:
            self._ledger.add(End(*where, error=f"{type(error).__name__}: {error}"[:500]))
            self._points.pass_by(f"after call {ctx.step}")
            raise
        digest, plain = self._packed(output)
        self._ledger.add(End(*where, digest, output if plain else None, plain))
        self._points.pass_by(f"after call {ctx.step}")
        self.ended += 1
        if self._cut is not None and self.ended == self._cut[0]:
            self._ledger.add(Cut(*where, tool.spec.name))
            raise ConnectionResetError(CUT_OFF) if self._cut[1] == "reset" else RuntimeError(CUT_OFF)
        return output

    def _packed(self, value: Any) -> tuple[str, bool]:
        """Return the digest of a value, wherever its run lives, and whether it is JSON."""
        try:
            data, plain = msgspec.json.encode(value, order="deterministic"), True
        except (TypeError, ValueError, RecursionError):
            data, plain = repr(value).encode(), False
        return digest_of(data.replace(self._root, b"~") if self._root else data), plain


def calls_of(lines: Sequence[Line], run: str, step: str, attempt: int) -> tuple[LedgerCall | None, End | None]:
    """Return the recorded state of one attempt."""
    call = end = None
    for line in lines:
        if isinstance(line, LedgerCall | End) and (line.run, line.step, line.attempt) == (run, step, attempt):
            if isinstance(line, LedgerCall):
                call = line
            else:
                end = line
    return call, end
