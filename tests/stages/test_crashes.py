"""kill -9 at every write of a retry: it can be typed again, and no valid file is lost (T3, T4, E1)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import ENVIRON
from tests.stages.crashing import DIED
from tests.stages.task import Task

Failed = Callable[[str], Task]
ROOT = Path(__file__).resolve().parents[2]
PATHS = (str(ROOT / "src"), str(ROOT))
# How many moments of a retry are tried: a few, spread over all of it; RERAIL_CRASHES=all for every one.
FEW = 6
WANTED = os.environ.get("RERAIL_CRASHES", "")


def crashed(task: Task, at: int, *words: str) -> tuple[int, int]:
    """Run a command that dies at a moment; its exit code, and how many moments there were if it did not."""
    note = task.folder / "moments"
    environ = {**os.environ, **ENVIRON, "PYTHONPATH": os.pathsep.join(PATHS), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.stages.crashing", str(at), str(note), *words], cwd=task.folder, env=environ,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, int(note.read_text()) if note.exists() else 0


def chosen(total: int) -> list[int]:
    """The moments that are tried."""
    if WANTED == "all":
        return list(range(1, total + 1))
    return sorted({1 + (total - 1) * number // (FEW - 1) for number in range(FEW)})


def spoilt(task: Task) -> None:
    """One kept file is damaged, so that a retry has to put aside more than what failed."""
    (task.workspace / "requirements.json").write_text("{")


def untouched(task: Task) -> None:
    """Nothing is damaged."""


MODES: dict[str, tuple[list[str], Callable[[Task], None], int]] = {
    "partial": ([], spoilt, 0),
    "clean": (["--clean", "--yes"], untouched, 3),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_that_is_killed_can_be_typed_again(failed: Failed, mode: str) -> None:
    """T3, T4: whatever was written when it died, the task completes, and every valid file is still somewhere."""
    words, damage, code = MODES[mode]
    first = failed("generating")
    damage(first)
    ended, total = crashed(first, 0, "retry", first.run, "--wait", *words)
    assert ended == code
    assert total > 20
    for at in chosen(total):
        task = failed("generating")
        valid = {path.read_bytes() for path in task.workspace.glob("*.json") if path.name != "task.json"}
        damage(task)
        valid &= task.contents()  # what was damaged is lost already
        ended, _ = crashed(task, at, "retry", task.run, "--wait", *words)
        assert ended in (DIED, code), at
        assert valid <= task.contents(), at
        status = task("show", task.run, "--json", code=0).json
        if status["status"] != "completed" and not status["waiting_on"]:
            task("retry", task.run, "--wait", "--yes", code=None)
        shown = task("show", task.run, "--json", code=0).json
        if shown["waiting_on"]:
            task("confirm", task.run, "--wait", code=0)
            shown = task("show", task.run, "--json", code=0).json
        assert shown["status"] == "completed", (at, shown["summary"])
        assert valid <= task.contents(), at
        assert all((task.workspace / name).exists() for name in ("plan.json", "generation_result.json"))
