"""Replay of a recorded run under other settings, as far as its history can tell.

Rules of this file:
- Nothing is called and nothing is guessed. While `decide` agrees under both settings, the recorded events hold.
  From the first difference on, the replay decides by itself, on the answers that the history holds.
- An answer missing in the history is unknown, and so is everything that depends on it; the rest goes on.
- Without a tool's definition, decisions about it are unknown: from the first difference on, so is every step that
  had not ended. The same holds where something unknown may use up a budget of the whole run.
- Time comes from the history: a call lasts as long as recorded, a wait as the other settings say. The time
  without a process counts in neither.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from rerail.codes import Category, category_of
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.budget import in_time
from rerail.kernel.decide import (
    Action,
    Ask,
    Call,
    Note,
    Show,
    VerifyEffect,
    automatic_roots,
    decide,
    gated_call,
    unresolved,
)
from rerail.kernel.events import Error, Event, Record
from rerail.kernel.fold import evolve
from rerail.kernel.ladder import FailureCase, Reflection, choose
from rerail.kernel.policy import LADDER, Policy
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, Status, Track
from rerail.kernel.verdict import run_status, status_of
from rerail.plan.step import Step
from rerail.plan.tool_spec import Tools, ToolSpec
from rerail.views.replay.outcome import (
    Replay,
    Spent,
    StepReplayed,
    UnknownAnswer,
    choices_in,
    foretold,
    rows_of,
    shape_of,
)
from rerail.views.replay.recorded_answers import (
    Answers,
    Batch,
    Given,
    Key,
    Word,
    batches,
    call_key,
    gate_key,
    gathered,
    hear,
    last_heard,
    moment,
    question_key,
)

ENDED = frozenset({Status.SUCCEEDED, Status.DEGRADED, Status.FAILED, Status.SKIPPED, Status.CANCELLED})
UNKNOWN = "unknown"
BARELY = 0.01  # seconds by which equal time limits may differ


# -- Along the history, up to the first difference --------------------------------------------------------------------


def replay(
    run: str,
    records: Iterable[Record],
    tools: Tools,
    changes: Mapping[str, Any],
    *,
    missing: Iterable[str] = (),
    branch_at: int = 0,
) -> Replay:
    """Replay a recorded run with parts of its policy changed.

    ``branch_at`` makes it leave the history at an event even without a difference: with all answers recorded, that
    leads to the same end, which is a law. ``missing`` are tools known by name only.
    """
    records = list(records)
    found, heard = list(batches(records)), last_heard(records)
    answers, end = gathered(run, found, tools, heard)
    if records:
        end.at = records[-1].at
    way = _Way(run, answers, tools, changes, tuple(missing))
    branch = way.follow(found, branch_at, heard)
    if branch:
        way.go_on()
    return way.told(end, found, branch)


@dataclass(order=True, slots=True)
class _Due:
    """A pending answer; simultaneous ones keep the order of the history."""

    at: float
    order: int
    n: int
    events: tuple[Event, ...] = field(compare=False)
    asked: tuple[str, str] | None = field(default=None, compare=False)  # the gate or doubt that the user answers


@dataclass(frozen=True, slots=True)
class _Sight:
    """What was certain before the first unknown: ended steps, and usage."""

    ended: frozenset[str]
    calls: Mapping[str, int]
    waited: Mapping[str, float]
    spent: Spent


@dataclass(slots=True)
class _Way:
    """A run under other settings: along the history first, then on its own."""

    run: str
    answers: Answers
    tools: Tools
    changes: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    state: State = field(init=False)
    before: Policy = field(default_factory=Policy)  # as recorded
    now: float = 0.0
    instead: tuple[dict[str, Any], ...] = ()
    drift: int = 0
    left: int = 0  # user actions not reached
    unknown: dict[tuple[str, str, int], UnknownAnswer] = field(default_factory=dict)
    sight: _Sight | None = None  # what was certain before the first unknown
    calls: Counter[str] = field(default_factory=Counter)
    waited: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _used: dict[tuple[str, int], Given] = field(default_factory=dict)  # the answer of each call, by step and attempt
    _counts: dict[Key, int] = field(default_factory=dict)
    _due: list[_Due] = field(default_factory=list)
    _asked: set[tuple[str, str, int]] = field(default_factory=set)
    _words: dict[tuple[str, str], list[Word]] = field(default_factory=dict)
    _speaking: set[tuple[str, str]] = field(default_factory=set)  # gates and doubts with a pending answer
    _wishes: list[float] = field(default_factory=list)  # the times of unprompted user actions
    _n: int = 0

    def __post_init__(self) -> None:
        self.state = State(self.run)

    def follow(self, found: list[Batch], branch_at: int, heard: Mapping[int, float]) -> int:
        """Follow the history while both settings agree; return the first event that would differ."""
        old = State(self.run)
        last = 0.0
        for batch in found:
            seq, now = batch[0].seq, moment(batch, last)
            was = decide(old, self.tools, now) if now is not None else []
            would = decide(self.state, self.tools, now) if now is not None else []
            if seq == branch_at or shape_of(was) != shape_of(would) or self._bites(old, batch):
                self._branch(seq, last if now is None else now, would)
                return seq
            if now is not None and not self.drift and not foretold(was, batch[0].event):
                self.drift = seq
                if old.policy != self.state.policy:
                    self._miss_tools()
            for state in (old, self.state):
                hear(state, batch, heard)
            for record in batch:
                evolve(old, record.event, record.at, record.seq)
                self._write(self._under_these(record.event, would), record.at, record.seq)
            last, self.before = batch[-1].at, old.policy
        self.now = last
        would = decide(self.state, self.tools, last)
        if shape_of(decide(old, self.tools, last)) == shape_of(would):
            return 0
        self._branch(self.state.seq + 1, last, would)
        return self.state.seq + 1

    def _under_these(self, event: Event, would: list[Action]) -> Event:
        """Return a recorded event under the other settings: its policy, and its reservations."""
        if isinstance(event, ev.StepStarted):
            calls = (action for action in would if isinstance(action, Call) and action.step == event.step)
            return next((_reserving(event, action) for action in calls), event)
        if isinstance(event, ev.RunStarted | ev.RetryBegin | ev.Resumed) and event.policy is not None:
            return msgspec.structs.replace(event, policy=msgspec.structs.replace(event.policy, **self.changes))
        return event

    def _bites(self, old: State, batch: Batch) -> bool:
        """True if an event would differ without a different decision: by rules that `decide` does not see."""
        mine = self.state.policy
        match batch[0].event:
            case ev.StepStarted() as event if event.step in self.state.tracks:
                call = self.answers.calls[event.step, event.attempt]
                return self._in_time(self.state.tracks[event.step].step, event, call, batch[0].at)[0] is not call.events
            case ev.RetryBegin(automatic=False, counted=True):  # a user's, which would have been refused
                return mine.max_retries <= self.state.retries and old.retries < old.policy.max_retries
            case _:
                return any(self._concludes_otherwise(old, batch, record.event) for record in batch)

    def _concludes_otherwise(self, old: State, batch: Batch, event: Event) -> bool:
        """True if a mind's answer would have led to another result."""
        if isinstance(event, ev.Replanned):
            return self.state.policy.replan != old.policy.replan
        if not isinstance(event, ev.Reflected) or self._held(event) is None:
            return False
        events = tuple(record.event for record in batch)
        return choices_in(self._concluded(event, events, batch[0].at)) != choices_in(events[events.index(event) :])

    def _branch(self, seq: int, now: float, actions: list[Action]) -> None:
        """Leave the history: calls under way keep their outcome, and users answer what they were asked."""
        self.now = now
        dead = self.answers.dead_before(seq)  # dead time after this point does not apply
        self._miss_tools()
        self.instead = tuple(told for action in actions[:3] for told in rows_of(action))
        self._counts = self.answers.asked_before(seq)
        self._used = {name: one for name, one in self.answers.calls.items() if one.seq < seq}
        for track in list(self.state.running.values()):
            self._await_call(track, self._used.get((track.id, track.attempt)))
        for one in self.answers.questions_under_way(seq):
            action = Ask(one.key[0], one.key[1] if one.key[1] in self.state.tracks else "")
            self._once(action.question, action.step, self._attempt(action.step))
            self._await_answer(action, one, one.asked_at + dead - one.dead)
        for word in self.answers.words:
            if word.seq >= seq:
                self.left += 1
                said_at = word.at - (word.dead - dead)
                if word.about is None:
                    self._wishes.append(said_at)
                else:
                    self._words.setdefault(word.about, []).append(replace(word, at=said_at))

    # -- On its own ---------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Decide and take the recorded answers, until the run is at rest, waits, or nothing more is known."""
        while self.state.rest is None:
            again = False
            for action in decide(self.state, self.tools, self.now):
                again = self._take_up(action) or again
            if again:
                continue
            self._listen()
            moments = (self._due[0].at if self._due else None, self.state.next_timer())
            due = min((at for at in moments if at is not None), default=None)
            if self._wishes and (due is None or self._wishes[0] < due):
                self._miss(
                    UnknownAnswer("person", round=self.state.round)
                )  # a user acted unprompted; under other settings that is unknown
                return
            if due is None:
                return
            self.now = max(self.now, due)
            while self._due and self._due[0].at <= self.now:
                self._arrive(heapq.heappop(self._due))

    def _take_up(self, action: Action) -> bool:
        """Begin an action; True if the state changed, so that there may be more to decide."""
        match action:
            case Note():
                for event in action.events:
                    self._write(event, self.now)
                return True
            case Call():
                return self._call(action)
            case Show():
                return self._show(action)
            case VerifyEffect():
                self._look(action)
            case Ask():
                if self._once(action.question, action.step, self._attempt(action.step)):
                    given = self._next(question_key(self.state, action.question, action.step))
                    self._await_answer(action, given, self.now)
        return False

    def _arrive(self, due: _Due) -> None:
        """Apply an answer that is due."""
        if due.asked is not None:
            kind, step = due.asked
            self._speaking.discard(due.asked)
            asked = self.state.tracks[step].n in (self.state.gates if kind == "gate" else self.state.doubts)
            self.left -= asked
            due = due if asked else _Due(due.at, due.order, due.n, ())  # the question is obsolete
        for event in due.events:
            if isinstance(event, ev.Reflected):
                for concluded in self._concluded(event, due.events, self.now):
                    self._write(concluded, self.now)
                return
            self._write(event, self.now)

    def _write(self, event: Event, at: float, seq: int | None = None) -> None:
        if isinstance(event, ev.StepStarted):
            self.calls[event.step] += 1
        elif isinstance(event, ev.RetryScheduled):
            self.waited[event.step] += event.delay
        evolve(self.state, event, at, self.state.seq + 1 if seq is None else seq)

    def _next(self, key: Key) -> Given | None:
        n = self._counts.get(key, 0)
        self._counts[key] = n + 1
        return self.answers.nth(key, n)

    def _once(self, question: str, step: str, attempt: int) -> bool:
        key = (question, step, attempt)
        fresh = key not in self._asked
        self._asked.add(key)
        return fresh

    def _attempt(self, step: str) -> int:
        return self.state.tracks[step].attempt if step else self.state.acted_at + self.state.round

    def _miss(self, what: UnknownAnswer) -> None:
        self.unknown[what.what, what.step or what.tool, what.call] = what
        if self.sight is None:
            again = set(automatic_roots(self.state))
            ended = frozenset(track.id for track in self.state.tracks.values() if self._has_ended(track, again))
            spent = _spent(self.state, UNKNOWN, self.now)
            self.sight = _Sight(ended, Counter(self.calls), dict(self.waited), spent)

    def _miss_tools(self) -> None:
        for name in self.missing:
            self._miss(UnknownAnswer("tool", tool=name))

    def _reaches_all(self) -> bool:
        """True if the unknown may affect every step: no tool is known, or it may have stopped the run."""
        policy = self.state.policy
        limits = (policy.max_attempts, policy.max_tokens, policy.max_cost, policy.max_seconds)
        if any(one.what == "tool" for one in self.unknown.values()) or any(limit is not None for limit in limits):
            return True
        statuses = (status_of(self.state, track)[0] for track in self.state.tracks.values())
        failing = sum(status is Status.FAILED or status not in ENDED for status in statuses)
        return 0 < policy.max_consecutive_failures <= failing

    def _later(
        self, at: float, order: int, events: Iterable[Event], attempt: int, asked: tuple[str, str] | None = None
    ) -> None:
        self._n += 1
        mine = tuple(_renumbered(event, attempt) for event in events)
        heapq.heappush(self._due, _Due(max(at, self.now), order, self._n, mine, asked))

    # -- Calls ----------------------------------------------------------------------------------------------------

    def _show(self, action: Show) -> bool:
        """Open a gate: with the call in the history, or with one of unknown arguments."""
        track, call = self.state.tracks[action.step], gated_call(self.state, action.step)
        key = call_key(self.state, track, call.tool, fallback=call.rung is not None)
        before = self.answers.nth(key, self._counts.get(key, 0))
        if before is not None and before.started is None:  # it failed before its gate opened
            return self._call(call)
        given = self._next(gate_key(self.state, track))
        opened = given.events[0] if given is not None else unresolved(self.state, action)
        self._write(_renumbered(opened, track.attempt), self.now)
        return True

    def _reopens(self, track: Track) -> bool:
        """True if the history shows the gate of this very call, and another call was approved."""
        opened = self.answers.nth(gate_key(self.state, track), 0) if track.step.confirm else None
        if opened is None or self.state.agrees(track, getattr(opened.events[0], "digest", "")):
            return False
        self._write(_renumbered(opened.events[0], track.attempt), self.now)
        return True

    def _call(self, action: Call) -> bool:
        track = self.state.tracks[action.step]
        if track.agreed and self._reopens(track):
            return True
        given = self._next(call_key(self.state, track, action.tool, fallback=action.rung is not None))
        if given is not None and given.started is None:  # it failed before its call
            for event in given.events:
                self._write(_renumbered(event, track.attempt), self.now)
            return True
        if given is not None and given.started is not None:
            started = msgspec.structs.replace(given.started, attempt=action.attempt)
        else:
            spec = self.tools.get(action.tool)
            effect = self.state.effect_of(track, spec or ToolSpec(action.tool))
            adjusted = track.heal.args if track.heal is not None else None
            started = ev.StepStarted(track.id, action.attempt, action.tool, effect, adjusted, rung=action.rung)
        self._write(_reserving(started, action), self.now)
        return self._await_call(track, given)

    def _await_call(self, track: Track, given: Given | None) -> bool:
        """Begin a call: its answer is due as recorded. True if the answer is unknown, and others may start."""
        tool = track.call.tool if track.call is not None else track.step.tool
        events: tuple[Event, ...] = ()
        most = 0.0
        if given is not None and track.call is not None:
            events, most = self._in_time(track.step, track.call, given, track.started_at)
        if given is None or not events:
            self._miss(UnknownAnswer("call", track.id, tool, track.calls, self.state.round))
            self._make_room(tool)
            return True
        self._used[track.id, track.attempt] = given
        lasted = given.lasted if events is given.events else most
        self._later(track.started_at + lasted, given.end, events, track.attempt)
        return False

    def _in_time(self, step: Step, call: ev.StepStarted, given: Given, at: float) -> tuple[tuple[Event, ...], float]:
        """Return the answer within the call's timeout under these settings, and that timeout; no answer if unknown."""
        spec = self.tools.get(call.tool)
        own, policy = step.timeout or (spec.timeout if spec is not None else None), self.state.policy
        new = in_time(self.state, own or policy.step_timeout, call.effect, at)
        same = self.before.max_seconds == policy.max_seconds and (
            own or self.before.step_timeout == policy.step_timeout
        )
        if same or not given.events:
            return given.events, new
        answer = given.events[0]
        timed_out = isinstance(answer, ev.StepFailed) and answer.error.code == "TIMEOUT"
        old = answer.error.data.get("seconds") if isinstance(answer, ev.StepFailed) and timed_out else None
        if isinstance(old, int | float):
            if new > old + BARELY:  # its answer with more time is not known
                return (), new
            if new >= old - BARELY:
                return given.events, new
        elif getattr(answer, "elapsed", 0.0) <= new:
            return given.events, new
        words = tell("error.TIMEOUT", seconds=new)
        error = Error("TIMEOUT", category_of("TIMEOUT") or Category.TRANSIENT, words, data={"seconds": new})
        return (ev.StepFailed(step.id, 0, error, new, lost=True),), new

    def _make_room(self, tool: str) -> None:
        """Free the place of a call with an unknown end: it would have ended at some point."""
        policy, spec = self.state.policy, self.tools.get(tool)
        provider = spec.provider if spec is not None else ""
        self.state.policy = msgspec.structs.replace(
            policy,
            concurrency=policy.concurrency + (policy.concurrency > 0),
            tool_concurrency=_wider(policy.tool_concurrency, tool),
            provider_concurrency=_wider(policy.provider_concurrency, provider),
        )

    def _look(self, action: VerifyEffect) -> None:
        if not self._once("verify", action.step, action.attempt):
            return
        track, call = self.state.tracks[action.step], self._used.get((action.step, action.attempt))
        if call is None or call.looked is None:
            self._miss(UnknownAnswer("look", action.step, round=self.state.round))
        else:
            self._later(track.ended_at + call.looked.lasted, call.looked.end, call.looked.events, action.attempt)

    # -- Minds and users -------------------------------------------------------------------------------------------

    def _await_answer(self, action: Ask, given: Given | None, asked_at: float) -> None:
        other_kind = action.question == "replan" and self.before.replan != self.state.policy.replan
        if given is None or given.at is None or other_kind:
            self._miss(UnknownAnswer(action.question, action.step, round=self.state.round))
        else:
            self._later(asked_at + given.lasted, given.end, given.events, self._attempt(action.step))

    def _held(self, said: ev.Reflected) -> Track | None:
        """Return the step that waits for a mind's reflection on its failure, if there is one."""
        track = self.state.current(said.step, said.attempt, Phase.HELD)
        return track if track is not None and track.question == "reflect" else None

    def _concluded(self, said: ev.Reflected, events: tuple[Event, ...], now: float) -> list[Event]:
        """Return a mind's reflection on a failure, and the rung that follows within these budgets."""
        track = self._held(said)
        if track is None or track.error is None:
            return []
        thought = Reflection(
            said.category, said.root_cause, said.recoverable, said.suggestion, said.confidence, said.alternatives,
            said.by, said.rung if said.by != "rules" and said.rung in LADDER[said.category] else None,
        )  # fmt: skip
        case = FailureCase(self.state, self.tools, track, track.error, thought, now, list(said.refused))
        # Of large arguments the history holds only the changes; they were checked whole when recorded.
        if said.partial and case.used < case.retries:
            return list(events[events.index(said) :])
        return choose(case)

    def _listen(self) -> None:
        """Schedule users' recorded answers to the same questions, no earlier than they came."""
        for kind, tracks in (("gate", self.state.gates), ("doubt", self.state.doubts)):
            for track in tracks.values():
                said = self._words.get((kind, track.id))
                gate = track.gate.shown if track.gate is not None else None
                if kind == "gate" and said and said[0].shown not in ("", gate.digest if gate is not None else ""):
                    continue  # another call was shown to them
                if said and not track.question and (kind, track.id) not in self._speaking:
                    word = said.pop(0)
                    self._speaking.add((kind, track.id))
                    self._later(word.at, word.seq, word.events, track.attempt, (kind, track.id))

    # -- Result -------------------------------------------------------------------------------------------------------

    def told(self, end: State, found: list[Batch], branch: int) -> Replay:
        """Return both results, side by side."""
        known = not self.unknown and (not branch or self.state.rest is not None or self.state.waiting)
        asked: Counter[str] = Counter()
        waited: defaultdict[str, float] = defaultdict(float)
        for event in (record.event for batch in found for record in batch):
            if isinstance(event, ev.StepStarted):
                asked[event.step] += 1
            elif isinstance(event, ev.RetryScheduled):
                waited[event.step] += event.delay
        again = set(automatic_roots(self.state)) if not known else set()
        if self.sight is not None and not self._reaches_all():
            self.sight = None
        calls, slept = (self.sight.calls, self.sight.waited) if self.sight is not None else (self.calls, self.waited)
        until = self.now if branch else end.at
        spent = _spent(self.state, str(run_status(self.state)) if known else UNKNOWN, until)
        steps = []
        for step in dict.fromkeys([*end.tracks, *self.state.tracks]):
            one, other = end.tracks.get(step), self.state.tracks.get(step)
            was = Spent(str(status_of(end, one)[0]) if one is not None else "", asked[step], waited[step])
            would = Spent(self._status(other, known, again), calls.get(step, 0), slept.get(step, 0.0))
            steps.append(StepReplayed(step, was, would, _made(one) != _made(other)))
        return Replay(
            self.run, {name: (getattr(end.policy, name), value) for name, value in self.changes.items()}, known, branch,
            self.instead, _spent(end, str(run_status(end)), end.at),
            spent if self.sight is None else self.sight.spent,
            tuple(steps), tuple(self.unknown.values()), self.left, self.drift,
        )  # fmt: skip

    def _status(self, track: Track | None, known: bool, again: set[str]) -> str:
        """Return a step's status as far as known: a step that may be redone is unknown."""
        if track is None:
            return ""
        ended = self._has_ended(track, again) and (self.sight is None or track.id in self.sight.ended)
        return str(status_of(self.state, track)[0]) if known or ended else UNKNOWN

    def _has_ended(self, track: Track, again: set[str]) -> bool:
        return status_of(self.state, track)[0] in ENDED and track.id not in again and not track.dead_open


def _spent(state: State, status: str, at: float) -> Spent:
    return Spent(status, state.calls, state.wait_seconds, state.seconds(at), state.tokens, state.cost)


def _made(track: Track | None) -> str:
    return track.result.made if track is not None and track.result is not None else ""


def _wider(limits: Mapping[str, int], name: str) -> dict[str, int]:
    return {key: limit + 1 if key == name and limit > 0 else limit for key, limit in limits.items()}


def _reserving(event: ev.StepStarted, action: Call) -> ev.StepStarted:
    """Return the intent of a call, with its reservation under these settings; a declared cost stays."""
    cost, tokens = action.reserves.cost or event.reserved_cost, action.reserves.tokens or 0
    return msgspec.structs.replace(event, reserved_cost=cost, reserved_tokens=tokens, unpriced=action.reserves.unknown)


def _renumbered(event: Event, attempt: int) -> Event:
    """Return a recorded event as one of another attempt."""
    fields = type(event).__struct_fields__
    return msgspec.structs.replace(event, attempt=attempt) if "attempt" in fields else event
