"""Did you mean …? The known name closest to a misspelled one.

Rules of this file:
- ``nearest`` is for a hint to a reader: one good guess, the same on every run.
- ``meant`` is for acting on the guess without a question: it answers only if no other reading is possible.
- Cheap lower bounds come before the distance, so that ten thousand names take milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

# More edits make another word, at any length; and a longer word is a text, not a name.
_MOST_EDITS = 8
_LONGEST_WORD = 100


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the most likely candidate for the word, or None if none is near."""
    _, ties = _closest(word, candidates)
    # Typing errors are rare at the beginning of a word, so among equally near names a common prefix wins.
    return min(ties, key=lambda name: (-_shared_prefix(word, name), name), default=None)


def meant(word: str, candidates: Iterable[str]) -> str | None:
    """Return the one candidate that the word must be a misspelling of, or None in any doubt."""
    distance, ties = _closest(word, candidates)
    if len(ties) != 1:
        return None
    name = ties[0]
    if not any(sign.isalpha() for sign in word):  # a number or a date: every character has meaning
        return name if name.strip() == word.strip() else None
    return name if distance == 0 or _is_slip(_folded(word), _folded(name), distance) else None


def one_off(word: str, candidates: Iterable[str]) -> list[str]:
    """Return the candidates one edit away: a character more, less or another, or two neighbours swapped."""
    if not 0 < len(word) <= _LONGEST_WORD:
        return []  # the distance takes quadratic time
    ruler = _Ruler(word)
    near = (name for name in candidates if abs(len(name) - len(word)) <= 1)
    return [name for name in dict.fromkeys(near) if name != word and ruler.distance(name, 1) == 1]


def _is_slip(word: str, name: str, distance: int) -> bool:
    """True if it is a typing slip, not another word, such as increase for decrease, or v1 for v2."""
    return (
        len(word) >= 4
        and distance <= (1 if len(word) < 8 else 2)
        and word[0] == name[0]
        and [sign for sign in word if sign.isdigit()] == [sign for sign in name if sign.isdigit()]
    )


def _closest(word: str, candidates: Iterable[str]) -> tuple[int, list[str]]:
    """Return the smallest distance and all names at it: 0 if only case and separators differ."""
    names = list(dict.fromkeys(candidates))
    if word in names:
        return 0, [word]
    lower, folded = word.casefold(), _folded(word)
    forms = [(name, _folded(name)) for name in names]
    alike = [name for name, form in forms if form == folded]
    if alike:
        return 0, [name for name in alike if name.casefold() == lower] or alike
    if len(folded) > _LONGEST_WORD:
        return 0, []
    # If every letter of a word had to change, it is another word, not a misspelling.
    limit = min(max(1, len(folded) // 3), len(folded) - 1, _MOST_EDITS)
    ties: list[str] = []
    letters, ruler = set(folded), _Ruler(folded)
    for name, form in forms:
        # Each letter that only one side has costs at least one edit.
        if (
            abs(len(form) - len(folded)) > limit
            or len(letters.difference(form)) > limit
            or len(set(form) - letters) > limit
        ):
            continue
        distance = ruler.distance(form, limit)
        if distance < limit:
            limit, ties = distance, [name]
        elif distance == limit:
            ties.append(name)
    return limit, ties


def _folded(name: str) -> str:
    """Return the name without case and separators."""
    return name.casefold().replace("_", "").replace("-", "").replace(" ", "")


def _shared_prefix(one: str, two: str) -> int:
    pairs = enumerate(zip(one.casefold(), two.casefold(), strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(two)))


class _Ruler:
    """Measures edits (insert, delete, replace, swap two neighbours) from one word to many."""

    __slots__ = ("_spots", "_word")

    def __init__(self, word: str) -> None:
        self._word = word
        self._spots: dict[str, int] = {}
        for at, sign in enumerate(word):
            self._spots[sign] = self._spots.get(sign, 0) | 1 << at

    def distance(self, other: str, limit: int) -> int:
        """Return the number of edits; any number above the limit if it is more."""
        # Hyyrö's bit-parallel form of the usual table: a column is a few integers, bit i for letter i of the word.
        # up and down: the next cell of the column is one more or one less; same: the diagonal is free.
        size = distance = len(self._word)
        full, last = (1 << size) - 1, 1 << (size - 1)
        up, down, same, before = full, 0, 0, 0
        for left, sign in enumerate(other, 1 - len(other)):
            spots = self._spots.get(sign, 0)
            swapped = ((~same & spots) << 1) & before
            same = (((spots & up) + up) ^ up) | spots | down | swapped
            more, less = down | (~(same | up) & full), same & up
            distance += bool(more & last) - bool(less & last)
            if distance + left > limit:  # left is minus the letters to come; each may save one edit
                return limit + 1
            more, less = more << 1 | 1, less << 1
            up, down = (less | ~(same | more)) & full, more & same & full
            before = spots
        return distance
