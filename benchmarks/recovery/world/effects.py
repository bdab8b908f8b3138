"""What each tool does to the world, found out by calling it twice: declared once, for all contenders.

A tool is `read` if no gold call of it ever changed anything; `repeatable` if calling it again, with the same arguments,
always succeeded, answered the same and changed nothing more; otherwise `once`.
"""

from __future__ import annotations

import copy
from typing import Any

from benchmarks.recovery.world.gold import Task, World, plain, remembered

ORDER = ("read", "repeatable", "once")


def effects(tasks: list[Task]) -> dict[str, str]:
    """Tool → effect, by the worst of its gold calls."""
    found: dict[str, str] = {}
    for task in tasks:
        world = World(task.classes, task.config, long_context=task.long_context)
        for step in task.steps:
            before = world.state(step.home)
            answer = world.call(step.home, step.tool, step.args)
            after = world.state(step.home)
            effect = "read" if after == before else "repeatable" if _again(world, step, answer, after) else "once"
            found[step.tool] = max(found.get(step.tool, "read"), effect, key=ORDER.index)
    return dict(sorted(found.items()))


def _again(world: World, step: Any, answer: Any, after: dict[str, Any]) -> bool:
    twin = copy.deepcopy(world.objects[step.home])
    try:
        again = plain(getattr(twin, step.tool)(**step.args))
    except Exception:  # noqa: BLE001  # a tool of somebody else's may raise anything; then it is not repeatable
        return False
    return again == answer and {step.home: remembered(twin)} == after
