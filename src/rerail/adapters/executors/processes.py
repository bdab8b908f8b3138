"""Processes for tools that must be killable: `@tool(isolated=True)` (SPEC X4).

Rules of this file:
- A worker serves one call at a time and is kept for the next one. Cancelling a call kills its worker: TERM, a short
  grace in which a tool may clean up, then KILL, its children included; the call ends when the worker is gone.
- A worker that dies in the middle of a call leaves a lost answer, never a silent failure.
- Pipes are read by threads and not by the event loop, so that warm workers outlive the loop that first needed them.
- Every worker that was started is waited for: no zombies.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from rerail.adapters.executors import asking
from rerail.adapters.executors.endings import finished
from rerail.adapters.executors.frames import Target, pack, revive, target_of, unpack
from rerail.adapters.executors.threads import THREADS
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell

__all__ = ["GRACE", "PROCESSES", "ProcessPool", "Target", "WorkerDied", "target_of"]

# -P: a file in the working folder that is named like a standard module must not be taken for it.
COMMAND: Final = (sys.executable, "-P", "-m", "rerail.adapters.executors.worker")
GRACE: Final = 1.0
_TRIES: Final = 3

Listen = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class WorkerDied(Exception):
    """The worker process ended in the middle of a call; whether the tool did its work is not known."""

    code = "ANSWER_LOST"
    unanswered = True


class _NotBegun(Exception):
    """The worker had gone before it took the request up, so the tool has not been called."""


class _Worker:
    """One child process; all methods block."""

    def __init__(self, limits: str) -> None:
        self.limits = limits
        command = (*COMMAND, limits) if limits else COMMAND
        # A session of its own: Ctrl-C in a terminal is for the parent to handle, and one signal reaches all in it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def greet(self) -> None:
        """Wait until the worker is ready; RuntimeError if it never is."""
        if unpack(self._replies) is None:
            self.kill()
            self.close()
            raise NotDone(RuntimeError(tell("error.worker.not_started", status=self._process.returncode)))

    def ask(self, request: bytes, listen: Listen) -> dict[str, Any]:
        """Send one request and read until its answer; pass on what is said, and answer what is asked, meanwhile."""
        try:
            self._requests.write(request)
            self._requests.flush()
            self._read()  # "begun"
        except (OSError, WorkerDied) as error:
            raise _NotBegun from error
        while True:
            message = self._read()
            if message["kind"] in ("result", "error"):
                return message
            if (answer := listen(message)) is not None:
                self._tell(answer)

    def _tell(self, answer: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it died, which the next message says
            self._requests.write(pack(answer))
            self._requests.flush()

    def _read(self) -> dict[str, Any]:
        try:
            message = unpack(self._replies)
        except msgspec.DecodeError as error:
            raise WorkerDied(tell("error.worker.unreadable", pid=self.pid)) from error
        if message is None:
            raise WorkerDied(tell("error.WORKER_DIED", status=self._end()))
        return message

    def _end(self) -> str:
        """How the process ended: its exit status, or the signal that killed it."""
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "unknown"  # it lives, but nobody hears it any more
        known = {-number: number.name for number in signal.Signals}
        return known.get(status, str(status))

    def stop(self) -> None:
        """End an idle worker: it ends by itself when nobody can ask it any more."""
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill(grace=0)
        self.close()

    def kill(self, grace: float = GRACE) -> None:
        """End the worker and whatever it started, and wait until it has ended."""
        if grace > 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # The group may outlive the worker: a tool's own children are in it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Let go of the pipes; only the thread that reads may do that, or nobody if the worker is idle."""
        for pipe in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                pipe.close()


class _Call:
    """One call on its way: run in a thread, abandoned from another."""

    def __init__(self, pool: ProcessPool, request: bytes, listen: Listen, limits: str) -> None:
        self._pool = pool
        self._limits = limits
        self._request = request
        self._listen = listen
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._abandoned = False

    def run(self) -> dict[str, Any]:
        """The worker's answer; a worker that died while it was idle is replaced without a word."""
        for _ in range(_TRIES):
            worker = self._pool.take(self._limits)
            if not self._hold(worker):
                self._pool.give(worker)
                break
            try:
                answer = worker.ask(self._request, self._listen)
            except BaseException as error:
                self._drop(worker)
                if self._abandoned or not isinstance(error, _NotBegun):
                    raise
            else:
                if self._let_go():
                    self._pool.give(worker)
                else:
                    self._drop(worker)
                return answer
        raise NotDone(RuntimeError(tell("error.worker.short_lived")))

    def abandon(self) -> None:
        """Kill the worker; returns when it is gone."""
        with self._lock:
            self._abandoned = True
            worker = self._worker
        if worker is not None:
            worker.kill()

    def _hold(self, worker: _Worker) -> bool:
        with self._lock:
            self._worker = None if self._abandoned else worker
            return not self._abandoned

    def _let_go(self) -> bool:
        """Whether the worker is still good for others; from here on it cannot be killed on account of this call."""
        with self._lock:
            self._worker = None
            return not self._abandoned

    def _drop(self, worker: _Worker) -> None:
        self._let_go()
        worker.kill(grace=0)
        worker.close()
        self._pool.forget(worker)


class ProcessPool:
    """Worker processes, started on demand; a few are kept warm."""

    def __init__(self, keep: int = 4) -> None:
        """Take how many idle workers are kept."""
        self._keep = keep
        self.reset()
        # Idle workers would notice the end of this process by themselves; busy ones are not given the time.
        atexit.register(self._end)

    def reset(self) -> None:
        """Forget all workers: after a fork they are the parent's."""
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    async def call(self, target: Target, args: Mapping[str, Any], ctx: Any = None, limits: str = "") -> Any:
        """Call the function in a worker; raises what it raised, or `WorkerDied`. Cancelling kills the worker.

        ``limits`` is JSON for `confine.apply`.
        """
        call = _Call(self, _request(target, args, ctx), _listener(ctx), limits)
        try:
            answer = await THREADS.run(call.run)
        except asyncio.CancelledError:
            await finished(THREADS.run(call.abandon))
            raise
        spent = answer.get("usage")
        if ctx is not None and spent:
            ctx.usage(**spent)
        if answer["kind"] == "error":
            raise revive(answer["error"])
        return answer["value"]

    async def close(self) -> None:
        """End the workers that are idle. Busy ones belong to their calls, and end when these are cancelled."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            await finished(THREADS.run(self._retire, worker))

    def pids(self) -> list[int]:
        """The processes there are now."""
        with self._lock:
            return sorted(worker.pid for worker in self._all if worker.is_alive())

    def take(self, limits: str = "") -> _Worker:
        """An idle worker with these limits, or a new one; blocks."""
        while True:
            with self._lock:
                worker = next((one for one in reversed(self._idle) if one.limits == limits), None)
                if worker is not None:
                    self._idle.remove(worker)
            if worker is None:
                return self._start(limits)
            if worker.is_alive():
                return worker
            worker.close()
            self.forget(worker)

    def _start(self, limits: str) -> _Worker:
        worker = _Worker(limits)
        with self._lock:
            self._all.add(worker)
        try:
            worker.greet()
        except BaseException:
            self.forget(worker)
            raise
        return worker

    def give(self, worker: _Worker) -> None:
        """Take a worker back; a surplus one ends, and nobody's answer waits for that."""
        with self._lock:
            kept = len(self._idle) < self._keep
            if kept:
                self._idle.append(worker)
        if not kept:
            threading.Thread(target=self._retire, args=(worker,), daemon=True).start()

    def _retire(self, worker: _Worker) -> None:
        worker.stop()
        self.forget(worker)

    def forget(self, worker: _Worker) -> None:
        """The worker has ended."""
        with self._lock:
            self._all.discard(worker)

    def _end(self) -> None:
        with self._lock:
            left, idle = list(self._all), set(self._idle)
        for worker in left:
            worker.kill(grace=0)
            if worker in idle:
                worker.close()


def _request(target: Target, args: Mapping[str, Any], ctx: Any) -> bytes:
    where = {"module": target.module, "qualname": target.qualname, "file": target.file}
    context = None if ctx is None else ctx.to_dict()
    try:
        # What this process can import, the worker can: sys.path may have grown since it was started.
        return pack({"target": where, "args": args, "context": context, "path": sys.path, "cwd": os.getcwd()})
    except (TypeError, ValueError, OverflowError) as error:
        told = tell("error.worker.args_not_json", target=target, error=error)
        raise ToolError(told, code="ARGS_INVALID", lost=False) from error


def _listener(ctx: Any) -> Listen:
    def listen(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if message["kind"] == "owner":
            return {"answer": message["question"], **asking.answer(ctx)}
        if ctx is not None and message["kind"] == "log":
            ctx.log(message["message"])
        elif ctx is not None and message["kind"] == "progress":
            ctx.progress(message["fraction"], message["message"])
        return None

    return listen


PROCESSES: Final = ProcessPool()
os.register_at_fork(after_in_child=PROCESSES.reset)
