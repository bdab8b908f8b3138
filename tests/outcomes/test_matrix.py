"""Every way a call can end, run for real with every kind of tool it can happen to (X3, X4, X8, X9, V6, E3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.outcomes.endings import ENDINGS, Book
from tests.outcomes.lab import EFFECTS, SETTINGS, Lab, commands, functions, requests
from tests.outcomes.ways import DONE, FUNCTIONS, GROUPS, LOST, NOT_DONE, RAY, SCRIPTS, WAYS, Way

from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.kernel import events as ev


def cases() -> list[Any]:
    """Every way with every kind of tool and both effects; one process for each server that has to be started."""
    found = []
    for way in WAYS:
        for kind in way.kinds:
            marks = [pytest.mark.xdist_group(f"outcomes-{kind}")] if kind.startswith("mcp_") else []
            name = f"{kind}{'-' if way.tool else ''}{way.tool}"
            found += [
                pytest.param(way, kind, effect, id=f"{name}-{way.name}-{effect}", marks=marks) for effect in EFFECTS
            ]
    return found


def tool_of(way: Way, kind: str, effect: str) -> str:
    """The name of the tool that ends so."""
    name = "_".join(filter(None, (kind, way.tool, effect)))
    if not kind.startswith("mcp_"):
        return name
    return f"{name}_act"


def hold(way: Way, effect: str, result: Any, events: list[Any], book: Book) -> None:
    """Hold what was recorded, called and done against the contract."""
    certainty = way.certainty if effect == "once" else way.repeatable or way.certainty
    calls = [event for event in events if isinstance(event, ev.StepStarted)]
    failed = [event for event in events if isinstance(event, ev.StepFailed) and event.called]
    row = result.steps["a"]
    if certainty is DONE:
        wanted, status, effects = 1, "succeeded", 1
        assert not failed
    elif certainty is LOST and effect == "once":
        wanted, status, effects = 1, "in_doubt", int(way.acts)
        assert row.error["message"]
    else:
        wanted = 2 if way.again else 1
        status = "succeeded" if way.again and not way.always else "failed"
        effects = int(way.acts) * (wanted if way.always else 1) + int(status == "succeeded")
    if failed:
        assert {event.lost for event in failed} == {certainty is LOST}
    assert (row.status, len(calls), book.count("effects")) == (status, wanted, effects), row.error
    if effect == "once":
        assert book.count("effects") <= 1, "never twice unasked"


@pytest.mark.parametrize(("way", "kind", "effect"), cases())
def test_x4_what_a_call_came_to(way: Way, kind: str, effect: str, lab: Lab, tmp_path: Path) -> None:
    """X4, E3: what is recorded, how often the tool is called, where the step ends, how often the effect happened."""
    args = {"way": way.name, **way.args, "ledger": str(tmp_path)}
    step = {"id": "a", "tool": tool_of(way, kind, effect), "args": args, **way.step}
    result, events = lab.run(kind, {"steps": [step]})
    hold(way, effect, result, events, Book(str(tmp_path)))


def test_x4_the_matrix_is_whole() -> None:
    """X4: every group has a row, and one word for what it came to; no way of ending is left unused."""
    ways = [*WAYS, *RAY]
    assert {way.group for way in ways} == set(GROUPS)
    for group in GROUPS:
        assert len({way.certainty for way in ways if way.group == group}) == 1, group
    assert {way.certainty for way in ways} == {DONE, NOT_DONE, LOST}
    assert {way.name for way in FUNCTIONS} - {"arguments refused"} == set(ENDINGS)
    assert set(SCRIPTS) <= {way.name for way in WAYS if "shell" in way.kinds} | {"answered"}
    rows = Counter((way.name, way.tool, kind) for way in ways for kind in way.kinds)
    assert not [row for row, number in rows.items() if number > 1]


# -- Calls that are ended from outside ----------------------------------------------------------------------------


async def begun(book: Book) -> None:
    """Wait until the effect of the first call has happened."""
    async with asyncio.timeout(20):
        while not book.count("effects"):  # noqa: ASYNC110 - it may happen in another process
            await asyncio.sleep(0.01)


TOOLS = {"sync": functions, "async": functions, "isolated": functions, "shell": commands, "http": requests}
INTERRUPTED = tuple(TOOLS)


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("kind", INTERRUPTED)
def test_x4_a_cancelled_call_is_lost(kind: str, effect: str, lab: Lab, tmp_path: Path) -> None:
    """X4, E3: what it had done is unknown: a `once` step is in doubt, a repeatable one may be called again."""
    engine, book = lab.engine(kind), Book(str(tmp_path))
    args = {"way": "timeout", "ledger": str(tmp_path)}

    async def main() -> tuple[Any, list[Any]]:
        run = await engine.start({"steps": [{"id": "a", "tool": f"{kind}_{effect}", "args": args, "timeout": 30}]})
        await begun(book)
        await engine.cancel(run)
        result = await engine.wait(run)
        return result, [record.event for record in await engine.events(run)]

    result, events = lab.wait(main())
    (failed,) = [event for event in events if isinstance(event, ev.StepFailed)]
    assert (failed.error.code, failed.lost) == ("RUN_CANCELLED", True)
    assert result.steps["a"].status == ("in_doubt" if effect == "once" else "cancelled")
    assert (result.steps["a"].attempts, book.count("effects")) == (1, 1)


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("kind", INTERRUPTED)
def test_x4_the_call_of_a_closed_engine_is_lost(kind: str, effect: str, lab: Lab, tmp_path: Path) -> None:
    """X4, E3: the next process leaves a `once` step in doubt, and calls a repeatable one again."""
    store, book = MemoryStore(), Book(str(tmp_path))
    plan = {"steps": [{"id": "a", "tool": f"{kind}_{effect}", "args": {"way": "timeout", "ledger": str(tmp_path)}}]}
    tools = [tool for tool in TOOLS[kind]() if tool.spec.name == f"{kind}_{effect}"]

    async def main() -> tuple[Any, list[Any]]:
        async with Engine(store, tools, SETTINGS) as engine:
            run = await engine.start(plan)
            await begun(book)
        async with Engine(store, tools, SETTINGS) as engine:
            await engine.resume(run)
            result = await engine.wait(run)
            return result, [record.event for record in await engine.events(run)]

    result, events = lab.wait(main())
    failed = [event for event in events if isinstance(event, ev.StepFailed)]
    assert [(event.error.code, event.lost) for event in failed] == [("ANSWER_LOST", True)]
    once = effect == "once"
    assert result.steps["a"].status == ("in_doubt" if once else "succeeded")
    assert book.count("effects") == (1 if once else 2)
