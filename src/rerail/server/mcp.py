"""Rerail as an MCP server: other agents submit plans, watch them, mend them (needs the `mcp` extra).

Rules of this file:
- A tool here is a row of a table: what a model reads, the schema that its arguments must fit, and a few lines that call
  the façade. Results are the dicts that `--json` prints.
- What is refused is an answer, with the code and the hint that a person would get; never a traceback.
- A plan is data: it is never taken for the name of a file, it starts no programs, and it may only use the tools that
  the server was started with.
- Whoever waits may leave: a request that is cancelled or takes too long ends the waiting, not the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_args

import msgspec
from mcp.server import Server, ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from rerail.core.assumed import effect_warnings
from rerail.core.command import (
    FORESEEN,
    Add,
    Cancel,
    Command,
    Confirm,
    Pause,
    Repair,
    Resolve,
    Resume,
    Retry,
    Skip,
    options_of,
    refusing,
)
from rerail.core.holes import hole_warnings
from rerail.core.schema import Schema
from rerail.core.views import RunResult
from rerail.engine.refusals import refusals
from rerail.errors import PlanError, Refused, RerailError
from rerail.i18n import as_text, one_by_one, tell
from rerail.plans import Plan, parse_data
from rerail.version import __version__
from rerail.wiring import Engine

BY: Final = "mcp"  # who did it, in the history
WAIT: Final = 50.0  # seconds: most hosts give a call about a minute
SHOWN: Final = 20_000  # characters of an artifact that one answer holds, unless asked for more
MOST_SHOWN: Final = 1_000_000
CATCH_UP: Final = 1.0  # seconds that the reports get to catch up with the answer

INSTRUCTIONS: Final = """\
Rerail runs plans made of tool calls and keeps them alive: each run is durable, retries and repairs what fails, and can
be picked up again. A plan is {"objective": text, "steps": [{"id", "tool", "args", "needs"}]}; an argument may refer to
an earlier output as "${step.path}", which also makes it wait for that step. Steps run as soon as their needs are done.

Usual order: list_tools (what steps may call), check_plan (every fault at once), run_plan. If a run comes back with
status "running", use wait_run. If it failed, read failed_steps and why_run, then retry_run (dry_run first shows what
would be called again): only what failed and what depends on it runs again. If a step itself is wrong, repair_step
changes it and does it again. If it is "waiting", somebody must act: confirm_step, resolve_step or resume_run, as
waiting_on says. Outputs are kept: list_artifacts, read_artifact. Where a hint says `rerail retry RUN`, use retry_run.\
"""


# --- What a model reads --------------------------------------------------------------------------------------------

_RUN: Final = {"type": "string", "minLength": 1, "description": "The run's id, or an unambiguous beginning of it."}
_STEP: Final = {"type": "string", "description": "The id of the step."}
_REASON: Final = {"type": "string", "description": "Why, for the history."}
_DRY: Final = {"type": "boolean", "default": False, "description": "Only tell what it would lead to."}
_WAIT: Final = {
    "type": "number",
    "minimum": 0,
    "default": WAIT,
    "description": "How many seconds to wait for the run to come to rest; it goes on by itself after that.",
}
_PLAN: Final = {
    "type": ["object", "string"],
    "description": (
        "The plan: an object with objective and steps, or the same as YAML or JSON text. A step has id, tool and args, "
        "and may have needs, critical, timeout, retries, alternatives, fallback, confirm, check and verify."
    ),
}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_LOOK: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ACT: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False)
_ALWAYS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True)
_END: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)

Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Request:
    """One call: what it was given, and a line back to whoever waits for it."""

    engine: Engine
    args: Args
    tell: Callable[[float, float | None, str], Awaitable[None]]

    def given(self, name: str, default: Any = None) -> Any:
        value = self.args.get(name)
        return default if value is None else value


Answer = Callable[[_Request], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool of the server: what a model reads, and what happens."""

    description: str
    shape: dict[str, Any]
    annotations: ToolAnnotations
    answer: Answer


_OFFERS: dict[str, _Offer] = {}


def _offer(
    annotations: ToolAnnotations, required: tuple[str, ...] = (), **properties: Any
) -> Callable[[Answer], Answer]:
    """Put a tool on the table; its name and description are the function's."""

    def put(answer: Answer) -> Answer:
        words = " ".join((answer.__doc__ or "").split())
        _OFFERS[answer.__name__] = _Offer(words, _object(required, **properties), annotations, answer)
        return answer

    return put


# --- Plans ---------------------------------------------------------------------------------------------------------


def _plan(request: _Request) -> Plan:
    given = request.args["plan"]
    data = parse_data(given, "the plan") if isinstance(given, str) else given
    if not isinstance(data, Mapping | list):  # a text would be taken for a file's name, and files are not for everyone
        raise PlanError(tell("refuse.mcp.no_plan"), code="PLAN_UNREADABLE")
    return Plan.load(data)


@_offer(_LOOK)
async def list_tools(request: _Request) -> dict[str, Any]:
    """List the tools that steps of a plan may call: name, description, JSON schema of the arguments, and effect (what
    calling it twice does: read = nothing, repeatable = the same again, once = must not happen twice)."""
    specs = request.engine.tools.values()
    return {
        "tools": [
            {"name": spec.name, "description": spec.description, "effect": str(spec.effect), "declared": spec.declared,
             "timeout": spec.timeout, "alternatives": list(spec.alternatives), "provider": spec.provider or None,
             "schema": spec.schema.source}
            for spec in specs
        ]
    }  # fmt: skip


@_offer(_LOOK, ("plan",), plan=_PLAN)
async def check_plan(request: _Request) -> dict[str, Any]:
    """Check a plan without running anything: every fault at once, each with the step it is in and what to write
    instead."""
    plan = _plan(request)
    tools = request.engine.tools
    faults = plan.check(tools)
    warnings = [] if faults else [*hole_warnings(plan, tools), *effect_warnings(plan, tools)]
    return {
        "ok": not faults, "steps": len(plan.steps), "tools_checked": True,
        "faults": [fault.to_dict() for fault in faults], "warnings": [fault.to_dict() for fault in warnings],
    }  # fmt: skip


@_offer(_ACT, ("plan",), plan=_PLAN, wait_seconds=_WAIT)
async def run_plan(request: _Request) -> dict[str, Any]:
    """Run a plan and wait for it: returns the run's id, status, each step's output or error, and a verdict (success,
    complete, degraded). With status "running" it is not done yet: use wait_run."""
    return await _attended(request, await request.engine.start(_plan(request), by=BY))


@_offer(_ACT, ("plan",), plan=_PLAN)
async def start_plan(request: _Request) -> dict[str, Any]:
    """Start a plan and return at once with the run's id; wait_run and show_run tell what became of it."""
    return (await request.engine.show(await request.engine.start(_plan(request), by=BY))).to_dict()


# --- Runs ----------------------------------------------------------------------------------------------------------


@_offer(
    _LOOK,
    status={
        "type": "array",
        "items": {"enum": ["pending", "running", "waiting", "completed", "failed", "cancelled"]},
        "description": "Only runs of these; all, if left out.",
    },
    limit={"type": "integer", "minimum": 1, "maximum": 1000, "default": 20},
)
async def list_runs(request: _Request) -> dict[str, Any]:
    """List the runs, newest first: id, status, objective, whether one was interrupted (then resume_run), and whether
    one that completed is degraded (show_run tells what is missing)."""
    rows = await request.engine.list(status=request.given("status", ()), limit=request.given("limit", 20))
    return {"runs": [row.to_dict() for row in rows]}


@_offer(_LOOK, ("run",), run=_RUN)
async def show_run(request: _Request) -> dict[str, Any]:
    """Show a run as it is now: status, verdict, each step with output or error, and what it waits for."""
    return (await request.engine.show(request.args["run"])).to_dict()


@_offer(_LOOK, ("run",), run=_RUN, seconds=_WAIT)
async def wait_run(request: _Request) -> dict[str, Any]:
    """Wait until a run is at rest or waits for somebody, and show it; with status "running" it takes longer still."""
    run = await request.engine.find(request.args["run"])
    return await _attended(request, run, request.given("seconds", WAIT))


@_offer(_LOOK, ("run",), run=_RUN, step=_STEP)
async def why_run(request: _Request) -> dict[str, Any]:
    """Tell the story of a run, or of one of its steps: what was tried, what went wrong, and why it ended so."""
    run, step = await request.engine.find(request.args["run"]), request.given("step")
    return {"run_id": run, "step": step, "story": (await request.engine.why(run, step)).splitlines()}


@_offer(
    _LOOK,
    ("run", "settings"),
    run=_RUN,
    settings={
        "type": "object",
        "description": 'Other values for settings that a run records, such as {"reflection.max_step_retries": 1}.',
    },
)
async def replay_run(request: _Request) -> dict[str, Any]:
    """Decide a recorded run again under other settings, without calling anything: what would have been different, run
    and steps, as recorded and as replayed. Where the history holds no answer, the status is unknown."""
    return (await request.engine.replay(request.args["run"], request.args["settings"])).to_dict()


@_offer(_LOOK, ("run",), run=_RUN, limit={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100})
async def list_artifacts(request: _Request) -> dict[str, Any]:
    """List the outputs that a run keeps, as they were last made: name, the step and attempt that made each, its size in
    bytes and its digest; total says how many there are."""
    run = await request.engine.find(request.args["run"])
    rows = await request.engine.artifacts(run)
    return {"run_id": run, "artifacts": rows[: request.given("limit", 100)], "total": len(rows)}


@_offer(
    _LOOK,
    ("run", "name"),
    run=_RUN,
    name={"type": "string", "description": "The artifact's name; an output has the name of its step."},
    offset={
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": "Where to begin in a large one: next_offset.",
    },
    limit={
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_SHOWN,
        "default": SHOWN,
        "description": "The most characters of JSON to give at once.",
    },
)
async def read_artifact(request: _Request) -> dict[str, Any]:
    """Read one output that a run keeps: its value; or, where it is larger than limit, a part of its JSON as text, with
    next_offset to go on from (null at the end)."""
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

_STEPS: Final = {"type": "array", "items": {"type": "object"}, "minItems": 1, "description": "Steps as in a plan."}
_REFUSE: Final = {"type": "boolean", "default": False, "description": "Say no: the step fails."}
_CONFIRMED: Final = {
    "type": "boolean", "default": False, "description": "Needed with clean, once its dry run was seen.",
}  # fmt: skip
# The tool of a command, what a model reads of it, and what it takes beside the options of the command.
_GIVEN: Final[dict[str, tuple[type[Command], ToolAnnotations, str, dict[str, Any]]]] = {
    "retry_run": (
        Retry, _ACT,
        ("Do again exactly what failed and what depends on it; what succeeded is kept and not called again. A dry_run "
        "shows before: roots, rerun (each with why), kept, and once (effects that would happen twice)."),
        {"confirmed": _CONFIRMED},
    ),
    "resume_run": (
        Resume, _ACT, "Continue an interrupted or paused run; nothing that is done is called again.", {},
    ),
    "pause_run": (Pause, _ALWAYS, "Start nothing more in a run until resume_run; calls under way end.", {}),
    "cancel_run": (
        Cancel, _END,
        "End a run: calls under way are cancelled, nothing more starts. retry_run can take it up again.", {},
    ),
    "skip_step": (
        Skip, _ACT,
        "Do without a step: those that need it go on, with nothing in its place, and the verdict says so.", {},
    ),
    "confirm_step": (
        Confirm, _ACT,
        ("Agree to the call of a step that waits for somebody, or refuse it. The plan asked for a person's word: show "
        "yours the call in waiting_on, and pass its digest. A yes is to exactly that call."),
        {"refuse": _REFUSE},
    ),
    "resolve_step": (
        Resolve, _ACT,
        ("Say what became of a step in doubt: one that must not happen twice, and whose answer was lost. Look at the "
        "world before you answer."), {},
    ),
    "add_steps": (
        Add, _ACT,
        "Add steps to a run that is not at rest; a change with faults is refused and the plan stays as it was.",
        {"steps": _STEPS},
    ),
    "repair_step": (
        Repair, _ACT,
        ("Change a step that did not succeed (its tool, arguments or needs), and do it and what depends on it again. A "
        "change with faults is refused and the plan stays as it was."), {},
    ),
}  # fmt: skip


def _option(one: msgspec.structs.FieldInfo) -> dict[str, Any]:
    """An option of a command as a model reads it."""
    kind, meta = get_args(one.type)
    said = [part for part in get_args(kind) if part is not type(None)] if type(None) in get_args(kind) else [kind]
    shape = msgspec.json.schema(Annotated[said[0], meta])
    return shape if one.required or one.default is not False else {**shape, "default": False}


def _give(command: type[Command]) -> Answer:
    """Let a command be given by a tool."""

    async def give(request: _Request) -> dict[str, Any]:
        dry = bool(request.given("dry_run"))
        if command is Retry and request.given("clean") and not (dry or request.given("confirmed")):
            raise Refused(tell("refuse.mcp.starts_over"), "CONFIRM_NEEDED", hint=tell("hint.mcp.starts_over"))
        said = {name: value for name in options_of(command) if (value := request.args.get(name)) is not None}
        made: Command = msgspec.convert({**said, "by": BY}, command)
        with refusals():
            made = refusing(made) if isinstance(made, Confirm) and request.given("refuse") else made
        run, preview = await request.engine.do(request.args["run"], made, dry_run=dry)
        if dry:
            return {"run_id": run, **(preview.to_dict() if preview is not None else {})}
        if command in (Pause, Add):
            return (await request.engine.show(run)).to_dict()
        return await _attended(request, run, 5.0 if command is Cancel else None)

    return give


for _name, (_command, _kind, _words, _besides) in _GIVEN.items():
    _options = {_of: _one for _of, _one in options_of(_command).items() if _of != "take_over"}  # that is a person's
    _shapes = {"run": _RUN, **{_of: _option(_one) for _of, _one in _options.items()}, **_besides}
    if _command in FORESEEN:
        _shapes["dry_run"] = _DRY
    if _command not in (Pause, Cancel, Add):
        _shapes["wait_seconds"] = _WAIT
    _needed = ("run", *(_of for _of, _one in _options.items() if _one.required))
    _OFFERS[_name] = _Offer(_words, _object(_needed, **_shapes), _kind, _give(_command))


# --- Waiting -------------------------------------------------------------------------------------------------------


async def _attended(request: _Request, run: str, seconds: float | None = None) -> dict[str, Any]:
    """A run once it is at rest, waits for somebody, or the time is over; told about meanwhile."""
    limit = request.given("wait_seconds", WAIT) if seconds is None else seconds
    reports = _Reports()
    telling = asyncio.ensure_future(_tell(request, run, reports))
    try:
        found = await _waited(request.engine, run, limit)
        with contextlib.suppress(TimeoutError):  # nobody listens any more, perhaps
            async with asyncio.timeout(CATCH_UP):
                while reports.seq < found.seq and not telling.done():
                    await reports.more.wait()
                    reports.more.clear()
        return found.to_dict()
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError, RerailError):  # what is wrong with the store, `wait` tells
            await telling


async def _waited(engine: Engine, run: str, seconds: float) -> RunResult:
    try:
        async with asyncio.timeout(seconds):
            return await engine.wait(run)
    except TimeoutError:
        return await engine.show(run)


@dataclass(slots=True)
class _Reports:
    """How far a run has been told about: an answer is given once whoever waits has heard of all that is in it."""

    seq: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)


async def _tell(request: _Request, run: str, reports: _Reports) -> None:
    """Report each step's end as progress: how many are done, of how many, and what the last one came to."""
    ends = {"step_succeeded": "succeeded", "step_failed": "failed", "step_skipped": "skipped"}
    now = await request.engine.show(run)
    ended = {row.id for row in now.steps.values() if row.status in ("succeeded", "degraded", "failed", "skipped")}
    told, total = 0.0, float(len(now.steps))  # asked once: a long run must not be folded anew for each of its steps
    async for record in request.engine.watch(run, max(0, now.seq - 1)):
        what = ends.get(record.type)
        if what is not None:
            step = str(getattr(record.event, "step", ""))
            ended.add(step)
            # Each report says more than the one before: so wants the protocol.
            told = max(told + 0.001, float(len(ended)))
            await request.tell(told, max(total, told), f"{step}: {what}")
        reports.seq = record.seq
        reports.more.set()


# --- The server ----------------------------------------------------------------------------------------------------


def make_server(engine: Engine) -> Server[dict[str, Any]]:
    """An MCP server that hands out an open engine, and its own tools with it."""
    engine.lends_only = True
    schemas = {name: Schema(offer.shape) for name, offer in _OFFERS.items()}

    async def list_offers(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(name=name, description=offer.description, input_schema=offer.shape, annotations=offer.annotations)
                for name, offer in _OFFERS.items()
            ]
        )

    async def call(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        args = params.arguments or {}
        try:
            _refuse_odd(params.name, schemas, args)
            request = _Request(engine, args, ctx.session.report_progress)
            return _result(await _OFFERS[params.name].answer(request))
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
    """An answer twice, as the protocol wants it: as data, and as text for those who only read text."""
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=as_text)
    text = error or msgspec.json.encode(plain).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=plain, is_error=bool(error))
