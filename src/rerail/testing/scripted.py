"""Scripted tools, minds and models: a world with fixed answers and a record of every call.

world = World(fetch=[ConnectionError("down"), {"rows": 3}], save=[None])
result = world.run(plan)
assert world.calls_of("fetch") == 2

model = ScriptedModel([{"steps": []}, "not JSON", ModelFailed("down", transient=True), Stall(90)])
model = ScriptedModel(plan=[{"steps": []}], judge=[{"achieved": True}])
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rerail.adapters.tools.functions import tool as make_tool
from rerail.api import Engine
from rerail.plan.model import Plan
from rerail.ports import ModelFailed, Prompt, Question, Reply, Store
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.views.results import RunResult


@dataclass(frozen=True, slots=True)
class Took:
    """An outcome after so many (virtual) seconds."""

    seconds: float
    outcome: Any = None


@dataclass(frozen=True, slots=True)
class Called:
    """One call that a scripted tool received."""

    tool: str
    args: Mapping[str, Any]


class World:
    """Tools that answer from a script: values, exceptions, functions of the arguments; the last one repeats.

    A tool that is not in the script answers with its name and its arguments.
    """

    def __init__(self, script: Mapping[str, Sequence[Any]] | None = None, /, **more: Sequence[Any]) -> None:
        self.script: dict[str, list[Any]] = {
            name: list(outcomes) for name, outcomes in {**(script or {}), **more}.items()
        }
        self.options: dict[str, dict[str, Any]] = {}
        self.calls: list[Called] = []

    def option(self, name: str, **options: Any) -> World:
        """Declare a tool's options: effect, timeout, alternatives, verify, probe, schema, …"""
        self.options[name] = options
        return self

    def calls_of(self, name: str) -> int:
        return sum(1 for call in self.calls if call.tool == name)

    @property
    def order(self) -> list[str]:
        """Return the names of the called tools in order."""
        return [call.tool for call in self.calls]

    def tools(self, plan: Any = None) -> list[Any]:
        """Return the tools of the script and of a plan, each recording its calls."""
        names = dict.fromkeys([*self.script, *self.options])
        for step in Plan.load(plan).steps if plan is not None else ():
            fallback = step.fallback.tool if step.fallback is not None else None
            verify = step.verify.tool if step.verify is not None else None
            names |= dict.fromkeys(name for name in (step.tool, *step.alternatives, fallback, verify) if name)
        return [self._tool(name) for name in names]

    def _tool(self, name: str) -> Any:
        async def call(**args: Any) -> Any:
            self.calls.append(Called(name, args))
            return await self._answer(name, args)

        call.__qualname__ = call.__name__ = name
        return make_tool(call, name=name, **self.options.get(name, {}))

    async def _answer(self, name: str, args: Mapping[str, Any]) -> Any:
        outcomes = self.script.get(name)
        if not outcomes:
            return {"tool": name, **args}
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(outcome, Took):
            await asyncio.sleep(outcome.seconds)
            outcome = outcome.outcome
        if isinstance(outcome, BaseException):
            raise copy.copy(outcome)
        if isinstance(outcome, Callable):  # type: ignore[arg-type]
            outcome = outcome(**args)
            if isinstance(outcome, BaseException):
                raise outcome
        return copy.deepcopy(outcome)

    def engine(self, plan: Any = None, *, store: str | Store = "memory://", **options: Any) -> Engine:
        """Return an engine on virtual time with this world's tools."""
        return Engine(store, self.tools(plan), clock=options.pop("clock", None) or VirtualClock(), **options)

    def run(self, plan: Any, **options: Any) -> RunResult:
        """Run a plan to its end in this world, on virtual time."""

        async def main() -> RunResult:
            async with self.engine(plan, **options) as engine:
                return await engine.run(plan)

        return virtual_run(main)


class ScriptedMind:
    """A mind with scripted answers: a list per kind of question; the last answer repeats.

    An answer is a value, an exception, or a function of the question.
    """

    name = "script"
    patience: float | None = None

    def __init__(self, **answers: Any) -> None:
        self._answers = {kind: list(given) if isinstance(given, list) else [given] for kind, given in answers.items()}
        self.asked: list[Question] = []

    @property
    def answers(self) -> Sequence[str]:
        return tuple(self._answers)

    async def answer(self, question: Question) -> Any:
        self.asked.append(question)
        script = self._answers[question.kind]
        given = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(given, BaseException):
            raise given
        if callable(given) and not isinstance(given, Plan):
            return given(question)
        return given


@dataclass(frozen=True, slots=True)
class Stall:
    """A reply after so many seconds; without one, the model fails then."""

    seconds: float
    then: Any = None


class ScriptedModel:
    """Replies in order: per role where a role has a script, else from the common one.

    An entry is the model's output (a mapping, a text, any garbage), a `Reply` with tokens and cost, an exception to
    raise, a `Stall`, or a function of the prompt that returns one of these.
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
        """Return the prompts of a role."""
        return [prompt for prompt in self.asked if prompt.role == role]

    def assert_done(self) -> None:
        """Raise AssertionError for an unused reply or for a question beyond the script.

        An engine takes such a question's error for a failure of the model, so it is reported again here.
        """
        left = {role or "any role": len(entries) for role, entries in self._script.items() if entries}
        assert not left, f"the script was not played to its end; left over: {left}"
        assert not self._unexpected, f"asked beyond the script: {'; '.join(self._unexpected)}"
