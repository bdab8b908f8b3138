"""Transports to an MCP server: a program's pipes, and HTTP (needs the `mcp` extra).

Rules of this file:
- A program is one session: leaving the transport ends it with all its children, TERM first, then KILL, also while the
  whole event loop is torn down. The SDK's own stdio transport gives up there.
- An error says how sure it is. HTTP errors are told apart here, because later code knows only JSON-RPC: nothing was
  sent (`UNREACHABLE`), the server refused (`REFUSED`, `SESSION_GONE`), or the answer is lost (`CONNECTION_CLOSED`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, jsonrpc_message_adapter

from rerail.adapters.executors.processes.guardian import GUARDIAN, WatchedProcess
from rerail.adapters.executors.threads import finished, uninterrupted
from rerail.context import excerpt

# Codes of our own beside JSON-RPC's, in the range that it leaves to implementations. A server may use them too, and
# then they say nothing of the connection: our errors carry a word that no server can know.
UNREACHABLE: Final = -32090
REFUSED: Final = -32091
SESSION_GONE: Final = -32092
_OURS: Final = secrets.token_hex(8)

CLOSE_GRACE: Final = 1.0  # seconds for a server to end by itself once its stdin is closed
TERM_GRACE: Final = 1.0  # seconds after SIGTERM before SIGKILL
_DRAIN: Final = 0.5  # seconds for output that is still in the pipe when the program has ended
_SNIPPET: Final = 300

Incoming = SessionMessage | Exception


# --- Programs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start. As with other MCP clients, it inherits only safe variables of our environment."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


class Pipes:
    """A program's stdin and stdout as the SDK's pair of streams."""

    def __init__(self, program: Program, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the program has ended or has closed its stdout."""
        self._program, self._on_end = program, on_end
        self._running: _Running | None = None
        self._closing = contextlib.ExitStack()

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Incoming], _Stdin]:
        send, receive = anyio.create_memory_object_stream[Incoming](math.inf)
        self._closing.callback(send.close)
        self._closing.callback(receive.close)
        try:
            # Cancelled half-way, asyncio would leave the started process running.
            running, cancelled = await uninterrupted(_start(self._program, send, self._on_end))
        except BaseException:
            self._closing.close()
            raise
        self._running = running
        if cancelled:
            await self.__aexit__(None, None, None)
            raise asyncio.CancelledError
        return receive, _Stdin(running)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None
        with self._closing:
            await finished(self._running.stop())

    @property
    def last_words(self) -> str:
        """Return the end of the program's stderr."""
        return "" if self._running is None else self._running.said().strip()


class _Stdin:
    """Write messages to the program, one a line."""

    def __init__(self, running: _Running) -> None:
        self._running = running

    async def send(self, item: SessionMessage, /) -> None:
        self._running.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def aclose(self) -> None:
        self._running.close_stdin()

    async def __aenter__(self) -> _Stdin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Running(WatchedProcess):
    """A running program: its messages go to the session as they come, its stderr is kept for error messages."""

    gently, most_stderr = True, 16_000

    def __init__(self, messages: MemoryObjectSendStream[Incoming], on_end: Callable[[], None]) -> None:
        super().__init__()
        self._messages, self._on_end = messages, on_end
        self._line = bytearray()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        super().pipe_data_received(fd, data)
        if fd == 2:
            return
        *lines, rest = (self._line + data).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            self._deliver(bytes(line))

    def _deliver(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            item: Incoming = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:  # a server that prints; the session notes it and goes on
            item = error
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is gone
            self._messages.send_nowait(item)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._messages.close()
            self._on_end()

    def process_exited(self) -> None:
        super().process_exited()
        # A surviving child may hold the pipe open for ever; no more messages are expected from it.
        asyncio.get_running_loop().call_later(_DRAIN, self._messages.close)
        self._on_end()

    def write(self, data: bytes) -> None:
        pipe = self.stdin
        if self.exited.done() or pipe is None or pipe.is_closing():
            raise anyio.BrokenResourceError
        pipe.write(data)

    def close_stdin(self) -> None:
        if (pipe := self.stdin) is not None:
            pipe.close()

    async def stop(self) -> None:
        """End the program with all its children, gently at first, and close the pipes."""
        self._messages.close()
        self.close_stdin()
        try:
            await asyncio.wait([self.exited], timeout=CLOSE_GRACE)
            if not self.exited.done():
                self.signal(signal.SIGTERM)
                await asyncio.wait([self.exited], timeout=TERM_GRACE)
        finally:
            # Also after the server ended, as its children may not have. An event loop that is being torn down may
            # cancel this very task: then it skips the grace, and still ends the group.
            self.signal(signal.SIGKILL)
            try:
                await asyncio.shield(self.exited)
            finally:
                self.transport.close()


async def _start(program: Program, messages: MemoryObjectSendStream[Incoming], on_end: Callable[[], None]) -> _Running:
    GUARDIAN.open()
    _, running = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Running(messages, on_end),
        *program.argv,
        cwd=program.cwd,
        env={**get_default_environment(), **program.env},
        start_new_session=True,
    )
    return running


# --- HTTP ----------------------------------------------------------------------------------------------------------


class FrankClient(httpx2.AsyncClient):
    """HTTP client that turns network errors into JSON-RPC errors of one request.

    Raised inside the SDK's transport, a refused connection would end the whole session, and every other call with it.
    The SDK follows redirects of its requests. A call is sent once: earlier requests reveal where the server moved, and
    a call that is redirected all the same is refused with its status.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._moved: dict[httpx2.URL, httpx2.URL] = {}

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a JSON-RPC request always gets a JSON-RPC answer."""
        if request.method != "POST":
            return await super().send(request, **options)
        number, method = _asked(request)
        request.url = self._moved.get(request.url, request.url)
        try:
            response = await super().send(request, **options)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                await response.aread()  # here, so that a broken answer affects this request alone
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            return _answer(request, number, UNREACHABLE, str(error) or type(error).__name__)
        except httpx2.TransportError as error:
            return _answer(request, number, CONNECTION_CLOSED, str(error) or type(error).__name__)
        if number is None or response.status_code < 300:
            return response
        if response.status_code < 400 and method != "tools/call":
            self._learn(request, response)
            return response
        await response.aclose()
        return _refusal(request, number, response)

    def _learn(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Remember a redirect within the same server: its credentials go nowhere else."""
        onward = response.next_request
        if onward is None or onward.method != request.method or response.status_code not in (307, 308):
            return
        if (onward.url.scheme, onward.url.netloc) == (request.url.scheme, request.url.netloc):
            self._moved[request.url] = onward.url


def _asked(request: httpx2.Request) -> tuple[Any, str]:
    """Return id and method of a JSON-RPC request; no id for a notification, which gets no answer."""
    try:
        asked = json.loads(request.content)
        return asked.get("id"), str(asked.get("method", ""))
    except (ValueError, AttributeError, httpx2.RequestNotRead):
        return None, ""


def is_ours(data: Any) -> bool:
    """Return True if this client, and not the server, made the error."""
    return isinstance(data, Mapping) and data.get("by") == _OURS


def _answer(
    request: httpx2.Request, number: Any, code: int, message: str, data: Any = None, *, told: bool = False
) -> httpx2.Response:
    """Make an error of the protocol; ``told``: in the server's own words."""
    if number is None:
        return httpx2.Response(202, request=request)
    if code in (UNREACHABLE, REFUSED, SESSION_GONE) and not told:
        data = {**(data or {}), "by": _OURS}
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return httpx2.Response(503, request=request, json={"jsonrpc": "2.0", "id": number, "error": error})


def _refusal(request: httpx2.Request, number: Any, response: httpx2.Response) -> httpx2.Response:
    """Return the server's JSON-RPC error; else its status as such an error."""
    body = b""
    with contextlib.suppress(httpx2.ResponseNotRead):  # an error as a stream of events
        body = response.content
    told = _told(body)
    in_session = "mcp-session-id" in request.headers
    # Servers use -32000 for unspecific errors, and the SDK uses it for a lost connection.
    if told.get("code", CONNECTION_CLOSED) != CONNECTION_CLOSED and not (in_session and response.status_code == 404):
        return _answer(request, number, told["code"], str(told.get("message", "")), told.get("data"), told=True)
    message = str(told.get("message") or _said(body) or response.reason_phrase)
    # A restarted server does not know the session any more.
    gone = in_session and (
        response.status_code == 404 or (response.status_code == 400 and "session" in message.lower())
    )
    headers = {name: response.headers.get(name) for name in ("Retry-After", "Date")}
    data = {"status": response.status_code, "headers": headers}
    return _answer(request, number, SESSION_GONE if gone else REFUSED, message, data)


def _said(body: bytes) -> str:
    return excerpt(body.decode("utf-8", "replace").strip(), _SNIPPET)


def _told(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) and isinstance(error.get("code"), int) else {}
