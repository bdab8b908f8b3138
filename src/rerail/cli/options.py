"""The options that every command takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter

Lang: TypeAlias = Literal["en", "zh"]

# A flag is given or not: no --no-json. A list is given item by item.
FLAG = Parameter(negative="", show_default=False)

_EVERYWHERE = Group("Options of every command", sort_key=9)


@Parameter(name="*", group=_EVERYWHERE)
@dataclass(frozen=True)
class Common:
    """What every command takes."""

    store: str | None = None
    """Where runs are kept: a file, or an address such as sqlite:///runs.db."""

    tools: Annotated[tuple[str, ...], FLAG] = ()
    """A file.py or module:attr with tools; may be given several times."""

    json: Annotated[bool, FLAG] = False
    """Print one JSON document on stdout and nothing else."""

    lang: Lang | None = None
    """The language of messages (default: RERAIL_LANG, else the locale)."""

    set: Annotated[tuple[str, ...], FLAG] = ()
    """A setting for this call, such as retry.max_retries=5; may be given several times."""

    no_color: Annotated[bool, FLAG] = False
    """No colours (NO_COLOR does the same)."""

    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False
    """No progress, only the result."""


PLAIN = Common()
