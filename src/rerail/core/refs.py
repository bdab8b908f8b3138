"""References: how an argument points at an earlier output (SPEC P4).

Rules of this file:
- Data only. A reference is a step id and a path; nothing is evaluated.
- The id is the longest known id that is followed by ``.``, ``[`` or ``}``, so ids may hold dots and spaces.
- Parsing happens once, when a step joins a plan; resolving touches only the parts that refer to something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rerail.core.values import plain_text
from rerail.i18n import tell

_PLAIN = frozenset({int, float, bool, type(None)})  # has nothing inside
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
    """The output is there, but not what the path asks of it."""

    def __init__(self, ref: Ref, there: str = "") -> None:
        super().__init__(str(ref))
        self.ref, self.there = ref, there  # what there is instead, in words


@dataclass(frozen=True, slots=True)
class Ref:
    """A whole-string reference: keeps the JSON type of what it points at."""

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
    """Arguments whose references are found; ``value`` is the plain value where there are none."""

    value: Any
    refs: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """The ids a reference may name, and how long the longest is (so that one look bounds the search)."""

    ids: Mapping[str, Any]
    longest: int


class Hole:
    """The missing output of a skipped step, as a value that survives a path through it."""

    __slots__ = ()


HOLE = Hole()


def parse(text: str, names: Names) -> str | Ref | Mixed:
    """The text with its references found; a plain string if it holds none."""
    if "${" not in text:
        return text
    parts, faults = scan(text, names)
    if faults:
        raise faults[0]
    if len(parts) == 1:
        return parts[0]
    return Mixed(tuple(parts))


def scan(text: str, names: Names) -> tuple[list[str | Ref], list[BadReference | UnknownReference]]:
    """The pieces of a text, and every fault of its references: one that is bad does not hide those behind it (P5)."""
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
    """The reference that begins right after ``${``, and where the text goes on."""
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
    """One part of a path, and where the text goes on; None if there is none."""
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
    """The arguments with every reference found, ready to be resolved many times."""
    if not args:
        return NOTHING
    refs: list[Ref] = []
    value = _compile(args, names, refs)
    return Template(value if refs else plain(args), tuple(dict.fromkeys(refs)))


def _compile(value: Any, names: Names, refs: list[Ref]) -> Any:
    if isinstance(value, str):
        found = parse(value, names)
        if isinstance(found, Ref):
            refs.append(found)
        elif isinstance(found, Mixed):
            refs.extend(part for part in found.parts if isinstance(part, Ref))
        return found
    if type(value) is dict or isinstance(value, Mapping):
        return {key: _compile(item, names, refs) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_compile(item, names, refs) for item in value]
    return value


def plain(value: Any) -> Any:
    """A value without references, its ``$${`` read as the literal ``${``."""
    if isinstance(value, str):
        return value.replace("$${", "${") if "$${" in value else value
    if type(value) is dict or isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def literal(value: Any) -> Any:
    """A value as arguments hold it where it refers to nothing: each ``${`` in it written as ``$${``."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    return [literal(item) for item in value] if isinstance(value, list | tuple) else value


def strings(value: Any) -> Iterator[str]:
    """Every string inside a JSON value; what stands in several places, or in itself, is looked through once."""
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


def resolve(template: Template, lookup: Callable[[str], Any], hole: Any = None) -> Any:
    """The arguments with each reference replaced; ``lookup`` gives a step's output or ``HOLE``.

    A hole becomes ``None`` where it stands alone and the text ``null`` inside a string; with ``hole=HOLE`` every
    place a hole reaches is marked instead, so that a caller can ask whether null would be accepted there (H9).
    """
    return _resolve(template.value, lookup, hole) if template.refs else template.value


def _resolve(value: Any, lookup: Callable[[str], Any], hole: Any) -> Any:
    if isinstance(value, Ref):
        found = follow(value, lookup(value.step))
        return hole if isinstance(found, Hole) else found
    if isinstance(value, Mixed):
        texts = [part if isinstance(part, str) else follow(part, lookup(part.step)) for part in value.parts]
        if hole is HOLE and any(isinstance(text, Hole) for text in texts):
            return HOLE
        return "".join(text if isinstance(text, str) else _text(text) for text in texts)
    if isinstance(value, dict):
        return {key: _resolve(item, lookup, hole) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, lookup, hole) for item in value]
    return value


def _text(value: Any) -> str:
    return "null" if value is None or isinstance(value, Hole) else msgspec.json.encode(value).decode()


def follow(ref: Ref, output: Any) -> Any:
    """What the reference points at inside an output; a path through a hole is a hole."""
    if isinstance(output, Hole):
        return output
    for part in ref.path:
        if isinstance(output, Mapping) and str(part) in output:
            output = output[str(part)]
            continue
        index = _as_index(part)
        if isinstance(output, list) and index is not None and -len(output) <= index < len(output):
            output = output[index]
            continue
        raise MissingPath(ref, _there(output))
    return output


def _there(output: Any) -> str:
    """What there is where a path ends too early, in a few words."""
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
