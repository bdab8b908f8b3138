"""What the world answered in a history, by what was asked of it: the memory that a replay draws from.

Rules of this file:
- A call is the same call if step, round, tool, arguments and all that it was made from are the same (R3); the n-th of
  them gets the n-th answer. Arguments are not resolved for that: the step's definition and the digests of what it needs
  stand for them.
- A question is the same question if it is about the same failure, or about the same table of steps.
- The time that a run lay dead is nobody's: no answer took it, and no person (`dead`: how much there was before).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.decide import Ask, decide
from rerail.core.events import Event, Record
from rerail.core.fold import evolve
from rerail.core.plan import definition
from rerail.core.policy import Rung
from rerail.core.recover import SAID_NO
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.core.track import Track, signature
from rerail.core.verdict import status_of

Key = tuple[Any, ...]
Batch = list[Record]

_ANNOUNCED = (ev.StepProgress, ev.ArtifactCreated, ev.Notified)  # nothing of these is read back
_DECIDED = (
    ev.Reflected, ev.RetryScheduled, ev.StepKept, ev.StepRenewed, ev.Asked, ev.Stopped, ev.Waiting, ev.RetryDone,
    ev.Evaluation, ev.Done, ev.StepStarted, ev.GateOpened,
)  # fmt: skip
_MINDS_WORDS = (ev.Consulted, ev.Declined, ev.PlanRejected, ev.Replanned, ev.Recovered)  # somebody was asked before
_ACTS = (Rung.ADJUST, Rung.ALTERNATIVE, Rung.PRODUCER, Rung.FALLBACK)


@dataclass(slots=True)
class Given:
    """One thing that was asked of the world, and what it answered, if it did."""

    key: Key
    seq: int  # of the event before which it was asked
    asked_at: float
    started: ev.StepStarted | None = None  # the intent of a call
    at: float | None = None
    end: int = 0  # the number of the answer's first event
    events: tuple[Event, ...] = ()
    looked: Given | None = None  # whether its effect is there, if somebody looked
    dead: float = 0.0
    dead_after: float = 0.0  # when it was answered

    def answer(self, batch: Batch, dead: float = 0.0) -> None:
        """What came of it."""
        self.at, self.end, self.events = batch[0].at, batch[0].seq, tuple(record.event for record in batch)
        self.dead_after = dead

    @property
    def lasted(self) -> float:
        """How long the answer took, while the run was alive."""
        return max(0.0, self.at - self.asked_at - (self.dead_after - self.dead)) if self.at is not None else 0.0


@dataclass(frozen=True, slots=True)
class Word:
    """What a person did: when, and the events of it."""

    seq: int
    at: float
    events: tuple[Event, ...]
    dead: float = 0.0
    shown: str = ""  # the digest of the call that its gate showed, if it answers one

    @property
    def about(self) -> tuple[str, str] | None:
        """The question that it answers, a gate or a doubt, with its step; None for a wish that nobody asked for."""
        for act in self.events:
            if isinstance(act, ev.Acted) and act.action in ("confirm", "refuse", "resolve"):
                return ("doubt" if act.action == "resolve" else "gate", act.step)
        return None


@dataclass(slots=True)
class Answers:
    """All answers of a history, and what people did."""

    given: dict[Key, list[Given]] = field(default_factory=dict)
    calls: dict[tuple[str, int], Given] = field(default_factory=dict)  # by step and attempt
    words: list[Word] = field(default_factory=list)
    open: dict[tuple[str, str], Given] = field(default_factory=dict)  # questions by kind and step
    deaths: list[tuple[int, float]] = field(
        default_factory=list
    )  # by the event that ended each: all dead seconds so far

    @property
    def dead(self) -> float:
        """How many seconds the run lay dead so far."""
        return self.deaths[-1][1] if self.deaths else 0.0

    def dead_before(self, seq: int) -> float:
        """How many seconds the run lay dead before an event."""
        return max((total for ended, total in self.deaths if ended < seq), default=0.0)

    def nth(self, key: Key, n: int) -> Given | None:
        """The n-th time that this was asked, from 0."""
        found = self.given.get(key, [])
        return found[n] if n < len(found) else None

    def asked_before(self, seq: int) -> dict[Key, int]:
        """How often each was asked before an event."""
        return {key: sum(one.seq < seq for one in found) for key, found in self.given.items()}

    def questions_under_way(self, seq: int) -> list[Given]:
        """The questions to minds that were asked before an event, and not answered before it."""
        asked = (one for key, found in self.given.items() if key[0] not in ("call", "gate") for one in found)
        return [one for one in asked if one.seq < seq and (one.at is None or one.end >= seq)]

    def add(self, key: Key, seq: int, at: float) -> Given:
        """Something is asked."""
        one = Given(key, seq, at, dead=self.dead)
        self.given.setdefault(key, []).append(one)
        return one

    def take(self, state: State, batch: Batch) -> None:
        """What a batch of events says of calls, looks, questions and people; the state has not folded it yet."""
        first = batch[0]
        match first.event:
            case ev.StepStarted() as event if event.step in state.tracks:
                track = state.tracks[event.step]
                key = call_key(state, track, event.tool, fallback=event.rung is Rung.FALLBACK)
                one = self.calls[event.step, event.attempt] = self.add(key, first.seq, first.at)
                one.started = event
            case ev.GateOpened() as event if event.step in state.tracks:
                key = gate_key(state, state.tracks[event.step])
                self.add(key, first.seq, first.at).answer(batch, self.dead)
            case ev.StepFailed(called=False) as event if event.step in state.tracks:
                track = state.tracks[event.step]
                fell_back = track.heal is not None and track.heal.fallback
                key = call_key(state, track, state.tool_of(track), fallback=fell_back)
                self.add(key, first.seq, first.at).answer(batch, self.dead)
            case ev.StepSucceeded() | ev.StepFailed() as event if (event.step, event.attempt) in self.calls:
                if (call := self.calls[event.step, event.attempt]).at is None:
                    call.answer(batch, self.dead)
            case ev.StepVerified() as event if (event.step, event.attempt) in self.calls:
                call = self.calls[event.step, event.attempt]
                call.looked = Given((), first.seq, call.at or first.at, dead=call.dead_after)
                call.looked.answer(batch, self.dead)
            case _ if is_word(batch):
                word = Word(first.seq, first.at, tuple(record.event for record in batch), self.dead)
                about = word.about
                gate = state.tracks[about[1]].gate if about is not None and about[1] in state.tracks else None
                shown = gate.shown.digest if gate is not None and gate.shown is not None else ""
                self.words.append(replace(word, shown=shown))
            case _:
                self._conclude(batch)

    def _conclude(self, batch: Batch) -> None:
        """The answer to an open question, if a batch is one."""
        for record in batch:
            match record.event:
                case ev.Reflected() as event:
                    which = ("reflect", event.step)
                case ev.Recovered() as event:
                    which = ("repair", event.step)
                case ev.Declined() | ev.PlanRejected() as event:
                    which = (event.question, event.step)
                case ev.Replanned():
                    which = ("replan", "")
                case ev.Evaluation():
                    which = ("judge", "")
                case _:
                    continue
            one = self.open.pop(which, None)
            if one is not None and not getattr(record.event, "late", False):
                one.answer(batch, self.dead)
                return


def gathered(
    run: str, batches: Iterable[Batch], tools: Tools, heard: Mapping[int, float] | None = None
) -> tuple[Answers, State]:
    """All answers of a history, and the state at its end."""
    answers, state = Answers(), State(run)
    before = 0.0
    for batch in batches:
        now = moment(batch, before)
        for action in decide(state, tools, now) if now is not None else ():
            if isinstance(action, Ask) and (action.question, action.step) not in answers.open:
                key = question_key(state, action.question, action.step)
                answers.open[action.question, action.step] = answers.add(key, batch[0].seq, now or 0.0)
        hear(state, batch, heard or {})
        if isinstance(batch[0].event, ev.Resumed) and state.active_since is not None:
            answers.deaths.append((batch[0].seq, answers.dead + max(0.0, batch[0].at - state.at)))
        answers.take(state, batch)
        for record in batch:
            evolve(state, record.event, record.at, record.seq)
        before = batch[-1].at
    return answers, state


# -- What was written as one ----------------------------------------------------------------------------------------


def batches(records: Iterable[Record]) -> Iterator[Batch]:
    """The events that were written as one, without those that only announce something."""
    batch: Batch = []
    for record in records:
        if isinstance(record.event, _ANNOUNCED):
            continue
        if batch and not (record.at == batch[-1].at and _belongs(batch, record.event)):
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch


def last_heard(records: Iterable[Record]) -> dict[int, float]:
    """When the last word was heard before each time that a run was taken up again, announcements included."""
    found: dict[int, float] = {}
    last = 0.0
    for record in records:
        if isinstance(record.event, ev.Resumed):
            found[record.seq] = last
        last = record.at
    return found


def hear(state: State, batch: Batch, heard: Mapping[int, float]) -> None:
    """Let a state know how long its run was alive, if it is taken up again: batches hold no announcements."""
    state.at = max(state.at, heard.get(batch[0].seq, 0.0))


def _belongs(batch: Batch, event: Event) -> bool:
    """Whether an event goes with the ones before it: the act with the thought, the verdict with what it cost."""
    match batch[-1].event:
        case ev.Consulted() as last:
            told = isinstance(event, ev.Replanned | ev.Evaluation) or getattr(event, "step", None) == last.step
            return told and not isinstance(event, ev.StepStarted)
        case ev.Reflected() as last if getattr(event, "step", None) == last.step:
            return (
                (last.rung is Rung.RETRY and isinstance(event, ev.RetryScheduled))
                or (last.rung in _ACTS and isinstance(event, ev.Recovered))
                or (last.rung is Rung.SKIP and isinstance(event, ev.StepSkipped))
            )
        case ev.Acted() as last:
            said_no = isinstance(event, ev.StepFailed) and not event.called and event.error.code in SAID_NO
            skipped = isinstance(event, ev.StepSkipped) and event.code == "SKIP_USER"
            same = getattr(event, "step", None) == last.step
            return ((said_no or skipped) and same) or _reopens(event)
        case ev.StepFailed() | ev.StepSkipped():
            return isinstance(batch[0].event, ev.Acted) and _reopens(event)
        case ev.RetryBegin(automatic=False):
            return isinstance(event, ev.Acted)
        case _:
            return False


def _reopens(event: Event) -> bool:
    return isinstance(event, ev.RetryBegin) and not event.automatic


def is_word(batch: Batch) -> bool:
    """Whether a person said this."""
    match batch[0].event:
        case ev.Acted() | ev.Cancelled() | ev.RetryBegin(automatic=False) | ev.Resumed(paused=True):
            return True
        case _:
            return False


def is_decided(event: Event) -> bool:
    """Whether the engine itself decided this, rather than hear of it."""
    match event:
        case ev.StepFailed(called=False):
            return event.error.code not in SAID_NO
        case ev.StepSkipped():
            return event.code != "SKIP_USER"
        case ev.RetryBegin():
            return event.automatic
        case ev.Recovered():
            return event.by == "rules"
        case _:
            return isinstance(event, _DECIDED)


def moment(batch: Batch, before: float) -> float | None:
    """When it was decided what to do, right before these events; None if it was not."""
    if is_decided(batch[0].event):
        return batch[0].at
    return before if before < batch[0].at or isinstance(batch[0].event, _MINDS_WORDS) else None


# -- The same call, the same question -------------------------------------------------------------------------------


def call_key(state: State, track: Track, tool: str, *, fallback: bool) -> Key:
    """What makes a call the same one."""
    heal = track.heal
    adjusted = "" if fallback or heal is None or heal.args is None else signature(heal.args) + heal.args_blob
    work = signature(msgspec.to_builtins(definition(track.step)))
    needs = (state.inputs(track)[1:], state.tainted(track), track.generation)
    return ("call", track.id, state.round, tool, fallback, adjusted, work, needs)


def gate_key(state: State, track: Track) -> Key:
    """What makes a gate show the same call."""
    fell_back = track.heal is not None and track.heal.fallback
    return ("gate", *call_key(state, track, state.tool_of(track), fallback=fell_back)[1:])


def question_key(state: State, question: str, step: str) -> Key:
    """What makes a question the same one."""
    track = state.tracks.get(step)
    if track is not None:
        error = track.error.message if track.error is not None else ""
        tool = track.call.tool if track.call is not None else track.step.tool
        return (question, step, state.round, tool, state.signature(track), error)
    rows = [
        (one.id, str(status_of(state, one)[0]), one.result.made if one.result else "", one.error and one.error.message)
        for one in state.tracks.values()
    ]
    return (question, state.round, state.replans, tuple(rows))
