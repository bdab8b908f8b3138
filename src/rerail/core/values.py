"""JSON values as bytes and digests: what outputs and artifacts are named by."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

_encoder = msgspec.json.Encoder(order="deterministic")  # a digest must not depend on the order of keys


class Packed(NamedTuple):
    """A JSON value ready to be stored: its bytes and their digest ("" for null)."""

    data: bytes
    digest: str


_NULL = Packed(b"null", "")


class NotJson(TypeError):
    """The value cannot be written as JSON."""


def pack(value: Any) -> Packed:
    """A value as canonical JSON bytes with their digest; `NotJson` if it is no JSON value."""
    if value is None:
        return _NULL
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotJson(str(error) or type(error).__name__) from error
    return Packed(data, digest(data))


def digest(data: bytes) -> str:
    """The name of a content."""
    return blake2b(data, digest_size=16).hexdigest()


def unpack(data: bytes) -> Any:
    """The value that the bytes hold."""
    return msgspec.json.decode(data)
