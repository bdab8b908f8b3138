"""Routes that act: start, retry, and every other command on a run (contract X7, I4, I7).

Rules of this file:
- A route reads its body, calls the façade, and answers with the run's state after it. No rule lives here.
- A plan is data: never the name of a file, never a program; it may use the tools that the server was started with.
- Retrying every failed run: a refusal is a row of the answer, and stops no other run. The server drives a limited
  number at once; the client asks again for the rest.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Header, Request
from pydantic import AfterValidator
from starlette.responses import Response

from rerail.engine.refusals import refusals
from rerail.engine.runs.starter import plan_faults
from rerail.errors import PlanError, Refused, RerailError
from rerail.i18n import retold, tell
from rerail.kernel.actor import Proof
from rerail.kernel.commands import (
    COMMANDS,
    FORESEEN,
    INTERNAL,
    Add,
    Command,
    Confirm,
    Refuse,
    Resolve,
    Retry,
    given,
    refusing,
)
from rerail.kernel.events import Audited
from rerail.kernel.retry import Preview
from rerail.plan.model import Plan
from rerail.plan.step import Fault
from rerail.plan.warnings import effect_warnings, hole_warnings
from rerail.plan_files import parse_data, steps_in
from rerail.server.errors import allow_hint, problem_of
from rerail.server.json import Json, StrictRoute
from rerail.server.routes.read import shown
from rerail.server.schemas import Lang, ObjectiveBody, PlanBody, RetryAllBody, RunPath, StartBody, answers, body_of
from rerail.server.state import ServerState, caller_of, language, server_of
from rerail.views.graph import Graph
from rerail.views.results import RunRow

router = APIRouter(route_class=StrictRoute, tags=["acting"])


def _named(said: str | None) -> str | None:
    """Decode a name in a header, which is sent as bytes: in UTF-8, if possible."""
    try:
        return said.encode("latin-1").decode("utf-8") if said else None
    except UnicodeError:
        return said


By = Annotated[
    str | None,
    Header(alias="X-Rerail-By", max_length=200, description="Who does it, for the history."),
    AfterValidator(_named),
]


async def given_plan(data: Any) -> Plan:
    """Return a plan as sent: an object or a text. A thread parses a long text, which would block other requests."""
    return await asyncio.to_thread(_given_plan, data)


def _given_plan(data: Any) -> Plan:
    found = parse_data(data, tell("plan.the_text")) if isinstance(data, str) else data
    if not isinstance(found, Mapping | list):  # a text would be taken for a file's name, and clients may not open files
        raise PlanError(tell("refuse.mcp.no_plan"), code="PLAN_UNREADABLE")
    return Plan.load(found)


def foreseen(preview: Preview, lang: str) -> dict[str, Any]:
    """Return the preview of a retry or another command, with its reasons in a language."""
    plain = preview.to_dict()
    plain["rerun"] = [{**row, "why": retold(row["why"], lang)} for row in plain["rerun"]]
    plain["damaged"] = {path: retold(why, lang) for path, why in plain["damaged"].items()}
    return plain


async def _now(server: ServerState, run: str, status: int = 202, **more: Any) -> Response:
    found = await server.engine.find(run)
    return Json({**await shown(server.engine, found), **more}, status_code=status)


def _changing(request: Request, *, dry_run: bool = False, role: str = "act") -> ServerState:
    """Return the server, if it may be changed by this caller."""
    server = server_of(request)
    if not dry_run:
        server.may_change()
        require_role(request, role)
    return server


def require_role(request: Request, role: str) -> None:
    """Refuse a caller without a role."""
    caller = caller_of(request)
    if not caller.may(role):
        raise Refused(
            tell("refuse.server.role", role=role, name=caller.name), "ROLE_NEEDED", hint=tell("hint.server.role")
        )


def _by(request: Request, said: str | None) -> str | None:
    """Return the name of the caller: its token's, else as it says."""
    return caller_of(request).name or said


# -- Plans ----------------------------------------------------------------------------------------------------------


@router.post("/plans/check", responses=answers("check"))
async def check(request: Request, body: PlanBody, lang: Lang = None) -> Response:
    """Every fault of a plan at once, and warnings; nothing is run."""
    server, said = server_of(request), language(request)
    plan = await given_plan(body.plan)
    tools = server.engine.tools
    faults = plan_faults(plan, tools, server.engine.settings.policy())
    warnings = [] if faults else [*hole_warnings(plan, tools), *effect_warnings(plan, tools)]
    depth, width = (0, 0) if faults else Graph.of_plan(plan).measures()
    return Json({
        "ok": not faults, "steps": len(plan.steps), "depth": depth, "width": width, "tools_checked": True,
        "objective": plan.objective, "faults": [_told(fault, server, said) for fault in faults],
        "warnings": [_told(fault, server, said) for fault in warnings],
    })  # fmt: skip


def _told(fault: Fault, server: ServerState, lang: str) -> dict[str, Any]:
    hint = retold(allow_hint([fault], server.withheld), lang)
    return {**fault.to_dict(), "message": fault.said(lang), "hint": hint}


@router.post("/plans", responses=answers("plan"))
async def plan(request: Request, body: ObjectiveBody) -> Response:
    """A plan for an objective, made by the model and checked; nothing is run."""
    planned = await _changing(request).engine.plan(body.objective)
    if planned.plan is None:
        raise PlanError(tell("refuse.settings.planning_failed", problem=planned.problem), code="PLANNING_FAILED")
    return Json({"plan": Plan.load(planned.plan).to_dict(), "by": planned.by})


# -- Runs -----------------------------------------------------------------------------------------------------------


@router.post("/runs", status_code=201, responses=answers("start"))
async def start(request: Request, body: StartBody, by: By = None) -> Response:
    """Start a run of a plan, or of one that the model makes. The server drives it, or leaves it to others."""
    server = _changing(request)
    if (body.plan is None) == (body.objective is None):
        raise Refused(tell("refuse.server.plan_or_objective"), "USAGE")
    parent = await server.engine.find(body.parent) if body.parent is not None else None
    loaded = await given_plan(body.plan) if body.plan is not None else None
    second = await given_plan(body.fallback) if body.fallback is not None else None
    run = await server.engine.start(
        loaded, objective=body.objective, fallback=second, parent=parent, by=_by(request, by), run_id=body.run_id,
        queued=body.queue, on=body.on, actor=caller_of(request).actor("http"),
    )  # fmt: skip
    answer = await _now(server, run, 201)
    answer.headers["location"] = f"/api/v1/runs/{quote(run, safe='')}"
    return answer


# -- Commands -------------------------------------------------------------------------------------------------------


APPROVALS = (Confirm, Resolve)  # a person's word; `refuse` is one of `confirm`


def _route(command: type[Command]) -> None:
    """Add the route of a command, with a body of its own."""
    body_type = body_of(command)
    name, foreseen_too = str(command.__struct_config__.tag), command in FORESEEN

    async def give(request: Request, run: str, body: Any = None, by: str | None = None) -> Response:
        given: Any = body or body_type()
        dry_run = foreseen_too and given.dry_run
        try:
            server = _changing(request, dry_run=dry_run, role="approve" if command in APPROVALS else "act")
        except Refused as refused:
            if refused.code == "ROLE_NEEDED":
                caller = caller_of(request)
                step = getattr(given, "step", None) or ""
                told = Audited(name, caller.name, step, refused.code, via="http", proof=Proof.TOKEN)
                await server_of(request).engine.internals.audit(run, told)
            raise
        if command is Retry and given.clean and not (dry_run or given.confirmed):
            hint = tell("hint.server.starts_over")
            raise Refused(tell("refuse.server.starts_over"), "CONFIRM_NEEDED", hint=hint)
        made = await _read(command, given, _by(request, by) or "")
        made = msgspec.structs.replace(made, actor=caller_of(request).actor("http"))
        target, preview = await server.engine.do(run, made, dry_run=dry_run, own_tools_only=True)
        if dry_run:
            return Json({"run_id": target, **(foreseen(preview, language(request)) if preview is not None else {})})
        more: dict[str, Any] = {"once": list(preview.once) if preview is not None else []} if command is Retry else {}
        return await _now(server, target, **more)

    needed = any(field.is_required() for field in body_type.model_fields.values())
    give.__annotations__ = {
        "request": Request, "run": RunPath, "body": body_type if needed else body_type | None, "by": By,
        "return": Response,
    }  # fmt: skip
    if needed:
        give.__defaults__ = (None,)  # of `by` alone
    responses = answers("foreseen" if foreseen_too else "command")
    router.add_api_route(
        f"/runs/{{run}}/{name}", give, methods=["POST"], status_code=202, responses=responses, name=name,
        description=command.__doc__,
    )  # fmt: skip


async def _read(command: type[Command], body: Any, by: str) -> Command:
    """Return the command of a body."""
    said = given(command, {name: getattr(body, name) for name in body.model_fields_set})
    if command is Add and isinstance(body.steps, str):
        said["steps"] = steps_in(await asyncio.to_thread(parse_data, body.steps))
    if command is Confirm:
        said["edit"] = {name: _content(name, content) for name, content in body.edit.items()}
    try:
        made: Command = msgspec.convert({**said, "by": by}, command)
    except msgspec.ValidationError as error:
        raise Refused(tell("refuse.run.action_unreadable", error=error), "USAGE") from None
    with refusals():
        return refusing(made) if isinstance(made, Confirm) and body.refuse else made


def _content(name: str, given: str | Mapping[str, str]) -> bytes:
    """Return a file's new content as bytes."""
    if isinstance(given, str):
        return given.encode()
    try:
        return base64.b64decode(given["base64"], validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise Refused(tell("refuse.server.edit_encoding", name=name), "USAGE") from None


for _command in COMMANDS:
    if _command not in (Refuse, *INTERNAL):  # a refusal is a word of `confirm`
        _route(_command)


@router.delete("/memory", responses=answers("forget"), tags=["setup"])
async def forget(request: Request, by: By = None) -> Response:
    """Clear the failure memory: only what happens from now on is learnt from."""
    server = _changing(request, role="admin")
    await server.engine.internals.forget(by=_by(request, by))
    return Json({"memory": await server.engine.internals.memory()})


@router.post("/retry", status_code=202, responses=answers("retry_failed"))
async def retry_failed(
    request: Request, body: RetryAllBody | None = None, lang: Lang = None, by: By = None
) -> Response:
    """Retry every run that failed or was interrupted, the oldest first; with `dry_run`, tell what that would be."""
    server, body = server_of(request), body or RetryAllBody()
    if not body.dry_run:
        _changing(request)
        if body.clean and not body.confirmed:
            hint = tell("hint.server.starts_over")
            raise Refused(tell("refuse.server.starts_over"), "CONFIRM_NEEDED", hint=hint)
    found = await server.engine.internals.to_retry()
    rows = [await _one(request, row, body, _by(request, by)) for row in found[: body.limit]]
    answer = {"dry_run": body.dry_run, "runs": rows, "left": max(0, len(found) - body.limit)}
    return Json(answer, status_code=200 if body.dry_run else 202)


async def _one(request: Request, row: RunRow, body: RetryAllBody, by: str | None) -> dict[str, Any]:
    """Return the result, or the preview, of one run."""
    server, lang = server_of(request), language(request)
    before = "interrupted" if row.interrupted else row.status
    told: dict[str, Any] = {"run_id": row.run_id, "objective": row.objective, "before": before, "ok": True}
    try:
        command = Retry(by=by or "", actor=caller_of(request).actor("http"), clean=body.clean, force=body.force)
        _, preview = await server.engine.do(row.run_id, command, dry_run=body.dry_run)
    except RerailError as error:
        return {**told, "ok": False, "preview": None, "problem": problem_of(error, lang, server.withheld)}
    return {**told, "preview": foreseen(preview, lang) if preview is not None else None, "problem": None}
