"""Drives runs: their loops, the inboxes of other processes, the renewal of leases (contract T7).

Rules of this file:
- Each live run has one task; what ends it with an error is kept for `wait`.
- The attendants run beside all of it: a slow run must not keep the others from being heard or renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from rerail.context import SECRETS
from rerail.engine.files.retention import Snapshot
from rerail.engine.parts import EngineParts
from rerail.engine.queues import Ended
from rerail.engine.refusals import encode_answer
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.leases import Leases
from rerail.engine.runs.lineage import Lineage
from rerail.engine.runs.owner import RENEW_EVERY
from rerail.engine.runs.reader import AT_REST, LiveRun, RunReader, store_errors
from rerail.engine.stepping import Stepper
from rerail.errors import Refused, RerailError, StoreError
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.actor import HTTP
from rerail.kernel.commands import Command
from rerail.kernel.decide import Call, decide
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus
from rerail.ports import Conflict, Unavailable, Unusable
from rerail.views.results import RunResult

INBOX_EVERY = 0.2  # seconds between two looks into the inboxes of live runs


class Supervisor:
    """The live runs of one engine."""

    def __init__(
        self,
        parts: EngineParts,
        reader: RunReader,
        leases: Leases,
        lineage: Lineage,
        live: dict[str, LiveRun],
        *,
        on_end: Callable[[RunLoop], Awaitable[None]],
    ) -> None:
        """``on_end`` is awaited after a run's loop has ended in order, and its lease was released."""
        self._parts, self._reader, self._leases, self._lineage = parts, reader, leases, lineage
        self._live, self._on_end = live, on_end
        self._entrusted: set[str] = set()  # runs that were queued for other processes
        self._broken: dict[str, RerailError] = {}  # runs that stopped because they could not be written any more
        self._steppers: dict[str, Stepper] = {}
        self._attendants: list[asyncio.Task[None]] = []
        self.is_leaving = self._closing = self._reserving = False

    # -- Opening and closing --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to listen to other processes, and to renew leases."""
        self.is_leaving = self._closing = False
        if self._parts.clock.polls:
            self._attendants = [asyncio.create_task(self._attend()), asyncio.create_task(self._keep_leases())]

    async def close(self) -> None:
        """Stop live runs as a crash would: calls cancelled, leases released, nothing recorded as cancelled."""
        self._closing = True
        for attendant in self._attendants:
            attendant.cancel()
        await asyncio.gather(*self._attendants, return_exceptions=True)
        await asyncio.sleep(0)  # a task that is cancelled before its first step would keep its run's lease
        tasks = [live.task for live in self._live.values()]
        for live in self._live.values():
            live.loop.leave()  # the driver of a store may swallow a cancellation; the loop must end all the same
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._reserving:
            await self._leases.release_reserved()

    async def hand_over(self, seconds: float) -> None:
        """Leave all runs to other processes: nothing new starts, and calls under way get that long to end."""
        self.is_leaving = True
        for live in list(self._live.values()):
            live.loop.leave()
        if tasks := list(self.under_way().values()):
            await asyncio.wait(tasks, timeout=seconds)

    async def _attend(self) -> None:
        """Give live runs the commands that other processes posted."""
        while not self._closing:  # the driver of a store may swallow the cancellation
            await asyncio.sleep(INBOX_EVERY)
            for run, live in list(self._live.items()):
                # One run's trouble must not keep the others from being heard.
                with contextlib.suppress(Unavailable, Unusable, Conflict, RerailError):
                    await self.serve(run, live)

    async def _keep_leases(self) -> None:
        """Renew the leases of live runs: a silent owner counts as dead (contract T7)."""
        while not self._closing:  # as above
            await asyncio.sleep(RENEW_EVERY)
            await self._leases.renew_all()

    async def serve(self, run: str, live: LiveRun) -> None:
        """Apply the commands in a live run's inbox, and answer them."""
        for number, data in await self._parts.store.inbox(run):
            problem: RerailError | None = None
            if live.loop.ended:
                return  # the sender will see that the run is not driven, and apply the command itself
            try:
                command: Command = msgspec.json.decode(data, type=Command)
                if not live.loop.state.has_granted(command.key, number):  # else only its answer was lost
                    await live.loop.command(msgspec.structs.replace(command, number=number))
            except Ended:
                return
            except RerailError as error:
                problem = error
            except msgspec.DecodeError as error:
                problem = Refused(tell("refuse.run.action_unreadable", error=error), "STEP_NOT_WAITING")
            await self._parts.store.answer(run, number, encode_answer(problem))

    async def command(self, run: str, command: Command) -> bool:
        """Give a live run a command; False if its loop ended before that."""
        live = self._live[run]
        try:
            await live.loop.command(command)
        except Ended:
            await asyncio.wait([live.task])
            return False
        return True

    def reserve(self) -> None:
        """From now on, reserve the runs that commands set going for a worker process, and drive none of them here."""
        self._reserving = True

    # -- Driving --------------------------------------------------------------------------------------------------

    def drive(self, loop: RunLoop, parent: State | None = None) -> None:
        """Drive a run in a task of its own; the parent's snapshot tells of both."""
        if self._reserving:
            self._leases.reserve(loop.lease)
            return
        state, run = loop.state, loop.state.run
        if state.served != (self._parts.actor.via == HTTP):
            loop.note(ev.Resumed(reason="served", served=self._parts.actor.via == HTTP))
        view = Snapshot(loop.workspace, parent) if state.staged and state.home == (parent or state).run else None
        stepper = self._steppers.get(run)
        if stepper is not None:
            stepper.restart()
        task = asyncio.get_running_loop().create_task(self._driven(loop, view, stepper))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # `wait` raises it
        self._live[run] = LiveRun(loop, task)

    async def _driven(self, loop: RunLoop, view: Snapshot | None, stepper: Stepper | None) -> None:
        run = loop.state.run
        SECRETS.set(self._parts.performer.scrub)
        self._broken.pop(run, None)
        try:
            if loop.begun or loop.state.home != run:  # a new run has left none
                with contextlib.suppress(RerailError, OSError):  # the sweep is optional
                    await self._lineage.sweep_drafts(loop.state)
            await loop.drive(view, stepper)
        except Exception as error:
            told = tell("refuse.run.broken", run=run, broken=error)
            self._broken[run] = error if isinstance(error, RerailError) else StoreError(told)
            raise
        finally:
            self._live.pop(run, None)
            if loop.state.rest is not None:
                self._steppers.pop(run, None)
            await loop.drained()
            await self._leases.release(loop.lease)
        await self._on_end(loop)

    def under_way(self) -> dict[str, asyncio.Task[None]]:
        """Return the runs that this engine drives now, and the task that ends with each."""
        return {run: live.task for run, live in self._live.items()}

    def entrust(self, run: str) -> None:
        """Wait for a run of other processes even while it has no owner."""
        self._entrusted.add(run)

    async def wait(self, run: str) -> RunResult:
        """Wait until a run is at rest, or waits for a user; another process's run is watched."""
        live = self._live.get(run) or self._live.get(run := await self._reader.find(run))
        if live is not None:
            await asyncio.shield(live.task)
            return await self._reader.result(live.loop.state, live.loop.journal.contents)
        if run in self._broken:
            raise self._broken[run]
        while True:
            head = await self._reader.head(run)
            # A queued run waits for a worker; any other run without an owner has nothing to wait for.
            alone = head.status != RunStatus.PENDING and run not in self._entrusted
            gone = (alone or not head.seq) and self._leases.is_gone(head)
            if head.status in AT_REST or head.status == RunStatus.WAITING or gone:
                return await self._reader.show(run)
            with store_errors():
                await self._parts.store.changed(run, head.seq, 1.0)

    # -- Stage by stage (I5) --------------------------------------------------------------------------------------

    def pace(self, run: str) -> None:
        """From now on drive a run stage by stage, as `through` says; a loop under way is not changed."""
        self._steppers.setdefault(run, Stepper())

    async def through(self, run: str, stage: str = "") -> bool:
        """Let a run go through its next stage, if it is that one; False once this engine does not drive it.

        Without a stage, only wait until the run pauses before one. Raises what broke the run, if it is broken.
        """
        live, stepper = self._live.get(run), self._steppers.get(run)
        if live is not None and stepper is not None:
            await (stepper.advance(stage, live.task) if stage else stepper.wait_until_paused(live.task))
        live = self._live.get(run)
        if live is not None and not live.task.done():
            return True
        if run in self._broken:
            raise self._broken[run]
        return False

    async def due(self, run: str) -> list[str]:
        """Return the next steps to call, in their order; none is started."""
        live = self._live.get(run)
        state = live.loop.state if live is not None else await self._reader.state(run)  # no replay at each stage
        actions = decide(state, self._parts.specs, self._parts.clock.now())
        return [action.step for action in actions if isinstance(action, Call)]
