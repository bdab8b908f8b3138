"""Callers who mean harm, hurry, or ask for what is not there any more (I1, I3, I4, R7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
from tests.server.test_sockets import connected
from tests.server.web import Place, Web, rested, serving, started, stream

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")]

TOKEN = "for sockets"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server with a token, and tools that plans from outside may not use."""
    folder = tmp_path_factory.mktemp("rough")
    (folder / "rerail.toml").write_text(
        '[tools.shell]\nhello = ["echo", "hello"]\nfails = {argv = ["false"], not_done = [1]}\n'
    )
    with serving(Place(folder), token=TOKEN, RERAIL_SERVER_HEARTBEAT="0.5") as found:
        yield found


# -- Sockets ------------------------------------------------------------------------------------------------------


async def test_a_socket_that_says_nothing_is_let_go(web: Web) -> None:
    """I4: who does not say in time who it is for is closed, also in the middle of an upgrade; others stay."""
    address = web.url.replace("http", "ws", 1) + "socket.io/?EIO=4&transport=websocket"
    async with connected(web, transports=["websocket"]) as straight, connected(web) as upgraded:
        async with aiohttp.ClientSession() as session:
            silent = await session.ws_connect(address)
            opened = await session.get(web.url + "socket.io/?EIO=4&transport=polling")
            sid = (await opened.text()).partition('"sid":"')[2].partition('"')[0]
            halfway = await session.ws_connect(f"{address}&sid={sid}")

            async def posting() -> AsyncIterator[bytes]:
                yield b"4"
                await asyncio.sleep(60)

            async def slow() -> int:
                url = f"{web.url}socket.io/?EIO=4&transport=polling&sid={sid}"
                async with session.post(url, data=posting(), headers={"content-length": "9"}) as answer:
                    return answer.status

            posted = asyncio.create_task(slow())
            async with asyncio.timeout(30):
                while (await silent.receive()).type is not aiohttp.WSMsgType.CLOSE and not silent.closed:
                    pass
                while (await halfway.receive()).type is not aiohttp.WSMsgType.CLOSE and not halfway.closed:
                    pass
                assert await posted == 408
            assert {silent.close_code, halfway.close_code} <= {1000, 1008}
        for heard in (straight, upgraded):
            answer = await heard.client.call("subscribe", {"run": "nobody"}, timeout=20)
            assert answer["code"] == "RUN_UNKNOWN", "it is still there"


ODD = (
    "", "4", "42", "42[", "42[]", "42[1]", "40{", "9", "5", "41", "3probe", "40/admin,", "42" + "[" * 50_000,
    '42["subscribe",' + "[" * 20_000 + "]" * 20_000 + "]", '42["subscribe",{"run":1e999}]', '421["subscribe",null]',
    '421["subscribe",{"run":"x","after":-1}]', '451-["subscribe",{"_placeholder":true,"num":0}]', '42["connect"]',
    '42["disconnect"]', '42["__class__"]', '42999999999999999999999999["subscribe",{}]', '40{"token":"again"}',
)  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
async def test_a_socket_may_send_anything(web: Web, named: bool) -> None:
    """I3, I4: what nobody can read ends its own connection at most, and leaves nothing in the log."""
    address = web.url.replace("http", "ws", 1) + "socket.io/?EIO=4&transport=websocket"
    async with aiohttp.ClientSession() as session:
        for odd in (*ODD, b"\xff\x00", b"\x04" * 1_500_000):
            socket = await session.ws_connect(address)
            await socket.receive()
            if named:
                await socket.send_str(f'40{{"token":"{TOKEN}"}}')
                await socket.receive()
            with contextlib.suppress(ConnectionError):  # it was let go at once, perhaps in the middle
                await (socket.send_bytes(odd) if isinstance(odd, bytes) else socket.send_str(odd))
                await socket.send_str("42[]")  # read after it, if it is still there
            await socket.close()
    async with connected(web) as heard:
        assert (await heard.client.call("subscribe", {"run": "nobody"}, timeout=20))["code"] == "RUN_UNKNOWN"


async def test_nobody_leaves_by_saying_so(tmp_path: Path) -> None:
    """I4: `connect` and `disconnect` are no wishes: whoever sends them counts as a reader for as long as it is one."""
    with serving(Place(tmp_path), token=TOKEN, RERAIL_SERVER_MAX_READERS="1") as web:
        async with connected(web, transports=["websocket"]) as heard, web.client() as client:
            for name in ("disconnect", "connect"):
                await heard.client.emit(name, {"asgi.scope": {}})
            answer = await heard.client.call("subscribe", {"run": "nobody"}, timeout=20)
            assert answer["code"] == "RUN_UNKNOWN"
            assert (await client.get("/stream")).status_code == 503


@pytest.mark.parametrize("path", ["socket.io/?EIO=4&transport=polling", "api/v1/runs", "nowhere"])
async def test_a_body_in_pieces_has_the_same_limit_everywhere(web: Web, path: str) -> None:
    """I4: 413 as a problem wherever it is sent; the log tells of no mistake of ours (the server's end looks at it)."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b"4" * 1_000_000

    async with httpx.AsyncClient(base_url=web.url, headers=web.headers, timeout=30) as client:
        answer = await client.post(path, content=pieces(), headers={"content-type": "application/json"})
        assert answer.status_code in (405, 413) and (answer.status_code == 413) == (path != "nowhere")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await client.get("api/v1/health")).status_code == 200


# -- Stores -------------------------------------------------------------------------------------------------------


async def test_a_broken_store_tells_nobody_where_it_is(tmp_path: Path) -> None:
    """I4, E4: 503 and a code for the reader; what is wrong, and where, is for the server's log."""
    place = Place(tmp_path)
    with serving(place) as web:
        async with web.client() as client:
            run = await started(client, {"id": "a", "tool": "echo"})
            await rested(client, run)
            [store] = (tmp_path / ".rerail").glob("*.db")
            for file in (tmp_path / ".rerail").glob("*.db*"):
                with file.open("r+b") as opened:
                    opened.write(b"this is no database " * (file.stat().st_size // 20))
            for method, path in (("GET", "/runs"), ("GET", f"/runs/{run}"), ("POST", f"/runs/{run}/retry")):
                answer = await client.request(method, path)
                assert answer.status_code == 503 and answer.json()["code"].startswith("STORE_"), answer.text
                assert str(tmp_path) not in answer.text and store.name not in answer.text
            chinese = await client.get("/runs", headers={"accept-language": "zh"})
            assert chinese.json()["detail"] == "服务器无法使用它的存储"


async def test_a_run_that_is_removed_is_told_to_everybody_who_looks(web: Web) -> None:
    """I1, I4: `gone` on the list and on its own streams, which end; whether it was at rest or not."""
    async with web.client() as client:
        waits = await started(client, {"id": "a", "tool": "echo", "confirm": True})
        await rested(client, waits, "waiting")
        done = await started(client, {"id": "a", "tool": "echo"})
        await rested(client, done)
        async with (
            stream(client, "/stream") as rows,
            stream(client, f"/runs/{waits}/live") as live,
            stream(client, f"/runs/{done}/stream?after=1") as events,
        ):
            seen: set[str] = set()
            while not {waits, done} <= seen:
                seen.add((await anext(rows)).data["run_id"])
            [store] = (web.place.folder / ".rerail").glob("*.db")
            with sqlite3.connect(store) as database:
                for run in (waits, done):
                    database.execute("DELETE FROM events WHERE run = ?", (run,))
                    database.execute("DELETE FROM runs WHERE run = ?", (run,))
            async with asyncio.timeout(20):
                told = [await anext(rows), await anext(rows)]
                assert {(one.name, one.data["run_id"]) for one in told} == {("gone", waits), ("gone", done)}
                assert [one.name async for one in live][-1] == "gone"
                assert [one.name async for one in events][-1] == "gone"
        assert (await client.get(f"/runs/{waits}/live")).json()["code"] == "RUN_UNKNOWN"


# -- Plans --------------------------------------------------------------------------------------------------------

_LAUGHS = "".join(f"y{n}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))
BOMBS = {
    "deep": "[" * 50_000,
    "deep block": "- " * 30_000 + "a",
    "deep mapping": "".join("  " * n + "a:\n" for n in range(1_500)),
    "laughs": f"y: &a0 [1, 2, 3]\n{_LAUGHS}steps: *a9\n",
    "itself": "steps: &a [*a]\n",
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_text_that_is_more_than_it_seems_is_refused(web: Web, name: str) -> None:
    """I4, P5: what is too deep or stands for too much ends no server, and holds none up."""
    async with web.client() as client:
        async with asyncio.timeout(20):
            answer = await client.post("/plans/check", json={"plan": BOMBS[name]})
        assert answer.status_code == 422 and answer.json()["code"] == "PLAN_UNREADABLE", answer.text
        assert (await client.get("/health")).status_code == 200


async def test_a_pattern_that_never_ends_is_a_fault(web: Web) -> None:
    """I4, P5: nobody can stop a search once it has begun, so it is not begun; what ends in time is fine."""
    async with web.client() as client:
        for pattern, fine in (
            (r"^(a+)+\1$", False),
            (r"^(?=(\w+\s*)*$)b", False),
            ("^(a+)+$", True),
            (r"(\w) \1", False),
        ):
            schema = {"schema": {"type": "object", "properties": {"x": {"anyOf": [{"pattern": pattern}]}}}}
            for given in ({"check": schema}, {"produces": [{"path": "f.json", "format": "json", **schema}]}):
                plan = {"steps": [{"id": "a", "tool": "echo", **given}]}
                checked = (await client.post("/plans/check", json={"plan": plan})).json()
                assert [fault["code"] for fault in checked["faults"]] == ([] if fine else ["BAD_VALUE"]), pattern


# -- Tools --------------------------------------------------------------------------------------------------------


async def test_a_dry_run_is_refused_as_the_retry_would_be(web: Web) -> None:
    """R7, I4: what is withheld is told before anything is promised, also of steps that are only done once more."""
    failed = web.place.rerail("run", web.place.plan({"id": "a", "tool": "fails", "retries": 0}), code=1)["run_id"]
    done = web.place.rerail("run", web.place.plan({"id": "a", "tool": "hello"}))["run_id"]
    async with web.client() as client:
        for run, wish in (
            (failed, {}),
            (done, {"force": True, "steps": ["a"]}),
            (done, {"force": True, "clean": True}),
        ):
            before = (await client.get(f"/runs/{run}")).json()
            for how in ({"dry_run": True}, {"confirmed": True}):
                answer = await client.post(f"/runs/{run}/retry", json={**wish, **how})
                assert answer.status_code == 422, (wish, how, answer.text)
                assert answer.json()["faults"][0]["code"] == "UNKNOWN_TOOL"
                assert answer.json()["hint"] == "start the server with --allow shell"
            assert (await client.get(f"/runs/{run}")).json() == before


async def test_a_hint_works_where_it_is_given(web: Web) -> None:
    """P1, I4: plans over HTTP name no MCP servers; what helps is said."""
    plan = {"steps": [{"id": "a", "tool": "echo"}], "mcp": {"mine": {"command": "true"}}}
    async with web.client() as client:
        [fault] = (await client.post("/plans/check", json={"plan": plan})).json()["faults"]
        assert fault["code"] == "MCP_NOT_ALLOWED"
        assert "Write them under [mcp.servers]" in fault["message"]


async def test_a_dry_run_gives_its_reasons_in_the_readers_language(web: Web) -> None:
    """R7, T12: ours in Chinese, those of tools as they are; of one run and of all."""
    async with web.client() as client:
        run = await started(client, {"id": "x", "tool": "needs_file", "args": {"name": "never"}, "retries": 0},
                            {"id": "y", "tool": "echo", "needs": ["x"]})  # fmt: skip
        await rested(client, run)
        chinese = {"accept-language": "zh-CN"}
        one = (await client.post(f"/runs/{run}/retry", json={"dry_run": True}, headers=chinese)).json()
        assert one["rerun"][0] == {"step": "x", "why": "no never"}
        assert any("\u4e00" <= sign <= "\u9fff" for sign in one["rerun"][1]["why"]), one["rerun"][1]
        rows = (await client.post("/retry", json={"dry_run": True}, headers=chinese)).json()["runs"]
        assert next(row for row in rows if row["run_id"] == run)["preview"]["rerun"] == one["rerun"]


async def test_a_changed_file_is_named_and_not_where_it_lies(web: Web) -> None:
    """T2, I4: a gate whose file was changed meanwhile is not agreed to unseen; the hint names no folder."""
    async with web.client() as client:
        run = await started(client, {"id": "w", "tool": "write", "args": {"text": "<b>"}, "produces": ["page.html"]},
                            {"id": "g", "tool": "echo", "needs": ["w"], "confirm": True})  # fmt: skip
        await rested(client, run, "waiting")
        [file] = [path for path in web.place.folder.rglob("page.html") if run in str(path)]
        file.write_text("something else")
        refused = await client.post(f"/runs/{run}/confirm", json={})
        assert refused.status_code == 409 and refused.json()["code"] == "FILE_DAMAGED"
        assert "page.html" in refused.json()["hint"] and str(web.place.folder) not in refused.text
        edited = await client.post(f"/runs/{run}/confirm", json={"edit": {"page.html": "seen"}})
        assert edited.status_code == 202
        assert (await rested(client, run))["status"] == "completed" and file.read_text() == "seen"


# -- Tools that are not for everybody -----------------------------------------------------------------------------


async def test_nobody_reaches_withheld_tools_through_a_runs_owner(web: Web) -> None:
    """I4: a run that somebody drives from a terminal has tools that the server does not lend to its callers."""
    folder = web.place.folder
    held = {"id": "h", "tool": "hold", "args": {"name": "let go"}}
    plan = {
        "objective": "mine",
        "steps": [held, {"id": "own", "tool": "fails"}, {"id": "later", "tool": "echo", "needs": ["h"]}],
    }
    (folder / "mine.json").write_text(json.dumps(plan))
    process = web.place.spawn("run", "mine.json", "--tools", "tools.py")
    try:
        async with web.client() as client:
            async with stream(client, "/stream") as events:
                async for event in events:
                    if event.data["status"] == "running" and event.data["objective"] == "mine":
                        run = event.data["run_id"]
                        break
            added = await client.post(f"/runs/{run}/add", json={"steps": [{"id": "x", "tool": "hello"}]})
            other = {"id": "y", "tool": "echo", "alternatives": ["hello"]}
            hidden = await client.post(f"/runs/{run}/add", json={"steps": [other]})
            bent = await client.post(f"/runs/{run}/repair", json={"step": "later", "tool": "hello"})
            turned = await client.post(f"/runs/{run}/repair", json={"step": "own", "args": {"more": "1"}})
            for answer in (added, hidden, bent, turned):
                assert answer.status_code == 422, answer.text
            assert "--allow shell" in added.json()["hint"]
            fine = await client.post(f"/runs/{run}/add", json={"steps": [{"id": "z", "tool": "echo"}]})
            assert fine.status_code == 202
            (folder / "let go").touch()
            steps = (await rested(client, run))["steps"]
            assert "x" not in steps and "y" not in steps and steps["z"]["status"] == "succeeded"
    finally:
        (folder / "let go").touch()
        process.communicate(timeout=30)


async def test_i6_a_run_on_ray_is_refused_with_what_to_do(web: Web) -> None:
    """I4, I6: clients of earlier versions may still send `on`."""
    async with web.client() as client:
        refused = await client.post("/runs", json={"plan": {"steps": [{"id": "a", "tool": "echo"}]}, "on": "ray"})
        assert refused.status_code == 400 and "rerail worker" in refused.json()["hint"], refused.text
        assert "on='ray' is gone" in refused.json()["detail"]


async def test_one_history_that_cannot_be_read_is_one_runs_trouble(tmp_path: Path) -> None:
    """I4: the list, and the stream of all runs, go on; the run itself says what is wrong with it."""
    with serving(Place(tmp_path)) as web:
        async with web.client() as client:
            bad = await started(client, {"id": "a", "tool": "echo"})
            await rested(client, bad)
            with sqlite3.connect(tmp_path / ".rerail/runs.db") as store:
                store.execute("UPDATE events SET data = x'7b22' WHERE run = ? AND seq = 4", (bad,))
            store.close()
    with serving(Place(tmp_path)) as web:
        async with web.client() as client:
            good = await started(client, {"id": "a", "tool": "echo"})
            await rested(client, good)
            rows = {row["run_id"]: row for row in (await client.get("/runs")).json()["runs"]}
            assert rows[bad]["counts"] is None and rows[good]["counts"] == {"succeeded": 1}
            async with stream(client, "/stream?events=true") as events:
                assert {(await anext(events)).data["run_id"] for _ in range(2)} == {good, bad}
                again = await started(client, {"id": "a", "tool": "echo"})
                async for event in events:
                    if event.name == "done" and event.data["run"] == again:
                        break
            assert (await client.get(f"/runs/{bad}")).status_code == 503
