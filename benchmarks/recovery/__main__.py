"""Run the cases and print how they ended: `python -m benchmarks.recovery --per-kind 10`, see `make bench-recovery`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections import Counter, defaultdict
from typing import Any

from benchmarks.recovery.client import World
from benchmarks.recovery.drive import ROOT, Contender, Process, Seen, run_case, world_process
from benchmarks.recovery.faults import cases

WORLD = ROOT / ".venv-world"
# Installed alone: what it asks for beside itself (models, clients) the tools do not need.
TOOLS = ("bfcl-eval==2026.3.23", "mpmath>=1.3", "tenacity>=9")
ENGINE, LOOP = "benchmarks.recovery.contenders.rerail_engine", "benchmarks.recovery.contenders.loop"


def contenders(world: str) -> list[Contender]:
    """Those that there are so far."""
    return [
        Contender("rerail", ENGINE),
        Contender("rerail, verify", ENGINE, options={"verify": True}),
        Contender("tenacity loop", LOOP, python=world),
    ]


def environment() -> str:
    """The world's own Python, made when it is first needed."""
    python = WORLD / "bin" / "python"
    if not (WORLD / ".installed").exists():
        venv.create(WORLD, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install", "--no-deps", *TOOLS]
        subprocess.run(command, check=True)
        (WORLD / ".installed").touch()
    return str(python)


def main() -> None:
    """Every case with every contender, one table for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.recovery")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--per-kind", type=int, default=20)
    given = parser.parse_args()
    python = environment()
    with world_process(python) as path, World(path, "") as world:
        facts = world.ask("facts")
        tasks = {task["id"]: task for task in facts["tasks"]}
        chosen = cases(facts["tasks"], facts["effects"], given.seed, given.per_kind)
        right = {task: _right(path, tasks[task]) for task in {case.task for case in chosen}}
        for contender in contenders(python):
            process = Process(contender)
            try:
                ends = [
                    run_case(case, contender, process, path, tasks[case.task], facts["effects"], answering=False)
                    for case in chosen
                ]
            finally:
                process.stop()
            _table(contender.name, ends, right, facts["effects"], tasks)


def _right(path: str, task: dict[str, Any]) -> str:
    """The state in which the world is once the gold plan has run undisturbed."""
    with World(path, f"gold:{task['id']}") as world:
        world.ask("open", task=task["id"], faults=[])
        for step in task["steps"]:
            world.call(step["id"], step["tool"], step["args"])
        return str(world.ask("end")["state"])


def _table(name: str, ends: list[Seen], right: dict[str, str], effects: dict[str, str], tasks: dict[str, Any]) -> None:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for end in ends:
        row, good = rows[end.case.group], end.state == right[end.case.task]
        row["cases"] += 1
        row["right"] += good
        row[end.status] += 1
        row["false success"] += end.status == "success" and not good
        row["twice"] += _doubled(end, effects, tasks[end.case.task])
        row["calls"] += len(end.calls)
    columns = ("cases", "right", "success", "failed", "waiting", "false success", "twice", "calls")
    sys.stdout.write(f"\n{name}\n{'':22}" + "".join(f"{column:>15}" for column in columns) + "\n")
    for group, row in rows.items():
        sys.stdout.write(f"{group:22}" + "".join(f"{row[column]:>15}" for column in columns) + "\n")


def _doubled(end: Seen, effects: dict[str, str], task: dict[str, Any]) -> int:
    """Effects that must not happen twice and did."""
    once = {step["id"] for step in task["steps"] if effects[step["tool"]] == "once"}
    happened = Counter(call["step"] for call in end.calls if call["effect"] and call["step"] in once)
    return sum(count - 1 for count in happened.values())


if __name__ == "__main__":
    main()
