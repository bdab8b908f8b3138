"""The events: the immutable facts of a run, and the envelope that numbers them (SPEC I1, I2).

Rules of this file:
- Past tense. An event says what happened, not what to do about it.
- Names are stored. A type or a field may be added, never renamed; new fields have defaults.
- What changes the course of a run (retry, recovery, replan, a person's action) carries a `Course`, read by exactly
  one function (``state.redirect``): the only place in the project where anything is ever reset.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from rerail.core.codes import Category
from rerail.core.plan import Effect, Plan, Step
from rerail.core.policy import Policy, Rung
from rerail.i18n import SOURCE, UNSAYABLE, Told, as_text, catalogue, tell


class Error(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A failure as data: what happened, which kind it was, and the words for it."""

    code: str
    category: Category
    message: str
    type: str = ""
    traceback: str = ""
    status: int | None = None
    suggest: dict[str, Any] | None = None
    data: dict[str, Any] = {}  # what the message was made of, so that it can be said in another language

    @property
    def told(self) -> str:
        """The message, as a sentence that knows its values if it is one of ours and `data` has them."""
        key = f"error.{self.data.get('text', self.code)}"
        if isinstance(self.message, Told) or key not in catalogue(SOURCE):
            return self.message
        try:
            return tell(key, **self.data).worded(self.message)
        except UNSAYABLE:
            return self.message  # an error of the same code, worded by its tool

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=as_text)
        return plain


class Course(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan is now this; these steps, and what depends on them, are to be done again."""

    touched: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()  # new and changed definitions
    dropped: tuple[str, ...] = ()
    automatic: bool = True  # nothing automatic runs a succeeded `once` step again (R3)
    fresh: tuple[str, ...] = ()  # steps that draw a new idempotency key (E2)
    done: tuple[Step, ...] = ()  # new definitions of steps whose effect must not happen twice: they stay done, stale
    below: tuple[str, ...] = ()  # steps that are done, but whose dependents have to look again
    order: tuple[str, ...] = ()  # the new plan's order, if the plan is a new one


class FileMade(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A file of the workspace as its step left it."""

    path: str
    digest: str
    step: str = ""
    draft: str = ""  # where the content lies that a person or an attempt gave, until it is put in the file's place
    size: int = 0


class Shown(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call as a person sees it before agreeing; the digest stands for all of it (X10)."""

    tool: str
    digest: str = ""  # "" for a yes that was given before the call was known
    args: dict[str, Any] | None = None
    args_blob: str = ""  # where large arguments are kept
    files: dict[str, str] = {}  # path → digest of the files that the call reads


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """What all events share."""


class RunStarted(_Event, frozen=True, tag="run_started"):
    objective: str = ""
    parent: str = ""
    policy: Policy = Policy()
    by: str = ""
    version: str = ""
    memory: dict[str, str] = {}  # which rung worked before, per failure (H10)
    origin: tuple[str, ...] = ()  # where the tools came from, so that a later process can load them again
    home: str = ""  # the run whose workspace this one shares; "" for its own (T6)
    inherited: tuple[FileMade, ...] = ()  # files that its parent ended with, and that it relies on
    queued: bool = False  # it was left to whoever takes it up
    copied: str = ""  # the store that this copy was exported from; what would go on with it is refused (E10)


class PlanAccepted(_Event, frozen=True, tag="plan_accepted"):
    plan: Plan
    revision: int = 1
    fingerprints: dict[str, str] = {}  # tool → what its definition was
    by: str = ""  # who wrote it, if not the caller
    fallback: str = ""  # why it is not the plan that was wanted: planning failed, and this was given for that case
    brought: tuple[str, ...] | None = None  # in histories of old runs: the tools of the plan's own servers
    assumed: tuple[str, ...] = ()  # tools whose effect was assumed, not declared (E3)


class PlanRejected(_Event, frozen=True, tag="plan_rejected"):
    by: str
    faults: tuple[str, ...]
    reason: str = ""
    question: str = ""  # the question whose answer this was, if a mind gave it
    step: str = ""


class StepStarted(_Event, frozen=True, tag="step_started"):
    step: str
    attempt: int
    tool: str
    effect: Effect = Effect.REPEATABLE
    args: dict[str, Any] | None = None  # None: the plan's own arguments
    args_blob: str = ""  # where large arguments are kept
    rung: Rung | None = None  # the rung whose call this is, if not a plain one
    before: Any = None  # what `probe` saw
    verifiable: bool = False  # somebody can look whether the effect is there
    staged: str = ""  # the folder that this attempt alone writes its declared files to
    reserved_cost: float = 0.0  # what the call may cost: held against the run's caps until it ends (H4)
    reserved_tokens: int = 0
    unpriced: bool = False  # a cap is set, and what the call costs is not known
    timeout: float = 0.0  # seconds; of calls whose effect may have to be looked for
    probed: bool = False  # `before` is what a probe saw, be it nothing
    idempotent_for: float = 0.0  # seconds for which the service remembers the call's key, from the first intent
    agreed: str = ""  # the digest of the call that a person agreed to, for a gated step (X10)
    fence: int = 0  # of the lease under which a `once` call was made (E11)


class GateOpened(_Event, frozen=True, tag="gate_opened"):
    """A gated step could start: this is the call that a person has to agree to (X10)."""

    step: str
    attempt: int  # of the latest call of the step
    tool: str
    digest: str = ""  # of tool, arguments and files: what a confirmation is to
    args: dict[str, Any] | None = None
    args_blob: str = ""
    files: dict[str, str] = {}
    rung: Rung | None = None  # the rung whose call it would be, if not a plain one
    before: Shown | None = None  # the call that was agreed to before, where it became another one


class StepProgress(_Event, frozen=True, tag="step_progress"):
    step: str
    attempt: int
    message: str = ""
    fraction: float | None = None
    log: bool = False  # a line of the tool's log, rather than how far it is


class StepSucceeded(_Event, frozen=True, tag="step_succeeded"):
    step: str
    attempt: int
    output: Any = None
    digest: str = ""  # "" for a null output
    size: int = 0
    blob: bool = False  # the output is in the artifact store under its digest, not here
    elapsed: float = 0.0
    tokens: int = 0
    cost: float = 0.0
    unverified: bool = False
    hole: bool = False  # the effect is there, the output is not
    by: str = ""
    files: dict[str, str] = {}  # path → digest of what it left in the workspace
    given: dict[str, Any] = {}  # of an output that is kept elsewhere: the short values that it has under one name alone
    waited: float = 0.0  # seconds until a look found the effect


class StepFailed(_Event, frozen=True, tag="step_failed"):
    step: str
    attempt: int
    error: Error
    elapsed: float = 0.0
    lost: bool = False  # whether the effect happened is unknown
    called: bool = True  # false: it failed before its tool was called
    not_now: float | None = None  # seconds the tool asked us to wait
    tokens: int = 0
    cost: float = 0.0
    look: bool = False  # its effect is looked for before anything else follows
    until: float = 0.0  # when the call is over at the latest, if its end cannot be seen
    acting: bool = False  # the call may still act, for all that is known: its absence proves nothing
    looks: int = 0  # looks at the effect that came before
    waited: float = 0.0  # seconds for which these waited for it


class StepVerified(_Event, frozen=True, tag="step_verified"):
    """The answer to: the call's answer was lost, is its effect there?"""

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
    looks: int = 0  # how often it was looked for; 0 in histories of versions that looked once
    waited: float = 0.0  # seconds that this took


class StepSkipped(_Event, frozen=True, tag="step_skipped"):
    step: str
    code: str
    message: str = ""
    by: str = ""
    needs: tuple[str, ...] = ()


class StepKept(_Event, frozen=True, tag="step_kept"):
    """A step of the retry set whose inputs did not change: same input, same result, no call (R3)."""

    step: str
    stale: str = ""  # why the result may be out of date, if it may


class StepRenewed(_Event, frozen=True, tag="step_renewed"):
    """A step of the retry set whose inputs did change: its old result no longer counts."""

    step: str


class RetryScheduled(_Event, frozen=True, tag="retry_scheduled"):
    step: str
    attempt: int
    of: int
    retries_left: int
    delay: float
    until: float
    not_now: bool = False  # it costs the step no retry
    crashed: bool = False  # its call died with its process

    @property
    def asked(self) -> bool:
        """Whether the tool itself said "not now"."""
        return self.not_now and not self.crashed

    @property
    def retry(self) -> tuple[int, int]:
        """Which retry it is, of how many: of this round (R6), while attempts are counted over the life of the step."""
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
    partial: bool = False  # the suggestion is what changes of arguments that are too large to be written again


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
    args_blob: str = ""  # where the whole arguments are kept, if `args` is only what changes of them


class Asked(_Event, frozen=True, tag="asked"):
    """A mind is asked before anything is chosen: what to make of a failure, or of a task that keeps failing."""

    question: str  # reflect: the step is held until there is an answer; replan: nothing starts until there is one
    step: str = ""
    attempt: int = 0
    reason: str = ""


class Consulted(_Event, frozen=True, tag="consulted"):
    """One call of a language model: in which role, and what it cost. What it said is another event, once checked."""

    question: str
    step: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    problem: str = ""  # why its reply was of no use, if it was not


class Declined(_Event, frozen=True, tag="declined"):
    """A question that was put to a mind and got no usable answer; it counts against the budget all the same."""

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
    """An output that is gone or no longer matches its digest; its producer goes back into the retry set."""

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
    stopped: str = ""  # the run stays stopped: an answer was given, nothing is to start
    fingerprints: dict[str, str] | None = None
    stale: tuple[str, ...] = ()  # finished steps whose tool's definition changed since
    damaged: dict[str, str] = {}  # file → why it cannot be kept; its step is done again
    backup: str = ""  # where everything was kept before a run starts over


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
    paused: bool = False  # it was a pause that ended
    number: int = 0
    wish: str = ""


class Acted(_Event, frozen=True, tag="acted"):
    """A person's action on a live run: who did what."""

    action: str  # pause, skip, retry, confirm, refuse, resolve, add
    by: str = ""
    step: str = ""
    reason: str = ""
    outcome: str = ""  # for resolve: succeeded, failed, rerun
    output: Any = None
    digest: str = ""  # of the output; for confirm, of the call that was agreed to (earlier versions: "")
    size: int = 0
    blob: bool = False
    course: Course = Course()
    files: tuple[FileMade, ...] = ()  # files that the person gave another content
    number: int = 0  # its place in the inbox, for a wish without a name of its own: earlier versions gave none
    wish: str = ""  # the name of the wish, so that an answer lost in a crash does not repeat it, in any store
    ahead: bool = False  # for confirm: given before the call was known
    call: Shown | None = None  # for confirm: the call that was agreed to, if the person edited the one shown


class Cancelled(_Event, frozen=True, tag="cancelled"):
    by: str = ""
    reason: str = ""
    number: int = 0
    wish: str = ""
    to: str = ""  # the store that it goes on in: here it is over for good
    after: int = 0  # and the last event that went along


class Stopped(_Event, frozen=True, tag="stopped"):
    """The run starts no more steps: a breaker opened or a budget of the whole run is used up."""

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
    """Somebody was told that the run ended or waits, or could not be: it changes nothing."""

    kind: str  # command, webhook
    target: str  # without anything that may be secret
    ok: bool
    attempts: int = 1
    error: str = ""
    about: str = ""  # done, failed, waiting
    notice: str = ""  # the id that the receiver got


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
    | Asked
    | Consulted
    | Declined
    | ArtifactCreated
    | ArtifactLost
    | RetryBegin
    | RetryDone
    | Replanned
    | Evaluation
    | Waiting
    | Resumed
    | Acted
    | Cancelled
    | Stopped
    | Done
    | Notified
)


class Record:
    """An event in its envelope: run, seq and time, with the payload's fields flat beside them (I1)."""

    __slots__ = ("at", "event", "run", "seq")

    def __init__(self, run: str, seq: int, at: float, event: Event) -> None:
        self.run, self.seq, self.at, self.event = run, seq, at, event

    @property
    def type(self) -> str:
        """The event's stored type name."""
        tag = type(self.event).__struct_config__.tag
        return str(tag)

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
        """The event as flat JSON data."""
        # Field by field, so that defaults, which storage leaves out, are there for readers.
        event = self.event
        payload = {
            name: msgspec.to_builtins(getattr(event, name), enc_hook=as_text) for name in event.__struct_fields__
        }
        return {"seq": self.seq, "run": self.run, "at": self.at, "type": self.type, **payload}
