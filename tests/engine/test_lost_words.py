"""Words that get lost between an engine and its store: a run is never left in the name of somebody who has it not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.owner import this_process
from rerail.errors import Refused, StoreError
from rerail.ports import Head, Lease, Unavailable
from rerail.testing import Took, World, virtual_run

ONE = {"steps": [{"id": "a", "tool": "a"}]}


class Deaf(MemoryStore):
    """A store that does what it is asked, while its answer is lost, once for each name."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = list(names)

    def _lose(self, name: str) -> None:
        if name in self.names:
            self.names.remove(name)
            raise Unavailable("the word was lost")

    async def create(self, head: Head) -> None:
        """Make the run."""
        await super().create(head)
        self._lose("create")

    async def claim(self, *args: Any, **options: Any) -> Lease:
        """Give the lease."""
        lease = await super().claim(*args, **options)
        self._lose("claim")
        return lease

    async def release(self, lease: Lease) -> None:
        """Be out of reach, when a lease is given back."""
        self._lose("release")
        await super().release(lease)


def test_a_run_whose_making_was_not_heard_of_is_started_again() -> None:
    """E4: under the same id, by the same process; its tool is called once."""
    world, store = World(), Deaf("create")

    async def main() -> bool:
        async with world.engine(ONE, store=store) as engine:
            with pytest.raises(StoreError):
                await engine.start(ONE, run_id="r")
            return (await engine.wait(await engine.start(ONE, run_id="r"))).success

    assert virtual_run(main) and world.order == ["a"]


def test_a_run_that_was_made_and_got_no_plan_is_started_again() -> None:
    """E1, T7: whoever made it is dead; anybody may start it under its id, and nobody may once it has a plan."""
    world, store = World(a=[Took(100)]), MemoryStore()

    async def main() -> str:
        await store.create(Head("r", owner=None))
        async with world.engine(ONE, store=store) as engine:
            await engine.start(ONE, run_id="r")
            with pytest.raises(Refused) as refused:
                await engine.start(ONE, run_id="r")
            return refused.value.code

    assert virtual_run(main) == "RUN_LIVE"


@pytest.mark.parametrize("name", ["claim", "release"])
def test_a_run_that_is_in_our_name_and_that_nobody_has_can_be_resumed(name: str) -> None:
    """E4, T7: it was given to us, or given back by us, and the word of it was lost."""
    world, store = World(a=[Took(100)]), Deaf()

    async def main() -> bool:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE)
            await asyncio.sleep(1)
            store.names = ["release"] if name == "release" else []
        world.script["a"] = [{"n": 1}]
        async with world.engine(ONE, store=store) as engine:
            if name == "claim":
                store.names = ["claim"]
                with pytest.raises(StoreError):
                    await engine.begin_resume(run)
            head = await store.head(run)
            assert head is not None and head.owner == this_process()
            return (await engine.resume(run)).success

    assert virtual_run(main)


def test_another_engine_of_this_process_keeps_its_run() -> None:
    """T7: a run that somebody in this process has is not lost."""
    world, store = World(a=[Took(100)]), MemoryStore()

    async def main() -> list[str]:
        codes = []
        async with world.engine(ONE, store=store) as one, world.engine(ONE, store=store) as other:
            run = await one.start(ONE)
            for attempt in (lambda: other.resume(run), lambda: other.start(ONE, run_id=run)):
                with pytest.raises(Refused) as refused:
                    await attempt()
                codes.append(refused.value.code)
            return codes

    assert virtual_run(main) == ["RUN_LIVE", "RUN_LIVE"]
