"""Plans made by a model, on the command line: made and shown, run, and done without (P7, M1)."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Here

from rerail.plans import Plan
from rerail.testing import ModelServer

MADE = {"steps": [{"id": "hello", "tool": "ok", "args": {"value": "hi"}}], "reason": "one is enough"}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def words(server: ModelServer) -> tuple[str, ...]:
    """What every command needs to know about the model."""
    return (
        "--tools", "toolbox.py", "--set", "model.name=script", "--set", f"model.base_url={server.base_url}",
        "--set", "model.max_reasks=0", "--set", "evaluation.judge=false",
    )  # fmt: skip


def test_a_plan_is_made_and_not_run(here: Here) -> None:
    """P7: written to a file, in words that can be checked and run."""
    with ModelServer({"plan": [MADE]}) as server:
        done = here("plan", "Say hello", "-o", "made.yaml", *words(server), code=0)
    assert "1 step, 1 call of the model" in done.err and "rerail run made.yaml" in done.err
    assert Plan.load(here.place.folder / "made.yaml").objective == "Say hello"
    assert here.place.calls == []
    here("check", "made.yaml", "--tools", "toolbox.py", code=0)


def test_an_objective_is_run(here: Here) -> None:
    """P7: the model's plan, checked like any other."""
    with ModelServer({"plan": [MADE]}) as server:
        found = here("run", "--objective", "Say hello", *words(server), "--json", "-q", code=0).json
    assert (found["objective"], found["steps"]["hello"]["output"]) == ("Say hello", "hi")
    assert not found["degraded"]


def test_the_fallback_plan_runs_if_none_is_made(here: Here) -> None:
    """P7, V4: and the verdict says so; without one nothing is run."""
    plan = here.place.plan({"id": "a", "tool": "ok"})
    with ModelServer({"plan": ["no plan at all", "no plan at all"]}) as server:
        given = ("run", "--objective", "Say hello", *words(server), "--json", "-q")
        found = here(*given, "--fallback", plan, code=0).json
        assert found["degraded"] and "fallback plan" in found["summary"]
        refused = here(*given, code=2).json
    assert refused["error"]["code"] == "PLANNING_FAILED"
    assert here.place.calls == ["a"]


def test_without_a_model_there_is_no_plan(here: Here) -> None:
    """M1: everything else works without one, and this says what is missing."""
    assert here("plan", "Say hello", "--json", code=2).json["error"]["code"] == "NO_MODEL"
