"""Requests whose JSON is read as strictly as histories are: what cannot be written down does not come in."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response


class _Body(Request):
    """A request whose JSON is read as strictly as histories are."""

    async def json(self) -> Any:
        """The body; what cannot be written down is refused here."""
        data = await self.body()
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    """A route whose requests are read so."""

    def get_route_handler(self) -> Any:
        """What answers a request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_Body(request.scope, request.receive))

        return strictly
