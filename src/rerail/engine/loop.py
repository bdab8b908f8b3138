"""The one loop: absorb what happened, decide, write it down, act (SPEC E1: durable before anything follows from it).

Rules of this file:
- Intents are committed before their calls start; a result and the intents that follow from it share a commit.
- The loop keeps nothing that matters: what it holds besides the state are calls under way.
- It ends when the run is at rest, when only a person can move it, or when it may not write any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rerail.core import events as ev
from rerail.core.codec import decode, encode
from rerail.core.command import Command, handle
from rerail.core.commands import Faulty, FileDamage, Refusal
from rerail.core.decide import Action, Ask, Call, Look, Note, Show, decide, gated_call
from rerail.core.events import Event, Record
from rerail.core.fold import evolve
from rerail.core.state import State
from rerail.core.tools import Runs, ToolSpec
from rerail.core.track import Phase, Track, call_digest, signature
from rerail.core.values import unpack
from rerail.core.verdict import run_status
from rerail.engine.arguments import (
    Before,
    InputsNotLoaded,
    files_damaged,
    gate_opened,
)
from rerail.engine.asking import Answered, Inquiry, conclusions
from rerail.engine.calls import Calls, baseline
from rerail.engine.failures import from_code
from rerail.engine.files import Wanted, damaged, files_read, place
from rerail.engine.lease_term import LeaseTerm
from rerail.engine.limits import Limits, wanted
from rerail.engine.outputs import Contents, Gone
from rerail.engine.pace import EXECUTOR, REFLECTOR, Pace
from rerail.engine.perform import GRACE, Launch, Outcome, Performer
from rerail.engine.refusals import error_for
from rerail.errors import RerailError, StoreError
from rerail.i18n import clipped, tell, words_of
from rerail.mind.questions import consulted
from rerail.ports import (
    Answer,
    Batch,
    Clock,
    Conflict,
    Fenced,
    Lease,
    Ledger,
    Mind,
    Notifier,
    Store,
    Tool,
    Unavailable,
    Unusable,
    View,
)

T = TypeVar("T")
# The phases that wait for an outcome: of a call, of what comes before one, of a look.
CALLED, NOT_CALLED, LOOKED = (Phase.RUNNING,), (Phase.PENDING, Phase.BACKOFF), (Phase.DOUBT, Phase.PENDING)
MAX_FAULTS = 50  # of a change that was refused, in its event; whoever asked is told all of them
STALLED = 1.0  # seconds since the store confirmed the lease, after which it is asked again before a call
MANY_RECORDS = 1_000  # below that a pause of the garbage collector is not worth it
BREATH = 256  # calls that are started in one go
MAX_LOG = 8_000  # characters of log that one event holds


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


@dataclass(slots=True)
class Host:
    """What every loop of an engine shares."""

    store: Store
    clock: Clock
    tools: Mapping[str, Tool]
    specs: Mapping[str, ToolSpec]
    performer: Performer
    mind: Mind | None
    mind_timeout: float
    workspaces: Callable[[str], Path]
    reconnect_seconds: float
    memory: int
    limits: Limits
    history_window: tuple[int, int] = (5, 12)
    notifier: Notifier | None = None  # who tells people that a run ended or waits
    observe: Callable[[Record], None] | None = None  # told of each event once it is durable
    silent_is_dead: bool = False  # a supervisor sees to it that an owner that falls silent acts no more

    def runs(self, tool: str) -> Runs:
        """Where calls of a tool are at work; of one that is not here anything may be true."""
        found, elsewhere = self.tools.get(tool), self.performer.elsewhere
        away = elsewhere is not None and not elsewhere.here
        if found is None or (away and elsewhere is not None and elsewhere.takes(found)):
            return "request"
        return found.spec.runs


class Predecessor(StrEnum):
    """What is known of the process that drove a run before, and so of its calls (contract E11)."""

    LEFT = "left"  # it gave the run back: it may live, and threads of it go on
    DEAD = "dead"  # its process is gone
    SILENT = "silent"  # it was not heard of, and may go on at any moment


class Ended(StoreError):
    """The loop ended before it could take a command; the next owner has to."""


class RunLoop:
    """Drives one run until it is at rest or waits for a person."""

    def __init__(self, host: Host, lease: Lease, state: State) -> None:
        self.host, self.lease, self.state = host, lease, state
        self.term = LeaseTerm(host.clock, state.run)
        self._scrub = host.performer.scrub
        self.contents = Contents(host.store, host.memory)
        self.calls = Calls(
            host, state, self.contents, self.term, lease.fence,
            workspace=lambda: self.workspace, hold=self._hold, hear=self._hear,
        )  # fmt: skip
        self.specs = host.specs
        self.begun = state.seq  # what this loop found there
        self.predecessor = Predecessor.LEFT
        self._seq = state.seq  # the last sequence number that is durable
        self._rows: list[tuple[float, bytes]] = []
        self._unseen: list[Record] = []
        self._status = ""
        self._wake = asyncio.Event()
        self._outcomes: deque[Outcome | Answered] = deque()
        self._commands: deque[tuple[Command, asyncio.Future[None]]] = deque()
        self._answers: list[tuple[asyncio.Future[None], RerailError | None]] = []
        self._launched: dict[str, Launch] = {}
        self._tasks: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._ledgers: dict[tuple[str, str, int], Ledger] = {}  # of the questions under way
        self._due: dict[tuple[str, str, int], Coroutine[Any, Any, None]] = {}  # begins once all is durable
        self._probed: dict[tuple[str, int], Any] = {}
        self._inspected: dict[tuple[str, int], list[FileDamage]] = {}  # what is wrong with the files that a step reads
        self._made: dict[str, ev.FileMade] = {}  # files that were just put on record, still where they were written
        self._progress: dict[tuple[str, bool], ev.StepProgress] = {}
        self._full: list[ev.StepProgress] = []  # what tools logged, in events that hold no more
        self._check_launched = False
        self._broken: BaseException | None = None
        self._leaving = False
        self._folder: Path | None = None
        self.snapshot: View | None = None  # told of the state, once it is durable
        self.pace: Pace | None = None  # who says when the next stage may begin; None: at once
        self.ended = False

    # -- From outside ---------------------------------------------------------------------------------------------

    def note(self, *events: Event) -> None:
        """Write down events before the loop starts, or between its turns."""
        now = self.host.clock.now()
        steps = sum(len(event.plan.steps) for event in events if isinstance(event, ev.PlanAccepted))
        with gc_paused() if steps > MANY_RECORDS else contextlib.nullcontext():
            for event in events:
                self._record(event, now)

    async def command(self, command: Command) -> None:
        """Put a command before the loop; returns once it is durable, raises if it is refused."""
        if self.ended:
            raise Ended(tell("refuse.run.not_driven", run=self.state.run))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commands.append((command, future))
        self._wake.set()
        await future

    def apply(self, command: Command) -> None:
        """Apply a command before the loop starts; `Refusal` or `Faulty` if the state does not allow it."""
        handled = handle(self.state, self.specs, command)
        self.calls.blobs.update(handled.blobs)
        self.note(*handled.events)

    @property
    def workspace(self) -> Path:
        """The folder for the run's files; a follow-up works in its parent's."""
        if self._folder is None or self._folder.name != self.state.home:  # asked for with every call
            self._folder = self.host.workspaces(self.state.home)
        return self._folder

    @property
    def _limited(self) -> bool:
        policy = self.state.policy
        return bool(policy.tool_concurrency or policy.provider_concurrency)

    @property
    def durable(self) -> bool:
        """Whether everything the state says has been written down for good."""
        return not self._rows

    async def commit(self) -> None:
        """Make what was noted durable without driving the run on."""
        await self._commit()

    async def commit_quietly(self) -> None:
        """The same, where another error is already on its way."""
        with contextlib.suppress(RerailError):
            await self._commit()

    def broken(self, error: BaseException) -> None:
        """Stop as soon as possible: the run may not be written any more."""
        self._broken = error
        self._lose()
        self._wake.set()

    def _lose(self) -> None:
        self.term.lose({step: launch.task is not None for step, launch in self._launched.items()})

    def leave(self) -> None:
        """Start nothing more, and end once the calls under way have: somebody else goes on from there."""
        self._leaving = True
        self._wake.set()

    async def drive(self) -> None:
        """Run until the run is at rest, waits for a person, or may not be written any more."""
        try:
            await place(self.host.clock, self.state, self.workspace, self.state.drafts)
            while True:
                if self._broken is not None:
                    raise StoreError(
                        tell("refuse.run.broken", run=self.state.run, broken=self._broken)
                    ) from self._broken
                await self._take_in()
                if self._leaving:
                    if await self._left():
                        return
                    continue
                if self.pace is not None:
                    await self._before_calls(self.pace)
                if len(self.state.ready) > MANY_RECORDS:
                    with gc_paused():
                        launches = self._advance()
                else:
                    launches = self._advance()
                await self._commit()
                if launches and self.term.age > STALLED:
                    await self._hold()
                self._begin_due()
                if len(launches) > BREATH:
                    await self._begin_many(launches)
                else:
                    for launch in launches:
                        self.host.performer.launch(launch, self._deliver)
                if self._check_launched:
                    self._cancel_unwanted()
                if (self.state.rest is not None or self.state.waiting) and not self._commands:
                    return
                if not self._outcomes and not self._commands:
                    await self._sleep()
                if self.pace is not None:
                    await self._after_calls(self.pace)
        finally:
            self.ended = True
            self._stop()

    async def _left(self) -> bool:
        """Whether the calls under way are over, and this loop may leave the run to somebody else."""
        await self._commit()
        for key, task in self._tasks.items():
            if key[0] == "verify":
                task.cancel()  # the next owner looks; it may take as long as a call does
        if not self._launched and not self._tasks:
            return True
        if not self._outcomes and not self._commands:
            await self._sleep()
        return False

    async def _begin_many(self, launches: list[Launch]) -> None:
        """Start very many calls, without keeping everybody else on the loop waiting."""
        for first in range(0, len(launches), BREATH):
            with gc_paused():
                for launch in launches[first : first + BREATH]:
                    self.host.performer.launch(launch, self._deliver)
            await asyncio.sleep(0)

    def _stop(self) -> None:
        """Leave as a crash would: calls are cancelled, nothing more is recorded."""
        self._ledgers.clear()
        for task in self._tasks.values():
            task.cancel()
        for work in self._due.values():
            work.close()
        for launch in self._launched.values():
            launch.ended = True
            self._over(launch)
            if launch.ctx is not None:
                launch.ctx.cancelled.set()
            if launch.task is not None:
                launch.task.cancel()
        for _, future in self._commands:
            if not future.done():
                future.set_exception(Ended(tell("refuse.run.stopped_before")))
        self._settle_commands(StoreError(tell("refuse.run.action_not_recorded")))

    async def drained(self) -> None:
        """Wait, a little, until cancelled calls are really over."""
        tasks = [
            launch.task for launch in self._launched.values() if launch.task is not None and not launch.task.done()
        ]
        tasks += [task for task in self._tasks.values() if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    # -- At somebody's pace ---------------------------------------------------------------------------------------

    async def _before_calls(self, pace: Pace) -> None:
        """Make durable what follows without a call, and wait until calls may begin.

        No intent is written before that: whoever dies between two stages leaves no call in doubt that was not made.
        """
        again = True
        while again:
            now = self.host.clock.now()
            again = False
            for action in decide(self.state, self.specs, now):
                if not isinstance(action, Call):
                    again = self._take_up(action, now, []) or again
        await self._commit()
        self._begin_due()
        await self._stand(pace, EXECUTOR)

    async def _after_calls(self, pace: Pace) -> None:
        """Make durable what calls came to, and wait until somebody may think about it."""
        await self._take_in()
        await self._commit()
        await self._stand(pace, REFLECTOR)

    async def _stand(self, pace: Pace, stage: str) -> None:
        """Wait until the next stage may begin; people are heard meanwhile. What is over waits for nobody."""
        while not (self.state.rest or self.state.waiting or self.state.stopped or self._broken):
            if pace.lets(stage, self._wake):
                break
            await self._wake.wait()
            self._wake.clear()
            if self._commands:
                self._apply_commands()
                await self._commit()
                if self._check_launched:
                    self._cancel_unwanted()
        if self._progress or self._outcomes:
            self._wake.set()  # it was heard, and not yet written down

    # -- One turn -------------------------------------------------------------------------------------------------

    async def _take_in(self) -> None:
        """Write down what happened and what people want."""
        self._absorb()
        self._apply_commands()
        if self._made:  # on record first, then in place, and only then whatever follows
            await self._commit()
            await place(self.host.clock, self.state, self.workspace, self._made, just_made=True)
            self._made = {}

    def _absorb(self) -> None:
        """Write down what the calls and questions under way came to."""
        if not self._outcomes and not self._progress:
            return
        now = self.host.clock.now()
        spoken, self._full = [*self._full, *self._progress.values()], []
        for progress in spoken:
            if self.state.current(progress.step, progress.attempt, Phase.RUNNING):
                self._record(progress, now)
        self._progress.clear()
        while self._outcomes:
            outcome = self._outcomes.popleft()
            if isinstance(outcome, Answered):
                self._read_answer(outcome, now)
            else:
                self._take(outcome, now)

    def _take(self, outcome: Outcome, now: float) -> None:
        launch = self._launched.get(outcome.step)
        if launch is not None and launch.attempt == outcome.attempt:
            del self._launched[outcome.step]
            self._over(launch)
        phases = LOOKED if outcome.look else CALLED if outcome.called else NOT_CALLED
        if self.state.current(outcome.step, outcome.attempt, *phases) is None:
            return  # a late word from an older attempt
        if outcome.blobs:
            self.calls.blobs.update(outcome.blobs)
            for name, data in outcome.blobs.items():
                self.contents.remember(name, data)
        for event in outcome.events:
            self._record(event, now)
        if launch is not None and launch.files:
            self._to_place(launch.files)

    def _to_place(self, paths: Collection[str]) -> None:
        """Files of steps that just succeeded, by their own word or a person's: in place before all else."""
        drafts = self.state.drafts
        self._made.update((path, drafts[path]) for path in paths if path in drafts)

    def _over(self, launch: Launch) -> None:
        """A call is under way no longer."""
        self._probed.pop((launch.step.id, launch.attempt), None)
        if launch.counts:
            self.host.limits.give_back(launch.counts)
            launch.counts = None

    def _apply_commands(self) -> None:
        while self._commands:
            command, future = self._commands.popleft()
            try:
                handled = handle(self.state, self.specs, command)
            except Refusal as refusal:
                self._answers.append((future, error_for(refusal)))
                continue
            except Faulty as faulty:
                said = tuple(clipped(fault.told, 1000) for fault in faulty.faults[:MAX_FAULTS])
                self._record(ev.PlanRejected(command.by, said, command.action), self.host.clock.now())
                self._answers.append((future, error_for(faulty)))
                continue
            self.calls.blobs.update(handled.blobs)
            self.note(*handled.events)
            self._to_place([file.path for file in command.files])
            self._answers.append((future, None))
            self._check_launched = True

    def _advance(self) -> list[Launch]:
        """Decide and write down until there is nothing to do but act; returns the calls to start."""
        launches: list[Launch] = []
        while True:
            now = self.host.clock.now()
            again = False
            for action in decide(self.state, self.specs, now):
                again = self._take_up(action, now, launches) or again
            if not again:
                break
        if self.state.stopped:
            for ledger in self._ledgers.values():
                ledger.closed = True
        return launches

    def _take_up(self, action: Action, now: float, launches: list[Launch]) -> bool:
        """Begin an action; True if the state changed so that there may be more to decide."""
        match action:
            case Call():
                return self._intend(action, now, launches)
            case Show():  # nobody agreed to its call: the intent ends at the gate
                return self._intend(gated_call(self.state, action.step), now, launches)
            case Note():
                if self._ledgers and isinstance(action.events[-1], ev.Done | ev.Waiting):
                    self._settle_questions()  # what they cost belongs to the run: first this, then its rest
                    return False
                for event in action.events:
                    self._record(event, now)
                return True
            case Look():
                self._spawn(("verify", action.step, action.attempt), self._look(action))
                return False
            case Ask():
                self._spawn((action.question, action.step, action.seq), self._ask(action))
                return False

    def _record(self, event: Event, now: float) -> None:
        seq = self._seq + len(self._rows) + 1
        data = encode(event)
        if self._scrub and self._scrub.found(data) is not None:
            data = self._scrub.data(data)
            event = decode(data)  # what is known of a run is what its history says
        evolve(self.state, event, now, seq)
        self._rows.append((now, data))
        if self.host.observe is not None:
            self._unseen.append(Record(self.state.run, seq, now, event))

    async def _commit(self) -> None:
        """Make everything written down durable; only then may anything follow from it."""
        if self._rows:
            status = str(run_status(self.state))
            batch = Batch(
                self.state.run, self._seq, self._rows, self.lease.fence, self.calls.blobs,
                status if status != self._status else "", self.state.objective if not self._seq else "",
            )  # fmt: skip
            await self._append(batch)
            self._seq += len(self._rows)
            self._rows, self.calls.blobs, self._status = [], {}, status
            if self.snapshot is not None:
                self.snapshot.write(self.state)
            if self.host.observe is not None:
                seen, self._unseen = self._unseen, []
                for record in seen:
                    self.host.observe(record)
        if self._answers:
            self._settle_commands(None)

    async def _append(self, batch: Batch) -> None:
        asked = self.term.asked()
        try:
            await self._patiently(lambda: self.host.store.append(batch))
            self.term.confirmed(asked)
        except (Conflict, Fenced) as error:
            self._lose()
            code = "LEASE_LOST" if isinstance(error, Fenced) else "SEQ_CONFLICT"
            raise StoreError(tell("refuse.run.taken_over", run=batch.run), code) from error

    async def _hold(self) -> None:
        """Make sure that the run is still ours: a process that was frozen may wake up after it was replaced (E11)."""
        asked = self.term.asked()
        try:
            await self._patiently(lambda: self.host.store.renew(self.lease, self.host.clock.now()))
            self.term.confirmed(asked)
        except Fenced as error:
            self._lose()
            raise StoreError(tell("refuse.run.taken_over", run=self.state.run), "LEASE_LOST") from error

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Ask the store, again and again for `store.reconnect_seconds` while it is out of reach (E4)."""
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        delay = 0.05
        while True:
            try:
                return await work()
            except Unusable as error:
                raise StoreError(
                    tell("refuse.run.stopped_by_store", run=self.state.run, error=error), error.code
                ) from error
            except Unavailable as error:
                now = loop.time()
                deadline = now + self.host.reconnect_seconds if deadline is None else deadline
                if now >= deadline:
                    raise StoreError(
                        tell("refuse.run.stopped_out_of_reach", run=self.state.run, error=error)
                    ) from error
                await asyncio.sleep(min(delay, max(0.0, deadline - now)))
                delay = min(delay * 2, 2.0)

    def _settle_commands(self, problem: RerailError | None) -> None:
        for future, refusal in self._answers:
            if future.done():
                continue
            if problem is not None or refusal is not None:
                future.set_exception(problem or refusal or StoreError(tell("refuse.run.not_recorded")))
            else:
                future.set_result(None)
        self._answers = []

    async def _sleep(self) -> None:
        """Wait for an outcome, a command, or the end of a backoff."""
        timer, due = None, self.state.next_timer()
        if due is not None and not self.state.paused:
            seconds = due - self.host.clock.now()
            if seconds <= 0:
                return
            timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _deliver(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._wake.set()

    def _cancel_unwanted(self) -> None:
        """Cancel calls that nobody waits for any more: the run was cancelled, or their step skipped."""
        self._check_launched = False
        if self.state.stopped == "RUN_CANCELLED":
            self._settle_questions()
        for launch in list(self._launched.values()):
            if self.state.stopped == "RUN_CANCELLED":
                self.host.performer.cancel(launch, "RUN_CANCELLED")
            elif self.state.current(launch.step.id, launch.attempt, Phase.RUNNING) is None:
                self.host.performer.cancel(launch, "SKIPPED_LIVE")

    # -- Intents --------------------------------------------------------------------------------------------------

    def _intend(self, action: Call, now: float, launches: list[Launch]) -> bool:
        """Write down the intent to call; True if the step failed before its call, or waits at its gate, instead."""
        track = self.state.tracks[action.step]
        tool, spec = self.host.tools.get(action.tool), self.specs.get(action.tool)
        if tool is None or spec is None:
            return self._fail_before(track, from_code("TOOL_UNKNOWN", tool=action.tool), now)
        try:
            args, own = self.calls.args(track, action, spec)
            launch = self.calls.launch(track, action.attempt, tool, spec, args)
            if self.state.filed and not self._files_are_sound(track):
                return False  # they are being looked at
        except InputsNotLoaded as wait:
            self._spawn(("fetch", track.id, track.attempt), self._fetch(track, wait.names))
            return False
        except Before as problem:
            self.calls.fetched.pop(track.id, None)
            return self._fail_before(track, problem.error, now)
        if done := self.state.repeats(track, spec, args, launch.effect):
            return self._fail_before(track, from_code("ONCE_REPEATED", step=done), now)
        agreed = ""
        if track.step.confirm:
            shown = self._scrub.value(args) if self._scrub else args  # secrets by reference
            agreed = call_digest(action.tool, signature(shown), self.state.files(track))
            if not self.state.agrees(track, agreed):
                self.calls.fetched.pop(track.id, None)
                self._record(gate_opened(self.state, track, action, shown, self.calls.blobs), now)
                return True
        if spec.probes:
            seen = (track.id, action.attempt)
            known = baseline(track, action.tool, args)
            if known is not None:
                launch.before = known[0]
            elif seen not in self._probed:
                self._spawn(("probe", *seen), self._probe(launch))
                return False
            else:
                launch.before = self._probed[seen]
        if self._limited:
            launch.counts = wanted(self.state.policy, spec)
            if not self.host.limits.take(launch.counts, self._wake):
                return False  # other runs of this engine use it up; we are woken when there is room
        self.calls.fetched.pop(track.id, None)
        launch.reserves = action.reserves
        self._record(self.calls.intent(track, action, launch, own, agreed), now)
        self._launched[track.id] = launch
        launches.append(launch)
        return False

    def _files_are_sound(self, track: Track) -> bool:
        """Whether the files that a step reads were looked at, and are as their steps left them (T1).

        `Before` if one is not: the step that made it runs again, as for any other output that is gone.
        """
        wanted = files_read(self.state, track)
        if not wanted:
            return True
        found = self._inspected.pop((track.id, track.attempt), None)
        if found is None:
            self._spawn(("files", track.id, track.attempt), self._inspect(track, wanted))
            return False
        if found:
            raise Before(files_damaged(found, self.state.parent))
        return True

    async def _inspect(self, track: Track, wanted: list[Wanted]) -> None:
        with self.host.clock.external():
            found = await asyncio.to_thread(damaged, wanted, self.workspace, self.state.drafts)
        self._inspected[track.id, track.attempt] = found

    def _fail_before(self, track: Track, error: ev.Error, now: float) -> bool:
        self._record(ev.StepFailed(track.id, track.attempt, error, called=False), now)
        return True

    def _hear(self, event: ev.StepProgress) -> None:
        """What a tool says while it works. Of progress the latest word counts; log lines that come at once are one."""
        place = (event.step, event.log)
        before = self._progress.get(place)
        if event.log and before is not None:
            both = f"{before.message}\n{event.message}"
            if len(both) <= MAX_LOG:
                event = ev.StepProgress(event.step, event.attempt, both, None, True)
            else:
                self._full.append(before)
        self._progress[place] = event
        self._wake.set()

    # -- Work beside the calls ------------------------------------------------------------------------------------

    def _spawn(self, key: tuple[str, str, int], work: Coroutine[Any, Any, None]) -> None:
        """Begin a piece of work after the next commit, unless it is under way already."""
        if key in self._tasks or key in self._due:
            work.close()
        else:
            self._due[key] = work

    def _begin_due(self) -> None:
        """Looks and questions follow from events too: whoever may not write asks nobody (E1, T7)."""
        due, self._due = self._due, {}
        for key, work in due.items():
            self._tasks[key] = task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(partial(self._work_done, key))

    def _work_done(self, key: tuple[str, str, int], task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
        self._wake.set()

    async def _fetch(self, track: Track, names: dict[str, str]) -> None:
        """Bring outputs from the store; one that is gone fails the step, and its producer may mend that."""
        found = self.calls.fetched.setdefault(track.id, {})
        for name, producer in names.items():
            try:
                found[name] = await self._content(name)
            except Gone as gone:
                error = from_code("ARTIFACT_GONE", step=producer, reason=gone.reason, producer=producer)
                event = ev.StepFailed(track.id, track.attempt, error, called=False)
                self._outcomes.append(Outcome(track.id, track.attempt, [event], called=False))
                self.calls.fetched.pop(track.id, None)
                return

    async def _probe(self, launch: Launch) -> None:
        self._probed[launch.step.id, launch.attempt] = await self.host.performer.looks.probe(launch)

    async def _look(self, action: Look) -> None:
        track = self.state.tracks[action.step]
        call = track.call
        if call is None:
            return
        tool, spec = self.host.tools.get(call.tool), self.specs.get(call.tool)
        if tool is None or spec is None:
            event = ev.StepVerified(
                action.step, action.attempt, "unknown", reason=tell("reason.no_tool", tool=call.tool), looks=1
            )
            self._deliver(Outcome(action.step, action.attempt, [event], look=True))
            return
        try:
            launch = await self._look_with(track, action.attempt, tool, spec, call)
        except (Gone, Before) as problem:
            event = ev.StepVerified(action.step, action.attempt, "unknown", reason=words_of(problem), looks=1)
            self._deliver(Outcome(action.step, action.attempt, [event], look=True))
            return
        launch.before = track.effects.before if track.effects is not None else call.before
        launch.patience = self.calls.until_settled(track, launch)
        self._deliver(await self.host.performer.look_again(launch))

    async def _look_with(self, track: Track, attempt: int, tool: Tool, spec: ToolSpec, call: ev.StepStarted) -> Launch:
        """What a look needs: the arguments of the call, and those of the look itself, wherever they are kept."""
        args = call.args
        if args is None:
            data = await self._content(call.args_blob) if call.args_blob else None
            args = unpack(data) if data is not None else self.state.template(track).value
        while True:
            try:
                return self.calls.launch(track, attempt, tool, spec, args)
            except InputsNotLoaded as wait:
                found = self.calls.fetched.setdefault(track.id, {})
                for name in wait.names:
                    found[name] = await self._content(name)

    async def _content(self, name: str) -> bytes:
        return await self._patiently(lambda: self.contents.get(name))

    async def _ask(self, action: Ask) -> None:
        mind = self.host.mind
        if mind is None:
            self._outcomes.append(Answered(action, Answer(failed=tell("reason.nobody"))))
            return
        question = await Inquiry(self.state, self.specs, self._content, self.contents.peek).question(
            action, await self._latest(), self.host.history_window[0]
        )
        key = (action.question, action.step, action.seq)
        self._ledgers[key] = question.ledger
        try:
            answer = await self.host.performer.ask(mind, question, self.host.mind_timeout)
        except asyncio.CancelledError:
            if not self._cut_off(key):
                raise
            return
        if self._ledgers.pop(key, None) is not None:  # else it was given up meanwhile
            last = question.attempts[-1]["args"] if question.attempts else None
            self._outcomes.append(Answered(action, answer, last))

    async def _latest(self) -> list[Record]:
        """The end of the history, as far as a mind gets to see it."""
        high = self.host.history_window[1]
        if not high:
            return []
        rows = await self._patiently(lambda: self.host.store.read(self.state.run, max(0, self._seq - high), high))
        return [Record(self.state.run, row.seq, row.at, decode(row.data)) for row in rows]

    def _settle_questions(self) -> None:
        """See to questions that are under way while the run comes to an end, so that what they cost is recorded.

        Where a budget stopped the run, or somebody paused it, they end as calls of tools do: nothing new is asked, and
        what was asked is waited for. Where nobody wants the answer any more they are cut off.
        """
        waits = self.state.paused if not self.state.stopped else self.state.stopped != "RUN_CANCELLED"
        loop = asyncio.get_running_loop()
        for key, ledger in list(self._ledgers.items()):
            task = self._tasks.get(key)
            if waits:
                if not ledger.watched:  # however stubborn whoever was asked is
                    ledger.watched = True
                    loop.call_later(self.host.mind_timeout + GRACE, self._cut_off, key)
            elif task is None:
                self._cut_off(key)
            elif not task.cancelling():
                task.cancel()
                loop.call_later(GRACE, self._cut_off, key)

    def _cut_off(self, key: tuple[str, str, int]) -> bool:
        """Write down what is known of a question that nobody waits for any longer; False if that was done before."""
        ledger = self._ledgers.pop(key, None)
        if ledger is not None:
            self._outcomes.append(Answered(Ask(*key), Answer(None, list(ledger.calls)), cut=True))
            self._wake.set()
        return ledger is not None

    def _read_answer(self, said: Answered, now: float) -> None:
        action, answer = said.action, said.answer
        name = self.host.mind.name if self.host.mind is not None else ""
        by = name if name not in ("", "rules") else "mind"  # no mind passes for the rules
        for call in answer.consultations:
            self._record(consulted(action.question, action.step, call), now)
        if said.cut:
            self._record(ev.Declined(action.question, action.step, tell("reason.cut_off"), late=True), now)
            return
        events, large = conclusions(self.state, self.specs, said, by, now)
        for name, data in large.items():
            self.calls.blobs[name] = data
            self.contents.remember(name, data)
        for event in events:
            self._record(event, now)
