"""What `rerail serve` does with its runs when it is told to stop (T7, E3)."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import httpx
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
    with (HERE / "paying").open("a") as file:
        file.write("called ")
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
            shown = await at_rest(client, run)
    assert (shown["status"], shown["steps"]["b"]["status"]) == (
        ("completed", "succeeded") if signals == 1 else ("waiting", "pending")
    )
    assert (tmp_path / "paying").read_text() == "called "  # whatever is known of its outcome


async def at_rest(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    """Return a run once it is at rest or waits for a person."""
    async with asyncio.timeout(20):
        while (shown := (await client.get(f"/runs/{run}")).json())["status"] == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return dict(shown)


async def test_the_next_server_goes_on_with_what_the_last_one_drove_and_with_nothing_else(tmp_path: Path) -> None:
    """T7, I4: after kill -9 of a server the next one takes up its runs; those of others stay interrupted."""
    place = Place(tmp_path)
    held = place.plan({"id": "a", "tool": "hold", "args": {"name": "go"}})
    gated = place.plan(
        {"id": "a", "tool": "echo", "confirm": "Go on?"},
        {"id": "b", "tool": "hold", "args": {"name": "go"}, "needs": ["a"]}, name="gated.json",
    )  # fmt: skip
    alone = place.spawn("run", held, "--tools", "tools.py", "--json")
    waits = place.rerail("run", gated, "--tools", "tools.py", code=None)["run_id"]
    with serving(place) as web:
        async with web.client() as client:
            mine = await started(client, {"id": "a", "tool": "hold", "args": {"name": "go"}})
            await client.post(f"/runs/{waits}/confirm", json={"step": "a"})
            while (await client.get(f"/runs/{waits}")).json()["steps"]["b"]["status"] != "running":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            [other] = {row["run_id"] for row in (await client.get("/runs")).json()["runs"]} - {mine, waits}
        for process in (alone, web.process):
            process.kill()
            process.communicate()
    (tmp_path / "go").touch()
    with serving(place) as web:
        async with web.client() as client:
            assert [(await at_rest(client, run))["status"] for run in (mine, waits)] == ["completed", "completed"]
            shown = (await client.get(f"/runs/{other}")).json()
    assert (shown["interrupted"], shown["steps"]["a"]["status"]) == (True, "running")
