r"""Regular expressions of schemas and settings, searched in time that grows with the text alone.

The engine is that of pydantic-core (Rust's `regex`, finite automata). It knows no look-around and no back references.

Rules of this file:
- A pattern means what it means to Python's `re`, or it is refused when it is loaded: `BadPattern`.
- Rewritten: ``\w`` and ``\s`` (Python's letters differ), ``\<``, a brace that repeats nothing, a dash beside ``\w``.
- Refused, since engines disagree: ``[[]``, ``[a&&b]``, ``a*+``, ``a{,3}``, ``(?x)``, ``\Z``, letters after ``$``.
- ``$`` also stands before a final newline, as in Python: such a text is searched again without that newline.
- Repeats are written out by the engine, so more than `MOST` parts are refused. RE2 has the same limit.
- The engine loads at the first pattern: it costs 30 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from rerail.i18n import tell

MOST: Final = 1_000  # parts that repeats may add to a pattern
_ESCAPES: Final = r"\\(?:x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|[pP]\{[\w=]+\}|.)"
_FLAGS: Final = re.compile(r"(?:\(\?[imsu]+\))*")
_TOKEN: Final = re.compile(
    rf"(?P<escape>{_ESCAPES})"
    r"|(?P<open>\((?:\?(?:P?<[a-zA-Z_]\w*>|[imsu]*(?:-[ims]+)?:)|(?!\?)))"
    r"|(?P<close>\))|(?P<either>\|)|(?P<end>\$)"
    r"|(?P<many>(?:[*+?]|\{(?P<least>\d+)(?:,(?P<most>\d*))?\})\??)"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\\\]])*\])"
    r"|(?P<odd>\(\?(?:<?[=!]|P=|.)?|\{,\d*\}|[\ud800-\udfff])"
    r"|(?P<letter>.)",
    re.DOTALL | re.ASCII,
)
_MEMBER: Final = re.compile(_ESCAPES + "|.", re.DOTALL | re.ASCII)
_DISPUTED: Final = re.compile(r"\[|&&|--|~~")
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_HALVES: Final = re.compile("[\ud800-\udfff]")
_KINDS: Final = {
    r"\d": r"\d", r"\D": r"\D", r"\w": r"[_\p{L}\p{N}]", r"\W": r"[^_\p{L}\p{N}]",
    r"\s": r"[\s\x1c-\x1f]", r"\S": r"[^\s\x1c-\x1f]",
}  # fmt: skip


class BadPattern(ValueError):
    """A pattern that cannot be used; the message says why."""


@lru_cache(maxsize=512)
def search(pattern: str, *, ignore_case: bool = False) -> Callable[[str], bool]:
    """Return a test whether a text holds the pattern; `BadPattern` if it cannot be used."""
    from pydantic_core import SchemaError, SchemaValidator

    written, ends = _rewritten(pattern)
    rules: Any = {"type": "str", "pattern": "(?i)" * ignore_case + written, "regex_engine": "rust-regex"}
    try:
        found = SchemaValidator(rules).isinstance_python
    except SchemaError as error:
        _, unreadable, why = str(error).rpartition("error: ")
        raise BadPattern(why if unreadable else tell("schema.regex.large", most=MOST)) from None

    def holds(text: str) -> bool:
        if found(text) or (ends and text.endswith("\n") and found(text[:-1])):
            return True
        return _HALVES.search(text) is not None and holds(_HALVES.sub("\ufffd", text))

    return holds


def why_not(pattern: str) -> str:
    """Return why a pattern cannot be used; empty if it can."""
    try:
        search(pattern)
    except BadPattern as bad:
        return str(bad)
    return ""


def _rewritten(pattern: str) -> tuple[str, bool]:
    """Return the pattern in the engine's words, and whether it has a ``$``."""
    flags = _FLAGS.match(pattern)
    written = [flags[0] if flags else ""]
    by_lines = "m" in written[0]
    above: list[tuple[int, bool, bool]] = []  # of each open group: parts before it, whether they end, its branches
    size = last = added = 0  # parts of this group and of its last member, repeats written out
    ended = some_ended = ends = many = False
    for token in _TOKEN.finditer(pattern, len(written[0])):
        kind, text = str(token.lastgroup), token[0]
        shown = text if text.isprintable() else repr(text)
        if kind == "odd" or (kind == "many" and many):
            raise BadPattern(tell("schema.regex.construct", found=shown))
        if ended and kind in ("letter", "set", "escape") and not by_lines:
            raise BadPattern(tell("schema.regex.after_end", found=shown))
        many = kind == "many"
        if kind == "open":
            above.append((size, ended, some_ended))
            size, some_ended = 0, False
        elif kind == "either":
            some_ended, ended = some_ended or ended, bool(above) and above[-1][1]
        elif kind == "close" and above:
            last, ended = size, ended or some_ended
            before, _, some_ended = above.pop()
            size = before + last
        elif kind == "end":
            ends = ended = True
        elif kind == "many":
            copies = last * max(int((token["most"] or token["least"] or "1")[:9]) - 1, 0)
            added, size = added + copies, size + copies
            if added > MOST:
                raise BadPattern(tell("schema.regex.large", most=MOST))
        else:
            text = _set(text) if kind == "set" else _escape(text) if kind == "escape" else text.replace("{", r"\{")
            last = 1
            size += 1
        written.append(text)
    return "".join(written), ends


def _escape(text: str, *, anchors: str = "bBA") -> str:
    """Return one escape in the engine's words."""
    sign = text[1]
    if text in _KINDS:
        return _KINDS[text]
    if len(text) > 2 or sign in "nrtfva" or sign in anchors:
        return text
    if sign.isascii() and sign.isalnum():
        raise BadPattern(tell("schema.regex.construct", found=text))
    return text if sign.isascii() and sign not in "<>" else sign


def _set(text: str) -> str:
    """Return a set of letters in the engine's words."""
    head = "[^" if text[1] == "^" else "["
    inside = text[len(head) : -1]
    if disputed := _DISPUTED.search(_ESCAPE.sub("x", inside)):
        raise BadPattern(tell("schema.regex.set", found=disputed[0]))
    members = _MEMBER.findall(inside)
    written = []
    for at, member in enumerate(members):
        if member == "-" and (_KINDS.keys() & set(members[max(at - 1, 0) : at + 2])):
            written.append(r"\-")  # no range begins or ends with a kind of letters
        elif member == r"\b":
            written.append(r"\x08")
        else:
            written.append(_escape(member, anchors="") if len(member) > 1 else member.replace("]", r"\]"))
    return head + "".join(written) + "]"
