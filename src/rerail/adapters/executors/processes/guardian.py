"""Guardian process: commands end with their starter, also after kill -9 (contract V8).

Rules of this file:
- One guardian per process, started with its first command. It reads a pipe from its owner. The pipe closes when the
  owner dies, and the guardian then ends every registered process group.
- A group is unregistered when its command ends, because its number may be reused. Where /proc tells the start time of a
  process, the guardian also recognises a reused number.
- The guardian has a session of its own and ignores the signals of a terminal. It ends with its owner, never before it.
- Where it cannot be started, commands run without one.

A command is registered right after its start: an owner killed between the two leaves it running. So does a frozen
owner. A process that leaves its group (a daemon) is not found either.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rerail.context import excerpt

# Lines "+ GROUP" (a command: KILL), "~ GROUP" (a server: TERM, a second, KILL) and "- GROUP" (it has ended).
SCRIPT: Final = r"""
trap '' HUP INT QUIT TERM
groups=
start_of() { stat=; read -r stat < "/proc/$1/stat"; set -- ${stat##*\) }; start=${20-}; }
strike() {
  for one in $groups; do
    rest=${one#?}; group=${rest%:*}; start_of "$group"
    case $one in "$1"*) [ "${start:-${rest#*:}}" != "${rest#*:}" ] || kill -s "$2" -- "-$group" ;; esac
  done
}
while read -r sign group; do
  kept=
  for one in $groups; do case $one in ?"$group":*) ;; *) kept="$kept $one" ;; esac; done
  groups=$kept
  [ "$sign" = - ] || { start_of "$group"; groups="$groups $sign$group:$start"; }
done
strike + KILL
case $groups in *"~"*) strike '~' TERM; sleep 1; strike '~' KILL ;; esac
"""
SHELL: Final = "/bin/sh"
MARGIN: Final = 4_096  # bytes of stderr beyond what is kept: a secret at the edge is seen whole, and redacted


class Guardian:
    """The guardian of this process; safe to call from any thread."""

    def __init__(self, shell: str = SHELL) -> None:
        self._shell = shell
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: dict[int, Watched] = {}

    def open(self) -> None:
        """Start the guardian before the first command, so that registering takes no time."""
        with self._lock:
            if self._process is None:
                self._process = self._started()

    def watch(self, group: int, *, gently: bool = False) -> Watched:
        """Register a process group; a gentle end is TERM first, and KILL a second later."""
        watched = Watched(self, group, "~" if gently else "+")
        with self._lock:
            self._groups[group] = watched
            self._tell(group, watched.sign)
        return watched

    def release(self, watched: Watched) -> None:
        """Unregister a finished command's group, unless another command reuses its number."""
        with self._lock:
            if self._groups.get(watched.group) is watched:
                del self._groups[watched.group]
                self._tell(watched.group, "-")

    def reset(self) -> None:
        """Forget the guardian after a fork: it is the parent's, and its pipe must not be held open here."""
        process = self._process
        self._forget()  # the lock too: a thread that does not exist here may have held it
        if process is not None:
            process.returncode = 0  # another process's child: there is no exit to wait for
            _close(process)

    def close(self) -> None:
        """End the guardian, and with it every registered group."""
        with self._lock:
            process, self._process = self._process, None
            self._groups.clear()
        if process is not None:
            _close(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)

    def _tell(self, group: int, sign: str) -> None:
        if self._process is not None and not _told(self._process, {group: sign}):
            # It was killed, or stopped until its pipe was full. It must not act on earlier lines.
            self._process.kill()
            self._process.wait()
            _close(self._process)
            self._process = None
        if self._process is None and self._groups:
            self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes] | None:
        try:
            process = subprocess.Popen(
                [self._shell, "-c", SCRIPT, "rerail-guardian"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd="/", env={"PATH": "/usr/bin:/bin"}, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError:
            return None  # no shell, or no room for a process: the next command tries again
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        # A guardian that dies at once is replaced with the next command.
        _told(process, {group: one.sign for group, one in self._groups.items()})
        return process


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A registered process group."""

    guardian: Guardian
    group: int
    sign: str

    def release(self) -> None:
        """Unregister the group; a second call has no effect."""
        self.guardian.release(self)


def _told(process: subprocess.Popen[bytes], groups: Mapping[int, str]) -> bool:
    """Write lines to the guardian; False if it is gone. Each line is short enough for an atomic write."""
    assert process.stdin is not None
    try:
        for group, sign in groups.items():
            os.write(process.stdin.fileno(), f"{sign} {group}\n".encode())
    except OSError:
        return False
    return True


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


GUARDIAN: Final = Guardian()
os.register_at_fork(after_in_child=GUARDIAN.reset)
atexit.register(GUARDIAN.close)


class WatchedProcess(asyncio.SubprocessProtocol):
    """A program in a session of its own, which the guardian ends with this process; the end of its stderr is kept."""

    gently = False  # how the guardian ends it
    most_stderr = 64_000  # bytes; of more, the end is kept
    transport: asyncio.SubprocessTransport

    def __init__(self) -> None:
        self.stderr = bytearray()
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched: Watched | None = None

    def said(self) -> str:
        """Return the end of its stderr, without secrets where it was cut."""
        return excerpt(self.stderr.decode("utf-8", "replace"), self.most_stderr, tail=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.transport, self._watched = transport, GUARDIAN.watch(transport.get_pid(), gently=self.gently)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[: -self.most_stderr - MARGIN]

    def process_exited(self) -> None:
        if self._watched is not None:
            self._watched.release()
        if not self.exited.done():
            self.exited.set_result(None)

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.transport.get_pid(), number)

    @property
    def stdin(self) -> asyncio.WriteTransport | None:
        pipe = self.transport.get_pipe_transport(0)
        return pipe if isinstance(pipe, asyncio.WriteTransport) else None
