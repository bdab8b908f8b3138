"""The route that retries every failed run, as `rerail retry --all-failed` does (T4, I7).

Rules of this file:
- One run's refusal is a row of the answer, and holds up no other run.
- So many runs at once and no more: the server drives them all itself. Whoever wants the rest asks again.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from rerail.core.views import RunRow
from rerail.errors import Refused, RerailError
from rerail.i18n import tell
from rerail.server import answers
from rerail.server.acting import By, foreseen
from rerail.server.plain import Json
from rerail.server.problems import problem_of
from rerail.server.serving import Serving, language, serving_of
from rerail.server.shapes import REFUSALS, Lang, RetryAllBody, gives
from rerail.server.strict import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["acting"])

_ROW = {"run_id": "ab12", "objective": "Say hello", "before": "failed", "ok": True, "preview": None, "problem": None}
_ANSWER = {"dry_run": False, "runs": [_ROW], "left": 0}


@router.post(
    "/retry",
    status_code=202,
    responses={
        **REFUSALS,
        **gives(_ANSWER, "Each run, and whether it goes on.", answers.MANY, 202),
        **gives({**_ANSWER, "dry_run": True}, "What a dry run tells.", answers.MANY),
    },
)
async def retry_failed(
    request: Request, body: RetryAllBody | None = None, lang: Lang = None, by: By = None
) -> Response:
    """Retry every run that failed or was interrupted, the oldest first; with `dry_run`, tell what that would be."""
    serving, body = serving_of(request), body or RetryAllBody()
    if not body.dry_run:
        serving.may_change()
        if body.clean and not body.confirmed:
            hint = tell("hint.server.starts_over")
            raise Refused(tell("refuse.server.starts_over"), "CONFIRM_NEEDED", hint=hint)
    found = await serving.engine.to_retry()
    rows = [await _one(serving, row, body, by, language(request)) for row in found[: body.limit]]
    answer = {"dry_run": body.dry_run, "runs": rows, "left": max(0, len(found) - body.limit)}
    return Json(answer, status_code=200 if body.dry_run else 202)


async def _one(serving: Serving, row: RunRow, body: RetryAllBody, by: str | None, lang: str) -> dict[str, Any]:
    """What becomes, or would become, of one run."""
    before = "interrupted" if row.interrupted else row.status
    told: dict[str, Any] = {"run_id": row.run_id, "objective": row.objective, "before": before, "ok": True}
    try:
        _, preview = await serving.engine.begin_retry(
            row.run_id, clean=body.clean, force=body.force, dry_run=body.dry_run, by=by
        )
    except RerailError as error:
        return {**told, "ok": False, "preview": None, "problem": problem_of(error, lang, serving.withheld)}
    return {**told, "preview": foreseen(preview, lang) if preview is not None else None, "problem": None}
