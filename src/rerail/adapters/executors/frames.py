"""What a worker process and its parent say to each other: JSON, each message behind its length.

Rules of this file:
- JSON and no pickle: a worker runs code that the parent does not trust with its own memory (SPEC M4).
- An exception travels as its names, its words and the attributes the engine reads, and comes back as an exception of
  the same name that is also an instance of every class both sides know.
"""

from __future__ import annotations

import builtins
import contextlib
import struct
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from rerail.core.codes import Category
from rerail.core.foreign import attribute, certainty_of, never_sent, status_of, type_names
from rerail.core.outcome import Certainty
from rerail.errors import NotDone
from rerail.i18n import Told, put_together, taken_apart, tell, words_of

# What the engine reads from an exception, if it is there.
ATTRIBUTES = ("code", "category", "suggest", "retry_after", "status", "exit_code", "unanswered", "never_sent")

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a worker finds a function: in a module that it can import, or in a file."""

    module: str
    qualname: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.qualname}"


def target_of(fn: Any) -> Target:
    """Where a worker finds this function; ValueError if it cannot."""
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
    """A message as bytes behind its length; TypeError, ValueError or OverflowError if it is not JSON."""
    data = dump(message)
    return _LENGTH.pack(len(data)) + data


def dump(message: Mapping[str, Any]) -> bytes:
    """A message as JSON; TypeError, ValueError or OverflowError if it is none."""
    return msgspec.json.encode(message, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Pydantic's models, by what they can do, so that pydantic is not imported for it."""
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(tell("error.worker.not_json", name=type(value).__name__))


def unpack(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None at the end of the stream, also in the middle of a message."""
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
    """The traceback in the worker, as the cause of what it raised: printed wherever tracebacks are."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Remote:
    """What all exceptions that come from a worker have in common: words, class names and traceback as they were."""

    message = ""
    type_names: Sequence[str] = ()
    traceback_text = ""
    certainty = Certainty.LOST  # as it was told there, where all causes are known

    def __str__(self) -> str:
        return self.message


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as plain data."""
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


def _attribute(error: BaseException, name: str) -> Any:
    with contextlib.suppress(Exception):  # as above
        asked = {"status": status_of, "never_sent": never_sent}.get(name)
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
    """The exception that was described, raised elsewhere."""
    names, text = described["types"], described["traceback"]
    message = put_together(described["told"]) if described["told"] else described["message"]
    error = _instance(names, message)
    attributes = {**described["attributes"], "message": message, "type_names": tuple(names), "traceback_text": text}
    if "category" in attributes:
        attributes["category"] = _category(attributes["category"])
    attributes["certainty"] = Certainty(described.get("certainty", Certainty.LOST))
    for name, value in attributes.items():
        with contextlib.suppress(AttributeError):  # a class of the user's may have a property of that name
            setattr(error, name, value)
    error.__cause__ = RemoteTraceback(text)
    return error


def _category(value: object) -> Category | None:
    with contextlib.suppress(ValueError):
        return Category(str(value))
    return None


def _instance(names: Sequence[str], message: str) -> Exception:
    """An exception named like the first of the classes, and an instance of the first of them that is known here."""
    base = next((found for name in names if (found := _class(name))), Exception)
    home, _, name = names[0].rpartition(".")
    made: Any = None
    for parent in (base, Exception):
        kind = type(name, (Remote, parent), {"__module__": home or "builtins"})
        # A class of the user's may have a constructor of its own, whose arguments stayed behind.
        with contextlib.suppress(Exception):
            made = made or kind.__new__(kind, message)
    assert isinstance(made, Exception)
    # Never initialised; but args is what many people print.
    made.args = (message,)
    return made


def _class(name: str) -> type[Exception] | None:
    """The class of that name, if this process knows it already; nothing is imported on a worker's word."""
    home, _, qualname = name.rpartition(".")
    found = getattr(sys.modules.get(home) if home else builtins, qualname, None)
    # StopIteration is the one Exception that a future refuses.
    usable = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, StopIteration)
    return found if usable else None
