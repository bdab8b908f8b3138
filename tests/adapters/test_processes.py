"""Tools in processes that can be killed: answers, failures, deaths, cancellation, cleanliness (SPEC X3, X4, M3, H2)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from rerail.adapters.executors.processes import protocol as frames
from rerail.adapters.executors.processes.pool import PROCESSES, ProcessPool, WorkerDied, target_of
from rerail.adapters.tools.functions import FunctionTool, tool
from rerail.adapters.tools.loading import load_tools
from rerail.codes import Category
from rerail.context import Context
from rerail.errors import NotDone, RateLimited, ToolError
from rerail.kernel.foreign import certainty_of, said_by
from rerail.kernel.outcome import Certainty

pytestmark = pytest.mark.anyio

TOOLS = """
import asyncio, os, signal, subprocess, sys, time
from pydantic import BaseModel
import rerail
from rerail.adapters.tools.functions import tool
from rerail.context import Context
from rerail.errors import RateLimited, ToolError

class Item(BaseModel):
    name: str

class Strange(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

class Net(TimeoutError):
    pass

@tool(isolated=True)
def add(a: int, b: int = 1):
    return {"sum": a + b, "pid": os.getpid()}

@tool(isolated=True)
async def later(a: int):
    await asyncio.sleep(0.01)
    return a

@tool(isolated=True)
def model(item: Item):
    return [item, {"inner": Item(name="b")}]

@tool(isolated=True)
def chatty():
    print("to stdout")
    sys.stdout.flush()
    os.write(1, b"straight to fd 1\\n")
    subprocess.run(["echo", "from a child"])
    return [sys.stdin.read(), input_is_empty()]

def input_is_empty():
    try:
        input()
    except EOFError:
        return True

@tool(isolated=True)
def told(ctx: Context):
    ctx.log("a line")
    ctx.progress(0.5, "half")
    ctx.usage(7, 0.25)
    (ctx.workspace / "made").write_text("x")
    return [ctx.run, ctx.step, ctx.attempt, ctx.key]

@tool(isolated=True)
def wander():
    here = os.getcwd()
    os.chdir("/")
    return here

@tool(isolated=True)
def lingering(ctx: Context):
    import threading
    threading.Thread(target=lambda: [ctx.log("late") or time.sleep(0.001) for _ in range(300)], daemon=True).start()

@tool(isolated=True)
def big(size: int):
    return "x" * size

@tool(isolated=True)
def not_json(kind: str):
    return {"set": object(), "generator": (one for one in [1]), "none": None}[kind]

@tool(isolated=True)
def fail(kind: str):
    raise {
        "value": ValueError("not good"),
        "tool": ToolError("no source", "NO_SOURCE", "parameter_error", suggest={"id": "ds_1"}, status=404),
        "limited": RateLimited("slow down", retry_after=7.5),
        "own": Strange(1, 2),
        "net": Net("took too long"),
        "key": KeyError("k"),
        "decode": UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
        "group": ExceptionGroup("several", [ValueError(1)]),
        "exit": SystemExit(3),
        "stop": StopIteration(3),
        "interrupt": KeyboardInterrupt(),
    }[kind]

@tool(isolated=True)
def die(how: str):
    os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else os._exit(7)

@tool(isolated=True)
def sleep(seconds: float, mark: str):
    try:
        time.sleep(seconds)
    finally:
        open(mark, "w").write("cleaned up")

@tool(isolated=True)
async def async_sleep(seconds: float, mark: str):
    try:
        await asyncio.sleep(seconds)
    finally:
        open(mark, "w").write("cleaned up")

@tool(isolated=True)
def stubborn(mark: str):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(mark, "w").write(f"{os.getpid()} {child.pid}")
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def undecorated(a: int, ctx: Context):
    return [a, ctx.step]

plain = tool(undecorated, name="plain", isolated=True)
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FunctionTool[..., Any]]:
    file = tmp_path_factory.mktemp("tools") / "isolated_tools.py"
    file.write_text(TOOLS)
    return {made.spec.name: made for made in load_tools(str(file)) if isinstance(made, FunctionTool)}


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool()
    yield pool
    await pool.close()
    assert pool.pids() == []


@pytest.fixture(autouse=True)
def no_zombies() -> Iterator[None]:
    """Whatever a test did, no process of ours is left unwaited for."""
    yield
    asyncio.run(PROCESSES.close())
    assert PROCESSES.pids() == []
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children()]
    assert "Z" not in states


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        await asyncio.sleep(0.01)


# --- Answers


async def test_a_call_in_a_worker_is_a_call_like_any_other(tools: dict[str, Any]) -> None:
    """X4: sync and async functions, defaults, models in and out; the worker is another process and is used again."""
    first, second = await tools["add"].call({"a": 1}), await tools["add"].call({"a": 1, "b": 5})
    assert (first["sum"], second["sum"]) == (2, 6)
    assert first["pid"] == second["pid"] != os.getpid()
    assert not tools["later"].is_async  # it is not on this loop
    assert await tools["later"].call({"a": 3}) == 3
    assert await tools["model"].call({"item": {"name": "a"}}) == [{"name": "a"}, {"inner": {"name": "b"}}]
    assert [await tools["wander"].call({}) for _ in range(2)] == [os.getcwd()] * 2
    assert await tools["plain"].call({"a": 1}, Context(step="s")) == [1, "s"]


async def test_calls_at_once_have_a_worker_each(tools: dict[str, Any], tmp_path: Path) -> None:
    """X1: isolated calls run side by side, and only a few workers are kept afterwards."""
    start = time.perf_counter()
    calls = [tools["sleep"].call({"seconds": 0.5, "mark": str(tmp_path / str(at))}) for at in range(6)]
    await asyncio.gather(*calls)
    assert time.perf_counter() - start < 10
    await until(lambda: len(PROCESSES.pids()) == 4)


async def test_what_a_tool_prints_does_not_corrupt_its_answer(tools: dict[str, Any], capfd: Any) -> None:
    """X3, I7: stdout belongs to the tool and goes to stderr; its stdin is empty."""
    assert await tools["chatty"].call({}) == ["", True]
    await PROCESSES.close()
    printed = capfd.readouterr()
    assert printed.out == ""
    for line in ("to stdout", "straight to fd 1", "from a child"):
        assert line in printed.err


async def test_the_context_works_across_processes(tools: dict[str, Any], tmp_path: Path) -> None:
    """M3: identity, workspace, log, progress and usage."""
    heard: list[Any] = []
    ctx = Context("r", "s", 2, "k", tmp_path / "w", lambda kind, said: heard.append((kind, dict(said))))
    assert await tools["told"].call({}, ctx) == ["r", "s", 2, "k"]
    assert heard == [("log", {"message": "a line"}), ("progress", {"fraction": 0.5, "message": "half"})]
    assert (ctx.tokens, ctx.cost) == (7, 0.25)
    assert (tmp_path / "w" / "made").exists()


async def test_a_thread_that_a_call_left_behind_disturbs_no_other_call(tools: dict[str, Any]) -> None:
    """M3: what it says belongs to a call that is over."""
    await tools["lingering"].call({}, Context())
    heard: list[Any] = []
    for _ in range(20):
        ctx = Context("r", "s", 1, "k", None, lambda kind, said: heard.append(said["message"]))
        assert await tools["plain"].call({"a": 1}, ctx) == [1, "s"]
    assert heard == []


async def test_outputs_that_are_not_json_and_outputs_that_are_large(tools: dict[str, Any]) -> None:
    """X3: 50 MB come through; what is not JSON is a failure, and the worker lives on."""
    assert len(await tools["big"].call({"size": 50_000_000})) == 50_000_000
    assert await tools["not_json"].call({"kind": "none"}) is None
    for kind in ("set", "generator"):
        with pytest.raises(ToolError) as caught:
            await tools["not_json"].call({"kind": kind})
        assert caught.value.code == "OUTPUT_NOT_JSON"
    assert len(PROCESSES.pids()) == 1
    with pytest.raises(ToolError, match="not JSON") as caught:
        await tools["add"].call({"a": object()})
    assert caught.value.code == "ARGS_INVALID"


# --- Failures


async def test_exceptions_keep_name_words_traceback_and_hints(tools: dict[str, Any]) -> None:
    """X3, X8, H2, H6: the engine sees what it would have seen without a worker in between."""

    async def raised(kind: str) -> Any:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is the question
            await tools["fail"].call({"kind": kind})
        return caught.value

    value = await raised("value")
    assert isinstance(value, ValueError)
    assert (str(value), type(value).__name__, value.type_names[0]) == ("not good", "ValueError", "ValueError")
    assert "in fail" in value.traceback_text
    assert "in fail" in str(value.__cause__)
    hinted = await raised("tool")
    assert isinstance(hinted, ToolError)
    assert (hinted.code, hinted.category, hinted.status) == ("NO_SOURCE", Category.PARAMETER, 404)
    assert (hinted.suggest, hinted.message) == ({"id": "ds_1"}, "no source")
    limited = await raised("limited")
    assert isinstance(limited, RateLimited)
    assert (limited.retry_after, limited.code) == (7.5, "RATE_LIMITED")
    net = await raised("net")
    assert isinstance(net, TimeoutError)
    assert [name.rpartition(".")[2] for name in net.type_names[:3]] == ["Net", "TimeoutError", "OSError"]
    assert str(await raised("own")) == "1 and 2"
    assert str(await raised("key")) == "'k'"
    assert "why" in str(await raised("decode"))
    group = await raised("group")
    assert "several" in str(group)
    assert group.type_names[0] == "ExceptionGroup"


@pytest.mark.parametrize(
    ("kind", "name"), [("exit", "SystemExit"), ("stop", "StopIteration"), ("interrupt", "Keyboard")]
)
async def test_an_exit_in_a_tool_is_a_failure_and_no_death(tools: dict[str, Any], kind: str, name: str) -> None:
    """X3: the worker survives sys.exit, and the failure says what was raised."""
    before = (await tools["add"].call({"a": 1}))["pid"]
    with pytest.raises(Exception, match=r"sys\.exit\(3\)|the tool raised") as caught:
        await tools["fail"].call({"kind": kind})
    assert certainty_of(caught.value) is Certainty.LOST
    assert caught.value.type_names[0].startswith(name)  # type: ignore[attr-defined]
    assert (await tools["add"].call({"a": 1}))["pid"] == before


def test_x8_a_header_says_in_the_process_how_long_to_wait() -> None:
    """X8: the answer of a library stays in the process; its `Retry-After`, a date too, gets through."""
    headers = Message()
    headers["Retry-After"], headers["Date"] = "Fri, 06 Nov 2026 10:00:30 GMT", "Fri, 06 Nov 2026 10:00:00 GMT"
    with HTTPError("http://api", 429, "busy", headers, BytesIO()) as error:
        revived = frames.revive(frames.describe(error))
    assert said_by(revived).retry_after == 30.0


@pytest.mark.parametrize(("how", "said"), [("kill", "SIGKILL"), ("exit", "status 7")])
async def test_x4_a_worker_that_dies_leaves_a_lost_answer(tools: dict[str, Any], how: str, said: str) -> None:
    """X4: a dead worker is a lost answer; the next call gets a new one."""
    with pytest.raises(WorkerDied, match=said) as caught:
        await tools["die"].call({"how": how})
    assert certainty_of(caught.value) is Certainty.LOST
    assert caught.value.code == "ANSWER_LOST"
    assert (await tools["add"].call({"a": 1}))["sum"] == 2


async def test_a_worker_that_died_while_idle_is_replaced_without_a_word(tools: dict[str, Any]) -> None:
    """X4: nothing was called, so nothing is lost."""
    for _ in range(3):
        pid = (await tools["add"].call({"a": 1}))["pid"]
        os.kill(pid, signal.SIGKILL)
    assert (await tools["add"].call({"a": 1}))["sum"] == 2


async def test_x4_a_worker_that_cannot_start_is_an_ordinary_failure(
    pool: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X4: no worker, no call, no doubt."""
    monkeypatch.setattr(
        "rerail.adapters.executors.processes.pool.COMMAND", (sys.executable, "-c", "import sys; sys.exit(9)")
    )
    with pytest.raises(NotDone, match="exit status 9") as caught:
        await pool.call(frames.Target("os", "getpid"), {})
    assert isinstance(caught.value.error, RuntimeError)
    assert certainty_of(caught.value) is Certainty.NOT_DONE


async def test_x4_what_cannot_be_found_in_a_worker_says_so(pool: ProcessPool) -> None:
    """X3, X4: an import that fails in the worker is the call's failure; the tool was not called."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught:
        await pool.call(frames.Target("no_such_module", "work"), {})
    assert certainty_of(caught.value) is Certainty.NOT_DONE
    with pytest.raises(AttributeError, match="no_such_name"):
        await pool.call(frames.Target("os", "no_such_name"), {})


# --- Cancellation


@pytest.mark.parametrize("name", ["sleep", "async_sleep"])
async def test_cancelling_kills_the_worker_after_it_cleaned_up(
    tools: dict[str, Any], tmp_path: Path, name: str
) -> None:
    """X4: a timeout stops the tool; its `finally` runs, and the call ends when the process is gone."""
    await tools["add"].call({"a": 1})  # warm
    (pid,) = PROCESSES.pids()
    mark, start = tmp_path / "mark", time.perf_counter()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tools[name].call({"seconds": 60, "mark": str(mark)}), 0.5)
    assert time.perf_counter() - start < 5
    assert mark.read_text() == "cleaned up"
    assert not is_alive(pid)
    assert PROCESSES.pids() == []


async def test_a_tool_that_ignores_cancellation_is_killed_with_its_children(
    tools: dict[str, Any], tmp_path: Path
) -> None:
    """X4: TERM is ignored, KILL is not; nothing of the tool goes on."""
    mark = tmp_path / "mark"
    call = asyncio.ensure_future(tools["stubborn"].call({"mark": str(mark)}))
    await until(lambda: mark.exists() and len(mark.read_text().split()) == 2)
    pids = [int(pid) for pid in mark.read_text().split()]
    assert all(map(is_alive, pids))
    start = time.perf_counter()
    call.cancel()
    await asyncio.sleep(0.01)
    call.cancel()  # an impatient caller changes nothing
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.perf_counter() - start < 5
    await until(lambda: not any(map(is_alive, pids)))


async def test_cancelling_at_any_moment_leaks_nothing(tools: dict[str, Any]) -> None:
    """X4: before the worker is there, while it starts, and when the answer is already on its way."""
    for delay in (0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6):
        call = asyncio.ensure_future(tools["add"].call({"a": 1}))
        await asyncio.sleep(delay)
        call.cancel()
        await asyncio.wait([call])
    assert (await tools["add"].call({"a": 1}))["sum"] == 2
    await asyncio.sleep(1)
    await PROCESSES.close()
    await until(lambda: PROCESSES.pids() == [])


def test_workers_die_with_their_parent(tmp_path: Path, tools: dict[str, Any]) -> None:
    """X4, E3: after kill -9 of the engine no orphan goes on beside whoever takes over."""
    mark = tmp_path / "mark"
    file = sys.modules[tools["add"].fn.__module__].__file__
    program = f"""
import asyncio
from rerail.adapters.tools.loading import load_tools
tools = {{made.spec.name: made for made in load_tools({file!r})}}
asyncio.run(tools["stubborn"].call({{"mark": {str(mark)!r}}}))
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    limit = time.monotonic() + 20
    while not (mark.exists() and len(mark.read_text().split()) == 2):
        assert time.monotonic() < limit
        time.sleep(0.02)
    worker, grandchild = (int(pid) for pid in mark.read_text().split())
    parent.kill()
    parent.wait()
    while is_alive(worker) or is_alive(grandchild):
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_the_program_ends_although_a_worker_is_busy(tmp_path: Path, tools: dict[str, Any]) -> None:
    """X4: at the interpreter's end workers are ended too, without noise."""
    mark = tmp_path / "mark"
    file = sys.modules[tools["add"].fn.__module__].__file__
    program = f"""
import asyncio, os, pathlib
from rerail.adapters.tools.loading import load_tools
tools = {{made.spec.name: made for made in load_tools({file!r})}}

async def main():
    await asyncio.gather(*(tools["add"].call({{"a": 1}}) for _ in range(2)))
    asyncio.ensure_future(tools["stubborn"].call({{"mark": {str(mark)!r}}}))
    while not pathlib.Path({str(mark)!r}).exists():
        await asyncio.sleep(0.01)

try:
    asyncio.run(main())
except asyncio.CancelledError:
    pass
print("end")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


# --- Finding functions


def test_a_function_that_a_worker_cannot_find_is_refused_when_declared() -> None:
    """M2: local functions, lambdas and typed-in functions have no place to be found at."""

    def local() -> None: ...

    with pytest.raises(ValueError, match="top level of a module"):
        tool(isolated=True)(local)
    with pytest.raises(ValueError, match="top level"):
        tool(lambda: 1, name="x", isolated=True)
    assert target_of(textwrap.dedent) == frames.Target("textwrap", "dedent")


@pytest.mark.parametrize("how", ["script", "module"])
def test_tools_of_the_main_program_can_be_isolated(tmp_path: Path, how: str) -> None:
    """M2: a script's own functions are found by its file, those of `python -m` by their module."""
    (tmp_path / "prog.py").write_text("""
import asyncio
from rerail.adapters.tools.functions import tool
import beside

@tool(isolated=True)
def work(a: int):
    return [a, __name__ == "__main__", beside.VALUE]

if __name__ == "__main__":
    print(asyncio.run(work.call({"a": 1})))
""")
    (tmp_path / "beside.py").write_text("VALUE = 5")
    command = [sys.executable, *(["prog.py"] if how == "script" else ["-m", "prog"])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[1, False, 5]\n", "")


@pytest.mark.parametrize(
    "whole",
    [
        "result = rerail.run(PLAN, tools=[charge, render])",
        "result = asyncio.run(rerail.arun(PLAN, tools=[charge, render]))",
        "try: result = rerail.run(PLAN, tools=[charge, render])\nexcept rerail.RerailError as error: sys.exit(error)",
        "asyncio.run(render.call({}))",
    ],
)
def test_x4_a_program_without_a_guard_runs_its_plan_once(tmp_path: Path, whole: str) -> None:
    """X4, M2: a worker imports the program; what that would run is refused, and the step names the missing line."""
    (tmp_path / "prog.py").write_text(f"""
import asyncio, os, sys
import rerail

with open("imports", "a") as imports:
    print("one", file=imports)
if open("imports").read().count("one") > 4:
    os._exit(9)  # a bomb ends here

@rerail.tool(effect="once")
def charge():
    with open("charges", "a") as charges:
        print("one", file=charges)

@rerail.tool(isolated=True, effect="once")
def render(): ...

PLAN = {{"steps": [{{"id": "charge", "tool": "charge"}}, {{"id": "render", "tool": "render", "needs": ["charge"]}}]}}
{whole}
row = result.steps["render"]
print(result.status, row.status, row.attempts, row.code, row.error["category"], row.error["message"])
""")
    done = subprocess.run([sys.executable, "prog.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (tmp_path / "imports").read_text() == "one\none\n"
    if "render.call" in whole:
        assert "if __name__" in done.stderr.splitlines()[-1]
        return
    assert (tmp_path / "charges").read_text() == "one\n"
    assert done.stdout.startswith("failed failed 1 PROGRAM_UNGUARDED permanent_error ")
    assert 'if __name__ == "__main__":' in done.stdout


async def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    """E5: a warm worker does not go on with yesterday's code."""
    file = tmp_path / "changing.py"
    source = "from rerail.adapters.tools.functions import tool\n@tool(isolated=True)\ndef work():\n    return {}\n"
    for value in ("1", "2"):
        file.write_text(source.format(value))
        os.utime(file, ns=(int(value), int(value)))
        (made,) = load_tools(file)
        assert await made.call({}, None) == int(value)
