"""What the how-to pages show is true: their settings are settings, their plans load, their code runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.examples.test_docs import blocks
from tests.examples.test_examples import plain_env

import rerail
from rerail.adapters.tools.loading import load_tools
from rerail.cli.command_table import COMMANDS
from rerail.factory import declared_servers, declared_tools

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "howto").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_settings_and_plans_of_a_page(page: Path) -> None:
    """P1, SPEC 11: every TOML block holds known keys only, every YAML block is a plan, every command exists."""
    text = page.read_text("utf-8")
    for block in blocks(text, "toml"):
        declared_servers(rerail.Settings.load(tomllib.loads(block)))
    for block in blocks(text, "yaml"):
        assert rerail.Plan.load(block).check() == []
    for block in blocks(text, "json"):
        json.loads(block)
    words = re.findall(r"^\$ rerail (\w+)", text, re.MULTILINE)
    assert set(words) <= set(COMMANDS)
    assert blocks(text, "toml") or words, "a page shows something to set or to type"


def test_the_langchain_page_runs(tmp_path: Path) -> None:
    """M2: its tools and its plan, together."""
    page = next(page for page in PAGES if page.stem == "langchain").read_text("utf-8")
    (tmp_path / "tools.py").write_text(blocks(page, "python")[0])
    result = rerail.run(blocks(page, "yaml")[0], load_tools(tmp_path / "tools.py"))
    assert result.success
    assert result.steps["words"].output == 2
    assert str(load_tools(tmp_path / "tools.py")[1].spec.effect) == "read"


def test_x4_the_effects_page_runs(tmp_path: Path) -> None:
    """X4, V8: its tools do what the page says of them, and the tools of its settings can be made."""
    page = next(page for page in PAGES if page.stem == "effects").read_text("utf-8")
    (tmp_path / "tools.py").write_text("\n\n".join(blocks(page, "python")))
    tools = load_tools(tmp_path / "tools.py")
    quick = {"retry": {"backoff_base": 0.0}}
    for tool, item in (("sell", "tea"), ("sell", "coffee"), ("sell_slowly", "cake")):
        result = rerail.run({"steps": [{"id": "a", "tool": tool, "args": {"item": item}}]}, tools, settings=quick)
        assert result.success, result.summary
    assert tools[0].fn.__globals__["SOLD"] == ["tea", "tea", "cake"]  # type: ignore[attr-defined]
    made = [
        tool.spec for text in blocks(page, "toml") for tool in declared_tools(rerail.Settings.load(tomllib.loads(text)))
    ]
    assert {spec.name: spec.idempotent_for for spec in made} == {"deploy": None, "charge": 86400, "transfer": 3600}


def test_the_langgraph_page_runs(tmp_path: Path) -> None:
    """I5: its first program prints what the page says."""
    page = next(page for page in PAGES if page.stem == "langgraph").read_text("utf-8")
    (tmp_path / "word.py").write_text(blocks(page, "python")[0], "utf-8")
    done = subprocess.run(
        [sys.executable, "word.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=plain_env()
    )
    assert (done.stdout, done.stderr) == (blocks(page, "text")[0], "")
