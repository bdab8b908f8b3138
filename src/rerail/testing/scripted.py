"""Scripted tools and minds: a world whose answers are written down beforehand, and that remembers every call.

world = World(fetch=[ConnectionError("down"), {"rows": 3}], save=[None])
result = world.run(plan)
assert world.calls_of("fetch") == 2
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rerail.adapters.tools.functions import tool as make_tool
from rerail.core.plan import Plan as CorePlan
from rerail.core.views import RunResult
from rerail.plans import Plan
from rerail.ports import Question, Store
from rerail.testing.virtual import VirtualClock, virtual_run
from rerail.wiring import Engine


@dataclass(frozen=True, slots=True)
class Took:
    """An outcome that comes after so many (virtual) seconds."""

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
        """How often a tool was called."""
        return sum(1 for call in self.calls if call.tool == name)

    @property
    def order(self) -> list[str]:
        """The tools in the order they were called."""
        return [call.tool for call in self.calls]

    def tools(self, plan: Any = None) -> list[Any]:
        """The tools of the script and of a plan, each remembering its calls."""
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
        """An engine on virtual time with this world's tools."""
        return Engine(store, self.tools(plan), clock=options.pop("clock", None) or VirtualClock(), **options)

    def run(self, plan: Any, **options: Any) -> RunResult:
        """Run a plan to its end in this world, on virtual time."""

        async def main() -> RunResult:
            async with self.engine(plan, **options) as engine:
                return await engine.run(plan)

        return virtual_run(main)


class ScriptedMind:
    """A mind whose answers are written down: per kind of question a list, the last one repeats.

    An answer is a value, an exception, or a function of the question.
    """

    name = "script"
    patience: float | None = None

    def __init__(self, **answers: Any) -> None:
        self._answers = {kind: list(given) if isinstance(given, list) else [given] for kind, given in answers.items()}
        self.asked: list[Question] = []

    @property
    def answers(self) -> Sequence[str]:
        """The kinds of questions it takes."""
        return tuple(self._answers)

    async def answer(self, question: Question) -> Any:
        """The next answer of the script."""
        self.asked.append(question)
        script = self._answers[question.kind]
        given = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(given, BaseException):
            raise given
        if callable(given) and not isinstance(given, CorePlan):
            return given(question)
        return given
