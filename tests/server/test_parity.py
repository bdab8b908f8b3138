"""Everything a person can do in one interface can be done in the others (I7)."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

import rerail
from rerail.api import Engine
from rerail.cli.app import parser
from rerail.cli.command_table import COMMANDS
from rerail.cli.shell.command_lines import NOT_HERE, OFFERED
from rerail.errors import RerailError
from rerail.kernel import commands as cmd
from rerail.kernel.commands import COMMANDS as UNION
from rerail.kernel.commands import INTERNAL, Command, options_of
from rerail.server.app import PREFIX, Files, described, make_api
from rerail.server.mcp import server as mcp
from rerail.server.state import ServerState
from rerail.values.schema import Schema

# Commands that are about the place where they are typed, each with the reason why nobody needs them elsewhere.
AT_HOME = {
    "shell": "it is another interface",
    "serve": "it is another interface",
    "mcp": "it is another interface",
    "worker": "it is a process that drives runs; the server is another",
    "demo": "a story in a terminal",
    "doctor": "it looks at the machine where it is typed; GET /health is what a caller can know",
    "crashtest": "it kills processes of its own, on stores of its own: no run of this store is concerned",
    "export": "it writes a file where it is typed; every event and artifact can be read elsewhere",
    "import": "it reads a file where it is typed, into a store that the user of this machine names",
    "prune": "it removes for good, from a store that the user of this machine names",
    "backup": "it writes a file where it is typed",
    "token": "it writes the settings of the machine where it is typed",
    "prompts": "it copies files into the user's folder",
}
ROUTES: dict[str, str] = {
    "run": "POST /runs",
    "start": "POST /runs",
    "plan": "POST /plans",
    "check": "POST /plans/check",
    "retry": "POST /runs/{run}/retry",
    "resume": "POST /runs/{run}/resume",
    "ls": "GET /runs",
    "show": "GET /runs/{run}",
    "why": "GET /runs/{run}/why",
    "replay": "GET /runs/{run}/replay",
    "logs": "GET /runs/{run}/logs",
    "watch": "GET /runs/{run}/stream",
    "graph": "GET /runs/{run}/graph",
    "artifacts": "GET /runs/{run}/artifacts",
    "confirm": "POST /runs/{run}/confirm",
    "resolve": "POST /runs/{run}/resolve",
    "repair": "POST /runs/{run}/repair",
    "skip": "POST /runs/{run}/skip",
    "add": "POST /runs/{run}/add",
    "pause": "POST /runs/{run}/pause",
    "cancel": "POST /runs/{run}/cancel",
    "tools": "GET /tools",
    "config": "GET /settings",
    "memory": "GET /memory",
    "audit": "GET /audit",
}
# Options that change what happens to a run, by the names that bodies have for them.
OPTIONS = {
    "retry": {"--step": "steps", "--stage": "stage", "--clean": "clean", "--force": "force", "--dry-run": "dry_run",
              "--yes": "confirmed", "--take-over": "take_over"},
    "resume": {"--take-over": "take_over"},
    "confirm": {"--refuse": "refuse", "--edit": "edit", "--dry-run": "dry_run", "--ahead": "ahead", "--args": "args",
                "--digest": "digest", "--yes": "digest"},
    "resolve": {"--succeeded": "value", "--failed": "outcome", "--rerun": "outcome", "--attempt": "attempt",
                "--dry-run": "dry_run"},
    "repair": {"--args": "args", "--remove": "remove", "--tool": "tool", "--needs": "needs", "--dry-run": "dry_run"},
    "run": {"--objective": "objective", "--fallback": "fallback", "--parent": "parent"},
    "start": {"--parent": "parent", "--queue": "queue"},
    "skip": {"--reason": "reason", "--dry-run": "dry_run"},
    "cancel": {"--reason": "reason"},
}  # fmt: skip
# What is about processes, not about runs: the server is one, and its answer never waits.
OF_PROCESSES = {"--wait", "--detach", "--jobs", "-j", "-y", "--all-failed"}
COMMON = {"--store", "--tools", "--json", "--lang", "--set", "--no-color", "--quiet", "-q", "--help", "-h", "--out"}


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    """The API as it describes itself."""
    return described(make_api(ServerState(Engine("memory://")), Files()))


def operation(api: dict[str, Any], route: str) -> dict[str, Any]:
    """One route."""
    method, _, path = route.partition(" ")
    found: dict[str, Any] = api["paths"][PREFIX + path][method.lower()]
    return found


def test_every_command_has_a_route(api: dict[str, Any]) -> None:
    """I7: whatever can be typed can be asked for over HTTP, but for what is about the terminal itself."""
    assert set(ROUTES) | set(AT_HOME) == set(COMMANDS) and not set(ROUTES) & set(AT_HOME)
    for route in ROUTES.values():
        assert operation(api, route)["summary"]


def test_every_route_that_acts_has_a_command(api: dict[str, Any]) -> None:
    """I7: and the other way round."""
    acting = {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, methods in api["paths"].items()
        for method in methods
        if method != "get"
    }
    assert acting - set(ROUTES.values()) == {"DELETE /memory", "POST /retry"}  # memory --clear, retry --all-failed


def test_every_command_is_a_line_of_the_shell() -> None:
    """I7, T11: what the shell leaves out is about the process that it is itself."""
    assert set(OFFERED) == set(COMMANDS) - set(NOT_HERE)
    assert not set(ROUTES) & set(NOT_HERE)


@pytest.mark.parametrize("command", sorted(OPTIONS))
def test_every_option_that_matters_to_a_run_is_a_field(api: dict[str, Any], command: str) -> None:
    """I7: no wish can be made in one place only."""
    body = operation(api, ROUTES[command])["requestBody"]["content"]["application/json"]["schema"]
    names = {part["$ref"].rpartition("/")[2] for part in body.get("anyOf", [body]) if "$ref" in part}
    fields = {field for name in names for field in api["components"]["schemas"][name].get("properties", {})}
    assert set(OPTIONS[command].values()) <= fields
    typed = {
        name
        for argument in parser(COMMANDS[command])[command].assemble_argument_collection()
        for name in argument.names
        if name.startswith("-")
    }
    assert typed - COMMON - OF_PROCESSES - {n for n in typed if n.startswith("--no-")} <= set(OPTIONS[command])


# -- Commands: the same struct, the same answer -------------------------------------------------------------------

CASES: list[Command] = [
    cmd.Pause(), cmd.Resume(), cmd.Cancel(reason="enough"), cmd.Skip(step="a"), cmd.Skip(step="zz"),
    cmd.Confirm(step="a"), cmd.Confirm(), cmd.Confirm(digest="another"), cmd.Confirm(step="a", args={"n": 2}),
    cmd.Confirm(step="zz"), cmd.Refuse(), cmd.Refuse(step="a"), cmd.Resolve(step="a", outcome="succeeded", value=[1]),
    cmd.Resolve(step="a", outcome="failed"), cmd.Resolve(step="a", outcome="rerun"),
    cmd.Repair(step="a", args={"n": 3}),
    cmd.Repair(step="a", tool="nothing"), cmd.Retry(), cmd.Retry(steps=("a",)), cmd.Retry(stage="none"),
    cmd.Add(steps=({"id": "b", "tool": "take", "args": {"n": 1}},)), cmd.Add(steps=({"id": "b", "tool": "nothing"},)),
]  # fmt: skip
ACTS = ("acted", "cancelled", "resumed", "retry_begin", "plan_rejected", "step_skipped", "step_started")


@rerail.tool
async def take(n: int = 1) -> int:
    """Give a number back."""
    return n


def said(command: Command) -> dict[str, Any]:
    """A command as a body says it."""
    plain = {
        name: msgspec.json.decode(msgspec.json.encode(value))
        for name, one in options_of(type(command)).items()
        for value in [getattr(command, name)]
        if one.required or value not in (one.default, {}, ())
    }
    return {**plain, **({"refuse": True} if isinstance(command, cmd.Refuse) else {})}


async def in_python(engine: Engine, command: Command) -> str:
    try:
        await engine.do("r", command)
    except RerailError as error:
        return error.code
    return ""


async def over_http(engine: Engine, command: Command) -> str:
    name = "confirm" if isinstance(command, cmd.Refuse) else command.action
    transport = httpx.ASGITransport(app=make_api(ServerState(engine), Files()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.post(f"{PREFIX}/runs/r/{name}", json=said(command))
    return "" if answer.status_code == 202 else str(answer.json()["code"])


async def over_mcp(engine: Engine, command: Command) -> str:
    kind = cmd.Confirm if isinstance(command, cmd.Refuse) else type(command)
    [offer] = [mcp._OFFERS[name] for name, given in mcp._GIVEN.items() if given is kind]

    async def tell(done: float, of: float | None, words: str) -> None:
        pass

    async def ask(words: str) -> bool:
        return True

    args = {"run": "r", **said(command)}
    assert not Schema(offer.shape).faults(args)
    try:
        await offer.answer(mcp._Request(engine, args, tell, ask))
    except RerailError as error:
        return error.code
    return ""


async def lived(way: Any, command: Command) -> tuple[str, str, list[tuple[str, str]]]:
    """What a command does to a run that waits at a gate: the refusal, the run's status, what was done."""
    async with Engine("memory://", [take]) as engine:
        plan = {"steps": [{"id": "a", "tool": "take", "args": {"n": 1}, "confirm": True}]}
        await engine.wait(await engine.start(plan, run_id="r"))
        refused = await way(engine, command)
        status = (await engine.wait("r")).status
        done = [(e.type, getattr(e.event, "action", "")) for e in await engine.events("r") if e.type in ACTS]
        return refused, str(status), done


def test_i7_every_command_is_tried() -> None:
    """I7: a new one is added to the cases, and so to every interface."""
    assert {type(command) for command in CASES} == set(UNION) - set(INTERNAL)


@pytest.mark.parametrize("command", CASES, ids=str)
async def test_i7_a_command_does_the_same_everywhere(command: Command) -> None:
    """I7, X7: in Python, over HTTP and over MCP: the same refusal, or the same done."""
    direct = await lived(in_python, command)
    assert await lived(over_http, command) == direct
    assert await lived(over_mcp, command) == direct
