"""`make audit`: known flaws in the locked packages, and licences that an MIT project cannot ship with.

Rules of this file:
- What could not be looked at is said as loudly as what was found. Silence is not health.
- A licence is what a package's own metadata says. Of several that may be chosen from, one that fits is enough.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

# Nothing with these may be part of what users get with an MIT licence: they would bind the whole, or forbid uses.
FORBIDDEN = re.compile(
    r"\bAGPL|Affero|(?<!L)GPL|General Public License|SSPL|Server Side Public|Commons Clause|BUSL|Business Source|"
    r"Proprietary|Commercial|CC-BY-NC|Non-?Commercial|Elastic License",
    re.IGNORECASE,
)
LESSER = re.compile(r"LGPL|Lesser General Public|Library General Public", re.IGNORECASE)  # used as a library: it may
FREE = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Unlicense|Zlib|0BSD|MPL|Mozilla", re.IGNORECASE)


def locked(files: Iterable[Path]) -> dict[str, str]:
    """The packages of lock files, with their versions."""
    pairs = (re.findall(r"(?m)^([A-Za-z0-9_.-]+)==([^\s;\\]+)", file.read_text("utf-8")) for file in files)
    return {name: version for found in pairs for name, version in found}


def licence(name: str) -> str | None:
    """What an installed package says of its licence; "" if it says nothing, None if it is not installed here."""
    try:
        said = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    classified = [line.rpartition(" :: ")[2] for line in said.get_all("Classifier") or () if line.startswith("License")]
    return said.get("License-Expression") or "; ".join(classified) or (said.get("License") or "").split("\n")[0][:80]


def may_ship(words: str) -> bool:
    """Whether an MIT project can ship with it, as a package beside its own."""
    if not words:
        return False
    if LESSER.search(words):
        words = LESSER.sub("", words)
        return not FORBIDDEN.search(re.sub(r"General Public License|GPL", "", words, flags=re.IGNORECASE))
    choices = re.split(r"\bOR\b|;", words)
    return any(not FORBIDDEN.search(choice) for choice in choices) and (
        not FORBIDDEN.search(words) or bool(FREE.search(words))
    )


def licences(packages: Iterable[str]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """The packages by licence; those that cannot be shipped with; those that are not installed here."""
    found: dict[str, list[str]] = {}
    bad: list[str] = []
    absent: list[str] = []
    for name in packages:
        words = licence(name)
        if words is None:
            absent.append(name)
            continue
        found.setdefault(words or "says nothing", []).append(name)
        if not may_ship(words):
            bad.append(f"{name}: {words or 'says nothing'}")
    return found, bad, absent


def flaws(report: str) -> tuple[list[str], list[str]]:
    """Of what pip-audit writes: the known flaws, and the packages that it could not look at."""
    rows = json.loads(report)["dependencies"]
    known = [
        f"{row['name']} {row.get('version', '')}: {flaw['id']} "
        f"(mended in {', '.join(flaw['fix_versions']) or 'nothing yet'})"
        for row in rows
        for flaw in row.get("vulns", ())
    ]
    return known, [row["name"] for row in rows if "skip_reason" in row]


def ask_pip_audit(file: Path, python: str) -> tuple[str, str]:
    """What pip-audit says of a lock file, as JSON; else why it says nothing."""
    words = [python, "-m", "pip_audit", "--disable-pip", "--require-hashes", "-f", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run([*words, "-r", str(file)], capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return (done.stdout, "") if done.stdout.lstrip().startswith("{") else ("", last)


def main(words: Sequence[str]) -> int:
    """Tell both; 1 for a known flaw or a licence that does not fit."""
    files, python = [Path(word) for word in words if word.endswith(".lock")], sys.executable
    python = next((word.partition("=")[2] for word in words if word.startswith("--pip-audit=")), python)
    packages = locked(files)
    found, bad, absent = licences(packages)
    for said, names in sorted(found.items(), key=lambda row: -len(row[1])):
        print(f"{len(names):4}  {said}: {', '.join(names)}")
    if absent:
        print(f"      not installed here, so their licences were NOT looked at: {', '.join(absent)}")
    print(f"{len(packages)} locked packages; licences that do not fit: {len(bad)}")
    for line in bad:
        print(f"  {line}")
    report, problem = ask_pip_audit(files[0], python)
    if not report:
        print(f"Known flaws were NOT looked for: {problem}")
        return 1 if bad else 0
    known, skipped = flaws(report)
    print(f"known flaws: {len(known)}; packages that were NOT looked at: {len(skipped)} of {len(packages)}")
    if skipped:
        print(
            "  the data about these could not be reached: " + ", ".join(skipped[:20]) + (" …" if skipped[20:] else "")
        )
    for line in known:
        print(f"  {line}")
    return 1 if bad or known else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
