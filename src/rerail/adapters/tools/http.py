"""HTTP requests as tools (SPEC M2), with the standard library alone.

Rules of this file:
- Data fills holes in an address and never changes its shape: values are percent-encoded, and no value can add a path
  segment, a query, a host or a header.
- Only allowed hosts are talked to, redirects included. Without a list these are the hosts that the tool's own address
  names; a list replaces that.
- An error says how sure it is: nothing was sent (an ordinary failure), the server refused (its status), or the request
  was sent and no whole answer came back (`lost`, X4).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, Final, Unpack
from urllib.parse import quote, urljoin, urlsplit

from rerail.adapters.executors.threads import THREADS
from rerail.adapters.tools.specs import Looks, Options, make_spec, unknown
from rerail.adapters.tools.templates import (
    KEY,
    Template,
    Values,
    bad_argument,
    has_key,
    is_once,
    knowing,
    parse,
    schema_for,
    text_of,
)
from rerail.context import Context
from rerail.core.codes import Category
from rerail.core.outcome import Certainty, of_status
from rerail.core.plan import Effect
from rerail.errors import NotDone, RateLimited, ToolError
from rerail.i18n import tell, words_of

_EFFECTS: Final = {"GET": "read", "HEAD": "read", "PUT": "repeatable", "DELETE": "repeatable"}
KEY_HEADER: Final = "Idempotency-Key"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_SHOWN_HEADERS: Final = (
    "content-type", "date", "etag", "last-modified", "link", "location", "retry-after", "x-request-id",
)  # fmt: skip
_FOLLOWED: Final = (301, 302, 303, 307, 308)
_MOST_REDIRECTS: Final = 5
_SECRETS: Final = ("authorization", "cookie", "proxy-authorization")
_LITERAL: Final = "%/:?#[]@!$&'()*+,;=~"  # what an address may hold as it is
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
    """No connection could be made, so nothing was sent and nothing can have happened."""

    lost = False


class ConnectionLost(ToolError):
    """The request was sent, and no whole answer came back."""

    lost, ended, unanswered = True, False, True


class AnswerUnreadable(ToolError):
    """The server did what was asked, but its answer cannot be used."""

    lost = unanswered = True


class HttpTool(Looks):
    """An HTTP request that plans can make: `rerail.http("rate", "GET", "https://rates.example/{currency}")`.

    Each `{placeholder}` is an argument of the tool: percent-encoded in the address, so that no value can change its
    shape. The output is {"status": …, "headers": {…}, "body": …}; a status of 400 and above is a failure.

    Options:
        headers       of the request; placeholders are filled
        query         {name: value} behind the address; lists are repeated, what was not given is left out
        body          a text, or JSON whose placeholders keep their type
        effect        what calling it twice does; by the method: GET and HEAD "read", PUT and DELETE "repeatable",
                      others "once"
        allow_hosts   the hosts it may talk to, redirects included (default: the address's own)
        max_bytes     the most bytes of a response (10,000,000)
        key_header    the header of a `once` request that carries the call's idempotency key ("Idempotency-Key");
                      None: none does
        schema        a JSON schema of the arguments, instead of one made from the placeholders
        description   what models and `rerail tools` are told about it
        timeout       seconds for one call (a step's own beats it; without both, run.step_timeout)
        alternatives  other tools for the same job, by name, tried when this one fails
        provider      a name under which run.provider_concurrency limits calls
        check         what the output must meet: {"schema": …, "non_empty": true, "keys": […]}
        trust_output  True: outputs that look like errors are believed; or {"ignore": […], "suspect": […]}
        verify        a read-only look at the effect, of any of args, output, before, ctx: true, false or Verified
        probe         a read-only look before the call, of args and ctx; `verify` gets what it saw as `before`
        secrets       environment variables whose values nobody may see; those of `{env.NAME}` are among them
        cost          what one call costs, for run.max_cost (default: nothing)
        errors        "not_done": whatever it raises or answers as an error, nothing happened; "by_status": it makes one
                      request, and the status decides; without, the effect of a `once` call that raised is unknown
        settle        seconds until `verify` can see the effect (5 for "once"); "never": absence is never believed
        idempotent_for  seconds for which the service remembers the call's key: a lost answer is asked for again
        on_doubt      "wait" or "fail", if its effect is in doubt
        fenced        True (default): right before it is sent, its process makes sure that it still owns the run

    `{key}` in headers and body of a `once` request is the call's idempotency key, unless its schema has an argument of
    that name.
    """

    is_async = False  # something outside of the event loop is at work
    wants_context = True  # it knows the timeout

    def __init__(
        self,
        name: str,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        effect: Effect | str | None = None,
        allow_hosts: Sequence[str] | None = None,
        max_bytes: int = 10_000_000,
        key_header: str | None = KEY_HEADER,
        schema: Mapping[str, Any] | bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Read the placeholders; ValueError says what is wrong with the declaration."""
        super().__init__(name, options, ("effect", "schema", *_WORDS))
        label = tell("tool.label", name=name)
        self._method = method.upper()
        if self._method not in _METHODS:
            raise ValueError(
                tell("tool.unknown_method", label=label, method=method, known=unknown(self._method, _METHODS))
            )
        self._address = _address(label, url)
        self._headers = {
            key: parse(value, tell("tool.label.header", label=label, key=key))
            for key, value in _checked(label, headers).items()
        }
        self._query = {
            key: _parsed(value, tell("tool.label.query", label=label, key=key)) for key, value in (query or {}).items()
        }
        self._body = _parsed(body, f"{label}: body")
        self._hosts = None if allow_hosts is None else _hosts(label, allow_hosts)
        self._max_bytes = max_bytes
        if self._hosts is None and self._address.literal_host is None:
            raise ValueError(tell("tool.http.host_by_data", label=label, url=url))
        kind = _EFFECTS.get(self._method, "once") if effect is None else effect
        if key_header is not None and not isinstance(key_header, str):
            raise ValueError(tell("tool.http.key_header", name=name, given=key_header))
        if is_once(kind):
            self._carry_key(label, key_header, own=has_key(schema))
        shape = schema_for(name, self._templates(), _inside(self._query), schema)
        declared = [self._method, url, dict(headers or {}), dict(query or {}), body]
        fenced: Options = {"fenced": True}
        self.spec = make_spec(
            name, _opened(shape, self._body, schema), kind, declared,
            {**fenced, **knowing(options, self._templates())}, runs="request", fenced=True,
            keyed=any(template.hands_key for template in self._templates()),
        )  # fmt: skip

    def _carry_key(self, label: str, header: str | None, *, own: bool) -> None:
        """Send the idempotency key of each call, where the declaration says and in a header of its own (E2)."""
        if not own:
            self._headers = {name: one.keyed() for name, one in self._headers.items()}
            self._body = _with_key(self._body)
        if header and header.lower() not in {name.lower() for name in self._headers}:
            _checked(label, {header: ""})
            self._headers = {**self._headers, header: parse(f"{{{KEY}}}", label)}

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def limited_to(self, hosts: Sequence[str]) -> HttpTool:
        """The same tool with the settings' list of allowed hosts in place of its own."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._hosts = _hosts(tell("tool.label", name=self.spec.name), hosts)
        return other

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Make the request in a thread; cancelling closes the connection."""
        # The step's timeout beats the tool's; the context knows it.
        timeout = getattr(ctx, "timeout", None) or self.spec.timeout
        fence = ctx.ensure_owner if isinstance(ctx, Context) else None
        exchange = Exchange(self._request(Values(args, ctx)), self._allowed(), timeout, self._max_bytes, fence)
        try:
            return await THREADS.run(exchange.run)
        except asyncio.CancelledError:
            exchange.abort()
            raise

    @staticmethod
    def answer_of(output: Any) -> Any:
        """What the server said, without the status and the headers around it: an error may hide in a 200 (X9)."""
        return output.get("body") if isinstance(output, dict) else output

    def _templates(self) -> list[Template]:
        spots = (self._address.templates, self._headers.values(), _templates_in(self._query), _templates_in(self._body))
        return [template for some in spots for template in some]

    def _allowed(self) -> tuple[str, ...]:
        return self._hosts if self._hosts is not None else (self._address.literal_host or "",)

    def _request(self, values: Values) -> Request:
        address = self._address
        query = "&".join(filter(None, [address.query.fill(values, _encoded), _query(self._query, values)]))
        headers = {key: one.fill(values, _header) for key, one in self._headers.items() if not one.absent(values)}
        body, content_type = _content(self._body, values)
        if content_type and "content-type" not in {key.lower() for key in headers}:
            headers["Content-Type"] = content_type
        return Request(
            method=self._method,
            scheme=address.scheme,
            host=_host(address.host.fill(values, _host_part)),
            port=_port(address.port.fill(values)),
            target=_path(address.path, values) + (f"?{query}" if query else ""),
            headers=headers,
            body=body,
        )


_WORDS = ("headers", "query", "body", "allow_hosts", "max_bytes", "key_header")
http = HttpTool


# --- Declaring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Address:
    """An address in parts, each with its placeholders."""

    scheme: str
    host: Template
    port: Template
    path: Template
    query: Template

    @property
    def templates(self) -> tuple[Template, ...]:
        return (self.host, self.port, self.path, self.query)

    @property
    def literal_host(self) -> str | None:
        """The host, if no data is in it."""
        return None if self.host.names else _host("".join(str(part) for part in self.host.parts))


def _address(label: str, url: str) -> _Address:
    match = re.fullmatch(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?", url, re.IGNORECASE)
    if match is None:
        raise ValueError(tell("tool.http.no_address", label=label, url=url))
    scheme, place, path, query = match.groups()
    if "@" in place:
        raise ValueError(tell("tool.http.password", label=label))
    # The colon before the port is the last one, and not inside [an IPv6 address].
    spot = re.fullmatch(r"(\[[^\]]*\]|[^:]+)(?::(.+))?", place)
    if spot is None:
        raise ValueError(tell("tool.http.no_host", label=label, url=url))
    return _Address(
        scheme=scheme.lower(),
        host=parse(spot[1], f"{label}: host"),
        port=parse(spot[2] or ("443" if scheme.lower() == "https" else "80"), f"{label}: port"),
        path=_quoted(parse(path or "/", f"{label}: url")),
        query=_quoted(parse(query or "", f"{label}: url")),
    )


def _quoted(template: Template) -> Template:
    """The same, with what may not stand in an address as it is encoded."""
    return Template(tuple(quote(one, safe=_LITERAL) if isinstance(one, str) else one for one in template.parts))


def _checked(label: str, headers: Mapping[str, str] | None) -> Mapping[str, str]:
    for key, value in (headers or {}).items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key) or re.search(r"[\r\n\0]", value):
            raise ValueError(tell("tool.http.no_header", label=label, key=key, value=value))
    return headers or {}


def _hosts(label: str, hosts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(hosts, str):
        raise ValueError(tell("tool.http.allow_hosts", label=label, hosts=hosts))
    return tuple(host.lower().rstrip(".") for host in hosts)


def _parsed(value: Any, where: str) -> Any:
    """The same structure with every text read as a template; keys are not data."""
    if isinstance(value, str):
        return parse(value, where)
    if isinstance(value, Mapping):
        return {key: _parsed(one, where) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_parsed(one, where) for one in value]
    return value


def _with_key(value: Any) -> Any:
    """The same structure with `{key}` for the call's idempotency key."""
    if isinstance(value, Template):
        return value.keyed()
    if isinstance(value, Mapping):
        return {name: _with_key(one) for name, one in value.items()}
    return [_with_key(one) for one in value] if isinstance(value, list) else value


def _templates_in(value: Any) -> list[Template]:
    if isinstance(value, Template):
        return [value]
    inner = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [template for one in inner for template in _templates_in(one)]


def _inside(query: Mapping[str, Any]) -> list[str]:
    """The placeholders that may be lists: `?tag=a&tag=b`."""
    return [one.whole for one in query.values() if isinstance(one, Template) and one.whole]


def _opened(shape: Any, body: Any, given: Any) -> Any:
    """In a body a whole placeholder keeps its JSON type, so a schema made here lets it be anything."""
    whole = [one.whole for one in _templates_in(body) if one.whole]
    if given is not None or not whole:
        return shape
    return {
        **shape,
        "properties": {**shape["properties"], **{name: {} for name in whole if name in shape["properties"]}},
    }


# --- Filling -------------------------------------------------------------------------------------------------------


def _encoded(name: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise bad_argument(tell("error.http.bad_argument", name=name, error=error)) from error


def _segment(name: str, text: str) -> str:
    # DELETE /users/{id} must not become DELETE /users/.
    if not text:
        raise bad_argument(tell("error.http.empty_argument", name=name))
    return _encoded(name, text)


def _path(template: Template, values: Values) -> str:
    path = template.fill(values, _segment)
    # Dots are never encoded, and a server would walk up the folders.
    if template.names and any(segment in (".", "..") for segment in path.split("/")):
        raise bad_argument(tell("error.http.dots", path=path))
    return path


def _host_part(name: str, text: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?", text):
        raise bad_argument(tell("error.http.no_host_part", name=name, text=text))
    return text


def _host(text: str) -> str:
    return text.lower().rstrip(".").strip("[]")


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise bad_argument(tell("error.http.no_port", text=text))
    return int(text)


def _query(query: Mapping[str, Any], values: Values) -> str:
    pairs: list[str] = []
    for key, template in query.items():
        value = _filled(template, values)
        many = value if isinstance(value, list) else [value]
        pairs += [f"{quote(key, safe='')}={_encoded(key, text_of(one))}" for one in many if one is not None]
    return "&".join(pairs)


def _filled(value: Any, values: Values) -> Any:
    """The structure with its placeholders filled; a whole one keeps its JSON type."""
    if isinstance(value, Template):
        return values.get(value.whole) if value.whole else value.fill(values)
    if isinstance(value, Mapping):
        return {key: _filled(one, values) for key, one in value.items()}
    return [_filled(one, values) for one in value] if isinstance(value, list) else value


def _header(name: str, text: str) -> str:
    if re.search(r"[\r\n\0]", text):
        raise bad_argument(tell("error.http.line_break", name=name))
    return text


def _content(body: Any, values: Values) -> tuple[bytes | None, str]:
    """The body as bytes, and what it is."""
    if body is None:
        return None, ""
    if isinstance(body, Template) and not body.whole:
        return body.fill(values).encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
    text = json.dumps(_filled(body, values), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass"), "application/json"


# --- Talking -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A request with nothing left to fill in."""

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: Mapping[str, str]
    body: bytes | None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target}"

    def __str__(self) -> str:
        # Without the query: keys of all kinds are handed over there.
        return f"{self.method} {self.host}{self.target.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response, whole, or its head and the beginning of its body if that was too long."""

    status: int
    reason: str
    headers: Message
    body: bytes
    whole: bool = True


class Exchange:
    """A request on its way, with the redirects that follow from it; blocks, and can be aborted from elsewhere."""

    def __init__(
        self,
        request: Request,
        hosts: Sequence[str],
        timeout: float | None,
        limit: int,
        fence: Callable[[], None] | None = None,
    ) -> None:
        """``fence`` is asked right before anything is sent, and raises if the call may not be made any more."""
        self._request = request
        self._fence = fence
        self._hosts = hosts
        self._timeout = timeout
        self._limit = limit
        self._connection: HTTPConnection | None = None
        self._aborted = False

    def run(self) -> dict[str, Any]:
        """The answer as the tool's output; raises for anything that is not a success."""
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
                # The first request was sent: of a tool that is `once` it may have been the effect.
                if isinstance(failed, NotDone):
                    raise ConnectionLost(words_of(failed), code="OWNER_LOST") from failed
                failed.lost = True
                raise
            request = onward
        raise HttpFailed(tell("error.http.redirects", request=self._request, most=_MOST_REDIRECTS), answer.status)

    def abort(self) -> None:
        """Give up: close the connection, so that the thread ends and nothing more is sent."""
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
            raise Unreachable(
                tell("error.http.no_connection", request=request, error=error), category=Category.TRANSIENT
            ) from error
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
        # Read in pieces, http.client does not mind if the end is missing.
        if response.length:
            raise IncompleteRead(bytes(body[:0]), response.length)
        return bytes(body), True


class _Lines:
    """A stream that remembers the last line it gave out."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self._stream.readline(limit)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Response(HTTPResponse):
    """A response whose head must be whole: http.client takes a connection that breaks there for the head's end."""

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
    # Latin-1 is what the protocol says, UTF-8 what everybody does about the rest.
    return {key: value.encode("utf-8", "surrogatepass") for key, value in headers.items()}


def _require_host(request: Request, hosts: Sequence[str]) -> None:
    """Refuse a host that is not on the list, which may say `host`, `host:port` or `*.domain`."""
    names = (request.host, f"{request.host}:{request.port}")
    if any(host in names or (host.startswith("*.") and request.host.endswith(host[1:])) for host in hosts):
        return
    raise ToolError(tell("error.HOST_NOT_ALLOWED", host=request.host), code="HOST_NOT_ALLOWED", lost=False)


def _redirected(request: Request, answer: _Answer) -> Request | None:
    """Where a GET or HEAD is sent on to, if it is."""
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
    target = quote(url.path or "/", safe=_LITERAL) + (f"?{quote(url.query, safe=_LITERAL)}" if url.query else "")
    onward = replace(request, scheme=url.scheme, host=_host(url.hostname or ""), port=port, target=target)
    if onward.origin == request.origin:
        return onward
    # Credentials are for the one they were meant for.
    return replace(onward, headers={key: one for key, one in request.headers.items() if key.lower() not in _SECRETS})


# --- Answers -------------------------------------------------------------------------------------------------------


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
    if answer.status in _FOLLOWED and answer.status != 303:
        where = answer.headers.get("Location", tell("error.http.elsewhere"))
        message = tell("error.http.sent_on", request=request, where=where, status=answer.status)
        raise HttpFailed(message, answer.status)


def _failure(request: Request, answer: _Answer) -> ToolError:
    said = answer.body[: _SNIPPET * 4].decode("utf-8", "replace").strip()[:_SNIPPET]
    message = tell("error.HTTP_STATUS", status=answer.status, host=request, body=said or answer.reason)
    wait = _retry_after(answer.headers)
    if answer.status in (429, 503) and wait is not None:
        limited = RateLimited(message, retry_after=wait)
        limited.status = answer.status
        return limited
    return HttpFailed(message, answer.status, wait)


def _retry_after(headers: Message) -> float | None:
    """The seconds that the server asks for; a date is taken against the server's own clock, if it shows it."""
    value = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value):
        return float(value)
    when = _seconds(value)
    if when is None:
        return None
    now = _seconds(headers.get("Date") or "")
    return max(0.0, when - (time.time() if now is None else now))


def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _body(request: Request, answer: _Answer, limit: int) -> dict[str, Any]:
    data = _decompressed(request, answer, limit)
    kind = answer.headers.get_content_type() if "content-type" in answer.headers else ""
    if not data:
        return {"body": None}
    try:
        text = data.decode(answer.headers.get_content_charset() or "utf-8")
    except (UnicodeDecodeError, LookupError):
        return {"body": base64.b64encode(data).decode("ascii"), "encoding": "base64"}
    if kind == "application/json" or kind.endswith("+json"):
        # A server that promises JSON and sends something else: the text, so that whoever looks sees it.
        with contextlib.suppress(ValueError, RecursionError):
            return {"body": json.loads(text)}
    return {"body": text}


def _decompressed(request: Request, answer: _Answer, limit: int) -> bytes:
    """The body; some servers compress although they were asked not to."""
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
