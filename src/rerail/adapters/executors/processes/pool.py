"""Worker processes for killable tools: `@tool(isolated=True)` (contract X4).

Rules of this file:
- A worker serves one call at a time and is kept for the next one. Cancelling a call kills its worker and the worker's
  children: TERM, a short grace for cleanup, then KILL. The call ends when the worker is gone.
- A worker that dies in the middle of a call leaves a lost answer, never a silent failure.
- Threads read the pipes, not the event loop, so that warm workers outlive the loop that first needed them.
- Every worker is waited for: no zombies.
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

from rerail.adapters.executors.carrying import IMPORTS, unguarded
from rerail.adapters.executors.processes.protocol import Target, owner_answer, pack, revive, target_of, unpack
from rerail.adapters.executors.threads import THREADS, finished
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell

__all__ = ["GRACE", "PROCESSES", "ProcessPool", "Target", "WorkerDied", "target_of"]

# -P: a file in the working folder that is named like a standard module must not shadow it.
COMMAND: Final = (sys.executable, "-P", "-m", "rerail.adapters.executors.processes.child")
GRACE: Final = 1.0
_TRIES: Final = 3

Listen = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class WorkerDied(Exception):
    """The worker died in the middle of a call; the effect is unknown."""

    code = "ANSWER_LOST"
    unanswered = True


class _NotBegun(Exception):
    """The worker died before it read the request, so the tool was not called."""


class _Worker:
    """One child process; all methods block."""

    def __init__(self, limits: str) -> None:
        self.limits = limits
        command = (*COMMAND, limits) if limits else COMMAND
        # A session of its own: the parent handles Ctrl-C of a terminal, and one signal reaches the whole group.
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
        """Send one request and read its answer; meanwhile forward messages and answer questions."""
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
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "unknown"  # it lives, but its pipe is closed
        known = {-number: number.name for number in signal.Signals}
        return known.get(status, str(status))

    def stop(self) -> None:
        """Close an idle worker's pipes: it then ends by itself."""
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill(grace=0)
        self.close()

    def kill(self, grace: float = GRACE) -> None:
        """End the worker and its children, and wait for the end."""
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
        """Close the pipes; only from the reading thread, or while the worker is idle."""
        for pipe in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                pipe.close()


class _Call:
    """One call under way: run in a thread, abandoned from another."""

    def __init__(self, pool: ProcessPool, request: bytes, listen: Listen, limits: str) -> None:
        self._pool = pool
        self._limits = limits
        self._request = request
        self._listen = listen
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._abandoned = False

    def run(self) -> dict[str, Any]:
        """Return the worker's answer; silently replace a worker that died while idle."""
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
        """Kill the worker; return when it is gone."""
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
        """Return True if the worker is reusable; from here on this call cannot kill it."""
        with self._lock:
            self._worker = None
            return not self._abandoned

    def _drop(self, worker: _Worker) -> None:
        self._let_go()
        worker.kill(grace=0)
        worker.close()
        self._pool.forget(worker)


class ProcessPool:
    """Worker processes, started on demand; a few stay warm."""

    def __init__(self, keep: int = 4) -> None:
        self._keep = keep
        self.reset()
        # Idle workers notice the end of this process by themselves; busy ones are killed at once.
        atexit.register(self._end)

    def reset(self) -> None:
        """Forget all workers: after a fork they are the parent's."""
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    async def call(self, target: Target, args: Mapping[str, Any], ctx: Any = None, limits: str = "") -> Any:
        """Call the function in a worker; raise its error or `WorkerDied`. Cancelling kills the worker.

        ``limits`` is JSON for `limits.apply`.
        """
        if IMPORTS:
            raise unguarded()
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
        if ctx is not None and answer["added"]:
            ctx.add(answer["added"])
        return answer["value"]

    async def close(self) -> None:
        """End idle workers. Busy ones belong to their calls, and end when these are cancelled."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            await finished(THREADS.run(self._retire, worker))

    def pids(self) -> list[int]:
        with self._lock:
            return sorted(worker.pid for worker in self._all if worker.is_alive())

    def take(self, limits: str = "") -> _Worker:
        """Return an idle worker with these limits, or a new one; blocks."""
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
        """Give a worker back to the pool; end a surplus one without delaying the answer."""
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
        # The worker must import what this process can: sys.path may have grown since the worker's start.
        return pack({"target": where, "args": args, "context": context, "path": sys.path, "cwd": os.getcwd()})
    except (TypeError, ValueError, OverflowError) as error:
        told = tell("error.worker.args_not_json", target=target, error=error)
        raise ToolError(told, code="ARGS_INVALID", lost=False) from error


def _listener(ctx: Any) -> Listen:
    def listen(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if message["kind"] == "owner":
            return {"answer": message["question"], **owner_answer(ctx)}
        if ctx is not None and message["kind"] == "log":
            ctx.log(message["message"])
        elif ctx is not None and message["kind"] == "progress":
            ctx.progress(message["fraction"], message["message"])
        return None

    return listen


PROCESSES: Final = ProcessPool()
os.register_at_fork(after_in_child=PROCESSES.reset)
