"""Who may ask, and how much: the gate that every request passes before anything else looks at it (I4).

Rules of this file:
- A name that is not ours is no way to reach us: a page elsewhere could have made its own name lead here.
- A page of another address may not use us, whatever it sends. There are no cookies, so nobody's browser can be made
  to lend its rights.
- The token is compared in constant time. It comes in a header, never in an address, which ends up in logs.
- What tools made is data: it is never served in a way that a browser would run or show it.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerail.i18n import Told, tell
from rerail.server.listening import is_local
from rerail.server.plain import encode
from rerail.server.problems import MEDIA, problem
from rerail.server.serving import Serving, chosen_language

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


def token_fits(given: str | bytes, token: str) -> bool:
    """Whether a token is the one that is wanted; how long that takes tells nothing about it."""
    said = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
    return hmac.compare_digest(said, token.encode())


def bearer(headers: Headers) -> bytes:
    """The token that a request brings, if it brings one."""
    scheme, _, said = headers.get("authorization", "").partition(" ")
    return said.strip().encode("latin-1", "replace") if scheme.lower() == "bearer" else b""


class Names:
    """The names by which a server may be called."""

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        self._public = not is_local(host)
        own = {"localhost", host.lower().strip("[]")}
        if self._public:
            own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._names = own | {name.lower().partition(":")[0] for name in allowed}

    def fits(self, host: str) -> bool:
        """Whether a Host header names this server; the port is nobody's disguise."""
        name = host_name(host)
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # An address is no name that somebody could have made lead here.
        return self._public or address.is_loopback


def host_name(host: str) -> str:
    """A Host header without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if not port or (port[0] == ":" and port[1:].isdecimal()) else host
    return host.rpartition(":")[0] if host.count(":") == 1 else host


class Gate:
    """An app behind its checks: name, origin, token, size; and with the headers that every answer carries."""

    def __init__(self, app: ASGIApp, serving: Serving, names: Names) -> None:
        self._app, self._serving, self._names = app, serving, names
        self._most = serving.table.max_readers + BESIDE_READERS
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if _asks_first(scope, headers) and self._guest(headers) and (refused is None or refused[0] == "UNAUTHORIZED"):
            await _invite(send, self._guest(headers))  # a browser asks without the token whether it may send it
            return
        if refused is not None:
            await _refuse(scope, receive, send, refused, self._lang(scope))
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        limit, dressed = self._serving.table.max_body, _Dressed(send, scope["path"], self._guest(headers))
        self._under_way += 1
        try:
            await self._app(scope, _Measured(receive, limit), dressed)
        except TooLarge as error:  # what is behind the gate may not know what to make of it
            if dressed.begun:
                raise
            await _refuse(scope, receive, send, ("BODY_TOO_LARGE", error.detail, ""), self._lang(scope))
        finally:
            self._under_way -= 1

    def _lang(self, scope: Scope) -> str:
        return chosen_language(HTTPConnection(scope)) or self._serving.lang

    def _guest(self, headers: Headers) -> str:
        """The page of another address that asks, if it is one that may."""
        origin = headers.get("origin", "")
        return origin if origin in self._serving.table.allow_origins else ""

    def _refused(self, scope: Scope, headers: Headers) -> tuple[str, Told, Told | str] | None:
        table, path = self._serving.table, scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._names.fits(hosts[0]):
            host = ", ".join(hosts)[:200]
            return "HOST_FOREIGN", tell("refuse.server.host", host=host), tell("hint.server.host")
        origin = headers.get("origin")
        if origin is not None and not _own(origin, hosts[0]) and origin not in table.allow_origins:
            told = tell("refuse.server.origin", origin=origin[:200])
            return "ORIGIN_FOREIGN", told, tell("hint.server.origin")
        guarded = (path.startswith(API) or path in CLOSED_PATHS) and path not in OPEN_PATHS
        if self._serving.token and guarded and not token_fits(bearer(headers), self._serving.token):
            return "UNAUTHORIZED", tell("refuse.server.unauthorized"), tell("hint.server.unauthorized")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > table.max_body:
            return "BODY_TOO_LARGE", tell("refuse.server.too_large", limit=table.max_body), ""
        # Requests, not connections: what nobody has asked for takes nobody's room.
        if scope["type"] == "http" and self._under_way >= self._most:
            return "TOO_MANY_READERS", tell("refuse.server.busy", limit=self._most), tell("hint.server.busy")
        return None


def _own(origin: str, host: str) -> bool:
    """Whether a page is one of ours; behind a proxy the scheme may be another."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.strip().lower()


def _asks_first(scope: Scope, headers: Headers) -> bool:
    """Whether a browser asks what a page of another address may do, before it does it."""
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and "access-control-request-method" in headers


async def _invite(send: Send, origin: str) -> None:
    headers = {
        **_ALWAYS, "access-control-allow-origin": origin, "vary": "Origin", "access-control-max-age": "600",
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": "authorization, content-type, last-event-id, x-rerail-by",
    }  # fmt: skip
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": raw})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, send: Send, refused: tuple[str, Told, Any], lang: str) -> None:
    code, told, hint = refused
    found = problem(code, told, hint, lang)
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": code})
        return
    headers = [(b"content-type", MEDIA.encode()), (b"cache-control", b"no-store")]
    if code == "UNAUTHORIZED":
        headers.append((b"www-authenticate", b"Bearer"))
    if code == "BODY_TOO_LARGE":
        headers.append((b"connection", b"close"))  # nobody reads the rest
    if found["status"] == 503:
        headers.append((b"retry-after", b"2"))
    always = {**_ALWAYS, "content-security-policy": DATA_POLICY}
    headers += [(name.encode(), value.encode()) for name, value in always.items()]
    await send({"type": "http.response.start", "status": found["status"], "headers": headers})
    await send({"type": "http.response.body", "body": encode(found)})


class TooLarge(HTTPException):
    """A body that is larger than it may be, which shows while it is read."""

    detail: Told

    def __init__(self, limit: int) -> None:
        super().__init__(413, tell("refuse.server.too_large", limit=limit))


class _Measured:
    """What is received, as long as it is not too much."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left, self._limit = receive, limit, limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise TooLarge(self._limit)
        return message


class _Dressed:
    """What is sent, with the headers that say what a browser must not do with it."""

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
