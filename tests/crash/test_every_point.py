"""kill -9 at every crash point of the demo's plan and of the examples': nothing lost, repeated, missing or different.

CI tries a few points of each; `make long` sets RERAIL_CRASHES=all.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rerail.testing import crashtest

ROOT = Path(__file__).resolve().parents[2]
FEW = 3
WANTED = None if os.environ.get("RERAIL_CRASHES") == "all" else FEW
EXAMPLES = ROOT / "examples"

# plan, its tools, the fewest points it has, and what of it can be in doubt
PLANS = {
    "demo": (ROOT / "src/rerail/demo/plan.yaml", "rerail.demo.tools", 100, {"reserve"}),
    "generation_task": (EXAMPLES / "generation_task/pipeline.yaml", "", 200, set[str]()),
    "presentation": (EXAMPLES / "presentation/plan.yaml", "", 40, set[str]()),
    "refund": (EXAMPLES / "refund/plan.yaml", "", 60, {"letter"}),
}


@pytest.mark.timeout(4 * 3600)  # all of them take minutes, on a busy machine many
@pytest.mark.parametrize("name", PLANS)
async def test_every_crash_point_keeps_every_guarantee(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """E1, E2, E3, X5, T1, T6, T9: a process dies there, another one goes on, and the ledger agrees with the store."""
    monkeypatch.setenv("RERAIL_DEMO_PACE", "0.001")
    plan, tools, least, doubtful = PLANS[name]
    report = await crashtest(
        plan, [tools or str(plan.with_name("tools.py"))], {"retry": {"backoff_base": 0.01}}, points=WANTED, jobs=2
    )
    print(name, report.counts(), "unsafe:", [row.tool for row in report.unsafe], f"{report.seconds:.0f} s")
    assert [trial.to_dict() for trial in report.broken] == []
    assert report.points > least and len(report.trials) == (WANTED or report.points)
    assert {step for trial in report.trials for step in trial.doubts} <= doubtful
    assert {row.tool for row in report.unsafe} <= {"next_number"}
