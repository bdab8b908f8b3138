"""What is fed with hostile input: each target takes bytes, and returns unless something is wrong.

Rules of this file:
- A target lets those exceptions pass that its callers are told of. Whatever else is raised is a fault of ours, and
  so is an input that takes seconds, or memory without end.
- Nothing here knows how inputs are made: `tests.fuzz.hunt` looks for them, `tests/fuzz/test_corpus.py` replays those
  that are kept.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.mind.tales import TOOLS, Tale, step

from rerail.codes import Category
from rerail.errors import PlanError, SettingsError
from rerail.kernel import codec
from rerail.kernel.policy import Rung
from rerail.mind import judge, repair, replan
from rerail.mind import planning as plan
from rerail.mind import prompt_text as words
from rerail.mind import reflection as reflect
from rerail.mind.questions import QUESTIONS
from rerail.plan.model import Plan
from rerail.plan.references import BadReference, MissingPath, UnknownReference, compile_args, parse, resolve
from rerail.plan.step import Need, names_of
from rerail.plan_files import parse_data
from rerail.ports import Question
from rerail.recovery.classifier import Evidence, classify
from rerail.recovery.coercion import coerce
from rerail.recovery.disguised_errors import suspect
from rerail.settings.loading import Settings, describe, overrides_from
from rerail.values.json_values import NotJson, pack
from rerail.values.patterns import BadPattern, search
from rerail.values.schema import Schema

Target = Callable[[bytes], None]


def plans(data: bytes) -> None:
    """A plan as a YAML or JSON text, in any dialect."""
    with contextlib.suppress(PlanError):
        parse_data(data.decode("utf-8", "surrogateescape"), "the text")
    try:
        found = Plan.load(b"\n" + data)  # the line makes it a text, never the name of a file
    except PlanError:
        return
    for tools in (None, TOOLS):
        for fault in found.check(tools):
            assert str(fault)
            assert fault.said("zh")
    if not found.check():
        msgspec.json.encode(found.to_dict())  # what is free of faults can be written down


def references(data: bytes) -> None:
    """A text with references to steps, and an output for them to point into."""
    text, _, rest = data.decode("utf-8", "surrogateescape").partition("\0")
    steps = [step("a"), step("a.b"), step("read"), step("步骤"), step("x y")]
    output: Any = {
        "text": "t",
        "list": [1, {"n": None}],
        "步": {"": 1e300},
        "rest": rest.encode("utf-8", "replace").decode(),
    }
    names = names_of(steps)
    with contextlib.suppress(BadReference, UnknownReference):
        found = parse(text, names)
        assert str(found) is not None
        template = compile_args({"in": text, "deep": [[text]]}, names)
        with contextlib.suppress(MissingPath):
            resolve(template, lambda _: output)


def events(data: bytes) -> None:
    """One event of a history."""
    try:
        event = codec.decode(data)
    except (codec.Damaged, codec.NewerFormat):
        return
    again = codec.decode(codec.encode(event))
    assert codec.encode(again) == codec.encode(event)


def settings(data: bytes) -> None:
    """A `rerail.toml`, an environment and `--set` pairs, a zero byte between them."""
    toml, _, rest = data.partition(b"\0")
    lines = rest.decode("utf-8", "surrogateescape").split("\n")
    with contextlib.suppress(SettingsError):
        overrides = overrides_from([line for line in lines if "." in line])
        Settings.load(overrides)
    environ = {f"RERAIL_{name}": value for name, _, value in (line.partition("=") for line in lines) if value}
    path = _folder() / "rerail.toml"
    path.write_bytes(toml)
    with contextlib.suppress(SettingsError):
        found, sources = Settings.discover(_folder(), environ)
        describe(found, sources)
        found.policy()
        classify(Evidence(code="E", message="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" * 20), found.patterns())


def answers(data: bytes) -> None:
    """What a model said, as planner, reflector, repairer, replanner or judge."""
    text = data.decode("utf-8", "surrogateescape")
    for kind, role in QUESTIONS.items():
        role.objections(question(kind), text)
    try:
        answer = words.parsed(text)
        words.refuse_odd(answer)
    except words.Unreadable:
        return
    with contextlib.suppress(plan.Unplanned):
        msgspec.json.encode(plan.read("goal", TOOLS, answer))
    written = []
    tale = _failed()
    written += reflect.read(tale.ask("s").state, TOOLS, "s", 1, answer, "m", 1.0)
    written.append(repair.read(_failed().ask("s", Rung.REPAIR).state, TOOLS, "s", 1, answer, "m"))
    state = _failed().state
    state.replan_wanted = True
    written.append(replan.read(state, TOOLS, answer, "m", state.seq))
    written.append(judge.read(_failed().state, answer, "m"))
    for event in written:  # whatever it comes to goes into a history, and is read again
        codec.decode(codec.encode(event))


def schemas(data: bytes) -> None:
    """A JSON schema and a value."""
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(given, Mapping):
        return
    value = given.get("value")
    try:
        schema = Schema(given.get("schema"))
    except ValueError:
        return
    for fault in schema.faults(value):
        assert str(fault)
    mended = coerce(schema, value)
    with contextlib.suppress(NotJson):
        pack(mended)


def patterns(data: bytes) -> None:
    """A regular expression and a text; in a short one, Python's search has to find the same."""
    pattern, _, text = data.decode("utf-8", "replace").partition("\0")
    try:
        found = search(pattern)
        expected = re.compile(pattern)
    except (BadPattern, re.error, RecursionError, OverflowError):
        return
    found(text * 50)
    if text and len(text) <= 6 and len(pattern) <= 40 and not any(map(unicodedata.combining, text)):
        assert found(text) is (expected.search(text) is not None)


def outputs(data: bytes) -> None:
    """What a tool gave back, or how it failed."""
    text = data.decode("utf-8", "surrogateescape")
    classify(Evidence(code=text[:40], message=text, types=(text[:20],)), {Category.TOOL: ["never"]})
    suspect(text)
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = msgspec.json.decode(data)
        suspect(value)
        with contextlib.suppress(NotJson):
            pack(value)


TARGETS: Mapping[str, Target] = {
    target.__name__: target for target in (plans, references, events, settings, answers, schemas, patterns, outputs)
}


def _failed() -> Tale:
    steps = (
        step("0"),
        step("p", "pay", args={"n": 5}),
        step("s", "text", args={"a": "old"}, needs=(Need("0"),)),
        step("after", args={"x": "${s.n}"}),
    )
    return Tale(*steps).succeed("0").succeed("p").fail("s", args={"a": "old"})


_QUESTIONS = {kind: _failed().question(kind, "s") for kind in QUESTIONS}


def question(kind: str) -> Question:
    """A question of that kind about a step that failed."""
    return _QUESTIONS[kind]


_made: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    """A folder for the one file that settings are read from."""
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="rerail-fuzz-"))
    return Path(_made[0].name)
