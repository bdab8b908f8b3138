"""Tools from a `.py` file, a module, or a name in one (`--tools file.py|module:attr`).

Rules of this file:
- Loading runs the user's code, which can fail in any way; callers see one kind of error that says what to do.
- A file becomes a module named after its path, the same in every process, so that worker processes and pickles find it
  again. A changed file is read anew.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from rerail.adapters.tools.functions import FunctionTool, as_tool, is_langchain, is_tool
from rerail.adapters.tools.spec import unknown
from rerail.errors import RerailError
from rerail.i18n import Told, about, tell
from rerail.ports import Tool


def load_tools(source: str | os.PathLike[str]) -> list[Tool]:
    """Load the tools of `file.py`, `file.py:name`, `module` or `module:name`; RerailError says why there are none."""
    home, name = _split(os.fspath(source))
    module = _file_module(home) if home.endswith(".py") else _named_module(home)
    try:
        found = _named(module, name, home) if name else _all_in(module)
    except ValueError as error:
        _refuse(tell("refuse.tools.in_home", home=home, error=error), tell("hint.tools.mend_function"), error)
    if not found:
        _refuse(tell("refuse.tools.none", home=home), tell("hint.tools.none"))
    _require_unique(found, home)
    return found


def load_file(path: str | os.PathLike[str]) -> ModuleType:
    """Load the file as a module, once until it changes; any error of its code is raised."""
    file = Path(path).resolve()
    name, status = _module_name(file), file.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__rerail_stamp__", None) == stamp:
        return known
    return _execute(file, name, stamp)


def _execute(file: Path, name: str, stamp: tuple[int, int]) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file, loader=_Fresh(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(__rerail_file__=str(file), __rerail_stamp__=stamp)
    # As for a script, modules beside the file can be imported; last in the path, so that they shadow nothing.
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    linecache.checkcache(str(file))
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        raise
    return module


class _Fresh(importlib.machinery.SourceFileLoader):
    """Compiles from the source: compiled files have timestamps in seconds, and an edit may be faster."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _module_name(file: Path) -> str:
    stem = re.sub(r"\W", "_", file.stem)
    return f"rerail_tools_{stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:10]}"


# --- Where the tools are -------------------------------------------------------------------------------------------


def _split(source: str) -> tuple[str, str]:
    """Split a source into file or module, and the name in it, if given."""
    file = re.fullmatch(r"(.*\.py)(?::([^:/\\]+))?", source)
    if file is not None:
        return file[1], file[2] or ""
    home, _, name = source.partition(":")
    return home, name


def _refuse(message: str, hint: str, cause: BaseException | None = None) -> NoReturn:
    raise RerailError(message, "TOOLS_UNREADABLE", hint=hint) from cause


def _file_module(path: str) -> ModuleType:
    file = Path(path)
    if not file.is_file():
        siblings = [one.name for one in file.parent.glob("*.py")] if file.parent.is_dir() else []
        key = "refuse.tools.no_file_near" if siblings else "refuse.tools.no_file"
        _refuse(tell(key, path=path, near=unknown(file.name, siblings)), tell("hint.tools.no_file"))
    try:
        return load_file(file)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it is the user's code that runs here
        why = tell("refuse.tools.cannot_load", path=path, error=_last_words(error, path))
        _refuse(why, tell("hint.tools.mend_file"), error)


def _named_module(name: str) -> ModuleType:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        _refuse(tell("refuse.tools.neither", name=name), tell("hint.tools.neither"))
    # Users stand in the folder of their module; a console script does not look there by itself.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it is the user's code that runs here
        if isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name)):
            _refuse(tell("refuse.tools.no_module", name=name), tell("hint.tools.no_module"), error)
        why = tell("refuse.tools.cannot_import", name=name, error=_last_words(error, ""))
        _refuse(why, tell("hint.tools.mend_module"), error)


def _last_words(error: BaseException, path: str) -> str:
    """Return the traceback's last line, and its place in the user's own file."""
    said = traceback.format_exception_only(error)[-1].strip()
    if len(error.args) == 1 and isinstance(error.args[0], Told):
        said = about(type(error).__name__, error.args[0])
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return tell(
            "refuse.tools.at_file", said=said, name=Path(error.filename).name, lineno=error.lineno
        )  # it may be in a file that this one imports
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if path and frame.filename.endswith(path)]
    return tell("refuse.tools.at_line", said=said, lineno=own[-1].lineno) if own else said


def has_plain(source: str, name: str) -> bool:
    """Return True if the source has a plain function of that name, which is not a tool."""
    home, _ = _split(source)
    try:
        module = load_file(home) if home.endswith(".py") else sys.modules[home]
    except (Exception, SystemExit):  # noqa: BLE001  # it is the user's code that runs here
        return False
    found = vars(module).get(name)
    return inspect.isfunction(found) and found.__module__ == module.__name__


# --- Which they are ------------------------------------------------------------------------------------------------


def _all_in(module: ModuleType) -> list[Tool]:
    """Return every tool at the module's top level, imported ones included, and the entries of TOOLS."""
    members = [value for name, value in vars(module).items() if name != "TOOLS" and _looks_like_a_tool(value)]
    return _as_tools([*members, *_listed(getattr(module, "TOOLS", ()), "TOOLS")])


def _looks_like_a_tool(value: object) -> bool:
    # Statically at first: a module may hold proxies with side effects on attribute access.
    if isinstance(value, FunctionTool) or is_langchain(value):
        return True
    return inspect.getattr_static(value, "spec", None) is not None and is_tool(value)


def _listed(value: Any, where: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(tell("refuse.tools.no_list", where=where))
    return list(value)


def _named(module: ModuleType, name: str, home: str) -> list[Tool]:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = (
                unknown(part, [one for one in vars(found) if not one.startswith("_")])
                if hasattr(found, "__dict__")
                else ""
            )
            key = "refuse.tools.no_such_near" if near else "refuse.tools.no_such"
            _refuse(tell(key, home=home, name=name, near=near), tell("hint.tools.no_such"))
        found = getattr(found, part)
    one = is_langchain(found) or is_tool(found) or callable(found)  # a LangChain tool can be iterated over, too
    many = isinstance(found, Iterable) and not one
    return _as_tools(_listed(found, name) if many else [found])


def _as_tools(objects: Iterable[Any]) -> list[Tool]:
    # A tool with two names there is one tool.
    return [as_tool(one) for one in {id(one): one for one in objects}.values()]


def _require_unique(tools: Iterable[Tool], home: str) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.spec.name in seen:
            _refuse(tell("refuse.tools.two", home=home, name=tool.spec.name), tell("hint.tools.two"))
        seen.add(tool.spec.name)
