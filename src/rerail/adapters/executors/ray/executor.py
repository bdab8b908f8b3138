"""Calls as Ray tasks: one task per attempt, never repeated by Ray (contract I6, X4; extra `ray`).

Rules of this file:
- `max_retries=0`: the ladder decides on another attempt, never Ray.
- A call's time begins when its tool does. Waiting for room in the cluster has a limit of its own, and a call that never
  began is not in doubt.
- Losing the carrier of an answer (a worker, a node, an object, the cluster) is a lost answer. A failure before the task
  is handed over is not.
- A lost cluster must not end this process, as Ray would after a minute: the executor disconnects before that, and the
  next call connects again. The connection is the process's: its engines see by its generation that it is another one.
- A cancelled call is interrupted, and killed if that does not end it in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import ray
from ray import exceptions as problems
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rerail.adapters.executors.carrying import NotCarried, carried
from rerail.adapters.executors.processes.protocol import dump, owner_answer, revive
from rerail.adapters.executors.ray.task import Mailbox, perform
from rerail.adapters.executors.threads import finished
from rerail.codes import Category
from rerail.context import excerpt
from rerail.errors import NotDone, RateLimited, RerailError, ToolError
from rerail.i18n import tell
from rerail.ports import Begun, NotBegun, Tool

GRACE: Final = 1.0  # seconds of an interrupted call to end by itself
CATCH_UP: Final = 2.0  # seconds that an answer waits for the messages before it
CONNECT: Final = 5.0  # seconds to connect to the cluster's address
WATCH: Final = 2.0  # seconds between two checks of the cluster's head
AWAY: Final = 5.0  # seconds until a step looks again for a cluster that is away
LISTEN: Final = 30.0  # seconds of one poll of the mailbox
NAMESPACE: Final = "rerail"
# The resources that Ray itself counts; any other is one that the nodes declare.
COUNTED: Final = {"cpu": "num_cpus", "gpu": "num_gpus", "memory": "memory"}


class RayAnswerLost(ToolError):
    """A worker, node or object of the cluster is gone; the effect is unknown."""

    lost, ended, unanswered = True, False, True

    def __init__(self, message: str) -> None:
        super().__init__(message, "ANSWER_LOST", Category.TRANSIENT)


class NoRoom(ToolError):
    """The cluster had no room for a call within the time allowed; its tool was not called."""

    lost = False

    def __init__(self, seconds: float, wanted: Mapping[str, float]) -> None:
        shown = ", ".join(f"{name} {amount:g}" for name, amount in wanted.items()) or "cpu"
        super().__init__(tell("error.ray.no_room", seconds=seconds, wanted=shown), "NO_ROOM", Category.TRANSIENT)


class Refusing(ToolError):
    """The cluster rejected the call; its tool was not called."""

    lost = False

    def __init__(self, error: object) -> None:
        message = tell("error.ray.refuses", error=_words(error))
        super().__init__(message, "CLUSTER_REFUSES", Category.PERMANENT)


class ClusterUnreachable(RateLimited):
    """No cluster is connected; the tool was not called, and its step waits for a cluster (contract X8)."""

    lost = False

    def __init__(self, error: object) -> None:
        super().__init__(tell("error.ray.unreachable", error=_words(error)), AWAY, "CLUSTER_UNREACHABLE")


def _words(error: object) -> str:
    text = " ".join(str(error).split())
    return excerpt(text, 500) or type(error).__name__


# -- The cluster ----------------------------------------------------------------------------------------------------


class _Joined:
    """This process's connection to a cluster, and its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._ours = False
        self.generation = 0  # of the connection: tasks, actors and references are void in the next one

    def join(self, address: str | None, env: Mapping[str, Any]) -> int:
        """Connect unless connected already; return the connection's generation. Blocks."""
        with self._lock:
            if not ray.is_initialized():
                _require_listening(address or os.environ.get("RAY_ADDRESS") or "")
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no report without consent
                with _quiet():
                    ray.init(
                        address, namespace=NAMESPACE, runtime_env=dict(env) or None, log_to_driver=False,
                        logging_level=logging.ERROR, include_dashboard=False if address == "local" else None,
                    )  # fmt: skip
                self._ours = True
            self._users += 1
            return self.generation

    def abandon(self, generation: int) -> None:
        """Drop the connection to a lost cluster, which would end this process; blocks.

        A connection that another engine dropped before is left alone: there may be a new one by now.
        """
        with self._lock:
            if generation != self.generation:
                return
            self.generation += 1
            if ray.is_initialized():
                self._ours = True  # the next one is
                ray.shutdown()

    def rejoin(self, address: str | None, env: Mapping[str, Any]) -> int:
        """Reconnect after that, unless another engine did; the same users."""
        generation = self.join(address, env)
        with self._lock:
            self._users -= 1
        return generation

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._ours:
                self._ours = False
                ray.shutdown()


def _require_listening(address: str) -> None:
    """Probe the address for a listener: Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT).close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Ray's warning on signals: a thread connects on purpose, so that Ray takes no handler over."""

    def wanted(record: logging.LogRecord) -> bool:
        return "SIGTERM" not in record.getMessage()

    log = logging.getLogger("ray._private.worker")
    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


CLUSTER: Final = _Joined()


async def join(address: str | None, env: Mapping[str, Any]) -> int:
    """Connect this process to a cluster; `RerailError` says why it cannot."""
    try:
        return await asyncio.to_thread(CLUSTER.join, address, env)
    except (OSError, RuntimeError, ValueError, problems.RayError) as error:
        shown = address or "auto"
        hint = tell("hint.ray.no_cluster")
        told = tell("refuse.ray.no_cluster", address=shown, error=_words(error))
        raise RerailError(told, "CLUSTER_UNREACHABLE", hint=hint) from error


async def leave() -> None:
    """Release the connection."""
    await asyncio.to_thread(CLUSTER.leave)


def in_rays_words(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return Ray's task options of resources: its own by name, the nodes' under `resources`."""
    options: dict[str, Any] = {}
    for name, amount in resources.items():
        if (known := COUNTED.get(name)) is not None:
            options[known] = int(amount) if known == "memory" else amount
        else:
            options.setdefault("resources", {})[name] = amount
    return options


# -- Calls ----------------------------------------------------------------------------------------------------------


Answering = Callable[[str, bytes], None]  # a question's mark, and the answer as JSON


class _Under:
    """A call under way, as its caller sees it."""

    def __init__(self, ctx: Any, begun: Callable[[float], None], answer: Answering | None = None) -> None:
        self._ctx, self._begun, self._answer = ctx, begun, answer
        self.ref: Any = None
        self.begun = False
        self.forced = False
        self.answer: asyncio.Future[bytes] | None = None
        self.gone = False  # its cluster is gone
        self.waited = False  # it waited for room beyond its limit
        self._heard: dict[int, list[dict[str, Any]]] = {}  # messages that arrived before their turn
        self._next = 1
        self._skipping: asyncio.TimerHandle | None = None
        self._news: asyncio.Event | None = None  # lazy: most calls end before any wait for their messages

    def hear(self, number: int, said: list[dict[str, Any]]) -> None:
        """Handle messages in order and once each; unnumbered ones at once."""
        if not number:
            self.listen(said)
        elif number >= self._next:
            self._heard[number] = said
            self._listen_on()

    def _listen_on(self) -> None:
        while (words := self._heard.pop(self._next, None)) is not None:
            self._next += 1
            self.listen(words)
        if self._heard and self._skipping is None:
            self._skipping = asyncio.get_running_loop().call_later(CATCH_UP, self._skip)
        if self._news is not None:
            self._news.set()

    def _skip(self) -> None:
        """Handle the messages that came; the missing ones were lost with the mailbox."""
        self._skipping = None
        if self._heard:
            self._next = min(self._heard)
            self._listen_on()

    def listen(self, said: list[dict[str, Any]]) -> None:
        for message in said:
            if message["kind"] == "begun":
                if not self.begun:  # the report is repeated
                    self.begin(message["seconds"])
            elif message["kind"] == "owner":
                if self._answer is not None:
                    self._answer(message["question"], dump(owner_answer(self._ctx)))
            elif self._ctx is not None and message["kind"] == "log":
                self._ctx.log(message["message"])
            elif self._ctx is not None:
                self._ctx.progress(message["fraction"], message["message"])

    def begin(self, seconds: float) -> None:
        self.begun = True
        self._begun(seconds)

    async def caught_up(self, told: int) -> None:
        """Wait for the messages sent before the answer; with a limit, as they may be lost."""
        self._news = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP):
                while self._next <= told:
                    self._news.clear()
                    await self._news.wait()
        self._skip()

    def close(self) -> None:
        """Close the call: no task waits for it any more."""
        if self._skipping is not None:
            self._skipping.cancel()

    def lose(self) -> None:
        """Fail the call: the cluster is gone."""
        self.gone = True
        if self.answer is not None:
            self.answer.cancel()

    def give_up(self) -> None:
        """Fail the call: the wait for room was too long."""
        if not self.begun:
            self.waited = True
            ray.cancel(self.ref, force=False)


class RayExecutor:
    """Makes calls as tasks of a Ray cluster."""

    here = False

    def __init__(
        self, address: str | None, env: Mapping[str, Any], cpus: float, max_wait: float, gone_after: float
    ) -> None:
        self.address, self.env, self.cpus, self.max_wait = address, env, cpus, max_wait
        self.gone_after = gone_after
        self._gone = self._closing = False
        self._generation = 0  # of the connection that everything below belongs to
        self._head = ""
        self._rejoining = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._carried: dict[int, tuple[Tool, bytes]] = {}
        self._under: dict[str, _Under] = {}
        self._counter = itertools.count(1)
        self._task: Any = None
        self._tasks: dict[tuple[str, tuple[tuple[str, float], ...]], Any] = {}
        self._mailbox: Any = None
        self._name = ""
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._closing = False
        self._generation = await join(self.address, self.env)
        await self._begin()
        self._watching = asyncio.create_task(self._watch())

    async def _begin(self) -> None:
        await asyncio.to_thread(self._make)  # it asks the cluster's head, which may take its time
        self._listening = asyncio.create_task(self._listen())

    def _make(self) -> None:
        self._head = ray.get_runtime_context().gcs_address
        self._name = f"mailbox-{secrets.token_hex(8)}"
        self._task, self._tasks = ray.remote(max_retries=0)(perform), {}
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self._mailbox = (
            ray.remote(Mailbox)
            .options(
                name=self._name, namespace=NAMESPACE, num_cpus=0, max_restarts=-1, max_task_retries=-1,
                max_concurrency=100, scheduling_strategy=here,
            )
            .remote()
        )  # fmt: skip

    async def close(self) -> None:
        """Release the cluster. Calls under way belong to their tasks, and end when these are cancelled."""
        if self._watching is None:
            return
        await self._ended(self._watching)
        self._watching = None
        if not self._is_gone:
            await self._empty()
        await self._ended(self._listening)
        if not self._is_gone:
            with contextlib.suppress(problems.RayError, ValueError):
                ray.kill(self._mailbox)
        await leave()

    async def _empty(self) -> None:
        """End the last poll of the mailbox: Ray complains on the screen about one that is killed under it."""
        self._closing = True
        with contextlib.suppress(problems.RayError, ValueError, RuntimeError):
            self._mailbox.tell.remote("", 0, b"")
            if self._listening is not None:
                await asyncio.wait([self._listening], timeout=GRACE)

    async def _ended(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        """Watch the cluster's head; after too long a silence, fail all calls."""
        loop = asyncio.get_running_loop()
        heard = loop.time()
        while True:
            await asyncio.sleep(WATCH)
            if self._gone or (not self._is_gone and await _answers(self._head)):
                heard = loop.time()
            elif self._is_gone or loop.time() - heard >= self.gone_after:
                await self._lose()

    @property
    def _is_gone(self) -> bool:
        """Return True if this or another executor of the process dropped the connection."""
        return self._gone or self._generation != CLUSTER.generation

    async def _lose(self) -> None:
        """Drop the cluster and fail all its calls."""
        async with self._rejoining:  # too early a reconnect would meet the lost cluster
            if self._gone:
                return
            self._gone = True
            for under in self._under.values():
                under.lose()
            await self._ended(self._listening)
            await asyncio.to_thread(CLUSTER.abandon, self._generation)

    async def _return(self) -> None:
        """Reconnect to a lost cluster; `ClusterUnreachable` if it is still gone."""
        async with self._rejoining:
            if not self._gone:
                return
            try:
                self._generation = await asyncio.to_thread(CLUSTER.rejoin, self.address, self.env)
            except (OSError, RuntimeError, ValueError, problems.RayError) as error:
                raise ClusterUnreachable(error) from error
            await self._begin()
            self._gone = False

    def takes(self, tool: Tool) -> bool:
        return not tool.stays

    def asked(self, resources: Mapping[str, float]) -> dict[str, Any]:
        """Return a step's resources as Ray takes them; without a cpu it gets the default."""
        own = {name.lower() if name.lower() in COUNTED else name: amount for name, amount in resources.items()}
        return in_rays_words({"cpu": self.cpus, **own})

    async def call(
        self, tool: Tool, args: Mapping[str, Any], ctx: Any, resources: Mapping[str, float], begun: Begun
    ) -> Any:
        """Call the tool on a node and wait; cancelling interrupts the tool, then kills it."""
        if self._is_gone:
            await self._lose()
            await self._return()
        name = f"{ctx.run}/{ctx.step}/{ctx.attempt}.{next(self._counter)}"
        under = self._under[name] = _Under(ctx, begun, self._tell)
        timer: asyncio.TimerHandle | None = None
        try:
            under.ref = self._submitted(tool, args, ctx, resources, name)
            timer = asyncio.get_running_loop().call_later(self.max_wait, under.give_up)
            answer = await self._answered(under, resources)
            if answer["told"]:
                await under.caught_up(answer["told"])
        finally:
            del self._under[name]
            under.close()
            if timer is not None:
                timer.cancel()
        under.listen(answer["said"])
        if answer["seconds"] is not None:
            under.begin(answer["seconds"])  # exact: messages take their time
        ctx.usage(**answer["usage"])
        if answer["kind"] == "error":
            error = revive(answer["error"])
            if answer["seconds"] is None:  # the node did not find the tool, and so did not call it
                raise NotDone(error) from error
            raise error
        ctx.add(answer["added"])
        return answer["value"]

    def _submitted(
        self, tool: Tool, args: Mapping[str, Any], ctx: Any, resources: Mapping[str, float], name: str
    ) -> Any:
        known = self._carried.get(id(tool))
        if known is None:
            known = self._carried[id(tool)] = (tool, carried(tool))  # the tool too, so that no other gets its id
        try:
            request = dump({"args": args, "context": ctx.to_dict()})
        except (TypeError, ValueError, OverflowError) as error:
            message = tell("error.worker.args_not_json", target=tool.spec.name, error=error)
            raise ToolError(message, code="ARGS_INVALID", lost=False) from error
        try:
            # One argument, and options made once: Ray inspects each of them with each call.
            task = self._task_for(tool.spec.name, resources)
            return task.remote(msgspec.msgpack.encode((known[1], request, name, self._name, NAMESPACE)))
        except (ValueError, TypeError) as error:
            raise Refusing(error) from error
        except (problems.RayError, OSError, RuntimeError) as error:
            raise ClusterUnreachable(error) from error

    def _task_for(self, tool: str, resources: Mapping[str, float]) -> Any:
        wanted = (tool, tuple(resources.items()))
        task = self._tasks.get(wanted)
        if task is None:
            task = self._tasks[wanted] = self._task.options(name=tool, **self.asked(resources))
        return task

    async def _answered(self, under: _Under, resources: Mapping[str, float]) -> dict[str, Any]:
        under.answer = asyncio.wrap_future(under.ref.future())
        try:
            data = await under.answer
        except asyncio.CancelledError:
            if under.gone:
                raise RayAnswerLost(tell("error.ray.gone", seconds=self.gone_after)) from None
            await finished(self._abandoned(under))
            if under.begun or under.forced or not await _never_began(under.ref):
                raise
            raise NotBegun from None
        except problems.RayError as error:
            if under.waited and type(error) is problems.TaskCancelledError:
                raise NoRoom(self.max_wait, resources) from error
            raise _meaning(error) from error
        found: dict[str, Any] = msgspec.json.decode(data)
        if under.waited and found["seconds"] is None:
            raise NoRoom(self.max_wait, resources)
        interrupted = found["kind"] == "error" and "KeyboardInterrupt" in found["error"].get("types", ())
        if interrupted or (under.waited and found["kind"] == "error"):
            # The interrupted call had begun, and the report of that was still on its way: its progress is unknown.
            # Or the interrupt was meant for the call before, in the same worker of the cluster.
            told = tell("error.ray.lost", error=found["error"].get("message", ""), kind="KeyboardInterrupt")
            raise RayAnswerLost(told)
        return found

    async def _abandoned(self, under: _Under) -> None:
        """Interrupt a call, and kill its worker if it does not end."""
        for force in (False, True):
            under.forced = force
            with contextlib.suppress(problems.RayError, ValueError, RuntimeError):
                ray.cancel(under.ref, force=force)
            ended, _ = await asyncio.wait([_future(under.ref)], timeout=GRACE)
            if ended:
                return

    def _tell(self, question: str, words: bytes) -> None:
        """Answer a call's lease question; without an answer it gets no yes."""
        with contextlib.suppress(problems.RayError, ValueError, RuntimeError):
            self._mailbox.answer.remote(question, words)

    async def _listen(self) -> None:
        """Poll the mailbox for messages of calls while the executor is open."""
        while not self._closing:
            try:
                said = await self._mailbox.hear.remote(LISTEN)
            except problems.RayError:
                await asyncio.sleep(1.0)  # it restarts beside this process, or stays gone
                continue
            for name, number, words in said:
                if (under := self._under.get(name)) is not None:
                    under.hear(number, msgspec.json.decode(words)["said"])


def _future(ref: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.wrap_future(ref.future())
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # mark the exception as seen
    return future


async def _answers(address: str) -> bool:
    """Return True if the address has a listener."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT):
            _, writer = await asyncio.open_connection(host, int(port))
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return True


async def _never_began(ref: Any) -> bool:
    """Return True if no worker ran a cancelled task, or its worker reports that it called no tool."""
    ended, _ = await asyncio.wait([future := _future(ref)], timeout=GRACE)
    if not ended:
        return False
    if (error := future.exception()) is not None:
        return type(error) is problems.TaskCancelledError  # the error is Ray's alone
    return bool(msgspec.json.decode(future.result())["seconds"] is None)


def _meaning(error: problems.RayError) -> ToolError:
    """Translate Ray's failure of a task into an error of the call."""
    if isinstance(error, problems.RuntimeEnvSetupError | problems.TaskUnschedulableError):
        return Refusing(error)
    name, said = type(error).__name__, excerpt(str(error).strip().partition("\n")[0], 300)
    return RayAnswerLost(tell("error.ray.lost", error=said or name, kind=name))


__all__ = ["NotCarried", "RayExecutor"]
