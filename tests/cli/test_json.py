"""`--json`: one document on stdout and nothing else, from every command (I7)."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Here, Place


def test_a_tool_that_prints_does_not_touch_the_document(place: Place) -> None:
    """I7: what tools print, write to the descriptor or let their children print, goes to stderr."""
    plan = place.plan({"id": "a", "tool": "noisy"})
    found = place("run", plan, "--tools", "toolbox.py", "--json", code=0)
    assert found.json["steps"]["a"]["output"] == {"quiet": True}
    for line in ("printed", "written", "from a child"):
        assert line in found.err
        assert line not in found.out


def test_a_tools_file_that_prints_does_not_either(place: Place) -> None:
    """I7: loading tools runs their file; what it prints goes to stderr as well."""
    (place.folder / "loud.py").write_text("print('loaded')\nimport toolbox\nTOOLS = [toolbox.ok]\n")
    found = place("tools", "--tools", "loud.py", "--json", code=0)
    assert [row["name"] for row in found.json] == ["ok"]
    assert "loaded" in found.err


EVERY = [
    ("run", "plan.json", "--tools", "toolbox.py"),
    ("start", "plan.json", "--tools", "toolbox.py"),
    ("check", "plan.json"),
    ("check", "plan.json", "--tools", "toolbox.py"),
    ("ls",),
    ("show", "RUN"),
    ("show", "RUN", "--output", "a"),
    ("logs", "RUN"),
    ("logs", "RUN", "--tail", "2"),
    ("logs", "RUN", "--follow"),
    ("watch", "RUN"),
    ("why", "RUN"),
    ("why", "RUN", "a"),
    ("graph", "RUN"),
    ("graph", "plan.json"),
    ("graph", "RUN", "--mermaid"),
    ("artifacts", "RUN"),
    ("artifacts", "RUN", "a"),
    ("retry", "RUN"),
    ("retry", "RUN", "--force", "--step", "a"),
    ("retry", "RUN", "--force", "--step", "a", "--dry-run"),
    ("retry", "RUN", "--clean", "--yes"),
    ("retry", "--all-failed"),
    ("resume", "RUN"),
    ("skip", "RUN", "a"),
    ("cancel", "RUN"),
    ("pause", "RUN"),
    ("confirm", "RUN"),
    ("resolve", "RUN", "a", "--failed"),
    ("add", "RUN", "plan.json"),
    ("config",),
    ("tools", "--tools", "toolbox.py"),
    ("doctor",),
    ("doctor", "--repair"),
    ("prune", "--older-than", "30d"),
    ("prune", "--older-than", "0s", "--yes"),
    ("prune", "--older-than", "0s", "--dry-run"),
    ("prune",),
    ("backup", "copy.db"),
    ("backup", "."),
    ("nonsense",),
    ("ls", "--nonsense"),
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_prints_one_document(here: Here, words: tuple[str, ...]) -> None:
    """I7: a result, or an error with its code; never both, never anything else."""
    run = here.run({"id": "a", "tool": "ok", "args": {"value": {"a": 1}}}, code=0)
    found = here(*(run if word == "RUN" else word for word in words), "--json")
    document = json.loads(found.out)
    if found.code:
        assert document["error"]["code"]
        assert document["error"]["message"] in found.err


def test_errors_are_documents_too(here: Here) -> None:
    """I7, P5: every fault of a plan is in the document, and the exit code is kept."""
    plan = here.place.plan({"id": "a", "tool": "nix"}, {"id": "b", "tool": "ok", "needs": ["c"]})
    error = here("run", plan, "--tools", "toolbox.py", "--json", code=2).json["error"]
    assert error["code"] == "PLAN_INVALID"
    assert {fault["code"] for fault in error["faults"]} == {"UNKNOWN_TOOL", "UNKNOWN_NEED"}


def test_a_run_and_show_give_the_same_object(here: Here) -> None:
    """SPEC 12: `result.to_dict()` is what `--json` prints, for a live or finished run."""
    plan = here.place.plan({"id": "a", "tool": "ok"}, {"id": "b", "tool": "fail", "needs": ["a"]})
    ran = here("run", plan, "--tools", "toolbox.py", "--json", code=1).json
    shown = here("show", ran["run_id"], "--json", code=0).json
    assert {key: shown[key] for key in ran} == ran


def test_the_language_changes_no_document(here: Here) -> None:
    """T12: codes and JSON never change with the language."""
    run = here.run({"id": "a", "tool": "late"}, {"id": "b", "tool": "ok", "needs": ["a"]}, code=1)
    for words in (("show", run), ("why", run, "a"), ("logs", run)):
        assert here(*words, "--json", "--lang", "zh", code=0).json == here(*words, "--json", code=0).json
