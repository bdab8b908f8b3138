"""A store in memory: for tests, and for runs that need not outlive their process.

Rules of this file:
- An append checks first, then builds what can fail, then writes what cannot: so it is whole or not there.
- The data lives as long as the store object. Closing keeps it, so that a second engine can pick a run up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from rerail.adapters.stores.waiting import ANY, OPEN, Waiters
from rerail.i18n import Told
from rerail.ports import Batch, Conflict, Fenced, Flaw, Head, Lease, Owner, Row, Taken


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
        return Head(
            run=self.run,
            seq=len(self.rows),
            status=self.status,
            objective=self.objective,
            parent=self.parent,
            created_at=self.created_at,
            updated_at=self.updated_at,
            owner=self.owner,
            fence=self.fence,
            renewed_at=self.renewed_at,
        )


@dataclass(slots=True)
class _Action:
    run: str
    data: bytes
    answer: bytes | None = None


class MemoryStore:
    """Everything in dictionaries, gone with the process."""

    caveats: Sequence[Told] = ()

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._made = 0  # runs so far
        self._blobs: dict[str, bytes] = {}
        self._actions: list[_Action] = []  # an action's number is its place, counted from 1
        self._open: dict[str, dict[int, bytes]] = {}  # run → its unanswered actions
        self._waiters = Waiters()
        self.broken: Exception | None = None  # for tests: the next append or removal fails half-way with this

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return "memory://"

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Nothing to let go of; what is stored stays."""

    # -- Histories ------------------------------------------------------------------------------------------------

    async def create(self, head: Head) -> None:
        """Make a run with an empty history; `Conflict` if its id is taken."""
        if head.run in self._runs:
            raise Conflict(f"there is a run {head.run} already")
        self._runs[head.run] = _Run(
            run=head.run,
            number=self._made,
            status=head.status,
            objective=head.objective,
            parent=head.parent,
            created_at=head.created_at,
            updated_at=head.updated_at,
            owner=head.owner,
            fence=head.fence,
            renewed_at=head.renewed_at,
        )
        self._made += 1

    async def append(self, batch: Batch) -> None:
        """Write all rows and contents, or nothing; one's own batch again is not doubled."""
        run = self._known(batch.run)
        if run.fence != batch.fence:
            raise Fenced(f"run {batch.run} is at fence {run.fence}, not {batch.fence}")
        rows = [Row(seq, at, data) for seq, (at, data) in enumerate(batch.rows, batch.after + 1)]
        if len(run.rows) != batch.after:
            return _accept_own(run, batch.after, rows)
        self._break()
        run.rows += rows
        if batch.blobs:
            self._blobs.update(batch.blobs)
            run.digests.update(batch.blobs)
        run.status = batch.status or run.status
        run.objective = batch.objective or run.objective
        if rows:
            run.updated_at = rows[-1].at
        self._waiters.ring(batch.run, len(run.rows))
        return None

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """The next rows of a history, in order; empty at its end."""
        found = self._runs.get(run)
        return found.rows[after : after + limit] if found else []

    async def head(self, run: str) -> Head | None:
        """One run as lists show it."""
        found = self._runs.get(run)
        return found.head() if found else None

    async def heads(
        self,
        *,
        prefix: str = "",
        status: Sequence[str] = (),
        parent: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 1000,
    ) -> list[Head]:
        """Runs, newest first; `prefix` is of the run id, `parent` an exact id, `before` where a list ended."""
        last = self._runs.get(before[1]) if before is not None else None
        end = (before[0], last.number if last is not None else -1) if before is not None else None
        found = [
            run
            for run in self._runs.values()
            if run.run.startswith(prefix)
            and (not status or run.status in status)
            and (parent is None or run.parent == parent)
            and (end is None or (run.created_at, run.number) < end)
        ]
        found.sort(key=lambda run: (run.created_at, run.number), reverse=True)
        return [run.head() for run in found[:limit]]

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """Take the lease if nobody has it, or if its fence is `over`; `Taken` otherwise."""
        found = self._known(run)
        if found.owner is not None and found.fence != over:
            raise Taken(found.head())
        found.owner, found.renewed_at = owner, now
        found.fence += 1
        return Lease(run, owner, found.fence)

    async def renew(self, lease: Lease, now: float) -> None:
        """Say that the holder lives; `Fenced` if it is not the holder any more."""
        held = self._held(lease)
        if held is None:
            raise Fenced(f"run {lease.run} is not held with fence {lease.fence} any more")
        held.renewed_at = now

    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it was lost already."""
        held = self._held(lease)
        if held is not None:
            held.owner = None
            if held.status in OPEN:
                self._waiters.ring(ANY)

    # -- People's actions -----------------------------------------------------------------------------------------

    async def post(self, run: str, data: bytes) -> int:
        """Put a person's action into the run's inbox; returns its number."""
        self._known(run)
        self._actions.append(_Action(run, data))
        number = len(self._actions)
        self._open.setdefault(run, {})[number] = data
        self._waiters.ring(run)
        return number

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        """The actions nobody has answered yet, in order."""
        return list(self._open.get(run, {}).items())

    async def answer(self, run: str, number: int, data: bytes) -> None:
        """Answer an action; it leaves the inbox."""
        if self._open.get(run, {}).pop(number, None) is not None:
            self._actions[number - 1].answer = data

    async def answered(self, run: str, number: int) -> bytes | None:
        """The answer to an action, once there is one."""
        if not 1 <= number <= len(self._actions):
            return None
        action = self._actions[number - 1]
        return action.answer if action.run == run else None

    # -- Contents -------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes | None:
        """A content by its digest; None if it is not there (any more)."""
        return self._blobs.get(digest)

    async def sweep(self, before: float) -> int:
        """Drop contents that only runs completed before that time refer to; returns how many."""
        kept: set[str] = set()
        old: set[str] = set()
        for run in self._runs.values():
            done = run.status == "completed" and run.updated_at < before
            (old if done else kept).update(run.digests)
        dropped = [digest for digest in old - kept if self._blobs.pop(digest, None) is not None]
        return len(dropped)

    async def remove(self, heads: Sequence[Head]) -> int:
        """Remove these runs, all of them or none; `Conflict` if one is not as it was seen."""
        going = {head.run for head in heads}
        for head in heads:
            found = self._known(head.run)
            if (len(found.rows), found.fence, found.status) != (head.seq, head.fence, head.status) or found.owner:
                raise Conflict(f"run {head.run} is not as it was")
        if any(run.parent in going and run.run not in going for run in self._runs.values()):
            raise Conflict("a run that stays follows one of these")
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
        """Nothing to give back: memory is Python's."""
        return 0

    async def examine(self) -> list[Flaw]:
        """What is wrong with the store itself: contents that no run refers to."""
        loose = len(self._loose(self._blobs.keys()))
        return [Flaw("orphans", "contents", loose)] if loose else []

    async def clear(self) -> int:
        """Drop contents that no run refers to; returns how many."""
        return self._drop(self._blobs.keys())

    async def changed(
        self,
        run: str,
        after: int,
        timeout: float,  # noqa: ASYNC109 - a time limit, not an error
        *,
        inbox: bool = False,
    ) -> bool:
        """Wait until the history goes past `after`, or, if asked, the inbox has something; False once time is over."""
        await asyncio.sleep(0)  # a caller that asks again and again must leave the loop to others
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while not self._news(run, after, inbox):
            left = until - loop.time()
            if left <= 0:
                return False
            await self._waiters.wait(run, after, left)
        return True

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        """Wait until somebody gives back a run that is not at rest; False once time is over."""
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

    def _news(self, run: str, after: int, inbox: bool) -> bool:
        found = self._runs.get(run)
        return (inbox and bool(self._open.get(run))) or (found is not None and len(found.rows) > after)

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


def _accept_own(run: _Run, after: int, rows: list[Row]) -> None:
    """Accept rows that are there already: the holder of a fence is one writer, so the same rows are its own."""
    if not rows or run.rows[after : after + len(rows)] != rows:
        raise Conflict(f"run {run.run} is at {len(run.rows)}, not {after}")
