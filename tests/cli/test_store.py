"""`rerail store copy`, as people type it (I5, I6)."""

from __future__ import annotations

import json

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
