"""HTTP requests as tools: addresses, hosts, statuses, limits, broken connections (SPEC M2, E3, X4, X8, H2)."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.tools.declared import from_mapping
from rerail.adapters.tools.http import HttpTool, http
from rerail.adapters.tools.http_exchange import HttpFailed
from rerail.api import Engine
from rerail.codes import Category
from rerail.context import Context
from rerail.engine.failures import from_exception
from rerail.errors import RateLimited, SettingsError, ToolError
from rerail.kernel.foreign import certainty_of
from rerail.kernel.outcome import Certainty
from rerail.plan.step import Effect

pytestmark = pytest.mark.anyio


class Server:
    """A real server on the loopback: notes what it is asked, and answers as the test says."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None] | None = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answer = answer or (lambda handler: reply(handler, 200, {"ok": True}))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.seen.append(
                    {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
                )
                outer.answer(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = handle_one

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None: ...  # tests break connections

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, body: Any = b"", **headers: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    if not isinstance(body, bytes):
        handler.send_header("Content-Type", "application/json")
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def other() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


async def failure(made: HttpTool, args: dict[str, Any] | None = None, ctx: Any = None) -> Any:
    with pytest.raises(ToolError) as caught:
        await made.call(args or {}, ctx)
    return caught.value


# --- Declaring


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("GET", Effect.READ),
        ("HEAD", Effect.READ),
        ("put", Effect.REPEATABLE),
        ("DELETE", Effect.REPEATABLE),
        ("POST", Effect.ONCE),
        ("PATCH", Effect.ONCE),
    ],
)
def test_the_method_gives_the_effect(method: str, effect: Effect) -> None:
    """E3: GET and HEAD read, PUT and DELETE are repeatable, others happen once; unless declared."""
    assert http("x", method, "http://a/").spec.effect is effect
    assert http("x", method, "http://a/", effect="once").spec.effect is Effect.ONCE


@pytest.mark.parametrize(
    ("method", "url", "options", "said"),
    [
        ("GTE", "http://a/", {}, "did you mean 'GET'"),
        ("GET", "ftp://a/", {}, "https://host/path"),
        ("GET", "a/b", {}, "https://host/path"),
        ("GET", "http:///x", {}, "names no host"),
        ("GET", "http://u:p@a/", {}, "headers="),
        ("GET", "http://a/#f", {}, "https://host/path"),
        ("GET", "http://{host}/", {}, "allow_hosts"),
        ("GET", "http://a/{x.y}", {}, "not a placeholder"),
        ("GET", "http://a/", {"headers": {"a b": "c"}}, "not a header"),
        ("GET", "http://a/", {"headers": {"a": "b\r\nc: d"}}, "not a header"),
        ("GET", "http://a/", {"allow_hosts": "a"}, "list of hosts"),
        ("GET", "http://a/{x}", {"schema": {"properties": {"y": {}}}}, "no property 'x'"),
        ("GET", "http://a/", {"header": {}}, "did you mean 'headers'"),
    ],
)
def test_a_wrong_declaration_is_refused(method: str, url: str, options: dict[str, Any], said: str) -> None:
    """M2: when the tool is made, not when it is called."""
    with pytest.raises(ValueError, match=said):
        http("x", method, url, **options)


def test_the_schema_asks_for_the_placeholders() -> None:
    """M2: wherever they stand; in a body a whole placeholder may be anything, in a query it may be a list."""
    made = http(
        "x", "POST", "http://a/{a}?b={b}", query={"c": "{c}"}, headers={"D": "{d}"}, body={"e": ["{e}", "-{f}"]}
    )
    schema = made.spec.schema
    assert sorted(schema.source["required"]) == ["a", "b", "c", "d", "e", "f"]
    good = {"a": "x", "b": 1, "c": ["x"], "d": True, "e": {"any": [None]}, "f": "x"}
    assert schema.faults(good) == []
    assert schema.faults({**good, "a": ["x"]})
    assert schema.faults({**good, "f": {}})
    assert schema.faults({**good, "g": 1})


# --- Requests


async def test_a_request_is_filled_from_arguments_and_context(server: Server) -> None:
    """M2, M3: path, query, headers, body and the idempotency key."""
    made = http(
        "x",
        "POST",
        server.url("/users/{id}/mail?a={a}&b=c"),
        query={"tag": "{tags}", "gone": "{gone}", "n": 5, "t": "<{a}>"},
        headers={"Idempotency-Key": "{ctx.key}", "X-Gone": "{gone}", "X-Name": "名"},
        body={"to": "{to}", "text": "Dear {a}", "deep": [{"{a}": "{gone}"}], "n": 1},
        schema=True,
    )
    args = {"id": "a/b", "a": "ü&=", "tags": ["x", "y z"], "to": {"name": "me"}}
    output = await made.call(args, Context(key="key-1"))
    assert output["body"] == {"ok": True}
    (seen,) = server.seen
    assert seen["method"] == "POST"
    assert seen["path"] == "/users/a%2Fb/mail?a=%C3%BC%26%3D&b=c&tag=x&tag=y%20z&n=5&t=%3C%C3%BC%26%3D%3E"
    assert seen["headers"]["Idempotency-Key"] == "key-1"
    assert "X-Gone" not in seen["headers"]
    assert seen["headers"]["Content-Type"] == "application/json"
    sent = {"to": {"name": "me"}, "text": "Dear ü&=", "deep": [{"{a}": None}], "n": 1}
    assert json.loads(seen["body"]) == sent


async def test_bodies_may_be_text_or_one_value(server: Server) -> None:
    """M2: a template with words around is text, a whole placeholder is JSON; a content type of one's own stays."""
    await http("x", "PUT", server.url(), body="a={a}").call({"a": "b"})
    await http("x", "PUT", server.url(), body="{a}").call({"a": [1]})
    await http("x", "PUT", server.url(), body="<{a}/>", headers={"content-type": "text/xml"}).call({"a": "b"})
    bodies = [
        (seen["body"], {k.lower(): v for k, v in seen["headers"].items()}["content-type"]) for seen in server.seen
    ]
    assert bodies == [(b"a=b", "text/plain; charset=utf-8"), (b"[1]", "application/json"), (b"<b/>", "text/xml")]


@pytest.mark.parametrize(
    "value", ["a/b", "a?b=c", "a#b", "a%2fb", "..%2f..", "a\\b", "a b", "a\r\nX: y", "a;b", "@host", "\0"]
)
async def test_a_value_cannot_change_the_shape_of_a_path(server: Server, value: str) -> None:
    """M2: no new segment, query, fragment or header; what arrives is the value in its place."""
    from urllib.parse import unquote

    await http("x", "GET", server.url("/files/{name}/meta")).call({"name": value})
    (seen,) = server.seen
    assert seen["path"].startswith("/files/")
    assert seen["path"].endswith("/meta")
    assert seen["path"].count("/") == 3
    assert not set("?# \r\n") & set(seen["path"])
    assert unquote(seen["path"]) == f"/files/{value}/meta"


@pytest.mark.parametrize("value", ["..", ".", "", None])
async def test_dots_and_nothing_are_refused_in_a_path(server: Server, value: Any) -> None:
    """M2: `DELETE /users/{id}` never becomes `DELETE /users/`, nor `DELETE /`."""
    error = await failure(http("x", "DELETE", server.url("/users/{id}"), schema=True), {"id": value})
    assert error.code == "ARGS_INVALID"
    assert server.seen == []


async def test_headers_cannot_be_injected(server: Server) -> None:
    """M2: a line break in a header's value is refused before anything is sent."""
    made = http("x", "GET", server.url(), headers={"X-A": "{a}"})
    for value in ("b\r\nX-Evil: 1", "b\n c", "b\0"):
        assert (await failure(made, {"a": value})).code == "ARGS_INVALID"
    assert server.seen == []


# --- Hosts


async def test_a_host_from_data_must_be_allowed(server: Server) -> None:
    """M2, SPEC 11: by name, by name and port, or by domain; nothing that is no host name gets that far."""
    made = http("x", "GET", f"http://{{host}}:{server.port}/", allow_hosts=["localhost", "*.example.com"])
    assert (await made.call({"host": "LOCALHOST"}))["status"] == 200
    for host, code in (
        ("127.0.0.1", "HOST_NOT_ALLOWED"),
        ("example.com", "HOST_NOT_ALLOWED"),
        ("evilexample.com", "HOST_NOT_ALLOWED"),
        ("localhost@evil.com", "ARGS_INVALID"),
        ("localhost/..", "ARGS_INVALID"),
        ("localhost:1", "ARGS_INVALID"),
        ("localhost#", "ARGS_INVALID"),
        ("", "ARGS_INVALID"),
        ("[::1]", "ARGS_INVALID"),
    ):
        assert (await failure(made, {"host": host})).code == code, host
    assert len(server.seen) == 1
    port = http("x", "GET", "http://127.0.0.1:{port}/", allow_hosts=[f"127.0.0.1:{server.port}"])
    assert (await port.call({"port": server.port}))["status"] == 200
    assert (await failure(port, {"port": 80})).code == "HOST_NOT_ALLOWED"
    assert (await failure(port, {"port": "80@x"})).code == "ARGS_INVALID"


async def test_the_settings_list_stands_above_the_tool(server: Server) -> None:
    """SPEC 11: with a list, also the address that the tool names must be on it."""
    made = http("x", "GET", server.url())
    assert (await made.call({}))["status"] == 200
    error = await failure(made.limited_to(["api.example.com"]))
    assert (error.code, "tools.allow_hosts" in str(error)) == ("HOST_NOT_ALLOWED", True)
    assert (await made.limited_to(["127.0.0.1"]).call({}))["status"] == 200
    declared = from_mapping("x", {"http": {"url": server.url(), "allow_hosts": ["127.0.0.1"]}}, allow_hosts=["b"])
    assert isinstance(declared, HttpTool)
    assert (await failure(declared)).code == "HOST_NOT_ALLOWED"
    assert len(server.seen) == 2


# --- Redirects


async def test_redirects_are_followed_for_reading_and_only_to_allowed_hosts(server: Server, other: Server) -> None:
    """M2: the allow-list holds for each hop; credentials stay with the one they were meant for."""
    server.answer = lambda handler: (
        reply(handler, 200, {"at": handler.path})
        if handler.path.startswith("/end")
        else reply(handler, 302, Location="end?a=b c")
    )
    assert (await http("x", "GET", server.url("/start")).call({}))["body"] == {"at": "/end?a=b%20c"}

    server.answer = lambda handler: reply(handler, 302, Location=f"http://localhost:{other.port}/there")
    made = http("x", "GET", server.url(), headers={"Authorization": "secret", "X-Other": "kept"})
    error = await failure(made)
    assert (error.code, other.seen) == ("HOST_NOT_ALLOWED", [])
    assert (await made.limited_to(["127.0.0.1", "localhost"]).call({}))["status"] == 200
    assert "Authorization" not in other.seen[0]["headers"]
    assert other.seen[0]["headers"]["X-Other"] == "kept"
    assert server.seen[-1]["headers"]["Authorization"] == "secret"


async def test_a_header_from_a_secret_goes_to_no_other_port(
    server: Server, other: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SECURITY: whatever its name; without a list the tool's own port is the only one."""
    monkeypatch.setenv("SHOP_KEY_HERE", "a-long-secret")
    server.answer = lambda handler: reply(handler, 302, Location=f"http://127.0.0.1:{other.port}/there")
    headers = {"X-Plain": "{env.SHOP_KEY_HERE}", "X-Api-Key": "literal", "X-Other": "kept"}
    made = http("x", "GET", server.url(), headers=headers)
    assert (await failure(made)).code == "HOST_NOT_ALLOWED"
    assert (await made.limited_to(["127.0.0.1"]).call({}))["status"] == 200
    assert [other.seen[0]["headers"].get(name) for name in headers] == [None, None, "kept"]
    assert [server.seen[-1]["headers"].get(name) for name in headers] == ["a-long-secret", "literal", "kept"]


async def test_redirects_end(server: Server) -> None:
    """M2: five at most, and nowhere but http and https."""
    server.answer = lambda handler: reply(handler, 302, Location="/again")
    error = await failure(http("x", "GET", server.url()))
    assert "more than 5 redirects" in str(error)
    assert len(server.seen) == 6
    for location in ("file:///etc/passwd", "gopher://a/", "http://[bad/"):
        server.answer = lambda handler, location=location: reply(handler, 302, Location=location)
        assert (await failure(http("x", "GET", server.url()))).status == 302
    server.answer = lambda handler: reply(handler, 302)
    assert (await failure(http("x", "GET", server.url()))).status == 302


@pytest.mark.parametrize("status", [300, 301, 302, 304, 305, 307, 308])
async def test_x4_a_request_with_an_effect_is_never_sent_twice(server: Server, status: int) -> None:
    """X4, E3: a redirected POST is not followed; a redirect tells nothing about whether it was done."""
    server.answer = lambda handler: reply(handler, status, Location="/there")
    error = await failure(http("x", "POST", server.url()))
    assert (error.status, error.lost, len(server.seen)) == (status, True, 1)
    server.answer = lambda handler: reply(handler, 303, Location="/there")
    output = await http("x", "POST", server.url()).call({})
    assert (output["status"], output["headers"]["location"]) == (303, "/there")


# --- Statuses


async def test_x4_an_error_status_is_a_failure_that_carries_it(server: Server) -> None:
    """X3, X4, H2: the status is there for the classifier, the words for people, the query for nobody."""
    for status in (400, 401, 403, 404, 408, 409, 422, 429, 500, 503):
        server.answer = lambda handler, status=status: reply(handler, status, {"error": "why"})
        error = await failure(http("x", "GET", server.url("/path?key=secret")))
        assert isinstance(error, HttpFailed)
        assert (error.status, error.code, error.category, error.retry_after) == (status, "HTTP_STATUS", None, None)
        assert f"HTTP {status} from GET {server.url('/path').removeprefix('http://')}: " in str(error)
        assert '{"error": "why"}' in str(error)
        assert "secret" not in str(error)
        assert error.lost is (status in (408, 500, 503)), "a refusal says that nothing happened"


@pytest.mark.parametrize("status", [429, 503])
async def test_not_now_is_no_failure(server: Server, status: int) -> None:
    """X8: 429 and 503 with Retry-After say when to come back, in seconds or as a date by the server's clock."""
    made = http("x", "GET", server.url())

    def says(value: str, **more: str) -> None:
        server.answer = lambda handler: reply(handler, status, b"slow down", Retry_After=value, **more)

    says("7")
    error = await failure(made)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.status, error.code) == (7.0, status, "RATE_LIMITED")
    assert "slow down" in str(error)

    def dated(handler: BaseHTTPRequestHandler) -> None:
        # A server whose clock is an hour slow: only the difference counts.
        now = time.time() - 3600
        handler.send_response_only(status)
        handler.send_header("Date", formatdate(now, usegmt=True))
        handler.send_header("Retry-After", formatdate(now + 90, usegmt=True))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answer = dated
    assert (await failure(made)).retry_after == pytest.approx(90, abs=1)
    says(formatdate(time.time() - 50, usegmt=True))
    assert (await failure(made)).retry_after == 0.0
    for nonsense in ("soon", "-5", "", "1e9999", "Mon, 99 Foo 2026 00:00:00 GMT"):
        says(nonsense)
        error = await failure(made)
        assert isinstance(error, HttpFailed), nonsense
        assert error.status == status


async def test_retry_after_on_other_statuses_is_kept(server: Server) -> None:
    """H2: `Retry-After` is honoured by whoever waits."""
    server.answer = lambda handler: reply(handler, 500, Retry_After="3")
    error = await failure(http("x", "GET", server.url()))
    assert (type(error), error.retry_after) == (HttpFailed, 3.0)


# --- Answers


@pytest.mark.parametrize("data", [b'{"items": [1, 2', b"<html>busy</html>", b"\xff{}", b"[" * 100_000])
async def test_x4_broken_json_is_no_answer(server: Server, data: bytes) -> None:
    """X4, M2: an answer that says it is JSON and is not is unreadable: a GET is made again, a POST may have acted."""
    told = [data, b'{"items": [1]}']
    server.answer = lambda handler: reply(
        handler, 200, told[min(len(server.seen), 2) - 1], Content_Type="text/json+json"
    )
    error = await failure(http("x", "GET", server.url()))
    assert (error.code, certainty_of(error)) == ("ANSWER_UNREADABLE", Certainty.LOST)

    async def run(method: str) -> Any:
        server.seen.clear()
        settings = {"retry": {"backoff_base": 0.01}}
        async with Engine("memory://", [http("x", method, server.url())], settings=settings) as engine:
            return (await engine.run({"steps": [{"id": "a", "tool": "x"}]})).steps["a"]

    mended, posted = await run("GET"), await run("POST")
    assert (mended.status, mended.output["body"], mended.attempts) == ("succeeded", {"items": [1]}, 2)
    assert (posted.status, posted.code, posted.attempts) == ("in_doubt", "ANSWER_UNREADABLE", 1)


async def test_answers_are_read_by_their_content_type(server: Server) -> None:
    """M2: JSON, text, bytes that are no text; a few headers; nothing where there is nothing."""

    async def body(data: bytes, content_type: str = "", **headers: str) -> Any:
        more = {"Content_Type": content_type} if content_type else {}
        server.answer = lambda handler: reply(handler, 200, data, **more, **headers)
        output = await http("x", "GET", server.url()).call({})
        return output["body"] if "encoding" not in output else (output["encoding"], output["body"])

    assert await body(b'{"a": [1]}', "application/json; charset=utf-8") == {"a": [1]}
    assert await body(b"[]", "application/problem+json") == []
    assert await body(b'\xef\xbb\xbf{"a": 1}', "application/json") == {
        "a": 1
    }  # with a byte order mark, as some send it
    assert await body(b"[1]", "text/plain") == "[1]"
    assert await body("ü".encode("latin-1"), "text/plain; charset=latin-1") == "ü"
    assert await body(b"\xff\x00", "image/png") == ("base64", "/wA=")
    assert await body(b"x", "text/plain; charset=no-such") == ("base64", "eA==")
    assert await body(b"") is None
    assert await body(gzip.compress(b"[2]"), "application/json", Content_Encoding="gzip") == [2]
    server.answer = lambda handler: reply(handler, 200, {"a": 1}, ETag='"e"', X_Request_Id="7", Set_Cookie="secret=1")
    output = await http("x", "GET", server.url()).call({})
    assert output["headers"].items() >= {"etag": '"e"', "x-request-id": "7", "content-type": "application/json"}.items()
    assert "set-cookie" not in output["headers"]
    output = await http("x", "HEAD", server.url()).call({})
    assert (output["status"], output["body"]) == (200, None)


async def test_the_size_limit_holds_while_reading(server: Server) -> None:
    """M2: an endless answer is not collected; what was asked has been done, so a `once` request is in doubt."""

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)

    server.answer = endless
    error = await failure(http("x", "POST", server.url(), max_bytes=1_000_000))
    assert (error.code, error.lost) == ("OUTPUT_TOO_LARGE", True)
    bomb = gzip.compress(b"\0" * 50_000_000)
    server.answer = lambda handler: reply(handler, 200, bomb, Content_Encoding="gzip")
    assert (await failure(http("x", "GET", server.url(), max_bytes=1_000_000))).code == "OUTPUT_TOO_LARGE"
    server.answer = lambda handler: reply(handler, 200, b"not gzip", Content_Encoding="gzip")
    assert (await failure(http("x", "GET", server.url()))).code == "OUTPUT_NOT_JSON"
    server.answer = lambda handler: reply(handler, 500, b"x" * 2_000_000)
    assert (await failure(http("x", "GET", server.url(), max_bytes=1_000_000))).status == 500


# --- Connections


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_refused_connection_is_an_ordinary_failure(server: Server) -> None:
    """X4: nothing was sent, so nothing is in doubt; trying again may help."""
    error = await failure(http("x", "POST", f"http://127.0.0.1:{closed_port()}/"))
    assert (error.lost, error.category) == (False, Category.TRANSIENT)
    assert "refused" in str(error)
    for url in ("http://no-such-host.invalid/", f"https://127.0.0.1:{server.port}/"):  # the second speaks no TLS
        error = await failure(http("x", "POST", url))
        assert from_exception(error, {}).error.code == "TOOL_FAILED"
        assert (error.lost, error.category) == (False, Category.TRANSIENT)
    assert server.seen == []


@pytest.mark.parametrize(
    "how", ["no answer", "half a head", "a head without end", "half a body", "half a chunk", "garbage"]
)
async def test_a_connection_that_breaks_in_the_middle_loses_the_answer(server: Server, how: str) -> None:
    """X4: the request was sent; whether it was done is not known."""
    said = {
        "no answer": b"",
        "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
        "a head without end": b"HTTP/1.1 204 No Content\r\nX-A: b\r\n",
        "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
        "garbage": b"what?\r\n\r\n",
    }[how]

    def broken(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(said)
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    server.answer = broken
    error = await failure(http("x", "POST", server.url()))
    assert (error.code, error.lost) == ("CONNECTION_LOST", True)
    assert str(error).strip()
    assert len(server.seen) == 1


async def test_no_answer_in_time_loses_the_answer(server: Server) -> None:
    """X4: a read timeout; the step's timeout, which the context knows, beats the tool's."""
    release = threading.Event()
    server.answer = lambda handler: release.wait(10) and None
    made = http("x", "POST", server.url(), timeout=0.2)
    error = await failure(made)
    assert (error.code, error.lost, "in time" in str(error)) == ("CONNECTION_LOST", True, True)
    start = time.perf_counter()
    await failure(http("x", "POST", server.url(), timeout=60), ctx=Context(timeout=0.2))
    assert time.perf_counter() - start < 5
    release.set()


async def test_cancelling_closes_the_connection(server: Server) -> None:
    """X4: the caller is free at once, and the server notices."""
    noticed = threading.Event()

    def wait(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.recv(1)
        noticed.set()
        handler.close_connection = True

    server.answer = wait
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(http("x", "GET", server.url()).call({}), 0.2)
    assert await asyncio.to_thread(noticed.wait, 5)


async def test_certificates_are_checked(tmp_path: Path) -> None:
    """H2: an untrusted certificate is permanent, and nothing is sent."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        [
            *["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"],
            "-keyout",
            key,
            "-out",
            cert,
        ],
        capture_output=True,
    )
    assert made.returncode == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    error = await failure(http("x", "POST", f"https://localhost:{listening.getsockname()[1]}/"))
    assert (error.category, error.lost) == (Category.PERMANENT, False)
    assert "certificate" in str(error)
    listening.close()


# --- Declarations as data


async def test_requests_declared_as_data(server: Server) -> None:
    """M2: `{http: {method, url, …}}` in settings; what all tools share stands inside or beside."""
    data = {"http": {"method": "POST", "url": server.url("/{a}"), "body": {"b": "{b}"}}, "effect": "repeatable"}
    made = from_mapping("x", data)
    assert made.spec.effect is Effect.REPEATABLE
    assert (await made.call({"a": "p", "b": [1]}, None))["status"] == 200
    assert (server.seen[0]["path"], server.seen[0]["body"]) == ("/p", b'{"b": [1]}')
    assert (await from_mapping("x", {"http": server.url()}).call({}, None))["status"] == 200


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"http": {"metod": "GET", "url": "http://a/"}}, 'did you mean "method"'),
        ({"http": {"method": "GET"}}, 'missing required key "url"'),
        ({"http": 7}, "url: expected string"),
        ({"http": {"url": "http://a/", "headers": ["a"]}}, "headers: expected object"),
        ({"http": {"url": "http://a/", "timeout": 1}, "timeout": 2}, "given twice"),
        ({"http": {"url": "ftp://a/"}}, "https://host/path"),
    ],
)
def test_a_wrong_declaration_as_data_is_refused(data: Any, said: str) -> None:
    """SPEC 11: an unknown key is an error with the nearest key."""
    with pytest.raises(SettingsError, match=said):
        from_mapping("x", data)


# -- In a run ---------------------------------------------------------------------------------------------------------


def run_once(server: Server, method: str = "GET", **step: Any) -> Any:
    """One step that makes one request, with no delays between tries."""
    import rerail

    tool = http("ask", method, server.url("/x"))
    settings = {"retry": {"max_retry_rounds": 0, "backoff_base": 0}}
    return rerail.run({"steps": [{"id": "a", "tool": "ask", **step}]}, tools=[tool], settings=settings)


@pytest.mark.parametrize("body", [{"error": "database is locked"}, {"success": False, "message": "no"}, {"ok": False}])
def test_an_error_in_the_body_of_a_200_is_not_believed(server: Server, body: Any) -> None:
    """X9, X3: what the server said is looked at, not only what stands around it; and it can be trusted all the same."""
    server.answer = lambda handler: reply(handler, 200, body)
    assert run_once(server).steps["a"].status == "failed"
    trusted = run_once(server, trust_output=True)
    assert trusted.success is (body.get("success") is not False), "what says itself that it failed has failed"


@pytest.mark.parametrize(
    ("status", "outcome", "requests"),
    [(502, "in_doubt", 1), (504, "in_doubt", 1), (500, "in_doubt", 1), (503, "in_doubt", 1), (409, "failed", 1)],
)
def test_x4_a_server_error_leaves_a_post_in_doubt(server: Server, status: int, outcome: str, requests: int) -> None:
    """X4, E3: an error of the server, or of a gateway before it, tells nothing of the effect; a refusal does."""
    server.answer = lambda handler: reply(handler, status, {"message": "?"})
    assert run_once(server, "POST").steps["a"].status == outcome
    assert len(server.seen) == requests
