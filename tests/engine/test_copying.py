"""Runs move from store to store whole, or it is said which did not (I5, I6, E6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.sqlite import SqliteStore
from rerail.core import events as ev
from rerail.core.codec import encode
from rerail.core.values import digest
from rerail.engine.copying import HEAVY, Copied, copy_runs
from rerail.engine.owner import copier, is_arriving, is_dead
from rerail.errors import Refused
from rerail.ports import Batch, Head, Lease, Owner, Row, Store, Unavailable, Unusable
from rerail.testing.scripted import Took, World
from rerail.testing.virtual import virtual_run

BIG = b'"' + b"x" * 5000 + b'"'
SOMEBODY = Owner("elsewhere", 7, 1.0)


async def copied(source: Store, target: Store, *runs: str, dead: bool = True, move: bool = False) -> dict[str, Copied]:
    """What became of each run."""
    rows = copy_runs(source, target, list(runs), lambda head: dead, move=move, by="ann", patience=0.0)
    return {row.run: row async for row in rows}


async def history(store: Store, run: str, events: int, blob: bytes | None = None) -> Lease:
    """A run of so many events, the last of which names a content."""
    await store.create(Head(run, objective=f"about {run}", created_at=float(events)))
    lease = await store.claim(run, SOMEBODY, 1.0)
    rows = [(float(n), encode(ev.StepProgress("s", 1, message=str(n)))) for n in range(events)]
    blobs = {}
    if blob is not None:
        rows.append((99.0, encode(ev.StepSucceeded("s", 1, None, digest(blob), len(blob), True))))
        blobs = {digest(blob): blob}
    await store.append(Batch(run, 0, rows, lease.fence, blobs, "failed"))
    return lease


@pytest.fixture
async def source() -> Store:
    """Two runs, one with a large content and an action that nobody has answered."""
    store = MemoryStore()
    await history(store, "one", 1200)
    await store.release(await history(store, "two", 3, BIG))
    await store.post("two", b"pause")
    return store


async def test_everything_arrives(source: Store, tmp_path: Path) -> None:
    """Rows, contents, status, objective, parent and time of making, and open actions; the fence is kept."""
    target = SqliteStore(tmp_path / "there.db")
    await target.open()
    found = await copied(source, target)
    assert {run: row.outcome for run, row in found.items()} == {"one": "copied", "two": "copied"}
    assert (found["two"].events, found["two"].contents) == (4, 1)
    for run in ("one", "two"):
        ours, theirs = await source.head(run), await target.head(run)
        assert ours is not None
        assert theirs is not None
        assert theirs.owner is None
        for name in ("seq", "status", "objective", "parent", "created_at", "updated_at", "fence"):
            assert getattr(theirs, name) == getattr(ours, name), name
        assert await target.read(run, 0, 5000) == await source.read(run, 0, 5000)
    assert await target.blob(digest(BIG)) == BIG
    assert [data for _, data in await target.inbox("two")] == [b"pause"]
    assert {row.outcome for row in (await copied(source, target)).values()} == {"same"}
    await target.close()


async def test_a_copy_that_was_cut_off_goes_on(source: Store) -> None:
    """A target that has the beginning of a history gets the rest."""
    target = MemoryStore()
    await target.create(Head("one", fence=1))
    rows = [(row.at, row.data) for row in await source.read("one", 0, 700)]
    await target.append(Batch("one", 0, rows, 1))
    found = await copied(source, target, "one")
    assert found["one"].outcome == "copied"
    assert await target.read("one", 0, 5000) == await source.read("one", 0, 5000)


def test_nobody_takes_up_half_of_a_run() -> None:
    """T7: until it is whole a run is the copy's, although that one died on the way; typed again, it goes on."""
    long: dict[str, Any] = {"steps": [{"id": f"s{n}", "tool": "a"} for n in range(300)]}
    world, source, target = World(a=["made"] * 300), MemoryStore(), Dying(after=2)

    async def main() -> None:
        async with world.engine(long, store=source) as engine:
            run = (await engine.run(long)).run_id
        with pytest.raises(Unavailable, match="cut off"):
            await copied(source, target)
        target.dead = False
        half = await target.head(run)
        assert half is not None and 0 < half.seq < len(await source.read(run, 0, 5000))
        assert is_arriving(half) and not is_dead(half, time.time() + 10**6), "not even when it is silent for days"
        async with world.engine(long, store=target) as engine:
            assert await engine.unattended() == []
            assert not await engine.take_up(run)
            for act in (engine.retry, engine.resume, engine.cancel):
                with pytest.raises(Refused, match="has not arrived whole") as refused:
                    await act(run)
                assert "store copy" in str(refused.value.hint)
        assert (await copied(source, target))[run].outcome == "copied"
        assert [head.owner for head in await target.heads()] == [None]
        assert await target.read(run, 0, 5000) == await source.read(run, 0, 5000)
        assert len(world.calls) == 300

    virtual_run(main)


async def test_what_somebody_took_meanwhile_is_not_copied() -> None:
    """T7: heads are looked at when their turn comes, whatever their status was."""
    source, target = MemoryStore(), MemoryStore()
    await source.release(await history(source, "first", 1))
    await source.release(await history(source, "second", 2))
    rows = {}
    async for row in copy_runs(source, target, [], lambda head: False):
        rows[row.run] = row.outcome
        if row.run == "first":
            await source.claim("second", SOMEBODY, 1.0)
    assert rows == {"first": "copied", "second": "driven"}


async def test_another_history_is_left_alone(source: Store) -> None:
    """A run of the same id that went otherwise is neither changed nor called copied."""
    target = MemoryStore()
    await history(target, "one", 5)
    before = await target.read("one")
    await target.append(Batch("one", 5, [(1.0, b"{}")], 1))
    found = await copied(source, target)
    assert (found["one"].outcome, found["one"].ok) == ("differs", False)
    assert (await target.read("one"))[:5] == before
    assert found["two"].outcome == "copied"


async def test_a_run_that_somebody_drives_is_left_out() -> None:
    """Its history would be cut off in the middle of a call; a dead owner does not count."""
    source, target = MemoryStore(), MemoryStore()
    await history(source, "live", 2)
    found = await copied(source, target, dead=False)
    assert (found["live"].outcome, found["live"].ok) == ("driven", False)
    assert "elsewhere:7" in found["live"].reason
    assert await target.heads() == []
    assert (await copied(source, target))["live"].outcome == "copied"


# -- Runs that are not at rest ------------------------------------------------------------------------------------

GATED: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"], "confirm": True}]}
CUT: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"], "effect": "once"}]}


class Dying(MemoryStore):
    """A store that is out of reach after so many appends, or when a run is given back, until it is mended."""

    def __init__(self, after: int = 10**9, *, releasing: bool = False) -> None:
        super().__init__()
        self._left, self._releasing = after, releasing
        self.dead = False

    async def open(self) -> None:
        """Connect, if it is there."""
        if self.dead:
            raise Unavailable("still gone")

    async def append(self, batch: Batch) -> None:
        """Write so often."""
        self._left -= 1
        if self._left == 0:
            self.dead = True
            raise Unavailable("cut off")
        await super().append(batch)

    async def release(self, lease: Lease) -> None:
        """Fail once."""
        if self._releasing:
            self._releasing = False
            self.dead = True
            raise Unavailable("cut off")
        await super().release(lease)


class Named(MemoryStore):
    """A store with an address of its own."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    @property
    def url(self) -> str:
        """Its address."""
        return self._url


async def waiting_run(store: Store, world: World) -> str:
    """A run that waits for a confirmation."""
    async with world.engine(GATED, store=store) as engine:
        run = await engine.start(GATED)
        assert (await engine.wait(run)).status == "waiting"
    return run


def test_a_run_that_is_not_at_rest_stays_unless_it_is_moved() -> None:
    """T7: it would go on in both stores; moved, it goes on in the target, and is over where it was, for good."""
    world, source, target = World(a=["made"], b=["done"]), MemoryStore(), MemoryStore()

    async def main() -> None:
        run = await waiting_run(source, world)
        [left] = (await copied(source, target)).values()
        assert (left.outcome, left.ok) == ("open", False)
        assert "--move" in left.reason
        assert await target.heads() == []
        [moved] = (await copied(source, target, move=True)).values()
        assert (moved.outcome, moved.ok) == ("moved", True)
        async with world.engine(GATED, store=source) as engine:
            here = await engine.show(run)
            assert (here.status, here.steps["b"].status) == ("cancelled", "cancelled")
            events = await engine.events(run)
            assert events[-1].type == "done"
            [ended] = [event for event in events if event.type == "cancelled"]
            assert (ended.to, ended.by, ended.after) == (target.url, "ann", moved.events)
            for act in (engine.retry, partial(engine.retry, clean=True), partial(engine.retry, dry_run=True)):
                with pytest.raises(Refused, match="was moved to") as refused:
                    await act(run)
                assert refused.value.code == "RUN_MOVED"
            with pytest.raises(Refused):
                await engine.confirm(run, "b")
            assert await engine.unattended() == []
        async with world.engine(GATED, store=target) as engine:
            assert (await engine.show(run)).status == "waiting"
            await engine.confirm(run, "b")
            assert (await engine.wait(run)).status == "completed"
        assert [row.outcome for row in (await copied(source, target, move=True)).values()] == ["same"]
        assert [call.tool for call in world.calls] == ["a", "b"]

    virtual_run(main)


def test_a_call_that_was_cut_off_moves_as_a_lost_answer() -> None:
    """E3: what its dead owner called is in doubt in the target; the source ends without asking anybody."""
    world, source, target = World(a=["made"], b=[Took(10**6)]), MemoryStore(), MemoryStore()

    async def main() -> None:
        async with world.engine(CUT, store=source) as engine:
            run = await engine.start(CUT)
            await asyncio.sleep(1)
        assert [row.outcome for row in (await copied(source, target)).values()] == ["open"]
        assert [row.outcome for row in (await copied(source, target, move=True)).values()] == ["moved"]
        async with world.engine(CUT, store=source) as engine:
            assert (await engine.show(run)).status == "cancelled"
        async with world.engine(CUT, store=target) as engine:
            assert [head.run for head in await engine.unattended()] == [run]
            assert await engine.take_up(run)
            result = await engine.wait(run)
            assert (result.status, result.steps["b"].status) == ("waiting", "in_doubt")

    virtual_run(main)


@pytest.mark.parametrize("target", [Dying(after=1), Dying(releasing=True)], ids=["before", "after"])
def test_a_move_that_dies_leaves_the_run_in_one_store(target: Dying) -> None:
    """T7: cut off before the source lets go it goes on there; after that nowhere, until the move is typed again."""
    world, source = World(a=["made"], b=["done"]), MemoryStore()

    async def main() -> None:
        run = await waiting_run(source, world)
        with pytest.raises(Unavailable, match="cut off"):
            await copied(source, target, move=True)
        target.dead = False
        there, here = await target.head(run), await source.head(run)
        assert there is not None and here is not None
        assert is_arriving(there) and here.owner is None
        assert here.status == ("cancelled" if there.seq else "waiting")
        async with world.engine(GATED, store=target) as engine:
            with pytest.raises(Refused, match="has not arrived whole"):
                await engine.cancel(run)
        [again] = (await copied(source, target, move=True)).values()
        assert again.ok
        async with world.engine(GATED, store=target) as engine:
            await engine.confirm(run, "b")
            assert (await engine.wait(run)).status == "completed"

    virtual_run(main)


def test_what_was_moved_is_open_nowhere_else() -> None:
    """T7: a copy of what a move left is at rest, also one that was cut off and goes on; one under two names is left."""
    world, source, target, third = World(a=["made"], b=["done"]), MemoryStore(), Named("one://"), Dying(after=1)

    async def main() -> None:
        run = await waiting_run(source, world)
        [moved] = (await copied(source, target, move=True)).values()
        with pytest.raises(Unavailable, match="cut off"):
            await copied(source, third)
        third.dead = False
        assert [row.outcome for row in (await copied(source, third)).values()] == ["copied"]
        async with world.engine(GATED, store=third) as engine:
            assert (await engine.show(run)).status == "cancelled"
            with pytest.raises(Refused, match="was moved to one://"):
                await engine.retry(run)
        other = MemoryStore()
        rows = [(row.at, row.data) for row in await source.read(run, 0, moved.events)]
        await other.create(Head(run, owner=copier(), fence=1))
        await other.append(Batch(run, 0, rows, 1))
        [left] = (await copied(source, other)).values()
        assert (left.outcome, left.reason) == ("differs", "it was moved to one://, and goes on there")

    virtual_run(main)


def test_a_run_that_is_there_already_is_moved_by_ending_it_here() -> None:
    """T7: the target has all of it, from a copy of before: then it goes on there alone."""
    world, source, target = World(a=["made"], b=["done"]), MemoryStore(), MemoryStore()

    async def main() -> None:
        run = await waiting_run(source, world)
        rows = [(row.at, row.data) for row in await source.read(run)]
        await target.create(Head(run, fence=1))
        await target.append(Batch(run, 0, rows, 1, {}, "waiting"))
        assert [row.outcome for row in (await copied(source, target, move=True)).values()] == ["moved"]
        here, there = await source.head(run), await target.head(run)
        assert here is not None and there is not None
        assert (here.status, there.status, there.owner) == ("cancelled", "waiting", None)

    virtual_run(main)


async def test_a_run_that_somebody_takes_while_it_is_moved_is_not() -> None:
    """T7: the source's last word needs its lease; who took the run has it, and the target's copy is nobody's."""
    world, target = World(a=["made"], b=["done"]), MemoryStore()

    class Raced(MemoryStore):
        taken = False

        async def renew(self, lease: Lease, now: float) -> None:
            if not self.taken:
                self.taken = True
                await self.claim(lease.run, SOMEBODY, now, over=lease.fence)
            await super().renew(lease, now)

    source = Raced()
    run = await waiting_run(source, world)
    source.taken = False
    [row] = (await copied(source, target, move=True)).values()
    assert (row.outcome, row.ok) == ("driven", False)
    there, here = await target.head(run), await source.head(run)
    assert there is not None and here is not None
    assert is_arriving(there) and here.owner == SOMEBODY and here.status == "waiting"


async def test_a_content_that_is_not_what_its_name_says_is_found() -> None:
    """E6: digests are checked on the way; the run arrives without it, and that is said again whenever it is copied."""
    source, target = MemoryStore(), MemoryStore()
    await history(source, "odd", 1, BIG)
    source._blobs[digest(BIG)] = b"rotten"
    for _ in range(2):
        found = await copied(source, target)
        assert (found["odd"].outcome, found["odd"].ok, found["odd"].lost) == ("partial", False, 1)
        assert digest(BIG) in found["odd"].reason
        assert await target.blob(digest(BIG)) is None
        assert await target.read("odd") == await source.read("odd")
        assert (await target.heads())[0].owner is None


def test_a_run_that_lost_a_content_is_not_moved() -> None:
    """E6: it would go on without it there, and nowhere with it."""
    large = "x" * 5000
    world, source, target = World(a=[large], b=["done"]), MemoryStore(), MemoryStore()

    async def main() -> None:
        run = await waiting_run(source, world)
        [name] = source._blobs
        source._blobs[name] = b"rotten"
        [row] = (await copied(source, target, move=True)).values()
        assert (row.outcome, row.lost) == ("damaged", 1)
        here = await source.head(run)
        assert here is not None
        assert (here.status, here.owner) == ("waiting", None)
        assert await target.heads() == []

    virtual_run(main)


# -- One that cannot be copied ------------------------------------------------------------------------------------


class Picky(MemoryStore):
    """A store that refuses what is too large for it, or loses its connection over it."""

    def __init__(self, refusal: type[Unavailable] | type[Unusable]) -> None:
        super().__init__()
        self.refusal: type[Unavailable] | type[Unusable] | None = refusal
        self.most = 0  # bytes of contents that came in one append

    async def append(self, batch: Batch) -> None:
        """Take what is small."""
        size = sum(map(len, batch.blobs.values()))
        self.most = max(self.most, size)
        if self.refusal is not None and size > 100_000:
            raise self.refusal("that is too large")
        await super().append(batch)


@pytest.mark.parametrize("refusal", [Unavailable, Unusable])
async def test_one_run_that_the_target_does_not_take_stops_no_other(
    refusal: type[Unavailable] | type[Unusable],
) -> None:
    """I6: it is named with the reason, what arrived of it is nobody's, and once that is mended the copy goes on."""
    source, target = MemoryStore(), Picky(refusal)
    for events, run in enumerate(("first", "large", "last"), 600):
        await source.release(await history(source, run, events, BIG * (1000 if run == "large" else 1)))
    found = await copied(source, target)
    assert [row.outcome for row in found.values()] == ["copied", "failed", "copied"]
    assert not found["large"].ok
    assert "that is too large" in found["large"].reason
    half = await target.head("large")
    assert half is not None
    assert is_arriving(half) and half.seq == 500 and half.status == "pending"
    target.refusal = None
    found = await copied(source, target)
    assert [row.outcome for row in found.values()] == ["same", "copied", "same"]
    assert await target.read("large", 0, 5000) == await source.read("large", 0, 5000)


async def test_many_large_contents_travel_a_few_at_a_time() -> None:
    """E7: what is on its way at once is bounded by its size, not by the number of events."""
    source, target = MemoryStore(), Picky(Unusable)
    target.refusal = None
    await source.create(Head("many"))
    lease = await source.claim("many", SOMEBODY, 1.0)
    contents = [b"%d" % n * 1_000_000 for n in range(10, 60)]
    rows = [(1.0, encode(ev.StepSucceeded("s", 1, None, digest(content), len(content), True))) for content in contents]
    await source.append(Batch("many", 0, rows, lease.fence, {digest(one): one for one in contents}, "failed"))
    assert (await copied(source, target))["many"].outcome == "copied"
    assert 0 < target.most <= HEAVY + 2_000_000 < sum(map(len, contents))
    assert [await target.blob(digest(one)) for one in contents] == contents


async def test_a_source_that_is_gone_ends_the_copy() -> None:
    """E4: it would fail every run one by one."""

    class Going(Dying):
        async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
            if run == "second":
                self.dead = True
                raise Unavailable("cut off")
            return await super().read(run, after, limit)

    source, target = Going(), MemoryStore()
    for events, run in enumerate(("first", "second", "third"), 1):
        await source.release(await history(source, run, events))
    rows = copy_runs(source, target, [], lambda head: True, patience=0.0)
    assert (await anext(rows)).outcome == "copied"
    with pytest.raises(Unavailable, match="cut off"):
        await anext(rows)


@pytest.mark.parametrize("refusal", [Unavailable, Unusable])
@pytest.mark.parametrize("where", ["source", "target"])
async def test_after_an_outage_owners_get_the_time_to_be_heard_of(
    where: str, refusal: type[Unavailable] | type[Unusable]
) -> None:
    """T7, E4: while a store was away nobody could renew, so the age of a lease tells nothing at first."""

    class Losing(MemoryStore):
        lost = ""

        async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
            if self.lost and run == "second":
                raise refusal("cut off")
            return await super().read(run, after, limit)

        async def create(self, head: Head) -> None:
            if self.lost and head.run == "second":
                raise refusal("cut off")
            await super().create(head)

    source, target, heard = Losing(), Losing(), list[str]()
    for events, run in enumerate(("first", "second", "third", "fourth"), 1):
        await source.release(await history(source, run, events))
    (source if where == "source" else target).lost = "second"
    done: list[str] = []

    async def outlasted() -> None:
        heard.append(",".join(done))

    async for row in copy_runs(source, target, [], lambda head: True, patience=0.0, outlasted=outlasted):
        done += [row.run]
    assert heard == (["", "first,second"] if refusal is Unavailable else [""])


async def test_a_history_that_cannot_be_read_leaves_nothing_in_the_target() -> None:
    """E5: all of it is read before anything is written: a gap, or an event that is none, far behind."""
    source, target = MemoryStore(), MemoryStore()
    for events, run in enumerate(("gap", "torn", "whole"), 600):
        await source.release(await history(source, run, events))
    source._runs["gap"].rows[550] = Row(552, 1.0, source._runs["gap"].rows[550].data)
    source._runs["torn"].rows[550] = Row(551, 1.0, b'{"type":"step_')
    found = await copied(source, target)
    assert {run: row.outcome for run, row in found.items()} == {"gap": "damaged", "torn": "damaged", "whole": "copied"}
    assert "events 551 to 551 are missing" in found["gap"].reason
    assert sorted(head.run for head in await target.heads()) == ["whole"]


async def test_contents_that_expired_are_counted() -> None:
    """E6: what the source has no longer cannot be copied, and that is said."""
    source, target = MemoryStore(), MemoryStore()
    await history(source, "old", 1, BIG)
    source._blobs.clear()
    found = await copied(source, target)
    assert (found["old"].outcome, found["old"].expired, found["old"].ok) == ("copied", 1, True)


class Scrambled(MemoryStore):
    """A store that answers for one run as a damaged file may."""

    def __init__(self, odd: Callable[[list[Row]], list[Row]]) -> None:
        super().__init__()
        self.odd = odd

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """As ever, but for that run."""
        rows = await super().read(run, after, limit)
        return self.odd(rows) if run == "two" and rows else rows


@pytest.mark.parametrize("status", ["failed", "running"])
@pytest.mark.parametrize(
    "odd",
    [
        lambda rows: [*rows[:-1], replace(rows[-1], seq=1)],  # it would be read for ever
        lambda rows: [replace(rows[0], seq="1"), *rows[1:]],
        lambda rows: [replace(rows[0], seq=None), *rows[1:]],
        lambda rows: [replace(rows[0], data=None), *rows[1:]],
        lambda rows: [replace(rows[0], at="then"), *rows[1:]],
        lambda rows: rows[1:],
    ],
)  # fmt: skip
async def test_rows_that_no_store_would_write_are_damage(odd: Callable[[list[Row]], list[Row]], status: str) -> None:
    """E4: of a run at rest and of an open one; the others arrive."""
    source, target = Scrambled(odd), MemoryStore()
    await source.release(await history(source, "one", 3))
    await source.release(await history(source, "two", 5))
    source._runs["two"].status = status
    async with asyncio.timeout(20):
        found = await copied(source, target)
    assert {run: row.outcome for run, row in found.items()} == {"one": "copied", "two": "damaged"}
    assert await target.head("two") is None


async def test_a_copy_that_was_cut_off_goes_on_although_an_output_is_lost() -> None:
    """E6: the rest of the run is still to come; what it lacks is told at the end."""

    class Failing(MemoryStore):
        """A target that fails once in the middle."""

        fails = 1

        async def append(self, batch: Batch) -> None:
            if self.fails and batch.after:
                self.fails -= 1
                raise Unusable("no")
            await super().append(batch)

    source, target = MemoryStore(), Failing()
    await source.create(Head("one", created_at=1.0))
    lease = await source.claim("one", SOMEBODY, 1.0)
    rows = [(1.0, encode(ev.StepSucceeded("s", 1, None, digest(BIG), len(BIG), True)))]
    rows += [(2.0, encode(ev.StepProgress("s", 1, message=str(n)))) for n in range(1200)]
    await source.append(Batch("one", 0, rows, lease.fence, {digest(BIG): BIG}, "failed"))
    await source.release(lease)
    source._blobs[digest(BIG)] = b"rotten"
    assert (await copied(source, target))["one"].outcome == "failed"
    again = (await copied(source, target))["one"]
    assert (again.outcome, again.lost) == ("partial", 1)
    there = await target.head("one")
    assert there is not None and (there.seq, there.status, there.owner) == (1201, "failed", None)
