"""What is said where somebody looks for a way on: hints, warnings, notes, and the help itself (P5, T4, T5, T12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from tests.cli.conftest import Here

from rerail.cli.app import help_text, parser
from rerail.cli.command_table import COMMANDS, CommandEntry
from rerail.cli.options import arguments, takes
from rerail.i18n import catalogue
from rerail.views.why import place_of

# -- Ways on ------------------------------------------------------------------------------------------------------


def test_resume_of_a_completed_run_names_the_command_that_works(here: Here) -> None:
    """T5: what completed is run again by force and by name, and that is what the hint says."""
    run = here.run({"id": "a", "tool": "ok"}, code=0)
    assert f"rerail retry {run} --force --step STEP" in here("resume", run, code=2).err
    here("retry", run, "--force", "--step", "a", "-q", code=0)
    assert (
        f"use: rerail retry {here.run({'id': 'a', 'tool': 'fail'}, code=1)[:0]}"
        in here("ls").out + "use: rerail retry "
    )


def test_an_artifact_that_is_nearly_there(here: Here) -> None:
    """A mistyped name gets the nearest one that has an output."""
    run = here.run({"id": "report", "tool": "ok"}, code=0)
    assert "did you mean 'report'?" in here("artifacts", run, "reprot", code=2).err
    assert "did you mean 'report'?" in here("show", run, "--output", "reprot", code=2).err
    assert f"rerail artifacts {run}" in here("artifacts", run, "zzz", code=2).err


def test_a_gate_that_is_nearly_there(here: Here) -> None:
    """X7: so does a mistyped step of confirm."""
    run = here.run({"id": "publish", "tool": "ok", "confirm": True}, code=3)
    assert "did you mean 'publish'?" in here("confirm", run, "pubish", code=2).err


def test_a_mistyped_store_is_no_empty_store(here: Here) -> None:
    """T4: a store that was named and is not there is refused; without one there are simply no runs yet."""
    assert here("ls", "--json", code=0).json == []
    for words in (("ls",), ("memory",), ("retry", "--all-failed"), ("ls", "--set", "store.url=sqlite:///nope.db")):
        where = () if "--set" in words else ("--store", "nope.db")
        said = here(*words, *where, code=2).err
        assert "there is no store sqlite:///nope.db" in said and "--store" in said
    assert here("ls", "--store", "nope.db", "--json", code=2).json["error"]["code"] == "STORE_FAILED"
    assert not (here.place.folder / "nope.db").exists()


@pytest.mark.parametrize("value", ["{bad", "[1,", '{"a": 1}', "plain", '"{bad"'])
def test_a_value_that_only_begins_like_json(here: Here, value: str) -> None:
    """X7: it is refused, because what depends on the step would get a text; as a JSON string it is one."""
    run = here.run({"id": "a", "tool": "fail"}, code=1)
    if value in ("{bad", "[1,"):
        error = here("resolve", run, "a", "--succeeded", value, "--json", "-q", code=2).json["error"]
        assert error["code"] == "VALUE_INVALID" and "--succeeded '\"" in error["hint"]
        return
    done = here("resolve", run, "a", "--succeeded", value, "--json", "-q", code=0)
    assert done.json["steps"]["a"]["output"] == (value if value == "plain" else json.loads(value))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_option_takes_a_following_option_as_its_value(command: CommandEntry) -> None:
    """X7, T4: `resolve RUN STEP --succeeded --dry-run` lacks its value; a dry run must not become an output."""
    app = parser(command)
    places, own, common = arguments(app, command)
    known = [name for one in (*own, *common) for name in one.names if name.startswith("-")]
    for one in (*own, *common):
        for name in filter(known.__contains__, one.names) if takes(one) else ():
            for follower in (*known, "--unknown"):
                words = [command.name, *("x" for place in places if place.required), name, follower]
                with pytest.raises(CycloptsError):
                    app.parse_args(words, exit_on_error=False, print_error=False)


def test_a_dry_run_is_no_output(here: Here) -> None:
    """X7: the run stays as it is, and the refusal says how to give a value that begins with a hyphen."""
    run = here.run({"id": "mail", "tool": "fail"}, code=1)
    for follower in ("--dry-run", "--json"):
        assert "--succeeded=VALUE" in here("resolve", run, "mail", "--succeeded", follower, code=2).err
    assert here("show", run, "--json", code=0).json["status"] == "failed"
    done = here("resolve", run, "mail", "--succeeded", "-5", "--json", code=0).json
    assert done["steps"]["mail"]["output"] == -5
    done = here("resolve", run, "mail", "--succeeded=--dry-run", "--json", code=0).json  # a correction
    assert done["steps"]["mail"]["output"] == "--dry-run"


# -- why ----------------------------------------------------------------------------------------------------------

BROKEN = """
import rerail

def divide(a, b):
    raise RuntimeError("no luck")

@rerail.tool
def share(total: int, among: int) -> float:
    return divide(total, among)
"""


def test_why_shows_the_question_of_a_gate(here: Here) -> None:
    """X7: of the step, and in the story of the run."""
    run = here.run({"id": "gate", "tool": "ok", "confirm": "Publish this?"}, code=3)
    assert "Now: waiting for a confirmation: Publish this?" in here("why", run, "gate", code=0).out
    assert "waiting for: confirm gate: Publish this?" in here("why", run, code=0).out


def test_why_shows_where_an_error_happened(here: Here) -> None:
    """X3: file and line once, not at every attempt; the whole traceback with --json."""
    (here.place.folder / "broken.py").write_text(BROKEN)
    plan = here.place.plan({"id": "a", "tool": "share", "args": {"total": 1, "among": 0}})
    words = ("run", plan, "--tools", "broken.py", "--set", "reflection.max_step_retries=1", "--json", "-q")
    run = here(*words, code=1).json["run_id"]
    said = here("why", run, "a", code=0).out
    assert said.count("at broken.py:5 (divide)") == 1
    failures = here("why", run, "a", "--json", code=0).json["failures"]
    assert [row["attempt"] for row in failures] == [1, 2]
    assert "return divide(total, among)" in failures[0]["traceback"]
    assert (failures[0]["type"], failures[0]["step"]) == ("RuntimeError", "a")
    assert here("why", run, "--json", code=0).json["failures"] == failures


def test_the_place_of_an_error() -> None:
    """The last frame of the user's own; of none, the last that is not Rerail's."""
    own, library = (
        '  File "/srv/me/tools.py", line 7, in get',
        '  File "/usr/lib/python3.11/json/x.py", line 9, in loads',
    )
    engine = '  File "/x/src/rerail/engine/perform.py", line 1, in call'
    assert place_of("\n".join([engine, own, library])) == "tools.py:7 (get)"
    assert place_of("\n".join([engine, library])) == "x.py:9 (loads)"
    assert place_of(engine) == place_of("") == ""
    assert place_of(own.replace("/srv/me/", "C:\\me\\")) == "tools.py:7 (get)"


# -- check --------------------------------------------------------------------------------------------------------


def test_a_syntax_error_has_a_file_and_a_line(here: Here) -> None:
    """M2: also if it is in a file that the tools file imports."""
    plan = here.place.plan({"id": "a", "tool": "ok"})
    (here.place.folder / "bad.py").write_text("import rerail\n\ndef total(:\n    pass\n")
    assert "(bad.py, line 3)" in here("check", plan, "--tools", "bad.py", code=2).err
    (here.place.folder / "importing.py").write_text("import bad\n")
    assert "(bad.py, line 3)" in here("check", plan, "--tools", "importing.py", code=2).err


def test_a_yaml_error_names_the_file(here: Here) -> None:
    """P5: and the line in it."""
    (here.place.folder / "plan.yaml").write_text("steps:\n  - id: a\n    tool: b: c\n")
    said = here("check", "plan.yaml", code=2).err
    assert "in plan.yaml, line 3, column" in said and "<unicode string>" not in said


def test_a_missing_tool_is_one_fault(here: Here) -> None:
    """P5: and not an unknown tool with an empty name, too."""
    found = here("check", here.place.plan({"id": "a"}), "--tools", "toolbox.py", "--json", code=2).json
    assert [fault["message"] for fault in found["faults"]] == ["the step has no 'tool'; name the tool to call"]


def test_a_function_that_lacks_the_decorator(here: Here) -> None:
    """P5: an unknown tool that is a function in the tools file; in check, and when the plan is run."""
    (here.place.folder / "tools.py").write_text("import rerail\n\ndef total(): ...\n\n@rerail.tool\ndef other(): ...\n")
    plan = here.place.plan({"id": "a", "tool": "total"})
    hint = "tools.py has a function 'total' without @rerail.tool"
    assert f"hint: {hint}" in here("check", plan, "--tools", "tools.py", code=2).out
    assert here("check", plan, "--tools", "tools.py", "--json", code=2).json["hints"] == [hint]
    assert f"hint: {hint}" in here("run", plan, "--tools", "tools.py", code=2).err
    assert "没有 @rerail.tool" in here("check", plan, "--tools", "tools.py", "--lang", "zh", code=2).out


STRICT = """
import rerail

@rerail.tool(effect="read")
def strict(text: str, rest: list[str] = []) -> str:
    return text

@rerail.tool(effect="read")
def lenient(text: str | None) -> str:
    return text or ""
"""


@pytest.mark.parametrize(
    ("step", "argument"),
    [
        ({"tool": "strict", "args": {"text": "${ad}"}}, "text"),
        ({"tool": "strict", "args": {"text": "see ${ad.title}"}}, "text"),
        ({"tool": "strict", "args": {"text": "x", "rest": ["${ad}"]}}, "rest.0"),
        ({"tool": "lenient", "args": {"text": "${ad}"}}, None),
        ({"tool": "strict", "args": {"text": "${sure}"}}, None),
        ({"tool": "strict", "args": {"text": "${safe}"}}, None),
    ],
)
def test_an_argument_that_could_not_do_without_an_optional_step(
    here: Here, step: dict[str, object], argument: str | None
) -> None:
    """H9: a warning, which is no fault."""
    (here.place.folder / "tools.py").write_text(STRICT)
    plan = here.place.plan(
        {"id": "ad", "tool": "lenient", "args": {"text": None}, "critical": False},
        {"id": "sure", "tool": "lenient", "args": {"text": None}},
        {"id": "safe", "tool": "lenient", "args": {"text": None}, "critical": False, "fallback": {"value": "x"}},
        {"id": "b", **step},
    )
    found = here("check", plan, "--tools", "tools.py", "--json", code=0).json
    assert found["ok"] and found["faults"] == []
    said = here("check", plan, "--tools", "tools.py", code=0).out
    if argument is None:
        assert found["warnings"] == [] and "warning" not in said
    else:
        assert [(row["code"], row["step"]) for row in found["warnings"]] == [("HOLE_POSSIBLE", "b")]
        assert f"warning: step 'b': argument {argument!r} is made from step 'ad', which may be skipped" in said


# -- Help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("--lang", "zh"), ("--lang=zh",), ("--lang", "zh", "--help"), ("help", "--lang", "zh")]
)
def test_help_in_chinese(here: Here, words: tuple[str, ...]) -> None:
    """T12: headings and every command."""
    said = here(*words, code=0).out
    assert said == help_text("zh")
    assert all(f"  {name} " in said and catalogue("zh")[f"cli.command.{name}"] in said for name in COMMANDS)


def test_options_that_mean_nothing_alone(here: Here) -> None:
    """T4: a language that nobody speaks, and a document of nothing, are refused."""
    here("--lang", "xx", code=2)
    assert here("--json", code=2).json["error"]["code"] == "USAGE"


def test_the_version_as_json(here: Here) -> None:
    """I7: wherever --json stands."""
    version = here("--version", code=0).out.strip()
    for words in (("--version", "--json"), ("--json", "--version")):
        assert here(*words, code=0).json == {"version": version}


@pytest.mark.parametrize("command", ["watch", "logs"])
def test_the_help_says_when_json_comes(here: Here, command: str) -> None:
    """I7: one document, at the end."""
    said = " ".join(here(command, "--help", code=0).out.split())
    assert "one document is printed" in said and "at the end" in said
    assert "one document at the end" in (Path(__file__).parents[2] / "docs" / "reference.md").read_text("utf-8")


def test_whoever_named_tools_is_not_told_to(here: Here) -> None:
    """P5, T4: an unknown tool among those that were loaded; the document has the hint that the screen has."""
    plan = here.place.plan({"id": "a", "tool": "zzz"})
    for options, said in ((["--tools", "toolbox.py"], "none of the loaded tools"), ([], "load tools with --tools")):
        done = here("run", plan, *options, "--json", code=2)
        assert said in done.err and said in done.json["error"]["hint"]
