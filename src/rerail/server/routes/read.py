"""Routes that read: lists, runs, steps, histories, artifacts, and the server's offers (contract I4, I7)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from rerail.api import Engine
from rerail.engine.printed import LogReader, log_file
from rerail.engine.refusals import refusals
from rerail.errors import StoreError
from rerail.i18n import tell
from rerail.kernel import events as ev
from rerail.kernel.actions import track_named
from rerail.kernel.events import Record
from rerail.server.feeds.runs import beside
from rerail.server.json import Json, StrictRoute
from rerail.server.schemas import MOST, Lang, RunPath, StatusWord, Words, answers
from rerail.server.security import DATA_POLICY
from rerail.server.state import ServerState, caller_of, language, server_of
from rerail.settings.loading import overrides_from
from rerail.values.json_values import clean
from rerail.version import __version__
from rerail.views.attempts import revisions as revisions_of
from rerail.views.attempts import step_detail
from rerail.views.graph import Graph
from rerail.views.live_run import Board
from rerail.views.narration import Narrator
from rerail.views.why import failures

HEALTH_SECONDS: Final = 2.0  # that the store has for an answer

router = APIRouter(route_class=StrictRoute, tags=["looking"])

StepPath = Annotated[str, Path(description="The id of a step.")]


@router.get("/health", responses=answers("health"), tags=["setup"])
async def health(request: Request) -> Response:
    """Whether the server is there and reaches its store; needs no token."""
    server = server_of(request)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEALTH_SECONDS):
            await server.engine.internals.heads(limit=1)
            return Json({"ok": True, **_facts(server)})
    raise StoreError(tell("refuse.server.store_silent", seconds=HEALTH_SECONDS))


def _facts(server: ServerState) -> dict[str, Any]:
    kind = server.engine.settings.store.url.partition(":")[0]
    facts = {"version": __version__, "store": kind, "read_only": server.read_only, "language": server.lang}
    return {**facts, "token": server.is_guarded}


# -- Runs -----------------------------------------------------------------------------------------------------------


@router.get("/runs", responses=answers("runs"))
async def runs(
    request: Request,
    status: Annotated[list[StatusWord] | None, Query(description="Only runs of these.")] = None,
    q: Annotated[str, Query(max_length=200, description="Part of an id or an objective.")] = "",
    parent: Annotated[str | None, Query(max_length=200, description="Only what follows this run.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: Annotated[str | None, Query(max_length=1000, description="`next` of the page before.")] = None,
) -> Response:
    """Runs, newest first, a page at a time."""
    rows, following = await server_of(request).rows.page(
        status=status or (), parent=parent, words=q.lower().strip(), limit=limit, cursor=cursor
    )
    return Json({"runs": rows, "next": following})


@router.get("/runs/{run}", responses=answers("run"))
async def run(request: Request, run: RunPath, lang: Lang = None) -> Response:
    """A run as it is now, with each step's output: what `rerail show --json` prints."""
    engine = server_of(request).engine
    return Json(await shown(engine, await engine.find(run)))


async def shown(engine: Engine, run: str) -> dict[str, Any]:
    """Return a run as `show --json` prints it."""
    facts, _ = await beside(engine, run)
    result = (await engine.show(run)).to_dict()
    return {**result, "owner": facts["owner"], "superseded": facts["superseded"]}


@router.get("/runs/{run}/view", responses=answers("view"))
async def view(request: Request, run: RunPath, lang: Lang = None) -> Response:
    """Everything there is to see of a run at once, without outputs: what `live` begins with."""
    server = server_of(request)
    async with server.lives.of(await server.engine.find(run), language(request)) as live:
        return Response(live.snapshot()[1], media_type="application/json")


@router.get("/runs/{run}/events", responses=answers("events"))
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
    server = server_of(request)
    engine = server.engine
    found = await engine.find(run)
    wanted = {word for one in types or () for word in one.split(",")}
    chosen: list[Record] = []
    more = True
    while more and len(chosen) < limit:
        records = await engine.internals.page(found, after, limit)
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
        async with server.lives.of(found, language(request)) as live:
            rows = [live.told(record) for record in chosen]
    return Json({"events": rows, "next": after if more else None})


@router.get("/runs/{run}/why", responses=answers("why"))
async def why(request: Request, run: RunPath, step: str | None = None, lang: Lang = None) -> Response:
    """The story of a run, or of one of its steps: what happened, in order, and why."""
    engine = server_of(request).engine
    found = await engine.find(run)
    told = await engine.why(found, step, language(request))
    failed = failures(await engine.events(found), step)
    return Json({"run_id": found, "step": step, "text": told, "story": told.splitlines(), "failures": failed})


@router.get("/runs/{run}/replay", responses=answers("replay"))
async def replay(
    request: Request,
    run: RunPath,
    settings: Annotated[
        list[str],
        Query(alias="set", min_length=1, max_length=50, description="Other settings, each as `table.key=value`."),
    ],
) -> Response:
    """The run, decided again under other settings: what would have been different. Nothing is called."""
    found = await server_of(request).engine.replay(run, overrides_from(settings))
    return Json(found.to_dict())


@router.get("/runs/{run}/graph", responses=answers("graph"))
async def graph(request: Request, run: RunPath) -> Response:
    """The steps and their needs, with each step's layer: what `rerail graph --json` prints."""
    engine = server_of(request).engine
    state = await engine.internals.state(await engine.find(run))
    return Json(Graph.of_state(state).to_dict())


@router.get("/runs/{run}/revisions", responses=answers("revisions"))
async def revisions(request: Request, run: RunPath, lang: Lang = None) -> Response:
    """The plan as it was accepted, and after each change: who changed it, why, and every step as it stood then."""
    engine = server_of(request).engine
    records = await engine.events(run)
    return Json({"run_id": await engine.find(run), "revisions": revisions_of(records, language(request))})


@router.get("/runs/{run}/logs", responses=answers("logs"))
async def logs(
    request: Request,
    run: RunPath,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000, description="Only the last ones.")] = None,
    step: str | None = None,
    lang: Lang = None,
) -> Response:
    """Everything that happened, one line an event, and what tools and workers printed."""
    engine = server_of(request).engine
    found = await engine.find(run)
    lines = await log_lines(engine, found, step, language(request))
    return Json({"run_id": found, "lines": lines if tail is None else lines[max(0, len(lines) - tail) :]})


async def log_lines(engine: Engine, run: str, step: str | None, lang: str) -> list[dict[str, Any]]:
    """Return the events as lines, and the printed output between them."""
    records = await engine.events(run)
    state = await engine.internals.state(run)
    narrator, latest = Narrator(state, lang), 0.0
    found: list[tuple[float, dict[str, Any]]] = []
    for record in records:
        told = narrator.line(record.event) if step is None or getattr(record.event, "step", "") == step else None
        if told is not None:
            line = {"at": record.at, "seq": record.seq, "kind": told.sign, "step": told.step or None}
            found.append((record.at, {**line, "text": clean(told.words, lines=True)}))
    if step is None:
        file = log_file(engine.internals.workspace(state.home))
        for one in LogReader(file, run, engine.internals.scrub).read(last=True):
            latest = max(latest, one.at)
            kind, at = ("act", latest) if one.worker else ("say", None)
            found.append((latest, {"at": at, "seq": None, "kind": kind, "step": None, "text": clean(one.text)}))
    return [line for _, line in sorted(found, key=lambda placed: placed[0])]


# -- Steps ----------------------------------------------------------------------------------------------------------


@router.get("/runs/{run}/step", responses=answers("step"))
async def step_by_query(
    request: Request,
    run: RunPath,
    wanted: Annotated[str, Query(alias="id", description="The id of a step.")],
    lang: Lang = None,
) -> Response:
    """The same for ids that do not go into a path, such as `..`."""
    return await step(request, run, wanted)


@router.get("/runs/{run}/steps/{step:path}", responses=answers("step"))
async def step(request: Request, run: RunPath, step: StepPath, lang: Lang = None) -> Response:
    """One step with all that is known of it: each attempt with its arguments and what changed of them, its output."""
    engine, said = server_of(request).engine, language(request)
    found = await engine.find(run)
    records = await engine.events(found)
    board = Board.of(found, records)
    with refusals():
        track = track_named(board.state, step)
    result = await engine.show(found)
    row, waits = result.steps[step], [item for item in result.waiting_on if item.get("step") == step]
    large = await engine.internals.large_args(records, step)
    detail = step_detail(board, track, records, large, said)
    artifacts = [one for one in await engine.artifacts(found) if one["step"] == step]
    args = waits[0].get("args") if waits and waits[0].get("args") is not None else row.args
    return Json({
        **detail, "run_id": found, "args": args, "output": row.output, "artifacts": artifacts,
        "why": await engine.why(found, step, said), "waiting_on": waits[0] if waits else None,
    })  # fmt: skip


# -- Artifacts ------------------------------------------------------------------------------------------------------


@router.get("/runs/{run}/artifacts", responses=answers("artifacts"))
async def artifacts(request: Request, run: RunPath) -> Response:
    """What the steps of a run made, as it was last made."""
    return Json(await server_of(request).engine.artifacts(run))


@router.get("/runs/{run}/artifacts/{name:path}", response_class=Response, responses=answers("artifact"))
async def artifact(
    request: Request, run: RunPath, name: Annotated[str, Path(description="The artifact's name.")]
) -> Response:
    """One of them: its bytes, for a file; JSON, for an output."""
    server, engine, caller = server_of(request), server_of(request).engine, caller_of(request)
    data, media = await engine.internals.artifact_bytes(run, name)
    if server.table.audit_reads:
        actor = caller.actor("http")
        told = ev.Audited("read", caller.name, name=name, via=actor.via, proof=actor.proof)
        await engine.internals.audit(run, told)
    # Outputs of tools are data: saved under their name, run nowhere, shown nowhere.
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


@router.get("/tools", responses=answers("tools"), tags=["setup"])
async def tools(request: Request) -> Response:
    """The tools that plans may use: arguments, effect, timeout, and where each comes from."""
    server = server_of(request)
    rows = [spec.to_dict(server.sources.get(spec.name)) for spec in server.engine.tools.values()]
    withheld = [{"name": name, "kind": kind} for name, kind in server.withheld.items()]
    return Json({"tools": rows, "withheld": withheld})


@router.get("/settings", responses=answers("settings"), tags=["setup"])
async def settings(request: Request) -> Response:
    """Every setting with its value and where that comes from; secrets are not shown."""
    return Json({"settings": server_of(request).config})


@router.get("/audit", responses=answers("audit"))
async def audit(
    request: Request,
    run: Annotated[str | None, Query(description="Only of this run.")] = None,
    since: Annotated[float, Query(ge=0, description="Only from this time on, in seconds since 1970.")] = 0.0,
    by: Annotated[str | None, Query(max_length=200, description="Only of this name.")] = None,
    refused: Annotated[bool, Query(description="Only what was refused.")] = False,
) -> Response:
    """The acts of people and agents, oldest first: starts, commands, approvals, refusals; of the latest 1,000 runs."""
    found = await server_of(request).engine.internals.audit_trail(run, since=since, by=by, refused=refused)
    return Json({"entries": [one.to_dict() for one in found]})


@router.get("/memory", responses=answers("memory"), tags=["setup"])
async def memory(request: Request) -> Response:
    """What the latest runs teach: per tool and error, which rung mended it."""
    return Json({"memory": await server_of(request).engine.internals.memory()})
