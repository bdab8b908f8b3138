"""The events: immutable facts of a run, and the envelope that numbers them (contract I1, I2).

Rules of this file:
- Past tense. An event says what happened; `decide` says what to do about it.
- Names are stored. A type or a field may be added, never renamed; new fields have defaults.
- An event that changes the course of a run (retry, recovery, replan, user action, a call that adds steps) carries a
  `Course`. Exactly one function reads it (``redirect``): the only place in the project that resets anything.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

import msgspec

from rerail.codes import Category
from rerail.i18n import SOURCE, UNSAYABLE, Told, as_text, catalogue, tell
from rerail.kernel.policy import Policy, Rung
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Step


class Error(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A failure as data: what happened, its category, and a message."""

    code: str
    category: Category
    message: str
    type: str = ""
    traceback: str = ""
    status: int | None = None
    suggest: dict[str, Any] | None = None
    data: dict[str, Any] = {}  # the values of the message, so that it can be told in another language

    @property
    def told(self) -> str:
        """Return the message: translatable if it is from the catalogue and `data` has its values."""
        key = f"error.{self.data.get('text', self.code)}"
        if isinstance(self.message, Told) or key not in catalogue(SOURCE):
            return self.message
        try:
            return tell(key, **self.data).worded(self.message)
        except UNSAYABLE:
            return self.message  # an error of the same code, with its tool's own message

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=as_text)
        return plain


def said_no(code: str, by: str) -> Error:
    """Return the error of a step that a user refused, or declared failed."""
    name = by or "a person"
    return Error(code, Category.PERMANENT, tell(f"error.{code}", by=name), data={"by": name})


class Course(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan from now on, and the steps to redo, with everything that depends on them."""

    touched: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()  # new and changed definitions
    dropped: tuple[str, ...] = ()
    automatic: bool = True  # automatic changes never rerun a succeeded `once` step (R3)
    fresh: tuple[str, ...] = ()  # steps that get a new idempotency key (E2)
    done: tuple[Step, ...] = ()  # redefined steps with an effect not to be repeated: they stay done, stale
    below: tuple[str, ...] = ()  # finished steps that stay done, with their dependents checked again
    order: tuple[str, ...] = ()  # the order of the new plan, if there is one


class FileMade(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A workspace file as its step left it."""

    path: str
    digest: str
    step: str = ""
    draft: str = ""  # where content from a user or an attempt is staged until it replaces the file
    size: int = 0


class Shown(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call as shown for approval; the digest identifies all of it (X10)."""

    tool: str
    digest: str = ""  # "" for an approval given before the call was known
    args: dict[str, Any] | None = None
    args_blob: str = ""  # where large arguments are kept
    files: dict[str, str] = {}  # path → digest of the files that the call reads


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """The fields common to all events."""


class RunStarted(_Event, frozen=True, tag="run_started"):
    objective: str = ""
    parent: str = ""
    policy: Policy = Policy()
    by: str = ""
    version: str = ""
    memory: dict[str, str] = {}  # the rung that worked before, by failure (H10)
    origin: tuple[str, ...] = ()  # the source of the tools, so that a later process can load them again
    home: str = ""  # the run that owns the shared workspace; "" for this run (T6)
    inherited: tuple[FileMade, ...] = ()  # files that its parent ended with, and that it relies on
    queued: bool = False  # left for a worker to start
    copied: str = ""  # the store that this copy was exported from; a copy cannot go on (E10)
    served: bool = False  # a server drives it: the next server on this store goes on with it
    via: str = ""  # the interface that started it
    proof: str = ""


class PlanAccepted(_Event, frozen=True, tag="plan_accepted"):
    plan: Plan
    revision: int = 1
    fingerprints: dict[str, str] = {}  # tool → fingerprint of its definition
    by: str = ""  # its author, if not the caller
    fallback: str = ""  # why this is not the requested plan: planning failed, and this is the caller's fallback
    brought: tuple[str, ...] | None = None  # in histories of old runs: the tools of the plan's own servers
    assumed: tuple[str, ...] = ()  # tools with an assumed effect, none being declared (E3)


class PlanRejected(_Event, frozen=True, tag="plan_rejected"):
    by: str
    faults: tuple[str, ...]
    reason: str = ""
    question: str = ""  # the question that a mind answered with this, if any
    step: str = ""


class StepStarted(_Event, frozen=True, tag="step_started"):
    step: str
    attempt: int
    tool: str
    effect: Effect = Effect.REPEATABLE
    args: dict[str, Any] | None = None  # None: the plan's own arguments
    args_blob: str = ""  # the content that holds large arguments
    rung: Rung | None = None  # the rung that makes this call; None for a plain call
    before: Any = None  # the result of `probe`
    verifiable: bool = False  # a look can tell whether the effect is there
    staged: str = ""  # the folder of this attempt alone for its declared files
    reserved_cost: float = 0.0  # the most that the call may cost: held against the run's caps until it ends (H4)
    reserved_tokens: int = 0
    unpriced: bool = False  # a cap is set, and the cost of the call is unknown
    timeout: float = 0.0  # seconds; for calls with an effect that may be looked for
    probed: bool = False  # `before` is the result of a probe, even if it is None
    idempotent_for: float = 0.0  # seconds for which the service remembers the call's key, from the first intent
    agreed: str = ""  # the digest of the approved call, for a gated step (X10)
    fence: int = 0  # the fence of the lease that a `once` call was made under (E11)
    parsed: tuple[str, ...] = ()  # the references of its arguments that lead into a text, which was read as JSON


class GateOpened(_Event, frozen=True, tag="gate_opened"):
    """A gated step could start: this is the call to be approved (X10)."""

    step: str
    attempt: int  # the latest call of the step
    tool: str
    digest: str = ""  # of tool, arguments and files: what an approval covers
    args: dict[str, Any] | None = None
    args_blob: str = ""
    files: dict[str, str] = {}
    rung: Rung | None = None  # the rung that would make this call; None for a plain call
    before: Shown | None = None  # the call approved earlier, if the call has changed since
    question: str = ""  # the gate's text, if it refers to earlier outputs


class StepProgress(_Event, frozen=True, tag="step_progress"):
    step: str
    attempt: int
    message: str = ""
    fraction: float | None = None
    log: bool = False  # a line of the tool's log, not a progress value


class StepSucceeded(_Event, frozen=True, tag="step_succeeded"):
    step: str
    attempt: int
    output: Any = None
    digest: str = ""  # "" for a null output
    size: int = 0
    blob: bool = False  # the output is a content under its digest, not inline
    elapsed: float = 0.0
    tokens: int = 0
    cost: float = 0.0
    unverified: bool = False
    hole: bool = False  # the effect exists, the output does not
    by: str = ""
    files: dict[str, str] = {}  # path → digest of the files left in the workspace
    given: dict[str, Any] = {}  # the short values of an external output that occur in it under one name only
    waited: float = 0.0  # seconds until a look found the effect
    course: Course = Course()  # the steps that its call added to the plan


class StepFailed(_Event, frozen=True, tag="step_failed"):
    step: str
    attempt: int
    error: Error
    elapsed: float = 0.0
    lost: bool = False  # it is unknown whether the effect happened
    called: bool = True  # False: it failed before its tool was called
    not_now: float | None = None  # seconds the tool asked to wait
    tokens: int = 0
    cost: float = 0.0
    look: bool = False  # its effect is looked for before anything else follows
    until: float = 0.0  # the latest possible end of the call, if its end cannot be observed
    acting: bool = False  # the call may still act: an absent effect proves nothing
    looks: int = 0  # earlier looks at the effect
    waited: float = 0.0  # seconds spent waiting in these looks


class StepVerified(_Event, frozen=True, tag="step_verified"):
    """The result of a look: a call's answer was lost; is its effect there?"""

    step: str
    attempt: int
    effect: str  # there, absent, partial, unknown
    output: Any = None
    digest: str = ""
    size: int = 0
    blob: bool = False
    hole: bool = False
    reason: str = ""
    files: dict[str, str] = {}
    looks: int = 0  # number of looks; 0 in histories of versions that looked once
    waited: float = 0.0  # seconds that the looks took


class StepSkipped(_Event, frozen=True, tag="step_skipped"):
    step: str
    code: str
    message: str = ""
    by: str = ""
    needs: tuple[str, ...] = ()


class StepKept(_Event, frozen=True, tag="step_kept"):
    """A step of the retry set with unchanged inputs: same input, same result, no call (R3)."""

    step: str
    stale: str = ""  # why the result may be out of date, if it may


class StepRenewed(_Event, frozen=True, tag="step_renewed"):
    """A step of the retry set with changed inputs: its old result no longer counts."""

    step: str


class RetryScheduled(_Event, frozen=True, tag="retry_scheduled"):
    step: str
    attempt: int
    of: int
    retries_left: int
    delay: float
    until: float
    not_now: bool = False  # costs the step no retry
    crashed: bool = False  # its call died with its process

    @property
    def asked(self) -> bool:
        """True if the tool itself said "not now"."""
        return self.not_now and not self.crashed

    @property
    def retry(self) -> tuple[int, int]:
        """Return the retry's number and limit, both of this round (R6); attempts count over the step's life."""
        most = self.of - 1
        return most - self.retries_left, most


class Reflected(_Event, frozen=True, tag="reflected"):
    step: str
    attempt: int
    category: Category
    rung: Rung
    root_cause: str = ""
    recoverable: bool = True
    suggestion: dict[str, Any] | None = None
    confidence: int = 0
    alternatives: tuple[str, ...] = ()
    by: str = "rules"
    refused: tuple[str, ...] = ()
    partial: bool = False  # the suggestion holds only the changes of arguments that are too large to be stored twice


class Recovered(_Event, frozen=True, tag="recovered"):
    step: str
    attempt: int
    rung: Rung
    reason: str = ""
    tool: str = ""
    args: dict[str, Any] | None = None
    output: Any = None
    digest: str = ""
    size: int = 0
    blob: bool = False
    course: Course = Course()
    by: str = "rules"
    args_blob: str = ""  # the content with the whole arguments, if `args` holds only the changes


class QuestionAsked(_Event, frozen=True, tag="asked"):
    """A mind is asked before a rung is chosen: about one failure, or about a task that keeps failing."""

    question: str  # reflect: the step is held until the answer; replan: nothing starts until the answer
    step: str = ""
    attempt: int = 0
    reason: str = ""


class Consulted(_Event, frozen=True, tag="consulted"):
    """One call of a language model: its role and its cost. A checked answer is another event."""

    question: str
    step: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    problem: str = ""  # why its reply was unusable, if it was


class Declined(_Event, frozen=True, tag="declined"):
    """A question to a mind without a usable answer; it counts against the budget all the same."""

    question: str
    step: str = ""
    reason: str = ""
    late: bool = False


class ArtifactCreated(_Event, frozen=True, tag="artifact_created"):
    name: str
    step: str
    attempt: int
    digest: str
    size: int = 0
    media: str = "application/json"
    path: str = ""


class ArtifactLost(_Event, frozen=True, tag="artifact_lost"):
    """An output that is gone or no longer matches its digest; its producer rejoins the retry set."""

    step: str
    digest: str
    reason: str
    course: Course = Course()


class RetryBegin(_Event, frozen=True, tag="retry_begin"):
    round: int
    by: str
    roots: tuple[str, ...]
    chain: tuple[str, ...]
    chain_size: int
    reasons: dict[str, str] = {}
    automatic: bool = True
    course: Course = Course()
    operation: str = "retry"
    previous_status: str = ""
    counted: bool = False  # counts against retry.max_retries
    reset_count: bool = False
    policy: Policy | None = None
    stopped: str = ""  # the run stays stopped: a doubt was answered, nothing is to start
    fingerprints: dict[str, str] | None = None
    stale: tuple[str, ...] = ()  # finished steps with a changed tool definition
    damaged: dict[str, str] = {}  # file → why it cannot be kept; its step is redone
    backup: str = ""  # where everything was saved before the run started over
    via: str = ""
    proof: str = ""


class RetryDone(_Event, frozen=True, tag="retry_done"):
    round: int
    exec: dict[str, Any]
    failed: tuple[str, ...] = ()


class Replanned(_Event, frozen=True, tag="replanned"):
    revision: int
    course: Course
    by: str = ""
    reason: str = ""
    full: bool = False


class CleanupBegun(_Event, frozen=True, tag="cleanup_begun"):
    """The work of the run is over: the steps of `finally` run now, whatever it came to (P2)."""

    steps: tuple[str, ...]
    course: Course = Course()
    code: str = ""  # why the work was stopped, if it was
    until: float = 0.0  # the end of the time that they have; 0: their own timeouts alone bound them


class Evaluation(_Event, frozen=True, tag="evaluation"):
    success: bool
    complete: bool
    degraded: bool
    failed_steps: tuple[dict[str, Any], ...] = ()
    consequences: tuple[str, ...] = ()
    disputed: tuple[str, ...] = ()
    unsatisfactory: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    judge: str = "none"
    reason: str = ""
    summary: str = ""


class Waiting(_Event, frozen=True, tag="waiting"):
    on: tuple[dict[str, Any], ...]


class Resumed(_Event, frozen=True, tag="resumed"):
    by: str = ""
    lost: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    reason: str = ""
    policy: Policy | None = None
    fingerprints: dict[str, str] | None = None
    paused: bool = False  # a pause has ended
    number: int = 0
    wish: str = ""
    served: bool = False  # from here on a server drives it
    via: str = ""
    proof: str = ""


class Acted(_Event, frozen=True, tag="acted"):
    """A user's action on a live run, with its author."""

    action: str  # pause, skip, retry, confirm, refuse, resolve, add
    by: str = ""
    step: str = ""
    reason: str = ""
    outcome: str = ""  # for resolve: succeeded, failed, rerun
    output: Any = None
    digest: str = ""  # of the output; for confirm, of the approved call (earlier versions: "")
    size: int = 0
    blob: bool = False
    course: Course = Course()
    files: tuple[FileMade, ...] = ()  # files that the user replaced
    number: int = 0  # its place in the inbox, for a command without a key: earlier versions gave none
    wish: str = ""  # the command's key, so that redelivery after a crash applies it once, in any store
    ahead: bool = False  # for confirm: given before the call was known
    call: Shown | None = None  # for confirm: the approved call, if the user edited the one shown
    via: str = ""  # the interface: mcp, http, cli; "" for a program
    proof: str = ""  # how the name in `by` is known (`Proof`); "": as claimed


class Cancelled(_Event, frozen=True, tag="cancelled"):
    by: str = ""
    reason: str = ""
    number: int = 0
    wish: str = ""
    to: str = ""  # the store that the run continues in: here it is over for good
    after: int = 0  # the last event that was copied there
    via: str = ""
    proof: str = ""


class Stopped(_Event, frozen=True, tag="stopped"):
    """The run starts no more steps: a breaker opened, or a budget of the whole run is exhausted."""

    code: str
    reason: str = ""


class Done(_Event, frozen=True, tag="done"):
    status: str
    success: bool
    complete: bool
    degraded: bool
    exec: dict[str, Any] = {}
    failed_steps: tuple[dict[str, Any], ...] = ()
    summary: str = ""
    stopped: str = ""


class Notified(_Event, frozen=True, tag="notified"):
    """A notification about the run was sent or failed; it changes nothing."""

    kind: str  # command, webhook
    target: str  # redacted
    ok: bool
    attempts: int = 1
    error: str = ""
    about: str = ""  # done, failed, waiting
    notice: str = ""  # the id sent to the receiver


class Audited(_Event, frozen=True, tag="audited"):
    """What was asked of the run and changes nothing: a command refused for want of rights, an output that was read."""

    action: str
    by: str = ""
    step: str = ""
    code: str = ""  # of the refusal
    name: str = ""  # of the artifact that was read
    via: str = ""
    proof: str = ""


Event: TypeAlias = (
    RunStarted
    | PlanAccepted
    | PlanRejected
    | GateOpened
    | StepStarted
    | StepProgress
    | StepSucceeded
    | StepFailed
    | StepVerified
    | StepSkipped
    | StepKept
    | StepRenewed
    | RetryScheduled
    | Reflected
    | Recovered
    | QuestionAsked
    | Consulted
    | Declined
    | ArtifactCreated
    | ArtifactLost
    | RetryBegin
    | RetryDone
    | Replanned
    | CleanupBegun
    | Evaluation
    | Waiting
    | Resumed
    | Acted
    | Cancelled
    | Stopped
    | Done
    | Notified
    | Audited
)


EventType = Literal[
    "run_started", "plan_accepted", "plan_rejected", "gate_opened", "step_started", "step_progress",
    "step_succeeded", "step_failed", "step_verified", "step_skipped", "step_kept", "step_renewed",
    "retry_scheduled", "reflected", "recovered", "asked", "consulted", "declined", "artifact_created",
    "artifact_lost", "retry_begin", "retry_done", "replanned", "cleanup_begun", "evaluation", "waiting", "resumed",
    "acted", "cancelled", "stopped", "done", "notified", "audited",
]  # fmt: skip


class Record:
    """An event in its envelope: run, seq and time, with the payload's fields flat beside them (I1)."""

    __slots__ = ("at", "event", "run", "seq")

    def __init__(self, run: str, seq: int, at: float, event: Event) -> None:
        self.run, self.seq, self.at, self.event = run, seq, at, event

    @property
    def type(self) -> EventType:
        tag: Any = type(self.event).__struct_config__.tag
        return cast("EventType", tag)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.event, name)

    def __repr__(self) -> str:
        return f"Record(seq={self.seq}, {self.event!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.run, self.seq, self.at, self.event) == (
            other.run,
            other.seq,
            other.at,
            other.event,
        )

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return the event as flat JSON data."""
        # Field by field: storage leaves defaults out, readers get them all.
        event = self.event
        payload = {
            name: msgspec.to_builtins(getattr(event, name), enc_hook=as_text) for name in event.__struct_fields__
        }
        return {"seq": self.seq, "run": self.run, "at": self.at, "type": self.type, **payload}
