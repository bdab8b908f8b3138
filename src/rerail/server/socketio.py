"""Socket.IO: a run's events, and the messages of chat front ends, for subscribers (contract I3).

Rules of this file:
- Sockets replay nothing by themselves. Each subscription has a position in a run's history, as a stream has, and takes
  the events after it: a late one gets everything once, in order.
- A socket's own queue is kept short: the store holds what a slow reader has not taken. A socket that takes no data for
  too long is told so and disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
import socketio  # type: ignore[import-untyped]
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.server.errors import answer, problem, problem_of
from rerail.server.feeds.runs import EncodedEvent, TooSlow
from rerail.server.json import encode
from rerail.server.schemas import MOST
from rerail.server.security import bearer
from rerail.server.state import ServerState
from rerail.views.chat_messages import ToolMessages

WINDOW = 128  # messages that may wait in a socket's queue
POLLED = 8  # the same, where a client asks again and again: some take no more than 16 at once
PATIENCE = 30.0  # seconds that a socket may take nothing
MOST_SUBSCRIPTIONS = 50  # of one socket
MOST_UNNAMED = 50  # connections without a token so far; fewer than a server has room for beside its readers
MOST_BEGUN = 1000  # sessions without a token so far; they end by themselves within a minute
NAMED_WITHIN = 10.0  # seconds to send it

Protocol = Literal["events", "tools", "both"]


class _Json:
    """JSON for the library, encoded as the server's own."""

    @staticmethod
    def dumps(value: Any, **_: Any) -> str:
        return encode(value).decode()

    @staticmethod
    def loads(text: str | bytes, **_: Any) -> Any:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


def _is_ours(record: logging.LogRecord) -> bool:
    """Return True if a log record shows a bug here; a client's malformed message is its own fault, and fills no log."""
    if record.exc_info and record.exc_info[1] is not None:
        return not _is_theirs(record.exc_info[1])
    return record.levelno >= logging.ERROR


def _is_theirs(error: BaseException) -> bool:
    """Return True if the library could not read a message."""
    last = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    return bool(last is _Json.loads.__code__ or re.search(r"[\\/](?:socketio|engineio)[\\/]", last.co_filename))


log = logging.getLogger("rerail.server.socketio")
log.addFilter(_is_ours)


class _Beside:
    """Sockets under their path, and another app for everything else."""

    def __init__(self, sockets: ASGIApp, other: ASGIApp, names: _Names, *, guarded: bool) -> None:
        self._sockets, self._other, self._names, self._guarded = sockets, other, names, guarded
        self._unnamed: dict[asyncio.Future[None], Scope] = {}  # the ends of connections without a token, oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request to the sockets or to the other app."""
        ours = scope["type"] in ("http", "websocket") and scope["path"].startswith("/socket.io/")
        if not ours and scope["type"] != "websocket":
            await self._other(scope, receive, send)
            return
        if not ours:
            await _turn_away(scope, receive, send, 1008)
            return
        # Clients without a token must not take the room of clients with one: they make room for each other. A server
        # without a token admits all alike, and many may come at once.
        left = asyncio.get_running_loop().create_future()
        unnamed = self._guarded and scope.get("rerail.caller") is None
        if unnamed:
            if len(self._unnamed) - self._names.count() >= MOST_UNNAMED:
                _first_of_the_busiest(self._unnamed, self._names.has)
            self._unnamed[left] = scope
        await self._names.make_room()
        try:
            await self._served(scope, receive, send, left)
        finally:
            self._unnamed.pop(left, None)

    async def _served(self, scope: Scope, receive: Receive, send: Send, left: asyncio.Future[None]) -> None:
        """Serve a connection; close it if it sends no token in time, or has to make room."""
        sent = _Sent(send)
        try:
            await self._in_time(scope, receive, sent, left)
        except Exception as error:
            if not _is_theirs(error):
                raise
            with contextlib.suppress(RuntimeError, OSError):  # it may be gone
                await sent({"type": "websocket.close", "code": 1007})

    async def _in_time(self, scope: Scope, receive: Receive, sent: _Sent, left: asyncio.Future[None]) -> None:
        if scope["type"] == "http":
            # The library logs every error of reading as its own bug: it gets the body read already.
            try:
                async with asyncio.timeout(NAMED_WITHIN):
                    receive = await _whole(receive)
            except TimeoutError:
                await answer(problem("UNAUTHORIZED", tell("refuse.server.unnamed"), status=408))(scope, receive, sent)
                return
        task = asyncio.ensure_future(self._sockets(scope, receive, sent))
        try:
            await asyncio.wait([task, left], timeout=NAMED_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or self._names.has(scope):
                await task
                return
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(RuntimeError, OSError):  # it may be gone
            if scope["type"] == "websocket":
                await sent({"type": "websocket.close", "code": 1008})
            elif not sent.begun:
                await answer(problem("UNAUTHORIZED", tell("refuse.server.unnamed"), status=408))(scope, receive, sent)


def _first_of_the_busiest(waiting: Mapping[asyncio.Future[None], Scope], named: Callable[[Scope], bool]) -> None:
    """End the oldest unnamed connection of the address with the most of them."""
    found = [(end, (scope.get("client") or ("",))[0]) for end, scope in waiting.items() if not end.done()]
    unnamed = [(end, address) for end, address in found if not named(waiting[end])]
    counts = Counter(address for _, address in unnamed)
    for end, address in unnamed:
        if counts[address] == max(counts.values()):
            end.set_result(None)
            return


async def _whole(receive: Receive) -> Receive:
    """Receive the whole body; the gate limits its size."""
    body, last = b"", await receive()
    while last["type"] == "http.request":
        body += last.get("body", b"")
        if not last.get("more_body", False):
            break
        last = await receive()
    first: list[Message] = [{**last, "body": body} if last["type"] == "http.request" else last]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


class _Sent:
    """Sends messages, and remembers whether any was sent."""

    def __init__(self, send: Send) -> None:
        self._send, self.begun = send, False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


async def _turn_away(scope: Scope, receive: Receive, send: Send, code: int) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": code})
        return
    told, hint = tell("refuse.server.too_many", limit=MOST_UNNAMED), tell("hint.server.too_many")
    await answer(problem("TOO_MANY_READERS", told, hint), {"retry-after": "5"})(scope, receive, send)


class _Names:
    """The connections of admitted clients."""

    def __init__(self, sio: Any) -> None:
        self._sio = sio
        self._sessions: dict[str, tuple[str, Scope]] = {}  # sids → the session below, and the scope that began it

    def add(self, sid: str, environ: Mapping[str, Any]) -> None:
        """Add an admitted client."""
        self._sessions[sid] = (self._sio.manager.eio_sid_from_sid(sid, "/"), environ["asgi.scope"])

    def drop(self, sid: str) -> None:
        """Remove a client that left."""
        self._sessions.pop(sid, None)

    def count(self) -> int:
        """Return the number of admitted clients."""
        return len(self._sessions)

    async def make_room(self) -> None:
        """End the oldest session without an admitted client, of the busiest address, if there are too many."""
        if len(self._sio.eio.sockets) - len(self._sessions) < MOST_BEGUN:
            return
        admitted = {session for session, _ in self._sessions.values()}
        scopes = {sid: self._sio.environ.get(sid, {}).get("asgi.scope", {}) for sid in self._sio.eio.sockets}
        begun = [
            (sid, (scope.get("client") or ("",))[0])
            for sid, scope in scopes.items()
            if sid not in admitted and scope.get("rerail.caller") is None
        ]
        counts = Counter(address for _, address in begun)
        for sid, address in begun:
            if counts[address] == max(counts.values()):
                # Without a wait for a client that may never take its messages.
                await self._sio.eio.sockets.pop(sid).close(wait=False, abort=True)
                return

    def has(self, scope: Scope) -> bool:
        """Return True if a connection is a client's: it began its session or became its transport."""
        [named] = parse_qs(scope["query_string"].decode("latin-1")).get("sid", [""])[:1]
        if not named:
            return any(began is scope for _, began in self._sessions.values())
        if not any(session == named for session, _ in self._sessions.values()):
            return False
        return scope["type"] == "http" or bool(getattr(self._sio.eio.sockets.get(named), "upgraded", False))


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """A socket's subscription."""

    run: str
    after: int = 0
    part: int | None = None  # of the messages of that event, the last one seen; None for all of them
    protocol: Protocol = "both"


@dataclass(slots=True)
class _Told:
    """A socket's position: an event, and of its messages the last one; None for all of it."""

    seq: int
    part: int | None


class _Left(msgspec.Struct, forbid_unknown_fields=True):
    run: str


class _Server(socketio.AsyncServer):  # type: ignore[misc]
    """The library's server, limited to two requests: it would accept `connect` from any client as its own."""

    async def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: Any) -> None:  # noqa: A002
        if isinstance(data, list) and 1 <= len(data) <= 2 and data[0] in ("subscribe", "unsubscribe"):
            await super()._handle_event(eio_sid, namespace, id, data)


class Sockets:
    """The sockets of a server and their subscriptions."""

    def __init__(self, server: ServerState, patience: float = PATIENCE) -> None:
        self._server, self._patience = server, patience
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        self._sio = _Server(
            async_mode="asgi",
            cors_allowed_origins=[],  # the gate has checked their origin
            json=_Json,
            max_http_buffer_size=min(server.table.max_body, 1_000_000),
            logger=log,
            engineio_logger=log,
        )
        self._names = _Names(self._sio)
        self._sio.on("connect", self._connect)
        self._sio.on("disconnect", self._disconnect)
        self._sio.on("subscribe", self._subscribe)
        self._sio.on("unsubscribe", self._unsubscribe)

    def app(self, other: ASGIApp) -> ASGIApp:
        """Return the sockets beside another app, which gets all other requests."""
        found: ASGIApp = _Beside(
            socketio.ASGIApp(self._sio, socketio_path="socket.io"),
            other,
            self._names,
            guarded=self._server.is_guarded,
        )
        return found

    # -- Connections -------------------------------------------------------------------------------------------------

    async def _connect(self, sid: str, environ: dict[str, Any], auth: Any = None) -> None:
        server = self._server
        caller = server.caller(_token(environ, auth))
        if caller is None or not caller.may("read"):
            told, hint = tell("refuse.server.unauthorized"), tell("hint.server.unauthorized")
            raise socketio.exceptions.ConnectionRefusedError("UNAUTHORIZED", problem("UNAUTHORIZED", told, hint))
        if server.readers >= server.table.max_readers:
            told, hint = tell("refuse.server.too_many", limit=server.table.max_readers), tell("hint.server.too_many")
            found = problem("TOO_MANY_READERS", told, hint)
            raise socketio.exceptions.ConnectionRefusedError("TOO_MANY_READERS", found)
        server.readers += 1
        self._tasks[sid] = {}
        self._names.add(sid, environ)

    async def _disconnect(self, sid: str, reason: Any = None) -> None:
        tasks = self._tasks.pop(sid, None)
        if tasks is None:
            return
        self._server.readers -= 1
        self._names.drop(sid)
        for task in tasks.values():
            if task is not asyncio.current_task():
                task.cancel()

    # -- What they want -----------------------------------------------------------------------------------------------

    async def _subscribe(self, sid: str, data: Any = None) -> dict[str, Any]:
        try:
            wanted = _read(data, _Wanted)
            run = await self._server.engine.find(wanted.run)
            seq = (await self._server.engine.internals.head(run)).seq
            mine = self._tasks.get(sid)
            if mine is None or len(mine) >= MOST_SUBSCRIPTIONS:
                limit = MOST_SUBSCRIPTIONS
                raise Refused(tell("refuse.server.too_many", limit=limit), "TOO_MANY_READERS")
        except RerailError as error:
            return {"ok": False, **problem_of(error)}
        if (old := mine.pop(run, None)) is not None:
            old.cancel()
        await self._sio.enter_room(sid, f"run:{run}")
        mine[run] = asyncio.create_task(self._serve(sid, run, wanted))
        return {"ok": True, "run": run, "seq": seq}

    async def _unsubscribe(self, sid: str, data: Any = None) -> dict[str, Any]:
        try:
            run = await self._server.engine.find(_read(data, _Left).run)
        except RerailError as error:
            return {"ok": False, **problem_of(error)}
        task = self._tasks.get(sid, {}).pop(run, None)
        if task is not None:
            task.cancel()
        await self._sio.leave_room(sid, f"run:{run}")
        return {"ok": True, "run": run}

    # -- Telling ------------------------------------------------------------------------------------------------------

    async def _serve(self, sid: str, run: str, wanted: _Wanted) -> None:
        """Send a socket everything after its position, for as long as it listens."""
        table = self._server.table
        messages = ToolMessages(run) if wanted.protocol != "events" else None
        # Messages are made from the whole history; the seen ones are skipped.
        place = 0 if messages is not None else wanted.after
        told = _Told(wanted.after, wanted.part)
        try:
            async with self._server.feeds.of(run) as feed:
                follow = feed.follow(place, most_behind=table.max_behind, heartbeat=table.heartbeat)
                async for batch in follow:
                    for one in batch:
                        await self._tell(sid, one, messages, wanted.protocol, told)
        except (TooSlow, TimeoutError):
            await self._drop(sid, run, told)
        except RerailError as error:
            await self._sio.emit("problem", {"runId": run, **problem_of(error)}, to=sid)

    async def _tell(
        self, sid: str, one: EncodedEvent, messages: ToolMessages | None, protocol: Protocol, told: _Told
    ) -> None:
        said = messages.feed(one.record) if messages is not None else []
        if one.seq < told.seq or (one.seq == told.seq and told.part is None):
            return
        seen = told.part or 0 if one.seq == told.seq else 0
        for number, message in enumerate(said[seen:], seen + 1):
            await self._room(sid)
            await self._sio.emit(message.name, {**message.payload, "part": number, "parts": len(said)}, to=sid)
            told.seq, told.part = one.seq, number
        # The event itself comes last: a client that has it has all its messages, and may come back after it.
        if protocol != "tools":
            await self._room(sid)
            await self._sio.emit("event", msgspec.Raw(one.data), to=sid)
        told.seq, told.part = one.seq, None

    async def _room(self, sid: str) -> None:
        """Wait until a socket has taken most of its messages; `TimeoutError` if it takes nothing."""
        socket = self._sio.eio.sockets.get(self._sio.manager.eio_sid_from_sid(sid, "/"))
        window = WINDOW if socket is None or socket.upgraded else POLLED
        if socket is None or socket.queue.qsize() < window:
            return
        async with asyncio.timeout(self._patience):
            while socket.queue.qsize() >= window // 2:  # noqa: ASYNC110 - the queue is the library's, and signals nothing
                await asyncio.sleep(0.01)

    async def _drop(self, sid: str, run: str, told: _Told) -> None:
        """Disconnect a slow socket, with its position: it may come back there."""
        if sid in self._tasks:
            self._tasks[sid].pop(run, None)
        with contextlib.suppress(KeyError, socketio.exceptions.SocketIOError):  # it may be gone
            await self._sio.emit("dropped", {"runId": run, "seq": told.seq, "part": told.part}, to=sid)


def _read(data: Any, kind: type[Any]) -> Any:
    try:
        found = msgspec.convert({"run": data} if isinstance(data, str) else data, kind)
    except msgspec.ValidationError:
        raise Refused(tell("refuse.server.subscribe_how"), "USAGE") from None
    part = getattr(found, "part", None)
    if not found.run or not 0 <= getattr(found, "after", 0) <= MOST or (part is not None and not 0 <= part <= MOST):
        raise Refused(tell("refuse.server.subscribe_how"), "USAGE")
    return found


def _token(environ: dict[str, Any], auth: Any) -> str:
    """Return a socket's token: from its connect message or a header."""
    said = auth.get("token") if isinstance(auth, dict) else None
    return said if isinstance(said, str) else bearer(Headers(scope=environ["asgi.scope"]))
