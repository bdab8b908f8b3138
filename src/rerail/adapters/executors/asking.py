"""`ctx.ensure_owner()` of a call in another process: the question goes to the run's owner (contract E11).

Rules of this file:
- Only the owner knows its lease. A worker process and a Ray node keep no copy of it; they ask each time.
- An answer is as old as the question. One that took longer than `PROMPT` is asked for again: the process may have been
  frozen in between, and the answer with it.
- No answer is not a yes: an owner that is gone, frozen or out of reach means *not done*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rerail.adapters.executors.frames import describe, revive
from rerail.adapters.uptime import uptime
from rerail.core.codes import Category
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell
from rerail.ports import TERM

PROMPT: Final = 1.0  # seconds in which an answer is worth something

Answer = Mapping[str, Any]


class Gone(Exception):
    """The owner can be asked no more."""


def ask(question: Callable[[float], Answer | None]) -> None:
    """Return once the owner says that it owns the run; raise *not done* if it does not say so within `TERM`.

    ``question`` blocks for at most the seconds it is given, and returns the answer, or None if there is none yet.
    """
    begun = asked = uptime()
    while asked - begun < TERM:
        try:
            answer = question(PROMPT)
        except Gone:
            break
        if answer is not None and uptime() - asked <= PROMPT:
            if (refusal := answer["refusal"]) is not None:
                raise NotDone(revive(refusal))
            return
        asked = uptime()
    raise not_owned("OWNER_UNHEARD")


def not_owned(text: str) -> NotDone:
    """Return the error of a call that may not act, worded by the catalogue."""
    return NotDone(ToolError(tell(f"error.{text}"), "OWNER_LOST", Category.TRANSIENT))


def answer(ctx: Any) -> Answer:
    """Return the owner's answer to such a question, as JSON."""
    try:
        if ctx is not None:
            ctx.ensure_owner()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is no yes
        return {"refusal": describe(error)}
    return {"refusal": None}
