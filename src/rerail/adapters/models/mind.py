"""A language model as a mind: bounded asking, checking and asking again.

Rules of this file:
- Answers are checked here as far as the question allows; the engine checks them again against the run.
- Every call is reported with its cost, also one with a useless reply.
- Budgets bind here too: past them no question is asked again.
- A prompt is the package's own file, or the user's replacement of it (contract M1).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rerail.errors import SettingsError
from rerail.i18n import one_by_one, tell, words_of
from rerail.mind import prompt_text as words
from rerail.mind.prompt_text import BadTemplate
from rerail.mind.questions import QUESTIONS, ROLES, again
from rerail.ports import Consultation, MindAnswer, Model, ModelFailed, Prompt, Question, Reply, Unanswered

GRACE = 5.0  # seconds for the model's own timeout report, with its usage


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
        return self._answers

    async def answer(self, question: Question) -> MindAnswer:
        """Return the model's first usable answer, or why there is none."""
        calls: list[Consultation] = []
        try:
            async with asyncio.timeout(self._limit) as limit:
                return await self._answer(question, calls)
        except TimeoutError:
            if not limit.expired():
                raise
            return MindAnswer(None, calls, tell("model.no_answer_in", seconds=self._limit))
        except Exception as error:
            raise Unanswered(calls) from error

    async def _answer(self, question: Question, calls: list[Consultation]) -> MindAnswer:
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
                question.ledger.calls.extend(calls[begun:])  # recorded at once: the asker may leave before the answer
            if calls[-1].problem:
                return MindAnswer(None, calls, tell("model.no_answer", problem=calls[-1].problem))
            objections = role.objections(question, said)
            if not objections:
                return MindAnswer(words.parsed(said), calls)
            problem = words.cut(one_by_one(objections[:5]), 2_000)
            calls[-1] = dataclasses.replace(calls[-1], problem=problem)
            prompt = again(prompt, said, objections)
        return MindAnswer(None, calls, tell("model.unusable", problem=problem))

    async def _ask(self, prompt: Prompt, calls: list[Consultation]) -> Any:
        """Ask once and record the call, whatever its outcome; return the reply."""
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
    """Return True if these calls, or other work meanwhile, used up the run's budget."""
    if question.ledger.closed:
        return True
    tokens = sum(call.input_tokens + call.output_tokens for call in calls)
    cost = sum(call.cost for call in calls)
    return (question.tokens_left is not None and tokens >= question.tokens_left) or (
        question.cost_left is not None and cost >= question.cost_left
    )


# -- Prompt files ---------------------------------------------------------------------------------------------------


def shipped(role: str) -> str:
    return resources.files("rerail.mind").joinpath("prompts", f"{role}.md").read_text(encoding="utf-8")


class Prompts:
    """Prompts by role: the user's file if the folder has one, else the package's own."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        if folder is not None and not folder.is_dir():
            raise SettingsError(tell("refuse.mind.no_prompts", folder=str(folder)))
        self._texts = {role: self._read(role) for role in ROLES}

    def _read(self, role: str) -> str:
        path = self.path(role)
        if path is None:
            return shipped(role)
        try:
            text = path.read_text(encoding="utf-8-sig")  # editors leave byte order marks
            QUESTIONS[role].ask(Question(role, "", "", "", (), {}), text, 10_000)
        except (OSError, UnicodeDecodeError, BadTemplate) as error:
            raise SettingsError(tell("refuse.mind.prompt_unusable", path=str(path), error=error)) from None
        return text

    def path(self, role: str) -> Path | None:
        path = self._folder / f"{role}.md" if self._folder is not None else None
        return path if path is not None and path.is_file() else None

    def __call__(self, role: str) -> str:
        return self._texts[role]
