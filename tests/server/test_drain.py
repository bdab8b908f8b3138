"""What `rerail serve` does with its runs when it is told to stop (T7, E3)."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from tests.server.web import Place, serving, started

pytestmark = pytest.mark.anyio
TOOLS = """
import asyncio
from pathlib import Path
import rerail

HERE = Path(__file__).parent


@rerail.tool(effect="once")
async def pay():
    \"\"\"Act, and take a second for it.\"\"\"
    (HERE / "paying").touch()
    await asyncio.sleep(1)
    return "paid"


@rerail.tool
async def after():
    \"\"\"Come next.\"\"\"
    (HERE / "after").touch()
"""
STEPS = ({"id": "a", "tool": "pay"}, {"id": "b", "tool": "after", "needs": ["a"]})


def seen(file: Path) -> None:
    """Wait for a file."""
    while not file.exists():
        time.sleep(0.01)


@pytest.mark.parametrize("signals", [1, 2], ids=["one signal", "two signals"])
async def test_a_server_that_is_told_to_stop_lets_its_calls_end(tmp_path: Path, signals: int) -> None:
    """T7, E3: nothing new starts, the call under way ends, the run is given back; a second signal ends it at once."""
    place = Place(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS)
    with serving(place, RERAIL_WORKER_GRACE="20") as web:
        async with web.client() as client:
            run = await started(client, *STEPS)
            await asyncio.to_thread(seen, tmp_path / "paying")
        began = time.monotonic()
        for _ in range(signals):
            web.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
        assert await asyncio.to_thread(web.process.wait, 20) == 0
        assert time.monotonic() - began < 10
    assert not (tmp_path / "after").exists()
    with serving(place) as web:
        async with web.client() as client:
            shown = (await client.get(f"/runs/{run}")).json()
    assert shown["steps"]["a"]["status"] == ("succeeded" if signals == 1 else "running")
    assert shown["interrupted"]
