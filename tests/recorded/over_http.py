"""What a real server answers over HTTP, by streams and by sockets."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx
import socketio  # type: ignore[import-untyped]
from tests.recorded.plain import Plain
from tests.recorded.runs import GATED, one
from tests.recorded.world import Place

TOKEN = "of the recorded server"
MESSAGES = (
    "event", "tool:message:start", "tool:message:update", "tool:artifact", "tool:message:complete", "dropped",
    "problem",
)  # fmt: skip
LOOKED_AT = ("succeeds", "heals", "falls back", "has a hole", "is in doubt", "waits", "is stopped", "is replanned")
SUBSCRIBED_TO = ("succeeds", "heals", "fails", "is in doubt", "falls back", "is cancelled", "is replanned")


async def over_http(place: Place, told: dict[str, dict[str, Any]], plain: Plain) -> None:
    """Everything that is asked of one server."""
    async with _served(place) as url:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"{url}api/v1", headers=bearer, timeout=30) as client:
            asked = _Asked(place, told, plain, client, url)
            await asked.look()
            await asked.act()
            await asked.streams()
        await _sockets(place, told["sockets"], plain, url)


@asynccontextmanager
async def _served(place: Place) -> AsyncIterator[str]:
    process = place.spawn("serve", "0", "--json", RERAIL_TOKEN=TOKEN)
    assert process.stdout is not None
    try:
        said = ""
        while not said.rstrip().endswith("}"):
            line = await asyncio.to_thread(process.stdout.readline)
            assert line, process.stderr
            said += line
        yield json.loads(said)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert "Traceback" not in err, err


class _Asked:
    """Requests, each recorded under its method and path."""

    def __init__(
        self, place: Place, told: dict[str, dict[str, Any]], plain: Plain, client: httpx.AsyncClient, url: str
    ) -> None:
        self._place, self._told, self._plain, self._client, self._url = place, told, plain, client, url

    def of(self, name: str) -> str:
        """A run's id."""
        return next(run for run, called in self._place.runs.items() if called == name)

    async def ask(self, method: str, path: str, body: Any = None, note: str = "", **headers: str) -> Any:
        """A request, and its answer."""
        answer = await self._client.request(method, path, json=body, headers=headers)
        media = answer.headers["content-type"].partition(";")[0]
        said = answer.json() if media.endswith("json") else answer.text
        if path == "/settings":
            said = {**said, "settings": {row["key"]: row for row in said["settings"]}}
        name = self._plain.text(f"{method} {path}" + (f" {json.dumps(body)}" if body else "") + note)
        assert name not in self._told["http"], name
        self._told["http"][name] = {"status": answer.status_code, "media": media, "body": self._plain(said)}
        return said

    async def get(self, path: str) -> Any:
        """A look."""
        return await self.ask("GET", path)

    async def look(self) -> None:
        """Every route that shows something."""
        for path in ("/health", "/runs", "/runs?status=failed&limit=2", "/tools", "/settings", "/memory"):
            await self.get(path)
        for name in LOOKED_AT:
            run = self.of(name)
            for part in ("", "/view", "/why", "/graph", "/revisions", "/logs", "/artifacts", "/steps/a"):
                await self.get(f"/runs/{run}{part}")
        heals, succeeds = self.of("heals"), self.of("succeeds")
        for path in (
            f"/runs/{heals}/events", f"/runs/{heals}/events?after=3&limit=2",
            f"/runs/{heals}/events?words=true&limit=9", f"/runs/{heals}/why?step=a", f"/runs/{heals}/why?lang=zh",
            f"/runs/{heals}/step?id=a", f"/runs/{heals}/step?step=a", f"/runs/{heals}/logs?step=a",
            f"/runs/{heals}/replay?set=retry.max_retries%3D0", f"/runs/{heals}/replay?set=store.url%3Dx",
            f"/runs/{succeeds}/artifacts/a", f"/runs/{succeeds}/artifacts/none", f"/runs/{heals}/steps/zz",
            "/runs/nothing", "/runs/nothing/why?lang=zh", "/runs?limit=none", "/nowhere",
        ):  # fmt: skip
            await self.get(path)
        await self.ask("GET", "/runs", note=" (no token)", authorization="Bearer wrong")
        await self.ask("GET", "/runs", note=" (another host)", host="example.org")
        await self.ask("GET", "/runs", note=" (another page)", origin="https://example.org")
        openapi = (await self._client.get(f"{self._url}openapi.json")).json()
        taken = {"get": {}, "post": {}, "delete": {}}
        for path, methods in openapi["paths"].items():
            for method, route in methods.items():
                body = route.get("requestBody", {}).get("content", {})
                given = {one["name"]: one["schema"] for one in route.get("parameters", ())}
                taken[method][path] = {"takes": given, "body": body, "answers": dict.fromkeys(route["responses"], "…")}
        self._told["http"]["openapi"] = self._plain(taken)
        self._told["http"]["openapi bodies"] = self._plain(openapi["components"]["schemas"])

    async def start(self, run: str, *steps: dict[str, Any], until: str = "done") -> None:
        """A run of our own, until it is at rest or waits."""
        plan = {"objective": f"the run {run}", "steps": list(steps)}
        answer = await self._client.post("/runs", json={"plan": plan, "run_id": run})
        assert answer.status_code == 201, answer.text
        body = answer.json()
        kept = {key: body[key] for key in ("run_id", "objective", "success", "complete")} | {
            "has": dict.fromkeys(sorted(body), "…")
        }
        self._told["http"][f"POST /runs ({run})"] = {"status": 201, "body": self._plain(kept)}
        await self.until(run, until)

    async def until(self, run: str, *kinds: str, after: int = 0) -> int:
        """Follow a run's stream until an event of one of these kinds."""
        async with asyncio.timeout(30):
            async for event in self._stream(f"/runs/{run}/stream?after={after}"):
                if event["event"] in kinds:
                    return int(event["id"])
        raise AssertionError(run)

    async def seq(self, run: str) -> int:
        """How long a run's history is."""
        return int((await self._client.get(f"/runs/{run}")).json()["seq"])

    async def post(self, run: str, act: str, body: Any, *until: str, note: str = "") -> None:
        """An action; its answer is told by what does not depend on how fast the server is."""
        after = await self.seq(run)
        answer = await self._client.post(f"/runs/{run}/{act}", json=body)
        said = answer.json()
        if until:  # under way: only its shape is sure
            said = {"run_id": said.get("run_id"), "has": dict.fromkeys(sorted(said), "…")}
        name = self._plain.text(f"POST /runs/{run}/{act} {json.dumps(body)}{note}")
        assert name not in self._told["http"], name
        self._told["http"][name] = {"status": answer.status_code, "body": self._plain(said)}
        if until:
            await self.until(run, *until, after=after)
            await self.ask("GET", f"/runs/{run}", note=f" (after {act}{note})")

    async def act(self) -> None:
        """Every route that changes something."""
        good = {"objective": "a good one", "steps": [one("a")]}
        await self.ask("POST", "/plans/check", {"plan": good})
        await self.ask("POST", "/plans/check", {"plan": {"steps": [one("a", "okk"), one("b", needs=["z"])]}})
        await self.ask("POST", "/plans", {"objective": "anything"})
        await self.ask("POST", "/runs", {"plan": {"steps": [one("a", "okk")]}})
        await self.ask("POST", "/runs", {"plan": good, "on": "ray"})
        await self.ask("POST", "/runs", {"plan": good, "nonsense": 1})
        await self.ask("POST", "/runs", {})
        await self.start("w1", *GATED, until="waiting")
        await self.post("w1", "confirm", {"dry_run": True})
        await self.post("w1", "confirm", {"digest": "another"})
        await self.post("w1", "add", {"steps": [one("x", "nothing")]})
        await self.post("w1", "add", {"steps": [one("m", needs=["a"])]}, "step_succeeded")
        await self.post("w1", "pause", {}, "acted")
        await self.post("w1", "resume", {}, "waiting")
        await self.post("w1", "confirm", {"step": "b", "args": {"amount": 9}}, "done")
        await self.post("w1", "confirm", {})
        await self.start("w2", *GATED, until="waiting")
        await self.post("w2", "cancel", {"reason": "no need"}, "done")
        await self.start("w3", *GATED, until="waiting")
        await self.post("w3", "confirm", {"refuse": True}, "done")
        await self.start("w4", one("a", "send"), one("b", args={"value": "${a.ok}"}), until="waiting")
        await self.post("w4", "resolve", {"step": "a", "outcome": "rerun", "dry_run": True})
        await self.post("w4", "resolve", {"step": "a", "outcome": "succeeded", "value": {"ok": 1}}, "done")
        await self.start("w5", one("a", "upload", args={"source": "ds_0"}), one("b", args={"value": "${a.uploaded}"}))
        await self.post("w5", "retry", {"dry_run": True})
        await self.post("w5", "retry", {"clean": True})
        await self.post("w5", "retry", {}, "done")
        await self.post("w5", "repair", {"step": "a", "args": {"source": "ds_1"}, "dry_run": True})
        await self.post("w5", "repair", {"step": "a", "args": {"source": "ds_1"}}, "done")
        await self.start("w6", one("a", "fail"), one("b", needs=["a"]))
        await self.post("w6", "skip", {"step": "a", "dry_run": True})
        await self.post("w6", "skip", {"step": "a", "reason": "not this time"}, "done")
        await self.post("w6", "skip", {"step": "zz"})
        await self.post("w6", "skip", {})
        await self.ask("POST", "/retry", {"dry_run": True})
        await self.ask("DELETE", "/memory")

    # -- Streams ------------------------------------------------------------------------------------------------------

    async def _stream(self, path: str, **headers: str) -> AsyncIterator[dict[str, Any]]:
        async with self._client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            event: dict[str, Any] = {}
            async for line in response.aiter_lines():
                name, _, value = line.partition(":")
                if line and name:
                    event[name] = json.loads(value) if name == "data" else value.strip()
                elif not line and "data" in event:
                    yield event
                    event = {}

    async def _kept(self, path: str, most: int = 1000, **headers: str) -> None:
        found = []
        async for event in self._stream(path, **headers):
            found.append(event)
            if len(found) >= most:
                break
        if path.startswith("/stream"):
            for event in found:
                event.pop("id", None)  # names this server process
        name = f"GET {path}" + (f" {headers}" if headers else "")
        self._told["streams"][self._plain.text(name)] = self._plain(found)

    async def streams(self) -> None:
        """Streams of runs that are over, and of all runs."""
        heals = self.of("heals")
        await self._kept(f"/runs/{heals}/stream?until_rest=true")
        await self._kept(f"/runs/{heals}/stream?until_rest=true&words=true")
        await self._kept(f"/runs/{heals}/stream?until_rest=true", **{"last-event-id": "12"})
        await self._kept(f"/runs/{heals}/live", 1)
        await self._kept(f"/runs/{self.of('waits')}/live?lang=zh", 1)
        rows = len((await self._client.get("/runs?limit=200")).json()["runs"])
        await self._kept("/stream", rows)
        await self._kept("/stream?events=true", rows, **{"last-event-id": "of another process"})


# -- Sockets ----------------------------------------------------------------------------------------------------------


async def _sockets(place: Place, told: dict[str, Any], plain: Plain, url: str) -> None:
    ids = {name: run for run, name in place.runs.items()}
    async with aiohttp.ClientSession() as session:
        client = socketio.AsyncClient(reconnection=False, http_session=session)
        heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        for name in MESSAGES:
            client.on(name, lambda said, name=name: heard.put_nowait((name, said)))
        await client.connect(url, auth={"token": TOKEN}, transports=["websocket"])
        wishes = [{"run": ids[name]} for name in SUBSCRIBED_TO]
        for wanted in (*wishes, {"run": ids["heals"], "protocol": "events"}, {"run": ids["heals"], "after": 11}):
            answer = await client.call("subscribe", wanted)
            messages = await _heard(heard, answer["seq"])
            told[plain.text(f"subscribe {json.dumps(wanted)}")] = {"answer": plain(answer), "messages": plain(messages)}
        told["unsubscribe"] = plain(await client.call("unsubscribe", {"run": ids["heals"]}))
        for bad in ({"run": "nothing"}, {"nonsense": 1}, {"run": 1}):
            told[f"subscribe {json.dumps(bad)}"] = plain(await client.call("subscribe", bad))
        await client.disconnect()


async def _heard(heard: asyncio.Queue[tuple[str, Any]], seq: int) -> list[Any]:
    """What a subscription brings, up to the last event of a run: it comes after the messages that it stands for."""
    found: list[Any] = []
    async with asyncio.timeout(30):
        while not found or found[-1][0] != "event" or found[-1][1]["seq"] < seq:
            found.append(list(await heard.get()))
    return found
