"""Which cases test anybody, found out by trying them on a world of their own.

Rules of this file:
- A wrong argument counts only if the tool refuses it: one that it accepts is another wish, and no fault.
- A missing step counts only if a later call is refused for it and everything is still well once it is made up for.
"""

from __future__ import annotations

from typing import Any

from benchmarks.recovery.world.gold import Step, Task, World


def is_refused(answer: Any) -> bool:
    """How these tools say no: an error in what they answer."""
    return isinstance(answer, dict) and "error" in answer


def with_changes(task: Task) -> dict[str, Any]:
    """A task as JSON, each step with whether it changes the world."""
    world = _world(task)
    found = task.to_dict()
    for step, row in zip(task.steps, found["steps"], strict=True):
        before = world.state(step.home)
        world.call(step.home, step.tool, step.args)
        row["changes"] = world.state(step.home) != before
    return found


def refuses(task: Task, ident: str, args: dict[str, Any]) -> bool:
    """Whether the step's tool says no to these arguments, at its place in the plan, and does nothing."""
    world = _world(task)
    for step in task.steps:
        if step.id == ident:
            before = world.state(step.home)
            return _fails(world, step, args) and world.state(step.home) == before
        world.call(step.home, step.tool, step.args)
    raise KeyError(ident)


def noticed(task: Task, ident: str) -> bool:
    """Whether the plan without this step is refused somewhere, and ends well if the step is made up for there."""
    right, world = _world(task), _world(task)
    for step in task.steps:
        right.call(step.home, step.tool, step.args)
    missing: Step | None = next(step for step in task.steps if step.id == ident)
    for step in task.steps:
        if step.id == ident:
            continue
        if _fails(world, step, step.args):
            if missing is None or _fails(world, missing, missing.args) or _fails(world, step, step.args):
                return False
            missing = None
    return missing is None and world.state() == right.state()


def _world(task: Task) -> World:
    return World(task.classes, task.config, long_context=task.long_context)


def _fails(world: World, step: Step, args: dict[str, Any]) -> bool:
    try:
        return is_refused(world.call(step.home, step.tool, args))
    except Exception:  # noqa: BLE001  # a tool of somebody else's may raise anything
        return True
