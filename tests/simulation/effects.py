"""Laws of effects that must not happen twice: read off the history alone, and off what really happened.

Rules of this file:
- Definitions are naive: nothing of the fold, of its indexes or of the outcome table is used.
- Each function returns what breaks its law; an empty list is a law that holds.
- A clock that was set forward makes a wait shorter than it was: laws of time are not checked in such a life.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rerail.kernel import events as ev
from rerail.kernel.decide import LOOK_KEPT
from rerail.kernel.policy import Rung
from rerail.plan.step import Effect

Breach = tuple[Any, ...]
ONCE = Effect.ONCE
NEAR = 0.01  # seconds that clocks, roundings and the order of events at one moment are apart


@dataclass(slots=True)
class Watched:
    """What is known of one step's effect, by the events alone."""

    lost: dict[int, float] = field(default_factory=dict)  # attempts whose effect is not known → when they are over
    acting: bool = False  # one of them may still act, whatever is found absent
    partial: bool = False  # a look found a part of the effect
    doubt: bool = False  # the run went on without an answer, or waits for one
    word: bool = False  # a person wants the same call again
    own: Any = None  # the arguments that the plan gives the step by now
    call: ev.StepStarted | None = None  # the latest
    made: Any = None  # what it called
    began: float = 0.0  # when its key was first used
    running: bool = False
    succeeded: int = 0  # the latest attempt that did: what it had done counts as there before

    def settle(self) -> None:
        """Nothing is open any more."""
        self.lost.clear()
        self.acting = self.partial = self.doubt = self.word = False


def watched(records: list[ev.Record]) -> Iterator[tuple[ev.Record, Watched]]:
    """Each event of a step with what was known before it; what it tells is added afterwards."""
    steps: dict[str, Watched] = {}
    for record in records:
        event = record.event
        step = getattr(event, "step", "")
        known = steps.setdefault(step, Watched())
        if step:
            yield record, known
        if isinstance(event, ev.StepStarted):
            before = known.call
            if known.made != _called(known, event) or (before is not None and before.attempt == known.succeeded):
                known.began = record.at
            known.call, known.made, known.running, known.word = event, _called(known, event), True, False
        elif isinstance(event, ev.StepFailed) and event.called:
            known.running = False
            _failed(known, event, record.at)
        elif isinstance(event, ev.StepVerified):
            _verified(known, event, record.at)
        elif isinstance(event, ev.StepSucceeded):
            known.running, known.succeeded = False, event.attempt
            known.settle()
        elif isinstance(event, ev.Reflected | ev.StepSkipped) and known.lost:
            chosen = event.rung if isinstance(event, ev.Reflected) else Rung.SKIP
            known.doubt = known.doubt or chosen is not Rung.RETRY
        elif isinstance(event, ev.Waiting):
            for on in event.on:
                open_ = steps.get(on.get("step", ""))
                if open_ is not None and open_.lost and on.get("for") != "confirm":
                    open_.doubt = True
        elif isinstance(event, ev.Acted) and event.action == "resolve":
            if event.outcome == "succeeded" and known.call is not None:
                known.succeeded = known.call.attempt
            known.settle() if event.outcome != "rerun" else _wanted(known)
        course = getattr(event, "course", None)
        for anew in getattr(course, "fresh", ()):
            steps[anew] = Watched(own=steps[anew].own if anew in steps else None)
        for defined in event.plan.steps if isinstance(event, ev.PlanAccepted) else getattr(course, "steps", ()):
            steps.setdefault(defined.id, Watched()).own = dict(defined.args)


def _failed(known: Watched, event: ev.StepFailed, at: float) -> None:
    once = known.call is not None and known.call.effect is ONCE
    if once and event.lost:
        known.lost[event.attempt] = max(at, event.until)
        known.acting = known.acting or event.acting
        known.partial = known.partial or event.error.data.get("text") == "VERIFY_PARTIAL"


def _verified(known: Watched, event: ev.StepVerified, at: float) -> None:
    """A look that nothing was waited for, because the key covers the call, settles no absence."""
    covered = bool(known.lost) and known.call is not None and _in_time(known, known.call, at)
    if event.effect == "there" or (event.effect == "absent" and not known.acting and not covered):
        known.succeeded = event.attempt if event.effect == "there" else known.succeeded
        known.settle()
    elif event.effect == "partial" and known.call is not None and known.call.effect is ONCE:
        known.partial = True


def _wanted(known: Watched) -> None:
    known.word, known.doubt, known.partial = True, False, False


def _called(known: Watched, call: ev.StepStarted) -> Any:
    """Tool and arguments of a call, as they are written."""
    return call.tool, call.args_blob or (known.own if call.args is None else call.args) or {}


def _in_time(known: Watched, call: ev.StepStarted, at: float) -> bool:
    """Whether a call repeats a lost one under its key while the service knows it (E2)."""
    before = known.call
    same = before is call or known.made == _called(known, call)
    return same and before is not None and 0 <= at - known.began < before.idempotent_for


def repeated_unsettled(records: list[ev.Record]) -> list[Breach]:
    """`once` calls after a lost one that nothing settled: no absence, no key, no word of a person (X4, E2)."""
    bad: list[Breach] = []
    for record, known in watched(records):
        call = record.event
        if not isinstance(call, ev.StepStarted) or call.effect is not ONCE or known.word:
            continue
        if (known.lost or known.running) and not _in_time(known, call, record.at):
            bad.append((call.step, call.attempt, dict(known.lost)))
    return bad


def repeated_unlooked(records: list[ev.Record]) -> list[Breach]:
    """`once` calls that can be looked at, made before under the same tool and arguments, without a look right before.

    Calls with other arguments, another tool or a fallback may lie between the two, and rounds (V8). A success ends it,
    a new start, a new definition, and a person's word.
    """
    made: dict[str, set[str]] = {}  # step → its calls so far
    latest: dict[str, str] = {}  # step → its latest call, until that was looked for: the first look is about it
    looks: dict[str, tuple[str, float]] = {}  # step → the latest look: its call, and its time; "": the call to come
    bad: list[Breach] = []
    starts = {
        record.seq: (repr(_called(known, record.event)), known.word)
        for record, known in watched(records)
        if isinstance(record.event, ev.StepStarted)
    }
    for record in records:
        event, step = record.event, getattr(record.event, "step", "")
        if isinstance(event, ev.StepStarted):
            (name, word), mine = starts[record.seq], made.setdefault(step, set())
            if event.effect is ONCE and event.verifiable:
                about, at = looks.get(step, ("", -math.inf))
                fresh = about in ("", name) and record.at - at <= LOOK_KEPT + NEAR
                if name in mine and not fresh and not word:
                    bad.append((step, event.attempt, name))
                mine.add(name)
            looks.pop(step, None)
            latest[step] = (
                name if event.verifiable else ""
            )  # a call that cannot be looked for is not what a look is about
        elif isinstance(event, ev.StepVerified) or (isinstance(event, ev.StepFailed) and event.looks):
            looks[step] = (latest.pop(step, ""), record.at)
        elif isinstance(event, ev.StepSucceeded):
            made.pop(step, None)
        course = getattr(event, "course", None)
        for anew in (*getattr(course, "fresh", ()), *(one.id for one in getattr(course, "steps", ()))):
            made.pop(anew, None)
    return bad


def called_in_doubt(records: list[ev.Record]) -> list[Breach]:
    """Calls of a step whose doubt is open, with whatever tool, key or arguments (E3)."""
    starts = ((record.event, known) for record, known in watched(records) if isinstance(record.event, ev.StepStarted))
    return [(call.step, call.attempt) for call, known in starts if known.doubt and not known.word]


def repeated_partial(records: list[ev.Record]) -> list[Breach]:
    """`once` calls after a look that found a part of the effect, without a person's word (V8)."""
    starts = ((record.event, known) for record, known in watched(records) if isinstance(record.event, ev.StepStarted))
    return [
        (call.step, call.attempt) for call, known in starts if call.effect is ONCE and known.partial and not known.word
    ]


def believed_early(records: list[ev.Record], world: Any) -> list[Breach]:
    """Absences that were believed before `settle` had passed since the lost call was over (V8)."""
    bad: list[Breach] = []
    for record, known in watched(records):
        event = record.event
        if not isinstance(event, ev.StepVerified) or event.effect != "absent" or known.call is None or not known.lost:
            continue
        if _in_time(known, known.call, record.at) or known.acting:
            continue  # the key covers it, or nothing follows from it
        due = max(known.lost.values()) + world.nature(known.call.tool).patience
        if record.at < due - NEAR:
            bad.append((event.step, event.attempt, record.at, due))
    return bad


def absent_wrongly(records: list[ev.Record], world: Any, times: list[float]) -> list[Breach]:
    """Absences of `once` effects that were believed although a call of the same key had its effect by then (V8)."""
    bad: list[Breach] = []
    keys = {(call.step, call.attempt): call.key for call in world.truth.calls}
    for record, known in watched(records):
        event = record.event
        denied = (isinstance(event, ev.StepVerified) and event.effect == "absent") or (
            isinstance(event, ev.StepFailed) and event.looks and not event.lost
        )
        if not denied or known.call is None or known.call.effect is not ONCE:
            continue
        covered = known.lost and (_in_time(known, known.call, record.at) or known.acting)
        if covered and isinstance(event, ev.StepVerified):
            continue  # nothing was waited for, and nothing follows from it
        key = keys.get((known.call.step, known.call.attempt))
        by = times[record.seq - 1] - NEAR
        same = (call for call in world.truth.calls if call.key == key and call.attempt > known.succeeded)
        done = [call for call in same if call.effect and call.effect_at <= by]
        if key is not None and done:
            bad.append((known.call.step, known.call.attempt, done[0].attempt))
    return bad


def made_meanwhile(records: list[ev.Record], world: Any, times: list[float], died: dict[int, float]) -> list[Breach]:
    """`once` calls that began while an earlier one of their step was at work in a thread or on a loop (V8).

    Of a request that was sent nothing can be seen; a fenced call of another process cannot act any more.
    """
    starts = {(e.step, e.attempt) for r in records if isinstance(e := r.event, ev.StepStarted) and e.effect is ONCE}
    calls = [call for call in world.truth.calls if (call.step, call.attempt) in starts]
    words = [(times[r.seq - 1], steps) for r in records if (steps := _asked_for(r.event)) is not None]
    bad: list[Breach] = []
    for number, call in enumerate(calls):
        for before in calls[:number]:
            if before.step != call.step or before.ended <= call.began:
                continue
            nature = world.nature(before.tool)
            gone = nature.fenced or died.get(before.process, math.inf) <= call.began
            word = any(before.began <= at <= call.began and (call.step in ids or not ids) for at, ids in words)
            if nature.runs == "request" or (before.process != call.process and gone) or word:
                continue
            if not (before.key == call.key and nature.idempotent_for):
                bad.append((call.step, before.attempt, call.attempt))
    return bad


def _asked_for(event: ev.Event) -> tuple[str, ...] | None:
    """The steps that a person's word is about; none named: any."""
    if isinstance(event, ev.Acted):
        return (event.step, *event.course.touched)
    return () if isinstance(event, ev.RetryBegin) and not event.automatic else None


def acted_unowned(truth: Any, world: Any) -> list[Breach]:
    """Effects of fenced tools that a replaced owner still had (E11)."""
    return [(c.step, c.attempt, c.fence) for c in truth.calls if c.effect and c.late and world.nature(c.tool).fenced]
