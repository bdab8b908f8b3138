"""Prune: remove runs that are no longer needed.

Rules of this file:
- Runs are removed by families: a run with all its descendants, or none of them (T6).
- A family goes once every run in it has been at rest for long enough, without an owner and without an unanswered
  command. The list of runs is not trusted alone: the end of the history has to agree.
- Stores are accessed by their port alone. The store detects changes between the check and the removal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rerail.engine.runs.reader import AT_REST, FORGOTTEN, LAST
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.codec import Damaged, NewerFormat, decode
from rerail.ports import Conflict, Head, Store

ALL: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result for one run, actual or planned."""

    run: str
    outcome: str  # removed | due (it would be removed) | kept
    status: str
    updated_at: float
    events: int = 0
    reason: str = ""  # why it is kept, although it is old enough

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """The conditions of removal."""

    before: float  # the last event of each run is older than that
    status: Collection[str] = AT_REST  # the allowed statuses of all runs of a family
    keep: int = 0  # so many of the newest stay, at any age


async def prune(
    store: Store, wanted: PruneRequest, *, dry_run: bool = False
) -> AsyncIterator[tuple[list[Pruned], int]]:
    """Remove families of runs, the oldest first; report each run's result, and the number of removed contents."""
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
    """Return runs with their descendants, the newest family first; each begins with its root."""
    known = {head.run: head for head in heads if head.run != FORGOTTEN}
    families: dict[str, list[Head]] = {}
    for head in known.values():
        families.setdefault(_first(head, known), []).append(head)
    found = [sorted(family, key=lambda one: one.run != first) for first, family in families.items()]
    return sorted(found, key=lambda family: max(head.updated_at for head in family), reverse=True)


def _first(head: Head, known: dict[str, Head]) -> str:
    """Return the root of a run's family; a run with a missing parent is a root itself."""
    seen = {head.run}
    while head.parent in known and head.parent not in seen:
        head = known[head.parent]
        seen.add(head.run)
    return head.run


async def _why_not(store: Store, family: list[Head], status: Collection[str]) -> str:
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
    """True if the history itself says that the run is at rest: only notices follow its `done` (X5)."""
    rows = await store.read(head.run, max(0, head.seq - LAST), LAST)
    for row in reversed(rows):
        event = decode(row.data)
        if not isinstance(event, ev.Notified):
            return isinstance(event, ev.Done)
    return False
