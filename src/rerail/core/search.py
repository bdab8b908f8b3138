"""Looking for other people's regular expressions, in time that grows with the text and never faster.

Python's own search goes back and tries again, and nothing can end it: ``(a|a)*b`` takes for ever on forty letters. Here
all ways are followed at once (Thompson), and each step that was seen is remembered, so that most letters cost one look.

Rules of this file:
- Only whether a pattern is found is answered, so greedy or not makes no difference.
- What is not regular (backreferences, looking ahead or behind, atomic groups) is left to Python's search, where nothing
  in it can take for ever, and for texts of a length that it can be done with: a longer one is `TooLong`: neither
  answer would be true. Else the pattern is `Hard`, and whoever brings it is told.
- An automaton may be used by several threads at once: what is remembered may be gone at any moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import prod
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

MOST_PARTS: Final = 20_000  # of one pattern, its repeats written out
MOST_SEEN: Final = 2_000_000  # parts that are remembered, of all places and steps together: some 100 MB at worst
SHORT: Final = 1_000  # characters of a text that Python's search may have, where it cannot take more than their square
MOST_STEPS: Final = 1e8  # that Python's search may take at worst; about a second or two
MOST_WAYS: Final = 1e5  # in which Python's search may have to read the same part of a text
_MANY: Final = 16  # repeats of a part from which on it may be repeated without end
_FEW: Final = 6  # repeats up to which what can be read in two ways may be repeated: all ways together are still few
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_FLAGS: Final = re.UNICODE | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE

Test = Callable[[str], bool]


class Hard(ValueError):
    """A pattern that cannot be looked for in time that is bounded."""


class TooLong(ValueError):
    """A text in which a pattern cannot be looked for in time that is bounded."""

    def __init__(self, pattern: str, count: int, most: int) -> None:
        super().__init__(f"{count} characters are too many to look for {pattern!r} in; at most {most}")
        self.pattern, self.count, self.most = pattern, count, most


class _Irregular(Exception):
    """Something that only going back can find."""


@lru_cache(maxsize=512)
def search(pattern: str, *, ignore_case: bool = False) -> Callable[[str], bool]:
    """Whether a text holds the pattern; `re.error` if it is none, `Hard` if nobody could wait for the answer.

    What is given back raises `TooLong` for a text that only an irregular pattern is too slow for.
    """
    flags = re.IGNORECASE if ignore_case else 0
    quick = re.compile(pattern, flags).search
    parsed = _parser.parse(pattern, flags)
    if not parsed.state.flags & ~_FLAGS:
        try:
            found = _Automaton(parsed, parsed.state.flags).found
        except _Irregular:
            pass
        except RecursionError as error:
            raise Hard(pattern) from error
        else:
            plain = not _nested(parsed) and _degree(parsed) <= 1 and _ways(parsed) <= 100
            return lambda text: quick(text) is not None if plain and len(text) <= SHORT else found(text)
    degree, ways = _degree(parsed), _ways(parsed)
    if _nested(parsed) or degree > 3 or ways > MOST_WAYS:
        raise Hard(pattern)
    # What is tried from each letter on costs the length once more; at a place that begins the text it is tried once.
    longest = int((MOST_STEPS / ways) ** (1 / max(degree + (not _anchored(parsed)), 1)))

    def irregular(text: str) -> bool:
        if len(text) > longest:
            raise TooLong(pattern, len(text), longest)
        return quick(text) is not None

    return irregular


def is_hard(pattern: str) -> bool:
    """Whether nobody could wait for a search; what is no pattern at all is told elsewhere."""
    try:
        search(pattern)
    except Hard:
        return True
    except (re.error, RecursionError, OverflowError):
        return False
    return False


# -- What a pattern is made of ------------------------------------------------------------------------------------


def _inside(operator: Any, given: Any) -> list[Any]:
    """The parts of a part."""
    if operator in _REPEATS or operator is getattr(_constants, "POSSESSIVE_REPEAT", None):
        return [given[2]]
    if operator is _constants.SUBPATTERN:
        return [given[3]]
    if operator is _constants.BRANCH:
        return list(given[1])
    if operator in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [given[1]]
    if operator is getattr(_constants, "ATOMIC_GROUP", None):
        return [given]
    if operator is _constants.GROUPREF_EXISTS:
        return [one for one in given[1:] if one is not None]
    return []


def _ways(parts: Iterable[Any]) -> float:
    """In how many ways what has an end can be read: repeated so or so often, and the one or the other."""
    ways = 1.0
    for operator, given in parts:
        inner = prod(_ways(one) for one in _inside(operator, given))
        if operator in _REPEATS:
            least, most = int(given[0]), int(given[1])
            inner = min(inner, 1e9) ** min(most, _MANY) * (most - least + 1 if most < _MANY else 1)
        ways *= inner * (len(given[1]) if operator is _constants.BRANCH else 1)
    return min(ways, 1e9)


def _degree(parts: Iterable[Any]) -> int:
    """How many endless repeats are tried with each other: those of one line of parts.

    A look ahead is tried with all that comes before it, but not with what comes after: it is never gone back into. To
    compare with an earlier group takes as long as that group is.
    """
    line = most = 0
    for operator, given in parts:
        inner = sum(_degree(one) for one in _inside(operator, given))
        if operator in (_constants.ASSERT, _constants.ASSERT_NOT):
            most = max(most, line + inner)
        elif operator in _REPEATS:
            line += inner * min(int(given[1]), _FEW) + (given[1] >= _MANY)
        else:
            line += inner + (operator is _constants.GROUPREF)
    return max(line, most)


def _anchored(parsed: Any) -> bool:
    """Whether a pattern can only be found at the beginning of the text."""
    first = parsed[0] if len(parsed) else (None, None)
    ways = [_constants.AT_BEGINNING_STRING] + [_constants.AT_BEGINNING] * (not parsed.state.flags & re.MULTILINE)
    return first[0] is _constants.AT and first[1] in ways


def _nested(parts: Iterable[Any], times: int = 1) -> bool:
    """Whether anything that can be read in two ways is repeated more than a few times."""
    for operator, given in parts:
        choice = operator in (_constants.BRANCH, _constants.GROUPREF) or operator in _REPEATS
        if choice and times >= _FEW:
            return True
        within = times * min(int(given[1]), _MANY) if operator in _REPEATS else times
        if any(_nested(one, within) for one in _inside(operator, given)):
            return True
    return False


# -- All ways at once ---------------------------------------------------------------------------------------------


class _Place:
    """Where a search is: the parts that may come next, and what came before."""

    __slots__ = ("before", "moves", "parts")

    def __init__(self, parts: frozenset[int], before: str) -> None:
        self.parts, self.before = parts, before
        self.moves: dict[str, _Place | None] = {}  # letter → where it leads; None: the pattern is found


_NEW: Final = _Place(frozenset(), "")  # a step that is not remembered


class _Automaton:
    """A pattern as a list of parts: a test of a letter, a condition on the place, or a choice of ways."""

    def __init__(self, parsed: Any, flags: int) -> None:
        self._multiline, self._dotall = bool(flags & re.MULTILINE), bool(flags & re.DOTALL)
        self._ignore_case = bool(flags & re.IGNORECASE)
        self._tests: dict[int, Test] = {}
        self._conditions: dict[int, Any] = {}
        self._next: list[list[int]] = [[]]  # part → what follows it; the first part is the end of the pattern
        self._start = self._sequence(parsed, 0)
        self._places: dict[tuple[frozenset[int], str], _Place] = {}
        self._seen = 0

    def found(self, text: str) -> bool:
        """Whether the text holds the pattern."""
        place = self._place(frozenset(), "")
        last = len(text) - 1
        for at, letter in enumerate(text):
            if at == last and letter == "\n":
                return self._matches(place, "\n", last=True) or self._ends(self._moved(place, letter, last=True))
            following = place.moves.get(letter, _NEW)
            if following is _NEW:
                following = self._step(place, letter)
            if following is None:
                return True
            place = following
        return self._ends(place, empty=not text)

    # -- Following ------------------------------------------------------------------------------------------------

    def _step(self, place: _Place, letter: str) -> _Place | None:
        self._seen += 1
        if self._seen > MOST_SEEN:
            self._forget()
        following = None if self._matches(place, letter) else self._moved(place, letter)
        place.moves[letter] = following
        return following

    def _place(self, parts: frozenset[int], before: str) -> _Place:
        kind = before if before in ("", "\n") else "w" if _is_word(before) else " "
        key = (parts, kind)
        found = self._places.get(key)
        if found is None:
            self._seen += len(parts)
            found = self._places.setdefault(key, _Place(parts, kind))
        return found

    def _forget(self) -> None:
        """Let go of all that is remembered, also of the ways by which one place would hold the others."""
        places, self._places, self._seen = self._places, {}, 0
        for place in list(places.values()):
            place.moves = {}

    def _moved(self, place: _Place, letter: str, *, last: bool = False) -> _Place:
        tests, following = self._tests, self._next
        reached = [part for part in self._reached(place, letter, last=last) if part > 0 and tests[part](letter)]
        return self._place(frozenset(on for part in reached for on in following[part]), letter)

    def _matches(self, place: _Place, letter: str | None, *, last: bool = False, empty: bool = False) -> bool:
        return -1 in self._reached(place, letter, last=last, empty=empty)

    def _ends(self, place: _Place, *, empty: bool = False) -> bool:
        return self._matches(place, None, empty=empty)

    def _reached(self, place: _Place, letter: str | None, *, last: bool = False, empty: bool = False) -> set[int]:
        """The tests that come next from here, and -1 for the end of the pattern; a search may begin anywhere."""
        found: set[int] = set()
        known = {self._start, *place.parts}
        todo = list(known)
        while todo:
            part = todo.pop()
            if part == 0:
                found.add(-1)
            elif part in self._tests:
                found.add(part)
            elif part not in self._conditions or self._holds(self._conditions[part], place, letter, last, empty):
                fresh = [on for on in self._next[part] if on not in known]
                known.update(fresh)
                todo += fresh
        return found

    def _holds(self, condition: Any, place: _Place, letter: str | None, last: bool, empty: bool) -> bool:
        before = place.before
        if condition is _constants.AT_BEGINNING_STRING:
            return before == ""
        if condition is _constants.AT_BEGINNING:
            return before == "" or (self._multiline and before == "\n")
        if condition is _constants.AT_END_STRING:
            return letter is None
        if condition is _constants.AT_END:
            return letter is None or (letter == "\n" and (last or self._multiline))
        edge = (before == "w") != (letter is not None and _is_word(letter))
        return not empty and edge == (condition is _constants.AT_BOUNDARY)

    # -- Building -------------------------------------------------------------------------------------------------

    def _new(self, following: list[int]) -> int:
        if len(self._next) > MOST_PARTS:
            raise Hard(str(len(self._next)))
        self._next.append(following)
        return len(self._next) - 1

    def _sequence(self, parts: Any, following: int) -> int:
        """The first part of a sequence that goes on there."""
        for operator, given in reversed(list(parts)):
            following = self._part(operator, given, following)
        return following

    def _part(self, operator: Any, given: Any, following: int) -> int:
        if operator in _REPEATS:
            return self._repeat(given, following)
        if operator is _constants.BRANCH:
            return self._new([self._sequence(one, following) for one in given[1]])
        if operator is _constants.SUBPATTERN:
            if given[1] or given[2]:
                raise _Irregular  # flags of its own
            return self._sequence(given[3], following)
        part = self._new([following])
        if operator is _constants.AT:
            self._conditions[part] = given
        else:
            self._tests[part] = self._test(operator, given)
        return part

    def _repeat(self, given: Any, following: int) -> int:
        least, most, body = given
        if most is _constants.MAXREPEAT:
            start = self._new([following])
            self._next[start].append(self._sequence(body, start))
        else:
            start = following
            for _ in range(most - least):
                start = self._new([self._sequence(body, start), following])
        for _ in range(least):
            start = self._sequence(body, start)
        return start

    def _test(self, operator: Any, given: Any) -> Test:
        if operator is _constants.ANY:
            return (lambda _: True) if self._dotall else (lambda letter: letter != "\n")
        if operator is _constants.LITERAL:
            return self._cased(_is_one(chr(given)))
        if operator is _constants.NOT_LITERAL:
            same = self._cased(_is_one(chr(given)))
            return lambda letter: not same(letter)
        if operator is _constants.IN:
            return self._set(given)
        raise _Irregular

    def _set(self, given: Any) -> Test:
        negated = bool(given) and given[0][0] is _constants.NEGATE
        tests = [self._cased(_member(kind, what)) for kind, what in given[negated:]]
        return lambda letter: any(test(letter) for test in tests) is not negated

    def _cased(self, test: Test) -> Test:
        if not self._ignore_case:
            return test
        return lambda letter: any(test(one) for one in {letter, letter.lower(), letter.upper(), letter.swapcase()})


def _is_one(wanted: str) -> Test:
    return lambda letter: letter == wanted


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


_CATEGORIES: Final[dict[Any, Test]] = {
    _constants.CATEGORY_DIGIT: str.isdecimal,
    _constants.CATEGORY_NOT_DIGIT: lambda letter: not letter.isdecimal(),
    _constants.CATEGORY_SPACE: str.isspace,
    _constants.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
    _constants.CATEGORY_WORD: _is_word,
    _constants.CATEGORY_NOT_WORD: lambda letter: not _is_word(letter),
}


def _member(kind: Any, what: Any) -> Test:
    """One member of a set of letters."""
    if kind is _constants.LITERAL:
        return _is_one(chr(what))
    if kind is _constants.RANGE:
        first, last = chr(what[0]), chr(what[1])
        return lambda letter: first <= letter <= last
    if kind is _constants.CATEGORY:
        return _CATEGORIES[what]
    raise _Irregular
