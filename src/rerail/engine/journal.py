"""The journal of a run: record, commit, append with reconnect, observers, contents (contract E1, E4, E6).

Rules of this file:
- `record` changes the state at once; no consequence of an event may start before `commit` made it durable.
- An append or a renewal that the store rejects ends the ownership: `lost` is called, and the error goes up.
- Small values stand in events, large ones are contents named by digest. Memory holds only the latest few contents; the
  others come from the store, are checked against their digest, and are a fresh value each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from rerail.engine.launch import LeaseTerm
from rerail.engine.parts import EngineParts
from rerail.errors import StoreError
from rerail.i18n import tell
from rerail.kernel.codec import decode, encode
from rerail.kernel.events import Event, PlanAccepted, Record
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.kernel.step_state import Result
from rerail.kernel.verdict import run_status
from rerail.ports import Batch, Conflict, Fenced, Lease, Store, Unavailable, Unusable, View
from rerail.values.json_values import digest, unpack

T = TypeVar("T")
BULK = 1_000  # records or steps above which a pause of the garbage collector pays


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector during bulk allocation; only around code that does not await."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class BlobMissing(LookupError):
    """A content that expired, or no longer matches its digest."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


class Contents:
    """The latest few contents in memory, the rest in the store."""

    def __init__(self, store: Store, keep: int) -> None:
        self._store, self._keep = store, keep
        self._cache: OrderedDict[str, bytes] = OrderedDict()

    def remember(self, name: str, data: bytes) -> None:
        """Cache a content; the oldest entry leaves."""
        self._cache[name] = data
        self._cache.move_to_end(name)
        while len(self._cache) > self._keep:
            self._cache.popitem(last=False)

    def peek(self, name: str) -> bytes | None:
        data = self._cache.get(name)
        if data is not None:
            self._cache.move_to_end(name)
        return data

    async def get(self, name: str) -> bytes:
        """Return a content from memory or the store; `BlobMissing` if it is missing or damaged."""
        data = self.peek(name)
        if data is None:
            data = await self._store.blob(name)
            if data is None:
                raise BlobMissing(name, tell("reason.expired"))
            if digest(data) != name:
                raise BlobMissing(name, tell("reason.wrong_digest"))
            self.remember(name, data)
        return data

    async def value(self, result: Result | None) -> Any:
        """Return the output of a step; None if there is none, or if it is gone."""
        if result is None or result.hole:
            return None
        if not result.blob:
            return result.output
        try:
            return unpack(await self.get(result.digest))
        except BlobMissing:
            return None


class Journal:
    """Writes one run's history, and folds it into the run's state."""

    def __init__(self, parts: EngineParts, lease: Lease, state: State, *, lost: Callable[[], None]) -> None:
        """``lost`` is called when the store reports another owner of the run."""
        self._store, self._clock, self._reconnect = parts.store, parts.clock, parts.reconnect_seconds
        self._observers, self._lost, self._scrub = parts.observers, lost, parts.performer.scrub
        self.lease, self.state = lease, state
        self.term = LeaseTerm(parts.clock, state.run)
        self.contents = Contents(parts.store, parts.memory)
        self.blobs: dict[str, bytes] = {}  # contents to be written with the next events
        self._seq = state.seq  # the last sequence number that is durable
        self._rows: list[tuple[float, bytes]] = []
        self._unseen: list[Record] = []
        self._status = ""
        self.view: View | None = None  # gets the state after each commit

    @property
    def durable(self) -> bool:
        """Whether everything in the state has been committed."""
        return not self._rows

    def record(self, event: Event, now: float) -> None:
        """Fold an event into the state, and keep it for the next commit."""
        seq = self._seq + len(self._rows) + 1
        data = encode(event)
        if self._scrub.active and self._scrub.found(data) is not None:
            data = self._scrub.data(data)
            event = decode(data)  # the state follows from the stored history alone
        evolve(self.state, event, now, seq)
        self._rows.append((now, data))
        if self._observers:
            self._unseen.append(Record(self.state.run, seq, now, event))

    def note(self, *events: Event) -> None:
        now = self._clock.now()
        steps = sum(len(event.plan.steps) for event in events if isinstance(event, PlanAccepted))
        with gc_paused() if steps > BULK else contextlib.nullcontext():
            for event in events:
                self.record(event, now)

    def keep(self, name: str, data: bytes) -> None:
        """Write a content with the next events, and hold it in memory."""
        self.blobs[name] = data
        self.contents.remember(name, data)

    async def commit(self) -> None:
        """Make everything recorded durable; only then may its consequences start."""
        if not self._rows:
            return
        status = str(run_status(self.state))
        batch = Batch(
            self.state.run, self._seq, self._rows, self.lease.fence, self.blobs,
            status if status != self._status else "", self.state.objective if not self._seq else "",
        )  # fmt: skip
        asked = self._clock.uptime()
        try:
            await self.with_reconnect(lambda: self._store.append(batch))
        except (Conflict, Fenced) as error:
            self._lost()
            code = "LEASE_LOST" if isinstance(error, Fenced) else "SEQ_CONFLICT"
            raise StoreError(tell("refuse.run.taken_over", run=batch.run), code) from error
        self.term.confirmed(asked)
        self._seq += len(self._rows)
        self._rows, self.blobs, self._status = [], {}, status
        if self.view is not None:
            self.view.write(self.state)
        if self._observers:
            seen, self._unseen = self._unseen, []
            for record in seen:
                for observe in self._observers:
                    observe(record)

    async def confirm_lease(self) -> None:
        """Renew the lease; a process that was frozen may have been replaced meanwhile (contract E11)."""
        asked = self._clock.uptime()
        try:
            await self.with_reconnect(lambda: self._store.renew(self.lease, self._clock.now()))
        except Fenced as error:
            self._lost()
            raise StoreError(tell("refuse.run.taken_over", run=self.state.run), "LEASE_LOST") from error
        self.term.confirmed(asked)

    async def content(self, name: str) -> bytes:
        return await self.with_reconnect(lambda: self.contents.get(name))

    async def latest(self, count: int) -> list[Record]:
        """Return the last durable events of the history."""
        if not count:
            return []
        rows = await self.with_reconnect(lambda: self._store.read(self.state.run, max(0, self._seq - count), count))
        return [Record(self.state.run, row.seq, row.at, decode(row.data)) for row in rows]

    async def with_reconnect(self, work: Callable[[], Awaitable[T]]) -> T:
        """Retry until the store answers or `store.reconnect_seconds` pass (contract E4)."""
        deadline: float | None = None
        delay = 0.05
        while True:
            try:
                return await work()
            except Unusable as error:
                why = tell("refuse.run.stopped_by_store", run=self.state.run, error=error)
                raise StoreError(why, error.code) from error
            except Unavailable as error:
                now = asyncio.get_running_loop().time()
                deadline = now + self._reconnect if deadline is None else deadline
                if now >= deadline:
                    told = tell("refuse.run.stopped_out_of_reach", run=self.state.run, error=error)
                    raise StoreError(told) from error
                await asyncio.sleep(min(delay, max(0.0, deadline - now)))
                delay = min(delay * 2, 2.0)
