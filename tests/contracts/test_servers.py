"""Postgres and Redis keep the store contract, against real servers (I5, I6, E1, E4, E6, T7)."""

from __future__ import annotations

import psycopg
import pytest
from tests.contracts.servers import NamedPostgres, NamedRedis, PostgresServer, RedisServer

from rerail.adapters.stores.postgres.store import PostgresStore
from rerail.adapters.stores.redis.store import RedisStore
from rerail.ports import Store
from rerail.testing.store_contract import RUN, StoreContract


class TestPostgres(StoreContract):
    """`postgresql://`."""

    address: str

    @pytest.fixture(autouse=True)
    def place(self, postgres: PostgresServer | NamedPostgres) -> None:
        """Each test has a database of its own."""
        self.address = postgres.fresh()

    async def make(self) -> Store:
        """A store in a new database."""
        return await self._open()

    async def again(self, store: Store) -> Store | None:
        """Connections of its own, as another machine would have."""
        return await self._open()

    async def break_next_append(self, store: Store) -> None:
        """Let the last row of a batch be refused, when the head and the other rows are written already."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("""
                CREATE FUNCTION rerail.refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN IF NEW.seq >= 4 THEN RAISE 'broken for a test'; END IF; RETURN NEW; END $$;
                CREATE TRIGGER broken BEFORE INSERT ON rerail.events FOR EACH ROW EXECUTE FUNCTION rerail.refuse();
                """)

    async def mend(self, store: Store) -> None:
        """Let rows pass again."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("DROP TRIGGER broken ON rerail.events; DROP FUNCTION rerail.refuse")

    async def break_next_removal(self, store: Store) -> bool:
        """Let the run itself be refused, when its history is gone already."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("""
                CREATE FUNCTION rerail.stay() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE 'broken for a test'; END $$;
                CREATE TRIGGER stays BEFORE DELETE ON rerail.runs FOR EACH ROW EXECUTE FUNCTION rerail.stay();
                """)
        return True

    async def mend_removal(self, store: Store) -> None:
        """Let runs go again."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("DROP TRIGGER stays ON rerail.runs; DROP FUNCTION rerail.stay")

    async def _open(self) -> PostgresStore:
        store = PostgresStore(self.address)
        await store.open()
        return store


class TestRedis(StoreContract):
    """`redis://`."""

    server: RedisServer | NamedRedis
    address: str

    @pytest.fixture(autouse=True)
    def place(self, redis_server: RedisServer | NamedRedis) -> None:
        """Each test starts with nothing."""
        self.server = redis_server
        self.address = redis_server.fresh()

    async def make(self) -> Store:
        """An empty store."""
        return await self._open()

    async def again(self, store: Store) -> Store | None:
        """Connections of its own, as another machine would have."""
        return await self._open()

    async def break_next_append(self, store: Store) -> None:
        """Let the last write of an append be refused: contents, rows and head are written already."""
        self.server.command("SET", "rerail:status:completed", "not a list")

    async def mend(self, store: Store) -> None:
        """Let it pass again."""
        self.server.command("DEL", "rerail:status:completed")

    async def _open(self) -> RedisStore:
        store = RedisStore(self.address)
        await store.open()
        return store


__all__ = ["RUN"]
