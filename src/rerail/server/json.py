"""Strict JSON of the server: values that cannot be stored are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from rerail.i18n import as_text


def number_of(text: str | None, otherwise: int) -> int:
    """Return the number that a client's text holds, if any; Python refuses very long ones."""
    return int(text) if text is not None and len(text) <= 18 and text.isascii() and text.isdecimal() else otherwise


def encode(value: Any) -> bytes:
    """Encode plain data as JSON; catalogue sentences stay in English."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else as_text(value)


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


class _Body(Request):
    """A request with JSON decoded as strictly as in the codec of histories."""

    async def json(self) -> Any:
        """Return the body; refuse a value that no history can hold."""
        data = await self.body()
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_Body(request.scope, request.receive))

        return strictly
