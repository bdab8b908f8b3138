"""Other people's patterns: found where Python's search finds them, and never looked for without end (P5, H2)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.core.classify import Evidence, classify
from rerail.core.codes import Category
from rerail.core.coerce import coerce
from rerail.core.schema import Schema
from rerail.core.search import Hard, TooLong, _Automaton, _Irregular, _member, _parser, _Ways, is_hard, search
from rerail.i18n import retold

ATOMS = [
    "a", "b", "ab", ".", r"\d", r"\w", r"\s", r"\W", r"\D", r"\S", "[ab]", "[^a]", r"[\da-]", "^", "$", r"\b", r"\B",
    r"\A", r"\Z", "é", "_", "[a-c]", "1", "\n",
]  # fmt: skip
TEXT = st.text("abAB1 _é\n-", max_size=14)


def patterns() -> st.SearchStrategy[str]:
    """Patterns of all that is regular, nested in every way."""
    grown = st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{0,2}", "{1,}", "{2,3}?"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
            inner.map(lambda one: f"({one})"),
        ),
        max_leaves=6,
    )
    return st.tuples(st.sampled_from(["", "", "(?i)", "(?m)", "(?s)", "(?im)"]), grown).map("".join)


@settings(max_examples=400, deadline=None)
@given(patterns(), TEXT)
def test_the_same_is_found(pattern: str, text: str) -> None:
    """H2, V6: all ways at once or one after the other: the answer is the same."""
    parsed = _parser.parse(pattern)
    expected = re.search(pattern, text) is not None
    assert _Automaton(parsed, parsed.state.flags).found(text) is expected
    assert search(pattern)(text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|a)*b", "(a+)+b", "(a*)*b", "(a|aa)+$", "(.*a){12}b", "a*a*a*a*a*a*b", "(a?){25}a{25}b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        r"(\w+\s?)*$!", "(?:a+){10,}b",
        "a?" * 30 + "a" * 30 + "b", "(a{0,15}){15}b",
        "(a|a){30}b", "(x+x+)+y", r"^(\d+)*[a-c]$", "((a|b)*(a|b)*)*c", "(?i)(a|A)*b", ".*.*.*=.*c",
    ],
)  # fmt: skip
def test_no_pattern_blows_up(pattern: str) -> None:
    """P5: what takes Python's search for ever, or the fourth power of the text, takes as long as the text is."""
    for length in (40, 900, 50_000):  # short texts are left to Python's search where that can do no harm
        assert search(pattern)("a" * length + "!") is False
    assert search(pattern)("x" * 50_000 + "!") is False


LARGE = [
    ("a{0,9000}b", "a" * 12_000),
    ("[ab]{0,9000}c", "".join(Random(1).choices("ab", k=12_000))),
    ("(?:a?){6000}a{6000}b", "a" * 12_000),
    ("(a|b)*a(a|b){2000}d", "".join(Random(2).choices("ab", k=12_000))),
    ("x(?:a?){6000}y", "x" * 12_000),
    ("(?i)(?:[a-f]{0,40}[^b]){200}!", "".join(Random(3).choices("abC", k=12_000))),
    ("(?:" + "|".join("".join(Random(n).choices("abcdef", k=5)) for n in range(2_500)) + ")z", "abcdef" * 2_000),
]


@pytest.mark.parametrize(("pattern", "text"), LARGE, ids=[pattern[:24] for pattern, _ in LARGE])
def test_a_pattern_of_thousands_of_parts_is_looked_for_within_the_bound(pattern: str, text: str) -> None:
    """P5: a letter costs a few operations on whole sets of parts, however many of them there are."""
    assert search(pattern)(text) is False


def test_what_would_take_too_much_is_told_and_not_waited_for() -> None:
    """P5: thousands of parts that have nothing in common, and letters that are all different."""
    letters = "".join(chr(0x4E00 + n) for n in range(6_000))
    pattern = "[^x]*" + "".join(f"[^{letter}]?" for letter in letters) + "x"
    assert search(pattern)(letters[:100] + "x")
    with pytest.raises(TooLong) as raised:
        search(pattern)(letters * 2)
    assert (raised.value.pattern, raised.value.count) == (pattern, 12_000)
    assert 100 < raised.value.most < 12_000
    (fault,) = Schema({"pattern": pattern}).faults(letters * 2)
    assert "12000 characters is too long" in fault.message


def test_copies_of_a_part_find_what_it_finds() -> None:
    """H2: large repeats, written out, of sets, ends and choices: the same as Python's search."""
    chance = Random(5)
    bodies = ["a", "[ab]", "(?:ab|b)", "(?:a|bb?)", r"(?:a\b|b)", "(?:a|^b)", "(?:b|a$)", "(?:ab){0,3}"]
    for _ in range(150):
        least = chance.randint(0, 4)
        pattern = "".join(
            f"(?:{chance.choice(bodies)}){{{least},{least + chance.randint(0, 30)}}}{chance.choice(['', 'c', 'b'])}"
            for _ in range(2)
        )
        parsed = _parser.parse(pattern)
        automaton = _Automaton(parsed, parsed.state.flags)
        for _ in range(8):
            text = "".join(chance.choices("abc ", [6, 6, 1, 1], k=chance.randint(0, 24)))
            assert automaton.found(text) is (re.search(pattern, text) is not None), (pattern, text)


@pytest.mark.parametrize(
    "pattern", [r"(a|a)*\1b", r"(?=(a|b)*c)(a+)+d", r"(?:(?=a)a*)*b", "((a{500}){500}){500}", r"(a*)\1(a*)\2(a*)(b*)"]
)
def test_what_nobody_could_wait_for_is_refused(pattern: str) -> None:
    """P5: it goes back, and what it repeats can be read in two ways; or it is too much to be written out."""
    assert is_hard(pattern)
    with pytest.raises(Hard):
        search(pattern)
    with pytest.raises(ValueError, match="for ever"):
        Schema({"pattern": pattern})
    with pytest.raises(ValueError, match="for ever"):
        Schema({"patternProperties": {pattern: True}})


def test_what_looks_ahead_is_found_in_texts_of_its_length() -> None:
    """V6: the patterns that people check passwords with; they begin where the text does, so that long ones will do."""
    found = search(r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,}$")
    assert found("Abcdefg1")
    assert not found("abcdefg1")
    assert found("Abcdefg1" * 100_000)
    assert search(r"(\w+) \1")("the the")


IRREGULAR, LONG = r"(?!x)a*ok", "b" * 20_000 + "ok"


def test_a_text_that_is_too_long_is_neither_found_nor_not_found() -> None:
    """V6: whoever asks is told, because either answer may be wrong."""
    found = search(IRREGULAR)
    assert found("b" * 900 + "ok")
    with pytest.raises(TooLong) as raised:
        found(LONG)
    assert (raised.value.pattern, raised.value.count, raised.value.most) == (IRREGULAR, 20_002, 10_000)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": IRREGULAR},
        {"not": {"pattern": IRREGULAR}},
        {"not": {"not": {"pattern": IRREGULAR}}},
        {"anyOf": [{"pattern": IRREGULAR}, {"type": "integer"}]},
        {"not": {"anyOf": [{"pattern": IRREGULAR}, {"type": "integer"}]}},
        {"oneOf": [{"pattern": IRREGULAR}, {"type": "string"}]},
        {"oneOf": [{"type": "string"}, {"pattern": IRREGULAR}]},
        {"if": {"pattern": IRREGULAR}, "then": True, "else": True},
        {"$ref": "#/$defs/one", "$defs": {"one": {"not": {"pattern": IRREGULAR}}}},
    ],
)
def test_a_text_that_is_too_long_does_not_fit(schema: dict[str, Any]) -> None:
    """V6: nothing around a pattern turns what is open into a pass, and the fault says why."""
    (fault,) = Schema(schema).faults(LONG)
    assert fault.keyword == "pattern"
    assert "20002 characters is too long" in fault.message
    assert "20002 个字符" in retold(fault.message, "zh")
    assert not Schema(schema).accepts(LONG)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"not": {"pattern": IRREGULAR}}}}, {"a": LONG}),
        ({"items": {"pattern": IRREGULAR}}, ["ok", LONG]),
        ({"contains": {"pattern": IRREGULAR}}, [LONG]),
        ({"patternProperties": {IRREGULAR: {"type": "integer"}}}, {LONG: 1}),
        ({"propertyNames": {"not": {"pattern": IRREGULAR}}}, {LONG: 1}),
    ],
)
def test_a_text_that_is_too_long_does_not_fit_anywhere_in_a_value(schema: dict[str, Any], value: object) -> None:
    """V6: also in a member, an item or a name."""
    (fault,) = Schema(schema).faults(value)
    assert "too long" in fault.message


def test_another_alternative_that_fits_is_enough() -> None:
    """V6: then it does not matter what the pattern says."""
    assert Schema({"anyOf": [{"pattern": IRREGULAR}, {"type": "string"}]}).accepts(LONG)


def test_arguments_that_are_too_long_are_left_as_they_are() -> None:
    """H6: what cannot be checked is not mended."""
    value: dict[str, Any] = {LONG: "1"}
    assert coerce({"patternProperties": {IRREGULAR: {"type": "integer"}}}, value) is value
    value = {"n": "1", "text": LONG}
    assert coerce({"properties": {"n": {"type": "integer"}, "text": {"pattern": IRREGULAR}}}, value) is value


def test_a_message_that_is_too_long_matches_no_pattern_of_settings() -> None:
    """H2: it is no reason for a category, and no reason to fail."""
    patterns = {Category.TOOL: [r"a*(?=a*ok)"]}
    assert classify(Evidence(message="b ok"), patterns) is Category.TOOL
    assert classify(Evidence(message="b" * 1_000 + "ok"), patterns) is not Category.TOOL


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        (r"a*(?=a*b)", 464),
        (r"(a*)\1b", 464),
        (r"^a*(?=a*b)", 10_000),
        (r"(?:a*){3}(?=b)", 100),
        (r"(?=.*\d)(?=.*b).*c", 10_000),
        (r"(?m)^(?!x)a*b", 10_000),
        (r"(?=a)a{0,9}a{0,9}a*b", 1_000),
        (r"(a)\1", 10_000),
        (r"(aa|bb)\1", 7_071),  # each way to read a part is a search of its own
        (r"(aa|bb|cc)\1", 5_773),
        (r"(?:aa|bb){2}(c)\1", 5_000),
        (r"(a)?\1b", 7_071),
        (r"(a{2,5})\1", 5_000),
        (r"(a{15})\1", 10_000),
        (r"(a{2,15})\1", 2_672),
        (r"(a{2,16})\1", 464),  # so often is without end
        (r"(?!a*b*)c", 464),
        (r"(?m)^(a)\1", 10_000),
        (r"(?:a*){2}(c)\1", 100),
    ],
)
def test_how_long_a_text_may_be_follows_from_what_is_tried(pattern: str, most: int) -> None:
    """P5: a look ahead is tried with what comes before it, a backreference is as long as its group."""
    found = search(pattern)
    assert found("x" * most) is False
    with pytest.raises(TooLong) as raised:
        found("x" * (most + 1))
    assert raised.value.most == most


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("a$\n", "a\n"), (r"(?i)$\W", "a\n\n"), (r"$\n", "\n"), (r"$\n\Z", "a\n"), (r"a$\n$", "a\n"), (r"$.", "a\n")],
)
def test_the_line_that_ends_the_text_ends_before_its_newline(pattern: str, text: str) -> None:
    """V6: what stands after ``$`` may be that newline."""
    parsed = _parser.parse(pattern)
    assert _Automaton(parsed, parsed.state.flags).found(text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize("flags", ["", "(?m)", "(?s)", "(?i)"])
@pytest.mark.parametrize("pattern", ["a$", "^b", r"\Ab", r"b\Z", "^$", "a.b", "$", r"\bb", r"\Bb", "a$(?:\nb)?$"])
def test_lines_begin_and_end_where_python_says(pattern: str, flags: str) -> None:
    """V6: in the middle of a text a line ends only where the pattern asks for lines, in long texts, too."""
    for text in ("", "a", "b", "a\nb", "a\nb\n", "b\na", "\n", "\n\nb", "A\nB", "ab", "a b", "xa\nx"):
        for long in (text, "x" * 2_000 + text, text + "x" * 2_000):
            found = re.search(flags + pattern, long) is not None
            parsed = _parser.parse(flags + pattern)
            assert _Automaton(parsed, parsed.state.flags).found(long) is found, (pattern, long[:9], len(long))


def test_how_large_a_pattern_may_be() -> None:
    """P5: its repeats written out; one part more, and whoever brings it is told; and so for ways to go back."""
    assert not is_hard(r"(a)\1" + "x{0,9}" * 5) and is_hard(r"(a)\1" + "x{0,9}" * 6)
    assert not is_hard("a{20000}") and is_hard("a{20001}")


@pytest.mark.parametrize(
    ("pattern", "ways"),
    [
        (r"(a)?(?(1)b|c)", ["ab", "c"]),
        (r"(a)?(?(1)b)", ["ab", "x"]),
        (r"(?=a|b)b", ["b"]),
        (r"(?<!a)b", ["b"]),
        (r"(?>a|b)c", ["bc"]),
        (r"(a|b)\1", ["aa"]),
    ],
)
def test_what_is_not_regular_is_measured_in_all_its_parts(pattern: str, ways: list[str]) -> None:
    """P5: what may take for ever is found wherever it stands in it: in both branches, and inside what looks around."""
    assert all(search(pattern)(way) for way in ways)
    for at, letter in enumerate(pattern):
        if letter in "bc" and pattern[at - 1] not in "\\":
            assert is_hard(f"{pattern[:at]}(?:(x|x)*)*{letter}{pattern[at + 1 :]}"), at


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [(r"(?a)^\w+$", "abc", "äöü"), ("^(?i:a)b$", "Ab", "AB"), (r"(?a)(?i:a)\d", "A1", "A١")],
)
def test_what_changes_its_flags_is_left_to_pythons_search(pattern: str, found: str, not_found: str) -> None:
    """P5: letters of ASCII alone, and flags of a part; texts that are too long for it are told."""
    assert search(pattern)(found) and not search(pattern)(not_found)


def test_what_is_no_pattern_is_not_hard() -> None:
    """P5: that is told elsewhere; one that nobody can follow to its ground is hard."""
    assert not is_hard("(") and not is_hard("a{9999999999999999999999}")
    assert is_hard("(?:a" * 400 + ")*" * 400)


def test_what_a_later_python_may_put_into_a_set_is_left_to_its_own_search() -> None:
    """P5: kinds of letters that this one does not know."""
    with pytest.raises(_Irregular):
        _member("a kind of its own", None)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: the parts count, not the places: one place may hold thousands."""
    monkeypatch.setattr("rerail.core.search.MOST_SEEN", 2_000)
    parsed = _parser.parse("(a|b)*a(a|b){300}d")
    automaton = _Automaton(parsed, parsed.state.flags)
    letters = "".join(Random(1).choices("ab", k=1_500))
    for end in range(100, 1_500, 100):
        assert not automaton.found(letters[:end])
        held = sum(place.parts.bit_length() // 64 + 1 + len(place.moves) for place in automaton._places.values())
        assert held <= 2_000 + 10
    assert automaton.found(letters + "a" + "b" * 300 + "d")


def test_a_pattern_may_be_looked_for_by_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: what one forgets, another may be about to use."""
    monkeypatch.setattr("rerail.core.search.MOST_SEEN", 50)
    parsed = _parser.parse("(a|b)*a(a|b){8}d")
    automaton = _Automaton(parsed, parsed.state.flags)
    texts = ["".join(Random(n).choices("ab", k=400)) + "d" * (n % 2) for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(automaton.found, texts))
    assert found == [re.search("a[ab]{8}d", text) is not None for text in texts]


def test_patterns_of_settings_are_looked_for_in_bounded_time() -> None:
    """H2: extra patterns of `[classify]`, whatever somebody wrote there."""
    patterns = {Category.TOOL: ["(a|a)*b!", "(?=(a|b)*c)(a+)+d", "["]}
    message = "a" * 5_000
    assert classify(Evidence(message=message), patterns) is not Category.TOOL
    assert classify(Evidence(message="AAb! no"), patterns) is Category.TOOL
    assert classify(Evidence(message="broken ["), patterns) is Category.TOOL


def test_a_pattern_is_checked_on_a_megabyte() -> None:
    """V6, E7: each letter costs a look."""
    schema = Schema({"type": "string", "pattern": r"\d+%$"})
    assert not schema.accepts("1" * 1_000_000)
    assert schema.accepts("1" * 1_000_000 + "%")


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40), st.sets(st.integers(0, 12)))
def test_what_follows_is_what_each_way_leads_to(edges: list[tuple[int, int]], parts: set[int]) -> None:
    """H2: gone together or one by one, as by the definition; and no more is counted than is looked at."""
    ways = _Ways(edges)
    following, work = ways.follow(sum(1 << part for part in parts))
    assert following == sum({1 << on for part, on in edges if part in parts})
    assert 2 <= work <= 2 + len(edges) + 3 * len(parts)
    assert ways.follow(0)[0] == 0 and ways.follow(0)[1] <= work
