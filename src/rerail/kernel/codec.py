"""Events as bytes: the one place that knows how an event becomes JSON.

Rules of this file:
- A history of an older format is upcast on read; one of a newer format is refused by its number, never guessed at.
- Unknown fields are ignored and missing ones have defaults, so most changes need no new format.
- In memory, a catalogue message is a text with its key and values (``Told``). Stored, it is the English text, and
  ``texts`` of the event holds key and values by place. Readers choose the language. Readers that
  do not know ``texts`` find the English sentence (docs/decisions/0017).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from rerail.i18n import UNSAYABLE, Told, as_text, put_together, taken_apart, tell
from rerail.kernel.events import Event

FORMAT = 1  # events of later formats state theirs in `v`
LONGEST_TEXT = 16_000  # bytes of key and values; longer ones are dropped, and the text stays


class _Texts(msgspec.Struct, frozen=True, gc=False):
    """Keys and values of an event's messages, with their places: `at` names fields, members and indexes."""

    texts: list[dict[str, Any]] = []


_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_texts = msgspec.json.Decoder(_Texts)
_MARK = b'"texts":['

# Format → the function that makes its plain data the next format's.
Upcasts = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
UPCASTS: Upcasts = {}


class NewerFormat(ValueError):
    """The event was written by a newer version."""


class Damaged(ValueError):
    """The bytes are not an event."""


def encode(event: Event) -> bytes:
    odd: list[Any] = []
    data = msgspec.json.encode(event, enc_hook=odd.append)
    if not odd:
        return data
    data = msgspec.json.encode(event, enc_hook=str if all(isinstance(one, str) for one in odd) else as_text)
    texts = [msgspec.json.encode({"at": at, **taken_apart(told)}) for at, told in _sentences(event, len(odd))]
    kept = b",".join(text for text in texts if len(text) <= LONGEST_TEXT)
    return data[:-1] + b"," + _MARK + kept + b"]}" if kept else data


def decode(data: bytes) -> Event:
    try:
        event = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _decode_other(data, error)
    if _MARK in data:  # else a second decode is not needed
        with contextlib.suppress(msgspec.DecodeError):  # an output may contain the same bytes
            for text in _texts.decode(data).texts:
                with contextlib.suppress(*UNSAYABLE):
                    _put(event, text["at"], put_together(text))
    return event


# -- Sentences ----------------------------------------------------------------------------------------------------


def _sentences(event: Event, count: int) -> list[tuple[list[str | int], Told]]:
    """Return up to so many catalogue messages of an event, each with its place; the event's own fields first."""
    found: list[tuple[list[str | int], Told]] = []
    left: list[tuple[list[str | int], Any]] = [([], event)]
    for at, value in left:  # it grows meanwhile
        parts: Iterable[tuple[str | int, Any]]
        if isinstance(value, msgspec.Struct):
            parts = [(name, getattr(value, name)) for name in value.__struct_fields__]
        else:
            parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            if isinstance(part, Told):
                found.append(([*at, name], part))
            elif part and isinstance(part, msgspec.Struct | dict | list | tuple):
                left.append(([*at, name], part))
        if len(found) == count:
            break  # large outputs and statistics are not searched
    return found


def _put(value: Any, at: list[str | int], told: Told) -> Any:
    """Return the value with its message at a place translatable; unchanged if the text there differs."""
    if not at:
        return (told if told == value else told.worded(value)) if type(value) is str else value
    name, rest = at[0], at[1:]
    if isinstance(value, msgspec.Struct) and name in value.__struct_fields__:
        msgspec.structs.force_setattr(value, str(name), _put(getattr(value, str(name)), rest, told))
    elif isinstance(value, dict) and name in value:
        value[name] = _put(value[name], rest, told)
    elif isinstance(value, list | tuple) and isinstance(name, int) and 0 <= name < len(value):
        return type(value)(_put(one, rest, told) if place == name else one for place, one in enumerate(value))
    return value


def _decode_other(data: bytes, error: Exception, newest: int = FORMAT, upcasts: Upcasts = UPCASTS) -> Event:
    """Upcast an event of another format, step by step."""
    try:
        plain = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Damaged(tell("reason.no_event", data=data[:80])) from error
    written = plain.pop("v", 1)
    kind = plain.get("type")
    if not isinstance(kind, str) or not isinstance(written, int) or written < 1:
        raise Damaged(tell("reason.no_event", data=data[:80])) from error
    if written > newest or kind not in _known():
        raise NewerFormat(tell("reason.event_newer", kind=kind, written=written, format=newest)) from error
    for version in range(written, newest):
        plain = upcasts[version](plain)
    try:
        event: Event = msgspec.convert(plain, Event)  # type: ignore[arg-type, unused-ignore]
    except (msgspec.ValidationError, RecursionError) as problem:
        raise Damaged(tell("reason.bad_event", problem=problem)) from error
    return event


def _known() -> set[str]:
    return {str(kind.__struct_config__.tag) for kind in Event.__args__}
