"""The command line in a process that dies at a chosen moment: before or after its n-th write of a file or an event."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from rerail.ports import Batch
from rerail.testing.crash_testing.ledger import Points, watch_files

DIED = -signal.SIGKILL


def main() -> None:
    """Run a command; argv: the moment (0: none), where to write how many there were, and the command's words."""
    die_at, note, *words = sys.argv[1:]
    points = Points(int(die_at), lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    from rerail.adapters.stores.sqlite.store import SqliteStore
    from rerail.cli import main as command

    append = SqliteStore.append

    async def perilous(store: SqliteStore, batch: Batch) -> None:
        points.pass_by("before append")
        await append(store, batch)
        points.pass_by("after append")

    watch_files(Path.cwd(), points)
    SqliteStore.append = perilous  # type: ignore[method-assign]
    code = command(words)
    Path(note).write_text(str(points.seen))
    os._exit(code)


if __name__ == "__main__":
    main()
