"""Which language people read: `--lang`, `RERAIL_LANG`, else the locale (SPEC T12)."""

from __future__ import annotations

import os


def chosen_lang(given: str | None) -> str:
    """The language to speak: what was asked for, else what the environment says."""
    if given is not None:
        return given
    asked = os.environ.get("RERAIL_LANG", "").strip().lower()
    if asked:
        return "zh" if asked.startswith("zh") else "en"
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name, ""):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
