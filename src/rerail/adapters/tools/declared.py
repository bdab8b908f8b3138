"""Tools declared as data, in settings or beside a plan: `{shell: […], …}` and `{http: {method, url, …}, …}`.

Rules of this file:
- An unknown key is refused with the nearest known one: a misspelled `effect` would otherwise be a silent default.
- A declaration cannot name code, so `verify` and `probe` are not among the keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rerail.adapters.tools.http import HttpTool
from rerail.adapters.tools.shell import ShellTool
from rerail.adapters.tools.spec import LIMITS, ON_DOUBT
from rerail.adapters.tools.templates import text_of
from rerail.errors import SettingsError
from rerail.i18n import one_by_one, tell
from rerail.plan.step import Effect
from rerail.plan.tool_spec import ERRORS
from rerail.ports import Tool
from rerail.values.schema import Schema

_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_COMMON: Final[Mapping[str, Any]] = {
    "description": {"type": "string"},
    "schema": {"type": ["object", "boolean"]},
    "effect": {"enum": [str(effect) for effect in Effect]},
    "timeout": {"type": "number", "exclusiveMinimum": 0},
    "alternatives": _TEXTS,
    "provider": {"type": "string"},
    "check": {"type": "object"},
    "secrets": _TEXTS,
    "errors": {"enum": list(ERRORS)},
    "settle": {"anyOf": [{"type": "number", "minimum": 0}, {"enum": ["never"]}]},
    "idempotent_for": {"type": "number", "exclusiveMinimum": 0},
    "on_doubt": {"enum": list(ON_DOUBT)},
    "cost": {"type": "number", "minimum": 0},
    "trust_output": {
        "type": ["boolean", "object"],
        "properties": {"ignore": _TEXTS, "suspect": {"type": "array", "items": {"type": ["string", "object"]}}},
        "additionalProperties": False,
    },
}
_SHELL: Final[Mapping[str, Any]] = {
    "argv": {**_TEXTS, "minItems": 1},
    "env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    "cwd": {"type": "string"},
    "stdin": {"type": "string"},
    "max_output": {"type": "integer", "minimum": 1},
    "parse": {"enum": ["text", "json", "lines"]},
    "ok": {"type": "array", "items": {"type": "integer"}},
    "not_done": {"type": "array", "items": {"type": "integer"}},
    "limits": LIMITS,
}
_HTTP: Final[Mapping[str, Any]] = {
    "method": {"type": "string"},
    "url": {"type": "string"},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    "query": {"type": "object"},
    "body": {},
    "allow_hosts": _TEXTS,
    "max_bytes": {"type": "integer", "minimum": 1},
    "key_header": {"type": ["string", "null"]},
}


def from_mapping(name: str, data: Any, *, allow_hosts: Sequence[str] | None = None) -> Tool:
    """Make the tool of a mapping; the settings' `allow_hosts`, if given, overrides the mapping's own."""
    try:
        kind, declared = _flat(data)
        _require_sound(kind, declared)
        return _shell(name, declared) if kind == "shell" else _http(name, declared, allow_hosts)
    except ValueError as error:
        label = f"tool {name!r}: "
        raise SettingsError(tell("tool.faulty", name=name, message=str(error).removeprefix(label))) from error


def _flat(data: Any) -> tuple[str, dict[str, Any]]:
    """Return the kind, and the options inside its mapping and beside it, merged."""
    if not isinstance(data, Mapping):
        raise ValueError(tell("tool.no_mapping", data=data))
    kinds = [kind for kind in ("shell", "http") if kind in data]
    if len(kinds) != 1:
        given = "both" if kinds else ", ".join(map(repr, data)) or "nothing"
        raise ValueError(tell("tool.shell_or_http", given=given))
    kind = kinds[0]
    beside = {key: value for key, value in data.items() if key != kind}
    # A command often has only its arguments to show; a request, its address.
    short = {"argv": data["shell"]} if kind == "shell" else {"url": data["http"]}
    inside = data[kind] if isinstance(data[kind], Mapping) else short
    if twice := [key for key in beside if key in inside]:
        raise ValueError(tell("tool.given_twice", key=twice[0], kind=kind))
    return kind, {**inside, **beside}


def _require_sound(kind: str, declared: Mapping[str, Any]) -> None:
    own, needed = (_SHELL, "argv") if kind == "shell" else (_HTTP, "url")
    rules = {"properties": {**own, **_COMMON}, "required": [needed], "additionalProperties": False}
    if faults := Schema(rules, noun="key").faults(dict(declared)):
        raise ValueError(one_by_one(fault.said for fault in faults))


def _shell(name: str, declared: dict[str, Any]) -> Tool:
    env = {key: text_of(value) for key, value in declared.pop("env", {}).items()}
    return ShellTool(name, declared.pop("argv"), env=env, **declared)


def _http(name: str, declared: dict[str, Any], allow_hosts: Sequence[str] | None) -> Tool:
    if allow_hosts is not None:
        declared["allow_hosts"] = allow_hosts
    return HttpTool(name, declared.pop("method", "GET"), declared.pop("url"), **declared)


def kind_of(tool: Tool) -> str:
    """Return the tool's direct capability: `shell`, `http`, or neither."""
    return "shell" if isinstance(tool, ShellTool) else "http" if isinstance(tool, HttpTool) else ""
