"""Every failure and refusal code, with one sentence and its category.

Rules of this file:
- A code is stable: it is stored in histories, printed by ``--json`` and matched by users' scripts. Never rename one.
- A code says what happened; its category says which rungs of the ladder may answer it (contract H1, H3).
- Texts for users are in ``rerail.i18n``; the sentences here are documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """The kind of a failure: it selects the column of the ladder."""

    TRANSIENT = "transient_error"
    PARAMETER = "parameter_error"
    TOOL = "tool_error"
    DEPENDENCY = "dependency_error"
    DECOMPOSITION = "decomposition_error"
    PERMANENT = "permanent_error"
    UNKNOWN = "unknown_error"


@dataclass(frozen=True, slots=True)
class Code:
    """A stable name for one way to fail, to be skipped, or to be refused."""

    name: str
    sentence: str
    category: Category | None = None


_T, _P, _O, _D, _X = Category.TRANSIENT, Category.PARAMETER, Category.TOOL, Category.DEPENDENCY, Category.PERMANENT

ALL: dict[str, Code] = {
    code.name: code
    for code in (
        # How an attempt fails.
        Code("TOOL_FAILED", "The tool raised or returned a failure without a code of its own."),
        Code("TIMEOUT", "The attempt took longer than its timeout and was cancelled.", _T),
        Code("ANSWER_LOST", "The process or worker died while the call was under way; its answer is lost.", _T),
        Code("CONNECTION_LOST", "The connection broke in the middle of the call; its answer is lost.", _T),
        Code("RATE_LIMITED", "The tool said 'not now' for longer than retry.max_wait allows.", _T),
        Code("COOLDOWN_ACTIVE", "The tool is cooling down and said when to come back.", _T),
        Code("ARGS_INVALID", "The resolved arguments do not fit the tool's schema.", _P),
        Code("VARIABLE_UNSET", "The tool needs an environment variable that is not set here.", _X),
        Code("PATH_MISSING", "A reference points to something the earlier output does not have.", _D),
        Code("HOLE_NOT_ACCEPTED", "An argument refers to a skipped step's output and does not accept null.", _D),
        Code("ARTIFACT_GONE", "A needed output expired or no longer matches its digest.", _D),
        Code("FILE_DAMAGED", "A file that the step reads is missing, changed or not valid.", _D),
        Code("FILE_NOT_ARCHIVED", "The step's old files could not be put aside; its tool was not called.", _T),
        Code("FILE_OUTSIDE", "A file's path leaves the run's workspace.", _X),
        Code("TOOL_UNKNOWN", "No tool of that name was given to this run.", _X),
        Code("ONCE_REPEATED", "A call that a mind chose, and one that must not happen twice, would be the same.", _X),
        Code("OUTPUT_NOT_JSON", "The tool returned something that cannot be stored as JSON.", _O),
        Code("OUTPUT_TOO_LARGE", "The tool returned more than the output limit.", _O),
        Code("SUSPECT_OUTPUT", "The tool reported success, but its output looks like an error.", _O),
        Code("CHECK_FAILED", "The output does not meet the step's or the tool's check.", _O),
        Code("VERIFY_FAILED", "The tool reported success, but verify did not find the effect.", _O),
        Code("IN_DOUBT", "Whether the effect of a `once` call happened is unknown, and `on_doubt` is `fail`.", _X),
        Code("KEY_LAPSED", "The service may have forgotten the idempotency key; the tool was not called again.", _T),
        Code("OWNER_LOST", "The process may not own the run any more; the tool was not called.", _T),
        Code("EXIT_STATUS", "The command ended with a non-zero exit status."),
        Code("HTTP_STATUS", "The HTTP response carries an error status."),
        Code("HOST_NOT_ALLOWED", "The HTTP host is not in tools.allow_hosts.", _X),
        Code("SERVER_UNREACHABLE", "An MCP server could not be started or reached; nothing was sent.", _T),
        Code("SERVER_MISSING", "An MCP server's command, folder or environment variable is not there.", _X),
        Code("SERVER_DYING", "An MCP server died again and again without answering a call.", _X),
        Code("NO_ROOM", "The cluster had no room for the call within ray.max_wait; its tool was not called.", _T),
        Code("CLUSTER_UNREACHABLE", "There is no Ray cluster to hand the call to; its tool was not called.", _T),
        Code("CLUSTER_REFUSES", "The cluster does not take the call, for its resources or its environment.", _X),
        Code("TOOL_NOT_CARRIED", "The tool cannot be sent to the cluster, or is not there on the node.", _X),
        Code("PROGRAM_UNGUARDED", "The tool's program runs a plan when it is imported, which a process has to do.", _X),
        Code("ANSWER_UNREADABLE", "The tool answered, and its answer is not what was agreed.", _O),
        Code("CONFIRM_REFUSED", "A person refused the confirmation gate.", _X),
        Code("RESOLVED_FAILED", "A person declared the step failed.", _X),
        # Why a step did not run.
        Code("SKIP_UPSTREAM_FAILED", "A step it needs failed, or was skipped for that reason."),
        Code("SKIP_OPTIONAL", "The step is not critical and could not be mended; the run goes on without it."),
        Code("SKIP_USER", "A person skipped the step."),
        Code("SKIP_CONDITION", "The step runs only if another one fails, and that one did not."),
        Code("BREAKER_OPEN", "Too many different steps failed in a row; the run stopped starting steps."),
        Code("BUDGET_EXCEEDED", "A budget of the whole run was used up, or too small for the step's call."),
        Code("RUN_CANCELLED", "The run was cancelled before the step could start."),
        Code("CLEANUP_TIMEOUT", "The time for the steps of `finally` was over."),
        # Why a command was refused.
        Code("PLAN_INVALID", "The plan has faults; nothing was run."),
        Code("PLAN_UNREADABLE", "The input is not a plan: not a file, not YAML or JSON, or not a mapping with steps."),
        Code("NO_MODEL", "A model is asked for, and none is set."),
        Code("PLANNING_FAILED", "The model made no plan that can be run."),
        Code("RUN_UNKNOWN", "There is no run with that id."),
        Code("RUN_ID_INVALID", "The id given to a new run cannot be one: it names files, and is typed by people."),
        Code("RUN_AMBIGUOUS", "Several runs start with that prefix."),
        Code("STEP_UNKNOWN", "The run's plan has no step with that id."),
        Code("STAGE_UNKNOWN", "The run's plan has no such stage."),
        Code("STEP_SUCCEEDED", "The step succeeded already; running it again needs force."),
        Code("STEP_NOT_WAITING", "The step is not waiting for that."),
        Code("GATE_CHANGED", "The gate shows another call now than the one that was agreed to."),
        Code("VALUE_INVALID", "The value that was given cannot be stored as JSON."),
        Code("SECRET_GIVEN", "What was given holds a value that is marked as secret."),
        Code("STEP_ENDED", "The step has already ended."),
        Code(
            "RUN_SUPERSEDED",
            "What it follows, or what that follows, has completed again since, and a newer follow-up took its place.",
        ),
        Code("FILE_UNKNOWN", "The step reads no file of that name."),
        Code("BACKUP_FAILED", "The files could not be backed up; nothing was started over."),
        Code("RUN_EXISTS", "There is a run of that id already."),
        Code("RUN_LIVE", "Another process is driving this run."),
        Code("RUN_AT_REST", "The run has already come to rest."),
        Code("RUN_MOVED", "The run was moved, and goes on in another store."),
        Code("RUN_COPIED", "The run is a copy; what calls tools is done where it came from."),
        Code("RUN_WAITS_CONFIRM", "The run waits for a confirmation."),
        Code("RUN_IN_DOUBT", "The run waits for a person to say whether an effect happened."),
        Code("RUN_PAUSED", "The run is paused."),
        Code("RUN_COMPLETED", "The run completed; retrying it needs force."),
        Code("RETRY_LIMIT", "The run has been retried as often as retry.max_retries allows."),
        Code("NOT_RETRYABLE", "The error cannot be mended by trying again; fix its cause first."),
        Code("NOTHING_TO_RETRY", "No step of the run failed or was left out."),
        Code("CONFIRM_NEEDED", "The operation needs a confirmation (--yes)."),
        Code("CRASHTEST_UNDISTURBED", "Even without a crash, the plan of a crash test does not come to its end."),
        Code("WORKER_FAILED", "The worker process ended before it had taken the run up."),
        Code(
            "FILE_NOT_PLACED",
            "A finished step's files could not be put in place; a resume does it, a retry makes them.",
        ),
        Code("LEASE_LOST", "Another process took the run over; this one may write nothing more."),
        Code("SEQ_CONFLICT", "Another process appended to the history first."),
        Code("STORE_FAILED", "The store could not be read or written."),
        Code("STORE_NEWER", "The store was written by a newer version of Rerail."),
        Code("SETTINGS_INVALID", "A setting is unknown or has a wrong value."),
        Code("USAGE", "The command line is not one that Rerail knows."),
        Code("INTERRUPTED", "The process was interrupted; the run can be resumed."),
        # Refusals of the HTTP server before the request is read.
        Code("UNAUTHORIZED", "The token is missing or wrong."),
        Code("ROLE_NEEDED", "The token has no role that allows this."),
        Code("APPROVER_NEEDED", "The gate names its approvers, and the sender has not shown to be one of them."),
        Code("FOUR_EYES", "The editor of the step's arguments may not agree to the call."),
        Code("PERSON_NEEDED", "The run was started over MCP, and what it asks is for a person to answer."),
        Code("HOST_FOREIGN", "The request was sent to a name that is not this server's."),
        Code("ORIGIN_FOREIGN", "The request was made by a page of another address."),
        Code("READ_ONLY", "The server was started to look only."),
        Code("BODY_TOO_LARGE", "The request's body is larger than server.max_body."),
        Code(
            "TOO_MANY_READERS",
            "As many streams and sockets are open as server.max_readers allows, or too many requests.",
        ),
        Code("NOT_FOUND", "There is nothing at that address."),
        Code("METHOD_NOT_ALLOWED", "The address does not take that method."),
        Code("INTERNAL", "A fault of the server itself; its log tells more."),
        Code("TOOLS_UNREADABLE", "The tools file or module could not be loaded."),
    )
}

# The codes of a call without an answer: every other failure comes from the tool itself.
NO_ANSWER = frozenset({"TIMEOUT", "ANSWER_LOST", "CONNECTION_LOST", "RUN_CANCELLED"})

# Faults of a plan, or of a change of one; `HOLE_POSSIBLE` and `EFFECT_ASSUMED` are warnings.
FAULTS: dict[str, str] = {
    "NO_STEPS": "There is nothing to run.",
    "DUPLICATE_ID": "Two steps have the same id.",
    "UNKNOWN_TOOL": "No tool of that name is there.",
    "UNKNOWN_ALTERNATIVE": "No tool of a name in `alternatives` is there.",
    "UNKNOWN_NEED": "A step needs one that is not in the plan.",
    "SELF_NEED": "A step needs, or refers to, itself.",
    "CYCLE": "Steps need each other in a circle; the path is named.",
    "UNKNOWN_REFERENCE": "An argument refers to a step that is not in the plan.",
    "BAD_REFERENCE": "A reference cannot be read.",
    "BAD_ARGS": "Arguments do not fit the tool's schema.",
    "BAD_FINALLY": "`finally` names a step that is not there, a step needs one of them, or a cap has no room for them.",
    "BAD_FILE": "A file of `produces` has a path that cannot be, or is another step's already.",
    "BAD_VALUE": "A key has a value that it cannot have.",
    "UNKNOWN_KEY": "A key is not known; the nearest known one is named.",
    "PLAN_UNREADABLE": "A plan that a model made cannot be read.",
    "SECRET_IN_PLAN": "The plan holds a value that is marked as secret.",
    "MCP_NOT_ALLOWED": "The plan names MCP servers; the settings do that.",
    "EFFECT_UNDECLARED": "A tool's effect is not declared, and tools.require_effect is set.",
    "EFFECT_ASSUMED": "Tools declare no effect, and count as repeatable (a warning).",
    "HOLE_POSSIBLE": "An argument may get null from an optional step, and does not accept it (a warning).",
}


def category_of(code: str) -> Category | None:
    found = ALL.get(code)
    return found.category if found else None
