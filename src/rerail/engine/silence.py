"""How long an owner elsewhere has really been silent: only what was seen counts (SPEC T7, E4).

Rules of this file:
- Of a process on another machine nothing can be seen but its lease. Whoever watches it for `EXPIRED_AFTER`, while the
  store answers, and sees no renewal, takes that process for dead.
- The age of a lease alone proves nothing: while a store is away nobody can renew, and when it is back every lease is
  old and every owner lives. One that does renews within seconds, well before whoever watches gives up on it.
- Time is the event loop's: a wall clock that jumps, here or at the store, kills nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rerail.engine.owner import EXPIRED_AFTER, is_arriving, is_dead, is_here
from rerail.ports import Head

WATCH_EVERY = 1.0  # seconds between two looks at an owner elsewhere that seems dead
LOOK_GAP = 10.0  # seconds between two looks beyond which the store may have been away: then the watch begins anew
MANY = 1_000  # leases; beyond, those that nobody looks at any more are forgotten


@dataclass(slots=True)
class _Sight:
    fence: int
    since: float  # when the watch began, or the lease was renewed under it
    last: float  # when it was looked at


class Watch:
    """What one process has seen of leases that are held elsewhere."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sight] = {}
        self._most = MANY

    def is_dead(self, head: Head, now: float) -> bool:
        """Look at a lease; whether its owner is known to be gone."""
        if head.owner is None or is_arriving(head) or is_here(head.owner):
            return is_dead(head, now)
        at = asyncio.get_running_loop().time()
        seen = self._seen.get(head.run)
        if seen is None or seen.fence != head.fence or at - seen.last > LOOK_GAP:
            if len(self._seen) >= self._most:
                self._seen = {run: one for run, one in self._seen.items() if at - one.last <= LOOK_GAP}
                self._most = max(MANY, 2 * len(self._seen))  # else all would be gone through for each new one
            self._seen[head.run] = seen = _Sight(head.fence, at, at)
        seen.since, seen.last = min(at, max(seen.since, at - (now - head.renewed_at))), at
        return at - seen.since > EXPIRED_AFTER
