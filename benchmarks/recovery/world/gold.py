"""Gold plans: what the tools' authors say has to be called, as graphs with data flow.

Runs in the environment of the world, which has `bfcl_eval` and no Rerail.

Rules of this file:
- Nothing is added to what the authors wrote but structure that their own results show: a value that an earlier call
  gave, and that is no word of the task itself, flows from there; calls on one stateful object keep their order.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import inspect
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES

DATA = Path(bfcl_eval.__file__).parent / "data"
VARIANTS = ("base", "long_context", "miss_func", "miss_param")
NO_STATE = ("parent", "_parent", "_api_description", "_last_modified", "_random")  # links, texts, clocks, chance
DULL = (None, True, False, "", 0, 1)  # values that are equal by chance


@dataclass
class Step:
    """One call of a plan."""

    id: str
    tool: str
    home: str  # the class of the object that it acts on
    args: dict[str, Any]
    needs: list[str] = field(default_factory=list)
    refs: dict[str, list[Any]] = field(default_factory=dict)  # argument → [step, key, key, …] that its value comes from


@dataclass
class Task:
    """A gold plan and the world it starts in."""

    id: str
    base: str  # the task of which this is a variant: variants are no independent samples
    classes: list[str]
    config: dict[str, Any]
    long_context: bool
    steps: list[Step]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class World:
    """The stateful objects of one case."""

    def __init__(self, classes: list[str], config: dict[str, Any], *, long_context: bool) -> None:
        self.objects: dict[str, Any] = {}
        for name in classes:
            made = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                made._load_scenario(copy.deepcopy(config.get(name, {})), long_context=long_context)
            self.objects[name] = made

    def call(self, home: str, tool: str, args: dict[str, Any]) -> Any:
        """Call a tool; what it prints is nobody's business, what it returns is made plain JSON."""
        with contextlib.redirect_stdout(io.StringIO()):
            return plain(getattr(self.objects[home], tool)(**args))

    def state(self, home: str | None = None) -> dict[str, Any]:
        """Everything that the objects remember."""
        homes = [home] if home is not None else sorted(self.objects)
        return {name: remembered(self.objects[name]) for name in homes}


def remembered(thing: Any, depth: int = 0) -> Any:
    """The state of an object as plain JSON."""
    if isinstance(thing, dict):
        return {str(key): remembered(value, depth + 1) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [remembered(value, depth + 1) for value in thing]
    if isinstance(thing, (set, frozenset)):
        return sorted(map(str, thing))
    if isinstance(thing, (str, int, float, bool)) or thing is None:
        return thing
    if depth > 60:
        return "…"
    if type(thing).__module__.startswith("bfcl_eval"):
        fields = {key: value for key, value in vars(thing).items() if key not in NO_STATE}
        if "_current_dir" in fields:  # a place in the tree: where, not the whole tree again
            fields["_current_dir"] = _path(thing._current_dir)
        return {key: remembered(value, depth + 1) for key, value in fields.items()}
    return str(thing)


def _path(directory: Any) -> str:
    names = []
    while directory is not None:
        names.append(directory.name)
        directory = getattr(directory, "parent", None)
    return "/".join(reversed(names))


def plain(value: Any) -> Any:
    """A result as JSON has it."""
    return json.loads(json.dumps(value, default=str))


def tasks(variants: tuple[str, ...] = VARIANTS) -> Iterator[Task]:
    """All gold plans, with the structure that running them shows."""
    for variant in variants:
        questions = {row["id"]: row for row in _rows(DATA / f"BFCL_v4_multi_turn_{variant}.json")}
        for answer in _rows(DATA / "possible_answer" / f"BFCL_v4_multi_turn_{variant}.json"):
            yield _task(questions[answer["id"]], answer["ground_truth"], variant)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _task(question: dict[str, Any], turns: list[list[str]], variant: str) -> Task:
    classes, config = question["involved_classes"], question["initial_config"]
    long_context = variant == "long_context"
    world = World(classes, config, long_context=long_context)
    homes = {
        name: home for home, made in world.objects.items() for name, _ in inspect.getmembers(made, inspect.ismethod)
    }
    steps: list[Step] = []
    results: dict[str, Any] = {}
    last: dict[str, str] = {}  # class → its last step
    words = json.dumps([question["question"], config])
    for number, call in enumerate(call for turn in turns for call in turn):
        step = _step(f"s{number}", call, homes, world)
        for name, value in step.args.items():
            source = _source(value, results) if _is_telling(value, words) else None
            if source is not None:
                step.refs[name] = source
        step.needs = sorted({last[step.home]} if step.home in last else set())
        step.needs = sorted({*step.needs, *(source[0] for source in step.refs.values())}, key=lambda one: int(one[1:]))
        last[step.home] = step.id
        results[step.id] = world.call(step.home, step.tool, step.args)
        steps.append(step)
    base = "task-" + question["id"].rsplit("_", 1)[1]
    return Task(question["id"], base, classes, config, long_context, steps)


def _step(ident: str, call: str, homes: dict[str, str], world: World) -> Step:
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call)
    assert isinstance(parsed.func, ast.Name)
    tool = parsed.func.id
    home = homes[tool]
    names = list(inspect.signature(getattr(world.objects[home], tool)).parameters)
    args = {name: plain(ast.literal_eval(value)) for name, value in zip(names, parsed.args, strict=False)}
    args |= {word.arg: plain(ast.literal_eval(word.value)) for word in parsed.keywords if word.arg}
    return Step(ident, tool, home, args)


def _is_telling(value: Any, words: str) -> bool:
    """Whether a value is one that nobody could know before the plan ran."""
    if isinstance(value, (dict, list)) or value in DULL:
        return False
    return len(str(value)) >= 3 and str(value) not in words


def _source(value: Any, results: dict[str, Any]) -> list[Any] | None:
    for step in reversed(results):
        found = _where(value, results[step])
        if found is not None:
            return [step, *found]
    return None


def _where(value: Any, result: Any) -> list[Any] | None:
    if type(result) is type(value) and result == value:
        return []
    items = result.items() if isinstance(result, dict) else enumerate(result) if isinstance(result, list) else ()
    for key, inner in items:
        found = _where(value, inner)
        if found is not None:
            return [key, *found]
    return None
