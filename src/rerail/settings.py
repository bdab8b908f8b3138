"""Settings: `rerail.toml`, the environment and the caller, in rising order (SPEC 11).

Unknown keys are errors with the nearest key; each value remembers where it came from.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from rerail.core.codes import Category
from rerail.core.nearest import nearest
from rerail.core.patterns import why_not
from rerail.core.policy import Policy
from rerail.errors import SettingsError
from rerail.i18n import tell


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `rerail.toml`."""


class RunTable(_Table, frozen=True):
    concurrency: int = 8
    tool_concurrency: dict[str, int] = {}
    provider_concurrency: dict[str, int] = {}
    step_timeout: float = 300.0
    max_attempts: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    on_doubt: Literal["wait", "fail"] | None = None  # where neither the step nor its tool says; see the contract, E3


class RetryTable(_Table, frozen=True):
    backoff_base: float = 1.0
    backoff_factor: float = 2.0
    backoff_cap: float = 30.0
    jitter: bool = True
    max_wait: float = 600.0
    max_retry_rounds: int = 1
    max_retries: int = 3


class ReflectionTable(_Table, frozen=True):
    enable_step_level_reflection: bool = True
    mode: str = "hybrid"
    max_step_retries: int = 3
    max_single_step_repairs: int = 1
    max_task_replanning_attempts: int = 1
    max_consecutive_failures: int = 3
    replan: str = "keep"
    memory: bool = False


class ClassifyTable(_Table, frozen=True):
    transient_error: list[str] = []
    parameter_error: list[str] = []
    tool_error: list[str] = []
    dependency_error: list[str] = []
    decomposition_error: list[str] = []
    permanent_error: list[str] = []
    unknown_error: list[str] = []


class LogTable(_Table, frozen=True):
    verbose: bool = False


class EvaluationTable(_Table, frozen=True):
    judge: bool = True
    shortcut: bool = True
    history_window: tuple[int, int] = (5, 12)
    settle: float | Literal["never"] = 5.0  # seconds until the effect of a `once` tool can be read by a look


class ArtifactsTable(_Table, frozen=True):
    memory: int = 10
    ttl_hours: float = 24.0


class StoreTable(_Table, frozen=True):
    url: str = "sqlite:///.rerail/runs.db"
    durability: str = "full"
    reconnect_seconds: float = 30.0
    workspace: str | None = None  # the folder of the runs' files; on several machines one that all of them see


class WorkerTable(_Table, frozen=True):
    jobs: int | None = None  # processes that `retry --all-failed` uses; none: twice the cores, eight at most
    runs: int = 16  # that one `rerail worker` drives at once
    grace: float = 30.0  # seconds that calls under way get to end, when a worker is told to stop


class WorkersTable(_Table, frozen=True):
    silent_is_dead: bool = False  # a supervisor makes sure that a worker that falls silent acts no more


class RayTable(_Table, frozen=True):
    steps: bool = False  # calls of tools are tasks of the cluster
    address: str | None = None  # none: the one of RAY_ADDRESS, or of this machine, else one for this process alone
    env: dict[str, Any] = {}  # Ray's runtime_env: working_dir, pip, env_vars, …
    cpus: float = 1.0  # what a step gets that does not say
    max_wait: float = 600.0  # seconds that a call may wait for room
    gone_after: float = 40.0  # seconds without its head after which the cluster is gone; Ray ends the process at 60


class ToolsTable(_Table, frozen=True):
    modules: list[str] = []
    allow_hosts: list[str] = []
    max_output: int = 64 * 1024 * 1024
    shell: dict[str, Any] = {}
    http: dict[str, Any] = {}
    idempotent_for: dict[str, float] = {}  # tool → seconds for which its service remembers an idempotency key
    default_effect: str | None = None  # of Python functions that declare none; none: repeatable, which is said
    require_effect: bool = False  # plans may use no function that declares none


class McpTable(_Table, frozen=True):
    servers: dict[str, Any] = {}


class SecretsTable(_Table, frozen=True):
    # Patterns of the environment variables whose values nobody may see.
    env: tuple[str, ...] = ("*_API_KEY", "*_ACCESS_KEY", "*_SECRET", "*_SECRET_KEY", "*_TOKEN", "*_PASSWORD")


class NotifyTable(_Table, frozen=True):
    command: list[str] = []
    webhook: str | None = None
    on: tuple[Literal["done", "failed", "waiting"], ...] = ("done", "failed", "waiting")
    timeout: float = 10.0
    retries: int = 2


class ServerTable(_Table, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8420
    token: str | None = None
    allow: tuple[Literal["shell", "http"], ...] = ()  # kinds of tools that plans from outside may use, too
    allow_hosts: list[str] = []  # names by which it is reached, besides addresses and this machine's own
    allow_origins: list[str] = []  # pages of other addresses that may use it
    heartbeat: float = 15.0
    max_body: int = 8 * 1024 * 1024
    max_readers: int = 500  # streams and sockets at once
    max_behind: int = 5_000  # events that a reader may fall behind before it is let go


class RoleTable(_Table, frozen=True):
    """A role's own model; what it leaves out is the common one's."""

    name: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    temperature: float | None = None
    timeout: float | None = None
    fallback: str | None = None


class ModelTable(_Table, frozen=True):
    name: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    temperature: float | None = 0.0
    timeout: float = 60.0
    retries: int = 2
    fallback: str | None = None
    output: Literal["auto", "native", "tool", "text"] = "auto"
    prices: dict[str, tuple[float, float]] = {}  # model → for a million tokens in, for a million tokens out
    max_reasks: int = 2
    max_context_chars: int = 60_000
    prompts: str | None = None  # a folder with prompts of one's own
    plan: RoleTable = RoleTable()
    reflect: RoleTable = RoleTable()
    repair: RoleTable = RoleTable()
    replan: RoleTable = RoleTable()
    judge: RoleTable = RoleTable()


ROLES: Final = ("plan", "reflect", "repair", "replan", "judge")
_MODEL_TABLES: Final = ("model", *(f"model.{role}" for role in ROLES))

CHOICES: dict[str, tuple[str, ...]] = {
    "model.output": ("auto", "native", "tool", "text"),
    "reflection.mode": ("hybrid", "rules", "model"),
    "reflection.replan": ("keep", "full"),
    "store.durability": ("full", "normal"),
    "tools.default_effect": ("once", "repeatable", "read"),
}
# Lowest value that makes sense; 0 switches a limit off where the contract says so.
LOWEST: dict[str, float] = {
    "run.concurrency": 0, "run.tool_concurrency": 0, "run.provider_concurrency": 0, "run.step_timeout": 0.001,
    "run.max_attempts": 0, "run.max_tokens": 0, "run.max_cost": 0,
    "run.max_seconds": 0, "evaluation.settle": 0, "tools.idempotent_for": 0,
    "retry.backoff_base": 0, "retry.backoff_factor": 1, "retry.backoff_cap": 0,
    "retry.max_wait": 0, "retry.max_retry_rounds": 0, "retry.max_retries": 0, "reflection.max_step_retries": 0,
    "reflection.max_single_step_repairs": 0, "reflection.max_task_replanning_attempts": 0,
    "reflection.max_consecutive_failures": 0, "artifacts.memory": 0, "artifacts.ttl_hours": 0,
    "store.reconnect_seconds": 0, "tools.max_output": 1, "model.retries": 0, "model.prices": 0, "model.max_reasks": 0,
    "model.max_context_chars": 1000, "worker.jobs": 1, "server.port": 0, "server.heartbeat": 0.1,
    "server.max_body": 1024, "server.max_readers": 1, "server.max_behind": 1,
    "worker.runs": 1, "worker.grace": 0, "ray.cpus": 0, "ray.gone_after": 0, "ray.max_wait": 0,
    "notify.timeout": 0.001, "notify.retries": 0,
    **{f"{table}.timeout": 0.001 for table in _MODEL_TABLES}, **{f"{table}.temperature": 0 for table in _MODEL_TABLES},
}  # fmt: skip
# Tombstones: keys of earlier versions, each with the texts that say so and what to do now.
REMOVED: Final = {
    "ray.coordinator": ("refuse.ray.coordinator", "hint.ray.coordinator"),
    "mcp.from_plans": ("refuse.mcp.from_plans", "hint.mcp.from_plans"),
}
ADDRESSES: Final = frozenset(f"{table}.base_url" for table in _MODEL_TABLES)
SECRET: Final = frozenset(
    {"mcp.servers", "notify.webhook", "notify.command", "server.token"}
)  # values that are not shown
VARIABLES: Final = frozenset(f"{table}.key_env" for table in _MODEL_TABLES)


# The settings that govern a run and are recorded with it, by the policy's names: these can be replayed.
RECORDED: Final[dict[str, str]] = {
    **{f"run.{name}": name for name in RunTable.__struct_fields__},
    **{f"retry.{name}": name for name in RetryTable.__struct_fields__},
    **{f"reflection.{name}": name for name in ReflectionTable.__struct_fields__ if name != "memory"},
    "reflection.enable_step_level_reflection": "reflect",
    "reflection.mode": "reflection_mode",
    "evaluation.judge": "judge",
    "evaluation.shortcut": "shortcut",
    "evaluation.settle": "settle",
}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set, with the contract's defaults."""

    run: RunTable = RunTable()
    retry: RetryTable = RetryTable()
    reflection: ReflectionTable = ReflectionTable()
    classify: ClassifyTable = ClassifyTable()
    log: LogTable = LogTable()
    evaluation: EvaluationTable = EvaluationTable()
    artifacts: ArtifactsTable = ArtifactsTable()
    store: StoreTable = StoreTable()
    worker: WorkerTable = WorkerTable()
    workers: WorkersTable = WorkersTable()
    ray: RayTable = RayTable()
    tools: ToolsTable = ToolsTable()
    mcp: McpTable = McpTable()
    notify: NotifyTable = NotifyTable()
    secrets: SecretsTable = SecretsTable()
    server: ServerTable = ServerTable()
    model: ModelTable = ModelTable()

    def __post_init__(self) -> None:
        # People write Settings(retry={"backoff_base": 0}); inside there are only tables.
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                msgspec.structs.force_setattr(self, name, _table(name, value, tell("source.caller")))

    @classmethod
    def load(cls, data: Mapping[str, Any] | None = None) -> Settings:
        """Settings from a nested mapping, and nothing else."""
        return _build([(data or {}, tell("source.caller"))])[0]

    @classmethod
    def discover(
        cls,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[Settings, dict[str, str]]:
        """Settings from `rerail.toml` (found upwards), the environment and overrides; with each value's source."""
        layers: list[tuple[Mapping[str, Any], str]] = []
        path = _find(folder or Path.cwd())
        if path is not None:
            layers.append((_read(path), str(path)))
        layers += _environment(os.environ if environ is None else environ)
        if overrides:
            layers.append((overrides, tell("source.command_line")))
        return _build(layers)

    def policy(self, minds: tuple[str, ...] = ()) -> Policy:
        """The part that governs a run and is recorded with it."""
        run, retry, reflection = self.run, self.retry, self.reflection
        return Policy(
            **{name: getattr(run, name) for name in run.__struct_fields__ if name != "on_doubt"},
            on_doubt=run.on_doubt or "",
            settle=self.evaluation.settle,
            **{name: getattr(retry, name) for name in retry.__struct_fields__},
            reflect=reflection.enable_step_level_reflection,
            reflection_mode=reflection.mode,
            max_step_retries=reflection.max_step_retries,
            max_single_step_repairs=reflection.max_single_step_repairs,
            max_task_replanning_attempts=reflection.max_task_replanning_attempts,
            max_consecutive_failures=reflection.max_consecutive_failures,
            replan=reflection.replan,
            judge=self.evaluation.judge,
            shortcut=self.evaluation.shortcut,
            minds=minds,
        )

    def patterns(self) -> dict[Category, list[str]]:
        """The user's extra patterns per category."""
        found = {category: getattr(self.classify, str(category)) for category in Category}
        return {category: patterns for category, patterns in found.items() if patterns}


def _build(layers: list[tuple[Mapping[str, Any], str]]) -> tuple[Settings, dict[str, str]]:
    merged: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for data, source in layers:
        for table, values in data.items():
            if table not in Settings.__struct_fields__:
                raise SettingsError(
                    _unknown(tell("setting.table", table=table), str(table), Settings.__struct_fields__, source)
                )
            if not isinstance(values, Mapping):
                raise SettingsError(tell("refuse.settings.no_table", table=table, source=source))
            for key, value in _flat(table, values, source):
                merged.setdefault(table, {})[key] = value
                sources[f"{table}.{key}"] = source
    tables = {name: _table(name, values, sources) for name, values in merged.items()}
    return Settings(**tables), sources


def _kind(table: str) -> type[_Table]:
    return type(Settings.__struct_defaults__[Settings.__struct_fields__.index(table)])


def _parts(kind: type[_Table]) -> dict[str, type[_Table]]:
    """The tables inside a table, such as `[model.plan]`."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: part for name, part in fields.items() if isinstance(part, type) and issubclass(part, _Table)}


def _flat(table: str, values: Mapping[str, Any], source: str) -> Iterator[tuple[str, Any]]:
    """The keys of a table and of those inside it (`plan.name`), so that layers are merged key by key."""
    parts = _parts(_kind(table))
    for key, value in values.items():
        if key not in parts:
            yield key, value
        elif isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", one) for inner, one in value.items())
        else:
            raise SettingsError(tell("refuse.settings.nested_table", table=table, key=key, source=source))


def _table(name: str, values: Mapping[str, Any], sources: Mapping[str, str] | str) -> Any:
    flat = dict(_flat(name, values, sources if isinstance(sources, str) else "?"))
    return _struct(name, _kind(name), flat, sources)


def _struct(name: str, kind: type[_Table], flat: Mapping[str, Any], sources: Mapping[str, str] | str) -> _Table:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    parts = _parts(kind)
    clean: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        head, dot, rest = str(key).partition(".")
        source = sources if isinstance(sources, str) else sources.get(f"{name}.{key}", "?")
        if dot and head in parts:
            inside.setdefault(head, {})[rest] = value
        elif gone := REMOVED.get(f"{name}.{key}"):
            what = tell("setting.key", name=f"{name}.{key}", source=source)
            raise SettingsError(tell(gone[0], what=what), hint=tell(gone[1]))
        elif key not in fields:
            raise SettingsError(_unknown(f"{name}.{key}", str(key), fields, source))
        else:
            clean[key] = _value(f"{name}.{key}", value, fields[key], source)
    clean |= {head: _struct(f"{name}.{head}", parts[head], below, sources) for head, below in inside.items()}
    return kind(**clean)


def _expected(error: Exception) -> str:
    """What should have stood there, in our words as far as we know the library's."""
    found = re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`(.*)", str(error))
    return tell("setting.expected", expected=found[1], kind=found[2], where=found[3]) if found else str(error)


def _value(name: str, value: Any, kind: Any, source: str) -> Any:
    try:
        found = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # What stands in place of the servers may hold their secrets.
        shown = "…" if name in SECRET else repr(value)
        raise SettingsError(
            tell("refuse.settings.wrong_kind", name=name, shown=shown, source=source, error=_expected(error))
        ) from None
    choices = CHOICES.get(name)
    if choices is not None and found is not None and found not in choices:
        near = nearest(str(found), choices)
        listed = ", ".join(choices)
        raise SettingsError(
            tell("refuse.settings.choices", name=name, found=found, source=source, choices=listed),
            hint=tell("hint.run.did_you_mean", near=near) if near else "",
        )
    lowest = LOWEST.get(name)
    if not all(math.isfinite(number) for number in _numbers(found)):
        raise SettingsError(tell("refuse.settings.infinite", name=name, found=found, source=source))
    if lowest is not None and not all(number >= lowest for number in _numbers(found)):
        raise SettingsError(tell("refuse.settings.too_low", name=name, found=found, source=source, lowest=lowest))
    if name == "notify.webhook" and found and not re.match(r"https?://[^/?#\s]", found):
        raise SettingsError(tell("refuse.notify.no_address", source=source))  # not shown: it may hold a secret
    if name in ADDRESSES and found and not re.match(r"https?://[^/?#\s]", found):
        raise SettingsError(tell("refuse.settings.no_address", name=name, found=found, source=source))
    if name in VARIABLES and found and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", found):
        # Not shown: it may well be the key itself.
        raise SettingsError(tell("refuse.settings.no_variable", name=name, source=source))
    for pattern in found if name.startswith("classify.") else ():
        if (reason := why_not(pattern)) and _is_python(pattern):  # else it is looked for as plain text
            message = tell("schema.bad_regex", pattern=repr(pattern), reason=reason)
            raise SettingsError(tell("refuse.settings.pattern", name=name, source=source, message=message))
    if name == "evaluation.history_window" and not 0 <= found[0] <= found[1]:
        raise SettingsError(tell("refuse.settings.window", name=name, found=list(found), source=source))
    return found


def _is_python(pattern: str) -> bool:
    """Whether Python reads a pattern as a regular expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return False
    return True


def _numbers(found: Any) -> Iterator[float]:
    """The numbers of a value, however it holds them."""
    if isinstance(found, int | float):
        yield found
    elif isinstance(found, Mapping):
        yield from (number for one in found.values() for number in _numbers(one))
    elif isinstance(found, list | tuple):
        yield from (number for one in found for number in _numbers(one))


def _unknown(what: str, key: str, known: Any, source: str) -> str:
    # A key that is known, in another table, is what people get wrong most.
    elsewhere = [f"{table}.{key}" for table in Settings.__struct_fields__ if key in _kind(table).__struct_fields__]
    near = elsewhere[0] if elsewhere and "." in what else nearest(key, known)
    if near:
        return tell("refuse.settings.unknown_near", what=what, source=source, near=near)
    return tell("refuse.settings.unknown", what=what, source=source, known=", ".join(known))


def _find(folder: Path) -> Path | None:
    for place in (folder, *folder.resolve().parents):
        path = place / "rerail.toml"
        if path.is_file():
            return path
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:  # no TOML, no text, or too deep or too long to be meant
        raise SettingsError(tell("refuse.settings.cannot_read", path=path, error=error)) from None
    model = data.get("model")
    if isinstance(model, dict) and isinstance(model.get("prompts"), str):
        model["prompts"] = str(path.parent / model["prompts"])
    # Files and folders are meant relative to the file that names them, wherever the command is typed.
    notify = data.get("notify")
    command = notify.get("command") if isinstance(notify, dict) else None
    if isinstance(command, list) and command and isinstance(command[0], str) and "/" in command[0]:
        command[0] = str(path.parent / command[0])
    tools, mcp = data.get("tools"), data.get("mcp")
    if isinstance(tools, dict) and isinstance(tools.get("modules"), list):
        tools["modules"] = [str(path.parent / name) if str(name).endswith(".py") else name for name in tools["modules"]]
    servers = mcp.get("servers") if isinstance(mcp, dict) else None
    for server in servers.values() if isinstance(servers, dict) else ():
        if isinstance(server, dict) and isinstance(server.get("cwd"), str):
            server["cwd"] = str(path.parent / server["cwd"])
    return data


def _environment(environ: Mapping[str, str]) -> list[tuple[Mapping[str, Any], str]]:
    """`RERAIL_<TABLE>_<KEY>`; other RERAIL_ variables (RERAIL_LANG, …) are not settings.

    A table inside a table goes by its name: `RERAIL_MODEL_PLAN_NAME` is `plan.name` of `[model]`.
    """
    layers: list[tuple[Mapping[str, Any], str]] = []
    for name, text in sorted(environ.items()):
        if not name.startswith("RERAIL_"):
            continue
        table, _, key = name[7:].lower().partition("_")
        if table in Settings.__struct_fields__ and key:
            inner = next((part for part in _parts(_kind(table)) if key.startswith(f"{part}_")), None)
            key = key if inner is None else f"{inner}.{key[len(inner) + 1 :]}"
            layers.append(({table: {key: _parsed(text)}}, tell("source.environment", name=name)))
    return layers


def _parsed(text: str) -> Any:
    """A text from the environment or the command line: JSON where it is JSON, else the text itself."""
    if text.strip().lower() in ("none", "null", ""):
        return None
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text  # also where it is no text at all, or JSON that nobody could mean


def overrides_from(pairs: list[str]) -> dict[str, dict[str, Any]]:
    """`--set table.key=value` pairs as a nested mapping."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        name, eq, text = pair.partition("=")
        table, dot, key = name.strip().partition(".")
        if not eq or not dot:
            raise SettingsError(tell("refuse.settings.set_how", pair=pair))
        found.setdefault(table, {})[key] = _parsed(text)
    return found


def recorded_changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Other values for settings that a run records, nested or as `table.key`, checked; those of a run alone are known.

    `SettingsError` names all that can be changed.
    """
    flat: dict[str, Any] = {}
    for name, value in given.items():
        inside = value if isinstance(value, Mapping) and name in Settings.__struct_fields__ else None
        flat |= {f"{name}.{key}": one for key, one in inside.items()} if inside is not None else {name: value}
    tables = dict.fromkeys(name.partition(".")[0] for name in RECORDED)
    lines = (", ".join(name for name in RECORDED if name.startswith(f"{table}.")) for table in tables)
    known, hint = "".join(f"\n  {line}" for line in lines), tell("hint.settings.replay")
    if not flat:
        raise SettingsError(tell("refuse.settings.nothing_to_replay", known=known), hint=hint)
    nested: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        if name not in RECORDED:
            near = nearest(name, RECORDED)
            if near:
                told = tell("refuse.settings.not_replayed_near", name=name, near=near, known=known)
            else:
                told = tell("refuse.settings.not_replayed", name=name, known=known)
            raise SettingsError(told, hint=hint)
        table, _, key = name.partition(".")
        nested.setdefault(table, {})[key] = value
    policy = Settings.load(nested).policy()
    return {name: getattr(policy, RECORDED[name]) for name in flat}


def describe(settings: Settings, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every value with its source, as it may be shown: the servers' secrets are hidden."""
    return [
        {
            "key": name,
            "value": _shown(name, value),
            "source": sources.get(name, tell("source.default")),
        }
        for table in settings.__struct_fields__
        for name, value in _rows(table, getattr(settings, table))
    ]


def _shown(name: str, value: Any) -> Any:
    if name == "mcp.servers":
        from rerail.adapters.tools.mcp import discreet

        return discreet(value)
    if name == "notify.webhook" and value:
        from rerail.adapters.notify import Webhook

        return Webhook(value).name
    if name == "server.token" and value:
        return "…"
    if name == "notify.command" and value:
        return [value[0], *("…" for _ in value[1:])]
    return _discreet(value)


SECRET_NAME: Final = re.compile(r"(?i)token|secret|passw|api[-_]?key|authorization|credential|cookie")
_ADDRESS: Final = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/?#@]*@)?([^?#]*)(\?[^#]*)?(#.*)?")


def _discreet(value: Any) -> Any:
    """A value without what nobody else should read: headers, keys and passwords, also those in an address."""
    match value:
        case str():
            found = _ADDRESS.fullmatch(value)
            if found is None:
                return value
            kind, place, query, rest = found.groups()
            who = "…@" if value.startswith(f"{kind}") and "@" in value[len(kind) :].partition("/")[0] else ""
            said = re.sub(r"=[^&]*", "=…", query) if query else ""
            return f"{kind}{who}{place}{said}{rest or ''}"
        case dict():
            hidden = {name for name, item in value.items() if SECRET_NAME.search(str(name)) and item}
            return {
                name: "…" if name in hidden else dict.fromkeys(item, "…") if name == "headers" else _discreet(item)
                for name, item in value.items()
            }
        case list() | tuple():
            return type(value)(_discreet(item) for item in value)
        case _:
            return value


def _rows(name: str, table: _Table) -> Iterator[tuple[str, Any]]:
    for key in table.__struct_fields__:
        value = getattr(table, key)
        if isinstance(value, _Table):
            yield from _rows(f"{name}.{key}", value)
        else:
            yield f"{name}.{key}", value
