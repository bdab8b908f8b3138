"""A run whose first owner ends in the middle of a `once` call and does not give the run back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.ports import Head, Lease, Owner
from rerail.testing import VirtualClock, virtual_run

FAR = Owner("elsewhere", 1, 1.0)  # on another machine, and only not heard of


class Unreleased(MemoryStore):
    """The first owner of a run ends without giving the run back."""

    def __init__(self, first: Owner) -> None:
        super().__init__()
        self.first = first

    async def create(self, head: Head) -> None:
        """It is the first owner's."""
        await super().create(replace(head, owner=self.first))

    async def release(self, lease: Lease) -> None:
        """The first lease is kept."""
        if lease.fence > 1:
            await super().release(lease)


def resumed(
    first: Owner = FAR,
    between: Callable[[MemoryStore, str], Awaitable[None]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> tuple[str, int]:
    """What the run comes to when it is resumed, and how often its call is made; ``between`` happens before that."""
    called = 0

    async def there(args: dict[str, Any], output: Any) -> bool:
        return output is not None

    @rerail.tool(effect="once", verify=there, timeout=20)
    async def send() -> str:
        nonlocal called
        called += 1
        if called == 1:
            await asyncio.sleep(1000)
        return "sent"

    async def main() -> Any:
        store = Unreleased(first)
        async with Engine(store, [send], settings, clock=VirtualClock()) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "send"}]})
            await asyncio.sleep(5)
        await asyncio.sleep(60)
        if between is not None:
            await between(store, run)
        async with Engine(store, [send], settings, clock=VirtualClock()) as engine:
            return await engine.resume(run)

    return virtual_run(main).status, called
