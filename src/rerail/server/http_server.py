"""The listening socket and the HTTP server's life, for MCP over HTTP and for the page (contract I4).

Rules of this file:
- Only this machine is served unless the user says otherwise, and then only clients with the token.
- The command handles signals; the web server only serves, and gives requests under way a moment to end.
- A connection is idle while no request of it is under way: its next head has not come, or its last one is answered.
  Readers of streams and sockets are never idle, however quiet they are.
- The time of an idle connection is limited, even if a byte comes now and then; so is the pause within a body.
- Their number is limited. One more replaces the oldest connection of the address with the most. So a client with many
  connections closes its own, and a client with a request never waits for a place.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rerail.adapters.executors.threads import finished
from rerail.errors import RerailError
from rerail.i18n import tell

HEAD_TIMEOUT = 10.0  # seconds for the head of a request
BODY_TIMEOUT = 20.0  # seconds between two parts of its body
MAX_IDLE = 200  # connections


class IdleConnections:
    """The idle connections of one server."""

    def __init__(self, within: float = HEAD_TIMEOUT, pause: float = BODY_TIMEOUT, most: int = MAX_IDLE) -> None:
        self.within, self.pause = within, pause
        self._most = most
        self._idle: dict[TimedProtocol, str] = {}  # the oldest first → its address

    def add(self, one: TimedProtocol, address: str) -> None:
        self._idle[one] = address
        if len(self._idle) > self._most:
            [(busiest, _)] = Counter(self._idle.values()).most_common(1)
            oldest = next(found for found, known in self._idle.items() if known == busiest)
            self.drop(oldest)
            oldest.let_go()

    def drop(self, one: TimedProtocol) -> None:
        """Remove a connection: it has a request, or is closed."""
        self._idle.pop(one, None)

    def protocol(self, **given: Any) -> asyncio.Protocol:
        return TimedProtocol(self, **given)


class TimedProtocol(H11Protocol):
    """uvicorn's protocol of a connection, with time limits while it is idle."""

    def __init__(self, silence: IdleConnections, **given: Any) -> None:
        super().__init__(**given)
        self._silence = silence
        self._until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._fall_silent()

    def connection_lost(self, exc: Exception | None) -> None:
        self._speak()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._attend()

    def on_response_complete(self) -> None:
        self._speak()  # the next silence is a new one
        super().on_response_complete()
        self._attend()

    def let_go(self) -> None:
        """Close a connection past its time limit."""
        self._speak()
        if not self.transport.is_closing():
            self.transport.close()

    def _attend(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:  # a socket has limits of its own
            self._speak()
        elif not self._asked():
            if self._until is None:
                self._fall_silent()
        else:
            self._speak()
            if self.cycle.more_body:
                self._until = self.loop.call_later(self._silence.pause, self._stalled)

    def _asked(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _stalled(self) -> None:
        """Close the connection if its body stalled, unless reading is paused here."""
        self._until = None
        if self.flow.read_paused:
            self._attend()
        else:
            self.let_go()

    def _fall_silent(self) -> None:
        self._until = self.loop.call_later(self._silence.within, self.let_go)
        self._silence.add(self, str(self.client[0]) if self.client else "")

    def _speak(self) -> None:
        self._silence.drop(self)
        if self._until is not None:
            self._until.cancel()
            self._until = None


def listen(address: str, *, expose: bool, guarded: bool) -> socket.socket:
    """Open a socket for `HOST:PORT`; `RerailError` if it is not allowed or fails."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise RerailError(tell("refuse.mcp.no_address", address=address), "USAGE", hint=tell("hint.mcp.no_address"))
    if not is_local(host) and not (expose and guarded):
        raise RerailError(
            tell("refuse.mcp.exposed", host=host), "USAGE",
            hint=tell("hint.mcp.exposed"),
        )  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family)
    except OSError as error:
        told = tell("refuse.mcp.cannot_listen", address=address, value=error.strerror or error)
        raise RerailError(told, "USAGE") from error


def is_local(host: str) -> bool:
    """Return True if an address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(listening: socket.socket, path: str = "") -> str:
    host, port = listening.getsockname()[:2]
    host = _openable(host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{path}"


def _openable(host: str) -> str:
    """Return an address to open; for a server on all interfaces, the outward one."""
    if not ipaddress.ip_address(host).is_unspecified:
        return host
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        try:
            way.connect((elsewhere, 9))  # no packet is sent: connecting only selects the route
            found: str = way.getsockname()[0]
        except OSError:  # no route: the client is on this machine
            return "::1" if ":" in host else "127.0.0.1"
    return found


async def serve_app(
    app: ASGIApp, listening: socket.socket, ready: Callable[[], None], idle: IdleConnections | None = None,
    **options: Any,
) -> None:  # fmt: skip
    """Serve until cancelled; requests under way get a moment to end."""
    config = {"log_level": "warning", "lifespan": "on", "timeout_graceful_shutdown": 1, **options}
    web = _Web(uvicorn.Config(app, http=(idle or IdleConnections()).protocol, **config))  # type: ignore[arg-type]
    serving = asyncio.ensure_future(web.serve(sockets=[listening]))
    ready()
    try:
        await asyncio.shield(serving)
    finally:
        web.should_exit = True
        await finished(asyncio.wait([serving]))


class _Web(uvicorn.Server):
    """uvicorn without its signal handlers: they would end the process before the engine released its runs."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the command."""
        yield
