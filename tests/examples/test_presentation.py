"""The presentation task, wherever it runs: the same messages, the same slides, and a README that shows real output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.servers import RedisServer
from tests.examples.test_examples import EXAMPLES, plain_env
from tests.server.test_sockets import connected, subscribed
from tests.server.web import Place, serving

import rerail

HERE = EXAMPLES / "presentation"


def output_of(folder: Path, *words: str) -> str:
    """What the example prints; it must end well and complain about nothing."""
    command = [sys.executable, str(HERE / "run.py"), *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=60, env=plain_env()
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def messages(said: str) -> list[str]:
    """The messages of a socket among what was printed."""
    return [line for line in said.splitlines() if line.startswith("   tool:")]


def shown() -> str:
    """What the README shows."""
    (text,) = re.findall(r"```text\n(.*?)```", (HERE / "README.md").read_text("utf-8"), re.DOTALL)
    return text


def test_the_readme_shows_real_output(tmp_path: Path) -> None:
    """H9, I3, P5: on SQLite, from the circle that is refused to the verdict that names what is missing."""
    said = output_of(tmp_path)
    assert said == shown()
    assert "The verdict: completed, degraded: True" in said and "SKIP_OPTIONAL" in said


def test_langgraph_gives_the_same_messages(tmp_path: Path) -> None:
    """I3, I5: whoever drives the run, a front end hears the same."""
    said = output_of(tmp_path, "--langgraph")
    assert messages(said) == messages(shown())
    assert "The stages: planner → scheduler → executor → reflector" in said


def test_redis_gives_the_same_messages(tmp_path: Path, redis_server: RedisServer) -> None:
    """I3, I5: another store, and nothing else changes."""
    assert messages(output_of(tmp_path, "--store", redis_server.fresh())) == messages(shown())


@pytest.mark.anyio
async def test_a_real_socket_gets_these_messages(tmp_path: Path) -> None:
    """I3: whoever joins after the end gets all of them, exactly one complete for each start."""
    output_of(tmp_path, "--store", f"sqlite:///{tmp_path}/talk.db")
    async with rerail.Engine(f"sqlite:///{tmp_path}/talk.db") as engine:
        (row,) = await engine.list()
    with serving(Place(tmp_path), "--store", f"sqlite:///{tmp_path}/talk.db", token="for sockets") as web:
        async with connected(web) as heard:
            await subscribed(heard, row.run_id, protocol="tools")
            await heard.until("tool:message:complete", id="task_slides")
    told = [(name, _about(said)) for name, said in heard.messages]
    assert told == [tuple(line.split()[:2]) for line in messages(shown())]
    begun = [about for name, about in told if name == "tool:message:start"]
    assert begun == list(dict.fromkeys(begun))
    assert sorted(begun) == sorted(about for name, about in told if name == "tool:message:complete")


def _about(said: dict[str, Any]) -> str:
    return str(said.get("id") or said["messageId"])
