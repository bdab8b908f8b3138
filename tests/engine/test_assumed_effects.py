"""Effects that were assumed: recorded with the run, said once, decided by the settings (E3)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import rerail
from rerail.adapters.executors.carrying import carried, unpacked
from rerail.api import Engine
from rerail.factory import make_tools
from rerail.plan.step import Effect

PLAN: dict[str, Any] = {"steps": [{"id": "a", "tool": "sync"}, {"id": "b", "tool": "charge", "needs": ["a"]}]}


def sync() -> int:
    return 1


@rerail.tool
def charge() -> int:
    """Take the money."""
    return 2


@rerail.tool(effect="repeatable")
def stated() -> int:
    return 3


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.name == "rerail" and record.levelname == "WARNING"
    ]


def test_e3_a_function_declares_its_effect_or_it_is_assumed() -> None:
    """E3: functions alone; shell, HTTP and LangChain tools have theirs by rule."""
    found = {
        "plain": rerail.tool(sync).spec, "decorated": charge.spec, "stated": stated.spec,
        "shell": rerail.shell("ls", ["ls"]).spec, "http": rerail.http("fetch", "GET", "http://localhost/x").spec,
    }  # fmt: skip
    assert {name: spec.declared for name, spec in found.items()} == {
        "plain": False, "decorated": False, "stated": True, "shell": True, "http": True,
    }  # fmt: skip
    assert charge.spec.effect is stated.spec.effect is Effect.REPEATABLE
    same = rerail.tool(charge.fn, effect="repeatable").spec
    assert same.fingerprint == charge.spec.fingerprint, "to write down what was assumed makes no other tool"


def test_e3_one_line_of_python_hears_of_those_that_act(caplog: pytest.LogCaptureFixture) -> None:
    """E3: once for a run, through the log; the result names all of them, and so does its JSON."""
    with caplog.at_level(logging.WARNING, "rerail"):
        result = rerail.run(PLAN, [sync, charge])
    [said] = logged(caplog)
    assert "charge. Declare it" in said and "sync" not in said
    assert result.assumed == ("charge", "sync") and result.to_dict()["assumed"] == ["charge", "sync"]


@pytest.mark.parametrize(
    ("plan", "tools"),
    [
        ({"steps": [{"id": "a", "tool": "sync"}]}, [sync, charge]),
        ({"steps": [{"id": "a", "tool": "stated"}]}, [stated, charge]),
        ({"steps": [{"id": "a", "tool": "charge", "effect": "once"}]}, [charge]),
    ],
    ids=["acts not", "declared", "declared by the step"],
)
def test_e3_nothing_is_logged_without_need(plan: Any, tools: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """E3: neither for a tool that the plan does not use, nor for one that only computes."""
    with caplog.at_level(logging.WARNING, "rerail"):
        assert rerail.run(plan, tools).success
    assert logged(caplog) == []


@pytest.mark.anyio
async def test_e3_what_listens_hears_all_of_them_once() -> None:
    """E3: a listener is told at the start; not again by a retry, nor for a follow-up with the same tools."""
    heard: list[str] = []
    plan = {**PLAN, "follow_up": {"steps": [{"id": "x", "tool": "charge"}, {"id": "y", "tool": "stated"}]}}
    async with Engine("memory://", [sync, charge, stated], on_notice=heard.append) as engine:
        result = await engine.run(plan)
        [below] = await engine.list(parent=result.run_id)
        assert (await engine.wait(below.run_id)).assumed == ("charge",)
        await engine.retry(result.run_id, steps=["a"], force=True)
        assert (await engine.show(result.run_id)).assumed == ("charge", "sync")
    assert len(heard) == 1 and "charge, sync." in heard[0]


@pytest.mark.parametrize("effect", ["once", "repeatable", "read"])
def test_e3_a_project_decides_for_functions_that_declare_none(effect: str) -> None:
    """E3: nothing is assumed then; what declares its effect, and other kinds of tools, keep theirs."""
    settings = rerail.Settings.load({"tools": {"default_effect": effect, "require_effect": True}})
    given = [sync, charge, stated, rerail.shell("ls", ["ls"])]
    found = {name: tool.spec for name, tool in make_tools([*given, charge], settings).items()}  # one may come twice
    assert {name: str(spec.effect) for name, spec in found.items()} == {
        "sync": effect, "charge": effect, "stated": "repeatable", "ls": "once",
    }  # fmt: skip
    assert all(spec.declared and not spec.must_declare for spec in found.values())
    assert found["charge"].fingerprint == rerail.tool(charge.fn, effect=effect).spec.fingerprint
    assert charge.spec.effect is Effect.REPEATABLE and not charge.spec.declared, "the function itself is as it was"


def test_e3_a_tool_under_settings_is_called_as_before() -> None:
    """E3, I6: here, and where it is carried to."""

    @rerail.tool
    def here(n: int, ctx: rerail.Context) -> list[Any]:
        return [n, ctx.step]

    settings = {"tools": {"default_effect": "once"}}
    result = rerail.run({"steps": [{"id": "a", "tool": "here", "args": {"n": 3}}]}, [here], settings=settings)
    assert result.steps["a"].output == [3, "a"] and result.assumed == ()
    made = make_tools([charge], rerail.Settings.load(settings))["charge"]
    assert unpacked(carried(made)).spec.effect is Effect.ONCE


@pytest.mark.anyio
async def test_e3_a_required_effect_refuses_start_and_changes() -> None:
    """E3, P5: before anything runs; steps that are added are held to it as well."""
    settings = {"tools": {"require_effect": True}}
    async with Engine("memory://", [sync, charge, stated], settings) as engine:
        with pytest.raises(rerail.PlanError) as refused:
            await engine.start(PLAN)
        assert [(fault.code, fault.step) for fault in refused.value.faults] == [
            ("EFFECT_UNDECLARED", "a"), ("EFFECT_UNDECLARED", "b"),
        ]  # fmt: skip
        assert await engine.list() == []
        run = await engine.start({"steps": [{"id": "s", "tool": "stated", "confirm": True}]})
        await engine.wait(run)
        with pytest.raises(rerail.PlanError, match="'charge' is not declared"):
            await engine.add(run, [{"id": "b", "tool": "charge"}])
        await engine.add(run, [{"id": "b", "tool": "charge", "effect": "once"}])
