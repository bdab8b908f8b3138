"""Runs every case with every contender, and keeps what the world saw."""

from __future__ import annotations

import json
import os
import select
import shutil
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
KILLS = 5  # processes that a case may cost a contender


@dataclass(frozen=True)
class Contender:
    """Who runs the plans: a module, the environment it lives in, and how it is set up."""

    name: str
    module: str
    python: str = sys.executable
    options: dict[str, Any] = field(default_factory=dict)


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
def world_process(python: str) -> Iterator[str]:
    """The world, for as long as it is needed; gives the address where it answers."""
    folder = tempfile.mkdtemp(prefix="rerail-world-")
    path = f"{folder}/world"
    command = [python, "-m", "benchmarks.recovery.world.server", path]
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
    """A contender's process, started again whenever it was killed."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._process: subprocess.Popen[bytes] | None = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = [self._contender.python, "-m", self._contender.module]
            environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ
            )
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
            self.stop()
            return None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.stop()
            return None if ready else {"status": "failed", "doubts": [], "why": "it never ended"}
        return dict(json.loads(line))

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def run_case(
    case: Case, contender: Contender, process: Process, path: str, task: dict[str, Any], effects: dict[str, str],
    *, answering: bool,
) -> Seen:  # fmt: skip
    """One case: run, go on after kills, answer its questions if it is to be answered, and look at the world."""
    begun = time.monotonic()
    ident = f"{contender.name}:{case.id}"
    with World(path, ident) as world, tempfile.TemporaryDirectory(prefix="rerail-case-") as folder:
        world.ask("open", task=case.task, faults=[fault.to_dict() for fault in case.faults])
        job = {
            "case": ident, "plan": plan_of(case, task, effects), "socket": path, "folder": folder, "resumed": False,
            "answers": {}, "options": contender.options,
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
            elif found["status"] == "waiting" and answering and found["doubts"] and asked < 5:
                asked += 1
                answers = {step: world.ask("effect", step=step) for step in found["doubts"]}
                job = {**job, "answers": answers}
            else:
                break
        end = world.ask("end")
    took = time.monotonic() - begun
    return Seen(
        case, contender.name, found["status"], end["state"], end["calls"], kills, took, asked, found.get("why", "")
    )
