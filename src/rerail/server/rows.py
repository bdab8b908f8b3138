"""The list of runs: rows as `ls --json` prints them with what people call their status; pages; and what changes (I4).

Rules of this file:
- A row is worked out again only if its run has moved: lists are looked at often, and most runs are long over.
- Whoever watches the list shares one look at the store with all others who do.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from rerail.core.pipeline import failed_stage, shown_status
from rerail.core.verdict import verdict
from rerail.engine.owner import is_dead
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.ports import Head
from rerail.server.plain import encode, number_of
from rerail.server.tails import BATCH
from rerail.wiring import Engine

FEW_EVENTS = 5_000  # of a run that is folded for a list
MOST_ROWS = 5_000  # rows that are remembered
WATCHED = 200  # of the newest runs that somebody who watches the list is told of at once
LOOK_EVERY = 0.4  # seconds
LINGERS = 60.0  # seconds that the list is watched for somebody who comes back
KEPT = 20_000  # of the latest news
ACTIVE = ("pending", "running", "waiting")

Row = dict[str, Any]


class Rows:
    """Rows of runs, remembered until their runs move."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[tuple[Any, ...], Row]] = OrderedDict()

    async def row(self, head: Head) -> Row:
        """A run as lists show it: as `ls` does, and what people call its status, and how its steps are."""
        interrupted = head.status == "running" and is_dead(head, time.time())
        key = (head.seq, head.status, str(head.owner), interrupted)
        known = self._known.get(head.run)
        if known is not None and known[0] == key:
            self._known.move_to_end(head.run)
            return known[1]
        found = await self._engine.row(head)
        try:
            row = {**found.to_dict(), **await self._folded(head)}
        except RerailError:  # its history cannot be read; that is no reason not to list it, and the others
            return {**found.to_dict(), **_unfolded(head)}
        self._known[head.run] = (key, row)
        self._known.move_to_end(head.run)
        while len(self._known) > MOST_ROWS:
            self._known.popitem(last=False)
        return row

    async def _folded(self, head: Head) -> Row:
        if head.seq > FEW_EVENTS or not head.seq:
            return _unfolded(head)
        state = await self._engine.state(head.run)
        counts = {str(status): count for status, count in verdict(state).counts.items() if count}
        return {"shown_status": shown_status(state), "failed_stage": failed_stage(state), "counts": counts}

    async def page(
        self, *, status: Sequence[str], parent: str | None, words: str, limit: int, cursor: str | None
    ) -> tuple[list[Row], str | None]:
        """So many runs, newest first, from a place on; and the place where the next ones begin."""
        before = _read_cursor(cursor) if cursor else None
        stored = tuple(dict.fromkeys("running" if word == "interrupted" else word for word in status))
        rows: list[Row] = []
        want = 2 * limit if words else limit + 2  # one more tells that there are more; one may be no run at all
        while True:
            heads = await self._engine.heads(status=stored, parent=parent, before=before, limit=want)
            for head in heads:
                if not _matches(head, words):
                    continue
                row = await self.row(head)
                if status and ("interrupted" if row["interrupted"] else row["status"]) not in status:
                    continue
                if len(rows) == limit:
                    return rows, _cursor(rows[-1])
                rows.append(row)
            if len(heads) < want - 1:
                return rows, None
            before, want = (heads[-1].created_at, heads[-1].run), min(2 * want, MOST_ROWS)


def _unfolded(head: Head) -> Row:
    return {"shown_status": head.status, "failed_stage": "", "counts": None}


def _matches(head: Head, words: str) -> bool:
    return not words or words in head.run.lower() or words in head.objective.lower()


def _cursor(row: Row) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([row["created_at"], row["run_id"]])).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[float, str]:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        at, run = msgspec.json.decode(data, type=tuple[float, str])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Refused(tell("refuse.server.cursor"), "USAGE") from None
    return at, run


# -- Watching -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class News:
    """Something that those who watch the list are told."""

    number: int
    name: str
    data: bytes
    ident: str  # the place behind it, for those who may come back


class Watch:
    """The list as it changes, and all events if somebody wants them."""

    def __init__(self, engine: Engine, rows: Rows) -> None:
        self.number = 0
        self._engine = engine
        self._rows = rows
        self._epoch = secrets.token_hex(4)
        self._news: list[News] = []
        self._shown: dict[str, bytes] = {}  # newest first
        self._print = 0  # of all rows together: who has seen the same has missed nothing, whoever showed it
        self._heads: dict[str, Head] = {}
        self._seen: dict[str, int] = {}  # runs → their last event that was told
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._users = 0
        self._wants_events = False  # somebody does, or did a moment ago and may come back
        self._left_at = 0.0
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def watched(self, *, events: bool) -> AsyncIterator[Watch]:
        """The list, for as long as somebody watches it."""
        async with self._opening:
            if self._task is None:
                await self._look(first=True)
                self._task = asyncio.create_task(self._go_on())
            self._users += 1
            self._wants_events = self._wants_events or events
        try:
            yield self
        finally:
            self._users -= 1
            self._left_at = time.monotonic()

    async def _go_on(self) -> None:
        while self._users or time.monotonic() - self._left_at < LINGERS:
            await asyncio.sleep(LOOK_EVERY)
            with contextlib.suppress(RerailError):
                await self._look()
        self._task = None
        self._wants_events = False
        self._epoch = secrets.token_hex(4)  # what happens from now on is told to nobody

    async def close(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self, *, first: bool = False) -> None:
        newest = await self._engine.heads(limit=WATCHED)
        heads = {head.run: head for head in [*newest, *await self._engine.heads(status=ACTIVE, limit=100_000)]}
        oldest = newest[-1].created_at if len(newest) >= WATCHED - 1 else 0.0
        for run, was in self._heads.items():
            if run in heads or (was.status not in ACTIVE and was.created_at <= oldest):
                continue  # most that are not listed any more are only too old for that
            try:
                heads[run] = await self._engine.head(run)  # an old one came to its end
            except Refused:  # it was removed: nobody else's news wait for it
                self._show(run, None)
                self._seen.pop(run, None)
                self._add("gone", encode({"run_id": run}))
        if first:
            self._shown.clear()
            self._print = 0
        for head in reversed(heads.values()):
            if first or not self._wants_events:
                self._seen[head.run] = head.seq
            else:
                with contextlib.suppress(RerailError):  # one history that cannot be read is one run's trouble
                    await self._events(head)
            row = encode(await self._rows.row(head))
            if self._shown.get(head.run) != row:
                self._show(head.run, row)
                if not first:
                    self._add("run", row)
        self._heads = heads
        self._tell()

    def _show(self, run: str, row: bytes | None) -> None:
        old = self._shown.pop(run, None) if row is None else self._shown.get(run)
        if row is not None:
            self._shown[run] = row
        for one in (old, row):
            if one is not None:
                self._print ^= int.from_bytes(blake2b(one, digest_size=8).digest())

    def _tell(self) -> None:
        old, self._more = self._more, asyncio.Event()
        old.set()

    async def _events(self, head: Head) -> None:
        seen = self._seen.get(head.run, 0)
        while seen < head.seq:
            records = await self._engine.page(head.run, seen, BATCH)
            if not records:
                break
            for record in records:
                self._add(record.type, encode(record.to_dict()))
            self._seen[head.run] = seen = records[-1].seq  # at once: what was told is not told again
            self._tell()  # in small portions, so that one busy run throws nobody out who keeps up

    def _add(self, name: str, data: bytes) -> None:
        self.number += 1
        self._news.append(News(self.number, name, data, self.here()))
        if len(self._news) > 2 * KEPT:
            del self._news[:-KEPT]

    # -- For readers ----------------------------------------------------------------------------------------------

    def here(self) -> str:
        """The place behind the latest news, for those who may come back: to this process, or to another."""
        return f"{self._epoch}.{self.number}.{self._print:016x}"

    def place(self, ident: str) -> int | None:
        """Where somebody was who comes back; None if nobody knows any more, and something was missed."""
        epoch, number, seen = [*ident.split("."), "", ""][:3]
        at = number_of(number, -1)
        if epoch == self._epoch and 0 <= at <= self.number and self.after(at, 1) is not None:
            return at
        # Another process, or a later watch. Each row has how many events its run has: the same rows are all there is.
        return self.number if seen == f"{self._print:016x}" else None

    def rows(self) -> Iterator[bytes]:
        """All rows as they are, the oldest first, so that whoever puts each on top has them in order."""
        yield from self._shown.values()

    def after(self, number: int, limit: int = KEPT) -> list[News] | None:
        """What was told next after a place; None if that is too long ago."""
        if number >= self.number:
            return []
        if not self._news or self._news[0].number > number + 1:
            return None
        begin = number + 1 - self._news[0].number
        return self._news[begin : begin + limit]

    async def wait(self, number: int, seconds: float) -> bool:
        """Wait for news; False once the time is over."""
        more = self._more
        until = asyncio.get_running_loop().time() + seconds
        while self.number <= number:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await more.wait()
            more = self._more
        return True
