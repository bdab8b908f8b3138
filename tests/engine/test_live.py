"""A run while it runs: what starts when, how calls end, what people do to it, who watches, what follows it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import NotDone, PlanError, RateLimited, Refused, ToolError
from rerail.ports import Batch
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

BROKE = ToolError("it broke", category="tool_error")
DOWN = ConnectionRefusedError("down")
PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
ONE_ROUND = {"reflection": {"max_step_retries": 0}}


def plan(*steps: tuple[str, ...], **changes: dict[str, Any]) -> dict[str, Any]:
    """Steps as (id, needs…), each calling a tool of its own name."""
    return {"steps": [{"id": s[0], "tool": s[0], "needs": list(s[1:]), **changes.get(s[0], {})} for s in steps]}


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


def acted(events: list[Any], action: str) -> Any:
    """The one event of a person's action."""
    (found,) = [event for event in of(events, "acted") if event.action == action]
    return found


def live(
    world: World, what: Any, act: Callable[[Engine, str], Coroutine[Any, Any, Any]], **options: Any
) -> tuple[Any, list[Any]]:
    """Start a plan, let somebody act on it, and wait; the result and the history."""

    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            run = await engine.start(what)
            told = await act(engine, run)
            result = told if told is not None else await engine.wait(run)
            return result, await engine.events(run)

    return virtual_run(main)


def history(world: World, what: Any, **options: Any) -> tuple[Any, list[Any]]:
    async def nothing(engine: Engine, run: str) -> None: ...

    return live(world, what, nothing, **options)


def times(events: list[Any], kind: str = "step_started") -> dict[str, float]:
    """When each step first started, in seconds since the run did."""
    found: dict[str, float] = {}
    for event in of(events, kind):
        found.setdefault(event.step, round(event.at - events[0].at, 3))
    return found


class Meter:
    """Async tools that note how many of them are under way at once."""

    def __init__(self, seconds: float = 10) -> None:
        self.seconds = seconds
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.order: list[str] = []

    def tool(self, name: str, group: str = "all", **options: Any) -> Any:
        async def call(n: str = "") -> None:
            self.order.append(n or name)
            for key in (group, name):
                self.now[key] = self.now.get(key, 0) + 1
                self.most[key] = max(self.most.get(key, 0), self.now[key])
            try:
                await asyncio.sleep(self.seconds)
            finally:
                for key in (group, name):
                    self.now[key] -= 1

        return rerail.tool(call, name=name, **options)


def metered(tools: list[Any], what: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with Engine("memory://", tools, clock=VirtualClock(), **options) as engine:
            return await engine.run(what)

    return virtual_run(main)


# -- X1: what starts when -----------------------------------------------------------------------------------------


def test_no_barriers() -> None:
    """X1: a step starts as soon as its own needs are met, whatever its siblings do."""
    what = plan(("fast",), ("slow",), ("after_fast", "fast"), ("after_slow", "slow"), ("both", "after_fast", "slow"))
    world = World(fast=[Took(1)], slow=[Took(100)], after_fast=[Took(1)])
    _, events = history(world, what)
    assert times(events) == {"fast": 0, "slow": 0, "after_fast": 1, "after_slow": 100, "both": 100}


def test_a_step_in_backoff_holds_up_nobody_else() -> None:
    """X1: nor does it take a place."""
    what = plan(("flaky",), ("a",), ("b", "a"))
    world = World(flaky=[DOWN, {"v": 1}], a=[Took(1)])
    settings = {"run": {"concurrency": 1}, "retry": {"jitter": False, "backoff_base": 20}}
    _, events = history(world, what, settings=settings)
    assert times(events)["b"] == 1


@pytest.mark.parametrize(("limit", "most"), [(None, 8), (3, 3), (1, 1), (0, 20)])
def test_concurrency_per_run(limit: int | None, most: int) -> None:
    """X1: 8 unless said otherwise; 0 is unbounded."""
    meter = Meter()
    settings = {} if limit is None else {"run": {"concurrency": limit}}
    what = {"steps": [{"tool": "t"} for _ in range(20)]}
    assert metered([meter.tool("t")], what, settings=settings).success
    assert meter.most["t"] == most


def test_concurrency_per_tool() -> None:
    """X1: one tool's limit holds up no other tool."""
    meter = Meter()
    what = {"steps": [{"tool": "slow"} for _ in range(6)] + [{"tool": "free"} for _ in range(6)]}
    settings = {"run": {"concurrency": 0, "tool_concurrency": {"slow": 2}}}
    assert metered([meter.tool("slow"), meter.tool("free")], what, settings=settings).success
    assert (meter.most["slow"], meter.most["free"]) == (2, 6)


def test_concurrency_per_provider() -> None:
    """X1: tools of one provider share its limit."""
    meter = Meter()
    tools = [
        meter.tool("p1", "p", provider="server"),
        meter.tool("p2", "p", provider="server"),
        meter.tool("q", "rest", provider="other"),
    ]
    what = {"steps": [{"tool": name} for name in ("p1", "p2", "q") for _ in range(4)]}
    settings = {"run": {"concurrency": 0, "provider_concurrency": {"server": 3}}}
    assert metered(tools, what, settings=settings).success
    assert (meter.most["p"], meter.most["q"]) == (3, 4)


def test_a_tool_limit_below_its_providers() -> None:
    """X1: both limits hold at once."""
    meter = Meter()
    tools = [meter.tool("p1", "p", provider="server"), meter.tool("p2", "p", provider="server")]
    what = {"steps": [{"tool": name} for name in ("p1", "p2") for _ in range(5)]}
    settings = {"run": {"concurrency": 5, "provider_concurrency": {"server": 4}, "tool_concurrency": {"p1": 1}}}
    assert metered(tools, what, settings=settings).success
    assert (meter.most["p1"], meter.most["p"]) == (1, 4)


def test_an_alternative_tool_is_bounded_by_its_own_limit() -> None:
    """X1, H3: what counts is the tool that is really called."""
    meter = Meter()

    async def down() -> None:
        raise BROKE

    what = {"steps": [{"tool": "down", "alternatives": ["t"]} for _ in range(5)]}
    settings = {"run": {"tool_concurrency": {"t": 2}}, "reflection": {"max_consecutive_failures": 0}}
    assert metered([down, meter.tool("t")], what, settings=settings).success
    assert meter.most["t"] == 2


def test_higher_priority_first_then_plan_order() -> None:
    """X1: among ready steps."""
    meter = Meter()
    priorities = {"a": 0, "b": 5, "c": 0, "d": -1, "e": 5}
    steps = [{"id": n, "tool": "t", "args": {"n": n}, "priority": p} for n, p in priorities.items()]
    metered([meter.tool("t")], {"steps": steps}, settings={"run": {"concurrency": 1}})
    assert meter.order == ["b", "e", "a", "c", "d"]


def test_priority_among_limited_tools() -> None:
    """X1: also where tools have queues of their own."""
    meter = Meter()
    steps = [
        {"id": n, "tool": n[0], "args": {"n": n}, "priority": p}
        for n, p in (("t1", 0), ("u1", 1), ("t2", 2), ("u2", 3))
    ]
    settings = {"run": {"concurrency": 1, "tool_concurrency": {"t": 1, "u": 1}}}
    metered([meter.tool("t"), meter.tool("u")], {"steps": steps}, settings=settings)
    assert meter.order == ["u2", "t2", "u1", "t1"]


# -- X3: one failure, thrown or returned --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "message", "code"),
    [
        (ToolError("no disk", code="DISK"), "no disk", "DISK"),
        ({"success": False, "error": "no disk", "code": "DISK"}, "no disk", "DISK"),
        ({"success": False, "error": {"message": "no disk", "code": "DISK"}}, "no disk", "DISK"),
        ({"success": 0, "message": "no disk"}, "no disk", "TOOL_FAILED"),
        ({"isError": True, "message": "no disk"}, "no disk", "TOOL_FAILED"),
        ({"isError": True, "content": [{"type": "text", "text": "no disk"}]}, "no disk", "TOOL_FAILED"),
        (OSError("no disk"), "no disk", "TOOL_FAILED"),
    ],
)
def test_thrown_or_returned_it_is_the_same_failure(outcome: Any, message: str, code: str) -> None:
    """X3: code, category and message; one terminal record."""
    result, events = history(World(a=[outcome]), plan(("a",)), settings=PLAIN)
    error = result.steps["a"].error
    assert result.steps["a"].status == "failed"
    assert message in error["message"]
    assert error["code"] == code
    assert error["category"].endswith("_error")
    assert len(of(events, "step_failed")) == 1
    assert not of(events, "step_succeeded")


@pytest.mark.parametrize(
    "outcome",
    [
        ToolError(), ToolError("   "), RuntimeError(), ValueError(""), KeyError(), OSError(), AssertionError(),
        {"success": False}, {"success": 0}, {"success": False, "error": ""}, {"success": False, "error": None},
        {"success": False, "error": {}}, {"success": False, "message": 5}, {"isError": True},
        {"success": False, "errors": []},
    ],
    ids=repr,
)  # fmt: skip
def test_a_message_is_never_empty(outcome: Any) -> None:
    """X3: a string that says at least what kind of thing went wrong."""
    result, events = history(World(a=[outcome]), plan(("a",)), settings=PLAIN)
    error = result.steps["a"].error
    assert isinstance(error["message"], str)
    assert error["message"].strip()
    assert error["code"] and error["category"]
    assert result.failed_steps[0]["reason"].strip()
    assert of(events, "done")[0].summary


def test_type_and_traceback_are_kept() -> None:
    """X3: for those who have to mend the tool."""

    async def a() -> None:
        raise ZeroDivisionError("of no use")

    async def main() -> Any:
        async with Engine("memory://", [a], PLAIN, clock=VirtualClock()) as engine:
            return await engine.run(plan(("a",)))

    error = virtual_run(main).steps["a"].error
    assert error["type"] == "ZeroDivisionError"
    assert "of no use" in error["traceback"]
    assert "async def a" in error["traceback"] or "in a\n" in error["traceback"]


def test_an_exception_that_cannot_even_be_printed() -> None:
    """X3, H2: it is a failure like any other."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even that")

    result, _ = history(World(a=[Odd()]), plan(("a",)), settings=PLAIN)
    assert "Odd" in result.steps["a"].error["message"]


def test_success_that_is_neither_true_nor_false_is_no_failure() -> None:
    """X3: only false and 0 say that it failed."""
    for output in ({"success": True}, {"success": 1}, {"success": "no"}, {"success": None}, {"isError": False}):
        result, _ = history(World(a=[output]), plan(("a",)), settings=PLAIN)
        assert result.success, output


# -- X4: timeouts and lost answers --------------------------------------------------------------------------------


def test_a_timeout_cancels_the_tool() -> None:
    """X4: per attempt; the tool sees it, and its time is recorded."""
    seen: list[str] = []

    async def a(ctx: rerail.Context) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append(f"cancelled {ctx.cancelled.is_set()}")
            raise

    async def main() -> Any:
        async with Engine("memory://", [a], {"run": {"step_timeout": 5}, **PLAIN}, clock=VirtualClock()) as engine:
            result = await engine.run(plan(("a",)))
            return result, asyncio.get_running_loop().time()

    result, took = virtual_run(main)
    assert seen == ["cancelled True"]
    assert result.steps["a"].error["code"] == "TIMEOUT"
    assert 5 <= took < 9
    assert result.steps["a"].elapsed == pytest.approx(5)


@pytest.mark.parametrize(
    ("step", "tool", "setting", "limit"),
    [({"timeout": 3}, {"timeout": 20}, 50, 3), ({}, {"timeout": 20}, 50, 20), ({}, {}, 50, 50)],
)
def test_whose_timeout_counts(step: dict[str, Any], tool: dict[str, Any], setting: float, limit: float) -> None:
    """P1, X4: the step's, else the tool's, else run.step_timeout."""
    world = World(a=[Took(1000)]).option("a", **tool)
    result, _ = history(world, plan(("a",), a=step), settings={"run": {"step_timeout": setting}, **PLAIN})
    assert result.steps["a"].elapsed == pytest.approx(limit)


def test_a_tool_that_ignores_cancellation_is_left_behind() -> None:
    """X4: its late answer changes nothing; the retry's does."""
    attempts: list[int] = []

    async def stubborn() -> Any:
        attempts.append(1)
        mine = len(attempts)
        if mine > 1:
            return {"attempt": mine}
        until = asyncio.get_running_loop().time() + 100
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return {"attempt": mine}

    async def slow() -> None:
        await asyncio.sleep(200)

    async def main() -> tuple[Any, list[Any]]:
        async with Engine("memory://", [stubborn, slow], clock=VirtualClock()) as engine:
            result = await engine.run(plan(("stubborn",), ("slow",), stubborn={"timeout": 5}))
            return result, await engine.events(result.run_id)

    result, events = virtual_run(main)
    assert result.success
    assert result.steps["stubborn"].output == {"attempt": 2}
    assert len(attempts) == 2
    assert len(of(events, "step_succeeded")) == 2
    second = of(events, "step_started")[2]
    assert second.at - events[0].at < 60  # nobody waited for the first one's hundred seconds


def test_a_sync_tool_runs_in_a_thread_and_a_timeout_abandons_it() -> None:
    """X4, M3: it is told through its context, and the loop goes on meanwhile."""
    told = threading.Event()
    threads: list[str] = []

    def block(ctx: rerail.Context) -> None:
        threads.append(threading.current_thread().name)
        if ctx.cancelled.wait(20):
            told.set()

    started = time.monotonic()
    result = rerail.run(plan(("block",), block={"timeout": 0.2}), tools=[block], settings=PLAIN)
    assert result.steps["block"].error["code"] == "TIMEOUT"
    assert time.monotonic() - started < 15
    assert told.wait(5)
    assert threads[0] != threading.main_thread().name


def test_sync_tools_run_at_the_same_time() -> None:
    """X1, X4: threads do not wait for each other."""
    meet = threading.Barrier(3, timeout=10)

    def block() -> None:
        meet.wait()

    what = {"steps": [{"tool": "block"} for _ in range(3)]}
    assert rerail.run(what, tools=[block], settings=PLAIN).success


@pytest.mark.parametrize(
    "error",
    [TimeoutError("t"), ConnectionResetError("r"), BrokenPipeError("b"), EOFError("e")],
    ids=lambda e: type(e).__name__,
)
def test_a_lost_answer_of_a_once_tool_is_a_doubt(error: Exception) -> None:
    """X4, E3: the ladder never repeats it unasked; the same answer of a repeatable tool is simply asked for again."""
    world = World(a=[error, {"v": 1}]).option("a", effect="once")
    result, _ = history(world, plan(("a",)))
    assert (result.status, result.steps["a"].status, world.calls_of("a")) == ("waiting", "in_doubt", 1)
    assert result.waiting_on[0]["for"] == "in_doubt"
    world = World(a=[error, {"v": 1}])
    assert history(world, plan(("a",)))[0].success
    assert world.calls_of("a") == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ToolError("no"), "failed"), (NotDone(RuntimeError("x")), "failed"), (NotDone("not sent"), "failed"),
        (DOWN, "in_doubt"), (RuntimeError("x"), "in_doubt"), ({"success": False, "error": "no"}, "in_doubt"),
        (ToolError("no", lost=True), "in_doubt"),
    ],
)  # fmt: skip
def test_x4_only_what_says_so_is_known_not_to_have_happened(error: Any, status: str) -> None:
    """X4: any other exception may come after the effect, as may an answer that says it failed."""
    world = World(a=[error]).option("a", effect="once")
    result, _ = history(world, plan(("a",)), settings=PLAIN)
    assert (result.steps["a"].status, world.calls_of("a")) == (status, 1)


def test_a_cancelled_once_call_is_in_doubt_also_when_the_run_is_stopped() -> None:
    """X4: stopped or not; the retry of the cancelled run points to resolve."""
    world = World(pay=[Took(100, {"v": 1})]).option("pay", effect="once")

    async def act(engine: Engine, run: str) -> Any:
        await asyncio.sleep(1)
        await engine.cancel(run)
        result = await engine.wait(run)
        with pytest.raises(Refused) as refused:
            await engine.retry(run)
        assert refused.value.code == "RUN_IN_DOUBT"
        with pytest.raises(Refused):
            await engine.retry(run, force=True)
        return result

    result, _ = live(world, plan(("pay",)), act)
    assert (result.status, result.steps["pay"].status, world.calls_of("pay")) == ("cancelled", "in_doubt", 1)


def test_a_retry_of_a_live_run_does_not_get_round_a_doubt() -> None:
    """T5, X4, E3: naming the step is no answer; resolve is."""
    world = World(pay=[TimeoutError("no answer"), {"v": 2}], slow=[Took(100)]).option("pay", effect="once")

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        for force in (False, True):
            with pytest.raises(Refused) as refused:
                await engine.begin_retry(run, ["pay"], force=force)
            assert refused.value.code == "RUN_IN_DOUBT"
        await engine.resolve(run, "pay", succeeded={"v": 1})

    result, _ = live(world, plan(("pay",), ("slow",)), act)
    assert world.calls_of("pay") == 1
    assert result.success


# -- X5: exactly one done -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [{"v": 1}, BROKE, RuntimeError("x"), SystemExit(3), asyncio.CancelledError()])
def test_one_done_is_the_last_event(outcome: Any) -> None:
    """X3, X5: after successes, failures, exceptions and what tools do worse."""
    result, events = history(World(a=[outcome]), plan(("a",), ("b", "a")), settings=ONE_ROUND)
    assert events[-1].type == "done"
    assert len(of(events, "done")) == 1
    assert result.status in ("completed", "failed")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_steps_that_can_no_longer_run_are_named_with_why() -> None:
    """X5, V1: cancelled ones too."""
    world = World(a=[Took(50)])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        await engine.cancel(run, by="ann", reason="no more need")

    result, events = live(world, plan(("a",), ("b", "a"), ("c", "b")), act)
    assert result.status == "cancelled"
    assert not result.success
    assert result.never_started == ("a", "b", "c") or result.never_started == ("b", "c")
    for name in ("b", "c"):
        assert (result.steps[name].status, result.steps[name].code) == ("cancelled", "RUN_CANCELLED")
        assert result.steps[name].error["message"]
    (cancelled,) = of(events, "cancelled")
    assert (cancelled.by, cancelled.reason) == ("ann", "no more need")
    assert events[-1].type == "done"


def test_a_limit_of_zero_for_a_tool_leaves_nothing_behind_silently() -> None:
    """X5, SPEC 11: either it is refused as a setting, or the step runs; it never ends "ready"."""
    world = World()
    try:
        result, _ = history(world, plan(("a",)), settings={"run": {"tool_concurrency": {"a": 0}}})
    except rerail.SettingsError:
        return
    assert result.steps["a"].status == "succeeded"


# -- X6 -----------------------------------------------------------------------------------------------------------


def test_a_dependent_reads_the_latest_successful_output() -> None:
    """X6: after a retry the new one, never the old."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "args": {"x": "${a.v}"}}]}
    world = World(a=[{"v": 1}, {"v": 2}], b=[BROKE, {"ok": 1}])

    async def main() -> Any:
        async with world.engine(what, settings=PLAIN) as engine:
            first = await engine.run(what)
            return await engine.retry(first.run_id, steps=["a"], force=True)

    assert virtual_run(main).success
    assert [dict(call.args) for call in world.calls if call.tool == "b"] == [{"x": 1}, {"x": 2}]


# -- X7: people ---------------------------------------------------------------------------------------------------


def test_pause_and_resume() -> None:
    """X7: running calls end, nothing new starts; resume goes on; each is an event with who."""
    world = World(a=[Took(10)])

    async def act(engine: Engine, run: str) -> Any:
        await asyncio.sleep(1)
        await engine.pause(run, by="ann")
        paused = await engine.wait(run)
        assert (paused.status, paused.steps["a"].status) == ("waiting", "succeeded")
        assert paused.waiting_on == ({"step": "", "for": "paused"},)
        assert world.calls_of("b") == 0
        with pytest.raises(Refused) as refused:
            await engine.retry(run)
        assert refused.value.code == "RUN_PAUSED"
        with pytest.raises(Refused):
            await engine.pause(run)
        return await engine.resume(run, by="bob")

    result, events = live(world, plan(("a",), ("b", "a")), act)
    assert result.success
    assert acted(events, "pause").by == "ann"
    assert of(events, "resumed")[-1].by == "bob"


def test_resume_before_the_last_call_has_ended() -> None:
    """X7: a pause can be taken back while a call is still under way."""
    world = World(a=[Took(10)])

    async def act(engine: Engine, run: str) -> Any:
        await asyncio.sleep(1)
        await engine.pause(run)
        await asyncio.sleep(1)
        return await engine.resume(run, by="bob")

    result, events = live(world, plan(("a",), ("b", "a")), act)
    assert result.success
    assert world.order == ["a", "b"]
    assert of(events, "resumed")[-1].by == "bob"


def test_a_pause_holds_backoffs_and_rounds() -> None:
    """X7: nothing starts by itself while it lasts."""
    world = World(a=[DOWN, {"v": 1}])

    async def act(engine: Engine, run: str) -> Any:
        await asyncio.sleep(0.1)
        await engine.pause(run)
        assert (await engine.wait(run)).status == "waiting"
        await asyncio.sleep(1000)
        assert world.calls_of("a") == 1
        return await engine.resume(run)

    result, _ = live(world, plan(("a",)), act, settings={"retry": {"jitter": False, "backoff_base": 5}})
    assert result.success
    assert world.calls_of("a") == 2


def test_cancel_stops_calls_and_starts_nothing() -> None:
    """X7, X5: at once; the run cannot be acted on any more, only retried."""
    world = World(a=[Took(1000)], b=[DOWN])

    async def act(engine: Engine, run: str) -> Any:
        await asyncio.sleep(0.1)
        await engine.cancel(run, by="ann")
        result = await engine.wait(run)
        assert asyncio.get_running_loop().time() < 10
        for wish in (engine.cancel(run), engine.pause(run), engine.confirm(run, "a")):
            with pytest.raises(Refused) as refused:
                await wish
            assert refused.value.code == "RUN_AT_REST"
        return result

    result, events = live(world, plan(("a",), ("b",), ("c", "a")), act, settings={"retry": {"backoff_base": 30}})
    assert result.status == "cancelled"
    assert not result.success
    assert of(events, "cancelled")[0].by == "ann"
    assert not of(events, "retry_begin")


@pytest.mark.parametrize("state", ["running", "pending", "failed", "backoff", "gate", "doubt", "consequence"])
def test_skip_a_step_in_any_state(state: str) -> None:
    """X7, V1: SKIP_USER is accepted, critical or not; a hole for those behind it; who and why are kept."""
    what = plan(("x",), ("s", "x"), ("after", "s"), ("long",), s={"confirm": True} if state == "gate" else {})
    scripts: dict[str, list[Any]] = {
        "running": [Took(1000)], "failed": [BROKE], "backoff": [DOWN], "doubt": [TimeoutError("t")],
    }  # fmt: skip
    world = World(s=scripts.get(state, [{"v": 1}]), x=[BROKE if state == "consequence" else {"v": 1}], long=[Took(50)])
    if state == "pending":
        world.script["x"] = [Took(20, {"v": 1})]
    if state == "doubt":
        world.option("s", effect="once")

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(5)
        await engine.skip(run, "s", by="ann", reason="not needed")

    retries = 3 if state == "backoff" else 0
    settings = {
        "reflection": {"max_step_retries": retries},
        "retry": {"max_retry_rounds": 0, "jitter": False, "backoff_base": 30},
    }
    result, events = live(world, what, act, settings=settings)
    assert (result.steps["s"].status, result.steps["s"].code) == ("skipped", "SKIP_USER")
    assert result.steps["after"].status == "degraded"
    assert result.degraded
    assert result.success is (state != "consequence")
    event = acted(events, "skip")
    assert (event.by, event.step, event.reason) == ("ann", "s", "not needed")
    assert times(events)["after"] < 30


def test_skip_is_refused_for_what_is_done_and_for_nobody() -> None:
    """X7: with the near match."""
    world = World(long=[Took(50)])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        with pytest.raises(Refused) as refused:
            await engine.skip(run, "done")
        assert refused.value.code == "STEP_ENDED"
        with pytest.raises(Refused) as refused:
            await engine.skip(run, "lnog")
        assert refused.value.code == "STEP_UNKNOWN"
        assert "'long'" in refused.value.hint

    assert live(world, plan(("done",), ("long",)), act)[0].success


def test_skip_a_failed_step_of_a_run_at_rest() -> None:
    """X7, V1: what it held up runs now, and the run completes."""
    world = World(s=[BROKE])
    what = plan(("s",), ("after", "s"))

    async def act(engine: Engine, run: str) -> Any:
        assert (await engine.wait(run)).status == "failed"
        await engine.skip(run, "s", by="ann")
        return await engine.wait(run)

    result, events = live(world, what, act, settings=PLAIN)
    assert (result.status, result.degraded) == ("completed", True)
    assert world.order == ["s", "after"]
    assert len(of(events, "done")) == 2
    assert events[-1].type == "done"


def test_retrying_a_step_in_backoff_ends_its_wait() -> None:
    """X7: at once, with fresh retries; an event with who."""
    world = World(a=[DOWN, {"v": 1}])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(5)
        await engine.begin_retry(run, ["a"], by="ann")

    settings = {"retry": {"jitter": False, "backoff_base": 25}}
    result, events = live(world, plan(("a",)), act, settings=settings)
    assert result.success
    starts = [round(event.at - events[0].at, 3) for event in of(events, "step_started")]
    assert starts == [0, 5]
    assert acted(events, "retry").by == "ann"


def test_retrying_a_failed_step_of_a_live_run() -> None:
    """X7, R1: it and what it held up run while the rest goes on."""
    world = World(a=[BROKE, {"v": 1}], long=[Took(50)])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(5)
        with pytest.raises(Refused) as refused:
            await engine.retry(run)
        assert refused.value.code == "RUN_LIVE"
        with pytest.raises(Refused) as refused:
            await engine.begin_retry(run, ["a"], clean=True)  # it cannot start over while it goes on
        assert refused.value.code == "RUN_LIVE"
        with pytest.raises(Refused) as refused:
            await engine.begin_retry(run, ["long"])
        assert refused.value.code == "STEP_NOT_WAITING"
        with pytest.raises(Refused) as refused:
            await engine.begin_retry(run, ["ok"])
        assert refused.value.code == "STEP_SUCCEEDED"
        await engine.begin_retry(run, ["a"])

    result, events = live(world, plan(("a",), ("b", "a"), ("long",), ("ok",)), act, settings=PLAIN)
    assert result.success
    assert times(events)["b"] == 5
    assert world.calls_of("ok") == 1


def test_a_wish_that_comes_while_the_run_comes_to_rest() -> None:
    """X7, T7: it is granted or refused by name, never lost in between."""

    class Slow(MemoryStore):
        async def append(self, batch: Batch) -> None:
            await asyncio.sleep(1)
            await super().append(batch)

    world = World()

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(0.5)  # the note that the run waits for a person is being written
        await engine.confirm(run, "a", by="ann", ahead=True)

    result, _ = live(world, plan(("a",), a={"confirm": True}), act, store=Slow())
    assert result.success


def test_add_steps_to_a_live_run() -> None:
    """X7, P6: they start by their own needs, existing ones are not disturbed; an event with who."""
    world = World(a=[Took(10, {"v": 1})])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        await engine.add(
            run,
            [{"id": "n", "tool": "n"}, rerail.Step("m", "m", {"x": "${a.v}"}, needs=["n"], fallback={"value": None})],
            by="ann",
        )

    world.option("n").option("m")
    result, events = live(world, plan(("a",), ("b", "a")), act)
    assert result.success
    assert list(result.steps) == ["a", "b", "n", "m"]
    assert times(events) == {"a": 0, "n": 1, "b": 10, "m": 10}
    assert acted(events, "add").by == "ann"
    assert world.calls_of("a") == 1


@pytest.mark.parametrize(
    "steps",
    [
        [{"id": "a", "tool": "a"}], [{"id": "x", "tool": "nobody"}], [{"id": "x", "tool": "a", "needs": ["y"]}],
        [{"id": "x", "tool": "a", "args": {"v": "${y}"}}], [{"id": "x", "tool": "a", "nedes": []}], [],
        [{"id": "x", "tool": "a", "needs": ["x"]}], [5],
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_addition_is_refused_and_the_old_plan_stays(steps: list[Any]) -> None:
    """X7, P5: with every fault, and an event that says so."""
    world = World(a=[Took(10)])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        with pytest.raises(PlanError) as refused:
            await engine.add(run, steps)
        assert refused.value.faults

    result, events = live(world, plan(("a",)), act)
    assert (result.success, list(result.steps)) == (True, ["a"])
    assert of(events, "plan_rejected")


def test_an_added_id_does_not_change_what_a_reference_means() -> None:
    """P6, P4: `${a.b}` was step a's b before somebody added a step named a.b, and stays so."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "c", "tool": "c", "args": {"x": "${a.b}"}}]}
    world = World(a=[Took(10, {"b": "of a"})], d=[{"v": "of a.b"}])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        await engine.add(run, [{"id": "a.b", "tool": "d"}])

    result, _ = live(world, what, act)
    assert result.success
    assert dict(world.calls[-1].args) == {"x": "of a"}


@pytest.mark.parametrize("state", ["failed", "skipped", "backoff", "gate", "consequence", "pending"])
def test_resolve_a_step_by_hand(state: str) -> None:
    """X7: succeeded with a value, for a failed, skipped or waiting step; dependents get the value; who is kept."""
    what = plan(("x",), ("s", "x"), ("long",), s={"confirm": state == "gate", "critical": state != "skipped"})
    what["steps"].append({"id": "after", "tool": "after", "args": {"v": "${s.v}"}})
    scripts: dict[str, list[Any]] = {"failed": [BROKE], "skipped": [BROKE], "backoff": [DOWN]}
    world = World(s=scripts.get(state, [{"v": 1}]), x=[BROKE if state == "consequence" else {"v": 0}], long=[Took(50)])
    if state == "pending":
        world.script["x"] = [Took(20, {"v": 0})]

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(5)
        await engine.resolve(run, "s", succeeded={"v": "by hand"}, by="ann")

    retries = 3 if state == "backoff" else 0
    settings = {
        "reflection": {"max_step_retries": retries},
        "retry": {"max_retry_rounds": 0, "jitter": False, "backoff_base": 30},
    }
    result, events = live(world, what, act, settings=settings)
    assert (result.steps["s"].status, result.steps["s"].output) == ("succeeded", {"v": "by hand"})
    assert dict(next(call for call in world.calls[::-1] if call.tool == "after").args) == {"v": "by hand"}
    assert result.steps["after"].status == "succeeded"
    event = acted(events, "resolve")
    assert (event.by, event.outcome, event.step) == ("ann", "succeeded", "s")


def test_resolve_a_failed_step_of_a_run_at_rest() -> None:
    """X7, R4: what it held up runs, and the run comes to rest again."""
    what = {"steps": [{"id": "s", "tool": "s"}, {"id": "after", "tool": "after", "args": {"v": "${s.v}"}}]}
    world = World(s=[BROKE])

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        await engine.resolve(run, "s", succeeded={"v": 7})
        return await engine.wait(run)

    result, events = live(world, what, act, settings=PLAIN)
    assert result.status == "completed"
    assert world.order == ["s", "after"]
    assert len(of(events, "done")) == 2


@pytest.mark.parametrize(
    ("answer", "calls", "status"), [({"failed": True}, 1, "failed"), ({"rerun": True}, 2, "completed")]
)
def test_answer_a_doubt(answer: dict[str, Any], calls: int, status: str) -> None:
    """X7, E3: it did not happen; or: call it again."""
    world = World(pay=[TimeoutError("no answer"), {"v": 1}]).option("pay", effect="once")

    async def act(engine: Engine, run: str) -> Any:
        assert (await engine.wait(run)).status == "waiting"
        with pytest.raises(Refused):
            await engine.resume(run)
        with pytest.raises(Refused):
            await engine.resolve(run, "pay", failed=True, rerun=True)
        await engine.resolve(run, "pay", by="ann", **answer)
        return await engine.wait(run)

    result, events = live(world, plan(("pay",)), act)
    assert (world.calls_of("pay"), result.status) == (calls, status)
    assert acted(events, "resolve").by == "ann"
    if status == "failed":
        assert result.steps["pay"].error["code"] == "RESOLVED_FAILED"
        assert "ann" in result.steps["pay"].error["message"]


@pytest.mark.parametrize("answer", [{"succeeded": {"v": 2}}, {"failed": True}, {"rerun": True}])
@pytest.mark.parametrize("after", ["nothing", "waiting"])
def test_a_mistyped_resolve_is_corrected(answer: dict[str, Any], after: str) -> None:
    """X7, E3: until a dependent has started with the value, at rest too; each answer is an event."""
    steps: list[dict[str, Any]] = [{"id": "pay", "tool": "pay"}]
    if after == "waiting":
        steps.append({"id": "next", "tool": "next", "args": {"v": "${pay.v}"}, "confirm": True})
    world = World(pay=[TimeoutError("no answer"), {"v": 3}]).option("pay", effect="once")

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        await engine.resolve(run, "pay", succeeded={"v": 1})
        found = await engine.wait(run)
        assert found.status == ("completed" if after == "nothing" else "waiting")
        told = await engine.resolve(run, "pay", dry_run=True, **answer)
        await engine.resolve(run, "pay", **answer)
        found = await engine.wait(run)
        assert told is not None
        assert told.to_dict()["leads_to"] in (found.status, "running")
        return found

    result, events = live(world, {"steps": steps}, act)
    wanted = {"succeeded": {"v": 2}, "failed": None, "rerun": {"v": 3}}[next(iter(answer))]
    assert result.steps["pay"].output == wanted
    assert world.calls_of("pay") == (2 if "rerun" in answer else 1)
    assert result.steps["pay"].status == ("failed" if "failed" in answer else "succeeded")
    assert not result.in_doubt
    assert len([event for event in of(events, "acted") if event.action == "resolve"]) == 2
    if after == "waiting" and "failed" not in answer:
        assert result.waiting_on[0]["args"] == {"v": (wanted or {})["v"]}


def test_a_resolved_value_in_use_is_not_corrected() -> None:
    """X7: a dependent has started with it; the refusal names it, and says what to do."""
    world = World(s=[BROKE])
    what = {"steps": [{"id": "s", "tool": "s"}, {"id": "after", "tool": "after", "args": {"v": "${s.v}"}}]}

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        await engine.resolve(run, "s", succeeded={"v": 7})
        done = await engine.wait(run)
        for answer in ({"succeeded": 1}, {"failed": True}, {"rerun": True}):
            with pytest.raises(Refused) as refused:
                await engine.resolve(run, "s", **answer)
            assert refused.value.code == "STEP_ENDED"
            assert "after has started with its value" in refused.value.message
            assert "retry" in refused.value.hint
        return done

    result, _ = live(world, what, act, settings=PLAIN)
    assert result.steps["s"].output == {"v": 7}


def test_a_once_step_resolved_by_hand_is_still_a_once_step() -> None:
    """R3, X7: a person said that the payment happened; nothing automatic pays again when its input changes."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "pay", "tool": "pay", "args": {"n": "${a.n}"}}]}
    world = World(a=[{"n": 1}, {"n": 2}], pay=[TimeoutError("no answer"), {"v": 2}]).option("pay", effect="once")
    mind = ScriptedMind(judge=[{"unsatisfactory": [{"step": "a", "evidence": "poor"}]}, {"complete": True}])

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        await engine.resolve(run, "pay", succeeded={"v": 1})
        return await engine.wait(run)

    result, _ = live(world, what, act, model=mind, settings={"evaluation": {"shortcut": False}})
    assert world.order == ["a", "pay", "a"]
    assert result.steps["pay"].stale
    assert result.degraded


def test_confirm_and_refuse() -> None:
    """X7: a gate waits, without holding up others; both answers are events with who; a no is final."""
    what = plan(
        ("g",), ("h",), ("after", "g"), ("free",), g={"confirm": "Send it?"}, h={"confirm": True, "critical": False}
    )
    world = World()

    async def act(engine: Engine, run: str) -> Any:
        waiting = await engine.wait(run)
        assert waiting.status == "waiting"
        assert [(item["step"], item["for"], item["question"]) for item in waiting.waiting_on] == [
            ("g", "confirm", "Send it?"), ("h", "confirm", ""),
        ]  # fmt: skip
        assert waiting.steps["free"].status == "succeeded"
        with pytest.raises(Refused):
            await engine.confirm(run)  # which one?
        with pytest.raises(Refused):
            await engine.confirm(run, "free")
        await engine.confirm(run, "g", by="ann")
        await engine.wait(run)
        await engine.confirm(run, refuse=True, by="bob")
        return await engine.wait(run)

    result, events = live(world, what, act)
    assert result.steps["after"].status == "succeeded"
    assert result.steps["h"].status in ("failed", "skipped")
    assert world.calls_of("h") == 0
    assert acted(events, "confirm").by == "ann"
    refused = acted(events, "refuse")
    assert (refused.by, refused.step) == ("bob", "h")
    failed = next(event for event in of(events, "step_failed") if event.step == "h")
    assert (failed.error.code, str(failed.error.category)) == ("CONFIRM_REFUSED", "permanent_error")


def test_a_gate_opened_before_its_turn() -> None:
    """X7, X10, T2: who agrees early, and says so, is not asked again."""
    world = World(a=[Took(10)])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        with pytest.raises(Refused) as refused:
            await engine.confirm(run, "g")
        assert refused.value.code == "STEP_NOT_WAITING" and refused.value.hint.endswith(" g --ahead")
        await engine.confirm(run, "g", ahead=True)

    assert live(world, plan(("a",), ("g", "a"), g={"confirm": True}), act)[0].success


def test_every_action_says_who_without_being_told() -> None:
    """X7: the engine's own name is the default."""
    world = World(a=[Took(10)])

    async def act(engine: Engine, run: str) -> None:
        await asyncio.sleep(1)
        await engine.skip(run, "a")

    _, events = live(world, plan(("a",)), act, by="carl")
    assert acted(events, "skip").by == "carl"


# -- X8: not now --------------------------------------------------------------------------------------------------


class Busy(Exception):
    """An HTTP client's error, as such things look."""

    def __init__(self, status: int, retry_after: float | None) -> None:
        super().__init__(status, retry_after)
        self.status_code = status
        if retry_after is not None:
            self.retry_after = retry_after


@pytest.mark.parametrize(
    ("outcome", "waits"),
    [
        (RateLimited("later", retry_after=40), True),
        (RateLimited("later", retry_after=40, code="COOLDOWN_ACTIVE"), True),
        (Busy(429, 40), True),
        (Busy(503, 40), True),
        (Busy(429, None), False),
        (Busy(503, None), False),
        (Busy(500, 40), False),
        ({"success": False, "code": "COOLDOWN_ACTIVE", "retry_after": 40}, True),
    ],
)
def test_not_now(outcome: Any, waits: bool) -> None:
    """X8, H2: obeyed, and no retry; without a time it is a transient failure like others."""
    world = World(a=[outcome, {"v": 1}])
    result, events = history(
        world, plan(("a",), a={"retries": 0 if waits else 1}), settings={"retry": {"max_retry_rounds": 0}}
    )
    assert result.success
    (scheduled,) = of(events, "retry_scheduled")
    assert scheduled.not_now is waits
    if waits:
        assert (scheduled.delay, scheduled.retries_left) == (40, 0)
        assert times(events, "step_started") == {"a": 0}
        assert of(events, "step_started")[1].at - events[0].at == pytest.approx(40)


def test_the_longest_not_now_that_is_obeyed() -> None:
    """X8: retry.max_wait bounds the total per step and round; past it, a transient failure."""
    world = World(a=[RateLimited("later", retry_after=1e9)])
    result, _ = history(world, plan(("a",)), settings=PLAIN)
    assert world.calls_of("a") == 1
    assert result.steps["a"].error["category"] == "transient_error"
    assert result.steps["a"].error["code"] == "RATE_LIMITED"


@pytest.mark.parametrize("seconds", [0, 0.0, -5, float("nan"), float("inf")])
def test_an_odd_time_to_come_back(seconds: float) -> None:
    """X8: the run ends, whatever number the tool says."""
    world = World(a=[RateLimited("later", retry_after=seconds)] * 3 + [{"v": 1}])

    async def main() -> Any:
        async with world.engine(plan(("a",))) as engine:
            return await asyncio.wait_for(engine.run(plan(("a",))), 10_000)

    assert virtual_run(main).status in ("completed", "failed")


def test_a_tool_that_says_not_now_without_end_is_given_up() -> None:
    """X8, H4: also if each wait is none: it is called after growing waits, and these are what `max_wait` bounds."""
    world = World(a=[RateLimited("later", retry_after=0)])
    result, events = history(world, plan(("a",)), settings={"retry": {"max_wait": 100, "jitter": False}})
    calls = [event.at - events[0].at for event in of(events, "step_started")]
    assert [event.delay for event in of(events, "retry_scheduled")] == [0, 2, 2, 4, 8, 16, 30, 30]
    assert calls == pytest.approx([0, 0, 2, 4, 8, 16, 32, 62, 92], abs=0.1)
    assert result.steps["a"].code == "RATE_LIMITED" and world.calls_of("a") == 9
    (failed,) = of(events, "reflected")
    assert failed.refused == ("has to wait 30 s, with 92 s already waited of 100 s allowed: later",)


def test_a_wait_that_is_asked_for_is_kept_where_it_is_longer() -> None:
    """X8: the first wait is the tool's own; without a backoff, further ones still take some time."""
    world = World(a=[RateLimited("later", retry_after=seconds) for seconds in (0.5, 0.5, 7, 0)] + [1])
    _, events = history(world, plan(("a",)), settings={"retry": {"backoff_base": 0}})
    assert [event.delay for event in of(events, "retry_scheduled")] == [0.5, 2, 7, 2]


# -- X9: suspect outputs ------------------------------------------------------------------------------------------

SUSPECT = [
    {"error": "not found"}, {"errors": ["a"]}, {"exception": "x"}, {"status": 500}, {"status_code": 404}, {"ok": False},
    "Error: file not found",
]  # fmt: skip
FINE = [
    {"error": None}, {"error": ""}, {"errors": []}, {"error": False}, {"error": 0}, {"status": 200}, {"ok": True},
    {"data": {"error": "inside"}}, "no error was found in the text", [{"error": "in a list"}], 0, "", [], {},
]  # fmt: skip


@pytest.mark.parametrize("output", SUSPECT, ids=str)
def test_a_success_that_looks_like_a_failure_is_not_believed(output: Any) -> None:
    """X9: SUSPECT_OUTPUT, with what was seen; switched off on the step or on the tool."""
    result, _ = history(World(a=[output]), plan(("a",)), settings=PLAIN)
    error = result.steps["a"].error
    assert (result.steps["a"].status, error["code"]) == ("failed", "SUSPECT_OUTPUT")
    assert error["data"]["seen"]
    trusted, _ = history(World(a=[output]), plan(("a",), a={"trust_output": True}), settings=PLAIN)
    assert trusted.success
    assert trusted.steps["a"].output == output
    trusted, _ = history(World(a=[output]).option("a", trust_output=True), plan(("a",)), settings=PLAIN)
    assert trusted.success


@pytest.mark.parametrize("output", FINE, ids=repr)
def test_what_is_no_failure_is_believed(output: Any) -> None:
    """X9: unset members, deeper levels, texts that only speak of errors."""
    result, _ = history(World(a=[output]), plan(("a",)), settings=PLAIN)
    assert result.success
    assert result.steps["a"].output == output


@pytest.mark.parametrize(
    ("trust", "output", "believed"),
    [
        ({"ignore": ["error"]}, {"error": "the text of the error page"}, True),
        ({"ignore": ["error"]}, {"error": "x", "status": 500}, False),
        ({"ignore": ["text"]}, "Error: file not found", True),
        ({"ignore": ["text"]}, {"error": "x"}, False),
        ({"suspect": [{"state": "FAILED"}]}, {"state": "FAILED", "id": 7}, False),
        ({"suspect": [{"state": "FAILED"}]}, {"state": "DONE", "id": 7}, True),
        ({"suspect": ["failures"]}, {"failures": ["x"]}, False),
        ({"suspect": ["failures"]}, {"failures": []}, True),
        ({"suspect": ["No Results"]}, "sorry, no results for that", False),
        ({"suspect": ["No Results"]}, "three results", True),
        ({"ignore": ["error"], "suspect": [{"ok": False}]}, {"error": "x", "ok": False}, False),
    ],
)
def test_the_signs_of_failure_can_be_widened_and_narrowed(trust: Any, output: Any, believed: bool) -> None:
    """X9: on the step or on the tool."""
    result, _ = history(World(a=[output]), plan(("a",), a={"trust_output": trust}), settings=PLAIN)
    assert result.success is believed
    result, _ = history(World(a=[output]).option("a", trust_output=trust), plan(("a",)), settings=PLAIN)
    assert result.success is believed
    if not believed:
        assert result.steps["a"].error["code"] == "SUSPECT_OUTPUT"


def test_faulty_signs_are_named() -> None:
    """X9, P5: a key nobody knows, a value of the wrong kind; of a step and of a tool."""
    for trust in ({"ignored": ["x"]}, {"suspect": "x"}, {"suspect": [5]}, {"ignore": [1]}, "yes"):
        with pytest.raises(PlanError, match="trust_output"):
            history(World(), plan(("a",), a={"trust_output": trust}))
        with pytest.raises(ValueError, match="trust_output"):
            World().option("a", trust_output=trust).tools(plan(("a",)))


def test_a_step_may_distrust_a_trusted_tool() -> None:
    """X9, P1: the step's word before the tool's."""
    world = World(a=[{"error": "x"}]).option("a", trust_output=True)
    result, _ = history(world, plan(("a",), a={"trust_output": False}), settings=PLAIN)
    assert result.steps["a"].error["code"] == "SUSPECT_OUTPUT"


@pytest.mark.parametrize(
    ("output", "category"),
    [
        ({"error": "connection timed out"}, "transient_error"),
        ({"status_code": 401, "message": "bad key"}, "permanent_error"),
        ({"error": "hm"}, "tool_error"),
        ({"error": {"message": "hm", "category": "parameter_error"}}, "parameter_error"),
        ({"error": "hm", "category": ["fiction", "drama"]}, "tool_error"),
        ({"error": "hm", "category": {"id": 5}, "code": [1], "status": {}, "suggest": [2]}, "tool_error"),
    ],
)
def test_a_suspect_output_is_classified_by_its_text(output: Any, category: str) -> None:
    """H2, X9: else it is the tool's; other members may be anything."""
    result, _ = history(World(a=[output]), plan(("a",)), settings=PLAIN)
    assert result.steps["a"].error["code"] == "SUSPECT_OUTPUT"
    assert result.steps["a"].error["category"] == category


# -- V6: checks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ({"non_empty": True}, [1], []),
        ({"non_empty": True}, "x", ""),
        ({"non_empty": True}, {"a": 1}, {}),
        ({"non_empty": True}, 0, None),
        ({"keys": ["id", "name"]}, {"id": 1, "name": None}, {"id": 1}),
        ({"keys": ["id"]}, {"id": 1}, "text"),
        ({"schema": {"type": "object", "required": ["n"], "properties": {"n": {"minimum": 5}}}}, {"n": 5}, {"n": 4}),
        ({"schema": {"type": "string"}}, "x", None),
    ],
)
def test_a_step_whose_check_fails_has_failed(check: dict[str, Any], good: Any, bad: Any) -> None:
    """V6, H2: on the step or on its tool; a tool_error; the next call may mend it."""
    for on_tool in (False, True):
        what = plan(("a",), a={} if on_tool else {"check": check})
        world = World(a=[bad, good])
        if on_tool:
            world.option("a", check=check)
        result, events = history(world, what)
        (failed,) = of(events, "step_failed")
        assert (failed.error.code, str(failed.error.category)) == ("CHECK_FAILED", "tool_error")
        assert result.success
        assert result.steps["a"].output == good


def test_both_checks_hold() -> None:
    """V6: the tool's and the step's."""
    world = World(a=[{"x": 1}]).option("a", check={"keys": ["y"]})
    result, _ = history(world, plan(("a",), a={"check": {"keys": ["x"]}}), settings=PLAIN)
    assert "'y'" in result.steps["a"].error["message"]


def test_a_check_is_not_asked_of_a_failure() -> None:
    """V6, X3: what failed has failed for its own reason."""
    result, _ = history(World(a=[BROKE]), plan(("a",), a={"check": {"non_empty": True}}), settings=PLAIN)
    assert result.steps["a"].error["message"] == "it broke"


# -- V8: verification ---------------------------------------------------------------------------------------------


def test_probe_is_looked_at_before_and_handed_to_verify() -> None:
    """V8: before the call, stored with the intent; verify takes any of args, output, before, ctx by name."""
    seen: dict[str, Any] = {}
    count = [3]

    async def probe(args: dict[str, Any], ctx: Any) -> Any:
        assert "called" not in seen
        return {"rows": count[0], "for": args["n"]}

    async def verify(before: Any, output: Any, args: dict[str, Any], ctx: Any) -> bool:
        seen.update(before=before, output=output, args=args, step=ctx.step)
        return count[0] == before["rows"] + 1

    def a(n: int) -> Any:
        seen["called"] = True
        count[0] += 1
        return {"added": n}

    world = World(a=[a]).option("a", probe=probe, verify=verify)
    result, events = history(world, plan(("a",), a={"args": {"n": 7}}))
    assert result.success
    assert seen["before"] == {"rows": 3, "for": 7}
    assert (seen["output"], seen["args"], seen["step"]) == ({"added": 7}, {"n": 7}, "a")
    assert of(events, "step_started")[0].before == {"rows": 3, "for": 7}


def test_before_survives_a_lost_answer() -> None:
    """V8, E3: the look from before the call decides what happened since."""
    count = [0]

    async def probe(args: dict[str, Any]) -> int:
        return count[0]

    async def verify(before: Any, output: Any) -> bool:
        assert output is None
        return count[0] > before

    def a() -> Any:
        count[0] += 1
        return ConnectionResetError("gone")

    world = World(a=[a]).option("a", effect="once", probe=probe, verify=verify)
    result, events = history(world, plan(("a",)))
    assert result.success
    assert (count, world.calls_of("a")) == ([1], 1)
    assert of(events, "step_verified")[0].effect == "there"


def test_a_lost_answer_whose_effect_is_not_there_goes_to_the_ladder() -> None:
    """V8: also for a `once` tool: it is known that it did not happen."""
    done: list[int] = []

    async def verify() -> bool:
        return bool(done)

    world = World(a=[ConnectionResetError("gone"), lambda: done.append(1) or {"v": 1}]).option(
        "a", effect="once", verify=verify
    )
    result, events = history(world, plan(("a",)))
    assert result.success
    assert world.calls_of("a") == 2
    assert of(events, "step_verified")[0].effect == "absent"


def test_verify_by_a_tool_call() -> None:
    """V8, P1: `expect` is a subset of what the tool shows; its arguments may refer to earlier steps."""
    what = {
        "steps": [
            {"id": "k", "tool": "k"},
            {
                "id": "a",
                "tool": "a",
                "verify": {"tool": "look", "args": {"id": "${k.id}"}, "expect": {"row": {"done": True}}},
            },
        ]
    }
    world = World(k=[{"id": 9}], look=[{"row": {"done": False, "x": 1}}, {"row": {"done": True, "x": 2}, "more": 1}])
    # Without jitter: a repeat within a moment of the look needs no second one.
    result, events = history(world, what, settings={"retry": {"jitter": False}})
    assert result.success
    # Not there after the call; there right before it is repeated, but without its output; there after that.
    assert [dict(call.args) for call in world.calls if call.tool == "look"] == [{"id": 9}] * 3
    assert world.calls_of("a") == 2
    assert of(events, "step_failed")[0].error.code == "VERIFY_FAILED"
    assert str(of(events, "step_failed")[0].error.category) == "tool_error"


@pytest.mark.parametrize("shown", [{"error": "not found"}, {"status_code": 404}, {"success": False}, None, {}])
def test_a_verification_that_shows_an_error_shows_nothing(shown: Any) -> None:
    """V8, X9: without `expect`, an answer that is empty or looks like a failure is no proof of the effect."""
    world = World(look=[shown])
    result, _ = history(world, plan(("a",), a={"verify": {"tool": "look"}}), settings=PLAIN)
    row = result.steps["a"]
    assert row.unverified or row.error["code"] == "VERIFY_FAILED"


def test_verify_arguments_that_are_large() -> None:
    """V8, P4, E6: an earlier output that is not in memory any more is fetched for verify, too."""
    text = "x" * 5000
    what = {
        "steps": [
            {"id": "big", "tool": "big"},
            {"id": "a", "tool": "a", "verify": {"tool": "look", "args": {"text": "${big.text}"}}},
        ]
    }
    world = World(big=[{"text": text}], look=[lambda text: {"length": len(text)}])
    result, _ = history(world, what, settings={"artifacts": {"memory": 0}, **PLAIN})
    assert dict(world.calls[-1].args) == {"text": text}
    assert not result.steps["a"].unverified
    assert result.success


def test_verify_that_cannot_tell_is_asked_twice() -> None:
    """V8: after a success: succeeded, and noted unverified."""
    asked: list[int] = []

    async def verify() -> bool:
        asked.append(1)
        raise OSError("no network")

    world = World().option("a", verify=verify)
    result, _ = history(world, plan(("a",)))
    assert result.success
    assert len(asked) == 2
    assert result.steps["a"].unverified
    assert world.calls_of("a") == 1


def test_verify_that_hangs_is_asked_twice() -> None:
    """V8: a timeout of the look is no failure of the step, however short the step's own timeout is."""

    async def verify() -> bool:
        await asyncio.sleep(10_000)
        return True

    for timeout in (300, 5):
        world = World().option("a", verify=verify)
        result, _ = history(world, plan(("a",), a={"timeout": timeout}), settings=PLAIN)
        assert result.steps["a"].status == "succeeded", timeout
        assert result.steps["a"].unverified


def test_verify_that_mends_itself_is_believed() -> None:
    """V8: asked once more."""
    answers = [OSError("hm"), True]

    async def verify() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    result, _ = history(World().option("a", verify=verify), plan(("a",)))
    assert result.success
    assert not result.steps["a"].unverified


@pytest.mark.parametrize(("effect", "status"), [("once", "waiting"), ("repeatable", "completed")])
def test_a_lost_answer_that_verify_cannot_judge(effect: str, status: str) -> None:
    """V8, E3: a `once` step is in doubt; any other is called again."""

    async def verify(output: Any) -> bool:
        if output is not None:
            return True
        raise OSError("no network")

    world = World(a=[TimeoutError("t"), {"v": 1}]).option("a", effect=effect, verify=verify)
    result, _ = history(world, plan(("a",)))
    assert result.status == status
    assert world.calls_of("a") == (1 if effect == "once" else 2)


# -- P2: failure and done -----------------------------------------------------------------------------------------


def when(step: str, word: str) -> dict[str, str]:
    return {"step": step, "when": word}


CLEAN_UP = {
    "steps": [
        {"id": "a", "tool": "a"},
        {"id": "clean", "tool": "clean", "needs": [when("a", "failure")]},
        {"id": "always", "tool": "always", "needs": [when("a", "done")]},
        {"id": "next", "tool": "next", "needs": ["a"]},
        {"id": "after_clean", "tool": "after_clean", "needs": ["clean"]},
    ]
}


def test_clean_up_does_not_run_when_nothing_failed() -> None:
    """P2, V1: SKIP_CONDITION, accepted, cascading, and no hole."""
    world = World()
    result, _ = history(world, CLEAN_UP)
    assert world.order == ["a", "always", "next"]
    for name in ("clean", "after_clean"):
        assert (result.steps[name].status, result.steps[name].code) == ("skipped", "SKIP_CONDITION")
        assert result.steps[name].error["message"]
    assert result.success and not result.degraded


def test_clean_up_runs_once_no_automatic_round_will_mend_it() -> None:
    """P2, R6: `failure` and `done` on a failed step are met after its last round, and not before."""
    world = World(a=[BROKE])
    result, _ = history(world, CLEAN_UP, settings=ONE_ROUND)
    assert world.order[:2] == ["a", "a"]
    assert sorted(world.order[2:4]) == ["always", "clean"]
    assert world.order[4:] == ["after_clean"]
    assert result.status == "failed"
    assert [row["id"] for row in result.failed_steps] == ["a"]
    assert result.consequences == ("next",)


def test_clean_up_of_what_a_round_mends_does_not_run() -> None:
    """P2: the round came first."""
    world = World(a=[BROKE, {"v": 1}])
    result, _ = history(world, CLEAN_UP, settings=ONE_ROUND)
    assert world.order == ["a", "a", "always", "next"]
    assert result.success


def test_clean_up_runs_at_once_after_a_permanent_error() -> None:
    """P2, R6: no round will try that again."""
    world = World(a=[ToolError("no key", category="permanent_error")])
    _, events = history(world, CLEAN_UP)
    assert world.order == ["a", "clean", "always", "after_clean"]
    assert not of(events, "retry_begin")


def test_clean_up_that_ran_keeps_its_result_when_its_need_is_mended_later() -> None:
    """P2, R3: a person's retry mends a; clean is not undone and not run again, always is run again on the new input."""
    world = World(a=[BROKE, {"v": 1}])

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        return await engine.retry(run)

    result, _ = live(world, CLEAN_UP, act, settings=PLAIN)
    assert result.success
    assert result.steps["clean"].status == "succeeded"
    assert (world.calls_of("clean"), world.calls_of("always"), world.calls_of("next")) == (1, 2, 1)


def test_clean_up_that_ran_does_not_run_again_when_a_clean_start_goes_well() -> None:
    """P2, T4: nothing of before counts; what is undone only if it fails is not undone because it failed once."""
    world = World(a=[BROKE, {"v": 1}])

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        return await engine.retry(run, clean=True)

    result, _ = live(world, CLEAN_UP, act, settings=PLAIN)
    assert result.success and not result.degraded
    assert (world.calls_of("clean"), world.calls_of("after_clean"), world.calls_of("next")) == (1, 1, 1)
    for name in ("clean", "after_clean"):
        assert (result.steps[name].status, result.steps[name].code) == ("skipped", "SKIP_CONDITION")


def test_a_run_that_is_retried_and_cancelled_is_told_alike_everywhere() -> None:
    """V1, V2: nothing was left to do, and somebody ended it all the same: no success, in any event."""
    world = World()

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        world.script["a"] = [Took(50, {"v": 2})]
        await engine.begin_retry(run, ["a"], force=True)
        await engine.cancel(run)
        return await engine.wait(run)

    result, events = live(world, {"steps": [{"id": "a", "tool": "a"}]}, act, settings=PLAIN)
    assert (result.status, result.success) == ("cancelled", False)
    assert [of(events, name)[-1].success for name in ("evaluation", "done")] == [False, False]


def test_failure_means_failed_not_skipped() -> None:
    """P2: behind a step that was only skipped, `failure` is void and `done` is met."""
    what = plan(("a",), ("b", "a"))
    what["steps"] += [
        {"id": "f", "tool": "f", "needs": [when("b", "failure")]},
        {"id": "d", "tool": "d", "needs": [when("b", "done")]},
    ]
    world = World(a=[BROKE])
    result, _ = history(world, what, settings=PLAIN)
    assert result.steps["f"].code == "SKIP_CONDITION"
    assert result.steps["d"].status == "succeeded"
    assert world.order == ["a", "d"]


def test_what_ran_behind_a_skipped_step_runs_again_when_that_step_runs() -> None:
    """R1, R3, P2: `done` behind a skip is part of the retry set, and its input really changes."""
    what = plan(("a",), ("b", "a"))
    what["steps"].append({"id": "d", "tool": "d", "needs": [when("b", "done")]})
    world = World(a=[BROKE, {"v": 1}])

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        return await engine.retry(run)

    result, events = live(world, what, act, settings=PLAIN)
    assert of(events, "retry_begin")[0].chain == ("a", "b", "d")
    assert result.success
    assert world.order == ["a", "d", "a", "b", "d"]


def test_clean_up_reads_what_the_failed_step_left() -> None:
    """P2, P4: an explicit `when` beats the need that a reference implies; a failed step has left nothing: null."""
    what = plan(("a",))
    what["steps"].append({"id": "c", "tool": "c", "needs": [when("a", "failure")], "args": {"x": "${a}"}})
    world = World(a=[BROKE])
    history(world, what, settings=PLAIN)
    assert [(call.tool, dict(call.args)) for call in world.calls] == [("a", {}), ("c", {"x": None})]


def test_a_failed_clean_up_is_a_failure() -> None:
    """P2, V1: it is a step like any other."""
    world = World(a=[BROKE], clean=[BROKE])
    result, _ = history(world, CLEAN_UP, settings=PLAIN)
    assert [row["id"] for row in result.failed_steps] == ["a", "clean"]


def test_large_arguments_are_in_the_result() -> None:
    """SPEC 12: `args` of a step, wherever they are kept; also once the run is opened by somebody else."""
    what = {
        "steps": [
            {"id": "a", "tool": "a"},
            {"id": "b", "tool": "b", "args": {"text": "${a.text}"}},
        ]
    }
    world = World(a=[{"text": "x" * 5000}])
    store = MemoryStore()

    async def main() -> None:
        async with world.engine(what, store=store) as engine:
            result = await engine.run(what)
            assert result.steps["b"].args == {"text": "x" * 5000}
        async with world.engine(what, store=store) as other:
            assert (await other.show(result.run_id)).steps["b"].args == {"text": "x" * 5000}

    virtual_run(main)


def test_the_last_word_has_a_row_for_each_step() -> None:
    """V2, R4: `used`, skips with their code; that of a round has the rows of its retry set."""
    what = plan(("a",), ("b", "a"), ("c", "b"), ("d",))
    result, events = history(World(b=[BROKE]), what, settings=ONE_ROUND)
    rows = [(row["id"], row["status"], row["code"], row["attempts"]) for row in of(events, "done")[0].exec["used"]]
    assert rows == [
        ("a", "succeeded", None, 1), ("b", "failed", "TOOL_FAILED", 2), ("c", "skipped", "SKIP_UPSTREAM_FAILED", 0),
        ("d", "succeeded", None, 1),
    ]  # fmt: skip
    assert result.exec["used"] == of(events, "done")[0].exec["used"]
    assert [row["id"] for row in of(events, "retry_done")[0].exec["used"]] == ["b", "c"]


def test_limits_of_tools_and_providers_hold_across_the_runs_of_an_engine() -> None:
    """X1: a provider does not care which run calls it; nothing is starved, a run that stops gives back its share."""
    meter = Meter()
    tools = [meter.tool("p1", "server", provider="server"), meter.tool("p2", "server", provider="server")]
    what = {"steps": [{"id": str(i), "tool": f"p{i % 2 + 1}"} for i in range(6)]}
    settings = {"run": {"concurrency": 0, "provider_concurrency": {"server": 3}, "tool_concurrency": {"p1": 2}}}

    async def main() -> list[bool]:
        async with Engine("memory://", tools, settings, clock=VirtualClock()) as engine:
            runs = [await engine.start(what) for _ in range(4)]
            await asyncio.sleep(5)
            await engine.cancel(runs[0])
            return [(await engine.wait(run)).success for run in runs]

    assert virtual_run(main) == [False, True, True, True]
    assert (meter.most["server"], meter.most["p1"]) == (3, 2)


class Wrapped(Exception):
    """What libraries raise when something below them breaks."""


def wrapped(inner: Exception, how: str) -> Exception:
    error = Wrapped(inner if how == "args" else "it broke")
    if how == "cause":
        error.__cause__ = inner
    elif how == "reason":
        error.reason = inner  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (ConnectionError("reset"), 1), (lambda: wrapped(ConnectionResetError("reset"), "cause"), 1),
        (wrapped(TimeoutError(), "reason"), 1), (wrapped(ConnectionResetError("x"), "args"), 1),
        (lambda: wrapped(wrapped(BrokenPipeError("x"), "cause"), "args"), 1), (ToolError("who knows", lost=True), 1),
        (ConnectionRefusedError("no"), 1), (wrapped(ConnectionRefusedError("no"), "reason"), 1),
        (RuntimeError("an error of its own"), 1), (ToolError("it did not happen"), 4),
    ],
    ids=["bare", "by cause", "by reason", "by argument", "deep", "its own word", "refused", "refused below", "odd",
         "its own failure"],
)  # fmt: skip
def test_a_once_call_whose_answer_may_be_lost_is_not_made_again(error: Any, calls: int) -> None:
    """X4, E3: whatever a function raises; only what says itself that nothing happened is tried again."""
    world = World(a=[error]).option("a", effect="once")
    settings = {"retry": {"max_retry_rounds": 0}}
    result, _ = history(world, plan(("a",)), settings=settings)
    assert world.calls_of("a") == calls
    assert result.steps["a"].status == ("in_doubt" if calls == 1 else "failed")


@pytest.mark.parametrize(
    ("there", "status", "calls"), [(True, "succeeded", 1), (False, "succeeded", 2), (RuntimeError("?"), "in_doubt", 1)]
)
def test_where_somebody_can_look_that_comes_before_a_once_call_is_made_again(
    there: Any, status: str, calls: int
) -> None:
    """V8: an error that the tool did not word itself may hide an effect; a look that cannot tell leaves the doubt."""
    seen: list[str] = []

    def look(output: Any) -> bool:
        seen.append("after" if output is not None else "before")
        if output is None and isinstance(there, Exception):
            raise there
        return bool(there) if output is None else True

    world = World(a=[OSError("odd"), {"v": 1}]).option("a", effect="once", verify=look)
    result, _ = history(world, plan(("a",)), settings={"retry": {"max_retry_rounds": 0}})
    assert (result.steps["a"].status, world.calls_of("a")) == (status, calls)
    assert seen[0] == "before"


@pytest.mark.parametrize(
    ("found", "probe", "status", "calls"),
    [(True, False, "in_doubt", 1), (True, True, "succeeded", 1), (False, False, "succeeded", 2)],
)
def test_v8_a_refusal_of_the_tool_is_looked_behind(found: bool, probe: bool, status: str, calls: int) -> None:
    """V8: "nothing happened" and a look that finds the effect contradict each other, unless the look compares.

    Where both agree, nothing is waited for.
    """

    def look(output: Any) -> bool:
        return found if output is None else True

    options: dict[str, Any] = {"probe": lambda: 0} if probe else {}
    world = World(a=[ToolError("card declined"), {"v": 1}]).option("a", effect="once", verify=look, **options)
    result, events = history(world, plan(("a",)))
    assert (result.steps["a"].status, world.calls_of("a")) == (status, calls)
    assert all(event.waited == 0 for event in of(events, "step_verified"))


# -- T6: follow-ups -----------------------------------------------------------------------------------------------

WITH_FOLLOW_UP = {
    "objective": "work",
    **plan(("a",)),
    "follow_up": {"objective": "feedback", **plan(("f",), ("g", "f"))},
}


def followed(world: World, act: Callable[[Engine, str], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        world.option("f").option("g")
        async with world.engine(WITH_FOLLOW_UP, **options) as engine:
            run = await engine.start(WITH_FOLLOW_UP)
            return await act(engine, run)

    return virtual_run(main)


async def children(engine: Engine, run: str) -> list[str]:
    return [row["run_id"] for row in await engine.list(parent=run)]


def test_a_follow_up_runs_after_its_parent_completed() -> None:
    """T6: a run of its own, that names its parent."""
    world = World()

    async def act(engine: Engine, run: str) -> tuple[Any, Any]:
        parent = await engine.wait(run)
        (child,) = await children(engine, run)
        return parent, await engine.wait(child)

    parent, child = followed(world, act)
    assert parent.success and child.success
    assert (child.parent, child.objective, list(child.steps)) == (parent.run_id, "feedback", ["f", "g"])
    assert world.order == ["a", "f", "g"]


def test_a_failed_follow_up_leaves_its_parent_completed() -> None:
    """T6: own status, error and count; retry on the parent retries the follow-up where it failed, without force."""
    world = World(g=[BROKE, {"v": 1}])

    async def act(engine: Engine, run: str) -> None:
        await engine.wait(run)
        (child,) = await children(engine, run)
        failed = await engine.wait(child)
        assert failed.status == "failed"
        assert (await engine.show(run)).status == "completed"
        again = await engine.retry(run)
        assert (again.run_id, again.status, again.retries) == (child, "completed", 1)
        parent = await engine.show(run)
        assert (parent.status, parent.retries) == ("completed", 0)
        with pytest.raises(Refused) as refused:
            await engine.retry(run)
        assert refused.value.code == "RUN_COMPLETED"

    followed(world, act, settings=PLAIN)
    assert world.order == ["a", "f", "g", "g"]


def test_no_follow_up_of_a_failed_parent() -> None:
    """T6: after its parent completed, also if that takes a retry."""
    world = World(a=[BROKE, {"v": 1}])

    async def act(engine: Engine, run: str) -> None:
        assert (await engine.wait(run)).status == "failed"
        assert await children(engine, run) == []
        assert (await engine.retry(run)).status == "completed"
        (child,) = await children(engine, run)
        await engine.wait(child)

    followed(world, act, settings=PLAIN)
    assert world.order == ["a", "a", "f", "g"]


def test_a_parent_that_was_run_again_starts_its_follow_up_anew() -> None:
    """T6: all of it."""
    world = World()

    async def act(engine: Engine, run: str) -> None:
        await engine.wait(run)
        (child,) = await children(engine, run)
        await engine.wait(child)
        await engine.retry(run, steps=["a"], force=True)
        for child in await children(engine, run):
            await engine.wait(child)

    followed(world, act)
    assert world.order == ["a", "f", "g", "a", "f", "g"]


def test_a_follow_up_by_hand() -> None:
    """T6: start(plan, parent=run)."""
    world = World()
    what = plan(("a",))

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        child = await engine.start(what, parent=run)
        result = await engine.wait(child)
        assert result.parent == run
        assert await children(engine, run) == [child]
        return result

    assert live(world, what, act)[0].success


def test_a_faulty_follow_up_starts_nothing() -> None:
    """T6, P5: known before the parent runs."""
    world = World()
    what = {**plan(("a",)), "follow_up": plan(("f",))}

    async def main() -> None:
        async with world.engine(what) as engine:
            with pytest.raises(PlanError):
                await engine.start(what)

    virtual_run(main)
    assert not world.calls


# -- I1: watching -------------------------------------------------------------------------------------------------


def test_a_watcher_misses_nothing_from_any_place() -> None:
    """I1: events are numbered from 1; `after` names the last one known."""
    world = World(a=[Took(5)], b=[DOWN, Took(5)])
    what = plan(("a",), ("b", "a"))

    async def main() -> None:
        async with world.engine(what) as engine:
            run = await engine.start(what)
            watchers = [asyncio.create_task(collect(engine, run, after)) for after in (0, 1, 4)]
            await engine.wait(run)
            told = [await watcher for watcher in watchers]
            events = await engine.events(run)
            for after, seen in zip((0, 1, 4), told, strict=True):
                assert seen == events[after:]
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            for event in events:
                plain = event.to_dict()
                assert list(plain)[:4] == ["seq", "run", "at", "type"]
                assert plain["run"] == run

    virtual_run(main)


async def collect(engine: Engine, run: str, after: int = 0, slow: float = 0) -> list[Any]:
    seen = []
    async for event in engine.watch(run, after=after):
        seen.append(event)
        if slow:
            await asyncio.sleep(slow)
    return seen


def test_a_slow_watcher_never_blocks_the_run() -> None:
    """I1: it gets everything, in its own time."""
    world = World({name: [Took(1)] for name in "abc"})
    what = plan(("a",), ("b", "a"), ("c", "b"))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with world.engine(what) as engine:
            run = await engine.start(what)
            watcher = asyncio.create_task(collect(engine, run, slow=100))
            await engine.wait(run)
            assert loop.time() == pytest.approx(3)
            seen = await watcher
            assert seen == await engine.events(run)
            assert loop.time() >= 100 * len(seen)

    virtual_run(main)


def test_a_watcher_goes_past_earlier_dones() -> None:
    """I1, R4: it ends when the run is at rest and all is delivered."""
    world = World(a=[BROKE, Took(5)])

    async def act(engine: Engine, run: str) -> Any:
        await engine.wait(run)
        await engine.begin_retry(run)
        watcher = asyncio.create_task(collect(engine, run))
        result = await engine.wait(run)
        seen = await watcher
        assert [event.type for event in seen].count("done") == 2
        assert seen[-1].type == "done"
        return result

    assert live(world, plan(("a",)), act, settings=PLAIN)[0].success


def test_a_watcher_waits_with_a_run_that_waits() -> None:
    """I1: a run that waits for a person is not at rest."""
    world = World()

    async def act(engine: Engine, run: str) -> None:
        watcher = asyncio.create_task(collect(engine, run))
        await engine.wait(run)
        await asyncio.sleep(1000)
        assert not watcher.done()
        await engine.confirm(run)
        assert (await watcher)[-1].type == "done"

    assert live(world, plan(("a",), a={"confirm": True}), act)[0].success


def test_a_watcher_ends_on_request_when_the_run_waits_for_a_person() -> None:
    """Section 12: as `wait` returns; it goes past earlier waits, and on after the answer."""
    world = World()

    async def act(engine: Engine, run: str) -> None:
        async def seen(after: int = 0) -> list[Any]:
            return [event async for event in engine.watch(run, after, until_waiting=True)]

        first = await seen()
        assert first[-1].type == "waiting" and first == await seen()
        await engine.confirm(run)
        rest = await seen(first[-1].seq)
        assert rest[-1].type == "done" and [*first, *rest] == await seen()

    assert live(world, plan(("a",), a={"confirm": True}), act)[0].success


def test_progress_and_logs_are_events() -> None:
    """I2, M3: step_progress, with how far it is or a line of the log."""

    async def a(ctx: rerail.Context) -> None:
        ctx.log("one")
        ctx.progress(0.5, "half")
        await asyncio.sleep(1)
        ctx.progress(2)
        await asyncio.sleep(1)

    async def main() -> list[Any]:
        async with Engine("memory://", [a], clock=VirtualClock()) as engine:
            result = await engine.run(plan(("a",)))
            return await engine.events(result.run_id)

    told = [(event.message, event.fraction) for event in of(virtual_run(main), "step_progress")]
    assert ("half", 0.5) in told
    assert any(fraction == 1.0 for _, fraction in told)
    assert any("one" in message for message, _ in told)


# -- Closing ------------------------------------------------------------------------------------------------------


def test_closing_an_engine_leaves_its_runs_to_be_resumed() -> None:
    """SPEC 12, E1: calls cancelled, lease released, nothing recorded as cancelled; no finished step again."""
    store = MemoryStore()
    world = World(a=[{"v": 1}], b=[Took(100, {"v": 2}), {"v": 2}])
    what = plan(("a",), ("b", "a"), ("c", "b"))

    async def first() -> None:
        async with world.engine(what, store=store) as engine:
            await engine.start(what, run_id="r")
            await asyncio.sleep(1)

    async def second() -> tuple[Any, list[Any]]:
        async with world.engine(what, store=store) as engine:
            (row,) = await engine.list()
            assert (row["status"], row["owner"], row["interrupted"]) == ("running", None, True)
            assert not {"cancelled", "done"} & {event.type for event in await engine.events("r")}
            return await engine.resume("r"), await engine.events("r")

    virtual_run(first)
    result, events = virtual_run(second)
    assert result.success
    assert world.order == ["a", "b", "b", "c"]
    assert of(events, "resumed")[0].lost == ("b",)


def test_closing_with_a_once_call_under_way_is_a_doubt_afterwards() -> None:
    """X4, E3: the answer is lost with the engine; also a person's retry points to resolve."""
    for how in ("resume", "retry", "retry named"):
        store = MemoryStore()
        world = World(pay=[Took(100, {"v": 1})]).option("pay", effect="once")
        what = plan(("pay",))

        async def first(world: World = world, what: Any = what, store: MemoryStore = store) -> None:
            async with world.engine(what, store=store) as engine:
                await engine.start(what, run_id="r")
                await asyncio.sleep(1)

        async def second(how: str = how, world: World = world, what: Any = what, store: MemoryStore = store) -> None:
            async with world.engine(what, store=store) as engine:
                if how == "resume":
                    assert (await engine.resume("r")).steps["pay"].status == "in_doubt"
                    return
                for force in (False, True):
                    with pytest.raises(Refused) as refused:
                        await engine.retry("r", steps=["pay"] if how == "retry named" else None, force=force)
                    assert refused.value.code == "RUN_IN_DOUBT"

        virtual_run(first)
        virtual_run(second)
        assert world.calls_of("pay") == 1, how


def test_an_engine_drives_many_runs_at_once() -> None:
    """X1, SPEC 12: each with its own history and result."""
    world = World(a=[Took(10)])

    async def main() -> None:
        async with world.engine(plan(("a",))) as engine:
            runs = [await engine.start(plan(("a",))) for _ in range(20)]
            results = await asyncio.gather(*(engine.wait(run) for run in runs))
            assert all(result.success for result in results)
            assert [result.run_id for result in results] == runs
            assert asyncio.get_running_loop().time() == pytest.approx(10)

    virtual_run(main)


def test_a_run_id_that_is_taken_is_refused() -> None:
    """SPEC 12: as one of the errors that callers catch."""
    world = World()

    async def main() -> None:
        async with world.engine(plan(("a",))) as engine:
            await engine.start(plan(("a",)), run_id="mine")
            with pytest.raises(rerail.RerailError):
                await engine.start(plan(("a",)), run_id="mine")

    virtual_run(main)


def test_virtual_time_may_go_far() -> None:
    """`rerail.testing`: a year passes like a second; it does not stand still once numbers get large."""
    year = 366 * 86_400.0

    async def main() -> float:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        patience = threading.Timer(3, loop.call_soon_threadsafe, [task.cancel])
        patience.start()
        try:
            for _ in range(3):
                await asyncio.sleep(year)
        except asyncio.CancelledError:
            return -1
        finally:
            patience.cancel()
        return loop.time()

    assert virtual_run(main) == pytest.approx(3 * year), "virtual time stands still"


# -- Lists and stories --------------------------------------------------------------------------------------------


def test_a_list_tells_which_runs_are_degraded() -> None:
    """V1, H9: by their latest end, without reading their histories; rows are typed, and data where that is wanted."""
    what = plan(("a",), ("b",), a={"critical": False})
    world = World(a=[ToolError("no", category="permanent_error"), {"ok": True}])

    async def main() -> list[Any]:
        async with world.engine(what, settings=PLAIN) as engine:
            run = await engine.start(what)
            await engine.wait(run)
            (before,) = await engine.list()
            await engine.retry(run, force=True)
            (after,) = await engine.list(status=["completed"])
            return [before, after]

    before, after = virtual_run(main)
    assert isinstance(before, rerail.RunRow)
    assert (before.status, before.degraded, after.status, after.degraded) == ("completed", True, "completed", False)
    assert before["run_id"] == before.run_id == before.to_dict()["run_id"]
    with pytest.raises(KeyError):
        before["to_dict"]


def test_a_story_does_not_run_backwards() -> None:
    """X7: a clock that is set back, or another machine's, changes what time it is, and not what came first."""
    clock = VirtualClock()
    world = World(a=[Took(100, BROKE), Took(100, None)], b=[Took(7, None)])
    what = plan(("a",), ("b", "a"))
    settings = {"reflection": {"max_step_retries": 1}, "retry": {"jitter": False}}

    async def main() -> tuple[str, list[Any]]:
        async with world.engine(what, clock=clock, settings=settings) as engine:
            run = await engine.start(what)
            await asyncio.sleep(100.5)
            clock.jump(-3600)
            await engine.wait(run)
            return await engine.why(run, "b"), await engine.events(run)

    story, events = virtual_run(main)
    assert events[-1].at < events[0].at
    told = [line.strip().partition("  ")[0] for line in story.splitlines() if line.lstrip().startswith("+")]
    assert told == ["+3 min 20 s", "+3 min 27 s"], story
