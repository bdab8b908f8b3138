"""Identity and liveness of lease holders (contract T7, E4).

Rules of this file:
- Of a process on another machine only its lease can be observed. It counts as dead after `EXPIRED_AFTER` without a
  renewal, observed while the store answers.
- The age of a lease alone proves nothing: during an outage of the store no process can renew. After it, a living owner
  renews within seconds, well before an observer counts it as dead.
- A watch uses the event loop's time: a wall clock that jumps, here or at the store, ends no ownership.
"""

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
from dataclasses import dataclass, field, replace
from pathlib import Path

from rerail.kernel.step_state import RunStatus
from rerail.ports import Head, Owner

RENEW_EVERY = 2.0
EXPIRED_AFTER = 30.0  # seconds without renewal after which a holder on another machine counts as dead
ARRIVING = "copying@"  # marks the host of a process that imports a run; no other may take the run before it is whole


@functools.cache
def this_process(*, worker: bool = False) -> Owner:
    """Return the identity of this process; the start time tells it from a later process of its pid."""
    return Owner(this_host(), os.getpid(), process_start(os.getpid()) or 0.0, worker)


@functools.cache
def this_host() -> str:
    """Return the name of this machine with a mark of its boot and pid namespace."""
    name = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return name  # not Linux: the name alone
    return f"{name}#{hashlib.sha256(f'{boot} {space}'.encode()).hexdigest()[:12]}"


def is_here(owner: Owner) -> bool:
    """Whether an owner's pid is one of this machine. Earlier versions recorded the name alone."""
    here = this_host()
    return owner.host in (here, here.partition("#")[0])


def is_this_process(owner: Owner) -> bool:
    me = this_process()
    return (owner.host, owner.pid, owner.started) == (me.host, me.pid, me.started)


def copier() -> Owner:
    """Return this process as the owner of runs that it imports: they stay locked even if it dies."""
    me = this_process()
    return replace(me, host=ARRIVING + me.host)


def is_arriving(head: Head) -> bool:
    """Whether a run is being imported, and is not whole."""
    return head.owner is not None and head.owner.host.startswith(ARRIVING)


def as_driven(head: Head) -> Head:
    """Return an arriving run as if the importer drove it, to judge the importer's liveness."""
    if head.owner is None:
        return head
    return replace(head, owner=replace(head.owner, host=head.owner.host.removeprefix(ARRIVING)))


async def end_residual(owner: Owner, grace: float = 3.0) -> bool:
    """End a worker that outlived its run: TERM, then KILL, only if pid and start time match (contract T7)."""
    if not is_here(owner) or not owner.started:
        return False  # on another machine, or not distinguishable from a later process of its pid
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
    """Yield a function that signals the process of this pid, and no later one where the system allows."""
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
    """Return when a process of this machine started, in ticks; None if there is no such process."""
    found = _look(pid)
    return found[1] if found is not None and found[0] not in "ZX" else None


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped by SIGSTOP or a debugger."""
    found = _look(pid)
    return found is not None and found[0] in "Tt"


def _look(pid: int) -> tuple[str, float] | None:
    """Return a process's state and start time; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _ask_ps(pid)
    except OSError:
        return None
    # The name in parentheses may hold anything: count from its end. The 22nd field is the start time.
    fields = stat.rpartition(")")[2].split()
    return fields[0], float(fields[19])


def _ask_ps(pid: int) -> tuple[str, float] | None:
    """The same without /proc; the start is 0 where it is unknown."""
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
    """Whether a run's owner is known to be dead: by pid and start time here, by its lease's age elsewhere."""
    owner = head.owner
    if owner is None:
        return True
    if is_arriving(head):
        return False  # an incomplete run is not taken over
    if is_here(owner):
        return process_start(owner.pid) != owner.started
    return now - head.renewed_at > EXPIRED_AFTER


def is_interrupted(head: Head, now: float) -> bool:
    """Whether a run should be driven, and no process drives it."""
    return head.status == RunStatus.RUNNING and is_dead(head, now)


def is_silent(head: Head, now: float) -> bool:
    """Whether a living owner on this machine is stopped, or has not renewed its lease for long.

    It may go on at any time, so it is not dead; a user may take over its run (decision 0008).
    """
    owner = head.owner
    if owner is None or not is_here(owner):
        return False
    return is_stopped(owner.pid) or now - head.renewed_at > EXPIRED_AFTER


WATCH_EVERY = 1.0  # seconds between two looks at a lease that seems expired
LOOK_GAP = 10.0  # seconds between two looks; beyond, the store may have been away, and the watch starts again
MANY = 1_000  # leases; beyond, those without a recent look are dropped


@dataclass(slots=True)
class _Sight:
    fence: int
    since: float  # when the watch began, or the lease was renewed under it
    last: float  # when it was looked at


@dataclass(slots=True)
class LeaseWatch:
    """What one process observed of the leases of others."""

    _seen: dict[str, _Sight] = field(default_factory=dict)
    _most: int = MANY

    def is_dead(self, head: Head, now: float) -> bool:
        """Look at a lease; True if its owner is known to be dead."""
        if head.owner is None or is_arriving(head) or is_here(head.owner):
            return is_dead(head, now)
        at = asyncio.get_running_loop().time()
        seen = self._seen.get(head.run)
        if seen is None or seen.fence != head.fence or at - seen.last > LOOK_GAP:
            if len(self._seen) >= self._most:
                self._seen = {run: one for run, one in self._seen.items() if at - one.last <= LOOK_GAP}
                self._most = max(MANY, 2 * len(self._seen))  # else each new lease would pay for a scan
            self._seen[head.run] = seen = _Sight(head.fence, at, at)
        seen.since, seen.last = min(at, max(seen.since, at - (now - head.renewed_at))), at
        return at - seen.since > EXPIRED_AFTER


os.register_at_fork(after_in_child=this_process.cache_clear)
os.register_at_fork(after_in_child=this_host.cache_clear)
