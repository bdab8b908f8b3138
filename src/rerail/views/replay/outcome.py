"""The result of a replay under other settings, beside the recorded one; equality of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.kernel import events as ev
from rerail.kernel.decide import Action, Ask, Call, Note, Show, VerifyEffect
from rerail.kernel.events import Event
from rerail.views.replay.recorded_answers import is_decided


@dataclass(frozen=True, slots=True)
class UnknownAnswer:
    """A call, look or question that the history has no answer to."""

    what: str  # call, look, person, tool (its definition), or the question to a mind: reflect, repair, replan, judge
    step: str = ""
    tool: str = ""
    call: int = 0  # the call's number within its step and round
    round: int = 0  # 0 is the first

    def to_dict(self) -> dict[str, Any]:
        names = {"what": self.what, "step": self.step or None, "tool": self.tool or None}
        return {**names, "call": self.call or None, "round": self.round}


@dataclass(slots=True)
class Spent:
    """The outcome of a run or of a step, with its time and cost."""

    status: str
    calls: int = 0
    waited: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status, "calls": self.calls, "waited": round(self.waited, 6),
            "seconds": round(self.seconds, 6), "tokens": self.tokens, "cost": round(self.cost, 9),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepReplayed:
    """One step, as recorded and as replayed."""

    step: str
    recorded: Spent
    replayed: Spent
    other_output: bool = False  # both have an output, and they differ

    @property
    def changed(self) -> bool:
        return self.other_output or self.recorded != self.replayed

    def to_dict(self) -> dict[str, Any]:
        spent = {"recorded": self.recorded.to_dict(), "replayed": self.replayed.to_dict()}
        plain = {name: {key: one[key] for key in ("status", "calls", "waited")} for name, one in spent.items()}
        return {"step": self.step, "changed": self.changed, **plain, "other_output": self.other_output}


@dataclass(frozen=True, slots=True)
class Replay:
    """A run as recorded, and as it would have been under other settings."""

    run: str
    settings: Mapping[str, tuple[Any, Any]]  # the changed settings: (recorded, replayed)
    known: bool  # the history suffices to tell how the run ends
    branch: int  # the number of the first event that differs; 0: none
    instead: tuple[dict[str, Any], ...]  # the actions decided there under the other settings
    recorded: Spent
    replayed: Spent
    steps: tuple[StepReplayed, ...]
    unknown: tuple[UnknownAnswer, ...] = ()
    not_replayed: int = 0  # user actions recorded after the end of the replay
    drift: int = 0  # the first event that today's tools or version would decide differently; 0: none

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "run_id": self.run,
            "settings": {key: {"recorded": old, "replayed": new} for key, (old, new) in self.settings.items()},
            "known": self.known, "same": not self.branch, "branch": self.branch or None, "instead": list(self.instead),
            "recorded": self.recorded.to_dict(), "replayed": self.replayed.to_dict(),
            "steps": [row.to_dict() for row in self.steps], "unknown": [one.to_dict() for one in self.unknown],
            "not_replayed": self.not_replayed, "drift": self.drift or None,
        }  # fmt: skip


# -- Equality of decisions ------------------------------------------------------------------------------------------


def shape_of(actions: list[Action]) -> list[Any]:
    """Return the identity of actions, without the budget left after them."""
    found: list[Any] = []
    for action in actions:
        if isinstance(action, Note):
            found += [
                msgspec.structs.replace(event, of=0, retries_left=0) if isinstance(event, ev.RetryScheduled) else event
                for event in action.events
            ]
        else:
            found.append(identity_of(action))
    return found


def identity_of(action: Call | Show | VerifyEffect | Ask) -> Any:
    """Return the identity of an action; the time of a question and the reservation of a call do not count."""
    match action:
        case Call():
            return (action.step, action.attempt, action.tool, action.rung)
        case Ask():
            return (action.question, action.step)
        case _:
            return action


def choices_in(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Return the rung chosen for a failure, without its wording."""
    return [(type(event), getattr(event, "rung", None), getattr(event, "delay", 0.0)) for event in events]


def foretold(actions: list[Action], event: Event) -> bool:
    """True if actions match an event that the engine decided."""
    if not is_decided(event):
        return True
    return any(_says(action, event) for action in actions)


def _says(action: Action, event: Event) -> bool:
    step, rung = getattr(event, "step", ""), getattr(event, "rung", None)
    match action:
        case Note():
            same = (one for one in action.events if type(one) is type(event) and getattr(one, "step", "") == step)
            return any(getattr(one, "rung", None) == rung for one in same)
        case Call():
            return action.step == step
        case _:
            return True


def rows_of(action: Action) -> list[dict[str, Any]]:
    """Return an action as plain data."""
    match action:
        case Note():
            kept = ("step", "rung", "delay", "code", "reason", "status")
            return [
                {"does": str(type(event).__struct_config__.tag)}
                | {name: _plain(getattr(event, name)) for name in kept if getattr(event, name, None)}
                for event in action.events
            ]
        case Call():
            return [{"does": "call", "step": action.step, "tool": action.tool}]
        case Show():
            return [{"does": "show", "step": action.step}]
        case VerifyEffect():
            return [{"does": "look", "step": action.step}]
        case Ask():
            return [{"does": "ask", "question": action.question, "step": action.step or None}]


def _plain(value: Any) -> Any:
    return value if isinstance(value, float) else str(value)
