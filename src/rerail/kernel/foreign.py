"""Foreign objects: the one place that reads optional members of tools, minds, models, stores and exceptions.

Rules of this file:
- The ports declare every member that is read of a foreign object. A missing member gets its default here,
  when the object comes in; no other module tests for members.
- An exception may carry any attribute, or none: `Said` is all that is read. Reading it may fail, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from rerail.codes import Category
from rerail.kernel.outcome import Certainty
from rerail.plan.tool_spec import ToolSpec

Given = TypeVar("Given")

TOOL: Final[Mapping[str, Any]] = {
    "is_async": False, "wants_context": True, "answer_of": None, "looks_outside": False, "stays": False,
}  # fmt: skip
MIND: Final[Mapping[str, Any]] = {"name": "mind", "patience": None}
STORE: Final[Mapping[str, Any]] = {"caveats": ()}
EXECUTOR: Final[Mapping[str, Any]] = {"here": False}


class _Around:
    """An object with defaults for its missing members."""

    def __init__(self, inner: Any, missing: Mapping[str, Any]) -> None:
        self.__dict__.update(missing, _inner=inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_inner":  # asked by pickle and copy before `_inner` is set
            raise AttributeError(name)
        return getattr(self._inner, name)


def with_defaults(given: Given, defaults: Mapping[str, Any]) -> Given:
    """Return the object itself if it has all of these members, else a wrapper that has them."""
    missing = {name: value for name, value in defaults.items() if not hasattr(given, name)}
    return cast("Given", _Around(given, missing)) if missing else given


def as_mind(given: Given) -> Given:
    """Return a user's mind with defaults; a name that is not a string counts as missing."""
    mind = with_defaults(given, MIND)
    named = isinstance(mind.name, str)  # type: ignore[attr-defined]
    return mind if named else cast("Given", _Around(mind, {"name": MIND["name"]}))


def spec_of(given: Any) -> ToolSpec | None:
    """Return the spec of any kind of tool: an object with one that can be called; None for others."""
    if isinstance(given, type) or not callable(getattr(given, "call", None)):
        return None
    found = getattr(given, "spec", None)
    return found if isinstance(found, ToolSpec) else None


def is_model(given: Any) -> bool:
    """True for a model, which completes prompts; False for a mind, which answers questions."""
    return hasattr(given, "complete")


def roles_of(model: Any, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roles of a model; the usual ones if it declares none."""
    return tuple(getattr(model, "roles", usual))


# -- Exceptions -------------------------------------------------------------------------------------------------------

MAX_CAUSES: Final = 16
NOT_NOW: Final = ("RATE_LIMITED", "COOLDOWN_ACTIVE", "CLUSTER_UNREACHABLE")  # codes of errors that mean "not now"
# The request never left. Matched by the last part of the type's name, because no HTTP library is imported here.
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
    """The attributes of an exception, by these names; None where it has no usable value."""

    code: str | None
    category: Category | None
    status: int | None  # of HTTP: its own, or its response's
    exit_code: int | None
    suggest: dict[str, Any] | None  # arguments that would work
    retry_after: float | None  # seconds to wait, if it means "not now" (X8)
    ended: bool  # the call is over; False: the request may still be under way elsewhere
    unanswered: bool  # it does not come from the tool
    traceback_text: str | None  # of an exception from another process


def said_by(error: BaseException, now: float = 0.0) -> Said:
    """Read what an exception says of itself; a date in it is compared with ``now``."""
    code, category, status = attribute(error, "code"), attribute(error, "category"), status_of(error)
    suggest, traceback = attribute(error, "suggest"), attribute(error, "traceback_text")
    return Said(
        code if isinstance(code, str) and code else None,
        category if isinstance(category, Category) else None,
        status,
        _whole(attribute(error, "exit_code")),
        dict(suggest) if isinstance(suggest, Mapping) else None,
        wait_of(error, now) if code in NOT_NOW or status in (429, 503) else None,
        bool(attribute(error, "ended", True)),
        bool(attribute(error, "unanswered", False)),
        traceback if isinstance(traceback, str) else None,
    )


def attribute(thing: object, name: str, default: Any = None) -> Any:
    """Return a foreign object's attribute; the default if it is missing or reading it fails."""
    try:
        return getattr(thing, name, default)
    except Exception:  # noqa: BLE001  # any access may fail: `urllib`'s errors have the attributes of their answer's file
        return default


def certainty_of(error: BaseException) -> Certainty:
    """Return the outcome of a call that raised: what the error says, else lost."""
    said = attribute(error, "certainty")
    return said if isinstance(said, Certainty) else Certainty.LOST


def handled_lost(error: BaseException) -> bool:
    """True if an error was raised from, or while handling, a lost one."""
    left = [error.__cause__, error.__context__]
    for _ in range(MAX_CAUSES):
        if not left:
            return False
        link = left.pop()
        if link is not None:
            if certainty_of(link) is Certainty.LOST:
                return True
            left += [link.__cause__, link.__context__]
    return True  # the chain is too long to read


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error: its own, or its response's (httpx, requests, aiohttp, urllib)."""
    response = attribute(error, "response")
    places = ((error, "status"), (error, "status_code"), (response, "status_code"), (response, "status"))
    found = (_whole(attribute(place, name)) for place, name in places)
    return next((one for one in found if one is not None), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def wait_of(error: BaseException, now: float) -> float | None:
    """Return the seconds that an error asks to wait: by an attribute, or a header of its answer."""
    value: Any = attribute(error, "retry_after")
    if value is None:
        value = retry_after(attribute(attribute(error, "response", error), "headers"), now)
    good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return float(value) if good else None


def retry_after(headers: Any, now: float) -> float | None:
    """Return the seconds in a `Retry-After` header; a date counts from the answer's own `Date`, else from ``now``."""
    if not hasattr(headers, "get"):
        return None
    value = _header(headers, "Retry-After")
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    until, sent = _moment(value), _moment(_header(headers, "Date"))
    return None if until is None else max(0.0, until - (now if sent is None else sent))


def _header(headers: Any, name: str) -> str:
    value = headers.get(name) or headers.get(name.lower())  # a plain dict tells cases apart
    return value.strip() if isinstance(value, str) else ""


def _moment(date: str) -> float | None:
    from email.utils import parsedate_to_datetime  # rarely needed, and slow to import

    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def type_names(error: BaseException) -> tuple[str, ...]:
    """Return the names of an error's types, most specific first; for a remote error, the names in its own process."""
    remote = attribute(error, "type_names")
    if isinstance(remote, tuple | list) and remote:
        return tuple(map(str, remote))
    return tuple(
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        for kind in type(error).__mro__
        if kind is not object
    )


def wrapped_in(error: BaseException, *, handled: bool) -> list[BaseException]:
    """Return the causes of an error, explicit or wrapped; with ``handled``, also errors that it was raised beside."""
    beside = error.__context__ if handled else None
    wrapped = (error.__cause__, beside, attribute(error, "reason"), *attribute(error, "args", ()))
    return [link for link in wrapped if isinstance(link, BaseException) and link is not error]


def never_sent(error: BaseException) -> bool:
    """True if an error says that nothing was sent, itself or through a wrapped one.

    An error that was only raised while another was handled wraps nothing: a refused connection proves nothing about
    the request that followed it. A broken connection stays broken after a refused reconnect.
    """
    said = attribute(error, "never_sent")  # an exception from another process
    if isinstance(said, bool):
        return said
    return _wraps(error, NEVER_SENT, handled=False) and not _wraps(error, BROKEN, handled=True)


def _wraps(error: BaseException, names: frozenset[str], *, handled: bool) -> bool:
    """True if an error, or a cause of it, is of one of these types; ``handled``: or was raised beside one."""
    left = [error]
    for _ in range(MAX_CAUSES):
        if not left:
            return False
        link = left.pop(0)
        if names & {kind.__name__ for kind in type(link).__mro__}:
            return True
        left += wrapped_in(link, handled=handled)
    return handled  # the chain is too long to read
