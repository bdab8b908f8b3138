"""A person's word about a doubt: about which attempt it is, what a caller may say, and what is refused (E3, X7, I7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine.test_effects import QUICK, of

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import Refused
from rerail.kernel import commands as cmd
from rerail.kernel import events as ev
from rerail.testing.scripted import World
from rerail.testing.virtual_time import VirtualClock, virtual_run

PAY = {"steps": [{"id": "a", "tool": "pay"}]}


def paying() -> tuple[Any, list[int]]:
    """A tool that has its effect and loses every answer."""
    paid: list[int] = []

    @rerail.tool(effect="once")
    async def pay() -> None:
        paid.append(1)
        await asyncio.sleep(1)
        raise RuntimeError("the receipt is unreadable")

    return pay, paid


@pytest.mark.parametrize("other", ["rerun", "failed"])
def test_e3_an_answer_is_about_the_attempt_that_was_seen(other: str) -> None:
    """E3: of two people who look at one doubt, the second is told that it is another one by now."""
    pay, paid = paying()

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run(PAY)).run_id
            seen = (await engine.show(run)).waiting_on[0]["attempt"]
            await engine.resolve(run, "a", rerun=True, attempt=seen, by="ann")
            await asyncio.sleep(0.5)
            for late in (False, True):  # while the call is under way, and once it is in doubt again
                with pytest.raises(Refused, match="attempt 1 of step 'a'") as refused:
                    await engine.resolve(run, "a", **{other: True}, attempt=seen, by="bob")
                assert (refused.value.code, "--attempt 2" in refused.value.hint) == ("STEP_NOT_WAITING", True)
                if not late:
                    await engine.wait(run)
            with pytest.raises(Refused):
                await engine.resolve(run, "a", succeeded={"id": 1}, attempt=seen)
            assert (await engine.show(run)).in_doubt == ("a",) and len(paid) == 2
            await engine.resolve(run, "a", failed=True, attempt=2)
            assert (await engine.wait(run)).status == "failed"

    virtual_run(main)


def test_e3_an_answer_that_names_no_attempt_is_about_the_one_that_its_sender_reads() -> None:
    """E3: two answers on their way at once are not taken for answers to two doubts."""
    pay, paid = paying()

    async def main() -> None:
        store = MemoryStore()
        async with Engine(store, [pay], QUICK) as one, Engine(store, [pay], QUICK) as other:
            run = (await one.run(PAY)).run_id
            words = [one.resolve(run, "a", rerun=True), other.resolve(run, "a", rerun=True)]
            answers = await asyncio.gather(*words, return_exceptions=True)
            await one.wait(run)
            assert sum(isinstance(answer, Refused) for answer in answers) == 1 and len(paid) == 2
            events = [record.event for record in await one.events(run)]
            assert len(of(events, ev.Acted)) == 1

    asyncio.run(main())


ODD: dict[str, Any] = {
    "nothing said": (lambda engine, run: engine.resolve(run, "a"), "USAGE"),
    "two things said": (lambda engine, run: engine.resolve(run, "a", failed=True, rerun=True), "USAGE"),
    "no value": (lambda engine, run: engine.do(run, cmd.Resolve(step="a", outcome="succeeded")), "USAGE"),
    "no name": (lambda engine, run: engine.resolve(run, None, failed=True), "VALUE_INVALID"),
    "no run": (lambda engine, run: engine.resolve(None, "a", failed=True), "RUN_UNKNOWN"),
    "a number for a run": (lambda engine, run: engine.show(5), "RUN_UNKNOWN"),
    "a number for a person": (lambda engine, run: engine.skip(run, "a", by=5), "VALUE_INVALID"),
    "a number for a reason": (lambda engine, run: engine.cancel(run, reason=5), "VALUE_INVALID"),
    "a text for an attempt": (lambda engine, run: engine.resolve(run, "a", failed=True, attempt="1"), "VALUE_INVALID"),
    "a list for arguments": (lambda engine, run: engine.confirm(run, "a", args=["x"]), "VALUE_INVALID"),
    "a text for arguments": (lambda engine, run: engine.confirm(run, "a", args="x"), "VALUE_INVALID"),
    "a text for a file": (lambda engine, run: engine.confirm(run, "a", edit={"f": "abcd"}), "VALUE_INVALID"),
    "an object for a value": (lambda engine, run: engine.resolve(run, "a", succeeded=object()), "VALUE_INVALID"),
}


@pytest.mark.parametrize("name", ODD)
def test_x7_what_cannot_be_a_command_is_refused_with_a_code(name: str) -> None:
    """X7, I7: no bare TypeError; the same code in every interface."""
    pay, _ = paying()
    word, code = ODD[name]

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run(PAY)).run_id
            with pytest.raises(Refused) as refused:
                await word(engine, run)
            assert refused.value.code == code
            await engine.resolve(run, "a", succeeded=None, by="x" * 500)
            assert (await engine.wait(run)).steps["a"].status == "succeeded"

    virtual_run(main)


# -- Hints that can be typed --------------------------------------------------------------------------------------


def told(refused: pytest.ExceptionInfo[Refused]) -> str:
    return str(refused.value.hint)


@pytest.mark.parametrize("step", [{"fallback": {"value": 5}}, {"critical": False}, {"on_doubt": "fail"}], ids=repr)
def test_e3_at_rest_an_open_doubt_is_what_a_refusal_names(step: dict[str, Any]) -> None:
    """E3, T4: no retry, which would be refused, or would leave the doubt as it is."""
    pay, _ = paying()

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run({"steps": [{"id": "a", "tool": "pay", **step}]})).run_id
            for refuse in (engine.resume, engine.pause, engine.retry):
                with pytest.raises(Refused) as refused:
                    await refuse(run)
                assert f"rerail resolve {run} a --succeeded" in told(refused)
            await engine.resolve(run, "a", failed=True, by="ann")
            await engine.wait(run)
            with pytest.raises(Refused) as refused:
                await engine.pause(run)
            assert f"rerail retry {run}" in told(refused)

    virtual_run(main)


def test_e3_after_a_word_that_it_did_not_happen_the_hint_is_a_retry_that_is_taken() -> None:
    """E3, T4: the step failed for good, so that only force calls it again."""
    pay, paid = paying()

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run(PAY)).run_id
            await engine.resolve(run, "a", failed=True)
            await engine.wait(run)
            with pytest.raises(Refused) as refused:
                await engine.resolve(run, "a", rerun=True)
            assert f"rerail retry {run} --step a --force" in told(refused)
            await engine.retry(run, steps=["a"], force=True)
            assert len(paid) == 2

    virtual_run(main)


def test_e3_a_step_that_failed_in_doubt_is_told_by_the_persons_word() -> None:
    """E3, V7: what is known by now is not told as unknown."""
    pay, _ = paying()

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            result = await engine.run({"steps": [{"id": "a", "tool": "pay", "on_doubt": "fail"}]})
            assert result.steps["a"].code == "IN_DOUBT"
            await engine.resolve(result.run_id, "a", failed=True, by="ann")
            result = await engine.wait(result.run_id)
            assert result.steps["a"].code == "RESOLVED_FAILED" and "unknown" not in result.summary
            assert "ann declared" in result.steps["a"].error["message"]

    virtual_run(main)


def test_e3_a_retry_during_a_look_points_to_the_look() -> None:
    """E3, V8: a process that is at work cannot be resumed."""

    @rerail.tool(effect="once", settle=50, verify=lambda: False)
    async def pay() -> None:
        raise RuntimeError

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = await engine.start(PAY)
            await asyncio.sleep(5)
            with pytest.raises(Refused) as refused:
                await engine.retry(run, steps=["a"])
            assert f"rerail watch {run}" in told(refused)

    virtual_run(main)


def test_an_answer_that_was_used_is_not_corrected_whatever_the_clock_says() -> None:
    """X7: what counts is what the dependent was called with; a clock that is set back makes no use undone."""
    clock = VirtualClock()
    world = World(a=[RuntimeError("after the effect")]).option("a", effect="once")
    plan = {"steps": [{"id": "a", "tool": "a"}, {"id": "s", "tool": "s", "args": {"x": "${a}"}, "confirm": True}]}

    async def main() -> str:
        async with world.engine(plan, clock=clock) as engine:
            run = await engine.start(plan, run_id="r")
            await engine.wait(run)
            await engine.resolve(run, "a", succeeded=1)
            await engine.wait(run)
            clock.jump(-5000)
            await engine.confirm(run, "s")
            await engine.wait(run)
            with pytest.raises(Refused) as refused:
                await engine.resolve(run, "a", succeeded=2)
            return refused.value.code

    assert virtual_run(main) == "STEP_ENDED" and world.calls_of("s") == 1
