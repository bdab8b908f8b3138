"""Queues of a run's loop: commands to apply, and work to start after the next commit (contract E1, X7).

Rules of this file:
- A command is applied between two turns, and answered once it is durable.
- Work beside the calls (looks, questions, fetches) starts after a commit: a process without the lease makes no request
  either. Work under way is not started again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rerail.engine.journal import Journal
from rerail.engine.parts import EngineParts
from rerail.engine.refusals import error_for
from rerail.errors import RerailError, StoreError
from rerail.i18n import clipped, tell
from rerail.kernel import events as ev
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.commands import Command, handle

Key = tuple[str, str, int]  # kind, step, attempt or sequence number
MAX_FAULTS = 50  # faults of a refused change in its event; the client gets all of them


class Ended(StoreError):
    """The loop ended before it could take a command; the next owner has to take it."""


class CommandQueue:
    """The commands that one run's loop still has to apply or to answer."""

    def __init__(self, parts: EngineParts, journal: Journal, wake: asyncio.Event) -> None:
        self._parts, self._journal, self._wake = parts, journal, wake
        self.waiting: deque[tuple[Command, asyncio.Future[None]]] = deque()
        self.applied: list[tuple[asyncio.Future[None], RerailError | None]] = []

    async def put(self, command: Command) -> None:
        """Give the loop a command; return once it is durable, raise if it is refused."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((command, future))
        self._wake.set()
        await future

    def apply(self, command: Command) -> None:
        """Apply a command; `Refusal` or `Faulty` if the state does not allow it."""
        handled = handle(self._journal.state, self._parts.specs, command)
        self._journal.blobs.update(handled.blobs)
        self._journal.note(*handled.events)

    def apply_all(self) -> list[str]:
        """Apply the waiting commands; return the paths of the files in them."""
        paths: list[str] = []
        while self.waiting:
            command, future = self.waiting.popleft()
            try:
                self.apply(command)
            except Refusal as refusal:
                self.applied.append((future, error_for(refusal)))
            except Faulty as faulty:
                said = tuple(clipped(fault.told, 1000) for fault in faulty.faults[:MAX_FAULTS])
                if self._journal.state.rest is None:  # a run that has just come to rest stays as it is (X5)
                    self._journal.note(ev.PlanRejected(command.by, said, command.action))
                self.applied.append((future, error_for(faulty)))
            else:
                paths += [file.path for file in command.files]
                self.applied.append((future, None))
        return paths

    def answer(self, problem: RerailError | None = None) -> None:
        """Answer the applied commands, which are durable unless there is a problem."""
        applied, self.applied = self.applied, []
        for future, refusal in applied:
            error = problem or refusal
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)

    def stop(self) -> None:
        for _, future in self.waiting:
            if not future.done():
                future.set_exception(Ended(tell("refuse.run.stopped_before")))
        if self.applied:
            self.answer(StoreError(tell("refuse.run.action_not_recorded")))


class SideTasks:
    """The deferred and the running pieces of work of one run."""

    def __init__(self, ended: Callable[[BaseException | None], None]) -> None:
        """``ended`` is called when a piece of work ends, with its error if it has one."""
        self._ended = ended
        self.deferred: dict[Key, Coroutine[Any, Any, None]] = {}
        self.running: dict[Key, asyncio.Task[None]] = {}

    def defer(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        """Start a piece of work after the next commit, unless it is under way already."""
        if key in self.running or key in self.deferred:
            work.close()
        else:
            self.deferred[key] = work

    def start_deferred(self) -> None:
        """Start the deferred work; everything recorded before is durable."""
        due, self.deferred = self.deferred, {}
        for key, work in due.items():
            self.running[key] = task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(partial(self._done, key))

    def _done(self, key: Key, task: asyncio.Task[None]) -> None:
        self.running.pop(key, None)
        self._ended(None if task.cancelled() else task.exception())

    def cancel_looks(self) -> None:
        """Cancel the looks at effects: they may take as long as a call, and the next owner repeats them."""
        for key, task in self.running.items():
            if key[0] == "verify":
                task.cancel()

    def stop(self) -> None:
        """Cancel running work, and drop deferred work."""
        for task in self.running.values():
            task.cancel()
        for work in self.deferred.values():
            work.close()
