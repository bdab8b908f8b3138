"""Resource limits that a process sets on itself before it runs untrusted code (contract M2, X4).

Rules of this file:
- The standard library alone, without imports from Rerail. The file also runs as a program in front of a command,
  `python limits.py LIMITS COMMAND …`, and must start quickly.
- A limit that this machine lacks is refused; no command runs with fewer limits than promised.
- Children inherit every limit, whatever program they execute.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import struct
import sys

TYPE_CHECKING = False  # importing `typing` would take longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

# Numbers of Linux's system calls, where they differ: socket, clone, the older ways to fork, and calls that reach into
# another process: ptrace, process_vm_readv, process_vm_writev, pidfd_getfd.
_CALLS: dict[str, dict[str, Any]] = {
    "x86_64": {"audit": 0xC000003E, "socket": 41, "clone": 56, "forks": (57, 58), "others": (101, 310, 311, 438)},
    "aarch64": {"audit": 0xC00000B7, "socket": 198, "clone": 220, "forks": (), "others": (117, 270, 271, 438)},
}
_CLONE3, _IO_URING = 435, 425
_AF_UNIX, _CLONE_THREAD = 1, 0x00010000
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_REFUSE, _ALLOW, _KILL = 0x00050000, 0x7FFF0000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENT = 0, 4, 16  # offsets of the kernel's struct

UNAVAILABLE = 125  # the exit code of a command that cannot be limited here


def missing(limits: Mapping[str, Any]) -> list[str]:
    """Return the limits that this machine cannot set."""
    filters = sys.platform == "linux" and platform.machine() in _CALLS
    return [name for name in ("network", "processes") if limits.get(name) is False and not filters]


def apply(limits: Mapping[str, Any]) -> None:
    """Set the limits for this process and its descendants; OSError if one cannot be set."""
    if lacking := missing(limits):
        raise OSError(errno.ENOSYS, ", ".join(lacking))
    _limit(resource.RLIMIT_CORE, 0)
    if limits.get("file_size") is not None:
        _limit(resource.RLIMIT_FSIZE, limits["file_size"])
    if limits.get("memory") is not None:
        # Reserved but unused address space is not memory; only Linux tells the two apart.
        _limit(resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS, limits["memory"])
    calls = [name for name in ("network", "processes") if limits.get(name) is False]
    if calls:
        _filter(_CALLS[platform.machine()], network="network" in calls, processes="processes" in calls)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _filter(calls: Mapping[str, Any], *, network: bool, processes: bool) -> None:
    """Install a system call filter, for good."""
    refused = _REFUSE | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, calls["audit"]), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR), (_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, refused),  # the numbers of another ABI
    ]  # fmt: skip
    for number in calls["others"]:  # through another process every limit could be passed
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refused)]
    if network:  # sockets of this machine's own processes stay; a ring could open any
        program += [(_EQUAL, 0, 1, _IO_URING), (_RETURN, 0, 0, refused)]
        program += [(_EQUAL, 0, 4, calls["socket"]), (_LOAD, 0, 0, _ARGUMENT), (_EQUAL, 1, 0, _AF_UNIX)]
        program += [(_RETURN, 0, 0, refused), (_RETURN, 0, 0, _ALLOW)]
    if processes:  # threads stay
        for number in calls["forks"]:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refused)]
        program += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]  # libc then takes the older one
        program += [(_EQUAL, 0, 4, calls["clone"]), (_LOAD, 0, 0, _ARGUMENT), (_ANY_BIT, 1, 0, _CLONE_THREAD)]
        program += [(_RETURN, 0, 0, refused), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(ctypes.addressof(whole))
    for what in ((_NO_NEW_PRIVS, 1, None), (_SECCOMP, _FILTER, address)):
        if libc.prctl(what[0], ctypes.c_ulong(what[1]), what[2], None, None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> NoReturn:
    """Limit this process, then become the command."""
    try:
        apply(json.loads(sys.argv[1]))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(UNAVAILABLE)
    command = sys.argv[2:]
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is a list of arguments, as it was declared
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)  # as a shell does


if __name__ == "__main__":
    main()
