"""Where the scenarios run: on each store, and driven by the engine itself or by somebody else's loop.

Rules of this file:
- A scenario knows its place only by what stands in `Place`: it begins a run, sees it end, kills whoever drives it, and
  lets it go on. Time is real here, so waits are short, and what is waited for is a fact and not a number of seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import rerail
from rerail.factory import SystemClock
from rerail.langgraph import build_graph
from rerail.ports import Store
from rerail.testing import World

QUICK = {"retry": {"backoff_base": 0.01, "backoff_cap": 0.02}}


class Way(Protocol):
    """Who drives a run from its plan to its end."""

    async def begin(self, engine: rerail.Engine, plan: Any) -> str:
        """Start a run, which goes on by itself."""
        ...

    async def again(self, engine: rerail.Engine, run: str) -> None:
        """Let a run go on whose driver was killed."""
        ...

    async def end(self, engine: rerail.Engine, run: str) -> rerail.RunResult:
        """Wait for the run's end."""
        ...

    async def kill(self) -> None:
        """Stop driving at once, as a crash would."""
        ...


class ByItself:
    """The engine's own loop."""

    async def begin(self, engine: rerail.Engine, plan: Any) -> str:
        """Start a run."""
        return await engine.start(plan)

    async def again(self, engine: rerail.Engine, run: str) -> None:
        """Resume it."""
        await engine.begin_resume(run)

    async def end(self, engine: rerail.Engine, run: str) -> rerail.RunResult:
        """Wait for it."""
        return await engine.wait(run)

    async def kill(self) -> None:
        """Closing the engine does it."""


class ByGraph:
    """A graph of LangGraph, with its checkpointer: what outlives a kill is in there, and in the store."""

    def __init__(self, checkpointer: Any, thread: str = "1") -> None:
        self._saver, self._config = checkpointer, {"configurable": {"thread_id": thread}}
        self._going: asyncio.Task[Any] | None = None

    async def begin(self, engine: rerail.Engine, plan: Any) -> str:
        """Let the graph begin; the run is named by its caller."""
        self._go(engine, {"plan": plan, "run_id": "the-run"})
        await until(lambda: engine.internals.drives("the-run") or (self._going is not None and self._going.done()))
        return "the-run"

    async def again(self, engine: rerail.Engine, run: str) -> None:
        """Nothing but the thread is named: the checkpoint knows the rest."""
        self._go(engine, None)

    def _go(self, engine: rerail.Engine, given: Any) -> None:
        graph = build_graph(engine, checkpointer=self._saver)
        self._going = asyncio.ensure_future(graph.ainvoke(given, self._config))

    async def end(self, engine: rerail.Engine, run: str) -> rerail.RunResult:
        """The graph has come to its end, and tells of the run what the store does."""
        assert self._going is not None
        told = await self._going
        result = await engine.show(run)
        assert told["run"] == run and told["verdict"]["summary"] == result.summary
        made = {row["name"]: row["digest"] for row in await engine.artifacts(run)}
        assert [(item["name"], item["digest"]) for item in told["artifacts"]] == list(made.items())
        return result

    async def kill(self) -> None:
        """Stop it wherever it is."""
        if self._going is not None and not self._going.done():
            self._going.cancel()
            await asyncio.gather(self._going, return_exceptions=True)


class Place:
    """A store, and who drives the runs in it."""

    def __init__(self, store: str | Store, way: Callable[[], Way] = ByItself) -> None:
        self._store, self._way = store, way

    @contextlib.asynccontextmanager
    async def open(self, world: World, plan: Any) -> AsyncIterator[Here]:
        """An engine here, until it is killed: leaving it stops runs as a crash would."""
        async with world.engine(plan, store=self._store, clock=SystemClock(), settings=QUICK) as engine:
            here = Here(engine, self._way())
            try:
                yield here
            finally:
                await here.way.kill()


class Here:
    """An open engine, and the way that runs are driven."""

    def __init__(self, engine: rerail.Engine, way: Way) -> None:
        self.engine, self.way = engine, way

    async def begin(self, plan: Any) -> str:
        """Start a run, which goes on by itself."""
        return await self.way.begin(self.engine, plan)

    async def again(self, run: str) -> None:
        """Let a run go on whose driver was killed."""
        await self.way.again(self.engine, run)

    async def end(self, run: str) -> rerail.RunResult:
        """Wait for the run's end."""
        return await self.way.end(self.engine, run)

    async def whole(self, plan: Any) -> tuple[rerail.RunResult, list[Any]]:
        """A run from its plan to its end: the result and the history."""
        result = await self.end(await self.begin(plan))
        return result, await self.engine.events(result.run_id)


async def until(fact: Callable[[], Any]) -> None:
    """Wait for something to be so; it is a failure if it never is."""
    async with asyncio.timeout(20):
        while not fact():  # noqa: ASYNC110 - the facts are plain ones, of a world that tells nobody
            await asyncio.sleep(0.005)
