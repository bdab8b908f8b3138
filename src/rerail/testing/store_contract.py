"""What every store must do, as tests: subclass `StoreContract`, say how a store is made, and run pytest.

    import pytest

    pytest.register_assert_rewrite("rerail.testing.store_contract")  # before the import, for readable failures
    from rerail.testing.store_contract import StoreContract

    class TestMine(StoreContract):
        async def make(self):
            store = MyStore("somewhere new")
            await store.open()
            return store

The tests are plain `async def`: let anyio's plugin run them (`anyio_mode = "auto"` in pytest's settings, and a fixture
`anyio_backend` that returns "asyncio"). Each starts with a new, empty store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Owner, Row, Store, Taken, Unavailable, Unusable

ME = Owner("here", 11, 100.5)
OTHER = Owner("there", 22, 200.25)
RUN = "run-1"
UNFINISHED = ("pending", "running", "waiting", "failed", "cancelled")


class StoreContract:
    """The contract of `rerail.ports.Store`."""

    notice = 2.0  # seconds within which one handle notices what another one wrote

    # -- What a store's author says -------------------------------------------------------------------------------

    async def make(self) -> Store:
        """A new, empty, open store."""
        raise NotImplementedError

    async def again(self, store: Store) -> Store | None:
        """A second, independent, open handle to the same data; None if the store cannot have one."""
        return None

    async def break_next_append(self, store: Store) -> None:
        """Make the next append, of several rows and a content, fail when it is half done."""
        raise NotImplementedError

    async def mend(self, store: Store) -> None:
        """Undo `break_next_append`, if it does not undo itself."""

    async def break_next_removal(self, store: Store) -> bool:
        """Make the next removal fail when it is half done; False if there is no way to (then that is not tried)."""
        return False

    async def mend_removal(self, store: Store) -> None:
        """Undo `break_next_removal`, if it does not undo itself."""

    # -- Shared ---------------------------------------------------------------------------------------------------

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

    # -- Histories ------------------------------------------------------------------------------------------------

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
        """Reading what is not there is no error."""
        await store.create(Head(RUN))
        assert await store.read(RUN) == []
        assert await store.read("nobody") == []
        assert await store.head("nobody") is None

    async def test_a_run_is_made_once(self, store: Store) -> None:
        """A second run of the same id is refused, and changes nothing."""
        await store.create(Head(RUN, objective="first"))
        with pytest.raises(Conflict):
            await store.create(Head(RUN, objective="second"))
        assert await objective(store) == "first"

    @pytest.mark.parametrize("after", [0, 1, 3, 100], ids=["from the start", "stale", "gap", "far"])
    async def test_the_wrong_place_is_refused(self, store: Store, after: int) -> None:
        """An append names the last sequence number; any other is a conflict that writes nothing."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", "two"))
        with pytest.raises(Conflict):
            await store.append(batch(lease, after, "else", "more", blobs={"d": b"content"}, status="failed"))
        assert await history(store) == ["one", "two"]
        assert await store.blob("d") is None
        assert await status(store) == "pending"

    async def test_a_run_that_does_not_exist_takes_nothing(self, store: Store) -> None:
        """Rows, claims and actions of an unknown run are refused."""
        with pytest.raises(Conflict):
            await store.append(Batch("nobody", 0, [(1.0, b"x")], 0, {"d": b"content"}))
        with pytest.raises(Conflict):
            await store.claim("nobody", ME, 1.0)
        with pytest.raises(Conflict):
            await store.post("nobody", b"act")
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

    # -- One's own append, again ----------------------------------------------------------------------------------

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
    async def test_somebody_elses_append_is_a_conflict(self, store: Store, rows: list[tuple[float, bytes]]) -> None:
        """E4: at the same place, other bytes, another time or other rows are not one's own."""
        lease = await started(store)
        await store.append(Batch(RUN, 0, [(1.0, b"one")], lease.fence))
        with pytest.raises(Conflict):
            await store.append(Batch(RUN, 0, rows, lease.fence))
        assert await history(store) == ["one"]

    # -- Whole or not at all --------------------------------------------------------------------------------------

    async def test_an_append_that_fails_in_the_middle_leaves_nothing(self, store: Store, other: Store) -> None:
        """E4: no row, no content, no new status; and after the repair the same append works."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one"))
        before = await store.head(RUN)
        mine = batch(lease, 1, "two", "three", "four", blobs={"d": b"content"}, status="completed")
        await self.break_next_append(store)
        with pytest.raises((Unavailable, Unusable)):
            await store.append(mine)
        await self.mend(store)
        for handle in (store, other):
            assert await history(handle) == ["one"]
            assert await handle.blob("d") is None
            after = await handle.head(RUN)
            assert after is not None
            assert before is not None
            assert replace(after, renewed_at=0.0) == replace(before, renewed_at=0.0)
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
        """A content is there as soon as its row is, and may be given again by anybody."""
        first, second = await started(store, "run-1"), await started(store, "run-2")
        await store.append(batch(first, 0, "made d", blobs={"d": b"content", "e": b"more"}))
        await store.append(batch(second, 0, "made d too", blobs={"d": b"content"}))
        assert [await other.blob(digest) for digest in ("d", "e", "f")] == [b"content", b"more", None]

    # -- Several writers ------------------------------------------------------------------------------------------

    async def test_two_writers_at_once_make_one_order(self, store: Store, other: Store) -> None:
        """T7: of those who race for a sequence number one wins; none is lost, doubled or left out."""
        lease = await started(store)
        writers, turns = 6, 8
        handles = [store, other] * (writers // 2)
        conflicts = await asyncio.gather(*(_race(h, lease, name, turns) for name, h in enumerate(handles)))
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

    # -- Leases ---------------------------------------------------------------------------------------------------

    async def test_a_lease_names_its_holder(self, store: Store) -> None:
        """T7: the head tells host, pid, start time, fence and when the holder last spoke."""
        await store.create(Head(RUN, status="running", created_at=1.0, updated_at=1.0))
        lease = await store.claim(RUN, ME, 50.0)
        head = await store.head(RUN)
        assert lease == Lease(RUN, ME, 1)
        assert head is not None
        expected = Head(RUN, 0, "running", "", "", 1.0, 1.0, owner=ME, fence=1, renewed_at=head.renewed_at)
        assert head == expected
        assert near(head.renewed_at, 50.0)

    async def test_a_run_may_be_made_with_its_owner(self, store: Store) -> None:
        """T7: nobody can step between making a run and holding it."""
        await store.create(Head(RUN, owner=ME, fence=1, renewed_at=5.0))
        with pytest.raises(Taken):
            await store.claim(RUN, OTHER, 6.0)
        await store.append(Batch(RUN, 0, [(7.0, b"one")], 1))
        await store.renew(Lease(RUN, ME, 1), 8.0)

    async def test_a_held_run_is_taken(self, store: Store, other: Store) -> None:
        """T7: a second claim is refused and told who holds the run, even to the holder."""
        lease = await started(store)
        for owner in (OTHER, ME):
            with pytest.raises(Taken) as refusal:
                await other.claim(RUN, owner, 2.0)
            assert refusal.value.head.owner == ME
            assert refusal.value.head.fence == lease.fence
            assert "here:11" in str(refusal.value)

    async def test_a_process_has_a_run_once(self, store: Store, other: Store) -> None:
        """T7: nobody is let in for being the owner already, not even at the very same moment."""
        head = Head(RUN, owner=ME, fence=1, created_at=5.0, updated_at=5.0, renewed_at=5.0)
        await store.create(head)
        with pytest.raises(Conflict):
            await other.create(head)
        with pytest.raises(Taken):
            await other.claim(RUN, ME, 5.0)
        await store.claim(RUN, ME, 6.0, over=1)
        with pytest.raises(Taken):
            await other.claim(RUN, ME, 6.0, over=1)

    async def test_a_dead_holders_lease_is_taken_over_by_its_fence(self, store: Store, other: Store) -> None:
        """T7: whoever saw the holder dead names its fence; another fence means somebody was quicker."""
        dead = await started(store)
        lease = await other.claim(RUN, OTHER, 2.0, over=dead.fence)
        assert lease.fence > dead.fence
        for over in (dead.fence, lease.fence + 1):
            with pytest.raises(Taken) as refusal:
                await store.claim(RUN, ME, 3.0, over=over)
            assert refusal.value.head.owner == OTHER

    async def test_a_thawed_holder_can_write_nothing(self, store: Store, other: Store) -> None:
        """T7: after a take-over the old holder neither appends nor renews nor releases."""
        old = await started(store)
        mine = batch(old, 0, "one")
        await store.append(mine)
        new = await other.claim(RUN, OTHER, 2.0, over=old.fence)
        for late in (batch(old, 1, "two", blobs={"d": b"content"}), mine):
            with pytest.raises(Fenced):
                await store.append(late)
        with pytest.raises(Fenced):
            await store.renew(old, 3.0)
        await store.release(old)
        head = await store.head(RUN)
        assert head is not None
        assert head.owner == OTHER
        assert near(head.renewed_at, 2.0)
        assert await store.blob("d") is None
        await other.append(batch(new, 1, "two, by the new holder"))
        assert await history(store) == ["one", "two, by the new holder"]

    async def test_a_released_run_is_free(self, store: Store, other: Store) -> None:
        """T7: a lease given back can be claimed, with a higher fence; the old one is worth nothing then."""
        first = await started(store)
        await store.release(first)
        head = await other.head(RUN)
        assert head is not None
        assert head.owner is None
        with pytest.raises(Fenced):
            await store.renew(first, 2.0)
        second = await other.claim(RUN, OTHER, 3.0)
        assert second.fence > first.fence
        with pytest.raises(Fenced):
            await store.append(batch(first, 0, "late"))

    async def test_a_holder_says_that_it_lives(self, store: Store) -> None:
        """T7: renewing is seen in the head, and only there."""
        lease = await started(store)
        before = await store.head(RUN)
        await store.renew(lease, 77.5)
        after = await store.head(RUN)
        assert before is not None
        assert after is not None
        assert near(after.renewed_at, 77.5)
        assert (after.updated_at, after.fence) == (before.updated_at, before.fence)

    async def test_of_many_claims_at_once_one_wins(self, store: Store, other: Store) -> None:
        """T7: one owner at a time, whoever asks and however many."""
        await store.create(Head(RUN))
        owners = [Owner("host", pid, 1.0) for pid in range(10)]
        claims = ((store, other)[owner.pid % 2].claim(RUN, owner, 1.0) for owner in owners)
        ended = await asyncio.gather(*claims, return_exceptions=True)
        [lease] = [end for end in ended if isinstance(end, Lease)]
        refusals = [end for end in ended if isinstance(end, Taken)]
        assert len(refusals) == 9
        assert {refusal.head.owner for refusal in refusals} == {lease.owner}

    # -- Lists ----------------------------------------------------------------------------------------------------

    async def test_a_head_follows_its_history(self, store: Store) -> None:
        """Sequence number, status, objective and time are written with the rows; what is not named stays."""
        lease = await started(store, objective="tidy up", created_at=1.0, updated_at=1.0)
        await store.append(batch(lease, 0, "one", at=5.0, status="running"))
        await store.append(batch(lease, 1, "two", "three", at=6.0))
        head = await store.head(RUN)
        assert head is not None
        assert (head.seq, head.status, head.objective, head.created_at) == (3, "running", "tidy up", 1.0)
        assert head.updated_at == 6.0
        await store.append(batch(lease, 3, "four", status="failed", objective="tidy more"))
        assert (await status(store), await objective(store)) == ("failed", "tidy more")

    async def test_runs_are_listed_newest_first(self, store: Store) -> None:
        """Newest means made last; runs made at the same time come in the reverse order of their making."""
        for run, created in (("b", 2.0), ("d", 3.0), ("a", 1.0), ("c", 3.0)):
            await store.create(Head(run, created_at=created))
        assert [head.run for head in await store.heads()] == ["c", "d", "b", "a"]
        assert [head.run for head in await store.heads(limit=2)] == ["c", "d"]

    async def test_runs_are_found_by_prefix_status_and_parent(self, store: Store) -> None:
        """Each filter narrows the list; together they narrow it further."""
        await store.create(Head("ab-1", status="failed", created_at=4.0))
        await store.create(Head("ab-2", status="completed", parent="ab-1", created_at=3.0))
        await store.create(Head("ac-3", status="failed", parent="ab-1", created_at=2.0))
        await store.create(Head("a%_4", status="running", parent="ab", created_at=1.0))

        async def runs(**filters: object) -> list[str]:
            return [head.run for head in await store.heads(**filters)]  # type: ignore[arg-type]

        assert await runs(prefix="ab") == ["ab-1", "ab-2"]
        assert await runs(prefix="a%") == ["a%_4"]
        assert await runs(prefix="ab-1") == ["ab-1"]
        assert await runs(prefix="x") == []
        assert await runs(status=["failed"]) == ["ab-1", "ac-3"]
        assert await runs(status=["failed", "running"]) == ["ab-1", "ac-3", "a%_4"]
        assert await runs(parent="ab-1") == ["ab-2", "ac-3"]
        assert await runs(parent="") == ["ab-1"]
        assert await runs(prefix="a", status=["failed"], parent="ab-1", limit=5) == ["ac-3"]

    async def test_a_list_goes_on_where_it_ended(self, store: Store) -> None:
        """Page by page every run comes once, those made at the same time too, and also if the last one is gone."""
        for run, created in (("b", 2.0), ("d", 3.0), ("a", 1.0), ("c", 3.0), ("e", 3.0)):
            await store.create(Head(run, status="failed" if run in "ce" else "running", parent="p", created_at=created))

        async def runs(**filters: object) -> list[str]:
            return [head.run for head in await store.heads(**filters)]  # type: ignore[arg-type]

        assert await runs(before=(3.0, "e"), limit=2) == ["c", "d"]
        assert await runs(before=(3.0, "d"), limit=2) == ["b", "a"]
        assert await runs(before=(1.0, "a")) == []
        assert await runs(before=(3.0, "nobody")) == ["b", "a"]
        assert await runs(before=(9.0, "nobody"), limit=2) == ["e", "c"]
        assert await runs(before=(3.0, "e"), status=["failed"]) == ["c"]
        assert await runs(before=(3.0, "c"), status=["failed", "running"], parent="p") == ["d", "b", "a"]
        assert await runs(before=(3.0, "d"), prefix="b") == ["b"]

    async def test_many_runs_are_listed(self, store: Store) -> None:
        """A few hundred runs are listed whole, or as many as asked for."""
        for n in range(300):
            await store.create(Head(f"run-{n:03}", created_at=float(n)))
        assert [head.run for head in await store.heads()] == [f"run-{n:03}" for n in reversed(range(300))]
        assert len(await store.heads(prefix="run-1", limit=40)) == 40

    # -- People's actions -----------------------------------------------------------------------------------------

    async def test_actions_wait_in_order_until_answered(self, store: Store, other: Store) -> None:
        """T7: what any process posts reaches the owner in one order; what is answered leaves the inbox."""
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
        """An action is answered once, by its number and run; an empty answer is one too."""
        for run in ("run-1", "run-2"):
            await store.create(Head(run))
        number = await store.post("run-1", b"pause")
        await store.answer("run-2", number, b"not mine")
        await store.answer("run-1", number + 1, b"nobody asked")
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

    # -- Contents that are damaged --------------------------------------------------------------------------------

    async def test_a_damaged_content_is_mended_by_whoever_brings_it_again(self, store: Store, other: Store) -> None:
        """E6: a content's name is its digest, so what differs from it is damage; what is sound stays as it is."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"d": b"rubbish", "e": b"sound"}))
        await other.append(batch(lease, 1, "two", blobs={"d": b"content", "e": b"sound", "f": b"new"}))
        for handle in (store, other):
            assert [await handle.blob(name) for name in "def"] == [b"content", b"sound", b"new"]
        await store.append(batch(lease, 2, "three", blobs={"d": b"content"}, at=10.0, status="completed"))
        assert await store.sweep(11.0) == 3, "it is one content, as before"

    # -- Sweeping -------------------------------------------------------------------------------------------------

    async def test_contents_of_runs_completed_long_ago_are_swept(self, store: Store) -> None:
        """E6: what only such runs refer to goes, once; their histories stay."""
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

    # -- Removing -------------------------------------------------------------------------------------------------

    async def test_a_removed_run_leaves_nothing(self, store: Store, other: Store) -> None:
        """E6: history, actions and contents go with it, its id is free again, and others keep all they have."""
        await self._rested(store, "old", {"d": b"1"})
        kept = await self._rested(store, "kept", {"e": b"2"})
        number = await store.post("old", b"pause")
        await store.answer("old", number, b"no")
        await store.post("old", b"skip b")
        assert await store.remove([await seen(store, "old")]) == 1
        for handle in (store, other):
            assert (await handle.head("old"), await handle.read("old"), await handle.inbox("old")) == (None, [], [])
            assert (await handle.answered("old", number), await handle.blob("d")) == (None, None)
            assert [head.run for head in await handle.heads()] == ["kept"]
            assert [head.run for head in await handle.heads(prefix="o", status=("completed",))] == []
            assert [head.run for head in await handle.heads(parent="")] == ["kept"]
            assert (await history(handle, "kept"), await handle.blob("e")) == (["kept 1", "kept 2"], b"2")
        with pytest.raises(Conflict):
            await store.append(batch(kept_as(kept, "old"), 2, "late", blobs={"late": b"3"}))
        assert await store.blob("late") is None
        await started(store, "old")
        assert (await history(store, "old"), (await seen(store, "old")).seq) == ([], 0)

    async def test_shared_contents_go_with_the_last_run(self, store: Store) -> None:
        """E6: contents are named by their digests, and stay while any run refers to them."""
        await self._rested(store, "a", {"both": b"1", "a": b"2"})
        await self._rested(store, "b", {"both": b"1"})
        assert await store.remove([await seen(store, "a")]) == 1
        assert [await store.blob(digest) for digest in ("both", "a")] == [b"1", None]
        assert await store.remove([await seen(store, "b")]) == 1
        assert await store.blob("both") is None

    async def test_runs_are_removed_together_or_not_at_all(self, store: Store) -> None:
        """T6: one that is not as it was seen keeps all of them; those that follow a run go with it or it stays."""
        await self._rested(store, "parent", {"p": b"1"})
        await self._rested(store, "child", {"c": b"2"}, parent="parent")
        heads = [await seen(store, "parent"), await seen(store, "child")]
        unseen = {
            "a child that stays": heads[:1],
            "not there": [*heads, replace(heads[0], run="nobody")],
            "went on": [heads[0], replace(heads[1], seq=1)],
            "was claimed": [heads[0], replace(heads[1], fence=7)],
            "another status": [heads[0], replace(heads[1], status="failed")],
        }
        for why, wrong in unseen.items():
            with pytest.raises(Conflict):
                await store.remove(wrong)
            assert [await seen(store, "parent"), await seen(store, "child")] == heads, why
        assert [await store.blob("p"), await store.blob("c")] == [b"1", b"2"]
        assert await store.remove(heads) == 2
        assert await store.heads() == []

    async def test_a_run_that_somebody_holds_is_not_removed(self, store: Store) -> None:
        """T7: whoever claimed it, before or since, has it."""
        await self._rested(store, "old", {"d": b"1"})
        before = await seen(store, "old")
        lease = await store.claim("old", OTHER, 5.0)
        for head in (before, await seen(store, "old")):
            with pytest.raises(Conflict):
                await store.remove([head])
        await store.release(lease)
        with pytest.raises(Conflict):  # as it was before somebody had it
            await store.remove([before])
        assert await history(store, "old") == ["old 1", "old 2"]
        assert await store.remove([await seen(store, "old")]) == 1

    async def test_of_two_who_remove_a_run_one_does(self, store: Store, other: Store) -> None:
        """The other one is told; nothing is counted twice."""
        await self._rested(store, "old", {"d": b"1"})
        head = await seen(store, "old")
        ended = await asyncio.gather(store.remove([head]), other.remove([head]), return_exceptions=True)
        assert sorted(isinstance(end, Conflict) for end in ended) == [False, True]
        assert sum(end for end in ended if isinstance(end, int)) == 1

    async def test_removing_while_others_write_and_read(self, store: Store, other: Store) -> None:
        """E1, E6: writers lose nothing, and a reader sees all of a run or nothing of it."""
        names = [f"old-{n}" for n in range(12)]
        for name in names:
            await self._rested(store, name, {"shared": b"s", name: b"own"})
        lease = await started(store, "live")
        done = False

        async def write() -> None:
            for after in range(40):
                await other.append(batch(lease, after, f"live {after}", blobs={"shared": b"s", f"l{after}": b"x"}))
                await asyncio.sleep(0)

        async def read() -> None:
            while not done:
                for name in names:
                    rows = [row.data.decode() for row in await other.read(name)]
                    assert rows in ([], [f"{name} 1", f"{name} 2"])
                    head = await other.head(name)
                    assert head is None or head.seq == 2
                await asyncio.sleep(0)

        async def remove() -> None:
            nonlocal done
            for name in names:
                await store.remove([await seen(store, name)])
                await asyncio.sleep(0)
            done = True

        await asyncio.wait_for(asyncio.gather(write(), read(), remove()), 60)
        assert await history(store, "live") == [f"live {after}" for after in range(40)]
        assert [head.run for head in await store.heads()] == ["live"]
        assert await store.blob("shared") == b"s", "the run that goes on needs it"
        assert [await store.blob(f"l{after}") for after in range(40)] == [b"x"] * 40
        await store.clear()  # what was busy when its run went
        assert [await store.blob(name) for name in names] == [None] * 12

    async def test_a_removal_that_fails_in_the_middle_leaves_the_run_whole(self, store: Store, other: Store) -> None:
        """E4: half a run is never taken for one; and after the repair the same removal works."""
        await self._rested(store, "old", {"d": b"1"})
        await store.post("old", b"pause")
        head = await seen(store, "old")
        if not await self.break_next_removal(store):
            return
        with pytest.raises((Unavailable, Unusable)):
            await store.remove([head])
        await self.mend_removal(store)
        for handle in (store, other):
            assert await history(handle, "old") == ["old 1", "old 2"]
            assert (await handle.blob("d"), len(await handle.inbox("old"))) == (b"1", 1)
        assert await store.remove([head]) == 1
        assert await other.head("old") is None

    async def test_a_sound_store_has_no_flaws(self, store: Store) -> None:
        """Nothing is found, nothing is cleared, and room that is given back costs nobody anything."""
        await self._rested(store, "old", {"d": b"1"})
        lease = await started(store)
        await store.append(batch(lease, 0, "one", blobs={"e": b"content" * 1000}))
        assert await store.examine() == []
        assert await store.clear() == 0
        await store.remove([await seen(store, "old")])
        assert await store.shrink() >= 0
        assert await store.examine() == []
        await store.append(batch(lease, 1, "two"))
        assert (await history(store), await store.blob("e")) == (["one", "two"], b"content" * 1000)

    async def _rested(self, store: Store, run: str, blobs: Mapping[str, bytes], parent: str = "") -> Lease:
        """A run of two events that is at rest, and nobody's."""
        await store.create(Head(run, parent=parent))
        lease = await store.claim(run, ME, 1.0)
        rows = [(2.0, f"{run} 1".encode()), (3.0, f"{run} 2".encode())]
        await store.append(Batch(run, 0, rows, lease.fence, blobs, "completed"))
        await store.release(lease)
        return lease

    # -- News -----------------------------------------------------------------------------------------------------

    async def test_news_that_are_there_already_need_no_waiting(self, store: Store) -> None:
        """A waiter that is behind, or asked for an inbox that has something, is answered at once."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one"))
        assert await store.changed(RUN, 0, 0.0)
        assert not await store.changed(RUN, 1, 0.0)
        await store.post(RUN, b"pause")
        assert await store.changed(RUN, 1, 0.0, inbox=True)
        assert not await store.changed(RUN, 1, 0.02)

    async def test_without_news_the_time_runs_out(self, store: Store) -> None:
        """False after the time is over, for known and unknown runs."""
        await started(store)
        assert not await store.changed(RUN, 0, 0.02)
        assert not await store.changed("nobody", 0, 0.02)

    async def test_an_append_wakes_those_who_wait(self, store: Store) -> None:
        """Everybody who waits in the same process is woken, whatever they have seen before."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one"))
        waiting = [asyncio.create_task(store.changed(RUN, after, 30)) for after in (1, 1, 2)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        await store.append(batch(lease, 1, "two"))
        assert await asyncio.wait_for(asyncio.gather(*waiting[:2]), self.notice) == [True, True]
        assert not waiting[2].done()
        await store.append(batch(lease, 2, "three"))
        assert await asyncio.wait_for(waiting[2], self.notice)

    async def test_an_action_wakes_those_who_wait(self, store: Store) -> None:
        """The owner hears of a person's wish, however far it has read its own history."""
        await started(store)
        waiting = asyncio.create_task(store.changed(RUN, 10**9, 30, inbox=True))
        await asyncio.sleep(0.01)
        await store.post(RUN, b"cancel")
        assert await asyncio.wait_for(waiting, self.notice)

    async def test_another_handles_writes_wake_those_who_wait(self, store: Store, other: Store) -> None:
        """News from another process arrive too, a little later."""
        lease = await started(store)
        waiting = asyncio.create_task(store.changed(RUN, 0, 30))
        await asyncio.sleep(0.01)
        await other.append(batch(lease, 0, "one"))
        assert await asyncio.wait_for(waiting, self.notice)
        waiting = asyncio.create_task(store.changed(RUN, 1, 30, inbox=True))
        await asyncio.sleep(0.01)
        await other.post(RUN, b"pause")
        assert await asyncio.wait_for(waiting, self.notice)

    async def test_a_run_given_back_wakes_those_who_wait_for_any(self, store: Store, other: Store) -> None:
        """T7: whoever would drive it hears of it, in this process and in others; nothing happens without one."""
        lease = await started(store)
        assert not await store.freed(0.02)
        waiting = [asyncio.create_task(one.freed(30)) for one in (store, other)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        await store.release(lease)
        assert await asyncio.wait_for(asyncio.gather(*waiting), self.notice) == [True, True]

    async def test_asking_again_and_again_lets_others_run(self, store: Store) -> None:
        """A watcher that is behind and asks in a loop does not stop the loop's other tasks."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one"))
        turns = 0

        async def work() -> None:
            nonlocal turns
            for _ in range(5):
                await asyncio.sleep(0)
                turns += 1

        working = asyncio.create_task(work())
        for _ in range(50):
            assert await store.changed(RUN, 0, 1.0)
        assert turns == 5
        await working

    async def test_waiting_can_be_given_up(self, store: Store) -> None:
        """A cancelled waiter is forgotten; appends go on and others are woken."""
        lease = await started(store)
        given_up = asyncio.create_task(store.changed(RUN, 0, 30))
        waiting = asyncio.create_task(store.changed(RUN, 0, 30))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.wait([given_up])
        await store.append(batch(lease, 0, "one"))
        assert await asyncio.wait_for(waiting, self.notice)
        assert given_up.cancelled()


# -- Short words for the tests ------------------------------------------------------------------------------------


async def started(
    store: Store, run: str = RUN, *, objective: str = "", created_at: float = 0.0, updated_at: float = 0.0
) -> Lease:
    """A new run, held by `ME`."""
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
    """A batch of texts by the holder of a lease."""
    rows = [(at, text.encode()) for text in texts]
    return Batch(lease.run, after, rows, lease.fence, blobs or {}, status, objective)


async def seen(store: Store, run: str) -> Head:
    """A run as lists show it now; when it was renewed is not compared, for a server tells that by its own clock."""
    head = await store.head(run)
    assert head is not None
    return replace(head, renewed_at=0.0)


def kept_as(lease: Lease, run: str) -> Lease:
    """The lease of one run as if it were another's."""
    return Lease(run, lease.owner, lease.fence)


def near(told: float, given: float) -> bool:
    """Whether a time is the one that was given: a server that keeps it by its own clock may be a little off."""
    return abs(told - given) < 2.0


async def history(store: Store, run: str = RUN) -> list[str]:
    """A whole history as texts."""
    rows = await store.read(run)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    return [row.data.decode() for row in rows]


async def status(store: Store) -> str | None:
    """The run's status in its head."""
    head = await store.head(RUN)
    return head.status if head else None


async def objective(store: Store) -> str | None:
    """The run's objective in its head."""
    head = await store.head(RUN)
    return head.objective if head else None


async def _race(store: Store, lease: Lease, name: int, turns: int) -> int:
    """Append again and again to wherever the history ends; returns how often somebody else was quicker."""
    conflicts = 0
    for turn in range(turns):
        while True:
            head = await store.head(lease.run)
            assert head is not None
            await asyncio.sleep(0)  # let the others see the same end
            try:
                await store.append(batch(lease, head.seq, f"{name} {turn}"))
                break
            except Conflict:
                conflicts += 1
    return conflicts
