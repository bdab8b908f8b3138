"""What very many runs cost: what is over stays in no memory, and a few are found without looking at all (E7)."""

from __future__ import annotations

import gc
from pathlib import Path

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.engine.run_loop import RunLoop
from rerail.ports import Batch, Head, Owner


@rerail.tool
async def quick() -> int:
    """Nothing."""
    return 1


async def test_runs_that_are_over_leave_nothing_in_memory() -> None:
    """E7: not even while the time that their calls had is not over yet."""
    async with rerail.Engine(MemoryStore(), [quick]) as engine:
        for _ in range(600):
            assert (await engine.run({"steps": [{"id": "a", "tool": "quick"}]})).success
        gc.collect()
        alive = sum(isinstance(thing, RunLoop) for thing in gc.get_objects())
        assert alive < 300, "each run that is over would be kept for step_timeout, five minutes"


async def test_few_of_many_runs_are_found_without_looking_at_all(tmp_path: Path) -> None:
    """E7: by the beginning of an id, by status, by age; ten times the runs cost the same number of steps in SQLite."""
    store = SqliteStore(tmp_path / "runs.db", "normal")
    await store.open()
    try:
        steps = []
        for first, last in ((0, 150), (150, 1500)):
            for n in range(first, last):
                await store.create(Head(f"{n:04d}-run", created_at=float(n), owner=Owner("h", 1, 1.0), fence=1))
                row = [(float(n), b"{}")]
                await store.append(Batch(f"{n:04d}-run", 0, row, 1, {str(n): b"x"}, "completed" if n > 3 else "failed"))
            steps.append(await _counted(store))
        few, many = steps
        assert many == {what: count for what, count in many.items() if count <= 2 * few[what] + 50}, (few, many)
    finally:
        await store.close()


async def _counted(store: SqliteStore) -> dict[str, int]:
    """How many steps of SQLite's machine each look takes."""
    assert store._reader is not None
    connection, count, found = store._reader.connection, 0, {}

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    looks = {
        "prefix": lambda: store.heads(prefix="0002", limit=10),
        "failed": lambda: store.heads(status=("failed",), limit=20),
        "newest": lambda: store.heads(limit=20),
        "open": lambda: store.heads(status=("pending", "running"), limit=20),
        "one": lambda: store.head("0002-run"),
    }
    connection.set_progress_handler(step, 1)
    for name, look in looks.items():
        count = 0
        await look()
        found[name] = count
    connection.set_progress_handler(None)
    return found
