"""The tiers beside the recovery benchmark: what they call right, needless and faulty."""

from __future__ import annotations

import random
from typing import Any

import pytest
from benchmarks.recovery.tiers import Weather, expected, is_faulty, workflow

STEPS: list[dict[str, Any]] = [
    {"id": "a", "tool": "t", "args": {}, "depends_on": [], "runtime_s": 2.0},
    {"id": "b", "tool": "t", "args": [1], "depends_on": ["a"], "runtime_s": 3.0},
    {"id": "c", "tool": "u", "args": {}, "depends_on": ["a"], "runtime_s": 1.0},
]
LINE = {"plan_id": "p", "goal": "g", "steps": STEPS}


def test_what_can_be_done_and_how_fast() -> None:
    """X1, X2: everything that is not behind a step that never succeeds; the critical path of that."""
    runtimes = {step["id"]: step["runtime_s"] for step in STEPS}
    assert expected(STEPS, Weather({}, set(), runtimes)) == ({"a", "b", "c"}, 5.0)
    assert expected(STEPS, Weather({}, {"b"}, runtimes)) == ({"a", "c"}, 3.0)
    assert expected(STEPS, Weather({}, {"a"}, runtimes)) == (set(), 0.0)


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_a_workflow_ends_as_it_should_with_no_needless_call(seed: int | None) -> None:
    """X1, H3, H4: fair weather or foul, on virtual time."""
    found = workflow(LINE, None if seed is None else random.Random(seed))
    assert found["right"] and found["wasted"] == 0
    assert found["ratio"] < 1.01


def test_a_plain_look_at_a_plan() -> None:
    """P5: an unknown tool, a need of nobody, a cycle."""
    assert not is_faulty(LINE, {"t", "u"})
    assert is_faulty(LINE, {"t"})
    assert is_faulty({"steps": [{**STEPS[0], "depends_on": ["x"]}]}, {"t"})
    assert is_faulty({"steps": [{**STEPS[0], "depends_on": ["b"]}, STEPS[1]]}, {"t"})
