"""What any sensible user of a retry library adds by hand, the same for every peer: standard library only.

Rules of this file:
- Error bodies are raised, errors that cannot pass are not tried again, a replaced tool is left for its alternative.
- `careful` goes further: a call that must not happen twice is not made again when its answer was lost.
- Peers may make as many calls of a step as Rerail may by default: four, and four more in its automatic round.
"""

from __future__ import annotations

from typing import Any

from benchmarks.recovery.client import HttpError, World

ATTEMPTS = 8
FIRST_WAIT = 0.01  # seconds; a hundredth of what one would use, for all
LONGEST_WAIT = 0.3


class ErrorBody(Exception):
    """An answer that says that it is an error."""


class LostAnswer(Exception):
    """Nobody knows whether a call that must not happen twice has happened."""


def raised(answer: Any) -> Any:
    """An answer, or the error that it holds."""
    if isinstance(answer, dict) and (
        answer.get("error") or answer.get("success") is False or answer.get("status") == "error"
    ):
        raise ErrorBody(str(answer))
    return answer


def passing(error: BaseException) -> bool:
    """Whether it may be different next time, as people usually decide it."""
    if isinstance(error, HttpError):
        return error.status in (408, 429) or error.status >= 500
    return isinstance(error, (ConnectionError, TimeoutError, ErrorBody))


def called(
    world: World, step: dict[str, Any], args: dict[str, Any], *, bodies: bool = True, careful: bool = False
) -> Any:
    """One try of a step: its tool, and where that is gone for good, the next."""
    tools = [step["tool"], *step["alternatives"]]
    for tool in tools:
        try:
            answer = world.call(step["id"], tool, args)
            return raised(answer) if bodies else answer
        except (ConnectionResetError, TimeoutError) as error:
            if careful and step["effect"] == "once":
                raise LostAnswer(str(error)) from error
            raise
        except Exception as error:
            if tool == tools[-1] or passing(error):
                raise
    raise AssertionError("a step has a tool")
