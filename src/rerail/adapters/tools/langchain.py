"""LangChain tools and LangGraph graphs as tools (contract I5, M2), recognised without importing either library.

Rules of this file:
- This file imports neither: an object of their classes exists only where the library is imported already.
- A failure is a failure: a tool that turns its errors into answers for a model raises them here.
- A LangChain tool does not declare its effect, so it counts as `once`. A declaration changes that: `metadata={"rerail":
  {"effect": "read"}}` of the tool, or `rerail.tool(that_tool, effect="read")`. The same holds for a graph.
- A call of a graph is a thread of it, named by the call's idempotency key. A repeated call of a graph with a
  checkpointer goes on where it stopped, and returns the old result if it had come to its end.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any, Unpack

from rerail.adapters.executors.threads import THREADS
from rerail.adapters.tools.spec import Looks, Options, make_spec, settled, source_of
from rerail.context import excerpt
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell
from rerail.plan.step import Effect, EffectName
from rerail.plan.tool_spec import Runs
from rerail.values.json_values import NotJson, pack
from rerail.values.schema import readable


class LangChainTool(Looks):
    """A LangChain tool that plans can call."""

    wants_context = True  # the context reports what cannot be kept

    def __init__(
        self,
        tool: Any,
        *,
        name: str | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        effect: EffectName | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Take over LangChain's description; ValueError says what is wrong with the declaration."""
        name = name if name is not None else tool.name
        declared = _declared(name, tool)
        kind = effect or declared.get("effect") or Effect.ONCE
        declared.pop("effect", None)
        merged: Options = {"description": tool.description, **declared, **options}  # type: ignore[typeddict-item]
        super().__init__(name, merged, ("name", "schema", "effect"))
        self._tool = _outspoken(tool)
        self._with_artifact = tool.response_format == "content_and_artifact"
        #: Whether it runs on the event loop itself; otherwise in a thread.
        self.is_async = _is_async(tool)
        shape = schema if schema is not None else _schema(tool)
        function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or type(tool)._run
        runs: Runs = "loop" if self.is_async else "thread"
        self.spec = make_spec(name, shape, kind, source_of(function), merged, runs=runs)

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        # Only the answer to a call with an id includes the artifact.
        given: Any = args
        if self._with_artifact:
            number = getattr(ctx, "key", "") or "rerail"
            given = {"type": "tool_call", "id": number, "name": self._tool.name, "args": args}
        try:
            answer = await (self._tool.ainvoke(given) if self.is_async else THREADS.run(self._tool.invoke, given))
        except Exception as error:
            if _refused_arguments(error):
                raise NotDone(error) from error
            raise
        return _output(answer, ctx, with_artifact=self._with_artifact)


def _refused_arguments(error: Exception) -> bool:
    """Return True if LangChain refused the arguments before the call (contract X4).

    Where LangChain reads them, it raises the same errors as a tool of its own may.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [code.co_name for code in codes if "langchain_core" in code.co_filename]
    return "_parse_input" in names and not {code.co_name for code in codes} & {"_run", "_arun"}


def _declared(name: str, tool: Any) -> dict[str, Any]:
    found = (tool.metadata or {}).get("rerail", {})
    if not isinstance(found, Mapping):
        raise ValueError(tell("tool.langchain.metadata", name=name, found=found))
    return dict(found)


def _outspoken(tool: Any) -> Any:
    """Return the tool if it raises its errors; else a copy that does."""
    quiet = tool.handle_tool_error or tool.handle_validation_error
    return tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False}) if quiet else tool


def _is_async(tool: Any) -> bool:
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not sys.modules["langchain_core.tools"].BaseTool._arun


def _schema(tool: Any) -> Mapping[str, Any] | bool:
    """Return the schema for a model, without LangChain's injected arguments. An unreadable one is left to the tool."""
    shape = tool.tool_call_schema
    if not isinstance(shape, Mapping):
        shape = shape.model_json_schema() if hasattr(shape, "model_json_schema") else shape.schema()
    return readable(shape)


def _output(answer: Any, ctx: Any, *, with_artifact: bool) -> Any:
    if getattr(answer, "type", None) != "tool":  # no message, but the tool's plain result
        return settled(answer)
    if answer.status == "error":
        failed = ToolError(str(answer.text), lost=True)  # an exception after the effect is answered in the same way
        failed.unanswered = False
        raise failed
    artifact = answer.artifact
    if not with_artifact and artifact is None:
        return settled(answer.content)
    try:
        artifact = settled(artifact)
        pack(artifact)
    except (NotJson, TypeError):
        # The call succeeded, and its content is what counts: the rest is no reason to repeat it.
        if ctx is not None:
            ctx.log(tell("tool.langchain.artifact", name=type(artifact).__name__))
        artifact = None
    return {"content": settled(answer.content), "artifact": artifact}


# -- Graphs ---------------------------------------------------------------------------------------------------------

INTERRUPTED = "__interrupt__"  # LangGraph's name for a graph's question


class GraphTool(Looks):
    """A graph that plans can call: the arguments are its input, its output is the step's."""

    is_async = False  # a graph's work besides the event loop is unknown
    wants_context = True

    def __init__(
        self,
        graph: Any,
        *,
        name: str | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        effect: EffectName | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Take over LangGraph's description; ValueError says what is wrong with the declaration."""
        name = name if name is not None else graph.get_name()
        super().__init__(name, options, ("name", "schema", "effect"))
        self._graph = graph
        shape = schema if schema is not None else _input_schema(graph)
        nodes = sorted(map(str, graph.nodes))
        self.spec = make_spec(name, shape, effect or Effect.ONCE, nodes, options, keyed=True)

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        config = {"configurable": {"thread_id": getattr(ctx, "key", "") or "rerail"}}
        begun = bool(self._graph.checkpointer) and (await self._graph.aget_state(config)).created_at is not None
        answer = await self._graph.ainvoke(None if begun else args, config)
        if isinstance(answer, Mapping) and answer.get(INTERRUPTED):
            asked = "; ".join(str(one.value) for one in answer[INTERRUPTED])
            told = tell("error.graph.interrupted", question=excerpt(asked, 500))
            raise ToolError(told, category="permanent_error", lost=True)
        return _plain(answer)


def _input_schema(graph: Any) -> Mapping[str, Any] | bool:
    """Return the schema of the graph's input; an unreadable one is left to the graph."""
    from pydantic import PydanticUserError  # not loaded without a graph

    try:
        shape = graph.get_input_jsonschema()
    except PydanticUserError:  # its types do not describe their schema
        return True
    return readable(shape)


def _plain(value: Any) -> Any:
    """Return a graph's output as plain data: messages and models at any depth."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return settled(value)
