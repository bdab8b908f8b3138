"""Commands as tools: arguments, output, failures, limits, cancellation (SPEC M2, E3, X3, X4, H2)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rerail import Engine, PlanError, tool
from rerail.adapters.tools.declared import from_mapping
from rerail.adapters.tools.shell import CommandFailed, shell
from rerail.context import Context
from rerail.errors import SettingsError, ToolError
from rerail.plan.step import Effect
from rerail.ports import Tool

pytestmark = pytest.mark.anyio

SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


def show(*argv: str, **options: Any) -> Tool:
    """A tool that answers with the arguments it was given."""
    return shell("show", [sys.executable, "-c", SHOW, *argv], parse="json", **options)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        await asyncio.sleep(0.001)


# --- Arguments


@pytest.mark.parametrize(
    "value", ["", "a b", "; rm -rf /", "$(id)", "`id`", "'\"\\", "a\nb", "*", "-rf", "--help", "{x}", "名", "\udcff"]
)
async def test_a_value_stays_inside_its_argument(value: str) -> None:
    """M2: never a shell string made of data; whatever the value holds, it is one argument."""
    shown = await show("{value}", "--in={value}/x").call({"value": value}, None)
    if value == "\udcff":  # a byte that is no text passes as that byte
        assert shown == ["\udcff", "--in=\udcff/x"]
    else:
        assert shown == [value, f"--in={value}/x"]


async def test_a_list_becomes_several_arguments_where_the_template_says_so() -> None:
    """M2: other values are written as people would; an optional value that is not given takes its element with it."""
    made = show("{number}", "{flag}", "{{literal}}", "--out={out}", "--", "{files...}", schema=True)
    args = {"files": ["a b", 1, True], "number": 1.5, "flag": False}
    assert await made.call(args, None) == ["1.5", "false", "{literal}", "--", "a b", "1", "true"]


@pytest.mark.parametrize("given", [{"files": []}, {"files": "one"}, {}, {"files": ["x"], "one": ["-r"]}])
async def test_a_list_is_never_empty_and_nothing_else_is_one(given: dict[str, Any]) -> None:
    """M2, SECURITY: a list where one value belongs would add options; an empty one would take an argument away."""
    with pytest.raises(ToolError, match="list") as caught:
        await show("--in={one}", "{one}", "--", "{files...}", schema=True).call({"one": "x", **given}, None)
    assert caught.value.code == "ARGS_INVALID"


async def test_the_advised_guard_holds_for_lists_too(tmp_path: Path) -> None:
    """SECURITY: a list in place of the pattern must not add options, given by the plan or by an earlier output."""
    (tmp_path / "secret").write_text("root:x\n")
    found = shell("find_in", ["grep", "-h", "-e", "{pattern}", "--", "{file}"], effect="read")

    @tool(effect="read")
    def gives() -> list[str]:
        return ["root:x", "-r", "--include=secret"]

    where = {"file": str(tmp_path)}
    async with Engine("memory://", [found, gives]) as engine:
        with pytest.raises(PlanError, match="pattern"):
            await engine.run({"steps": [{"tool": "find_in", "args": {**where, "pattern": gives.fn()}}]})
        steps = [{"id": "gives", "tool": "gives"}, {"tool": "find_in", "args": {**where, "pattern": "${gives}"}}]
        result = await engine.run({"steps": steps})
    assert result.steps["1"].status == "failed" and "root:x\\n" not in repr(result.to_dict())


async def test_nul_bytes_and_unspeakable_text_are_refused() -> None:
    """M2, X3: as a failure of the arguments, before anything runs."""
    for value in ("a\0b", "\ud800"):
        for made in (show("{value}"), show(env={"V": "{value}"}), show(cwd="{value}")):
            with pytest.raises(ToolError, match="value") as caught:
                await made.call({"value": value}, None)
            assert caught.value.code == "ARGS_INVALID"
    with pytest.raises(ToolError, match="too long") as caught:
        await show("{value}").call({"value": "x" * 5_000_000}, None)
    assert caught.value.code == "ARGS_INVALID"


def test_the_schema_asks_for_the_placeholders() -> None:
    """M2: each is required; a list only where it becomes several arguments."""
    made = show("--b={b}", "--", "{a...}", stdin="{c}", env={"D": "{d}"}, cwd="{e}")
    schema = made.spec.schema
    assert sorted(schema.source["required"]) == ["a", "b", "c", "d", "e"]
    good = {"a": ["x"], "b": "x", "c": "x", "d": 1, "e": "x"}
    assert schema.faults(good) == []
    assert schema.faults({**good, "b": ["x"]})
    assert schema.faults({**good, "f": 1})


@pytest.mark.parametrize(
    ("argv", "options", "said"),
    [
        ("ls -l", {}, "list of texts"),
        ([], {}, "list of texts"),
        (["ls", 1], {}, "list of texts"),
        (["{program}"], {}, "data may not choose"),
        (["ls", "{a.b}"], {}, "not a placeholder"),
        (["ls", "{a!r}"], {}, "not a placeholder"),
        (["ls", "{ctx.kye}"], {}, "did you mean 'ctx.key'"),
        (["awk", "{print $1}"], {}, "literal braces"),
        (["ls", "{"], {}, "literal braces"),
        (["ls", "{files...}"], {}, 'put "--" in front'),
        (["ls", "--", "x{files...}"], {}, "not a placeholder"),
        (["ls"], {"stdin": "{files...}"}, "not a placeholder"),
        (["ls", "a\0b"], {}, "NUL"),
        (["ls", "{nmae}"], {"schema": {"properties": {"name": {}}}}, "did you mean 'name'"),
        (["ls"], {"parse": "jsno"}, "did you mean 'json'"),
        (["ls"], {"parze": "json"}, "did you mean 'parse'"),
    ],
)
def test_a_wrong_declaration_is_refused(argv: Any, options: dict[str, Any], said: str) -> None:
    """M2: when the tool is made, not when it is called."""
    with pytest.raises(ValueError, match=said):
        shell("x", argv, **options)


def test_a_command_happens_once_unless_declared_otherwise() -> None:
    """E3: shell tools are once; E5: the fingerprint follows the command."""
    assert show().spec.effect is Effect.ONCE
    assert show(effect="read").spec.effect is Effect.READ
    assert show().spec.fingerprint == show(timeout=3).spec.fingerprint != show("a").spec.fingerprint


async def test_environment_folder_stdin_and_context(tmp_path: Path) -> None:
    """M2, M3: what a command can be given besides its arguments; it asks for the context by placeholders."""
    code = "import os, sys; print(os.environ['V'], 'PATH' in os.environ, os.getcwd(), sys.stdin.read(), sys.argv[1:])"
    made = shell(
        "x",
        [sys.executable, "-c", code, "{ctx.key}", "{ctx.attempt}"],
        env={"V": "<{v}>", "NOT": "{missing}"},
        cwd="{ctx.workspace}",
        stdin="in: {text}",
        schema=True,
    )
    assert made.wants_context and show().wants_context, "a command asks whether its process still owns the run (E11)"
    ctx = Context("r", "s", 2, "key", tmp_path / "w")
    output = await made.call({"v": "a b", "text": "名\0"}, ctx)
    assert output["stdout"] == f"<a b> True {tmp_path}/w in: 名\0 ['key', '2']\n"
    assert (await shell("x", ["cat"]).call({}, None))["stdout"] == ""  # stdin is empty, and never the terminal


# --- Outputs


async def test_outputs_are_read_as_declared() -> None:
    """M2: text with both streams and the status, JSON, or lines; bytes that are no text are survived."""
    command = ["sh", "-c", "echo out; echo err >&2"]
    assert await shell("x", command).call({}) == {"stdout": "out\n", "stderr": "err\n", "status": 0}
    assert await shell("x", ["printf", "a\nb"], parse="lines").call({}) == ["a", "b"]
    assert await shell("x", ["echo", "[1, {{}}]"], parse="json").call({}) == [1, {}]
    assert (await shell("x", ["printf", "\\377"]).call({}))["stdout"] == "\ufffd"
    assert (await shell("x", ["sh", "-c", "exit 3"], ok=(0, 3)).call({}))["status"] == 3


async def test_an_answer_that_is_not_json_leaves_a_once_command_in_doubt() -> None:
    """X3, X4: the command said that it succeeded; repeating it would not be honest."""
    with pytest.raises(ToolError, match="not JSON") as caught:
        await shell("x", ["echo", "oops"], parse="json").call({})
    assert (caught.value.code, caught.value.lost) == ("OUTPUT_NOT_JSON", True)  # type: ignore[attr-defined]


async def test_the_output_limit_holds_while_reading() -> None:
    """M2: an endless output is stopped, not collected; what the command did is not known."""
    start = time.perf_counter()
    with pytest.raises(ToolError, match="more than 1000000 bytes") as caught:
        await shell("x", ["yes"]).call({})
    assert time.perf_counter() - start < 10
    assert (caught.value.code, caught.value.lost) == ("OUTPUT_TOO_LARGE", True)  # type: ignore[attr-defined]
    noisy = [sys.executable, "-c", "import sys; sys.stderr.write('x' * 10_000_000 + 'end')"]
    output = await shell("x", noisy).call({})
    assert len(output["stderr"]) == 64_000
    assert output["stderr"].endswith("end")
    large = await shell("x", ["head", "-c", "3000000", "/dev/zero"], max_output=3_000_000).call({})
    assert len(large["stdout"]) == 3_000_000


async def test_a_background_process_is_not_waited_for(tmp_path: Path) -> None:
    """X4: a daemon that a command leaves behind holds its pipes open, and is left alone."""
    start = time.perf_counter()
    output = await shell("x", ["sh", "-c", "sleep 30 & echo $!"]).call({})
    assert time.perf_counter() - start < 10
    pid = int(output["stdout"])
    assert is_alive(pid)
    os.kill(pid, 9)


async def test_a_command_that_does_not_read_its_stdin_is_no_failure() -> None:
    """M2: a broken pipe on the way in is the command's choice."""
    output = await shell("x", ["true"], stdin="{text}").call({"text": "x" * 1_000_000})
    assert output["status"] == 0


# --- Failures


async def test_x4_an_exit_status_is_a_failure_with_the_words_of_stderr() -> None:
    """X3, X4, H2: code, exit code and the tail of what was said; nothing of the effect, unless listed as `not_done`."""
    with pytest.raises(CommandFailed) as caught:
        await shell("x", ["sh", "-c", "echo out; echo reason >&2; exit 3"]).call({})
    error = caught.value
    assert (str(error), error.code, error.exit_code, error.lost) == ("reason (exit status 3)", "EXIT_STATUS", 3, True)
    with pytest.raises(CommandFailed) as caught:
        await shell("x", ["sh", "-c", "exit 3"], not_done=(3,)).call({})
    assert caught.value.lost is False
    with pytest.raises(CommandFailed, match=r"^out \(exit status 1\)$"):
        await shell("x", ["sh", "-c", "echo out; exit 1"]).call({})
    with pytest.raises(CommandFailed, match="said nothing"):
        await shell("x", ["false"]).call({})
    with pytest.raises(CommandFailed) as caught:
        await shell("x", [sys.executable, "-c", "import sys; sys.exit('a' * 10_000 + 'end')"]).call({})
    assert len(str(caught.value)) < 2100
    assert "end (exit status 1)" in str(caught.value)


async def test_a_command_killed_from_outside_has_not_answered() -> None:
    """X4: like a dead worker, its answer is lost."""
    with pytest.raises(CommandFailed, match="killed by signal 9") as caught:
        await shell("x", ["sh", "-c", "kill -9 $$"]).call({})
    assert (caught.value.exit_code, caught.value.lost) == (-9, True)


async def test_a_command_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    """H2: the exit codes a shell would give: 127 not found, 126 not executable."""
    plain = tmp_path / "plain.txt"
    plain.write_text("x")
    for made, exit_code, said in (
        (shell("x", ["no-such-program-here"]), 127, "command not found"),
        (shell("x", [str(plain)]), 126, "cannot be started"),
        (shell("x", ["ls"], cwd=tmp_path / "gone"), 126, "working folder"),
    ):
        with pytest.raises(CommandFailed, match=said) as caught:
            await made.call({})
        assert (caught.value.exit_code, caught.value.lost) == (exit_code, False)


# --- Cancellation


async def test_cancelling_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    """X4: a timeout stops the process group; TERM first, so that it can clean up."""
    mark = tmp_path / "mark"
    script = f"trap 'echo cleaned > {mark}; exit' TERM; sleep 60 & echo $! > {mark}; wait"
    call = asyncio.ensure_future(shell("x", ["sh", "-c", script]).call({}))
    await until(lambda: mark.exists() and mark.read_text().strip())
    child = int(mark.read_text())
    start = time.perf_counter()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.perf_counter() - start < 5
    assert mark.read_text() == "cleaned\n"
    await until(lambda: not is_alive(child))


async def test_a_command_that_ignores_term_is_killed(tmp_path: Path) -> None:
    """X4: the call ends when the process is gone, also for an impatient caller."""
    mark = tmp_path / "mark"
    script = f"trap '' TERM; echo $$ > {mark}; while true; do sleep 1; done"
    call = asyncio.ensure_future(shell("x", ["sh", "-c", script]).call({}))
    await until(lambda: mark.exists() and mark.read_text().strip())
    pid, start = int(mark.read_text()), time.perf_counter()
    call.cancel()
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.perf_counter() - start < 5
    assert not is_alive(pid)


async def test_cancelling_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    """X4: also while the command is being started, when its own children run already."""
    pids = []
    for at in range(30):
        mark = tmp_path / str(at)
        call = asyncio.ensure_future(shell("x", ["sh", "-c", f"sleep 60 & echo $! > {mark}; wait"]).call({}))
        await (
            asyncio.sleep(at / 5000) if at % 2 else until(lambda mark=mark: mark.exists() and mark.read_text().strip())
        )
        start = time.perf_counter()
        call.cancel()
        await asyncio.wait([call])
        assert time.perf_counter() - start < 5
        pids += [int(mark.read_text())] if mark.exists() and mark.read_text().strip() else []
    assert len(pids) >= 15
    await until(lambda: not any(map(is_alive, pids)))


def test_commands_leave_no_warnings_behind() -> None:
    """X4: loops that end right after a call, a failure or a cancelled call are clean."""
    program = """
import asyncio
from rerail.adapters.tools.shell import shell

async def main():
    await shell("x", ["echo", "hi"]).call({})
    await shell("x", ["sh", "-c", "sleep 0.6 & echo hi"]).call({})
    for argv in (["false"], ["yes"], ["no-such-program"]):
        try:
            await shell("x", argv).call({})
        except Exception:
            pass
    try:
        await asyncio.wait_for(shell("x", ["sleep", "60"]).call({}), 0.1)
    except TimeoutError:
        print("stopped")

for _ in range(2):
    asyncio.run(main())
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]  # a busy machine is slow
    assert (done.returncode, done.stdout, said) == (0, "stopped\n" * 2, [])


# --- Looks, and declarations as data


async def test_a_command_can_be_verified() -> None:
    """V8: like any other tool."""
    made = shell("x", ["true"], verify=lambda args, output: [args, output], probe=lambda args: args)
    assert (made.spec.verifiable, made.spec.probes) == (True, True)
    assert await made.verify({"a": 1}, 2, None, None) == [{"a": 1}, 2]
    assert await made.probe({"a": 1}, None) == {"a": 1}


async def test_commands_declared_as_data() -> None:
    """M2: `{shell: […], …}` in settings; numbers in env are as good as texts."""
    made = from_mapping("x", {"shell": ["sh", "-c", "echo $N"], "parse": "lines", "env": {"N": 5}, "effect": "read"})
    assert made.spec.effect is Effect.READ
    assert await made.call({}, None) == ["5"]
    made = from_mapping("x", {"shell": {"argv": ["echo", "{a}"], "parse": "lines"}, "timeout": 5})
    assert made.spec.timeout == 5
    assert await made.call({"a": "b"}, None) == ["b"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "expected a mapping"),
        ({}, "either shell"),
        ({"shell": ["ls"], "http": {}}, "not both"),
        ({"shell": "ls"}, "expected array"),
        ({"shell": []}, "at least 1"),
        ({"shell": ["ls"], "efect": "read"}, 'did you mean "effect"'),
        ({"shell": {"argv": ["ls"], "tiemout": 3}}, 'did you mean "timeout"'),
        ({"shell": ["ls"], "timeout": "3"}, "timeout: expected number"),
        ({"shell": ["ls"], "verify": "os:getpid"}, 'unknown key "verify"'),
        ({"shell": {"argv": ["ls"], "timeout": 3}, "timeout": 4}, "given twice"),
        ({"shell": {"parse": "json"}}, 'missing required key "argv"'),
        ({"shell": ["{x}"]}, "data may not choose"),
        ({"shell": ["ls"], "schema": {"type": "objcet"}}, "did you mean"),
    ],
)
def test_a_wrong_declaration_as_data_is_refused(data: Any, said: str) -> None:
    """SPEC 11: an unknown key is an error with the nearest key; the tool is named."""
    with pytest.raises(SettingsError, match=said) as caught:
        from_mapping("my tool", data)
    assert str(caught.value).startswith("tool 'my tool': ")


TORN_DOWN = """
import asyncio, sys
from pathlib import Path
from rerail.adapters.tools.shell import shell

note = Path(sys.argv[1])
stubborn = shell("stubborn", ["sh", "-c", f"trap '' TERM; echo $$ > {note}; while :; do sleep 0.1; done"])

async def main():
    call = asyncio.create_task(stubborn.call({}, None))
    while not (note.exists() and note.read_text().strip()):
        await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.sleep(0.1)  # it is being stopped, and the loop ends now

asyncio.run(main())
"""


def test_a_loop_that_is_torn_down_leaves_no_command_behind(tmp_path: Path) -> None:
    """X4: also one that ignores TERM, while it has its time to obey."""
    note = tmp_path / "pid"
    subprocess.run([sys.executable, "-c", TORN_DOWN, str(note)], capture_output=True, timeout=30, check=True)
    pid = int(note.read_text())
    limit = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not is_alive(pid)
