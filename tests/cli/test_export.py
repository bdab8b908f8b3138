"""`rerail export` and `rerail import`, as people type them (E10)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.cli.conftest import Here

BIG = {"id": "big", "tool": "ok", "args": {"value": "世界" * 3_000}}


def test_a_run_is_exported_and_imported_as_a_copy(here: Here) -> None:
    """E10: shown and replayed there; what would call a tool is refused unless the original is given up."""
    run = here.run(BIG, {"id": "é", "tool": "fail", "needs": ["big"]}, code=1)
    assert "1 run exported" in here("export", run[:4], "--output", "out.jsonl", code=0).out
    assert not [name for name in os.listdir() if name.startswith(".out")]
    assert "1 run imported" in here("import", "out.jsonl", "--store", "two.db", code=0).out
    assert "1 there already" in here("import", "out.jsonl", "--store", "two.db", code=0).out
    there = here("show", run, "--store", "two.db", "--json", code=0).json
    assert there["steps"]["big"]["output"] == "世界" * 3_000
    assert there == here("show", run, "--json", code=0).json
    here("replay", run, "--store", "two.db", "--set", "retry.max_retry_rounds=0", code=0)
    calls = here.place.calls
    for words in (("retry", run), ("retry", run, "--dry-run"), ("resume", run), ("resolve", run, "é", "--failed")):
        refused = here(*words, "--store", "two.db", "--tools", "toolbox.py", "--json", code=2).json["error"]
        assert (refused["code"], "--own" in refused["hint"]) == ("RUN_COPIED", True), words
    assert "rerail retry" not in here("show", run, "--store", "two.db", code=0).out
    assert "import FILE --own" in here("why", run, "é", "--store", "two.db", code=0).out
    assert "副本" in here("retry", run, "--store", "two.db", "--lang", "zh", code=2).err
    assert here.place.calls == calls
    [row] = here("import", "out.jsonl", "--own", "--store", "two.db", "--json", code=0).json
    assert (row["run"], row["outcome"], row["contents"]) == (run, "imported", 1)
    here("retry", run, "--store", "two.db", "--tools", "toolbox.py", code=1)
    assert len(here.place.calls) > len(calls)
    [row] = here("import", "out.jsonl", "--store", "two.db", "--json", code=1).json
    assert row["outcome"] == "differs"


def test_what_cannot_be_exported_is_named(here: Here) -> None:
    """E10: open runs finish where they are; a content that is lost is told; the exit code tells."""
    good = here.run({"id": "a", "tool": "ok"}, code=0)
    waits = here.run({"id": "a", "tool": "ok", "confirm": True}, code=3)
    hurt = here.run({"id": "a", "tool": "ok", "args": {"value": "x" * 5000}}, code=0)
    connection = apsw.Connection(str(here.place.folder / ".rerail/runs.db"))
    connection.execute("UPDATE blobs SET data = x'00'")
    connection.close()
    told = here("export", "--all", "--output", "out.jsonl", code=1).out
    assert waits in told and "only runs at rest" in told and hurt in told and "rerail retry" in told
    assert good not in told
    rows = here("import", "out.jsonl", "--store", "two.db", "--json", code=0).json
    assert {row["run"] for row in rows} == {good, hurt}
    here("export", waits, "--output", "none.jsonl", code=1)
    assert not (here.place.folder / "none.jsonl").exists(), "nothing stands in the way of the next"
    assert "不完整" in here("export", hurt, "--output", "zh.jsonl", "--lang", "zh", code=1).out


def test_a_file_goes_to_stdout(here: Here) -> None:
    """E10: without --output; the report is beside it."""
    run = here.run({"id": "a", "tool": "ok"}, code=0)
    done = here("export", run, code=0)
    assert [json.loads(line)["line"] for line in done.out.splitlines()][-2:] == ["end", "last"]
    assert "1 run exported" in done.err
    Path("out.jsonl").write_text(done.out)
    here("import", "out.jsonl", "--store", "two.db", code=0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("export",), "name runs"),
        (("export", "x", "--all"), "name runs"),
        (("export", "nobody"), "no run 'nobody'"),
        (("export", "--all", "--json"), "--output"),
        (("export", "--all", "--output", "toolbox.py"), "is there already"),
        (("export", "--all", "--output", "nowhere/out"), "cannot write"),
        (("export", "--all", "--store", "nothing.db"), "there is no store"),
        (("import", "nothing.jsonl"), "cannot read"),
        (("import", "toolbox.py"), "not a whole export"),
        (("import", "empty"), "is empty"),
        (("import", "."), "cannot read"),
        (("store", "copy", "a.db", "b.db"), "rerail export --all"),
    ],
)
def test_what_is_refused(here: Here, words: tuple[str, ...], told: str) -> None:
    """T4: each with what is wrong; nothing is left behind."""
    here.run({"id": "a", "tool": "ok"}, code=0)
    Path("empty").touch()
    before = sorted(os.listdir())
    assert told in here(*words, code=2).err
    assert sorted(os.listdir()) == before


def test_half_a_file_is_refused_and_imports_nothing(here: Here) -> None:
    """E10: a copy of the file that was cut off anywhere."""
    runs = [here.run({"id": "a", "tool": "ok", "args": {"value": "x" * 9000}}, code=0) for _ in range(2)]
    here("export", *runs, "--output", "out.jsonl", code=0)
    data = Path("out.jsonl").read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        Path("half.jsonl").write_bytes(data[: int(len(data) * share)])
        assert "nothing was imported" in here("import", "half.jsonl", "--store", "two.db", code=2).err
    assert here("ls", "--store", "two.db", "--json", code=0).json == []


KILLED = """
import os, signal, sys
from rerail.adapters.stores.sqlite.store import SqliteStore
from rerail.cli import main
append, left = SqliteStore.append, [int(sys.argv[1])]
async def dying(self, batch):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    await append(self, batch)
SqliteStore.append = dying
main(["import", "out.jsonl", "--store", "two.db"])
"""


@pytest.mark.parametrize("appends", [0, 1, 2])
def test_an_import_that_is_killed_is_typed_again(here: Here, appends: int) -> None:
    """E10: kill -9 in between: no process takes up half of a run, doctor names it, the same command finishes it."""
    runs = [here.run({"id": "a", "tool": "ok", "args": {"value": f"{n}" * 9000}}, code=0) for n in range(2)]
    here("export", *runs, "--output", "out.jsonl", code=0)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(appends)], cwd=here.place.folder, check=False)
    assert killed.returncode == (-signal.SIGKILL if appends < 2 else 0)
    half = [
        row["run_id"] for row in here("ls", "--store", "two.db", "--json", code=0).json if row["status"] == "pending"
    ]
    assert len(half) == (appends < 2)
    for run in half:
        refused = here("retry", run, "--store", "two.db", code=2)
        assert "has not arrived whole" in refused.err and "import FILE" in refused.err
        found = here("doctor", "--store", "two.db", "--json", code=1).json["findings"]
        assert [(row["kind"], row["where"]) for row in found] == [("copy", run)]
    here("import", "out.jsonl", "--store", "two.db", code=0)
    assert here("doctor", "--store", "two.db", "--json", code=0).json["findings"] == []
    for n, run in enumerate(runs):
        assert here("show", run, "--store", "two.db", "--json", code=0).json["steps"]["a"]["output"] == f"{n}" * 9000
