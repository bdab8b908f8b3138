"""JSON values as bytes and digests; their types, equality, and a form that is safe to show.

Rules of this file:
- What the schema code uses does not recurse: a value may be nested as deeply as a JSON parser allows.
- OPEN stands for a value that is not known yet, such as the output of a step before its run.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from rerail.i18n import as_text, tell, words_of

# A digest must not depend on the order of keys.
_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=as_text)

INLINE = 1024  # bytes of JSON up to which a value is stored in the event itself


class Packed(NamedTuple):
    """A JSON value ready to be stored: its bytes and their digest ("" for null)."""

    data: bytes
    digest: str


_NULL = Packed(b"null", "")


class NotJson(TypeError):
    """The value cannot be written as JSON."""


def refuse_nan(value: Any) -> None:
    """Refuse NaN and infinity: JSON has neither, and the encoder would silently write null."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and not isfinite(item):
            raise NotJson(tell("reason.no_number", item=item))
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)


def pack(value: Any) -> Packed:
    """Return a value as canonical JSON bytes with their digest; `NotJson` if it is no JSON value."""
    if value is None:
        return _NULL
    try:
        data = _encoder.encode(value)
        if b"null" in data:
            refuse_nan(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        keys = "`order`" in str(error)  # the encoder's advice to its own caller
        raise NotJson(tell("reason.no_text_keys") if keys else words_of(error) or type(error).__name__) from error
    return Packed(data, digest(data))


def holds(seen: Any, expect: Any) -> bool:
    """True if a JSON value holds another: mappings by subset, everything else by equality."""
    if isinstance(expect, Mapping):
        return isinstance(seen, Mapping) and all(
            key in seen and holds(seen[key], value) for key, value in expect.items()
        )
    return bool(seen == expect) and isinstance(seen, bool) == isinstance(expect, bool)


def plain_text(words: str, limit: int) -> str:
    """Return a storable text of limited length: lone surrogates are replaced."""
    plain = words[:limit].encode("utf-8", "replace").decode()
    return words if words == plain else plain  # a catalogue message stays translatable


def digest(data: bytes) -> str:
    """Return the name of a content: its digest."""
    return blake2b(data, digest_size=16).hexdigest()


def unpack(data: bytes) -> Any:
    return msgspec.json.decode(data)


def fresh(value: Any) -> Any:
    """Return an equal JSON value that shares nothing with the given one, at any depth."""
    return unpack(pack(value).data)


# -- Safe to show -----------------------------------------------------------------------------------------------------

NAME_WIDTH = 28  # characters of a name in a list of names
# Direction marks can make a line display as something else.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


_HIDDEN = re.compile(f"[\x7f-\x9f{''.join(sorted(_BIDI))}]")


def clean(text: object, *, lines: bool = False) -> str:
    """Return a text that is safe to show: control characters become visible; ``lines`` keeps line breaks."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(_visible(sign, lines) for sign in shown)


def json_shown(data: bytes) -> bytes:
    """Return encoded JSON that is safe to show: control characters, and marks of the writing direction, are escaped."""
    if data.isascii():
        return data if b"\x7f" not in data else data.replace(b"\x7f", b"\\u007f")
    escaped = _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode("utf-8", "surrogatepass"))
    return escaped.encode("utf-8", "surrogatepass")


def _visible(sign: str, lines: bool) -> str:
    if sign in "\n\t":
        return sign if lines else " "
    if sign == "\r":
        return "" if lines else " "
    if sign in _BIDI or unicodedata.category(sign) in ("Cc", "Cs"):
        code = ord(sign)
        return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"
    return sign


def one_line(text: object, limit: int = 300) -> str:
    """Return a text as one short line."""
    shown = " ".join(clean(text).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def size(count: int) -> str:
    """Return a number of bytes in words."""
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1000:,.0f} kB" if count < 10_000_000 else f"{count / 1_000_000:,.0f} MB"


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Return some names, and the number of the others."""
    shown = [one_line(name, NAME_WIDTH) for name in names[:limit]]
    return ", ".join(shown) + (f" … (+{len(names) - limit})" if len(names) > limit else "")


def call_shown(tool: str, args: Mapping[str, Any] | None, limit: int = 300) -> str:
    """Return a short form of a call: `pay(amount=10, to="alice")`; "…" for arguments that are kept elsewhere."""
    shown = (
        "…"
        if args is None
        else ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
    )
    return f"{one_line(tool, 80)}({one_line(shown, limit)})"


# -- Values for the schema code -------------------------------------------------------------------------------------

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


class _Open:
    """The type of OPEN."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OPEN"


OPEN: Final = _Open()

_ROOM = 80


class _Mark(str):
    """Punctuation among values."""

    __slots__ = ()


def show(value: object) -> str:
    """Return the value as JSON, trimmed to fit into a sentence."""
    text, rest = "", [value]
    while rest and len(text) <= _ROOM:
        item = rest.pop()
        if isinstance(item, _Mark):
            text += item
        elif isinstance(item, str):
            text += json.dumps(item[: _ROOM + 1], ensure_ascii=False)
        elif isinstance(item, dict):
            pairs = islice(item.items(), _ROOM)
            inside = [part for name, member in pairs for part in (_Mark(", "), name, _Mark(": "), member)]
            rest += [_Mark("}"), *reversed(inside[1:]), _Mark("{")]
        elif isinstance(item, list):
            inside = [part for member in islice(item, _ROOM) for part in (_Mark(", "), member)]
            rest += [_Mark("]"), *reversed(inside[1:]), _Mark("[")]
        else:
            text += _scalar(item)
    return trimmed(text)


def trimmed(text: str) -> str:
    """Return the text, cut to less than a line."""
    return text if len(text) <= _ROOM else text[: _ROOM - 1] + "…"


def _scalar(value: object) -> str:
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, int):
        # Python refuses to print integers of thousands of digits, and no reader needs them.
        return str(value) if value.bit_length() < 4 * _ROOM else tell("schema.huge")
    return repr(value)


def place(path: Iterable[str | int]) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            text += f".{step}" if text else step
        else:
            text += f"[{show(step)}]"
    return text


def enumerated(words: Sequence[str], last: str = "or") -> str:
    """Return the words as an enumeration: a, b or c."""
    return words[0] if len(words) == 1 else tell(f"schema.list.{last}", first=", ".join(words[:-1]), last=words[-1])


def key(value: object) -> object:
    """Return a hashable key: two values are the same JSON exactly if their keys are equal (1 is 1.0, true is not 1)."""
    if isinstance(value, bool):
        return ("bool", bool(value))
    if value is None or isinstance(value, str | int | float):
        return value
    if not isinstance(value, list | dict):
        return ("not JSON", id(value))
    # Flat, because comparing and hashing nested tuples recurses.
    tokens: list[object] = []
    rest: list[object] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            tokens.append(("list", len(item)))
            rest += reversed(item)
        elif isinstance(item, dict):
            tokens.append(("dict", len(item)))
            rest += [part for name in sorted(item, key=str) for part in (item[name], name)]
        else:
            tokens.append(key(item))
    return tuple(tokens)


def containers(value: object) -> list[list[Any] | dict[str, Any]]:
    """Return the value and all lists and objects in it, each before its contents."""
    found: dict[int, list[Any] | dict[str, Any]] = {}
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list | dict) and id(item) not in found:
            found[id(item)] = item
            rest += item if isinstance(item, list) else item.values()
    return list(found.values())


def is_open(value: object) -> bool:
    """True if any part of the value is not known yet."""
    return value is OPEN or any(
        OPEN in (part.values() if isinstance(part, dict) else part) for part in containers(value)
    )


CLASSES: Final[Mapping[str, frozenset[type]]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}


def is_number(value: object) -> bool:
    """True if the value is a JSON number; a boolean is not, although Python treats it as one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_type(value: object, name: str) -> bool:
    """True if the value has the JSON type; 1.0 is an integer."""
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    if name in ("integer", "number"):
        return is_number(value) and isinstance(value, tuple(CLASSES[name]))
    return isinstance(value, tuple(CLASSES[name]))


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """One fault of a value: its path, a sentence with what to do, and the keyword."""

    path: tuple[str | int, ...]
    message: str
    keyword: str = ""

    def __str__(self) -> str:
        return str(self.said)

    @property
    def said(self) -> str:
        """Return the fault with its path, as a translatable sentence."""
        return tell("schema.at", place=place(self.path), message=self.message) if self.path else self.message
