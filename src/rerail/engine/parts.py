"""The shared parts of all runs of an engine: adapters, times, and limits of concurrent calls (contract X1).

Rules of this file:
- A run's own counts are in its state; an engine may drive many runs against the same provider.
- Nothing is queued at a limit: a loop without room is woken when a call ends, and decides again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rerail.engine.performer import Performer
from rerail.kernel.actor import NO_ACTOR, Actor
from rerail.kernel.events import Record
from rerail.kernel.policy import Policy
from rerail.plan.tool_spec import Runs, ToolSpec
from rerail.ports import Clock, Mind, Store, Tool

Observers = tuple[Callable[[Record], None], ...]
Wanted = Mapping[str, int]  # limit's name → the number of calls it allows


def wanted(policy: Policy, spec: ToolSpec) -> Wanted:
    """Return the limits that apply to a call of this tool; 0 is no limit."""
    found: dict[str, int] = {}
    if limit := policy.tool_concurrency.get(spec.name):
        found[f"tool {spec.name}"] = limit
    if spec.provider and (limit := policy.provider_concurrency.get(spec.provider)):
        found[f"provider {spec.provider}"] = limit
    return found


@dataclass(slots=True)
class Limits:
    """The limited calls under way in an engine."""

    _busy: Counter[str] = field(default_factory=Counter)
    _waiting: dict[asyncio.Event, None] = field(default_factory=dict)

    def take(self, wanted: Wanted, wake: asyncio.Event) -> bool:
        """Count a call in; False if there is no room, and then `wake` is set once there may be."""
        if any(self._busy[name] >= limit for name, limit in wanted.items()):
            self._waiting[wake] = None
            return False
        self._busy.update(wanted.keys())
        return True

    def give_back(self, wanted: Wanted) -> None:
        """Count a call out, and wake the loops that wait for room."""
        self._busy.subtract(wanted.keys())
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake.set()


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The adapters and limits that all runs of an engine share."""

    store: Store
    clock: Clock
    tools: Mapping[str, Tool]
    specs: Mapping[str, ToolSpec]
    performer: Performer
    mind: Mind | None
    mind_timeout: float
    workspaces: Callable[[str], Path]
    reconnect_seconds: float
    memory: int
    limits: Limits
    history_window: tuple[int, int] = (5, 12)
    observers: Observers = ()  # get each event once it is durable
    actor: Actor = NO_ACTOR  # how commands come here, and whether their sender has shown a token
    silent_is_dead: bool = False  # a supervisor of processes guarantees that a silent owner no longer acts

    def runs(self, tool: str) -> Runs:
        """Return the place where calls of a tool run; an unknown tool may run anywhere."""
        found, elsewhere = self.tools.get(tool), self.performer.elsewhere
        away = elsewhere is not None and not elsewhere.here
        if found is None or (away and elsewhere is not None and elsewhere.takes(found)):
            return "request"
        return found.spec.runs


class Predecessor(StrEnum):
    """What is known of the previous lease holder, and so of its calls (contract E11)."""

    LEFT = "left"  # it released the lease: it may live, and its threads go on
    DEAD = "dead"  # its process is gone
    SILENT = "silent"  # it stopped renewing, and may go on at any moment
