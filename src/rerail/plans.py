"""Plans from files and texts: where a plan enters from outside."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.dialects import Unreadable, read_plan
from rerail.core.plan import Fault, ToolShape
from rerail.core.plan import Plan as CorePlan
from rerail.errors import PlanError
from rerail.i18n import tell

MAX_BYTES = 256 * 1024 * 1024
MOST_DEEP = 500  # values inside each other
MOST_ALIASED = 10  # times as many values as are written, through aliases
# A text that may hold more than meets the eye: an anchor, or a line that begins very far to the right.
_RISKY = re.compile(rf"(?:^|[\s,\[{{:])&\S|^[ ?-]{{{MOST_DEEP // 2}}}", re.MULTILINE)


class Plan(CorePlan, frozen=True, omit_defaults=True):
    """An objective and its steps, from a file, a dict, a YAML or JSON text, or built in Python."""

    @classmethod
    def load(cls, source: str | bytes | Path | Mapping[str, Any] | list[Any] | CorePlan) -> Plan:
        """Read a plan; only unreadable input is refused here, faults are raised when the plan meets its tools."""
        if isinstance(source, Plan):
            return source
        if isinstance(source, CorePlan):
            return cls(source.objective, source.steps, source.follow_up, source.faults, source.mcp)
        data: Any = source
        if isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
            data = read_data(Path(source))
        elif isinstance(source, str):
            data = parse_data(source, tell("plan.the_text"))
        elif isinstance(source, bytes):
            data = parse_data(source.decode("utf-8", "replace"), tell("plan.the_text"))
        try:
            plan = read_plan(data)
        except Unreadable as error:
            raise PlanError(tell("refuse.plan.no_plan", error=error), code="PLAN_UNREADABLE") from error
        return cls(plan.objective, plan.steps, plan.follow_up, plan.faults, plan.mcp)

    def check(self, tools: Mapping[str, ToolShape] | Iterable[Any] | None = None) -> list[Fault]:
        """Every fault of the plan at once; empty if it may run with these tools."""
        if tools is None or isinstance(tools, Mapping):
            return CorePlan.check(self, tools)
        from rerail.adapters.tools.functions import as_tool

        specs = [as_tool(tool).spec for tool in tools]
        return CorePlan.check(self, {spec.name: spec for spec in specs})

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(CorePlan(self.objective, self.steps, self.follow_up, mcp=self.mcp))
        return plain


def _is_path(text: str) -> bool:
    """Whether a text names a file rather than being a plan: one line that does not open a mapping or a list."""
    line = text.strip()
    return bool(line) and "\n" not in line and line[0] not in "{[" and len(line) < 4096 and ": " not in line


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PlanError(tell("refuse.plan.too_large", path=path, limit=MAX_BYTES), code="PLAN_UNREADABLE")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PlanError(tell("refuse.plan.no_file", path=str(path)), code="PLAN_UNREADABLE") from None
    except UnicodeDecodeError as error:
        raise PlanError(tell("refuse.plan.not_utf8", path=path, reason=error.reason), code="PLAN_UNREADABLE") from None
    except (OSError, ValueError) as error:
        raise PlanError(tell("refuse.plan.cannot_read", path=str(path), error=error), code="PLAN_UNREADABLE") from None


def read_data(path: Path) -> Any:
    """The data of a YAML or JSON file; `PlanError` says why it cannot be read."""
    return parse_data(_read(path), str(path))


def steps_in(data: Any, name: str = "") -> list[Any]:
    """Steps as they were written, to add to a run: a list, one step, or a plan's `steps`."""
    if isinstance(data, dict):
        data = data.get("steps", data.get("tasks", [data] if "tool" in data else None))
    if not isinstance(data, list):
        raise PlanError(
            tell("refuse.plan.holds_no_steps", source=name or tell("plan.the_text")), code="PLAN_UNREADABLE"
        )
    return data


def parse_data(text: str, name: str = "") -> Any:
    """The data of a YAML or JSON text; `PlanError` says why it cannot be read."""
    name = name or tell("plan.the_text")
    stripped = text.lstrip("\ufeff \t\r\n")
    try:
        encoded = stripped.encode()
    except UnicodeEncodeError as error:
        raise PlanError(tell("refuse.plan.not_utf8", path=name, reason=error.reason), code="PLAN_UNREADABLE") from None
    if not stripped:
        raise PlanError(tell("refuse.plan.empty", name=name), code="PLAN_UNREADABLE")
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
    """JSON lets the last of two equal keys win, in silence; whoever wrote both meant both."""
    import json

    def seen(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len(dict(pairs)):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise PlanError(tell("refuse.plan.key_twice", name=name, twice=twice), code="PLAN_UNREADABLE")

    with contextlib.suppress(RecursionError):  # too deep to look; what it holds is checked as a plan anyway
        json.loads(text, object_pairs_hook=seen, parse_int=str, parse_float=str)


def _refuse_bad_json(text: str, name: str, error: Exception) -> None:
    """Refuse what is JSON but for a value that none can hold (NaN, 1e400): YAML would take it for a text."""
    import json

    with contextlib.suppress(RecursionError, json.JSONDecodeError):
        json.loads(text, parse_int=str, parse_float=str)
        raise PlanError(tell("refuse.plan.no_yaml", name=name, detail=str(error)), code="PLAN_UNREADABLE") from None


def _parse_yaml(text: str, name: str) -> Any:
    import yaml

    try:
        if _RISKY.search(text) or text.count("[") + text.count("{") > MOST_DEEP:
            _refuse_bombs(text, name)
        return yaml.load(text, Loader=_loader())  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: a number of thousands of digits
        detail = " ".join(str(error).split()).replace('"<unicode string>"', name)
        raise PlanError(tell("refuse.plan.no_yaml", name=name, detail=detail), code="PLAN_UNREADABLE") from None
    except RecursionError:
        raise PlanError(tell("refuse.plan.too_deep", name=name), code="PLAN_UNREADABLE") from None


def _refuse_bombs(text: str, name: str) -> None:
    """Refuse what is too deep to be read, and few words that stand for very many: texts may come from anywhere.

    The loader builds nodes by recursion in C, which ends the process where Python would raise an error.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes: dict[str | None, int] = {}  # anchors → how many values they stand for
    open_: list[tuple[str | None, int]] = []
    written = total = 0
    for event in yaml.parse(text, Loader=base):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor, 0)  # one that is not known is an error, which the loader tells
            if any(anchor == event.anchor for anchor, _ in open_):
                raise PlanError(tell("refuse.plan.too_deep", name=name), code="PLAN_UNREADABLE")
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, total))
            if len(open_) > MOST_DEEP:
                raise PlanError(tell("refuse.plan.too_deep", name=name), code="PLAN_UNREADABLE")
        elif isinstance(event, yaml.CollectionEndEvent | yaml.ScalarEvent):
            anchor, before = open_.pop() if isinstance(event, yaml.CollectionEndEvent) else (event.anchor, total)
            written, total = written + 1, total + 1
            if anchor is not None:
                sizes[anchor] = total - before
        if total > MOST_ALIASED * (written + 1_000):
            raise PlanError(tell("refuse.plan.aliases", name=name), code="PLAN_UNREADABLE")


_made: list[Any] = []


def _loader() -> Any:
    """A safe YAML loader that refuses duplicate keys and reads 'no', 'on' and 012 as people mean them."""
    if _made:
        return _made[0]
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        own = {id(key_node) for key_node, _ in node.value}  # what a merge brings in may be overridden
        loader.flatten_mapping(node)
        found: dict[Any, Any] = {}
        twice: set[Any] = set()
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            try:
                if key in twice and id(key_node) in own:
                    raise yaml.constructor.ConstructorError(
                        None, None, tell("plan.key_twice", key=key), key_node.start_mark
                    )
            except TypeError:
                raise yaml.constructor.ConstructorError(
                    None, None, tell("plan.key_text"), key_node.start_mark
                ) from None
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
