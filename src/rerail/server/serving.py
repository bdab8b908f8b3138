"""What all parts of the HTTP server share: the engine, how it was started, and who watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from rerail.errors import Refused
from rerail.i18n import languages, nearest_language, tell
from rerail.server.live import Lives
from rerail.server.rows import Rows, Watch
from rerail.server.tails import Tails
from rerail.settings import ServerTable
from rerail.wiring import Engine


@dataclass(slots=True)
class Serving:
    """One server: its engine, and what it was told when it was started."""

    engine: Engine
    table: ServerTable = field(default_factory=ServerTable)
    token: str = ""
    read_only: bool = False
    withheld: Mapping[str, str] = field(default_factory=dict)  # tools that plans from outside may not use → their kind
    config: list[dict[str, Any]] = field(default_factory=list)  # the settings, as they may be shown
    sources: Mapping[str, str] = field(default_factory=dict)  # tools → where they come from
    lang: str = "en"
    readers: int = 0
    tails: Tails = field(init=False)
    lives: Lives = field(init=False)
    rows: Rows = field(init=False)
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.engine.lends_only = True
        self.tails = Tails(self.engine)
        self.lives = Lives(self.engine, self.tails)
        self.rows = Rows(self.engine)
        self.watch = Watch(self.engine, self.rows)

    def may_change(self) -> None:
        """Refuse what changes anything, if the server was started to look only."""
        if self.read_only:
            raise Refused(tell("refuse.server.read_only"), "READ_ONLY")


def serving_of(connection: HTTPConnection) -> Serving:
    """The server that a request came to."""
    found: Serving = connection.app.state.serving
    return found


def language(connection: HTTPConnection) -> str:
    """The language somebody reads: as asked for, else the first of theirs that there is, else the server's."""
    return chosen_language(connection) or serving_of(connection).lang


def chosen_language(connection: HTTPConnection) -> str:
    """The language that a request chooses, if it does."""
    asked = connection.query_params.get("lang", "")
    if asked in languages():
        return asked
    accepted = connection.headers.get("accept-language", "").split(",")
    return next(filter(None, (nearest_language(part.partition(";")[0]) for part in accepted)), "")
