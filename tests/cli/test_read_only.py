"""A store that may be read but not written: refused clearly, before anything begins (E4)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cli.conftest import Here

CASES = [("run", "plan.json", "--tools", "toolbox.py"), ("retry", "RUN"), ("doctor",)]


@pytest.fixture
def sealed(here: Here) -> Iterator[str]:
    """A folder with one failed run, which nobody may write; the run's id."""
    run = here.run({"id": "a", "tool": "fail"}, code=1)
    (here.place.folder / "calls.txt").unlink()
    paths = [here.place.folder, *here.place.folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield run
    for path in paths:
        path.chmod(0o755)


def obey() -> None:
    """Take from root the right to write what may not be written (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)."""
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


@pytest.mark.parametrize("words", CASES, ids=lambda words: words[0])
def test_a_store_that_cannot_be_written(here: Here, sealed: str, words: tuple[str, ...]) -> None:
    """E4: the store's own sentence and exit code 2 (1 for the doctor); no traceback, nothing called."""
    ended = subprocess.run(
        [sys.executable, "-m", "rerail.cli", *(sealed if word == "RUN" else word for word in words)],
        cwd=here.place.folder, env=here.place.environ, capture_output=True, text=True, preexec_fn=obey,
    )  # fmt: skip
    assert ended.returncode == (1 if words == ("doctor",) else 2), ended.stderr
    assert "cannot be written" in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
    assert here.place.calls == []


READING = [("ls",), ("show", "RUN"), ("why", "RUN"), ("logs", "RUN"), ("export", "RUN")]


@pytest.mark.parametrize("log", [False, True], ids=["whole", "with a log"])
@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_a_store_that_cannot_be_written_is_read(here: Here, words: tuple[str, ...], log: bool) -> None:
    """E4, E6: commands that only look work in a read-only folder, with what a log left beside the file holds."""
    run = here.run({"id": "a", "tool": "fail"}, code=1)
    folder = here.place.folder / ".rerail"
    keeper = None
    if log:  # a process that has the store open keeps the log beside it, with the latest writes
        import apsw

        keeper = apsw.Connection(str(folder / "runs.db"))
        keeper.execute("UPDATE runs SET objective = 'from the log'")
    paths = [here.place.folder, *here.place.folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "rerail.cli", *(run if word == "RUN" else word for word in words)],
            cwd=here.place.folder, env=here.place.environ, capture_output=True, text=True, preexec_fn=obey,
        )  # fmt: skip
    finally:
        for path in paths:
            path.chmod(0o755)
    assert ended.returncode == 0, ended.stderr
    assert run in ended.stdout or words[0] in ("logs", "why")
    if words == ("ls",):
        assert ("from the log" in ended.stdout) == log
    if keeper is not None:
        keeper.close()
