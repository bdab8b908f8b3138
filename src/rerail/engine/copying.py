"""Copying runs from one store to another: histories, contents, open actions; checked on arrival.

Rules of this file:
- It speaks to stores by their port alone, so any two can be copied between.
- What arrived is read again and compared; a content must have the digest it is named by.
- A run that is there already is left alone: if it is the same that is said, if it differs that is a fault.
- A run that somebody drives is not copied: its history would be cut off in the middle of a call.
- While it is copied a run has an owner in the target, too: nobody takes up half of one.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from rerail.core.texts import say
from rerail.core.values import digest
from rerail.engine.owner import this_process
from rerail.ports import Batch, Conflict, Head, Lease, Row, Store

PAGE: Final = 500  # rows that travel in one go
_DIGEST: Final = re.compile(rb'"([0-9a-f]{32})"')
_EXPECTED: Final = re.compile(rb'"blob":true|"args_blob":"')


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of one run."""

    run: str
    outcome: str  # copied | same | differs | driven | damaged
    events: int = 0
    contents: int = 0
    expired: int = 0  # contents that its events name and the source has no longer
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def ok(self) -> bool:
        """Whether the target has the run now, whole."""
        return self.outcome in ("copied", "same")


async def copy_runs(
    source: Store, target: Store, runs: list[str], is_dead: Callable[[Head], bool]
) -> AsyncIterator[Copied]:
    """Copy these runs, oldest first, or all of them; `is_dead` tells whether a run's owner is gone."""
    heads = await source.heads(limit=1_000_000_000)
    wanted = [head for head in reversed(heads) if not runs or head.run in runs]
    for listed in wanted:
        head = await source.head(listed.run) or listed  # as it is by now: others took long
        if head.owner is not None and not is_dead(head):
            yield Copied(head.run, "driven", reason=say("reason.copy.driven", owner=head.owner))
        else:
            yield await _copy(source, target, head, is_dead)


async def _copy(source: Store, target: Store, head: Head, is_dead: Callable[[Head], bool]) -> Copied:
    after, lease = 0, Lease(head.run, this_process(), head.fence)
    try:
        await target.create(_empty(head, lease))
    except Conflict:
        there = await target.head(head.run)
        # A copy that was cut off goes on where it stopped.
        if there is None or there.seq >= head.seq or (there.owner is not None and not is_dead(there)):
            return await _compared(source, target, head)
        begun = await _compared(source, target, head, there.seq)
        if begun.outcome != "same":
            return begun
        after, lease = there.seq, await target.claim(head.run, lease.owner, time.time(), over=there.fence)
    try:
        return await _filled(source, target, head, lease, after)
    finally:
        await target.release(lease)


async def _filled(source: Store, target: Store, head: Head, lease: Lease, after: int) -> Copied:
    contents = expired = 0
    there = {data for _, data in await target.inbox(head.run)}
    for _, data in await source.inbox(head.run):  # before the last rows: a copy cut off is known by what is missing
        if data not in there:
            await target.post(head.run, data)
    while rows := await source.read(head.run, after, PAGE):
        blobs, missing, damaged = await _contents(source, rows)
        if damaged:
            return Copied(head.run, "damaged", after, contents, expired, say("reason.copy.damaged", digest=damaged))
        last = after + len(rows) >= head.seq
        batch = Batch(
            head.run, after, [(row.at, row.data) for row in rows], lease.fence, blobs,
            head.status if last else "", head.objective if last else "",
        )  # fmt: skip
        await target.append(batch)
        await target.renew(lease, time.time())
        after, contents, expired = after + len(rows), contents + len(blobs), expired + missing
    seen = await _compared(source, target, head)
    return Copied(head.run, "copied", after, contents, expired) if seen.outcome == "same" else seen


def _empty(head: Head, lease: Lease) -> Head:
    """The head of a run with an empty history, and an owner: nobody may take it for a finished one, or take it up."""
    return Head(
        head.run, 0, "pending", head.objective, head.parent, head.created_at, head.updated_at, lease.owner, lease.fence,
        time.time(),
    )  # fmt: skip


async def _compared(source: Store, target: Store, head: Head, most: int = 1_000_000_000) -> Copied:
    """Whether the target has the same history, row for row, and every content it names; so far, or to its end."""
    after = contents = 0
    while True:
        page = min(PAGE, most - after)
        ours = await source.read(head.run, after, page) if page else []
        theirs = await target.read(head.run, after, page) if page else []
        if ours != theirs:
            return Copied(head.run, "differs", after, contents, reason=say("reason.copy.differs", seq=after + 1))
        if not ours:
            return Copied(head.run, "same", after, contents)
        for name in _named(ours):
            here, there = await source.blob(name), await target.blob(name)
            if here is not None and here != there:
                return Copied(head.run, "differs", after, contents, reason=say("reason.copy.damaged", digest=name))
            contents += here is not None
        after += len(ours)


async def _contents(source: Store, rows: list[Row]) -> tuple[dict[str, bytes], int, str]:
    """The contents that rows name, how many are gone, and one that is not what its name says, if there is one."""
    found: dict[str, bytes] = {}
    missing = 0
    for row in rows:
        names = _named([row])
        here = {name: data for name in names if (data := await source.blob(name)) is not None}
        for name, data in here.items():
            if digest(data) != name:
                return found, missing, name
        if _EXPECTED.search(row.data) and not here:
            missing += 1
        found |= here
    return found, missing, ""


def _named(rows: list[Row]) -> list[str]:
    """Everything in these events that may be the name of a content: what none is, is in no store."""
    return list(dict.fromkeys(name.decode() for row in rows for name in _DIGEST.findall(row.data)))
