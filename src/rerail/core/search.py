"""Looking for other people's regular expressions, in time that grows with the text and never faster.

Python's own search goes back and tries again, and nothing can end it: ``(a|a)*b`` takes for ever on forty letters. Here
all ways are followed at once (Thompson), and each step that was seen is remembered, so that most letters cost one look.
A step that was not takes a handful of operations on whole sets of parts, which are numbers with a bit for each part:
parts that lie as far from what follows them as others do (those of a repeat that is written out) move together.

Rules of this file:
- Only whether a pattern is found is answered, so greedy or not makes no difference.
- How much is done for one text is bounded too: a pattern of thousands of parts can make every letter a new step. Past
  the bound the text is `TooLong`.
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
MOST_SEEN: Final = 1_000_000  # words of 64 parts that are remembered, and steps, together: some 100 MB at worst
_PLACE: Final = 8  # the same for a place, beside its parts
MOST_WORK: Final = 10_000_000  # operations on sets of parts for one text; some seconds
SHORT: Final = 1_000  # characters of a text that Python's search may have, where it cannot take more than their square
MOST_STEPS: Final = 1e8  # that Python's search may take at worst; about a second or two
MOST_WAYS: Final = 1e5  # in which Python's search may have to read the same part of a text
_MANY: Final = 16  # repeats of a part from which on it may be repeated without end
_ALIKE: Final = 3  # ways of the same length from which on they are gone together
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


class _Weary(Exception):
    """As much was done as may be done for one text, up to this letter of it."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class _Irregular(Exception):
    """Something that only going back can find."""


@lru_cache(maxsize=512)
def search(pattern: str, *, ignore_case: bool = False) -> Callable[[str], bool]:
    """Whether a text holds the pattern; `re.error` if it is none, `Hard` if nobody could wait for the answer.

    What is given back raises `TooLong` for a text that an irregular pattern, or a very large one, is too slow for.
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

            def regular(text: str) -> bool:
                if plain and len(text) <= SHORT:
                    return quick(text) is not None
                try:
                    return found(text)
                except _Weary as weary:
                    raise TooLong(pattern, len(text), weary.at) from None

            return regular
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
    """Where a search is: the parts that may come next, one bit each, and what came before."""

    __slots__ = ("before", "moves", "parts")

    def __init__(self, parts: int, before: str) -> None:
        self.parts, self.before = parts, before
        self.moves: dict[str, _Place | None] = {}  # letter → where it leads; None: the pattern is found


_NEW: Final = _Place(0, "")  # a step that is not remembered


class _Ways:
    """From parts to what follows them: together where many go equally far, or to the same; one by one where not."""

    def __init__(self, edges: Iterable[tuple[int, int]]) -> None:
        far: dict[int, list[int]] = {}
        for part, on in edges:
            far.setdefault(on - part, []).append(part)
        self._together = [(_bits(parts), length) for length, parts in far.items() if len(parts) >= _ALIKE]
        same: dict[int, list[int]] = {}
        for length, parts in far.items():
            for part in parts if len(parts) < _ALIKE else ():
                same.setdefault(part + length, []).append(part)
        self._meeting = [(_bits(parts), 1 << on) for on, parts in same.items() if len(parts) >= _ALIKE]
        self._single: dict[int, int] = {}  # part → all that follow it, by ways of their own
        for on, parts in same.items():
            for part in parts if len(parts) < _ALIKE else ():
                self._single[part] = self._single.get(part, 0) | 1 << on
        self._lonely = _bits(self._single)

    def follow(self, parts: int) -> tuple[int, int]:
        """What follows these, and how many operations that took."""
        following, work = 0, len(self._together) + len(self._meeting) + 2
        for mask, length in self._together:
            some = parts & mask
            if some:
                following |= some << length if length > 0 else some >> -length
        for mask, on in self._meeting:
            if parts & mask:
                following |= on
        lonely = parts & self._lonely
        while lonely:
            lowest = lonely & -lonely
            following |= self._single[lowest.bit_length() - 1]
            lonely ^= lowest
            work += 3
        return following, work


class _Automaton:
    """A pattern as a list of parts: a test of a letter, a condition on the place, or a choice of ways."""

    def __init__(self, parsed: Any, flags: int) -> None:
        self._multiline, self._dotall = bool(flags & re.MULTILINE), bool(flags & re.DOTALL)
        self._ignore_case = bool(flags & re.IGNORECASE)
        self._tests: dict[int, Test] = {}
        self._known: dict[Any, Test] = {}  # what a part is made of → its test: copies of a part share one
        self._conditions: dict[int, Any] = {}
        self._next: list[list[int]] = [[]]  # part → what follows it; the first part is the end of the pattern
        self._start = self._sequence(parsed, 0)
        self._places: dict[tuple[int, str], _Place] = {}
        self._seen = 0
        ways = [(part, on) for part, following in enumerate(self._next) for on in following]
        self._past = _Ways((part, on) for part, on in ways if part in self._tests)  # a letter
        self._free = _Ways((part, on) for part, on in ways if part not in self._tests)  # nothing
        by_test: dict[Test, list[int]] = {}
        for part, test in self._tests.items():
            by_test.setdefault(test, []).append(part)
        self._kinds = [(test, _bits(parts)) for test, parts in by_test.items()]
        by_condition: dict[Any, list[int]] = {}
        for part, condition in self._conditions.items():
            by_condition.setdefault(condition, []).append(part)
        self._gates = [(condition, _bits(parts)) for condition, parts in by_condition.items()]
        self._letters: dict[str, int] = {}  # letter → the tests that it passes
        self._begun: dict[int, int] = {}  # the conditions that hold → what a search that begins here may come to
        self._words = len(self._next) // 64 + 1

    def found(self, text: str) -> bool:
        """Whether the text holds the pattern; `_Weary` if that took too much."""
        place, work = self._place(0, ""), 0
        last = len(text) - 1
        for at, letter in enumerate(text):
            if at == last and letter == "\n":
                reached, _ = self._reached(place, letter, last=True)
                return bool(reached & 1) or self._ends(self._moved(reached, letter)[0])
            following = place.moves.get(letter, _NEW)
            if following is _NEW:
                following, more = self._step(place, letter)
                work += more
                if work > MOST_WORK:
                    raise _Weary(at)
            if following is None:
                return True
            place = following
        return self._ends(place, empty=not text)

    # -- Following ------------------------------------------------------------------------------------------------

    def _step(self, place: _Place, letter: str) -> tuple[_Place | None, int]:
        """Where a letter leads, and how many operations it took to find out; one on a large set counts for more."""
        self._seen += 1
        if self._seen > MOST_SEEN:
            self._forget()
        reached, work = self._reached(place, letter)
        following: _Place | None = None
        if not reached & 1:
            following, more = self._moved(reached, letter)
            work += more
        place.moves[letter] = following
        return following, work * (1 + self._words // 64)

    def _place(self, parts: int, before: str) -> _Place:
        kind = before if before in ("", "\n") else "w" if _is_word(before) else " "
        key = (parts, kind)
        found = self._places.get(key)
        if found is None:
            self._seen += _PLACE + self._words
            found = self._places.setdefault(key, _Place(parts, kind))
        return found

    def _forget(self) -> None:
        """Let go of all that is remembered, also of the ways by which one place would hold the others."""
        places, self._places, self._letters, self._seen = self._places, {}, {}, 0
        for place in list(places.values()):
            place.moves = {}

    def _moved(self, reached: int, letter: str) -> tuple[_Place, int]:
        passed, asked = self._letters.get(letter), 0
        if passed is None:
            passed, asked = 0, 2 * len(self._kinds)
            for test, parts in self._kinds:
                if test(letter):
                    passed |= parts
            self._letters[letter] = passed
            self._seen += self._words
        following, work = self._past.follow(reached & passed)
        return self._place(following, letter), work + asked

    def _ends(self, place: _Place, *, empty: bool = False) -> bool:
        return bool(self._reached(place, None, empty=empty)[0] & 1)

    def _reached(
        self, place: _Place, letter: str | None, *, last: bool = False, empty: bool = False
    ) -> tuple[int, int]:
        """All parts that come next from here, the end of the pattern among them; a search may begin anywhere."""
        shut = 0
        for condition, parts in self._gates:
            if not self._holds(condition, place, letter, last, empty):
                shut |= parts
        work = 0
        begun = self._begun.get(shut)
        if begun is None:
            begun, work = self._free_from(1 << self._start, 0, shut)
            self._begun[shut] = begun
        reached, more = self._free_from(place.parts & ~begun, begun, shut)
        return reached, work + more

    def _free_from(self, fresh: int, known: int, shut: int) -> tuple[int, int]:
        """All that is reached from these without a letter, beside what is known, and the operations that took."""
        known |= fresh
        work = 0
        while fresh:
            following, more = self._free.follow(fresh & ~shut)
            work += more
            fresh = following & ~known
            known |= fresh
        return known, work

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
            made_of = (operator, str(given))
            if made_of not in self._known:
                self._known[made_of] = self._test(operator, given)
            self._tests[part] = self._known[made_of]
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


def _bits(parts: Iterable[int]) -> int:
    """A set of parts as a number."""
    listed = list(parts)
    held = bytearray(max(listed, default=0) // 8 + 1)
    for part in listed:
        held[part // 8] |= 1 << part % 8
    return int.from_bytes(held, "little")


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
