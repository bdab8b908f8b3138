"""A process that is frozen inside a call, replaced and thawed acts for the run no more (E11, V8).

Real processes, real SIGSTOP, a SQLite store: the process stops itself, the test takes its run over.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.workers.frozen import RUN, STEPS, TIMEOUT, acts, note, store_of, tools

import rerail
from rerail.engine.runs.owner import is_stopped

RACES = int(os.environ.get("RERAIL_RACES", "10"))


class Frozen:
    """A process that drives the run, stopped where the test wants it."""

    def __init__(self, folder: Path, tool: str, where: str = "call", url: str = "http://127.0.0.1:1/") -> None:
        self.folder, self.url = folder, url
        self.began = time.time()
        words = [sys.executable, "-m", "tests.workers.frozen", str(folder), tool, where, url]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        limit = time.monotonic() + 30
        while not is_stopped(self.pid):
            assert time.monotonic() < limit and self.process.poll() is None
            time.sleep(0.01)

    def thaw(self) -> str:
        """Wake it each time that it stops, until it ends; returns what it logged."""
        waking = threading.Event()

        def wake() -> None:
            while not waking.wait(0.02):
                with contextlib.suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGCONT)

        thread = threading.Thread(target=wake)
        thread.start()
        try:
            _, said = self.process.communicate(timeout=30)
        finally:
            waking.set()
            thread.join()
        return said

    def replace(self, *, take_over: bool = True, **settings: Any) -> rerail.RunResult:
        """Take the run over, and drive it until it is at rest or waits for a person."""

        async def main() -> rerail.RunResult:
            made = tools(self.folder, freezes=False, url=self.url)
            async with rerail.Engine(store_of(self.folder), made, settings=settings) as engine:
                run = await engine.begin_resume(RUN, take_over=take_over)
                return await asyncio.wait_for(engine.wait(run), 40)

        return asyncio.run(main())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Any]:
    """Starts such a process; it is ended with the test."""
    made: list[Frozen] = []

    def start(*words: str) -> Frozen:
        made.append(Frozen(tmp_path, *words))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a service that does what it is asked for."""

    class Service(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            note(tmp_path / "ledger", f"{self.path[1:]} {os.getpid()}")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/"
        made.shutdown()
        thread.join()


def by(folder: Path, pid: int) -> list[str]:
    """The effects of one process."""
    return sorted(line.split()[0] for line in acts(folder) if line.split()[1] == str(pid))


def doubted(result: rerail.RunResult) -> list[str]:
    return sorted(one["step"] for one in result.waiting_on)


@pytest.mark.parametrize("tool", ["plain", "unverified"])
@pytest.mark.parametrize("turn", range(max(1, RACES // 5)))
def test_e11_a_plain_function_is_not_called_again_beside_a_frozen_call(
    frozen: Any, tmp_path: Path, tool: str, turn: int
) -> None:
    """E11, V8: the step is in doubt although `verify` finds nothing; thawed, the first call acts once."""
    old = frozen(tool)
    result = old.replace()
    assert result.status == "waiting" and doubted(result) == sorted(STEPS)
    assert acts(tmp_path) == []
    said = old.thaw()
    assert by(tmp_path, os.getpid()) == []
    assert max(Counter(by(tmp_path, old.pid)).values()) == 1
    assert "RuntimeError" not in said and f"run {RUN}: another process owns it" in said


def test_e11_a_fenced_function_is_called_by_the_successor_and_not_by_the_thawed_one(
    frozen: Any, tmp_path: Path
) -> None:
    """E11, V8: absence counts from start plus timeout; the thawed call raises *not done*, and the log says so."""
    old = frozen("fenced")
    result = old.replace()
    assert result.success and time.time() - old.began >= TIMEOUT
    assert by(tmp_path, os.getpid()) == sorted(STEPS)
    said = old.thaw()
    assert by(tmp_path, old.pid) == [] and len(acts(tmp_path)) == len(STEPS)
    assert f"run {RUN}: another process owns it" in said
    assert f"run {RUN}, step s" in said and "not done" in said


def test_e11_with_a_supervisor_a_silent_owner_counts_as_dead(frozen: Any, tmp_path: Path) -> None:
    """E11: `workers.silent_is_dead`: the call is lost like a dead process's, looked at, and made again."""
    old = frozen("plain")
    result = old.replace(workers={"silent_is_dead": True})
    old.process.kill()  # the supervisor's part
    assert result.success and by(tmp_path, os.getpid()) == sorted(STEPS)


def test_e11_a_service_that_knows_the_key_is_asked_again_with_it(frozen: Any, tmp_path: Path) -> None:
    """E11, E2: `idempotent_for` covers the call, so that the same key goes out again without waiting."""
    old = frozen("keyed")
    result = old.replace()
    assert result.success and by(tmp_path, os.getpid()) == sorted(STEPS)
    keys = Counter((tmp_path / "keys").read_text().split())
    assert len(keys) == len(STEPS) and max(keys.values()) == 2


@pytest.mark.parametrize("how", ["killed", "a worker"])
def test_e11_the_calls_of_a_process_that_is_gone_are_lost_and_looked_at(frozen: Any, tmp_path: Path, how: str) -> None:
    """E11, T7: the pid is gone, or the taker ended the worker: absence is believed, the step is called."""
    old = frozen("plain")
    if how == "killed":
        old.process.kill()
        old.process.wait()
    else:
        with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database:
            database.execute("UPDATE runs SET worker = 1")
            database.commit()
    result = old.replace(take_over=how != "killed")
    assert result.success and by(tmp_path, os.getpid()) == sorted(STEPS)
    assert old.process.wait(5) in (-signal.SIGKILL, -signal.SIGTERM)
    assert len(acts(tmp_path)) == len(STEPS)


@pytest.mark.parametrize("tool", ["plain", "command", "request"])
def test_e11_a_process_frozen_between_intent_and_call_makes_no_call(
    frozen: Any, tmp_path: Path, url: str, tool: str
) -> None:
    """E11, E1: the intent is on record, the run changed hands: the thawed process calls nothing, and says what."""
    old = frozen(tool, "intent", url)
    result = old.replace()
    done = sorted(STEPS) if tool == "request" else []  # fenced: the successor makes the requests
    assert result.success is bool(done) and by(tmp_path, os.getpid()) == done
    said = old.thaw()
    assert len(acts(tmp_path)) == len(done)
    assert f"run {RUN}: another process owns it" in said and "Not called: s" in said


@pytest.mark.parametrize("tool", ["command", "request"])
def test_e11_a_command_or_request_looks_at_the_lease_at_the_last_moment(
    frozen: Any, tmp_path: Path, url: str, tool: str
) -> None:
    """E11: frozen inside the tool, after the engine's own check: no process is started, nothing is sent."""
    old = frozen(tool, "call", url)
    result = old.replace()
    done = sorted(STEPS) if tool == "request" else []
    assert result.success is bool(done) and by(tmp_path, os.getpid()) == done
    said = old.thaw()
    assert len(acts(tmp_path)) == len(done)
    assert "not done, because this process may not own the run" in said
