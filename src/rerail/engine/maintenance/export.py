"""Export and import of runs at rest: JSON lines that carry histories and contents into any store (contract E10).

Rules of this file:
- A run is written whole: its first line says what it is, its last line that nothing is missing. So does the file.
- A run that cannot be read is named and leaves nothing in the file, so all other runs are exported.
- A file is checked from its first line to its last before anything of it is imported.
- An imported run is a copy: its first event says so, and it cannot go on (`RUN_COPIED`). With `own` it can.
- An incomplete run belongs to its import, even after a crash: importing the same file again continues it.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import msgspec

from rerail.engine.runs.owner import as_driven, copier, is_arriving, is_dead
from rerail.engine.runs.reader import AT_REST, FORGOTTEN
from rerail.engine.runs.starter import usable_id
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.codec import Damaged, NewerFormat, decode
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.kernel.verdict import run_status
from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Row, Store, Surveyed, Taken, Unusable
from rerail.values.json_values import digest

FORMAT: Final = 1
PAGE: Final = 500  # rows of one append
HEAVY: Final = 32 << 20  # bytes of contents above which an append has fewer rows
PART: Final = 3 << 18  # bytes of a content in one line
_DIGEST: Final = re.compile(rb'"([0-9a-f]{32})"')


class _Line(msgspec.Struct, tag_field="line", omit_defaults=True):
    pass


class _Run(_Line, tag="run"):
    run: str
    status: str
    objective: str = ""
    parent: str = ""
    created_at: float = 0.0
    store: str = ""  # its origin, safe to show
    format: int = FORMAT


class _Content(_Line, tag="content"):
    digest: str
    data: str  # base64
    more: bool = False  # the next line goes on with it


class _Event(_Line, tag="event"):
    seq: int
    at: float
    event: msgspec.Raw


class _End(_Line, tag="end"):
    run: str
    events: int
    contents: int = 0
    lost: tuple[str, ...] = ()  # contents that could not be read


class _Last(_Line, tag="last"):
    runs: int


_decoder: Final = msgspec.json.Decoder(_Run | _Content | _Event | _End | _Last)


@dataclass(frozen=True, slots=True)
class Carried:
    """The result for one run."""

    run: str
    outcome: str  # exported, imported, same; partial: some contents are lost; open, damaged, differs, …
    events: int = 0
    contents: int = 0
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def ok(self) -> bool:
        """True if the run is complete now."""
        return self.outcome in ("exported", "imported", "same")


# -- Export -------------------------------------------------------------------------------------------------------


async def listed(store: Store, prefix: str = "") -> list[Head]:
    """Return all runs, oldest first; from a damaged list, all that any query finds."""
    try:
        heads = await store.heads(prefix=prefix, limit=1_000_000_000)
        return [head for head in reversed(heads) if head.run != FORGOTTEN]
    except Unusable:
        if not isinstance(store, Surveyed):
            raise
    heads = [await _found(store, run) for run in await store.survey() if run.startswith(prefix) and run != FORGOTTEN]
    return sorted(heads, key=lambda head: head.created_at)


async def _found(store: Store, run: str) -> Head:
    """Return a run's head, or one made from its history; `cancelled` for a run that proves damaged later."""
    try:
        head = await store.head(run)
    except Unusable:
        head = None
    if head is not None:
        return head
    state = State(run)
    try:
        async for row in _rows(store, run):
            evolve(state, decode(row.data), row.at, row.seq)
    except (Damaged, NewerFormat, Unusable):
        return Head(run, status="cancelled")
    return Head(run, state.seq, str(run_status(state)), state.objective, state.parent, state.created_at)


async def export_runs(store: Store, heads: list[Head], file: BinaryIO, origin: str = "") -> AsyncIterator[Carried]:
    """Write these runs into a file that can be truncated: a run that fails midway leaves nothing there."""
    count = 0
    for head in heads:
        start = file.tell()
        try:
            found = await _written(store, head, file, origin)
        except (Damaged, NewerFormat, Unusable) as error:
            found = Carried(head.run, "damaged", reason=tell("reason.export.unreadable", error=error))
        if not found.ok and found.outcome != "partial":
            file.seek(start)
            file.truncate()
        count += file.tell() > start
        yield found
    file.write(msgspec.json.encode(_Last(count)) + b"\n")


async def _written(store: Store, head: Head, file: BinaryIO, origin: str) -> Carried:
    is_open = Carried(head.run, "open", reason=tell("reason.export.open", status=head.status))
    if head.status not in AT_REST:
        return is_open

    def put(line: _Line) -> None:
        file.write(msgspec.json.encode(line) + b"\n")

    state, contents, lost = State(head.run), dict[str, bool](), list[str]()
    put(_Run(head.run, head.status, head.objective, head.parent, head.created_at, origin))
    async for row in _rows(store, head.run):
        evolve(state, decode(row.data), row.at, row.seq)
        for name in (found.decode() for found in _DIGEST.findall(row.data)):
            if name in contents:
                continue
            data = await _content(store, name)
            contents[name] = bool(data)
            if data is None:
                lost.append(name)
                continue
            for at in range(0, len(data), PART):
                put(_Content(name, base64.b64encode(data[at : at + PART]).decode(), at + PART < len(data)))
        put(_Event(row.seq, row.at, msgspec.Raw(row.data)))
    if state.rest is None:
        return is_open
    count = sum(contents.values())
    put(_End(head.run, state.seq, count, tuple(lost)))
    if lost:
        reason = tell("reason.export.lost", n=len(lost), digests=", ".join(lost[:3]) + ("…" if len(lost) > 3 else ""))
        return Carried(head.run, "partial", state.seq, count, reason)
    return Carried(head.run, "exported", state.seq, count)


async def _rows(store: Store, run: str) -> AsyncIterator[Row]:
    """Yield a history in order and without gaps; `Damaged` otherwise: a damaged file may answer with anything."""
    after = 0
    while rows := await store.read(run, after, PAGE):
        for row in rows:
            after, odd = after + 1, [type(row.seq), type(row.data), type(row.at)] != [int, bytes, float]
            if odd or row.seq != after:
                raise Damaged(tell("reason.export.no_event", seq=after))
            yield row


async def _content(store: Store, name: str) -> bytes | None:
    """Return a content; empty if it expired or is none, None if it is damaged."""
    try:
        data: Any = await store.blob(name)
    except Unusable:
        return None
    if data is None:
        return b""
    return data if isinstance(data, bytes) and digest(data) == name else None


# -- Import -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Whole:
    """A run of a file that was checked from its first line to its last."""

    head: _Run
    rows: list[tuple[float, bytes]]
    contents: list[tuple[int, str, int]]  # rows before it, its digest, the offset of its first line


async def import_runs(store: Store, file: BinaryIO, *, own: bool = False) -> AsyncIterator[Carried]:
    """Read the runs of a file into the store, as copies or as its own; `Refused` if the file is incomplete."""
    runs = [whole.head.run for whole in _checked(file)]
    if not runs:
        raise Refused(tell("refuse.import.empty"), "USAGE")
    if own:
        # Families at once: the runs themselves take the place of their copies.
        await _remove(store, [run for run in runs if await _is_copy(store, run)])
    for whole in _checked(file):
        try:
            yield await _taken_in(store, whole, file, own=own)
        except (Conflict, Fenced, Taken) as faster:  # another import is running
            owner = faster.head.owner if isinstance(faster, Taken) else "-"
            run = whole.head.run
            yield Carried(run, "arriving", reason=tell("refuse.run.arriving", run=run, owner=owner))
        except Unusable as problem:  # a content too large for the store, perhaps; the others may fit
            yield Carried(whole.head.run, "failed", reason=tell("reason.import.failed", error=problem))


def _checked(file: BinaryIO) -> Iterator[_Whole]:
    """Yield each run once all of it was checked; `Refused` for any deviation from an export's form."""
    whole, state, data, place, count = None, State(""), bytearray(), 0, 0
    while file.seek(place) is not None and (line := file.readline()):
        try:
            found = _decoder.decode(line)
            part = base64.b64decode(found.data, validate=True) if isinstance(found, _Content) else b""
            event = decode(bytes(found.event)) if isinstance(found, _Event) else None
        except (ValueError, RecursionError) as error:  # not our line, content or event, or one of a newer version
            raise _bad(whole, error) from None
        if isinstance(found, _Run) and whole is None and found.format == FORMAT:
            whole, state = _Whole(found, [], []), State(usable_id(found.run))
        elif isinstance(found, _Content) and whole is not None:
            whole.contents += [(len(whole.rows), found.digest, place)] if not data else []
            data += part
            if not found.more and digest(bytes(data)) != found.digest:
                raise _bad(whole, tell("reason.import.content", digest=found.digest))
            data = data if found.more else bytearray()
        elif isinstance(found, _Event) and event is not None and whole is not None and found.seq == state.seq + 1:
            if (found.seq == 1) != isinstance(event, ev.RunStarted):
                raise _bad(whole, tell("reason.export.no_event", seq=found.seq))
            evolve(state, event, found.at, found.seq)
            whole.rows.append((found.at, bytes(found.event)))
        elif (
            isinstance(found, _End)
            and whole is not None
            and (found.events, found.contents) == (len(whole.rows), len(whole.contents))
        ):
            if state.rest is None:
                raise _bad(whole, tell("reason.export.open", status=str(run_status(state))))
            yield whole
            whole, count = None, count + 1
        elif isinstance(found, _Last) and whole is None and found.runs == count:
            count = -1
        else:
            raise _bad(whole, tell("reason.import.order"))
        place += len(line)
    if count >= 0 and place:
        raise _bad(whole, tell("reason.import.cut"))


def _bad(whole: _Whole | None, reason: object) -> Refused:
    run = whole.head.run if whole is not None else "-"
    return Refused(tell("refuse.import.file", run=run, reason=reason), "USAGE", hint=tell("hint.import.file"))


async def _remove(store: Store, runs: list[str]) -> None:
    heads = [await store.head(run) for run in runs]
    try:
        await store.remove([head for head in heads if head is not None and not is_arriving(head)])
    except Conflict:
        raise Refused(tell("refuse.import.held", runs=", ".join(runs)), "RUN_LIVE") from None


async def _taken_in(store: Store, whole: _Whole, file: BinaryIO, *, own: bool) -> Carried:
    """Create a run, continue one after an interrupted import, or compare an existing one."""
    run, head = whole.head.run, whole.head
    there = await store.head(run)
    if there is None:
        there = Head(
            run, 0, "pending", head.objective, head.parent, head.created_at, head.created_at, copier(), 1, time.time()
        )
        lease = Lease(run, copier(), 1)
        await store.create(there)
    elif is_arriving(there) and there.owner != copier() and not is_dead(as_driven(there), time.time()):
        raise Taken(there)
    elif not await _is_same(store, whole, there.seq if is_arriving(there) else len(whole.rows)):
        return Carried(run, "differs", reason=tell("reason.import.differs"))
    elif is_arriving(there):
        lease = await store.claim(run, copier(), time.time(), over=there.fence)
    else:
        return Carried(run, "same", there.seq)
    await _fill(store, whole, file, lease, there.seq, own=own)
    if own == await _is_copy(store, run):  # begun in the other mode, and interrupted
        await _remove(store, [run])
        return await _taken_in(store, whole, file, own=own)
    return Carried(run, "imported", len(whole.rows), len(whole.contents))


async def _fill(store: Store, whole: _Whole, file: BinaryIO, lease: Lease, after: int, *, own: bool) -> None:
    """Write the missing parts of a run, and release it once it is complete."""
    contents = [content for content in whole.contents if content[0] >= after]
    rows = [(at, _marked(data, whole.head, own=own) if n == 0 else data) for n, (at, data) in enumerate(whole.rows)]
    while after < len(rows):
        blobs: dict[str, bytes] = {}
        last = min(after + PAGE, len(rows))
        while contents and contents[0][0] < last:
            row, name, place = contents.pop(0)
            blobs[name] = _loaded(file, place)
            last = row + 1 if sum(map(len, blobs.values())) > HEAVY else last
        status = whole.head.status if last == len(rows) else ""
        objective = whole.head.objective if status else ""
        await store.append(Batch(whole.head.run, after, rows[after:last], lease.fence, blobs, status, objective))
        await store.renew(lease, time.time())
        after = last
    await store.release(lease)


def _loaded(file: BinaryIO, place: int) -> bytes:
    data = bytearray()
    file.seek(place)
    while isinstance(line := _decoder.decode(file.readline()), _Content):
        data += base64.b64decode(line.data)
        if not line.more:
            break
    return bytes(data)


def _marked(first: bytes, head: _Run, *, own: bool) -> bytes:
    """Return the first event with or without its mark as a copy; all else unchanged."""
    plain = msgspec.json.decode(first)
    if own != ("copied" in plain):
        return first
    mark = {} if own else {"copied": head.store or "?"}
    return msgspec.json.encode(_unmarked(first) | mark)


def _unmarked(first: bytes) -> dict[str, Any]:
    return {key: value for key, value in msgspec.json.decode(first).items() if key != "copied"}


async def _is_copy(store: Store, run: str) -> bool:
    rows = await store.read(run, 0, 1)
    return bool(rows) and "copied" in msgspec.json.decode(rows[0].data)


async def _is_same(store: Store, whole: _Whole, count: int) -> bool:
    theirs = [row.data async for row in _rows(store, whole.head.run)]
    ours = [data for _, data in whole.rows[:count]]
    return theirs[1:] == ours[1:] and list(map(_unmarked, theirs[:1])) == list(map(_unmarked, ours[:1]))
