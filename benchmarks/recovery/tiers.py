"""Beside the real tools: real plans. `RERAIL_FIELD_DATA=folder python -m benchmarks.recovery.tiers`

- Scale: every workflow of WfInstances with its own run times on a virtual clock, and seeded faults. Is everything done
  that can be done, how many calls were for nothing, and how long did it take beside the critical path?
- Validator: plans that language models wrote. Is exactly that refused which a plain look finds wrong?

The tier of the classifier is `benchmarks.classifier.measure`; see docs/classifier.md.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rerail
from rerail.testing import VirtualClock, virtual_run

TRANSIENT, PERMANENT = 0.1, 0.002  # steps that fail a few times at first; steps that never succeed
SETTINGS = {"run": {"concurrency": 0}, "retry": {"backoff_base": 0.001}, "reflection": {"max_consecutive_failures": 0}}


def lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The plans of a file."""
    with gzip.open(folder / name, "rt", encoding="utf-8") as found:
        for line in found:
            yield json.loads(line)


def plan_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as a plan."""
    steps = [
        {"id": step["id"], "tool": step["tool"], "depends_on": step["depends_on"],
         "args": step["args"] if isinstance(step["args"], dict) else {"args": step["args"]}}
        for step in line["steps"]
    ]  # fmt: skip
    return {"objective": line["goal"], "steps": steps}


@dataclass
class Weather:
    """What goes wrong in one workflow, and the calls that were made."""

    times: dict[str, int]  # step → calls that fail before one succeeds
    never: set[str]
    runtimes: dict[str, float]
    calls: int = 0

    def tool(self, name: str) -> Any:
        """A tool that takes as long as the step took in the field."""

        async def call(ctx: rerail.Context, **_: Any) -> dict[str, str]:
            self.calls += 1
            if ctx.step in self.never:
                raise PermissionError("not allowed")
            if self.times.get(ctx.step, 0) > 0:
                self.times[ctx.step] -= 1
                raise ConnectionRefusedError("down")
            await asyncio.sleep(self.runtimes[ctx.step])
            return {"step": ctx.step}

        return rerail.tool(name=name, effect="repeatable", schema={"type": "object"}, trust_output=True)(call)


def workflow(line: Mapping[str, Any], chance: random.Random | None) -> dict[str, Any]:
    """One workflow, in fair weather or in foul."""
    steps = line["steps"]
    weather = Weather({}, set(), {step["id"]: step.get("runtime_s") or 0.0 for step in steps})
    if chance is not None:
        weather.times = {step["id"]: chance.choice((1, 2)) for step in steps if chance.random() < TRANSIENT}
        weather.never = {step["id"] for step in steps if chance.random() < PERMANENT}
    due, critical = expected(steps, weather)
    wanted = len(due | {step for step in weather.never if _due(step, steps, due)})
    wanted += sum(times for step, times in weather.times.items() if step in due)

    async def main() -> tuple[Any, float]:
        tools = [weather.tool(name) for name in {step["tool"] for step in steps}]
        settings = {**SETTINGS, "run": {"concurrency": 0, "step_timeout": 10**9}}
        async with rerail.Engine("memory://", tools, settings, clock=VirtualClock()) as engine:
            begun = asyncio.get_running_loop().time()
            result = await engine.run(plan_of(line))
            return result, asyncio.get_running_loop().time() - begun

    result, took = virtual_run(main)
    done = {step for step, row in result.steps.items() if str(row.status) == "succeeded"}
    return {
        "steps": len(steps), "right": done == due and result.success is (len(due) == len(steps)),
        "wasted": weather.calls - wanted, "ratio": took / critical if critical else 1.0,
    }  # fmt: skip


def expected(steps: list[dict[str, Any]], weather: Weather) -> tuple[set[str], float]:
    """What can be done, and the shortest time in which it can."""
    due: set[str] = set()
    ends: dict[str, float] = {}
    todo = list(steps)
    while todo:
        rest = []
        for step in todo:
            if any(need not in ends for need in step["depends_on"]):
                rest.append(step)
                continue
            begin = max((ends[need] for need in step["depends_on"]), default=0.0)
            well = step["id"] not in weather.never and all(need in due for need in step["depends_on"])
            ends[step["id"]] = begin + (weather.runtimes[step["id"]] if well else 0.0)
            if well:
                due.add(step["id"])
        todo = rest
    return due, max((ends[step] for step in due), default=0.0)


def _due(step: str, steps: list[dict[str, Any]], due: set[str]) -> bool:
    """Whether a step that never succeeds is reached at all."""
    return all(need in due for one in steps if one["id"] == step for need in one["depends_on"])


def scale(folder: Path, seed: int) -> list[str]:
    """All workflows."""
    told = []
    for words, foul in (
        ("no faults", False),
        (f"{TRANSIENT:.0%} of steps fail 1-2 times, {PERMANENT:.1%} always", True),
    ):
        found = [
            workflow(line, random.Random(f"{seed}:{line['plan_id']}") if foul else None)
            for line in lines(folder, "wfinstances_plans.jsonl.gz")
        ]
        ratios = sorted(one["ratio"] for one in found)
        steps, right = sum(one["steps"] for one in found), sum(one["right"] for one in found)
        told.append(
            f"| {words} | {right} of {len(found)} workflows, {steps:,} steps | {sum(one['wasted'] for one in found)} "
            f"| {ratios[len(ratios) // 2]:.4f}, at most {ratios[-1]:.4f} |"
        )
    return told


def is_faulty(line: Mapping[str, Any], tools: set[str]) -> bool:
    """What a plain look finds wrong: an unknown tool, a need of nobody, a cycle."""
    ids = {step["id"] for step in line["steps"]}
    if any(step["tool"] not in tools or not ids.issuperset(step["depends_on"]) for step in line["steps"]):
        return True
    left = {step["id"]: set(step["depends_on"]) for step in line["steps"]}
    while free := [step for step, needs in left.items() if not needs & left.keys()]:
        for step in free:
            del left[step]
    return bool(left)


def validator(folder: Path) -> list[str]:
    """All plans of language models: what is refused, beside what a plain look finds."""
    known: dict[str, list[str]] = json.loads((folder / "taskbench_tools.json").read_text(encoding="utf-8"))
    made = {source: [_named(tool) for tool in tools] for source, tools in known.items()}
    faulty = refused = missed = alarms = total = 0
    for line in lines(folder, "taskbench_llm_predicted_plans.jsonl.gz"):
        source = line["source"].split(":")[1]
        wrong = is_faulty(line, set(known[source]))
        plan = plan_of({**line, "steps": [{**step, "args": {}} for step in line["steps"]]})
        found = bool(rerail.Plan.load(plan).check(made[source]))
        total, faulty, refused = total + 1, faulty + wrong, refused + found
        missed, alarms = missed + (wrong and not found), alarms + (found and not wrong)
    return [f"| {total:,} | {faulty} | {refused} | {missed} | {alarms} |"]


def _named(name: str) -> Any:
    def call(**_: Any) -> None:
        """A tool that is never called."""

    return rerail.tool(name=name, schema={"type": "object"})(call)


def main() -> int:
    """Both tiers, as tables."""
    folder = os.environ.get("RERAIL_FIELD_DATA")
    if not folder:
        sys.exit("RERAIL_FIELD_DATA is not set: it names the folder with the field data")
    head = ["| weather | ends as it should | needless calls | time / critical path (median) |", "|---|---|---|---|"]
    sys.stdout.write("\n".join([*head, *scale(Path(folder), 7)]) + "\n\n")
    head = ["| plans | faulty by a plain look | refused | missed | false alarms |", "|---|---|---|---|---|"]
    sys.stdout.write("\n".join([*head, *validator(Path(folder))]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
