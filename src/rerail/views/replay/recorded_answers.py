"""The recorded answers of a history, by question: the memory that a replay draws from.

Rules of this file:
- Calls match if step, round, tool, arguments and all inputs are the same (R3); the n-th match gets the n-th answer.
  Arguments are not resolved for this: the step's definition and the digests of its needs
  stand for them.
- Questions match if they concern the same failure, or the same table of steps.
- The time without a process counts for no answer and no user (`dead`: its sum so far).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from rerail.kernel import events as ev
from rerail.kernel.decide import Ask, decide
from rerail.kernel.events import Event, Record
from rerail.kernel.fold import evolve
from rerail.kernel.ladder import SAID_NO
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Track, signature
from rerail.kernel.verdict import status_of
from rerail.plan.step import definition
from rerail.plan.tool_spec import Tools

Key = tuple[Any, ...]
Batch = list[Record]

_ANNOUNCED = (ev.StepProgress, ev.ArtifactCreated, ev.Notified)  # events without effect on decisions
_DECIDED = (
    ev.Reflected, ev.RetryScheduled, ev.StepKept, ev.StepRenewed, ev.QuestionAsked, ev.Stopped, ev.Waiting,
    ev.RetryDone, ev.Evaluation, ev.Done, ev.StepStarted, ev.GateOpened,
)  # fmt: skip
_MINDS_WORDS = (ev.Consulted, ev.Declined, ev.PlanRejected, ev.Replanned, ev.Recovered)  # answers to a question
_ACTS = (Rung.ADJUST, Rung.ALTERNATIVE, Rung.PRODUCER, Rung.FALLBACK)


@dataclass(slots=True)
class Given:
    """One recorded question to the outside, and its answer, if there is one."""

    key: Key
    seq: int  # the number of the event before the question
    asked_at: float
    started: ev.StepStarted | None = None  # the intent of a call
    at: float | None = None
    end: int = 0  # the number of the answer's first event
    events: tuple[Event, ...] = ()
    looked: Given | None = None  # the result of a look at the effect, if there was one
    dead: float = 0.0
    dead_after: float = 0.0  # dead seconds at the time of the answer

    def answer(self, batch: Batch, dead: float = 0.0) -> None:
        """Take the batch that answers it."""
        self.at, self.end, self.events = batch[0].at, batch[0].seq, tuple(record.event for record in batch)
        self.dead_after = dead

    @property
    def lasted(self) -> float:
        """Return how long the answer took, without dead time."""
        return max(0.0, self.at - self.asked_at - (self.dead_after - self.dead)) if self.at is not None else 0.0


@dataclass(frozen=True, slots=True)
class Word:
    """A user's action: its time and its events."""

    seq: int
    at: float
    events: tuple[Event, ...]
    dead: float = 0.0
    shown: str = ""  # the digest of the call shown at the gate, if this answers one

    @property
    def about(self) -> tuple[str, str] | None:
        """Return the gate or doubt that it answers, with its step; None for an unprompted command."""
        for act in self.events:
            if isinstance(act, ev.Acted) and act.action in ("confirm", "refuse", "resolve"):
                return ("doubt" if act.action == "resolve" else "gate", act.step)
        return None


@dataclass(slots=True)
class Answers:
    """All answers of a history, and all user actions."""

    given: dict[Key, list[Given]] = field(default_factory=dict)
    calls: dict[tuple[str, int], Given] = field(default_factory=dict)  # by step and attempt
    words: list[Word] = field(default_factory=list)
    open: dict[tuple[str, str], Given] = field(default_factory=dict)  # questions by kind and step
    deaths: list[tuple[int, float]] = field(
        default_factory=list
    )  # by the event that ended each: the sum of dead seconds

    @property
    def dead(self) -> float:
        """Return the seconds without a process so far."""
        return self.deaths[-1][1] if self.deaths else 0.0

    def dead_before(self, seq: int) -> float:
        """Return the seconds without a process before an event."""
        return max((total for ended, total in self.deaths if ended < seq), default=0.0)

    def nth(self, key: Key, n: int) -> Given | None:
        """Return the n-th answer to this question, from 0."""
        found = self.given.get(key, [])
        return found[n] if n < len(found) else None

    def asked_before(self, seq: int) -> dict[Key, int]:
        """Return the number of times each question was asked before an event."""
        return {key: sum(one.seq < seq for one in found) for key, found in self.given.items()}

    def questions_under_way(self, seq: int) -> list[Given]:
        """Return the questions to minds asked before an event, and not answered before it."""
        asked = (one for key, found in self.given.items() if key[0] not in ("call", "gate") for one in found)
        return [one for one in asked if one.seq < seq and (one.at is None or one.end >= seq)]

    def add(self, key: Key, seq: int, at: float) -> Given:
        """Record a question."""
        one = Given(key, seq, at, dead=self.dead)
        self.given.setdefault(key, []).append(one)
        return one

    def take(self, state: State, batch: Batch) -> None:
        """Record the calls, looks, questions and user actions of a batch that the state has not folded yet."""
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
        """Answer an open question, if the batch does."""
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
    """Return all answers of a history, and the state at its end."""
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


# -- Batches --------------------------------------------------------------------------------------------------------


def batches(records: Iterable[Record]) -> Iterator[Batch]:
    """Return the events recorded in one batch, without announcements."""
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
    """Return the time of the last event before each restart of the run, announcements included."""
    found: dict[int, float] = {}
    last = 0.0
    for record in records:
        if isinstance(record.event, ev.Resumed):
            found[record.seq] = last
        last = record.at
    return found


def hear(state: State, batch: Batch, heard: Mapping[int, float]) -> None:
    """Set the state's running time at a restart: batches hold no announcements."""
    state.at = max(state.at, heard.get(batch[0].seq, 0.0))


def _belongs(batch: Batch, event: Event) -> bool:
    """True if an event belongs to the batch before it: an act to its reflection, a verdict to its cost."""
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
    """True for an event from a user."""
    match batch[0].event:
        case ev.Acted() | ev.Cancelled() | ev.RetryBegin(automatic=False) | ev.Resumed(paused=True):
            return True
        case _:
            return False


def is_decided(event: Event) -> bool:
    """True for an event that the engine decided by itself."""
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
    """Return the time of the decision right before these events; None for other events."""
    if is_decided(batch[0].event):
        return batch[0].at
    return before if before < batch[0].at or isinstance(batch[0].event, _MINDS_WORDS) else None


# -- Identity of calls and questions --------------------------------------------------------------------------------


def call_key(state: State, track: Track, tool: str, *, fallback: bool) -> Key:
    """Return the identity of a call."""
    heal = track.heal
    adjusted = "" if fallback or heal is None or heal.args is None else signature(heal.args) + heal.args_blob
    work = signature(msgspec.to_builtins(definition(track.step)))
    needs = (state.inputs(track)[1:], state.tainted(track), track.generation)
    return ("call", track.id, state.round, tool, fallback, adjusted, work, needs)


def gate_key(state: State, track: Track) -> Key:
    """Return the identity of the call that a gate shows."""
    fell_back = track.heal is not None and track.heal.fallback
    return ("gate", *call_key(state, track, state.tool_of(track), fallback=fell_back)[1:])


def question_key(state: State, question: str, step: str) -> Key:
    """Return the identity of a question."""
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
