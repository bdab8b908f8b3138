"""Runs at rest travel between stores as JSON lines: whole, checked, as copies or as the store's own (E10)."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.engine.maintenance.export import HEAVY, PART, Carried, export_runs, import_runs, listed
from rerail.engine.runs.owner import copier, is_arriving, is_dead
from rerail.errors import Refused
from rerail.kernel import events as ev
from rerail.kernel.codec import encode
from rerail.ports import Batch, Head, Owner, Row, Store, Unavailable, Unusable
from rerail.testing.scripted import World
from rerail.testing.virtual_time import virtual_run
from rerail.values.json_values import digest

BIG = b'"' + b"x" * 5000 + b'"'
DONE = ev.Done("failed", False, False, False)


async def history(store: Store, run: str, events: int = 1, *blobs: bytes, parent: str = "", rest: bool = True) -> None:
    """A run with so many events about nothing, and one for each content."""
    await store.create(Head(run, objective=f"über {run}", parent=parent, created_at=1.0 + len(parent), fence=1))
    told = [ev.RunStarted(f"über {run}", parent), *(ev.StepProgress("s", 1, message=str(n)) for n in range(events))]
    told += [ev.StepSucceeded("s", 1, None, digest(blob), len(blob), True) for blob in blobs]
    rows = [(float(n), encode(event)) for n, event in enumerate([*told, *([DONE] if rest else [])])]
    await store.append(Batch(run, 0, rows, 1, {digest(blob): blob for blob in blobs}, "failed" if rest else "running"))


async def exported(store: Store, *, ok: bool = True) -> tuple[io.BytesIO, dict[str, Carried]]:
    """All runs of a store in a file, and what became of each."""
    file = io.BytesIO()
    found = {row.run: row async for row in export_runs(store, await listed(store), file, "sqlite:///here.db")}
    assert not ok or all(row.ok for row in found.values())
    return file, found


async def imported(store: Store, file: io.BytesIO, *, own: bool = False) -> dict[str, str]:
    """What became of each run of a file."""
    return {row.run: row.outcome async for row in import_runs(store, file, own=own)}


@pytest.fixture
async def source() -> Store:
    """Two runs, one of many events, one with a large content; the second follows the first."""
    store = MemoryStore()
    await history(store, "one", 1200)
    await history(store, "two", 3, BIG, parent="one")
    return store


async def test_everything_arrives(source: Store, tmp_path: Path) -> None:
    """E10: rows to the byte, contents, status, objective, parent and times; the first row says that it is a copy."""
    file, told = await exported(source)
    assert (told["two"].events, told["two"].contents) == (6, 1)
    for own in (False, True):
        target = SqliteStore(tmp_path / f"{own}.db")
        await target.open()
        assert await imported(target, file, own=own) == {"one": "imported", "two": "imported"}
        for run in ("one", "two"):
            ours, theirs = await source.head(run), await target.head(run)
            assert ours is not None and theirs is not None and theirs.owner is None
            for name in ("seq", "status", "objective", "parent", "created_at", "updated_at"):
                assert getattr(theirs, name) == getattr(ours, name), name
            here, there = await source.read(run, 0, 5000), await target.read(run, 0, 5000)
            assert there[not own :] == here[not own :]
            assert json.loads(there[0].data).get("copied") == (None if own else "sqlite:///here.db")
        assert await target.blob(digest(BIG)) == BIG
        assert await imported(target, file, own=own) == {"one": "same", "two": "same"}
        await target.close()


def test_a_copy_is_shown_and_goes_on_only_once_it_is_owned() -> None:
    """E10: nothing calls a tool for a copy; with `own` the run goes on, and the copy is gone."""
    plan: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}]}
    world, source, target = World(a=[rerail.ToolError("no"), "yes"]), MemoryStore(), MemoryStore()
    plain = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}

    async def main() -> None:
        async with world.engine(plan, store=source, settings=plain) as engine:
            run = (await engine.run(plan)).run_id
        file, _ = await exported(source)
        assert await imported(target, file) == {run: "imported"}
        async with world.engine(plan, store=target) as engine:
            assert (await engine.show(run)).status == "failed"
            assert [event.type for event in await engine.events(run)][-1] == "done"
            for act in (
                lambda: engine.retry(run), lambda: engine.retry(run, dry_run=True), lambda: engine.resume(run),
                lambda: engine.resolve(run, "a", succeeded=1), lambda: engine.add(run, []),
            ):  # fmt: skip
                with pytest.raises(Refused) as refused:
                    await act()
                assert refused.value.code == "RUN_COPIED" and "--own" in str(refused.value.hint)
        again, _ = await exported(target)
        assert b'"copied"' in again.getvalue()
        assert await imported(target, again, own=True) == {run: "imported"}
        async with world.engine(plan, store=target) as engine:
            assert (await engine.retry(run)).status == "completed"
        assert len(world.calls) == 2
        assert await imported(target, file, own=True) == {run: "differs"}, "it went on here"

    virtual_run(main)


async def test_copies_of_a_family_are_replaced_at_once(source: Store) -> None:
    """E10: a run that another follows cannot go alone; one that is not in the file keeps it."""
    target = MemoryStore()
    file, _ = await exported(source)
    await imported(target, file)
    assert await imported(target, file, own=True) == {"one": "imported", "two": "imported"}
    other = MemoryStore()
    await imported(other, file)
    await history(other, "three", parent="two")
    with pytest.raises(Refused, match="cannot be replaced"):
        await imported(other, file, own=True)
    assert len(await other.heads()) == 3


async def test_only_runs_at_rest_are_written(source: Store) -> None:
    """E10: by their list and by their history; nothing of another is in the file."""
    await history(source, "open", rest=False)
    await source.create(Head("lies", status="failed", fence=1))
    await source.append(Batch("lies", 0, [(1.0, encode(ev.RunStarted()))], 1))
    file, told = await exported(source, ok=False)
    assert {run: row.outcome for run, row in told.items()} == {
        "one": "exported", "two": "exported", "open": "open", "lies": "open",
    }  # fmt: skip
    assert await imported(MemoryStore(), file) == {"one": "imported", "two": "imported"}


def cut(file: io.BytesIO, change: Callable[[list[bytes]], list[bytes]]) -> io.BytesIO:
    """A file whose lines were changed."""
    return io.BytesIO(b"".join(change(file.getvalue().splitlines(keepends=True))))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[:-1], "ends too early"),
        (lambda lines: lines[:-2], "ends too early"),
        (lambda lines: [*lines[:-1], *lines], "not in its place"),
        (lambda lines: [*lines[:-1], lines[-1][:20]], "whole export"),
        (lambda lines: [*lines[:700], *lines[701:]], "not in its place"),
        (lambda lines: lines[1:], "not in its place"),
        (lambda lines: [*lines, b"objective: a plan\n"], "whole export"),
        (lambda lines: [*lines, b"\n"], "whole export"),
        (lambda lines: [line.replace(b'"data":"Inh4', b'"data":"Inh5') for line in lines], "does not match its digest"),
        (lambda lines: [line.replace(b'"data":"Inh4', b'"data":"?') for line in lines], "whole export"),
        (lambda lines: [line.replace(b'"type":"done"', b'"type":"undone"') for line in lines], "this version reads"),
        (lambda lines: [line.replace(b'"contents":1', b'"contents":2') for line in lines], "not in its place"),
        (lambda lines: [line.replace(b'"status":"failed","objective"', b'"format":2,"status":"failed","objective"')
                        for line in lines], "not in its place"),
        (lambda lines: [line.replace(b'"run":"one"', b'"run":"../../one"') for line in lines], "cannot be the id"),
        (lambda lines: [lines[0], *(line.replace(b"run_started", b"resumed") for line in lines[1:])], "not an event"),
        (lambda lines: [b"[" * 10_000], "whole export"),
        (lambda lines: [b"\xff\xfe\n"], "whole export"),
        (lambda lines: [], "empty"),
    ],
)  # fmt: skip
async def test_a_file_that_is_not_whole_is_refused(
    source: Store, change: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    """E10: half a file, a changed one, another kind: nothing of it is imported, not even the runs before the fault."""
    file, _ = await exported(source)
    target = MemoryStore()
    with pytest.raises(Refused, match=why):
        await imported(target, cut(file, change))
    assert await target.heads() == []


async def test_an_open_run_in_a_file_is_refused(source: Store) -> None:
    """E10: whoever wrote it, nothing that is under way elsewhere arrives."""
    file, _ = await exported(source)
    lines = [line for line in file.getvalue().splitlines(keepends=True) if b'"type":"done"' not in line]
    hand_made = b"".join(lines).replace(b'"events":1202', b'"events":1201').replace(b'"events":6', b'"events":5')
    with pytest.raises(Refused, match="only runs at rest"):
        await imported(MemoryStore(), io.BytesIO(hand_made))


class Dying(MemoryStore):
    """A store whose process is killed at an append."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left, self.dead = after, True

    async def append(self, batch: Batch) -> None:
        self.left -= 1
        if self.left < 0 and self.dead:
            raise Unavailable("cut off")
        await super().append(batch)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_import_that_was_killed_goes_on(source: Store, after: int, own: bool) -> None:
    """E10, T7: until it is whole a run is the import's, and no process takes it up; the same file finishes it."""
    file, _ = await exported(source)
    target = Dying(after)
    with pytest.raises(Unavailable, match="cut off"):
        await imported(target, file)
    half = await target.head("one")
    assert half is not None and half.seq < 1202
    assert is_arriving(half) and not is_dead(half, time.time() + 10**6), "not even when it is silent for days"
    async with rerail.Engine(target) as engine:
        assert await engine.internals.unattended() == []
        with pytest.raises(Refused, match="has not arrived whole"):
            await engine.retry("one")
    target.dead = False
    assert await imported(target, file, own=own) == {"one": "imported", "two": "imported"}
    assert [head.owner for head in await target.heads()] == [None, None]
    assert (await target.read("one", 0, 5000))[1:] == (await source.read("one", 0, 5000))[1:]
    assert (b'"copied"' in (await target.read("one", 0, 1))[0].data) is not own
    assert await target.blob(digest(BIG)) == BIG


async def test_a_run_that_arrives_by_another_process_is_left_to_it(source: Store) -> None:
    """T7: and one that a dead import began with another history is not finished with this one."""
    file, _ = await exported(source)
    target = MemoryStore()
    await target.create(Head("one", owner=copier(), fence=1))
    await target.append(Batch("one", 0, [(1.0, encode(ev.RunStarted("another")))], 1))
    elsewhere = Owner(copier().host.partition("#")[0] + "#another", 7, 1.0)
    await target.create(Head("two", owner=elsewhere, fence=1, renewed_at=time.time()))
    assert await imported(target, file) == {"one": "differs", "two": "arriving"}


async def test_another_history_is_left_alone(source: Store) -> None:
    """E10: a run of the same id that went otherwise is neither changed nor called imported."""
    target = MemoryStore()
    await history(target, "one", 5)
    before = await target.read("one")
    file, _ = await exported(source)
    assert await imported(target, file, own=True) == {"one": "differs", "two": "imported"}
    assert await target.read("one") == before


async def test_many_large_contents_travel_a_few_at_a_time() -> None:
    """E7: an append holds no more than it must; a content may take several lines."""
    blobs = [b"%d" % n * (HEAVY // 3 + PART) for n in range(6)]
    source, seen = MemoryStore(), list[int]()
    await history(source, "big", 3, *blobs)

    class Counting(MemoryStore):
        async def append(self, batch: Batch) -> None:
            seen.append(sum(map(len, batch.blobs.values())))
            await super().append(batch)

    target = Counting()
    file, told = await exported(source)
    assert told["big"].contents == 6
    assert await imported(target, file) == {"big": "imported"}
    assert max(seen) < 2 * HEAVY and len(seen) >= 2
    assert [await target.blob(digest(blob)) for blob in blobs] == blobs


async def test_a_store_that_does_not_take_a_run_takes_the_others(source: Store) -> None:
    """E10: it is named, with what to do."""

    class Small(MemoryStore):
        async def append(self, batch: Batch) -> None:
            if batch.blobs:
                raise Unusable("too large")
            await super().append(batch)

    file, _ = await exported(source)
    rows = {row.run: row async for row in import_runs(Small(), file)}
    assert rows["one"].ok and (rows["two"].outcome, "too large" in rows["two"].reason) == ("failed", True)


@pytest.mark.parametrize(
    "odd",
    [
        lambda rows: rows[:2] + rows[3:],
        lambda rows: [rows[0], Row(2, rows[1].at, b"{}"), *rows[2:]],
        lambda rows: [rows[0], Row(2, rows[1].at, "text"), *rows[2:]],  # type: ignore[arg-type]
        lambda rows: [rows[0], Row("2", rows[1].at, rows[1].data), *rows[2:]],  # type: ignore[arg-type]
        lambda rows: [rows[0], Row(2, "now", rows[1].data), *rows[2:]],  # type: ignore[arg-type]
    ],
)
async def test_a_history_that_cannot_be_read_leaves_nothing_in_the_file(
    odd: Callable[[list[Row]], list[Row]],
) -> None:
    """E5: a damaged file may answer with anything; the run is named, and the others are written."""

    class Damaged(MemoryStore):
        async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
            rows = await super().read(run, after, limit)
            return odd(rows) if run == "hurt" and after == 0 else rows

    source = Damaged()
    await history(source, "hurt", 3, BIG)
    await history(source, "fine", 5)
    file, told = await exported(source, ok=False)
    assert {run: row.outcome for run, row in told.items()} == {"hurt": "damaged", "fine": "exported"}
    assert b"hurt" not in file.getvalue() and await imported(MemoryStore(), file) == {"fine": "imported"}


async def test_a_content_that_is_lost_or_changed_is_named() -> None:
    """E6: the run arrives without it; one that expired is no loss."""
    source = MemoryStore()
    await history(source, "hurt", 1, BIG)
    await history(source, "expired", 1, b"y" * 5000)
    source._blobs[digest(BIG)] = b"changed"
    del source._blobs[digest(b"y" * 5000)]
    file, told = await exported(source, ok=False)
    assert (told["hurt"].outcome, told["expired"].outcome) == ("partial", "exported")
    assert digest(BIG) in told["hurt"].reason and "rerail retry" in told["hurt"].reason
    assert await imported(MemoryStore(), file) == {"hurt": "imported", "expired": "imported"}


async def _exported(store: MemoryStore, run: str) -> io.BytesIO:
    file = io.BytesIO()
    heads = [head for head in await listed(store) if head.run == run]
    assert [row.ok async for row in export_runs(store, heads, file, "s")] == [True]
    file.seek(0)
    return file


async def test_e10_what_follows_a_copy_is_not_started() -> None:
    """E10, T6: its original has done it already, in another store; `once` effects would happen twice."""
    called: list[str] = []

    @rerail.tool(effect="once")
    async def pay() -> int:
        called.append("pay")
        return 1

    source, target = MemoryStore(), MemoryStore()
    plan = {"steps": [{"id": "a", "tool": "pay"}], "follow_up": {"steps": [{"id": "b", "tool": "pay"}]}}
    async with rerail.Engine(source, [pay]) as engine:
        run = await engine.start(plan)
        await engine.wait(run)
        await engine.wait(f"{run}-f{(await engine.show(run)).seq}")
        file = await _exported(source, run)
    await target.open()
    assert [row.outcome async for row in import_runs(target, file)] == ["imported"]
    async with rerail.Engine(target, [pay]) as engine:
        with pytest.raises(rerail.Refused) as refused:
            await engine.retry(run)
        assert refused.value.code == "RUN_COPIED"
    assert called == ["pay", "pay"]


@pytest.mark.parametrize("own", [True, False])
async def test_e10_an_import_that_was_begun_the_other_way_is_begun_anew(own: bool) -> None:
    """E10: killed with `--own`, and imported as a copy; or the other way round."""

    @rerail.tool
    async def give() -> int:
        return 1

    class Cut(MemoryStore):
        left = 1

        async def append(self, batch: Batch) -> None:
            """It is killed at the second time."""
            if self.left == 0:
                self.left = -1
                raise KeyboardInterrupt
            self.left -= 1
            await super().append(batch)

    source, target = MemoryStore(), Cut()
    async with rerail.Engine(source, [give]) as engine:
        run = (await engine.run({"steps": [{"id": f"a{n}", "tool": "give"} for n in range(400)]})).run_id
        file = await _exported(source, run)
    await target.open()
    with pytest.raises(KeyboardInterrupt):
        [row async for row in import_runs(target, file, own=own)]
    target.left = 10**9
    assert [row.outcome async for row in import_runs(target, file, own=not own)] == ["imported"]
    async with rerail.Engine(target, [give]) as engine:
        try:
            code = str((await engine.retry(run, ["a0"], force=True)).status)
        except rerail.Refused as refused:
            code = refused.code
    assert code == ("RUN_COPIED" if own else "completed"), "what is asked for last holds"


async def test_e10_the_history_of_forgetting_is_no_run() -> None:
    """E10, H10: it never rests, and is no reason for an exit code."""
    store = MemoryStore()
    async with rerail.Engine(store, []) as engine:
        await engine.internals.forget()
        assert await listed(store) == []
