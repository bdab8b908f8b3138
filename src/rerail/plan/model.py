"""Plans as values, validated before anything runs.

Rules of this file:
- A plan may be faulty: reading collects what it finds, `check` lists every fault at once (contract P5).
- Dependencies are stored by id, never by position (P6). Topology work is O(V+E) and never recurses.
- Dialects, YAML and JSON are read in ``rerail.plan.reader``; here the plan is already made of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rerail.i18n import tell
from rerail.plan.references import Names, Ref, UnknownReference, parse, scan
from rerail.plan.step import FORMATS, Effect, Fault, Produced, Step, names_of, numbered, path_fault, texts_in
from rerail.plan.tool_spec import ToolSpec
from rerail.values.json_values import NotJson, pack, plain_text
from rerail.values.schema import OPEN, nearest


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """An objective and its steps."""

    objective: str = ""
    steps: tuple[Step, ...] = ()
    follow_up: Plan | None = None
    faults: tuple[Fault, ...] = ()  # faults found by reading; `check` raises them together with all others
    mcp: dict[str, Any] = {}  # MCP servers; a fault, since the settings name servers. Histories of old runs hold it
    # The steps that run at the end, whatever happened.
    finally_: tuple[str, ...] = msgspec.field(default=(), name="finally")
    file: str = ""  # where it was read from; not stored

    if TYPE_CHECKING:  # what is accepted; the attributes above are what is stored

        def __init__(
            self,
            objective: str = ...,
            steps: Sequence[Step] = ...,
            follow_up: Plan | None = ...,
            faults: tuple[Fault, ...] = ...,
            mcp: Mapping[str, Any] = ...,
            finally_: Sequence[str] = ...,
            file: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        steps: Any = self.steps
        if not isinstance(steps, tuple):
            msgspec.structs.force_setattr(self, "steps", tuple(steps))
        last: Any = self.finally_
        if not isinstance(last, tuple):
            msgspec.structs.force_setattr(self, "finally_", (last,) if isinstance(last, str) else tuple(last))

    @classmethod
    def load(cls, source: Any) -> Plan:
        """Read a plan from a file, a dict, a list of steps, or a YAML or JSON text.

        Only unreadable input is refused here; faults are raised when the plan meets its tools.
        """
        from rerail.plan_files import load_plan

        return load_plan(source)

    def check(self, tools: Mapping[str, ToolSpec] | Iterable[Any] | None = None) -> list[Fault]:
        """Return every fault of the plan; empty if it can run with these tools."""
        if tools is None or isinstance(tools, Mapping):
            return self.located(check(self, tools))
        from rerail.plan_files import specs_of

        return self.located(check(self, specs_of(tools)))

    def located(self, faults: list[Fault]) -> list[Fault]:
        """Return the faults with their places in the plan's file, if it has one."""
        if not self.file or not faults:
            return faults
        from rerail.plan_files import located

        return located(self.file, faults)

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, faults=(), file=""))
        return plain


def check(plan: Plan, tools: Mapping[str, ToolSpec] | None = None) -> list[Fault]:
    """Return every fault of the plan at once (P5); without tools, only those found without any."""
    faults = list(plan.faults)
    if plan.objective != plain_text(plan.objective, len(plan.objective)):
        faults.append(Fault("BAD_VALUE", tell("refuse.plan.objective_no_text", kind=ascii(plan.objective)[:40])))
    if not plan.steps and not faults:
        faults.append(Fault("NO_STEPS", tell("refuse.plan.no_steps")))
    if plan.mcp:
        faults.append(Fault("MCP_NOT_ALLOWED", tell("refuse.plan.mcp", names=", ".join(plan.mcp))))
    said = {(fault.code, fault.step, str(fault.message)) for fault in plan.faults}
    found = [*check_steps(plan.steps, tools), *(check_finally(plan.finally_, plan.steps) if plan.finally_ else ())]
    faults += [f for f in found if (f.code, f.step, str(f.message)) not in said]
    if plan.follow_up is not None:
        # A follow-up works in the same folder: a file of both would count as damaged for one of them.
        makers = {_spelled(file.path): step.id for step in plan.steps for file in step.produces}
        after = [*check(plan.follow_up, tools), *check_places(plan.follow_up.steps, makers)]
        faults += [
            msgspec.structs.replace(f, message=tell("refuse.plan.in_follow_up", message=f.message)) for f in after
        ]
    return faults


def check_steps(steps: Sequence[Step], tools: Mapping[str, ToolSpec] | None) -> list[Fault]:
    """Return every fault of these steps, taken together as one plan."""
    names = names_of(steps)
    counts = Counter(step.id for step in steps)
    faults = [
        Fault("DUPLICATE_ID", tell("refuse.plan.duplicate_id", count=count), step_id, nth=count - 1)
        for step_id, count in counts.items()
        if count > 1
    ]
    edges: dict[str, tuple[str, ...]] = {}  # of an id that is used twice, those of both steps
    seen: Counter[str] = Counter()
    for step in steps:
        found, needs = _check_step(step, names)
        odd = _check_written(step)
        found += odd
        try:
            found += _check_tools(step, names, tools) if tools is not None else []
        except RecursionError:
            found += [] if odd else [Fault("BAD_VALUE", tell("refuse.plan.args_too_deep"), step.id)]
        faults += numbered(found, seen[step.id]) if found else ()
        seen[step.id] += 1
        edges[step.id] = edges.get(step.id, ()) + needs
    if any(step.produces for step in steps):
        faults += _check_files(steps, tools)
    circles = cycles(edges) if any(edges.values()) else []
    faults += [Fault("CYCLE", tell("refuse.plan.cycle", path=" → ".join(path)), path[0]) for path in circles]
    return faults


def check_change(
    olds: Sequence[Step], steps: Sequence[Step], tools: Mapping[str, ToolSpec] | None, finals: Iterable[str] = ()
) -> list[Fault]:
    """Return the faults of a changed plan, without those it had before in unchanged steps.

    An earlier version with fewer checks, or with other tools, may have accepted the run (E5). That is
    no reason to refuse an unrelated change.
    """
    faults = [*check_steps(steps, tools), *(check_finally(finals, steps) if finals else ())]
    if not faults:
        return faults
    before = {step.id: step for step in olds}
    stay = {step.id for step in steps if before.get(step.id) == step}
    known = {(fault.code, fault.step, str(fault.message)) for fault in check_steps(olds, tools)}
    return [f for f in faults if f.step not in stay or (f.code, f.step, str(f.message)) not in known]


def check_finally(finals: Iterable[str], steps: Sequence[Step]) -> list[Fault]:
    """Return the faults of the steps that run at the end: each is in the plan, and only they need each other (P2)."""
    names, last = names_of(steps), set(finals)
    told = [
        Fault("BAD_FINALLY", tell("refuse.plan.finally_unknown", unknown=_unknown(name, names.ids, "step")))
        for name in dict.fromkeys(finals)
        if name not in names.ids
    ]
    for step in steps:
        if step.id not in last:
            told += [
                Fault("BAD_FINALLY", tell("refuse.plan.finally_needed", name=need), step.id)
                for need in _check_step(step, names)[1]
                if need in last
            ]
    return told


def _spelled(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def check_places(steps: Sequence[Step], before: Mapping[str, str]) -> list[Fault]:
    """Return faults of file paths: none twice, and none where another one needs a folder."""
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


def _check_files(steps: Sequence[Step], tools: Mapping[str, ToolSpec] | None) -> list[Fault]:
    """Return faults of produced files: each stays inside the workspace, and belongs to one step (T1)."""
    faults = check_places(steps, {})
    for step in steps:
        file: Produced
        for file in step.produces:
            problem = path_fault(file.path)
            if problem:
                faults.append(Fault("BAD_FILE", tell(problem, path=file.path), step.id))
            if file.format and file.format not in FORMATS:
                why = tell("refuse.plan.file_format", format=file.format, known=", ".join(FORMATS))
                faults.append(Fault("BAD_FILE", why, step.id))
            if tools is not None and file.check and file.check not in tools:
                unknown = _unknown(file.check, tools, "tool")
                other_tool = tell("refuse.plan.unknown_other_tool", label="produces.check", unknown=unknown)
                faults.append(Fault("UNKNOWN_TOOL", other_tool, step.id))
    return faults


def _refuse_odd(value: Any) -> None:
    """Accept only JSON types: an encoder would silently turn bytes and sets into something else."""
    stack, seen = [value], set[int]()
    while stack:
        item = stack.pop()
        if item is None or isinstance(item, str | int | float) or id(item) in seen:
            continue  # the writer finds a value that contains itself too deep
        seen.add(id(item))
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
        else:
            raise NotJson(tell("reason.no_value", name=type(item).__name__))


def _check_written(step: Step) -> list[Fault]:
    """Return why no history can store a step: arguments that are no JSON, or text with lone surrogates."""
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
    """Return faults of one step's needs and references, and the ids it really depends on."""
    faults: list[Fault] = []
    needs: dict[str, None] = {}
    for need in step.needs:
        if need.step == step.id:
            faults.append(Fault("SELF_NEED", tell("refuse.plan.self_need"), step.id))
        elif need.step not in names.ids:
            told = tell("refuse.plan.unknown_need", unknown=_unknown(need.step, names.ids, "step"))
            faults.append(Fault("UNKNOWN_NEED", told, step.id))
        else:
            needs[need.step] = None
    for text in texts_in(step):
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


def _check_tools(step: Step, names: Names, tools: Mapping[str, ToolSpec]) -> list[Fault]:
    faults: list[Fault] = []

    def add(code: str, message: str) -> None:
        faults.append(Fault(code, message, step.id))

    if not step.tool:
        add("BAD_VALUE", tell("refuse.plan.tool_missing"))
    elif step.tool not in tools:
        add("UNKNOWN_TOOL", tell("refuse.plan.unknown_tool", unknown=_unknown(step.tool, tools, "tool")))
    else:
        faults += _check_args(step, step.args, tools[step.tool], names)
        if step.idempotent_for is not None and not tools[step.tool].keyed:
            add("BAD_VALUE", tell("refuse.plan.no_key", name=step.tool))
    for other in step.alternatives:
        if other not in tools:
            unknown = _unknown(other, tools, "tool")
            add("UNKNOWN_ALTERNATIVE", tell("refuse.plan.unknown_alternative", unknown=unknown))
    for label, call in (("fallback", step.fallback), ("verify", step.verify)):
        if call is None or call.tool is None:
            continue
        if call.tool not in tools:
            unknown = _unknown(call.tool, tools, "tool")
            add("UNKNOWN_TOOL", tell("refuse.plan.unknown_other_tool", label=label, unknown=unknown))
            continue
        faults += _check_args(step, call.args, tools[call.tool], names)
        if label == "verify" and tools[call.tool].effect is Effect.ONCE:  # it must only read (V8)
            add("BAD_VALUE", tell("refuse.plan.verify_acts", name=call.tool))
    bare = [name for name in undeclared(step, tools) if tools[name].must_declare]
    return faults + undeclared_faults(step, bare) if bare else faults


def undeclared_faults(step: Step, names: Iterable[str]) -> list[Fault]:
    """Return the faults of tools that have to declare their effect, and do not."""
    return [Fault("EFFECT_UNDECLARED", tell("refuse.plan.effect_undeclared", name=name), step.id) for name in names]


def undeclared(step: Step, tools: Mapping[str, ToolSpec]) -> list[str]:
    """Return the tools that a step may call with an assumed effect; the step's own `effect` declares it (E3).

    A `verify` call only reads, whatever its tool declares.
    """
    if step.effect is not None:
        return []
    own = tools.get(step.tool)
    if own is not None and own.declared and not (own.alternatives or step.alternatives or step.fallback):
        return []  # the common case
    names = [step.tool, *step.alternatives, *(own.alternatives if own is not None else ())]
    if step.fallback is not None and step.fallback.tool is not None:
        names.append(step.fallback.tool)
    return [name for name in dict.fromkeys(names) if name in tools and not tools[name].declared]


def _check_args(step: Step, args: Mapping[str, Any], tool: ToolSpec, names: Names) -> list[Fault]:
    if not args and tool.schema.accepts_nothing:
        return []
    return args_faults(step, _opened(args, names), tool)


def args_faults(step: Step, args: Any, tool: ToolSpec) -> list[Fault]:
    """Return the faults that a tool's schema finds in arguments without references."""
    return [
        Fault(
            "BAD_ARGS",
            tell("refuse.plan.bad_args", where=_where(fault.path), name=tool.name, message=fault.message),
            step.id,
        )
        for fault in tool.schema.faults(args)
    ]


def _opened(value: Any, names: Names) -> Any:
    """Return the arguments with every reference replaced by an unknown value."""
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
    return value if value is None or isinstance(value, int | float) else OPEN  # not JSON: reported elsewhere


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


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return one path per group of steps that need each other, in the order the work would flow; O(V+E).

    ``edges`` maps a step to its needs; a path ``[a, b, c, a]`` reads "b needs a, c needs b, a needs c".
    """
    if _in_order(edges):
        return []
    return [_circle(group, edges) for group in _groups(edges)]


def _in_order(edges: Mapping[str, Iterable[str]]) -> bool:
    """True if every step comes after its needs, as most plans are written: then there is no cycle."""
    seen: set[str] = set()
    for step, needs in edges.items():
        for need in needs:
            if need not in seen:
                return False
        seen.add(step)
    return True


def _groups(edges: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the groups of more than one step that need each other, near or far (Kosaraju, without recursion)."""
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
    """Return the steps in the post-order of a depth-first walk along their needs."""
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
    """Return a path around the group: every step in it needs another one in it, so following needs must close."""
    position: dict[str, int] = {}
    trail: list[str] = []
    step = min(group)
    while step not in position:
        position[step] = len(trail)
        trail.append(step)
        step = next(need for need in edges[step] if need in group and need != step)
    circle = trail[position[step] :]
    circle.reverse()  # needs point backwards; a message reads forwards
    pivot = circle.index(min(circle))
    circle = circle[pivot:] + circle[:pivot]
    return [*circle, circle[0]]
