"""JSON values: what can be written down, and whether one holds another (E1, V8)."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.plan.model import Plan
from rerail.plan.step import Need, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.plan.warnings import hole_warnings
from rerail.values.json_values import NotJson, holds, pack, plain_text, unpack
from rerail.values.schema import Schema
from rerail.views.graph import Graph


@pytest.mark.parametrize("value", [None, {"a": None, "b": 1.5}, [None, 0.0, -2.5e300], "null", {"b": 1, "a": 2}])
def test_what_is_json_is_packed_and_comes_back(value: Any) -> None:
    """E1: numbers beside a null, too; the order of keys makes no other content."""
    assert unpack(pack(value).data) == value
    assert pack({"b": 1, "a": 2}).digest == pack({"a": 2, "b": 1}).digest != pack({"a": 2}).digest


class Silent:
    """No JSON, and an encoder that has nothing to say about it."""


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": (1, -float("inf"))}, Silent(), {1j: 2}])
def test_what_is_no_json_is_refused_with_a_reason(value: Any) -> None:
    """E1: nobody would notice a null in place of a number."""
    with pytest.raises(NotJson) as raised:
        pack(value)
    assert str(raised.value)


def test_an_error_without_words_is_named_by_its_kind() -> None:
    """E1: a message is never empty."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotJson) as raised:
        pack(deep)
    assert str(raised.value)


@pytest.mark.parametrize(
    ("seen", "expect", "held"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True), ({"a": 1}, {"a": 2}, False), ({"a": 1}, {"b": 1}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True), ({"a": {"b": 1}}, {"a": {"b": 2}}, False), ([], {}, False),
        ([1, 2], [1, 2], True), ([1, 2], [1], False), (1, True, False), (True, 1, False), (1, 1.0, True),
    ],
)  # fmt: skip
def test_whether_a_value_holds_another(seen: Any, expect: Any, held: bool) -> None:
    """V8: mappings by their members, everything else as it is; true is no number."""
    assert holds(seen, expect) is held


def test_a_text_can_always_be_written_down() -> None:
    """X3: half a character becomes a question mark, and what is too long is cut."""
    assert plain_text("a\ud800b", 10) == "a?b" and plain_text("äöü", 2) == "äö"


def test_a_record_is_what_it_holds() -> None:
    """I1: flat, with every field; and no other thing is like it."""
    record = Record("r", 3, 1.5, ev.Cancelled("ann", "late"))
    assert record.to_dict() == {
        "seq": 3, "run": "r", "at": 1.5, "type": "cancelled", "by": "ann", "reason": "late", "wish": "", "number": 0,
        "to": "", "after": 0, "via": "", "proof": "",
    }  # fmt: skip
    assert record == Record("r", 3, 1.5, ev.Cancelled("ann", "late")) and record != ev.Cancelled("ann", "late")
    others = [("x", 3, 1.5), ("r", 4, 1.5), ("r", 3, 2.5)]
    assert all(record != Record(*other, ev.Cancelled("ann", "late")) for other in others)
    assert record != Record("r", 3, 1.5, ev.Cancelled("bob", "late"))


def test_layers_do_not_depend_on_the_order_of_the_plan() -> None:
    """I4: a step stands one layer behind the last of its needs, also if it is written before them."""
    steps = [Step(str(n), "t", needs=(Need(str(n + 1)),)) for n in range(5)]
    graph = Graph.of_plan(Plan("", (*steps, Step("5", "t"))))
    assert [node.layer for node in graph.nodes] == [5, 4, 3, 2, 1, 0]
    assert graph.layers() == [[5], [4], [3], [2], [1], [0]]


def test_a_hole_is_told_of_by_what_stands_beside_it() -> None:
    """H9: whether null would be accepted may depend on the other arguments."""
    schema = Schema({
        "if": {"properties": {"n": {"const": 5}}}, "then": {"properties": {"x": {"type": "string"}}},
    })  # fmt: skip
    tools = {"t": ToolSpec("t", schema=schema)}
    for n, codes in ((5, ["HOLE_POSSIBLE"]), (6, [])):
        plan = Plan("", (Step("o", "t", critical=False), Step("a", "t", {"x": "${o}", "n": n})))
        assert [fault.code for fault in hole_warnings(plan, tools)] == codes


@pytest.mark.parametrize("value", [{1: 2}, {"a": [{(1, 2): 3}]}])
def test_keys_that_are_not_texts_are_told_in_our_words(value: object) -> None:
    """P4: not in those of the encoder, which speak to its own caller."""
    with pytest.raises(NotJson, match=r"^a dict has keys that are not texts$"):
        pack(value)
