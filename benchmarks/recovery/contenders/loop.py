"""What people write themselves: a loop over the steps in order, with tenacity around each call."""

from __future__ import annotations

from typing import Any

from benchmarks.recovery.client import HttpError
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential


class ErrorBody(Exception):
    """An answer that says that it is an error."""


def raised(answer: Any) -> Any:
    """An answer, or the error that it holds."""
    if isinstance(answer, dict) and (answer.get("error") or answer.get("success") is False):
        raise ErrorBody(str(answer))
    return answer


def passing(error: BaseException) -> bool:
    """Whether it may be different next time, as people usually decide it."""
    if isinstance(error, HttpError):
        return error.status in (408, 429) or error.status >= 500
    return isinstance(error, (ConnectionError, TimeoutError, ErrorBody))


def run(job: Job) -> Outcome:
    """One step after the other; the first that fails for good ends it."""
    answers: dict[str, Any] = {}
    attempts = Retrying(
        stop=stop_after_attempt(4),
        wait=wait_exponential(0.01, max=0.2),
        retry=retry_if_exception(passing),
        reraise=True,
    )
    with job.world() as world:
        for step in job.plan:
            args = filled(step["args"], answers)
            tools = [step["tool"], *step["alternatives"]]
            for tool in tools:
                try:
                    answers[step["id"]] = attempts(
                        lambda tool=tool, args=args, step=step: raised(world.call(step["id"], tool, args))
                    )
                    break
                except Exception:
                    if tool == tools[-1]:
                        raise
    return Outcome("success")


if __name__ == "__main__":
    serve(run)
