"""Every input that is kept is fed to its target, and none may break it: found by `make fuzz`, replayed everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_kept_inputs_break_nothing(name: str) -> None:
    """P5, E5, H5, M1: whatever comes from outside is read, or refused in the words that callers are told of."""
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        try:
            TARGETS[name](file.read_bytes())
        except Exception as error:
            error.add_note(str(file))
            raise


def test_every_folder_has_its_target() -> None:
    """None is kept that nobody replays."""
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
