"""Every sentence comes from the catalogue, in the language people chose (T12)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Here

import rerail.cli
import rerail.views.narration
import rerail.views.why
from rerail.cli.app import help_text
from rerail.i18n import catalogue, languages

PLACES = [*sorted(Path(rerail.cli.__file__).parent.rglob("*.py")), Path(rerail.views.narration.__file__),
          Path(rerail.views.why.__file__)]  # fmt: skip
SOURCES = "\n".join(path.read_text("utf-8") for path in PLACES)
KEYS = [key for key in catalogue("en") if key.startswith("cli.")]


def test_chinese_reasons(here: Here) -> None:
    """T12: timeouts and skips are told in Chinese, the skip to the letter."""
    run = here.run({"id": "1", "tool": "late"}, {"id": "2", "tool": "ok", "needs": ["1"]}, code=1)
    for words in (("show", run), ("logs", run), ("why", run, "2")):
        told = here(*words, "--lang", "zh", code=0).out
        assert "跳过：上游依赖步骤失败 - 步骤1(late): 超时" in told
    assert "超时" not in here("show", run, code=0).out


@pytest.mark.parametrize(
    ("environ", "chinese"),
    [
        ({"RERAIL_LANG": "zh"}, True),
        ({"RERAIL_LANG": "en", "LANG": "zh_CN.UTF-8"}, False),
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
        ({}, False),
    ],
)
def test_the_language_is_chosen(
    here: Here, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], chinese: bool
) -> None:
    """T12: --lang, then RERAIL_LANG, then the locale."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert ("没有任务" in here("ls", code=0).out) is chinese
    assert "no runs" in here("ls", "--lang", "en", code=0).out


def test_every_sentence_that_is_asked_for_is_there() -> None:
    """T12: a key in the code is in the catalogue, and a key in the catalogue is in the code."""
    asked = set(re.findall(r"""["'](cli\.[a-z_.]+[a-z_])["']""", SOURCES))
    assert asked
    assert not asked - catalogue("en").keys()
    families = set(re.findall(r'f"(cli\.[a-z_.]+\.)\{', SOURCES))
    unused = [key for key in KEYS if key not in asked and not any(key.startswith(family) for family in families)]
    assert not unused


def test_lines_are_all_asked_for() -> None:
    """T12: the keys of lines, in the log and in the story, are asked for by what follows the first part."""
    asked = set(re.findall(r'"(?:line\.)?([a-z_]+)[."]', SOURCES))
    lines = [key.split(".")[1] for key in catalogue("en") if key.startswith(("line.", "story."))]
    assert not [name for name in lines if name not in asked]


def test_both_languages_say_the_same_things() -> None:
    """T12: a sentence has the same gaps in every language."""
    for key in KEYS:
        gaps = {lang: set(re.findall(r"{(\w+)", catalogue(lang)[key])) for lang in languages()}
        assert all(found == gaps["en"] for found in gaps.values()), key


def test_help_speaks_both() -> None:
    """T12: the bare help's headings follow the language; commands stay what is typed."""
    assert "Usage: rerail" in help_text("en")
    assert "用法" in help_text("zh")
    assert "retry RUN" in help_text("zh")
