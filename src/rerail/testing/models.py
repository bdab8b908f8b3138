"""A language model whose replies are written down beforehand, in process and without a socket.

model = ScriptedModel([{"steps": []}, "not JSON", ModelFailed("down", transient=True), Stall(90)])
model = ScriptedModel(plan=[{"steps": []}], judge=[{"achieved": True}])
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rerail.ports import ModelFailed, Prompt, Reply


@dataclass(frozen=True, slots=True)
class Stall:
    """A reply that comes after so many seconds; without one, the model fails then."""

    seconds: float
    then: Any = None


class ScriptedModel:
    """Replies in order: per role where a role has a script, else from the common one.

    An entry is what the model says (a mapping, a text, any garbage), a `Reply` to set tokens and cost with it, an
    exception to raise, a `Stall`, or a function of the prompt that gives one of these.
    """

    def __init__(
        self,
        replies: Sequence[Any] = (),
        /,
        *,
        model: str = "script",
        usage: tuple[int, int] = (0, 0),
        cost: float = 0.0,
        **roles: Sequence[Any],
    ) -> None:
        self._script = {"": list(replies), **{role: list(entries) for role, entries in roles.items()}}
        self._reply = Reply(None, model, usage[0], usage[1], cost)
        self._unexpected: list[str] = []
        self.asked: list[Prompt] = []

    async def complete(self, prompt: Prompt) -> Reply:
        """The next reply of the script."""
        self.asked.append(prompt)
        script = self._script.get(prompt.role, self._script[""])
        if not script:
            text = f"the script has no reply left for question {len(self.asked)} (role {prompt.role!r})"
            self._unexpected.append(text)
            raise AssertionError(text)
        return await self._play(script.pop(0), prompt)

    async def _play(self, entry: Any, prompt: Prompt) -> Reply:
        if isinstance(entry, Stall):
            await asyncio.sleep(entry.seconds)
            late = ModelFailed(f"no answer within {entry.seconds:g} s", transient=True)
            return await self._play(late if entry.then is None else entry.then, prompt)
        if isinstance(entry, BaseException):
            raise entry.with_traceback(None)  # it may have been raised before
        if callable(entry):
            return await self._play(entry(prompt), prompt)
        return entry if isinstance(entry, Reply) else replace(self._reply, answer=copy.deepcopy(entry))

    def asked_as(self, role: str) -> list[Prompt]:
        """The prompts of a role."""
        return [prompt for prompt in self.asked if prompt.role == role]

    def assert_done(self) -> None:
        """AssertionError unless every reply was used, and nothing was asked beyond the script.

        An engine takes the error of a question beyond the script for a failure of the model; it is told of here again.
        """
        left = {role or "any role": len(entries) for role, entries in self._script.items() if entries}
        assert not left, f"the script was not played to its end; left over: {left}"
        assert not self._unexpected, f"asked beyond the script: {'; '.join(self._unexpected)}"
