"""MCP client: connects on demand and reconnects after a loss (needs the `mcp` extra).

Rules of this file:
- Each client lives in a task of its own: a lost server may cancel the task that entered the client.
- Restarts are bounded: a server that dies again and again is reported, not started for ever.
- Every error of the SDK leaves here as a `ToolError` with what is known: nothing was sent, the server refused, or the
  answer is lost (contract X4).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, TypeVar

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    Implementation,
    RequestParamsMeta,
    Tool,
)
from pydantic import ValidationError

from rerail.adapters.tools.mcp.server_config import AnswerLost, McpServer, NotConnected
from rerail.adapters.tools.mcp.transports import (
    REFUSED,
    SESSION_GONE,
    UNREACHABLE,
    FrankClient,
    Pipes,
    Program,
    is_ours,
)
from rerail.codes import Category
from rerail.context import excerpt
from rerail.errors import RateLimited, ToolError
from rerail.i18n import tell
from rerail.kernel.foreign import retry_after
from rerail.kernel.outcome import Certainty, of_status
from rerail.version import __version__

T = TypeVar("T")
CONNECT_WITHIN: Final = 30.0  # seconds, unless the server's own timeout is longer
MOST_DEATHS: Final = 3
DEATHS_WITHIN: Final = 60.0  # seconds
CLOSE_WITHIN: Final = 5.0  # seconds for a server to shut down
_MOST_PAGES: Final = 1_000
_TAIL: Final = 2_000  # characters of a server's last stderr in a message


class Connection:
    """One server: connected on demand, and again after a loss."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._held: _Held | None = None
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)  # in a row, with no answer between

    async def tools(self) -> list[Tool]:
        """List the server's tools, on all its pages."""
        held, client = await self._connected()
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):  # a server with circular pages must not hold the client for ever
            page = await self._asked(held, client.list_tools(cursor=cursor))
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def call(
        self,
        name: str,
        args: dict[str, Any],
        progress: ProgressFnT | None = None,
        meta: RequestParamsMeta | None = None,
        fence: Callable[[], None] | None = None,
    ) -> CallToolResult:
        """Call a tool; repeat once if the server forgot the session and so refused the call.

        ``fence`` is called right before the request is sent; it raises if the call must not be made any more.
        """

        async def once() -> CallToolResult:
            held, client = await self._connected()
            if fence is not None:
                fence()
            answer = await self._asked(held, client.call_tool(name, args, progress_callback=progress, meta=meta))
            self._deaths.clear()
            return answer

        try:
            return await once()
        except _SessionGone:
            return await once()

    async def _connected(self) -> tuple[_Held, Client]:
        if self._held is None or not self._held.alive:
            self._refuse_dying()
            self._held = _Held(self.server)
        held = self._held
        try:
            return held, await held.client()
        except NotConnected as error:
            self._died(held)
            raise error

    def _refuse_dying(self) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._deaths) == MOST_DEATHS and now - self._deaths[0] < DEATHS_WITHIN:
            said, name = _said(self._held.last_words if self._held else ""), self.server.name
            told = tell("error.mcp.left_alone", name=name, count=MOST_DEATHS, seconds=DEATHS_WITHIN, said=said)
            raise NotConnected(told, "SERVER_DYING")

    def _died(self, held: _Held) -> None:
        if not held.mourned:  # several calls may notice one death
            held.mourned = True
            self._deaths.append(asyncio.get_running_loop().time())
            held.end()

    async def _asked(self, held: _Held, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await held.during(work)
        except MCPError as error:
            failure = _failure(self.server.name, error, held)
        except (ValidationError, RuntimeError) as error:
            # It answered, so the call happened; but the answer breaks the protocol or the tool's own schema.
            words = tell("error.mcp.bad_answer", name=self.server.name, error=error)
            failure = AnswerLost(words, "ANSWER_UNREADABLE")
        if isinstance(failure, _SessionGone):
            held.end()
        elif isinstance(failure, AnswerLost) and held.ending:
            self._died(held)
        raise failure

    async def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.close()


class _SessionGone(NotConnected):
    """The server was restarted and refused a call of the old session."""


class _Held:
    """A connected client in a task of its own, from before connecting until after closing."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self.mourned = False  # its death has been counted
        self._pipes: Pipes | None = None
        self._late = False
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Client] = loop.create_future()
        self._closing = asyncio.Event()
        self._task = loop.create_task(self._hold(), name=f"mcp {server.name}")
        self._task.add_done_callback(_retrieved)

    @property
    def ending(self) -> bool:
        """Return True if the connection is over or about to be."""
        return self._closing.is_set() or self._task.done()

    @property
    def alive(self) -> bool:
        """Return True if calls may be made, now or once it is connected."""
        return not self.ending

    @property
    def last_words(self) -> str:
        """Return the end of a program's stderr."""
        return excerpt(self._pipes.last_words, _TAIL, tail=True) if self._pipes is not None else ""

    async def _hold(self) -> None:
        async with AsyncExitStack() as stack:
            transport = await self._transport(stack)
            client = Client(transport, client_info=Implementation(name="rerail", version=__version__), cache=None)
            timer = asyncio.get_running_loop().call_later(self._patience, self._give_up)
            try:
                await stack.enter_async_context(client)
            finally:
                timer.cancel()
            self._ready.set_result(client)
            try:
                await self._closing.wait()
            finally:
                self._closing.set()  # also if the SDK gave up: no new call may come during the shutdown

    async def _transport(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[Any]:
        server = self._server.resolved(os.environ)
        if server.command:
            program = Program([server.command, *server.args], server.env, server.cwd)
            self._pipes = Pipes(program, self._closing.set)
            return self._pipes
        # Reading has no limit of its own: a call may take as long as its step allows.
        limits = httpx2.Timeout(self._patience, read=None)
        http = await stack.enter_async_context(FrankClient(headers=server.headers, timeout=limits))
        return streamable_http_client(server.url, http_client=http)

    @property
    def _patience(self) -> float:
        return max(CONNECT_WITHIN, self._server.timeout or 0)

    def _give_up(self) -> None:
        self._late = True
        self._task.cancel()

    async def client(self) -> Client:
        """Return the client once it is connected; `NotConnected` says why it will not be."""
        either: list[asyncio.Future[Any]] = [self._ready, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            return self._ready.result()
        raise _not_connected(self._server, self._why(), self.last_words)

    def _why(self) -> BaseException | None:
        if self._late:
            return TimeoutError(tell("error.mcp.no_answer", seconds=self._patience))
        return None if self._task.cancelled() else self._task.exception()

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Use the client while it is connected; cancelling cancels the request."""
        task = asyncio.ensure_future(work)
        try:
            # The SDK wakes the calls of a lost connection by itself. Should it fail to, no call waits for ever.
            await asyncio.wait([task, self._task], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait([task], timeout=1.0)
            if not task.done():
                raise MCPError(CONNECTION_CLOSED, "Connection closed")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def end(self) -> None:
        """Start closing without waiting for the end."""
        self._closing.set()

    async def close(self) -> None:
        self.end()
        if self._ready.done():
            await asyncio.wait([self._task], timeout=CLOSE_WITHIN)
        self._task.cancel()  # still connecting, or still shutting down
        await asyncio.wait([self._task])


def _retrieved(task: asyncio.Task[None]) -> None:
    """Mark a task's exception as retrieved, which avoids asyncio's warning; `_why` reports it."""
    if not task.cancelled():
        task.exception()


# --- Errors --------------------------------------------------------------------------------------------------------

_UNKNOWN_TOOL: Final = re.compile(r"\b(?:unknown tool|tool \S{1,100} (?:was )?not found|no such tool)\b", re.IGNORECASE)


def _failure(server: str, error: MCPError, held: _Held) -> ToolError:
    """Translate an error of the protocol into one that says what is known of the call."""
    message, label = error.message or tell("error.mcp.no_message"), tell("mcp.label", server=server)
    ours = is_ours(error.data)
    match error.code:
        case code if code in (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR):
            said = _said(held.last_words if held.ending else "")
            return AnswerLost(tell("error.mcp.lost", label=label, message=message, said=said), "CONNECTION_LOST")
        case code if code == UNREACHABLE and ours:
            return NotConnected(tell("error.mcp.unreachable", label=label, message=message), "SERVER_UNREACHABLE")
        case code if code == SESSION_GONE and ours:
            return _SessionGone(tell("error.mcp.no_session", label=label, message=message), "SERVER_UNREACHABLE")
        case code if code == REFUSED and ours:
            return _refused(label, message, error.data)
        case code if code == METHOD_NOT_FOUND or (code == INVALID_PARAMS and _UNKNOWN_TOOL.search(message)):
            return ToolError(tell("error.mcp.failed", label=label, message=message), "TOOL_UNKNOWN", lost=False)
        case code if code == INVALID_PARAMS:
            return ToolError(tell("error.mcp.failed", label=label, message=message), "ARGS_INVALID", lost=False)
        case code if code == URL_ELICITATION_REQUIRED:
            told = tell("error.mcp.sign_in", label=label, message=message)
            return ToolError(told, None, Category.PERMANENT, lost=False)
    return ToolError(tell("error.mcp.failed", label=label, message=message), lost=True)


def _refused(label: str, message: str, data: Any) -> ToolError:
    told: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    status, wait = told.get("status"), retry_after(told.get("headers"), time.time())
    message = tell("error.mcp.status", label=label, status=status, message=message)
    if status in (429, 503) and wait is not None:
        return RateLimited(message, wait, lost=False)
    lost = of_status(status, retry_after=False) is Certainty.LOST
    return ToolError(message, "HTTP_STATUS", status=status, lost=lost)


def _not_connected(server: McpServer, error: BaseException | None, last_words: str) -> NotConnected:
    """Return why there is no connection; a missing program is not worth a retry."""
    label = tell("mcp.label", server=server.name)
    found = _leaf(error)
    match found:
        case NotConnected():
            return found
        case FileNotFoundError() if server.cwd is not None and found.filename == server.cwd:
            return NotConnected(tell("error.mcp.no_folder", label=label, cwd=server.cwd), "SERVER_MISSING")
        case FileNotFoundError() | PermissionError() | NotADirectoryError():
            reason: str = tell("error.mcp.no_command")
            reason = reason if isinstance(found, FileNotFoundError) else str(found.strerror)
            told = tell("error.mcp.no_program", label=label, command=server.command, reason=reason)
            return NotConnected(told, "SERVER_MISSING")
        case MCPError() if found.code == REFUSED and isinstance(found.data, Mapping):
            status = found.data.get("status")
            told = tell("error.mcp.status", label=label, status=status, message=found.message)
            return NotConnected(told, status=status)
        case None:
            reason = tell("error.mcp.closed")
        case _:
            reason = str(found) or type(found).__name__
    key = "error.mcp.not_started" if server.command else "error.mcp.not_reached"
    told = tell(key, label=label, place=server.place, reason=reason, said=_said(last_words))
    return NotConnected(told, "SERVER_UNREACHABLE")


def _said(last_words: str) -> str:
    return tell("error.mcp.last_words", last_words=last_words) if last_words else ""


def _leaf(error: BaseException | None) -> BaseException | None:
    """Return the first exception inside nested groups: the SDK's task groups wrap every error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
