"""What the command line says of effects that were assumed (E3)."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Here

TOOLS = """
from rerail import tool

@tool
def sync_rows(): return 1

@tool
def charge(): return 2

@tool(effect="read")
def look(): return 3
"""
SAID = 'assumed repeatable (called again after a failure): charge, sync_rows. Declare it: @rerail.tool(effect="once")'
USED = ({"id": "a", "tool": "sync_rows"}, {"id": "b", "tool": "charge"}, {"id": "c", "tool": "look"})


@pytest.fixture
def plan(here: Here) -> str:
    """A plan that uses both of the tools that declare nothing."""
    (here.place.folder / "mine.py").write_text(TOOLS)
    return here.place.plan(*USED)


def test_e3_check_names_them(here: Here, plan: str) -> None:
    """E3: as a warning, which is no fault; one sentence, those that act first."""
    found = here("check", plan, "--tools", "mine.py", "--json", code=0).json
    assert found["ok"] and [(row["code"], row["message"]) for row in found["warnings"]] == [("EFFECT_ASSUMED", SAID)]
    assert here("check", plan, "--tools", "mine.py", code=0).out.count(SAID) == 1
    assert "假定可重复" in here("check", plan, "--tools", "mine.py", "--lang", "zh", code=0).out


def test_e3_a_run_says_it_once(here: Here, plan: str) -> None:
    """E3: when it starts, beside the answer; the JSON has the names, and looking at the run later says nothing."""
    ran = here("run", plan, "--tools", "mine.py", code=0)
    assert ran.err.count(SAID) == 1 and "assumed" not in ran.out
    quietly = here("run", plan, "--tools", "mine.py", "--json", code=0)
    assert quietly.json["assumed"] == ["charge", "sync_rows"] and quietly.err.count(SAID) == 1
    assert "assumed" not in here("show", quietly.json["run_id"], code=0).err


@pytest.mark.parametrize("how", [(), ("--queue",)])
def test_e3_a_run_that_is_left_to_itself_says_it_at_the_start(here: Here, plan: str, how: tuple[str, ...]) -> None:
    """E3, T8: the command that starts it does."""
    assert here("start", plan, *how, "--tools", "mine.py", code=0).err.count(SAID) == 1


def test_e3_a_plan_that_declares_everything_is_not_spoken_of(here: Here, plan: str) -> None:
    """E3: tools that it does not use are not named."""
    other = here.place.plan({"id": "a", "tool": "look"}, {"id": "b", "tool": "charge", "effect": "once"})
    assert here("check", other, "--tools", "mine.py", "--json", code=0).json["warnings"] == []
    ran = here("run", other, "--tools", "mine.py", "--json", code=0)
    assert ran.json["assumed"] == [] and "assumed" not in ran.err


def test_e3_tools_says_which(here: Here, plan: str) -> None:
    """E3: each beside its effect, all in one sentence, and in the JSON."""
    shown = here("tools", "--tools", "mine.py", code=0)
    assert shown.out.count("repeatable (assumed)") == 2 and shown.err.count(SAID) == 1
    rows = {row["name"]: row["declared"] for row in here("tools", "--tools", "mine.py", "--json", code=0).json}
    assert {name: rows[name] for name in ("sync_rows", "charge", "look")} == {
        "sync_rows": False, "charge": False, "look": True,
    }  # fmt: skip


def test_e3_the_settings_decide(here: Here, plan: str) -> None:
    """E3: a default is no guess; a required one refuses check, run and start alike."""
    default = ("--set", "tools.default_effect=once")
    assert here("check", plan, "--tools", "mine.py", "--json", *default, code=0).json["warnings"] == []
    assert "(assumed)" not in here("tools", "--tools", "mine.py", *default, code=0).out
    required = ("--tools", "mine.py", "--set", "tools.require_effect=true", "--json")
    for command in (("check", plan), ("run", plan), ("start", plan), ("start", plan, "--queue")):
        refused = here(*command, *required, code=2).json
        faults = refused.get("faults") or refused["error"]["faults"]
        assert [(row["code"], row["step"]) for row in faults] == [
            ("EFFECT_UNDECLARED", "a"),
            ("EFFECT_UNDECLARED", "b"),
        ]
