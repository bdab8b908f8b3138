"""`rerail crashtest`: real processes that die, a table, a document, and nobody's tools called without their word."""

from __future__ import annotations

import os
import pty
import random
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Here, Place

REFUND = Path(__file__).resolve().parents[2] / "examples" / "refund"
WORDS = ("crashtest", str(REFUND / "plan.yaml"), "--tools", str(REFUND / "tools.py"))
OK = {"id": "a", "tool": "ok"}


def test_a_table_of_what_held(place: Place, here: Here) -> None:
    """E1, E3: exit code 0, each guarantee with its count, each tool with what is known of it."""
    done = here(*WORDS, "--points", "1", "--yes", code=0)
    assert "every guarantee was kept at 1 of" in done.out
    assert "effects repeated that must not be" in done.out and "post_letter" in done.out
    assert "1 of 1 crash points" in done.err and "Without any crash" not in done.out
    assert not (place.folder / ".rerail").exists()  # the user's own store is left alone


def test_a_broken_guarantee_is_exit_code_one(place: Place, here: Here) -> None:
    """T4: the world remembers the run before, so this one ends otherwise; the document says where, and all is kept."""
    plan = place.plan(
        {"id": "a", "tool": "needs_file", "args": {"name": "there.txt"}}, {"id": "b", "tool": "use_up", "needs": ["a"]}
    )
    (place.folder / "more.py").write_text(
        "import rerail\nfrom pathlib import Path\n\n\n@rerail.tool\ndef use_up() -> None:\n"
        "    (Path(__file__).parent / 'there.txt').unlink()\n"
    )
    place.touch("there.txt")
    words = ("--tools", "toolbox.py", "--tools", "more.py", "--yes", "--json", "--keep", "kept", "--points", "1")
    found = here("crashtest", plan, *words, code=1).json
    assert (found["ok"], found["tried"], found["different"], found["lost"], found["repeated"]) == (False, 1, 1, 0, 0)
    [trial] = found["trials"]
    assert not trial["kept"] and trial["what"]
    assert trial["different"][0] == "crashtest: completed → failed" and "a: succeeded → failed" in trial["different"]
    kept = place.folder / "kept" / f"point-{trial['point']}"
    assert (kept / "home" / "runs.db").exists() and (kept / "ledger.jsonl").exists()


def test_a_run_that_fails_anyway_is_told(place: Place, here: Here) -> None:
    """E1: that every guarantee was kept says nothing of the plan, which fails without any crash."""
    plan = place.plan({"id": "a", "tool": "needs_file", "args": {"name": "never.txt"}})
    words = ("crashtest", plan, "--tools", "toolbox.py", "--yes", "--set", "reflection.max_step_retries=0")
    done = here(*words, "--set", "retry.max_retry_rounds=0", "--points", "1", code=0)
    assert "every guarantee was kept" in done.out and "Without any crash the run itself ends failed" in done.out


def test_no_crash_point_reached_is_no_pass(place: Place, here: Here) -> None:
    """E1, T4: later runs end before the one point that was drawn; nothing was tested, and the exit code says so."""
    (place.folder / "more.py").write_text(
        "import rerail\nfrom pathlib import Path\n\nSEEN = Path(__file__).parent / 'seen.txt'\n\n\n"
        "@rerail.tool\ndef moody() -> int:\n"
        "    if not SEEN.exists():\n        SEEN.touch()\n        raise ConnectionError('once')\n    return 1\n"
    )
    plan = place.plan({"id": "a", "tool": "moody"})
    words = ("crashtest", plan, "--tools", "more.py", "--yes", "--set", "retry.backoff_base=0.01", "--points", "1")
    words += ("--set", "reflection.max_step_retries=1")
    points = here(*words, "--json").json["points"]
    late = next(str(seed) for seed in range(100) if random.Random(seed).sample(range(1, points + 1), 1) == [points])
    (place.folder / "seen.txt").unlink()
    done = here(*words, "--seed", late, code=1)
    assert "nothing was tested: of 1 crash point none was reached" in done.out and "kept" not in done.out
    assert "let them begin anew in each run" in done.out
    (place.folder / "seen.txt").unlink()
    found = here(*words, "--seed", late, "--json", code=1).json
    assert (found["ok"], found["tested"], found["tried"], found["not_reached"]) == (False, False, 0, 1)


def test_a_tool_that_is_not_safe_when_its_answer_is_cut_off_is_told(place: Place, here: Here) -> None:
    """X4, T4: three words for three harms, in both languages; a doubled effect is exit code 1."""
    (place.folder / "more.py").write_text(
        "import rerail\n\n\n@rerail.tool(effect='once', errors='not_done')\ndef wire() -> int:\n    return 1\n\n\n"
        "@rerail.tool(effect='once')\ndef letter() -> int:\n    return 2\n"
    )
    plan = place.plan({"id": "a", "tool": "wire"}, {"id": "b", "tool": "letter", "needs": ["a"]})
    words = ("crashtest", plan, "--tools", "more.py", "--yes", "--set", "retry.backoff_base=0.01", "--points", "4")
    words += ("--set", "reflection.max_step_retries=1")
    done = here(*words, "--lang", "zh", code=1)
    assert "被切断的答复造成了损害" in done.out and "重复：效果发生后又被调用" in done.out
    assert "存疑：需要人来回答" in done.out and "idempotent_for" in done.out
    found = here(*words, "--json", code=1).json
    assert (found["different"], found["cut_off"]["doubled"], found["cut_off"]["doubt"]) == (0, ["wire"], ["letter"])


def test_nobodys_tools_are_called_without_their_word(place: Place, here: Here) -> None:
    """T4: no terminal and no --yes: refused, before anything is called."""
    done = here("crashtest", place.plan(OK), "--tools", "toolbox.py", "--json", code=2)
    assert done.json["error"]["code"] == "CONFIRM_NEEDED" and "--yes" in done.json["error"]["hint"]
    assert place.calls == []


def test_what_cannot_be_tested_is_refused(place: Place, here: Here) -> None:
    """P5, T4: no tools, a number that is none, a plan with faults, one that does not come to its end by itself."""
    assert "--tools" in here("crashtest", place.plan(OK), "--yes", code=2).err
    assert (
        "--points" in here("crashtest", place.plan(OK), "--tools", "toolbox.py", "--yes", "--points", "0", code=2).err
    )
    taken = here("crashtest", place.plan(OK), "--tools", "toolbox.py", "--yes", "--keep", ".", code=2)
    assert "not empty" in taken.err and (place.folder / "toolbox.py").exists()
    nobody = place.plan({"id": "a", "tool": "nobody"})
    assert "nobody" in here("crashtest", nobody, "--tools", "toolbox.py", "--yes", code=2).err
    assert place.calls == []
    stuck = place.plan({"id": "a", "tool": "late", "effect": "once"})
    found = here("crashtest", stuck, "--tools", "toolbox.py", "--yes", "--json", code=2).json
    assert found["error"]["code"] == "CRASHTEST_UNDISTURBED"


def test_a_terminal_is_asked_and_told_what_happens_each_time(place: Place) -> None:
    """T4: the question names the tools, and those whose effect must not happen twice; a no calls nothing."""
    plan = place.plan(OK, {"id": "s", "tool": "send", "needs": ["a"]})
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "rerail.cli", "crashtest", plan, "--tools", "toolbox.py", "--points", "7"]
    process = subprocess.Popen(words, cwd=place.folder, env=place.environ, stdin=theirs, stdout=theirs, stderr=theirs)
    place.started.append(process)  # type: ignore[arg-type]  # closed with the others
    os.close(theirs)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(ours, 4096)
    text = " ".join(seen.decode().split())
    assert "once more for 7 crash points" in text and "ok, send" in text and "send: declared as once" in text
    os.write(ours, b"n\n")
    assert process.wait(20) == 2
    os.close(ours)
    assert place.calls == []
