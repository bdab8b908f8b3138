"""Files that a step says it produces are looked at before the step counts as succeeded."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.kernel.calls import calls

import rerail
from rerail.engine.files.placement import look
from rerail.plan.step import Produced
from rerail.testing import VirtualClock, virtual_run


@pytest.mark.parametrize(
    ("content", "produces", "reason"),
    [
        ('{"objective": "x"}', ["plan.json"], None),
        ('{"objective": "x"}', [{"path": "plan.json", "keys": ["objective"]}], None),
        ('{"objective": "x"}', [{"path": "plan.json", "keys": ["steps"]}], "lacks 'steps'"),
        ('{"objective": ', ["plan.json"], "not JSON"),
        ("", [{"path": "plan.txt", "non_empty": True}], "not there"),
        (None, ["plan.json"], "not there"),
        ("{}", [{"path": "plan.json", "schema": {"required": ["a"]}}], "missing required"),
    ],
)
def test_produced_files_are_checked(
    tmp_path: Path, content: str | None, produces: list[Any], reason: str | None
) -> None:
    """V6, P1: a step whose file is missing, damaged or elsewhere has failed, whatever its tool said."""

    @rerail.tool
    async def write(ctx: rerail.Context) -> dict[str, bool]:
        if content is not None:
            (ctx.workspace / "plan.json").write_text(content)
        return {"ok": True}

    plan = {"steps": [{"id": "a", "tool": "write", "produces": produces, "retries": 0}]}
    settings = {"retry": {"max_retry_rounds": 0}}

    async def main() -> rerail.RunResult:
        engine = rerail.Engine("memory://", [write], settings, clock=VirtualClock(), workspace=tmp_path)
        async with engine:
            return await engine.run(plan)

    result = virtual_run(main)
    assert result.success == (reason is None)
    if reason is not None:
        assert result.steps["a"].error is not None
        assert reason in result.steps["a"].error["message"]
        assert result.steps["a"].error["code"] == "CHECK_FAILED"


LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
MERGED = "a0: &a0 {x0: 1, y0: 2}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], x{n}: 1}}\n" for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (LAUGHS, "aliases"), (MERGED, "aliases"), ("a: &a [*a]", "aliases"), ("a: &a {b: *a}", "aliases"),
        ("base: &b {n: 1}\na: {<<: *b, m: 2}\nother: [*b, *b]", ""), ("a: [1, 2", "not YAML"), ("", "lacks 'a'"),
        ("a: 1\n---\na: 2", "not YAML"), ("a: " + "[" * 5000, "not YAML"),
    ],
)  # fmt: skip
def test_a_yaml_file_does_not_swell(tmp_path: Path, content: str, reason: str) -> None:
    """T1: a few lines of aliases may stand for billions of values, or for themselves; that is said, at once."""
    (tmp_path / "a.yaml").write_text(content)
    schema = {"type": "object", "additionalProperties": {"type": ["array", "object", "integer"]}}
    file = Produced("a.yaml", keys=("a",) if "a0" not in content else (), schema=schema)
    assert calls(lambda: look(file, tmp_path)) < 200_000  # looked at in full it would take years
    seen = look(file, tmp_path)
    assert reason in "; ".join(seen.faults) if reason else not seen.faults, seen.faults


def test_many_values_without_aliases_are_no_fault(tmp_path: Path) -> None:
    """T1: a large file is read as far as its size allows; only what aliases make of one is bounded."""
    (tmp_path / "a.yaml").write_text("a: &a {n: 1}\nb: *a\nlist: [" + "1, " * 200 + "1]\n")
    assert not look(Produced("a.yaml"), tmp_path).faults


def test_a_runs_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """T1: what a run writes is not for other users to read, as its store is not."""

    @rerail.tool
    async def write(ctx: rerail.Context) -> None:
        ctx.write_text("a.txt", "secret")

    async def main() -> str:
        async with rerail.Engine(f"sqlite:///{tmp_path}/s/runs.db", [write], clock=VirtualClock()) as engine:
            steps = [{"id": "a", "tool": "write", "produces": ["a.txt"], "stage": "one"}]
            return (await engine.run({"steps": steps})).run_id

    before = os.umask(0o022)
    try:
        run = virtual_run(main)
    finally:
        os.umask(before)
    folder = tmp_path / "s" / "work" / run
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    assert (folder / "task.json").exists()
