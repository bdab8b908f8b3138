"""Answers without what differs each time: times, durations, ids, folders, ports, processes, versions."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2]
EPOCH = 1_600_000_000  # numbers above it are times
DURATIONS = frozenset({"elapsed", "tools", "waiting", "total", "waited", "seconds", "tool_seconds"})
SIZES = frozenset({"size", "freed"})  # of a store's file

_SPAN = r"\d+(?:\.\d+)?(?: ?(?:ms|s|min|h)\b)"
_TEXTS: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d\b", "<clock>"),
    (rf"(?m)^ *\+{_SPAN}(?: {_SPAN})*", "+<span>"),
    (rf"(?<![\w.<]){_SPAN}(?: \d+ s\b)?", "<span>"),
    (r"(?s)Traceback \(most recent call last\):.*", "<traceback>"),
    (r"\b(?:127\.0\.0\.1|localhost):\d+", "<server>"),
    (r"(?<=\.rerail/stage/)([\w.]+-\d+)-[0-9a-f]{8}", r"\1-<drawn>"),
    (r"(?m)(?<=\S) {2,}", "  "),
    (r"(?m) +$", ""),
    (r"\b\d+\.\d+\.\d+(?:\.\d+)?\b", "<version>"),
    (r"\b\d+(?:\.\d+)? (?:KiB|MiB|GiB|KB|MB|GB|kB)\b", "<size>"),
)


class Plain:
    """Makes answers comparable: the same for each play of the scenario."""

    def __init__(self, folder: Path, runs: Mapping[str, str]) -> None:
        self._folder, self._runs = folder, runs

    def __call__(self, value: Any, key: str = "") -> Any:
        """An answer as it is recorded."""
        if isinstance(value, dict):
            found = {self.text(str(name)): self(item, str(name)) for name, item in value.items()}
            return {**found, "used": "<seconds>"} if found.get("unit") == "seconds" else found
        if isinstance(value, list):
            return [self(item, key) for item in value]
        if isinstance(value, str):
            if key in ("traceback", "next"):
                return f"<{key}>" if value else ""
            return self.text(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if value > EPOCH:
            return "<time>"
        if key in DURATIONS and isinstance(value, float):
            return "<seconds>"
        return f"<{key}>" if key in SIZES and value > 4096 else value

    def text(self, text: str) -> str:
        """A text as it is recorded."""
        for path, name in ((self._folder, "<folder>"), (self._folder.resolve(), "<folder>"), (SOURCE, "<source>")):
            text = text.replace(str(path), name)
        for run, name in self._runs.items():
            text = text.replace(run, f"<{name}>")
        text = re.sub(rf"\b{re.escape(getpass.getuser())}\b(?:@{re.escape(socket.gethostname())}\b)?", "<user>", text)
        for pattern, instead in _TEXTS:
            text = re.sub(pattern, instead, text)
        return text

    def lines(self, text: str) -> list[str]:
        """A text as it is recorded, line by line."""
        return self.text(text).splitlines()
