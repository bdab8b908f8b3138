"""The commands of a run: one struct each, the same in every interface (contract X7, I7, T7).

Rules of this file:
- A command is data. CLI, HTTP, MCP, a run's inbox and its worker encode these structs and nothing else.
- `handle` turns a command into events, or refuses it; `preview` tells their consequences. Neither changes a run.
- The tag of a command and the names of its fields are stored in inboxes: they never change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from rerail.i18n import tell
from rerail.kernel import actions, retry
from rerail.kernel import events as ev
from rerail.kernel.actions import Refusal
from rerail.kernel.actor import NO_ACTOR, Actor
from rerail.kernel.events import Event
from rerail.kernel.preview import outlook
from rerail.kernel.retry import Preview
from rerail.kernel.rights import require_rights
from rerail.kernel.stages import media_of
from rerail.kernel.state import State
from rerail.plan.tool_spec import Tools
from rerail.values.json_values import INLINE, NotJson, pack, plain_text, unpack

# The errors that malformed input can cause.
ODD = (
    msgspec.MsgspecError, TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError,
)  # fmt: skip
NUMBERED = (ev.Acted, ev.Cancelled, ev.Resumed)
STAMPED = (*NUMBERED, ev.RetryBegin)

StepId = Annotated[str, Meta(min_length=1, max_length=1000, description="The id of a step.", examples=["fetch"])]
OneStep = Annotated[str | None, Meta(description="May be left out if only one waits.")]
Reason = Annotated[str, Meta(max_length=2000, description="Why, for the history.")]
TakeOver = Annotated[bool, Meta(description="Take it from a process that fell silent.")]
Arguments = Annotated[dict[str, Any], Meta(description="Arguments to change first; the others stay.")]


class _Command(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="action", tag=str.lower):
    by: str = ""
    actor: Actor = NO_ACTOR
    files: tuple[ev.FileMade, ...] = ()  # replaced by the user, or left by the step: found by the engine
    number: int = 0  # its place in the inbox, if it came that way
    key: str = ""  # its id, which survives a copy of its run to a store that numbers differently

    @property
    def action(self) -> str:
        """Return the command's name, as stored in histories."""
        return str(self.__struct_config__.tag)


class Pause(_Command, frozen=True):
    """Start nothing more until the run is resumed; calls under way end."""


class Resume(_Command, frozen=True):
    """Go on with an interrupted or paused run; nothing that is done is called again."""

    take_over: TakeOver = False


class Cancel(_Command, frozen=True):
    """End a run: calls under way are cancelled, nothing more starts."""

    reason: Reason = ""


class Skip(_Command, frozen=True):
    """Do without a step: those that need it go on, with nothing in its place."""

    step: StepId
    reason: Reason = ""


class Confirm(_Command, frozen=True):
    """Agree to the call of a step that waits for a person, as it is shown or edited."""

    step: OneStep = None
    digest: Annotated[
        str, Meta(max_length=64, description="Of the call that was shown; another one is not agreed to.")
    ] = ""
    ahead: Annotated[bool, Meta(description="Agree to the plan's own call before its arguments are known.")] = False
    args: Arguments = {}
    edit: dict[str, bytes] = {}  # files that the call reads → their new content; the engine turns it into `files`
    value: Any = None  # large arguments, as shown


class Refuse(_Command, frozen=True):
    """Refuse the call of a step that waits for a person: the step fails."""

    step: OneStep = None


class Resolve(_Command, frozen=True):
    """Say what became of a step whose effect is in doubt, or give its output by hand."""

    step: StepId
    outcome: Annotated[
        Literal["succeeded", "failed", "rerun"],
        Meta(description="succeeded: value is its output; failed: it did not happen; rerun: call it again."),
    ]
    value: Annotated[Any, Meta(description="The step's output, with succeeded: any JSON value.")] = msgspec.UNSET
    attempt: Annotated[
        int | None,
        Meta(description="The attempt that was seen: an answer is about no other. Default: the present one."),
    ] = None


class Repair(_Command, frozen=True):
    """Change a step that did not succeed, and do it and what depends on it again."""

    step: StepId
    tool: Annotated[str | None, Meta(description="Another tool; with args, it gets those and no others.")] = None
    args: Annotated[dict[str, Any] | None, Meta(description="Arguments to change; the others stay.")] = None
    remove: Annotated[list[str] | None, Meta(description="Arguments to do without.")] = None
    needs: Annotated[list[str | dict[str, Any]] | None, Meta(description="The new needs, all of them.")] = None
    value: dict[str, Any] = {}  # any member of the step


class Retry(_Command, frozen=True):
    """Do again exactly what failed and what depends on it."""

    steps: Annotated[tuple[str, ...], Meta(max_length=100_000, description="Only these, and what follows.")] = ()
    stage: Annotated[str | None, Meta(description="Go on from this stage.")] = None
    clean: Annotated[bool, Meta(description="Start over: everything runs again.")] = False
    force: Annotated[bool, Meta(description="Pass the retry limit, a permanent error, a success.")] = False
    take_over: TakeOver = False


class Add(_Command, frozen=True):
    """Add steps to a run, which goes on if it was at rest; a change with faults is refused, and the plan stays."""

    steps: Annotated[tuple[Any, ...], Meta(max_length=100_000, description="Steps as in a plan.")]


class RecordNotices(_Command, frozen=True, tag="notified"):
    """What came of notices about a run, told by the process that sent them."""

    value: list[ev.Notified | ev.Audited]


Command = Pause | Resume | Cancel | Skip | Confirm | Refuse | Resolve | Repair | Retry | Add | RecordNotices
AnyCommand = TypeVar("AnyCommand", bound=Command)
COMMANDS: tuple[type[Command], ...] = get_args(Command)
INTERNAL = (RecordNotices,)  # sent by processes only
FORESEEN = (Skip, Confirm, Refuse, Resolve, Add, Repair, Retry)  # commands with a dry run of their consequences


def options_of(command: type[Command]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the caller's fields of a command: the described ones. The others are the engine's."""
    return {one.name: one for one in msgspec.structs.fields(command) if get_origin(one.type) is Annotated}


def given(command: type[Command], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's fields among these values. A null stands for nothing, except as an output."""
    null = [name for name, value in values.items() if value is None and name != "value"]
    return {name: values[name] for name in options_of(command) if name in values and name not in null}


def checked(command: AnyCommand) -> AnyCommand:
    """Return a command with fields of the right types; `Refusal` if a caller gave others."""
    said: dict[str, Any] = {}
    for name in type(command).__struct_fields__:
        value = getattr(command, name)
        if name != "value" and value != "":
            said[name] = value[:64] if isinstance(value, str) else value  # long texts are cut when they are stored
    try:
        msgspec.convert(said, type(command), builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise Refusal("VALUE_INVALID", tell("refuse.run.action_unreadable", error=error)) from None
    if isinstance(command, Resolve) and command.outcome == "succeeded" and command.value is msgspec.UNSET:
        raise Refusal("USAGE", tell("refuse.run.resolve_value"))
    return command


def refusing(command: Confirm) -> Refuse:
    """Return the refusal command in place of an approval; `Refusal` if the approval had edits."""
    if command.args or command.edit or command.ahead:
        raise Refusal("USAGE", tell("cli.confirm.edit_or_refuse"))
    return Refuse(by=command.by, step=command.step)


@dataclass(slots=True)
class Handled:
    """The events of a command, and the contents that they name."""

    events: list[Event]
    blobs: dict[str, bytes] = field(default_factory=dict)


def handle(state: State, tools: Tools, command: Command, *, looks: bool = False) -> Handled:
    """Return the events of a command; `Refusal` or `Faulty` if the state, or its sender's rights, do not allow it.

    ``looks``: they are only looked at, which needs no right to give the command.
    """
    try:
        if not looks:
            require_rights(state, command)
        handled = _handled(state, tools, command)
    except ODD as odd:
        # Malformed input is the sender's error; the run and its lease must not suffer from it.
        message = tell("refuse.run.action_unreadable", error=f"{type(odd).__name__}: {odd}"[:300])
        raise Refusal("VALUE_INVALID", message) from odd
    told: dict[str, Any] = {"wish": command.key} if command.key else {"number": command.number}
    if command.number or command.key:
        handled.events = [
            msgspec.structs.replace(event, **told) if isinstance(event, NUMBERED) else event for event in handled.events
        ]
    handled.events = stamped(handled.events, command.actor)
    return handled


def stamped(events: Sequence[Event], actor: Actor) -> list[Event]:
    """Return the events of a command with the way that it came, and how its sender is known."""
    if not (actor.via or actor.proof):
        return list(events)
    return [
        msgspec.structs.replace(event, via=actor.via, proof=actor.proof) if isinstance(event, STAMPED) else event
        for event in events
    ]


def preview(state: State, tools: Tools, command: Command, now: float) -> Preview:
    """Return the consequences of a command; refused as the command would be. The state is used up."""
    events = handle(state, tools, command, looks=True).events
    step = next((event.step for event in events if isinstance(event, ev.Acted) and event.step), "")
    return outlook(state, tools, step, events, now)


def storable(command: Command) -> Command:
    """Return the command as JSON; `Refusal` if a value of it has no JSON form."""
    try:
        values = [getattr(command, name, None) for name in ("value", "steps", "args", "needs")]
        pack([value for value in values if value is not msgspec.UNSET])
    except NotJson as error:
        raise Refusal("VALUE_INVALID", tell("refuse.run.value_invalid", error=error)) from error
    told = {"by": plain_text(command.by, 200)}
    if isinstance(command, Cancel | Skip):
        told["reason"] = plain_text(command.reason, 2000)
    return msgspec.structs.replace(command, **told)


def _handled(state: State, tools: Tools, command: Command) -> Handled:
    match command:
        case Pause():
            return Handled(actions.pause(state, command.by))
        case Resume():
            return Handled(actions.resume(state, command.by))
        case Cancel():
            return Handled(actions.cancel(state, command.by, command.reason))
        case Skip():
            return Handled(actions.skip(state, command.step, command.by, command.reason))
        case Confirm():
            return _confirm(state, tools, command)
        case Refuse():
            return Handled(actions.refuse(state, command.step, command.by))
        case Retry():
            return Handled(retry.retry_live(state, list(command.steps), command.by, force=command.force))
        case Resolve():
            return _resolve(state, command)
        case Add():
            return Handled(actions.add(state, command.steps, tools, command.by))
        case Repair():
            given = {name: getattr(command, name) for name in ("tool", "args", "remove", "needs")}
            changes = {**command.value, **{name: value for name, value in given.items() if value is not None}}
            return Handled(actions.repair(state, command.step, changes, tools, command.by))
        case RecordNotices():
            return Handled(list(command.value))


def _confirm(state: State, tools: Tools, command: Confirm) -> Handled:
    edits = actions.Edits(command.args, command.files, command.value)
    events = actions.confirm(
        state, command.step, command.by, digest=command.digest, ahead=command.ahead, edits=edits, tools=tools
    )
    acted, blobs = events[-1], dict[str, bytes]()
    call = acted.call if isinstance(acted, ev.Acted) else None
    if call is not None and call.args is not None:
        packed = pack(call.args)
        if len(packed.data) > INLINE:
            blobs[packed.digest] = packed.data
            call = msgspec.structs.replace(call, args=None, args_blob=packed.digest)
            events = [msgspec.structs.replace(acted, call=call)]
    return Handled([*_artifacts(state, command), *events], blobs)


def _resolve(state: State, command: Resolve) -> Handled:
    step = command.step
    actions.same_attempt(state, step, command.attempt)
    if command.outcome == "failed":
        return Handled(actions.resolve_failed(state, step, command.by))
    if command.outcome == "rerun":
        return Handled(actions.resolve_rerun(state, step, command.by))
    packed = pack(None if command.value is msgspec.UNSET else command.value)
    blob = len(packed.data) > INLINE
    output = unpack(packed.data)
    events = actions.resolve_succeeded(state, step, command.by, output, packed, blob=blob, files=command.files)
    if packed.digest:
        track = state.tracks[step]
        events.insert(0, ev.ArtifactCreated(step, step, track.attempt, packed.digest, len(packed.data)))
    return Handled([*_artifacts(state, command), *events], {packed.digest: packed.data} if blob else {})


def _artifacts(state: State, command: Confirm | Resolve) -> list[Event]:
    """Return the files that a command replaces, or declares as a step's output."""
    made: list[Event] = []
    for file in command.files:
        track = state.tracks.get(file.step)
        if track is not None:
            kept = track.result is not None and isinstance(command, Confirm)
            attempt = track.result.attempt if kept and track.result is not None else track.attempt
            artifact = (file.path, file.step, attempt, file.digest, file.size, media_of(file.path), file.path)
            made.append(ev.ArtifactCreated(*artifact))
    return made
