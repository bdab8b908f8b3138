"""Plans: every fault found at once, by one check, in time that grows with the plan and not faster (P1, P2, P5, P6)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rerail
from rerail.errors import PlanError
from rerail.plan.model import Plan, cycles
from rerail.plan.step import (
    Check,
    Effect,
    Fallback,
    Fault,
    Need,
    Produced,
    Step,
    Trust,
    Verify,
    When,
    definition,
    full_needs,
    names_of,
    path_fault,
)
from rerail.plan.tool_spec import ToolSpec
from rerail.values.schema import Schema

UPLOAD = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["to"],
    "additionalProperties": False,
}
TOOLS = {
    "upload": ToolSpec("upload", schema=Schema(UPLOAD)),
    "send": ToolSpec("send"),
    "look": ToolSpec("look"),
}


def faults(steps: Any, tools: Any = TOOLS, **more: Any) -> list[Fault]:
    return Plan.load({"steps": steps, **more}).check(tools)


def codes(found: list[Fault]) -> list[str]:
    return [fault.code for fault in found]


def only(found: list[Fault]) -> Fault:
    assert len(found) == 1, found
    return found[0]


# -- P1: what a step may say --------------------------------------------------------------------------------------


def test_a_whole_step_is_read() -> None:
    """P1: every key of a step, from plain data."""
    plan = Plan.load({
        "objective": "all of it",
        "steps": [
            {
                "id": "a", "tool": "send", "args": {"x": [1, {"y": None}]}, "needs": ["b"], "title": "Send it",
                "stage": "sending", "critical": False, "timeout": 7, "retries": 2, "effect": "once",
                "alternatives": ["upload"], "fallback": {"tool": "look", "args": {"n": 1}},
                "produces": ["out.json", {"file": "a.txt"}], "confirm": "Really?",
                "check": {"schema": {"type": "object"}, "non_empty": True, "keys": ["id"]},
                "verify": {"tool": "look", "args": {"id": 1}, "expect": {"sent": True}},
                "trust_output": True, "priority": -3, "resources": {"gpu": 1},
            },
            {"id": "b", "tool": "look"},
        ],
        "follow_up": {"objective": "after", "steps": [{"id": "f", "tool": "look"}]},
    })  # fmt: skip
    step = plan.steps[0]
    assert step == Step(
        "a", "send", {"x": [1, {"y": None}]}, (Need("b"),), "Send it", "sending", False, 7.0, 2, Effect.ONCE,
        ("upload",), Fallback(tool="look", args={"n": 1}), (Produced("out.json"), Produced("a.txt")), "Really?",
        Check({"type": "object"}, True, ("id",)), Verify("look", {"id": 1}, {"sent": True}), True, -3, {"gpu": 1.0},
    )  # fmt: skip
    assert plan.follow_up is not None
    assert plan.follow_up.objective == "after"
    assert plan.check() == []


def test_a_plan_built_in_python_is_the_same_as_one_that_was_read() -> None:
    """P1: Step(...) takes what people write: ids, mappings, lists, words."""
    built = rerail.Step(
        "a", "send", needs=["b", {"step": "c", "when": "any"}], alternatives=["upload"], effect="once",
        fallback={"value": 1}, check={"keys": ["id"]}, verify={"tool": "look"},
    )  # fmt: skip
    read = Plan.load({
        "steps": [
            {
                "id": "a", "tool": "send", "needs": ["b", {"step": "c", "when": "done"}], "alternatives": ["upload"],
                "effect": "once", "fallback": {"value": 1}, "check": {"keys": ["id"]}, "verify": {"tool": "look"},
            }
        ]
    })  # fmt: skip
    assert built == read.steps[0]
    assert rerail.Plan("built", [built, rerail.Step("b", "look"), rerail.Step("c", "look")]).check(TOOLS) == []


def test_a_step_is_critical_and_bare_unless_it_says_otherwise() -> None:
    """P1: the defaults."""
    step = Plan.load({"steps": [{"id": "a", "tool": "send"}]}).steps[0]
    assert step == Step("a", "send")
    assert step.critical
    assert (step.args, step.needs, step.retries, step.timeout, step.confirm) == ({}, (), None, None, False)


def test_a_plan_survives_its_own_plain_data() -> None:
    """P1: to_dict is a plan again."""
    plan = Plan.load(
        {
            "objective": "x",
            "steps": [
                {"id": "a", "tool": "send", "args": {"q": "$${literal}"}},
                {"id": "b", "tool": "send", "needs": [{"step": "a", "when": "done"}], "fallback": {"value": [1]}},
            ],
            "follow_up": {"steps": [{"id": "f", "tool": "look"}]},
        }
    )
    assert Plan.load(plan.to_dict()) == plan
    assert Plan.load(json.dumps(plan.to_dict())) == plan


def test_a_null_fallback_survives_its_plain_data() -> None:
    """P1: {value: null} is a fallback too, also after to_dict."""
    plan = Plan.load({"steps": [{"id": "a", "tool": "send", "fallback": {"value": None}}]})
    assert plan.check() == []
    assert plan.steps[0].fallback == Fallback(value=None)
    assert Plan.load(plan.to_dict()) == plan


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("args", [1]), ("args", {1: 2}), ("needs", [True]), ("needs", [1.5]), ("needs", [["a"]]), ("title", 5),
        ("stage", ["x"]), ("critical", "no"), ("critical", 1), ("timeout", 0), ("timeout", -1), ("timeout", "5"),
        ("timeout", float("nan")), ("timeout", float("inf")), ("timeout", True), ("retries", -1), ("retries", 1.5),
        ("retries", True), ("retries", "3"), ("effect", "sometimes"), ("effect", ["once"]), ("alternatives", [1]),
        ("alternatives", {"a": 1}), ("fallback", "x"), ("fallback", {}), ("fallback", {"value": 1, "tool": "send"}),
        ("fallback", {"tool": "send", "args": [1]}), ("produces", "out.json"), ("produces", [1]), ("confirm", 1),
        ("check", []), ("check", {"keys": [1]}), ("check", {"schema": {"type": "strin"}}), ("verify", "look"),
        ("verify", {"args": {}}), ("verify", {"tool": "look", "args": []}), ("trust_output", "yes"),
        ("priority", 1.5), ("priority", "high"), ("resources", ["gpu"]), ("resources", {"gpu": "one"}),
        ("needs", [{"step": "a", "when": "sometimes"}]), ("needs", [{"when": "done"}]),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_a_fault_that_names_step_and_key(key: str, value: Any) -> None:
    """P1, P5: reading goes on, and the check says what was expected."""
    found = faults([{"id": "a", "tool": "send"}, {"id": "bad", "tool": "send", key: value}])
    assert [fault.step for fault in found] == ["bad"]
    assert codes(found) == ["BAD_VALUE"]
    assert key in found[0].message


@pytest.mark.parametrize("step", [{}, {"tool": None}, {"tool": ""}, {"tool": 5}, {"tool": ["send"]}])
def test_a_step_without_a_tool_is_a_fault(step: dict[str, Any]) -> None:
    """P1, P5: a step is a tool call."""
    found = faults([{"id": "a", "tool": "send"}, {"id": "bad", **step}])
    assert {fault.step for fault in found} == {"bad"}
    assert any(fault.code == "BAD_VALUE" and "tool" in fault.message for fault in found)


@pytest.mark.parametrize("value", [5, "text", ["a"], None])
def test_a_step_that_is_no_mapping_is_a_fault(value: Any) -> None:
    """P1, P5: with its place in the list."""
    fault = only(faults([{"id": "a", "tool": "send"}, value]))
    assert fault.code == "BAD_VALUE"
    assert "steps[1]" in fault.message


def test_a_plan_without_steps_is_a_fault() -> None:
    """P1, P5: an empty list is readable, and refused when it meets its tools."""
    assert only(faults([])).code == "NO_STEPS"


@pytest.mark.parametrize("value", [0, "", [], {}, None, True])
def test_ids_are_texts_or_numbers(value: Any) -> None:
    """P6: ids are strings; 0 becomes "0", nothing becomes the index, the rest is a fault."""
    plan = Plan.load({"steps": [{"id": "x", "tool": "send"}, {"id": value, "tool": "send"}]})
    found = plan.check(TOOLS)
    if value == 0 and not isinstance(value, bool):
        assert (plan.steps[1].id, found) == ("0", [])
    elif value is None:
        assert (plan.steps[1].id, found) == ("1", [])
    else:
        assert codes(found) == ["BAD_VALUE"]
        assert "id" in found[0].message


# -- P2: needs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "when"),
    [("success", "success"), ("all", "success"), ("done", "done"), ("any", "done"), ("failure", "failure")],
)
def test_the_words_for_when(word: str, when: str) -> None:
    """P2: `any` is read as `done`, `all` as `success`."""
    plan = Plan.load(
        {"steps": [{"id": "a", "tool": "send"}, {"id": "b", "tool": "send", "needs": [{"step": "a", "when": word}]}]}
    )
    assert plan.steps[1].needs == (Need("a", When(when)),)


def test_the_same_need_twice_is_one_need() -> None:
    """P2: the last word on `when` counts."""
    steps = [{"id": "a", "tool": "send"}, {"id": "b", "tool": "send", "needs": ["a", {"step": "a", "when": "done"}]}]
    assert Plan.load({"steps": steps}).steps[1].needs == (Need("a", When.DONE),)


def test_a_single_need_needs_no_list() -> None:
    """P1, P2: needs: a"""
    steps = [{"id": "a", "tool": "send"}, {"id": "b", "tool": "send", "needs": "a"}]
    assert Plan.load({"steps": steps}).steps[1].needs == (Need("a"),)


# -- P5: each fault alone -----------------------------------------------------------------------------------------


def test_duplicate_id() -> None:
    """P5: said once, with the number of uses."""
    fault = only(faults([{"id": "a", "tool": "send"}] * 3))
    assert (fault.code, fault.step) == ("DUPLICATE_ID", "a")
    assert "3 times" in fault.message


def test_unknown_need_with_the_nearest_id() -> None:
    """P5: needs a step that is not there; the nearest one is named."""
    fault = only(faults([{"id": "extract", "tool": "send"}, {"id": "b", "tool": "send", "needs": ["extrct"]}]))
    assert (fault.code, fault.step) == ("UNKNOWN_NEED", "b")
    assert "'extrct'" in fault.message
    assert "did you mean 'extract'" in fault.message


def test_self_need() -> None:
    """P5: a step that needs itself is named once, and is no cycle."""
    fault = only(faults([{"id": "a", "tool": "send", "needs": ["a"]}]))
    assert (fault.code, fault.step) == ("SELF_NEED", "a")


def test_a_reference_to_oneself_is_a_self_need() -> None:
    """P4, P5: a step cannot read its own output."""
    fault = only(faults([{"id": "a", "tool": "send", "args": {"x": "${a.out}"}}]))
    assert (fault.code, fault.step) == ("SELF_NEED", "a")


def test_a_cycle_shows_its_path() -> None:
    """P5: a → b → c → a, as the work would flow."""
    steps = [
        {"id": "b", "tool": "send", "needs": ["a"]},
        {"id": "c", "tool": "send", "needs": ["b"]},
        {"id": "a", "tool": "send", "needs": ["c"]},
        {"id": "after", "tool": "send", "needs": ["c"]},
    ]
    fault = only(faults(steps))
    assert fault.code == "CYCLE"
    assert "a → b → c → a" in fault.message


def test_a_cycle_through_a_reference() -> None:
    """P4, P5: an implied need closes a circle as well as a written one."""
    steps = [
        {"id": "a", "tool": "send", "args": {"x": "${b}"}},
        {"id": "b", "tool": "send", "fallback": {"tool": "send", "args": {"x": "${a}"}}},
    ]
    assert "a → b → a" in only(faults(steps)).message


def test_every_cycle_is_listed() -> None:
    """P5: two circles, one behind the other, are two faults at once, whatever the order of the steps."""
    steps = [
        {"id": "c", "tool": "send", "needs": ["a", "d"]},
        {"id": "d", "tool": "send", "needs": ["c"]},
        {"id": "a", "tool": "send", "needs": ["b"]},
        {"id": "b", "tool": "send", "needs": ["a"]},
    ]
    messages = " ".join(fault.message for fault in faults(steps))
    assert "a → b → a" in messages
    assert "c → d → c" in messages


def test_unknown_tool_with_the_nearest_name() -> None:
    """P5: for the step, its fallback and its verification."""
    fault = only(faults([{"id": "a", "tool": "uplaod", "args": {"to": "x"}}]))
    assert (fault.code, fault.step) == ("UNKNOWN_TOOL", "a")
    assert "did you mean 'upload'" in fault.message
    for key in ("fallback", "verify"):
        fault = only(faults([{"id": "a", "tool": "send", key: {"tool": "lok"}}]))
        assert (fault.code, fault.step) == ("UNKNOWN_TOOL", "a")
        assert key in fault.message
        assert "'look'" in fault.message


def test_unknown_alternative() -> None:
    """P5: an alternative is a tool like any other."""
    fault = only(faults([{"id": "a", "tool": "send", "alternatives": ["look", "sned"]}]))
    assert (fault.code, fault.step) == ("UNKNOWN_ALTERNATIVE", "a")
    assert "did you mean 'send'" in fault.message


def test_reference_to_an_unknown_step() -> None:
    """P4, P5: with the nearest id, and how to write the signs themselves."""
    steps = [{"id": "read", "tool": "send"}, {"id": "b", "tool": "send", "args": {"x": ["${raed.text}"]}}]
    fault = only(faults(steps))
    assert (fault.code, fault.step) == ("UNKNOWN_REFERENCE", "b")
    assert "'read'" in fault.message
    assert "$${" in fault.message


@pytest.mark.parametrize("text", ["${read", "${read.}", "${read[}", "${read[x]}", "${read.a.[0]}", '${read["a}', "${"])
def test_a_text_that_is_no_reference(text: str) -> None:
    """P4, P5: what opens like a reference and is none is refused, not passed on."""
    steps = [{"id": "read", "tool": "send"}, {"id": "b", "tool": "send", "args": {"x": text}}]
    assert only(faults(steps)).code == "BAD_REFERENCE"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "to"),
        ({"to": 5}, "to"),
        ({"to": "x", "size": "big"}, "size"),
        ({"to": "x", "sise": 5}, 'did you mean "size"'),
    ],
)
def test_args_that_do_not_fit_the_schema(args: dict[str, Any], said: str) -> None:
    """P5: missing, of the wrong type, unknown with the nearest key."""
    found = faults([{"id": "a", "tool": "upload", "args": args}])
    assert set(codes(found)) == {"BAD_ARGS"}
    assert said in found[0].message
    assert "upload" in found[0].message


def test_args_of_fallback_and_verification_are_checked_too() -> None:
    """P5: their tools have schemas as well."""
    for key in ("fallback", "verify"):
        found = faults([{"id": "a", "tool": "send", key: {"tool": "upload", "args": {"to": 5}}}])
        assert codes(found) == ["BAD_ARGS"]


def test_a_reference_may_become_anything() -> None:
    """P4, P5: what is not known yet is not refused, and what stands around it is still checked."""
    steps = [
        {"id": "r", "tool": "send"},
        {"id": "good", "tool": "upload", "args": {"to": "${r.to}", "size": "${r.size}"}},
        {"id": "bad", "tool": "upload", "args": {"to": "${r.to}", "size": "${r.size}", "more": 1}},
    ]
    assert [(fault.code, fault.step) for fault in faults(steps)] == [("BAD_ARGS", "bad")]


@pytest.mark.parametrize(
    ("key", "near"),
    [("dependson", "dependsOn"), ("need", "needs"), ("arg", "args"), ("timeuot", "timeout"), ("critcal", "critical")],
)
def test_unknown_key_of_a_step_with_the_nearest(key: str, near: str) -> None:
    """P5: never silently left out."""
    fault = only(faults([{"id": "a", "tool": "send", key: 5}]))
    assert (fault.code, fault.step) == ("UNKNOWN_KEY", "a")
    assert f"'{key}'" in fault.message
    assert f"did you mean '{near}'" in fault.message


def test_unknown_keys_further_in_and_further_out() -> None:
    """P5: of the plan, of needs, fallback, check, verify and metadata."""
    steps = [
        {"id": "a", "tool": "send"},
        {
            "id": "b", "tool": "send", "needs": [{"step": "a", "whem": "done"}], "fallback": {"value": 1, "agrs": {}},
            "check": {"non_emty": True}, "verify": {"tool": "look", "expct": 1}, "metadata": {"maxretries": 1},
        },
    ]  # fmt: skip
    found = faults(steps, objectiv="x")
    assert codes(found) == ["UNKNOWN_KEY"] * 6
    for near in ("objective", "when", "args", "non_empty", "expect", "maxRetries"):
        assert any(f"did you mean {near!r}" in fault.message for fault in found), near


def test_a_key_that_is_like_nothing_gets_no_guess() -> None:
    """P5: a wrong guess would be worse than none."""
    assert "did you mean" not in only(faults([{"id": "a", "tool": "send", "zzzzzzzzzz": 5}])).message


def test_faults_of_the_follow_up_are_listed_too() -> None:
    """P5, T6: before anything runs."""
    found = faults([{"id": "a", "tool": "send"}], follow_up={"steps": [{"id": "f", "tool": "nope"}]})
    assert codes(found) == ["UNKNOWN_TOOL"]
    assert "follow_up" in found[0].message


def test_all_faults_at_once() -> None:
    """P5: one of each kind, and all of them are there."""
    steps = [
        {"id": "twice", "tool": "send"},
        {"id": "twice", "tool": "send"},
        {"id": "need", "tool": "send", "needs": ["nobody"]},
        {"id": "self", "tool": "send", "needs": ["self"]},
        {"id": "x", "tool": "send", "needs": ["y"]},
        {"id": "y", "tool": "send", "needs": ["x"]},
        {"id": "tool", "tool": "nope"},
        {"id": "alt", "tool": "send", "alternatives": ["nope"]},
        {"id": "ref", "tool": "send", "args": {"x": "${nobody.x}"}},
        {"id": "bad", "tool": "send", "args": {"x": "${need"}},
        {"id": "args", "tool": "upload", "args": {"size": "x"}},
        {"id": "key", "tool": "send", "tmeout": 5},
        {"id": "value", "tool": "send", "timeout": -5},
    ]
    found = faults(steps)
    assert {(fault.code, fault.step) for fault in found} == {
        ("DUPLICATE_ID", "twice"), ("UNKNOWN_NEED", "need"), ("SELF_NEED", "self"), ("CYCLE", "x"),
        ("UNKNOWN_TOOL", "tool"), ("UNKNOWN_ALTERNATIVE", "alt"), ("UNKNOWN_REFERENCE", "ref"),
        ("BAD_REFERENCE", "bad"), ("BAD_ARGS", "args"), ("UNKNOWN_KEY", "key"), ("BAD_VALUE", "value"),
    }  # fmt: skip


def test_no_fault_of_a_step_hides_its_references() -> None:
    """P5: not another one in the same text, nor arguments that are no JSON, nor a fallback of two kinds."""
    ref, bad = "UNKNOWN_REFERENCE", "BAD_REFERENCE"
    text = {"x": "${nobody.x}, ${a[x]}, ${none}, $${fine} and ${a.b"}
    found = faults([{"id": "a", "tool": "send"}, {"id": "b", "tool": "nope", "args": text}])
    assert codes(found) == [ref, bad, ref, bad, "UNKNOWN_TOOL"]
    assert [str(fault.message).split(" ")[0] for fault in found[:4]] == ["${nobody.x}", "${a[x]}", "${none}", "${a.b"]
    odd = {"size": float("nan"), "x": {"y": {1}, "z": "${nobody}"}}
    assert codes(faults([{"id": "b", "tool": "upload", "needs": ["c"], "args": odd}])) == [
        "UNKNOWN_NEED", ref, "BAD_VALUE", "BAD_ARGS", "BAD_ARGS", "BAD_ARGS",
    ]  # fmt: skip
    two = {"value": 1, "tool": "nope", "args": {"x": "${nobody}"}}
    assert codes(faults([{"id": "b", "tool": "send", "fallback": two}])) == ["BAD_VALUE", ref, "UNKNOWN_TOOL"]


def test_no_depth_hides_a_reference() -> None:
    """P5: however deep the arguments are nested, or those of the fallback, what stands in them is looked at."""

    def nested(levels: int) -> Any:
        value: Any = "${nobody}"
        for _ in range(levels):
            value = {"x": value}
        return value

    wanted = ["UNKNOWN_REFERENCE", "BAD_VALUE"]
    for levels in (850, 5000):  # the first can still be written down
        assert codes(faults([{"id": "b", "tool": "upload", "args": nested(levels)}])) == wanted
    assert codes(faults([{"id": "b", "tool": "nope", "args": nested(5000)}])) == [*wanted, "UNKNOWN_TOOL"]
    fallback = {"tool": "upload", "args": nested(5000)}
    assert codes(faults([{"id": "b", "tool": "send", "fallback": fallback}])) == wanted


def test_load_refuses_only_what_cannot_be_read() -> None:
    """P5: a plan with every fault loads; it is refused, with all of them, when it meets its tools."""
    plan = Plan.load({"steps": [{"id": "a", "tool": "nope", "needs": ["a", "b"], "tmeout": 1}]})
    with pytest.raises(PlanError) as refused:
        rerail.run(plan, tools=[])
    assert sorted(fault.code for fault in refused.value.faults) == [
        "SELF_NEED", "UNKNOWN_KEY", "UNKNOWN_NEED", "UNKNOWN_TOOL",
    ]  # fmt: skip
    assert refused.value.code == "PLAN_INVALID"
    for fault in refused.value.faults:
        assert fault.message in str(refused.value)


def test_check_takes_functions_as_tools() -> None:
    """P5, SPEC 12: plan.check(tools) with the very list an engine takes."""

    def upload(to: str, size: int = 1) -> None: ...

    plan = Plan.load({"steps": [{"id": "a", "tool": "upload", "args": {"size": "many"}}]})
    found = plan.check([upload])
    assert set(codes(found)) == {"BAD_ARGS"}


def test_a_fault_says_its_step_and_reads_as_a_sentence() -> None:
    """P5: for people, and for --json."""
    error = PlanError("no:", faults([{"id": "a", "tool": "send", "needs": ["b"]}]))
    assert "step 'a': needs unknown step 'b'" in str(error)
    assert error.to_dict()["error"]["faults"] == [
        {"code": "UNKNOWN_NEED", "step": "a", "message": "needs unknown step 'b'"}
    ]


# -- P4, P6: needs that references imply --------------------------------------------------------------------------


def test_a_reference_implies_the_need() -> None:
    """P4: from the arguments, the fallback's and the verification's; never twice, never of oneself."""
    step = Step(
        "x", "send", {"a": "${a}", "b": ["${b.c}", "${a.d}"]}, fallback=Fallback(tool="t", args={"f": "${f}"}),
        verify=Verify("t", {"v": "${v}"}),
    )  # fmt: skip
    steps = [step, *(Step(name, "send") for name in "abfv")]
    assert [need.step for need in full_needs(step, names_of(steps))] == ["a", "b", "f", "v"]
    assert all(need.when is When.SUCCESS for need in full_needs(step, names_of(steps)))


def test_an_explicit_when_beats_the_implied_one() -> None:
    """P4: a clean-up step may read what the failed one left."""
    step = Step("x", "send", {"a": "${a}"}, (Need("a", When.DONE),))
    assert full_needs(step, names_of([step, Step("a", "send")])) == (Need("a", When.DONE),)


def test_a_fallback_value_is_data() -> None:
    """P4: what looks like a reference inside a fallback's value is a value."""
    steps = [{"id": "a", "tool": "send", "fallback": {"value": "${nobody}"}}]
    assert faults(steps) == []


# -- P6: shapes and sizes -----------------------------------------------------------------------------------------


@st.composite
def edges(draw: st.DrawFn) -> dict[str, list[str]]:
    size = draw(st.integers(1, 9))
    names = [f"s{i}" for i in range(size)]
    return {name: draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) for name in names}


def reached(start: str, graph: dict[str, list[str]]) -> set[str]:
    """What a step needs, near or far, over other steps."""
    found: set[str] = set()
    todo = [start]
    while todo:
        here = todo.pop()
        for other in graph[here]:
            if other != here and other not in found:
                found.add(other)
                todo.append(other)
    return found


@settings(max_examples=300, deadline=None)
@given(edges())
def test_paths_of_cycles_are_real_and_none_is_invented(graph: dict[str, list[str]]) -> None:
    """P5, P6: every path shown is a circle of needs; there is one exactly if some step needs itself over others."""
    paths = cycles(graph)
    cyclic = {step for step in graph if step in reached(step, graph)}
    assert bool(paths) is bool(cyclic)
    for path in paths:
        assert path[0] == path[-1] and len(set(path)) == len(path) - 1 >= 2
        for before, after in pairwise(path):
            assert before in graph[after]


@settings(max_examples=300, deadline=None)
@given(edges())
def test_each_group_of_steps_on_a_circle_is_shown(graph: dict[str, list[str]]) -> None:
    """P5: every cycle at once: of steps that all need each other, one path is there for each group."""
    shown = {step for path in cycles(graph) for step in path}
    reach = {step: reached(step, graph) for step in graph}
    for step in graph:
        if step in reach[step]:
            group = {other for other in graph if other in reach[step] and step in reach[other]}
            assert group & shown, f"nothing is said of the circle around {step}"


def test_a_hundred_thousand_steps_load_and_check() -> None:
    """P6, P5: O(V+E): a chain as deep as it is long, from JSON text, valid; and with its ends joined, one cycle."""
    size = 100_000
    steps = [{"id": f"s{i}", "tool": "send", "needs": [f"s{i - 1}"] if i else []} for i in range(size)]
    plan = Plan.load(json.dumps({"steps": steps}))
    assert len(plan.steps) == size
    assert plan.check(TOOLS) == []
    first = Step("s0", "send", {}, (Need(f"s{size - 1}"),))
    found = Plan("a ring", (first, *plan.steps[1:])).check(TOOLS)
    assert codes(found) == ["CYCLE"]
    assert found[0].message.count(" → ") == size


def test_a_fan_of_a_hundred_thousand() -> None:
    """P6: one join of 100,000 needs and references is nothing special."""
    size = 100_000
    fan = [Step(f"s{i}", "send") for i in range(size)]
    join = Step("join", "send", {"all": ["${" + step.id + "}" for step in fan[:1000]]}, tuple(Need(s.id) for s in fan))
    assert Plan("fan", (*fan, join)).check(TOOLS) == []


def test_a_hundred_thousand_faults_are_all_there_and_the_message_stays_short() -> None:
    """P5, P6: every fault is listed; what is printed is bounded and says how many more."""
    found = Plan("bad", tuple(Step(f"s{i}", "nope") for i in range(20_000))).check(TOOLS)
    assert len(found) == 20_000
    assert len(str(PlanError("no", found))) < 20_000
    assert "19950 more" in str(PlanError("no", found)).replace(",", "")


@pytest.mark.parametrize(
    "name", ["a b", "a.b", "a.b.c", "步骤 一", "é🚂", "a[0]", "a}b", "${a}", "a/b\\c", "'\"", "x" * 10_000, "-1", " "]
)
def test_ids_may_be_anything(name: str) -> None:
    """P6, P4: spaces, dots, brackets, unicode, 10 kB: as ids, as needs, in references."""
    steps = [
        {"id": name, "tool": "send"},
        {"id": "next", "tool": "send", "needs": [name], "args": {"x": "${" + name + "}"}},
    ]
    plan = Plan.load({"steps": steps})
    assert plan.check(TOOLS) == []
    assert [need.step for need in full_needs(plan.steps[1], names_of(plan.steps))] == [name]


def test_an_id_beyond_ten_kilobytes_is_a_fault() -> None:
    """P5, P6: with a message that does not repeat it."""
    found = faults([{"id": "x" * 20_000, "tool": "send"}])
    assert codes(found) == ["BAD_VALUE"]
    assert len(str(found[0])) < 500


@pytest.mark.parametrize("depth", [100, 900, 20_000])
def test_deep_arguments_are_checked_or_refused(depth: int) -> None:
    """P5: nesting never crashes the check: the plan is good, or it is refused as a plan."""
    text = '{"steps": [{"id": "a", "tool": "send", "args": {"x": ' + "[" * depth + "]" * depth + "}}]}"
    try:
        found = Plan.load(text).check(TOOLS)
    except PlanError as error:
        assert error.code == "PLAN_UNREADABLE"  # noqa: PT017 - either answer will do
    else:
        assert found == [] or codes(found) == ["BAD_VALUE"]


def test_values_that_are_no_json_are_faults() -> None:
    """P1, P5: a plan is data; what cannot be stored is refused before anything runs."""
    for value in (object(), "\ud800", float("nan"), {1, 2}, b"bytes"):
        with pytest.raises(PlanError):
            rerail.run({"steps": [{"id": "a", "tool": "send", "args": {"x": value}}]}, tools=[send])


async def send(**args: Any) -> str:
    return "sent"


def test_what_makes_a_step_another_step() -> None:
    """H8, R3: tool, args, needs and checks do; title, stage and scheduling do not."""
    step = Step("a", "send", {"x": 1}, (Need("b"),))
    for same in ({"title": "t"}, {"stage": "s"}, {"timeout": 1.0}, {"retries": 0}, {"priority": 5}):
        assert definition(Step("a", "send", {"x": 1}, (Need("b"),), **same)) == definition(step)
    others = (
        Step("a", "look", {"x": 1}, (Need("b"),)),
        Step("a", "send", {"x": 2}, (Need("b"),)),
        Step("a", "send", {"x": 1}, ()),
        Step("a", "send", {"x": 1}, (Need("b", When.DONE),)),
        Step("a", "send", {"x": 1}, (Need("b"),), check=Check(non_empty=True)),
    )
    assert all(definition(other) != definition(step) for other in others)


# -- Files and texts ----------------------------------------------------------------------------------------------


def test_a_plan_from_files_and_texts(tmp_path: Path) -> None:
    """P1: YAML or JSON, as a path, a name, a text, bytes or data: the same plan."""
    data = {"objective": "o", "steps": [{"id": "a", "tool": "send", "args": {"x": 1}}]}
    yaml_text = "objective: o\nsteps:\n  - id: a\n    tool: send\n    args: {x: 1}\n"
    (tmp_path / "plan.json").write_text(json.dumps(data))
    (tmp_path / "plan.yaml").write_text(yaml_text)
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + yaml_text.encode())
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(data).encode())
    wanted = Plan.load(data)
    names = ("plan.json", "plan.yaml", "bom.yaml", "bom.json")
    sources: list[Any] = [yaml_text, json.dumps(data), yaml_text.encode(), data["steps"]]
    sources += [tmp_path / name for name in names] + [str(tmp_path / name) for name in names]
    for source in sources:
        assert Plan.load(source).steps == wanted.steps, source


def test_what_is_no_plan_is_unreadable(tmp_path: Path) -> None:
    """P5: each refused by name, with PLAN_UNREADABLE, and nothing else is raised."""
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "blank.yaml").write_text("  \n\n# only a comment\n")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "latin.yaml").write_bytes("objective: é\nsteps: []".encode("latin-1"))
    (tmp_path / "broken.json").write_text('{"steps": [')
    (tmp_path / "broken.yaml").write_text("steps: [a: b: c\n  - {")
    (tmp_path / "list.yaml").write_text("just: a mapping\n")
    (tmp_path / "text.yaml").write_text("just a text\n")
    (tmp_path / "steps.yaml").write_text("steps: send\n")
    (tmp_path / "python.yaml").write_text("steps: !!python/object/apply:os.system [ls]\n")
    sources: list[Any] = sorted(tmp_path.glob("*.*"))
    sources += [tmp_path, tmp_path / "not there.yaml", str(tmp_path / "not there.yaml"), "", "\n", b"", b"\x00\xff"]
    sources += [5, None, True, 1.5, {"objective": "no steps"}, {"steps": 5}, {"steps": "a"}, "a\x00b", "x" * 5000]
    for source in sources:
        with pytest.raises(PlanError) as refused:
            Plan.load(source)
        assert refused.value.code == "PLAN_UNREADABLE", source


def test_yaml_means_what_people_mean(tmp_path: Path) -> None:
    """P1: no and on are texts, 012 is no octal number, dates stay texts; true, null and numbers are themselves."""
    text = """
    objective: yes
    steps:
      - id: no
        tool: on
        args: {a: no, b: off, c: 012, d: 2024-01-01, e: 1:30, f: true, g: null, h: 12, i: 1.5, j: ~, k: Yes, l: 1_000}
      - id: 012
        tool: send
        needs: [no]
    """
    plan = Plan.load(text)
    assert (plan.objective, plan.steps[0].id, plan.steps[0].tool) == ("yes", "no", "on")
    assert plan.steps[0].args == {
        "a": "no", "b": "off", "c": "012", "d": "2024-01-01", "e": "1:30", "f": True, "g": None, "h": 12, "i": 1.5,
        "j": None, "k": "Yes", "l": "1_000",
    }  # fmt: skip
    assert plan.steps[1].id == "012"
    assert plan.steps[1].needs == (Need("no"),)


@pytest.mark.parametrize(
    "text",
    [
        "steps:\n  - id: a\n    tool: x\n    tool: y\n",
        "objective: a\nobjective: b\nsteps: [{tool: x}]\n",
        "steps: [{tool: x, args: {a: 1, a: 2}}]\n",
        "steps: [{tool: x, {a: 1}: 2}]\n",
    ],
)
def test_doubled_and_odd_yaml_keys_are_refused(text: str) -> None:
    """P5: one of the two would win silently."""
    with pytest.raises(PlanError) as refused:
        Plan.load(text)
    assert refused.value.code == "PLAN_UNREADABLE"


def test_a_yaml_merge_may_be_overridden() -> None:
    """P1: `<<` gives defaults; the step's own keys win, and are no doubles."""
    text = """
    steps:
      - &base {id: a, tool: send, critical: false}
      - <<: *base
        id: b
    """
    plan = Plan.load(text)
    assert [(step.id, step.tool, step.critical) for step in plan.steps] == [
        ("a", "send", False), ("b", "send", False),
    ]  # fmt: skip


def test_yaml_that_contains_itself_is_unreadable() -> None:
    """P5: a cycle in the text itself."""
    with pytest.raises(PlanError) as refused:
        Plan.load("steps:\n  - id: a\n    tool: send\n    args: &x {again: *x}\n")
    assert refused.value.code == "PLAN_UNREADABLE"


def test_who_looks_at_a_file_must_be_a_tool() -> None:
    """T1, P5: `produces.check` names one that the run has."""
    step = {"id": "a", "tool": "t", "produces": [{"file": "f.md", "check": "nobody"}]}
    faults = Plan.load({"steps": [step]}).check({"t": ToolSpec("t"), "look": ToolSpec("look")})
    assert [(fault.code, fault.step) for fault in faults] == [("UNKNOWN_TOOL", "a")]
    known = {**step, "produces": [{"file": "f.md", "check": "t"}]}
    assert Plan.load({"steps": [known]}).check({"t": ToolSpec("t")}) == []


def test_a_need_that_is_no_step_closes_no_circle() -> None:
    """P5: circles are found beside needs that nobody knows."""
    assert cycles({"a": ["gone", "b"], "b": ["a", "gone too"], "c": ["gone"]}) == [["a", "b", "a"]]


# -- What mutants showed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("a.json", "json"), ("A.JSON", "json"), ("a.yaml", "yaml"), ("a.YML", "yaml"), ("a.md", "text"), ("a", "text"),
        ({"path": "a.md", "keys": ["k"]}, "json"), ({"path": "a.md", "schema": True}, "json"),
        ({"path": "a.yml", "keys": ["k"]}, "yaml"), ({"path": "a.json", "format": "text"}, "text"),
    ],
)  # fmt: skip
def test_how_a_file_is_read_follows_from_its_name(file: Any, kind: str) -> None:
    """T1: unless it says so; what has keys or a schema is data, whatever it is called."""
    (produced,) = Step("a", "t", produces=(file,)).produces
    assert isinstance(produced, Produced) and produced.kind == kind


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("out/a.json", ""), ("./a.json", ""), ("a..b", ""), ("", "file_no_name"), ("a/", "file_no_name"),
        ("a/.", "file_no_name"), ("a/..", "file_no_name"), ("a\nb", "file_no_name"), ("/a", "file_outside"),
        ("../a", "file_outside"), ("a/../../b", "file_outside"), ("C:/a", "file_outside"), ("..\\a", "file_outside"),
        ("\\a", "file_outside"), ("a\\", "file_no_name"), ("task.json", "file_reserved"),
        ("./Task.JSON", "file_reserved"), (".rerail/a", "file_reserved"), ("a/task.json", ""),
    ],
)  # fmt: skip
def test_a_file_of_a_step_lies_in_the_workspace(path: str, key: str) -> None:
    """T1: however the path is written; what is wrong with it is a fault of the plan."""
    assert path_fault(path) == (f"refuse.plan.{key}" if key else "")
    faults = Plan("", (Step("a", "t", produces=(Produced(path),)),)).check(None)
    assert [fault.code for fault in faults] == (["BAD_FILE"] if key else [])


def test_who_looks_at_a_file_is_not_asked_for_where_no_tools_are_known() -> None:
    """T1, P5: a plan may be looked at before its tools are."""
    plan = Plan("", (Step("a", "t", produces=(Produced("f", check="nobody"),)),))
    assert plan.check(None) == []
    assert [fault.code for fault in plan.check({"t": ToolSpec("t")})] == ["UNKNOWN_TOOL"]


def test_a_plan_of_lists_is_a_plan_of_values() -> None:
    """P1: whatever sequence somebody builds it from."""
    step = Step("a", "t", needs=[Need("b")], produces=["f.json"], alternatives=["u"])  # type: ignore[arg-type]
    assert (step.needs, step.produces, step.alternatives) == ((Need("b"),), (Produced("f.json"),), ("u",))
    assert Step("a", "t", needs="b").needs == (Need("b"),)  # type: ignore[arg-type]
    assert Plan("", [step]).steps == (step,)  # type: ignore[arg-type]


def test_p5_servers_of_a_plan_and_of_what_follows_it_are_faults() -> None:
    """P5: each plan that names some is told apart, and no other fault is hidden by it."""
    plan = Plan("", (), Plan("", (Step("a", "t"),), mcp={"b": 3, "c": 4}), mcp={"a": 1})
    faults = [(fault.code, str(fault.message)) for fault in plan.check()]
    assert [code for code, _ in faults] == ["NO_STEPS", "MCP_NOT_ALLOWED", "MCP_NOT_ALLOWED"]
    assert "(a)" in faults[1][1] and "(b, c)" in faults[2][1]


def test_what_implies_a_need_is_what_may_be_called() -> None:
    """P4: the arguments of a fallback's tool do; what stands beside a fallback value is nobody's argument."""
    names = names_of([Step("b", "t"), Step("c", "t")])
    assert full_needs(Step("a", "t", fallback=Fallback(tool="u", args={"x": "${b}"})), names) == (Need("b"),)
    by_value = Fallback(value=1, args={"x": "${b}"})
    assert full_needs(Step("a", "t", {"y": "${c}"}, fallback=by_value), names) == (Need("c"),)


@pytest.mark.parametrize(("length", "cut"), [(80, False), (81, True)])
def test_a_long_name_is_cut_where_it_is_unknown(length: int, cut: bool) -> None:
    """P5: a fault is read by people."""
    (fault,) = Plan("", (Step("a", "x" * length),)).check({})
    assert ("x" * 77 + "…" in str(fault)) is cut and ("x" * 80 in str(fault)) is not cut


@pytest.mark.parametrize(("priority", "good"), [(2**63 - 1, True), (2**63, False), (-(2**63) + 1, True), (1000, True)])
def test_a_priority_is_a_number_that_every_store_can_keep(priority: int, good: bool) -> None:
    """P1: sixty-four bits, with a sign."""
    faults = Plan.load({"steps": [{"id": "a", "tool": "t", "priority": priority}]}).faults
    assert [fault.code for fault in faults] == ([] if good else ["BAD_VALUE"])


def test_which_outputs_are_trusted_is_read_member_by_member() -> None:
    """X9: what to ignore, and what more to look for."""
    trust = {"ignore": "error", "suspect": ["sorry", {"state": "bad"}]}
    (step,) = Plan.load({"steps": [{"id": "a", "tool": "t", "trust_output": trust}]}).steps
    assert step.trust_output == Trust(("error",), ("sorry", {"state": "bad"}))
    for odd in ({"suspect": "sorry"}, {"suspect": [1]}, {"ignore": 1}, {"other": 1}, 5):
        plan = Plan.load({"steps": [{"id": "a", "tool": "t", "trust_output": odd}]})
        assert {fault.code for fault in plan.faults} <= {"BAD_VALUE", "UNKNOWN_KEY"} and plan.faults


@pytest.mark.parametrize(
    ("key", "value", "got"),
    [
        ("args", "some words", "'some words'"), ("args", [1], "a list"), ("args", None, ""), ("args", 5, "5"),
        ("title", {"a": 1}, "a mapping"), ("verify", "look", "expected {tool: …, args: …, expect: …}, got"),
        ("check", 5, "expected {schema, non_empty, keys}, got"), ("title", b"x", "bytes"),
    ],
)  # fmt: skip
def test_a_fault_says_what_was_given_instead(key: str, value: Any, got: str) -> None:
    """P5: in a word, or as it is if it is short."""
    faults = Plan.load({"steps": [{"id": "a", "tool": "t", key: value}]}).faults
    assert got in " ".join(map(str, faults)) and bool(faults) is (value is not None)


def test_files_may_say_everything_about_themselves() -> None:
    """T1: under their own names; another name is a fault."""
    file = {"file": "f", "format": "json", "schema": {"type": "object"}, "keys": "k", "non_empty": True, "check": "t"}
    (step,) = Plan.load({"steps": [{"id": "a", "tool": "t", "produces": [file]}]}).steps
    assert step.produces == (Produced("f", "json", {"type": "object"}, ("k",), True, "t"),)
    for odd in ({"path": ""}, {"path": 5}, {"format": "json"}, {"path": "f", "non_empty": 1}, {"path": "f", "kind": 1}):
        assert Plan.load({"steps": [{"id": "a", "tool": "t", "produces": [odd]}]}).faults, odd


def test_what_follows_and_cannot_be_read_is_a_fault_of_the_plan() -> None:
    """P5, T6: listed with all others."""
    plan = Plan.load({"steps": [{"id": "a", "tool": "t"}], "follow_up": {"objective": "no steps"}})
    assert [fault.code for fault in plan.faults] == ["BAD_VALUE"]
    with pytest.raises(PlanError, match="1,000,001 steps, and 200,000"):
        Plan.load({"steps": [None] * 1_000_001})


def test_what_verifies_only_looks() -> None:
    """V8, P5: a tool whose effect must not happen twice is no look; as a fallback it may act."""
    tools = {**TOOLS, "pay": ToolSpec("pay", effect=Effect.ONCE)}
    fault = only(faults([{"id": "a", "tool": "send", "verify": {"tool": "pay"}}], tools))
    assert (fault.code, fault.step) == ("BAD_VALUE", "a") and "verify only looks" in str(fault.message)
    for effect in (Effect.READ, Effect.REPEATABLE):
        other = {**TOOLS, "pay": ToolSpec("pay", effect=effect)}
        assert not faults([{"id": "a", "tool": "send", "verify": {"tool": "pay"}}], other)
    assert not faults([{"id": "a", "tool": "send", "fallback": {"tool": "pay"}}], tools)


def test_a_duplicate_id_hides_no_cycle() -> None:
    """P5: both are listed at once, whichever of the two steps is in the circle."""
    circle = [{"id": "a", "tool": "t", "needs": ["b"]}, {"id": "b", "tool": "t", "needs": ["a"]}]
    twin = {"id": "a", "tool": "t"}
    for steps in ([*circle, twin], [twin, *circle]):
        assert [fault.code for fault in Plan.load({"steps": steps}).check()] == ["DUPLICATE_ID", "CYCLE"]
