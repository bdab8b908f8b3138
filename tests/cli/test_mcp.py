"""The command line with MCP servers: they are started for those who call tools, and for nobody else."""

from __future__ import annotations

import sys
from typing import Any

from tests.cli.conftest import Here, Place

SERVER = f"""
[mcp.servers.time]
command = "{sys.executable}"
args = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
env = {{ TOKEN = "hunter2", NAMED = "${{env:HOME}}" }}
"""
BROKEN = '[mcp.servers.odd]\ncommand = "no-such-program"\n'
NOW: dict[str, Any] = {"id": "now", "tool": "get_current_time", "args": {"timezone": "UTC"}}


def configured(place: Place, text: str) -> None:
    """Write the settings."""
    (place.folder / "rerail.toml").write_text(text)


def test_a_run_calls_the_tools_of_a_server(here: Here) -> None:
    """M2, SPEC 11: and check knows them before."""
    configured(here.place, SERVER)
    assert here("check", here.place.plan(NOW), "--json", code=0).json["tools_checked"] is True
    odd = here("check", here.place.plan({**NOW, "args": {"timezon": "UTC"}}), "--json", code=2).json
    assert "timezone" in odd["faults"][0]["message"]
    done = here("run", here.place.plan(NOW), "--json", "-q", code=0).json
    assert done["steps"]["now"]["output"]["timezone"] == "UTC"


def test_tools_and_config_and_doctor(here: Here) -> None:
    """SPEC 11: the tools are listed with their server; secrets are not shown."""
    configured(here.place, SERVER)
    rows = here("tools", "--json", code=0).json
    assert {(row["name"], row["provider"], row["source"], row["effect"]) for row in rows} == {
        ("get_current_time", "time", "mcp.servers.time", "read"), ("convert_time", "time", "mcp.servers.time", "read"),
    }  # fmt: skip
    for words in (("config",), ("config", "--json")):
        shown = here(*words, code=0)
        assert "hunter2" not in shown.out + shown.err
    assert "${env:HOME}" in shown.out
    assert here("doctor", code=0).out.count("get_current_time") == 1


def test_those_who_only_look_start_no_servers(here: Here) -> None:
    """SPEC 11: a server that is broken is in nobody's way but of those who would call it."""
    run = here.run({"id": "a", "tool": "fail"}, code=1)
    configured(here.place, BROKEN)
    for words in (["ls"], ["show", run], ["why", run], ["logs", run], ["config"], ["artifacts", run]):
        here(*words, code=0)
    for words in (["retry", run], ["run", here.place.plan(NOW)], ["tools"], ["check", here.place.plan(NOW)]):
        refused = here(*words, code=2)
        assert "'odd'" in refused.err
        assert "mcp.servers.odd" in refused.err
    assert "no-such-program" in here("doctor", code=1).out


def test_a_run_can_be_cancelled_without_its_servers(here: Here) -> None:
    """T7: whoever wants to stop a run need not be able to go on with it."""
    run = here.run({"id": "a", "tool": "ok", "confirm": True}, code=3)
    configured(here.place, BROKEN)
    assert "'odd'" in here("confirm", run, code=2).err
    here("cancel", run, code=0)


def test_a_plan_that_names_servers(here: Here) -> None:
    """P5, SPEC 11: refused by check and run alike."""
    time = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}
    plan = here.place.plan(NOW, mcp={"time": time})
    checked, ran = here("check", plan, "--json", "-q", code=2), here("run", plan, "--json", "-q", code=2)
    assert "MCP_NOT_ALLOWED" in [fault["code"] for fault in checked.json["faults"]]
    assert "MCP_NOT_ALLOWED" in [fault["code"] for fault in ran.json["error"]["faults"]]


def test_a_removed_setting_says_what_to_do(here: Here) -> None:
    """SPEC 11: `mcp.from_plans` is no unknown key."""
    said = here("check", here.place.plan(NOW), "--set", "mcp.from_plans=true", code=2).err
    assert "mcp.from_plans (command line) is gone" in said and "[mcp.servers]" in said
