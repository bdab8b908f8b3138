"""The outcome of a call, and its consequence (contract X4, V8, E2, E3).

Rules of this file:
- A call is done, not done or lost. An adapter says which through `certainty` of the error that it raises. An error
  without one counts as lost (``rerail.kernel.foreign`` reads it). No other module decides that.
- The consequence is one table: effect of the step, outcome of the call, result of the look.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rerail.plan.step import Effect
from rerail.plan.tool_spec import Errors


class Certainty(StrEnum):
    """What is known of the effect of one call."""

    DONE = "done"  # it answered
    NOT_DONE = "not_done"  # known to have had no effect
    LOST = "lost"  # unknown


class Saw(StrEnum):
    """The result of a look at the effect; absence only once the effect has settled."""

    NONE = "none"  # no look is available
    THERE = "there"
    ABSENT = "absent"
    PARTIAL = "partial"
    UNKNOWN = "unknown"  # it raised, timed out, or said "not yet"
    DISBELIEVED = "disbelieved"  # not there, and its absence is never trusted; recorded as unknown


class Follows(StrEnum):
    """The consequence for a step after a call."""

    SUCCEED = "succeed"
    LADDER = "ladder"  # the step has failed: any rung may follow
    SAME_KEY = "same_key"  # the same tool, arguments and idempotency key, and no other rung
    DOUBT = "doubt"  # no call until a user answers


def of_status(status: int | None, *, retry_after: bool) -> Certainty:
    """Return the outcome of an HTTP request that was answered with an error status."""
    if status is not None and ((400 <= status < 500 and status != 408) or (status == 503 and retry_after)):
        return Certainty.NOT_DONE
    return Certainty.LOST


def as_declared(
    said: Certainty, errors: Errors, status: int | None, *, retry_after: bool, unanswered: bool = False,
    never_sent: bool = False,
) -> Certainty:  # fmt: skip
    """Return the outcome of a call with an error, where its tool declares how its errors are read.

    ``said`` is the certainty that the error states, also through a `NotDone` around it. An error that the tool did not
    send (``unanswered``: a dead worker, a lost connection, an unreadable answer) is lost all the same.
    """
    if said is not Certainty.LOST or not errors or unanswered:
        return said
    unsent = status is None and never_sent
    return Certainty.NOT_DONE if errors == "not_done" or unsent else of_status(status, retry_after=retry_after)


class Case(NamedTuple):
    """One row of the table: all inputs of the consequence."""

    effect: Effect
    certainty: Certainty
    saw: Saw = Saw.NONE
    lost_before: bool = False  # an earlier attempt of the same step is lost and not settled
    covered: bool = False  # within `idempotent_for`
    probed: bool = False  # the look compares with the state before the call
    output: bool = False  # the look returned the output
    acting: bool = False  # the call may still be under way, so an absent effect proves nothing


def follows(case: Case) -> Follows:
    """Return the consequence of a call, and of the look at its effect (V8)."""
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
