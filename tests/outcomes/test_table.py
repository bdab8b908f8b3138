"""docs/concepts.md shows what the code does with a call (X4, V8, E2, E3)."""

from __future__ import annotations

import pytest
from tests.outcomes.table import PAGE, page, row, table
from tests.outcomes.ways import EXCEPTION, GROUPS, LOST, STATUS_REFUSED


def test_x4_the_page_shows_the_table_of_the_code() -> None:
    """X4, E2, E3: `python -m tests.outcomes.table` was run after the last change."""
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run `python -m tests.outcomes.table`"
    assert all(f"| {group} |" in text for group in GROUPS)


def test_x4_the_table_says_what_a_reader_needs() -> None:
    """X4, V8, E2: a lost answer is in doubt without a look, found or settled with one, repeated under its key."""
    after = "in doubt | succeeds | succeeds | ladder | in doubt | in doubt | in doubt | again, same key |"
    assert row(EXCEPTION, LOST).endswith(f"| **lost** | ladder | {after}")
    (refused,) = [line for line in table().splitlines() if line.startswith(f"| {STATUS_REFUSED} |")]
    assert (
        "| **not done** | ladder | ladder | in doubt | succeeds | ladder | ladder | ladder | in doubt | ladder |"
        in refused
    )


def test_x4_a_page_without_its_place_is_refused() -> None:
    """X4: a table that is written nowhere would be out of date unseen."""
    with pytest.raises(ValueError, match="keep one"):
        page("no place")
