"""Rerail as an MCP server, on stdin and stdout or over HTTP: agents submit plans, watch them, retry them (extra `mcp`).

Rules of this file:
- A tool here is a row of `tools.json` (its text for a model, the schema of its arguments) and a few lines that call
  the façade. Results are the dicts that `--json` prints.
- A refusal is an answer with the code and the hint of the command line; never a traceback.
- A plan is data: it is never taken for the name of a file, it starts no programs, and it may only use the tools that
  the server was started with.
- Gates, doubts and skips are for people: their tools are offered only where the server was told to (`allow`). In a run
  that was started over MCP a client's word alone does not count: the person behind it is asked (contract I13).
- A client may stop waiting: a request that is cancelled or takes too long ends the wait, not the run.
- On stdio the descriptors belong to the protocol alone. They are moved away before any tool is loaded: prints of tools
  and their children go to stderr, and their stdin is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rerail.api import Engine
from rerail.engine.refusals import refusals
from rerail.engine.runs.starter import plan_faults
from rerail.errors import PlanError, Refused, RerailError
from rerail.i18n import as_text, one_by_one, tell
from rerail.kernel.actor import MCP, Actor, Proof
from rerail.kernel.commands import (
    COMMANDS,
    FORESEEN,
    Add,
    Cancel,
    Command,
    Confirm,
    Pause,
    Retry,
    given,
    options_of,
    refusing,
)
from rerail.kernel.retry import Preview
from rerail.plan.model import Plan
from rerail.plan.warnings import effect_warnings, hole_warnings
from rerail.plan_files import parse_data
from rerail.server.http_server import serve_app, url_of
from rerail.values.json_values import digest
from rerail.values.schema import Schema
from rerail.version import __version__
from rerail.views.results import RunResult

BY: Final = "mcp"  # the actor in the history
WAIT: Final = 50.0  # seconds: most hosts give a call about a minute
SHOWN: Final = 20_000  # characters of an artifact in one answer, unless more are asked for
CATCH_UP: Final = 1.0  # seconds that the reports get to catch up with the answer

INSTRUCTIONS: Final = Path(__file__).with_name("instructions.md").read_text(encoding="utf-8").rstrip()
TOOLS: Final[dict[str, Any]] = msgspec.json.decode(Path(__file__).with_name("tools.json").read_bytes())
SHARED: Final = TOOLS.pop("#")  # arguments of several tools

KINDS: Final = {
    "look": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "act": ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False),
    "always": ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True),
    "end": ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
}

Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Request:
    """One call: its arguments, and a progress channel to its client."""

    engine: Engine
    args: Args
    tell: Callable[[float, float | None, str], Awaitable[None]]
    ask: Callable[[str], Awaitable[bool]]  # whether the person behind the client agrees
    answered: bool = False  # the client sent the answer of its person

    def given(self, name: str, default: Any = None) -> Any:
        value = self.args.get(name)
        return default if value is None else value


Answer = Callable[[_Request], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool of the server: its texts for a model, and its function."""

    description: str
    shape: dict[str, Any]
    annotations: ToolAnnotations
    answer: Answer


_OFFERS: dict[str, _Offer] = {}


def _put(name: str, answer: Answer, needed: Sequence[str], takes: Mapping[str, Any]) -> None:
    """Register a tool."""
    given = {arg: SHARED[shape[1:]] if isinstance(shape, str) else shape for arg, shape in takes.items()}
    shape = {"type": "object", "properties": given, "required": list(needed), "additionalProperties": False}
    _OFFERS[name] = _Offer(TOOLS[name]["says"], shape, KINDS[TOOLS[name]["kind"]], answer)


def _offer(answer: Answer) -> Answer:
    """Register a tool that reads or starts runs, under the function's name."""
    row = TOOLS[answer.__name__]
    _put(answer.__name__, answer, row.get("needs", ()), row.get("takes", {}))
    return answer


# --- Plans ---------------------------------------------------------------------------------------------------------


def _plan(request: _Request) -> Plan:
    given = request.args["plan"]
    data = parse_data(given, "the plan") if isinstance(given, str) else given
    if not isinstance(data, Mapping | list):  # a text would be taken for a file's name, and clients may not open files
        raise PlanError(tell("refuse.mcp.no_plan"), code="PLAN_UNREADABLE")
    return Plan.load(data)


@_offer
async def list_tools(request: _Request) -> dict[str, Any]:
    """List the tools of plans."""
    specs = request.engine.tools.values()
    return {
        "tools": [
            {"name": spec.name, "description": spec.description, "effect": str(spec.effect), "declared": spec.declared,
             "timeout": spec.timeout, "alternatives": list(spec.alternatives), "provider": spec.provider or None,
             "schema": spec.schema.source}
            for spec in specs
        ]
    }  # fmt: skip


@_offer
async def check_plan(request: _Request) -> dict[str, Any]:
    """Check a plan without running anything."""
    plan = _plan(request)
    tools = request.engine.tools
    faults = plan_faults(plan, tools, request.engine.settings.policy())
    warnings = [] if faults else [*hole_warnings(plan, tools), *effect_warnings(plan, tools)]
    return {
        "ok": not faults, "steps": len(plan.steps), "tools_checked": True,
        "faults": [fault.to_dict() for fault in faults], "warnings": [fault.to_dict() for fault in warnings],
    }  # fmt: skip


@_offer
async def run_plan(request: _Request) -> dict[str, Any]:
    """Run a plan and wait for it."""
    return await _attended(request, await request.engine.start(_plan(request), by=BY))


@_offer
async def start_plan(request: _Request) -> dict[str, Any]:
    """Start a plan and return at once."""
    return (await request.engine.show(await request.engine.start(_plan(request), by=BY))).to_dict()


# --- Runs ----------------------------------------------------------------------------------------------------------


@_offer
async def list_runs(request: _Request) -> dict[str, Any]:
    """List the runs, newest first."""
    rows = await request.engine.list(status=request.given("status", ()), limit=request.given("limit", 20))
    return {"runs": [row.to_dict() for row in rows]}


@_offer
async def show_run(request: _Request) -> dict[str, Any]:
    """Show a run as it is now."""
    return (await request.engine.show(request.args["run"])).to_dict()


@_offer
async def wait_run(request: _Request) -> dict[str, Any]:
    """Wait until a run is at rest or waits for a person, and show it."""
    run = await request.engine.find(request.args["run"])
    return await _attended(request, run, request.given("seconds", WAIT))


@_offer
async def why_run(request: _Request) -> dict[str, Any]:
    """Tell the story of a run, or of one of its steps."""
    run, step = await request.engine.find(request.args["run"]), request.given("step")
    return {"run_id": run, "step": step, "story": (await request.engine.why(run, step)).splitlines()}


@_offer
async def replay_run(request: _Request) -> dict[str, Any]:
    """Decide a recorded run again under other settings."""
    return (await request.engine.replay(request.args["run"], request.args["settings"])).to_dict()


@_offer
async def list_artifacts(request: _Request) -> dict[str, Any]:
    """List the outputs that a run keeps."""
    run = await request.engine.find(request.args["run"])
    rows = await request.engine.artifacts(run)
    return {"run_id": run, "artifacts": rows[: request.given("limit", 100)], "total": len(rows)}


@_offer
async def read_artifact(request: _Request) -> dict[str, Any]:
    """Read one output that a run keeps, or a part of its JSON."""
    run, name = await request.engine.find(request.args["run"]), request.args["name"]
    value = await request.engine.artifact(run, name)
    text = msgspec.json.encode(value, enc_hook=as_text).decode()
    begin, limit = int(request.given("offset", 0)), int(request.given("limit", SHOWN))
    end = min(begin + limit, len(text))
    found = {"run_id": run, "name": name, "length": len(text)}
    if begin == 0 and end == len(text):
        return {**found, "value": value, "text": None, "next_offset": None}
    return {**found, "value": None, "text": text[begin:end], "next_offset": end if end < len(text) else None}


# --- Commands ------------------------------------------------------------------------------------------------------

# The tool of each command.
_GIVEN: Final[dict[str, type[Command]]] = {
    name: command
    for name, row in TOOLS.items()
    for command in COMMANDS
    if command.__struct_config__.tag == row.get("command")
}


def _option(one: msgspec.structs.FieldInfo) -> dict[str, Any]:
    """Return the schema of a command's option for a model."""
    kind, meta = get_args(one.type)
    said = [part for part in get_args(kind) if part is not type(None)] if type(None) in get_args(kind) else [kind]
    shape = msgspec.json.schema(Annotated[said[0], meta])
    return shape if one.required or one.default is not False else {**shape, "default": False}


def _give(command: type[Command]) -> Answer:
    """Register a tool that gives a command."""

    async def give(request: _Request) -> dict[str, Any]:
        dry = bool(request.given("dry_run"))
        if command is Retry and request.given("clean") and not (dry or request.given("confirmed")):
            raise Refused(tell("refuse.mcp.starts_over"), "CONFIRM_NEEDED", hint=tell("hint.mcp.starts_over"))
        made: Command = msgspec.convert({**given(command, request.args), "by": BY}, command)
        with refusals():
            made = refusing(made) if isinstance(made, Confirm) and request.given("refuse") else made
        run, preview = await _given(request, made, dry=dry)
        if dry:
            return {"run_id": run, **(preview.to_dict() if preview is not None else {})}
        if command in (Pause, Add):
            return (await request.engine.show(run)).to_dict()
        return await _attended(request, run, 5.0 if command is Cancel else None)

    return give


async def _given(request: _Request, command: Command, *, dry: bool) -> tuple[str, Preview | None]:
    """Give a command; where a person has to answer, ask the one behind the client, if that is trusted."""
    engine, run = request.engine, request.args["run"]
    refused: Refused | None = None
    if not request.answered:  # else it was refused before, and its person has been asked
        try:
            return await engine.do(run, command, dry_run=dry, own_tools_only=True)
        except Refused as refusal:
            if refusal.code != "PERSON_NEEDED" or not engine.settings.mcp.trust_elicitation:
                raise
            refused = refusal
    step, rows = getattr(command, "step", None), (await engine.show(run)).waiting_on
    shown = [{name: row[name] for name in _ASKED if row.get(name)} for row in rows if step in (None, row["step"])]
    words = msgspec.json.format(msgspec.json.encode(shown, enc_hook=as_text), indent=2).decode()
    agreed = await request.ask(tell("mcp.ask", action=command.action, run=run, step=step or "", words=words))
    if agreed:
        command = msgspec.structs.replace(command, actor=Actor(MCP, Proof.ELICITED))
    elif refused is not None:
        raise refused
    return await engine.do(run, command, own_tools_only=True)


_ASKED: Final = ("for", "step", "question", "tool", "args", "files", "before")  # shown to the person


def _put_command(name: str, command: type[Command]) -> None:
    options = {of: one for of, one in options_of(command).items() if of != "take_over"}  # that is a person's
    takes = {"run": "#run", **{of: _option(one) for of, one in options.items()}, **TOOLS[name].get("takes", {})}
    if command in FORESEEN:
        takes["dry_run"] = "#dry"
    if command not in (Pause, Cancel, Add):
        takes["wait_seconds"] = "#wait"
    _put(name, _give(command), ("run", *(of for of, one in options.items() if one.required)), takes)


for _name, _command in _GIVEN.items():
    _put_command(_name, _command)


# --- Waiting -------------------------------------------------------------------------------------------------------


async def _attended(request: _Request, run: str, seconds: float | None = None) -> dict[str, Any]:
    """Wait until a run is at rest, waits for a person, or the time is over; report progress meanwhile."""
    limit = request.given("wait_seconds", WAIT) if seconds is None else seconds
    reports = _Reports()
    telling = asyncio.ensure_future(_tell(request, run, reports))
    try:
        found = await _waited(request.engine, run, limit)
        with contextlib.suppress(TimeoutError):  # the client may have stopped listening
            async with asyncio.timeout(CATCH_UP):
                while reports.seq < found.seq and not telling.done():
                    await reports.more.wait()
                    reports.more.clear()
        return found.to_dict()
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError, RerailError):  # `wait` reports a failure of the store
            await telling


async def _waited(engine: Engine, run: str, seconds: float) -> RunResult:
    try:
        async with asyncio.timeout(seconds):
            return await engine.wait(run)
    except TimeoutError:
        return await engine.show(run)


@dataclass(slots=True)
class _Reports:
    """Progress of the reports: an answer waits until its client got all earlier reports."""

    seq: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)


async def _tell(request: _Request, run: str, reports: _Reports) -> None:
    """Report each step's end as progress: the number done, the total, and the last result."""
    ends = {"step_succeeded": "succeeded", "step_failed": "failed", "step_skipped": "skipped"}
    now = await request.engine.show(run)
    ended = {row.id for row in now.steps.values() if row.status in ("succeeded", "degraded", "failed", "skipped")}
    told, total = 0.0, float(len(now.steps))  # once: a long run must not be folded anew for each of its steps
    async for record in request.engine.watch(run, max(0, now.seq - 1)):
        what = ends.get(record.type)
        if what is not None:
            step = str(getattr(record.event, "step", ""))
            ended.add(step)
            # The protocol wants each report to be larger than the one before.
            told = max(told + 0.001, float(len(ended)))
            await request.tell(told, max(total, told), f"{step}: {what}")
        reports.seq = record.seq
        reports.more.set()


# --- The server ----------------------------------------------------------------------------------------------------


TO_PEOPLE: Final = {"confirm_step": "confirm", "resolve_step": "resolve", "skip_step": "skip"}


def make_server(engine: Engine, allow: Collection[str] = ()) -> Server[dict[str, Any]]:
    """Make an MCP server for an open engine, with tools of its own; ``allow``: which questions to people it answers."""
    offers = {name: offer for name, offer in _OFFERS.items() if TO_PEOPLE.get(name, "") in ("", *allow)}
    schemas = {name: Schema(offer.shape) for name, offer in offers.items()}

    async def list_offers(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=name, description=offer.description, input_schema=offer.shape, annotations=offer.annotations)
                for name, offer in offers.items()
            ]
        )

    async def call(
        ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        args = params.arguments or {}
        try:
            _refuse_odd(params.name, schemas, args)
            ask, answered = partial(_asked, ctx, params), bool(params.input_responses)
            request = _Request(engine, args, ctx.session.report_progress, ask, answered)
            return _result(await offers[params.name].answer(request))
        except _AsksPerson as asks:
            return asks.result()
        except RerailError as error:
            return _result(error.to_dict(), str(error))

    return Server(
        "rerail",
        version=__version__,
        title="Rerail",
        instructions=INSTRUCTIONS,
        on_list_tools=list_offers,
        on_call_tool=call,
    )


FORM: Final[dict[str, Any]] = {"type": "object", "properties": {"agree": {"type": "boolean"}}, "required": ["agree"]}


class _AsksPerson(Exception):
    """The client is to ask its person, and to send the call again with the answer."""

    def __init__(self, key: str, words: str) -> None:
        super().__init__(words)
        self.key, self.words = key, words

    def result(self) -> InputRequiredResult:
        question = ElicitRequest(params=ElicitRequestFormParams(message=self.words, requested_schema=FORM))
        return InputRequiredResult(input_requests={self.key: question})


async def _asked(ctx: ServerRequestContext[Any], params: CallToolRequestParams, words: str) -> bool:
    """Return True if the person behind the client agrees to this very call; False also if the client cannot ask."""
    key = f"person-{digest(msgspec.json.encode([params.name, params.arguments, str(words)]))}"
    answer = (params.input_responses or {}).get(key)
    if answer is None:
        try:
            answer = await ctx.session.elicit_form(words, FORM)
        except NoBackChannelError:  # since 2026-07-28 a question is an answer to the call
            raise _AsksPerson(key, words) from None
        except MCPError:  # the client cannot ask
            return False
    return (
        isinstance(answer, ElicitResult) and answer.action == "accept" and (answer.content or {}).get("agree") is True
    )


def _refuse_odd(name: str, schemas: Mapping[str, Schema], args: Args) -> None:
    if name not in schemas:
        raise Refused(
            tell("refuse.mcp.tool_unknown", name=name),
            "USAGE",
            hint=tell("hint.mcp.tool_unknown", schemas=", ".join(schemas)),
        )
    if faults := schemas[name].faults(dict(args)):
        raise Refused(one_by_one(fault.said for fault in faults), "ARGS_INVALID", hint=tell("hint.mcp.see_schema"))


def _result(value: dict[str, Any], error: str = "") -> CallToolResult:
    """Return an answer as data and as text, as the protocol wants it: some clients read only text."""
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=as_text)
    text = error or msgspec.json.encode(plain).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=plain, is_error=bool(error))


PATH: Final = "/mcp"
MAX_MESSAGE: Final = 64 * 1024 * 1024  # bytes

# --- stdio ---------------------------------------------------------------------------------------------------------


@contextmanager
def claimed() -> Iterator[tuple[int, int]]:
    """Take stdin and stdout for the protocol; meanwhile 0 reads nothing and 1 leads to stderr."""
    sys.stdout.flush()
    wire = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield wire
    finally:
        sys.stdout.flush()
        for ours, theirs in zip(wire, (0, 1), strict=True):
            with contextlib.suppress(OSError):  # closed with its transport
                os.dup2(ours, theirs)
                os.close(ours)


async def serve_stdio(server: Server[Any], wire: tuple[int, int]) -> None:
    """Serve until stdin ends."""
    # Without the library's own reader threads: a thread that waits for a line cannot be stopped.
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_MESSAGE)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(wire[0], "rb", 0))
    writing, flow = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(wire[1], "wb", 0)
    )
    out: Any = _Lines(asyncio.StreamWriter(writing, flow, None, loop))
    try:
        async with stdio_server(_until_too_long(lines), out) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        reading.close()
        writing.close()


async def _until_too_long(lines: asyncio.StreamReader) -> Any:
    """Yield lines up to the end of input or an oversized line."""
    with contextlib.suppress(ValueError):
        async for line in lines:
            yield line


class _Lines:
    """The line writer that the library expects."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, line: str) -> None:
        """Write a line, as soon as the reader takes it."""
        self._writer.write(line.encode())

    async def flush(self) -> None:
        """Wait until the reader keeps up; one that is gone gets no more."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()


# --- HTTP ----------------------------------------------------------------------------------------------------------


async def serve_http(server: Server[Any], listening: socket.socket, token: str, ready: Callable[[str], None]) -> None:
    """Serve until cancelled; requests under way get a moment to end."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, host=listening.getsockname()[0])
    guarded = _Guarded(app, token) if token else app
    await serve_app(guarded, listening, lambda: ready(url_of(listening, PATH)))


class _Guarded:
    """An app behind its token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not hmac.compare_digest(self._said(scope), self._wanted):
            refused = PlainTextResponse("the token is missing or wrong", 401, {"www-authenticate": "Bearer"})
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    @staticmethod
    def _said(scope: Scope) -> bytes:
        found: bytes = dict(scope["headers"]).get(b"authorization", b"")
        return found
