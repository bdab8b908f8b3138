"""The HTTP server's ASGI app: routes, streams, sockets and the page behind one gate (contract I4).

Rules of this file:
- Only files present at the server's start are served: a path is a key of that list, and never leads anywhere.
- Without a build of the page, a hint on how to make one stands in its place.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp

from rerail.i18n import say
from rerail.server import errors as problems
from rerail.server.json import Json
from rerail.server.routes import commands as acting
from rerail.server.routes import read as looking
from rerail.server.routes import streams
from rerail.server.security import AllowedHosts, SecurityMiddleware
from rerail.server.socketio import Sockets
from rerail.server.state import ServerState, language
from rerail.version import __version__

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
_MEDIA = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".json": "application/json",
    ".woff2": "font/woff2", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
    ".map": "application/json",
}  # fmt: skip


class Files:
    def __init__(self, folder: Path = PAGE) -> None:
        found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        self._files = {path.relative_to(folder).as_posix(): path for path in found}

    @property
    def built(self) -> bool:
        return INDEX in self._files

    def answer(self, request: Request) -> Response | None:
        """Return a file of the page; its index for the address of a view; else None."""
        path = request.url.path.lstrip("/")
        file = self._files.get(path)
        if file is not None:
            named_by_content = path.startswith("assets/")
            cache = "public, max-age=31536000, immutable" if named_by_content else "no-cache"
            media = _MEDIA.get(file.suffix, "application/octet-stream")
            return FileResponse(file, media_type=media, headers={"cache-control": cache})
        if "." in path.rpartition("/")[2] or path.startswith(("assets/", "api/", "socket.io")):
            return None
        if self.built:
            html = _MEDIA[".html"]
            return FileResponse(self._files[INDEX], media_type=html, headers={"cache-control": "no-cache"})
        return None if path else _bare(language(request))


def _bare(lang: str) -> Response:
    words, name = escape(say("server.page.missing", lang)), "Rerail"
    text = f'<!doctype html><html lang="{lang}"><meta charset="utf-8"><title>{name}</title><h1>{name}</h1><p>{words}'
    return Response(text, media_type="text/html; charset=utf-8")


PREFIX = "/api/v1"

ABOUT = """Runs of plans made of tool calls: start them, look at them, act on them.

Bodies are what the command line prints with `--json`. Times are seconds since the epoch. What is refused is
`application/problem+json` with a stable `code`, a sentence and a hint. With a token set, every request but `/health`
needs `Authorization: Bearer TOKEN`. Socket.IO is at `/socket.io`: `subscribe` with `{run, after?, protocol?}`."""


def make_api(server: ServerState, files: Files) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await server.run_list.close()
        await server.feeds.close()

    api = FastAPI(
        title="Rerail", version=__version__, description=ABOUT, openapi_url=None, docs_url=None, redoc_url=None,
        lifespan=life, separate_input_output_schemas=False,
    )  # fmt: skip
    api.state.server = server
    problems.install(api)
    for router in (looking.router, acting.router, streams.router):
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
    """Return the description of the API, with the token as its security scheme."""
    found = api.openapi()
    found.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}, {}]
    for path in found["paths"].values():
        for operation in path.values():
            # A request's fault is reported as a problem, not in the library's own form.
            if "HTTPValidationError" in json.dumps(operation["responses"].get("422", {})):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"].get("schemas", {}).pop(name, None)
    return found


def make_app(server: ServerState, host: str, files: Files | None = None) -> ASGIApp:
    """Return the whole server as an ASGI app."""
    api = make_api(server, files or Files())
    sockets = Sockets(server)
    return SecurityMiddleware(sockets.app(api), server, AllowedHosts(host, server.table.allow_hosts))
