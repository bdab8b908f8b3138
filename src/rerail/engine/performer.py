"""Performs calls, looks and questions: each answer becomes events, and nothing here raises.

Rules of this file:
- This is the only broad ``except`` of the project: any behaviour of a tool or a mind becomes data.
- An answer is accepted after its checks: it is JSON, within the limit, does not look like an error, meets the step's
  postconditions, and a possible look finds its effect.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerail.codes import NO_ANSWER, Category
from rerail.context import excerpt
from rerail.engine.failures import Failure, Patterns, from_code, from_exception, from_returned, says_failed
from rerail.engine.files.placement import Seen, look, unmet, written_to
from rerail.engine.launch import Deadlines, Launch, LeaseTerm, Outcome
from rerail.engine.looks import LOOK_TIMEOUT, NOT_KNOWN, Looker, Sight
from rerail.errors import NotDone, RerailError, ToolError
from rerail.i18n import about, one_by_one, say, tell
from rerail.kernel import events as ev
from rerail.kernel.candidates import singled
from rerail.kernel.events import Error, Event
from rerail.kernel.outcome import Case, Certainty, Follows, Saw, as_declared, follows
from rerail.kernel.stages import media_of
from rerail.mind import prompt_text as words
from rerail.plan.step import Effect, Produced, Trust
from rerail.ports import Clock, Executor, Mind, MindAnswer, NotBegun, Question, Tool, Unanswered
from rerail.recovery.disguised_errors import suspect
from rerail.values.json_values import INLINE, NotJson, Packed, pack, unpack
from rerail.values.redaction import Scrub
from rerail.workspace import Outside, inside, put_aside, stamp

GRACE = 2.0  # seconds that a cancelled call gets to clean up before it is abandoned


@dataclass(slots=True)
class Performer:
    """Performs actions with the tools and limits of one engine."""

    tools: Mapping[str, Tool]
    patterns: Patterns
    max_output: int
    clock: Clock
    elsewhere: Executor | None = None  # makes calls outside of this process, if set
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
        """Call a tool elsewhere. It may wait for room there, and its timeout counts from its start."""
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
        """Call, check, deliver: one coroutine for all of it, because there may be thousands at once."""
        try:
            tool = launch.tool
            if launch.workspace is not None:
                await self._put_aside(launch, launch.workspace)
            if launch.term is not None and not launch.term.is_current:
                await self._hold(launch, launch.term)
            if launch.key_until and self.clock.now() >= launch.key_until:
                raise NotDone(ToolError(tell("error.KEY_LAPSED"), "KEY_LAPSED", Category.TRANSIENT))
            launch.made = not launch.cancelled
            if not launch.made:
                raise asyncio.CancelledError
            if elsewhere is not None:
                output = await self._away(launch, elsewhere)
            elif tool.is_async:
                output = await tool.call(launch.args, launch.ctx)
            else:
                with self.clock.external():
                    output = await tool.call(launch.args, launch.ctx)
            if launch.ctx is not None:
                launch.added = launch.ctx.end()
            # A late answer still counts, because without it the call would have to be repeated.
            late = launch.cancelled and launch.effect is not Effect.ONCE
            believed = self._cut_off(launch) if late else self._believe(launch, output)
            if launch.workspace is not None and not isinstance(believed, Outcome):
                believed = await self._left_files(launch, launch.workspace) or believed
            outcome = believed if isinstance(believed, Outcome) else await self._verified(launch, *believed)
        except asyncio.CancelledError:
            outcome = self._cut_off(launch)
        except NotBegun:
            launch.made = False
            outcome = self._cut_off(launch)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and _is_closed(launch)):
                raise
            # An error after our cancellation is not the call's own failure. A thread that goes on was not cancelled.
            ours = launch.cancelled and launch.task is not None and launch.task.cancelling()
            outcome = self._cut_off(launch) if ours else self._thrown(launch, error)
        self._deliver(launch, outcome)

    async def _hold(self, launch: Launch, term: LeaseTerm) -> None:
        """Confirm the lease right before a call; *not done* if another process owns the run."""
        if launch.hold is not None and not term.lost:
            try:
                await launch.hold()
            except RerailError as error:
                term.refused(launch.step.id)
                raise NotDone(error) from error
        term.require(launch.step.id)

    def _thrown(self, launch: Launch, error: BaseException) -> Outcome:
        try:
            failure = from_exception(error, self.patterns, launch.spec.errors, self.clock.now())
        except Exception as odd:  # a user-defined exception may fail on any access
            words = from_code("TOOL_FAILED", "UNREADABLE", type=type(error).__name__, odd=type(odd).__name__)
            failure = Failure(words, Certainty.LOST)
        return self._failed(launch, failure)

    def _deliver(self, launch: Launch, outcome: Outcome) -> None:
        if not launch.ended and launch.deliver is not None:  # else it was abandoned; its late answer is dropped
            launch.ended = True
            self.deadlines.ended()
            launch.deliver(outcome)

    def cancel(self, launch: Launch, why: str) -> None:
        """Cancel an attempt; if it does not stop in time, it is abandoned and its answer counts as lost.

        A `once` call that goes on in its thread is awaited, up to twice its timeout: no other may start meanwhile,
        and its late answer counts (V8).
        """
        if launch.ended or launch.cancelled or launch.task is None:
            return
        if why == "TIMEOUT" and launch.answer is not None:
            return  # the tool kept its timeout; the look at its effect has its own
        launch.cancelled = why
        if launch.ctx is not None:
            launch.ctx.cancelled.set()
        waits = why == "TIMEOUT" and launch.effect is Effect.ONCE
        grace = max(GRACE, launch.timeout) if waits else GRACE
        if not waits or launch.runs != "thread":  # cancelling a thread would only hide its end
            launch.task.cancel()
        asyncio.get_running_loop().call_later(grace, self._leave_behind, launch)

    def _leave_behind(self, launch: Launch) -> None:
        """Abandon a call that was cancelled and goes on."""
        if not launch.ended and launch.task is not None:
            self._deliver(launch, self._cut_off(launch, going_on=True))
            launch.task.cancel()

    def _cut_off(self, launch: Launch, *, going_on: bool = False) -> Outcome:
        if launch.answer is not None:  # it had answered; only the look at its effect was cut short
            return self._succeeded(launch, *launch.answer, unverified=True)
        if launch.cancelled == "RUN_CANCELLED":
            error = from_code("RUN_CANCELLED", category=Category.TRANSIENT)
        elif launch.cancelled == "TIMEOUT" and going_on and launch.effect is Effect.ONCE:
            error = from_code("TIMEOUT", "STILL_RUNNING", seconds=launch.timeout)
        elif launch.cancelled == "TIMEOUT":
            error = from_code("TIMEOUT", seconds=launch.timeout)
        else:
            ours = launch.task is not None and launch.task.cancelling()
            error = from_code("ANSWER_LOST", text=launch.cancelled or ("CLOSED" if ours else "CANCELLED_WITHIN"))
        if not launch.made:
            return self._failed(launch, Failure(error, Certainty.NOT_DONE))
        # Neither a sent request nor an abandoned thread can be observed.
        ended = launch.runs in ("loop", "process") or (launch.runs == "thread" and launch.cancelled == "TIMEOUT")
        failure = Failure(error, Certainty.LOST, ended=ended and not going_on)
        return self._failed(launch, failure, acting=going_on and launch.cancelled == "TIMEOUT")

    def _believe(self, launch: Launch, output: Any) -> Outcome | tuple[Any, Packed]:
        """Check a successful answer before it counts; return what remains to be verified."""
        try:
            packed = self._redacted(pack(output)) if self.scrub.active else pack(output)
        except NotJson as odd:
            kind, reason = type(output).__name__, excerpt(str(odd), 200)
            told = from_code("OUTPUT_NOT_JSON", type=kind, reason=reason)
            return self._failed(launch, Failure(told, Certainty.LOST))
        if len(packed.data) > self.max_output:
            error = from_code("OUTPUT_TOO_LARGE", size=len(packed.data), limit=self.max_output)
            return self._failed(launch, Failure(error, Certainty.LOST))
        if output is not None:
            output = unpack(packed.data)  # plain JSON from here on, shared with no other object
        if output is not None or launch.spec.check is not None or launch.step.check is not None:
            failure = self._disbelieve(launch, output)
            if failure is not None:
                return self._failed(launch, failure)
        if launch.workspace is not None:
            return output, packed  # its files are still to be checked
        if launch.verifiable:
            launch.answer = (output, packed)
            return output, packed
        return self._succeeded(launch, output, packed, unverified=False)

    def _redacted(self, packed: Packed) -> Packed:
        """Return a packed output without secrets."""
        return packed if self.scrub.found(packed.data) is None else pack(self.scrub.value(unpack(packed.data)))

    async def _put_aside(self, launch: Launch, workspace: Path) -> None:
        """Move an earlier attempt's files into the archive, before the tool writes again (T3)."""
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
        """Check the files that the step should produce; return an outcome only for a fault."""
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
        """Return the objection of the tool that checks a file."""
        tool = self.tools.get(file.check)
        if tool is None:
            return [tell("reason.file.checked", tool=file.check, reason=tell("error.TOOL_UNKNOWN", tool=file.check))]
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                with self.looks.outside(not tool.is_async):
                    said = await tool.call({"path": str(path)}, ctx)
            reason = "" if said or said is None else repr(said)  # any falsy answer: False, an empty text, 0
            if not reason and (says_failed(said) or (said is not None and suspect(said) is not None)):
                reason = str(said)
        except TimeoutError:
            reason = tell("error.TIMEOUT", seconds=LOOK_TIMEOUT)
        except (Exception, SystemExit) as error:
            reason = from_exception(error, self.patterns).error.told
        return [tell("reason.file.checked", tool=file.check, reason=excerpt(reason, 300))] if reason else []

    async def _verified(self, launch: Launch, output: Any, packed: Packed) -> Outcome:
        """Return the outcome of a call that answered, after a look at its effect where possible (V8)."""
        if not launch.verifiable:
            return self._succeeded(launch, output, packed, unverified=False)
        launch.answer = (output, packed)
        sight = await self.looks.look(launch, packed.data, launch.patience)
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
        """Return the output supplied by a look; null if there is none, or if it fails the step's own checks (V6)."""
        try:
            packed = self._redacted(pack(None if sight.output is NOT_KNOWN else sight.output))
        except NotJson:
            packed = pack(None)
        output = unpack(packed.data)
        checked = output is not None or launch.spec.check is not None or launch.step.check is not None
        if checked and sight.output is not NOT_KNOWN and self._disbelieve(launch, output, bare=True) is not None:
            return None, pack(None)
        return output, packed

    def _disbelieve(self, launch: Launch, whole: Any, *, bare: bool = False) -> Failure | None:
        """Return why an answer is rejected; ``bare``: it is the other side's answer, as a look supplied it."""
        output = whole
        answer_of = launch.tool.answer_of
        if answer_of is not None and output is not None and not bare:
            output = answer_of(output)  # the other side's answer, without the tool's own envelope
        keyed = isinstance(output, Mapping)
        if keyed and says_failed(output):
            return self._as_declared(launch, from_returned(output, self.patterns))
        trusted = launch.step.trust_output if launch.step.trust_output is not None else launch.spec.trust_output
        signs = (trusted.ignore, trusted.suspect) if isinstance(trusted, Trust) else ()
        if trusted is not True and (keyed or isinstance(output, str | list) or (signs and output is not None)):
            seen = suspect(output, *signs)
            if seen is not None:
                return self._as_declared(launch, self._suspected(output, seen))
        for check in (launch.spec.check, launch.step.check):
            faults = unmet(check, whole) if check is not None else []
            if faults:
                return Failure(from_code("CHECK_FAILED", faults=one_by_one(faults)), Certainty.LOST)
        return None

    def _as_declared(self, launch: Launch, failure: Failure) -> Failure:
        """Return the outcome of an error answer, where the tool declares how its errors are read (X4)."""
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
        tokens, cost = _usage(launch) if launch.ctx is not None or launch.spec.cost is not None else (0, 0.0)
        if not packed.digest and not launch.files:
            done = ev.StepSucceeded(
                step, attempt, elapsed=elapsed, tokens=tokens, cost=cost, unverified=unverified,
                waited=sight.waited if sight is not None else 0.0,
            )  # fmt: skip
            return Outcome(step, attempt, [done], added=launch.added)
        blob = size > INLINE
        files = {path: seen.digest for path, seen in launch.files.items()} if launch.files else {}
        done = ev.StepSucceeded(
            step, attempt, None if blob else output, packed.digest, size, blob, elapsed, tokens, cost, unverified,
            files=files, given=singled(output) if blob else {}, waited=sight.waited if sight is not None else 0.0,
        )  # fmt: skip
        blobs = {packed.digest: packed.data} if blob else None
        return Outcome(step, attempt, [*_artifacts(launch, packed.digest, size), done], blobs, added=launch.added)

    def _failed(self, launch: Launch, failure: Failure, *, acting: bool = False, sight: Sight | None = None) -> Outcome:
        """Return the outcome as an event; the kernel, which knows the effect, decides the consequence."""
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
        """Look whether the effect of a failed call is there all the same."""
        sight = await self.looks.look(launch, b"null", launch.patience)
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
        # A supplied null is the tool's answer, not a hole.
        hole = sight.output is NOT_KNOWN or (output is None and sight.output is not None)
        blob, size = len(packed.data) > INLINE, len(packed.data)
        event = ev.StepVerified(
            step, attempt, "there", None if blob else output, packed.digest, size, blob, hole,
            tell("reason.not_called_again"), {path: seen.digest for path, seen in (launch.files or {}).items()},
            looks, waited,
        )  # fmt: skip
        made = _artifacts(launch, packed.digest, size)
        return Outcome(step, attempt, [*made, event], {packed.digest: packed.data} if blob else None, look=True)

    async def ask(self, mind: Mind, question: Question, seconds: float) -> MindAnswer:
        """Ask a mind; return its answer, or why there is none."""
        answer = MindAnswer()
        try:
            async with asyncio.timeout(seconds):
                given = await mind.answer(question)
            answer = given if isinstance(given, MindAnswer) else MindAnswer(given)
            words.refuse_odd(answer.value)
            pack(answer.value)  # an answer that cannot be encoded does not count
            return answer
        except TimeoutError:
            return MindAnswer(None, list(question.ledger.calls), tell("reason.no_answer", seconds=seconds))
        except Unanswered as broken:
            cause = broken.__cause__ or broken
            return MindAnswer(None, broken.consultations, from_exception(cause, self.patterns).error.told)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return MindAnswer(failed=tell("reason.gave_up"))  # it was not our cancellation: asking again would not end
        except Exception as error:
            return MindAnswer(None, answer.consultations, from_exception(error, self.patterns).error.told)


def _is_closed(launch: Launch) -> bool:
    """True if the call's own coroutine is being closed, with its loop; False if its tool raised GeneratorExit."""
    try:
        return asyncio.current_task() is not launch.task
    except RuntimeError:
        return True


def _told_in_place(launch: Launch, packed: Packed) -> tuple[Any, Packed]:
    """Return an answer with an attempt's own file paths replaced by their final ones."""
    own = launch.staged  # the folder's name is unique, so no other text matches

    def moved(value: Any) -> Any:
        match value:
            case str():  # an absolute path, or one relative to the workspace
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
    """Return the output and the files of an attempt, by name."""
    step, attempt = launch.step.id, launch.attempt
    made: list[Event] = [ev.ArtifactCreated(step, step, attempt, digest, size)] if digest else []
    for path, seen in (launch.files or {}).items():
        made.append(ev.ArtifactCreated(path, step, attempt, seen.digest, seen.size, media_of(path), path))
    return made


def _usage(launch: Launch, failure: Failure | None = None) -> tuple[int, float]:
    """Return the tokens and the cost that a call is charged (H4).

    The report counts; without one, the declared cost. A call that was not made costs nothing: it ended before, or
    the tool said "not now". A lost call is charged its reservation for everything that it did not report.
    """
    ctx, reserves = launch.ctx, launch.reserves
    lost = launch.made and failure is not None and failure.error.code in NO_ANSWER
    tokens, cost = (reserves.tokens or 0, reserves.cost or 0.0) if lost else (0, 0.0)
    if launch.spec.cost is not None and launch.made and (failure is None or failure.not_now is None):
        cost = launch.spec.cost
    if ctx is not None:
        # Reported spending is untrusted data: no infinity, no negative numbers.
        said = int(ctx.tokens) if math.isfinite(ctx.tokens) else 0
        tokens = max(0, said) or tokens
        cost = ctx.cost if ctx.priced and 0 <= ctx.cost < math.inf else cost
    return tokens, cost
