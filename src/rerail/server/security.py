"""Admission of requests: host, origin, token and size are checked before any route (contract I4).

Rules of this file:
- A foreign host name is refused: a page elsewhere could have made its own name resolve to this server.
- A page of another origin is refused, whatever it sends. Without cookies, no browser lends its rights.
- Tokens are compared in constant time, named ones by their digest. They come in a header, never in a URL, which
  ends up in logs.
- Outputs of tools are data: an answer never lets a browser run or show them.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerail.i18n import Told, tell
from rerail.server.errors import answer, problem, retry_after
from rerail.server.http_server import is_local
from rerail.server.state import ServerState, chosen_language

API = "/api/"
OPEN_PATHS = frozenset({"/api/v1/health"})
CLOSED_PATHS = frozenset({"/openapi.json"})
SOCKETS = "/socket.io"
BESIDE_READERS = 100  # requests that may be under way beside the readers of streams

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def bearer(headers: Headers) -> str:
    """Return a request's token, if any; it was sent as bytes."""
    scheme, _, said = headers.get("authorization", "").partition(" ")
    plain = said.strip().encode("latin-1", "replace").decode("utf-8", "surrogateescape")
    return plain if scheme.lower() == "bearer" else ""


class AllowedHosts:
    """The host names of a server."""

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        self._public = not is_local(host)
        own = {"localhost", host.lower().strip("[]")}
        if self._public:
            own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._names = own | {name.lower().partition(":")[0] for name in allowed}

    def fits(self, host: str) -> bool:
        """Return True if a Host header names this server; the port does not matter."""
        name = host_name(host)
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # DNS can make a name resolve to this server; it cannot redirect an address.
        return self._public or address.is_loopback


def host_name(host: str) -> str:
    """Return a Host header without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if not port or (port[0] == ":" and port[1:].isdecimal()) else host
    return host.rpartition(":")[0] if host.count(":") == 1 else host


class SecurityMiddleware:
    """Checks every request (host, origin, token, size), and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, server: ServerState, names: AllowedHosts) -> None:
        self._app, self._server, self._names = app, server, names
        self._most = server.table.max_readers + BESIDE_READERS
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if _asks_first(scope, headers) and self._guest(headers) and (refused is None or refused[0] == "UNAUTHORIZED"):
            await _invitation(self._guest(headers))(
                scope, receive, send
            )  # a browser sends the preflight without the token
            return
        if refused is not None:
            await _refuse(scope, receive, send, refused, self._lang(scope))
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        limit, dressed = self._server.table.max_body, _HeaderWriter(send, scope["path"], self._guest(headers))
        self._under_way += 1
        try:
            await self._app(scope, _Measured(receive, limit), dressed)
        except TooLarge as error:  # the app behind may not handle it
            if dressed.begun:
                raise
            await _refuse(scope, receive, send, ("BODY_TOO_LARGE", error.detail, ""), self._lang(scope))
        finally:
            self._under_way -= 1

    def _lang(self, scope: Scope) -> str:
        return chosen_language(HTTPConnection(scope)) or self._server.lang

    def _guest(self, headers: Headers) -> str:
        """Return the request's foreign origin if it is an allowed one."""
        origin = headers.get("origin", "")
        return origin if origin in self._server.table.allow_origins else ""

    def _refused(self, scope: Scope, headers: Headers) -> tuple[str, Told, Told | str] | None:
        table, path = self._server.table, scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._names.fits(hosts[0]):
            host = ", ".join(hosts)[:200]
            return "HOST_FOREIGN", tell("refuse.server.host", host=host), tell("hint.server.host")
        origin = headers.get("origin")
        if origin is not None and not _own(origin, hosts[0]) and origin not in table.allow_origins:
            told = tell("refuse.server.origin", origin=origin[:200])
            return "ORIGIN_FOREIGN", told, tell("hint.server.origin")
        guarded = (path.startswith(API) or path in CLOSED_PATHS) and path not in OPEN_PATHS
        caller = self._server.caller(bearer(headers))
        if guarded and caller is None:
            return "UNAUTHORIZED", tell("refuse.server.unauthorized"), tell("hint.server.unauthorized")
        if guarded and caller is not None and not caller.may("read"):
            return "ROLE_NEEDED", tell("refuse.server.role", role="read", name=caller.name), tell("hint.server.role")
        scope["rerail.caller"] = caller
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > table.max_body:
            return "BODY_TOO_LARGE", tell("refuse.server.too_large", limit=table.max_body), ""
        # Requests count, not connections: an idle connection takes no place.
        if scope["type"] == "http" and self._under_way >= self._most:
            return "TOO_MANY_READERS", tell("refuse.server.busy", limit=self._most), tell("hint.server.busy")
        return None


def _own(origin: str, host: str) -> bool:
    """Return True if the page is the server's own; behind a proxy the scheme may be another."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.strip().lower()


def _asks_first(scope: Scope, headers: Headers) -> bool:
    """Return True for a preflight request of a browser."""
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _invitation(origin: str) -> Response:
    """Return the answer to a preflight request."""
    headers = {
        **_ALWAYS, "access-control-allow-origin": origin, "vary": "Origin", "access-control-max-age": "600",
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": "authorization, content-type, last-event-id, x-rerail-by",
    }  # fmt: skip
    return Response(status_code=204, headers=headers)


async def _refuse(scope: Scope, receive: Receive, send: Send, refused: tuple[str, Told, Any], lang: str) -> None:
    code, told, hint = refused
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": code})
        return
    headers = {**_ALWAYS, "cache-control": "no-store", "content-security-policy": DATA_POLICY}
    if code == "UNAUTHORIZED":
        headers["www-authenticate"] = "Bearer"
    if code == "BODY_TOO_LARGE":
        headers["connection"] = "close"  # the rest is not read
    found = problem(code, told, hint, lang)
    await answer(found, headers | retry_after(found["status"]))(scope, receive, send)


class TooLarge(HTTPException):
    """A body beyond the limit, noticed while it is read."""

    detail: Told

    def __init__(self, limit: int) -> None:
        super().__init__(413, tell("refuse.server.too_large", limit=limit))


class _Measured:
    """Receive messages while the total stays within the limit."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left, self._limit = receive, limit, limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise TooLarge(self._limit)
        return message


class _HeaderWriter:
    """Adds the headers that restrict what a browser does with an answer."""

    def __init__(self, send: Send, path: str, guest: str) -> None:
        self._send, self._path, self._guest = send, path, guest
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            data = self._path.startswith((API, SOCKETS)) or self._path in CLOSED_PATHS
            if self._guest and data:
                headers["access-control-allow-origin"] = self._guest
                headers["cross-origin-resource-policy"] = "cross-origin"
                headers.add_vary_header("Origin")
            for name, value in _ALWAYS.items():
                headers.setdefault(name, value)
            headers.setdefault("content-security-policy", DATA_POLICY if data else _PAGE_POLICY)
            if data:
                headers.setdefault("cache-control", "no-store")
        await self._send(message)
