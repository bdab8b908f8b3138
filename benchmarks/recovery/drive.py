"""Runs every case with every contender, and keeps what the world saw."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.recovery.client import World
from benchmarks.recovery.faults import Case
from benchmarks.recovery.plans import plan_of

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds for one case
STARTING = 300.0  # seconds for a server beside a contender, on a machine that has other things to do
KILLS = 5  # processes that a case may cost a contender
QUESTIONS = 5  # that are answered


def python_of(environment: str) -> Path:
    """The interpreter of an environment of the benchmark's (`make bench-peers` makes them)."""
    return ROOT / f".venv-bench-{environment}" / "bin" / "python"


@dataclass(frozen=True)
class Contender:
    """Who runs the plans: a module, the environment it lives in, and how it is set up."""

    name: str
    module: str
    environment: str = ""  # `.venv-bench-NAME`; none: the one that this runs in
    options: dict[str, Any] = field(default_factory=dict)
    answering: bool = False  # whether its questions are answered
    knows: str = ""  # what it knows beside the plan and the tools' effects, in words
    beside: tuple[str, ...] = ()  # arguments of its Python for a server that it needs, with {port}
    environ: dict[str, str] = field(default_factory=dict)  # with {port} and {home}

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(python_of(self.environment)) if self.environment else sys.executable


@dataclass
class Seen:
    """What came of one case with one contender."""

    case: Case
    contender: str
    status: str
    state: str
    calls: list[dict[str, Any]]
    kills: int
    seconds: float
    asked: int = 0  # questions that it stopped for
    why: str = ""


@contextmanager
def world_process(variants: tuple[str, ...] = ()) -> Iterator[str]:
    """The world, for as long as it is needed; gives the address where it answers."""
    folder = tempfile.mkdtemp(prefix="rerail-world-")
    path = f"{folder}/world"
    command = [str(python_of("world")), "-m", "benchmarks.recovery.world.server", path, *variants]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            raise RuntimeError("the world did not start")
        try:
            yield path
        finally:
            process.stdin.close()
            process.wait(10)
            shutil.rmtree(folder, ignore_errors=True)


class Process:
    """A contender's process, and a spare one that is ready when it was killed: starting is nobody's recovery."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._process: subprocess.Popen[bytes] | None = None
        self._spare: subprocess.Popen[bytes] | None = None
        self.home = tempfile.mkdtemp(prefix="rerail-peer-")
        port = free_port() if contender.beside else 0
        given = {name: value.format(port=port, home=self.home) for name, value in contender.environ.items()}
        self._environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PYTHONWARNINGS": "ignore"}
        self._environ |= {"HOME": self.home, **given}
        self._beside: subprocess.Popen[bytes] | None = None
        if contender.beside:
            self._beside = self._started([argument.format(port=port) for argument in contender.beside])
            wait_for(port)

    def _started(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._contender.python, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=self._environ,
        )  # fmt: skip

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            arguments = ["-m", self._contender.module]
            self._process = self._spare or self._started(arguments)
            self._spare = self._started(arguments)
        return self._process

    def ask(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Run one case; None if the process died over it."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            self._gone(process)
            return None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else b""
        if not line and ready:
            self._gone(process)
            return None
        if not line:
            self.stop()
            return {"status": "failed", "doubts": [], "why": "it never ended"}
        found = dict(json.loads(line))
        if "broken" in found:
            raise RuntimeError(f"{self._contender.name} cannot run: {found['broken']}")
        return found

    def _gone(self, process: subprocess.Popen[bytes]) -> None:
        """It was killed, which is part of the game; or it ended by itself, which is none."""
        if process.wait() != -signal.SIGKILL:
            raise RuntimeError(f"{self._contender.name} cannot run: its process ended with {process.returncode}")
        self.stop()

    def close(self) -> None:
        """End what was started, and remove what it kept."""
        self.stop()
        for process in (self._spare, self._beside):
            ended(process)
        shutil.rmtree(self.home, ignore_errors=True)

    def stop(self) -> None:
        """End the process."""
        ended(self._process)
        self._process = None


def ended(process: subprocess.Popen[bytes] | None) -> None:
    """End a process, if there is one, and close its pipes."""
    if process is None:
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Until somebody answers there."""
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the server beside a contender did not start")


def run_case(
    case: Case, contender: Contender, process: Process, path: str, task: dict[str, Any], effects: dict[str, str]
) -> Seen:
    """One case: run, go on after kills, answer its questions if it is to be answered, and look at the world."""
    begun = time.monotonic()
    ident = f"{contender.name}:{case.id}"
    options = dict(contender.options)
    faults = [fault.to_dict() for fault in case.faults]
    if "knows" in options:
        options["knows"] = {"steps": task["steps"], "faults": faults}
    with World(path, ident) as world, tempfile.TemporaryDirectory(prefix="rerail-case-") as folder:
        world.ask("open", task=case.task, faults=faults)
        job = {
            "case": ident, "plan": plan_of(case, task, effects), "tools": effects, "socket": path, "folder": folder,
            "home": process.home, "resumed": False, "answers": {}, "options": options,
        }  # fmt: skip
        kills = asked = 0
        while True:
            found = process.ask(job)
            if found is None:
                kills += 1
                job = {**job, "resumed": True, "answers": {}}
                if kills > KILLS:
                    found = {"status": "failed", "why": "killed too often"}
                    break
            elif found["status"] == "waiting" and contender.answering and found["doubts"] and asked < QUESTIONS:
                asked += 1
                job = {**job, "answers": {step: world.ask("truth", step=step) for step in found["doubts"]}}
            else:
                break
        end = world.ask("end")
    took = time.monotonic() - begun
    return Seen(
        case, contender.name, found["status"], end["state"], end["calls"], kills, took, asked, found.get("why", "")
    )
