"""Laws that hold for any plan, any faults, any crash point, any durations."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.laws.worlds import SCALE, Chaos, Died, plans, tools_for
from tests.simulation.invariants import check_history, check_rest, once_repeats, snapshot

from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.kernel import events as ev
from rerail.kernel.decide import decide
from rerail.kernel.fold import fold
from rerail.kernel.policy import Policy
from rerail.plan.model import Plan
from rerail.ports import Batch
from rerail.testing.virtual_time import VirtualClock, virtual_run

LAW = settings(max_examples=150 * SCALE, deadline=None, suppress_health_check=list(HealthCheck))
SMALL = {"run": {"concurrency": 3}, "retry": {"max_wait": 600}}


async def settle(engine: Engine, run: str, draw: Any, most: int = 12) -> None:
    """Answer every gate and doubt until the run is at rest."""
    for _ in range(most):
        result = await engine.wait(run)
        if result.status != "waiting":
            return
        for item in result.waiting_on:
            if item["for"] == "confirm":
                await engine.confirm(run, item["step"], refuse=draw(st.booleans()))
            elif item["for"] == "in_doubt":
                how = draw(st.sampled_from([{"failed": True}, {"rerun": True}, {"succeeded": {"by": "hand"}}]))
                await engine.resolve(run, item["step"], **how)
            break
    await engine.cancel(run)
    await engine.wait(run)


@LAW
@given(plans(), st.data())
def test_every_run_ends_and_replays(plan: Plan, data: st.DataObject) -> None:
    """X3, X5, H4, V1, V2, R3: every run ends; replay equals live; indexes equal their definitions; budgets hold."""

    async def main() -> None:
        chaos = Chaos(data.draw)
        async with Engine("memory://", tools_for(plan, chaos), SMALL, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="the-run")  # jitter is seeded by the id
            live = engine._live[run].loop.state
            await engine.wait(run)
            records = await engine.events(run)
            assert snapshot(fold(run, records)) == snapshot(live), "replay equals live"
            await settle(engine, run, data.draw)
            records = await engine.events(run)
            state = check_history(records, Policy(), people=True)
            check_rest(state, records)
            assert not once_repeats(records, state)
            assert decide(state, {}, state.at) == []
            if chaos.over is not None:
                raise chaos.over

    virtual_run(lambda: asyncio.wait_for(main(), 10**7))


@LAW
@given(plans(), st.data())
def test_unattended_runs_keep_their_budgets(plan: Plan, data: st.DataObject) -> None:
    """H4, X1: without people, no step is called more often than its budget, and concurrency is bounded."""

    async def main() -> None:
        chaos = Chaos(data.draw)
        async with Engine("memory://", tools_for(plan, chaos), SMALL, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="the-run")  # jitter is seeded by the id
            await engine.wait(run)
            check_history(await engine.events(run), Policy())

    virtual_run(lambda: asyncio.wait_for(main(), 10**7))


class DyingStore(MemoryStore):
    """A store under which the process dies at the n-th append: just before it, or just after it became durable."""

    def __init__(self, appends: int, *, after: bool) -> None:
        super().__init__()
        self.left, self.after = appends, after

    async def append(self, batch: Batch) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Died
        await super().append(batch)
        if self.left == 0:
            raise Died


@LAW
@given(plans(), st.data(), st.integers(1, 25), st.booleans())
def test_any_crash_resumes(plan: Plan, data: st.DataObject, appends: int, after: bool) -> None:
    """E1, E2, E3: killed at any append, a resumed run never calls a finished step again, and ends."""
    store = DyingStore(appends, after=after)

    async def first() -> None:
        async with Engine(store, tools_for(plan, Chaos(data.draw)), SMALL, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="the-run")
            await engine.wait(run)

    with contextlib.suppress(Died):
        virtual_run(first)
    store.left = 0  # the next process lives

    async def second() -> None:
        async with Engine(store, tools_for(plan, Chaos(data.draw)), SMALL, clock=VirtualClock(1_800_000_000)) as engine:
            before = await engine.events("the-run")
            if not before:
                return  # it died before the run was there
            if (await engine.show("the-run")).status == "running":
                await engine.begin_resume("the-run")
            await settle(engine, "the-run", data.draw)
            records = await engine.events("the-run")
            assert records[: len(before)] == before, "no acknowledged event is lost"
            state = check_history(records, Policy(), people=True)
            check_rest(state, records)
            assert not once_repeats(records, state)
            check_nothing_again(before, records)

    virtual_run(lambda: asyncio.wait_for(second(), 10**7))


def check_nothing_again(before: list[Any], records: list[Any]) -> None:
    """A step that had finished before the crash runs again only where a change of course asked for it."""
    finished = {e.step for e in before if isinstance(e.event, ev.StepSucceeded)}
    touched: set[str] = set()
    for record in records:
        event = record.event
        if isinstance(event, ev.RetryBegin):
            touched |= set(event.chain)
        elif isinstance(event, ev.Acted | ev.Recovered | ev.ArtifactLost):
            touched |= {event.step, *event.course.touched}
        elif isinstance(event, ev.StepRenewed):
            touched.add(event.step)
        elif isinstance(event, ev.StepStarted) and record.seq > len(before):
            assert event.step not in finished or event.step in touched, "a finished step is not called again"
