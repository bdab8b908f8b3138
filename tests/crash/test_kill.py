"""kill -9 at random moments: no acknowledged step lost, none called twice, every doubt reported.

CI kills 20 times; `make long` sets RERAIL_KILLS=200.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.crash.child import plan, tools

import rerail

KILLS = int(os.environ.get("RERAIL_KILLS", "20"))
SIZE = 200


def child(store: str, ledger: Path, how: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.child", store, str(ledger), str(SIZE), how, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def kill_at_random(process: subprocess.Popen[str], chance: random.Random) -> bool:
    """Kill a child some time after it began to drive its run; True if it was still alive."""
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(chance.random() * 0.25)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return alive


def lines(ledger: Path) -> Counter[str]:
    return Counter(ledger.read_text().split())


async def look(store: str, ledger: Path) -> tuple[rerail.RunResult, list[rerail.Event]]:
    async with rerail.Engine(store, tools(ledger, verify=False)) as engine:
        return await engine.show("the-run"), await engine.events("the-run")


@pytest.mark.parametrize("verify", [False, True], ids=["doubts", "verified"])
def test_kill_minus_nine_at_random_moments(tmp_path: Path, verify: bool) -> None:
    """E1, E2, E3, T7: whatever the moment, no acknowledged step is lost and no `once` effect happens twice."""
    chance = random.Random(20260 + KILLS)
    kills = runs = doubts = 0
    while kills < KILLS // 2:
        runs += 1
        store, ledger = f"sqlite:///{tmp_path}/{runs}/runs.db", tmp_path / f"{runs}.txt"
        how, more = "start", ["--verify"] if verify else []
        acknowledged: set[str] = set()
        while True:
            kills += kill_at_random(child(store, ledger, how, *more), chance)
            result, events = asyncio.run(look(store, ledger))
            succeeded = {
                e.step
                for e in events
                if e.type in ("step_succeeded",) or (e.type == "step_verified" and e.effect == "there")
            }
            assert acknowledged <= succeeded, "no acknowledged step is lost"
            acknowledged = succeeded
            written = lines(ledger)
            assert max(written.values(), default=0) <= 1, f"called twice: {[n for n, c in written.items() if c > 1]}"
            assert acknowledged <= set(written)
            if result.status == "running":
                how = "resume"
                continue
            break
        if result.status == "waiting":
            doubts += len(result.waiting_on)
            assert not verify, "with verify nothing stays in doubt"
            resolved = asyncio.run(settle(store, ledger, result))
            assert resolved.success
            # Everything that was in doubt and had happened was reported, not called again.
            assert max(lines(ledger).values()) <= 1
        else:
            assert result.success and set(lines(ledger)) == {f"s{i}" for i in range(SIZE)}
        started = {(e.step, e.attempt) for e in events if e.type == "step_started"}
        assert len(started) == sum(1 for e in events if e.type == "step_started"), "no attempt number twice"
    print(f"{kills} kills in {runs} runs, {doubts} doubts reported")


async def settle(store: str, ledger: Path, result: rerail.RunResult) -> rerail.RunResult:
    """Answer each doubt as a person would who looks at the ledger."""
    async with rerail.Engine(store, tools(ledger, verify=False)) as engine:
        while result.status == "waiting":
            step = result.waiting_on[0]["step"]
            if step in lines(ledger):
                await engine.resolve("the-run", step, succeeded={"wrote": step})
            else:
                await engine.resolve("the-run", step, rerun=True)
            result = await engine.wait("the-run")
        return result


def refused_by(owner: subprocess.Popen[str], attempt: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """What a second writer is told; an owner that was frozen in the middle of a write is frozen again elsewhere."""
    for _ in range(20):
        try:
            return asyncio.run(attempt())
        except rerail.StoreError:
            os.kill(owner.pid, signal.SIGCONT)
            time.sleep(0.003)
            os.kill(owner.pid, signal.SIGSTOP)
    raise AssertionError("the store stayed locked")


def test_two_writers_on_one_run(tmp_path: Path) -> None:
    """T7, E1: two processes on one run: one wins, the other is refused; a dead owner's run is taken over."""
    store, ledger = f"sqlite:///{tmp_path}/runs.db", tmp_path / "ledger.txt"
    first = child(store, ledger, "start")
    assert first.stdout is not None
    first.stdout.readline()
    os.kill(first.pid, signal.SIGSTOP)

    async def second() -> str:
        async with rerail.Engine(store, tools(ledger, verify=False)) as engine:
            with pytest.raises(rerail.Refused) as refused:
                await engine.resume("the-run")
            return refused.value.code

    assert refused_by(first, second) == "RUN_LIVE"
    os.kill(first.pid, signal.SIGCONT)
    first.wait()
    first.stdout.close()
    result, _ = asyncio.run(look(store, ledger))
    assert result.success and max(lines(ledger).values()) == 1
    assert plan(8)["objective"] == result.objective
