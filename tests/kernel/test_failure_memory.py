"""Failure memory: learnt from histories, reorders rungs within the budgets, can be shown and cleared."""

from __future__ import annotations

from typing import Any

from rerail.adapters.stores.memory import MemoryStore
from rerail.codes import Category
from rerail.errors import ToolError
from rerail.kernel.events import Error
from rerail.kernel.failure_memory import key_of, reordered
from rerail.kernel.policy import LADDER, Rung
from rerail.testing import VirtualClock, World, virtual_run

PLAN = {"steps": [{"id": "a", "tool": "main", "alternatives": ["spare"]}]}
DOWN = ConnectionRefusedError("host 10.0.0.7 refused the connection")


def test_memory_reorders_within_the_budget() -> None:
    """H10: once the alternative was what helped, it comes first; off by default; clearing forgets."""
    store = MemoryStore()

    async def run(*, remember: bool, at: float = 1.7e9) -> list[str]:
        world = World(main=[DOWN])
        settings = {"reflection": {"memory": remember}}
        async with world.engine(PLAN, store=store, settings=settings, clock=VirtualClock(at)) as engine:
            assert (await engine.run(PLAN)).success
        return world.order

    async def forget() -> tuple[list[Any], list[Any]]:
        async with World().engine(PLAN, store=store, clock=VirtualClock(1.8e9)) as engine:
            before = await engine.internals.memory()
            await engine.internals.forget()
            assert all(row["run_id"] != "~memory" for row in await engine.list())
            return before, await engine.internals.memory()

    slow = ["main", "main", "main", "spare"]
    assert virtual_run(lambda: run(remember=False)) == slow
    assert virtual_run(lambda: run(remember=False)) == slow  # what is not switched on changes nothing
    assert virtual_run(lambda: run(remember=True)) == ["main", "spare"]
    before, after = virtual_run(forget)
    assert before[0]["rung"] == "alternative_tool"
    assert before[0]["worked"] == 3
    assert after == []
    assert virtual_run(lambda: run(remember=True, at=1.9e9)) == slow


def test_memory_never_adds_a_rung() -> None:
    """H10: a rung that a category does not have stays out of reach, whatever worked before."""
    error = Error("TOOL_FAILED", Category.PERMANENT, "no key 42")
    memory = {key_of("t", error): str(Rung.RETRY)}
    assert reordered(LADDER[Category.PERMANENT], memory, "t", error) == LADDER[Category.PERMANENT]
    assert key_of("t", error) == key_of("t", Error("TOOL_FAILED", Category.PERMANENT, "no key 43"))


def test_what_did_not_help_is_not_learnt() -> None:
    """H10: a rung that was followed by another failure teaches nothing."""
    store = MemoryStore()
    world = World(
        main=[ToolError("broken", category="tool_error")], spare=[ToolError("broken too", category="tool_error")]
    )

    async def main() -> list[Any]:
        async with world.engine(PLAN, store=store) as engine:
            assert not (await engine.run(PLAN)).success
            return await engine.internals.memory()

    assert virtual_run(main) == []


def test_what_worked_before_goes_first_and_the_others_keep_their_order() -> None:
    """H10: within the category's own rungs; what is none of them changes nothing."""
    error = Error("TOOL_FAILED", Category.TRANSIENT, "down")
    rungs, key = LADDER[Category.TRANSIENT], key_of("t", error)
    assert reordered(rungs, {key: "fallback"}, "t", error) == (
        Rung.FALLBACK, Rung.RETRY, Rung.ALTERNATIVE, Rung.SKIP, Rung.REPLAN,
    )  # fmt: skip
    for memory in ({}, {key: "repair"}, {key_of("u", error): "fallback"}):
        assert reordered(rungs, memory, "t", error) == rungs
