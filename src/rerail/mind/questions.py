"""The questions by name: prompt, shape of the answer, and checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.i18n import words_of
from rerail.i18n.files import packaged
from rerail.kernel import events as ev
from rerail.mind import judge, planning, reflection, repair, replan
from rerail.mind import prompt_text as words
from rerail.ports import Consultation, Prompt, Question
from rerail.values.json_values import plain_text
from rerail.values.schema import Schema


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of question."""

    name: str
    schema: Schema
    object_to: Callable[[Question, Mapping[str, Any]], list[str]]

    def ask(self, question: Question, template: str, room: int = words.ROOM) -> Prompt:
        """Return the prompt: the role's template, filled with the parts of the question."""
        assert isinstance(self.schema.source, Mapping)
        return words.filled(template, self.name, words.pieces(question, room), self.schema.source)

    def objections(self, question: Question, answer: Any) -> list[str]:
        """Return every fault of an answer that shows without the run itself; empty if there is none."""
        try:
            value = words.parsed(answer)
        except words.Unreadable as problem:
            return [words_of(problem)]
        faults = [fault.said for fault in self.schema.faults(value)]
        return faults or self.object_to(question, value)


# What each role answers: `answers.json` holds the schemas.
_CHECKS = {"plan": planning, "reflect": reflection, "repair": repair, "replan": replan, "judge": judge}
QUESTIONS: Mapping[str, Role] = {
    name: Role(name, Schema(schema, noun="field"), _CHECKS[name].objections)
    for name, schema in msgspec.json.decode(packaged("mind/answers.json")).items()
}
ROLES = tuple(QUESTIONS)


def consulted(question: str, step: str, call: Consultation) -> ev.Consulted:
    """Return a model call as an event. Its reported spending is untrusted: no infinity, no negative numbers."""
    cost = call.cost if 0 <= call.cost < math.inf else 0.0
    into, out = max(0, call.input_tokens), max(0, call.output_tokens)
    return ev.Consulted(
        question, step, plain_text(call.model, 200), into, out, cost, call.elapsed, plain_text(call.problem, 2_000)
    )


def again(prompt: Prompt, answer: Any, objections: list[str]) -> Prompt:
    """Return the same question again, with the rejected answer and the reasons."""
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
