"""What goes wrong, where, and how often: seeded, and the same for every contender."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

# Kinds of faults. What each means for whoever calls is in `world/server.py`.
TRANSIENT = ("connection", "http_503", "http_429")
BODIES = ("body_transient", "body_permanent")
SILENT = ("silent_noop",)
LOST = ("lost_answer", "slow_answer")
KILLS = ("kill_before", "kill_during", "kill_after")
PLAN = ("wrong_argument", "renamed_tool", "missing_prerequisite")
PERMANENT = ("permanent",)
KINDS = (*TRANSIENT, *PERMANENT, *BODIES, *SILENT, *LOST, *PLAN, *KILLS)
SOLVABLE = frozenset(KINDS) - {"permanent", "body_permanent", "missing_prerequisite"}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong at one step."""

    step: str
    kind: str
    times: int = 1  # calls that it spoils

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """One gold plan with its faults."""

    id: str
    task: str
    group: str  # the row of the tables that it counts for
    faults: tuple[Fault, ...] = field(default=())


def cases(tasks: list[dict[str, Any]], effects: dict[str, str], seed: int, per_kind: int) -> list[Case]:
    """The cases of a run: so many of each kind, half of them at steps that change the world where there are any."""
    chance = random.Random(seed)
    found = [Case(f"none-{n}", task["id"], "none") for n, task in enumerate(chance.sample(tasks, per_kind))]
    for kind in KINDS:
        for number in range(per_kind):
            fault, task = _placed(kind, tasks, effects, chance, wants_change=number % 2 == 0)
            found.append(Case(f"{kind}-{number}", task["id"], kind, (fault,)))
    single = [kind for kind in KINDS if kind not in PLAN]
    for many in (2, 3):
        for number in range(per_kind):
            task = chance.choice([task for task in tasks if len(task["steps"]) > many])
            steps = chance.sample(task["steps"], many)
            faults = tuple(_fault(chance.choice(single), step, chance) for step in steps)
            found.append(Case(f"faults{many}-{number}", task["id"], f"{many} faults", faults))
    calm = (*TRANSIENT, "body_transient", "lost_answer")
    for intensity in (0.1, 0.2, 0.4):
        for number in range(per_kind):
            task = chance.choice(tasks)
            faults = tuple(
                _fault(chance.choice(calm), step, chance) for step in task["steps"] if chance.random() < intensity
            )
            found.append(Case(f"rate{intensity}-{number}", task["id"], f"rate {intensity}", faults))
    return found


def _fault(kind: str, step: dict[str, Any], chance: random.Random) -> Fault:
    return Fault(step["id"], kind, chance.choice((1, 2, 4)) if kind in (*TRANSIENT, "body_transient") else 1)


def _placed(
    kind: str, tasks: list[dict[str, Any]], effects: dict[str, str], chance: random.Random, *, wants_change: bool
) -> tuple[Fault, dict[str, Any]]:
    while True:
        task = chance.choice(tasks)
        steps = [step for step in task["steps"] if _fits(kind, step, task, effects, wants_change=wants_change)]
        if steps:
            return _fault(kind, chance.choice(steps), chance), task


def _fits(
    kind: str, step: dict[str, Any], task: dict[str, Any], effects: dict[str, str], *, wants_change: bool
) -> bool:
    if kind == "wrong_argument":
        return bool(step["refs"])
    if kind == "missing_prerequisite":
        return effects[step["tool"]] != "read" and any(step["id"] in other["needs"] for other in task["steps"])
    if kind == "silent_noop":
        return effects[step["tool"]] != "read"
    return (effects[step["tool"]] != "read") == wants_change
