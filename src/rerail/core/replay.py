"""A recorded run under other settings: what would have been different, as far as its history can tell.

Rules of this file:
- Nothing is called and nothing is guessed. As long as `decide` says the same under both settings, what happened would
  have happened; from the first difference on the run goes its own way, on the answers that the history holds.
- An answer that the history does not hold is unknown, and so is what depends on it; what does not, goes on.
- Without the definition of a tool nobody knows what would have been decided about it: from where the run goes its own
  way all that had not ended is unknown. The same holds where something unknown may use up what the whole run has.
- Time is what the history says: a call lasts as long as it did, a wait as long as the other settings say. The time that
  the run lay dead counts in neither.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.afford import in_time
from rerail.core.answers import (
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
    is_decided,
    last_heard,
    moment,
    question_key,
)
from rerail.core.codes import Category, category_of
from rerail.core.decide import (
    Action,
    Ask,
    Call,
    Look,
    Note,
    Show,
    automatic_roots,
    decide,
    gated_call,
    unresolved,
)
from rerail.core.events import Error, Event, Record
from rerail.core.fold import evolve
from rerail.core.plan import Step
from rerail.core.policy import LADDER, Policy
from rerail.core.recover import Case, Reflection, choose
from rerail.core.state import State
from rerail.core.tools import Tools, ToolSpec
from rerail.core.track import Phase, Status, Track
from rerail.core.verdict import run_status, status_of
from rerail.i18n import tell

ENDED = frozenset({Status.SUCCEEDED, Status.DEGRADED, Status.FAILED, Status.SKIPPED, Status.CANCELLED})
UNKNOWN = "unknown"
BARELY = 0.01  # seconds by which the same time limit may differ


# -- What comes of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Something that would have been asked of the world, and that the history holds no answer to."""

    what: str  # call, look, person, tool (its definition), or the question to a mind: reflect, repair, replan, judge
    step: str = ""
    tool: str = ""
    call: int = 0  # the how-manieth of its step in this round
    round: int = 0  # 0 is the first

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        names = {"what": self.what, "step": self.step or None, "tool": self.tool or None}
        return {**names, "call": self.call or None, "round": self.round}


@dataclass(slots=True)
class Spent:
    """What a run came to, or one step of it, and what that took."""

    status: str
    calls: int = 0
    waited: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "status": self.status, "calls": self.calls, "waited": round(self.waited, 6),
            "seconds": round(self.seconds, 6), "tokens": self.tokens, "cost": round(self.cost, 9),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepReplayed:
    """One step, as it was and as it would have been."""

    step: str
    recorded: Spent
    replayed: Spent
    other_output: bool = False  # both have one, and not the same

    @property
    def changed(self) -> bool:
        """Whether anything is different."""
        return self.other_output or self.recorded != self.replayed

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        plain = {name: _for_step(spent) for name, spent in (("recorded", self.recorded), ("replayed", self.replayed))}
        return {"step": self.step, "changed": self.changed, **plain, "other_output": self.other_output}


def _for_step(spent: Spent) -> dict[str, Any]:
    return {key: value for key, value in spent.to_dict().items() if key in ("status", "calls", "waited")}


@dataclass(frozen=True, slots=True)
class Replay:
    """A run as it was recorded, and as it would have been under other settings."""

    run: str
    settings: Mapping[str, tuple[Any, Any]]  # what was changed: as recorded, as replayed
    known: bool  # whether the history holds all that is needed to say how it ends
    branch: int  # the number of the first event that would have been another; 0: none
    instead: tuple[dict[str, Any], ...]  # what is decided there under the other settings
    recorded: Spent
    replayed: Spent
    steps: tuple[StepReplayed, ...]
    unknown: tuple[Unanswered, ...] = ()
    not_replayed: int = 0  # things that people did after the replay had ended
    drift: int = 0  # the first event that today's tools or version would not have decided as it was; 0: none

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "run_id": self.run,
            "settings": {key: {"recorded": old, "replayed": new} for key, (old, new) in self.settings.items()},
            "known": self.known, "same": not self.branch, "branch": self.branch or None, "instead": list(self.instead),
            "recorded": self.recorded.to_dict(), "replayed": self.replayed.to_dict(),
            "steps": [row.to_dict() for row in self.steps], "unknown": [one.to_dict() for one in self.unknown],
            "not_replayed": self.not_replayed, "drift": self.drift or None,
        }  # fmt: skip


# -- Following the history until the course is another one ------------------------------------------------------------


def replay(
    run: str,
    records: Iterable[Record],
    tools: Tools,
    changes: Mapping[str, Any],
    *,
    missing: Iterable[str] = (),
    branch_at: int = 0,
) -> Replay:
    """Decide a recorded run again with some of its policy changed.

    ``branch_at`` lets it go its own way from an event on even if nothing is different: where all answers are held that
    leads to the same end, which is a law. ``missing`` are the tools of which nothing is known but their names.
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
    """An answer that is on its way; those that come at once come in the order of the history."""

    at: float
    order: int
    n: int
    events: tuple[Event, ...] = field(compare=False)
    asked: tuple[str, str] | None = field(
        default=None, compare=False
    )  # the gate or doubt that a person's word is about


@dataclass(frozen=True, slots=True)
class _Sight:
    """What was sure when it was lost: which steps had ended, and what all had taken."""

    ended: frozenset[str]
    calls: Mapping[str, int]
    waited: Mapping[str, float]
    spent: Spent


@dataclass(slots=True)
class _Way:
    """The way of a run under other settings: along the history first, then its own."""

    run: str
    answers: Answers
    tools: Tools
    changes: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    state: State = field(init=False)
    before: Policy = field(default_factory=Policy)  # what was recorded
    now: float = 0.0
    instead: tuple[dict[str, Any], ...] = ()
    drift: int = 0
    left: int = 0  # things that people did, and that it has not come to
    unknown: dict[tuple[str, str, int], Unanswered] = field(default_factory=dict)
    sight: _Sight | None = None  # what was sure before anything was unknown
    calls: Counter[str] = field(default_factory=Counter)
    waited: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _used: dict[tuple[str, int], Given] = field(default_factory=dict)  # the answer of each call, by step and attempt
    _counts: dict[Key, int] = field(default_factory=dict)
    _due: list[_Due] = field(default_factory=list)
    _asked: set[tuple[str, str, int]] = field(default_factory=set)
    _words: dict[tuple[str, str], list[Word]] = field(default_factory=dict)
    _speaking: set[tuple[str, str]] = field(default_factory=set)  # gates and doubts whose answer is on its way
    _wishes: list[float] = field(default_factory=list)  # when people stepped in unasked
    _n: int = 0

    def __post_init__(self) -> None:
        self.state = State(self.run)

    def follow(self, found: list[Batch], branch_at: int, heard: Mapping[int, float]) -> int:
        """Go along with the history while both settings lead to the same; the first event that would be another."""
        old = State(self.run)
        last = 0.0
        for batch in found:
            seq, now = batch[0].seq, moment(batch, last)
            was = decide(old, self.tools, now) if now is not None else []
            would = decide(self.state, self.tools, now) if now is not None else []
            if seq == branch_at or _shape(was) != _shape(would) or self._bites(old, batch):
                self._branch(seq, last if now is None else now, would)
                return seq
            if now is not None and not self.drift and not _foresaw(was, batch[0].event):
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
        if _shape(decide(old, self.tools, last)) == _shape(would):
            return 0
        self._branch(self.state.seq + 1, last, would)
        return self.state.seq + 1

    def _under_these(self, event: Event, would: list[Action]) -> Event:
        """A recorded event, with the other settings where it holds some, and with what a call reserves under them."""
        if isinstance(event, ev.StepStarted):
            calls = (action for action in would if isinstance(action, Call) and action.step == event.step)
            return next((_reserving(event, action) for action in calls), event)
        if isinstance(event, ev.RunStarted | ev.RetryBegin | ev.Resumed) and event.policy is not None:
            return msgspec.structs.replace(event, policy=msgspec.structs.replace(event.policy, **self.changes))
        return event

    def _bites(self, old: State, batch: Batch) -> bool:
        """Whether an event would be another although nothing is decided otherwise: what `decide` does not see."""
        mine = self.state.policy
        match batch[0].event:
            case ev.StepStarted() as event if event.step in self.state.tracks:
                call = self.answers.calls[event.step, event.attempt]
                return self._in_time(self.state.tracks[event.step].step, event, call, batch[0].at)[0] is not call.events
            case ev.RetryBegin(automatic=False, counted=True):  # a person's, which would have been refused
                return mine.max_retries <= self.state.retries and old.retries < old.policy.max_retries
            case _:
                return any(self._concludes_otherwise(old, batch, record.event) for record in batch)

    def _concludes_otherwise(self, old: State, batch: Batch, event: Event) -> bool:
        """Whether what a mind said would have come to something else."""
        if isinstance(event, ev.Replanned):
            return self.state.policy.replan != old.policy.replan
        if not isinstance(event, ev.Reflected) or self._held(event) is None:
            return False
        events = tuple(record.event for record in batch)
        return _acts(self._concluded(event, events, batch[0].at)) != _acts(events[events.index(event) :])

    def _branch(self, seq: int, now: float, actions: list[Action]) -> None:
        """Leave the history: what is under way comes to what it came to, and people are heard where they were asked."""
        self.now = now
        dead = self.answers.dead_before(seq)  # what it lay dead after that, it would not have
        self._miss_tools()
        self.instead = tuple(told for action in actions[:3] for told in _told(action))
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
        """Decide and take the recorded answers, until it is at rest, waits, or nothing more is known."""
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
                    Unanswered("person", round=self.state.round)
                )  # somebody stepped in: nobody knows whether they would have
                return
            if due is None:
                return
            self.now = max(self.now, due)
            while self._due and self._due[0].at <= self.now:
                self._arrive(heapq.heappop(self._due))

    def _take_up(self, action: Action) -> bool:
        """Begin an action; True if the state changed so that there may be more to decide."""
        match action:
            case Note():
                for event in action.events:
                    self._write(event, self.now)
                return True
            case Call():
                return self._call(action)
            case Show():
                return self._show(action)
            case Look():
                self._look(action)
            case Ask():
                if self._once(action.question, action.step, self._attempt(action.step)):
                    given = self._next(question_key(self.state, action.question, action.step))
                    self._await_answer(action, given, self.now)
        return False

    def _arrive(self, due: _Due) -> None:
        """An answer is there."""
        if due.asked is not None:
            kind, step = due.asked
            self._speaking.discard(due.asked)
            asked = self.state.tracks[step].n in (self.state.gates if kind == "gate" else self.state.doubts)
            self.left -= asked
            due = due if asked else _Due(due.at, due.order, due.n, ())  # nobody asks any more
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

    def _miss(self, what: Unanswered) -> None:
        self.unknown[what.what, what.step or what.tool, what.call] = what
        if self.sight is None:
            again = set(automatic_roots(self.state))
            ended = frozenset(track.id for track in self.state.tracks.values() if self._has_ended(track, again))
            spent = _spent(self.state, UNKNOWN, self.now)
            self.sight = _Sight(ended, Counter(self.calls), dict(self.waited), spent)

    def _miss_tools(self) -> None:
        for name in self.missing:
            self._miss(Unanswered("tool", tool=name))

    def _reaches_all(self) -> bool:
        """Whether what is unknown may concern every step: no tool is known, or it may have stopped the run."""
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
        """A gate opens: with the call that the history holds, or one whose arguments nobody knows."""
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
        """Whether the history shows the gate of this very call, and a person agreed to another one."""
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
            effect = self.state.effect_of(track, action.tool, (spec or ToolSpec(action.tool)).effect)
            adjusted = track.heal.args if track.heal is not None else None
            started = ev.StepStarted(track.id, action.attempt, action.tool, effect, adjusted, rung=action.rung)
        self._write(_reserving(started, action), self.now)
        return self._await_call(track, given)

    def _await_call(self, track: Track, given: Given | None) -> bool:
        """A call is under way: its answer comes when it came. True if it is unknown, and others may start."""
        tool = track.call.tool if track.call is not None else track.step.tool
        events: tuple[Event, ...] = ()
        most = 0.0
        if given is not None and track.call is not None:
            events, most = self._in_time(track.step, track.call, given, track.started_at)
        if given is None or not events:
            self._miss(Unanswered("call", track.id, tool, track.calls, self.state.round))
            self._make_room(tool)
            return True
        self._used[track.id, track.attempt] = given
        lasted = given.lasted if events is given.events else most
        self._later(track.started_at + lasted, given.end, events, track.attempt)
        return False

    def _in_time(self, step: Step, call: ev.StepStarted, given: Given, at: float) -> tuple[tuple[Event, ...], float]:
        """The answer within the call's time under these settings, and that time; no answer if it is not known."""
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
            if new > old + BARELY:  # what it would have answered with more time is not known
                return (), new
            if new >= old - BARELY:
                return given.events, new
        elif getattr(answer, "elapsed", 0.0) <= new:
            return given.events, new
        words = tell("error.TIMEOUT", seconds=new)
        error = Error("TIMEOUT", category_of("TIMEOUT") or Category.TRANSIENT, words, data={"seconds": new})
        return (ev.StepFailed(step.id, 0, error, new, lost=True),), new

    def _make_room(self, tool: str) -> None:
        """A call whose end is unknown holds up nobody else: it would have ended some time."""
        policy, spec = self.state.policy, self.tools.get(tool)
        provider = spec.provider if spec is not None else ""
        self.state.policy = msgspec.structs.replace(
            policy,
            concurrency=policy.concurrency + (policy.concurrency > 0),
            tool_concurrency=_wider(policy.tool_concurrency, tool),
            provider_concurrency=_wider(policy.provider_concurrency, provider),
        )

    def _look(self, action: Look) -> None:
        if not self._once("verify", action.step, action.attempt):
            return
        track, call = self.state.tracks[action.step], self._used.get((action.step, action.attempt))
        if call is None or call.looked is None:
            self._miss(Unanswered("look", action.step, round=self.state.round))
        else:
            self._later(track.ended_at + call.looked.lasted, call.looked.end, call.looked.events, action.attempt)

    # -- Minds and people -----------------------------------------------------------------------------------------

    def _await_answer(self, action: Ask, given: Given | None, asked_at: float) -> None:
        other_kind = action.question == "replan" and self.before.replan != self.state.policy.replan
        if given is None or given.at is None or other_kind:
            self._miss(Unanswered(action.question, action.step, round=self.state.round))
        else:
            self._later(asked_at + given.lasted, given.end, given.events, self._attempt(action.step))

    def _held(self, said: ev.Reflected) -> Track | None:
        """The step that waits for what a mind makes of its failure, if it does."""
        track = self.state.current(said.step, said.attempt, Phase.HELD)
        return track if track is not None and track.question == "reflect" else None

    def _concluded(self, said: ev.Reflected, events: tuple[Event, ...], now: float) -> list[Event]:
        """What a mind made of a failure, and the rung that follows from it within these budgets."""
        track = self._held(said)
        if track is None or track.error is None:
            return []
        thought = Reflection(
            said.category, said.root_cause, said.recoverable, said.suggestion, said.confidence, said.alternatives,
            said.by, said.rung if said.by != "rules" and said.rung in LADDER[said.category] else None,
        )  # fmt: skip
        case = Case(self.state, self.tools, track, track.error, thought, now, list(said.refused))
        # Of large arguments the history holds only what changed: they were looked at whole when they were taken.
        if said.partial and case.used < case.retries:
            return list(events[events.index(said) :])
        return choose(case)

    def _listen(self) -> None:
        """People who were asked the same say the same, and not before they did."""
        for kind, tracks in (("gate", self.state.gates), ("doubt", self.state.doubts)):
            for track in tracks.values():
                said = self._words.get((kind, track.id))
                gate = track.gate.shown if track.gate is not None else None
                if kind == "gate" and said and said[0].shown not in ("", gate.digest if gate is not None else ""):
                    continue  # they were shown another call
                if said and not track.question and (kind, track.id) not in self._speaking:
                    word = said.pop(0)
                    self._speaking.add((kind, track.id))
                    self._later(word.at, word.seq, word.events, track.attempt, (kind, track.id))

    # -- What came of it ------------------------------------------------------------------------------------------

    def told(self, end: State, found: list[Batch], branch: int) -> Replay:
        """Both, side by side."""
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
        """A step's status, as far as it is known: what may yet be done again is not."""
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
    """The intent of a call, with what it reserves under these settings; a declared cost stays."""
    cost, tokens = action.reserves.cost or event.reserved_cost, action.reserves.tokens or 0
    return msgspec.structs.replace(event, reserved_cost=cost, reserved_tokens=tokens, unpriced=action.reserves.unknown)


def _renumbered(event: Event, attempt: int) -> Event:
    """A recorded event, as one of another attempt."""
    fields = type(event).__struct_fields__
    return msgspec.structs.replace(event, attempt=attempt) if "attempt" in fields else event


def _shape(actions: list[Action]) -> list[Any]:
    """What actions come to: not how much of a budget is left after them."""
    found: list[Any] = []
    for action in actions:
        if isinstance(action, Note):
            found += [
                msgspec.structs.replace(event, of=0, retries_left=0) if isinstance(event, ev.RetryScheduled) else event
                for event in action.events
            ]
        else:
            found.append(_same(action))
    return found


def _same(action: Call | Show | Look | Ask) -> Any:
    """What makes two actions the same: not when a question is asked, nor what a call reserves."""
    match action:
        case Call():
            return (action.step, action.attempt, action.tool, action.rung)
        case Ask():
            return (action.question, action.step)
        case _:
            return action


def _acts(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """What was chosen about a failure, without the words for it."""
    return [(type(event), getattr(event, "rung", None), getattr(event, "delay", 0.0)) for event in events]


def _foresaw(actions: list[Action], event: Event) -> bool:
    """Whether actions are what an event that the engine decided says."""
    if not is_decided(event):
        return True
    return any(_says(action, event) for action in actions)


def _says(action: Action, event: Event) -> bool:
    step, rung = getattr(event, "step", ""), getattr(event, "rung", None)
    match action:
        case Note():
            same = (one for one in action.events if type(one) is type(event) and getattr(one, "step", "") == step)
            return any(getattr(one, "rung", None) == rung for one in same)
        case Call():
            return action.step == step
        case _:
            return True


def _told(action: Action) -> list[dict[str, Any]]:
    """An action as plain data."""
    match action:
        case Note():
            kept = ("step", "rung", "delay", "code", "reason", "status")
            return [
                {"does": str(type(event).__struct_config__.tag)}
                | {name: _plain(getattr(event, name)) for name in kept if getattr(event, name, None)}
                for event in action.events
            ]
        case Call():
            return [{"does": "call", "step": action.step, "tool": action.tool}]
        case Show():
            return [{"does": "show", "step": action.step}]
        case Look():
            return [{"does": "look", "step": action.step}]
        case Ask():
            return [{"does": "ask", "question": action.question, "step": action.step or None}]


def _plain(value: Any) -> Any:
    return value if isinstance(value, float) else str(value)
