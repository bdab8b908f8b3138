"""Objects of others: what a tool, mind, model, store, executor or exception may have or lack is asked here alone.

Rules of this file:
- The ports declare all that is read of an object behind them. An object that lacks a member gets its default here,
  when it comes in; no other module asks whether a member is there.
- An exception may say anything of itself, or nothing: `Said` is all that is read. Reading it may fail, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from rerail.core.codes import Category
from rerail.core.outcome import Certainty
from rerail.core.tools import ToolSpec

Given = TypeVar("Given")

TOOL: Final[Mapping[str, Any]] = {
    "is_async": False, "wants_context": True, "answer_of": None, "looks_outside": False, "stays": False,
}  # fmt: skip
MIND: Final[Mapping[str, Any]] = {"name": "mind", "patience": None}
STORE: Final[Mapping[str, Any]] = {"caveats": ()}
EXECUTOR: Final[Mapping[str, Any]] = {"here": False}


class _Around:
    """An object with the members that it lacks."""

    def __init__(self, inner: Any, missing: Mapping[str, Any]) -> None:
        self.__dict__.update(missing, _inner=inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_inner":  # asked by pickle and copy, before there is anything inside
            raise AttributeError(name)
        return getattr(self._inner, name)


def with_defaults(given: Given, defaults: Mapping[str, Any]) -> Given:
    """The object itself, if it has all of these members; else one around it that has them."""
    missing = {name: value for name, value in defaults.items() if not hasattr(given, name)}
    return cast("Given", _Around(given, missing)) if missing else given


def as_mind(given: Given) -> Given:
    """A mind of a user; a name that is no text counts as none."""
    mind = with_defaults(given, MIND)
    named = isinstance(mind.name, str)  # type: ignore[attr-defined]
    return mind if named else cast("Given", _Around(mind, {"name": MIND["name"]}))


def spec_of(given: Any) -> ToolSpec | None:
    """The spec of a tool of any kind: an object that has one and can be called; None for anything else."""
    if isinstance(given, type) or not callable(getattr(given, "call", None)):
        return None
    found = getattr(given, "spec", None)
    return found if isinstance(found, ToolSpec) else None


def is_model(given: Any) -> bool:
    """Whether it completes prompts, as models do; else it is a mind, which answers questions."""
    return hasattr(given, "complete")


def roles_of(model: Any, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The roles that a model is there for; the usual ones, if it does not say."""
    return tuple(getattr(model, "roles", usual))


# -- Exceptions -------------------------------------------------------------------------------------------------------

MAX_CAUSES: Final = 16
NOT_NOW: Final = ("RATE_LIMITED", "COOLDOWN_ACTIVE")  # codes of errors that ask to come back later
# The request never left: by the last part of the type's name, because no HTTP library is imported here.
NEVER_SENT: Final = frozenset({
    "ConnectionRefusedError", "gaierror", "ConnectError", "ConnectTimeout", "NewConnectionError",
    "NameResolutionError", "ClientConnectorError", "SSLCertVerificationError", "InvalidURL",
})  # fmt: skip
BROKEN: Final = frozenset({
    "ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError", "RemoteDisconnected", "ReadError",
    "ReadTimeout", "ReadTimeoutError", "RemoteProtocolError", "ServerDisconnectedError", "WriteError", "WriteTimeout",
    "TimeoutError", "EOFError", "IncompleteRead", "IncompleteReadError", "ChunkedEncodingError", "ProtocolError",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """What an exception says of itself, as attributes of these names; None where it says nothing that is fit."""

    code: str | None
    category: Category | None
    status: int | None  # of HTTP: its own, or its response's
    exit_code: int | None
    suggest: dict[str, Any] | None  # arguments that would work
    retry_after: float | None  # the seconds after which to come back, if it says "not now" (X8)
    ended: bool  # the call is over; False: what was asked for may still be under way elsewhere
    unanswered: bool  # it is no word of the tool
    traceback_text: str | None  # of one that was raised in another process


def said_by(error: BaseException) -> Said:
    """What an exception says of itself."""
    code, category, status = getattr(error, "code", None), getattr(error, "category", None), status_of(error)
    suggest, traceback = getattr(error, "suggest", None), getattr(error, "traceback_text", None)
    return Said(
        code if isinstance(code, str) and code else None,
        category if isinstance(category, Category) else None,
        status,
        _whole(getattr(error, "exit_code", None)),
        dict(suggest) if isinstance(suggest, Mapping) else None,
        _retry_after(error) if code in NOT_NOW or status in (429, 503) else None,
        bool(getattr(error, "ended", True)),
        bool(getattr(error, "unanswered", False)),
        traceback if isinstance(traceback, str) else None,
    )


def attribute(error: BaseException, name: str) -> Any:
    """What an exception has under one of these names, as it is; None if it has nothing, or fails when it is asked."""
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001  # an exception of the user's may fail at anything
        return None


def certainty_of(error: BaseException) -> Certainty:
    """What a call that raised came to: what the error says, else lost."""
    said = attribute(error, "certainty")
    return said if isinstance(said, Certainty) else Certainty.LOST


def handled_lost(error: BaseException) -> bool:
    """Whether an error was raised from, or while handling, one that is lost."""
    left = [error.__cause__, error.__context__]
    for _ in range(MAX_CAUSES):
        if not left:
            return False
        link = left.pop()
        if link is not None:
            if certainty_of(link) is Certainty.LOST:
                return True
            left += [link.__cause__, link.__context__]
    return True  # a chain too long to be read


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries: its own, or its response's (httpx, requests, aiohttp, urllib)."""
    response = getattr(error, "response", None)
    places = ((error, "status"), (error, "status_code"), (response, "status_code"), (response, "status"))
    found = (_whole(getattr(place, name, None)) for place, name in places)
    return next((one for one in found if one is not None), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _retry_after(error: BaseException) -> float | None:
    """The seconds after which to come back: an attribute, or a header."""
    value: Any = getattr(error, "retry_after", None)
    if value is None:
        headers: Any = getattr(getattr(error, "response", error), "headers", None)
        value = headers.get("Retry-After") if hasattr(headers, "get") else None
        value = float(value) if isinstance(value, str) and value.strip().isdecimal() else None
    good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return float(value) if good else None


def type_names(error: BaseException) -> tuple[str, ...]:
    """The names of an error's types, most special first; of one from another process, those that it had there."""
    remote = getattr(error, "type_names", None)
    if isinstance(remote, tuple | list) and remote:
        return tuple(map(str, remote))
    return tuple(
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        for kind in type(error).__mro__
        if kind is not object
    )


def wrapped_in(error: BaseException, *, handled: bool) -> list[BaseException]:
    """What an error says that it came from, and what it wraps without saying so; ``handled``: or was raised beside."""
    beside = error.__context__ if handled else None
    wrapped = (error.__cause__, beside, getattr(error, "reason", None), *getattr(error, "args", ()))
    return [link for link in wrapped if isinstance(link, BaseException) and link is not error]


def never_sent(error: BaseException) -> bool:
    """Whether an error says that nothing was sent, itself or by what it wraps.

    An error that was only raised while another was handled wraps nothing: a refused connection says nothing of the
    request that followed it. A connection that broke is not undone by a reconnect that was refused.
    """
    said = getattr(error, "never_sent", None)  # an exception that came from another process
    if isinstance(said, bool):
        return said
    return _wraps(error, NEVER_SENT, handled=False) and not _wraps(error, BROKEN, handled=True)


def _wraps(error: BaseException, names: frozenset[str], *, handled: bool) -> bool:
    """Whether an error, or one that it came from, is of one of these types; ``handled``: or was raised beside."""
    left = [error]
    for _ in range(MAX_CAUSES):
        if not left:
            return False
        link = left.pop(0)
        if names & {kind.__name__ for kind in type(link).__mro__}:
            return True
        left += wrapped_in(link, handled=handled)
    return handled  # a chain too long to be read
