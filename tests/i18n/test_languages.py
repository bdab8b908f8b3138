"""Languages are files: one that is added is offered, chosen and spoken everywhere (T12)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rerail
from rerail.i18n import SOURCE, catalogue, has, languages, nearest_language, say

# Polish: three forms for numbers. The rest is said in English.
POLISH = {
    "language.plural": "^1$ (?:^|[^1])[2-4]$",
    "cli.help.usage": "Sposób użycia: rerail POLECENIE",
    "cli.ls.none": "brak przebiegów",
    "cli.error.no_store": "nie ma przebiegu {run!r}",
    "refuse.run.no_such_run": "nie ma przebiegu {run!r}",
    "summary.success": "{total:krok|kroki|kroków}: wszystkie udane",
}


def test_english_comes_first_and_is_what_an_unknown_language_is_said_in() -> None:
    """T12: there are English and Chinese; who asks for another reads English."""
    assert languages()[0] == SOURCE == "en" and "zh" in languages()
    assert catalogue("xx") is catalogue("en") and say("cli.ls.none", "xx") == say("cli.ls.none")
    assert has("report.refused.RUN_LIVE", "zh") and not has("report.refused.RUN_LIVE")


@pytest.mark.parametrize(
    ("tag", "lang"),
    [("zh", "zh"), ("zh-CN", "zh"), ("zh_CN.UTF-8", "zh"), (" ZH-Hans-CN ", "zh"), ("en_GB", "en"), ("de", ""),
     ("", ""), ("C.UTF-8", ""), ("zhx", "")],
)  # fmt: skip
def test_a_language_is_known_by_what_browsers_and_locales_call_it(tag: str, lang: str) -> None:
    """T12: the region and the encoding do not matter."""
    assert nearest_language(tag) == lang


def test_numbers_choose_the_form_of_a_word() -> None:
    """T12: English has two forms, Chinese has one."""
    assert [say("summary.success", total=n).partition(",")[0] for n in (1, 2)] == ["1 step", "2 steps"]
    assert say("summary.success", total=1234).startswith("1,234 steps")
    assert say("summary.success", "zh", total=1) == "1 步，全部成功"


@pytest.fixture
def polish(tmp_path: Path) -> Path:
    """A copy of the package with one file more; nothing else of it is changed."""
    package = tmp_path / "src" / "rerail"
    shutil.copytree(Path(rerail.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "page"))
    (package / "i18n" / "pl.json").write_text(json.dumps(POLISH), "utf-8")
    return package.parent


def test_a_third_language_is_one_file(polish: Path, tmp_path: Path) -> None:
    """T12: options, help, environment, HTTP and plurals know it; what it lacks is said in English."""
    environ = {**os.environ, "PYTHONPATH": str(polish), "PYTHONUTF8": "1"}
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "RERAIL_LANG"):
        environ.pop(name, None)

    def out(*words: str, code: int = 0, **more: str) -> str:
        found = subprocess.run([sys.executable, *words], env={**environ, **more}, cwd=tmp_path, capture_output=True)
        assert found.returncode == code, found.stderr.decode()
        return (found.stdout or found.stderr).decode()

    command = ("-m", "rerail.cli")
    help_text = out(*command, "--help", LANG="pl_PL.UTF-8")
    assert POLISH["cli.help.usage"] in help_text and "--lang en|pl|zh" in help_text
    assert "brak przebiegów" in out(*command, "ls", "--lang", "pl")
    assert "nie ma przebiegu 'x'" in out(*command, "show", "x", code=2, RERAIL_LANG="pl")
    assert "pl" in out(*command, "ls", "--lang", "xx", code=2)
    assert "--lang" in out(*command, "demo", "--help", "--lang", "pl")
    server = """
import asyncio, httpx, rerail
from rerail.i18n import say
from rerail.server.app import described, make_api
from rerail.server.state import ServerState
from rerail.server.app import Files
from rerail.api import Engine

async def main():
    async with Engine("memory://") as engine:
        app = make_api(ServerState(engine), Files())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
            for headers, query in (({"accept-language": "de, pl-PL;q=0.8"}, ""), ({}, "?lang=pl"), ({}, "?lang=xx")):
                print((await client.get(f"/api/v1/runs/x{query}", headers=headers)).text)
        print(str(described(app)).count("'enum': ['en', 'pl', 'zh']"))
    print([say("summary.success", "pl", total=n) for n in (1, 2, 5, 12, 22)])

asyncio.run(main())
"""
    one, other, refused, described, forms = out("-c", server).splitlines()
    assert "nie ma przebiegu 'x'" in json.loads(one)["detail"] == json.loads(other)["detail"]
    assert json.loads(refused)["code"] == "USAGE" and int(described) > 5
    counted = ["1 krok", "2 kroki", "5 kroków", "12 kroków", "22 kroki"]
    assert forms == str([f"{count}: wszystkie udane" for count in counted])
