"""A run that changes hands: wishes on their way, owners that let go, follow-ups that a crash came before."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import msgspec
import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.engine.maintenance.export import export_runs, import_runs, listed
from rerail.engine.runs import commands
from rerail.engine.runs.owner import this_process
from rerail.errors import Refused, RerailError, StoreError, ToolError
from rerail.kernel.commands import Pause, Resume
from rerail.ports import Owner
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

ONE: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}]}
FOLLOWED: dict[str, Any] = {**ONE, "follow_up": {"steps": [{"id": "f", "tool": "f"}]}}
PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
HERE = this_process()
OTHER = Owner(HERE.host, HERE.pid, HERE.started, worker=True)  # lives as long as this test does


async def owned_by_another(store: MemoryStore, world: World, what: Any) -> str:
    """A run that another living process drives: it is under way, and this engine has no part in it."""
    async with world.engine(what, store=store, settings=PLAIN) as engine:
        run = await engine.start(what)
        await asyncio.sleep(1)
    await store.claim(run, OTHER, 0.0)
    return run


def test_a_wish_that_nobody_answers_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """T7: who asked is told that nothing happened, so nothing may happen later."""
    world, store = World(a=[Took(10**6)]), MemoryStore()
    monkeypatch.setattr(commands, "ANSWER_TIMEOUT", 0.2)

    async def main() -> None:
        run = await owned_by_another(store, world, ONE)
        async with world.engine(ONE, store=store, clock=VirtualClock(start=1.0)) as engine:
            with pytest.raises(StoreError, match="did not answer"):
                await engine.pause(run)
        assert await store.inbox(run) == []
        async with world.engine(ONE, store=store) as engine:
            assert not [event for event in await engine.events(run) if event.type == "acted"]

    virtual_run(main)


def test_a_wish_whose_owner_lets_go_is_granted_by_who_asks() -> None:
    """T7: the owner dies while the wish waits in its inbox; it is applied once, here."""
    world, store = World(a=[Took(10**6)]), MemoryStore()

    async def main() -> list[Any]:
        run = await owned_by_another(store, world, ONE)

        async def die() -> None:
            await asyncio.sleep(0.3)
            head = await store.head(run)
            assert head is not None and await store.inbox(run), "the wish came by the inbox"
            await store.claim(run, Owner(HERE.host, 2**22 + 1, 5.0), 0.0, over=head.fence)  # no such process

        async with world.engine(ONE, store=store, clock=VirtualClock(start=1.0)) as engine:
            dying = asyncio.create_task(die())
            await engine.cancel(run, reason="enough")
            await dying
            result = await engine.wait(run)
            assert result.status == "cancelled"
            return [event for event in await engine.events(run) if event.type == "cancelled"]

    (cancelled,) = virtual_run(main)
    assert cancelled.reason == "enough"


def test_a_wish_that_was_granted_before_a_crash_is_not_granted_again() -> None:
    """T7: only its answer was lost; its number in the history tells."""
    world, store = World(a=[Took(3, {"v": 1})]), MemoryStore()
    wish = msgspec.json.encode(Pause(by="ann"))

    async def main() -> list[Any]:
        async with world.engine(ONE, store=store) as engine:
            run = await engine.start(ONE)
            live = engine._live[run]
            await asyncio.sleep(1)
            number = await store.post(run, wish)
            await engine._supervisor.serve(run, live)
            await store.post(run, msgspec.json.encode(Resume(by="ann")))
            await engine._supervisor.serve(run, live)
            store._open[run] = {number: wish}  # as if the crash had come before its answer was written
            await engine._supervisor.serve(run, live)
            assert (await engine.wait(run)).success, "a second pause would have left it waiting"
            return await engine.events(run)

    events = virtual_run(main)
    assert [event.action for event in events if event.type == "acted"] == ["pause"]


def test_wishes_are_heard_in_a_store_that_counts_anew() -> None:
    """T7: an imported history knows its wishes by name; the target's first is heard, and none is granted twice."""
    world, source, target = World(a=[Took(3, ToolError("no")), Took(3, {"v": 1})]), MemoryStore(), MemoryStore()
    granted = msgspec.json.encode(Pause(by="ann", key="k1"))

    async def main() -> list[Any]:
        async with world.engine(ONE, store=source, settings=PLAIN) as engine:
            run = await engine.start(ONE)
            live = engine._live[run]
            await asyncio.sleep(1)
            for wish, key in ((Pause, "k1"), (Resume, "k2"), (Pause, "k3"), (Resume, "k4")):
                await source.post(run, msgspec.json.encode(wish(by="ann", key=key)))
                await engine._supervisor.serve(run, live)
            assert (await engine.wait(run)).status == "failed"
        file = io.BytesIO()
        assert [row.ok async for row in export_runs(source, await listed(source), file)] == [True]
        assert [row.ok async for row in import_runs(target, file, own=True)] == [True]
        await target.post(run, granted)
        async with world.engine(ONE, store=target, settings=PLAIN) as engine:
            await engine.begin_retry(run)
            live = engine._live[run]
            await asyncio.sleep(1)
            await engine._supervisor.serve(run, live)
            assert await target.inbox(run) == [], "the one that was granted before is answered, as that"
            assert await target.post(run, msgspec.json.encode(Pause(by="bob", key="k5"))) < 4
            await engine._supervisor.serve(run, live)
            assert (await engine.wait(run)).status == "waiting"
            return await engine.events(run)

    events = virtual_run(main)
    assert [(event.by, event.wish) for event in events if event.type == "acted"] == [
        ("ann", "k1"), ("ann", "k3"), ("bob", "k5"),
    ]  # fmt: skip


def test_a_run_that_ends_while_somebody_knocks_is_asked_again() -> None:
    """T7: its loop has ended and its lease is not yet given back; the wish waits for that, and is refused at rest."""
    world, letting_go = World(a=[Took(1, {"v": 1})]), asyncio.Event()

    class Slow(MemoryStore):
        async def release(self, lease: Any) -> None:
            letting_go.set()
            await asyncio.sleep(0.5)
            await super().release(lease)

    async def main() -> str:
        async with world.engine(ONE, store=Slow()) as engine:
            run = await engine.start(ONE)
            await letting_go.wait()
            with pytest.raises(Refused) as refused:
                await engine.pause(run)
            return refused.value.code

    assert virtual_run(main) == "RUN_AT_REST"


def test_a_gate_can_be_opened_ahead_of_time_and_refused_only_in_time() -> None:
    """X7: a step that was refused before what it needs would end with a fallback that is made from nothing."""
    what = {
        "steps": [
            {"id": "a", "tool": "a"},
            {"id": "b", "tool": "b", "needs": ["a"], "confirm": True, "fallback": {"value": "stand-in"}},
            {"id": "c", "tool": "c", "needs": ["a"], "confirm": True},
        ]
    }
    world = World(a=[Took(5, {"v": 1})])

    async def main() -> Any:
        async with world.engine(what, settings=PLAIN) as engine:
            run = await engine.start(what)
            with pytest.raises(Refused, match="does not wait for a confirmation yet"):
                await engine.confirm(run, "b", refuse=True)
            await engine.confirm(run, "c", ahead=True)
            await asyncio.sleep(10)
            await engine.confirm(run, "b", refuse=True)
            return await engine.wait(run)

    result = virtual_run(main)
    assert (result.steps["b"].status, result.steps["b"].output) == ("degraded", "stand-in")
    assert result.steps["c"].status == "succeeded"


# -- Follow-ups --------------------------------------------------------------------------------------------------------


def test_a_follow_up_that_a_crash_came_before_is_started_by_a_retry() -> None:
    """T6, E1: once for each completion, whoever starts it."""
    world, store = World(a=[{"v": 1}], f=[{"v": 2}]), MemoryStore()

    async def main() -> list[str]:
        engine = world.engine(FOLLOWED, store=store)
        await engine.open()
        died = asyncio.Event()

        async def dies(state: Any) -> None:
            died.set()
            raise asyncio.CancelledError

        engine._starter.follow = dies  # type: ignore[method-assign]  # the process dies between `done` and the follow-up
        run = await engine.start(FOLLOWED)
        await died.wait()
        await engine.close()
        assert world.calls_of("f") == 0
        async with world.engine(FOLLOWED, store=store) as second:
            target, _ = await second.begin_retry(run)
            assert target != run
            assert (await second.wait(target)).success
            with pytest.raises(Refused):
                await second.retry(run)  # it has completed, and so has its follow-up
            return [row["run_id"] for row in await second.list(parent=run)]

    children = virtual_run(main)
    assert len(children) == 1
    assert (world.calls_of("a"), world.calls_of("f")) == (1, 1)


# -- Repairs by people -------------------------------------------------------------------------------------------------

WRONG_PATH: dict[str, Any] = {
    "steps": [
        {"id": "get", "tool": "get"},
        {"id": "pay", "tool": "pay", "args": {"amount": "${get.value}", "to": "ann"}},
        {"id": "tell", "tool": "tell", "needs": ["pay"]},
    ]
}


def test_a_person_repairs_a_step_of_a_failed_run() -> None:
    """H7, X7: what changes lies over what was; what is done is kept, what depends on the step is done."""
    world = World(get=[{"body": {"value": 7}}])

    async def main() -> tuple[Any, Any, list[Any]]:
        async with world.engine(WRONG_PATH, settings=PLAIN) as engine:
            failed = await engine.run(WRONG_PATH)
            await engine.repair(failed.run_id, "pay", args={"amount": "${get.body.value}"}, by="ann")
            return failed, await engine.wait(failed.run_id), await engine.events(failed.run_id)

    failed, result, events = virtual_run(main)
    assert "there is: body" in failed.steps["pay"].error["message"], "it says what there is instead"
    assert result.success
    assert result.steps["pay"].args == {"amount": 7, "to": "ann"}
    assert world.order == ["get", "pay", "tell"], "what was done is not done again"
    (acted,) = [event for event in events if event.type == "acted"]
    assert (acted.action, acted.by, acted.step) == ("repair", "ann", "pay")


@pytest.mark.parametrize(
    ("changes", "args"),
    [
        ({"remove": ["to"]}, {"amount": "x"}),
        ({"remove": ["to"], "args": {"amount": 7}}, {"amount": 7}),
        ({"remove": ["to"], "args": {"for": "tea"}}, {"amount": "x", "for": "tea"}),
        ({"remove": ["to"], "tool": "tell"}, {"amount": "x"}),
        ({"args": {"for": "tea"}, "tool": "tell"}, {"for": "tea"}),
        ({"tool": "tell"}, {"amount": "x", "to": "ann"}),
    ],
)
def test_a_repair_removes_arguments(changes: Any, args: Any) -> None:
    """H7, X7: what is named is gone, the others stay; another tool gets the arguments that are given, if any are."""
    what = {"steps": [{"id": "pay", "tool": "pay", "args": {"amount": "x", "to": "ann"}}]}
    world = World(pay=[lambda **said: {} if said != what["steps"][0]["args"] else ToolError("no")], tell=[{}])

    async def main() -> Any:
        async with world.engine(what, settings=PLAIN) as engine:
            run = (await engine.run(what)).run_id
            await engine.repair(run, "pay", **changes)
            return await engine.wait(run)

    result = virtual_run(main)
    assert (result.success, result.steps["pay"].args) == (True, args)


def test_a_repair_of_a_live_run_ends_a_backoff() -> None:
    """H7, X7: fresh retries, and no waiting for a call that cannot work."""
    what = {"steps": [{"id": "a", "tool": "a", "args": {"n": 1}}]}
    world = World(a=[lambda n: {"v": n} if n == 2 else ConnectionRefusedError("down")])
    settings = {"retry": {"backoff_base": 1000, "backoff_cap": 1000, "jitter": False}}

    async def main() -> tuple[Any, float]:
        async with world.engine(what, settings=settings) as engine:
            run = await engine.start(what)
            await asyncio.sleep(1)
            await engine.repair(run, "a", args={"n": 2})
            return await engine.wait(run), asyncio.get_running_loop().time()

    result, seconds = virtual_run(main)
    assert (result.success, result.steps["a"].output) == (True, {"v": 2})
    assert seconds < 10


@pytest.mark.parametrize(
    ("step", "changes", "code"),
    [
        ("get", {"args": {"x": 1}}, "STEP_ENDED"),
        ("nobody", {"args": {}}, "STEP_UNKNOWN"),
        ("pay", {}, "PLAN_INVALID"),
        ("pay", {"tool": "nowhere"}, "PLAN_INVALID"),
        ("pay", {"needs": ["tell"]}, "PLAN_INVALID"),
        ("pay", {"argz": {}}, "PLAN_INVALID"),
        ("pay", {"remove": ["two"]}, "PLAN_INVALID"),
        ("pay", {"remove": ["to"], "args": {"to": "bob"}}, "PLAN_INVALID"),
        ("pay", {"remove": ["to"], "args": {}, "tool": "tell"}, "PLAN_INVALID"),
        ("pay", {"remove": [{}]}, "VALUE_INVALID"),
    ],
)
def test_a_bad_repair_is_refused_and_the_old_plan_stays(step: str, changes: Any, code: str) -> None:
    """P5, H7: a finished step, a step nobody knows, nothing new, an unknown tool, a circle, an unknown key,
    arguments to remove that are not there or are given as well, and no names at all."""
    world = World(get=[{"body": {"value": 7}}])

    async def main() -> None:
        async with world.engine(WRONG_PATH, settings=PLAIN) as engine:
            run = (await engine.run(WRONG_PATH)).run_id
            with pytest.raises(RerailError) as refused:
                await engine.repair(run, step, **changes)
            assert refused.value.code == code
            assert (await engine.show(run)).status == "failed"

    virtual_run(main)
    assert world.order == ["get"]


# -- Outputs that were lost, gates in sight ----------------------------------------------------------------------------


def test_an_output_that_was_lost_can_be_supplied() -> None:
    """V8, H9, X7: `verify` found the effect, not the output; the next step says so, a person says what it was."""
    what = {
        "steps": [
            {"id": "pay", "tool": "pay"},
            {"id": "tell", "tool": "tell", "args": {"text": "${pay.id}"}},
        ]
    }
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    world = World(pay=[TimeoutError("t")]).option("pay", effect="once", verify=lambda: True)
    world.option("tell", schema=schema)

    async def main() -> tuple[Any, Any]:
        async with world.engine(what, settings=PLAIN) as engine:
            failed = await engine.run(what)
            await engine.resolve(failed.run_id, "pay", succeeded={"id": "p-7"})
            return failed, await engine.wait(failed.run_id)

    failed, result = virtual_run(main)
    message = failed.steps["tell"].error["message"]
    assert "its output was lost" in message and "skipped" not in message and "rerail resolve" in message
    assert result.success and result.steps["tell"].args == {"text": "p-7"}
    assert world.order == ["pay", "tell"]


def test_a_gate_shows_the_call_that_waits_and_what_it_is_made_from() -> None:
    """X7: nobody has to agree to a call they cannot see."""
    what = {
        "steps": [
            {"id": "sum", "tool": "sum", "fallback": {"value": {"total": 10}}},
            {"id": "pay", "tool": "pay", "args": {"amount": "${sum.total}"}, "confirm": "Really pay?"},
        ]
    }
    world = World(sum=[ToolError("down")])

    async def main() -> Any:
        async with world.engine(what, settings=PLAIN) as engine:
            return await engine.run(what)

    (waits,) = virtual_run(main).waiting_on
    assert (waits["step"], waits["tool"], waits["args"]) == ("pay", "pay", {"amount": 10})
    assert waits["made_from_degraded"] == {"sum": "fallback"}


# -- Answers for runs that stopped -------------------------------------------------------------------------------------


def test_a_doubt_of_a_cancelled_run_can_be_answered_without_starting_it() -> None:
    """X7, E3: the answer is recorded, the verdict is made anew, and nothing is called."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
    world = World(a=[Took(10**6)]).option("a", effect="once")

    async def main() -> tuple[Any, Any, list[Any]]:
        async with world.engine(what, settings=PLAIN) as engine:
            run = await engine.start(what)
            await asyncio.sleep(1)
            await engine.cancel(run)
            before = await engine.wait(run)
            await engine.resolve(run, "a", succeeded={"v": 1})
            return before, await engine.wait(run), await engine.events(run)

    before, after, events = virtual_run(main)
    assert before.steps["a"].status == "in_doubt"
    assert (after.status, after.steps["a"].status, after.steps["a"].output) == ("cancelled", "succeeded", {"v": 1})
    assert world.order == ["a"], "nothing was started by the answer"
    assert events[-1].type == "done"


def test_a_tool_error_in_between_does_not_stop_the_attendant() -> None:
    """T7: one run's trouble must not keep another run's wishes from being heard."""
    store = MemoryStore()
    world = World(a=[Took(5, ToolError("x"))])

    async def main() -> list[Any]:
        async with world.engine(ONE, store=store, settings=PLAIN) as engine:
            first, second = await engine.start(ONE), await engine.start(ONE)
            await store.post(first, b"\xff not JSON")
            await store.post(second, msgspec.json.encode(Pause(by="ann")))
            for run in (first, second):
                await engine._supervisor.serve(run, engine._live[run])
            assert await store.inbox(first) == []
            return [event for event in await engine.events(second) if event.type == "acted"]

    (acted,) = virtual_run(main)
    assert acted.action == "pause"


# -- What odd input and odd moments did --------------------------------------------------------------------------------


def test_odd_input_is_refused_and_the_run_goes_on() -> None:
    """P5, X7: whoever handed it in is told; nobody else is hurt."""
    world = World(a=[Took(5, {"v": 1})])

    async def main() -> Any:
        async with world.engine(ONE) as engine:
            run = await engine.start(ONE)
            await asyncio.sleep(1)
            for odd in ({"fallback": {"tool": ["a"]}}, {"fallback": {"tool": {}}}, {"args": 5}, {"needs": [[1]]}):
                with pytest.raises(RerailError):
                    await engine.add(run, [{"id": "z", "tool": "a", **odd}])
            return await engine.wait(run)

    assert virtual_run(main).success


def test_odd_input_for_a_run_that_nobody_drives_leaves_it_free() -> None:
    """X7, T7: whoever cannot read a wish does not keep the run."""
    what = {"steps": [{"id": "a", "tool": "a", "confirm": True}]}

    async def main() -> Any:
        store = MemoryStore()
        async with World().engine(what, store=store) as engine:
            run = (await engine.run(what)).run_id
            for odd in ({1: 2}, {"fallback": {"tool": []}}, {"retries": "many"}, {"needs": {"x": object}}):
                with pytest.raises(RerailError):
                    await engine.add(run, [{"id": "z", "tool": "a", **odd}])
            head = await store.head(run)
            assert head is not None and head.owner is None
            await engine.confirm(run)
            return await engine.wait(run)

    assert virtual_run(main).success


def test_a_stale_result_is_not_done_again_without_force() -> None:
    """R5: what shows as succeeded needs force, also where it could not be earned anew."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "send", "tool": "send", "needs": ["a"]}]}
    world = World(a=[{"v": 1}, ToolError("no"), {"v": 2}]).option("send", effect="once")

    async def main() -> str:
        async with world.engine(what, settings=PLAIN) as engine:
            run = (await engine.run(what)).run_id
            await engine.retry(run, ["a"], force=True)
            assert (await engine.show(run)).steps["send"].status == "succeeded"
            with pytest.raises(Refused) as refused:
                await engine.retry(run, ["send"])
            return refused.value.code

    assert virtual_run(main) == "STEP_SUCCEEDED"
    assert world.calls_of("send") == 1


def test_what_a_person_said_is_not_earned_anew_by_a_judge() -> None:
    """R3, V3: a step that was never called, of a tool that must not be called twice, was done by hand."""
    what = {"steps": [{"id": "send", "tool": "send", "confirm": True}]}
    mind = ScriptedMind(judge={"complete": False, "unsatisfactory": [{"step": "send", "evidence": "poor"}]})
    world = World().option("send", effect="once")

    async def main() -> Any:
        async with world.engine(what, settings={"evaluation": {"shortcut": False}}, model=mind) as engine:
            run = (await engine.run(what)).run_id
            await engine.resolve(run, "send", succeeded={"by": "post"})
            return await engine.wait(run)

    assert virtual_run(main).success
    assert world.calls_of("send") == 0


def test_a_reset_is_not_undone_by_a_refused_reconnect() -> None:
    """X4: the request was sent before the server died."""

    def dies(**_: Any) -> Exception:
        error = ConnectionRefusedError("reconnect")
        error.__context__ = ConnectionResetError("in the middle")
        return error

    world = World(a=[dies]).option("a", effect="once")
    assert world.run(ONE, settings=PLAIN).steps["a"].status == "in_doubt"
    assert world.calls_of("a") == 1


def test_a_deep_hint_does_not_stop_the_run() -> None:
    """X5, H2: whatever a tool suggests."""
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    result = World(a=[ToolError("bad", suggest={"n": deep})]).run(ONE)
    assert result.status == "failed"


def test_a_lot_of_log_is_kept() -> None:
    """T9, M3: nothing that a tool logs is dropped, however much comes at once."""

    async def a(ctx: rerail.Context) -> None:
        for number in range(400):
            ctx.log(f"line {number} " + "x" * 60)

    async def main() -> str:
        async with Engine("memory://", [a], clock=VirtualClock()) as engine:
            run = (await engine.run(ONE)).run_id
            return "\n".join(event.message for event in await engine.events(run) if event.type == "step_progress")

    logged = virtual_run(main)
    assert [f"line {number} " in logged for number in range(400)] == [True] * 400


def test_a_cancelled_run_whose_steps_are_done_can_end() -> None:
    """T5: cancelled → resumes; with nothing left to do it completes, and nothing is called again."""
    world = World(a=[Took(5, 1)])

    async def main() -> Any:
        async with world.engine() as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "a"}]}, run_id="r")
            await engine.pause(run)
            await engine.wait(run)
            await engine.cancel(run)
            assert (await engine.wait(run)).status == "cancelled"
            return await engine.retry(run)

    result = virtual_run(main)
    assert (result.status, result.success, result.steps["a"].attempts) == ("completed", True, 1)


@pytest.mark.parametrize(
    "asked", [{"clean": True, "stage": "one"}, {"clean": True, "steps": ["a"]}, {"stage": "one", "steps": ["a"]}]
)
def test_a_retry_names_one_thing(asked: dict[str, Any]) -> None:
    """R5, T5: steps, a stage or a clean start; several at once are refused, and nothing is called."""
    world = World(a=[ToolError("no", category="permanent_error")])

    async def main() -> None:
        async with world.engine() as engine:
            plan = {"steps": [{"id": "a", "tool": "a", "stage": "one"}]}
            assert (await engine.run(plan)).status == "failed"
            run = (await engine.list())[0].run_id
            with pytest.raises(Refused) as refusal:
                await engine.retry(run, **asked)
            assert refusal.value.code == "USAGE"

    virtual_run(main)
    assert world.calls_of("a") == 1


def test_a_cancelled_retry_says_that_it_was_cancelled() -> None:
    """V7, I1: what is kept from before makes it no success, in the record as in the view, and nothing degraded."""
    world = World(a=[1, Took(60, 2)])

    async def main() -> tuple[Any, Any]:
        async with world.engine() as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "a"}]}, run_id="r")
            await engine.wait(run)
            await engine.begin_retry(run, steps=["a"], force=True)
            await asyncio.sleep(1)
            await engine.cancel(run)
            result = await engine.wait(run)
            return result, (await engine.events(run))[-1].event

    result, done = virtual_run(main)
    assert (result.status, result.success, done.status, done.success) == ("cancelled", False, "cancelled", False)
    assert result.summary == done.summary == "1 of 1 step done before that, and kept"


def test_what_ran_without_a_step_runs_again_once_somebody_did_that_step() -> None:
    """R1, R3: a step skipped by its condition is done by hand; what needed its dependent `done` looks at it again."""
    plan = {
        "steps": [
            {"id": "check", "tool": "check"},
            {"id": "mend", "tool": "mend", "needs": [{"step": "check", "when": "failure"}]},
            {"id": "test", "tool": "test", "needs": ["mend"]},
            {"id": "tell", "tool": "tell", "needs": [{"step": "test", "when": "done"}], "args": {"found": "${test}"}},
        ]
    }
    world = World(check=["fine"], test=["tested"], tell=["nothing", "all"])

    async def main() -> Any:
        async with world.engine(plan) as engine:
            run = await engine.start(plan)
            first = await engine.wait(run)
            assert first.steps["tell"].output == "nothing" and first.steps["mend"].status == "skipped"
            await engine.resolve(run, "mend", succeeded="by hand")
            return await engine.wait(run)

    result = virtual_run(main)
    assert [call.tool for call in world.calls] == ["check", "tell", "test", "tell"]
    assert result.steps["tell"].output == "all" and result.success


def test_what_ran_without_a_step_looks_again_once_somebody_skips_what_held_it_up() -> None:
    """R3, X7: `c` only wants `b` to be over, and ran while `b` could not; a person does without `a`, and `b` runs."""
    world = World(a=[ToolError("no", category="permanent_error")], b=[{"n": 1}], c=[{"m": 1}, {"m": 2}], g=[{"k": 1}])
    plan = {"steps": [
        {"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]},
        {"id": "c", "tool": "c", "needs": [{"step": "b", "when": "done"}]},
        {"id": "g", "tool": "g", "confirm": True},
    ]}  # fmt: skip

    async def main() -> Any:
        async with world.engine(plan) as engine:
            run = await engine.start(plan)
            waiting = await engine.wait(run)
            assert (waiting.steps["b"].status, waiting.steps["c"].status) == ("skipped", "succeeded")
            await engine.skip(run, "a")
            await engine.confirm(run, "g")
            return await engine.wait(run)

    result = virtual_run(main)
    assert result.success and result.degraded
    assert sorted(world.order) == ["a", "b", "c", "c", "g"] and world.order.index("b") > world.order.index("c")
    assert result.steps["c"].output == {"m": 2}
