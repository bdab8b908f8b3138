"""Daemon threads for blocking tools, and work that a cancellation must not interrupt.

Rules of this file:
- The threads are daemons: a thread that hangs in a tool is abandoned, and never keeps the interpreter from ending.
- The pool has no upper bound, because the engine bounds the calls under way. A call in a pool's queue would count its
  wait as its own time.
- Every error of a tool comes back as an exception that is safe to await.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, ParamSpec, TypeVar

from rerail.i18n import tell

P = ParamSpec("P")
T = TypeVar("T")

_KEEP_SECONDS = 30.0


class Escaped(Exception):
    """A tool raised an error that would end more than its own call, such as SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(_words(error))
        self.__cause__ = error
        # The history records the failure under the name of the original error.
        self.type_names = tuple(kind.__qualname__ for kind in type(error).__mro__ if kind is not object)


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return tell("error.SYSTEM_EXIT", status=error.code)
    said = f": {error}" if str(error) else ""
    return tell("error.thread.raised", name=type(error).__name__, said=said)


def carried(error: BaseException) -> Exception:
    """Return the error, or a wrapper if awaiting it would stop the loop or look like a cancellation."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return Escaped(error)


class _Job(Generic[T]):
    """One call and the future of its result."""

    __slots__ = ("_call", "_context", "_error", "_future", "_loop", "_output")

    def __init__(self, call: Callable[[], T], future: asyncio.Future[T]) -> None:
        self._call = call
        self._future = future
        self._loop = future.get_loop()
        self._context = contextvars.copy_context()
        self._output: T | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._output = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001  # no frame above this one could report it
            self._error = carried(error)

    def deliver(self) -> None:
        # After the loop closed, no task waits for the answer.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # Cancelled means abandoned: an abandoned call's answer has no reader.
        if self._future.cancelled():
            return
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._output)  # type: ignore[arg-type]  # None only where T allows it


class ThreadPool:
    """Daemon threads, started on demand and reused."""

    __slots__ = ("_idle", "_keep_seconds", "_lock", "_started", "size")

    def __init__(self, keep_seconds: float = _KEEP_SECONDS) -> None:
        self._keep_seconds = keep_seconds
        self.reset()

    def reset(self) -> None:
        """Forget all threads: after a fork they are the parent's."""
        self.size = 0
        self._started = 0
        self._lock = threading.Lock()
        # Last in, first out, so that surplus threads grow old and end.
        self._idle: list[queue.SimpleQueue[_Job[Any]]] = []

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in a thread, in the caller's contextvars; cancelling abandons the call."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._dispatch(_Job(lambda: fn(*args, **kwargs), future))
        return await future

    def _dispatch(self, job: _Job[Any]) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = self._start()
        inbox.put(job)

    def _start(self) -> queue.SimpleQueue[_Job[Any]]:
        inbox: queue.SimpleQueue[_Job[Any]] = queue.SimpleQueue()
        with self._lock:
            self._started += 1
            name = f"rerail-tool-{self._started}"
        threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()
        with self._lock:
            self.size += 1
        return inbox

    def _work(self, inbox: queue.SimpleQueue[_Job[Any]]) -> None:
        while (job := self._next(inbox)) is not None:
            job.run()
            # Idle before the answer is out: the next call of the same chain reuses this thread.
            with self._lock:
                self._idle.append(inbox)
            job.deliver()
            del job  # an idle thread would keep the last output alive

    def _next(self, inbox: queue.SimpleQueue[_Job[Any]]) -> _Job[Any] | None:
        try:
            return inbox.get(timeout=self._keep_seconds)
        except queue.Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self.size -= 1
                    return None
        # A caller has just taken this thread from the idle ones: its job is on its way.
        return inbox.get()


THREADS: Final = ThreadPool()
os.register_at_fork(after_in_child=THREADS.reset)


# -- Work that a cancellation must not interrupt ------------------------------------------------------------------


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Finish the work; return its result, and whether the caller was cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            # Not the task's exception here: that would look like the caller's own cancellation.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


async def finished(work: Coroutine[Any, Any, object]) -> None:
    """Finish the work, then let a cancellation that came meanwhile take effect."""
    _, cancelled = await uninterrupted(work)
    if cancelled:
        raise asyncio.CancelledError
