"""Server-sent events: a run's events, a run's live view, and the list of runs (contract I4).

Rules of this file:
- A stream ends when its reader does; a reader that takes no data for too long is disconnected.
- A reader that comes back sends its position (`Last-Event-ID`), and goes on there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rerail.engine.runs.reader import AT_REST
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.server.feeds.runs import BATCH, EncodedEvent, LiveView, TooSlow
from rerail.server.json import StrictRoute, encode, number_of
from rerail.server.schemas import MOST, Lang, RunPath, Words, answers
from rerail.server.state import ServerState, language, server_of

router = APIRouter(route_class=StrictRoute, tags=["streams"])

PATIENCE = 30.0  # seconds without progress of a reader before its stream is closed
ALIVE = b": alive\n\n"


def frame(event: str, data: bytes, ident: str | int | None = None) -> bytes:
    """Format one event of a stream; its data is JSON, which has no line breaks."""
    head = f"id: {ident}\n" if ident is not None else ""
    return f"{head}event: {event}\ndata: ".encode() + data + b"\n\n"


def dropped(seq: str | int) -> bytes:
    """Format the last message to a slow reader: the position up to which it has seen everything."""
    return frame("dropped", encode({"seq": seq}), seq)


class EventStream(Response):
    """A stream of events, one of a limited number."""

    media_type = "text/event-stream"

    def __init__(self, server: ServerState, frames: AsyncIterator[bytes]) -> None:
        if server.readers >= server.table.max_readers:
            limit = server.table.max_readers
            told = tell("refuse.server.too_many", limit=limit)
            raise Refused(told, "TOO_MANY_READERS", hint=tell("hint.server.too_many"))
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._server, self._frames = server, frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader leaves."""
        self._server.readers += 1
        tasks = [asyncio.create_task(self._sent(send)), asyncio.create_task(_left(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._server.readers -= 1
        if tasks[0].done() and not tasks[0].cancelled() and (problem := tasks[0].exception()) is not None:
            raise problem

    async def _sent(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with contextlib.aclosing(self._frames) as frames:  # type: ignore[type-var]
            async for data in frames:
                try:
                    async with asyncio.timeout(PATIENCE):
                        await send({"type": "http.response.body", "body": data, "more_body": True})
                except TimeoutError:
                    return  # the reader takes no data; the store holds what it missed
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# -- One run ------------------------------------------------------------------------------------------------------

After = Annotated[int, Query(ge=0, le=MOST, description="The last event that was seen; 0 for all.")]
LastEventId = Annotated[str | None, Header(description="Where a reader that comes back was.")]


@router.get("/runs/{run}/stream", response_class=Response, responses=answers("stream"), summary="A run's events")
async def stream(
    request: Request,
    run: RunPath,
    after: After = 0,
    until_rest: Annotated[bool, Query(description="End the stream once the run is at rest.")] = False,
    words: Words = False,
    lang: Lang = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Every event of a run from a place on, once and in order, as it happens.

    The id of each is its `seq`. A reader that falls too far behind gets `dropped`, and may come back to its place.
    """
    server = server_of(request)
    found = await server.engine.find(run)
    place = number_of(last_event_id, after)
    said = language(request) if words else ""
    return EventStream(server, _events(server, found, min(place, MOST), until_rest=until_rest, lang=said))


async def _events(server: ServerState, run: str, after: int, *, until_rest: bool, lang: str) -> AsyncIterator[bytes]:
    table = server.table
    async with server.feeds.of(run) as feed, contextlib.AsyncExitStack() as stack:
        live = await stack.enter_async_context(server.lives.of(run, lang)) if lang else None
        yield ALIVE
        follow = feed.follow(after, most_behind=table.max_behind, heartbeat=table.heartbeat)
        try:
            while True:
                if until_rest and after >= feed.seq and await _is_over(server, run, after):
                    yield frame("end", encode({"seq": after}))
                    return
                batch = await anext(follow)
                if batch:
                    after = batch[-1].seq
                elif await _is_gone(server, run):
                    yield _gone(run)
                    return
                yield b"".join(_framed(one, live) for one in batch) or ALIVE
        except TooSlow as behind:
            yield dropped(behind.seq)


def _framed(one: EncodedEvent, live: LiveView | None) -> bytes:
    data = one.data if live is None else encode(live.told(one.record))
    return frame(one.record.type, data, one.seq)


def _gone(run: str) -> bytes:
    return frame("gone", encode({"run_id": run}))


async def _is_gone(server: ServerState, run: str) -> bool:
    try:
        await server.engine.internals.head(run)
    except Refused:
        return True
    except RerailError:  # out of reach, for a while
        return False
    return False


async def _is_over(server: ServerState, run: str, after: int) -> bool:
    head = await server.engine.internals.head(run)
    return head.status in AT_REST and head.seq <= after


@router.get("/runs/{run}/live", response_class=Response, responses=answers("stream"), summary="A run as it looks")
async def live(request: Request, run: RunPath) -> Response:
    """A `snapshot` of the whole run, then a `patch` whenever it looks different, a few times a second at most.

    A reader that comes back, or cannot keep up, simply gets a new snapshot.
    """
    server = server_of(request)
    found = await server.engine.find(run)
    return EventStream(server, _live(server, found, language(request)))


async def _live(server: ServerState, run: str, lang: str) -> AsyncIterator[bytes]:
    async with server.lives.of(run, lang) as shown:
        version, data = shown.snapshot()
        yield frame("snapshot", data)
        while True:
            patches = shown.patches(version)
            if patches is None:
                version, data = shown.snapshot()
                yield frame("snapshot", data)
            elif patches:
                version = patches[-1][0]
                yield b"".join(frame("patch", data) for _, data in patches)
            elif shown.gone:
                yield _gone(run)
                return
            elif not await shown.wait(version, server.table.heartbeat) and not shown.gone:
                yield frame("heartbeat", encode({"seq": shown.seq}))


# -- All runs -----------------------------------------------------------------------------------------------------


@router.get("/stream", response_class=Response, responses=answers("stream"), summary="All runs")
async def everything(
    request: Request,
    events: Annotated[bool, Query(description="Send the events of all runs, too.")] = False,
    last_event_id: LastEventId = None,
) -> Response:
    """`run` for every run of the list, and again whenever one changes; with `events`, all their events beside them.

    The ids are good for coming back to the same server process within a minute; and later, or to another process, if
    nothing happened since. Else the list is sent anew, after `reset`; each row has how many `events` its run has, and
    /runs/RUN/events has them.
    """
    server = server_of(request)
    return EventStream(server, _all(server, last_event_id or "", events=events))


async def _all(server: ServerState, last: str, *, events: bool) -> AsyncIterator[bytes]:
    table = server.table
    async with server.run_list.watched(events=events) as watch:
        place = watch.place(last)
        if place is None:
            place = watch.number
            rows = list(watch.rows())
            begun, last = frame("reset", b"{}") if last else ALIVE, watch.here()
            # The position comes with the last row: a reader cut off before it gets the list anew.
            idents = [None] * (len(rows) - 1) + [last]
            yield begun + b"".join(frame("run", row, ident) for row, ident in zip(rows, idents, strict=False))
        kept_up = False  # a reader that comes back from far may take its time, as on a run's own stream
        while True:
            kept_up = kept_up or place >= watch.number
            news = watch.after(place, BATCH)
            if news is None or (kept_up and watch.number - place > table.max_behind):
                yield dropped(last)
                return
            if news:
                place, last = news[-1].number, news[-1].ident
                chosen = [one for one in news if events or one.name in ("run", "gone")]
                if chosen:
                    yield b"".join(frame(one.name, one.data, one.ident) for one in chosen)
            elif not await watch.wait(place, table.heartbeat):
                yield ALIVE
