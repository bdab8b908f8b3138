"""Runs as graphs of LangGraph, as nodes of somebody's graph, and graphs as tools (I5)."""

from __future__ import annotations

import asyncio
import operator
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from tests.adapters.graph_child import CONFIG, tools
from tests.scenarios.places import QUICK, until
from typing_extensions import TypedDict

import rerail
from rerail.factory import SystemClock
from rerail.langgraph import RunState, as_node, build_graph
from rerail.testing import Took, World

ROOT = Path(__file__).resolve().parents[2]
CHAIN = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
GATED = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"], "confirm": "Send it?"}]}


class Thread:
    """A graph over a world of scripted tools, on one thread."""

    def __init__(self, engine: rerail.Engine, world: World, **options: Any) -> None:
        self.engine, self.world = engine, world
        self.graph = build_graph(engine, checkpointer=InMemorySaver(), **options)

    async def __call__(self, given: Any) -> dict[str, Any]:
        told: dict[str, Any] = await self.graph.ainvoke(given, CONFIG)
        return told


@pytest.fixture
async def thread(tmp_path: Path) -> AsyncIterator[Thread]:
    """A thread whose tools are a, b, c and d, of which d must not happen twice."""
    world = World(a=[{"n": 1}], b=[{"n": 2}], c=[{"n": 3}]).option("d", effect="once")
    store = f"sqlite:///{tmp_path}/runs.db"
    async with rerail.Engine(store, world.tools(), QUICK, clock=SystemClock()) as engine:
        yield Thread(engine, world)


# -- Stages, streams, artifacts ------------------------------------------------------------------------------------


async def test_the_stages_come_in_their_order_and_events_are_streamed_once_each(thread: Thread) -> None:
    """I1, I5: planner, then scheduler, executor and reflector in turn; the custom stream is the history."""
    stages, events = [], []
    async for kind, said in thread.graph.astream({"plan": CHAIN}, CONFIG, stream_mode=["updates", "custom"]):
        if kind == "updates":
            stages += list(said)
        else:
            events.append(said)
    assert stages[0] == "planner"
    turns = stages[1:]
    assert turns == ["scheduler", "executor", "reflector"] * (len(turns) // 3) and len(turns) >= 6
    run = (await thread.graph.aget_state(CONFIG)).values["run"]
    assert events == [record.to_dict() for record in await thread.engine.events(run)]


async def test_the_scheduler_says_what_is_due_before_anything_is_called(thread: Thread) -> None:
    """E1, I5: nothing is intended between two stages, so a kill there leaves nothing in doubt."""
    seen = []
    async for state in thread.graph.astream({"plan": CHAIN}, CONFIG, stream_mode="values", interrupt_after="scheduler"):
        seen = state.get("ready", [])
    assert seen == ["a"] and thread.world.order == []
    types = [
        record.type for record in await thread.engine.events((await thread.graph.aget_state(CONFIG)).values["run"])
    ]
    assert "step_started" not in types


async def test_a_step_waits_for_its_own_needs_only(thread: Thread) -> None:
    """X1: a chain goes on while a slow call is under way; the graph is no barrier."""
    thread.world.script["c"] = [Took(60)]
    plan = {"steps": [*CHAIN["steps"], {"id": "c", "tool": "c"}]}
    going = asyncio.ensure_future(thread({"plan": plan, "run_id": "r"}))
    await until(lambda: "b" in thread.world.order)
    await thread.engine.skip("r", "c")
    told = await going
    assert told["verdict"]["success"]


class Added(RunState):
    """Somebody's state, that adds lists."""

    artifacts: Annotated[list[Any], operator.add]


class Newest(RunState):
    """Somebody's state, that keeps the first of each name, were it asked."""

    artifacts: Annotated[list[Any], lambda old, new: [*old, *(item for item in new if item not in old)]]


@pytest.mark.parametrize("state", [RunState, Added, Newest])
async def test_the_state_holds_each_artifact_once(thread: Thread, state: type[Any]) -> None:
    """E6, I5: whatever the reducer does, and though one is made anew: each under its name, with what it is now."""
    plan = {"steps": [*CHAIN["steps"], {"id": "c", "tool": "c", "needs": ["b"]}]}
    thread.world.script["a"] = [{"n": 1}, {"n": 10}]
    thread.world.script["c"] = [{"big": "x" * 5000}]
    graph = build_graph(thread.engine, state=state, checkpointer=InMemorySaver())
    told = await graph.ainvoke({"plan": plan}, CONFIG)
    assert [item["name"] for item in told["artifacts"]] == ["a", "b", "c"]
    assert told["artifacts"][0]["value"] == {"n": 1} and "value" not in told["artifacts"][2]
    assert str(told).count("'n': 2") == 1, "an output stands in one place"
    await thread.engine.retry(told["run"], steps=["a"], force=True)
    again = await graph.ainvoke({"run_id": told["run"]}, CONFIG)
    assert [item["name"] for item in again["artifacts"]] == ["a", "b", "c"]
    assert again["artifacts"][0]["value"] == {"n": 10}


async def test_a_thread_may_run_one_plan_after_the_other(thread: Thread) -> None:
    """I5: each gets a run of its own, and the state tells of the last one alone."""
    first = await thread({"plan": CHAIN})
    second = await thread({"plan": {"steps": [{"id": "c", "tool": "c"}]}})
    assert first["run"] != second["run"] and [item["name"] for item in second["artifacts"]] == ["c"]
    assert thread.world.order == ["a", "b", "c"]


async def test_going_back_in_time_calls_nothing_twice(thread: Thread) -> None:
    """E1, I5: an old checkpoint knows less than the history does, and the history counts."""
    told = await thread({"plan": CHAIN})
    past = [state.config async for state in thread.graph.aget_state_history(CONFIG) if "run" in state.values]
    assert len(past) > 6
    for config in past:
        again = await thread.graph.ainvoke(None, config)
        assert again["run"] == told["run"] and again["verdict"] == told["verdict"]
    assert thread.world.order == ["a", "b"]


async def test_a_graph_without_plan_says_what_it_needs(thread: Thread) -> None:
    """I5: and a plan with faults is refused with all of them (P5)."""
    with pytest.raises(rerail.Refused, match="no plan, no objective"):
        await thread({})
    with pytest.raises(rerail.PlanError) as refused:
        await thread({"plan": {"steps": [{"id": "a", "tool": "no"}, {"id": "a", "tool": "a"}]}})
    assert {fault.code for fault in refused.value.faults} >= {"DUPLICATE_ID"}


# -- People --------------------------------------------------------------------------------------------------------


async def test_a_gate_is_an_interrupt(thread: Thread) -> None:
    """X7, I5: it shows the call that waits; `Command(resume=True)` lets it run."""
    told = await thread({"plan": GATED})
    (asked,) = told["__interrupt__"]
    (waits,) = asked.value["waiting_on"]
    assert (waits["step"], waits["for"], waits["question"]) == ("b", "confirm", "Send it?")
    assert thread.world.order == ["a"]
    told = await thread(Command(resume=True))
    assert told["verdict"]["success"] and thread.world.order == ["a", "b"]


async def test_a_gate_may_be_refused_and_an_answer_that_is_none_is_asked_for_again(thread: Thread) -> None:
    """X7, I5: nothing happens until the answer can be read."""
    await thread({"plan": GATED})
    for answer in ("perhaps", {"b": 3}, {"x": True}):
        told = await thread(Command(resume=answer))
        assert "answer" in told["__interrupt__"][0].value["problem"]
    told = await thread(Command(resume={"b": False}))
    assert told["status"] == "failed" and told["verdict"]["failed_steps"][0]["id"] == "b"
    assert thread.world.order == ["a"]


async def test_several_gates_are_answered_one_by_one_or_at_once(thread: Thread) -> None:
    """X7, I5: what was answered for one stays answered while the other waits."""
    plan = {"steps": [{"id": name, "tool": name, "confirm": True} for name in ("a", "b", "c")]}
    assert len((await thread({"plan": plan}))["__interrupt__"][0].value["waiting_on"]) == 3
    told = await thread(Command(resume={"b": True}))
    assert {item["step"] for item in told["__interrupt__"][0].value["waiting_on"]} == {"a", "c"}
    told = await thread(Command(resume={"a": "skip", "c": {"succeeded": 7}}))
    assert told["verdict"]["success"] and thread.world.order == ["b"]


async def test_a_gate_that_somebody_opened_elsewhere_asks_nobody(thread: Thread) -> None:
    """T7, I5: another process may have answered; the thread goes on when it is asked to."""
    run = (await thread({"plan": GATED}))["run"]
    other = rerail.Engine(thread.engine._parts.store.url, thread.world.tools(), QUICK)
    async with other:
        await other.confirm(run, "b")
        assert (await other.wait(run)).success
    told = await thread(Command(resume=False))
    assert told["verdict"]["success"] and thread.world.order == ["a", "b"]


async def test_an_answer_is_an_answer_to_what_was_asked(thread: Thread) -> None:
    """X7, I5: somebody else answered, and another gate waits by now: that one is asked about, and not let through."""
    gates = [
        {"id": "a", "tool": "a", "confirm": "Wipe A?"},
        {"id": "b", "tool": "b", "needs": ["a"], "confirm": "Wipe B?"},
    ]
    run = (await thread({"plan": {"steps": gates}}))["run"]
    async with rerail.Engine(thread.engine._parts.store.url, thread.world.tools(), QUICK) as other:
        await other.confirm(run, "a")
        assert (await other.wait(run)).status == "waiting"
    told = await thread(Command(resume=True))
    assert [item["step"] for item in told["__interrupt__"][0].value["waiting_on"]] == ["b"]
    assert thread.world.order == ["a"]
    told = await thread(Command(resume=True))
    assert told["verdict"]["success"] and thread.world.order == ["a", "b"]


async def test_a_pause_is_an_interrupt_too(thread: Thread) -> None:
    """X7: whoever paused the run, the thread says so and goes on with any answer."""
    thread.world.script["a"] = [Took(0.2, {"n": 1})]
    going = asyncio.ensure_future(thread({"plan": CHAIN, "run_id": "r"}))
    await until(lambda: thread.world.order)
    await thread.engine.pause("r")
    told = await going
    assert told["__interrupt__"][0].value["waiting_on"][0]["for"] == "paused"
    assert (await thread(Command(resume="go on")))["verdict"]["success"]


async def test_people_are_heard_while_the_graph_stands_still(thread: Thread) -> None:
    """X7: at a breakpoint nobody lets the run go on, and it can be cancelled all the same."""
    async for _ in thread.graph.astream({"plan": CHAIN, "run_id": "r"}, CONFIG, interrupt_before="executor"):
        pass
    await asyncio.wait_for(thread.engine.cancel("r"), 10)
    assert (await asyncio.wait_for(thread.engine.wait("r"), 10)).status == "cancelled"
    assert (await thread(None))["status"] == "cancelled" and thread.world.order == []


async def test_a_run_that_somebody_else_drives_is_looked_at(thread: Thread) -> None:
    """T7, I5: the graph takes no run from a living owner, in this engine or another, and tells how it ended."""
    thread.world.script["a"] = [Took(0.3, {"n": 1})]
    async with rerail.Engine(thread.engine._parts.store.url, thread.world.tools(), QUICK) as other:
        for engine in (thread.engine, other):
            told = await thread({"run_id": await engine.start(CHAIN)})
            assert told["verdict"]["success"]
    assert thread.world.order == ["a", "b"] * 2


# -- Kills ---------------------------------------------------------------------------------------------------------


def stages_of(folder: Path, stages: int) -> tuple[list[str], int]:
    """What a child told of, and how it ended."""
    command = [sys.executable, "-m", "tests.adapters.graph_child", str(folder), str(stages)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.split(), done.returncode


@pytest.mark.parametrize("stages", [2, 3, pytest.param(1, marks=pytest.mark.long)])
async def test_killed_between_stages_it_goes_on_at_the_next_one(tmp_path: Path, stages: int) -> None:
    """E1, E2, I5: with -9, every so many stages, until it is done: no tool twice, and no `once` call in doubt."""
    told: list[str] = []
    for _ in range(20):
        some, code = stages_of(tmp_path, stages)
        told += some
        if code == 0:
            break
    assert code == 0
    assert (tmp_path / "acts.txt").read_text().split() == ["a", "ab", "abc"]
    assert told.count("planner") == 1 and told[0] == "planner", "it goes on, and does not begin again"
    async with rerail.Engine(f"sqlite:///{tmp_path}/runs.db", tools(tmp_path)) as engine:
        (row,) = await engine.list()
        result = await engine.show(row.run_id)
    assert result.success and [step.attempts for step in result.steps.values()] == [1, 1, 1]


# -- Nodes of somebody's graph -------------------------------------------------------------------------------------


class Theirs(TypedDict, total=False):
    """Somebody's state."""

    topic: str
    rerail: dict[str, Any]
    after: str


def theirs(engine: rerail.Engine, plan: Any, **options: Any) -> Any:
    """Somebody's graph, with a run in its middle."""
    builder = StateGraph(Theirs)
    builder.add_node("work", as_node(engine, plan, **options))
    builder.add_node("after", lambda state: {"after": f"{state['topic']}, then"})
    builder.add_edge(START, "work")
    builder.add_edge("work", "after")
    builder.add_edge("after", END)
    return builder.compile(checkpointer=InMemorySaver())


async def test_a_run_is_a_node_of_somebodys_graph(thread: Thread) -> None:
    """I5: the plan is made of the state, the verdict and the artifacts come back."""
    graph = theirs(thread.engine, lambda state: {"steps": [{"id": "x", "tool": "d", "args": {"t": state["topic"]}}]})
    told = await graph.ainvoke({"topic": "rails"}, CONFIG)
    assert told["rerail"]["verdict"]["success"] and told["after"] == "rails, then"
    assert told["rerail"]["artifacts"][0]["value"] == {"tool": "d", "t": "rails"}


async def test_a_node_may_say_what_it_makes_of_the_result(thread: Thread) -> None:
    """I5: `update` sees the whole result; it may be async."""

    async def update(result: rerail.RunResult) -> dict[str, Any]:
        return {"topic": f"{result.steps['b'].output['n']} steps"}

    told = await theirs(thread.engine, CHAIN, update=update).ainvoke({"topic": "x"}, CONFIG)
    assert told["topic"] == "2 steps"


async def test_a_gate_inside_a_node_interrupts_the_whole_graph(thread: Thread) -> None:
    """I5, X7: two gates, one after the other; each answer is for its own."""
    plan = {
        "steps": [{"id": "a", "tool": "a", "confirm": True}, {"id": "b", "tool": "b", "needs": ["a"], "confirm": True}]
    }
    graph = theirs(thread.engine, plan)
    for step in ("a", "b"):
        told = await graph.ainvoke({"topic": "x"} if step == "a" else Command(resume=True), CONFIG)
        assert told["__interrupt__"][0].value["waiting_on"][0]["step"] == step
    told = await graph.ainvoke(Command(resume=False), CONFIG)
    assert told["rerail"]["verdict"]["failed_steps"][0]["id"] == "b" and thread.world.order == ["a"]


async def test_a_node_that_is_run_again_goes_on_with_its_run(thread: Thread) -> None:
    """E1, I5: somebody's graph is stopped in the middle of the node, and resumed: nothing is called twice."""
    thread.world.script["b"] = [Took(60)]
    graph = theirs(thread.engine, CHAIN)
    going = asyncio.ensure_future(graph.ainvoke({"topic": "x"}, CONFIG, durability="sync"))
    await until(lambda: "b" in thread.world.order)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    (row,) = await thread.engine.list()
    await thread.engine.skip(row.run_id, "b")
    told = await graph.ainvoke(None, CONFIG)
    assert told["after"] == "x, then" and told["rerail"]["verdict"]["run_id"] == row.run_id
    assert thread.world.order == ["a", "b"] and len(await thread.engine.list()) == 1


async def test_a_node_that_is_retried_goes_on_with_its_run(thread: Thread) -> None:
    """E1, I5: what failed was behind the run; LangGraph tries the whole node again, and its run is found done."""
    tries = []

    def update(result: rerail.RunResult) -> dict[str, Any]:
        tries.append(result.run_id)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return {"topic": "done"}

    builder = StateGraph(Theirs)
    again = RetryPolicy(max_attempts=2, initial_interval=0.01)
    builder.add_node("work", as_node(thread.engine, CHAIN, update=update), retry_policy=again)
    builder.add_edge(START, "work")
    told = await builder.compile(checkpointer=InMemorySaver()).ainvoke({"topic": "x"}, CONFIG)
    assert told["topic"] == "done" and len(tries) == 2 and tries[0] == tries[1]
    assert thread.world.order == ["a", "b"]


# -- Graphs as tools -----------------------------------------------------------------------------------------------


class Count(TypedDict, total=False):
    """What the graphs below count."""

    n: int
    seen: list[str]


def counting(world: list[str], *, broken: list[bool] | None = None, asks: bool = False, saved: bool = False) -> Any:
    """A graph of two nodes, of which the second may break, or ask a person."""

    def one(state: Count) -> Count:
        world.append("one")
        return {"n": state["n"] + 1}

    async def two(state: Count) -> Count:
        world.append("two")
        if broken and broken.pop():
            raise ConnectionRefusedError("not yet")
        return {"n": interrupt("how many?") if asks else state["n"] * 10}

    builder = StateGraph(Count)
    builder.add_node("one", one)
    builder.add_node("two", two)
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    return builder.compile(checkpointer=InMemorySaver() if saved else None, name="count")


async def ran(graph: Any, **options: Any) -> rerail.RunResult:
    plan = {"steps": [{"id": "x", "tool": "count", "args": {"n": 1}}]}
    async with rerail.Engine("memory://", [rerail.tool(graph, **options)], QUICK) as engine:
        return await engine.run(plan)


async def test_a_graph_is_a_tool() -> None:
    """I5, M2: its input is the arguments, checked against its schema; its output is the step's."""
    calls: list[str] = []
    result = await ran(counting(calls))
    assert result.steps["x"].output == {"n": 20} and calls == ["one", "two"]
    made = rerail.tool(counting(calls), description="Count.")
    assert made.spec.effect == "once" and made.spec.description == "Count." and made.spec.name == "count"
    assert [str(fault.path[0]) for fault in made.spec.schema.faults({"n": "one"})] == ["n"]


async def test_a_graph_with_a_checkpointer_goes_on_where_it_stopped() -> None:
    """E2, I5: the call that is tried again has the same key, and the key is the graph's thread."""
    calls: list[str] = []
    result = await ran(counting(calls, broken=[True], saved=True), effect="repeatable")
    assert result.success and result.steps["x"].output == {"n": 20}
    assert calls == ["one", "two", "two"]
    without: list[str] = []
    await ran(counting(without, broken=[True]), effect="repeatable")
    assert without == ["one", "two", "one", "two"]


async def test_a_graph_that_came_to_its_end_gives_what_it_gave() -> None:
    """E2: its answer was lost, and it is called again with the same key: nothing happens a second time."""
    calls: list[str] = []
    tool = rerail.tool(counting(calls, saved=True))

    class Key:
        key = "k"

    assert await tool.call({"n": 1}, Key()) == await tool.call({"n": 1}, Key()) == {"n": 20}
    assert calls == ["one", "two"]


async def test_a_graph_that_asks_a_person_fails_as_a_tool_and_says_what_it_asked() -> None:
    """X3: there is nobody to ask, and asking again would not help."""
    result = await ran(counting([], asks=True, saved=True))
    assert not result.success and "how many?" in result.steps["x"].error["message"]
    assert result.steps["x"].attempts == 1


# -- Without the extra ---------------------------------------------------------------------------------------------


def test_without_the_extra_it_says_which_one_to_install() -> None:
    """I5: importing `rerail.langgraph` is no mistake; using it is, and the message says what to do."""
    code = (
        "import sys; sys.modules['langgraph'] = None\n"
        "import rerail, rerail.langgraph\n"
        "try: rerail.langgraph.build_graph(None)\n"
        "except rerail.SettingsError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "pip install '.[langgraph]'" in done.stdout, done.stderr
