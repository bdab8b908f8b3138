"""Record the answers; see the package for how."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.recorded.compare import compared
from tests.recorded.files import read, write
from tests.recorded.play import play


def record() -> int:
    """Play the scenario and write what was answered; what is gone on purpose stays as it was recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("--words", action="store_true", help="take over changed sentences, and refuse any other change")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        now = play(Path(folder))
    before = read()
    found = compared(before, now)
    for one in found:
        print(one)
    others = [one for one in found if not one.of_words]
    if asked.words and others:
        print(
            f"{len(others)} of these {len(found)} differences are more than words; nothing was written", file=sys.stderr
        )
        return 1
    write({name: {**_gone(before, name, now[name]), **answers} for name, answers in now.items()})
    return 0


def _gone(before: dict[str, dict[str, object]], name: str, now: dict[str, object]) -> dict[str, object]:
    """Recorded answers that are not given any more: they stay on record."""
    return {answer: said for answer, said in before.get(name, {}).items() if answer not in now}


if __name__ == "__main__":
    sys.exit(record())
