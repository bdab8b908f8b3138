"""The world outside of a simulated engine: tools whose answers are drawn, and the truth of what they did.

Rules of this file:
- What happened is noted when it happens, by nobody's leave: whether an effect took place, what was answered, and who
  was told. The engine's own record is held against this.
- A call that dies with its process does nothing more: its effect took place before, or never will.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rerail.core.plan import Plan
from rerail.core.tools import Runs, ToolSpec
from rerail.errors import RateLimited, ToolError
from rerail.testing.simulation.dice import Dice
from rerail.testing.simulation.drawn import EXTRA, Price

LATER = 250.0  # seconds that a tool asks for
UNSEEN = 1.0  # seconds between the record of a call and the call in which losing the run goes unnoticed

# What a call comes to. The first ones are good; an explicit failure has had no effect, a lost answer may have had it.
GOOD = ("ok", "ok", "ok", "ok", "same", "big")
EXPLICIT = ("transient", "tool", "parameter", "permanent", "dependency", "later", "odd", "body", "poor", "plan")
LOST = ("lost", "lost_before", "hang", "hang_after")
# What a call comes to after its effect: an exception, an error for an answer, an end long after its time.
AFTER = ("odd_after", "body_after", "bug_after", "late")


@dataclass(frozen=True, slots=True)
class Nature:
    """What a tool is like: whether its effect can be looked at, how late it shows, and what its service knows."""

    verifiable: bool = False
    lag: float = 0.0  # seconds until its effect can be read
    settle: float | str | None = None  # as declared; as long as the lag, or longer
    runs: Runs = "loop"
    fenced: bool = False  # it makes sure, right before its effect, that its process owns the run
    idempotent_for: float | None = None  # its service remembers keys for so long


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
    effect_at: float = 0.0
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
        nature = world.natures.get(name, Nature())
        self.spec = ToolSpec(
            name, verifiable=nature.verifiable, cost=world.price(name).declared, runs=nature.runs,
            settle=nature.settle, fenced=nature.fenced, keyed=True, idempotent_for=nature.idempotent_for,
        )  # fmt: skip
        self._world, self._process, self._alive = world, process, alive

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Whatever is drawn."""
        return await self._world.called(self.spec.name, self._process, self._alive, ctx, args)

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> bool:
        """The truth."""
        return self._world.shows(self.spec.name, ctx.key)

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
    natures: dict[str, Nature] = field(default_factory=dict)  # of tools that are not plain
    thawed: Callable[[int], Awaitable[None]] | None = None  # waits until a process is not stopped
    renewed: Callable[[int], Awaitable[None]] | None = None  # what a process that is not stopped does all the time
    prices: dict[str, Price] = field(default_factory=dict)  # of tools that cost something

    def price(self, tool: str) -> Price:
        """What calls of a tool cost."""
        return self.prices.get(tool, Price())

    def tools(self, plan: Plan, process: int, alive: Callable[[], bool]) -> list[Any]:
        """The tools of a plan as one process has them."""
        return [SimulatedTool(self, name, process, alive) for name in dict.fromkeys([*tool_names(plan), EXTRA])]

    def shows(self, tool: str, key: str) -> bool:
        """Whether the effect of a call, or of one that asked for the same, can be read by now."""
        seen = asyncio.get_running_loop().time() - self.natures.get(tool, Nature()).lag
        return any(call.effect and call.effect_at <= seen for call in self.truth.calls if call.key == key)

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
        work = asyncio.get_running_loop().create_task(self._outcome(made, alive, ctx))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is told, if the caller is there
        try:
            if self.natures.get(name, Nature()).runs != "thread":
                return await _joined(work)
            return await asyncio.shield(work)  # cancelling the call does not end it
        finally:
            truth.under_way[process] -= 1

    async def _outcome(self, made: Call, alive: Callable[[], bool], ctx: Any) -> Any:
        calm, dice = self.calm, self.dice
        kind = dice.pick(*GOOD)
        if not calm and dice.chance(self.trouble):
            kind = dice.pick(*EXPLICIT, *LOST, *LOST, *AFTER)
        made.cost = 0.0 if kind == "later" else self.price(made.tool).real
        if made.cost:
            ctx.usage(cost=made.cost)  # a process that dies after this has spent it
        await asyncio.sleep(0 if calm else dice.pick(0, 0, 0.5, 1, 7, 45))
        if kind == "late":
            await asyncio.sleep(dice.pick(70, 130, 700))
        if self.thawed is not None:
            await self.thawed(made.process)
        if not alive():
            raise asyncio.CancelledError  # it is gone
        if kind in GOOD or kind in AFTER or kind in ("lost", "hang_after", "poor"):
            await self._act(made, ctx)
        if kind in GOOD or kind == "late":
            return self._good(made, kind)
        if kind in AFTER:
            made.answer = "lost"
            return self._after(kind)
        if kind in LOST:
            made.answer = "lost"
            if kind.startswith("hang"):
                await asyncio.sleep(10**6)
            raise ConnectionResetError("gone in the middle")
        made.answer = "explicit"
        return self._refused(made, kind)

    async def _act(self, made: Call, ctx: Any) -> None:
        """The effect takes place, once for each key where the service knows keys."""
        nature = self.natures.get(made.tool, Nature())
        if nature.fenced:
            if self.renewed is not None:
                await self.renewed(made.process)
            ctx.ensure_owner()
        now = asyncio.get_running_loop().time()
        known = nature.idempotent_for is not None and any(c.effect for c in self.truth.calls if c.key == made.key)
        if not known:
            made.effect, made.effect_at, made.late = True, now, self.lost_at(made.fence) < math.inf

    @staticmethod
    def _after(kind: str) -> Any:
        """What the caller hears of a call that had its effect."""
        if kind == "body_after":
            return {"success": False, "error": "after the effect"}
        raise AssertionError("after the effect") if kind == "bug_after" else RuntimeError("after the effect")

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


async def _joined(work: asyncio.Task[Any]) -> Any:
    """Wait for a call; cancelled, it ends."""
    try:
        return await work
    except asyncio.CancelledError:
        work.cancel()
        raise


def tool_names(plan: Plan) -> list[str]:
    """Every tool that a plan may call."""
    names: dict[str, None] = {}
    for step in plan.steps:
        names |= dict.fromkeys([step.tool, *step.alternatives])
        if step.fallback is not None and step.fallback.tool:
            names[step.fallback.tool] = None
    return list(names)
