"""Plans as others write them load as they are (P3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rerail.errors import PlanError
from rerail.plan.model import Plan
from rerail.plan.reader import PlanUnreadable, canonical, read_plan, read_steps
from rerail.plan.step import Check, Fallback, Fault, Need, Produced, Step, Trust, When


def load(*steps: Any) -> Plan:
    plan = Plan.load({"steps": list(steps)})
    assert plan.check() == []
    return plan


def needs(step: Step) -> list[str]:
    return [need.step for need in step.needs]


def test_steps_without_ids_are_named_by_their_index() -> None:
    """P3: aiName for tool, dependsOn by index, as numbers or texts."""
    plan = load(
        {"aiName": "list_files"},
        {"aiName": "read_file", "dependsOn": [0]},
        {"aiName": "process_data", "dependsOn": ["1"]},
        {"aiName": "write_result", "dependsOn": [0, "2"]},
    )
    assert [step.id for step in plan.steps] == ["0", "1", "2", "3"]
    assert [step.tool for step in plan.steps] == ["list_files", "read_file", "process_data", "write_result"]
    assert [needs(step) for step in plan.steps] == [[], ["0"], ["1"], ["0", "2"]]


def test_the_task_list_of_a_planner() -> None:
    """P3: topic, tasks, type, description, parameters, dependencies with taskId and condition, metadata."""
    plan = Plan.load({
        "topic": "slides about trains",
        "tasks": [
            {
                "id": "task-1", "type": "WEB_SEARCH", "description": "look around", "parameters": {"q": "trains"},
                "metadata": {"critical": False, "maxRetries": 0, "retryCount": 2}, "dependencies": [],
            },
            {
                "id": "task-2", "type": "OUTLINE", "dependencies": [{"taskId": "task-1", "condition": "any"}],
                "metadata": {"retryCount": 0},
            },
            {
                "id": "task-3", "type": "SLIDES",
                "dependencies": [{"taskId": "task-2", "condition": "success"}, {"taskId": "task-1"}],
            },
        ],
    })  # fmt: skip
    assert plan.check() == []
    assert plan.objective == "slides about trains"
    first, second, third = plan.steps
    assert (first.id, first.tool, first.title, first.args) == ("task-1", "WEB_SEARCH", "look around", {"q": "trains"})
    assert (first.critical, first.retries) == (False, 0)  # 0 means 0
    assert (second.critical, second.retries) == (True, None)  # how often it was retried elsewhere says nothing here
    assert second.needs == (Need("task-1", When.DONE),)
    assert third.needs == (Need("task-2"), Need("task-1"))


def test_depends_on_in_another_spelling() -> None:
    """P3: depends_on: [ids]."""
    plan = load({"id": "a", "tool": "x"}, {"id": "b", "tool": "x", "depends_on": ["a"]})
    assert plan.steps[1].needs == (Need("a"),)


@pytest.mark.parametrize("key", ["needs", "dependsOn", "depends_on", "dependencies"])
@pytest.mark.parametrize("need", ["a", {"step": "a"}, {"taskId": "a"}, 0, "0", {"taskId": 0}, {"step": "0"}])
def test_every_key_takes_every_kind_of_need(key: str, need: Any) -> None:
    """P2, P3: an id, an index, a mapping, under each name."""
    assert load({"id": "a", "tool": "x"}, {"id": "b", "tool": "x", key: [need]}).steps[1].needs == (Need("a"),)


def test_a_number_is_an_id_if_one_matches_else_an_index() -> None:
    """P3: ids beat indexes."""
    plan = load(
        {"id": 2, "tool": "x"},
        {"id": "1", "tool": "x"},
        {"id": "z", "tool": "x", "needs": [2, 1]},
        {"id": "y", "tool": "x", "needs": [0, "3", 4]},
        {"id": "3", "tool": "x"},
    )
    assert [step.id for step in plan.steps] == ["2", "1", "z", "y", "3"]
    assert needs(plan.steps[2]) == ["2", "1"]  # by id, although both are indexes too
    assert needs(plan.steps[3]) == ["2", "3"]  # no id 0, so the first step; 3 by id; 4 by index is 3 again


def test_a_number_that_is_neither_is_an_unknown_need() -> None:
    """P3, P5: beyond the plan, or below it."""
    plan = Plan.load({"steps": [{"id": "a", "tool": "x"}, {"id": "b", "tool": "x", "needs": [0, 7, -1]}]})
    assert [fault.message for fault in plan.check()] == ["needs unknown step '7'", "needs unknown step '-1'"]


def test_an_index_points_to_the_id_of_the_step_at_that_place() -> None:
    """P3, P6: dependencies are held by id from then on."""
    plan = load(
        {"id": "read", "tool": "x"}, {"tool": "y", "dependsOn": [0]}, {"id": "w", "tool": "z", "dependsOn": [1]}
    )
    assert [needs(step) for step in plan.steps] == [[], ["read"], ["1"]]


@pytest.mark.parametrize(
    ("metadata", "retries", "critical"),
    [
        ({"maxRetries": 0}, 0, True),
        ({"maxRetries": 5, "retryCount": 5}, 5, True),
        ({"max_retries": 1, "retry_count": 9}, 1, True),
        ({"critical": False}, None, False),
        ({}, None, True),
        (None, None, True),
    ],
)
def test_metadata(metadata: Any, retries: int | None, critical: bool) -> None:
    """P3: maxRetries 0 means 0; retryCount is ignored."""
    step = load({"id": "a", "tool": "x", "metadata": metadata}).steps[0]
    assert (step.retries, step.critical) == (retries, critical)


def test_the_steps_own_word_beats_its_metadata() -> None:
    """P1, P3: retries and critical stand in two places; the step's own counts."""
    step = load({"tool": "x", "retries": 2, "critical": True, "metadata": {"maxRetries": 9, "critical": False}}).steps[
        0
    ]
    assert (step.retries, step.critical) == (2, True)


@pytest.mark.parametrize("metadata", [{"maxRetries": -1}, {"maxRetries": "3"}, {"critical": "yes"}, ["x"], 5])
def test_metadata_of_the_wrong_kind_is_a_fault(metadata: Any) -> None:
    """P3, P5: in a dialect as anywhere."""
    assert [f.code for f in Plan.load({"steps": [{"tool": "x", "metadata": metadata}]}).check()] == ["BAD_VALUE"]


def test_one_thing_said_under_two_names_is_a_fault() -> None:
    """P3, P5: which one would count?"""
    plan = Plan.load(
        {"topic": "a", "objective": "b", "steps": [{"tool": "x", "aiName": "y", "needs": [], "dependsOn": []}]}
    )
    found = plan.check()
    assert [fault.code for fault in found] == ["BAD_VALUE"] * 3
    assert all("given twice" in fault.message for fault in found)


def test_steps_may_be_a_mapping_or_the_whole_file() -> None:
    """P1: {steps: {id: {…}}}, or just the list."""
    mapping = Plan.load({"steps": {"a": {"tool": "x"}, "b": {"tool": "y", "needs": ["a"]}}})
    assert [(step.id, step.tool) for step in mapping.steps] == [("a", "x"), ("b", "y")]
    listed = Plan.load(json.dumps([{"aiName": "x"}, {"aiName": "y", "dependsOn": [0]}]))
    assert [(step.id, needs(step)) for step in listed.steps] == [("0", []), ("1", ["0"])]


def test_what_a_run_elsewhere_left_in_a_plan_is_ignored() -> None:
    """P3: status and index of a step say nothing about a new run."""
    step = load({"id": "a", "tool": "x", "status": "failed", "index": 7}).steps[0]
    assert step == Step("a", "x")


def test_added_steps_count_their_indexes_on() -> None:
    """P3, P6, X7: steps added to a plan are named by their place in the whole, and may name the earlier ones."""
    faults: list[Fault] = []
    steps = read_steps([{"tool": "x", "needs": ["a"]}, {"tool": "y", "needs": [2]}], faults, known=["a", "b"])
    assert not faults
    assert [(step.id, needs(step)) for step in steps] == [("2", ["a"]), ("3", ["2"])]


def test_numbers_that_are_texts_in_another_script_do_no_harm() -> None:
    """P3: whatever is written, nothing is raised."""
    for odd in ("１", "²", "٣", "1e3", "0x1", " 1", "9" * 30):
        Plan.load({"steps": [{"tool": "x"}, {"tool": "y", "needs": [odd]}]}).check()


@pytest.mark.parametrize(
    "text",
    [
        '{"steps": [{"id": "a", "tool": "t", "args": {"n": 1, "n": 2}}]}',
        '{"steps": [], "steps": [{"id": "a", "tool": "t"}]}',
        "steps:\n- id: a\n  tool: t\n  args: {n: 1, n: 2}\n",
        "steps: []\nsteps:\n- {id: a, tool: t}\n",
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str) -> None:
    """P1, bad input: JSON and YAML alike; the last of the two would win in silence."""
    with pytest.raises(PlanError, match="is there twice") as refused:
        Plan.load(text)
    assert refused.value.code == "PLAN_UNREADABLE"


def test_plans_that_follow_each_other_without_end_are_no_plan() -> None:
    """P5, T6: a hundred are enough for everybody; what is behind is a fault of the last."""
    plan: dict[str, Any] = {"steps": [{"tool": "t"}]}
    for _ in range(102):
        plan = {"steps": [{"tool": "t"}], "follow_up": plan}
    part: Any = Plan.load(plan)
    while part.follow_up is not None:
        part = part.follow_up
    assert [fault.code for fault in part.faults] == ["BAD_VALUE"]


def test_a_number_that_nobody_can_write_is_no_id() -> None:
    """P5, P6: told as a fault, and no crash."""
    plan = Plan.load({"steps": [{"id": 2**20_000, "tool": "t"}, {"id": "b", "tool": "t"}]})
    assert "BAD_VALUE" in {fault.code for fault in plan.faults}


@pytest.mark.parametrize("plan", [Plan("\ud800", (Step("a", "t"),)), Plan("", (Step("a", "t", title="\ud800"),))])
def test_half_a_character_cannot_be_kept(plan: Plan) -> None:
    """P5: in an objective, or in any text of a step."""
    assert [fault.code for fault in plan.check()] == ["BAD_VALUE"]


# -- Every key, in full --------------------------------------------------------------------------------------------

NAMES, MAPPING, TEXT, FLAG = "a list of names", "a mapping with text keys", "a text", "true or false"
COUNT, WHOLE, SECONDS = "a whole number of 0 or more", "a whole number", "a number of seconds above 0"
AMOUNTS, WHEN = "a mapping of resource to an amount of 0 or more", "success, done or failure"
EFFECT = "read, repeatable or once"
FALLBACK, VERIFY = "{value: …} or {tool: …, args: …}", "{tool: …, args: …, expect: …}"
SIGNS = "a list of texts and objects"
WRONG: list[tuple[str, Any, str, str, str]] = [  # key, value, what the fault names, what it expects, what it got
    ("args", [1], "args", MAPPING, "a list"), ("args", {1: 2}, "args", MAPPING, "a mapping"),
    ("needs", [True], "needs", "step ids", "true"), ("needs", [1.5], "needs", "step ids", "1.5"),
    ("needs", [["a"]], "needs", "step ids", "a list"), ("needs", {"when": "done"}, "needs", "step ids", "nothing"),
    ("needs", [{"step": "a", "when": "often"}], "needs.when", WHEN, "'often'"),
    ("needs", [{"step": "a", "when": 5}], "needs.when", WHEN, "5"),
    ("title", 5, "title", TEXT, "5"), ("stage", ["x"], "stage", TEXT, "a list"),
    ("critical", "no", "critical", FLAG, "'no'"), ("critical", 1, "critical", FLAG, "1"),
    ("timeout", 0, "timeout", SECONDS, "0"), ("timeout", 1e15, "timeout", SECONDS, "1000000000000000.0"),
    ("timeout", "5", "timeout", SECONDS, "'5'"), ("timeout", True, "timeout", SECONDS, "true"),
    ("retries", -1, "retries", COUNT, "-1"), ("retries", 1.5, "retries", COUNT, "1.5"),
    ("retries", True, "retries", COUNT, "true"), ("retries", 2**63, "retries", COUNT, str(2**63)),
    ("effect", "sometimes", "effect", EFFECT, "'sometimes'"), ("effect", ["once"], "effect", EFFECT, "a list"),
    ("alternatives", [1], "alternatives", NAMES, "a list"),
    ("alternatives", {"a": 1}, "alternatives", NAMES, "a mapping"),
    ("fallback", "x", "fallback", FALLBACK, "'x'"), ("fallback", {"tool": 5}, "fallback.tool", TEXT, "5"),
    ("fallback", {"tool": "t", "args": [1]}, "fallback.args", MAPPING, "a list"),
    ("produces", "f", "produces", "a list of file names", "'f'"),
    ("produces", [1], "produces", "a list of file names", "a list"),
    ("produces", [{"path": ""}], "produces.path", TEXT, "''"), ("produces", [{"path": 5}], "produces.path", TEXT, "5"),
    ("produces", [{"format": "json"}], "produces.path", TEXT, "nothing"),
    ("produces", [{"path": "f", "format": 5}], "produces.format", TEXT, "5"),
    ("produces", [{"path": "f", "check": 5}], "produces.check", TEXT, "5"),
    ("produces", [{"path": "f", "keys": 5}], "produces.keys", NAMES, "5"),
    ("produces", [{"path": "f", "non_empty": 1}], "produces.non_empty", FLAG, "1"),
    ("confirm", 1, "confirm", "true, false, a question, or {text, by, four_eyes}", "1"),
    ("check", [], "check", "{schema, non_empty, keys}", "a list"),
    ("check", {"keys": [1]}, "check.keys", NAMES, "a list"),
    ("check", {"non_empty": "no"}, "check.non_empty", FLAG, "'no'"),
    ("verify", "look", "verify", VERIFY, "'look'"), ("verify", {"args": {}}, "verify", VERIFY, "a mapping"),
    ("verify", {"tool": 5}, "verify", VERIFY, "a mapping"),
    ("verify", {"tool": "look", "args": []}, "verify.args", MAPPING, "a list"),
    ("trust_output", "yes", "trust_output", "true, false or {ignore, suspect}", "'yes'"),
    ("trust_output", {"ignore": 1}, "trust_output.ignore", NAMES, "1"),
    ("trust_output", {"suspect": "x"}, "trust_output.suspect", SIGNS, "'x'"),
    ("trust_output", {"suspect": [1]}, "trust_output.suspect", SIGNS, "a list"),
    ("priority", 1.5, "priority", WHOLE, "1.5"), ("priority", "high", "priority", WHOLE, "'high'"),
    ("priority", True, "priority", WHOLE, "true"), ("priority", 2**63, "priority", WHOLE, str(2**63)),
    ("priority", -(2**63), "priority", WHOLE, str(-(2**63))),
    ("resources", ["gpu"], "resources", AMOUNTS, "a list"),
    ("resources", {"gpu": "one"}, "resources", AMOUNTS, "a mapping"),
    ("resources", {"gpu": -1}, "resources", AMOUNTS, "a mapping"),
    ("resources", {"gpu": 1e15}, "resources", AMOUNTS, "a mapping"),
    ("metadata", 5, "metadata", "a mapping", "5"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "name", "expected", "got"), WRONG)
def test_a_fault_names_the_key_what_it_takes_and_what_it_got(
    key: str, value: Any, name: str, expected: str, got: str
) -> None:
    """P1, P5: one fault for one slip, of that step, and the rest of the step is read as if the key were not there."""
    plan = read_plan([{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", key: value}])
    assert plan.faults == (Fault("BAD_VALUE", f"{name}: expected {expected}, got {got}", "b"),)
    assert plan.steps == (Step("a", "t"), Step("b", "t"))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({"needs": [{"step": "a", "wen": "done"}]}, "UNKNOWN_KEY b unknown key needs.'wen'; did you mean 'when'?"),
        ({"fallback": {"vale": 1, "tool": "t"}}, "UNKNOWN_KEY b unknown key fallback.'vale'; did you mean 'value'?"),
        ({"produces": [{"path": "f", "kind": 1}]}, "UNKNOWN_KEY b unknown key produces.'kind'"),
        ({"check": {"kys": ["a"]}}, "UNKNOWN_KEY b unknown key check.'kys'; did you mean 'keys'?"),
        ({"verify": {"tool": "u", "expct": 1}}, "UNKNOWN_KEY b unknown key verify.'expct'; did you mean 'expect'?"),
        ({"trust_output": {"ignor": []}}, "UNKNOWN_KEY b unknown key trust_output.'ignor'; did you mean 'ignore'?"),
        ({"metadata": {"maxRetrys": 1}}, "UNKNOWN_KEY b unknown key metadata.'maxRetrys'; did you mean 'maxRetries'?"),
        ({"titel": "x"}, "UNKNOWN_KEY b unknown key 'titel'; did you mean 'title'?"),
        ({"title": "x", "description": "y"}, "BAD_VALUE b 'title' is given twice (as 'description' too)"),
        ({"fallback": {}}, "BAD_VALUE b fallback: give either 'value' or 'tool'"),
        ({"fallback": {"value": 1, "tool": "t"}}, "BAD_VALUE b fallback: give either 'value' or 'tool'"),
        (
            {"check": {"schema": {"type": "strin"}}},
            'BAD_VALUE b check.schema: #/type: unknown type "strin"; did you mean "string"?',
        ),
        (
            {"produces": [{"path": "f", "schema": {"type": "strin"}}]},
            'BAD_VALUE b produces.schema: #/type: unknown type "strin"; did you mean "string"?',
        ),
        ({"id": ""}, "BAD_VALUE  the id is empty; give the step a name"),
        ({"id": [1]}, "BAD_VALUE [1] id: expected a text, got a list"),
        ({"id": True}, "BAD_VALUE 1 id: expected a text, got true"),
        ({"tool": ""}, "BAD_VALUE b the step has no 'tool'; name the tool to call"),
        ({"tool": None}, "BAD_VALUE b the step has no 'tool'; name the tool to call"),
    ],
)  # fmt: skip
def test_every_other_fault_of_a_step_in_full(step: dict[str, Any], told: str) -> None:
    """P5: unknown keys by their place, doubled ones, and what contradicts itself."""
    found = read_plan([{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", **step}]).faults
    assert [f"{fault.code} {fault.step} {fault.message}" for fault in found] == [told]


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("timeout", 1e-9, 1e-9), ("timeout", 5, 5.0), ("timeout", 9e14, 9e14), ("retries", 0, 0),
        ("retries", 2**63 - 1, 2**63 - 1), ("priority", 1 - 2**63, 1 - 2**63), ("resources", {"gpu": 0}, {"gpu": 0.0}),
        ("resources", {1: 2}, {"1": 2.0}), ("alternatives", "u", ("u",)), ("fallback", {"value": None}, Fallback()),
        ("fallback", {"value": 0}, Fallback(0)), ("fallback", {"value": None, "tool": "u"}, Fallback(None, "u")),
        ("needs", 0, (Need("a"),)), ("needs", "0", (Need("a"),)), ("needs", [{"id": 0}], (Need("a"),)),
        ("needs", [{"task_id": "a", "condition": "any"}], (Need("a", When.DONE),)), ("confirm", "sure?", "sure?"),
        ("trust_output", {"ignore": "x"}, Trust(("x",))), ("trust_output", {"suspect": ["x"]}, Trust((), ("x",))),
        ("check", {"keys": "k", "non_empty": False}, Check(keys=("k",))), ("title", None, ""),
        ("produces", ["f", {"file": "g", "keys": "k"}], (Produced("f"), Produced("g", keys=("k",)))),
    ],
)  # fmt: skip
def test_what_a_key_takes_is_kept_in_one_form(key: str, value: Any, read: Any) -> None:
    """P1: to the edge of what it takes; a single name is a list of one, a number of seconds a float."""
    plan = read_plan([{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", key: value}])
    assert plan.faults == () and getattr(plan.steps[1], key) == read
    assert type(getattr(plan.steps[1], key)) is type(read)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (5, "a plan is a mapping with 'steps', not 5"), (None, "a plan is a mapping with 'steps', not nothing"),
        ({}, "the plan has no 'steps'; write steps: [{id: …, tool: …}]"),
        ({"steps": "x"}, "'steps' is a list of steps, not 'x'"),
        ({"steps": b"x"}, "'steps' is a list of steps, not bytes"), ({"steps": 5}, "'steps' is a list of steps, not 5"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_told_in_full(data: Any, told: str) -> None:
    """P5: only this is not read at all."""
    with pytest.raises(PlanUnreadable) as refused:
        read_plan(data)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"objective": 5}, "objective: expected a text, got 5"),
        ({"follow_up": 5}, "follow_up: a plan is a mapping with 'steps', not 5"),
        ({"objectiv": "x"}, "unknown key 'objectiv'; did you mean 'objective'?"),
        ({"tasks": []}, "'steps' is given twice (as 'tasks' too)"),
        ({"steps": {"a": {"tool": "t"}, "b": 5}}, "steps[1] is 5; a step is a mapping with 'tool'"),
        ({"steps": [5, {"tool": "t"}]}, "steps[0] is 5; a step is a mapping with 'tool'"),
    ],
)
def test_every_fault_of_a_plan_itself_in_full(plan: dict[str, Any], told: str) -> None:
    """P1, P5: what is wrong is left out, and the rest is read."""
    found = read_plan({"steps": [], **plan})
    code = "UNKNOWN_KEY" if told.startswith("unknown") else "BAD_VALUE"
    assert found.faults == (Fault(code, told),)
    assert found.mcp == {} and found.follow_up is None and found.objective in ("", "5")


def test_a_mapping_under_its_own_names() -> None:
    """P3: another name for a key is put right, unless both are there: then each stays, for whoever lists the faults."""
    assert canonical({"type": "t", "args": 1, "x": 2}) == {"tool": "t", "args": 1, "x": 2}
    assert canonical({"type": "t", "tool": "u"}) == {"type": "t", "tool": "u"}
    assert canonical({"type": "t", "aiName": "u"}) == {"tool": "t", "aiName": "u"}
