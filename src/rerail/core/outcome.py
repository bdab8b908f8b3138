"""What a call came to, and what follows from it (contract X4, V8, E2, E3).

Rules of this file:
- A call is done, not done or lost. An adapter says which through `certainty` of the error that it raises; an error that
  says nothing is lost. No other module decides that.
- What follows is one table: the effect of the step, what the call came to, and what a look found.
- Pure: exceptions are read, never raised or caught.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol

from rerail.core.plan import Effect


class Certainty(StrEnum):
    """What is known of the effect of one call."""

    DONE = "done"  # it answered
    NOT_DONE = "not_done"  # it is known that nothing happened
    LOST = "lost"  # unknown


class Saw(StrEnum):
    """What a look at the effect found; absence only once it is settled."""

    NONE = "none"  # no look can be asked
    THERE = "there"
    ABSENT = "absent"
    PARTIAL = "partial"
    UNKNOWN = "unknown"  # it raised, timed out, or said "not yet"
    DISBELIEVED = "disbelieved"  # not there, and its absence is never believed; recorded as unknown


class Follows(StrEnum):
    """What becomes of a step after a call."""

    SUCCEED = "succeed"
    LADDER = "ladder"  # the step has failed: any rung may follow
    SAME_KEY = "same_key"  # the same tool, arguments and idempotency key, and no other rung
    DOUBT = "doubt"  # no call until a person answers


class Declared(Protocol):
    """An error that says what its call came to."""

    @property
    def certainty(self) -> Certainty: ...


# How a tool's errors are read: `not_done`, whatever it raises; `by_status`, as for one HTTP request.
Errors = Literal["", "not_done", "by_status"]
ERRORS: Final = ("not_done", "by_status")

MAX_CAUSES: Final = 16
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


def certainty_of(error: BaseException) -> Certainty:
    """What a call that raised came to: what the error says, else lost."""
    try:
        said = getattr(error, "certainty", None)
    except Exception:  # noqa: BLE001  # an exception of the user's may fail at anything
        said = None
    return said if isinstance(said, Certainty) else Certainty.LOST


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries: its own, or its response's (httpx, requests, aiohttp, urllib)."""
    response = getattr(error, "response", None)
    places = ((error, "status"), (error, "status_code"), (response, "status_code"), (response, "status"))
    found = (getattr(place, name, None) for place, name in places)
    return next((one for one in found if isinstance(one, int) and not isinstance(one, bool)), None)


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


def of_status(status: int | None, *, retry_after: bool) -> Certainty:
    """What one HTTP request came to that was answered with an error status."""
    if status is not None and ((400 <= status < 500 and status != 408) or (status == 503 and retry_after)):
        return Certainty.NOT_DONE
    return Certainty.LOST


def as_declared(
    said: Certainty, errors: Errors, status: int | None, *, retry_after: bool, error: BaseException | None = None
) -> Certainty:
    """What a call came to that raised ``error`` or answered one, where its tool says how its errors are to be read.

    ``said`` is what the error says of itself, also if a `NotDone` around it said so. An error that is no word of the
    tool (`unanswered`: a dead worker, a lost connection, an answer that cannot be read) is lost all the same.
    """
    if said is not Certainty.LOST or not errors or getattr(error, "unanswered", False):
        return said
    unsent = status is None and error is not None and never_sent(error)
    return Certainty.NOT_DONE if errors == "not_done" or unsent else of_status(status, retry_after=retry_after)


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
        wrapped = (link.__cause__, getattr(link, "reason", None), *link.args, link.__context__ if handled else None)
        left += [cause for cause in wrapped if isinstance(cause, BaseException) and cause is not link]
    return handled  # a chain too long to be read


class Case(NamedTuple):
    """One row of the table: everything that decides what follows from a call."""

    effect: Effect
    certainty: Certainty
    saw: Saw = Saw.NONE
    lost_before: bool = False  # an earlier attempt of the same step is lost and not settled
    covered: bool = False  # within `idempotent_for`
    probed: bool = False  # the look compares with what was there before
    output: bool = False  # the look brought the output
    acting: bool = False  # the call may still be under way, so that its absence proves nothing


def follows(case: Case) -> Follows:
    """What follows from a call, and from the look at its effect (V8)."""
    effect, certainty, saw, lost_before, covered, probed, output, acting = case
    once = effect is Effect.ONCE
    if saw is Saw.PARTIAL:
        return Follows.DOUBT if once else Follows.LADDER
    if certainty is Certainty.DONE:
        if saw is Saw.DISBELIEVED and once:
            return Follows.DOUBT
        return Follows.LADDER if saw in (Saw.ABSENT, Saw.DISBELIEVED) else Follows.SUCCEED
    if not once:
        return Follows.SUCCEED if saw is Saw.THERE and output else Follows.LADDER
    lost = certainty is Certainty.LOST or lost_before
    if saw is Saw.THERE:
        return Follows.SUCCEED if lost or probed else Follows.DOUBT
    if not lost:
        return Follows.LADDER
    if covered:
        return Follows.SAME_KEY
    return Follows.LADDER if saw is Saw.ABSENT and not acting else Follows.DOUBT
