"""Tools within limits: what runs away, forks, eats memory or calls out harms nothing but its step (SPEC M2, X4)."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.executors.processes import limits as confine
from rerail.adapters.executors.processes.pool import PROCESSES
from rerail.adapters.tools.declared import from_mapping
from rerail.adapters.tools.loading import load_tools
from rerail.adapters.tools.shell import CommandFailed

PATIENT = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0, "backoff_base": 0}}

TOOLS = """
import os, socket, subprocess, threading
import rerail

@rerail.tool(limits={"memory": 400_000_000})
def eats():
    return len(bytearray(600_000_000))

@rerail.tool(limits={"memory": 400_000_000})
def modest():
    return len(bytearray(50_000_000))

@rerail.tool(limits={"file_size": 10_000})
def writes(path: str):
    with open(path, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4000)

@rerail.tool(limits={"network": False})
def calls_out(port: int):
    with socket.socketpair()[0], socket.socket(socket.AF_UNIX):
        pass  # what stays on this machine may
    socket.create_connection(("127.0.0.1", port), 5).close()
    return "there"

@rerail.tool(limits={"network": False})
def calls_out_by_a_child(port: int):
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    return subprocess.run(["python3", "-c", code], capture_output=True, text=True).stderr[-200:]

@rerail.tool(limits={"network": False})
def reaches_its_parent():
    import ctypes
    libc, found = ctypes.CDLL(None, use_errno=True), {}
    parent = os.getppid()
    for name, call in {
        "ptrace": lambda: libc.ptrace(16, parent, 0, 0),
        "read": lambda: libc.process_vm_readv(parent, None, 0, None, 0, 0),
        "write": lambda: libc.process_vm_writev(parent, None, 0, None, 0, 0),
        "getfd": lambda: libc.syscall(438, os.pidfd_open(parent), 1, 0),
    }.items():
        ctypes.set_errno(0)
        found[name] = [call(), ctypes.get_errno()]
    return found

@rerail.tool(limits={"processes": False})
def forks():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    spawn = lambda: os.posix_spawn("/bin/true", ["true"], {})
    for start in (os.fork, lambda: subprocess.Popen(["sleep", "60"]), spawn):
        try:
            start()
        except PermissionError:
            continue
        return "it forked"
    return "threads only"

@rerail.tool(limits={"processes": False}, timeout=1)
def hangs():
    while True:
        pass

@rerail.tool(isolated=True)
def free(port: int):
    socket.create_connection(("127.0.0.1", port), 5).close()
    return os.getpid()
"""


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """Tools of a file, as users have them."""
    (tmp_path / "limited.py").write_text(TOOLS)
    yield {tool.spec.name: tool for tool in load_tools(str(tmp_path / "limited.py"))}
    await PROCESSES.close()


async def test_a_limited_tool_does_not_reach_into_another_process(tools: dict[str, Any]) -> None:
    """SECURITY: its parent has the network that it lacks."""
    found = await tools["reaches_its_parent"].call({})
    assert found == {name: [-1, 1] for name in ("ptrace", "read", "write", "getfd")}


async def test_memory_has_an_end(tools: dict[str, Any]) -> None:
    """The tool hears of it as of any lack of memory; the machine does not."""
    with pytest.raises(MemoryError):
        await tools["eats"].call({})
    assert await tools["modest"].call({}) == 50_000_000


async def test_files_have_an_end(tools: dict[str, Any], tmp_path: Path) -> None:
    """A disk is not filled by one tool."""
    with pytest.raises(OSError, match="too large"):
        await tools["writes"].call({"path": str(tmp_path / "large")})
    assert (tmp_path / "large").stat().st_size <= 10_000


async def test_the_network_is_out_of_reach(tools: dict[str, Any]) -> None:
    """For the tool and whatever it starts; a tool without that limit reaches the same port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PermissionError):
            await tools["calls_out"].call({"port": port})
        assert "PermissionError" in await tools["calls_out_by_a_child"].call({"port": port})
        assert await tools["free"].call({"port": port}) != os.getpid()


async def test_no_process_begets_another(tools: dict[str, Any]) -> None:
    """By none of the ways there are; threads are no processes."""
    assert await tools["forks"].call({}) == "threads only"


async def test_workers_with_other_limits_are_other_workers(tools: dict[str, Any]) -> None:
    """Nobody inherits what another tool may."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for _ in range(2):
            await tools["free"].call({"port": port})
            with pytest.raises(PermissionError):
                await tools["calls_out"].call({"port": port})


async def test_whatever_they_do_only_their_steps_fail(tools: dict[str, Any], tmp_path: Path) -> None:
    """X3, X4: all at once in one run, and the run ends with an honest verdict."""
    plan = {
        "objective": "bear it",
        "steps": [
            *({"id": one, "tool": one, "critical": False} for one in ("eats", "hangs")),
            {"id": "writes", "tool": "writes", "args": {"path": str(tmp_path / "large")}, "critical": False},
            {"id": "fine", "tool": "modest"},
        ],
    }
    async with rerail.Engine("memory://", tools.values(), PATIENT) as engine:
        result = await engine.run(plan)
    statuses = {step: row.status for step, row in result.steps.items()}
    assert statuses == {"eats": "skipped", "hangs": "skipped", "writes": "skipped", "fine": "succeeded"}
    assert result.complete and result.degraded


# -- Commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "argv", "said"),
    [
        ({"network": False}, [sys.executable, "-c", "import socket; socket.socket()"], "PermissionError"),
        ({"processes": False}, ["sh", "-c", "sleep 1 & wait"], "fork"),
        ({"file_size": 1000}, ["sh", "-c", "head -c 5000 /dev/zero > {file}"], "File too large|25|SIGXFSZ"),
        ({"memory": 50_000_000}, [sys.executable, "-c", "bytearray(10**9)"], "MemoryError"),
    ],
)
async def test_commands_have_the_same_limits(limits: Any, argv: list[str], said: str, tmp_path: Path) -> None:
    """M2: declared in settings as well; without the limits the same command would do it."""
    args = {"file": str(tmp_path / "out")} if any("{file}" in one for one in argv) else {}
    limited = from_mapping("c", {"shell": {"argv": argv, "limits": limits}})
    with pytest.raises(Exception, match=said):
        await limited.call(args)
    assert (await from_mapping("c", {"shell": argv}).call(args))["status"] == 0


async def test_a_limited_command_is_found_or_not_as_any_other(tmp_path: Path) -> None:
    """Its exit status and its output are its own."""
    found = rerail.shell("c", ["sh", "-c", "echo hi; exit 3"], limits={"network": False}, ok=(3,))
    assert await found.call({}) == {"stdout": "hi\n", "stderr": "", "status": 3}
    with pytest.raises(CommandFailed, match="no-such-command"):
        await rerail.shell("c", ["no-such-command"], limits={"network": False}).call({})


# -- Mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"memory": "1 GB"}, {"memroy": 1}, {"network": 1}, {"file_size": -1}])
def test_a_limit_that_is_none_is_refused(limits: Any) -> None:
    """When it is declared, with what there is."""
    with pytest.raises(ValueError, match="limits are memory and file_size in bytes"):
        rerail.tool(os.getcwd, name="cwd", limits=limits)


def test_a_limit_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs with fewer limits than it was promised."""
    monkeypatch.setattr(platform, "machine", lambda: "sparc")
    assert confine.missing({"network": False, "processes": True, "memory": 1}) == ["network"]
    with pytest.raises(ValueError, match="cannot keep a tool from network"):
        rerail.shell("c", ["true"], limits={"network": False})
    with pytest.raises(OSError, match="processes"):
        confine.apply({"processes": False})
