"""Errors as problem+json: code, message, hint, and the matching HTTP status.

Rules of this file:
- Every error leaves as the same kind of document, in the reader's language; never a traceback, never a path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rerail.errors import PlanError, RerailError, SettingsError, StoreError
from rerail.i18n import Told, retold, tell
from rerail.plan.step import Fault
from rerail.server.json import encode
from rerail.server.state import language

log = logging.getLogger("rerail.server")

MEDIA = "application/problem+json"
STATUS: dict[str, int] = {
    "USAGE": 400, "RUN_ID_INVALID": 400, "VALUE_INVALID": 400, "ARGS_INVALID": 400, "UNAUTHORIZED": 401,
    "ORIGIN_FOREIGN": 403, "READ_ONLY": 403, "RUN_UNKNOWN": 404, "STEP_UNKNOWN": 404, "STAGE_UNKNOWN": 404,
    "FILE_UNKNOWN": 404, "NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405, "ARTIFACT_GONE": 410, "BODY_TOO_LARGE": 413,
    "ROLE_NEEDED": 403, "APPROVER_NEEDED": 403, "FOUR_EYES": 403, "PERSON_NEEDED": 403,
    "HOST_FOREIGN": 421, "TOO_MANY_READERS": 503, "INTERNAL": 500,
}  # fmt: skip
_LONGEST = 20  # problems of one request that are listed
# Store errors that are shown in full; all others name files and addresses of this machine.
_HARMLESS = frozenset({
    "refuse.run.changes_hands", "refuse.run.no_answer", "refuse.run.taken_over", "refuse.run.lease_lost",
    "refuse.run.not_recorded", "refuse.run.action_not_recorded", "refuse.run.store_newer", "refuse.run.event_damaged",
})  # fmt: skip


def status_of(error: RerailError) -> int:
    if error.code in STATUS:
        return STATUS[error.code]
    if isinstance(error, PlanError | SettingsError):
        return 422
    return 503 if isinstance(error, StoreError) else 409


def problem(code: str, detail: str, hint: str = "", lang: str = "en", **more: Any) -> dict[str, Any]:
    status = more.pop("status", None) or STATUS.get(code, 409)
    return {
        "type": f"urn:rerail:problem:{code.lower()}", "title": code.replace("_", " ").capitalize(), "status": status,
        "detail": retold(detail, lang), "code": code, "hint": retold(hint, lang), **more,
    }  # fmt: skip


def problem_of(error: RerailError, lang: str = "en", withheld: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return an exception of ours as a problem; a plan's with every fault."""
    hint = _without_places(error.hint)
    more: dict[str, Any] = {"status": status_of(error)}
    if isinstance(error, PlanError):
        more["faults"] = [{**fault.to_dict(), "message": fault.said(lang)} for fault in error.faults]
    if _of_this_machine(error):
        log.warning("%s: %s", error.code, error)
        return problem(error.code, tell("refuse.server.store"), tell("hint.server.internal"), lang, **more)
    found = problem(error.code, "", hint, lang, **more)
    found["detail"] = error.message_in(lang)
    if isinstance(error, PlanError) and (allow := allow_hint(error.faults, withheld or {})):
        found["hint"] = retold(allow, lang)
    return found


def allow_hint(faults: Iterable[Fault], withheld: Mapping[str, str]) -> Told | str:
    """Return the server options that would cure these faults; empty if none would."""
    unknown = [fault.message for fault in faults if fault.code in ("UNKNOWN_TOOL", "UNKNOWN_ALTERNATIVE")]
    kinds = [kind for name, kind in withheld.items() if any(repr(name) in message for message in unknown)]
    options = " ".join(f"--allow {kind}" for kind in dict.fromkeys(kinds))
    return tell("hint.server.withheld", option=options) if options else ""


def _without_places(hint: str) -> str:
    """Reduce a path in a hint to the file's name: its folder does not help a remote client."""
    places = {name: one.name for name, one in getattr(hint, "values", {}).items() if isinstance(one, Path)}
    return tell(hint.key, **{**hint.values, **places}) if isinstance(hint, Told) and places else hint


def _of_this_machine(error: RerailError) -> bool:
    """Return True if an error describes the store itself: its place and its fault."""
    # An owner elsewhere reports as plain text why it could not apply a command.
    told = isinstance(error, StoreError) or error.code.startswith("STORE_")
    return told and getattr(error.message, "key", "") not in _HARMLESS


def answer(found: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(found), status_code=found["status"], media_type=MEDIA, headers=dict(headers or {}))


def install(app: FastAPI) -> None:
    """Turn every error of an app into a problem."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, RerailError)
        withheld = request.app.state.server.withheld
        return answer(problem_of(error, language(request), withheld), retry_after(status_of(error)))

    async def odd(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if any(isinstance(one.get("input"), bytes) for one in error.errors()):  # a body that is not JSON is not read
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            told, hint = tell("refuse.server.no_json", kind=kind[:100] or "-"), tell("hint.server.no_json")
            return answer(problem("USAGE", told, hint, language(request)))
        problems = "; ".join(_said(one) for one in error.errors()[:_LONGEST])
        told = tell("refuse.server.odd_request", problems=problems)
        return answer(problem("USAGE", told, "", language(request)))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(_of_http(request, error), error.headers)

    async def unforeseen(request: Request, error: Exception) -> Response:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        found = problem("INTERNAL", tell("refuse.server.internal"), tell("hint.server.internal"), language(request))
        return answer(found)

    app.add_exception_handler(RerailError, ours)
    app.add_exception_handler(RequestValidationError, odd)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


def retry_after(status: int) -> dict[str, str]:
    """Return the header that names the time of another try, if the server is only busy."""
    return {"retry-after": "2"} if status == 503 else {}


def _of_http(request: Request, error: HTTPException) -> dict[str, Any]:
    path, lang = request.url.path[:200], language(request)
    if error.status_code == 404:
        return problem(
            "NOT_FOUND", tell("refuse.server.not_found", path=path), tell("hint.server.not_found"), lang
        )  # fmt: skip
    if error.status_code == 405:
        told: Told | str = tell("refuse.server.method", path=path, method=request.method)
        return problem("METHOD_NOT_ALLOWED", told, "", lang)
    if error.status_code == 413:
        return problem("BODY_TOO_LARGE", str(error.detail), "", lang)
    return problem("USAGE", str(error.detail), "", lang, status=error.status_code)


def _said(one: Mapping[str, Any]) -> str:
    """Describe the fault of one part of a request."""
    where = ".".join(str(part) for part in one.get("loc", ()))
    why = (one.get("ctx") or {}).get("error") if one.get("type") == "json_invalid" else None
    return f"{where}: {why or one.get('msg', '')}"
