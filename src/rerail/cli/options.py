"""The options that every command takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from rerail.i18n import Language

# A flag is given or not: no --no-json. A list is given item by item.
FLAG = Parameter(negative="", show_default=False)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every command takes; what they mean is in the catalogue, under `cli.arg.`."""

    store: str | None = None
    tools: Annotated[tuple[str, ...], FLAG] = ()
    json: Annotated[bool, FLAG] = False
    lang: Language | None = None
    set: Annotated[tuple[str, ...], FLAG] = ()
    no_color: Annotated[bool, FLAG] = False
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False


PLAIN = Common()
