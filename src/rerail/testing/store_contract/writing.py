"""The store under test, and its contracts on what is written: histories, contents, inboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from rerail.ports import Batch, Conflict, Head, Lease, Owner, Row, Store, Unavailable, Unusable

ME = Owner("here", 11, 100.5)
OTHER = Owner("there", 22, 200.25)
RUN = "run-1"
UNFINISHED = ("pending", "running", "waiting", "failed", "cancelled")


class StoreCase:
    """A store under test, and a second handle to its data; the store's author provides both."""

    notice = 2.0  # seconds within which one handle notices the writes of another

    async def make(self) -> Store:
        """Return a new, empty, open store."""
        raise NotImplementedError

    async def again(self, store: Store) -> Store | None:
        """Return a second, independent, open handle to the same data; None if the store has no second one."""
        return None

    async def break_next_append(self, store: Store) -> None:
        """Make the next append, of several rows and a content, fail half-way."""
        raise NotImplementedError

    async def mend(self, store: Store) -> None:
        """Undo `break_next_append`, if it does not undo itself."""

    async def break_next_removal(self, store: Store) -> bool:
        """Make the next removal fail half-way; False if that is impossible (the test is skipped then)."""
        return False

    async def mend_removal(self, store: Store) -> None:
        """Undo `break_next_removal`, if it does not undo itself."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """The store under test."""
        made = await self.make()
        yield made
        await made.close()

    @pytest.fixture
    async def other(self, store: Store) -> AsyncIterator[Store]:
        """Another handle to the same data, or the same one where there can be only one."""
        second = await self.again(store)
        yield second or store
        if second is not None:
            await second.close()


async def started(
    store: Store, run: str = RUN, *, objective: str = "", created_at: float = 0.0, updated_at: float = 0.0
) -> Lease:
    """Create a run, held by `ME`."""
    await store.create(Head(run, objective=objective, created_at=created_at, updated_at=updated_at))
    return await store.claim(run, ME, 1.0)


def batch(
    lease: Lease,
    after: int,
    *texts: str,
    at: float = 1.0,
    blobs: Mapping[str, bytes] | None = None,
    status: str = "",
    objective: str = "",
) -> Batch:
    """Return a batch of texts by the holder of a lease."""
    rows = [(at, text.encode()) for text in texts]
    return Batch(lease.run, after, rows, lease.fence, blobs or {}, status, objective)


async def seen(store: Store, run: str) -> Head:
    """Return a run's head without its renewal time, which a server tells by its own clock."""
    return replace(await head_of(store, run), renewed_at=0.0)


def kept_as(lease: Lease, run: str) -> Lease:
    """Return the lease of one run as if it were another's."""
    return Lease(run, lease.owner, lease.fence)


def near(told: float, given: float) -> bool:
    """Return True if a time is about the given one: a server's own clock may be a little off."""
    return abs(told - given) < 2.0


async def history(store: Store, run: str = RUN) -> list[str]:
    """Return a whole history as texts."""
    rows = await store.read(run)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    return [row.data.decode() for row in rows]


async def head_of(store: Store, run: str = RUN) -> Head:
    """Return the head of a run that exists."""
    head = await store.head(run)
    assert head is not None
    return head


async def race(store: Store, lease: Lease, name: int, turns: int) -> int:
    """Append again and again to the end of the history; return the number of lost races."""
    conflicts = 0
    for turn in range(turns):
        while True:
            head = await head_of(store, lease.run)
            await asyncio.sleep(0)  # let the others see the same end
            try:
                await store.append(batch(lease, head.seq, f"{name} {turn}"))
                break
            except Conflict:
                conflicts += 1
    return conflicts


class HistoryContract(StoreCase):
    """Appended rows are read whole and in order, whatever fails in between."""

    async def test_what_is_appended_is_read(self, store: Store) -> None:
        """Rows come back with their place, time and bytes, in order."""
        lease = await started(store)
        await store.append(Batch(RUN, 0, [(1.25, b"one"), (2.5, b"two")], lease.fence))
        await store.append(Batch(RUN, 2, [(3.75, b"\x00\xff")], lease.fence))
        assert await store.read(RUN) == [Row(1, 1.25, b"one"), Row(2, 2.5, b"two"), Row(3, 3.75, b"\x00\xff")]

    async def test_a_history_is_read_in_pages(self, store: Store) -> None:
        """`after` and `limit` cut pages that put together are the whole."""
        lease = await started(store)
        await store.append(batch(lease, 0, *(f"event {n}" for n in range(1, 26))))
        pages = [await store.read(RUN, after, 10) for after in (0, 10, 20, 30)]
        assert [len(page) for page in pages] == [10, 10, 5, 0]
        assert [row.seq for page in pages for row in page] == list(range(1, 26))

    async def test_an_empty_or_unknown_history_has_no_rows(self, store: Store) -> None:
        """Reading absent data is no error."""
        await store.create(Head(RUN))
        assert await store.read(RUN) == []
        assert await store.read("unknown") == []
        assert await store.head("unknown") is None

    async def test_a_run_is_made_once(self, store: Store) -> None:
        """A second run of the same id is refused, and changes nothing."""
        await store.create(Head(RUN, objective="first"))
        with pytest.raises(Conflict):
            await store.create(Head(RUN, objective="second"))
        assert (await head_of(store)).objective == "first"

    @pytest.mark.parametrize("after", [0, 1, 3, 100], ids=["from the start", "stale", "gap", "far"])
    async def test_the_wrong_place_is_refused(self, store: Store, after: int) -> None:
        """An append names the last sequence number; any other is a conflict that writes nothing."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", "two"))
        with pytest.raises(Conflict):
            await store.append(batch(lease, after, "else", "more", blobs={"d": b"content"}, status="failed"))
        assert await history(store) == ["one", "two"]
        assert await store.blob("d") is None
        assert (await head_of(store)).status == "pending"

    async def test_a_run_that_does_not_exist_takes_nothing(self, store: Store) -> None:
        """Rows, claims and actions of an unknown run are refused."""
        with pytest.raises(Conflict):
            await store.append(Batch("unknown", 0, [(1.0, b"x")], 0, {"d": b"content"}))
        with pytest.raises(Conflict):
            await store.claim("unknown", ME, 1.0)
        with pytest.raises(Conflict):
            await store.post("unknown", b"act")
        assert await store.heads() == []
        assert await store.blob("d") is None

    async def test_large_rows_and_contents_are_kept_whole(self, store: Store) -> None:
        """A megabyte in a row or a content is nothing special."""
        lease = await started(store)
        large = bytes(range(256)) * 4096
        rows = [(1.0, large), (2.0, b""), (3.0, large[::-1])]
        await store.append(Batch(RUN, 0, rows, lease.fence, {"large": large, "empty": b""}))
        assert [(row.at, row.data) for row in await store.read(RUN)] == rows
        assert await store.blob("large") == large
        assert await store.blob("empty") == b""

    async def test_any_text_is_kept(self, store: Store) -> None:
        """Ids and objectives may be of any language and hold any sign."""
        run = "任务 'é\" %_\\ 🚂"
        await store.create(Head(run, objective="数据源; DROP TABLE runs --", parent="父 %"))
        lease = await store.claim(run, Owner("主机", 1, 1.0), 1.0)
        await store.append(Batch(run, 0, [(1.0, "步骤".encode())], lease.fence))
        [head] = await store.heads(prefix="任务 'é\"", parent="父 %")
        assert (head.run, head.objective, head.owner) == (run, "数据源; DROP TABLE runs --", Owner("主机", 1, 1.0))
        assert (await store.read(run))[0].data.decode() == "步骤"

    async def test_runs_do_not_mix(self, store: Store) -> None:
        """Many runs written in turn keep their own histories."""
        runs = [f"run-{n}" for n in range(50)]
        leases = [await started(store, run) for run in runs]
        for turn in range(4):
            await asyncio.gather(*(store.append(batch(lease, turn, f"{lease.run} {turn}")) for lease in leases))
        for run in runs:
            assert await history(store, run) == [f"{run} {turn}" for turn in range(4)]

    async def test_what_was_acknowledged_outlives_closing(self, store: Store) -> None:
        """E1: a store that is closed and opened again has everything, and works on."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"d": b"content"}))
        await store.close()
        await store.open()
        await store.append(batch(lease, 1, "two"))
        assert await history(store) == ["one", "two"]
        assert await store.blob("d") == b"content"

    async def test_ones_own_append_again_is_accepted_once(self, store: Store) -> None:
        """E4: after a lost acknowledgement the same batch is neither refused nor doubled."""
        lease = await started(store)
        mine = batch(lease, 0, "one", "two")
        await store.append(mine)
        await store.append(mine)
        await store.append(batch(lease, 2, "three"))
        await store.append(mine)
        assert await history(store) == ["one", "two", "three"]

    @pytest.mark.parametrize("rows", [[(1.0, b"else")], [(2.0, b"one")], [(1.0, b"one"), (1.0, b"two")], []])
    async def test_another_writers_append_is_a_conflict(self, store: Store, rows: list[tuple[float, bytes]]) -> None:
        """E4: at the same place, other bytes, another time or other rows belong to another writer."""
        lease = await started(store)
        await store.append(Batch(RUN, 0, [(1.0, b"one")], lease.fence))
        with pytest.raises(Conflict):
            await store.append(Batch(RUN, 0, rows, lease.fence))
        assert await history(store) == ["one"]

    async def test_an_append_that_fails_in_the_middle_leaves_nothing(self, store: Store, other: Store) -> None:
        """E4: no row, no content, no new status; and after the repair the same append works."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one"))
        before = await seen(store, RUN)
        mine = batch(lease, 1, "two", "three", "four", blobs={"d": b"content"}, status="completed")
        await self.break_next_append(store)
        with pytest.raises((Unavailable, Unusable)):
            await store.append(mine)
        await self.mend(store)
        for handle in (store, other):
            assert await history(handle) == ["one"]
            assert await handle.blob("d") is None
            assert await seen(handle, RUN) == before
        await store.append(mine)
        assert await history(other) == ["one", "two", "three", "four"]
        assert await other.blob("d") == b"content"

    async def test_a_failing_append_harms_no_other(self, store: Store) -> None:
        """Appends of several runs at once: those refused fail alone, the others are written."""
        leases = [await started(store, f"run-{n}") for n in range(20)]
        odd = {lease.run for lease in leases[1::2]}
        tries = (store.append(batch(lease, 5 if lease.run in odd else 0, "x")) for lease in leases)
        ended = await asyncio.gather(*tries, return_exceptions=True)
        assert [isinstance(end, Conflict) for end in ended] == [lease.run in odd for lease in leases]
        for lease in leases:
            assert await history(store, lease.run) == ([] if lease.run in odd else ["x"])

    async def test_contents_come_with_the_rows_that_name_them(self, store: Store, other: Store) -> None:
        """A content is there as soon as its row is, and any process may store it again."""
        first, second = await started(store, "run-1"), await started(store, "run-2")
        await store.append(batch(first, 0, "made d", blobs={"d": b"content", "e": b"more"}))
        await store.append(batch(second, 0, "made d too", blobs={"d": b"content"}))
        assert [await other.blob(digest) for digest in ("d", "e", "f")] == [b"content", b"more", None]

    async def test_two_writers_at_once_make_one_order(self, store: Store, other: Store) -> None:
        """T7: of writers that race for a sequence number one wins; no row is lost, doubled or left out."""
        lease = await started(store)
        writers, turns = 6, 8
        handles = [store, other] * (writers // 2)
        conflicts = await asyncio.gather(*(race(h, lease, name, turns) for name, h in enumerate(handles)))
        rows = await store.read(RUN)
        assert [row.seq for row in rows] == list(range(1, writers * turns + 1))
        written = [row.data.decode().split() for row in rows]
        for name in range(writers):
            assert [turn for who, turn in written if who == str(name)] == [str(turn) for turn in range(turns)]
        assert sum(conflicts) > 0

    async def test_readers_see_whole_appends_while_others_write(self, store: Store, other: Store) -> None:
        """A reader beside a writer sees a beginning of the history that ends with a whole append."""
        lease = await started(store)
        seen: list[int] = []

        async def look() -> None:
            while not seen or seen[-1] < 90:
                rows = await other.read(RUN)
                assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
                seen.append(len(rows))
                await asyncio.sleep(0)

        async def write() -> None:
            for after in range(0, 90, 3):
                await store.append(batch(lease, after, "a", "b", "c"))
                await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(look(), write()), 60)
        assert seen == sorted(seen)
        assert all(count % 3 == 0 for count in seen)


class ContentContract(StoreCase):
    """Contents are mended, swept after their time, and shared."""

    async def test_a_damaged_content_is_mended_by_the_next_to_bring_it(self, store: Store, other: Store) -> None:
        """E6: a content's name is its digest, so a content that differs is damaged; a sound one stays unchanged."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"d": b"rubbish", "e": b"sound"}))
        await other.append(batch(lease, 1, "two", blobs={"d": b"content", "e": b"sound", "f": b"new"}))
        for handle in (store, other):
            assert [await handle.blob(name) for name in "def"] == [b"content", b"sound", b"new"]
        await store.append(batch(lease, 2, "three", blobs={"d": b"content"}, at=10.0, status="completed"))
        assert await store.sweep(11.0) == 3, "it is one content, as before"

    async def test_contents_of_runs_completed_long_ago_are_swept(self, store: Store) -> None:
        """E6: contents of such runs alone go, once; their histories stay."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"d": b"1", "e": b"2"}, at=10.0, status="completed"))
        assert await store.sweep(10.0) == 0
        assert await store.sweep(10.5) == 2
        assert await store.sweep(10.5) == 0
        assert [await store.blob("d"), await store.blob("e")] == [None, None]
        assert await history(store) == ["one"]

    @pytest.mark.parametrize("state", UNFINISHED)
    async def test_contents_are_kept_unless_the_run_completed(self, store: Store, state: str) -> None:
        """E6: nothing is swept while a run is unfinished, failed, cancelled or waiting."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"d": b"content"}, at=10.0, status=state))
        assert await store.sweep(1e12) == 0
        assert await store.blob("d") == b"content"

    async def test_a_content_stays_while_any_other_run_needs_it(self, store: Store) -> None:
        """E6: shared contents go with the last run that needs them."""
        old, young = await started(store, "run-1"), await started(store, "run-2")
        await store.append(batch(old, 0, "x", blobs={"d": b"1", "mine": b"2"}, at=10.0, status="completed"))
        await store.append(batch(young, 0, "y", blobs={"d": b"1"}, at=20.0, status="completed"))
        assert await store.sweep(15.0) == 1
        assert [await store.blob("d"), await store.blob("mine")] == [b"1", None]
        assert await store.sweep(25.0) == 1
        assert await store.blob("d") is None

    async def test_a_swept_content_can_be_stored_again(self, store: Store) -> None:
        """E6: a step that runs again brings its content back, and it is kept like any other."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"d": b"content"}, at=10.0, status="completed"))
        await store.sweep(11.0)
        await store.append(batch(lease, 1, "two", blobs={"d": b"content"}, at=12.0, status="running"))
        assert await store.sweep(1e12) == 0
        assert await store.blob("d") == b"content"


class InboxContract(StoreCase):
    """Commands wait in order until they are answered, once."""

    async def test_actions_wait_in_order_until_answered(self, store: Store, other: Store) -> None:
        """T7: commands of any process reach the owner in one order; an answered one leaves the inbox."""
        for run in ("run-1", "run-2"):
            await store.create(Head(run))
        first = await store.post("run-1", b"pause")
        second = await other.post("run-1", b"skip b")
        await other.post("run-2", b"cancel")
        assert first < second
        assert await store.inbox("run-1") == [(first, b"pause"), (second, b"skip b")]
        await store.answer("run-1", first, b"done")
        assert await other.inbox("run-1") == [(second, b"skip b")]
        assert await other.answered("run-1", first) == b"done"
        assert await other.answered("run-1", second) is None
        assert [data for _, data in await store.inbox("run-2")] == [b"cancel"]

    async def test_the_first_answer_stays(self, store: Store) -> None:
        """A command is answered once, by its number and run; an empty answer is one too."""
        for run in ("run-1", "run-2"):
            await store.create(Head(run))
        number = await store.post("run-1", b"pause")
        await store.answer("run-2", number, b"not mine")
        await store.answer("run-1", number + 1, b"no question")
        assert len(await store.inbox("run-1")) == 1
        await store.answer("run-1", number, b"")
        await store.answer("run-1", number, b"later")
        assert await store.answered("run-1", number) == b""
        assert await store.answered("run-2", number) is None
        assert await store.answered("run-1", number + 1) is None

    async def test_actions_posted_at_once_all_arrive(self, store: Store, other: Store) -> None:
        """Numbers are unique and give the order."""
        await store.create(Head(RUN))
        numbers = await asyncio.gather(*((store, other)[n % 2].post(RUN, b"%d" % n) for n in range(30)))
        inbox = await store.inbox(RUN)
        assert [number for number, _ in inbox] == sorted(numbers)
        assert {data for _, data in inbox} == {b"%d" % n for n in range(30)}
