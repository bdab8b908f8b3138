"""Streams: everything once, in order; coming back; being too slow; runs as they look (I1, I4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.web import Event, Place, Web, rested, serving, sse, started, stream

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server whose heart beats fast, and that is quick to let a slow reader go."""
    environ = {"RERAIL_SERVER_HEARTBEAT": "0.2", "RERAIL_SERVER_MAX_BEHIND": "40"}
    with serving(Place(tmp_path_factory.mktemp("streams")), **environ) as found:
        yield found


async def test_every_event_comes_once_and_in_order(web: Web) -> None:
    """I1, I4: what was before and what happens meanwhile; the id is the seq, the name the type, the data the event."""
    async with web.client() as client:
        run = await started(client, {"id": "p", "tool": "pace", "args": {"count": 30, "seconds": 0.5}})
        found = []
        async with stream(client, f"/runs/{run}/stream?until_rest=true") as events:
            async for event in events:
                if event.name != "end":
                    assert event.ident == str(event.data["seq"]) and event.name == event.data["type"]
                    found.append(event.data)
        whole = (await client.get(f"/runs/{run}/events")).json()["events"]
        assert found == whole and whole[-1]["type"] == "done"


async def test_whoever_comes_back_goes_on_where_it_was(web: Web) -> None:
    """I4: Last-Event-ID, and `after` for a first visit; cut anywhere, nothing is missed and nothing comes twice."""
    async with web.client() as client:
        run = await started(client, {"id": "p", "tool": "pace", "args": {"count": 40, "seconds": 0.4}})
        seen: list[int] = []
        while True:
            headers = {"last-event-id": str(seen[-1])} if seen else {}
            path = f"/runs/{run}/stream?until_rest=true&after=0"
            async with stream(client, path, **headers) as events:
                over = False
                async for event in events:
                    over = event.name == "end"
                    if not over:
                        seen.append(event.data["seq"])
                    if over or len(seen) % 7 == 0:
                        break  # the line breaks
            if over:
                break
        assert seen == list(range(1, seen[-1] + 1))
        async with stream(client, f"/runs/{run}/stream?until_rest=true&after={seen[-1] - 2}") as events:
            assert [event.data["seq"] async for event in events if event.name != "end"] == seen[-2:]


async def test_a_stream_of_a_run_at_rest_stays_open_for_a_retry(web: Web) -> None:
    """I4, R4: a later chapter of the run comes on the same stream."""
    async with web.client() as client:
        run = await started(client, {"id": "x", "tool": "needs_file", "args": {"name": "later"}, "retries": 0})
        await rested(client, run)
        async with stream(client, f"/runs/{run}/stream") as events:
            dones = 0
            async for event in events:
                dones += event.name == "done"
                if event.name == "done" and dones == 1:
                    (web.place.folder / "later").touch()
                    assert (await client.post(f"/runs/{run}/retry")).status_code == 202
                if dones == 2:
                    break


async def test_a_heart_beats_where_nothing_happens(web: Web) -> None:
    """I4, section 11: server.heartbeat: comments on the plain stream, events on the live one."""
    async with web.client() as client:
        run = await started(client, {"id": "h", "tool": "hold", "args": {"name": "silence"}})
        async with client.stream("GET", f"/runs/{run}/stream", timeout=10) as response:
            beats = 0
            async for line in response.aiter_lines():
                beats += line == ": alive"
                if beats == 4:
                    break
        async with stream(client, f"/runs/{run}/live") as events:
            names = [(await anext(events)).name for _ in range(4)]
        assert names[0] == "snapshot" and names.count("heartbeat") >= 2
        (web.place.folder / "silence").touch()
        await rested(client, run)


def patched(view: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """What a page makes of a patch."""
    steps = {**view["steps"], **patch["steps"]}
    if "order" in patch:
        steps = {step: steps[step] for step in patch["order"]}
    return {**view, **patch["run"], "steps": steps}


async def test_a_snapshot_and_its_patches_are_the_run(web: Web) -> None:
    """I4: whoever joins at any moment sees the same in the end; not more often than ten times a second."""
    async with web.client() as client:
        paced = {"tool": "pace", "args": {"count": 3, "seconds": 0.1}}
        steps = [{"id": f"s{i}", **paced, "needs": [f"s{i - 1}"] if i else []} for i in range(10)]
        run = await started(client, *steps)
        seen, patches, begun = {}, 0, time.monotonic()
        async with stream(client, f"/runs/{run}/live") as events:
            async for event in events:
                if event.name == "snapshot":
                    seen = event.data
                elif event.name == "patch":
                    patches += 1
                    seen = patched(seen, event.data)
                if seen["status"] == "completed":
                    break
        took = time.monotonic() - begun
        await asyncio.sleep(0)
        async with stream(client, f"/runs/{run}/live") as events:
            fresh = (await anext(events)).data
        assert seen["steps"] == fresh["steps"] and patches >= 3
        assert patches <= 10 * took + 2
        assert {key: seen[key] for key in ("status", "seq", "counts", "summary")} == {
            key: fresh[key] for key in ("status", "seq", "counts", "summary")
        }


async def test_the_list_of_runs_is_told_as_it_changes(web: Web) -> None:
    """I4: all rows on connecting, the oldest first; then each change; with events, all of them, once and in order."""
    async with web.client() as client:
        old = await started(client, {"id": "a", "tool": "echo"})
        await rested(client, old)
        statuses: list[str] = []
        seqs: list[int] = []
        idents: list[str] = []
        async with stream(client, "/stream?events=true") as events:
            rows = [await anext(events)]
            while rows[-1].data["run_id"] != old:
                rows.append(await anext(events))
            run = await started(client, {"id": "p", "tool": "pace", "args": {"count": 5, "seconds": 1}})
            async for event in events:
                idents.append(str(event.ident))
                if event.name == "run" and event.data["run_id"] == run:
                    statuses.append(event.data["status"])
                elif event.data.get("run") == run:
                    seqs.append(event.data["seq"])
                if statuses[-1:] == ["completed"]:
                    break
        assert rows[0].name == "run" and statuses[0] == "running"
        assert seqs == list(range(1, seqs[-1] + 1)) and len(set(idents)) == len(idents)
        async with stream(client, "/stream", **{"last-event-id": "elsewhere.7"}) as events:
            assert (await anext(events)).name == "reset"


async def test_a_reader_that_is_too_slow_is_let_go_and_can_come_back(tmp_path: Path) -> None:
    """I1, I4: it is told where it stopped, goes on from there, and has everything once; the run never waits for it."""
    environ = {"RERAIL_SERVER_MAX_BEHIND": "200"}
    with serving(Place(tmp_path), **environ) as web:
        async with web.client() as client:
            # Large events, so that they do not fit between the server and a reader that does not read.
            talks = {"id": "talks", "tool": "chatter", "args": {"count": 9000, "size": 1900}, "needs": ["gate"]}
            run = await started(client, {"id": "gate", "tool": "hold", "args": {"name": "go"}}, talks)
            where = httpx.URL(web.url)
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # little fits in between
            slow.connect((where.host, where.port))
            head = f"GET /api/v1/runs/{run}/stream HTTP/1.1\r\nHost: {where.host}:{where.port}\r\n\r\n"
            slow.sendall(head.encode())
            await asyncio.sleep(0.3)  # it has kept up until now
            begun = time.monotonic()
            (tmp_path / "go").touch()
            async with asyncio.timeout(25):
                found = await rested(client, run)
            took = time.monotonic() - begun
            assert found["status"] == "completed" and took < 20
            seen, dropped = await asyncio.to_thread(_drained, slow)
            assert dropped is not None and seen == list(range(1, dropped + 1))
            async with stream(
                client, f"/runs/{run}/stream?until_rest=true", **{"last-event-id": str(dropped)}
            ) as events:
                seen += [event.data["seq"] async for event in events if event.name != "end"]
            assert seen == list(range(1, found["seq"] + 1))


def _drained(slow: socket.socket) -> tuple[list[int], int | None]:
    """What a slow reader finds once it reads at last."""
    slow.settimeout(10)
    data = bytearray()
    with contextlib.suppress(TimeoutError):
        while b"event: dropped" not in data[-20_000:] and (piece := slow.recv(1 << 20)):
            data += piece
    slow.close()
    text = data.decode("utf-8", "replace")
    seen, dropped = [], None
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if lines.get("event") == "dropped":
            dropped = json.loads(lines["data"])["seq"]
        elif "event" in lines and "id" in lines:
            seen.append(int(lines["id"]))
    return seen, dropped


async def test_a_reader_that_leaves_is_noticed(web: Web) -> None:
    """I4: streams that nobody reads any more are ended, and cost nothing."""
    async with web.client() as client:
        run = await started(client, {"id": "a", "tool": "echo"})
        await rested(client, run)
        for _ in range(30):
            async with client.stream("GET", f"/runs/{run}/stream") as response:
                await anext(sse(response))
        assert (await client.get(f"/runs/{run}")).json()["status"] == "completed"


async def listed(events: AsyncIterator[Event]) -> str:
    """Read the list of all runs to its end; the place behind it."""
    async for event in events:
        if event.ident is not None:
            return event.ident
    raise AssertionError("a list without an end")


async def test_whoever_is_cut_off_in_the_middle_of_the_list_gets_it_anew(web: Web) -> None:
    """I1, I4: only who has the whole list has a place to come back to."""
    async with web.client() as client:
        for _ in range(3):
            await rested(client, await started(client))
        known = {row["run_id"] for row in (await client.get("/runs?limit=500")).json()["runs"]}
        unseen = set(known)
        while unseen:  # its list may be a moment old: what it lacks follows as news, or after it fell behind
            async with stream(client, "/stream") as events:
                async for event in events:
                    if event.name == "run":
                        unseen.discard(event.data["run_id"])
                    if not unseen:
                        break
        async with stream(client, "/stream") as events:
            rows = [await anext(events) for _ in known]
    assert {row.data["run_id"] for row in rows} == known
    assert [row.ident is None for row in rows] == [True] * (len(known) - 1) + [False]


async def test_whoever_comes_back_to_all_runs_has_missed_nothing(web: Web) -> None:
    """I1, I4: the only reader goes away, a run is started and ends, the reader comes back to its place."""
    async with web.client() as client:
        await rested(client, await started(client))
        async with stream(client, "/stream?events=true") as events:
            first = await listed(events)
        run = await started(client)
        whole = await rested(client, run)
        seen: list[int] = []
        async with stream(client, "/stream?events=true", **{"last-event-id": first}) as events:
            async for event in events:
                assert event.name != "reset"
                if event.name != "run" and event.data.get("run") == run:
                    seen.append(event.data["seq"])
                    if event.name == "done":
                        break
    assert seen == list(range(1, len(seen) + 1)) and len(seen) >= len(whole["steps"]) * 2


async def test_whoever_comes_back_from_far_may_catch_up(web: Web) -> None:
    """I4: being further behind than a reader may fall is no reason to let somebody go who is just coming back."""
    async with web.client() as client:
        await rested(client, await started(client))
        async with stream(client, "/stream?events=true") as events:
            first = await listed(events)
        run = await started(client, {"id": "talks", "tool": "chatter", "args": {"count": 600, "size": 10}})
        whole = await rested(client, run)
        await asyncio.sleep(1.0)  # until the server has looked
        seen: list[int] = []
        async with stream(client, "/stream?events=true", **{"last-event-id": first}) as events:
            async for event in events:
                assert event.name not in ("reset", "dropped")
                if event.name != "run" and event.data.get("run") == run:
                    seen.append(event.data["seq"])
                    if event.name == "done":
                        break
    assert seen == list(range(1, whole["seq"] + 1)) and len(seen) > 3 * 40, "lines that come fast may be one event"
