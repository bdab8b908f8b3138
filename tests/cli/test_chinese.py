"""Under `--lang zh` or `RERAIL_LANG=zh` no English sentence reaches the screen (T12)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import apsw
import pytest
from tests.cli.conftest import Done, Here

from rerail.cli.command_table import COMMANDS
from rerail.cli.display.live import LogLines
from rerail.cli.output import Output
from rerail.codes import Category
from rerail.i18n import about, catalogue, has, one_by_one, tell
from rerail.kernel import events as ev
from rerail.kernel.codec import decode, encode
from rerail.kernel.events import Record
from rerail.kernel.fold import evolve
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Fault, Need, Step
from rerail.views.narration import NARRATE
from rerail.views.why import story

# Three words in a row are a sentence, or a good part of one.
WORDS = re.compile(r"[A-Za-z][A-Za-z'’]+(?: [A-Za-z][A-Za-z'’]+){2,}")
# What people type, or wrote themselves, is not translated.
NOT_OURS = (
    re.compile(r"rerail [a-z]+[^\n；，。（）]*"),  # commands, with their words
    re.compile(r"pip install [^\n]*"),
    re.compile(r"\bsuccess True|degraded True"),  # fields
)


def english(text: str, *own: str) -> list[str]:
    """The English sentences in a text; `own` are the words of tools, plans and files in it."""
    for known in own:
        text = text.replace(known, "")
    for pattern in NOT_OURS:
        text = pattern.sub("", text)
    return WORDS.findall(text)


def test_the_search_finds_sentences() -> None:
    """T12: the check can fail, and leaves what is no sentence."""
    assert english("✗ a  it could not be found [TOOL_FAILED, tool_error]") == ["it could not be found"]
    assert english("error: no such run") and not english("下一步\n  rerail show 7c1f a b c --store x")
    assert not english("超时：3 秒 [TIMEOUT, transient_error] read_orders(file: string)")
    assert not english("it was not there, said the tool", "it was not there, said the tool")


OWN = (
    "it broke", "a test", "Give the value back.", "Fail, always.", "Fail until there is a file of that name.",
    "Wait until there is a file of that name.", "Act, then wait for a file before answering: the answer can be lost.",
    "Take too long.", "Print in every way there is.", "Block a thread.", "Raise what looks like markup.",
)  # fmt: skip


def zh(here: Here, *words: str, code: int | None = None) -> Done:
    """Run a command in Chinese; no English sentence is on the screen."""
    done = here("--lang", "zh", *words, code=code)
    assert english(done.out + done.err, *OWN) == [], done.out + done.err
    return done


STEPS = (
    {"id": "good", "tool": "ok", "args": {"value": 2}},
    {"id": "bad", "tool": "fail"},
    {"id": "behind", "tool": "ok", "needs": ["bad"]},
    {"id": "extra", "tool": "fail", "critical": False, "retries": 1},
    {"id": "slow", "tool": "late"},
    {"id": "file", "tool": "needs_file", "args": {"name": "x"}, "fallback": {"value": "y"}},
    {"id": "without", "tool": "ok", "needs": [{"step": "extra", "when": "done"}], "args": {"value": "${extra}"}},
    {"id": "if_bad", "tool": "ok", "needs": [{"step": "good", "when": "failure"}]},
)
BREAKER = ("--set", "reflection.max_consecutive_failures=0")


# -- Every event --------------------------------------------------------------------------------------------------

REASON = tell("mind.suggestion.vague", vague="<name>")
FAULT = Fault("UNKNOWN_TOOL", tell("refuse.plan.no_such_tool_near", name="x", near="y"), "a").told
MISFIT = tell("error.ARGS_INVALID", tool="send", faults=tell("schema.required.argument", name='"to"'))
STOPPED = tell("stop.BREAKER_OPEN")
LATE = tell("model.no_answer", problem=tell("model.timeout", name="m", place="http://x/v1", seconds=3.0))
ERROR = ev.Error("ARGS_INVALID", Category.PARAMETER, MISFIT)
NAMES = one_by_one([tell("summary.of", id="a", reason=MISFIT), "b (x)"], "text.and")
EVENTS: tuple[ev.Event, ...] = (
    ev.PlanRejected("m", (FAULT, FAULT), tell("mind.plan_invalid"), "replan", "a"),
    ev.StepStarted("a", 2, "ok", args={"x": 1}),
    ev.StepSucceeded("a", 2, None, "d", 5000, blob=True, elapsed=1.0, unverified=True),
    ev.StepFailed("a", 1, ERROR, 1.0),
    ev.StepFailed("a", 1, ERROR, 0.0, lost=True),
    ev.StepFailed("a", 1, ERROR, called=False),
    ev.StepFailed("a", 1, ev.Error("X", Category.TRANSIENT, tell("error.rate_limited", retry_after=3)), not_now=3.0),
    ev.StepVerified("a", 1, "there", reason=tell("reason.not_called_again")),
    ev.StepVerified("a", 1, "absent"),
    ev.StepVerified("a", 1, "unknown", reason=tell("reason.no_tool", tool="x")),
    ev.StepSkipped("a", "SKIP_OPTIONAL", tell("skip.SKIP_OPTIONAL", retries=2, reason=MISFIT), "rules"),
    ev.StepKept("a"),
    ev.StepKept("a", "once"),
    ev.StepRenewed("a"),
    ev.RetryScheduled("a", 2, 4, 2, 1.5, 2.0),
    ev.RetryScheduled("a", 2, 4, 2, 0.0, 2.0),
    ev.RetryScheduled("a", 2, 4, 2, 1.5, 2.0, not_now=True),
    ev.RetryScheduled("a", 2, 4, 2, 1.5, 2.0, crashed=True),
    ev.Reflected("a", 1, Category.PERMANENT, Rung.FAIL, MISFIT, by="m", refused=(about("m", REASON), MISFIT)),
    ev.Reflected("a", 1, Category.TOOL, Rung.REPAIR, by="m", refused=(tell("reason.args_tried"),)),
    ev.Reflected("a", 1, Category.TOOL, Rung.REPLAN),
    *(ev.Recovered("a", 1, rung, MISFIT, "ok", {"x": 1}, "y") for rung in Rung if has(f"line.rung.{rung}")),
    ev.QuestionAsked("reflect", "a", 1, MISFIT),
    ev.QuestionAsked("replan", "", 0, MISFIT),
    ev.Consulted("reflect", "a", "m", 5, 5, 0.5, 1.0, LATE),
    ev.Consulted("reflect", "a", "m", 5, 5),
    ev.Declined("repair", "a", one_by_one([FAULT, FAULT])),
    ev.ArtifactCreated("a", "a", 1, "d", 5),
    ev.ArtifactLost("a", "d", tell("reason.expired")),
    ev.RetryBegin(1, "me", ("a",), ("a", "b"), 2, {"a": MISFIT}, automatic=False),
    ev.RetryBegin(1, "me", ("a",), ("a", "b"), 2, {"a": MISFIT}),
    ev.RetryDone(1, {"succeeded": 1}, ("a",)),
    ev.Replanned(2, ev.Course(("a",)), "m", tell("reason.stopped", stopped="BREAKER_OPEN")),
    ev.CleanupBegun(("a", "b"), until=60.0),
    ev.Evaluation(
        False,
        False,
        False,
        summary=tell(
            "summary.failed",
            names=NAMES,
            consequences=2,
        ),
    ),
    ev.GateOpened("a", 0, "ok", "d1", {"x": 1}),
    ev.GateOpened(
        "a", 0, "ok", "d2", {"x": 2}, files={"f": "2"}, before=ev.Shown("ok", "d1", {"x": 1}, files={"f": "1"})
    ),
    ev.GateOpened("a", 0, "ok", "d2", {"x": 2}, before=ev.Shown("ok")),
    ev.Acted("confirm", "me", "a", ahead=True),
    ev.Acted(
        "confirm", "me", "a", digest="d", course=ev.Course(("a",), (Step("a", "ok"),)), call=ev.Shown("ok", "d", {})
    ),
    ev.Waiting(({"for": "confirm", "step": "a", "question": "", "tool": "ok", "args": {"x": 1}},)),
    ev.Waiting(({"for": "in_doubt", "step": "a", "tool": "ok"}, {"for": "paused", "step": ""})),
    ev.Resumed("me", ("a", "b")),
    ev.Acted("skip", "me", "a", reason=tell("reason.asked_for")),
    ev.Cancelled("me", tell("reason.asked_for")),
    ev.Stopped("BUDGET_EXCEEDED", tell("reason.used", name="max_cost", spent=3.0, limit=2.0)),
    ev.Done(
        "failed",
        False,
        False,
        False,
        summary=tell("summary.stopped_last", reason=STOPPED, names=NAMES),
    ),
    ev.Notified("webhook", "http://x", False, 3, tell("reason.notify.broke", why="ECONNRESET"), "done", "r-1"),
    ev.Audited("confirm", "m", "a", "X"),
)


@pytest.fixture
def state() -> State:
    """A run of two steps that has just begun."""
    state = State("r1")
    plan = Plan("", (Step("a", "ok"), Step("b", "ok", needs=(Need("a"),))))
    for seq, event in enumerate((ev.RunStarted(), ev.PlanAccepted(plan)), 1):
        evolve(state, event, 0.0, seq)
    return state


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_told_in_chinese(event: ev.Event, state: State) -> None:
    """T12: as a line, with its details, and as a part of the story; whatever we wrote into it is said again."""
    record = Record("r1", 3, 1.0, decode(encode(event)))
    out = Output(lang="zh")
    out.verbose = True
    told = [str(line) for line in LogLines(out, state).lines(record)]
    told += [story(state, [record], step, "zh") for step in (None, "a")]
    assert english("\n".join(told)) == []


def test_every_event_that_is_told_is_among_them() -> None:
    """T12: a new type of event has to be told in Chinese as well; these three hold no words of ours."""
    assert set(NARRATE) == {type(event) for event in EVENTS} | {
        ev.RunStarted, ev.PlanAccepted, ev.StepProgress,
    }  # fmt: skip


# -- Every command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("show",), ("why",), ("logs",), ("graph",), ("artifacts",), ("watch",)])
def test_what_became_of_a_run(here: Here, words: tuple[str, ...]) -> None:
    """T12: while it runs, and whoever looks at it afterwards."""
    plan = here.place.plan(*STEPS)
    zh(here, "run", plan, "--tools", "toolbox.py", *BREAKER, code=1)
    run = here.only()
    zh(here, *words, run)
    if words == ("why",):
        for step in STEPS:
            zh(here, "why", run, str(step["id"]), code=0)


def test_what_waits_for_somebody(here: Here) -> None:
    """T12: gates, doubts, pauses, and what is done about them."""
    steps = ({"id": "gate", "tool": "ok", "confirm": "好吗？"}, {"id": "mail", "tool": "send", "args": {"until": "x"}})
    plan = here.place.plan(*({**step, "timeout": 0.1} for step in steps))
    zh(here, "run", plan, "--tools", "toolbox.py", code=3)
    run = here.only()
    for words in (("show", run), ("why", run), ("why", run, "mail"), ("why", run, "gate"), ("logs", run), ("ls",)):
        zh(here, *words, code=0)
    for refused in (
        ("retry", run), ("resume", run), ("confirm", run, "mail"), ("resolve", run, "gate", "--failed"),
        ("resolve", run, "mail"), ("resolve", run, "mail", "--failed", "--rerun"), ("skip", run, "nobody"),
        ("confirm", run, "nobody"), ("repair", run, "mail"), ("repair", run, "mail", "--args", "[1]"),
    ):  # fmt: skip
        zh(here, *refused)
    zh(here, "pause", run, code=0)
    zh(here, "pause", run, code=2)
    zh(here, "resolve", run, "mail", "--succeeded", "{no json", code=2)
    zh(here, "confirm", run, "gate", "--refuse")
    zh(here, "cancel", run)
    zh(here, "show", run, code=0)


def test_retries_and_their_refusals(here: Here) -> None:
    """T12: what would run again, what does, and why it may not."""
    run = here.run({"id": "a", "tool": "needs_file", "args": {"name": "there"}}, {"id": "b", "tool": "ok"}, code=1)
    zh(here, "retry", run, "--dry-run", code=0)
    zh(here, "retry", "--all-failed", "--dry-run", code=0)
    for refused in (
        ("--step", "nobody"), ("--step", "b"), ("--stage", "none"), ("--clean",), ("--all-failed",), ("--step",),
    ):  # fmt: skip
        zh(here, "retry", run, *refused, code=2)
    zh(here, "retry", "--all-failed", "--step", "a", code=2)
    zh(here, "retry", "--all-failed", "--clean", code=2)
    zh(here, "retry", run, code=1)
    here.place.touch("there")
    zh(here, "--set", "log.verbose=true", "retry", run, code=0)
    zh(here, "retry", run, code=2)
    zh(here, "resume", run, code=2)
    zh(here, "retry", run, "--set", "retry.max_retries=1", "--force", "--step", "a", code=0)
    for words in (("show", run), ("why", run), ("why", run, "a"), ("logs", run)):
        zh(here, *words, code=0)
    final = here.run({"id": "a", "tool": "fail", "args": {"category": "permanent_error"}}, code=1)
    zh(here, "retry", final, code=2)
    zh(here, "why", final, "a", code=0)
    zh(here, "retry", "--all-failed", code=1)


FAULTY = (
    {"id": "a", "tool": "okk", "retries": "x", "needs": ["zz"], "effct": "read"},
    {"id": "b", "tool": "fail", "args": {"messge": 1}, "timeout": -1, "needs": ["c"], "produces": 3},
    {"id": "c", "tool": "needs_file", "needs": ["b"], "check": {"schema": {"type": "txt"}}, "fallback": 3},
    {"id": "d", "tool": "hold", "args": {"name": 7}, "verify": {"tool": "nope"}, "alternatives": ["no"]},
    {"id": "d", "tool": "ok", "args": {"value": "${zz.x} ${broken"}, "confirm": 3, "critical": "x"},
    {"id": "e", "tool": "", "trust_output": 3, "effect": "twice", "needs": [{"step": "a", "when": "never"}]},
)


def test_faults_of_plans(here: Here) -> None:
    """T12, P5: every fault, from the reader, the checker and the schemas of the tools."""
    plan = here.place.plan(*FAULTY)
    assert zh(here, "check", plan, "--tools", "toolbox.py", code=2).out.count("步骤") >= 12
    zh(here, "run", plan, "--tools", "toolbox.py", code=2)
    zh(here, "graph", plan, code=2)
    hole = [{"id": "a", "tool": "ok", "critical": False}, {"id": "b", "tool": "hold", "args": {"name": "${a}"}}]
    assert "警告" in zh(here, "check", here.place.plan(*hole), "--tools", "toolbox.py", code=0).out
    zh(here, "check", here.place.plan({"id": "a", "tool": "ok"}), code=0)
    for name, text in {"list.yaml": "- 1", "empty.yaml": "", "no.json": "{", "text.yaml": "steps: x"}.items():
        (here.place.folder / name).write_text(text)
        found = here("--lang", "zh", "check", name, code=2)
        parser = ("did not find expected node content",)  # PyYAML's own words
        assert english(found.out + found.err, *parser) == []
    zh(here, "check", "nowhere.yaml", code=2)


def test_arguments_that_do_not_fit_while_running(here: Here) -> None:
    """T12, X6: what the tool's schema says is said in Chinese, from the history as well."""
    check = {"keys": ["k"], "non_empty": True, "schema": {"type": "string"}}
    steps = (
        {"id": "a", "tool": "ok", "args": {"value": {"n": 1}}},
        {"id": "b", "tool": "hold", "args": {"name": "${a}"}},
        {"id": "c", "tool": "ok", "args": {"value": "${a.nope}"}},
        {"id": "d", "tool": "ok", "check": check},
    )
    zh(here, "run", here.place.plan(*steps), "--tools", "toolbox.py", *BREAKER, code=1)
    run = here.only()
    said = zh(here, "show", run, code=0).out
    assert '应为 string，实际为 {"n": 1}' in said and "${a.nope} 不存在" in said and "它缺少 'k'" in said
    assert "expected string, got" in here("show", run, code=0).out


def test_the_surroundings(here: Here) -> None:
    """T12: settings, tools, stores, memory, prompts, doctor."""
    (here.place.folder / "broken.py").write_text("import nowhere_to_be_found\n")
    (here.place.folder / "none.py").write_text("x = 1\n")
    (here.place.folder / "lambda.py").write_text("import rerail\nt = rerail.tool(lambda: 1)\n")
    zh(here, "config", code=0)
    zh(here, "tools", code=0)
    zh(here, "tools", "--tools", "toolbox.py", code=0)
    zh(here, "doctor", "--tools", "toolbox.py", code=0)
    zh(here, "memory", code=0)
    zh(here, "prompts", code=0)
    zh(here, "prompts", "eject", code=0)
    for words in (
        ("prompts", "eject"), ("prompts", "x"), ("prompts", "show", "x"), ("config", "--set", "x"),
        ("config", "--set", "run.x=1"), ("config", "--set", "no.x=1"), ("config", "--set", "run.concurrency=x"),
        ("config", "--set", "retry.max_retries=-1"), ("config", "--set", "reflection.mode=x"),
        ("ls", "--store", "nowhere.db"), ("ls", "--store", "ftp://x"), ("show", "x"), ("show", "x", "--store", "no.db"),
        ("tools", "--tools", "nowhere.py"), ("tools", "--tools", "none.py"), ("tools", "--tools", "lambda.py"),
        ("tools", "--tools", "no_such_module"), ("tools", "--tools", "a b"), ("tools", "--tools", "toolbox.py:zz"),
        ("plan", "x"), ("run",), ("run", "--objective", "x"), ("mcp", "--http", "x"), ("mcp", "--http", "0.0.0.0:1"),
    ):  # fmt: skip
        zh(here, *words, code=2)
    for words in (
        ("prune",), ("prune", "--older-than", "x"), ("backup", "."), ("backup", "x.db", "--store", "redis://h"),
    ):  # fmt: skip
        zh(here, *words, code=2)
    run = here.run({"id": "a", "tool": "ok", "args": {"value": "x" * 4000}}, code=0)
    zh(here, "backup", "copy.db", code=0)
    zh(here, "backup", "copy.db", code=2)
    connection = apsw.Connection(".rerail/runs.db")
    connection.execute("UPDATE blobs SET data = x'00'; DELETE FROM events WHERE seq = 2")
    connection.execute("INSERT INTO inbox(run, data) VALUES ('gone', x'00')")
    connection.close()
    zh(here, "prune", "--older-than", "0s", "--dry-run", code=0)
    zh(here, "doctor", code=1)
    zh(here, "doctor", "--repair", code=1)
    assert zh(here, "prune", "--older-than", "0s", "--yes", code=0).out.count(run) <= 1
    broken = here("--lang", "zh", "doctor", "--tools", "broken.py", code=1)
    assert english(broken.out, "No module named") == []
    assert zh(here, "doctor", "--store", "toolbox.py", code=1).out.count("✗") >= 1


def test_mistakes_on_the_command_line(here: Here) -> None:
    """T12, T4: the parser speaks Chinese, too."""
    for words in (
        ("nope",), ("shwo",), ("--nope",), ("show",), ("show", "a", "b", "c"), ("ls", "--limit", "x"), ("ls", "--nope"),
        ("ls", "--jsno"), ("ls", "--status", "faild"), ("ls", "--status", "zzz"), ("show", "a", "--output"),
        ("ls", "--json=3"), ("demo", "--nope"), ("ls", "--limit"),
    ):  # fmt: skip
        zh(here, *words, code=2)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_every_command(here: Here, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """T12: what it does, what it takes, and every option."""
    english_help, chinese = here(command, "--help", code=0).out, here(command, "--help", "--lang", "zh", code=0).out
    assert english(chinese) == [] and catalogue("zh")[f"cli.about.{command}"].split("\n")[0] in chinese
    options = set(re.findall(r"--[a-z-]+", chinese))
    assert {"--store", "--lang"} <= options == set(re.findall(r"--[a-z-]+", english_help))
    monkeypatch.setenv("RERAIL_LANG", "zh")
    assert here(command, "--help", code=0).out == here("help", command, code=0).out == chinese


def test_json_stays_english(here: Here) -> None:
    """T12, I7: codes and JSON never change with the language, in answers and in refusals."""
    run = here.run(*STEPS, code=1)
    bad = here.place.plan(*FAULTY, name="bad.json")
    for words in (
        ("show", run), ("why", run), ("why", run, "bad"), ("logs", run), ("retry", run, "--dry-run"), ("ls",),
        ("check", bad, "--tools", "toolbox.py"), ("run", bad), ("doctor",), ("nope",), ("ls", "--limit", "x"),
        ("retry",), ("retry", run, "--clean"), ("prompts", "x"), ("tools", "--tools", "no.py"), ("config",),
        ("ls", "--store", "no.db"), ("show", "x"),
        ("resolve", run, "bad"), ("mcp", "--http", "x"), ("memory",), ("graph", run), ("artifacts", run, "x"),
    ):  # fmt: skip
        chinese, plain = here("--lang", "zh", "--json", *words).json, here("--json", *words).json
        if words == ("doctor",):
            chinese["checks"] = [check for check in chinese["checks"] if check["name"] != "lang"]
            plain["checks"] = [check for check in plain["checks"] if check["name"] != "lang"]
        assert chinese == plain, words


def test_the_demo(tmp_path: Path) -> None:
    """T12: from curtain to curtain."""
    for words in (["--fast", "--keep", str(tmp_path)], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "rerail.cli", "demo", *words], capture_output=True, text=True, encoding="utf-8",
            timeout=120, env={**os.environ, "PYTHONUTF8": "1", "RERAIL_LANG": "zh"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        data = (str(tmp_path), "The Left Hand of Darkness")  # a book that was ordered
        assert english(reduce(lambda said, own: said.replace(own, ""), data, done.stdout + done.stderr)) == []
        assert "演示" in done.stdout or "核实的结论" in done.stdout
