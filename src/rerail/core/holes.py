"""Where a hole may reach an argument that does not accept null: what can be said before anything runs (SPEC H9)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from rerail.core.plan import Fault, Plan, Step, ToolShape, names_of
from rerail.core.refs import Mixed, Names, Ref, compile_args
from rerail.core.schema import OPEN
from rerail.i18n import tell

Path = tuple[str | int, ...]


def hole_warnings(plan: Plan, tools: Mapping[str, ToolShape]) -> list[Fault]:
    """Arguments that are made from an optional step's output and could not do without it; the plan may run anyway."""
    found: list[Fault] = []
    part: Plan | None = plan
    while part is not None:
        names, optional = names_of(part.steps), {step.id for step in part.steps if _may_be_skipped(step)}
        for step in part.steps if optional else ():
            if step.tool in tools and step.args:
                found += _of_step(step, tools[step.tool], names, optional)
        part = part.follow_up
    return found


def _may_be_skipped(step: Step) -> bool:
    """Whether it can end without an output; a fallback value is always there."""
    return not step.critical and (step.fallback is None or step.fallback.tool is not None)


def _of_step(step: Step, tool: ToolShape, names: Names, optional: set[str]) -> Iterator[Fault]:
    for argument, other in not_accepted(step, tool, names, optional):
        message = tell("warn.plan.hole", argument=argument, other=other, tool=tool.name)
        yield Fault("HOLE_POSSIBLE", message, step.id)


def not_accepted(step: Step, tool: ToolShape, names: Names, missing: Container[str]) -> Iterator[tuple[str, str]]:
    """The arguments that could not do without the outputs of these steps, each with the one that it is made from."""
    try:
        template = compile_args(step.args, names)
    except ValueError:
        return  # a bad reference is a fault of its own
    if not any(ref.step in missing for ref in template.refs):
        return
    places: dict[Path, str] = {}
    args = _without(template.value, missing, places, ())
    for fault in tool.schema.faults(args):
        if fault.path in places:
            yield ".".join(map(str, fault.path)), places[fault.path]


def _without(value: Any, optional: Container[str], places: dict[Path, str], path: Path) -> Any:
    """The arguments as they are when every one of these steps was skipped; other outputs are not known yet."""
    if isinstance(value, Ref | Mixed):
        refs = [value] if isinstance(value, Ref) else [part for part in value.parts if isinstance(part, Ref)]
        missing = next((ref.step for ref in refs if ref.step in optional), None)
        if missing is None:
            return OPEN
        places[path] = missing
        return None
    if isinstance(value, dict):
        return {key: _without(item, optional, places, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, optional, places, (*path, index)) for index, item in enumerate(value)]
    return value
