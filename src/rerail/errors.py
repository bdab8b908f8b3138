"""Exceptions: for callers to catch, and for tools to raise.

    RerailError             everything below; each has a code, a sentence, and what to do next
    ├── PlanError           the plan has faults, or is not a plan
    ├── StoreError          history could not be read or written
    ├── Refused             a command that the run's state does not allow
    └── SettingsError       a setting is unknown or has a wrong value

Tools raise `ToolError`, `RateLimited` and `NotDone`; any other exception is classified. What goes wrong in the world
is data in an event, never one of these: they are for a caller's mistake, or for a store that cannot be trusted any
more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rerail.codes import Category
from rerail.i18n import retold, say, tell
from rerail.kernel.foreign import handled_lost
from rerail.kernel.outcome import Certainty
from rerail.plan.step import Fault


class RerailError(Exception):
    """Something the caller asked for cannot be done."""

    default = "STORE_FAILED"

    def __init__(self, message: str, code: str | None = None, *, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.hint = message, code or self.default, hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def message_in(self, lang: str) -> str:
        """Return the message in a language."""
        return retold(self.message, lang)

    def to_dict(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": str(self.message), "hint": str(self.hint)}}


class PlanError(RerailError):
    """The plan cannot be run; every fault is listed."""

    default = "PLAN_INVALID"

    def __init__(self, message: str, faults: Sequence[Fault] = (), code: str | None = None) -> None:
        self.opening, self.faults = message, tuple(faults)
        super().__init__(self.message_in("en"), code)

    def message_in(self, lang: str) -> str:
        lines = [f"\n  - {fault.said(lang)}" for fault in self.faults[:50]]
        if len(self.faults) > 50:
            lines.append("\n  " + say("refuse.plan.more_faults", lang, count=len(self.faults) - 50))
        return retold(self.opening, lang) + "".join(lines)

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        plain["error"]["faults"] = [fault.to_dict() for fault in self.faults]
        return plain


class StoreError(RerailError):
    """History could not be read or written; the run stopped, and nothing was reported as done."""


class Refused(RerailError):
    """The run's state does not allow that; the message says what does."""

    default = "RUN_AT_REST"


class SettingsError(RerailError):
    """A setting is unknown or has a wrong value."""

    default = "SETTINGS_INVALID"


class ToolError(Exception):
    """A tool's failure in its own words: code, category, and arguments that would work, if it knows them.

    It says that nothing happened (contract X4), unless it was raised from, or while handling, an exception that does
    not say so. ``lost=True`` says that the effect is unknown, ``lost=False`` that nothing happened in any case.
    """

    lost: bool | None = None
    ended = True  # the call is over; False: the request may still be under way elsewhere
    # True: no answer, an unreadable one, or `lost=True` by the tool: its `errors` declaration does not cover that.
    unanswered = False

    def __init__(
        self,
        message: str = "",
        code: str | None = None,
        category: Category | str | None = None,
        suggest: Mapping[str, Any] | None = None,
        *,
        status: int | None = None,
        lost: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.lost = type(self).lost if lost is None else lost
        if lost:
            self.unanswered = True
        self.code = code
        self.category = Category(category) if category is not None else None
        self.suggest = dict(suggest) if suggest is not None else None
        self.status = status

    @property
    def certainty(self) -> Certainty:
        """Return the outcome of the call: not done, or lost."""
        lost = handled_lost(self) if self.lost is None else self.lost
        return Certainty.LOST if lost else Certainty.NOT_DONE


class NotDone(Exception):
    """Nothing happened, whatever the cause suggests: `raise rerail.NotDone(error) from error`."""

    certainty = Certainty.NOT_DONE
    error: BaseException | None = None  # the cause; it is classified and reported

    def __init__(self, cause: BaseException | str = "") -> None:
        super().__init__(str(cause))
        if isinstance(cause, BaseException):
            self.error = cause


class RateLimited(ToolError):
    """Not now: come back after that many seconds. Counts neither as a failure nor as a retry.

    Of the effect it says what a `ToolError` says.
    """

    def __init__(
        self, message: str = "", retry_after: float = 1.0, code: str = "RATE_LIMITED", *, lost: bool | None = None
    ) -> None:
        told = message or tell("error.rate_limited", retry_after=retry_after)
        super().__init__(told, code, Category.TRANSIENT, lost=lost)
        self.retry_after = float(retry_after)
