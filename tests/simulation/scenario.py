"""One simulated life: a run, the processes that drive it, everything that befalls them, and what must hold at the end.

Rules of this file:
- One event loop on virtual time carries all processes. Each has an engine of its own and its own way to the store.
- A process that dies does nothing more: its tasks are cancelled, and nothing they do on the way out reaches anybody.
- After the disturbances it is calm. Whatever happened, the run must then come to rest, and its history keep the laws.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.chance import Dice
from tests.simulation.generators import EXTRA, DrawnMind, draw_plan, draw_prices, draw_settings
from tests.simulation.invariants import Broken, check_life
from tests.simulation.natures import draw_nature
from tests.simulation.shared_store import SharedStore, Way
from tests.simulation.world import World, tool_names

from rerail.api import Engine
from rerail.errors import PlanError, Refused, RerailError
from rerail.kernel import events as ev
from rerail.kernel.codec import decode
from rerail.kernel.fold import fold
from rerail.plan.model import Plan
from rerail.plan.step import When
from rerail.settings.loading import Settings
from rerail.testing.virtual_time import VirtualClock, VirtualLoop

RUN = "simulated"
FAR = 10.0**8  # virtual seconds after which a life has no end
ENDLESS = 20_000  # times that an engine asks for the time at one moment
ROUNDS = 200  # of looking after a run once it is calm
AT_REST = ("completed", "failed", "cancelled")
BEFALLS = (
    "nothing", "person", "person", "person", "person", "dies_now", "dies_before", "dies_after", "stops", "naps",
    "outage", "unsure", "jump", "rots", "taken", "visitor", "upstream", "upstream", "cut_short", "toolless",
)  # fmt: skip

WISHES = (
    "skip", "confirm", "refuse", "done", "failed", "rerun", "retry", "retry", "retry_all", "clean", "clean", "pause",
    "resume", "add", "repair", "cancel", "cancel", "agree", "agree",
)  # fmt: skip

_process: ContextVar[int] = ContextVar("process", default=0)


@dataclass
class Process:
    """One process: an engine, and its way to the store."""

    number: int
    engine: Engine
    way: Way
    clock: VirtualClock
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def able(self) -> bool:
        """Whether it can do anything now."""
        return not self.way.faults.dead and self.way.faults.stopped is None


@dataclass
class Lived:
    """What came of a life."""

    seed: int
    drawn: list[int]
    status: str
    facts: Counter[str]
    events: int


class SimulatedClock(VirtualClock):
    """A clock by which a stopped process can tell how long it was stopped; one that is asked without end stops."""

    asked, at = 0, -1.0

    def now(self) -> float:
        """The time; an engine that decides for ever at one moment breaks a law."""
        at = asyncio.get_running_loop().time()
        self.asked, self.at = (self.asked + 1 if at == self.at else 0), at
        if self.asked > ENDLESS:
            raise Broken("ends", "it decides without end")
        return super().now()

    def uptime(self) -> float:
        """Seconds of the virtual loop, which no jump changes."""
        return asyncio.get_running_loop().time()


class Life:
    """Everything about one seed."""

    def __init__(self, dice: Dice, plan: Plan | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.dice = dice
        self.plan = draw_plan(dice) if plan is None else plan
        self.settings = Settings.load(draw_settings(dice) if settings is None else settings)
        self.store = SharedStore()
        self.world = World(dice)
        self.world.recorded = lambda step, attempt: (step, attempt) in self.store.intents
        self.world.lost_at = self.store.lost_at
        self.world.trouble = dice.pick(8, 3, 2, 5)
        self.world.natures = {name: draw_nature(dice) for name in [*tool_names(self.plan), EXTRA]}
        self.world.thawed, self.world.renewed = self.thawed, self.renewed
        self.processes: list[Process] = []
        self.died: dict[int, float] = {}  # process → when
        self.facts: Counter[str] = Counter()
        self.over = False
        self.jumped = False
        self.asked = False  # by a person, or by somebody who took the run from a living process
        capped = self.settings.run.max_cost is not None
        if capped:
            self.world.prices = draw_prices(dice, [*tool_names(self.plan), EXTRA])
        mind = DrawnMind(dice, 0.3 if capped else 0.0)
        self.mind = dice.pick(None, mind, mind)

    # -- Processes ------------------------------------------------------------------------------------------------

    def begin_process(self, *, toolless: bool = False) -> Process:
        """A new process, with tools and an engine of its own; or one that was started where there are no tools."""
        number = len(self.processes) + 1
        clock = SimulatedClock()
        clock.start += sum(one.clock.start - 1_700_000_000.0 for one in self.processes[-1:])
        way = Way(self.store, number, self.dice, lambda: self.kill(process), lambda s: self.stop(process, s), clock)
        way.calm = self.world.calm
        tools = self.world.tools(self.plan, number, lambda: not way.faults.dead)
        tools = [] if toolless else tools
        process = Process(number, Engine(way, tools, self.settings, self.mind, clock=clock), way, clock)
        self.processes.append(process)
        return process

    async def within(self, process: Process, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in a process, as long as that lives; `None` if it dies of it."""
        token = _process.set(process.number)
        try:
            task = asyncio.get_running_loop().create_task(work)
        finally:
            _process.reset(token)
        try:
            return await task
        except asyncio.CancelledError:
            if process.way.faults.dead:
                return None
            raise

    def kill(self, process: Process) -> None:
        """It is gone, in the middle of whatever it did."""
        if not process.way.faults.dead:
            process.way.faults.dead = True
            self.died[process.number] = asyncio.get_running_loop().time()
            self.facts["deaths"] += not self.over
            current = asyncio.current_task()
            for task in list(process.tasks):
                if task is not current:
                    task.cancel()

    def make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **rest: Any) -> asyncio.Task[Any]:
        """Tasks know whose they are."""
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **rest)
        number = _process.get()
        if number:
            owner = self.processes[number - 1]
            owner.tasks.add(task)
            task.add_done_callback(owner.tasks.discard)
        return task

    # -- The course of a life -------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Start the run, let things happen to it, and bring it to rest."""
        asyncio.get_running_loop().set_task_factory(self.make_task)
        first = self.begin_process()
        number = self.dice.number(9)
        if self.dice.chance(6):
            first.way.faults.dies_at, first.way.faults.dies_after = 1 + self.dice.number(3), self.dice.pick(True, False)
        await self.within(first, first.engine.open())
        with contextlib.suppress(RerailError):
            await self.within(first, first.engine.start(self.plan, run_id=RUN))
        if RUN not in self.store._runs:
            return  # it died before the run was there: nobody was told of it
        if first.able and self.dice.chance(4):
            await self.agree_ahead(first)
        for _ in range(number):
            await asyncio.sleep(self.dice.pick(0.0, 0.3, 1.0, 3.0, 8.0, 50.0))
            await self.befall(self.dice.pick(*BEFALLS))
            if self.dice.pick(True, False):
                await self.look_after()
        await self.calm_down()

    async def look_after(self) -> Process:
        """Whoever can takes the run up if nobody has it; the process that has it, or had a look."""
        able = [one for one in self.processes if one.able]
        for one in able:
            if one.engine.internals.drives(RUN):
                return one
        if able:
            process = able[-1]
        else:
            process = self.begin_process()
            await self.within(process, process.engine.open())
        if await self.store.read(RUN, 0, 1):
            await self.ask(process, process.engine.begin_resume(RUN))
        else:  # whoever began it died before its plan was there: it is started again, under its name
            await self.ask(process, process.engine.start(self.plan, run_id=RUN))
        return process

    async def ask(self, process: Process, wish: Coroutine[Any, Any, Any]) -> bool:
        """Ask a process for something; a refusal is a fine answer. Whether it was granted."""
        try:
            async with asyncio.timeout(3000):
                await self.within(process, wish)
        except (Refused, PlanError):
            return False
        except (RerailError, TimeoutError):
            self.facts["not reached"] += 1
            return False
        return True

    async def befall(self, what: str) -> None:
        """One disturbance."""
        self.facts[what] += 1
        able = [one for one in self.processes if one.able]
        process = able[-1] if able else None
        if what == "rots":
            self.store.rot()
        elif what == "visitor":
            visitor = self.begin_process()
            await self.within(visitor, visitor.engine.open())
            await self.act(visitor)
        elif what == "toolless":
            if process is not None:
                self.stop(process, self.dice.pick(5.0, 400.0, 4000.0))
            lost = self.begin_process(toolless=True)
            await self.within(lost, lost.engine.open())
            await self.ask(lost, lost.engine.begin_resume(RUN))
            self.kill(lost)
        elif process is None:
            return
        else:
            await self.strike(process, what)

    async def strike(self, process: Process, what: str) -> None:
        """Something happens to a process."""
        faults, dice = process.way.faults, self.dice
        match what:
            case "person":
                await self.act(process)
            case "dies_now":
                self.kill(process)
            case "dies_before" | "dies_after":
                faults.dies_at, faults.dies_after = 1 + dice.number(4), what == "dies_after"
            case "stops":
                self.stop(process, dice.pick(0.5, 5.0, 45.0, 400.0))
            case "naps":
                faults.naps = dice.pick(0.5, 45.0, 400.0, 4000.0)
            case "outage":
                seconds = dice.pick(1.0, 20.0, 100.0)
                for one in self.processes:
                    one.way.faults.down_until = asyncio.get_running_loop().time() + seconds
            case "unsure":
                faults.unsure = 1 + dice.number(2)
            case "jump":
                process.clock.jump(dice.pick(-5.0, 5.0, -4000.0, 100.0, 10**6))
                self.jumped = True
            case "upstream":
                await self.renew_upstream(process)
            case "cut_short":
                await self.cut_short(process)
            case "taken":
                other = self.begin_process()
                await self.within(other, other.engine.open())
                self.asked = True
                await self.ask(other, other.engine.begin_resume(RUN, take_over=True))
            case _:
                pass

    def stop(self, process: Process, seconds: float) -> None:
        """It is stopped for a while, as by SIGSTOP or a machine that sleeps."""
        process.way.faults.stopped = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, self.wake, process)

    async def thawed(self, number: int) -> None:
        """A process that is stopped does nothing until it goes on, nor do its tools."""
        faults = self.processes[number - 1].way.faults
        while faults.stopped is not None and not faults.stopped.is_set():
            await faults.stopped.wait()

    async def renewed(self, number: int) -> None:
        """A process that is not stopped has renewed its leases a moment ago."""
        process = self.processes[number - 1]
        if process.able:
            await process.engine._leases.renew_all()

    def wake(self, process: Process) -> None:
        """A stopped process goes on, as if nothing had happened."""
        stopped, process.way.faults.stopped = process.way.faults.stopped, None
        if stopped is not None:
            stopped.set()

    async def act(self, process: Process) -> None:
        """A person does something, from wherever."""
        engine, dice = process.engine, self.dice
        records = await self.records()
        state = fold(RUN, records)
        steps, gates = list(state.tracks) or ["s0"], [track.id for track in state.gates.values()]
        step = dice.pick(*steps)
        match dice.pick(*WISHES):
            case "skip":
                wish: Any = engine.skip(RUN, step)
            case "confirm":
                wish = engine.confirm(RUN, step, ahead=dice.pick(False, True))
            case "agree":
                given = dice.pick(None, {"given": 7}, {"other": "${s0}"})
                wish = engine.confirm(RUN, dice.pick(*(gates or [step])), args=given)
            case "refuse":
                wish = engine.confirm(RUN, step, refuse=True)
            case "done":
                wish = engine.resolve(RUN, step, succeeded={"made": "by hand"})
            case "failed":
                wish = engine.resolve(RUN, step, failed=True)
            case "rerun":
                wish = engine.resolve(RUN, step, rerun=True)
            case "retry":
                wish = engine.begin_retry(RUN, [step], force=dice.pick(False, True))
            case "retry_all":
                wish = engine.begin_retry(RUN, force=True)
            case "clean":
                wish = engine.begin_retry(RUN, clean=True)
            case "pause":
                wish = engine.pause(RUN)
            case "resume":
                wish = engine.begin_resume(RUN)
            case "add":
                needs = dice.some(steps, 2)
                wish = engine.add(RUN, [{"id": f"add{len(records)}", "tool": EXTRA, "needs": needs}])
            case "repair":
                wish = engine.repair(RUN, step, args={"mended": True})
            case _:
                wish = engine.cancel(RUN)
        self.asked = True
        if await self.ask(process, wish):
            self.facts["wishes granted"] += 1

    async def renew_upstream(self, process: Process) -> None:
        """A person agrees to a gate, and something that its call is made from is done again."""
        state = fold(RUN, await self.records())
        gated = [track for track in state.tracks.values() if track.step.confirm and track.needs]
        if not gated:
            return
        track, self.asked = self.dice.pick(*gated), True
        if track.n in state.gates:
            await self.ask(process, process.engine.confirm(RUN, track.id))
        need = self.dice.pick(*track.needs)[0]
        if await self.ask(process, process.engine.begin_retry(RUN, [need.id], force=True)):
            self.facts["renewed above a gate"] += 1

    async def agree_ahead(self, process: Process) -> None:
        """A person agrees to a gate before its call is known."""
        gated = [step.id for step in self.plan.steps if step.confirm]
        if gated:
            self.asked = True
            await self.ask(process, process.engine.confirm(RUN, self.dice.pick(*gated), ahead=True))

    async def cut_short(self, process: Process) -> None:
        """A person cancels the run while it cleans up after a failure."""
        for _ in range(20):
            running = fold(RUN, await self.records()).running.values()
            if any(when is When.FAILURE for track in running for _, when in track.needs):
                self.asked = True
                self.facts["cancelled while cleaning up"] += await self.ask(process, process.engine.cancel(RUN))
                return
            await asyncio.sleep(2)

    async def calm_down(self) -> None:
        """Nothing goes wrong any more: the run comes to rest, with somebody to answer its questions."""
        if self.dice.pick(False, True):  # whoever is stopped stays so until somebody else has the run
            for _ in range(2):
                await asyncio.sleep(40)
                await self.look_after()
        self.world.calm = True
        for process in self.processes:
            self.wake(process)
            process.way.calm = True
            process.way.faults.down_until, process.way.faults.unsure, process.way.faults.dies_at = 0.0, 0, 0
        for _ in range(ROUNDS):
            head = await self.store.head(RUN)
            assert head is not None
            if head.status in AT_REST:
                break
            process = await self.look_after()
            if process.able and head.status == "waiting":
                await self.answer(process)
            await asyncio.sleep(50)
        else:
            raise Broken("ends", head)
        await asyncio.sleep(100)  # whoever is still there hears of it

    async def answer(self, process: Process) -> None:
        """Answer what the run waits for, truthfully where the world knows."""
        result = await self.within(process, process.engine.show(RUN))
        if result is None or not result.waiting_on:
            return
        on = result.waiting_on[0]
        engine, step = process.engine, on.get("step", "")
        if on["for"] == "confirm":
            await self.ask(process, engine.confirm(RUN, step, refuse=self.dice.chance(4)))
        elif on["for"] == "paused":
            await self.ask(process, engine.begin_resume(RUN))
        else:
            calls = [call for call in self.world.truth.calls if call.step == step]
            happened = any(call.effect for call in calls)
            how: dict[str, Any] = {"succeeded": {"made": "by hand"}} if happened else {"failed": True}
            await self.ask(process, engine.resolve(RUN, step, **how))

    # -- The end --------------------------------------------------------------------------------------------------

    async def records(self) -> list[ev.Record]:
        """The history as it is on record."""
        rows = await self.store.read(RUN, 0, 10**9)
        return [ev.Record(RUN, row.seq, row.at, decode(row.data)) for row in rows]

    async def close(self) -> None:
        """Whoever is left ends in order."""
        for process in self.processes:
            if process.able:
                with contextlib.suppress(RerailError, asyncio.TimeoutError):
                    await asyncio.wait_for(self.within(process, process.engine.close()), 10_000)


def live(dice: Dice, seed: int = 0, plan: Plan | None = None, settings: Mapping[str, Any] | None = None) -> Lived:
    """Live one life; raises what does not hold of it."""

    async def whole() -> Lived:
        life = Life(dice, plan, settings)
        try:
            async with asyncio.timeout(FAR):
                await life.play()
                await life.close()
            records = await life.records()
            status = check_life(life, records) if records else "never there"
        finally:
            life.over = True
            for process in life.processes:
                life.kill(process)
        facts = life.facts
        facts["calls"] += len(life.world.truth.calls)
        facts["effects"] += sum(call.effect for call in life.world.truth.calls)
        facts["doubts"] += sum(isinstance(record.event, ev.Waiting) for record in records)
        facts["gates"] += sum(isinstance(record.event, ev.GateOpened) for record in records)
        facts["gates that opened again"] += sum(
            isinstance(record.event, ev.GateOpened) and record.event.before is not None for record in records
        )
        facts["processes"] += len(life.processes)
        facts["out of budget"] += any(getattr(one.event, "code", "") == "BUDGET_EXCEEDED" for one in records)
        return Lived(seed, dice.drawn, status, facts, len(records))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(whole())
