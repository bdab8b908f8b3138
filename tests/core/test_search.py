"""Other people's patterns: found where Python's search finds them, and never looked for without end (P5, H2)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.core.classify import Evidence, classify
from rerail.core.codes import Category
from rerail.core.schema import Schema
from rerail.core.search import Hard, _Automaton, _parser, is_hard, search

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
    """V6: the patterns that people check passwords with; in a text that is too long for them they are not found."""
    found = search(r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,}$")
    assert found("Abcdefg1")
    assert not found("abcdefg1")
    assert not found("Abcdefg1" * 100_000)
    assert search(r"(\w+) \1")("the the")


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
