"""The world outside of a simulated engine: tools whose answers are drawn, and the truth of what they did.

Rules of this file:
- What happened is noted when it happens, by nobody's leave: whether an effect took place, what was answered, and who
  was told. The engine's own record is held against this.
- Every other call, look and probe changes whatever it was handed: nobody else may ever see that.
- A call that dies with its process does nothing more: its effect took place before, or never will. A request that was
  sent goes on without its process.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.chance import Dice
from tests.simulation.generators import EXTRA, Price

from rerail.engine.looks import NotYet, Partial
from rerail.errors import RateLimited, ToolError
from rerail.plan.model import Plan
from rerail.plan.tool_spec import Runs, ToolSpec
from rerail.values.json_values import containers, fresh

LATER = 250.0  # seconds that a tool asks for
SPOILT = "spoilt by its reader"
UNSEEN = 1.0  # seconds between the record of a call and the call in which losing the run goes unnoticed

# What a call comes to. The first ones are good; an explicit failure has had no effect, a lost answer may have had it.
GOOD = ("ok", "ok", "ok", "ok", "same", "big")
EXPLICIT = (
    "transient", "tool", "parameter", "permanent", "dependency", "later", "odd", "body", "poor", "plan", "body_before",
    "later", "plan",
)  # fmt: skip
LOST = ("lost", "lost_before", "hang", "hang_after")
# What a call comes to after its effect: an exception, an error for an answer, an end long after its time, a request
# that is done shortly after it, a part of the effect, with a good answer or without, a *not done* that is a lie.
AFTER = ("odd_after", "body_after", "bug_after", "late", "lands_late", "half", "half", "half_good", "lie")
SETTLE = 5.0  # seconds that absence is waited for where a tool says nothing


@dataclass(frozen=True, slots=True)
class Nature:
    """What a tool is like: whether its effect can be looked at, how late it shows, and what its service knows."""

    verifiable: bool = False
    lag: float = 0.0  # seconds until its effect can be read
    settle: float | str | None = None  # as declared; as long as the lag, or longer
    runs: Runs = "loop"
    fenced: bool = False  # it makes sure, right before its effect, that its process owns the run
    idempotent_for: float | None = None  # its service remembers keys for so long
    shaky: bool = False  # its looks raise, or say that they cannot tell yet
    counts: bool = False  # its looks compare how often it was done with how often it was before: `probe`

    @property
    def patience(self) -> float:
        """Seconds that absence is waited for before it is believed; infinity for never."""
        if self.settle is None:
            return SETTLE
        return math.inf if isinstance(self.settle, str) else self.settle

    @property
    def exact(self) -> bool:
        """Whether one look tells the truth at once."""
        return self.verifiable and not self.lag and not self.shaky


PLAIN = Nature()


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
    half: bool = False  # only a part of it took place
    ended: float = math.inf  # when nothing of it was under way any more
    answer: str = ""  # "ok", "explicit" or "lost", once there is one
    output: Any = None
    cost: float = 0.0  # what it really cost


@dataclass(slots=True)
class Truth:
    """Everything that happened outside."""

    calls: list[Call] = field(default_factory=list)
    stale: list[Call] = field(default_factory=list)  # calls by somebody who had lost the run
    unrecorded: list[Call] = field(default_factory=list)  # calls that nobody had written down
    shared: list[str] = field(default_factory=list)  # what somebody was handed after another had changed it
    handed: int = 0
    most_at_once: dict[int, int] = field(default_factory=dict)  # process → calls under way at the same time
    under_way: dict[int, int] = field(default_factory=dict)

    def of(self, step: str, attempt: int) -> list[Call]:
        """The calls of one attempt: one, if all is well."""
        return [call for call in self.calls if (call.step, call.attempt) == (step, attempt)]

    def hand(self, whom: str, *values: Any) -> None:
        """Note what somebody is handed, who may change it at any depth."""
        self.shared += [f"{whom} was handed {value!r}" for value in values if SPOILT in repr(value)]
        self.handed += 1
        for part in containers(list(values)) if self.handed % 2 else ():
            part.update({SPOILT: True}) if isinstance(part, dict) else part.append(SPOILT)


class SimulatedTool:
    """A tool of one process; what it does, the world draws."""

    is_async = wants_context = True
    looks_outside = stays = False
    answer_of = None

    def __init__(self, world: World, name: str, process: int, alive: Callable[[], bool]) -> None:
        nature = world.nature(name)
        self.spec = ToolSpec(
            name, verifiable=nature.verifiable, cost=world.price(name).declared, runs=nature.runs,
            settle=nature.settle, fenced=nature.fenced, keyed=True, idempotent_for=nature.idempotent_for,
            probes=nature.counts,
        )  # fmt: skip
        self._world, self._process, self._alive = world, process, alive

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Whatever is drawn."""
        return await self._world.called(self.spec.name, self._process, self._alive, ctx, args)

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> Any:
        """What can be read by now."""
        found = self._world.looked(self.spec.name, ctx, before)
        self._world.truth.hand("a look", args, output, before)
        return found

    async def probe(self, args: dict[str, Any], ctx: Any) -> Any:
        """How often it was done, as far as that can be read by now."""
        self._world.truth.hand("a probe", args)
        return {"done": self._world.done(self.spec.name, ctx.step)}


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

    def nature(self, tool: str) -> Nature:
        """What a tool is like."""
        return self.natures.get(tool, PLAIN)

    def looked(self, tool: str, ctx: Any, before: Any) -> Any:
        """What a look answers: the truth, or that it cannot tell."""
        nature = self.nature(tool)
        if nature.shaky and not self.calm:
            match self.dice.pick("tell", "tell", "raise", "not_yet"):
                case "raise":
                    raise TimeoutError("the look failed")
                case "not_yet":
                    raise NotYet
                case _:
                    pass
        if nature.counts:
            return self.done(tool, ctx.step) > (before or {"done": 0})["done"]
        visible = asyncio.get_running_loop().time() - nature.lag
        seen = [call for call in self.truth.calls if call.key == ctx.key and call.effect and call.effect_at <= visible]
        return Partial("half of it") if seen and all(call.half for call in seen) else bool(seen)

    def done(self, tool: str, step: str) -> int:
        """How often a step's effect can be read by now."""
        visible = asyncio.get_running_loop().time() - self.nature(tool).lag
        mine = (call for call in self.truth.calls if (call.step, call.tool) == (step, tool))
        return sum(call.effect and call.effect_at <= visible for call in mine)

    async def called(self, name: str, process: int, alive: Callable[[], bool], ctx: Any, args: dict[str, Any]) -> Any:
        now = asyncio.get_running_loop().time()
        made = Call(process, ctx.step, ctx.attempt, name, fresh(args), ctx.fence, ctx.key, now)
        truth = self.truth
        truth.hand("a tool", args)
        truth.calls.append(made)
        if not self.recorded(ctx.step, ctx.attempt):
            truth.unrecorded.append(made)
        if now - self.lost_at(ctx.fence) > UNSEEN:
            truth.stale.append(made)
        truth.under_way[process] = truth.under_way.get(process, 0) + 1
        truth.most_at_once[process] = max(truth.most_at_once.get(process, 0), truth.under_way[process])
        runs, loop = self.nature(name).runs, asyncio.get_running_loop()
        # A request is nobody's once it is sent: it does not end with its process.
        begin = contextvars.Context().run if runs == "request" else contextvars.copy_context().run
        work = begin(loop.create_task, self._whole(made, alive, ctx))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is told, if the caller is there
        try:
            if runs in ("loop", "process"):
                return await _joined(work)
            return await asyncio.shield(work)  # cancelling the call does not end it
        finally:
            truth.under_way[process] -= 1

    async def _whole(self, made: Call, alive: Callable[[], bool], ctx: Any) -> Any:
        try:
            return await self._outcome(made, alive, ctx)
        finally:
            made.ended = asyncio.get_running_loop().time()

    async def _outcome(self, made: Call, alive: Callable[[], bool], ctx: Any) -> Any:
        kind = self._kind(made.tool)
        made.cost = 0.0 if kind == "later" else self.price(made.tool).real
        if made.cost:
            ctx.usage(cost=made.cost)  # a process that dies after this has spent it
        seconds = self._seconds(made.tool, kind, ctx.timeout)
        sent = self.nature(made.tool).runs == "request"
        if sent:
            await self._ready(made, alive, ctx)
        await asyncio.sleep(seconds)
        if not sent:
            await self._ready(made, alive, ctx)
        if kind in GOOD or kind in AFTER or kind in ("lost", "hang_after", "poor"):
            self._act(made, half=kind.startswith("half"))
        if kind in GOOD or kind in ("late", "lands_late", "half_good"):
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

    def _kind(self, tool: str) -> str:
        """What a call comes to. A lie is told only where one look finds it out."""
        kind = self.dice.pick(*GOOD)
        if not self.calm and self.dice.chance(self.trouble):
            kind = self.dice.pick(*EXPLICIT, *LOST, *LOST, *AFTER)
        return "odd_after" if kind == "lie" and not self.nature(tool).exact else kind

    def _seconds(self, tool: str, kind: str, timeout: float) -> float:
        """How long a call takes until its effect."""
        if self.calm:
            return 0.0
        usual: float = self.dice.pick(0, 0, 0.5, 1, 7, 45)
        nature = self.nature(tool)
        if kind == "late" and nature.runs != "request":
            return usual + self.dice.pick(70, 130, 700)
        if kind in ("late", "lands_late"):  # so late that a look finds it within `settle`
            left = min(nature.patience, SETTLE) - nature.lag
            return timeout + max(0.0, left) * self.dice.pick(0.1, 0.9)
        return usual

    async def _ready(self, made: Call, alive: Callable[[], bool], ctx: Any) -> None:
        """Right before a call acts: its process is there, and a fenced one makes sure that it owns the run."""
        if self.thawed is not None:
            await self.thawed(made.process)
        if not alive():
            raise asyncio.CancelledError  # it is gone
        if self.nature(made.tool).fenced:
            if self.renewed is not None:
                await self.renewed(made.process)
            ctx.ensure_owner()
            made.late = self.lost_at(made.fence) < math.inf

    def _act(self, made: Call, *, half: bool = False) -> None:
        """The effect takes place, once for each key while the service remembers it from when it was first used."""
        nature, now = self.nature(made.tool), asyncio.get_running_loop().time()
        done = [call.effect_at for call in self.truth.calls if call.key == made.key and call.effect and not call.half]
        known = nature.idempotent_for is not None and any(made.began < at + nature.idempotent_for for at in done)
        if not known:
            made.effect, made.effect_at, made.half = True, now, half
            made.late = made.late if nature.fenced else self.lost_at(made.fence) < math.inf

    @staticmethod
    def _after(kind: str) -> Any:
        """What the caller hears of a call that had its effect."""
        if kind == "body_after":
            return {"success": False, "error": "after the effect"}
        if kind == "lie":
            raise ToolError("nothing was done", category="transient_error")
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
            case "body_before":
                return {"success": False, "error": {"message": "refused", "code": "E7"}}
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
