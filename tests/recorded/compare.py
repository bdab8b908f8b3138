"""What is different between an answer and the recorded one: added fields are no difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.recorded.gone import GONE


@dataclass(frozen=True)
class Difference:
    """One place where an answer is not as it was recorded."""

    path: str
    before: Any
    now: Any

    @property
    def of_words(self) -> bool:
        """Whether it is a sentence that reads differently: codes, names and numbers have no blanks."""
        return isinstance(self.before, str) and isinstance(self.now, str) and " " in self.before

    def __str__(self) -> str:
        return f"{self.path}: was {self.before!r}, is {self.now!r}"


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def differences(before: Any, now: Any, path: str = "") -> list[Difference]:
    """Every recorded value that is not there any more, or another one."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            found
            for key, value in before.items()
            for found in differences(value, now.get(key, MISSING), f"{path}/{key}")
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            found
            for number, (old, new) in enumerate(zip(before, now, strict=True))
            for found in differences(old, new, f"{path}/{number}")
        ]
    return [] if before == now and type(before) is type(now) else [Difference(path, before, now)]


def is_gone(path: str) -> bool:
    """Whether a place in the record is listed as gone, or lies below one that is."""
    parts = path.split("/")
    return any(fnmatchcase("/".join(parts[:depth]), pattern) for depth in range(2, len(parts) + 1) for pattern in GONE)


def compared(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[Difference]:
    """The differences of recorded answers, but for what is gone on purpose."""
    return [
        found
        for file, answers in before.items()
        for answer, said in answers.items()
        for found in differences(said, now.get(file, {}).get(answer, MISSING), f"{file}/{answer}")
        if not is_gone(found.path)
    ]


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Every place in the record, as `gone.py` names it."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from paths(item, f"{path}/{key}" if path else str(key))
