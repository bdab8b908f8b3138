"""The message catalogue: every sentence for users, by key and language (contract T12).

Rules of this package:
- Other code asks for a key; it holds no sentences of its own. Codes and JSON never change with the language.
- The sentences are data: ``en.json``, ``zh.json``, … with the same keys. A new language is one new file.
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

# Raised for a missing key, and for values that do not fit its sentence.
UNSAYABLE = (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError)
MAX_JOINED = 20  # sentences in one joined text

if TYPE_CHECKING:
    Language: TypeAlias = str
else:
    Language = Literal[languages()]  # for parsers, which refuse any other


class _Words(string.Formatter):
    """Formatting with plurals: ``{n:step|steps}`` becomes "1 step" or "2 steps"."""

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
    """Return the language of a browser or locale tag (``zh-Hans``, ``zh_CN.UTF-8``), if it is available."""
    wanted = tag.strip().lower().replace("_", "-").partition(".")[0]
    known = {lang.lower(): lang for lang in languages()}
    return known.get(wanted) or known.get(wanted.partition("-")[0], "")


def say(key: str, lang: str = SOURCE, /, **values: Any) -> str:
    """Return the sentence for a key, in that language if it is available; nested sentences too."""
    sentence = catalogue(lang)[key]
    if lang != SOURCE:
        values = {name: _spoken(value, lang) for name, value in values.items()}
    # The formatter with plurals is ten times slower than the plain one.
    return _words(lang).vformat(sentence, (), values) if "|" in sentence else sentence.format(**values)


class Told(str):
    """A sentence in English that knows its key and values, so that it can be translated.

    Events hold such sentences; the codec stores key and values beside the text (docs/decisions/0017).
    """

    __slots__ = ("key", "values")

    key: str
    values: Mapping[str, Any]

    def worded(self, sentence: str) -> Told:
        """Return the same message with a history's text: an older version may have worded it differently."""
        if sentence == self:
            return self
        told = Told(sentence)
        told.key, told.values = self.key, self.values
        return told


def tell(key: str, /, **values: Any) -> Told:
    """Return the sentence for a key, for events and exceptions: the reader chooses the language."""
    told = Told(say(key, **values))
    told.key, told.values = key, values
    return told


def as_text(value: Any) -> str:
    """Encode a catalogue message as the plain text that it is."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")  # the encoder's own message


def words_of(error: BaseException) -> str:
    """Return an exception's message; a catalogue message stays translatable."""
    said, told = str(error), error.args[0] if len(error.args) == 1 else ""
    if not isinstance(told, Told) or not said.startswith(told):
        return said
    return told if said == told else tell("text.more", said=told, more=said[len(told) :])


def one_by_one(sentences: Iterable[str], key: str = "text.then") -> str:
    """Join sentences into one; of very many the first ones, and the number of the others."""
    found = list(sentences) or [""]
    if len(found) > MAX_JOINED:
        found = [*found[:MAX_JOINED], f"… (+{len(found) - MAX_JOINED})"]
    *before, said = found
    for first in reversed(before):
        told = tell(key, first=first, rest=said)
        said = told if isinstance(first, Told) or isinstance(said, Told) else str(told)
    return said


def about(label: str, said: str) -> str:
    """Return a sentence with its subject or source in front."""
    return tell("text.about", label=label, said=said) if isinstance(said, Told) else f"{label}: {said}"


def clipped(text: str, most: int) -> str:
    """Return a text cut to a number of characters, after a word; one within the limit stays translatable."""
    return text if len(text) <= most else re.sub(r"\s+\S{0,40}\Z", "", text[: most - 1]) + "…"


def values_of(text: str) -> Iterator[str]:
    """Yield the texts inside a catalogue message and its nested messages."""
    for value in text.values.values() if isinstance(text, Told) else ():
        yield str(value)
        if isinstance(value, str):
            yield from values_of(value)


def _spoken(value: Any, lang: str) -> Any:
    """Return a value of a sentence in its language: a nested sentence, or an exception with one."""
    value = words_of(value) if isinstance(value, BaseException) else value
    return retold(value, lang) if isinstance(value, Told) else value


def retold(text: str, lang: str) -> str:
    """Return a sentence in a language, if it came from the catalogue; any other text as it is."""
    if not isinstance(text, Told) or lang == SOURCE:
        return str(text)
    try:
        return say(text.key, lang, **text.values)
    except UNSAYABLE:
        return str(text)  # told by a version with another wording


# -- Key and values as data ---------------------------------------------------------------------------------------

_PLAIN = (int, float, bool, type(None))


def taken_apart(value: Any) -> Any:
    """Return a message as plain data, key and values, nested messages too; another value as it is or as a text."""
    value = words_of(value) if isinstance(value, BaseException) else value
    if isinstance(value, Told):
        sentence = catalogue(SOURCE)[value.key]  # a value that it does not name appears in no language
        values = {name: taken_apart(part) for name, part in value.values.items() if "{" + name in sentence}
        return {"key": value.key, "values": values}
    # Lone surrogates cannot be encoded.
    return value if type(value) in _PLAIN else str(value).encode("utf-8", "replace").decode()


def put_together(plain: Mapping[str, Any]) -> Told:
    """Return the sentence of a key and values; UNSAYABLE if the catalogue cannot express it."""
    values = {name: put_together(part) if isinstance(part, dict) else part for name, part in plain["values"].items()}
    return tell(plain["key"], **values)


# -- Helpers ------------------------------------------------------------------------------------------------------


def has(key: str, lang: str = SOURCE) -> bool:
    return key in catalogue(lang)


def at_once(seconds: float) -> bool:
    """True if a wait is effectively zero: "in 0 ms" is no useful message."""
    return seconds < 0.0005


def span(seconds: float) -> str:
    """Return a duration in its usual notation."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
