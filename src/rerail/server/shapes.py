"""What the HTTP API takes and gives, as its description tells: bodies, examples, problems.

Rules of this file:
- Descriptions of the protocol are for programmers, and in English, as its names are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from rerail.i18n import Language
from rerail.server.answers import Shape, filled

MOST = 2**53 - 1  # the largest whole number that every JSON reader keeps

RunPath = Annotated[
    str, Path(min_length=1, max_length=200, description="A run's id, or an unambiguous beginning of it.")
]
StatusWord = Literal["pending", "running", "waiting", "completed", "failed", "cancelled", "interrupted"]
Lang = Annotated[Language | None, Query(description="The language of sentences; else Accept-Language.")]
Words = Annotated[bool, Query(description="Say of each event, as `words`, what it says in the reader's language.")]
StepId = Annotated[str, Field(min_length=1, max_length=1000, description="The id of a step.", examples=["fetch"])]
DryRun = Annotated[bool, Field(description="Only tell what it would lead to.")]
Reason = Annotated[str, Field(max_length=2000, description="Why, for the history.")]


class _Body(BaseModel):
    """A body: nothing in it is guessed, nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True)


PLAN_EXAMPLE = {
    "objective": "Say hello",
    "steps": [{"id": "greet", "tool": "greet", "args": {"name": "world"}}],
}


class StartBody(_Body):
    """A run to be started: a plan, or an objective that the model makes a plan for."""

    plan: Annotated[
        dict[str, Any] | list[Any] | str | None,
        Field(description="Objective and steps; or the same as YAML or JSON text.", examples=[PLAN_EXAMPLE]),
    ] = None
    objective: Annotated[str | None, Field(min_length=1, max_length=20_000)] = None
    fallback: Annotated[
        dict[str, Any] | list[Any] | str | None, Field(description="The plan that runs if none can be made.")
    ] = None
    run_id: Annotated[str | None, Field(description="The run's id, if it should not be drawn.")] = None
    parent: Annotated[str | None, Field(min_length=1, max_length=200, description="The run that it follows.")] = None
    queue: Annotated[bool, Field(description="Leave it to a worker that shares the store.")] = False
    on: Annotated[str | None, Field(max_length=20, deprecated=True, description="Gone; refused. Use queue.")] = None


class PlanBody(_Body):
    """A plan to be looked at."""

    plan: Annotated[dict[str, Any] | list[Any] | str, Field(examples=[PLAN_EXAMPLE])]


class ObjectiveBody(_Body):
    """Something to be done, for which the model makes a plan."""

    objective: Annotated[str, Field(min_length=1, max_length=20_000)]


class RetryBody(_Body):
    """What to do again; without anything, exactly what failed and what depends on it."""

    steps: Annotated[list[str] | None, Field(max_length=100_000, description="Only these, and what follows.")] = None
    stage: Annotated[str | None, Field(description="Go on from this stage.")] = None
    clean: Annotated[bool, Field(description="Start over: everything runs again.")] = False
    force: Annotated[bool, Field(description="Pass the retry limit, a permanent error, a success.")] = False
    take_over: Annotated[bool, Field(description="Take it from a process that fell silent.")] = False
    dry_run: Annotated[bool, Field(description="Only tell what would run again, and why.")] = False
    confirmed: Annotated[bool, Field(description="Needed with clean, once its dry run was seen.")] = False


class RetryAllBody(_Body):
    """How to retry every run that failed."""

    clean: Annotated[bool, Field(description="Start over: everything runs again.")] = False
    force: Annotated[bool, Field(description="Pass the retry limit and permanent errors.")] = False
    dry_run: Annotated[bool, Field(description="Only tell what would run again, and why.")] = False
    confirmed: Annotated[bool, Field(description="Needed with clean, once its dry run was seen.")] = False
    limit: Annotated[int, Field(ge=1, le=200, description="So many runs, the oldest; `left` tells of the others.")] = 50


class ResumeBody(_Body):
    """How to go on with an interrupted or paused run."""

    take_over: bool = False


class ReasonBody(_Body):
    """Why, for the history."""

    reason: Reason = ""


class EmptyBody(_Body):
    """Nothing has to be said."""


class SkipBody(_Body):
    """A step to do without."""

    step: StepId
    reason: Reason = ""
    dry_run: DryRun = False


class ConfirmBody(_Body):
    """A word for a step that waits for one."""

    step: Annotated[str | None, Field(description="May be left out if only one waits.")] = None
    refuse: Annotated[bool, Field(description="Say no: the step fails.")] = False
    digest: Annotated[
        str | None, Field(max_length=64, description="Of the call that was shown; another one is not agreed to.")
    ] = None
    ahead: Annotated[bool, Field(description="Agree to the plan's own call before its arguments are known.")] = False
    args: Annotated[dict[str, Any], Field(description="Arguments to change first; the others stay.")] = {}
    edit: Annotated[
        dict[str, str | dict[str, str]],
        Field(description="Files that it reads → what they should say: a text, or {base64: …}.", max_length=100),
    ] = {}
    dry_run: DryRun = False


class ResolveBody(_Body):
    """What became of a step in doubt; or its output, given by hand."""

    step: StepId
    outcome: Annotated[
        Literal["succeeded", "failed", "rerun"],
        Field(description="succeeded: value is its output; failed: it did not happen; rerun: call it again."),
    ]
    value: Annotated[Any, Field(description="The step's output, with succeeded: any JSON value.")] = None
    dry_run: DryRun = False


class RepairBody(_Body):
    """Changes of a step that did not succeed."""

    step: StepId
    tool: Annotated[
        str | None, Field(min_length=1, description="Another tool; with args, it gets those and no others.")
    ] = None
    args: Annotated[dict[str, Any] | None, Field(description="Arguments to change; the others stay.")] = None
    remove: Annotated[list[str] | None, Field(max_length=1000, description="Arguments to do without.")] = None
    needs: Annotated[list[str | dict[str, Any]] | None, Field(description="The new needs, all of them.")] = None
    dry_run: DryRun = False


class AddBody(_Body):
    """Steps to add to a run that is not at rest."""

    steps: Annotated[
        Annotated[list[Any], Field(min_length=1, max_length=100_000)] | str,
        Field(
            description="The steps; or the same as YAML or JSON text.",
            examples=[[{"id": "more", "tool": "greet", "args": {}}]],
        ),
    ]


# -- Answers --------------------------------------------------------------------------------------------------------

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "detail": {"type": "string"}, "code": {"type": "string"}, "hint": {"type": "string"},
        "faults": {"type": "array", "items": {"type": "object"}},
    },
}  # fmt: skip


def _problem(status: int, code: str, detail: str, hint: str = "", **more: Any) -> dict[str, Any]:
    kind, title = f"urn:rerail:problem:{code.lower()}", code.replace("_", " ").capitalize()
    example = {"type": kind, "title": title, "status": status, "detail": detail, "code": code, "hint": hint, **more}
    return {
        "description": title,
        "content": {"application/problem+json": {"schema": PROBLEM, "example": example}},
    }


_FAULT = {"code": "UNKNOWN_TOOL", "step": "greet", "message": "step greet: there is no tool 'gret'"}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem(400, "USAGE", "the request is not as it should be: query.limit: Input should be less than 1000"),
    401: _problem(401, "UNAUTHORIZED", "the token is missing or wrong"),
    403: _problem(403, "ORIGIN_FOREIGN", "pages of 'https://example.org' may not use this server"),
    404: _problem(404, "RUN_UNKNOWN", "there is no run 'ab12'", "rerail ls shows the runs"),
    421: _problem(421, "HOST_FOREIGN", "this server is not known as 'example.org'"),
    503: _problem(503, "STORE_FAILED", "the store is out of reach"),
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    **PROBLEMS,
    409: _problem(409, "RUN_AT_REST", "run ab12 is completed", "rerail retry ab12 --force"),
    413: _problem(413, "BODY_TOO_LARGE", "the body is larger than 8388608 bytes"),
    422: _problem(422, "PLAN_INVALID", "the plan cannot be run", faults=[_FAULT]),
}
GONE: dict[int | str, dict[str, Any]] = {
    409: _problem(409, "FILE_DAMAGED", "the file was changed since"),
    410: _problem(410, "ARTIFACT_GONE", "the output expired"),
}

_SSE_EXAMPLE = 'id: 7\nevent: step_succeeded\ndata: {"seq":7,"run":"ab12","type":"step_succeeded","step":"greet"}\n\n'
SSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of server-sent events, which does not end by itself.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _SSE_EXAMPLE}},
    }
}

STEP_EXAMPLE: dict[str, Any] = {
    "id": "greet", "status": "succeeded", "code": None, "output": "hello, world", "error": None, "attempts": 1,
    "tool": "greet", "args": {"name": "world"}, "degraded": None, "stale": None, "started_at": 1763280000.0,
    "elapsed": 0.01, "title": "", "stage": "", "needs": [], "unverified": False, "files": [],
}  # fmt: skip
RUN_EXAMPLE = {
    "run_id": "ab12cd34ef", "status": "completed", "success": True, "complete": True, "degraded": False,
    "objective": "Say hello", "summary": "completed: 1 step succeeded", "seq": 8, "steps": {"greet": STEP_EXAMPLE},
}  # fmt: skip
ROW_EXAMPLE = {
    "run_id": "ab12cd34ef", "status": "running", "objective": "Say hello", "parent": None,
    "created_at": 1763280000.0, "updated_at": 1763280001.0, "events": 4, "owner": "host:4711", "interrupted": False,
    "degraded": False, "shown_status": "running", "failed_stage": "", "counts": {"running": 1},
}  # fmt: skip
EVENT_EXAMPLE = {"seq": 3, "run": "ab12cd34ef", "at": 1763280000.5, "type": "step_started", "step": "greet"}


def gives(example: Any, description: str, schema: Shape, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a route answers, for its description."""
    content = {"application/json": {"schema": schema, "example": filled(example, schema)}}
    return {status: {"description": description, "content": content}}
