"""A folder with tools and plans, and the command line as a real process in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rerail.cli import main

TOOLS = '''
"""Tools whose calls can be counted from outside."""

import asyncio
import os
import time
from pathlib import Path

import rerail

HERE = Path(__file__).parent


def note(ctx):
    with (HERE / "calls.txt").open("a") as file:
        file.write(ctx.step + "\\n")


@rerail.tool
async def ok(ctx: rerail.Context, value: object = 1):
    """Give the value back."""
    note(ctx)
    return value


@rerail.tool
async def fail(ctx: rerail.Context, message: str = "it broke", category: str = "tool_error"):
    """Fail, always."""
    note(ctx)
    raise rerail.ToolError(message, category=category)


@rerail.tool
async def pay(amount: int, to: str, ctx: rerail.Context):
    """Pay."""
    note(ctx)
    if to == "alice":
        raise rerail.ToolError("no such account", suggest={"to": "mallory", "amount": 9999})
    return {"amount": amount, "to": to}


@rerail.tool
async def needs_file(name: str, ctx: rerail.Context):
    """Fail until there is a file of that name."""
    note(ctx)
    if not (HERE / name).exists():
        raise rerail.ToolError(f"no {name}", category="tool_error")
    return (HERE / name).read_text()


@rerail.tool
async def hold(name: str, ctx: rerail.Context):
    """Wait until there is a file of that name."""
    note(ctx)
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)
    return name


@rerail.tool(effect="once")
async def send(ctx: rerail.Context, to: str = "bob", until: str = ""):
    """Act, then wait for a file before answering: the answer can be lost."""
    note(ctx)
    while until and not (HERE / until).exists():
        await asyncio.sleep(0.01)
    return {"sent": to}


@rerail.tool(timeout=0.05)
async def late():
    """Take too long."""
    await asyncio.sleep(30)


@rerail.tool
def noisy(ctx: rerail.Context):
    """Print in every way there is."""
    print("printed")
    os.write(1, b"written\\n")
    os.system("echo from a child")
    ctx.log("a line \\x1b[31mof log[/red]")
    return {"quiet": True}


@rerail.tool
def block(ctx: rerail.Context):
    """Block a thread."""
    note(ctx)
    time.sleep(30)


@rerail.tool
async def stubborn():
    """Raise what looks like markup."""
    raise rerail.ToolError("[bold]no[/bold] \\x1b[2Jway", category="permanent_error")
'''

ENVIRON = {
    "RERAIL_STORE_DURABILITY": "normal",
    "RERAIL_RETRY_BACKOFF_BASE": "0",
    "RERAIL_RETRY_MAX_RETRY_ROUNDS": "0",
    "RERAIL_REFLECTION_MAX_STEP_RETRIES": "0",
}


@dataclass
class Done:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


@dataclass
class Place:
    """A folder with tools, and processes of the command line in it."""

    folder: Path
    environ: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str, code: int | None = None, given: str | None = None, **environ: str) -> Done:
        """Run a command to its end; `code` is the exit code it must have."""
        ended = subprocess.run(
            [sys.executable, "-m", "rerail.cli", *words], cwd=self.folder, env={**self.environ, **environ},
            input=given or "", capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert "Traceback" not in done.err, done.err
        assert code is None or done.code == code, (done.code, done.out, done.err)
        return done

    def spawn(self, *words: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "rerail.cli", *words], cwd=self.folder, env=self.environ, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def plan(self, *steps: dict[str, Any], name: str = "plan.json", **rest: Any) -> str:
        """Write a plan; returns its file's name."""
        (self.folder / name).write_text(json.dumps({"objective": "a test", "steps": list(steps), **rest}))
        return name

    def run(self, *steps: dict[str, Any], code: int) -> str:
        """Run these steps to their end; returns the run's id."""
        found = self("run", self.plan(*steps), "--tools", "toolbox.py", "--json", code=code)
        return str(found.json["run_id"])

    @property
    def calls(self) -> list[str]:
        """The steps that were called, in order."""
        file = self.folder / "calls.txt"
        return file.read_text().split("\n")[:-1] if file.exists() else []

    def touch(self, name: str) -> None:
        """Make a file that a tool waits for."""
        (self.folder / name).write_text("there")

    def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something to become true."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    def close(self) -> None:
        """End what is still running."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


class Here:
    """The command line inside this process: the same words and answers, without starting Python each time."""

    def __init__(self, place: Place, capture: pytest.CaptureFixture[str]) -> None:
        self.place, self._capture = place, capture

    def __call__(self, *words: str, code: int | None = None) -> Done:
        """Run a command; `code` is the exit code it must have."""
        self._capture.readouterr()
        ended = main(words)
        out, err = self._capture.readouterr()
        assert code is None or ended == code, (ended, out, err)
        return Done(ended, out, err)

    def run(self, *steps: dict[str, Any], code: int) -> str:
        """Run these steps to their end; returns the run's id."""
        found = self("run", self.place.plan(*steps), "--tools", "toolbox.py", "--json", "-q", code=code)
        return str(found.json["run_id"])

    def begin(self, *steps: dict[str, Any], at: str) -> tuple[subprocess.Popen[str], str]:
        """Run these steps in a process of their own; returns it and the run's id once a step is being called."""
        process = self.place.spawn("run", self.place.plan(*steps), "--tools", "toolbox.py")
        self.place.until(lambda: at in self.place.calls)
        return process, self.only()

    def only(self) -> str:
        """The id of the newest run."""
        return str(self("ls", "--json", code=0).json[0]["run_id"])


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """The command line inside this process, in the same folder."""
    monkeypatch.chdir(place.folder)
    for name in [name for name in os.environ if name.startswith(("RERAIL_", "LC_", "LANG"))]:
        monkeypatch.delenv(name)
    for name, value in {**ENVIRON, "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    return Here(place, capfd)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with tools, and the command line in it."""
    (tmp_path / "toolbox.py").write_text(TOOLS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RERAIL_", "LC_", "LANG"))}
    source = str(Path(__file__).resolve().parents[2] / "src")
    found = Place(tmp_path, {**kept, **ENVIRON, "LANG": "C.UTF-8", "PYTHONPATH": source, "COLUMNS": "100"})
    yield found
    found.close()
