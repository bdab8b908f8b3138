"""The protocol between a worker process and its parent: messages, exceptions, the question to the run's owner.

Rules of this file:
- Length-prefixed JSON, no pickle: a worker runs code that the parent does not trust with its own memory (contract M4).
- An exception travels as its class names, its message and the attributes that the engine reads. It comes back as an
  exception of the same name that is also an instance of every class known to both sides.
- Only the owner of a run knows its lease. A worker process and a Ray node keep no copy of it; `ctx.ensure_owner()` asks
  each time (contract E11). An answer is as old as its question. One slower than `PROMPT` is asked for again: the
  process may have been frozen in between, and the answer with it. Silence is not a yes: an owner that is gone, frozen
  or out of reach means *not done*.
"""

from __future__ import annotations

import builtins
import contextlib
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from rerail.codes import Category
from rerail.context import uptime
from rerail.errors import NotDone, ToolError
from rerail.i18n import Told, put_together, taken_apart, tell, words_of
from rerail.kernel.foreign import attribute, certainty_of, never_sent, status_of, type_names, wait_of
from rerail.kernel.outcome import Certainty
from rerail.ports import TERM

# Optional attributes that the engine reads from an exception.
ATTRIBUTES = ("code", "category", "suggest", "retry_after", "status", "exit_code", "unanswered", "never_sent")

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Target:
    """Location of a function: an importable module or a file."""

    module: str
    qualname: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.qualname}"


def target_of(fn: Any) -> Target:
    """Return the function's location; ValueError if a worker could not find it."""
    name, home = getattr(fn, "__qualname__", ""), getattr(fn, "__module__", "")
    if not name or "<" in name or not home:
        raise ValueError(tell("tool.isolated", name=name or fn))
    module = sys.modules.get(home)
    if home == "__main__":
        return _target_in_main(module, name)
    return Target(home, name, getattr(module, "__rerail_file__", ""))


def _target_in_main(module: Any, name: str) -> Target:
    spec = getattr(module, "__spec__", None)
    if spec is not None:  # python -m package.module
        return Target(spec.name, name)
    file = getattr(module, "__file__", None)
    if not file:
        raise ValueError(tell("tool.isolated_typed_in", name=name))
    return Target("__main__", name, str(file))


# --- Messages ------------------------------------------------------------------------------------------------------


def pack(message: Mapping[str, Any]) -> bytes:
    """Encode a message behind its length; TypeError, ValueError or OverflowError if it is not JSON."""
    data = dump(message)
    return _LENGTH.pack(len(data)) + data


def dump(message: Mapping[str, Any]) -> bytes:
    """Encode a message as JSON; TypeError, ValueError or OverflowError if it cannot be."""
    return msgspec.json.encode(message, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Dump pydantic's models by duck typing, so that pydantic is not imported for it."""
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(tell("error.worker.not_json", name=type(value).__name__))


def unpack(stream: IO[bytes]) -> dict[str, Any] | None:
    """Read the next message; None at the end of the stream, also in the middle of a message."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        return None
    return msgspec.json.decode(data, type=dict[str, Any])


# --- Exceptions ----------------------------------------------------------------------------------------------------


class RemoteTraceback(Exception):
    """The worker's traceback as the cause of its exception: printed wherever tracebacks are."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Remote:
    """Base of all exceptions from a worker: original message, class names and traceback."""

    message = ""
    type_names: Sequence[str] = ()
    traceback_text = ""
    certainty = Certainty.LOST  # certainty as set in the worker, where all causes are known

    def __str__(self) -> str:
        return self.message


def describe(error: BaseException) -> dict[str, Any]:
    certainty = certainty_of(error)
    if isinstance(error, NotDone) and error.error is not None:
        error = error.error
    return {
        "types": type_names(error),
        "message": str(message := _message(error)),
        "told": taken_apart(message) if isinstance(message, Told) else None,
        "traceback": "".join(traceback.format_exception(error)),
        "attributes": {name: value for name in ATTRIBUTES if _is_json(value := _attribute(error, name))},
        "certainty": certainty,
    }


def _message(error: BaseException) -> str:
    try:
        return words_of(error)
    except Exception as broken:  # noqa: BLE001  # users' classes may fail at anything, and a failure must get through
        return tell("error.worker.message_unreadable", name=type(error).__name__, broken=type(broken).__name__)


# Read here: what an exception wraps, its answer and its headers stay in this process.
_ASKED: Final[Mapping[str, Callable[[BaseException], Any]]] = {
    "status": status_of, "never_sent": never_sent, "retry_after": lambda error: wait_of(error, time.time()),
}  # fmt: skip


def _attribute(error: BaseException, name: str) -> Any:
    with contextlib.suppress(Exception):  # as above
        asked = _ASKED.get(name)
        return asked(error) if asked is not None else attribute(error, name)


def _is_json(value: object) -> bool:
    if value is None:
        return False
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def revive(described: Mapping[str, Any]) -> Exception:
    names, text = described["types"], described["traceback"]
    message = put_together(described["told"]) if described["told"] else described["message"]
    error = _instance(names, message)
    attributes = {**described["attributes"], "message": message, "type_names": tuple(names), "traceback_text": text}
    if "category" in attributes:
        attributes["category"] = _category(attributes["category"])
    attributes["certainty"] = Certainty(described.get("certainty", Certainty.LOST))
    for name, value in attributes.items():
        with contextlib.suppress(AttributeError):  # a user's class may have a property of that name
            setattr(error, name, value)
    error.__cause__ = RemoteTraceback(text)
    return error


def _category(value: object) -> Category | None:
    with contextlib.suppress(ValueError):
        return Category(str(value))
    return None


def _instance(names: Sequence[str], message: str) -> Exception:
    """Make an exception named like the first class, and an instance of the first known one."""
    base = next((found for name in names if (found := _class(name))), Exception)
    home, _, name = names[0].rpartition(".")
    made: Any = None
    for parent in (base, Exception):
        kind = type(name, (Remote, parent), {"__module__": home or "builtins"})
        # A user's class may have a constructor of its own, and its arguments were not sent.
        with contextlib.suppress(Exception):
            made = made or kind.__new__(kind, message)
    assert isinstance(made, Exception)
    # Never initialised; but much code prints args.
    made.args = (message,)
    return made


def _class(name: str) -> type[Exception] | None:
    """Return the class of that name if it is loaded already; a worker cannot cause an import."""
    home, _, qualname = name.rpartition(".")
    found = getattr(sys.modules.get(home) if home else builtins, qualname, None)
    # StopIteration is the one Exception that a future refuses.
    usable = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, StopIteration)
    return found if usable else None


# --- The question to the owner of the run --------------------------------------------------------------------------

PROMPT: Final = 1.0  # longest age of a usable answer, in seconds

OwnerAnswer = Mapping[str, Any]


class OwnerGone(Exception):
    """The owner is out of reach for good."""


def ask_owner(question: Callable[[float], OwnerAnswer | None]) -> None:
    """Return once the owner confirms its lease; raise *not done* if it does not within `TERM`.

    ``question`` blocks for at most the given seconds. It returns the answer, or None if there is none yet.
    """
    begun = asked = uptime()
    while asked - begun < TERM:
        try:
            answer = question(PROMPT)
        except OwnerGone:
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


def owner_answer(ctx: Any) -> OwnerAnswer:
    """Return the owner's answer to such a question, as JSON."""
    try:
        if ctx is not None:
            ctx.ensure_owner()
    except Exception as error:  # noqa: BLE001  # any error counts as no
        return {"refusal": describe(error)}
    return {"refusal": None}
