"""A store that several simulated processes share, and each one's shaky way to it.

Rules of this file:
- What the store acknowledged is there for good; what it did not acknowledge may be there or not. Both are drawn.
- A dead process hears nothing any more; a stopped one hears everything later.
- Processes look like those of different machines: who is silent for long is taken for dead. When a lease was renewed is
  kept by the store's clock and told by the caller's, as stores that machines share do it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tests.simulation.chance import Dice
from tests.simulation.invariants import ROTTEN

from rerail.adapters.stores.memory import MemoryStore
from rerail.kernel import events as ev
from rerail.kernel.codec import decode
from rerail.ports import Batch, Flaw, Head, Lease, Owner, Row, Taken, Unavailable
from rerail.testing.virtual_time import VirtualClock

T = TypeVar("T")


class SharedStore(MemoryStore):
    """The store itself. It remembers which attempts were written down, and by whom the run is held."""

    def __init__(self) -> None:
        super().__init__()
        self.intents: set[tuple[str, int]] = set()
        self.fences: list[int] = []  # of each append, in order
        self.claims: list[tuple[int, float]] = []  # the fence of each claim, and when
        self.times: list[float] = []  # when each event was on record, by the loop's clock

    async def append(self, batch: Batch) -> None:
        """As ever; and what is on record from now on is noted."""
        await super().append(batch)
        self.fences.append(batch.fence)
        if len(self.times) <= batch.after:  # else it is on record already, and sent again
            self.times += [asyncio.get_running_loop().time()] * len(batch.rows)
        for _, data in batch.rows:
            if b'"step_started"' in data:
                event = decode(data)
                if isinstance(event, ev.StepStarted):
                    self.intents.add((event.step, event.attempt))

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """As ever; and when it was is noted."""
        lease = await super().claim(run, owner, now, over=over)
        self.claims.append((lease.fence, asyncio.get_running_loop().time()))
        return lease

    def lost_at(self, fence: int) -> float:
        """When the holder of this fence lost the run to somebody else; far ahead, if it did not."""
        return min((at for later, at in self.claims if later > fence), default=math.inf)

    def rot(self) -> None:
        """Contents go bad: every other one is deleted, the rest damaged."""
        for number, digest in enumerate(sorted(self._blobs)):
            if number % 2:
                del self._blobs[digest]
            else:
                self._blobs[digest] = f'"{ROTTEN}"'.encode()


@dataclass
class Faults:
    """What is wrong with a process's way to the store right now."""

    dead: bool = False
    stopped: asyncio.Event | None = None  # set once it goes on
    down_until: float = 0.0
    dies_at: int = 0  # appends from now; 0: not
    dies_after: bool = False  # what it wrote then is durable
    naps: float = 0.0  # seconds that it stops once its next append is written, before it hears of that
    unsure: int = 0  # appends from now that are written, and not acknowledged; 0: none


@dataclass
class Way:
    """The store as one process sees it."""

    store: SharedStore
    process: int
    dice: Dice
    die: Callable[[], None]
    nap: Callable[[float], None]
    clock: VirtualClock
    faults: Faults = field(default_factory=Faults)
    calm: bool = False
    seen: int = 0  # the events whose writing was acknowledged to it
    caveats: Sequence[Any] = ()

    @property
    def url(self) -> str:
        """As it was opened."""
        return self.store.url

    async def _through(self, work: Callable[[], Awaitable[T]], *, slow: bool = False) -> T:
        await self._pass()
        if slow and not self.calm:
            await asyncio.sleep(self.dice.pick(0, 0, 0, 0.01, 0.6))
            await self._pass()
        result = await work()
        await self._pass(answering=True)
        return result

    async def _pass(self, *, answering: bool = False) -> None:
        faults = self.faults
        while faults.stopped is not None and not faults.stopped.is_set():
            await faults.stopped.wait()
        if faults.dead:
            raise asyncio.CancelledError  # nothing it does reaches anybody
        if not answering and asyncio.get_running_loop().time() < faults.down_until:
            raise Unavailable("out of reach")

    async def open(self) -> None:
        """Always."""

    async def close(self) -> None:
        """A dead process closes nothing."""

    async def create(self, head: Head) -> None:
        """In this process's name."""
        owner = self._named(head.owner) if head.owner is not None else None
        renewed = head.renewed_at - self._ahead()
        await self._through(lambda: self.store.create(replace(head, owner=owner, renewed_at=renewed)))

    async def append(self, batch: Batch) -> None:
        """Where most things go wrong."""
        await self._pass()
        faults = self.faults
        if not self.calm:
            await asyncio.sleep(self.dice.pick(0, 0, 0, 0.01, 0.6))
            await self._pass()
        if faults.dies_at:
            faults.dies_at -= 1
            if not faults.dies_at:
                if faults.dies_after:
                    await self.store.append(batch)
                self.die()
                await self._pass()
        await self.store.append(batch)
        if faults.naps:
            self.nap(faults.naps)
            faults.naps = 0.0
        if faults.unsure:
            faults.unsure -= 1
            raise Unavailable("no answer")
        await self._pass(answering=True)
        self.seen = max(self.seen, batch.after + len(batch.rows))

    def _ahead(self) -> float:
        """How far this process's clock is before the store's."""
        return self.clock.now() - asyncio.get_running_loop().time()

    def _told(self, head: Head) -> Head:
        return replace(head, renewed_at=head.renewed_at + self._ahead())

    def _named(self, owner: Owner) -> Owner:
        return replace(owner, host=f"machine-{self.process}", pid=self.process)

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """In this process's name."""
        at = now - self._ahead()
        try:
            return await self._through(lambda: self.store.claim(run, self._named(owner), at, over=over), slow=True)
        except Taken as taken:
            raise Taken(self._told(taken.head)) from None

    async def renew(self, lease: Lease, now: float) -> None:
        """As the store has it."""
        at = now - self._ahead()
        await self._through(lambda: self.store.renew(lease, at))

    async def release(self, lease: Lease) -> None:
        """As the store has it."""
        await self._through(lambda: self.store.release(lease))

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """As the store has it."""
        return await self._through(lambda: self.store.read(run, after, limit))

    async def head(self, run: str) -> Head | None:
        """As the store has it."""
        found = await self._through(lambda: self.store.head(run))
        return None if found is None else self._told(found)

    async def heads(self, **wanted: Any) -> list[Head]:
        """As the store has it."""
        return [self._told(head) for head in await self._through(lambda: self.store.heads(**wanted))]

    async def post(self, run: str, data: bytes) -> int:
        """As the store has it."""
        return await self._through(lambda: self.store.post(run, data))

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        """As the store has it."""
        return await self._through(lambda: self.store.inbox(run))

    async def answer(self, run: str, number: int, data: bytes) -> None:
        """As the store has it."""
        await self._through(lambda: self.store.answer(run, number, data))

    async def answered(self, run: str, number: int) -> bytes | None:
        """As the store has it."""
        return await self._through(lambda: self.store.answered(run, number))

    async def blob(self, digest: str) -> bytes | None:
        """As the store has it."""
        return await self._through(lambda: self.store.blob(digest))

    async def sweep(self, before: float) -> int:
        """As the store has it."""
        return await self._through(lambda: self.store.sweep(before))

    async def remove(self, heads: Sequence[Head]) -> int:
        """As the store has it."""
        return await self._through(lambda: self.store.remove(heads))

    async def shrink(self) -> int:
        """As the store has it."""
        return await self._through(self.store.shrink)

    async def examine(self) -> list[Flaw]:
        """As the store has it."""
        return await self._through(self.store.examine)

    async def clear(self) -> int:
        """As the store has it."""
        return await self._through(self.store.clear)

    async def changed(self, run: str, after: int, timeout: float, *, inbox: bool = False) -> bool:  # noqa: ASYNC109
        """As the store has it."""
        return await self._through(lambda: self.store.changed(run, after, timeout, inbox=inbox))

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109
        """As the store has it."""
        return await self._through(lambda: self.store.freed(timeout))


__all__ = ["Faults", "SharedStore", "Way"]
