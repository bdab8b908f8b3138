"""The folder of the command line's tests, with more tools, and without workers once a test is over."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
from tests.cli.conftest import Place, here  # noqa: F401
from tests.cli.conftest import place as plain_place  # noqa: F401
from tests.workers.around import MORE, workers_in


@pytest.fixture
def place(plain_place: Place) -> Iterator[Place]:  # noqa: F811
    """A folder with tools; workers that are left in it are ended with the test."""
    with (plain_place.folder / "toolbox.py").open("a") as file:
        file.write(MORE)
    yield plain_place
    for pid in workers_in(plain_place.folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
