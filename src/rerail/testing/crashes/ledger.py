"""What really happened, kept outside of the store: calls, what the store acknowledged, and where a process died.

Rules of this file:
- A line is on the disk before what it announces begins, and after what it reports has ended. So a call that is not in
  here was not made, and one without an end may or may not have had its effect.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rerail.ports import Batch, Tool
from rerail.testing.crashes.points import Points

_write, _fsync = os.write, os.fsync  # what is counted as a moment must not count its own account


class Call(msgspec.Struct, frozen=True, tag="call", tag_field="kind"):
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
    shown: bool = True  # the output is here; one that is no JSON is not
    error: str = ""


class Kept(msgspec.Struct, frozen=True, tag="kept", tag_field="kind"):
    """The store said that an event is durable."""

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
    """The answer of a call that has ended is cut off."""

    life: int
    run: str
    step: str
    attempt: int
    tool: str


class Count(msgspec.Struct, frozen=True, tag="count", tag_field="kind"):
    """The process came to its end; that many moments passed by."""

    life: int
    points: int
    calls: int = 0


CUT_OFF = "crashtest: the answer is cut off after the effect"
Line = Call | End | Kept | Death | Cut | Count


class Ledger:
    """A file that lines are added to, whole and durably; or none, and they are kept here."""

    def __init__(self, life: int, path: Path | None = None, lines: list[Line] | None = None) -> None:
        self.life, self._path = life, path
        self._lines = lines if lines is not None else []
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path is not None else None
        self.closed = False  # a process that is dead writes nothing

    def add(self, line: Line) -> None:
        """Write a line; it is there before this returns."""
        if self.closed:
            return
        if self._file is None:
            self._lines.append(line)
            return
        _write(self._file, msgspec.json.encode(line) + b"\n")
        _fsync(self._file)

    def acknowledged(self, batch: Batch) -> None:
        """The store has these events."""
        for number, (_, data) in enumerate(batch.rows, 1):
            self.add(Kept(self.life, batch.run, batch.after + number, digest_of(data)))

    def lines(self) -> list[Line]:
        """All lines, of every process that wrote here."""
        return read(self._path) if self._path is not None else list(self._lines)


def read(path: Path) -> list[Line]:
    """The lines of a ledger; none, if nobody has begun it."""
    if not path.exists():
        return []
    decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def digest_of(data: bytes) -> str:
    """A short name for a content."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


class Watching:
    """Calls tools where they are, and writes each call down (the executor port)."""

    here = True  # a call is at work in this process, and ends with it

    def __init__(
        self, ledger: Ledger, points: Points, root: Path | None = None, cut: tuple[int, str] | None = None
    ) -> None:
        """``cut`` is the number of a call that ends well, and how its answer is cut off."""
        self._ledger, self._points, self._cut = ledger, points, cut
        self.ended = 0  # calls that ended well
        self._root = os.fspath(root).encode() if root is not None else b""

    async def open(self) -> None:
        """Nothing to get ready."""

    async def close(self) -> None:
        """Nothing to let go of."""

    def takes(self, tool: Tool) -> bool:
        """Every tool."""
        return True

    async def call(
        self,
        tool: Tool,
        args: Mapping[str, Any],
        ctx: Any,
        resources: Mapping[str, float],
        begun: Callable[[float], None],
    ) -> Any:
        """Call a tool; the call is in the ledger before it begins, and its end before anybody hears of it."""
        begun(0.0)
        where = (self._ledger.life, ctx.run, ctx.step, ctx.attempt)
        self._points.pass_by(f"before call {ctx.step}")
        self._ledger.add(Call(*where, tool.spec.name, str(tool.spec.effect), self._packed(args)[0]))
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
        """The digest of a value, wherever its run lives, and whether it is JSON."""
        try:
            data, plain = msgspec.json.encode(value, order="deterministic"), True
        except (TypeError, ValueError, RecursionError):
            data, plain = repr(value).encode(), False
        return digest_of(data.replace(self._root, b"~") if self._root else data), plain


def calls_of(lines: Sequence[Line], run: str, step: str, attempt: int) -> tuple[Call | None, End | None]:
    """What the ledger knows of one attempt."""
    call = end = None
    for line in lines:
        if isinstance(line, Call | End) and (line.run, line.step, line.attempt) == (run, step, attempt):
            if isinstance(line, Call):
                call = line
            else:
                end = line
    return call, end
