"""What all tests share: one event loop backend, the field data, real servers, and a CI in which nothing is skipped."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contracts.servers import NamedPostgres, NamedRedis, PostgresServer, RedisServer

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def pytest_configure() -> None:
    """Whoever starts the tests in the background may have Ctrl-C ignored; the processes of the tests must hear it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the loop that users have."""
    return "asyncio"


@pytest.fixture(scope="session")
def field_data() -> Path:
    """The folder with plans and errors from the field, which is not part of the project."""
    folder = os.environ.get("RERAIL_FIELD_DATA")
    if not folder:
        pytest.skip("RERAIL_FIELD_DATA is not set: it names the folder with the field data")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"RERAIL_FIELD_DATA is not a folder: {folder}")
    return path


# One server of each kind per test process, started when a test first asks for it.


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | NamedPostgres]:
    """A real Postgres."""
    from tests.contracts.servers import NamedPostgres, own_postgres

    if named := os.environ.get("RERAIL_TEST_POSTGRES"):
        yield NamedPostgres(named)
        return
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer | NamedRedis]:
    """A real Redis."""
    from tests.contracts.servers import NamedRedis, own_redis

    if named := os.environ.get("RERAIL_TEST_REDIS"):
        yield NamedRedis(named)
        return
    with own_redis() as server:
        yield server


# What takes long because something real is waited for: servers that come and go, leases that run out, a cluster, a
# browser, processes that are killed again and again. Each rule that they prove has faster tests beside them.
# `make check` runs them too, and so does CI.
THOROUGH = (
    "tests/adapters/test_langgraph.py",
    "tests/adapters/tools/test_mcp_real.py",
    "tests/benchmarks/",
    "tests/browser/",
    "tests/chaos/",
    "tests/cli/test_crashtest.py",
    "tests/cluster/",
    "tests/contracts/test_large_contents.py",
    "tests/contracts/test_silence.py",
    "tests/crash/",
    "tests/field/",
    "tests/server/test_readers.py",
    "tests/server/test_rough.py",
    "tests/server/test_schemathesis.py",
    "tests/stages/test_crashes.py",
    "tests/workers/test_crews.py",
    "tests/workers/test_frozen.py",
    "tests/workers/test_many.py",
    "tests/workers/test_owners.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what reads field data and what takes long, before `-m` selects; files that are named are always run."""
    everything = config.args == config.getini("testpaths")
    for item in items:
        if "field_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.field)
        if everything and item.nodeid.startswith(THOROUGH):
            item.add_marker(pytest.mark.thorough)


# In CI a skipped test is a failed one: nobody reads the skips of a green build. A test that may not run everywhere
# is deselected by its marker, in the open, instead.


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI every test runs. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test into a failure, in CI."""
    report = yield
    _no_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into a failure, in CI."""
    report = yield
    _no_skip(report)
    return report
