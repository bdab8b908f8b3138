"""Secrets are blotted out in every spelling that what leaves may hold (M1, SECURITY)."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from rerail.values.redaction import BLOT, SHORTEST, Scrub

SECRET = 'p_a.s-s~w/rd"\x80é ª1'


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET, safe="/"),
        'p_a.s-s~w/rd\\"\x80é ª1',  # inside a text that is itself JSON
        'p_a.s-s~w\\/rd\\\\\\"\x80\\u00e9 \\u00AA1',  # slashes and other letters escaped, in JSON inside JSON
        quote(SECRET, safe="").lower(),
        quote(SECRET, safe="/").replace("%20", "+"),
    ],
)
def test_a_secret_is_found_however_it_is_written(spelling: str) -> None:
    """SECURITY: as it is, as JSON writes it, and as an address holds it, its plain signs left as they are."""
    scrub = Scrub({SECRET: "KEY", "another one": "OTHER"})
    assert scrub.text(f"<{spelling}>") == f"<{BLOT}>"
    assert scrub.value({spelling: [spelling, 1, None]}) == {BLOT: [BLOT, 1, None]}


def test_of_two_secrets_the_longer_one_goes_first() -> None:
    """SECURITY: one may begin with the other, and its rest would stay to be read."""
    scrub = Scrub({"abcdefgh": "SHORT", "abcdefgh-more": "LONG"})
    assert scrub.text("abcdefgh-more abcdefgh") == f"{BLOT} {BLOT}"
    assert scrub.found(b'{"a":"abcdefgh-more"}') == "LONG" and scrub.found(b'"abcdefgh"') == "SHORT"
    assert scrub.found(b'"abc"') is None and scrub.found(b'"abcdefg"') is None


def test_a_word_that_is_no_secret_is_left_in_answers() -> None:
    """M1: servers that need no key get a word instead; what is as long as a key counts as one."""
    assert Scrub(["x" * (SHORTEST - 1)]).text("x" * (SHORTEST - 1)) == "x" * (SHORTEST - 1)
    assert Scrub(["x" * SHORTEST]).text("x" * SHORTEST) == BLOT
    assert Scrub(["x" * SHORTEST]).active and not Scrub(["EMPTY"]).active


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sent Bearer abc.def-123", f"sent Bearer {BLOT}"),
        ("sent basic QWxhZGRpbjpvcGVu", f"sent basic {BLOT}"),
        ("bearer of news", "bearer of news"),
    ],
)
def test_credentials_that_a_server_sends_back_are_blotted_out(text: str, told: str) -> None:
    """SECURITY: also those that nobody told of."""
    assert Scrub().message(text) == told


def test_the_long_lines_of_a_secret_are_secrets() -> None:
    """SECURITY: a key in PEM comes line by line where a tool reads lines; its frame is no secret."""
    inside = ["MIIEvQIBADANBgkqhkiG9w0B", "AQEFAASCBKcwggSjAgEAAoIB"]
    lines = ["-----BEGIN PRIVATE KEY-----", *inside, "-----END PRIVATE KEY-----"]
    scrub = Scrub({"\n".join(lines) + "\n": "PEM"})
    assert scrub.value(lines) == [lines[0], BLOT, BLOT, lines[3]]
    assert scrub.text("a " + "\\n".join(lines) + " b") == f"a {BLOT} b"
    assert scrub.value(["MIIEvQIBADAN", "short"]) == ["MIIEvQIBADAN", "short"]


def test_a_secret_without_letters_in_a_row_is_found_too() -> None:
    """SECURITY: there is nothing to search for first."""
    assert Scrub(["a-b-c-d-e-f"]).text("<a-b-c-d-e-f>") == f"<{BLOT}>"
    assert Scrub(["ключ пароль"]).text("ключ%20пароль") == BLOT


def test_what_is_learnt_is_told_on() -> None:
    """T9: a process beside this one redacts the same, also what is learnt later; what is known is not told again."""
    told: list[list[str]] = []
    scrub = Scrub(["abcdefgh"])
    scrub.follow(told.append)
    scrub.learn({"abcdefgh": "AGAIN"})
    scrub.learn({"ijklmnop-more": "NEW"})
    assert [len(patterns) for patterns in told] == [1, 2]
    assert re.fullmatch(told[1][0], "ijklmnop%2Dmore")
