"""A worker process: reads calls from its parent, makes them, answers (`python -m rerail.adapters.executors.worker`).

Rules of this file:
- The tool owns the process's stdin, stdout and stderr; the parent is spoken to through copies it does not see.
- The main thread makes the calls, so that a TERM interrupts the tool; another thread reads, so that the parent's death
  is noticed while a tool runs, and a tool's questions to the parent are answered.
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

from rerail.adapters.executors import asking, confine
from rerail.adapters.executors.carrying import found
from rerail.adapters.executors.frames import Target, describe, pack, unpack
from rerail.adapters.executors.threads import carried
from rerail.context import Context
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell

_GRACE = 1.0


class _Terminated(BaseException):
    """The parent wants this process to end; raised inside the tool, so that its `finally` blocks run."""


class Worker:
    """Answers one call after the other until there is nobody to answer."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes]) -> None:
        self._requests = requests
        self._replies = replies
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._current: Context | None = None
        self._questions = itertools.count(1)
        self._asked: dict[int, queue.SimpleQueue[asking.Answer | None]] = {}  # None: the parent is gone
        self._asking = threading.Lock()
        self._orphaned = False

    def serve(self) -> None:
        """Work until the parent closes its end."""
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
        # Nobody would get the answer, and whoever takes over may call the tool again: it must not go on beside that.
        if self._current is not None:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        # What the tool started must not go on either; the worker's group is its own, unless somebody tries it by hand.
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
            self._send({**answer, "usage": spent})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            refusal = ToolError(tell("error.worker.output_not_json", error=error), code="OUTPUT_NOT_JSON", lost=True)
            self._send({"kind": "error", "error": describe(refusal), "usage": spent})

    def _say(self, ctx: Context, kind: str, said: Mapping[str, Any]) -> None:
        # A thread that an earlier call left behind speaks of nothing that is going on now.
        if ctx is self._current:
            self._send({"kind": kind, **said})

    def _ensure_owner(self, ctx: Context) -> None:
        """Ask the parent whether it owns the run; from any thread of the tool (E11)."""

        def question(seconds: float) -> asking.Answer | None:
            if ctx is not self._current:
                raise asking.not_owned("CALL_OVER")
            number, waiting = next(self._questions), queue.SimpleQueue[asking.Answer | None]()
            with self._asking:
                if self._orphaned:
                    raise asking.Gone
                self._asked[number] = waiting
            try:
                self._send({"kind": "owner", "question": number})
                found = waiting.get(timeout=seconds)
            except queue.Empty:
                return None
            except OSError:
                raise asking.Gone from None
            finally:
                self._asked.pop(number)
            if found is None:
                raise asking.Gone
            return found

        asking.ask(question)


def _call(request: Mapping[str, Any], ctx: Context) -> Any:
    from rerail.adapters.tools.functions import settled
    from rerail.adapters.tools.specs import is_async

    os.chdir(request["cwd"])  # an earlier tool may have gone elsewhere
    try:
        tool = _find(request["target"], request["path"])
    except Exception as error:  # importing a module of the user's may raise anything; nothing was called
        raise NotDone(error) from error
    kwargs = tool.bind(request["args"], ctx)
    output = tool.fn(**kwargs)
    return settled(asyncio.run(output) if is_async(tool.fn) else output)


def _find(target: Mapping[str, str], path: list[str]) -> Any:
    """The tool as this process knows it."""
    sys.path += [folder for folder in path if folder not in sys.path]
    return found(Target(**target))


def main() -> None:
    """Keep the pipes to the parent out of the tool's reach, and serve."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # what a tool prints is for people, and must not corrupt the answers
    if len(sys.argv) > 1:
        confine.apply(msgspec.json.decode(sys.argv[1]))  # whatever goes wrong: the parent hears of no worker
    try:
        Worker(requests, replies).serve()
    except (_Terminated, BrokenPipeError):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # Not sys.exit: threads that the tool left behind would keep the process alive.
        os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
