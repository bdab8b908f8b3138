"""Patterns of schemas and settings: found where Python's search finds them, in linear time, or refused (P5, H2, V6)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import unicodedata
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.codes import Category
from rerail.engine.files.placement import unmet
from rerail.errors import SettingsError
from rerail.i18n import retold
from rerail.plan.step import Check
from rerail.recovery.classifier import Evidence, classify
from rerail.recovery.coercion import coerce
from rerail.settings.loading import Settings
from rerail.values.patterns import MOST, BadPattern, search, why_not
from rerail.values.schema import Schema, readable

ATOMS = [
    "a", "b", "ab", ".", r"\d", r"\w", r"\s", r"\W", r"\D", r"\S", "[ab]", "[^a]", r"[\da-]", "^", "$", r"\b", r"\B",
    r"\A", "é", "_", "[a-c]", "1", "\n", r"[\w-]", r"[^\s\W]", r"\<", "{", "[]a]", r"\x41", r"\u00e9", r"\é", r"[\b]",
]  # fmt: skip
TEXT = st.text("abAB1 _é\n-\x1c<{]\x08", max_size=14)


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
            inner.map(lambda one: f"(?P<n>{one})"),
            inner.map(lambda one: f"(?i:{one})"),
        ),
        max_leaves=6,
    )
    return st.tuples(st.sampled_from(["", "", "(?i)", "(?m)", "(?s)", "(?im)"]), grown).map("".join)


@settings(max_examples=400, deadline=None)
@given(patterns(), TEXT.filter(bool))
def test_the_same_is_found(pattern: str, text: str) -> None:
    """H2, V6: a pattern means what it means to Python, or it is refused."""
    try:
        expected = re.search(pattern, text) is not None
    except re.error:  # a group's name twice
        return
    if not (reason := why_not(pattern)):
        assert search(pattern)(text) is expected
    else:
        assert "$" in reason


@pytest.mark.parametrize(
    "pattern", [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"[\w]", r"[^\w]", r"[\W]", r"[\s]", "."]
)
def test_kinds_of_letters_are_pythons(pattern: str) -> None:
    """V6: also ``\\x1c``, a space to Python, and ``²``, a letter; only what Python's table does not know may differ."""
    found, known = search(pattern), re.compile(pattern)
    odd = [chr(n) for n in range(0x110000) if not 0xD800 <= n < 0xE000 and found(chr(n)) != bool(known.search(chr(n)))]
    assert all(unicodedata.category(letter) == "Cn" for letter in odd)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|a)*b", "(a+)+b", "(a*)*b", "(a|aa)+$", "(.*a){12}b", "a*a*a*a*a*a*b", "(a?){25}a{25}b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        r"(\w+\s?)*$|!!", "(?:a+){10,}b",
        "a?" * 30 + "a" * 30 + "b", "(a{0,15}){15}b",
        "(a|a){30}b", "(x+x+)+y", r"^(\d+)*[a-c]$", "((a|b)*(a|b)*)*c", "(?i)(a|A)*b", ".*.*.*=.*c",
    ],
)  # fmt: skip
def test_no_pattern_blows_up(pattern: str) -> None:
    """P5: what takes Python's search for ever takes as long as the text is: 200,000 letters take a moment."""
    found = search(pattern)
    begun = time.process_time()
    assert found("a" * 200_000 + "!\n") is (pattern == r"(\w+\s?)*$|!!")
    assert time.process_time() - begun < 5


def test_the_largest_repeat_is_bounded() -> None:
    """P5: every letter may lead to as many places as there are parts; that is why there are not more of them."""
    text = "".join(Random(1).choices("ab", k=50_000))
    begun = time.process_time()
    assert not search(f"(a|b)*a(a|b){{{MOST // 2}}}d")(text)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("(?=a)b", "(?="), ("(?!a)b", "(?!"), ("(?<=a)b", "(?<="), ("(?<!a)b", "(?<!"), ("(?>a)b", "(?>"),
        (r"(a)\1", r"\1"), ("(?P<n>a)(?P=n)", "(?P="), (r"(a)?(?(1)b|c)", "(?("), (r"a\Z", r"\Z"), (r"\0", r"\0"),
        ("(?#x)a", "(?#"), ("(?x) a", "(?x"), (r"(?a)\w", "(?a"), ("a{,3}", "{,3}"), ("a{,}", "{,}"),
        ("a*+", "+"), ("a++", "+"), ("a?+", "+"), ("a{2}+", "+"), ("a**", "*"), ("a{2}{3}", "{3}"), (r"\h", r"\h"),
        ("[[]", "["), ("[[:alpha:]]", "["), ("[a&&b]", "&&"), (r"[\w--_]", "--"), ("[a~~b]", "~~"), (r"[\A]", r"\A"),
        ("a$b", "b"), ("(a$)\n", r"\n"), ("(?:x|(?:a$|b))[c]", "[c]"), (r"a$\n", r"\n"), ("a$(b)", "b"),
        ("\ud800", r"\ud800"),
        ("a{1002}", "1000"), ("(a{40}){40}", "1000"), (r"\w{900}", "1000"), ("a{99999999999999999999}", "1000"),
        (f"a{{{'9' * 5_000}}}", "1000"), ("(a{500}){3,}", "1000"),
        ("(", "unclosed"), ("[b-a]", "range"), ("a{2,1}", "range"), ("*a", "missing"), (")", "unopened"),
        ("(" * 400 + ")" * 400, "nested"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_when_it_is_loaded(pattern: str, part: str) -> None:
    """P5: what the engine does not know, what it reads otherwise than Python, and what is too large; with why."""
    with pytest.raises(BadPattern) as bad:
        search(pattern)
    assert part in str(bad.value)
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        with pytest.raises(ValueError, match="cannot be used"):
            Schema(schema)


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        (r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$", "a.b@c-d.org", "a b@c.org"),  # as browsers read it
        ("[A-\\w]", "-", "!"),
        (r"^[]\]a]$", "]", "b"),
        (r"^{\w+}$", "{ab}", "{}"),
        (r"\<b\>", "<b>", "b"),
        (r"^\p{Lu}$", "É", "é"),
        (r"^(?<year>\d{4})$", "2026", "20"),
        (r"(^|/)x($|/)", "a/x", "xy"),
        ("^$|^a$", "a\n", "b"),
        ("(?m)a$\nb", "a\nb", "ab"),
        (r"^\d{1,1000}$", "1" * 1_000, "1" * 1_001),
        ("^..$", "\ud800\udfff", "\ud800"),
        ("^(?i-s:A)b(?-i:c)$", "abc", "aBc"),
        (r"^[a\-&~]$", "&", "b"),
        ("", "", None),
    ],
)
def test_what_is_read_as_it_is_meant(pattern: str, found: str, not_found: str | None) -> None:
    """V6: a dash beside a kind of letters, a brace that repeats nothing, halves of characters, ``$`` in branches."""
    assert search(pattern)(found)
    assert not_found is None or not search(pattern)(not_found)


def test_a_pattern_is_checked_on_a_megabyte() -> None:
    """V6, E7: each letter costs a look."""
    schema = Schema({"type": "string", "pattern": r"\d+%$"})
    assert not schema.accepts("1" * 1_000_000)
    assert schema.accepts("1" * 1_000_000 + "%")


def test_names_are_matched_where_arguments_are_mended() -> None:
    """H6: the rules of a name that a pattern names."""
    assert coerce({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": "1", "m": "1"}) == {"n1": 1, "m": "1"}


def test_the_engine_is_loaded_at_the_first_pattern() -> None:
    """E7: a plan without patterns does not wait for it."""
    code = """
import rerail, sys
from rerail.values.schema import Schema
Schema({"type": "string"})
assert "pydantic_core" not in sys.modules
Schema({"pattern": "a"})
assert "pydantic_core" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- Schemas of others --------------------------------------------------------------------------------------------

EMAIL = r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z.]+$"  # as zod writes it


def test_a_pattern_that_cannot_be_used_is_left_to_the_tool() -> None:
    """M1: of the schema of an MCP server all the rest is checked."""
    theirs: dict[str, Any] = {
        "type": "object",
        "properties": {"to": {"type": "string", "pattern": EMAIL}, "n": {"$ref": "#/$defs/n"}, "ok": {"pattern": "a"}},
        "$defs": {"n": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": EMAIL}]}},
        "required": ["to"],
    }
    schema = Schema(readable(theirs))
    assert schema.accepts({"to": "x", "n": "y"})
    assert not schema.accepts({}) and not schema.accepts({"to": 1}) and not schema.accepts({"to": "x", "ok": "b"})
    assert theirs["properties"]["to"]["pattern"] == EMAIL  # theirs is left as it is
    assert readable({"type": "string"}) == {"type": "string"}


LOOP: dict[str, Any] = {}
LOOP["not"] = LOOP


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"pattern": EMAIL}},
        {"properties": {"a": {"oneOf": [{"pattern": EMAIL}, {"type": "string"}]}}},
        {"patternProperties": {EMAIL: True}, "additionalProperties": False},
        {"pattern": EMAIL, "type": "strin"},
        {"pattern": 1, "default": object()},
        LOOP,
        [],
    ],
)
def test_a_schema_that_would_refuse_more_is_not_checked_at_all(schema: Any) -> None:
    """M1: without its patterns `not` would refuse what it takes; what has other problems is left to the tool too."""
    assert readable(schema) is True


def test_a_check_of_an_older_version_says_why_it_cannot_be_made() -> None:
    """V6: a recorded schema whose pattern cannot be used any more fails the step, with the reason."""
    (fault,) = unmet(Check(schema={"pattern": EMAIL}), "a@b.c")
    assert "cannot be used" in fault
    assert "无法使用" in retold(fault, "zh")


# -- Settings -----------------------------------------------------------------------------------------------------


def test_patterns_of_settings() -> None:
    """H2: extra patterns of `[classify]`; what is not a regular expression is looked for as plain text."""
    patterns = {Category.TOOL: ["(a|a)*b!", "quota (daily", "ended$"]}
    assert classify(Evidence(message="a" * 5_000), patterns) is not Category.TOOL
    assert classify(Evidence(message="AAb! no"), patterns) is Category.TOOL
    assert classify(Evidence(message="Quota (Daily)"), patterns) is Category.TOOL
    assert classify(Evidence(message="contract ended\n"), patterns) is Category.TOOL


@pytest.mark.parametrize("pattern", ["(?=a)b", "C++", "[[a]", "a" * 3 + "{1,2000}"])
def test_a_pattern_that_python_reads_otherwise_is_refused_with_the_settings(pattern: str) -> None:
    """H2: it would be looked for as plain text, without a word."""
    with pytest.raises(SettingsError, match="cannot be used"):
        Settings.load({"classify": {"tool_error": [pattern]}})
    assert Settings.load({"classify": {"tool_error": ["quota (daily", "a{9999999999999999999999}"]}}).patterns()
