"""`make bench-recovery`: real tools, seeded faults, Rerail and its peers on the same cases.

    python -m benchmarks.recovery [--quick] [--seed 7] [--per-kind 10] [--contender NAME …] [--kind KIND …] [--write]

Prints tables, and writes every case to build/recovery/. `--write` puts the tables, the chart and the summary into the
project: docs/benchmarks.md, docs/images/recovery.svg, benchmarks/recovery/results.json.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.recovery import report
from benchmarks.recovery.chart import chart
from benchmarks.recovery.client import World
from benchmarks.recovery.contenders.oracle import HOPELESS
from benchmarks.recovery.drive import ROOT, Contender, Process, Seen, run_case, world_process
from benchmarks.recovery.faults import GROUPS, Case, Draw
from benchmarks.recovery.lineup import ALL, ORACLE, PEERS, missing
from benchmarks.recovery.measure import Measured, measured

PER_KIND = 10
QUICK = {"per_kind": 2, "contenders": ("Rerail", "Rerail, verify", "tenacity loop")}
BUILD = ROOT / "build" / "recovery"
BEGIN, END = "<!-- recovery: begin -->", "<!-- recovery: end -->"


class Bench:
    """The cases of a run, and the world that they are in."""

    def __init__(self, path: str, seed: int, per_kind: int, kinds: tuple[str, ...]) -> None:
        self._path = path
        with World(path, "") as world:
            facts = world.ask("facts")
            self.tasks: dict[str, dict[str, Any]] = {task["id"]: task for task in facts["tasks"]}
            self.effects: dict[str, str] = facts["effects"]
            draw = Draw(facts["tasks"], self.effects, seed, world)
            self.cases: list[Case] = [case for kind in kinds for case in draw.cases(kind, per_kind)]
        # Mixed: a contender that was killed has time to come up before the next kill.
        random.Random(seed).shuffle(self.cases)
        self.oracle = {seen.case.id: seen for seen in self.run(ORACLE)}
        self._check()

    def run(self, contender: Contender) -> list[Seen]:
        """All cases with one contender."""
        process = Process(contender)
        try:
            return [
                run_case(case, contender, process, self._path, self.tasks[case.task], self.effects)
                for case in self.cases
            ]
        finally:
            process.close()

    def measure(self, contender: Contender) -> list[Measured]:
        """All cases with one contender, beside the oracle's."""
        return [
            measured(seen, self.oracle[seen.case.id], self.tasks[seen.case.task], self.effects)
            for seen in self.run(contender)
        ]

    def _check(self) -> None:
        """The oracle must be right: it ends as the gold plan does, undisturbed, and says so, unless nobody could."""
        for seen in self.oracle.values():
            hopeless = any(fault.kind in HOPELESS for fault in seen.case.faults)
            if (seen.status == "success") is hopeless:
                raise RuntimeError(f"the oracle is wrong about {seen.case}: {seen.why}")
        for task in {case.task for case in self.cases}:
            with World(self._path, f"gold:{task}") as world:
                world.ask("open", task=task, faults=[])
                for step in self.tasks[task]["steps"]:
                    world.call(step["id"], step["tool"], step["args"])
                state = world.ask("end")["state"]
            for seen in self.oracle.values():
                if seen.case.task == task and seen.status == "success" and seen.state != state:
                    raise RuntimeError(f"the oracle is wrong about {seen.case}")


def main() -> int:
    """Run, print, keep."""
    given = _arguments()
    chosen = tuple(one for one in ALL if not given.contender or one.name in given.contender)
    if gone := missing((ORACLE, *chosen)):
        sys.exit(f"These environments are not there: {', '.join(gone)}. `make bench-peers` makes them.")
    begun = time.monotonic()
    found: dict[str, list[Measured]] = {}
    broken: list[str] = []
    with world_process(("base",) if given.quick else ()) as path:
        bench = Bench(path, given.seed, given.per_kind, tuple(given.kind or GROUPS))
        sys.stderr.write(f"{len(bench.cases)} cases, {len(chosen)} contenders\n")
        with ThreadPoolExecutor(given.jobs) as pool:  # each contender in its own process; a case is never shared
            for contender, running in [(one, pool.submit(bench.measure, one)) for one in chosen]:
                try:
                    found[contender.name] = running.result()
                    sys.stderr.write(f"{time.monotonic() - begun:6.0f} s  {contender.name}\n")
                except RuntimeError as error:  # that one has no row; what the others did is no less true
                    broken.append(f"{contender.name}: {error}")
                    sys.stderr.write(f"{broken[-1]}\n")
        found = {ORACLE.name: _oracle(bench), **found}
    measures = [one for rows in found.values() for one in rows]
    summary = report.results(measures, given.seed)
    took = time.monotonic() - begun
    about = {"seed": given.seed, "per_kind": given.per_kind, "cases": len(bench.cases), "minutes": round(took / 60, 1)}
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = {"about": about, "contenders": summary, "cases": [one.to_dict() for one in measures]}
    (BUILD / "results.json").write_text(json.dumps(kept, indent=1))
    head, rows = report.by_group(summary, "correct")
    sys.stdout.write(report.text(report.HEAD, report.overall(summary)) + "\n" + report.text(head, rows))
    sys.stdout.write(f"\n{len(bench.cases)} cases in {took / 60:.1f} minutes; every case: {BUILD / 'results.json'}\n")
    if given.write and not broken:
        write(about, summary)
    return 1 if broken else 0


def _oracle(bench: Bench) -> list[Measured]:
    return [
        measured(seen, seen, bench.tasks[seen.case.task], bench.effects) for seen in bench.oracle.values()
    ]  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.recovery")
    parser.add_argument("--quick", action="store_true", help="about a minute: few cases, no peers but the loop")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--per-kind", type=int)
    parser.add_argument("--contender", action="append", choices=[one.name for one in ALL])
    parser.add_argument("--kind", action="append", choices=GROUPS)
    parser.add_argument("--jobs", type=int, default=3, help="contenders at once")
    parser.add_argument("--write", action="store_true", help="put tables, chart and summary into the project")
    given = parser.parse_args()
    if given.per_kind is None:
        given.per_kind = QUICK["per_kind"] if given.quick else PER_KIND
    if given.quick and not given.contender:
        given.contender = list(QUICK["contenders"])  # type: ignore[call-overload]
    return given


def write(about: dict[str, Any], summary: dict[str, Any]) -> None:
    """The results, where readers look for them."""
    folder = Path(__file__).parent
    (folder / "results.json").write_text(report.compact(about, summary))
    shown = {name: row for name, row in summary.items() if name in _shown()}
    title = f"How {about['cases']} runs with faults ended, in per cent"
    (ROOT / "docs" / "images" / "recovery.svg").write_text(chart(shown, title))
    docs = ROOT / "docs" / "benchmarks.md"
    text = docs.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    docs.write_text(f"{before}{BEGIN}\n\n{tables(about, summary)}\n{END}{after}", encoding="utf-8")


def _shown() -> set[str]:
    return {ORACLE.name, *(one.name for one in ALL if one.name.startswith("Rerail")), *(one.name for one in PEERS)}


def tables(about: dict[str, Any], summary: dict[str, Any]) -> str:
    """The part of the docs that is measured."""
    shown = {name: row for name, row in summary.items() if name in _shown()}
    layers = {name: row for name, row in summary.items() if name not in _shown() or name == "Rerail"}
    parts = [
        f"{about['cases']} cases, {about['per_kind']} of each kind, seed {about['seed']}; {about['minutes']} min.\n",
        report.markdown(report.HEAD, report.overall(shown)),
    ]
    known = [f"- {one.name}: {one.knows}." for one in (ORACLE, *ALL) if one.knows and one.name in summary]
    parts.append("Beside the plan and the tools' effects, these rows have:\n\n" + "\n".join(known) + "\n")
    kinds = (
        ("correct", "Correct, in per cent"), ("false_success", "False success, in per cent"),
        ("needless", "Needless calls for each case"),
    )  # fmt: skip
    for what, words in kinds:
        head, rows = report.by_group(shown, what)
        parts.append(f"{words}, by kind of fault:\n\n{report.markdown(head, rows)}")
    head, rows = report.by_group(layers, "correct")
    parts.append("Rerail with one layer off in turn, correct in per cent:\n\n" + report.markdown(head, rows))
    parts.append(report.markdown(report.HEAD, report.overall(layers)))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
