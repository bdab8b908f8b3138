"""A guardian process: commands end with the process that started them, also after kill -9 (contract V8).

Rules of this file:
- One guardian per process, started with its first command. It holds a pipe from its owner; when the pipe closes, the
  owner is gone, and the guardian ends every process group that is registered then.
- A group is unregistered when its command ends, because its number may come back. Where /proc tells when a process
  started, a number that came back is also recognised.
- The guardian has a session of its own and ignores the signals of a terminal. It ends with its owner, never before it.
- Where it cannot be started, commands run without one.

A command is registered right after it was started: an owner killed between the two leaves it running. So does an owner
that is frozen; a process that leaves its group (a daemon) is not found either.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
        """Start the guardian, if there is none: before a command, so that registering it takes no time."""
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
        """Unregister a group whose command has ended, unless its number is another command's by now."""
        with self._lock:
            if self._groups.get(watched.group) is watched:
                del self._groups[watched.group]
                self._tell(watched.group, "-")

    def reset(self) -> None:
        """Forget the guardian after a fork: it is the parent's, and its pipe must not be held open here."""
        process = self._process
        self._forget()  # the lock too: a thread that is not here may have held it
        if process is not None:
            process.returncode = 0  # another process's child: there is nothing to wait for
            _close(process)

    def close(self) -> None:
        """End the guardian, and with it every group that is still registered."""
        with self._lock:
            process, self._process = self._process, None
            self._groups.clear()
        if process is not None:
            _close(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)

    def _tell(self, group: int, sign: str) -> None:
        if self._process is not None and not _told(self._process, {group: sign}):
            # It was killed, or stopped until its pipe was full. It must not act on what it was told before.
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
        # One that dies at once is replaced with the next command.
        _told(process, {group: one.sign for group, one in self._groups.items()})
        return process


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A process group that is registered."""

    guardian: Guardian
    group: int
    sign: str

    def release(self) -> None:
        """Unregister it; a second time does nothing."""
        self.guardian.release(self)


def _told(process: subprocess.Popen[bytes], groups: Mapping[int, str]) -> bool:
    """Whether the guardian took the lines; each is short enough to be written whole or not at all."""
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
