"""No sentence for people stands outside the catalogue (T12): refusals, hints and faults are asked for by key."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rerail
from rerail.core.refusals import REFUSALS
from rerail.core.texts import TEXTS, Told, retold, tell
from rerail.core.texts_notify import NOTIFY

SOURCE = Path(rerail.__file__).parent
# What callers catch and people read; the tests of the command line look after its own sentences.
SPEAKING = {
    "Refusal", "Refused", "StoreError", "PlanError", "SettingsError", "RerailError", "Unusable", "Unavailable", "Ended",
    "Unreadable", "Fault", "CannotOpen",
}  # fmt: skip
# Words for models and parts of what is recorded as data, and the phrases of the schema checker: English, like JSON.
DATA = {"mind/words.py", "adapters/models/failures.py", "adapters/models/roles.py", "adapters/models/wire.py"}
PHRASES = {"core/schema.py", "core/schema_problems.py"}
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if "demo" not in path.parts and "testing" not in path.parts]
SPOKEN = [path for path in FILES if path.relative_to(SOURCE).as_posix() not in DATA | PHRASES]


def literal(node: ast.expr) -> bool:
    """Whether an expression is a sentence of its own: a text with a blank in it, or one with gaps."""
    if isinstance(node, ast.JoinedStr):
        first = node.values[0]
        if isinstance(first, ast.Constant) and str(first.value).startswith("rerail "):
            return False  # a command to type is the same in every language
        return any(isinstance(part, ast.Constant) and " " in str(part.value).strip() for part in node.values)
    if isinstance(node, ast.IfExp):
        return literal(node.body) or literal(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(literal(value) for value in node.values)
    if isinstance(node, ast.BinOp):
        return literal(node.left) or literal(node.right)
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return " " in text.strip() and not text.startswith("rerail ")


def spoken(tree: ast.AST) -> list[int]:
    """The lines where an exception or a fault is given a sentence that is not in the catalogue."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPEAKING:
            given = [*node.args, *(word.value for word in node.keywords if word.arg in ("hint", "message"))]
            found += [node.lineno for value in given if literal(value)]
        if isinstance(node, ast.Assign) and literal(node.value):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            found += [node.lineno for name in names if name in ("hint", "who", "problem_said")]
    return found


@pytest.mark.parametrize("path", SPOKEN, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_sentence_stands_outside_the_catalogue(path: Path) -> None:
    """T12: what people read is asked for by key, so that it can be said in another language."""
    assert spoken(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_the_rule_sees_what_it_forbids() -> None:
    """T12: the check can fail."""
    assert spoken(ast.parse('raise Refused(f"run {run} is not there", "X")')) == [1]
    assert spoken(ast.parse('raise Refused(tell("k"), "X", hint="use: rerail ls")')) == [1]
    assert spoken(ast.parse('raise Refused(tell("k"), "X", hint=tell("h"))')) == []


def asked() -> set[str]:
    """The keys of refusals that the code asks for."""
    keys = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                keys.add(node.value)
    return keys


def test_every_refusal_is_asked_for_and_every_key_exists() -> None:
    """T12: no key is missing, none is left over."""
    keys = asked()
    assert not [key for key in REFUSALS if key not in keys]
    spoken_of = {f"cli.line.{key}" for key in keys} | keys  # the lines of `logs` are asked for by their last part
    assert not [key for key in NOTIFY if key not in spoken_of]
    assert all(set(said) == {"en", "zh"} for said in NOTIFY.values())
    wanted = {key for key in keys if key.startswith(("refuse.", "hint.")) and " " not in key}
    assert not [key for key in wanted if key not in TEXTS]


def test_a_sentence_can_be_said_again_in_another_language() -> None:
    """T12: English as text, and Chinese for whoever asks."""
    told = tell("refuse.plan.more_faults", count=3)
    assert isinstance(told, Told) and told == "… and 3 more"
    assert retold(told, "zh") == "……另有 3 处"
    assert type(retold("plain", "zh")) is str
