"""The one way to call the world, for every contender: standard library only.

Rules of this file:
- A call answers what the tool answered, or raises what a client of a real service would get: `ConnectionError` before
  anything happened or after everything did (nobody can tell), `HttpError` with a status, `TimeoutError` when the answer
  takes too long. Nothing here retries, and nothing here interprets an answer.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any

TIMEOUT = 0.5  # seconds that a call may take


class HttpError(Exception):
    """A service answered with a status that is no success."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after


class World:
    """A connection to the world, for one case."""

    def __init__(self, path: str, case: str) -> None:
        self._case = case
        self._lock = threading.Lock()  # a question and its answer belong together, whoever else asks
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def ask(self, do: str, **rest: Any) -> Any:
        """A question to the world itself; contenders have no other than those below."""
        with self._lock:
            self._socket.sendall(json.dumps({"do": do, "case": self._case, **rest}).encode() + b"\n")
            found = json.loads(self._lines.readline())
        if "problem" in found:
            raise RuntimeError(found["problem"])
        return found["answer"]

    def call(self, step: str, tool: str, args: dict[str, Any]) -> Any:
        """Call a tool."""
        found = self.ask("call", step=step, tool=tool, args=args, pid=os.getpid())
        if found.get("sleep"):
            time.sleep(TIMEOUT)
            raise TimeoutError(f"{tool} did not answer within {TIMEOUT} s")
        kind = found.get("raise")
        if kind == "connection":
            raise ConnectionRefusedError(found["message"])
        if kind == "reset":
            raise ConnectionResetError(found["message"])
        if kind == "http":
            raise HttpError(found["status"], found["message"], found.get("retry_after"))
        if kind == "tool":
            raise RuntimeError(found["message"])
        return found["ok"]

    def probe(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        """A read-only look before a call, for contenders that verify effects."""
        return dict(self.ask("probe", tool=tool, args=args))

    def look(self, tool: str) -> str:
        """The same after it."""
        return str(self.ask("look", tool=tool))
