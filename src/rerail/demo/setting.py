"""Where and how the demo's run lives: the same words for the process that is killed and the one that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rerail
from rerail.demo.world import World

PLAN = Path(__file__).with_name("plan.yaml")
SLOWEST = 1.0
FASTEST = 0.15


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of the demo: its folder, its id, and how fast time passes in its world."""

    folder: Path
    run: str
    pace: float = SLOWEST

    @property
    def database(self) -> Path:
        """The file that holds the history."""
        return self.folder / "runs.db"

    @property
    def world(self) -> World:
        """The files that the tools act on: the run's workspace."""
        return World(self.folder / "work" / self.run)

    def engine(self, *, tools: bool) -> rerail.Engine:
        """An engine on the demo's store; without tools it can only look."""
        from rerail.demo.tools import TOOLS

        settings: dict[str, Any] = {"retry": {"backoff_base": 0.6 * self.pace}}
        given = TOOLS if tools else ()
        # The origin lets later commands (`rerail retry RUN`) load the same tools again.
        return rerail.Engine(f"sqlite:///{self.database}", given, settings, origin=("rerail.demo.tools",))
