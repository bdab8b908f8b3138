"""Which language people read: `--lang`, `RERAIL_LANG`, else the locale (contract T12)."""

from __future__ import annotations

import os

from rerail.i18n import SOURCE, nearest_language


def chosen_lang(given: str | None) -> str:
    """The language to speak: what was asked for, else what the environment says."""
    if given is not None:
        return given
    for name in ("RERAIL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name, "").strip():
            return nearest_language(value) or SOURCE
    return SOURCE
