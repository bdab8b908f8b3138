"""Commands as reports and the shell name them, with a slash: `/retry 7c1f` (SPEC T11).

Rules of this file:
- Nothing is imported but what the bare help needs: it is asked before anything else is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from rerail.cli.catalogue import VALUED

ALSO = {"tasks": "ls", "status": "show"}  # `/status` without a run is `ls`
_OF_LS = ("--limit", "-n", "--status")  # what `ls` takes with a value


def unslashed(words: Sequence[str]) -> list[str]:
    """The words of a command that may begin with a slash, as the parser knows them; options stand behind it."""
    name, rest = words[0].removeprefix("/"), list(words[1:])
    if name == "status" and not _names_a_run(rest):
        return ["ls", *rest]
    return [ALSO.get(name, name), *rest]


def _names_a_run(words: Sequence[str]) -> bool:
    """Whether one of the words is neither an option nor the value of one."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in (*VALUED, *_OF_LS):
            return True
        before = word
    return False
