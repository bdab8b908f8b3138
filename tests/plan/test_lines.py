"""P5: the faults of a plan file name their lines, in YAML and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rerail
from rerail.plan.model import Plan

YAML = """\
objective: ship
stepz: 1
steps:
  - id: fetch
    tool: fetch
    needs: [send]
    retrys: 3
  - id: send
    tool: sent
    args:
      to: ${nobody.name}
    timeout: soon
    needs:
      - fetch
  - tool: fetch
    needs: [nowhere]

  - id: fetch
    tool: fetch
    needs: [no one]
    retrys: 3
follow_up:
  steps:
    - id: send
      tool: fetch
    - id: late
      tool: other
"""


@rerail.tool
def fetch() -> None:
    """Fetch."""


@rerail.tool
def send(to: str) -> None:
    """Send."""


def lines(source: Path) -> set[tuple[str, str]]:
    """Return the codes of the faults with their places."""
    return {(fault.code, fault.place) for fault in Plan.load(source).check([fetch, send])}


def test_faults_of_a_yaml_file_name_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the key, else of the step; of the step itself, if two have an id; inside of what follows, too."""
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(YAML)
    assert lines(Path("plan.yaml")) == {
        ("UNKNOWN_KEY", "plan.yaml:2"), ("UNKNOWN_KEY", "plan.yaml:7"), ("BAD_VALUE", "plan.yaml:12"),
        ("DUPLICATE_ID", "plan.yaml:18"), ("UNKNOWN_TOOL", "plan.yaml:8"), ("UNKNOWN_REFERENCE", "plan.yaml:8"),
        ("UNKNOWN_NEED", "plan.yaml:15"), ("CYCLE", "plan.yaml:4"), ("UNKNOWN_TOOL", "plan.yaml:26"),
        ("UNKNOWN_NEED", "plan.yaml:18"), ("UNKNOWN_KEY", "plan.yaml:21"),
    }  # fmt: skip


def test_faults_of_a_json_file_name_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tabs, escapes, and steps by their ids."""
    monkeypatch.chdir(tmp_path)
    steps = {'a\u00e9"': {"tool": "fetch", "bad": 1}, "b": {"tool": "nowhere", "title": "\ud83d\ude00/"}}
    Path("plan.json").write_text(json.dumps({"steps": steps}, indent="\t"))
    assert lines(Path("plan.json")) == {("UNKNOWN_KEY", "plan.json:5"), ("UNKNOWN_TOOL", "plan.json:7")}
    Path("list.json").write_text('[{"tool": "fetch"},\n{"tool": "nowhere"}]')
    assert lines(Path("list.json")) == {("UNKNOWN_TOOL", "list.json:2")}


def test_the_place_is_said_and_in_the_data(tmp_path: Path) -> None:
    """In the refusal of a start as well; a plan from a dict or a text has no place."""
    file = tmp_path / "plan.yaml"
    file.write_text("steps:\n  - id: a\n    tool: nowhere\n")
    with pytest.raises(rerail.PlanError) as refused:
        rerail.run(str(file), [fetch])
    assert f"{file}:2: step 'a': unknown tool 'nowhere'" in refused.value.message
    assert f"{file}:2：" in refused.value.message_in("zh")
    assert refused.value.to_dict()["error"]["faults"][0]["place"] == f"{file}:2"
    for source in (file.read_text(), {"steps": [{"id": "a", "tool": "nowhere"}]}):
        [fault] = Plan.load(source).check([fetch])
        assert "place" not in fault.to_dict() and fault.place == ""


@pytest.mark.parametrize("later", ["", "{", "- " * 3000, "just a text", "steps: {a: 1}", "[1, [2]]"])
def test_a_file_that_changed_meanwhile_costs_the_lines_only(tmp_path: Path, later: str) -> None:
    """The faults stay."""
    file = tmp_path / "plan.yaml"
    file.write_text("steps:\n  - id: a\n    tool: nowhere\n")
    plan = Plan.load(file)
    file.write_text(later)
    assert [fault.code for fault in plan.check([fetch])] == ["UNKNOWN_TOOL"]
    file.unlink()
    assert [fault.code for fault in plan.check([fetch])] == ["UNKNOWN_TOOL"]
