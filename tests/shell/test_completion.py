"""What can be completed: with the prompt's own input, and a real store behind it (T11)."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from tests.cli.conftest import Here

from rerail.cli.command_table import COMMANDS
from rerail.cli.options import Common
from rerail.cli.output import Output
from rerail.cli.shell.command_lines import NOT_HERE, Lines
from rerail.cli.shell.completion import ShellCompleter
from rerail.cli.shell.prompt import ShellPrompt
from rerail.cli.shell.store_view import PATIENCE, Window
from rerail.settings.loading import Settings

STAGED = (
    {"id": "read", "tool": "ok", "stage": "reading", "title": "Read it"},
    {"id": "write it", "tool": "fail", "stage": "writing", "needs": ["read"]},
)


def until(true: Callable[[], object]) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextlib.contextmanager
def opened(url: str = "sqlite:///.rerail/runs.db") -> Iterator[Window]:
    """A window on a store, once it looks."""
    window = Window(Settings.load({"store": {"url": url}}), lambda *_: None, lambda: None)
    window.open()
    try:
        yield window
    finally:
        window.close()


@pytest.fixture
def window(here: Here) -> Iterator[Window]:
    """A window on the store of the folder."""
    with opened() as window:
        yield window


class Typed:
    """What is offered for a line."""

    def __init__(self, window: Window, lang: str = "en") -> None:
        self._completer = ShellCompleter(window, Output(lang=lang))

    def __call__(self, line: str) -> list[str]:
        """The lines that it could become."""
        found = self._completer.get_completions(Document(line), CompleteEvent())
        return [line[: len(line) + one.start_position] + one.text for one in found]

    def meanings(self, line: str) -> list[str]:
        """What stands beside the offers."""
        return [one.display_meta_text for one in self._completer.get_completions(Document(line), CompleteEvent())]


def test_commands(window: Window) -> None:
    """T11: with or without a slash, each with what it does; those that make no sense here are not offered."""
    typed = Typed(window)
    assert typed("/ret") == ["/retry"]
    assert typed("ret") == ["retry"]
    assert typed("/st") == ["/start", "/status"]
    assert typed("rerail wa") == ["rerail watch"]
    assert typed("--json --lang zh ta") == ["--json --lang zh tasks"]
    assert set(typed("")) >= {f"/{name}" for name in COMMANDS if name not in NOT_HERE} | {"/quit", "/help", "/tasks"}
    assert not {"/mcp", "/shell"} & set(typed("/"))
    assert typed.meanings("/ret") == ["Do again what failed and what depends on it."]
    assert Typed(window, "zh").meanings("/qui")[1] == "退出；由工作进程执行的任务会继续。也可用 exit 或 Ctrl-D。"
    assert typed("/help ret") == ["/help retry"]
    assert typed("/nonsense x") == typed("# ret") == typed("/quit x") == typed("/demo --x") == []


def test_options(window: Window) -> None:
    """T11: those of the command, as its help has them; values where they are known."""
    typed = Typed(window)
    assert typed("/retry 7c1f --dr") == ["/retry 7c1f --dry-run"]
    assert typed("/logs 7c1f --t") == ["/logs 7c1f --tail", "/logs 7c1f --tools"]
    assert typed.meanings("/retry --dr")[0].startswith("Only show what would run again")
    assert typed("/ls --status f") == ["/ls --status failed"]
    assert typed("/tasks --status=w") == ["/tasks --status=waiting"]
    assert typed("/ls --lang ") == ["/ls --lang en", "/ls --lang zh"]
    assert typed("--lang z") == ["--lang zh"]
    assert typed("--st") == ["--store"]
    assert typed("/logs x --tail ") == []


def test_runs_and_what_is_in_them(here: Here, window: Window) -> None:
    """T11: newest first, with status and objective; steps and stages are those of the run on the line."""
    first = here.run({"id": "a", "tool": "ok"}, code=0)
    plan = here.place.plan(*STAGED)
    second = here("run", plan, "--tools", "toolbox.py", "--json", "-q", code=1).json["run_id"]
    until(lambda: len(window.runs()) == 2)
    typed = Typed(window)
    assert typed("/show ") == [f"/show {second}", f"/show {first}"]
    assert typed("/status ") == typed("/status ") != []
    assert typed(f"/retry {second[:7]}") == [f"/retry {second}"]
    assert typed("/run x --parent ") == [f"/run x --parent {second}", f"/run x --parent {first}"]
    assert typed.meanings("/show ") == ["failed a test", "completed a test"]
    assert Typed(window, "zh").meanings("/show ")[0] == "失败 a test"
    for line in ("/why {} ", "/skip {} ", "/confirm {} ", "/retry {} --step ", "/repair {} ", "/artifacts {} "):
        line = line.format(second[:7])  # noqa: PLW2901
        assert typed(line) == [f"{line}read", f"{line}'write it'"]
    assert typed.meanings(f"/why {second} ") == ["succeeded Read it", "failed fail"]
    assert typed(f"/why {second} 'wr") == [f"/why {second} 'write it'"]
    assert typed(f"/retry {second} --stage ") == [f"/retry {second} --stage {name}" for name in ("reading", "writing")]
    assert typed(f"/retry --stage=w {second}") == [f"/retry --stage=w {second}"]
    assert typed(f"/retry {second} --stage=w") == [f"/retry {second} --stage=writing"]
    assert typed("/why nobody ") == typed("/retry --stage ") == typed(f"/show {second} ") == []


def test_a_run_that_changes_is_seen_as_it_is(here: Here, window: Window) -> None:
    """T11: what was kept from the last question does not stand in the way."""
    run = here.run({"id": "a", "tool": "needs_file", "args": {"name": "x"}}, code=1)
    until(window.runs)
    typed = Typed(window)
    assert typed.meanings(f"/why {run} ") == ["failed needs_file"]
    here.place.touch("x")
    here("retry", run, code=0)
    assert typed.meanings(f"/why {run} ") == ["succeeded needs_file"]


def test_the_stages_of_what_follows(here: Here, window: Window) -> None:
    """T11, T6: to people a run and what follows it are one task."""
    follow_up = {"objective": "b", "steps": [{"id": "c", "tool": "ok", "stage": "checking"}]}
    plan = here.place.plan({"id": "a", "tool": "ok", "stage": "making"}, follow_up=follow_up)
    run = here("run", plan, "--tools", "toolbox.py", "--json", "-q", code=0).json["run_id"]
    until(lambda: len(window.runs()) == 2)
    assert Typed(window)(f"/retry {run} --stage ") == [
        f"/retry {run} --stage {name}" for name in ("making", "checking")
    ]


def test_files(here: Here, window: Window) -> None:
    """T11: plans and Python files by path; folders go on; odd names are quoted."""
    for name in ("plan.yaml", "plan b.json", "notes.txt", "deep/er/more.yml", "my dir/x.yaml", ".hidden.yaml"):
        file = here.place.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    typed = Typed(window)
    assert typed("/run ") == ["/run 'plan b.json'", "/run plan.yaml", "/run deep/", "/run 'my dir/"]
    assert typed("/run 'my dir/") == ["/run 'my dir/x.yaml'"]
    assert typed("/check deep/er/") == ["/check deep/er/more.yml"]
    assert typed("/run .h") == ["/run .hidden.yaml"]
    assert typed("/start plan.yaml --tools t") == ["/start plan.yaml --tools toolbox.py"]
    assert typed("/add 7c1f plan.") == ["/add 7c1f plan.yaml"]
    assert typed("/run nowhere/") == typed("/run toolbox.py/") == []


# -- A store that cannot be asked ---------------------------------------------------------------------------------


def test_no_store_no_completions(here: Here, window: Window) -> None:
    """T11: and none is made."""
    typed = Typed(window)
    assert typed("/show ") == typed("/why x ") == []
    time.sleep(0.5)
    assert not (here.place.folder / ".rerail").exists()


HOLD = """
import sqlite3, sys
database = sqlite3.connect(".rerail/runs.db", isolation_level=None)
for command in sys.argv[1:]:
    database.execute(command).fetchall()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(*commands: str) -> Iterator[None]:
    """The store in the hands of another process: locks mean nothing inside of one."""
    words = [sys.executable, "-c", HOLD, *commands]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.stdin.close()


def test_a_store_that_is_being_written_can_be_asked(here: Here, window: Window) -> None:
    """T11: a writer that takes its time is not waited for."""
    run = here.run({"id": "a", "tool": "ok"}, code=0)
    until(window.runs)
    with held("BEGIN IMMEDIATE", "UPDATE runs SET objective = 'x'"):
        assert Typed(window).meanings("/show ") == ["completed a test"]
    assert Typed(window)("/show ") == [f"/show {run}"]


def test_a_store_that_nobody_can_open_keeps_nobody_waiting(here: Here) -> None:
    """T11: a question has an answer in time, or none; and leaving does not wait, either."""
    here.run({"id": "a", "tool": "ok"}, code=0)
    with held("PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "UPDATE runs SET objective = 'x'"):
        with opened() as window:
            time.sleep(0.5)  # it is at it
            began = time.monotonic()
            assert window.runs() == window.pictures("7c1f") == []
        assert time.monotonic() - began < 3 * PATIENCE + 1  # two questions, and leaving


def test_a_damaged_history_offers_nothing(here: Here, window: Window) -> None:
    """T11: the others' are offered, and their events are told."""
    broken, whole = (here.run({"id": "a", "tool": "ok"}, code=0) for _ in range(2))
    with contextlib.closing(sqlite3.connect(".rerail/runs.db")) as database:
        database.execute("UPDATE events SET data = x'00' WHERE run = ?", (broken,))
        database.commit()
    until(window.runs)
    typed = Typed(window)
    assert typed(f"/why {broken} ") == []
    assert typed(f"/why {whole} ") == [f"/why {whole} a"]


# -- At the prompt ------------------------------------------------------------------------------------------------


def test_tab_at_the_prompt(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """T11: a command, a run and a step, completed with keys; typing never waits for it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(here.place.folder / "state"))
    run = here.run({"id": "only", "tool": "ok"}, code=0)
    done: list[str] = []
    with create_pipe_input() as keys:
        prompt = ShellPrompt(Lines(Common(), Output()), input=keys, output=DummyOutput())
        prompt.window.open()
        until(prompt.window.runs)
        buffer = prompt.session.default_buffer

        def press() -> None:
            lines = (("/wh\t", "/why"), (f" {run[:6]}\t", f"/why {run}"), (" o\t", f"/why {run} only"))
            try:
                for typed, becomes in lines:
                    keys.send_text(typed)
                    until(lambda becomes=becomes: buffer.text == becomes)  # type: ignore[misc]
            finally:
                keys.send_text("\r")

        fingers = threading.Thread(target=press)
        fingers.start()
        done.append(prompt.session.prompt())
        fingers.join()
        prompt.window.close()
    assert done == [f"/why {run} only"]


def test_typing_does_not_wait_for_the_store(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """T11: the line is accepted while nobody answers what could be completed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(here.place.folder / "state"))
    with create_pipe_input() as keys:
        prompt = ShellPrompt(Lines(Common(), Output()), input=keys, output=DummyOutput())
        asked = threading.Event()

        def slow(*_: object) -> list[object]:
            asked.set()
            time.sleep(3)
            return []

        prompt.window.runs = slow  # type: ignore[assignment,method-assign]
        began = time.monotonic()

        def press() -> None:
            keys.send_text("/show \t")
            asked.wait(10)
            keys.send_text("abc\r")

        fingers = threading.Thread(target=press)
        fingers.start()
        assert prompt.session.prompt() == "/show abc"
        assert time.monotonic() - began < 2.5
        fingers.join()
