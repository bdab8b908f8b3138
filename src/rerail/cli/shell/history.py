"""What was typed before, in a file of the user's own (SPEC T11).

Rules of this file:
- Nobody else may read it, and a file that cannot be written, or read, is no trouble.
- A line that begins with a blank is not kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory


def history_file() -> Path | None:
    """Where the history is kept: in the user's state folder; None if there is no such place."""
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return folder / "rerail" / "history"


class PrivateHistory(FileHistory):
    """A history file that only its user reads."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
            file.chmod(0o600)  # it may have been there before

    def load_history_strings(self) -> Iterable[str]:
        """The lines, newest first."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Keep a line."""
        if not string[:1].isspace():
            with contextlib.suppress(OSError):
                super().store_string(string)
