"""MCP servers that people use: time, git and fetch, each as they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import rerail


def server(module: str, *args: str, **more: Any) -> dict[str, Any]:
    """A server that is installed beside us."""
    return {"command": sys.executable, "args": ["-m", module, *args], **more}


async def test_the_time_server() -> None:
    """M2: its answers are structured, so that a later step can refer into them."""
    clock = server("mcp_server_time", "--local-timezone", "UTC")
    async with rerail.Engine("memory://", [], {"mcp": {"servers": {"time": clock}}}) as engine:
        assert {name: str(spec.effect) for name, spec in engine.tools.items()} == {
            "get_current_time": "read", "convert_time": "read",
        }  # fmt: skip
        convert = {"source_timezone": "${now.timezone}", "time": "12:30", "target_timezone": "Asia/Tokyo"}
        result = await engine.run(
            {
                "steps": [
                    {"id": "now", "tool": "get_current_time", "args": {"timezone": "UTC"}},
                    {"id": "there", "tool": "convert_time", "args": convert},
                ]
            }
        )
        assert result.steps["there"].output["time_difference"] == "+9.0h"
        failed = await engine.run(
            {"steps": [{"id": "a", "tool": "get_current_time", "args": {"timezone": "Nowhere"}, "retries": 0}]}
        )
        assert "Nowhere" in failed.steps["a"].error["message"]
        with pytest.raises(rerail.PlanError, match="timezone"):
            await engine.run({"steps": [{"id": "a", "tool": "get_current_time"}]})


async def test_the_git_server(tmp_path: Path) -> None:
    """M2: a change is made in a real repository, once."""
    repo = tmp_path / "repo"
    git = ["git", "-c", "safe.directory=*", "-C", str(repo)]
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    for key, value in (("user.email", "a@example.org"), ("user.name", "A")):
        subprocess.run([*git, "config", key, value], check=True)
    (repo / "a.txt").write_text("hello\n")
    settings = {"mcp": {"servers": {"git": server("mcp_server_git", "--repository", str(repo))}}}
    async with rerail.Engine("memory://", [], settings) as engine:
        effects = {name: str(spec.effect) for name, spec in engine.tools.items()}
        assert (effects["git_status"], effects["git_add"], effects["git_commit"]) == ("read", "repeatable", "once")
        where = {"repo_path": str(repo)}
        result = await engine.run(
            {
                "steps": [
                    {"id": "add", "tool": "git_add", "args": {**where, "files": ["a.txt"]}},
                    {"id": "commit", "tool": "git_commit", "args": {**where, "message": "one"}, "needs": ["add"]},
                    {"id": "log", "tool": "git_log", "args": where, "needs": ["commit"]},
                ]
            }
        )
    assert result.success, result.summary
    assert "one" in json.dumps(result.steps["log"].output)
    log = subprocess.run([*git, "log", "--format=%s"], capture_output=True, text=True, check=True)
    assert log.stdout.split() == ["one"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A small web site."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private\n")
    (folder / "index.html").write_text("<html><body><h1>Rails</h1><p>Some words about rails.</p></body></html>")
    web = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    web.daemon_threads = True
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{web.server_address[1]}"
    web.shutdown()
    thread.join()
    web.server_close()


async def test_the_fetch_server(site: str) -> None:
    """M2, X3: a page is fetched; a page that robots may not see is an error in the server's words."""
    settings = {
        "mcp": {"servers": {"fetch": server("mcp_server_fetch", "--allow-private-ips")}},
        "reflection": {"max_step_retries": 0},
        "retry": {"max_retry_rounds": 0},
    }
    async with rerail.Engine("memory://", [], settings) as engine:
        result = await engine.run({"steps": [{"id": "a", "tool": "fetch", "args": {"url": f"{site}/index.html"}}]})
        assert result.success, result.steps["a"].error
        assert "Some words about rails." in result.steps["a"].output
        refused = await engine.run({"steps": [{"id": "a", "tool": "fetch", "args": {"url": f"{site}/private"}}]})
        assert "robots.txt" in refused.steps["a"].error["message"]
