"""Answers that are cut off: a tool has done its work, and an exception takes the place of what it answered.

Rules of this file:
- No process dies. Each call of the undisturbed run is cut off once with each kind of exception.
- What is judged is the step whose answer was cut off; the words are those of `Came`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rerail.core import events as ev
from rerail.core.plan import Effect
from rerail.core.track import Status
from rerail.testing.crashes.judging import Evidence, doubted
from rerail.testing.crashes.ledger import Call, Cut

KINDS: Final = ("exception", "reset")  # a RuntimeError of the tool; a connection that breaks


class Came(StrEnum):
    """What a run made of an answer that was cut off."""

    SAFE = "safe"  # the effect was found, or the call may be repeated and was
    DOUBLED = "doubled"  # a `once` tool was called again after its effect
    WRONG = "wrong"  # the run, whatever it says of itself, neither counts the effect nor names a doubt
    DOUBT = "doubt"  # a person was asked


@dataclass(frozen=True, slots=True)
class CutTrial:
    """One answer that was cut off, and what came of it."""

    call: int
    kind: str
    step: str = ""  # "" if the run went otherwise and did not come to this call
    tool: str = ""
    came: Came = Came.SAFE
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: str(getattr(self, name)) for name in self.__slots__} | {"call": self.call}


def judge_cut(call: int, kind: str, seen: Evidence) -> CutTrial:
    """Hold a run against what its tool had done when its answer was cut off."""
    cut = next((line for line in seen.lines if isinstance(line, Cut)), None)
    if cut is None:
        return CutTrial(call, kind, problem=seen.problem)
    return CutTrial(call, kind, cut.step, cut.tool, _came(cut, seen), seen.problem)


def _came(cut: Cut, seen: Evidence) -> Came:
    later = seen.lines[seen.lines.index(cut) + 1 :]
    again = [line for line in later if isinstance(line, Call) and (line.run, line.step) == (cut.run, cut.step)]
    once = _once(cut, seen)
    if once and again:
        return Came.DOUBLED
    result = next((one for one in seen.results() if one.run_id == cut.run), None)
    if result is None or cut.step in {*result.in_doubt, *doubted(seen.records(cut.run))}:
        return Came.DOUBT
    ended = result.steps[cut.step].status if cut.step in result.steps else ""
    stood_in = any(isinstance(r.event, ev.Recovered) and r.event.step == cut.step for r in seen.records(cut.run))
    counted = ended == Status.SUCCEEDED or (ended == Status.DEGRADED and not stood_in)
    return Came.WRONG if once and not counted else Came.SAFE


def _once(cut: Cut, seen: Evidence) -> bool:
    """Whether the call was one that must not happen twice, by its own record."""
    events = (record.event for record in seen.records(cut.run)) if cut.run in seen.histories else ()
    return any(
        isinstance(event, ev.StepStarted)
        and (event.step, event.attempt, event.effect) == (cut.step, cut.attempt, Effect.ONCE)
        for event in events
    )


def tools_that(came: Came, trials: Sequence[CutTrial]) -> list[str]:
    """The tools of which one answer or more came to this."""
    return list(dict.fromkeys(trial.tool for trial in trials if trial.tool and trial.came is came))
