"""Who this process is, and whether another one still lives (SPEC T7)."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
from pathlib import Path

from rerail.ports import Head, Owner

RENEW_EVERY = 2.0
EXPIRED_AFTER = 30.0  # a holder on another machine that has not renewed for so long is taken for dead


@functools.cache
def this_process(*, worker: bool = False) -> Owner:
    """The identity of this process: pid alone is not enough, pids come back."""
    return Owner(socket.gethostname(), os.getpid(), process_start(os.getpid()) or 0.0, worker)


def is_this_process(owner: Owner) -> bool:
    """Whether the owner is this very process."""
    me = this_process()
    return (owner.host, owner.pid, owner.started) == (me.host, me.pid, me.started)


async def end_residual(owner: Owner, grace: float = 3.0) -> bool:
    """End a worker that outlived its run: TERM, then KILL, and only if pid and start time match (T7)."""
    for sent, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        if owner.host != socket.gethostname() or process_start(owner.pid) != owner.started:
            return sent is not signal.SIGTERM
        os.kill(owner.pid, sent)
        waited = 0.0
        while process_start(owner.pid) == owner.started and waited < patience:
            await asyncio.sleep(0.05)
            waited += 0.05
    return process_start(owner.pid) != owner.started


def process_start(pid: int) -> float | None:
    """When a process of this machine started, in the machine's own ticks; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_without_proc(pid)
    except OSError:
        return None
    # The name in parentheses may hold anything, so count from its end; the 22nd field is the start time.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else float(fields[19])


def _start_without_proc(pid: int) -> float | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0.0


def is_dead(head: Head, now: float) -> bool:
    """Whether a run's owner is known to be gone: by pid and start time here, by silence elsewhere."""
    owner = head.owner
    if owner is None:
        return True
    if owner.host == socket.gethostname():
        return process_start(owner.pid) != owner.started
    return now - head.renewed_at > EXPIRED_AFTER


os.register_at_fork(after_in_child=this_process.cache_clear)
