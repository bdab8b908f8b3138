"""The category of an error: typed evidence first, message text last (contract H1, H2).

Rules of this file:
- Pure and total: any evidence gives a category; nothing is raised, and there is no I/O.
- Typed evidence (a hint, a code, a status, a class, an exit code) beats the user's patterns, which beat ours.
- Foreign exceptions are known by class name; their packages are never imported.
- The tables are data (`classifier.json`). A pattern is listed only if its words mean the same in every program. The
  first row that matches decides, so a narrow row stands above a wide one.
- Work is bounded: only the two ends of a long message are read, and no pattern repeats without a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import msgspec

from rerail import codes
from rerail.codes import Category
from rerail.i18n.files import packaged
from rerail.values.patterns import BadPattern, search

_T, _P, _O = Category.TRANSIENT, Category.PARAMETER, Category.TOOL
_X, _U = Category.PERMANENT, Category.UNKNOWN


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one failure, as the tool or its adapter reported it."""

    message: str = ""
    #: The tool's or API's own error code: "ThrottlingException", "ECONNREFUSED", or one of ``codes.ALL``.
    code: str | None = None
    #: Class names along the exception's MRO, most derived first, as "module.QualName" without "builtins".
    types: tuple[str, ...] = ()
    #: HTTP status.
    status: int | None = None
    #: Exit status of a command.
    exit_code: int | None = None
    #: The error carried ``suggest``.
    suggested: bool = False


_NO_PATTERNS: Final[Mapping[Category, Sequence[str]]] = {}


def classify(evidence: Evidence, patterns: Mapping[Category, Sequence[str]] = _NO_PATTERNS) -> Category:
    """Return the category of an error; ``patterns`` are the user's own regular expressions per category."""
    seen = _see(evidence)
    return (
        _by_typed_evidence(seen)
        or _by_patterns(seen, patterns)
        or _by_names(seen)
        or _by_message(seen.message)
        or _first(_tables().texts, _words(seen.code or ""))
        or _by_leaning(seen)
        or _U
    )


# --- The evidence, bounded and typed ---------------------------------------------------------------------------------

_END = 2048  # Characters read at each end of a long message: the cause stands at the ends.
_MOST_TYPES = 32  # No real MRO is longer.


def _see(evidence: Evidence) -> Evidence:
    """Return the same evidence, bounded, with wrong types converted to the nearest right ones."""
    code = "" if evidence.code is None else _text(evidence.code).strip()
    named = codes.ALL.get(code)
    return Evidence(
        message=_text(evidence.message),
        code=code if named is None or named.category else "",  # TOOL_FAILED and its like carry no category.
        types=_names(evidence.types),
        status=_number(evidence.status) or _number(code),  # APIs put the HTTP status into `code` as well.
        exit_code=_number(evidence.exit_code),
        suggested=bool(evidence.suggested),
    )


def _text(value: object) -> str:
    """Return the two ends of a text; bytes are decoded, and other types count as empty."""
    match value:
        case str():
            return value if len(value) <= 2 * _END else f"{value[:_END]}\n{value[-_END:]}"
        case bytes() | bytearray():
            ends = value if len(value) <= 2 * _END else value[:_END] + b"\n" + value[-_END:]
            return ends.decode("utf-8", "replace")
        case int() if abs(value) < 10**18:  # Longer numbers are no codes, and costly to print.
            return str(value)
    return ""


def _number(value: object) -> int | None:
    """Return a status or exit code, also from text."""
    match value:
        case bool():
            return None
        case int():
            return int(value)
        case str() if re.fullmatch(r"-?[0-9]{1,3}", value.strip()):
            return int(value.strip())
    return None


def _names(value: object) -> tuple[str, ...]:
    many = value[:_MOST_TYPES] if isinstance(value, tuple | list) else [value]
    return tuple(_text(name) for name in many if isinstance(name, str))


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATOR = re.compile(r"[\s_\-]+")
_ENDLESS = re.compile(r"(\w{60})\w+", re.ASCII)  # No word is longer; cut, so that \w+ in a pattern is bounded too.


def _words(text: str) -> str:
    """Return a text as lower-case words: "ThrottlingException", "rate-limit" and "API_KEY" are split."""
    apart = _SEPARATOR.sub(" ", _HUMP.sub(" ", text))
    return _ENDLESS.sub(r"\1", apart).replace("\u2019", "'").strip().lower()


# --- Tables ----------------------------------------------------------------------------------------------------------

_Row = tuple[Category, re.Pattern[str]]


class _Words(msgspec.Struct, frozen=True):
    """One row: patterns of one meaning, and their category."""

    category: Category
    patterns: list[str]

    def compiled(self, fragments: Mapping[str, str]) -> _Row:
        """Return the row as one pattern; `<NAME>` in it stands for a fragment."""
        pattern = "|".join(self.patterns)
        for name, fragment in fragments.items():
            pattern = pattern.replace(f"<{name}>", fragment)
        # ASCII: a boundary lies between a Latin word and a Chinese one, as in "API密钥无效".
        return self.category, re.compile(pattern, re.ASCII)


class _File(msgspec.Struct, frozen=True):
    """The tables as `classifier.json` holds them; names are separated by spaces."""

    fragments: dict[str, str]
    codes: dict[Category, str]  # error codes with one meaning everywhere
    types: dict[Category, str]  # classes: a bare name, or a qualified one where packages differ in its meaning
    leanings: dict[Category, str]  # classes that only locate the error: the text decides, and these only after it
    statuses: dict[Category, str]  # HTTP statuses; the others blame the request (4xx) or the moment (5xx)
    exits: dict[Category, str]  # exit statuses of commands; negative ones as subprocess reports a signal
    limits: list[_Words]  # error codes: a rate limit passes by itself, a spent quota does not
    names: list[_Words]  # of error codes and class names, as words
    texts: list[_Words]  # of messages


class _Tables:
    """The tables, indexed for lookup."""

    def __init__(self, file: _File) -> None:
        self.codes, self.types, self.leanings = _index(file.codes), _index(file.types), _index(file.leanings)
        self.statuses, self.exits = _index(file.statuses), _index(file.exits)
        self.limits = [row.compiled(file.fragments) for row in file.limits]
        self.names = [*self.limits, *(row.compiled(file.fragments) for row in file.names)]
        self.texts = [row.compiled(file.fragments) for row in file.texts]


@cache
def _tables() -> _Tables:
    return _Tables(msgspec.json.decode(packaged("recovery/classifier.json"), type=_File))


def _first(rows: Sequence[_Row], words: str) -> Category | None:
    return next((category for category, pattern in rows if words and pattern.search(words)), None)


def _index(table: Mapping[Category, str]) -> dict[str, Category]:
    return {name: category for category, names in table.items() for name in names.split()}


# --- Statuses --------------------------------------------------------------------------------------------------------


def _by_status(status: int | None, code: str, message: str) -> Category | None:
    """Return the meaning of an HTTP status: from the table; else 4xx blames the request and 5xx the moment."""
    if status is None or not 400 <= status <= 599:
        return None
    own = _by_stretched_status(status, code, message) or _tables().statuses.get(str(status))
    return own or (_P if status < 500 else _T)


def _by_stretched_status(status: int, code: str, message: str) -> Category | None:
    """Return a category that code or words give beyond doubt, under a status that usually means another."""
    if status in (400, 403, 429) and (found := _first(_tables().limits, _words(code))):
        return found
    if status == 403 and _RATE_LIMIT.search(_words(message)):
        return _T
    if status == 404 and _NO_MODEL.search(_words(f"{code} {message}")):
        return _X
    if status == 429 and _OUT_OF_MONEY.search(_words(message)):
        return _X
    return None


# Common enough to be told apart: 403 "API rate limit exceeded", 429 "insufficient_quota", 404 "model_not_found".
_RATE_LIMIT = re.compile(r"\brate limit")
_NO_MODEL = re.compile(r"\bmodel (?:\S{1,60} ){0,3}(?:not found|does not exist|not exist)")
_OUT_OF_MONEY = re.compile(r"insufficient (?:quota|balance|funds|credits?)\b|credit balance|余额不足|欠费", re.ASCII)

# --- Classes ---------------------------------------------------------------------------------------------------------


def _look_up(table: Mapping[str, Category], name: str) -> Category | None:
    return table.get(name) or table.get(name.rpartition(".")[2])


def _telling(types: Sequence[str]) -> Sequence[str]:
    """Return the classes before the first one that leaves the decision to the text."""
    return types[: next((n for n, name in enumerate(types) if _look_up(_tables().leanings, name)), len(types))]


def _by_types(types: Sequence[str]) -> Category | None:
    """Return the category of the most derived class that has one."""
    return next((found for name in _telling(types) if (found := _look_up(_tables().types, name))), None)


# --- Names: error codes and class names, as words -------------------------------------------------------------------


def _by_names(seen: Evidence) -> Category | None:
    """Return the category named by the error code, else by the class names before one that leaves it to the text."""
    names = [seen.code or "", *(name.rpartition(".")[2] for name in _telling(seen.types))]
    return next((found for name in names if (found := _first(_tables().names, _words(name)))), None)


# --- Texts -----------------------------------------------------------------------------------------------------------


# A class name at the head of a line, as tracebacks and many programs print it.
_PRINTED_TYPE = re.compile(
    r"^[ \t]{0,8}([A-Za-z_][\w.]{0,120}(?:Error|Exception|Timeout|Expired))\b(?=:|[ \t]*$)", re.M
)
_PRINTED_STATUS = re.compile(
    r"(?:\bhttp(?:/[0-9.]{1,3})?|\bstatus|\berror|\bresponse| ?状态码)(?: is)?[ :\uff1a=(]{0,3}"
    r"(?:status|error)?[ :=(]{0,3}(?:code)?[ :=(\"']{0,3}([45][0-9]{2})\b"
    r"|^([45][0-9]{2}) (?:client error|server error|response)",
    re.ASCII,
)


def _by_message(message: str) -> Category | None:
    """Return the category in a message: a class or a status printed in it, else its words."""
    words = _words(message)
    printed = _PRINTED_TYPE.findall(message)
    status = _PRINTED_STATUS.search(words)
    return (
        _by_types(printed[-1:])
        or (_by_status(int(status[1] or status[2]), "", message) if status else None)
        or _first(_tables().texts, words)
    )


# --- The order -------------------------------------------------------------------------------------------------------


def _by_typed_evidence(seen: Evidence) -> Category | None:
    """Return the category that needs no reading of texts; the more precise evidence first."""
    code = seen.code or ""
    if seen.suggested:
        return _P  # A tool that suggests other arguments rejects these.
    if code != "SUSPECT_OUTPUT" and (own := codes.category_of(code)):
        return own
    return (
        _by_status(seen.status, code, seen.message)
        or _tables().codes.get(code)
        or _by_types(seen.types)
        or (_tables().exits.get(str(seen.exit_code)) if seen.exit_code else None)
    )


def _by_patterns(seen: Evidence, patterns: Mapping[Category, Sequence[str]]) -> Category | None:
    """Return the first category with a pattern in the code, the class or the message."""
    texts = (seen.code or "", *seen.types[:1], seen.message)
    for category, wanted in patterns.items():
        for pattern in [wanted] if isinstance(wanted, str) else wanted:
            if any(map(_wanted(pattern), texts)):
                return category
    return None


@lru_cache(maxsize=512)
def _wanted(pattern: str) -> Callable[[str], bool]:
    """Return a user's pattern; an invalid regular expression is matched literally."""
    try:
        return search(pattern, ignore_case=True)
    except BadPattern:
        return lambda text: pattern.casefold() in text.casefold()


def _by_leaning(seen: Evidence) -> Category | None:
    """Return the likely category without any other evidence."""
    if seen.exit_code:
        return _O
    leaning = next((found for name in seen.types if (found := _look_up(_tables().leanings, name))), None)
    return leaning or codes.category_of(seen.code or "")
