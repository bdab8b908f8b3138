"""The recovery benchmark itself: its world, its cases, its oracle, its measures, and the facts that it stands for.

Runs in the environments that `make bench-recovery` makes. Where `bfcl-eval` cannot be installed the tests that need the
world skip and say so; in CI that is a failure.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.recovery import report
from benchmarks.recovery.__main__ import Bench, tables
from benchmarks.recovery.chart import chart
from benchmarks.recovery.client import World
from benchmarks.recovery.drive import ROOT, Contender, Seen, world_process
from benchmarks.recovery.faults import GROUPS, KINDS, Case, Draw, Fault, wrong
from benchmarks.recovery.lineup import ALL, MAIN
from benchmarks.recovery.measure import Measured, measured, outcome
from benchmarks.recovery.plans import filled, plan_of

pytestmark = pytest.mark.xdist_group("recovery")

RERAIL = {one.name: one for one in MAIN}
LOOP = next(one for one in ALL if one.name == "tenacity loop")
SAMPLE = (
    "none",
    "connection",
    "permanent",
    "body_permanent",
    "silent_noop",
    "lost_answer",
    "kill_after",
    "renamed_tool",
)


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    """A world, in its own environment."""
    with (ROOT / ".venv-bench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes them, however many run tests
        made = subprocess.run(
            ["make", "-s", ".venv-bench-world/.installed", ".venv-bench-loop/.installed"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if made.returncode:
        pytest.skip(f"the environments of the recovery benchmark cannot be made: {made.stderr[-300:]}")
    with world_process(("base",)) as found:
        yield found


@pytest.fixture(scope="module")
def bench(path: str) -> Bench:
    """Two cases of each kind of the sample."""
    return Bench(path, 7, 2, SAMPLE)


def by_group(measures: list[Measured]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for one in measures:
        found.setdefault(one.group, []).append(one)
    return found


# -- The facts ------------------------------------------------------------------------------------------------------


def test_rerail_never_says_success_when_it_is_none_but_for_what_nobody_can_see(bench: Bench) -> None:
    """V1, X9, E3: false success 0 but for silent no-ops; nothing that must happen once happens twice; no extra call
    where nothing fails; a permanent error costs one call."""
    found = by_group(bench.measure(RERAIL["Rerail"]))
    for group, measures in found.items():
        for one in measures:
            assert one.duplicates == 0, one
            assert one.outcome != "false_success" or group == "silent_noop", one
    assert {one.outcome for one in found["none"]} == {"correct"}
    # An exception inside a function tells nothing of an effect that must not happen twice: a person is asked (X4).
    for one in (*found["connection"], *found["permanent"], *found["renamed_tool"]):
        assert one.outcome == "correct" or (one.outcome == "waiting" and one.effect == "once"), one
    assert sum(one.redone + one.hopeless + one.below for one in found["none"]) == 0
    assert sum(one.hopeless for one in found["permanent"]) == 0
    assert {one.outcome for one in found["lost_answer"] if one.effect == "once"} == {"waiting"}
    assert {one.outcome for one in found["silent_noop"]} != {"correct"}, "nobody can see these without a look"


def test_with_verify_every_case_of_the_sample_ends_as_the_oracle_has_it(bench: Bench) -> None:
    """V8, E1, E3: silent no-ops, lost answers and kills included, with no effect twice."""
    measures = bench.measure(RERAIL["Rerail, verify"])
    assert [one for one in measures if one.outcome != "correct"] == []
    assert sum(one.duplicates for one in measures) == 0
    assert sum(one.kills for one in measures) >= 2, "the kills were real"


def test_a_truthful_answer_is_all_that_rerail_waits_for(bench: Bench) -> None:
    """E3, X7: whoever looks and says what happened gets the run to its end."""
    found = by_group(bench.measure(RERAIL["Rerail, answered"]))
    assert {one.outcome for group in ("lost_answer", "kill_after") for one in found[group]} == {"correct"}
    assert sum(one.asked for group in found.values() for one in group) > 0


def test_the_loop_is_a_fair_one_and_still_does_things_twice(bench: Bench) -> None:
    """The peer is no straw man: it does all that can be done without knowing of effects."""
    found = by_group(bench.measure(LOOP))
    for group in ("none", "connection", "permanent", "renamed_tool"):
        assert {one.outcome for one in found[group]} == {"correct"}, group
    assert sum(one.duplicates for group in found.values() for one in group) > 0


def test_a_contender_that_cannot_run_is_no_result(bench: Bench) -> None:
    """An import that fails must not look like an engine that failed."""
    broken = Contender("broken", "benchmarks.recovery.contenders.dbos_workflow", "loop")
    with pytest.raises(RuntimeError, match="cannot run"):
        bench.run(broken)


# -- The world ------------------------------------------------------------------------------------------------------


def test_cases_are_drawn_by_the_seed_alone(path: str) -> None:
    """The same seed gives the same cases, whatever else is drawn; another seed gives others."""
    with World(path, "") as world:
        facts = world.ask("facts")

        def drawn(seed: int, group: str) -> list[Case]:
            return list(Draw(facts["tasks"], facts["effects"], seed, world).cases(group, 4))

        assert drawn(1, "connection") == drawn(1, "connection")
        assert drawn(1, "connection") != drawn(2, "connection")
        changes = {(task["id"], step["id"]): step["changes"] for task in facts["tasks"] for step in task["steps"]}
        for case in drawn(1, "silent_noop"):
            assert changes[case.task, case.faults[0].step], "a no-op of what does nothing is no fault"


def test_a_wrong_argument_is_one_that_the_tool_refuses_and_a_missing_step_one_that_is_noticed(path: str) -> None:
    """Cases that test nobody are not drawn."""
    with World(path, "") as world:
        facts = world.ask("facts")
        tasks = {task["id"]: task for task in facts["tasks"]}
        draw = Draw(facts["tasks"], facts["effects"], 3, world)
        for case in draw.cases("wrong_argument", 4):
            fault = case.faults[0]
            step = next(one for one in tasks[case.task]["steps"] if one["id"] == fault.step)
            args = {**step["args"], fault.argument: fault.value}
            assert world.ask("refuses", task=case.task, step=step["id"], args=args)
            assert not world.ask("refuses", task=case.task, step=step["id"], args=step["args"])
        for case in draw.cases("missing_prerequisite", 4):
            assert world.ask("noticed", task=case.task, step=case.faults[0].step)


def test_the_world_says_too_many_requests_until_its_time_is_over(path: str) -> None:
    """A contender that does not wait as long as it was asked to does not get through by calling again."""
    with World(path, "") as world, World(path, "429") as case:
        task = world.ask("facts")["tasks"][0]
        step = task["steps"][0]
        case.ask("open", task=task["id"], faults=[Fault(step["id"], "http_429").to_dict()])
        answers = []
        for _ in range(2):
            with pytest.raises(Exception, match="429") as told:
                case.call(step["id"], step["tool"], step["args"])
            answers.append(told.value)
        assert case.ask("truth", step=step["id"]) == {"done": False, "answer": None}
        assert [call["fault"] for call in case.ask("end")["calls"]] == ["http_429", "http_429"]


# -- Plans, measures, report ----------------------------------------------------------------------------------------

STEPS: list[dict[str, Any]] = [
    {"id": "s0", "tool": "make", "home": "A", "args": {"n": 1}, "needs": [], "refs": {}, "changes": True},
    {"id": "s1", "tool": "read", "home": "A", "args": {"id": "x77"}, "needs": ["s0"], "refs": {"id": ["s0", "id"]}},
    {"id": "s2", "tool": "make", "home": "A", "args": {"n": 2}, "needs": ["s1"], "refs": {}, "changes": True},
]
TASK = {"id": "t", "steps": STEPS}
EFFECTS = {"make": "once", "read": "read"}


def case_of(*faults: Fault) -> Case:
    return Case("c-0", "t", "task-1", "none", "once", faults)


def test_the_plan_of_a_case_holds_the_faults_that_are_in_plans() -> None:
    """Renamed with its alternative, a wrong value instead of a reference, a step that is not there."""
    plain = plan_of(case_of(), TASK, EFFECTS)
    assert plain[1]["args"] == {"id": {"$ref": ["s0", "id"]}}
    assert filled(plain[1]["args"], {"s0": {"id": "x77"}}) == {"id": "x77"}
    with pytest.raises(KeyError):
        filled(plain[1]["args"], {"s0": {}})
    renamed = plan_of(case_of(Fault("s0", "renamed_tool")), TASK, EFFECTS)
    assert (renamed[0]["tool"], renamed[0]["alternatives"]) == ("make_v1", ["make"])
    mistaken = plan_of(case_of(Fault("s1", "wrong_argument", argument="id", value="<id>")), TASK, EFFECTS)
    assert mistaken[1]["args"] == {"id": "<id>"}
    missing = plan_of(case_of(Fault("s1", "missing_prerequisite")), TASK, EFFECTS)
    assert [(step["id"], step["needs"]) for step in missing] == [("s0", []), ("s2", ["s0"])]


def test_wrong_values_are_wrong_and_of_the_same_type() -> None:
    """Mistyped, made up or not filled in."""
    import random

    chance = random.Random(5)
    texts = {wrong("booking_id", "3426812", chance) for _ in range(40)}
    assert "3426812" not in texts and "<booking_id>" in texts
    assert all(isinstance(wrong("n", 12345, chance), int) for _ in range(10))


def call(step: str, **facts: Any) -> dict[str, Any]:
    tool = next(one["tool"] for one in STEPS if one["id"] == step)
    args = next(one["args"] for one in STEPS if one["id"] == step)
    plain = {"step": step, "tool": tool, "args": args, "at": 0.0, "until": 0.0, "pid": 1, "fault": "",
             "effect": tool == "make", "done": True, "told": True}  # fmt: skip
    return {**plain, **facts}


FAILED = {"effect": False, "done": False, "told": False}


def seen(*calls: dict[str, Any], status: str = "success", state: str = "right") -> Seen:
    return Seen(case_of(), "who", status, state, list(calls), 0, 0.1)


ORACLE = seen(call("s0"), call("s1"), call("s2"))


def test_an_outcome_goes_by_the_world_and_not_by_what_is_said() -> None:
    """V1: five ways to end, each exactly one."""
    assert outcome(ORACLE, ORACLE) == "correct"
    assert outcome(seen(call("s0"), call("s1"), call("s2"), state="wrong"), ORACLE) == "false_success"
    unread = seen(call("s0"), call("s1", **FAILED), call("s2"))
    assert outcome(unread, ORACLE) == "false_success", "a step that was never done, though the state is right"
    assert outcome(replace(ORACLE, status="failed"), ORACLE) == "false_failure"
    assert outcome(replace(unread, status="failed"), ORACLE) == "honest_failure"
    assert outcome(replace(ORACLE, status="waiting"), ORACLE) == "waiting"
    hopeless = seen(call("s0"), status="failed")
    assert outcome(hopeless, hopeless) == "correct"
    assert outcome(replace(hopeless, status="success"), hopeless) == "false_success"


def test_needless_calls_are_told_apart() -> None:
    """Successes done again, tries that could not help, calls below a step that is not done."""
    again = measured(seen(call("s0"), call("s0"), call("s1"), call("s2")), ORACLE, TASK, EFFECTS)
    assert (again.redone, again.hopeless, again.below, again.duplicates) == (1, 0, 0, 1)
    failing = seen(call("s0"), call("s1", **FAILED), call("s1", **FAILED), call("s2"), call("s2"))
    found = measured(failing, ORACLE, TASK, EFFECTS)
    assert (found.redone, found.hopeless, found.below) == (1, 1, 0)
    stopped = seen(call("s0"), status="failed")
    below = measured(seen(call("s0"), call("s2"), status="failed"), stopped, TASK, EFFECTS)
    assert (below.redone, below.hopeless, below.below) == (0, 0, 1)


def test_waiting_and_what_was_run_again_after_a_kill() -> None:
    """Only waits within one process count, and only steps whose answer was heard are run again for nothing."""
    first = call("s0", at=1.0, until=1.1, **FAILED)
    waited = measured(seen(first, call("s0", at=1.6, until=1.7)), ORACLE, TASK, EFFECTS)
    assert waited.waited == pytest.approx(0.5)
    killed = seen(call("s0"), call("s1", told=False), call("s0", pid=2), call("s1", pid=2), call("s2", pid=2))
    assert measured(killed, ORACLE, TASK, EFFECTS).rerun == 1


def test_what_the_plan_wants_twice_is_no_duplicate() -> None:
    """By tool and arguments, under whatever step's name."""
    twice = seen(call("s0"), {**call("s0"), "step": "s9"})
    assert measured(twice, twice, TASK, EFFECTS).duplicates == 0
    assert measured(seen(call("s0"), {**call("s0"), "step": "s9"}), ORACLE, TASK, EFFECTS).duplicates == 1


def rows(*outcomes: str, contender: str = "Rerail") -> list[Measured]:
    plain = measured(ORACLE, ORACLE, TASK, EFFECTS)
    return [
        replace(plain, contender=contender, outcome=outcome, base=f"task-{number // 2}", group=group)
        for number, outcome in enumerate(outcomes)
        for group in ("none", "kill_after")
    ]


def test_intervals_are_by_base_task_and_hold_the_share() -> None:
    """Cases on one task are no independent samples: the interval is wider than theirs would be."""
    found = report.results(rows("correct", "correct", "waiting", "waiting", "correct", "correct"), 1)["Rerail"]["all"]
    share = found["correct"]
    assert share == {"share": pytest.approx(2 / 3, abs=1e-3), "low": 0.0, "high": 1.0}


def test_the_report_says_what_was_measured() -> None:
    """Tables, JSON and a chart that is XML, readable in both themes."""
    found = report.results(rows("correct", "false_success") + rows("waiting", "correct", contender="DBOS"), 1)
    text = tables({"cases": 4, "per_kind": 2, "seed": 1, "minutes": 0.1}, found)
    assert "| Rerail | 50.0" in text and "kill_after, once" in text
    kept = json.loads(report.compact({"seed": 1}, found))
    assert {"who": "Rerail", "group": "none", "cases": 2}.items() <= next(
        row for row in kept["rows"] if row["who"] == "Rerail" and row["group"] == "none"
    ).items()
    picture = chart(found, "How <it> ended")
    assert "prefers-color-scheme:dark" in picture
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert {"silent_noop", "3 faults", "rate 0.4"} < set(GROUPS) and set(KINDS) < set(GROUPS)
