"""The house in numbers: how long, how many, how deep. The recorded ones fall; a feature that raises one says so.

python -m tests.architecture.measures            what is measured now, beside what is recorded
python -m tests.architecture.measures --lower    record what fell
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "rerail"
RECORD = Path(__file__).with_name("measures.json")

WORDS = re.compile(r"\b(?:somebody|nobody|whoever|whose|anybody|everybody)\b", re.IGNORECASE)
OTHERS = re.compile(r"\b(?:who|those that)\b", re.IGNORECASE)
# What a port's object is called where it is asked for a member that it may not have.
PORTS = frozenset({"tool", "mind", "model", "store", "elsewhere", "error", "cause", "link"})
# The one module that asks objects of others what they have; and one whose tools are LangChain's, not ours.
MAY_ASK = ("rerail/kernel/foreign.py", "rerail/adapters/tools/langchain.py")


# -- What stands in the files -----------------------------------------------------------------------------------------


def modules() -> dict[str, str]:
    """Every module of the source: its path → its text."""
    return {
        path.relative_to(SOURCE.parent).as_posix(): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))
    }


def prose() -> Iterator[str]:
    """What people read in the source: modules, texts, prompts."""
    for kind in ("*.py", "*.json", "*.md"):
        yield from (path.read_text("utf-8") for path in SOURCE.rglob(kind) if "page" not in path.parts)


def longest_function(source: str) -> int:
    """Lines of a module's longest function, decorators and docstring included."""
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return max((_lines(node) for node in functions), default=0)


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return (node.end_lineno or start) - start + 1


def probes(source: str) -> int:
    """How often a module asks an object behind a port for a member that it may not have."""
    return sum(
        1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if (node.func.id, len(node.args)) in (("getattr", 3), ("hasattr", 2)) and _called(node.args[0]) in PORTS
    )


def _called(node: ast.expr) -> str:
    """The last name of `tool`, `launch.tool`, `self._host.store`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(args=[first, *_]):  # getattr(getattr(error, …), …)
            return _called(first)
    return ""


def twice(sources: dict[str, str]) -> list[str]:
    """Public names of classes that two modules define."""
    found = Counter(
        node.name
        for source in sources.values()
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in found.items() if count > 1)


def standing() -> dict[str, int]:
    """What is counted in the files."""
    sources, texts = modules(), list(prose())
    return {
        "lines": sum(len(source.splitlines()) for source in sources.values()),
        "modules": sum(not name.endswith("__init__.py") for name in sources),
        "longest_file": max(len(source.splitlines()) for source in sources.values()),
        "longest_function": max(map(longest_function, sources.values())),
        "probes_of_ports": sum(probes(source) for name, source in sources.items() if name not in MAY_ASK),
        "class_names_twice": len(twice(sources)),
        "personal_words": sum(len(WORDS.findall(text)) for text in texts),
        "who_and_those_that": sum(len(OTHERS.findall(text)) for text in texts),
    }


# -- What is entered at run time --------------------------------------------------------------------------------------


@dataclass
class Entered:
    """The named functions of ours that were entered, and how often."""

    counts: Counter[CodeType] = field(default_factory=Counter)

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Count in this thread."""
        inside = f"{SOURCE}{os.sep}"

        def hook(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(inside) and not code.co_name.startswith("<"):
                self.counts[code] += 1

        before = sys.getprofile()
        sys.setprofile(hook)
        try:
            yield
        finally:
            sys.setprofile(before)

    @property
    def functions(self) -> int:
        """How many different ones."""
        return len(self.counts)

    @property
    def files(self) -> int:
        """In how many files."""
        return len({code.co_filename for code in self.counts})

    def calls(self, fits: Callable[[CodeType], bool]) -> int:
        """How often those were called that fit; generators and coroutines count again each time they go on."""
        return sum(count for code, count in self.counts.items() if fits(code))


PLAN: dict[str, Any] = {"objective": "one step", "steps": [{"id": "a", "tool": "ok", "args": {"value": 1}}]}


def of_a_run() -> Entered:
    """A warm `rerail.run` of one step, in memory."""
    import rerail

    @rerail.tool(effect="read")
    async def ok(value: int) -> int:
        """Give it back."""
        return value

    rerail.run(PLAN, tools=[ok])
    entered = Entered()
    with entered.here():
        assert rerail.run(PLAN, tools=[ok]).success
    return entered


def of_a_cold_run() -> tuple[int, int]:
    """`rerail run` of one step in a process of its own: functions and files, those that imports enter included."""
    from tests.recorded.world import Place

    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        place.prepare()
        code = f"from tests.architecture import measures; measures.cold({place.plan('good', *PLAN['steps'])!r})"
        environ = {**place.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE.parent), str(ROOT)))}
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    functions, files = json.loads(ended.stdout.splitlines()[-1])
    return functions, files


def cold(plan: str) -> None:
    """Run a plan by the command line in this process, which has imported nothing yet; print what was entered."""
    assert "rerail" not in sys.modules
    entered = Entered()
    with entered.here():
        from rerail.cli import main as typed

        assert typed(["run", plan]) == 0
    print(json.dumps([entered.functions, entered.files]))


def of_commands() -> tuple[Entered, Entered, Counter[str]]:
    """A warm `rerail run` of one step; a warm `rerail retry`; and what the latter opens and reads."""
    from tests.recorded.world import Place

    from rerail.adapters.stores.sqlite.store import SqliteStore
    from rerail.api import Engine

    run, retry, counts = Entered(), Entered(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        place.prepare()
        good = place.plan("good", *PLAN["steps"])
        bad = place.plan("bad", {"id": "a", "tool": "fail", "args": {"category": "permanent_error"}})
        with place.inside():
            place("run", good)
            with run.here():
                assert place("run", good).code == 0
            failed = place("run", bad, "--json").json["run_id"]
            place("retry", failed, "--force")
            with _counted(Engine, "open", counts), _counted(SqliteStore, "head", counts), retry.here():
                assert place("retry", failed, "--force").code == 1
    return run, retry, counts


@contextlib.contextmanager
def _counted(kind: type[Any], name: str, counts: Counter[str]) -> Iterator[None]:
    """Count the calls of a method."""
    inner = getattr(kind, name)

    async def counting(self: Any, *args: Any, **options: Any) -> Any:
        counts[f"{kind.__name__}.{name}"] += 1
        return await inner(self, *args, **options)

    setattr(kind, name, counting)
    try:
        yield
    finally:
        setattr(kind, name, inner)


def moving() -> dict[str, int]:
    """What is counted while something runs."""
    step = of_a_run()
    run, retry, counts = of_commands()
    cold_functions, cold_files = of_a_cold_run()
    return {
        "functions_of_a_step": step.functions,
        "files_of_a_step": step.files,
        "functions_of_run": run.functions,
        "files_of_run": run.files,
        "functions_of_a_cold_run": cold_functions,
        "files_of_a_cold_run": cold_files,
        "functions_of_retry": retry.functions,
        "engines_of_retry": counts["Engine.open"],
        "heads_of_retry": counts["SqliteStore.head"],
    }


def moving_alone() -> dict[str, int]:
    """The same in a process of its own: what other tests left behind counts for nothing."""
    script = "import json; from tests.architecture import measures; print(json.dumps(measures.moving()))"
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    found: dict[str, int] = json.loads(told.stdout.splitlines()[-1])
    return found


# -- The record -------------------------------------------------------------------------------------------------------


def recorded() -> dict[str, int]:
    """The numbers that may only fall."""
    found: dict[str, int] = json.loads(RECORD.read_text("utf-8"))
    return found


def verdict(name: str, now: int, before: int, slack: int = 0) -> str:
    """What is wrong with a number; empty if nothing is. What runs may enter a function or two more, by timing."""
    if now > before + slack:
        return f"{name} grew from {before} to {now}: these numbers only fall"
    if before - now > max(1, before // 20):
        return f"{name} fell from {before} to {now}: record it with python -m tests.architecture.measures --lower"
    return ""


def main() -> int:
    """Show the numbers, and record what fell."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.measures", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="record what fell")
    asked = parser.parse_args()
    before = recorded() if RECORD.exists() else {}
    now = {**standing(), **moving()}
    for name, value in now.items():
        print(f"{name:24} {value:7} {before.get(name, value):7}")
    if asked.lower:
        lower = {name: min(value, before.get(name, value)) for name, value in now.items()}
        RECORD.write_text(json.dumps(lower, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
