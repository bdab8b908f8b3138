"""The questions by name: how each is asked, which shape its answer has, and what can be said against an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rerail.core import events as ev
from rerail.core.schema import Schema
from rerail.core.values import plain_text
from rerail.i18n import words_of
from rerail.mind import judge, plan, reflect, repair, replan, words
from rerail.ports import Consultation, Prompt, Question

ROLES = ("plan", "reflect", "repair", "replan", "judge")


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of question."""

    ask: Callable[[Question, str, int], Prompt]
    schema: Schema
    object_to: Callable[[Question, Mapping[str, Any]], list[str]]

    def objections(self, question: Question, answer: Any) -> list[str]:
        """Everything that is wrong with an answer before the run itself is looked at; empty if nothing is."""
        try:
            value = words.parsed(answer)
        except words.Unreadable as problem:
            return [words_of(problem)]
        faults = [fault.said for fault in self.schema.faults(value)]
        return faults or self.object_to(question, value)


QUESTIONS: Mapping[str, Role] = {
    "plan": Role(plan.ask, Schema(plan.SCHEMA, noun="field"), plan.objections),
    "reflect": Role(reflect.ask, Schema(reflect.SCHEMA, noun="field"), reflect.objections),
    "repair": Role(repair.ask, Schema(repair.SCHEMA, noun="field"), repair.objections),
    "replan": Role(replan.ask, Schema(replan.SCHEMA, noun="field"), replan.objections),
    "judge": Role(judge.ask, Schema(judge.SCHEMA, noun="field"), judge.objections),
}


def consulted(question: str, step: str, call: Consultation) -> ev.Consulted:
    """A call of a model as an event. What it says of its spending is data too: no infinity, nothing given back."""
    cost = call.cost if 0 <= call.cost < math.inf else 0.0
    into, out = max(0, call.input_tokens), max(0, call.output_tokens)
    return ev.Consulted(
        question, step, plain_text(call.model, 200), into, out, cost, call.elapsed, plain_text(call.problem, 2_000)
    )


def again(prompt: Prompt, answer: Any, objections: list[str]) -> Prompt:
    """The same question once more, with the answer that did not hold and why."""
    text = answer if isinstance(answer, str) else words.shown(answer, 4_000)
    said = words.fenced("your-answer", words.cut(text, 4_000))
    faults = "\n".join(f"- {words.cut(text, 400)}" for text in objections[:20])
    parts = (
        prompt.user,
        f"You answered:\n{said}",
        f"That cannot be used:\n{faults}",
        "Answer again, whole, as one JSON object.",
    )
    return Prompt(prompt.role, prompt.system, "\n\n".join(parts), prompt.schema)
