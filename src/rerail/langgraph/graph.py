"""A run as a LangGraph graph: planner → scheduler → executor → reflector (contract I5; extra `langgraph`).

Rules of this file:
- There is no second engine here. The run's own loop does the work and its history is the truth; the graph steps it from
  stage to stage and reports. A repeated node finds its work done. LangGraph may repeat, fork or forget anything: it
  never causes a second call of a tool.
- The state of the graph is small, and holds each artifact once, under its name, whatever its reducer would do.
- A decision for a person is an interrupt; its answer becomes a command of the run's inbox.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Final, cast

from langchain_core.runnables import RunnableConfig
from langgraph.channels import LastValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Overwrite, StreamWriter, interrupt
from typing_extensions import TypedDict  # pydantic, which LangGraph asks for schemas, knows no other before 3.12

from rerail.api import Engine
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.kernel.events import ArtifactCreated, Record, Waiting
from rerail.kernel.step_state import RunStatus
from rerail.views.results import RunResult

PLANNER, SCHEDULER, EXECUTOR, REFLECTOR = "planner", "scheduler", "executor", "reflector"
PERSON = "person"
AT_REST: Final = frozenset({str(RunStatus.COMPLETED), str(RunStatus.FAILED), str(RunStatus.CANCELLED)})
SMALL: Final = 4096  # largest artifact, in bytes, that every checkpoint holds in full
PAGE: Final = 2000
LOOK: Final = 1.0  # seconds between two polls for news
STEPS: Final = 1_000_000  # a run has budgets of its own, and ends; the graph need not count
VERDICT: Final = (
    "run_id", "status", "success", "complete", "degraded", "failed_steps", "consequences", "disputed", "judge",
    "summary", "stopped",
)  # fmt: skip


class Artifact(TypedDict, total=False):
    """A step's product: its name, its origin and, if it is small, its value."""

    name: str
    step: str
    attempt: int
    digest: str
    size: int
    media: str
    value: Any


class RunState(TypedDict, total=False):
    """The state of the graph; extend it for fields of your own."""

    # The request, cleared once it was taken up: a plan, or an objective and the fallback without a planner.
    plan: Any
    objective: str | None
    fallback: Any
    run_id: str | None  # the id for the run; an existing run goes on
    # The report.
    run: str
    seq: int  # the last event in this state
    status: str
    asked: int  # the event with the open question, as far as this state knows
    ready: list[str]  # steps with calls that are due
    artifacts: list[Artifact]
    verdict: dict[str, Any] | None  # once the run is at rest


def build_graph(
    engine: Engine, state: type[Any] | None = None, **options: Any
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Compile a graph that runs plans with an open engine: `await graph.ainvoke({"plan": …}, config)`."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state or RunState)
    # A reducer would add to the old value; the nodes always return the whole one.
    reduced = not isinstance(builder.channels["artifacts"], LastValue)
    nodes = _Nodes(engine, Overwrite if reduced else lambda value: value)
    for name in (PLANNER, SCHEDULER, EXECUTOR, REFLECTOR, PERSON):
        builder.add_node(name, getattr(nodes, name))
    ends: dict[Hashable, str] = {END: END, PERSON: PERSON}
    builder.add_edge(START, PLANNER)
    builder.add_conditional_edges(PLANNER, _next(SCHEDULER), {**ends, SCHEDULER: SCHEDULER})
    builder.add_conditional_edges(SCHEDULER, _next(EXECUTOR), {**ends, EXECUTOR: EXECUTOR})
    builder.add_edge(EXECUTOR, REFLECTOR)
    builder.add_conditional_edges(REFLECTOR, _next(SCHEDULER), {**ends, SCHEDULER: SCHEDULER})
    builder.add_conditional_edges(PERSON, _next(SCHEDULER), {**ends, SCHEDULER: SCHEDULER})
    graph = builder.compile(**{"name": "rerail", **options})
    return graph.with_config(recursion_limit=STEPS)


def as_node(
    engine: Engine, given: Mapping[str, Any], update: Callable[[RunResult], Any] | None, key: str
) -> Callable[..., Any]:
    """Return a node that runs what is given: the plan, the objective, the fallback, or functions of the state.

    The graph's checkpointer and interrupts serve the run too; a repeated node goes on with the same run.
    """
    graph = build_graph(engine)

    async def node(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        asked = {name: await _made(one, state) for name, one in given.items()}
        told = await graph.ainvoke({**asked, "run_id": _run_id(runtime)}, config)
        if update is not None:
            return await _made(update, await engine.show(told["run"]))
        return {key: {"verdict": told["verdict"], "artifacts": told["artifacts"]}}

    return node


async def _made(given: Any, of: Any) -> Any:
    """Return a value, or a function's result; async functions too."""
    made = given(of) if callable(given) else given
    return await made if isawaitable(made) else made


def _next(onwards: str) -> Callable[[RunState], str]:
    """Return the next node: a person's question, the end, or the next stage."""

    def choose(state: RunState) -> str:
        if state["status"] in AT_REST:
            return END
        return PERSON if state["status"] == RunStatus.WAITING else onwards

    return choose


def _run_id(runtime: Runtime[Any]) -> str:
    """Return the run id of this very execution of a node: the same when it is repeated."""
    info = runtime.execution_info
    assert info is not None  # always set inside of a node
    return info.task_id.replace("-", "")[:16]


class _Nodes:
    """The nodes of the graph, each a stage of the run."""

    def __init__(self, engine: Engine, whole: Callable[[Any], Any]) -> None:
        self._engine, self._whole = engine, whole

    async def planner(self, state: RunState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Create the run with the given plan, or with one made for the objective."""
        engine, run = self._engine, state.get("run_id") or ""
        plan, objective = state.get("plan"), state.get("objective")
        if plan is None and objective is None:
            if not run:
                hint = tell("hint.graph.nothing_to_run")
                raise Refused(tell("refuse.graph.nothing_to_run"), "USAGE", hint=hint)
            run = await engine.find(run)
        else:
            run = await self._begun(run or _run_id(runtime), plan, objective, state.get("fallback"))
        await self._going(run)
        fresh: RunState = {"run": run, "seq": 0, "artifacts": []}
        taken_up = {"plan": None, "objective": None, "fallback": None, "run_id": None, "verdict": None}
        return {**taken_up, "artifacts": self._whole([]), **await self._told(fresh, runtime.stream_writer)}

    async def _begun(self, run: str, plan: Any, objective: str | None, fallback: Any) -> str:
        self._engine.internals.pace(run)
        try:
            await self._engine.start(plan, objective=objective, fallback=fallback, run_id=run)
        except Refused as refused:
            if refused.code != "RUN_EXISTS":
                raise  # else an earlier, interrupted planner created it
        return run

    async def scheduler(self, state: RunState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Report the calls that are due."""
        run = state["run"]
        await self._going(run)
        ready = await self._engine.internals.due(run)
        return {"ready": ready, **await self._told(state, runtime.stream_writer)}

    async def executor(self, state: RunState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Make the due calls, wait for news, and record it."""
        return await self._through(EXECUTOR, state, runtime.stream_writer)

    async def reflector(self, state: RunState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Report the consequences: retries, other rungs, skips, the verdict."""
        return await self._through(REFLECTOR, state, runtime.stream_writer)

    async def person(self, state: RunState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Interrupt the graph with a question for a person."""
        engine, run = self._engine, state["run"]
        engine.internals.pace(run)
        if (await engine.internals.head(run)).status == RunStatus.WAITING:
            now = await self._told(state, runtime.stream_writer)
            if now.get("asked", state.get("asked")) != state.get("asked"):
                return now  # the question changed: an earlier answer does not fit it
            result = await engine.show(run)
            waits = [dict(item) for item in result.waiting_on]
            shown = {item["step"]: item.get("digest") for item in waits}
            for step, answer in _answers(run, result.objective, waits):
                await self._act(run, step, answer, shown.get(step))
            if any(item["for"] == "paused" for item in waits) and not engine.internals.drives(run):
                await engine.begin_resume(run)
        await self._going(run)
        return await self._told(state, runtime.stream_writer)

    async def _act(self, run: str, step: str, answer: Any, digest: str | None) -> None:
        if isinstance(answer, bool):
            await self._engine.confirm(run, step, refuse=not answer, digest=digest)
        elif answer == "skip":
            await self._engine.skip(run, step)
        else:
            await self._engine.resolve(run, step, **answer)

    # -- The run behind it ----------------------------------------------------------------------------------------

    async def _going(self, run: str) -> None:
        """Make sure that the run has a driver: its process may have died, or another one holds it."""
        engine = self._engine
        idle = not engine.internals.drives(run)
        if idle and (await engine.internals.head(run)).status not in (*AT_REST, RunStatus.WAITING):
            engine.internals.pace(run)
            try:
                await engine.begin_resume(run)
            except Refused as refused:
                if refused.code != "RUN_LIVE":
                    raise
                await engine.wait(run)  # another process drives it: follow
        await engine.internals.through(run)

    async def _through(self, stage: str, state: RunState, tell_of: StreamWriter) -> dict[str, Any]:
        """Let the run pass a stage, and report what happens meanwhile."""
        run, seq = state["run"], state["seq"]
        await self._going(run)
        going = asyncio.ensure_future(self._engine.internals.through(run, stage))
        told = state
        try:
            while not going.done():
                await self._until_news(run, seq, going)
                if not going.done():
                    told = cast("RunState", {**told, **await self._news(told, tell_of)})
                    seq = told["seq"]
            await going
        finally:
            going.cancel()
        found = await self._told(told, tell_of)
        if "artifacts" not in found and told.get("artifacts") is not state.get("artifacts"):
            found["artifacts"] = self._whole(told["artifacts"])
        return found

    async def _until_news(self, run: str, seq: int, going: asyncio.Future[bool]) -> None:
        news = asyncio.ensure_future(self._engine.internals.changed(run, seq, LOOK))
        try:
            await asyncio.wait([going, news], return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)  # a store that is away is the run's own trouble

    async def _told(self, state: RunState, tell_of: StreamWriter) -> dict[str, Any]:
        run = state["run"]
        found: dict[str, Any] = {"run": run, **await self._news(state, tell_of)}
        if found.get("artifacts") is not None:
            found["artifacts"] = self._whole(found["artifacts"])
        found["status"] = (await self._engine.internals.head(run)).status
        if found["status"] in AT_REST:
            plain = (await self._engine.show(run)).to_dict()
            found |= {"verdict": {name: plain[name] for name in VERDICT}, "ready": []}
        return found

    async def _news(self, state: RunState, tell_of: StreamWriter) -> dict[str, Any]:
        """Report events since the last read: each to the stream, artifacts to their one place."""
        run, seq = state["run"], state["seq"]
        known = {item["name"]: item for item in state.get("artifacts") or ()}
        fresh: dict[str, Artifact] = {}
        asked: dict[str, int] = {}
        async for record in self._records(run, seq):
            tell_of(record.to_dict())
            seq = record.seq
            if isinstance(record.event, ArtifactCreated):
                fresh[record.event.name] = await self._artifact(run, record.event)
            elif isinstance(record.event, Waiting):
                asked["asked"] = record.seq
        return {"seq": seq, **asked, **({"artifacts": list({**known, **fresh}.values())} if fresh else {})}

    async def _records(self, run: str, after: int) -> AsyncIterator[Record]:
        while records := await self._engine.internals.page(run, after, PAGE):
            for record in records:
                yield record
            after = records[-1].seq

    async def _artifact(self, run: str, made: ArtifactCreated) -> Artifact:
        found: Artifact = {
            "name": made.name, "step": made.step, "attempt": made.attempt, "digest": made.digest, "size": made.size,
            "media": made.media,
        }  # fmt: skip
        if not made.path and made.size <= SMALL:
            with contextlib.suppress(Refused):  # it was made and is gone again: the run will make it anew
                found["value"] = await self._engine.artifact(run, made.name)
        return found


# -- Answers --------------------------------------------------------------------------------------------------------


def _answers(run: str, objective: str, waits: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Ask until the answers parse; LangGraph stops here, and returns with the answers."""
    asked = {"run": run, "objective": objective, "waiting_on": waits, "answer": tell("reason.graph.how")}
    while True:
        answer = interrupt({name: _plain(value) for name, value in asked.items()})
        try:
            return _read(answer, waits)
        except _NoAnswer as problem:
            asked["problem"] = str(problem)


class _NoAnswer(Exception):
    """The answer does not fit the question."""


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


def _read(answer: Any, waits: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    steps = {item["step"]: item["for"] for item in waits if item["step"]}
    if isinstance(answer, Mapping):
        for step in answer:
            if step not in steps:
                raise _NoAnswer(tell("reason.graph.unknown", step=step))
        given = dict(answer)
    else:
        given = dict.fromkeys(steps, answer)
    for step, one in given.items():
        gate = steps[step] == "confirm" and isinstance(one, bool)
        if not (gate or one == "skip" or _resolves(one)):
            raise _NoAnswer(tell("reason.graph.answer", step=step, answer=one))
    return list(given.items())


def _resolves(answer: Any) -> bool:
    if not isinstance(answer, Mapping) or len(answer) != 1:
        return False
    [(name, value)] = answer.items()
    return name == "succeeded" or (name in ("failed", "rerun") and value is True)
