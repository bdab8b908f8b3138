"""`make bench-load`: what very many runs, steps and hours cost, compared with a tenth of them in the same measurement.

Each case has a process of its own, so that its memory is its own too. Times are never told, only how they grow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.load.cases import CASES, Figure


def main() -> int:
    """Measure and print; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the full size: 0.1 takes a tenth")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--only", choices=list(CASES), default=None)
    parser.add_argument("--case", choices=list(CASES), default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps([figure._asdict() for figure in CASES[options.case](options.share)]))
        return 0
    figures: list[Figure] = []
    for name in CASES if options.only is None else [options.only]:
        command = [sys.executable, "-m", "benchmarks.load", "--case", name, "--share", str(options.share)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found = [Figure(**row) for row in json.loads(said.splitlines()[-1])]
        figures += found
        for figure in found if not options.json else ():
            print(f"{'ok  ' if figure.ok else 'MISS'} {figure.case:6} {figure.what:60} {figure.said}", flush=True)
    if options.json:
        print(json.dumps([{**figure._asdict(), "ok": figure.ok} for figure in figures], indent=2))
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
