"""The world outside of a simulated engine: tools whose answers are drawn, and the truth of what they did.

Rules of this file:
- What happened is noted when it happens, by nobody's leave: whether an effect took place, what was answered, and who
  was told. The engine's own record is held against this.
- A call that dies with its process does nothing more: its effect took place before, or never will.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rerail.core.plan import Plan
from rerail.core.tools import ToolSpec
from rerail.errors import RateLimited, ToolError
from rerail.testing.simulation.dice import Dice
from rerail.testing.simulation.drawn import EXTRA, Price

LATER = 250.0  # seconds that a tool asks for
UNSEEN = 1.0  # seconds between the record of a call and the call in which losing the run goes unnoticed

# What a call comes to. The first ones are good; an explicit failure has had no effect, a lost answer may have had it.
GOOD = ("ok", "ok", "ok", "ok", "same", "big")
EXPLICIT = ("transient", "tool", "parameter", "permanent", "dependency", "later", "odd", "body", "poor", "plan")
LOST = ("lost", "lost_before", "hang", "hang_after")


@dataclass(slots=True)
class Call:
    """One call, as it really was."""

    process: int
    step: str
    attempt: int
    tool: str
    args: dict[str, Any]
    fence: int
    key: str
    began: float
    effect: bool = False  # it took place
    late: bool = False  # after its process had lost the run: nobody who looked before could see it
    answer: str = ""  # "ok", "explicit" or "lost", once there is one
    output: Any = None
    cost: float = 0.0  # what it really cost


@dataclass(slots=True)
class Truth:
    """Everything that happened outside."""

    calls: list[Call] = field(default_factory=list)
    stale: list[Call] = field(default_factory=list)  # calls by somebody who had lost the run
    unrecorded: list[Call] = field(default_factory=list)  # calls that nobody had written down
    most_at_once: dict[int, int] = field(default_factory=dict)  # process → calls under way at the same time
    under_way: dict[int, int] = field(default_factory=dict)

    def of(self, step: str, attempt: int) -> list[Call]:
        """The calls of one attempt: one, if all is well."""
        return [call for call in self.calls if (call.step, call.attempt) == (step, attempt)]


class SimulatedTool:
    """A tool of one process; what it does, the world draws."""

    is_async = True
    wants_context = True

    def __init__(self, world: World, name: str, process: int, alive: Callable[[], bool]) -> None:
        self.spec = ToolSpec(name, verifiable=name in world.verifiable, cost=world.price(name).declared)
        self._world, self._process, self._alive = world, process, alive

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Whatever is drawn."""
        return await self._world.called(self.spec.name, self._process, self._alive, ctx, args)

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> bool:
        """The truth."""
        return self._world.happened(ctx.key)

    async def probe(self, args: dict[str, Any], ctx: Any) -> Any:
        """Never asked for."""


@dataclass(slots=True)
class World:
    """Tools for one life. ``calm`` once nothing goes wrong any more."""

    dice: Dice
    truth: Truth = field(default_factory=Truth)
    calm: bool = False
    recorded: Callable[[str, int], bool] = lambda *_: True
    lost_at: Callable[[int], float] = lambda _: math.inf  # when the holder of a fence lost the run
    trouble: int = 3  # one call in so many goes wrong
    verifiable: frozenset[str] = frozenset()  # tools whose effect can be looked at
    prices: dict[str, Price] = field(default_factory=dict)  # of tools that cost something

    def price(self, tool: str) -> Price:
        """What calls of a tool cost."""
        return self.prices.get(tool, Price())

    def tools(self, plan: Plan, process: int, alive: Callable[[], bool]) -> list[Any]:
        """The tools of a plan as one process has them."""
        return [SimulatedTool(self, name, process, alive) for name in dict.fromkeys([*tool_names(plan), EXTRA])]

    def happened(self, key: str) -> bool:
        """Whether the effect of a call, or of one that asked for the same, took place."""
        return any(call.effect for call in self.truth.calls if call.key == key)

    async def called(self, name: str, process: int, alive: Callable[[], bool], ctx: Any, args: dict[str, Any]) -> Any:
        now = asyncio.get_running_loop().time()
        made = Call(process, ctx.step, ctx.attempt, name, args, ctx.fence, ctx.key, now)
        truth = self.truth
        truth.calls.append(made)
        if not self.recorded(ctx.step, ctx.attempt):
            truth.unrecorded.append(made)
        if now - self.lost_at(ctx.fence) > UNSEEN:
            truth.stale.append(made)
        truth.under_way[process] = truth.under_way.get(process, 0) + 1
        truth.most_at_once[process] = max(truth.most_at_once.get(process, 0), truth.under_way[process])
        try:
            return await self._outcome(made, alive, ctx)
        finally:
            truth.under_way[process] -= 1

    async def _outcome(self, made: Call, alive: Callable[[], bool], ctx: Any) -> Any:
        calm, dice = self.calm, self.dice
        kind = dice.pick(*GOOD)
        if not calm and dice.chance(self.trouble):
            kind = dice.pick(*EXPLICIT, *LOST, *LOST)
        made.cost = 0.0 if kind == "later" else self.price(made.tool).real
        if made.cost:
            ctx.usage(cost=made.cost)  # a process that dies after this has spent it
        await asyncio.sleep(0 if calm else dice.pick(0, 0, 0.5, 1, 7, 45))
        if not alive():
            raise asyncio.CancelledError  # it is gone
        if kind in GOOD or kind in ("lost", "hang_after", "poor"):
            made.effect, made.late = True, self.lost_at(made.fence) < math.inf
        if kind in GOOD:
            return self._good(made, kind)
        if kind in LOST:
            made.answer = "lost"
            if kind.startswith("hang"):
                await asyncio.sleep(10**6)
            raise ConnectionResetError("gone in the middle")
        made.answer = "explicit"
        return self._refused(made, kind)

    def _good(self, made: Call, kind: str) -> Any:
        made.answer = "ok"
        number = len(self.truth.calls)
        made.output = {"made": "always the same" if kind == "same" else number}
        if kind == "big":
            made.output["text"] = "x" * 3000
        return dict(made.output)

    def _refused(self, made: Call, kind: str) -> Any:
        match kind:
            case "transient":
                raise ConnectionRefusedError("down")
            case "parameter":
                raise ToolError("wrong", suggest={"given": len(self.truth.calls)})
            case "later":
                raise RateLimited("later", retry_after=LATER)
            case "body":
                return {"error": "not found", "status": "error"}
            case "poor":
                made.answer = "ok"
                made.output = {"other": 1}
                return dict(made.output)
            case "plan":
                raise ToolError("something has to come first", category="decomposition_error")
            case "odd":
                raise RuntimeError("odd")
            case _:
                raise ToolError(f"no: {kind}", category=f"{kind}_error")


def tool_names(plan: Plan) -> list[str]:
    """Every tool that a plan may call."""
    names: dict[str, None] = {}
    for step in plan.steps:
        names |= dict.fromkeys([step.tool, *step.alternatives])
        if step.fallback is not None and step.fallback.tool:
            names[step.fallback.tool] = None
    return list(names)
