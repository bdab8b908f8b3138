"""Limits that all runs of an engine share: how many calls of a tool, or of a provider, are under way at once (X1).

Rules of this file:
- A run's own counts are in its state; these are of the engine, which may drive many runs against the same provider.
- Nothing is queued here: whoever finds no room is woken when there is some, and decides anew.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from rerail.core.policy import Policy
from rerail.core.tools import ToolSpec

Wanted = Mapping[str, int]  # what a call counts for → how many of these there may be


def wanted(policy: Policy, spec: ToolSpec) -> Wanted:
    """What a call of this tool counts for, as far as it is limited; 0 is no limit."""
    found: dict[str, int] = {}
    if limit := policy.tool_concurrency.get(spec.name):
        found[f"tool {spec.name}"] = limit
    if spec.provider and (limit := policy.provider_concurrency.get(spec.provider)):
        found[f"provider {spec.provider}"] = limit
    return found


class Limits:
    """The calls under way in an engine, counted where they are limited."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._waiting: dict[asyncio.Event, None] = {}

    def take(self, wanted: Wanted, wake: asyncio.Event) -> bool:
        """Count a call in; False if there is no room, and then `wake` is set once there may be."""
        if any(self._busy[name] >= limit for name, limit in wanted.items()):
            self._waiting[wake] = None
            return False
        self._busy.update(wanted.keys())
        return True

    def give_back(self, wanted: Wanted) -> None:
        """The call is over."""
        self._busy.subtract(wanted.keys())
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake.set()
