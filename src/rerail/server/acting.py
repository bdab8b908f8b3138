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

from fastapi import APIRouter, Header, Request
from pydantic import AfterValidator
from starlette.responses import Response

from rerail.core.assumed import effect_warnings
from rerail.core.commands import Preview
from rerail.core.graph import Graph
from rerail.core.holes import hole_warnings
from rerail.core.plan import Fault
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
    AddBody,
    ConfirmBody,
    EmptyBody,
    Lang,
    ObjectiveBody,
    PlanBody,
    ReasonBody,
    RepairBody,
    ResolveBody,
    ResumeBody,
    RetryBody,
    RunPath,
    SkipBody,
    StartBody,
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


async def _acted(request: Request, run: str, preview: Preview | None) -> Response:
    """The run as it is after an action; or what a dry run found."""
    serving = serving_of(request)
    if preview is None:
        return await _now(serving, run)
    return Json({"run_id": await serving.engine.find(run), **foreseen(preview, language(request))})


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


@router.post("/runs/{run}/retry", status_code=202, responses=_FORESEEN)
async def retry(request: Request, run: RunPath, body: RetryBody | None = None, by: By = None) -> Response:
    """Do again exactly what failed and what depends on it; with `dry_run`, tell what that would be."""
    serving, body = serving_of(request), body or RetryBody()
    if not body.dry_run:
        serving.may_change()
        if body.clean and not body.confirmed:
            hint = tell("hint.server.starts_over")
            raise Refused(tell("refuse.server.starts_over"), "CONFIRM_NEEDED", hint=hint)
    target, preview = await serving.engine.begin_retry(
        run, body.steps or None, body.stage, clean=body.clean, force=body.force, dry_run=body.dry_run,
        take_over=body.take_over, by=by,
    )  # fmt: skip
    if body.dry_run:
        return Json({"run_id": target, **(foreseen(preview, language(request)) if preview is not None else {})})
    once = list(preview.once) if preview is not None else []
    return await _now(serving, target, once=once)


@router.post("/runs/{run}/resume", status_code=202, responses={**REFUSALS, **_TAKEN})
async def resume(request: Request, run: RunPath, body: ResumeBody | None = None, by: By = None) -> Response:
    """Go on with an interrupted or paused run; nothing that is done is called again."""
    serving, body = _changing(request), body or ResumeBody()
    return await _now(serving, await serving.engine.begin_resume(run, take_over=body.take_over, by=by))


@router.post("/runs/{run}/pause", status_code=202, responses={**REFUSALS, **_TAKEN})
async def pause(request: Request, run: RunPath, body: EmptyBody | None = None, by: By = None) -> Response:
    """Start nothing more until somebody resumes the run; calls under way end."""
    serving = _changing(request)
    await serving.engine.pause(run, by=by)
    return await _now(serving, run)


@router.post("/runs/{run}/cancel", status_code=202, responses={**REFUSALS, **_TAKEN})
async def cancel(request: Request, run: RunPath, body: ReasonBody | None = None, by: By = None) -> Response:
    """End a run: calls under way are cancelled, nothing more starts."""
    serving = _changing(request)
    await serving.engine.cancel(run, by=by, reason=body.reason if body is not None else "")
    return await _now(serving, run)


# -- Steps ----------------------------------------------------------------------------------------------------------


@router.post("/runs/{run}/skip", status_code=202, responses=_FORESEEN)
async def skip(request: Request, run: RunPath, body: SkipBody, by: By = None) -> Response:
    """Do without a step: those that need it go on, with nothing in its place."""
    serving = _changing(request, dry_run=body.dry_run)
    told = await serving.engine.skip(run, body.step, by=by, reason=body.reason, dry_run=body.dry_run)
    return await _acted(request, run, told)


@router.post("/runs/{run}/confirm", status_code=202, responses=_FORESEEN)
async def confirm(request: Request, run: RunPath, body: ConfirmBody | None = None, by: By = None) -> Response:
    """Agree to the call of a step that waits for a person, as it is shown or edited, or refuse it."""
    body = body or ConfirmBody()
    serving = _changing(request, dry_run=body.dry_run)
    edit = {name: _content(name, given) for name, given in body.edit.items()}
    told = await serving.engine.confirm(
        run, body.step, refuse=body.refuse, ahead=body.ahead, args=body.args, edit=edit, digest=body.digest, by=by,
        dry_run=body.dry_run,
    )  # fmt: skip
    return await _acted(request, run, told)


def _content(name: str, given: str | Mapping[str, str]) -> bytes:
    """What a file should say, as bytes."""
    if isinstance(given, str):
        return given.encode()
    try:
        return base64.b64decode(given["base64"], validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise Refused(tell("refuse.server.edit_encoding", name=name), "USAGE") from None


@router.post("/runs/{run}/resolve", status_code=202, responses=_FORESEEN)
async def resolve(request: Request, run: RunPath, body: ResolveBody, by: By = None) -> Response:
    """Say what became of a step whose effect is in doubt, or give its output by hand."""
    serving = _changing(request, dry_run=body.dry_run)
    succeeded = body.value if body.outcome == "succeeded" else ...
    told = await serving.engine.resolve(
        run, body.step, succeeded=succeeded, failed=body.outcome == "failed", rerun=body.outcome == "rerun", by=by,
        dry_run=body.dry_run,
    )  # fmt: skip
    return await _acted(request, run, told)


@router.post("/runs/{run}/repair", status_code=202, responses=_FORESEEN)
async def repair(request: Request, run: RunPath, body: RepairBody, by: By = None) -> Response:
    """Change a step that did not succeed, and do it and what depends on it again."""
    serving = _changing(request, dry_run=body.dry_run)
    changes = {
        name: given for name in ("tool", "args", "remove", "needs") if (given := getattr(body, name)) is not None
    }
    told = await serving.engine.repair(run, body.step, by=by, dry_run=body.dry_run, **changes)
    return await _acted(request, run, told)


@router.post("/runs/{run}/add", status_code=202, responses={**REFUSALS, **_TAKEN})
async def add(request: Request, run: RunPath, body: AddBody, by: By = None) -> Response:
    """Add steps to a run that is not at rest; a change with faults is refused, and the plan stays as it was."""
    serving = _changing(request)
    text = body.steps if isinstance(body.steps, str) else None
    steps = steps_in(await asyncio.to_thread(parse_data, text)) if text is not None else body.steps
    await serving.engine.add(run, steps, by=by)
    return await _now(serving, run)


@router.delete(
    "/memory", responses={**REFUSALS, **gives({"memory": []}, "Nothing is remembered.", answers.MEMORY)}, tags=["setup"]
)
async def forget(request: Request, by: By = None) -> Response:
    """Clear the failure memory: only what happens from now on is learnt from."""
    serving = _changing(request)
    await serving.engine.forget(by=by)
    return Json({"memory": await serving.engine.memory()})
