"""Care for the tables of a Postgres store: runs that go, and what is left of runs that are gone.

Rules of this file:
- A run goes in one transaction, with everything of it: nobody ever sees half of one.
- Contents are shared. Whoever is about to name one holds its row; then it is left alone, and whoever clears up later
  finds it, if nobody needed it after all. Nobody waits for a second row while holding one: that could be a circle.
- A history whose run is not listed is somebody's loss, and no rubbish: neither it nor what it needs is ever cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from rerail.adapters.stores.postgres_link import Link
from rerail.ports import Conflict, Flaw, Head

_SEEN: Final = """
    SELECT run, seq, fence, status, host FROM rerail.runs WHERE run = ANY(%(runs)s) ORDER BY run FOR UPDATE
    """
_CHILDREN: Final = "SELECT run FROM rerail.runs WHERE parent = ANY(%(runs)s) AND run <> ALL(%(runs)s) LIMIT 1"
_NAMED: Final = "DELETE FROM rerail.run_blobs WHERE run = ANY(%(runs)s) RETURNING digest"
_HELD: Final = "SELECT digest FROM rerail.blobs WHERE digest = ANY(%(digests)s) FOR UPDATE SKIP LOCKED"
_LOOSE: Final = """
    DELETE FROM rerail.blobs WHERE digest = ANY(%(digests)s)
        AND NOT EXISTS (SELECT 1 FROM rerail.run_blobs WHERE run_blobs.digest = blobs.digest) RETURNING digest
    """
_GONE: Final[Sequence[LiteralString]] = (
    "DELETE FROM rerail.events WHERE run = ANY(%(runs)s)",
    "DELETE FROM rerail.inbox WHERE run = ANY(%(runs)s)",
    "DELETE FROM rerail.runs WHERE run = ANY(%(runs)s)",
)
# Every run that has events, by steps over the index: a look at each event would take as long as there are events.
_DRIVEN: Final = """
    WITH RECURSIVE driven(run) AS (
        (SELECT run FROM rerail.events ORDER BY run LIMIT 1)
        UNION ALL
        SELECT (SELECT run FROM rerail.events WHERE events.run > driven.run ORDER BY run LIMIT 1)
        FROM driven WHERE run IS NOT NULL
    )
    SELECT run FROM driven WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM rerail.runs)
    """
_NO_NAME: Final = """
    SELECT digest FROM rerail.blobs WHERE NOT EXISTS (
        SELECT 1 FROM rerail.run_blobs WHERE run_blobs.digest = blobs.digest AND (
            EXISTS (SELECT 1 FROM rerail.runs WHERE runs.run = run_blobs.run)
            OR EXISTS (SELECT 1 FROM rerail.events WHERE events.run = run_blobs.run)
        )
    )
    """
_UNNAMED: Final = """
    DELETE FROM rerail.run_blobs WHERE digest = ANY(%(digests)s) AND run NOT IN (SELECT run FROM rerail.runs)
        AND NOT EXISTS (SELECT 1 FROM rerail.events WHERE events.run = run_blobs.run)
    """
_OF_NO_RUN: Final = """
    FROM rerail.inbox WHERE run NOT IN (SELECT run FROM rerail.runs)
        AND NOT EXISTS (SELECT 1 FROM rerail.events WHERE events.run = inbox.run)
    """
_ASKED: Final = "SELECT count(*)" + _OF_NO_RUN
_UNASKED: Final = "DELETE" + _OF_NO_RUN + "RETURNING number"


async def remove(link: Link, heads: Sequence[Head]) -> int:
    """Remove runs and what only they need; `Conflict`, and nothing is written, if one is not as it was seen."""
    wanted = {head.run: (head.seq, head.fence, head.status, None) for head in heads}
    runs = list(wanted)
    found = {run: tuple(rest) for run, *rest in await _rows(link, _SEEN, runs=runs)}
    for run, seen in wanted.items():
        if found.get(run) != seen:
            raise Conflict(f"run {run} is not as it was")
    if await _rows(link, _CHILDREN, runs=runs):
        raise Conflict("a run that stays follows one of these")
    named = [digest for (digest,) in await _rows(link, _NAMED, runs=runs)]
    dropped = await _dropped(link, named)
    for sql in _GONE:
        await link.execute(sql, {"runs": runs})
    return dropped


async def clear(link: Link) -> int:
    """Drop actions that are of no run, and contents that no run refers to; histories stay, and what they need."""
    asked = await _rows(link, _UNASKED)
    loose = [digest for (digest,) in await _rows(link, _NO_NAME)]
    await link.execute(_UNNAMED, {"digests": loose})
    return len(asked) + await _dropped(link, loose)


async def examine(link: Link) -> list[Flaw]:
    """What is left of runs that are not there."""
    [(asked,)] = await _rows(link, _ASKED)
    counts = {
        "histories": len(await _rows(link, _DRIVEN)), "actions": asked, "contents": len(await _rows(link, _NO_NAME))
    }  # fmt: skip
    return [Flaw("orphans", what, count) for what, count in counts.items() if count]


async def _dropped(link: Link, digests: Sequence[str]) -> int:
    """Drop those of these contents that no run refers to and nobody is busy with."""
    held = [digest for (digest,) in await _rows(link, _HELD, digests=list(digests))]
    return len(await _rows(link, _LOOSE, digests=held))  # a statement of its own: it sees who named one meanwhile


async def _rows(link: Link, sql: LiteralString, **values: Any) -> list[Any]:
    return await (await link.execute(sql, values)).fetchall()
