"""Tools that misbehave: whatever they return, raise or do, the run ends honestly, and its history can be read."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import RateLimited, ToolError
from rerail.testing.scripted import ScriptedMind, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
ONE: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}]}
READ = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "args": {"x": "${a}"}}]}


def run(tools: list[Any], what: Any = ONE, settings: Any = PLAIN, **options: Any) -> tuple[Any, list[Any]]:
    """Run a plan, and read its history back as another process would; both must tell the same."""
    store = MemoryStore()

    async def main() -> tuple[Any, list[Any]]:
        async with Engine(store, tools, settings, clock=VirtualClock(), **options) as engine:
            result = await asyncio.wait_for(engine.run(what), 100_000)
            events = await engine.events(result.run_id)
            again = await engine.show(result.run_id)
            assert again.to_dict() == result.to_dict()
            assert events[-1].type in ("done", "waiting")
            return result, events

    return virtual_run(main)


ENOUGH = 300  # calls after which a tool below gives in, so that a test fails where it would go on for ever


def returning(value: Any) -> Callable[[], Any]:
    calls = 0

    async def a() -> Any:
        nonlocal calls
        calls += 1
        return value if calls < ENOUGH else "called for ever"

    return a


def raising(error: BaseException) -> Callable[[], Any]:
    calls = 0

    async def a() -> Any:
        nonlocal calls
        calls += 1
        if calls < ENOUGH:
            raise error
        return "called for ever"

    return a


# -- What cannot be stored ----------------------------------------------------------------------------------------


class Odd:
    """Something of nobody's."""


@pytest.mark.parametrize(
    "value",
    [Odd(), {"x": Odd()}, [lambda: 1], {"x": {"y": sys}}, Odd, {(1, 2): 3}, 1j, {"x": "\ud800"}, "\udcff",
     {"\ud800": 1}, ...],
    ids=["object", "inside", "function", "module", "class", "tuple keys", "complex", "surrogate", "surrogate text",
         "surrogate key", "ellipsis"],
)  # fmt: skip
def test_what_is_no_json_fails_the_step(value: Any) -> None:
    """X3, bad input: OUTPUT_NOT_JSON, a tool_error; the run ends."""
    result, _ = run([returning(value)])
    error = result.steps["a"].error
    assert (result.steps["a"].status, error["code"], error["category"]) == ("failed", "OUTPUT_NOT_JSON", "tool_error")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_numbers_that_json_does_not_know_are_not_turned_into_null(value: float) -> None:
    """X3, H9: a missing value would be made up silently otherwise, with no hole and no word about it."""
    for output in (value, {"score": value}, [value]):
        result, _ = run([returning(output)])
        assert result.steps["a"].status == "failed", output
        assert result.steps["a"].error["code"] == "OUTPUT_NOT_JSON"


def test_a_generator_is_no_result() -> None:
    """Bad input: neither an async one nor a coroutine that nobody awaited."""

    def lazy() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    async def never() -> int:
        return 1

    async def a(kind: str) -> Any:
        return {"lazy": lazy, "later": later, "never": never}[kind]()

    for kind in ("lazy", "later", "never"):
        result, _ = run([a], {"steps": [{"id": "a", "tool": "a", "args": {"kind": kind}}]})
        assert result.steps["a"].error["code"] == "OUTPUT_NOT_JSON"
    result, _ = run([rerail.tool(lazy, name="a")])
    assert result.steps["a"].error["code"] == "OUTPUT_NOT_JSON"


def test_nothing_is_a_result() -> None:
    """Bad input: a tool that returns nothing has succeeded, with null and no hole."""

    async def b(x: Any) -> Any:
        return {"got": x}

    result, _ = run([returning(None), b], READ)
    assert result.success and not result.degraded
    assert result.steps["b"].output == {"got": None}


def test_values_that_become_json() -> None:
    """X6: tuples, dates, enums, models and dataclasses are what JSON makes of them; the run and its history agree."""
    from pydantic import BaseModel

    class Colour(Enum):
        RED = "red"

    class Model(BaseModel):
        n: int = 5

    @dataclass
    class Data:
        n: int = 6

    seen: list[Any] = []

    async def b(x: Any) -> None:
        seen.append(x)

    for value, plain in (
        ((1, 2), [1, 2]), (date(2024, 1, 2), "2024-01-02"), (Colour.RED, "red"), (Model(), {"n": 5}),
        (Data(), {"n": 6}),
        ({"d": Decimal("1.5"), "t": datetime(2024, 1, 2, 3, 4)}, {"d": "1.5", "t": "2024-01-02T03:04:00"}),  # noqa: DTZ001
    ):  # fmt: skip
        result, _ = run([returning(value), b], READ)
        assert result.steps["a"].output == plain
        assert seen[-1] == plain


def test_keys_that_are_no_texts() -> None:
    """Bad input: refused or made texts, and the same in the run and in its history."""
    for value in ({1: "a"}, {None: 1}, {True: 1}, {1.5: 1}):
        result, _ = run([returning({"x": value})])
        assert result.steps["a"].status in ("succeeded", "failed")
        if result.steps["a"].status == "failed":
            assert result.steps["a"].error["code"] == "OUTPUT_NOT_JSON"


@pytest.mark.parametrize("value", [2**63, -(2**70), 10**300, 1e308, 5e-324, -0.0], ids=str)
def test_large_numbers_keep_their_value(value: float) -> None:
    """Bad input: through the store and into the next step's arguments."""
    seen: list[Any] = []

    async def b(x: Any) -> None:
        seen.append(x)

    result, _ = run([returning(value), b], READ)
    assert result.steps["a"].output == value
    assert seen == [value]


# -- Size and depth -----------------------------------------------------------------------------------------------


def test_fifty_megabytes() -> None:
    """Bad input: kept outside the history and passed on; the history stays small."""
    text = "x" * (50 * 1024 * 1024)
    sizes: list[int] = []

    async def b(x: str) -> int:
        sizes.append(len(x))
        return len(x)

    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "args": {"x": "${a.text}"}}]}

    async def main() -> int:
        store = MemoryStore()
        async with Engine(store, [returning({"text": text}), b], PLAIN, clock=VirtualClock()) as engine:
            result = await engine.run(what)
            assert result.success
            return sum(len(row.data) for row in await store.read(result.run_id, 0, 1000))

    assert virtual_run(main) < 20_000
    assert sizes == [len(text)]


def test_an_output_beyond_the_limit() -> None:
    """SPEC 11, bad input: tools.max_output; a failure with the size, and nothing of it is stored."""
    result, _ = run([returning("x" * 5000)], settings={**PLAIN, "tools": {"max_output": 1000}})
    error = result.steps["a"].error
    assert error["code"] == "OUTPUT_TOO_LARGE"
    assert "1,000" in error["message"] or "1000" in error["message"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [100, 400, 480, 505, 900, 5000, 100_000])
def test_deep_nesting(depth: int) -> None:
    """Bad input: passed on or refused by name, whatever the depth; the run always ends."""
    value = nested(depth)

    async def b(x: Any) -> str:
        return "got it"

    result, _ = run([returning(value), b], READ)
    if result.steps["a"].status == "failed":
        assert result.steps["a"].error["code"] == "OUTPUT_NOT_JSON"
    else:
        assert result.steps["b"].status == "succeeded"


@pytest.mark.parametrize("depth", [100, 300, 480, 900])
def test_deep_arguments(depth: int) -> None:
    """Bad input, P5: refused as a plan, or passed to the tool."""

    async def a(x: Any) -> str:
        return "got it"

    what = {"steps": [{"id": "a", "tool": "a", "args": {"x": nested(depth)}}]}
    try:
        result, _ = run([a], what)
    except rerail.PlanError:
        return
    assert result.success


def test_an_output_that_contains_itself() -> None:
    """Bad input: refused."""
    value: list[Any] = []
    value.append(value)
    result, _ = run([returning({"x": value})])
    assert result.steps["a"].error["code"] == "OUTPUT_NOT_JSON"


# -- What tools raise ---------------------------------------------------------------------------------------------


class Mute(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize(
    "error",
    [SystemExit(), SystemExit(3), SystemExit("bye"), asyncio.CancelledError(), asyncio.CancelledError("x"), Mute(),
     StopIteration(), StopAsyncIteration(), ExceptionGroup("g", [ValueError("in")]), RecursionError("deep"),
     MemoryError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), KeyError("k"),
     NotImplementedError(), Warning("w")],
    ids=repr,
)  # fmt: skip
def test_whatever_is_raised_is_a_failure(error: BaseException) -> None:
    """X3, X5, bad input: sys.exit too; the process and the other steps go on."""
    what = {"steps": [*ONE["steps"], {"id": "other", "tool": "other"}]}

    async def other() -> int:
        await asyncio.sleep(5)
        return 1

    result, events = run([raising(error), other], what)
    assert result.steps["a"].status == "failed"
    assert result.steps["a"].error["message"].strip()
    assert result.steps["other"].status == "succeeded"
    assert [event.type for event in events].count("done") == 1


def test_sys_exit_in_a_sync_tool() -> None:
    """Bad input: in its thread, and in this process."""

    def a() -> None:
        sys.exit(4)

    result = rerail.run(ONE, tools=[a], settings=PLAIN)
    assert result.steps["a"].status == "failed"
    assert "4" in result.steps["a"].error["message"]


@pytest.mark.parametrize(
    "error",
    [
        ToolError("bad \ud800 name"), RuntimeError("file \udcff.txt"), ToolError("x", code="\ud800"),
        ToolError("x", suggest={"n": "\ud800"}), ToolError("x", suggest={"n": Odd()}),
        ToolError("x", suggest={"n": {1, 2}}),
        ToolError("x", suggest={"n": float("nan")}), ToolError("x", suggest={1: 2}), ToolError("x" * 10_000_000),
        ToolError("nul \x00 and \x1b[31m"), ToolError("x", suggest={"n": "y" * 5_000_000}),
        RateLimited("x", retry_after=float("nan")), RateLimited("x", retry_after=-1),
    ],
    ids=["surrogate", "surrogate of a file name", "surrogate code", "surrogate hint", "object hint", "set hint",
         "nan hint", "number key hint", "10 MB", "control signs", "5 MB hint", "nan wait", "negative wait"],
)  # fmt: skip
def test_errors_that_cannot_be_stored_as_they_are(error: Exception) -> None:
    """X3, X5, bad input: whatever an error carries, the run comes to rest and its history can be read."""
    result, events = run([raising(error)])
    assert result.steps["a"].status == "failed"
    assert len(result.steps["a"].error["message"]) < 10_000
    assert sum(len(str(event.to_dict())) for event in events) < 200_000


def test_an_error_whose_attributes_lie() -> None:
    """X3, H2: code, status, category, suggest and retry_after may be anything."""

    lies = {
        "code": [1], "status": "five hundred", "status_code": object(), "category": "nonsense", "suggest": "do better",
        "retry_after": "soon", "lost": "perhaps", "type_names": 5, "traceback_text": b"x", "exit_code": {},
    }  # fmt: skip
    liar = RuntimeError("a lie")
    for name, lie in lies.items():
        setattr(liar, name, lie)
    result, _ = run([raising(liar)])
    assert result.steps["a"].status in ("failed", "in_doubt")
    assert result.steps["a"].error["message"] == "a lie"


def test_an_error_whose_attributes_raise() -> None:
    """X3: looking at it must not become another error."""

    class Trap(Exception):
        @property
        def code(self) -> str:
            raise RuntimeError("not to be looked at")

    result, _ = run([raising(Trap("caught"))])
    assert result.steps["a"].status == "failed"


@pytest.mark.parametrize(
    "output",
    [
        {"success": False, "error": {"category": ["x"]}}, {"success": False, "category": {"a": 1}},
        {"success": False, "code": {"a": 1}, "status": "500", "suggest": "x", "retry_after": "soon"},
        {"success": False, "error": [1, {"x": 2}], "message": None}, {"success": False, "suggest": {"x": [1]}},
        {"success": False, "code": "COOLDOWN_ACTIVE", "retry_after": -5},
        {"isError": True, "content": 5},
        {"success": False, "error": {"message": {"en": "x"}, "status": [4]}},
    ],
    ids=str,
)  # fmt: skip
def test_returned_failures_of_any_shape(output: Any) -> None:
    """X3: read as far as they can be, at once."""
    result, events = run([returning(output)])
    assert result.steps["a"].status == "failed"
    assert result.steps["a"].error["code"] in ("TOOL_FAILED", "COOLDOWN_ACTIVE")
    assert "unhashable" not in result.steps["a"].error["message"]
    assert events[-1].at - events[0].at < 60


# -- What tools do ------------------------------------------------------------------------------------------------


def test_changing_the_arguments_changes_nothing_else() -> None:
    """P6, X6, bad input: neither the plan, nor the next try, nor another step's input, nor the history."""
    seen: list[Any] = []

    async def a(x: Any, y: Any = None) -> Any:
        seen.append((repr(x), repr(y)))
        x["list"].append("spoilt")
        x.clear()
        if isinstance(y, list):
            y.append(1)
        raise ConnectionRefusedError("down")

    what = {
        "steps": [
            {"id": "src", "tool": "src"},
            {"id": "one", "tool": "a", "args": {"x": {"list": [1]}}},
            {"id": "two", "tool": "a", "args": {"x": {"list": [1]}, "y": "${src}"}},
        ]
    }

    async def src() -> list[int]:
        return [7]

    result, _ = run([a, src], what, {"retry": {"max_retry_rounds": 1}})
    assert set(seen) == {("{'list': [1]}", "None"), ("{'list': [1]}", "[7]")}
    assert len(seen) == 16
    assert result.steps["one"].args == {"x": {"list": [1]}}
    assert result.steps["two"].args == {"x": {"list": [1]}, "y": [7]}
    assert what["steps"][1]["args"] == {"x": {"list": [1]}}


def test_changing_adjusted_arguments_changes_nothing_else() -> None:
    """H5, R6: nor those that a hint proposed."""
    seen: list[Any] = []

    async def a(x: dict[str, Any]) -> Any:
        seen.append(repr(x))
        x["spoilt"] = 1
        if len(seen) == 1:
            raise ToolError("no", suggest={"x": {"n": 2}})
        raise ConnectionRefusedError("down")

    run([a], {"steps": [{"id": "a", "tool": "a", "args": {"x": {"n": 1}}}]}, {"retry": {"max_retry_rounds": 0}})
    assert seen == ["{'n': 1}", "{'n': 2}", "{'n': 2}", "{'n': 2}"]


def test_changing_an_output_after_returning_it_changes_nothing() -> None:
    """X6: what was returned is what counts."""
    kept: list[Any] = []

    async def a() -> Any:
        kept.append({"v": [1]})
        return kept[0]

    async def b(x: Any) -> Any:
        kept[0]["v"].append("late")
        return x

    async def c(x: Any) -> Any:
        return x

    what = {"steps": [*READ["steps"], {"id": "c", "tool": "c", "needs": ["b"], "args": {"x": "${a}"}}]}
    result, _ = run([a, b, c], what)
    assert result.steps["c"].output == {"v": [1]}
    assert result.steps["a"].output == {"v": [1]}


def test_a_tool_that_ignores_cancellation() -> None:
    """X4, bad input: the run ends in time, and so does closing the engine."""

    async def a() -> None:
        until = asyncio.get_running_loop().time() + 50
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with Engine("memory://", [a], {"run": {"step_timeout": 5}, **PLAIN}, clock=VirtualClock()) as engine:
            result = await engine.run(ONE)
            assert result.steps["a"].error["code"] == "TIMEOUT"
            ended = loop.time()
            assert ended < 15
        assert loop.time() < ended + 10
        return ended

    virtual_run(main)


def test_a_cancelled_run_does_not_wait_for_a_tool_that_ignores_it() -> None:
    """X4, X7: it comes to rest within seconds."""

    async def a() -> None:
        until = asyncio.get_running_loop().time() + 500
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Engine("memory://", [a], PLAIN, clock=VirtualClock()) as engine:
            run = await engine.start(ONE)
            await asyncio.sleep(1)
            await engine.cancel(run)
            assert (await engine.wait(run)).status == "cancelled"
            assert loop.time() < 15

    virtual_run(main)


def test_v8_a_tool_that_answers_its_cancellation_with_an_error_or_a_value() -> None:
    """X4, V8: an error says nothing of the effect of a `once` call; an answer that comes late is its answer."""
    for answer, status, step in (
        (ValueError("cleaning up failed"), "waiting", "in_doubt"), ({"v": 1}, "completed", "succeeded"),
    ):  # fmt: skip

        async def a(answer: Any = answer) -> Any:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                if isinstance(answer, Exception):
                    raise answer from None
                return answer

        tool = rerail.tool(a, schema={"type": "object"}, effect="once")
        result, _ = run([tool], settings={"run": {"step_timeout": 5}, **PLAIN})
        assert (result.status, result.steps["a"].status) == (status, step)
        assert step == "succeeded" or result.steps["a"].error["code"] == "TIMEOUT"


def test_a_tool_that_cancels_itself() -> None:
    """X3, X5: a task of its own that was cancelled is its failure, not the run's end."""

    async def a() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(100))
        inner.cancel()
        await inner

    result, events = run([a])
    assert result.steps["a"].status == "failed"
    assert events[-1].type == "done"


def test_a_tool_that_leaves_tasks_behind() -> None:
    """X5: the run ends with the tool's answer."""
    tasks: list[asyncio.Task[None]] = []

    async def a() -> int:
        tasks.append(asyncio.ensure_future(asyncio.sleep(10_000)))
        return 1

    async def main() -> Any:
        async with Engine("memory://", [a], PLAIN, clock=VirtualClock()) as engine:
            result = await engine.run(ONE)
            assert asyncio.get_running_loop().time() < 100
            return result

    assert virtual_run(main).success


@pytest.mark.parametrize(
    "usage",
    [
        {"tokens": 1.5}, {"tokens": 2**70}, {"tokens": "many"}, {"tokens": -5}, {"cost": float("nan")}, {"cost": "x"},
        {"cost": float("inf")}, {"tokens": None}, {"tokens": True}, {"cost": -1.0},
    ],
    ids=str,
)  # fmt: skip
def test_odd_words_about_what_was_spent(usage: dict[str, Any]) -> None:
    """M3, H4, E1: refused in the tool, or counted; the history can be read again, and budgets still work."""

    async def a(ctx: rerail.Context) -> int:
        ctx.usage(**usage)
        return 1

    result, _ = run([a], settings={"run": {"max_tokens": 10**9, "max_cost": 10**9}, **PLAIN})
    assert result.steps["a"].status in ("succeeded", "failed")
    assert result.exec["tokens"] >= 0
    assert result.exec["cost"] >= 0


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("log", ("\ud800",)), ("log", (Odd(),)), ("log", ("x" * 10_000_000,)), ("log", (None,)), ("log", (b"\xff",)),
        ("progress", (float("nan"),)), ("progress", (float("inf"),)), ("progress", (-5, "\ud800")),
        ("progress", ("half",)), ("progress", (None, Odd())),
    ],
    ids=["surrogate", "object", "10 MB", "none", "bytes", "nan", "inf", "negative", "text", "object message"],
)  # fmt: skip
def test_odd_words_on_the_way(method: str, args: tuple[Any, ...]) -> None:
    """M3, I2: logs and progress never harm the run or its history."""

    async def a(ctx: rerail.Context) -> int:
        with contextlib.suppress(TypeError, ValueError):
            getattr(ctx, method)(*args)
        await asyncio.sleep(1)
        return 1

    result, events = run([a])
    assert result.success
    assert sum(len(str(event.to_dict())) for event in events) < 100_000


def test_a_flood_of_log_lines() -> None:
    """M3, I2: many lines are few events, and none is lost that fits."""

    async def a(ctx: rerail.Context) -> int:
        for n in range(500):
            ctx.log(f"line {n}")
        await asyncio.sleep(1)
        return 1

    result, events = run([a])
    assert result.success
    told = "\n".join(event.message for event in events if event.type == "step_progress")
    assert "line 0" in told
    assert "line 499" in told
    assert sum(event.type == "step_progress" for event in events) <= 10


def test_late_words_of_a_call_that_has_ended() -> None:
    """X4, M3: they change nothing."""
    kept: list[rerail.Context] = []

    async def a(ctx: rerail.Context) -> int:
        kept.append(ctx)
        return 1

    async def b() -> int:
        kept[0].log("too late")
        kept[0].progress(0.1)
        kept[0].usage(tokens=1000)
        await asyncio.sleep(1)
        return 1

    result, events = run([a, b], {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]})
    assert result.success
    assert not [event for event in events if event.type == "step_progress" and event.step == "a"]
    assert result.exec["tokens"] == 0


def test_verify_and_probe_that_misbehave() -> None:
    """V8: a look that breaks or answers nonsense is no failure of the step, and never the end of the run."""
    for answer in (Odd(), "yes", 0, None, float("nan"), SystemExit(3), RuntimeError("x"), {"a": Odd()}):

        async def look(answer: Any = answer) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        for options in ({"verify": look}, {"probe": look}, {"verify": look, "probe": look}):
            result, _ = run([rerail.tool(returning({"v": 1}), **options)])
            assert result.status in ("completed", "failed"), (answer, options)


def test_minds_that_misbehave() -> None:
    """H5, V4: an answer that cannot be stored or understood is declined; the run ends."""
    for answer in (Odd(), {"args": {"x": Odd()}}, {"steps": [Odd()]}, {"reason": Odd(), "args": {"n": 1}}, b"x",
                   "\ud800", {"plan": {"steps": [{"id": "a", "tool": "a", "args": {"x": "\ud800"}}]}}):  # fmt: skip
        mind = ScriptedMind(repair=answer, replan=answer, judge=answer)
        tools = World(a=[ToolError("no", category="decomposition_error")]).tools(ONE)
        result, events = run(tools, model=mind)
        assert result.status == "failed", answer
        assert events[-1].type == "done"


def test_a_mind_that_hangs_is_given_up() -> None:
    """H5, V4: after model.timeout."""

    class Slow(ScriptedMind):
        async def answer(self, question: Any) -> Any:
            await asyncio.sleep(10_000)

    mind = Slow(repair=None, replan=None, judge=None)
    tools = World(a=[ToolError("no", category="decomposition_error")]).tools(ONE)
    result, events = run(tools, model=mind)
    assert result.status == "failed"
    assert result.judge == "unavailable"
    assert events[-1].at - events[0].at < 1000


def test_people_who_give_odd_values() -> None:
    """X7: a value that cannot be stored is refused by name, and the run waits on."""
    tools = World(a=[TimeoutError("t")]).option("a", effect="once").tools(ONE)

    async def main() -> None:
        async with Engine("memory://", tools, PLAIN, clock=VirtualClock()) as engine:
            run = (await engine.run(ONE)).run_id
            for value in (Odd(), {"x": Odd()}, "\ud800", float("nan")):
                with pytest.raises(rerail.RerailError):
                    await engine.resolve(run, "a", succeeded=value)
                assert (await engine.show(run)).steps["a"].status == "in_doubt"
            await engine.resolve(run, "a", succeeded={"v": "x" * 5000}, by="ann \ud800")
            result = await engine.wait(run)
            assert result.steps["a"].output == {"v": "x" * 5000}
            assert await engine.events(run)

    virtual_run(main)


# -- Ids and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a b", "a.b", "步骤 一", "é🚂", "a[0]", "../../etc", "a/b", "x" * 10_000, "\n", "\x00", "${x}", "{}", "%s", "'"],
)
def test_odd_ids_run(name: str) -> None:
    """P6, bad input: spaces, dots, unicode, 10 kB: through the run, its history, and everything that names a step."""

    async def t(ctx: rerail.Context) -> dict[str, Any]:
        return {"step": ctx.step}

    async def fail(x: Any) -> None:
        raise ToolError("it broke", category="tool_error")

    what = {
        "steps": [
            {"id": name, "tool": "t"},
            {"id": name + "!", "tool": "fail", "args": {"x": "${" + name + ".step}"}},
            {"id": name + "?", "tool": "t", "needs": [name + "!"]},
        ]
    }

    async def main() -> None:
        async with Engine("memory://", [t, fail], PLAIN, clock=VirtualClock()) as engine:
            result = await engine.run(what)
            assert result.steps[name].output == {"step": name}
            assert len(name) > 1000 or result.steps[name + "!"].args == {"x": name}
            assert result.consequences == (name + "?",)
            assert await engine.why(result.run_id)
            assert await engine.why(result.run_id, name + "!")
            assert await engine.artifact(result.run_id, name) == {"step": name}
            await engine.skip(result.run_id, name + "!")
            assert (await engine.wait(result.run_id)).success

    virtual_run(main)


def test_a_workspace_stays_inside_its_folder(tmp_path: Path) -> None:
    """M3, T1: whatever the run is called."""

    async def a(ctx: rerail.Context) -> str:
        (ctx.workspace / "file.txt").write_text("x")
        return str(ctx.workspace)

    async def main() -> None:
        folder = tmp_path / "work"
        async with Engine("memory://", [a], PLAIN, clock=VirtualClock(), workspace=folder) as engine:
            for name in ("plain", "a b", "步骤", "../outside", "/absolute", "..", "a/../../b"):
                with contextlib.suppress(rerail.RerailError):
                    result = await engine.wait(await engine.start(ONE, run_id=name))
                    if result.success:
                        assert Path(result.steps["a"].output).resolve().is_relative_to(folder.resolve())

    virtual_run(main)
    assert {path.name for path in tmp_path.iterdir()} <= {"work"}


def test_a_step_that_lacks_hundreds_of_files_fails() -> None:
    """V6, T12: with the first of them, and how many more; the run goes on."""

    async def none() -> int:
        return 1

    produces = [f"f{n}.txt" for n in range(600)]
    result = rerail.run({"steps": [{"id": "a", "tool": "none", "retries": 0, "produces": produces}]}, tools=[none])
    error = result.steps["a"].error
    assert result.status == "failed" and error is not None and error["code"] == "CHECK_FAILED"
    assert "(+580)" in error["message"]
