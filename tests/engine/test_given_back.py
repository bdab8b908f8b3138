"""A call that goes on in a thread after its run was given back may not act for it (E11)."""

from __future__ import annotations

import threading
import time

import pytest

import rerail

pytestmark = pytest.mark.anyio


async def test_e11_a_thread_that_outlives_its_runs_owner_does_not_act() -> None:
    """E11: the process still holds a confirmed lease of a moment ago, but it has given the run back itself."""
    over, said = threading.Event(), list[str]()

    @rerail.tool(effect="once", timeout=0.05)
    def slow(ctx: rerail.Context) -> None:
        time.sleep(3)
        try:
            ctx.ensure_owner()
            said.append("acted")
        except rerail.NotDone:
            said.append("not done")
        over.set()

    async with rerail.Engine("memory://", [slow]) as engine:
        result = await engine.run({"steps": [{"id": "a", "tool": "slow"}]})
        assert result.status == "waiting"  # in doubt: it has not ended after twice its timeout
        assert over.wait(10)
    assert said == ["not done"]
