"""Python functions as tools (SPEC M2): `@tool`, and what it makes of a function.

Rules of this file:
- A decorated function stays callable as it was written, so that its own tests need no engine.
- What the engine needs on its hot path (`is_async`, `wants_context`) are plain attributes.
- Importing this file imports no pydantic; the first decorated function does.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import copy
import dataclasses
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from rerail.adapters.executors.frames import Target, target_of
from rerail.adapters.executors.threads import THREADS, carried
from rerail.adapters.tools.docstrings import read
from rerail.adapters.tools.signatures import Convert, Shape, Unresolved, read_shape
from rerail.adapters.tools.specs import Looks, Options, confinement, is_async, make_spec
from rerail.context import Context
from rerail.core.foreign import TOOL, spec_of, with_defaults
from rerail.core.plan import Effect
from rerail.core.tools import Runs, ToolSpec
from rerail.errors import ToolError
from rerail.i18n import tell, words_of
from rerail.ports import Tool

P = ParamSpec("P")
R = TypeVar("R")
Schema = Mapping[str, Any] | bool

_JSON = frozenset({dict, list, str, int, float, bool, type(None)})


class FunctionTool(Looks, Generic[P, R]):
    """A Python function that plans can name."""

    #: The function as it was written.
    fn: Callable[P, R]
    #: Whether it runs on the event loop itself; otherwise in a thread or a process, for which real time passes.
    is_async: bool
    #: Whether it runs in a process of its own, which can be killed.
    isolated: bool
    #: What was said about it: schema, effect and options.
    declared: tuple[Schema | None, Effect | str | None, Options]
    # What follows is known once every name in the function's annotations is: see __getattr__.
    spec: ToolSpec
    #: Whether `fn(**args)` is all there is to a call: no context, no conversion, no other process.
    direct: bool
    wants_context: bool
    #: The parameter that takes the context.
    context_name: str | None
    _convert: Convert | None

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        schema: Schema | None = None,
        effect: Effect | str | None = None,
        isolated: bool = False,
        limits: Mapping[str, Any] | None = None,
        names: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Read the function's signature; ValueError says what a plan could not call."""
        if not callable(fn):
            raise ValueError(tell("tool.no_function", fn=fn))
        self.fn = fn
        self.name = name if name is not None else _name(fn)
        self._limits = confinement(self.name, limits)
        self.stays = bool(limits)  # no other machine was asked to keep it within them
        self.isolated = isolated or self.stays
        self.is_async = is_async(fn) and not self.isolated
        self._target: Target | None = target_of(fn) if self.isolated else None
        self.declared = (schema, effect, options)
        super().__init__(self.name, options, ("name", "schema", "effect", "isolated", "limits"))
        functools.update_wrapper(self, fn, updated=())
        # A class may stand further down in the module; then whoever looks at the spec first tries again.
        with contextlib.suppress(Unresolved):
            self._complete(names or {})

    def _complete(self, names: Mapping[str, Any]) -> None:
        schema, effect, options = self.declared
        docs = read(getattr(self.fn, "__doc__", None))
        shape = read_shape(self.name, self.fn, docs, schema, names)
        self._take(shape)
        described: Options = {**options, "description": options.get("description", docs.summary)}
        code = [getattr(self.fn, "__qualname__", ""), source_of(self.fn)]
        self._defined = (shape.schema, code, described)
        self.spec = self._spec_with(effect)

    def _spec_with(self, effect: Effect | str | None) -> ToolSpec:
        schema, code, options = self._defined
        kind = Effect.REPEATABLE if effect is None else effect
        return make_spec(
            self.name, schema, kind, code, options, declared=effect is not None, runs=self._runs,
            keyed=self.wants_context, fenced=self.wants_context, reports=self.wants_context,
        )  # fmt: skip

    @property
    def _runs(self) -> Runs:
        return "process" if self.isolated else "loop" if self.is_async else "thread"

    def under(self, default_effect: str | None, *, require_effect: bool) -> FunctionTool[P, R]:
        """The tool under a project's settings; this one, if it declares its effect or they say nothing (E3)."""
        if self.spec.declared or not (default_effect or require_effect):
            return self
        made = copy.copy(self)
        schema, _, options = self.declared
        made.declared = (schema, default_effect, options)
        made.spec = dataclasses.replace(made._spec_with(default_effect), must_declare=default_effect is None)
        return made

    def _take(self, shape: Shape) -> None:
        self.context_name = shape.context
        self.wants_context = shape.context is not None
        self._convert = shape.convert
        self.direct = not self.wants_context and shape.convert is None and not self.isolated

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there: what `_complete` sets, if it could not do so at first.
        if name not in ("spec", "direct", "wants_context", "context_name", "_convert"):
            raise AttributeError(name)
        try:
            self._complete({})
        except Unresolved as error:
            raise ValueError(words_of(error)) from error
        return object.__getattribute__(self, name)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it had never been decorated."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def bind(self, args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        """The keyword arguments for `fn`: converted where its types ask for it, with the context if it wants one."""
        kwargs = dict(args) if self._convert is None else self._convert(args)
        if self.context_name is not None:
            kwargs[self.context_name] = Context() if ctx is None else ctx
        return kwargs

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Call the tool: awaited, in a thread, or in a process of its own."""
        if self._target is not None:
            # Imported when needed: most programs never start a worker.
            from rerail.adapters.executors.processes import PROCESSES

            return await PROCESSES.call(self._target, args, ctx, self._limits)
        fn: Callable[..., Any] = self.fn
        kwargs = args if self.direct else self.bind(args, ctx)
        try:
            return settled(await (fn(**kwargs) if self.is_async else THREADS.run(fn, **kwargs)))
        except SystemExit as error:
            raise carried(error) from error
        except asyncio.CancelledError:
            # A thread cannot be stopped, but it can be told.
            if isinstance(ctx, Context):
                ctx.cancelled.set()
            raise


def settled(output: Any) -> Any:
    """The output, models as plain data; refused if it is only a promise: a generator, a coroutine that nobody runs."""
    if type(output) in _JSON:
        many = type(output) is list and output and hasattr(output[0], "model_dump")
        return [settled(one) for one in output] if many else output
    if hasattr(output, "model_dump") and not isinstance(output, type):
        return output.model_dump(mode="json")
    for kind, what, advice in (
        (inspect.isgenerator, tell("tool.kind.generator"), tell("tool.advice.list")),
        (inspect.isasyncgen, tell("tool.kind.async_generator"), tell("tool.advice.list")),
        (inspect.iscoroutine, tell("tool.kind.coroutine"), tell("tool.advice.await")),
        (asyncio.isfuture, tell("tool.kind.future"), tell("tool.advice.await")),
    ):
        if kind(output):
            if close := getattr(output, "close", None):
                close()  # or Python warns about a coroutine that was never awaited
            # It was called, and may have acted before it gave a promise in place of a result.
            refusal = tell("error.function.no_result", what=what, advice=advice)
            raise ToolError(refusal, "OUTPUT_NOT_JSON", lost=True)
    return output


def _name(fn: Any) -> str:
    name: str = getattr(getattr(fn, "func", fn), "__name__", "") or type(fn).__name__
    if name == "<lambda>":
        raise ValueError(tell("tool.lambda"))
    return name


def source_of(fn: Any) -> object:
    """What the function does, as text; as bytecode where there is no text."""
    plain = inspect.unwrap(getattr(fn, "func", fn))
    plain = plain if hasattr(plain, "__code__") or inspect.ismethod(plain) else type(plain).__call__
    try:
        return _undecorated(textwrap.dedent(inspect.getsource(plain)))
    except (OSError, TypeError):
        return _bytecode(getattr(plain, "__code__", None))


def _undecorated(source: str) -> str:
    """The text from `def` on: another timeout in the decorator makes no other tool."""
    try:
        first = ast.parse(source).body[0].lineno
    except SyntaxError:  # a lambda in the middle of something
        return source
    return "\n".join(source.splitlines()[first - 1 :])


def _bytecode(code: CodeType | None) -> object:
    if code is None:
        return None
    inner = [_bytecode(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), inner]


# --- The decorator -------------------------------------------------------------------------------------------------


class Decorator(Protocol):
    """What `tool(…)` without a function gives."""

    def __call__(self, fn: Callable[P, R], /) -> FunctionTool[P, R]: ...


class Runnable(Protocol):
    """A LangGraph graph, as far as types can tell without LangGraph."""

    checkpointer: Any

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any: ...  # noqa: A002 - LangGraph's word


class LangChain(Protocol):
    """A LangChain tool, as far as types can tell without LangChain."""

    name: str
    description: str
    handle_tool_error: Any

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any: ...  # noqa: A002 - LangChain's word


@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    schema: Schema | None = None,
    effect: Effect | str | None = None,
    isolated: bool = False,
    limits: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    schema: Schema | None = None,
    effect: Effect | str | None = None,
    isolated: bool = False,
    limits: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Decorator: ...


@overload
def tool(
    fn: LangChain | Runnable,
    /,
    *,
    name: str | None = None,
    schema: Schema | None = None,
    effect: Effect | str | None = None,
    **options: Unpack[Options],
) -> Tool: ...


def tool(fn: Any = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, `@tool(effect="once", …)` or `tool(fn, name=…)`; of a LangChain tool or a
    LangGraph graph too.

    The arguments come from the signature and its type hints; a parameter of type `rerail.Context` gets the context, and
    `str | None` accepts the missing output of an optional step. What the function returns is the step's output: dicts,
    lists, texts, numbers, booleans, None, or pydantic models.

    Options:
        name          the name that plans use, if not the function's own
        effect        what calling it twice does: "read" nothing, "repeatable" the same, "once" must not be; without it
                      `tools.default_effect` of the settings, else "repeatable" is assumed, and said
        schema        a JSON schema of the arguments, instead of the one from the type hints
        isolated      True: run in a process of its own, which can be killed
        limits        of that process: {"memory": bytes, "file_size": bytes, "network": False, "processes": False}
        description   what models and `rerail tools` are told about it (default: the docstring's first line)
        timeout       seconds for one call (a step's own beats it; without both, run.step_timeout)
        alternatives  other tools for the same job, by name, tried when this one fails
        provider      a name under which run.provider_concurrency limits calls
        check         what the output must meet: {"schema": …, "non_empty": true, "keys": […]}
        trust_output  True: outputs that look like errors are believed; or {"ignore": […], "suspect": […]}
        verify        a read-only look at the effect, of any of args, output, before, ctx: true, false or Verified
        probe         a read-only look before the call, of args and ctx; `verify` gets what it saw as `before`
        secrets       environment variables that it reads, and whose values nobody may see
        cost          what one call costs, for run.max_cost; charged unless the call reports a cost by `ctx.usage`
        errors        "not_done": whatever it raises or answers as an error, nothing happened; "by_status": it makes one
                      request, and the status decides; without, the effect of a `once` call that raised is unknown
        settle        seconds until `verify` can see the effect (5 for "once"); "never": absence is never believed
        idempotent_for  seconds for which the service remembers the call's key: a lost answer is asked for again
        on_doubt      "wait" or "fail", if its effect is in doubt
        fenced        True: it calls ctx.ensure_owner() right before its effect
    """
    if fn is not None and (made := _of_langchain(fn, options)) is not None:
        return made
    if fn is not None:
        return FunctionTool(fn, names=_locals(), **options)
    return lambda wrapped: FunctionTool(wrapped, names=_locals(), **options)


def _locals() -> Mapping[str, Any]:
    """The names where the decorator stands: annotations written as text may speak of local classes."""
    return sys._getframe(2).f_locals


def _of_langchain(obj: Any, options: Mapping[str, Any]) -> Tool | None:
    """A LangChain tool or a LangGraph graph as a tool; None for anything else. What is not loaded is not looked for."""
    if "langgraph.pregel" in sys.modules:
        from rerail.adapters.tools.langgraph import GraphTool, is_graph

        if is_graph(obj):
            return GraphTool(obj, **options)
    if "langchain_core.tools" not in sys.modules:
        return None
    from rerail.adapters.tools.langchain import LangChainTool, is_langchain

    return LangChainTool(obj, **options) if is_langchain(obj) else None


def as_tool(obj: Any) -> Tool:
    """A tool as it is; a function, LangChain tool or graph as one with its defaults; ValueError for anything else."""
    if isinstance(obj, FunctionTool) and isinstance(obj.spec, ToolSpec):  # read now, or ValueError says what is missing
        return obj
    if (made := _of_langchain(obj, {})) is not None:
        return made
    if is_tool(obj):
        found: Tool = with_defaults(obj, TOOL)
        return found
    if callable(obj) and not isinstance(obj, type):
        return FunctionTool(obj)
    raise ValueError(tell("tool.no_tool", obj=obj))


def is_tool(obj: Any) -> bool:
    """Whether it is a tool of any kind: something with a spec that can be called."""
    return spec_of(obj) is not None
