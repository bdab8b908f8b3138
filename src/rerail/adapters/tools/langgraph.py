"""Graphs of LangGraph as tools (SPEC I5, M2): recognised without importing LangGraph.

Rules of this file:
- LangGraph is never imported here: an object of its classes can only exist where somebody has imported it.
- A call is a thread of the graph, named by the call's idempotency key. A graph with a checkpointer that is called again
  with the same key goes on where it stopped, and gives what it gave if it had come to its end.
- What a graph does is not known from the outside, so it may not happen twice unless somebody says so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeGuard, Unpack

from pydantic import PydanticUserError

from rerail.adapters.tools.functions import settled
from rerail.adapters.tools.specs import Looks, Options, make_spec
from rerail.core.plan import Effect
from rerail.core.schema import readable
from rerail.errors import ToolError
from rerail.i18n import tell

INTERRUPTED = "__interrupt__"  # LangGraph's name for what a graph asks


def is_graph(value: Any) -> TypeGuard[Any]:
    """Whether it is a compiled graph; no attribute of it is looked at."""
    base = getattr(sys.modules.get("langgraph.pregel"), "Pregel", None)
    return base is not None and isinstance(value, base)


class GraphTool(Looks):
    """A graph that plans can call: the arguments are its input, its output is the step's."""

    is_async = False  # what a graph does besides the event loop, nobody can tell
    wants_context = True

    def __init__(
        self,
        graph: Any,
        *,
        name: str | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        effect: Effect | str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Take over what LangGraph knows of the graph; ValueError says what is wrong with what was declared."""
        name = name if name is not None else graph.get_name()
        super().__init__(name, options, ("name", "schema", "effect"))
        self._graph = graph
        shape = schema if schema is not None else _schema(graph)
        nodes = sorted(map(str, graph.nodes))
        self.spec = make_spec(name, shape, effect or Effect.ONCE, nodes, options, keyed=True)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Let the graph run to its end."""
        config = {"configurable": {"thread_id": getattr(ctx, "key", "") or "rerail"}}
        begun = bool(self._graph.checkpointer) and (await self._graph.aget_state(config)).created_at is not None
        answer = await self._graph.ainvoke(None if begun else args, config)
        if isinstance(answer, Mapping) and answer.get(INTERRUPTED):
            asked = "; ".join(str(one.value) for one in answer[INTERRUPTED])
            raise ToolError(
                tell("error.graph.interrupted", question=asked[:500]), category="permanent_error", lost=True
            )
        return _plain(answer)


def _schema(graph: Any) -> Mapping[str, Any] | bool:
    """The schema of the graph's input; one that is unreadable is left to the graph."""
    try:
        shape = graph.get_input_jsonschema()
    except PydanticUserError:  # its types say nothing of their schema
        return True
    return readable(shape)


def _plain(value: Any) -> Any:
    """What a graph gives, as plain data: messages and models wherever they stand."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return settled(value)
