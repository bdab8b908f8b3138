"""Rerail as an MCP server: real processes, driven by the SDK's own client over stdio and HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

TOOLS = '''
"""Tools that print, wait and count."""

import asyncio, os
from pathlib import Path
import rerail

print("printed while loading")
os.write(1, b"written while loading\\n")
HERE = Path(__file__).parent


def note(ctx):
    with (HERE / "calls.txt").open("a") as file:
        file.write(ctx.step + "\\n")


@rerail.tool
def noisy(ctx: rerail.Context, value: object = 1):
    """Print in every way there is, and give the value back."""
    note(ctx)
    print("printed")
    os.write(1, b"written\\n")
    os.system("echo from a child; cat")
    return value


@rerail.tool
async def needs_file(name: str, ctx: rerail.Context):
    """Fail until there is a file of that name."""
    note(ctx)
    if not (HERE / name).exists():
        raise rerail.ToolError(f"no {name}", category="tool_error")
    return name


@rerail.tool
async def hold(name: str, ctx: rerail.Context):
    """Wait until there is a file of that name."""
    note(ctx)
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)
    return name


@rerail.tool(effect="once", timeout=0.2)
async def send(ctx: rerail.Context):
    """Act, and never answer."""
    note(ctx)
    await asyncio.sleep(30)
'''

ENVIRON = {
    "RERAIL_RETRY_MAX_RETRY_ROUNDS": "0",
    "RERAIL_REFLECTION_MAX_STEP_RETRIES": "0",
    "RERAIL_STORE_DURABILITY": "normal",
    "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"),
}
COMMAND = ["-m", "rerail.cli", "mcp", "--tools", "toolbox.py"]
CHAIN: dict[str, Any] = {
    "objective": "a chain",
    "steps": [
        {"id": "a", "tool": "noisy", "args": {"value": "hi"}},
        {"id": "b", "tool": "needs_file", "args": {"name": "go"}, "needs": ["a"]},
        {"id": "c", "tool": "noisy", "args": {"value": "${b}"}},
    ],
}


ANSWERS = ("--allow", "confirm", "--allow", "resolve", "--allow", "skip")


class Person:
    """Somebody behind a client: is asked, and answers."""

    def __init__(self, *, agrees: bool = True) -> None:
        self.agrees, self.seen = agrees, list[str]()

    async def asked(self, _: Any, params: Any) -> ElicitResult:
        """Read the question, and answer it."""
        self.seen.append(params.message)
        return ElicitResult(action="accept", content={"agree": self.agrees})


@dataclass
class Place:
    """A folder with tools, and servers in it."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls.txt"
        return file.read_text().split() if file.exists() else []

    @asynccontextmanager
    async def stdio(self, *words: str, person: Any = None, **environ: str) -> AsyncIterator[Client]:
        """The SDK's client of a server on stdio; what the server says on stderr is kept; `person` answers questions."""
        server = StdioServerParameters(
            command=sys.executable, args=[*COMMAND, *words], env={**ENVIRON, **environ}, cwd=str(self.folder)
        )
        with (self.folder / "stderr.txt").open("a") as errors:
            async with Client(stdio_client(server, errlog=errors), elicitation_callback=person) as client:
                yield client

    def behind(self, person: Person) -> Any:
        """A client with a person behind it, whose answers count, and the tools that put questions to people."""
        return self.stdio(*ANSWERS, person=person.asked, RERAIL_MCP_TRUST_ELICITATION="true")

    def http(self, *words: str, **environ: str) -> tuple[subprocess.Popen[str], str]:
        """A server on a port of its own, and its address."""
        process = subprocess.Popen(
            [sys.executable, *COMMAND, "--http", "127.0.0.1:0", *words],
            cwd=self.folder, env={**os.environ, **ENVIRON, **environ}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                return process, found[0]
        raise AssertionError("the server did not start")

    def rerail(self, *words: str) -> str:
        """A command of the same folder; what it prints."""
        command = [sys.executable, "-m", "rerail.cli", *words]
        return subprocess.run(
            command, cwd=self.folder, env={**os.environ, **ENVIRON}, capture_output=True, text=True, timeout=60
        ).stdout

    def audit(self, run: str) -> list[dict[str, Any]]:
        """Who did what to a run."""
        return list(json.loads(self.rerail("audit", run, "--json")))

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with tools."""
    (tmp_path / "toolbox.py").write_text(TOOLS)
    found = Place(tmp_path)
    yield found
    found.close()


async def ask(client: Client, name: str, /, *, refused: bool = False, **args: Any) -> dict[str, Any]:
    """What a tool of the server answers: data, and the same as text."""
    answer = await client.call_tool(name, args)
    assert answer.is_error is refused, answer
    assert isinstance(answer.structured_content, dict)
    if not refused:
        assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    return answer.structured_content


# -- What is offered ----------------------------------------------------------------------------------------------


async def test_a_model_can_tell_what_there_is(place: Place) -> None:
    """I7: every tool says what it does and whether it changes anything; the instructions say in which order."""
    async with place.stdio() as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "retry_run" in (client.session.instructions or "")
        tools = await ask(client, "list_tools")
    assert set(offered) == {
        "list_tools", "check_plan", "run_plan", "start_plan", "list_runs", "show_run", "wait_run", "why_run",
        "replay_run", "retry_run", "resume_run", "pause_run", "cancel_run", "add_steps", "repair_step",
        "list_artifacts", "read_artifact",
    }  # fmt: skip
    looking = {name for name, tool in offered.items() if tool.annotations and tool.annotations.read_only_hint}
    assert looking == {
        "list_tools", "check_plan", "list_runs", "show_run", "wait_run", "why_run", "replay_run", "list_artifacts",
        "read_artifact",
    }  # fmt: skip
    for tool in offered.values():
        assert len(tool.description or "") > 60
        assert tool.input_schema["additionalProperties"] is False
    assert {tool["name"]: tool["effect"] for tool in tools["tools"]} == {
        "noisy": "repeatable", "needs_file": "repeatable", "hold": "repeatable", "send": "once",
    }  # fmt: skip


# -- A whole story, over both wires -------------------------------------------------------------------------------


async def story(client: Client, place: Place) -> str:
    """A plan that fails is looked at, tried on paper, retried and completed; returns the run's id."""
    checked = await ask(client, "check_plan", plan={"steps": [{"id": "a", "tool": "noisi", "needs": ["z"]}]})
    assert [fault["code"] for fault in checked["faults"]] == ["UNKNOWN_NEED", "UNKNOWN_TOOL"]
    assert (await ask(client, "check_plan", plan=json.dumps(CHAIN)))["ok"] is True
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    ran = (await client.call_tool("run_plan", {"plan": CHAIN}, progress_callback=tell)).structured_content
    assert ran is not None
    assert (ran["status"], ran["success"]) == ("failed", False)
    assert [row["id"] for row in ran["failed_steps"]] == ["b"]
    assert "a: succeeded" in [message for _, message in told]
    assert [progress for progress, _ in told] == sorted({progress for progress, _ in told})
    run = str(ran["run_id"])
    assert any("no go" in line for line in (await ask(client, "why_run", run=run, step="b"))["story"])
    again = await ask(client, "replay_run", run=run[:6], settings={"run.max_attempts": 1})
    assert again["known"] and again["replayed"]["calls"] == 1 and again["recorded"]["calls"] == 2
    preview = await ask(client, "retry_run", run=run[:6], dry_run=True)
    assert ([row["step"] for row in preview["rerun"]], preview["kept"]) == (["b", "c"], ["a"])
    assert place.calls == ["a", "b"]
    (place.folder / "go").write_text("")
    mended = await ask(client, "retry_run", run=run)
    assert (mended["status"], mended["steps"]["c"]["output"]) == ("completed", "go")
    assert place.calls == ["a", "b", "b", "c"]
    rows = (await ask(client, "list_runs", status=["completed"]))["runs"]
    assert [row["run_id"] for row in rows] == [run]
    return run


async def test_a_plan_fails_and_is_retried_over_stdio(place: Place) -> None:
    """I7, X3: nothing that tools print reaches the protocol; the command line sees the same run."""
    async with place.stdio() as client:
        run = await story(client, place)
    said = (place.folder / "stderr.txt").read_text()
    assert "printed while loading" in said
    assert "from a child" in said
    assert "Traceback" not in said
    shown = subprocess.run(
        [sys.executable, "-m", "rerail.cli", "show", run, "--json"],
        cwd=place.folder, env={**os.environ, **ENVIRON}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert json.loads(shown.stdout)["status"] == "completed"


async def test_a_plan_fails_and_is_retried_over_http(place: Place) -> None:
    """I7: the same, and the server ends when it is told to."""
    process, url = place.http()
    async with Client(url) as client:
        await story(client, place)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


# -- People's actions ---------------------------------------------------------------------------------------------


async def test_whoever_waits_may_leave(place: Place) -> None:
    """I7: a run goes on without those who wait for it, and is found again."""
    plan = {"steps": [{"id": "a", "tool": "hold", "args": {"name": "go"}}]}
    async with place.stdio() as client:
        early = await ask(client, "run_plan", plan=plan, wait_seconds=0.3)
        assert early["status"] == "running"
        run = early["run_id"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.call_tool("wait_run", {"run": run})
        assert (await ask(client, "show_run", run=run))["status"] == "running"
        (place.folder / "go").write_text("")
        assert (await ask(client, "wait_run", run=run))["status"] == "completed"
    assert place.calls == ["a"]


async def test_a_run_that_waits_for_somebody(place: Place) -> None:
    """X7, E3: confirm, refuse, resolve, skip, add, pause, resume and cancel."""
    gate = {"id": "a", "tool": "noisy", "confirm": "really?"}
    async with place.behind(Person()) as client:
        run = (await ask(client, "run_plan", plan={"steps": [gate]}))["run_id"]
        assert (await ask(client, "confirm_step", run=run))["status"] == "completed"
        run = (await ask(client, "run_plan", plan={"steps": [gate]}))["run_id"]
        assert (await ask(client, "confirm_step", run=run, step="a", refuse=True))["status"] == "failed"
        run = (await ask(client, "run_plan", plan={"steps": [gate]}))["run_id"]
        assert (await ask(client, "skip_step", run=run, step="a", reason="no"))["status"] == "completed"
        doubtful = await ask(client, "run_plan", plan={"steps": [{"id": "s", "tool": "send"}]})
        assert doubtful["steps"]["s"]["status"] == "in_doubt"
        settled = await ask(
            client, "resolve_step", run=doubtful["run_id"], step="s", outcome="succeeded", value={"ok": 1}
        )
        assert settled["steps"]["s"]["output"] == {"ok": 1}
        held = {"steps": [{"id": "h", "tool": "hold", "args": {"name": "never"}}]}
        run = (await ask(client, "start_plan", plan=held))["run_id"]
        added = await ask(client, "add_steps", run=run, steps=[{"id": "n", "tool": "noisy", "needs": ["h"]}])
        assert list(added["steps"]) == ["h", "n"]
        await ask(client, "pause_run", run=run)
        await ask(client, "resume_run", run=run, wait_seconds=0.1)
        assert (await ask(client, "cancel_run", run=run, reason="enough"))["status"] == "cancelled"
    assert place.calls.count("s") == 1


async def test_x10_a_model_agrees_to_the_call_that_it_shows(place: Place) -> None:
    """X10: the call stands in what it gets, with the digest to pass on; ahead and edits as elsewhere."""
    gate = {"id": "a", "tool": "noisy", "confirm": "really?"}
    async with place.behind(Person()) as client:
        waits = await ask(client, "run_plan", plan={"steps": [gate]})
        [shown] = waits["waiting_on"]
        assert shown["tool"] == "noisy" and shown["digest"]
        run = waits["run_id"]
        error = (await ask(client, "confirm_step", refused=True, run=run, digest="0" * 32))["error"]
        assert error["code"] == "GATE_CHANGED" and "noisy(" in error["message"]
        faulty = (await ask(client, "confirm_step", refused=True, run=run, args={"colour": 1}))["error"]
        assert faulty["faults"][0]["code"] == "BAD_ARGS"
        assert (await ask(client, "confirm_step", run=run, digest=shown["digest"]))["status"] == "completed"
        held = {"steps": [{"id": "h", "tool": "hold", "args": {"name": "go"}}, {**gate, "needs": ["h"]}]}
        run = (await ask(client, "start_plan", plan=held))["run_id"]
        early = (await ask(client, "confirm_step", refused=True, run=run, step="a"))["error"]
        assert early["code"] == "STEP_NOT_WAITING" and "--ahead" in early["hint"]
        await ask(client, "confirm_step", run=run, step="a", ahead=True, wait_seconds=0.1)
        (place.folder / "go").write_text("")
        assert (await ask(client, "wait_run", run=run))["status"] == "completed"


async def test_a_step_is_repaired_by_whoever_asks(place: Place) -> None:
    """X7, H7, P5: what changes is given, the rest stays; what is faulty is refused and changes nothing."""
    async with place.stdio() as client:
        run = (await ask(client, "run_plan", plan=CHAIN))["run_id"]
        for change, code in (
            ({"args": {"name": 7}}, "BAD_ARGS"),
            ({"tool": "noisi"}, "UNKNOWN_TOOL"),
            ({"needs": ["z"]}, "UNKNOWN_NEED"),
            ({}, "BAD_VALUE"),
            ({"remove": ["nobody"]}, "BAD_VALUE"),
            ({"remove": ["name"]}, "BAD_ARGS"),
        ):
            error = (await ask(client, "repair_step", refused=True, run=run, step="b", **change))["error"]
            assert [fault["code"] for fault in error["faults"]] == [code]
        (place.folder / "there").write_text("")
        assert (await ask(client, "show_run", run=run))["steps"]["b"]["args"] == {"name": "go"}
        mended = await ask(client, "repair_step", run=run, step="b", args={"name": "there"})
        assert (mended["status"], mended["steps"]["c"]["output"]) == ("completed", "there")
        again = await ask(client, "repair_step", refused=True, run=run, step="b", tool="noisy")
        assert again["error"]["code"] == "STEP_ENDED"
        told = (await ask(client, "why_run", run=run, step="b"))["story"]
        assert any("mcp" in line for line in told)
    assert place.calls == ["a", "b", "b", "c"]


async def test_outputs_are_listed_and_read_in_parts(place: Place) -> None:
    """I7, E6: what a run keeps can be read, a large one piece by piece, and no answer is larger than asked for."""
    large = [{"n": n, "text": "é" * 50} for n in range(1000)]
    plan = {
        "steps": [
            {"id": "small", "tool": "noisy", "args": {"value": {"ok": True}}},
            {"id": "large", "tool": "noisy", "args": {"value": large}},
            {"id": "never", "tool": "needs_file", "args": {"name": "no"}},
        ]
    }
    async with place.stdio() as client:
        run = (await ask(client, "run_plan", plan=plan))["run_id"]
        listed = await ask(client, "list_artifacts", run=run)
        assert (sorted(row["name"] for row in listed["artifacts"]), listed["total"]) == (["large", "small"], 2)
        assert next(row for row in listed["artifacts"] if row["name"] == "large")["size"] > 50_000
        few = await ask(client, "list_artifacts", run=run, limit=1)
        assert (len(few["artifacts"]), few["total"]) == (1, 2)
        small = await ask(client, "read_artifact", run=run, name="small")
        assert (small["value"], small["text"], small["next_offset"]) == ({"ok": True}, None, None)
        pieces, offset, asked = [], 0, 0
        while offset is not None:
            part = await ask(client, "read_artifact", run=run, name="large", offset=offset)
            assert part["value"] is None
            assert len(part["text"]) <= 20_000
            pieces.append(part["text"])
            offset, asked = part["next_offset"], asked + 1
        assert (json.loads("".join(pieces)), asked) == (large, 4)
        whole = await ask(client, "read_artifact", run=run, name="large", limit=1_000_000)
        assert whole["value"] == large
        assert (await ask(client, "read_artifact", run=run, name="small", offset=500))["text"] == ""
        for name in ("never", "nope"):
            refused = await ask(client, "read_artifact", refused=True, run=run, name=name)
            assert refused["error"]["code"] == "STEP_UNKNOWN"


async def test_progress_reaches_whoever_waits(place: Place) -> None:
    """I7: every step's end, with how many of how many, each report larger than the last; also to one who joins late."""
    told: list[tuple[float, float | None, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    plan = {
        "steps": [
            {"id": "a", "tool": "noisy"},
            {"id": "h", "tool": "hold", "args": {"name": "go"}, "needs": ["a"]},
            {"id": "b", "tool": "needs_file", "args": {"name": "no"}, "needs": ["h"]},
            {"id": "c", "tool": "noisy", "needs": ["b"]},
        ]
    }
    async with place.stdio() as client:
        early = await client.call_tool("run_plan", {"plan": plan, "wait_seconds": 1.5}, progress_callback=tell)
        assert told == [(1, 4, "a: succeeded")]
        told.clear()
        run = (early.structured_content or {})["run_id"]

        async def go() -> None:
            await anyio.sleep(1)  # somebody waits by then: what happened before is not told again
            (place.folder / "go").write_text("")

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            ended = await client.call_tool("wait_run", {"run": run}, progress_callback=tell)
        assert (ended.structured_content or {})["status"] == "failed"
        assert told == [(2, 4, "h: succeeded"), (3, 4, "b: failed"), (4, 4, "c: skipped")]
        told.clear()
        await client.call_tool("wait_run", {"run": run}, progress_callback=tell)  # nothing more happens
        gate = {"steps": [{"id": "a", "tool": "noisy"}, {"id": "g", "tool": "noisy", "needs": ["a"], "confirm": True}]}
        await client.call_tool("run_plan", {"plan": gate}, progress_callback=tell)
        assert told == [(1, 2, "a: succeeded")]  # it waits for somebody, and all that happened was told


async def test_what_is_refused_is_an_answer(place: Place) -> None:
    """X7: with our code and hint, and no traceback."""
    async with place.stdio(*ANSWERS) as client:
        done = (await ask(client, "run_plan", plan={"steps": [{"id": "a", "tool": "noisy"}]}))["run_id"]
        for name, args, code in (
            ("show_run", {"run": "nope"}, "RUN_UNKNOWN"),
            ("show_run", {}, "ARGS_INVALID"),
            ("show_run", {"runn": done}, "ARGS_INVALID"),
            ("retry_run", {"run": done}, "RUN_COMPLETED"),
            ("retry_run", {"run": done, "clean": True}, "CONFIRM_NEEDED"),
            ("resume_run", {"run": done}, "RUN_AT_REST"),
            ("confirm_step", {"run": done}, None),
            ("why_run", {"run": done, "step": "z"}, "STEP_UNKNOWN"),
            ("replay_run", {"run": done, "settings": {"store.url": "x"}}, "SETTINGS_INVALID"),
            ("run_plan", {"plan": {"steps": [{"id": "a", "tool": "noisi"}]}}, "PLAN_INVALID"),
            ("run_plan", {"plan": "no: [plan"}, "PLAN_UNREADABLE"),
            ("no_such_tool", {}, "USAGE"),
        ):
            error = (await ask(client, name, refused=True, **args))["error"]
            assert code is None or error["code"] == code, (name, error)
            assert error["message"]
        near = await client.call_tool("show_run", {"runn": done})
        assert 'did you mean "run"' in near.content[0].text  # type: ignore[union-attr]
        assert (await ask(client, "retry_run", run=done, clean=True, confirmed=True))["status"] == "completed"
    assert "Traceback" not in (place.folder / "stderr.txt").read_text()


async def test_a_plan_is_data(place: Place) -> None:
    """M4: no file is read for it, no program started."""
    (place.folder / "plan.yaml").write_text(json.dumps(CHAIN))
    brings = {**CHAIN, "mcp": {"s": {"command": "touch", "args": [str(place.folder / "touched")]}}}
    async with place.stdio() as client:
        for plan in ("plan.yaml", str(place.folder / "plan.yaml")):
            error = (await ask(client, "run_plan", refused=True, plan=plan))["error"]
            assert error["code"] == "PLAN_UNREADABLE"
        error = (await ask(client, "run_plan", refused=True, plan=brings))["error"]
        assert error["faults"][0]["code"] == "MCP_NOT_ALLOWED"
        assert (await ask(client, "check_plan", plan=brings))["faults"][0]["code"] == "MCP_NOT_ALLOWED"
        assert (await ask(client, "list_runs"))["runs"] == []
    assert not (place.folder / "touched").exists()


# -- Ends ---------------------------------------------------------------------------------------------------------


def test_a_server_whose_host_leaves_lets_go_of_its_runs(place: Place) -> None:
    """E1: as if it had crashed: the run is interrupted, and another one resumes it."""
    plan = {"steps": [{"id": "a", "tool": "hold", "args": {"name": "go"}}]}

    async def first() -> str:
        async with place.stdio() as client:
            return str((await ask(client, "start_plan", plan=plan))["run_id"])

    async def second(run: str) -> dict[str, Any]:
        async with place.stdio() as client:
            (row,) = (await ask(client, "list_runs"))["runs"]
            assert row["interrupted"] is True
            (place.folder / "go").write_text("")
            return await ask(client, "resume_run", run=run)

    run = asyncio.run(first())
    assert asyncio.run(second(run))["status"] == "completed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_on_stdio_obeys_signals(place: Place, number: signal.Signals) -> None:
    """T7: although its stdin is still open."""
    process = subprocess.Popen(
        [sys.executable, *COMMAND], cwd=place.folder, env={**os.environ, **ENVIRON},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    place.started.append(process)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("no message\n" + json.dumps(ping) + "\n")
    process.stdin.flush()
    assert "jsonrpc" in process.stdout.readline()
    process.send_signal(number)
    assert process.wait(20) == 0
    out, err = process.communicate()
    assert "Traceback" not in err
    assert all(json.loads(line) for line in out.splitlines())


# -- Who may come in ----------------------------------------------------------------------------------------------


def refused(place: Place, *words: str, **environ: str) -> str:
    """Why the server does not start."""
    done = subprocess.run(
        [sys.executable, *COMMAND, *words], cwd=place.folder, env={**os.environ, **ENVIRON, **environ},
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_other_machines_are_kept_out(place: Place) -> None:
    """I4: unless the user says otherwise, twice."""
    for words, environ in (((), {}), (("--expose",), {}), ((), {"RERAIL_TOKEN": "t"})):
        assert "--expose" in refused(place, "--http", "0.0.0.0:0", *words, **environ)
    assert "HOST:PORT" in refused(place, "--http", "here")
    assert "in use" in _on_a_taken_port(place)


def _on_a_taken_port(place: Place) -> str:
    _, url = place.http()
    port = re.search(r":(\d+)/", url)
    assert port is not None
    return refused(place, "--http", f"127.0.0.1:{port[1]}")


async def test_a_token_is_asked_for(place: Place) -> None:
    """I4: also on this machine, if there is one; and a page of another site gets no answer."""
    _, url = place.http(RERAIL_TOKEN="hunter2")
    async with httpx2.AsyncClient() as web:
        assert (await web.post(url, json={})).status_code == 401
        assert (await web.post(url, json={}, headers={"authorization": "Bearer wrong"})).status_code == 401
        known = {"authorization": "Bearer hunter2"}
        rebound = await web.post(url, json={}, headers={**known, "host": "evil.example"})
        assert rebound.status_code in (403, 421)
        async with (
            httpx2.AsyncClient(headers=known) as known_web,
            Client(streamable_http_client(url, http_client=known_web)) as client,
        ):
            assert (await ask(client, "list_runs"))["runs"] == []


def test_without_the_extra_the_command_says_what_to_install(place: Place) -> None:
    """M2: and nothing else is harmed."""
    code = (
        "import sys\nfor name in ('mcp', 'mcp_types'): sys.modules[name] = None\n"
        "from rerail.cli import main\nsys.exit(main(['mcp']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install '.[mcp]'" in done.stderr


# -- Gates are for people (I13) ---------------------------------------------------------------------------------------

GATED: dict[str, Any] = {"steps": [{"id": "pay", "tool": "noisy", "confirm": "Pay?"}]}
DOUBT: dict[str, Any] = {"steps": [{"id": "s", "tool": "send"}]}


async def test_an_agent_does_not_pass_its_own_gate(place: Place) -> None:
    """I13: confirm, resolve and skip are not offered; with --allow they still do not answer what the agent started."""
    async with place.stdio() as client:
        run = (await ask(client, "run_plan", plan=GATED))["run_id"]
        offered = {tool.name for tool in (await client.list_tools()).tools}
        assert not offered & {"confirm_step", "resolve_step", "skip_step"}
        assert (await ask(client, "confirm_step", refused=True, run=run))["error"]["code"] == "USAGE"
    person = Person()
    async with place.stdio(*ANSWERS, person=person.asked) as client:  # its settings do not trust what clients say
        doubt = (await ask(client, "run_plan", plan=DOUBT))["run_id"]
        for name, args in (
            ("confirm_step", {"run": run}),
            ("confirm_step", {"run": run, "step": "pay", "refuse": True}),
            ("skip_step", {"run": run, "step": "pay"}),
            ("resolve_step", {"run": doubt, "step": "s", "outcome": "failed"}),
            ("resolve_step", {"run": doubt, "step": "s", "outcome": "rerun"}),
            ("retry_run", {"run": doubt, "clean": True, "confirmed": True}),
        ):
            assert (await ask(client, name, refused=True, **args))["error"]["code"] == "PERSON_NEEDED", name
        assert (await ask(client, "cancel_run", run=run))["status"] == "cancelled"  # an end needs no person
    assert place.calls == ["s"] and not person.seen


@pytest.mark.parametrize("agrees", [True, False])
async def test_the_person_behind_a_client_is_asked_where_that_is_trusted(place: Place, agrees: bool) -> None:
    """I13: the question shows the call, and a no is a no; the history says how the answer is known."""
    person = Person(agrees=agrees)
    async with place.behind(person) as client:
        run = (await ask(client, "run_plan", plan=GATED))["run_id"]
        told = await ask(client, "confirm_step", refused=not agrees, run=run)
        assert agrees or told["error"]["code"] == "PERSON_NEEDED"
    [question] = person.seen
    assert run in question and "noisy" in question
    assert place.calls == (["pay"] if agrees else [])
    said = place.audit(run)
    assert [(row["action"], row["refused"]) for row in said] == [
        ("start", False), ("confirm", True), ("confirm", not agrees),
    ]  # fmt: skip
    assert said[1]["via"] == "mcp"
    assert said[-1]["proof"] == ("elicited" if agrees else "")


async def test_a_client_without_a_person_is_no_person(place: Place) -> None:
    """I13: a client that cannot ask answers nothing, whatever the settings trust."""
    async with place.stdio(*ANSWERS, RERAIL_MCP_TRUST_ELICITATION="true") as client:
        run = (await ask(client, "run_plan", plan=GATED))["run_id"]
        try:
            told = await client.call_tool("confirm_step", {"run": run})
            assert told.is_error
        except MCPError:
            pass  # the client's own refusal to ask
    assert place.calls == []


async def test_a_run_of_a_person_is_answered_over_mcp_where_that_is_allowed(place: Place) -> None:
    """I13: a run that was not started over MCP; a gate with names stays closed, asked or not."""
    for gate, code in (("Pay?", ""), ({"text": "Pay?", "by": ["approve"]}, "APPROVER_NEEDED")):
        plan = place.folder / "plan.json"
        plan.write_text(json.dumps({"steps": [{"id": "pay", "tool": "noisy", "confirm": gate}]}))
        run = json.loads(place.rerail("run", "plan.json", "--tools", "toolbox.py", "--json"))["run_id"]
        async with place.behind(Person()) as client:
            answer = await ask(client, "confirm_step", refused=bool(code), run=run)
            assert (answer["error"]["code"] if code else answer["status"]) == (code or "completed")
