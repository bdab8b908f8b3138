"""What the house rules forbid: impurity in the core, long tails in the source, traces of a machine in any file.

Each rule is a checker that takes text and returns findings, so that each is first tried on a bad example: a guard that
cannot fail guards nothing.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "rerail"
PURE_PACKAGES = [SOURCE / name for name in ("kernel", "mind", "plan", "recovery", "values", "views")]
TEXTS = SOURCE / "i18n"
READS_TEXTS = TEXTS / "files.py"  # the one exception below the core: docs/decisions/0016

LONGEST_FUNCTION = 70
LONGEST_FILE = 600

# No clock, no chance, no I/O. ruff and import-linter hold the same list; what they cannot see are the builtins.
IMPURE_MODULES = frozenset(
    """
    anyio apsw asyncio concurrent ctypes datetime getpass glob http importlib io locale logging multiprocessing os
    pathlib platform random secrets select shutil signal socket sqlite3 subprocess sys tempfile threading time urllib
    uuid
    """.split()  # noqa: SIM905
)
IMPURE_BUILTINS = frozenset({"open", "input", "print", "exec", "eval", "__import__", "breakpoint", "compile"})


def python_files(folder: Path) -> list[Path]:
    """Every module below a folder, in a stable order."""
    return sorted(folder.rglob("*.py"))


# --- the core is pure


def impurities(source: str) -> list[str]:
    """Name every forbidden import and builtin of a module, wherever in it they stand."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names):
                modules = [module or ""]
                if module == "builtins":
                    found += [(node.lineno, f"imports builtins.{alias.name}") for alias in names]
            # Loading the name is enough: `read = open` is as impure as `open(path)`.
            case ast.Name(id=name, ctx=ast.Load()) if name in IMPURE_BUILTINS:
                found.append((node.lineno, f"uses {name}"))
                continue
            case ast.Name(id="__builtins__"):
                found.append((node.lineno, "uses __builtins__"))
                continue
            case _:
                continue
        found += [(node.lineno, f"imports {m}") for m in modules if m.split(".")[0] in {*IMPURE_MODULES, "builtins"}]
    return [f"line {line}: {what}" for line, what in sorted(set(found))]


@pytest.mark.parametrize(
    ("snippet", "finding"),
    [
        ("import time", "imports time"),
        ("import os.path as p", "imports os.path"),
        ("from datetime import UTC", "imports datetime"),
        ("def f():\n    import random", "imports random"),
        ("if TYPE_CHECKING:\n    from pathlib import Path", "imports pathlib"),
        ("from urllib.parse import quote", "imports urllib.parse"),
        ("open('x')", "uses open"),
        ("def f():\n    return input()", "uses input"),
        ("print('x')", "uses print"),
        ("exec('x')", "uses exec"),
        ("eval('x')", "uses eval"),
        ("__import__('time')", "uses __import__"),
        ("read = open", "uses open"),
        ("from builtins import open as o", "imports builtins.open"),
        ("__builtins__['open']", "uses __builtins__"),
    ],
)
def test_the_purity_checker_sees_a_bad_module(snippet: str, finding: str) -> None:
    """Each forbidden thing is found, in functions and under other names too."""
    assert any(finding in line for line in impurities(snippet)), impurities(snippet)


def test_the_purity_checker_lets_a_pure_module_pass() -> None:
    """Pure imports, methods and arguments that merely share a name are no finding."""
    assert impurities("import re, math\nfrom dataclasses import dataclass\nx.open()\nx.time\nre.compile('a')") == []


PURE = [SOURCE / "codes.py"] + [
    path for folder in (*PURE_PACKAGES, TEXTS) for path in python_files(folder) if path != READS_TEXTS
]


@pytest.mark.parametrize("path", PURE, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_the_core_has_no_clock_no_chance_no_io(path: Path) -> None:
    """No module of the core reaches for the world; it gets facts as events and returns decisions as values."""
    assert impurities(path.read_text("utf-8")) == []


def test_the_texts_are_read_from_their_folder_and_nothing_else_is() -> None:
    """The exception is as small as it says: one file is opened, below the module's own folder."""
    found = impurities(READS_TEXTS.read_text("utf-8"))
    assert [finding.partition(": ")[2] for finding in found] == ["imports os", "uses open"]


def test_ruff_and_import_linter_guard_the_same_modules() -> None:
    """The three guards of the core hold one list, so weakening one of them is noticed."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    banned = set(tools["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
    contract = next(c for c in tools["importlinter"]["contracts"] if c["id"] == "pure")
    pure = {"codes", "i18n", *(folder.name for folder in PURE_PACKAGES)}
    assert set(contract["source_modules"]) == {f"rerail.{name}" for name in pure}
    assert contract["ignore_imports"] == ["rerail.i18n.files -> os", "rerail.plan.model -> rerail.plan_files"]
    assert set(contract["forbidden_modules"]) == banned == IMPURE_MODULES
    exempt = [glob for glob, rules in tools["ruff"]["lint"]["per-file-ignores"].items() if "TID251" in rules]
    guarded = ",".join(f"{name}/**" for name in sorted(pure - {"codes", "mind"}))
    assert exempt == [f"!src/rerail/{{codes.py,{guarded}}}", "src/rerail/i18n/files.py"]


def test_plans_are_read_only_where_they_are_asked_for() -> None:
    """`Plan.load`, `check` and `located`: each imports what it needs when it is called, and the module nothing."""
    tree = ast.parse((SOURCE / "plan" / "model.py").read_text("utf-8"))
    shims = {
        method.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Plan"
        for method in node.body
        if isinstance(method, ast.FunctionDef) and "rerail.plan_files" in ast.unparse(method)
    }
    assert shims == {"load", "check", "located"}
    assert ast.unparse(tree).count("rerail.plan_files") == len(shims)


# --- the tail is short


def long_functions(source: str, limit: int = LONGEST_FUNCTION) -> list[str]:
    """Name every function of a module that is longer than the limit, decorators and docstring included."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            length = (node.end_lineno or start) - start + 1
            if length > limit:
                found.append(f"line {start}: {node.name} has {length} lines, at most {limit}")
    return found


def too_long(source: str, limit: int = LONGEST_FILE) -> list[str]:
    """Say if a file has more lines than the limit."""
    lines = len(source.splitlines())
    return [f"{lines} lines, at most {limit}"] if lines > limit else []


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f(self):", "@d\ndef f():"])
def test_the_length_checker_sees_a_long_function(head: str) -> None:
    """One line over the limit is found, in methods and coroutines too."""
    assert long_functions(head + "\n    x = 1" * LONGEST_FUNCTION)
    assert not long_functions(head + "\n    x = 1" * (LONGEST_FUNCTION - 2))


def test_the_length_checker_sees_a_long_file() -> None:
    """One line over the limit is found."""
    assert too_long("x = 1\n" * (LONGEST_FILE + 1))
    assert not too_long("x = 1\n" * LONGEST_FILE)


def test_no_function_and_no_file_of_the_source_is_long() -> None:
    """Beautiful and ugly code bases differ in the tail, not in the median."""
    files = python_files(SOURCE)
    assert files
    found = []
    for path in files:
        source = path.read_text("utf-8")
        found += [f"{path.relative_to(ROOT)}: {finding}" for finding in long_functions(source) + too_long(source)]
    assert not found, "\n".join(["make these shorter:", *found])


# --- no file knows the machine it was written on

# Written so that no pattern matches its own text: this file is read like any other.
TRACES = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:home|Users|root|work|workspace)/"),
    "a path of somebody's Windows machine": re.compile(r"\b[A-Za-z]:\\{1,2}(?:Users)\\"),
    "a package index": re.compile(r"https?://[^\s\"'`<>]*/simple\b|pythonhosted[.]org|npmmirror[.]com"),
    "a package registry": re.compile(r"registry[.](?:npmjs|yarnpkg)[.]"),
    "an index option": re.compile(r"--(?:(?:extra-)?index-url|default-index|find-links|trusted-host)\b"),
    "a resolved address": re.compile(r'"resolved": *"http'),
}
ADDRESSED_LOCKS = {"uv.lock", "pylock.toml"}


def traces(text: str, checkout: Path = ROOT) -> list[str]:
    """Name every line that tells where a file was written or where its packages came from."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"line {number}: {what}" for what, pattern in TRACES.items() if pattern.search(line)]
        if re.search(rf"(?<![\w.]){re.escape(checkout.as_posix())}(?![\w-])", line):
            found.append(f"line {number}: the path of the checkout")
    return found


def project_files() -> Iterator[Path]:
    """Every file that is committed or would be, so that a trace is found before it lands."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.fail("this test reads the list of files from git: run it in a clone, with git installed")
    command = [git, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return (ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file())


@pytest.mark.parametrize(
    "line",
    [
        "/ho·me/ada/rerail/plan.yaml",
        "open('/Us·ers/ada/x')",
        "cd /ro·ot/rerail",
        "see /wo·rk/main",
        "C:\\Us·ers\\ada",
        "pip install --ind·ex-url x",
        "--find-li·nks wheels",
        "# https://pypi.org/sim·ple/",
        "https://files.pythonho·sted.org/packages/x.whl",
        "https://registry.np·mjs.org/react",
        '"reso·lved": "https://example.org/x.tgz"',
        "in /srv/checkouts/rerail/src",
    ],
)
def test_the_trace_checker_sees_a_trace(line: str) -> None:
    """Each kind of trace is found, the folder of the checkout included."""
    # The dot keeps the examples from being traces themselves.
    assert traces(line.replace("·", ""), Path("/srv/checkouts/rerail"))


@pytest.mark.parametrize("line", ["../shared/x", "https://pypi.org/project/rerail", "a/network/plan", "plans/work/x"])
def test_the_trace_checker_lets_other_addresses_pass(line: str) -> None:
    """Relative paths and addresses that a reader may follow are no traces."""
    assert traces(line, Path("/srv/checkouts/rerail")) == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    """A clone works anywhere, and tells nothing about where it was made."""
    found, read = [], 0
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        if path.name in ADDRESSED_LOCKS:
            found.append(f"{name}: a lock file that carries addresses")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        read += 1
        found += [f"{name}: {finding}" for finding in traces(text)]
    assert read > 0
    assert not found, "\n".join(["take these out:", *found])
