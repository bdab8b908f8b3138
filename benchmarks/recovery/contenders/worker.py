"""What every contender's process does: take a case from standard input, run it, say how it ended.

Standard library only: contenders live in environments of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.recovery.client import World


@dataclass(frozen=True)
class Job:
    """One case, as its contender gets it."""

    case: str
    plan: list[dict[str, Any]]
    tools: dict[str, str]  # every tool that there is → its effect
    socket: str
    folder: str  # where it may keep what it needs to go on after a kill
    home: str  # the same, for all its cases
    resumed: bool  # whether its process was killed and this is the next one
    answers: dict[str, dict[str, Any]]  # step → whether it is done and what it answered, as somebody who looked says
    options: dict[str, Any]

    def world(self) -> World:
        """A connection of its own."""
        return World(self.socket, self.case)


@dataclass
class Outcome:
    """How a contender says that it ended."""

    status: str  # success, failed or waiting
    doubts: tuple[str, ...] = ()  # what it waits to be told
    why: str = ""


def serve(run: Callable[[Job], Outcome]) -> None:
    """Run the cases that come, one after the other."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        job = Job(**json.loads(line))
        try:
            found = run(job)
        except ImportError as error:  # no outcome: whoever measures must know
            out.write(json.dumps({"broken": str(error)}) + "\n")
            continue
        except Exception as error:  # noqa: BLE001  # a contender that raises says that it failed
            found = Outcome("failed", why=f"{type(error).__name__}: {error}")
        out.write(json.dumps({"status": found.status, "doubts": found.doubts, "why": found.why}) + "\n")
