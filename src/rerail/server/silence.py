"""Connections that say nothing, and how long and how many of them are kept (I4).

Rules of this file:
- A connection is silent while no request of it is under way: it has not yet sent the head of one, or has its answer
  and asks for nothing more. Readers of streams and sockets are no silent ones, however quiet they are.
- Silence ends in time, also one that is broken by a byte now and then; and a body that has begun goes on coming.
- Only so many are silent at once. One more takes the place of the oldest of the address that has the most, so that
  whoever opens many connections throws out its own, and nobody who has something to say waits for a place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

WITHIN = 10.0  # seconds for the head of a request
PAUSE = 20.0  # seconds between two parts of its body
MOST = 200  # silent connections


class Silence:
    """The connections of one server that say nothing."""

    def __init__(self, within: float = WITHIN, pause: float = PAUSE, most: int = MOST) -> None:
        self.within, self.pause = within, pause
        self._most = most
        self._silent: dict[Attended, str] = {}  # the oldest first → where each comes from

    def add(self, one: Attended, address: str) -> None:
        """One more says nothing."""
        self._silent[one] = address
        if len(self._silent) > self._most:
            [(busiest, _)] = Counter(self._silent.values()).most_common(1)
            oldest = next(found for found, whose in self._silent.items() if whose == busiest)
            self.drop(oldest)
            oldest.let_go()

    def drop(self, one: Attended) -> None:
        """One says something, or is gone."""
        self._silent.pop(one, None)

    def protocol(self, **given: Any) -> asyncio.Protocol:
        """What serves the next connection."""
        return Attended(self, **given)


class Attended(H11Protocol):
    """uvicorn's way to serve a connection, with an eye on whether anything comes."""

    def __init__(self, silence: Silence, **given: Any) -> None:
        super().__init__(**given)
        self._silence = silence
        self._until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there, and has said nothing so far."""
        super().connection_made(transport)
        self._fall_silent()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._speak()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came: the rest of a head, a part of a body, or neither."""
        super().data_received(data)
        self._attend()

    def on_response_complete(self) -> None:
        """An answer is out; the next request may have come already."""
        self._speak()  # the next silence is a new one
        super().on_response_complete()
        self._attend()

    def let_go(self) -> None:
        """It said nothing for too long."""
        self._speak()
        if not self.transport.is_closing():
            self.transport.close()

    def _attend(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:  # a socket's own way from here on
            self._speak()
        elif not self._asked():
            if self._until is None:
                self._fall_silent()
        else:
            self._speak()
            if self.cycle.more_body:
                self._until = self.loop.call_later(self._silence.pause, self._stalled)

    def _asked(self) -> bool:
        """Whether a request is under way."""
        cycle: RequestResponseCycle | None = self.cycle  # there is none before the first
        return cycle is not None and not cycle.response_complete

    def _stalled(self) -> None:
        """No more of a body came, unless it is us who do not read it."""
        self._until = None
        if self.flow.read_paused:
            self._attend()
        else:
            self.let_go()

    def _fall_silent(self) -> None:
        self._until = self.loop.call_later(self._silence.within, self.let_go)
        self._silence.add(self, str(self.client[0]) if self.client else "")

    def _speak(self) -> None:
        self._silence.drop(self)
        if self._until is not None:
            self._until.cancel()
            self._until = None
