"""Runs that nobody needs any more: which they are, and how they go.

Rules of this file:
- Runs go by families: a run with all that follow it, and all that follow those, or none of them (T6).
- A family goes once every one of its runs has been at rest for long enough, is nobody's, and nobody waits for an answer
  of it. What the list of runs says of that is not believed alone: the end of the history has to say so too.
- It speaks to stores by their port alone. What became of a run between the look and the removal, the store notices.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rerail.core import events as ev
from rerail.core.codec import Damaged, NewerFormat, decode
from rerail.engine.reading import AT_REST, FORGOTTEN, LAST
from rerail.i18n import tell
from rerail.ports import Conflict, Head, Store

ALL: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of one run, or would."""

    run: str
    outcome: str  # removed | due (it would go) | kept
    status: str
    updated_at: float
    events: int = 0
    reason: str = ""  # why it is kept, although it is old enough

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs may go."""

    before: float  # the last event of each is older than that
    status: Collection[str] = AT_REST  # what all of a family came to
    keep: int = 0  # so many of the newest stay, whatever their age


async def prune(store: Store, wanted: Wanted, *, dry_run: bool = False) -> AsyncIterator[tuple[list[Pruned], int]]:
    """Remove families of runs, the oldest first; tells of each what became of its runs, and how many contents went."""
    for family in reversed(_families(await store.heads(limit=ALL))[wanted.keep :]):
        ended_otherwise = family[0].status in AT_REST and family[0].status not in wanted.status
        if ended_otherwise or max(head.updated_at for head in family) >= wanted.before:
            continue
        reason = await _why_not(store, family, wanted.status)
        dropped = 0
        if not reason and not dry_run:
            try:
                dropped = await store.remove(family)
            except Conflict:
                reason = tell("reason.prune.moved_on")
        outcome = "kept" if reason else "due" if dry_run else "removed"
        yield [_row(head, outcome, reason) for head in family], dropped


def _row(head: Head, outcome: str, reason: str) -> Pruned:
    return Pruned(head.run, outcome, head.status, head.updated_at, head.seq, reason)


def _families(heads: Iterable[Head]) -> list[list[Head]]:
    """Runs with all that follow them, the newest family first; each begins with the run that the others follow."""
    known = {head.run: head for head in heads if head.run != FORGOTTEN}
    families: dict[str, list[Head]] = {}
    for head in known.values():
        families.setdefault(_first(head, known), []).append(head)
    found = [sorted(family, key=lambda one: one.run != first) for first, family in families.items()]
    return sorted(found, key=lambda family: max(head.updated_at for head in family), reverse=True)


def _first(head: Head, known: dict[str, Head]) -> str:
    """The run that a run follows, at the end of the line; one whose parent is gone begins a family of its own."""
    seen = {head.run}
    while head.parent in known and head.parent not in seen:
        head = known[head.parent]
        seen.add(head.run)
    return head.run


async def _why_not(store: Store, family: list[Head], status: Collection[str]) -> str:
    """Why a family must stay; empty if it may go."""
    for head in family:
        if head.status not in AT_REST or head.status not in status:
            return tell("reason.prune.unfinished", run=head.run, status=head.status)
        if head.owner is not None:
            return tell("reason.prune.owned", run=head.run, owner=head.owner)
        if await store.inbox(head.run):
            return tell("reason.prune.asked", run=head.run)
        try:
            if not await _has_ended(store, head):
                return tell("reason.prune.unfinished", run=head.run, status=head.status)
        except (Damaged, NewerFormat) as error:
            return tell("reason.prune.unreadable", run=head.run, error=error)
    return ""


async def _has_ended(store: Store, head: Head) -> bool:
    """Whether the history itself says that the run is at rest: behind its `done` nothing but notices follows (X5)."""
    rows = await store.read(head.run, max(0, head.seq - LAST), LAST)
    for row in reversed(rows):
        event = decode(row.data)
        if not isinstance(event, ev.Notified):
            return isinstance(event, ev.Done)
    return False
