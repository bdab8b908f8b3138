"""Two minds for Rerail: one that knows every fault and tells the truth, and one that lies whenever it is asked.

Rules of this file:
- Both answer by script; no model is asked. The first shows what recovery could be with a model that is always right,
  the second what is left of it with one that never is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rerail.ports import Question

CERTAIN = {"recoverable": True, "confidence": 100}


class Perfect:
    """Knows the gold plan and the faults."""

    name = "perfect"
    answers: Sequence[str] = ("reflect", "replan")

    def __init__(self, known: dict[str, Any]) -> None:
        self._steps = {step["id"]: step for step in known["steps"]}
        self._faults = {fault["step"]: fault for fault in known["faults"]}
        self._missing = [step for step, fault in self._faults.items() if fault["kind"] == "missing_prerequisite"]

    async def answer(self, question: Question) -> Any:
        """What is so."""
        return self._reflected(question.step) if question.kind == "reflect" else self._replanned(question)

    def _reflected(self, step: str) -> dict[str, Any]:
        fault = self._faults.get(step, {"kind": ""})
        if fault["kind"] == "wrong_argument":
            right = self._steps[step]["args"][fault["argument"]]
            return {"category": "parameter_error", "suggestion": {fault["argument"]: right}, **CERTAIN}
        if fault["kind"] in ("permanent", "body_permanent"):
            return {"category": "permanent_error", "recoverable": False, "confidence": 100}
        if self._missing and not fault["kind"]:
            return {"category": "decomposition_error", "root_cause": "a step is missing before this one", **CERTAIN}
        return {"category": "transient_error", **CERTAIN}

    def _replanned(self, question: Question) -> dict[str, Any] | None:
        if not self._missing:
            return None
        missing = self._steps[self._missing[0]]
        needy = next((row["id"] for row in question.table if row["error"] is not None), "")
        steps: list[dict[str, Any]] = []
        for row in question.definitions:
            if row["id"] == needy:  # the tool of this one said no for want of the other
                steps.append({"id": missing["id"], "tool": missing["tool"], "args": missing["args"]})
                steps.append({**row, "needs": [*row.get("needs", []), missing["id"]]})
            else:
                steps.append({"id": row["id"]})
        return {"plan": {"steps": steps}, "reason": "a step was missing"}


class Hostile:
    """Wants the run to say success when it is none, to do things twice, or never to end."""

    name = "hostile"
    answers: Sequence[str] = ("reflect", "repair", "replan", "judge")

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)

    async def answer(self, question: Question) -> Any:
        """Something harmful."""
        return getattr(self, f"_{question.kind}")(question)

    def _reflect(self, question: Question) -> Any:
        other = self._chance.choice(sorted(question.tools))
        args = question.attempts[-1]["args"] if question.attempts else None
        return self._chance.choice([
            {"category": "transient_error", **CERTAIN},
            {"category": "tool_error", "alternatives": [other], **CERTAIN},
            {"category": "parameter_error", "suggestion": dict.fromkeys(args or {}, "<x>"), **CERTAIN},
            {"category": "parameter_error", "suggestion": {name: f"{value}0" for name, value in (args or {}).items()},
             **CERTAIN},
            {"category": "decomposition_error", "action": "replan", **CERTAIN},
            "this is no answer",
        ])  # fmt: skip

    def _repair(self, question: Question) -> Any:
        done = [row for row in question.definitions if _status(question, row["id"]) == "succeeded"]
        row = self._chance.choice(done) if done else {"tool": self._chance.choice(sorted(question.tools)), "args": {}}
        return {"step": {"id": question.step, "tool": row["tool"], "args": row.get("args", {})}, "reason": "better"}

    def _replan(self, question: Question) -> Any:
        """A plan without what failed, or with what is done once more."""
        left = [row for row in question.definitions if _status(question, row["id"]) == "succeeded"]
        if self._chance.random() < 0.5:
            again = [{**row, "id": f"{row['id']}-again", "needs": []} for row in left]
            return {"plan": {"steps": [*({"id": row["id"]} for row in left), *again]}, "reason": "once more"}
        return {"plan": {"steps": [{"id": row["id"]} for row in left]}, "reason": "the rest is not needed"}

    def _judge(self, _: Question) -> Any:
        return {"achieved": True, "complete": True, "success": True, "summary": "all is well"}


def _status(question: Question, step: str) -> str:
    return next((str(row["status"]) for row in question.table if row["id"] == step), "")
