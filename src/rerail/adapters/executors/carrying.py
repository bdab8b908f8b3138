"""A tool on its way to another machine: named where it can be found there, else taken along whole.

Rules of this file:
- What can be imported, or lies in a file, is named and not copied: a copy would have state of its own.
- What has no such place (a function inside of another, one typed in) travels by value, as Ray's pickle carries it.
- Whatever cannot be carried is refused with what to do instead; it is never called somewhere else without a word.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rerail.adapters.executors.frames import Target, target_of
from rerail.core.codes import Category
from rerail.errors import ToolError
from rerail.i18n import tell
from rerail.ports import Tool


class NotCarried(ToolError):
    """A tool that cannot be called on another machine; nothing was called."""

    lost = False

    def __init__(self, message: str) -> None:
        super().__init__(message, "TOOL_NOT_CARRIED", Category.PERMANENT)


def stays(tool: Tool) -> bool:
    """Whether a tool can only be called where it is, such as one of an MCP server that was started here."""
    return bool(getattr(tool, "stays", False))


def carried(tool: Tool) -> bytes:
    """A tool as bytes; `NotCarried` says why it cannot be."""
    from ray import cloudpickle

    from rerail.adapters.tools.functions import FunctionTool

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    try:
        what: object = _Function.of(tool, dumps) if isinstance(tool, FunctionTool) else tool
        return dumps((what, sys.path))
    except Exception as error:  # the pickling of users' objects can fail in any way
        raise NotCarried(tell("error.ray.not_carried", tool=tool.spec.name, error=f"{error}"[:300])) from error


@functools.lru_cache(maxsize=256)
def unpacked(data: bytes) -> Any:
    """The tool that was carried here; kept, because finding it takes longer than most calls."""
    from ray import cloudpickle

    what, path = cloudpickle.loads(data)
    sys.path += [folder for folder in path if folder not in sys.path]
    return what.found(cloudpickle.loads) if isinstance(what, _Function) else what


def found(target: Target) -> Any:
    """What stands at a place, as this process knows it: a tool, or a plain function as one."""
    from rerail.adapters.tools.functions import FunctionTool
    from rerail.adapters.tools.loading import load_file

    here: Any = load_file(target.file) if target.file else importlib.import_module(target.module)
    for part in target.qualname.split("."):
        here = getattr(here, part)
    return here if isinstance(here, FunctionTool) else _wrapped(here)


@functools.cache
def _wrapped(fn: Any) -> Any:
    """A plain function as a tool; kept, because reading its signature takes longer than most calls."""
    from rerail.adapters.tools.functions import FunctionTool

    return FunctionTool(fn)


def _place(tool: Any) -> Target | None:
    """Where another process finds the tool's function; None if it would not find this very one."""
    try:
        target = target_of(tool.fn)
    except ValueError:
        return None
    if target.module == "__main__":
        return None  # whoever typed it runs it; elsewhere that would run the whole program again
    here = _standing(target)
    return target if here is tool or here is tool.fn or getattr(here, "fn", None) is tool.fn else None


def _standing(target: Target) -> Any:
    here: Any = sys.modules.get(target.module)
    for part in target.qualname.split("."):
        here = getattr(here, part, None)
    return here


class _Function:
    """A function that is a tool: where it is, or all of it, and what was declared about it."""

    def __init__(self, name: str, target: Target | None, rest: bytes, fingerprint: str) -> None:
        self._name, self._target, self._rest, self._fingerprint = name, target, rest, fingerprint
        self._cwd = os.getcwd()

    @classmethod
    def of(cls, tool: Any, dumps: Callable[[Any], bytes]) -> _Function:
        target = _place(tool)
        if target is not None and _standing(target) is tool:
            return cls(tool.name, target, b"", tool.spec.fingerprint)
        # Apart from the rest, because a file's functions can be read only once the file has been.
        rest = dumps((tool.fn if target is None else None, *tool.declared))
        return cls(tool.name, target, rest, tool.spec.fingerprint)

    def found(self, loads: Callable[[bytes], Any]) -> Any:
        from rerail.adapters.tools.functions import FunctionTool

        here = self._standing_there() if self._target is not None else None
        if not self._rest:
            return here
        fn, schema, effect, options = loads(self._rest)
        fn = fn if here is None else here.fn
        made: Any = FunctionTool(fn, name=self._name, schema=schema, effect=effect, **options)
        # The same text may be out of reach here; what was changed is for the one to say who has it.
        made.spec = dataclasses.replace(made.spec, fingerprint=self._fingerprint)
        return made

    def _standing_there(self) -> Any:
        target = self._target
        assert target is not None
        try:
            if target.file and not Path(target.file).exists():
                # What Ray brought along with the working folder lies in a folder of its own.
                beside = Path(os.path.relpath(target.file, self._cwd)).absolute()
                target = Target(target.module, target.qualname, str(beside))
            return found(target)
        except (ImportError, AttributeError, OSError) as error:
            node = socket.gethostname()
            raise NotCarried(tell("error.ray.not_there", tool=self._target, node=node, error=error)) from error
