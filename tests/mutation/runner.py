"""Runs the tests against mutants: pytest and all tests are loaded once, and every mutant is a fork of that.

Rules of this file:
- No file is changed. A mutant lives in the memory of its own process, which ends with it.
- Only tests that reach the mutant's function are run, the quickest first, until one fails.
- What does not end is noticed: a mutant may use several times the CPU time that its tests need.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from tests.mutation.mutants import Mutant, functions, mutated

CORE = Path(importlib.import_module("rerail.core.plan").__file__ or "").parent
SPARE = 10.0  # seconds of CPU that a mutant has more than its tests need


class Runner:
    """A pytest plugin that runs the collected tests against mutants, instead of running them once."""

    def __init__(self, mutants: list[Mutant], out: Path, most: float, known: Path | None = None) -> None:
        self.mutants, self.out, self.most, self.known = mutants, out, most, known

    def pytest_configure(self) -> None:
        """What chance draws is the same for every mutant."""
        from hypothesis import settings

        settings.register_profile("mutation", derandomize=True, database=None)
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out which test reaches what, and then put in one fault after the other."""
        items = {item.nodeid: item for item in session.items}
        found = self._map(session)
        seconds = {name: used for name, (used, _) in found.items()}
        reach: dict[str, list[str]] = {}
        for name, (_, reached) in found.items():
            for function in reached if name in items else ():
                reach.setdefault(function, []).append(name)
        with self.out.open("a", encoding="utf-8") as log:
            for number, mutant in enumerate(self.mutants):
                names = sorted(reach.get(f"{mutant.file}:{mutant.function}", ()), key=lambda name: seconds[name])
                chosen, total = [], 0.0
                for name in names:
                    total += seconds[name]
                    if total > self.most and chosen:
                        break
                    chosen.append(items[name])
                begun = time.monotonic()
                end, by = self._live(mutant, chosen, min(total, self.most) * 4 + SPARE)
                row = {"n": number, "name": mutant.name, "line": mutant.line, "end": end, "by": by,
                       "tests": len(chosen), "seconds": round(time.monotonic() - begun, 2)}  # fmt: skip
                log.write(json.dumps(row, ensure_ascii=False) + "\n")
                log.flush()
        return True

    def _map(self, session: pytest.Session) -> dict[str, tuple[float, list[str]]]:
        """Of each test that passes, its CPU seconds and the functions of the core that it reaches."""
        found: dict[str, tuple[float, list[str]]] = {}
        if self.known is not None and self.known.exists():
            found = json.loads(self.known.read_text("utf-8"))
        new = [item for item in session.items if item.nodeid not in found]
        if not new:
            return found
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            traced = dict(_traced(new))
            with os.fdopen(write, "w") as pipe:
                json.dump(traced, pipe)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            found |= json.load(pipe)
        os.waitpid(pid, 0)
        if self.known is not None:
            self.known.write_text(json.dumps(found), "utf-8")
        return found

    def _live(self, mutant: Mutant, items: list[pytest.Item], cpu: float) -> tuple[str, str]:
        """Run tests against a mutant: killed (and by which), survived, or timeout."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            with contextlib.suppress(BaseException):
                _lived(mutant, items, cpu, write)
            os._exit(3)  # not even the test runner got through it
        os.close(write)
        with os.fdopen(read) as pipe:
            by = pipe.read()
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return "timeout", ""
        return {0: "survived", 1: "killed", 2: "unreached"}.get(os.WEXITSTATUS(status), "killed"), by


def _traced(items: list[pytest.Item]) -> Iterator[tuple[str, tuple[float, list[str]]]]:
    _silence()
    failed = _Failed(stop=False)
    items[0].config.pluginmanager.register(failed)
    codes = {code: name for name, function in _core_functions() for code in _codes(function.__code__)}
    for item, following in zip(items, [*items[1:], None], strict=True):
        seen: set[str] = set()

        def look(frame: Any, event: str, _: Any, seen: set[str] = seen) -> None:
            if event == "call" and frame.f_code in codes:
                seen.add(codes[frame.f_code])

        failed.seen = ""
        begun = time.process_time()
        sys.setprofile(look)
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            sys.setprofile(None)
        if not failed.seen:
            yield item.nodeid, (time.process_time() - begun, sorted(seen))


def _lived(mutant: Mutant, items: list[pytest.Item], cpu: float, write: int) -> None:
    _silence()
    if not items:
        os._exit(2)
    limit = int(time.process_time() + cpu) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    signal.alarm(int(cpu * 20) + 60)  # what sleeps uses no CPU
    items[0].config.pluginmanager.register(_Failed(stop=True, write=write))
    _put_in(mutant)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    os._exit(0)


class _Failed:
    """Notices the first test that fails."""

    def __init__(self, *, stop: bool, write: int = -1) -> None:
        self.stop, self.write, self.seen = stop, write, ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        if report.failed or (report.skipped and not self.stop):
            self.seen = report.nodeid
            if self.stop:
                os.write(self.write, report.nodeid.encode())
                os._exit(1)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


# -- Functions of the core -------------------------------------------------------------------------------------------


def _core_functions() -> Iterator[tuple[str, FunctionType]]:
    for file in sorted(CORE.glob("*.py")):
        module = importlib.import_module(f"rerail.core.{file.stem}") if file.stem != "__init__" else None
        for name, _ in functions(ast.parse(file.read_text("utf-8"))) if module is not None else ():
            found = _function(module, name)
            if found is not None:
                yield f"{file.name}:{name}", found


def _function(module: Any, name: str) -> FunctionType | None:
    """The function behind a qualified name, whatever it is wrapped in."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, type) else getattr(found, part, None)
    for wrap in ("fget", "__func__", "__wrapped__"):
        found = getattr(found, wrap, None) or found
    return found if isinstance(found, FunctionType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _put_in(mutant: Mutant) -> None:
    """Give the mutant's function the faulty code; whoever holds the function has it too."""
    file = CORE / mutant.file
    function = _function(importlib.import_module(f"rerail.core.{file.stem}"), mutant.function)
    whole = compile(mutated(file.read_text("utf-8"), mutant), str(file), "exec", dont_inherit=True)
    if function is None:
        os._exit(2)
    function.__code__ = next(code for code in _codes(whole) if code.co_qualname == mutant.function)
