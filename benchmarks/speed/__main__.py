"""`make bench`: every figure of the speed contract, compared in one run as ratios."""

from __future__ import annotations

import argparse
import sys

from benchmarks.speed.cases import all_cases, as_json


def main() -> int:
    """Measure and print; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller plans")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    names = ", ".join(all_cases(quick=True))
    parser.add_argument("--only", default="", help=f"cases whose name contains this, of: {names}")
    options = parser.parse_args()
    figures = []
    for name, case in all_cases(quick=options.quick).items():
        if options.only not in name:
            continue
        figure = case()
        figures.append(figure)
        if not options.json:
            print(f"{'ok  ' if figure.ok else 'MISS'} {figure.name:45} {figure.value:70} {figure.bar}", flush=True)
    if options.json:
        print(as_json(figures))
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
