"""`retry --clean` where the disk is full, a file cannot be read, or a backup is in the way: in real processes (T4)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import ENVIRON, Done
from tests.stages.task import Task

from rerail.kernel.events import RetryBegin
from rerail.workspace import stamp

Failed = Callable[[str], Task]
LIMIT = 1 << 20
DROP_BOUNDING, READ_ALL, SEARCH_ALL = 24, 1, 2  # prctl(PR_CAPBSET_DROP), CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def small_files() -> None:
    """No file of this process, and of what it starts, grows beyond a limit: what a full disk says, for large files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def no_privilege() -> None:
    """Modes of files count, for root too."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (READ_ALL, SEARCH_ALL):
            if libc.prctl(DROP_BOUNDING, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")


def limited(task: Task, before: Callable[[], None], *words: str) -> Done:
    """Run a command, and the workers that it starts, under a limit."""
    settings = {**os.environ, **ENVIRON, "GENERATION_TASK_FAIL": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "rerail.cli", *words], cwd=task.folder, env=settings, input="", capture_output=True,
        text=True, timeout=60, preexec_fn=before,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr, ended.stderr
    return Done(ended.returncode, ended.stdout, ended.stderr)


def listing(task: Task) -> dict[str, bytes]:
    """Every file of the workspace, backups included, but what people's views and logs are."""
    skipped = {"task.json", "worker.log"}
    found = [path for path in task.workspace.rglob("*") if path.is_file() and path.name not in skipped]
    return {path.relative_to(task.workspace).as_posix(): path.read_bytes() for path in found}


def backups(task: Task) -> list[Path]:
    """The backups there are, finished or not."""
    with contextlib.suppress(FileNotFoundError):
        return sorted((task.workspace / ".rerail" / "backup").iterdir())
    return []


def completes(task: Task) -> None:
    """Starting over works now, and everything that was there is in the backup."""
    before = {name: data for name, data in listing(task).items() if not name.startswith(".rerail/")}
    task("retry", task.run, "--clean", "--yes", "--wait", code=3)
    kept = Path(task.events(RetryBegin)[-1].backup)
    assert {name: (kept / name).read_bytes() for name in before} == before
    task("confirm", task.run, "--wait", code=0)
    assert task("show", task.run, "--json", code=0).json["status"] == "completed"


@pytest.mark.parametrize("way", ["--wait", "--detach"])
def test_clean_with_a_full_disk(failed: Failed, way: str) -> None:
    """T4: no backup, no start: refused, nothing is changed, nothing half done lies about; later it works."""
    task = failed("generating")
    (task.workspace / "big.bin").write_bytes(os.urandom(2 * LIMIT))
    before, records = listing(task), task.records()
    refused = limited(task, small_files, "retry", task.run, "--clean", "--yes", way, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "BACKUP_FAILED")
    assert str(task.workspace) in refused.json["error"]["hint"]
    assert (listing(task), task.records(), backups(task)) == (before, records, [])
    assert task("show", task.run, "--json", code=0).json["status"] == "failed"
    completes(task)


def test_clean_with_an_unreadable_file(failed: Failed) -> None:
    """T4: what cannot be copied cannot be backed up, so nothing is taken away; the reason is said."""
    task = failed("generating")
    secret = task.workspace / "templates.json"
    before, records = listing(task), task.records()
    secret.chmod(0)
    refused = limited(task, no_privilege, "retry", task.run, "--clean", "--yes", "--wait", "--json")
    secret.chmod(0o600)
    assert (refused.code, refused.json["error"]["code"]) == (2, "BACKUP_FAILED")
    assert "Permission denied" in refused.json["error"]["message"]
    assert (listing(task), task.records(), backups(task)) == (before, records, [])
    completes(task)


def test_a_kept_file_that_cannot_be_read_is_made_again(failed: Failed) -> None:
    """T3: a partial retry takes it for damaged, says so, and its step makes it again."""
    task = failed("generating")
    (task.workspace / "templates.json").chmod(0)
    done = limited(task, no_privilege, "retry", task.run, "--wait")
    assert done.code == 3, done.err
    assert "templates.json" in done.out and "Permission denied" in done.out
    assert limited(task, no_privilege, "confirm", task.run, "--wait").code == 0
    assert task.calls()["retrieve"] == 2 and task.calls()["extract"] == 1
    assert "templates.json" in task.archived()


def test_clean_with_a_folder_in_a_files_place(failed: Failed) -> None:
    """T4: what lies there is backed up as it is, with all that is in it, and is in nobody's way."""
    task = failed("generating")
    odd = task.workspace / "templates.json"
    odd.unlink()
    (odd / "deep").mkdir(parents=True)
    (odd / "deep" / "note.txt").write_text("mine")
    completes(task)
    assert (backups(task)[-1] / "templates.json" / "deep" / "note.txt").read_text() == "mine"
    assert odd.is_file()


def test_clean_where_a_backup_of_that_name_exists(failed: Failed) -> None:
    """T4: it is left alone, and the new one gets another name."""
    task = failed("generating")
    base = task.workspace / ".rerail" / "backup"
    names = [stamp(time.time() + seconds) for seconds in range(60)]
    for name in names:
        (base / name).mkdir(parents=True)
        (base / name / "requirements.json").write_text("older")
    completes(task)
    assert {(base / name / "requirements.json").read_text() for name in names} == {"older"}
    [made] = [path for path in backups(task) if path.name not in names]
    assert made.name.endswith("-2") and made.name.removesuffix("-2") in names
    assert task.events(RetryBegin)[-1].backup == str(made)


def test_clean_where_no_backup_can_be(failed: Failed) -> None:
    """T4: a file stands where the backups are to be: refused, and nothing is changed."""
    task = failed("generating")
    (task.workspace / ".rerail").mkdir(exist_ok=True)
    (task.workspace / ".rerail" / "backup").write_text("in the way")
    before, records = listing(task), task.records()
    refused: Any = task("retry", task.run, "--clean", "--yes", "--wait", "--json", code=2).json["error"]
    assert refused["code"] == "BACKUP_FAILED"
    assert (listing(task), task.records()) == (before, records)
    (task.workspace / ".rerail" / "backup").unlink()
    completes(task)


def test_a_dry_run_of_a_clean_start_says_what_becomes_of_the_files(failed: Failed) -> None:
    """R7, T4: which files would be backed up and taken away, and who will be asked once more; nothing is done."""
    task = failed("generating")
    before, records = listing(task), task.records()
    said = task("retry", task.run, "--clean", "--dry-run", code=0).out
    assert "Would be copied to a backup, and then taken away\n  requirements.json\n  templates.json\n" in said
    assert "Would have to be confirmed once more: retrieve" in said
    assert "需要重新确认：retrieve" in task("retry", task.run, "--clean", "--dry-run", "--lang", "zh", code=0).out
    found = task("retry", task.run, "--clean", "--dry-run", "--json", code=0).json
    assert (sorted(found["backs_up"]), found["asks"]) == (["requirements.json", "templates.json"], ["retrieve"])
    partial = task("retry", task.run, "--dry-run", "--json", code=0).json
    assert (partial["backs_up"], partial["asks"]) == ([], [])
    assert (listing(task), task.records()) == (before, records)
