"""Shared state of the HTTP server: the engine, the options, the readers."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from rerail.api import Engine
from rerail.errors import Refused
from rerail.i18n import languages, nearest_language, tell
from rerail.server.feeds.run_list import Rows, RunListFeed
from rerail.server.feeds.runs import EventFeeds, LiveRuns
from rerail.settings.principals import ANYONE, Principal, named
from rerail.settings.tables import ServerTable


@dataclass(slots=True)
class ServerState:
    """One server: its engine and its options."""

    engine: Engine
    table: ServerTable = field(default_factory=ServerTable)
    token: str = ""
    read_only: bool = False
    withheld: Mapping[str, str] = field(default_factory=dict)  # tools withheld from plans of clients → their kind
    config: list[dict[str, Any]] = field(default_factory=list)  # the settings for display
    sources: Mapping[str, str] = field(default_factory=dict)  # tools → their sources
    lang: str = "en"
    readers: int = 0
    feeds: EventFeeds = field(init=False)
    lives: LiveRuns = field(init=False)
    rows: Rows = field(init=False)
    run_list: RunListFeed = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = EventFeeds(self.engine)
        self.lives = LiveRuns(self.engine, self.feeds)
        self.rows = Rows(self.engine)
        self.run_list = RunListFeed(self.engine, self.rows)

    def caller(self, said: str) -> Principal | None:
        """Return the caller that sent a token, or none; None if it is not allowed in."""
        if self.token and hmac.compare_digest(said.encode("utf-8", "surrogateescape"), self.token.encode()):
            return ANYONE
        found = named(self.table.tokens, said, time.time())
        return found if found is not None or self.is_guarded else ANYONE

    @property
    def is_guarded(self) -> bool:
        """Return True if callers need a token."""
        return bool(self.token or self.table.tokens)

    def may_change(self) -> None:
        """Refuse a change if the server is read-only."""
        if self.read_only:
            raise Refused(tell("refuse.server.read_only"), "READ_ONLY")


def server_of(connection: HTTPConnection) -> ServerState:
    """Return the server of a request."""
    found: ServerState = connection.app.state.server
    return found


def caller_of(connection: HTTPConnection) -> Principal:
    """Return the caller of a request, as the gate has seen it."""
    found: Principal | None = connection.scope.get("rerail.caller")
    return found or ANYONE


def language(connection: HTTPConnection) -> str:
    """Return the language of an answer: the requested one, else the first accepted one, else the server's."""
    return chosen_language(connection) or server_of(connection).lang


def chosen_language(connection: HTTPConnection) -> str:
    """Return a request's explicit language, if any."""
    asked = connection.query_params.get("lang", "")
    if asked in languages():
        return asked
    accepted = connection.headers.get("accept-language", "").split(",")
    return next(filter(None, (nearest_language(part.partition(";")[0]) for part in accepted)), "")
