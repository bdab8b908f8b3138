"""One step of a run, as its history tells it, and the vocabulary for what it is.

Rules of this file:
- Values and bookkeeping of a single step; what a run makes of them is in ``state``.
- Small: a step that is idle costs one `Track` and its edges, and nothing of what it returned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import IntEnum, StrEnum
from itertools import groupby
from typing import Any

import msgspec

from rerail.core import events as ev
from rerail.core.codes import Category
from rerail.core.events import Error
from rerail.core.plan import Effect, Step, When, definition
from rerail.core.refs import Template
from rerail.core.values import pack


class Status(StrEnum):
    """What a step is, in the words people see."""

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
    """What a run is, in the words people see."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(IntEnum):
    """Where a step stands by its own events; what its needs make of it is derived."""

    PENDING = 0
    RUNNING = 1
    BACKOFF = 2
    HURT = 3  # an attempt failed and nobody has chosen yet what to do about it
    HELD = 4  # a question about it is open: a repair, or a replan of the whole task
    DOUBT = 5  # its effect is looked for, or only a person can tell whether it happened
    SUCCEEDED = 6
    FAILED = 7
    SKIPPED = 8  # an accepted skip: met for its dependents, with a hole for an output


class Place(IntEnum):
    """The index that holds a pending step, so that `decide` finds it without searching."""

    NONE = 0
    READY = 1
    KEEPERS = 2  # it could start, but its old result may still be good
    GATES = 3  # it could start, once a person agrees
    ANNOUNCE = 4  # skipped as a consequence, and not yet said so


class Standing(IntEnum):
    """What a step is to those that need it."""

    OPEN = 0
    OK = 1
    FAILED = 2
    FAILED_OPEN = 3  # failed, but an automatic round will try it again
    BLOCKED = 4  # skipped because something upstream failed
    BLOCKED_OPEN = 5
    VOID = 6  # skipped because a failure it waits for did not happen


# The members that nearly every event names: finding one in its enum costs Python 3.11 five times what a global does.
PENDING, RUNNING, SUCCEEDED, SKIPPED = Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.SKIPPED
NOWHERE, READY, UNDECIDED = Place.NONE, Place.READY, Standing.OPEN

# What a need is worth, by the standing of the needed step (the table's columns) and the need's `when`.
OPEN, MET, DEAD, DEAD_OPEN, VOID = range(5)
WORTH: dict[When, tuple[int, ...]] = {
    #              OPEN  OK    FAILED FAILED_OPEN BLOCKED BLOCKED_OPEN VOID
    When.SUCCESS: (OPEN, MET, DEAD, DEAD_OPEN, DEAD, DEAD_OPEN, VOID),
    When.DONE: (OPEN, MET, MET, OPEN, MET, OPEN, MET),
    When.FAILURE: (OPEN, VOID, MET, OPEN, VOID, OPEN, VOID),
}


class Result(msgspec.Struct, eq=False, gc=False):
    """The latest success of a step: where its output is, and what it was made from. It holds nothing that holds it."""

    output: Any
    digest: str
    size: int
    blob: bool
    attempt: int
    inputs: tuple[Any, ...] = ()
    effect: Effect = Effect.REPEATABLE
    degraded: str = ""  # why, if it is
    because: str = ""  # the same as a sentence, if something stood in
    hole: bool = False
    by: str = ""
    fingerprint: str = ""
    unverified: bool = False
    files: dict[str, str] = {}  # path → digest of what it left in the workspace
    edited: tuple[str, ...] = ()  # those of them that a person wrote
    given: dict[str, Any] = {}  # short values of an output that is kept elsewhere

    @property
    def made(self) -> str:
        """What stands for all that the step made, when inputs are compared (R3)."""
        return signature(self.files | {"": self.digest}) if self.files else self.digest


class Heal:
    """What was tried on a step in this round; allocated only for steps that need healing."""

    __slots__ = (
        "alternatives",
        "args",
        "args_blob",
        "asked",
        "before",
        "category",
        "crashes",
        "failures",
        "fallback",
        "minded",
        "not_now",
        "producer",
        "repairs",
        "thought",
        "tool",
        "tried",
        "waited",
        "wished",
    )

    def __init__(self) -> None:
        self.tool: str | None = None  # an alternative tool, for this round
        self.args: dict[str, Any] | None = None  # adjusted arguments, for this round
        self.args_blob = ""  # where they are kept whole, if they are large and these are only what changed
        self.alternatives: tuple[str, ...] = ()  # those already tried
        self.tried: dict[tuple[str, str, str], int] = {}  # (tool, arguments, error) → how often
        self.repairs = 0
        self.crashes = 0  # calls that died with their process, and were called again at no cost
        self.producer = False
        self.fallback = False
        self.waited = 0.0
        self.wished = ""  # the tool that asked to be left alone for a while, during that
        self.not_now: float | None = None
        self.category: Category | None = None
        self.failures: list[dict[str, Any]] = []  # the latest failed attempts, as a mind gets to see them
        self.before = 0  # failures before the call, since the last one
        self.asked = -1  # the attempt that a mind was asked to think about
        self.thought: ev.Reflected | None = None  # what a mind, not the rules, made of the latest failure
        self.minded = False  # the other tool or arguments are a mind's choice


class EffectState:
    """What is known of the effect of a step's calls until one of them succeeds (V8); only for calls that need it.

    It lasts from round to round, and ends with a success, or where the step begins anew under a new key.
    """

    __slots__ = (
        "acting", "before", "cleared", "ever_lost", "key_at", "looked_at", "lost", "probed", "redefined",
        "rerun", "settles_at", "signature",
    )  # fmt: skip

    def __init__(self, signature: str, at: float) -> None:
        self.signature = signature  # of the call: tool and arguments
        self.key_at = at  # the first intent of that call, and so of its key
        self.before: Any = None  # what the first probe saw, which all later looks are compared with
        self.probed = False
        self.lost = False  # an attempt of it may have had its effect, and nothing has settled that
        self.ever_lost = False  # one was, whatever settled it: its effect may show late
        self.acting = False  # and may have it yet, whatever is found absent
        self.settles_at = 0.0  # when the latest call was over; absence counts from there
        self.looked_at = -1.0  # when the effect was last looked for; before 0: nothing to look for
        self.cleared = False  # that was right before the next call, and found nothing
        self.redefined = False  # the step is another one by now
        self.rerun = False  # a person wants the same call again, without a look


# What a yes may be to, other than one call's digest.
AHEAD = "ahead"  # the plan's own call, whatever its inputs will be
FIRST = "first"  # the first call that follows: histories of earlier versions say no more


class Gate(msgspec.Struct, eq=False, gc=False):
    """What people were shown of a gated step's call, and what they agreed to (X10)."""

    shown: ev.GateOpened | None = None  # the latest that was shown; `State.unshown` knows whether it still holds
    agreed: str = ""  # "": nothing; else a call's digest, AHEAD or FIRST
    yes: ev.Shown | None = None  # the call of the latest yes, to name it where the call becomes another one


class Track(msgspec.Struct, eq=False):
    """All that the history says of one step, now. There may be very many: a struct is built in a fifth of the time."""

    n: int
    step: Step
    order: tuple[int, int]
    edge: tuple[Track, When] | None = None  # itself as a plain need: one for all that need it
    needs: tuple[tuple[Track, When], ...] = ()
    out: Sequence[tuple[Track, When]] = ()  # a list, once somebody needs it: most plans end in leaves
    template: Template | None = None
    phase: Phase = Phase.PENDING
    place: Place = Place.NONE
    standing: Standing = Standing.OPEN
    open: int = 0
    dead: int = 0
    dead_open: int = 0
    void: int = 0
    attempt: int = 0  # never reset: an attempt number is never used twice
    calls: int = 0  # in this round, since the last repair
    call: ev.StepStarted | None = None
    inputs: tuple[Any, ...] = ()
    result: Result | None = None
    again: bool = False  # its result must be earned anew, or shown to be still good
    root: bool = False  # it runs even if its inputs did not change
    redo: bool = False  # its inputs changed while it was running
    automatic: bool = True
    stale: str = ""
    error: Error | None = None
    heal: Heal | None = None
    skip: ev.StepSkipped | None = None
    question: str = ""
    until: float = 0.0
    wait: float = 0.0  # how long that is from when it was scheduled
    gate: Gate | None = None
    minded: bool = False  # a mind wrote its definition
    wanted: bool = False  # a person wants its call, although it repeats an effect
    generation: int = 0
    announced: str = ""
    effects: EffectState | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    elapsed: float = 0.0
    cost: float = 0.0
    queue: str = ""  # where it waits, while it can start
    holds: ev.StepStarted | None = None  # the call under way whose reservation is held (H4)

    def healing(self) -> Heal:
        """The step's healing record of this round."""
        if self.heal is None:
            self.heal = Heal()
        return self.heal

    def gating(self) -> Gate:
        """What is known of the step's gate."""
        if self.gate is None:
            self.gate = Gate()
        return self.gate

    @property
    def agreed(self) -> str:
        """What a person agreed to: nothing (""), a call's digest, AHEAD or FIRST."""
        return self.gate.agreed if self.gate is not None else ""

    def disagree(self) -> None:
        """The call is another one now: a person has to agree anew. What was agreed to stays known."""
        if self.gate is not None:
            self.gate.agreed = ""

    @property
    def id(self) -> str:
        """The step's id."""
        return self.step.id

    def is_covered(self, now: float) -> bool:
        """Whether the service still remembers the key of a call that is lost, so that it may be repeated (E2)."""
        call, effects = self.call, self.effects
        if call is None or effects is None or not effects.lost:
            return False
        return 0 <= now - effects.key_at < call.idempotent_for  # a clock that was set back tells nothing

    def __repr__(self) -> str:
        return f"Track({self.id!r}, {self.phase.name}, {self.standing.name})"


class Ready:
    """The steps that can start, cheap to take in order of priority and plan; one queue per limited tool.

    With one queue a tool at its limit would have to be walked past each time; with a queue of its own it is not
    looked at. Members leave by name; their heap entries are dropped when they surface.
    """

    __slots__ = ("_heaps", "members")

    def __init__(self) -> None:
        self.members: dict[int, Track] = {}
        self._heaps: dict[str, list[tuple[int, int]]] = {}

    def add(self, track: Track, queue: str) -> None:
        if self.members.get(track.n) is not track or track.queue != queue:
            self.members[track.n] = track
            track.queue = queue
            heapq.heappush(self._heaps.setdefault(queue, []), track.order)

    def discard(self, track: Track) -> None:
        if self.members.pop(track.n, None) is not None and not self.members:
            self._heaps.clear()  # nothing is left but entries of members that went

    def first(self, free: Callable[[str], bool] | None, room: int) -> Generator[Track]:
        """The first members in order; with `free`, only of the queues that are free at that moment."""
        if free is None and room * 16 > len(self.members):
            heap = self._heaps.get("", [])
            heap.sort()  # a sorted list is a heap
            members = self.members
            gone = 0
            for order in heap:
                found = members.get(order[1])
                if found is not None and found.order == order:
                    break
                gone += 1
            del heap[:gone]
            for order, _ in groupby(heap):
                found = members.get(order[1])
                if found is not None and found.order == order:
                    yield found
                    room -= 1
                    if not room:
                        return
            return
        taken: list[tuple[str, tuple[int, int]]] = []
        try:
            while len(taken) < room:
                best = self._best(free)
                if best is None:
                    return
                order = heapq.heappop(self._heaps[best])
                taken.append((best, order))
                yield self.members[order[1]]
        finally:
            for queue, order in taken:
                heapq.heappush(self._heaps[queue], order)

    def _best(self, free: Callable[[str], bool] | None) -> str | None:
        best: str | None = None
        for queue, heap in self._heaps.items():
            while heap and not self._alive(queue, heap):
                heapq.heappop(heap)
            if heap and (free is None or free(queue)) and (best is None or heap[0] < self._heaps[best][0]):
                best = queue
        return best

    def _alive(self, queue: str, heap: list[tuple[int, int]]) -> bool:
        found = self.members.get(heap[0][1])
        doubled = len(heap) > 1 and (heap[0] == heap[1] or (len(heap) > 2 and heap[0] == heap[2]))
        return found is not None and found.queue == queue and found.order == heap[0] and not doubled

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, track: Track) -> bool:
        return track.n in self.members


def same_inputs(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two results were made from the same: equal outputs of all needs, and the same work (R3)."""
    if one[1:] != other[1:] or not one or not other:
        return False
    return one[0] is other[0] or definition(one[0]) == definition(other[0])


def call_digest(tool: str, args: str, files: Mapping[str, str]) -> str:
    """What a confirmation is to: a tool, the signature of its arguments, the files that it reads (X10)."""
    return pack([tool, args, dict(files)]).digest


def signature(args: Any, blob: str = "") -> str:
    """What stands for a call's arguments when calls are compared: the order of keys is nothing, nor is where they are.

    Large arguments are kept under this very name.
    """
    return blob if args is None else pack(args).digest
