"""Events as bytes: the one place that knows how a history is written.

Rules of this file:
- A history of an older format is upcast while it is read; one of a newer format is refused by name, never guessed at.
- Unknown fields are ignored and missing ones have defaults, so most changes need no new format at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rerail.core.events import Event
from rerail.i18n import tell

FORMAT = 1


def _as_text(value: Any) -> str:
    """A sentence of the catalogue is a text like any other once it is written down."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no part of an event")


_encoder = msgspec.json.Encoder(enc_hook=_as_text)
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

# From which format → how its plain data becomes the next format's.
Upcasts = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
UPCASTS: Upcasts = {}


class NewerFormat(ValueError):
    """The event was written by a newer version."""


class Damaged(ValueError):
    """The bytes are no event."""


def encode(event: Event) -> bytes:
    """An event as JSON bytes; the format is noted once it is not the first."""
    return _encoder.encode(event) if FORMAT == 1 else _encoder.encode({"v": FORMAT, **msgspec.to_builtins(event)})


def decode(data: bytes) -> Event:
    """The event that the bytes hold."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _decode_other(data, error)


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
