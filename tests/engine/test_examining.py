"""A look at a store that is in use: what moves meanwhile is no damage (E5, E6, T7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.maintenance.health_check import examine
from rerail.kernel import events as ev
from rerail.kernel.codec import encode
from rerail.ports import Batch, Head, Owner, Unusable
from rerail.values.json_values import digest

ME = Owner("h", 1, 1.0)
DONE = encode(ev.Done("completed", True, True, False))
BIG = b"x" * 3000


class Meanwhile(MemoryStore):
    """A store in which something happens once its runs were listed, or once a history was read."""

    then: Callable[[], Awaitable[Any]] | None = None
    when = "listed"

    async def heads(self, **wanted: Any) -> list[Head]:
        """The runs as they were a moment ago."""
        found = await super().heads(**wanted)
        if self.then is not None and self.when == "listed":
            await self.then()
        return found

    async def blob(self, digest: str) -> bytes | None:
        """A content as it is a moment later."""
        if self.then is not None and self.when == "read":
            await self.then()
        return await super().blob(digest)


async def rested(store: MemoryStore, *rows: bytes, status: str = "completed", **blobs: bytes) -> Head:
    """A run that lists show so, with these events."""
    await store.create(Head("r", created_at=1.0))
    lease = await store.claim("r", ME, 1.0)
    contents = {digest(data): data for data in blobs.values()}
    await store.append(Batch("r", 0, [(1.0, row) for row in rows], lease.fence, contents, status))
    await store.release(lease)
    head = await store.head("r")
    assert head is not None
    return head


async def kinds(store: MemoryStore) -> list[str]:
    return [finding.kind async for finding in examine(store, None, 10.0)]


@pytest.mark.parametrize("held", [True, False])
async def test_a_run_that_goes_on_while_it_is_looked_at_is_not_damaged(held: bool) -> None:
    """T7: its history is longer than the list said, and does not end as the list said."""
    store = Meanwhile()
    head = await rested(store, encode(ev.RunStarted("o")), DONE)
    assert await kinds(store) == []

    async def retried() -> None:
        lease = await store.claim("r", ME, 10.0)
        await store.append(Batch("r", head.seq, [(3.0, encode(ev.Resumed("me")))], lease.fence, {}, "running"))
        if not held:
            await store.release(lease)

    store.then = retried
    assert await kinds(store) == []


@pytest.mark.parametrize("when", ["listed", "read"])
async def test_a_run_that_is_removed_while_it_is_looked_at_is_not_damaged(when: str) -> None:
    """E6: neither its history nor its contents are missed."""
    store = Meanwhile()
    made = ev.StepSucceeded("a", 1, digest=digest(BIG), size=len(BIG), blob=True)
    failed = encode(ev.Done("failed", False, True, False))
    head = await rested(store, encode(made), failed, status="failed", big=BIG)
    assert await kinds(store) == []
    store.then, store.when = lambda: store.remove([head]), when
    assert await kinds(store) == []


async def test_a_run_that_stands_still_and_does_not_fit_is_damaged() -> None:
    """E5: a second look at the list does not excuse it."""
    store = MemoryStore()
    await rested(store, encode(ev.RunStarted("o")), encode(ev.Resumed("me")))
    assert await kinds(store) == ["history"]


class Torn(MemoryStore):
    """A store that cannot read one of its contents."""

    torn = ""

    async def blob(self, digest: str) -> bytes | None:
        """A content, if it can be read."""
        if digest == self.torn:
            raise Unusable("the page is broken")
        return await super().blob(digest)


async def test_a_content_that_cannot_be_read_hides_nothing_else_of_its_run() -> None:
    """E5, E6: it is told of its step, and so is the next one, which is only missing."""
    store = Torn()
    store.torn = digest(BIG)
    lost = digest(b"y" * 3000)
    rows = [
        ev.StepStarted("a", 1, "t", args_blob=lost),
        ev.StepSucceeded("a", 1, digest=digest(BIG), blob=True),
        ev.Done("failed", False, False, False),
    ]
    await rested(store, *map(encode, rows), status="failed", big=BIG)
    found = {finding.detail: finding async for finding in examine(store, None, 10.0)}
    assert list(found) == [
        f"what step a was called with (content {lost}) is missing",
        f"the output of step a (content {digest(BIG)}) cannot be read: the page is broken",
    ]
    for finding in found.values():
        assert (finding.kind, finding.where) == ("content", "r")
        assert finding.hint.endswith("rerail retry r --step a --force")
