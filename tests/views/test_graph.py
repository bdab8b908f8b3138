"""A plan as a graph, holes that can be foreseen, events as bytes."""

from __future__ import annotations

import msgspec
import pytest

from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.codec import Damaged, NewerFormat, _decode_other, decode, encode
from rerail.kernel.fold import fold
from rerail.plan.model import Plan
from rerail.plan.step import Fallback, Need, Step, When
from rerail.plan.tool_spec import ToolSpec
from rerail.plan.warnings import hole_warnings
from rerail.values.schema import Schema
from rerail.views.graph import Graph

PLAN = Plan("o", (
    Step("a", "t", title="first"), Step("b", "t", {"x": "${a}"}), Step("c", "t"),
    Step("d", "u", needs=(Need("b"), Need("c", When.DONE))),
))  # fmt: skip


def test_steps_lie_behind_all_that_they_need() -> None:
    """P6: a step's layer is the longest way to it; references count as needs."""
    graph = Graph.of_plan(PLAN)
    assert [node.layer for node in graph.nodes] == [0, 1, 0, 2]
    assert graph.layers() == [[0, 2], [1], [3]] and graph.measures() == (3, 2)
    assert Graph([]).measures() == (0, 0) and Graph([]).layers() == []


def test_a_graph_as_data() -> None:
    """I4: nodes and edges, with what each step is in a run."""
    plain = Graph.of_plan(PLAN).to_dict()
    assert plain["nodes"][0] == {"id": "a", "tool": "t", "title": "first", "status": None, "layer": 0}
    assert plain["edges"][1:] == [
        {"from": "b", "to": "d", "when": "success"}, {"from": "c", "to": "d", "when": "done"},
    ]  # fmt: skip
    events = [ev.RunStarted(), ev.PlanAccepted(PLAN), ev.StepStarted("a", 1, "other")]
    state = fold("r", [ev.Record("r", n + 1, 1.0, event) for n, event in enumerate(events)])
    nodes = Graph.of_state(state).to_dict()["nodes"]
    assert [node["status"] for node in nodes] == ["running", "pending", "ready", "pending"]
    assert [node["tool"] for node in nodes] == ["other", "t", "t", "u"]
    assert Graph.of_state(state).to_dict()["edges"] == plain["edges"]


# -- Holes that can be foreseen ------------------------------------------------------------------------------------


def tool(**properties: object) -> dict[str, ToolSpec]:
    """A tool that takes these."""
    schema = {"type": "object", "properties": properties}
    return {"t": ToolSpec("t", schema=Schema(schema)), "make": ToolSpec("make")}


def warned(*steps: Step, **properties: object) -> list[tuple[str | None, str]]:
    """What may go wrong, by step."""
    tools = tool(**(properties or {"x": {"type": "string"}}))
    return [(fault.step, str(fault.message)) for fault in hole_warnings(Plan("o", steps), tools)]


MAYBE = Step("m", "make", critical=False)


def test_a_hole_that_an_argument_cannot_take_is_foreseen() -> None:
    """H9: alone, inside a text, in a list or deeper."""
    plan = Plan("o", (MAYBE, Step("b", "t", {"x": "${m}"})))
    assert [fault.code for fault in hole_warnings(plan, tool(x={"type": "string"}))] == ["HOLE_POSSIBLE"]
    [(step, words)] = warned(MAYBE, Step("b", "t", {"x": "${m}"}))
    assert step == "b" and "x" in words and "m" in words
    nested = {"type": "object", "properties": {"y": {"type": "array", "items": {"type": "string"}}}}
    [(_, deep)] = warned(MAYBE, Step("b", "t", {"x": {"y": ["k", "${m.z}"]}, "n": 1}), x=nested, n={"type": "integer"})
    assert "x.y.1" in deep
    assert warned(Step("k", "make"), MAYBE, Step("b", "t", {"x": "of ${k} and ${m}"}))
    both = warned(MAYBE, Step("b", "t", {"x": "${m}", "n": "no"}), x={"type": "string"}, n={"type": "integer"})
    assert len(both) == 1  # what else is wrong with the arguments is a fault of its own


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((Step("m", "make"), Step("b", "t", {"x": "${m}"})), "it matters, so it is never skipped"),
        ((Step("m", "make", critical=False, fallback=Fallback(value="s")), Step("b", "t", {"x": "${m}"})), "a value"),
        ((MAYBE, Step("b", "t", {"x": "plain"})), "no reference"),
        ((MAYBE, Step("k", "make"), Step("b", "t", {"x": "${k}"})), "of another step"),
        ((MAYBE, Step("b", "unknown", {"x": "${m}"})), "nobody knows the tool"),
        ((MAYBE, Step("b", "t", {"x": "${nobody}"})), "a fault of its own"),
        ((MAYBE, Step("k", "make"), Step("b", "t", {"z": "${m}", "x": "${k} ${k.y}"})), "it may be null"),
        ((MAYBE, Step("b", "t")), "no arguments"),
    ],
)
def test_what_no_hole_can_harm_is_no_warning(steps: tuple[Step, ...], why: str) -> None:
    """H9: nothing is said of what cannot happen."""
    assert warned(*steps) == [], why


def test_a_follow_up_is_looked_at_too() -> None:
    """T6, H9: and a fallback that is a call may fail."""
    maybe = Step("m", "make", critical=False, fallback=Fallback(tool="make"))
    after = Plan("then", (maybe, Step("b", "t", {"x": "${m}"})))
    assert [fault.step for fault in hole_warnings(Plan("o", (MAYBE,), after), tool(x={"type": "string"}))] == ["b"]


# -- Patterns that take for ever -----------------------------------------------------------------------------------


# -- Events as bytes -----------------------------------------------------------------------------------------------


def test_an_event_comes_back_as_it_was() -> None:
    """E5: sentences of the catalogue are texts like any other."""
    event = ev.Stopped("RUN_CANCELLED", tell("refuse.plan.steps_missing"))
    assert decode(encode(event)) == ev.Stopped("RUN_CANCELLED", str(event.reason))
    with pytest.raises(TypeError, match="type object is unsupported"):
        encode(ev.StepSucceeded("a", 1, object()))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"no json", Damaged), (b"[1]", Damaged), (b"\xff", Damaged), (b'{"type": "cancelled", "by": 3}', Damaged),
        (b'{"type": "from_the_future"}', NewerFormat), (b'{"type": "cancelled", "by": 3, "v": 2}', NewerFormat),
        (b'{"type": "cancelled", "by": 3, "v": "x"}', Damaged), (b"{}", Damaged),
    ],
)  # fmt: skip
def test_what_is_no_event_is_told_apart_from_what_is_newer(data: bytes, error: type[Exception]) -> None:
    """E5: a damaged history and one of a newer version are two things."""
    with pytest.raises(error):
        decode(data)


def test_an_older_format_is_made_the_newest_step_by_step() -> None:
    """E5: each step knows its own format alone."""
    steps = {1: lambda plain: {**plain, "by": str(plain["by"])}, 2: lambda plain: {**plain, "reason": "read"}}
    old = b'{"type": "cancelled", "by": 3}'
    assert _decode_other(old, ValueError(), 3, steps) == ev.Cancelled("3", "read")
    with pytest.raises(Damaged):
        _decode_other(old, ValueError(), 2, {1: lambda plain: plain})


def test_unknown_fields_are_passed_over() -> None:
    """E5: a field that a newer version added does no harm; a format that is noted is left out."""
    assert decode(b'{"type": "cancelled", "by": "ann", "new": 1}') == ev.Cancelled("ann")
    assert decode(msgspec.json.encode({"type": "cancelled", "by": "ann", "v": 1})) == ev.Cancelled("ann")
