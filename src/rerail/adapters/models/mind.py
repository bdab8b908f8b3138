"""A language model as a mind: asks it in our words, checks what it says, asks again a bounded number of times.

Rules of this file:
- What comes back is checked here as far as the question shows; the engine checks it again against the run.
- Every call is reported with what it cost, also those whose reply was of no use.
- Budgets bind here too: past them no question is asked again.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from rerail.mind import words
from rerail.mind.questions import QUESTIONS, ROLES, again
from rerail.ports import Answer, Consultation, Model, ModelFailed, Prompt, Question, Reply


class ModelMind:
    """Answers every kind of question with a model."""

    name = "model"

    def __init__(
        self,
        model: Model,
        template: Callable[[str], str],
        *,
        reasks: int = 2,
        room: int = words.ROOM,
        patience: float = 60.0,
        answers: Sequence[str] = ROLES,
    ) -> None:
        self._model, self._template, self._reasks, self._room = model, template, reasks, room
        self.patience = patience  # seconds for all tries of one question together
        self._answers = tuple(answers)

    @property
    def answers(self) -> Sequence[str]:
        """The kinds of questions it takes."""
        return self._answers

    async def answer(self, question: Question) -> Answer:
        """What the model says, once it can be used; else why it cannot."""
        role = QUESTIONS[question.kind]
        prompt = role.ask(question, self._template(question.kind), self._room)
        calls: list[Consultation] = []
        problem = "the budget of the run is used up"
        for _ in range(1 + self._reasks):
            if _spent(question, calls):
                break
            call, said = await self._ask(prompt)
            if call.problem:
                return Answer(None, [*calls, call], f"the model gave no answer: {call.problem}")
            objections = role.objections(question, said)
            if not objections:
                return Answer(words.parsed(said), [*calls, call])
            problem = "; ".join(objections[:5])
            calls.append(dataclasses.replace(call, problem=problem))
            prompt = again(prompt, said, objections)
        return Answer(None, calls, f"the model's answer cannot be used: {problem}")

    async def _ask(self, prompt: Prompt) -> tuple[Consultation, Any]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            reply = await self._model.complete(prompt)
        except ModelFailed as failed:
            spent = failed.spent or Reply(None)
            elapsed = loop.time() - started
            return Consultation(
                spent.model, spent.input_tokens, spent.output_tokens, spent.cost, elapsed, str(failed)
            ), None
        elapsed = loop.time() - started
        return Consultation(reply.model, reply.input_tokens, reply.output_tokens, reply.cost, elapsed), reply.answer


def _spent(question: Question, calls: Sequence[Consultation]) -> bool:
    """Whether what the run has left is used up by the calls so far."""
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    cost = sum(call.cost for call in calls)
    return (question.tokens_left is not None and tokens >= question.tokens_left and bool(calls)) or (
        question.cost_left is not None and cost >= question.cost_left and bool(calls)
    )
