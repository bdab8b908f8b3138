"""A store that may be read but not written: refused clearly, before anything begins (E4)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Place


@pytest.fixture
def sealed(place: Place) -> Iterator[Path]:
    """A copy of the folder with one failed run, which nobody may write."""
    place.run({"id": "a", "tool": "fail"}, code=1)
    folder = Path(tempfile.mkdtemp(prefix="rerail-sealed-"))  # a place that other users may enter
    shutil.copytree(place.folder, folder / "work")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder / "work"
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words", [("run", "plan.json", "--tools", "toolbox.py"), ("retry", "RUN"), ("doctor",)], ids=lambda w: w[0]
)
def test_a_store_that_cannot_be_written(place: Place, sealed: Path, words: tuple[str, ...]) -> None:
    """E4: the store's own sentence and exit code 2 (1 for the doctor); no traceback, nothing called."""
    run = place.only()
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}  # root may write anything
    ended = subprocess.run(
        [sys.executable, "-m", "rerail.cli", *(run if word == "RUN" else word for word in words)], cwd=sealed,
        env={**place.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, **nobody,
    )  # fmt: skip
    assert ended.returncode == (1 if words == ("doctor",) else 2), ended.stderr
    assert "written" in ended.stderr + ended.stdout or "writable" in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
