"""DBOS on SQLite: the plan as a durable workflow, a call a step with attempts; launching recovers what was killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.recovery.client import World
from benchmarks.recovery.contenders.sensible import ATTEMPTS, FIRST_WAIT, called, passing
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled
from dbos import DBOS, DBOSConfig, SetWorkflowID

worlds: dict[tuple[str, str], World] = {}


@DBOS.step(
    retries_allowed=True, interval_seconds=FIRST_WAIT, max_attempts=ATTEMPTS, backoff_rate=2.0, should_retry=passing
)
def call(socket: str, case: str, step: dict[str, Any], args: dict[str, Any], careful: bool) -> Any:
    """One call."""
    if (socket, case) not in worlds:
        worlds[socket, case] = World(socket, case)
    return called(worlds[socket, case], step, args, careful=careful)


@DBOS.workflow()
def plan(socket: str, case: str, steps: list[dict[str, Any]], careful: bool) -> dict[str, str]:
    """One step after the other; what depends on a step that failed for good is left out. Gives what failed."""
    answers: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for step in steps:
        if any(need in failed for need in step["needs"]):
            failed[step["id"]] = "skipped"
            continue
        try:
            answers[step["id"]] = call(socket, case, step, filled(step["args"], answers), careful)
        except Exception as error:  # noqa: BLE001  # whatever it is, the rest goes on
            failed[step["id"]] = str(error)
    return failed


launched: list[str] = []


def run(job: Job) -> Outcome:
    """Start the workflow, or wait for the one that launching took up again."""
    if not launched:
        config: DBOSConfig = {
            "name": "bench", "system_database_url": f"sqlite:///{Path(job.home) / 'dbos.sqlite'}",
            "log_level": "CRITICAL", "application_version": "1",
        }  # fmt: skip
        DBOS(config=config)
        DBOS.launch()
        launched.append(job.home)
    try:
        with SetWorkflowID(job.case):
            handle = DBOS.start_workflow(plan, job.socket, job.case, job.plan, bool(job.options.get("careful")))
        failed = handle.get_result(polling_interval_sec=0.01)
    finally:
        world = worlds.pop((job.socket, job.case), None)
        if world is not None:
            world.__exit__()
    return Outcome("failed" if failed else "success", why=str(failed))


if __name__ == "__main__":
    os.environ.setdefault("DBOS__VMID", "bench")
    serve(run)
