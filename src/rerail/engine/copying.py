"""Copying runs from one store to another: histories, contents, open actions; checked on arrival.

Rules of this file:
- It speaks to stores by their port alone, so any two can be copied between.
- All of a run is read before anything of it is written: what cannot be read leaves nothing behind in the target.
- What arrived is read again and compared; a content must have the digest it is named by.
- One run that cannot be read, or that the target does not take, is named, and the others are copied. A store that is
  out of reach ends the copy.
- A content that is lost is no reason to lose its run: the history arrives, and what is missing is said.
- A run that is there already is left alone: if it is the same that is said, if it differs that is a fault.
- A run that somebody drives is not copied: its history would be cut off in the middle of a call.
- A run that is not at rest goes on in one store only. It is moved, if that is wanted, and else left where it is: first
  the source says for good that it is elsewhere, and only then may anybody have it there.
- Until it is whole a run belongs to the copy, also to one that died on the way: nobody takes up half of one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rerail.core import events as ev
from rerail.core.codec import Damaged, NewerFormat, decode, encode
from rerail.core.decide import closing
from rerail.core.events import Event
from rerail.core.fold import evolve
from rerail.core.state import State
from rerail.core.values import digest
from rerail.core.verdict import run_status
from rerail.engine.owner import as_driven, copier, is_arriving, this_process
from rerail.engine.reading import AT_REST
from rerail.engine.today import lost
from rerail.i18n import tell, words_of
from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Row, Store, Surveyed, Taken, Unavailable, Unusable

T = TypeVar("T")

PAGE: Final = 500  # rows that travel in one go
HEAVY: Final = 32 << 20  # bytes of contents from which on rows travel with fewer others
KEPT: Final = 64 << 20  # bytes of a run that are kept in memory from looking at it to writing it; more is read twice
PATIENCE: Final = 30.0  # seconds that a store which failed a run may take to answer again
_DIGEST: Final = re.compile(rb'"([0-9a-f]{32})"')
_EXPECTED: Final = re.compile(rb'"blob":true|"args_blob":"')


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of one run."""

    run: str
    outcome: str  # copied | moved | same | partial | differs | driven | open | damaged | failed
    events: int = 0
    contents: int = 0
    expired: int = 0  # contents that its events name and the source has no longer
    reason: str = ""
    lost: int = 0  # contents that the source has and that cannot be read, or are not what their names say

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def ok(self) -> bool:
        """Whether the target has the run now, whole."""
        return self.outcome in ("copied", "moved", "same")


class _Unread(Exception):
    """The source could not be read; the cause says why."""

    def __init__(self, problem: Unavailable | Unusable) -> None:
        super().__init__(words_of(problem))
        self.problem = problem


async def copy_runs(
    source: Store,
    target: Store,
    runs: list[str],
    is_dead: Callable[[Head], bool],
    *,
    move: bool = False,
    by: str = "",
    patience: float = PATIENCE,
    outlasted: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[Copied]:
    """Copy these runs, oldest first, or all of them; `is_dead` tells whether a run's owner is gone.

    ``move`` takes those along that are not at rest: they go on in the target, and are over in the source. A store that
    does not answer for ``patience`` seconds after it failed a run ends the copy, with what it failed of. ``outlasted``
    is waited for before any owner is judged, and again after a store was away: nobody could renew meanwhile (T7).
    """
    away = True
    for listed in await _listed(source):
        if runs and listed.run not in runs:
            continue
        if away and outlasted is not None:
            await outlasted()
        away = False
        try:
            yield await _one(source, target, listed, is_dead, move=move, by=by)
        except (Taken, Fenced) as beaten:
            owner = beaten.head.owner if isinstance(beaten, Taken) else "-"
            yield Copied(listed.run, "driven", reason=tell("reason.copy.driven", owner=owner))
        except (Damaged, NewerFormat) as error:
            yield Copied(listed.run, "damaged", reason=tell("reason.copy.unreadable", error=error))
        except _Unread as unread:
            if away := isinstance(unread.problem, Unavailable):
                await _answers(source, patience, unread.problem)
            yield Copied(listed.run, "damaged", reason=tell("reason.copy.unreadable", error=unread))
        except (Unavailable, Unusable) as problem:
            away = isinstance(problem, Unavailable)
            await _answers(source, patience, problem)
            await _answers(target, patience, problem)
            yield Copied(listed.run, "failed", reason=tell("reason.copy.failed", error=problem))


async def _one(
    source: Store, target: Store, listed: Head, is_dead: Callable[[Head], bool], *, move: bool, by: str
) -> Copied:
    try:
        head = await _read(source.head(listed.run)) or listed  # as it is by now: others took long
    except _Unread as unread:
        if isinstance(unread.problem, Unavailable):
            raise
        head = listed  # damaged where it is looked up; what is known of it will do
    if head.owner is not None and not is_dead(head):
        return Copied(head.run, "driven", reason=tell("reason.copy.driven", owner=head.owner))
    return await _Copy(source, target, is_dead).of(head, move=move, by=by)


async def _read(asked: Awaitable[T]) -> T:
    """What the source says; `_Unread` where it cannot."""
    try:
        return await asked
    except (Unavailable, Unusable) as problem:
        raise _Unread(problem) from problem


async def _answers(store: Store, patience: float, problem: Unavailable | Unusable) -> None:
    """Make sure that a store can still be asked after it failed a run; what it failed of, if it cannot."""
    until = time.monotonic() + patience
    while True:
        try:
            await store.open()
            return
        except (Unavailable, Unusable):
            if time.monotonic() > until:
                raise problem from None
        await asyncio.sleep(min(0.5, patience))


# -- What there is to copy ----------------------------------------------------------------------------------------


async def _listed(source: Store) -> list[Head]:
    """All runs, oldest first; of a store whose list is damaged, all that can be found by any way."""
    try:
        return list(reversed(await source.heads(limit=1_000_000_000)))
    except Unusable:
        if not isinstance(source, Surveyed):
            raise
    heads = [await _found(source, run) for run in await source.survey()]
    return sorted(heads, key=lambda head: head.created_at)


async def _found(source: Store, run: str) -> Head:
    """A run's head, or what its history says that it is."""
    try:
        head = await source.head(run)
    except Unusable:
        head = None
    if head is not None:
        return head
    try:
        state, first = await _folded(source, run), await _rows(source, run, 0, 1)
    except (Damaged, NewerFormat, _Unread):
        return Head(run)  # it will be found to be damaged, and named
    began = decode(first[0].data) if first else None
    parent = began.parent if isinstance(began, ev.RunStarted) else ""
    at = first[0].at if first else 0.0
    return Head(run, state.seq, str(run_status(state)), state.objective, parent, at, at, fence=1)


@dataclass(slots=True)
class _Piece:
    """Rows that travel together, with the contents they name."""

    rows: list[Row]
    blobs: dict[str, bytes] = field(default_factory=dict)
    expired: int = 0
    lost: list[str] = field(default_factory=list)  # contents that cannot be read

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(len(row.data) for row in self.rows) + sum(map(len, self.blobs.values()))


async def _pieces(source: Store, head: Head, after: int = 0) -> AsyncIterator[_Piece]:
    """The history of a run with its contents, in order and without a gap; `Damaged` if there is one."""
    while after < head.seq:
        rows = await _rows(source, head.run, after, min(PAGE, head.seq - after))
        for row in rows:
            _check(row)
        if not rows:
            raise Damaged(tell("reason.copy.gap", first=after + 1, last=head.seq))
        after += len(rows)
        piece = _Piece([])
        for row in rows:
            piece.rows.append(row)
            await _gather(source, row, piece)
            if sum(map(len, piece.blobs.values())) > HEAVY:
                yield piece
                piece = _Piece([])
        if piece.rows:
            yield piece


async def _rows(source: Store, run: str, after: int, limit: int) -> list[Row]:
    """The next events of a run, in order and without a gap; `Damaged` otherwise: a damaged file may say anything."""
    rows = await _read(source.read(run, after, limit))
    for place, row in enumerate(rows, after + 1):
        if type(row.seq) is not int or row.seq != place:
            last = row.seq - 1 if type(row.seq) is int and row.seq > place else place
            raise Damaged(tell("reason.copy.gap", first=place, last=last))
        if not _is_bytes(row.data) or not isinstance(row.at, int | float):
            raise Damaged(tell("reason.copy.no_event", seq=row.seq))
    return rows


def _check(row: Row) -> None:
    """Whether an event can be read; one of a newer version is none of our business."""
    try:
        decode(row.data)
    except NewerFormat:
        return


async def _gather(source: Store, row: Row, piece: _Piece) -> None:
    """Add the contents that a row names, if there are any."""
    found = False
    for name in _named([row]):
        try:
            data = await _content(source, name)
        except _Lost:
            piece.lost.append(name)
            found = True
            continue
        if data is not None:
            piece.blobs[name] = data
            found = True
    if not found and _EXPECTED.search(row.data):
        piece.expired += 1


class _Lost(Exception):
    """A content that cannot be read, or is not what its name says."""


async def _content(store: Store, name: str) -> bytes | None:
    """A content that is what its name says; None if there is none, `_Lost` if it is not."""
    try:
        data = await store.blob(name)
    except Unusable as problem:
        raise _Lost(name) from problem
    except Unavailable as problem:
        raise _Unread(problem) from problem
    if data is not None and not (_is_bytes(data) and digest(data) == name):
        raise _Lost(name)
    return data


def _is_bytes(data: object) -> bool:
    """A damaged file may answer with anything."""
    return isinstance(data, bytes)


# -- One run ------------------------------------------------------------------------------------------------------


class _Copy:
    """The copy of one run, on its way."""

    def __init__(self, source: Store, target: Store, is_dead: Callable[[Head], bool]) -> None:
        self._source, self._target, self._is_dead = source, target, is_dead
        self._held: Lease | None = None  # of the run in the source, while it is moved
        self._pieces: list[_Piece] | None = None  # all of the run, if it is small

    async def of(self, head: Head, *, move: bool, by: str) -> Copied:
        """Copy a run that is at rest, move one that is not, or say why not."""
        if head.status in AT_REST:
            seen = await self._as_moved(head)
            return seen if isinstance(seen, Copied) else await self._arrived(seen)
        state = await _folded(self._source, head.run)
        if not state.revision:
            return await self._arrived(head)  # nobody can go on with it
        if not move:
            return Copied(head.run, "open", reason=tell("reason.copy.open", status=str(run_status(state))))
        over = head.fence if head.owner is not None else None
        self._held = await self._source.claim(head.run, this_process(), time.time(), over=over)
        try:
            held = await self._source.head(head.run) or head
            state = await _folded(self._source, head.run)
            here = replace(held, owner=None, status=str(run_status(state)))
            return await self._arrived(here, state, by)
        finally:
            await self._source.release(self._held)

    async def _as_moved(self, head: Head) -> Head | Copied:
        """A run at rest; of one that was moved to where this copy goes, what went along."""
        there = await self._target.head(head.run) if head.status == "cancelled" else None
        moved = (await _folded(self._source, head.run)).moved if there is not None else None
        if there is None or moved is None:
            return head
        to, last = moved
        if not is_arriving(there) or to == self._target.url:
            return replace(head, seq=last)
        if there.seq == last:  # that of a move which died at its very end, perhaps, whose target has another name now
            return Copied(head.run, "differs", last, reason=tell("reason.copy.moved", to=to))
        return head

    async def _arrived(self, head: Head, moving: State | None = None, by: str = "") -> Copied:
        """Fill the run of the target, and give it free once it is whole, and over in the source if it is moved."""
        there = await self._target.head(head.run)
        begun: tuple[Lease, int] | Copied
        if there is not None and not self._cut_off(there, head):
            begun = await _compared(self._source, self._target, head)
        else:
            gone = await self._looked_through(head)
            if gone and moving is not None:  # it would go on without them, and nowhere with them
                return Copied(head.run, "damaged", reason=_missing(gone), lost=len(gone))
            begun = await self._begun(head)
        found = begun if isinstance(begun, Copied) else await self._filled(head, *begun)
        if found.ok and moving is not None and self._held is not None:
            await _over(self._source, moving, self._held, self._target.url, by)
            found = replace(found, outcome="moved")
        if (found.ok or found.outcome == "partial") and not isinstance(begun, Copied):
            await self._target.release(begun[0])  # else it is nobody's, until it is whole
        return found

    async def _looked_through(self, head: Head) -> list[str]:
        """Read all of a run once, before anything is written; the contents that are lost. Small ones are kept."""
        kept: list[_Piece] | None = []
        size, gone = 0, list[str]()
        async for piece in _pieces(self._source, head):
            size += piece.size
            gone += piece.lost
            kept = None if kept is None or size > KEPT else [*kept, piece]
        self._pieces = kept
        return list(dict.fromkeys(gone))

    async def _begun(self, head: Head) -> tuple[Lease, int] | Copied:
        """The run of the target in our name, and how much of it is there; or what is there, if it is not for us."""
        source, target, owner = self._source, self._target, copier()
        lease = Lease(head.run, owner, head.fence)
        try:
            await target.create(_empty(head, lease))
        except Conflict:
            there = await target.head(head.run)
            # A copy that was cut off goes on where it stopped.
            if there is None or not self._cut_off(there, head):
                return await _compared(source, target, head)
            begun = await _compared(source, target, head, min(there.seq, head.seq))
            if begun.outcome not in ("same", "partial"):
                return begun  # what lacks an output goes on as well: the rest of it is still to come
            return await target.claim(head.run, owner, time.time(), over=there.fence), there.seq
        return lease, 0

    def _cut_off(self, there: Head, head: Head) -> bool:
        """Whether the target has a run that a copy began, and nobody is at it any more."""
        if is_arriving(there):
            return there.owner == copier() or self._is_dead(as_driven(there))
        return there.seq < head.seq and (there.owner is None or self._is_dead(there))

    async def _filled(self, head: Head, lease: Lease, after: int) -> Copied:
        source, target = self._source, self._target
        contents = expired = 0
        wishes = await self._wishes(head)
        there = {data for _, data in await target.inbox(head.run)}
        for data in wishes or ():  # before the last rows: a copy cut off is known by what is missing
            if data not in there:
                await target.post(head.run, data)
        async for piece in self._left(head, after):
            last = after + len(piece.rows) >= head.seq
            batch = Batch(
                head.run, after, [(row.at, row.data) for row in piece.rows], lease.fence, piece.blobs,
                head.status if last else "", head.objective if last else "",
            )  # fmt: skip
            await target.append(batch)
            await target.renew(lease, time.time())
            if self._held is not None:
                await source.renew(self._held, time.time())
            after, contents, expired = after + len(piece.rows), contents + len(piece.blobs), expired + piece.expired
        self._pieces = None
        seen = await _compared(source, target, head)
        if seen.outcome == "same" and wishes is None:
            return Copied(head.run, "partial", after, contents, expired, tell("reason.copy.wishes"))
        if seen.outcome == "same":
            return Copied(head.run, "copied", after, contents, expired)
        return replace(seen, contents=contents, expired=expired) if seen.outcome == "partial" else seen

    async def _wishes(self, head: Head) -> list[bytes] | None:
        """What people asked of the run and nobody has answered; None if that cannot be read."""
        try:
            return [data for _, data in await _read(self._source.inbox(head.run))]
        except _Unread as unread:
            if isinstance(unread.problem, Unavailable) or self._held is not None:
                raise  # it would go on there without them
            return None

    async def _left(self, head: Head, after: int) -> AsyncIterator[_Piece]:
        """What is still to be written, from memory if it is there."""
        if self._pieces is None or after:
            async for piece in _pieces(self._source, head, after):
                yield piece
            return
        for piece in self._pieces:
            yield piece


async def _folded(source: Store, run: str) -> State:
    """What a run is, by its history."""
    state, after = State(run), 0
    while rows := await _rows(source, run, after, PAGE):
        for row in rows:
            evolve(state, decode(row.data), row.at, row.seq)
        after += len(rows)
    return state


async def _over(source: Store, state: State, lease: Lease, to: str, by: str) -> None:
    """End a run where it was, in one go: from now on it is only elsewhere."""
    seq, now = state.seq, time.time()
    events: list[Event] = []

    def note(*some: Event) -> None:
        for event in some:
            events.append(event)
            evolve(state, event, now, seq + len(events))

    if not state.waiting:
        calls = tuple(track.id for track in state.running.values())
        note(ev.Resumed(by, calls, reason="queued" if state.queued else "interrupted"))
        note(*lost(state))
    note(ev.Cancelled(by, tell("reason.copy.moved", to=to), to=to, after=seq))
    while notes := closing(state, {}, now):
        note(*notes)
    rows = [(now, encode(event)) for event in events]
    await source.append(Batch(state.run, seq, rows, lease.fence, {}, str(run_status(state))))


def _empty(head: Head, lease: Lease) -> Head:
    """The head of a run with an empty history, and an owner: nobody may take it for a finished one, or take it up."""
    return Head(
        head.run, 0, "pending", head.objective, head.parent, head.created_at, head.updated_at, lease.owner, lease.fence,
        time.time(),
    )  # fmt: skip


async def _compared(source: Store, target: Store, head: Head, most: int | None = None) -> Copied:
    """Whether the target has the same history, row for row, and every content it names; so far, or all of it."""
    after = contents = 0
    gone: list[str] = []
    most = head.seq if most is None else most
    while True:
        page = min(PAGE, most - after)
        ours = await _rows(source, head.run, after, page) if page else []
        theirs = await target.read(head.run, after, page) if page else []
        if ours != theirs:
            return Copied(head.run, "differs", after, contents, reason=tell("reason.copy.differs", seq=after + 1))
        if not ours:
            missing = dict.fromkeys(gone)
            outcome, reason = ("partial", _missing(missing)) if missing else ("same", "")
            return Copied(head.run, outcome, after, contents, reason=reason, lost=len(missing))
        for name in _named(ours):
            sound = True
            try:
                here = await _content(source, name) is not None  # and let go of: the other one may be as large
            except _Lost:
                sound = False
            if not sound or here:
                there = await target.blob(name)
                arrived = there is not None and digest(there) == name
                if not arrived and sound:
                    return Copied(head.run, "differs", after, contents, reason=tell("reason.copy.damaged", digest=name))
                contents += arrived
                gone += [] if arrived else [name]
        after += len(ours)


def _missing(gone: Iterable[str]) -> str:
    names = list(dict.fromkeys(gone))
    return tell("reason.copy.lost", n=len(names), digests=", ".join(names[:3]) + ("…" if len(names) > 3 else ""))


def _named(rows: list[Row]) -> list[str]:
    """Everything in these events that may be the name of a content: what none is, is in no store."""
    return list(dict.fromkeys(name.decode() for row in rows for name in _DIGEST.findall(row.data)))
