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

from rerail.i18n import one_by_one, tell, words_of
from rerail.mind import words
from rerail.mind.questions import QUESTIONS, ROLES, again
from rerail.ports import Answer, Consultation, Model, ModelFailed, Prompt, Question, Reply, Unanswered

GRACE = 5.0  # seconds in which it says itself that time is over, with what was spent


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
        self._limit = patience  # seconds for all tries of one question together
        self.patience = patience + GRACE
        self._answers = tuple(answers)

    @property
    def answers(self) -> Sequence[str]:
        """The kinds of questions it takes."""
        return self._answers

    async def answer(self, question: Question) -> Answer:
        """What the model says, once it can be used; else why it cannot."""
        calls: list[Consultation] = []
        try:
            async with asyncio.timeout(self._limit) as limit:
                return await self._answer(question, calls)
        except TimeoutError:
            if not limit.expired():
                raise
            return Answer(None, calls, tell("model.no_answer_in", seconds=self._limit))
        except Exception as error:
            raise Unanswered(calls) from error

    async def _answer(self, question: Question, calls: list[Consultation]) -> Answer:
        role = QUESTIONS[question.kind]
        prompt = role.ask(question, self._template(question.kind), self._room)
        problem: str = tell("model.budget")
        for _ in range(1 + self._reasks):
            if _spent(question, calls):
                break
            begun = len(calls)
            try:
                said = await self._ask(prompt, calls)
            finally:
                question.ledger.calls.extend(calls[begun:])  # whoever asked may have to leave before the answer
            if calls[-1].problem:
                return Answer(None, calls, tell("model.no_answer", problem=calls[-1].problem))
            objections = role.objections(question, said)
            if not objections:
                return Answer(words.parsed(said), calls)
            problem = words.cut(one_by_one(objections[:5]), 2_000)
            calls[-1] = dataclasses.replace(calls[-1], problem=problem)
            prompt = again(prompt, said, objections)
        return Answer(None, calls, tell("model.unusable", problem=problem))

    async def _ask(self, prompt: Prompt, calls: list[Consultation]) -> Any:
        """Ask once; what the model said, with the call noted in whatever way it ended."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        spent, problem = Reply(None), str(tell("model.nothing"))
        try:
            spent, problem = await self._model.complete(prompt), ""
        except ModelFailed as failed:
            spent, problem = failed.spent or spent, words_of(failed)
        finally:
            calls.append(
                Consultation(
                    spent.model, spent.input_tokens, spent.output_tokens, spent.cost, loop.time() - started, problem
                )
            )
        return spent.answer


def _spent(question: Question, calls: Sequence[Consultation]) -> bool:
    """Whether what the run has left is used up by the calls so far, or by something else meanwhile."""
    if question.ledger.closed:
        return True
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    cost = sum(call.cost for call in calls)
    return (question.tokens_left is not None and tokens >= question.tokens_left) or (
        question.cost_left is not None and cost >= question.cost_left
    )
