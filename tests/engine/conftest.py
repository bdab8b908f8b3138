"""Gaps that are known and not yet closed: tests that fail today, strictly. One that passes must go from here."""

from __future__ import annotations

import pytest

KNOWN_GAPS = {
    "test_people_who_give_odd_values": "surrogates in a person's words are not refused by name",
    "test_a_workspace_stays_inside_its_folder": "a run id given by the caller may hold a path",
    "test_every_key_bites[evaluation.history_window]": "the judge's question does not carry the latest events yet",
    "test_every_key_bites[log.verbose]": "verbose logging of retry chains and skips is not written yet",
    "test_every_key_bites[reflection.mode]": "there is no model to ask yet, so the mode changes nothing",
    "test_every_key_bites[model.max_reasks]": "no mind asks models yet",
    "test_every_key_bites[model.max_context_chars]": "no mind asks models yet",
    "test_errors_that_cannot_be_stored_as_they_are[5 MB hint]": "a huge hint is stored as it is",
    "test_a_value_that_makes_no_sense_is_refused[run-tool_concurrency-value7]": "negative limits per tool pass",
    "test_a_value_that_makes_no_sense_is_refused[run-provider_concurrency-value8]": "negative limits per provider pass",
    "test_a_value_that_makes_no_sense_is_refused[evaluation-history_window-value20]": "a window upside down passes",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect each known gap to fail, and say why."""
    for item in items:
        reason = KNOWN_GAPS.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
