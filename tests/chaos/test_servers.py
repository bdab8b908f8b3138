"""Servers that come and go while runs are under way, and writers that are killed: every run ends as it must.

CI drives 20 runs of 20 steps; `make long` sets RERAIL_CHAOS=200.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.writer import STEPS, digest, kind_of, plan
from tests.contracts.servers import PostgresServer, RedisServer, own_postgres, own_redis

import rerail

RUNS = int(os.environ.get("RERAIL_CHAOS", "20"))
WRITERS = 2
RESTART_EVERY, KILL_EVERY = (2.0, 4.0), (4.0, 8.0)  # seconds, from and to
HANG_EVERY, HANG_FOR = (6.0, 10.0), (0.5, 2.5)  # seconds; writers give a silent server up after one
WITHIN = 120 + 6 * RUNS  # seconds, after which nobody will come to an end any more
ROOT = Path(__file__).resolve().parents[2]


class Writers:
    """The processes that drive the runs, each its own share of them; one that was killed is started again."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._shares = [(RUNS * n // WRITERS, RUNS * (n + 1) // WRITERS) for n in range(WRITERS)]
        self._processes = [self._begin(*share) for share in self._shares]
        self.kills = 0

    def _begin(self, first: int, last: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.chaos.writer", self._store, str(self._folder), str(first), str(last)]
        said = (self._folder / "writers.txt").open("ab")
        with said:
            return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)

    @property
    def busy(self) -> list[int]:
        """Those that are not done; one that ended badly is a failure."""
        codes = [process.poll() for process in self._processes]
        assert not any(codes), (self._folder / "writers.txt").read_text()[-5000:]
        return [number for number, code in enumerate(codes) if code is None]

    @property
    def at_work(self) -> list[int]:
        """Those that have written something: on a slow machine others would be killed before they have begun."""
        journals = self._folder / "journals"
        return [number for number in self.busy if (journals / str(self._processes[number].pid)).exists()]

    def kill(self, number: int) -> None:
        """Kill one with -9, and let another go on in its place."""
        self._processes[number].kill()
        self._processes[number].wait()
        self.kills += 1
        self._processes[number] = self._begin(*self._shares[number])

    def end(self) -> None:
        """Leave nobody behind."""
        for process in self._processes:
            process.kill()
            process.wait()


def drive(server: PostgresServer | RedisServer, store: str, folder: Path) -> dict[str, Any]:
    """Let the runs go on while their server is stopped and started, or hangs, and their writers are killed."""
    for name in ("effects", "tries", "journals"):
        (folder / name).mkdir()
    chance, begun, restarts, hangs = random.Random(20261116 + RUNS), time.monotonic(), 0, 0
    writers = Writers(store, folder)
    restart_at, kill_at, hang_at = begun + 2.0, begun + 3.0, begun + 4.0
    try:
        while writers.busy:
            now = time.monotonic()
            assert now - begun < WITHIN, "some run does not come to its end"
            if now >= restart_at:
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                server.start()
                restarts += 1
                restart_at = time.monotonic() + chance.uniform(*RESTART_EVERY)
            if now >= hang_at:
                server.freeze()
                time.sleep(chance.uniform(*HANG_FOR))
                server.thaw()
                hangs += 1
                hang_at = time.monotonic() + chance.uniform(*HANG_EVERY)
            if now >= kill_at and (able := writers.at_work):
                writers.kill(chance.choice(able))
                kill_at = time.monotonic() + chance.uniform(*KILL_EVERY)
            time.sleep(0.05)
    finally:
        writers.end()
    return {"restarts": restarts, "hangs": hangs, "kills": writers.kills, "seconds": time.monotonic() - begun}


async def look(store: str, folder: Path) -> Counter[str]:
    """Compare what the store says with what really happened; returns what there was to see."""
    seen: Counter[str] = Counter()
    told = _journals(folder)
    async with rerail.Engine(store) as engine:
        assert len(await engine.list(limit=10 * RUNS)) == RUNS
        for number in range(RUNS):
            run = f"run-{number:03}"
            result, records = await engine.show(run), await engine.events(run)
            _right_verdict(number, result)
            _nothing_lost_or_doubled(records, told.pop(run, {}))
            seen["events"] += len(records)
            seen["resumes"] += sum(1 for r in records if r.type == "resumed")
            seen["doubts cleared"] += sum(1 for r in records if r.type == "step_verified" and r.effect == "there")
    assert not told
    effects = {path.name: path.read_text().splitlines() for path in (folder / "effects").iterdir()}
    twice = {name: lines for name, lines in effects.items() if len(lines) != 1}
    assert not twice, "an effect that must not happen twice did"
    wanted = {f"run-{n:03}.{step['id']}" for n in range(RUNS) for step in plan(n)["steps"] if step["tool"] == "effect"}
    assert set(effects) == wanted
    seen["effects"] = len(effects)
    return seen


def _journals(folder: Path) -> dict[str, dict[int, str]]:
    """The events that somebody was told are durable; nobody may have been told of two under one number."""
    told: dict[str, dict[int, str]] = {}
    for path in (folder / "journals").iterdir():
        for line in path.read_text().splitlines():
            run, seq, what = line.split()
            assert told.setdefault(run, {}).setdefault(int(seq), what) == what
    return told


def _right_verdict(number: int, result: rerail.RunResult) -> None:
    kind = kind_of(number)
    assert result.success == (kind != "failed"), result.summary
    assert result.degraded == (kind == "degraded"), result.summary
    assert [row["id"] for row in result.failed_steps] == (["s15"] if kind == "failed" else [])
    assert result.consequences == (("s17", "s19") if kind == "failed" else ())
    ended = Counter(step.status for step in result.steps.values())
    if kind == "well":
        assert ended == {"succeeded": STEPS}


def _nothing_lost_or_doubled(records: list[Any], told: dict[int, str]) -> None:
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert told.items() <= {record.seq: digest(record.event) for record in records}.items(), "an event was lost"
    begun = Counter((r.step, r.attempt) for r in records if r.type == "step_started")
    ended = Counter((r.step, r.attempt) for r in records if r.type == "step_succeeded")
    assert set(begun.values()) == {1} and set(ended.values()) == {1}
    assert [record.type for record in records].count("done") == 1 and records[-1].type == "done"


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_runs_end_as_they_must_while_their_server_comes_and_goes(kind: str, tmp_path: Path) -> None:
    """E1, E3, E4, T7: stopped hard or frozen every few seconds, writers killed: nothing is lost or doubled, all end."""
    with own_postgres() if kind == "postgres" else own_redis() as server:
        store = server.fresh()
        done = drive(server, store, tmp_path)
        seen = asyncio.run(look(store, tmp_path))
    assert done["restarts"] >= 2 and done["hangs"] >= 1 and done["kills"] >= 1, "there was no chaos"
    facts = {**done, **seen}
    print(f"{kind}: {RUNS} runs, " + ", ".join(f"{name} {value:.6g}" for name, value in facts.items()))
