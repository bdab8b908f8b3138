"""One lab for all tests of this folder that a process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.outcomes.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Real tools of every kind."""
    made = Lab()
    yield made
    made.close()
