"""The scripted model: replies in order, per role, with failures and waits (SPEC M1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rerail.ports import Model, ModelFailed, Prompt, Reply
from rerail.testing import ScriptedModel, Stall, virtual_run


def prompt(role: str = "plan", user: str = "?") -> Prompt:
    return Prompt(role, "system", user, {"type": "object"})


def play(model: Model, *prompts: Prompt) -> list[Any]:
    """Replies, or what was raised, and when; on virtual time."""

    async def main() -> list[Any]:
        seen: list[Any] = []
        for one in prompts:
            try:
                seen.append(await model.complete(one))
            except (ModelFailed, AssertionError, ValueError) as error:
                seen.append(error)
        return [*seen, asyncio.get_running_loop().time()]

    return virtual_run(main)


def test_replies_come_in_order_whatever_they_are() -> None:
    """M1: mappings, texts, garbage."""
    model = ScriptedModel([{"a": 1}, "text", None, [1, object]], model="m", usage=(3, 4), cost=0.5)
    *replies, _ = play(model, *[prompt(user=str(n)) for n in range(4)])
    assert [reply.answer for reply in replies] == [{"a": 1}, "text", None, [1, object]]
    assert replies[0] == Reply({"a": 1}, "m", 3, 4, 0.5)
    assert [asked.user for asked in model.asked] == ["0", "1", "2", "3"]
    model.assert_done()


def test_a_reply_may_be_given_whole() -> None:
    """M1: with its own tokens and cost."""
    reply = Reply("x", "other", 1, 2, 3.0)
    assert play(ScriptedModel([reply]), prompt())[0] is reply


def test_roles_have_their_own_script() -> None:
    """M1: those that have none share the common one."""
    model = ScriptedModel(["common"], plan=["p"], judge=["j"])
    *replies, _ = play(model, prompt("judge"), prompt("repair"), prompt("plan"))
    assert [reply.answer for reply in replies] == ["j", "common", "p"]
    assert [asked.role for asked in model.asked_as("plan")] == ["plan"]
    model.assert_done()


def test_failures_are_raised() -> None:
    """M1: one can stand in the script twice."""
    down = ModelFailed("down", transient=True, retry_after=5)
    first, second, odd, _ = play(ScriptedModel([down, down, ValueError("odd")]), prompt(), prompt(), prompt())
    assert first is down and second is down
    assert isinstance(odd, ValueError)


def test_a_stall_takes_time() -> None:
    """M1: and then fails, or answers."""
    model = ScriptedModel([Stall(90), Stall(10, {"late": True}), Stall(1, ValueError("odd"))])
    failed, reply, odd, now = play(model, prompt(), prompt(), prompt())
    assert isinstance(failed, ModelFailed) and failed.transient and "90 s" in str(failed)
    assert reply.answer == {"late": True}
    assert str(odd) == "odd"
    assert now == pytest.approx(101)


def test_a_function_answers_from_the_prompt() -> None:
    """M1: for scripts that depend on what was asked."""
    (reply, _) = play(ScriptedModel([lambda asked: {"heard": asked.user}]), prompt(user="hello"))
    assert reply.answer == {"heard": "hello"}


def test_the_script_is_not_changed_by_who_reads_it() -> None:
    """M1: a caller may do what it likes with an answer."""
    answer = {"a": [1]}
    (reply, _) = play(ScriptedModel([answer]), prompt())
    reply.answer["a"].append(2)
    assert answer == {"a": [1]}


def test_a_script_that_runs_out_says_so_twice() -> None:
    """M1: at once, and in assert_done, for whoever swallowed the first."""
    model = ScriptedModel(plan=[{}])
    _, beyond, _ = play(model, prompt(), prompt())
    assert str(beyond) == "the script has no reply left for question 2 (role 'plan')"
    with pytest.raises(AssertionError, match=r"beyond the script.*question 2"):
        model.assert_done()


def test_replies_that_were_not_used_are_noticed() -> None:
    """M1: per role."""
    with pytest.raises(AssertionError, match=r"\{'any role': 1, 'judge': 2\}"):
        ScriptedModel([{}], judge=[{}, {}]).assert_done()
