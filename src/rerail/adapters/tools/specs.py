"""What all kinds of tools declare alike: name, schema, effect, checks, and the two looks at the world around a call.

Rules of this file:
- A mistake in a declaration is a ValueError when the tool is made, with the tool's name and what to write instead.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypedDict, TypeVar

import msgspec

from rerail.adapters.executors.threads import THREADS
from rerail.core.foreign import spec_of
from rerail.core.nearest import nearest
from rerail.core.outcome import ERRORS
from rerail.core.plan import Check, Effect, Trust
from rerail.core.schema import Schema, problems
from rerail.core.tools import Runs, ToolSpec
from rerail.i18n import one_by_one, tell

Function = Callable[..., Any]
Built = TypeVar("Built", bound=msgspec.Struct)


class Options(TypedDict, total=False):
    """What may be said about a tool of any kind."""

    description: str
    timeout: float | None
    alternatives: Sequence[Any]
    provider: str
    check: Check | Mapping[str, Any] | None
    trust_output: bool | Trust | Mapping[str, Any]
    verify: Function | None
    probe: Function | None
    secrets: Sequence[str]
    errors: str
    settle: float | str | None
    idempotent_for: float | None
    on_doubt: str
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
    """A tool's spec, each part checked; the fingerprint is a digest of whatever defines what the tool does.

    ``runs`` is where a call is at work, ``keyed`` whether it hands its idempotency key on, ``fenced`` whether it can
    make sure, right before its effect, that its process still owns the run, ``reports`` whether its calls get a
    context and may report what they spend.
    """
    if not str(name).strip():
        raise ValueError(tell("tool.no_name", name=name))
    effect = _effect(name, effect)
    return ToolSpec(
        name=name,
        description=options.get("description", ""),
        schema=_schema(name, schema),
        effect=effect,
        timeout=_timeout(name, options.get("timeout")),
        alternatives=_names(name, options.get("alternatives", ())),
        provider=options.get("provider", ""),
        check=_check(name, options.get("check")),
        trust_output=_trust(name, options.get("trust_output", False)),
        verifiable=options.get("verify") is not None,
        probes=options.get("probe") is not None,
        secrets=_secrets(name, options.get("secrets", ())),
        fingerprint=digest([name, schema, effect, fingerprint]),
        runs=runs,
        errors=_choice(name, "errors", options.get("errors", ""), ERRORS),
        settle=_settle(name, options.get("settle")),
        idempotent_for=_key_known_for(name, options.get("idempotent_for"), keyed=keyed),
        keyed=keyed,
        fenced=_fenced(name, options.get("fenced"), able=fenced),
        on_doubt=_choice(name, "on_doubt", options.get("on_doubt", ""), ON_DOUBT),
        declared=declared,
        cost=_cost(name, options.get("cost")),
        reports=reports,
    )


ON_DOUBT: Final = ("wait", "fail")
LONGEST: Final = 1e9  # seconds, some thirty years: infinity cannot be written down, and no wait is longer


def _choice(name: str, label: str, given: Any, known: Sequence[str]) -> Any:
    if given not in ("", None, *known):
        _refuse(name, tell("tool.choice", label=label, given=given, known=", ".join(known)))
    return given or ""


def _settle(name: str, settle: Any) -> float | str | None:
    if settle is None or settle == "never":
        return settle  # type: ignore[no-any-return]  # as seen
    if isinstance(settle, bool) or not isinstance(settle, int | float) or not 0 <= settle <= LONGEST:
        _refuse(name, tell("tool.settle", settle=settle))
    return float(settle)


def _key_known_for(name: str, seconds: Any, *, keyed: bool) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST:
        _refuse(name, tell("tool.idempotent_for", seconds=seconds))
    if not keyed:
        _refuse(name, tell("tool.no_key"))
    return float(seconds)


def _fenced(name: str, given: Any, *, able: bool) -> bool:
    if given is not None and not isinstance(given, bool):
        _refuse(name, tell("tool.choice", label="fenced", given=given, known="True, False"))
    if given and not able:
        _refuse(name, tell("tool.not_fenced"))
    return bool(given)


def digest(value: object) -> str:
    """A short name for a value, the same in every process."""
    text = json.dumps(value, sort_keys=True, default=repr, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def unknown(word: str, known: Iterable[str]) -> str:
    """The hint behind a word that nobody knows."""
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


def _timeout(name: str, timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST:
        _refuse(name, tell("tool.timeout", timeout=timeout))
    return float(timeout)


def _cost(name: str, cost: Any) -> float | None:
    if cost is None:
        return None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        _refuse(name, tell("tool.cost", cost=cost))
    return float(cost)


def _names(name: str, tools: Any) -> tuple[str, ...]:
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        _refuse(name, tell("tool.alternatives", tools=tools))
    # A tool is as good as its name.
    names: list[Any] = [tool if (spec := spec_of(tool)) is None else spec.name for tool in tools]
    if strange := [one for one in names if not isinstance(one, str)]:
        _refuse(name, tell("tool.strange_alternative", strange=strange[0]))
    return tuple(names)


def _secrets(name: str, variables: Any) -> tuple[str, ...]:
    """The names of environment variables, each once."""
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
    """The limits of a tool as text for `confine`; "" if there are none."""
    if not limits:
        return ""
    if faults := Schema(LIMITS, noun="key").faults(limits):
        _refuse(name, tell("tool.limits", faults=one_by_one(fault.said for fault in faults)))
    from rerail.adapters.executors.confine import missing  # most tools have none

    if lacking := missing(limits):
        _refuse(name, tell("tool.limits_missing", names=", ".join(lacking)))
    return json.dumps(dict(limits), sort_keys=True)


def _trust(name: str, trust: Any) -> bool | Trust:
    return trust if isinstance(trust, bool) else _built(name, "trust_output", trust, Trust)


def _built(name: str, label: str, given: Any, kind: type[Built]) -> Built:
    """A value that people may write as a mapping."""
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
    """A function that takes, by name, any of what it is offered: a tool's `verify` (V8) or `probe`."""

    __slots__ = ("_fn", "_names", "is_async")

    def __init__(self, tool: str, label: str, fn: Function, offered: Sequence[str]) -> None:
        fn = getattr(fn, "fn", fn)  # a tool may serve as the look of another
        if not callable(fn):
            _refuse(tool, tell("tool.part_no_function", label=label, fn=fn))
        self._fn = fn
        self.is_async = is_async(fn)
        self._names = _wanted(tool, label, fn, offered)

    async def __call__(self, **offer: Any) -> Any:
        """Ask it, in a thread if it blocks."""
        taken = {name: offer[name] for name in self._names}
        seen = await (self._fn(**taken) if self.is_async else THREADS.run(self._fn, **taken))
        # A coroutine or a generator is always true, and would be taken for an effect that is there.
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
    """Whether calling it gives something to await; objects with an async `__call__` included."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


class Looks:
    """A tool's looks at the world: what every tool does in the same way."""

    spec: ToolSpec
    answer_of: Callable[[Any], Any] | None = None
    stays = False

    def __init__(self, name: str, options: Options, others: Iterable[str] = ()) -> None:
        """Take what the tool declared; `others` are the words that this kind of tool knows besides."""
        for word in options:
            if word not in Options.__annotations__:
                _refuse(
                    name,
                    tell("tool.unknown_option", word=word, known=unknown(word, [*others, *Options.__annotations__])),
                )
        verify, probe = options.get("verify"), options.get("probe")
        self._verify = Look(name, "verify", verify, ("args", "output", "before", "ctx")) if verify else None
        self._probe = Look(name, "probe", probe, ("args", "ctx")) if probe else None

    @property
    def looks_outside(self) -> bool:
        """Whether looking takes a thread, in which time passes by itself."""
        return any(look is not None and not look.is_async for look in (self._verify, self._probe))

    async def verify(self, args: dict[str, Any], output: Any, before: Any, ctx: Any) -> Any:
        """Whether the effect is there: true, false, or `Verified`."""
        if self._verify is None:
            raise LookupError(tell("tool.no_verify", name=self.spec.name))
        return await self._verify(args=args, output=output, before=before, ctx=ctx)

    async def probe(self, args: dict[str, Any], ctx: Any) -> Any:
        """What the world looks like before the call."""
        if self._probe is None:
            raise LookupError(tell("tool.no_probe", name=self.spec.name))
        return await self._probe(args=args, ctx=ctx)
