"""Retry along the dependency chain: the named scenarios of section 13 that are about which steps run again."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.errors import ToolError
from rerail.testing.scripted import World
from rerail.testing.virtual_time import virtual_run

FAIL = ToolError("no such file", category="tool_error")
NO_RETRIES = {"reflection": {"max_step_retries": 0}}
ONE_ROUND = NO_RETRIES
NO_ROUNDS = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}


def plan(**needs: str) -> dict[str, Any]:
    """A plan whose steps call tools of their own name."""
    steps = [{"id": name.lstrip("s"), "tool": name, "needs": wanted.split()} for name, wanted in needs.items()]
    return {"objective": "a scenario", "steps": steps}


def begun(events: list[Any]) -> list[Any]:
    return [event for event in events if event.type == "retry_begin"]


def run(world: World, what: dict[str, Any], settings: dict[str, Any] = ONE_ROUND) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, settings=settings) as engine:
            result = await engine.run(what)
            return result, await engine.events(result.run_id)

    return virtual_run(main)


def test_chain() -> None:
    """R1, R2, X2: 1 fails, and again in its round: one real failure, two skips, their tools not called."""
    what = plan(s0="", s1="0", s2="1", s3="2")
    world = World(s1=[FAIL])
    result, events = run(world, what)
    (begin,) = begun(events)
    assert begin.roots == ("1",)
    assert begin.chain == ("1", "2", "3")
    assert begin.chain_size == 3
    assert world.order == ["s0", "s1", "s1"]
    assert [row["id"] for row in result.failed_steps] == ["1"]
    assert result.consequences == ("2", "3")
    assert result.steps["2"].code == result.steps["3"].code == "SKIP_UPSTREAM_FAILED"
    done = next(event for event in events if event.type == "retry_done")
    assert (done.exec["failed"], done.exec["skipped"], done.exec["attempted"]) == (1, 2, 1)
    skips = [event.step for event in events if event.type == "step_skipped"]
    assert skips == ["2", "3", "2", "3"]  # announced in the first round as in every other
    assert "1" in result.steps["2"].error["message"] and "no such file" in result.steps["2"].error["message"]
    assert "no such file" not in result.steps["3"].error["message"]  # chains do not nest


def test_recover() -> None:
    """R1, R2, X6: 0 fails, then succeeds: 0, 1, 2 in order, and 1 reads 0's new output."""
    what = {
        "steps": [
            {"id": "0", "tool": "s0"},
            {"id": "1", "tool": "s1", "args": {"text": "${0.text}"}},
            {"id": "2", "tool": "s2", "needs": ["1"]},
        ]
    }
    world = World(s0=[ConnectionError("network"), {"text": "new"}])
    result, events = run(world, what)
    assert world.order == ["s0", "s0", "s1", "s2"]
    assert dict(world.calls[2].args) == {"text": "new"}
    assert result.success and result.failed_steps == ()
    assert begun(events)[0].chain == ("0", "1", "2")


def test_partial() -> None:
    """R1, R2: A ok, B fails, C←A ok, D←B,C: the set is [B, D]; A and C are not called again."""
    what = plan(A="", B="", C="A", D="B C")
    world = World(B=[FAIL])
    result, events = run(world, what)
    assert begun(events)[0].chain == ("B", "D")
    assert (world.calls_of("A"), world.calls_of("B"), world.calls_of("C"), world.calls_of("D")) == (1, 2, 1, 0)
    assert result.steps["D"].status == "skipped"


def test_linear() -> None:
    """R1: 0→1→2→3, 1 fails: the set is [1, 2, 3]."""
    _, events = run(World(s1=[FAIL]), plan(s0="", s1="0", s2="1", s3="2"))
    assert begun(events)[0].chain == ("1", "2", "3")


@pytest.mark.parametrize(("failing", "chain"), [("s1", ("1", "3")), ("s0", ("0", "1", "2", "3", "4"))])
def test_branch(failing: str, chain: tuple[str, ...]) -> None:
    """R1: 0→1→3, 0→2→4: 1 fails → [1, 3]; 0 fails → all."""
    world = World({failing: [FAIL]})
    result, events = run(world, plan(s0="", s1="0", s2="0", s3="1", s4="2"))
    assert begun(events)[0].chain == chain
    assert not result.success


@pytest.mark.parametrize(("failing", "chain"), [("s1", ("1", "5")), ("s3", ("3", "5"))])
def test_join(failing: str, chain: tuple[str, ...]) -> None:
    """R1: 0→1, 2→3, 4, all →5: the set is the failed one and the join."""
    _, events = run(World({failing: [FAIL]}), plan(s0="", s1="0", s2="", s3="2", s4="", s5="1 3 4"))
    assert begun(events)[0].chain == chain


def test_join_one_mended_one_failed_again() -> None:
    """R2, X2: 1 is mended, 3 fails again: 5 is skipped."""
    world = World(s1=[FAIL, None], s3=[FAIL])
    result, _ = run(world, plan(s0="", s1="0", s2="", s3="2", s4="", s5="1 3 4"))
    assert result.steps["1"].status == "succeeded"
    assert result.steps["5"].code == "SKIP_UPSTREAM_FAILED"
    assert world.calls_of("s5") == 0


def ten(**script: Any) -> tuple[World, dict[str, Any]]:
    return World(script), plan(**{f"s{i}": "" for i in range(10)})


def test_mended() -> None:
    """V1, V2: 10 steps, 2 fail, both mended: success, nothing failed."""
    world, what = ten(s3=[FAIL, None], s7=[FAIL, None])
    result, _ = run(world, what)
    assert result.success and result.failed_steps == ()
    assert (result.exec["attempted"], result.exec["succeeded"], result.exec["success_rate"]) == (10, 10, 1.0)


def test_half_mended() -> None:
    """V1, V2, R4: 3 and 7 fail, 7 is mended: 10/9/0.9, and the round's own statistics 2/1."""
    world, what = ten(s3=[FAIL], s7=[FAIL, None])
    result, events = run(world, what)
    assert not result.success
    assert [row["id"] for row in result.failed_steps] == ["3"]
    assert (result.exec["attempted"], result.exec["succeeded"], result.exec["success_rate"]) == (10, 9, 0.9)
    done = next(event for event in events if event.type == "retry_done")
    assert (done.exec["attempted"], done.exec["succeeded"]) == (2, 1)
    assert (done.round, begun(events)[0].round) == (1, 1)


def test_order_of_events_in_a_retried_run() -> None:
    """R4, X5: first round, evaluation, retry_begin … retry_done, evaluation, done; a person's retry the same again."""
    what = plan(s0="", s1="0")
    world = World(s1=[FAIL])

    async def main() -> list[Any]:
        async with world.engine(what, settings=ONE_ROUND) as engine:
            result = await engine.run(what)
            await engine.retry(result.run_id)
            return await engine.events(result.run_id)

    types = [event.type for event in virtual_run(main)]
    chapters = [name for name in types if name in ("evaluation", "retry_begin", "retry_done", "done")]
    first = ["evaluation", "retry_begin", "retry_done", "evaluation", "done"]
    assert chapters == [*first, "retry_begin", "retry_done", "evaluation", "done"]
    assert types[-1] == "done"


def test_early_cutoff() -> None:
    """R3: a step of the set that had succeeded runs again only when an input really changed."""
    what = {
        "steps": [
            {"id": "a", "tool": "a"},
            {"id": "b", "tool": "b", "needs": ["a"]},
            {"id": "c", "tool": "c", "needs": ["b"]},
        ]
    }

    async def main(outputs: list[Any]) -> tuple[list[str], Any]:
        world = World(a=outputs, b=[{"x": 1}], c=[{"y": 1}])
        async with world.engine(what) as engine:
            result = await engine.run(what)
            before = len(world.calls)
            again = await engine.retry(result.run_id, steps=["a"], force=True)
            return world.order[before:], again

    order, result = virtual_run(lambda: main([{"v": 1}, {"v": 1}]))
    assert order == ["a"] and result.success
    order, result = virtual_run(lambda: main([{"v": 1}, {"v": 2}]))
    assert order == ["a", "b"] and result.success  # b gave the same again, so c stands


def test_stale_when_upstream_fails_again() -> None:
    """R3: a succeeded step whose upstream fails again stays succeeded, marked stale; unrun ones are skipped."""
    what = plan(a="", b="a", c="b")
    world = World(a=[{"v": 1}, FAIL], c=[FAIL])

    async def main() -> Any:
        async with world.engine(what, settings=NO_ROUNDS) as engine:
            first = await engine.run(what)
            return await engine.retry(first.run_id, steps=["a"], force=True)

    result = virtual_run(main)
    assert result.steps["b"].status == "succeeded" and result.steps["b"].stale
    assert result.steps["c"].code == "SKIP_UPSTREAM_FAILED"
    assert not result.success


def test_once_is_not_run_again_by_anything_automatic() -> None:
    """R3: a succeeded `once` step in an automatic round is kept, stale, and the verdict degraded."""
    what = {
        "steps": [
            {"id": "a", "tool": "a", "critical": True},
            {"id": "mail", "tool": "mail", "needs": [{"step": "a", "when": "done"}]},
        ]
    }
    world = World(a=[FAIL, {"v": 2}]).option("mail", effect="once")
    result, _ = run(world, what, {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 1}})
    assert world.calls_of("mail") == 1  # `done` on a failed step waits until no automatic round will retry it
    assert result.success
