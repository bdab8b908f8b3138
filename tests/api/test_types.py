"""Programs of users under two strict type checkers: public names are typed as they are used."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

import rerail
from rerail.kernel.events import Event, EventType

PROGRAMS = Path(__file__).parent / "programs"


def mypy(folder: Path) -> list[tuple[str, int]]:
    """Return the files and lines of mypy's complaints, as a user's own project has them."""
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = true\ncache_dir = {folder}/cache\n")
    made = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "good.py", "wrong.py"],
        cwd=folder, capture_output=True, text=True, check=False, env=_installed(),
    )  # fmt: skip
    return [(found[1], int(found[2])) for found in re.finditer(r"^(\w+\.py):(\d+): error", made.stdout, re.MULTILINE)]


def pyright(folder: Path) -> list[tuple[str, int]]:
    """Return the files and lines of pyright's complaints; its Node comes from a wheel, so no network is needed."""
    paths = [str(Path(rerail.__file__).parents[1])]
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": paths}))
    made = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", ".", "--pythonpath", sys.executable, "--outputjson"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = json.loads(made.stdout)["generalDiagnostics"]
    return [(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in told if one["severity"] == "error"]


def _installed() -> Mapping[str, str]:
    return {**os.environ, "MYPYPATH": str(Path(rerail.__file__).parents[1])}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_users_program_is_typed(tmp_path: Path, checker: object) -> None:
    """The right program has no complaint; in the wrong one exactly the marked lines have."""
    assert callable(checker)
    for program in PROGRAMS.glob("*.py"):
        (tmp_path / program.name).write_text(program.read_text("utf-8"), "utf-8")
    marked = {
        n for n, line in enumerate((PROGRAMS / "wrong.py").read_text("utf-8").splitlines(), 1) if "# wrong" in line
    }
    found = checker(tmp_path)
    assert [place for place in found if place[0] == "good.py"] == []
    assert {line for name, line in found if name == "wrong.py"} == marked


def test_the_users_program_runs() -> None:
    """What the type checkers agree to is accepted at run time, too."""
    spec = importlib.util.spec_from_file_location("good", PROGRAMS / "good.py")
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert [step.id for step in program.PLAN.steps] == ["a", "b", "c"]
    assert program.PLAN.steps[1].fallback == rerail.Fallback()
    assert program.PLAN.check([program.fetch, program.send]) == []


def test_the_types_of_events_are_all_there() -> None:
    """I1, I2: `record.type` is one of the stored names."""
    assert {one.__struct_config__.tag for one in get_args(Event)} == set(get_args(EventType))


@pytest.mark.parametrize("name", rerail.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Those that are loaded late as well."""
    assert getattr(rerail, name) is not None
    assert name in dir(rerail)
