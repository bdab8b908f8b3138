"""Plans from files and texts: the entry of plans from outside."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rerail.errors import PlanError
from rerail.i18n import Told, tell
from rerail.plan.model import Plan
from rerail.plan.reader import PlanUnreadable, read_plan
from rerail.plan.step import Fault
from rerail.plan.tool_spec import ToolSpec

MAX_BYTES = 256 * 1024 * 1024
_ODD_JSON = re.compile(r"\t|\\u[dD][89a-fA-F]..")  # tabs and halves of a character, which YAML refuses
MOST_LOCATED = 100  # faults of a plan that get their line
MOST_SEARCHED = 8 * 1024 * 1024  # characters of a file that is searched for the lines of its faults
MOST_DEEP = 500  # levels of nesting
MOST_ALIASED = 10  # times as many values as are written, through aliases
# A text that may be far larger than it looks: an anchor, or a line that begins very far to the right.
_RISKY = re.compile(rf"(?:^|[\s,\[{{:])&\S|^[ ?-]{{{MOST_DEEP // 2}}}", re.MULTILINE)


def _unreadable(message: str) -> PlanError:
    return PlanError(message, code="PLAN_UNREADABLE")


def load_plan(source: str | bytes | Path | Mapping[str, Any] | list[Any] | Plan) -> Plan:
    """Read a plan; only unreadable input is refused here, faults are raised when the plan meets its tools."""
    if isinstance(source, Plan):
        return source
    data, file = source, ""
    if isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
        data, file = read_data(Path(source)), str(source)
    elif isinstance(source, str):
        data = parse_data(source, tell("plan.the_text"))
    elif isinstance(source, bytes):
        data = parse_data(source.decode("utf-8", "replace"), tell("plan.the_text"))
    try:
        return msgspec.structs.replace(read_plan(data), file=file)
    except PlanUnreadable as error:
        raise _unreadable(tell("refuse.plan.no_plan", error=error)) from error


def located(file: str, faults: list[Fault]) -> list[Fault]:
    """Return the faults with their lines in a plan's file; as they are if it cannot be searched."""
    import yaml

    with contextlib.suppress(PlanError, yaml.YAMLError, RecursionError, ValueError):
        text = _ODD_JSON.sub(" ", _read(Path(file)))
        if len(text) <= MOST_SEARCHED:
            _refuse_bombs(text, file)
            root = yaml.compose(text, Loader=_loader())
            found = [msgspec.structs.replace(one, place=_place(file, root, one)) for one in faults[:MOST_LOCATED]]
            return found + faults[MOST_LOCATED:]
    return faults


def _place(file: str, root: Any, fault: Fault) -> str:
    """Return the line of a fault's key, else of its step, else only the file."""
    told: Any = fault.message
    while isinstance(told, Told) and told.key == "refuse.plan.in_follow_up":
        root, told = _member(root, "follow_up")[1], told.values["message"]
    steps = _member(root, "steps", "tasks")[1] if root is not None and root.id == "mapping" else root
    found = []  # a key and a value for each step of this id
    for index, item in enumerate(steps.value if steps is not None and steps.id != "scalar" else ()):
        key, value = item if steps.id == "mapping" else (item, item)
        own = key if key is not value else _member(value, "id")[1]
        if fault.step == (str(own.value) if own is not None else str(index)):
            found.append((key, value))
    node, inside = found[min(fault.nth, len(found) - 1)] if found else (None, None)
    words = told.values if isinstance(told, Told) else {}
    keys = [str(words[word]) for word in ("key", "name") if word in words]
    node = _member(inside if fault.step else root, *keys)[0] or node
    return f"{file}:{node.start_mark.line + 1}" if node is not None else file


def _member(node: Any, *names: str) -> tuple[Any, Any]:
    """Return the key and the value of the first of these names in a YAML mapping."""
    pairs = node.value if node is not None and node.id == "mapping" else ()
    return next(((key, value) for key, value in pairs if key.value in names), (None, None))


def specs_of(tools: Iterable[Any]) -> dict[str, ToolSpec]:
    """Return the specs of functions and tool objects by name."""
    from rerail.adapters.tools.functions import as_tool

    specs = [as_tool(tool).spec for tool in tools]
    return {spec.name: spec for spec in specs}


def _is_path(text: str) -> bool:
    """True if a text is a file name, not a plan: one line that does not open a mapping or a list."""
    line = text.strip()
    return bool(line) and "\n" not in line and line[0] not in "{[" and len(line) < 4096 and ": " not in line


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _unreadable(tell("refuse.plan.too_large", path=path, limit=MAX_BYTES))
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _unreadable(tell("refuse.plan.no_file", path=str(path))) from None
    except UnicodeDecodeError as error:
        raise _unreadable(tell("refuse.plan.not_utf8", path=path, reason=error.reason)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(tell("refuse.plan.cannot_read", path=str(path), error=error)) from None


def read_data(path: Path) -> Any:
    """Return the data of a YAML or JSON file; `PlanError` says why it cannot be read."""
    return parse_data(_read(path), str(path))


def steps_in(data: Any, name: str = "") -> list[Any]:
    """Return steps to add to a run, as written: a list, one step, or a plan's `steps`."""
    if isinstance(data, dict):
        data = data.get("steps", data.get("tasks", [data] if "tool" in data else None))
    if not isinstance(data, list):
        raise _unreadable(tell("refuse.plan.holds_no_steps", source=name or tell("plan.the_text")))
    return data


def parse_data(text: str, name: str = "") -> Any:
    """Return the data of a YAML or JSON text; `PlanError` says why it cannot be read."""
    name = name or tell("plan.the_text")
    stripped = text.lstrip("\ufeff \t\r\n")
    try:
        encoded = stripped.encode()
    except UnicodeEncodeError as error:
        raise _unreadable(tell("refuse.plan.not_utf8", path=name, reason=error.reason)) from None
    if not stripped:
        raise _unreadable(tell("refuse.plan.empty", name=name))
    if stripped[0] in "{[":
        try:
            data = msgspec.json.decode(encoded)
        except (msgspec.DecodeError, RecursionError) as error:
            _refuse_bad_json(stripped, name, error)  # else it may be YAML, which can look like JSON: {a: b}
        else:
            _refuse_doubled_keys(stripped, name)
            return data
    return _parse_yaml(text, name)


def _refuse_doubled_keys(text: str, name: str) -> None:
    """Refuse duplicate keys: JSON silently keeps the last of two values, but the author meant both."""
    import json

    def seen(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len(dict(pairs)):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise _unreadable(tell("refuse.plan.key_twice", name=name, twice=twice))

    with contextlib.suppress(RecursionError):  # too deep to walk; the plan check reads its contents anyway
        json.loads(text, object_pairs_hook=seen, parse_int=str, parse_float=str)


def _refuse_bad_json(text: str, name: str, error: Exception) -> None:
    """Refuse a number outside of JSON (NaN, 1e400) in a JSON text: YAML would read it as a string."""
    import json

    with contextlib.suppress(RecursionError, json.JSONDecodeError):
        json.loads(text, parse_int=str, parse_float=str)
        raise _unreadable(tell("refuse.plan.no_yaml", name=name, detail=str(error))) from None


def _parse_yaml(text: str, name: str) -> Any:
    import yaml

    try:
        if _RISKY.search(text) or text.count("[") + text.count("{") > MOST_DEEP:
            _refuse_bombs(text, name)
        return yaml.load(text, Loader=_loader())  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: a number of thousands of digits
        detail = " ".join(str(error).split()).replace('"<unicode string>"', name)
        raise _unreadable(tell("refuse.plan.no_yaml", name=name, detail=detail)) from None
    except RecursionError:
        raise _unreadable(tell("refuse.plan.too_deep", name=name)) from None


def _refuse_bombs(text: str, name: str) -> None:
    """Refuse texts that are too deep, or expand to very many values: plans come from untrusted sources.

    The loader builds nodes by recursion in C, which ends the process where Python would raise an error.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes: dict[str | None, int] = {}  # anchors → the number of values that they stand for
    open_: list[tuple[str | None, int]] = []
    written = total = 0
    for event in yaml.parse(text, Loader=base):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor, 0)  # an unknown anchor is an error, reported by the loader
            if any(anchor == event.anchor for anchor, _ in open_):
                raise _unreadable(tell("refuse.plan.too_deep", name=name))
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, total))
            if len(open_) > MOST_DEEP:
                raise _unreadable(tell("refuse.plan.too_deep", name=name))
        elif isinstance(event, yaml.CollectionEndEvent | yaml.ScalarEvent):
            anchor, before = open_.pop() if isinstance(event, yaml.CollectionEndEvent) else (event.anchor, total)
            written, total = written + 1, total + 1
            if anchor is not None:
                sizes[anchor] = total - before
        if total > MOST_ALIASED * (written + 1_000):
            raise _unreadable(tell("refuse.plan.aliases", name=name))


_made: list[Any] = []


def _loader() -> Any:
    """Return a safe YAML loader that refuses duplicate keys, and reads 'no', 'on' and 012 as plain values."""
    if _made:
        return _made[0]
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        own = {id(key_node) for key_node, _ in node.value}  # keys from a merge may be overridden
        loader.flatten_mapping(node)
        found: dict[Any, Any] = {}
        twice: set[Any] = set()
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            try:
                if key in twice and id(key_node) in own:
                    why = tell("plan.key_twice", key=key)
                    raise yaml.constructor.ConstructorError(None, None, why, key_node.start_mark)
            except TypeError:
                told = tell("plan.key_text")
                raise yaml.constructor.ConstructorError(None, None, told, key_node.start_mark) from None
            if id(key_node) in own:
                twice.add(key)
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    # YAML 1.1 reads yes/no/on/off as booleans, 012 as octal, 1:30 as base 60 and 2024-01-01 as a date.
    resolvers = {}
    for first, rules in base.yaml_implicit_resolvers.items():
        resolvers[first] = [
            (tag, regexp) for tag, regexp in rules if tag.rpartition(":")[2] not in ("bool", "int", "timestamp")
        ]
    Loader.yaml_implicit_resolvers = resolvers
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
    _made.append(Loader)
    return Loader
