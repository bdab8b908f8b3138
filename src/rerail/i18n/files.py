"""Data files of the package: one catalogue per language beside this module, and other tables.

Rules of this file:
- This is the only I/O below the adapters (docs/decisions/0016): package files, once each, at first use.
- A sentence missing in a language falls back to English.
"""

from __future__ import annotations

import os
from functools import cache

import msgspec

SOURCE = "en"  # the language of the source sentences, and of texts for machines
FOLDER = os.path.dirname(__file__)
ENDING = ".json"


@cache
def languages() -> tuple[str, ...]:
    """Return the available languages, English first."""
    found = {name.removesuffix(ENDING) for name in os.listdir(FOLDER) if name.endswith(ENDING)}
    return (SOURCE, *sorted(found - {SOURCE}))


@cache
def catalogue(lang: str) -> dict[str, str]:
    """Return the sentences of a language by key; in English where the language is missing, or lacks one."""
    if lang not in languages():
        return catalogue(SOURCE)
    texts = msgspec.json.decode(packaged(f"i18n/{lang}{ENDING}"), type=dict[str, str])
    return texts if lang == SOURCE else {**catalogue(SOURCE), **texts}


def packaged(path: str) -> bytes:
    """Return a data file of the package, by its path below the package's folder."""
    with open(os.path.join(os.path.dirname(FOLDER), path), "rb") as file:
        return file.read()
