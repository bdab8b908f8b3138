"""The classifier on errors that others wrote (H2)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.classifier.measure import HALVES, measure


def test_errors_of_services_it_was_not_written_for(field_data: Path) -> None:
    """H2: whether trying again helps is told from code and message alone, also for services nobody looked at."""
    scores = measure(field_data)
    assert sum(score.count(transient) for score in scores.values() for transient in (True, False)) == 3390
    assert scores["unseen"].balanced_accuracy >= 0.92


def test_the_halves_share_no_service(field_data: Path) -> None:
    """H2: what is measured on the unseen half was not learned from it."""
    development, unseen = (measure(field_data)[half] for half in HALVES)
    assert development.services
    assert unseen.services
    assert not development.services & unseen.services
