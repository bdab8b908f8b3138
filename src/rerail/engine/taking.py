"""Taking runs: who has one, whether that one still lives, and how it changes hands (SPEC T7).

Rules of this file:
- A run has one owner. A living one keeps it; a dead one's is taken; a worker that outlived its run is ended, known by
  pid and start time; one that has fallen silent loses it only if somebody says so.
- An owner elsewhere that seems dead is watched before its run is taken (`silence`). One that could not renew for long
  gives up by itself: somebody may have taken the run by then (E4).
- Whoever decides something about a run from what was seen of it gets it only if nothing has happened since.
- Words get lost: a store may have given us a run, or kept one that we gave back, without our knowing. So this process
  counts what it holds; a run that is in its name and that nobody in it holds is nobody's (E4).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator

from rerail.core import events as ev
from rerail.core.commands import goes_on_here
from rerail.core.fold import evolve
from rerail.core.plan import Effect
from rerail.core.state import State
from rerail.engine.loop import Host, Predecessor, RunLoop
from rerail.engine.owner import (
    EXPIRED_AFTER,
    end_residual,
    is_arriving,
    is_dead,
    is_here,
    is_silent,
    is_this_process,
    this_process,
)
from rerail.engine.reading import AT_REST, Live, Reader, store_errors
from rerail.engine.refusals import refusals
from rerail.engine.silence import WATCH_EVERY, Watch
from rerail.engine.today import lost_calls
from rerail.errors import Refused, RerailError, StoreError
from rerail.i18n import Told, tell
from rerail.ports import TERM, Fenced, Head, Lease, Owner, Taken, Unavailable, Unusable

MOST_SUSPECTED = 100  # runs that are looked at one by one while there is no room for them
LETTING_GO = 2.0  # seconds that the owner of a run at rest gets to give it back
HELD: Counter[str] = Counter()  # the runs that engines of this process hold, or are about to
os.register_at_fork(after_in_child=HELD.clear)


def unheard(told: Told) -> None:
    """Nobody listens."""


class Taker(Reader):
    """Reads runs, and becomes their owner."""

    def __init__(self, host: Host, *, worker: bool = False) -> None:
        super().__init__(host)
        self._owner = this_process(worker=worker)
        self._watch = Watch()
        self._suspected: deque[str] = deque(maxlen=MOST_SUSPECTED)  # runs whose owners seem gone, and are watched
        self._noting: set[str] = set()  # runs that are held for a moment, to write down what came of a notice
        self._unreleased: dict[str, Lease] = {}  # leases that could not be given back yet
        self.notice: Callable[[Told], None] = unheard  # what people should hear while a run is taken over

    def drives(self, run: str) -> bool:
        """Whether this very engine drives the run now."""
        return run in self._live

    def _driven_elsewhere(self, head: Head, *, take_over: bool = False) -> bool:
        """Whether a living process other than this engine has the run; one at rest has only to let go of it."""
        if head.status in AT_REST or not self._is_held(head):
            return False
        return not (take_over and is_silent(head, self._host.clock.now()))

    def _is_held(self, head: Head, *, watched: bool = False) -> bool:
        """Whether a living process has the run, to drive it or for a moment; not if we only note something down.

        ``watched``: whoever seems dead counts as living until it was watched for long enough; this look is a part of
        that. Without, whoever goes on to take the run will watch.
        """
        dead = self._watch.is_dead if watched else is_dead
        if head.owner is None or dead(head, self._host.clock.now()):
            return False
        return head.run not in self._noting and not self._lost(head)

    def _lost(self, head: Head, *, but: int = 0) -> bool:
        """Whether a run is in our name, and nobody in this process holds it."""
        return head.owner == self._owner and HELD[head.run] <= but

    def _is_live(self, head: Head, hint: str) -> Refused:
        """Somebody else has the run; if that one has fallen silent, there is a way to take it away."""
        if is_arriving(head):
            told = tell("refuse.run.arriving", run=head.run, owner=head.owner)
            return Refused(told, "RUN_LIVE", hint=tell("hint.run.arriving"))
        if is_silent(head, self._host.clock.now()):
            hint = tell("hint.worker.silent", run=head.run, owner=head.owner)
        return Refused(tell("refuse.run.driven_by", run=head.run, owner=head.owner), "RUN_LIVE", hint=hint)

    def _seems_gone(self, head: Head) -> bool:
        """Whether a run's owner may be gone, by the age of its lease."""
        return head.owner is not None and is_dead(head, self._host.clock.now())

    @property
    def is_watching(self) -> bool:
        """Whether some owners seemed gone when all runs were looked at."""
        return bool(self._suspected)

    async def outlived(self) -> list[str]:
        """Look again at the owners that only seemed gone when all runs were looked at; the runs of those that are.

        For whoever has no room for more runs, and would have to begin to watch anew once there is some (T7).
        """
        gone = []
        for run in list(self._suspected):
            with store_errors():
                head = await self._host.store.head(run)
            if head is not None and self._is_held(head, watched=True) and self._seems_gone(head):
                continue
            self._suspected.remove(run)
            if head is not None and not self._is_held(head):
                gone.append(run)
        return gone

    async def _found_alive(self, run: str, refused: Refused) -> Head:
        """The run as it is, if it was refused because somebody has it after all and can be asked; else the refusal.

        It seemed to be nobody's, and its owner was heard of while we watched, or another was faster.
        """
        if refused.code == "RUN_LIVE" and self._driven_elsewhere(head := await self.head(run)):
            return head
        raise refused

    async def _settled(self, run: str) -> Head:
        """A run that we do not want for ourselves, once it is known whether its owner lives."""
        told = False
        while True:
            head, now = await self.head(run), self._host.clock.now()
            if head.status in AT_REST or not is_dead(head, now) or self._watch.is_dead(head, now):
                return head
            if not told:
                self.notice(tell("notice.worker.watched", run=run, owner=head.owner, seconds=int(EXPIRED_AFTER)))
                told = True
            await asyncio.sleep(WATCH_EVERY)

    async def _take(
        self, run: str, seen: Head | None = None, known: State | None = None, *, take_over: bool = False
    ) -> RunLoop:
        """Become the owner of a run nobody drives; a dead owner's lease is taken over.

        With the head that was ``seen`` when it was decided, only if nothing happened since: of two who decide the same
        at the same instant, the second must not do it again after the first. A ``known`` state was decided from, and
        is folded on instead of anew.
        """
        with store_errors(), reaching(run):
            lease, before = await self._claim(run, seen, take_over=take_over)
        try:
            state, moved = known if known is not None else State(run), False
            since = known.seq if known is not None else seen.seq if seen is not None else None
            async for record in self._records(run, state.seq):
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
            await self._give_back(lease, before)
            raise
        if state.home != run:
            self._homes[run] = state.home
        loop = RunLoop(self._host, lease, state)
        loop.predecessor = _known_of(state, lease, before)
        return loop

    async def _give_back(self, lease: Lease, before: Predecessor) -> None:
        """Release a run that is not driven after all, and record first what became of the calls in flight.

        The next owner would take them for the calls of this process, which gave the run back in order (E11).
        """
        try:
            with contextlib.suppress(RerailError, Fenced, Unavailable, Unusable):
                state = State(lease.run)
                async for record in self._records(lease.run, 0):
                    evolve(state, record.event, record.at, record.seq)
                if any(call.effect is Effect.ONCE for call in _in_flight(state)):
                    loop = RunLoop(self._host, lease, state)
                    loop.note(*lost_calls(state, _known_of(state, lease, before), self._host))
                    await loop.commit()
        finally:
            await self._let_go(lease)

    async def _claim(self, run: str, seen: Head | None, *, take_over: bool = False) -> tuple[Lease, Predecessor]:
        """Take the lease; with what is known of the process that had it before."""
        clock, waited, told = self._host.clock, 0.0, False
        while True:
            try:
                return await self._host.store.claim(run, self._owner, clock.now()), Predecessor.LEFT
            except Taken as taken:
                head = taken.head
            seems = is_dead(head, clock.now())
            if self._watch.is_dead(head, clock.now()) or (seems and head.status in AT_REST):
                lease = await self._take_over(run, head)
                self.notice(tell("notice.worker.dead", run=run, owner=head.owner))
                here = head.owner is not None and is_here(head.owner)
                return lease, Predecessor.DEAD if here else Predecessor.SILENT
            if seems:
                if not told:
                    self.notice(tell("notice.worker.watched", run=run, owner=head.owner, seconds=int(EXPIRED_AFTER)))
                    told = True
                await asyncio.sleep(WATCH_EVERY)
                continue
            if self._lost(head, but=1):  # this very attempt counts as well; what was before it is not known
                return await self._take_over(run, head), Predecessor.SILENT
            if head.status not in AT_REST and run not in self._noting:
                if take_over and is_silent(head, clock.now()):
                    return await self._take_away(run, head)
                raise self._is_live(head, tell("hint.run.run_live", run=run))
            if waited >= LETTING_GO:
                newer = seen is not None and seen.fence != head.fence  # somebody took it since, and is not residual
                if newer or not await self._residual_gone(head):
                    raise self._is_live(head, tell("hint.run.run_live", run=run))
                return await self._take_over(run, head), Predecessor.DEAD
            await asyncio.sleep(0.05)  # it is done, and its owner about to let go of it
            waited += 0.05

    async def _residual_gone(self, head: Head) -> bool:
        """Whether the owner of a run at rest was a worker that should be gone, and now is (T7)."""
        owner = head.owner
        if owner is None or not owner.worker or is_this_process(owner):
            return False
        if await self._is_busy(owner, head.run):
            return True  # it has gone on to another run, and only failed to give this one back
        self.notice(tell("notice.worker.residual", run=head.run, owner=owner))
        return await end_residual(owner)

    async def _is_busy(self, owner: Owner, but: str) -> bool:
        """Whether a worker drives another run: ending it would hurt that one."""
        heads = await self._host.store.heads(status=("pending", "running"), limit=100_000)
        return any(head.owner == owner and head.run != but for head in heads)

    async def _take_away(self, run: str, head: Head) -> tuple[Lease, Predecessor]:
        """Take a run from a process that lives and is silent; a worker, which has nothing else to do, is ended.

        Any other may go on at any moment: the run is not touched before it must know that it does not own it (E11).
        """
        lease = await self._take_over(run, head)
        self.notice(tell("notice.worker.taken_away", run=run, owner=head.owner))
        ours = head.owner is not None and head.owner.worker and not is_this_process(head.owner)
        if ours and head.owner is not None and await end_residual(head.owner, grace=0.5):
            return lease, Predecessor.DEAD
        if self._host.clock.polls:
            await asyncio.sleep(TERM)
        return lease, Predecessor.SILENT

    async def _take_over(self, run: str, head: Head) -> Lease:
        try:
            return await self._host.store.claim(run, self._owner, self._host.clock.now(), over=head.fence)
        except Taken as taken:
            raise Refused(tell("refuse.run.taken_first", owner=taken.head.owner, run=run), "RUN_LIVE") from None

    async def _let_go(self, lease: Lease) -> None:
        """Give a lease back; one that a store out of reach does not take is given back later."""
        try:
            await self._host.store.release(lease)
        except (Unavailable, Unusable):
            self._unreleased[lease.run] = lease
        finally:
            _drop(lease.run)

    async def _renew_all(self) -> None:
        """Say of all our runs at once that their holder lives: none waits for the answer to another."""
        now = self._host.clock.now()
        await asyncio.gather(*(self._renew(live, now) for live in list(self._live.values())))
        for run, lease in list(self._unreleased.items()):
            with contextlib.suppress(Unavailable, Unusable):
                await self._host.store.release(lease)
                self._unreleased.pop(run, None)

    async def _renew(self, live: Live, now: float) -> None:
        run, loop = live.loop.state.run, asyncio.get_running_loop()
        try:
            asked = live.loop.term.asked()
            await self._host.store.renew(live.loop.lease, now)
            live.loop.term.confirmed(asked)
            live.failing = None
        except Fenced:
            live.loop.broken(StoreError(tell("refuse.run.lease_lost", run=run), "LEASE_LOST"))
        except (Unavailable, Unusable) as problem:
            # A write would have been tried again for that long; and a run that hangs in a long call must not go on
            # when somebody else, who reaches the store, may well have it.
            live.failing = loop.time() if live.failing is None else live.failing
            silent = loop.time() - live.failing
            if silent > self._host.reconnect_seconds + EXPIRED_AFTER:
                told = tell("refuse.run.unrenewed", run=run, seconds=int(silent), error=problem)
                live.loop.broken(StoreError(told))


def _known_of(state: State, lease: Lease, before: Predecessor) -> Predecessor:
    """What is known of the process that made the calls in flight: nothing, if another owner came between (E11)."""
    fences = (call.fence for call in _in_flight(state) if call.fence)
    return before if all(fence == lease.fence - 1 for fence in fences) else Predecessor.SILENT


def _in_flight(state: State) -> list[ev.StepStarted]:
    return [track.call for track in state.running.values() if track.call is not None]


@contextlib.contextmanager
def reaching(run: str) -> Iterator[None]:
    """Hold a run from now on, if we get it."""
    HELD[run] += 1
    try:
        yield
    except BaseException:
        _drop(run)
        raise


def _drop(run: str) -> None:
    HELD[run] -= 1
    if HELD[run] <= 0:
        del HELD[run]
