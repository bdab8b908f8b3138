"""Contract tests of stores: subclass `StoreContract`, define `make`, and run pytest.

    import pytest

    pytest.register_assert_rewrite("rerail.testing.store_contract")  # before the import, for readable failures
    from rerail.testing.store_contract import StoreContract

    class TestMine(StoreContract):
        async def make(self):
            store = MyStore("somewhere new")
            await store.open()
            return store

The tests are plain `async def`: let anyio's plugin run them (`anyio_mode = "auto"` in pytest's settings, and a fixture
`anyio_backend` that returns "asyncio"). Each starts with a new, empty store.
"""

from __future__ import annotations

from rerail.testing.store_contract.runs import LeaseContract, ListContract, NewsContract, RemovalContract
from rerail.testing.store_contract.writing import (
    RUN,
    ContentContract,
    HistoryContract,
    InboxContract,
    batch,
    history,
    started,
)

__all__ = ["RUN", "StoreContract", "batch", "history", "started"]


class StoreContract(
    HistoryContract, LeaseContract, ListContract, InboxContract, ContentContract, RemovalContract, NewsContract
):
    """The contract of `rerail.ports.Store`."""
