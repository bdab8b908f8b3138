"""JSON values as bytes and digests: what outputs and artifacts are named by."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from rerail.i18n import as_text, tell, words_of

# A digest must not depend on the order of keys.
_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=as_text)

INLINE = 1024  # bytes of JSON that still travel in the event itself


class Packed(NamedTuple):
    """A JSON value ready to be stored: its bytes and their digest ("" for null)."""

    data: bytes
    digest: str


_NULL = Packed(b"null", "")


class NotJson(TypeError):
    """The value cannot be written as JSON."""


def refuse_nan(value: Any) -> None:
    """JSON knows no NaN and no infinity; the encoder writes null instead, and nobody would notice."""
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
    """A value as canonical JSON bytes with their digest; `NotJson` if it is no JSON value."""
    if value is None:
        return _NULL
    try:
        data = _encoder.encode(value)
        if b"null" in data:
            refuse_nan(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotJson(words_of(error) or type(error).__name__) from error
    return Packed(data, digest(data))


def holds(seen: Any, expect: Any) -> bool:
    """Whether a JSON value holds another: mappings by subset, everything else by equality."""
    if isinstance(expect, Mapping):
        return isinstance(seen, Mapping) and all(
            key in seen and holds(seen[key], value) for key, value in expect.items()
        )
    return bool(seen == expect) and isinstance(seen, bool) == isinstance(expect, bool)


def plain_text(words: str, limit: int) -> str:
    """A text that can be written down, cut to so many characters: lone surrogates are replaced."""
    plain = words[:limit].encode("utf-8", "replace").decode()
    return words if words == plain else plain  # a sentence of the catalogue stays one


def digest(data: bytes) -> str:
    """The name of a content."""
    return blake2b(data, digest_size=16).hexdigest()


def unpack(data: bytes) -> Any:
    """The value that the bytes hold."""
    return msgspec.json.decode(data)
