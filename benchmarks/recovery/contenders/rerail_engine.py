"""Rerail on SQLite: what a user would write, and nothing that knows the benchmark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.recovery.client import TIMEOUT, World
from benchmarks.recovery.contenders.minds import Hostile, Perfect
from benchmarks.recovery.contenders.worker import Job, Outcome, serve

import rerail


def tools_of(job: Job, world: World) -> list[Any]:
    """Every tool that the plan may name, with its effect."""
    named = dict(job.tools) if "mind" in job.options else {}  # a mind may choose among all that there are
    named |= {name: step["effect"] for step in job.plan for name in (step["tool"], *step["alternatives"])}
    declared = job.options.get("effects", True)
    return [_tool(name, effect if declared else "repeatable", job, world) for name, effect in named.items()]


def _tool(name: str, effect: str, job: Job, world: World) -> Any:
    def call(ctx: rerail.Context, **args: Any) -> Any:
        return world.call(ctx.step, name, args)

    options: dict[str, Any] = {"name": name, "effect": effect, "timeout": 10 * TIMEOUT, "schema": {"type": "object"}}
    if job.options.get("trust_output"):
        options["trust_output"] = True
    if job.options.get("verify") and effect != "read":

        def probe(args: dict[str, Any]) -> Any:
            return world.probe(name, args)

        def verify(args: dict[str, Any], output: Any, before: Any) -> Any:
            return _verified(world, name, output, before)

        options |= {"verify": verify, "probe": probe}
    return rerail.tool(**options)(call)


def _verified(world: World, name: str, output: Any, before: dict[str, Any]) -> Any:
    """Whether the world looks as it would after the call, and not as before it.

    A call that changes nothing leaves nothing to see: it is done once its answer is there, and can be made again.
    """
    if before["now"] == before["then"]:
        return output is not None
    happened = world.look(name) == before["then"]
    if happened and output is None:
        return rerail.Verified(output=before["answer"])
    return happened


def plan_for(job: Job) -> dict[str, Any]:
    """The plan in Rerail's words."""
    steps, alternatives = [], job.options.get("alternatives", True)
    for step in job.plan:
        args = {name: _reference(value) for name, value in step["args"].items()}
        steps.append({"id": step["id"], "tool": step["tool"], "args": args, "needs": step["needs"],
                      "alternatives": step["alternatives"] if alternatives else []})  # fmt: skip
    return {"objective": job.case, "steps": steps}


def _reference(value: Any) -> Any:
    if not (isinstance(value, dict) and "$ref" in value):
        return value
    step, *keys = value["$ref"]
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return "${" + step + path + "}"


def run(job: Job) -> Outcome:
    """Start the plan, or go on with it; then say what it came to."""
    with job.world() as world:
        return asyncio.run(_run(job, world))


def _mind(job: Job) -> Any:
    wanted = job.options.get("mind")
    if wanted == "perfect":
        return Perfect(job.options["knows"])
    return Hostile(job.case) if wanted == "hostile" else None


async def _run(job: Job, world: World) -> Outcome:
    store = f"sqlite:///{Path(job.folder) / 'runs.db'}"
    settings: dict[str, Any] = {"retry": {"backoff_base": 0.01}, "store": {"durability": "normal"}}
    for name, value in job.options.get("settings", {}).items():
        table, key = name.split(".")
        settings.setdefault(table, {})[key] = value
    async with rerail.Engine(store, tools_of(job, world), settings, model=_mind(job)) as engine:
        rows = await engine.list()
        if not rows:
            result = await engine.run(plan_for(job))
        elif job.answers:
            for step, truth in job.answers.items():
                told: dict[str, Any] = {"succeeded": truth["answer"]} if truth["done"] else {"rerun": True}
                await engine.resolve(rows[0].run_id, step, **told)
            result = await engine.wait(rows[0].run_id)
        else:
            result = await engine.resume(rows[0].run_id)
        doubts = tuple(step for step, row in result.steps.items() if str(row.status) == "in_doubt")
        # "Degraded" and "not complete" are how Rerail says that it is not quite what was asked for.
        whole = result.complete and not result.degraded
        status = "waiting" if str(result.status) == "waiting" else "success" if whole else "failed"
        return Outcome(status, doubts, result.summary)


if __name__ == "__main__":
    serve(run)
