"""Files that a step says it produces are looked at before the step counts as succeeded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rerail
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
