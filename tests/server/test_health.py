"""`GET /health` says whether the server can do its work: a store that is down is not ok (E4, I4)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.ports import Head, Unavailable
from rerail.server.app import Files, make_api
from rerail.server.state import ServerState

pytestmark = pytest.mark.anyio


class Down(MemoryStore):
    """A store that can be down."""

    down = False

    async def heads(self, **filters: Any) -> list[Head]:
        """Answer, unless it is down."""
        if self.down:
            raise Unavailable("no route")
        return await super().heads(**filters)


async def test_health_is_not_ok_while_the_store_is_down() -> None:
    """I4: 503 with a problem, and ok again once the store is back."""
    store = Down()
    async with rerail.Engine(store) as engine:
        transport = httpx.ASGITransport(make_api(ServerState(engine), Files()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/api/v1/health")).json()["ok"] is True
            store.down = True
            answer = await client.get("/api/v1/health")
            assert (answer.status_code, answer.json()["code"]) == (503, "STORE_FAILED")
            store.down = False
            assert (await client.get("/api/v1/health")).status_code == 200
