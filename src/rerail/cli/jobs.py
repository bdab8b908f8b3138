"""What a launching process and its worker say to each other: a line of JSON each (SPEC T7, T8)."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

import msgspec

from rerail.cli.options import Common
from rerail.core.command import Command


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to do to one run; the worker alone claims it, checks it and writes its events."""

    run: str = ""  # an existing one
    command: Command | None = None  # what to do to it; None: a run is started
    plan: str = ""  # for a start: a plan's text, or an absolute path
    parent: str = ""
    resumes: bool = False  # where nothing failed, a retry of an interrupted run just goes on
    # How the launching process was called.
    store: str | None = None
    tools: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    lang: str = "en"
    path: tuple[str, ...] = ()  # where modules are looked for
    cwd: str = "."

    @classmethod
    def under(cls, common: Common, lang: str, **rest: Any) -> Job:
        """A job under the options of a command."""
        return cls(
            **rest, store=common.store, tools=tuple(common.tools), settings=tuple(common.set), lang=lang,
            path=tuple(sys.path), cwd=os.getcwd(),
        )  # fmt: skip

    def common(self) -> Common:
        """The options it is done under."""
        return Common(store=self.store, tools=self.tools, set=self.settings)


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says of its job: notices, then accepted or refused, and ended once it is."""

    kind: Literal["notice", "accepted", "refused", "ended"]
    text: str = ""
    run: str = ""
    asked: str = ""  # the run that was named, where its follow-up is meant
    log: str = ""
    driven: bool = True  # false: the wish was handed to the run's owner, or only written down
    passed: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    status: str = ""
    code: int = 0
    hint: str = ""
    error: dict[str, Any] | None = None
