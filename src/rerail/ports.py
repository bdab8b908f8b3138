"""The ports: what the engine needs of the outside, a few methods each. Adapters implement them; tests fake them.

Rules of this file:
- Protocols and the plain values they exchange; no behaviour.
- A store holds runs, rows and bytes. It knows no events, and no SQL leaks out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypedDict, Unpack, runtime_checkable

from rerail.i18n import Told, tell
from rerail.kernel.state import State
from rerail.plan.tool_spec import ToolSpec

# -- Time ---------------------------------------------------------------------------------------------------------


TERM: Final = 5.0  # seconds for which the store's confirmation of a lease is valid (contract E11)


class Clock(Protocol):
    """The source of time. Waiting itself is asyncio's, so that a virtual event loop can advance it."""

    @property
    def polls(self) -> bool:
        """True if polling for other processes' writes makes sense; False under virtual time."""

    def now(self) -> float:
        """Return seconds since the epoch."""

    def uptime(self) -> float:
        """Return seconds of a clock that never jumps, and also counts while the process or the machine is suspended."""

    def external(self) -> AbstractContextManager[None]:
        """Mark work in a thread or process: a virtual clock must not jump ahead of it."""


# -- Stores -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, distinct from every other one that ever had its pid."""

    host: str  # its name and, where available, a mark of the machine and of its pid namespace
    pid: int
    started: float  # the start time of the process, as the machine reports it
    worker: bool = False  # it exists for this run alone, so ending it harms nothing else

    def __str__(self) -> str:
        return f"{self.host.partition('#')[0]}:{self.pid}"  # the mark after the name is internal


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one run's history. The fence number is higher for each later holder."""

    run: str
    owner: Owner
    fence: int


@dataclass(frozen=True, slots=True)
class Head:
    """A run as a row of a list; derived from its history, written with it, never read back as truth.

    `updated_at` is the time of its last event; without events, the time of its creation. `renewed_at` is by the clock
    of the reading process: a store for several machines keeps it by its own.
    """

    run: str
    seq: int = 0
    status: str = "pending"
    objective: str = ""
    parent: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    owner: Owner | None = None
    fence: int = 0
    renewed_at: float = 0.0


class RunFilters(TypedDict, total=False):
    """Filters of a list of runs; without any, the newest 1,000."""

    prefix: str  # of the run id
    status: Sequence[str]
    parent: str | None  # an exact id
    # A run's creation time, and its id: leaves out that run and all earlier rows of this order. It may be gone by then.
    before: tuple[float, str] | None
    limit: int


@dataclass(frozen=True, slots=True)
class Row:
    """One stored event: its sequence number, its time, its bytes."""

    seq: int
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one append: written whole or not at all."""

    run: str
    after: int  # the expected last sequence number
    rows: Sequence[tuple[float, bytes]]  # (at, event); numbered after+1, after+2, …
    fence: int
    blobs: Mapping[str, bytes] = field(default_factory=dict)  # digest → content, stored before the rows that name them
    status: str = ""  # the head's new status, if it changed
    objective: str = ""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A fault of the store itself, apart from the contents of its runs."""

    kind: str  # pages: contents cannot be trusted | orphans: of missing runs, or not named by any
    what: str  # pages: the finding | orphans: histories (a loss: never cleared), contents or actions
    count: int = 1


class Conflict(Exception):
    """Another process appended first: the expected sequence number is not the last one."""


class Fenced(Exception):
    """The lease was lost: a later holder has a higher fence number."""


class Taken(Exception):
    """The run has an owner; `head` tells which."""

    def __init__(self, head: Head) -> None:
        super().__init__(f"run {head.run} is owned by {head.owner}")
        self.head = head


class Unavailable(Exception):
    """The store cannot be read or written now; trying again may help."""


class Unusable(Exception):
    """The store cannot be used (full, read-only, no database, from a newer version); trying again will not help."""

    def __init__(self, message: str, code: str = "STORE_FAILED") -> None:
        super().__init__(message)
        self.code = code


class Store(Protocol):
    """Histories, leases, an inbox for commands, and contents by digest.

    Errors: `Conflict`, `Fenced`, `Taken` as named below; `Unavailable` where trying again may help, else `Unusable`.
    """

    @property
    def url(self) -> str:
        """Return the address the store was opened with."""

    @property
    def caveats(self) -> Sequence[Told]:
        """Return the possible data losses, in sentences for users; known once it is open. Default: none."""

    async def open(self) -> None:
        """Connect and prepare; `Unusable` says why it cannot be used."""

    async def close(self) -> None:
        """Close all connections."""

    async def create(self, head: Head) -> None:
        """Make a run with an empty history; `Conflict` if its id is taken."""

    async def append(self, batch: Batch) -> None:
        """Write all rows and contents, durably, or nothing. `Conflict` and `Fenced` write nothing.

        The same batch again, after a lost acknowledgement, is recognised and not written twice.
        """

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """Return the next rows of a history, in order; empty at its end."""

    async def head(self, run: str) -> Head | None:
        """Return one run as a row of a list."""

    async def heads(self, **filters: Unpack[RunFilters]) -> list[Head]:
        """Return runs, newest first."""

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """Take the lease if it is free, or if its fence is `over` (the caller saw that its holder is dead).

        `Taken` otherwise. Each claim raises the fence number.
        """

    async def renew(self, lease: Lease, now: float) -> None:
        """Renew the lease; `Fenced` if it has another holder now."""

    async def release(self, lease: Lease) -> None:
        """Release the lease; nothing happens if it was lost already."""

    async def post(self, run: str, data: bytes) -> int:
        """Put a command into the run's inbox; return its number."""

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        """Return the unanswered commands, in order."""

    async def answer(self, run: str, number: int, data: bytes) -> None:
        """Answer a command; it leaves the inbox. The first answer stays."""

    async def answered(self, run: str, number: int) -> bytes | None:
        """Return the answer to a command, once there is one."""

    async def blob(self, digest: str) -> bytes | None:
        """Return a content by its digest; None if it is missing or expired."""

    async def sweep(self, before: float) -> int:
        """Drop contents that only runs completed before that time refer to; return their number."""

    async def remove(self, heads: Sequence[Head]) -> int:
        """Remove these runs, all of them whole or none: histories, commands, contents that no other run refers to.

        `Conflict` if a run is missing, or has changed since it was seen: its history grew, it was claimed or is held,
        or a run outside of the set has it as parent. Return the number of removed contents.
        """

    async def shrink(self) -> int:
        """Release unused space where possible; return the number of bytes."""

    async def examine(self) -> list[Flaw]:
        """Return the faults of the store itself; changes nothing, and may take long."""

    async def clear(self) -> int:
        """Drop commands of missing runs, and contents that no run refers to; return their number.

        A history stays, listed or not, with everything it needs: only a user can decide that it is not needed.
        """

    async def changed(self, run: str, after: int, timeout: float, *, inbox: bool = False) -> bool:  # noqa: ASYNC109
        """Wait until the history goes past `after`, or, if asked, the inbox has a command; False at the timeout."""

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        """Wait until a run that is not at rest is released; False at the timeout.

        A dead holder releases nothing: a waiting process also searches for runs at intervals.
        """


@runtime_checkable
class Surveyed(Protocol):
    """A store on this machine, with possible damage; undamaged parts stay readable."""

    async def probe(self) -> None:
        """Write something and take it back; `Unusable` or `Unavailable` says why nothing can be written."""

    async def survey(self) -> list[str]:
        """Return the ids of all runs with any trace in the store, listed or not."""


# -- Tools --------------------------------------------------------------------------------------------------------


class Tool(Protocol):
    """A callable with its promises.

    A tool needs ``spec`` and ``call``; ``rerail.kernel.foreign`` supplies defaults for other missing members.
    """

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def is_async(self) -> bool:
        """True if a call runs on the event loop itself; else real time passes for it. Default: no."""

    @property
    def wants_context(self) -> bool:
        """True if a call reads its context. Default: yes."""

    @property
    def answer_of(self) -> Callable[[Any], Any] | None:
        """Return the other side's answer, without the tool's own envelope. Default: the whole output."""

    @property
    def looks_outside(self) -> bool:
        """True if `verify` or `probe` runs outside of the event loop. Default: no."""

    @property
    def stays(self) -> bool:
        """True if it can only be called in this process. Default: no."""

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Call the tool; return its output or raise."""

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> Any:
        """A read-only look at the effect: true, false or `Verified`. Only called if the spec says `verifiable`."""

    async def probe(self, args: dict[str, Any], ctx: Any) -> Any:
        """A read-only look before the call. Only called if the spec says `probes`."""


class NotBegun(Exception):
    """A call was cancelled before its tool was called: it had no effect."""


Begun = Callable[[float], None]  # gets the number of seconds the tool has been running


class Executor(Protocol):
    """An executor that makes calls in place of the engine."""

    @property
    def here(self) -> bool:
        """True if its calls run in this process, and end with it. Default: no."""

    async def open(self) -> None:
        """Prepare; `RerailError` says why it cannot be used."""

    async def close(self) -> None:
        """Close all connections."""

    def takes(self, tool: Tool) -> bool:
        """True if this executor calls the tool; other tools are called here."""

    async def call(
        self, tool: Tool, args: Mapping[str, Any], ctx: Any, resources: Mapping[str, float], begun: Begun
    ) -> Any:
        """Call the tool; return its output or raise. Cancelling ends the call, `NotBegun` if it had not begun.

        The tool's timeout counts from what ``begun`` is told; a short call need not report it.
        """


# -- Minds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of an output that is too large to be shown whole."""

    text: str
    size: int  # bytes of the whole


@dataclass(frozen=True, slots=True)
class Consultation:
    """One call of a language model: its cost, and why its reply was unusable, if it was."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    problem: str = ""


@dataclass(slots=True)
class Ledger:
    """The cost of a question so far, recorded while it is being answered. A caller that stops waiting
    still learns it."""

    calls: list[Consultation] = field(default_factory=list)
    closed: bool = False  # no further spending is allowed
    watched: bool = False  # a timeout ends the wait in any case


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a mind: reflect, repair, replan or judge."""

    kind: str
    run: str
    step: str
    objective: str
    table: Sequence[Mapping[str, Any]]  # one row per step, always whole
    tools: Mapping[str, ToolSpec]
    error: Mapping[str, Any] | None = None
    definition: Mapping[str, Any] | None = None
    seq: int = 0
    definitions: Sequence[Mapping[str, Any]] = ()  # every step of the plan, if a new plan is requested
    attempts: Sequence[Mapping[str, Any]] = ()  # the step's failed attempts: tool, arguments, error
    outputs: Mapping[str, Any] = field(default_factory=dict)  # step → its output, cut to a sample if it is large
    events: Sequence[Mapping[str, Any]] = ()  # the latest events, beside the table and never instead of it
    fewest: int = 0  # minimum number of events, even if room is scarce
    reason: str = ""  # the reason for the question, if the table does not show it
    tokens_left: int | None = None  # what the run's budgets leave for the answer
    cost_left: float | None = None
    ledger: Ledger = field(default_factory=Ledger, compare=False)


class Mind(Protocol):
    """A source of answers: rules, a user, a script, a model. Every answer is checked before use."""

    @property
    def name(self) -> str:
        """Return its name in histories. Default: mind."""

    @property
    def patience(self) -> float | None:
        """Return the longest time that an answer can take, in seconds. Default: what the settings allow a model."""

    @property
    def answers(self) -> Sequence[str]:
        """Return the kinds of questions it answers."""

    async def answer(self, question: Question) -> Any:
        """Return a mapping, or None for 'nothing to offer'; an `MindAnswer` to report its cost too.

        Each call is also entered in the question's ledger when it is made: an answer may be cut off.
        """


@dataclass(frozen=True, slots=True)
class MindAnswer:
    """An answer with its cost; `failed` says why there is none."""

    value: Any = None
    consultations: Sequence[Consultation] = ()
    failed: str = ""


class Unanswered(Exception):
    """A mind failed during its answer; this holds the cost so far, and the reason as its cause."""

    def __init__(self, consultations: Sequence[Consultation]) -> None:
        super().__init__(tell("mind.broke_down"))
        self.consultations = consultations


# -- Models -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for a language model: its role, its text, and the schema of the answer."""

    role: str  # plan, reflect, repair, replan or judge
    system: str
    user: str
    schema: Mapping[str, Any]  # JSON Schema of the answer: always an object


@dataclass(frozen=True, slots=True)
class Reply:
    """A language model's reply and its cost, still unchecked."""

    answer: Any  # a mapping if the provider gave structured output, else the raw text
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class ModelFailed(Exception):
    """A model gave no reply: unreachable, refused, too slow. The message never holds a key."""

    def __init__(
        self, message: str, *, transient: bool, retry_after: float | None = None, spent: Reply | None = None
    ) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after
        self.spent = spent  # tokens and cost billed nevertheless; its answer is None


class Model(Protocol):
    """A language model behind any provider."""

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask once; `ModelFailed` if there is no reply."""


# -- Notices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification that a run ended or waits. Its id is the same at every attempt, for deduplication."""

    id: str
    about: str  # done, failed, waiting
    run: str
    document: Mapping[str, Any]  # the whole notification, as JSON data


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of one delivery."""

    kind: str  # command, webhook
    target: str  # redacted
    ok: bool
    attempts: int = 1
    error: str = ""


class Notifier(Protocol):
    """Notifies users that a run ended or waits."""

    @property
    def on(self) -> Container[str]:
        """Return the events to notify of: done, failed, waiting."""

    @property
    def patience(self) -> float:
        """Return the longest time of a delivery, in seconds."""

    async def send(self, notice: Notice) -> Sequence[Delivery]:
        """Deliver to all targets within `patience`; return the results, and never raise."""


class View(Protocol):
    """Shows a run's state outside of the store."""

    def write(self, state: State) -> None:
        """Take the current, durable state."""
