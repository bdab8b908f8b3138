"""What a mind gets to see of a run, and what its answer comes to.

Rules of this file:
- The table of steps is always whole; what is large is cut to a sample.
- An answer becomes events only after the checks of ``rerail.mind``; nothing here is written down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.decide import Ask
from rerail.core.events import Event, Record
from rerail.core.recover import failed_blob
from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.core.track import Track
from rerail.core.values import INLINE, pack, unpack
from rerail.core.views import attempts_of, question_table
from rerail.engine.outputs import Gone
from rerail.i18n import tell
from rerail.mind import judge, reflect, repair, replan
from rerail.ports import Answer, Question, Sample

SAMPLE = 4_000  # bytes of a large output that a mind gets to see
MAX_FETCHED = 200  # large outputs that are brought from the store for one question


@dataclass(slots=True)
class Answered:
    """What a mind said, or that it failed to say anything."""

    action: Ask
    answer: Answer
    args: Mapping[str, Any] | None = None  # the large arguments that it is about
    cut: bool = False  # nobody could wait for the answer any longer; what it cost counts all the same


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Gathers what a question needs: from the state, and from where large contents are kept."""

    state: State
    specs: Mapping[str, ToolSpec]
    fetch: Callable[[str], Awaitable[bytes]]
    peek: Callable[[str], bytes | None]

    async def question(self, action: Ask, latest: list[Record], fewest: int) -> Question:
        """Everything a mind gets to see. The table is always whole; what is large is cut to a sample."""
        state = self.state
        track = state.tracks.get(action.step)
        error = None
        if track is not None and track.error is not None:
            error = {**track.error.to_dict(), "category": str(track.category)}
        whole = action.question == "replan"
        policy, held = state.policy, state.reserved
        return Question(
            action.question, state.run, action.step, state.objective, question_table(state), self.specs, error,
            msgspec.to_builtins(track.step) if track is not None else None, state.seq,
            definitions=[msgspec.to_builtins(other.step) for other in state.tracks.values()] if whole else (),
            attempts=await self._attempts(track) if track is not None else (),
            outputs=await self._samples(
                list(state.tracks.values()) if track is None else [need for need, _ in track.needs]
            ),
            events=[record.to_dict() for record in latest],
            fewest=fewest,
            reason=", ".join(state.row) if state.breaker else "",
            # What calls under way have reserved is not the question's to spend (H4).
            tokens_left=None if (most := policy.max_tokens) is None else max(0, most - state.tokens - held.tokens),
            cost_left=None if (cap := policy.max_cost) is None else max(0.0, cap - state.cost - held.cost),
        )  # fmt: skip

    async def _attempts(self, track: Track) -> list[dict[str, Any]]:
        """The failed attempts; the arguments of the latest are there whole, so that some of them can be changed."""
        rows = attempts_of(track)
        blob = failed_blob(track)
        if rows and rows[-1]["args"] is None and blob:
            with contextlib.suppress(Gone):
                rows[-1] = {**rows[-1], "args": unpack(await self.fetch(blob))}
        return rows

    async def _samples(self, tracks: list[Track]) -> dict[str, Any]:
        """The outputs of these steps: whole where they are small, else their beginning as text."""
        found: dict[str, Any] = {}
        fetched = 0
        for track in tracks:
            result = track.result
            if result is None or not result.digest:
                continue
            if not result.blob:
                found[track.id] = result.output
                continue
            data = self.peek(result.digest)
            if data is None and fetched < MAX_FETCHED:
                fetched += 1
                with contextlib.suppress(Gone):
                    data = await self.fetch(result.digest)
            sample = data[:SAMPLE].decode("utf-8", "replace") + "…" if data is not None else "…"
            found[track.id] = Sample(sample, result.size)
        return found


def conclusions(
    state: State, specs: Mapping[str, ToolSpec], said: Answered, by: str, now: float
) -> tuple[list[Event], dict[str, bytes]]:
    """The events that an answer comes to, once it is checked, and the large contents that they name."""
    events = _events(state, specs, said, by, now)
    return _set_aside(events, said.args) if said.action.question == "reflect" else (events, {})


def _events(state: State, specs: Mapping[str, ToolSpec], said: Answered, by: str, now: float) -> list[Event]:
    action = said.action
    given, failed = said.answer.value, said.answer.failed
    match action.question:
        case "judge":
            if state.judged is not None or state.moves != action.seq:
                return [ev.Declined("judge", "", tell("reason.moved_on"), late=True)]
            if failed:
                return [judge.unavailable(state, failed)]
            return [judge.read(state, given, by)]
        case "reflect":
            return reflect.read(state, specs, action.step, action.seq, given, by, now, failed, said.args)
        case _ if failed:
            return [ev.Declined(action.question, action.step, failed)]
        case "repair":
            return [repair.read(state, specs, action.step, action.seq, given, by)]
        case _:
            return [replan.read(state, specs, given, by, action.seq)]


def _set_aside(events: list[Event], failed: Mapping[str, Any] | None) -> tuple[list[Event], dict[str, bytes]]:
    """Adjusted arguments that are large are kept in the store, and the history says only what changed (E7)."""
    whole = next((event.args for event in events if isinstance(event, ev.Recovered) and event.args), None)
    whole = whole or next((event.suggestion for event in events if isinstance(event, ev.Reflected)), None)
    packed = pack(whole) if whole is not None and failed is not None else None
    if packed is None or failed is None or len(packed.data) <= INLINE:
        return events, {}
    return reflect.compact(events, failed, packed.digest), {packed.digest: packed.data}
