"""The plan of a case, in a form that belongs to no contender; and the faults that are in the plan itself."""

from __future__ import annotations

from typing import Any

from benchmarks.recovery.faults import Case

Plan = list[dict[str, Any]]


def plan_of(case: Case, task: dict[str, Any], effects: dict[str, str]) -> Plan:
    """The steps in an order that respects their needs.

    An argument is a value, or `{"$ref": [step, key, …]}`: a value inside an earlier step's answer.
    """
    steps = [
        {
            "id": step["id"], "tool": step["tool"], "effect": effects[step["tool"]], "alternatives": [],
            "needs": list(step["needs"]),
            "args": {
                name: {"$ref": step["refs"][name]} if name in step["refs"] else value
                for name, value in step["args"].items()
            },
        }
        for step in task["steps"]
    ]  # fmt: skip
    for fault in case.faults:
        step = next(one for one in steps if one["id"] == fault.step)
        if fault.kind == "renamed_tool":
            step["alternatives"], step["tool"] = [step["tool"]], step["tool"] + "_v1"
        elif fault.kind == "wrong_argument":
            step["args"][fault.argument] = fault.value
        elif fault.kind == "missing_prerequisite":
            steps.remove(step)
            for other in steps:
                if step["id"] in other["needs"]:
                    rest = [need for need in other["needs"] if need != step["id"]]
                    other["needs"] = sorted({*rest, *step["needs"]}, key=lambda one: int(one[1:]))
    return steps


def filled(args: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """Arguments with the values that they refer to; `KeyError` if an answer has no such part."""
    return {name: _value(value, answers) for name, value in args.items()}


def _value(value: Any, answers: dict[str, Any]) -> Any:
    if not (isinstance(value, dict) and "$ref" in value):
        return value
    step, *keys = value["$ref"]
    found = answers[step]
    for key in keys:
        try:
            found = found[key]
        except (TypeError, IndexError, KeyError) as error:
            raise KeyError(f"{step} has no {keys}") from error
    return found
