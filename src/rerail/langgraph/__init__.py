"""Rerail in LangGraph: a run as a graph, and as a node of another graph (extra `langgraph`).

    graph = rerail.langgraph.build_graph(engine, checkpointer=saver)
    told = await graph.ainvoke({"plan": plan}, {"configurable": {"thread_id": "1"}})

A compiled graph is a tool, too: `rerail.tool(graph, name="research")`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rerail.errors import SettingsError
from rerail.factory import needs_extra
from rerail.i18n import tell

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

    from rerail.api import Engine
    from rerail.langgraph.graph import RunState
    from rerail.views.results import RunResult

__all__ = ["RunState", "as_node", "build_graph"]


def build_graph(
    engine: Engine, *, state: type[Any] | None = None, checkpointer: Any = None, **options: Any
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A compiled graph that runs plans with an open engine: planner → scheduler → executor → reflector.

    ``state`` may extend `RunState`; ``checkpointer`` and the other options are those of LangGraph's `compile`.
    """
    made: CompiledStateGraph[Any, Any, Any, Any] = _adapter().build_graph(
        engine, state, checkpointer=checkpointer, **options
    )
    return made


def as_node(
    engine: Engine,
    plan: Any = None,
    *,
    objective: Any = None,
    fallback: Any = None,
    update: Callable[[RunResult], Any] | None = None,
    key: str = "rerail",
) -> Callable[..., Any]:
    """Return a node for a user's graph that runs a plan: the plan itself, or a function of the state that gives it.

    Its update is `{key: {"verdict": …, "artifacts": …}}`, or the result of ``update`` for the run's result.
    """
    given = {"plan": plan, "objective": objective, "fallback": fallback}
    made: Callable[..., Any] = _adapter().as_node(engine, given, update, key)
    return made


def _adapter() -> ModuleType:
    with needs_extra(SettingsError(tell("refuse.graph.no_extra"), hint=tell("hint.graph.no_extra"))):
        from rerail.langgraph import graph
    return graph


def __getattr__(name: str) -> Any:
    if name != "RunState":
        raise AttributeError(name)
    return _adapter().RunState
