"""Run leases: acquire, take over, renew, release (contract T7).

Rules of this file:
- A run has one lease holder. A living one keeps the lease; a dead one's is taken over. A worker that outlived its run
  is ended, known by pid and start time. A silent one loses the lease only on demand.
- A holder on another machine that seems dead is watched before its lease is taken over (`LeaseWatch`). A holder that
  cannot renew for long stops by itself: its lease may have been taken over by then (contract E4).
- Acquire fails if events were appended after the caller's snapshot (optimistic check).
- The store's answers get lost: it may have given a lease, or kept a released one, without this process knowing. So
  this process counts the leases that it holds. One in its name that no loop holds is orphaned (contract E4).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from rerail.engine.parts import EngineParts, Predecessor
from rerail.engine.refusals import refusals
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.definition_drift import lost_calls
from rerail.engine.runs.owner import (
    EXPIRED_AFTER,
    WATCH_EVERY,
    LeaseWatch,
    end_residual,
    is_arriving,
    is_dead,
    is_here,
    is_silent,
    is_this_process,
    this_process,
)
from rerail.engine.runs.reader import AT_REST, Heads, LiveRun, RunReader, store_errors
from rerail.errors import Refused, RerailError, StoreError
from rerail.i18n import Told, tell
from rerail.kernel import events as ev
from rerail.kernel.actions import goes_on_here
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.plan.step import Effect
from rerail.ports import TERM, Fenced, Head, Lease, Owner, Taken, Unavailable, Unusable

MAX_SUSPECTED = 100  # runs of seemingly dead owners that are watched while there is no room for them
MAX_UNATTENDED = 10_000  # runs that one search for work returns
RELEASE_GRACE = 2.0  # seconds that the owner of a run at rest gets to release it
HELD_RUNS: Counter[str] = Counter()  # the runs that engines of this process hold, or are acquiring
os.register_at_fork(after_in_child=HELD_RUNS.clear)


class Leases:
    """The leases of one engine, and the liveness of other holders."""

    def __init__(
        self,
        parts: EngineParts,
        reader: RunReader,
        live: Mapping[str, LiveRun],
        *,
        worker: bool,
        on_notice: Callable[[Told], None],
    ) -> None:
        """``live`` holds the runs that this engine drives; ``on_notice`` hears of takeovers."""
        self._parts, self._reader, self._live, self._on_notice = parts, reader, live, on_notice
        self.owner = this_process(worker=worker)
        self._watch = LeaseWatch()
        self._suspected: deque[str] = deque(maxlen=MAX_SUSPECTED)
        self._noting: set[str] = set()  # runs that are held for a moment, to record what came of a notice
        self._unreleased: dict[str, Lease] = {}  # leases after a failed release
        self._reserved: dict[str, Lease] = {}  # leases held for a worker process, which takes them over

    # -- Other holders --------------------------------------------------------------------------------------------

    def is_gone(self, head: Head) -> bool:
        """Whether a run has no living holder; a seemingly dead one is watched first."""
        return self._watch.is_dead(head, self._parts.clock.now())

    def drives(self, run: str) -> bool:
        return run in self._live

    def driven_elsewhere(self, head: Head, *, take_over: bool = False) -> bool:
        """Whether a living process other than this engine drives the run; at rest it has only to be released."""
        if head.status in AT_REST or not self.is_held(head):
            return False
        return not (take_over and is_silent(head, self._parts.clock.now()))

    def is_held(self, head: Head, *, watched: bool = False) -> bool:
        """Whether a living process holds the run; a run held here only to record a notice does not count.

        ``watched``: a seemingly dead holder counts as living until it was watched for long enough, and this look is
        part of the watch. Without, the acquire that follows will watch.
        """
        dead = self._watch.is_dead if watched else is_dead
        if head.owner is None or dead(head, self._parts.clock.now()):
            return False
        return head.run not in self._noting and not self._is_orphaned(head)

    def _is_orphaned(self, head: Head, *, expected: int = 0) -> bool:
        """True if the lease names this process but no loop holds it (its release was lost)."""
        return head.owner == self.owner and HELD_RUNS[head.run] <= expected

    def refuse_arriving(self, head: Head) -> None:
        """Refuse a run that is being imported, and is not whole."""
        if is_arriving(head):
            raise self.refusal(head, "")

    def refusal(self, head: Head, hint: str) -> Refused:
        """Return the refusal for a run that is held; for a silent holder its hint says how to take over."""
        if is_arriving(head):
            told = tell("refuse.run.arriving", run=head.run, owner=head.owner)
            return Refused(told, "RUN_LIVE", hint=tell("hint.run.arriving"))
        if is_silent(head, self._parts.clock.now()):
            hint = tell("hint.worker.silent", run=head.run, owner=head.owner)
        return Refused(tell("refuse.run.driven_by", run=head.run, owner=head.owner), "RUN_LIVE", hint=hint)

    def _seems_gone(self, head: Head) -> bool:
        """Whether a run's owner may be dead, by the age of its lease."""
        return head.owner is not None and is_dead(head, self._parts.clock.now())

    async def found_alive(self, run: str, refused: Refused) -> Head:
        """Return the head of a run after a refused acquire, if its owner lives; else raise the refusal.

        Its owner renewed while it was watched, or another process was faster.
        """
        if refused.code == "RUN_LIVE" and self.driven_elsewhere(head := await self._reader.head(run)):
            return head
        raise refused

    async def settled(self, head: Head) -> Head:
        """Return a run's head once it is certain whether its owner lives."""
        told = False
        while True:
            now = self._parts.clock.now()
            if head.status in AT_REST or not is_dead(head, now) or self._watch.is_dead(head, now):
                return head
            told = await self._watch_on(head, told)
            head = await self._reader.head(head.run)

    async def _watch_on(self, head: Head, told: bool) -> bool:
        """Wait for the next look at a lease; the first wait is announced."""
        if not told:
            notice = tell("notice.worker.watched", run=head.run, owner=head.owner, seconds=int(EXPIRED_AFTER))
            self._on_notice(notice)
        await asyncio.sleep(WATCH_EVERY)
        return True

    # -- Work for workers -----------------------------------------------------------------------------------------

    async def unattended(self, left: set[str] | None = None) -> Heads:
        """Return the runs that should be driven and have no owner, oldest first.

        Runs in ``left`` are left to other workers and not returned; runs that found an owner leave the set.
        """
        still: set[str] = set()
        found: deque[Head] = deque(maxlen=MAX_UNATTENDED)  # the oldest ones, if there are more
        self._suspected.clear()
        async for head in self._reader.unfinished():
            if head.run in self._live or not head.seq:  # being created, or never planned
                continue
            if not self.is_held(head, watched=True):
                if left is not None and head.run in left:
                    still.add(head.run)
                else:
                    found.appendleft(head)
            elif self._seems_gone(head):
                self._suspected.append(head.run)
        if left is not None:
            left &= still
        return list(found)

    async def freed(self, seconds: float) -> bool:
        """Wait until a run may be without an owner; False at the timeout."""
        with store_errors():
            return await self._parts.store.freed(seconds)

    @property
    def is_watching(self) -> bool:
        """Whether the last search found owners that seem dead."""
        return bool(self._suspected)

    async def outlived(self) -> list[str]:
        """Look again at the owners that seem dead; return the runs of dead ones.

        A worker without room calls this: the watch would start again at each search (contract T7).
        """
        gone = []
        for run in list(self._suspected):
            with store_errors():
                head = await self._parts.store.head(run)
            if head is not None and self.is_held(head, watched=True) and self._seems_gone(head):
                continue
            self._suspected.remove(run)
            if head is not None and not self.is_held(head):
                gone.append(run)
        return gone

    # -- Acquire --------------------------------------------------------------------------------------------------

    async def acquire(
        self, run: str, seen: Head | None = None, known: State | None = None, *, take_over: bool = False
    ) -> RunLoop:
        """Become the owner of a run that is not driven; a dead owner's lease is taken over.

        With the head that was ``seen`` it fails if anything was appended since: of two processes that decide the same
        at the same instant, the second must not repeat what the first did. A ``known`` state is folded on.
        """
        with store_errors(), holding(run):
            lease, before = await self._claim(run, seen, take_over=take_over)
        try:
            state, moved = known if known is not None else State(run), False
            since = known.seq if known is not None else seen.seq if seen is not None else None
            async for record in self._reader.records(run, state.seq):
                evolve(state, record.event, record.at, record.seq)
                news = since is not None and record.seq > since and not isinstance(record.event, ev.Notified)
                moved = moved or news
            if run not in self._noting:
                with refusals():
                    goes_on_here(state)
            if moved:
                hint = tell("hint.run.see_run", run=run)
                raise Refused(tell("refuse.run.changes_hands", run=run), "RUN_LIVE", hint=hint)
        except BaseException:
            await self.give_back(lease, before)
            raise
        self._reader.note_home(state)
        return RunLoop(self._parts, lease, state, _known_of(state, lease, before))

    @contextlib.contextmanager
    def noting(self, run: str) -> Iterator[None]:
        """Hold a run only to record what came of a notice: commands and other engines do not see it as driven."""
        self._noting.add(run)
        try:
            yield
        finally:
            self._noting.discard(run)

    async def claim_new(self, run: str) -> Lease:
        """Take the lease of a run that was created and never got a plan."""
        return (await self._claim(run, None))[0]

    async def _claim(self, run: str, seen: Head | None, *, take_over: bool = False) -> tuple[Lease, Predecessor]:
        """Take the lease; return it with what is known of the previous holder."""
        clock, waited, told = self._parts.clock, 0.0, False
        while True:
            try:
                return await self._parts.store.claim(run, self.owner, clock.now()), Predecessor.LEFT
            except Taken as taken:
                head = taken.head
            seems = is_dead(head, clock.now())
            if self._watch.is_dead(head, clock.now()) or (seems and head.status in AT_REST):
                lease = await self.take_over(head)
                self._on_notice(tell("notice.worker.dead", run=run, owner=head.owner))
                here = head.owner is not None and is_here(head.owner)
                return lease, Predecessor.DEAD if here else Predecessor.SILENT
            if seems:
                told = await self._watch_on(head, told)
                continue
            if self._is_orphaned(head, expected=1):  # this attempt counts as one; what came before it is not known
                return await self.take_over(head), Predecessor.SILENT
            if head.status not in AT_REST and run not in self._noting:
                if take_over and is_silent(head, clock.now()):
                    return await self._take_over_silent(head)
                raise self.refusal(head, tell("hint.run.run_live", run=run))
            if waited >= RELEASE_GRACE:
                newer = seen is not None and seen.fence != head.fence  # another process acquired it since
                if newer or not await self._residual_gone(head):
                    raise self.refusal(head, tell("hint.run.run_live", run=run))
                return await self.take_over(head), Predecessor.DEAD
            await asyncio.sleep(0.05)  # the run is at rest, and its owner about to release it
            waited += 0.05

    async def _residual_gone(self, head: Head) -> bool:
        """Whether the owner of a run at rest was a residual worker, and is gone now (contract T7)."""
        owner = head.owner
        if owner is None or not owner.worker or is_this_process(owner):
            return False
        if await self._is_busy(owner, head.run):
            return True  # it drives another run, and only its release failed
        self._on_notice(tell("notice.worker.residual", run=head.run, owner=owner))
        return await end_residual(owner)

    async def _is_busy(self, owner: Owner, but: str) -> bool:
        """Whether a worker drives another run, which its end would hurt."""
        heads = await self._parts.store.heads(status=("pending", "running"), limit=100_000)
        return any(head.owner == owner and head.run != but for head in heads)

    async def _take_over_silent(self, head: Head) -> tuple[Lease, Predecessor]:
        """Take over from a living, silent process; a worker, which has nothing else to do, is ended.

        Any other process may go on at any moment. The new owner waits until that one must know that it lost the lease
        (contract E11).
        """
        lease = await self.take_over(head)
        self._on_notice(tell("notice.worker.taken_away", run=head.run, owner=head.owner))
        ours = head.owner is not None and head.owner.worker and not is_this_process(head.owner)
        if ours and head.owner is not None and await end_residual(head.owner, grace=0.5):
            return lease, Predecessor.DEAD
        if self._parts.clock.polls:
            await asyncio.sleep(TERM)
        return lease, Predecessor.SILENT

    async def take_over(self, head: Head) -> Lease:
        """Take the lease from the holder that was seen; `Refused` if another process was faster."""
        try:
            return await self._parts.store.claim(head.run, self.owner, self._parts.clock.now(), over=head.fence)
        except Taken as taken:
            raise Refused(tell("refuse.run.taken_first", owner=taken.head.owner, run=head.run), "RUN_LIVE") from None

    # -- Reservations ---------------------------------------------------------------------------------------------

    def reserve(self, lease: Lease) -> None:
        """Hold a lease, renewed, until a worker process takes it over or this engine is closed."""
        self._reserved[lease.run] = lease

    def reservation(self, run: str) -> int | None:
        """Return the fence of a reserved run's lease; None if the run is not reserved here."""
        lease = self._reserved.get(run)
        return lease.fence if lease is not None else None

    async def claim_reserved(self, run: str, fence: int) -> Lease:
        """Take over the lease that another process holds with this fence for this one."""
        with store_errors(), holding(run):
            return await self.take_over(Head(run, fence=fence))

    async def release_reserved(self) -> None:
        """Release the reservations that no worker took over."""
        await asyncio.gather(*map(self.release, self._reserved.values()), return_exceptions=True)
        self._reserved.clear()

    # -- Release and renew ----------------------------------------------------------------------------------------

    async def give_back(self, lease: Lease, before: Predecessor) -> None:
        """Release a run that is not driven after all, and record first what became of the calls in flight.

        Else the next owner would take them for calls of this process, which released the run in order (contract E11).
        """
        try:
            with contextlib.suppress(RerailError, Fenced, Unavailable, Unusable):
                state = State(lease.run)
                async for record in self._reader.records(lease.run, 0):
                    evolve(state, record.event, record.at, record.seq)
                if any(call.effect is Effect.ONCE for call in _in_flight(state)):
                    loop = RunLoop(self._parts, lease, state)
                    loop.note(*lost_calls(state, _known_of(state, lease, before), self._parts))
                    await loop.commit()
        finally:
            await self.release(lease)

    @contextlib.asynccontextmanager
    async def kept(self, loop: RunLoop, *, commits: bool = False) -> AsyncIterator[None]:
        """Give an acquired run back if it is not driven after all; ``commits``: first record what a refusal left."""
        try:
            yield
        except BaseException as error:  # a cancellation, too: else the run would stay in this process's name
            if commits and isinstance(error, RerailError):
                with contextlib.suppress(RerailError):
                    await loop.commit()
            await self.give_back(loop.lease, loop.predecessor)
            raise

    async def release(self, lease: Lease) -> None:
        """Release a lease; if the store is out of reach, `renew_all` does it later."""
        try:
            await self._parts.store.release(lease)
        except (Unavailable, Unusable):
            self._unreleased[lease.run] = lease
        finally:
            _drop(lease.run)

    async def renew_all(self) -> None:
        """Renew the leases of all live runs at once, and retry failed releases."""
        now = self._parts.clock.now()
        await asyncio.gather(*(self._renew(live, now) for live in list(self._live.values())))
        for lease in self._reserved.values():
            with contextlib.suppress(Fenced, Unavailable, Unusable):
                await self._parts.store.renew(lease, now)
        for run, lease in list(self._unreleased.items()):
            with contextlib.suppress(Unavailable, Unusable):
                await self._parts.store.release(lease)
                self._unreleased.pop(run, None)

    async def _renew(self, live: LiveRun, now: float) -> None:
        run, loop, term = live.loop.state.run, asyncio.get_running_loop(), live.loop.journal.term
        try:
            asked = self._parts.clock.uptime()
            await self._parts.store.renew(live.loop.lease, now)
            term.confirmed(asked)
            live.failing = None
        except Fenced:
            live.loop.stop_broken(StoreError(tell("refuse.run.lease_lost", run=run), "LEASE_LOST"))
        except (Unavailable, Unusable) as problem:
            # A write would have been tried again for that long. A run in a long call must not go on when a process
            # that reaches the store may have its lease.
            live.failing = loop.time() if live.failing is None else live.failing
            silent = loop.time() - live.failing
            if silent > self._parts.reconnect_seconds + EXPIRED_AFTER:
                told = tell("refuse.run.unrenewed", run=run, seconds=int(silent), error=problem)
                live.loop.stop_broken(StoreError(told))


def _known_of(state: State, lease: Lease, before: Predecessor) -> Predecessor:
    """Return what is known of the process that made the calls in flight; nothing, if another owner came between."""
    fences = (call.fence for call in _in_flight(state) if call.fence)
    return before if all(fence == lease.fence - 1 for fence in fences) else Predecessor.SILENT


def _in_flight(state: State) -> list[ev.StepStarted]:
    return [track.call for track in state.running.values() if track.call is not None]


@contextlib.contextmanager
def holding(run: str) -> Iterator[None]:
    """Count a run as held by this process; `release` counts it out, and so does an error."""
    HELD_RUNS[run] += 1
    try:
        yield
    except BaseException:
        _drop(run)
        raise


def _drop(run: str) -> None:
    HELD_RUNS[run] -= 1
    if HELD_RUNS[run] <= 0:
        del HELD_RUNS[run]
