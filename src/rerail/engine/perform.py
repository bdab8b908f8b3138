"""Performing actions: a call, a look, a question. What the world answers becomes an event; nothing here raises.

Rules of this file:
- The only broad ``except`` of the project: whatever a tool or a mind does is data.
- An answer is believed only after its checks: it is JSON, not too large, does not look like an error, meets the
  step's postconditions, and its effect is there where somebody can look.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.codes import NO_ANSWER, Category
from rerail.core.events import Error, Event
from rerail.core.outcome import Case, Certainty, Follows, Saw, as_declared, follows
from rerail.core.pipeline import media_of
from rerail.core.plan import Effect, Produced, Step, Trust
from rerail.core.reserve import FREE, Need
from rerail.core.scrub import Scrub
from rerail.core.suspect import suspect
from rerail.core.tools import Runs, ToolSpec
from rerail.core.upstream import singled
from rerail.core.values import INLINE, NotJson, Packed, pack, unpack
from rerail.engine.failures import Failure, Patterns, from_code, from_exception, from_returned, says_failed
from rerail.engine.files import Seen, look, unmet, written_to
from rerail.engine.lease_term import LeaseTerm
from rerail.engine.looks import LOOK_TIMEOUT, NOT_KNOWN, Looker, Patience, Sight
from rerail.errors import NotDone, RerailError, ToolError
from rerail.i18n import about, clipped, one_by_one, say, tell
from rerail.mind import words
from rerail.ports import Answer, Clock, Executor, Mind, NotBegun, Question, Tool, Unanswered
from rerail.workspace import Outside, inside, put_aside, stamp

GRACE = 2.0  # seconds that a cancelled call gets to clean up before it is left behind
MOST_OVER = 256  # calls that are over and still watched, at least; else they would be looked for too often


class Launch(msgspec.Struct, eq=False):
    """One attempt, ready to be called."""

    step: Step
    attempt: int
    tool: Tool
    spec: ToolSpec
    args: dict[str, Any]
    ctx: Any
    timeout: float
    effect: Effect = Effect.REPEATABLE
    before: Any = None
    workspace: Path | None = None  # where the files are that the step produces, if it does
    staged: str = ""  # the folder in it where this attempt alone writes them
    leftover: str = ""  # the folder of the attempt before
    verify_args: dict[str, Any] | None = None
    counts: Mapping[str, int] | None = None  # the limits that it counts against, of all runs
    ended: bool = False  # a late answer after this changes nothing
    cancelled: str = ""  # why it was cancelled, if it was
    started: float = 0.0
    patience: Patience = Patience()  # how long an absence of its effect is waited for
    away: bool = False  # it is made elsewhere
    term: LeaseTerm | None = None  # how sure its process is that it owns the run
    hold: Callable[[], Awaitable[None]] | None = None  # asks the store, if that is not sure
    task: asyncio.Task[None] | None = None
    deliver: Callable[[Outcome], None] | None = None
    answer: tuple[Any, Packed] | None = None  # what it said, while its effect is being verified
    files: dict[str, Seen] | None = None  # what it left in the workspace
    reserves: Need = FREE  # what it may spend, in a run with a cap
    made: bool = False  # the tool may have been called
    key_until: float = 0.0  # when the service forgets the key that a lost call is repeated under; 0: it is no such call

    @property
    def runs(self) -> Runs:
        """Where it is at work."""
        return "request" if self.away else self.spec.runs

    @property
    def verifiable(self) -> bool:
        """Whether its effect can be looked at."""
        return self.spec.verifiable or self.step.verify is not None


class Outcome(msgspec.Struct, eq=False, gc=False):
    """What an attempt came to: the events to write, and the contents they name."""

    step: str
    attempt: int
    events: list[Event]
    blobs: dict[str, bytes] | None = None
    called: bool = True  # false: the step failed before its tool was called
    look: bool = False  # it is what a look found, whatever the step waits for


class Deadlines:
    """The timeouts of all calls under way, on one timer of the event loop: most calls end long before theirs.

    Calls with the same timeout are due in the order in which they started, so a queue for each timeout is enough.
    Those that are over are let go once they are the most: with each goes all that its run has in memory.
    """

    def __init__(self, expire: Callable[[Launch], None]) -> None:
        self._expire = expire
        self._queues: dict[float, deque[Launch]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = math.inf
        self._watched = self._over = 0

    def add(self, launch: Launch, loop: asyncio.AbstractEventLoop) -> None:
        """Watch a call that has just started."""
        if loop is not self._loop:  # an engine that is opened again lives on another loop
            self._loop, self._queues, self._timer, self._due = loop, {}, None, math.inf
            self._watched = self._over = 0
        queue = self._queues.get(launch.timeout)
        if queue is None:
            queue = self._queues[launch.timeout] = deque()
        queue.append(launch)
        self._watched += 1
        if self._timer is None or launch.started + launch.timeout < self._due:
            self._set(loop)

    def ended(self) -> None:
        """A call is over, long before its time; looked for among the others only once in a while."""
        self._over += 1
        if self._over > MOST_OVER and self._over * 2 > self._watched:
            for timeout, queue in self._queues.items():
                self._queues[timeout] = deque(launch for launch in queue if not launch.ended)
            self._watched, self._over = sum(map(len, self._queues.values())), 0

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = math.inf
        for timeout, queue in list(self._queues.items()):
            while queue and queue[0].ended:
                queue.popleft()
            if queue:
                self._due = min(self._due, queue[0].started + timeout)
            else:
                del self._queues[timeout]
        self._timer = loop.call_at(self._due, self._ring, loop) if self._queues else None

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for timeout, queue in list(self._queues.items()):
            while queue and (queue[0].ended or queue[0].started + timeout <= now):
                launch = queue.popleft()
                if not launch.ended:
                    self._expire(launch)
        self._set(loop)


@dataclass(slots=True)
class Performer:
    """Performs actions with the tools and limits of one engine."""

    tools: Mapping[str, Tool]
    patterns: Patterns
    max_output: int
    clock: Clock
    elsewhere: Executor | None = None  # where calls are made, if not here
    scrub: Scrub = field(default_factory=Scrub)
    deadlines: Deadlines = field(init=False)
    looks: Looker = field(init=False)

    def __post_init__(self) -> None:
        self.looks = Looker(self.tools, self.clock)
        self.deadlines = Deadlines(lambda launch: self.cancel(launch, "TIMEOUT"))

    def launch(self, launch: Launch, deliver: Callable[[Outcome], None]) -> None:
        """Start an attempt; its outcome is delivered exactly once, however it ends."""
        loop = asyncio.get_running_loop()
        launch.started = loop.time()
        launch.deliver = deliver
        if self.elsewhere is not None and self.elsewhere.takes(launch.tool):
            launch.away = not self.elsewhere.here
            launch.task = loop.create_task(self._guarded(launch, self.elsewhere))
        else:
            launch.task = loop.create_task(self._guarded(launch))
            self.deadlines.add(launch, loop)

    async def _away(self, launch: Launch, elsewhere: Executor) -> Any:
        """Call a tool elsewhere. It may have to wait for room there, and its time begins when it does."""
        loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()

        def begun(seconds: float) -> None:
            launch.started = loop.time() - seconds
            left = max(0.0, launch.timeout - seconds)
            timers.append(loop.call_later(left, self.cancel, launch, "TIMEOUT"))

        try:
            with self.clock.external():
                return await elsewhere.call(launch.tool, launch.args, launch.ctx, launch.step.resources, begun)
        finally:
            for timer in timers:
                timer.cancel()

    async def _guarded(self, launch: Launch, elsewhere: Executor | None = None) -> None:
        """Call, believe or not, deliver: one coroutine for all of it, because there may be thousands at once."""
        try:
            tool = launch.tool
            if launch.workspace is not None:
                await self._put_aside(launch, launch.workspace)
            if launch.term is not None and not launch.term.is_current:
                await self._hold(launch, launch.term)
            if launch.key_until and self.clock.now() >= launch.key_until:
                raise NotDone(ToolError(tell("error.KEY_LAPSED"), "KEY_LAPSED", Category.TRANSIENT))
            launch.made = True
            if elsewhere is not None:
                output = await self._away(launch, elsewhere)
            elif tool.is_async:
                output = await tool.call(launch.args, launch.ctx)
            else:
                with self.clock.external():
                    output = await tool.call(launch.args, launch.ctx)
            # An answer that comes late is its answer, where the call must not be made again for want of one.
            late = launch.cancelled and launch.effect is not Effect.ONCE
            believed = self._cut_off(launch) if late else self._believe(launch, output)
            if launch.workspace is not None and not isinstance(believed, Outcome):
                believed = await self._left_files(launch, launch.workspace) or believed
            outcome = believed if isinstance(believed, Outcome) else await self._verified(launch, *believed)
        except asyncio.CancelledError:
            outcome = self._cut_off(launch)
        except NotBegun:
            launch.made = False
            outcome = self._cut_off(launch, begun=False)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | GeneratorExit):
                raise
            # What it raises because we cancelled it is no failure of its own.
            outcome = self._cut_off(launch) if launch.cancelled else self._thrown(launch, error)
        self._deliver(launch, outcome)

    async def _hold(self, launch: Launch, term: LeaseTerm) -> None:
        """Ask the store whether this process still owns the run, right before a call; *not done* if it does not."""
        if launch.hold is not None and not term.lost:
            try:
                await launch.hold()
            except RerailError as error:
                term.refused(launch.step.id)
                raise NotDone(error) from error
        term.require(launch.step.id)

    def _thrown(self, launch: Launch, error: BaseException) -> Outcome:
        try:
            failure = from_exception(error, self.patterns, launch.spec.errors)
        except Exception as odd:  # an exception of the tool's own kind may fail at anything, too
            words = from_code("TOOL_FAILED", "UNREADABLE", type=type(error).__name__, odd=type(odd).__name__)
            failure = Failure(words, Certainty.LOST)
        return self._failed(launch, failure)

    def _deliver(self, launch: Launch, outcome: Outcome) -> None:
        if not launch.ended and launch.deliver is not None:  # else it was left behind; its late answer is not news
            launch.ended = True
            self.deadlines.ended()
            launch.deliver(outcome)

    def cancel(self, launch: Launch, why: str) -> None:
        """Cancel an attempt; if it does not stop in time, it is left behind and its answer counts as lost.

        A `once` call that goes on in its thread is waited for, up to twice its timeout: no other may be made meanwhile,
        and its late answer is its answer (V8).
        """
        if launch.ended or launch.cancelled or launch.task is None:
            return
        if why == "TIMEOUT" and launch.answer is not None:
            return  # the tool kept its time; looking at the effect has a time limit of its own
        launch.cancelled = why
        if launch.ctx is not None:
            launch.ctx.cancelled.set()
        waits = why == "TIMEOUT" and launch.effect is Effect.ONCE
        grace = max(GRACE, launch.timeout) if waits else GRACE
        if not waits or launch.runs != "thread":  # cancelling a thread would only hide its end
            launch.task.cancel()
        asyncio.get_running_loop().call_later(grace, self._leave_behind, launch)

    def _leave_behind(self, launch: Launch) -> None:
        """Wait no longer for a call that was cancelled and goes on."""
        if not launch.ended and launch.task is not None:
            self._deliver(launch, self._cut_off(launch, going_on=True))
            launch.task.cancel()

    def _cut_off(self, launch: Launch, *, begun: bool = True, going_on: bool = False) -> Outcome:
        if launch.answer is not None:  # it had answered; only the look at its effect was cut short
            return self._succeeded(launch, *launch.answer, unverified=True)
        if launch.cancelled == "RUN_CANCELLED":
            error = from_code("RUN_CANCELLED", category=Category.TRANSIENT)
        elif launch.cancelled == "TIMEOUT" and going_on and launch.effect is Effect.ONCE:
            error = from_code("TIMEOUT", "STILL_RUNNING", seconds=launch.timeout)
        elif launch.cancelled == "TIMEOUT":
            error = from_code("TIMEOUT", seconds=launch.timeout)
        else:
            error = from_code("ANSWER_LOST", text=launch.cancelled or "CLOSED")
        if not begun:
            return self._failed(launch, Failure(error, Certainty.NOT_DONE))
        # Of a request that was sent nothing can be seen, nor of a thread that was left before its end.
        ended = launch.runs in ("loop", "process") or (launch.runs == "thread" and launch.cancelled == "TIMEOUT")
        failure = Failure(error, Certainty.LOST, ended=ended and not going_on)
        return self._failed(launch, failure, acting=going_on and launch.cancelled == "TIMEOUT")

    def _believe(self, launch: Launch, output: Any) -> Outcome | tuple[Any, Packed]:
        """An answer that says it succeeded, checked before it is believed; what remains to be verified comes back."""
        try:
            packed = self._pack(output)
        except NotJson as odd:
            kind, reason = type(output).__name__, str(odd)[:200]
            told = from_code("OUTPUT_NOT_JSON", type=kind, reason=reason)
            return self._failed(launch, Failure(told, Certainty.LOST))
        if len(packed.data) > self.max_output:
            error = from_code("OUTPUT_TOO_LARGE", size=len(packed.data), limit=self.max_output)
            return self._failed(launch, Failure(error, Certainty.LOST))
        if output is not None:
            output = unpack(packed.data)  # plain JSON from here on, and nobody else's object
        if output is not None or launch.spec.check is not None or launch.step.check is not None:
            failure = self._disbelieve(launch, output)
            if failure is not None:
                return self._failed(launch, failure)
        if launch.workspace is not None:
            return output, packed  # its files are still to be looked at
        if launch.verifiable:
            launch.answer = (output, packed)
            return output, packed
        return self._succeeded(launch, output, packed, unverified=False)

    def _pack(self, output: Any) -> Packed:
        """An output as it may be kept: without secrets."""
        packed = pack(output)
        if self.scrub and self.scrub.found(packed.data) is not None:
            return pack(self.scrub.value(unpack(packed.data)))
        return packed

    async def _put_aside(self, launch: Launch, workspace: Path) -> None:
        """Move what an earlier attempt left into the archive, before the tool writes again (T3)."""
        names = [file.path for file in launch.step.produces]
        label = f"{stamp(self.clock.now())}-{launch.step.id}-{launch.attempt}"
        try:
            with self.clock.external():
                await asyncio.to_thread(put_aside, workspace, names, label, leftover=launch.leftover)
        except (OSError, Outside) as error:
            reason = about(str(error), tell("reason.file.outside")) if isinstance(error, Outside) else str(error)
            told = tell("error.FILE_NOT_ARCHIVED", reason=reason)
            raise ToolError(told, code="FILE_NOT_ARCHIVED", lost=False) from error

    async def _left_files(self, launch: Launch, workspace: Path) -> Outcome | None:
        """Look at the files that the step was to produce; an outcome only if they do not do."""
        staging = workspace / launch.staged if launch.staged else None
        found: dict[str, Seen] = {}
        faults: list[str] = []
        for file in launch.step.produces:
            with self.clock.external():
                home = await asyncio.to_thread(written_to, workspace, staging, file)
                seen = await asyncio.to_thread(look, file, home)
            said = list(seen.faults)
            if not said and file.check:
                said = await self.checked(file, inside(home, file.path), launch.ctx)
            found[file.path] = seen
            faults += [about(file.path, fault) for fault in said]
        if faults:
            error = from_code("CHECK_FAILED", "FILES_INVALID", faults=one_by_one(faults))
            return self._failed(launch, Failure(error, Certainty.LOST))
        launch.files = found
        return None

    async def checked(self, file: Produced, path: Path, ctx: Any = None) -> list[str]:
        """What the tool that a file is checked by has to say against it."""
        tool = self.tools.get(file.check)
        if tool is None:
            return [tell("reason.file.checked", tool=file.check, reason=tell("error.TOOL_UNKNOWN", tool=file.check))]
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                with self.looks.outside(not tool.is_async):
                    said = await tool.call({"path": str(path)}, ctx)
            reason = "" if said or said is None else repr(said)  # no, in whatever way: False, an empty text, 0
            if not reason and (says_failed(said) or (said is not None and suspect(said) is not None)):
                reason = str(said)
        except TimeoutError:
            reason = tell("error.TIMEOUT", seconds=LOOK_TIMEOUT)
        except (Exception, SystemExit) as error:
            reason = from_exception(error, self.patterns).error.told
        return [tell("reason.file.checked", tool=file.check, reason=clipped(reason, 300))] if reason else []

    async def _verified(self, launch: Launch, output: Any, packed: Packed) -> Outcome:
        """A call that answered, once its effect was looked for where it can be (V8)."""
        if not launch.verifiable:
            return self._succeeded(launch, output, packed, unverified=False)
        launch.answer = (output, packed)
        sight = await self.looks.look(launch, output, launch.patience)
        if sight.saw is Saw.THERE and output is None and sight.output is not NOT_KNOWN:
            output, packed = self._supplied(launch, sight)
        if follows(Case(launch.effect, Certainty.DONE, sight.saw)) is Follows.SUCCEED:
            return self._succeeded(launch, output, packed, unverified=sight.saw is Saw.UNKNOWN, sight=sight)
        if sight.saw is Saw.ABSENT:
            return self._failed(launch, Failure(from_code("VERIFY_FAILED"), Certainty.DONE), sight=sight)
        text = "VERIFY_PARTIAL" if sight.saw is Saw.PARTIAL else "VERIFY_DISBELIEVED"
        error = from_code("VERIFY_FAILED", text, what=sight.reason)
        return self._failed(launch, Failure(error, Certainty.LOST), sight=sight)

    def _supplied(self, launch: Launch, sight: Sight) -> tuple[Any, Packed]:
        """The output that a look brought; null if there is none, or if it does not pass the step's own checks (V6)."""
        try:
            packed = self._pack(None if sight.output is NOT_KNOWN else sight.output)
        except NotJson:
            packed = pack(None)
        output = unpack(packed.data)
        checked = output is not None or launch.spec.check is not None or launch.step.check is not None
        if checked and sight.output is not NOT_KNOWN and self._disbelieve(launch, output, bare=True) is not None:
            return None, pack(None)
        return output, packed

    def _disbelieve(self, launch: Launch, whole: Any, *, bare: bool = False) -> Failure | None:
        """Why an answer is not believed; ``bare``: it is what the other side said, as a look brought it."""
        output = whole
        answer_of = launch.tool.answer_of
        if answer_of is not None and output is not None and not bare:
            output = answer_of(output)  # what the other side said, without what the tool put around it
        if says_failed(output):
            return self._as_declared(launch, from_returned(output, self.patterns))
        trusted = launch.step.trust_output if launch.step.trust_output is not None else launch.spec.trust_output
        if output is not None and trusted is not True:
            signs = (trusted.ignore, trusted.suspect) if isinstance(trusted, Trust) else ()
            seen = suspect(output, *signs)
            if seen is not None:
                return self._as_declared(launch, self._suspected(output, seen))
        for check in (launch.spec.check, launch.step.check):
            faults = unmet(check, whole) if check is not None else []
            if faults:
                return Failure(from_code("CHECK_FAILED", faults=one_by_one(faults)), Certainty.LOST)
        return None

    def _as_declared(self, launch: Launch, failure: Failure) -> Failure:
        """What an answer that is an error came to, where the tool says how its errors are to be read (X4)."""
        waits, status = failure.not_now is not None, failure.error.status
        certainty = as_declared(failure.certainty, launch.spec.errors, status, retry_after=waits)
        return Failure(failure.error, certainty, failure.not_now)

    def _suspected(self, output: Any, seen: str) -> Failure:
        told = from_returned(output, self.patterns).error if isinstance(output, Mapping) else None
        category = told.category if told is not None and told.category is not Category.UNKNOWN else None
        if category is None:
            thrown = from_exception(Exception(seen), self.patterns).error.category
            category = thrown if thrown is not Category.UNKNOWN else Category.TOOL
        error = Error(
            "SUSPECT_OUTPUT", category, say("error.SUSPECT_OUTPUT", seen=seen),
            status=told.status if told is not None else None,
            suggest=told.suggest if told is not None else None, data={"seen": seen},
        )  # fmt: skip
        return Failure(error, Certainty.LOST)

    def _succeeded(
        self, launch: Launch, output: Any, packed: Packed, *, unverified: bool, sight: Sight | None = None
    ) -> Outcome:
        if launch.staged and launch.staged.encode() in packed.data:
            output, packed = _told_in_place(launch, packed)
        step, attempt, size = launch.step.id, launch.attempt, len(packed.data)
        elapsed = asyncio.get_running_loop().time() - launch.started
        tokens, cost = _usage(launch)
        if not packed.digest and not launch.files:
            done = ev.StepSucceeded(
                step, attempt, elapsed=elapsed, tokens=tokens, cost=cost, unverified=unverified,
                waited=sight.waited if sight is not None else 0.0,
            )  # fmt: skip
            return Outcome(step, attempt, [done])
        blob = size > INLINE
        files = {path: seen.digest for path, seen in launch.files.items()} if launch.files else {}
        done = ev.StepSucceeded(
            step, attempt, None if blob else output, packed.digest, size, blob, elapsed, tokens, cost, unverified,
            files=files, given=singled(output) if blob else {}, waited=sight.waited if sight is not None else 0.0,
        )  # fmt: skip
        made = _artifacts(launch, packed.digest, size)
        return Outcome(step, attempt, [*made, done], {packed.digest: packed.data} if blob else None)

    def _failed(self, launch: Launch, failure: Failure, *, acting: bool = False, sight: Sight | None = None) -> Outcome:
        """What happened, as an event: the kernel, which knows the effect, says what follows."""
        elapsed = asyncio.get_running_loop().time() - launch.started
        tokens, cost = _usage(launch, failure)
        lost = failure.certainty is Certainty.LOST
        event = ev.StepFailed(
            launch.step.id, launch.attempt, failure.error, elapsed, lost, True, failure.not_now, tokens, cost,
            look=launch.verifiable and sight is None,
            until=0.0 if failure.ended or not lost else self.clock.now() - elapsed + launch.timeout, acting=acting,
            looks=sight.looks if sight is not None else 0, waited=sight.waited if sight is not None else 0.0,
        )  # fmt: skip
        return Outcome(launch.step.id, launch.attempt, [event])

    # -- Looking at the effect itself (V8) ------------------------------------------------------------------------

    async def look_again(self, launch: Launch) -> Outcome:
        """Whether the effect of a call that did not succeed is there, all the same."""
        sight = await self.looks.look(launch, None, launch.patience)
        step, attempt = launch.step.id, launch.attempt
        looks, waited, reason = sight.looks, sight.waited, sight.reason
        if sight.saw is Saw.THERE and launch.workspace is not None:
            unsound = await self._left_files(launch, launch.workspace)
            failed = unsound.events[0] if unsound is not None else None
            if isinstance(failed, ev.StepFailed):
                sight, reason = Sight(Saw.UNKNOWN), failed.error.told
        if sight.saw is not Saw.THERE:
            saw = Saw.UNKNOWN if sight.saw is Saw.DISBELIEVED else sight.saw
            event = ev.StepVerified(step, attempt, str(saw), reason=reason, looks=looks, waited=waited)
            return Outcome(step, attempt, [event], look=True)
        output, packed = self._supplied(launch, sight)
        # A null that was supplied is what the tool answers, and no hole.
        hole = sight.output is NOT_KNOWN or (output is None and sight.output is not None)
        blob, size = len(packed.data) > INLINE, len(packed.data)
        event = ev.StepVerified(
            step, attempt, "there", None if blob else output, packed.digest, size, blob, hole,
            tell("reason.not_called_again"), {path: seen.digest for path, seen in (launch.files or {}).items()},
            looks, waited,
        )  # fmt: skip
        made = _artifacts(launch, packed.digest, size)
        return Outcome(step, attempt, [*made, event], {packed.digest: packed.data} if blob else None, look=True)

    async def ask(self, mind: Mind, question: Question, seconds: float) -> Answer:
        """What a mind answers, or why it did not."""
        answer = Answer()
        try:
            async with asyncio.timeout(seconds):
                given = await mind.answer(question)
            answer = given if isinstance(given, Answer) else Answer(given)
            words.refuse_odd(answer.value)
            pack(answer.value)  # what cannot be written down is no answer
            return answer
        except TimeoutError:
            return Answer(None, list(question.ledger.calls), tell("reason.no_answer", seconds=seconds))
        except Unanswered as broken:
            cause = broken.__cause__ or broken
            return Answer(None, broken.consultations, from_exception(cause, self.patterns).error.told)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Answer(failed=tell("reason.gave_up"))  # it was not cancelled by us: asking again would not end
        except Exception as error:
            return Answer(None, answer.consultations, from_exception(error, self.patterns).error.told)


def _told_in_place(launch: Launch, packed: Packed) -> tuple[Any, Packed]:
    """An answer that names the files an attempt wrote, naming them where they will be."""
    own = launch.staged  # no other text is like it

    def moved(value: Any) -> Any:
        match value:
            case str():  # from the root, or as seen from the workspace
                return value.replace(f"{own}/", "").replace(f"/{own}", "").replace(own, ".")
            case list():
                return [moved(item) for item in value]
            case dict():
                return {moved(key): moved(item) for key, item in value.items()}
            case _:
                return value

    output = moved(unpack(packed.data))
    return output, pack(output)


def _artifacts(launch: Launch, digest: str, size: int) -> list[Event]:
    """The output and the files of an attempt, by name."""
    step, attempt = launch.step.id, launch.attempt
    made: list[Event] = [ev.ArtifactCreated(step, step, attempt, digest, size)] if digest else []
    for path, seen in (launch.files or {}).items():
        made.append(ev.ArtifactCreated(path, step, attempt, seen.digest, seen.size, media_of(path), path))
    return made


def _usage(launch: Launch, failure: Failure | None = None) -> tuple[int, float]:
    """The tokens and the cost that a call is charged (H4).

    It is what the call reported; without a report its declared cost, unless the call was not made: it ended before, or
    the tool said "not now". A call whose answer is lost is charged what was reserved for what it did not report.
    """
    ctx, reserves = launch.ctx, launch.reserves
    lost = launch.made and failure is not None and failure.error.code in NO_ANSWER
    tokens, cost = (reserves.tokens or 0, reserves.cost or 0.0) if lost else (0, 0.0)
    if launch.spec.cost is not None and launch.made and (failure is None or failure.not_now is None):
        cost = launch.spec.cost
    if ctx is not None:
        # What a tool says of its spending is data too: no infinity, nothing given back.
        said = int(ctx.tokens) if math.isfinite(ctx.tokens) else 0
        tokens = max(0, said) or tokens
        cost = ctx.cost if ctx.priced and 0 <= ctx.cost < math.inf else cost
    return tokens, cost
