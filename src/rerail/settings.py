"""Settings: `rerail.toml`, the environment and the caller, in rising order (SPEC 11).

Unknown keys are errors with the nearest key; each value remembers where it came from.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.codes import Category
from rerail.core.nearest import nearest
from rerail.core.policy import Policy
from rerail.errors import SettingsError


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


class ArtifactsTable(_Table, frozen=True):
    memory: int = 10
    ttl_hours: float = 24.0


class StoreTable(_Table, frozen=True):
    url: str = "sqlite:///.rerail/runs.db"
    durability: str = "full"
    reconnect_seconds: float = 30.0


class ToolsTable(_Table, frozen=True):
    modules: list[str] = []
    allow_hosts: list[str] = []
    max_output: int = 64 * 1024 * 1024
    shell: dict[str, Any] = {}
    http: dict[str, Any] = {}


class McpTable(_Table, frozen=True):
    servers: dict[str, Any] = {}
    from_plans: bool = False


class ModelTable(_Table, frozen=True):
    timeout: float = 60.0


CHOICES: dict[str, tuple[str, ...]] = {
    "reflection.mode": ("hybrid", "rules", "model"),
    "reflection.replan": ("keep", "full"),
    "store.durability": ("full", "normal"),
}
# Lowest value that makes sense; 0 switches a limit off where the contract says so.
LOWEST: dict[str, float] = {
    "run.concurrency": 0, "run.step_timeout": 0.001, "run.max_attempts": 0, "run.max_tokens": 0, "run.max_cost": 0,
    "run.max_seconds": 0, "retry.backoff_base": 0, "retry.backoff_factor": 1, "retry.backoff_cap": 0,
    "retry.max_wait": 0, "retry.max_retry_rounds": 0, "retry.max_retries": 0, "reflection.max_step_retries": 0,
    "reflection.max_single_step_repairs": 0, "reflection.max_task_replanning_attempts": 0,
    "reflection.max_consecutive_failures": 0, "artifacts.memory": 0, "artifacts.ttl_hours": 0,
    "store.reconnect_seconds": 0, "tools.max_output": 1, "model.timeout": 0.001,
}  # fmt: skip


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
    tools: ToolsTable = ToolsTable()
    mcp: McpTable = McpTable()
    model: ModelTable = ModelTable()

    def __post_init__(self) -> None:
        # People write Settings(retry={"backoff_base": 0}); inside there are only tables.
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                msgspec.structs.force_setattr(self, name, _table(name, value, "the caller"))

    @classmethod
    def load(cls, data: Mapping[str, Any] | None = None) -> Settings:
        """Settings from a nested mapping, and nothing else."""
        return _build([(data or {}, "the caller")])[0]

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
            layers.append((overrides, "command line"))
        return _build(layers)

    def policy(self, minds: tuple[str, ...] = ()) -> Policy:
        """The part that governs a run and is recorded with it."""
        run, retry, reflection = self.run, self.retry, self.reflection
        return Policy(
            **{name: getattr(run, name) for name in run.__struct_fields__},
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
                raise SettingsError(_unknown(f"table [{table}]", str(table), Settings.__struct_fields__, source))
            if not isinstance(values, Mapping):
                raise SettingsError(f"[{table}] is a table of keys (from {source})")
            for key, value in values.items():
                merged.setdefault(table, {})[key] = value
                sources[f"{table}.{key}"] = source
    tables = {name: _table(name, values, sources) for name, values in merged.items()}
    return Settings(**tables), sources


def _table(name: str, values: Mapping[str, Any], sources: Mapping[str, str] | str) -> Any:
    kind = type(Settings.__struct_defaults__[Settings.__struct_fields__.index(name)])
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    clean = {}
    for key, value in values.items():
        source = sources if isinstance(sources, str) else sources.get(f"{name}.{key}", "?")
        if key not in fields:
            raise SettingsError(_unknown(f"{name}.{key}", str(key), fields, source))
        clean[key] = _value(f"{name}.{key}", value, fields[key], source)
    return kind(**clean)


def _value(name: str, value: Any, kind: Any, source: str) -> Any:
    try:
        found = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        # What stands in place of the servers may hold their secrets.
        shown = "…" if name == "mcp.servers" else repr(value)
        raise SettingsError(f"{name} = {shown} (from {source}): {error}") from None
    choices = CHOICES.get(name)
    if choices is not None and found not in choices:
        near = nearest(str(found), choices)
        hint = f"; did you mean {near!r}?" if near else ""
        raise SettingsError(f"{name} = {found!r} (from {source}): expected one of {', '.join(choices)}{hint}")
    lowest = LOWEST.get(name)
    if lowest is not None and found is not None and not (isinstance(found, int | float) and found >= lowest):
        raise SettingsError(f"{name} = {found!r} (from {source}): must be at least {lowest:g}")
    return found


def _unknown(what: str, key: str, known: Any, source: str) -> str:
    near = nearest(key, known)
    return f"unknown setting {what} (from {source})" + (
        f"; did you mean {near!r}?" if near else f"; known: {', '.join(known)}"
    )


def _find(folder: Path) -> Path | None:
    for place in (folder, *folder.resolve().parents):
        path = place / "rerail.toml"
        if path.is_file():
            return path
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from None
    # Files and folders are meant relative to the file that names them, wherever the command is typed.
    tools, mcp = data.get("tools"), data.get("mcp")
    if isinstance(tools, dict) and isinstance(tools.get("modules"), list):
        tools["modules"] = [str(path.parent / name) if str(name).endswith(".py") else name for name in tools["modules"]]
    servers = mcp.get("servers") if isinstance(mcp, dict) else None
    for server in servers.values() if isinstance(servers, dict) else ():
        if isinstance(server, dict) and isinstance(server.get("cwd"), str):
            server["cwd"] = str(path.parent / server["cwd"])
    return data


def _environment(environ: Mapping[str, str]) -> list[tuple[Mapping[str, Any], str]]:
    """`RERAIL_<TABLE>_<KEY>`; other RERAIL_ variables (RERAIL_LANG, …) are not settings."""
    layers: list[tuple[Mapping[str, Any], str]] = []
    for name, text in sorted(environ.items()):
        if not name.startswith("RERAIL_"):
            continue
        table, _, key = name[7:].lower().partition("_")
        if table in Settings.__struct_fields__ and key:
            layers.append(({table: {key: _parsed(text)}}, f"environment {name}"))
    return layers


def _parsed(text: str) -> Any:
    """A text from the environment or the command line: JSON where it is JSON, else the text itself."""
    if text.strip().lower() in ("none", "null", ""):
        return None
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


def overrides_from(pairs: list[str]) -> dict[str, dict[str, Any]]:
    """`--set table.key=value` pairs as a nested mapping."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        name, eq, text = pair.partition("=")
        table, dot, key = name.strip().partition(".")
        if not eq or not dot:
            raise SettingsError(f"--set {pair!r}: write table.key=value, for example retry.max_retries=5")
        found.setdefault(table, {})[key] = _parsed(text)
    return found


def describe(settings: Settings, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every value with its source, as it may be shown: the servers' secrets are hidden."""
    from rerail.adapters.tools.mcp import discreet

    rows = []
    for table in settings.__struct_fields__:
        values = getattr(settings, table)
        for key in values.__struct_fields__:
            name = f"{table}.{key}"
            value = getattr(values, key)
            shown = discreet(value) if name == "mcp.servers" else value
            rows.append({"key": name, "value": shown, "source": sources.get(name, "default")})
    return rows
