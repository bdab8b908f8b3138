"""`make wheel`: the wheel, built twice from two copies, is the same to the byte; the second is kept in dist/."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "node_modules", "__pycache__", "dist", "build")
EPOCH = "1704067200"  # when no commit says when: the beginning of 2024


def epoch() -> str:
    """The moment that stands in the wheel: that of the last commit, so that the same commit gives the same wheel."""
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        said = ""
    return os.environ.get("SOURCE_DATE_EPOCH") or (said if said.isdecimal() else EPOCH)


def build(source: Path, folder: Path, *, page: bool, moment: str) -> Path:
    """Build a wheel from a copy of the source, somewhere else each time."""
    copy = folder / "source"
    shutil.copytree(source, copy, ignore=LEFT_OUT)
    env = {**os.environ, "SOURCE_DATE_EPOCH": moment, "RERAIL_BUILD_PAGE": "1" if page else "0"}
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    made = folder / "made"
    made.mkdir()
    done = subprocess.run([sys.executable, "-c", code, str(made)], cwd=copy, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return next(made.glob("*.whl"))


def digest(file: Path) -> str:
    """What the file is, in short."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def twice(source: Path, folder: Path, *, page: bool) -> tuple[Path, Path]:
    """Two wheels of the same source, built in two places."""
    moment = epoch()
    places = [folder / "one", folder / "a second place with a longer name"]
    for place in places:
        place.mkdir()
    first, second = (build(source, place, page=page, moment=moment) for place in places)
    return first, second


def main(words: Sequence[str]) -> int:
    """Build, compare, keep."""
    with tempfile.TemporaryDirectory(prefix="rerail-wheel-") as folder:
        first, second = twice(ROOT, Path(folder), page="--without-page" not in words)
        print(f"{digest(first)}  {first.name}\n{digest(second)}  {second.name}")
        if digest(first) != digest(second):
            print("The two are not the same.")
            return 1
        kept = ROOT / "dist"
        kept.mkdir(exist_ok=True)
        shutil.copy(second, kept)
        print(f"The same to the byte: dist/{second.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
