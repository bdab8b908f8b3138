"""What stores that are servers have in common: lost acknowledgements, waiting for news, addresses with passwords."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

from rerail.adapters.stores.waiting import Waiters
from rerail.ports import Batch, Conflict, Fenced, Head, Lease, Row, Taken

_IN_QUERY = re.compile(r"(?i)([?&](?:ssl)?password=)[^&#]*")
ReadHead = Callable[[str], Awaitable[Head | None]]
ReadRows = Callable[[str, int, int], Awaitable[list[Row]]]


async def accept_own(batch: Batch, head_of: ReadHead, read: ReadRows) -> None:
    """Accept rows that are there already: the holder of a fence is one writer, so the same rows are its own."""
    head = await head_of(batch.run)
    if head is None:
        raise Conflict(f"there is no run {batch.run}")
    if head.fence != batch.fence:
        raise Fenced(f"run {batch.run} is at fence {head.fence}, not {batch.fence}")
    there = await read(batch.run, batch.after, len(batch.rows)) if batch.rows else []
    if not there or [(row.at, row.data) for row in there] != list(batch.rows):
        raise Conflict(f"run {batch.run} is at {head.seq}, not {batch.after}")


async def refused_claim(run: str, head_of: ReadHead) -> Lease:
    """Say why a claim took nothing. Not even one process may have a run twice: two of its engines are two owners."""
    head = await head_of(run)
    if head is None:
        raise Conflict(f"there is no run {run}")
    raise Taken(head)


async def wait_for_news(
    waiters: Waiters, look: Callable[[], Awaitable[bool]], run: str, after: int, seconds: float
) -> bool:
    """Wait until a look finds news; False once the time is over."""
    await asyncio.sleep(0)  # a caller that asks again and again must leave the loop to others
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        # Whoever waits is on the list before it looks: what is written meanwhile rings.
        woken = asyncio.ensure_future(waiters.wait(run, after, max(0.0, until - loop.time())))
        await asyncio.sleep(0)
        try:
            if await look():
                return True
            if loop.time() >= until:
                return False
            await woken
        finally:
            woken.cancel()


def shown(url: str) -> str:
    """The address as it may be shown: without its password; what is no address is shown as it is."""
    url = _IN_QUERY.sub(r"\1***", url)
    try:
        parts = urlsplit(url)
        if parts.password is None:
            # A password may hold what ends an address elsewhere; then it stands behind that, and before the host.
            return url if "@" not in parts.query + parts.fragment else f"{parts.scheme}://…"
    except ValueError:
        return url.partition("://")[0] + "://…" if "@" in url else url
    where = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{where}"))
