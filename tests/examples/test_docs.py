"""What the README and the quickstart show is true: their plans load, their code runs, their output is real.

When the command line has changed its words on purpose: RERAIL_UPDATE_DOCS=1 pytest tests/examples/test_docs.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rerail
from rerail.cli.command_table import COMMANDS
from rerail.factory import declared_tools

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text("utf-8")
QUICKSTART = ROOT / "docs" / "quickstart.md"

# -- README and guide ----------------------------------------------------------------------------------------------


def blocks(text: str, kind: str) -> list[str]:
    """The fenced blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def test_the_plans_of_the_guide_have_no_faults() -> None:
    """P1: every YAML block is a plan that may run, given its tools."""
    plans = blocks(GUIDE, "yaml")
    assert plans
    for text in plans:
        assert rerail.Plan.load(text).check() == []


def test_the_settings_of_the_guide_are_settings() -> None:
    """Every TOML block holds known keys only, and the tools it declares can be made."""
    (text,) = blocks(GUIDE, "toml")
    settings = rerail.Settings.load(tomllib.loads(text))
    assert [tool.spec.name for tool in declared_tools(settings)] == ["count_lines", "rates"]


def test_the_tools_of_the_guide_go_together() -> None:
    """Those of the Python blocks and those of the settings have different names: a reader may use all of them."""
    (text,) = blocks(GUIDE, "toml")
    declared = [tool.spec.name for tool in declared_tools(rerail.Settings.load(tomllib.loads(text)))]
    written = re.findall(r'rerail\.(?:shell|http)\("(\w+)"', GUIDE)
    written += re.findall(r"^(?:async )?def (\w+)", "\n".join(blocks(GUIDE, "python")), re.MULTILINE)
    assert declared and written and not set(declared) & set(written)


def test_the_guide_knows_every_command_and_extra() -> None:
    """What can be typed, and what can be installed, is in its tables; every how-to is linked."""
    listed = re.search(r"^\| running \|.*?(?=\n\n)", GUIDE, re.MULTILINE | re.DOTALL)
    assert listed and set(re.findall(r"`(\w+)`", listed[0])) == set(COMMANDS)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert [name for name in extras if f"| `{name}` |" not in GUIDE] == []
    pages = sorted((ROOT / "docs" / "howto").glob("*.md"))
    assert pages and [page.name for page in pages if f"(howto/{page.name})" not in GUIDE] == []
    typed = re.findall(r"^\$ rerail (\w+)", README + GUIDE, re.MULTILINE)
    assert typed and set(typed) <= set(COMMANDS)


def test_the_readme_fits_three_screens_and_leads_to_every_page() -> None:
    """A newcomer reads it whole; each page of the docs is one link away."""
    assert len(README.splitlines()) <= 120
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"guide.zh-CN.md", "classifier.md"}
    assert sorted(page for page in pages if f"(docs/{page})" not in README) == []


# -- In Chinese ------------------------------------------------------------------------------------------------------

CHINESE = (ROOT / "README.zh-CN.md").read_text("utf-8")
PAIRS = {"README": (README, CHINESE), "guide": (GUIDE, (ROOT / "docs" / "guide.zh-CN.md").read_text("utf-8"))}


@pytest.mark.parametrize(
    ("page", "kind"),
    [("README", "python"), ("README", "text"), ("guide", "python"), ("guide", "yaml"), ("guide", "toml")],
)
def test_the_chinese_page_shows_the_same(page: str, kind: str) -> None:
    """T12: the same programs, plans, settings and outputs, so what holds for the one holds for the other."""
    english, chinese = PAIRS[page]
    assert blocks(chinese, kind) == blocks(english, kind) != []


@pytest.mark.parametrize("page", PAIRS)
def test_the_chinese_page_names_the_same_commands(page: str) -> None:
    """T12: what can be typed is the same; only the remarks behind it differ."""

    def typed(page: str) -> list[str]:
        lines = [line for block in blocks(page, "console") for line in block.splitlines()]
        return [re.sub(r"\s+#.*", "", line) for line in lines]

    def named(page: str) -> set[str]:
        rows = re.findall(r"^\|.*?(`.*)\|$", page, re.MULTILINE)
        return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}

    english, chinese = PAIRS[page]
    assert typed(chinese) == typed(english) != []
    assert named(chinese) == named(english)


@pytest.mark.parametrize("page", PAIRS)
def test_the_chinese_page_is_as_long_and_linked(page: str) -> None:
    """T12: section by section, link by link, and each page leads to the other."""
    twins = {"README.md", "README.zh-CN.md", "guide.md", "guide.zh-CN.md", "docs/guide.zh-CN.md"}

    def shape(page: str) -> list[str]:
        return re.findall(r"^(#+) |^(- \*\*)", page, re.MULTILINE)

    def links(page: str) -> list[str]:
        pages = set(re.findall(r"\]\(([^)]+)\)", page)) - twins
        return sorted(link for link in pages if not link.startswith("docs/images/"))  # a picture shows one language

    english, chinese = PAIRS[page]
    assert shape(chinese) == shape(english)
    assert links(chinese) == links(english)
    assert f"({page}.zh-CN.md)" in english and f"({page}.md)" in chinese
    plain = re.sub(r"```.*?```|`[^`]*`|\([^)]*\)", "", chinese, flags=re.DOTALL)
    assert not re.findall(r"[A-Za-z]{2,}(?: [A-Za-z]{2,}){2,}", plain)  # nothing is left in English


# -- Both ----------------------------------------------------------------------------------------------------------


def test_what_spreads_and_what_does_not() -> None:
    """H9: as README and concepts say, a fallback degrades its own step, a hole whatever depends on it."""

    def broken() -> None:
        raise rerail.ToolError("no", category="permanent_error")

    def echo(value: str | None) -> str | None:
        return value

    result = rerail.run(
        {
            "steps": [
                {"id": "a", "tool": "broken", "fallback": {"value": "x"}},
                {"id": "behind_a", "tool": "echo", "args": {"value": "${a}"}},
                {"id": "b", "tool": "broken", "critical": False},
                {"id": "behind_b", "tool": "echo", "args": {"value": "${b}"}},
            ]
        },
        tools=[broken, echo],
    )
    ends = {step.id: step.status for step in result.steps.values()}
    assert ends == {"a": "degraded", "behind_a": "succeeded", "b": "skipped", "behind_b": "degraded"}
    for page in (README + GUIDE, (ROOT / "docs" / "concepts.md").read_text("utf-8")):
        flat = " ".join(page.split())
        assert "A fallback makes its" in flat and "every step that depends on it" in flat
        assert "`once`" in flat and "rerail.Verified(output=" in flat and "`str | None`" in flat


PROGRAMS = blocks(README, "python") + blocks(GUIDE, "python")


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_code_of_readme_and_guide_runs(number: int, tmp_path: Path) -> None:
    """M2: every Python block is a program."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number], encoding="utf-8")
    done = subprocess.run([sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_links_of_the_docs_lead_somewhere() -> None:
    """No page points to a file that is not there."""
    pages = [
        ROOT / "README.md",
        ROOT / "README.zh-CN.md",
        ROOT / "examples" / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    for page in [page for page in pages if page.stem not in ("benchmarks", "contract")]:  # these two lead nowhere
        targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8"))
        assert targets
        assert [target for target in targets if not (page.parent / target).exists()] == []


# -- docs/quickstart.md --------------------------------------------------------------------------------------------

RUN = "7c1f0a93e2"  # the run's id in the page; a real one differs each time


def followed(page: str, folder: Path) -> str:
    """The page with the output that its commands really have, when they are typed in that folder."""
    for name, text in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```", page, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text, encoding="utf-8")
    real: list[str] = []

    def played(block: re.Match[str]) -> str:
        shown = ["```console\n"]
        for command in re.findall(r"^\$ (.*)$", block[1], re.MULTILINE):
            typed = command.replace(RUN, real[0]) if real else command
            said = _typed(typed, folder)
            if not real and (found := re.search(r"\b[0-9a-f]{10}\b", said)):
                real.append(found[0])
            shown.append(f"$ {command}\n{said.replace(real[0], RUN) if real else said}")
        return "".join([*shown, "```"])

    return re.sub(r"```console\n(.*?)```", played, page, flags=re.DOTALL)


def _typed(command: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path, "RERAIL_LANG": "en", "PYTHONUTF8": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    return done.stdout.decode("utf-8")


def settled(page: str) -> str:
    """The page without what differs from time to time: durations, dates, and the spaces that align them."""
    page = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", page)
    page = re.sub(r"\b\d+(\.\d+)? m?s\b", "TIME", page)
    return re.sub(r" +", " ", page)


def test_the_quickstart_is_what_really_happens(tmp_path: Path) -> None:
    """Typed in an empty folder, its commands print what the page shows."""
    page = QUICKSTART.read_text("utf-8")
    real = followed(page, tmp_path)
    if os.environ.get("RERAIL_UPDATE_DOCS"):
        QUICKSTART.write_text(real, encoding="utf-8")
        page = real
    assert settled(real) == settled(page), "docs/quickstart.md is out of date; see the head of this file"
