"""A cluster that is away is "not now": steps wait for it (X8, I6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rerail
from rerail.adapters.executors.ray.executor import ClusterUnreachable
from rerail.api import Engine
from rerail.ports import Begun, Tool
from rerail.testing.virtual_time import VirtualClock, virtual_run

PLAN = {"steps": [{"id": f"s{n}", "tool": "pay"} for n in range(4)]}


@rerail.tool(effect="once")
async def pay() -> str:
    """Act."""
    return "paid"


class Away:
    """A cluster that nobody reaches for a number of seconds."""

    here = False

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self.clock, self.back = clock, clock.now() + seconds

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Nothing to close."""

    def takes(self, tool: Tool) -> bool:
        """Every tool."""
        return True

    async def call(
        self, tool: Tool, args: Mapping[str, Any], ctx: Any, resources: Mapping[str, float], begun: Begun
    ) -> Any:
        """Call the tool if the cluster is back."""
        if self.clock.now() < self.back:
            raise ClusterUnreachable("connection refused")
        return await tool.call(dict(args), ctx)


def ran(seconds: float) -> Any:
    """Run the plan while the cluster is away for that long."""

    async def main() -> Any:
        clock = VirtualClock()
        settings = {"retry": {"max_wait": 600}}
        async with Engine("memory://", [pay], settings, clock=clock, executor=Away(clock, seconds)) as engine:
            return await engine.run(PLAN)

    return virtual_run(main)


def test_a_cluster_that_comes_back_costs_nothing() -> None:
    """X8: five minutes without a cluster are five minutes of waiting: no failure, no retry, nothing in doubt."""
    result = ran(300)
    assert result.success, result.summary
    assert result.in_doubt == ()
    assert result.retries == 0
    assert {row.status for row in result.steps.values()} == {"succeeded"}


def test_a_cluster_that_stays_away_is_waited_for_up_to_max_wait() -> None:
    """X8: past `retry.max_wait` it is a failure; it is known that nothing happened, so nothing is in doubt."""
    result = ran(10_000)
    assert (result.status, result.in_doubt) == ("failed", ())
    assert {row.code for row in result.failed_steps if hasattr(row, "code")} <= {"CLUSTER_UNREACHABLE"}
