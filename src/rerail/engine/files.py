"""The files a step says it produces: inside the run's workspace, there, and valid (SPEC V6, T1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rerail.core.plan import Check
from rerail.core.schema import Schema
from rerail.core.texts import say


def unmet(check: Check, output: Any) -> list[str]:
    """What a value lacks to meet a check."""
    faults = []
    if check.non_empty and (output is None or output in ("", [], {})):
        faults.append(say("reason.file.empty"))
    if check.keys:
        missing = [key for key in check.keys if not isinstance(output, Mapping) or key not in output]
        if missing:
            faults.append(say("reason.file.lacks", names=", ".join(map(repr, missing))))
    if check.schema is not None:
        faults += [str(fault) for fault in Schema(check.schema, noun="key").faults(output)[:5]]
    return faults


def unmet_files(produces: Sequence[Any], workspace: Path) -> list[str]:
    """What is wrong with the files that a step was to produce; empty if all are there and valid."""
    faults: list[str] = []
    for item in produces:
        wanted = {"path": item} if isinstance(item, str) else dict(item)
        name = str(wanted.get("path", wanted.get("file", "")))
        faults += [f"{name}: {fault}" for fault in _unmet_file(name, wanted, workspace)]
    return faults


def _unmet_file(name: str, wanted: Mapping[str, Any], workspace: Path) -> list[str]:
    path = (workspace / name).resolve()
    if not name or not path.is_relative_to(workspace.resolve()):
        return [say("reason.file.leaves")]
    try:
        data = path.read_bytes()
    except OSError as error:
        return [say("reason.file.missing", strerror=error.strerror)]
    check = Check(wanted.get("schema"), bool(wanted.get("non_empty")), tuple(wanted.get("keys", ())))
    if not (path.suffix == ".json" or check.schema is not None or check.keys):
        return [say("reason.file.empty")] if check.non_empty and not data else []
    try:
        return unmet(check, msgspec.json.decode(data))
    except msgspec.DecodeError as error:
        return [say("reason.file.not_json", error=error)]
