"""E1: a SQLite store whose process is killed with -9 has every acknowledged append, in order, and none by half.

Run as a program, this file is the process that gets killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.ports import Batch, Head, Owner, Row

ROOT = Path(__file__).resolve().parents[2]
RUN = "numbered"
KILLS = 10  # in each of the two tests


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    """E1: killed while writing on the loop's thread."""
    kill_and_look(tmp_path / "runs.db", inline_below=1.0)


def test_nothing_acknowledged_is_lost_by_a_kill_in_the_thread(tmp_path: Path) -> None:
    """E1: killed while writing in the store's thread."""
    kill_and_look(tmp_path / "runs.db", inline_below=0.0)


def kill_and_look(path: Path, inline_below: float) -> None:
    """Kill writer after writer of one history, and look each time at what it left."""
    chance = random.Random()
    seen = 0
    for _ in range(KILLS):
        acknowledged = write_and_die(path, inline_below, chance.uniform(0, 0.1))
        rows = asyncio.run(read(path))
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        whole = batches(rows)
        assert len(rows) in {acknowledged, acknowledged + size_of(acknowledged)}
        assert sum(whole) == len(rows) > seen
        seen = len(rows)


def write_and_die(path: Path, inline_below: float, seconds: float) -> int:
    """Let a process append until it is killed; returns the last sequence number it was told is durable."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, __file__, str(path), str(inline_below)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        rest = writer.stdout.read()
    assert writer.returncode == -9
    return int((first + rest).split()[-1])


async def read(path: Path) -> list[Row]:
    """The whole history; every content that its rows name is there."""
    store = SqliteStore(path)
    await store.open()
    rows: list[Row] = []
    while page := await store.read(RUN, len(rows)):
        rows += page
    head = await store.head(RUN)
    assert head is not None
    assert head.seq == len(rows)
    for row in rows:
        assert await store.blob(f"content of {row.data.split()[0].decode()}") is not None
    await store.close()
    return rows


def batches(rows: list[Row]) -> list[int]:
    """The sizes of the appends that the rows came from, each of them whole."""
    sizes = []
    left = list(rows)
    while left:
        after, _, size = (int(word) for word in left[0].data.split())
        mine, left = left[:size], left[size:]
        assert [row.data for row in mine] == [b"%d %d %d" % (after, n, size) for n in range(size)]
        sizes.append(size)
    return sizes


def size_of(after: int) -> int:
    """How many rows the append after that sequence number has."""
    return after % 3 + 1


# -- The process that gets killed ---------------------------------------------------------------------------------


async def write(path: str, inline_below: float) -> None:
    """Append for ever; say each sequence number once it is durable."""
    store = SqliteStore(path, inline_below=inline_below)
    await store.open()
    head = await store.head(RUN)
    if head is None:
        await store.create(head := Head(RUN))
    lease = await store.claim(RUN, Owner("here", os.getpid(), 0.0), 0.0, over=head.fence)
    seq = head.seq
    while True:
        size = size_of(seq)
        rows = [(0.0, b"%d %d %d" % (seq, n, size)) for n in range(size)]
        await store.append(Batch(RUN, seq, rows, lease.fence, {f"content of {seq}": os.urandom(5000)}))
        seq += size
        os.write(1, b"%d\n" % seq)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], float(sys.argv[2])))
