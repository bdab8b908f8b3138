"""Events as bytes: the one place that knows how a history is written.

Rules of this file:
- A history of an older format is upcast while it is read; one of a newer format is refused by name, never guessed at.
- Unknown fields are ignored and missing ones have defaults, so most changes need no new format at all.
- In memory a sentence of the catalogue is a text that knows its key and values (``Told``). Stored, it is the English
  text, and ``texts`` of the event says where which key and values belong: readers choose the language, and readers that
  do not know ``texts`` find the sentence (docs/decisions/0017).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from rerail.core.events import Event
from rerail.i18n import Told, as_text, put_together, taken_apart, tell

FORMAT = 1  # an event of a later one says so in `v`
LONGEST_TEXT = 16_000  # bytes of key and values; what a longer sentence was made of is not kept


class _Text(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a sentence of an event was made of, and where it stands: fields, members and places."""

    at: list[str | int]
    key: str
    values: dict[str, Any] = {}  # an object among them is a sentence itself


class _Texts(msgspec.Struct, frozen=True, gc=False):
    texts: list[_Text] = []


class _HasTexts(Exception):
    """The event holds a sentence of the catalogue."""


def _notice(value: Any) -> str:
    if isinstance(value, Told):
        raise _HasTexts
    return as_text(value)


_plain = msgspec.json.Encoder(enc_hook=_notice)
_encoder = msgspec.json.Encoder(enc_hook=as_text)
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_texts = msgspec.json.Decoder(_Texts)
_MARK = b'"texts":['

# From which format → how its plain data becomes the next format's.
Upcasts = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
UPCASTS: Upcasts = {}


class NewerFormat(ValueError):
    """The event was written by a newer version."""


class Damaged(ValueError):
    """The bytes are no event."""


def encode(event: Event) -> bytes:
    """An event as JSON bytes."""
    try:
        return _plain.encode(event)
    except _HasTexts:
        kept = [data for at, told in _sentences(event, ()) if (data := _apart(at, told))]
        data = _encoder.encode(event)
        return data[:-1] + b"," + _MARK + b",".join(kept) + b"]}" if kept else data


def decode(data: bytes) -> Event:
    """The event that the bytes hold."""
    try:
        event = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _decode_other(data, error)
    return _with_texts(event, data) if _MARK in data else event


# -- Sentences ----------------------------------------------------------------------------------------------------


def _sentences(value: Any, at: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Told]]:
    """The sentences of the catalogue inside of a value, each with its place."""
    if isinstance(value, Told):
        yield at, value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _sentences(getattr(value, name), (*at, name))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _sentences(one, (*at, str(name)))
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from _sentences(one, (*at, place))


def _apart(at: tuple[str | int, ...], told: Told) -> bytes:
    """Where a sentence stands and what it was made of; nothing if that cannot be written, or is too long."""
    plain = taken_apart(told)
    try:
        data = _encoder.encode(_Text(list(at), plain["key"], plain["values"])) if plain is not None else b""
    except (ValueError, OverflowError, RecursionError):
        return b""
    return data if len(data) <= LONGEST_TEXT else b""


def _with_texts(event: Event, data: bytes) -> Event:
    """The event, its sentences knowing again what they were made of."""
    try:
        texts = _texts.decode(data).texts
    except msgspec.DecodeError:
        return event  # somebody's own words, not ours
    for text in texts:
        told = put_together({"key": text.key, "values": text.values})
        if told is not None:
            _put(event, text.at, told)
    return event


def _put(value: Any, at: list[str | int], told: Told) -> Any:
    """The value with a sentence at a place, worded as it stood there; unchanged where there is none."""
    if not at:
        return told.worded(value) if isinstance(value, str) else value
    name, rest = at[0], at[1:]
    if isinstance(value, msgspec.Struct) and name in value.__struct_fields__:
        msgspec.structs.force_setattr(value, str(name), _put(getattr(value, str(name)), rest, told))
    elif isinstance(value, dict) and name in value:
        value[name] = _put(value[name], rest, told)
    elif isinstance(value, list | tuple) and isinstance(name, int) and 0 <= name < len(value):
        return type(value)(_put(one, rest, told) if place == name else one for place, one in enumerate(value))
    return value


def _decode_other(data: bytes, error: Exception, newest: int = FORMAT, upcasts: Upcasts = UPCASTS) -> Event:
    """An event of another format, made one of the newest step by step."""
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
