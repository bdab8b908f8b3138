"""The ladder, the backoff and the budgets: as data, and as a run obeys them (H3, H4)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.codes import Category
from rerail.errors import RateLimited, ToolError
from rerail.kernel.policy import LADDER, Policy, Rung, backoff
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

DOWN = ConnectionRefusedError("down")  # transient, and surely not done
BROKE = ToolError("it broke", category="tool_error")
NO_ROUNDS = {"retry": {"max_retry_rounds": 0}}
PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}


def one(**more: Any) -> dict[str, Any]:
    return {"steps": [{"id": "a", "tool": "a", **more}]}


def chain(*names: str) -> dict[str, Any]:
    return {"steps": [{"id": n, "tool": n, "needs": list(names[i - 1 : i])} for i, n in enumerate(names)]}


def apart(*names: str) -> dict[str, Any]:
    return {"steps": [{"id": n, "tool": n} for n in names]}


def history(world: World, what: Any, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            result = await engine.wait(await engine.start(what, run_id="the-run"))
            return result, await engine.events("the-run")

    return virtual_run(main)


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


# -- The ladder as data -------------------------------------------------------------------------------------------


def test_where_each_category_enters_the_ladder() -> None:
    """H3: the contract's table, row by row; after its own rungs every category but permanent goes on."""
    on = ["fallback", "skip", "replan"]
    assert {str(category): [str(rung) for rung in rungs] for category, rungs in LADDER.items()} == {
        "transient_error": ["retry", "alternative_tool", *on],
        "parameter_error": ["adjusted_arguments", "repair", *on],
        "tool_error": ["alternative_tool", "retry", "repair", *on],
        "dependency_error": ["producer", "repair", *on],
        "decomposition_error": ["repair", *on],
        "permanent_error": ["alternative_tool", "fallback", "skip"],
        "unknown_error": ["retry", "repair", *on],
    }
    assert set(LADDER) == set(Category)
    assert list(Rung)[-1] is Rung.FAIL


# -- Backoff ------------------------------------------------------------------------------------------------------


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    """H3: base 1 s, factor 2, cap 30 s."""
    plain = Policy(jitter=False)
    assert [backoff(plain, n) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff(plain, 10_000) == 30
    assert backoff(Policy(jitter=False, backoff_base=0), 3) == 0
    assert backoff(Policy(jitter=False, backoff_factor=1), 9) == 1


@given(st.integers(1, 100), st.text(), st.text(), st.integers(0, 1000))
def test_full_jitter_from_the_seed(retry: int, run: str, step: str, attempt: int) -> None:
    """H3: anywhere below the ceiling; the same seed waits as long, so that a replay equals the original."""
    ceiling = backoff(Policy(jitter=False), retry)
    try:
        delay = backoff(Policy(), retry, run, step, attempt)
    except UnicodeEncodeError:
        pytest.fail("a name that cannot be written as UTF-8 must not stop a retry")
    assert 0 <= delay < ceiling
    assert delay == backoff(Policy(), retry, run, step, attempt)


def test_seeds_spread() -> None:
    """H3: other steps and attempts wait otherwise."""
    delays = {backoff(Policy(), 6, "run", f"s{i}", attempt) for i in range(50) for attempt in range(4)}
    assert len(delays) == 200
    assert min(delays) < 3
    assert max(delays) > 27


def test_a_run_waits_by_the_policy() -> None:
    """H3, H4: three retries after 1, 2 and 4 seconds; each announced with what is left."""
    world = World(a=[DOWN])
    result, events = history(world, one(), settings={"retry": {"jitter": False, "max_retry_rounds": 0}})
    waits = of(events, "retry_scheduled")
    assert [(w.attempt, w.of, w.retries_left, w.delay) for w in waits] == [
        (2, 4, 2, 1.0),
        (3, 4, 1, 2.0),
        (4, 4, 0, 4.0),
    ]
    starts = [event.at for event in of(events, "step_started")]
    assert [round(b - a, 6) for a, b in pairwise(starts)] == [1.0, 2.0, 4.0]
    assert result.exec["seconds"]["waiting"] == 7


def test_two_runs_of_the_same_name_wait_alike() -> None:
    """H3: seeded by run, step and attempt."""
    delays = [[w.delay for w in of(history(World(a=[DOWN]), one())[1], "retry_scheduled")] for _ in range(2)]
    assert delays[0] == delays[1]
    assert len(set(delays[0])) == len(delays[0])


# -- Step budgets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retries", "alternatives", "order"),
    [
        (3, 0, "a a a a"),
        (3, 1, "a a a b"),
        (3, 2, "a a b c"),
        (3, 3, "a b c d"),
        (1, 1, "a b"),
        (1, 2, "a b"),
        (0, 1, "a"),
        (0, 0, "a"),
    ],
)
def test_retries_and_alternatives_share_one_budget(retries: int, alternatives: int, order: str) -> None:
    """H4: three calls after the first, whatever the tool; plain retries leave one try per untried alternative."""
    world = World({name: [DOWN] for name in "abcd"})
    names = list("bcd")[:alternatives]
    settings = {"reflection": {"max_step_retries": retries}, **NO_ROUNDS}
    result, _ = history(world, one(alternatives=names), settings=settings)
    assert world.order == order.split()
    assert result.status == "failed"
    assert result.exec["calls"] == len(order.split())


def test_a_steps_own_retries_replace_the_setting() -> None:
    """P1, H4: also 0, and also more than the setting."""
    for retries in (0, 1, 6):
        world = World(a=[DOWN])
        history(world, one(retries=retries), settings=NO_ROUNDS)
        assert world.calls_of("a") == retries + 1


def test_each_round_opens_a_fresh_budget() -> None:
    """R6, H4: four calls in the first round, four in the second; people's rounds too."""
    world = World(a=[DOWN])

    async def main() -> None:
        async with world.engine(one()) as engine:
            run = (await engine.run(one())).run_id
            assert world.calls_of("a") == 8
            await engine.retry(run)
            assert world.calls_of("a") == 12

    virtual_run(main)


def test_a_round_starts_from_the_plans_own_tool_and_arguments() -> None:
    """R6: adjusted arguments and alternative tools are overrides of a round."""
    seen: list[Any] = []

    def a(**args: Any) -> Any:
        seen.append(("a", args))
        return ToolError("no", suggest={"n": args["n"] + 1})

    def b(**args: Any) -> Any:
        seen.append(("b", args))
        return BROKE

    world = World(a=[a], b=[b])
    settings = {"reflection": {"max_step_retries": 1}}
    history(world, one(args={"n": 1}), settings=settings)
    assert seen == [("a", {"n": 1}), ("a", {"n": 2})] * 2
    seen.clear()
    history(World(a=[BROKE], b=[b]), one(alternatives=["b"]), settings=settings)
    assert seen == [("b", {})] * 2


def test_what_does_not_count_as_a_retry() -> None:
    """H4, X8: "not now", verify, and the single call of a fallback tool."""
    looked: list[int] = []

    async def there(args: dict[str, Any]) -> bool:
        looked.append(1)
        return False

    world = World(a=[RateLimited("later", 5), {"v": 1}], f=[{"v": 2}]).option("a", verify=there)
    result, _ = history(world, one(fallback={"tool": "f"}), settings=PLAIN)
    assert world.order == ["a", "a", "f"]
    assert looked
    assert result.steps["a"].status == "degraded"


def test_budgets_survive_a_crash() -> None:
    """H4, E1: counted from history: four calls in all, whoever makes them."""
    store = MemoryStore()
    world = World(a=[DOWN])
    slow = {"retry": {"max_retry_rounds": 0, "jitter": False, "backoff_base": 100, "backoff_cap": 1000}}

    async def life(number: int) -> str:
        clock = VirtualClock(1_700_000_000 + 160 * number)
        async with world.engine(one(), store=store, settings=slow, clock=clock) as engine:
            if number:
                await engine.begin_resume("r")
            else:
                await engine.start(one(), run_id="r")
            await asyncio.sleep(160)
            return (await engine.show("r")).status

    statuses = [virtual_run(lambda number=number: life(number)) for number in range(5)]
    assert statuses == ["running"] * 4 + ["failed"]
    assert world.calls_of("a") == 4


# -- Repairs and replans ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2])
def test_repairs_are_bounded_per_step(most: int) -> None:
    """H4, H7: each repair opens fresh retries; `max_single_step_repairs` is hard."""
    mind = ScriptedMind(repair=lambda question: {"args": {"n": len(mind.asked)}})
    world = World(a=[lambda **args: ToolError(f"no {args}", category="decomposition_error")])
    settings = {"reflection": {"max_single_step_repairs": most}, **NO_ROUNDS}
    history(world, one(), model=mind, settings=settings)
    assert len(mind.asked) == most
    assert world.calls_of("a") == 1 + most


def test_a_declined_repair_counts() -> None:
    """H4: a mind that has nothing to offer, breaks, or answers nonsense is not asked again."""
    for answer in (None, RuntimeError("no model"), 42, {"args": 5}, {"tool": "nobody"}, {"id": "other"}, {}):
        mind = ScriptedMind(repair=answer)
        world = World(a=[ToolError("no", category="decomposition_error")])
        result, _ = history(world, one(), model=mind, settings=NO_ROUNDS)
        assert len(mind.asked) == 1, answer
        assert (world.calls_of("a"), result.status) == (1, "failed"), answer


@pytest.mark.parametrize("most", [0, 1, 2])
def test_replans_are_bounded_per_run(most: int) -> None:
    """H4, H8, R6: and last for the run's life: a person's retry opens no new ones."""
    mind = ScriptedMind(replan=lambda question: one(args={"n": len(mind.asked)}))
    world = World(a=[lambda **args: ToolError(f"no {args}", category="decomposition_error")])
    settings = {"reflection": {"max_task_replanning_attempts": most}, **NO_ROUNDS}

    async def main() -> None:
        async with world.engine(one(), model=mind, settings=settings) as engine:
            run = (await engine.run(one())).run_id
            assert len(mind.asked) == most
            await engine.retry(run)
            assert len(mind.asked) == most

    virtual_run(main)


# -- The breaker --------------------------------------------------------------------------------------------------

IN_TURN = {"run": {"concurrency": 1}}


def breaker(most: int, **more: Any) -> dict[str, Any]:
    return {"reflection": {"max_step_retries": 0, "max_consecutive_failures": most}, **IN_TURN, **more}


def test_the_breaker_opens() -> None:
    """H4, V1, R6: different steps failed in a row: nothing more starts, and what never ran is named."""
    world = World(a=[BROKE], b=[BROKE])
    result, events = history(world, apart(*"abcd"), settings=breaker(2, **NO_ROUNDS))
    assert world.order == ["a", "b"]
    assert {name: (row.status, row.code) for name, row in result.steps.items()} == {
        "a": ("failed", "TOOL_FAILED"), "b": ("failed", "TOOL_FAILED"),
        "c": ("cancelled", "BREAKER_OPEN"), "d": ("cancelled", "BREAKER_OPEN"),
    }  # fmt: skip
    assert result.never_started == ("c", "d")
    assert (result.status, result.success) == ("failed", False)
    assert not of(events, "retry_begin")
    assert all(result.steps[name].error["message"] for name in "cd")


def test_a_breaker_ends_a_round_and_the_next_one_takes_what_it_kept_from_starting() -> None:
    """H4, R6: the row of the automatic round begins at 0."""
    world = World(a=[BROKE, 1], b=[BROKE, 1])
    result, events = history(world, apart(*"abcd"), settings=breaker(2))
    assert world.order == [*"ab", *"abcd"]
    assert (result.status, result.success, result.never_started) == ("completed", True, ())
    [begun] = of(events, "retry_begin")
    assert begun.automatic and begun.roots == ("a", "b", "c", "d")
    assert [event.code for event in of(events, "stopped")] == ["BREAKER_OPEN"]


def test_a_breaker_over_permanent_errors_still_lets_the_others_run() -> None:
    """R6: roots with a permanent error are left out; the steps that never started are not."""
    world = World(a=[PermissionError("no")], b=[PermissionError("no")])
    result, _ = history(world, apart(*"abcd"), settings=breaker(2))
    assert world.order == [*"ab", *"cd"]
    assert [row["id"] for row in result.failed_steps] == ["a", "b"]


def test_what_is_under_way_at_the_same_time_is_one_failure_of_the_row() -> None:
    """H4: a failure counts if its step was begun after the one before it had failed; retries do not begin it anew."""
    world = World({f"t{n}": [Took(n % 3, BROKE)] for n in range(12)})
    wide = {"reflection": {"max_step_retries": 0}, "run": {"concurrency": 0}, **NO_ROUNDS}
    result, _ = history(world, apart(*(f"t{n}" for n in range(12))), settings=wide)
    assert len(world.calls) == 12 and result.stopped == "" and result.exec["failed"] == 12
    slow = World(a=[DOWN], b=[DOWN], c=[DOWN], d=[Took(250, 1)], e=[1])
    what = {"steps": [*apart(*"abcd")["steps"], {"id": "e", "tool": "e", "needs": ["d"]}]}
    result, _ = history(slow, what, settings={**NO_ROUNDS, "run": {"concurrency": 0}})
    assert result.stopped == "" and result.steps["e"].status == "succeeded"
    last = World({f"t{n}": [Took(9, TimeoutError("slow")) if n > 6 else 1] for n in range(10)})
    steps = apart(*(f"t{n}" for n in range(10)))
    result, events = history(last, steps, settings={"reflection": {"max_step_retries": 0}, "run": {"concurrency": 0}})
    assert result.stopped == "" and of(events, "retry_begin")


def test_zero_switches_the_breaker_off() -> None:
    """H4: max_consecutive_failures = 0."""
    world = World({name: [BROKE] for name in "abcde"})
    result, _ = history(world, apart(*"abcdef"), settings=breaker(0, **NO_ROUNDS))
    assert world.order == list("abcdef")
    assert result.steps["f"].status == "succeeded"


def test_a_success_resets_the_row_and_so_does_a_degraded_step() -> None:
    """H4: failures with a success between are not in a row."""
    world = World(a=[BROKE], c=[BROKE], e=[BROKE])
    history(world, apart(*"abcdef"), settings=breaker(2, **NO_ROUNDS))
    assert world.order == list("abcdef")
    what = {"steps": [{"id": n, "tool": n, **({"fallback": {"value": 1}} if n == "b" else {})} for n in "abcd"]}
    world = World(a=[BROKE], b=[BROKE], c=[BROKE])
    history(world, what, settings=breaker(2, **NO_ROUNDS))
    assert world.order == list("abcd")


def test_skips_neither_count_nor_reset() -> None:
    """H4: for an upstream failure, or because a step is optional."""
    what = {
        "steps": [
            {"id": "a", "tool": "a"}, {"id": "a2", "tool": "ok", "needs": ["a"]},
            {"id": "a3", "tool": "ok", "needs": ["a2"]},
            {"id": "o", "tool": "o", "critical": False}, {"id": "b", "tool": "b"}, {"id": "c", "tool": "c"},
            {"id": "d", "tool": "d"},
        ]
    }  # fmt: skip
    script = {name: [BROKE] for name in "aobc"}
    world = World(script)
    history(world, what, settings=breaker(4, **NO_ROUNDS))
    assert world.order == ["a", "o", "b", "c", "d"]  # three failures, three skips
    world = World(script)
    result, _ = history(world, what, settings=breaker(3, **NO_ROUNDS))
    assert world.order == ["a", "o", "b", "c"]  # the skips between did not reset the row
    assert result.steps["d"].code == "BREAKER_OPEN"


def test_retries_of_one_step_do_not_count() -> None:
    """H4: four calls of one step are one failure."""
    world = World(a=[DOWN])
    result, _ = history(world, apart("a", "b"), settings={**NO_ROUNDS, "reflection": {"max_consecutive_failures": 2}})
    assert world.calls_of("a") == 4
    assert result.stopped == ""


def test_when_the_breaker_opens_running_calls_end_and_backoffs_end_failed() -> None:
    """H4, X5: nothing new starts; what runs is recorded; what waits has failed."""
    what = {
        "steps": [
            {"id": "slow", "tool": "slow"}, {"id": "after", "tool": "after", "needs": ["slow"]},
            {"id": "wait", "tool": "wait"}, {"id": "x", "tool": "x", "retries": 0},
            {"id": "y", "tool": "y", "retries": 0, "needs": [{"step": "x", "when": "done"}]},
        ]
    }  # fmt: skip
    world = World(slow=[Took(50, {"v": 1})], wait=[DOWN], x=[Took(1, BROKE)], y=[Took(1, BROKE)])
    retry = {"jitter": False, "backoff_base": 30, **NO_ROUNDS["retry"]}
    settings = {"reflection": {"max_consecutive_failures": 2}, "retry": retry}
    result, events = history(world, what, settings=settings)
    assert result.steps["slow"].status == "succeeded"
    assert result.steps["after"].code == "BREAKER_OPEN"
    assert result.steps["wait"].status == "failed"
    assert world.calls_of("wait") == 1
    assert events[-1].type == "done"
    assert len(of(events, "done")) == 1


def test_a_row_that_a_round_mends() -> None:
    """H4, R6: each round has a row of its own."""
    world = World(a=[BROKE, 1], b=[BROKE, 1])
    result, _ = history(world, apart("a", "b"), settings=breaker(3))
    assert result.success


# -- Budgets of the whole run -------------------------------------------------------------------------------------


def test_max_attempts() -> None:
    """H4, V1: checked before each call: exactly so many, the rest never started, and it says why."""
    world = World()
    result, events = history(world, apart(*"abcde"), settings={"run": {"max_attempts": 3}})
    assert len(world.calls) == 3
    assert [row.code for row in result.steps.values()] == [None] * 3 + ["BUDGET_EXCEEDED"] * 2
    assert (result.status, result.stopped, result.never_started) == ("failed", "BUDGET_EXCEEDED", ("d", "e"))
    assert "max_attempts" in of(events, "stopped")[0].reason
    assert not of(events, "retry_begin")


def test_max_attempts_counts_retries_and_holds_for_the_runs_life() -> None:
    """H4, R6: retries are attempts; a person's retry spends from the same budget."""
    world = World(a=[DOWN])

    async def main() -> Any:
        async with world.engine(one(), settings={"run": {"max_attempts": 6}, **NO_ROUNDS}) as engine:
            run = (await engine.run(one())).run_id
            assert world.calls_of("a") == 4
            return await engine.retry(run)

    result = virtual_run(main)
    assert world.calls_of("a") == 6
    assert result.stopped == "BUDGET_EXCEEDED"


def test_max_attempts_survives_a_crash() -> None:
    """H4: counted from history."""
    store = MemoryStore()
    world = World(a=[Took(10)], b=[Took(10)], c=[Took(10)])
    what, settings = chain(*"abc"), {"run": {"max_attempts": 3}}

    async def first() -> None:
        async with world.engine(what, store=store, settings=settings) as engine:
            await engine.start(what, run_id="r")
            await asyncio.sleep(15)  # a is done, b is under way

    async def second() -> Any:
        async with world.engine(what, store=store, settings=settings) as engine:
            return await engine.resume("r")

    virtual_run(first)
    result = virtual_run(second)
    assert world.order == ["a", "b", "b"]
    assert result.steps["c"].code == "BUDGET_EXCEEDED"


def spending(tokens: int = 0, cost: float = 0.0) -> Any:
    async def spend(ctx: rerail.Context, fail: bool = False) -> dict[str, Any]:
        ctx.usage(tokens=tokens, cost=cost)
        if fail:
            raise BROKE
        return {"spent": tokens}

    return rerail.tool(spend)


@pytest.mark.parametrize(
    ("limit", "tool", "key"),
    [({"max_tokens": 150}, spending(tokens=100), "tokens"), ({"max_cost": 0.15}, spending(cost=0.1), "cost")],
)
def test_max_tokens_and_max_cost(limit: dict[str, Any], tool: Any, key: str) -> None:
    """H4, M3: what tools say they spent; the largest so far is reserved before each call, and a second does not fit."""
    what = {"steps": [{"id": n, "tool": "spend", "needs": list(p)} for p, n in zip(["", "a", "b"], "abc", strict=True)]}

    async def main() -> Any:
        async with Engine("memory://", [tool], {"run": limit}, clock=VirtualClock()) as engine:
            return await engine.run(what)

    result = virtual_run(main)
    assert [row.status for row in result.steps.values()] == ["succeeded", "cancelled", "cancelled"]
    assert result.steps["b"].code == "BUDGET_EXCEEDED"
    assert result.exec[key] == pytest.approx(100 if key == "tokens" else 0.1)


def test_what_failed_calls_spent_counts_too() -> None:
    """H4: money is gone whether or not it helped."""
    what = {
        "steps": [{"id": "a", "tool": "spend", "args": {"fail": True}, "critical": False}, {"id": "b", "tool": "spend"}]
    }

    async def main() -> Any:
        settings = {"run": {"max_tokens": 100, "concurrency": 1}, **PLAIN}
        async with Engine("memory://", [spending(tokens=100)], settings, clock=VirtualClock()) as engine:
            return await engine.run({"steps": what["steps"]})

    result = virtual_run(main)
    assert result.exec["tokens"] == 100
    assert result.steps["b"].code == "BUDGET_EXCEEDED"


def test_max_seconds_counts_time_running() -> None:
    """H4: the step that would start after it does not."""
    world = World({name: [Took(10)] for name in "abc"})
    result, _ = history(world, chain(*"abc"), settings={"run": {"max_seconds": 15}})
    assert world.order == ["a", "b"]
    assert result.stopped == "BUDGET_EXCEEDED" and not result.cut_off
    assert (result.steps["b"].code, result.steps["c"].code) == ("TIMEOUT", "SKIP_UPSTREAM_FAILED")


def test_max_seconds_does_not_count_waiting_for_people_or_lying_dead() -> None:
    """H4: a gate that waits for a day, a pause, a dead process."""
    store = MemoryStore()
    world = World({name: [Took(4)] for name in "abcd"})
    what = chain(*"abcd")
    what["steps"][1]["confirm"] = True
    settings = {"run": {"max_seconds": 20}}

    async def first() -> None:
        async with world.engine(what, store=store, settings=settings) as engine:
            waiting = await engine.wait(await engine.start(what, run_id="r"))
            assert waiting.status == "waiting"
            await asyncio.sleep(86_400)
            await engine.confirm("r")
            await asyncio.sleep(1)
            await engine.pause("r")
            assert (await engine.wait("r")).status == "waiting"
            await asyncio.sleep(86_400)
            await engine.begin_resume("r")
            await asyncio.sleep(2)  # c is under way

    async def second() -> Any:
        clock = VirtualClock(1_800_000_000)  # years later
        async with world.engine(what, store=store, settings=settings, clock=clock) as engine:
            return await engine.resume("r")

    virtual_run(first)
    result = virtual_run(second)
    assert result.success
    assert result.exec["seconds"]["total"] < 20


@pytest.mark.parametrize("limit", ["max_attempts", "max_tokens", "max_cost", "max_seconds"])
def test_a_budget_of_nothing_starts_nothing(limit: str) -> None:
    """H4: checked before the first call, too."""
    world = World()
    result, events = history(world, one(), settings={"run": {limit: 0}})
    assert not world.calls
    assert (result.status, result.steps["a"].code) == ("failed", "BUDGET_EXCEEDED")
    assert events[-1].type == "done"


def test_the_same_seed_waits_the_same_in_every_version() -> None:
    """H3: histories of today are decided again by versions of tomorrow; growth ends after 64 steps."""
    assert backoff(Policy(), 1, "r", "a", 1) == pytest.approx(0.9297476560310908, abs=1e-15)
    slow = Policy(backoff_factor=1.01, backoff_cap=1e9, jitter=False)
    assert backoff(slow, 65) == backoff(slow, 100) == pytest.approx(1.01**64) and backoff(slow, 64) < backoff(slow, 65)
