"""A small MCP server as a real process, and what is needed to see what became of it."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).with_name("mcp_server.py")


@dataclass
class Bench:
    """The test server: how to declare it, what its tools did, and which of its processes live."""

    notes: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def stdio(self, *args: str, **more: Any) -> dict[str, Any]:
        """The declaration of the server as a program."""
        env = {"MCP_NOTES": str(self.notes), **more.pop("env", {})}
        return {"command": sys.executable, "args": [str(SERVER), *args], "env": env, **more}

    def settings(self, **servers: Any) -> dict[str, Any]:
        """Settings with these servers, and no patience."""
        return {
            "mcp": {"servers": servers},
            "retry": {"backoff_base": 0.01, "max_retry_rounds": 0},
        }

    @property
    def done(self) -> list[str]:
        """What the server's tools did, in order."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def until(self, true: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait, blocking, for something to become true."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    def serve(self, port: int) -> subprocess.Popen[bytes]:
        """The server on a port, as a process that the test may kill."""
        process = subprocess.Popen(
            [sys.executable, str(SERVER), "--http", str(port)],
            env={**os.environ, "MCP_NOTES": str(self.notes)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(process)
        self.until(lambda: listens(port))
        return process

    def close(self) -> None:
        """End what is still running."""
        for process in self.started:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    """Whether a server listens on the port."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a free port below those that systems give out: a test that frees it for a while gets it back."""
    for port in random.sample(range(20_000, 32_000), 100):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port between 20,000 and 32,000")


def lives(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def kill(pid: int) -> None:
    """End a process that the test caused to be started."""
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The test server."""
    found = Bench(tmp_path / "notes.txt")
    yield found
    found.close()


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return free_port()


@pytest.fixture(name="lives")
def _lives() -> Callable[[int], bool]:
    return lives
