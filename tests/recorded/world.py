"""The folder of the recorded runs: scripted tools, plans, settings; and the command line inside this process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerail.cli import main

TOOLS = '''
"""Tools that do as they are told."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import rerail

HERE = Path(__file__).parent


@rerail.tool(effect="read")
async def ok(ctx: rerail.Context, value: object = 1):
    """Give the value back."""
    ctx.log("a line of log")
    ctx.progress(0.5, "half of it")
    return value


@rerail.tool(effect="read")
async def flaky(ctx: rerail.Context):
    """Fail once, then work."""
    if ctx.attempt < 2:
        raise ConnectionRefusedError("connection refused")
    return {"attempt": ctx.attempt}


@rerail.tool(effect="repeatable")
async def fail(message: str = "it broke", category: str = "tool_error"):
    """Fail, always."""
    raise rerail.ToolError(message, category=category)


@rerail.tool(effect="repeatable")
async def needs_file(name: str):
    """Fail until there is a file of that name."""
    if not (HERE / name).exists():
        raise rerail.ToolError(f"no {name}", category="tool_error")
    return (HERE / name).read_text()


@rerail.tool(effect="repeatable")
async def paint(colour: Literal["red", "blue"], coats: int = 1):
    """Paint it."""
    return {"colour": colour, "coats": coats}


@rerail.tool(effect="repeatable")
async def upload(source: str):
    """Take one source, and no other."""
    if source != "ds_1":
        raise rerail.ToolError(f"no such source: {source}")
    return {"uploaded": source}


@rerail.tool(effect="once", timeout=0.05)
async def send(to: str = "Ada"):
    """Act, and never answer."""
    await asyncio.sleep(60)


@rerail.tool(effect="once")
async def pay(amount: int = 1):
    """Act, and answer."""
    return {"paid": amount}


@rerail.tool(effect="read")
async def sent(name: str = "sent"):
    """Whether it was sent."""
    return {"sent": name}


@rerail.tool(effect="repeatable")
async def write(ctx: rerail.Context, text: str = "hello"):
    """Leave a file."""
    ctx.write_json("page.json", {"text": text})
    return len(text)


@rerail.tool(effect="repeatable")
async def die():
    """End the process, once."""
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        os._exit(9)
    return "alive"
'''

CONFIG = """
[tools]
modules = ["tools.py"]

[run]
concurrency = 1

[store]
durability = "normal"

[retry]
backoff_base = 0
jitter = false
max_retry_rounds = 0
"""

SOURCE = str(Path(__file__).resolve().parents[2] / "src")


@dataclass
class Answered:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on stdout."""
        return json.loads(self.out)


@dataclass
class Place:
    """The folder, and commands in it."""

    folder: Path
    runs: dict[str, str] = field(default_factory=dict)  # ids → names

    def prepare(self) -> None:
        """Write what has to be there."""
        (self.folder / "tools.py").write_text(TOOLS)
        (self.folder / "rerail.toml").write_text(CONFIG)
        (self.folder / "note").write_text("one")

    @property
    def environ(self) -> dict[str, str]:
        """The surroundings of every process, without settings of this machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RERAIL_", "LC_", "LANG"))}
        return {
            **kept, "LANG": "C.UTF-8", "COLUMNS": "100", "NO_COLOR": "1", "NO_PROXY": "127.0.0.1", "PYTHONPATH": SOURCE,
            "TZ": "UTC", "HOME": str(self.folder),
        }  # fmt: skip

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This process in that folder, with those surroundings."""
        before, cwd = dict(os.environ), Path.cwd()
        os.environ.clear()
        os.environ.update(self.environ)
        os.chdir(self.folder)
        try:
            yield
        finally:
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(before)

    def plan(self, name: str, *steps: dict[str, Any], **more: Any) -> str:
        """A plan's file."""
        file = f"{name}.json"
        (self.folder / file).write_text(json.dumps({"objective": f"the run that {name}", "steps": list(steps), **more}))
        return file

    def __call__(self, *words: str) -> Answered:
        """A command inside this process."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with _captured(out.fileno(), err.fileno()):
                code = main(list(words))
            return Answered(code, _read(out.fileno()), _read(err.fileno()))

    def process(self, *words: str) -> Answered:
        """A command in a process of its own."""
        ended = subprocess.run(
            [sys.executable, "-m", "rerail.cli", *words],
            cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return Answered(ended.returncode, ended.stdout, ended.stderr)

    def spawn(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "rerail.cli", *words], cwd=self.folder, env={**self.environ, **environ},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@contextlib.contextmanager
def _captured(out: int, err: int) -> Iterator[None]:
    """The descriptors 0, 1 and 2, and Python's files for them, replaced for a while."""
    with Path(os.devnull).open("rb") as nothing:
        kept = [os.dup(number) for number in (0, 1, 2)]
        files = sys.stdin, sys.stdout, sys.stderr
        for number, given in enumerate((nothing.fileno(), out, err)):
            os.dup2(given, number)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdin, sys.stdout, sys.stderr = files
            for number, old in enumerate(kept):
                os.dup2(old, number)
                os.close(old)


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), encoding="utf-8") as file:
        return file.read()
