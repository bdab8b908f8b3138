"""Every interface answers as it did: the recorded fields and values are all there; new ones may come (I7)."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, get_args

import pytest
from tests.recorded.compare import Difference, compared, differences, paths
from tests.recorded.files import read, written
from tests.recorded.gone import GONE
from tests.recorded.play import play

from rerail.kernel.events import Event

RECORDED = read()
EVERY = [(file, answer) for file, answers in RECORDED.items() for answer in answers]
# Event types that no recorded run has, each with the reason.
UNSEEN = {
    "artifact_lost": "a content expires after hours",
    "audited": "the runs that are looked at before refuse nothing for want of rights",
    "plan_rejected": "the adapter finds the faults of a model's answer first, and asks again",
}

pytestmark = pytest.mark.xdist_group("recorded")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is answered now."""
    return play(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize(("file", "answer"), EVERY, ids=[f"{file}: {answer}"[:100] for file, answer in EVERY])
def test_an_answer_is_as_it_was(played: dict[str, dict[str, Any]], file: str, answer: str) -> None:
    """Nothing that was answered is missing or different, but for what is gone on purpose."""
    found = compared({file: {answer: RECORDED[file][answer]}}, played)
    assert not found, "\n".join(map(str, found))


def test_every_answer_is_recorded(played: dict[str, dict[str, Any]]) -> None:
    """An answer that the scenario brings is on record: else the next change of it would not be seen."""
    new = [
        f"{file}: {answer}" for file, answers in played.items() for answer in answers if answer not in RECORDED[file]
    ]
    assert not new, f"record them with python -m tests.recorded: {new}"


def test_what_is_gone_was_there() -> None:
    """An entry of `gone.py` stands for something on record, and says why it is gone."""
    known = list(paths(RECORDED))
    for pattern, reason in GONE.items():
        assert len(reason.split()) >= 3, pattern
        assert any(fnmatchcase(path, pattern) for path in known), f"nothing on record is called {pattern}"


def test_the_runs_have_every_kind_of_event() -> None:
    """Each event type is on record, or is listed with the reason."""
    seen = {event["type"] for answer in RECORDED["events"].values() for event in answer["out"]}
    assert seen | set(UNSEEN) == {kind.__struct_config__.tag for kind in get_args(Event)}
    assert not seen & set(UNSEEN)


def test_differences_are_found() -> None:
    """A renamed or lost field, another value, another type, a longer list; an added field is no difference."""
    before = {"code": "TIMEOUT", "steps": [{"id": "a", "n": 1}], "said": "it took too long"}
    assert differences(before, {**before, "more": 1, "steps": [{"id": "a", "n": 1, "new": None}]}) == []
    renamed = {"kode": "TIMEOUT", "steps": [{"id": "a", "n": True}], "said": "it took a while"}
    found = differences(before, renamed)
    assert [one.path for one in found] == ["/code", "/steps/0/n", "/said"]
    assert [one.of_words for one in found] == [False, False, True]
    assert [one.path for one in differences(before, {**before, "steps": []})] == ["/steps"]
    assert str(Difference("/x", 1, 2)) == "/x: was 1, is 2"


def test_the_files_hold_no_trace_of_a_machine() -> None:
    """No times, folders or processes: a play on another machine is recorded alike."""
    text = "\n".join(written(answers) for answers in RECORDED.values())
    for pattern in (r"\b1[6-9]\d{8}\b", r"site-packages", r"python3\.\d"):
        assert not re.findall(rf".*{pattern}.*", text), pattern
