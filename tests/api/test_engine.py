"""The engine as a program holds it: opening it, one-liners, notebooks, recovery, and the size of its surface."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.errors import Refused
from rerail.testing import Took, World, virtual_run

OTHER = {"reflection.max_step_retries": 0}
ONE = {"steps": [{"id": "a", "tool": "a"}]}
REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text("utf-8")


@rerail.tool
def a() -> str:
    """Return the thread that it is called from."""
    return threading.current_thread().name


# -- Opening ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda engine: engine.run(ONE), lambda engine: engine.start(ONE), lambda engine: engine.submit(ONE),
        lambda engine: engine.show("r"), lambda engine: engine.list(), lambda engine: engine.watch("r"),
        lambda engine: engine.pause("r"), lambda engine: engine.retry("r"), lambda engine: engine.wait("r"),
        lambda engine: engine.recover(), lambda engine: engine.replay("r", OTHER), lambda engine: engine.resume("r"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_engine_that_is_not_open_says_how_to_open_it(act: Callable[[rerail.Engine], Any], when: str) -> None:
    """T5: whatever is asked of it, and not in the words of a store."""

    async def main() -> None:
        engine = rerail.Engine("memory://", [a])
        if when == "after":
            async with engine:
                pass
        with pytest.raises(Refused) as refused:
            await act(engine)
        assert (refused.value.code, refused.value.message) == ("USAGE", "the engine is not open")
        assert "async with" in refused.value.hint

    asyncio.run(main())


def test_a_file_name_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: as for `--store`, for engines, one-liners and settings."""
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with rerail.Engine("runs.db", [a]) as engine:
            assert (await engine.run(ONE, run_id="one")).success
        async with rerail.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            assert (await engine.show("one")).success

    asyncio.run(main())
    rerail.run(ONE, [a], store="runs.db", run_id="two")
    rerail.run(ONE, [a], store=str(tmp_path / "other.db"))
    assert {file.name for file in tmp_path.glob("*.db")} == {"runs.db", "other.db"}

    async def listed() -> list[str]:
        async with rerail.Engine(settings={"store": {"url": "runs.db"}}) as engine:
            return [row.run_id for row in await engine.list()]

    assert asyncio.run(listed()) == ["two", "one"]


# -- One line -----------------------------------------------------------------------------------------------------


def test_one_line_with_an_id_and_an_objective() -> None:
    """M1, P7: `run` and `arun` take what `engine.run` takes."""
    assert rerail.run(ONE, [a], run_id="order-42").run_id == "order-42"
    assert asyncio.run(rerail.arun(ONE, [a], run_id="order-43")).run_id == "order-43"
    fell_back = rerail.run(objective="do it", fallback=ONE, tools=[a], run_id="order-44")
    assert (fell_back.run_id, fell_back.success, fell_back.degraded) == ("order-44", True, True)


def test_run_works_where_a_loop_is_running() -> None:
    """A notebook has one: the run gets a thread of its own, with the caller's context, and raises what it raises."""

    async def notebook() -> rerail.RunResult:
        with pytest.raises(rerail.PlanError):
            rerail.run({"steps": [{"id": "a", "tool": "nowhere"}]}, [a])
        return rerail.run(ONE, [a])

    assert asyncio.run(notebook()).success


def test_an_interrupted_cell_ends_its_run() -> None:
    """Ctrl-C in a notebook reaches the thread that waits, and the run in the other one is cancelled."""
    begun, ended = threading.Event(), threading.Event()

    @rerail.tool
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def cell() -> None:
        threading.Thread(target=lambda: begun.wait(10) and os.kill(os.getpid(), signal.SIGINT)).start()
        rerail.run({"steps": [{"id": "a", "tool": "slow"}]}, [slow])

    notebook = asyncio.new_event_loop()  # not `asyncio.run`, which takes Ctrl-C for itself
    with pytest.raises(KeyboardInterrupt):
        notebook.run_until_complete(cell())
    notebook.close()
    assert ended.is_set()


def test_a_result_shows_itself_in_a_notebook() -> None:
    """Every text of it is escaped: tools and plans come from anywhere."""

    @rerail.tool
    def bad() -> None:
        raise ValueError("<script>alert(1)</script>")

    plan = {"objective": "<b>", "steps": [{"id": "<i>", "tool": "bad"}, {"id": "good", "tool": "a"}]}
    shown = rerail.run(plan, [bad, a], run_id="r")._repr_html_()
    assert "&lt;i&gt;" in shown and "&lt;script&gt;" in shown and "good" in shown and "failed" in shown
    assert set(re.findall(r"<[^>]*>", shown)) == {
        "<p>",
        "</p>",
        "<table>",
        "</table>",
        "<tr>",
        "</tr>",
        "<td>",
        "</td>",
    }


# -- Recovery -----------------------------------------------------------------------------------------------------


def test_recover_takes_up_what_a_dead_process_left() -> None:
    """T7: all of it at once, except queued runs and those whose tools are missing here, which is said."""
    world, store, heard = World(a=[Took(100), Took(100), {"n": 1}]), MemoryStore(), list[str]()
    other = World()

    async def main() -> None:
        async with world.engine(ONE, store=store) as one:
            left = {await one.start(ONE), await one.start(ONE)}
            done = (await one.run(ONE)).run_id
            queued = await one.submit(ONE)
            await asyncio.sleep(1)
        async with other.engine({"steps": [{"id": "b", "tool": "b"}]}, store=store, on_notice=heard.append) as two:
            assert await two.recover() == ()
        assert len(heard) == 2 and all("a" in words for words in heard)
        async with world.engine(ONE, store=store) as three:
            taken = await three.recover()
            assert (set(taken), len(taken)) == (left, 2)
            assert await three.recover() == ()  # they are under way
            for run in taken:
                assert (await three.wait(run)).success
            assert (await three.show(queued)).status == "pending" and done not in taken

    virtual_run(main)


# -- The surface --------------------------------------------------------------------------------------------------


def methods() -> dict[str, str]:
    """Return the public methods of an engine with the names of their arguments, as the reference writes them."""
    found = {}
    for name, method in inspect.getmembers(rerail.Engine, callable):
        if not name.startswith("_"):
            found[name] = signature(method, f"engine.{name}")
    return found


def signature(function: Any, name: str) -> str:
    """Return a call with the names of all arguments; `*` is where the named ones begin."""
    words, star = [], False
    for argument in inspect.signature(function).parameters.values():
        if argument.name == "self":
            continue
        if argument.kind is argument.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        words.append({argument.VAR_KEYWORD: "**", argument.VAR_POSITIONAL: "*"}.get(argument.kind, "") + argument.name)
    return f"`{name}({', '.join(words)})`"


def test_the_surface_is_small() -> None:
    """Thirty methods; what servers and workers need besides is in `internals`."""
    assert len(methods()) <= 30


@pytest.mark.parametrize("written", methods().values(), ids=methods())
def test_every_method_has_its_place_in_the_reference(written: str) -> None:
    """With all of its arguments, in their order."""
    assert written in REFERENCE, written


@pytest.mark.parametrize("name", [name for name in rerail.__all__ if not name.startswith("_")])
def test_every_public_name_has_its_place_in_the_reference(name: str) -> None:
    """Functions with all of their arguments, and classes by their name."""
    value = getattr(rerail, name)
    if name in ("run", "arun"):
        assert signature(value, f"rerail.{name}") in REFERENCE
    elif name != "events":
        assert f"`{name}`" in REFERENCE or f"rerail.{name}" in REFERENCE, name
