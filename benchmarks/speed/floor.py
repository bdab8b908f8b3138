"""The floor: what a bare asyncio and apsw program costs for the same graph, the same rows and the same commits.

It keeps a counter of unmet needs per step, starts a task per ready step, writes two rows a step (intent and result) and
commits inline on the loop's thread, as often as the engine does. It knows no failure, no budget, no verdict: nobody can
run a durable plan in Python for less.
"""

from __future__ import annotations

import asyncio
from collections import deque

import apsw

ROW = b'{"type":"step_succeeded","step":"%d","attempt":1,"elapsed":3.2e-05}'


async def noop() -> None:
    """The tool."""


async def floor(needs: list[list[int]], path: str, concurrency: int) -> None:
    """Run the graph durably with nothing but counters."""
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE events(run TEXT, seq INTEGER, at REAL, data BLOB, PRIMARY KEY(run, seq)) WITHOUT ROWID"
    )
    unmet = [len(wanted) for wanted in needs]
    dependents: list[list[int]] = [[] for _ in needs]
    for step, wanted in enumerate(needs):
        for need in wanted:
            dependents[need].append(step)
    ready = deque(step for step, count in enumerate(unmet) if not count)
    done: deque[int] = deque()
    wake = asyncio.Event()
    running = seq = left = 0
    left = len(needs)
    limit = concurrency or len(needs)
    loop = asyncio.get_running_loop()
    cursor = connection.cursor()
    tasks: deque[asyncio.Task[None]] = deque(maxlen=limit)

    async def call(step: int) -> None:
        await noop()
        done.append(step)
        wake.set()

    while left:
        rows = []
        while done:
            step = done.popleft()
            running -= 1
            left -= 1
            seq += 1
            rows.append(("run", seq, 0.0, ROW % step))
            for dependent in dependents[step]:
                unmet[dependent] -= 1
                if not unmet[dependent]:
                    ready.append(dependent)
        starts = []
        while ready and running < limit:
            step = ready.popleft()
            running += 1
            seq += 1
            rows.append(("run", seq, 0.0, ROW % step))
            starts.append(step)
        cursor.execute("BEGIN IMMEDIATE")
        cursor.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        cursor.execute("COMMIT")
        for step in starts:
            tasks.append(loop.create_task(call(step)))
        if left:
            await wake.wait()
            wake.clear()
    connection.close()
