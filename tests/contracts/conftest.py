"""Servers for the tests of this folder, one of each kind per test process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("rerail.testing.store_contract")  # before anything imports it: readable failures

from tests.contracts.servers import (  # noqa: E402
    NamedPostgres,
    NamedRedis,
    PostgresServer,
    RedisServer,
    own_postgres,
    own_redis,
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | NamedPostgres]:
    """A real Postgres."""
    if named := os.environ.get("RERAIL_TEST_POSTGRES"):
        yield NamedPostgres(named)
        return
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer | NamedRedis]:
    """A real Redis."""
    if named := os.environ.get("RERAIL_TEST_REDIS"):
        yield NamedRedis(named)
        return
    with own_redis() as server:
        yield server
