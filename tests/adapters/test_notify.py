"""Telling people: real programs, and a real server that answers well, badly, late or not at all (T10)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.notify import Notifiers, NotifyCommand, Webhook
from rerail.ports import Delivery, Notice

NASTY = 'it\'s "$(touch evil)"; touch evil & `touch evil` \n ünï \0'
DOCUMENT: dict[str, Any] = {
    "id": "r-7", "event": "failed", "run": "r", "status": "failed", "objective": NASTY, "summary": "no", "parent": None,
}  # fmt: skip
NOTICE = Notice("r-7", "failed", "r", DOCUMENT)


def told(target: Any, *, timeout: float = 5.0, retries: int = 1) -> Delivery:
    """What came of telling one target."""
    (sent,) = asyncio.run(Notifiers([target], frozenset({"failed"}), timeout, retries).send(NOTICE))
    return sent


def python(code: str, *words: str) -> NotifyCommand:
    return NotifyCommand((sys.executable, "-c", code, *words))


# -- Commands -----------------------------------------------------------------------------------------------------


def test_a_command_is_told_in_variables_and_on_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T10: what a run is called can be anything; nothing of it is ever part of a command line."""
    monkeypatch.chdir(tmp_path)
    code = (
        "import json, os, sys; "
        "json.dump({'args': sys.argv[1:], 'stdin': sys.stdin.read(), 'env': dict(os.environ)}, open('told', 'w'))"
    )
    assert told(python(code, "$RERAIL_RUN", "{run}")) == Delivery("command", Path(sys.executable).name, True, 1)
    seen = json.loads((tmp_path / "told").read_text())
    assert seen["args"] == ["$RERAIL_RUN", "{run}"]
    assert json.loads(seen["stdin"]) == DOCUMENT
    names = ("RUN", "STATUS", "OBJECTIVE", "SUMMARY", "EVENT")
    assert [seen["env"][f"RERAIL_{name}"] for name in names] == [
        "r", "failed", NASTY.replace("\0", ""), "no", "failed",
    ]  # fmt: skip
    assert seen["env"]["PATH"] == os.environ["PATH"]
    assert [path.name for path in tmp_path.iterdir()] == ["told"]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("/nowhere/notify", "hunter2"), "No such file"),
        (("no-such-command-at-all",), "No such file"),
        ((str(Path(__file__)),), "Permission denied"),
        (("a\0b",), "null byte"),
    ],
)
def test_a_command_that_cannot_be_started_is_tried_once(argv: tuple[str, ...], why: str) -> None:
    """T10: trying again would not find it either; its arguments are nobody's business."""
    sent = told(NotifyCommand(argv))
    assert (sent.ok, sent.attempts) == (False, 1)
    assert why in sent.error
    assert "hunter2" not in repr(sent)


def test_a_command_that_fails_is_tried_again(tmp_path: Path) -> None:
    """T10: a bounded number of times, and its last words are kept."""
    log = tmp_path / "log"
    code = "import sys; open(sys.argv[1], 'a').write('x'); sys.stderr.write('no disk\\n' * 100); sys.exit(3)"
    sent = told(python(code, str(log)))
    assert (sent.ok, sent.attempts, log.read_text()) == (False, 2, "xx")
    assert sent.error.startswith("exit status 3: ") and sent.error.endswith("no disk")
    assert len(sent.error) < 300


def test_what_a_command_was_called_with_is_not_repeated() -> None:
    """T10: its arguments may be secrets, and its complaints are kept."""
    sent = told(python("import sys; sys.stderr.write(f'cannot reach {sys.argv[1]}'); sys.exit(1)", "xoxb-hunter2-123"))
    assert sent.error == "exit status 1: cannot reach …"


def test_a_command_that_fails_once_has_told(tmp_path: Path) -> None:
    """T10: the second attempt counts."""
    code = "import os, sys; p = sys.argv[1]; seen = os.path.exists(p); open(p, 'w'); sys.exit(0 if seen else 1)"
    assert told(python(code, str(tmp_path / "seen"))) == Delivery("command", Path(sys.executable).name, True, 2)


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """T10: within its time, and nothing of it is left running."""
    code = (
        "import os, sys, subprocess, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "open(sys.argv[1], 'a').write(f'{os.getpid()} {child.pid} '); time.sleep(60)"
    )
    began = time.monotonic()
    sent = told(python(code, str(tmp_path / "pids")), timeout=1.0, retries=0)
    assert (sent.ok, sent.attempts, sent.error) == (False, 1, "it did not end within 1 s")
    assert time.monotonic() - began < 10
    for pid in (tmp_path / "pids").read_text().split():
        for _ in range(100):
            if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(") ")[1][:1]:
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"{pid} is still there")


def test_a_command_that_floods_its_output_is_read_and_forgotten() -> None:
    """T10: it is neither blocked by a pipe that nobody reads, nor kept in memory."""
    code = (
        "import sys\nfor _ in range(500):\n"
        "    sys.stdout.write('x' * 100_000)\n    sys.stderr.write('y' * 10_000)\nsys.exit(0)"
    )
    assert told(python(code), timeout=30).ok
    failing = told(python(code.replace("sys.exit(0)", "sys.exit(1)")), timeout=30, retries=0)
    assert not failing.ok and len(failing.error) < 300


def test_a_command_that_does_not_listen_has_been_told() -> None:
    """T10: reading its stdin is up to it."""
    assert told(python("0")).ok


# -- Webhooks -----------------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """A server that answers with one status after the other; the last one stays."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.hang = threading.Event()
        self.body = b""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        data = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}, data))
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        if not status:
            self.server.hang.wait(30)
            return
        self.send_response(status)
        if status in (302, 307):
            self.send_header("location", f"http://127.0.0.1:{self.server.port}/elsewhere")
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that says 200 unless told otherwise."""
    found = Server(200)
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.hang.set()
    found.shutdown()
    thread.join()
    found.server_close()


def test_a_webhook_gets_the_document(server: Server) -> None:
    """T10: in a POST, with the id as a header too; a name and a password become a header and are not in the address."""
    url = f"http://me:hunter%202@127.0.0.1:{server.port}/hook/é?key=hunter2&x=1"
    assert told(Webhook(url)) == Delivery("webhook", f"http://127.0.0.1:{server.port}/…", True, 1)
    ((path, headers, data),) = server.seen
    assert data == DOCUMENT
    assert path == "/hook/%C3%A9?key=hunter2&x=1"
    assert headers["content-type"] == "application/json"
    assert headers["x-rerail-notice"] == "r-7"
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:hunter 2"


@pytest.mark.parametrize("bad", [500, 502, 503, 429, 408])
def test_a_server_in_trouble_is_told_again(server: Server, bad: int) -> None:
    """T10: with the same id, so that whoever got it twice can tell."""
    server.statuses = [bad, 204]
    assert told(Webhook(f"http://127.0.0.1:{server.port}/")).attempts == 2
    assert [headers["x-rerail-notice"] for _, headers, _ in server.seen] == ["r-7", "r-7"]


@pytest.mark.parametrize("status", [400, 401, 404, 302, 307])
def test_a_plain_no_is_not_asked_twice(server: Server, status: int) -> None:
    """T10: and nobody is sent on to somewhere else with what a run is about."""
    server.statuses, server.body = [status, 200], b"you said hunter2"
    sent = told(Webhook(f"http://127.0.0.1:{server.port}/secret"))
    assert sent == Delivery("webhook", f"http://127.0.0.1:{server.port}/…", False, 1, f"HTTP status {status}")
    assert [path for path, _, _ in server.seen] == ["/secret"]


def test_an_answer_of_any_size_is_none_of_our_business(server: Server) -> None:
    """T10: it was taken."""
    server.body = b"x" * 1_000_000
    assert told(Webhook(f"http://127.0.0.1:{server.port}/")).ok


def test_a_server_that_hangs_is_given_up(server: Server) -> None:
    """T10: each attempt has its time, and there are so many of them."""
    server.statuses = [0]
    began = time.monotonic()
    sent = told(Webhook(f"http://127.0.0.1:{server.port}/"), timeout=0.5, retries=1)
    assert (sent.ok, sent.attempts) == (False, 2)
    assert sent.error in ("no answer within 0.5 s", "no answer in time")
    assert time.monotonic() - began < 5
    assert len(server.seen) == 2


def test_a_server_that_is_not_there() -> None:
    """T10: tried again, for it may be starting."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free_port = taken.getsockname()[1]
    sent = told(Webhook(f"http://me:hunter2@127.0.0.1:{free_port}/hunter2?hunter2"))
    assert (sent.ok, sent.attempts) == (False, 2)
    assert "Connection refused" in sent.error
    assert "hunter2" not in repr(sent)


def test_an_address_is_not_shown_by_accident() -> None:
    """T10: not even where a program prints the object."""
    hook = Webhook("https://me:hunter2@hooks.example/hunter2?hunter2")
    assert "hunter2" not in f"{hook!r} {hook.name} {Notifiers([hook], frozenset())!r}"
    assert hook.name == "https://hooks.example/…"


def test_everybody_is_told_at_once(server: Server) -> None:
    """T10: one that hangs does not keep the others waiting; patience is the longest that it all can take."""
    server.statuses = [0]
    everybody = Notifiers([Webhook(f"http://127.0.0.1:{server.port}/"), python("0")], frozenset(), 1.0, 0)
    began = time.monotonic()
    sent = asyncio.run(everybody.send(NOTICE))
    assert [(one.kind, one.ok) for one in sent] == [("webhook", False), ("command", True)]
    assert time.monotonic() - began < everybody.patience
    assert Notifiers([], frozenset(), 10.0, 2).patience == pytest.approx(48)
