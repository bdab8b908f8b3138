"""The list of runs: rows as in `ls --json`, pages, and a feed of changes (contract I4).

Rules of this file:
- A row is rebuilt only after its run has changed: lists are read often, and most runs are long over.
- All readers of the feed share one read of the store.
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

from rerail.api import Engine
from rerail.engine.runs.owner import is_interrupted
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.kernel.stages import failed_stage, shown_status
from rerail.kernel.verdict import verdict
from rerail.ports import Head
from rerail.server.feeds.runs import BATCH, FeedSignal, Following
from rerail.server.json import encode, number_of

FEW_EVENTS = 5_000  # largest history that a list folds
MOST_ROWS = 5_000  # rows that are cached
WATCHED = 200  # newest runs that a reader of the feed gets at once
LOOK_EVERY = 0.4  # seconds
IDLE_TTL = 60.0  # seconds that a feed without readers goes on
RETAINED_NEWS = 20_000
ACTIVE = ("pending", "running", "waiting")

Row = dict[str, Any]


class Rows:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[tuple[Any, ...], Row]] = OrderedDict()

    async def row(self, head: Head) -> Row:
        """Return a run's row as in `ls`, with its display status and its step counts."""
        interrupted = is_interrupted(head, time.time())
        key = (head.seq, head.status, str(head.owner), interrupted)
        known = self._known.get(head.run)
        if known is not None and known[0] == key:
            self._known.move_to_end(head.run)
            return known[1]
        found = await self._engine.internals.row(head)
        try:
            row = {**found.to_dict(), **await self._folded(head)}
        except RerailError:  # an unreadable history hides neither its run nor the others
            return {**found.to_dict(), **_unfolded(head)}
        self._known[head.run] = (key, row)
        self._known.move_to_end(head.run)
        while len(self._known) > MOST_ROWS:
            self._known.popitem(last=False)
        return row

    async def _folded(self, head: Head) -> Row:
        if head.seq > FEW_EVENTS or not head.seq:
            return _unfolded(head)
        state = await self._engine.internals.state(head.run)
        counts = {str(status): count for status, count in verdict(state).counts.items() if count}
        return {"shown_status": shown_status(state), "failed_stage": failed_stage(state), "counts": counts}

    async def page(
        self, *, status: Sequence[str], parent: str | None, words: str, limit: int, cursor: str | None
    ) -> tuple[list[Row], str | None]:
        """Return so many runs, newest first, from a position on; and the position of the next page."""
        before = _read_cursor(cursor) if cursor else None
        stored = tuple(dict.fromkeys("running" if word == "interrupted" else word for word in status))
        rows: list[Row] = []
        want = 2 * limit if words else limit + 2  # one more shows that there is a next page; one may have no run
        while True:
            heads = await self._engine.internals.heads(status=stored, parent=parent, before=before, limit=want)
            for head in heads:
                if words not in head.run.lower() and words not in head.objective.lower():
                    continue
                row = await self.row(head)
                if status and ("interrupted" if row["interrupted"] else row["status"]) not in status:
                    continue
                if len(rows) == limit:
                    place = msgspec.json.encode([rows[-1]["created_at"], rows[-1]["run_id"]])
                    return rows, base64.urlsafe_b64encode(place).decode().rstrip("=")
                rows.append(row)
            if len(heads) < want - 1:
                return rows, None
            before, want = (heads[-1].created_at, heads[-1].run), min(2 * want, MOST_ROWS)


def _unfolded(head: Head) -> Row:
    return {"shown_status": head.status, "failed_stage": "", "counts": None}


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
    number: int
    name: str
    data: bytes
    ident: str  # the position behind it, for a reader that comes back


class RunListFeed(Following):
    """The list as it changes, and all events if a reader wants them."""

    def __init__(self, engine: Engine, rows: Rows) -> None:
        self.number = 0
        self._engine = engine
        self._rows = rows
        self._epoch = secrets.token_hex(4)
        self._news: list[News] = []
        self._shown: dict[str, bytes] = {}  # newest first
        self._print = 0  # hash of all rows: an equal one in any process means that no change was missed
        self._heads: dict[str, Head] = {}
        self._seen: dict[str, int] = {}  # runs → their last announced event
        self._more = FeedSignal()
        self._wants_events = False  # a reader does, or did a moment ago and may come back
        self._left_at = 0.0
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def watched(self, *, events: bool) -> AsyncIterator[RunListFeed]:
        """Open the feed for one reader."""
        async with self._opening:
            if self._task is None:
                await self._look(first=True)
                self._task = asyncio.create_task(self._go_on())
            self.users += 1
            self._wants_events = self._wants_events or events
        try:
            yield self
        finally:
            self.users -= 1
            self._left_at = time.monotonic()

    async def _go_on(self) -> None:
        while self.users or time.monotonic() - self._left_at < IDLE_TTL:
            await asyncio.sleep(LOOK_EVERY)
            with contextlib.suppress(RerailError):
                await self._look()
        self._task = None
        self._wants_events = False
        self._epoch = secrets.token_hex(4)  # from now on no news is recorded

    async def _look(self, *, first: bool = False) -> None:
        newest = await self._engine.internals.heads(limit=WATCHED)
        heads = {
            head.run: head for head in [*newest, *await self._engine.internals.heads(status=ACTIVE, limit=100_000)]
        }
        oldest = newest[-1].created_at if len(newest) >= WATCHED - 1 else 0.0
        for run, was in self._heads.items():
            if run in heads or (was.status not in ACTIVE and was.created_at <= oldest):
                continue  # most runs that left the list are just too old for it
            try:
                heads[run] = await self._engine.internals.head(run)  # an old one came to its end
            except Refused:  # it was removed; other runs' news do not wait for it
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
                with contextlib.suppress(RerailError):  # an unreadable history is only its own run's trouble
                    await self._events(head)
            row = encode(await self._rows.row(head))
            if self._shown.get(head.run) != row:
                self._show(head.run, row)
                if not first:
                    self._add("run", row)
        self._heads = heads
        self._more.fire()

    def _show(self, run: str, row: bytes | None) -> None:
        old = self._shown.pop(run, None) if row is None else self._shown.get(run)
        if row is not None:
            self._shown[run] = row
        for one in (old, row):
            if one is not None:
                self._print ^= int.from_bytes(blake2b(one, digest_size=8).digest())

    async def _events(self, head: Head) -> None:
        seen = self._seen.get(head.run, 0)
        while seen < head.seq:
            records = await self._engine.internals.page(head.run, seen, BATCH)
            if not records:
                break
            for record in records:
                self._add(record.type, encode(record.to_dict()))
            self._seen[head.run] = seen = records[-1].seq  # at once: announced events are not announced again
            self._more.fire()  # in small portions, so that one busy run drops no reader that keeps up

    def _add(self, name: str, data: bytes) -> None:
        self.number += 1
        self._news.append(News(self.number, name, data, self.here()))
        if len(self._news) > 2 * RETAINED_NEWS:
            del self._news[:-RETAINED_NEWS]

    # -- For readers ----------------------------------------------------------------------------------------------

    def here(self) -> str:
        """Return the position behind the latest news; valid here, and elsewhere if the rows are equal."""
        return f"{self._epoch}.{self.number}.{self._print:016x}"

    def place(self, ident: str) -> int | None:
        """Return the position of a reader that comes back; None if news may have been missed."""
        epoch, number, seen = [*ident.split("."), "", ""][:3]
        at = number_of(number, -1)
        if epoch == self._epoch and 0 <= at <= self.number and self.after(at, 1) is not None:
            return at
        # Another process, or a later watch. Each row counts its run's events: equal rows mean no news.
        return self.number if seen == f"{self._print:016x}" else None

    def rows(self) -> Iterator[bytes]:
        """Yield all rows, the oldest first: a reader that puts each on top has them in order."""
        yield from self._shown.values()

    def after(self, number: int, limit: int = RETAINED_NEWS) -> list[News] | None:
        """Return the news after a position; None if they are not retained any more."""
        if number >= self.number:
            return []
        if not self._news or self._news[0].number > number + 1:
            return None
        begin = number + 1 - self._news[0].number
        return self._news[begin : begin + limit]

    async def wait(self, number: int, seconds: float) -> bool:
        return await self._more.wait(lambda: self.number > number, seconds)
