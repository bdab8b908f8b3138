"""What tools, looks and probes are handed is theirs to change: the run, its history and the next call keep theirs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.test_effects import QUICK, of, run

import rerail
from rerail.kernel import events as ev

ORDER = {"order": {"price": 3, "n": 2, "notes": ["draft"]}}


def spoil(value: Any) -> None:
    """Change a value at every depth."""
    for inner in [*value.values()] if isinstance(value, dict) else [*value]:
        if isinstance(inner, dict | list):
            spoil(inner)
    value.clear()


def test_v8_a_look_is_asked_for_the_call_that_was_recorded_whatever_its_tool_did_to_the_arguments() -> None:
    """V8, E2: an exact look finds the effect of a tool that prepares its receipt in its own argument."""
    placed: list[Any] = []

    def seen(args: Any) -> bool:
        return args["order"] in placed

    @rerail.tool(effect="once", verify=seen, settle=0)
    def place(order: dict[str, Any]) -> Any:
        placed.append({**order, "notes": [*order["notes"]]})
        order["total"] = order.pop("price") * order["n"]
        order["notes"].clear()
        return {"placed": True}

    result, _ = run([place], args=ORDER)
    assert (result.status, placed) == ("completed", [ORDER["order"]])


@pytest.mark.parametrize("source", ["constant", "reference", "large"])
def test_e2_a_look_and_a_probe_that_change_their_values_change_no_later_call(source: str) -> None:
    """E2, V8: the same arguments, the same key and the same baseline for each attempt and each of its looks."""
    order = {**ORDER["order"], "notes": ["draft" * (1000 if source == "large" else 1)]}
    called, looked, probed, keys = list[Any](), list[Any](), list[Any](), set[str]()

    def verify(args: Any, before: Any) -> bool:
        looked.append((repr(args), repr(before)))
        spoil(args), spoil(before)
        return False

    def probe(args: Any) -> Any:
        probed.append(repr(args))
        spoil(args)
        return [["old"]]

    @rerail.tool(effect="once", verify=verify, probe=probe, settle=0)
    def place(order: dict[str, Any], ctx: rerail.Context) -> None:
        called.append(repr(order))
        keys.add(ctx.key)
        spoil(order)
        raise RuntimeError("lost")

    @rerail.tool(effect="read")
    def made() -> Any:
        return order

    plan = {"steps": [
        {"id": "m", "tool": "made"},
        {"id": "a", "tool": "place", "retries": 2, "args": {"order": order if source == "constant" else "${m}"}},
    ]}  # fmt: skip
    result, events = run([place, made], plan, {**QUICK, "retry": {"backoff_base": 0.0, "max_retry_rounds": 0}})
    assert (len(called), len(set(called)), len(keys)) == (3, 1, 1)
    assert len(looked) >= 3 and len(set(looked)) == len(set(probed)) == 1 and "old" in looked[0][1]
    assert result.steps["a"].args["order"] == order if source != "large" else True
    kept = [event.args for event in of(events, ev.StepStarted) if event.step == "a" and event.args is not None]
    assert all(args == {"order": order} for args in kept)


def test_v8_a_look_that_changes_the_output_changes_no_output() -> None:
    """V8: the step's output is what its tool answered."""

    @rerail.tool(effect="once", verify=lambda output: spoil(output) or True)
    def place() -> Any:
        return {"id": 7, "lines": [1, 2]}

    result, events = run([place])
    assert result.steps["a"].output == {"id": 7, "lines": [1, 2]} == of(events, ev.StepSucceeded)[0].output


def test_v8_the_look_of_a_step_is_asked_the_same_each_time() -> None:
    """V8: its arguments are the plan's, from look to look."""
    asked: list[Any] = []

    @rerail.tool(effect="read")
    def find(query: dict[str, Any]) -> bool:
        asked.append(dict(query))
        spoil(query)
        return False

    @rerail.tool(effect="once")
    def pay() -> None:
        raise RuntimeError("lost")

    run([pay, find], settle=1, retries=1, verify={"tool": "find", "args": {"query": {"id": 1}}})
    assert len(asked) > 2 and all(query == {"id": 1} for query in asked)


def test_x10_a_look_that_changes_its_arguments_opens_no_gate_again() -> None:
    """X10: the call that was agreed to is the call that is made again."""
    paid: list[str] = []

    @rerail.tool(effect="once", verify=lambda args: bool(spoil(args)), settle=0)
    def pay(to: str) -> None:
        paid.append(to)
        raise RuntimeError("lost")

    async def act(engine: rerail.Engine, run_id: str) -> None:
        await engine.confirm(run_id, "a")

    result, events = run([pay], act=act, args={"to": "ann"}, confirm=True, retries=1)
    assert (paid[:2], result.status, len(of(events, ev.GateOpened))) == (["ann", "ann"], "failed", 1)
