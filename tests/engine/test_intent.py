"""An intent is durable before its call starts."""

from __future__ import annotations

import asyncio

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.kernel.codec import decode
from rerail.ports import Batch
from rerail.testing import VirtualClock, virtual_run


class SlowStore(MemoryStore):
    """A store that takes its time before anything is durable."""

    async def append(self, batch: Batch) -> None:
        await asyncio.sleep(1)
        await super().append(batch)


def test_no_call_starts_before_its_intent_is_durable() -> None:
    """E1, E2: whatever a tool does, the history already says that it was called."""
    store = SlowStore()
    seen: list[bool] = []

    @rerail.tool
    async def act(ctx: rerail.Context) -> None:
        events = [decode(row.data) for row in await store.read(ctx.run)]
        seen.append(any(getattr(event, "step", "") == ctx.step for event in events))

    plan = {"steps": [{"id": "a", "tool": "act"}, {"id": "b", "tool": "act", "needs": ["a"]}]}

    async def main() -> None:
        async with rerail.Engine(store, [act], clock=VirtualClock()) as engine:
            assert (await engine.run(plan)).success

    virtual_run(main)
    assert seen == [True, True]
