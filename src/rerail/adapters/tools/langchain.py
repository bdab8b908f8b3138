"""LangChain tools as tools (SPEC M2): recognised without importing LangChain, called as LangChain calls them.

Rules of this file:
- LangChain is never imported here: an object of its classes can only exist where somebody has imported it.
- A failure is a failure: a tool that was told to turn its errors into answers for a model raises them here.
- What a call does is not known from a LangChain tool, so it may not happen twice unless somebody says so: in the tool's
  `metadata={"rerail": {"effect": "read"}}`, or with `rerail.tool(that_tool, effect="read")`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any, TypeGuard, Unpack

from rerail.adapters.executors.threads import THREADS
from rerail.adapters.tools.functions import settled, source_of
from rerail.adapters.tools.specs import Looks, Options, make_spec
from rerail.core.plan import Effect
from rerail.core.schema import readable
from rerail.core.tools import Runs
from rerail.core.values import NotJson, pack
from rerail.errors import NotDone, ToolError
from rerail.i18n import tell


def is_langchain(value: Any) -> TypeGuard[Any]:
    """Whether it is a LangChain tool; no attribute of it is looked at."""
    base = getattr(sys.modules.get("langchain_core.tools"), "BaseTool", None)
    return base is not None and isinstance(value, base)


class LangChainTool(Looks):
    """A LangChain tool that plans can call."""

    wants_context = True  # what cannot be kept is said there

    def __init__(
        self,
        tool: Any,
        *,
        name: str | None = None,
        schema: Mapping[str, Any] | bool | None = None,
        effect: Effect | str | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Take over what LangChain knows of the tool; ValueError says what is wrong with what was declared."""
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

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Call the tool: awaited, or in a thread."""
        # Only a call with an id is answered with the artifact as well.
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
    """Whether LangChain refused the arguments before it called the tool (X4): where it reads them, it raises the same
    errors as a tool of its own may."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [code.co_name for code in codes if "langchain_core" in code.co_filename]
    return "_parse_input" in names and not {code.co_name for code in codes} & {"_run", "_arun"}


def _declared(name: str, tool: Any) -> dict[str, Any]:
    found = (tool.metadata or {}).get("rerail", {})
    if not isinstance(found, Mapping):
        raise ValueError(tell("tool.langchain.metadata", name=name, found=found))
    return dict(found)


def _outspoken(tool: Any) -> Any:
    """The tool as it is, if it raises its errors; else a copy of it that does."""
    quiet = tool.handle_tool_error or tool.handle_validation_error
    return tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False}) if quiet else tool


def _is_async(tool: Any) -> bool:
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not sys.modules["langchain_core.tools"].BaseTool._arun


def _schema(tool: Any) -> Mapping[str, Any] | bool:
    """The schema that a model would see: without what LangChain injects. One that is unreadable is left to the tool."""
    shape = tool.tool_call_schema
    if not isinstance(shape, Mapping):
        shape = shape.model_json_schema() if hasattr(shape, "model_json_schema") else shape.schema()
    return readable(shape)


def _output(answer: Any, ctx: Any, *, with_artifact: bool) -> Any:
    if getattr(answer, "type", None) != "tool":  # no message, but what the tool returned
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
        # The call succeeded, and its content is what counts: it must not be made again for the sake of the rest.
        if ctx is not None:
            ctx.log(tell("tool.langchain.artifact", name=type(artifact).__name__))
        artifact = None
    return {"content": settled(answer.content), "artifact": artifact}
