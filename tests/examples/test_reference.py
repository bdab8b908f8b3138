"""docs/reference.md names every key, option, field and code that the code knows, and no other."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.examples.test_docs import blocks

import rerail
from rerail import codes
from rerail.adapters.tools.declared import from_mapping
from rerail.adapters.tools.spec import Options
from rerail.api import Engine
from rerail.cli import app
from rerail.cli.command_table import COMMANDS
from rerail.cli.display import follow as attend
from rerail.cli.options import arguments
from rerail.engine.runs.notifications import notice_of
from rerail.kernel import events as ev
from rerail.kernel.fold import fold
from rerail.plan.reader import PLAN_ALIASES, PLAN_KEYS, STEP_ALIASES, STEP_FIELDS
from rerail.plan.step import Step
from rerail.server.app import PREFIX, Files, described, make_api
from rerail.server.mcp import server as mcp
from rerail.server.state import ServerState
from rerail.settings.loading import TABLES, Settings
from rerail.settings.tables import ROLES, ClassifyTable, RoleTable

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference.md").read_text("utf-8")


def part(title: str) -> str:
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the first table in a text that begin with a word of code, by that word."""
    table = re.search(r"^\|.*\n(?:\|.*\n?)+", text, re.MULTILINE)
    assert table
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in table[0].splitlines()]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def own(kind: Any) -> dict[str, Any]:
    """The options that only this kind of tool has, with their defaults."""
    found = inspect.signature(kind).parameters.values()
    keywords = {one.name: one.default for one in found if one.kind is one.KEYWORD_ONLY}
    return {name: default for name, default in keywords.items() if name not in ("effect", "schema")}


def test_plan_and_step_keys() -> None:
    """P1, P3: as they are read, and as they are in Python."""
    assert set(rows(part("Plans"))) == set(PLAN_KEYS)
    assert set(rows(part("Steps"))) == set(STEP_FIELDS) == set(Step.__struct_fields__)
    for word in (*PLAN_ALIASES, *STEP_ALIASES):
        assert f"`{word}`" in part("Plans")


def test_step_defaults() -> None:
    """P1: a default that is said is the default."""
    said = {name: cells[0] for name, cells in rows(part("Steps")).items()}
    plain = {"critical": "true", "confirm": "false", "priority": "0", "args": "{}", "needs": "[]", "produces": "[]"}
    assert {name: said[name] for name in plain} == plain
    step = Step(id="a", tool="b")
    assert {name: getattr(step, name) for name in plain} == {
        "critical": True, "confirm": False, "priority": 0, "args": {}, "needs": (), "produces": (),
    }  # fmt: skip


def test_tool_options() -> None:
    """M2: those of all kinds, and those of each."""
    assert set(rows(part("Tools"))) == {*Options.__annotations__, "effect", "schema"}
    functions = own(inspect.unwrap(type(rerail.tool(lambda: 1, name="x")).__init__))
    assert set(rows(part("`rerail.tool`"))) == functions.keys() - {"names"}
    for kind in ("shell", "http"):
        assert set(rows(part(f"`rerail.{kind}`"))) == own(getattr(rerail, kind)).keys()
    limits = {**rows(part("`rerail.shell`")), **rows(part("`rerail.http`"))}
    assert limits["max_output"][0] == str(own(rerail.shell)["max_output"])
    assert limits["max_bytes"][0] == str(own(rerail.http)["max_bytes"])


def test_e2_settings_for_effects() -> None:
    """X4, V8, E2, E3, E11: each is a setting, with the default that is said."""
    said = rows(part("Settings for effects"))
    wanted = {"run.on_doubt", "evaluation.settle", "tools.idempotent_for", "workers.silent_is_dead"}
    assert wanted <= set(said)
    for name, (default, *_) in said.items():
        table, _, key = name.partition(".")
        real = getattr(getattr(Settings(), table), key)
        assert default == ("" if real is None else str(real).lower()), name


def test_x4_what_tools_raise_and_looks_answer() -> None:
    """X4, V8: every public name stands in its table."""
    for name in ("ToolError", "RateLimited", "NotDone"):
        assert f"| `rerail.{name}(" in part("What tools raise") and hasattr(rerail, name)
    for name in ("Verified", "Partial", "NotYet"):
        assert f"| `rerail.{name}" in part("What looks answer") and hasattr(rerail, name)


@pytest.mark.parametrize("kind", ["tool", "shell", "http"])
def test_help_lists_the_options(kind: str) -> None:
    """M2: `help(rerail.tool)` is of use."""
    said = inspect.getdoc(getattr(rerail, kind)) or ""
    words = {*Options.__annotations__, "effect", "schema", *rows(part(f"`rerail.{kind}`"))}
    assert [word for word in sorted(words) if not re.search(rf"^ +{word}  +\S", said, re.MULTILINE)] == []


async def test_outputs_of_commands_look_as_they_are_shown() -> None:
    """M2: status, stdout, stderr; and by `parse`."""
    assert await rerail.shell("say", ["echo", "{word}"]).call({"word": "hi"}) == {
        "stdout": "hi\n", "stderr": "", "status": 0,
    }  # fmt: skip
    assert '{"stdout": "…", "stderr": "…", "status": 0}' in part("`rerail.shell`")
    assert await from_mapping("say", {"shell": ["echo", "[1]"], "parse": "json"}).call({}) == [1]


class Page(BaseHTTPRequestHandler):
    """Answers with a little JSON."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"value": 11.4}')

    def log_message(self, *args: object) -> None:
        """Say nothing."""


async def test_outputs_of_requests_look_as_they_are_shown() -> None:
    """M2: status, headers, body."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        output = await rerail.http("rates", "GET", f"http://127.0.0.1:{server.server_port}/").call({})
        server.shutdown()
    assert list(output) == ["status", "headers", "body"]
    assert output["headers"]["content-type"] == "application/json"
    assert output["body"] == {"value": 11.4}
    assert '{"status": 200, "headers": {…}, "body": …}' in part("`rerail.http`")


def test_result_fields() -> None:
    """V1, V2: of the run and of each step."""
    runs, steps = part("Results").split("Each step:")
    assert set(rows(runs)) == {field.name for field in dataclasses.fields(rerail.RunResult)}
    assert set(rows(steps)) == {field.name for field in dataclasses.fields(rerail.StepRow)}
    assert [word for word in rerail.Status if f"`{word}`" not in steps] == []
    assert [word for word in rerail.RunStatus if f"`{word}`" not in runs] == []
    result = rerail.run({"steps": [{"id": "a", "tool": "one"}]}, tools=[rerail.tool(lambda: 1, name="one")])
    told = rows(runs)["exec"][0]
    counts = {"succeeded", "failed", "skipped", "degraded", "cancelled", "in_doubt"}
    assert [word for word in result.exec if word not in counts and f"`{word}`" not in told] == []


def test_tools_of_the_mcp_server() -> None:
    """I7: every tool, with every argument it takes."""
    said = {name: re.findall(r"`(\w+)`", cells[0]) for name, cells in rows(part("Tools of `rerail mcp`")).items()}
    assert said == {name: list(offer.shape["properties"]) for name, offer in mcp._OFFERS.items()}


def test_the_http_api() -> None:
    """I4, section 11: every route with the fields of its body and its query, every setting with its default."""
    routes, keys = part("HTTP").split("`[server]` in the settings")
    api = described(make_api(ServerState(Engine("memory://")), Files()))
    known = {
        f"{method.upper()} {path.removeprefix(PREFIX)}": operation
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    }
    said = rows(routes)
    assert set(said) == set(known)
    for route, operation in known.items():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        names = [one["$ref"].rpartition("/")[2] for one in content.get("anyOf", [content]) if "$ref" in one]
        fields = {field for name in names for field in api["components"]["schemas"][name].get("properties", {})}
        fields |= {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"} - {"lang"}
        missing = [field for field in fields if f"`{field}`" not in said[route][0]]
        assert not missing or route in ("POST /plans/check",), (route, missing)
    table = Settings().server
    defaults = {name: getattr(table, name) for name in table.__struct_fields__}
    plain = {
        name: "none" if value is None else "[]" if value in ((), []) else value for name, value in defaults.items()
    }
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in plain.items()}
    assert {name: cells[0] for name, cells in rows(keys).items()} == shown


def test_notifications() -> None:
    """T10: every key with its default, every field of the document."""
    keys, fields = part("Notifications").split("The document")
    said = {name: cells[0] for name, cells in rows(keys).items()}
    table = Settings().notify
    known = {name: getattr(table, name) for name in table.__struct_fields__}
    assert said == {
        "command": "[]", "webhook": "none", "on": ", ".join(known["on"]), "timeout": f"{known['timeout']:g}",
        "retries": str(known["retries"]),
    }  # fmt: skip
    assert set(said) == set(known)
    done = ev.Done("completed", True, True, False)
    state = fold("r", [ev.Record("r", 1, 1.0, ev.RunStarted()), ev.Record("r", 2, 2.0, done)])
    notice = notice_of(state)
    assert notice is not None and set(rows(fields)) == set(notice.document)
    page = (ROOT / "docs" / "howto" / "notifications.md").read_text("utf-8")
    assert set(json.loads(blocks(page, "json")[0])) == set(notice.document)


def test_faults_have_a_code_that_is_listed() -> None:
    """P5: whatever the code calls a fault of a plan stands in the list, and nothing else does."""
    made: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Fault", "add")
            if named and isinstance(node.args[0], ast.Constant):
                made.add(node.args[0].value)
    assert made == set(codes.FAULTS)


def shown(value: Any) -> str:
    """A default, as a table shows it."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_settings() -> None:
    """Section 11: every setting stands in a table, with its default."""
    table = rows(part("Settings"))
    categories, roles = table.pop("classify.CATEGORY"), table.pop("model.ROLE.KEY")
    assert re.findall(r"`(\w+)`", categories[1]) == list(ClassifyTable.__struct_fields__)
    assert re.findall(r"`(\w+)`", roles[1]) == [*RoleTable.__struct_fields__, *ROLES]
    defaults = {
        f"{name}.{key}": getattr(group, key)
        for name in TABLES
        for group in [getattr(Settings(), name)]
        for key in group.__struct_fields__
    }
    elsewhere = {name for name in defaults if name.split(".")[0] in ("server", "secrets", "notify", "ray", "classify")}
    elsewhere |= {f"model.{role}" for role in ROLES} | set(rows(part("Settings for effects")))
    assert set(table) == set(defaults) - elsewhere
    assert {name: cells[0] for name, cells in table.items()} == {name: shown(defaults[name]) for name in table}
    for title, name in (("Secrets", "secrets"), ("Ray", "ray")):
        assert set(rows(part(title))) == set(getattr(Settings(), name).__struct_fields__)
    ray = {name: shown(getattr(Settings().ray, name)) for name in Settings().ray.__struct_fields__}
    assert {name: cells[0] for name, cells in rows(part("Ray")).items()} == ray


def test_options_of_commands() -> None:
    """I7: every command with every option it takes, and its letter."""
    spelt: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        _, own, common = arguments(app.parser(command), command)
        spelt[command.name] = {name for one in own for name in one.names if name.startswith("-")}
        for one in common:
            assert all(f"`{name}`" in part("Command line") for name in one.names)
    said = {name: set(re.findall(r"`(-[-a-z]+)", cells[0])) for name, cells in rows(part("Command line")).items()}
    assert said == {name: options for name, options in spelt.items() if options}


def test_exit_codes() -> None:
    """T4: the numbers that there are."""
    said = re.findall(r"^\| (\d+) \|", part("Command line"), re.MULTILINE)
    known = [attend.OK, attend.FAILED, app.USAGE, attend.WAITING, app.INTERRUPTED, app.TERMINATED]
    assert [int(one) for one in said] == known


def test_codes() -> None:
    """H1: every code with its category and its sentence."""
    faults = rows(part("Faults of a plan"))
    assert faults == {name: [sentence] for name, sentence in codes.FAULTS.items()}
    assert rows(part("Codes")) == {code.name: [str(code.category or ""), code.sentence] for code in codes.ALL.values()}


def test_the_links_lead_somewhere() -> None:
    """And the README leads here."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", PAGE)
    assert targets and [target for target in targets if not (ROOT / "docs" / target).exists()] == []
    assert "(docs/reference.md)" in (ROOT / "README.md").read_text("utf-8")
