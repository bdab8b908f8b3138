"""The command that takes other commands: shell (SPEC T11)."""

from __future__ import annotations

import sys
from typing import Annotated

from rerail.cli.commands_run import Hidden
from rerail.cli.options import PLAIN, Common
from rerail.cli.output import Output
from rerail.cli.shell.lines import Lines, piped
from rerail.errors import SettingsError
from rerail.i18n import tell


def shell(*, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Take commands from a prompt, or from a pipe.

    It is not async as the others are: each line is a command with an event loop of its own."""
    lines = Lines(common, out)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return piped(lines)
    try:
        from rerail.cli.shell.prompt import talk
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prompt_toolkit"):
            raise
        raise SettingsError(tell("refuse.shell.no_extra"), hint=tell("hint.shell.no_extra")) from error
    return talk(lines)
