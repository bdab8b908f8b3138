"""Settings: `rerail.toml`, the environment and the caller, in rising order (contract, section 11).

Unknown keys are errors with the nearest key; each value remembers its source.

Rules of this file:
- Secret are: settings with a secret name, every header, the password in an address. A variable of the environment is
  secret by a pattern of `secrets.env`, or because a tool, a model or an MCP server names it.
- A placeholder for a secret (`${env:NAME}`, `{env.NAME}`) is not secret.
- A plain word found by a pattern or in an address (`POSTGRES_PASSWORD=postgres`) is not secret: plans with that word
  would be refused. A variable that is named is always secret.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import translate
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from rerail.codes import Category
from rerail.errors import SettingsError
from rerail.i18n import Told, tell
from rerail.kernel.policy import Policy
from rerail.plan.tool_spec import ToolSpec
from rerail.settings import tables
from rerail.settings.tables import ADDRESSES, CHOICES, LOWEST, RECORDED, REMOVED, ROLES, SECRET, VARIABLES, Table
from rerail.values.names import nearest
from rerail.values.patterns import why_not
from rerail.values.redaction import SECRET_NAME


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, with the contract's defaults."""

    run: tables.RunTable = tables.RunTable()
    retry: tables.RetryTable = tables.RetryTable()
    reflection: tables.ReflectionTable = tables.ReflectionTable()
    classify: tables.ClassifyTable = tables.ClassifyTable()
    log: tables.LogTable = tables.LogTable()
    evaluation: tables.EvaluationTable = tables.EvaluationTable()
    artifacts: tables.ArtifactsTable = tables.ArtifactsTable()
    store: tables.StoreTable = tables.StoreTable()
    worker: tables.WorkerTable = tables.WorkerTable()
    workers: tables.WorkersTable = tables.WorkersTable()
    ray: tables.RayTable = tables.RayTable()
    tools: tables.ToolsTable = tables.ToolsTable()
    mcp: tables.McpTable = tables.McpTable()
    notify: tables.NotifyTable = tables.NotifyTable()
    secrets: tables.SecretsTable = tables.SecretsTable()
    server: tables.ServerTable = tables.ServerTable()
    model: tables.ModelTable = tables.ModelTable()
    given: tuple[str, ...] = ()  # names of values that came from the command line or from code, not from a file

    def __post_init__(self) -> None:
        # Accepted input: Settings(retry={"backoff_base": 0}); stored as tables.
        for name in TABLES:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                told = tuple(f"{name}.{key}" for key, _ in _flat(name, value, "?"))
                msgspec.structs.force_setattr(self, "given", (*self.given, *told))
                msgspec.structs.force_setattr(self, name, _table(name, value, tell("source.caller")))

    @classmethod
    def load(cls, data: Mapping[str, Any] | None = None) -> Settings:
        """Return settings from a nested mapping alone."""
        return _build([(data or {}, tell("source.caller"))], stays=True)[0]

    @classmethod
    def discover(
        cls,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[Settings, dict[str, str]]:
        """Return settings, with each source: `rerail.toml` (found upwards), the environment and overrides."""
        layers: list[tuple[Mapping[str, Any], str]] = []
        path = found_file(folder)
        if path is not None:
            layers.append((_read(path), str(path)))
        layers += _environment(os.environ if environ is None else environ)
        if overrides:
            layers.append((overrides, tell("source.command_line")))
        return _build(layers, stays=bool(overrides))

    def policy(self, minds: tuple[str, ...] = ()) -> Policy:
        """Return the part that governs a run and is recorded with it."""
        recorded = {name: attrgetter(setting)(self) for setting, name in RECORDED.items()}
        given = tuple(name for setting, name in RECORDED.items() if setting in self.given)
        either = {name: recorded[name] or "" for name in ("on_doubt", "default_effect")}
        return Policy(**{**recorded, **either}, given=given, minds=minds)

    def patterns(self) -> dict[Category, list[str]]:
        """Return the user's extra patterns per category."""
        found = {category: getattr(self.classify, str(category)) for category in Category}
        return {category: patterns for category, patterns in found.items() if patterns}


TABLES = tuple(name for name in Settings.__struct_fields__ if name != "given")


def _build(layers: list[tuple[Mapping[str, Any], str]], *, stays: bool = False) -> tuple[Settings, dict[str, str]]:
    """Return the settings of all layers, later ones first, with sources; ``stays``: the last one's stay with a run."""
    merged: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for data, source in layers:
        for name, values in data.items():
            table, dot, key = str(name).partition(".")
            values = {key: values} if dot and table in TABLES else values  # noqa: PLW2901 - `table.key`, in code
            if table not in TABLES:
                raise SettingsError(_unknown(tell("setting.table", table=table), str(table), TABLES, source))
            if not isinstance(values, Mapping):
                raise SettingsError(tell("refuse.settings.no_table", table=table, source=source))
            for key, value in _flat(table, values, source):
                merged.setdefault(table, {})[key] = value
                sources[f"{table}.{key}"] = source
    last = layers[-1][1] if stays and layers else None
    given = tuple(name for name, source in sources.items() if source == last)
    return Settings(**{name: _table(name, values, sources) for name, values in merged.items()}, given=given), sources


def _kind(table: str) -> type[Table]:
    return type(Settings.__struct_defaults__[Settings.__struct_fields__.index(table)])


def _parts(kind: type[Table]) -> dict[str, type[Table]]:
    """Return the tables inside a table, such as `[model.plan]`."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: part for name, part in fields.items() if isinstance(part, type) and issubclass(part, Table)}


def _flat(table: str, values: Mapping[str, Any], source: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a table and of nested tables (`plan.name`), so that layers are merged key by key."""
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


def _struct(name: str, kind: type[Table], flat: Mapping[str, Any], sources: Mapping[str, str] | str) -> Table:
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


def _words(kind: Any) -> list[str]:
    """Return the words that a type allows, also inside a list."""
    inside = get_args(kind)
    return [str(word) for word in inside] if get_origin(kind) is Literal else [w for one in inside for w in _words(one)]


def _expected(error: Exception, kind: Any) -> str:
    """Return the expected type, in Rerail's words where the library's message is known."""
    if "enum" in str(error):
        return tell("setting.words", words=", ".join(_words(kind)))
    found = re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`(.*)", str(error))
    return tell("setting.expected", expected=found[1], kind=found[2], where=found[3]) if found else str(error)


def _value(name: str, value: Any, kind: Any, source: str) -> Any:
    try:
        found = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # A value in place of the servers may hold their secrets.
        shown = "…" if name in SECRET else repr(value)
        raise SettingsError(
            tell("refuse.settings.wrong_kind", name=name, shown=shown, source=source, error=_expected(error, kind))
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
        if (reason := why_not(pattern)) and _is_python(pattern):  # else it is matched as plain text
            message = tell("schema.bad_regex", pattern=repr(pattern), reason=reason)
            raise SettingsError(tell("refuse.settings.pattern", name=name, source=source, message=message))
    if name == "evaluation.history_window" and not 0 <= found[0] <= found[1]:
        raise SettingsError(tell("refuse.settings.window", name=name, found=list(found), source=source))
    return found


def _is_python(pattern: str) -> bool:
    """True if Python accepts a pattern as a regular expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return False
    return True


def _numbers(found: Any) -> Iterator[float]:
    """Yield the numbers of a value, at any depth."""
    if isinstance(found, int | float):
        yield found
    elif isinstance(found, Mapping):
        yield from (number for one in found.values() for number in _numbers(one))
    elif isinstance(found, list | tuple):
        yield from (number for one in found for number in _numbers(one))


def _unknown(what: str, key: str, known: Any, source: str) -> str:
    # A known key in the wrong table is the most common mistake.
    elsewhere = [f"{table}.{key}" for table in TABLES if key in _kind(table).__struct_fields__]
    near = elsewhere[0] if elsewhere and "." in what else nearest(key, known)
    if near:
        return tell("refuse.settings.unknown_near", what=what, source=source, near=near)
    return tell("refuse.settings.unknown", what=what, source=source, known=", ".join(known))


def found_file(folder: Path | None = None) -> Path | None:
    """Return the `rerail.toml` of a folder, found upwards."""
    folder = folder or Path.cwd()
    for place in (folder, *folder.resolve().parents):
        path = place / "rerail.toml"
        if path.is_file():
            _require_trusted(path)
            return path
    return None


def _require_trusted(path: Path) -> None:
    """Refuse a file that another user could have put there: settings name code to run.

    `RERAIL_TRUST` lists the folders with a file that is trusted all the same, `*` trusts all: in a container the files
    of a mounted project have the owner that they have outside.
    """
    if not hasattr(os, "getuid"):
        return
    trusted = os.environ.get("RERAIL_TRUST", "").split(os.pathsep)
    if "*" in trusted or any(one and Path(one).resolve() == path.parent.resolve() for one in trusted):
        return
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0):
        raise _untrusted(tell("refuse.settings.foreign", path=path, owner=found.st_uid), path)
    if found.st_mode & stat.S_IWOTH:
        raise _untrusted(tell("refuse.settings.open", path=path), path)


def _untrusted(told: Told, path: Path) -> SettingsError:
    return SettingsError(told, hint=tell("hint.settings.trust", folder=path.parent))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:  # not TOML, not text, or too deep or too long
        raise SettingsError(tell("refuse.settings.cannot_read", path=path, error=error)) from None
    model = data.get("model")
    if isinstance(model, dict) and isinstance(model.get("prompts"), str):
        model["prompts"] = str(path.parent / model["prompts"])
    # Files and folders are relative to the file that names them, from any working directory.
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

    A nested table contributes its name: `RERAIL_MODEL_PLAN_NAME` is `plan.name` of `[model]`.
    """
    layers: list[tuple[Mapping[str, Any], str]] = []
    for name, text in sorted(environ.items()):
        if not name.startswith("RERAIL_"):
            continue
        table, _, key = name[7:].lower().partition("_")
        if table in TABLES and key:
            inner = next((part for part in _parts(_kind(table)) if key.startswith(f"{part}_")), None)
            key = key if inner is None else f"{inner}.{key[len(inner) + 1 :]}"
            layers.append(({table: {key: _parsed(text)}}, tell("source.environment", name=name)))
    return layers


def _parsed(text: str) -> Any:
    """Return a value from the environment or the command line: JSON if it parses, else the text itself."""
    if text.strip().lower() in ("none", "null", ""):
        return None
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text  # also if it is no text, or JSON outside of every limit


def overrides_from(pairs: list[str]) -> dict[str, dict[str, Any]]:
    """Return `--set table.key=value` pairs as a nested mapping."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        name, eq, text = pair.partition("=")
        if name.strip() == "server.token":  # every user of the machine can read a command line
            raise SettingsError(tell("refuse.settings.token_shown"), hint=tell("hint.settings.token"))
        table, dot, key = name.strip().partition(".")
        if not eq or not dot:
            raise SettingsError(tell("refuse.settings.set_how", pair=pair))
        found.setdefault(table, {})[key] = _parsed(text)
    return found


def recorded_changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return other values for the settings recorded with a run, nested or as `table.key`, checked.

    `SettingsError` for any other setting names all that can be changed.
    """
    flat: dict[str, Any] = {}
    for name, value in given.items():
        inside = value if isinstance(value, Mapping) and name in TABLES else None
        flat |= {f"{name}.{key}": one for key, one in inside.items()} if inside is not None else {name: value}
    heads = dict.fromkeys(name.partition(".")[0] for name in RECORDED)
    lines = (", ".join(name for name in RECORDED if name.startswith(f"{table}.")) for table in heads)
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
    """Return every value with its source, safe to show: the servers' secrets are hidden."""
    return [
        {
            "key": name,
            "value": _shown(name, value),
            "source": sources.get(name, tell("source.default")),
        }
        for table in TABLES
        for name, value in _rows(table, getattr(settings, table))
    ]


def _shown(name: str, value: Any) -> Any:
    if name == "mcp.servers":
        from rerail.adapters.tools.mcp.server_config import discreet

        return discreet(value)
    if name == "notify.webhook" and value:
        from rerail.adapters.notify import Webhook

        return Webhook(value).name
    if name == "server.token" and value:
        return "…"
    if name == "notify.command" and value:
        return [value[0], *("…" for _ in value[1:])]
    return _discreet(value)


_ADDRESS: Final = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/?#@]*@)?([^?#]*)(\?[^#]*)?(#.*)?")


def _discreet(value: Any) -> Any:
    """Return a value without credentials: headers, keys and passwords, also in an address."""
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


def _rows(name: str, table: Table) -> Iterator[tuple[str, Any]]:
    for key in table.__struct_fields__:
        value = getattr(table, key)
        if isinstance(value, Table):
            yield from _rows(f"{name}.{key}", value)
        else:
            yield f"{name}.{key}", value


# -- Secret values --------------------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"\$\{env:([^}]*)\}")
LONGEST_WORD: Final = 12  # letters; a generated key is longer, or mixed


def secrets_of(settings: Settings, specs: Iterable[ToolSpec], environ: Mapping[str, str]) -> dict[str, str]:
    """Return every secret value, with the name to show in its place."""
    table, matches = settings.model, _matcher(tuple(settings.secrets.env))
    named = {
        *(name for name in environ if matches(name) and not _is_word(environ[name])),
        *(name for spec in specs for name in spec.secrets),
        *(one.key_env for one in (table, *(getattr(table, role) for role in ROLES)) if one.key_env),
    }
    found = {environ[name]: name for name in sorted(named) if environ.get(name)}
    if settings.mcp.servers:
        found |= _in_servers(settings.mcp.servers, environ)
    for name, value in _marked(settings) if settings != Settings() else ():
        found.setdefault(value, name)
    return found


@cache
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Return one matcher for all patterns of names."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)").match


def _is_word(value: str) -> bool:
    return value.isalpha() and len(value) < LONGEST_WORD and value in (value.lower(), value.upper(), value.title())


def _in_servers(servers: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the variables that MCP servers get."""
    names = set(_VARIABLE.findall(str(msgspec.to_builtins(servers))))
    return {environ[name]: name for name in sorted(names) if environ.get(name)}


def _marked(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the secret values of the settings with their names."""
    waiting: list[tuple[str, Any]] = [("", msgspec.to_builtins(settings))]
    while waiting:
        name, value = waiting.pop()
        match value:
            case dict():
                waiting += [(f"{name}.{key}" if name else str(key), value[key]) for key in reversed(value)]
            case list() if name != "secrets.env":
                waiting += [(name, item) for item in reversed(value)]
            case str() if value and "{" not in value:
                yield from ((name, one) for one in _secret_parts(name, value))
            case _:
                pass


def _secret_parts(name: str, value: str) -> Iterator[str]:
    table, _, last = name.rpartition(".")
    if SECRET_NAME.search(last):
        yield value
    elif table.rpartition(".")[2] == "headers":
        yield value
        yield value.rpartition(" ")[2]  # "Bearer …"
    elif name == "notify.webhook":
        yield value.partition("://")[2].partition("/")[2]  # its path alone gives access
    elif "://" in value:
        try:
            password = urlsplit(value).password or ""
        except ValueError:  # not an address
            return
        if not _is_word(password):
            yield password
