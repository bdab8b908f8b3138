"""The recorded answers as files that people can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "answers"
WIDTH = 120


def written(value: Any, indent: str = "") -> str:
    """JSON in which whatever fits into a line has one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        rows = [
            f"{deeper}{json.dumps(key, ensure_ascii=False)}: {written(item, deeper)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(rows) + "\n" + indent + "}"
    return "[\n" + ",\n".join(deeper + written(item, deeper) for item in value) + "\n" + indent + "]"


def read() -> dict[str, dict[str, Any]]:
    """What is recorded: file → answer → what was answered."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}


def write(told: dict[str, dict[str, Any]]) -> None:
    """Record answers."""
    FOLDER.mkdir(exist_ok=True)
    for name, answers in told.items():
        (FOLDER / f"{name}.json").write_text(written(answers) + "\n", encoding="utf-8")
