"""Routes that act: start, retry, resume, and everything else that a person may do to a run (X7, I4, I7).

Rules of this file:
- A route reads its body, calls the façade, and answers with the run as it is then. No rule lives here.
- A plan is data: never the name of a file, never a program; it may use the tools that the server was started with.
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

from rerail.core.assumed import effect_warnings
from rerail.core.command import COMMANDS, FORESEEN, INTERNAL, Add, Command, Confirm, Refuse, Retry, options_of, refusing
from rerail.core.commands import Preview
from rerail.core.graph import Graph
from rerail.core.holes import hole_warnings
from rerail.core.plan import Fault
from rerail.engine.refusals import refusals
from rerail.errors import PlanError, Refused
from rerail.i18n import retold, tell
from rerail.plans import Plan, parse_data, steps_in
from rerail.server import answers
from rerail.server.looking import shown
from rerail.server.plain import Json
from rerail.server.problems import allow_hint
from rerail.server.serving import Serving, language, serving_of
from rerail.server.shapes import (
    REFUSALS,
    RUN_EXAMPLE,
    Lang,
    ObjectiveBody,
    PlanBody,
    RunPath,
    StartBody,
    body_of,
    gives,
)
from rerail.server.strict import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["acting"])


def _named(said: str | None) -> str | None:
    """A name in a header, which is sent as bytes: in UTF-8, if it can be."""
    try:
        return said.encode("latin-1").decode("utf-8") if said else None
    except UnicodeError:
        return said


By = Annotated[
    str | None,
    Header(alias="X-Rerail-By", max_length=200, description="Who does it, for the history."),
    AfterValidator(_named),
]
_TAKEN = gives(RUN_EXAMPLE, "It was done; the run goes on.", answers.RUN, 202)
_PREVIEW = {
    "run_id": "ab12", "roots": ["greet"], "rerun": [{"step": "greet", "why": "…"}], "kept": [], "once": [],
    "becomes": {}, "leads_to": "running",
}  # fmt: skip
_FORESEEN = {**REFUSALS, **_TAKEN, **gives(_PREVIEW, "What a dry run tells.", answers.PREVIEW)}


async def given_plan(data: Any) -> Plan:
    """A plan as it came: an object, or the text of one. Whoever sends a long one holds up nobody else."""
    return await asyncio.to_thread(_given_plan, data)


def _given_plan(data: Any) -> Plan:
    found = parse_data(data, tell("plan.the_text")) if isinstance(data, str) else data
    if not isinstance(found, Mapping | list):  # a text would be taken for a file's name, and files are not for everyone
        raise PlanError(tell("refuse.mcp.no_plan"), code="PLAN_UNREADABLE")
    return Plan.load(found)


def foreseen(preview: Preview, lang: str) -> dict[str, Any]:
    """What a retry, or another action, would do, with its reasons in a language."""
    plain = preview.to_dict()
    plain["rerun"] = [{**row, "why": retold(row["why"], lang)} for row in plain["rerun"]]
    plain["damaged"] = {path: retold(why, lang) for path, why in plain["damaged"].items()}
    return plain


async def _now(serving: Serving, run: str, status: int = 202, **more: Any) -> Response:
    found = await serving.engine.find(run)
    return Json({**await shown(serving.engine, found), **more}, status_code=status)


def _changing(request: Request, *, dry_run: bool = False) -> Serving:
    serving = serving_of(request)
    if not dry_run:
        serving.may_change()
    return serving


# -- Plans ----------------------------------------------------------------------------------------------------------


@router.post(
    "/plans/check",
    responses={**REFUSALS, **gives({"ok": True, "faults": [], "steps": 1}, "The faults.", answers.CHECK)},
)
async def check(request: Request, body: PlanBody, lang: Lang = None) -> Response:
    """Every fault of a plan at once, and warnings; nothing is run."""
    serving, said = serving_of(request), language(request)
    plan = await given_plan(body.plan)
    tools = serving.engine.tools
    faults = plan.check(tools)
    warnings = [] if faults else [*hole_warnings(plan, tools), *effect_warnings(plan, tools)]
    depth, width = (0, 0) if faults else Graph.of_plan(plan).measures()
    return Json({
        "ok": not faults, "steps": len(plan.steps), "depth": depth, "width": width, "tools_checked": True,
        "objective": plan.objective, "faults": [_told(fault, serving, said) for fault in faults],
        "warnings": [_told(fault, serving, said) for fault in warnings],
    })  # fmt: skip


def _told(fault: Fault, serving: Serving, lang: str) -> dict[str, Any]:
    hint = retold(allow_hint([fault], serving.withheld), lang)
    return {**fault.to_dict(), "message": fault.said(lang), "hint": hint}


@router.post("/plans", responses={**REFUSALS, **gives({"plan": {}, "by": "model"}, "A plan.", answers.PLAN)})
async def plan(request: Request, body: ObjectiveBody) -> Response:
    """A plan for an objective, made by the model and checked; nothing is run."""
    planned = await _changing(request).engine.plan(body.objective)
    if planned.plan is None:
        raise PlanError(tell("refuse.settings.planning_failed", problem=planned.problem), code="PLANNING_FAILED")
    return Json({"plan": Plan.load(planned.plan).to_dict(), "by": planned.by})


# -- Runs -----------------------------------------------------------------------------------------------------------


@router.post(
    "/runs", status_code=201, responses={**REFUSALS, **gives(RUN_EXAMPLE, "The run was started.", answers.RUN, 201)}
)
async def start(request: Request, body: StartBody, by: By = None) -> Response:
    """Start a run of a plan, or of one that the model makes. The server drives it, or leaves it to others."""
    serving = _changing(request)
    if (body.plan is None) == (body.objective is None):
        raise Refused(tell("refuse.server.plan_or_objective"), "USAGE")
    parent = await serving.engine.find(body.parent) if body.parent is not None else None
    loaded = await given_plan(body.plan) if body.plan is not None else None
    second = await given_plan(body.fallback) if body.fallback is not None else None
    run = await serving.engine.start(
        loaded, objective=body.objective, fallback=second, parent=parent, by=by, run_id=body.run_id,
        queued=body.queue, on=body.on,
    )  # fmt: skip
    answer = await _now(serving, run, 201)
    answer.headers["location"] = f"/api/v1/runs/{quote(run, safe='')}"
    return answer


# -- Commands -------------------------------------------------------------------------------------------------------


def _route(command: type[Command]) -> None:
    """Let a command be given over HTTP, with a body of its own."""
    body_type = body_of(command)
    name, foreseen_too = str(command.__struct_config__.tag), command in FORESEEN

    async def give(request: Request, run: str, body: Any = None, by: str | None = None) -> Response:
        given: Any = body or body_type()
        dry_run = foreseen_too and given.dry_run
        serving = _changing(request, dry_run=dry_run)
        if command is Retry and given.clean and not (dry_run or given.confirmed):
            hint = tell("hint.server.starts_over")
            raise Refused(tell("refuse.server.starts_over"), "CONFIRM_NEEDED", hint=hint)
        made = await _read(command, given, by or "")
        target, preview = await serving.engine.do(run, made, dry_run=dry_run)
        if dry_run:
            return Json({"run_id": target, **(foreseen(preview, language(request)) if preview is not None else {})})
        more: dict[str, Any] = {"once": _once(preview)} if command is Retry else {}
        return await _now(serving, target, **more)

    needed = any(field.is_required() for field in body_type.model_fields.values())
    give.__annotations__ = {
        "request": Request, "run": RunPath, "body": body_type if needed else body_type | None, "by": By,
        "return": Response,
    }  # fmt: skip
    if needed:
        give.__defaults__ = (None,)  # of `by` alone
    responses = _FORESEEN if foreseen_too else {**REFUSALS, **_TAKEN}
    router.add_api_route(
        f"/runs/{{run}}/{name}", give, methods=["POST"], status_code=202, responses=responses, name=name,
        description=command.__doc__,
    )  # fmt: skip


def _once(preview: Preview | None) -> list[str]:
    return list(preview.once) if preview is not None else []


async def _read(command: type[Command], body: Any, by: str) -> Command:
    """The command that a body gives."""
    given = {name: value for name in options_of(command) if (value := getattr(body, name)) is not None}
    if command is Add and isinstance(body.steps, str):
        given["steps"] = steps_in(await asyncio.to_thread(parse_data, body.steps))
    if command is Confirm:
        given["edit"] = {name: _content(name, content) for name, content in body.edit.items()}
    try:
        made: Command = msgspec.convert({**given, "by": by}, command)
    except msgspec.ValidationError as error:
        raise Refused(tell("refuse.run.action_unreadable", error=error), "USAGE") from None
    with refusals():
        return refusing(made) if isinstance(made, Confirm) and body.refuse else made


def _content(name: str, given: str | Mapping[str, str]) -> bytes:
    """What a file should say, as bytes."""
    if isinstance(given, str):
        return given.encode()
    try:
        return base64.b64decode(given["base64"], validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise Refused(tell("refuse.server.edit_encoding", name=name), "USAGE") from None


for _command in COMMANDS:
    if _command not in (Refuse, *INTERNAL):  # a refusal is a word of `confirm`
        _route(_command)


@router.delete(
    "/memory", responses={**REFUSALS, **gives({"memory": []}, "Nothing is remembered.", answers.MEMORY)}, tags=["setup"]
)
async def forget(request: Request, by: By = None) -> Response:
    """Clear the failure memory: only what happens from now on is learnt from."""
    serving = _changing(request)
    await serving.engine.forget(by=by)
    return Json({"memory": await serving.engine.memory()})
