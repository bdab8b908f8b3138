"""LangGraph: the plan as a graph with a node for each step, retry policies, and its SQLite checkpointer.

`tuned` retries what may pass as often as all do, raises error bodies, and puts down what failed for good, so that other
branches go on; without it, LangGraph's own defaults (three attempts of what its default policy takes for passing).
Waits are a hundredth of its own, as for all.
"""

from __future__ import annotations

import operator
import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx
from benchmarks.recovery.client import HttpError, World
from benchmarks.recovery.contenders.sensible import ATTEMPTS, FIRST_WAIT, LONGEST_WAIT, called, passing
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy


class Answers(TypedDict):
    """What the steps answered so far, and what failed for good."""

    answers: Annotated[dict[str, Any], operator.or_]
    failed: Annotated[dict[str, str], operator.or_]


def translated(error: HttpError) -> httpx.HTTPStatusError:
    """The error as the default policy knows it."""
    request = httpx.Request("POST", "http://world")
    return httpx.HTTPStatusError(str(error), request=request, response=httpx.Response(error.status, request=request))


def node(step: dict[str, Any], world: World, *, tuned: bool, careful: bool) -> Any:
    """One step."""

    def call(state: Answers) -> dict[str, Any]:
        if any(need in state["failed"] for need in step["needs"]):
            return {"failed": {step["id"]: "skipped"}}
        try:
            answer = called(world, step, filled(step["args"], state["answers"]), bodies=tuned, careful=careful)
        except Exception as error:  # noqa: BLE001  # it is looked at, whatever it is
            if tuned and not passing(error):
                return {"failed": {step["id"]: str(error)}}
            raise translated(error) if isinstance(error, HttpError) and not tuned else error from None
        return {"answers": {step["id"]: answer}}

    return call


def graph_of(job: Job, world: World, *, tuned: bool) -> Any:
    """The plan."""
    careful = bool(job.options.get("careful"))
    policy = RetryPolicy(initial_interval=FIRST_WAIT / 2, max_interval=LONGEST_WAIT, jitter=False)
    if tuned:
        policy = policy._replace(max_attempts=ATTEMPTS, retry_on=passing)
    graph = StateGraph(Answers)
    ends = {step["id"] for step in job.plan}
    for step in job.plan:
        graph.add_node(step["id"], node(step, world, tuned=tuned, careful=careful), retry_policy=policy)
        graph.add_edge(step["needs"] or START, step["id"])
        ends.difference_update(step["needs"])
    for ident in ends:
        graph.add_edge(ident, END)
    return graph


def run(job: Job) -> Outcome:
    """Run, or go on from the checkpoint."""
    tuned = bool(job.options.get("tuned"))
    kept = sqlite3.connect(Path(job.folder) / "graph.db", check_same_thread=False)
    settings: Any = {"configurable": {"thread_id": job.case}, "recursion_limit": 100, "max_concurrency": 8}
    try:
        with job.world() as world:
            graph = graph_of(job, world, tuned=tuned).compile(checkpointer=SqliteSaver(kept))
            begun = job.resumed and graph.get_state(settings).created_at is not None
            state: Any = None if begun else {"answers": {}, "failed": {}}
            try:
                failed = graph.invoke(state, settings, durability="sync")["failed"]
                return Outcome("failed" if failed else "success", why=str(failed))
            except Exception as error:  # noqa: BLE001  # whatever a node raised
                return Outcome("failed", why=f"{type(error).__name__}: {error}")
    finally:
        kept.close()


if __name__ == "__main__":
    serve(run)
