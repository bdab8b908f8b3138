"""Plans that others wrote, and random ones: which steps run, which are skipped, which run again, how long it takes.

The oracles here are plain reachability, written as naively as possible, and know nothing of the engine.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.tools.functions import tool
from rerail.api import Engine
from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.decide import Call, Note, decide
from rerail.kernel.events import Error
from rerail.kernel.fold import evolve
from rerail.kernel.policy import Policy
from rerail.kernel.state import State
from rerail.kernel.verdict import status_of
from rerail.plan.model import Plan
from rerail.plan.step import Fault, Need, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.testing.virtual_time import VirtualClock, virtual_run

PLAIN = Policy(concurrency=0, max_step_retries=0, max_consecutive_failures=0, max_retry_rounds=1)
BROKE = Error("TOOL_FAILED", Category.TOOL, "it broke")


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The plans of a file, one JSON object a line."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def as_plan(line: Mapping[str, Any]) -> Plan:
    """A line of field data as the data's own README says to read it."""
    steps = [
        {
            "id": step["id"],
            "tool": step["tool"],
            "args": {"args": step["args"]} if isinstance(step["args"], list) else step["args"],
            "depends_on": step["depends_on"],
        }
        for step in line["steps"]
    ]
    return Plan.load({"objective": line["goal"], "steps": steps})


# -- The oracle: plain reachability -------------------------------------------------------------------------------


def reach(start: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Everything that can be reached, the start included."""
    found = set(start)
    todo = list(found)
    while todo:
        for other in edges.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


class Oracle:
    """What the rules say of a plan of plain needs, from who succeeded and who failed alone."""

    def __init__(self, needs: Mapping[str, list[str]]) -> None:
        self.needs = needs
        self.dependents: dict[str, list[str]] = {}
        for step, wanted in needs.items():
            for need in wanted:
                self.dependents.setdefault(need, []).append(step)
        self.good: set[str] = set()
        self.bad: set[str] = set()

    def ready(self) -> set[str]:
        """Not ended, and every need succeeded."""
        ended = self.good | self.bad
        return {step for step, needs in self.needs.items() if step not in ended and all(n in self.good for n in needs)}

    def skipped(self) -> set[str]:
        """Behind a failed step."""
        return reach(self.bad, self.dependents) - self.bad

    def retry_set(self) -> list[str]:
        """The failed steps and everything behind them, in plan order."""
        chosen = reach(self.bad, self.dependents)
        return [step for step in self.needs if step in chosen]


def compare(state: State, oracle: Oracle) -> None:
    """The engine's ready and skip sets are the oracle's."""
    statuses = {track.id: status_of(state, track) for track in state.tracks.values()}
    running = {step for step, (status, _) in statuses.items() if status == "running"}
    ready = {track.id for track in state.ready.members.values()}
    assert ready | running == oracle.ready()
    skipped = {step for step, (_, code) in statuses.items() if code == "SKIP_UPSTREAM_FAILED"}
    assert skipped == oracle.skipped()
    assert {step for step, (status, _) in statuses.items() if status == "failed"} == oracle.bad


def drive(plan: Plan, chance: random.Random, share: float, looks: int = 4) -> None:
    """Fold a whole run of two rounds, its outcomes drawn at random, and compare with the oracle on the way."""
    oracle = Oracle({step.id: [need.step for need in step.needs] for step in plan.steps})
    tools = {step.tool: ToolSpec(step.tool) for step in plan.steps}
    state = State("run")
    history = _Folded(state)
    history.add(ev.RunStarted(policy=PLAIN), ev.PlanAccepted(plan))
    while state.rest is None:
        calls: list[Call] = []
        for action in decide(state, tools, 0.0):
            if isinstance(action, Note):
                for event in action.events:
                    if isinstance(event, ev.RetryBegin):
                        _check_retry(event, oracle)
                    history.add(event)
            else:
                assert isinstance(action, Call)
                calls.append(action)
        if not calls:
            continue
        assert {call.step for call in calls} == oracle.ready(), "everything that is ready starts, nothing else"
        history.add(*(ev.StepStarted(call.step, call.attempt, call.tool) for call in calls))
        chance.shuffle(calls)
        watched = set(chance.sample(range(len(calls)), min(looks, len(calls))))
        for at, call in enumerate(calls):
            if chance.random() < share:
                oracle.bad.add(call.step)
                history.add(ev.StepFailed(call.step, call.attempt, BROKE))
                history.settle(tools)
            else:
                oracle.good.add(call.step)
                history.add(ev.StepSucceeded(call.step, call.attempt))
            if at in watched:
                compare(state, oracle)
    compare(state, oracle)
    assert state.rest.success is not bool(oracle.bad)


def _check_retry(begin: ev.RetryBegin, oracle: Oracle) -> None:
    assert set(begin.roots) == oracle.bad
    assert list(begin.chain) == oracle.retry_set()
    assert begin.chain_size == len(begin.chain)
    oracle.bad = set()


class _Folded:
    """A history that grows event by event."""

    def __init__(self, state: State) -> None:
        self.state = state

    def add(self, *events: ev.Event) -> None:
        for event in events:
            evolve(self.state, event, 0.0, self.state.seq + 1)

    def settle(self, tools: Mapping[str, ToolSpec]) -> None:
        """Write down what follows at once from a failure."""
        while self.state.hurt:
            for action in decide(self.state, tools, 0.0):
                assert isinstance(action, Note)
                self.add(*action.events)


@st.composite
def graphs(draw: st.DrawFn) -> Plan:
    """A random graph of plain needs, its steps in any order."""
    size = draw(st.integers(1, 24))
    ids = [f"s{i}" for i in range(size)]
    wanted = [draw(st.sets(st.sampled_from(ids[:i]), max_size=4)) if i else set() for i in range(size)]
    steps = [Step(ids[i], f"t{i % 3}", {}, tuple(Need(n) for n in sorted(wanted[i]))) for i in range(size)]
    return Plan("random", tuple(draw(st.permutations(steps))))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.3, 0.8]))
def test_sets_equal_the_oracle_on_random_graphs(plan: Plan, chance: random.Random, share: float) -> None:
    """R1, R2, X1, X2, P6: ready, skip and retry set are plain reachability, in the first round and the next."""
    assert plan.check() == []
    drive(plan, chance, share, looks=6)


@pytest.mark.parametrize("name", ["wfinstances_plans", "asynchow_plans", "taskbench_llm_predicted_plans"])
def test_sets_equal_the_oracle_on_plans_from_the_field(field_data: Path, name: str) -> None:
    """R1, R2, X1, X2, P3, P6: the same on every valid plan of the field data, workflows of 2,000 steps too."""
    chance = random.Random(name)
    driven = 0
    for line in lines(field_data, name):
        plan = as_plan(line)
        wrong = expected(line, [step.tool for step in plan.steps])
        assert bool(plan.check()) is any(wrong.values())
        if not any(wrong.values()):
            drive(plan, chance, chance.choice([0.0, 0.02, 0.2]), looks=1)
            driven += 1
    assert driven == {"wfinstances_plans": 167, "asynchow_plans": 1598}.get(name, 1856)


# -- The validator on plans that language models wrote ------------------------------------------------------------


def references(value: Any) -> Iterator[str]:
    """Every text inside a value that holds the sign of a reference."""
    if isinstance(value, str):
        if "${" in value:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def on_a_cycle(needs: Mapping[str, list[str]]) -> set[str]:
    """The steps that need themselves, over others: each step's reach, straight from the definition."""
    others = {step: [need for need in wanted if need != step] for step, wanted in needs.items()}
    known = _orderable(others)
    return {step for step in needs if step not in known and step in reach(others[step], others)}


def _orderable(needs: Mapping[str, list[str]]) -> set[str]:
    """Steps that can be put in an order, by sweeping over the plan until nothing new is found; none is on a cycle."""
    placed: set[str] = set()
    left = list(needs)
    while new := [step for step in left if all(need in placed or need not in needs for need in needs[step])]:
        placed.update(new)
        left = [step for step in left if step not in placed]
    return placed


def expected(line: Mapping[str, Any], tools: list[str]) -> dict[str, Any]:
    """What is wrong with a plan, found by looking at each step in the plainest way."""
    needs = {step["id"]: step["depends_on"] for step in line["steps"]}
    return {
        "UNKNOWN_TOOL": sorted(step["id"] for step in line["steps"] if step["tool"] not in tools),
        "UNKNOWN_NEED": sorted(step for step, wanted in needs.items() for n in wanted if n not in needs),
        "SELF_NEED": sorted(step for step, wanted in needs.items() if step in wanted),
        "UNKNOWN_REFERENCE": sorted(step["id"] for step in line["steps"] for _ in references(step["args"])),
        "cyclic": on_a_cycle(needs),
    }


def path_of(fault: Fault) -> list[str]:
    """The path that a cycle's message shows."""
    shown = fault.message.partition("circle: ")[2].partition(";")[0]
    return shown.split(" → ")


def test_each_plan_of_a_language_model_gets_its_precise_verdict(field_data: Path) -> None:
    """P3, P5, P6: on 1,971 model-written plans every fault is found, at its step, with the path of every cycle."""
    known = json.loads((field_data / "taskbench_tools.json").read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    steps_with_references = 0
    plans = lines(field_data, "taskbench_llm_predicted_plans")
    for line in plans:
        tools = known[line["source"].split(":")[1]]
        wrong = expected(line, tools)
        faults = as_plan(line).check({name: ToolSpec(name) for name in tools})
        found: dict[str, list[str]] = {}
        for fault in faults:
            found.setdefault(fault.code, []).append(fault.step)
        cyclic = wrong.pop("cyclic")
        for code, steps in wrong.items():
            assert sorted(found.pop(code, [])) == steps, (line["plan_id"], code)
        assert bool(found.pop("CYCLE", [])) is bool(cyclic), line["plan_id"]
        assert not found, (line["plan_id"], found)
        _check_paths(line, faults, cyclic)
        steps_with_references += sum(any(references(step["args"])) for step in line["steps"])
        seen["plans"] += 1
        seen["dangling"] += bool(wrong["UNKNOWN_NEED"])
        seen["self"] += bool(wrong["SELF_NEED"])
        seen["cycle"] += bool(cyclic or wrong["SELF_NEED"])
        seen["unknown tool"] += bool(wrong["UNKNOWN_TOOL"])
        seen["good"] += not faults
    assert seen["plans"] == 1971
    assert (seen["dangling"], seen["cycle"], seen["self"], steps_with_references) == (36, 32, 8, 139)
    assert seen["unknown tool"] == 662


def _check_paths(line: Mapping[str, Any], faults: list[Fault], cyclic: set[str]) -> None:
    """Every shown path is a real circle, and every group of steps on a circle has one."""
    needs = {step["id"]: step["depends_on"] for step in line["steps"]}
    shown: set[str] = set()
    for fault in faults:
        if fault.code == "CYCLE":
            path = path_of(fault)
            assert path[0] == path[-1]
            assert len(path) > 2
            assert all(before in needs[after] for before, after in pairwise(path)), path
            shown |= set(path)
    assert shown <= cyclic
    for step in cyclic:
        group = {other for other in cyclic if other in reach([step], needs) and step in reach([other], needs)}
        assert group & shown, (line["plan_id"], step)


@pytest.mark.parametrize("name", ["asynchow_plans", "taskbench_llm_predicted_plans"])
def test_every_tool_unknown_is_said_at_every_step(field_data: Path, name: str) -> None:
    """P5: with no tools at all each step of each plan has its fault, and nothing crashes."""
    for line in lines(field_data, name):
        faults = as_plan(line).check({})
        assert sum(fault.code == "UNKNOWN_TOOL" for fault in faults) == len(line["steps"])


# -- AsyncHow: the makespan is the optimum ------------------------------------------------------------------------

# For two plans the data's own optimum is not the critical path, at the shortest durations only.
NOT_THE_CRITICAL_PATH = {"asynchow-829", "asynchow-1113"}


@pytest.mark.parametrize(("end", "apart"), [(0, NOT_THE_CRITICAL_PATH), (1, set())], ids=["shortest", "longest"])
def test_the_makespan_is_the_optimum(field_data: Path, end: int, apart: set[str]) -> None:
    """X1: no levels, no barriers: with unbounded concurrency, 1,596 everyday plans take exactly their optimum."""
    durations: dict[str, float] = {}
    hour = 3600.0  # a virtual second stands for an hour: all plans together take centuries

    async def human_step(ref: str) -> None:
        await asyncio.sleep(durations[ref] / hour)

    unbounded = {"run": {"concurrency": 0, "step_timeout": 1e12}, "reflection": {"max_step_retries": 0}}
    plans = lines(field_data, "asynchow_plans")

    async def main() -> dict[str, tuple[float, float]]:
        loop = asyncio.get_running_loop()
        wrong: dict[str, tuple[float, float]] = {}
        async with Engine(MemoryStore(), [tool(human_step)], unbounded, clock=VirtualClock()) as engine:
            for line in plans:
                durations.clear()
                durations.update({step["id"]: step["duration_s"][end] for step in line["steps"]})
                steps = [
                    Step(step["id"], "human_step", {"ref": step["id"]}, tuple(Need(n) for n in step["depends_on"]))
                    for step in line["steps"]
                ]
                before = loop.time()
                result = await engine.run(Plan(line["goal"], tuple(steps)))
                took, best = (loop.time() - before) * hour, line["optimal_makespan_s"][end]
                assert result.success
                if took != pytest.approx(best, rel=1e-6, abs=0.01):
                    wrong[line["plan_id"]] = (took, best)
        return wrong

    wrong = virtual_run(main)
    assert len(plans) == 1598
    assert set(wrong) == apart, wrong
