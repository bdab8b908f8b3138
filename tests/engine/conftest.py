"""Gaps that are known and not yet closed: tests that fail today, strictly. One that passes must go from here."""

from __future__ import annotations

import pytest

KNOWN_GAPS = {
    "test_every_key_bites[evaluation.history_window]": "the judge's question does not carry the latest events yet",
    "test_every_key_bites[reflection.mode]": "there is no model to ask yet, so the mode changes nothing",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect each known gap to fail, and say why."""
    for item in items:
        reason = KNOWN_GAPS.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
