"""Launches: calls ready to start, their outcomes and timeouts, and the lease term they act under (contract E11).

Rules of this file:
- A frozen process cannot notice its freeze. Its clock shows it, if the clock counts suspension too.
- A confirmation is as old as its request: the term counts from before the store was asked.
- The successor of an owner that may still live waits for `TERM` before its first call: by then the owner knows.
- A process that lost a run logs it to `rerail`, with the work left undone: the history is another process's now.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rerail.codes import Category
from rerail.engine.files.placement import Seen
from rerail.engine.looks import Patience
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell
from rerail.kernel.accounts import FREE, SpendingNeed
from rerail.kernel.events import Event
from rerail.plan.step import Effect, Step
from rerail.plan.tool_spec import Runs, ToolSpec
from rerail.ports import TERM, Clock, Tool
from rerail.values.json_values import Packed

LOG: Final = logging.getLogger("rerail")
MIN_ENDED = 256  # ended calls in the queues before they are removed


class LeaseTerm:
    """The latest confirmation of this process's lease; safe to read from any thread."""

    __slots__ = ("_clock", "_confirmed", "_run", "lost")

    def __init__(self, clock: Clock, run: str = "") -> None:
        self._clock, self._run = clock, run
        self._confirmed = clock.uptime()
        self.lost = False  # the store reported another owner

    @property
    def age(self) -> float:
        """Seconds since the last confirmation."""
        return self._clock.uptime() - self._confirmed

    @property
    def is_current(self) -> bool:
        """True if no other process can have begun to act for the run."""
        return not self.lost and self._clock.uptime() - self._confirmed <= TERM

    def confirmed(self, asked: float) -> None:
        """Record a confirmation, with the time of its request: the clock's uptime before the store was asked."""
        self._confirmed = max(self._confirmed, asked)

    def lose(self, calls: Mapping[str, bool]) -> None:
        """Record the loss of the run; ``calls`` says of each step in hand whether its tool was called."""
        if not self.lost and self._clock.polls:
            under_way = ", ".join(step for step, called in calls.items() if called) or "-"
            not_called = ", ".join(step for step, called in calls.items() if not called) or "-"
            LOG.warning(tell("log.owner_lost", run=self._run, under_way=under_way, not_called=not_called))
        self.lost = True

    def refused(self, step: str) -> None:
        """Log that a step's tool did not act, or was not called."""
        if self._clock.polls:
            LOG.warning(tell("log.not_done", run=self._run, step=step))

    def require(self, step: str = "") -> None:
        """Raise *not done* if another process may own the run by now."""
        if not self.is_current:
            self.refused(step)
            told = tell("error.OWNER_LOST", seconds=round(self.age))
            raise NotDone(ToolError(told, "OWNER_LOST", Category.TRANSIENT))


class Launch(msgspec.Struct, eq=False):
    """One attempt, ready to be called."""

    step: Step
    attempt: int
    tool: Tool
    spec: ToolSpec
    args: dict[str, Any]  # the tool's own: it may change them
    ctx: Any
    timeout: float
    effect: Effect = Effect.REPEATABLE
    verifiable: bool = False  # a look at its effect is possible
    before: Any = None
    workspace: Path | None = None  # the folder of the files that the step produces, if it produces any
    staged: str = ""  # the folder in it that only this attempt writes to
    leftover: str = ""  # the same folder of the previous attempt
    asked: bytes = b""  # the arguments of the intent, where a look needs them
    verify_args: bytes = b""  # those of the step's own look
    counts: Mapping[str, int] | None = None  # the limits of the engine that it counts against
    ended: bool = False  # an answer after this changes nothing
    cancelled: str = ""  # the code of its cancellation
    started: float = 0.0
    patience: Patience = Patience()  # how long to wait for its effect before absence counts
    away: bool = False  # an executor elsewhere makes the call
    term: LeaseTerm | None = None  # the latest confirmation of the lease
    hold: Callable[[], Awaitable[None]] | None = None  # confirms the lease if the last confirmation is too old
    task: asyncio.Task[None] | None = None
    deliver: Callable[[Outcome], None] | None = None
    answer: tuple[Any, Packed] | None = None  # the answer, while its effect is being verified
    files: dict[str, Seen] | None = None  # the files it left in the workspace
    reserves: SpendingNeed = FREE  # what it may spend, in a run with a cap
    made: bool = False  # the tool may have been called
    added: tuple[Any, ...] = ()  # the steps that the call added, as plain data
    key_until: float = 0.0  # when the service forgets the key of a repeated lost call; 0: no such call

    @property
    def runs(self) -> Runs:
        """Return where it runs."""
        return "request" if self.away else self.spec.runs


class Outcome(msgspec.Struct, eq=False, gc=False):
    """The outcome of an attempt: events to record, and the contents they name."""

    step: str
    attempt: int
    events: list[Event]
    blobs: dict[str, bytes] | None = None
    called: bool = True  # False: the step failed before its tool was called
    look: bool = False  # it is the result of a look, in any phase of the step
    added: tuple[Any, ...] = ()  # the steps that its success adds


class Deadlines:
    """The timeouts of all calls under way, on one timer of the event loop.

    Calls with the same timeout expire in the order of their starts, so one queue per timeout suffices. Ended calls
    leave the queues once they are the majority; until then each holds its run in memory.
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
        if loop is not self._loop:  # the engine was reopened on another loop
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
        """Count a call that ended before its timeout; the queues are cleaned at intervals."""
        self._over += 1
        if self._over > MIN_ENDED and self._over * 2 > self._watched:
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
