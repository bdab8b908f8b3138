"""JSON Schema validation for tools' arguments and users' checks.

Rules of this file:
- A schema is compiled once, into closures; a valid value is checked without any allocation.
- A check returns the faults of one value, with paths relative to it; empty if the value fits.
  Results are never changed afterwards, so they can be shared.
- A fault is reported only if no value in the place of OPEN could remove it.
- Recursion is as deep as the schema, not as the value. Only a ``$ref`` can form a cycle; its result is
  cached per value, which also avoids exponential time in schemas that branch at every level.
- Draft 2020-12, and the different spellings of draft-07 (``definitions``, ``items`` as a list, ``dependencies``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from fractions import Fraction
from math import isfinite
from typing import Any, Final, TypeAlias

from rerail.i18n import one_by_one, tell
from rerail.values.json_values import (
    CLASSES,
    OPEN,
    Json,
    SchemaFault,
    containers,
    enumerated,
    is_number,
    is_open,
    is_type,
    key,
    show,
    trimmed,
)
from rerail.values.names import nearest
from rerail.values.patterns import search
from rerail.values.schema_check import Node, problems, readable, resolve

__all__ = ["OPEN", "Json", "Node", "Schema", "SchemaFault", "faults", "nearest", "problems", "readable"]


class Schema:
    """A schema, ready to check values; ValueError if the schema itself has problems."""

    __slots__ = ("_check", "_compiler", "accepts_nothing", "source")

    def __init__(self, source: Node, *, noun: str = "argument") -> None:
        """Take the schema and the term that messages use for a property: argument, key, field."""
        found = problems(source)
        if found:
            raise ValueError(one_by_one(found))
        self.source = source
        self._compiler = _Compiler(source, noun)
        self._check = self._compiler.whole(source)
        self.accepts_nothing = self.accepts({})  # computed once: many steps of a large plan pass no arguments

    def faults(self, value: object) -> list[SchemaFault]:
        """Return all faults of the value; empty if it fits."""
        found = self._run(self._check, value, {})
        return _distinct(found) if found else []

    def accepts(self, value: object, part: Node | None = None, seen: Seen | None = None) -> bool:
        """True if the value fits the schema, or a part of it; one ``seen`` may serve many values that stay alive."""
        check = self._check if part is None else self._compiler.whole(part)
        return not self._run(check, value, {} if seen is None else seen)

    def _run(self, check: Check, value: object, seen: Seen) -> Found:
        try:
            return check(value, seen)
        except RecursionError:
            return self._run_deep(check, value, seen)

    def _run_deep(self, check: Check, value: object, seen: Seen) -> Found:
        """Check the innermost parts first, so that recursion at each part is only as deep as the schema."""
        try:
            for part in reversed(containers(value)):
                for ref in self._compiler.refs.values():
                    ref(part, seen)
            return check(value, seen)
        except RecursionError:
            return _one(tell("schema.too_deep"), "depth")


def faults(schema: Node | Schema, value: object) -> list[SchemaFault]:
    """Return all faults of the value; for many values make one Schema."""
    return (schema if isinstance(schema, Schema) else Schema(schema)).faults(value)


# --- Compiling -----------------------------------------------------------------------------------------------------

Found: TypeAlias = Sequence[SchemaFault]
Seen: TypeAlias = dict[tuple[str, int], Found]
Check: TypeAlias = Callable[[object, Seen], Found]
Rules: TypeAlias = Mapping[str, Any]

_FITS: Final[Found] = ()


class _Compiler:
    """Turns the parts of one schema into checks."""

    __slots__ = ("_parts", "noun", "refs", "root", "targets")

    def __init__(self, root: Node, noun: str) -> None:
        self.root = root
        self.noun = noun
        self.refs: dict[str, Check] = {}
        self.targets: dict[str, Check] = {}
        self._parts: dict[int, tuple[Node, Check]] = {}

    def whole(self, part: Node) -> Check:
        """Return the check of a part and of everything that it refers to."""
        check = self.node(part)
        # References are compiled here, not in place: they may be circular, or in long chains.
        while missing := self.refs.keys() - self.targets.keys():
            for ref in sorted(missing):
                self.targets[ref] = self.node(resolve(self.root, ref))
        return check

    def node(self, part: Node) -> Check:
        if isinstance(part, bool):
            return _anything if part else _nothing
        if id(part) not in self._parts:
            checks = [make(self, part) for words, make in _MAKERS if words & part.keys()]
            # The part is kept alive, so that its id is not reused.
            self._parts[id(part)] = (part, _combined(part, checks))
        return self._parts[id(part)][1]

    def ref(self, ref: str) -> Check:
        if ref not in self.refs:
            self.refs[ref] = self._ref(ref)
        return self.refs[ref]

    def _ref(self, ref: str) -> Check:
        targets = self.targets

        def check(value: object, seen: Seen) -> Found:
            # The value outlives the check, so its id is not reused; and paths in it are relative.
            spot = (ref, id(value))
            found = seen.get(spot)
            if found is None:
                # Without duplicates, which could double at each level.
                found = seen[spot] = _distinct(targets[ref](value, seen))
            return found

        return check


def _distinct(found: Found) -> list[SchemaFault]:
    return list(dict.fromkeys(found))


def _one(message: str, keyword: str) -> Found:
    return (SchemaFault((), message, keyword),)


def _anything(value: object, seen: Seen) -> Found:
    return _FITS


def _nothing(value: object, seen: Seen) -> Found:
    return _one(tell("schema.nothing", value=show(value)), "false")


def _combined(part: Rules, checks: Sequence[Check]) -> Check:
    """Check the type first, because a value of the wrong type has no other useful faults; then the rest."""
    rest = _anything if not checks else checks[0] if len(checks) == 1 else _each(checks)
    if "type" not in part:
        return rest
    names = _type_names(part)
    classes = frozenset[type]().union(*(CLASSES[name] for name in names))

    def check(value: object, seen: Seen) -> Found:
        # Most values have exactly such a class; subclasses, 1.0 as an integer and OPEN take the slow path.
        if type(value) in classes or value is OPEN or any(is_type(value, name) for name in names):
            return rest(value, seen) if checks else _FITS
        return _one(tell("schema.type", types=enumerated(names), value=show(value)), "type")

    return check


def _type_names(part: Rules) -> list[str]:
    return part["type"] if isinstance(part["type"], list) else [part["type"]]


def _each(checks: Sequence[Check]) -> Check:
    def check(value: object, seen: Seen) -> Found:
        found: list[SchemaFault] = []
        for one in checks:
            found += one(value, seen)
        return found

    return check


def _under(step: str | int, found: Found) -> list[SchemaFault]:
    """Return the same faults, with paths from the enclosing value."""
    return [SchemaFault((step, *fault.path), fault.message, fault.keyword) for fault in found]


def _simple(word: str, test: Callable[[Any], bool], message: Callable[[Any], str]) -> Check:
    """A keyword that reads the value alone and reports at most one fault."""

    def check(value: object, seen: Seen) -> Found:
        return _FITS if test(value) else _one(message(value), word)

    return check


# --- Plain values --------------------------------------------------------------------------------------------------

_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_SIZES: Final[Mapping[str, tuple[type[Sized], Callable[[int, int], bool]]]] = {
    "minLength": (str, operator.ge),
    "maxLength": (str, operator.le),
    "minItems": (list, operator.ge),
    "maxItems": (list, operator.le),
    "minProperties": (dict, operator.ge),
    "maxProperties": (dict, operator.le),
}
_MOST_OPTIONS = 10


def _bound(word: str) -> Maker:
    holds = _BOUNDS[word]

    def make(compiler: _Compiler, part: Rules) -> Check:
        limit = part[word]
        return _simple(
            word,
            lambda value: not is_number(value) or holds(value, limit),
            lambda value: tell(f"schema.{word}", limit=show(limit), value=show(value)),
        )

    return make


def _size(word: str) -> Maker:
    kind, holds = _SIZES[word]

    def make(compiler: _Compiler, part: Rules) -> Check:
        limit = part[word]
        return _simple(
            word,
            lambda value: not isinstance(value, kind) or holds(len(value), limit),
            lambda value: tell(f"schema.{word}", limit=limit, count=len(value), value=show(value)),
        )

    return make


def _options(compiler: _Compiler, part: Rules) -> Check:
    """``enum`` and ``const``."""
    word = "enum" if "enum" in part else "const"
    options = [part["const"]] if word == "const" else part["enum"]
    keys = {key(option) for option in options}

    def check(value: object, seen: Seen) -> Found:
        if key(value) in keys or is_open(value):
            return _FITS
        return _one(_options_message(options, value), word)

    # Both may be given; then both apply.
    both = word == "enum" and "const" in part
    return _each([check, _options(compiler, {"const": part["const"]})]) if both else check


def _options_message(options: Sequence[object], value: object) -> str:
    if not options:
        return tell("schema.nothing", value=show(value))
    if len(options) == 1:
        return tell("schema.const", value=show(value), option=show(options[0]))
    names, over = ", ".join(show(option) for option in options[:_MOST_OPTIONS]), len(options) - _MOST_OPTIONS
    more = tell("schema.more", count=over) if over > 0 else ""
    guess = (
        nearest(value, [option for option in options if isinstance(option, str)]) if isinstance(value, str) else None
    )
    near = tell("schema.near", guess=show(guess)) if guess else ""
    return tell("schema.enum", value=show(value), names=names, more=more, near=near)


def _pattern(compiler: _Compiler, part: Rules) -> Check:
    found = search(part["pattern"])
    return _simple(
        "pattern",
        lambda value: not isinstance(value, str) or found(value),
        lambda value: tell("schema.pattern", pattern=show(part["pattern"]), value=show(value)),
    )


def _multiple_of(compiler: _Compiler, part: Rules) -> Check:
    step = part["multipleOf"]
    # Floats in their decimal form: 0.3 is a multiple of 0.1, although not in binary.
    exact = Fraction(str(step))

    def holds(value: Any) -> bool:
        if not is_number(value):
            return True
        if isinstance(value, int) and isinstance(step, int):
            return value % step == 0
        if isinstance(value, int):
            return (value / exact).denominator == 1
        return isfinite(value) and (Fraction(str(value)) / exact).denominator == 1

    return _simple("multipleOf", holds, lambda value: tell("schema.multipleOf", step=show(step), value=show(value)))


# --- Objects -------------------------------------------------------------------------------------------------------


def _members(compiler: _Compiler, part: Rules) -> Check:
    known = {name: compiler.node(rules) for name, rules in part.get("properties", {}).items()}
    stray = _stray(compiler, part, known)
    plain = not part.get("patternProperties")

    def check(value: object, seen: Seen) -> Found:
        if not isinstance(value, dict):
            return _FITS
        found: list[SchemaFault] = []
        for name, member in value.items():
            own = known.get(name)
            if own is not None:
                faulty = own(member, seen)
                if faulty:
                    found += _under(name, faulty)
                if plain:
                    continue
            found += stray(name, member, seen)
        return found

    return check


def _stray(compiler: _Compiler, part: Rules, known: Mapping[str, Check]) -> Callable[[str, object, Seen], Found]:
    """Check a property by the patterns that match its name, or by the additional schema if nothing names it."""
    patterns = [(search(one), compiler.node(rules)) for one, rules in part.get("patternProperties", {}).items()]
    others = part.get("additionalProperties", True)
    rest = compiler.node(others)

    def check(name: str, member: object, seen: Seen) -> Found:
        checks = [own for pattern, own in patterns if pattern(str(name))]
        if checks or name in known:
            return _under(name, _each(checks)(member, seen))
        if others is not False:
            return _under(name, rest(member, seen))
        guess = nearest(str(name), known)
        near = tell("schema.near", guess=show(guess)) if guess else ""
        return _one(tell(f"schema.unknown.{compiler.noun}", name=show(name), near=near), "additionalProperties")

    return check


def _required(compiler: _Compiler, part: Rules) -> Check:
    names = tuple(part["required"])

    def check(value: object, seen: Seen) -> Found:
        if not isinstance(value, dict):
            return _FITS
        missing = [name for name in names if name not in value]
        return [
            SchemaFault((), tell(f"schema.required.{compiler.noun}", name=show(name)), "required") for name in missing
        ]

    return check


def _property_names(compiler: _Compiler, part: Rules) -> Check:
    own = compiler.node(part["propertyNames"])

    def check(value: object, seen: Seen) -> Found:
        if not isinstance(value, dict):
            return _FITS
        return [
            SchemaFault((), tell("schema.propertyNames", name=show(name), message=fault.message), "propertyNames")
            for name in value
            for fault in own(name, seen)
        ]

    return check


def _dependent(word: str) -> Maker:
    """``dependentRequired``, ``dependentSchemas``, and draft-07's ``dependencies``, which may be either."""

    def make(compiler: _Compiler, part: Rules) -> Check:
        names = {name: wanted for name, wanted in part[word].items() if isinstance(wanted, list)}
        rules = {name: compiler.node(wanted) for name, wanted in part[word].items() if name not in names}

        def check(value: object, seen: Seen) -> Found:
            if not isinstance(value, dict):
                return _FITS
            found = [
                SchemaFault((), tell(f"schema.dependent.{compiler.noun}", other=show(other), name=show(name)), word)
                for name, wanted in names.items()
                for other in wanted
                if name in value and other not in value
            ]
            for name, own in rules.items():
                if name in value:
                    found += own(value, seen)
            return found

        return check

    return make


# --- Arrays --------------------------------------------------------------------------------------------------------


def _items(compiler: _Compiler, part: Rules) -> Check:
    first, others = part.get("prefixItems", []), part.get("items", True)
    if isinstance(others, list):
        first, others = others, part.get("additionalItems", True)
    heads = [compiler.node(rules) for rules in first]
    rest = compiler.node(others)

    def check(value: object, seen: Seen) -> Found:
        if not isinstance(value, list):
            return _FITS
        found: list[SchemaFault] = []
        for at, item in enumerate(value):
            faulty = heads[at](item, seen) if at < len(heads) else rest(item, seen)
            if faulty:
                found += _under(at, faulty)
        return found

    return check


def _contains(compiler: _Compiler, part: Rules) -> Check:
    own = compiler.node(part["contains"])
    least, most = part.get("minContains", 1), part.get("maxContains")

    def check(value: object, seen: Seen) -> Found:
        if not isinstance(value, list):
            return _FITS
        fitting = [item for item in value if not own(item, seen)]
        if len(fitting) < least:
            return _one(tell("schema.contains", least=least, count=len(fitting)), "contains")
        if most is not None and len(fitting) > most and sum(not is_open(item) for item in fitting) > most:
            return _one(tell("schema.maxContains", most=most, count=len(fitting)), "maxContains")
        return _FITS

    return check


def _unique(compiler: _Compiler, part: Rules) -> Check:
    def check(value: object, seen: Seen) -> Found:
        if not isinstance(value, list) or not part["uniqueItems"]:
            return _FITS
        first: dict[object, int] = {}
        for at, item in enumerate(value):
            before = first.setdefault(key(item), at)
            if before != at and not is_open(item):
                same = tell("schema.uniqueItems", before=before, at=at, item=show(item))
                return _one(same, "uniqueItems")
        return _FITS

    return check


# --- Combinations --------------------------------------------------------------------------------------------------


def _any_of(word: str) -> Maker:
    """``anyOf``, and ``oneOf``, which allows only one."""

    def make(compiler: _Compiler, part: Rules) -> Check:
        branches = [compiler.node(rules) for rules in part[word]]
        labels = [_label(compiler.root, rules) for rules in part[word]]

        def check(value: object, seen: Seen) -> Found:
            refusals: list[Found] = []
            fitting: list[int] = []
            for at, branch in enumerate(branches):
                if faulty := branch(value, seen):
                    refusals.append(faulty)
                elif word == "anyOf":
                    return _FITS
                else:
                    fitting.append(at + 1)
            if not fitting:
                return _refused(word, value, labels, refusals)
            if len(fitting) == 1 or is_open(value):
                return _FITS
            numbers = enumerated([str(number) for number in fitting], "and")
            return _one(tell("schema.oneOf", value=show(value), numbers=numbers), word)

        return check

    return make


def _label(root: Node, part: Node) -> str | None:
    """Return the alternative's expectation, in a word or two."""
    if isinstance(part, bool):
        return None
    if "const" in part:
        return show(part["const"])
    if "type" in part:
        return enumerated(_type_names(part))
    return _label(root, resolve(root, part["$ref"])) if "$ref" in part else None


def _refused(word: str, value: object, labels: Sequence[str | None], refusals: Sequence[Found]) -> Found:
    """Return the faults of the intended alternative, if it is clear; else all of them in one sentence."""
    of_type = [found for found in refusals if not any(_is_about(fault, _OTHER_KIND, 0) for fault in found)]
    # Alternatives are often distinguished by a property with a fixed value.
    tagged = [found for found in of_type if not any(_is_about(fault, ("const", "enum"), 1) for fault in found)]
    for meant in (of_type, tagged):
        if len(meant) == 1:
            return meant[0]
    if not of_type and all(labels):
        names = list(dict.fromkeys(label for label in labels if label))
        return _one(tell("schema.type", types=enumerated(names), value=show(value)), "type")
    several = (
        tell("schema.option", at=at, fault=trimmed(found[0].said))
        for at, found in enumerate(refusals[:_MOST_OPTIONS], 1)
    )
    reasons = one_by_one(several)
    return _one(tell("schema.anyOf", count=len(refusals), reasons=reasons), word)


_OTHER_KIND: Final = frozenset({"type", "const", "false"})


def _is_about(fault: SchemaFault, words: Iterable[str], depth: int) -> bool:
    return len(fault.path) <= depth and fault.keyword in words


def _not(compiler: _Compiler, part: Rules) -> Check:
    own = compiler.node(part["not"])

    def check(value: object, seen: Seen) -> Found:
        if own(value, seen) or is_open(value):
            return _FITS
        return _one(tell("schema.not", value=show(value)), "not")

    return check


def _if(compiler: _Compiler, part: Rules) -> Check:
    condition = compiler.node(part["if"])
    then, otherwise = compiler.node(part.get("then", True)), compiler.node(part.get("else", True))

    def check(value: object, seen: Seen) -> Found:
        if condition(value, seen):
            return otherwise(value, seen)
        found = then(value, seen)
        # With an unknown part the condition may be true or false.
        return _FITS if found and is_open(value) and not otherwise(value, seen) else found

    return check


def _reference(compiler: _Compiler, part: Rules) -> Check:
    return compiler.ref(part["$ref"])


Maker: TypeAlias = Callable[[_Compiler, Rules], Check]

_MAKERS: Final[Sequence[tuple[frozenset[str], Maker]]] = (
    (frozenset({"$ref"}), _reference),
    (frozenset({"enum", "const"}), _options),
    *((frozenset({word}), _bound(word)) for word in _BOUNDS),
    *((frozenset({word}), _size(word)) for word in _SIZES),
    (frozenset({"multipleOf"}), _multiple_of),
    (frozenset({"pattern"}), _pattern),
    (frozenset({"properties", "patternProperties", "additionalProperties"}), _members),
    (frozenset({"required"}), _required),
    (frozenset({"propertyNames"}), _property_names),
    *((frozenset({word}), _dependent(word)) for word in ("dependentRequired", "dependentSchemas", "dependencies")),
    (frozenset({"items", "prefixItems"}), _items),
    (frozenset({"contains"}), _contains),
    (frozenset({"uniqueItems"}), _unique),
    (frozenset({"allOf"}), lambda compiler, part: _each([compiler.node(rules) for rules in part["allOf"]])),
    (frozenset({"anyOf"}), _any_of("anyOf")),
    (frozenset({"oneOf"}), _any_of("oneOf")),
    (frozenset({"not"}), _not),
    (frozenset({"if"}), _if),
)
