"""Loading tools from files and modules, and what is said when that fails (SPEC M2, 12; bad input)."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.tools.loading import load_file, load_tools
from rerail.errors import RerailError

HEAD = "from rerail.adapters.tools.functions import tool\nfrom rerail.adapters.tools.shell import shell\n"


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    """Modules of one test are no modules of another."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("rerail_tools_", "made_")):
            del sys.modules[name]


def write(folder: Path, source: str, name: str = "made_tools.py") -> Path:
    file = folder / name
    file.write_text(HEAD + source)
    return file


def names(source: str | Path) -> list[str]:
    return [made.spec.name for made in load_tools(source)]


def refusal(source: str | Path) -> RerailError:
    with pytest.raises(RerailError) as caught:
        load_tools(source)
    assert caught.value.code == "TOOLS_UNREADABLE"
    assert caught.value.hint
    return caught.value


# --- Files


def test_a_file_gives_its_tools_and_what_it_lists(tmp_path: Path) -> None:
    """M2: decorated functions, other tools, imported ones, and TOOLS; each once, plain functions only from TOOLS."""
    write(tmp_path, "@tool\ndef imported(): ...\n", "made_other.py")
    file = write(
        tmp_path,
        """
from made_other import imported

@tool
def first(a: int): return a

again = first
second = shell("second", ["true"])
class NotATool:
    spec = first.spec
class Proxy:
    def __getattr__(self, name): raise RuntimeError("outside of a request")
proxy = Proxy()
def helper(): ...
def listed(): ...
TOOLS = [listed, first]
""",
    )
    assert names(file) == ["imported", "first", "second", "listed"]
    assert names(str(file)) == ["imported", "first", "second", "listed"]
    assert names(f"{file}:helper") == ["helper"]
    assert names(f"{file}:TOOLS") == ["listed", "first"]


def test_a_loaded_file_is_a_module_that_can_be_found_again(tmp_path: Path) -> None:
    """E5: one name for one path, so that pickles and worker processes find it; two paths are two modules."""
    file = write(tmp_path, "@tool\ndef work(): ...\nclass Thing: pass\n")
    module = load_file(file)
    assert sys.modules[module.__name__] is module
    assert load_file(str(file)) is module
    assert load_file(os.path.relpath(file)) is module
    assert isinstance(pickle.loads(pickle.dumps(module.Thing())), module.Thing)
    (tmp_path / "deeper").mkdir()
    assert load_file(write(tmp_path / "deeper", "")) is not module


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    """E5: also when only a moment has passed and the length is the same; its fingerprint tells."""
    file = write(tmp_path, "@tool\ndef work(): return 1\n")
    (before,) = load_tools(file)
    file.write_text(file.read_text().replace("1", "2"))
    os.utime(file, ns=(1, 1))
    (after,) = load_tools(file)
    assert asyncio.run(after.call({}, None)) == 2
    assert before.spec.fingerprint != after.spec.fingerprint


def test_a_file_that_breaks_on_its_way_leaves_no_half_module(tmp_path: Path) -> None:
    """M2: the module that was there stays."""
    file = write(tmp_path, "@tool\ndef work(): ...\n")
    module = load_file(file)
    file.write_text("1 / 0")
    refusal(file)
    assert sys.modules[module.__name__] is module


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (line 3)"),
        ("def broken(:", "SyntaxError"),
        ("import no_such_thing_here", "No module named 'no_such_thing_here'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = 1", "holds no tools"),
        ("@tool\ndef work(*args): ...", "*args cannot be filled"),
        ("TOOLS = 7", "is not a list of tools"),
        ("TOOLS = [7]", "7 is not a tool"),
        ("@tool\ndef a(): ...\nb = tool(lambda: 1, name='a')", "two tools named 'a'"),
        ("@tool\ndef work(a: 'Nowhere'): ...", "Nowhere"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, source: str, said: str) -> None:
    """Bad input: one kind of error, with the last line of the traceback and what to do."""
    assert said in str(refusal(write(tmp_path, source)))


def test_a_file_that_is_not_there_names_the_one_that_is(tmp_path: Path) -> None:
    """Bad input: a misspelled file."""
    write(tmp_path, "")
    assert "did you mean 'made_tools.py'" in str(refusal(tmp_path / "mad_tools.py"))
    assert "there is no file" in str(refusal(tmp_path / "no" / "folder.py"))
    assert "there is no file" in str(refusal(tmp_path / "folder.py"))


# --- Modules


def test_modules_are_found_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 12: `--tools module`, `module:attr` with a tool, a list or a function."""
    write(
        tmp_path,
        "@tool\ndef one(): ...\ndef two(): ...\nmany = (one, two)\nclass Box:\n    inner = two\n",
        "made_mod.py",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    assert names("made_mod") == ["one"]
    assert names("made_mod:one") == ["one"]
    assert names("made_mod:two") == ["two"]
    assert names("made_mod:many") == ["one", "two"]
    assert names("made_mod:Box.inner") == ["two"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("made_no_such_module", "there is no module made_no_such_module"),
        ("made_no_such.module:x", "there is no module"),
        ("made_bad", "ZeroDivisionError"),
        ("made_needs", "No module named 'made_gone'"),
        ("made_good:wrok", "did you mean 'work'"),
        ("made_good:VALUE", "7 is not a tool"),
        ("made_good:Thing", "is not a tool"),
        ("made_good:", "holds no tools"),
        ("made_good:EMPTY", "holds no tools"),
        ("not a module", "neither a .py file nor a module"),
        ("", "neither"),
        ("tools.yaml", "there is no module"),
    ],
)
def test_a_module_that_cannot_be_used_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    """Bad input: what is missing, the nearest name, and what to do."""
    write(tmp_path, "1 / 0", "made_bad.py")
    write(tmp_path, "import made_gone", "made_needs.py")
    write(tmp_path, "def work(): ...\nVALUE = 7\nEMPTY = []\nclass Thing: ...\n", "made_good.py")
    monkeypatch.chdir(tmp_path)
    assert said in str(refusal(source))


def test_an_error_is_plain_data_too(tmp_path: Path) -> None:
    """I7: what `--json` prints."""
    shown: dict[str, Any] = refusal(tmp_path / "gone.py").to_dict()["error"]
    assert shown["code"] == "TOOLS_UNREADABLE"
    assert shown["hint"]
