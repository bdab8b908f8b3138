"""The list of runs, as those who watch it are told of it: once and in order, whatever store and server do (I1, I4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.web import Place, Web, rested, serving, started, stream

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.ports import Head, Row, Unavailable
from rerail.server.feeds.run_list import Rows, RunListFeed
from rerail.server.feeds.runs import BATCH

pytestmark = pytest.mark.anyio


@rerail.tool
async def echo(value: int = 1) -> int:
    """Give the value back."""
    return value


class Hiccups(MemoryStore):
    """A store that shows its runs once it is told to, and then fails in the middle of a history."""

    def __init__(self) -> None:
        super().__init__()
        self.shows, self.failures = False, 0

    async def heads(self, **wanted: Any) -> list[Head]:
        """The runs."""
        return await super().heads(**wanted) if self.shows else []

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """A part of a history; of the second one, only at the third try."""
        if self.shows and limit == BATCH and after and self.failures < 2:
            self.failures += 1
            raise Unavailable("the line broke")
        return await super().read(run, after, limit)


async def _told(watch: RunListFeed, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The events that were told, once there are enough."""
    place, found = 0, []
    async with asyncio.timeout(30):
        while not enough(found):
            await watch.wait(place, 5.0)
            news = watch.after(place)
            assert news is not None
            place = news[-1].number if news else place
            found += [json.loads(one.data) for one in news if one.name not in ("run", "gone")]
    return found


async def test_events_are_told_once_though_the_store_fails_in_between() -> None:
    """I1, I4: what was told before the store failed is not told again after it."""
    store = Hiccups()
    steps = [{"id": f"s{n}", "tool": "echo"} for n in range(2 * BATCH)]
    async with rerail.Engine(store=store, tools=[echo]) as engine:
        watch = RunListFeed(engine, Rows(engine))
        async with watch.watched(events=True):
            result = await engine.run(rerail.Plan.load({"steps": steps}))
            store.shows = True
            told = await _told(watch, lambda found: any(one["type"] == "done" for one in found))
        await watch.close()
    assert result.success and store.failures == 2
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))


async def _place(web: Web) -> str:
    """Where somebody is who has heard of all runs."""
    async with web.client() as client, stream(client, "/stream") as events:
        async for event in events:
            if event.ident is not None:  # with the last row
                return event.ident
    raise AssertionError("a list without an end")


async def test_a_server_that_is_started_anew_resets_nobody_who_missed_nothing(tmp_path: Path) -> None:
    """I4: whoever has seen the rows as they are goes on with what comes; who has not is told to begin anew."""
    place = Place(tmp_path)
    with serving(place) as web:
        async with web.client() as client:
            await rested(client, await started(client))
            old = await rested(client, await started(client))
        ident = await _place(web)
    with serving(place) as web:
        async with web.client() as client:
            async with stream(client, "/stream?events=true", **{"last-event-id": ident}) as events:
                run = await started(client, {"id": "a", "tool": "echo"})
                heard = [await anext(events)]
                while heard[-1].name != "done":
                    heard.append(await anext(events))
            assert {event.data.get("run_id") or event.data["run"] for event in heard} == {run}
            assert next(event.data["seq"] for event in heard if event.name != "run") == 1
            async with stream(client, "/stream", **{"last-event-id": ident}) as events:
                assert (await anext(events)).name == "reset"
            ident = await _place(web)
    place.rerail("retry", old["run_id"], "--force", "--clean", "--yes", "--tools", "tools.py", code=None)
    with serving(place) as web:
        async with web.client() as client, stream(client, "/stream", **{"last-event-id": ident}) as events:
            assert (await anext(events)).name == "reset"
