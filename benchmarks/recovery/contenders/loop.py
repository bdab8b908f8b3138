"""What people write themselves: a loop over the steps in order, tenacity around each call, a file of what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.recovery.client import HttpError
from benchmarks.recovery.contenders.sensible import ATTEMPTS, FIRST_WAIT, LONGEST_WAIT, called, passing
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

EXPONENTIAL = wait_exponential(FIRST_WAIT, max=LONGEST_WAIT)


def wait(state: RetryCallState) -> float:
    """As long as the service asks, else longer each time."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, HttpError) else None
    return EXPONENTIAL(state) if asked is None else asked


def run(job: Job) -> Outcome:
    """One step after the other; what depends on a step that failed for good is left out."""
    kept = Path(job.folder) / "done.jsonl"
    answers: dict[str, Any] = {}
    if kept.exists():
        answers = dict(json.loads(line) for line in kept.read_text().splitlines())
    attempts = Retrying(
        stop=stop_after_attempt(ATTEMPTS), wait=wait, retry=retry_if_exception(passing), reraise=True
    )  # fmt: skip
    failed: dict[str, str] = {}
    careful = bool(job.options.get("careful"))
    with job.world() as world, kept.open("a", buffering=1) as done:
        for step in job.plan:
            if step["id"] in answers:
                continue
            if any(need in failed for need in step["needs"]):
                failed[step["id"]] = "skipped"
                continue
            try:
                args = filled(step["args"], answers)
                answers[step["id"]] = attempts(called, world, step, args, careful=careful)
                done.write(json.dumps([step["id"], answers[step["id"]]]) + "\n")
            except Exception as error:  # noqa: BLE001  # whatever it is, the rest goes on
                failed[step["id"]] = str(error)
    return Outcome("failed" if failed else "success", why=str(failed))


if __name__ == "__main__":
    serve(run)
