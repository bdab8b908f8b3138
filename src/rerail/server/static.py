"""The page's files, as its build left them; without a build, a few words that say how to make one.

Rules of this file:
- A file is served if it was there when the server started: a path is a key of that list, and never leads anywhere.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from rerail.i18n import say
from rerail.server.serving import language

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
_MEDIA = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".json": "application/json",
    ".woff2": "font/woff2", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
    ".map": "application/json",
}  # fmt: skip


class Files:
    """The files of the page."""

    def __init__(self, folder: Path = PAGE) -> None:
        found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        self._files = {path.relative_to(folder).as_posix(): path for path in found}

    @property
    def built(self) -> bool:
        """Whether there is a page at all."""
        return INDEX in self._files

    def answer(self, request: Request) -> Response | None:
        """A file of the page; its first one for every address that is a view of it; None if there is nothing."""
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
