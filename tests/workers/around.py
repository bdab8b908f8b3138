"""What the tests of workers share: tools that die, and a look at processes and at the store from outside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

from tests.cli.conftest import Here, Place

from rerail.engine.runs.owner import process_start

MORE = '''

@rerail.tool
async def die(ctx: rerail.Context, unless: str = "cured"):
    """Take the whole process along, unless there is a file of that name."""
    note(ctx)
    if not (HERE / unless).exists():
        os._exit(9)
    return os.getpid()


@rerail.tool
async def whose(ctx: rerail.Context, name: str = "fix"):
    """The process that calls it, once there is a file of that name."""
    note(ctx)
    if not (HERE / name).exists():
        raise rerail.ToolError(f"no {name}", category="tool_error")
    return os.getpid()


@rerail.tool
async def trace(ctx: rerail.Context, seconds: float = 0.03):
    """Say who calls what, and take a moment."""
    with (HERE / "trace.txt").open("a") as file:
        file.write(f"{os.getpid()} {ctx.step}\\n")
    await asyncio.sleep(seconds)
    return ctx.step


@rerail.tool
def scribble(ctx: rerail.Context, name: str = "plan.json"):
    """Write a file by hand, with a long pause in the middle of the first attempt; with another hand, too."""
    note(ctx)
    with ctx.path(name).open("w") as file:
        file.write(f"attempt {ctx.attempt}")
        while ctx.attempt == 1 and not (HERE / "go").exists():
            time.sleep(0.01)
    ctx.path(name).write_text(f"attempt {ctx.attempt}")
    (HERE / f"wrote{ctx.attempt}").touch()
    return str(ctx.path(name))


@rerail.tool
async def wander():
    """Leave the folder, and the process in another one."""
    os.chdir("/")


@rerail.tool
async def chat(ctx: rerail.Context, words: str = "hello"):
    """Print, in Python and from below."""
    note(ctx)
    print(words)
    os.write(2, b"below\\n")
    return words
'''

STAGED: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok", "stage": "extracting"},
    {"id": "b", "tool": "needs_file", "args": {"name": "fix"}, "needs": ["a"], "stage": "writing"},
    {"id": "c", "tool": "hold", "args": {"name": "go"}, "needs": ["b"], "stage": "writing"},
)


def workers_in(folder: Path) -> list[int]:
    """The workers that live in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            ours = b"rerail.cli.background.worker" in words and os.readlink(entry / "cwd") == str(folder)
            if ours and process_start(int(entry.name)) is not None:
                found.append(int(entry.name))
    return found


def row(place: Place, run: str) -> dict[str, Any]:
    """A run as the store has it."""
    with contextlib.closing(sqlite3.connect(place.folder / ".rerail" / "runs.db")) as database:
        database.row_factory = sqlite3.Row
        return dict(database.execute("SELECT * FROM runs WHERE run = ?", (run,)).fetchone())


def forge(place: Place, run: str, **columns: Any) -> None:
    """Give a run another owner."""
    names = ", ".join(f"{name} = ?" for name in columns)
    with contextlib.closing(sqlite3.connect(place.folder / ".rerail" / "runs.db")) as database:
        database.execute(f"UPDATE runs SET {names} WHERE run = ?", (*columns.values(), run))
        database.commit()


def status(here: Here, run: str) -> str:
    """What a run is now: one word, `interrupted` included."""
    shown = here("show", run, "--json", code=0).json
    return "interrupted" if shown["interrupted"] else str(shown["status"])


def start(here: Here, *steps: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """Start these steps in a worker; returns what was said of it."""
    plan = here.place.plan(*steps, **rest)
    said: dict[str, Any] = here("start", plan, "--tools", "toolbox.py", "--json", code=0).json
    return said


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    return process_start(pid) is None


def log_of(said: dict[str, Any]) -> str:
    """The text of a worker's log."""
    return Path(said["log"]).read_text("utf-8")
