"""The common declaration of all tools: name, schema, effect, checks, `verify` and `probe`.

Rules of this file:
- A mistake in a declaration is a ValueError when the tool is made, with the tool's name and what to write instead.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import inspect
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, Final, Literal, NoReturn, TypedDict, TypeVar

import msgspec

from rerail.adapters.executors.threads import THREADS
from rerail.errors import ToolError
from rerail.i18n import one_by_one, tell
from rerail.kernel.foreign import spec_of
from rerail.plan.step import Check, Effect, OnDoubt, Trust
from rerail.plan.tool_spec import ERRORS, Errors, Runs, ToolSpec
from rerail.values.names import nearest
from rerail.values.schema import Schema, problems

Function = Callable[..., Any]
Built = TypeVar("Built", bound=msgspec.Struct)


class Options(TypedDict, total=False):
    """Options of every kind of tool."""

    description: str
    timeout: float | None
    alternatives: Sequence[Any]
    provider: str
    check: Check | Mapping[str, Any] | None
    trust_output: bool | Trust | Mapping[str, Any]
    verify: Function | None
    probe: Function | None
    secrets: Sequence[str]
    errors: Errors
    settle: float | Literal["never"] | None
    idempotent_for: float | None
    on_doubt: OnDoubt
    fenced: bool
    cost: float | None


def make_spec(
    name: str,
    schema: Mapping[str, Any] | bool,
    effect: Effect | str,
    fingerprint: object,
    options: Options,
    *,
    runs: Runs = "loop",
    keyed: bool = False,
    fenced: bool = False,
    declared: bool = True,
    reports: bool = False,
) -> ToolSpec:
    """Make a tool's spec and check each part; its fingerprint is a digest of the tool's definition.

    ``runs`` is where a call is at work. ``keyed`` says whether it passes its idempotency key on. ``fenced`` says
    whether it can check the lease right before its effect. ``reports`` says whether its calls have a context to report
    costs to.
    """
    if not str(name).strip():
        raise ValueError(tell("tool.no_name", name=name))
    effect, timeout, cost = _effect(name, effect), options.get("timeout"), options.get("cost")
    settle, trust = options.get("settle"), options.get("trust_output", False)
    return ToolSpec(
        name=name,
        description=options.get("description", ""),
        schema=_schema(name, schema),
        effect=effect,
        timeout=_number(name, timeout, tell("tool.timeout", timeout=timeout), least=LEAST),
        alternatives=_names(name, options.get("alternatives", ())),
        provider=options.get("provider", ""),
        check=_check(name, options.get("check")),
        trust_output=trust if isinstance(trust, bool) else _built(name, "trust_output", trust, Trust),
        verifiable=options.get("verify") is not None,
        probes=options.get("probe") is not None,
        secrets=_secrets(name, options.get("secrets", ())),
        fingerprint=digest([name, schema, effect, fingerprint]),
        runs=runs,
        errors=_choice(name, "errors", options.get("errors", ""), ERRORS),
        settle=settle if settle == "never" else _number(name, settle, tell("tool.settle", settle=settle)),
        idempotent_for=_key_known_for(name, options.get("idempotent_for"), keyed=keyed),
        keyed=keyed,
        fenced=_fenced(name, options.get("fenced"), able=fenced),
        on_doubt=_choice(name, "on_doubt", options.get("on_doubt", ""), ON_DOUBT),
        declared=declared,
        cost=_number(name, cost, tell("tool.cost", cost=cost), most=sys.float_info.max),
        reports=reports,
    )


ON_DOUBT: Final = ("wait", "fail")
LEAST: Final = math.ulp(0.0)  # the least number that is not zero
LONGEST: Final = 1e9  # seconds, some thirty years: infinity has no JSON form, and no wait is longer


def _choice(name: str, label: str, given: Any, known: Sequence[str]) -> Any:
    if given not in ("", None, *known):
        _refuse(name, tell("tool.choice", label=label, given=given, known=", ".join(known)))
    return given or ""


def _number(name: str, given: Any, refusal: str, *, least: float = 0.0, most: float = LONGEST) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        _refuse(name, refusal)
    return float(given)


def _key_known_for(name: str, given: Any, *, keyed: bool) -> float | None:
    seconds = _number(name, given, tell("tool.idempotent_for", seconds=given), least=LEAST)
    if seconds is not None and not keyed:
        _refuse(name, tell("tool.no_key"))
    return seconds


def _fenced(name: str, given: Any, *, able: bool) -> bool:
    if given is not None and not isinstance(given, bool):
        _refuse(name, tell("tool.choice", label="fenced", given=given, known="True, False"))
    if given and not able:
        _refuse(name, tell("tool.not_fenced"))
    return bool(given)


def digest(value: object) -> str:
    """Return a short digest of a value, the same in every process."""
    text = json.dumps(value, sort_keys=True, default=repr, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def unknown(word: str, known: Iterable[str]) -> str:
    known = list(known)
    guess = nearest(word, known)
    return tell("tool.did_you_mean", guess=guess) if guess else tell("tool.there_are", names=", ".join(known))


def _refuse(name: str, message: str) -> NoReturn:
    raise ValueError(tell("tool.faulty", name=name, message=message))


def _effect(name: str, effect: Effect | str) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        _refuse(
            name, tell("tool.unknown_effect", effect=effect, known=unknown(str(effect), [str(one) for one in Effect]))
        )


def _schema(name: str, schema: Mapping[str, Any] | bool) -> Schema:
    found = problems(schema)
    if found:
        _refuse(name, tell("tool.schema", problems=one_by_one(found)))
    return Schema(schema)


def _names(name: str, tools: Any) -> tuple[str, ...]:
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        _refuse(name, tell("tool.alternatives", tools=tools))
    # The name tells a model most about a tool.
    names: list[Any] = [tool if (spec := spec_of(tool)) is None else spec.name for tool in tools]
    if strange := [one for one in names if not isinstance(one, str)]:
        _refuse(name, tell("tool.strange_alternative", strange=strange[0]))
    return tuple(names)


def _secrets(name: str, variables: Any) -> tuple[str, ...]:
    listed = not isinstance(variables, str) and isinstance(variables, Sequence)
    if not listed or not all(isinstance(one, str) and one for one in variables):
        _refuse(name, tell("tool.secrets", given=variables))
    return tuple(dict.fromkeys(variables))


_LIMITS: Mapping[str, Any] = {
    "memory": {"type": "integer", "minimum": 1},
    "file_size": {"type": "integer", "minimum": 0},
    "network": {"type": "boolean"},
    "processes": {"type": "boolean"},
}
LIMITS: Mapping[str, Any] = {"type": "object", "properties": _LIMITS, "additionalProperties": False}


def confinement(name: str, limits: Mapping[str, Any] | None) -> str:
    """Return a tool's limits as text for `limits.apply`; "" if there are none."""
    if not limits:
        return ""
    if faults := Schema(LIMITS, noun="key").faults(limits):
        _refuse(name, tell("tool.limits", faults=one_by_one(fault.said for fault in faults)))
    from rerail.adapters.executors.processes.limits import missing  # most tools have none

    if lacking := missing(limits):
        _refuse(name, tell("tool.limits_missing", names=", ".join(lacking)))
    return json.dumps(dict(limits), sort_keys=True)


def _built(name: str, label: str, given: Any, kind: type[Built]) -> Built:
    if isinstance(given, kind):
        return given
    fields = kind.__struct_fields__
    if not isinstance(given, Mapping):
        _refuse(name, tell("tool.mapping", label=label, names=", ".join(fields), given=given))
    for key in given:
        if key not in fields:
            _refuse(name, tell("tool.unknown_key", label=label, key=key, known=unknown(str(key), fields)))
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ValueError(tell("tool.part_faulty", name=name, label=label, error=error)) from error


def _check(name: str, check: Any) -> Check | None:
    found = None if check is None else _built(name, "check", check, Check)
    if found is not None and found.schema is not None and (wrong := problems(found.schema)):
        _refuse(name, tell("tool.check_schema", problems=one_by_one(wrong)))
    return found


# --- Looks at the world --------------------------------------------------------------------------------------------


class Look:
    """A read-only check that takes any of the offered arguments by name: a tool's `verify` (contract V8) or `probe`."""

    __slots__ = ("_fn", "_names", "is_async")

    def __init__(self, tool: str, label: str, fn: Function, offered: Sequence[str]) -> None:
        fn = getattr(fn, "fn", fn)  # a tool may serve as the check of another
        if not callable(fn):
            _refuse(tool, tell("tool.part_no_function", label=label, fn=fn))
        self._fn = fn
        self.is_async = is_async(fn)
        self._names = _wanted(tool, label, fn, offered)

    async def __call__(self, **offer: Any) -> Any:
        """Run the check, in a thread if it blocks."""
        taken = {name: offer[name] for name in self._names}
        seen = await (self._fn(**taken) if self.is_async else THREADS.run(self._fn, **taken))
        # A coroutine or a generator is always true, and would pass for a present effect.
        if inspect.isawaitable(seen):
            seen = await seen
        if inspect.isgenerator(seen) or inspect.isasyncgen(seen):
            raise TypeError(tell("tool.yields", name=type(seen).__name__))
        return seen


def _wanted(tool: str, label: str, fn: Function, offered: Sequence[str]) -> list[str]:
    wanted = []
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            return list(offered)
        if name in offered and parameter.kind is not parameter.POSITIONAL_ONLY:
            wanted.append(name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            _refuse(tool, tell("tool.takes", label=label, names=", ".join(offered), name=name))
    return wanted


def is_async(fn: Any) -> bool:
    """Return True if a call returns an awaitable; objects with an async `__call__` included."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


class Looks:
    """The read-only checks of a tool, the same for every kind."""

    spec: ToolSpec
    answer_of: Callable[[Any], Any] | None = None
    stays = False

    def __init__(self, name: str, options: Options, others: Iterable[str] = ()) -> None:
        """Take the declared checks; `others` are further words of this kind of tool."""
        for word in options:
            if word not in Options.__annotations__:
                _refuse(
                    name,
                    tell("tool.unknown_option", word=word, known=unknown(word, [*others, *Options.__annotations__])),
                )
        verify, probe = options.get("verify"), options.get("probe")
        self._verify = Look(name, "verify", verify, ("args", "output", "before", "ctx")) if verify else None
        self._probe = Look(name, "probe", probe, ("args", "ctx")) if probe else None

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    @property
    def looks_outside(self) -> bool:
        """Return True if a check takes a thread, in which real time passes."""
        return any(look is not None and not look.is_async for look in (self._verify, self._probe))

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> Any:
        if self._verify is None:
            raise LookupError(tell("tool.no_verify", name=self.spec.name))
        return await self._verify(args=args, output=output, before=before, ctx=ctx)

    async def probe(self, args: dict[str, Any], ctx: Any) -> Any:
        if self._probe is None:
            raise LookupError(tell("tool.no_probe", name=self.spec.name))
        return await self._probe(args=args, ctx=ctx)


# -- Functions: their source and their outputs ----------------------------------------------------------------------

PLAIN = frozenset({dict, str, int, float, bool, type(None)})


def settled(output: Any) -> Any:
    """Return the output with models as plain data; refuse a generator or a coroutine that would never run."""
    if type(output) in PLAIN:
        return output
    if type(output) is list:
        return [settled(one) for one in output] if output and hasattr(output[0], "model_dump") else output
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
            # The call happened, and may have acted before it returned a promise instead of a result.
            refusal = tell("error.function.no_result", what=what, advice=advice)
            raise ToolError(refusal, "OUTPUT_NOT_JSON", lost=True)
    return output


def source_of(fn: Any) -> object:
    """Return the function's source; its bytecode where there is no source."""
    plain = inspect.unwrap(getattr(fn, "func", fn))
    plain = plain if hasattr(plain, "__code__") or inspect.ismethod(plain) else type(plain).__call__
    try:
        return _undecorated(textwrap.dedent(inspect.getsource(plain)))
    except (OSError, TypeError):
        return _bytecode(getattr(plain, "__code__", None))


def _undecorated(source: str) -> str:
    """Return the source from `def` on: another timeout in the decorator makes no other tool."""
    try:
        first = ast.parse(source).body[0].lineno
    except SyntaxError:  # a lambda inside an expression
        return source
    return "\n".join(source.splitlines()[first - 1 :])


def _bytecode(code: CodeType | None) -> object:
    if code is None:
        return None
    inner = [_bytecode(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), inner]
