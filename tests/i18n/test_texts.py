"""Sentences: durations as people say them, and errors in the reader's language."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.codes import Category
from rerail.errors import Refused
from rerail.i18n import (
    UNSAYABLE,
    Told,
    about,
    clipped,
    one_by_one,
    put_together,
    retold,
    span,
    taken_apart,
    tell,
    values_of,
    words_of,
)
from rerail.kernel.events import Error


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.05, "50 ms"), (0.0994, "99 ms"), (0.0995, "0.1 s"), (99.4, "99.4 s"), (99.5, "1 min 40 s"),
     (3725, "62 min 5 s"), (5999, "99 min 59 s"), (6000, "1 h 40 min"), (90_000, "25 h 0 min")],
)  # fmt: skip
def test_a_duration_as_people_say_it(seconds: float, words: str) -> None:
    """T12: two numbers at most."""
    assert span(seconds) == words


def error(code: str, message: str, data: dict[str, Any]) -> Error:
    """An error as a history has it."""
    return Error(code, Category.TRANSIENT, message, data=data)


def test_an_error_in_the_readers_language() -> None:
    """T12: made anew where it came from the catalogue; a tool's own words stay, and so does what lacks a part."""
    assert retold(error("TIMEOUT", "english", {"seconds": 3}).told, "en") == "english"
    assert retold(error("TIMEOUT", "english", {"seconds": 3.0}).told, "zh") == "超时：3 秒内没有完成"
    assert type(error("TIMEOUT", "its own words", {}).told) is str
    assert type(error("NO_SUCH_CODE", "its own words", {}).told) is str
    assert type(error("TIMEOUT", "its own words", {"seconds": "3"}).told) is str
    inside = {"step": "a", "reason": tell("reason.notify.no_connection", why="x"), "producer": "a"}
    assert "无法连接" in retold(error("ARTIFACT_GONE", "english", inside).told, "zh")
    plain = {**inside, "reason": str(inside["reason"])}
    assert "no connection" in retold(error("ARTIFACT_GONE", "english", plain).told, "zh")


def test_an_error_as_a_sentence_inside_of_another() -> None:
    """T12: made of its data, worded as it was; one that is a sentence already as it is."""
    told = error("TIMEOUT", "timed out, as it was said once", {"seconds": 3.0, "args": {"x": 1}}).told
    assert isinstance(told, Told) and told == "timed out, as it was said once"
    skipped = tell("skip.SKIP_OPTIONAL", retries=2, reason=told)
    assert retold(skipped, "zh") == "可选步骤在重试 2 次后跳过：超时：3 秒内没有完成"
    assert taken_apart(skipped)["values"]["reason"] == {"key": "error.TIMEOUT", "values": {"seconds": 3.0}}
    assert error("X", told, {}).told is told


def test_sentences_one_after_the_other() -> None:
    """T12: each is told; other people's words stay as they are."""
    one, other = tell("refuse.plan.steps_missing"), tell("reason.notify.no_connection", why="x")
    both = one_by_one([one, "foreign", other])
    assert both == f"{one}; foreign; {other}"
    assert retold(both, "zh") == f"{retold(one, 'zh')}；foreign；{retold(other, 'zh')}"
    foreign = one_by_one(["foreign", "words"])
    assert foreign == "foreign; words" and type(foreign) is str
    assert one_by_one([one]) is one and one_by_one([]) == ""
    assert one_by_one([one, "x"], "text.after") == f"{one}; then x"
    assert retold(about("a.json", one), "zh") == f"a.json：{retold(one, 'zh')}" and about("a", "b") == "a: b"


def test_a_sentence_that_is_cut_is_only_text() -> None:
    """T12: what is short enough stays what it is."""
    told = tell("reason.notify.no_connection", why="x")
    assert clipped(told, 100) is told and type(clipped(told, 5)) is str and clipped(told, 5).endswith("…")
    assert clipped("one two three four", 12) == "one two…" and clipped("一二三四五六", 4) == "一二三…"


def test_what_an_exception_says_stays_a_sentence() -> None:
    """T12: with what is said behind it, too; any other exception says what it says."""
    told = tell("reason.no_number", item="nan")
    assert words_of(ValueError(told)) is told
    hinted = words_of(Refused(told, "X", hint="do that"))
    assert hinted == f"{told} (do that)" and retold(hinted, "zh") == f"{retold(told, 'zh')} (do that)"
    assert words_of(KeyError(told)) == repr(str(told)) and words_of(ValueError("a", 1)) == "('a', 1)"


# -- Key and values as data ---------------------------------------------------------------------------------------


class Odd:
    """A value that shows itself in two ways."""

    def __str__(self) -> str:
        return "odd"


def test_a_sentence_is_taken_apart_and_put_together() -> None:
    """T12: sentences and exceptions inside of it as well; only what its gaps hold."""
    inner = tell("reason.notify.no_connection", why="x")
    told = tell("summary.of", id=1, reason=ValueError(inner), unused=Odd())
    plain = taken_apart(told)
    assert plain == {
        "key": "summary.of",
        "values": {"id": 1, "reason": {"key": "reason.notify.no_connection", "values": {"why": "x"}}},
    }
    again = put_together(plain)
    assert again == told and retold(again, "zh") == retold(told, "zh")
    assert list(values_of(told))[:2] == ["1", str(inner)] and list(values_of("plain")) == []
    assert list(values_of(tell("summary.of", id="a", reason=inner))) == ["a", str(inner), "x"]


def test_values_that_are_no_data_are_kept_as_texts() -> None:
    """T12: numbers stay numbers; what cannot be written is replaced."""
    told = tell("summary.of", id=Odd(), reason="\ud800")
    assert taken_apart(told) == {"key": "summary.of", "values": {"id": "odd", "reason": "?"}}
    assert [taken_apart(value) for value in (1, 2.5, True, None, "x")] == [1, 2.5, True, None, "x"]


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"key": "no.such.key", "values": {}},
        {"key": "summary.of", "values": {"id": 1}},
        {"key": "summary.of", "values": {"id": 1, "reason": {"key": "no.such.key", "values": {}}}},
        {"key": "summary.of", "values": []},
        {"key": ["x"], "values": {}},
        {"key": "error.TIMEOUT", "values": {"seconds": "long"}},
    ],
)
def test_what_the_catalogue_cannot_say_is_nothing(plain: dict[str, Any]) -> None:
    """T12: another version's keys, and what was tampered with."""
    with pytest.raises(UNSAYABLE):
        put_together(plain)


def test_a_sentence_that_is_worded_otherwise_today_is_shown_as_it_was() -> None:
    """T12: its key is gone, or has another gap."""
    told = tell("summary.of", id="a", reason="b").worded("as it was")
    assert told.worded("as it was") is told
    assert told == retold(told, "en") == "as it was" and retold(told, "zh") == "a (b)"
    told.values = {"id": "a"}
    assert retold(told, "zh") == "as it was"
    told.key = "no.such.key"
    assert retold(told, "zh") == "as it was"
