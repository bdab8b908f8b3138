"""Who this process is, and whether another one still lives (SPEC T7)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rerail.ports import Head, Owner

RENEW_EVERY = 2.0
EXPIRED_AFTER = 30.0  # a holder on another machine that has not renewed for so long is taken for dead
ARRIVING = "copying@"  # before the host of who copies a run here: until it is whole it is nobody else's


@functools.cache
def this_process(*, worker: bool = False) -> Owner:
    """The identity of this process: pid alone is not enough, pids come back."""
    return Owner(this_host(), os.getpid(), process_start(os.getpid()) or 0.0, worker)


@functools.cache
def this_host() -> str:
    """The name of this machine, and a mark: machines and containers of one name have pids of their own."""
    name = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return name  # not Linux: then the name has to do
    return f"{name}#{hashlib.sha256(f'{boot} {space}'.encode()).hexdigest()[:12]}"


def is_here(owner: Owner) -> bool:
    """Whether an owner's pid is one of ours to judge. Earlier versions gave a name alone."""
    here = this_host()
    return owner.host in (here, here.partition("#")[0])


def is_this_process(owner: Owner) -> bool:
    """Whether the owner is this very process."""
    me = this_process()
    return (owner.host, owner.pid, owner.started) == (me.host, me.pid, me.started)


def copier() -> Owner:
    """This process as the owner of runs that it copies: they are not there yet, whether it lives or not."""
    me = this_process()
    return replace(me, host=ARRIVING + me.host)


def is_arriving(head: Head) -> bool:
    """Whether a run was begun to be copied here, and is not whole."""
    return head.owner is not None and head.owner.host.startswith(ARRIVING)


def as_driven(head: Head) -> Head:
    """A run that arrives, as if who copies it drove it: whether that one lives can be told then."""
    if head.owner is None:
        return head
    return replace(head, owner=replace(head.owner, host=head.owner.host.removeprefix(ARRIVING)))


async def end_residual(owner: Owner, grace: float = 3.0) -> bool:
    """End a worker that outlived its run: TERM, then KILL, and only if pid and start time match (T7)."""
    if not is_here(owner) or not owner.started:
        return False  # another machine's, or one that cannot be told from a later process of its pid
    with _held(owner.pid) as send:
        for sent in (signal.SIGTERM, signal.SIGKILL):
            if process_start(owner.pid) != owner.started:
                return sent is not signal.SIGTERM
            with contextlib.suppress(ProcessLookupError):
                send(sent)
            waited = 0.0
            while process_start(owner.pid) == owner.started and waited < grace:
                await asyncio.sleep(0.05)
                waited += 0.05
    return process_start(owner.pid) != owner.started


@contextlib.contextmanager
def _held(pid: int) -> Iterator[Callable[[int], None]]:
    """A way to signal the process that has this pid now, and no later one, where the system can tell them apart."""
    try:
        held = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or already gone: then its start time differs
        yield functools.partial(os.kill, pid)
        return
    try:
        yield functools.partial(signal.pidfd_send_signal, held)
    finally:
        os.close(held)


def process_start(pid: int) -> float | None:
    """When a process of this machine started, in the machine's own ticks; None if there is no such process."""
    found = _look(pid)
    return found[1] if found is not None and found[0] not in "ZX" else None


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is held by SIGSTOP or a debugger."""
    found = _look(pid)
    return found is not None and found[0] in "Tt"


def _look(pid: int) -> tuple[str, float] | None:
    """The state of a process and when it started; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _ask_ps(pid)
    except OSError:
        return None
    # The name in parentheses may hold anything, so count from its end; the 22nd field is the start time.
    fields = stat.rpartition(")")[2].split()
    return fields[0], float(fields[19])


def _ask_ps(pid: int) -> tuple[str, float] | None:
    """The same where there is no /proc; the start is 0 where nobody can tell."""
    try:
        said = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], env={**os.environ, "LC_ALL": "C"},
            capture_output=True, text=True, timeout=5, check=False,
        ).stdout.split(None, 1)  # fmt: skip
        return (said[0][:1], time.mktime(time.strptime(said[1].strip(), "%a %b %d %H:%M:%S %Y"))) if said else None
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return ("?", 0.0) if _exists(pid) else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_dead(head: Head, now: float) -> bool:
    """Whether a run's owner is known to be gone: by pid and start time here, by silence elsewhere."""
    owner = head.owner
    if owner is None:
        return True
    if is_arriving(head):
        return False  # half a run is not taken up, whoever died
    if is_here(owner):
        return process_start(owner.pid) != owner.started
    return now - head.renewed_at > EXPIRED_AFTER


def is_silent(head: Head, now: float) -> bool:
    """Whether a living owner on this machine is stopped, or has not said for long that it is there.

    It may wake up at any time, so it is not dead; but a person may take its run away (decision 0008).
    """
    owner = head.owner
    if owner is None or not is_here(owner):
        return False
    return is_stopped(owner.pid) or now - head.renewed_at > EXPIRED_AFTER


os.register_at_fork(after_in_child=this_process.cache_clear)
os.register_at_fork(after_in_child=this_host.cache_clear)
