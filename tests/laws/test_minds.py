"""The engine stays in charge: whatever a mind says, and whatever tools do, the same laws hold (M4, H4, H5, V3, V4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.laws.adversary import JUNK, NUMBERS, UNKNOWN_TOOL, Adversary, AsMind, Outcomes
from tests.laws.test_laws import settle
from tests.laws.worlds import SCALE, plans
from tests.simulation.invariants import check_history, check_rest, snapshot
from tests.simulation.world import tool_names

import rerail
from rerail.adapters.models.mind import ModelMind, shipped
from rerail.adapters.tools.functions import tool
from rerail.api import Engine
from rerail.kernel import events as ev
from rerail.kernel.fold import evolve, fold
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase
from rerail.mind.guardrails import KEPT_IN_A_RUN
from rerail.plan.model import Plan
from rerail.plan.step import Effect, definition
from rerail.testing.virtual_time import VirtualClock, virtual_run

LAW = settings(max_examples=150 * SCALE, deadline=None, suppress_health_check=list(HealthCheck))
RUN = "the-run"

SETTINGS = st.fixed_dictionaries({
    "run": st.fixed_dictionaries({
        "concurrency": st.sampled_from([1, 3]), "max_attempts": st.sampled_from([None, None, 6]),
        "max_tokens": st.sampled_from([None, None, 100]),
    }),
    "retry": st.fixed_dictionaries({"max_retry_rounds": st.integers(0, 2), "max_wait": st.just(20)}),
    "reflection": st.fixed_dictionaries({
        "mode": st.sampled_from(["model", "hybrid", "rules"]), "max_step_retries": st.integers(0, 3),
        "max_single_step_repairs": st.integers(0, 2), "max_task_replanning_attempts": st.integers(0, 3),
        "max_consecutive_failures": st.sampled_from([0, 3]), "replan": st.sampled_from(["keep", "full"]),
    }),
    "evaluation": st.fixed_dictionaries({"shortcut": st.booleans()}),
})  # fmt: skip


class Case:
    """One run among adversaries: a plan, tools some of which act once, and somebody who says anything."""

    def __init__(self, plan: Plan, once: int, given: Mapping[str, Any], data: st.DataObject) -> None:
        self.plan, self.given = plan, given
        self.outcomes = Outcomes(data.draw(NUMBERS, "outcomes"))
        names = [*tool_names(plan), "extra", "pay"]
        self.once = {name for number, name in enumerate(names) if once >> number % 8 & 1} | {"pay"}
        self.tools = [self._tool(name) for name in names]
        self.adversary = Adversary(plan, names, data.draw(NUMBERS, "answers"), data.draw(JUNK, "junk"))
        self.as_model = data.draw(st.booleans(), "as a model")
        self.mind: Any = AsMind(self.adversary)
        if self.as_model:
            self.mind = ModelMind(
                self.adversary, shipped, reasks=data.draw(st.integers(0, 2), "reasks"), patience=100.0
            )
        self.engine: Engine | None = None

    def _tool(self, name: str) -> Any:
        async def call(ctx: rerail.Context, **args: Any) -> Any:
            return await self.outcomes.answer(name, args, ctx)

        return tool(call, name=name, effect="once" if name in self.once else "repeatable")

    @property
    def gated(self) -> set[str]:
        """Tools that only a person may let through: each belongs to one step of the plan."""
        steps = [step for step in self.plan.steps if step.confirm]
        return {name for step in steps for name in tool_names(Plan("", (step,)))}


def drive(case: Case, data: st.DataObject, *, people: bool) -> None:
    async def main() -> None:
        async with Engine("memory://", case.tools, case.given, case.mind, clock=VirtualClock()) as engine:
            case.engine = engine
            await engine.start(case.plan, run_id=RUN)
            live = engine._live[RUN].loop.state
            result = await engine.wait(RUN)
            records = await engine.events(RUN)
            event(result.status)
            assert snapshot(fold(RUN, records)) == snapshot(live), "replay equals live"
            assert result.status in ("completed", "failed", "waiting"), "the run ends, or waits for a person"
            assert all(item["for"] in ("confirm", "in_doubt") for item in result.waiting_on)
            check(case, records, alone=True)
            if people:
                await settle(engine, RUN, data.draw)
                records = await engine.events(RUN)
                check_rest(check(case, records, alone=False), records)

    virtual_run(lambda: asyncio.wait_for(main(), 10**9))


@LAW
@given(plans(5), st.integers(0, 255), SETTINGS, st.data())
def test_no_mind_goes_beyond(plan: Plan, once: int, given: Mapping[str, Any], data: st.DataObject) -> None:
    """H4, H5, H7, H8, M4, V3, V4, X5: any answers, any failures: it ends, within its budgets, gates shut, effects once,
    with the tools it was given and the verdict of the facts."""
    drive(Case(plan, once, given, data), data, people=False)


@LAW
@given(plans(4), st.integers(0, 255), SETTINGS, st.data())
def test_no_mind_goes_beyond_what_people_allowed(
    plan: Plan, once: int, given: Mapping[str, Any], data: st.DataObject
) -> None:
    """X7, T2, M4: a person's yes is to one call: what a mind makes of the step afterwards has to be asked for again."""
    drive(Case(plan, once, given, data), data, people=True)


# -- What must hold ----------------------------------------------------------------------------------------------------


def check(case: Case, records: list[ev.Record], *, alone: bool) -> State:
    """Every law of minds that can be read off a history and the calls that were really made."""
    state = check_history(records, Policy(), people=True)
    check_tools(case, records)
    check_gates(case, records, alone=alone)
    check_budgets(case, records, alone=alone)
    check_authorship(case, state)
    check_verdicts(records)
    if alone:
        check_once(case, records)
    return state


def check_tools(case: Case, records: list[ev.Record]) -> None:
    """No tool outside the given set is called, and a mind makes no tool safer than it is."""
    author = {step.id: step for step in case.plan.steps}
    for record in records:
        if isinstance(record.event, ev.StepStarted):
            started = record.event
            assert started.tool != UNKNOWN_TOOL
            assert started.tool in {one.spec.name for one in case.tools}
            own = author.get(started.step)
            if own is None or started.tool not in tool_names(Plan("", (own,))):
                assert started.effect is Effect.ONCE or started.tool not in case.once, "a once tool stays one"


def check_gates(case: Case, records: list[ev.Record], *, alone: bool) -> None:
    """Behind a gate nothing is called before a person agreed to that very call."""
    state = State(RUN)
    agreed: set[str] = set()
    for record in records:
        match record.event:
            case ev.Acted(action="confirm"):
                agreed.add(record.step)
            case ev.Recovered(by="rules"):
                pass
            case ev.Recovered(rung=Rung.ADJUST | Rung.ALTERNATIVE | Rung.REPAIR):
                agreed.discard(record.step)
            case ev.Replanned():
                for step in record.course.steps:
                    track = state.tracks.get(step.id)
                    if track is None or definition(track.step) != definition(step):
                        agreed.discard(step.id)
            case ev.StepStarted():
                step = state.tracks[record.step].step
                assert not step.confirm or record.step in agreed, "a gate was passed"
                assert record.tool not in case.gated or record.step in agreed, "a gate was walked around"
                assert not alone or record.tool not in case.gated
        evolve(state, record.event, record.at, record.seq)


def check_once(case: Case, records: list[ev.Record]) -> None:
    """What acted, or may have acted, does not act again: same tool, same arguments, under whatever step id."""
    happened: dict[bytes, str] = {}
    calls: dict[tuple[str, int], ev.StepStarted] = {}
    for record in records:
        if isinstance(record.event, ev.StepStarted):
            calls[record.step, record.attempt] = record.event
            made = call_of(case, record.step, record.attempt)
            assert made not in happened, f"{record.step} repeats what {happened[made]} did"
        elif may_have_acted(record.event) and calls[record.step, record.attempt].effect is Effect.ONCE:
            happened[call_of(case, record.step, record.attempt)] = record.step


def may_have_acted(event: ev.Event) -> bool:
    return isinstance(event, ev.StepSucceeded) or (isinstance(event, ev.StepFailed) and event.called and event.lost)


def call_of(case: Case, step: str, attempt: int) -> bytes:
    """A call as it was really made."""
    return msgspec.json.encode(case.outcomes.calls[step, attempt], order="deterministic")


def check_budgets(case: Case, records: list[ev.Record], *, alone: bool) -> None:
    """Every budget is counted here again, from the events alone."""
    limits = case.engine.settings if case.engine is not None else rerail.Settings()
    author = {step.id: step.retries for step in case.plan.steps}
    calls: Counter[str] = Counter()
    repairs: Counter[str] = Counter()
    rounds = replans = starts = 0
    for record in records:
        match record.event:
            case ev.StepStarted(rung=rung):
                starts += 1
                calls[record.step] += rung is not Rung.FALLBACK
                retries = author.get(record.step)
                most = limits.reflection.max_step_retries if retries is None else retries
                assert not alone or calls[record.step] <= 1 + most, "retries of a step"
            case ev.RetryScheduled(not_now=True):
                calls[record.step] -= 1
            case ev.RetryBegin():
                rounds += record.automatic
                calls.clear()
                repairs.clear()
            case ev.Recovered(rung=Rung.REPAIR):
                calls[record.step] = 0
                repairs[record.step] += 1
            case ev.Replanned():
                replans += 1
                calls.clear()
                repairs.clear()
            case ev.Declined(late=False) | ev.PlanRejected() if record.question:
                repairs[record.step] += record.question == "repair"
                replans += record.question == "replan"
        assert not alone or max(repairs.values(), default=0) <= limits.reflection.max_single_step_repairs
    assert replans <= limits.reflection.max_task_replanning_attempts
    assert rounds <= limits.retry.max_retry_rounds
    assert limits.run.max_attempts is None or starts <= limits.run.max_attempts
    if case.as_model and limits.run.max_tokens is not None:
        check_tokens(records, limits.run.max_tokens)


def check_tokens(records: list[ev.Record], most: int) -> None:
    """No model is called once the budget is known to be used up: neither for a new question, nor for an old one."""
    known: list[tuple[float, int]] = []  # when tokens became known, and how many
    batch: list[ev.Record] = []  # the calls of one question are written down together
    for record in [*records, None]:
        here = record is not None and isinstance(record.event, ev.Consulted)
        if batch and not (here and (record.question, record.step) == (batch[0].question, batch[0].step)):
            began = batch[0].at - sum(call.elapsed for call in batch)
            spent = sum(tokens for at, tokens in known if at < began - 1e-6)
            for call in batch:
                assert spent < most, "a model was called past the budget"
                spent += call.input_tokens
            known += [(call.at, call.input_tokens) for call in batch]
            batch = []
        if here:
            batch.append(record)


def check_authorship(case: Case, state: State) -> None:
    """What is not a mind's to say is as the plan's author said, in every step there is."""
    author = {step.id: step for step in case.plan.steps}
    bare = rerail.Step("x", "x")
    for track in state.tracks.values():
        own = author.get(track.id, bare)
        for name in KEPT_IN_A_RUN:
            assert getattr(track.step, name) == getattr(own, name), (track.id, name)
        assert not own.confirm or track.step.confirm == own.confirm, track.id


def check_verdicts(records: list[ev.Record]) -> None:
    """A judge lowers, and never raises; a step that failed and matters is never part of a success."""
    state = State(RUN)
    for record in records:
        if isinstance(record.event, ev.Evaluation | ev.Done):
            failed = [track for track in state.tracks.values() if track.phase in (Phase.FAILED, Phase.DOUBT)]
            assert not (failed and record.success), "a failed step is no success"
            assert not record.complete or record.success, "complete is never more than success"
        evolve(state, record.event, record.at, record.seq)
