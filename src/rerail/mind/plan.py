"""Plan: from an objective and tools to a plan, checked before anybody runs it (SPEC P7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rerail.core.dialects import Unreadable, read_plan
from rerail.core.plan import Fault, Plan, check
from rerail.core.tools import Tools
from rerail.i18n import one_by_one, words_of
from rerail.mind import words
from rerail.mind.restraint import restrained
from rerail.ports import Prompt, Question

STEP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "title": {"type": "string"},
        "tool": {"type": "string"},
        "args": {"type": "object"},
        "needs": {"type": "array", "items": {"type": "string"}},
        "critical": {"type": "boolean"},
    },
    "required": ["id", "tool", "args"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "steps": {"type": "array", "items": STEP_SCHEMA, "minItems": 1},
        "reason": {"type": "string"},
    },
    "required": ["steps"],
}


# What is to be reached, and what follows, is the caller's to say.
_NOT_A_MINDS = frozenset({"reason", "objective", "goal", "topic", "follow_up", "mcp"})


class Unplanned(ValueError):
    """An answer that is no plan that can be run; every fault is listed."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(one_by_one(fault.told for fault in faults[:20]))
        self.faults = faults


def ask(question: Question, template: str, room: int = words.ROOM) -> Prompt:
    """The objective and the tools."""
    return words.filled(template, "plan", words.pieces(question, room), SCHEMA)


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Every fault of the plan, for whoever wrote it to mend."""
    try:
        read(question.objective, question.tools, answer)
    except Unplanned as problem:
        return [fault.told for fault in problem.faults]
    return []


def read(objective: str, tools: Tools, answer: Any) -> Plan:
    """The plan that an answer holds, with nothing in it that is not a mind's to say; `Unplanned` lists its faults."""
    data = answer.get("plan", answer) if isinstance(answer, Mapping) else answer
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if key not in _NOT_A_MINDS}
    try:
        plan = read_plan(data)
    except Unreadable as error:
        raise Unplanned([Fault("PLAN_UNREADABLE", words_of(error))]) from error
    faults: list[Fault] = []
    steps = tuple(restrained(step, None, faults, running=False) for step in plan.steps)
    plan = msgspec.structs.replace(plan, objective=objective, steps=steps)
    faults += check(plan, tools)
    if faults:
        raise Unplanned(faults)
    return plan
