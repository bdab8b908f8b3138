"""Every sentence people read, by key and language (contract T12).

Rules of this package:
- Code elsewhere asks for a key; it holds no sentences of its own. Codes and JSON never change with the language.
- The sentences are data: ``en.json``, ``zh.json``, … with the same keys. A language is added by its file alone.
- The formats of the Chinese skip message are fixed by the contract, to the letter.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rerail.i18n.files import SOURCE, catalogue, languages

__all__ = [
    "SOURCE", "Language", "Told", "at_once", "catalogue", "has", "has_command", "languages", "nearest_language",
    "reason_in", "retold", "say", "span", "tell",
]  # fmt: skip

if TYPE_CHECKING:
    Language: TypeAlias = str
else:
    Language = Literal[languages()]  # for parsers, which refuse any other


class _Words(string.Formatter):
    """Formatting that counts: ``{n:step|steps}`` becomes "1 step" or "2 steps"."""

    def __init__(self, lang: str) -> None:
        self._rules = [re.compile(rule) for rule in catalogue(lang)["language.plural"].split()]

    def format_field(self, value: Any, format_spec: str) -> Any:
        if "|" not in format_spec:
            return super().format_field(value, format_spec)
        forms = format_spec.split("|")
        said = (form for form, rule in zip(forms, self._rules, strict=False) if rule.search(str(value)))
        return f"{value:,} {next(said, forms[-1])}"


_words = cache(_Words)


def nearest_language(tag: str) -> str:
    """The language of a tag as browsers and locales write them (``zh-Hans``, ``zh_CN.UTF-8``), if it is there."""
    wanted = tag.strip().lower().replace("_", "-").partition(".")[0]
    known = {lang.lower(): lang for lang in languages()}
    return known.get(wanted) or known.get(wanted.partition("-")[0], "")


def say(key: str, lang: str = SOURCE, /, **values: Any) -> str:
    """The sentence for a key, in that language if it is there; sentences among its values are said in it too."""
    sentence = catalogue(lang)[key]
    if lang != SOURCE:
        values = {name: _spoken(value, lang) for name, value in values.items()}
    # The formatter that counts is ten times slower than the one that does not.
    return _words(lang).vformat(sentence, (), values) if "|" in sentence else sentence.format(**values)


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
        if lang == SOURCE:
            return str(text)
        plain = {name: retold(value, lang) if isinstance(value, str) else value for name, value in text.values.items()}
        return say(text.key, lang, **plain)
    if lang == SOURCE:
        return str(text)
    from rerail.i18n.recall import recalled

    return recalled(str(text), lang)


def has(key: str, lang: str = SOURCE) -> bool:
    """Whether the catalogue knows the key; some sentences are fixed in one language only."""
    return key in catalogue(lang)


def has_command(key: str, lang: str = SOURCE) -> bool:
    """Whether the sentence of a key suggests something to type."""
    return "rerail " in catalogue(lang)[key]


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
    if lang == SOURCE or key not in catalogue(lang):
        return retold(message, lang)
    values = {name: retold(value, lang) if isinstance(value, str) else value for name, value in data.items()}
    try:
        return say(key, lang, **values)
    except (KeyError, IndexError, ValueError):
        return retold(message, lang)  # an error of the same code, worded by its tool
