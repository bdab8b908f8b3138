"""How often the classifier is right, and how often the detector of disguised errors is.

    RERAIL_FIELD_DATA=folder python -m benchmarks.classifier.measure [--wrong [HALF]] [--outputs] [--examples FILE…]

The errors are error shapes of 436 services from botocore (Apache-2.0): codes and messages written by many teams, with
an HTTP status or a retry trait that says whether trying again helps. Half of the services were looked at while the
patterns were written, the other half only measured. The tool responses come from bfcl-eval (Apache-2.0), which must
be installed for `--outputs`: `pip install --no-deps bfcl-eval mpmath`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gzip
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from rerail.codes import Category
from rerail.recovery.classifier import Evidence, classify
from rerail.recovery.disguised_errors import suspect

# --- Errors ----------------------------------------------------------------------------------------------------------

FILE = "aws_error_shapes.jsonl.gz"
HALVES = ("development", "unseen")


@dataclass(frozen=True, slots=True)
class Shape:
    """One labelled error shape; status and trait made the label and are not shown to the classifier."""

    service: str
    code: str
    message: str
    transient: bool

    @property
    def half(self) -> str:
        """The half of the services it belongs to."""
        return HALVES[int(sha256(self.service.encode()).hexdigest(), 16) % 2]


def label(record: dict[str, Any]) -> bool | None:
    """Whether trying again helps, if the record says so."""
    status = record["http"]
    if record["retryable"] is not None or status in (408, 429):
        return True
    if status is None or not 400 <= status < 600:
        return None
    return bool(status >= 500)


def shapes(folder: Path) -> list[Shape]:
    """All labelled shapes of the data set."""
    with gzip.open(folder / FILE, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    labelled = ((record, label(record)) for record in records)
    return [Shape(r["service"], r["code"], r["message"], known) for r, known in labelled if known is not None]


@dataclass(slots=True)
class Score:
    """The answers on one half of the services."""

    answers: Counter[tuple[bool, Category]] = field(default_factory=Counter)
    wrong: list[tuple[Shape, Category]] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def add(self, shape: Shape) -> None:
        """Classify one shape and keep the outcome."""
        answer = classify(Evidence(message=shape.message, code=shape.code))
        self.services.add(shape.service)
        self.answers[shape.transient, answer] += 1
        if (answer is Category.TRANSIENT) != shape.transient:
            self.wrong.append((shape, answer))

    def count(self, transient: bool) -> int:
        """How many shapes carry this label."""
        return sum(n for (known, _), n in self.answers.items() if known == transient)

    def recall(self, transient: bool) -> float:
        """The share of shapes with this label that were recognised."""
        called = self.answers[transient, Category.TRANSIENT]
        right = called if transient else self.count(transient) - called
        return right / self.count(transient)

    @property
    def balanced_accuracy(self) -> float:
        """The mean of both recalls: guessing gives one half, however uneven the labels are."""
        return (self.recall(True) + self.recall(False)) / 2


def measure(folder: Path) -> dict[str, Score]:
    """The classifier's score per half."""
    scores = {half: Score() for half in HALVES}
    for shape in shapes(folder):
        scores[shape.half].add(shape)
    return scores


def report(scores: dict[str, Score]) -> Iterator[str]:
    """The scores as lines of text."""
    for half, score in scores.items():
        yield f"{half}: balanced accuracy {score.balanced_accuracy:.4f} ({len(score.services)} services)"
        for transient in (True, False):
            name = "transient" if transient else "not transient"
            answers = sorted(((n, c) for (known, c), n in score.answers.items() if known == transient), reverse=True)
            told = ", ".join(f"{category} {n}" for n, category in answers)
            yield f"  {name}: {score.count(transient)}, recall {score.recall(transient):.4f}: {told}"


def report_wrong(score: Score) -> Iterator[str]:
    """What stays wrong, as lines of text."""
    for shape, answer in score.wrong:
        yield f"{'transient' if shape.transient else 'not transient'} | {answer} | {shape.code} | {shape.message[:160]}"


# --- Outputs ---------------------------------------------------------------------------------------------------------

Tools = dict[str, Any]
NONSENSE = "no_such_thing_zz9"


def gold_plans() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Kind, task and calls of every gold plan of the package."""
    data = Path(str(importlib.import_module("bfcl_eval").__file__)).parent / "data"
    for kind in ("base", "miss_func", "miss_param", "long_context"):
        name = f"BFCL_v4_multi_turn_{kind}.json"
        tasks = {task["id"]: task for task in map(json.loads, (data / name).open(encoding="utf-8"))}
        for answer in map(json.loads, (data / "possible_answer" / name).open(encoding="utf-8")):
            yield kind, tasks[answer["id"]], [call for turn in answer["ground_truth"] for call in turn]


def tools_of(task: dict[str, Any], long_context: bool) -> Tools:
    """The task's tools, in its first state."""
    config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
    tools: Tools = {}
    for name in task["involved_classes"]:
        backend = getattr(importlib.import_module(config.CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in config.STATELESS_CLASSES:
            backend._load_scenario(copy.deepcopy(task["initial_config"].get(name, {})), long_context=long_context)
        methods = inspect.getmembers(backend, predicate=inspect.ismethod)
        tools |= {name: method for name, method in methods if not name.startswith("_")}
    return tools


class Spoil(ast.NodeTransformer):
    """Replaces the n-th constant of a call by nonsense."""

    def __init__(self, n: int) -> None:
        self.left = n

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Count down to the constant that is to be replaced."""
        self.left -= 1
        if self.left != -1:
            return node
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return ast.copy_location(ast.Constant(-987654 if number else NONSENSE), node)


def spoiled(call: str) -> Iterator[ast.Expression]:
    """The call with each of its constants in turn replaced by nonsense."""
    constants = sum(isinstance(node, ast.Constant) for node in ast.walk(ast.parse(call, mode="eval")))
    for n in range(constants):
        yield ast.fix_missing_locations(Spoil(n).visit(ast.parse(call, mode="eval")))


def copied(tools: Tools) -> Tools:
    """The same tools in the same state, of which nothing is shared."""
    backends = copy.deepcopy({name: method.__self__ for name, method in tools.items()})
    return {name: getattr(backend, name) for name, backend in backends.items()}


def responses() -> Iterator[tuple[bool, str, object]]:
    """Whether it was a gold call, the call, and what the tool answered; calls that raise are left out."""
    for kind, task, calls in gold_plans():
        tools = tools_of(task, kind == "long_context")
        for call in calls:
            for tree in spoiled(call) if kind == "base" else ():
                try:
                    yield False, ast.unparse(tree), eval(compile(tree, call, "eval"), copied(tools))
                except Exception:  # noqa: BLE001 - an error that is raised is no disguised one
                    continue
            yield True, call, eval(call, dict(tools))


def admits(output: object) -> bool:
    """Whether a tool's answer says that the call failed, under whatever name: read by hand, tool by tool."""
    return isinstance(output, dict) and (
        "error" in output
        or output.get("authentication_status") is False
        or (output.get("login_status") is False and "message" in output)
        or (output.get("verification_status") is False and "verification_failure" in output)
    )


def report_outputs(answers: Iterable[tuple[bool, str, object]]) -> Iterator[str]:
    """How often the detector is right, as lines of text."""
    gold: Counter[bool] = Counter()
    failed: Counter[bool] = Counter()
    fine: Counter[bool] = Counter()
    for is_gold, _, output in answers:
        counter = gold if is_gold else failed if admits(output) else fine
        counter[suspect(output) is not None] += 1
    yield f"gold calls: {gold.total()}, false alarms {gold[True]}"
    yield f"spoiled calls whose answer says that they failed: {failed.total()}, found {failed[True]}"
    yield f"spoiled calls that the tool took: {fine.total()}, alarms {fine[True]}"


# --- Envelopes and examples of services -------------------------------------------------------------------------------


def envelopes() -> dict[str, dict[str, Any]]:
    """Errors under status 200 that are found and missed, and results that resemble them, by name."""
    read: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("envelopes.json").read_bytes())
    return read


def examples(value: Any) -> Iterator[object]:
    """The successes in botocore's examples, in Stripe's fixtures, or in an OpenAPI description with examples."""
    for shown in value.get("examples", {}).values() if "operations" not in value else ():
        yield from (one["output"] for one in shown if isinstance(one, dict) and "output" in one)
    yield from value.get("resources", {}).values()
    shared = value.get("components", {}).get("examples", {})
    for operation in (one for path in value.get("paths", {}).values() for one in path.values()):
        for status, answer in operation.get("responses", {}).items():
            for content in answer.get("content", {}).values() if status.startswith("2") else ():
                for one in content.get("examples", {}).values():
                    yield shared.get(one.get("$ref", "").rpartition("/")[2], one).get("value")


def report_examples(files: Iterable[Path]) -> Iterator[str]:
    """How many examples of successes the detector calls errors, and what it finds of errors without a status."""
    told = [suspect(one) for file in files for one in examples(json.loads(_text(file))) if one is not None]
    yield f"examples of successes: {len(told)}, false alarms {sum(one is not None for one in told)}"
    yield from (f"  {one}" for one in told if one is not None)
    for name, shown in envelopes().items():
        found = sum(suspect(one) is not None for one in shown.values())
        yield f"envelopes, {name}: {len(shown)}, called errors {found}"


def _text(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


# --- Command line ----------------------------------------------------------------------------------------------------


def main() -> int:
    """Print the measurement."""
    parser = argparse.ArgumentParser(description="Measure the classifier on errors from the field.")
    parser.add_argument("--wrong", nargs="?", const=HALVES[0], choices=HALVES, help="list what stays wrong in a half")
    parser.add_argument("--outputs", action="store_true", help="measure the detector of disguised errors instead")
    parser.add_argument("--examples", nargs="+", type=Path, metavar="FILE", help="… on successes in JSON files")
    options = parser.parse_args()
    if options.examples:
        print(*report_examples(options.examples), sep="\n")
        return 0
    if options.outputs and not importlib.util.find_spec("bfcl_eval"):
        print("bfcl-eval is not installed: pip install --no-deps bfcl-eval mpmath", file=sys.stderr)
        return 2
    if options.outputs:
        print(*report_outputs(responses()), sep="\n")
        return 0
    folder = os.environ.get("RERAIL_FIELD_DATA")
    if not folder:
        print("RERAIL_FIELD_DATA is not set: it names the folder with the field data", file=sys.stderr)
        return 2
    scores = measure(Path(folder))
    print(*report(scores), *(report_wrong(scores[options.wrong]) if options.wrong else ()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
