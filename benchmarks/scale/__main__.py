"""`make bench-scale`: steps on Ray, workers on Postgres and appends on each store, each beside a bare program."""

from __future__ import annotations

import argparse
import sys

from benchmarks.scale.cases import all_cases
from benchmarks.speed.cases import as_json


def main() -> int:
    """Measure and print; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    figures = []
    for name, case in all_cases(quick=options.quick).items():
        if options.only not in name:
            continue
        for figure in case():
            figures.append(figure)
            if not options.json:
                print(f"{'ok  ' if figure.ok else 'MISS'} {figure.name:40} {figure.value:75} {figure.bar}", flush=True)
    if options.json:
        print(as_json(figures))
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
