"""One HTTP exchange; tells apart: nothing sent, refused, answer lost."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from rerail.codes import Category
from rerail.context import excerpt
from rerail.errors import NotDone, RateLimited, ToolError
from rerail.i18n import tell, words_of
from rerail.kernel.foreign import retry_after
from rerail.kernel.outcome import Certainty, of_status

_SHOWN_HEADERS: Final = (
    "content-type", "date", "etag", "last-modified", "link", "location", "retry-after", "x-request-id",
)  # fmt: skip

_FOLLOWED: Final = (301, 302, 303, 307, 308)
_MOST_REDIRECTS: Final = 5
LITERAL: Final = "%/:?#[]@!$&'()*+,;=~"  # characters that a URL may hold unescaped
_SNIPPET: Final = 500


class HttpFailed(ToolError):
    """The server answered with an error status."""

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        lost = of_status(status, retry_after=status == 503 and retry_after is not None) is Certainty.LOST
        super().__init__(message, code="HTTP_STATUS", status=status, lost=lost)
        self.unanswered = False  # the status is an answer, which `errors` reads
        self.retry_after = retry_after
        self.ended = status not in (408, 502, 504)  # a gateway gives up on a request that goes on behind it


class Unreachable(ToolError):
    """No connection was made, so no request was sent and there is no effect."""

    lost = False


class ConnectionLost(ToolError):
    """The request was sent, and no whole answer came back."""

    lost, ended, unanswered = True, False, True


class AnswerUnreadable(ToolError):
    """The server did the work, but its answer cannot be used."""

    lost = unanswered = True


def host_of(text: str) -> str:
    return text.lower().rstrip(".").strip("[]")


@dataclass(frozen=True, slots=True)
class Request:
    """A request with all placeholders filled."""

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: Mapping[str, str]
    body: bytes | None
    private: frozenset[str] = frozenset()  # headers that hold a secret

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def address(self) -> str:
        return f"{self.scheme}://{self._named}:{self.port}{self.target}"

    @property
    def _named(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def goes_to(self, hosts: Sequence[str]) -> bool:
        """Return True if its host is on the list, which may say `host`, `host:port` or `*.domain`."""
        names = (self.host, f"{self.host}:{self.port}")
        return any(host in names or (host.startswith("*.") and self.host.endswith(host[1:])) for host in hosts)

    def __str__(self) -> str:
        # Without the query: it often holds keys.
        port = "" if self.port == (443 if self.scheme == "https" else 80) else f":{self.port}"
        return f"{self.method} {self._named}{port}{self.target.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response: complete, or its head and the beginning of an oversized body."""

    status: int
    reason: str
    headers: Message
    body: bytes
    whole: bool = True


class Exchange:
    """A request under way, with its redirects; blocks, and can be aborted from elsewhere."""

    def __init__(
        self,
        request: Request,
        hosts: Sequence[str],
        timeout: float | None,
        limit: int,
        fence: Callable[[], None] | None = None,
    ) -> None:
        """``fence`` is called right before the request is sent; it raises if the call must not be made any more."""
        self._request = request
        self._fence = fence
        self._hosts = hosts
        self._timeout = timeout
        self._limit = limit
        self._connection: HTTPConnection | None = None
        self._aborted = False

    def run(self) -> dict[str, Any]:
        """Return the answer as the tool's output; raise for any outcome but success."""
        request = self._request
        for hop in range(_MOST_REDIRECTS + 1):
            _require_host(request, self._hosts)
            try:
                answer = self._exchange(request)
                onward = _redirected(request, answer)
                if onward is None:
                    return _result(request, answer, self._limit)
            except (NotDone, ToolError) as failed:
                if hop == 0:
                    raise
                # The first request was sent: for a `once` tool it may have been the effect.
                if isinstance(failed, NotDone):
                    raise ConnectionLost(words_of(failed), code="OWNER_LOST") from failed
                failed.lost = True
                raise
            request = onward
        raise HttpFailed(tell("error.http.redirects", request=self._request, most=_MOST_REDIRECTS), answer.status)

    def abort(self) -> None:
        """Abort: close the connection, so that the thread ends and sends no more."""
        self._aborted = True
        sock = getattr(self._connection, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                # Not the method of an SSL socket, which first forgets that it is one.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _exchange(self, request: Request) -> _Answer:
        self._connection = connection = _connection(request, self._timeout)
        try:
            self._connect(request, connection)
            if self._fence is not None:
                self._fence()
            return self._talk(request, connection)
        finally:
            connection.close()

    def _connect(self, request: Request, connection: HTTPConnection) -> None:
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"{request}: {error}", category=Category.PERMANENT) from error
        except (OSError, UnicodeError, HTTPException) as error:
            told = tell("error.http.no_connection", request=request, error=error)
            code = None if isinstance(error, TimeoutError) else "TOOL_FAILED"  # nothing was sent that could be lost
            raise Unreachable(told, code, Category.TRANSIENT) from error
        if self._aborted:
            raise Unreachable(tell("error.http.cancelled", request=request), category=Category.TRANSIENT)

    def _talk(self, request: Request, connection: HTTPConnection) -> _Answer:
        try:
            connection.request(request.method, request.target, body=request.body, headers=_sent_headers(request))
            response = connection.getresponse()
            body, whole = self._read(response)
        except (OSError, HTTPException) as error:
            what = tell("error.http.no_answer") if isinstance(error, TimeoutError) else tell("error.http.broke")
            detail = str(error) or type(error).__name__
            raise ConnectionLost(f"{request}: {what}: {detail}", code="CONNECTION_LOST") from error
        return _Answer(response.status, response.reason, response.headers, body, whole)

    def _read(self, response: HTTPResponse) -> tuple[bytes, bool]:
        body = bytearray()
        while chunk := response.read(65536):
            body += chunk
            if len(body) > self._limit:
                return bytes(body), False
        # Reading in pieces, http.client accepts a body without its end.
        if response.length:
            raise IncompleteRead(bytes(body[:0]), response.length)
        return bytes(body), True


class _Lines:
    """A stream that remembers the last line read from it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self._stream.readline(limit)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Response(HTTPResponse):
    """A response with a complete head: http.client mistakes a connection that breaks there for the head's end."""

    def begin(self) -> None:
        lines: Any = _Lines(self.fp)
        self.fp = lines
        super().begin()
        if lines.last.strip() or not lines.last:
            raise IncompleteRead(lines.last)


def _connection(request: Request, timeout: float | None) -> HTTPConnection:
    connection = HTTPConnection(request.host, request.port, timeout=timeout)
    if request.scheme == "https":
        context = ssl.create_default_context()
        connection = HTTPSConnection(request.host, request.port, timeout=timeout, context=context)
    connection.response_class = _Response
    return connection


def _sent_headers(request: Request) -> dict[str, bytes]:
    defaults = {"user-agent": "rerail", "accept": "application/json, */*;q=0.5"}
    given = {key.lower() for key in request.headers}
    headers = {**{key: value for key, value in defaults.items() if key not in given}, **request.headers}
    # The protocol says Latin-1; servers in practice send UTF-8.
    return {key: value.encode("utf-8", "surrogatepass") for key, value in headers.items()}


def _require_host(request: Request, hosts: Sequence[str]) -> None:
    if request.goes_to(hosts):
        return
    raise ToolError(tell("error.HOST_NOT_ALLOWED", host=request.host), code="HOST_NOT_ALLOWED", lost=False)


def _redirected(request: Request, answer: _Answer) -> Request | None:
    """Return the redirect target of a GET or HEAD, if any."""
    location = answer.headers.get("Location")
    if answer.status not in _FOLLOWED or request.method not in ("GET", "HEAD") or not location:
        return None
    try:
        url = urlsplit(urljoin(request.address, location))
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError as error:
        raise HttpFailed(
            tell("error.http.bad_redirect", request=request, location=location, error=error), answer.status
        ) from error
    if url.scheme not in ("http", "https") or (request.scheme == "https" and url.scheme == "http"):
        raise HttpFailed(tell("error.http.redirect_not_followed", request=request, location=location), answer.status)
    target = quote(url.path or "/", safe=LITERAL) + (f"?{quote(url.query, safe=LITERAL)}" if url.query else "")
    onward = replace(request, scheme=url.scheme, host=host_of(url.hostname or ""), port=port, target=target)
    if onward.origin == request.origin:
        return onward
    # Credentials go only to the host and port that they were meant for.
    return replace(onward, headers={key: one for key, one in request.headers.items() if key not in request.private})


def _result(request: Request, answer: _Answer, limit: int) -> dict[str, Any]:
    if answer.status >= 400:
        raise _failure(request, answer)
    _require_performed(request, answer)
    if not answer.whole:
        raise AnswerUnreadable(tell("error.http.too_large", request=request, limit=limit), code="OUTPUT_TOO_LARGE")
    headers = {name: answer.headers[name] for name in _SHOWN_HEADERS if name in answer.headers}
    return {"status": answer.status, "headers": headers, **_body(request, answer, limit)}


def _require_performed(request: Request, answer: _Answer) -> None:
    """Refuse a redirect of a request that may have an effect: only 303 says that it is done."""
    acts = request.method not in ("GET", "HEAD")  # there 304 answers a condition
    if answer.status != 303 and (answer.status in _FOLLOWED or (acts and 300 <= answer.status < 400)):
        where = answer.headers.get("Location", tell("error.http.elsewhere"))
        message = tell("error.http.sent_on", request=request, where=where, status=answer.status)
        raise HttpFailed(message, answer.status)


def _failure(request: Request, answer: _Answer) -> ToolError:
    said = _beginning(answer.body)
    message = tell("error.HTTP_STATUS", status=answer.status, host=request, body=said or answer.reason)
    wait = retry_after(answer.headers, time.time())
    if answer.status in (429, 503) and wait is not None:
        limited = RateLimited(message, retry_after=wait, lost=False)
        limited.status = answer.status
        return limited
    return HttpFailed(message, answer.status, wait)


def _beginning(data: bytes) -> str:
    return excerpt(data.decode("utf-8", "replace").strip(), _SNIPPET)


def _body(request: Request, answer: _Answer, limit: int) -> dict[str, Any]:
    data = _decompressed(request, answer, limit)
    kind = answer.headers.get_content_type() if "content-type" in answer.headers else ""
    if not data:
        return {"body": None}
    promised = kind == "application/json" or kind.endswith("+json")
    try:
        text = data.decode(answer.headers.get_content_charset() or "utf-8")
        return {"body": json.loads(text.removeprefix("\ufeff")) if promised else text}
    except (ValueError, LookupError, RecursionError) as error:
        if not promised:
            return {"body": base64.b64encode(data).decode("ascii"), "encoding": "base64"}
        # Cut short, or another program's page: the next try may bring it whole.
        shown = _beginning(data)
        told = tell("error.http.not_json", request=request, error=error, shown=shown)
        raise AnswerUnreadable(told, "ANSWER_UNREADABLE") from error


def _decompressed(request: Request, answer: _Answer, limit: int) -> bytes:
    """Return the body; some servers compress against the request's headers."""
    if answer.headers.get("Content-Encoding", "").lower() not in ("gzip", "x-gzip"):
        return answer.body
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(answer.body, limit + 1)
    except zlib.error as error:
        raise AnswerUnreadable(tell("error.http.packed", request=request, error=error), "OUTPUT_NOT_JSON") from error
    if len(data) > limit:
        raise AnswerUnreadable(tell("error.http.too_large", request=request, limit=limit), code="OUTPUT_TOO_LARGE")
    return data
