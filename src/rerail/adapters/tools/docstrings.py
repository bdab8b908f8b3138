"""What a docstring says about a function and each of its parameters, in the Google, NumPy and reST styles.

Rules of this file:
- Prose is never refused: what looks like no known style just says nothing about parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Docs:
    """The first line, and a description for each parameter that has one."""

    summary: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


_GOOGLE = re.compile(r"(?:keyword |other )?(?:args|arguments|parameters|params):\s*", re.IGNORECASE)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(?:other )?parameters\s*", re.IGNORECASE)
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_RULE = re.compile(r"-{3,}\s*")
_REST = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def read(text: str | None) -> Docs:
    """Read a docstring; there may be none."""
    lines = inspect.cleandoc(text).splitlines() if text else []
    if not lines:
        return Docs()
    found: dict[str, list[str]] = {}
    for name, words in (*_google(lines), *_numpy(lines), *_rest(lines)):
        found.setdefault(name, []).append(words)
    described = {name: " ".join(filter(None, words)).strip() for name, words in found.items()}
    return Docs(lines[0].strip(), {name: words for name, words in described.items() if words})


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _google(lines: list[str]) -> Iterator[tuple[str, str]]:
    """`Args:`, then indented `name (type): words`, whose further lines are indented more."""
    at = 0
    while at < len(lines):
        header = lines[at]
        at += 1
        if not _GOOGLE.fullmatch(header.strip()):
            continue
        name, level = "", 0
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > _indent(header)):
            line = lines[at]
            at += 1
            entry = _GOOGLE_ENTRY.fullmatch(line.strip())
            level = level or _indent(line)
            if entry and _indent(line) == level:
                name = entry[1]
                yield name, entry[2]
            elif name and line.strip():
                yield name, line.strip()


def _numpy(lines: list[str]) -> Iterator[tuple[str, str]]:
    """`Parameters` above a rule, then `name : type` with its words indented below."""
    for at in range(len(lines) - 1):
        if not (_NUMPY.fullmatch(lines[at].strip()) and _RULE.fullmatch(lines[at + 1].strip())):
            continue
        names: list[str] = []
        for line, below in zip(lines[at + 2 :], [*lines[at + 3 :], ""], strict=True):
            if _RULE.fullmatch(below.strip()):  # the next section's title
                break
            entry = _NUMPY_ENTRY.fullmatch(line.strip())
            if line.strip() and _indent(line) > _indent(lines[at]):
                yield from ((name, line.strip()) for name in names)
            elif entry:
                names = [name.strip(" *") for name in entry[1].split(",")]


def _rest(lines: list[str]) -> Iterator[tuple[str, str]]:
    """`:param type name: words`, whose further lines are indented."""
    name, level = "", 0
    for line in lines:
        entry = _REST.fullmatch(line.strip())
        if entry:
            name, level = entry[1], _indent(line)
            yield name, entry[2]
        elif name and line.strip() and _indent(line) > level:
            yield name, line.strip()
        else:
            name = ""
