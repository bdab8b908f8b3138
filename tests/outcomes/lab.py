"""Real tools of every kind, and one engine for each family of them, which lives as long as the tests do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from tests.outcomes import endings
from tests.outcomes.endings import LARGE, LONG, Book
from tests.outcomes.ways import SCRIPTS

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine

T = TypeVar("T")
EFFECTS = ("once", "repeatable")
LIMIT = LARGE - 10_000
SETTINGS: dict[str, Any] = {
    "reflection": {"max_step_retries": 1},
    "retry": {"backoff_base": 0.0, "jitter": False, "max_retry_rounds": 0},
    "tools": {"max_output": LIMIT},
}
ROOT = Path(__file__).resolve().parents[2]
SERVER = ["-m", "tests.outcomes.mcp_server"]
HERE = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


# -- Functions and commands ---------------------------------------------------------------------------------------


def functions() -> list[Any]:
    """Functions of every kind, for both effects."""
    made: list[Any] = [
        getattr(endings, f"{kind}_{effect}")
        for kind in ("isolated", "isolated_by_status", "isolated_not_done")
        for effect in EFFECTS
    ]
    for effect in EFFECTS:
        made += [
            rerail.tool(endings.perform, name=f"sync_{effect}", effect=effect),
            rerail.tool(endings.perform_async, name=f"async_{effect}", effect=effect),
            rerail.tool(endings.perform, name=f"by_status_{effect}", effect=effect, errors="by_status"),
            rerail.tool(endings.perform, name=f"not_done_{effect}", effect=effect, errors="not_done"),
        ]
    return made


def langchain() -> list[Any]:
    """A LangChain tool, for both effects."""
    from langchain_core.tools import StructuredTool

    def make(effect: str) -> Any:
        theirs = StructuredTool.from_function(endings.perform, name=f"langchain_{effect}", description="acts")
        return rerail.tool(theirs, effect=effect)

    return [make(effect) for effect in EFFECTS]


CASES = "\n".join(f'"{name}") {script};;' for name, script in SCRIPTS.items())
SCRIPT = f"""cd "$2"; echo x >> calls
if [ "$(wc -l < calls)" -gt 1 ]; then echo x >> effects; echo '{{{{"id": 1}}}}'; exit 0; fi
case "$1" in
{CASES.replace("{", "{{").replace("}", "}}")}
esac"""


def commands() -> list[Any]:
    """Commands, for both effects."""
    made: list[Any] = []
    line, missing = ["sh", "-c", SCRIPT, "sh", "{way}", "{ledger}"], ["no-such-command", "{way}", "{ledger}"]
    for effect in EFFECTS:
        made += [
            rerail.shell(f"shell_{effect}", line, effect=effect, not_done=(75,), max_output=LIMIT),
            rerail.shell(f"shell_json_{effect}", line, effect=effect, parse="json"),
            rerail.shell(f"shell_not_done_{effect}", line, effect=effect, errors="not_done"),
            rerail.shell(f"shell_missing_{effect}", missing, effect=effect),
            rerail.shell(f"shell_missing_limited_{effect}", missing, effect=effect, limits={"file_size": 1_000_000}),
            rerail.shell(f"shell_no_folder_{effect}", line, effect=effect, cwd="/no/such/folder"),
        ]
    return made


# -- Requests -----------------------------------------------------------------------------------------------------


class Quiet(ThreadingHTTPServer):
    """A server that says nothing of connections that were cut."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


class Endings(BaseHTTPRequestHandler):
    """Ends the first request of each case in its way; acts and answers in every other."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        way = url.path.strip("/").replace("%20", " ")
        book = Book(parse_qs(url.query)["ledger"][0])
        if book.call() > 1 or way == "answered":
            book.act()
            self.answer(200, {"id": 1})
        else:
            self.end(way, book)

    def end(self, way: str, book: Book) -> None:
        kind, _, rest = way.partition(" ")
        status = int(rest.split()[0]) if kind == "status" else 200
        refused = status in (400, 404, 409, 425, 429) or "Retry-After" in way or "before" in way
        if not refused:
            book.act()
        match way:
            case "no answer":
                self.cut(b"")
            case "head cut off":
                self.cut(b"HTTP/1.1 200 OK\r\nContent-Type: appl")
            case "cut off":
                self.cut(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"id"')
            case "unreadable":
                self.answer(200, b"no gzip", {"Content-Encoding": "gzip"})
            case "too large":
                self.answer(200, b"x" * LARGE)
            case "success false":
                self.answer(200, {"success": False})
            case "error member":
                self.answer(200, {"error": "database is locked"})
            case "timeout":
                time.sleep(LONG)
            case _:
                headers = {"Retry-After": "0"} if "Retry-After" in way else {}
                self.answer(status, {"message": "?"}, {**headers, "Location": "/elsewhere"})

    def cut(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def free_port() -> int:
    """A port that is not in use."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def requests() -> list[Any]:
    """Requests to a real server, for both effects."""
    port, rest = Quiet(Endings).server_port, "/{way}?ledger={ledger}"
    here = f"http://127.0.0.1:{port}{rest}"
    made: list[Any] = []
    for effect in EFFECTS:
        made += [
            rerail.http(f"http_{effect}", "POST", here, effect=effect, max_bytes=LIMIT),
            rerail.http(f"http_not_done_{effect}", "POST", here, effect=effect, errors="not_done"),
            rerail.http(f"http_closed_{effect}", "POST", f"http://127.0.0.1:{free_port()}{rest}", effect=effect),
            rerail.http(f"http_nowhere_{effect}", "POST", f"http://nowhere.invalid{rest}", effect=effect),
            rerail.http(f"http_tls_{effect}", "POST", f"https://127.0.0.1:{port}{rest}", effect=effect),
        ]
    return made


# -- MCP servers --------------------------------------------------------------------------------------------------


class Raw(Endings):
    """The HTTP side of an MCP server of the handshake era, which ends calls in its own ways."""

    def do_GET(self) -> None:
        self.answer(405, b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match asked.get("method") if "id" in asked else "":
            case "":
                self.answer(202, b"")
            case "initialize":
                about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                self.result(asked, {**about, "serverInfo": {"name": "raw", "version": "1"}})
            case "tools/list":
                self.result(asked, {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                self.called(asked)
            case _:
                self.answer(400, b"no such thing")

    def called(self, asked: dict[str, Any]) -> None:
        args = asked["params"]["arguments"]
        way, book = args["way"], Book(args["ledger"])
        if book.call() > 1:
            book.act()
            self.result(asked, {"content": [{"type": "text", "text": "done"}]})
        elif way == "unreadable":
            book.act()
            self.result(asked, {"content": 5})
        elif way == "no result":
            book.act()
            self.answer(200, {})
        else:
            self.end(way, book)

    def result(self, asked: dict[str, Any], result: Any) -> None:
        self.answer(200, {"jsonrpc": "2.0", "id": asked["id"], "result": result})


class ShortRaw(Raw):
    """The same, with one request for each connection."""

    protocol_version = "HTTP/1.0"


def declared(kind: str, where: dict[str, Any]) -> dict[str, Any]:
    """A server under one name for each effect, and one more whose errors say that nothing happened."""
    servers: dict[str, Any] = {}
    for effect in EFFECTS:
        for more, options in (("", {}), ("not_done_", {"errors": "not_done"})):
            name = f"{kind}_{more}{effect}"
            servers[name] = {**where, "prefix": f"{name}_", "effects": {"act": effect}, "tools": ["act"], **options}
    return servers


STDIO = {"command": sys.executable, "args": SERVER, "env": HERE}


# -- The engines --------------------------------------------------------------------------------------------------


class Lab:
    """An event loop of its own, in a thread, with an engine for each family of tools that was asked for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._engines: dict[str, Engine] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def engine(self, kind: str) -> Engine:
        """The engine with the tools of that kind."""
        family = next((name for name in FAMILIES if kind.startswith(name)), "functions")
        if family not in self._engines:
            self._engines[family] = self.wait(self._opened(family))
        return self._engines[family]

    async def _opened(self, family: str) -> Engine:
        tools, servers, gone = FAMILIES.get(family, lambda lab: (functions(), {}, []))(self)
        engine = Engine(MemoryStore(), tools, {**SETTINGS, "mcp": {"servers": servers}})
        await engine.__aenter__()
        for server in gone:
            server.shutdown()
            server.server_close()
        return engine

    def serve(self) -> int:
        """The MCP server on a port, as a process."""
        port = free_port()
        command, quiet = [sys.executable, *SERVER, "--http", str(port)], subprocess.DEVNULL
        self._processes.append(subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **HERE}))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.02)
        raise TimeoutError("the server did not start")

    def run(self, kind: str, plan: Any) -> tuple[Any, list[Any]]:
        """Run a plan; what it came to, and its events."""
        engine = self.engine(kind)

        async def main() -> tuple[Any, list[Any]]:
            result = await engine.run(plan)
            return result, [record.event for record in await engine.events(result.run_id)]

        return self.wait(main())

    def close(self) -> None:
        """End everything that was started."""
        for engine in self._engines.values():
            self.wait(engine.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for process in self._processes:
            process.kill()
            process.wait()


Made = tuple[list[Any], dict[str, Any], list[Quiet]]


def _stdio(lab: Lab) -> Made:
    return [], declared("mcp_stdio", STDIO), []


def _served(lab: Lab) -> Made:
    return [], declared("mcp_http", {"url": f"http://127.0.0.1:{lab.serve()}/mcp"}), []


def _raw(lab: Lab) -> Made:
    gone = Quiet(ShortRaw)
    there = declared("mcp_raw", {"url": f"http://127.0.0.1:{Quiet(Raw).server_port}/"})
    away = declared("mcp_raw_gone", {"url": f"http://127.0.0.1:{gone.server_port}/"})
    return [], {**there, **away}, [gone]


FAMILIES: dict[str, Callable[[Lab], Made]] = {
    "langchain": lambda lab: (langchain(), {}, []),
    "shell": lambda lab: (commands(), {}, []),
    "http": lambda lab: (requests(), {}, []),
    "mcp_stdio": _stdio,
    "mcp_http": _served,
    "mcp_raw": _raw,
}
