"""Python functions as tools: `@tool` (contract M2).

Rules of this file:
- A decorated function stays callable as written, so that its own tests need no engine.
- The attributes on the engine's hot path (`is_async`, `wants_context`) are plain.
- Importing this file imports no pydantic; the first decorated function does.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeGuard, TypeVar, Unpack, overload

from rerail.adapters.executors.processes.protocol import Target, target_of
from rerail.adapters.executors.threads import THREADS, carried
from rerail.adapters.tools.signatures import Convert, Shape, Unresolved, read, read_shape
from rerail.adapters.tools.spec import PLAIN, Looks, Options, confinement, is_async, make_spec, settled, source_of
from rerail.context import Context
from rerail.i18n import tell, words_of
from rerail.kernel.foreign import TOOL, spec_of, with_defaults
from rerail.plan.step import Effect, EffectName
from rerail.plan.tool_spec import Runs, ToolSpec
from rerail.ports import Tool

P = ParamSpec("P")
R = TypeVar("R")
Schema = Mapping[str, Any] | bool


class FunctionTool(Looks, Generic[P, R]):
    """A Python function that plans can name."""

    #: The function as written.
    fn: Callable[P, R]
    #: Whether it runs on the event loop itself; otherwise in a thread or a process, for which real time passes.
    is_async: bool
    #: Whether it runs in a process of its own, which can be killed.
    isolated: bool
    #: Its declaration: schema, effect and options.
    declared: tuple[Schema | None, EffectName | None, Options]
    # The rest is known once every name in the function's annotations is: see __getattr__.
    spec: ToolSpec
    #: Whether a call is just `fn(**args)`: no context, no conversion, no other process.
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
        effect: EffectName | None = None,
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
        self.stays = bool(limits)  # another machine may be unable to set the limits
        self.isolated = isolated or self.stays
        self.is_async = is_async(fn) and not self.isolated
        self._target: Target | None = target_of(fn) if self.isolated else None
        self.declared = (schema, effect, options)
        super().__init__(self.name, options, ("name", "schema", "effect", "isolated", "limits"))
        functools.update_wrapper(self, fn, updated=())
        # The annotation may name a class further down in the module; the next read of the spec tries again.
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

    def _spec_with(self, effect: EffectName | None) -> ToolSpec:
        schema, code, options = self._defined
        kind = Effect.REPEATABLE if effect is None else effect
        return make_spec(
            self.name, schema, kind, code, options, declared=effect is not None, runs=self._runs,
            keyed=self.wants_context, fenced=self.wants_context, reports=self.wants_context,
        )  # fmt: skip

    @property
    def _runs(self) -> Runs:
        return "process" if self.isolated else "loop" if self.is_async else "thread"

    def under(self, default_effect: EffectName | None, *, require_effect: bool) -> FunctionTool[P, R]:
        """Return the tool under a project's settings; itself if its effect is declared or they have none (E3)."""
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
        # Called for missing attributes only: for what `_complete` could not set at first.
        if name not in ("spec", "direct", "wants_context", "context_name", "_convert"):
            raise AttributeError(name)
        try:
            self._complete({})
        except Unresolved as error:
            raise ValueError(words_of(error)) from error
        return object.__getattribute__(self, name)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def bind(self, args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        """Return the keyword arguments for `fn`: converted to its types, with the context if it takes one."""
        kwargs = dict(args) if self._convert is None else self._convert(args)
        if self.context_name is not None:
            kwargs[self.context_name] = Context() if ctx is None else ctx
        return kwargs

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        if self._target is not None:
            # A lazy import: most programs never start a worker.
            from rerail.adapters.executors.processes.pool import PROCESSES

            return await PROCESSES.call(self._target, args, ctx, self._limits)
        fn: Callable[..., Any] = self.fn
        kwargs = args if self.direct else self.bind(args, ctx)
        try:
            output = await (fn(**kwargs) if self.is_async else THREADS.run(fn, **kwargs))
            return output if type(output) in PLAIN else settled(output)
        except SystemExit as error:
            raise carried(error) from error
        except asyncio.CancelledError:
            # A thread cannot be stopped, but it can be told.
            if isinstance(ctx, Context):
                ctx.cancelled.set()
            raise


def _name(fn: Any) -> str:
    name: str = getattr(getattr(fn, "func", fn), "__name__", "") or type(fn).__name__
    if name == "<lambda>":
        raise ValueError(tell("tool.lambda"))
    return name


# --- The decorator -------------------------------------------------------------------------------------------------


if TYPE_CHECKING:  # the types of the overloads

    class Decorator(Protocol):
        """The return type of `tool(…)` without a function."""

        def __call__(self, fn: Callable[P, R], /) -> FunctionTool[P, R]: ...

    class Runnable(Protocol):
        """A LangGraph graph, typed without LangGraph."""

        checkpointer: Any

        def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any: ...  # noqa: A002 - LangGraph's word

    class LangChain(Protocol):
        """A LangChain tool, typed without LangChain."""

        name: str
        description: str
        handle_tool_error: Any

        def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any: ...  # noqa: A002 - LangChain's word

    class ObjectOptions(Options, total=False):
        """Options of a tool made of an object."""

        name: str | None
        schema: Schema | None
        effect: EffectName | None

    class FunctionOptions(ObjectOptions, total=False):
        """Options of a tool made of a function."""

        isolated: bool
        limits: Mapping[str, Any] | None


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[FunctionOptions]) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[FunctionOptions]) -> Decorator: ...
@overload
def tool(fn: LangChain | Runnable, /, **options: Unpack[ObjectOptions]) -> Tool: ...


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
        secrets       environment variables that it reads, with values to redact everywhere
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
    """Return the names at the decorator's place: textual annotations may name local classes."""
    return sys._getframe(2).f_locals


def is_langchain(value: Any) -> TypeGuard[Any]:
    """Return True for a LangChain tool; reads none of its attributes."""
    base = getattr(sys.modules.get("langchain_core.tools"), "BaseTool", None)
    return base is not None and isinstance(value, base)


def is_graph(value: Any) -> TypeGuard[Any]:
    """Return True for a compiled graph; reads none of its attributes."""
    base = getattr(sys.modules.get("langgraph.pregel"), "Pregel", None)
    return base is not None and isinstance(value, base)


def _of_langchain(obj: Any, options: Mapping[str, Any]) -> Tool | None:
    """Wrap a LangChain tool or a LangGraph graph; None for any other object. Never imports either library."""
    if not (is_graph(obj) or is_langchain(obj)):
        return None
    from rerail.adapters.tools.langchain import GraphTool, LangChainTool

    return GraphTool(obj, **options) if is_graph(obj) else LangChainTool(obj, **options)


def as_tool(obj: Any) -> Tool:
    """Return a tool unchanged; wrap a function, LangChain tool or graph; else ValueError."""
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
    """Return True for a tool of any kind: a callable with a spec."""
    return spec_of(obj) is not None
