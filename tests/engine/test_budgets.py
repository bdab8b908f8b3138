"""Budgets of a whole run with calls at the same time: what is reserved, charged, and cut off (H4)."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.tools.declared import from_mapping
from rerail.errors import SettingsError
from rerail.i18n import retold
from rerail.kernel.fold import fold
from rerail.ports import Consultation, MindAnswer, NotBegun
from rerail.testing.scripted import ScriptedMind
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.views.replay.replay import replay

ALONE: dict[str, Any] = {
    "retry": {"max_retry_rounds": 0},
    "reflection": {"max_step_retries": 0, "max_consecutive_failures": 0},
}


def eight(tool: str = "work", count: int = 8) -> dict[str, Any]:
    """Steps that may all run at the same time."""
    return {"steps": [{"id": f"s{n}", "tool": tool} for n in range(count)]}


def settings(**run: Any) -> dict[str, Any]:
    """These budgets, and no retries."""
    return {**ALONE, "run": run}


class Till:
    """Counts what tools really spend, and how many calls are under way."""

    def __init__(self) -> None:
        self.spent, self.calls, self.now, self.most = 0.0, 0, 0, 0
        self._lock = threading.Lock()

    def pay(self, ctx: rerail.Context | None, cost: float) -> None:
        with self._lock:
            self.spent += cost
        if ctx is not None:
            ctx.usage(cost=cost)

    def __enter__(self) -> None:
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def in_real_time(till: Till, *costs: float, threads: bool, **options: Any) -> Any:
    """A tool that takes a moment of real time; its n-th call costs the n-th of these, the last one repeats."""
    left = list(costs)

    def price() -> float:
        return left.pop(0) if len(left) > 1 else left[0]

    async def work(ctx: rerail.Context) -> int:
        with till:
            await asyncio.sleep(0.02)
            till.pay(ctx, price())
        return 1

    def slow(ctx: rerail.Context) -> int:
        with till:
            time.sleep(0.02)
            till.pay(ctx, price())
        return 1

    return rerail.tool(slow if threads else work, name="work", **options)


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
def test_h4_eight_calls_at_once_of_a_declared_cost_stay_within_the_cap(threads: bool) -> None:
    """H4: cap 2.0 and 1.0 each: two calls, at the same time, and no third."""
    till = Till()
    result = rerail.run(
        eight(), tools=[in_real_time(till, 1.0, threads=threads, cost=1.0)], settings=settings(max_cost=2.0)
    )
    assert (till.spent, till.calls, till.most, result.exec["cost"]) == (2.0, 2, 2, 2.0)
    assert result.stopped == "BUDGET_EXCEEDED" and len(result.never_started) == 6


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
@pytest.mark.parametrize("cost", [0.4, 1.0, 3.0])
def test_h4_eight_calls_of_an_unknown_cost_go_beyond_the_cap_by_one_call_at_most(cost: float, threads: bool) -> None:
    """H4: the first runs alone; from then on the largest that was seen is reserved."""
    till = Till()
    result = rerail.run(eight(), tools=[in_real_time(till, cost, threads=threads)], settings=settings(max_cost=2.0))
    assert result.stopped == "BUDGET_EXCEEDED" and till.spent == pytest.approx(result.exec["cost"])
    assert till.spent == pytest.approx(max(2.0, cost)) and till.spent <= 2.0 + cost


def test_h4_what_costs_more_than_was_ever_seen_stops_all_that_follows() -> None:
    """H4: 0.1 alone, then eight at once that cost ten times that: no ninth."""
    till = Till()
    tool = in_real_time(till, 0.1, 1.0, threads=False)
    result = rerail.run(eight(count=16), tools=[tool], settings=settings(max_cost=2.0))
    assert (till.calls, result.stopped) == (9, "BUDGET_EXCEEDED") and till.spent == pytest.approx(8.1)


def test_h4_free_calls_are_not_slowed_down_by_a_cap() -> None:
    """H4: a tool that takes no context and declares no cost costs 0."""
    till = Till()

    async def work() -> int:
        with till:
            await asyncio.sleep(0.05)
        return 1

    result = rerail.run(eight(), tools=[rerail.tool(work)], settings=settings(max_cost=2.0, max_tokens=5))
    assert result.success and till.most == 8


def test_h4_tokens_at_once_stay_within_the_cap() -> None:
    """H4: likewise."""
    calls = []

    @rerail.tool
    async def work(ctx: rerail.Context) -> int:
        calls.append(ctx.step)
        await asyncio.sleep(0.02)
        ctx.usage(tokens=40)
        return 1

    result = rerail.run(eight(), tools=[work], settings=settings(max_tokens=100))
    assert len(calls) == 2 and result.exec["tokens"] == 80
    assert result.stopped == "BUDGET_EXCEEDED"


# -- What a call is charged ---------------------------------------------------------------------------------------


def charged(fn: Any, what: Any = None, *, given: dict[str, Any] | None = None, **options: Any) -> Any:
    """The cost of a run of one step."""

    async def main() -> Any:
        tool = rerail.tool(fn, name="work", **options)
        async with rerail.Engine("memory://", [tool], given or ALONE, clock=VirtualClock()) as engine:
            return await engine.run(what or eight(count=1))

    return virtual_run(main).exec["cost"]


def test_h4_a_declared_cost_is_charged_unless_a_cost_is_reported() -> None:
    """H4: also without a cap; a reported 0 is a report, tokens alone are not."""

    async def silent() -> int:
        return 1

    async def counts(ctx: rerail.Context) -> int:
        ctx.usage(tokens=9)
        return 1

    async def cached(ctx: rerail.Context) -> int:
        ctx.usage(cost=0.0)
        return 1

    async def more(ctx: rerail.Context) -> int:
        ctx.usage(cost=0.5)
        ctx.usage(cost=2.0)
        return 1

    found = [charged(fn, cost=1.5) for fn in (silent, counts, cached, more)]
    assert found == [1.5, 1.5, 0.0, 2.5]
    assert [charged(fn) for fn in (silent, counts, cached, more)] == [0.0, 0.0, 0.0, 2.5]
    assert charged(silent, cost=0) == 0.0


def test_h4_what_failed_is_charged_and_what_was_not_made_is_not() -> None:
    """H4: an error and a timeout are calls; "not now", and what fails before its call, are none."""

    async def breaks() -> int:
        raise rerail.ToolError("no")

    async def hangs() -> int:
        await asyncio.sleep(999)
        return 1

    answers = [rerail.RateLimited("later", retry_after=5), None]

    async def later() -> int:
        if (said := answers.pop(0)) is not None:
            raise said
        return 1

    async def takes(n: int) -> int:
        return n

    assert charged(breaks, cost=1.5) == 1.5
    assert charged(hangs, cost=1.5, timeout=10) == 1.5
    assert charged(later, cost=1.5) == 1.5 and not answers  # two calls, the first of which was none
    missing = {
        "steps": [{"id": "a", "tool": "work", "args": {"n": 1}}, {"id": "b", "tool": "work", "args": {"n": "${a.x}"}}]
    }
    assert charged(takes, missing, cost=1.5) == 1.5  # of a alone: b has no argument


def test_h4_a_call_without_an_answer_is_charged_what_was_reserved() -> None:
    """H4: of an undeclared cost it is the largest that was seen."""
    waits = [0, 999, 0]

    async def work(ctx: rerail.Context) -> int:
        if seconds := waits.pop(0):
            await asyncio.sleep(seconds)  # and then it is cut off
        ctx.usage(cost=2.0)
        return 1

    chain = {"steps": [{"id": "a", "tool": "work"}, {"id": "b", "tool": "work", "critical": False, "needs": ["a"]},
                       {"id": "c", "tool": "work", "needs": [{"step": "b", "when": "done"}]}]}  # fmt: skip
    assert charged(work, chain, given=settings(max_cost=9.0), timeout=10) == 6.0
    waits[:] = [0, 999, 0]
    assert charged(work, chain, timeout=10) == 4.0  # without a cap nothing is reserved, and nothing guessed


def test_h4_a_file_that_cannot_be_put_aside_costs_nothing(tmp_path: Path) -> None:
    """H4, T3: the tool was not called."""

    @rerail.tool(cost=1.0)
    async def work(ctx: rerail.Context) -> int:
        raise AssertionError

    async def main() -> Any:
        async with rerail.Engine("memory://", [work], ALONE, workspace=tmp_path) as engine:
            (tmp_path / "r" / ".rerail").mkdir(parents=True)
            (tmp_path / "r" / "x.txt").write_text("old")
            (tmp_path / "r" / ".rerail" / "archive").write_text("no folder")
            plan = {"steps": [{"id": "a", "tool": "work", "produces": [{"path": "x.txt"}]}]}
            return await engine.wait(await engine.start(plan, run_id="r"))

    result = asyncio.run(main())
    assert (result.steps["a"].code, result.exec["cost"]) == ("FILE_NOT_ARCHIVED", 0.0)


class Full:
    """An executor that never has room."""

    async def open(self) -> None:
        pass

    def takes(self, tool: Any) -> bool:
        return True

    async def call(self, *_: Any) -> Any:
        raise NotBegun("no room")

    async def close(self) -> None:
        pass


def test_h4_a_call_that_found_no_room_costs_nothing() -> None:
    """H4: it was not made."""

    async def main() -> Any:
        async with rerail.Engine("memory://", [slow(cost=1.0)], ALONE, clock=VirtualClock(), executor=Full()) as engine:
            return await engine.run(eight(count=1))

    result = virtual_run(main)
    assert (result.status, result.exec["calls"], result.exec["cost"]) == ("failed", 1, 0.0)


def test_h4_a_cost_of_nothing_crosses_processes() -> None:
    """H4, M3: what an isolated tool reports, and that it reported."""
    for tool, cost in ((isolated_cached, 0.0), (isolated_silent, 1.5), (isolated_dear, 2.5)):
        result = rerail.run({"steps": [{"id": "a", "tool": tool.name}]}, tools=[tool], settings=ALONE)
        assert (result.success, result.exec["cost"]) == (True, cost), tool


@rerail.tool(isolated=True, cost=1.5)
def isolated_cached(ctx: rerail.Context) -> int:
    ctx.usage(cost=0.0)
    return 1


@rerail.tool(isolated=True, cost=1.5)
def isolated_silent(ctx: rerail.Context) -> int:
    ctx.usage(tokens=3)
    return 1


@rerail.tool(isolated=True, cost=1.5)
def isolated_dear(ctx: rerail.Context) -> int:
    ctx.usage(cost=2.5)
    return 1


# -- What becomes of a reservation --------------------------------------------------------------------------------


def slow(**options: Any) -> Any:
    @rerail.tool(name="work", **options)
    async def work(ctx: rerail.Context) -> int:
        await asyncio.sleep(20)
        return 1

    return work


def test_h4_a_crash_leaks_no_reservation() -> None:
    """H4, E3: the calls that died are charged what they had reserved, once, and hold nothing any more."""
    store, budget = MemoryStore(), settings(max_cost=5.0, concurrency=2)

    async def first() -> None:
        async with rerail.Engine(store, [slow(cost=1.0)], budget, clock=VirtualClock()) as engine:
            await engine.start(eight(count=4), run_id="r")
            await asyncio.sleep(10)
            state = fold("r", await engine.events("r"))
            assert (state.cost, state.reserved.cost, len(state.running)) == (0.0, 2.0, 2)

    async def second() -> Any:
        async with rerail.Engine(store, [slow(cost=1.0)], budget, clock=VirtualClock()) as engine:
            result = await engine.resume("r")
            return result, fold("r", await engine.events("r"))

    virtual_run(first)
    result, state = virtual_run(second)
    assert not state.reserved and state.cost == 5.0  # two that died, and three of four
    assert (result.stopped, len(result.never_started)) == ("BUDGET_EXCEEDED", 1)


def test_h4_a_step_that_is_skipped_live_is_charged() -> None:
    """H4, X7: its call was made, and its answer is not waited for."""

    async def main() -> Any:
        async with rerail.Engine("memory://", [slow(cost=1.0)], settings(max_cost=1.5), clock=VirtualClock()) as engine:
            await engine.start(eight(count=2), run_id="r")
            await asyncio.sleep(5)
            await engine.skip("r", "s0")
            return await engine.wait("r")

    result = virtual_run(main)
    assert (result.exec["cost"], result.stopped, result.never_started) == (1.0, "BUDGET_EXCEEDED", ("s1",))


def test_h4_a_cancelled_call_is_settled() -> None:
    """H4, X7: as far as it went."""

    async def main() -> Any:
        async with rerail.Engine("memory://", [slow(cost=1.0)], settings(max_cost=9.0), clock=VirtualClock()) as engine:
            await engine.start(eight(count=3), run_id="r")
            await asyncio.sleep(5)
            await engine.cancel("r")
            return await engine.wait("r"), fold("r", await engine.events("r"))

    result, state = virtual_run(main)
    assert (result.status, state.cost) == ("cancelled", 3.0) and not state.reserved


# -- Time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "status", "seconds"), [("once", "succeeded", 20.0), ("repeatable", "failed", 12.0)])
def test_h4_a_once_call_keeps_its_timeout(effect: str, status: str, seconds: float) -> None:
    """H4: another gets the smaller of its timeout and what is left; either is told so."""
    told: list[float | None] = []

    @rerail.tool(name="work", effect=effect, timeout=100)
    async def work(ctx: rerail.Context) -> int:
        told.append(ctx.timeout)
        await asyncio.sleep(20)
        return 1

    async def main() -> Any:
        async with rerail.Engine("memory://", [work], settings(max_seconds=12), clock=VirtualClock()) as engine:
            return await engine.run(eight(count=1))

    result = virtual_run(main)
    assert result.steps["s0"].status == status and told == [100.0 if effect == "once" else 12.0]
    assert result.exec["seconds"]["total"] == pytest.approx(seconds, abs=0.1)
    if effect != "once":
        assert result.steps["s0"].code == "TIMEOUT"


def test_h4_a_run_out_of_time_starts_nothing() -> None:
    """H4: what a `once` call took beyond the run's time is not there for the next."""

    async def main() -> Any:
        plan = {"steps": [{"id": "a", "tool": "work", "effect": "once"}, {"id": "b", "tool": "work", "needs": ["a"]}]}
        async with rerail.Engine("memory://", [slow()], settings(max_seconds=15), clock=VirtualClock()) as engine:
            return await engine.run(plan)

    result = virtual_run(main)
    assert result.steps["a"].status == "succeeded" and result.steps["b"].code == "BUDGET_EXCEEDED"


# -- Questions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cap", "left"), [({"max_cost": 5.0}, (2.0, None)), ({"max_tokens": 1000}, (None, 920))])
def test_h4_a_question_does_not_spend_what_calls_have_reserved(cap: dict[str, Any], left: tuple[Any, Any]) -> None:
    """H4: what is left for an answer is what is neither spent nor reserved by calls under way."""
    mind = ScriptedMind(reflect=MindAnswer({"category": "permanent_error"}, [Consultation("m", 10, 10, 0.5)]))

    @rerail.tool
    async def odd() -> int:
        await asyncio.sleep(1)
        raise RuntimeError("the flux is out of phase")

    @rerail.tool
    async def work(ctx: rerail.Context, seconds: int) -> int:
        await asyncio.sleep(seconds)
        ctx.usage(tokens=40, cost=1.5)
        return 1

    plan = {
        "steps": [
            {"id": "a", "tool": "work", "args": {"seconds": 1}},
            {"id": "b", "tool": "work", "args": {"seconds": 60}, "needs": ["a"]},
            {"id": "c", "tool": "odd", "critical": False, "needs": ["a"]},
        ]
    }

    async def main() -> Any:
        budget = {"retry": {"max_retry_rounds": 0}, "run": cap}
        async with rerail.Engine("memory://", [odd, work], budget, mind, clock=VirtualClock()) as engine:
            return await engine.run(plan)

    assert virtual_run(main).steps["b"].status == "succeeded"
    assert [(asked.cost_left, asked.tokens_left) for asked in mind.asked][:1] == [left]


# -- Declarations and words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [-1, True, "1", float("inf"), float("nan")])
def test_h4_a_cost_is_a_number_from_nothing(cost: Any) -> None:
    """H4: refused with the tool's name and what to write."""

    async def work() -> int:
        return 1

    makers = (
        lambda: rerail.tool(work, cost=cost),
        lambda: rerail.http("work", "GET", "https://example.org/", cost=cost),
        lambda: rerail.shell("work", ["true"], cost=cost),
    )
    for make in makers:
        with pytest.raises(ValueError, match=r"tool 'work': cost is a number from 0, the cost of one call, not"):
            make()


def test_h4_every_kind_of_tool_declares_a_cost() -> None:
    """H4: functions report if they take the context; the others never do."""

    async def plain() -> int:
        return 1

    async def takes(ctx: rerail.Context) -> int:
        return 1

    request = rerail.http("r", "GET", "https://example.org/", cost=0.25)
    command = rerail.shell("c", ["true"], cost=2)
    data = from_mapping("d", {"http": {"url": "https://example.org/", "cost": 3}})
    specs = [tool.spec for tool in (rerail.tool(plain), rerail.tool(takes, cost=1), request, command, data)]
    assert [(spec.cost, spec.reports) for spec in specs] == [
        (None, False), (1.0, True), (0.25, False), (2.0, False), (3.0, False),
    ]  # fmt: skip
    assert specs[1].to_dict()["cost"] == 1.0 and "cost" not in specs[0].to_dict()
    assert specs[1].fingerprint == rerail.tool(takes).spec.fingerprint  # another price makes no other tool
    with pytest.raises(SettingsError, match="cost"):
        from_mapping("d", {"http": {"url": "https://example.org/", "cost": -3}})


def test_h4_the_story_says_which_budget_and_what_was_needed() -> None:
    """H4, T12: the budget, what is spent, what the call needs and the cap, in both languages."""

    async def main() -> Any:
        async with rerail.Engine("memory://", [slow(cost=1.5)], settings(max_cost=2.0), clock=VirtualClock()) as engine:
            result = await engine.run(eight(count=2))
            return result, await engine.why(result.run_id), await engine.events(result.run_id)

    result, story, events = virtual_run(main)
    (stopped,) = [event for event in events if event.type == "stopped"]
    assert stopped.reason == "max_cost: 1.5 of 2 used, and step 's1' needs 1.5 more" and stopped.reason in story
    assert retold(stopped.reason, "zh") == "max_cost：已用 1.5，上限 2，而步骤 's1' 还需 1.5"
    assert result.steps["s1"].error["message"] == "never started: a budget of the run did not allow it"
    assert "used up" not in result.summary


# -- Under other settings -----------------------------------------------------------------------------------------


def test_h4_a_replay_reserves_under_its_own_cap() -> None:
    """H4: recorded without a cap, decided again with one: as many calls at once as would have fitted."""

    async def main() -> Any:
        async with rerail.Engine("memory://", [slow(cost=1.0)], ALONE, clock=VirtualClock()) as engine:
            run = (await engine.run(eight())).run_id
            return await engine.events(run), dict(engine.tools)

    records, tools = virtual_run(main)
    told = replay("r", records, tools, {"max_cost": 2.0})
    assert (
        told.known
        and told.drift == 0
        and (told.replayed.calls, told.replayed.cost, told.replayed.status) == (2, 2.0, "failed")
    )
    same = replay("r", records, tools, {"max_cost": 8.0})
    assert same.branch == 0 and same.drift == 0 and same.replayed.calls == 8


def test_h4_a_replay_reserves_what_was_not_declared() -> None:
    """H4: the intents of the history reserve nothing; under a cap the first call runs alone, then two at once."""

    @rerail.tool
    async def work(ctx: rerail.Context) -> int:
        await asyncio.sleep(10 + int(ctx.step[1:]))
        ctx.usage(cost=1.0)
        return 1

    async def main() -> Any:
        async with rerail.Engine("memory://", [work], ALONE, clock=VirtualClock()) as engine:
            run = (await engine.run(eight())).run_id
            return await engine.events(run), dict(engine.tools)

    records, tools = virtual_run(main)
    told = replay("r", records, tools, {"max_cost": 3.0})
    assert told.known and (told.replayed.calls, told.replayed.cost) == (3, 3.0)
    assert told.replayed.seconds == pytest.approx(22.0)  # ten, and the longer of eleven and twelve


def test_h4_a_replay_keeps_to_the_runs_time() -> None:
    """H4: a call that would have been cut off, one that was, and one that keeps its timeout."""

    def recorded(effect: str, **budget: Any) -> Any:
        async def main() -> Any:
            tools = [slow(effect=effect)]
            async with rerail.Engine("memory://", tools, settings(**budget), clock=VirtualClock()) as engine:
                run = (await engine.run(eight(count=1))).run_id
                return await engine.events(run), dict(engine.tools)

        return virtual_run(main)

    records, tools = recorded("repeatable")
    told = replay("r", records, tools, {"max_seconds": 15.0})
    assert told.known and told.replayed.status == "failed" and told.replayed.seconds == pytest.approx(15.0)
    assert not replay("r", records, tools, {"max_seconds": 30.0}).branch
    records, tools = recorded("repeatable", max_seconds=15.0)
    assert not replay("r", records, tools, {"max_seconds": 30.0}).known  # its answer with more time is not known
    shorter = replay("r", records, tools, {"max_seconds": 10.0})
    assert shorter.known and shorter.replayed.seconds == pytest.approx(10.0)
    assert replay("r", records, tools, {"step_timeout": 100.0}).branch == 0
    records, tools = recorded("once")
    assert not replay("r", records, tools, {"max_seconds": 15.0}).branch


# -- Waits that end past the run's time ---------------------------------------------------------------------------


def hampered(**tool: Any) -> Any:
    """A tool that wants to be asked again in a minute, or whose connection breaks."""

    async def work(say: str) -> int:
        if say == "busy":
            raise rerail.RateLimited("later", retry_after=60)
        if say == "broken":
            raise ConnectionError("gone")
        await asyncio.sleep(2)
        return 1

    return rerail.tool(work, name="work", **{"effect": "read", **tool})


def out_of_time(*steps: dict[str, Any], then: Any = None, most: float = 10.0) -> tuple[Any, float, list[Any]]:
    """Run these steps within ten seconds; the result, how long it took, and the reasons of its stops."""
    policy = {"run": {"max_seconds": most}, "retry": {"backoff_base": 60.0, "backoff_cap": 60.0, "jitter": False}}

    async def main() -> Any:
        clock = VirtualClock()
        async with rerail.Engine("memory://", [hampered()], policy, clock=clock) as engine:
            begun = clock.now()
            result = await engine.run({"steps": list(steps)}, run_id="r")
            took = clock.now() - begun
            if then is not None:
                await asyncio.sleep(then)
                await engine.confirm("r", "gated")
                result = await engine.wait("r")
            return result, took, [record.reason for record in await engine.events("r") if record.type == "stopped"]

    return virtual_run(main)


def step(name: str, say: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": "work", "args": {"say": say}, **more}


@pytest.mark.parametrize(("say", "why"), [("busy", "later"), ("broken", "gone")])
def test_h4_a_wait_that_can_only_end_past_the_runs_time_is_not_sat_out(say: str, why: str) -> None:
    """H4: "not now" and a backoff of a minute in a run of ten seconds; what is under way ends first."""
    result, took, reasons = out_of_time(step("a", say), step("b", "fine"))
    assert took == pytest.approx(2.0) and result.stopped == "BUDGET_EXCEEDED"
    assert reasons == ["max_seconds: 2 of 10 used, and the next call, of step 'a', could start only in 58 s"]
    assert not result.cut_off and [row["reason"] for row in result.failed_steps] == [why]
    assert out_of_time(step("a", say), most=70.0)[1] >= 60.0  # one that fits is waited for


def test_h4_a_run_that_could_only_wait_in_vain_waits_for_the_person_that_it_needs() -> None:
    """H4: time waiting for people does not count, so the wait may be over when the answer comes."""
    steps = step("a", "busy"), step("gated", "fine", confirm=True)
    result, took, reasons = out_of_time(*steps)
    assert (result.status, took, reasons) == ("waiting", pytest.approx(0.0), [])
    result, _, reasons = out_of_time(*steps, then=10.0)
    assert result.steps["gated"].status == "succeeded" and result.stopped == "BUDGET_EXCEEDED"
    assert reasons == ["max_seconds: 2 of 10 used, and the next call, of step 'a', could start only in 48 s"]
    result, _, _ = out_of_time(*steps, then=59.0)
    assert result.steps["a"].attempts == 2  # it was asked again


def test_h4_the_time_that_is_left_for_a_call_is_told_in_milliseconds() -> None:
    """H4: what the message says is the timeout that the call had."""

    async def main() -> Any:
        async with rerail.Engine(
            "memory://", [slow()], {"run": {"max_seconds": 1 / 3}}, clock=VirtualClock()
        ) as engine:
            return await engine.run(eight(count=1))

    assert virtual_run(main).steps["s0"].error["message"] == "timed out after 0.334 s"
