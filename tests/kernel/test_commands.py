"""Commands: one struct each, the same wherever it is encoded (X7, I7, T7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rerail.kernel import commands as cmd
from rerail.kernel import events as ev
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.commands import (
    COMMANDS,
    FORESEEN,
    INTERNAL,
    Command,
    handle,
    options_of,
    preview,
    refusing,
    storable,
)
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Step
from rerail.plan.tool_spec import ToolSpec

TOOLS = {"t": ToolSpec("t")}
# One command of each kind, as a caller would give it.
GIVEN: dict[type[Command], Command] = {
    cmd.Pause: cmd.Pause(by="ann"),
    cmd.Resume: cmd.Resume(by="ann", take_over=True),
    cmd.Cancel: cmd.Cancel(by="ann", reason="enough"),
    cmd.Skip: cmd.Skip(by="ann", step="a", reason="not now"),
    cmd.Confirm: cmd.Confirm(by="ann", step="a", digest="d", args={"n": 1}, edit={"x": b"\x00y"}),
    cmd.Refuse: cmd.Refuse(by="ann", step="a"),
    cmd.Resolve: cmd.Resolve(by="ann", step="a", outcome="succeeded", value={"n": [1]}),
    cmd.Repair: cmd.Repair(by="ann", step="a", args={"n": 2}, remove=["m"], value={"timeout": 3}),
    cmd.Retry: cmd.Retry(by="ann", steps=("a",), force=True),
    cmd.Add: cmd.Add(by="ann", steps=({"id": "b", "tool": "t"},)),
    cmd.RecordNotices: cmd.RecordNotices(value=[ev.Notified("command", "x", True)]),
}


def started() -> State:
    state = State("r")
    for seq, event in enumerate((ev.RunStarted("goal"), ev.PlanAccepted(Plan("goal", (Step("a", "t"),)))), 1):
        evolve(state, event, 1000.0, seq)
    return state


def test_i7_every_command_is_here() -> None:
    """I7: a new one is added to this table, and so to the tests that loop over it."""
    assert set(GIVEN) == set(COMMANDS) and set(INTERNAL) < set(COMMANDS) and set(FORESEEN) < set(COMMANDS)


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
def test_t7_a_command_survives_the_inbox(kind: type[Command]) -> None:
    """T7: as bytes, under the name that histories know it by."""
    given = GIVEN[kind]
    data = msgspec.json.encode(given)
    known = "notified" if kind is cmd.RecordNotices else kind.__name__.lower()
    assert msgspec.json.decode(data)["action"] == given.action == known
    assert msgspec.json.decode(data, type=Command) == given


def test_t7_what_older_processes_wrote_is_read() -> None:
    """T7: the fields of a command in an inbox keep their names; those that are unknown are passed over."""
    old = b'{"action":"skip","by":"ann","step":"a","reason":"why","force":true,"outcome":""}'
    assert msgspec.json.decode(old, type=Command) == cmd.Skip(by="ann", step="a", reason="why")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"action":"nothing"}', type=Command)


def test_i7_the_options_of_a_command_are_described() -> None:
    """I7: who calls, and what only the engine knows, are no options."""
    assert set(options_of(cmd.Confirm)) == {"step", "digest", "ahead", "args"}
    assert set(options_of(cmd.Retry)) == {"steps", "stage", "clean", "force", "take_over"}
    assert not options_of(cmd.Pause) and not options_of(cmd.RecordNotices)


def test_x7_events_of_a_command_carry_its_name() -> None:
    """X7, T7: by its key, or by its place in the inbox where it has none."""
    for more, told in (({"key": "k"}, ("k", 0)), ({"number": 3}, ("", 3)), ({}, ("", 0))):
        [acted] = handle(started(), TOOLS, cmd.Pause(by="ann", **more)).events
        assert isinstance(acted, ev.Acted) and (acted.wish, acted.number) == told


@pytest.mark.parametrize("odd", [cmd.Add(steps=(object(),)), cmd.Skip(step=[])])  # type: ignore[arg-type]
def test_x7_odd_input_is_refused(odd: Any) -> None:
    """X7: and is no trouble of the run's."""
    with pytest.raises((Refusal, Faulty)):
        handle(started(), TOOLS, odd)


def test_x7_what_is_no_json_is_refused() -> None:
    """X7: before it is written down; long words are cut."""
    with pytest.raises(Refusal) as refused:
        storable(cmd.Resolve(step="a", outcome="succeeded", value=object()))
    assert refused.value.code == "VALUE_INVALID"
    kept = storable(cmd.Cancel(by="b" * 300, reason="r" * 3000))
    assert isinstance(kept, cmd.Cancel) and (len(kept.by), len(kept.reason)) == (200, 2000)


def test_x10_a_no_takes_no_edits() -> None:
    """X10: nothing can be changed of a call that is refused."""
    assert refusing(cmd.Confirm(by="ann", step="a")) == cmd.Refuse(by="ann", step="a")
    for edited in (cmd.Confirm(args={"n": 1}), cmd.Confirm(edit={"x": b""}), cmd.Confirm(ahead=True)):
        with pytest.raises(Refusal):
            refusing(edited)


def test_r7_a_preview_changes_nothing_but_its_own_state() -> None:
    """R7: what a skip would lead to."""
    found = preview(started(), TOOLS, cmd.Skip(by="ann", step="a"), 1001.0)
    assert found.becomes == {"a": "skipped"}


def test_x7_nothing_to_add_is_a_fault_of_its_own() -> None:
    """X7, P5: wherever it comes from, the inbox included."""
    empty = msgspec.json.decode(msgspec.json.encode(cmd.Add(steps=())), type=Command)
    with pytest.raises(Faulty) as refused:
        handle(started(), TOOLS, empty)
    assert [fault.code for fault in refused.value.faults] == ["NO_STEPS"]
