"""The house gets smaller and plainer, never larger: numbers on record that only fall (measures.py, measures.json)."""

from __future__ import annotations

import pytest
from tests.architecture import measures


@pytest.fixture(scope="module")
def moving() -> dict[str, int]:
    """What is counted while something runs."""
    return measures.moving_alone()


@pytest.fixture(scope="module")
def standing() -> dict[str, int]:
    """What is counted in the files."""
    return measures.standing()


MOVING = [name for name in measures.recorded() if "_of_" in name and name != "probes_of_ports"]


@pytest.mark.parametrize("name", [name for name in measures.recorded() if name not in MOVING])
def test_a_number_of_the_files_only_falls(standing: dict[str, int], name: str) -> None:
    """What was added anywhere has to be taken away elsewhere."""
    told = measures.verdict(name, standing[name], measures.recorded()[name])
    assert not told, told


@pytest.mark.parametrize("name", MOVING)
def test_a_number_of_what_runs_only_falls(moving: dict[str, int], name: str) -> None:
    """A step, a command: functions and files that are entered, engines opened, heads read."""
    assert moving[name] > 0, "nothing was counted: the hook counts something that is not there any more"
    told = measures.verdict(name, moving[name], measures.recorded()[name], slack=measures.recorded()[name] // 100)
    assert not told, told


def test_a_number_that_changes_is_told() -> None:
    """One more is too many; one or a few fewer are fine; many fewer have to be recorded."""
    assert "grew" in measures.verdict("lines", 101, 100)
    assert not measures.verdict("lines", 100, 100)
    assert not measures.verdict("lines", 96, 100)
    assert "--lower" in measures.verdict("lines", 90, 100)
    assert not measures.verdict("engines", 1, 2)


def test_probes_of_ports_are_seen() -> None:
    """With a default, on what is called like a port, however it is reached; other objects are let be."""
    assert measures.probes("getattr(tool, 'direct', False) or getattr(self._host.store, 'x', ())") == 2
    assert measures.probes("getattr(getattr(error, 'response', error), 'headers', None)") == 2
    assert measures.probes("hasattr(self.mind, 'x')") == 1
    assert measures.probes("getattr(event, 'step', ''), getattr(tool, name), tool.direct") == 0


def test_names_and_lengths_are_seen() -> None:
    """Public classes of the same name in two modules; a function with its decorators."""
    assert measures.twice({"a.py": "class A: ...\nclass _B: ...", "b.py": "class A: ...\nclass _B: ..."}) == ["A"]
    assert measures.longest_function("@d\ndef f():\n    x = 1\n    return x\n") == 4
    assert measures.WORDS.findall("Somebody who is whose") == ["Somebody", "whose"]
