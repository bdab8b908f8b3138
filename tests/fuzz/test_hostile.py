"""Texts that are made to hurt: too deep, too many, twice, no text at all, numbers that are none (P1, P5, E5, M1)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.errors import PlanError, SettingsError
from rerail.kernel import codec
from rerail.kernel import events as ev
from rerail.mind import prompt_text as words
from rerail.mind.questions import QUESTIONS
from rerail.plan.model import Plan
from rerail.plan.reader import MOST_FOLLOWING, MOST_STEPS
from rerail.settings.loading import Settings, overrides_from

DEEP = 100_000


def steps(args: str) -> str:
    return '{"steps": [{"id": "a", "tool": "t", "args": {"x": ' + args + "}}]}"


def refused(text: Any) -> str:
    with pytest.raises(PlanError) as caught:
        Plan.load(text)
    assert caught.value.code == "PLAN_UNREADABLE"
    assert len(str(caught.value)) < 2_000
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP + "]" * DEEP,
        '{"a":' * DEEP + "1" + "}" * DEEP,
        steps("[" * DEEP + "]" * DEEP),
        "steps: " + "[" * DEEP + "]" * DEEP,
        "steps:\n" + "- " * DEEP + "a",
        "steps:\n" + "? " * DEEP + "a",
        "steps:\n- tool: t\n  args:\n" + "".join(" " * (4 + n) + "a:\n" for n in range(2_000)),
    ],
    ids=["lists", "objects", "args", "yaml flow", "yaml dashes", "yaml keys", "yaml blocks"],
)
def test_plans_of_a_hundred_thousand_levels_are_refused(text: str) -> None:
    """P5: by name, and not by the death of the process."""
    assert "nested too deeply" in refused(text)


def test_few_words_that_stand_for_very_many_are_refused() -> None:
    """P5: aliases of aliases, by value and by merge."""
    values = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    merged = "m0: &m0 {x: 1}\n" + "".join(
        f"m{n}: &m{n} {{<<: [{','.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    for text in (values + "steps: *j", merged + "steps: []"):
        assert "aliases" in refused(text)
    assert refused("steps: &a [*a]")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "1" + "0" * 5000], ids=lambda n: n[:9])
def test_numbers_that_are_none_are_refused_and_do_not_become_texts(number: str) -> None:
    """P1: in JSON they are an error; that YAML would read the same letters as a text helps nobody."""
    refused(steps(number))
    if number[0] == "1":
        return
    yaml = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}[number]
    [fault] = Plan.load(f"steps:\n- {{id: a, tool: t, args: {{x: {yaml}}}}}").check()
    assert fault.code == "BAD_VALUE"


@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), 10**400, float("inf"), float("nan"), "\ud800"],
    ids=lambda v: ascii(v)[:9] if not isinstance(v, int) else f"{v.bit_length()} bits",
)
@pytest.mark.parametrize("name", ["args", "timeout", "retries", "priority", "resources", "title", "id", "tool"])
def test_odd_values_are_faults_wherever_they_stand(name: str, value: Any) -> None:
    """P5: every one is named, none gets through, none raises."""
    given = {"args": {"x": value}, "resources": {"cpu": value}}.get(name, value)
    plan = Plan.load({"steps": [{"id": "a", "tool": "t", name: given}]})
    found = plan.check()
    if value != 10**400 or name not in ("args", "id"):  # a large number is one, as long as it can be written
        assert [fault for fault in found if fault.code in ("BAD_VALUE", "UNKNOWN_KEY")], found
    assert Plan.load({"objective": "\ud800", "steps": [{"id": "a", "tool": "t"}]}).check()
    for fault in found:
        assert len(fault.said("zh")) < 1_000


def test_whole_numbers_of_thousands_of_digits_are_refused_in_yaml() -> None:
    """P1: Python refuses to read them, and so do we, as a plan."""
    refused("steps:\n- {id: a, tool: t, args: {x: 1" + "0" * 5000 + "}}")


@pytest.mark.parametrize(
    "text", ['{"steps": [], "a\ud800": 1}', "steps:\n- tool: \udcff", "\ud800", steps('"\\ud800"')]
)
def test_half_characters_are_refused(text: str) -> None:
    """P1: what cannot be written down is no text."""
    refused(text if "\n" in text or text[0] == "{" else f"\n{text}: 1")


def test_keys_that_are_there_twice_are_refused_at_once() -> None:
    """P5: also among very many, in a time that does not grow with their square."""
    many = ",".join(f'"k{n}": 1' for n in range(100_000))
    assert "'k1' is there twice" in refused('{"steps": [], ' + many + ', "k1": 2}')
    assert "twice" in refused("steps: []\nsteps: []\n")


def test_a_million_steps_are_refused() -> None:
    """E7: before each is looked at; so many as one run takes are read."""
    assert f"{MOST_STEPS:,}" in refused({"steps": [{"tool": "t"}] * 1_000_000})
    assert f"{MOST_STEPS:,}" in refused('{"steps": [' + ",".join(["{}"] * (MOST_STEPS + 1)) + "]}")


@pytest.mark.parametrize("where", ["args", "fallback", "verify"])
def test_arguments_that_contain_themselves_are_a_fault(where: str) -> None:
    """P1, P5: a plan that is built in Python may be such a thing; one that only has the same part twice is fine."""

    def faults(args: dict[str, Any]) -> list[str]:
        step = {"id": "a", "tool": "t", where: args if where == "args" else {"tool": "t", "args": args}}
        return [fault.code for fault in Plan.load({"steps": [step]}).check([rerail.tool(name="t")(lambda **_: 1)])]

    endless: dict[str, Any] = {"x": ["${b}"]}
    endless["x"].append(endless)
    assert "BAD_VALUE" in faults(endless) and "UNKNOWN_REFERENCE" in faults(endless)
    part = {"y": "z"}
    assert "BAD_VALUE" not in faults({"x": part, "w": [part, part]})


def test_bad_references_without_end_are_all_found_and_few_are_shown() -> None:
    """P5: a text that is nothing else takes as long as it is long; the sentence stays one that people read."""
    plan = Plan.load({"steps": [{"id": "a", "tool": "t", "args": {"x": "${}" * 50_000}}]})
    faults = plan.check([])
    assert sum(fault.code in ("BAD_REFERENCE", "UNKNOWN_REFERENCE") for fault in faults) == 50_000
    assert len(str(PlanError("no", faults))) < 20_000


def test_plans_that_follow_plans_without_end_are_a_fault() -> None:
    """P5, T6: as many as anybody could mean are read."""

    def following(count: int) -> dict[str, Any]:
        plan: dict[str, Any] = {"steps": [{"id": "a", "tool": "t"}]}
        for _ in range(count):
            plan = {"steps": [{"id": "a", "tool": "t"}], "follow_up": plan}
        return plan

    assert Plan.load(following(MOST_FOLLOWING)).check() == []
    assert Plan.load(following(MOST_FOLLOWING + 1)).check()
    assert Plan.load(following(5_000)).check()


# -- Histories ----------------------------------------------------------------------------------------------------

SUCCEEDED = b'{"type":"step_succeeded","step":"a","attempt":1,"output":'


@pytest.mark.parametrize(
    "data",
    [
        SUCCEEDED + b"[" * DEEP + b"]" * DEEP + b"}",
        SUCCEEDED + b"1" + b"0" * 5000 + b"}",
        SUCCEEDED + b"NaN}",
        SUCCEEDED + b'"\xff"}',
        b'{"type":["done"]}',
        b'{"type":{"a":1},"v":1}',
        b'{"type":"done","v":-1}',
        b'{"type":"done","v":0}',
        b'{"type":"done"}',
        b"",
        b"[]",
        b"null",
        b"{",
    ],
    ids=lambda data: data[:60].decode("utf-8", "replace"),
)
def test_bytes_that_are_no_event_are_damage(data: bytes) -> None:
    """E5: said so, whatever they are; a newer version is something else."""
    with pytest.raises(codec.Damaged):
        codec.decode(data)
    with pytest.raises(codec.NewerFormat):
        codec.decode(b'{"type":"later","v":9}')


def test_what_is_written_is_read_again() -> None:
    """E1: numbers that 64 bits do not hold included."""
    event = ev.StepSucceeded("a", 1, {"n": 10**300, "m": 5e-324, "s": "\x00￿"})
    assert codec.decode(codec.encode(event)) == event


# -- What models say ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", sorted(QUESTIONS))
@pytest.mark.parametrize(
    "answer",
    [
        '{"a":' + "[" * DEEP + "]" * DEEP + "}",
        '{"a": 1' + "0" * 5000 + "}",
        "{" * 1_000_000,
        "```" * 300_000,
        '{"steps": NaN}',
        '{"reason": "\ud800"}',
        "\ud800" * 1000,
    ],
    ids=["deep", "huge", "braces", "fences", "nan", "half", "halves"],
)
def test_answers_of_models_are_read_or_objected_to(role: str, answer: str) -> None:
    """H5, M1: an answer that cannot be used is told what is wrong with it, and costs no more than that."""
    from tests.fuzz.targets import question

    assert QUESTIONS[role].objections(question(role), answer)
    with contextlib.suppress(words.Unreadable):
        words.refuse_odd(words.parsed(answer))


# -- Settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * DEEP,
        "[run]\nconcurrency = 1" + "0" * 5000,
        "[run]\nconcurrency = nan",
        "[run]\nstep_timeout = nan",
        "[run]\nconcurrency = 1\nconcurrency = 2",
        "[" + "a." * 2_000 + "a]",
    ],
    ids=["deep", "huge", "nan", "nan seconds", "twice", "tables"],
)
def test_settings_that_nobody_could_mean_are_refused(text: str, tmp_path: Path) -> None:
    """SPEC 11: the file is named, and why."""
    (tmp_path / "rerail.toml").write_text(text)
    with pytest.raises(SettingsError):
        Settings.discover(tmp_path, {})


def test_settings_from_the_environment_may_be_no_text() -> None:
    """SPEC 11: bytes that are no UTF-8 reach Python as halves of characters."""
    for value in ("\udcff", '["\udcff"]', "[" * DEEP, "1" + "0" * 5000):
        with pytest.raises(SettingsError):
            Settings.discover(Path("/"), {"RERAIL_SERVER_ALLOW": value})
        with pytest.raises(SettingsError):
            Settings.load(overrides_from([f"run.concurrency={value}"]))


def test_json_is_what_python_writes(tmp_path: Path) -> None:
    """P1: the harness is no stricter than it should be: what is plain loads."""
    plan = {"objective": "o", "steps": [{"id": "a", "tool": "t", "args": {"x": [1, 2.5, None, True, "ü", 10**300]}}]}
    assert Plan.load(json.dumps(plan)).check() == []
