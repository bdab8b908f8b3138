"""Prefect: the plan as a flow, every step a task with retries; results are kept: run again, it finds what is done."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from benchmarks.recovery.contenders.sensible import ATTEMPTS, FIRST_WAIT, LONGEST_WAIT, called, passing
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled
from prefect import flow, task
from prefect.states import State

WAITS = [min(FIRST_WAIT * 2**number, LONGEST_WAIT) for number in range(ATTEMPTS - 1)]


def may_pass(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a task is tried again."""
    try:
        state.result()
    except Exception as error:  # noqa: BLE001  # it is looked at, whatever it is
        return passing(error)
    return False


def key(_context: Any, given: dict[str, Any]) -> str:
    """Under which a step's result is kept."""
    return sha256(f"{given['step']['case']} {given['step']['id']}".encode()).hexdigest()


@task(retries=ATTEMPTS - 1, retry_delay_seconds=WAITS, retry_condition_fn=may_pass, persist_result=True,
      cache_key_fn=key)  # fmt: skip
def call(world: Any, step: dict[str, Any], args: dict[str, Any], careful: bool) -> Any:
    """One step."""
    return called(world, step, args, careful=careful)


@flow(cache_result_in_memory=False, validate_parameters=False)
def plan(world: Any, steps: list[dict[str, Any]], careful: bool) -> dict[str, str]:
    """One step after the other; what depends on a step that failed for good is left out. Gives what failed."""
    answers: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for step in steps:
        if any(need in failed for need in step["needs"]):
            failed[step["id"]] = "skipped"
            continue
        try:
            answers[step["id"]] = call(world, step, filled(step["args"], answers), careful)
        except Exception as error:  # noqa: BLE001  # whatever it is, the rest goes on
            failed[step["id"]] = str(error)
    return failed


def run(job: Job) -> Outcome:
    """The flow, from the beginning: what is done is in its cache."""
    steps = [{**step, "case": job.case} for step in job.plan]
    with job.world() as world:
        failed = plan(world, steps, bool(job.options.get("careful")))
    return Outcome("failed" if failed else "success", why=str(failed))


if __name__ == "__main__":
    serve(run)
