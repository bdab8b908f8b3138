"""Advice: questions to the model, their costs, and the results of the answers (contract R5, H4).

Rules of this file:
- The table of steps is always whole; large values are cut to a sample.
- An answer becomes events only after the checks of ``rerail.mind``.
- The cost of a question is always recorded, even if its answer is no longer wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.engine.journal import BlobMissing, Journal
from rerail.engine.parts import EngineParts
from rerail.engine.performer import GRACE
from rerail.engine.queues import Key, SideTasks
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.decide import Ask
from rerail.kernel.events import Event
from rerail.kernel.ladder import failed_blob
from rerail.kernel.state import State
from rerail.kernel.step_state import Track
from rerail.mind import judge, repair, replan
from rerail.mind import reflection as reflect
from rerail.mind.questions import consulted
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Ledger, MindAnswer, Question, Sample
from rerail.values.json_values import INLINE, pack, unpack
from rerail.views.results import attempts_of, question_table

SAMPLE = 4_000  # bytes of a large output in a question
MAX_FETCHED = 200  # large outputs that are read from the store for one question


@dataclass(slots=True)
class Answered:
    action: Ask
    answer: MindAnswer
    args: Mapping[str, Any] | None = None  # the large arguments in question
    cut: bool = False  # the question was abandoned; its cost counts all the same


class Advice:
    """The questions of one run."""

    def __init__(
        self, parts: EngineParts, journal: Journal, side: SideTasks, wake: asyncio.Event, outcomes: deque[Any]
    ) -> None:
        """``outcomes`` takes answers for the loop's next turn, which the end of a side task or ``wake`` begins."""
        self._parts, self._journal, self._state, self._side = parts, journal, journal.state, side
        self._outcomes, self._wake = outcomes, wake
        self.ledgers: dict[Key, Ledger] = {}  # costs of the questions under way

    # -- Asking ---------------------------------------------------------------------------------------------------

    async def ask(self, action: Ask) -> None:
        mind = self._parts.mind
        if mind is None:
            self._outcomes.append(Answered(action, MindAnswer(failed=tell("reason.nobody"))))
            return
        question = await self._question(action)
        key = (action.question, action.step, action.seq)
        self.ledgers[key] = question.ledger
        try:
            answer = await self._parts.performer.ask(mind, question, self._parts.mind_timeout)
        except asyncio.CancelledError:
            if not self._cut_off(key):
                raise
            return
        if self.ledgers.pop(key, None) is not None:  # else the question was abandoned meanwhile
            last = question.attempts[-1]["args"] if question.attempts else None
            self._outcomes.append(Answered(action, answer, last))

    async def _question(self, action: Ask) -> Question:
        """Return the question with everything that the model may see."""
        state, (fewest, shown) = self._state, self._parts.history_window
        latest = await self._journal.latest(shown)
        track = state.tracks.get(action.step)
        error = None
        if track is not None and track.error is not None:
            error = {**track.error.to_dict(), "category": str(track.category)}
        whole = action.question == "replan"
        policy, held = state.policy, state.reserved
        return Question(
            action.question, state.run, action.step, state.objective, question_table(state), self._parts.specs, error,
            msgspec.to_builtins(track.step) if track is not None else None, state.seq,
            definitions=[msgspec.to_builtins(other.step) for other in state.tracks.values()] if whole else (),
            attempts=await self._attempts(track) if track is not None else (),
            outputs=await self._samples(
                list(state.tracks.values()) if track is None else [need for need, _ in track.needs]
            ),
            events=[record.to_dict() for record in latest],
            fewest=fewest,
            reason=", ".join(state.row) if state.breaker else "",
            # The reservations of calls under way are not available to the question (contract H4).
            tokens_left=None if (most := policy.max_tokens) is None else max(0, most - state.tokens - held.tokens),
            cost_left=None if (cap := policy.max_cost) is None else max(0.0, cap - state.cost - held.cost),
        )  # fmt: skip

    async def _attempts(self, track: Track) -> list[dict[str, Any]]:
        """Return the failed attempts; the latest has its whole arguments, so that some can be changed."""
        rows = attempts_of(track)
        blob = failed_blob(track)
        if rows and rows[-1]["args"] is None and blob:
            with contextlib.suppress(BlobMissing):
                rows[-1] = {**rows[-1], "args": unpack(await self._journal.content(blob))}
        return rows

    async def _samples(self, tracks: list[Track]) -> dict[str, Any]:
        """Return the outputs of these steps: small ones whole, large ones as a sample."""
        found: dict[str, Any] = {}
        fetched = 0
        for track in tracks:
            result = track.result
            if result is None or not result.digest:
                continue
            if not result.blob:
                found[track.id] = result.output
                continue
            data = self._journal.contents.peek(result.digest)
            if data is None and fetched < MAX_FETCHED:
                fetched += 1
                with contextlib.suppress(BlobMissing):
                    data = await self._journal.content(result.digest)
            sample = data[:SAMPLE].decode("utf-8", "replace") + "…" if data is not None else "…"
            found[track.id] = Sample(sample, result.size)
        return found

    # -- Ending ---------------------------------------------------------------------------------------------------

    def close_ledgers(self) -> None:
        """Allow no further calls of the model for the questions under way."""
        for ledger in self.ledgers.values():
            ledger.closed = True

    def settle(self) -> None:
        """End the questions under way, so that the run can end with their costs recorded.

        In a run that is paused, or stopped by a budget, the answers are awaited. Otherwise they are cancelled.
        """
        state, loop = self._state, asyncio.get_running_loop()
        waits = state.paused if not state.stopped else state.stopped != "RUN_CANCELLED"
        for key, ledger in list(self.ledgers.items()):
            task = self._side.running.get(key)
            if waits:
                if not ledger.watched:  # the model may not keep its timeout
                    ledger.watched = True
                    loop.call_later(self._parts.mind_timeout + GRACE, self._cut_off, key)
            elif task is None:
                self._cut_off(key)
            elif not task.cancelling():
                task.cancel()
                loop.call_later(GRACE, self._cut_off, key)

    def _cut_off(self, key: Key) -> bool:
        """Deliver the cost of a question so far, and abandon it; False if it was over."""
        ledger = self.ledgers.pop(key, None)
        if ledger is not None:
            self._outcomes.append(Answered(Ask(*key), MindAnswer(None, list(ledger.calls)), cut=True))
            self._wake.set()
        return ledger is not None

    # -- Answers --------------------------------------------------------------------------------------------------

    def record(self, said: Answered, now: float) -> None:
        """Record an answer: its costs, and its events."""
        action, mind = said.action, self._parts.mind
        name = mind.name if mind is not None else ""
        by = name if name not in ("", "rules") else "mind"  # "rules" names the built-in rules alone
        for call in said.answer.consultations:
            self._journal.record(consulted(action.question, action.step, call), now)
        if said.cut:
            self._journal.record(ev.Declined(action.question, action.step, tell("reason.cut_off"), late=True), now)
            return
        events = _events(self._state, self._parts.specs, said, by, now)
        if action.question == "reflect":
            events, large = _set_aside(events, said.args)
            for content, data in large.items():
                self._journal.keep(content, data)
        for event in events:
            self._journal.record(event, now)


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
    """Move large adjusted arguments into a content; the event holds only the changes (contract E7)."""
    whole = next((event.args for event in events if isinstance(event, ev.Recovered) and event.args), None)
    whole = whole or next((event.suggestion for event in events if isinstance(event, ev.Reflected)), None)
    packed = pack(whole) if whole is not None and failed is not None else None
    if packed is None or failed is None or len(packed.data) <= INLINE:
        return events, {}
    return reflect.compact(events, failed, packed.digest), {packed.digest: packed.data}
