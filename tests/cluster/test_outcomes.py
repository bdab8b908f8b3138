"""Every way a call can end on a real Ray cluster, from the same data as all other kinds of tools (X4, I6)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_executor import settings
from tests.outcomes import endings
from tests.outcomes.endings import Book
from tests.outcomes.lab import EFFECTS, SETTINGS
from tests.outcomes.test_matrix import hold
from tests.outcomes.ways import NO_ROOM, RAY, Way

import rerail
from rerail.adapters.tools.loading import load_tools
from rerail.kernel import events as ev

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def engine(max_wait: float) -> AsyncIterator[Any]:
    """An engine whose steps are tasks of the cluster."""
    tools = [rerail.tool(endings.perform, name=f"ray_{effect}", effect=effect) for effect in EFFECTS]
    async with rerail.Engine("memory://", tools, {**settings(max_wait=max_wait), **SETTINGS}) as made:
        yield made


@pytest.fixture(scope="module")
async def patient(cluster: Any) -> AsyncIterator[Any]:
    """An engine that waits until the cluster has started a new worker, however busy the machine is."""
    async with engine(max_wait=60.0) as made:
        yield made


@pytest.fixture(scope="module")
async def hurried(cluster: Any) -> AsyncIterator[Any]:
    """An engine that soon gives up a call for which there is no room."""
    async with engine(max_wait=1.0) as made:
        yield made


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("way", RAY, ids=lambda way: way.name)
async def test_x4_what_a_call_came_to_on_ray(way: Way, effect: str, patient: Any, hurried: Any, tmp_path: Path) -> None:
    """X4, E3: what is recorded, how often the tool is called, where the step ends, how often the effect happened."""
    engine = hurried if way.group == NO_ROOM else patient
    args = {"way": way.name, **way.args, "ledger": str(tmp_path)}
    result = await engine.run({"steps": [{"id": "a", "tool": f"ray_{effect}", "args": args, **way.step}]})
    events = [record.event for record in await engine.events(result.run_id)]
    hold(way, effect, result, events, Book(str(tmp_path)))


@pytest.mark.parametrize("effect", EFFECTS)
async def test_x4_a_tool_that_is_not_there_was_not_called(effect: str, cluster: Any, tmp_path: Path) -> None:
    """X4: a node on which the tool's module raises has called nothing, so that no step is in doubt."""
    file = tmp_path / "toolbox.py"
    file.write_text(
        "import os, rerail\n"
        f"if os.getpid() != {os.getpid()}:\n    raise RuntimeError('no licence on this node')\n"
        f"@rerail.tool(effect={effect!r})\ndef act() -> int:\n    return 1\n"
    )
    async with rerail.Engine("memory://", load_tools(file), {**settings(), **SETTINGS}) as engine:
        result = await engine.run({"steps": [{"id": "a", "tool": "act"}]})
        events = [record.event for record in await engine.events(result.run_id)]
    failed = [event for event in events if isinstance(event, ev.StepFailed)]
    assert {event.lost for event in failed} == {False} and "no licence" in failed[0].error.message
    assert result.steps["a"].status == "failed"


async def test_x4_an_interrupt_that_this_call_was_not_sent_is_a_lost_answer(cluster: Any, tmp_path: Path) -> None:
    """X4: a worker of the cluster is used again, and the interrupt of its last call may come late."""
    file = tmp_path / "toolbox.py"
    file.write_text("import rerail\n@rerail.tool\ndef act() -> int:\n    raise KeyboardInterrupt\n")
    async with rerail.Engine("memory://", load_tools(file), {**settings(), **SETTINGS}) as engine:
        result = await engine.run({"steps": [{"id": "a", "tool": "act", "retries": 0}]})
        events = [record.event for record in await engine.events(result.run_id)]
    failed = [event for event in events if isinstance(event, ev.StepFailed)]
    assert {(event.error.code, event.lost) for event in failed} == {("ANSWER_LOST", True)}
