"""Runs the tests against mutants: pytest and all tests are loaded once, and every mutant is a fork of that.

Rules of this file:
- No file is changed. A mutant lives in the memory of its own process, which ends with it.
- Only tests that reach the mutant's statement are run, until one fails: first those that noticed others in its
  function, then the quickest.
- What does not end is noticed: with a mutant, a test may use several times the CPU time that it needs.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import importlib
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from tests.mutation.mutants import PACKAGES, SOURCE, Mutant, holding, mutated, name_of, pure_files

SPARE = 5.0  # seconds of CPU that a test has more than it needs

Reached = dict[str, tuple[float, dict[str, str]]]  # test: its CPU seconds, and file: its lines, as the bits of a number


class Runner:
    """A pytest plugin that runs the collected tests against mutants, instead of running them once."""

    def __init__(self, mutants: list[Mutant], out: Path, most: float, known: Path | None = None) -> None:
        self.mutants, self.out, self.most, self.known = mutants, out, most, known
        self.noticed: Counter[tuple[str, str]] = Counter()  # (function, test): how many mutants

    def pytest_configure(self) -> None:
        """What chance draws is the same for every mutant, and what fails is not made smaller."""
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate, Phase.target]
        settings.register_profile("mutation", derandomize=True, database=None, phases=phases)
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out which test reaches what, and then put in one fault after the other."""
        items = {item.nodeid: item for item in session.items}
        found = {name: one for name, one in self._map(session).items() if name in items}
        seconds = {name: used for name, (used, _) in found.items()}
        lines = {name: {file: int(bits, 16) for file, bits in files.items()} for name, (_, files) in found.items()}
        gc.collect()
        gc.freeze()  # a fork shares what nobody writes to
        with self.out.open("a", encoding="utf-8") as log:
            for number, mutant in enumerate(self.mutants):
                place = f"{mutant.file}:{mutant.function}"
                statement = sum(1 << line for line in range(mutant.first, mutant.last + 1))
                names = [name for name, files in lines.items() if files.get(mutant.file, 0) & statement]
                names.sort(key=lambda name: (-self.noticed[place, name], seconds[name]))
                chosen, total = [], 0.0
                for name in names:
                    total += seconds[name]
                    if total > self.most and chosen:
                        break
                    chosen.append((items[name], seconds[name] * 4 + SPARE))
                begun = time.monotonic()
                end, by = self._live(mutant, chosen)
                self.noticed[place, by] += 1
                row = {"n": number, "name": mutant.name, "line": mutant.line, "end": end, "by": by,
                       "tests": len(chosen), "seconds": round(time.monotonic() - begun, 2)}  # fmt: skip
                log.write(json.dumps(row, ensure_ascii=False) + "\n")
                log.flush()
        return True

    def _map(self, session: pytest.Session) -> Reached:
        """Of each test that passes, its CPU seconds and the lines of the core that it reaches."""
        source = {name_of(file): _digest(file) for file in pure_files()}
        tests = {name: _digest(Path(name)) for name in {_file(item.nodeid) for item in session.items}}
        found: Reached = {}
        if self.known is not None and self.known.exists():
            known = json.loads(self.known.read_text("utf-8"))
            was = known["files"]
            found = {
                name: one for name, one in known["tests"].items() if was.get(_file(name)) == tests.get(_file(name))
            }
            for _, files in found.values():  # in a file that was changed since, a test may reach anything
                files.update({file: "-1" for file in files if known["source"].get(file) != source.get(file)})
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
            self.known.write_text(json.dumps({"source": source, "files": tests, "tests": found}), "utf-8")
        return found

    def _live(self, mutant: Mutant, items: list[tuple[pytest.Item, float]]) -> tuple[str, str]:
        """Run tests against a mutant: killed (and by which), survived, or timeout."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            with contextlib.suppress(BaseException):
                _lived(mutant, items, write)
            os._exit(3)  # not even the test runner got through it
        os.close(write)
        with os.fdopen(read) as pipe:
            by = pipe.read()
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return "timeout", ""
        return {0: "survived", 1: "killed", 2: "unreached"}.get(os.WEXITSTATUS(status), "killed"), by


def _traced(items: list[pytest.Item]) -> Iterator[tuple[str, tuple[float, dict[str, str]]]]:
    _silence()
    import coverage

    failed = _Failed(stop=False)
    items[0].config.pluginmanager.register(failed)
    measured = coverage.Coverage(data_file=None, source=[str(SOURCE / name) for name in PACKAGES], config_file=False)
    seconds: dict[str, float] = {}
    measured.start()
    for item, following in zip(items, [*items[1:], None], strict=True):
        failed.seen = ""
        measured.switch_context(item.nodeid)
        begun = time.process_time()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if not failed.seen:
            seconds[item.nodeid] = time.process_time() - begun
    measured.stop()
    data = measured.get_data()
    reached: dict[str, dict[str, int]] = {name: {} for name in seconds}
    for file in data.measured_files():
        place = name_of(Path(file))
        for line, names in data.contexts_by_lineno(file).items():
            for name in names:
                if name in reached:
                    files = reached[name]
                    files[place] = files.get(place, 0) | 1 << line
    for name, files in reached.items():
        yield name, (seconds[name], {file: f"{bits:x}" for file, bits in files.items()})


def _lived(mutant: Mutant, items: list[tuple[pytest.Item, float]], write: int) -> None:
    _silence()
    if not items:
        os._exit(2)
    items[0][0].config.pluginmanager.register(_Failed(stop=True, write=write))
    _put_in(mutant)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for (item, cpu), following in zip(items, [*items[1:], (None, 0.0)], strict=True):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + cpu) + 1, hard))
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following[0])
    os._exit(0)


class _Failed:
    """Notices the first test that fails."""

    def __init__(self, *, stop: bool, write: int = -1) -> None:
        self.stop, self.write, self.seen = stop, write, ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """One phase of a test is over; nobody reads a report of it, which would take longer than the test."""
        if call.excinfo is None or item.get_closest_marker("xfail") is not None:
            return
        skipped = call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception))
        if not skipped or not self.stop:
            self.seen = item.nodeid
            if self.stop:
                os.write(self.write, item.nodeid.encode())
                os._exit(1)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


# -- Functions of the core -------------------------------------------------------------------------------------------


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
    """Give the mutant's function the faulty code; whoever holds the function, or one that it made, has it too."""
    file = SOURCE / mutant.file
    module = "rerail." + mutant.file.removesuffix(".py").replace("/", ".")
    function = _function(importlib.import_module(module), mutant.function)
    if function is None:
        os._exit(2)
    tree, old = mutated(file.read_text("utf-8"), mutant), _by_place(function.__code__)
    faulty = _compiled(tree, file, mutant)
    inner = _by_place(faulty)
    lost = {place: {*code.co_freevars} - {*inner[place].co_freevars} for place, code in old.items() if place in inner}
    if any(lost.values()):
        held = {(name.rpartition(".")[2], line): names for (name, line, _), names in lost.items()}
        faulty = _compiled(holding(tree, mutant.function, held), file, mutant)
        inner = _by_place(faulty)
    swapped = {code: inner[place] for place, code in old.items() if place in inner}
    function.__code__ = faulty
    if swapped:
        gc.unfreeze()
        for made in gc.get_objects():
            if isinstance(made, FunctionType) and made.__code__ in swapped:
                made.__code__ = swapped[made.__code__]


def _compiled(tree: ast.Module, file: Path, mutant: Mutant) -> CodeType:
    whole = compile(tree, str(file), "exec", dont_inherit=True)
    return next(code for code in _codes(whole) if code.co_qualname == mutant.function)


def _by_place(code: CodeType) -> dict[tuple[str, int, int], CodeType]:
    """The codes inside a code, by name, line, and the how-manieth there."""
    found: dict[tuple[str, int, int], CodeType] = {}
    for inner in list(_codes(code))[1:]:
        again = sum(place[:2] == (inner.co_qualname, inner.co_firstlineno) for place in found)
        found[inner.co_qualname, inner.co_firstlineno, again] = inner
    return found
