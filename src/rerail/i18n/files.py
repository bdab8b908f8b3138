"""The catalogues: one JSON file a language, beside this module; a language is there if its file is.

Rules of this file:
- This is the only I/O below the core (docs/decisions/0016): it reads files of the package, once each, at first use.
- What a language lacks is said in English.
"""

from __future__ import annotations

import os
from functools import cache

import msgspec

SOURCE = "en"  # the language in which sentences are written, and told to machines
FOLDER = os.path.dirname(__file__)
ENDING = ".json"


@cache
def languages() -> tuple[str, ...]:
    """The languages there are, English first."""
    found = {name.removesuffix(ENDING) for name in os.listdir(FOLDER) if name.endswith(ENDING)}
    return (SOURCE, *sorted(found - {SOURCE}))


@cache
def catalogue(lang: str) -> dict[str, str]:
    """The sentences of a language by key; in English where there is no such language, or it lacks one."""
    if lang not in languages():
        return catalogue(SOURCE)
    with open(os.path.join(FOLDER, lang + ENDING), "rb") as file:
        texts = msgspec.json.decode(file.read(), type=dict[str, str])
    return texts if lang == SOURCE else {**catalogue(SOURCE), **texts}
