"""Tools that were changed since a run began, and stores of newer versions: the command line says so (E5)."""

from __future__ import annotations

import contextlib
import signal
import sqlite3

import pytest
from tests.cli.conftest import Here, Place

FIRST, SECOND = "    return {'v': 1}\n", "    return {'v': 2}\n"
TOOLS = f"""
import asyncio
from pathlib import Path

import rerail

HERE = Path(__file__).parent


@rerail.tool
async def number() -> dict[str, int]:
{FIRST}

@rerail.tool
async def double(value: int, ctx: rerail.Context) -> int:
    (HERE / "begun").write_text("")
    while not (HERE / "there").exists():
        if (HERE / "fails").exists():
            raise rerail.ToolError("not there", category="tool_error")
        await asyncio.sleep(0.01)
    return 2 * value
"""
STEPS = ({"id": "a", "tool": "number"}, {"id": "b", "tool": "double", "args": {"value": "${a.v}"}})
KEPT = "done by a tool that has changed since, and kept: a"


@pytest.fixture
def plan(place: Place) -> str:
    """A plan whose second step waits for a file, and its tools."""
    (place.folder / "changing.py").write_text(TOOLS)
    return place.plan(*STEPS)


def change(place: Place) -> None:
    """Somebody writes the first tool anew; and the second one has what it waits for."""
    (place.folder / "changing.py").write_text(TOOLS.replace(FIRST, SECOND))
    place.touch("there")


def stale(here: Here, run: str) -> dict[str, str | None]:
    """Which steps are said to be out of date, and why."""
    rows = here("show", run, "--json", code=0).json["steps"]
    return {name: row["stale"] for name, row in rows.items()}


def test_resume_names_the_steps_whose_tool_changed_and_keeps_them(place: Place, here: Here, plan: str) -> None:
    """E5: a run that was killed goes on with today's tools; what was done is kept, marked, and told of everywhere."""
    process = place.spawn("run", plan, "--tools", "changing.py")
    place.until((place.folder / "begun").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    change(place)
    run = here.only()
    done = here("resume", run, code=0)
    assert KEPT in done.err
    assert "Kept, and maybe out of date\n  ◐ a  definition changed" in done.out
    assert "1 of 2 steps out of date" in done.out
    assert stale(here, run) == {"a": "definition changed", "b": None}
    assert here("show", run, "--output", "b", code=0).out.strip() == "2"  # of what was done, not of what would be now
    assert KEPT in here("logs", run, code=0).out and KEPT in here("why", run, code=0).out


def test_a_retry_names_them_too_and_runs_them_with_force(place: Place, here: Here, plan: str) -> None:
    """E5: kept by a plain retry; a forced one does them again, and what depends on them."""
    place.touch("fails")
    run = str(here("run", plan, "--tools", "changing.py", "--json", "-q", code=1).json["run_id"])
    change(place)
    done = here("retry", run, code=0)
    assert KEPT in done.err and "definition changed" in done.out
    assert KEPT in here("why", run, code=0).out
    assert stale(here, run) == {"a": "definition changed", "b": None}
    assert "定义已改变" in here("show", run, "--lang", "zh", code=0).out
    again = here("retry", run, "--force", code=0)
    assert KEPT not in again.err and "out of date" not in again.out
    assert stale(here, run) == {"a": None, "b": None}
    assert here("show", run, "--output", "b", code=0).out.strip() == "4"


@pytest.mark.parametrize(
    ("event", "named"),
    [(b'{"type":"step_teleported","step":"a"}', "step_teleported"), (b'{"v":9,"type":"done","status":7}', "format 9")],
)
def test_a_history_of_a_newer_version_is_refused_in_one_sentence(
    place: Place, here: Here, event: bytes, named: str
) -> None:
    """E5, T4: what to do is said, nothing is written, and other runs of the store can be looked at."""
    run, other = here.run({"id": "a", "tool": "ok"}, code=0), here.run({"id": "a", "tool": "ok"}, code=0)
    with contextlib.closing(sqlite3.connect(place.folder / ".rerail" / "runs.db")) as database:
        [(last,)] = database.execute("SELECT max(seq) FROM events WHERE run = ?", (run,)).fetchall()
        database.execute("INSERT INTO events(run, seq, at, data) VALUES (?, ?, 1.0, ?)", (run, last + 1, event))
        database.commit()
    for words in (("show",), ("why",), ("logs",), ("retry", "--force"), ("resume",)):
        done = here(words[0], run, *words[1:], "--json", code=1)
        assert done.json["error"]["code"] == "STORE_NEWER" and named in done.json["error"]["message"], words
        assert "upgrade" in done.json["error"]["hint"].lower()
    assert here("show", other, "--json", code=0).json["status"] == "completed"
