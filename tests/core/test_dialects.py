"""Plans as others write them load as they are (P3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rerail.core.dialects import read_steps
from rerail.core.plan import Fault, Need, Step, When
from rerail.errors import PlanError
from rerail.plans import Plan


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
