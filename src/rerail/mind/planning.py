"""Plan: from an objective and tools to a plan, checked before it runs (contract P7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rerail.i18n import one_by_one, words_of
from rerail.mind.guardrails import restrained
from rerail.plan.model import Plan, check
from rerail.plan.reader import PlanUnreadable, read_plan
from rerail.plan.step import Fault
from rerail.plan.tool_spec import Tools
from rerail.ports import Question

# The objective and the follow-up are the caller's to set.
_NOT_A_MINDS = frozenset({"reason", "objective", "goal", "topic", "follow_up", "mcp"})


class Unplanned(ValueError):
    """The answer is not a runnable plan; every fault is listed."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(one_by_one(fault.told for fault in faults[:20]))
        self.faults = faults


def objections(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Return every fault of the plan, for its author to mend."""
    try:
        read(question.objective, question.tools, answer)
    except Unplanned as problem:
        return [fault.told for fault in problem.faults]
    return []


def read(objective: str, tools: Tools, answer: Any) -> Plan:
    """Return the plan in an answer, limited to the fields that a mind may set; `Unplanned` lists its faults."""
    data = answer.get("plan", answer) if isinstance(answer, Mapping) else answer
    if isinstance(data, Mapping):
        data = {key: value for key, value in data.items() if key not in _NOT_A_MINDS}
    try:
        plan = read_plan(data)
    except PlanUnreadable as error:
        raise Unplanned([Fault("PLAN_UNREADABLE", words_of(error))]) from error
    faults: list[Fault] = []
    steps = tuple(restrained(step, None, faults, running=False) for step in plan.steps)
    plan = msgspec.structs.replace(plan, objective=objective, steps=steps)
    faults += check(plan, tools)
    if faults:
        raise Unplanned(faults)
    return plan
