"""Socket.IO: a run's events, and the messages that chat front ends know, to whoever subscribed (I3).

Rules of this file:
- Sockets replay nothing by themselves. Each subscription has a place in a run's history, as a stream has, and takes
  what comes after it: a late one gets everything once, in order.
- A socket's own queue is kept short: what a slow reader has not taken stays in the store. One that takes nothing for
  too long is told so, and let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
import socketio  # type: ignore[import-untyped]
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerail.core.tool_messages import ToolMessages
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.server.plain import encode
from rerail.server.problems import MEDIA, problem, problem_of
from rerail.server.security import bearer, token_fits
from rerail.server.serving import Serving
from rerail.server.shapes import MOST
from rerail.server.tails import Behind, Framed

WINDOW = 128  # messages that may wait in a socket's queue
POLLED = 8  # the same, where a client asks again and again: some take no more than 16 at once
PATIENCE = 30.0  # seconds that a socket may take nothing
MOST_SUBSCRIPTIONS = 50  # of one socket
MOST_UNNAMED = 50  # connections that have not said who they are; fewer than a server has room for beside its readers
MOST_BEGUN = 1000  # sessions that nobody has said who they are for; they end by themselves within a minute
NAMED_WITHIN = 10.0  # seconds to say it

Protocol = Literal["events", "tools", "both"]


class _Json:
    """JSON for the library, made as ours is."""

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
    """Whether the library tells of a mistake of ours: what it cannot read is its sender's, and fills no log."""
    if record.exc_info and record.exc_info[1] is not None:
        return not _is_theirs(record.exc_info[1])
    return record.levelno >= logging.ERROR


def _is_theirs(error: BaseException) -> bool:
    """Whether the library could not read what was sent."""
    last = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    return bool(last is _Json.loads.__code__ or re.search(r"[\\/](?:socketio|engineio)[\\/]", last.co_filename))


log = logging.getLogger("rerail.server.sockets")
log.addFilter(_is_ours)


class _Beside:
    """Sockets under their path, and another app for everything else."""

    def __init__(self, sockets: ASGIApp, other: ASGIApp, names: _Names, *, guarded: bool) -> None:
        self._sockets, self._other, self._names, self._guarded = sockets, other, names, guarded
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a request to whom it is for."""
        ours = scope["type"] in ("http", "websocket") and scope["path"].startswith("/socket.io/")
        if not ours and scope["type"] != "websocket":
            await self._other(scope, receive, send)
            return
        # Whoever knows no token must not be able to take the room of those who do; without one, all are let in alike,
        # and many may come at once.
        full = self._guarded and self._open - self._names.count() >= MOST_UNNAMED
        full = full or self._names.begun() >= MOST_BEGUN
        if not ours or full:
            await _turn_away(scope, receive, send, 1013 if ours else 1008)
            return
        self._open += 1
        try:
            await self._served(scope, receive, send)
        finally:
            self._open -= 1

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection; one that does not say in time who it is has been served long enough."""
        sent = _Sent(send)
        try:
            await self._in_time(scope, receive, sent)
        except Exception as error:
            if not _is_theirs(error):
                raise
            with contextlib.suppress(RuntimeError, OSError):  # it may be gone
                await sent({"type": "websocket.close", "code": 1007})

    async def _in_time(self, scope: Scope, receive: Receive, sent: _Sent) -> None:
        if scope["type"] == "http":
            # The library logs whatever goes wrong while it reads as a mistake of its own: it gets what was read.
            try:
                async with asyncio.timeout(NAMED_WITHIN):
                    receive = await _whole(receive)
            except TimeoutError:
                await _answer(sent, problem("UNAUTHORIZED", tell("refuse.server.unnamed"), status=408))
                return
        task = asyncio.ensure_future(self._sockets(scope, receive, sent))
        try:
            await asyncio.wait([task], timeout=NAMED_WITHIN)
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
                await _answer(sent, problem("UNAUTHORIZED", tell("refuse.server.unnamed"), status=408))


async def _whole(receive: Receive) -> Receive:
    """What is received, once all of it has come; the gate has an eye on how much that is."""
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
    """What is sent, and whether anything was."""

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
    await _answer(send, problem("TOO_MANY_READERS", told, hint), (b"retry-after", b"5"))


async def _answer(send: Send, found: dict[str, Any], *headers: tuple[bytes, bytes]) -> None:
    head = [(b"content-type", MEDIA.encode()), *headers]
    await send({"type": "http.response.start", "status": found["status"], "headers": head})
    await send({"type": "http.response.body", "body": encode(found)})


class _Names:
    """Which connections belong to somebody who was let in."""

    def __init__(self, sio: Any) -> None:
        self._sio = sio
        self._sessions: dict[str, tuple[str, Scope]] = {}  # sids → the session below, and what it began with

    def add(self, sid: str, environ: Mapping[str, Any]) -> None:
        """Somebody was let in."""
        self._sessions[sid] = (self._sio.manager.eio_sid_from_sid(sid, "/"), environ["asgi.scope"])

    def drop(self, sid: str) -> None:
        """Somebody left."""
        self._sessions.pop(sid, None)

    def count(self) -> int:
        """How many were let in."""
        return len(self._sessions)

    def begun(self) -> int:
        """How many sessions are open that nobody was let in for."""
        return len(self._sio.eio.sockets) - len(self._sessions)

    def has(self, scope: Scope) -> bool:
        """Whether a connection is somebody's: it began a session of theirs, or names one and has become its line."""
        [named] = parse_qs(scope["query_string"].decode("latin-1")).get("sid", [""])[:1]
        if not named:
            return any(began is scope for _, began in self._sessions.values())
        if not any(session == named for session, _ in self._sessions.values()):
            return False
        return scope["type"] == "http" or bool(getattr(self._sio.eio.sockets.get(named), "upgraded", False))


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """What a socket subscribes to."""

    run: str
    after: int = 0
    part: int | None = None  # of the messages of that event, the last one seen; None for all of them
    protocol: Protocol = "both"


@dataclass(slots=True)
class _Told:
    """How far a socket was told: an event, and of its messages the last one; None for all of it."""

    seq: int
    part: int | None


class _Left(msgspec.Struct, forbid_unknown_fields=True):
    run: str


class _Server(socketio.AsyncServer):  # type: ignore[misc]
    """The library's server, which hears two wishes and no others: it would take `connect` from anybody as its own."""

    async def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: Any) -> None:  # noqa: A002
        if isinstance(data, list) and 1 <= len(data) <= 2 and data[0] in ("subscribe", "unsubscribe"):
            await super()._handle_event(eio_sid, namespace, id, data)


class Sockets:
    """The sockets of a server, and what each of them listens to."""

    def __init__(self, serving: Serving, patience: float = PATIENCE) -> None:
        self._serving, self._patience = serving, patience
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        self._sio = _Server(
            async_mode="asgi",
            cors_allowed_origins=[],  # the gate has looked at where they come from
            json=_Json,
            max_http_buffer_size=min(serving.table.max_body, 1_000_000),
            logger=log,
            engineio_logger=log,
        )
        self._names = _Names(self._sio)
        self._sio.on("connect", self._connect)
        self._sio.on("disconnect", self._disconnect)
        self._sio.on("subscribe", self._subscribe)
        self._sio.on("unsubscribe", self._unsubscribe)

    def app(self, other: ASGIApp) -> ASGIApp:
        """The sockets beside another app, which gets all other requests."""
        found: ASGIApp = _Beside(
            socketio.ASGIApp(self._sio, socketio_path="socket.io"),
            other,
            self._names,
            guarded=bool(self._serving.token),
        )
        return found

    # -- Who is there -------------------------------------------------------------------------------------------------

    async def _connect(self, sid: str, environ: dict[str, Any], auth: Any = None) -> None:
        serving = self._serving
        if serving.token and not token_fits(_token(environ, auth), serving.token):
            told, hint = tell("refuse.server.unauthorized"), tell("hint.server.unauthorized")
            raise socketio.exceptions.ConnectionRefusedError("UNAUTHORIZED", problem("UNAUTHORIZED", told, hint))
        if serving.readers >= serving.table.max_readers:
            told, hint = tell("refuse.server.too_many", limit=serving.table.max_readers), tell("hint.server.too_many")
            found = problem("TOO_MANY_READERS", told, hint)
            raise socketio.exceptions.ConnectionRefusedError("TOO_MANY_READERS", found)
        serving.readers += 1
        self._tasks[sid] = {}
        self._names.add(sid, environ)

    async def _disconnect(self, sid: str, reason: Any = None) -> None:
        tasks = self._tasks.pop(sid, None)
        if tasks is None:
            return
        self._serving.readers -= 1
        self._names.drop(sid)
        for task in tasks.values():
            if task is not asyncio.current_task():
                task.cancel()

    # -- What they want -----------------------------------------------------------------------------------------------

    async def _subscribe(self, sid: str, data: Any = None) -> dict[str, Any]:
        try:
            wanted = _read(data, _Wanted)
            run = await self._serving.engine.find(wanted.run)
            seq = (await self._serving.engine.head(run)).seq
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
            run = await self._serving.engine.find(_read(data, _Left).run)
        except RerailError as error:
            return {"ok": False, **problem_of(error)}
        task = self._tasks.get(sid, {}).pop(run, None)
        if task is not None:
            task.cancel()
        await self._sio.leave_room(sid, f"run:{run}")
        return {"ok": True, "run": run}

    # -- Telling ------------------------------------------------------------------------------------------------------

    async def _serve(self, sid: str, run: str, wanted: _Wanted) -> None:
        """Tell a socket everything after its place, for as long as it listens."""
        table = self._serving.table
        messages = ToolMessages(run) if wanted.protocol != "events" else None
        # Messages are made from the whole history; what was seen is left out.
        place = 0 if messages is not None else wanted.after
        told = _Told(wanted.after, wanted.part)
        try:
            async with self._serving.tails.of(run) as tail:
                follow = tail.follow(place, most_behind=table.max_behind, heartbeat=table.heartbeat)
                async for batch in follow:
                    for one in batch:
                        await self._tell(sid, one, messages, wanted.protocol, told)
        except (Behind, TimeoutError):
            await self._drop(sid, run, told)
        except RerailError as error:
            await self._sio.emit("problem", {"runId": run, **problem_of(error)}, to=sid)

    async def _tell(
        self, sid: str, one: Framed, messages: ToolMessages | None, protocol: Protocol, told: _Told
    ) -> None:
        said = messages.feed(one.record) if messages is not None else []
        if one.seq < told.seq or (one.seq == told.seq and told.part is None):
            return
        seen = told.part or 0 if one.seq == told.seq else 0
        for number, message in enumerate(said[seen:], seen + 1):
            await self._room(sid)
            await self._sio.emit(message.name, {**message.payload, "part": number, "parts": len(said)}, to=sid)
            told.seq, told.part = one.seq, number
        # The event itself comes last: whoever has it has everything that it stands for, and may come back after it.
        if protocol != "tools":
            await self._room(sid)
            await self._sio.emit("event", msgspec.Raw(one.data), to=sid)
        told.seq, told.part = one.seq, None

    async def _room(self, sid: str) -> None:
        """Wait until a socket has taken most of what it was told; `TimeoutError` if it takes nothing."""
        socket = self._sio.eio.sockets.get(self._sio.manager.eio_sid_from_sid(sid, "/"))
        window = WINDOW if socket is None or socket.upgraded else POLLED
        if socket is None or socket.queue.qsize() < window:
            return
        async with asyncio.timeout(self._patience):
            while socket.queue.qsize() >= window // 2:  # noqa: ASYNC110 - the queue is the library's, and tells nobody
                await asyncio.sleep(0.01)

    async def _drop(self, sid: str, run: str, told: _Told) -> None:
        """Let a socket go that does not keep up, with a word of how far it got: that is where it may come back."""
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


def _token(environ: dict[str, Any], auth: Any) -> str | bytes:
    """The token of a socket: in what it says when it connects, or in a header."""
    said = auth.get("token") if isinstance(auth, dict) else None
    return said if isinstance(said, str) else bearer(Headers(scope=environ["asgi.scope"]))
