"""The staged task of the examples as users have it: a folder of its own, and the command line in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.conftest import ENVIRON, Done
from tests.workers.around import workers_in

from rerail.kernel.codec import decode
from rerail.kernel.events import Event, Record
from rerail.kernel.fold import fold
from rerail.kernel.state import State

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "generation_task"
PLAN, TOOLS = str(EXAMPLE / "pipeline.yaml"), str(EXAMPLE / "tools.py")

# Stage → step, in order; the last three are the follow-up's.
STEPS = {
    "extracting": "extract", "retrieving": "retrieve", "generating": "generate", "evaluating": "evaluate",
    "reflecting": "reflect", "curating": "curate",
}  # fmt: skip
FILES = {
    "extracting": ["requirements.json"], "retrieving": ["templates.json"],
    "generating": ["plan.json", "generation_result.json"], "evaluating": ["feedback.json"],
    "reflecting": ["reflection.json"], "curating": ["curation.json"],
}  # fmt: skip
MAIN = ("extracting", "retrieving", "generating")


@dataclass
class Task:
    """A run of the staged task, in a folder of its own."""

    folder: Path
    run: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, code: int | None = None, fail: str = "", given: str = "", **environ: str) -> Done:
        """Run a command to its end; ``fail`` names a stage that fails."""
        settings = {**os.environ, **ENVIRON, **self.environ, "GENERATION_TASK_FAIL": fail, **environ}
        ended = subprocess.run(
            [sys.executable, "-m", "rerail.cli", *words], cwd=self.folder, env=settings, input=given,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert "Traceback" not in done.err, done.err
        assert code is None or done.code == code, (done.code, done.out, done.err)
        return done

    def begin(self, fail: str = "") -> None:
        """Start the task in its folder; it fails at a stage, or else completes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        code = 1 if fail.partition(":")[0] == "extracting" else 3
        self.run = self("run", PLAN, "--tools", TOOLS, "--json", code=code, fail=fail).json["run_id"]
        if code == 3:
            failing = fail.partition(":")[0] in MAIN
            self("confirm", self.run, "--wait", code=1 if failing else 0, fail=fail)

    def copy(self, folder: Path) -> Task:
        """The same task elsewhere, as it is now."""
        shutil.copytree(self.folder, folder)
        return Task(folder, self.run)

    @property
    def workspace(self) -> Path:
        """Where its files are."""
        return self.folder / ".rerail" / "work" / self.run

    @property
    def store(self) -> Path:
        """The file of its store."""
        return self.folder / ".rerail" / "runs.db"

    def runs(self) -> list[str]:
        """The run and its follow-ups, oldest first."""
        with contextlib.closing(sqlite3.connect(self.store)) as database:
            return [row[0] for row in database.execute("SELECT run FROM runs ORDER BY created_at")]

    def last(self) -> str:
        """The newest run: the follow-up, once there is one."""
        return self.runs()[-1]

    def records(self, run: str | None = None) -> list[Record]:
        """A run's history, read from outside."""
        run = run or self.run
        with contextlib.closing(sqlite3.connect(self.store)) as database:
            rows = database.execute("SELECT seq, at, data FROM events WHERE run = ? ORDER BY seq", (run,)).fetchall()
        return [Record(run, seq, at, decode(data)) for seq, at, data in rows]

    def events(self, kind: type[Event], run: str | None = None) -> list[Any]:
        """The events of a kind."""
        return [record.event for record in self.records(run) if isinstance(record.event, kind)]

    def state(self, run: str | None = None, upto: int | None = None) -> State:
        """What the history says, or said after so many events."""
        return fold(run or self.run, self.records(run)[:upto])

    def calls(self) -> Counter[str]:
        """How often each step was called, in all runs of the task."""
        found: Counter[str] = Counter()
        for run in self.runs():
            found.update(track.step.id for track in self.state(run).tracks.values() for _ in range(track.attempt))
        return found

    def task_json(self) -> dict[str, Any]:
        """The readable snapshot."""
        found: dict[str, Any] = json.loads((self.workspace / "task.json").read_text())
        return found

    def archived(self) -> set[str]:
        """The names of the files in the archive."""
        folder = self.workspace / ".rerail" / "archive"
        return {path.name for path in folder.rglob("*") if path.is_file()}

    def contents(self) -> set[bytes]:
        """The contents of all files anywhere in the workspace, archive and backups included."""
        names = {"task.json", "worker.log"}
        return {path.read_bytes() for path in self.workspace.rglob("*") if path.is_file() and path.name not in names}

    def settled(self, seconds: float = 30.0) -> str:
        """The status of the newest run, once nobody works on it any more."""
        deadline = time.monotonic() + seconds
        while workers_in(self.folder):
            assert time.monotonic() < deadline, "a worker does not end"
            time.sleep(0.02)
        return str(self("show", self.last(), "--json", code=0).json["status"])

    def close(self) -> None:
        """End what was left behind."""
        for pid in workers_in(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
