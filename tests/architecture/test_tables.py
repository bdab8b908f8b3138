"""What is listed in several places is listed in all of them: event types, rungs, actions.

Each table either has a row for each of them, or stands here with those that it has none for, on purpose. A new event
type, rung or action makes these tests fail until every table has been thought of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pytest

import rerail
from rerail.cli.command_table import COMMANDS
from rerail.cli.display import live
from rerail.cli.shell import prompt
from rerail.i18n import catalogue, languages
from rerail.kernel import events as ev
from rerail.kernel import failure_memory, fold, policy
from rerail.kernel import ladder as recover
from rerail.kernel.commands import NUMBERED, Command
from rerail.kernel.policy import Rung
from rerail.mind import reflection
from rerail.server.app import PREFIX, Files, described, make_api
from rerail.server.mcp import server as mcp
from rerail.server.state import ServerState
from rerail.views import narration
from rerail.views.replay import recorded_answers

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(rerail.__file__).parent

EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(ev.Event)}
TAGS = {str(kind.__struct_config__.tag) for kind in EVENTS.values()}
RUNGS = {str(rung) for rung in Rung}


def read(path: str) -> str:
    """A file of the project."""
    return (ROOT / path).read_text("utf-8")


def page_texts(lang: str, head: str) -> set[str]:
    """The names below a head in the page's texts: `event.` → run_started, …"""
    return set(re.findall(rf'^  "{re.escape(head)}([\w.]+)":', read(f"web/src/texts/{lang}.ts"), re.MULTILINE))


# -- Event types ------------------------------------------------------------------------------------------------------

# Tables keyed by the type: what they leave out.
KEYED: dict[str, tuple[dict[type, Any], set[type]]] = {
    "fold": (fold.FOLDS, set()),
    "narration": (narration.NARRATE, set()),
}


@pytest.mark.parametrize("name", sorted(KEYED))
def test_an_event_type_has_its_row(name: str) -> None:
    """I2: in every table by the type, or is left out there on purpose."""
    table, without = KEYED[name]
    assert set(table) | without == set(EVENTS.values())
    assert not set(table) & without, "has a row now: take it off the list"


# Readers that tell types apart one by one: which types they name nowhere. A type that a reader handles by what all
# events have (a step's id, say) is passed over, too.
READERS: dict[str, str] = {
    "views/live_run.py": """
        RunStarted PlanAccepted PlanRejected GateOpened StepProgress StepSkipped StepKept StepRenewed QuestionAsked
        Consulted Declined ArtifactCreated ArtifactLost RetryDone Evaluation Waiting Resumed Cancelled Stopped
        Notified CleanupBegun Audited
    """,
    "views/chat_messages.py": """
        RunStarted PlanAccepted PlanRejected GateOpened StepKept StepRenewed QuestionAsked Consulted Declined RetryDone
        Evaluation Waiting Resumed Notified CleanupBegun Audited
    """,
    "views/attempts.py": """
        RunStarted PlanRejected GateOpened StepSkipped StepKept StepRenewed QuestionAsked Consulted Declined
        ArtifactCreated ArtifactLost RetryDone Evaluation Waiting Resumed Cancelled Stopped Done Notified CleanupBegun
        Audited
    """,
    "views/replay/recorded_answers.py": """
        RunStarted PlanAccepted ArtifactLost CleanupBegun Audited
    """,
    "adapters/telemetry.py": """
        PlanAccepted PlanRejected GateOpened StepVerified StepKept StepRenewed RetryScheduled QuestionAsked Declined
        ArtifactCreated ArtifactLost RetryBegin RetryDone Replanned Evaluation Resumed Cancelled Stopped CleanupBegun
        Audited
    """,
    "cli/display/run_view.py": """
        RunStarted PlanAccepted PlanRejected GateOpened StepSkipped StepKept StepRenewed Reflected QuestionAsked
        Consulted Declined ArtifactCreated ArtifactLost RetryDone Replanned Evaluation Waiting Resumed Cancelled Stopped
        Done Notified CleanupBegun
        Audited
    """,
}


def named(source: str) -> set[str]:
    """The event types that a module names."""
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.Name)
    } & set(EVENTS)


@pytest.mark.parametrize("file", sorted(READERS))
def test_a_reader_of_events_names_a_type_or_passes_it_over(file: str) -> None:
    """I2: nobody forgets a type; each is named in the reader, or listed here as passed over."""
    passed, seen = set(READERS[file].split()), named((SOURCE / file).read_text("utf-8"))
    assert passed | seen == set(EVENTS), f"missing: {' '.join(sorted(set(EVENTS) - passed - seen))}"
    assert not passed & seen, f"named now, so take them off the list: {passed & seen}"


# Sets of event types: the types that each one leaves out.
EVENT_SETS: dict[str, tuple[Iterable[type], str]] = {
    "live.QUIET": (
        live.QUIET,
        """
        RunStarted PlanRejected GateOpened StepStarted StepProgress StepSucceeded StepFailed StepVerified StepSkipped
        RetryScheduled Reflected Recovered QuestionAsked Consulted Declined ArtifactLost RetryBegin Replanned
        CleanupBegun Waiting Resumed Acted Cancelled Stopped Done Notified Audited
        """,
    ),
    "prompt.ESSENTIAL": (
        prompt.ESSENTIAL,
        """
        PlanAccepted GateOpened StepStarted StepProgress StepSucceeded StepVerified StepSkipped StepKept StepRenewed
        RetryScheduled QuestionAsked Consulted Declined ArtifactCreated RetryDone CleanupBegun Evaluation Acted
        Notified Audited
        """,
    ),
    "commands.NUMBERED": (
        NUMBERED,
        """
        RunStarted PlanAccepted PlanRejected GateOpened StepStarted StepProgress StepSucceeded StepFailed StepVerified
        StepSkipped StepKept StepRenewed RetryScheduled Reflected Recovered QuestionAsked Consulted Declined
        ArtifactCreated ArtifactLost RetryBegin RetryDone Replanned CleanupBegun Evaluation Waiting Stopped Done
        Notified Audited
        """,
    ),
    "recorded_answers": (
        (*recorded_answers._ANNOUNCED, *recorded_answers._DECIDED, *recorded_answers._MINDS_WORDS),
        """
        RunStarted PlanAccepted StepSucceeded StepFailed StepVerified StepSkipped ArtifactLost RetryBegin CleanupBegun
        Resumed Acted Cancelled Audited
        """,
    ),
}


@pytest.mark.parametrize("name", sorted(EVENT_SETS))
def test_an_event_type_is_in_a_set_or_left_out(name: str) -> None:
    """I2: each set of event types holds a type, or leaves it out here on purpose."""
    members, without = {kind.__name__ for kind in EVENT_SETS[name][0]}, set(EVENT_SETS[name][1].split())
    assert members | without == set(EVENTS), f"missing: {' '.join(sorted(set(EVENTS) - members - without))}"
    assert not members & without, "is in the set now: take it off the list"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_has_a_word_for_every_event_type(lang: str) -> None:
    """I2: and for none that is not there."""
    assert page_texts(lang, "event.") == TAGS


def test_the_contract_names_every_event_type() -> None:
    """I2: the canonical ones, and those beside them."""
    [rule] = re.findall(r"^- I2 .*?(?=^- )", read("docs/contract.md"), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", rule)) >= TAGS


# -- Rungs ------------------------------------------------------------------------------------------------------------

ENDS = {"doubt", "fail"}  # where nothing more is tried


def test_a_rung_has_its_rows() -> None:
    """H3: a function unless it is an end, a place in a ladder, words in every language."""
    assert {str(rung) for rung in recover.RUNGS} == RUNGS - ENDS
    assert {str(rung) for ladder in policy.LADDER.values() for rung in ladder} == RUNGS - ENDS
    for texts in map(catalogue, languages()):
        assert {key.rpartition(".")[2] for key in texts if key.startswith("line.rung.")} == RUNGS


def test_a_rung_is_folded() -> None:
    """H3: what taking it changes, each named in the fold; a retry and a skip are events of their own."""
    folded = set(re.findall(r"Rung\.([A-Z]+)", (SOURCE / "kernel/fold.py").read_text("utf-8")))
    assert folded == {rung.name for rung in Rung} - {"RETRY", "SKIP"}


# Sets of rungs: the rungs that each one leaves out.
RUNG_SETS: dict[str, tuple[Iterable[Rung], str]] = {
    "policy.WITHOUT_REFLECTION": (policy.WITHOUT_REFLECTION, "ADJUST ALTERNATIVE PRODUCER REPAIR REPLAN DOUBT FAIL"),
    "policy.NEEDS_RECOVERABLE": (policy.NEEDS_RECOVERABLE, "FALLBACK SKIP REPLAN DOUBT FAIL"),
    "ladder.ENDLESS": (recover.ENDLESS, "PRODUCER REPAIR FALLBACK SKIP REPLAN DOUBT FAIL"),
    "ladder.AFTER_FALLBACK": (recover.AFTER_FALLBACK, "RETRY ADJUST ALTERNATIVE PRODUCER REPAIR FALLBACK DOUBT FAIL"),
    "ladder.OF_THE_PLAN": (recover.OF_THE_PLAN, "RETRY ADJUST ALTERNATIVE PRODUCER FALLBACK SKIP DOUBT FAIL"),
    "fold.CHANGED": (fold.CHANGED, "RETRY PRODUCER SKIP REPLAN DOUBT FAIL"),
    "fold.CHOSEN": (fold.CHOSEN, "RETRY PRODUCER FALLBACK SKIP REPLAN DOUBT FAIL"),
    "failure_memory.LEARNT": (failure_memory.LEARNT, "PRODUCER FALLBACK SKIP REPLAN DOUBT FAIL"),
    "recorded_answers._ACTS": (recorded_answers._ACTS, "RETRY REPAIR SKIP REPLAN DOUBT FAIL"),
    "reflection.ACTIONS": (set(reflection.ACTIONS.values()), ""),
}


@pytest.mark.parametrize("name", sorted(RUNG_SETS))
def test_a_rung_is_in_a_set_or_left_out(name: str) -> None:
    """H3: each set of rungs holds a rung, or leaves it out here on purpose."""
    members, without = {rung.name for rung in RUNG_SETS[name][0]}, set(RUNG_SETS[name][1].split())
    assert members | without == {rung.name for rung in Rung}
    assert not members & without, "is in the set now: take it off the list"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_has_a_word_for_every_rung(lang: str) -> None:
    """H3."""
    assert page_texts(lang, "rung.") == RUNGS


# -- Actions ----------------------------------------------------------------------------------------------------------


NO_ACTION = {"notified"}  # a note of a process that told people, not an action
PART_OF = {"refuse": "confirm"}  # an option of another action
ACTIONS = {str(kind.__struct_config__.tag) for kind in get_args(Command)} - NO_ACTION
WISHED = {PART_OF.get(action, action) for action in ACTIONS}


def test_an_action_is_a_command() -> None:
    """I7: by its own name."""
    assert set(COMMANDS) >= WISHED


def test_an_action_is_a_route() -> None:
    """I7: by its own name."""
    paths = described(make_api(ServerState(rerail.Engine("memory://")), Files()))["paths"]
    acts = {path.rpartition("/")[2] for path, methods in paths.items() if path.startswith(f"{PREFIX}/runs/{{run}}/")
            and "post" in methods}  # fmt: skip
    assert acts == WISHED


def test_an_action_is_a_tool_of_the_mcp_server() -> None:
    """I7: by its own name, with what it acts on."""
    acting = {name for name, offer in mcp._OFFERS.items() if not offer.annotations.read_only_hint}
    acting -= {"run_plan", "start_plan"}
    assert {re.sub(r"_(run|step|steps)$", "", name) for name in acting} == WISHED


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_has_a_word_for_every_action(lang: str) -> None:
    """I7: the page offers all of them."""
    assert page_texts(lang, "action.") >= WISHED


# -- Other lists that are kept twice ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("kind", "head"), [(rerail.Status, "status."), (rerail.RunStatus, "status.")])
def test_the_page_has_a_word_for_every_status(kind: type[StrEnum], head: str, lang: str) -> None:
    """V1: of steps and of runs."""
    assert page_texts(lang, head) >= {str(status) for status in kind}
