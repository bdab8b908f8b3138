"""Random plans, worlds and people for the laws."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from tests.simulation.world import tool_names

from rerail.errors import RateLimited, ToolError
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fallback, Need, Step, When

SCALE = int(os.environ.get("RERAIL_LAWS", "1"))  # `make long` looks at ten times as many examples

OUTCOMES = (
    "ok",
    "ok",
    "ok",
    "same",
    "transient",
    "tool",
    "parameter",
    "permanent",
    "unknown",
    "dependency",
    "lost",
    "later",
)


@st.composite
def plans(draw: st.DrawFn, most: int = 8) -> Plan:
    """A random plan: any shape of needs, all kinds of `when`, effects, alternatives, fallbacks, references."""
    size = draw(st.integers(1, most))
    steps: list[Step] = []
    for i in range(size):
        before = [step.id for step in steps]
        chosen = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        whens = st.sampled_from([When.SUCCESS, When.SUCCESS, When.SUCCESS, When.DONE, When.FAILURE])
        needs = tuple(Need(name, draw(whens)) for name in chosen)
        refer = [need.step for need in needs if need.when is not When.FAILURE]
        args = {"given": "${" + draw(st.sampled_from(refer)) + "}"} if refer and draw(st.booleans()) else {}
        steps.append(
            Step(
                f"s{i}",
                f"t{i}",
                args,
                needs,
                critical=draw(st.booleans()),
                retries=draw(st.sampled_from([None, 0, 1])),
                effect=draw(st.sampled_from([None, Effect.READ, Effect.ONCE])),
                alternatives=draw(st.sampled_from([(), (f"u{i}",)])),
                fallback=draw(st.sampled_from([None, None, Fallback(value="stand-in"), Fallback(tool=f"f{i}")])),
                priority=draw(st.integers(-1, 1)),
                confirm=draw(st.sampled_from([False, False, False, True])),
            )
        )
    return Plan("random", tuple(draw(st.permutations(steps))))


class Died(BaseException):
    """The process dies here."""


@dataclass
class Chaos:
    """A world that draws each answer; it notes every call, and who was called while a need was not met."""

    draw: Any
    calls: list[tuple[str, Any]] = field(default_factory=list)
    over: BaseException | None = None

    def choose(self, options: Sequence[Any]) -> Any:
        """Draw an option; once hypothesis wants no more, the rest of the run is uneventful."""
        if self.over is None:
            try:
                return self.draw(st.sampled_from(options))
            except BaseException as stop:  # noqa: BLE001
                self.over = stop  # it must not reach the engine, which would take it for a tool's failure
        return options[0]

    async def answer(self, name: str, args: dict[str, Any]) -> Any:
        self.calls.append((name, args))
        await asyncio.sleep(self.choose((0, 0, 1, 7, 400)))
        match self.choose(OUTCOMES):
            case "ok":
                return {"made": len(self.calls)}
            case "same":
                return {"made": "always the same"}
            case "transient":
                raise ConnectionRefusedError("down")
            case "tool":
                raise ToolError("broken", category="tool_error")
            case "parameter":
                raise ToolError("wrong", suggest={"given": len(self.calls)})
            case "permanent":
                raise ToolError("no key", category="permanent_error")
            case "dependency":
                raise ToolError("no input", category="dependency_error")
            case "lost":
                raise ConnectionResetError("gone in the middle")
            case "later":
                raise RateLimited("later", retry_after=250)
            case _:
                raise RuntimeError("odd")


def tools_for(plan: Plan, chaos: Chaos) -> list[Any]:
    """The tools of a plan, all answering from the same chaos."""
    from rerail.adapters.tools.functions import tool

    def make(name: str) -> Any:
        async def call(**args: Any) -> Any:
            return await chaos.answer(name, args)

        return tool(call, name=name)

    return [make(name) for name in dict.fromkeys([*tool_names(plan), "extra"])]
