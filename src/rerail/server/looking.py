"""Routes that look: lists, runs, steps, histories, artifacts, and what the server has to offer (I4, I7)."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from rerail.core.board import Board
from rerail.core.events import Record
from rerail.core.graph import Graph
from rerail.core.lines import Lines, clean
from rerail.core.nearest import nearest
from rerail.core.tries import revisions as revisions_of
from rerail.core.tries import step_detail
from rerail.core.why import failures
from rerail.engine.printed import LogReader, log_file
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.server import answers
from rerail.server.live import beside
from rerail.server.plain import Json
from rerail.server.security import DATA_POLICY
from rerail.server.serving import language, serving_of
from rerail.server.shapes import (
    EVENT_EXAMPLE,
    GONE,
    MOST,
    PROBLEMS,
    REFUSALS,
    ROW_EXAMPLE,
    RUN_EXAMPLE,
    STEP_EXAMPLE,
    Lang,
    RunPath,
    StatusWord,
    Words,
    gives,
)
from rerail.server.strict import StrictRoute
from rerail.settings import overrides_from
from rerail.version import __version__
from rerail.wiring import Engine

router = APIRouter(route_class=StrictRoute, tags=["looking"])

StepPath = Annotated[str, Path(description="The id of a step.")]


@router.get(
    "/health", responses=gives({"ok": True, "version": "0.1.0"}, "It is there.", answers.HEALTH), tags=["setup"]
)
async def health(request: Request) -> Response:
    """Whether the server is there; needs no token."""
    serving = serving_of(request)
    kind = serving.engine.settings.store.url.partition(":")[0]
    facts = {"version": __version__, "store": kind, "read_only": serving.read_only, "language": serving.lang}
    return Json({"ok": True, **facts, "token": bool(serving.token)})


# -- Runs -----------------------------------------------------------------------------------------------------------


@router.get(
    "/runs", responses={**PROBLEMS, **gives({"runs": [ROW_EXAMPLE], "next": None}, "A page of runs.", answers.ROWS)}
)
async def runs(
    request: Request,
    status: Annotated[list[StatusWord] | None, Query(description="Only runs of these.")] = None,
    q: Annotated[str, Query(max_length=200, description="Part of an id or an objective.")] = "",
    parent: Annotated[str | None, Query(max_length=200, description="Only what follows this run.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1000, description="`next` of the page before.")] = None,
) -> Response:
    """Runs, newest first, a page at a time."""
    rows, following = await serving_of(request).rows.page(
        status=status or (), parent=parent, words=q.lower().strip(), limit=limit, cursor=cursor
    )
    return Json({"runs": rows, "next": following})


@router.get("/runs/{run}", responses={**PROBLEMS, **gives(RUN_EXAMPLE, "The run.", answers.RUN)})
async def run(request: Request, run: RunPath, lang: Lang = None) -> Response:
    """A run as it is now, with each step's output: what `rerail show --json` prints."""
    engine = serving_of(request).engine
    return Json(await shown(engine, await engine.find(run)))


async def shown(engine: Engine, run: str) -> dict[str, Any]:
    """A run as `show --json` prints it."""
    facts, interrupted = await beside(engine, run)
    result = (await engine.show(run)).to_dict()
    return {**result, "owner": facts["owner"], "interrupted": interrupted, "superseded": facts["superseded"]}


@router.get("/runs/{run}/view", responses={**PROBLEMS, **gives(RUN_EXAMPLE, "The run without outputs.", answers.VIEW)})
async def view(request: Request, run: RunPath, lang: Lang = None) -> Response:
    """Everything there is to see of a run at once, without outputs: what `live` begins with."""
    serving = serving_of(request)
    async with serving.lives.of(await serving.engine.find(run), language(request)) as live:
        return Response(live.snapshot()[1], media_type="application/json")


@router.get(
    "/runs/{run}/events",
    responses={**PROBLEMS, **gives({"events": [EVENT_EXAMPLE], "next": None}, "A page.", answers.EVENTS)},
)
async def events(
    request: Request,
    run: RunPath,
    after: Annotated[int, Query(ge=0, le=MOST)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    types: Annotated[list[str] | None, Query(description="Only events of these types.")] = None,
    step: Annotated[str | None, Query(description="Only events of this step.")] = None,
    words: Words = False,
    lang: Lang = None,
) -> Response:
    """The history of a run, a page at a time."""
    serving = serving_of(request)
    engine = serving.engine
    found = await engine.find(run)
    wanted = {word for one in types or () for word in one.split(",")}
    chosen: list[Record] = []
    more = True
    while more and len(chosen) < limit:
        records = await engine.page(found, after, limit)
        more = len(records) == limit
        for record in records:
            if len(chosen) == limit:
                more = True
                break
            after = record.seq
            fits = not wanted or record.type in wanted
            if fits and (step is None or getattr(record.event, "step", None) == step):
                chosen.append(record)
    rows = [record.to_dict() for record in chosen]
    if words:
        async with serving.lives.of(found, language(request)) as live:
            rows = [live.told(record) for record in chosen]
    return Json({"events": rows, "next": after if more else None})


@router.get(
    "/runs/{run}/why", responses={**PROBLEMS, **gives({"text": "…", "story": ["…"]}, "The story.", answers.WHY)}
)
async def why(request: Request, run: RunPath, step: str | None = None, lang: Lang = None) -> Response:
    """The story of a run, or of one of its steps: what happened, in order, and why."""
    engine = serving_of(request).engine
    found = await engine.find(run)
    told = await engine.why(found, step, language(request))
    failed = failures(await engine.events(found), step)
    return Json({"run_id": found, "step": step, "text": told, "story": told.splitlines(), "failures": failed})


_SPENT: dict[str, Any] = {"status": "completed", "calls": 3, "waited": 0.4}
_FEWER: dict[str, Any] = {"status": "failed", "calls": 2, "waited": 0.1}
_REPLAY = {
    "run_id": "ab12", "settings": {"reflection.max_step_retries": {"recorded": 3, "replayed": 1}}, "known": True,
    "same": False, "branch": 9, "instead": [{"does": "reflected a fail"}], "unknown": [], "not_replayed": 0,
    "drift": None, "recorded": {**_SPENT, "seconds": 1.2, "tokens": 0, "cost": 0.0},
    "replayed": {**_FEWER, "seconds": 0.8, "tokens": 0, "cost": 0.0},
    "steps": [{"step": "a", "changed": True, "other_output": False, "recorded": _SPENT, "replayed": _FEWER}],
}  # fmt: skip


@router.get(
    "/runs/{run}/replay",
    responses={**REFUSALS, **gives(_REPLAY, "Both, side by side.", answers.REPLAY)},
)
async def replay(
    request: Request,
    run: RunPath,
    settings: Annotated[
        list[str],
        Query(alias="set", min_length=1, max_length=50, description="Other settings, each as `table.key=value`."),
    ],
) -> Response:
    """The run, decided again under other settings: what would have been different. Nothing is called."""
    found = await serving_of(request).engine.replay(run, overrides_from(settings))
    return Json(found.to_dict())


@router.get(
    "/runs/{run}/graph", responses={**PROBLEMS, **gives({"nodes": [], "edges": []}, "The graph.", answers.GRAPH)}
)
async def graph(request: Request, run: RunPath) -> Response:
    """The steps and their needs, with each step's layer: what `rerail graph --json` prints."""
    engine = serving_of(request).engine
    state = await engine.state(await engine.find(run))
    return Json(Graph.of_state(state).to_dict())


@router.get(
    "/runs/{run}/revisions",
    responses={**PROBLEMS, **gives({"revisions": []}, "The plan's revisions.", answers.REVISIONS)},
)
async def revisions(request: Request, run: RunPath, lang: Lang = None) -> Response:
    """The plan as it was accepted, and after each change: who changed it, why, and every step as it stood then."""
    engine = serving_of(request).engine
    records = await engine.events(run)
    return Json({"run_id": await engine.find(run), "revisions": revisions_of(records, language(request))})


@router.get("/runs/{run}/logs", responses={**PROBLEMS, **gives({"lines": []}, "Lines.", answers.LOGS)})
async def logs(
    request: Request,
    run: RunPath,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000, description="Only the last ones.")] = None,
    step: str | None = None,
    lang: Lang = None,
) -> Response:
    """Everything that happened, one line an event, and what tools and workers printed."""
    engine = serving_of(request).engine
    found = await engine.find(run)
    lines = await log_lines(engine, found, step, language(request))
    return Json({"run_id": found, "lines": lines if tail is None else lines[max(0, len(lines) - tail) :]})


async def log_lines(engine: Engine, run: str, step: str | None, lang: str) -> list[dict[str, Any]]:
    """The events as lines, and between them what was printed."""
    records = await engine.events(run)
    state = await engine.state(run)
    teller, latest = Lines(state, lang), 0.0
    found: list[tuple[float, dict[str, Any]]] = []
    for record in records:
        told = teller.words(record.event) if step is None or getattr(record.event, "step", "") == step else None
        if told is not None:
            line = {"at": record.at, "seq": record.seq, "kind": told.sign, "step": told.step or None}
            found.append((record.at, {**line, "text": clean(told.words, lines=True)}))
    if step is None:
        for one in LogReader(log_file(engine.workspace(state.home)), run).read(last=True):
            latest = max(latest, one.at)
            kind, at = ("act", latest) if one.worker else ("say", None)
            found.append((latest, {"at": at, "seq": None, "kind": kind, "step": None, "text": clean(one.text)}))
    return [line for _, line in sorted(found, key=lambda placed: placed[0])]


# -- Steps ----------------------------------------------------------------------------------------------------------


@router.get("/runs/{run}/step", responses={**PROBLEMS, **gives(STEP_EXAMPLE, "The step.", answers.STEP)})
async def step_by_query(
    request: Request,
    run: RunPath,
    wanted: Annotated[str, Query(alias="id", description="The id of a step.")],
    lang: Lang = None,
) -> Response:
    """The same for ids that do not go into a path, such as `..`."""
    return await step(request, run, wanted)


@router.get("/runs/{run}/steps/{step:path}", responses={**PROBLEMS, **gives(STEP_EXAMPLE, "The step.", answers.STEP)})
async def step(request: Request, run: RunPath, step: StepPath, lang: Lang = None) -> Response:
    """One step with all that is known of it: each attempt with its arguments and what changed of them, its output."""
    engine, said = serving_of(request).engine, language(request)
    found = await engine.find(run)
    records = await engine.events(found)
    board = Board.of(found, records)
    track = board.state.tracks.get(step)
    if track is None:
        near = nearest(step, board.state.tracks)
        hint = tell("hint.run.did_you_mean", near=near) if near else tell("hint.run.see_run", run=found)
        raise Refused(tell("refuse.run.step_unknown", run=found, step=step), "STEP_UNKNOWN", hint=hint)
    result = await engine.show(found)
    row, waits = result.steps[step], [item for item in result.waiting_on if item.get("step") == step]
    large = await engine.large_args(records, step)
    detail = step_detail(board, track, records, large, said)
    artifacts = [one for one in await engine.artifacts(found) if one["step"] == step]
    args = waits[0].get("args") if waits and waits[0].get("args") is not None else row.args
    return Json({
        **detail, "run_id": found, "args": args, "output": row.output, "artifacts": artifacts,
        "why": await engine.why(found, step, said), "waiting_on": waits[0] if waits else None,
    })  # fmt: skip


# -- Artifacts ------------------------------------------------------------------------------------------------------

_ARTIFACT = {"name": "greet", "step": "greet", "attempt": 1, "digest": "…", "size": 14, "media": "application/json"}


@router.get(
    "/runs/{run}/artifacts",
    responses={**PROBLEMS, **gives([_ARTIFACT], "The artifacts.", answers.each(answers.ARTIFACT))},
)
async def artifacts(request: Request, run: RunPath) -> Response:
    """What the steps of a run made, as it was last made."""
    return Json(await serving_of(request).engine.artifacts(run))


@router.get(
    "/runs/{run}/artifacts/{name:path}",
    response_class=Response,
    responses={
        **PROBLEMS,
        **GONE,
        200: {
            "description": "The content, to be saved and never to be shown by a browser as a page.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
async def artifact(
    request: Request, run: RunPath, name: Annotated[str, Path(description="The artifact's name.")]
) -> Response:
    """One of them: its bytes, for a file; JSON, for an output."""
    engine = serving_of(request).engine
    data, media = await engine.artifact_bytes(run, name)
    # What tools made is data: saved under its name, run nowhere, shown nowhere.
    safe = media if media in _SAFE else "application/octet-stream"
    return Response(
        data,
        media_type=safe,
        headers={
            "content-disposition": f"attachment; filename*=UTF-8''{quote(_file_name(name, media), safe='')}",
            "content-security-policy": DATA_POLICY,
            "x-content-type-options": "nosniff",
            "cache-control": "private, no-store",
        },
    )


_SAFE = frozenset({"application/json", "text/csv", "text/plain", "image/png", "image/jpeg", "application/pdf"})


def _file_name(name: str, media: str) -> str:
    last = name.replace("\\", "/").rpartition("/")[2] or "artifact"
    clean = "".join(sign if sign.isprintable() and sign not in '"/\\:*?<>|' else "_" for sign in last)[:150]
    return f"{clean}.json" if media == "application/json" and not clean.lower().endswith(".json") else clean


# -- What there is --------------------------------------------------------------------------------------------------


@router.get("/tools", responses={**PROBLEMS, **gives({"tools": []}, "The tools.", answers.TOOLS)}, tags=["setup"])
async def tools(request: Request) -> Response:
    """The tools that plans may use: arguments, effect, timeout, and where each comes from."""
    serving = serving_of(request)
    rows = [spec.to_dict(serving.sources.get(spec.name)) for spec in serving.engine.tools.values()]
    withheld = [{"name": name, "kind": kind} for name, kind in serving.withheld.items()]
    return Json({"tools": rows, "withheld": withheld})


@router.get(
    "/settings", responses={**PROBLEMS, **gives({"settings": []}, "The settings.", answers.SETTINGS)}, tags=["setup"]
)
async def settings(request: Request) -> Response:
    """Every setting with its value and where that comes from; secrets are not shown."""
    return Json({"settings": serving_of(request).config})


@router.get(
    "/memory", responses={**PROBLEMS, **gives({"memory": []}, "What was learnt.", answers.MEMORY)}, tags=["setup"]
)
async def memory(request: Request) -> Response:
    """What the latest runs teach: per tool and error, which rung mended it."""
    return Json({"memory": await serving_of(request).engine.memory()})
