"""A real server for the browser tests: a process of its own, on a real store, that can be killed and come back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).with_name("tools.py")
STARTS_WITHIN = 30.0


def free_port() -> int:
    """A port that nobody listens on; the server keeps it over restarts, as a page that is open expects."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """`rerail serve` on a folder of its own."""

    def __init__(self, folder: Path, *options: str, token: str = "", read_only: bool = False) -> None:
        self.folder, self.port, self.token = folder, free_port(), token
        self.gates = folder / "gates"
        self.gates.mkdir(parents=True, exist_ok=True)
        self._options = [*options, *(["--read-only"] if read_only else [])]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Served:
        """Start the process and wait until it answers."""
        # Backoffs stay short, not zero: they are looked at.
        quick = ["--set", "retry.backoff_base=0.05", "--set", "retry.jitter=false"]
        command = [sys.executable, "-m", "rerail.cli", "serve", str(self.port), "--tools", str(TOOLS), *quick]
        env = {**os.environ, "RERAIL_TEST_GATES": str(self.gates), "RERAIL_TOKEN": self.token, "PYTHONUNBUFFERED": "1"}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options], cwd=self.folder, env=env, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < end:
            try:
                if self.api("GET", "/health")["ok"]:
                    return self
            except OSError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.05)
        raise AssertionError(f"the server did not start:\n{self.log()}")

    def log(self) -> str:
        """What the server printed."""
        return (self.folder / "server.log").read_text(errors="replace")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it politely."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(15)
        self._process = None

    def open(self, *gates: str) -> None:
        """Let the tools go on that wait at a gate."""
        for gate in gates:
            (self.gates / gate).touch()

    def count(self, name: str) -> int:
        """How often something was called."""
        path = self.gates / f"count-{name}"
        return int(path.read_text()) if path.exists() else 0

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """One request, as another program would make it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1{path}", method=method,
            data=None if body is None else json.dumps(body).encode(), headers={"content-type": "application/json"},
        )  # fmt: skip
        if self.token:
            request.add_header("authorization", f"Bearer {self.token.encode().decode('latin-1')}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None

    def begin(self, steps: list[dict[str, Any]], objective: str = "", **plan: Any) -> str:
        """Start a run; gives its id."""
        given = {"objective": objective, "steps": steps, **plan}
        return str(self.api("POST", "/runs", {"plan": given})["run_id"])

    def wait(self, run: str, *statuses: str, within: float = 60.0) -> dict[str, Any]:
        """The run, once it has one of these statuses."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            found: dict[str, Any] = self.api("GET", f"/runs/{run}/view")
            if found["status"] in statuses:
                return found
            time.sleep(0.05)
        raise AssertionError(f"the run is {found['status']}, not {' or '.join(statuses)}")
