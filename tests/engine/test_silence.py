"""Owners elsewhere: who is watched, who is taken for dead, and who gives up (SPEC T7, E4)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.simulation.chance import Dice
from tests.simulation.shared_store import SharedStore, Way

import rerail
from rerail.engine.runs.owner import EXPIRED_AFTER, LOOK_GAP, MANY, LeaseWatch, is_dead
from rerail.engine.workers import WorkerPool
from rerail.errors import Refused, StoreError
from rerail.i18n import Told
from rerail.kernel.step_state import Phase
from rerail.ports import Head, Owner
from rerail.testing import virtual_run
from rerail.testing.virtual_time import VirtualClock

ONE = {"steps": [{"id": "a", "tool": "slow"}]}
ELSEWHERE = Owner("elsewhere", 1, 1.0)


class Machine:
    """A machine with an engine, a clock of its own and its own way to the store that all share."""

    def __init__(self, store: SharedStore, number: int, seconds: float = 200.0) -> None:
        self.clock = VirtualClock()
        self.clock.polls = True  # its leases are renewed
        self.way = Way(store, number, Dice(0), lambda: None, lambda _: None, self.clock, calm=True)
        self.calls, self.cut_off, self.seconds = 0, 0, seconds
        self.good = False
        tools = [rerail.tool(self.slow, name="slow"), rerail.tool(self.bad, name="bad")]
        self.heard: list[str] = []
        self.engine = rerail.Engine(self.way, tools, clock=self.clock, on_notice=self.hear)

    async def slow(self) -> str:
        """Takes its time."""
        self.calls += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        return "done"

    async def bad(self) -> str:
        """Fails until it is good."""
        if not self.good:
            raise PermissionError("not yet")
        return "done"

    def hear(self, told: Told) -> None:
        """Remember what people are told."""
        self.heard.append(str(told))

    def lose_the_store(self, seconds: float) -> None:
        """The store is out of this machine's reach for so long."""
        self.way.faults.down_until = asyncio.get_running_loop().time() + seconds

    def die(self) -> None:
        """Nothing that it does reaches anybody any more."""
        self.way.faults.dead = True


@contextlib.asynccontextmanager
async def two_machines() -> AsyncIterator[tuple[Machine, Machine]]:
    """Two machines that share a store."""
    store = SharedStore()
    one, other = Machine(store, 1), Machine(store, 2, seconds=1.0)
    async with other.engine:
        await one.engine.open()
        try:
            yield one, other
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await one.engine.close()


def test_whoever_lives_keeps_its_run_when_the_store_was_away_for_everybody() -> None:
    """T7, E4: all leases are old then; an owner renews its own before anybody has watched it for long."""

    async def main() -> None:
        async with two_machines() as (one, other):
            run = await one.engine.start(ONE)
            await asyncio.sleep(10)
            one.lose_the_store(50)
            other.lose_the_store(50)
            await asyncio.sleep(50.01)  # and the other one is quicker to come back
            with pytest.raises(Refused) as refused:
                await other.engine.resume(run)
            assert refused.value.code == "RUN_LIVE"
            assert "seems to be gone" in other.heard[0] and len(other.heard) == 1
            assert (await one.engine.wait(run)).success
            assert (one.calls, other.calls) == (1, 0)

    virtual_run(main)


def test_what_people_want_reaches_an_owner_that_only_seemed_gone() -> None:
    """T7, X7: after an outage each lease is old; whoever is heard of then is asked, and nobody is refused."""

    async def main() -> None:
        async with two_machines() as (one, other):
            plan = {"steps": [*ONE["steps"], {"id": "b", "tool": "slow", "needs": ["a"]}, {"id": "c", "tool": "bad"}]}
            run = await one.engine.start(plan)
            await asyncio.sleep(10)

            async def outage() -> None:
                one.lose_the_store(40)
                other.lose_the_store(40)
                await asyncio.sleep(40.01)
                assert is_dead(await other.engine.internals.head(run), other.clock.now())

            await outage()
            await other.engine.pause(run)
            assert (await one.engine.internals.state(run)).paused
            await outage()
            await other.engine.begin_resume(run)
            assert not (await one.engine.internals.state(run)).paused
            one.good = True
            await outage()
            await other.engine.begin_retry(run, ["c"])
            await other.engine.skip(run, "b")
            result = await one.engine.wait(run)
            assert {name: step.status for name, step in result.steps.items()} == {
                "a": "succeeded", "b": "skipped", "c": "succeeded",
            }  # fmt: skip
            assert (one.calls, other.calls) == (1, 0)

    virtual_run(main)


def test_of_two_who_want_something_of_a_dead_owners_run_both_get_it() -> None:
    """T7, X7: one takes the run, and the other one asks that one."""

    async def main() -> None:
        async with two_machines() as (one, other):
            run = await one.engine.start({"steps": [*ONE["steps"], {"id": "b", "tool": "slow", "needs": ["a"]}]})
            await asyncio.sleep(10)
            one.die()
            await asyncio.sleep(60)
            third = Machine(one.way.store, 3)
            async with third.engine:
                await asyncio.gather(other.engine.pause(run), third.engine.skip(run, "b"))
                state = await other.engine.internals.state(run)
                assert (state.paused, state.tracks["b"].phase) == (True, Phase.SKIPPED)

    virtual_run(main)


def test_what_follows_a_run_is_not_at_work_only_because_its_lease_is_old() -> None:
    """T6, T7: a run is not done again while what follows it is at work elsewhere, also right after an outage."""

    async def main() -> None:
        async with two_machines() as (one, other):
            plan = {"steps": [{"id": "x", "tool": "bad"}], "follow_up": ONE}
            one.good = other.good = True
            run = await one.engine.start(plan)
            await one.engine.wait(run)
            [child] = [row.run_id for row in await other.engine.list() if row.run_id != run]
            await asyncio.sleep(10)
            one.lose_the_store(40)
            other.lose_the_store(40)
            await asyncio.sleep(40.01)
            assert is_dead(await other.engine.internals.head(child), other.clock.now())
            with pytest.raises(Refused) as refused:
                await other.engine.begin_retry(run, ["x"], force=True)
            assert refused.value.code == "RUN_LIVE" and child in str(refused.value)
            assert (await one.engine.wait(child)).success
            assert (one.calls, other.calls) == (1, 0)

    virtual_run(main)


def test_a_run_is_not_held_while_what_it_follows_is_watched() -> None:
    """T6, T7: whoever holds it meanwhile would not renew, and would seem gone as well."""

    async def main() -> None:
        async with two_machines() as (one, other):
            child = {
                "steps": [{"id": "g", "tool": "slow", "confirm": True}, {"id": "h", "tool": "slow", "needs": ["g"]}]
            }
            plan = {"steps": [{"id": "x", "tool": "slow"}], "follow_up": child}
            one.seconds = 1.0
            run = await one.engine.start(plan)
            await one.engine.wait(run)
            [after] = [row.run_id for row in await one.engine.list() if row.run_id != run]
            await one.engine.wait(after)
            one.seconds = 200.0
            await one.engine.begin_retry(run, ["x"], force=True)
            await asyncio.sleep(10)
            one.die()
            await asyncio.sleep(60)
            skipping = asyncio.create_task(other.engine.skip(after, "h"))
            await asyncio.sleep(EXPIRED_AFTER / 2)
            assert "seems to be gone" in other.heard[0], "what it follows is watched"
            assert (await other.engine.internals.head(after)).owner is None
            await skipping
            assert (await other.engine.internals.state(after)).tracks["h"].phase is Phase.SKIPPED

    virtual_run(main)


def test_a_dead_owner_elsewhere_is_watched_and_then_replaced() -> None:
    """T7: by a person's resume, which says that it watches."""

    async def main() -> None:
        async with two_machines() as (one, other):
            run = await one.engine.start(ONE)
            await asyncio.sleep(10)
            one.die()
            await asyncio.sleep(10)
            with pytest.raises(Refused):  # its lease is not old yet
                await other.engine.resume(run)
            await asyncio.sleep(3600)
            begun = asyncio.get_running_loop().time()
            assert (await other.engine.resume(run)).success
            took = asyncio.get_running_loop().time() - begun
            assert EXPIRED_AFTER < took < EXPIRED_AFTER + 5
            assert ["seems to be gone" in other.heard[0], "taken over" in other.heard[1]] == [True, True]

    virtual_run(main)


def test_who_looks_for_runs_all_the_time_takes_the_dead_ones_in_time_and_no_others() -> None:
    """T7: a worker has watched already when a lease is old; after an outage it begins to watch anew."""

    async def main() -> None:
        async with two_machines() as (one, other):
            run = await one.engine.start(ONE)
            for _ in range(3):
                assert await other.engine.internals.unattended() == []
                await asyncio.sleep(5)
            one.lose_the_store(50)
            other.lose_the_store(50)
            await asyncio.sleep(50.01)
            for _ in range(3):
                assert await other.engine.internals.unattended() == []
                await asyncio.sleep(5)
            one.die()
            died, found = asyncio.get_running_loop().time(), []
            while not found:
                await asyncio.sleep(5)
                found = [head.run for head in await other.engine.internals.unattended()]
            assert found == [run] and EXPIRED_AFTER - 2 < asyncio.get_running_loop().time() - died < EXPIRED_AFTER + 10
            begun = asyncio.get_running_loop().time()
            assert await other.engine.internals.take_up(run)
            assert asyncio.get_running_loop().time() - begun < 1, "it has watched for long enough"
            assert (await other.engine.wait(run)).success

    virtual_run(main)


def test_a_run_at_rest_is_taken_from_a_silent_owner_at_once() -> None:
    """T7: nothing is under way that could be lost."""

    async def main() -> None:
        async with two_machines() as (_, other):
            run = await other.engine.start({"steps": [{"id": "a", "tool": "slow", "confirm": True}]})
            await other.engine.wait(run)
            await other.engine.confirm(run, "a", refuse=True)
            await other.engine.wait(run)
            store = other.way.store
            await store.claim(run, ELSEWHERE, 0.0)
            await asyncio.sleep(100)
            begun = asyncio.get_running_loop().time()
            await other.engine.begin_retry(run, force=True)
            assert asyncio.get_running_loop().time() - begun < 1

    virtual_run(main)


def test_who_waits_for_a_run_elsewhere_does_not_give_up_on_it_for_an_outage() -> None:
    """SPEC 12, T7: `wait` ends when the run does, or when nobody drives it any more."""

    async def main() -> None:
        async with two_machines() as (one, other):
            run = await one.engine.start(ONE)
            await asyncio.sleep(1)
            one.lose_the_store(50)
            other.lose_the_store(50)
            await asyncio.sleep(50.01)
            assert (await other.engine.wait(run)).success
            assert (one.calls, other.calls) == (1, 0)
            again = await one.engine.start(ONE)
            await asyncio.sleep(1)
            one.die()
            assert (await other.engine.wait(again)).status == "running", "and its owner is gone"

    virtual_run(main)


def test_who_cannot_renew_for_long_gives_up() -> None:
    """E4, T7: somebody else may have the run by then, so what it does must end; a shorter time does no harm."""

    async def main() -> None:
        async with two_machines() as (one, other):
            one.seconds = 1000.0
            run = await one.engine.start(ONE)
            await asyncio.sleep(5)
            one.lose_the_store(55)  # 30 s and store.reconnect_seconds are 60
            await asyncio.sleep(60)
            assert one.cut_off == 0
            one.lose_the_store(65)
            with pytest.raises(StoreError, match="could not renew its lease"):
                await one.engine.wait(run)
            assert (one.calls, one.cut_off) == (1, 1)
            await asyncio.sleep(10)  # the store is back, and the lease given back
            assert [head.run for head in await other.engine.internals.unattended()] == [run]
            assert (await other.engine.resume(run)).success
            assert other.calls == 1

    virtual_run(main)


def test_a_watch_ends_with_a_renewal_a_new_owner_or_a_gap() -> None:
    """T7: each begins it anew, and no clock that jumps can end it early."""
    old = Head("r", status="running", owner=ELSEWHERE, fence=1, renewed_at=0.0)

    async def main() -> None:
        watch = LeaseWatch()

        async def dead_after(seconds: float, head: Head, now: float = 10_000.0, step: float = 5.0) -> bool:
            for _ in range(int(seconds / step)):
                watch.is_dead(head, now)
                await asyncio.sleep(step)
            return watch.is_dead(head, now)

        assert not await dead_after(30, old)
        assert await dead_after(5, old)
        assert not watch.is_dead(replace(old, fence=2), 10_000.0)
        assert not await dead_after(25, replace(old, fence=2))
        assert await dead_after(10, replace(old, fence=2))
        assert not await dead_after(30, replace(old, fence=2, renewed_at=9_990.0)), "renewed under our eyes"
        assert not await dead_after(30, replace(old, renewed_at=20_000.0)), "a clock went back"
        forward = replace(old, renewed_at=-(10.0**6))
        assert not await dead_after(25, forward) and await dead_after(10, forward), "what was seen counts"
        await asyncio.sleep(LOOK_GAP + 1)
        assert not watch.is_dead(old, 10_000.0), "nobody knows what was meanwhile"
        assert not await dead_after(30, old, step=LOOK_GAP + 1)

    virtual_run(main)


def test_a_watch_remembers_only_what_is_looked_at() -> None:
    """E7: leases come and go for as long as a worker lives."""

    async def main() -> int:
        watch = LeaseWatch()
        for number in range(5 * MANY):
            watch.is_dead(Head(f"r{number}", owner=ELSEWHERE, fence=1), 0.0)
            await asyncio.sleep(LOOK_GAP / MANY * 4)
        return len(watch._seen)

    assert virtual_run(main) <= MANY


def test_many_leases_are_looked_at_in_no_time() -> None:
    """E7: a worker looks at all of them every few seconds, and its own runs wait meanwhile."""

    async def main() -> float:
        watch, heads = LeaseWatch(), [Head(f"r{number}", owner=ELSEWHERE, fence=1) for number in range(20 * MANY)]
        begun = time.process_time()
        for head in heads:
            watch.is_dead(head, 0.0)
        return time.process_time() - begun

    assert virtual_run(main) < 1.0


def test_a_worker_that_is_never_idle_takes_a_dead_owners_run_in_its_turn() -> None:
    """T7: it goes on watching while it has no room; else such a run would wait until there is nothing else to do."""

    async def main() -> None:
        async with two_machines() as (one, other):
            other.seconds = 15.0
            run = await one.engine.start(ONE)
            await asyncio.sleep(1)
            one.die()
            await asyncio.sleep(60)
            later = [await other.engine.start(ONE, queued=True) for _ in range(20)]
            crew = WorkerPool(other.engine.internals, 1, lambda _: None)
            working = asyncio.create_task(crew.work(until_idle=True))
            await asyncio.sleep(200)
            assert (await other.engine.show(run)).success
            assert not all([(await other.engine.show(one)).success for one in later]), (
                "there was always something to do"
            )
            await working

    virtual_run(main)
