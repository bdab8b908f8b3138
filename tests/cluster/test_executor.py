"""Steps as tasks of a real Ray cluster: answers, failures, cancellation, resources, lost workers and nodes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from tests.cluster.conftest import Node

import rerail
from rerail.adapters.executors.ray.executor import _Under
from rerail.adapters.tools.loading import load_tools
from rerail.ports import Tool

pytestmark = pytest.mark.anyio

Load = Callable[[str], list[Tool]]

TOOLS = """
import asyncio, os, signal, time
from pathlib import Path
import rerail
from rerail import Context, tool

@tool
def where(x: int = 0) -> dict:
    return {"pid": os.getpid(), "x": x}

@tool
async def later(x: int) -> int:
    await asyncio.sleep(0.01)
    return x + 1

@tool
def told(ctx: Context) -> list:
    ctx.log("a line")
    ctx.progress(0.5, "half")
    ctx.usage(7, 0.25)
    return [ctx.run, ctx.step, ctx.attempt, ctx.key, ctx.fence]

@tool
def adds(ctx: Context) -> int:
    ctx.add({"id": "added", "tool": "later", "args": {"x": "${adds}"}})
    return 4

@tool
def slowly_told(go: str, ctx: Context) -> str:
    for number in range(5):
        ctx.log(f"line {number}")
    while not Path(go).exists():
        time.sleep(0.01)
    ctx.log("the last")
    return "done"

@tool
def fail(kind: str) -> None:
    raise {"value": ValueError("not good"), "limited": rerail.RateLimited("slow down", retry_after=0.01)}[kind]

@tool
def big(size: int) -> str:
    return "x" * size

@tool
def once_limited(note: str) -> int:
    file = Path(note)
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    if len(file.read_text()) == 1:
        raise rerail.RateLimited("slow down", retry_after=0.01)
    return len(file.read_text())

def work(note, seconds):
    file = Path(note)
    try:  # from the first sign of life on: whoever sees it may interrupt at once
        with file.open("a") as out:
            out.write(f"{os.getpid()}\\n")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.02)
    finally:
        with file.open("a") as out:
            out.write("cleaned\\n")
    return len(file.read_text().split())

@tool
def busy(note: str, seconds: float = 30.0) -> int:
    return work(note, seconds)

@tool(effect="once")
def pay(note: str, seconds: float = 30.0) -> int:
    return work(note, seconds)

@tool
def again(note: str) -> int:
    return work(note, 0 if Path(note).exists() else 60)

@tool
def asleep(note: str) -> None:
    try:
        time.sleep(30)
    finally:
        Path(note).write_text("cleaned")

@tool
def stubborn(note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            pass

@tool
async def napping(note: str) -> None:
    try:
        await asyncio.sleep(30)
    finally:
        Path(note).write_text("cleaned")

@tool
def die(note: str) -> str:
    file = Path(note)
    if not file.exists():
        file.write_text("once")
        os.kill(os.getpid(), signal.SIGKILL)
    return "second time lucky"

@tool(effect="once")
def die_once(note: str) -> str:
    with Path(note).open("a") as out:
        out.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def settings(**ray: Any) -> dict[str, Any]:
    return {
        "ray": {"steps": True, "cpus": 0.1, **ray},
        "retry": {"backoff_base": 0.0, "max_retry_rounds": 0},
        "store": {"durability": "normal"},
    }


def step(tool: str, **rest: Any) -> dict[str, Any]:
    return {"id": rest.pop("id", tool), "tool": tool, "args": rest.pop("args", {}), **rest}


def plan(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"objective": "something on a cluster", "steps": list(steps)}


async def until(there: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.02)


async def test_steps_run_on_the_cluster_and_pass_outputs_on(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """I6 X6 M3: sync and async tools run in other processes, with context, log, progress, usage, fence, added steps."""
    async with rerail.Engine(f"sqlite:///{tmp_path}/runs.db", tools(TOOLS), settings()) as engine:
        result = await engine.run(
            plan(
                step("where"),
                step("later", args={"x": 1}),
                step("where", id="next", args={"x": "${later}"}),
                step("told"),
                step("adds"),
                step("once_limited", args={"note": str(tmp_path / "n")}),
            )
        )
        events = [record.to_dict() async for record in engine.watch(result.run_id)]
    assert result.success, result.summary
    assert result.steps["where"].output["pid"] != os.getpid()
    assert result.steps["next"].output["x"] == 2
    run, named, attempt, key, fence = result.steps["told"].output
    assert (run, named, attempt, fence) == (result.run_id, "told", 1, 1) and key.startswith(run)
    assert result.steps["added"].output == 5
    assert result.steps["once_limited"].output == 2  # "not now" came through, as itself
    assert {one["message"] for one in events if one["type"] == "step_progress"} == {"a line", "half"}
    assert [one["tokens"] for one in events if one["type"] == "step_succeeded" and one["step"] == "told"] == [7]


async def test_what_a_long_call_says_is_heard_while_it_runs(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """M3 I6: log lines come while the tool is at work, all of them, in order, before its end."""
    go = tmp_path / "go"
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        run = await engine.start(plan(step("slowly_told", args={"go": str(go)})))
        lines: list[str] = []
        async for record in engine.watch(run):
            told = record.to_dict()
            if told["type"] == "step_progress":
                lines += told["message"].splitlines()
                go.touch()
            elif told["type"] == "step_succeeded":
                assert lines == [*(f"line {number}" for number in range(5)), "the last"]
    assert go.exists() and lines


async def test_a_failure_on_a_node_is_the_failure_it_would_be_here(cluster: Any, tools: Load) -> None:
    """X3 H2 I6: type, message, category and traceback come back."""
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        result = await engine.run(plan(step("fail", args={"kind": "value"}, retries=0)))
    error = result.steps["fail"].error
    assert (error["category"], error["message"]) == ("parameter_error", "not good")
    assert error["type"] == "ValueError" and "toolbox.py" in error["traceback"]


async def test_large_outputs_are_kept_in_the_store(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """E6 I6: what is too large for an event is an artifact, whole, and feeds the next step."""
    size = 3_000_000
    async with rerail.Engine(f"sqlite:///{tmp_path}/runs.db", tools(TOOLS), settings()) as engine:
        result = await engine.run(plan(step("big", args={"size": size})))
        made = [one for one in await engine.artifacts(result.run_id) if one["name"] == "big"]
        assert len(result.steps["big"].output) == size and made[0]["size"] > size


async def test_tools_without_a_place_of_their_own_travel_whole(cluster: Any, tmp_path: Path) -> None:
    """M2 I6: closures, shell and declared tools run on the cluster; what cannot be sent says so, and is not called."""
    import threading

    lock, base = threading.Lock(), 40

    @rerail.tool(name="closure")
    def inner(x: int) -> list[int]:
        return [base + x, os.getpid()]

    @rerail.tool(name="held")
    def holding() -> None:
        with lock:
            (tmp_path / "called").touch()

    declared = {"tools": {"shell": {"pid_of": ["sh", "-c", "echo $PPID"]}}}
    async with rerail.Engine("memory://", [inner, holding], {**settings(), **declared}) as engine:
        result = await engine.run(
            plan(step("closure", args={"x": 2}), step("held"), step("pid_of")),
        )
    number, pid = result.steps["closure"].output
    assert number == 42 and pid != os.getpid()
    assert int(result.steps["pid_of"].output["stdout"]) != os.getpid()
    failed = result.steps["held"]
    assert (failed.error["code"], failed.error["category"]) == ("TOOL_NOT_CARRIED", "permanent_error")
    assert not (tmp_path / "called").exists()


async def test_a_timeout_interrupts_the_tool(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """X4 I6: a tool that runs too long is interrupted and cleans up, sync or async; a stubborn one is killed."""
    notes = {name: tmp_path / name for name in ("busy", "napping", "asleep", "stubborn")}
    steps = [
        step(name, args={"note": str(note)}, timeout=1.0, retries=0, critical=False) for name, note in notes.items()
    ]
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        started = time.monotonic()
        result = await engine.run(plan(*steps))
        assert time.monotonic() - started < 20
    events = {name: result.steps[name] for name in notes}
    assert {name: row.error["code"] for name, row in events.items()} == dict.fromkeys(notes, "SKIP_OPTIONAL")
    for name in ("busy", "napping", "asleep"):
        assert "cleaned" in notes[name].read_text(), name
    pid = int(notes["stubborn"].read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_waiting_for_room_is_not_working(cluster: Any, node: Node, tools: Load, tmp_path: Path) -> None:
    """X4 I6: the step's resources are honoured, and its timeout counts from when its tool begins."""
    node(seat=1)
    wanted = {"cpu": 0.1, "seat": 1}
    steps = [
        step("busy", id=f"s{number}", args={"note": str(tmp_path / f"s{number}"), "seconds": 2.5}, timeout=6,
             resources=wanted, retries=0)
        for number in range(3)
    ]  # fmt: skip
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        begun = time.monotonic()
        result = await engine.run(plan(*steps))
        assert time.monotonic() - begun > 7.4  # one after another: longer than the last one may take
    assert result.success, result.summary
    assert all(row.attempts == 1 and 2.4 < row.elapsed < 6 for row in result.steps.values())


async def test_resources_that_nobody_has(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """X4 I6: no room is a transient failure after `ray.max_wait`, and no doubt for `once`: nothing was called."""
    note = tmp_path / "note"
    gone = step("pay", args={"note": str(note)}, resources={"unicorn": 1}, retries=0)
    async with rerail.Engine("memory://", tools(TOOLS), settings(max_wait=0.5)) as engine:
        result = await engine.run(plan(gone))
        odd = await engine.run(plan(step("where", resources={"gpu": 1.5}, retries=0)))
    error = result.steps["pay"].error
    assert (result.status, error["code"], error["category"]) == ("failed", "NO_ROOM", "transient_error")
    assert "unicorn" in error["message"] and not note.exists()
    refused = odd.steps["where"].error
    assert (refused["code"], refused["category"]) == ("CLUSTER_REFUSES", "permanent_error")


async def test_cancelling_a_run_that_waits_for_room(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """X4 X7 E3: a `once` step that never began is not in doubt when its run is cancelled; one at work is."""
    waiting = step("pay", id="waiting", args={"note": str(tmp_path / "w")}, resources={"unicorn": 1})
    working = step("pay", id="working", args={"note": str(tmp_path / "b")})
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        run = await engine.start(plan(waiting, working))
        await until((tmp_path / "b").exists)
        await engine.cancel(run)
        result = await engine.wait(run)
    assert result.status == "cancelled"
    assert result.steps["working"].status == "in_doubt" and result.steps["waiting"].status != "in_doubt"
    assert "cleaned" in (tmp_path / "b").read_text() and not (tmp_path / "w").exists()


async def test_a_dead_worker_is_a_lost_answer(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """X4 E3 I6: what may be repeated is called again, what must not is in doubt."""
    note, other = tmp_path / "note", tmp_path / "other"
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        result = await engine.run(plan(step("die", args={"note": str(note)})))
        assert result.success and result.steps["die"].output == "second time lucky"
        assert result.steps["die"].attempts == 2
        doubt = await engine.run(plan(step("die_once", args={"note": str(other)})))
        codes = [
            one["error"]["code"]
            for one in (record.to_dict() for record in await engine.events(result.run_id))
            if one["type"] == "step_failed"
        ]
    assert codes == ["ANSWER_LOST"]
    assert (doubt.status, doubt.steps["die_once"].status) == ("waiting", "in_doubt")
    assert other.read_text() == "x"


async def test_a_dead_node_loses_its_own_steps_only(cluster: Any, node: Node, tools: Load, tmp_path: Path) -> None:
    """I6 X4 E3: the step on the node that died runs again elsewhere, the `once` one is in doubt, others go on."""
    first = node(here=2)
    notes = {name: tmp_path / name for name in ("repeated", "paid", "safe")}
    wanted = {"cpu": 0.1, "here": 1}
    steps = [
        step("again", id="repeated", args={"note": str(notes["repeated"])}, resources=wanted),
        step("pay", id="paid", args={"note": str(notes["paid"])}, resources=wanted),
        step("busy", id="safe", args={"note": str(notes["safe"]), "seconds": 5.0}, resources={"CPU": 0.1, "head": 1}),
    ]
    async with rerail.Engine("memory://", tools(TOOLS), settings()) as engine:
        run = await engine.start(plan(*steps))
        await until(lambda: all(note.exists() for note in notes.values()), 40)
        cluster.remove_node(first, allow_graceful=False)
        node(here=2)
        result = await engine.wait(run)
    rows = {name: (row.status, row.attempts) for name, row in result.steps.items()}
    assert rows["repeated"] == ("succeeded", 2)
    assert rows["paid"] == ("in_doubt", 1)
    assert len(notes["paid"].read_text().split()) == 1
    assert rows["safe"] == ("succeeded", 1)
    assert result.status == "waiting"


def test_a_cluster_that_is_gone_takes_nobody_along(tmp_path: Path) -> None:
    """I6 X4 E3: calls under way are lost answers, later ones find no cluster, and the process lives to say so."""
    (tmp_path / "toolbox.py").write_text(TOOLS)
    script = Path(__file__).parent / "gone.py"
    said = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert said.returncode == 0, said.stderr[-3000:]
    told = json.loads(said.stdout.splitlines()[-1])
    busy = [(code, lost) for step, code, lost in told["codes"] if step == "busy"]
    assert busy[0] == ("ANSWER_LOST", True) and busy[-1] == ("CLUSTER_UNREACHABLE", False)
    assert [code for step, code, _ in told["codes"] if step == "pay"] == ["ANSWER_LOST"]
    assert told["status"] == "waiting"  # for somebody who knows whether it was paid
    theirs = [(code, lost) for _, code, lost in told["theirs"]]  # of an engine that shares the connection
    assert theirs[0] == ("ANSWER_LOST", True) and theirs[-1] == ("CLUSTER_UNREACHABLE", False)


SLOWLY = """
import sys, time
from pathlib import Path
from rerail import tool

if "worker" in sys.argv[0]:  # on the cluster
    time.sleep(5)

@tool(effect="once")
def act(mark: str) -> int:
    Path(mark).write_text("x")
    return 1
"""


async def test_a_call_that_was_interrupted_for_want_of_room_is_in_doubt(
    cluster: Any, tools: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X4 I6: its beginning was not heard of in time; what it did by then happened, and is not done again."""
    text = """
import time
from pathlib import Path
from rerail import tool

@tool(effect="once")
def act(mark: str) -> int:
    with open(mark, "a") as file:
        file.write("x")
    time.sleep(20)
    return 1

@tool
def warm() -> int:
    return 1
"""
    monkeypatch.setattr(_Under, "listen", lambda *_: None)  # whatever calls say is lost
    mark = tmp_path / "mark"
    async with rerail.Engine("memory://", tools(text), settings(max_wait=4.0)) as engine:
        await engine.run({"steps": [{"id": "w", "tool": "warm"}]})  # a worker is there, and begins at once
        result = await engine.run({"steps": [{"id": "a", "tool": "act", "args": {"mark": str(mark)}}]})
    status = str(result.steps["a"].status)
    assert (status, mark.read_text()) == ("in_doubt", "x")


async def test_a_tool_that_is_being_found_has_not_begun(cluster: Any, tmp_path: Path) -> None:
    """X4 I6: its imports are not its time, and whoever gives up meanwhile knows that nothing was called."""
    mark = tmp_path / "mark"
    call = plan(step("act", args={"mark": str(mark)}, timeout=2.0, retries=0))
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(SLOWLY)
    async with rerail.Engine("memory://", load_tools(tmp_path / "first.py"), settings()) as engine:
        result = await engine.run(call)
    assert result.success and result.steps["act"].elapsed < 2, result.summary
    mark.unlink()
    async with rerail.Engine("memory://", load_tools(tmp_path / "second.py"), settings(max_wait=1.5)) as engine:
        given_up = await engine.run(call)
    assert (given_up.steps["act"].error["code"], mark.exists()) == ("NO_ROOM", False)


async def test_a_mailbox_that_dies_costs_no_timeout(
    cluster: Any, tools: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X4 I6: what it was told is lost; the call says again that it has begun, and later words are heard."""
    hear, deaf = _Under.hear, [True]
    monkeypatch.setattr(_Under, "hear", lambda *words: None if deaf else hear(*words))
    text = """
import time
from rerail import Context, tool

@tool
def talk(note: str, ctx: Context) -> None:
    open(note, "w").close()
    for number in range(400):
        ctx.log(f"{number}")
        time.sleep(0.05)
"""
    note = tmp_path / "note"
    async with rerail.Engine("memory://", tools(text), settings()) as engine:
        call = step("talk", args={"note": str(note)}, timeout=8.0, retries=0)
        run = await engine.start(plan(call))
        await until(note.exists)
        await asyncio.sleep(1.0)  # it has said that it began, and a few lines, to nobody
        for actor in ray.util.list_named_actors(all_namespaces=True):
            if actor["name"].startswith("mailbox-"):
                ray.kill(ray.get_actor(**actor), no_restart=False)
        deaf.clear()
        result = await engine.wait(run)
        words = [one.to_dict() for one in await engine.events(run)]
    assert result.steps["talk"].error["code"] == "TIMEOUT"
    assert any(one["type"] == "step_progress" for one in words)


FENCED = """
import threading, time
from pathlib import Path
from rerail import Context, NotDone, tool

@tool(effect="once", fenced=True)
def act(folder: str, ctx: Context) -> str:
    ctx.ensure_owner()
    (Path(folder) / "mark").touch()
    return "acted"

@tool
def many(folder: str, ctx: Context) -> int:
    done = []
    def ask():
        ctx.ensure_owner()
        done.append(1)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    return len(done)

@tool
def waits(folder: str, ctx: Context) -> str:
    (Path(folder) / "begun").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    try:
        ctx.ensure_owner()
        word = "acted"
    except NotDone as error:
        word = str(error)
    (Path(folder) / "part").write_text(word)
    (Path(folder) / "part").rename(Path(folder) / "said")
    return word
"""


async def test_e11_a_call_on_a_node_asks_the_program_that_made_it(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """E11 M3: the yes and the no are the owner's own, from any thread of the tool."""
    from rerail.adapters.executors.ray.executor import RayExecutor
    from rerail.errors import NotDone, ToolError
    from rerail.kernel.foreign import certainty_of
    from rerail.kernel.outcome import Certainty

    def lost() -> None:
        raise NotDone(ToolError("replaced", "OWNER_LOST"))

    made = {one.spec.name: one for one in tools(FENCED)}
    executor = RayExecutor(None, {}, 0.1, 60.0, 40.0)
    await executor.open()
    try:

        async def call(tool: str, owner: Any) -> Any:
            ctx = rerail.Context("r", "s", owner=owner)
            return await executor.call(made[tool], {"folder": str(tmp_path)}, ctx, {}, lambda _: None)

        with pytest.raises(Exception, match="replaced") as refused:
            await call("act", lost)
        assert certainty_of(refused.value) is Certainty.NOT_DONE and not (tmp_path / "mark").exists()
        pids: list[int] = []
        assert await call("act", lambda: pids.append(os.getpid())) == "acted" and pids == [os.getpid()]
        assert await call("many", lambda: None) == 8
    finally:
        await executor.close()


async def test_e11_a_program_that_cannot_answer_gives_no_yes(cluster: Any, tools: Load, tmp_path: Path) -> None:
    """E11: the driver hangs: nothing is heard of it for the term, and the tool on the node does not act."""
    async with rerail.Engine("memory://", tools(FENCED), settings()) as engine:
        await engine.start(plan(step("waits", args={"folder": str(tmp_path)})))
        await until((tmp_path / "begun").exists)
        (tmp_path / "go").touch()
        time.sleep(7.0)  # noqa: ASYNC251  # the whole event loop: as if it were frozen
        await until((tmp_path / "said").exists)
    assert "did not confirm" in (tmp_path / "said").read_text()
