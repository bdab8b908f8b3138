"""Every store of the project keeps the store contract (E1, E4, E6, T7)."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.ports import Store, Unavailable
from rerail.testing.store_contract import StoreContract


class TestMemory(StoreContract):
    """`memory://`, which has no second handle: its users share one object."""

    async def make(self) -> Store:
        """An empty store."""
        return MemoryStore()

    async def break_next_append(self, store: Store) -> None:
        """Use the store's own switch."""
        assert isinstance(store, MemoryStore)
        store.broken = Unavailable("broken for a test")

    async def break_next_removal(self, store: Store) -> bool:
        """Use the store's own switch."""
        await self.break_next_append(store)
        return True


class TestSqlite(StoreContract):
    """`sqlite:///`, writing on the loop's thread as long as the disk is quick."""

    inline_below = 0.001
    folder: Path

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """Each test has a folder of its own."""
        self.folder = tmp_path

    async def make(self) -> Store:
        """A store in a new file."""
        return await self._open()

    async def again(self, store: Store) -> Store | None:
        """Two connections of its own, as another process would have."""
        return await self._open()

    async def break_next_append(self, store: Store) -> None:
        """Let the last row of a batch be refused, when the head and the other rows are written already."""
        self._execute("""
            CREATE TRIGGER broken BEFORE INSERT ON events WHEN NEW.seq = (SELECT seq FROM runs WHERE run = NEW.run)
            BEGIN SELECT RAISE(ABORT, 'broken for a test'); END
            """)

    async def mend(self, store: Store) -> None:
        """Let rows pass again."""
        self._execute("DROP TRIGGER broken")

    async def break_next_removal(self, store: Store) -> bool:
        """Let the run itself be refused, when its history is gone already."""
        self._execute("CREATE TRIGGER stays BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'broken for a test'); END")
        return True

    async def mend_removal(self, store: Store) -> None:
        """Let runs go again."""
        self._execute("DROP TRIGGER stays")

    async def _open(self) -> SqliteStore:
        store = SqliteStore(self.folder / "runs.db", inline_below=self.inline_below)
        await store.open()
        return store

    def _execute(self, sql: str) -> None:
        connection = apsw.Connection(str(self.folder / "runs.db"))
        connection.execute(sql)
        connection.close()


class TestSqliteInItsThread(TestSqlite):
    """`sqlite:///`, writing in its thread as on a slow disk."""

    inline_below = 0.0
