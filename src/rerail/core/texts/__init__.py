"""Every sentence people read, in one catalogue, by key and language (SPEC T12).

Rules of this package:
- Code elsewhere asks for a key; it holds no sentences of its own. Codes and JSON never change with the language.
- One module for each area, each a table of sentences and nothing else; every key has English and Chinese.
- The formats of the Chinese skip message are fixed by the contract, to the letter.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from rerail.core.texts.care import CARE
from rerail.core.texts.cluster import CLUSTER
from rerail.core.texts.command_help import COMMAND_HELP
from rerail.core.texts.commands import COMMANDS
from rerail.core.texts.crashes import CRASHES
from rerail.core.texts.demo import DEMO
from rerail.core.texts.errors import ERRORS
from rerail.core.texts.files import FILES
from rerail.core.texts.graphs import GRAPHS
from rerail.core.texts.lines import LINES
from rerail.core.texts.models import MODELS
from rerail.core.texts.notify import NOTIFY
from rerail.core.texts.plans import PLANS
from rerail.core.texts.reasons import REASONS
from rerail.core.texts.replays import REPLAYS
from rerail.core.texts.runs import RUNS
from rerail.core.texts.schemas import SCHEMAS
from rerail.core.texts.server import SERVER
from rerail.core.texts.setup import SETUP
from rerail.core.texts.shell import SHELL
from rerail.core.texts.stores import STORES
from rerail.core.texts.stories import STORIES
from rerail.core.texts.tools import TOOLS
from rerail.core.texts.verdicts import VERDICTS
from rerail.core.texts.workers import WORKERS

TEXTS: dict[str, dict[str, str]] = {
    **ERRORS,
    **VERDICTS,
    **STORIES,
    **COMMAND_HELP,
    **LINES,
    **COMMANDS,
    **RUNS,
    **PLANS,
    **SCHEMAS,
    **SETUP,
    **TOOLS,
    **REASONS,
    **MODELS,
    **DEMO,
    **FILES,
    **NOTIFY,
    **WORKERS,
    **SHELL,
    **STORES,
    **CARE,
    **SERVER,
    **GRAPHS,
    **CLUSTER,
    **CRASHES,
    **REPLAYS,
}


class _Words(string.Formatter):
    """Formatting that counts: ``{n:step|steps}`` becomes "1 step" or "2 steps"."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if "|" in format_spec:
            one, _, many = format_spec.partition("|")
            return f"{value:,} {one if value == 1 else many}"
        return super().format_field(value, format_spec)


_words = _Words()


def say(key: str, lang: str = "en", /, **values: Any) -> str:
    """The sentence for a key, in that language if it is there; sentences among its values are said in it too."""
    entry = TEXTS[key]
    sentence = entry.get(lang, entry["en"])
    if lang != "en":
        values = {name: _spoken(value, lang) for name, value in values.items()}
    # The formatter that counts is ten times slower than the one that does not.
    return _words.vformat(sentence, (), values) if "|" in sentence else sentence.format(**values)


class Told(str):
    """A sentence in English that can be said again in another language."""

    __slots__ = ("key", "values")

    key: str
    values: Mapping[str, Any]


def tell(key: str, /, **values: Any) -> Told:
    """The sentence for a key, for an exception: whoever shows it to people chooses the language."""
    told = Told(say(key, **values))
    told.key, told.values = key, values
    return told


def _spoken(value: Any, lang: str) -> Any:
    """A value of a sentence in its language: a sentence itself, or an exception that speaks one."""
    if isinstance(value, BaseException) and len(value.args) == 1 and isinstance(value.args[0], Told):
        return retold(value.args[0], lang)
    return retold(value, lang) if isinstance(value, Told) else value


def retold(text: str, lang: str) -> str:
    """A sentence in a language, as far as it came from the catalogue; as plain text in any case.

    What came out of a history, or from another process, is only text any more: it is known by its shape.
    """
    if isinstance(text, Told):
        if lang == "en":
            return str(text)
        plain = {name: retold(value, lang) if isinstance(value, str) else value for name, value in text.values.items()}
        return say(text.key, lang, **plain)
    if lang == "en":
        return str(text)
    from rerail.core.texts.recall import recalled

    return recalled(str(text), lang)


def has(key: str) -> bool:
    """Whether the catalogue knows the key."""
    return key in TEXTS


def has_command(key: str) -> bool:
    """Whether the sentence of a key suggests something to type."""
    return "rerail " in TEXTS[key]["en"]


def at_once(seconds: float) -> bool:
    """Whether a wait is none at all: "in 0 ms" is nothing that people say."""
    return seconds < 0.0005


def span(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def reason_in(lang: str, code: str, message: str, data: Mapping[str, Any]) -> str:
    """An error's message in a language, if it was made from the catalogue; tools' own words stay as they are."""
    key = f"error.{data.get('text', code)}"
    if lang == "en" or key not in TEXTS or lang not in TEXTS[key]:
        return retold(message, lang)
    values = {name: retold(value, lang) if isinstance(value, str) else value for name, value in data.items()}
    try:
        return say(key, lang, **values)
    except (KeyError, IndexError, ValueError):
        return retold(message, lang)  # an error of the same code, worded by its tool
