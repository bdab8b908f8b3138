"""One call of a tool on a Ray node, and its messages meanwhile (contract I6).

Rules of this file:
- The answer is JSON: a result, or an exception in the form of `processes.protocol`. Only Ray's own failures are raised.
- A quick call's messages travel with its answer. For a longer call, a thread reports its beginning and sends its
  messages every moment. So most calls cost no message at all.
- A call begins when its tool does: finding the tool (its imports) is not its time. A mailbox can die with its content,
  so a long call repeats that it has begun, and the answer says so for the last time.
- Ray stops a call by setting an interrupt for the main thread, where the tool is. That alone wakes no sleeping call, so
  another thread sends the signal after it; the tool's `finally` blocks run.
- The lease question goes through the mailbox to the program that made the call (contract E11).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from rerail.adapters.executors.carrying import unpacked
from rerail.adapters.executors.processes.protocol import OwnerAnswer, ask_owner, describe, dump, not_owned
from rerail.adapters.executors.threads import carried
from rerail.context import Context
from rerail.errors import ToolError
from rerail.i18n import tell

EVERY: Final = 0.1  # seconds between two flushes of a call's messages
LONG: Final = 0.2  # seconds after which a call counts as long
AGAIN: Final = 2.0  # seconds between two reports that a call has begun


class RayCall:
    """One call under way in this process."""

    def __init__(self, name: str, mailbox: str, namespace: str) -> None:
        self.name = name
        self._mailbox, self._namespace = mailbox, namespace
        self._began: float | None = None
        self._announced = 0.0  # when the beginning was last reported
        self._lock = threading.Lock()
        self._unsaid: list[Mapping[str, Any]] = []
        self._told = 0  # messages sent before the answer
        self._over = False
        self.interrupted = False

    def begin(self) -> None:
        """Mark the beginning: from here on the tool may have had an effect."""
        self._began = time.monotonic()

    def say(self, kind: str, said: Mapping[str, Any]) -> None:
        """Keep the tool's message until the next flush."""
        with self._lock:
            if not self._over:  # a thread that the tool left behind has no message for the present call
                self._unsaid.append({"kind": kind, **said})

    def ensure_owner(self) -> None:
        """Ask the caller whether it owns the run; from any thread of the tool."""
        ask_owner(self._question)

    def _question(self, seconds: float) -> OwnerAnswer | None:
        if self._over:
            raise not_owned("CALL_OVER")
        import ray

        try:
            box = _box(self._mailbox, self._namespace)
            found = ray.get(box.ask.remote(self.name, secrets.token_hex(8), seconds), timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            return None
        except (ray.exceptions.RayError, ValueError):  # the mailbox may restart beside its owner
            time.sleep(EVERY)
            return None
        answer: OwnerAnswer | None = None if found is None else msgspec.json.decode(found)
        return answer

    def look(self) -> None:
        """Send a long call's messages to the caller; from another thread."""
        now, began = time.monotonic(), self._began
        with self._lock:
            if self._over or began is None or now - began < LONG:
                return
            words, self._unsaid = self._unsaid, []
            self._told += bool(words)
            number = self._told
        box = _box(self._mailbox, self._namespace)
        if now - self._announced >= AGAIN:
            self._announced = now
            box.tell.remote(self.name, 0, dump({"said": [{"kind": "begun", "seconds": now - began}]}))
        if words:
            box.tell.remote(self.name, number, dump({"said": words}))

    def end(self) -> dict[str, Any]:
        """Return the remaining messages for the answer; later ones are dropped."""
        with self._lock:
            self._over = True
            seconds = None if self._began is None else time.monotonic() - self._began
            return {"said": self._unsaid, "told": self._told, "seconds": seconds}


class _Herald:
    """Two threads that watch this process's call, for the life of the process."""

    def __init__(self) -> None:
        self.call: RayCall | None = None
        self._signals: tuple[socket.socket, socket.socket] | None = None

    def follow(self, call: RayCall) -> None:
        """Watch this call; from the main thread."""
        self.call = call
        if self._signals is None:
            theirs, ours = self._signals = socket.socketpair()
            theirs.setblocking(False)
            signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGINT, self._interrupted)
            for name, work in (("signals", functools.partial(self._pass_on, ours)), ("words", self._look)):
                threading.Thread(target=work, name=f"rerail-{name}", daemon=True).start()

    def _interrupted(self, number: int, frame: Any) -> None:
        call = self.call
        if call is None:
            signal.default_int_handler(number, frame)
        elif not call.interrupted:  # once: the tool cleans up
            call.interrupted = True
            raise KeyboardInterrupt

    def _pass_on(self, signals: socket.socket) -> None:
        main = threading.main_thread().ident or 0
        while told := signals.recv(4096):
            call = self.call
            if signal.SIGINT in told and call is not None and not call.interrupted:
                signal.pthread_kill(main, signal.SIGINT)

    def _look(self) -> None:
        while True:
            time.sleep(EVERY)
            call = self.call
            if call is not None:
                with contextlib.suppress(Exception):  # no listener: the answer is what counts
                    call.look()


HERALD: Final = _Herald()
_boxes: dict[str, Any] = {}


def _box(name: str, namespace: str) -> Any:
    """Return the mailbox of the calling program."""
    if name not in _boxes:
        import ray

        _boxes[name] = ray.get_actor(name, namespace=namespace)
    return _boxes[name]


def perform(asking: bytes) -> bytes:
    """Make one call and answer; every outcome of the tool is an answer."""
    tool, request, name, mailbox, namespace = msgspec.msgpack.decode(asking)
    asked = msgspec.json.decode(request)
    call = RayCall(name, mailbox, namespace)
    ctx = Context(**asked["context"], sink=call.say, owner=call.ensure_owner)
    HERALD.follow(call)
    try:
        with _interruptible():
            answer = {"kind": "result", "value": _called(unpacked(tool), asked["args"], ctx, call)}
    except BaseException as error:  # noqa: BLE001  # an interrupt too: its sender does not wait for the answer
        if isinstance(error, KeyboardInterrupt):
            ctx.cancelled.set()  # for threads of the tool's own
        answer = {"kind": "error", "error": describe(carried(error))}
    HERALD.call = None
    rest = {"usage": ctx.spent(), "added": ctx.end(), **call.end()}
    try:
        return dump({**answer, **rest})
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        refusal = ToolError(tell("error.worker.output_not_json", error=error), code="OUTPUT_NOT_JSON", lost=True)
        return dump({"kind": "error", "error": describe(refusal), **rest})


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Unblock the signal that ends a call: Ray blocks it in its workers."""
    held = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _called(tool: Any, args: dict[str, Any], ctx: Context, call: RayCall) -> Any:
    from rerail.adapters.tools.functions import FunctionTool
    from rerail.adapters.tools.spec import is_async, settled

    call.begin()
    if not isinstance(tool, FunctionTool):
        return asyncio.run(tool.call(args, ctx))
    output = tool.fn(**tool.bind(args, ctx))
    return settled(asyncio.run(output) if is_async(tool.fn) else output)


class Mailbox:
    """Messages of calls under way until their caller takes them; an actor beside the caller."""

    def __init__(self) -> None:
        self._said: list[tuple[str, int, bytes]] = []
        self._news = asyncio.Event()
        self._questions: dict[str, asyncio.Future[bytes]] = {}

    async def tell(self, name: str, number: int, words: bytes) -> None:
        self._said.append((name, number, words))
        self._news.set()

    async def ask(self, name: str, question: str, seconds: float) -> bytes | None:
        """Ask the program that made a call whether it owns the run; None if it does not answer in time."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[question] = answer
        await self.tell(name, 0, dump({"said": [{"kind": "owner", "question": question}]}))
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._questions[question]

    async def answer(self, question: str, words: bytes) -> None:
        """Store that program's answer; ignore a late one."""
        if (waiting := self._questions.get(question)) is not None and not waiting.done():
            waiting.set_result(words)

    async def hear(self, seconds: float) -> list[tuple[str, int, bytes]]:
        """Take all messages, once there is one or on timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        said, self._said = self._said, []
        return said
