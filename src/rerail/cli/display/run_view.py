"""A run's view for a terminal: the folded state, and each step's recoveries.

Rules of this file:
- Everything comes from events; no question goes to the engine while it works.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rerail.codes import NO_ANSWER
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.kernel.step_state import Status
from rerail.kernel.verdict import ENDED_WELL, status_of


@dataclass(slots=True)
class Mending:
    """The recoveries of one step."""

    failures: int = 0
    retries: int = 0
    waits: int = 0  # "not now"
    rounds: int = 0
    left: int | None = None  # retries left, as last said
    rungs: list[ev.Recovered] = field(default_factory=list)
    verified: bool = False  # its answer was lost, and its effect found
    by_hand: str = ""  # the person that gave its output


class Picture:
    """A run's state, folded from the events seen so far."""

    def __init__(self, run: str) -> None:
        self.state = State(run)
        self.mendings: dict[str, Mending] = {}
        self.progress: dict[str, ev.StepProgress] = {}
        self.paused_by = ""
        self.version = 0  # changes when a view would look different

    @classmethod
    def of(cls, run: str, records: Iterable[Record]) -> Picture:
        picture = cls(run)
        for record in records:
            picture.feed(record)
        return picture

    @property
    def seq(self) -> int:
        return self.state.seq

    def feed(self, record: Record) -> None:
        evolve(self.state, record.event, record.at, record.seq)
        self.version += 1
        match record.event:
            case ev.Acted(action="pause") as paused:
                self.paused_by = paused.by
            case ev.StepProgress() as told if not told.log:
                self.progress[told.step] = told
            case ev.StepStarted() as started:
                self.progress.pop(started.step, None)
            case ev.StepFailed() as failed if failed.not_now is None or failed.error.code in NO_ANSWER:
                self._mending(failed.step).failures += 1
            case ev.StepVerified() as verified if verified.effect == "there":
                self._mending(verified.step).verified = True
            case ev.Acted(action="resolve", outcome="succeeded") as acted:
                self._mending(acted.step).by_hand = acted.by or "?"
            case ev.StepSucceeded() as succeeded if succeeded.step in self.mendings:
                self.mendings[succeeded.step].by_hand = ""  # it has earned its output since
            case ev.RetryScheduled() as scheduled:
                self._scheduled(scheduled)
            case ev.Recovered() as recovered:
                self._mending(recovered.step).rungs.append(recovered)
            case ev.RetryBegin() as begun:
                for root in begun.roots:
                    self._mending(root).rounds += 1
            case _:
                pass

    def _mending(self, step: str) -> Mending:
        return self.mendings.setdefault(step, Mending())

    def _scheduled(self, event: ev.RetryScheduled) -> None:
        mending = self._mending(event.step)
        mending.left = event.retries_left
        if event.asked:
            mending.waits += 1
        else:
            mending.retries += 1

    # -- Reading ------------------------------------------------------------------------------------------------------

    def counts(self) -> dict[Status, int]:
        found: dict[Status, int] = {}
        for track in self.state.tracks.values():
            status = status_of(self.state, track)[0]
            found[status] = found.get(status, 0) + 1
        return found

    def healed(self) -> dict[str, Mending]:
        """Return the steps that recovered, in plan order; a fallback heals nothing."""
        found = {}
        for step_id, track in self.state.tracks.items():
            one = self.mendings.get(step_id, Mending())
            mended = one.failures or one.waits or one.rungs or one.verified or one.by_hand
            if not mended or (track.result is not None and track.result.stands_in):
                continue
            if status_of(self.state, track)[0] in ENDED_WELL:
                found[step_id] = one
        return found
