"""One step of a run as its history tells it, with the vocabulary of step states.

Rules of this file:
- Values and bookkeeping of a single step; ``state`` combines the steps of a run.
- Small: an idle step costs one `Track` and its edges, and keeps nothing of its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any

import msgspec

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.events import Error
from rerail.plan.references import Template
from rerail.plan.step import Effect, Step, When, definition, gate_question
from rerail.values.json_values import pack


class Status(StrEnum):
    """The status of a step, in the public words."""

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    DEGRADED = "degraded"
    FAILED = "failed"
    SKIPPED = "skipped"
    IN_DOUBT = "in_doubt"
    CANCELLED = "cancelled"


class RunStatus(StrEnum):
    """The status of a run, in the public words."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(IntEnum):
    """Where a step stands by its own events; the effect of its needs is derived."""

    PENDING = 0
    RUNNING = 1
    BACKOFF = 2
    HURT = 3  # an attempt failed and no rung is chosen yet
    HELD = 4  # a question about it is open: a repair, or a replan of the whole task
    DOUBT = 5  # its effect is looked for, or needs a user's answer
    SUCCEEDED = 6
    FAILED = 7
    SKIPPED = 8  # an accepted skip: met for its dependents, with a hole as output


class Place(IntEnum):
    """The index that holds a pending step, so that `decide` finds it without a search."""

    NONE = 0
    READY = 1
    KEEPERS = 2  # could start, but the old result may still be valid
    GATES = 3  # could start after an approval
    ANNOUNCE = 4  # skipped as a consequence; the event is still to be recorded


class Standing(IntEnum):
    """What a step means to its dependents."""

    OPEN = 0
    OK = 1
    FAILED = 2
    FAILED_OPEN = 3  # failed, but an automatic round will try again
    BLOCKED = 4  # skipped because an upstream step failed
    BLOCKED_OPEN = 5
    VOID = 6  # skipped because the failure that it waits for did not happen


# Nearly every event names these members: an enum lookup costs Python 3.11 five times as much as a global.
PENDING, RUNNING, SUCCEEDED, SKIPPED = Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.SKIPPED
NOWHERE, READY, UNDECIDED = Place.NONE, Place.READY, Standing.OPEN

# The worth of a need: by the standing of the needed step (columns) and the need's `when` (rows).
OPEN, MET, DEAD, DEAD_OPEN, VOID = range(5)
WORTH: dict[When, tuple[int, ...]] = {
    #              OPEN  OK    FAILED FAILED_OPEN BLOCKED BLOCKED_OPEN VOID
    When.SUCCESS: (OPEN, MET, DEAD, DEAD_OPEN, DEAD, DEAD_OPEN, VOID),
    When.DONE: (OPEN, MET, MET, OPEN, MET, OPEN, MET),
    When.FAILURE: (OPEN, VOID, MET, OPEN, VOID, OPEN, VOID),
}


class Lack(StrEnum):
    """What a result lacks."""

    FALLBACK = "fallback"  # its own value: a fallback stands in
    HOLE = "hole"  # the output of a skipped step
    LOST = "lost"  # the output of a step that had its effect, but lost its answer


class Degraded(msgspec.Struct, frozen=True, gc=False):
    """Why a result is less than whole."""

    kind: Lack
    reason: str = ""  # why a fallback stands in
    step: str = ""  # the step with the missing output


class Result(msgspec.Struct, eq=False, gc=False):
    """The latest success of a step: the place of its output, and its inputs. It holds no reference back to itself."""

    output: Any
    digest: str
    size: int
    blob: bool
    attempt: int
    inputs: tuple[Any, ...] = ()
    effect: Effect = Effect.REPEATABLE
    degraded: Degraded | None = None
    hole: bool = False
    by: str = ""
    fingerprint: str = ""
    unverified: bool = False
    files: dict[str, str] = {}  # path → digest of the files left in the workspace
    edited: tuple[str, ...] = ()  # those of `files` that a user wrote
    given: dict[str, Any] = {}  # short values of an external output

    @property
    def is_by_hand(self) -> bool:
        """True if a user gave it with `resolve`."""
        return self.by not in ("", "verify")

    @property
    def stands_in(self) -> bool:
        """True if the result is a fallback's, not the tool's own."""
        return self.degraded is not None and self.degraded.kind is Lack.FALLBACK

    @property
    def made(self) -> str:
        """Return a digest of all that the step made, to compare inputs (R3)."""
        return signature(self.files | {"": self.digest}) if self.files else self.digest


class Heal(msgspec.Struct, eq=False):
    """What was tried on a step in this round; allocated only for steps that need healing."""

    tool: str | None = None  # an alternative tool, for this round
    args: dict[str, Any] | None = None  # adjusted arguments, for this round
    args_blob: str = ""  # the content with the whole arguments, if they are large and `args` holds only the changes
    alternatives: tuple[str, ...] = ()  # alternatives already tried
    tried: dict[tuple[str, str, str], int] = {}  # (tool, arguments, error) → how often
    repairs: int = 0
    crashes: int = 0  # calls that died with their process and were repeated at no cost
    producer: bool = False
    fallback: bool = False
    waited: float = 0.0  # seconds, in these waits after a "not now"
    waits: int = 0
    wished: str = ""  # the tool that asked for a pause, during that pause
    not_now: float | None = None
    failures: list[dict[str, Any]] = []  # the latest failed attempts, as a mind sees them
    before: int = 0  # failures before the call since the last call
    asked: int = -1  # the attempt that a mind was asked about
    thought: ev.Reflected | None = None  # a mind's (not the rules') reflection on the latest failure
    minded: bool = False  # the alternative tool or arguments are a mind's choice


class EffectState(msgspec.Struct, eq=False):
    """What is known of a step's effect until a call succeeds (V8); allocated only where needed.

    It outlives rounds, and calls of the step with another tool or other arguments. It ends with a success, or when
    the step starts anew under a new key.
    """

    signature: str  # of the call: tool and arguments
    key_at: float  # the time of the call's first intent, and so of its key
    call: ev.StepStarted  # the latest call of that signature
    own: bool  # its arguments are the plan's own
    before: Any = None  # the first probe's result; all later looks compare with it
    probed: bool = False
    lost: bool = False  # an attempt may have had its effect, and the doubt is not settled
    ever_lost: bool = False  # an attempt once was lost, settled or not: its effect may still show
    acting: bool = False  # the call may still act, even if a look finds nothing
    settles_at: float = 0.0  # the end of the latest call; absence is timed from here
    looked_at: float = -1.0  # the time of the last look; below 0: nothing to look for
    cleared: bool = False  # a look right before the next call found nothing
    redefined: bool = False  # the step was redefined since
    rerun: bool = False  # a user asked for the same call again, without a look


# What an approval may cover, besides one call's digest.
AHEAD = "ahead"  # the plan's own call, with any inputs
FIRST = "first"  # the first call that follows: histories of earlier versions say no more


class Gate(msgspec.Struct, eq=False, gc=False):
    """The call shown at a step's gate, and the call approved there (X10)."""

    shown: ev.GateOpened | None = None  # the latest one; `State.unshown` knows whether it is current
    agreed: str = ""  # "": nothing; else a call's digest, AHEAD or FIRST
    yes: ev.Shown | None = None  # the call of the latest approval, to name it if the call changes


class Track(msgspec.Struct, eq=False):
    """The state of one step. Plans may have very many: a struct is built in a fifth of the time."""

    n: int
    id: str
    step: Step
    order: tuple[int, int]
    edge: tuple[Track, When] | None = None  # itself as a plain need: shared by all dependents
    needs: tuple[tuple[Track, When], ...] = ()
    out: Sequence[tuple[Track, When]] = ()  # a list once a dependent exists: most steps of most plans are leaves
    template: Template | None = None
    phase: Phase = Phase.PENDING
    place: Place = Place.NONE
    standing: Standing = Standing.OPEN
    open: int = 0
    dead: int = 0
    dead_open: int = 0
    void: int = 0
    attempt: int = 0  # never reset: an attempt number is never reused
    calls: int = 0  # in this round, since the last repair
    begun: int = 0  # the event of the first of these
    call: ev.StepStarted | None = None
    inputs: tuple[Any, ...] = ()
    result: Result | None = None
    again: bool = False  # its result must be made anew, or proved still valid
    root: bool = False  # it runs even if its inputs did not change
    redo: bool = False  # its inputs changed while it ran
    automatic: bool = True
    stale: str = ""
    error: Error | None = None  # the latest failure, as it was seen
    judged: Category | None = None  # its category as recovery judged it
    heal: Heal | None = None
    skip: ev.StepSkipped | None = None
    question: str = ""
    until: float = 0.0
    wait: float = 0.0  # its length, from the time it was scheduled
    gate: Gate | None = None
    minded: bool = False  # a mind wrote its definition
    wanted: bool = False  # a user wants its call, although it repeats an effect
    generation: int = 0
    announced: str = ""
    effects: EffectState | None = None  # of the latest call that may have an effect
    earlier: tuple[EffectState, ...] = ()  # of calls with another tool or other arguments before it
    started_at: float = 0.0
    ended_at: float = 0.0
    elapsed: float = 0.0
    cost: float = 0.0
    queue: str = ""  # its ready queue, while it can start
    editor: str = ""  # the person that changed its definition last, by name (I13)
    holds: ev.StepStarted | None = None  # the call under way with a held reservation (H4)

    @property
    def category(self) -> Category | None:
        """Return the judged category of its error; before that, the category as seen."""
        return self.judged or (self.error.category if self.error is not None else None)

    @property
    def gate_text(self) -> str:
        """Return the text of the step's gate: with the outputs that it refers to, once the call is shown."""
        shown = self.gate.shown if self.gate is not None else None
        own = gate_question(self.step)
        return shown.question or own if shown is not None else own

    def healing(self) -> Heal:
        if self.heal is None:
            self.heal = Heal()
        return self.heal

    def gating(self) -> Gate:
        if self.gate is None:
            self.gate = Gate()
        return self.gate

    @property
    def agreed(self) -> str:
        """Return what is approved: nothing (""), a call's digest, AHEAD or FIRST."""
        return self.gate.agreed if self.gate is not None else ""

    def disagree(self) -> None:
        """The call has changed: a new approval is needed. The earlier one stays known."""
        if self.gate is not None:
            self.gate.agreed = ""

    def is_covered(self, now: float) -> bool:
        """True if the service still remembers the key of a lost call, so that it may be repeated (E2)."""
        effects = self.effects
        if effects is None or not effects.lost:
            return False
        return 0 <= now - effects.key_at < effects.call.idempotent_for  # a clock that was set back proves nothing

    def __repr__(self) -> str:
        return f"Track({self.id!r}, {self.phase.name}, {self.standing.name})"


def count(track: Track, worth: int, by: int) -> None:
    """Count a need of a step up or down, by its worth."""
    if worth == OPEN:
        track.open += by
    elif worth == DEAD:
        track.dead += by
    elif worth == DEAD_OPEN:
        track.dead += by
        track.dead_open += by
    elif worth == VOID:
        track.void += by


def same_inputs(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """True if two results have the same inputs: equal outputs of all needs, and the same work (R3)."""
    if one[1:] != other[1:] or not one or not other:
        return False
    return one[0] is other[0] or definition(one[0]) == definition(other[0])


def call_digest(tool: str, args: str, files: Mapping[str, str]) -> str:
    """Return the digest that an approval covers: tool, signature of the arguments, files read (X10)."""
    return pack([tool, args, dict(files)]).digest


def signature(args: Any, blob: str = "") -> str:
    """Return a digest of a call's arguments; the order of keys and the place of storage do not matter.

    Large arguments are stored under this very name.
    """
    return blob if args is None else pack(args).digest
