"""`finally`: steps that run at the end of a run, whatever it came to (P2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import PlanError, Refused, ToolError
from rerail.plan.model import Plan, check
from rerail.testing.scripted import Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

BROKE = ToolError("it broke", category="tool_error")
PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
FREE = {"id": "free", "tool": "free", "args": {"what": "${reserve}"}}
PLAN = {
    "steps": [
        {"id": "reserve", "tool": "reserve"}, {"id": "a", "tool": "a", "needs": ["reserve"]},
        {"id": "b", "tool": "b", "needs": ["a"]}, {"id": "c", "tool": "c", "needs": ["b"]}, FREE,
    ],
    "finally": ["free"],
}  # fmt: skip


def history(world: World, what: Any, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            result = await engine.wait(await engine.start(what, run_id="the-run"))
            return result, await engine.events("the-run")

    return virtual_run(main)


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


def plan(*finals: dict[str, Any], steps: tuple[dict[str, Any], ...] = tuple(PLAN["steps"][:4])) -> dict[str, Any]:
    return {"steps": [*steps, *finals], "finally": [step["id"] for step in finals]}


# -- When they run ------------------------------------------------------------------------------------------------


def test_after_a_success() -> None:
    """P2: once everything else has ended, and before the run's last event."""
    world = World()
    result, events = history(world, PLAN)
    assert world.order == ["reserve", "a", "b", "c", "free"]
    assert (result.status, result.success, result.not_cleaned_up) == ("completed", True, ())
    assert (result.complete, result.summary) == (True, "5 steps, all succeeded")
    [evaluation] = of(events, "evaluation")
    assert evaluation.success and evaluation.complete
    assert [event.type for event in events if event.type in ("evaluation", "cleanup_begun", "done")] == [
        "evaluation", "cleanup_begun", "done"
    ]  # fmt: skip


def test_after_a_failure_and_its_last_automatic_round() -> None:
    """P2: reserve → a → b (fails) → c: c is skipped because of b, and the reservation is freed all the same."""
    world = World(b=[BROKE])
    result, events = history(world, PLAN, settings={"reflection": {"max_step_retries": 0}})
    assert world.order == ["reserve", "a", "b", "b", "free"]
    assert (result.status, result.steps["free"].status, result.not_cleaned_up) == ("failed", "succeeded", ())
    assert len(of(events, "retry_begin")) == 1 and len(of(events, "cleanup_begun")) == 1


def test_after_a_breaker() -> None:
    """P2, H4: the breaker stops the work, not the clean-up."""
    steps = ({"id": "reserve", "tool": "reserve"}, *({"id": n, "tool": n, "needs": ["reserve"]} for n in "abcd"))
    settings = {**PLAIN, "run": {"concurrency": 1}}
    settings["reflection"] = {"max_step_retries": 0, "max_consecutive_failures": 2}
    world = World(a=[BROKE], b=[BROKE])
    result, _ = history(world, plan(FREE, steps=steps), settings=settings)
    assert world.order == ["reserve", "a", "b", "free"]
    assert (result.stopped, result.never_started, result.not_cleaned_up) == ("BREAKER_OPEN", ("c", "d"), ())


@pytest.mark.parametrize(("limits", "order"), [
    ({"max_attempts": 3}, ["reserve", "a", "free"]),
    ({"max_cost": 3.0}, ["reserve", "a", "free"]),
    ({"max_seconds": 15.0}, ["reserve", "a", "free"]),
])  # fmt: skip
def test_after_a_spent_budget(limits: dict[str, Any], order: list[str]) -> None:
    """P2, H4: one attempt and the declared cost of each are kept back; past `max_seconds` they get a minute."""
    world = World({name: [Took(10.0, 1)] for name in ("reserve", *"abc", "free")})
    for name in world.script:
        world.option(name, cost=1.0, effect="once")  # such a call keeps its timeout
    result, _ = history(world, PLAN, settings={**PLAIN, "run": limits})
    assert world.order == order
    assert (result.stopped, result.steps["free"].status) == ("BUDGET_EXCEEDED", "succeeded")
    assert result.exec["calls"] <= limits.get("max_attempts", 99) and result.exec["cost"] <= limits.get("max_cost", 99)


def cancelled(world: World, what: Any, *more: float, at: float = 5.0, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            run = await engine.start(what, run_id="the-run")
            for seconds in (at, *more):
                await asyncio.sleep(seconds)
                await engine.cancel(run)
            return await engine.wait(run), await engine.events(run)

    return virtual_run(main)


def test_after_a_cancel() -> None:
    """P2: within 60 s; the call under way is cancelled, what never ran is named."""
    world = World(a=[Took(1000, 1)])
    result, events = cancelled(world, PLAN)
    assert world.order == ["reserve", "a", "free"]
    assert (result.status, result.steps["free"].status) == ("cancelled", "succeeded")
    assert (result.cut_off, result.never_started, result.not_cleaned_up) == (("a",), ("b", "c"), ())
    [begun] = of(events, "cleanup_begun")
    assert begun.code == "RUN_CANCELLED" and begun.until - begun.at == pytest.approx(60)


def test_a_clean_up_after_a_cancel_ends_in_time() -> None:
    """P2: a hanging tool is cut off, and what was not cleaned up is said."""
    world = World(a=[Took(1000, 1)], free=[Took(1000, 1)])
    result, events = cancelled(world, PLAN)
    assert events[-1].at - of(events, "cancelled")[0].at == pytest.approx(60, abs=2)
    assert (result.status, result.steps["free"].status) == ("cancelled", "failed")
    assert result.not_cleaned_up == ("free",) and "not cleaned up: free" in result.summary


def test_a_second_cancel_ends_the_clean_up() -> None:
    """P2: at once."""
    world = World(a=[Took(1000, 1)], free=[Took(50, 1)])
    result, events = cancelled(world, PLAN, 10.0)
    assert len(of(events, "cancelled")) == 2 and events[-1].at - of(events, "cancelled")[1].at < 1
    assert (result.status, result.not_cleaned_up, result.cut_off) == ("cancelled", ("free",), ("a", "free"))


def test_a_cancel_during_the_clean_up_bounds_it() -> None:
    """P2: the first cancel leaves it a minute."""
    world = World(b=[BROKE], free=[Took(30, 1)])
    result, _ = cancelled(world, PLAN, at=5.0, settings=PLAIN)
    assert (result.status, result.steps["free"].status) == ("cancelled", "succeeded")


# -- What they need -----------------------------------------------------------------------------------------------


def test_one_without_the_success_that_it_needs_is_skipped() -> None:
    """P2: and named: whether there was something to clean up is for a person to say."""
    world = World(reserve=[BROKE])
    result, _ = history(world, PLAN, settings=PLAIN)
    assert world.order == ["reserve"]
    assert (result.steps["free"].code, result.not_cleaned_up) == ("SKIP_UPSTREAM_FAILED", ("free",))
    above = {"id": "free", "tool": "free", "needs": ["c"]}
    result, _ = history(World(b=[BROKE]), {**PLAN, "steps": [*PLAN["steps"][:4], above]}, settings=PLAIN)
    assert result.not_cleaned_up == ("free",) and "not cleaned up: free" in result.summary


def test_needs_are_decided_when_the_work_is_stopped() -> None:
    """P2: a step that never ran has ended, has not succeeded and has not failed."""
    finals = [
        {"id": "f1", "tool": "f1", "needs": [{"step": "b", "when": "success"}]},
        {"id": "f2", "tool": "f2", "needs": [{"step": "b", "when": "done"}]},
        {"id": "f3", "tool": "f3", "needs": [{"step": "b", "when": "failure"}]},
        {"id": "f4", "tool": "f4", "needs": ["f2"]},
    ]
    world = World(a=[Took(1000, 1)])
    result, _ = cancelled(world, plan(*finals))
    assert {name: row.status for name, row in result.steps.items() if name[0] == "f"} == {
        "f1": "skipped", "f2": "succeeded", "f3": "skipped", "f4": "succeeded"
    }  # fmt: skip
    assert "cancelled" in result.steps["f1"].error["message"]


def test_a_failed_need_counts_as_failed_in_a_stopped_run() -> None:
    """P2: no automatic round is left, so `failure` is met."""
    final = {"id": "f", "tool": "f", "needs": [{"step": "a", "when": "failure"}]}
    steps = ({"id": "a", "tool": "a"}, {"id": "b", "tool": "b"})
    world = World(a=[BROKE], b=[Took(1000, 1)])
    settings = {"reflection": {"max_step_retries": 0}}
    result, _ = cancelled(world, plan(final, steps=steps), settings=settings)
    assert result.steps["f"].status == "succeeded"


def test_what_may_have_been_done_and_was_not_cleaned_up_is_named() -> None:
    """P2, E3: a reservation in doubt cannot be freed without its number, and that is said."""
    world = World(reserve=[RuntimeError("after the effect")]).option("reserve", effect="once")
    what = plan(FREE, steps=({"id": "reserve", "tool": "reserve", "on_doubt": "wait"}, {"id": "a", "tool": "a"}))
    result, _ = cancelled(world, what)
    assert (result.in_doubt, result.not_cleaned_up) == (("reserve",), ("free",))


def test_a_value_in_the_place_of_a_clean_up_in_doubt_cleans_nothing_up() -> None:
    """P2, E3: the doubt stays, and the step is named until a person settles it."""
    world = World(free=[RuntimeError("after the effect")]).option("free", effect="once")
    what = {**PLAN, "steps": [*PLAN["steps"][:4], {**FREE, "fallback": {"value": 1}}]}
    result, _ = history(world, what, settings=PLAIN)
    assert (result.status, result.steps["free"].status) == ("completed", "degraded")
    assert (result.in_doubt, result.not_cleaned_up) == (("free",), ("free",))
    result, _ = acts(world, what, lambda engine, run: engine.resolve(run, "free", succeeded=1), settings=PLAIN)
    assert (result.in_doubt, result.not_cleaned_up) == ((), ())


# -- Again at the end of a person's retry -------------------------------------------------------------------------


def test_a_persons_retry_cleans_up_again() -> None:
    """P2: and under a new idempotency key, since it is another clean-up."""
    world = World(b=[BROKE, 1])

    async def main() -> Any:
        async with world.engine(PLAN, settings=PLAIN) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            await engine.wait(run)
            return await engine.retry(run), await engine.events(run)

    result, events = virtual_run(main)
    assert world.order == ["reserve", "a", "b", "free", "b", "c", "free"]
    assert result.success and len(of(events, "cleanup_begun")) == 2


def test_a_dry_run_of_a_retry_tells_what_cleans_up_again() -> None:
    """P2, R7: with its effect, if that must not happen twice."""
    world = World(b=[BROKE]).option("free", effect="once")

    async def main() -> Any:
        async with world.engine(PLAN, settings=PLAIN) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            await engine.wait(run)
            return await engine.retry(run, dry_run=True)

    preview = virtual_run(main)
    assert [row["step"] for row in preview.rerun] == ["b", "c", "free"]
    assert (preview.rerun[-1]["why"], preview.once) == ("cleans up at the end", ("free",))
    assert preview.kept == ("reserve", "a")


def test_a_failed_clean_up_fails_the_run_and_can_be_retried() -> None:
    """P2: no automatic round mends it; a person's retry does only that."""
    world = World(free=[BROKE, 1])

    async def main() -> Any:
        async with world.engine(PLAN, settings={"reflection": {"max_step_retries": 0}}) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            first = await engine.wait(run)
            return first, await engine.retry(run)

    first, second = virtual_run(main)
    assert (first.status, first.not_cleaned_up) == ("failed", ("free",))
    assert (second.status, second.not_cleaned_up) == ("completed", ())
    assert world.order == ["reserve", "a", "b", "c", "free", "free"]


def test_a_clean_up_heals_like_any_step() -> None:
    """P2: retries, within the caps."""
    world = World(free=[ConnectionRefusedError("down"), 1])
    result, _ = history(world, PLAN)
    assert result.success and world.calls_of("free") == 2
    broke = World(free=[ConnectionRefusedError("down")], b=[BROKE])
    result, _ = history(broke, PLAN, settings={**PLAIN, "run": {"max_attempts": 4}, "reflection": {}})
    assert broke.order == ["reserve", "a", "b", "free"] and result.not_cleaned_up == ("free",)


def test_a_repeat_leaves_the_others_their_call() -> None:
    """P2: each keeps its reserve, whichever comes first."""
    down = ConnectionRefusedError("down")
    finals = [{"id": "f1", "tool": "f1", "priority": 5}, {"id": "f2", "tool": "f2", "args": {"x": "${f3}"}},
              {"id": "f3", "tool": "f3"}]  # fmt: skip
    world = World(f1=[down])
    result, _ = history(world, plan(*finals), settings={"run": {"max_attempts": 6, "concurrency": 1}})
    assert world.calls_of("f2") == world.calls_of("f3") == 1
    assert len(world.calls) <= 6 and "f1" in result.not_cleaned_up


def test_a_killed_owner_goes_on_cleaning_up() -> None:
    """P2, E1: the clean-up is part of the history."""
    world, store = World(b=[BROKE], free=[Took(30, 1)]), MemoryStore()

    async def main() -> Any:
        async with world.engine(PLAN, store=store, settings=PLAIN) as engine:
            await engine.start(PLAN, run_id="the-run")
            await asyncio.sleep(5)
        async with world.engine(PLAN, store=store, settings=PLAIN) as engine:
            return await engine.resume("the-run")

    result = virtual_run(main)
    assert world.order == ["reserve", "a", "b", "free", "free"]
    assert (result.status, result.not_cleaned_up) == ("failed", ())


def test_nothing_changes_the_plan_meanwhile() -> None:
    """P2, X7: a refusal says so."""
    world = World(b=[BROKE], free=[Took(30, 1)])

    async def main() -> list[str]:
        async with world.engine(PLAN, settings=PLAIN) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            await asyncio.sleep(5)
            codes = []
            for what in (engine.add(run, [{"id": "z", "tool": "a"}]), engine.retry(run, ["b"])):
                with pytest.raises(Refused) as refused:
                    await what
                codes.append(refused.value.code)
            await engine.wait(run)
            return codes

    assert virtual_run(main) == ["RUN_LIVE", "RUN_LIVE"]


def acts(world: World, what: Any, *commands: Any, **options: Any) -> tuple[Any, list[Any]]:
    """What becomes of a run and of what people do, each after the run has come to rest or waits."""

    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            run = await engine.start(what, run_id="the-run")
            result = await engine.wait(run)
            for command in commands:
                await command(engine, run)
                result = await engine.wait(run)
            return result, await engine.events(run)

    return virtual_run(main)


def test_what_a_person_says_of_a_clean_up_holds() -> None:
    """P2, X7, E3: what is resolved by hand is not called again; nor is what was declared failed."""
    broke = World(free=[BROKE]).option("free", effect="once")
    by_hand = {"by": "hand"}
    result, _ = acts(broke, PLAN, lambda engine, run: engine.resolve(run, "free", succeeded=by_hand), settings=PLAIN)
    assert (result.status, broke.calls_of("free"), result.not_cleaned_up) == ("completed", 1, ())
    lost = World(free=[RuntimeError("after the effect")]).option("free", effect="once", on_doubt="fail")
    result, _ = acts(
        lost, PLAN,
        lambda engine, run: engine.resolve(run, "free", succeeded=1),
        lambda engine, run: engine.resolve(run, "free", failed=True),
    )  # fmt: skip
    assert (result.status, lost.calls_of("free"), result.not_cleaned_up) == ("failed", 1, ("free",))
    early = World(a=[Took(20, 1)])

    async def main() -> Any:
        async with early.engine(PLAN) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            await asyncio.sleep(5)
            await engine.resolve(run, "free", succeeded=1)
            return await engine.wait(run)

    assert virtual_run(main).success and early.calls_of("free") == 0


def test_words_about_other_steps_clean_nothing_up_again() -> None:
    """P2: a skip or an answer calls nothing of the work, so there is nothing more to clean up."""
    world = World(b=[BROKE])
    result, _ = acts(world, PLAN, lambda engine, run: engine.skip(run, "b"), settings=PLAIN)
    assert world.order == ["reserve", "a", "b", "free", "c"] and result.success


def test_a_spent_budget_leaves_nothing_to_clean_up_again() -> None:
    """P2, H4: a retry that would call nothing is refused, and uses up none of them."""
    world = World(b=[BROKE])
    settings = {**PLAIN, "run": {"max_attempts": 4}}

    async def retried(engine: Engine, run: str) -> None:
        for dry_run in (True, False):
            with pytest.raises(Refused, match="max_attempts: 4 of 4 used") as caught:
                await engine.retry(run, dry_run=dry_run)
            assert caught.value.code == "BUDGET_EXCEEDED" and "--set run.max_attempts=N" in caught.value.hint

    result, events = acts(world, PLAN, retried, settings=settings)
    assert not of(events, "retry_begin")
    assert world.order == ["reserve", "a", "b", "free"] and result.not_cleaned_up == ()
    assert len(of(events, "cleanup_begun")) == 1


def test_added_steps_are_cleaned_up_after_and_the_dry_run_says_so() -> None:
    """P2, R7: a clean-up of effect `once` that happens again is named by every command that leads to it."""
    world, seen = World(b=[BROKE, 1]).option("free", effect="once"), []

    async def added(engine: Engine, run: str) -> None:
        seen.append(await engine.add(run, [{"id": "n", "tool": "a"}], dry_run=True))
        await engine.add(run, [{"id": "n", "tool": "a"}])

    async def repaired(engine: Engine, run: str) -> None:
        seen.append(await engine.repair(run, "b", args={"x": 1}, dry_run=True))
        seen.append(await engine.skip(run, "b", dry_run=True))

    acts(world, PLAN, added, repaired, settings=PLAIN)
    add, repair, skip = seen
    assert ([row["step"] for row in add.rerun], add.once) == (["n", "free"], ("free",))
    assert ([row["step"] for row in repair.rerun], repair.once) == (["b", "c", "free"], ("free",))
    assert {"b", "c"} & {row["step"] for row in skip.rerun} <= {"c"}
    assert "free" not in add.kept and world.calls_of("free") == 2


def test_a_retry_past_the_time_of_a_run_only_cleans_up() -> None:
    """P2, R7: the caps keep room for the clean-up alone, and the dry run says so."""
    world, seen = World(b=[Took(20, BROKE)], free=[BROKE, 1]), []

    async def retried(engine: Engine, run: str) -> None:
        seen.append(await engine.retry(run, dry_run=True))
        await engine.retry(run)

    result, _ = acts(world, PLAN, retried, settings={**PLAIN, "run": {"max_seconds": 10}})
    (preview,) = seen
    assert ([row["step"] for row in preview.rerun], dict(preview.becomes)) == (
        ["free"], {"b": "cancelled", "c": "cancelled"},
    )  # fmt: skip
    assert world.order == ["reserve", "a", "b", "free", "free"] and result.not_cleaned_up == ()


GATED = {**PLAN, "steps": [*PLAN["steps"][:4], {**FREE, "confirm": "Free it?"}]}


def test_a_gate_of_the_clean_up_is_asked_after_a_stop_too() -> None:
    """P2, X10: but after a cancel, which leaves no time for it."""
    world = World(b=[BROKE])
    settings = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 0, "max_consecutive_failures": 1}}
    result, _ = acts(world, GATED, lambda engine, run: engine.confirm(run), settings=settings)
    assert (result.stopped, result.steps["free"].status) == ("BREAKER_OPEN", "succeeded")
    slow = World(a=[Took(1000, 1)])
    result, _ = cancelled(slow, GATED)
    assert (result.status, result.not_cleaned_up) == ("cancelled", ("free",))


def test_waiting_for_a_person_takes_no_time_from_the_clean_up() -> None:
    """P2: nor does the time between two processes."""
    world, store = World(), MemoryStore()

    async def asked() -> Any:
        async with world.engine(GATED, store=store, settings={"run": {"max_seconds": 30}}) as engine:
            run = await engine.start(GATED, run_id="the-run")
            await engine.wait(run)
            await asyncio.sleep(500)
            await engine.confirm(run)
            return await engine.wait(run)

    assert virtual_run(asked).success
    late, store = World(a=[Took(1000, 1)], free=[Took(30, 1)]), MemoryStore()

    async def killed() -> None:
        async with late.engine(PLAN, store=store) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            await asyncio.sleep(5)
            await engine.cancel(run)
            await asyncio.sleep(5)

    async def resumed() -> Any:
        async with late.engine(PLAN, store=store, clock=VirtualClock(1_700_000_000.0 + 500)) as engine:
            return await engine.resume("the-run")

    virtual_run(killed)
    result = virtual_run(resumed)
    assert (result.status, result.steps["free"].status) == ("cancelled", "succeeded")


def test_a_pause_of_a_stopped_run_is_refused() -> None:
    """P2, X7: it ends, and only its clean-up is left; a second cancel ends that."""
    world = World(a=[Took(1000, 1)], free=[Took(30, 1)])

    async def main() -> Any:
        async with world.engine(PLAN) as engine:
            run = await engine.start(PLAN, run_id="the-run")
            await asyncio.sleep(5)
            await engine.cancel(run)
            await asyncio.sleep(5)
            with pytest.raises(Refused) as refused:
                await engine.pause(run)
            assert refused.value.code == "RUN_LIVE"
            return await engine.wait(run)

    result = virtual_run(main)
    assert result.steps["free"].status == "succeeded" and world.calls_of("free") == 1


def test_the_last_event_names_what_was_not_cleaned_up() -> None:
    """P2, V7: as the result does."""
    result, events = history(World(free=[BROKE]), PLAN, settings=PLAIN)
    assert events[-1].summary == result.summary and "not cleaned up: free" in events[-1].summary


async def cleans(ctx: rerail.Context) -> None:
    """A step of `finally` that wants more."""
    ctx.add([{"id": "more", "tool": "a"}])


def test_a_clean_up_adds_no_steps() -> None:
    """P2, M3: the plan does not change any more; the step that asks for it fails, and says so."""

    async def main() -> Any:
        plan = {"steps": [{"id": "a", "tool": "a"}, {"id": "c", "tool": "cleans"}], "finally": ["c"]}
        async with rerail.Engine("memory://", [*World(a=[1]).tools(), cleans], PLAIN) as engine:
            return await engine.run(plan)

    result = virtual_run(main)
    assert list(result.steps) == ["a", "c"] and result.not_cleaned_up == ("c",)
    assert "is cleaning up" in result.steps["c"].error["message"]


# -- Faults -------------------------------------------------------------------------------------------------------


def faults(what: Any) -> list[tuple[str, str]]:
    return [(fault.code, fault.step) for fault in check(Plan.load(what))]


def test_faults() -> None:
    """P2, P5: ids that are not there, and steps that would wait for the end."""
    assert faults(PLAN) == []
    assert faults({**PLAN, "finally": ["fre"]}) == [("BAD_FINALLY", "")]
    assert faults({**PLAN, "finally": ["a"]}) == [("BAD_FINALLY", "b")]
    assert faults({**PLAN, "finally": ["reserve"]}) == [("BAD_FINALLY", "a"), ("BAD_FINALLY", "free")]
    assert faults({**PLAN, "finally": [{"id": "free"}, True]}) == [("BAD_VALUE", "")]
    assert Plan.load({**PLAN, "finally": 4}).finally_ == ("free",)
    assert Plan.load({**PLAN, "finally": "free"}).to_dict()["finally"] == ("free",)


@pytest.mark.parametrize("limits", [{"max_attempts": 0}, {"max_cost": 0.5}])
def test_caps_without_room_for_them_are_a_fault(limits: dict[str, Any]) -> None:
    """P2: before anything runs."""
    world = World().option("free", cost=1.0)
    with pytest.raises(PlanError) as refused:
        history(world, PLAN, settings={"run": limits})
    assert [fault.code for fault in refused.value.faults] == ["BAD_FINALLY"] and not world.calls
