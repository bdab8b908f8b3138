"""An exception, or an answer that says it failed, as data: code, category, message, and whether the answer was lost."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rerail.core.classify import Evidence, classify
from rerail.core.codes import Category, category_of
from rerail.core.events import Error
from rerail.core.texts import say
from rerail.core.values import NotJson, pack, unpack

MAX_MESSAGE = 4_000
MAX_TRACEBACK = 8_000
MAX_HINT = 16_000  # bytes; a hint that is larger is left out: it would be written again with every try
# A connection that broke in the middle: the request may have arrived. A refused one never did.
LOST_TYPES = frozenset({
    "TimeoutError", "ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError", "IncompleteReadError",
    "EOFError", "IncompleteRead", "RemoteDisconnected", "ReadTimeout", "ReadError", "WriteError", "RemoteProtocolError",
    "ServerDisconnectedError", "WriteTimeout", "ChunkedEncodingError", "ProtocolError", "timeout", "ConnectionError",
    "SSLError",
})  # fmt: skip
# It never got as far as the other side, whatever else its type is.
NEVER_SENT = frozenset({
    "ConnectionRefusedError", "gaierror", "ConnectError", "ConnectTimeout", "NewConnectionError",
    "NameResolutionError", "ClientConnectorError", "SSLCertVerificationError", "InvalidURL",
})  # fmt: skip
MAX_CAUSES = 8

Patterns = Mapping[Category, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: the error, whether its effect may have happened, and how long it asked us to wait."""

    error: Error
    lost: bool = False
    not_now: float | None = None


def from_code(code: str, text: str | None = None, category: Category | None = None, **values: Any) -> Error:
    """An error of ours, worded by the catalogue."""
    key = text or code
    data = {**values, "text": key} if text else dict(values)
    return Error(code, category or category_of(code) or Category.UNKNOWN, say(f"error.{key}", **values), data=data)


def from_exception(error: BaseException, patterns: Patterns) -> Failure:
    """An exception that a tool raised; what it says of itself beats what we make of it."""
    message = _message(error)
    code = getattr(error, "code", None)
    code = code if isinstance(code, str) and code else None
    status, exit_code = _number(getattr(error, "status", None)), _number(getattr(error, "exit_code", None))
    if status is None:
        status = _number(getattr(error, "status_code", None)) or _response_status(error)
    suggest = getattr(error, "suggest", None)
    suggest = dict(suggest) if isinstance(suggest, Mapping) else None
    names = _type_names(error)
    lost = bool(getattr(error, "lost", False)) or _broke_in_the_middle(error)
    category = getattr(error, "category", None)
    if not isinstance(category, Category):
        category = classify(Evidence(message, code, names, status, exit_code, suggest is not None), patterns)
    known = code or (
        "CONNECTION_LOST" if lost and "TimeoutError" not in names else "TIMEOUT" if lost else "TOOL_FAILED"
    )
    data = Error(known, category, message, names[0] if names else "", _trace(error), status, suggest)
    return Failure(_storable(data), lost, _retry_after(error, code, status))


def _storable(error: Error) -> Error:
    """The error with what cannot be written as JSON replaced or left out: a tool's odd words must not stop a run."""
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
    return words.encode("utf-8", "replace").decode()


def from_returned(output: Mapping[str, Any], patterns: Patterns) -> Failure:
    """An answer that says itself that it failed (`success: false`): the same failure as one that was thrown (X3)."""
    told = output.get("error")
    inner = told if isinstance(told, Mapping) else {}
    message = _first_text(
        inner.get("message"), output.get("message"), told, output.get("reason"), output.get("errors"), _content(output)
    ) or say("error.RETURNED_FAILURE")
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
    data = Error(code or "TOOL_FAILED", category, message[:MAX_MESSAGE], status=status, suggest=suggest)
    return Failure(_storable(data), False, not_now)


def says_failed(output: Any) -> bool:
    """Whether an answer says itself that it failed."""
    if not isinstance(output, Mapping):
        return False
    if output.get("isError") is True:
        return True
    success = output.get("success", True)
    return success is False or (success == 0 and isinstance(success, int))


def _content(output: Mapping[str, Any]) -> str:
    """The texts of an answer in parts, as MCP tools give them."""
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
        return say("error.SYSTEM_EXIT", status=error.code)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception whose __str__ fails must not become another one
        text = ""
    text = text.strip()
    if isinstance(error, KeyError) and text:
        text = f"KeyError: {text}"  # the bare key says nothing to whoever reads it
    if len(text) > MAX_MESSAGE:
        text = text[: MAX_MESSAGE - 40] + f" … ({len(text):,} characters)"
    return text or say("error.EMPTY", type=type(error).__name__)


def _type_names(error: BaseException) -> tuple[str, ...]:
    remote = getattr(error, "type_names", None)  # an exception that came from another process names its own types
    if isinstance(remote, tuple | list) and remote:
        return tuple(map(str, remote))
    return tuple(
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        for kind in type(error).__mro__
        if kind is not object
    )


def _trace(error: BaseException) -> str:
    remote = getattr(error, "traceback_text", None)
    text = remote if isinstance(remote, str) else "".join(traceback.format_exception(error, limit=-20))
    return text if len(text) <= MAX_TRACEBACK else "…" + text[-MAX_TRACEBACK:]


def _broke_in_the_middle(error: BaseException) -> bool:
    """Whether a request may have arrived although its answer did not, by the types of the error and of its causes.

    Libraries wrap what happened (`requests`, `urllib`): a wrapped reset is as good a reason to doubt as a bare one.
    """
    lost, left = False, [error]
    for _ in range(MAX_CAUSES):
        if not left:
            break
        link = left.pop(0)
        kinds = {name.rpartition(".")[2] for name in _type_names(link)}
        if kinds & (NEVER_SENT | LOST_TYPES):
            # What lies deepest happened first: a reset is not undone by a reconnect that was refused.
            lost = not kinds & NEVER_SENT
        left += _causes(link)
    return lost


def _causes(error: BaseException) -> list[BaseException]:
    """What an error says that it came from, and what it wraps without saying so."""
    context = error.__context__ if not error.__suppress_context__ else None
    wrapped = (error.__cause__, context, getattr(error, "reason", None), *getattr(error, "args", ()))
    return [link for link in wrapped if isinstance(link, BaseException) and link is not error]


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _response_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return _number(getattr(response, "status_code", None)) or _number(getattr(response, "status", None))


def _retry_after(error: BaseException, code: str | None, status: int | None) -> float | None:
    value = getattr(error, "retry_after", None)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        told = code in ("RATE_LIMITED", "COOLDOWN_ACTIVE") or status in (429, 503)
        return float(value) if told else None
    return None
