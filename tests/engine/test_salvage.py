"""What is left of a damaged SQLite file: every run that can still be read is saved, the others are named (E5, E6)."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from random import Random

import apsw
import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.engine.maintenance.export import Carried, export_runs, import_runs, listed
from rerail.kernel import events as ev
from rerail.kernel.codec import encode
from rerail.ports import Batch, Head, Row
from rerail.values.json_values import digest

RUNS = 120
JUNK = {"zeros": bytes, "noise": lambda size: Random(7).randbytes(size)}


@pytest.fixture(scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of many runs at rest, each with a history of some pages and a content; all in one file."""
    path = tmp_path_factory.mktemp("salvage") / "runs.db"
    made = SqliteStore(path, "normal")
    await made.open()
    for n in range(RUNS):
        run = f"{n * 7919 % 100_000:05d}-run"
        await made.create(Head(run, objective=f"about {run}", created_at=float(n), fence=1))
        content = b"%05d" % n * (4000 if n % 10 == 0 else 800)
        rows = [(float(n), encode(ev.RunStarted(f"about {run}")))]
        rows += [(float(n), encode(ev.StepProgress("s", 1, message=f"{k:0100}"))) for k in range(20)]
        rows += [(float(n), encode(ev.StepSucceeded("s", 1, None, digest(content), len(content), blob=True)))]
        rows += [(float(n), encode(ev.Cancelled("ann", "enough")))]
        rows += [(float(n), encode(ev.Done("cancelled", False, False, False)))]
        await made.append(Batch(run, 0, rows, 1, {digest(content): content}, "cancelled"))
    await made.close()
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "delete")
    connection.close()
    return path


def pages(path: Path, table: str, kind: str) -> list[int]:
    """The numbers of the pages of a kind that a table or an index has."""
    connection = apsw.Connection(str(path))
    try:
        found = connection.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ?", (table, kind))
        return [number for (number,) in found]
    finally:
        connection.close()


def spoilt(path: Path, target: Path, numbers: list[int], junk: str) -> Path:
    """A copy of the file of which these pages are overwritten."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for number in numbers:
        data[(number - 1) * size : number * size] = JUNK[junk](size)
    target.write_bytes(data)
    return target


async def saved(path: Path) -> tuple[dict[str, Carried], MemoryStore]:
    """What became of each run, and where those are that were saved."""
    source, target, file = SqliteStore(path, "normal"), MemoryStore(), io.BytesIO()
    await source.open()
    try:
        found = {row.run: row async for row in export_runs(source, await listed(source), file)}
    finally:
        await source.close()
    assert all([row.ok async for row in import_runs(target, file, own=True)])
    return found, target


async def histories(path: Path) -> dict[str, list[Row]]:
    """Every history, as it was."""
    whole = SqliteStore(path, "normal")
    await whole.open()
    found = {head.run: await whole.read(head.run) for head in await whole.heads()}
    await whole.close()
    return found


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("table", "kind", "which", "most"),
    [
        ("events", "leaf", [3], 3),
        ("events", "leaf", [5, 40, 90], 9),
        ("runs", "leaf", [0], 0),
        ("runs", "leaf", [0, -1], 0),
        ("runs", "internal", [0], 0),
        ("sqlite_autoindex_runs_1", "leaf", [0], 0),
        ("runs_by_age", "leaf", [0], 0),
        ("run_blobs_by_run", "leaf", [0], 0),
        ("events", "internal", [-1], RUNS // 2),
    ],
    ids=str,
)
async def test_every_run_that_can_still_be_read_is_saved(
    store: Path, tmp_path: Path, table: str, kind: str, which: list[int], most: int, junk: str
) -> None:
    """E5: a broken page loses what is in it and no more; each run is saved to the letter, or named with the reason."""
    numbers = pages(store, table, kind)
    found, target = await saved(spoilt(store, tmp_path / "spoilt.db", [numbers[n] for n in which], junk))
    before = await histories(store)
    assert set(found) == set(before), "each run is told of"
    lost = {run for run, row in found.items() if not row.ok}
    assert len(lost) <= most
    assert all(found[run].outcome == "damaged" and "cannot be read" in found[run].reason for run in lost)
    assert {head.run for head in await target.heads()} == set(before) - lost, "and nothing is there of the others"
    for head in await target.heads():
        assert await target.read(head.run) == before[head.run]
        assert (head.status, head.objective, head.owner) == ("cancelled", f"about {head.run}", None)
        assert head.created_at == before[head.run][0].at


async def test_a_number_that_is_no_count_of_runs_does_not_keep_a_survey_for_ever(store: Path, tmp_path: Path) -> None:
    """E5: what is read behind a broken place may be anything, and nobody counts up to it."""
    far = tmp_path / "far.db"
    far.write_bytes(store.read_bytes())
    connection = apsw.Connection(str(far))
    connection.execute("UPDATE runs SET number = number + 1000000000000 WHERE number > 60")
    connection.close()
    leaves = pages(far, "runs", "leaf")
    middle = [number for n, number in enumerate(leaves) if 0 < n < len(leaves) - 1]
    async with asyncio.timeout(60):
        found, _ = await saved(spoilt(far, tmp_path / "spoilt.db", middle, "zeros"))
    assert len(found) == RUNS


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(("table", "kind"), [("blobs", "overflow"), ("blobs", "leaf")])
async def test_a_run_whose_content_is_broken_is_saved_without_it(
    store: Path, tmp_path: Path, table: str, kind: str, junk: str
) -> None:
    """E6: the history is whole, and what is missing can be made again: that is said."""
    found, target = await saved(spoilt(store, tmp_path / "spoilt.db", [pages(store, table, kind)[2]], junk))
    hurt = [row for row in found.values() if not row.ok]
    assert len(found) == RUNS
    assert 1 <= len(hurt) <= 2
    assert all(
        row.outcome == "partial" and "1 content cannot" in row.reason and "rerail retry" in row.reason for row in hurt
    )
    assert {head.run for head in await target.heads()} == set(found)


async def test_actions_that_cannot_be_read_are_no_reason_to_lose_a_run(store: Path, tmp_path: Path) -> None:
    """X7: what was asked of a run at rest comes too late anyway."""
    broken = [number for name in ("inbox", "inbox_by_run", "inbox_open") for number in pages(store, name, "leaf")]
    found, target = await saved(spoilt(store, tmp_path / "spoilt.db", broken, "zeros"))
    assert {row.outcome for row in found.values()} == {"exported"}
    assert len(await target.heads()) == RUNS
