"""Plain data as JSON, as the server sends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from rerail.i18n import as_text


def number_of(text: str | None, otherwise: int) -> int:
    """The number that a text from outside is, if it is one; Python refuses to read very long ones."""
    return int(text) if text is not None and len(text) <= 18 and text.isascii() and text.isdecimal() else otherwise


def encode(value: Any) -> bytes:
    """Plain data as JSON; a sentence of the catalogue as it stands, which is English."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else as_text(value)


class Json(Response):
    """An answer in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return encode(content)
