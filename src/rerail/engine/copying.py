"""Copying runs from one store to another: histories, contents, open actions; checked on arrival.

Rules of this file:
- It speaks to stores by their port alone, so any two can be copied between.
- What arrived is read again and compared; a content must have the digest it is named by.
- A run that is there already is left alone: if it is the same that is said, if it differs that is a fault.
- A run that somebody drives is not copied: its history would be cut off in the middle of a call.
- A run that is not at rest goes on in one store only. It is moved, if that is wanted, and else left where it is: first
  the source says for good that it is elsewhere, and only then may anybody have it there.
- Until it is whole a run belongs to the copy, also to one that died on the way: nobody takes up half of one.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from rerail.core import events as ev
from rerail.core.codec import Damaged, NewerFormat, decode, encode
from rerail.core.decide import closing
from rerail.core.events import Event
from rerail.core.fold import evolve
from rerail.core.state import State
from rerail.core.texts import say
from rerail.core.values import digest
from rerail.core.verdict import run_status
from rerail.engine.owner import as_driven, copier, is_arriving, this_process
from rerail.engine.reading import AT_REST
from rerail.engine.today import lost
from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Row, Store, Taken

PAGE: Final = 500  # rows that travel in one go
_DIGEST: Final = re.compile(rb'"([0-9a-f]{32})"')
_EXPECTED: Final = re.compile(rb'"blob":true|"args_blob":"')


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of one run."""

    run: str
    outcome: str  # copied | moved | same | differs | driven | open | damaged
    events: int = 0
    contents: int = 0
    expired: int = 0  # contents that its events name and the source has no longer
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def ok(self) -> bool:
        """Whether the target has the run now, whole."""
        return self.outcome in ("copied", "moved", "same")


async def copy_runs(
    source: Store,
    target: Store,
    runs: list[str],
    is_dead: Callable[[Head], bool],
    *,
    move: bool = False,
    by: str = "",
) -> AsyncIterator[Copied]:
    """Copy these runs, oldest first, or all of them; `is_dead` tells whether a run's owner is gone.

    ``move`` takes those along that are not at rest: they go on in the target, and are over in the source.
    """
    heads = await source.heads(limit=1_000_000_000)
    wanted = [head for head in reversed(heads) if not runs or head.run in runs]
    for listed in wanted:
        head = await source.head(listed.run) or listed  # as it is by now: others took long
        if head.owner is not None and not is_dead(head):
            yield Copied(head.run, "driven", reason=say("reason.copy.driven", owner=head.owner))
            continue
        try:
            yield await _Copy(source, target, is_dead).of(head, move=move, by=by)
        except (Taken, Fenced) as beaten:
            owner = beaten.head.owner if isinstance(beaten, Taken) else "-"
            yield Copied(head.run, "driven", reason=say("reason.copy.driven", owner=owner))
        except (Damaged, NewerFormat) as error:
            yield Copied(head.run, "damaged", reason=say("reason.copy.unreadable", error=error))


class _Copy:
    """The copy of one run, on its way."""

    def __init__(self, source: Store, target: Store, is_dead: Callable[[Head], bool]) -> None:
        self._source, self._target, self._is_dead = source, target, is_dead
        self._held: Lease | None = None  # of the run in the source, while it is moved

    async def of(self, head: Head, *, move: bool, by: str) -> Copied:
        """Copy a run that is at rest, move one that is not, or say why not."""
        if head.status in AT_REST:
            seen = await self._as_moved(head)
            return seen if isinstance(seen, Copied) else await self._arrived(seen)
        state = await _folded(self._source, head)
        if not state.revision:
            return await self._arrived(head)  # nobody can go on with it
        if not move:
            return Copied(head.run, "open", reason=say("reason.copy.open", status=str(run_status(state))))
        over = head.fence if head.owner is not None else None
        self._held = await self._source.claim(head.run, this_process(), time.time(), over=over)
        try:
            held = await self._source.head(head.run) or head
            state = await _folded(self._source, held)
            here = replace(held, owner=None, status=str(run_status(state)))
            return await self._arrived(here, state, by)
        finally:
            await self._source.release(self._held)

    async def _as_moved(self, head: Head) -> Head | Copied:
        """A run at rest; of one that was moved to where this copy goes, what went along."""
        there = await self._target.head(head.run) if head.status == "cancelled" else None
        moved = (await _folded(self._source, head)).moved if there is not None else None
        if there is None or moved is None:
            return head
        to, last = moved
        if not is_arriving(there) or to == self._target.url:
            return replace(head, seq=last)
        if there.seq == last:  # that of a move which died at its very end, perhaps, whose target has another name now
            return Copied(head.run, "differs", last, reason=say("reason.copy.moved", to=to))
        return head

    async def _arrived(self, head: Head, moving: State | None = None, by: str = "") -> Copied:
        """Fill the run of the target, and give it free once it is whole, and over in the source if it is moved."""
        begun = await self._begun(head)
        found = begun if isinstance(begun, Copied) else await self._filled(head, *begun)
        if found.ok and moving is not None and self._held is not None:
            await _over(self._source, moving, self._held, self._target.url, by)
            found = replace(found, outcome="moved")
        if found.ok and not isinstance(begun, Copied):
            await self._target.release(begun[0])  # else it is nobody's, until it is whole
        return found

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
            if begun.outcome != "same":
                return begun
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
        there = {data for _, data in await target.inbox(head.run)}
        for _, data in await source.inbox(head.run):  # before the last rows: a copy cut off is known by what is missing
            if data not in there:
                await target.post(head.run, data)
        while after < head.seq and (rows := await source.read(head.run, after, min(PAGE, head.seq - after))):
            blobs, missing, damaged = await _contents(source, rows)
            if damaged:
                return Copied(head.run, "damaged", after, contents, expired, say("reason.copy.damaged", digest=damaged))
            last = after + len(rows) >= head.seq
            batch = Batch(
                head.run, after, [(row.at, row.data) for row in rows], lease.fence, blobs,
                head.status if last else "", head.objective if last else "",
            )  # fmt: skip
            await target.append(batch)
            await target.renew(lease, time.time())
            if self._held is not None:
                await source.renew(self._held, time.time())
            after, contents, expired = after + len(rows), contents + len(blobs), expired + missing
        seen = await _compared(source, target, head)
        return Copied(head.run, "copied", after, contents, expired) if seen.outcome == "same" else seen


async def _folded(source: Store, head: Head) -> State:
    """What a run is, by its history."""
    state, after = State(head.run), 0
    while rows := await source.read(head.run, after, PAGE):
        for row in rows:
            evolve(state, decode(row.data), row.at, row.seq)
        after = rows[-1].seq
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
    note(ev.Cancelled(by, say("reason.copy.moved", to=to), to=to, after=seq))
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
    most = head.seq if most is None else most
    while True:
        page = min(PAGE, most - after)
        ours = await source.read(head.run, after, page) if page else []
        theirs = await target.read(head.run, after, page) if page else []
        if ours != theirs:
            return Copied(head.run, "differs", after, contents, reason=say("reason.copy.differs", seq=after + 1))
        if not ours:
            return Copied(head.run, "same", after, contents)
        for name in _named(ours):
            here, there = await source.blob(name), await target.blob(name)
            if here is not None and here != there:
                return Copied(head.run, "differs", after, contents, reason=say("reason.copy.damaged", digest=name))
            contents += here is not None
        after += len(ours)


async def _contents(source: Store, rows: list[Row]) -> tuple[dict[str, bytes], int, str]:
    """The contents that rows name, how many are gone, and one that is not what its name says, if there is one."""
    found: dict[str, bytes] = {}
    missing = 0
    for row in rows:
        names = _named([row])
        here = {name: data for name in names if (data := await source.blob(name)) is not None}
        for name, data in here.items():
            if digest(data) != name:
                return found, missing, name
        if _EXPECTED.search(row.data) and not here:
            missing += 1
        found |= here
    return found, missing, ""


def _named(rows: list[Row]) -> list[str]:
    """Everything in these events that may be the name of a content: what none is, is in no store."""
    return list(dict.fromkeys(name.decode() for row in rows for name in _DIGEST.findall(row.data)))
