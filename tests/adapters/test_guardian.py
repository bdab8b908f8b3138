"""Commands end with the process that started them, whatever ended it (V8)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rerail.adapters.executors.processes import guardian as module
from rerail.adapters.executors.processes.guardian import GUARDIAN, Guardian
from rerail.adapters.tools.shell import ShellTool

SLEEP = ["sleep", "60"]


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    made = Guardian()
    yield made
    made.close()


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Groups to be watched; they are ended with the test."""
    made: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(words or SLEEP, start_new_session=True, stdout=subprocess.PIPE))
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.communicate()


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)


def pid_of(guardian: Guardian) -> int:
    assert guardian._process is not None
    return guardian._process.pid


COMMAND = """
import asyncio, sys
from rerail.adapters.tools.shell import ShellTool
line = 'echo $$ > pids; sleep 60 & echo $! >> pids; wait'
asyncio.run(ShellTool("x", ["sh", "-c", line], cwd=sys.argv[1]).call({}))
"""


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM])
def test_v8_a_command_ends_with_its_owner(tmp_path: Path, ended: signal.Signals) -> None:
    """V8: kill -9 of the engine's process ends the command and what the command started; the guardian goes as well."""
    owner = subprocess.Popen([sys.executable, "-c", COMMAND, str(tmp_path)])
    pids = tmp_path / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    children = [int(pid) for pid in Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()]
    assert len(children) == 2, "the command and the guardian"
    time.sleep(0.2)  # the guardian reads
    owner.send_signal(ended)
    owner.wait()
    until(lambda: not any(state(pid).strip("Z") for pid in (*map(int, pids.read_text().split()), *children)), 3.0)


def test_v8_a_group_that_was_released_is_left_alone(
    guardian: Guardian, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """V8: a command that ended is unregistered, once: its number may be another command's by then."""
    kept, ended = sleeper(), sleeper()
    guardian.watch(kept.pid)
    first = guardian.watch(ended.pid)
    first.release()
    guardian.close()
    assert kept.wait(3) == -signal.SIGKILL and ended.poll() is None
    again = guardian.watch(ended.pid)
    first.release()  # of an earlier command of that number
    guardian.close()
    assert ended.wait(3) == -signal.SIGKILL
    again.release()


def test_v8_a_number_that_came_back_is_recognised(
    guardian: Guardian, sleeper: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V8: a process that started later than the command is not the command, even if nothing was unregistered."""
    monkeypatch.setattr(module, "SCRIPT", module.SCRIPT.replace('start_of "$group"; groups=', "start=1; groups="))
    other = sleeper()
    guardian.watch(other.pid)
    time.sleep(0.1)
    guardian.close()
    assert other.poll() is None


def test_v8_a_server_is_asked_to_end_first(guardian: Guardian, sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    """V8: TERM, then KILL a second later for one that does not listen."""
    stubborn, polite = sleeper("sh", "-c", "trap '' TERM; echo up; sleep 60 & wait; wait"), sleeper()
    assert stubborn.stdout is not None and stubborn.stdout.readline() == b"up\n"
    for one in (stubborn, polite):
        guardian.watch(one.pid, gently=True)
    began = time.monotonic()
    guardian.close()
    assert polite.wait(3) == -signal.SIGTERM
    assert stubborn.wait(3) == -signal.SIGKILL and time.monotonic() - began > 0.9


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_v8_a_guardian_that_is_killed_or_stopped_is_replaced(
    guardian: Guardian, sleeper: Callable[..., subprocess.Popen[bytes]], how: signal.Signals
) -> None:
    """V8: the next one is told of everything; a full pipe blocks no event loop."""
    first = sleeper()
    guardian.watch(first.pid)
    before = pid_of(guardian)
    os.kill(before, how)
    until(lambda: state(before) in ("Z", "T"))
    began = time.monotonic()
    for _ in range(20_000 if how is signal.SIGSTOP else 2):
        guardian.watch(first.pid).release()
    guardian.watch(first.pid)
    assert pid_of(guardian) != before and state(before) == "" and time.monotonic() - began < 10
    guardian.close()
    assert first.wait(3) == -signal.SIGKILL


def test_v8_terminal_signals_do_not_end_the_guardian(
    guardian: Guardian, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """V8: it has a session of its own, and ignores Ctrl-C, hang-up and TERM."""
    one = sleeper()
    guardian.watch(one.pid)
    pid = pid_of(guardian)
    assert os.getsid(pid) == pid != os.getsid(0)
    time.sleep(0.2)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        os.kill(pid, number)
    time.sleep(0.1)
    assert state(pid) not in ("", "Z")


def test_v8_a_fork_has_a_guardian_of_its_own(tmp_path: Path) -> None:
    """V8: a forked child does not hold its parent's pipe open, and ends nothing of its parent's."""
    program = """
import os, subprocess, sys, time
from rerail.adapters.executors.processes.guardian import GUARDIAN
one = subprocess.Popen(["sleep", "60"], start_new_session=True)
GUARDIAN.watch(one.pid)
time.sleep(0.2)
child = os.fork()
if child == 0:
    two = subprocess.Popen(["sleep", "60"], start_new_session=True)
    GUARDIAN.watch(two.pid)
    time.sleep(0.2)
    if sys.argv[1] == "child":
        os._exit(0)
    print(one.pid, two.pid, flush=True)
    time.sleep(60)
if sys.argv[1] == "child":
    os.waitpid(child, 0)
    time.sleep(0.5)
    print(one.poll(), flush=True)
else:
    time.sleep(60)
"""
    ran = subprocess.run([sys.executable, "-c", program, "child"], capture_output=True, text=True, timeout=30)
    assert ran.stdout == "None\n", ran
    parent = subprocess.Popen([sys.executable, "-c", program, "parent"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    one, two = (int(pid) for pid in parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    until(lambda: state(one) in ("", "Z"), 3.0)
    assert state(two) not in ("", "Z")
    os.killpg(two, signal.SIGKILL)
    parent.stdout.close()


def test_v8_without_a_shell_commands_run_as_before(
    monkeypatch: pytest.MonkeyPatch, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """V8: where no guardian can be started nothing breaks."""
    bare = Guardian("/nowhere/sh")
    one = sleeper()
    bare.watch(one.pid).release()
    bare.close()
    assert one.poll() is None
    monkeypatch.setattr("rerail.adapters.tools.shell.GUARDIAN", bare)
    assert asyncio.run(ShellTool("x", ["echo", "hi"]).call({}))["stdout"] == "hi\n"


def test_v8_what_ended_is_not_registered_any_more() -> None:
    """V8: a hundred commands later the guardian knows of none, and there is no zombie."""

    async def main() -> None:
        tool = ShellTool("x", ["true"])
        for _ in range(5):
            await asyncio.gather(*(tool.call({}) for _ in range(20)))

    asyncio.run(main())
    assert not GUARDIAN._groups
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    until(lambda: "Z" not in [state(int(pid)) for pid in children], 3.0)


def test_v8_a_program_that_ends_leaves_nothing(tmp_path: Path) -> None:
    """V8: neither the guardian nor a word of it."""
    program = """
import asyncio, os
from pathlib import Path
from rerail.adapters.tools.shell import ShellTool
asyncio.run(ShellTool("x", ["true"]).call({}))
print(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.split()) == 1
    assert state(int(done.stdout)) == ""
