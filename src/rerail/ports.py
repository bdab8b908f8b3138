"""The ports: what the engine asks of the world, a few methods each. Adapters implement them; tests fake them.

Rules of this file:
- Protocols and the plain values they exchange; no behaviour.
- A store speaks of runs, rows and bytes. It knows no events and no SQL leaks out of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.i18n import tell

# -- Time ---------------------------------------------------------------------------------------------------------


TERM: Final = 5.0  # seconds for which a lease that the store confirmed is relied on (contract E11)


class Clock(Protocol):
    """Where time comes from. Waiting itself is asyncio's, so that a virtual event loop can make it pass."""

    @property
    def polls(self) -> bool:
        """Whether it makes sense to look for other processes' writes at intervals; false under virtual time."""
        ...

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def uptime(self) -> float:
        """Seconds of a clock that never jumps, and also counts while the process or the machine is suspended."""
        ...

    def external(self) -> AbstractContextManager[None]:
        """A thread or process is at work: a virtual clock must not jump ahead of it."""
        ...


# -- Stores -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from any other that ever had its pid."""

    host: str  # its name and, where that can be told, a mark of the machine and of the space that its pids are of
    pid: int
    started: float  # when the process started, as the machine tells it
    worker: bool = False  # it exists for this run alone, so that ending it harms nothing else

    def __str__(self) -> str:
        return f"{self.host.partition('#')[0]}:{self.pid}"  # what tells machines of one name apart is for us alone


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one run's history. The fence number is higher for each later holder."""

    run: str
    owner: Owner
    fence: int


@dataclass(frozen=True, slots=True)
class Head:
    """A run as lists show it; derived from its history, written with it, never read back as truth.

    `updated_at` is the time of its last event; of a run without any, the time it was made. `renewed_at` is by the clock
    of whoever asks: a store for several machines keeps it by its own.
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


@dataclass(frozen=True, slots=True)
class Row:
    """One stored event: its place, its time, its bytes."""

    seq: int
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """What one append writes, all of it or nothing."""

    run: str
    after: int  # the expected last sequence number
    rows: Sequence[tuple[float, bytes]]  # (at, event); numbered after+1, after+2, …
    fence: int
    blobs: Mapping[str, bytes] = field(default_factory=dict)  # digest → content, stored before the rows that name them
    status: str = ""  # the head's new status, if it changed
    objective: str = ""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is wrong with a store itself, whatever its runs say."""

    kind: str  # pages: what it holds cannot be trusted | orphans: of runs that are not there, or named by none
    what: str  # pages: what was seen there | orphans: histories (a loss: never cleared), contents or actions
    count: int = 1


class Conflict(Exception):
    """Somebody else appended first: the expected sequence number is not the last one."""


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
    """Histories, leases, an inbox for people's actions, and contents by digest.

    Errors: `Conflict`, `Fenced`, `Taken` as named below; `Unavailable` where trying again may help, else `Unusable`.
    """

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        ...

    async def open(self) -> None:
        """Connect and prepare; `Unusable` says why it cannot be used."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...

    async def create(self, head: Head) -> None:
        """Make a run with an empty history; `Conflict` if its id is taken."""
        ...

    async def append(self, batch: Batch) -> None:
        """Write all rows and contents, durably, or nothing. `Conflict` and `Fenced` write nothing.

        The same batch again, after its acknowledgement was lost, is recognised as one's own and not doubled.
        """
        ...

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """The next rows of a history, in order; empty at its end."""
        ...

    async def head(self, run: str) -> Head | None:
        """One run as lists show it."""
        ...

    async def heads(
        self,
        *,
        prefix: str = "",
        status: Sequence[str] = (),
        parent: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 1000,
    ) -> list[Head]:
        """Runs, newest first; `prefix` is of the run id, `parent` an exact id.

        ``before`` (when a run was made, and its id) leaves out that run and all that come before it in this order. The
        run need not be there any more.
        """
        ...

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        """Take the lease if nobody has it, or if its fence is `over` (the caller saw that its holder is dead).

        `Taken` otherwise. Each claim raises the fence number.
        """
        ...

    async def renew(self, lease: Lease, now: float) -> None:
        """Say that the holder lives; `Fenced` if it is not the holder any more."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it was lost already."""
        ...

    async def post(self, run: str, data: bytes) -> int:
        """Put a person's action into the run's inbox; returns its number."""
        ...

    async def inbox(self, run: str) -> list[tuple[int, bytes]]:
        """The actions nobody has answered yet, in order."""
        ...

    async def answer(self, run: str, number: int, data: bytes) -> None:
        """Answer an action; it leaves the inbox."""
        ...

    async def answered(self, run: str, number: int) -> bytes | None:
        """The answer to an action, once there is one."""
        ...

    async def blob(self, digest: str) -> bytes | None:
        """A content by its digest; None if it is not there (any more)."""
        ...

    async def sweep(self, before: float) -> int:
        """Drop contents that only runs completed before that time refer to; returns how many."""
        ...

    async def remove(self, heads: Sequence[Head]) -> int:
        """Remove these runs, all of them whole or none: histories, actions, contents that no other run refers to.

        `Conflict` if one is not there, or not as it was seen: its history went on, it was claimed or is held, or a run
        that is not among them has it as parent. Returns how many contents went.
        """
        ...

    async def shrink(self) -> int:
        """Give back the room that nothing needs any more, where that can be done; returns how many bytes."""
        ...

    async def examine(self) -> list[Flaw]:
        """What is wrong with the store itself; changes nothing, and may take long."""
        ...

    async def clear(self) -> int:
        """Drop actions of runs that are not there, and contents that no run refers to; returns how many.

        A history stays, listed or not, and with it all that it needs: only a person can say that it is nobody's.
        """
        ...

    async def changed(
        self,
        run: str,
        after: int,
        timeout: float,  # noqa: ASYNC109 - a time limit, not an error
        *,
        inbox: bool = False,
    ) -> bool:
        """Wait until the history goes past `after`, or, if asked, the inbox has something; False once time is over."""
        ...

    async def freed(self, timeout: float) -> bool:  # noqa: ASYNC109 - a time limit, not an error
        """Wait until somebody gives back a run that is not at rest; False once time is over.

        A holder that died gives nothing back: whoever waits for runs also looks for them once in a while.
        """
        ...


@runtime_checkable
class Surveyed(Protocol):
    """A store that may be damaged in places, and whose other places can be read all the same."""

    async def survey(self) -> list[str]:
        """The ids of all runs of which anything can be found, listed or not."""
        ...


# -- Tools --------------------------------------------------------------------------------------------------------


class Context(Protocol):
    """What a tool may ask for besides its arguments (M3)."""

    run: str
    step: str
    attempt: int
    key: str  # the idempotency key: the same across crashes and retries of the same arguments


class Tool(Protocol):
    """Something that can be called: what it promises, and how."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Call the tool; returns its output or raises."""
        ...

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> Any:
        """A read-only look at the effect: true, false or `Verified`. Only called if the spec says `verifiable`."""
        ...

    async def probe(self, args: dict[str, Any], ctx: Any) -> Any:
        """A read-only look before the call. Only called if the spec says `probes`."""
        ...


class NotBegun(Exception):
    """A call was cancelled before its tool was called: nothing can have happened."""


class Executor(Protocol):
    """Where calls are made, if not here."""

    async def open(self) -> None:
        """Get ready; `RerailError` says why it cannot be."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...

    def takes(self, tool: Tool) -> bool:
        """Whether this tool is called there; the others are called here."""
        ...

    async def call(
        self,
        tool: Tool,
        args: Mapping[str, Any],
        ctx: Any,
        resources: Mapping[str, float],
        begun: Callable[[float], None],
    ) -> Any:
        """Call the tool; returns its output or raises. Cancelling ends the call, `NotBegun` if it had not begun.

        ``begun`` is told for how many seconds the tool has been at work: from there on its time counts. A call that is
        over soon need not say so.
        """
        ...


# -- Minds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of an output that is too large to be shown whole."""

    text: str
    size: int  # bytes of the whole


@dataclass(frozen=True, slots=True)
class Consultation:
    """One call of a language model: what it cost, and why its reply was of no use, if it was not."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    elapsed: float = 0.0
    problem: str = ""


@dataclass(slots=True)
class Ledger:
    """What a question has cost so far, written down while it is being answered: so that it is known even to somebody
    who can wait for the answer no longer."""

    calls: list[Consultation] = field(default_factory=list)
    closed: bool = False  # nothing more may be spent on it
    watched: bool = False  # somebody will stop waiting for it, whatever happens


@dataclass(frozen=True, slots=True)
class Question:
    """Something put to a mind: reflect, repair, replan or judge."""

    kind: str
    run: str
    step: str
    objective: str
    table: Sequence[Mapping[str, Any]]  # one row per step, always whole
    tools: Mapping[str, ToolSpec]
    error: Mapping[str, Any] | None = None
    definition: Mapping[str, Any] | None = None
    seq: int = 0
    definitions: Sequence[Mapping[str, Any]] = ()  # every step of the plan, where a new plan is asked for
    attempts: Sequence[Mapping[str, Any]] = ()  # the step's failed attempts: tool, arguments, error
    outputs: Mapping[str, Any] = field(default_factory=dict)  # step → its output, cut to a sample where it is large
    events: Sequence[Mapping[str, Any]] = ()  # the latest events, beside the table and never instead of it
    fewest: int = 0  # events that are shown even where room is scarce
    reason: str = ""  # why it is asked, where the table does not say
    tokens_left: int | None = None  # what the run's budgets leave for the answer
    cost_left: float | None = None
    ledger: Ledger = field(default_factory=Ledger, compare=False)


class Mind(Protocol):
    """Somebody who answers: rules, a person, a script, a model. Every answer is checked before it is believed."""

    @property
    def answers(self) -> Sequence[str]:
        """The kinds of questions it takes."""
        ...

    async def answer(self, question: Question) -> Any:
        """A mapping, or None for 'nothing to offer'; an `Answer` where it also has to say what it cost.

        Each call also goes into the question's ledger when it is made: an answer may be cut off.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with what it cost to get; `failed` says why there is none."""

    value: Any = None
    consultations: Sequence[Consultation] = ()
    failed: str = ""


class Unanswered(Exception):
    """A mind broke down while it thought; what that cost all the same. Why is its cause."""

    def __init__(self, consultations: Sequence[Consultation]) -> None:
        super().__init__(tell("mind.broke_down"))
        self.consultations = consultations


# -- Models -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a language model is asked: in which role, in which words, and in which shape it has to answer."""

    role: str  # plan, reflect, repair, replan or judge
    system: str
    user: str
    schema: Mapping[str, Any]  # JSON Schema of the answer: always an object


@dataclass(frozen=True, slots=True)
class Reply:
    """What a language model said, and what that cost. Nothing of it is believed yet."""

    answer: Any  # a mapping where the provider gave structured output, else the text as it came
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class ModelFailed(Exception):
    """A model gave no reply: out of reach, refused, too slow. The message never holds a key."""

    def __init__(
        self, message: str, *, transient: bool, retry_after: float | None = None, spent: Reply | None = None
    ) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after
        self.spent = spent  # tokens and cost of what was billed all the same; its answer is None


class Model(Protocol):
    """A language model behind any provider."""

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask once; `ModelFailed` if there is no reply."""
        ...


# -- Notices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """That a run ended or waits. The id is the same at every attempt, so that doubles can be dropped."""

    id: str
    about: str  # done, failed, waiting
    run: str
    document: Mapping[str, Any]  # all of it, as JSON data


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of telling somebody."""

    kind: str  # command, webhook
    target: str  # without anything that may be secret
    ok: bool
    attempts: int = 1
    error: str = ""


class Notifier(Protocol):
    """Who tells people that a run ended or waits."""

    @property
    def on(self) -> Container[str]:
        """What is told: done, failed, waiting."""
        ...

    @property
    def patience(self) -> float:
        """The longest that telling can take, in seconds."""
        ...

    async def send(self, notice: Notice) -> Sequence[Delivery]:
        """Tell everybody, within `patience`; what came of it, and nothing is raised."""
        ...


Events = AsyncIterator[Any]
Alive = Callable[[Owner], bool | None]


class View(Protocol):
    """Something that shows a run's state to people, outside of the store."""

    def write(self, state: State) -> None:
        """The state is this now, and durable."""
        ...
