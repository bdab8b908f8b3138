"""Plans from objectives on the command line, in processes of their own, with a model behind a real socket (P7, M1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Done, Place

from rerail.testing import Answer, ModelServer

FAULTY = {"steps": [{"id": "a", "tool": "shell", "args": {}}, {"id": "b", "tool": "ok", "args": {}, "needs": ["zz"]}]}
GOOD = {
    "steps": [
        {"id": "a", "tool": "ok", "args": {"value": 1}},
        {"id": "b", "tool": "ok", "args": {"value": "${a}"}, "critical": False},
    ],
    "reason": "one after the other",
}


class Planning:
    """The command line with a model's server behind it."""

    def __init__(self, place: Place) -> None:
        self.place, self.server = place, ModelServer()

    def script(self, *answers: Any, **roles: Any) -> ModelServer:
        """What the model will say."""
        self.server.stop()
        self.server = ModelServer({"plan": answers, "judge": [{"complete": True, "reason": ""}] * 3, **roles})
        self.server.start()
        return self.server

    def __call__(self, *words: str, code: int, **environ: str) -> Done:
        given = {
            "RERAIL_MODEL_NAME": "m", "RERAIL_MODEL_BASE_URL": self.server.base_url, "NO_PROXY": "127.0.0.1",
            "RERAIL_MODEL_RETRIES": "0", **environ,
        }  # fmt: skip
        return self.place(*words, "--tools", "toolbox.py", code=code, **given)


@pytest.fixture
def planning(place: Place) -> Iterator[Planning]:
    """A folder with tools, and a model that makes plans."""
    found = Planning(place)
    yield found
    found.server.stop()


def test_a_plan_is_made_and_printed(planning: Planning) -> None:
    """P7: as YAML that can be run, with the caller's objective; nothing is run, and what it cost is said."""
    server = planning.script(GOOD)
    done = planning("plan", "count to two", code=0)
    made = yaml.safe_load(done.out)
    assert made["objective"] == "count to two" and [step["id"] for step in made["steps"]] == ["a", "b"]
    assert made["steps"][1] == {"id": "b", "tool": "ok", "args": {"value": "${a}"}, "critical": False}
    assert "120" in done.err and not planning.place.calls
    (asked,) = server.asked
    assert "count to two" in asked.user and "- send [once]" in asked.user


def test_faults_are_fed_back(planning: Planning) -> None:
    """P7, P5, M1: all of them, a bounded number of times; then the good plan is taken, and written where it belongs."""
    server = planning.script(FAULTY, GOOD)
    done = planning("plan", "count", "-o", "made.json", "--json", code=0)
    assert (done.json["calls"], done.json["tokens"]) == (2, 240)
    second = server.asked[1].user
    assert "unknown tool 'shell'" in second and "zz" in second and "That cannot be used" in second
    written = json.loads((planning.place.folder / "made.json").read_text())
    assert written == done.json["plan"]
    planning("check", "made.json", code=0)
    assert len(server.asked) == 2


def test_planning_that_fails_says_why(planning: Planning) -> None:
    """P7: after the last try, with the faults, and with exit code 2; nothing was run or written."""
    server = planning.script(FAULTY, FAULTY, "no plan at all")
    done = planning("plan", "count", "-o", "made.yaml", code=2)
    assert "no JSON object" in done.err and len(server.asked) == 3
    assert not (planning.place.folder / "made.yaml").exists()
    document = planning("plan", "count", "--json", code=2).json
    assert document["error"]["code"] == "PLANNING_FAILED"


def test_no_model_is_said(place: Place) -> None:
    """M1: with what to set."""
    done = place("plan", "count", "--tools", "toolbox.py", code=2)
    assert "model.name" in done.err


def test_an_objective_is_run(planning: Planning) -> None:
    """P7: plan and run in one go; the calls for the plan are part of the run's history and its budget."""
    server = planning.script(FAULTY, GOOD)
    found = planning("run", "--objective", "count", "--json", code=0).json
    assert (found["success"], found["degraded"], found["objective"]) == (True, False, "count")
    assert found["exec"]["tokens"] == 240 and sorted(planning.place.calls) == ["a", "b"]
    events = planning("logs", found["run_id"], "--json", code=0).json
    calls = [event for event in events if event["type"] == "consulted"]
    assert [bool(call["problem"]) for call in calls] == [True, False]
    accepted = next(event for event in events if event["type"] == "plan_accepted")
    assert accepted["by"] == "model"
    assert [asked.role for asked in server.asked] == ["plan", "plan"], "all succeeded: no judge"


@pytest.mark.parametrize(
    "answers",
    [(FAULTY, FAULTY, FAULTY), (Answer.status(401),), (Answer.web_page(),), ("", "", "")],
    ids=["faulty", "401", "a page", "nothing"],
)
def test_a_fallback_plan_runs_and_says_so(planning: Planning, answers: tuple[Any, ...]) -> None:
    """P7: planning fails, the given plan runs, the verdict is degraded, and the summary and `why` say why."""
    plan = planning.place.plan({"id": "x", "tool": "ok"}, name="second.json")
    planning.script(*answers)
    found = planning("run", "--objective", "count", "--fallback", plan, "--json", code=0).json
    assert (found["success"], found["degraded"], found["status"]) == (True, True, "completed")
    assert planning.place.calls == ["x"]
    assert "the model" in found["summary"]
    assert planning("why", found["run_id"], code=0).out


def test_without_a_fallback_nothing_runs(planning: Planning) -> None:
    """P7: the objective is refused, with why, and there is no run."""
    planning.script(FAULTY, FAULTY, FAULTY)
    done = planning("run", "--objective", "count", code=2)
    assert "unknown tool 'shell'" in done.err and not planning.place.calls
    assert planning("ls", "--json", code=0).json == []


def test_a_fallback_plan_is_checked_first(planning: Planning) -> None:
    """P5: before the model is paid for a plan."""
    plan = planning.place.plan({"id": "x", "tool": "nowhere"}, name="second.json")
    server = planning.script(GOOD)
    done = planning("run", "--objective", "count", "--fallback", plan, code=2)
    assert "nowhere" in done.err and not server.asked


def test_a_fallback_plan_runs_without_any_model(place: Place) -> None:
    """P7, M1: planning fails where there is nobody to plan, too."""
    plan = place.plan({"id": "x", "tool": "ok"}, name="second.json")
    found = place("run", "--objective", "count", "--fallback", plan, "--tools", "toolbox.py", "--json", code=0).json
    assert (found["success"], found["degraded"], place.calls) == (True, True, ["x"])


def test_either_a_plan_or_an_objective(planning: Planning) -> None:
    """SPEC 12: not both, not neither."""
    plan = planning.place.plan({"id": "x", "tool": "ok"})
    for words in (("run",), ("run", plan, "--objective", "count")):
        planning(*words, code=2)
    assert not planning.place.calls


def test_no_plan_is_made_past_the_budget(planning: Planning) -> None:
    """H4: a run that may spend nothing spends nothing on its plan."""
    server = planning.script(GOOD)
    done = planning("run", "--objective", "count", "--set", "run.max_tokens=0", code=2)
    assert "budget" in done.err and not server.asked


# -- Prompts -----------------------------------------------------------------------------------------------------------


def test_prompts_are_files_that_can_be_changed(planning: Planning) -> None:
    """M1: eject copies them, a changed one is what the server gets, and `show` says which is whose."""
    folder = planning.place.folder / "mine"
    planning.place("prompts", "eject", "mine", code=0)
    assert sorted(path.name for path in folder.iterdir()) == [
        "judge.md",
        "plan.md",
        "reflect.md",
        "repair.md",
        "replan.md",
    ]
    (folder / "plan.md").write_text("Always plan a single step.\n---\nGoal: {{objective}}\nWith: {{tools}}\n")
    server = planning.script(GOOD)
    planning("plan", "count", "--set", "model.prompts=mine", code=0)
    (asked,) = server.asked
    assert asked.system.startswith("Always plan a single step.") and asked.user.startswith("Goal: <data ")
    rows = planning.place("prompts", "--set", "model.prompts=mine", "--json", code=0).json
    assert {row["role"]: row["source"] == "rerail" for row in rows} == dict.fromkeys(
        ("plan", "reflect", "repair", "replan", "judge"), False
    )
    shown = planning.place("prompts", "show", "plan", "--set", "model.prompts=mine", code=0)
    assert shown.out.startswith("Always plan a single step.")


def test_eject_overwrites_nothing_unasked(place: Place) -> None:
    """M1: what somebody changed stays, unless --force is given."""
    place("prompts", "eject", code=0)
    (place.folder / "prompts" / "plan.md").write_text("mine")
    done = place("prompts", "eject", code=2)
    assert "plan.md" in done.err and (place.folder / "prompts" / "plan.md").read_text() == "mine"
    place("prompts", "eject", "--force", code=0)
    assert "You write plans" in (place.folder / "prompts" / "plan.md").read_text()


def test_a_bad_prompt_is_refused_before_anything_runs(planning: Planning) -> None:
    """M1, SPEC 11: with the file and the gap."""
    folder = planning.place.folder / "mine"
    folder.mkdir()
    (folder / "judge.md").write_text("x\n---\n{{outptus}}")
    (planning.place.folder / "rerail.toml").write_text('[model]\nprompts = "mine"\n')
    server = planning.script(GOOD)
    done = planning("plan", "count", code=2)
    assert "judge.md" in done.err and "outptus" in done.err and not server.asked


def test_prompts_that_are_not_there(place: Place) -> None:
    """SPEC 12: clear refusals."""
    assert "judge" in place("prompts", "show", "poet", code=2).err
    assert place("prompts", "burn", code=2).err
    assert place("prompts", "--set", "model.prompts=nowhere", code=2).err
