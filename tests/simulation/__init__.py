"""Simulation: thousands of lives of a run on virtual time, each from one seed, held against laws and the truth.

    report = simulate(range(1000))          # plans by chance
    report = simulate(range(1000), plan)    # a plan of your own, its tools simulated
    assert not report.broken, report.broken[0]

A seed draws the plan, the tools' answers, durations and effects, what minds say, what people do, when processes die,
stop or lose the run, when clocks jump, and when the store does not answer. The engine is the real one. The same seed
is the same life: a broken law names its seed, and the smallest list of choices that still breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.chance import Dice
from tests.simulation.invariants import LAWS, Broken
from tests.simulation.scenario import Lived, live
from tests.simulation.shrink import shrunk

from rerail.plan.model import Plan
from rerail.plan.model import Plan as AnyPlan

__all__ = ["LAWS", "BrokenLife", "Report", "replay", "simulate"]


@dataclass(frozen=True, slots=True)
class BrokenLife:
    """A life in which a law did not hold."""

    seed: int
    law: str
    about: str
    choices: list[int]  # the smallest that were found

    def __str__(self) -> str:
        return f"seed {self.seed} breaks {self.law!r} ({LAWS.get(self.law, '')}): {self.about}\n  {self.choices}"


@dataclass(slots=True)
class Report:
    """What came of all lives."""

    lives: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    facts: Counter[str] = field(default_factory=Counter)
    broken: list[BrokenLife] = field(default_factory=list)

    def add(self, lived: Lived) -> None:
        """One more."""
        self.lives += 1
        self.ends[lived.status] += 1
        self.facts.update(lived.facts)


def simulate(
    seeds: Iterable[int],
    plan: Any = None,
    settings: Mapping[str, Any] | None = None,
    *,
    shrink: bool = True,
    stop_after: int = 1,
    seen: Callable[[Report], None] | None = None,
) -> Report:
    """Live a life for each seed; ends early once so many are broken. ``seen`` is told after each."""
    report = Report()
    known = _plan(plan)
    for seed in seeds:
        dice = Dice(seed)
        try:
            report.add(live(dice, seed, known, settings))
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is told
            report.lives += 1
            report.broken.append(_told(seed, dice.drawn, problem, known, settings, shrink=shrink))
            if len(report.broken) >= stop_after:
                break
        if seen is not None:
            seen(report)
    return report


def replay(choices: Iterable[int], plan: Any = None, settings: Mapping[str, Any] | None = None) -> Lived:
    """Live the life of these choices; raises what it breaks."""
    return live(Dice(given=list(choices)), 0, _plan(plan), settings)


def _plan(plan: Any) -> Plan | None:
    return None if plan is None else AnyPlan.load(plan)


def _law(problem: Exception) -> str:
    return problem.law if isinstance(problem, Broken) else type(problem).__name__


def _told(
    seed: int,
    drawn: list[int],
    problem: Exception,
    plan: Plan | None,
    settings: Mapping[str, Any] | None,
    *,
    shrink: bool,
) -> BrokenLife:
    law = _law(problem)

    def fails(choices: list[int]) -> bool:
        try:
            live(Dice(given=choices), seed, plan, settings)
        except Exception as other:  # noqa: BLE001 - whatever it is, it is compared
            return _law(other) == law
        return False

    return BrokenLife(seed, law, str(problem)[:500], shrunk(drawn, fails) if shrink else drawn)
