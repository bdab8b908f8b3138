"""Commands that only look: ls, show, why, logs, watch, artifacts, check, config, tools, doctor."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Here, Place

from rerail.cli.output import Output, clean, one_line

BROKEN = (
    {"id": "a", "tool": "ok"},
    {"id": "b", "tool": "fail", "needs": ["a"]},
    {"id": "c", "tool": "ok", "needs": ["b"]},
)


def test_the_report_says_what_people_ask_next(here: Here) -> None:
    """V7, T4: verdict, what failed and why, what was skipped for it, and commands with the real id."""
    plan = here.place.plan(*BROKEN)
    found = here("run", plan, "--tools", "toolbox.py", code=1)
    run = here("ls", "--json").json[0]["run_id"]
    assert found.out.startswith(f"✗ failed  {run}")
    assert "b  fail, attempt 1: it broke [TOOL_FAILED, tool_error]" in found.out
    assert "c  skipped: upstream step failed - step b (fail): it broke" in found.out
    assert f"rerail why {run} b" in found.out
    assert f"rerail retry {run} --dry-run" in found.out
    assert "b  attempt 1 failed: it broke" in found.err.replace("   ", "")


def test_what_healed_is_named(here: Here) -> None:
    """H3, V7: the report names the rungs that helped, and nothing that did not."""
    step = {"id": "a", "tool": "fail", "alternatives": ["ok"]}
    plan = here.place.plan(step, {"id": "b", "tool": "fail", "fallback": {"value": 7}})
    found = here("run", plan, "--tools", "toolbox.py", "--set", "reflection.max_step_retries=1", code=0)
    healed = found.out.split("Recovered\n")[1]
    assert "a  another tool: ok" in healed
    assert "b  a fallback stood in: it broke" in found.out.split("Recovered\n")[0]
    assert found.out.startswith("◐ completed, degraded")


def test_the_fitting_retry_is_recommended(here: Here) -> None:
    """T4: a permanent error is not told to be retried plainly."""
    run = here.run({"id": "a", "tool": "stubborn"}, code=1)
    shown = here("show", run, code=0).out
    assert f"rerail retry {run} --force --dry-run" in shown
    here("retry", run, "--force", "--dry-run", code=0)


def test_a_refused_argument_is_told_to_be_changed(here: Here) -> None:
    """T4, H7: a call that fails as often as it is repeated comes with the command that changes it, ready to type."""
    args = {"message": "no 'such' city", "category": "parameter_error"}
    run = here.run({"id": "look up", "tool": "fail", "args": args}, code=1)
    shown = here("show", run, code=0).out
    [command] = [line.strip() for line in shown.splitlines() if f"rerail repair {run}" in line]
    words = shlex.split(command)
    assert words[1:5] == ["repair", run, "look up", "--args"]
    assert json.loads(words[5].replace("NEW", "1")) == {"message": 1, "category": 1}
    assert "NEW" in here(*words[1:], code=2).err
    here(*words[1:5], '{"category": "tool_error"}', "--dry-run", code=0)
    long = {"id": "before", "tool": "ok", "args": {"value": {"message": "x" * 1000}}}
    other = here.run(long, {"id": "a", "tool": "fail", "args": args, "needs": ["before"]}, code=1)
    assert f"rerail repair {other} a --args JSON" in here("show", other, code=0).out
    assert "rerail repair" not in here("show", here.run({"id": "a", "tool": "fail"}, code=1), code=0).out


def test_a_refused_argument_is_shown_what_a_step_before_gave(here: Here) -> None:
    """T4, H7: rules do not act on a guess; a person who is told decides with a copied line."""
    book = {"id": "book", "tool": "ok", "args": {"value": {"message": "3426812"}}}
    refused = {"message": "990017", "category": "parameter_error"}
    run = here.run(book, {"id": "use", "tool": "fail", "args": refused, "needs": ["book"]}, code=1)
    shown = here("show", run, code=0).out
    assert 'book gave message "3426812"; is that what was meant?' in shown
    [command] = [line.strip() for line in shown.splitlines() if f"rerail repair {run}" in line]
    assert json.loads(shlex.split(command)[5]) == {"message": "3426812"}
    here(*shlex.split(command)[1:], "--dry-run", code=0)
    other = here.run(book, {"id": "use", "tool": "fail", "args": {"message": "990017"}, "needs": ["book"]}, code=1)
    assert "is that what was meant" not in here("show", other, code=0).out


def test_suggested_commands_find_the_same_store(here: Here) -> None:
    """T4: what is recommended can be typed as it stands."""
    plan = here.place.plan(*BROKEN)
    found = here("run", plan, "--tools", "toolbox.py", "--store", "my runs.db", code=1)
    assert "--dry-run --store 'my runs.db'" in found.out
    assert here("ls", "--store", "my runs.db", "--json", code=0).json
    assert here("ls", "--json", code=0).json == []


def test_every_hint_works_as_it_is_typed(here: Here) -> None:
    """T4: with the store that was named, in sentences too, and with tools that the run does not know of."""
    plan = here.place.plan({"id": "a", "tool": "ok", "confirm": True})
    named = ("--store", "my runs.db")
    run = here("run", plan, "--tools", "toolbox.py", *named, "--json", code=3).json["run_id"]
    for words, hint in (
        (("retry", run), f"rerail --store 'my runs.db' confirm {run}"),
        (("show", "nobody"), "rerail --store 'my runs.db' ls"),
        (("confirm", run, "--refuse", "--edit", "x"), f"rerail confirm {run} --refuse --store 'my runs.db'"),
    ):
        assert hint in here(*words, *named, code=2).err
        assert "--store" not in here(*words, *named, "--json", code=2).json["error"]["hint"]
    assert f"rerail confirm {run} a --store 'my runs.db'" in here("show", run, *named, code=0).out
    assert f"Next: rerail --store 'my runs.db' confirm {run} a" in here("why", run, "a", *named, code=0).out
    by_setting = here("show", "nobody", "--set", "store.url=sqlite:///my runs.db", code=2).err
    assert "rerail --store 'sqlite:///my runs.db' ls" in by_setting
    (here.place.folder / "toolbox.py").rename(here.place.folder / "other tools.py")
    moved = here("retry", run, *named, "--tools", "other tools.py", code=2).err
    assert f"rerail --store 'my runs.db' --tools 'other tools.py' confirm {run}" in moved
    typed = shlex.split(moved[moved.index("rerail --store") :])[1:]
    here(*typed, code=0)


def test_a_hint_leaves_the_values_in_it_alone() -> None:
    """T4: a command alone has its options last, whatever its arguments say; what they say is not changed."""
    out = Output()
    out.work_on("runs.db")
    args = {"text": "it's done, see rerail show r; 好，ok | x", "to": "ann"}
    command = f"rerail repair r s --args {shlex.quote(json.dumps(args, ensure_ascii=False))}"
    assert out.typed(command) == f"{command} --store runs.db"


def test_a_hint_holds_no_password() -> None:
    """T4: hints end up in logs and in chats."""
    out = Output()
    out.work_on("postgresql://ann:secret@host/runs?sslpassword=secret")
    for text in ("rerail show r", "use: rerail show r", "rerail resolve r s --succeeded VALUE | --failed | --rerun"):
        assert "secret" not in out.typed(text) and "--store 'postgresql://ann:***@host" in out.typed(text)
    for text in (
        "rerail import FILE --store TO",
        "rerail check p.yaml",
        "rerail show r --store x",
        "the rerail retries",
    ):
        assert out.typed(text) == text


def test_looking_makes_no_store(here: Here) -> None:
    """A command that only looks leaves nothing behind."""
    assert "no runs" in here("ls", code=0).out
    assert "does not exist" in here("show", "abc", code=2).err
    assert not (here.place.folder / ".rerail").exists()


def test_ls_tells_an_empty_store_from_an_empty_answer(here: Here) -> None:
    """T4: "no runs" in a full store would be a false word."""
    here.run({"id": "a", "tool": "ok"}, code=0)
    assert here("ls", "--status", "failed", code=0).out.startswith("no failed runs; 1 run in all")
    assert here("ls", "--status", "failed", "--status", "waiting", code=0).out.startswith("no failed, waiting runs;")
    assert here("ls", "--status", "failed", "--json", code=0).json == []


def test_ls_lists_newest_first(here: Here) -> None:
    """SPEC 12: status filters, a limit, and a word that there is more."""
    runs = [here.run({"id": "a", "tool": tool}, code=code) for tool, code in (("ok", 0), ("fail", 1), ("ok", 0))]
    assert [row["run_id"] for row in here("ls", "--json", code=0).json] == runs[::-1]
    assert [row["run_id"] for row in here("ls", "--json", "--status", "failed", code=0).json] == [runs[1]]
    shown = here("ls", "--limit", "1", code=0)
    assert runs[2] in shown.out
    assert runs[0] not in shown.out
    assert "--limit 0" in shown.err


def test_logs_tell_everything(here: Here) -> None:
    """I2: every event that means something is a line, tools' own lines among them; --tail takes the last ones."""
    run = here.run({"id": "a", "tool": "noisy"}, {"id": "b", "tool": "fail", "critical": False}, code=0)
    lines = here("logs", run, code=0).out.splitlines()
    assert "started by" in lines[0]
    assert any("a line ␛[31mof log[/red]" in line for line in lines)
    assert any("optional step skipped" in line for line in lines)
    assert here("logs", run, "--tail", "2", code=0).out.splitlines() == lines[-2:]
    assert here("logs", run, "--tail", "0", code=0).out == ""
    assert all(" b  " in line for line in here("logs", run, "--step", "b", code=0).out.splitlines())


def test_untrusted_text_cannot_paint(here: Here) -> None:
    """M4: a tool's words are shown as they are, never as markup, never as terminal commands."""
    run = here.run({"id": "a", "tool": "stubborn"}, {"id": "x\x1b[31m]y", "tool": "ok"}, code=1)
    for words in (("show", run), ("why", run, "a"), ("logs", run), ("graph", run), ("graph", run, "--mermaid")):
        shown = here(*words, code=0).out
        assert "\x1b" not in shown
    assert "[bold]no[/bold] ␛[2Jway" in here("show", run, code=0).out


def test_texts_are_made_safe() -> None:
    """M4: control characters, direction marks and line breaks are made visible or harmless."""
    assert clean("a\x00b\x07\x7f\x9b\u202e") == "a␀b␇\\u007f\\u009b\\u202e"
    assert clean("a\tb\nc\r\n") == "a b c  "
    assert clean("a\tb\nc\r\n", lines=True) == "a\tb\nc\n"
    assert clean("数据 ✓ é") == "数据 ✓ é"
    assert clean("\ud800") == "\\ud800"
    assert one_line("a  b\n" * 200, 10) == "a b a b a…"


def test_why_tells_the_story_of_a_step(here: Here) -> None:
    """SPEC 12: what happened to one step, in order, and what to type next."""
    run = here.run(*BROKEN, code=1)
    told = here("why", run, "b", code=0).out
    assert "It needs a." in told
    assert "failed" in told
    assert f"rerail retry {run} --dry-run" in told
    assert here("why", run[:5], "b", "--json", code=0).json["story"][0] == told.splitlines()[0]


def test_a_run_is_replayed_under_other_settings(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded run is decided again; nothing is called, and what the history does not hold is said."""
    for name, value in (("REFLECTION_MAX_STEP_RETRIES", "3"), ("RETRY_MAX_RETRY_ROUNDS", "1")):
        monkeypatch.setenv(f"RERAIL_{name}", value)
    run = here.run({"id": "a", "tool": "fail", "args": {"category": "transient_error"}}, code=1)
    called = list(here.place.calls)
    assert len(called) == 8  # two rounds
    fewer = here("replay", run[:6], "--set", "retry.max_retry_rounds=0", code=0).out
    assert "retry.max_retry_rounds = 0 (recorded: 1)" in fewer and "failed, 4 calls" in fewer
    more = here("replay", run, "--set", "reflection.max_step_retries=5", code=0).out
    assert "at least" in more and "what fail would have answered to call 5 of step a in round 0" in more
    slower = here("replay", run, "--set", "retry.backoff_base=0.51234567", "--set", "retry.jitter=false", code=0).out
    assert "retry_scheduled a 0.5 s" in slower
    told = here("replay", run, "--set", "retry.backoff_base=0.5", "--json", code=0).json
    assert told["known"] and not told["same"] and told["steps"][0]["replayed"]["calls"] == 8
    same = here("replay", run, "--set", "retry.max_retries=9", code=0).out
    assert "event by event" in same
    assert "run.concurrency" in here("replay", run, "--set", "store.url=x", code=2).err
    assert "reflection.max_step_retries" in here("replay", run, code=2).err
    assert here.place.calls == called


def test_a_run_is_replayed_without_its_tools(here: Here) -> None:
    """What can be said without them is said, and that they are not there."""
    run = here.run({"id": "a", "tool": "ok"}, code=0)
    (here.place.folder / "toolbox.py").unlink()
    found = here("replay", run, "--set", "run.max_attempts=0", code=0)
    assert "cannot be loaded" in found.err and "what would have been decided about ok" in found.out
    assert "对 ok 会作出的决定" in here("replay", run, "--set", "run.max_attempts=0", "--lang", "zh", code=0).out
    told = here("replay", run, "--set", "run.max_attempts=0", "--json", code=0).json
    assert not told["known"] and told["replayed"]["status"] == told["steps"][0]["replayed"]["status"] == "unknown"
    assert told["unknown"] == [{"what": "tool", "step": None, "tool": "ok", "call": None, "round": 0}]
    told = here("replay", run, "--set", "run.max_attempts=50", "--json", code=0).json
    assert told["known"] and told["same"] and told["replayed"]["status"] == "completed"


def test_the_failure_memory_is_shown_and_cleared(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """H10: which rung mended which failure, from the histories; cleared, it learns anew."""
    monkeypatch.setenv("RERAIL_REFLECTION_MAX_STEP_RETRIES", "1")
    step = {"id": "a", "tool": "fail", "alternatives": ["ok"]}
    here.run(step, code=0)
    [row] = here("memory", "--json", code=0).json
    assert row["rung"] == "alternative_tool" and row["worked"] == 1 and "fail" in row["failure"]
    assert "alternative_tool" in here("memory", code=0).out
    assert here("memory", "--clear", "--json", code=0).json == []
    assert "alternative_tool" not in here("memory", code=0).out


def test_artifacts_and_outputs(here: Here) -> None:
    """E6, SPEC 12: what steps made is listed and printed, texts as they are and values as JSON."""
    value = {"名": [1, 2]}
    run = here.run(
        {"id": "a", "tool": "ok", "args": {"value": value}},
        {"id": "t", "tool": "ok", "args": {"value": "x\r\ny"}},
        code=0,
    )
    assert {row["name"] for row in here("artifacts", run, "--json", code=0).json} == {"a", "t"}
    assert json.loads(here("artifacts", run, "a", code=0).out) == value
    assert here("show", run, "--output", "t", code=0).out.encode().endswith(b"y\n")
    assert "has no artifact" in here("artifacts", run, "zz", code=2).err


def test_ids_may_hold_anything(here: Here) -> None:
    """P6: ids with spaces, dots, unicode and 10 kB are shown, found and drawn."""
    ids = ["a step", "v1.2", "数据 加载", "é" * 10_000]
    steps = [{"id": step, "tool": "ok", "needs": ids[at - 1 : at] if at else []} for at, step in enumerate(ids)]
    run = here.run(*steps, code=0)
    shown = here("show", run, code=0).out
    assert all(step in shown for step in ids[:3])
    assert max(map(len, shown.splitlines())) < 400
    for step in ids:
        assert here("why", run, step, code=0).out
    for words in (("graph", run), ("graph", run, "--mermaid"), ("logs", run)):
        assert "数据 加载" in here(*words, code=0).out


# -- Check --------------------------------------------------------------------------------------------------------


def test_check_measures_a_good_plan(here: Here) -> None:
    """P5: a plan without faults is measured; nothing is run, and no store is made."""
    plan = here.place.plan(*BROKEN, {"id": "d", "tool": "ok"})
    found = here("check", plan, code=0)
    assert found.out == "ok: 4 steps, depth 3, width 2\n"
    assert "--tools" in found.err
    assert here("check", plan, "--tools", "toolbox.py", "--json", code=0).json["tools_checked"] is True
    assert here.place.calls == []


def test_check_lists_every_fault(here: Here) -> None:
    """P5: all faults at once, with the cycle's path; tools and arguments only if tools are given."""
    steps: list[dict[str, Any]] = [
        {"id": "a", "tool": "ok", "needs": ["c"]}, {"id": "b", "tool": "ok", "needs": ["a"]},
        {"id": "c", "tool": "ok", "needs": ["b"]}, {"id": "d", "tool": "okk", "needs": ["x", "d"]},
        {"id": "d", "tool": "hold", "args": {"nam": 1}},
    ]  # fmt: skip
    plan = here.place.plan(*steps)
    without = here("check", plan, "--json", code=2).json
    assert {fault["code"] for fault in without["faults"]} == {"CYCLE", "UNKNOWN_NEED", "SELF_NEED", "DUPLICATE_ID"}
    shown = here("check", plan, "--tools", "toolbox.py", code=2).out
    assert "a → b → c → a" in shown
    assert "did you mean 'ok'?" in shown
    assert "BAD_ARGS" in shown


STDIN = [
    (("check",), '{"steps": [{"id": "a", "tool": "ok"}]}', 0, "ok: 1 step"),
    (("graph",), "steps: [{id: a, tool: ok}]", 0, "a  ok"),
    (("run", "--tools", "toolbox.py", "-q"), "steps: [{id: a, tool: ok}]", 0, "✓ completed"),
    (("check",), "{a: [", 2, ""),
]


@pytest.mark.parametrize(("words", "text", "code", "begins"), STDIN)
def test_a_plan_may_come_from_stdin(place: Place, words: tuple[str, ...], text: str, code: int, begins: str) -> None:
    """SPEC 12: `-` is stdin, for run, check and graph."""
    assert place(words[0], "-", *words[1:], given=text, code=code).out.startswith(begins)


# -- Surroundings -------------------------------------------------------------------------------------------------


def test_config_names_each_source(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 11: rerail.toml, the environment and the command line, in rising order, each value with its source."""
    toml = here.place.folder / "rerail.toml"
    toml.write_text("[retry]\nmax_retries = 7\nmax_wait = 5\njitter = false\n")
    monkeypatch.setenv("RERAIL_RETRY_MAX_WAIT", "6")
    rows = {row["key"]: row for row in here("config", "--json", "--set", "retry.jitter=true", code=0).json}
    assert rows["retry.max_retries"] == {"key": "retry.max_retries", "value": 7, "source": str(toml)}
    assert rows["retry.max_wait"]["source"] == "environment RERAIL_RETRY_MAX_WAIT"
    assert rows["retry.jitter"] == {"key": "retry.jitter", "value": True, "source": "command line"}
    assert rows["run.concurrency"]["source"] == "default"
    assert "retry.max_retries" in here("config", code=0).out


def test_config_shows_the_models(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 11: those of the roles too, by the keys they are set with; of a key, the name of its variable."""
    (here.place.folder / "rerail.toml").write_text("[model]\nkey_env = 'MY_KEY'\n[model.judge]\nname = 'openai:x'\n")
    monkeypatch.setenv("RERAIL_MODEL_NAME", "openai:y")
    monkeypatch.setenv("MY_KEY", "sk-never-shown")
    shown = here("config", "--json", "--set", "model.plan.timeout=5", code=0)
    rows = {row["key"]: row["value"] for row in shown.json}
    assert (rows["model.name"], rows["model.judge.name"], rows["model.plan.timeout"]) == ("openai:y", "openai:x", 5.0)
    assert rows["model.key_env"] == "MY_KEY"
    assert "never-shown" not in shown.out
    assert "model.judge.name" in here("config", code=0).out


def test_set_bites(here: Here) -> None:
    """SPEC 11: a setting given on the command line governs the run."""
    plan = here.place.plan({"id": "a", "tool": "fail", "args": {"category": "transient_error"}})
    here("run", plan, "--tools", "toolbox.py", "--set", "reflection.max_step_retries=2", code=1)
    assert here.place.calls == ["a"] * 3


def test_tools_are_listed_with_their_arguments(here: Here) -> None:
    """M2: name, description, arguments, effect, timeout and source of each tool."""
    shown = here("tools", "--tools", "toolbox.py", code=0).out
    assert "hold(name: string)" in shown
    assert "must not happen twice (once)" in shown
    assert str(here.place.folder / "toolbox.py") in shown
    rows = {row["name"]: row for row in here("tools", "--tools", "toolbox.py", "--json", code=0).json}
    assert rows["late"]["timeout"] == 0.05
    assert rows["send"]["effect"] == "once"


def test_tools_come_from_the_settings_too(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 11: `tools.modules` are loaded as if named, relative to the file that names them."""
    (here.place.folder / "rerail.toml").write_text('[tools]\nmodules = ["toolbox.py"]\n')
    plan = here.place.plan({"id": "a", "tool": "ok"})
    below = here.place.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert here("run", f"../{plan}", "--json", code=0).json["success"] is True


def test_doctor_finds_what_is_wrong(here: Here) -> None:
    """SPEC 12: it only looks, and its exit code is 1 if something is wrong."""
    assert here("doctor", "--tools", "toolbox.py", code=0).out.count("✓") == 6
    assert not (here.place.folder / ".rerail").exists()
    (here.place.folder / "bad.db").write_text("no database at all" * 100)
    wrong = here("doctor", "--store", "bad.db", "--tools", "nothing.py", "--json", code=1).json
    assert {check["name"] for check in wrong["checks"] if not check["ok"]} == {"store", "tools"}
    assert here("doctor", "--set", "a.b=1", code=1).out.count("✗") == 1


def test_a_store_that_is_none(here: Here) -> None:
    """E4: a file that is not a database, and a store that cannot be made, are refused before anything begins."""
    place = Path(here.place.folder)
    (place / "bad.db").write_text("no database at all" * 100)
    plan = here.place.plan({"id": "a", "tool": "ok"})
    for store in ("bad.db", "sqlite:///bad.db", "mystery://x", "toolbox.py/runs.db"):
        found = here("run", plan, "--tools", "toolbox.py", "--store", store, "--json", code=2)
        assert found.json["error"]["code"] == "STORE_FAILED"
    assert here.place.calls == []
    assert (place / "bad.db").read_text().startswith("no database")


def test_a_degraded_run_is_shown_as_one_in_the_list(here: Here) -> None:
    """V1, H9: completed, and not whole; a run that is whole is not marked."""
    here.run({"id": "a", "tool": "ok"}, code=0)
    here.run({"id": "a", "tool": "fail", "fallback": {"value": 1}}, code=0)
    listed = here("ls", code=0).out.splitlines()
    assert [("◐ completed, degraded" in line) for line in listed if "completed" in line] == [True, False]
    assert [line.count("completed") for line in listed if "completed" in line] == [1, 1], "it is said once"
    assert [row["degraded"] for row in here("ls", "--json", code=0).json] == [True, False]


def test_what_follows_a_run_is_told_in_the_readers_language(here: Here) -> None:
    """T6, T12: the verdict of what follows is in Chinese, like all else."""
    plan = here.place.plan({"id": "a", "tool": "ok"}, follow_up={"steps": [{"id": "b", "tool": "ok"}]})
    here("run", plan, "--tools", "toolbox.py", code=0)
    [run] = [row["run_id"] for row in here("ls", "--json", code=0).json if row["parent"] is None]
    shown = here("show", run, "--lang", "zh", code=0).out
    assert "后续任务" in shown and "succeeded" not in shown.partition("后续任务")[2]


def test_a_paused_run_that_died_is_interrupted_by_nobody(here: Here) -> None:
    """X7: who paused it is not said of what ended its process."""
    process, run = here.begin({"id": "w", "tool": "hold", "args": {"name": "go"}}, at="w")
    here("pause", run, code=0)
    process.kill()
    process.wait(30)
    [row] = [line for line in here("ls", code=0).out.splitlines() if run in line]
    assert "interrupted" in row and "(" not in row


def test_a_replay_lists_what_would_be_done_instead_and_what_can_be_set(here: Here) -> None:
    """I7: what is decided instead is indented under its title; the settings are listed by table, a line each."""
    run = here.run({"id": "a", "tool": "fail", "args": {"category": "transient_error"}}, code=1)
    told = here("replay", run, "--set", "reflection.max_step_retries=5", code=0).out.splitlines()
    at = next(n for n, line in enumerate(told) if "there, instead:" in line)
    assert told[at + 1].startswith("  ") and told[at + 1].strip()
    lines = here("replay", run, code=2).err.splitlines()
    assert [line.split(".")[0] for line in lines if line.startswith("  ")] == [
        "  run", "  retry", "  reflection", "  evaluation", "  tools",
    ]  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="it is there on Linux")
@pytest.mark.parametrize(
    "words", ["run plan.json --tools toolbox.py", "run plan.json --tools toolbox.py --json", "ls", "--help"]
)
def test_output_that_cannot_be_written_is_told_in_one_line(here: Here, words: str) -> None:
    """SPEC 12: no traceback; what the command did is recorded, and the exit code is 1 if the answer was lost."""
    here.place.plan({"id": "a", "tool": "ok"})
    said = {}
    for stream in ("stdout", "stderr"):
        with open("/dev/full", "w") as full:
            streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
            done = subprocess.run(
                [sys.executable, "-m", "rerail.cli", *words.split()], cwd=here.place.folder, env=here.place.environ,
                text=True, timeout=30, stdin=subprocess.DEVNULL, **streams,
            )  # fmt: skip
        said[stream] = (done.returncode, done.stdout or done.stderr or "")
    code, told = said["stdout"]
    assert (code, told.count("the output could not be written: No space left on device")) == (1, 1)
    assert "Traceback" not in told and said["stderr"][0] == 0
    if words.startswith("run"):
        assert {row["status"] for row in here("ls", "--json", code=0).json} == {"completed"}


def test_a_file_is_printed_byte_for_byte(here: Here) -> None:
    """SPEC 12: what a pipe gets is the file; an output is printed as text."""
    tools = here.place.folder / "toolbox.py"
    tools.write_text(
        tools.read_text() + "\n\n@rerail.tool\ndef note_down(ctx: rerail.Context):\n"
        "    (ctx.workspace / 'r.csv').write_bytes(b'a,b\\r\\n\\xff,1')\n    return 'done'\n"
    )
    run = here.run({"id": "w", "tool": "note_down", "produces": ["r.csv"]}, code=0)
    words = [sys.executable, "-m", "rerail.cli", "artifacts", run]
    said = [
        subprocess.run([*words, name], cwd=here.place.folder, env=here.place.environ, capture_output=True, timeout=30)
        for name in ("r.csv", "w")
    ]
    assert [done.stdout for done in said] == [b"a,b\r\n\xff,1", b"done\n"]


def test_check_takes_the_caps_of_the_settings(here: Here) -> None:
    """P2, P5: a plan that `run` refuses under these settings is refused by `check`, in the same words."""
    plan = here.place.plan({"id": "a", "tool": "ok"}, {"id": "z", "tool": "ok"}, **{"finally": ["z"]})
    cap = ("--tools", "toolbox.py", "--set", "run.max_attempts=0")
    for words in (("check", plan, *cap), ("check", plan, *cap[2:])):
        told = here(*words, code=2).out
        assert "run.max_attempts = 0 leaves no room for the steps of finally, which need 1" in told
    assert "leaves no room" in here("run", plan, *cap, code=2).err
    here("check", plan, *cap[:2], code=0)


def test_waiting_for_a_worker_is_told(here: Here) -> None:
    """I6: `start --queue --wait` says what it waits for, and that is what helps."""
    waiting = here.place.spawn(
        "start", here.place.plan({"id": "a", "tool": "ok"}), "--tools", "toolbox.py", "--queue", "--wait"
    )
    here.place.until(lambda: bool(here("ls", "--json", code=0).json))
    here("worker", "--until-idle", "--tools", "toolbox.py", code=0)
    assert "waits for a worker: rerail worker" in waiting.communicate(timeout=20)[1] and waiting.returncode == 0
