"""`python -m tests.mutation [MUTANTS] [--seed N]`: how many small faults in the core the tests notice.

A copy of the project is made in a temporary folder, and everything happens there, in memory. The draw depends on the
seed alone. `--only FILE` looks at one file, `--tests` names the tests, `--most` is how many seconds of them a mutant
gets. Survivors are listed; those that nobody could notice stand in equivalent.toml, each with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from hashlib import sha256
from pathlib import Path

from tests.mutation.mutants import Mutant, mutants_of, name_of, pure_files

HERE = Path(__file__).resolve().parent
NOTICED = ("killed", "timeout")
# Those that run in this process alone, and quickly for what they notice.
ENGINE = (
    "examining", "families", "files", "handover", "intent", "live", "minds", "outlook", "produces", "staging",
    "workspace",
)  # fmt: skip
TESTS = (
    "tests/kernel", "tests/plan", "tests/values", "tests/recovery", "tests/views", "tests/mind", "tests/histories",
    *(f"tests/laws/test_{name}.py" for name in ("laws", "minds", "replay", "watching")),
    *(f"tests/scenarios/test_{name}.py" for name in ("chain", "recovery", "models")),
    *(f"tests/engine/test_{name}.py" for name in ENGINE),
)  # fmt: skip


def main() -> int:
    """Draw mutants, run the tests against each, and tell the score; 1 if it is lower than asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("mutants", nargs="?", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="one file, such as kernel/decide.py")
    parser.add_argument("--names", type=Path, help="a file with the names of mutants, instead of a draw")
    parser.add_argument("--tests", nargs="*", default=list(TESTS))
    parser.add_argument("--most", type=float, default=20.0, help="seconds of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.0, help="the score, in percent, below which it fails")
    parser.add_argument(
        "--out", type=Path, default=None, help="where the rows are kept; an existing file is gone on with"
    )
    parser.add_argument(
        "--map", type=Path, default=None, help="where to keep which test reaches what, for the next time"
    )
    parser.add_argument("--again", action="store_true", help="rows of those that were not noticed count for nothing")
    parser.add_argument("--inside", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return _inside(given)
    given.out = (given.out or Path(tempfile.mkstemp(suffix=".jsonl")[1])).resolve()
    given.names = given.names.resolve() if given.names else None
    given.map = given.map.resolve() if given.map else None
    with tempfile.TemporaryDirectory(prefix="rerail-mutation-") as folder:
        copy = Path(folder) / "copy"
        root = HERE.parents[1]
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".*", "node_modules", "web", "__pycache__", "page"))
        words = sys.argv[1:]
        env = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.mutation", *words, "--out", str(given.out), "--inside", str(job),
                 str(given.jobs)],
                cwd=copy, env=env,
            )
            for job in range(given.jobs)
        ]  # fmt: skip
        ended = [process.wait() for process in running]
    return max(ended, key=abs) or _told(given)


def _inside(given: argparse.Namespace) -> int:
    """In the copy: draw, load the tests, run."""
    import pytest
    from tests.mutation.runner import Runner

    everything, drawn = _drawn(given)
    done = {row["name"] for row in _rows(given.out) if not given.again or row["end"] in NOTICED}
    job, jobs = given.inside
    mine = [one for i, one in enumerate(drawn) if i % jobs == job and one.name not in done]
    print(f"{everything:,} mutants, {len(drawn):,} drawn, {len(mine):,} to run here", file=sys.stderr)
    words = ["-q", "-s", "--timeout=60", "-m", "not long", "-o", "addopts=--import-mode=importlib"]
    words += ["--assert=plain", "--tb=no"]  # nobody reads why a test failed
    words += [word for name in ("cacheprovider", "xdist", "langsmith", "schemathesis") for word in ("-p", f"no:{name}")]
    ended = pytest.main([*words, *given.tests], plugins=[Runner(mine, given.out, given.most, given.map)])
    return 0 if ended in (0, 5) else int(ended)


def _drawn(given: argparse.Namespace) -> tuple[int, list[Mutant]]:
    """How many mutants there are, and those that are meant."""
    everything = [one for file in pure_files() if given.only in ("", name_of(file)) for one in mutants_of(file)]
    if given.names:
        wanted = set(given.names.read_text("utf-8").splitlines())
        return len(everything), [one for one in everything if one.name in wanted]
    # By their names, so that a change somewhere in the core does not draw all others anew.
    order = sorted(everything, key=lambda one: sha256(f"{given.seed} {one.name}".encode()).digest())
    return len(everything), order[: given.mutants]


def _rows(out: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()] if out.exists() else []


def _told(given: argparse.Namespace) -> int:
    """The score, and who survived."""
    equivalent = tomllib.loads((HERE / "equivalent.toml").read_text("utf-8"))["mutants"]
    meant = {one.name for one in _drawn(given)[1]}
    rows = {row["name"]: row for row in _rows(given.out) if row["name"] in meant}.values()
    alike = [row for row in rows if row["name"] in equivalent]
    counted = [row for row in rows if row["name"] not in equivalent]
    dead = [row for row in counted if row["end"] in NOTICED]
    for row in counted:
        if row not in dead:
            print(f"{row['end']:9} {row['line']:>4}  {row['name']}")
    score = 100 * len(dead) / max(1, len(counted))
    print(f"{len(rows)} mutants, {len(alike)} of them equivalent; {len(dead)} of {len(counted)} noticed: {score:.1f} %")
    print(f"rows: {given.out}")
    return 0 if score >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
