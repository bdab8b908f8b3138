"""The command line in a process that dies at a chosen moment: before or after its n-th write of a file or an event."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIED = 77
WRITES = ("replace", "rename", "link", "unlink", "fsync", "mkdir", "rmdir")


class Moments:
    """Counts the moments at which a process may die, and dies at one of them."""

    def __init__(self, die_at: int) -> None:
        self.seen, self._die_at = 0, die_at

    def pass_by(self) -> None:
        self.seen += 1
        if self.seen == self._die_at:
            os._exit(DIED)

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def done(*args: Any, **kwargs: Any) -> Any:
            self.pass_by()
            found = work(*args, **kwargs)
            self.pass_by()
            return found

        return done

    def around_async(self, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        async def done(*args: Any, **kwargs: Any) -> Any:
            self.pass_by()
            found = await work(*args, **kwargs)
            self.pass_by()
            return found

        return done


def main() -> None:
    """Run a command; argv: the moment (0: none), where to write how many there were, and the command's words."""
    die_at, note, *words = sys.argv[1:]
    moments = Moments(int(die_at))
    from rerail.adapters.stores.sqlite import SqliteStore
    from rerail.cli import main as command

    for name in WRITES:
        setattr(os, name, moments.around(getattr(os, name)))
    SqliteStore.append = moments.around_async(SqliteStore.append)  # type: ignore[method-assign]
    code = command(words)
    Path(note).write_text(str(moments.seen))
    os._exit(code)


if __name__ == "__main__":
    main()
