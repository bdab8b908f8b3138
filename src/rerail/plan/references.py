"""References: an argument's pointer to an earlier output (contract P4).

Rules of this file:
- Data only. A reference is a step id and a path; nothing is evaluated.
- The id is the longest known id that is followed by ``.``, ``[`` or ``}``, so ids may contain dots and spaces.
- Parsing happens once, when a step joins a plan; resolving touches only the parts with references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.i18n import tell
from rerail.values.json_values import plain_text, unpack

_PLAIN = frozenset({int, float, bool, type(None)})  # contains nothing
_DELIMITER = re.compile(r"[.\[}]")
_INDEX = re.compile(r"\[(-?\d+)\]")
_NAME = re.compile(r"[^.\[\]}]+")
_DECODER = json.JSONDecoder()

Path = tuple[str | int, ...]


class BadReference(ValueError):
    """The text between ``${`` and ``}`` is not a reference."""


class UnknownReference(ValueError):
    """The reference names a step that is not in the plan."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class MissingPath(LookupError):
    """The output exists, but the path does not fit it."""

    def __init__(self, ref: Ref, there: str = "") -> None:
        super().__init__(str(ref))
        self.ref, self.there = ref, there  # the value found instead, in words


@dataclass(frozen=True, slots=True)
class Ref:
    """A whole-string reference: keeps the JSON type of its target."""

    step: str
    path: Path = ()

    def __str__(self) -> str:
        parts = (
            f"[{p}]" if isinstance(p, int) else f".{p}" if _NAME.fullmatch(p) else f"[{json.dumps(p)}]"
            for p in self.path
        )
        return "${" + self.step + "".join(parts) + "}"


@dataclass(frozen=True, slots=True)
class Mixed:
    """References inside a longer string: interpolated as text."""

    parts: tuple[str | Ref, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """Arguments with parsed references; ``value`` is the plain value if there are none."""

    value: Any
    refs: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """The ids a reference may name, with the longest length, which bounds the search."""

    ids: Mapping[str, Any]
    longest: int


class Hole:
    """The missing output of a skipped step, as a value that survives a path through it."""

    __slots__ = ()


HOLE = Hole()


def parse(text: str, names: Names) -> str | Ref | Mixed:
    """Return the text with its references parsed; a plain string if it has none."""
    if "${" not in text:
        return text
    parts, faults = scan(text, names)
    if faults:
        raise faults[0]
    if len(parts) == 1:
        return parts[0]
    return Mixed(tuple(parts))


def scan(text: str, names: Names) -> tuple[list[str | Ref], list[BadReference | UnknownReference]]:
    """Return the pieces of a text, and every fault of its references: a bad one does not hide later ones (P5)."""
    parts: list[str | Ref] = []
    faults: list[BadReference | UnknownReference] = []
    plain, at = "", 0
    while (start := text.find("${", at)) >= 0:
        if start > 0 and text[start - 1] == "$" and start - 1 >= at:
            plain += text[at : start - 1] + "${"
            at = start + 2
            continue
        plain += text[at:start]
        try:
            ref, at = _reference(text, start + 2, names)
        except (BadReference, UnknownReference) as fault:
            faults.append(fault)
            at = text.find("}", start) + 1 or len(text)
            continue
        if plain:
            parts.append(plain)
        parts.append(ref)
        plain = ""
    plain += text[at:]
    if plain or not parts:
        parts.append(plain)
    return parts, faults


def _reference(text: str, start: int, names: Names) -> tuple[Ref, int]:
    """Return the reference that begins right after ``${``, and its end in the text."""
    end = -1
    for match in _DELIMITER.finditer(text, start, min(len(text), start + names.longest + 1)):
        if text[start : match.start()] in names.ids:
            end = match.start()
    if end < 0:
        raise _no_such_step(text, start)
    path: list[str | int] = []
    at = end
    while text[at] != "}":
        found = _path_part(text, at)
        if found is None or found[1] >= len(text):
            raise BadReference(_shown(text, start))
        path.append(found[0])
        at = found[1]
    return Ref(text[start:end], tuple(path)), at + 1


def _no_such_step(text: str, start: int) -> BadReference | UnknownReference:
    found = _DELIMITER.search(text, start)
    if found is None or text.find("}", start) < 0:
        return BadReference(_shown(text, start))
    return UnknownReference(text[start : found.start()], _shown(text, start))


def _path_part(text: str, at: int) -> tuple[str | int, int] | None:
    """Return one part of a path, and its end in the text; None if there is none."""
    if text[at] == ".":
        match = _NAME.match(text, at + 1)
        return (match.group(), match.end()) if match else None
    if match := _INDEX.match(text, at):
        return int(match.group(1)), match.end()
    return _quoted(text, at) if text.startswith(('["', "['"), at) else None


def _quoted(text: str, at: int) -> tuple[str, int] | None:
    if text[at + 1] == '"':
        try:
            key, end = _DECODER.raw_decode(text, at + 1)
        except ValueError:
            return None
    else:
        end = text.find("'", at + 2) + 1
        key = text[at + 2 : end - 1]
    if end <= 0 or not text.startswith("]", end):
        return None
    return str(key), end + 1


def _shown(text: str, start: int) -> str:
    end = text.find("}", start)
    body = text[start : end + 1 if end >= 0 else start + 60]
    return "${" + plain_text(body if len(body) <= 80 else body[:77] + "…", 80)


NOTHING = Template({}, ())


def compile_args(args: Any, names: Names) -> Template:
    """Return the arguments with every reference parsed, ready to be resolved many times."""
    if not args:
        return NOTHING
    refs: list[Ref] = []

    def parsed(text: str) -> str | Ref | Mixed:
        found = parse(text, names)
        if isinstance(found, Ref):
            refs.append(found)
        elif isinstance(found, Mixed):
            refs.extend(part for part in found.parts if isinstance(part, Ref))
        return found

    value = with_texts(args, parsed)
    return Template(value if refs else plain(args), tuple(dict.fromkeys(refs)))


def with_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a JSON value with every text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if type(value) is dict or isinstance(value, Mapping):
        return {key: with_texts(item, change) for key, item in value.items()}
    return [with_texts(item, change) for item in value] if isinstance(value, list | tuple) else value


def plain(value: Any) -> Any:
    """Return a value without references, with ``$${`` read as the literal ``${``."""
    return with_texts(value, lambda text: text.replace("$${", "${"))


def literal(value: Any) -> Any:
    """Return a literal value in the form of an argument: each ``${`` in it written as ``$${``."""
    return with_texts(value, lambda text: text.replace("${", "$${"))


def strings(value: Any) -> Iterator[str]:
    """Yield every string inside a JSON value; shared or recursive parts are visited once."""
    stack, seen = [value], set[int]()
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif type(item) in _PLAIN or id(item) in seen:
            continue
        elif isinstance(item, list | tuple):
            seen.add(id(item))
            stack.extend(item)
        elif type(item) is dict or isinstance(item, Mapping):
            seen.add(id(item))
            stack.extend(item.values())


def resolve(template: Template, lookup: Callable[[str], Any], hole: Any = None, parsed: list[str] | None = None) -> Any:
    """Return the arguments with each reference replaced; ``lookup`` gives a step's output or ``HOLE``.

    ``parsed`` takes the references that lead into a text, which was read as JSON.

    A hole becomes ``None`` where it stands alone and the text ``null`` inside a string. With ``hole=HOLE`` every
    place that a hole reaches is marked instead, so that a caller can test whether null is accepted there (H9).
    """
    return _resolve(template.value, lookup, hole, parsed) if template.refs else template.value


def _resolve(value: Any, lookup: Callable[[str], Any], hole: Any, parsed: list[str] | None) -> Any:
    if isinstance(value, Ref):
        found = follow(value, lookup(value.step), parsed)
        return hole if isinstance(found, Hole) else found
    if isinstance(value, Mixed):
        texts = [part if isinstance(part, str) else follow(part, lookup(part.step), parsed) for part in value.parts]
        if hole is HOLE and any(isinstance(text, Hole) for text in texts):
            return HOLE
        return "".join(text if isinstance(text, str) else _text(text) for text in texts)
    if isinstance(value, dict):
        return {key: _resolve(item, lookup, hole, parsed) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, lookup, hole, parsed) for item in value]
    return value


def _text(value: Any) -> str:
    return "null" if value is None or isinstance(value, Hole) else msgspec.json.encode(value).decode()


def follow(ref: Ref, output: Any, parsed: list[str] | None = None) -> Any:
    """Return the target of a reference inside an output; a path through a hole is a hole.

    A path that goes on at a text goes on inside it if the text is JSON; ``parsed`` takes such a reference.
    """
    if isinstance(output, Hole):
        return output
    for part in ref.path:
        if isinstance(output, str) and (inside := _json_in(output)) is not None:
            output = inside
            if parsed is not None and str(ref) not in parsed:
                parsed.append(str(ref))
        if isinstance(output, Mapping) and str(part) in output:
            output = output[str(part)]
            continue
        index = _as_index(part)
        if isinstance(output, list) and index is not None and -len(output) <= index < len(output):
            output = output[index]
            continue
        raise MissingPath(ref, _there(output))
    return output


def _json_in(text: str) -> Any:
    """Return the object or list that a text holds as JSON; None for other texts."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return unpack(text.encode())
    except (ValueError, RecursionError):  # `UnicodeError` and msgspec's errors are `ValueError`s
        return None


def _there(output: Any) -> str:
    """Return what exists where a path ends too early, in a few words."""
    if isinstance(output, Mapping) and output:
        names = [str(name)[:40] for name in output]
        more = tell("reason.there.more", count=len(names) - 8) if len(names) > 8 else ""
        return ", ".join(names[:8]) + more
    if isinstance(output, Mapping):
        return tell("reason.there.nothing")
    if isinstance(output, list):
        return tell("reason.there.list", count=len(output))
    return "null" if output is None else tell("reason.there.kind", name=type(output).__name__)


def _as_index(part: str | int) -> int | None:
    if isinstance(part, int):
        return part
    return int(part) if part.isdecimal() and len(part) < 10 else None
