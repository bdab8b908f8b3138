"""LangGraph: the plan as a graph with a node for each step, retry policies, and its SQLite checkpointer.

`tuned` retries on every exception, raises error bodies, and resumes once from the checkpoint; without it, LangGraph's
own defaults (three attempts of what its default policy takes for passing). Waits are a
hundredth of its own, as for all.
"""

from __future__ import annotations

import operator
import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx
from benchmarks.recovery.client import HttpError, World
from benchmarks.recovery.contenders.sensible import FIRST_WAIT, LONGEST_WAIT, LostAnswer, called
from benchmarks.recovery.contenders.worker import Job, Outcome, serve
from benchmarks.recovery.plans import filled
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy


class Answers(TypedDict):
    """What the steps answered so far."""

    answers: Annotated[dict[str, Any], operator.or_]


def translated(error: HttpError) -> httpx.HTTPStatusError:
    """The error as the default policy knows it."""
    request = httpx.Request("POST", "http://world")
    return httpx.HTTPStatusError(str(error), request=request, response=httpx.Response(error.status, request=request))


def node(step: dict[str, Any], world: World, *, tuned: bool, careful: bool) -> Any:
    """One step."""

    def call(state: Answers) -> dict[str, Any]:
        try:
            answer = called(world, step, filled(step["args"], state["answers"]), bodies=tuned, careful=careful)
        except HttpError as error:
            raise translated(error) from error
        return {"answers": {step["id"]: answer}}

    return call


def graph_of(job: Job, world: World, *, tuned: bool) -> Any:
    """The plan."""
    careful = bool(job.options.get("careful"))
    policy = RetryPolicy(initial_interval=FIRST_WAIT / 2, max_interval=LONGEST_WAIT, jitter=False)
    if tuned:
        policy = policy._replace(
            max_attempts=4, retry_on=(lambda error: not isinstance(error, LostAnswer)) if careful else Exception
        )
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
            left = 1 if tuned else 0
            state: Any = None if begun else {"answers": {}}
            while True:
                try:
                    graph.invoke(state, settings, durability="sync")
                    return Outcome("success")
                except Exception as error:  # noqa: BLE001  # whatever a node raised
                    if not left or isinstance(error, LostAnswer):
                        return Outcome("failed", why=f"{type(error).__name__}: {error}")
                    left, state = left - 1, None
    finally:
        kept.close()


if __name__ == "__main__":
    serve(run)
