"""Our own English, said again in another language: for what the history holds as plain text (SPEC T12).

Rules of this file:
- Events hold English, and what an error's message was made of where that is known. The rest of what we wrote there (a
  reason, a fault, a problem) is known by its shape: a text that is a sentence of the catalogue from end to end.
- Anything else is somebody's own words, and stays as it is.
- A text may come from a stranger and be long: looking for the pieces of a sentence takes one walk, no backtracking.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import cache, lru_cache

from rerail.i18n.files import SOURCE, catalogue

# The areas whose sentences end up in events, or cross from one process to another as text.
AREAS = (
    "error.", "reason.", "schema.", "plan.", "tool.", "mcp.", "mind.", "model.", "refuse.", "hint.", "cli.hint.",
    "warn.", "skip.", "begun.", "stop.", "degraded.", "summary.", "source.", "setting.", "demo.", "cli.worker.",
    "notice.",
)  # fmt: skip
LEAST = 4  # letters that a sentence has of its own; with fewer, it would be found everywhere
# A single word is no sentence: it could be anybody's name for a tool, a step or a key.
LONGEST = 8_000  # characters of a text that is looked at
DEEPEST = 6  # sentences inside of sentences
MOST = 100  # sentences one after the other

Piece = tuple[tuple[str, ...], str, bool]  # literal texts, one of which comes first; the gap behind it; is it quoted
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-\w.]+")


@cache
def pieces(sentence: str) -> tuple[Piece, ...]:
    """A sentence as an alternation of literal text and gaps; ``{n:step|steps}`` may be followed by either word."""
    found: list[Piece] = []
    words: tuple[str, ...] = ("",)
    for literal, name, spec, kind in string.Formatter().parse(sentence):
        gap = f"{name}!r" if kind == "r" else name or ""  # quoted, the same name is another text
        found.append((tuple(word + literal for word in words), gap, kind == "r"))
        words = tuple(f" {word}" for word in spec.split("|")[::-1]) if spec and "|" in spec else ("",)
    if words != ("",) or found[-1][1]:
        found.append((words, "", False))
    return tuple(found)


def gaps(sentence: str, text: str) -> dict[str, str] | None:
    """What stands in the gaps of a sentence, if the text is that sentence; None if it is not."""
    found: dict[str, str] = {}
    at, gap, quoted = 0, "", False
    parts = pieces(sentence)
    for number, (literals, name, kind) in enumerate(parts):
        begin = at
        if quoted:  # it ends where its quotes do, whatever stands in them
            token = QUOTED.match(text, at)
            begin = token.end() if token else len(text) + 1
        loose, last = bool(gap) and not quoted, number == len(parts) - 1
        hits = [(spot, one) for one in literals if (spot := _spot(text, one, begin, loose, last)) >= 0]
        if not hits:
            return None
        spot, literal = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
        if gap and found.setdefault(gap, text[at:spot]) != text[at:spot]:
            return None
        at, gap, quoted = spot + len(literal), name, kind
    return found if at == len(text) else None


def _spot(text: str, literal: str, at: int, loose: bool, last: bool) -> int:
    """Where a literal text is: right here, or behind a gap of any length; the last one only at the end."""
    if not loose:
        return at if text.startswith(literal, at) else -1
    if last:
        spot = len(text) - len(literal)
        return spot if spot >= at and text.endswith(literal) else -1
    return text.find(literal, at)


@cache
def _known() -> tuple[tuple[str, str, str], ...]:
    """The sentences that can be recognised, those with most of their own first: a piece to look for, sentence, key."""
    found = []
    for key in filter(lambda key: key.startswith(AREAS), catalogue(SOURCE)):
        sentence = catalogue(SOURCE)[key]
        own = "".join(literals[-1] for literals, _, _ in pieces(sentence))
        if sum(map(str.isalpha, own)) >= LEAST and not own.isalpha():
            sure = [literals[0] for literals, _, _ in pieces(sentence) if len(literals) == 1]
            found.append((len(own), max(sure, key=len, default=""), sentence, key))
    return tuple((piece, sentence, key) for _, piece, sentence, key in sorted(found, reverse=True))


@lru_cache(maxsize=4096)
def recalled(text: str, lang: str, depth: int = 0) -> str:
    """A text of ours in another language, with the sentences inside of it; any other text as it is."""
    if lang == SOURCE or len(text) > LONGEST or depth > DEEPEST or text.isspace() or not text:
        return text
    match = _match(text)
    if "; " in text and (match is None or any("; " in gap for gap in match[1].values())):
        several = _several(text, lang, depth)  # rather than one whose gap takes in all the others
        if several != text:
            return several
    return _labelled(text, lang, depth) if match is None else _said(*match, lang, depth)


def _match(text: str) -> tuple[str, dict[str, str]] | None:
    """The sentence that a text is, and what stands in its gaps."""
    for piece, sentence, key in _known():
        found = gaps(sentence, text) if piece in text else None
        if found is not None:
            return key, found
    return None


def _said(key: str, found: Mapping[str, str], lang: str, depth: int) -> str:
    said = []
    for literal, name, _, kind in string.Formatter().parse(catalogue(lang)[key]):
        inside = found.get(f"{name}!r", "") if kind == "r" else recalled(found.get(name or "", ""), lang, depth + 1)
        said.append(literal + inside)
    return "".join(said)


def _labelled(text: str, lang: str, depth: int) -> str:
    """A sentence in brackets behind a name, as in summaries; or behind a colon: who says it, or what it is about."""
    names = text.removesuffix(")").split("), ") if text.endswith(")") and " (" in text else []
    pairs = [name.partition(" (") for name in names[:MOST]]
    if any(recalled(reason, lang, depth + 1) != reason for _, _, reason in pairs):
        said = [name + bracket + recalled(reason, lang, depth + 1) for name, bracket, reason in pairs]
        return "), ".join(said) + ")"
    label, colon, rest = text.partition(": ")
    told = recalled(rest, lang, depth + 1) if colon else rest
    return f"{label}：{told}" if told != rest else text


def _several(text: str, lang: str, depth: int) -> str:
    """Sentences one after the other."""
    parts, said, at, known = text.split("; "), [], 0, False
    if len(parts) > MOST:
        return text
    while at < len(parts):
        end, one = _next(parts, at, lang, depth)
        said.append(one)
        known, at = known or one != "; ".join(parts[at:end]), end
    return "；".join(said) if known else text


def _next(parts: list[str], at: int, lang: str, depth: int) -> tuple[int, str]:
    """The sentence that begins there, and where it ends: as short as it can be, with nothing foreign left in it."""
    found = None
    for end in range(at + 1, min(len(parts), at + 4) + 1):
        match = _match("; ".join(parts[at:end]))
        if match is not None:
            here = (end, _said(*match, lang, depth + 1))
            gaps_here = [gap for name, gap in match[1].items() if not name.endswith("!r") and " " in gap]
            if all(recalled(gap, lang, depth + 1) != gap for gap in gaps_here):
                return here
            found = found or here
    return found or (at + 1, _labelled(parts[at], lang, depth + 1))
