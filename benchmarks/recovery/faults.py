"""What goes wrong, where, and how often: seeded, and the same for every contender.

Rules of this file:
- A case is drawn by chance alone and kept only if it tests somebody: at a step where the fault makes a difference,
  which the world is asked for (see `world/facts.py`). Nothing here knows who will run it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

# Kinds of faults. What each means for whoever calls is in `world/server.py`.
TRANSIENT = ("connection", "http_503", "http_429")
PERMANENT = ("permanent",)
BODIES = ("body_transient", "body_permanent")
SILENT = ("silent_noop",)
LOST = ("lost_answer", "slow_answer")
KILLS = ("kill_before", "kill_during", "kill_after")
PLAN = ("wrong_argument", "renamed_tool", "missing_prerequisite")
KINDS = (*TRANSIENT, *PERMANENT, *BODIES, *SILENT, *LOST, *PLAN, *KILLS)
CALM = (*TRANSIENT, "body_transient", "lost_answer")  # what happens at random on an ordinary day
RATES = (0.1, 0.2, 0.4)  # faults per call
GROUPS = ("none", *KINDS, "2 faults", "3 faults", *(f"rate {rate}" for rate in RATES))


class Asked(Protocol):
    """Whoever knows the world (`client.World`)."""

    def ask(self, do: str, **rest: Any) -> Any:
        """A question to the world itself."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong at one step."""

    step: str
    kind: str
    times: int = 1  # calls that it spoils
    argument: str = ""  # of a wrong argument: which, and what the plan says instead
    value: Any = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """One gold plan with its faults."""

    id: str
    task: str
    base: str  # variants of one task are no independent samples
    group: str  # the row of the tables that it counts for
    effect: str = ""  # of the tool at whose step the (first) fault is
    faults: tuple[Fault, ...] = field(default=())


class Draw:
    """Draws the cases of one run."""

    def __init__(self, tasks: list[dict[str, Any]], effects: dict[str, str], seed: int, world: Asked) -> None:
        self._tasks = tasks
        self._effects = effects
        self._seed = seed
        self._world = world

    def cases(self, group: str, count: int) -> Iterator[Case]:
        """So many cases of a group; the same ones whatever other groups are drawn."""
        chance = random.Random(f"{self._seed}:{group}")
        make: Callable[[random.Random, int], tuple[dict[str, Any], list[Fault]] | None] = self._one(group)
        number = 0
        while number < count:
            found = make(chance, number)
            if found is None:
                continue
            task, faults = found
            at = next((step for step in task["steps"] if faults and step["id"] == faults[0].step), None)
            effect = self._effects[at["tool"]] if at is not None else ""
            yield Case(f"{group}-{number}", task["id"], task["base"], group, effect, tuple(faults))
            number += 1

    def _one(self, group: str) -> Any:
        if group == "none":
            return lambda chance, _: (chance.choice(self._tasks), [])
        if group in KINDS:
            return lambda chance, number: self._single(group, chance, changing=number % 2 == 0)
        if group.endswith(" faults"):
            return lambda chance, _: self._several(int(group.split(maxsplit=1)[0]), chance)
        return lambda chance, _: self._random(float(group.split()[1]), chance)

    def _single(self, kind: str, chance: random.Random, *, changing: bool) -> tuple[dict[str, Any], list[Fault]] | None:
        """One fault; half of them where the world is changed, where the kind leaves that open."""
        task = chance.choice(self._tasks)
        steps = [step for step in task["steps"] if self._fits(kind, step, changing=changing)]
        fault = self._fault(kind, chance.choice(steps), task, chance) if steps else None
        return (task, [fault]) if fault is not None else None

    def _several(self, many: int, chance: random.Random) -> tuple[dict[str, Any], list[Fault]] | None:
        task = chance.choice(self._tasks)
        if len(task["steps"]) <= many:
            return None
        faults = []
        for step in chance.sample(task["steps"], many):
            kinds = [kind for kind in KINDS if kind not in PLAN and (step["changes"] or kind not in SILENT)]
            faults.append(self._fault(chance.choice(kinds), step, task, chance))
        return task, [fault for fault in faults if fault is not None]

    def _random(self, rate: float, chance: random.Random) -> tuple[dict[str, Any], list[Fault]]:
        task = chance.choice(self._tasks)
        faults = [
            self._fault(chance.choice(CALM), step, task, chance) for step in task["steps"] if chance.random() < rate
        ]
        return task, [fault for fault in faults if fault is not None]

    def _fits(self, kind: str, step: dict[str, Any], *, changing: bool) -> bool:
        if kind == "wrong_argument":
            return bool(step["refs"])
        if kind in SILENT or kind == "missing_prerequisite":
            return bool(step["changes"])
        if kind in (*LOST, *KILLS) and changing:
            return bool(step["changes"]) and self._effects[step["tool"]] == "once"
        return bool(step["changes"]) == changing

    def _fault(self, kind: str, step: dict[str, Any], task: dict[str, Any], chance: random.Random) -> Fault | None:
        """The fault at this step, or None where it would test nobody."""
        if kind == "wrong_argument":
            name = chance.choice(sorted(step["refs"]))
            value = wrong(name, step["args"][name], chance)
            args = {**step["args"], name: value}
            refused = self._world.ask("refuses", task=task["id"], step=step["id"], args=args)
            return Fault(step["id"], kind, argument=name, value=value) if refused else None
        if kind == "missing_prerequisite" and not self._is_noticed(step["id"], task):
            return None
        return Fault(step["id"], kind, chance.choice((1, 2, 4)) if kind in (*TRANSIENT, "body_transient") else 1)

    def _is_noticed(self, step: str, task: dict[str, Any]) -> bool:
        """Whether a tool says no for want of this step. A plan that refers to a step which is not there is no plan."""
        referred = any(source[0] == step for other in task["steps"] for source in other["refs"].values())
        return not referred and bool(self._world.ask("noticed", task=task["id"], step=step))


def wrong(name: str, value: Any, chance: random.Random) -> Any:
    """A value that is not the right one, as plans that were written by hand or by a model have them.

    Mistyped (one sign is another), made up (all are), or never filled in.
    """
    ways = ("mistyped", "made up", "not filled in") if isinstance(value, str) else ("mistyped", "made up")
    way = chance.choice(ways)
    if way == "not filled in":
        return f"<{name}>"
    signs = list(str(value))
    places = [at for at, sign in enumerate(signs) if sign.isalnum()]
    for at in [chance.choice(places)] if way == "mistyped" else places:
        signs[at] = _other(signs[at], chance)
    made = "".join(signs)
    return made if isinstance(value, str) else type(value)(made)


def _other(sign: str, chance: random.Random) -> str:
    alphabet = "123456789" if sign.isdigit() else "abcdefghijklmnopqrstuvwxyz"
    other = chance.choice([one for one in alphabet if one != sign.lower()])
    return other.upper() if sign.isupper() else other
