"""Transfer of a tool to another machine: by name where possible, else by value.

Rules of this file:
- A function in an importable module or a file is named and not copied: a copy would have state of its own.
- A function without such a place (nested, or typed in) travels by value, in Ray's pickle.
- A tool that cannot travel is refused with what to do instead; it is never silently called elsewhere.
- Finding a tool imports its program. Nothing of Rerail runs meanwhile: a program without a guard would run its plan
  again in every process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rerail.adapters.executors.processes.protocol import Target, target_of
from rerail.codes import Category
from rerail.context import excerpt
from rerail.errors import RerailError, ToolError
from rerail.i18n import tell
from rerail.ports import Tool


class NotCarried(ToolError):
    """The tool cannot travel to another machine; it was not called."""

    lost = False

    def __init__(self, message: str) -> None:
        super().__init__(message, "TOOL_NOT_CARRIED", Category.PERMANENT)


# Of the programs that are imported just now, what they were refused.
IMPORTS: Final[list[list[RerailError]]] = []


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Import a program to find a tool in it; a refusal is what it failed for, whatever it made of that."""
    refused: list[RerailError] = []
    IMPORTS.append(refused)
    try:
        yield
    except (Exception, SystemExit):
        for refusal in refused:
            raise refusal from None
        raise
    finally:
        IMPORTS.pop()


def unguarded() -> RerailError:
    """Return the refusal of whatever a program would run while it is imported for one of its tools."""
    IMPORTS[-1].append(refusal := RerailError(tell("error.PROGRAM_UNGUARDED"), "PROGRAM_UNGUARDED"))
    return refusal


def carried(tool: Tool) -> bytes:
    """Encode a tool; `NotCarried` says why it cannot travel."""
    from ray import cloudpickle

    from rerail.adapters.tools.functions import FunctionTool

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    try:
        what: object = _Function.of(tool, dumps) if isinstance(tool, FunctionTool) else tool
        return dumps((what, sys.path))
    except Exception as error:  # the pickling of users' objects can fail in any way
        raise NotCarried(tell("error.ray.not_carried", tool=tool.spec.name, error=excerpt(str(error), 300))) from error


@functools.lru_cache(maxsize=256)
def unpacked(data: bytes) -> Any:
    """Decode a tool; cached, because finding it takes longer than most calls."""
    from ray import cloudpickle

    with _importing():
        what, path = cloudpickle.loads(data)
        sys.path += [folder for folder in path if folder not in sys.path]
        return what.found(cloudpickle.loads) if isinstance(what, _Function) else what


def found(target: Target) -> Any:
    """Return the tool at a location; a plain function becomes a tool."""
    from rerail.adapters.tools.functions import FunctionTool
    from rerail.adapters.tools.loading import load_file

    with _importing():
        here: Any = load_file(target.file) if target.file else importlib.import_module(target.module)
    for part in target.qualname.split("."):
        here = getattr(here, part)
    return here if isinstance(here, FunctionTool) else _wrapped(here)


@functools.cache
def _wrapped(fn: Any) -> Any:
    """Make a tool of a plain function; cached, because reading its signature takes longer than most calls."""
    from rerail.adapters.tools.functions import FunctionTool

    return FunctionTool(fn)


def _place(tool: Any) -> Target | None:
    """Return the location of the tool's function; None if a worker would not find this very one."""
    try:
        target = target_of(tool.fn)
    except ValueError:
        return None
    if target.module == "__main__":
        return None  # the program's own main module: elsewhere an import would run the whole program again
    here = _standing(target)
    return target if here is tool or here is tool.fn or getattr(here, "fn", None) is tool.fn else None


def _standing(target: Target) -> Any:
    here: Any = sys.modules.get(target.module)
    for part in target.qualname.split("."):
        here = getattr(here, part, None)
    return here


class _Function:
    """A function that is a tool: its location or value, and its declaration."""

    def __init__(self, name: str, target: Target | None, rest: bytes, fingerprint: str) -> None:
        self._name, self._target, self._rest, self._fingerprint = name, target, rest, fingerprint
        self._cwd = os.getcwd()

    @classmethod
    def of(cls, tool: Any, dumps: Callable[[Any], bytes]) -> _Function:
        target = _place(tool)
        if target is not None and _standing(target) is tool:
            return cls(tool.name, target, b"", tool.spec.fingerprint)
        # Apart from the rest, because a file's functions are readable only after the file.
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
        # The file may be missing here; only its own machine can tell of a change to it.
        made.spec = dataclasses.replace(made.spec, fingerprint=self._fingerprint)
        return made

    def _standing_there(self) -> Any:
        target = self._target
        assert target is not None
        try:
            if target.file and not Path(target.file).exists():
                # Ray unpacks the working folder into a folder of its own.
                beside = Path(os.path.relpath(target.file, self._cwd)).absolute()
                target = Target(target.module, target.qualname, str(beside))
            return found(target)
        except (ImportError, AttributeError, OSError) as error:
            node = socket.gethostname()
            raise NotCarried(tell("error.ray.not_there", tool=self._target, node=node, error=error)) from error
