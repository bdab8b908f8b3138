"""Disguised errors: outputs that look like errors although the tool reports success (contract X9).

Rules of this file:
- Pure and total: any output gives a sentence or None; nothing is raised.
- The top level is read, and one object that is alone there: the cost is independent of an output's depth and length.
- A false alarm stops a good run, so a shape is listed only if it is hardly ever a result. A matter of
  opinion (a job's `status: "failed"`, a text about errors, a search without results) counts as a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from rerail.codes import Category
from rerail.i18n import tell
from rerail.i18n.files import packaged
from rerail.recovery.classifier import Evidence, classify
from rerail.values.json_values import holds


def suspect(output: object, ignore: Collection[str] = (), more: Sequence[object] = ()) -> str | None:
    """Return why an output looks like an error, in a short sentence, or None.

    ``ignore`` names members without meaning here ("text": texts are never errors); ``more`` are further signs.
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
        case list() if output:
            return _failed_list(output)
        case _:
            return None


def _shows(output: object, sign: object) -> bool:
    """True if an output holds a sign: a part of an object, words of a text, or the name of a set member."""
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

# Null, false, zero and empty, also in their text forms.
_NOTHING: Final = (None, "", 0, False)
_UNSET: Final = {"", "null", "none", "nil", "false", "0", "no error", "no errors", "n/a"}


def _error_member(members: _Members) -> str | None:
    """Find a member for errors with a value in it."""
    for name in _ERRORS:
        if name in members and _is_set(members[name]) and not _is_count(members, name) and not _is_fine(members[name]):
            return tell("reason.suspect.member", name=name, shown=_show(members[name]))
    return None


def _is_fine(error: object) -> bool:
    """True for an error object that says nothing, or success: `{"code": "ok", "message": ""}`."""
    if not isinstance(error, dict) or all(value in _NOTHING for value in error.values()):
        return isinstance(error, dict)
    code = error.get("code")
    return (code == 0 and isinstance(code, int)) or (isinstance(code, str) and code.lower() in _words().succeeded)


def _is_count(members: _Members, name: str) -> bool:
    """True if a number under such a name counts errors: beside other data it is no error itself."""
    if isinstance(members[name], bool) or not isinstance(members[name], int | float):
        return False
    return any(_is_set(value) for other, value in members.items() if other != name)


def _error_status(members: _Members) -> str | None:
    """Find an HTTP error status; under `code` only next to a message, since many codes are something else."""
    names = (*_STATUSES, "code") if _message(members) else _STATUSES
    for name in names:
        if _is_error_status(members.get(name)):
            return tell("reason.suspect.status", name=name, status=members[name], message=_message(members))
    return None


def _failure_flag(members: _Members) -> str | None:
    """Find a flag that reports failure; 0 and 1 count as flags, null and texts do not."""
    for name, failure in _FLAGS.items():
        value = members.get(name)
        if isinstance(value, int) and value == failure:
            return tell("reason.suspect.flag", name=name, value=str(failure).lower(), message=_message(members))
    return None


def _error_envelope(members: _Members) -> str | None:
    """Find `status: "error"` with a message, and nothing beside it that could make it a report."""
    status = members.get("status")
    if status in ("error", "fail") and _ENVELOPE.issuperset(members):
        return f'member "status" is "{status}"{message}' if (message := _message(members)) else None
    return None


def _bare(members: _Members) -> dict[str, object] | None:
    """Return the members of an envelope that brings no data, by plain names: `RequestId` is `requestid`."""
    if len(members) > _MOST:
        return None
    bare, words = {}, _words()
    for name, value in members.items():
        plain = str(name) if str(name).startswith("__") else str(name).lower().translate(_JOINED)
        if plain not in words.around and _is_set(value):
            return None
        bare[plain] = value
    return bare


def _failed_envelope(members: _Members, *, inside: bool = False, listed: bool = False) -> str | None:
    """Find a failure in an envelope without data: `{"code": 50000, "msg": …}`, `{"errcode": 45009}`.

    ``inside`` another value a text named `error` may be a result, and only an object is an error there. A list of codes
    with words about failures may be a table of them: ``listed``, only members such as `errorCode` tell.
    """
    bare, words = _bare(members), _words()
    if not bare:
        return None
    texts = (bare[name] for name in words.messages if name in bare)
    message: str = next((text for text in texts if isinstance(text, str) and text), "")
    for name in words.error_codes if listed else words.codes:
        if name in bare and _is_failure(name, bare[name], message, empty="data" in bare):
            told = f": {_show(message)}" if message else ""
            return tell("reason.suspect.status", name=name, status=_show(bare[name]), message=told)
    if listed:
        return None
    for name in words.errors:
        error = bare.get(name)
        if _is_set(error) and not _is_fine(error) and (not inside or isinstance(error, dict)):
            return tell("reason.suspect.member", name=name, shown=_show(error))
    return None


def _is_failure(name: str, code: object, message: str, *, empty: bool) -> bool:
    """True if the code of an envelope without data says failure, by itself or with the message beside it."""
    words = _words()
    if isinstance(code, str) and re.fullmatch(r"-?[0-9]{1,9}", code):
        code = int(code)
    match code:
        case bool():
            return False
        case int() if name in words.error_codes:
            return code != 0
        case int() if not message or code in _FINE:
            return False
        case int():
            blames = code < 0 or name in words.result_codes or (str(code)[0] in "45" and 400 <= code < 10**5)
            return blames or empty or _tells_failure(message)
        case str() if name in words.error_codes:
            return bool(code) and code.lower() not in words.succeeded
        case str() if not message or code.lower() in words.succeeded:
            return False
        case str():
            if name == "status":  # "open" beside words about a failure is a ticket, and "failed" a finished job
                return code.lower() in ("error", "fail")
            return code.lower() in _FAILED or _tells_failure(message, code)
        case _:
            return False


def _tells_failure(message: str, code: str = "") -> bool:
    """True if a message, or a code in words, speaks of a failure."""
    return classify(Evidence(message[:_LONGEST], code)) is not Category.UNKNOWN


def _failed_wrapper(members: _Members) -> str | None:
    """Find the failure in `{"result": {"success": false}}`: one object alone, which fails and brings no data."""
    if len(members) > _MOST:
        return None
    words = _words()
    named = [(str(name).lower().translate(_JOINED), value) for name, value in members.items() if _is_set(value)]
    (name, value), *more = [one for one in named if isinstance(one[1], dict) or one[0] not in words.around] or [
        ("", None)
    ]
    alone = not more and (name in words.wrappers or name.endswith("response"))
    if not alone or not isinstance(value, dict) or _bare(value) is None:
        return None
    return _failure_flag(value) or _failed_envelope(value, inside=True)


def _failed_list(output: Sequence[object]) -> str | None:
    """Find `[{"message": …, "errorCode": …}]`: a list of nothing but errors."""
    if len(output) > _MOST:
        return None
    found = [_failed_envelope(entry, listed=True) if isinstance(entry, dict) else None for entry in output]
    return found[0] if None not in found else None


_MOST: Final = 32  # members of an envelope
_JOINED: Final = str.maketrans("", "", "_- ")
_FAILED: Final = ("fail", "failed", "failure", "error", "false")
_FINE: Final = frozenset({0, 1, *range(200, 400), 1000, 2000, 10000, 20000})

_LOOKS: Final[tuple[Callable[[_Members], str | None], ...]] = (
    _error_member,
    _error_status,
    _failure_flag,
    _error_envelope,
    _failed_envelope,
    _failed_wrapper,
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
    """Return the message of a failure, as the end of a sentence."""
    found = (members[name] for name in _MESSAGES if isinstance(members.get(name), str) and members[name])
    return next((f": {_show(text)}" for text in found), "")


def _show(value: object) -> str:
    """Return a value in a few words; of an object, its message or its size."""
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

_SHOWN: Final = 200  # Characters of a text repeated in the sentence.
_LONGEST: Final = 10_000  # A longer text holds more than an error message.
_LINE: Final = 300  # The longest error message on one line.


class _File(msgspec.Struct, frozen=True):
    """The shapes as `disguised_errors.json` holds them; `<NAME>` in one stands for a fragment."""

    fragments: dict[str, str]
    error_codes: str  # names of members, without capitals and underscores: codes that are 0 or a failure
    result_codes: str  # a failure beside a message, unless it is a usual code of success
    codes: str  # a failure if the number or the message beside it says so
    messages: str
    errors: str
    around: str  # what else an envelope has besides data
    wrappers: str  # of one object that is the whole answer
    succeeded: str  # codes in words
    beginnings: list[str]  # a text with this beginning is an error, of any number of lines
    lines: list[str]  # a single line with this beginning is one

    def compiled(self, shapes: Sequence[str]) -> list[re.Pattern[str]]:
        """Return shapes as patterns."""
        for name, fragment in self.fragments.items():
            shapes = [shape.replace(f"<{name}>", fragment) for shape in shapes]
        return [re.compile(shape, re.IGNORECASE) for shape in shapes]


class _Words:
    """The words of envelopes."""

    def __init__(self, file: _File) -> None:
        self.error_codes, self.result_codes = tuple(file.error_codes.split()), tuple(file.result_codes.split())
        self.codes = (*self.error_codes, *self.result_codes, *file.codes.split())
        self.messages, self.errors = tuple(file.messages.split()), tuple(file.errors.split())
        self.around = frozenset([*file.around.split(), *self.codes, *self.messages, *self.errors])
        self.wrappers, self.succeeded = frozenset(file.wrappers.split()), frozenset(file.succeeded.split())


@cache
def _file() -> _File:
    return msgspec.json.decode(packaged("recovery/disguised_errors.json"), type=_File)


@cache
def _words() -> _Words:
    return _Words(_file())


@cache
def _shapes() -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    """Return the beginnings of any text, and those of a single line."""
    file = _file()
    return file.compiled(file.beginnings), file.compiled(file.lines)


def _error_text(text: str) -> str | None:
    """Return why a text is nothing but an error message."""
    text = text.strip()
    beginnings, lines = _shapes()
    one_line = len(text) <= _LINE and "\n" not in text
    if any(shape.match(text) for shape in (*beginnings, *(lines if one_line else ()))):
        return tell("reason.suspect.text", text=_show(text))
    return None
