"""The memory store, for tests and for runs that need not outlive their process.

Rules of this file:
- An append checks first, then builds what can fail, then writes what cannot: it is complete or absent.
- The data lives as long as the store object. Closing keeps it, so that a second engine can pick a run up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from typing import Unpack

from rerail.adapters.stores.shared import ANY, OPEN, Selection, Waiters, not_held, require_own
from rerail.i18n import Told
from rerail.ports import Batch, Conflict, Flaw, Head, Lease, Owner, Row, RunFilters, Store, Taken

_COPIED = [one.name for one in fields(Head) if one.name != "seq"]


@dataclass(slots=True)
class _Run:
    run: str
    number: int
    status: str
    objective: str
    parent: str
    created_at: float
    updated_at: float
    owner: Owner | None
    fence: int
    renewed_at: float
    rows: list[Row] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)

    def head(self) -> Head:
        return Head(seq=len(self.rows), **{name: getattr(self, name) for name in _COPIED})


@dataclass(slots=True)
class _Action:
    run: str
    data: bytes
    answer: bytes | None = None


class MemoryStore(Store):
    """Everything in dictionaries, gone with the process."""

    caveats: Sequence[Told] = ()
    url = "memory://"

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._made = 0  # runs so far
        self._blobs: dict[str, bytes] = {}
        self._actions: list[_Action] = []  # an action's number is its place, counted from 1
        self._open: dict[str, dict[int, bytes]] = {}  # run → its unanswered actions
        self._waiters = Waiters()
        self.broken: Exception | None = None  # for tests: the next append or removal fails half-way with this

    async def open(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: the data stays."""

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        if head.run in self._runs:
            raise Conflict(f"there is a run {head.run} already")
        self._runs[head.run] = _Run(number=self._made, **{name: getattr(head, name) for name in _COPIED})
        self._made += 1

    async def append(self, batch: Batch) -> None:
        run = self._known(batch.run)
        if (len(run.rows), run.fence) != (batch.after, batch.fence):
            there = run.rows[batch.after : batch.after + len(batch.rows)]
            return require_own(batch, (run.fence, len(run.rows)), there)
        if self.broken is not None:
            self._break()
        rows = [Row(seq, at, data) for seq, (at, data) in enumerate(batch.rows, batch.after + 1)]
        run.rows += rows
        if batch.blobs:
            self._blobs.update(batch.blobs)
            run.digests.update(batch.blobs)
        run.status = batch.status or run.status
        run.objective = batch.objective or run.objective
        if rows:
            run.updated_at = rows[-1].at
        if self._waiters.waiting:
            self._waiters.ring(batch.run, len(run.rows))
        return None

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        found = self._runs.get(run)
        return found.rows[after : after + limit] if found else []

    async def head(self, run: str) -> Head | None:
        found = self._runs.get(run)
        return found.head() if found else None

    async def heads(self, **filters: Unpack[RunFilters]) -> list[Head]:
        wanted = Selection(**filters)
        found = [(run.created_at, run.number, run.head()) for run in self._runs.values()]
        if wanted.before is not None:
            last = self._runs.get(wanted.before[1])
            end = (wanted.before[0], last.number if last is not None else -1)
            found = [one for one in found if one[:2] < end]
        fitting = [one for one in found if wanted.fits(one[2])]
        fitting.sort(key=itemgetter(0, 1), reverse=True)
        return [head for *_, head in fitting[: wanted.limit]]

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        found = self._known(run)
        if found.owner is not None and found.fence != over:
            raise Taken(found.head())
        found.owner, found.renewed_at = owner, now
        found.fence += 1
        return Lease(run, owner, found.fence)

    async def renew(self, lease: Lease, now: float) -> None:
        held = self._held(lease)
        if held is None:
            raise not_held(lease)
        held.renewed_at = now

    async def release(self, lease: Lease) -> None:
        held = self._held(lease)
        if held is not None:
            held.owner = None
            if held.status in OPEN:
                self._waiters.ring(ANY)

    # -- Inbox ----------------------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        self._known(run)
        self._actions.append(_Action(run, data))
        number = len(self._actions)
        self._open.setdefault(run, {})[number] = data
        self._waiters.ring(run)
        return number

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        return list(self._open.get(run, {}).items())

    async def answer(self, run: str, number: int, data: bytes) -> None:
        if self._open.get(run, {}).pop(number, None) is not None:
            self._actions[number - 1].answer = data

    async def answered(self, run: str, number: int) -> bytes | None:
        if not 1 <= number <= len(self._actions):
            return None
        action = self._actions[number - 1]
        return action.answer if action.run == run else None

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        return self._blobs.get(digest)

    async def sweep(self, before: float) -> int:
        kept: set[str] = set()
        old: set[str] = set()
        for run in self._runs.values():
            done = run.status == "completed" and run.updated_at < before
            (old if done else kept).update(run.digests)
        dropped = [digest for digest in old - kept if self._blobs.pop(digest, None) is not None]
        return len(dropped)

    async def remove(self, heads: Sequence[Head]) -> int:
        going = {head.run for head in heads}
        for head in heads:
            found = self._known(head.run)
            if (len(found.rows), found.fence, found.status) != (head.seq, head.fence, head.status) or found.owner:
                raise Conflict(f"run {head.run} is not as it was")
        if any(run.parent in going and run.run not in going for run in self._runs.values()):
            raise Conflict("a run that stays follows one of these")
        if self.broken is not None:
            self._break()
        named: set[str] = set()
        for run in going:
            named |= self._runs.pop(run).digests
            self._open.pop(run, None)
        for number, action in enumerate(self._actions):
            if action.run in going:
                self._actions[number] = _Action("", b"")
        return self._drop(named)

    async def shrink(self) -> int:
        """Do nothing: Python frees the memory."""
        return 0

    async def examine(self) -> list[Flaw]:
        loose = len(self._loose(self._blobs.keys()))
        return [Flaw("orphans", "contents", loose)] if loose else []

    async def clear(self) -> int:
        return self._drop(self._blobs.keys())

    async def changed(self, run: str, after: int, timeout: float, *, inbox: bool = False) -> bool:  # noqa: ASYNC109
        async def look() -> bool:
            found = self._runs.get(run)
            return (inbox and bool(self._open.get(run))) or (found is not None and len(found.rows) > after)

        return await self._waiters.until(look, run, after, timeout)

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        return await self._waiters.any_freed(timeout)

    # -- Inside ---------------------------------------------------------------------------------------------------

    def _known(self, run: str) -> _Run:
        found = self._runs.get(run)
        if found is None:
            raise Conflict(f"there is no run {run}")
        return found

    def _held(self, lease: Lease) -> _Run | None:
        found = self._runs.get(lease.run)
        held = found is not None and found.owner is not None and found.fence == lease.fence
        return found if held else None

    def _loose(self, digests: Collection[str]) -> set[str]:
        return set(digests).difference(*(run.digests for run in self._runs.values())) & self._blobs.keys()

    def _drop(self, digests: Collection[str]) -> int:
        loose = self._loose(digests)
        for digest in loose:
            del self._blobs[digest]
        return len(loose)

    def _break(self) -> None:
        broken, self.broken = self.broken, None
        if broken is not None:
            raise broken
