"""MCP servers as they are declared and shown, and what becomes of an answer; nothing is started here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

import rerail
from rerail.adapters.tools.mcp.server_config import NotConnected, discreet, server_from
from rerail.adapters.tools.mcp.tools import McpToolFailed, output_of
from rerail.errors import PlanError, SettingsError
from rerail.plan.step import Effect
from rerail.settings.loading import Settings, describe

# -- Declaring ----------------------------------------------------------------------------------------------------


def test_a_server_is_a_command_or_an_address() -> None:
    """M2: with what the user says about its tools."""
    server = server_from(
        "git", {"command": "uvx", "args": ["x"], "env": {"A": 1}, "effects": {"commit": "once"}, "prefix": "git."}
    )
    assert (server.command, server.args, server.env, server.prefix) == ("uvx", ("x",), {"A": "1"}, "git.")
    assert server.effects == {"commit": Effect.ONCE}
    assert server.tools is None
    remote = server_from("far", {"url": "https://host/mcp", "headers": {"X": "y"}, "timeout": 5, "tools": ["a"]})
    assert (remote.url, remote.headers, remote.timeout, remote.tools) == ("https://host/mcp", {"X": "y"}, 5, ("a",))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"comand": "x"}, 'did you mean "command"'),
        ({"command": "x", "efects": {}}, 'did you mean "effects"'),
        ({}, "either 'command'"),
        ({"command": "x", "url": "http://h/"}, "not both"),
        ({"command": "x", "headers": {}}, "'headers' goes with url"),
        ({"url": "http://h/", "env": {}}, "'env' goes with command"),
        ({"url": "http://h/", "cwd": "/x"}, "'cwd' goes with command"),
        ({"url": "ftp://h/"}, "url"),
        ({"command": ""}, "command"),
        ({"command": "x", "args": "y"}, "args"),
        ({"command": "x", "timeout": 0}, "timeout"),
        ({"command": "x", "effects": {"a": "twice"}}, "once"),
        ({"command": "x", "parse": "yaml"}, "parse"),
        ("uvx", "mapping"),
    ],
)
def test_mistakes_in_a_declaration_are_named(data: Any, words: str) -> None:
    """SPEC 11: with the server's name, before anything is started, in an engine too."""
    with pytest.raises(SettingsError) as refused:
        server_from("git", data)
    assert "mcp.servers.git" in str(refused.value)
    assert words in str(refused.value)
    with pytest.raises(SettingsError, match=r"mcp\.servers\.git"):
        rerail.Engine("memory://", [], {"mcp": {"servers": {"git": data}}})


def test_variables_are_looked_up_when_the_server_starts() -> None:
    """SPEC 11: secrets stay out of files; a variable that is not set is named."""
    server = server_from("s", {"command": "x", "args": ["--key=${env:KEY}"], "env": {"TOKEN": "Bearer ${env:KEY}"}})
    found = server.resolved({"KEY": "k"})
    assert (found.args, found.env) == (("--key=k",), {"TOKEN": "Bearer k"})
    assert server.env == {"TOKEN": "Bearer ${env:KEY}"}
    with pytest.raises(NotConnected, match="'KEY' is not set") as refused:
        server.resolved({})
    assert refused.value.code == "SERVER_MISSING"
    remote = server_from("s", {"url": "https://h/${env:KEY}", "headers": {"A": "${env:KEY}"}})
    assert (remote.resolved({"KEY": "k"}).url, remote.resolved({"KEY": "k"}).headers) == ("https://h/k", {"A": "k"})


SECRETS: dict[str, Any] = {
    "a": {"command": "x", "env": {"TOKEN": "hunter2", "NAMED": "${env:T}", "MIXED": "hunter2 ${env:T}"}},
    "b": {"url": "https://me:hunter2@host/mcp?key=hunter2", "headers": {"Authorization": "Bearer hunter2"}},
    "c": "hunter2",
}


def test_secrets_are_not_shown() -> None:
    """SPEC 11: `rerail config` prints the names of variables, and of nothing else that could be a secret."""
    shown = discreet(SECRETS)
    assert "hunter2" not in json.dumps(shown)
    assert shown["a"]["env"]["NAMED"] == "${env:T}"
    assert shown["b"]["url"] == "https://host/mcp?…"
    settings = Settings.load({"mcp": {"servers": SECRETS}})
    assert "hunter2" not in json.dumps(describe(settings, {}))
    assert settings.mcp.servers == SECRETS


@pytest.mark.parametrize(
    "servers",
    [
        "hunter2",
        ["hunter2"],
        {"a": {"command": "x", "env": "hunter2"}},
        {"a": "hunter2"},
        {"a": {"url": "hunter2"}},
        {"a": {"command": "x", "args": "hunter2"}},
    ],
)
def test_secrets_are_not_in_messages(servers: Any) -> None:
    """SPEC 11: not even when they stand in the wrong place."""
    with pytest.raises(SettingsError) as refused:
        rerail.Engine("memory://", [], {"mcp": {"servers": servers}})
    assert "hunter2" not in str(refused.value)


def test_a_folder_is_meant_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    """SPEC 11: wherever the command is typed."""
    (tmp_path / "rerail.toml").write_text('[mcp.servers.a]\ncommand = "x"\ncwd = "sub"\n')
    (tmp_path / "deep").mkdir()
    settings, _ = Settings.discover(tmp_path / "deep", {})
    assert settings.mcp.servers["a"]["cwd"] == str(tmp_path / "sub")


# -- Plans --------------------------------------------------------------------------------------------------------

PLAN: dict[str, Any] = {
    "objective": "o",
    "steps": [{"id": "a", "tool": "echo", "args": {"text": "hi"}}],
    "mcp": {"s": {"command": "no-such-program", "env": {"A": "${env:B}"}}},
}


def test_a_plan_keeps_its_servers() -> None:
    """P1: read and written as they are."""
    plan = rerail.Plan.load(PLAN)
    assert json.loads(json.dumps(plan.to_dict())) == PLAN
    assert rerail.Plan.load(plan.to_dict()) == plan
    assert "mcp" not in rerail.Plan.load({"steps": PLAN["steps"]}).to_dict()


@pytest.mark.parametrize("value", [PLAN["mcp"], ["x"], {"s": "x"}, "x", 5])
def test_p5_servers_of_a_plan_are_a_fault_of_their_own(value: Any) -> None:
    """P5, M4: whatever they are, with where they belong; nothing is no fault."""
    (fault,) = rerail.Plan.load({"steps": PLAN["steps"], "mcp": value}).check()
    assert fault.code == "MCP_NOT_ALLOWED" and "[mcp.servers]" in fault.message
    assert "[mcp.servers]" in fault.said("zh") and fault.said("zh") != fault.message


@pytest.mark.parametrize("value", [None, {}])
def test_p5_no_servers_are_no_fault(value: Any) -> None:
    """P5: an empty place is as good as none."""
    assert rerail.Plan.load({"steps": PLAN["steps"], "mcp": value}).check() == []


@pytest.mark.parametrize("wrap", [lambda plan: plan, lambda plan: {"steps": PLAN["steps"], "follow_up": plan}])
async def test_a_plan_starts_no_programs(wrap: Any) -> None:
    """M4, SPEC 11: a plan is data and may come from a model; what follows it included."""
    async with rerail.Engine("memory://", [rerail.tool(lambda **args: 1, name="echo")]) as engine:
        with pytest.raises(PlanError, match="named in the settings") as refused:
            await engine.start(wrap(PLAN))
        assert [fault.code for fault in refused.value.faults] == ["MCP_NOT_ALLOWED"]
        assert await engine.list() == []


# -- Answers ------------------------------------------------------------------------------------------------------

TEXT = TextContent(type="text", text='{"a": [1]}')
IMAGE = ImageContent(type="image", data="aGk=", mime_type="image/png")
FILE = EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///x", text="hi"))
LINK = ResourceLink(type="resource_link", name="x", uri="file:///x")
SOUND = AudioContent(type="audio", data="aGk=", mime_type="audio/wav")


@pytest.mark.parametrize(
    ("content", "structured", "parse", "output"),
    [
        ([TEXT], {"b": 2}, "text", {"b": 2}),
        ([], {"b": 2}, "json", {"b": 2}),
        ([TEXT], None, "text", '{"a": [1]}'),
        ([TEXT], None, "json", {"a": [1]}),
        ([TEXT, TEXT], None, "json", [{"a": [1]}, {"a": [1]}]),
        ([TextContent(type="text", text="12")], None, "json", "12"),
        ([TextContent(type="text", text="{broken")], None, "json", "{broken"),
        ([TextContent(type="text", text="[" * 100_000)], None, "json", "[" * 100_000),
        ([], None, "text", None),
        ([IMAGE], None, "text", [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]),
        ([TEXT, SOUND], None, "text", ['{"a": [1]}', {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]),
        ([FILE], None, "text", [{"type": "resource", "resource": {"uri": "file:///x", "text": "hi"}}]),
        ([LINK], None, "json", [{"type": "resource_link", "name": "x", "uri": "file:///x"}]),
    ],
)
def test_what_an_answer_becomes(content: list[Any], structured: Any, parse: Any, output: Any) -> None:
    """M2: structured content as it is, one text as a text, other parts as data."""
    assert output_of(CallToolResult(content=content, structured_content=structured), parse) == output


def test_an_answer_that_is_an_error() -> None:
    """X3: a failure in the tool's own words."""
    for content, structured, words in (([TEXT, TEXT], None, TEXT.text), ([], {"why": "x"}, '"why"')):
        with pytest.raises(McpToolFailed) as failed:
            output_of(CallToolResult(content=content, structured_content=structured, is_error=True))
        assert words in failed.value.message


# -- Without the extra --------------------------------------------------------------------------------------------

BLOCKED = "import sys\nfor name in ('mcp', 'mcp_types', 'httpx2', 'langchain_core'): sys.modules[name] = None\n"


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a program of its own does."""
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)


def test_without_the_extra_a_server_is_refused_with_what_to_install() -> None:
    """M2: and everything else works."""
    code = BLOCKED + (
        "import asyncio, rerail\n"
        "assert rerail.run({'steps': [{'id': 'a', 'tool': 't'}]}, [rerail.tool(lambda: 1, name='t')]).success\n"
        "try: rerail.run({'steps': []}, settings={'mcp': {'servers': {'a': {'command': 'x'}}}})\n"
        "except rerail.SettingsError as error: print(error)\n"
    )
    done = python(code)
    assert "pip install '.[mcp]'" in done.stdout, done.stderr


def test_nothing_is_imported_that_nobody_asked_for() -> None:
    """SPEC 12: `import rerail` and the help stay fast."""
    code = (
        "import sys, rerail\nfrom rerail.cli import main\nmain(['--help'])\n"
        "rerail.run({'steps': [{'id': 'a', 'tool': 't'}]}, [rerail.tool(lambda: 1, name='t')])\n"
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('mcp', 'mcp_types', 'httpx2', 'langchain_core', 'prompt_toolkit')])\n"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"
