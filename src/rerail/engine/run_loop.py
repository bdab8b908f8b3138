"""The loop of one run: absorb outcomes, decide, commit, act (contract E1).

Rules of this file:
- Intents are committed before their calls start; a result and the intents that follow from it share a commit.
- The loop keeps nothing that matters: besides the state it holds only calls and questions under way.
- It ends when the run is at rest, when only a user can move it, or when another process owns it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from pathlib import Path

import msgspec

from rerail.engine.advice import Advice, Answered
from rerail.engine.calls import Calls
from rerail.engine.failures import from_code
from rerail.engine.files.placement import place
from rerail.engine.journal import BULK, Journal, gc_paused
from rerail.engine.launch import Launch, Outcome
from rerail.engine.parts import EngineParts, Predecessor
from rerail.engine.queues import MAX_FAULTS, CommandQueue, Ended, SideTasks
from rerail.engine.refusals import secrets_in
from rerail.engine.stepping import EXECUTOR, REFLECTOR, Stepper
from rerail.errors import StoreError
from rerail.i18n import one_by_one, tell
from rerail.kernel import events as ev
from rerail.kernel.actions import additions
from rerail.kernel.commands import Command
from rerail.kernel.decide import Action, Ask, Call, Note, Show, VerifyEffect, decide, gated_call
from rerail.kernel.events import Course
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase
from rerail.plan.model import Plan
from rerail.ports import Lease, View

# The phases that wait for an outcome: of a call, of its preparation, of a look.
CALLED, NOT_CALLED, LOOKED = (Phase.RUNNING,), (Phase.PENDING, Phase.BACKOFF), (Phase.DOUBT, Phase.PENDING)
MAX_LEASE_AGE = 1.0  # seconds since the last confirmation of the lease, after which a call needs a new one


class RunLoop:
    """Drives one run until it is at rest or waits for a user."""

    def __init__(
        self, parts: EngineParts, lease: Lease, state: State, predecessor: Predecessor = Predecessor.LEFT
    ) -> None:
        self._parts, self.lease, self.state, self.predecessor = parts, lease, state, predecessor
        self._wake = asyncio.Event()
        self._outcomes: deque[Outcome | Answered] = deque()
        self._side = SideTasks(self._side_task_ended)
        self.journal = Journal(parts, lease, state, lost=self._lose)
        self.calls = Calls(parts, self.journal, self._side, self._wake, self._outcomes, lambda: self.workspace)
        self._advice = Advice(parts, self.journal, self._side, self._wake, self._outcomes)
        self._commands = CommandQueue(parts, self.journal, self._wake)
        self._record, self.note = self.journal.record, self.journal.note
        self.begun = state.seq  # the last event before this loop
        self._made: dict[str, ev.FileMade] = {}  # recorded files that are not in their place yet
        self._check_calls = False
        self._broken: BaseException | None = None
        self._leaving = False
        self._folder: Path | None = None
        self.ended = False

    # -- From outside ---------------------------------------------------------------------------------------------

    async def command(self, command: Command) -> None:
        """Give the loop a command; return once it is durable, raise if it is refused."""
        if self.ended:
            raise Ended(tell("refuse.run.not_driven", run=self.state.run))
        await self._commands.put(command)

    def apply(self, command: Command) -> None:
        """Apply a command before the loop starts; `Refusal` or `Faulty` if the state does not allow it."""
        self._commands.apply(command)

    @property
    def workspace(self) -> Path:
        """Return the folder for the run's files; a follow-up works in its parent's."""
        if self._folder is None or self._folder.name != self.state.home:  # needed for every call
            self._folder = self._parts.workspaces(self.state.home)
        return self._folder

    async def commit(self) -> None:
        """Make everything recorded durable, and answer the commands among it."""
        await self.journal.commit()
        if self._commands.applied:
            self._commands.answer()

    def stop_broken(self, error: BaseException) -> None:
        """Stop as soon as possible: another process owns the run."""
        self._broken = error
        self._lose()
        self._wake.set()

    def _lose(self) -> None:
        self.journal.term.lose({step: launch.task is not None for step, launch in self.calls.under_way.items()})

    def leave(self) -> None:
        """Start no more steps, and end when the calls under way have ended: another process goes on from there."""
        self._leaving = True
        self._wake.set()

    # -- The loop -------------------------------------------------------------------------------------------------

    async def drive(self, view: View | None = None, stepper: Stepper | None = None) -> None:
        """Run until the run is at rest, waits for a user, or is owned by another process.

        ``view`` gets the state after each commit; a ``stepper`` says when the next stage may begin.
        """
        self.journal.view = view
        try:
            if self.state.drafts:
                await place(self._parts.clock, self.state, self.workspace, self.state.drafts)
            while True:
                if self._broken is not None:
                    told = tell("refuse.run.broken", run=self.state.run, broken=self._broken)
                    raise StoreError(told) from self._broken
                await self._collect()
                if self._leaving:
                    if await self._left():
                        return
                    continue
                if stepper is not None:
                    await self._before_calls(stepper)
                if len(self.state.ready.members) > BULK:
                    with gc_paused():
                        launches = self._decide()
                else:
                    launches = self._decide()
                await self._act(launches)
                if (self.state.rest is not None or self.state.waiting) and not self._commands.waiting:
                    return
                if not self._outcomes and not self._commands.waiting:
                    await self._sleep()
                if stepper is not None:
                    await self._after_calls(stepper)
        finally:
            self.ended = True
            self._stop()

    async def _act(self, launches: list[Launch]) -> None:
        """Commit, then start the calls and the side tasks that were decided."""
        await self.commit()
        if launches and self.journal.term.age > MAX_LEASE_AGE:
            await self.journal.confirm_lease()
        if self._side.deferred:
            self._side.start_deferred()
        if launches:
            await self.calls.start(launches)
        if self._check_calls:
            self._cancel_unwanted()

    async def _left(self) -> bool:
        """Whether the calls under way are over, and another process may go on with the run."""
        await self.commit()
        self._side.cancel_looks()
        if not self.calls.under_way and not self._side.running:
            return True
        if not self._outcomes and not self._commands.waiting:
            await self._sleep()
        return False

    def _stop(self) -> None:
        """Leave as a crash would: calls are cancelled, nothing more is recorded."""
        self.journal.term.lost = True  # the lease is given back: a call that goes on in a thread may not act any more
        self._advice.ledgers.clear()
        if self._side.running or self._side.deferred:
            self._side.stop()
        if self.calls.under_way:
            self.calls.stop()
        if self._commands.waiting or self._commands.applied:
            self._commands.stop()

    async def drained(self) -> None:
        """Wait briefly until cancelled calls have really ended."""
        calls = [launch.task for launch in self.calls.under_way.values() if launch.task is not None]
        tasks = [task for task in (*calls, *self._side.running.values()) if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    # -- Stage by stage -------------------------------------------------------------------------------------------

    async def _before_calls(self, stepper: Stepper) -> None:
        """Commit what follows without a call, and wait until calls may begin.

        No intent is recorded before that: a crash between two stages leaves no unmade call in doubt.
        """
        self._decide(calls=False)
        await self.commit()
        if self._side.deferred:
            self._side.start_deferred()
        await self._wait_for(stepper, EXECUTOR)

    async def _after_calls(self, stepper: Stepper) -> None:
        """Commit the outcomes of calls, and wait until reflection may begin."""
        await self._collect()
        await self.commit()
        await self._wait_for(stepper, REFLECTOR)

    async def _wait_for(self, stepper: Stepper, stage: str) -> None:
        """Wait until a stage may begin, and apply commands meanwhile; a run at rest does not wait."""
        while not (self.state.rest or self.state.waiting or self.state.stopped or self._broken):
            if stepper.allows(stage, self._wake):
                break
            await self._wake.wait()
            self._wake.clear()
            if self._commands.waiting:
                self._apply_commands()
                await self.commit()
                if self._check_calls:
                    self._cancel_unwanted()
        if self.calls.progress or self._outcomes:
            self._wake.set()  # the waiting above consumed it

    # -- One turn -------------------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        """Record outcomes since the last turn, and apply commands."""
        if self._outcomes or self.calls.progress:
            self._record_outcomes()
        if self._commands.waiting:
            self._apply_commands()
        if self._made:  # first on record, then in place, and only then the consequences
            await self.commit()
            await place(self._parts.clock, self.state, self.workspace, self._made, just_made=True)
            self._made = {}

    def _record_outcomes(self) -> None:
        """Record outcomes of calls and questions, and reports of tools."""
        now = self._parts.clock.now()
        if self.calls.progress:
            self.calls.record_progress(now)
        while self._outcomes:
            outcome = self._outcomes.popleft()
            if isinstance(outcome, Answered):
                self._advice.record(outcome, now)
            else:
                self._record_outcome(outcome, now)

    def _record_outcome(self, outcome: Outcome, now: float) -> None:
        launch = self.calls.ended(outcome.step, outcome.attempt)
        phases = LOOKED if outcome.look else CALLED if outcome.called else NOT_CALLED
        if self.state.current(outcome.step, outcome.attempt, *phases) is None:
            return  # of an older attempt
        if outcome.added:
            outcome = self._adding(outcome)
        if outcome.blobs:
            for name, data in outcome.blobs.items():
                self.journal.keep(name, data)
        for event in outcome.events:
            self._record(event, now)
        if launch is not None and launch.files:
            self._place_later(launch.files)

    def _adding(self, outcome: Outcome) -> Outcome:
        """Return a success with the steps that its call added; a failed check if they do not fit the plan (M3)."""
        *made, done = outcome.events
        assert isinstance(done, ev.StepSucceeded)
        steps, faults = additions(self.state, outcome.added, self._parts.specs, again=True)
        if self._parts.performer.scrub.active:
            faults += secrets_in(Plan(steps=tuple(steps)), self._parts.performer.scrub)
        if not faults:
            done = msgspec.structs.replace(done, course=Course(steps=tuple(steps)))
            return msgspec.structs.replace(outcome, events=[*made, done])
        told = one_by_one(fault.told for fault in faults[:MAX_FAULTS])
        call = self.state.tracks[done.step].call
        failed = ev.StepFailed(
            done.step, done.attempt, from_code("CHECK_FAILED", "ADD_REFUSED", faults=told), done.elapsed, True, True,
            None, done.tokens, done.cost, looks=int(call is not None and call.verifiable), waited=done.waited,
        )  # fmt: skip
        return Outcome(outcome.step, outcome.attempt, [failed])

    def _place_later(self, paths: Collection[str]) -> None:
        """Put files of steps that just succeeded in their place before anything else follows."""
        drafts = self.state.drafts
        self._made.update((path, drafts[path]) for path in paths if path in drafts)

    def _apply_commands(self) -> None:
        self._place_later(self._commands.apply_all())
        self._check_calls = True

    def _decide(self, *, calls: bool = True) -> list[Launch]:
        """Decide and record until only acting is left; return the calls to start, if any may begin."""
        launches: list[Launch] = []
        again = True
        while again:
            now = self._parts.clock.now()
            again = False
            for action in decide(self.state, self._parts.specs, now):
                if calls or not isinstance(action, Call):
                    again = self._start_action(action, now, launches) or again
        if self.state.stopped and self._advice.ledgers:
            self._advice.close_ledgers()
        return launches

    def _start_action(self, action: Action, now: float, launches: list[Launch]) -> bool:
        """Begin an action; True if the state changed, so that there may be more to decide."""
        match action:
            case Call():
                return self.calls.intend(action, now, launches)
            case Show():  # the call needs approval: the intent ends at the gate
                return self.calls.intend(gated_call(self.state, action.step), now, launches)
            case Note():
                if self._advice.ledgers and isinstance(action.events[-1], ev.Done | ev.Waiting):
                    self._advice.settle()  # the costs of questions come before the run's end
                    return False
                for event in action.events:
                    self._record(event, now)
                return True
            case VerifyEffect():
                self._side.defer(("verify", action.step, action.attempt), self.calls.look(action))
                return False
            case Ask():
                self._side.defer((action.question, action.step, action.seq), self._advice.ask(action))
                return False

    # -- Waiting --------------------------------------------------------------------------------------------------

    async def _sleep(self) -> None:
        """Wait for an outcome, a command, or the end of a backoff."""
        timer, due = None, self.state.next_timer() if self.state.timers else None
        if due is not None and not self.state.paused:
            seconds = due - self._parts.clock.now()
            if seconds <= 0:
                return
            timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _side_task_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._broken = error
        self._wake.set()

    def _cancel_unwanted(self) -> None:
        """Cancel calls and questions of a cancelled run or of skipped steps."""
        self._check_calls = False
        if self.state.stopped == "RUN_CANCELLED":
            self._advice.settle()
        self.calls.cancel_unwanted()
