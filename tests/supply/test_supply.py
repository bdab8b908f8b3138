"""What is shipped can be built again, and nothing is passed over when it is looked through."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest
from tests.supply.audit import ask_pip_audit, flaws, licences, locked, may_ship
from tests.supply.wheel import ROOT, digest, twice


def test_the_wheel_is_the_same_wherever_it_is_built(tmp_path: Path) -> None:
    """A wheel says where it comes from: whoever builds the same commit gets the same bytes."""
    first, second = twice(ROOT, tmp_path, page=False)
    assert first.parent != second.parent and digest(first) == digest(second)
    with zipfile.ZipFile(first) as wheel:
        names = wheel.namelist()
    assert "rerail/kernel/decide.py" in names and not [name for name in names if name.startswith(("tests", "web"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.parametrize(
    ("words", "ships"),
    [
        ("MIT", True), ("Apache-2.0 OR BSD-3-Clause", True), ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("LGPL-3.0-only", True), ("GNU Lesser General Public License v3 (LGPLv3)", True), ("any-OSI", True),
        ("MIT OR GPL-3.0-or-later", True), ("DFSG approved; MIT License", True),
        ("GPL-3.0-only", False), ("GNU General Public License v2 (GPLv2)", False), ("AGPL-3.0-only", False),
        ("GNU Affero General Public License v3", False), ("Other/Proprietary License", False), ("SSPL-1.0", False),
        ("CC-BY-NC-4.0", False), ("", False),
    ],
)  # fmt: skip
def test_which_licences_an_mit_project_can_ship_with(words: str, ships: bool) -> None:
    """Those that bind nothing but themselves; of several, the best counts; silence is not a licence."""
    assert may_ship(words) is ships


def test_every_locked_package_is_looked_at() -> None:
    """All of the lock: by licence, or named as not installed here; none is dropped, none is in the way."""
    packages = locked([ROOT / "requirements.lock", ROOT / "requirements-core.lock"])
    assert packages.keys() >= locked([ROOT / "requirements-core.lock"]).keys() and packages["msgspec"]
    found, bad, absent = licences(packages)
    assert bad == [] and sum(map(len, found.values())) + len(absent) == len(packages)
    assert {"MIT", "LGPL-3.0-only"} <= set(found)


def test_what_could_not_be_looked_at_is_no_good_news() -> None:
    """A package without data is told apart from one without flaws."""
    report = {"dependencies": [
        {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"},
        {"name": "c", "version": "2",
         "vulns": [{"id": "X-1", "fix_versions": ["3"]}, {"id": "X-2", "fix_versions": []}]},
    ]}  # fmt: skip
    known, skipped = flaws(json.dumps(report))
    assert known == ["c 2: X-1 (mended in 3)", "c 2: X-2 (mended in nothing yet)"] and skipped == ["b"]


def test_an_audit_that_did_not_happen_says_so(tmp_path: Path) -> None:
    """No pip-audit, or one that breaks: there is a reason instead of a report."""
    assert ask_pip_audit(tmp_path / "x.lock", str(tmp_path / "no-python"))[1]
    report, problem = ask_pip_audit(tmp_path / "none.lock", sys.executable)
    assert not report and problem
