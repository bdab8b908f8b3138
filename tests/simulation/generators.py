"""Plans, settings and minds by chance: any shape of needs, every kind of step, tight and loose limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.chance import Dice

from rerail.plan.model import Plan
from rerail.plan.step import Check, Effect, Fallback, Need, Step, When
from rerail.ports import Consultation, MindAnswer

STAND_IN = "stand-in"
EXTRA = "extra"  # a tool of no step; minds and people may use it


@dataclass(frozen=True, slots=True)
class Price:
    """What a call of a tool costs, by its declaration and really."""

    declared: float | None = None
    real: float = 0.0


def draw_plan(dice: Dice, most: int = 8) -> Plan:
    """A random plan. A step `sN` calls `tN`; `uN` is what is called in its place, `fN` what it falls back on."""
    steps: list[Step] = []
    for number in range(1 + dice.number(most)):
        needs = tuple(
            Need(need.id, dice.pick(When.SUCCESS, When.SUCCESS, When.SUCCESS, When.DONE, When.FAILURE))
            for need in dice.some(steps, 3)
        )
        refer = [need.step for need in needs if need.when is not When.FAILURE]
        refers = bool(refer) and dice.pick(True, False)
        args = {"given": "${" + dice.pick(*refer) + "}"} if refers else {}
        steps.append(
            Step(
                f"s{number}", f"t{number}", args, needs,
                critical=dice.pick(True, True, False),
                retries=dice.pick(None, 0, 1),
                effect=dice.pick(None, Effect.READ, Effect.ONCE, Effect.ONCE),
                alternatives=dice.pick((), (f"u{number}",)),
                fallback=dice.pick(None, None, Fallback(value=STAND_IN), Fallback(tool=f"f{number}")),
                check=dice.pick(None, None, None, Check(keys=("made",))),
                timeout=dice.pick(None, 60.0),
                priority=dice.number(3) - 1,
                confirm=dice.chance(5),
                on_doubt=dice.pick("", "", "wait", "fail"),
            )
        )  # fmt: skip
    last = steps[len(steps) - dice.pick(0, 0, 1, 2) :] if len(steps) > 2 else []  # only these may need each other
    return Plan("simulated", tuple(steps), finally_=tuple(step.id for step in last))


def draw_settings(dice: Dice) -> dict[str, Any]:
    """Settings: mostly roomy, sometimes so tight that a run stops of them."""
    concurrency = dice.pick(3, 1, 2, 0)
    attempts, cost = dice.pick((None, None), (None, None), (None, 3.0), (12, 6.0), (6, None))
    return {
        "run": {
            "concurrency": concurrency, "max_attempts": attempts, "max_cost": cost, "step_timeout": 300.0,
        },
        "retry": {
            "max_retry_rounds": dice.pick(0, 1, 2), "max_retries": 50, "max_wait": 600,
            "backoff_base": dice.pick(0.0, 1.0, 5.0),
        },
        "reflection": {
            "max_step_retries": dice.pick(0, 1, 2), "max_consecutive_failures": dice.pick(0, 2),
            "max_single_step_repairs": dice.pick(0, 1), "max_task_replanning_attempts": dice.pick(0, 1, 1),
            "replan": dice.pick("keep", "full"),
        },
        "store": {"reconnect_seconds": 60},
    }  # fmt: skip


def draw_prices(dice: Dice, tools: Sequence[str]) -> dict[str, Price]:
    """What calls cost: as declared, more or less than that, or not declared at all."""
    kinds = (Price(), Price(1.0, 1.0), Price(None, 1.0), Price(1.0, 0.4), Price(0.5, 0.8), Price(2.0, 0.0))
    return {tool: dice.pick(*kinds) for tool in tools}


class DrawnMind:
    """A mind that says nothing, something useful, something wrong, or breaks; each answer has its price."""

    name = "drawn"
    answers: Sequence[str] = ("reflect", "repair", "replan", "judge")
    patience: float | None = None

    def __init__(self, dice: Dice, price: float = 0.0) -> None:
        self._dice, self._price = dice, price

    async def answer(self, question: Any) -> Any:
        """Whatever is drawn."""
        said = await self._answer(question)
        return MindAnswer(said, [Consultation("drawn", cost=self._price)]) if self._price else said

    async def _answer(self, question: Any) -> Any:
        await asyncio.sleep(self._dice.pick(0, 1, 30))
        match self._dice.pick("say", "say", "nothing", "break", "junk"):
            case "say":
                return getattr(self, f"_{question.kind}")(question)
            case "break":
                raise self._dice.pick(RuntimeError("no mind today"), KeyError("x"), ValueError("?"))
            case "junk":
                return self._dice.pick("words", 7, {"steps": "none"}, {"args": []})
            case _:
                return None

    def _reflect(self, question: Any) -> Mapping[str, Any]:
        category = self._dice.pick("transient_error", "parameter_error", "tool_error", "permanent_error")
        return {
            "category": category, "root_cause": "drawn", "recoverable": self._dice.pick(True, False),
            "confidence": self._dice.pick(90, 40), "suggested_args": self._dice.pick(None, {"given": 1}),
        }  # fmt: skip

    def _repair(self, question: Any) -> Mapping[str, Any]:
        return {"args": {"mended": self._dice.number(3)}, "reason": "drawn"}

    def _replan(self, question: Any) -> Mapping[str, Any]:
        rows = [row for row in question.table if row["status"] != "failed"]
        known = {row["id"] for row in rows}
        steps = [{"id": r["id"], "tool": r["tool"], "needs": [n for n in r["needs"] if n in known]} for r in rows]
        return {"steps": [*steps, {"id": f"new{len(steps)}", "tool": EXTRA}], "reason": "drawn"}

    def _judge(self, question: Any) -> Mapping[str, Any]:
        return {"complete": self._dice.pick(True, False), "missing": [], "unsatisfactory": [], "reason": "drawn"}
