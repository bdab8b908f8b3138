"""Histories told by hand, for tests of the pure parts: no engine, no clock, no fakes."""

from __future__ import annotations

from typing import Any

import msgspec

from rerail.codes import Category
from rerail.kernel import events as ev
from rerail.kernel.events import Error, Event
from rerail.kernel.fold import evolve
from rerail.kernel.policy import Policy, Rung
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Step
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Question
from rerail.values.schema import Schema
from rerail.views.results import attempts_of, question_table

MINDS = ("reflect", "repair", "replan", "judge")
TEXT = Schema({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False})
TOOLS = {
    "t": ToolSpec("t"),
    "u": ToolSpec("u"),
    "text": ToolSpec("text", schema=TEXT),
    "pay": ToolSpec("pay", effect=Effect.ONCE),
    "wipe": ToolSpec("wipe"),
}


def step(name: str, tool: str = "t", **more: Any) -> Step:
    return Step(name, tool, **more)


class Tale:
    """A run, one event after the other."""

    def __init__(self, *steps: Step, **policy: Any) -> None:
        self.state = State("r")
        self.tell(ev.RunStarted("goal", policy=Policy(minds=MINDS, **policy)), ev.PlanAccepted(Plan("goal", steps)))

    def tell(self, *events: Event) -> Tale:
        """What happened next."""
        for event in events:
            evolve(self.state, event, 1000.0 + self.state.seq, self.state.seq + 1)
        return self

    def start(self, name: str, args: dict[str, Any] | None = None, effect: Effect | None = None) -> Tale:
        """A step is called."""
        track = self.state.tracks[name]
        tool = self.state.tool_of(track)
        found = effect or self.state.effect_of(track, TOOLS[tool])
        return self.tell(ev.StepStarted(name, track.attempt + 1, tool, found, args))

    def succeed(self, name: str, output: Any = None, **more: Any) -> Tale:
        """A step is called, and gives something."""
        self.start(name, **more)
        return self.tell(ev.StepSucceeded(name, self.state.tracks[name].attempt, output or {"n": 1}, "d", 7))

    def fail(
        self, name: str, category: Category = Category.UNKNOWN, message: str = "odd", *, lost: bool = False, **more: Any
    ) -> Tale:
        """A step is called, and fails."""
        self.start(name, **more)
        error = Error("TOOL_FAILED", category, message)
        return self.tell(ev.StepFailed(name, self.state.tracks[name].attempt, error, lost=lost))

    def ask(self, name: str, rung: Rung | None = None, category: Category = Category.UNKNOWN) -> Tale:
        """Somebody is asked about a failed step: to reflect, or to take that rung."""
        attempt = self.state.tracks[name].attempt
        if rung is None:
            return self.tell(ev.QuestionAsked("reflect", name, attempt))
        return self.tell(ev.Reflected(name, attempt, category, rung))

    def question(self, kind: str, name: str = "") -> Question:
        """What a mind would be shown."""
        track = self.state.tracks.get(name)
        return Question(
            kind, "r", name, "goal", question_table(self.state), TOOLS,
            definition=msgspec.to_builtins(track.step) if track is not None else None,
            definitions=[msgspec.to_builtins(one.step) for one in self.state.tracks.values()],
            error=track.error.to_dict() if track is not None and track.error is not None else None,
            attempts=attempts_of(track) if track is not None else (),
        )  # fmt: skip
