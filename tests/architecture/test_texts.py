"""Every sentence for people stands in the catalogue, in both languages, and none outside of it (T12)."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.i18n import Told, languages, retold, say, tell
from rerail.i18n.files import ENDING, FOLDER

SOURCE = Path(rerail.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
CATALOGUES = {lang: json.loads(Path(FOLDER, lang + ENDING).read_text("utf-8")) for lang in languages()}
KEYS = {key for texts in CATALOGUES.values() for key in texts}
TEXTS = {key: {lang: texts[key] for lang, texts in CATALOGUES.items() if key in texts} for key in KEYS}
NAMED = {path.relative_to(SOURCE).as_posix(): path for path in FILES}

# -- What the catalogue holds -------------------------------------------------------------------------------------

CHINESE = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")  # characters and their punctuation
GAP = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
# Nothing to translate: only gaps and signs, or a command and the names of settings.
THE_SAME = {
    "schema.kind.schema",
    "tool.kind.future",
}


# The contract fixes the Chinese to the letter, and it says less.
FIXED = {"notice.worker.residual", "report.retry.damaged", "report.retry.logs"}
# Said in these words in Chinese only; in any other language the refusal's own sentence is.
ONLY_CHINESE = {"report.refused.NOT_RETRYABLE", "report.refused.RETRY_LIMIT", "report.refused.RUN_LIVE"}


def fields(sentence: str) -> set[str]:
    """The gaps of a sentence."""
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def filled(sentence: str, number: int) -> dict[str, Any]:
    """Something for each gap: a number where one is formatted, else a word."""
    parsed = [(name, spec) for _, name, spec, _ in string.Formatter().parse(sentence) if name is not None]
    return {name: number if spec and spec[0] != "." else f"w{at}" for at, (name, spec) in enumerate(parsed)}


@pytest.mark.parametrize("lang", languages())
def test_a_catalogue_is_easy_to_compare(lang: str) -> None:
    """T12: one line for each key, sorted, and characters as they are read."""
    texts = CATALOGUES[lang]
    assert set(texts) - set(CATALOGUES["en"]) <= ONLY_CHINESE
    written = json.dumps(dict(sorted(texts.items())), ensure_ascii=False, indent=2) + "\n"
    assert Path(FOLDER, lang + ENDING).read_text("utf-8") == written


@pytest.mark.parametrize("key", sorted(TEXTS.keys() - ONLY_CHINESE))
def test_a_sentence_is_there_in_both_languages(key: str) -> None:
    """T12: English and Chinese, with the same gaps, and both can be said."""
    entry = TEXTS[key]
    assert {"en", "zh"} <= set(entry)
    assert fields(entry["en"]) == fields(entry["zh"]) or key in FIXED
    for number in (1, 2000):
        values = {**filled(entry["zh"], number), **filled(entry["en"], number)}
        for lang in entry:
            assert fields(entry[lang]) <= fields(entry["en"])
            assert (entry[lang] == "") == (say(key, lang, **values) == "")
    assert not CHINESE.search(entry["en"])
    own = re.sub(r"[\W\d_]", "", GAP.sub("", entry["zh"]), flags=re.ASCII)
    assert CHINESE.search(entry["zh"]) or not own or key in THE_SAME, "left in English"


def test_what_is_the_same_in_both_is_listed_for_a_reason() -> None:
    """T12: the list of exceptions holds no key that is gone or translated."""
    assert not [key for key in THE_SAME if key not in TEXTS]
    assert not [key for key in THE_SAME if CHINESE.search(TEXTS[key]["zh"])]


# -- Who asks for it ----------------------------------------------------------------------------------------------

TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in NAMED.items()}


def words(tree: ast.AST) -> Iterator[str]:
    """The texts and the names in a file, of which keys are made."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def families(tree: ast.AST) -> Iterator[str]:
    """What keys begin with whose rest is computed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            begin = str(node.values[0].value)
            if re.fullmatch(r"[a-z_]+\.(?:[a-z_]+\.)*", begin):
                yield begin


WORDS = {word for tree in TREES.values() for word in words(tree)}
FAMILIES = {family for tree in TREES.values() for family in families(tree)}
# Data: the steps of the demo's plan, the rungs and the questions are named in files that are not code, or by enums.
ELSEWHERE = set(re.findall(r"id: (\w+)", (SOURCE / "demo" / "plan.yaml").read_text("utf-8")))
# Stages are named by plans; those of the staged task have names that sentences can hold.
STAGED = SOURCE.parents[1] / "examples" / "generation_task" / "pipeline.yaml"
ELSEWHERE |= set(re.findall(r"stage: (\w+)", STAGED.read_text("utf-8")))


def is_asked_for(key: str) -> bool:
    """Whether code asks for a key: by its name, or by a family and names that stand in the code."""
    if key in WORDS:
        return True
    rests = [key.removeprefix(family) for family in FAMILIES if key.startswith(family)]
    return any(rest in WORDS or all(part in WORDS | ELSEWHERE for part in rest.split(".")) for rest in rests)


def test_every_sentence_is_asked_for() -> None:
    """T12: none is left over."""
    assert not [key for key in TEXTS if not is_asked_for(key)]
    assert not is_asked_for("refuse.run.nobody_asks_for_this")


def asked(tree: ast.AST) -> Iterator[str]:
    """The keys that a file asks for by name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name not in ("say", "tell"):
            continue
        first = node.args[0]
        for given in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield given.value


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_key_exists(name: str) -> None:
    """T12: what is asked for is there."""
    assert not [key for key in asked(TREES[name]) if key not in TEXTS]


def test_the_search_for_keys_sees_them() -> None:
    """T12: the check can fail."""
    assert list(asked(ast.parse('say("a" if x else "b", lang); out.say("c"); tell("d", e="f")'))) == [
        "a",
        "b",
        "c",
        "d",
    ]


# -- No sentence outside ------------------------------------------------------------------------------------------

# Files that hold words which are no messages for people, each with the reason.
NOT_FOR_PEOPLE = {
    "__init__.py": "an AttributeError, as Python words it",
    "adapters/executors/processes/guardian.py": "a script for the shell",
    "adapters/models/pydantic_ai.py": "words for models, and pieces of a library's messages that are cut out",
    "adapters/telemetry.py": "names of spans, as the conventions want them",
    "adapters/stores/memory.py": "what the store port raises: the engine catches it and says it in words of its own",
    "adapters/stores/postgres/store.py": "SQL, and what the store port raises",
    "adapters/stores/postgres/maintenance.py": "SQL, and what the store port raises",
    "adapters/stores/postgres/connection.py": "SQL, and what the store port raises",
    "adapters/stores/redis/store.py": "what the store port raises",
    "adapters/stores/remote.py": "what the store port raises",
    "adapters/stores/sqlite/store.py": "SQL, and what the store port raises",
    "adapters/stores/sqlite/maintenance.py": "SQL, and what the store port raises",
    "adapters/tools/mcp/client.py": "pieces of the protocol's messages that are recognised",
    "recovery/classifier.py": "patterns of other people's errors",
    "adapters/models/endpoints.py": "names of providers",
    "adapters/stores/shared.py": "what the store port raises",
    "codes.py": "what codes mean, for the page that lists them",
    "kernel/commands.py": "the description of commands, for programmers and agents",
    "recovery/coercion.py": "an exception that does not leave the file",
    "kernel/ladder.py": "patterns of other people's errors",
    "recovery/disguised_errors.py": "patterns of other people's errors",
    "demo/tools.py": "titles of books",
    "i18n/__init__.py": "a TypeError for whoever writes an event type",
    "mind/questions.py": "words for models",
    "mind/prompt_text.py": "words for models",
    "ports.py": "what the store port raises",
    "server/routes/commands.py": "the description of the API, for programmers",
    "server/app.py": "the description of the API, for programmers",
    "server/routes/read.py": "the description of the API, for programmers",
    "server/mcp/server.py": "descriptions for the agents that call",
    "server/security.py": "policies for browsers",
    "server/schemas.py": "the description of the API, for programmers",
    "server/routes/streams.py": "the description of the API, for programmers",
}
TESTING = "testing/"  # for those who write tests
STYLE = re.compile(r"(?:bold|dim|italic|underline)(?: \w+)+")
COMMAND = re.compile(r"\s*(?:rerail|pip install) .*|\s*classDef .*")
SHAPE = re.compile(r'\{.*\}|"?<.*|text/.*', re.DOTALL)  # of a mapping, of markup, of a media type
SENTENCE = re.compile(r"[A-Za-z'’]{2,}[,;:]? (?:a |I )?[a-z'’]{2,}")


def shown(node: ast.expr) -> str:
    """A text with its gaps closed."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def sentences(tree: ast.AST) -> list[tuple[int, str]]:
    """The texts in a file that read like a sentence: two words or more, no docstring, no command, no part of a key."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            skipped |= {id(part.value) for part in body if isinstance(part, ast.Expr)}  # of fields as well
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in skipped:
            text = shown(node)
            plain = any(kind.fullmatch(text) for kind in (STYLE, COMMAND, SHAPE)) or text in TEXTS
            if SENTENCE.search(text) and not plain:
                found.append((node.lineno, text))
    ends = {key.split(".", 1)[1] for key in TEXTS}
    return [(line, text) for line, text in found if text not in ends]


@pytest.mark.parametrize("name", sorted(name for name in NAMED if not name.startswith(TESTING)))
def test_no_sentence_stands_outside_the_catalogue(name: str) -> None:
    """T12: what people read is asked for by key, so that it can be said in another language."""
    found = sentences(TREES[name])
    if name in NOT_FOR_PEOPLE:
        assert found, "nothing of that kind is there any more: take the file off the list"
    else:
        assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'raise Refused(f"run {run} is not there", "X")',
        'raise ToolError("the host is down")',
        'out.print("no runs yet")',
        'out.note(Text("nothing was done", "dim"))',
        'parser.add_argument("--x", help="do not wait")',
        'hint = "load the tools first"',
        'return Answer(failed="nobody is there")',
        'words = f"{step}: called again" if again else ""',
    ],
)
def test_the_rule_sees_what_it_forbids(code: str) -> None:
    """T12: the check can fail, wherever the sentence stands."""
    assert [line for line, _ in sentences(ast.parse(code))] == [1]


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """A plain sentence about it."""',
        'raise Refused(tell("refuse.run.no_such_run", run=run), "X", hint=f"rerail why {run} {step}")',
        'Text("", "bold red")',
        'say("stale.definition changed")',
    ],
)
def test_the_rule_leaves_the_rest_alone(code: str) -> None:
    """T12: docstrings, commands, styles and keys are no messages."""
    assert sentences(ast.parse(code)) == []


# -- Saying it again ----------------------------------------------------------------------------------------------


def test_a_sentence_can_be_said_again_in_another_language() -> None:
    """T12: English as text, and Chinese for whoever asks."""
    told = tell("refuse.plan.more_faults", count=3)
    assert isinstance(told, Told) and told == "… and 3 more"
    assert retold(told, "zh") == "……另有 3 处"
    assert type(retold("plain", "zh")) is str


def test_sentences_inside_of_a_sentence_are_said_in_its_language() -> None:
    """T12: as values, as exceptions, as text, and deeper."""
    inner = tell("schema.required.argument", name='"to"')
    outer = tell("refuse.plan.bad_args", where="", name="send", message=inner)
    assert retold(outer, "zh") == "工具 'send' 的 args：缺少必需的参数 \"to\""
    assert retold(str(outer), "zh") == str(outer)
    assert retold(tell("refuse.run.value_invalid", error=ValueError(tell("reason.no_number", item="nan"))), "zh") == (
        "该值不是 JSON：nan 不是 JSON 数"
    )
