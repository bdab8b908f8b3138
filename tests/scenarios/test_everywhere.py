"""The named scenarios that must hold on every store, and through LangGraph: the same functions, in each place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from tests.scenarios.places import ByGraph, Place, until

from rerail.adapters.stores.memory import MemoryStore
from rerail.errors import PlanError
from rerail.testing import Took, World

LONG = 100  # seconds: whoever is called for so long is there to be killed
CHAIN = {
    "steps": [
        {"id": "a", "tool": "a"},
        {"id": "b", "tool": "b", "needs": ["a"]},
        {"id": "c", "tool": "c", "needs": ["b"]},
    ]
}
STORES = ("memory", "sqlite", "postgres", "redis")
GRAPHS = ("graph-memory", "graph-sqlite")  # by LangGraph's checkpointers


@pytest.fixture(params=STORES + GRAPHS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Each store in turn, empty, and the runs of a graph."""
    if request.param == "graph-memory":
        saver = InMemorySaver()
        yield Place(f"sqlite:///{tmp_path}/runs.db", lambda: ByGraph(saver))
        return
    if request.param == "graph-sqlite":
        async with AsyncSqliteSaver.from_conn_string(f"{tmp_path}/checkpoints.db") as durable:
            yield Place(f"sqlite:///{tmp_path}/runs.db", lambda: ByGraph(durable))
        return
    stores: dict[str, Callable[[], Any]] = {
        "memory": MemoryStore,
        "sqlite": lambda: f"sqlite:///{tmp_path}/runs.db",
        "postgres": lambda: request.getfixturevalue("postgres").fresh(),
        "redis": lambda: request.getfixturevalue("redis_server").fresh(),
    }
    yield Place(stores[request.param]())


async def test_slides(place: Place) -> None:
    """X6, E6: t1←t0, t2←t1, t3←t2, t4←t2, t5←t3,t4: each finds its needs' artifacts; six of them, once each."""
    needs = {"t0": [], "t1": ["t0"], "t2": ["t1"], "t3": ["t2"], "t4": ["t2"], "t5": ["t3", "t4"]}
    steps = [
        {"id": name, "tool": name, "args": {need: "${" + need + ".made}" for need in wanted}}
        for name, wanted in needs.items()
    ]
    world = World({name: [{"made": f"by {name}"}] for name in needs})
    async with place.open(world, {"steps": steps}) as here:
        result, events = await here.whole({"steps": steps})
        artifacts = await here.engine.artifacts(result.run_id)
        last = await here.engine.artifact(result.run_id, "t5")
    assert result.success
    for call in world.calls:
        assert dict(call.args) == {need: f"by {need}" for need in needs[call.tool]}
    made = [event.name for event in events if event.type == "artifact_created"]
    assert sorted(made) == sorted(needs)
    assert sorted(row["name"] for row in artifacts) == sorted(needs)
    assert last == {"made": "by t5"}


async def test_optional(place: Place) -> None:
    """H3, H9, V1: a web search fails its retries and is not critical: skipped, the rest goes on, degraded."""
    what = {
        "steps": [
            {"id": "topic", "tool": "topic"},
            {"id": "search", "tool": "search", "needs": ["topic"], "critical": False},
            {"id": "slides", "tool": "slides", "needs": ["search"]},
        ]
    }
    world = World(search=[ConnectionError("network")])
    async with place.open(world, what) as here:
        result, _ = await here.whole(what)
    assert world.calls_of("search") == 4  # the first call and three retries
    assert result.steps["search"].code == "SKIP_OPTIONAL" and "3 retries" in result.steps["search"].error["message"]
    assert result.steps["slides"].status == "degraded"
    assert result.success and result.degraded


async def test_fallback(place: Place) -> None:
    """H9: a model call fails and a template is given: degraded, with the reason shown."""
    what = {"steps": [{"id": "model", "tool": "model", "fallback": {"value": {"slides": ["template"]}}}]}
    world = World(model=[ConnectionError("model is down")])
    async with place.open(world, what) as here:
        result, _ = await here.whole(what)
    assert result.success and result.degraded
    assert result.steps["model"].status == "degraded" and "model is down" in result.steps["model"].degraded
    assert result.steps["model"].output == {"slides": ["template"]}


async def test_cycle(place: Place) -> None:
    """P5, X7: a step added at run time that closes a cycle is refused with the path, and the run goes on."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
    circle = [{"id": "x", "tool": "a", "needs": ["y"]}, {"id": "y", "tool": "a", "needs": ["x", "b"]}]
    world = World(a=[Took(0.2)])
    async with place.open(world, what) as here:
        run = await here.begin(what)
        with pytest.raises(PlanError) as refused:
            await here.engine.add(run, circle)
        result = await here.end(run)
    assert "x → y → x" in str(refused.value)
    assert result.success and list(result.steps) == ["a", "b"]


async def test_interrupted(place: Place) -> None:
    """E1, E2: killed between stages, it resumes at the next one; nothing is called twice."""
    world = World(a=[{"n": 1}], b=[Took(LONG)])
    run = await _killed(place, world, "b")
    world.script["b"] = [{"n": 2}]
    async with place.open(world, CHAIN) as here:
        await here.again(run)
        result = await here.end(run)
    assert result.success
    assert world.order == ["a", "b", "b", "c"]  # b, which is repeatable and was cut off, was called again


async def test_twice_resumed(place: Place) -> None:
    """E1: killed, resumed, killed, resumed: what was done before the first kill is still known."""
    world = World(a=[{"n": 1}], b=[Took(LONG)], c=[Took(LONG)])
    run = await _killed(place, world, "b")
    world.script["b"] = [{"n": 2}]
    await _killed(place, world, "c", run)
    world.script["c"] = [{"n": 3}]
    async with place.open(world, CHAIN) as here:
        await here.again(run)
        result = await here.end(run)
    assert result.success and world.order == ["a", "b", "b", "c", "c"]
    assert [row.output for row in result.steps.values()] == [{"n": 1}, {"n": 2}, {"n": 3}]


async def _killed(place: Place, world: World, during: str, run: str = "") -> str:
    """Start the chain, or let it go on, and kill whoever drives it while a tool is at work."""
    async with place.open(world, CHAIN) as here:
        if run:
            await here.again(run)
        else:
            run = await here.begin(CHAIN)
        await until(lambda: world.calls_of(during))
    return run
