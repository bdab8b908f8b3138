"""`rerail store copy`, as people type it (I5, I6)."""

from __future__ import annotations

import json

import apsw
from tests.cli.conftest import Here


def test_runs_are_copied_and_compared(here: Here) -> None:
    """Every run arrives whole; a second copy finds them there; unknown runs, actions and stores are refused."""
    run = here.run({"id": "a", "tool": "ok"}, code=0)
    assert "1 run copied" in here("store", "copy", ".rerail/runs.db", "two.db", code=0).out
    shown = here("show", run, "--store", "two.db", "--json", code=0)
    assert json.loads(shown.out)["status"] == "completed"
    [row] = json.loads(here("store", "copy", ".rerail/runs.db", "two.db", "--json", code=0).out)
    assert (row["run"], row["outcome"]) == (run, "same")
    assert "nobody" in here("store", "copy", ".rerail/runs.db", "two.db", "--run", "nobody", code=2).err
    assert "copy FROM TO" in here("store", "move", "a", "b", code=2).err
    assert "there is no store" in here("store", "copy", "nothing.db", "two.db", code=2).err
    assert "onto itself" in here("store", "copy", "two.db", "./two.db", code=2).err


def test_a_run_that_waits_is_moved_and_goes_on_there(here: Here) -> None:
    """T7: left out unless it is moved; then it is over here, and says where it is."""
    run = here.run({"id": "a", "tool": "ok"}, {"id": "b", "tool": "ok", "needs": ["a"], "confirm": True}, code=3)
    left = here("store", "copy", ".rerail/runs.db", "two.db", code=1).out
    assert "left out" in left and "--move" in left
    assert "1 moved" in here("store", "copy", ".rerail/runs.db", "two.db", "--move", code=0).out
    refused = here("retry", run, "--json", code=2).json["error"]
    there = f"sqlite:///{(here.place.folder / 'two.db').resolve()}"
    assert (refused["code"], refused["hint"]) == ("RUN_MOVED", f"go on with it there: --store {there}")
    assert f"moved to {there}" in here("why", run, code=0).out
    here("confirm", run, "b", "--wait", "--store", "two.db", code=0)
    assert here("show", run, "--store", "two.db", "--json", code=0).json["status"] == "completed"


def test_a_run_that_is_not_whole_is_named_and_the_others_are_copied(here: Here) -> None:
    """E6: with what to do about it, in both languages, and an exit code that tells."""
    good = here.run({"id": "a", "tool": "ok"}, code=0)
    hurt = here.run({"id": "a", "tool": "ok", "args": {"value": "x" * 5000}}, code=0)
    connection = apsw.Connection(str(here.place.folder / ".rerail/runs.db"))
    connection.execute("UPDATE blobs SET data = x'00'")
    connection.close()
    told = here("store", "copy", ".rerail/runs.db", "two.db", code=1).out
    assert hurt in told and "in part" in told and "rerail retry" in told
    assert good not in told and "1 run copied" in told
    rows = json.loads(here("store", "copy", ".rerail/runs.db", "two.db", "--json", code=1).out)
    assert {row["run"]: (row["outcome"], row["lost"]) for row in rows} == {good: ("same", 0), hurt: ("partial", 1)}
    assert "不完整" in here("store", "copy", ".rerail/runs.db", "three.db", "--lang", "zh", code=1).out
