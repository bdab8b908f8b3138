"""Plans: what is to be done, checked before anything runs.

Rules of this file:
- A plan is a value. It may be faulty: reading finds what it can, `check` lists every fault at once (SPEC P5).
- Dependencies are held by id, never by position (P6). Topology work is O(V+E) and never recurses.
- What people and models write (dialects, YAML, JSON) is read in ``rerail.core.dialects``; here it is already steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from rerail.core.refs import Names, Ref, Template, UnknownReference, compile_args, parse, scan, strings
from rerail.core.schema import OPEN, Schema, nearest
from rerail.core.values import NotJson, pack, plain_text
from rerail.i18n import retold, tell


class When(StrEnum):
    """Which end of a needed step counts."""

    SUCCESS = "success"
    DONE = "done"
    FAILURE = "failure"


class Effect(StrEnum):
    """What calling a tool twice does."""

    READ = "read"
    REPEATABLE = "repeatable"
    ONCE = "once"


class Need(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A step that must end, and how, before another may start."""

    step: str
    when: When = When.SUCCESS


class Fallback(msgspec.Struct, frozen=True):
    """What stands in when nothing else helped: a value, or one call of another tool."""

    value: Any = None
    tool: str | None = None
    args: dict[str, Any] = {}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an output must meet for the step to count as succeeded (V6)."""

    schema: dict[str, Any] | bool | None = None
    non_empty: bool = False
    keys: tuple[str, ...] = ()


class Verify(msgspec.Struct, frozen=True, omit_defaults=True):
    """A read-only tool call that must show the effect (V8)."""

    tool: str
    args: dict[str, Any] = {}
    expect: Any = None


class Produced(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a step leaves in the run's workspace, and what makes it valid (T1)."""

    path: str
    format: str = ""  # json, yaml or text; left out, the name tells
    schema: dict[str, Any] | bool | None = None
    keys: tuple[str, ...] = ()
    non_empty: bool = False
    check: str = ""  # a tool that looks at it: called with its path, it raises or says false if it is not valid

    @property
    def kind(self) -> str:
        """How it is read when it is looked at."""
        if self.format:
            return self.format
        name = self.path.lower()
        if name.endswith(".json") or not name.endswith((".yaml", ".yml")):
            data = name.endswith(".json") or self.schema is not None or bool(self.keys)
            return "json" if data else "text"
        return "yaml"


FORMATS = ("json", "yaml", "text")
RESERVED = frozenset({"task.json", "worker.log", ".rerail"})  # what a workspace holds of our own


def path_fault(path: str) -> str:
    """Why a path cannot be a file of a workspace; empty if it can. What links make of it, only the disk can tell."""
    parts = path.replace("\\", "/").split("/")
    if not path or not path.isprintable() or parts[-1] in ("", ".", ".."):
        return "refuse.plan.file_no_name"
    if parts[0] == "" or ".." in parts or ":" in parts[0]:
        return "refuse.plan.file_outside"
    names = [part for part in parts if part != "."]
    return "refuse.plan.file_reserved" if names[0].lower() in RESERVED else ""


class Trust(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which outputs look like errors, where the usual signs are too many or too few (X9)."""

    ignore: tuple[str, ...] = ()  # members that mean nothing here; "text": texts are never errors
    suspect: tuple[str | dict[str, Any], ...] = ()  # more signs: part of an object, words of a text, a member's name


class Step(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One tool call: id, tool, args, needs, and how much it matters."""

    id: str
    tool: str
    args: dict[str, Any] = {}
    needs: tuple[Need, ...] = ()
    title: str = ""
    stage: str = ""
    critical: bool = True
    timeout: float | None = None
    retries: int | None = None
    effect: Effect | None = None
    alternatives: tuple[str, ...] = ()
    fallback: Fallback | None = None
    produces: tuple[Any, ...] = ()  # of `Produced`; older histories hold names and mappings
    confirm: bool | str = False
    check: Check | None = None
    verify: Verify | None = None
    trust_output: bool | Trust | None = None
    priority: int = 0
    resources: dict[str, float] = {}
    on_doubt: str = ""  # wait or fail, if its effect is in doubt (E3)
    settle: float | str | None = None  # seconds until its effect can be read by a look; "never": not to rely on (V8)
    idempotent_for: float | None = None  # seconds for which the service remembers the step's key (E2)

    def __post_init__(self) -> None:
        # People write needs=["a", {"step": "b", "when": "done"}] and fallback={"value": 1}; inside there are values.
        needs: Any = self.needs
        if not isinstance(needs, tuple) or not all(isinstance(need, Need) for need in needs):
            wanted = [needs] if isinstance(needs, str | dict | Need) else needs
            msgspec.structs.force_setattr(self, "needs", tuple(as_need(need) for need in wanted))
        for name, kind in _KINDS:
            value: Any = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                msgspec.structs.force_setattr(self, name, msgspec.convert(value, kind))
        produces: Any = self.produces
        if not isinstance(produces, tuple) or not all(isinstance(item, Produced) for item in produces):
            msgspec.structs.force_setattr(self, "produces", tuple(as_produced(item) for item in produces))
        trust: Any = self.trust_output
        if isinstance(trust, Mapping):
            msgspec.structs.force_setattr(self, "trust_output", msgspec.convert(trust, Trust))
        alternatives: Any = self.alternatives
        if not isinstance(alternatives, tuple):
            given = (alternatives,) if isinstance(alternatives, str) else tuple(alternatives)
            msgspec.structs.force_setattr(self, "alternatives", given)


_KINDS: tuple[tuple[str, Any], ...] = (("fallback", Fallback), ("check", Check), ("verify", Verify), ("effect", Effect))


def as_produced(value: Any) -> Produced:
    """A file as people write it in Python: its path, a mapping, or a `Produced`."""
    if isinstance(value, Produced):
        return value
    if isinstance(value, str):
        return Produced(value)
    return msgspec.convert({"path" if key == "file" else key: item for key, item in value.items()}, Produced)


WHEN_WORDS = {
    "success": When.SUCCESS,
    "all": When.SUCCESS,
    "done": When.DONE,
    "any": When.DONE,
    "failure": When.FAILURE,
}


def as_need(value: Any) -> Need:
    """A need as people write it in Python: an id, a mapping, or a Need."""
    if isinstance(value, Need):
        return value
    if isinstance(value, Mapping):
        return Need(str(value["step"]), WHEN_WORDS[str(value.get("when", "success"))])
    return Need(str(value))


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong with a plan, in a sentence that says what to do."""

    code: str
    message: str
    step: str = ""

    def __str__(self) -> str:
        return str(self.told)

    def to_dict(self) -> dict[str, Any]:
        """The fault as plain data."""
        return {"code": self.code, "step": self.step or None, "message": str(self.message)}

    @property
    def told(self) -> str:
        """The fault with the step it is about, as a sentence that can be said in another language."""
        step = self.step if len(self.step) <= 80 else self.step[:79] + "…"
        return tell("refuse.plan.of_step", step=step, message=self.message) if step else self.message

    def said(self, lang: str) -> str:
        """The fault in a language."""
        return retold(self.told, lang)


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """An objective and its steps."""

    objective: str = ""
    steps: tuple[Step, ...] = ()
    follow_up: Plan | None = None
    faults: tuple[Fault, ...] = ()  # what reading found wrong; raised together with all others by `check`
    mcp: dict[str, Any] = {}  # MCP servers; a fault, since the settings name servers. Histories of old runs hold it

    def __post_init__(self) -> None:
        steps: Any = self.steps
        if not isinstance(steps, tuple):
            msgspec.structs.force_setattr(self, "steps", tuple(steps))

    def check(self, tools: Mapping[str, ToolShape] | None = None) -> list[Fault]:
        """Every fault of the plan at once; empty if it may run with these tools."""
        return check(self, tools)


class ToolShape(Protocol):
    """What the plan's check has to know about a tool."""

    @property
    def name(self) -> str: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def description(self) -> str: ...
    @property
    def effect(self) -> Effect | None: ...
    @property
    def keyed(self) -> bool: ...
    @property
    def alternatives(self) -> tuple[str, ...]: ...
    @property
    def declared(self) -> bool: ...
    @property
    def must_declare(self) -> bool: ...


# -- Needs, implied ones included ---------------------------------------------------------------------------------


def names_of(steps: Iterable[Step]) -> Names:
    """The ids that references may name."""
    ids = {step.id: None for step in steps}
    return Names(ids, max(map(len, ids), default=0))


def templates_of(step: Step, names: Names) -> tuple[Template, Template | None, Template | None]:
    """The step's own arguments, its fallback's and its verification's, with their references found."""
    fallback = compile_args(step.fallback.args, names) if step.fallback and step.fallback.tool else None
    verify = compile_args(step.verify.args, names) if step.verify else None
    return compile_args(step.args, names), fallback, verify


def full_needs(step: Step, names: Names) -> tuple[Need, ...]:
    """The step's needs with those its references imply; an explicit ``when`` beats the implied one (P4)."""
    if not (step.args or step.fallback or step.verify) or not any("${" in text for text in _texts(step)):
        return step.needs
    given = {need.step for need in step.needs}
    implied = dict.fromkeys(ref.step for template in templates_of(step, names) if template for ref in template.refs)
    return step.needs + tuple(Need(other) for other in implied if other not in given and other != step.id)


def _texts(step: Step) -> Iterator[str]:
    if step.args:
        yield from strings(step.args)
    if step.fallback and step.fallback.tool:
        yield from strings(step.fallback.args)
    if step.verify:
        yield from strings(step.verify.args)


# -- The check ----------------------------------------------------------------------------------------------------


def check(plan: Plan, tools: Mapping[str, ToolShape] | None = None) -> list[Fault]:
    """Every fault of the plan at once (P5); without tools, only what can be said without them."""
    faults = list(plan.faults)
    if plan.objective != plain_text(plan.objective, len(plan.objective)):
        faults.append(Fault("BAD_VALUE", tell("refuse.plan.objective_no_text", kind=ascii(plan.objective)[:40])))
    if not plan.steps and not faults:
        faults.append(Fault("NO_STEPS", tell("refuse.plan.no_steps")))
    if plan.mcp:
        faults.append(Fault("MCP_NOT_ALLOWED", tell("refuse.plan.mcp", names=", ".join(plan.mcp))))
    said = {(fault.code, fault.step, str(fault.message)) for fault in plan.faults}
    faults += [f for f in check_steps(plan.steps, tools) if (f.code, f.step, str(f.message)) not in said]
    if plan.follow_up is not None:
        # What follows works in the same folder: a file of both would be damaged for the one by the other.
        after = [*check(plan.follow_up, tools), *_check_places(plan.follow_up.steps, _made_by(plan.steps))]
        faults += [Fault(f.code, tell("refuse.plan.in_follow_up", message=f.message), f.step) for f in after]
    return faults


def check_steps(steps: Sequence[Step], tools: Mapping[str, ToolShape] | None) -> list[Fault]:
    """Every fault of these steps taken together as one plan."""
    names = names_of(steps)
    counts = Counter(step.id for step in steps)
    faults = [
        Fault("DUPLICATE_ID", tell("refuse.plan.duplicate_id", count=count), step_id)
        for step_id, count in counts.items()
        if count > 1
    ]
    edges: dict[str, tuple[str, ...]] = {}
    for step in steps:
        found, needs = _check_step(step, names)
        odd = _check_written(step)
        found += odd
        try:
            found += _check_tools(step, names, tools) if tools is not None else []
        except RecursionError:
            found += [] if odd else [Fault("BAD_VALUE", tell("refuse.plan.args_too_deep"), step.id)]
        faults += found
        edges[step.id] = needs
    faults += _check_files(steps, tools)
    faults += [Fault("CYCLE", tell("refuse.plan.cycle", path=" → ".join(path)), path[0]) for path in cycles(edges)]
    return faults


def check_change(olds: Sequence[Step], steps: Sequence[Step], tools: Mapping[str, ToolShape] | None) -> list[Fault]:
    """The faults of a plan that was changed, but for those that it had before in steps that stay as they were.

    A run may have been accepted when its tools were others, or by an older version that knew fewer faults (E5); that is
    no reason to refuse a change which has nothing to do with it.
    """
    faults = check_steps(steps, tools)
    if not faults:
        return faults
    before = {step.id: step for step in olds}
    stay = {step.id for step in steps if before.get(step.id) == step}
    known = {(fault.code, fault.step, str(fault.message)) for fault in check_steps(olds, tools)}
    return [f for f in faults if f.step not in stay or (f.code, f.step, str(f.message)) not in known]


def _made_by(steps: Sequence[Step]) -> dict[str, str]:
    """The files that these steps produce, however they are spelled → the step that does."""
    return {_spelled(file.path): step.id for step in steps for file in step.produces}


def _spelled(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _check_places(steps: Sequence[Step], before: Mapping[str, str]) -> list[Fault]:
    """Faults of where files are to be: none twice, and none where another one needs a folder."""
    faults: list[Fault] = []
    makers = dict(before)
    for step in steps:
        for file in step.produces:
            path = _spelled(file.path)
            if path in makers:
                told = tell("refuse.plan.file_twice", path=file.path, step=makers[path])
                faults.append(Fault("BAD_FILE", told, step.id))
            else:
                makers[path] = step.id
    folders = {
        "/".join(parts[:n]): path for path in makers for parts in [path.split("/")] for n in range(1, len(parts))
    }
    for path in makers.keys() & folders.keys():
        told = tell("refuse.plan.file_is_folder", path=path, inside=folders[path])
        faults.append(Fault("BAD_FILE", told, makers[path]))
    return faults


def _check_files(steps: Sequence[Step], tools: Mapping[str, ToolShape] | None) -> list[Fault]:
    """Faults of the files that the steps produce: each stays inside, and is one step's alone (T1)."""
    faults = _check_places(steps, {})
    for step in steps:
        file: Produced
        for file in step.produces:
            problem = path_fault(file.path)
            if problem:
                faults.append(Fault("BAD_FILE", tell(problem, path=file.path), step.id))
            if file.format and file.format not in FORMATS:
                known = ", ".join(FORMATS)
                faults.append(
                    Fault("BAD_FILE", tell("refuse.plan.file_format", format=file.format, known=known), step.id)
                )
            if tools is not None and file.check and file.check not in tools:
                unknown = _unknown(file.check, tools, "tool")
                other_tool = tell("refuse.plan.unknown_other_tool", label="produces.check", unknown=unknown)
                faults.append(Fault("UNKNOWN_TOOL", other_tool, step.id))
    return faults


def _refuse_odd(value: Any) -> None:
    """Only what JSON knows: an encoder would turn bytes and sets into something else, and nobody would notice."""
    stack, seen = [value], set[int]()
    while stack:
        item = stack.pop()
        if item is None or isinstance(item, str | int | float) or id(item) in seen:
            continue  # what contains itself is found to be too deep by whoever writes it
        seen.add(id(item))
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
        else:
            raise NotJson(tell("reason.no_value", name=type(item).__name__))


def _check_written(step: Step) -> list[Fault]:
    """Why no history can hold a step: its arguments are no JSON, or a text of it has halves of characters."""
    try:
        if step.args:
            _refuse_odd(step.args)
            pack(step.args)
        msgspec.json.encode(step, enc_hook=repr)
    except NotJson as error:
        return [Fault("BAD_VALUE", tell("refuse.plan.args_not_json", error=error), step.id)]
    except RecursionError:
        return [Fault("BAD_VALUE", tell("refuse.plan.args_too_deep"), step.id)]
    except (ValueError, TypeError, OverflowError) as error:
        return [Fault("BAD_VALUE", tell("refuse.plan.step_not_json", error=error), step.id)]
    return []


def _check_step(step: Step, names: Names) -> tuple[list[Fault], tuple[str, ...]]:
    """Faults of one step's needs and references, and the ids it really depends on."""
    faults: list[Fault] = []
    needs: dict[str, None] = {}
    for need in step.needs:
        if need.step == step.id:
            faults.append(Fault("SELF_NEED", tell("refuse.plan.self_need"), step.id))
        elif need.step not in names.ids:
            faults.append(
                Fault(
                    "UNKNOWN_NEED",
                    tell("refuse.plan.unknown_need", unknown=_unknown(need.step, names.ids, "step")),
                    step.id,
                )
            )
        else:
            needs[need.step] = None
    for text in _texts(step):
        if "${" in text:
            faults += _check_reference(text, step, names, needs)
    return faults, tuple(needs)


def _check_reference(text: str, step: Step, names: Names, needs: dict[str, None]) -> list[Fault]:
    parts, bad = scan(text, names)
    faults = []
    for error in bad:
        if isinstance(error, UnknownReference):
            told = tell("refuse.plan.unknown_reference", error=error, hint=_unknown(error.name, names.ids, "step"))
            faults.append(Fault("UNKNOWN_REFERENCE", told, step.id))
        else:
            faults.append(Fault("BAD_REFERENCE", tell("refuse.plan.no_reference", error=error), step.id))
    for ref in dict.fromkeys(part for part in parts if isinstance(part, Ref)):
        if ref.step == step.id:
            faults.append(Fault("SELF_NEED", tell("refuse.plan.self_reference", ref=ref), step.id))
        else:
            needs[ref.step] = None
    return faults


def _check_tools(step: Step, names: Names, tools: Mapping[str, ToolShape]) -> list[Fault]:
    faults: list[Fault] = []
    if not step.tool:
        faults.append(Fault("BAD_VALUE", tell("refuse.plan.tool_missing"), step.id))
    elif step.tool not in tools:
        faults.append(
            Fault("UNKNOWN_TOOL", tell("refuse.plan.unknown_tool", unknown=_unknown(step.tool, tools, "tool")), step.id)
        )
    else:
        faults += _check_args(step, step.args, tools[step.tool], names)
        if step.idempotent_for is not None and not tools[step.tool].keyed:
            faults.append(Fault("BAD_VALUE", tell("refuse.plan.no_key", name=step.tool), step.id))
    for other in step.alternatives:
        if other not in tools:
            faults.append(
                Fault(
                    "UNKNOWN_ALTERNATIVE",
                    tell("refuse.plan.unknown_alternative", unknown=_unknown(other, tools, "tool")),
                    step.id,
                )
            )
    for label, call in (("fallback", step.fallback), ("verify", step.verify)):
        if call is not None and call.tool is not None:
            if call.tool not in tools:
                faults.append(
                    Fault(
                        "UNKNOWN_TOOL",
                        tell("refuse.plan.unknown_other_tool", label=label, unknown=_unknown(call.tool, tools, "tool")),
                        step.id,
                    )
                )
            else:
                faults += _check_args(step, call.args, tools[call.tool], names)
                if label == "verify" and tools[call.tool].effect is Effect.ONCE:  # it is only to look (V8)
                    told = tell("refuse.plan.verify_acts", name=call.tool)
                    faults.append(Fault("BAD_VALUE", told, step.id))
    for name in undeclared(step, tools):
        if tools[name].must_declare:
            faults.append(Fault("EFFECT_UNDECLARED", tell("refuse.plan.effect_undeclared", name=name), step.id))
    return faults


def undeclared(step: Step, tools: Mapping[str, ToolShape]) -> list[str]:
    """The tools that a step may call and whose effect is assumed; the step's own `effect` declares it (E3).

    A `verify` only looks, whatever its tool declares.
    """
    if step.effect is not None:
        return []
    own = tools.get(step.tool)
    if own is not None and own.declared and not (own.alternatives or step.alternatives or step.fallback):
        return []  # as most are
    names = [step.tool, *step.alternatives, *(own.alternatives if own is not None else ())]
    if step.fallback is not None and step.fallback.tool is not None:
        names.append(step.fallback.tool)
    return [name for name in dict.fromkeys(names) if name in tools and not tools[name].declared]


def _check_args(step: Step, args: Mapping[str, Any], tool: ToolShape, names: Names) -> list[Fault]:
    if not args and tool.schema.accepts_nothing:
        return []
    return args_faults(step, _opened(args, names), tool)


def args_faults(step: Step, args: Any, tool: ToolShape) -> list[Fault]:
    """What a tool's schema has against arguments that refer to nothing any more."""
    return [
        Fault(
            "BAD_ARGS",
            tell("refuse.plan.bad_args", where=_where(fault.path), name=tool.name, message=fault.message),
            step.id,
        )
        for fault in tool.schema.faults(args)
    ]


def _opened(value: Any, names: Names) -> Any:
    """The arguments with every reference replaced by a value that is not known yet."""
    if isinstance(value, str):
        if "${" not in value:
            return value
        try:
            found = parse(value, names)
        except ValueError:
            return OPEN  # the bad reference itself is reported elsewhere
        return found if isinstance(found, str) else OPEN
    if type(value) is dict or isinstance(value, Mapping):
        return {key: _opened(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_opened(item, names) for item in value]
    return value if value is None or isinstance(value, int | float) else OPEN  # what is no JSON is told elsewhere


def _where(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


UNKNOWN = {
    ("step", False): "refuse.plan.no_such_step", ("step", True): "refuse.plan.no_such_step_near",
    ("tool", False): "refuse.plan.no_such_tool", ("tool", True): "refuse.plan.no_such_tool_near",
}  # fmt: skip


def _unknown(name: str, known: Iterable[str], noun: str) -> str:
    shown = name if len(name) <= 80 else name[:77] + "…"
    near = nearest(name, known)
    key = UNKNOWN[noun, near is not None]
    return tell(key, name=shown, near=near)


# -- Topology -----------------------------------------------------------------------------------------------------


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """One path per group of steps that need each other, in the order the work would flow; O(V+E).

    ``edges`` maps a step to what it needs; a path ``[a, b, c, a]`` reads "b needs a, c needs b, a needs c".
    """
    if _in_order(edges):
        return []
    return [_circle(group, edges) for group in _groups(edges)]


def _in_order(edges: Mapping[str, Iterable[str]]) -> bool:
    """Whether every step comes after what it needs, as people mostly write plans: then there is no circle."""
    seen: set[str] = set()
    for step, needs in edges.items():
        for need in needs:
            if need not in seen:
                return False
        seen.add(step)
    return True


def _groups(edges: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The groups of more than one step in which each needs each other, near or far (Kosaraju, without recursion)."""
    dependents: dict[str, list[str]] = {step: [] for step in edges}
    for step, needs in edges.items():
        for need in needs:
            if need in edges and need != step:
                dependents[need].append(step)
    assigned: set[str] = set()
    found: list[set[str]] = []
    for start in reversed(_finish_order(edges)):
        if start in assigned:
            continue
        group, stack = {start}, [start]
        assigned.add(start)
        while stack:
            for dependent in dependents[stack.pop()]:
                if dependent not in assigned:
                    assigned.add(dependent)
                    group.add(dependent)
                    stack.append(dependent)
        if len(group) > 1:
            found.append(group)
    return found


def _finish_order(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The steps in the order in which a depth-first walk along their needs leaves them."""
    seen: set[str] = set()
    left: list[str] = []
    for root in edges:
        if root in seen:
            continue
        seen.add(root)
        work = [(root, iter(edges[root]))]
        while work:
            step, needs = work[-1]
            for need in needs:
                if need in edges and need not in seen:
                    seen.add(need)
                    work.append((need, iter(edges[need])))
                    break
            else:
                work.pop()
                left.append(step)
    return left


def _circle(group: set[str], edges: Mapping[str, Iterable[str]]) -> list[str]:
    """A path around the group: every step of it needs another of it, so following needs must close."""
    position: dict[str, int] = {}
    trail: list[str] = []
    step = min(group)
    while step not in position:
        position[step] = len(trail)
        trail.append(step)
        step = next(need for need in edges[step] if need in group and need != step)
    circle = trail[position[step] :]
    circle.reverse()  # needs point backwards; people read the flow forwards
    pivot = circle.index(min(circle))
    circle = circle[pivot:] + circle[:pivot]
    return [*circle, circle[0]]


def definition(step: Step) -> Step:
    """What decides whether a finished step is still the same work: cosmetic and scheduling keys are left out."""
    return msgspec.structs.replace(
        step, title="", stage="", timeout=None, retries=None, priority=0, resources={}, confirm=False,
        on_doubt="", settle=None, idempotent_for=None,
    )  # fmt: skip
