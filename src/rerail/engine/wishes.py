"""A person's wish as data, so that it can come from any process through the store's inbox (SPEC T7, X7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rerail.core import commands
from rerail.core import events as ev
from rerail.core.commands import Faulty, Preview, Refusal
from rerail.core.dialects import read_steps
from rerail.core.events import Event
from rerail.core.outlook import outlook
from rerail.core.plan import Fault
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.core.values import NotJson, pack, plain_text, unpack
from rerail.engine.files import media_of
from rerail.engine.outputs import INLINE
from rerail.errors import PlanError, Refused, RerailError
from rerail.i18n import Told, put_together, taken_apart, tell

ODD = (
    msgspec.MsgspecError,
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    RecursionError,
)  # what odd input can cause
NUMBERED = (ev.Acted, ev.Cancelled, ev.Resumed)


class Wish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody wants done to a run."""

    action: str  # pause, cancel, skip, confirm, refuse, resolve, retry, add
    by: str = ""
    step: str | None = None
    steps: tuple[Any, ...] = ()  # ids to retry, or definitions to add
    force: bool = False
    outcome: str = ""  # for resolve: succeeded, failed, rerun
    value: Any = None  # an output, changes of a step; for confirm: large arguments as they are shown
    reason: str = ""
    files: tuple[ev.FileMade, ...] = ()  # for confirm: files given another content; for resolve: those the step left
    digest: str = ""  # for confirm: of the call that the person saw
    ahead: bool = False  # for confirm: the call is not known yet
    args: dict[str, Any] = {}  # for confirm: arguments that the person changed
    number: int = 0  # its place in the inbox, if it came that way
    key: str = ""  # its name, which stays when its run is copied to a store that counts otherwise


@dataclass(slots=True)
class Granted:
    """The events that grant a wish, and the contents they name."""

    events: list[Event]
    blobs: dict[str, bytes] = field(default_factory=dict)


def grant(state: State, tools: Tools, wish: Wish) -> Granted:
    """The events that grant a wish; `Refusal` or `Faulty` if the state does not allow it."""
    try:
        granted = _grant(state, tools, wish)
    except ODD as odd:
        # Whatever somebody hands in, it is theirs to hear of; the run, and its lease, must not suffer from it.
        message = tell("refuse.run.action_unreadable", error=f"{type(odd).__name__}: {odd}"[:300])
        raise Refusal("VALUE_INVALID", message) from odd
    if wish.number or wish.key:
        told = {"wish": wish.key} if wish.key else {"number": wish.number}
        granted.events = [
            msgspec.structs.replace(event, **told) if isinstance(event, NUMBERED) else event for event in granted.events
        ]
    return granted


def foresee(state: State, tools: Tools, wish: Wish, now: float) -> Preview:
    """What granting a wish would lead to; refused as the wish would be. The state is used up."""
    granted = grant(state, tools, wish)
    step = wish.step or next((event.step for event in granted.events if isinstance(event, ev.Acted)), "")
    return outlook(state, tools, step, granted.events, now)


def _grant(state: State, tools: Tools, wish: Wish) -> Granted:
    step = wish.step or ""
    match wish.action:
        case "pause":
            return Granted(commands.pause(state, wish.by))
        case "resume":
            return Granted(commands.resume(state, wish.by))
        case "cancel":
            return Granted(commands.cancel(state, wish.by, wish.reason))
        case "skip":
            return Granted(commands.skip(state, step, wish.by, wish.reason))
        case "confirm":
            return _confirm(state, tools, wish)
        case "refuse":
            return Granted(commands.refuse(state, wish.step, wish.by))
        case "retry":
            return Granted(commands.retry_live(state, [str(s) for s in wish.steps], wish.by, force=wish.force))
        case "resolve":
            return _resolve(state, wish, step)
        case "add":
            return _add(state, tools, wish)
        case "repair":
            changes = wish.value if isinstance(wish.value, dict) else {}
            return Granted(commands.repair(state, step, changes, tools, wish.by))
        case "notified":  # no person's: whoever told people of this run has somebody else to write it down
            return Granted(list(msgspec.convert(wish.value, list[ev.Notified])))
        case _:
            raise Refusal("STEP_NOT_WAITING", tell("refuse.run.action_unknown", action=wish.action))


def storable(wish: Wish) -> Wish:
    """The wish in words that can be written down; `Refusal` if what it brings along is no JSON."""
    try:
        pack([wish.value, wish.steps, wish.args])
    except NotJson as error:
        raise Refusal("VALUE_INVALID", tell("refuse.run.value_invalid", error=error)) from error
    return msgspec.structs.replace(wish, by=plain_text(wish.by, 200), reason=plain_text(wish.reason, 2000))


def _confirm(state: State, tools: Tools, wish: Wish) -> Granted:
    edits = commands.Edits(wish.args, wish.files, wish.value)
    events = commands.confirm(state, wish.step, wish.by, digest=wish.digest, ahead=wish.ahead, edits=edits, tools=tools)
    acted, blobs = events[-1], dict[str, bytes]()
    call = acted.call if isinstance(acted, ev.Acted) else None
    if call is not None and call.args is not None:
        packed = pack(call.args)
        if len(packed.data) > INLINE:
            blobs[packed.digest] = packed.data
            call = msgspec.structs.replace(call, args=None, args_blob=packed.digest)
            events = [msgspec.structs.replace(acted, call=call)]
    return Granted([*_files(state, wish), *events], blobs)


def _resolve(state: State, wish: Wish, step: str) -> Granted:
    if wish.outcome == "failed":
        return Granted(commands.resolve_failed(state, step, wish.by))
    if wish.outcome == "rerun":
        return Granted(commands.resolve_rerun(state, step, wish.by))
    packed = pack(wish.value)
    blob = len(packed.data) > INLINE
    output = unpack(packed.data)
    events = commands.resolve_succeeded(state, step, wish.by, output, packed, blob=blob, files=wish.files)
    if packed.digest:
        track = state.tracks[step]
        events.insert(0, ev.ArtifactCreated(step, step, track.attempt, packed.digest, len(packed.data)))
    return Granted([*_files(state, wish), *events], {packed.digest: packed.data} if blob else {})


def _files(state: State, wish: Wish) -> list[Event]:
    """The files that a wish gives another content, or declares to be what a step made, as artifacts."""
    made: list[Event] = []
    for file in wish.files:
        track = state.tracks.get(file.step)
        if track is not None:
            attempt = track.result.attempt if track.result is not None and wish.action == "confirm" else track.attempt
            artifact = (file.path, file.step, attempt, file.digest, file.size, media_of(file.path), file.path)
            made.append(ev.ArtifactCreated(*artifact))
    return made


def _add(state: State, tools: Tools, wish: Wish) -> Granted:
    faults: list[Fault] = []
    steps = read_steps(list(wish.steps), faults, known=list(state.tracks))
    return Granted(commands.add(state, steps, tools, wish.by, faults))


# -- Answers that travel back -------------------------------------------------------------------------------------


def error_for(problem: Refusal | Faulty) -> RerailError:
    """A refusal as the exception that callers catch."""
    if isinstance(problem, Faulty):
        return PlanError(tell("refuse.run.change_refused"), problem.faults)
    return Refused(problem.message, problem.code, hint=problem.hint)


@contextmanager
def refusals() -> Iterator[None]:
    """What the core refuses, as the exception that callers catch."""
    try:
        yield
    except (Refusal, Faulty) as problem:
        raise error_for(problem) from None


def encode_answer(problem: RerailError | None) -> bytes:
    """The answer to a wish as bytes: its sentences in English, and what they were made of, for a reader elsewhere."""
    if problem is None:
        return msgspec.json.encode({"ok": True})
    plain = problem.to_dict()
    plain["error"]["texts"] = {"message": _apart(problem.message), "hint": _apart(problem.hint)}
    if isinstance(problem, PlanError):
        for row, fault in zip(plain["error"]["faults"], problem.faults, strict=True):
            row["texts"] = {"message": _apart(fault.message)}
    return msgspec.json.encode(plain)


def _apart(text: str) -> dict[str, Any] | None:
    return taken_apart(text) if isinstance(text, Told) else None


def _whole(row: Mapping[str, Any], name: str) -> str:
    """A sentence of an answer, knowing again what it was made of if the answer says so."""
    texts, text = row.get("texts"), str(row.get(name, ""))
    told = put_together(texts[name]) if isinstance(texts, dict) and texts.get(name) else None
    return told.worded(text) if told is not None else text


def raise_answer(data: bytes) -> None:
    """Raise the refusal that an answer holds, if it does."""
    told = msgspec.json.decode(data).get("error")
    if told is None:
        return
    if "faults" in told:
        faults = [Fault(f["code"], _whole(f, "message"), f.get("step") or "") for f in told["faults"]]
        raise PlanError(tell("refuse.run.change_refused"), faults)
    raise Refused(_whole(told, "message"), told["code"], hint=_whole(told, "hint"))
