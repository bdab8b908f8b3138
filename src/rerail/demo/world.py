"""The world that the demo's tools act on: a folder of plain files that outlives any process.

Rules of this file:
- A side effect is one line in a log, written in one go: whoever dies, the line is there whole or not at all.
- The world keeps its own account of every call, apart from the run's history, so that one can be checked by the other.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

EFFECTS = ("reservations.log", "payments.log", "bookings.log", "mails.log")
CALLS = "calls.log"
SETUP = "world.json"
PACE = "RERAIL_DEMO_PACE"  # for whoever runs the plan without the demo around it, as crash tests do


class World:
    """One run's folder: logs of side effects, an account of calls, and how fast time passes here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path, pace: float) -> World:
        """A new world; `pace` stretches or shrinks every wait in it."""
        folder.mkdir(parents=True, exist_ok=True)
        world = cls(folder)
        world.write(SETUP, {"pace": pace})
        return world

    @property
    def pace(self) -> float:
        """How long a second takes here; in a world that nobody made, as the environment says."""
        found = self.read(SETUP)
        return float(found["pace"]) if found is not None else float(os.environ.get(PACE, "1"))

    # -- Files --------------------------------------------------------------------------------------------------------

    def write(self, name: str, value: Any) -> None:
        """Replace a file, atomically."""
        draft = self.folder / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(value), encoding="utf-8")
        draft.replace(self.folder / name)

    def read(self, name: str) -> Any:
        """A file's value; None if it is not there."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def append(self, log: str, line: dict[str, Any]) -> None:
        """Add one line to a log."""
        target = os.open(self.folder / log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(target, json.dumps(line).encode() + b"\n")
        finally:
            os.close(target)

    def lines(self, log: str) -> list[dict[str, Any]]:
        """All lines of a log."""
        path = self.folder / log
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def find(self, log: str, key: str) -> dict[str, Any] | None:
        """The line that a call with this idempotency key left, if it did."""
        return next((line for line in self.lines(log) if line.get("key") == key), None)

    # -- Calls --------------------------------------------------------------------------------------------------------

    def called(self, step: str) -> int:
        """Note a call; tells how many this step has made by now."""
        self.append(CALLS, {"step": step, "pid": os.getpid()})
        return sum(1 for line in self.lines(CALLS) if line["step"] == step)
