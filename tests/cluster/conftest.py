"""One real Ray cluster for all tests of this folder, and nodes that a test may kill."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray
    from ray.cluster_utils import Cluster


from rerail.adapters.tools.loading import load_tools
from rerail.ports import Tool

# A dead node is noticed sooner than on a real network.
WATCHFUL = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One cluster is enough: these tests run in one process, however many there are."""
    for item in items:
        if "tests/cluster/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("cluster"))
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # Ray's own


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A cluster with one node, to which this process belongs; tests bring the others."""
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "resources": {"head": 100},
            "include_dashboard": False,
            "_system_config": WATCHFUL,
        },
    )
    ray.init(address=made.address, namespace="rerail", log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


Node = Callable[..., Any]


@pytest.fixture
def node(cluster: Any) -> Iterator[Node]:
    """Adds a node with resources of its own; whatever is left of them goes with the test."""
    made: list[Any] = []

    def add(**resources: float) -> Any:
        made.append(cluster.add_node(num_cpus=2, resources=resources))
        return made[-1]

    yield add
    for one in made:
        with contextlib.suppress(Exception):
            cluster.remove_node(one, allow_graceful=False)


@pytest.fixture
def tools(tmp_path: Path) -> Callable[[str], list[Tool]]:
    """Tools from a file, as `--tools` reads them."""

    def load(text: str) -> list[Tool]:
        file = tmp_path / "toolbox.py"
        file.write_text(text)
        return load_tools(file)

    return load
