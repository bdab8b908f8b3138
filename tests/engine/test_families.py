"""Runs that follow runs that follow runs: all of them share one folder (T6, T7)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.runs.owner import process_start
from rerail.errors import Refused
from rerail.kernel.commands import Confirm
from rerail.kernel.events import FileMade
from rerail.ports import Batch, Owner, Unusable
from rerail.testing import VirtualClock, virtual_run

QUICK: dict[str, Any] = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}


class World:
    """Tools that say who was called, and who was at work with whom."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, Counter[str]()
        self.broken: set[str] = set()
        self.busy: set[str] = set()
        self.together: list[set[str]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.store = MemoryStore()  # whose answers take no time of the virtual clock

    def tools(self) -> list[Any]:
        @rerail.tool
        async def make(ctx: rerail.Context) -> str:
            self.calls[ctx.step] += 1
            self.busy.add(ctx.step)
            self.together.append(set(self.busy))
            try:
                await asyncio.sleep(0.05)
                if ctx.step in self.held:
                    await self.held[ctx.step].wait()
            finally:
                self.busy.discard(ctx.step)
            if ctx.step in self.broken:
                raise rerail.ToolError("down", category="tool_error")
            ctx.write_text(f"{ctx.step}.json", "{}")
            return "made"

        @rerail.tool(effect="once")
        async def send(ctx: rerail.Context) -> str:
            self.calls[ctx.step] += 1
            return "sent"

        return [make, send]

    def engine(self, but: str = "") -> rerail.Engine:
        tools = [tool for tool in self.tools() if tool.name != but]
        return rerail.Engine(self.store, tools, QUICK, clock=VirtualClock(), workspace=self.folder / "work")

    def real(self) -> rerail.Engine:
        """One of those that meet at a file, in real time."""
        return rerail.Engine(f"sqlite:///{self.folder}/runs.db", self.tools(), QUICK)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def making(step: str, stage: str) -> dict[str, Any]:
    return {"id": step, "tool": "make", "produces": [f"{step}.json"], "stage": stage}


LAST = {"steps": [making("c", "three"), {"id": "mail", "tool": "send", "needs": ["c"], "stage": "four"}]}
PLAN = {"steps": [making("a", "one")], "follow_up": {"steps": [making("b", "two")], "follow_up": LAST}}


async def line(engine: rerail.Engine, run: str) -> list[str]:
    """A run and all that follows it, once all of them are at rest."""
    found = [run]
    await engine.wait(run)
    while children := await engine.list(parent=found[-1], limit=1):
        found.append(children[0].run_id)
        await engine.wait(found[-1])
    return found


async def refused(asked: Any) -> Refused:
    with pytest.raises(Refused) as found:
        await asked
    return found.value


# -- All generations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [0, 1])
def test_nothing_is_done_again_while_any_that_follows_is_at_work(world: World, generation: int) -> None:
    """T6, T7: neither the parent nor the grandparent of a run that is at work."""

    async def main() -> None:
        world.held = {"c": asyncio.Event()}
        async with world.engine() as engine:
            first = await engine.start(PLAN)
            await engine.wait(first)
            [second] = await engine.list(parent=first)
            await engine.wait(second.run_id)
            [third] = await engine.list(parent=second.run_id)
            run, step = [(first, "a"), (second.run_id, "b")][generation]
            for options in ({"steps": [step]}, {"steps": [step], "clean": True}):
                error = await refused(engine.retry(run, force=True, **options))
                assert error.code == "RUN_LIVE"
                assert third.run_id in str(error)
            world.held["c"].set()
            assert (await engine.wait(third.run_id)).success

    virtual_run(main)
    assert world.calls == {"a": 1, "b": 1, "c": 1, "mail": 1}


@pytest.mark.parametrize("spoilt", ["", "b.json", "a.json"])
def test_what_follows_a_superseded_run_is_superseded(world: World, spoilt: str) -> None:
    """T4, T6: it is refused, and not offered; nor is what it follows mended for it. The hint names what to retry."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            first, second, third = await line(engine, await engine.start(PLAN))
            await engine.retry(first, ["a"], force=True)
            _, newer, newest = await line(engine, first)
            assert len({second, third, newer, newest}) == 4
            if spoilt:
                (world.folder / "work" / first / spoilt).write_text("{")
            calls = Counter(world.calls)
            for old in (second, third):
                for asked in (engine.retry(old), engine.retry(old, force=True, clean=True), engine.resume(old)):
                    error = await refused(asked)
                    assert (error.code, error.hint) == ("RUN_SUPERSEDED", f"use: rerail retry {first}")
                assert await engine.internals.is_superseded(old) == newer
                assert not await engine.internals.take_up(old)
            assert [row.run_id for row in await engine.internals.to_retry()] == [newest]
            assert world.calls == calls
            assert await engine.internals.is_superseded(newest) == ""

    virtual_run(main)


def test_all_that_must_not_happen_twice_is_told_of(world: World) -> None:
    """R7, T6: what follows starts anew, and what follows that too, and would do it again."""

    async def main() -> None:
        async with world.engine() as engine:
            first, second, third = await line(engine, await engine.start(PLAN))
            for run, step in ((first, "a"), (second, "b")):
                preview = await engine.retry(run, [step], force=True, dry_run=True)
                assert preview.once == (f"mail ({third})",)

    virtual_run(main)


def test_a_retry_reaches_the_first_that_needs_it(world: World) -> None:
    """T6: from the beginning of the line, whatever lies between; stages are found there too."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            first, second, third = await line(engine, await engine.start(PLAN))
            for run in (first, second, third):
                target, preview = await engine.begin_retry(run, dry_run=True)
                assert (target, preview.roots if preview else None) == (third, ("c",))
            world.broken = set()
            result = await engine.retry(first)
            assert (result.run_id, result.success) == (third, True)
            for stage, owner in (("one", first), ("two", second), ("three", third)):
                assert (await engine.begin_retry(first, stage=stage, force=True, dry_run=True))[0] == owner
            assert (await refused(engine.retry(first))).code == "RUN_COMPLETED"

    virtual_run(main)
    assert world.calls == {"a": 1, "b": 1, "c": 2, "mail": 1}


def test_a_grandchild_that_was_never_started_is_started(world: World) -> None:
    """T6: who was to start it had not its tools; a retry of the first run does it, of a superseded one does not."""

    async def main() -> None:
        async with world.engine() as engine:
            first, second, third = await line(engine, await engine.start(PLAN))
        async with world.engine(but="send") as engine:
            await engine.retry(second, ["b"], force=True)
            assert (await line(engine, first))[2] == third
        async with world.engine() as engine:
            newer = await engine.retry(first)
            assert (newer.parent, newer.success) == (second, True)
            assert newer.run_id != third
        async with world.engine(but="send") as engine:
            await engine.retry(second, ["b"], force=True)
        async with world.engine() as engine:
            await engine.retry(first, ["a"], force=True)
            await line(engine, first)
            calls = Counter(world.calls)
            assert (await refused(engine.retry(second))).code == "RUN_SUPERSEDED"
            assert world.calls == calls

    virtual_run(main)


def test_what_a_spoilt_line_needs_is_made_from_its_beginning(world: World) -> None:
    """T3, T6: what a run follows is spoilt, and what that follows: the first is mended, the others come anew."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            first, _, third = await line(engine, await engine.start(PLAN))
            for name in ("a.json", "b.json"):
                (world.folder / "work" / first / name).write_text("{")
            world.broken = set()
            target, preview = await engine.begin_retry(third)
            assert target == first
            assert preview is not None and preview.mending
            assert [(await engine.show(run)).success for run in await line(engine, first)] == [True] * 3

    virtual_run(main)
    assert world.calls == {"a": 2, "b": 2, "c": 2, "mail": 1}


def test_drafts_of_all_generations_are_kept(world: World) -> None:
    """T2, T6: what somebody wants a grandchild to read is no leftover."""

    async def main() -> None:
        async with world.engine() as engine:
            first, _, third = await line(engine, await engine.start(PLAN))
            wish = Confirm(by="me", step="c", files=(FileMade("x", "", "c", ".rerail/edit/y/x"),))
            await engine._parts.store.post(third, msgspec.json.encode(wish))
            assert ".rerail/edit/y/x" in await engine._lineage.drafts_of(first)

    virtual_run(main)


# -- At the same instant ------------------------------------------------------------------------------------------


def wanted(engine: rerail.Engine, runs: list[str], generation: int) -> Any:
    """A retry of this generation, and of no other."""
    if generation == 2:
        return engine.begin_retry(runs[2])
    return engine.begin_retry(runs[generation], ["ab"[generation]], force=True)


@pytest.mark.parametrize(("taken", "asked"), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
def test_who_took_one_of_a_family_keeps_the_others_out(world: World, taken: int, asked: int) -> None:
    """T6, T7: it has written nothing yet, so only its lease tells; the other gives its own back, and calls nothing."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as one, world.engine() as other:
            runs = await line(one, await one.start(PLAN))
            calls, before = Counter(world.calls), await one.events(runs[asked])
            loop = await one._leases.acquire(runs[taken])
            error = await refused(wanted(other, runs, asked))
            assert error.code == "RUN_LIVE"
            assert runs[taken] in str(error)
            assert (await other.internals.head(runs[asked])).owner is None
            assert await one.events(runs[asked]) == before
            assert world.calls == calls

            async def lets_go() -> None:
                await asyncio.sleep(0.4)
                await one._leases.release(loop.lease)

            _, (target, _) = await asyncio.gather(lets_go(), wanted(other, runs, asked))  # it is waited for a moment
            assert target == runs[asked]
            await line(other, target)

    virtual_run(main)
    assert all(len(busy) == 1 for busy in world.together)


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("swapped", [False, True])
def test_two_of_a_family_at_the_same_instant(world: World, pair: tuple[int, int], swapped: bool) -> None:
    """T6, T7: at least one is refused, each time, and never are two at work in the folder."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.real() as one, world.real() as other:
            runs = await line(one, await one.start(PLAN))
            asked = [wanted(one, runs, pair[0]), wanted(other, runs, pair[1])]
            said = await asyncio.gather(*(reversed(asked) if swapped else asked), return_exceptions=True)
            errors = [error for error in said if isinstance(error, BaseException)]
            assert errors
            assert {getattr(error, "code", error) for error in errors} <= {"RUN_LIVE", "RUN_SUPERSEDED"}
            for engine in (one, other):
                while under_way := engine.internals.under_way():
                    await asyncio.wait(under_way.values())

    asyncio.run(main())
    assert all(len(busy) == 1 for busy in world.together)


@pytest.mark.parametrize("action", ["confirm", "skip"])
def test_people_do_not_set_one_going_beside_another(world: World, action: str) -> None:
    """T6, T7, X7: what waits for a person waits on while the run that it follows is taken; it may be cancelled."""
    plan = {"steps": [making("a", "one")], "follow_up": {"steps": [{**making("b", "two"), "confirm": True}]}}

    async def main() -> None:
        async with world.engine() as one, world.engine() as other:
            first, second = await line(one, await one.start(plan))
            loop = await one._leases.acquire(first)
            error = await refused(other.confirm(second) if action == "confirm" else other.skip(second, "b"))
            assert error.code == "RUN_LIVE"
            assert (await other.internals.head(second)).owner is None
            await other.cancel(second)
            assert (await other.wait(second)).status == "cancelled"
            await one._leases.release(loop.lease)

    virtual_run(main)
    assert world.calls == {"a": 1}


def test_what_follows_is_not_begun_beside_who_was_faster(world: World) -> None:
    """T6, T7: a run completed, and is taken again before what follows it was started."""

    async def main() -> None:
        async with world.engine(but="send") as one, world.engine() as other:
            _, second, old = await line(other, await other.start(PLAN))
            await one.retry(second, ["b"], force=True)
            loop = await one._leases.acquire(second)
            assert (await refused(other._starter.follow(await other.internals.state(second)))).code == "RUN_LIVE"
            third = (await other.list(parent=second))[0]
            assert third.run_id != old
            assert (await other.internals.head(third.run_id)).owner is None
            assert not await other.internals.take_up(third.run_id)
            await one._leases.release(loop.lease)
            assert await other.internals.take_up(third.run_id)
            assert (await other.wait(third.run_id)).success

    virtual_run(main)
    assert world.calls == {"a": 1, "b": 2, "c": 2, "mail": 2}


def test_a_parent_that_completed_again_outran_what_followed_it(world: World) -> None:
    """T6: also before the newer follow-up is there."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            _, second, third = await line(engine, await engine.start(PLAN))
        async with world.engine(but="send") as engine:
            assert (await engine.retry(second, ["b"], force=True)).success
        async with world.engine() as engine:
            assert [row.run_id for row in await engine.list(parent=second)] == [third]
            error = await refused(engine.retry(third))
            assert (error.code, error.hint) == ("RUN_SUPERSEDED", f"use: rerail retry {second}")
            assert (await engine.internals.head(third)).owner is None
            world.broken = set()
            assert (await engine.retry(second)).run_id != third

    virtual_run(main)


def test_who_failed_to_give_a_run_back_stops_no_other_for_ever(world: World) -> None:
    """T7: a run at rest in the name of one that has been silent for long; that one can write nothing any more."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            first, _, third = await line(engine, await engine.start(PLAN))
            living = os.getppid()
            silent = Owner(socket.gethostname(), living, process_start(living) or 0.0)
            store, now = engine._parts.store, engine._parts.clock.now()
            lease = await store.claim(first, silent, now)
            error = await refused(engine.retry(third))
            assert (error.code, (await engine.internals.head(third)).owner) == ("RUN_LIVE", None)
            await store.renew(lease, now - 100)
            world.broken = set()
            assert (await engine.retry(third)).success
            head = await engine.internals.head(first)
            assert head.owner is None
            assert head.fence > lease.fence

    virtual_run(main)


class CutOff(MemoryStore):
    """A store that a process reaches to make what follows a run, and not to give it its plan."""

    async def append(self, batch: Batch) -> None:
        """As ever, but for the first event of what follows."""
        if not batch.after and "-f" in batch.run and self.cut:
            raise Unusable("gone")
        await super().append(batch)

    cut = True


@pytest.mark.parametrize("named", ["parent", "follow-up"])
def test_what_follows_and_got_no_plan_is_started_by_a_retry(named: str) -> None:
    """T6, E4: whoever was to start it died between making it and giving it its plan; either of the two may be named."""
    store = CutOff()

    @rerail.tool
    async def act() -> str:
        return "done"

    plan = {"steps": [{"id": "a", "tool": "act"}], "follow_up": {"steps": [{"id": "b", "tool": "act"}]}}

    async def whole() -> None:
        async with rerail.Engine(store, [act], QUICK, clock=VirtualClock()) as engine:
            run = await engine.start(plan)
            with pytest.raises(rerail.StoreError):
                await engine.wait(run)
        store.cut = False
        async with rerail.Engine(store, [act], QUICK, clock=VirtualClock()) as engine:
            [head] = await engine.internals.heads(parent=run)
            assert head.seq == 0
            result = await engine.retry(run if named == "parent" else head.run)
            assert (result.run_id, result.status) == (head.run, "completed")
            assert (await engine.show(run)).status == "completed"

    virtual_run(whole)
