"""MCP servers behind HTTP: killed, started again, refusing, forgetting; a modern one and one with sessions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.adapters.tools.conftest import Bench
from tests.adapters.tools.test_mcp_stdio import step, until

import rerail
from rerail.adapters.tools.mcp.server_config import AnswerLost, NotConnected, server_from
from rerail.adapters.tools.mcp.tools import McpServers, McpTool
from rerail.errors import RateLimited, RerailError, ToolError


def declared(port: int, **more: Any) -> dict[str, Any]:
    """A server on this machine."""
    return {"url": f"http://127.0.0.1:{port}/mcp", **more}


async def opened(port: int, **more: Any) -> tuple[McpServers, dict[str, McpTool]]:
    """A server on this machine, connected, and its tools by name."""
    servers = McpServers()
    tools = await servers.open([server_from("far", declared(port, **more))])
    return servers, {tool.spec.name: tool for tool in tools}


# -- The SDK's server ---------------------------------------------------------------------------------------------


async def test_a_server_is_killed_and_started_again(bench: Bench, free_port: int) -> None:
    """X4: lost in the middle, refused while it is down, and there again without anybody doing anything."""
    process = bench.serve(free_port)
    servers, tools = await opened(free_port)
    try:
        assert await tools["echo"].call({"text": "hi"}) == "hi"
        call = asyncio.ensure_future(tools["slow"].call({"seconds": 30}))
        await until(lambda: "slow begins" in bench.done)
        process.kill()
        process.wait()
        with pytest.raises(AnswerLost) as lost:
            await call
        assert lost.value.code == "CONNECTION_LOST"
        for _ in range(5):  # a server that is away is not one that dies
            with pytest.raises(NotConnected) as refused:
                await tools["send"].call({"to": "bob"})
            assert (refused.value.lost, refused.value.code) == (False, "SERVER_UNREACHABLE")
        bench.serve(free_port)
        assert await tools["echo"].call({"text": "back"}) == "back"
    finally:
        await servers.close()
    assert "send bob" not in bench.done


async def test_a_run_outlives_a_restart_of_its_server(bench: Bench, free_port: int) -> None:
    """H3: a `read` step is called again, a `once` step that was refused too, one that was lost is in doubt."""
    process = bench.serve(free_port)
    settings = bench.settings(far=declared(free_port))
    settings["retry"] |= {"backoff_base": 0.5, "jitter": False}
    async with rerail.Engine("memory://", [], settings) as engine:
        run = await engine.start(
            {
                "steps": [
                    step("slow", "read", args={"seconds": 0.5}),
                    step("send", "once", args={"to": "bob", "seconds": 30}),
                    step("send", "later", args={"to": "eve"}, needs=["read"]),
                ]
            }
        )
        await until(lambda: sorted(bench.done) == ["send bob", "slow begins"])
        process.kill()
        process.wait()
        bench.serve(free_port)
        result = await engine.wait(run)
    assert {name: row.status for name, row in result.steps.items()} == {
        "read": "succeeded", "once": "in_doubt", "later": "succeeded",
    }  # fmt: skip
    assert sorted(bench.done) == ["send bob", "send eve", "slow begins", "slow begins"]


async def test_progress_and_cancelling(bench: Bench, free_port: int) -> None:
    """M3, X4: as with programs."""
    bench.serve(free_port)
    settings = {**bench.settings(far=declared(free_port)), "reflection": {"max_step_retries": 0}}
    async with rerail.Engine("memory://", [], settings) as engine:
        result = await engine.run({"steps": [step("steps")]})
        assert any(event.type == "step_progress" for event in await engine.events(result.run_id))
        result = await engine.run({"steps": [step("slow", args={"seconds": 30}, timeout=0.5)]})
        assert result.steps["a"].error is not None
        assert result.steps["a"].error["code"] == "TIMEOUT"
        await until(lambda: "slow was cancelled" in bench.done)


# -- An old-fashioned server --------------------------------------------------------------------------------------


class Old(ThreadingHTTPServer):
    """A server of the handshake era, with sessions that it may forget and answers that a test chooses."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.session = "one"
        self.calls: list[str] = []
        self.status = 200  # of the next calls
        self.retry_after = ""
        self.location = ""
        self.paths: list[str] = []  # that were sent on
        self.body: bytes | None = None
        self.cut = False  # break off in the middle of an answer
        self.token = ""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answers(BaseHTTPRequestHandler):
    server: Old
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(405, b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.token and self.headers.get("authorization") != self.server.token:
            self._send(401, b"who are you?")
            return
        method = asked.get("method")
        if "id" not in asked:
            self._send(202, b"")
        elif method == "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
            self._reply(asked, about, session=True)
        elif method == "server/discover":
            self._send(400, b"no such thing")
        elif self.headers.get("mcp-session-id") != self.server.session:
            self._send(404, b"")
        elif method == "tools/list":
            tool = {"name": "act", "inputSchema": {"type": "object"}}
            self._reply(asked, {"tools": [tool]})
        else:
            self._act(asked)

    def _act(self, asked: dict[str, Any]) -> None:
        self.server.calls.append(str(asked["params"]["arguments"].get("n")))
        if self.server.cut:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc"')
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True
        elif self.server.body is not None or self.server.status != 200:
            body = self.server.body or b"busy"
            self._send(self.server.status, body.replace(b"NUMBER", str(asked["id"]).encode()))
        else:
            self._reply(asked, {"content": [{"type": "text", "text": "acted"}]})

    def _reply(self, asked: dict[str, Any], result: Any, *, session: bool = False) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        self._send(200, body, {"mcp-session-id": self.server.session} if session else {})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "content-type": "application/json"}.items():
            self.send_header(name, value)
        if self.server.location:
            self.send_header("location", self.server.location)
        if self.server.retry_after:
            self.send_header("retry-after", self.server.retry_after)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def old() -> Iterator[Old]:
    """An old-fashioned server."""
    server = Old()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_server_that_forgot_our_session_is_greeted_anew(old: Old) -> None:
    """X4: it refused the call, so making it again is no repetition."""
    servers, tools = await opened(old.port)
    try:
        assert await tools["act"].call({"n": 1}) == "acted"
        old.session = "two"  # as if started anew
        assert await tools["act"].call({"n": 2}) == "acted"
        assert old.calls == ["1", "2"]
    finally:
        await servers.close()


class _Moved(_Answers):
    """Sends every request to the address with a slash, as many frameworks do."""

    def do_POST(self) -> None:
        if self.path.endswith("/"):
            super().do_POST()
        else:
            self.server.paths.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self._send(307, b"", {"location": f"{self.path}/"})


async def test_x4_where_a_server_moved_is_learned_before_a_call(old: Old) -> None:
    """X4: requests that only ask are sent on; a call goes where they went, and is sent once."""
    old.RequestHandlerClass = _Moved
    servers, tools = await opened(old.port)
    try:
        sent_on = len(old.paths)
        assert await tools["act"].call({"n": 1}) == "acted"
        assert (old.calls, sent_on > 0, len(old.paths)) == (["1"], True, sent_on)
    finally:
        await servers.close()


async def test_x4_a_call_that_is_sent_on_is_lost(old: Old) -> None:
    """X4: the server may have acted before it sent the call on; the session lives."""
    servers, tools = await opened(old.port)
    try:
        old.status, old.location = 307, "/mcp"
        with pytest.raises(ToolError) as failed:
            await tools["act"].call({"n": 1})
        assert (failed.value.status, failed.value.lost, old.calls) == (307, True, ["1"])
        old.status = 200
        assert await tools["act"].call({"n": 2}) == "acted"
    finally:
        await servers.close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "code", "lost"),
    [
        (401, b"who are you?", ToolError, "HTTP_STATUS", False),
        (500, b"oops", ToolError, "HTTP_STATUS", True),
        (
            500,
            b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "oops"}}',
            ToolError,
            "HTTP_STATUS",
            True,
        ),
        (
            400,
            b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "oops"}}',
            ToolError,
            "ARGS_INVALID",
            False,
        ),
        (200, b"{}", AnswerLost, "CONNECTION_LOST", True),
        (200, b'{"jsonrpc": "2.0", "id": NUMBER, "result": {"content": 5}}', AnswerLost, None, True),
    ],
)
async def test_x4_what_a_server_refuses_is_told_by_its_status(
    old: Old, status: int, body: bytes, kind: type[ToolError], code: str | None, lost: bool
) -> None:
    """H2, X4: a refusal says that nothing happened; an error of the server and an unreadable answer do not."""
    servers, tools = await opened(old.port)
    try:
        old.status, old.body = status, body
        with pytest.raises(ToolError) as failed:
            await tools["act"].call({})
        assert type(failed.value) is kind
        assert code is None or failed.value.code == code
        assert failed.value.status == (status if code == "HTTP_STATUS" else None)
        assert failed.value.lost is lost
        old.status, old.body = 200, None
        assert await tools["act"].call({}) == "acted"  # the session lives
    finally:
        await servers.close()


@pytest.mark.parametrize(
    ("status", "doubtful"), [(502, True), (504, True), (500, True), (503, True), (408, True), (425, False)]
)
async def test_x4_a_servers_error_leaves_a_once_step_in_doubt(old: Old, status: int, doubtful: bool) -> None:
    """X4, E3: the server may have acted before its error, or behind a gateway; a refusal is an ordinary failure."""
    settings = {
        "mcp": {"servers": {"far": declared(old.port)}},
        "retry": {"max_retry_rounds": 0, "backoff_base": 0.01, "jitter": False},
        "reflection": {"max_step_retries": 1},
    }
    async with rerail.Engine("memory://", [], settings) as engine:
        old.status = status
        result = await engine.run({"steps": [step("act", args={"n": 1})]})
        assert (result.steps["a"].error or {})["code"] == "HTTP_STATUS"
        assert result.steps["a"].status == ("in_doubt" if doubtful else "failed")
        assert old.calls == (["1"] if doubtful else ["1", "1"])  # it is not for us to call it again
        if doubtful:
            old.status = 200
            await engine.resolve(result.run_id, "a", rerun=True)
            assert (await engine.wait(result.run_id)).success


async def test_a_server_that_says_not_now(old: Old) -> None:
    """X8: with Retry-After it is waited for."""
    servers, tools = await opened(old.port)
    try:
        old.status, old.retry_after = 429, "7"
        with pytest.raises(RateLimited) as failed:
            await tools["act"].call({})
        assert failed.value.retry_after == 7
    finally:
        await servers.close()


async def test_an_answer_that_breaks_off_is_lost(old: Old) -> None:
    """X4: and the next call finds the server again."""
    servers, tools = await opened(old.port)
    try:
        old.cut = True
        with pytest.raises(AnswerLost):
            await tools["act"].call({"n": 1})
        old.cut = False
        assert await tools["act"].call({"n": 2}) == "acted"
        assert old.calls == ["1", "2"]
    finally:
        await servers.close()


async def test_headers_carry_secrets_from_the_environment(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 11: and a server that does not know us says so with its status."""
    old.token = "Bearer hunter2"
    monkeypatch.setenv("OLD_TOKEN", "hunter2")
    with pytest.raises(RerailError, match="'far' answered with HTTP status 401"):
        await opened(old.port)
    servers, tools = await opened(old.port, headers={"Authorization": "Bearer ${env:OLD_TOKEN}"})
    assert await tools["act"].call({}) == "acted"
    await servers.close()
