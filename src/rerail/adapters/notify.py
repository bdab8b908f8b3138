"""Notifications that a run ended or waits: a command or a webhook (contract T10).

Rules of this file:
- Errors are values, never raised, and every attempt has a time limit.
- A command is a list of arguments, never a shell's line; it gets its data in variables and on its stdin.
- Possible secrets are not repeated: of an address only scheme and host are shown, of a command its name, of an answer
  its status.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

import msgspec

from rerail.adapters.executors.processes.guardian import WatchedProcess
from rerail.adapters.executors.threads import THREADS, finished, uninterrupted
from rerail.adapters.tools.http_exchange import AnswerUnreadable, ConnectionLost, Exchange, Request, Unreachable
from rerail.adapters.tools.shell import Process
from rerail.errors import ToolError
from rerail.i18n import as_text, tell, words_of
from rerail.ports import Delivery, Notice

BACKOFF, MOST_BACKOFF = 1.0, 30.0  # seconds between attempts: doubled each time, up to the second
SLACK = 5.0  # seconds besides the waits: ending a command, closing a connection
MOST_ANSWER = 64 * 1024  # bytes of an answer; they are discarded
MOST_SAID = 200  # characters of a command's complaint
MOST_VALUE = 4_000  # characters of a variable
SHORTEST_SECRET = 4  # characters of an argument that is not repeated; a shorter one hides nothing
_LITERAL = "/%?:=&+!$,;'@()*[]~"  # characters of an address that are not escaped
AGAIN = frozenset({408, 425, 429})  # and everything from 500 on


class _NotTold(Exception):
    """A failed attempt, and whether another one may help."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


@dataclass(frozen=True, slots=True)
class Notifiers:
    """All targets and their triggers."""

    targets: Sequence[NotifyCommand | Webhook]
    on: frozenset[str]
    timeout: float = 10.0
    retries: int = 2

    @property
    def patience(self) -> float:
        waits = sum(_backoff(number) for number in range(1, self.retries + 1))
        return (self.retries + 1) * (self.timeout + SLACK) + waits

    async def send(self, notice: Notice) -> list[Delivery]:
        return list(await asyncio.gather(*(self._told(target, notice) for target in self.targets)))

    async def _told(self, target: NotifyCommand | Webhook, notice: Notice) -> Delivery:
        attempt = 0
        while True:
            attempt += 1
            try:
                await target.tell(notice, self.timeout)
            except _NotTold as problem:
                if not problem.again or attempt > self.retries:
                    return Delivery(target.kind, target.name, False, attempt, words_of(problem))
                await asyncio.sleep(_backoff(attempt))
            else:
                return Delivery(target.kind, target.name, True, attempt)


def _backoff(attempt: int) -> float:
    return min(MOST_BACKOFF, BACKOFF * 2.0 ** (attempt - 1))


# -- A command ----------------------------------------------------------------------------------------------------


class _Heard(Process):
    """A process that keeps the end of its stderr; its stdout is read and dropped."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        WatchedProcess.pipe_data_received(self, fd, data)


@dataclass(frozen=True, slots=True)
class NotifyCommand:
    """A program that is started with the document on its stdin."""

    argv: Sequence[str]
    kind: str = "command"

    @property
    def name(self) -> str:
        return os.path.basename(self.argv[0]) or self.argv[0]

    async def tell(self, notice: Notice, seconds: float) -> None:
        """Run the command to its end; at its timeout, end it with all its children."""
        # Cancelled half-way, asyncio would leave the started process running.
        process, cancelled = await uninterrupted(self._started(notice))
        try:
            if cancelled:
                raise asyncio.CancelledError
            process.feed(msgspec.json.encode(notice.document, enc_hook=as_text).decode())
            async with asyncio.timeout(seconds):
                await process.ended()
        except TimeoutError:
            raise _NotTold(tell("reason.notify.not_ended", seconds=seconds), again=True) from None
        finally:
            await finished(process.stop())
        if process.status:
            key = "reason.notify.status" if process.status > 0 else "reason.notify.killed"
            how = tell(key, number=abs(process.status))
            said = " ".join(self._masked(process.stderr.decode("utf-8", "replace")).split())[-MOST_SAID:]
            raise _NotTold(f"{how}: {said}" if said else how, again=True)

    def _masked(self, said: str) -> str:
        """Return its complaint without its arguments: one of them may be a secret."""
        for word in sorted(self.argv[1:], key=len, reverse=True):
            if len(word) >= SHORTEST_SECRET:
                said = said.replace(word, "…")
        return said

    async def _started(self, notice: Notice) -> _Heard:
        try:
            _, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Heard(0),
                *self.argv,
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, **_variables(notice.document)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise _NotTold(tell("reason.notify.not_started", why=why), again=False) from None
        return process


def _variables(document: Mapping[str, object]) -> dict[str, str]:
    """Build a command's environment; it is data, and never part of a command line."""
    names = ("run", "status", "objective", "summary", "event")
    return {f"RERAIL_{name.upper()}": str(document[name] or "").replace("\0", "")[:MOST_VALUE] for name in names}


# -- A webhook ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that gets the document in a POST. A name and a password in it become a header."""

    url: str = field(repr=False)
    hosts: Sequence[str] = ()
    kind: str = "webhook"

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def name(self) -> str:
        """Return scheme and host: in many a webhook URL the rest is the secret."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return "…"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"

    def refused(self) -> bool:
        """Return True if the list of allowed hosts, where there is one, excludes it."""
        request = self._request(b"")  # a ValueError if the address is none, whatever is allowed
        return bool(self.hosts) and not request.goes_to(self.hosts)

    async def tell(self, notice: Notice, seconds: float) -> None:
        """Send one POST; a redirect is not followed, for it may lead anywhere."""
        request = self._request(msgspec.json.encode(notice.document, enc_hook=as_text), notice.id)
        exchange = Exchange(request, self.hosts or (request.host,), seconds, MOST_ANSWER)
        try:
            async with asyncio.timeout(seconds):
                await THREADS.run(exchange.run)
        except TimeoutError:
            exchange.abort()
            raise _NotTold(tell("reason.no_answer", seconds=seconds), again=True) from None
        except asyncio.CancelledError:
            exchange.abort()
            raise
        except AnswerUnreadable:
            return  # delivered; the answer's body does not matter
        except ToolError as error:
            raise _refusal(error) from None

    def _request(self, body: bytes, notice: str = "") -> Request:
        parts = urlsplit(self.url)
        headers = {"Content-Type": "application/json", "X-Rerail-Notice": notice}
        if parts.username is not None:
            known = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(known).decode()}"
        target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_LITERAL)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return Request("POST", parts.scheme, parts.hostname or "", port, target, headers, body)


def _refusal(error: ToolError) -> _NotTold:
    """Describe the error without the address or the other side's message."""
    status = error.status
    if status is not None:
        return _NotTold(tell("reason.notify.http", number=status), again=status >= 500 or status in AGAIN)
    cause = error.__cause__
    said = cause.strerror if isinstance(cause, OSError) else None
    why = said or (type(cause).__name__ if cause is not None else error.code)
    if isinstance(error, ConnectionLost):
        late = isinstance(cause, TimeoutError)
        return _NotTold(tell("reason.notify.late" if late else "reason.notify.broke", why=why), again=True)
    if isinstance(error, Unreachable):
        return _NotTold(tell("reason.notify.no_connection", why=why), again=True)
    return _NotTold(tell("reason.notify.refused", code=error.code), again=False)
