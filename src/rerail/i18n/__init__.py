"""Every sentence people read, by key and language (contract T12).

Rules of this package:
- Code elsewhere asks for a key; it holds no sentences of its own. Codes and JSON never change with the language.
- The sentences are data: ``en.json``, ``zh.json``, … with the same keys. A language is added by its file alone.
- The formats of the Chinese skip message are fixed by the contract, to the letter.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rerail.i18n.files import SOURCE, catalogue, languages

__all__ = [
    "SOURCE", "UNSAYABLE", "Language", "Told", "about", "as_text", "at_once", "catalogue", "clipped", "has",
    "languages", "nearest_language", "one_by_one", "put_together", "retold", "say", "span",
    "taken_apart", "tell", "values_of", "words_of",
]  # fmt: skip

# What is raised for a key that is not there, and for values that do not fit its sentence.
UNSAYABLE = (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError)
MAX_JOINED = 20  # sentences that are put together

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
    """A sentence in English that knows its key and values, so that it can be said in another language.

    Events hold such sentences; the codec stores key and values beside the words (docs/decisions/0017).
    """

    __slots__ = ("key", "values")

    key: str
    values: Mapping[str, Any]

    def worded(self, sentence: str) -> Told:
        """The same, in the words of a history: an older version may have said it otherwise."""
        if sentence == self:
            return self
        told = Told(sentence)
        told.key, told.values = self.key, self.values
        return told


def tell(key: str, /, **values: Any) -> Told:
    """The sentence for a key, for events and exceptions: the reader chooses the language."""
    told = Told(say(key, **values))
    told.key, told.values = key, values
    return told


def as_text(value: Any) -> str:
    """For encoders: a sentence of the catalogue is a text like any other once it is written down."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")  # as the encoder says it


def words_of(error: BaseException) -> str:
    """What an exception says; a sentence of the catalogue stays one."""
    said, told = str(error), error.args[0] if len(error.args) == 1 else ""
    if not isinstance(told, Told) or not said.startswith(told):
        return said
    return told if said == told else tell("text.more", said=told, more=said[len(told) :])


def one_by_one(sentences: Iterable[str], key: str = "text.then") -> str:
    """Sentences one after the other, as one; of very many the first, and how many more there are."""
    found = list(sentences) or [""]
    if len(found) > MAX_JOINED:
        found = [*found[:MAX_JOINED], f"… (+{len(found) - MAX_JOINED})"]
    *before, said = found
    for first in reversed(before):
        told = tell(key, first=first, rest=said)
        said = told if isinstance(first, Told) or isinstance(said, Told) else str(told)
    return said


def about(label: str, said: str) -> str:
    """A sentence, and before it what it is about or who says it."""
    return tell("text.about", label=label, said=said) if isinstance(said, Told) else f"{label}: {said}"


def clipped(text: str, most: int) -> str:
    """A text, cut to so many characters; a sentence of the catalogue that is no longer than that stays one."""
    return text if len(text) <= most else text[:most]


def values_of(text: str) -> Iterator[str]:
    """The texts inside of a sentence of the catalogue, and those inside of its sentences."""
    for value in text.values.values() if isinstance(text, Told) else ():
        yield str(value)
        if isinstance(value, str):
            yield from values_of(value)


def _spoken(value: Any, lang: str) -> Any:
    """A value of a sentence in its language: a sentence itself, or an exception that speaks one."""
    value = words_of(value) if isinstance(value, BaseException) else value
    return retold(value, lang) if isinstance(value, Told) else value


def retold(text: str, lang: str) -> str:
    """A sentence in a language, if it came from the catalogue; as plain text in any case."""
    if not isinstance(text, Told) or lang == SOURCE:
        return str(text)
    try:
        return say(text.key, lang, **text.values)
    except UNSAYABLE:
        return str(text)  # told by a version that worded it otherwise


# -- Key and values as data ---------------------------------------------------------------------------------------

_PLAIN = (int, float, bool, type(None))


def taken_apart(value: Any) -> Any:
    """A sentence as plain data, key and values, sentences among these likewise; another value as it is or as a text."""
    value = words_of(value) if isinstance(value, BaseException) else value
    if isinstance(value, Told):
        sentence = catalogue(SOURCE)[value.key]  # what it does not name, no language does
        values = {name: taken_apart(part) for name, part in value.values.items() if "{" + name in sentence}
        return {"key": value.key, "values": values}
    # Lone surrogates cannot be written.
    return value if type(value) in _PLAIN else str(value).encode("utf-8", "replace").decode()


def put_together(plain: Mapping[str, Any]) -> Told:
    """The sentence of a key and values; UNSAYABLE if the catalogue cannot say it."""
    values = {name: put_together(part) if isinstance(part, dict) else part for name, part in plain["values"].items()}
    return tell(plain["key"], **values)


# -- What else is said --------------------------------------------------------------------------------------------


def has(key: str, lang: str = SOURCE) -> bool:
    """Whether the catalogue knows the key; some sentences are fixed in one language only."""
    return key in catalogue(lang)


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
