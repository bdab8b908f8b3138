"""Whether an output that a tool calls a success looks like an error (SPEC X9).

Rules of this file:
- Pure and total: any output gives a sentence or None; nothing is raised.
- Only the top level is looked at: the cost does not grow with what lies below it, nor with the length of a text.
- A false alarm stops a good run, so a shape stands here only if it hardly ever is a result. What is a matter of
  opinion (a job's `status: "failed"`, a text that speaks of errors, a search that found nothing) is believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from rerail.core.values import holds
from rerail.i18n import tell


def suspect(output: object, ignore: Collection[str] = (), more: Sequence[object] = ()) -> str | None:
    """What makes an output look like an error, in a short sentence, or None.

    ``ignore`` names members that mean nothing here ("text": texts are never errors); ``more`` are further signs.
    """
    for sign in more:
        if _shows(output, sign):
            return tell("reason.suspect.sign", sign=_show(sign))
    match output:
        case dict():
            members = {name: value for name, value in output.items() if name not in ignore} if ignore else output
            return next((seen for look in _LOOKS if (seen := look(members))), None)
        case str() if len(output) <= _LONGEST and "text" not in ignore:
            return _error_text(output)
    return None


def _shows(output: object, sign: object) -> bool:
    """Whether an output holds a sign: a part of an object, words of a text, or the name of a member that is set."""
    if not isinstance(sign, str):
        return holds(output, sign)
    if isinstance(output, str):
        return sign.casefold() in output[:_LONGEST].casefold()
    return isinstance(output, dict) and sign in output and _is_set(output[sign])


# --- Objects ---------------------------------------------------------------------------------------------------------

_Members = Mapping[object, object]

_ERRORS: Final = ("error", "errors", "exception")
_STATUSES: Final = ("status", "status_code", "statusCode")
_MESSAGES: Final = ("message", "msg", "errmsg", "detail", "reason", "description")
_FLAGS: Final = {"ok": False, "success": False, "isError": True, "is_error": True}  # The value that means failure.
_ENVELOPE: Final = {"status", "code", "data", "details", *_MESSAGES}

# Null, false, zero and empty, as they look once somebody has turned them into text.
_UNSET: Final = {"", "null", "none", "nil", "false", "0", "no error", "no errors", "n/a"}


def _error_member(members: _Members) -> str | None:
    """A member for errors that holds one."""
    for name in _ERRORS:
        if name in members and _is_set(members[name]) and not _is_count(members, name):
            return tell("reason.suspect.member", name=name, shown=_show(members[name]))
    return None


def _is_count(members: _Members, name: str) -> bool:
    """Whether a bare number under such a name counts errors: beside other data it is no error itself."""
    if isinstance(members[name], bool) or not isinstance(members[name], int | float):
        return False
    return any(_is_set(value) for other, value in members.items() if other != name)


def _error_status(members: _Members) -> str | None:
    """An HTTP error status; under `code` only next to a message, since many other things are called code."""
    names = (*_STATUSES, "code") if _message(members) else _STATUSES
    for name in names:
        if _is_error_status(members.get(name)):
            return tell("reason.suspect.status", name=name, status=members[name], message=_message(members))
    return None


def _failure_flag(members: _Members) -> str | None:
    """A flag that says the call failed; 0 and 1 count as flags, null and texts do not."""
    for name, failure in _FLAGS.items():
        value = members.get(name)
        if isinstance(value, int) and value == failure:
            return tell("reason.suspect.flag", name=name, value=str(failure).lower(), message=_message(members))
    return None


def _error_envelope(members: _Members) -> str | None:
    """`status: "error"` and a message, with nothing around them that could make it a report on something else."""
    status = members.get("status")
    if status in ("error", "fail") and _ENVELOPE.issuperset(members):
        return f'member "status" is "{status}"{message}' if (message := _message(members)) else None
    return None


def _error_code(members: _Members) -> str | None:
    """A code that says failure and brings no data: `{"code": 50000, "msg": …}`, `{"errcode": 45009}`."""
    if any(_is_set(value) for name, value in members.items() if name not in _AROUND_CODES):
        return None
    for name in _CODES:
        value = members.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and _is_failure_code(name, value, members):
            return tell("reason.suspect.status", name=name, status=value, message=_message(members))
    return None


def _is_failure_code(name: str, value: int, members: _Members) -> bool:
    if name != "code":
        return value != 0
    return str(value)[:1] in "45" and 400 <= value < 10**7 and bool(_message(members))


def _failed_result(members: _Members) -> str | None:
    """`{"result": {"success": false}}`: nothing but a result that says it failed."""
    inner = members.get("result")
    return _failure_flag(inner) if isinstance(inner, dict) and len(members) == 1 else None


_CODES: Final = ("errcode", "errno", "error_code", "code")
_AROUND_CODES: Final = {*_CODES, *_MESSAGES, "errmsg", "error_msg", "request_id", "requestId", "trace_id", "timestamp"}

_LOOKS: Final[tuple[Callable[[_Members], str | None], ...]] = (
    _error_member,
    _error_status,
    _failure_flag,
    _error_envelope,
    _error_code,
    _failed_result,
)


def _is_set(value: object) -> bool:
    match value:
        case None | False:
            return False
        case int() | float():
            return value != 0
        case str():
            return len(value) > 16 or value.strip().lower() not in _UNSET
        case list() | tuple() | dict():
            return len(value) > 0
        case _:
            return True


def _is_error_status(value: object) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[45][0-9]{2}", value) is not None
    return isinstance(value, int) and 400 <= value < 600


def _message(members: _Members) -> str:
    """The message that goes with a failure, as the end of a sentence."""
    found = (members[name] for name in _MESSAGES if isinstance(members.get(name), str) and members[name])
    return next((f": {_show(text)}" for text in found), "")


def _show(value: object) -> str:
    """A value in a few words; of an object, its message or its size."""
    match value:
        case str():
            return f'"{value[:_SHOWN].strip()}"' if len(value) <= _SHOWN else f'"{value[:_SHOWN].strip()}…"'
        case True:
            return "true"
        case int() | float() if abs(value) < 10**18:
            return str(value)
        case dict():
            return _message(value)[2:] or tell("reason.suspect.object", count=len(value))
        case list() | tuple() if len(value) == 1 and not isinstance(value[0], list | tuple):
            return _show(value[0])
        case list() | tuple():
            return tell("reason.suspect.entries", count=len(value))
        case _:
            return tell("reason.suspect.type", name=type(value).__name__)


# --- Texts -----------------------------------------------------------------------------------------------------------

_SHOWN: Final = 200  # How much of a text is repeated in the sentence.
_LONGEST: Final = 10_000  # A longer text holds more than an error message.
_LINE: Final = 300  # An error message on one line is no longer than this.

_REASONS: Final = (
    r"(?:Bad Request|Unauthorized|Payment Required|Forbidden|Not Found|Method Not Allowed|Request Time-?out|Conflict"
    r"|Gone|Payload Too Large|Unprocessable (?:Entity|Content)|Too Many Requests|Internal Server Error"
    r"|Not Implemented|Bad Gateway|Service (?:Temporarily )?Unavailable|Gateway Time-?out|Client Error|Server Error)"
)
_S: Final = r"\s{0,20}"
_NO_REPORT: Final = r"(?!(?:none|null|nil|no|n/a|无|没有|[0-9.,%]{1,20})[.。]?$|0\b|\s)\S"


def _shape(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


# A text that begins so is an error, however many lines follow.
_BEGINNINGS: Final = (
    _shape(r"Traceback \(most recent call last\):"),
    # JSON that was passed on as text: its first member says it all.
    _shape(
        rf'\{{{_S}"(?:error|errors|exception)"{_S}:{_S}',
        rf'(?!null\b|false\b|0\b|""|\[{_S}\]|\{{{_S}\}}|\s)\S',
    ),
    _shape(rf'\{{{_S}"(?:(?:ok|success)"{_S}:{_S}(?:false|0)\b|(?:isError|is_error)"{_S}:{_S}true\b)'),
    # The error page of a web server.
    _shape(
        rf"(?:<!doctype[^>]{{0,100}}>{_S})?<html[^>]{{0,200}}>{_S}(?:<head[^>]{{0,100}}>{_S})?",
        rf"<title>{_S}[45][0-9]{{2}} {_REASONS}",
    ),
)

# A single line that begins so is an error.
_LINES: Final = (
    # "Error: file not found", but neither "Error: none" nor the "Failed: 3, passed: 12" of a report.
    _shape(r"(?:fatal )?(?:error|exception|fatal|panic)\s?[:\uff1a]\s{0,3}", _NO_REPORT),
    _shape(r"(?:failure|failed)\s?[:\uff1a]\s{0,3}(?![0-9])", _NO_REPORT),
    _shape(r"[^\s:\uff1a,\uff0c。]{0,8}(?:错误|出错|异常|报错)\s?[:\uff1a]\s{0,3}", _NO_REPORT),
    _shape(r"[^\s:\uff1a,\uff0c。]{0,8}失败\s?[:\uff1a]\s{0,3}(?![0-9])", _NO_REPORT),
    _shape(r"\[(?:error|fatal)\]\s?\S"),
    _shape(r"(?:an )?(?:unexpected |internal |unknown )?error (?:has )?occurred\b"),
    _shape(
        r"error (?:during|while|executing|calling|running|invoking|processing|reading|fetching|parsing)\b[^:]{0,120}:"
    ),
    # "ValueError: bad date", "requests.exceptions.ConnectionError('…')".
    re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,100}(?:Error|Exception)(?:[:(]|$)"),
    # "HTTP 503 Service Unavailable", "404 Not Found", "HTTP Error 404: Not Found".
    _shape(
        r"(?:HTTP(?:/[0-9.]{1,3})? (?:error |status )?[45][0-9]{2}\b|error [45][0-9]{2}\b",
        rf"|[45][0-9]{{2}} {_REASONS}\b)",
    ),
    # What programs say of themselves: one sentence that names what did not happen.
    _shape(
        r"(?:failed to|unable to|could not|couldn't|cannot|can't) (?:access|complete|connect|create|execute|fetch|find",
        r"|load|open|parse|process|reach|read|resolve|send|start|write)\b(?!.{0,300}[.!?] \S)",
    ),
    _shape(
        r"(?:permission denied|access (?:is )?denied|connection (?:refused|reset|timed out|closed)",
        r"|(?:request|operation|read) timed out|internal server error|service unavailable|too many requests",
        r"|rate limit exceeded|unauthorized)(?:[.:!]|$)",
    ),
    _shape(
        r"[^\n]{1,200}: (?:no such file or directory|permission denied|command not found|connection refused)$",
    ),
)


def _error_text(text: str) -> str | None:
    """A text that is nothing but an error message."""
    text = text.strip()
    one_line = len(text) <= _LINE and "\n" not in text
    if any(shape.match(text) for shape in (*_BEGINNINGS, *(_LINES if one_line else ()))):
        return tell("reason.suspect.text", text=_show(text))
    return None
