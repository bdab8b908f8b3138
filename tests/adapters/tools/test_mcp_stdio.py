"""MCP servers as programs: real processes that answer, fail, die, are started again and are ended."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.tools.conftest import SERVER, Bench, kill, lives

import rerail
from rerail.adapters.tools.mcp.client import MOST_DEATHS
from rerail.adapters.tools.mcp.server_config import AnswerLost, NotConnected, server_from
from rerail.adapters.tools.mcp.tools import McpServers, McpTool
from rerail.errors import RerailError, SettingsError

Lives = Callable[[int], bool]


async def opened(bench: Bench, *args: str, **more: Any) -> tuple[McpServers, dict[str, McpTool]]:
    """The test server, open, and its tools by name."""
    servers = McpServers()
    tools = await servers.open([server_from("bench", bench.stdio(*args, **more))])
    return servers, {tool.spec.name: tool for tool in tools}


def step(tool: str, name: str = "a", **more: Any) -> dict[str, Any]:
    """A step that calls a tool."""
    return {"id": name, "tool": tool, **more}


async def until(true: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.02)


# -- What a server offers -----------------------------------------------------------------------------------------


async def test_a_servers_tools_are_tools(bench: Bench) -> None:
    """M2: name, description, schema, effect by annotation, and the server as provider."""
    servers, tools = await opened(bench, timeout=7)
    try:
        effects = {name: str(tools[name].spec.effect) for name in ("echo", "put", "send")}
        assert effects == {"echo": "read", "put": "repeatable", "send": "once"}
        spec = tools["echo"].spec
        assert (spec.description, spec.provider, spec.timeout) == ("Say a text back.", "bench", 7)
        assert spec.schema.faults({"text": 1})
        assert not spec.schema.faults({"text": "x", "count": 2})
        assert await tools["echo"].call({"text": "ab", "count": 2}) == "abab"
        assert await tools["add"].call({"a": 1, "b": 2}) == {"sum": 3}
    finally:
        await servers.close()


async def test_what_the_user_says_of_a_server_counts(bench: Bench) -> None:
    """M2, SPEC 11: allow-list, effects, prefix, reading texts as JSON; words that fit no tool are mistakes."""
    servers, tools = await opened(bench, tools=["parts", "echo"], effects={"echo": "once"}, prefix="b.", parse="json")
    try:
        assert {name: str(tool.spec.effect) for name, tool in tools.items()} == {"b.echo": "once", "b.parts": "read"}
        assert await tools["b.parts"].call({"kind": "json"}) == {"a": [1]}
    finally:
        await servers.close()
    for wrong in ({"tools": ["ecko"]}, {"effects": {"ecko": "once"}}):
        with pytest.raises(SettingsError, match="did you mean 'echo'"):
            await opened(bench, **wrong)


async def test_a_tools_definition_has_a_fingerprint(bench: Bench) -> None:
    """E5: the same in every process, another one when the effect is another."""
    prints = []
    for effect in ("read", "read", "once"):
        servers, tools = await opened(bench, effects={"echo": effect})
        prints.append(tools["echo"].spec.fingerprint)
        await servers.close()
    assert prints[0] == prints[1] != prints[2]


async def test_the_environment_of_a_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 11: it gets what it is given, and not what we have."""
    monkeypatch.setenv("MCP_SECRET", "ours")
    for env, seen in (({}, "nothing"), ({"MCP_SECRET": "${env:MCP_SECRET}!"}, "ours!")):
        servers, tools = await opened(bench, env=env)
        assert await tools["secret"].call({}) == seen
        await servers.close()


async def test_progress_reaches_the_run(bench: Bench) -> None:
    """M3: a server's progress is the step's."""
    async with rerail.Engine("memory://", [], bench.settings(bench=bench.stdio())) as engine:
        result = await engine.run({"steps": [step("steps")]})
        told = [event for event in await engine.events(result.run_id) if event.type == "step_progress"]
    assert result.success
    assert (told[-1].fraction, told[-1].message) in [(0.25, "a quarter"), (None, "no total")]


# -- An engine with servers ---------------------------------------------------------------------------------------


async def test_an_engine_has_its_servers_tools_while_it_is_open(bench: Bench) -> None:
    """M2: also when it is opened again."""
    engine = rerail.Engine("memory://", [], bench.settings(bench=bench.stdio()))
    assert list(engine.tools) == []
    for _ in range(2):
        async with engine:
            assert "echo" in engine.tools
            assert (await engine.run({"steps": [step("echo", args={"text": "hi"})]})).steps["a"].output == "hi"
        assert list(engine.tools) == []


async def test_two_tools_of_one_name_are_refused(bench: Bench) -> None:
    """SPEC 11: with how to tell them apart; then both can be called."""

    async def echo(text: str) -> str:
        return "mine"

    with pytest.raises(SettingsError, match=r"'echo'.*'bench'") as refused:
        await rerail.Engine("memory://", [echo], bench.settings(bench=bench.stdio(tools=["echo"]))).open()
    assert 'prefix = "bench."' in refused.value.hint
    settings = bench.settings(one=bench.stdio(tools=["echo"]), two=bench.stdio(tools=["echo"]))
    with pytest.raises(SettingsError, match=r"'two'.*'one'"):
        await rerail.Engine("memory://", [], settings).open()
    settings["mcp"]["servers"]["two"]["prefix"] = "two."
    async with rerail.Engine("memory://", [], settings) as engine:
        assert sorted(engine.tools) == ["echo", "two.echo"]


async def test_calls_of_a_provider_are_limited(bench: Bench) -> None:
    """X1: the server's name is the provider's."""
    settings = {**bench.settings(bench=bench.stdio()), "run": {"provider_concurrency": {"bench": 1}}}
    async with rerail.Engine("memory://", [], settings) as engine:
        plan = {"steps": [step("send", name, args={"to": name, "seconds": 0.2}) for name in "abc"]}
        result = await engine.run(plan)
    assert result.success
    starts = sorted(row.started_at for row in result.steps.values())
    assert min(later - earlier for earlier, later in itertools.pairwise(starts)) >= 0.2


@pytest.mark.parametrize(
    ("server", "kind", "words"),
    [
        ({"command": "no-such-program"}, SettingsError, "no-such-program: command not found"),
        ({"command": str(SERVER)}, SettingsError, "ermission denied"),
        ({"command": sys.executable, "cwd": "/no/such/folder"}, SettingsError, "no folder '/no/such/folder'"),
        ({"command": sys.executable, "env": {"A": "${env:NO_SUCH_VARIABLE}"}}, SettingsError, "NO_SUCH_VARIABLE"),
        ({"command": sys.executable, "args": [str(SERVER), "--die-at-start"]}, RerailError, "the licence is missing"),
        ({"command": sys.executable, "args": ["-c", "print('hello')"]}, RerailError, "cannot be started"),
        ({"url": "http://127.0.0.1:9/mcp"}, RerailError, "cannot be reached at http://127.0.0.1:9/mcp"),
    ],
)
async def test_a_server_that_cannot_be_opened_is_named(server: dict[str, Any], kind: type, words: str) -> None:
    """SPEC 11: with the reason and what to do; the engine is not open, and its store is not either."""
    engine = rerail.Engine("memory://", [], {"mcp": {"servers": {"odd": server}}})
    with pytest.raises(RerailError, match="'odd'") as refused:
        await engine.open()
    assert type(refused.value) is kind
    assert words in refused.value.message
    assert "mcp.servers.odd" in refused.value.hint


async def test_one_server_that_cannot_be_opened_takes_the_others_with_it(bench: Bench, lives: Lives) -> None:
    """SPEC 11: nothing is left running."""
    settings = bench.settings(bench=bench.stdio(), odd={"command": "no-such-program"})
    before = children()
    with pytest.raises(SettingsError, match="odd"):
        await rerail.Engine("memory://", [], settings).open()
    assert children() == before


# -- What goes wrong in a call ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code", "category", "words"),
    [
        (step("fails", args={"message": "permission denied"}), "TOOL_FAILED", "permanent_error", "permission denied"),
        (step("fails", args={"message": "odd"}), "TOOL_FAILED", None, "odd"),
        (step("refuses", args={"code": -32602, "message": "bad x"}), "ARGS_INVALID", "parameter_error", "bad x"),
        (step("refuses", args={"code": -32602, "message": "Unknown tool: x"}), "TOOL_UNKNOWN", "permanent_error", "x"),
        (step("refuses", args={"code": -32601, "message": "no"}), "TOOL_UNKNOWN", "permanent_error", "no"),
        (step("refuses", args={"code": -32603, "message": "rate limit hit"}), "TOOL_FAILED", "transient_error", "rate"),
        (step("refuses", args={"code": -32042, "message": "go"}), "TOOL_FAILED", "permanent_error", "sign-in"),
        (step("refuses", args={"code": -32000, "message": "who knows"}), "CONNECTION_LOST", "transient_error", "who"),
        (step("dies"), "CONNECTION_LOST", "transient_error", "I am dying"),
    ],
)
async def test_what_goes_wrong_is_told_apart(
    bench: Bench, call: dict[str, Any], code: str, category: str | None, words: str
) -> None:
    """X3, H2: the tool's own error, the protocol's, and a lost server."""
    settings = {**bench.settings(bench=bench.stdio()), "reflection": {"max_step_retries": 0}}
    async with rerail.Engine("memory://", [], settings) as engine:
        error = (await engine.run({"steps": [call]})).steps["a"].error
    assert error is not None
    assert error["code"] == code
    assert category is None or error["category"] == category
    assert words in error["message"]


async def test_a_killed_server_is_started_again_for_a_call_that_may_be_repeated(bench: Bench) -> None:
    """X4, H3: killed in the middle of a call of a `read` tool, which then succeeds."""
    async with rerail.Engine("memory://", [], bench.settings(bench=bench.stdio())) as engine:
        pid = int((await engine.run({"steps": [step("pid")]})).steps["a"].output)
        run = await engine.start({"steps": [step("slow", args={"seconds": 1})]})
        await until(lambda: bench.done == ["slow begins"])
        kill(pid)
        result = await engine.wait(run)
        assert result.success
        assert result.steps["a"].attempts == 2
        assert int((await engine.run({"steps": [step("pid")]})).steps["a"].output) != pid


async def test_a_killed_server_leaves_a_once_call_in_doubt(bench: Bench) -> None:
    """X4, E3: it acted before it died, so it is not called again; a person says what became of it."""
    async with rerail.Engine("memory://", [], bench.settings(bench=bench.stdio())) as engine:
        pid = int((await engine.run({"steps": [step("pid")]})).steps["a"].output)
        run = await engine.start({"steps": [step("send", args={"to": "bob", "seconds": 30})]})
        await until(lambda: bench.done == ["send bob"])
        kill(pid)
        result = await engine.wait(run)
        assert (result.status, result.steps["a"].status) == ("waiting", "in_doubt")
        await engine.resolve(run, "a", succeeded="sent")
        assert (await engine.wait(run)).success
    assert bench.done == ["send bob"]


async def test_e11_a_replaced_owner_sends_nothing(bench: Bench) -> None:
    """E11: the lease is looked at once the server is connected, right before the call is sent."""

    def lost() -> None:
        raise rerail.NotDone("replaced")

    servers, tools = await opened(bench)
    try:
        sending = tools["send"]
        with pytest.raises(rerail.NotDone, match="replaced"):
            await sending.call({"to": "bob"}, rerail.Context(owner=lost))
        assert bench.done == []
        await sending.call({"to": "bob"}, rerail.Context(owner=lambda: None))
        assert bench.done == ["send bob"]
    finally:
        await servers.close()


@pytest.mark.parametrize("stdin", ["closed", "ignored"])
def test_v8_a_server_ends_with_its_owner(bench: Bench, tmp_path: Path, stdin: str) -> None:
    """V8: after kill -9 of the engine's process no server is left, also one that does not mind its stdin."""
    line = f"echo $$ > {tmp_path}/pid; " + ("exec cat" if stdin == "closed" else "sleep 60 & wait")
    program = f"""
import asyncio
from rerail.adapters.tools.mcp.transports import Pipes, Program
async def main():
    async with Pipes(Program(["sh", "-c", {line!r}]), lambda: None):
        await asyncio.sleep(60)
asyncio.run(main())
"""
    owner = subprocess.Popen([sys.executable, "-c", program])
    bench.until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    time.sleep(0.3)  # it is registered
    owner.kill()
    owner.wait()
    bench.until(lambda: not lives(int((tmp_path / "pid").read_text())), 5.0)


async def test_a_call_that_never_reached_a_server_is_no_doubt(bench: Bench) -> None:
    """X4: a server that cannot be started again sent nothing, so a `once` step simply fails."""
    servers, tools = await opened(bench)
    try:
        pid = int(await tools["pid"].call({}))
        with pytest.raises(AnswerLost):
            await tools["dies"].call({})
        bench.notes.unlink()
        assert pid
        object.__setattr__(tools["send"]._connection.server, "command", "no-such-program")
        with pytest.raises(NotConnected, match="command not found") as failed:
            await tools["send"].call({"to": "bob"})
        assert (failed.value.lost, failed.value.code) == (False, "SERVER_MISSING")
        assert bench.done == []
    finally:
        await servers.close()


async def test_a_server_that_keeps_dying_is_left_alone(bench: Bench) -> None:
    """X4: restarts are bounded, and an answer in between forgives."""
    servers, tools = await opened(bench)
    try:
        for _ in range(MOST_DEATHS - 1):
            with pytest.raises(AnswerLost):
                await tools["dies"].call({})
        assert await tools["echo"].call({"text": "alive"}) == "alive"
        for _ in range(MOST_DEATHS):
            with pytest.raises(AnswerLost):
                await tools["dies"].call({})
        with pytest.raises(NotConnected, match=r"died 3 times .*I am dying") as refused:
            await tools["echo"].call({"text": "x"})
        assert refused.value.code == "SERVER_DYING"
        assert "echo x" not in bench.done
    finally:
        await servers.close()


async def test_calls_beside_one_that_kills_the_server(bench: Bench) -> None:
    """X4: each of them is told; the server counts as dead once, and is started once."""
    servers, tools = await opened(bench)
    try:
        calls = [tools["slow"].call({"seconds": 30}) for _ in range(5)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await until(lambda: len(bench.done) == 5)
        with pytest.raises(AnswerLost):
            await tools["dies"].call({})
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {AnswerLost}
        pids = await asyncio.gather(*(tools["pid"].call({}) for _ in range(5)))
        assert len(set(pids)) == 1
    finally:
        await servers.close()


async def test_a_timeout_cancels_the_request(bench: Bench) -> None:
    """X4: the server is told, and goes on living."""
    settings = {**bench.settings(bench=bench.stdio()), "reflection": {"max_step_retries": 0}}
    async with rerail.Engine("memory://", [], settings) as engine:
        pid = (await engine.run({"steps": [step("pid")]})).steps["a"].output
        result = await engine.run({"steps": [step("slow", args={"seconds": 30}, timeout=0.5)]})
        assert result.steps["a"].error is not None
        assert result.steps["a"].error["code"] == "TIMEOUT"
        await until(lambda: bench.done == ["slow begins", "slow was cancelled"])
        assert (await engine.run({"steps": [step("pid")]})).steps["a"].output == pid


async def test_a_server_that_prints_is_still_understood(tmp_path: Path, bench: Bench) -> None:
    """M2: what is no message is passed over."""
    wrapper = tmp_path / "noisy.py"
    wrapper.write_text(
        f"import runpy\nprint('Welcome!', flush=True)\nrunpy.run_path({str(SERVER)!r}, run_name='__main__')\n"
    )
    servers = McpServers()
    tools = await servers.open([server_from("noisy", {**bench.stdio(tools=["echo"]), "args": [str(wrapper)]})])
    assert await tools[0].call({"text": "hi"}) == "hi"
    await servers.close()


# -- Nothing is left behind ---------------------------------------------------------------------------------------


def children() -> set[str]:
    """The processes that this one has started and not yet seen the end of."""
    return set(Path(f"/proc/self/task/{Path('/proc/thread-self').resolve().name}/children").read_text().split())


async def test_closing_ends_the_server_and_what_it_started(bench: Bench, lives: Lives) -> None:
    """M2: a server that obeys, and the process that it left."""
    servers, tools = await opened(bench)
    pid, orphan = int(await tools["pid"].call({})), int(await tools["spawns"].call({}))
    assert lives(pid)
    assert lives(orphan)
    await servers.close()
    assert not lives(pid)
    await until(lambda: not lives(orphan))


async def test_closing_ends_a_server_that_does_not_want_to(bench: Bench, lives: Lives) -> None:
    """M2: TERM, then KILL."""
    servers, tools = await opened(bench, "--stubborn")
    pid = int(await tools["pid"].call({}))
    await servers.close()
    assert not lives(pid)


async def test_closing_while_calls_are_under_way(bench: Bench, lives: Lives) -> None:
    """M2: they end, and the server too."""
    servers, tools = await opened(bench)
    pid = int(await tools["pid"].call({}))
    call = asyncio.ensure_future(tools["slow"].call({"seconds": 30}))
    await until(lambda: "slow begins" in bench.done)
    await servers.close()
    with pytest.raises(AnswerLost):
        await call
    assert not lives(pid)


async def test_a_server_that_died_leaves_nothing(bench: Bench, lives: Lives) -> None:
    """M2: what it started is ended too, without anybody closing anything."""
    servers, tools = await opened(bench)
    orphan = int(await tools["spawns"].call({}))
    with pytest.raises(AnswerLost):
        await tools["dies"].call({})
    await until(lambda: not lives(orphan))
    await servers.close()


TORN_DOWN = """
import asyncio, sys
from rerail.adapters.tools.mcp.server_config import server_from
from rerail.adapters.tools.mcp.tools import McpServers

async def main():
    servers = McpServers()
    tools = {{tool.spec.name: tool for tool in await servers.open([server_from("s", {server!r})])}}
    print(await tools["pid"].call({{}}), await tools["spawns"].call({{}}), flush=True)
    {end}

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit(3)",
        "asyncio.current_task().cancel(); await asyncio.sleep(9)",
        "closing = asyncio.ensure_future(servers.close()); await asyncio.sleep(0.3); raise SystemExit(3)",
    ],
)
@pytest.mark.parametrize("args", [[], ["--stubborn"]])
def test_an_event_loop_that_is_torn_down_ends_the_server(bench: Bench, lives: Lives, end: str, args: list[str]) -> None:
    """M2: nobody closes it, and it is gone when the program ends, with all that it started."""
    program = TORN_DOWN.format(server=bench.stdio(*args), end=end)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    bench.until(lambda: not any(map(lives, pids)), 5)


def test_a_cancelled_start_leaves_nothing(bench: Bench) -> None:
    """M2: an engine that is given up while its server starts."""

    async def main() -> None:
        engine = rerail.Engine("memory://", [], bench.settings(bench=bench.stdio()))
        before = children()
        for delay in (0, 0.05, 0.3):
            opening = asyncio.ensure_future(engine.open())
            await asyncio.sleep(delay)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert children() == before

    asyncio.run(main())


# -- Servers of plans ---------------------------------------------------------------------------------------------


async def test_p5_a_plan_that_names_a_server_of_the_settings_is_refused_too(bench: Bench) -> None:
    """P5, M4: servers are named in the settings alone; with `mcp` out of the plan the same steps run."""
    plan = {"steps": [step("b.echo", args={"text": "x"})], "mcp": {"b": bench.stdio(prefix="b.")}}
    async with rerail.Engine("memory://", [], {**bench.settings(), "mcp": {"servers": plan["mcp"]}}) as engine:
        with pytest.raises(rerail.PlanError) as refused:
            await engine.start(plan)
        assert [fault.code for fault in refused.value.faults] == ["MCP_NOT_ALLOWED"]
        result = await engine.run({"steps": plan["steps"]})
        assert result.success
        [accepted] = [event for event in await engine.events(result.run_id) if event.type == "plan_accepted"]
        assert accepted.plan.mcp == {} and accepted.brought is None
