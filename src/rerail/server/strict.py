"""Requests whose JSON is read as strictly as histories are: what cannot be written down does not come in."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from rerail.errors import Refused
from rerail.i18n import tell


class _Body(Request):
    """A request whose JSON is read as strictly as histories are."""

    async def json(self) -> Any:
        """The body; what cannot be written down is refused here."""
        data = await self.body()
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


def _refuse_other_kinds(request: Request) -> None:
    """Say it plainly if a body is none that can be read; what `curl -d` sends by itself is a form."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method != "GET" and kind != "application/json" and not kind.endswith("+json"):
        hint = tell("hint.server.no_json")
        raise Refused(tell("refuse.server.no_json", kind=kind[:100] or "-"), "USAGE", hint=hint)


class StrictRoute(APIRoute):
    """A route whose requests are read so."""

    def get_route_handler(self) -> Any:
        """What answers a request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            _refuse_other_kinds(request)
            return await handle(_Body(request.scope, request.receive))

        return strictly
