"""The HTTP server, put together: routes, streams, sockets and the page, behind one gate (I4)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from rerail.server import acting, looking, many, problems, streams
from rerail.server.plain import Json
from rerail.server.security import Gate, Names
from rerail.server.serving import Serving
from rerail.server.sockets import Sockets
from rerail.server.static import Files
from rerail.version import __version__

PREFIX = "/api/v1"

ABOUT = """Runs of plans made of tool calls: start them, look at them, act on them.

Bodies are what the command line prints with `--json`. Times are seconds since the epoch. What is refused is
`application/problem+json` with a stable `code`, a sentence and a hint. With a token set, every request but `/health`
needs `Authorization: Bearer TOKEN`. Socket.IO is at `/socket.io`: `subscribe` with `{run, after?, protocol?}`."""


def make_api(serving: Serving, files: Files) -> FastAPI:
    """The routes, without the gate and the sockets."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await serving.watch.close()
        await serving.tails.close()

    api = FastAPI(
        title="Rerail", version=__version__, description=ABOUT, openapi_url=None, docs_url=None, redoc_url=None,
        lifespan=life, separate_input_output_schemas=False,
    )  # fmt: skip
    api.state.serving = serving
    problems.install(api)
    for router in (looking.router, acting.router, many.router, streams.router):
        api.include_router(router, prefix=PREFIX)

    @api.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return Json(described(api))

    @api.get("/{path:path}", include_in_schema=False)
    async def page(request: Request) -> Response:
        found = files.answer(request)
        if found is None:
            raise HTTPException(404)
        return found

    return api


def described(api: FastAPI) -> dict[str, Any]:
    """The description of the API, with the token as its way in."""
    found = api.openapi()
    found.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}, {}]
    for path in found["paths"].values():
        for operation in path.values():
            # What is wrong with a request is told as a problem, not in the library's own way.
            if "HTTPValidationError" in json.dumps(operation["responses"].get("422", {})):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"].get("schemas", {}).pop(name, None)
    return found


def make_app(serving: Serving, host: str, files: Files | None = None) -> ASGIApp:
    """The whole server as an ASGI app."""
    api = make_api(serving, files or Files())
    sockets = Sockets(serving)
    return Gate(sockets.app(api), serving, Names(host, serving.table.allow_hosts))
