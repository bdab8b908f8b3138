"""What docs/howto/models.md shows is true: its settings load and make models, its code runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rerail
from rerail.factory import make_model
from rerail.settings.loading import describe

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "models.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```\n", PAGE, re.DOTALL)


def test_the_settings_make_models() -> None:
    """SPEC 11: every TOML block holds known keys only, and names a model."""
    assert len(blocks("toml")) >= 6
    for text in blocks("toml"):
        assert make_model(rerail.Settings.load(tomllib.loads(text))) is not None


def test_the_table_lists_every_key_with_its_default() -> None:
    """SPEC 11: of [model]; the roles' keys are named in the text."""
    listed = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE, re.MULTILINE))
    rows = {row["key"]: row["value"] for row in describe(rerail.Settings(), {})}
    own = {key.removeprefix("model."): value for key, value in rows.items() if re.fullmatch(r"model\.\w+", key)}
    assert {key: text.strip('`"') for key, text in listed.items()} == {
        key: "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in own.items()
    }
    for key in rows:
        if key.startswith("model.judge."):
            assert f"`{key.rpartition('.')[2]}`" in PAGE


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_code_runs(number: int, tmp_path: Path) -> None:
    """M1: every Python block is a program."""
    program = tmp_path / "program.py"
    program.write_text(blocks("python")[number], encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [sys.executable, "-W", "error", program.name]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
