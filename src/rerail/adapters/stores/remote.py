"""Shared parts of server stores: lost acknowledgements, URLs with passwords."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit, urlunsplit

from rerail.adapters.stores.shared import Waiters, require_own
from rerail.i18n import Told
from rerail.ports import Batch, Conflict, Head, Lease, Row, Store, Taken

_IN_QUERY = re.compile(r"(?i)([?&](?:ssl)?password=)[^&#]*")
ReadHead = Callable[[str], Awaitable[Head | None]]
ReadRows = Callable[[str, int, int], Awaitable[list[Row]]]


async def accept_own(batch: Batch, head_of: ReadHead, read: ReadRows) -> None:
    """Accept rows that are stored already."""
    head = await head_of(batch.run)
    there = await read(batch.run, batch.after, len(batch.rows)) if head is not None and batch.rows else []
    require_own(batch, None if head is None else (head.fence, head.seq), there)


async def refused_claim(run: str, head_of: ReadHead) -> Lease:
    """Raise the cause of a failed claim. Two engines of one process are two owners: one run, one engine."""
    head = await head_of(run)
    if head is None:
        raise Conflict(f"there is no run {run}")
    raise Taken(head)


def shown(url: str) -> str:
    """Return the URL without its password; a malformed URL stays as it is."""
    url = _IN_QUERY.sub(r"\1***", url)
    try:
        parts = urlsplit(url)
        if parts.password is None:
            # A password may hold characters that end a host elsewhere; then it stands behind them, and before the host.
            return url if "@" not in parts.query + parts.fragment else f"{parts.scheme}://…"
    except ValueError:
        return url.partition("://")[0] + "://…" if "@" in url else url
    where = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{where}"))


class ServerStore(Store):
    """What the stores on a server have in common: the address, the waiters, two clocks."""

    caveats: Sequence[Told] = ()  # data loss that the server's settings permit

    def __init__(self, url: str, answer_seconds: float, clock: Callable[[], float]) -> None:
        self._url, self._patience, self._clock = url, answer_seconds, clock
        self._where = shown(url)
        self._waiters = Waiters()

    @property
    def url(self) -> str:
        """Return the store's URL without its password."""
        return self._where

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        return await self._waiters.any_freed(timeout)

    async def shrink(self) -> int:
        """Do nothing: the server reuses or frees room by itself."""
        return 0
