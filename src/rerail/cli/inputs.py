"""What people hand in: plans, steps and values, from files, stdin or the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rerail.cli.catalogue import STDIN
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.plans import Plan, parse_data, read_data, steps_in

PLAN_ENDINGS = (".yaml", ".yml", ".json")


def load_plan(source: str) -> Plan:
    """A plan from a file, or from stdin for `-` on the command line."""
    return Plan.load(sys.stdin.buffer.read() if source == STDIN else Path(source))


def read_plan(source: str) -> str:
    """A plan for another process: a file's absolute path, or the text that came by stdin. It must be readable."""
    if source != STDIN:
        Plan.load(Path(source))
        return os.path.abspath(source)
    data = sys.stdin.buffer.read()
    Plan.load(data)
    return data.decode("utf-8", "replace")


def is_plan(word: str) -> bool:
    """Whether a word means a plan rather than a run: stdin, a file, or something that is named like one."""
    return word == STDIN or word.lower().endswith(PLAN_ENDINGS) or os.path.isfile(word)


def load_steps(source: str) -> list[Any]:
    """Steps as they were written: a list, or a plan's `steps`. The run's own ids are known only to the run."""
    return steps_in(parse_data(sys.stdin.read(), source) if source == STDIN else read_data(Path(source)), source)


def as_mapping(text: str) -> dict[str, Any]:
    """A JSON object typed on the command line."""
    value = as_value(text)
    if not isinstance(value, dict):
        raise Refused(tell("refuse.run.no_object", text=text[:80]), "USAGE")
    return value


def as_value(text: str) -> Any:
    """A value typed on the command line: JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


def read_edits(words: Sequence[str]) -> dict[str, bytes]:
    """What files should say instead: FILE, or NAME=FILE where the two are called differently."""
    edits = {}
    for word in words:
        name, given, path = word.partition("=")
        file = Path(path if given else name)
        try:
            edits[name if given else file.name] = file.read_bytes()
        except OSError as error:
            message = tell("refuse.run.edit_unreadable", path=file, reason=error.strerror or error)
            raise Refused(message, "USAGE") from error
    return edits
