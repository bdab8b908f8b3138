"""Idempotency keys as services see them: in requests, commands and MCP calls, over retries and crashes (E2)."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.outcomes.endings import Book
from tests.outcomes.lab import SETTINGS, STDIO, Endings, Quiet

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import SettingsError

KEY = "rerail/idempotency-key"
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('KEY'), sys.stdin.read()]))"


class Service(Quiet):
    """A service that books once for each key, and ends its first answers as a test says."""

    def __init__(self, *endings: str) -> None:
        self.endings = list(endings)  # of the first requests: "cut", "hang" or a status
        self.seen: list[dict[str, Any]] = []
        self.booked: dict[str, int] = {}
        super().__init__(Booking)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def keys(self) -> list[str | None]:
        """The key of each request."""
        return [one["headers"].get("idempotency-key") for one in self.seen]


class Booking(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"
    log_message = Endings.log_message
    cut, answer = Endings.cut, Endings.answer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append({"headers": headers, "body": body})
        ending = self.server.endings.pop(0) if self.server.endings else ""
        if ending.isdecimal():
            self.answer(int(ending), {"message": "?"}, {"Retry-After": "0"})
            return
        key = headers.get("idempotency-key", f"no key {len(self.server.seen)}")
        number = self.server.booked.setdefault(key, len(self.server.booked) + 1)
        if ending == "cut":
            self.cut(b"")
        else:
            self.answer(200, {"booking": number})

    do_PUT = do_POST


@pytest.fixture
def service() -> Iterator[Service]:
    """A service that knows keys."""
    made = Service()
    yield made
    made.shutdown()
    made.server_close()


def run(tools: list[Any], given: dict[str, Any] | None = None, **step: Any) -> Any:
    """A run of one step, and the row of it."""

    async def main() -> Any:
        async with Engine(MemoryStore(), tools, {**SETTINGS, **(given or {})}) as engine:
            name = step.pop("tool", None) or tools[0].spec.name
            return (await engine.run({"steps": [{"id": "a", "tool": name, **step}]})).steps["a"]

    return asyncio.run(main())


# -- Where the key stands -----------------------------------------------------------------------------------------


def test_e2_a_request_of_effect_once_carries_its_key(service: Service) -> None:
    """E2: in `Idempotency-Key`, and the same when it is sent again; a repeatable request carries none."""
    service.endings = ["503"]
    assert run([rerail.http("book", "POST", service.url)]).status == "succeeded"
    assert len(service.keys) == 2 and service.keys[0] and len(set(service.keys)) == 1
    service.seen.clear()
    run([rerail.http("book", "POST", service.url, effect="repeatable")])
    run([rerail.http("put", "PUT", service.url)])
    assert service.keys == [None, None]


def test_e2_other_arguments_and_other_runs_have_other_keys(service: Service) -> None:
    """E2: a key names one call; it is not the same for another."""
    book = rerail.http("book", "POST", service.url, body={"n": "{n}"})
    for number in (1, 2, 2):
        run([book], args={"n": number})
    assert len(set(service.keys)) == 3


def test_e2_the_header_is_told_otherwise(service: Service) -> None:
    """E2: none, another name, or one that the tool declares itself; `{key}` is the key wherever it stands."""
    run([rerail.http("a", "POST", service.url, key_header=None)])
    run([rerail.http("b", "POST", service.url, key_header="X-Request-Id")])
    run([rerail.http("c", "POST", service.url, headers={"idempotency-key": "mine-{key}"})])
    none, other, own = (one["headers"] for one in service.seen)
    assert "idempotency-key" not in none
    assert other["x-request-id"] and "idempotency-key" not in other
    assert own["idempotency-key"].startswith("mine-") and len(own["idempotency-key"]) > 10


def test_e2_the_key_stands_in_headers_and_bodies(service: Service) -> None:
    """E2: as a whole value and within a text, the same in both; it is no argument of the tool."""
    body = {"request": {"id": "{key}", "note": "order {key}"}, "n": "{n}"}
    book = rerail.http("book", "POST", service.url, headers={"X-Key": "{key}"}, body=body)
    assert run([book], args={"n": 5}).status == "succeeded"
    (seen,) = service.seen
    key, sent = seen["headers"]["idempotency-key"], json.loads(seen["body"])
    assert seen["headers"]["x-key"] == key
    assert sent == {"request": {"id": key, "note": f"order {key}"}, "n": 5}


@pytest.mark.parametrize("place", ["argv", "env", "stdin"])
def test_e2_the_key_stands_in_commands(place: str) -> None:
    """E2: in an argument, a variable or the input; it is no argument of the tool."""
    argv = [sys.executable, "-c", SHOW, *(["k={key}"] if place == "argv" else [])]
    options: dict[str, Any] = {"env": {"env": {"KEY": "k={key}"}}, "stdin": {"stdin": "k={key}"}}.get(place, {})
    row = run([rerail.shell("show", argv, parse="json", idempotent_for=60, **options)])
    given, variable, text = row.output
    key = {"argv": given[0] if given else "", "env": variable, "stdin": text}[place]
    assert row.status == "succeeded" and key.startswith("k=") and len(key) > 10


def test_e2_key_stays_an_argument_where_it_is_one(service: Service) -> None:
    """E2: where the schema has an argument of that name, and where the effect is not `once`."""
    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    argv = [sys.executable, "-c", SHOW, "{key}"]
    for options in ({"schema": schema}, {"effect": "repeatable"}, {"effect": "read"}):
        assert run([rerail.shell("show", argv, parse="json", **options)], args={"key": "mine"}).output[0] == ["mine"]
    for options in ({"schema": schema}, {"effect": "repeatable"}):
        run([rerail.http("book", "POST", service.url, body={"k": "{key}"}, **options)], args={"key": "mine"})
    assert [json.loads(one["body"]) for one in service.seen] == [{"k": "mine"}] * 2
    assert service.keys[0] and service.keys[0] != "mine" and service.keys[1] is None


# -- Answers that were lost ---------------------------------------------------------------------------------------


def test_e2_a_lost_answer_is_in_doubt_unless_the_service_remembers_the_key(service: Service) -> None:
    """E2, E3: without `idempotent_for` the same request is never sent again unasked."""
    service.endings = ["cut"]
    assert run([rerail.http("book", "POST", service.url)]).status == "in_doubt"
    assert len(service.seen) == len(service.booked) == 1


@pytest.mark.parametrize("where", ["tool", "step", "settings"])
def test_e2_a_lost_answer_is_asked_for_again_under_its_key(where: str, service: Service) -> None:
    """E2: the tool, the step or the settings say that the service remembers keys; it books once, and answers."""
    service.endings = ["cut"]
    options: dict[str, Any] = {"idempotent_for": 3600} if where == "tool" else {}
    given = {"tools": {"idempotent_for": {"book": 3600}}} if where == "settings" else {}
    book = rerail.http("book", "POST", service.url, body={"n": "{n}"}, **options)
    row = run([book], given, args={"n": 1}, **({"idempotent_for": 3600} if where == "step" else {}))
    assert (row.status, row.output["body"]) == ("succeeded", {"booking": 1})
    assert len(service.seen) == 2 and len(set(service.keys)) == 1 and len(service.booked) == 1


@pytest.mark.parametrize("status", ["409", "425"])
def test_e2_a_refusal_does_not_settle_a_lost_answer(status: str, service: Service) -> None:
    """E2: while the first request is under way the service refuses the second; it is asked again."""
    service.endings = ["cut", status]
    row = run([rerail.http("book", "POST", service.url, idempotent_for=3600)], {"reflection": {"max_step_retries": 3}})
    assert (row.status, len(service.seen), len(service.booked)) == ("succeeded", 3, 1)
    assert len(set(service.keys)) == 1


def test_e2_spent_retries_leave_the_step_in_doubt(service: Service) -> None:
    """E2: not failed: the first request may have booked."""
    service.endings = ["cut"] * 5
    assert run([rerail.http("book", "POST", service.url, idempotent_for=3600)]).status == "in_doubt"
    assert len(service.seen) == 2 and len(service.booked) == 1


def test_e2_a_tool_without_a_key_may_not_be_promised_one(service: Service) -> None:
    """E2: neither in its declaration nor in the settings."""
    with pytest.raises(ValueError, match="idempotency key"):
        rerail.http("book", "POST", service.url, key_header=None, idempotent_for=60)
    with pytest.raises(SettingsError, match="idempotency key"):
        run([rerail.shell("act", ["true"])], {"tools": {"idempotent_for": {"act": 60}}})
    assert rerail.http("book", "POST", service.url, key_header=None, body="{key}", idempotent_for=60).spec.keyed


async def _crashed(store: MemoryStore, tool: Any, service: Service) -> str:
    """A run whose engine was closed in the middle of its call."""
    async with Engine(store, [tool], SETTINGS) as engine:
        started = await engine.start({"steps": [{"id": "a", "tool": tool.spec.name, "args": {"n": 1}}]})
        async with asyncio.timeout(20):
            while not service.seen:  # noqa: ASYNC110 - it happens in a thread of the service
                await asyncio.sleep(0.01)
    return started


class Hanging(Booking):
    """A service that books, and answers its first request late."""

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        if len(self.server.seen) == 1:
            time.sleep(3)
        Endings.answer(self, status, body, headers)  # type: ignore[arg-type]


@pytest.mark.parametrize("covered", [True, False])
async def test_e2_the_key_outlives_the_process(covered: bool, service: Service) -> None:
    """E2, E3: the next process asks again under the same key where the service remembers it, or a person is asked."""
    service.RequestHandlerClass = Hanging
    options: dict[str, Any] = {"idempotent_for": 3600} if covered else {}
    book = rerail.http("book", "POST", service.url, body={"n": "{n}"}, **options)
    store = MemoryStore()
    started = await _crashed(store, book, service)
    async with Engine(store, [book], SETTINGS) as engine:
        await engine.resume(started)
        row = (await engine.wait(started)).steps["a"]
    assert row.status == ("succeeded" if covered else "in_doubt")
    assert len(service.seen) == (2 if covered else 1)
    assert len(set(service.keys)) == 1 and len(service.booked) == 1


async def test_e2_a_persons_word_keeps_the_key(service: Service) -> None:
    """E2: `resolve --rerun` sends the same key; a forced run of a step that succeeded draws another."""
    service.endings = ["cut"]
    book = rerail.http("book", "POST", service.url)
    async with Engine(MemoryStore(), [book], SETTINGS) as engine:
        result = await engine.run({"steps": [{"id": "a", "tool": "book"}]})
        await engine.resolve(result.run_id, "a", rerun=True)
        assert (await engine.wait(result.run_id)).success
        assert len(service.seen) == 2 and len(set(service.keys)) == 1
        await engine.retry(result.run_id, steps=["a"], force=True)
        assert (await engine.wait(result.run_id)).success
    assert len(service.seen) == 3 and len(set(service.keys)) == len(service.booked) == 2


# -- MCP ----------------------------------------------------------------------------------------------------------


def test_e2_mcp_calls_carry_their_key() -> None:
    """E2: in `_meta`, where the server finds it; a tool that only reads gets none."""
    servers = {"mcp": {"servers": {"far": {**STDIO, "tools": ["keyed", "keyed_read"]}}}}

    async def main() -> tuple[Any, Any]:
        async with Engine(MemoryStore(), [], {**SETTINGS, **servers}) as engine:
            steps = [{"id": "once", "tool": "keyed"}, {"id": "read", "tool": "keyed_read"}]
            result = await engine.run({"steps": steps})
            return result.steps["once"].output["meta"], result.steps["read"].output["meta"]

    once, read = asyncio.run(main())
    assert once[KEY] and KEY not in read


@pytest.mark.parametrize("where", ["server", "settings", "nowhere"])
def test_e2_an_mcp_server_that_remembers_keys_is_asked_again(where: str, tmp_path: Path) -> None:
    """E2, E3: `idempotent_for` of the server, or of its tool in the settings; without it a person is asked."""
    server = {**STDIO, "tools": ["book_once"], **({"idempotent_for": 3600} if where == "server" else {})}
    given: dict[str, Any] = {"mcp": {"servers": {"far": server}}}
    if where == "settings":
        given["tools"] = {"idempotent_for": {"book_once": 3600}}
    row, book = run([], given, tool="book_once", args={"ledger": str(tmp_path)}), Book(str(tmp_path))
    if where == "nowhere":
        assert (row.status, book.count("calls"), book.count("effects")) == ("in_doubt", 1, 1)
    else:
        assert (row.status, book.count("calls"), book.count("effects")) == ("succeeded", 2, 1)
