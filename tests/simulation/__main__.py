"""`python -m tests.simulation [FIRST:LAST]`: simulate, tell how far it is, and fail if a law is broken."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.simulation import LAWS, Report, simulate

CHUNK = 250


def _lives(first: int, last: int, plan: Any) -> Report:
    return simulate(range(first, last), plan)


def main() -> int:
    """Simulate; the exit code says whether every law held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="0:2000", help="FIRST:LAST, or how many")
    parser.add_argument("--plan", type=Path, help="a plan of your own, in place of plans by chance")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    first, _, last = given.seeds.rpartition(":")
    begin, end = int(first or 0), int(last)
    whole, started = Report(), time.monotonic()
    with ProcessPoolExecutor(given.jobs) as pool:
        parts = [pool.submit(_lives, at, min(at + CHUNK, end), given.plan) for at in range(begin, end, CHUNK)]
        for part in as_completed(parts):
            found = part.result()
            whole.lives += found.lives
            whole.ends += found.ends
            whole.facts += found.facts
            whole.broken += found.broken
            sys.stderr.write(f"\r{whole.lives} lives, {len(whole.broken)} broken, {time.monotonic() - started:.0f} s ")
            if whole.broken:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    sys.stderr.write("\n")
    _print(whole)
    return 1 if whole.broken else 0


def _print(report: Report) -> None:
    lines = [f"{report.lives} lives", "ends: " + _counted(report.ends), "facts: " + _counted(report.facts), "laws:"]
    lines += [f"  {name}: {what}" for name, what in LAWS.items()]
    lines += [f"BROKEN: {one}" for one in report.broken]
    sys.stdout.write("\n".join(lines) + "\n")


def _counted(counts: Any) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
