"""Whoever knows everything: the least number of calls that reach the best end state.

It makes each call as the plan says, for nobody can know of a fault before; then it knows at once what happened, whether
it passes, what the right call is, and never makes a call that need not be made.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.recovery.client import HttpError, World
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled

HOPELESS = ("permanent", "body_permanent")


class Oracle:
    """One case, seen from above."""

    def __init__(self, job: Job, world: World) -> None:
        known = job.options["knows"]
        self._world = world
        self._plan = job.plan
        self._gold = {step["id"]: step for step in known["steps"]}
        self._faults = {fault["step"]: fault for fault in known["faults"]}
        self._missing = [step for step, fault in self._faults.items() if fault["kind"] == "missing_prerequisite"]
        self._answers: dict[str, Any] = {}

    def run(self) -> Outcome:
        """Step by step; what is below a hopeless step is left out."""
        blocked: set[str] = set()
        for step in self._plan:
            if any(need in blocked for need in step["needs"]) or not self._done(step):
                blocked.add(step["id"])
        return Outcome("failed" if blocked else "success", why=", ".join(sorted(blocked)))

    def _done(self, step: dict[str, Any]) -> bool:
        ident, fault = step["id"], self._faults.get(step["id"], {"kind": ""})
        tool, args = step["tool"], filled(step["args"], self._answers)
        while not self._is_done(ident):
            wait = self._call(ident, tool, args)
            if self._is_done(ident):
                break
            if fault["kind"] in HOPELESS:
                return False
            time.sleep(wait)
            if ident not in self._faults and self._missing:  # it is this step that needed the missing one
                gold = self._gold[self._missing.pop()]
                self._call(gold["id"], gold["tool"], gold["args"])
            tool, args = self._gold[ident]["tool"], self._gold[ident]["args"]
        return True

    def _is_done(self, ident: str) -> bool:
        found = self._world.ask("truth", step=ident)
        self._answers[ident] = found["answer"]
        return bool(found["done"])

    def _call(self, ident: str, tool: str, args: dict[str, Any]) -> float:
        """A call; gives how long to wait before the next."""
        try:
            self._world.call(ident, tool, args)
        except HttpError as error:
            return error.retry_after or 0.0
        except (ConnectionError, TimeoutError, RuntimeError):
            return 0.0
        return 0.0


def run(job: Job) -> Outcome:
    """What could be reached."""
    with job.world() as world:
        return Oracle(job, world).run()


if __name__ == "__main__":
    serve(run)
