"""`ctx.ensure_owner()` in another process, and right before requests: the owner is asked, silence is no yes (E11)."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.executors.processes import protocol
from rerail.adapters.executors.processes.protocol import OwnerAnswer, ask_owner
from rerail.adapters.tools.http import HttpTool
from rerail.adapters.tools.http_exchange import ConnectionLost
from rerail.adapters.tools.loading import load_tools
from rerail.adapters.tools.shell import ShellTool
from rerail.context import Context
from rerail.errors import NotDone, ToolError
from rerail.kernel.foreign import certainty_of
from rerail.kernel.outcome import Certainty
from rerail.ports import TERM

pytestmark = pytest.mark.anyio

TOOLS = """
import threading, time
from pathlib import Path
from rerail import Context, NotDone, tool

def asked(ctx, folder, name):
    try:
        ctx.ensure_owner()
        word = "acted"
    except NotDone as error:
        word = getattr(error.error, "code", "?") + " " + str(error)
    (Path(folder) / (name + ".part")).write_text(word)
    (Path(folder) / (name + ".part")).rename(Path(folder) / name)

@tool(isolated=True, effect="once", fenced=True)
def act(folder: str, ctx: Context) -> str:
    ctx.ensure_owner()
    (Path(folder) / "mark").touch()
    return "acted"

@tool(isolated=True)
def many(folder: str, ctx: Context) -> int:
    threads = [threading.Thread(target=asked, args=(ctx, folder, str(n))) for n in range(8)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    return sum((Path(folder) / str(n)).read_text() == "acted" for n in range(8))

@tool(isolated=True)
def left_behind(folder: str, ctx: Context) -> None:
    def later():
        while not (Path(folder) / "go").exists():
            time.sleep(0.01)
        asked(ctx, folder, "later")
    threading.Thread(target=later, daemon=True).start()

@tool(isolated=True)
def waits(folder: str, ctx: Context) -> None:
    def later():
        (Path(folder) / "begun").touch()
        while not (Path(folder) / "go").exists():
            time.sleep(0.01)
        asked(ctx, folder, "later")
    threading.Thread(target=later, daemon=True).start()
    try:
        time.sleep(60)
    finally:
        time.sleep(0.8)  # the thread gets its answer while the worker ends
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("tools") / "asking_tools.py"
    file.write_text(TOOLS)
    return str(file)


@pytest.fixture
def tools(file: str) -> dict[str, Any]:
    return {made.spec.name: made for made in load_tools(file)}


def until(true: Callable[[], bool], seconds: float = 20.0) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)
    return time.monotonic() - began


def lost() -> None:
    raise NotDone(ToolError("replaced", "OWNER_LOST"))


async def test_e11_an_isolated_function_asks_its_parent(tools: dict[str, Any], tmp_path: Path) -> None:
    """E11, M3: the owner answers in its own process; without a context, as in a tool's own tests, the answer is yes."""
    pids: list[int] = []
    assert (
        await tools["act"].call({"folder": str(tmp_path)}, Context(owner=lambda: pids.append(os.getpid()))) == "acted"
    )
    assert pids == [os.getpid()] and (tmp_path / "mark").exists()
    assert await tools["act"].call({"folder": str(tmp_path)}) == "acted"


async def test_e11_an_isolated_function_of_a_replaced_owner_does_not_act(tools: dict[str, Any], tmp_path: Path) -> None:
    """E11, X4: it raises *not done*, as the owner put it, and the worker serves the next call."""
    with pytest.raises(Exception, match="replaced") as refused:
        await tools["act"].call({"folder": str(tmp_path)}, Context(owner=lost))
    assert certainty_of(refused.value) is Certainty.NOT_DONE and getattr(refused.value, "code", "") == "OWNER_LOST"
    assert not (tmp_path / "mark").exists()
    assert await tools["act"].call({"folder": str(tmp_path)}, Context()) == "acted"


async def test_e11_any_thread_of_an_isolated_function_may_ask(tools: dict[str, Any], tmp_path: Path) -> None:
    """E11, M3: eight at once, each with an answer of its own."""
    assert await tools["many"].call({"folder": str(tmp_path)}, Context(owner=lambda: time.sleep(0.02))) == 8


async def test_e11_nothing_acts_for_a_call_that_is_over(tools: dict[str, Any], tmp_path: Path) -> None:
    """E11: a thread that a call left behind gets no yes, also while the worker serves another call."""
    await tools["left_behind"].call({"folder": str(tmp_path)}, Context())
    (tmp_path / "go").touch()
    until((tmp_path / "later").exists)
    assert (tmp_path / "later").read_text().startswith("OWNER_LOST not done: the call is over")


@pytest.mark.parametrize("how", ["frozen", "gone"])
def test_e11_a_parent_that_cannot_answer_says_no_yes(file: str, tmp_path: Path, how: str) -> None:
    """E11: frozen, nothing is heard of it for the term; gone, that is known at once."""
    program = f"""
import asyncio
from rerail.adapters.tools.loading import load_tools
from rerail.context import Context
tools = {{made.spec.name: made for made in load_tools({file!r})}}
asyncio.run(tools["waits"].call({{"folder": {str(tmp_path)!r}}}, Context(owner=lambda: None)))
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        until((tmp_path / "begun").exists)
        parent.send_signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        if how == "gone":
            time.sleep(0.3)  # the question is on its way
            parent.kill()
        took = until((tmp_path / "later").exists)
        assert (tmp_path / "later").read_text().startswith("OWNER_LOST not done: the process that owns the run")
        assert took < 2 if how == "gone" else took >= TERM - 0.5
    finally:
        parent.kill()
        parent.wait()


def test_e11_an_answer_that_took_long_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """E11: both processes were frozen behind the yes; by the clock that counts that, it is worth nothing."""
    now, asked = [0.0], list[float]()

    def question(seconds: float) -> OwnerAnswer:
        asked.append(now[0])
        now[0] += 100.0 if len(asked) == 1 else 0.1
        return {"refusal": None}

    monkeypatch.setattr(protocol, "uptime", lambda: now[0])
    with pytest.raises(NotDone):
        ask_owner(question)
    assert asked == [0.0]
    now[0] = 0.0

    def slow(seconds: float) -> OwnerAnswer:
        asked.append(now[0])
        now[0] += 1.5 if len(asked) == 2 else 0.1
        return {"refusal": None}

    ask_owner(slow)
    assert asked == [0.0, 0.0, 1.5]


# -- Right before anything is sent or started -----------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A service that sends GET on to another place, and notes what it was asked."""
    asked: list[str] = []

    class Service(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if self.path == "/a" else 200)
            self.send_header("Location", "/b")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}", asked
        made.shutdown()
        thread.join()


async def test_e11_the_lease_is_looked_at_before_each_request(server: tuple[str, list[str]]) -> None:
    """E11: also before a redirect is followed; a request was sent by then, so a refusal is lost, not *not done*."""
    url, asked = server
    seen: list[int] = []
    await HttpTool("x", "GET", f"{url}/a").call({}, Context(owner=lambda: seen.append(len(asked))))
    assert (seen, asked) == ([0, 1], ["/a", "/b"])
    with pytest.raises(NotDone):
        await HttpTool("x", "POST", f"{url}/b").call({}, Context(owner=lost))
    assert len(asked) == 2
    turns = iter([False, True])
    with pytest.raises(ConnectionLost, match="replaced") as refused:
        await HttpTool("x", "GET", f"{url}/a").call({}, Context(owner=lambda: lost() if next(turns) else None))
    assert certainty_of(refused.value) is Certainty.LOST and asked[2:] == ["/a"]


async def test_e11_a_command_is_not_started_by_a_replaced_owner(tmp_path: Path) -> None:
    """E11: the lease is looked at before the process is started."""
    with pytest.raises(NotDone):
        await ShellTool("x", ["touch", str(tmp_path / "made")]).call({}, Context(owner=lost))
    assert not (tmp_path / "made").exists()
