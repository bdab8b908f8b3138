"""The ways in which a function ends its first call; every later call acts and answers.

Calls and effects are counted in files, so that threads, worker processes and cluster nodes count alike.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator

import rerail

LONG = 10.0  # seconds; longer than twice the time that any call gets
UNFIT = 13  # an argument that fits the schema and is refused by the function's own type
REFUSALS = (404, 409, 425)  # statuses that say that nothing happened
LARGE = 30_000  # bytes; more than any tool of the matrix may answer


class Book:
    """Counts the calls and the effects of one case."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def call(self) -> int:
        """Note a call, and return its number."""
        return self._note("calls")

    def act(self) -> int:
        """Have the effect, and return how often it has happened."""
        return self._note("effects")

    def _note(self, name: str) -> int:
        with (self.folder / name).open("a") as file:
            file.write("x\n")
        return self.count(name)

    def count(self, name: str) -> int:
        """How many there are."""
        file = self.folder / name
        return len(file.read_text().splitlines()) if file.exists() else 0


class Response:
    """The response that an HTTP library's exception carries."""

    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class StatusError(Exception):
    """What an HTTP library raises for an error status."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"the server answered {status}")
        self.response = Response(status, **headers)


def _raises(make: Callable[[], BaseException], *, acts: bool = True) -> Callable[[Book], NoReturn]:
    def end(book: Book) -> NoReturn:
        if acts:
            book.act()
        raise make()

    return end


def _answers(make: Callable[[], Any]) -> Callable[[Book], Any]:
    def end(book: Book) -> Any:
        book.act()
        return make()

    return end


def _from(book: Book) -> NoReturn:
    book.act()
    try:
        raise OSError("in the middle")
    except OSError as error:
        raise rerail.ToolError("refused") from error


def _while(book: Book) -> NoReturn:
    book.act()
    try:
        raise OSError("in the middle")
    except OSError:
        raise rerail.ToolError("refused")  # noqa: B904  # what this way is about


def _from_none(book: Book) -> NoReturn:
    book.act()
    try:
        raise OSError("in the middle")
    except OSError:
        raise rerail.ToolError("refused") from None


def _from_refusal(book: Book) -> NoReturn:
    try:
        raise rerail.NotDone(OSError("no route"))
    except rerail.NotDone as error:
        raise rerail.ToolError("refused") from error


def _said_not_lost(book: Book) -> NoReturn:
    try:
        raise OSError("in the middle")
    except OSError as error:
        raise rerail.ToolError("refused", lost=False) from error


def _limited_while(book: Book) -> NoReturn:
    try:
        raise OSError("in the middle")
    except OSError as error:
        raise rerail.RateLimited("later", retry_after=0.01) from error


def _refused_after_reset(book: Book) -> NoReturn:
    book.act()
    try:
        raise ConnectionResetError("in the middle")
    except ConnectionResetError:
        raise ConnectionRefusedError("no listener any more")  # noqa: B904


def _timed_out_elsewhere(book: Book) -> NoReturn:
    try:
        raise ConnectionRefusedError("the first server is away")
    except ConnectionRefusedError:
        book.act()  # the second one acts
        raise TimeoutError("and does not answer")  # noqa: B904


def _odd_elsewhere(book: Book) -> NoReturn:
    try:
        raise ConnectionRefusedError("the first server is away")
    except ConnectionRefusedError:
        book.act()
        raise KeyError("id")  # noqa: B904  # the second one acts, and its answer is odd


def _sleeps(book: Book) -> Any:
    book.act()
    time.sleep(LONG)
    return {"late": True}


def _late(book: Book) -> Any:
    book.act()
    time.sleep(0.9)
    return {"late": True}


def _killed(book: Book) -> Any:
    book.act()
    os.kill(os.getpid(), signal.SIGKILL)


def _exits(book: Book) -> Any:
    book.act()
    os._exit(7)


def _promise(book: Book) -> Any:
    book.act()
    return (number for number in range(3))


ENDINGS: dict[str, Callable[[Book], Any]] = {
    "answered": _answers(lambda: {"id": 1}),
    "answered null": _answers(lambda: None),
    "success false": _answers(lambda: {"success": False}),
    "success false before": lambda book: {"success": False},
    "success 0": _answers(lambda: {"success": 0, "failed": 5}),
    "error member": _answers(lambda: {"id": 1, "error": "database is locked"}),
    "isError": _answers(lambda: {"isError": True, "content": [{"type": "text", "text": "no"}]}),
    "error text": _answers(lambda: "Error: connection refused"),
    "status member": _answers(lambda: {"status": 500, "message": "oops"}),
    "failed check": _answers(lambda: {"id": 1}),
    "not JSON": _answers(object),
    "a promise": _promise,
    "too large": _answers(lambda: {"text": "x" * LARGE}),
    "answered not now": lambda book: {"success": False, "code": "COOLDOWN_ACTIVE", "retry_after": 0.01},
    "ToolError": _raises(lambda: rerail.ToolError("refused"), acts=False),
    "ToolError lost": _raises(lambda: rerail.ToolError("who knows", lost=True)),
    "ToolError from": _from,
    "ToolError while": _while,
    "ToolError from None": _from_none,
    "ToolError not lost": _said_not_lost,
    "ToolError from NotDone": _from_refusal,
    "RateLimited": _raises(lambda: rerail.RateLimited("later", retry_after=0.01), acts=False),
    "RateLimited while": _limited_while,
    "NotDone": _raises(lambda: rerail.NotDone(ConnectionError("no route")), acts=False),
    "exception before": _raises(lambda: RuntimeError("odd"), acts=False),
    "exception after": _raises(lambda: RuntimeError("odd")),
    "assertion": _raises(AssertionError),
    "SystemExit": _raises(lambda: SystemExit(3)),
    "connection refused": _raises(lambda: ConnectionRefusedError("no listener"), acts=False),
    "connection broken": _raises(lambda: ConnectionResetError("gone")),
    "refused after reset": _refused_after_reset,
    "timed out elsewhere": _timed_out_elsewhere,
    "odd elsewhere": _odd_elsewhere,
    "TimeoutError": _raises(lambda: TimeoutError("no answer")),
    "NotDone 500": _raises(lambda: rerail.NotDone(StatusError(500)), acts=False),
    **{
        f"raised {status}": _raises(lambda status=status: StatusError(status), acts=status not in REFUSALS)  # type: ignore[misc]
        for status in (404, 408, 409, 425, 500, 502, 503, 504, 302)
    },
    "raised 429 Retry-After": _raises(lambda: StatusError(429, Retry_After="0"), acts=False),
    "raised 503 Retry-After": _raises(lambda: StatusError(503, Retry_After="0"), acts=False),
    "timeout": _sleeps,
    "late": _late,
    "worker killed": _killed,
    "worker exits": _exits,
}


def _fit(n: int) -> int:
    if n == UNFIT:
        raise ValueError("not that number")
    return n


def perform(way: str, ledger: str, n: Annotated[int, AfterValidator(_fit)] = 0) -> Any:
    """End the first call in that way; act and answer in every other."""
    book = Book(ledger)
    if book.call() > 1:
        return {"id": book.act()}
    return ENDINGS[way](book)


async def perform_async(way: str, ledger: str, n: Annotated[int, AfterValidator(_fit)] = 0) -> Any:
    """Do the same on the event loop."""
    if way == "timeout" and Book(ledger).count("calls") == 0:
        Book(ledger).call()
        Book(ledger).act()
        await asyncio.sleep(LONG)
    return perform(way, ledger, n)


@rerail.tool(name="isolated_once", effect="once", isolated=True)
def isolated_once(way: str, ledger: str, n: Annotated[int, AfterValidator(_fit)] = 0) -> Any:
    """Do the same in a process of its own."""
    return perform(way, ledger, n)


@rerail.tool(name="isolated_repeatable", effect="repeatable", isolated=True)
def isolated_repeatable(way: str, ledger: str, n: Annotated[int, AfterValidator(_fit)] = 0) -> Any:
    """Do the same in a process of its own."""
    return perform(way, ledger, n)


@rerail.tool(name="isolated_by_status_once", effect="once", isolated=True, errors="by_status")
def isolated_by_status_once(way: str, ledger: str, n: int = 0) -> Any:
    """Do the same in a process of its own, where the status decides."""
    return perform(way, ledger, n)


@rerail.tool(name="isolated_by_status_repeatable", effect="repeatable", isolated=True, errors="by_status")
def isolated_by_status_repeatable(way: str, ledger: str, n: int = 0) -> Any:
    """Do the same in a process of its own, where the status decides."""
    return perform(way, ledger, n)


@rerail.tool(name="isolated_not_done_once", effect="once", isolated=True, errors="not_done")
def isolated_not_done_once(way: str, ledger: str, n: int = 0) -> Any:
    """Do the same in a process of its own, whose errors say that nothing happened."""
    return perform(way, ledger, n)


@rerail.tool(name="isolated_not_done_repeatable", effect="repeatable", isolated=True, errors="not_done")
def isolated_not_done_repeatable(way: str, ledger: str, n: int = 0) -> Any:
    """Do the same in a process of its own, whose errors say that nothing happened."""
    return perform(way, ledger, n)
