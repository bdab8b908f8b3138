"""The demo is run as a user would run it, and what it claims is checked once more, from the files it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.demo.claims import TROUBLES, Killed, claims
from rerail.demo.demo import sweep
from rerail.demo.tools import CALLS, EFFECTS, DemoWorld

ENV = {**os.environ, "PYTHONUTF8": "1", "RERAIL_LANG": "en"}


def rerail_demo(*words: str) -> subprocess.CompletedProcess[str]:
    """`rerail demo`, with nobody at the terminal."""
    command = [sys.executable, "-m", "rerail.cli", "demo", "--fast", *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, env=ENV)


@dataclass(frozen=True)
class Played:
    """One performance: what was said, and what is left."""

    code: int
    said: str
    err: str
    run: str
    folder: Path
    events: list[Any]
    result: rerail.RunResult

    @property
    def world(self) -> DemoWorld:
        return DemoWorld(self.folder / "work" / self.run)

    @property
    def killed_pid(self) -> int:
        found = re.search(r"kill -9 (\d+)", self.said)
        assert found
        return int(found[1])

    def of(self, kind: str, step: str = "") -> list[Any]:
        """The events of a type, and of a step if one is named."""
        return [event for event in self.events if event.type == kind and (not step or event.step == step)]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once for all tests of this file."""
    folder = tmp_path_factory.mktemp("demo folder")  # with a space: the commands it prints have to be quoted
    done = rerail_demo("--keep", str(folder))
    found = re.search(r"\bdemo-[0-9a-f]{4}\b", done.stdout)
    assert found, done.stdout + done.stderr

    async def history() -> tuple[list[Any], rerail.RunResult]:
        async with rerail.Engine(f"sqlite:///{folder / 'runs.db'}") as engine:
            return await engine.events(found[0]), await engine.show(found[0])

    events, result = asyncio.run(history())
    return Played(done.returncode, done.stdout, done.stderr, found[0], folder, events, result)


def test_it_ends_well_and_says_so(played: Played) -> None:
    """Exit code 0, nothing on stderr, every claim held, plain text where there is no terminal."""
    assert (played.code, played.err) == (0, "")
    held = played.said.partition("What held")[2].partition("Look closer")[0]
    assert held.count("✓") == 6
    assert "✗" not in held
    assert "\x1b" not in played.said


def test_nobody_waits_for_nothing(played: Played) -> None:
    """A call that is repeated without a wait is repeated at once."""
    assert "called again, at no cost" in played.said
    assert not re.search(r"\bin 0 ms", played.said)


def test_a_process_is_really_killed_in_the_middle(played: Played) -> None:
    """E1, E2: the history goes on in another process; nothing had ended before, and calls were cut off."""
    assert not Path(f"/proc/{played.killed_pid}").exists()
    (resumed,) = played.of("resumed")
    assert "courier" in resumed.lost
    assert [event.seq for event in played.of("done")] == [len(played.events)]
    pids = [line["pid"] for line in played.world.lines(CALLS)]
    first = pids.count(played.killed_pid)
    assert 0 < first < len(pids)
    assert set(pids[:first]) == {played.killed_pid}  # one process after the other, never both
    assert len(set(pids)) == 2


def test_nothing_happens_twice(played: Played) -> None:
    """E1, E3: one line in each log of side effects; no finished step is called again by the second process."""
    for log in EFFECTS:
        assert len(played.world.lines(log)) == 1, log
    (resumed,) = played.of("resumed")
    before = {event.step for event in played.events if event.type == "step_succeeded" and event.seq < resumed.seq}
    later = {line["step"] for line in played.world.lines(CALLS) if line["pid"] != played.killed_pid}
    assert before >= {"order", "rates", "stock", "reserve", "price", "invoice"}
    assert not before & later
    assert "courier" not in later  # its effect was found, so it was not called again
    assert "pay" not in later


def test_all_five_kinds_of_healing_are_shown(played: Played) -> None:
    """X8, H3, H5, H9, V8: each kind is in the history, and told in the text."""
    (wait,) = [event for event in played.of("retry_scheduled", "rates") if event.not_now]
    assert wait.retries_left == 3
    (adjusted,) = played.of("recovered", "stock")
    assert (adjusted.rung, adjusted.args["warehouse"]) == ("adjusted_arguments", "berlin")
    (other,) = played.of("recovered", "invoice")
    assert (other.rung, other.tool) == ("alternative_tool", "print_here")
    (skipped,) = played.of("step_skipped", "ideas")
    assert skipped.code == "SKIP_OPTIONAL"
    (lost,) = played.of("step_failed", "pay")
    (verified,) = played.of("step_verified", "pay")
    assert (lost.lost, verified.effect) == (True, "there")
    account = played.said.partition("What became of it")[2]
    assert all(f"{trouble}:" in account for trouble in TROUBLES)


def test_the_verdict_is_told_as_it_is(played: Played) -> None:
    """V1, V2: completed and degraded, with the reason; the cost is the history's."""
    result = played.result
    assert (result.status, result.success, result.degraded) == ("completed", True, True)
    assert result.exec["calls"] == len(played.of("step_started"))
    assert result.summary in played.said
    assert "mail: made without the output of step 'ideas', which was skipped" in played.said
    assert f"{result.exec['calls']} for 12 steps" in played.said


def test_the_commands_it_names_work(played: Played) -> None:
    """Whoever wants to look closer can paste what is printed."""
    commands = [line.strip() for line in played.said.partition("Look closer")[2].splitlines() if "--store" in line]
    assert len(commands) == 4
    for command in commands:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, encoding="utf-8", env=ENV)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_it_notices_when_a_claim_does_not_hold(played: Played, tmp_path: Path) -> None:
    """A second payment, a second call, a process that was not killed: each is found out."""
    (resumed,) = played.of("resumed")

    def failing(world: DemoWorld, status: int = -9) -> list[str]:
        killed = Killed(played.killed_pid, status, resumed.seq - 1)
        return [claim.words for claim in claims(played.events, played.result, world, killed) if not claim.held]

    world = DemoWorld.make(tmp_path, 1.0)
    for log in (*EFFECTS, CALLS):
        for line in played.world.lines(log):
            world.append(log, line)
    assert failing(world) == []
    assert failing(world, status=0) == ["a process was killed in the middle of its calls"]
    world.append("payments.log", {"key": "again"})
    assert failing(world) == ["no side effect happened twice"]
    world.append(CALLS, {"step": "order", "pid": 1})
    assert failing(world)[0] == "no step that was finished before the kill was called again"
    assert "the history and the tools agree on what was called" in failing(world)


def test_json_is_one_document(tmp_path: Path) -> None:
    """I7: with --json there is one document on stdout, and the story goes to stderr."""
    done = rerail_demo("--json", "--keep", str(tmp_path))
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True)
    assert all(claim["held"] for claim in document["claims"])
    assert {healing["trouble"] for healing in document["healed"]} >= set(TROUBLES)
    assert "picks the run up" in done.stderr


def test_the_folders_of_old_demos_are_removed(tmp_path: Path) -> None:
    """What is left for those who want to look closer does not pile up; nothing else is touched."""
    for name, age in (("rerail-demo-old", 2), ("rerail-demo-new", 0), ("rerail-other", 2)):
        (tmp_path / name / "work").mkdir(parents=True)
        when = time.time() - age * 24 * 3600
        os.utime(tmp_path / name, (when, when))
    sweep(tmp_path, time.time() - 24 * 3600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rerail-demo-new", "rerail-other"]


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    """A mistake is told in one line with what to type, and exit code 2."""
    file = tmp_path / "file"
    file.write_text("")
    done = rerail_demo("--keep", str(file / "below"))
    assert done.returncode == 2
    assert "cannot use" in done.stderr
    assert "Traceback" not in done.stderr
