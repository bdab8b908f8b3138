"""Worker process for isolated calls: read calls from the parent, make them, answer.

Started as `python -m rerail.adapters.executors.processes.child`.

Rules of this file:
- The tool owns the process's stdin, stdout and stderr; the worker talks to its parent over hidden copies.
- The main thread makes the calls, so that a TERM interrupts the tool. Another thread reads: it notices the parent's
  death during a call, and it receives the answers to a tool's questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, Any, NoReturn

import msgspec

from rerail.adapters.executors.carrying import found
from rerail.adapters.executors.processes import limits as confine
from rerail.adapters.executors.processes.protocol import (
    OwnerAnswer,
    OwnerGone,
    Target,
    ask_owner,
    describe,
    not_owned,
    pack,
    unpack,
)
from rerail.adapters.executors.threads import carried
from rerail.context import Context
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell

_GRACE = 1.0


class _Terminated(BaseException):
    """The parent ends this process; raised inside the tool, so that its `finally` blocks run."""


class CallWorker:
    """Serves calls one after the other until the parent is gone."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes]) -> None:
        self._requests = requests
        self._replies = replies
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._current: Context | None = None
        self._questions = itertools.count(1)
        self._asked: dict[int, queue.SimpleQueue[OwnerAnswer | None]] = {}  # None: the parent is gone
        self._asking = threading.Lock()
        self._orphaned = False

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._terminate)
        threading.Thread(target=self._read, name="rerail-reader", daemon=True).start()
        self._send({"kind": "ready"})
        while (request := self._inbox.get()) is not None:
            self._answer(request)

    def _terminate(self, number: int, frame: object) -> NoReturn:
        if self._current is not None:
            self._current.cancelled.set()
        raise _Terminated

    def _read(self) -> None:
        while (message := unpack(self._requests)) is not None:
            if "answer" not in message:
                self._inbox.put(message)
            elif (waiting := self._asked.get(message["answer"])) is not None:
                waiting.put(message)
        self._inbox.put(None)
        with self._asking:
            self._orphaned = True
            for waiting in list(self._asked.values()):
                waiting.put(None)
        # The answer has no reader any more, and after a takeover another owner may call the tool again: this call must
        # not go on beside that one.
        if self._current is not None:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        # The tool's children must end too; the worker has its own group, unless it was started by hand.
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def _send(self, message: Mapping[str, Any]) -> None:
        data = pack(message)
        with self._sending:
            self._replies.write(data)
            self._replies.flush()

    def _answer(self, request: Mapping[str, Any]) -> None:
        self._send({"kind": "begun"})  # from here on the tool may have been called
        self._current = ctx = Context(
            **(request["context"] or {}),
            sink=lambda kind, said: self._say(ctx, kind, said),
            owner=lambda: self._ensure_owner(ctx),
        )
        try:
            answer = {"kind": "result", "value": _call(request, ctx)}
        except _Terminated:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever the tool raises is its answer
            answer = {"kind": "error", "error": describe(carried(error))}
        self._current = None
        spent = ctx.spent()
        try:
            self._send({**answer, "usage": spent, "added": ctx.end()})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            refusal = ToolError(tell("error.worker.output_not_json", error=error), code="OUTPUT_NOT_JSON", lost=True)
            self._send({"kind": "error", "error": describe(refusal), "usage": spent})

    def _say(self, ctx: Context, kind: str, said: Mapping[str, Any]) -> None:
        # A thread left behind by an earlier call has no message for the present one.
        if ctx is self._current:
            self._send({"kind": kind, **said})

    def _ensure_owner(self, ctx: Context) -> None:
        """Ask the parent whether it owns the run; from any thread of the tool (contract E11)."""

        def question(seconds: float) -> OwnerAnswer | None:
            if ctx is not self._current:
                raise not_owned("CALL_OVER")
            number, waiting = next(self._questions), queue.SimpleQueue[OwnerAnswer | None]()
            with self._asking:
                if self._orphaned:
                    raise OwnerGone
                self._asked[number] = waiting
            try:
                self._send({"kind": "owner", "question": number})
                found = waiting.get(timeout=seconds)
            except queue.Empty:
                return None
            except OSError:
                raise OwnerGone from None
            finally:
                self._asked.pop(number)
            if found is None:
                raise OwnerGone
            return found

        ask_owner(question)


def _call(request: Mapping[str, Any], ctx: Context) -> Any:
    from rerail.adapters.tools.spec import is_async, settled

    os.chdir(request["cwd"])  # an earlier tool may have changed it
    try:
        sys.path += [folder for folder in request["path"] if folder not in sys.path]
        tool = found(Target(**request["target"]))
    except (Exception, SystemExit) as error:  # importing a user's module may raise anything; no tool was called
        raise NotDone(carried(error)) from error
    kwargs = tool.bind(request["args"], ctx)
    output = tool.fn(**kwargs)
    return settled(asyncio.run(output) if is_async(tool.fn) else output)


def main() -> None:
    """Hide the pipes to the parent from the tool, and serve."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # a tool's prints must not corrupt the answers
    if len(sys.argv) > 1:
        confine.apply(msgspec.json.decode(sys.argv[1]))  # on failure the parent never sees this worker ready
    try:
        CallWorker(requests, replies).serve()
    except (_Terminated, BrokenPipeError):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # Not sys.exit: threads that the tool left behind would keep the process alive.
        os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
