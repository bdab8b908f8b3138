"""Where a server listens, and how it is brought to an end: for MCP over HTTP and for the page alike.

Rules of this file:
- Only this machine is served unless the user says otherwise, and then only whoever knows the token.
- The command minds the signals; the web server only serves, and gives requests under way a moment to end.
- Whoever connects and says nothing is let go (silence.py).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from rerail.adapters.executors.endings import finished
from rerail.errors import RerailError
from rerail.i18n import tell
from rerail.server.silence import Silence


def listen(address: str, *, expose: bool, token: str) -> socket.socket:
    """A socket for `HOST:PORT`; `RerailError` if it may not or cannot be had."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise RerailError(tell("refuse.mcp.no_address", address=address), "USAGE", hint=tell("hint.mcp.no_address"))
    if not is_local(host) and not (expose and token):
        raise RerailError(
            tell("refuse.mcp.exposed", host=host), "USAGE",
            hint=tell("hint.mcp.exposed"),
        )  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family)
    except OSError as error:
        raise RerailError(
            tell("refuse.mcp.cannot_listen", address=address, value=error.strerror or error), "USAGE"
        ) from error


def is_local(host: str) -> bool:
    """Whether an address is this machine's own, and nobody else's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(listening: socket.socket, path: str = "") -> str:
    """The address that a socket is reached at."""
    host, port = listening.getsockname()[:2]
    host = _openable(host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{path}"


def _openable(host: str) -> str:
    """An address that people can open: of a server that listens on all of a machine's, the one it is seen at."""
    if not ipaddress.ip_address(host).is_unspecified:
        return host
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        try:
            way.connect((elsewhere, 9))  # nothing is sent: it only asks which way it would go
            found: str = way.getsockname()[0]
        except OSError:  # no way out: only this machine can be meant
            return "::1" if ":" in host else "127.0.0.1"
    return found


async def serve_app(
    app: ASGIApp, listening: socket.socket, ready: Callable[[], None], silence: Silence | None = None, **options: Any
) -> None:
    """Serve until cancelled; requests under way get a moment to end."""
    config = {"log_level": "warning", "lifespan": "on", "timeout_graceful_shutdown": 1, **options}
    web = _Web(uvicorn.Config(app, http=(silence or Silence()).protocol, **config))  # type: ignore[arg-type]
    serving = asyncio.ensure_future(web.serve(sockets=[listening]))
    ready()
    try:
        await asyncio.shield(serving)
    finally:
        web.should_exit = True
        await finished(_ended(serving))


async def _ended(serving: asyncio.Future[None]) -> None:
    await asyncio.wait([serving])


class _Web(uvicorn.Server):
    """uvicorn without its way with signals: it would end the process before the engine could let go of its runs."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to the command."""
        yield
