"""Outputs and artifacts: small values travel in events, large ones are contents named by their digest (SPEC E6).

At most a handful of contents are kept in memory; older ones come from the store. What comes back is checked against
its digest, and handed out as a fresh value each time, so that a tool cannot change another step's input.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from rerail.core.track import Result
from rerail.core.values import digest, unpack
from rerail.i18n import tell
from rerail.ports import Store


class Gone(LookupError):
    """A content that expired, or no longer matches its digest."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


class Contents:
    """The latest few contents in memory, the rest in the store."""

    def __init__(self, store: Store, keep: int) -> None:
        self._store, self._keep = store, keep
        self._cache: OrderedDict[str, bytes] = OrderedDict()

    def remember(self, name: str, data: bytes) -> None:
        """Keep a content at hand, letting the oldest go."""
        self._cache[name] = data
        self._cache.move_to_end(name)
        while len(self._cache) > self._keep:
            self._cache.popitem(last=False)

    def peek(self, name: str) -> bytes | None:
        """A content that is at hand."""
        data = self._cache.get(name)
        if data is not None:
            self._cache.move_to_end(name)
        return data

    async def get(self, name: str) -> bytes:
        """A content, from wherever it is; `Gone` if it is not there or not itself any more."""
        data = self.peek(name)
        if data is None:
            data = await self._store.blob(name)
            if data is None:
                raise Gone(name, tell("reason.expired"))
            if digest(data) != name:
                raise Gone(name, tell("reason.wrong_digest"))
            self.remember(name, data)
        return data

    async def value(self, result: Result | None) -> Any:
        """The output of a step; None where there is none, or where it is gone."""
        if result is None or result.hole:
            return None
        if not result.blob:
            return result.output
        try:
            return unpack(await self.get(result.digest))
        except Gone:
            return None
