"""Mutants: every small fault that can be put into a function, as data.

Rules of this file:
- A mutant changes one thing inside one function or method; tables, class bodies, defaults, annotations and docstrings
  are left alone, and so is what cannot be reached (`assert_never`).
- A mutant is named by where it is and by what it changes, never by a line: lists of them outlive other changes.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import rerail

SOURCE = Path(rerail.__file__).parent
PACKAGES = ("kernel", "plan", "recovery", "values", "views")
COMPARES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
}  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the file, the function, the number of the node in it, and the how-manieth fault of that node."""

    file: str
    function: str
    node: int
    variant: int
    line: int
    before: str
    after: str
    first: int  # the lines of its statement; of a compound one, those of the head
    last: int
    again: int = 0  # the how-manieth of its name in the function

    @property
    def name(self) -> str:
        """What it is called in lists."""
        times = f" #{self.again + 1}" if self.again else ""
        return f"{self.file}:{self.function}: {self.before} → {self.after}{times}"


def pure_files() -> list[Path]:
    """The files that faults are put into, in a stable order."""
    return [file for name in PACKAGES for file in sorted((SOURCE / name).rglob("*.py"))]


def name_of(file: Path) -> str:
    """A file below the source, as in `kernel/decide.py`."""
    return file.relative_to(SOURCE).as_posix()


def mutants_of(file: Path) -> list[Mutant]:
    """All mutants of a file."""
    found: list[Mutant] = []
    named: Counter[str] = Counter()
    for name, function in functions(ast.parse(file.read_text("utf-8"))):
        spans = dict(_spans(function))
        for number, node in enumerate(_nodes(function)):
            for variant, other in enumerate(_faults(node)):
                before, after = _words(node), _words(other)
                again = named[f"{name} {before} {after}"]
                named[f"{name} {before} {after}"] += 1
                line = getattr(node, "lineno", function.lineno)
                found.append(Mutant(name_of(file), name, number, variant, line, before, after, *spans[node], again))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """A module with the fault in it."""
    tree = ast.parse(source)
    function = dict(functions(tree))[mutant.function]
    node = list(_nodes(function))[mutant.node]
    _put(function, node, list(_faults(node))[mutant.variant])
    return ast.fix_missing_locations(tree)


def holding(tree: ast.Module, function: str, lost: Mapping[tuple[str, int], Iterable[str]]) -> ast.Module:
    """The module, where functions inside a function go on naming what the fault took away from them.

    They were made before, and what they close over cannot be made less; by name and line, what each has to name.
    """
    for node in ast.walk(dict(functions(tree))[function]):
        name = "<lambda>" if isinstance(node, ast.Lambda) else getattr(node, "name", "")
        names: list[ast.expr] = [ast.Name(one, ast.Load()) for one in lost.get((name, getattr(node, "lineno", 0)), ())]
        if names and isinstance(node, ast.Lambda):
            node.body = ast.IfExp(ast.Constant(True), node.body, ast.Tuple(names, ast.Load()))
        elif names and isinstance(node, Function):
            node.body.append(ast.If(ast.Constant(False), [ast.Expr(one) for one in names], []))
    return ast.fix_missing_locations(tree)


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """The functions and methods of a module, by their qualified names; those inside functions belong to these."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            seen: set[str] = set()
            for inner in node.body:
                if isinstance(inner, Function) and inner.name not in seen:
                    seen.add(inner.name)
                    yield f"{node.name}.{inner.name}", inner


def _nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body that may be changed, in a fixed order."""
    body = function.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:]
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and "assert_never" in _words(node)):
            continue
        yield node
        children = [child for field, child in _children(node) if field not in ("annotation", "returns", "args_types")]
        stack.extend(reversed(children))


def _spans(function: Function) -> Iterator[tuple[ast.AST, tuple[int, int]]]:
    """Each node of a function with the lines of the statement that it is in."""
    stack: list[tuple[ast.AST, tuple[int, int]]] = [(function, (function.lineno, function.lineno))]
    while stack:
        node, span = stack.pop()
        if isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
            head = node.pattern if isinstance(node, ast.match_case) else node
            inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt | ast.match_case)]
            starts = [one.pattern.lineno if isinstance(one, ast.match_case) else one.lineno for one in inner]
            span = head.lineno, max(head.lineno, min(starts) - 1) if starts else head.end_lineno or head.lineno
        yield node, span
        stack.extend((child, span) for child in ast.iter_child_nodes(node))


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.arguments) and field != "defaults"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield field, one


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                if type(op) in COMPARES:
                    other = copy.deepcopy(node)
                    other.ops[i] = COMPARES[type(op)]()
                    yield other
            if len(ops) == 1 and isinstance(ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                other = copy.deepcopy(node)
                other.ops[0] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}[type(ops[0])]()
                yield other
        case ast.BoolOp(op=op, values=values):
            other_op: ast.boolop = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield ast.BoolOp(other_op, copy.deepcopy(values))
            for i in range(len(values)):  # one condition less
                rest = [copy.deepcopy(value) for j, value in enumerate(values) if j != i]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(copy.deepcopy(op), rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield copy.deepcopy(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield copy.deepcopy(operand)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            other = copy.deepcopy(node)
            other.op = OPERATORS[type(op)]()
            yield other
        case ast.AugAssign(op=op):
            if type(op) in OPERATORS:
                other_aug = copy.deepcopy(node)
                other_aug.op = OPERATORS[type(op)]()
                yield other_aug
            yield ast.Pass()
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str() as value):
            yield ast.Constant(f"{value}?" if value else "?")
        case ast.If() | ast.While() | ast.IfExp():
            other_test = copy.deepcopy(node)
            other_test.test = ast.UnaryOp(ast.Not(), other_test.test)
            yield other_test
        case ast.comprehension(ifs=ifs):
            for i in range(len(ifs)):
                other_loop = copy.deepcopy(node)
                del other_loop.ifs[i]
                yield other_loop
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete():
            yield ast.Pass()
        case ast.Assign() if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            yield ast.Pass()
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _put(function: Function, node: ast.AST, other: ast.AST) -> None:
    """Put another node in a node's place."""
    for parent in ast.walk(function):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, other)
                return
            if isinstance(value, list):
                for i, one in enumerate(value):
                    if one is node:
                        value[i] = other
                        return
    raise LookupError(_words(node))


def _words(node: ast.AST) -> str:
    """A node as text; of a compound statement its head is enough."""
    if isinstance(node, ast.comprehension):
        return " ".join(
            [f"for {_words(node.target)} in {_words(node.iter)}", *(f"if {_words(one)}" for one in node.ifs)]
        )
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split("\n")[0].split())[:160]
