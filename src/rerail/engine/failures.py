"""Failures as data: code, category, message and certainty, from exceptions and error answers."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rerail.codes import Category, category_of
from rerail.context import excerpt
from rerail.errors import NotDone
from rerail.i18n import Told, say, tell, words_of
from rerail.kernel.events import Error
from rerail.kernel.foreign import NEVER_SENT, Said, certainty_of, never_sent, said_by, type_names, wrapped_in
from rerail.kernel.outcome import Certainty, as_declared
from rerail.plan.tool_spec import Errors
from rerail.recovery.classifier import Evidence, classify
from rerail.values.json_values import NotJson, pack, unpack

MAX_MESSAGE = 4_000
MAX_TRACEBACK = 8_000
MAX_HINT = 16_000  # bytes; a larger hint is dropped, because every try would store it again
# A connection that broke in the middle, by the type names of the error and its causes: only its code follows.
BROKE = frozenset({
    "ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError", "IncompleteReadError", "EOFError",
    "IncompleteRead", "RemoteDisconnected", "ReadError", "WriteError", "RemoteProtocolError",
    "ServerDisconnectedError", "ChunkedEncodingError", "ProtocolError", "ConnectionError", "SSLError",
})  # fmt: skip
TIMED_OUT = frozenset({"TimeoutError", "ReadTimeout", "WriteTimeout", "timeout"})
MAX_CAUSES = 8

Patterns = Mapping[Category, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: the error, the certainty of its effect, and the wait that the tool asked for."""

    error: Error
    certainty: Certainty = Certainty.NOT_DONE
    not_now: float | None = None
    ended: bool = True  # the call is over; False: the request may still be under way elsewhere


def from_code(code: str, text: str | None = None, category: Category | None = None, **values: Any) -> Error:
    """Return an error of Rerail's own, with a catalogue message."""
    key = text or code
    data = {**values, "text": key} if text else dict(values)
    return Error(code, category or category_of(code) or Category.UNKNOWN, say(f"error.{key}", **values), data=data)


def from_exception(error: BaseException, patterns: Patterns, errors: Errors = "", now: float = 0.0) -> Failure:
    """Return an exception of a tool as data; its own statements beat our classification.

    ``errors`` is the tool's declaration for all its errors (contract X4); ``now`` is what a date in it counts from.
    """
    certainty = certainty_of(error)
    if isinstance(error, NotDone) and error.error is not None:
        error = error.error
    message, said, names = _message(error), said_by(error, now), type_names(error)
    category = said.category
    if category is None:
        hints = said.suggest is not None
        category = classify(Evidence(message, said.code, names, said.status, said.exit_code, hints), patterns)
    data = Error(
        said.code or _broke(error) or "TOOL_FAILED", category, message, names[0] if names else "", _trace(error, said),
        said.status, said.suggest,
    )  # fmt: skip
    certainty = as_declared(
        certainty, errors, said.status, retry_after=said.retry_after is not None, unanswered=said.unanswered,
        never_sent=bool(errors) and never_sent(error),
    )  # fmt: skip
    return Failure(_storable(data), certainty, said.retry_after, said.ended)


def _storable(error: Error) -> Error:
    """Return the error in JSON, with other values replaced or dropped: malformed data must not stop a run."""
    try:
        hint = pack(error.suggest).data
        suggest = unpack(hint) if len(hint) <= MAX_HINT else None
    except NotJson:
        suggest = None
    return Error(
        _text(error.code), error.category, _text(error.message), _text(error.type), _text(error.traceback),
        error.status, suggest if isinstance(suggest, dict) else None,
    )  # fmt: skip


def _text(words: str) -> str:
    plain = words.encode("utf-8", "replace").decode()
    return words if plain == words else plain  # a catalogue message stays translatable


def from_returned(output: Mapping[str, Any], patterns: Patterns) -> Failure:
    """Return an answer that reports its own failure (`success: false`), classified like an exception (X3).

    It proves nothing about the effect, which may have come before: lost, with any code.
    """
    told = output.get("error")
    inner = told if isinstance(told, Mapping) else {}
    message = _first_text(
        inner.get("message"), output.get("message"), told, output.get("reason"), output.get("errors"), _content(output)
    ) or tell("error.RETURNED_FAILURE")
    code = inner.get("code", output.get("code"))
    code = code if isinstance(code, str) and code else None
    status = _number(inner.get("status", output.get("status_code", output.get("status"))))
    suggest = inner.get("suggest", output.get("suggest"))
    suggest = dict(suggest) if isinstance(suggest, Mapping) else None
    wanted = inner.get("category", output.get("category"))
    category = Category(wanted) if isinstance(wanted, str) and wanted in set(Category) else None
    category = category or classify(Evidence(message, code, (), status, None, suggest is not None), patterns)
    wait = inner.get("retry_after", output.get("retry_after", output.get("retryAfter")))
    not_now = (
        float(wait)
        if isinstance(wait, int | float) and wait >= 0 and (code == "COOLDOWN_ACTIVE" or status in (429, 503))
        else None
    )
    data = Error(code or "TOOL_FAILED", category, excerpt(message, MAX_MESSAGE), status=status, suggest=suggest)
    return Failure(_storable(data), Certainty.LOST, not_now)


def says_failed(output: Any) -> bool:
    """True if an answer reports its own failure."""
    if not isinstance(output, Mapping):
        return False
    if output.get("isError") is True:
        return True
    success = output.get("success", True)
    return success is False or (success == 0 and isinstance(success, int | float))


def _content(output: Mapping[str, Any]) -> str:
    """Yield the texts of a multi-part answer, as MCP tools send them."""
    parts = output.get("content")
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    return "; ".join(text for text in texts if isinstance(text, str))


def _first_text(*values: Any) -> str:
    for value in values:
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value:
            return "; ".join(map(str, value[:5]))
    return ""


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return tell("error.SYSTEM_EXIT", status=error.code)
    try:
        text = words_of(error)
    except Exception:  # noqa: BLE001 - a failing __str__ must not become another exception
        text = ""
    if isinstance(text, Told):
        return excerpt(text, MAX_MESSAGE)
    text = text.strip()
    if isinstance(error, KeyError) and text:
        text = f"KeyError: {text}"  # the bare key has no meaning for a reader
    if len(text) > MAX_MESSAGE:
        text = excerpt(text, MAX_MESSAGE - 40) + f" … ({len(text):,} characters)"
    return text or tell("error.EMPTY", type=type(error).__name__)


def _trace(error: BaseException, said: Said) -> str:
    text = said.traceback_text
    text = "".join(traceback.format_exception(error, limit=-20)) if text is None else text
    return text if len(text) <= MAX_TRACEBACK else "…" + excerpt(text, MAX_TRACEBACK, tail=True)


def _broke(error: BaseException) -> str:
    """Return the code of a connection that broke, or timed out, by the types of the error and its causes.

    Libraries wrap the cause (`requests`, `urllib`): the deepest known link counts.
    """
    code, left = "", [error]
    for _ in range(MAX_CAUSES):
        if not left:
            break
        link = left.pop(0)
        kinds = {name.rpartition(".")[2] for name in type_names(link)}
        if kinds & NEVER_SENT:
            code = ""
        elif kinds & (TIMED_OUT | BROKE):
            code = "TIMEOUT" if kinds & TIMED_OUT else "CONNECTION_LOST"
        left += wrapped_in(link, handled=not link.__suppress_context__)
    return code


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
