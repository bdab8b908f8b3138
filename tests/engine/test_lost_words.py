"""Words that get lost between an engine and its store: a run is never left in the name of somebody who has it not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.runs.owner import RENEW_EVERY, this_process
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
                await engine.start(ONE, run_id="heard-of")
            return (await engine.wait(await engine.start(ONE, run_id="heard-of"))).success

    assert virtual_run(main) and world.order == ["a"]


def test_a_run_that_was_made_and_got_no_plan_is_started_again() -> None:
    """E1, T7: whoever made it is dead; anybody may start it under its id, and nobody may once it has a plan."""
    world, store = World(a=[Took(100)]), MemoryStore()

    async def main() -> str:
        await store.create(Head("heard-of", owner=None))
        async with world.engine(ONE, store=store) as engine:
            await engine.start(ONE, run_id="heard-of")
            with pytest.raises(Refused) as refused:
                await engine.start(ONE, run_id="heard-of")
            return refused.value.code

    assert virtual_run(main) == "RUN_EXISTS"


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

    assert virtual_run(main) == ["RUN_LIVE", "RUN_EXISTS"]


def test_a_cancelled_resume_leaves_the_run_to_the_next() -> None:
    """T7: whoever stops waiting for a resume has not taken the run with it."""
    world = World(a=[Took(100), {"n": 1}])

    class Slow(MemoryStore):
        """A store that takes its time to write, once somebody wants it to."""

        slow = False

        async def append(self, batch: Any) -> None:
            """Write, slowly."""
            if self.slow:
                await asyncio.sleep(60)
            await super().append(batch)

    store = Slow()

    async def main() -> bool:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE)
            await asyncio.sleep(1)
        async with world.engine(ONE, store=store) as engine:
            store.slow = True
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await engine.begin_resume(run)
            store.slow = False
            head = await store.head(run)
            assert head is not None and head.owner is None
            return (await engine.resume(run)).success

    assert virtual_run(main)


async def test_a_slow_inbox_keeps_no_lease_from_being_renewed() -> None:
    """T7: who is silent is taken for dead, so that one's word must not wait for anything else."""

    class Slow(MemoryStore):
        """A store that takes long to say what people want."""

        renewed = 0

        async def inbox(self, run: str) -> list[tuple[int, bytes]]:
            """Nothing, after a while."""
            await asyncio.sleep(60)
            return []

        async def renew(self, lease: Lease, now: float) -> None:
            """As ever."""
            self.renewed += 1
            await super().renew(lease, now)

    store = Slow()

    async def waits() -> None:
        await asyncio.sleep(60)

    async with rerail.Engine(store, [rerail.tool(waits)]) as engine:
        for _ in range(3):
            await engine.start({"steps": [{"id": "a", "tool": "waits"}]})
        await asyncio.sleep(2.4 * RENEW_EVERY)
        assert store.renewed == 2 * 3


async def test_a_lease_that_could_not_be_given_back_is_given_back_later() -> None:
    """E4, T7: else the run would be in the name of a living process that does nothing about it."""
    store = Deaf()

    async def done() -> int:
        return 1

    async with rerail.Engine(store, [rerail.tool(done)]) as engine:
        store.names = ["release"]
        run = (await engine.run({"steps": [{"id": "a", "tool": "done"}]})).run_id
        head = await store.head(run)
        assert head is not None and head.owner is not None
        async with asyncio.timeout(5 * RENEW_EVERY):
            while (head := await store.head(run)) is None or head.owner is not None:  # noqa: ASYNC110 - in a store
                await asyncio.sleep(0.05)


def test_a_worker_takes_up_a_run_that_it_could_not_give_back() -> None:
    """E4, T7: what is in its own name, and what it does not drive, nobody else will take."""
    world, store = World(a=[Took(100)]), Deaf()

    async def main() -> tuple[bool, bool]:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE)
            await asyncio.sleep(1)
            store.names = ["release"]
        async with world.engine(ONE, store=store) as engine:
            return [head.run for head in await engine.internals.unattended()] == [run], await engine.internals.take_up(
                run
            )

    assert virtual_run(main) == (True, True)


# -- A run that nobody drives is said to be so --------------------------------------------------------------------


def test_an_answer_where_the_tools_are_missing_is_kept_and_that_is_said() -> None:
    """X7, T7: the approval is recorded, the run is interrupted, and both are said; an engine with the tools goes on."""
    world, store, heard = World(a=[{"n": 1}]), MemoryStore(), list[str]()
    gated = {"steps": [{"id": "a", "tool": "a", "confirm": True}]}

    async def main() -> None:
        async with world.engine(gated, store=store) as one:
            run = (await one.run(gated)).run_id
        async with rerail.Engine(store, on_notice=heard.append) as bare:
            digest = (await bare.show(run)).waiting_on[0]["digest"]
            await bare.confirm(run, "a", digest=digest)
            found = await bare.wait(run)
            assert (found.status, found.interrupted, found.to_dict()["interrupted"]) == ("running", True, True)
            assert (await bare.show(run)).interrupted and (await bare.list(status="running"))[0].interrupted
        assert len(heard) == 1 and "tools missing here: a" in heard[0] and f"rerail resume {run}" in heard[0]
        async with world.engine(gated, store=store) as one:
            done = await one.resume(run)
            assert (done.status, done.interrupted) == ("completed", False)

    virtual_run(main)
    assert world.calls_of("a") == 1


def test_a_wait_for_an_interrupted_run_says_so() -> None:
    """T7: `running` alone would sound as if there were something to wait for."""
    world, store = World(a=[Took(100), {"n": 1}]), MemoryStore()

    async def main() -> None:
        async with world.engine(ONE, store=store) as one:
            run = await one.start(ONE)
            await asyncio.sleep(1)
            assert not (await one.show(run)).interrupted
        async with world.engine(ONE, store=store) as other:
            assert (await other.wait(run)).interrupted
            assert not (await other.resume(run)).interrupted

    virtual_run(main)


def test_an_id_that_is_taken_is_said_to_be_taken() -> None:
    """T5: by a run that completed, too: no process drives that one."""
    world = World()

    async def main() -> Refused:
        async with world.engine(ONE, store=MemoryStore()) as engine:
            await engine.wait(await engine.start(ONE, run_id="order-42"))
            with pytest.raises(Refused) as refused:
                await engine.start(ONE, run_id="order-42")
            return refused.value

    told = virtual_run(main)
    assert (told.code, told.message) == ("RUN_EXISTS", "there is a run 'order-42' already; it is completed")
    assert "another id" in told.hint


def test_runs_are_listed_by_one_status_or_several() -> None:
    """T5: a text is one status, not eight letters."""
    world = World(a=[{"n": 1}, rerail.NotDone(ValueError("no"))])

    async def main() -> None:
        async with world.engine(ONE, store=MemoryStore(), settings={"retry": {"max_retries": 0}}) as engine:
            good, bad = [(await engine.run(ONE)).run_id for _ in range(2)]
            assert [row.run_id for row in await engine.list(status="completed")] == [good]
            assert [row.run_id for row in await engine.list(status=["failed", "cancelled"])] == [bad]
            with pytest.raises(Refused, match="failing: no status of a run; these are: pending, running, waiting, "):
                await engine.list(status=["failed", "failing"])

    virtual_run(main)
