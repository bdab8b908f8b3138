"""Retry chains by hand, as agent programs do it: run everything, then the failed steps and all below them once more.

Rules of this file:
- The first pass calls every step once its needs are finished, however they ended; only the second skips what is below a
  failed step. A result is a failure if the call raised, or answered `success: false`; any other answer is believed.
- The second pass runs the whole chain, steps of it that had succeeded included. Nothing survives a kill: the plan is
  begun again. The verdict goes by the latest result of every step.
"""

from __future__ import annotations

from typing import Any

from benchmarks.recovery.client import World
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled


def chain(plan: list[dict[str, Any]], sources: set[str]) -> set[str]:
    """The failed steps and everything that depends on them."""
    found = set(sources)
    for step in plan:  # in an order that respects needs
        if any(need in found for need in step["needs"]):
            found.add(step["id"])
    return found


def execute(world: World, plan: list[dict[str, Any]], answers: dict[str, Any], again: set[str] | None) -> set[str]:
    """One pass; gives the steps that failed in it."""
    failed: set[str] = set()
    for step in plan:
        if again is not None and step["id"] not in again:
            continue
        if again is not None and any(need in failed for need in step["needs"]):
            failed.add(step["id"])
            continue
        try:
            answer = world.call(step["id"], step["tool"], filled(step["args"], answers))
            if isinstance(answer, dict) and answer.get("success") in (False, 0) and "success" in answer:
                failed.add(step["id"])
            else:
                answers[step["id"]] = answer
        except Exception:  # noqa: BLE001  # a failure is a failure
            failed.add(step["id"])
    return failed


def run(job: Job) -> Outcome:
    """Two passes."""
    answers: dict[str, Any] = {}
    with job.world() as world:
        failed = execute(world, job.plan, answers, None)
        if failed:
            failed = execute(world, job.plan, answers, chain(job.plan, failed))
    return Outcome("failed" if failed else "success", why=", ".join(sorted(failed)))


if __name__ == "__main__":
    serve(run)
