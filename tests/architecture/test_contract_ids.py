"""docs/contract.md is kept: each rule it calls built is named by a test, each scenario is a test of that name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
CONTRACT = ROOT / "docs" / "contract.md"

RULE = r"[PXRHVTMEI]\d+"


def rules(contract: str) -> list[str]:
    """Every rule id, in the order of the page."""
    return re.findall(rf"^- ({RULE}) ", contract, re.MULTILINE)


def section(contract: str, title: str) -> str:
    """The text of the section whose heading ends with the title."""
    parts = re.split(r"^## (.*)$", contract, flags=re.MULTILINE)
    return next(body for head, body in zip(parts[1::2], parts[2::2], strict=True) if head.endswith(title))


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in {"section", "name"}]


def built(contract: str) -> list[str]:
    """The ids that the last section promises, in full or in part."""
    return [rule for row in rows(section(contract, "What is built")) for rule in re.findall(rf"\b{RULE}\b", row[1])]


def scenarios(contract: str) -> list[str]:
    """The scenarios that hold in this version: the named ones without those that the last section puts off."""
    named = [n for row in rows(section(contract, "(tests carry these names)")) for n in row[0].split(", ")]
    later = next(row[2] for row in rows(section(contract, "What is built")) if row[0].endswith("Named scenarios"))
    put_off = re.findall(r"[a-z][a-z-]+", later)
    unknown = sorted(set(put_off) - set(named))
    assert not unknown, f"put off, but no scenario: {unknown}"
    return [name for name in named if name not in put_off]


def unnamed_rules(ids: Iterable[str], tests: str) -> list[str]:
    """The ids that no test names."""
    return [rule for rule in ids if not re.search(rf"\b{rule}\b", tests)]


def untested_scenarios(names: Iterable[str], tests: str) -> list[str]:
    """The tests that should exist, one per scenario, and do not."""
    wanted = [f"test_{name.replace('-', '_')}" for name in names]
    return [test for test in wanted if not re.search(rf"^\s*(?:async )?def {test}\(", tests, re.MULTILINE)]


@pytest.fixture(scope="module")
def contract() -> str:
    """The contract's text."""
    return CONTRACT.read_text("utf-8")


@pytest.fixture(scope="module")
def tests() -> str:
    """All test code but this file, which names nothing it proves."""
    files = sorted(path for path in TESTS.rglob("*.py") if path != Path(__file__).resolve())
    return "\n".join(path.read_text("utf-8") for path in files)


EXAMPLE = """
## 1. Plans
- P1 One.
- P2 Two.
## 13. Named scenarios that must hold (tests carry these names)
| name | story | must give |
|---|---|---|
| chain | a | b |
| limit, stale-lock | a | b |
## 14. What is built
| section | built | later |
|---|---|---|
| 1. Plans | P1 (half) | P2 |
| 13. Named scenarios | all others | limit |
"""


def test_the_checker_lists_what_is_missing() -> None:
    """On a small contract with no tests, everything promised is reported, and nothing that is put off."""
    assert rules(EXAMPLE) == ["P1", "P2"]
    assert built(EXAMPLE) == ["P1"]
    assert scenarios(EXAMPLE) == ["chain", "stale-lock"]
    assert unnamed_rules(built(EXAMPLE), "def test_x():  # P11, XP1") == ["P1"]
    assert unnamed_rules(built(EXAMPLE), '"""P1: a plan is data."""') == []
    wanted = untested_scenarios(scenarios(EXAMPLE), "def test_chain_two(): ...\n# test_chain()\n")
    assert wanted == ["test_chain", "test_stale_lock"]
    assert untested_scenarios(["chain", "a-b"], "def test_chain():\n    async def test_a_b(x):") == []


def test_rule_ids_are_complete_and_unique(contract: str) -> None:
    """Each letter counts from 1 without a gap, but for ids that are kept free: no rule can vanish unnoticed."""
    numbers: dict[str, list[int]] = {}
    for rule in rules(contract):
        numbers.setdefault(rule[0], []).append(int(rule[1:]))
    free = {"E": {8, 9}, "I": {9, 10, 11, 12}}
    for letter, found in numbers.items():
        assert found == [number for number in range(1, found[-1] + 1) if number not in free.get(letter, ())]
    assert {letter: len(found) for letter, found in numbers.items()} == {
        "P": 7, "X": 10, "R": 7, "H": 10, "V": 8, "T": 12, "M": 4, "E": 9, "I": 9,
    }  # fmt: skip


def test_the_last_section_speaks_of_every_rule(contract: str) -> None:
    """A rule is built or put off; none is forgotten, none is invented."""
    told = re.findall(rf"\b{RULE}\b", section(contract, "What is built"))
    assert set(told) == set(rules(contract))


def test_every_built_rule_is_named_by_a_test(contract: str, tests: str) -> None:
    """Tests carry the ids of the rules that they prove."""
    assert built(contract)
    missing = unnamed_rules(built(contract), tests)
    assert not missing, f"no test names these rules: {' '.join(missing)}"


def test_every_scenario_has_a_test_of_its_name(contract: str, tests: str) -> None:
    """The story a user was promised is a test that can be found by its name."""
    assert scenarios(contract)
    missing = untested_scenarios(scenarios(contract), tests)
    assert not missing, f"these tests are missing: {' '.join(missing)}"
