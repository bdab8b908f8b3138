"""Tasks that failed at a stage, made once and copied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.stages.task import Task


@pytest.fixture(scope="session")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Task]:
    """A task that failed at a stage; "" for one that completed."""
    made: dict[str, Task] = {}

    def at(stage: str) -> Task:
        if stage not in made:
            made[stage] = Task(tmp_path_factory.mktemp("task") / "it")
            made[stage].begin(fail=stage)
        return made[stage]

    return at


@pytest.fixture
def failed(failures: Callable[[str], Task], tmp_path: Path) -> Iterator[Callable[[str], Task]]:
    """A copy of such a task, for a test alone."""
    tasks: list[Task] = []

    def at(stage: str) -> Task:
        tasks.append(failures(stage).copy(tmp_path / f"task{len(tasks)}"))
        return tasks[-1]

    yield at
    for task in tasks:
        task.close()
