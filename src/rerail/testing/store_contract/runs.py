"""The contracts on runs as a whole: lists, leases, news, removal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Owner, Store, Taken, Unavailable, Unusable
from rerail.testing.store_contract.writing import (
    ME,
    OTHER,
    RUN,
    StoreCase,
    batch,
    head_of,
    history,
    kept_as,
    near,
    seen,
    started,
)


async def listed(store: Store, **filters: Any) -> list[str]:
    """Return the ids of the runs in a list."""
    return [head.run for head in await store.heads(**filters)]


class ListContract(StoreCase):
    """Runs are listed, filtered and paged by their heads."""

    async def test_a_head_follows_its_history(self, store: Store) -> None:
        """Sequence number, status, objective and time are written with the rows; other fields stay."""
        lease = await started(store, objective="tidy up", created_at=1.0, updated_at=1.0)
        await store.append(batch(lease, 0, "one", at=5.0, status="running"))
        await store.append(batch(lease, 1, "two", "three", at=6.0))
        head = await head_of(store)
        assert (head.seq, head.status, head.objective, head.created_at) == (3, "running", "tidy up", 1.0)
        assert head.updated_at == 6.0
        await store.append(batch(lease, 3, "four", status="failed", objective="tidy more"))
        head = await head_of(store)
        assert (head.status, head.objective) == ("failed", "tidy more")

    async def test_runs_are_listed_newest_first(self, store: Store) -> None:
        """Newest means created last; runs created at the same time come in reverse order of creation."""
        for run, created in (("b", 2.0), ("d", 3.0), ("a", 1.0), ("c", 3.0)):
            await store.create(Head(run, created_at=created))
        assert await listed(store) == ["c", "d", "b", "a"]
        assert await listed(store, limit=2) == ["c", "d"]

    async def test_runs_are_found_by_prefix_status_and_parent(self, store: Store) -> None:
        """Each filter narrows the list; together they narrow it further."""
        await store.create(Head("ab-1", status="failed", created_at=4.0))
        await store.create(Head("ab-2", status="completed", parent="ab-1", created_at=3.0))
        await store.create(Head("ac-3", status="failed", parent="ab-1", created_at=2.0))
        await store.create(Head("a%_4", status="running", parent="ab", created_at=1.0))

        assert await listed(store, prefix="ab") == ["ab-1", "ab-2"]
        assert await listed(store, prefix="a%") == ["a%_4"]
        assert await listed(store, prefix="ab-1") == ["ab-1"]
        assert await listed(store, prefix="x") == []
        assert await listed(store, status=["failed"]) == ["ab-1", "ac-3"]
        assert await listed(store, status=["failed", "running"]) == ["ab-1", "ac-3", "a%_4"]
        assert await listed(store, parent="ab-1") == ["ab-2", "ac-3"]
        assert await listed(store, parent="") == ["ab-1"]
        assert await listed(store, prefix="a", status=["failed"], parent="ab-1", limit=5) == ["ac-3"]

    async def test_a_list_goes_on_where_it_ended(self, store: Store) -> None:
        """Page by page every run comes once, also runs of the same time, and also if the last one is gone."""
        for run, created in (("b", 2.0), ("d", 3.0), ("a", 1.0), ("c", 3.0), ("e", 3.0)):
            await store.create(Head(run, status="failed" if run in "ce" else "running", parent="p", created_at=created))

        assert await listed(store, before=(3.0, "e"), limit=2) == ["c", "d"]
        assert await listed(store, before=(3.0, "d"), limit=2) == ["b", "a"]
        assert await listed(store, before=(1.0, "a")) == []
        assert await listed(store, before=(3.0, "unknown")) == ["b", "a"]
        assert await listed(store, before=(9.0, "unknown"), limit=2) == ["e", "c"]
        assert await listed(store, before=(3.0, "e"), status=["failed"]) == ["c"]
        assert await listed(store, before=(3.0, "c"), status=["failed", "running"], parent="p") == ["d", "b", "a"]
        assert await listed(store, before=(3.0, "d"), prefix="b") == ["b"]

    async def test_many_runs_are_listed(self, store: Store) -> None:
        """A few hundred runs are listed whole, or as many as asked for."""
        for n in range(300):
            await store.create(Head(f"run-{n:03}", created_at=float(n)))
        assert await listed(store) == [f"run-{n:03}" for n in reversed(range(300))]
        assert len(await store.heads(prefix="run-1", limit=40)) == 40


class LeaseContract(StoreCase):
    """One process holds a run; its lease is fenced, renewed, taken over and released."""

    async def test_a_lease_names_its_holder(self, store: Store) -> None:
        """T7: the head holds host, pid, start time, fence and the last renewal."""
        await store.create(Head(RUN, status="running", created_at=1.0, updated_at=1.0))
        lease = await store.claim(RUN, ME, 50.0)
        head = await store.head(RUN)
        assert lease == Lease(RUN, ME, 1)
        assert head is not None
        expected = Head(RUN, 0, "running", "", "", 1.0, 1.0, owner=ME, fence=1, renewed_at=head.renewed_at)
        assert head == expected
        assert near(head.renewed_at, 50.0)

    async def test_a_run_may_be_made_with_its_owner(self, store: Store) -> None:
        """T7: no other process can claim a run between its creation and its first claim."""
        await store.create(Head(RUN, owner=ME, fence=1, renewed_at=5.0))
        with pytest.raises(Taken):
            await store.claim(RUN, OTHER, 6.0)
        await store.append(Batch(RUN, 0, [(7.0, b"one")], 1))
        await store.renew(Lease(RUN, ME, 1), 8.0)

    async def test_a_held_run_is_taken(self, store: Store, other: Store) -> None:
        """T7: a second claim is refused and names the run's holder, even to the holder."""
        lease = await started(store)
        for owner in (OTHER, ME):
            with pytest.raises(Taken) as refusal:
                await other.claim(RUN, owner, 2.0)
            assert refusal.value.head.owner == ME
            assert refusal.value.head.fence == lease.fence
            assert "here:11" in str(refusal.value)

    async def test_a_process_has_a_run_once(self, store: Store, other: Store) -> None:
        """T7: an owner's second claim is refused too, even at the very same moment."""
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
        """T7: a takeover names the dead holder's fence; another fence means that another claim was faster."""
        dead = await started(store)
        lease = await other.claim(RUN, OTHER, 2.0, over=dead.fence)
        assert lease.fence > dead.fence
        for over in (dead.fence, lease.fence + 1):
            with pytest.raises(Taken) as refusal:
                await store.claim(RUN, ME, 3.0, over=over)
            assert refusal.value.head.owner == OTHER

    async def test_a_thawed_holder_can_write_nothing(self, store: Store, other: Store) -> None:
        """T7: after a takeover the old holder neither appends nor renews nor releases."""
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
        head = await head_of(store)
        assert head.owner == OTHER
        assert near(head.renewed_at, 2.0)
        assert await store.blob("d") is None
        await other.append(batch(new, 1, "two, by the new holder"))
        assert await history(store) == ["one", "two, by the new holder"]

    async def test_a_released_run_is_free(self, store: Store, other: Store) -> None:
        """T7: a released lease can be claimed, with a higher fence; the old one is void then."""
        first = await started(store)
        await store.release(first)
        assert (await head_of(other)).owner is None
        with pytest.raises(Fenced):
            await store.renew(first, 2.0)
        second = await other.claim(RUN, OTHER, 3.0)
        assert second.fence > first.fence
        with pytest.raises(Fenced):
            await store.append(batch(first, 0, "late"))

    async def test_a_holder_says_that_it_lives(self, store: Store) -> None:
        """T7: a renewal changes the head alone."""
        lease = await started(store)
        before = await head_of(store)
        await store.renew(lease, 77.5)
        after = await head_of(store)
        assert near(after.renewed_at, 77.5)
        assert (after.updated_at, after.fence) == (before.updated_at, before.fence)

    async def test_of_many_claims_at_once_one_wins(self, store: Store, other: Store) -> None:
        """T7: one owner at a time, however many claims compete."""
        await store.create(Head(RUN))
        owners = [Owner("host", pid, 1.0) for pid in range(10)]
        claims = ((store, other)[owner.pid % 2].claim(RUN, owner, 1.0) for owner in owners)
        ended = await asyncio.gather(*claims, return_exceptions=True)
        [lease] = [end for end in ended if isinstance(end, Lease)]
        refusals = [end for end in ended if isinstance(end, Taken)]
        assert len(refusals) == 9
        assert {refusal.head.owner for refusal in refusals} == {lease.owner}


class NewsContract(StoreCase):
    """Waiters wake when there is news, and can give up."""

    async def test_news_that_are_there_already_need_no_waiting(self, store: Store) -> None:
        """A waiter that is behind, or asks for a filled inbox, is answered at once."""
        lease = await started(store)
        await store.append(batch(lease, 0, "one"))
        assert await store.changed(RUN, 0, 0.0)
        assert not await store.changed(RUN, 1, 0.0)
        await store.post(RUN, b"pause")
        assert await store.changed(RUN, 1, 0.0, inbox=True)
        assert not await store.changed(RUN, 1, 0.02)

    async def test_without_news_the_time_runs_out(self, store: Store) -> None:
        """A wait times out with False, for known and unknown runs."""
        await started(store)
        assert not await store.changed(RUN, 0, 0.02)
        assert not await store.changed("unknown", 0, 0.02)

    async def test_an_append_wakes_those_who_wait(self, store: Store) -> None:
        """Every waiter of the same process wakes, whatever it has seen before."""
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
        """The owner gets news of a command, however far it has read its own history."""
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
        """T7: a released run wakes possible drivers, in this process and in others; no news without a release."""
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


class RemovalContract(StoreCase):
    """Runs are removed together with all data of their own, or not at all."""

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
            assert await listed(handle) == ["kept"]
            assert await listed(handle, prefix="o", status=("completed",)) == []
            assert await listed(handle, parent="") == ["kept"]
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
        """T6: one changed run keeps all of them; a run goes only together with its follow-ups."""
        await self._rested(store, "parent", {"p": b"1"})
        await self._rested(store, "child", {"c": b"2"}, parent="parent")
        heads = [await seen(store, "parent"), await seen(store, "child")]
        unseen = {
            "a child that stays": heads[:1],
            "not there": [*heads, replace(heads[0], run="unknown")],
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

    async def test_a_run_that_is_held_is_not_removed(self, store: Store) -> None:
        """T7: a claim of any process, before or since, keeps the run."""
        await self._rested(store, "old", {"d": b"1"})
        before = await seen(store, "old")
        lease = await store.claim("old", OTHER, 5.0)
        for head in (before, await seen(store, "old")):
            with pytest.raises(Conflict):
                await store.remove([head])
        await store.release(lease)
        with pytest.raises(Conflict):  # as it was before the claim
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
        assert await listed(store) == ["live"]
        assert await store.blob("shared") == b"s", "the run that goes on needs it"
        assert [await store.blob(f"l{after}") for after in range(40)] == [b"x"] * 40
        await store.clear()  # contents that were busy when their run went
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
        """A sound store has no findings and no garbage, and giving back room harms no reader."""
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
        """Create a run of two events, at rest and without an owner."""
        await store.create(Head(run, parent=parent))
        lease = await store.claim(run, ME, 1.0)
        rows = [(2.0, f"{run} 1".encode()), (3.0, f"{run} 2".encode())]
        await store.append(Batch(run, 0, rows, lease.fence, blobs, "completed"))
        await store.release(lease)
        return lease
