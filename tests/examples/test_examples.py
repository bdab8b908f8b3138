"""Every example is run as a user would run it, and tells the story it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
README = ROOT / "README.md"

STORIES = {
    "quickstart.py": [
        "completed: 2 steps, all succeeded, after 2 extra attempts",
        "look: succeeded, calls: 3, output: {'sky': 'northern lights over Reykjavik'}",
    ],
    "retry_chain.py": [
        "failed: 1; retried with what depends on it: 1, 2, 3",
        "called: list_files, read_file, read_file",
        "2 process_data  skipped    skipped: upstream step failed - step 1 (read_file): no such file: numbers.txt",
        "run again: 1, 2, 3; keep: 0",
        "called: read_file, process_data, write_result",
        "called: read_file\n",
        "total.txt: 42",
    ],
    "honest_verdict.py": [
        "retry round 1: office-3, office-7",
        "the round   total 2  attempted 2  succeeded 1  failed 1  success_rate 0.5  calls 2",
        "the run     total 10  attempted 10  succeeded 9  failed 1  success_rate 0.9  calls 12",
        "office-5 is missing: disputed",
        "office-5 was called 1 time",
        "status failed, success False",
        "office-3: office 3 has moved",
    ],
    "agent.py": [
        "[sales] North sold 450.",
        "completed: 3 steps, all succeeded, after 1 extra attempt",
        "the plan: read → sum → tell",
        "read failed, model says parameter_error: the table's name was a guess",
        "read: adjusted_arguments {'table': 'sales_2026_10_north'}",
        "the model was asked 2 times, 240 tokens",
    ],
    "reflection.py": [
        "reflection: parameter_error, so adjusted_arguments",
        "adjusted_arguments: {'datasource_id': 'ds_001'}",
        "upload: succeeded by data_upload in call 2",
        "reflection: tool_error, so alternative_tool",
        "process: succeeded by alternative_processor in call 2",
        "reflection: decomposition_error, so repair",
        "reflection: decomposition_error, so replan",
        "new plan (revision 3): clean, features; features need cleaned rows",
        "load: succeeded by load in call 1",
        "features: succeeded by feature_engineering in call 3: {'features': 42}",
        "The mind was asked: repair, replan",
    ],
}


def output_of(name: str) -> str:
    """What an example prints; it must end well and complain about nothing."""
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60, env=plain_env())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def plain_env() -> dict[str, str]:
    """An environment in which Python writes UTF-8 and finds the package, and nothing else is set."""
    import os

    return {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT / "src")}


@pytest.mark.parametrize("name", STORIES)
def test_the_example_tells_its_story(name: str) -> None:
    """It ends with 0, writes nothing to stderr, and prints the lines that matter."""
    said = output_of(name)
    missing = [line for line in STORIES[name] if line not in said]
    assert not missing, said


def test_every_example_has_a_story_and_a_row() -> None:
    """No example is left out of the tests or of the list for readers."""
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == set(STORIES)
    assert names == set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text("utf-8")))


@pytest.mark.parametrize("name", STORIES)
def test_the_example_is_short_and_public(name: str) -> None:
    """At most 120 lines, and nothing of Rerail but its public face and `rerail.testing`."""
    text = (EXAMPLES / name).read_text("utf-8")
    assert len(text.splitlines()) <= 120
    used = re.findall(r"^\s*(?:from|import) (rerail[\w.]*)", text, re.MULTILINE)
    assert used
    assert [one for one in used if one != "rerail" and not one.startswith("rerail.testing")] == []


def test_the_readme_shows_the_quickstart_and_its_real_output() -> None:
    """What stands in the README is the file, and what it prints."""
    blocks = re.findall(r"```(\w+)\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    code = next(text for kind, text in blocks if kind == "python")
    shown = next(text for kind, text in blocks if kind == "text")
    assert code == (EXAMPLES / "quickstart.py").read_text("utf-8")
    assert shown == output_of("quickstart.py")
