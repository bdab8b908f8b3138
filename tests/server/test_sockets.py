"""Socket.IO with real clients: python-socketio's own, and the JavaScript one (I3)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import socketio
from starlette.types import Receive, Scope, Send
from tests.server.web import Place, Web, rested, serving, started

import rerail
from rerail.server.http_server import listen, serve_app, url_of
from rerail.server.socketio import Sockets
from rerail.server.state import ServerState
from rerail.views.chat_messages import ToolMessages

pytestmark = [
    pytest.mark.anyio,
    # The client reads no answer to what it posts; if one comes in two pieces, it is never done with it.
    pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning"),
]

NAMES = ("event", "tool:message:start", "tool:message:update", "tool:artifact", "tool:message:complete", "dropped")
TOKEN = "for sockets"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One server for all tests of this file."""
    with serving(Place(tmp_path_factory.mktemp("sockets")), token=TOKEN) as found:
        yield found


@dataclass
class Heard:
    """What a socket was told, in order."""

    client: socketio.AsyncClient
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, name: str, said: dict[str, Any]) -> None:
        self.messages.append((name, said))
        self.more.set()

    async def until(self, name: str, **facts: Any) -> None:
        """Wait until something was told."""
        async with asyncio.timeout(30):
            while not any(one == name and facts.items() <= said.items() for one, said in self.messages):
                self.more.clear()
                await self.more.wait()

    def of(self, *names: str) -> list[dict[str, Any]]:
        """What was told under these names."""
        return [said for name, said in self.messages if name in names]


@asynccontextmanager
async def connected(web: Web, auth: Any = None, **options: Any) -> AsyncIterator[Heard]:
    """A socket."""
    async with aiohttp.ClientSession() as session:
        client = socketio.AsyncClient(reconnection=False, http_session=session)
        heard = Heard(client)
        for name in NAMES:
            client.on(name, lambda said, name=name: heard.take(name, said))
        await client.connect(web.url, auth={"token": TOKEN} if auth is None else auth, **options)
        try:
            yield heard
        finally:
            await client.disconnect()


async def subscribed(heard: Heard, run: str, **more: Any) -> dict[str, Any]:
    """Subscribe to a run, and hear whether that was right."""
    answer: dict[str, Any] = await heard.client.call("subscribe", {"run": run, **more}, timeout=20)
    return answer


STORY = (
    {"id": "good", "tool": "flaky"},
    {"id": "bad", "tool": "needs_file", "args": {"name": "never"}, "retries": 0},
    {"id": "left", "tool": "echo", "needs": ["bad"]},
)


def check_story(messages: list[tuple[str, dict[str, Any]]]) -> None:
    """I3: start, update, artifact, complete in order; exactly one complete for each start; each with its seq."""
    good = [name for name, said in messages if "task_good" in (said.get("id"), said.get("messageId"))]
    short = [name.rpartition(":")[2] for name in good]
    assert short[0] == "start" and short[-2:] == ["artifact", "complete"] and "update" in short[1:-2]
    starts = [said["id"] for name, said in messages if name == "tool:message:start"]
    ends = {said["id"]: said["status"] for name, said in messages if name == "tool:message:complete"}
    assert sorted(starts) == sorted(ends) == ["task_bad", "task_good", "task_left"]
    assert ends == {"task_good": "completed", "task_bad": "failed", "task_left": "skipped"}
    seqs = [said["seq"] for name, said in messages if name.startswith("tool:")]
    assert seqs == sorted(seqs)


@pytest.mark.parametrize("transports", [["websocket"], ["polling"], ["polling", "websocket"]])
async def test_python_hears_the_story_of_a_run(web: Web, transports: list[str]) -> None:
    """I3: over websockets and over polling, from before the run begins to its end."""
    name = f"go-{'-'.join(transports)}"
    async with web.client() as client, connected(web, transports=transports) as heard:
        gate = {"id": "gate", "tool": "hold", "args": {"name": name}}
        run = await started(client, gate, *({**step, "needs": step.get("needs", ["gate"])} for step in STORY))
        assert (await subscribed(heard, run, protocol="both"))["ok"]
        (web.place.folder / name).touch()
        await heard.until("event", type="done")
        told = [one for one in heard.messages if "task_gate" not in (one[1].get("id"), one[1].get("messageId"))]
        check_story(told)
        events = (await client.get(f"/runs/{run}/events")).json()["events"]
        assert heard.of("event") == events


async def test_a_late_socket_hears_everything_once(web: Web) -> None:
    """I1, I3: whoever comes late, or comes back with `after`, gets what it has not heard, in order."""
    async with web.client() as client:
        run = await started(client, *STORY)
        await rested(client, run)
        events = (await client.get(f"/runs/{run}/events")).json()["events"]
        async with connected(web) as heard:
            answer = await subscribed(heard, run)
            assert answer == {"ok": True, "run": run, "seq": len(events)}
            await heard.until("event", type="done")
            check_story(heard.messages)
            assert heard.of("event") == events
        half = len(events) // 2
        async with connected(web) as heard:
            await subscribed(heard, run[:8], after=half)
            await heard.until("event", type="done")
            assert [said["seq"] for said in heard.of("event")] == list(range(half + 1, len(events) + 1))
            assert all(said["seq"] > half for _, said in heard.messages)
        async with connected(web) as heard:
            await subscribed(heard, run, protocol="tools")
            await heard.until("tool:message:complete", id="task_left")
            await heard.until("tool:message:complete", id="task_good")
            check_story(heard.messages)
            assert not heard.of("event")


async def test_each_end_has_its_word(web: Web) -> None:
    """I3, X7: cancelled while it is called; skipped by a person before it is; one complete each."""
    async with web.client() as client, connected(web) as heard:
        run = await started(
            client,
            {"id": "held", "tool": "hold", "args": {"name": "nobody-comes"}},
            {"id": "gate", "tool": "echo", "confirm": True},
        )
        await subscribed(heard, run, protocol="tools")
        await heard.until("tool:message:start", id="task_held")
        assert (await client.post(f"/runs/{run}/skip", json={"step": "gate"})).status_code == 202
        await heard.until("tool:message:complete", id="task_gate")
        assert (await client.post(f"/runs/{run}/cancel")).status_code == 202
        await heard.until("tool:message:complete", id="task_held")
        ends = [(said["id"], said["status"]) for said in heard.of("tool:message:complete")]
        assert ends == [("task_gate", "skipped"), ("task_held", "cancelled")]


async def test_sockets_are_let_in_as_requests_are(web: Web) -> None:
    """I3, I4: by the token, in `auth` or in a header; from no other page; under no other name."""
    for auth in ({}, {"token": "wrong"}, {"token": 7}, "text"):
        with pytest.raises(socketio.exceptions.ConnectionError):
            async with connected(web, auth=auth):
                pass
    async with connected(web, auth={}, headers=web.headers) as heard:
        assert (await subscribed(heard, "nobody"))["code"] == "RUN_UNKNOWN"
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        for transports in (["websocket"], ["polling"]):
            with pytest.raises(socketio.exceptions.ConnectionError):
                async with connected(web, headers=headers, transports=transports):
                    pass


async def test_a_socket_may_ask_for_nonsense(web: Web) -> None:
    """I3: it is told so, and what it asked for rightly goes on."""
    async with web.client() as client, connected(web) as heard:
        run = await started(client, *STORY)
        for odd in (None, 7, [], {}, {"run": 7}, {"run": ""}, {"run": run, "after": -1}, {"run": run, "protocol": "x"}):
            answer = await heard.client.call("subscribe", odd, timeout=20)
            assert answer["ok"] is False and answer["code"] in ("USAGE", "RUN_UNKNOWN", "RUN_AMBIGUOUS"), odd
        assert (await subscribed(heard, run))["ok"]
        await heard.until("event", type="done")
        assert (await heard.client.call("unsubscribe", {"run": run}, timeout=20))["ok"]


SCRIPT = """
const { io } = require("socket.io-client");
const [url, token, run] = process.argv.slice(2);
const told = [];
const socket = io(url, { auth: { token }, reconnection: false });
socket.on("connect_error", (error) => { console.error(error.message, JSON.stringify(error.data)); process.exit(3); });
socket.onAny((name, said) => {
  told.push([name, said]);
  if (name === "event" && said.type === "done") {
    setTimeout(() => { console.log(JSON.stringify(told)); socket.close(); process.exit(0); }, 100);
  }
});
socket.on("connect", () => socket.emit("subscribe", { run, protocol: "both" }, (answer) => {
  if (!answer.ok) { console.error(JSON.stringify(answer)); process.exit(4); }
}));
setTimeout(() => process.exit(5), 40000);
"""


@pytest.fixture(scope="session")
def browser_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with socket.io's own client for JavaScript."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are needed for socket.io's JavaScript client")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "socket.io-client@4"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (folder / "listen.js").write_text(SCRIPT)
    return folder


async def test_javascript_hears_the_story_of_a_run(web: Web, browser_client: Path) -> None:
    """I3: the client that front ends use hears the same, in the same order; a wrong token is told as such."""
    async with web.client() as client:
        run = await started(client, *STORY)
        listen = ["node", "listen.js", web.url]

        def heard(token: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*listen, token, run], cwd=browser_client, capture_output=True, text=True, timeout=60
            )  # fmt: skip

        done = await asyncio.to_thread(heard, TOKEN)
        assert done.returncode == 0, done.stderr
        messages = [(name, said) for name, said in json.loads(done.stdout)]
        check_story(messages)
        events = (await client.get(f"/runs/{run}/events")).json()["events"]
        assert [said for name, said in messages if name == "event"] == events
        refused = await asyncio.to_thread(heard, "wrong")
        assert refused.returncode == 3 and "UNAUTHORIZED" in refused.stderr


async def test_a_socket_may_come_back_in_the_middle_of_an_event(web: Web) -> None:
    """I3: several messages may come of one event; whoever saw some of them gets the others, each once."""
    async with web.client() as client:
        run = await started(client, {"id": "bad", "tool": "needs_file", "args": {"name": "never"}, "retries": 0},
                            {"id": "after", "tool": "echo", "needs": ["bad"]})  # fmt: skip
        await rested(client, run)
    async with connected(web) as heard:
        await subscribed(heard, run, protocol="tools")
        await heard.until("tool:message:complete", id="task_after")
        whole = [(name, said["id"], said["seq"], said["part"], said["parts"]) for name, said in heard.messages]
    [start] = [one for one in whole if one[:2] == ("tool:message:start", "task_after")]
    assert start[3:] == (1, 2), "a step that is skipped begins and ends with one event"
    async with connected(web) as heard:
        await subscribed(heard, run, protocol="tools", after=start[2], part=1)
        await heard.until("tool:message:complete", id="task_after")
        rest = [(name, said["id"], said["seq"], said["part"], said["parts"]) for name, said in heard.messages]
    assert rest == whole[whole.index(start) + 1 :]


async def test_an_event_comes_after_its_messages(web: Web) -> None:
    """I3: so whoever saw it, and comes back after it, misses none of them."""
    async with web.client() as client:
        run = await started(client, {"id": "a", "tool": "echo"})
        await rested(client, run)
    async with connected(web) as heard:
        await subscribed(heard, run)
        await heard.until("event", type="done")
    last: dict[int, str] = {said["seq"]: name for name, said in heard.messages}
    assert set(last.values()) == {"event"}


async def test_those_who_know_no_token_leave_room_for_those_who_do(tmp_path: Path) -> None:
    """I4: connections that say nothing make room for each other; whoever has the token is served beside them."""
    with serving(Place(tmp_path), token=TOKEN, RERAIL_SERVER_MAX_READERS="5") as web:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            address = web.url.replace("http", "ws", 1) + "socket.io/?EIO=4&transport=websocket"
            opened = [
                await session.ws_connect(address, timeout=aiohttp.ClientWSTimeout(ws_close=1.0)) for _ in range(120)
            ]
            async with web.client() as client:
                assert (await client.get("/runs")).status_code == 200
            began = time.monotonic()
            async with connected(web) as heard:
                assert heard.client.connected
            assert time.monotonic() - began < 5
            ends = await asyncio.gather(*(_is_ended(one) for one in opened))
            assert 40 <= ends.count(False) <= 50 and not any(ends[-40:]), "the oldest went first"


async def _is_ended(socket: aiohttp.ClientWebSocketResponse) -> bool:
    """Whether the server has closed a socket that said nothing."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            while (await socket.receive()).type not in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE):
                pass
        return True
    return False


async def test_begun_handshakes_keep_nobody_out(tmp_path: Path) -> None:
    """I4: a thousand sessions that were begun and never named make room, oldest first, for one that is."""
    with serving(Place(tmp_path), token=TOKEN) as web:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20)) as session:
            address = f"{web.url}socket.io/?EIO=4&transport=polling"

            async def begin() -> int:
                async with session.get(address) as answer:
                    await answer.read()
                    return answer.status

            for _ in range(12):
                assert set(await asyncio.gather(*(begin() for _ in range(100)))) == {200}
        began = time.monotonic()
        async with connected(web) as heard:
            assert heard.client.connected
        assert time.monotonic() - began < 5


# -- Let go in the middle -----------------------------------------------------------------------------------------


class Polling:
    """A client that asks again and again, by hand: it takes something only when it wants to."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url, self._sid = session, f"{url}socket.io/?EIO=4&transport=polling", ""

    async def poll(self) -> list[str]:
        """What the server has for us."""
        async with self._session.get(self._url + self._sid) as answer:
            assert answer.status == 200
            return (await answer.text()).split("\x1e")

    async def say(self, packet: str) -> None:
        """Say something."""
        async with self._session.post(self._url + self._sid, data=packet) as answer:
            assert answer.status == 200

    async def connect(self) -> None:
        """Begin a session."""
        [opened] = await self.poll()
        self._sid = "&sid=" + json.loads(opened[1:])["sid"]
        await self.say("40")
        assert (await self.poll())[0].startswith("40")

    async def heard(self) -> list[tuple[str, dict[str, Any]]]:
        """What was told since, without what the wire says about itself."""
        found = []
        for packet in await self.poll():
            if packet.startswith("42"):
                name, said = json.loads(packet[2:])
                found.append((name, said))
            elif packet == "2":
                await self.say("3")
        return found


@rerail.tool
async def fails() -> None:
    """Fail."""
    raise rerail.ToolError("no", category="permanent_error")


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Beside the sockets there is nothing."""


@asynccontextmanager
async def impatient(engine: rerail.Engine) -> AsyncIterator[str]:
    """Sockets that wait for nobody, and where."""
    shared = ServerState(engine)
    sockets = Sockets(shared, patience=0.1)
    with listen("127.0.0.1:0", expose=False, guarded=False) as listening:
        ready = asyncio.Event()
        app = serve_app(sockets.app(nothing), listening, ready.set, lifespan="off")
        task = asyncio.create_task(app)
        await ready.wait()
        try:
            yield url_of(listening, "/")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await shared.feeds.close()


@pytest.mark.parametrize("protocol", ["both", "tools", "events"])
async def test_who_is_let_go_in_the_middle_of_an_event_hears_the_rest_once(protocol: str) -> None:
    """I3: `dropped` says how far one got, to the very message; coming back there gives everything once, in order."""
    root = {"id": "bad", "tool": "fails", "retries": 0}
    steps = [root, *({"id": f"after{n}", "tool": "fails", "needs": ["bad"]} for n in range(30))]
    async with rerail.Engine(store="memory://", tools=[fails]) as engine:
        run = (await engine.run(rerail.Plan.load({"steps": steps}))).run_id
        told, whole = ToolMessages(run), []
        for record in await engine.events(run):
            said = told.feed(record) if protocol != "events" else []
            whole += [(message.name, record.seq, number) for number, message in enumerate(said, 1)]
            whole += [("event", record.seq, 0)] if protocol != "tools" else []
        async with impatient(engine) as url, aiohttp.ClientSession() as session, asyncio.timeout(60):
            heard, places = await _slowly(session, url, {"run": run, "protocol": protocol}, len(whole))
    assert [(name, said["seq"], said.get("part", 0)) for name, said in heard] == whole
    assert len(places) > 1
    assert protocol == "events" or any(part is not None for _, part in places), "nobody was let go in the middle"


async def _slowly(
    session: aiohttp.ClientSession, url: str, wanted: dict[str, Any], count: int
) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[int, int | None]]]:
    """All that somebody hears who takes things late, is let go, and comes back to where it was; and where that was."""
    heard: list[tuple[str, dict[str, Any]]] = []
    places: list[tuple[int, int | None]] = []
    client = Polling(session, url)
    await client.connect()
    await client.say("42" + json.dumps(["subscribe", wanted]))
    while len(heard) < count:
        await asyncio.sleep(0.3)  # longer than anybody is waited for
        for name, said in await client.heard():
            if name == "dropped":
                places.append((said["seq"], said["part"]))
                back = {**wanted, "after": said["seq"], "part": said["part"]}
                await client.say("42" + json.dumps(["subscribe", back]))
            else:
                heard.append((name, said))
    return heard, places
