"""User input: plans, steps and values, from files, stdin or the command line; answers on the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rerail.cli.command_table import STDIN
from rerail.cli.output import Output
from rerail.errors import Refused
from rerail.i18n import languages, say, tell
from rerail.plan.model import Plan
from rerail.plan_files import parse_data, read_data, steps_in

PLAN_ENDINGS = (".yaml", ".yml", ".json")


def load_plan(source: str) -> Plan:
    """Read a plan from a file, or from stdin for `-` on the command line."""
    return Plan.load(sys.stdin.buffer.read() if source == STDIN else Path(source))


def is_plan(word: str) -> bool:
    """Return True if a word means a plan rather than a run: stdin, a file, or a file-like name."""
    return word == STDIN or word.lower().endswith(PLAN_ENDINGS) or os.path.isfile(word)


def load_steps(source: str) -> list[Any]:
    """Read steps as written: a list, or a plan's `steps`. Only the run knows its own ids."""
    return steps_in(parse_data(sys.stdin.read(), source) if source == STDIN else read_data(Path(source)), source)


def as_mapping(text: str) -> dict[str, Any]:
    """Parse a JSON object of the command line."""
    value = as_value(text)
    if not isinstance(value, dict):
        raise Refused(tell("refuse.run.no_object", text=text[:80]), "USAGE")
    return value


def as_value(text: str) -> Any:
    """Parse a value of the command line: JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def require_yes(out: Output, question: str, declined: str) -> None:
    """Ask on the terminal; refuse without a yes."""
    out.err.print(question, end=" ")
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()  # in no thread: that would go on reading after a Ctrl-C
    finally:
        loop.remove_reader(sys.stdin.fileno())
    if sys.stdin.readline().strip().lower() not in {
        word for lang in languages() for word in say("cli.yes", lang).split()
    }:
        raise Refused(declined, "CONFIRM_NEEDED")


def read_edits(words: Sequence[str]) -> dict[str, bytes]:
    """Read new contents of files: FILE, or NAME=FILE where the names differ."""
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
